//===- InputsTest.cpp - Roles of arguments and made-up arrays -------------===//

#include "Inputs.h"
#include "Helpers.h"
#include "Npy.h"
#include "llvm/Support/FileSystem.h"
#include <set>

using namespace mlir::shardq;
using namespace mlir::shardq::run;

static constexpr const char *kAttention = R"(
  shardq.mesh @ranks ["tp" = 2]
  func.func @attention(
      %q: tensor<?x2x8xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
      %kv: tensor<?x8xf32>, %iq: tensor<?x2x4xf32>, %iw: tensor<?x2xf32>,
      %ik: tensor<?x4xf32>, %starts: tensor<?xi32>, %lens: tensor<?xi32>,
      %table: tensor<?x?xi32>, %rows: index)
      -> (tensor<?x2x6xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
    %req, %visible = shardq.expand_rows %starts, %lens to %rows
        {speculative_tokens = 1 : i64}
        : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
    %topk = func.call @choose(%iq, %iw, %ik, %table, %req, %visible)
        : (tensor<?x2x4xf32>, tensor<?x2xf32>, tensor<?x4xf32>, tensor<?x?xi32>,
           tensor<?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
    %slots = shardq.convert_indices %topk table(%table) rows(%req)
        {block_size = 2 : i64, block_stride_rows = 3 : i64}
        : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
    %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
        {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
        : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>) -> tensor<?x2x6xf32>
    return %out : tensor<?x2x6xf32>
  }
  func.func @choose(%q: tensor<?x2x4xf32>, %w: tensor<?x2xf32>,
                    %keys: tensor<?x4xf32>, %t: tensor<?x?xi32>,
                    %r: tensor<?xi32>, %v: tensor<?xi32>) -> tensor<?x4xi32> {
    %topk = shardq.indexer q(%q) weights(%w) keys(%keys) table(%t) rows(%r, %v)
        {block_size = 2 : i64}
        : (tensor<?x2x4xf32>, tensor<?x2xf32>, tensor<?x4xf32>, tensor<?x?xi32>,
           tensor<?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
    return %topk : tensor<?x4xi32>
  })";

static Step makeStep() {
  Step step;
  step.queryLens = {2, 3, 0};
  step.contextLens = {5, 1, 4};
  step.paddingRows = 1;
  return step;
}

TEST(Signature, FindsRolesThroughCalls) {
  TestModule test(kAttention);
  Signature signature = test.signature();
  std::vector<Role> roles;
  for (const Argument &argument : signature.arguments)
    roles.push_back(argument.role);
  EXPECT_EQ(roles,
            (std::vector<Role>{Role::Query, Role::Cache, Role::RowData,
                               Role::Weights, Role::Cache, Role::QueryStart,
                               Role::SeqLens, Role::Table, Role::Rows}));
  EXPECT_EQ(signature.arguments[0].name, "q");
  EXPECT_EQ(signature.arguments[1].blockStride, 3);
  EXPECT_EQ(signature.arguments[4].blockStride, 2);
  EXPECT_EQ(signature.arguments[1].table, 7);
  EXPECT_EQ(signature.arguments[4].table, 7);
  EXPECT_EQ(*signature.speculativeTokens, 1);
  EXPECT_EQ(signature.topk, 4);
  EXPECT_EQ(*signature.find("%kv"), 1u);
  EXPECT_EQ(*signature.find("3"), 3u);
  EXPECT_FALSE(signature.find("nothing"));
}

TEST(Signature, ChoosesTheEntry) {
  TestModule test(kAttention);
  EXPECT_EQ(test.entry().getName(), "attention");
  EXPECT_NE(
      getError(findEntry(*test.module, "other")).find("no function @other"),
      std::string::npos);
  TestModule two("func.func @a() { return }\nfunc.func @b() { return }");
  EXPECT_NE(getError(findEntry(*two.module, "")).find("@a, @b"),
            std::string::npos);
}

TEST(Inputs, FollowTheStep) {
  TestModule test(kAttention);
  InputOptions options;
  options.step = makeStep();
  auto inputs = makeInputs(test.signature(), options);
  ASSERT_TRUE(bool(inputs)) << llvm::toString(inputs.takeError());
  const std::vector<Array> &arrays = inputs->arrays;
  EXPECT_EQ(describe(arrays[0]), "6x4x8xf32"); // global: both ranks' heads
  EXPECT_EQ(getInts(arrays[5]), (std::vector<int64_t>{0, 2, 5, 5}));
  EXPECT_EQ(getInts(arrays[6]), (std::vector<int64_t>{7, 4, 4}));
  EXPECT_EQ(getInts(arrays[8]), (std::vector<int64_t>{6}));
  EXPECT_EQ(*inputs->step.blockSize, 2);

  // Blocks: 4 + 2 + 2 distinct ones, and three of nobody.
  const Array &table = arrays[7];
  EXPECT_EQ(describe(table), "3x4xi32");
  std::set<int64_t> blocks;
  int64_t counts[] = {4, 2, 2};
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t b = 0; b < counts[r]; ++b)
      EXPECT_TRUE(blocks.insert(table.getInt(r * 4 + b)).second);
  EXPECT_EQ(describe(arrays[1]), "33x8xf32"); // 11 blocks, 3 rows apart
  EXPECT_EQ(describe(arrays[4]), "22x4xf32");

  // Exactly the keys of the requests are numbers.
  std::set<int64_t> keys;
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t p = 0; p < inputs->step.getSeqLen(r); ++p)
      keys.insert(table.getInt(r * 4 + p / 2) * 3 + p % 2);
  for (int64_t row = 0; row < 33; ++row)
    EXPECT_EQ(std::isnan(arrays[1].getFloat(row * 8)), !keys.count(row)) << row;
}

TEST(Inputs, LeaveTheNullBlockFree) {
  TestModule test(kAttention);
  Signature signature = test.signature();
  for (int64_t none : {-1, 0, 4, 1000}) {
    InputOptions options;
    options.step = makeStep();
    options.nullBlock = none;
    std::set<int64_t> blocks;
    // Of 11 blocks 8 are used, each sooner or later.
    for (options.seed = 0; options.seed != 60; ++options.seed) {
      auto inputs = llvm::cantFail(makeInputs(signature, options));
      for (int64_t block : getInts(inputs.arrays[7]))
        blocks.insert(block);
    }
    EXPECT_EQ(blocks.size(), none == 0 || none == 4 ? 10u : 11u) << none;
    EXPECT_FALSE(blocks.count(none)) << none;
  }
}

TEST(Inputs, HoldTheTokensOfDraftSteps) {
  TestModule test(R"(
  func.func @f(%q: tensor<?x2x8xf32>, %kv: tensor<?x8xf32>, %n: tensor<?xi32>,
               %topk: tensor<?x4xi32>, %req: tensor<?xi32>,
               %table: tensor<?x?xi32>, %last: index)
      -> (tensor<?x2x6xf32>, tensor<?xi32>, tensor<?xi32>) {
    %two = arith.constant 2 : index
    %zero = arith.constant 0 : index
    %a = shardq.draft_lengths %n step(%two) : (tensor<?xi32>, index) -> tensor<?xi32>
    %b = shardq.draft_lengths %a step(%zero) : (tensor<?xi32>, index) -> tensor<?xi32>
    %c = shardq.draft_lengths %b step(%last) : (tensor<?xi32>, index) -> tensor<?xi32>
    %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
        : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
    %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32}
        : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>) -> tensor<?x2x6xf32>
    return %out, %b, %c : tensor<?x2x6xf32>, tensor<?xi32>, tensor<?xi32>
  })");
  Signature signature = test.signature();
  // Three by the first, one more by the second; the third's are not known.
  EXPECT_EQ(signature.draftTokens, 4);
  ASSERT_EQ(signature.draftSteps.size(), 1u);
  EXPECT_EQ(signature.draftSteps[0], (std::pair<unsigned, int64_t>(6, 4)));
  InputOptions options;
  options.step.emplace();
  options.step->queryLens = {1, 0, 2};
  options.step->contextLens = {5, 0, 1};
  llvm::SmallString<64> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("shardq", "npy", path));
  Array last = llvm::cantFail(allocateArray(Element::I64, {}, "test"));
  last.setInt(0, 6);
  llvm::cantFail(writeNpy(path, last));
  options.files = {("last=" + path).str()};
  auto inputs = llvm::cantFail(makeInputs(signature, options));
  (void)llvm::sys::fs::remove(path);
  EXPECT_EQ(inputs.step.draftTokens, 11);
  int64_t numbers = 0;
  for (int64_t row = 0; row < inputs.arrays[1].getNumRows(); ++row)
    numbers += !std::isnan(inputs.arrays[1].getFloat(row * 8));
  // An absent request has none.
  EXPECT_EQ(numbers, (6 + 11) + (3 + 11));
}

TEST(Signature, TakesWholeArgumentsOfChangedPrograms) {
  TestModule test(R"(
    shardq.mesh @ranks ["tp" = 4]
    func.func @f(%w: tensor<2x3xf32> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
                 %x: tensor<2x3xf32>) { return }
    func.func @whole(%w: tensor<8x3xf32>, %x: tensor<2x3xf32>) { return }
    func.func @part(%w: tensor<4x3xf32>, %x: tensor<2x3xf32>) { return }
    func.func @unsplit(%w: tensor<2x3xf32>, %x: tensor<2x3xf32>) { return }
    func.func @element(%w: tensor<8x3xbf16>, %x: tensor<2x3xf32>) { return }
    func.func @other(%w: tensor<8x3xf32>, %x: tensor<8x3xf32>) { return })");
  Signature signature =
      llvm::cantFail(analyzeSignature(test.entry("f"), nullptr));
  auto adapt = [&](const char *name) {
    return adaptSignature(signature, *test.module, name);
  };
  auto whole = adapt("whole");
  ASSERT_TRUE(bool(whole)) << llvm::toString(whole.takeError());
  EXPECT_FALSE(whole->arguments[0].split);
  EXPECT_EQ(whole->arguments[0].getGlobalShape(),
            (llvm::SmallVector<int64_t, 4>{8, 3}));
  for (const char *wrong : {"part", "unsplit", "element", "other"}) {
    std::string error = getError(adapt(wrong));
    EXPECT_NE(error.find(", and the passes make it "), std::string::npos)
        << wrong << ": " << error;
  }
}

TEST(Inputs, DependOnTheSeedAlone) {
  TestModule test(kAttention);
  InputOptions options;
  options.step = makeStep();
  Signature signature = test.signature();
  auto a = llvm::cantFail(makeInputs(signature, options));
  auto b = llvm::cantFail(makeInputs(signature, options));
  options.seed = 1;
  auto c = llvm::cantFail(makeInputs(signature, options));
  int64_t bytes = a.arrays[0].getNumBytes();
  EXPECT_EQ(std::memcmp(a.arrays[0].data.get(), b.arrays[0].data.get(), bytes),
            0);
  EXPECT_NE(std::memcmp(a.arrays[0].data.get(), c.arrays[0].data.get(), bytes),
            0);
}

TEST(Inputs, SayWhatIsWrong) {
  TestModule test(kAttention);
  Signature signature = test.signature();
  auto expectError = [&](const InputOptions &options, llvm::StringRef part) {
    std::string error = getError(makeInputs(signature, options));
    EXPECT_NE(error.find(part.str()), std::string::npos) << error;
  };
  InputOptions options;
  expectError(options, "the number of rows is not known");
  options.files = {"q"};
  expectError(options, "expected NAME=FILE.npy");
  options.files = {"nothing=x.npy"};
  expectError(options, "no argument %nothing");
  options.files = {"q=/nonexistent/x.npy"};
  expectError(options, "/nonexistent/x.npy: ");
  options.files = {};
  options.step = makeStep();
  options.step->blockSize = 64;
  expectError(options, "block_size is 64, the program's 2");
  options.step = makeStep();
  options.step->speculativeTokens = 0;
  expectError(options, "speculative_tokens is 0, the program's 1");
  options.step = makeStep();
  options.step->decodes = 2;
  expectError(options, "decodes is 2, but its first 1 requests");
  options.step = makeStep();
  options.step->queryLens[0] = 2000000000;
  expectError(options, "does not fit the memory");

  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("shardq", "npy", path));
  options.step = makeStep();
  options.files = {("q=" + path).str()};
  llvm::cantFail(
      writeNpy(path, makeArray(Element::F32, {1, 2, 2}, {1, 2, 3, 4})));
  expectError(options, "argument %q: " + path.str().str() +
                           " holds 1x2x2xf32, expected ?x4x8xf32");
  options.files = {("starts=" + path).str()};
  llvm::cantFail(writeNpy(path, makeArray(Element::I32, {3}, {0, 1, 2})));
  expectError(options,
              "argument %starts (query starts) has size 3 in dimension "
              "0, the step has 4");
  (void)llvm::sys::fs::remove(path);
}

TEST(Inputs, SplitsAndJoinsBlocks) {
  TestModule test(kAttention);
  Signature signature = test.signature();
  const Argument &q = signature.arguments[0];
  std::vector<double> values(12);
  for (int i = 0; i < 12; ++i)
    values[i] = i;
  Array global = makeArray(Element::F32, {2, 2, 3}, values);
  Array joined = llvm::cantFail(allocateArray(Element::F32, {2, 2, 3}, "x"));
  for (int64_t rank : {0, 1}) {
    Array local = llvm::cantFail(takeBlock(global, q.split, q.splitAxis, rank));
    EXPECT_EQ(getInts(local), rank ? (std::vector<int64_t>{3, 4, 5, 9, 10, 11})
                                   : (std::vector<int64_t>{0, 1, 2, 6, 7, 8}));
    putBlock(local, q.split, rank, joined);
  }
  EXPECT_EQ(getInts(joined), getInts(global));
}
