//===- DcpGather.cpp - What gathers the keys of a sharded cache -----------===//

#include "DcpGather.h"
#include "ChunkBounds.h"
#include "IndexProducers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::shardq;

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// The builder goes to where the table's blocks can first be gathered, which
/// may take a move of the table's makers.
void KeyGather::setBlocksPlace(const DcpCandidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  ExpandRowsOp expand = candidate.expand;
  Value table = convert.getTable();
  if (ChunkSplitOp split = getBlocksSplit(candidate)) {
    // The matcher has found that they can move.
    auto moves = findMoves(table, split, dominance);
    for (Operation *op : *moves)
      op->moveBefore(split);
    builder.setInsertionPoint(split);
    // Both dominate the attention, so one dominates the other.
  } else if (dominance.properlyDominates(table, expand.getOperation())) {
    builder.setInsertionPointAfter(expand);
  } else {
    builder.setInsertionPointAfterValue(table);
  }
}

GatherBlocksOp KeyGather::createBlocks(const DcpCandidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  ExpandRowsOp expand = candidate.expand;
  ShardingAttr sharding = SparseMlaOp(candidate.op).getShardingAttr();
  Value table = convert.getTable();
  auto type = cast<RankedTensorType>(table.getType());
  int64_t entries =
      type.hasStaticShape() ? type.getNumElements() : ShapedType::kDynamic;
  Type i32 = builder.getI32Type();
  SmallVector<Type> types{RankedTensorType::get({entries}, i32),
                          RankedTensorType::get(type.getShape(), i32),
                          RankedTensorType::get({1}, i32)};
  return GatherBlocksOp::create(
      builder, expand.getLoc(), types, table, getStepLengths(expand).second,
      Value(), ValueRange{}, sharding.getMesh(), candidate.axis,
      builder.getI64IntegerAttr(sharding.getInterleave()),
      convert.getBlockSizeAttr(), builder.getI32IntegerAttr(nullBlock),
      gathersAll ? builder.getUnitAttr() : UnitAttr());
}

KeyGather::Blocks &KeyGather::ensureEntry(const DcpCandidate &candidate) {
  OpBuilder::InsertionGuard guard(builder);
  setBlocksPlace(candidate);
  ConvertIndicesOp convert = candidate.convert;
  Blocks &blocks = blocksOf[getBlocksKey(candidate, dominance)];
  blocks.caches.insert(
      {SparseMlaOp(candidate.op).getKv(),
       convert.getBlockStrideRows().value_or(convert.getBlockSize())});
  if (!blocks.op)
    blocks.op = createBlocks(candidate);
  return blocks;
}

GatherBlocksOp KeyGather::ensureBlocks(const DcpCandidate &candidate) {
  return ensureEntry(candidate).op;
}

/// What has as many rows as the cache, and says so in front of `place`; null
/// where nothing does. Writes leave as many.
static Value findSameRows(Value cache, Operation *place,
                          DominanceInfo &dominance) {
  while (auto type = dyn_cast<RankedTensorType>(cache.getType())) {
    if (!type.isDynamicDim(0) || dominance.properlyDominates(cache, place))
      return cache;
    if (auto cast = cache.getDefiningOp<tensor::CastOp>())
      cache = cast.getSource();
    else if (auto write = cache.getDefiningOp<WriteRowsOp>())
      cache = write.getCache();
    else
      break;
  }
  return {};
}

/// Blocks that begin in one of the caches, as many as the largest has, in front
/// of the op; null where that is not known there.
Value KeyGather::findPool(const Blocks &blocks) {
  SmallVector<std::pair<Value, int64_t>> known;
  for (auto [cache, stride] : blocks.caches) {
    Value rows = findSameRows(cache, blocks.op, dominance);
    if (!rows)
      return {};
    known.emplace_back(rows, stride);
  }
  builder.setInsertionPoint(blocks.op);
  Location loc = blocks.op->getLoc();
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };
  int64_t least = 0;
  Value most;
  for (auto [cache, stride] : known) {
    auto type = cast<RankedTensorType>(cache.getType());
    if (!type.isDynamicDim(0)) {
      least = std::max<int64_t>(least,
                                llvm::divideCeil(type.getDimSize(0), stride));
      continue;
    }
    Value rows = tensor::DimOp::create(builder, loc, cache, 0);
    Value begun =
        arith::AddIOp::create(builder, loc, rows, constant(stride - 1));
    Value number =
        arith::DivUIOp::create(builder, loc, begun, constant(stride));
    most = most ? arith::MaxUIOp::create(builder, loc, most, number).getResult()
                : number;
  }
  if (!most)
    return constant(least);
  if (least == 0)
    return most;
  return arith::MaxUIOp::create(builder, loc, most, constant(least));
}

void KeyGather::setPools() {
  for (auto &[key, blocks] : blocksOf)
    if (Value pool = findPool(blocks))
      blocks.op.getPoolMutable().assign(pool);
}

//===----------------------------------------------------------------------===//
// Gate
//===----------------------------------------------------------------------===//

/// Whether the keys fit, and the step has prefill where that is asked for.
Value KeyGather::createGate(const DcpCandidate &candidate, Value decodes) {
  GatherBlocksOp blocks = ensureBlocks(candidate);
  Location loc = blocks.getLoc();
  // Keys of every step that they fit in: none has prefill too little.
  if (step == DcpStep::Gather)
    decodes = arith::ConstantIndexOp::create(builder, loc, -1);
  Value starts = getStepLengths(candidate.expand).first;
  return GatherGateOp::create(builder, loc, builder.getI1Type(), starts,
                              blocks.getResult(2), decodes,
                              blocks.getMeshAttr(), candidate.axis,
                              blocks.getBlockSizeAttr(), IntegerAttr());
}

/// A step whose keys are not gathered has no chunks: whole rows are what ranks
/// that keep other keys can merge. So all rows are whole where keys do not fit.
Value KeyGather::gateChunks(ChunkSplitOp split, const DcpCandidate &candidate) {
  Value wholeRows = split.getDecodes();
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(split);
  Value isGathered = createGate(candidate, wholeRows);
  Value chosen = arith::SelectOp::create(builder, split.getLoc(), isGathered,
                                         wholeRows, split.getRows());
  wholeRows.replaceUsesWithIf(chosen, [&](OpOperand &use) {
    return takesWholeRows(use.getOwner(), wholeRows);
  });
  return isGathered;
}

/// In each step with tails; all rows are whole where keys do not fit.
Value KeyGather::createChunksGate(const DcpCandidate &candidate) {
  ChunkSplitOp split = getChunkSplit(candidate.op);
  Value isGathered = gateChunks(split, candidate);
  if (step == DcpStep::Gather)
    return isGathered;
  builder.setInsertionPointAfter(split);
  Location loc = ExpandRowsOp(candidate.expand).getLoc();
  Value tails = CountChunkRowsOp::create(
      builder, loc, builder.getIndexType(),
      ChunkPartAttr::get(builder.getContext(), ChunkPart::Tail),
      split.getQueryStart(), split.getDecodes(), split.getRows(),
      split.getMeshAttr(), candidate.chunks);
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sgt, tails,
                               arith::ConstantIndexOp::create(builder, loc, 0));
}

Value KeyGather::ensureGate(const DcpCandidate &candidate) {
  Blocks &blocks = ensureEntry(candidate);
  if (blocks.gate)
    return blocks.gate;
  OpBuilder::InsertionGuard guard(builder);
  if (candidate.chunks)
    return blocks.gate = createChunksGate(candidate);
  ExpandRowsOp expand = candidate.expand;
  builder.setInsertionPointAfter(blocks.op);
  Value decodes;
  if (step == DcpStep::Gate)
    decodes = CountDecodeRowsOp::create(
        builder, expand.getLoc(), builder.getIndexType(),
        getStepLengths(expand).first, expand.getSpeculativeTokensAttr());
  return blocks.gate = createGate(candidate, decodes);
}

//===----------------------------------------------------------------------===//
// Slots and keys
//===----------------------------------------------------------------------===//

GatheredSlotsOp KeyGather::createSlots(const DcpCandidate &candidate,
                                       Value indices) {
  ConvertIndicesOp convert = candidate.convert;
  GatherBlocksOp blocks = ensureBlocks(candidate);
  return GatheredSlotsOp::create(
      builder, convert.getLoc(), convert->getResultTypes(), indices,
      blocks.getResult(1), blocks.getResult(2), convert.getReq(), ValueRange{},
      blocks.getMeshAttr(), candidate.axis, blocks.getInterleaveAttr(),
      blocks.getBlockSizeAttr());
}

GatherKvStartOp KeyGather::createStart(const DcpCandidate &candidate) {
  SparseMlaOp op = candidate.op;
  ConvertIndicesOp convert = candidate.convert;
  GatherBlocksOp blocks = ensureBlocks(candidate);
  return GatherKvStartOp::create(
      builder, op.getLoc(), KvGatherType::get(builder.getContext()),
      ValueRange{op.getKv()}, blocks.getResult(0), blocks.getResult(2),
      blocks.getMeshAttr(), candidate.axis, convert.getBlockSizeAttr(),
      convert.getBlockStrideRowsAttr(), TransportAttr());
}

Value KeyGather::createFinish(const DcpCandidate &candidate,
                              GatherKvStartOp start) {
  SparseMlaOp op = candidate.op;
  auto kv = cast<RankedTensorType>(op.getKv().getType());
  Type keys = RankedTensorType::get({ShapedType::kDynamic, kv.getDimSize(1)},
                                    kv.getElementType());
  return GatherKvFinishOp::create(builder, op.getLoc(), TypeRange{keys},
                                  start.getHandle(), ValueRange{})
      ->getResult(0);
}
