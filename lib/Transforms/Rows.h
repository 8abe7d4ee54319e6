//===- Rows.h - Rows of tensors, and ops on some of them --------*- C++ -*-===//

#ifndef SHARDQ_LIB_TRANSFORMS_ROWS_H
#define SHARDQ_LIB_TRANSFORMS_ROWS_H

#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/DenseSet.h"

namespace mlir::shardq {

/// `type` with a dynamic number of rows.
RankedTensorType withDynamicRows(Type type);

/// The tensor as one of `type`, which may leave open what it says or say what
/// it leaves open.
Value castTo(OpBuilder &builder, Location loc, Value value, Type type);

/// Rows `[begin, begin + size)` of a tensor.
Value sliceRows(OpBuilder &builder, Location loc, Value value,
                OpFoldResult begin, Value size);

/// The first `heads` heads of all rows, which are `rows`.
Value takeHeads(OpBuilder &builder, Location loc, Value value, int64_t heads,
                OpFoldResult rows);

/// Entries `block * size` on of a vector, `size` of them.
Value takeBlock(OpBuilder &builder, Location loc, Value vector, Value block,
                int64_t size);

/// The rows of all parts, one part behind the other.
Value joinRows(OpBuilder &builder, ValueRange parts);

Value lookThroughCasts(Value value);

/// Says how many rows a tensor has: a constant, a number, or the tensor that
/// has as many.
OpFoldResult getRowCount(Value tensor);

/// Rows that a rank may have of a step in chunks, and inboxes hold of each
/// rank: chunks come in pairs, padded by fewer than two rows of each request.
constexpr int64_t getMostChunkRows(int64_t maxTokens, int64_t maxRequests) {
  return maxTokens + 2 * maxRequests;
}

/// Whether the host of a GPU knows the number, which it is if it comes from
/// arguments alone.
bool isHostNumber(OpFoldResult rows);

void eraseTaps(Operation *op);

/// Has the runtime compare the rows of lists with those of the step: where rows
/// of one are taken, a missing one would pass for padding. Each is compared
/// once, where list and step are first there, so that what layers have in
/// common stays side by side. Rows of what ops of the dialect, and branches,
/// make follow from those of what they are given.
class StepLists {
public:
  void expect(OpOperand &list, ExpandRowsOp step);
  /// All lists of a row-wise op.
  void expect(Operation *op, ExpandRowsOp step);

private:
  llvm::DenseSet<std::pair<Value, Operation *>> known;
};

/// Clones a row-wise op where the builder stands, to run on the rows of the
/// step that `rows` names: `getRows` gives those of a row operand. Taps of its
/// results are cloned, with the rows. Results are of dynamic rows.
Operation *cloneOnRows(OpBuilder &builder, Operation *op, Value rows,
                       llvm::function_ref<Value(Value)> getRows);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TRANSFORMS_ROWS_H
