//===- Reference.h - Float64 evaluation of model programs -------*- C++ -*-===//
//
// Evaluates a level-1 program on global arrays, straight from the definitions
// in docs/Dialect.md and sharing no code with the lowerings: what the verified
// programs are held to.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUN_REFERENCE_H
#define SHARDQ_RUN_REFERENCE_H

#include "Array.h"
#include "Progress.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "shardq/IR/ShardQ.h"
#include <map>

namespace mlir::shardq::run {

/// Values that taps recorded, whole (all rows of the step): by name, one for
/// each time that the tap ran.
using TapTable = std::map<std::string, std::vector<Array>>;

struct ReferenceValue {
  enum Kind {
    /// `array` is the value.
    Plain,
    /// `exact` is, and a computed one may be off by 2 ulp and `bound`.
    Attention,
    /// `exact` is, held to 1e-5 and, where there is one, `bound`.
    Lse
  };
  Kind kind = Plain;
  Array array; // of the value's type; rounded where it is not Plain
  std::vector<double> exact, bound;
  /// Of attention and of what is projected from it: what the sizes of all that
  /// is summed come to, whose parts may be rounded on the way.
  std::vector<double> size;
};

struct ReferenceOutcome {
  std::vector<ReferenceValue> results;
  /// What is wrong with the tapped values; at most a few.
  std::vector<std::string> violations;
};

/// Evaluates the entry. Indexers whose result is tapped take the tapped
/// positions after checking that they are k largest scores, since scores that
/// almost tie may sort differently in f32; every other tapped value must equal
/// the one computed here. An error for an op that is not evaluated.
llvm::Expected<ReferenceOutcome> evaluateReference(func::FuncOp entry,
                                                   llvm::ArrayRef<Array> inputs,
                                                   const TapTable &taps,
                                                   Progress &progress);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_REFERENCE_H
