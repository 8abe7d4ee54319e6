//===- ShardQTokens.cpp - Head shards to zigzag token shards --------------===//
//
// Versions each head-sharded attention, with the index ops that feed it, under
// the split's gate. The words used here:
//
//   step     what one expand_rows describes; has one split, and one gate for
//            each top-k width
//   index op indexer, topk, convert_indices, gathered_slots: works on rows, so
//            it can run on this rank's rows alone
//   local    a value that holds, where the gate is open, the rows `mine` of
//            what it replaces, and all rows where it is closed
//
//===----------------------------------------------------------------------===//

#include "IndexProducers.h"
#include "OwnKeys.h"
#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQTOKENS
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// The decision for one top-k width, and what is versioned under it outside
/// the attentions' branches.
struct Gate {
  SplitGateOp op;
  llvm::DenseMap<Value, Value> locals;
};

/// The values that every attention of a step over one mesh shares.
struct Step {
  Value rows, decodes, ids, offsets, mine;
  /// Request and visible length of the own rows, whatever the gate says.
  llvm::DenseMap<Value, Value> locals;
  /// By top-k width.
  llvm::SmallDenseMap<int64_t, Gate> gates;
};

/// An attention that can be rewritten.
struct Candidate {
  SparseMlaOp op;
  ExpandRowsOp expand;
  FlatSymbolRefAttr mesh;
  int64_t ranks;
  int64_t topk;
};

/// The operation in a split gate's branch was versioned by an earlier run.
bool isVersioned(Operation *op) {
  for (auto branch = op->getParentOfType<scf::IfOp>(); branch;
       branch = branch->getParentOfType<scf::IfOp>())
    if (branch.getCondition().getDefiningOp<SplitGateOp>())
      return true;
  return false;
}

bool haveOneGate(const Candidate &a, const Candidate &b) {
  return a.expand == b.expand && a.mesh == b.mesh && a.topk == b.topk;
}

/// Rewrites one function.
class FunctionRewriter {
public:
  FunctionRewriter(FunctionOpInterface function, StringRef axis,
                   int64_t minTokens, DecodeRows decodeRows, bool remarks)
      : function(function), axis(axis), minTokens(minTokens),
        combinesDecodeRows(decodeRows == DecodeRows::Combine), remarks(remarks),
        builder(function.getContext()), dominance(function) {}

  void run();

private:
  // Analysis.
  std::optional<Candidate> match(SparseMlaOp op, std::string &reason);
  void collectIndexOps();
  void chooseOwners();

  // Emission.
  Step &getStep(const Candidate &candidate);
  Gate &getGate(const Candidate &candidate);
  Value getLocal(Value value, const Candidate &candidate, IRMapping &inBranch);
  bool isTakenTwice(Value value, const Candidate &candidate);
  bool setInsertionPointForShared(Value value, const Candidate &candidate);
  Value takeShared(Value value, const Candidate &candidate);
  void cloneOnMyRows(Operation *indexOp, const Candidate &candidate,
                     IRMapping &inBranch);
  void cloneWithTaps(Operation *indexOp, IRMapping &inBranch);
  void versionShared(Operation *indexOp, const Candidate &candidate);
  void version(const Candidate &candidate);
  std::optional<OwnKeys> findOwnKeys(SparseMlaOp op, GatherKvFinishOp gather);
  SmallVector<Value> emitTokenSharded(const Candidate &candidate,
                                      GatherKvFinishOp gather,
                                      ArrayRef<unsigned> results);

  FunctionOpInterface function;
  StringRef axis;
  int64_t minTokens;
  bool combinesDecodeRows;
  bool remarks;
  OpBuilder builder;
  DominanceInfo dominance;

  SmallVector<Candidate> candidates;
  llvm::DenseMap<Operation *, unsigned> candidateOf;
  /// Index ops that run on local rows, in program order, each with the
  /// candidate whose branch it moves into, or none where several share it.
  llvm::MapVector<Operation *, std::optional<unsigned>> indexOps;
  /// A candidate that an index op feeds.
  llvm::DenseMap<Operation *, unsigned> anyCandidate;
  llvm::DenseMap<std::pair<Operation *, Attribute>, Step> steps;
  StepLists lists;
  /// Gathers that have moved into the branches of what attends their keys.
  SmallVector<GatherKvFinishOp> gathers;
};

} // namespace

//===----------------------------------------------------------------------===//
// Analysis
//===----------------------------------------------------------------------===//

std::optional<Candidate> FunctionRewriter::match(SparseMlaOp op,
                                                 std::string &reason) {
  llvm::raw_string_ostream why(reason);
  ShardingAttr sharding = op.getShardingAttr();
  if (!sharding || !sharding.isOverHeads()) {
    why << "its heads are not sharded";
    return std::nullopt;
  }
  if (op.isOnBuffers()) {
    why << "it is on buffers";
    return std::nullopt;
  }
  if (getNumKvRanks(op, sharding) > 1) {
    why << "its KV is sharded, which is for --shardq-dcp, and token shards "
           "need all of it";
    return std::nullopt;
  }
  if (sharding.getAxes().size() != 1 || sharding.getAxes()[0] != axis) {
    why << "its heads are not sharded over axis \"" << axis << "\" alone";
    return std::nullopt;
  }
  MeshAxis over = lookupMeshAxis(op, sharding.getMesh(), axis);
  if (!over || over.axis.getSize() == 1) {
    why << "axis \"" << axis << "\" has one rank";
    return std::nullopt;
  }
  if (op->use_empty()) {
    why << "its results are not used";
    return std::nullopt;
  }
  int64_t ranks = over.axis.getSize();
  if (op.getSink()) {
    int64_t sinks = cast<ShapedType>(op.getSink().getType()).getDimSize(0);
    int64_t all = op.getNumHeads() * ranks;
    if (sinks != all) {
      why << "its sink holds this rank's " << op.getNumHeads()
          << " heads, and token shards need all " << all;
      return std::nullopt;
    }
  }
  if (op.getOutType(0).getDimSize(0) == 0) {
    why << "it has no rows";
    return std::nullopt;
  }
  int64_t topk = cast<ShapedType>(op.getSlots().getType()).getDimSize(1);
  if (ShapedType::isDynamic(topk)) {
    why << "the width of its slots is dynamic, and the gate needs the top-k";
    return std::nullopt;
  }
  StringRef noStep;
  ExpandRowsOp expand = findExpandRows(op, noStep);
  if (!expand) {
    why << noStep;
    return std::nullopt;
  }
  auto isSplit = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == &function.front() &&
           function.getArgAttr(argument.getArgNumber(), kSplitAttrName);
  };
  if (isSplit(expand.getQueryStart()) || isSplit(expand.getSeqLens())) {
    why << "its step is not the same on every rank";
    return std::nullopt;
  }
  int64_t stepRows = expand.getOutType(0).getDimSize(0);
  int64_t rows = op.getOutType(0).getDimSize(0);
  if (!ShapedType::isDynamic(stepRows) && !ShapedType::isDynamic(rows) &&
      stepRows != rows) {
    why << "it has " << rows << " rows, and its step " << stepRows;
    return std::nullopt;
  }
  return Candidate{op, expand, sharding.getMesh(), ranks, topk};
}

/// Finds the index ops that only feed candidates of one gate (and taps). One
/// with another use keeps running on all rows, and its results are taken by
/// rows like an argument.
void FunctionRewriter::collectIndexOps() {
  llvm::SetVector<Operation *> all;
  for (auto [number, candidate] : llvm::enumerate(candidates)) {
    for (Operation *producer : getIndexProducers(candidate.op))
      if (isIndexOp(producer)) {
        all.insert(producer);
        anyCandidate.try_emplace(producer, number);
      }
  }
  auto getUserCandidate = [&](Operation *user) {
    return candidateOf.contains(user) ? candidateOf.lookup(user)
                                      : anyCandidate.lookup(user);
  };
  auto sameGate = [&](Operation *user, Operation *op) {
    return haveOneGate(candidates[getUserCandidate(user)],
                       candidates[anyCandidate.lookup(op)]);
  };
  auto isLocalUse = [&](OpOperand &use, Operation *op) {
    Operation *user = use.getOwner();
    if (auto tap = dyn_cast<TapOp>(user))
      return !tap.getRows() && tap->getBlock() == op->getBlock();
    return (candidateOf.contains(user) || all.contains(user)) &&
           cast<RowWiseOpInterface>(user).isRowOperand(use) &&
           sameGate(user, op);
  };
  bool changed = true;
  while (changed) {
    changed = all.remove_if([&](Operation *op) {
      // The gate stands behind the step's expand_rows.
      ExpandRowsOp expand = candidates[anyCandidate.lookup(op)].expand;
      return !dominance.properlyDominates(expand.getOperation(), op) ||
             !llvm::all_of(op->getUses(),
                           [&](OpOperand &use) { return isLocalUse(use, op); });
    });
  }
  function.walk([&](Operation *op) {
    if (all.contains(op))
      indexOps[op] = std::nullopt;
  });
}

/// An index op moves into the branch of the one attention that it feeds, if
/// they stand in one block; in a loop it would otherwise run each time.
void FunctionRewriter::chooseOwners() {
  for (auto &[op, owner] : llvm::reverse(indexOps)) {
    bool first = true;
    for (Operation *user : op->getUsers()) {
      if (isa<TapOp>(user))
        continue;
      std::optional<unsigned> of;
      if (candidateOf.contains(user))
        of = candidateOf.lookup(user);
      else
        of = indexOps.find(user)->second;
      if (of && candidates[*of].op->getBlock() != op->getBlock())
        of = std::nullopt;
      if (first)
        owner = of;
      else if (owner != of)
        owner = std::nullopt;
      first = false;
    }
  }
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

Step &FunctionRewriter::getStep(const Candidate &candidate) {
  ExpandRowsOp expand = candidate.expand;
  auto [entry, isNew] =
      steps.try_emplace({expand.getOperation(), candidate.mesh});
  Step &step = entry->second;
  if (!isNew)
    return step;

  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfter(expand);
  Location loc = expand.getLoc();
  StringAttr axisAttr = builder.getStringAttr(axis);
  Type i32 = builder.getI32Type();
  Type rowIds =
      RankedTensorType::get({expand.getOutType(0).getDimSize(0)}, i32);
  step.rows = expand.getRows();
  step.decodes = CountDecodeRowsOp::create(builder, loc, builder.getIndexType(),
                                           expand.getQueryStart(),
                                           expand.getSpeculativeTokensAttr());
  auto split = ZigzagSplitOp::create(
      builder, loc,
      TypeRange{rowIds, RankedTensorType::get({candidate.ranks + 1}, i32)},
      expand.getQueryStart(), step.decodes, step.rows, ValueRange{},
      candidate.mesh, axisAttr);
  step.ids = split.getResult(0);
  step.offsets = split.getResult(1);
  step.mine = LocalRowsOp::create(
                  builder, loc,
                  TypeRange{RankedTensorType::get({ShapedType::kDynamic}, i32)},
                  step.ids, step.offsets, step.decodes, ValueRange{},
                  candidate.mesh, axisAttr)
                  .getResult(0);
  // Request and visible length of the own rows serve every layer.
  for (Value perRow : expand->getResults())
    if (!perRow.use_empty())
      step.locals[perRow] =
          TakeRowsOp::create(builder, loc,
                             TypeRange{withDynamicRows(perRow.getType())},
                             perRow, step.mine, ValueRange{})
              .getResult(0);
  return step;
}

Gate &FunctionRewriter::getGate(const Candidate &candidate) {
  Step &step = getStep(candidate);
  Gate &gate = step.gates[candidate.topk];
  if (gate.op)
    return gate;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfterValue(step.mine);
  ExpandRowsOp expand = candidate.expand;
  gate.op = SplitGateOp::create(
      builder, expand.getLoc(), builder.getI1Type(), step.offsets,
      expand.getQueryStart(), expand.getSeqLens(), step.decodes, step.rows,
      builder.getI64IntegerAttr(minTokens),
      builder.getI64IntegerAttr(candidate.topk), IntegerAttr(), IntegerAttr());
  return gate;
}

/// Several ops under the candidate's gate take rows of the value.
bool FunctionRewriter::isTakenTwice(Value value, const Candidate &candidate) {
  return llvm::count_if(value.getUses(), [&](OpOperand &use) {
           Operation *user = use.getOwner();
           unsigned of;
           if (candidateOf.contains(user))
             of = candidateOf.lookup(user);
           else if (indexOps.contains(user))
             of = anyCandidate.lookup(user);
           else
             return false;
           return cast<RowWiseOpInterface>(user).isRowOperand(use) &&
                  haveOneGate(candidates[of], candidate);
         }) > 1;
}

/// Behind the value and its gate, where every user of both can see the result;
/// false where there is no such place.
bool FunctionRewriter::setInsertionPointForShared(Value value,
                                                  const Candidate &candidate) {
  SplitGateOp gate = getGate(candidate).op;
  if (dominance.properlyDominates(value, gate.getOperation())) {
    builder.setInsertionPointAfter(gate);
    return true;
  }
  Operation *producer = value.getDefiningOp();
  if (!producer || !dominance.properlyDominates(gate.getOperation(), producer))
    return false;
  builder.setInsertionPointAfter(producer);
  return true;
}

/// `scf.if %gate { take_rows %value } else { %value }`, once for all layers
/// that use the value, where the builder stands.
Value FunctionRewriter::takeShared(Value value, const Candidate &candidate) {
  Gate &gate = getGate(candidate);
  Value mine = getStep(candidate).mine;
  Location loc = value.getLoc();
  Type type = withDynamicRows(value.getType());
  auto branch = scf::IfOp::create(
      builder, loc, gate.op.getResult(),
      [&](OpBuilder &b, Location l) {
        Value taken =
            TakeRowsOp::create(b, l, TypeRange{type}, value, mine, ValueRange{})
                .getResult(0);
        scf::YieldOp::create(b, l, taken);
      },
      [&](OpBuilder &b, Location l) {
        scf::YieldOp::create(b, l, castTo(b, l, value, type));
      });
  return gate.locals[value] = branch.getResult(0);
}

Value FunctionRewriter::getLocal(Value value, const Candidate &candidate,
                                 IRMapping &inBranch) {
  if (Value mapped = inBranch.lookupOrNull(value))
    return mapped;
  if (Value local = getStep(candidate).locals.lookup(value))
    return local;
  if (Value local = getGate(candidate).locals.lookup(value))
    return local;
  // A row operand from elsewhere: taken once where several ops use it.
  if (isTakenTwice(value, candidate)) {
    OpBuilder::InsertionGuard guard(builder);
    if (setInsertionPointForShared(value, candidate))
      return takeShared(value, candidate);
  }
  Value taken = TakeRowsOp::create(builder, value.getLoc(),
                                   TypeRange{withDynamicRows(value.getType())},
                                   value, getStep(candidate).mine, ValueRange{})
                    .getResult(0);
  inBranch.map(value, taken);
  return taken;
}

/// Clones an index op to run on this rank's rows.
void FunctionRewriter::cloneOnMyRows(Operation *indexOp,
                                     const Candidate &candidate,
                                     IRMapping &inBranch) {
  Operation *clone =
      cloneOnRows(builder, indexOp, getStep(candidate).mine, [&](Value value) {
        return getLocal(value, candidate, inBranch);
      });
  inBranch.map(indexOp->getResults(), clone->getResults());
}

/// Clones an index op and the taps of its results unchanged.
void FunctionRewriter::cloneWithTaps(Operation *indexOp, IRMapping &inBranch) {
  builder.clone(*indexOp, inBranch);
  for (Operation *user : indexOp->getUsers())
    if (isa<TapOp>(user))
      builder.clone(*user, inBranch);
}

/// Maps the shared locals among `op`'s operands back to their own types, for
/// the closed branch.
static void mapSharedBack(OpBuilder &builder, Operation *op,
                          const llvm::DenseMap<Value, Value> &versioned,
                          IRMapping &inBranch) {
  for (Value operand : op->getOperands())
    if (Value local = versioned.lookup(operand))
      if (!inBranch.contains(operand))
        inBranch.map(operand,
                     castTo(builder, op->getLoc(), local, operand.getType()));
}

void FunctionRewriter::versionShared(Operation *indexOp,
                                     const Candidate &candidate) {
  Gate &gate = getGate(candidate);
  builder.setInsertionPointAfter(indexOp);
  lists.expect(indexOp, candidate.expand);
  // Operands that were versioned must be mapped back; expand_rows and taken
  // arguments still exist with all rows.
  llvm::DenseMap<Value, Value> versioned;
  for (Value operand : indexOp->getOperands())
    if (indexOps.contains(operand.getDefiningOp()))
      versioned[operand] = gate.locals.lookup(operand);
  SmallVector<Type> types;
  for (Type type : indexOp->getResultTypes())
    types.push_back(withDynamicRows(type));
  auto branch = scf::IfOp::create(builder, indexOp->getLoc(), types,
                                  gate.op.getResult(), /*withElseRegion=*/true);
  auto yieldAll = [&](IRMapping &inBranch) {
    SmallVector<Value> yields;
    for (auto [result, type] : llvm::zip_equal(indexOp->getResults(), types))
      yields.push_back(
          castTo(builder, indexOp->getLoc(), inBranch.lookup(result), type));
    scf::YieldOp::create(builder, indexOp->getLoc(), yields);
  };
  IRMapping open, closed;
  builder.setInsertionPointToStart(branch.thenBlock());
  cloneOnMyRows(indexOp, candidate, open);
  yieldAll(open);
  builder.setInsertionPointToStart(branch.elseBlock());
  mapSharedBack(builder, indexOp, versioned, closed);
  cloneWithTaps(indexOp, closed);
  yieldAll(closed);
  for (auto [result, local] :
       llvm::zip_equal(indexOp->getResults(), branch.getResults()))
    gate.locals[result] = local;
}

/// The gather of the op's keys, where both its parts can move into branches of
/// the op: it then overlaps with what stands there, and ends behind the
/// exchange of queries, before which the inbox could not be read in place.
static GatherKvFinishOp findOwnGather(SparseMlaOp op) {
  auto finish = op.getKv().getDefiningOp<GatherKvFinishOp>();
  if (!finish || finish->getBlock() != op->getBlock() || !finish->hasOneUse())
    return {};
  for (Operation *between = finish->getNextNode(); between != op;
       between = between->getNextNode()) {
    WalkResult walk = between->walk([](Operation *inner) {
      return isa<CollectiveOpInterface, GatherKvStartOp, CallOpInterface>(inner)
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return {};
  }
  return finish;
}

static GatheredSlotsOp getGatheredSlots(SparseMlaOp op) {
  return lookThroughCasts(op.getSlots()).getDefiningOp<GatheredSlotsOp>();
}

/// Whether the op's lengths count the slots that are there.
static bool isCountOf(SparseMlaOp op, GatheredSlotsOp slots) {
  return slots.getNumOuts() == 2 &&
         lookThroughCasts(op.getTopkLength()) == slots->getResult(1);
}

/// What this rank keeps of the keys that are gathered, where decode rows are to
/// attend that.
std::optional<OwnKeys> FunctionRewriter::findOwnKeys(SparseMlaOp op,
                                                     GatherKvFinishOp gather) {
  if (!combinesDecodeRows || !gather)
    return std::nullopt;
  GatherKvStartOp start = gather.getStart();
  auto blocks = start.getBlocks().getDefiningOp<GatherBlocksOp>();
  GatheredSlotsOp slots = getGatheredSlots(op);
  if (!blocks || !slots || slots.getInverse() != blocks.getResult(1) ||
      start.getSources().size() != 1)
    return std::nullopt;
  return OwnKeys{start.getSources().front(),
                 blocks.getTable(),
                 blocks.getMeshAttr(),
                 blocks.getAxisAttr(),
                 KvMembers(op, blocks.getAxisAttr()),
                 blocks.getInterleaveAttr(),
                 blocks.getBlockSizeAttr(),
                 start.getBlockStrideRowsAttr()};
}

/// The open branch: returns the values of the chosen results.
SmallVector<Value>
FunctionRewriter::emitTokenSharded(const Candidate &candidate,
                                   GatherKvFinishOp gather,
                                   ArrayRef<unsigned> results) {
  SparseMlaOp op = candidate.op;
  Step &step = getStep(candidate);
  Location loc = op.getLoc();
  StringAttr axisAttr = builder.getStringAttr(axis);
  auto direction = [&](Direction value) {
    return DirectionAttr::get(builder.getContext(), value);
  };
  IRMapping inBranch;
  if (gather)
    builder.clone(*gather.getStart(), inBranch);
  for (auto &[indexOp, owner] : indexOps)
    if (owner && candidates[*owner].op == op)
      cloneOnMyRows(indexOp, candidate, inBranch);

  Value localRows = tensor::DimOp::create(builder, loc, step.mine, 0);
  Value prefillRows =
      arith::SubIOp::create(builder, loc, localRows, step.decodes);
  OpFoldResult zero = builder.getIndexAttr(0);

  // Two attentions: own prefill rows with all heads, decode rows with own
  // heads. Each takes its part of the local index rows.
  struct Part {
    SmallVector<Value> q;
    Value slots, req, topkLength;
  } prefill, decode;
  auto slice = [&](Value value, Value &ofPrefill, Value &ofDecode) {
    if (!value)
      return;
    Value local = getLocal(value, candidate, inBranch);
    ofPrefill = sliceRows(builder, loc, local, step.decodes, prefillRows);
    ofDecode = sliceRows(builder, loc, local, zero, step.decodes);
  };
  slice(op.getSlots(), prefill.slots, decode.slots);
  slice(op.getReq(), prefill.req, decode.req);
  slice(op.getTopkLength(), prefill.topkLength, decode.topkLength);
  for (Value part : op.getQ())
    decode.q.push_back(sliceRows(builder, loc, part, zero, step.decodes));
  bool needsLse = llvm::is_contained(results, 1u);
  // Before queries arrive, whose inbox is then read in place.
  SmallVector<Value> combined;
  if (std::optional<OwnKeys> keys = findOwnKeys(op, gather)) {
    auto slots = getGatheredSlots(op);
    auto take = [&](Value value) {
      return sliceRows(builder, loc, getLocal(value, candidate, inBranch), zero,
                       step.decodes);
    };
    bool isCompacted = !decode.topkLength || isCountOf(op, slots);
    FilterIndicesOp filter = filterToOwnKeys(
        builder, loc, *keys, take(slots.getIndices()), take(slots.getReq()),
        withDynamicRows(op.getSlots().getType()), isCompacted);
    combined = attendOwnKeys(
        builder, op, *keys,
        {decode.q, decode.req, isCompacted ? Value() : decode.topkLength},
        filter, needsLse);
  }

  int64_t heads = op.getNumHeads() * candidate.ranks;
  ShapedType out = op.getOutType(0);
  Type element = out.getElementType();
  int64_t dynamic = ShapedType::kDynamic;
  Value q = ExchangeOp::create(
                builder, loc,
                TypeRange{RankedTensorType::get(
                    {dynamic, heads, op.getQueryDim()}, element)},
                direction(Direction::HeadsToTokens), op.getQ(), step.ids,
                step.offsets, step.decodes, Value(), ValueRange{},
                candidate.mesh, axisAttr, TransportAttr())
                .getResult(0);
  prefill.q.push_back(q);
  Value kv = op.getKv();
  if (gather)
    kv = builder.clone(*gather, inBranch)->getResult(0);

  auto attend = [&](Part &part, int64_t numHeads, ShardingAttr sharding) {
    SmallVector<Type> types{
        RankedTensorType::get({dynamic, numHeads, op.getValueDim()}, element)};
    if (needsLse)
      types.push_back(
          RankedTensorType::get({dynamic, numHeads}, builder.getF32Type()));
    return SparseMlaOp::create(builder, loc, types, part.q, kv, part.slots,
                               part.req, part.topkLength, op.getSink(),
                               ValueRange{}, op.getScaleAttr(), sharding,
                               op.getLseAttr(), op.getKvFormatAttr());
  };
  auto overTokens = ShardingAttr::get(builder.getContext(), candidate.mesh, {},
                                      TokenOrder::Zigzag, {axisAttr});
  SparseMlaOp ofPrefill = attend(prefill, heads, overTokens);
  if (combined.empty()) {
    SparseMlaOp ofDecode =
        attend(decode, op.getNumHeads(), op.getShardingAttr());
    llvm::append_range(combined, ofDecode->getResults());
  }

  SmallVector<Value> values;
  // Also where its type says how many rows the step has: those may be more than
  // an inbox holds, and then the gate is closed.
  for (unsigned number : results) {
    Type type = op->getResult(number).getType();
    auto exchange = ExchangeOp::create(
        builder, loc, TypeRange{withDynamicRows(type)},
        direction(Direction::TokensToHeads),
        ValueRange{ofPrefill->getResult(number)}, step.ids, step.offsets,
        step.decodes, combined[number], ValueRange{}, candidate.mesh, axisAttr,
        TransportAttr());
    values.push_back(castTo(builder, loc, exchange.getResult(0), type));
  }
  return values;
}

void FunctionRewriter::version(const Candidate &candidate) {
  SparseMlaOp op = candidate.op;
  Gate &gate = getGate(candidate);
  GatherKvFinishOp gather = findOwnGather(op);
  if (gather)
    gathers.push_back(gather);
  builder.setInsertionPoint(op);
  SmallVector<unsigned> results;
  SmallVector<Type> types;
  for (auto &[indexOp, owner] : indexOps)
    if (owner && candidates[*owner].op == op)
      lists.expect(indexOp, candidate.expand);
  lists.expect(op, candidate.expand);
  for (OpResult result : op->getResults())
    if (!result.use_empty()) {
      results.push_back(result.getResultNumber());
      types.push_back(result.getType());
    }
  auto branch = scf::IfOp::create(builder, op.getLoc(), types,
                                  gate.op.getResult(), /*withElseRegion=*/true);
  builder.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> yields = emitTokenSharded(candidate, gather, results);
  scf::YieldOp::create(builder, op.getLoc(), yields);

  builder.setInsertionPointToStart(branch.elseBlock());
  IRMapping closed;
  if (gather)
    builder.clone(*gather.getStart(), closed);
  llvm::DenseMap<Value, Value> versioned;
  for (auto &[indexOp, owner] : indexOps)
    if (!owner)
      for (Value result : indexOp->getResults())
        if (Value local = gate.locals.lookup(result))
          versioned[result] = local;
  for (auto &[indexOp, owner] : indexOps) {
    if (!owner || candidates[*owner].op != op)
      continue;
    mapSharedBack(builder, indexOp, versioned, closed);
    cloneWithTaps(indexOp, closed);
  }
  mapSharedBack(builder, op, versioned, closed);
  if (gather)
    builder.clone(*gather, closed);
  Operation *original = builder.clone(*op, closed);
  yields.clear();
  for (unsigned number : results)
    yields.push_back(original->getResult(number));
  scf::YieldOp::create(builder, op.getLoc(), yields);
  for (auto [number, value] : llvm::zip_equal(results, branch.getResults()))
    op->getResult(number).replaceAllUsesWith(value);
}

void FunctionRewriter::run() {
  SmallVector<SparseMlaOp> attentions;
  function.walk([&](SparseMlaOp op) {
    bool done = op.getSharding() && op.getSharding()->isOverTokens();
    if (!done && !isVersioned(op))
      attentions.push_back(op);
  });
  for (SparseMlaOp op : attentions) {
    std::string reason;
    std::optional<Candidate> candidate = match(op, reason);
    if (candidate) {
      candidateOf[op] = candidates.size();
      candidates.push_back(*candidate);
    }
    if (!remarks)
      continue;
    if (candidate)
      emitRemark(op.getLoc())
          << "attention runs on token shards over \"" << axis << "\" ("
          << candidate->ranks << " ranks) when the gate is open";
    else
      emitRemark(op.getLoc()) << "attention is left alone: " << reason;
  }
  if (candidates.empty())
    return;

  collectIndexOps();
  chooseOwners();
  // In program order, so that what a branch refers to exists.
  for (auto &[indexOp, owner] : indexOps)
    if (!owner)
      versionShared(indexOp, candidates[anyCandidate.lookup(indexOp)]);
  for (const Candidate &candidate : candidates)
    version(candidate);

  for (const Candidate &candidate : candidates)
    SparseMlaOp(candidate.op)->erase();
  for (GatherKvFinishOp gather : gathers) {
    GatherKvStartOp start = gather.getStart();
    gather.erase();
    start.erase();
  }
  for (auto &[indexOp, owner] : llvm::reverse(indexOps)) {
    eraseTaps(indexOp);
    indexOp->erase();
  }
}

namespace {

struct ShardQTokensPass
    : public shardq::impl::ShardQTokensBase<ShardQTokensPass> {
  using ShardQTokensBase::ShardQTokensBase;

  void runOnOperation() override {
    if (minTokens < 0) {
      emitError(getOperation().getLoc(), "shard-q-tokens: min-tokens is ")
          << minTokens.getValue() << ", expected 0 or more";
      return signalPassFailure();
    }
    getOperation().walk([&](FunctionOpInterface function) {
      if (!function.isExternal())
        FunctionRewriter(function, axis, minTokens, decodeRows, remarks).run();
    });
  }
};

} // namespace
