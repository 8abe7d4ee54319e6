//===- Passes.h - Passes that make binaries ---------------------*- C++ -*-===//

#ifndef SHARDQ_TARGET_PASSES_H
#define SHARDQ_TARGET_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::shardq {

#define GEN_PASS_DECL
#include "shardq/Target/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "shardq/Target/Passes.h.inc"

} // namespace mlir::shardq

#endif // SHARDQ_TARGET_PASSES_H
