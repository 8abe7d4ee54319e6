//===- SliceSteps.cpp - Exchanges of more rows than inboxes hold ----------===//
//
// Inboxes hold as many rows as were planned, and an exchange of more is an
// error at run time. Here it becomes a loop.
//
// A chain is what goes through that loop together: an exchange and the ops on
// the same rows that belong to it, as the gather of queries, the attention and
// the merge of what comes out (SliceChains.cpp finds them). So rows are
// gathered and merged turn by turn, and neither inbox is needed for more.
//
// A turn is once through the chain, with the next rows that fit. Where all
// ranks have the same rows, a turn has the same of them on each; where each has
// a shard, a turn has as many rows of every shard, and what holds the rows of
// all ranks is cut and put together shard by shard. All ranks take as many
// turns, so the number of rows must be the same on all.
//
// A chain that is known to fit is left alone, as are gathers of chunks of
// requests where larger steps need not have any (ChunkBounds.cpp). Another has
// its turns in a branch that is taken where there are too many rows, or has
// nothing but turns, up to a bound, where a GPU's host does not know the
// number.
//
//===----------------------------------------------------------------------===//

#include "ChunkBounds.h"
#include "IndexProducers.h"
#include "Rows.h"
#include "SliceChains.h"
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
#include "llvm/ADT/SmallPtrSet.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQSLICESTEPS
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

using Chain = SliceChain;

class Slicer {
public:
  Slicer(ModuleOp module, int64_t maxTokens, int64_t maxRequests)
      : module(module), bounds{maxTokens, maxRequests},
        builder(module.getContext()) {}

  LogicalResult run();

private:
  LogicalResult verifyOptions();
  bool canSlice(const Chain &chain, const RankDependence &dependence);
  int64_t getTurnRows(const Chain &chain) const;
  int64_t getSourceRowsThatFit(const Chain &chain) const;
  bool fits(const Chain &chain);
  bool isTooLong(const Chain &chain) const;
  void slice(const Chain &chain);
  SmallVector<Value> createSlices(const Chain &chain, ValueRange results,
                                  Value rows, Value bound);

  ModuleOp module;
  StepBounds bounds;
  OpBuilder builder;
};

} // namespace

/// The slice that the value is, of another's rows; null otherwise.
static tensor::ExtractSliceOp getRowSlice(Value value) {
  auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
  return slice && !slice.getDroppedDims().test(0) ? slice
                                                  : tensor::ExtractSliceOp();
}

/// Whether the chain has some of a step's rows, of which a GPU's host does not
/// know the number.
static bool hasSomeRows(Value source) {
  return getRowSlice(source) || getChunkSplit(source);
}

/// Whether what a value in front of the builder comes from is there, and not in
/// a branch or a loop that has made it.
static bool isVisible(OpBuilder &b, Value value) {
  return value.getParentRegion()->isAncestor(b.getBlock()->getParent());
}

/// A number that a GPU's host knows and a rank's rows of chunks are not more
/// than: each request is padded by one row at most, and there is a start more.
static Value createMostOfChunks(OpBuilder &b, Location loc, Value rows,
                                Value starts) {
  if (!isVisible(b, rows) || !isVisible(b, starts))
    return {};
  Value requests = tensor::DimOp::create(b, loc, starts, 0);
  return arith::AddIOp::create(b, loc, rows, requests);
}

static Value createMost(OpBuilder &b, Location loc, OpFoldResult rows);

/// Of the rows of what an op makes.
static Value createMostOf(OpBuilder &b, Location loc, OpResult result) {
  auto most = [&](Value tensor) {
    return createMost(b, loc, getRowCount(tensor));
  };
  unsigned number = result.getResultNumber();
  Operation *op = result.getOwner();
  if (auto split = dyn_cast<ChunkSplitOp>(op))
    return number == 0 ? createMostOfChunks(b, loc, split.getRows(),
                                            split.getQueryStart())
                       : createMost(b, loc, split.getRows());
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    Value open = most(branch.thenYield()->getOperand(number));
    Value closed = most(branch.elseYield()->getOperand(number));
    return open && closed
               ? arith::MaxSIOp::create(b, loc, open, closed).getResult()
               : Value();
  }
  // A loop that fills what it is given.
  auto loop = dyn_cast<scf::ForOp>(op);
  bool isFilled = loop && getRowCount(loop.getYieldedValues()[number]) ==
                              OpFoldResult(loop.getRegionIterArg(number));
  return isFilled ? most(loop.getInitArgs()[number]) : Value();
}

/// What the number of rows is at most, as one that a GPU's host knows; null
/// where nothing says.
static Value createMost(OpBuilder &b, Location loc, OpFoldResult rows) {
  if (std::optional<int64_t> constant = getConstantIntValue(rows))
    return arith::ConstantIndexOp::create(b, loc, *constant);
  auto value = cast<Value>(rows);
  bool isTensor = isa<RankedTensorType>(value.getType());
  if (isHostNumber(rows) && isVisible(b, value))
    return isTensor ? tensor::DimOp::create(b, loc, value, 0).getResult()
                    : value;
  auto result = dyn_cast<OpResult>(value);
  if (!result)
    return {};
  if (isTensor)
    return createMostOf(b, loc, result);
  Operation *op = result.getOwner();
  if (auto count = dyn_cast<CountChunkRowsOp>(op))
    return createMostOfChunks(b, loc, count.getRows(), count.getQueryStart());
  if (auto dim = dyn_cast<tensor::DimOp>(op);
      dim && dim.getConstantIndex() == 0)
    return createMost(b, loc, getRowCount(dim.getSource()));
  if (!isa<arith::AddIOp>(op))
    return {};
  Value one = createMost(b, loc, op->getOperand(0));
  Value other = createMost(b, loc, op->getOperand(1));
  return one && other ? arith::AddIOp::create(b, loc, one, other).getResult()
                      : Value();
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
  if (ChunkSplitOp split = getChunkSplit(source))
    return createMostOfChunks(b, loc, split.getRows(), split.getQueryStart());
  if (slice)
    return tensor::DimOp::create(b, loc, source, 0);
  OpFoldResult rows = getRowCount(source);
  return isHostNumber(rows) ? Value() : createMost(b, loc, rows);
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

/// Rows that a chain has in one turn at most: where ranks have shards, those of
/// each, as inboxes hold a number that all can share.
int64_t Slicer::getTurnRows(const Chain &chain) const {
  // What is planned for chunks of requests.
  if (getLoneGather(chain))
    return getMostChunkRows(bounds.tokens, bounds.requests);
  std::optional<int64_t> shards = getShards(chain);
  return shards ? llvm::divideCeil(bounds.tokens, *shards) : bounds.tokens;
}

/// Rows of the chain's source with which it goes through in one turn.
int64_t Slicer::getSourceRowsThatFit(const Chain &chain) const {
  return getTurnRows(chain) * (getLoneScatter(chain) ? *getShards(chain) : 1);
}

/// Whether the rows are known to fit, by their type, as a slice, by the branch
/// that the op stands in, or as those of chunks.
bool Slicer::fits(const Chain &chain) {
  if (GatherRowsOp gather = getLoneGather(chain);
      gather && isBoundedGather(gather, bounds))
    return true;
  Value source = getRowSource(chain);
  int64_t rows = cast<ShapedType>(source.getType()).getDimSize(0);
  int64_t most = getSourceRowsThatFit(chain);
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
  Value most = arith::ConstantIndexOp::create(builder, loc, getTurnRows(chain));
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
    Value most = arith::ConstantIndexOp::create(builder, loc,
                                                getSourceRowsThatFit(chain));
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
  int64_t most = getTurnRows(chain);
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
       {std::pair<StringRef, int64_t>{"max-tokens", bounds.tokens},
        {"max-requests", bounds.requests}})
    if (value < 1 || value > std::numeric_limits<int32_t>::max())
      return emitError(module.getLoc(), "shardq-slice-steps: ")
             << name << " is " << value << ", expected 1 to 2147483647";
  return success();
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
      << why << ": more than " << getSourceRowsThatFit(chain)
      << " rows are an error at run time";
  return false;
}

/// Whether a gate is among what the value comes from.
static bool comesFromGate(Value value) {
  llvm::SmallPtrSet<Operation *, 8> seen;
  SmallVector<Value> rest{value};
  while (!rest.empty()) {
    Operation *op = rest.pop_back_val().getDefiningOp();
    if (isa_and_present<SplitGateOp, GatherGateOp>(op))
      return true;
    if (op && seen.insert(op).second)
      llvm::append_range(rest, op->getOperands());
  }
  return false;
}

/// Exchanges of which what is planned for decides, and not rows alone, have no
/// turns: gates keep steps from them that do not fit. Passes make none without.
static void remarkOnUngated(ModuleOp module) {
  module.walk([](Operation *op) {
    if (!isa<ExchangeOp, GatherKvStartOp>(op) ||
        (isa<ExchangeOp>(op) && cast<TwoFormOpInterface>(op).isOnBuffers()))
      return;
    for (Operation *inner = op;
         auto branch = inner->getParentOfType<scf::IfOp>(); inner = branch)
      if (branch.getThenRegion().isAncestor(inner->getParentRegion()) &&
          comesFromGate(branch.getCondition()))
        return;
    op->emitRemark("is under no ")
        << (isa<ExchangeOp>(op) ? SplitGateOp::getOperationName()
                                : GatherGateOp::getOperationName())
        << ": a step that does not fit its inbox is an error at run time";
  });
}

LogicalResult Slicer::run() {
  if (failed(verifyOptions()) || failed(verifyInFunctionsOf(module)))
    return failure();
  remarkOnUngated(module);
  boundChunks(module, bounds);
  SmallVector<Chain> chains = findSliceChains(module);
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
