//===- Bench.h - What --bench tells -----------------------------*- C++ -*-===//

#ifndef SHARDQ_RUN_BENCH_H
#define SHARDQ_RUN_BENCH_H

#include "Ranks.h"
#include "SplitDecision.h"

namespace mlir::shardq::run {

/// An exchange of a program.
struct ExchangeLoad {
  std::string name;  // what goes where, with the shape of a row
  int64_t bytes = 0; // that the busiest rank sends to others in the step
};

/// The exchanges of `entry` in program order, with the step's bytes; nothing
/// where the order is not that of the text: in loops and called functions.
std::vector<ExchangeLoad> findExchanges(func::FuncOp entry,
                                        const SplitDecision &decision);

/// Times in microseconds: medians of the slowest rank's.
struct BenchReport {
  struct Kernel {
    std::string name;
    double microseconds = 0;
  };
  struct Exchange {
    ExchangeLoad load;
    double microseconds = 0; // push, signal and wait
    double getGigabytesPerSecond() const {
      return microseconds > 0 ? double(load.bytes) / microseconds * 1e-3 : 0;
    }
  };
  int64_t numRanks = 0, numRows = 0;
  double graph = 0;            // one call in a replayed graph
  double alone = 0;            // one call by itself, launched kernel by kernel
  std::vector<Kernel> kernels; // of a call, in order
  std::vector<Exchange> exchanges;
};

/// Puts the ranks' times together.
BenchReport makeBenchReport(const RunOutcome &outcome,
                            std::vector<ExchangeLoad> exchanges);

/// The table for people.
void printBench(const BenchReport &report, llvm::raw_ostream &out);

/// The same as JSON.
llvm::Error writeBench(const BenchReport &report, llvm::StringRef path);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_BENCH_H
