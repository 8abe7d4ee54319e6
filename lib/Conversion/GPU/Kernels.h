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

/// How a kernel is launched. The grid has at most `blocksPerRow` blocks for
/// each row of the host's bound and at most `maxBlocks` in all, and at least
/// one.
struct KernelShape {
  int64_t threads = 256;
  int64_t blocksPerRow = 1;
  /// Rows that a block takes at a time, where rows are single elements.
  int64_t rowsPerBlock = 1;
  int64_t leastBlocks = 1;
  int64_t maxBlocks = 1 << 30;
  /// Beyond `fewBlocks`, there is one in so many of them.
  int64_t fewBlocks = 1 << 30;
  int64_t oneOf = 1;
  int64_t dynamicShared = 0; // bytes
  /// Of a multiprocessor, that registers must allow: `nvvm.minctasm`. Left to
  /// itself, ptxas may spill for the sake of more.
  int64_t residentBlocks = 1;
  /// Whether it waits for other ranks: nothing behind it takes room on the card
  /// meanwhile.
  bool waitsForPeers = false;
  /// Whether it reads what the kernel in front of it does not write before that
  /// one has ended, and waits for it by itself.
  bool looksAhead = false;
};

/// The `gpu.module` of all kernels of a program.
inline constexpr StringLiteral kKernelModuleName = "shardq_kernels";

/// Rows that all row operands of `op` have, results included: arguments come
/// from a caller, whose buffers may differ in rows where types leave them open.
Value getCommonRows(KernelBuilder &b, RowWiseOpInterface op, ValueRange args);

//===--- Attention, indexer, top-k ----------------------------------------===//

/// Fail with a diagnostic where an op's types have no kernel. `sharedBytes` is
/// the dynamic shared memory that a block of the card may have.
LogicalResult verifySparseMlaKernel(SparseMlaOp op, int64_t sharedBytes);
LogicalResult verifyIndexerKernel(IndexerOp op);

KernelShape getSparseMlaShape(SparseMlaOp op, int64_t sharedBytes);
void emitSparseMlaKernel(KernelBuilder &b, SparseMlaOp op, ValueRange args,
                         int64_t sharedBytes);

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

//===--- Rows and steps ---------------------------------------------------===//

/// Has a function of the device library record what is wrong with a step, in
/// numbers of index type. `device` is the address of the device context, of
/// index type too.
void recordWrong(KernelBuilder &b, StringRef function, Value device,
                 ArrayRef<Value> numbers);

/// Records starts of a step, and its decode rows, that do not add up, as
/// shardq_rt_check_starts does. `device` is the address of the device context,
/// of index type. Called by all threads.
void emitCheckStarts(KernelBuilder &b, Value starts, Value decodes, Value rows,
                     Value device);

/// expand_rows, convert_indices, local_rows (and this rank's coordinate),
/// take_rows, write_rows, memref.copy, linalg.fill, memref.store; behind the
/// operands of expand_rows and write_rows the address of the device context;
/// count_decode_rows, count_chunk_rows, split_gate and gather_gate, with
/// memref<1xi64> behind the operands for the result.
KernelShape getRowShape(Operation *op);
void emitRowKernel(KernelBuilder &b, Operation *op, ValueRange args);

/// zigzag_split in two kernels. Behind the operands stands a buffer of
/// memref<?x(ranks + 2)xi32> with as many rows as query_start has entries: for
/// each request, the tokens of each rank in the requests before it, then the
/// row where it begins and its length, and behind it the address of the device
/// context. The first kernel is one block and writes it and rank_offsets, the
/// second the token ids.
KernelShape getSplitCountShape(int64_t ranks);
void emitSplitCountKernel(KernelBuilder &b, int64_t ranks, ValueRange args);
KernelShape getSplitIdsShape(int64_t ranks);
void emitSplitIdsKernel(KernelBuilder &b, int64_t ranks, ValueRange args);

//===--- Exchanges --------------------------------------------------------===//

/// push, signal and wait. Behind the operands stand this rank in the mesh, its
/// coordinate along the axis, and the address of the device context, all of
/// index type; behind those of a push of gather_rows the rows that its inbox is
/// to have. Signal and wait are one block.
KernelShape getExchangeShape(Operation *op);
void emitExchangeKernel(KernelBuilder &b, Operation *op, ValueRange args);

/// A signal and its wait in one kernel, with the arguments of either. With
/// `ahead` it waits for the push in front of it by itself.
void emitFlagsKernel(KernelBuilder &b, SignalOp signal, ValueRange args,
                     bool ahead);

/// Rows that NCCL carries, [ranks][rows] in a buffer of their own.
struct CarriedRows {
  int64_t rows;
  bool isLanding; // the kernel unpacks them; else it packs
};

/// Of a push: into the outbox rather than into peers' inboxes, own rows aside;
/// or from the landing place into the own inbox, to where the peers' pushes
/// would have written. Behind the arguments of a push stands that buffer.
void emitCarriedKernel(KernelBuilder &b, PushOp push, const CarriedRows &carry,
                       ValueRange args);

/// Of a push of gather_rows beside other kernels: small blocks, and few, so
/// that both find room.
KernelShape getAsideShape(PushOp op);

/// A signal that says what is wanted as well, with the arguments of a signal.
void emitAnnounceKernel(KernelBuilder &b, SignalOp signal, ValueRange args);

/// `address`, of index type, as `!llvm.ptr`.
Value toPointer(OpBuilder &b, Location loc, Value address);

/// 1 where `pointer` of a buffer's first element, and each of its strides but
/// the last in bytes, are multiples of 16, and the last stride is 1.
Value isAligned16(KernelBuilder &b, Value buffer);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_KERNELS_H
