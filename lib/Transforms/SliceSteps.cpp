//===- SliceSteps.cpp - Exchanges of more rows than inboxes hold ----------===//

#include "IndexProducers.h"
#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/Analysis/RankDependence.h"
#include "shardq/IR/CarrierOps.h"
#include "shardq/IR/OperandNames.h"
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
  Slicer(ModuleOp module, int64_t maxTokens, int64_t maxRequests)
      : module(module), maxTokens(maxTokens), maxRequests(maxRequests),
        builder(module.getContext()) {}

  LogicalResult run();

private:
  LogicalResult verifyOptions();
  void findChains();
  bool canSlice(const Chain &chain, const RankDependence &dependence);
  int64_t getMost(const Chain &chain) const;
  int64_t getMostGiven(const Chain &chain) const;
  bool fits(const Chain &chain);
  bool isTooLong(const Chain &chain) const;
  void slice(const Chain &chain);
  SmallVector<Value> createSlices(const Chain &chain, ValueRange results,
                                  Value rows, Value bound);

  ModuleOp module;
  int64_t maxTokens, maxRequests;
  SmallVector<Chain> chains;
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

static int64_t getNumRanks(CollectiveOpInterface op) {
  return lookupMeshAxis(op, op.getMeshAttr(), op.getAxisAttr()).axis.getSize();
}

/// How many ranks have shards of the rows that the op gathers, or merges and
/// scatters; none where each has all of its rows.
static std::optional<int64_t> getShards(Operation *op) {
  auto merge = dyn_cast<CombineLseOp>(op);
  auto gather = dyn_cast<GatherRowsOp>(op);
  if (!(merge && merge.getScatterTokens()) &&
      !(gather && gather.getTokenShards()))
    return std::nullopt;
  return getNumRanks(cast<CollectiveOpInterface>(op));
}

/// A gather by itself of rows that are not shards of a step's.
static GatherRowsOp getLoneGather(const Chain &chain) {
  auto gather = dyn_cast<GatherRowsOp>(chain.front());
  return chain.size() == 1 && gather && !gather.getTokenShards()
             ? gather
             : GatherRowsOp();
}

/// A merge by itself of rows of which each rank gets its own.
static CombineLseOp getLoneScatter(const Chain &chain) {
  auto merge = dyn_cast<CombineLseOp>(chain.front());
  return chain.size() == 1 && merge && merge.getScatterTokens()
             ? merge
             : CombineLseOp();
}

/// How many ranks have rows in the chain, of which each has a slice in each
/// turn; none where all have the same.
static std::optional<int64_t> getShards(const Chain &chain) {
  if (GatherRowsOp gather = getLoneGather(chain))
    return getNumRanks(gather);
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
  if (isInBlockOf(filter, gather) && getShards(gather.getOperation()) &&
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

/// What the rows of a chain are counted by: in shards, those of this rank, but
/// of a merge by itself, which has those of all.
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

/// Whether the rows are those of chunks, in whatever way they were computed:
/// `--shardq-pcp` keeps what it gathers of them within the inboxes.
static bool areOfChunks(Value rows, llvm::SmallPtrSetImpl<Operation *> &seen) {
  Operation *op = rows.getDefiningOp();
  if (!op || !seen.insert(op).second)
    return false;
  // What is back in order has all rows of the step.
  if (isa<TakeRowsOp>(op))
    return getChunkSplit(rows) && !getRestored(rows);
  // These have the rows of all ranks.
  if (isa<GatherRowsOp, ExchangeOp>(op))
    return false;
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    unsigned number = cast<OpResult>(rows).getResultNumber();
    llvm::SmallPtrSet<Operation *, 8> ofOther(seen.begin(), seen.end());
    return areOfChunks(branch.thenYield()->getOperand(number), seen) &&
           areOfChunks(branch.elseYield()->getOperand(number), ofOther);
  }
  // Those that a loop over slices has put together.
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return areOfChunks(
        loop.getYieldedValues()[cast<OpResult>(rows).getResultNumber()], seen);
  auto rowWise = dyn_cast<RowWiseOpInterface>(op);
  return llvm::any_of(op->getOpOperands(), [&](OpOperand &operand) {
    return isa<RankedTensorType>(operand.get().getType()) &&
           (!rowWise || rowWise.isRowOperand(operand)) &&
           areOfChunks(operand.get(), seen);
  });
}

/// Whether the chain has some of a step's rows, of which a GPU's host does not
/// know the number.
static bool hasSomeRows(Value source) {
  return getRowSlice(source) || getChunkSplit(source);
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

/// What a number of rows is at most, where that is known.
static std::optional<int64_t> getLimit(OpFoldResult rows) {
  if (std::optional<int64_t> constant = getConstantIntValue(rows))
    return constant;
  Operation *op = cast<Value>(rows).getDefiningOp();
  if (auto dim = dyn_cast_if_present<tensor::DimOp>(op)) {
    OpFoldResult count = getRowCount(dim.getSource());
    bool isKnown =
        dim.getConstantIndex() == 0 && count != OpFoldResult(dim.getSource());
    return isKnown ? getLimit(count) : std::nullopt;
  }
  if (!isa_and_present<arith::MinSIOp, arith::AddIOp>(op))
    return std::nullopt;
  std::optional<int64_t> one = getLimit(op->getOperand(0)),
                         other = getLimit(op->getOperand(1));
  if (one && other)
    return isa<arith::AddIOp>(op) ? *one + *other : std::min(*one, *other);
  return isa<arith::AddIOp>(op) ? std::nullopt : one ? one : other;
}

static bool isAtMost(OpFoldResult rows, int64_t most) {
  std::optional<int64_t> limit = getLimit(rows);
  return limit && *limit <= most;
}

/// Rows that a chain has in one turn: where ranks have shards, those of each,
/// as inboxes hold a number that all can share.
int64_t Slicer::getMost(const Chain &chain) const {
  // What is planned for chunks of requests.
  if (getLoneGather(chain))
    return getMostChunkRows(maxTokens, maxRequests);
  std::optional<int64_t> shards = getShards(chain);
  return shards ? llvm::divideCeil(maxTokens, *shards) : maxTokens;
}

/// Those that fit, as the chain's source counts them.
int64_t Slicer::getMostGiven(const Chain &chain) const {
  return getMost(chain) * (getLoneScatter(chain) ? *getShards(chain) : 1);
}

/// Whether the rows are known to fit, by their type, as a slice, or by the
/// branch that the op stands in.
bool Slicer::fits(const Chain &chain) {
  Value source = getRowSource(chain);
  int64_t rows = cast<ShapedType>(source.getType()).getDimSize(0);
  int64_t most = getMostGiven(chain);
  if (!ShapedType::isDynamic(rows))
    return rows <= most;
  if (isAtMost(getRowCount(source), most))
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

static Value createTimes(OpBuilder &b, Location loc, Value rows,
                         int64_t ranks) {
  return arith::MulIOp::create(b, loc, rows,
                               arith::ConstantIndexOp::create(b, loc, ranks));
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
    return arith::AddIOp::create(b, loc, createTimes(b, loc, rows, rank),
                                 first);
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
      Value begin = createTimes(b, loc, size, rank);
      whole = putSlice(b, loc, sliceRows(b, loc, slice, begin, size), whole,
                       getFirst(b, loc, rank), size);
    }
    return whole;
  }
};

} // namespace

static Value createShare(OpBuilder &b, Location loc, Value rows,
                         int64_t ranks) {
  return arith::DivUIOp::create(b, loc, rows,
                                arith::ConstantIndexOp::create(b, loc, ranks));
}

static void expectRows(OpBuilder &b, OpOperand &operand, Value found,
                       Value expected) {
  Operation *op = operand.getOwner();
  ExpectOp::create(b, op->getLoc(), describeRows(operand), found, expected);
}

/// Where the chain's source is an operand.
static OpOperand &getRowOperand(const Chain &chain) {
  Value source = getRowSource(chain);
  for (Operation *op : chain)
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get() == source && isRowOperand(operand))
        return operand;
  llvm_unreachable("a chain begins with its source");
}

/// What types say of exchanges in the chain, where the source's leaves it open:
/// slices have types of their own.
static void expectPromised(OpBuilder &b, const Chain &chain, Value rows) {
  int64_t ranks = getShards(chain).value_or(1);
  Location loc = chain.back()->getLoc();
  llvm::SmallDenseSet<std::pair<int64_t, int64_t>> seen;
  for (Operation *op : chain)
    for (OpResult result : op->getResults()) {
      int64_t promised = cast<ShapedType>(result.getType()).getDimSize(0);
      bool isOfAll = ranks > 1 && isOfAllRanks(result);
      if (!isa<CollectiveOpInterface>(op) || ShapedType::isDynamic(promised) ||
          !seen.insert({promised, isOfAll ? ranks : 1}).second)
        continue;
      // Of a merge by itself the source has the rows of all, and `rows` are
      // this rank's.
      bool isShare = static_cast<bool>(getLoneScatter(chain));
      expectRows(b, getRowOperand(chain),
                 isOfAll || isShare ? createTimes(b, loc, rows, ranks) : rows,
                 arith::ConstantIndexOp::create(
                     b, loc, isShare ? promised * ranks : promised));
    }
}

/// Rows that the chain can go through: those of its source, and no more than
/// all else has that is sliced. Others are an error at run time, which ops on
/// slices would not find, whose rows agree. What only the device of a GPU knows
/// comes from one another, and is not compared.
static Value createCommonRows(OpBuilder &b, const Chain &chain,
                              ValueRange results, Value rows) {
  Location loc = chain.back()->getLoc();
  Value source = getRowSource(chain), least = rows;
  int64_t ranks = getShards(chain).value_or(1);
  llvm::SmallDenseSet<Value> seen{source};
  if (cast<ShapedType>(source.getType()).isDynamicDim(0))
    expectPromised(b, chain, rows);
  auto isKnown = [&](OpFoldResult count, bool isOfAll) {
    return !isHostNumber(count) ||
           (!isOfAll && isEqualConstantIntOrValue(count, getRowCount(source)));
  };
  for (Operation *op : chain)
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      if (!isRowOperand(operand) ||
          llvm::is_contained(chain, value.getDefiningOp()) ||
          !seen.insert(value).second)
        continue;
      bool isOfAll = ranks > 1 && isOfAllRanks(operand);
      if (isKnown(getRowCount(value), isOfAll))
        continue;
      Value found = tensor::DimOp::create(b, loc, value, 0);
      expectRows(b, operand, found,
                 isOfAll ? createTimes(b, loc, rows, ranks) : rows);
      least = arith::MinSIOp::create(
          b, loc, least, isOfAll ? createShare(b, loc, found, ranks) : found);
    }
  // Of what a type says there is no more room.
  for (Value value : results) {
    int64_t room = cast<ShapedType>(value.getType()).getDimSize(0);
    bool isOfAll = ranks > 1 && isOfAllRanks(cast<OpResult>(value));
    if (!ShapedType::isDynamic(room) &&
        cast<ShapedType>(source.getType()).isDynamicDim(0))
      least =
          arith::MinSIOp::create(b, loc, least,
                                 arith::ConstantIndexOp::create(
                                     b, loc, isOfAll ? room / ranks : room));
  }
  return least;
}

/// The results of the chain, in turns of as many rows as inboxes hold.
SmallVector<Value> Slicer::createSlices(const Chain &chain, ValueRange results,
                                        Value rows, Value bound) {
  Location loc = chain.back()->getLoc();
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value most = arith::ConstantIndexOp::create(builder, loc, getMost(chain));
  std::optional<int64_t> shards = getShards(chain);
  auto isOfAll = [&](auto &value) { return shards && isOfAllRanks(value); };
  if (CombineLseOp merge = getLoneScatter(chain)) {
    // What ranks cannot share is an error, as in a step that fits.
    Value all = rows;
    rows = bound = createShare(builder, loc, all, *shards);
    expectRows(builder, merge.getPartialMutable(), all,
               createTimes(builder, loc, rows, *shards));
  }
  Value common =
      bound == rows ? createCommonRows(builder, chain, results, rows) : rows;
  SmallVector<Value> wholes;
  for (Value value : results) {
    auto result = cast<OpResult>(value);
    auto tensor = cast<RankedTensorType>(result.getType());
    SmallVector<Value> sizes;
    if (tensor.isDynamicDim(0))
      sizes.push_back(isOfAll(result) ? createTimes(builder, loc, rows, *shards)
                                      : rows);
    wholes.push_back(tensor::EmptyOp::create(builder, loc, tensor, sizes));
  }
  auto turn = [&](OpBuilder &b, Location, Value first, ValueRange carried) {
    // Turns behind the last row have none.
    if (bound != common)
      first = arith::MinSIOp::create(b, loc, first, common);
    Value rest = arith::SubIOp::create(b, loc, common, first);
    Value size = arith::MinSIOp::create(b, loc, rest, most);
    Turn here{first, size, common, shards.value_or(1)};
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
  // which a branch would have to hand on. Where types say of some values that
  // they do not fit there is no form without turns.
  if (cast<ShapedType>(source.getType()).isDynamicDim(0) && !bound &&
      !isTooLong(chain)) {
    Value most =
        arith::ConstantIndexOp::create(builder, loc, getMostGiven(chain));
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

/// Whether the type of something in the chain says that it does not fit.
bool Slicer::isTooLong(const Chain &chain) const {
  int64_t most = getMost(chain);
  std::optional<int64_t> shards = getShards(chain);
  auto isLonger = [&](auto &value, Type type) {
    int64_t rows = cast<ShapedType>(type).getDimSize(0);
    int64_t ranks = shards && isOfAllRanks(value) ? *shards : 1;
    return !ShapedType::isDynamic(rows) && rows > most * ranks;
  };
  return llvm::any_of(chain, [&](Operation *op) {
    return llvm::any_of(op->getOpOperands(),
                        [&](OpOperand &operand) {
                          return isRowOperand(operand) &&
                                 isLonger(operand, operand.get().getType());
                        }) ||
           llvm::any_of(op->getResults(), [&](OpResult result) {
             return isLonger(result, result.getType());
           });
  });
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

LogicalResult Slicer::verifyOptions() {
  for (auto [name, value] :
       {std::pair<StringRef, int64_t>{"max-tokens", maxTokens},
        {"max-requests", maxRequests}})
    if (value < 1 || value > std::numeric_limits<int32_t>::max())
      return emitError(module.getLoc(), "shardq-slice-steps: ")
             << name << " is " << value << ", expected 1 to 2147483647";
  return success();
}

/// Exchanges with what belongs to them, and those that nothing belongs to.
void Slicer::findChains() {
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
    Chain chain = findChainOf(op);
    llvm::SmallPtrSet<Operation *, 8> seen;
    if (!getLoneGather(chain) || !areOfChunks(getRowSource(chain), seen))
      chains.push_back(std::move(chain));
  });
}

/// Whether turns of the chain are right on all ranks; says it where not.
bool Slicer::canSlice(const Chain &chain, const RankDependence &dependence) {
  Value source = getRowSource(chain);
  StringRef why;
  if (dependence.isShapeDependent(source))
    why = "may differ between ranks, which would not take as many turns";
  else if (hasSomeRows(source) && getLoneScatter(chain))
    why = "are some of a step's, which ranks may not be able to share";
  else if (hasSomeRows(source) && haveMixedRows(chain))
    why = "are in the types of some values and open in those of others";
  else
    return true;
  chain.front()->emitRemark("has rows that ")
      << why << ": more than " << getMostGiven(chain)
      << " rows are an error at run time";
  return false;
}

LogicalResult Slicer::run() {
  if (failed(verifyOptions()) || failed(verifyInFunctionsOf(module)))
    return failure();
  findChains();
  llvm::erase_if(chains, [&](const Chain &chain) { return fits(chain); });
  if (chains.empty())
    return success();
  RankDependence dependence(module);
  llvm::erase_if(
      chains, [&](const Chain &chain) { return !canSlice(chain, dependence); });
  for (const Chain &chain : chains)
    slice(chain);
  return success();
}

namespace {
struct ShardQSliceStepsPass
    : public shardq::impl::ShardQSliceStepsBase<ShardQSliceStepsPass> {
  using ShardQSliceStepsBase::ShardQSliceStepsBase;
  void runOnOperation() override {
    if (failed(Slicer(getOperation(), maxTokens, maxRequests).run()))
      signalPassFailure();
  }
};
} // namespace
