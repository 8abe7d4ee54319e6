//===- SliceChains.cpp - Exchanges that are sliced together ---------------===//
//
// From the last exchange of a chain to those in front of it. The chains:
//
//   - gather of queries, attention, merges along one axis or several
//   - the same with weights: gather of LSEs, weighing, sum over ranks
//   - of shards: gathers of queries and of what tells which keys they attend,
//     the filter, attention, a merge that gives each rank its own rows
//   - a gather by itself, or of shards of positions with the filter
//
// What is used outside of the chain too stays out of it, with all that it is
// made of.
//
//===----------------------------------------------------------------------===//

#include "SliceChains.h"
#include "IndexProducers.h"
#include "Rows.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::shardq;

using Chain = SliceChain;

bool shardq::isUsedWithin(ValueRange values, ArrayRef<Operation *> chain) {
  return llvm::all_of(values, [&](Value value) {
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      return llvm::is_contained(chain, user);
    });
  });
}

static bool isInBlockOf(Operation *op, Operation *other) {
  return op && op->getBlock() == other->getBlock();
}

static int64_t getNumRanks(CollectiveOpInterface op) {
  return lookupMeshAxis(op, op.getMeshAttr(), op.getAxisAttr()).axis.getSize();
}

/// How many ranks have shards of the rows that the op gathers, or merges and
/// scatters; none where each has all of its rows.
static std::optional<int64_t> getShardsOf(Operation *op) {
  auto merge = dyn_cast<CombineLseOp>(op);
  auto gather = dyn_cast<GatherRowsOp>(op);
  if (!(merge && merge.getScatterTokens()) &&
      !(gather && gather.getTokenShards()))
    return std::nullopt;
  return getNumRanks(cast<CollectiveOpInterface>(op));
}

GatherRowsOp shardq::getLoneGather(const Chain &chain) {
  auto gather = dyn_cast<GatherRowsOp>(chain.front());
  return chain.size() == 1 && gather && !gather.getTokenShards()
             ? gather
             : GatherRowsOp();
}

CombineLseOp shardq::getLoneScatter(const Chain &chain) {
  auto merge = dyn_cast<CombineLseOp>(chain.front());
  return chain.size() == 1 && merge && merge.getScatterTokens()
             ? merge
             : CombineLseOp();
}

std::optional<int64_t> shardq::getShards(const Chain &chain) {
  if (GatherRowsOp gather = getLoneGather(chain))
    return getNumRanks(gather);
  for (Operation *op : chain)
    if (std::optional<int64_t> shards = getShardsOf(op))
      return shards;
  return std::nullopt;
}

/// Whether the slice is the heads of all rows that were gathered.
static bool isOfPaddedHeads(tensor::ExtractSliceOp op) {
  auto gather = op.getSource().getDefiningOp<GatherQueryOp>();
  return gather && gather.getPaddedHeads() && op.getType().getRank() == 3 &&
         op.hasUnitStride() && op.hasZeroOffset() &&
         op.getType().getDimSize(0) == op.getSourceType().getDimSize(0);
}

/// The gather that partial outputs come from, with the attention between, so
/// that gathers and merges alternate.
static void addAttention(Chain &chain, Value partial) {
  Chain with = chain;
  Operation *source = partial.getDefiningOp();
  auto take = [&] {
    if (!isInBlockOf(source, chain.back()) ||
        !isUsedWithin(source->getResults(), with))
      return false;
    with.push_back(source);
    return true;
  };
  if (auto attention = dyn_cast_if_present<SparseMlaOp>(source)) {
    if (attention.getQ().size() != 1 || !take())
      return;
    source = attention.getQ().front().getDefiningOp();
    // Of rows with room for more.
    if (auto part = dyn_cast_if_present<tensor::ExtractSliceOp>(source)) {
      if (!isOfPaddedHeads(part) || !take())
        return;
      source = part.getSource().getDefiningOp();
    }
  }
  if (isa_and_present<GatherQueryOp>(source) && take())
    chain = std::move(with);
}

bool shardq::isRowOperand(OpOperand &operand) {
  if (auto rowWise = dyn_cast<RowWiseOpInterface>(operand.getOwner()))
    return rowWise.isRowOperand(operand);
  if (auto merge = dyn_cast<CombineLseOp>(operand.getOwner()))
    return operand.get() != merge.getSink();
  // Of the others all are, or come from the chain, but for numbers of rows.
  return isa<ShapedType>(operand.get().getType());
}

/// A gather of shards, or the numbers of rows that it has gathered as columns.
static bool makesShards(Operation *op, CombineLseOp merge) {
  if (auto numbers = dyn_cast<tensor::CollapseShapeOp>(op)) {
    op = numbers.getSrc().getDefiningOp();
    if (numbers.getSrcType().getRank() != 2 ||
        numbers.getSrcType().getDimSize(1) != 1)
      return false;
  }
  auto gather = dyn_cast_if_present<GatherRowsOp>(op);
  return gather && gather.getTokenShards() &&
         gather.getMeshAttr() == merge.getMeshAttr() &&
         gather.getAxisAttr() == merge.getAxisAttr();
}

/// The attention whose partial outputs are scattered, the gather of its
/// queries, and what makes its slots of gathered positions, where nothing else
/// wants those: rows of all ranks, in turns as well.
static void addShards(Chain &chain, CombineLseOp merge) {
  auto attention = merge.getPartial().getDefiningOp<SparseMlaOp>();
  if (!isInBlockOf(attention, merge) ||
      !isUsedWithin(attention->getResults(), chain) ||
      attention.getQ().size() != 1)
    return;
  llvm::SetVector<Operation *> found;
  found.insert(attention);
  for (unsigned i = 0; i < found.size(); ++i)
    for (OpOperand &operand : found[i]->getOpOperands()) {
      Operation *source = operand.get().getDefiningOp();
      // What a gather takes is this rank's.
      if (isInBlockOf(source, merge) && isRowOperand(operand) &&
          !isa<GatherRowsOp>(found[i]) &&
          (isa<FilterIndicesOp>(source) || makesShards(source, merge)))
        found.insert(source);
    }
  Chain with = chain;
  llvm::append_range(with, found);
  // Without a shared one those that it needs are shared too.
  auto isShared = [&](Operation *op) {
    return found.contains(op) && !isUsedWithin(op->getResults(), with);
  };
  while (true) {
    auto *shared = llvm::find_if(with, isShared);
    if (shared == with.end())
      break;
    with.erase(shared);
  }
  if (llvm::is_contained(with, attention.getQ().front().getDefiningOp()))
    chain = std::move(with);
}

/// Shares are weighed with LSEs that were gathered for that.
static void addWeights(Chain &chain, ReduceHeadsOp sums) {
  auto weigh = sums.getSource().getDefiningOp<WeighPartialOp>();
  if (!isInBlockOf(weigh, sums) ||
      !isUsedWithin(weigh->getResult(0), {sums.getOperation()}))
    return;
  auto lses = weigh.getLses().getDefiningOp<GatherRowsOp>();
  if (!isInBlockOf(lses, sums) ||
      !isUsedWithin(lses->getResults(), {weigh.getOperation()}))
    return;
  for (Value merged : weigh->getResults().drop_front())
    for (Operation *user : merged.getUsers())
      if (Operation *place = sums->getBlock()->findAncestorOpInBlock(*user);
          !place || !sums->isBeforeInBlock(place))
        return;
  chain.append({weigh, lses});
  addAttention(chain, weigh.getPartial());
}

/// The merge along another axis that a merge has its partial outputs from.
static CombineLseOp getMergeBefore(CombineLseOp merge) {
  auto before = merge.getPartial().getDefiningOp<CombineLseOp>();
  bool belongs = isInBlockOf(before, merge) &&
                 merge.getPartialLse().getDefiningOp() == before &&
                 isUsedWithin(before->getResults(), {merge.getOperation()});
  return belongs ? before : CombineLseOp();
}

/// Whether the op is such a merge before another.
static bool isMergedAgain(Operation *op) {
  return llvm::any_of(op->getUsers(), [&](Operation *user) {
    auto merge = dyn_cast<CombineLseOp>(user);
    return merge && getMergeBefore(merge) == op;
  });
}

/// `last` and what belongs to it.
static Chain findChain(Operation *last) {
  Chain chain{last};
  if (auto merge = dyn_cast<CombineLseOp>(last)) {
    while (CombineLseOp before = getMergeBefore(merge)) {
      chain.push_back(before);
      merge = before;
    }
    if (merge.getScatterTokens())
      addShards(chain, merge);
    else
      addAttention(chain, merge.getPartial());
  } else if (auto sums = dyn_cast<ReduceHeadsOp>(last))
    addWeights(chain, sums);
  llvm::sort(chain, [](Operation *one, Operation *other) {
    return one->isBeforeInBlock(other);
  });
  return chain;
}

/// A gather by itself. Of shards of positions with the filter, if that is all
/// that reads them: slots are handed on without a copy of what was gathered.
static Chain findChainOf(CollectiveOpInterface gather) {
  Chain chain{gather};
  if (!gather->hasOneUse())
    return chain;
  auto filter = dyn_cast<FilterIndicesOp>(*gather->user_begin());
  if (isInBlockOf(filter, gather) && getShardsOf(gather) &&
      filter.getIndices().getDefiningOp() == gather)
    chain.push_back(filter);
  return chain;
}

bool shardq::isOfAllRanks(OpOperand &operand) {
  Operation *op = operand.getOwner();
  if (auto merge = dyn_cast<CombineLseOp>(op))
    return merge.getScatterTokens();
  return !isa<GatherRowsOp>(op);
}

bool shardq::isOfAllRanks(OpResult result) {
  return !isa<CombineLseOp>(result.getOwner());
}

Value shardq::getRowSource(const Chain &chain) {
  if (getShards(chain))
    for (Operation *op : chain)
      if (isa<GatherRowsOp>(op))
        return op->getOperand(0);
  return chain.front()->getOperand(0);
}

ChunkSplitOp shardq::getRestored(Value value) {
  value = lookThroughCasts(value);
  if (auto branch = value.getDefiningOp<scf::IfOp>()) {
    unsigned index = cast<OpResult>(value).getResultNumber();
    ChunkSplitOp open = getRestored(branch.thenYield().getOperand(index));
    bool isSame =
        open && open == getRestored(branch.elseYield().getOperand(index));
    return isSame ? open : ChunkSplitOp();
  }
  auto take = value.getDefiningOp<TakeRowsOp>();
  auto split =
      take ? lookThroughCasts(take.getRows()).getDefiningOp<ChunkSplitOp>()
           : ChunkSplitOp();
  bool isOfStep =
      split && lookThroughCasts(take.getRows()) == split.getResult(1);
  return isOfStep ? split : ChunkSplitOp();
}

SmallVector<Chain> shardq::findSliceChains(ModuleOp module) {
  SmallVector<Chain> chains;
  llvm::SmallPtrSet<Operation *, 8> taken;
  module.walk([&](CollectiveOpInterface op) {
    if (!isa<CombineLseOp, ReduceHeadsOp>(*op) ||
        cast<TwoFormOpInterface>(*op).isOnBuffers() || isMergedAgain(op))
      return;
    chains.push_back(findChain(op));
    taken.insert(chains.back().begin(), chains.back().end());
  });
  module.walk([&](CollectiveOpInterface op) {
    if (!isa<GatherQueryOp, GatherRowsOp>(*op) ||
        cast<TwoFormOpInterface>(*op).isOnBuffers() || taken.contains(op))
      return;
    chains.push_back(findChainOf(op));
  });
  return chains;
}
