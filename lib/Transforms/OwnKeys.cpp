//===- OwnKeys.cpp - Attention over the keys that a rank keeps ------------===//

#include "OwnKeys.h"
#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

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

bool mlir::shardq::hasTokenShards(SparseMlaOp op) {
  ShardingAttr sharding = op.getShardingAttr();
  return sharding && sharding.isOverTokens();
}

/// So many times the rows of a shard, where they are known.
static int64_t timesRanks(int64_t rows, int64_t ranks) {
  return ShapedType::isDynamic(rows) ? rows : rows * ranks;
}

Value mlir::shardq::gatherShards(OpBuilder &builder, Location loc,
                                 const OwnKeys &keys, ValueRange parts) {
  auto first = cast<RankedTensorType>(parts.front().getType());
  if (first.getRank() == 1) {
    // A number a row is a row of one number.
    SmallVector<ReassociationIndices> columns{{0, 1}};
    SmallVector<OpFoldResult> sizes{
        tensor::getMixedSize(builder, loc, parts.front(), 0),
        builder.getIndexAttr(1)};
    auto type =
        RankedTensorType::get({first.getDimSize(0), 1}, first.getElementType());
    Value rows = tensor::ExpandShapeOp::create(builder, loc, type,
                                               parts.front(), columns, sizes);
    Value all = gatherShards(builder, loc, keys, rows);
    return tensor::CollapseShapeOp::create(builder, loc, all, columns);
  }
  SmallVector<int64_t> shape(first.getShape());
  shape.front() = timesRanks(shape.front(), keys.members.ranks);
  for (Value part : parts.drop_front())
    shape.back() += cast<RankedTensorType>(part.getType()).getShape().back();
  return GatherRowsOp::create(
             builder, loc,
             TypeRange{RankedTensorType::get(shape, first.getElementType())},
             parts, ValueRange{}, keys.mesh, keys.members.axis, TransportAttr(),
             builder.getUnitAttr())
      .getResult(0);
}

/// The queries of all heads of the group. Where rows have room for more, the
/// attention takes a part of what was gathered.
static Value gatherHeads(OpBuilder &builder, SparseMlaOp op,
                         const OwnKeys &keys, ValueRange q) {
  Location loc = op.getLoc();
  auto first = cast<RankedTensorType>(q.front().getType());
  int64_t heads = op.getNumHeads() * keys.members.ranks;
  bool isPadded = keys.paddedHeads > heads;
  auto type = RankedTensorType::get({first.getDimSize(0),
                                     isPadded ? keys.paddedHeads : heads,
                                     op.getQueryDim()},
                                    first.getElementType());
  Value all =
      GatherQueryOp::create(builder, loc, TypeRange{type}, q, ValueRange{},
                            keys.mesh, keys.members.axis, TransportAttr(),
                            isPadded ? builder.getUnitAttr() : UnitAttr())
          .getResult(0);
  if (!isPadded)
    return all;
  return takeHeads(builder, loc, all, heads,
                   tensor::getMixedSize(builder, loc, q.front(), 0));
}

/// The sinks of the heads that this rank merges, of all that there are.
static Value takeOwnSink(OpBuilder &builder, SparseMlaOp op) {
  Value sink = op.getSink();
  int64_t heads = op.getNumHeads();
  if (!sink || cast<ShapedType>(sink.getType()).getDimSize(0) == heads)
    return sink;
  Location loc = op.getLoc();
  ShardingAttr sharding = op.getShardingAttr();
  Value block = arith::ConstantIndexOp::create(builder, loc, 0);
  for (StringAttr name : sharding.getHeads()) {
    int64_t size = lookupMeshAxis(op, sharding.getMesh(), name).axis.getSize();
    block = arith::MulIOp::create(
        builder, loc, block,
        arith::ConstantIndexOp::create(builder, loc, size));
    block = arith::AddIOp::create(builder, loc, block,
                                  RankOp::create(builder, loc,
                                                 builder.getIndexType(),
                                                 sharding.getMesh(), name));
  }
  return takeBlock(builder, loc, sink, block, heads);
}

KvMembers::KvMembers(SparseMlaOp op, StringAttr axis) {
  ShardingAttr sharding = op.getShardingAttr();
  MeshAxis over = lookupMeshAxis(op, sharding.getMesh(), axis);
  for (AxisAttr part : over.mesh.getParts(over.axis)) {
    auto name = StringAttr::get(op.getContext(), part.getName());
    bool isDivided = llvm::any_of(sharding.getAxes(), [&](StringAttr divided) {
      return divided == name || divided == part.getParent();
    });
    if (!isDivided) {
      copies.push_back(name);
      continue;
    }
    this->axis = name;
    ranks = part.getSize();
  }
}

/// The partial outputs of members that have the same heads and rows, merged on
/// each of them: one axis after the other. The last one takes the sink.
static SmallVector<Value> mergeCopies(OpBuilder &builder, SparseMlaOp op,
                                      const OwnKeys &keys,
                                      SmallVector<Value> values, Value sink,
                                      bool needsLse) {
  ArrayRef<StringAttr> copies = keys.members.copies;
  for (StringAttr axis : llvm::reverse(copies)) {
    SmallVector<Type> types{values[0].getType()};
    bool isLast = axis == copies.front();
    if (needsLse || !isLast)
      types.push_back(values[1].getType());
    auto combine = CombineLseOp::create(
        builder, op.getLoc(), types, values[0], values[1],
        isLast ? sink : Value(), ValueRange{}, keys.mesh, axis, op.getLseAttr(),
        TransportAttr(), /*scatter_tokens=*/UnitAttr());
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
  bool byRows = hasTokenShards(op);
  int64_t ownRows = q.getDimSize(0), ownHeads = op.getNumHeads();
  int64_t numRows = byRows ? timesRanks(ownRows, keys.members.ranks) : ownRows;
  int64_t heads = byRows ? ownHeads : ownHeads * keys.members.ranks;
  SmallVector<Value> queries = rows.q;
  if (keys.members.axis)
    queries = {byRows ? gatherShards(builder, loc, keys, rows.q)
                      : gatherHeads(builder, op, keys, rows.q)};
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
  const KvMembers &members = keys.members;
  Value sink = takeOwnSink(builder, op);
  SmallVector<Type> merged{
      RankedTensorType::get({ownRows, ownHeads, op.getValueDim()}, element)};
  if (needsLse || !members.copies.empty())
    merged.push_back(
        RankedTensorType::get({ownRows, ownHeads}, builder.getF32Type()));
  if (members.axis) {
    auto combine = CombineLseOp::create(
        builder, loc, merged, values[0], values[1],
        members.copies.empty() ? sink : Value(), ValueRange{}, keys.mesh,
        members.axis, op.getLseAttr(), TransportAttr(),
        byRows ? builder.getUnitAttr() : UnitAttr());
    values.assign(combine->result_begin(), combine->result_end());
  }
  values = mergeCopies(builder, op, keys, std::move(values), sink, needsLse);
  values.resize(op->getNumResults());
  return values;
}
