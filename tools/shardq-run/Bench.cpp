//===- Bench.cpp - What --bench tells -------------------------------------===//

#include "Bench.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

static int64_t getBytesOfRow(RankedTensorType type) {
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  for (int64_t size : type.getShape().drop_front())
    bytes *= size;
  return bytes;
}

/// Whether the step runs the exchange: false below a gate that does not let it.
static bool isRun(ExchangeOp exchange, const SplitDecision &decision) {
  for (Operation *op = exchange; auto branch = op->getParentOfType<scf::IfOp>();
       op = branch)
    if (branch.getCondition().getDefiningOp<SplitGateOp>() &&
        branch.getThenRegion().isAncestor(exchange->getParentRegion()) !=
            decision.open)
      return false;
  return true;
}

static ExchangeLoad getLoad(ExchangeOp exchange,
                            const SplitDecision &decision) {
  bool toTokens = exchange.getDirection() == Direction::HeadsToTokens;
  ExchangeLoad load;
  llvm::raw_string_ostream name(load.name);
  name << (toTokens ? "heads_to_tokens" : "tokens_to_heads");
  int64_t bytes = 0; // of one row, this rank's heads or all of them
  for (Value source : exchange.getSources()) {
    auto type = cast<RankedTensorType>(source.getType());
    name << ' ';
    llvm::interleave(type.getShape().drop_front(), name, "x");
    name << 'x' << type.getElementType();
    bytes += getBytesOfRow(type);
  }
  if (!isRun(exchange, decision))
    return load;
  int64_t ranks = int64_t(decision.offsets.size()) - 1;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t own = decision.offsets[rank + 1] - decision.offsets[rank];
    int64_t sent = toTokens ? (decision.offsets[ranks] - own) * bytes
                            : own * (bytes / ranks) * (ranks - 1);
    load.bytes = std::max(load.bytes, sent);
  }
  return load;
}

std::vector<ExchangeLoad> run::findExchanges(func::FuncOp entry,
                                             const SplitDecision &decision) {
  std::vector<ExchangeLoad> loads;
  bool isStraight = true;
  entry.walk([&](Operation *op) {
    isStraight &= !isa<LoopLikeOpInterface, CallOpInterface>(op);
    if (auto exchange = dyn_cast<ExchangeOp>(op))
      loads.push_back(getLoad(exchange, decision));
  });
  if (!isStraight)
    loads.clear();
  return loads;
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// The median over trials of the slowest rank's time.
static double getMedianOfSlowest(
    const RunOutcome &outcome,
    llvm::function_ref<ArrayRef<double>(const BenchTimes &)> get) {
  std::vector<double> slowest = get(outcome.ranks.front().times).vec();
  for (const RankOutcome &rank : outcome.ranks)
    for (auto [most, time] : llvm::zip(slowest, get(rank.times)))
      most = std::max(most, time);
  llvm::sort(slowest);
  return slowest.empty() ? 0 : slowest[slowest.size() / 2];
}

/// The kernel's op, as --convert-shardq-to-gpu names kernels.
static bool isOf(StringRef kernel, StringRef op) {
  return kernel.consume_front("shardq_") && kernel.consume_front(op);
}

BenchReport run::makeBenchReport(const RunOutcome &outcome,
                                 std::vector<ExchangeLoad> exchanges) {
  BenchReport report;
  report.numRanks = int64_t(outcome.ranks.size());
  report.graph = getMedianOfSlowest(
      outcome, [](const BenchTimes &times) { return ArrayRef(times.graph); });
  report.alone = getMedianOfSlowest(
      outcome, [](const BenchTimes &times) { return ArrayRef(times.alone); });
  // Ranks enqueue the same kernels.
  const std::vector<KernelTimes> &kernels = outcome.ranks.front().times.kernels;
  SmallVector<double> pushes;
  for (auto [i, kernel] : llvm::enumerate(kernels)) {
    double time = getMedianOfSlowest(outcome, [&](const BenchTimes &times) {
      return i < times.kernels.size() ? ArrayRef(times.kernels[i].microseconds)
                                      : ArrayRef<double>();
    });
    report.kernels.push_back({kernel.kernel, time});
    // What NCCL does stands behind the kernel that announces it.
    bool isUnpack = StringRef(kernel.kernel).contains("_unpack");
    if (isOf(kernel.kernel, "push") && !isUnpack)
      pushes.push_back(time);
    else if (!pushes.empty() &&
             (isUnpack || isOf(kernel.kernel, "signal") ||
              isOf(kernel.kernel, "announce") || isOf(kernel.kernel, "wait")))
      pushes.back() += time;
  }
  if (pushes.size() == exchanges.size())
    for (auto [load, time] : llvm::zip_equal(exchanges, pushes))
      report.exchanges.push_back({load, time});
  return report;
}

void run::printBench(const BenchReport &report, llvm::raw_ostream &out) {
  out << llvm::format("one call in a graph: %.2f us (median of trials, slowest "
                      "rank)\n",
                      report.graph)
      << llvm::format("one call by itself: %.2f us\n", report.alone)
      << "kernels of a call (median of calls, slowest rank):\n";
  for (const BenchReport::Kernel &kernel : report.kernels)
    out << llvm::format("  %10.2f us  %s\n", kernel.microseconds,
                        kernel.name.c_str());
  if (report.exchanges.empty())
    return;
  out << "exchanges (push, signal and wait; bytes to other ranks):\n";
  for (const BenchReport::Exchange &exchange : report.exchanges)
    out << llvm::format("  %10.2f us  %12lld bytes  %7.1f GB/s  %s\n",
                        exchange.microseconds, (long long)exchange.load.bytes,
                        exchange.getGigabytesPerSecond(),
                        exchange.load.name.c_str());
}

llvm::Error run::writeBench(const BenchReport &report, StringRef path) {
  llvm::json::Array kernels, exchanges;
  for (const BenchReport::Kernel &kernel : report.kernels)
    kernels.push_back(
        llvm::json::Object{{"name", kernel.name}, {"us", kernel.microseconds}});
  for (const BenchReport::Exchange &exchange : report.exchanges)
    exchanges.push_back(
        llvm::json::Object{{"name", exchange.load.name},
                           {"bytes", exchange.load.bytes},
                           {"us", exchange.microseconds},
                           {"gb_per_s", exchange.getGigabytesPerSecond()}});
  llvm::json::Value value = llvm::json::Object{
      {"ranks", report.numRanks},      {"rows", report.numRows},
      {"graph_us", report.graph},      {"alone_us", report.alone},
      {"kernels", std::move(kernels)}, {"exchanges", std::move(exchanges)}};
  return writeText(path, llvm::formatv("{0:2}\n", value).str());
}
