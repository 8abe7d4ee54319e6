//===- ReductionKernels.h - Merges by weights and sums ----------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_REDUCTIONKERNELS_H
#define SHARDQ_LIB_CONVERSION_GPU_REDUCTIONKERNELS_H

#include "Kernels.h"

namespace mlir::shardq {

/// weigh_partial, with this rank's coordinate behind the operands, and
/// sum_partials.
KernelShape getReductionShape(Operation *op);
void emitReductionKernel(KernelBuilder &b, Operation *op, ValueRange args);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_REDUCTIONKERNELS_H
