//===- GatherKernels.h - Kernels around gathered KV -------------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_GATHERKERNELS_H
#define SHARDQ_LIB_CONVERSION_GPU_GATHERKERNELS_H

#include "Kernels.h"

namespace mlir::shardq {

/// gather_blocks in two kernels, each with the op's operands. The first is one
/// block and writes the list, up to the last that is gathered, and the count;
/// the second the inverse and what is behind the list.
KernelShape getBlockListShape();
void emitBlockListKernel(KernelBuilder &b, GatherBlocksOp op, ValueRange args);
KernelShape getBlockInverseShape();
void emitBlockInverseKernel(KernelBuilder &b, GatherBlocksOp op,
                            ValueRange args);

/// One block, with memref<1xi64> behind the operands for the result.
void emitGatherGateKernel(KernelBuilder &b, GatherGateOp op, ValueRange args);

/// gathered_slots and gathered_table.
KernelShape getGatheredShape(Operation *op);
void emitGatheredKernel(KernelBuilder &b, Operation *op, ValueRange args);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_GATHERKERNELS_H
