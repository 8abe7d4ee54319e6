//===- ContextKernels.h - Kernels of a sharded KV cache ---------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_CONTEXTKERNELS_H
#define SHARDQ_LIB_CONVERSION_GPU_CONTEXTKERNELS_H

#include "Kernels.h"

namespace mlir::shardq {

/// merge_lse; local_lengths, shard_lengths and filter_indices with this rank's
/// coordinate behind the operands.
KernelShape getContextShape(Operation *op);
void emitContextKernel(KernelBuilder &b, Operation *op, ValueRange args);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_CONTEXTKERNELS_H
