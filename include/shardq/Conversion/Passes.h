//===- Passes.h - Passes out of the ShardQ dialect --------------*- C++ -*-===//

#ifndef SHARDQ_CONVERSION_PASSES_H
#define SHARDQ_CONVERSION_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::shardq {

#define GEN_PASS_DECL
#include "shardq/Conversion/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "shardq/Conversion/Passes.h.inc"

} // namespace mlir::shardq

#endif // SHARDQ_CONVERSION_PASSES_H
