//===- ViewKernels.h - Tables, slots and rows of caches ---------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_VIEWKERNELS_H
#define SHARDQ_LIB_CONVERSION_GPU_VIEWKERNELS_H

#include "Kernels.h"

namespace mlir::shardq {

/// replicated_table, token_slots (behind the operands of one over an axis
/// stands this rank's coordinate), unpack_rows, pack_rows, and gather_blocks
/// with `full`.
bool isViewOp(Operation *op);
KernelShape getViewShape(Operation *op);
void emitViewKernel(KernelBuilder &b, Operation *op, ValueRange args);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_VIEWKERNELS_H
