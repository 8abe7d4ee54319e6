//===- KvShardsTest.cpp - Each rank's part of a sharded KV cache ----------===//

#include "KvShards.h"
#include "Helpers.h"
#include <cmath>
#include <map>

using namespace mlir::shardq;
using namespace mlir::shardq::run;

static std::string makeProgram(int64_t ranks, int64_t interleave) {
  std::string mesh =
      "shardq.mesh @ranks [\"tp\" = " + std::to_string(ranks) + "]";
  return mesh + R"(
  func.func @attention(
      %q: tensor<?x2x8xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
      %kv: tensor<?x8xf32>, %topk: tensor<?x4xi32>, %starts: tensor<?xi32>,
      %lens: tensor<?xi32>, %table: tensor<?x?xi32>, %rows: index)
      -> (tensor<?x2x6xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
    %req, %visible = shardq.expand_rows %starts, %lens to %rows
        : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
    %slots = shardq.convert_indices %topk table(%table) rows(%req)
        {block_size = 4 : i64, block_stride_rows = 7 : i64}
        : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
    %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
        {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"],
         kv = interleave<)" +
         std::to_string(interleave) + R"(> ["tp"]>}
        : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>) -> tensor<?x2x6xf32>
    return %out : tensor<?x2x6xf32>
  })";
}

/// Every token of the global cache is on its owner, where the owner's table
/// says, and nothing else is anywhere.
static void expectPartition(Tables tables) {
  for (int64_t ranks : {2, 3, 8})
    for (int64_t interleave : {1, 2, 4}) {
      TestModule test(makeProgram(ranks, interleave).c_str());
      Signature signature = test.signature();
      InputOptions options;
      options.step.emplace();
      options.step->queryLens = {2, 1, 0, 1};
      options.step->contextLens = {37, 0, 9, 70};
      Inputs inputs = llvm::cantFail(makeInputs(signature, options));
      KvShards shards =
          llvm::cantFail(shardCaches(signature, inputs, 5, tables));
      unsigned kv = 1, table = 5;
      const Array &whole = inputs.arrays[kv], &blocks = inputs.arrays[table];
      EXPECT_EQ(shards.find(signature, 0, 0), nullptr);

      for (int64_t rank = 0; rank < ranks; ++rank) {
        const Array &own = *shards.find(signature, kv, rank);
        const Array &ownBlocks = *shards.find(signature, table, rank);
        const Array &first = *shards.find(signature, table, 0);
        for (int64_t i = 0; i < ownBlocks.getNumElements(); ++i)
          if (tables == Tables::Alike)
            EXPECT_EQ(ownBlocks.getInt(i), first.getInt(i));
        std::map<int64_t, int64_t> global; // by local row
        for (int64_t r = 0; r < 4; ++r)
          for (int64_t t = 0; t < inputs.step.getSeqLen(r); ++t) {
            if (t / interleave % ranks != rank)
              continue;
            int64_t l = t / (ranks * interleave) * interleave + t % interleave;
            int64_t to =
                ownBlocks.getInt(r * ownBlocks.shape[1] + l / 4) * 7 + l % 4;
            int64_t from =
                blocks.getInt(r * blocks.shape[1] + t / 4) * 7 + t % 4;
            EXPECT_TRUE(global.emplace(to, from).second) << "one slot, twice";
          }
        for (int64_t row = 0; row < own.getNumRows(); ++row) {
          auto found = global.find(row);
          for (int64_t d = 0; d < 8; ++d) {
            double value = own.getFloat(row * 8 + d);
            if (found == global.end())
              EXPECT_TRUE(std::isnan(value)) << "row " << row << " of nobody";
            else
              EXPECT_EQ(value, whole.getFloat(found->second * 8 + d));
          }
        }
      }
    }
}

TEST(KvShards, PartitionsTokens) { expectPartition(Tables::Own); }

TEST(KvShards, PartitionsTokensByOneTable) { expectPartition(Tables::Alike); }

TEST(KvShards, NothingForWholeCaches) {
  TestModule test(makeProgram(1, 4).c_str());
  Signature signature = test.signature();
  InputOptions options;
  options.step.emplace();
  options.step->queryLens = {1};
  options.step->contextLens = {9};
  Inputs inputs = llvm::cantFail(makeInputs(signature, options));
  EXPECT_TRUE(llvm::cantFail(shardCaches(signature, inputs, 0)).arrays.empty());
}
