//===- IndexProducers.h - Where an attention's rows come from ---*- C++ -*-===//

#ifndef SHARDQ_LIB_TRANSFORMS_INDEXPRODUCERS_H
#define SHARDQ_LIB_TRANSFORMS_INDEXPRODUCERS_H

#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::shardq {

/// Works on rows of indices, so it can run on some of the rows.
bool isIndexOp(Operation *op);

/// Whether take_rows is looked through: rows that were taken are some rows of
/// the step, and not its rows.
enum class TakenRows { Stop, Follow };

/// Every expand_rows and index op that the op's slots, request ids and lengths
/// come from, through row operands and casts.
llvm::SetVector<Operation *>
getIndexProducers(SparseMlaOp op, TakenRows taken = TakenRows::Stop);

/// The expand_rows among them; null with a `reason` where there is none or
/// more than one.
ExpandRowsOp findExpandRows(SparseMlaOp op, llvm::StringRef &reason,
                            TakenRows taken = TakenRows::Stop);

/// What says which rows of the step were taken, own chunks of requests or those
/// that came back; null where that is nothing.
ChunkSplitOp getChunkSplit(Value rows);

/// The same of the rows of an attention.
ChunkSplitOp getChunkSplit(SparseMlaOp op);

/// The axis over which that is.
StringAttr getChunkAxis(SparseMlaOp op);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TRANSFORMS_INDEXPRODUCERS_H
