//===- Kernels.h - GPU kernels of each op -----------------------*- C++ -*-===//
//
// Each function writes the body of one kernel. `args` are the operands of the
// op, in order, as seen in the kernel: buffers in global memory whose number of
// rows and whose strides may be dynamic (the last stride is 1), and scalars.
// `op` says what is static; its operands are not used. A kernel works through
// all rows with whatever grid it gets, since the host knows a bound of the rows
// only.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_KERNELS_H
#define SHARDQ_LIB_CONVERSION_GPU_KERNELS_H

#include "KernelBuilder.h"
#include "shardq/IR/ShardQ.h"

namespace mlir::shardq {

/// How a kernel is launched. The grid has at most `blocksPerRow` blocks for each
/// row of the host's bound and at most `maxBlocks` in all, and at least one.
struct KernelShape {
  int64_t threads = 256;
  int64_t blocksPerRow = 1;
  int64_t maxBlocks = 1 << 30;
  int64_t dynamicShared = 0; // bytes
};

//===--- Attention, indexer, top-k ----------------------------------------===//

KernelShape getSparseMlaShape(SparseMlaOp op);
void emitSparseMlaKernel(KernelBuilder &b, SparseMlaOp op, ValueRange args);

/// scores[r, s] for rows `firstRow + r`, `0 <= r < dim(scores, 0)`, as long as
/// the op has such a row, and positions s below min(visible, dim(scores, 1)).
/// The score of a position whose key does not exist (no such request, block or
/// slot) is the NaN with bits kNoKey; any other NaN has bits 0x7fffffff.
/// Positions behind the visible ones are not written.
inline constexpr uint32_t kNoKey = 0xffffffff;
KernelShape getIndexerScoresShape(IndexerOp op);
void emitIndexerScoresKernel(KernelBuilder &b, IndexerOp op, ValueRange args,
                             Value firstRow, Value scores);

/// The `k` largest of scores[r, 0 .. visible[firstRow + r]) into
/// result[firstRow + r, :], for `0 <= r < dim(scores, 0)` as long as result has
/// such a row: ascending positions, ties to the lowest, -1 behind them. Where
/// `holes`, scores of bits kNoKey are no candidates.
KernelShape getTopKShape(int64_t k);
void emitTopKKernel(KernelBuilder &b, int64_t k, bool holes, Value scores,
                    Value visible, Value firstRow, Value result);

//===--- Rows, steps, exchanges -------------------------------------------===//

KernelShape getRowShape(Operation *op);
void emitRowKernel(KernelBuilder &b, Operation *op, ValueRange args);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_KERNELS_H
