//===- FreeBuffers.h - Gives buffers back after their last use --*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_FREEBUFFERS_H
#define SHARDQ_LIB_CONVERSION_GPU_FREEBUFFERS_H

#include "mlir/IR/Operation.h"

namespace mlir::shardq {

/// Inserts a `memref.dealloc` behind the last use of every `memref.alloc` under
/// `root` that does not leave its block. One that does is freed with the arena,
/// when the function is called next.
void freeBuffers(Operation *root);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_FREEBUFFERS_H
