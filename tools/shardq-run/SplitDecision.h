//===- SplitDecision.h - What a program does with a step --------*- C++ -*-===//

#ifndef SHARDQ_RUN_SPLITDECISION_H
#define SHARDQ_RUN_SPLITDECISION_H

#include "Program.h"
#include "Step.h"
#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::shardq::run {

/// How a rewritten program splits the step, and what its gate says.
struct SplitDecision {
  bool hasGate = false;
  llvm::StringSet<> gatedTaps; // names of taps that stand under it
  bool open = false;
  std::string text = "none: nothing was rewritten";
  /// Of the first split of the program; none without one.
  AxisAttr axis;
  std::vector<int32_t> ids, offsets;
  /// In chunks: the rows of each rank along the axis, -1 for padding; of each
  /// call where heads and tails are apart. Empty for other programs.
  std::vector<std::vector<std::vector<int32_t>>> chunks;
  /// Leading rows that are whole on every rank, then.
  int64_t wholeRows = 0;
};

SplitDecision decideSplit(ModuleOp rewritten, const Step &step,
                          const CompileOptions &options);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_SPLITDECISION_H
