//===- Placement.h - Where ops of a module stand ----------------*- C++ -*-===//

#ifndef SHARDQ_ANALYSIS_PLACEMENT_H
#define SHARDQ_ANALYSIS_PLACEMENT_H

#include "mlir/IR/BuiltinOps.h"

namespace mlir::shardq {

/// Fails, with a diagnostic, on a ShardQ op outside the functions (func.func)
/// of `module` itself: a nested module is a program of its own, and code
/// outside functions has no caller to get the runtime from.
LogicalResult verifyInFunctionsOf(ModuleOp module);

/// Fails, with a diagnostic, on a ShardQ op on tensors, or on a buffer whose
/// layout has no strides.
LogicalResult verifyOnStridedBuffers(ModuleOp module);

} // namespace mlir::shardq

#endif // SHARDQ_ANALYSIS_PLACEMENT_H
