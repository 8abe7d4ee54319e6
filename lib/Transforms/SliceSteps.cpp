//===- SliceSteps.cpp - Exchanges of more rows than inboxes hold ----------===//

#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/Analysis/RankDependence.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQSLICESTEPS
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// Ops of one block that work on the same rows, in program order. What they
/// hand on is used behind the last one only.
using Chain = SmallVector<Operation *>;

class Slicer {
public:
  Slicer(ModuleOp module, int64_t maxTokens)
      : module(module), maxTokens(maxTokens), builder(module.getContext()) {}

  LogicalResult run();

private:
  int64_t getMost(const Chain &chain) const;
  bool fits(const Chain &chain);
  void slice(const Chain &chain);
  SmallVector<Value> createSlices(const Chain &chain, ValueRange results,
                                  Value rows, Value bound);

  ModuleOp module;
  int64_t maxTokens;
  OpBuilder builder;
};

} // namespace

/// Whether all that uses the values is in the chain.
static bool isUsedWithin(ValueRange values, ArrayRef<Operation *> chain) {
  return llvm::all_of(values, [&](Value value) {
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      return llvm::is_contained(chain, user);
    });
  });
}

static bool isInBlockOf(Operation *op, Operation *other) {
  return op && op->getBlock() == other->getBlock();
}

/// How many ranks have shards of the rows that the op gathers, or merges and
/// scatters; none where each has all of its rows.
static std::optional<int64_t> getShards(Operation *op) {
  auto merge = dyn_cast<CombineLseOp>(op);
  auto gather = dyn_cast<GatherRowsOp>(op);
  if (!(merge && merge.getScatterTokens()) &&
      !(gather && gather.getTokenShards()))
    return std::nullopt;
  auto collective = cast<CollectiveOpInterface>(op);
  return lookupMeshAxis(op, collective.getMeshAttr(), collective.getAxisAttr())
      .axis.getSize();
}

/// Those of the chain, of which each has a slice in each turn.
static std::optional<int64_t> getShards(const Chain &chain) {
  for (Operation *op : chain)
    if (std::optional<int64_t> shards = getShards(op))
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

static bool isRowOperand(OpOperand &operand) {
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
  if (isInBlockOf(filter, gather) && getShards(chain) &&
      filter.getIndices().getDefiningOp() == gather)
    chain.push_back(filter);
  return chain;
}

/// Whether the operand, or a result, has the rows of all ranks that have shards
/// of them, rank after rank: of a chain in which some do.
static bool isOfAllRanks(OpOperand &operand) {
  Operation *op = operand.getOwner();
  if (auto merge = dyn_cast<CombineLseOp>(op))
    return merge.getScatterTokens();
  return !isa<GatherRowsOp>(op);
}
static bool isOfAllRanks(OpResult result) {
  return !isa<CombineLseOp>(result.getOwner());
}

/// What the rows of a chain are counted by: in shards, those of this rank.
static Value getRowSource(const Chain &chain) {
  if (getShards(chain))
    for (Operation *op : chain)
      if (isa<GatherRowsOp>(op))
        return op->getOperand(0);
  return chain.front()->getOperand(0);
}

/// The slice that the value is, of another's rows; null otherwise.
static tensor::ExtractSliceOp getRowSlice(Value value) {
  auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
  return slice && !slice.getDroppedDims().test(0) ? slice
                                                  : tensor::ExtractSliceOp();
}

/// The split that says which rows of the step these are, if one does.
static ChunkSplitOp getChunkSplit(Value source) {
  auto take = lookThroughCasts(source).getDefiningOp<TakeRowsOp>();
  if (!take)
    return {};
  Value rows = lookThroughCasts(take.getRows());
  if (tensor::ExtractSliceOp slice = getRowSlice(rows))
    rows = slice.getSource();
  return rows.getDefiningOp<ChunkSplitOp>();
}

/// The split of whose step the value has all rows, in their order, whatever
/// branch made it; null if none.
static ChunkSplitOp getRestored(Value value) {
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

/// How many rows the chain has at most; null where nothing says less than the
/// rows themselves: where rows are some of the step's, a GPU's host knows the
/// step's only.
static Value getBound(OpBuilder &b, Location loc, Value source) {
  tensor::ExtractSliceOp slice = getRowSlice(source);
  if (slice)
    source = slice.getSource();
  if (ChunkSplitOp split = getRestored(source))
    return split.getRows();
  if (ChunkSplitOp split = getChunkSplit(source)) {
    // Each request is padded by one row at most, and there is a start more.
    Value starts = tensor::DimOp::create(b, loc, split.getQueryStart(), 0);
    return arith::AddIOp::create(b, loc, split.getRows(), starts);
  }
  return slice ? tensor::DimOp::create(b, loc, source, 0).getResult() : Value();
}

static std::optional<int64_t> getConstant(Value value) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return constant.getSExtValue();
  return std::nullopt;
}

static bool isAtMost(Value rows, int64_t most) {
  if (std::optional<int64_t> constant = getConstant(rows))
    return *constant <= most;
  auto least = rows.getDefiningOp<arith::MinSIOp>();
  return least &&
         (isAtMost(least.getLhs(), most) || isAtMost(least.getRhs(), most));
}

/// Rows that a chain has in one turn, as its source counts them: where ranks
/// have shards, inboxes hold a number that all can share.
int64_t Slicer::getMost(const Chain &chain) const {
  std::optional<int64_t> shards = getShards(chain);
  if (!shards)
    return maxTokens;
  int64_t each = llvm::divideCeil(maxTokens, *shards);
  bool isOfAll = !llvm::any_of(chain, llvm::IsaPred<GatherRowsOp>);
  return isOfAll ? each * *shards : each;
}

/// Whether the rows are known to fit, by their type, as a slice, or by the
/// branch that the op stands in.
bool Slicer::fits(const Chain &chain) {
  Value source = getRowSource(chain);
  int64_t rows = cast<ShapedType>(source.getType()).getDimSize(0);
  int64_t most = getMost(chain);
  if (!ShapedType::isDynamic(rows))
    return rows <= most;
  if (auto slice = getRowSlice(source))
    if (auto size = dyn_cast<Value>(slice.getMixedSizes().front());
        size && isAtMost(size, most))
      return true;
  for (Operation *op = chain.front();
       auto branch = op->getParentOfType<scf::IfOp>(); op = branch) {
    auto compare = branch.getCondition().getDefiningOp<arith::CmpIOp>();
    if (!compare || !branch.getElseRegion().isAncestor(op->getParentRegion()) ||
        compare.getPredicate() != arith::CmpIPredicate::sgt)
      continue;
    auto size = compare.getLhs().getDefiningOp<tensor::DimOp>();
    if (size && size.getSource() == source && size.getConstantIndex() == 0 &&
        isAtMost(compare.getRhs(), most))
      return true;
  }
  return false;
}

static Value putSlice(OpBuilder &b, Location loc, Value slice, Value target,
                      Value first, Value size) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, target);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
  SmallVector<OpFoldResult> ones(sizes.size(), b.getIndexAttr(1));
  offsets.front() = first;
  sizes.front() = size;
  return tensor::InsertSliceOp::create(b, loc, slice, target, offsets, sizes,
                                       ones);
}

namespace {

/// `size` rows from `first` on, of `rows`; of shards, of each rank's.
struct Turn {
  Value first, size, rows;
  int64_t ranks;

  /// Where they begin in the rows of all ranks.
  Value getFirst(OpBuilder &b, Location loc, int64_t rank) const {
    if (rank == 0)
      return first;
    Value before = arith::MulIOp::create(
        b, loc, rows, arith::ConstantIndexOp::create(b, loc, rank));
    return arith::AddIOp::create(b, loc, before, first);
  }

  Value take(OpBuilder &b, Location loc, Value value, bool isOfAll) const {
    SmallVector<Value> parts;
    for (int64_t rank = 0; rank < (isOfAll ? ranks : 1); ++rank)
      parts.push_back(sliceRows(b, loc, value, getFirst(b, loc, rank), size));
    return joinRows(b, parts);
  }

  Value put(OpBuilder &b, Location loc, Value slice, Value whole,
            bool isOfAll) const {
    if (!isOfAll || ranks == 1)
      return putSlice(b, loc, slice, whole, first, size);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Value begin = arith::MulIOp::create(
          b, loc, size, arith::ConstantIndexOp::create(b, loc, rank));
      whole = putSlice(b, loc, sliceRows(b, loc, slice, begin, size), whole,
                       getFirst(b, loc, rank), size);
    }
    return whole;
  }
};

} // namespace

/// The results of the chain, in turns of as many rows as inboxes hold.
SmallVector<Value> Slicer::createSlices(const Chain &chain, ValueRange results,
                                        Value rows, Value bound) {
  Location loc = chain.back()->getLoc();
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value most = arith::ConstantIndexOp::create(builder, loc, getMost(chain));
  std::optional<int64_t> shards = getShards(chain);
  auto isOfAll = [&](auto &value) { return shards && isOfAllRanks(value); };
  SmallVector<Value> wholes;
  for (Value value : results) {
    auto result = cast<OpResult>(value);
    auto tensor = cast<RankedTensorType>(result.getType());
    SmallVector<Value> sizes;
    if (tensor.isDynamicDim(0))
      sizes.push_back(isOfAll(result) ? arith::MulIOp::create(
                                            builder, loc, rows,
                                            arith::ConstantIndexOp::create(
                                                builder, loc, *shards))
                                            .getResult()
                                      : rows);
    wholes.push_back(tensor::EmptyOp::create(builder, loc, tensor, sizes));
  }
  auto turn = [&](OpBuilder &b, Location, Value first, ValueRange carried) {
    // Turns behind the last row have none.
    if (bound != rows)
      first = arith::MinSIOp::create(b, loc, first, rows);
    Value rest = arith::SubIOp::create(b, loc, rows, first);
    Value size = arith::MinSIOp::create(b, loc, rest, most);
    Turn here{first, size, rows, shards.value_or(1)};
    IRMapping slices;
    for (Operation *op : chain) {
      if (auto part = dyn_cast<tensor::ExtractSliceOp>(op)) {
        Value heads =
            takeHeads(b, loc, slices.lookup(part.getSource()),
                      part.getType().getDimSize(1), OpFoldResult(size));
        slices.map(part.getResult(), heads);
        continue;
      }
      for (OpOperand &operand : op->getOpOperands())
        if (!slices.contains(operand.get()) && isRowOperand(operand))
          slices.map(operand.get(),
                     here.take(b, loc, operand.get(), isOfAll(operand)));
      Operation *copy = b.clone(*op, slices);
      for (OpResult result : copy->getResults())
        result.setType(withDynamicRows(result.getType()));
    }
    SmallVector<Value> filled;
    for (auto [value, whole] : llvm::zip_equal(results, carried)) {
      auto result = cast<OpResult>(value);
      filled.push_back(
          here.put(b, loc, slices.lookup(value), whole, isOfAll(result)));
    }
    scf::YieldOp::create(b, loc, filled);
  };
  auto loop = scf::ForOp::create(builder, loc, zero, bound, most, wholes, turn);
  return llvm::to_vector_of<Value>(loop.getResults());
}

void Slicer::slice(const Chain &chain) {
  Operation *last = chain.back();
  Location loc = last->getLoc();
  builder.setInsertionPoint(last);
  Value source = getRowSource(chain);
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value rows = tensor::DimOp::create(builder, loc, source, zero);
  Value bound = getBound(builder, loc, source);
  SmallVector<Value> results, replacements;
  for (Operation *op : chain)
    for (Value result : op->getResults())
      if (op == last || !isUsedWithin(result, chain))
        results.push_back(result);
  // Of some of the step's rows a GPU's host does not know the result's size,
  // which a branch would have to hand on.
  if (cast<ShapedType>(source.getType()).isDynamicDim(0) && !bound) {
    Value most = arith::ConstantIndexOp::create(builder, loc, getMost(chain));
    Value isSliced = arith::CmpIOp::create(
        builder, loc, arith::CmpIPredicate::sgt, rows, most);
    auto branch = scf::IfOp::create(
        builder, loc, TypeRange(ValueRange(results)), isSliced,
        /*addThenBlock=*/true, /*addElseBlock=*/true);
    builder.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(builder, loc,
                         createSlices(chain, results, rows, rows));
    builder.setInsertionPointToStart(branch.elseBlock());
    IRMapping copies;
    for (Operation *op : chain)
      builder.clone(*op, copies);
    scf::YieldOp::create(builder, loc,
                         llvm::map_to_vector(results, [&](Value result) {
                           return copies.lookup(result);
                         }));
    llvm::append_range(replacements, branch->getResults());
  } else {
    replacements = createSlices(chain, results, rows, bound ? bound : rows);
  }
  for (auto [result, replacement] : llvm::zip_equal(results, replacements))
    result.replaceUsesWithIf(replacement, [&](OpOperand &use) {
      return !llvm::is_contained(chain, use.getOwner());
    });
  for (Operation *op : llvm::reverse(chain))
    op->erase();
}

/// Whether types say how many rows some values have, and not others: what does
/// not agree at run time has no slices that do.
static bool haveMixedRows(const Chain &chain) {
  bool isStatic = false, isDynamic = false;
  auto look = [&](Value value) {
    (cast<ShapedType>(value.getType()).isDynamicDim(0) ? isDynamic : isStatic) =
        true;
  };
  for (Operation *op : chain) {
    for (OpOperand &operand : op->getOpOperands())
      if (isRowOperand(operand))
        look(operand.get());
    for (Value result : op->getResults())
      look(result);
  }
  return isStatic && isDynamic;
}

LogicalResult Slicer::run() {
  if (maxTokens < 1 || maxTokens > std::numeric_limits<int32_t>::max())
    return emitError(module.getLoc(), "shardq-slice-steps: ")
           << "max-tokens is " << maxTokens << ", expected 1 to 2147483647";
  if (failed(verifyInFunctionsOf(module)))
    return failure();
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
    bool isGather = isa<GatherQueryOp>(*op) ||
                    (isa<GatherRowsOp>(*op) && getShards(op.getOperation()));
    if (isGather && !cast<TwoFormOpInterface>(*op).isOnBuffers() &&
        !taken.contains(op))
      chains.push_back(findChainOf(op));
  });
  llvm::erase_if(chains, [&](const Chain &chain) { return fits(chain); });
  if (chains.empty())
    return success();
  RankDependence dependence(module);
  llvm::erase_if(chains, [&](const Chain &chain) {
    StringRef why;
    if (getShards(chain) && !llvm::any_of(chain, llvm::IsaPred<GatherRowsOp>))
      why = "are scattered, and not gathered for that alone";
    else if (dependence.isShapeDependent(getRowSource(chain)))
      why = "may differ between ranks, which would not take as many turns";
    else if (haveMixedRows(chain))
      why = "are in the types of some values and open in those of others";
    else
      return false;
    chain.front()->emitRemark("has rows that ")
        << why << ": more than " << maxTokens
        << " rows are an error at run time";
    return true;
  });
  for (const Chain &chain : chains)
    slice(chain);
  return success();
}

namespace {
struct ShardQSliceStepsPass
    : public shardq::impl::ShardQSliceStepsBase<ShardQSliceStepsPass> {
  using ShardQSliceStepsBase::ShardQSliceStepsBase;
  void runOnOperation() override {
    if (failed(Slicer(getOperation(), maxTokens).run()))
      signalPassFailure();
  }
};
} // namespace
