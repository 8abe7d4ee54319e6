//===- IndexProducers.h - Where an attention's rows come from ---*- C++ -*-===//

#ifndef SHARDQ_LIB_TRANSFORMS_INDEXPRODUCERS_H
#define SHARDQ_LIB_TRANSFORMS_INDEXPRODUCERS_H

#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::shardq {

/// `type` with a dynamic number of rows.
RankedTensorType withDynamicRows(Type type);

/// The tensor as one of `type`, which may leave open what it says or say what
/// it leaves open.
Value castTo(OpBuilder &builder, Location loc, Value value, Type type);

/// Rows `[begin, begin + size)` of a tensor.
Value sliceRows(OpBuilder &builder, Location loc, Value value,
                OpFoldResult begin, Value size);

/// The rows of all parts, one part behind the other.
Value joinRows(OpBuilder &builder, ValueRange parts);

Value lookThroughCasts(Value value);

void eraseTaps(Operation *op);

/// Clones a row-wise op where the builder stands, to run on the rows of the
/// step that `rows` names: `getRows` gives those of a row operand. Taps of its
/// results are cloned, with the rows. Results are of dynamic rows.
Operation *cloneOnRows(OpBuilder &builder, Operation *op, Value rows,
                       llvm::function_ref<Value(Value)> getRows);

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

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TRANSFORMS_INDEXPRODUCERS_H
