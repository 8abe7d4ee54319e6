//===- ChunkBounds.cpp - Steps whose chunks inboxes do not hold -----------===//
//
// One number says how many leading rows of a step are whole on every rank, and
// whatever divides the step takes it. Where it is the number of all rows there
// are no chunks, and a gate that asks for chunks is closed. So a comparison in
// front of all that is the whole bound.
//
//===----------------------------------------------------------------------===//

#include "ChunkBounds.h"
#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Dominance.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::shardq;

bool shardq::takesWholeRows(Operation *op, Value wholeRows) {
  if (auto count = dyn_cast<CountChunkRowsOp>(op))
    return count.getDecodes() == wholeRows;
  if (auto split = dyn_cast<ChunkSplitOp>(op))
    return split.getDecodes() == wholeRows;
  if (auto lengths = dyn_cast<ChunkLengthsOp>(op))
    return lengths.getDecodes() == wholeRows;
  auto slots = dyn_cast<ChunkSlotsOp>(op);
  return slots && slots.getDecodes() == wholeRows;
}

//===----------------------------------------------------------------------===//
// Gathers of chunks
//===----------------------------------------------------------------------===//

/// Whether the op is given the step of the split, and as many whole rows.
template <typename OpTy> static bool isOfSameStep(OpTy op, ChunkSplitOp split) {
  return op.getQueryStart() == split.getQueryStart() &&
         op.getDecodes() == split.getDecodes() &&
         op.getRows() == split.getRows();
}

/// What counts rows of chunks, where that is what the number of rows is.
static CountChunkRowsOp getCount(OpFoldResult rows) {
  auto value = dyn_cast<Value>(rows);
  auto dim = value ? value.getDefiningOp<tensor::DimOp>() : tensor::DimOp();
  if (dim && dim.getConstantIndex() == 0)
    value = dyn_cast<Value>(getRowCount(dim.getSource()));
  return value ? value.getDefiningOp<CountChunkRowsOp>() : CountChunkRowsOp();
}

/// The split into the chunks that are counted.
static ChunkSplitOp getSplit(CountChunkRowsOp count) {
  for (Operation *user : count.getDecodes().getUsers())
    if (auto split = dyn_cast<ChunkSplitOp>(user);
        split && isOfSameStep(count, split))
      return split;
  return {};
}

static ChunkSplitOp findChunks(OpFoldResult rows);

/// Of what has the rows of the op's result.
static ChunkSplitOp findChunksOf(OpResult result) {
  unsigned number = result.getResultNumber();
  Operation *op = result.getOwner();
  // What is back in order has all rows of the step.
  if (auto split = dyn_cast<ChunkSplitOp>(op))
    return number == 0 ? split : ChunkSplitOp();
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    auto find = [&](scf::YieldOp yield) {
      return findChunks(getRowCount(yield->getOperand(number)));
    };
    ChunkSplitOp open = find(branch.thenYield());
    return open == find(branch.elseYield()) ? open : ChunkSplitOp();
  }
  // A loop over slices puts together as many as it is given room for.
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    bool isFilled = getRowCount(loop.getYieldedValues()[number]) ==
                    OpFoldResult(loop.getRegionIterArg(number));
    return isFilled ? findChunks(getRowCount(loop.getInitArgs()[number]))
                    : ChunkSplitOp();
  }
  auto merge = dyn_cast<CombineLseOp>(op);
  bool keepsRows = isa<GatherQueryOp, ReduceHeadsOp>(op) ||
                   (merge && !merge.getScatterTokens());
  return keepsRows ? findChunks(getRowCount(op->getOperand(0)))
                   : ChunkSplitOp();
}

/// The split of whose chunks there are so many rows in this rank, or fewer;
/// null where that does not follow from what made them.
static ChunkSplitOp findChunks(OpFoldResult rows) {
  auto value = dyn_cast<Value>(rows);
  auto result = dyn_cast_if_present<OpResult>(value);
  if (!result)
    return {};
  if (isa<RankedTensorType>(value.getType()))
    return findChunksOf(result);
  if (CountChunkRowsOp count = getCount(rows))
    return getSplit(count);
  // Both calls, of heads and of tails.
  auto sum = value.getDefiningOp<arith::AddIOp>();
  CountChunkRowsOp one = sum ? getCount(sum.getLhs()) : CountChunkRowsOp();
  CountChunkRowsOp other = sum ? getCount(sum.getRhs()) : CountChunkRowsOp();
  bool areParts = one && other && one.getPart() != ChunkPart::All &&
                  other.getPart() != ChunkPart::All &&
                  one.getPart() != other.getPart();
  ChunkSplitOp split = areParts ? getSplit(one) : ChunkSplitOp();
  return split && isOfSameStep(other, split) ? split : ChunkSplitOp();
}

/// Whether the branch is for steps that the split has chunks of.
static bool asksForChunks(scf::IfOp branch, ChunkSplitOp split) {
  auto compare = branch.getCondition().getDefiningOp<arith::CmpIOp>();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::sgt ||
      !isConstantIntValue(compare.getRhs(), 0))
    return false;
  auto count = compare.getLhs().getDefiningOp<CountChunkRowsOp>();
  return count && count.getPart() == ChunkPart::Tail &&
         isOfSameStep(count, split);
}

/// The split whose chunks are gathered, in steps that have some alone; null for
/// other gathers.
static ChunkSplitOp getGatedSplit(GatherRowsOp gather) {
  if (gather.isOnBuffers() || gather.getTokenShards())
    return {};
  ChunkSplitOp split = findChunks(getRowCount(gather->getOperand(0)));
  if (!split)
    return {};
  Operation *op = gather;
  while (auto branch = op->getParentOfType<scf::IfOp>()) {
    if (branch.getThenRegion().isAncestor(op->getParentRegion()) &&
        asksForChunks(branch, split))
      return split;
    op = branch;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// The bound
//===----------------------------------------------------------------------===//

/// The other operand of the op, where the value is one; null otherwise.
template <typename OpTy> static Value getOtherOperand(Value result, Value one) {
  auto op = result.getDefiningOp<OpTy>();
  if (!op)
    return {};
  return op.getLhs() == one   ? op.getRhs()
         : op.getRhs() == one ? op.getLhs()
                              : Value();
}

/// Whether the number is that of the step's requests: there is a start more.
static bool isOfRequests(Value number, ChunkSplitOp split) {
  OpFoldResult starts = getRowCount(split.getQueryStart());
  if (std::optional<int64_t> constant = getConstantIntValue(starts))
    return isConstantIntValue(number, *constant - 1);
  // The second form is the first one's when it is canonical.
  auto less = number.getDefiningOp<arith::SubIOp>();
  auto sum = number.getDefiningOp<arith::AddIOp>();
  Value from = less && isConstantIntValue(less.getRhs(), 1)  ? less.getLhs()
               : sum && isConstantIntValue(sum.getRhs(), -1) ? sum.getLhs()
                                                             : Value();
  auto dim = from ? from.getDefiningOp<tensor::DimOp>() : tensor::DimOp();
  if (dim && dim.getConstantIndex() == 0)
    return getRowCount(dim.getSource()) == starts;
  return from && OpFoldResult(from) == starts;
}

/// Whether the number is the rows and one more of each request that has some,
/// of which there are no more than rows.
static bool isOfPaddedRows(Value number, ChunkSplitOp split) {
  Value rows = split.getRows();
  Value padding = getOtherOperand<arith::AddIOp>(number, rows);
  Value requests =
      padding ? getOtherOperand<arith::MinSIOp>(padding, rows) : Value();
  return requests && isOfRequests(requests, split);
}

static Value createPaddedRows(OpBuilder &b, Location loc, ChunkSplitOp split) {
  Value rows = split.getRows(), starts = split.getQueryStart(), requests;
  if (std::optional<int64_t> known = getConstantIntValue(getRowCount(starts)))
    requests = arith::ConstantIndexOp::create(b, loc, *known - 1);
  else
    requests =
        arith::SubIOp::create(b, loc, tensor::DimOp::create(b, loc, starts, 0),
                              arith::ConstantIndexOp::create(b, loc, 1));
  Value padding = arith::MinSIOp::create(b, loc, rows, requests);
  return arith::AddIOp::create(b, loc, rows, padding);
}

namespace {
/// What a step is known not to be larger than, where it has chunks.
struct KnownBounds {
  bool rows = false, paddedRows = false;
};
} // namespace

/// What follows from the condition's not holding.
static void addBounds(Value condition, ChunkSplitOp split,
                      const StepBounds &bounds, KnownBounds &known) {
  if (auto either = condition.getDefiningOp<arith::OrIOp>()) {
    addBounds(either.getLhs(), split, bounds, known);
    addBounds(either.getRhs(), split, bounds, known);
    return;
  }
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::sgt)
    return;
  std::optional<int64_t> most = getConstantIntValue(compare.getRhs());
  if (!most)
    return;
  int64_t padded = getMostChunkRows(bounds.tokens, bounds.requests);
  known.rows |= compare.getLhs() == split.getRows() && *most <= bounds.tokens;
  known.paddedRows |=
      isOfPaddedRows(compare.getLhs(), split) && *most <= padded;
}

/// What is chosen for the whole rows says, and what is constant.
static KnownBounds getKnownBounds(ChunkSplitOp split,
                                  const StepBounds &bounds) {
  KnownBounds known;
  if (split.getDecodes() == split.getRows())
    return {true, true}; // there are no chunks
  int64_t padded = getMostChunkRows(bounds.tokens, bounds.requests);
  if (std::optional<int64_t> rows = getConstantIntValue(split.getRows()))
    known.rows = *rows <= bounds.tokens;
  int64_t rows = getConstantIntValue(split.getRows()).value_or(bounds.tokens);
  int64_t requests = rows;
  if (std::optional<int64_t> starts =
          getConstantIntValue(getRowCount(split.getQueryStart())))
    requests = std::min(requests, *starts - 1);
  known.paddedRows = rows + requests <= padded;
  for (Value whole = split.getDecodes();
       auto chosen = whole.getDefiningOp<arith::SelectOp>();) {
    if (chosen.getTrueValue() == split.getRows()) {
      addBounds(chosen.getCondition(), split, bounds, known);
      whole = chosen.getFalseValue();
    } else if (chosen.getFalseValue() == split.getRows()) {
      // By whether keys fit.
      whole = chosen.getTrueValue();
    } else {
      break;
    }
  }
  return known;
}

/// Whether the step is larger than inboxes hold; null where it is known to fit.
static Value createIsTooLarge(OpBuilder &b, Location loc, ChunkSplitOp split,
                              const StepBounds &bounds) {
  KnownBounds known = getKnownBounds(split, bounds);
  auto isMore = [&](Value size, int64_t most) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, size,
                                 arith::ConstantIndexOp::create(b, loc, most));
  };
  Value isTooLarge;
  if (!known.rows)
    isTooLarge = isMore(split.getRows(), bounds.tokens);
  if (known.paddedRows)
    return isTooLarge;
  Value hasMore = isMore(createPaddedRows(b, loc, split),
                         getMostChunkRows(bounds.tokens, bounds.requests));
  if (!isTooLarge)
    return hasMore;
  return arith::OrIOp::create(b, loc, isTooLarge, hasMore);
}

/// Of what the split is given, what is there last.
static Value getLatestOperand(ChunkSplitOp split, DominanceInfo &dominance) {
  Value latest = split.getDecodes();
  for (Value value : {Value(split.getRows()), Value(split.getQueryStart())}) {
    Operation *at = latest.getDefiningOp();
    if (!at)
      at = &latest.getParentBlock()->front();
    if (!dominance.properlyDominates(value, at))
      latest = value;
  }
  return latest;
}

/// Whether the op divides the step of the split.
static bool divides(Operation *op, ChunkSplitOp split) {
  return TypeSwitch<Operation *, bool>(op)
      .Case<CountChunkRowsOp, ChunkSplitOp, ChunkLengthsOp>(
          [&](auto other) { return isOfSameStep(other, split); })
      .Case<ChunkSlotsOp>([&](auto slots) {
        return slots.getQueryStart() == split.getQueryStart();
      })
      .Default(false);
}

/// Nothing is changed where something else takes the same number.
static void boundSplit(ChunkSplitOp split, const StepBounds &bounds,
                       DominanceInfo &dominance) {
  Value wholeRows = split.getDecodes();
  OpBuilder builder(split.getContext());
  builder.setInsertionPointAfterValue(getLatestOperand(split, dominance));
  Operation *place = &*builder.getInsertionPoint();
  for (Operation *user : wholeRows.getUsers())
    if (takesWholeRows(user, wholeRows) &&
        (!divides(user, split) || !dominance.dominates(place, user)))
      return;
  Value isTooLarge = createIsTooLarge(builder, split.getLoc(), split, bounds);
  if (!isTooLarge)
    return;
  Value chosen = arith::SelectOp::create(builder, split.getLoc(), isTooLarge,
                                         split.getRows(), wholeRows);
  wholeRows.replaceUsesWithIf(chosen, [&](OpOperand &use) {
    return takesWholeRows(use.getOwner(), wholeRows);
  });
}

void shardq::boundChunks(ModuleOp module, const StepBounds &bounds) {
  llvm::SetVector<Operation *> splits;
  module.walk([&](GatherRowsOp gather) {
    if (ChunkSplitOp split = getGatedSplit(gather))
      splits.insert(split);
  });
  DominanceInfo dominance(module);
  for (Operation *split : splits)
    boundSplit(cast<ChunkSplitOp>(split), bounds, dominance);
}

bool shardq::isBoundedGather(GatherRowsOp gather, const StepBounds &bounds) {
  ChunkSplitOp split = getGatedSplit(gather);
  if (!split)
    return false;
  KnownBounds known = getKnownBounds(split, bounds);
  return known.rows && known.paddedRows;
}
