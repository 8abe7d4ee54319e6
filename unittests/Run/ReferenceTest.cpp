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

// Values of a head by its weights, whichever comes first and however those lie.
TEST(Reference, ProjectsHeads) {
  for (bool swapped : {false, true}) {
    std::string a = "tensor<?x2x3xbf16>", b = "tensor<2x2x3xbf16>";
    std::string maps = "affine_map<(t, h, n, k) -> (t, h, k)>, "
                       "affine_map<(t, h, n, k) -> (h, n, k)>";
    std::string ins = "%v, %w : " + a + ", " + b;
    if (swapped) {
      maps = "affine_map<(t, h, n, k) -> (h, n, k)>, "
             "affine_map<(t, h, n, k) -> (t, h, k)>";
      ins = "%w, %v : " + b + ", " + a;
    }
    auto results = evaluate(
        "func.func @f(%v: " + a + ", %w: " + b + R"() -> tensor<?x2x2xbf16> {
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0.0 : f32
      %rows = tensor.dim %v, %c0 : tensor<?x2x3xbf16>
      %empty = tensor.empty(%rows) : tensor<?x2x2xf32>
      %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x2x2xf32>) -> tensor<?x2x2xf32>
      %p = linalg.contract indexing_maps = [)" +
            maps + ", affine_map<(t, h, n, k) -> (t, h, n)>]\n ins(" + ins +
            R"() outs(%zeros : tensor<?x2x2xf32>) -> tensor<?x2x2xf32>
      %r = arith.truncf %p : tensor<?x2x2xf32> to tensor<?x2x2xbf16>
      return %r : tensor<?x2x2xbf16>
    })",
        {makeArray(Element::BF16, {1, 2, 3}, {1, 2, 3, -1, 0, 4}),
         makeArray(Element::BF16, {2, 2, 3},
                   {1, 0, 1, 2, -1, 1, 5, 6, 7, 0, 1, -1})});
    EXPECT_EQ(results[0].kind, ReferenceValue::Attention);
    EXPECT_EQ(results[0].exact, (std::vector<double>{4, 3, 23, -4}));
    // Of given values only the sums are rounded, in f32.
    for (double bound : results[0].bound) {
      EXPECT_GT(bound, 0);
      EXPECT_LT(bound, 1e-4);
    }
    EXPECT_EQ(results[0].array.getFloat(2), 23);
  }
}

// What is computed and rounded widens what is allowed, and by how much.
TEST(Reference, BoundsWhatIsProjectedFromAttention) {
  constexpr const char *text = R"(
    func.func @f(%q: tensor<1x1x2xbf16>, %w: tensor<1x2x2xbf16>, %kv: tensor<?x2xbf16>,
                 %s: tensor<1x2xi32>, %u: tensor<1x2x1xbf16>) -> (tensor<1x1x1xbf16>, tensor<1x1xf32>) {
      %zero = arith.constant 0.0 : bf16
      %a = tensor.empty() : tensor<1x1x2xbf16>
      %az = linalg.fill ins(%zero : bf16) outs(%a : tensor<1x1x2xbf16>) -> tensor<1x1x2xbf16>
      %p = linalg.contract indexing_maps = [affine_map<(t, h, n, k) -> (t, h, k)>, affine_map<(t, h, n, k) -> (h, k, n)>,
          affine_map<(t, h, n, k) -> (t, h, n)>]
          ins(%q, %w : tensor<1x1x2xbf16>, tensor<1x2x2xbf16>) outs(%az : tensor<1x1x2xbf16>) -> tensor<1x1x2xbf16>
      %out, %lse = shardq.sparse_mla q(%p) kv(%kv) slots(%s) {scale = 1.0 : f32}
          : (tensor<1x1x2xbf16>, tensor<?x2xbf16>, tensor<1x2xi32>) -> (tensor<1x1x2xbf16>, tensor<1x1xf32>)
      %b = tensor.empty() : tensor<1x1x1xbf16>
      %bz = linalg.fill ins(%zero : bf16) outs(%b : tensor<1x1x1xbf16>) -> tensor<1x1x1xbf16>
      %r = linalg.contract indexing_maps = [affine_map<(t, h, n, k) -> (t, h, k)>, affine_map<(t, h, n, k) -> (h, k, n)>,
          affine_map<(t, h, n, k) -> (t, h, n)>]
          ins(%out, %u : tensor<1x1x2xbf16>, tensor<1x2x1xbf16>) outs(%bz : tensor<1x1x1xbf16>) -> tensor<1x1x1xbf16>
      return %r, %lse : tensor<1x1x1xbf16>, tensor<1x1xf32>
    })";
  auto results =
      evaluate(text, {makeArray(Element::BF16, {1, 1, 2}, {1, 1}),
                      makeArray(Element::BF16, {1, 2, 2}, {1, 0, 0, 1}),
                      makeArray(Element::BF16, {2, 2}, {1, 3, 3, 1}),
                      makeArray(Element::I32, {1, 2}, {0, 1}),
                      makeArray(Element::BF16, {1, 2, 1}, {1, 2})});
  // Two keys of logit 4: the mean of (1, 3) and (3, 1), by (1, 2).
  EXPECT_NEAR(results[0].exact[0], 6, 1e-12);
  EXPECT_NEAR(results[1].exact[0], 4 + std::log(2.0), 1e-12);
  // Queries are off by roundings of 2^-8, of which logits of keys of size 3
  // make some 2^-3 at four deviations; the output's own are smaller.
  EXPECT_GT(results[1].bound[0], 0.02);
  EXPECT_LT(results[1].bound[0], 0.2);
  EXPECT_GT(results[0].bound[0], 0.2);
  EXPECT_LT(results[0].bound[0], 3);
}

TEST(Reference, ProjectionsThatAreNone) {
  auto fails = [](const char *body) {
    TestModule test(std::string("func.func @f(%v: tensor<2x2xf32>, %w: "
                                "tensor<2x2xf32>) -> tensor<2x2xf32> {\n") +
                    body + "  return %r : tensor<2x2xf32>\n}");
    Array array = makeArray(Element::F32, {2, 2}, {1, 2, 3, 4});
    Progress progress;
    auto outcome =
        evaluateReference(test.entry(), {array, array}, {}, progress);
    return outcome ? std::string() : llvm::toString(outcome.takeError());
  };
  EXPECT_NE(fails("%r = linalg.matmul ins(%v, %w : tensor<2x2xf32>, "
                  "tensor<2x2xf32>) outs(%w : tensor<2x2xf32>) -> "
                  "tensor<2x2xf32>\n")
                .find("adds to values that are not 0"),
            std::string::npos);
  EXPECT_NE(fails("%r = linalg.add ins(%v, %w : tensor<2x2xf32>, "
                  "tensor<2x2xf32>) outs(%w : tensor<2x2xf32>) -> "
                  "tensor<2x2xf32>\n")
                .find("is no product of two tensors"),
            std::string::npos);
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
