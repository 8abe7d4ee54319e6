//===- ChunkKernels.h - Kernels of requests in chunks -----------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_CHUNKKERNELS_H
#define SHARDQ_LIB_CONVERSION_GPU_CHUNKKERNELS_H

#include "Kernels.h"

namespace mlir::shardq {

/// chunk_split, chunk_lengths and chunk_slots in two kernels. Behind the
/// operands stand, of chunk_split, the address of the device context, then this
/// rank's coordinate along the axis and a buffer of
/// memref<?x3xi32> with two rows more than query_start has entries: for each
/// request, its first row in the step, among the rows of decode requests and
/// heads, and among those of tails; behind the last one, where the next would
/// be. The first kernel is one block and writes it, the second the results.
KernelShape getChunkTableShape();
void emitChunkTableKernel(KernelBuilder &b, Operation *op, ValueRange args);
KernelShape getChunkRowsShape();
void emitChunkRowsKernel(KernelBuilder &b, Operation *op, ValueRange args);

/// One block of getChunkTableShape, with memref<1xi64> behind the operands for
/// the result.
void emitCountChunkRowsKernel(KernelBuilder &b, CountChunkRowsOp op,
                              ValueRange args);

KernelShape getWriteRowsShape();
void emitWriteRowsKernel(KernelBuilder &b, ValueRange args);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_CHUNKKERNELS_H
