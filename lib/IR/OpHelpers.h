//===- OpHelpers.h - Checks and effects shared by op files ------*- C++ -*-===//

#ifndef SHARDQ_LIB_IR_OPHELPERS_H
#define SHARDQ_LIB_IR_OPHELPERS_H

#include "shardq/IR/ShardQ.h"

namespace mlir::shardq::detail {

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

/// Either results or `outs`, between `min` and `max` of them, and every shaped
/// operand of the same form.
LogicalResult verifyTwoForms(TwoFormOpInterface op, unsigned min, unsigned max);

/// A dimension of a named operand or result, for diagnostics.
struct NamedDim {
  StringRef name;
  Type type;
  unsigned dim;
};

/// Fails with "'slots' has 5 rows, expected 4 as 'q'" when both are static and
/// differ. `what` is the plural noun.
LogicalResult verifySameDim(Operation *op, StringRef what, NamedDim dim,
                            NamedDim expected);

/// Fails unless the dimension is static, positive, and no more than 2^24.
LogicalResult verifyStaticDim(Operation *op, StringRef what, NamedDim dim);

/// Fails unless the element types agree.
LogicalResult verifySameElement(Operation *op, StringRef name, Type type,
                                StringRef expectedName, Type expected);

/// Fails unless there are one or two of what travels together.
LogicalResult verifyOneOrTwo(Operation *op, ValueRange sources);

LogicalResult verifyRank(Operation *op, StringRef name, Type type,
                         int64_t rank);

/// The view that a table, slots or a cache are of; null for those of a rank's
/// own.
ViewAttr getView(Type type);

/// Fails unless both are of one view. Buffers are of none.
LogicalResult verifySameView(Operation *op, StringRef name, Type type,
                             StringRef expectedName, Type expected);

/// Fails where it is a view.
LogicalResult verifyNoView(Operation *op, StringRef name, Type type);

/// Fails unless `many` is `few` for each of the ranks, in a dimension of each;
/// it may be dynamic, and has to be where `few` is.
LogicalResult verifyTimesRanks(Operation *op, StringRef what, AxisAttr axis,
                               NamedDim many, NamedDim few);

/// `block_size` and `block_stride_rows` of ops that address paged rows.
LogicalResult verifyBlocks(Operation *op, int64_t blockSize, int64_t stride);

/// `interleave` of ops that know which rank keeps which token.
LogicalResult verifyInterleave(Operation *op, int64_t interleave);

/// Slots of i32 name the rows of a pool of fewer than 2^31.
LogicalResult verifySlotsReach(Operation *op, Type slots, NamedDim pool);

/// Runs of the interleave and blocks never overlap in part: a run that
/// straddled two of the scheduler's blocks would have no one slot to begin at.
/// A kernel's blocks are parts of those, and may be parts of a run.
LogicalResult verifyRuns(Operation *op, int64_t interleave, int64_t blockSize);

/// Fails where positions or slots, one row for each token, have no columns.
LogicalResult verifyColumns(Operation *op, StringRef name, Type type);

/// Shapes of slots, one for each of `indices`, and of counts, one a row.
LogicalResult reifySlots(OpBuilder &builder, Location loc, Value indices,
                         bool hasCounts, ReifiedRankedShapedTypeDims &shapes);

LogicalResult verifyNotNegative(Operation *op, StringRef name, int64_t value);

/// The mesh exists and has the axis; null with a diagnostic otherwise.
AxisAttr verifyAxis(Operation *op, SymbolTableCollection &symbolTable,
                    FlatSymbolRefAttr mesh, StringAttr axis);

/// verifyAxis, and `offsets` has one entry more than the axis has ranks.
LogicalResult verifyOffsets(Operation *op, SymbolTableCollection &symbolTable,
                            FlatSymbolRefAttr mesh, StringAttr axis,
                            StringRef name, Type offsets);

/// Rows of bytes as the format says.
LogicalResult verifyPackedRows(Operation *op, StringRef name, Type type,
                               PackedRowsAttr format);

/// Shapes of a block table with a column for each of `table` and each of the
/// ranks.
LogicalResult reifyWideTable(OpBuilder &builder, Operation *op, Value table,
                             FlatSymbolRefAttr mesh, StringAttr axis,
                             ReifiedRankedShapedTypeDims &shapes);

/// Shapes and element types of `exchange` and `push`.
LogicalResult verifyExchangeShapes(Operation *op, Direction direction,
                                   ValueRange sources, Value after,
                                   StringRef resultName, ShapedType result);

/// Axis, offsets and head counts of `exchange` and `push`.
LogicalResult verifyExchangeHeads(Operation *op,
                                  SymbolTableCollection &symbolTable,
                                  FlatSymbolRefAttr mesh, StringAttr axis,
                                  Direction direction, ShapedType source,
                                  StringRef resultName, ShapedType result,
                                  Type offsets);

/// Shapes of `gather_query` and its `push`.
LogicalResult verifyGatherShapes(Operation *op, ValueRange sources,
                                 StringRef resultName, ShapedType result);

/// Rows as those of `source`: one element type and one static shape behind
/// dimension 0.
LogicalResult verifySameRows(Operation *op, StringRef name, ShapedType rows,
                             ShapedType source);

/// Rows as those of one source, or of two together, of `gather_rows` and its
/// `push`.
LogicalResult verifyJoinedRows(Operation *op, StringRef name, ShapedType rows,
                               ValueRange sources);

/// Sources of `gather_kv_start` and its `push`; `width` becomes the values of a
/// gathered row.
LogicalResult verifyGatheredSources(Operation *op, ValueRange sources,
                                    int64_t &width);

/// Gathered rows of `width` values with the element type of `source`.
LogicalResult verifyGatheredRows(Operation *op, StringRef name, ShapedType rows,
                                 Type source, int64_t width);

/// `partial` and its LSE, of `combine_lse` and its `push`.
LogicalResult verifyPartial(Operation *op, ShapedType partial, ShapedType lse);

/// Three dimensions, of which heads and values a head are known.
LogicalResult verifyHeads(Operation *op, StringRef name, ShapedType type);

/// Values and LSE of a head in an inbox of `combine_lse`, for rows of the
/// element type and `values` values.
int64_t getPartialWidth(Type element, int64_t values);

/// The axis exists, and `all` has its size times the heads of `local`, or more
/// if it is padded.
LogicalResult verifyGroupHeads(Operation *op,
                               SymbolTableCollection &symbolTable,
                               FlatSymbolRefAttr mesh, StringAttr axis,
                               ShapedType local, StringRef allName,
                               ShapedType all, bool isPadded = false);

/// `starts` and `lengths` of some of a step's rows, in the shapes of the
/// step's.
LogicalResult verifyStartsAndLengths(Operation *op, Value queryStart,
                                     Value seqLens, ShapedType starts,
                                     ShapedType lengths);

/// The memref is in symmetric memory of the mesh.
LogicalResult verifySymmetric(Operation *op, StringRef name, Type type,
                              FlatSymbolRefAttr mesh);

/// Reads and writes the memory of peers: effects of a collective op.
void getPeerEffects(Effects &effects);

/// Reads every memref among the operands before `outs`, writes the `outs`.
void getTwoFormEffects(TwoFormOpInterface op, Effects &effects);

/// Reads every memref operand.
void getReadEffects(Operation *op, Effects &effects);

inline Speculation::Speculatability
getTwoFormSpeculatability(TwoFormOpInterface op) {
  return op.isOnBuffers() ? Speculation::NotSpeculatable
                          : Speculation::Speculatable;
}

/// Of an op that only reads: what lies in memory may change before it.
inline Speculation::Speculatability getReaderSpeculatability(Value read) {
  return isa<MemRefType>(read.getType()) ? Speculation::NotSpeculatable
                                         : Speculation::Speculatable;
}

inline ShapedType shaped(Value value) {
  return cast<ShapedType>(value.getType());
}

} // namespace mlir::shardq::detail

/// Effects of an op on tensors or on buffers, and of a collective one.
#define SHARDQ_TWO_FORM_EFFECTS(OP)                                            \
  void OP::getEffects(Effects &effects) { getTwoFormEffects(*this, effects); } \
  Speculation::Speculatability OP::getSpeculatability() {                      \
    return getTwoFormSpeculatability(*this);                                   \
  }
#define SHARDQ_COLLECTIVE_EFFECTS(OP)                                          \
  void OP::getEffects(Effects &effects) {                                      \
    getPeerEffects(effects);                                                   \
    getTwoFormEffects(*this, effects);                                         \
  }                                                                            \
  Speculation::Speculatability OP::getSpeculatability() {                      \
    return Speculation::NotSpeculatable;                                       \
  }

#endif // SHARDQ_LIB_IR_OPHELPERS_H
