//===- BenchTest.cpp - Bytes and times of a program's exchanges -----------===//

#include "Bench.h"
#include "Helpers.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::shardq::run;

/// There and back on 2 ranks, with a gate around if `gate` says so.
static std::string makeProgram(bool gate, llvm::StringRef open,
                               llvm::StringRef close) {
  std::string condition = gate ? R"(
  %open = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%decodes) rows(%rows)
      {min_tokens = 1 : i64, topk = 4 : i64} : tensor<3xi32>, tensor<?xi32>, tensor<?xi32>)"
                               : "";
  return (R"(
shardq.mesh @ranks ["tp" = 2]
func.func @f(%nope: tensor<?x3x16xbf16>, %rope: tensor<?x3x8xbf16>, %start: tensor<?xi32>, %lens: tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %rows = tensor.dim %nope, %c0 : tensor<?x3x16xbf16>
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %ids, %offsets = shardq.zigzag_split %start decodes(%decodes) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<3xi32>))" +
          llvm::Twine(condition) + open + R"(
    %q = shardq.exchange heads_to_tokens(%nope, %rope) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
        : (tensor<?x3x16xbf16>, tensor<?x3x8xbf16>, tensor<?xi32>, tensor<3xi32>, index) -> tensor<?x6x24xbf16>
    %o = shardq.exchange tokens_to_heads(%q) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
        : (tensor<?x6x24xbf16>, tensor<?xi32>, tensor<3xi32>, index) -> tensor<?x3x24xbf16>)" +
          close + R"(
  return
}
)")
      .str();
}

/// A decode row, then 7 tokens of one request: 3 for one rank, 4 for the other.
static Step makeStep() {
  Step step;
  step.queryLens = {1, 7};
  step.contextLens = {5, 0};
  return step;
}

static std::vector<ExchangeLoad> findLoads(llvm::StringRef text,
                                           const Step &step) {
  TestModule module(text);
  CompileOptions options;
  options.maxTokens = step.getNumRows();
  options.maxRequests = step.getNumRequests();
  return findExchanges(module.entry(),
                       decideSplit(*module.module, step, options));
}

TEST(Bench, BytesOfTheBusiestRank) {
  auto loads = findLoads(makeProgram(false, "", ""), makeStep());
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].name, "heads_to_tokens 3x16xbf16 3x8xbf16");
  // Rank 0 has 3 tokens or 4; the other one's go to it, 3 heads of 24 values.
  EXPECT_EQ(loads[0].bytes, 4 * 3 * 24 * 2);
  EXPECT_EQ(loads[1].name, "tokens_to_heads 6x24xbf16");
  EXPECT_EQ(loads[1].bytes, 4 * 3 * 24 * 2);
}

TEST(Bench, NothingMovesBehindAClosedGate) {
  std::string text = makeProgram(true, " scf.if %open {", "}");
  auto loads = findLoads(text, makeStep());
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[1].bytes, 4 * 3 * 24 * 2);
  // No sequence is longer than the top-k of 4.
  Step step;
  step.queryLens = {3, 4};
  step.contextLens = {0, 0};
  for (const ExchangeLoad &load : findLoads(text, step))
    EXPECT_EQ(load.bytes, 0);
  // On the other side it is the other way round.
  for (const ExchangeLoad &load :
       findLoads(makeProgram(true, " scf.if %open {} else {", "}"), makeStep()))
    EXPECT_EQ(load.bytes, 0);
}

TEST(Bench, LoopsHaveNoOrder) {
  EXPECT_TRUE(
      findLoads(makeProgram(false, " scf.for %i = %c0 to %c4 step %c1 {", "}"),
                makeStep())
          .empty());
}

/// One rank's times: a kernel, an exchange in two launches, one in three.
static RankOutcome makeRank(double factor) {
  RankOutcome rank;
  rank.times.graph = {3 * factor, 100, 2 * factor};
  rank.times.alone = {40 * factor, 50 * factor};
  for (auto [name, time] : {std::pair<const char *, double>{"shardq_topk", 7},
                            {"shardq_push_3x16_bf16", 4},
                            {"shardq_signal_wait", 1},
                            {"shardq_sparse_mla", 9},
                            {"shardq_push_6x24_bf16", 5},
                            {"shardq_signal_0", 1},
                            {"shardq_wait_0", 2}})
    rank.times.kernels.push_back({name, {time * factor, 1000, time * factor}});
  return rank;
}

TEST(Bench, MediansOfTheSlowestRank) {
  RunOutcome outcome;
  outcome.ranks = {makeRank(1), makeRank(2)};
  BenchReport report =
      makeBenchReport(outcome, {{"there", 5'000'000}, {"back", 0}});
  EXPECT_EQ(report.graph, 6);
  EXPECT_EQ(report.alone, 100);
  ASSERT_EQ(report.kernels.size(), 7u);
  EXPECT_EQ(report.kernels[0].microseconds, 14);
  ASSERT_EQ(report.exchanges.size(), 2u);
  EXPECT_EQ(report.exchanges[0].microseconds, 10);
  EXPECT_EQ(report.exchanges[0].getGigabytesPerSecond(), 500);
  EXPECT_EQ(report.exchanges[1].microseconds, 16);

  // Exchanges that are not the launches': which is which is not known.
  EXPECT_TRUE(makeBenchReport(outcome, {{"there", 1}}).exchanges.empty());

  std::string text;
  llvm::raw_string_ostream out(text);
  printBench(report, out);
  // scripts/gpu-check.sh reads this line.
  EXPECT_EQ(text.find("one call in a graph: 6.00 us (median"), 0u) << text;
  EXPECT_NE(text.find("5000000 bytes    500.0 GB/s  there"), std::string::npos)
      << text;

  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("bench", "json", path));
  ASSERT_FALSE(bool(writeBench(report, path)));
  auto buffer = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(buffer));
  auto json = llvm::json::parse((*buffer)->getBuffer());
  ASSERT_TRUE(bool(json)) << llvm::toString(json.takeError());
  const llvm::json::Object &object = *json->getAsObject();
  EXPECT_EQ(object.getNumber("graph_us"), 6.0);
  EXPECT_EQ(object.getArray("exchanges")->size(), 2u);
  EXPECT_EQ(
      (*object.getArray("exchanges"))[0].getAsObject()->getInteger("bytes"),
      5'000'000);
  EXPECT_FALSE(llvm::sys::fs::remove(path));
}
