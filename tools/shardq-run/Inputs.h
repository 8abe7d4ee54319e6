//===- Inputs.h - Global arrays for a program's arguments -------*- C++ -*-===//

#ifndef SHARDQ_RUN_INPUTS_H
#define SHARDQ_RUN_INPUTS_H

#include "Signature.h"
#include "Step.h"

namespace mlir::shardq::run {

struct InputOptions {
  std::optional<Step> step;
  /// "NAME=FILE.npy" of the command line.
  std::vector<std::string> files;
  uint64_t seed = 0;
  /// Block of caches that no request gets; -1 for none.
  int64_t nullBlock = 0;
};

struct Inputs {
  /// The step that sizes and contents follow: given, or read off the inputs.
  Step step;
  int64_t nullBlock = 0;
  /// Whether a block table was made up.
  bool hasMadeTables = false;
  /// One global array per argument.
  std::vector<Array> arrays;
};

/// Reads what is given and makes up the rest: seeded random data of the right
/// kind. Block tables are shuffled, and cache rows that no request holds are
/// NaN, so that a program which reads one cannot go unnoticed.
llvm::Expected<Inputs> makeInputs(const Signature &signature,
                                  const InputOptions &options);

/// This rank's block of a global array, or the array itself.
llvm::Expected<Array> takeBlock(const Array &global, SplitAttr split,
                                AxisAttr axis, int64_t block);
/// Writes a rank's block into a global array of the same type.
void putBlock(const Array &local, SplitAttr split, int64_t block,
              const Array &global);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_INPUTS_H
