//===- ReferenceTest.cpp - The float64 reference by hand ------------------===//

#include "Reference.h"
#include "Helpers.h"

using namespace mlir::shardq;
using namespace mlir::shardq::run;

static std::vector<ReferenceValue> evaluate(llvm::StringRef text,
                                            llvm::ArrayRef<Array> inputs) {
  TestModule test(text);
  Progress progress;
  auto outcome = evaluateReference(test.entry(), inputs, {}, progress);
  EXPECT_TRUE(bool(outcome)) << llvm::toString(outcome.takeError());
  return outcome ? std::move(outcome->results) : std::vector<ReferenceValue>(4);
}

TEST(Reference, ExpandsRows) {
  auto results = evaluate(R"(
    func.func @f(%s: tensor<?xi32>, %l: tensor<?xi32>, %n: index)
        -> (tensor<?xi32>, tensor<?xi32>, index) {
      %r, %v = shardq.expand_rows %s, %l to %n
          : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
      %d = shardq.count_decode_rows %s {speculative_tokens = 1 : i64} : tensor<?xi32>
      return %r, %v, %d : tensor<?xi32>, tensor<?xi32>, index
    })",
                          {makeArray(Element::I32, {4}, {0, 2, 2, 5}),
                           makeArray(Element::I32, {3}, {7, 3, 1}),
                           makeArray(Element::I64, {}, {6})});
  EXPECT_EQ(getInts(results[0].array),
            (std::vector<int64_t>{0, 0, 2, 2, 2, -1}));
  // The last request is shorter than its query, which cannot see below 0 keys.
  EXPECT_EQ(getInts(results[1].array),
            (std::vector<int64_t>{6, 7, 0, 0, 1, 0}));
  EXPECT_EQ(getInts(results[2].array), (std::vector<int64_t>{2}));
}

// The golden values of the index conversion: table [7, 3], blocks of four.
TEST(Reference, ConvertsIndices) {
  auto results = evaluate(
      R"(
    func.func @f(%i: tensor<?x9xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>,
                 %p: tensor<?xi32>, %w: tensor<?xi32>)
        -> (tensor<?x9xi32>, tensor<?xi32>) {
      %s, %c = shardq.convert_indices %i table(%t) rows(%r) prefill(%p, %w)
          {block_size = 4 : i64, block_stride_rows = 10 : i64}
          : (tensor<?x9xi32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>,
             tensor<?xi32>) -> (tensor<?x9xi32>, tensor<?xi32>)
      return %s, %c : tensor<?x9xi32>, tensor<?xi32>
    })",
      {makeArray(Element::I32, {3, 9}, {0, 1, 4, 7, 8, -1, -5, 2, 100, //
                                        0, 1, 4, 7, 8, -1, -5, 2, 100, //
                                        0, 1, 4, 7, 8, -1, -5, 2, 100}),
       makeArray(Element::I32, {2, 2}, {7, 3, 5, -1}),
       makeArray(Element::I32, {3}, {0, 1, 0}),
       makeArray(Element::I32, {3}, {-1, -1, 1}),
       makeArray(Element::I32, {2}, {1000, 2000})});
  EXPECT_EQ(
      getInts(results[0].array),
      (std::vector<int64_t>{70,   71,   30,   33,   -1,   -1, -1, 72,   -1, //
                            50,   51,   -1,   -1,   -1,   -1, -1, 52,   -1, //
                            2000, 2001, 2004, 2007, 2008, -1, -1, 2002, 2100}));
  EXPECT_EQ(getInts(results[1].array), (std::vector<int64_t>{5, 3, 7}));
}

TEST(Reference, SlotsBeyondTheTypeAreInvalid) {
  for (bool wide : {false, true}) {
    std::string type = wide ? "i64" : "i32";
    auto results =
        evaluate("func.func @f(%i: tensor<1x1xi32>, %t: tensor<1x1xi32>, %r: "
                 "tensor<1xi32>)"
                 " -> tensor<1x1x" +
                     type +
                     "> {\n"
                     "  %s = shardq.convert_indices %i table(%t) rows(%r) "
                     "{block_size = 64 : i64}"
                     " : (tensor<1x1xi32>, tensor<1x1xi32>, tensor<1xi32>) -> "
                     "tensor<1x1x" +
                     type + ">\n  return %s : tensor<1x1x" + type + ">\n}",
                 {makeArray(Element::I32, {1, 1}, {5}),
                  makeArray(Element::I32, {1, 1}, {2000000000}),
                  makeArray(Element::I32, {1}, {0})});
    EXPECT_EQ(results[0].array.getInt(0), wide ? 128000000005 : -1);
  }
}

TEST(Reference, ChoosesTheLargestScores) {
  constexpr const char *text = R"(
    func.func @f(%s: tensor<?x?xf32>, %v: tensor<?xi32>) -> tensor<?x3xi32> {
      %t = shardq.topk %s visible(%v)
          : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x3xi32>
      return %t : tensor<?x3xi32>
    })";
  auto results = evaluate(
      text, {makeArray(Element::F32, {6, 5}, {1,    5,     3,    4,    9,    //
                                              0,    0,     0,    0,    0,    //
                                              kNaN, 1,     kNaN, -1,   0,    //
                                              kNaN, -kInf, 2,    kNaN, 3,    //
                                              -0.0, 0,     -1,   0,    -0.0, //
                                              1,    2,     3,    4,    5}),
             makeArray(Element::I32, {6}, {4, 5, 4, 4, 9, -1})});
  EXPECT_EQ(getInts(results[0].array),
            (std::vector<int64_t>{1, 2, 3, 0, 1, 2, 0, 1, 3, 0, 1, 2, 0, 1, 3,
                                  -1, -1, -1}));
}

static constexpr const char *kIndexer = R"(
  func.func @f(%q: tensor<?x2x2xf32>, %w: tensor<?x2xf32>, %k: tensor<?x2xf32>,
               %t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>)
      -> tensor<?x2xi32> {
    %top = shardq.indexer q(%q) weights(%w) keys(%k) table(%t) rows(%r, %v)
        {block_size = 2 : i64}
        : (tensor<?x2x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x?xi32>,
           tensor<?xi32>, tensor<?xi32>) -> tensor<?x2xi32>
    shardq.tap "topk.0" %top : tensor<?x2xi32>
    return %top : tensor<?x2xi32>
  })";

// Scores of request 0: position 0 -> 1*2 - 0 = 2, 1 -> 1*0 - 3 = -3,
// 2 -> 1, 3 -> 0 (behind a negative block when the table says so).
static std::vector<Array> makeIndexerInputs(double lastBlock) {
  return {makeArray(Element::F32, {2, 2, 2}, {1, 0, 0, 1, 1, 0, 0, 1}),
          makeArray(Element::F32, {2, 2}, {1, -1, 1, -1}),
          makeArray(Element::F32, {6, 2},
                    {kNaN, kNaN, kNaN, kNaN, 2, -5, -1, 3, 1, 0, 0, 0}),
          makeArray(Element::I32, {1, 2}, {1, lastBlock}),
          makeArray(Element::I32, {2}, {0, 0}),
          makeArray(Element::I32, {2}, {4, 99})};
}

TEST(Reference, ScoresKeysThroughTheTable) {
  EXPECT_EQ(getInts(evaluate(kIndexer, makeIndexerInputs(2))[0].array),
            (std::vector<int64_t>{0, 2, 0, 2}));
  EXPECT_EQ(getInts(evaluate(kIndexer, makeIndexerInputs(-1))[0].array),
            (std::vector<int64_t>{0, 1, 0, 1}));
  // A block behind the cache has no candidates either.
  EXPECT_EQ(getInts(evaluate(kIndexer, makeIndexerInputs(3))[0].array),
            (std::vector<int64_t>{0, 1, 0, 1}));
}

TEST(Reference, ChecksTappedPositions) {
  TestModule test(kIndexer);
  Progress progress;
  auto check = [&](const std::vector<double> &rows) -> std::string {
    TapTable taps;
    taps["topk.0"] = {makeArray(Element::I32, {2, 2}, rows)};
    auto outcome = llvm::cantFail(
        evaluateReference(test.entry(), makeIndexerInputs(2), taps, progress));
    EXPECT_EQ(getInts(outcome.results[0].array).size(), rows.size());
    return outcome.violations.empty() ? "" : outcome.violations.front();
  };
  EXPECT_EQ(check({0, 2, 0, 2}), "");
  EXPECT_NE(check({2, 0, 0, 2}).find("not ascending"), std::string::npos);
  EXPECT_NE(check({0, 0, 0, 2}).find("not ascending"), std::string::npos);
  EXPECT_NE(check({0, 4, 0, 2}).find("not visible"), std::string::npos);
  EXPECT_NE(check({0, -1, 0, 2}).find("expected 2"), std::string::npos);
  EXPECT_NE(check({-1, 2, 0, 2}).find("behind a -1"), std::string::npos);
  EXPECT_NE(check({0, 2, 0, 3}).find("row 1: top-k takes position 3"),
            std::string::npos);
}

static constexpr const char *kAttention = R"(
  func.func @f(%a: tensor<?x1x2xf32>, %b: tensor<?x1x1xf32>, %kv: tensor<?x3xf32>,
               %s: tensor<?x3xi32>, %r: tensor<?xi32>, %n: tensor<?xi32>,
               %sink: tensor<1xf32>)
      -> (tensor<?x1x2xf32>, tensor<?x1xf32>) {
    %o, %l = shardq.sparse_mla q(%a, %b) kv(%kv) slots(%s) rows(%r) topk_length(%n)
        sink(%sink) {scale = 1.0 : f32, lse = #shardq.lse<base = two>}
        : (tensor<?x1x2xf32>, tensor<?x1x1xf32>, tensor<?x3xf32>, tensor<?x3xi32>,
           tensor<?xi32>, tensor<?xi32>, tensor<1xf32>)
        -> (tensor<?x1x2xf32>, tensor<?x1xf32>)
    return %o, %l : tensor<?x1x2xf32>, tensor<?x1xf32>
  })";

TEST(Reference, AttendsValidSlots) {
  // Rows of the cache: [ln 1, 1, ..], so that with q = (1, 0, 0) the weights
  // are 1, 3 and the sink's 4; row 2 is poison.
  double ln3 = std::log(3.0);
  auto results = evaluate(
      kAttention,
      {makeArray(Element::F32, {5, 1, 2}, {1, 0, 1, 0, 1, 0, 1, 0, 1, 0}),
       makeArray(Element::F32, {5, 1, 1}, {0, 0, 0, 0, 0}),
       makeArray(Element::F32, {3, 3}, {0, 8, 5, ln3, 16, 7, kNaN, kNaN, kNaN}),
       makeArray(Element::I32, {5, 3},
                 {0, 1, -1,  // both
                  0, 0, 1,   // the first twice
                  1, 0, 2,   // poison behind the length
                  3, -7, -1, // nothing valid
                  0, 1, 0}), // no request
       makeArray(Element::I32, {5}, {0, 0, 0, 0, -1}),
       makeArray(Element::I32, {5}, {3, 99, 2, 3, 3}),
       makeArray(Element::F32, {1}, {std::log(4.0)})});
  const ReferenceValue &out = results[0], &lse = results[1];
  ASSERT_EQ(out.kind, ReferenceValue::Attention);
  ASSERT_EQ(lse.kind, ReferenceValue::Lse);
  EXPECT_NEAR(out.exact[1], (8 + 3 * 16) / 8.0, 1e-6);
  EXPECT_NEAR(lse.exact[0], 2, 1e-6);
  EXPECT_NEAR(out.exact[3], (2 * 8 + 3 * 16) / 9.0, 1e-6);
  EXPECT_NEAR(lse.exact[1], std::log2(5.0), 1e-6);
  EXPECT_NEAR(out.exact[5], (8 + 3 * 16) / 8.0, 1e-6);
  EXPECT_NEAR(out.bound[5], std::ldexp(8.0, -24) * 7, 1e-12);
  for (int i : {6, 7, 8, 9})
    EXPECT_EQ(out.exact[i], 0);
  EXPECT_EQ(lse.exact[3], -kInf);
  EXPECT_EQ(lse.exact[4], -kInf);
}

TEST(Reference, TakesRowsAndSlices) {
  auto results = evaluate(R"(
    func.func @f(%x: tensor<?x2xi32>, %rows: tensor<?xi32>)
        -> (tensor<?x2xi32>, tensor<2x1xi32>, index) {
      %t = shardq.take_rows %x[%rows] : (tensor<?x2xi32>, tensor<?xi32>) -> tensor<?x2xi32>
      %s = tensor.extract_slice %x[1, 1] [2, 1] [1, 1] : tensor<?x2xi32> to tensor<2x1xi32>
      %c0 = arith.constant 0 : index
      %c3 = arith.constant 3 : index
      %n = tensor.dim %x, %c0 : tensor<?x2xi32>
      %m = arith.muli %n, %c3 : index
      return %t, %s, %m : tensor<?x2xi32>, tensor<2x1xi32>, index
    })",
                          {makeArray(Element::I32, {3, 2}, {1, 2, 3, 4, 5, 6}),
                           makeArray(Element::I32, {4}, {2, -1, 0, 3})});
  EXPECT_EQ(getInts(results[0].array),
            (std::vector<int64_t>{5, 6, 0, 0, 1, 2, 0, 0}));
  EXPECT_EQ(getInts(results[1].array), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(results[2].array.getInt(0), 9);
}

TEST(Reference, NamesOpsThatItDoesNotEvaluate) {
  TestModule test(R"(
    func.func @f(%x: f32) -> f32 {
      %y = arith.negf %x : f32
      return %y : f32
    })");
  Progress progress;
  std::string error = getError(evaluateReference(
      test.entry(), {makeArray(Element::F32, {}, {1})}, {}, progress));
  EXPECT_NE(error.find("'arith.negf' at loc(\"test\":3:12)"), std::string::npos)
      << error;
}
