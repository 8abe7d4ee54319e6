//===- Kernels.h - Loops of each op -----------------------------*- C++ -*-===//
//
// Each function writes the body of the kernel of one op. `args` are the
// kernel's arguments: the operands of the op, in order, with the buffers'
// strides made dynamic. `op` says what is static; its operands are not used.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_LIB_CONVERSION_LOOPS_KERNELS_H
#define SHARDQ_LIB_CONVERSION_LOOPS_KERNELS_H

#include "../Utils/LoopBuilder.h"
#include "shardq/IR/ShardQ.h"

namespace mlir::shardq {

void emitExpandRows(LoopBuilder &b, ExpandRowsOp op, ValueRange args);
void emitConvertIndices(LoopBuilder &b, ConvertIndicesOp op, ValueRange args);
void emitLocalRows(LoopBuilder &b, LocalRowsOp op, ValueRange args);
void emitTakeRows(LoopBuilder &b, TakeRowsOp op, ValueRange args);
void emitWriteRows(LoopBuilder &b, WriteRowsOp op, ValueRange args);
void emitTopK(LoopBuilder &b, TopKOp op, ValueRange args);
void emitIndexer(LoopBuilder &b, IndexerOp op, ValueRange args);
void emitSparseMla(LoopBuilder &b, SparseMlaOp op, ValueRange args);
void emitPush(LoopBuilder &b, PushOp op, ValueRange args);
void emitLocalLengths(LoopBuilder &b, LocalLengthsOp op, ValueRange args);
void emitDraftLengths(LoopBuilder &b, ValueRange args);
void emitFilterIndices(LoopBuilder &b, FilterIndicesOp op, ValueRange args);
void emitGatheredSlots(LoopBuilder &b, GatheredSlotsOp op, ValueRange args);
void emitMergeLse(LoopBuilder &b, MergeLseOp op, ValueRange args);
void emitWeighPartial(LoopBuilder &b, WeighPartialOp op, ValueRange args);
void emitSumPartials(LoopBuilder &b, SumPartialsOp op, ValueRange args);
void emitTokenSlots(LoopBuilder &b, TokenSlotsOp op, ValueRange args);
void emitUnpackRows(LoopBuilder &b, UnpackRowsOp op, ValueRange args);
void emitPackRows(LoopBuilder &b, PackRowsOp op, ValueRange args);
/// Of gather_blocks, the form with `full`.
void emitGatherAllBlocks(LoopBuilder &b, GatherBlocksOp op, ValueRange args);

/// Writes `store(d, value)` for each bf16 value of a packed row.
void emitUnpackedRow(LoopBuilder &b, PackedRowsAttr format, Value packed,
                     Value row, llvm::function_ref<void(Value, Value)> store);

/// Writes the request-relative row of a page table: `table[req, t / block] *
/// stride + t % block`, or -1 where the request or block is outside the table
/// or the entry negative. All of index type.
Value emitPagedRow(LoopBuilder &b, Value table, Value req, Value position,
                   int64_t blockSize, int64_t blockStride);

/// How a kernel tells the runtime of a token to write that has no place: the
/// table is too small for it, or its entry is not one.
struct NoPlace {
  llvm::function_ref<void(Value block, Value requests, Value width)> isBeyond;
  llvm::function_ref<void(Value block, Value entry)> isNone;
};

/// The same row for a token to write, up to `limit`. One without a place is
/// told of, and gets -1. `req` and `position` are not negative.
Value emitWrittenRow(LoopBuilder &b, TokenSlotsOp op, Value table, Value req,
                     Value position, Value limit, const NoPlace &noPlace);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_LOOPS_KERNELS_H
