//===- ViewsTest.cpp - Block tables of a sharded KV cache -----------------===//

#include "shardq/views.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace {
using Ints = std::vector<int32_t>;
/// A pool that has every block.
constexpr int64_t kAllBlocks = int64_t(1) << 31;
} // namespace

static Ints replicate(const Ints &row, int64_t ranks, int64_t perBlock,
                      int32_t length = 1000) {
  Ints view(row.size() * ranks);
  shardq_replicated_view(row.data(), 1, row.size(), row.size(), &length, ranks,
                         perBlock, view.data());
  return view;
}

TEST(Views, GoldenLocalLengths) {
  auto lengths = [](int64_t ranks, int64_t interleave, int64_t rank,
                    const Ints &tokens) {
    Ints result;
    for (int32_t n : tokens)
      result.push_back(static_cast<int32_t>(
          shardq_local_length(n, ranks, rank, interleave)));
    return result;
  };
  Ints tokens{0, 3, 4, 5, 8, 9, 12};
  EXPECT_EQ(lengths(2, 4, 0, tokens), (Ints{0, 3, 4, 4, 4, 5, 8}));
  EXPECT_EQ(lengths(2, 4, 1, tokens), (Ints{0, 0, 0, 1, 4, 4, 4}));
  for (int64_t rank = 0; rank != 8; ++rank)
    EXPECT_EQ(shardq_local_length(1000, 8, rank, 128), rank == 7 ? 104 : 128);
  // Tokens of a step with history 5, as each sees them: N = 2, I = 1.
  EXPECT_EQ(lengths(2, 1, 0, {6, 7, 8, 9}), (Ints{3, 4, 4, 5}));
  EXPECT_EQ(lengths(2, 1, 1, {6, 7, 8, 9}), (Ints{3, 3, 4, 4}));
  EXPECT_EQ(shardq_local_length(-5, 2, 0, 4), 0);
  EXPECT_EQ(shardq_local_length(5, 2, 0, 0), 0);
}

TEST(Views, GoldenReplicated) {
  EXPECT_EQ(replicate({10, 11, 12, 13}, 2, 1),
            (Ints{20, 21, 22, 23, 24, 25, 26, 27}));
  EXPECT_EQ(replicate({3, 9}, 3, 1), (Ints{9, 10, 11, 27, 28, 29}));
  EXPECT_EQ(replicate({10, 11, 16, 17}, 2, 2),
            (Ints{20, 21, 22, 23, 32, 33, 34, 35}));
  EXPECT_EQ(replicate({10, 11}, 2, 1, 0), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(replicate({-1, 1 << 30}, 2, 1), (Ints{-1, -1, -1, -1}));
  // A physical block of which the table has a half.
  EXPECT_EQ(replicate({4, 5, 6}, 2, 2), (Ints{8, 9, 10, 11, 12, -1}));
}

TEST(Views, GoldenReplicatedSlots) {
  Ints view = replicate({10, 11}, 2, 1);
  Ints slots;
  for (int64_t position : {0, 3, 4, 7, 8, 15, 16, -1})
    slots.push_back(static_cast<int32_t>(
        shardq_view_slot(view.data(), view.size(), 4, position)));
  EXPECT_EQ(slots, (Ints{80, 83, 84, 87, 88, 95, -1, -1}));
}

TEST(Views, GoldenGatheredWhole) {
  Ints gathered(16);
  // I == k, so the columns take turns.
  ASSERT_EQ(shardq_gathered_table(2, 2, nullptr, 4, 4, 64, 64, gathered.data()),
            SHARDQ_OK);
  EXPECT_EQ(gathered,
            (Ints{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}));
}

TEST(Views, GoldenGatheredCompact) {
  Ints table{1, 2, 3, 4, 5, 6, 1, 2}, lengths{100000, 100000};
  Ints valid(8), inverse(8), gathered(32);
  ASSERT_EQ(shardq_gather_blocks(table.data(), 2, 4, 4, lengths.data(), 4, 64,
                                 64, 0, kAllBlocks, valid.data(),
                                 inverse.data()),
            6);
  valid.resize(6);
  EXPECT_EQ(valid, (Ints{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(shardq_gathered_table(2, 4, inverse.data(), 6, 4, 64, 64,
                                  gathered.data()),
            SHARDQ_OK);
  EXPECT_EQ(gathered,
            (Ints{0, 6,  12, 18, 1, 7,  13, 19, 2, 8, 14, 20, 3, 9, 15, 21,
                  4, 10, 16, 22, 5, 11, 17, 23, 0, 6, 12, 18, 1, 7, 13, 19}));
}

TEST(Views, GathersNoMoreThanRankZeroHas) {
  // 5 tokens over 2 ranks by fours, in blocks of 4: one block each. The null
  // block is not gathered, nor is anything of a request without tokens.
  Ints table{7, 8, 0, 9, 3, 4}, lengths{5, 16, 0}, valid(6), inverse(6);
  EXPECT_EQ(shardq_gather_blocks(table.data(), 3, 2, 2, lengths.data(), 2, 4, 4,
                                 0, kAllBlocks, valid.data(), inverse.data()),
            2);
  EXPECT_EQ(Ints(valid.begin(), valid.begin() + 2), (Ints{7, 9}));
  EXPECT_EQ(inverse, (Ints{0, -1, -1, 1, -1, -1}));
}

TEST(Views, GathersNoBlockThatTheCacheHasNot) {
  Ints table{7, 8, 2147483647, 6, 3, 7}, lengths{16, 16, 16};
  Ints valid(6), inverse(6);
  auto gather = [&](int64_t pool) {
    return shardq_gather_blocks(table.data(), 3, 2, 2, lengths.data(), 2, 4, 4,
                                -1, pool, valid.data(), inverse.data());
  };
  EXPECT_EQ(gather(8), 3);
  EXPECT_EQ(valid, (Ints{3, 6, 7, -1, -1, -1}));
  EXPECT_EQ(inverse, (Ints{2, -1, -1, 1, 0, 2}));
  for (int64_t none : {int64_t(3), int64_t(0), int64_t(-5)}) {
    EXPECT_EQ(gather(none), 0);
    EXPECT_EQ(inverse, Ints(6, -1));
  }
  EXPECT_EQ(gather(2147483647), 4);
  EXPECT_EQ(gather(2147483648), 5);
}

TEST(Views, NoTableWhereBlocksHoldNoNeighbours) {
  Ints gathered(8);
  EXPECT_EQ(shardq_gathered_table(1, 4, nullptr, 4, 2, 32, 64, gathered.data()),
            SHARDQ_INVALID);
  EXPECT_EQ(shardq_gathered_table(1, 4, nullptr, 4, 0, 64, 64, gathered.data()),
            SHARDQ_INVALID);
  EXPECT_EQ(
      shardq_gathered_table(1, 4, nullptr, 1 << 30, 4, 64, 64, gathered.data()),
      SHARDQ_INVALID);
}

/// Each token is found where its owner's rows went, by both ways.
TEST(Views, RandomTokensAreFound) {
  unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int turn = 0; turn != 200; ++turn) {
    int64_t ranks = 1 + random() % 8;
    int64_t kernelBlock = 1 << random() % 3;
    int64_t block = kernelBlock << random() % 3;
    // Any divisor of the block.
    int64_t interleave = block;
    while (random() % 2 && interleave > 1)
      interleave /= 2;
    int64_t requests = 1 + random() % 3, blocks = 6;
    // Tables of physical blocks, and the same in kernel blocks.
    int64_t perBlock = block / kernelBlock, width = blocks * perBlock;
    Ints physical(requests * blocks), kernel(requests * width), lengths;
    Ints order(requests * blocks);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i = 0; i != physical.size(); ++i) {
      physical[i] = order[i];
      for (int64_t j = 0; j != perBlock; ++j)
        kernel[i * perBlock + j] =
            static_cast<int32_t>(order[i] * perBlock + j);
    }
    int64_t capacity = blocks * block * ranks;
    for (int64_t i = 0; i != requests; ++i)
      lengths.push_back(static_cast<int32_t>(random() % (capacity + 1)));

    // By slots, which every interleave allows: a token of which rank is in
    // which row of its own cache.
    Ints valid(physical.size()), inverse(physical.size());
    int64_t count = shardq_gather_blocks(
        physical.data(), requests, blocks, blocks, lengths.data(), ranks,
        interleave, block, 0, kAllBlocks, valid.data(), inverse.data());
    std::map<int64_t, int64_t> rowOf; // gathered row -> the owner's row
    for (int64_t rank = 0; rank != ranks; ++rank)
      for (int64_t i = 0; i != count; ++i)
        for (int64_t j = 0; j != block; ++j)
          rowOf[(rank * count + i) * block + j] =
              (rank << 32) + valid[i] * block + j;
    auto ownRow = [&](int64_t request, int64_t token) {
      int64_t owner = token / interleave % ranks;
      int64_t local = shardq_local_length(token, ranks, owner, interleave);
      return (owner << 32) +
             physical[request * blocks + local / block] * block + local % block;
    };
    for (int64_t i = 0; i != requests; ++i)
      for (int64_t token = 0; token != lengths[i]; ++token) {
        int64_t slot = shardq_gathered_slot(&inverse[i * blocks], blocks, count,
                                            ranks, interleave, block, token);
        ASSERT_GE(slot, 0);
        ASSERT_EQ(rowOf[slot], ownRow(i, token)) << token;
      }

    // By a block table, where kernel blocks hold neighbours.
    Ints kernelValid(kernel.size()), kernelInverse(kernel.size());
    int64_t kernelCount = shardq_gather_blocks(
        kernel.data(), requests, width, width, lengths.data(), ranks,
        interleave, kernelBlock, 0, kAllBlocks, kernelValid.data(),
        kernelInverse.data());
    Ints gathered(requests * width * ranks);
    shardq_status status = shardq_gathered_table(
        requests, width, kernelInverse.data(), kernelCount, ranks, interleave,
        kernelBlock, gathered.data());
    ASSERT_EQ(status,
              interleave % kernelBlock == 0 ? SHARDQ_OK : SHARDQ_INVALID);
    if (status != SHARDQ_OK)
      continue;
    for (int64_t i = 0; i != requests; ++i)
      for (int64_t token = 0; token != lengths[i]; ++token) {
        int64_t slot = shardq_view_slot(&gathered[i * width * ranks],
                                        width * ranks, kernelBlock, token);
        ASSERT_GE(slot, 0);
        int64_t place = slot / kernelBlock;
        int64_t row = (place / kernelCount << 32) +
                      int64_t(kernelValid[place % kernelCount]) * kernelBlock +
                      slot % kernelBlock;
        ASSERT_EQ(row, ownRow(i, token)) << token;
      }
  }
}
