//===- OwnKeys.cpp - Attention over the keys that a rank keeps ------------===//

#include "OwnKeys.h"

using namespace mlir;
using namespace mlir::shardq;

FilterIndicesOp mlir::shardq::filterToOwnKeys(OpBuilder &builder, Location loc,
                                              const OwnKeys &keys,
                                              Value indices, Value req,
                                              RankedTensorType slots,
                                              bool isCompacted) {
  SmallVector<Type> types{slots};
  if (isCompacted)
    types.push_back(
        RankedTensorType::get({slots.getDimSize(0)}, builder.getI32Type()));
  return FilterIndicesOp::create(
      builder, loc, types, indices, keys.table, req, ValueRange{}, keys.mesh,
      keys.axis, keys.interleave, keys.blockSize, keys.blockStrideRows,
      isCompacted ? UnitAttr() : builder.getUnitAttr());
}

SmallVector<Value>
mlir::shardq::attendOwnKeys(OpBuilder &builder, SparseMlaOp op,
                            const OwnKeys &keys, const AttendingRows &rows,
                            FilterIndicesOp filter, bool needsLse) {
  Location loc = op.getLoc();
  auto q = cast<RankedTensorType>(rows.q.front().getType());
  Type element = q.getElementType();
  int64_t numRows = q.getDimSize(0);
  int64_t heads = op.getNumHeads() * keys.ranks;
  auto gather = GatherQueryOp::create(
      builder, loc,
      TypeRange{
          RankedTensorType::get({numRows, heads, op.getQueryDim()}, element)},
      rows.q, ValueRange{}, keys.mesh, keys.axis, TransportAttr());
  SmallVector<Type> types{
      RankedTensorType::get({numRows, heads, op.getValueDim()}, element),
      RankedTensorType::get({numRows, heads}, builder.getF32Type())};
  Value length = rows.topkLength;
  if (!length && filter.getNumOuts() == 2)
    length = filter->getResult(1);
  auto attend = SparseMlaOp::create(
      builder, loc, types, gather->getResults(), keys.kv, filter->getResult(0),
      rows.req, length, Value(), ValueRange{}, op.getScaleAttr(),
      ShardingAttr(), op.getLseAttr(), op.getKvFormatAttr());
  SmallVector<Type> merged{RankedTensorType::get(
      {numRows, op.getNumHeads(), op.getValueDim()}, element)};
  if (needsLse)
    merged.push_back(RankedTensorType::get({numRows, op.getNumHeads()},
                                           op.getOutType(1).getElementType()));
  auto combine = CombineLseOp::create(
      builder, loc, merged, attend->getResult(0), attend->getResult(1),
      ValueRange{}, keys.mesh, keys.axis, op.getLseAttr(), TransportAttr());
  SmallVector<Value> values(combine.getResults());
  values.resize(op->getNumResults());
  return values;
}
