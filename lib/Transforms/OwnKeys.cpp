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

KvMembers::KvMembers(SparseMlaOp op, StringAttr axis) {
  ShardingAttr sharding = op.getShardingAttr();
  MeshAxis over = lookupMeshAxis(op, sharding.getMesh(), axis);
  for (AxisAttr part : over.mesh.getParts(over.axis)) {
    auto name = StringAttr::get(op.getContext(), part.getName());
    bool hasHeads = llvm::any_of(sharding.getHeads(), [&](StringAttr heads) {
      return heads == name || heads == part.getParent();
    });
    if (!hasHeads) {
      copies.push_back(name);
      continue;
    }
    heads = name;
    headRanks = part.getSize();
  }
}

/// The partial outputs of members that have the same heads, merged on each of
/// them: one axis after the other.
static SmallVector<Value> mergeCopies(OpBuilder &builder, SparseMlaOp op,
                                      const OwnKeys &keys,
                                      SmallVector<Value> values,
                                      bool needsLse) {
  ArrayRef<StringAttr> copies = keys.members.copies;
  for (StringAttr axis : llvm::reverse(copies)) {
    SmallVector<Type> types{values[0].getType()};
    if (needsLse || axis != copies.front())
      types.push_back(values[1].getType());
    auto combine = CombineLseOp::create(builder, op.getLoc(), types, values[0],
                                        values[1], ValueRange{}, keys.mesh,
                                        axis, op.getLseAttr(), TransportAttr());
    values.assign(combine->result_begin(), combine->result_end());
  }
  return values;
}

SmallVector<Value>
mlir::shardq::attendOwnKeys(OpBuilder &builder, SparseMlaOp op,
                            const OwnKeys &keys, const AttendingRows &rows,
                            FilterIndicesOp filter, bool needsLse) {
  Location loc = op.getLoc();
  auto q = cast<RankedTensorType>(rows.q.front().getType());
  Type element = q.getElementType();
  int64_t numRows = q.getDimSize(0);
  const KvMembers &members = keys.members;
  int64_t heads = op.getNumHeads() * members.headRanks;
  SmallVector<Value> queries = rows.q;
  if (members.heads)
    queries =
        GatherQueryOp::create(builder, loc,
                              TypeRange{RankedTensorType::get(
                                  {numRows, heads, op.getQueryDim()}, element)},
                              queries, ValueRange{}, keys.mesh, members.heads,
                              TransportAttr())
            ->getResults();
  SmallVector<Type> types{
      RankedTensorType::get({numRows, heads, op.getValueDim()}, element),
      RankedTensorType::get({numRows, heads}, builder.getF32Type())};
  Value length = rows.topkLength;
  if (!length && filter.getNumOuts() == 2)
    length = filter->getResult(1);
  auto attend = SparseMlaOp::create(
      builder, loc, types, queries, keys.kv, filter->getResult(0), rows.req,
      length, Value(), ValueRange{}, op.getScaleAttr(), ShardingAttr(),
      op.getLseAttr(), op.getKvFormatAttr());
  SmallVector<Value> values(attend->getResults());
  SmallVector<Type> merged{RankedTensorType::get(
      {numRows, op.getNumHeads(), op.getValueDim()}, element)};
  if (needsLse || !members.copies.empty())
    merged.push_back(RankedTensorType::get({numRows, op.getNumHeads()},
                                           builder.getF32Type()));
  if (members.heads) {
    auto combine = CombineLseOp::create(
        builder, loc, merged, values[0], values[1], ValueRange{}, keys.mesh,
        members.heads, op.getLseAttr(), TransportAttr());
    values.assign(combine->result_begin(), combine->result_end());
  }
  values = mergeCopies(builder, op, keys, std::move(values), needsLse);
  values.resize(op->getNumResults());
  return values;
}
