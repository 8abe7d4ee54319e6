//===- IndexProducers.cpp - Where an attention's rows come from -----------===//

#include "IndexProducers.h"
#include "Rows.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::shardq;

bool mlir::shardq::isIndexOp(Operation *op) {
  return isa_and_present<IndexerOp, TopKOp, ConvertIndicesOp, GatheredSlotsOp>(
      op);
}

static void walkProducers(Value value, TakenRows taken,
                          llvm::SetVector<Operation *> &found) {
  Operation *producer = value.getDefiningOp();
  if (auto cast = dyn_cast_if_present<tensor::CastOp>(producer))
    return walkProducers(cast.getSource(), taken, found);
  auto take = dyn_cast_if_present<TakeRowsOp>(producer);
  if (take && taken == TakenRows::Follow)
    return walkProducers(take.getSource(), taken, found);
  bool known = isIndexOp(producer) || isa_and_present<ExpandRowsOp>(producer);
  if (!known || !found.insert(producer) || !isIndexOp(producer))
    return;
  auto rowWise = cast<RowWiseOpInterface>(producer);
  for (OpOperand &operand : producer->getOpOperands())
    if (rowWise.isRowOperand(operand))
      walkProducers(operand.get(), taken, found);
}

llvm::SetVector<Operation *> mlir::shardq::getIndexProducers(SparseMlaOp op,
                                                             TakenRows taken) {
  llvm::SetVector<Operation *> found;
  for (Value value : {op.getSlots(), op.getReq(), op.getTopkLength()})
    if (value)
      walkProducers(value, taken, found);
  return found;
}

ExpandRowsOp mlir::shardq::findExpandRows(SparseMlaOp op,
                                          llvm::StringRef &reason,
                                          TakenRows taken) {
  ExpandRowsOp expand;
  for (Operation *producer : getIndexProducers(op, taken)) {
    auto found = dyn_cast<ExpandRowsOp>(producer);
    if (!found)
      continue;
    if (expand && expand != found) {
      reason = "its rows are described by two expand_rows";
      return {};
    }
    expand = found;
  }
  if (!expand)
    reason = "no shardq.expand_rows of this function describes its rows (give "
             "it 'rows')";
  return expand;
}

ChunkSplitOp mlir::shardq::getChunkSplit(Value rows) {
  auto take = lookThroughCasts(rows).getDefiningOp<TakeRowsOp>();
  if (!take)
    return {};
  Value taken = lookThroughCasts(take.getRows());
  if (auto slice = taken.getDefiningOp<tensor::ExtractSliceOp>())
    taken = slice.getSource();
  return taken.getDefiningOp<ChunkSplitOp>();
}

ChunkSplitOp mlir::shardq::getChunkSplit(SparseMlaOp op) {
  for (Value part : op.getQ())
    if (ChunkSplitOp split = getChunkSplit(part))
      return split;
  return {};
}

StringAttr mlir::shardq::getChunkAxis(SparseMlaOp op) {
  ChunkSplitOp split = getChunkSplit(op);
  return split ? split.getAxisAttr() : StringAttr();
}
