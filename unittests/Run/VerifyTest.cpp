//===- VerifyTest.cpp - Comparing taps and results ------------------------===//

#include "Verify.h"
#include "Helpers.h"

using namespace mlir::shardq::run;

static TapRecord makeTap(std::vector<int32_t> values, int64_t width,
                         std::optional<std::vector<int32_t>> rows) {
  TapRecord tap;
  tap.name = "topk.0";
  tap.elementBytes = 4;
  tap.shape = {int64_t(values.size()) / width, width};
  tap.data.resize(values.size() * 4);
  std::memcpy(tap.data.data(), values.data(), tap.data.size());
  tap.rows = std::move(rows);
  return tap;
}

static RunOutcome makeOutcome(std::vector<TapRecord> taps) {
  RunOutcome outcome;
  for (TapRecord &tap : taps) {
    outcome.ranks.emplace_back();
    outcome.ranks.back().taps.push_back(std::move(tap));
  }
  return outcome;
}

TEST(Verify, JoinsTapsByRows) {
  std::vector<std::string> problems;
  auto taps = llvm::cantFail(
      assembleTaps(makeOutcome({makeTap({1, 2, 7, 8}, 2, {{0, 3}}),
                                makeTap({1, 2, 3, 4, 5, 6}, 2, {{0, 1, 2}})}),
                   4, problems));
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(getInts(taps["topk.0"][0]),
            (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Verify, JoinsTapsOfCallsWithoutPadding) {
  RunOutcome outcome;
  outcome.ranks.resize(2);
  outcome.ranks[0].taps = {makeTap({1, 9, 2}, 1, {{0, -1, 1}}),
                           makeTap({5, 9}, 1, {{4, -1}})};
  outcome.ranks[1].taps = {makeTap({1, 3}, 1, {{0, 2}}),
                           makeTap({4, 9}, 1, {{3, -1}})};
  std::vector<std::string> problems;
  // Row 5 belongs to no request.
  auto taps =
      llvm::cantFail(assembleTaps(outcome, 6, problems, {/*calls=*/2, 5}));
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(taps["topk.0"].size(), 1u);
  EXPECT_EQ(getInts(taps["topk.0"][0]),
            (std::vector<int64_t>{1, 2, 3, 4, 5, -1}));
}

TEST(Verify, SaysWhichTappedRowIsWrong) {
  auto getProblem = [](std::vector<TapRecord> taps) {
    std::vector<std::string> problems;
    llvm::cantFail(assembleTaps(makeOutcome(std::move(taps)), 2, problems));
    return problems.empty() ? "" : problems.front();
  };
  EXPECT_EQ(
      getProblem({makeTap({1, 2}, 1, {{0, 1}}), makeTap({1, 3}, 1, {{0, 1}})}),
      "topk.0 on rank 1 differs from another rank in row 1");
  EXPECT_EQ(getProblem({makeTap({1}, 1, {{0}}), makeTap({1}, 1, {{0}})}),
            "topk.0: no rank has row 1");
  EXPECT_EQ(getProblem({makeTap({1}, 1, {{2}})}),
            "topk.0 on rank 0 names row 2 of 2");
}

static std::vector<std::string> compare(const ReferenceValue &reference,
                                        const Array &computed, double &error) {
  std::vector<std::string> problems;
  error = compareResult(computed, reference, "result 0", problems);
  return problems;
}

TEST(Verify, HoldsOutputsToTwoUlpAndTheBound) {
  ReferenceValue reference;
  reference.kind = ReferenceValue::Attention;
  reference.array = makeArray(Element::BF16, {4, 1, 1}, {1, 1, 1, 0});
  reference.exact = {1, 1, 1, 0};
  reference.bound = {0, 0, 0.01, 0};
  double ulp = getUlp(Element::BF16, 1), error;
  EXPECT_TRUE(compare(reference,
                      makeArray(Element::BF16, {4, 1, 1},
                                {1 + 2 * ulp, 1 - ulp, 1 + 3 * ulp, 0}),
                      error)
                  .empty());
  EXPECT_EQ(error, 2);
  auto problems = compare(
      reference,
      makeArray(Element::BF16, {4, 1, 1}, {1, 1 + 3 * ulp, 1, 1e-30}), error);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0],
            "result 0 row 1, head 0, element 0: 1.0234375, reference 1");
  // Without a valid key the output is exactly 0.
  EXPECT_NE(problems[1].find("row 3"), std::string::npos);
  EXPECT_EQ(compare(reference,
                    makeArray(Element::BF16, {4, 1, 1}, {1, kNaN, 1, 0}), error)
                .size(),
            1u);
}

TEST(Verify, HoldsTheLseToItsOwnTolerance) {
  ReferenceValue reference;
  reference.kind = ReferenceValue::Lse;
  reference.array = makeArray(Element::F32, {3, 1}, {100, 0.5, -kInf});
  reference.exact = {100, 0.5, -kInf};
  double error;
  EXPECT_TRUE(
      compare(reference,
              makeArray(Element::F32, {3, 1}, {100.0005, 0.500005, -kInf}),
              error)
          .empty());
  EXPECT_EQ(compare(reference,
                    makeArray(Element::F32, {3, 1}, {100, 0.5001, 0}), error)
                .size(),
            2u);
}

TEST(Verify, ComparesPlainResultsToTheBit) {
  ReferenceValue reference;
  reference.array = makeArray(Element::I32, {3}, {1, 2, 3});
  double error;
  EXPECT_TRUE(compare(reference, makeArray(Element::I32, {3}, {1, 2, 3}), error)
                  .empty());
  EXPECT_EQ(
      compare(reference, makeArray(Element::I32, {3}, {1, 2, 4}), error)[0],
      "result 0 row 2: 4, reference 3");
  EXPECT_EQ(compare(reference, makeArray(Element::I32, {2}, {1, 2}), error)[0],
            "result 0 is 2xi32, expected 3xi32");
}

TEST(Verify, TapsEverythingThatIsReached) {
  TestModule test(R"(
    func.func @f(%s: tensor<?x?xf32>, %v: tensor<?xi32>, %t: tensor<?x?xi32>)
        -> tensor<?x3xi32> {
      %top = func.call @g(%s, %v)
          : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x3xi32>
      %slots = shardq.convert_indices %top table(%t) rows(%v) {block_size = 1 : i64}
          : (tensor<?x3xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
      return %slots : tensor<?x3xi32>
    }
    func.func @g(%s: tensor<?x?xf32>, %v: tensor<?xi32>) -> tensor<?x3xi32> {
      %top = shardq.topk %s visible(%v)
          : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x3xi32>
      return %top : tensor<?x3xi32>
    })");
  insertTaps(test.entry());
  std::vector<std::string> names;
  test.module->walk(
      [&](mlir::shardq::TapOp tap) { names.push_back(tap.getName().str()); });
  llvm::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"slots.0", "topk.0"}));
}
