//===- ShardQPcp.cpp - Prefill requests in chunks over ranks --------------===//
//
// Attention and index ops run on a rank's own rows, and outputs are gathered.
// The words used here:
//
//   step  what one expand_rows describes; has one split
//   call  rows of a rank that run together: all of them, or with two calls
//         those of decode requests and heads, and those of tails
//   own   a value that holds the rows of a call of what it replaces
//
//===----------------------------------------------------------------------===//

#include "DcpMatch.h"
#include "IndexProducers.h"
#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQPCP
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

struct Call {
  /// The step row of each row, -1 for padding.
  Value rows;
  /// What holds these rows of which value.
  llvm::DenseMap<Value, Value> own;
};

struct Step {
  /// Rows that are whole on every rank.
  Value decodes;
  Value mine, restore;
  /// Whether there are chunks; null where every step gathers.
  Value open;
  SmallVector<Call, 2> calls;
};

/// An attention that can be rewritten.
struct Candidate {
  SparseMlaOp op;
  ExpandRowsOp expand;
  FlatSymbolRefAttr mesh;
};

/// Rewrites one function.
class FunctionRewriter {
public:
  FunctionRewriter(FunctionOpInterface function, StringRef axis, bool twoCalls,
                   bool isGated, bool remarks)
      : function(function), axis(StringAttr::get(function.getContext(), axis)),
        twoCalls(twoCalls), isGated(isGated), remarks(remarks),
        builder(function.getContext()), dominance(function) {}

  void run();

private:
  // Analysis.
  FlatSymbolRefAttr findMesh(SparseMlaOp op, llvm::raw_ostream &why);
  bool isSplit(Value value, bool overAxis);
  std::optional<Candidate> match(SparseMlaOp op, std::string &reason);
  SmallVector<Operation *> getIndexOps(const Candidate &candidate);

  // Emission.
  Step &getStep(const Candidate &candidate);
  void addCall(Step &step, const Candidate &candidate, Value rows,
               ChunkPart part);
  Value take(Value value, Value rows, TypedAttr missing = {});
  Value getOwn(Value value, Call &call);
  void runOnOwnRows(Operation *indexOp, const Candidate &candidate, Step &step);
  Value gather(Value own, const Candidate &candidate);
  Value restore(Value rows, Value result, const Step &step);
  SmallVector<Value> gate(const Step &step, TypeRange types,
                          llvm::function_ref<SmallVector<Value>()> open,
                          llvm::function_ref<SmallVector<Value>()> closed);
  void rewrite(const Candidate &candidate);
  void rewriteWrites(const Candidate &candidate);
  void rewriteWrite(WriteRowsOp op, const Candidate &candidate);

  FunctionOpInterface function;
  StringAttr axis;
  bool twoCalls, isGated;
  bool remarks;
  OpBuilder builder;
  DominanceInfo dominance;
  llvm::MapVector<std::pair<Operation *, Attribute>, Step> steps;
  StepLists lists;
  /// Index ops that run on own rows, and writes that write gathered ones.
  llvm::SetVector<Operation *> done;
};

/// A function argument as it came, or null.
BlockArgument getArgument(Value value, FunctionOpInterface function) {
  auto argument = dyn_cast<BlockArgument>(value);
  return argument && argument.getOwner() == &function.front() ? argument
                                                              : BlockArgument();
}

} // namespace

//===----------------------------------------------------------------------===//
// Analysis
//===----------------------------------------------------------------------===//

/// The mesh of the attention, or the module's only one that has the axis.
FlatSymbolRefAttr FunctionRewriter::findMesh(SparseMlaOp op,
                                             llvm::raw_ostream &why) {
  if (ShardingAttr sharding = op.getShardingAttr())
    return sharding.getMesh();
  FlatSymbolRefAttr found;
  for (auto mesh : op->getParentOfType<ModuleOp>().getOps<MeshOp>()) {
    if (!mesh.lookupAxis(axis))
      continue;
    if (found) {
      why << "several meshes have axis " << axis
          << ", and it has no sharding that names one";
      return {};
    }
    found = FlatSymbolRefAttr::get(mesh.getSymNameAttr());
  }
  return found;
}

/// Whether the value is an argument of which each rank (along the axis) has
/// other rows.
bool FunctionRewriter::isSplit(Value value, bool overAxis) {
  BlockArgument argument = getArgument(value, function);
  if (!argument)
    return false;
  auto split = function.getArgAttrOfType<SplitAttr>(argument.getArgNumber(),
                                                    kSplitAttrName);
  return split && (!overAxis || split.getAxis() == axis);
}

/// Whether one of the groups along the axes may have ranks of several of the
/// other's: those of an axis and its sub-axes, and of two sub-axes of one.
static bool mayOverlap(AxisAttr one, AxisAttr other) {
  auto top = [](AxisAttr axis) {
    return axis.getParent() ? axis.getParent().getValue() : axis.getName();
  };
  return top(one) == top(other);
}

/// The first axis of heads or KV that chunks over `over` cannot go with; null
/// if none. KV may be divided over the ranks of the axis together with others.
static StringAttr findOverlap(ShardingAttr sharding, MeshAxis over) {
  SmallVector<AxisAttr> own = over.mesh.getParts(over.axis);
  auto overlaps = [&](StringAttr name, bool mayJoin) {
    AxisAttr used = over.mesh.lookupAxis(name);
    return used && llvm::any_of(over.mesh.getParts(used), [&](AxisAttr part) {
             bool isJoined = mayJoin && part == over.axis && part != used;
             return !isJoined && llvm::any_of(own, [&](AxisAttr axis) {
               return mayOverlap(part, axis);
             });
           });
  };
  for (StringAttr name : sharding.getHeads())
    if (overlaps(name, /*mayJoin=*/false))
      return name;
  for (StringAttr name : sharding.getKv())
    if (overlaps(name, /*mayJoin=*/true))
      return name;
  return {};
}

/// Whether the attention has this rank's own keys, divided over ranks that have
/// other chunks: what is merged would be outputs of other rows.
static bool attendsOwnKeys(SparseMlaOp op, MeshAxis over) {
  auto filter =
      lookThroughCasts(op.getSlots()).getDefiningOp<FilterIndicesOp>();
  AxisAttr used = filter ? over.mesh.lookupAxis(filter.getAxis()) : AxisAttr();
  if (!used)
    return false;
  SmallVector<AxisAttr> chunks = over.mesh.getParts(over.axis);
  return llvm::any_of(over.mesh.getParts(used), [&](AxisAttr part) {
    return llvm::any_of(chunks,
                        [&](AxisAttr axis) { return mayOverlap(part, axis); });
  });
}

/// The axis over which KV is divided where that joins the axis of the chunks
/// with others; null if there is none.
static StringAttr findJoinedAxis(ShardingAttr sharding, MeshAxis over) {
  for (StringAttr name : sharding.getKv())
    if (AxisAttr used = over.mesh.lookupAxis(name);
        used && used != over.axis &&
        llvm::is_contained(over.mesh.getParts(used), over.axis))
      return name;
  return {};
}

/// Whether --shardq-dcp was there before: queries of all rows have travelled,
/// and positions of all rows were chosen, when own rows are taken.
static bool attendsGatheredQueries(SparseMlaOp op) {
  return llvm::any_of(op.getQ(), [](Value part) {
    if (auto heads = part.getDefiningOp<tensor::ExtractSliceOp>())
      part = heads.getSource();
    return static_cast<bool>(part.getDefiningOp<GatherQueryOp>());
  });
}

std::optional<Candidate> FunctionRewriter::match(SparseMlaOp op,
                                                 std::string &reason) {
  llvm::raw_string_ostream why(reason);
  FlatSymbolRefAttr mesh = findMesh(op, why);
  MeshAxis over;
  if (mesh)
    over = lookupMeshAxis(op, mesh, axis);
  // Not a program for this pass: nothing is said.
  if (!over || over.axis.getSize() == 1 || getChunkAxis(op))
    return std::nullopt;
  if (op.isOnBuffers()) {
    why << "it is on buffers";
    return std::nullopt;
  }
  if (ShardingAttr sharding = op.getShardingAttr()) {
    if (sharding.isOverTokens()) {
      why << "its tokens are sharded";
      return std::nullopt;
    }
    if (StringAttr name = findOverlap(sharding, over)) {
      why << "its heads or KV are sharded over axis " << name
          << ", and chunks are whole heads' over " << axis;
      return std::nullopt;
    }
  }
  if (attendsOwnKeys(op, over)) {
    why << "it attends this rank's own keys, and ranks of " << axis
        << " merge what they attend of the same rows";
    return std::nullopt;
  }
  if (op->use_empty()) {
    why << "its results are not used";
    return std::nullopt;
  }
  StringRef noStep;
  ExpandRowsOp expand = findExpandRows(op, noStep);
  if (!expand) {
    why << noStep;
    return std::nullopt;
  }
  if (isSplit(expand.getQueryStart(), /*overAxis=*/false) ||
      isSplit(expand.getSeqLens(), /*overAxis=*/false)) {
    why << "its step is not the same on every rank";
    return std::nullopt;
  }
  for (Value part : op.getQ())
    if (isSplit(part, /*overAxis=*/true)) {
      why << "its queries are split over axis " << axis
          << ", and every rank of it needs all rows";
      return std::nullopt;
    }
  int64_t stepRows = expand.getOutType(0).getDimSize(0);
  int64_t rows = op.getOutType(0).getDimSize(0);
  if (!ShapedType::isDynamic(stepRows) && !ShapedType::isDynamic(rows) &&
      stepRows != rows) {
    why << "it has " << rows << " rows, and its step " << stepRows;
    return std::nullopt;
  }
  // Ranks with other rows have nothing to merge, so keys that do not fit must
  // have no chunks, and --shardq-dcp asks for them in front of the chunks.
  ShardingAttr sharding = op.getShardingAttr();
  StringAttr joined = sharding ? findJoinedAxis(sharding, over) : StringAttr();
  if (joined && !canHaveTableBefore(op, expand, dominance)) {
    why << "its KV is sharded over axis " << joined
        << ", which has the ranks of " << axis
        << ", and its block table cannot be made before rows are divided";
    return std::nullopt;
  }
  return Candidate{op, expand, mesh};
}

/// The index ops that feed the attention, in program order.
SmallVector<Operation *>
FunctionRewriter::getIndexOps(const Candidate &candidate) {
  ExpandRowsOp expand = candidate.expand;
  llvm::SetVector<Operation *> found = getIndexProducers(candidate.op);
  SmallVector<Operation *> ordered;
  function.walk([&](Operation *op) {
    // An op before the step's description knows rows that the split does not.
    if (isIndexOp(op) && found.contains(op) &&
        dominance.properlyDominates(expand.getOperation(), op))
      ordered.push_back(op);
  });
  return ordered;
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

Value FunctionRewriter::take(Value value, Value rows, TypedAttr missing) {
  Type type = withDynamicRows(value.getType());
  return TakeRowsOp::create(builder, value.getLoc(), TypeRange{type}, value,
                            rows, ValueRange{}, missing)
      .getResult(0);
}

/// A call over `rows`, with requests and visible lengths of its rows: those of
/// the step, or what the key lengths of a part's chunks say.
void FunctionRewriter::addCall(Step &step, const Candidate &candidate,
                               Value rows, ChunkPart part) {
  ExpandRowsOp expand = candidate.expand;
  Location loc = expand.getLoc();
  Call &call = step.calls.emplace_back();
  call.rows = rows;
  ValueRange described = expand.getResults();
  Value own = rows;
  if (part != ChunkPart::All) {
    Type dynamic =
        RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
    auto lengths = ChunkLengthsOp::create(
        builder, loc,
        TypeRange{expand.getQueryStart().getType(),
                  expand.getSeqLens().getType(), dynamic},
        ChunkPartAttr::get(builder.getContext(), part), expand.getQueryStart(),
        expand.getSeqLens(), step.decodes, expand.getRows(), ValueRange{},
        candidate.mesh, axis);
    own = lengths.getResult(2);
    Value size = tensor::DimOp::create(builder, loc, rows, 0);
    described =
        ExpandRowsOp::create(builder, loc, TypeRange{dynamic, dynamic},
                             lengths.getResult(0), lengths.getResult(1), size,
                             ValueRange{}, expand.getSpeculativeTokensAttr())
            .getResults();
  }
  TypedAttr none = builder.getI32IntegerAttr(-1);
  call.own[expand.getResult(0)] = take(described[0], own, none);
  call.own[expand.getResult(1)] = take(described[1], own);
}

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
  Type i32 = builder.getI32Type();
  Type dynamic = RankedTensorType::get({ShapedType::kDynamic}, i32);
  Type restored =
      RankedTensorType::get({expand.getOutType(0).getDimSize(0)}, i32);
  step.decodes = CountDecodeRowsOp::create(builder, loc, builder.getIndexType(),
                                           expand.getQueryStart(),
                                           expand.getSpeculativeTokensAttr());
  auto split = ChunkSplitOp::create(
      builder, loc, TypeRange{dynamic, restored}, expand.getQueryStart(),
      step.decodes, expand.getRows(), ValueRange{}, candidate.mesh, axis,
      twoCalls ? builder.getUnitAttr() : UnitAttr());
  step.mine = split.getResult(0);
  step.restore = split.getResult(1);
  auto count = [&](ChunkPart part) -> Value {
    return CountChunkRowsOp::create(
        builder, loc, builder.getIndexType(),
        ChunkPartAttr::get(builder.getContext(), part), expand.getQueryStart(),
        step.decodes, expand.getRows(), candidate.mesh, axis);
  };
  Value tails;
  if (isGated || twoCalls)
    tails = count(ChunkPart::Tail);
  if (isGated)
    step.open =
        arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sgt, tails,
                              arith::ConstantIndexOp::create(builder, loc, 0));
  if (!twoCalls) {
    addCall(step, candidate, step.mine, ChunkPart::All);
    return step;
  }
  Value heads = count(ChunkPart::Head);
  addCall(step, candidate,
          sliceRows(builder, loc, step.mine, builder.getIndexAttr(0), heads),
          ChunkPart::Head);
  addCall(step, candidate, sliceRows(builder, loc, step.mine, heads, tails),
          ChunkPart::Tail);
  return step;
}

/// Rows of a value that no index op of the step made are taken where they are
/// needed; equal ones become one by CSE.
Value FunctionRewriter::getOwn(Value value, Call &call) {
  if (Value own = call.own.lookup(value))
    return own;
  if (Value own = call.own.lookup(lookThroughCasts(value)))
    return castTo(builder, value.getLoc(), own,
                  withDynamicRows(value.getType()));
  return take(value, call.rows);
}

/// Runs the op on own rows, behind itself: all that use it can use those.
void FunctionRewriter::runOnOwnRows(Operation *indexOp,
                                    const Candidate &candidate, Step &step) {
  if (!done.insert(indexOp))
    return;
  builder.setInsertionPointAfter(indexOp);
  lists.expect(indexOp, candidate.expand);
  for (Call &call : step.calls) {
    Operation *clone =
        cloneOnRows(builder, indexOp, call.rows,
                    [&](Value value) { return getOwn(value, call); });
    for (auto [result, own] :
         llvm::zip_equal(indexOp->getResults(), clone->getResults()))
      call.own[result] = own;
  }
}

Value FunctionRewriter::gather(Value own, const Candidate &candidate) {
  return GatherRowsOp::create(builder, own.getLoc(), TypeRange{own.getType()},
                              own, ValueRange{}, candidate.mesh, axis,
                              TransportAttr(), /*token_shards=*/UnitAttr())
      .getResult(0);
}

/// The rows of the step from those of all ranks, or of this one if the others
/// have no more; `result` is what they stand for.
Value FunctionRewriter::restore(Value rows, Value result, const Step &step) {
  // Rows of no request have no sum of exponentials, and an output of 0.
  auto type = cast<RankedTensorType>(result.getType());
  TypedAttr missing;
  if (type.getRank() == 2)
    missing = builder.getF32FloatAttr(-std::numeric_limits<float>::infinity());
  SmallVector<int64_t> shape(type.getShape());
  shape.front() = cast<RankedTensorType>(step.restore.getType()).getDimSize(0);
  Value restored =
      TakeRowsOp::create(
          builder, rows.getLoc(),
          TypeRange{RankedTensorType::get(shape, type.getElementType())}, rows,
          step.restore, ValueRange{}, missing)
          .getResult(0);
  return castTo(builder, rows.getLoc(), restored, type);
}

/// What `open` makes, or in a step of whole rows `closed`. Exchanges stand
/// under a condition that is equal on all ranks.
SmallVector<Value>
FunctionRewriter::gate(const Step &step, TypeRange types,
                       llvm::function_ref<SmallVector<Value>()> open,
                       llvm::function_ref<SmallVector<Value>()> closed) {
  if (!step.open)
    return open();
  auto branch = scf::IfOp::create(builder, step.open.getLoc(), types, step.open,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(builder, branch.getLoc(), open());
  builder.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(builder, branch.getLoc(), closed());
  return llvm::to_vector_of<Value>(branch.getResults());
}

void FunctionRewriter::rewrite(const Candidate &candidate) {
  SparseMlaOp op = candidate.op;
  Step &step = getStep(candidate);
  for (Operation *indexOp : getIndexOps(candidate))
    runOnOwnRows(indexOp, candidate, step);
  builder.setInsertionPoint(op);
  lists.expect(op, candidate.expand);
  SmallVector<SmallVector<Value>> parts(op->getNumResults());
  for (Call &call : step.calls) {
    Operation *clone = cloneOnRows(builder, op, call.rows, [&](Value value) {
      return getOwn(value, call);
    });
    for (auto [list, result] : llvm::zip_equal(parts, clone->getResults()))
      list.push_back(result);
  }
  SmallVector<Value> used, own;
  for (auto [list, result] : llvm::zip_equal(parts, op->getResults()))
    if (!result.use_empty()) {
      used.push_back(result);
      own.push_back(joinRows(builder, list));
    }
  auto restoreAll = [&](bool isGathered) {
    SmallVector<Value> restored;
    for (auto [rows, result] : llvm::zip_equal(own, used))
      restored.push_back(
          restore(isGathered ? gather(rows, candidate) : rows, result, step));
    return restored;
  };
  SmallVector<Value> results = gate(
      step, ValueRange(used).getTypes(), [&] { return restoreAll(true); },
      [&] { return restoreAll(false); });
  for (auto [result, replacement] : llvm::zip_equal(used, results))
    result.replaceAllUsesWith(replacement);
  op.erase();
}

/// Writes of the keys that the attention or its indexers read.
void FunctionRewriter::rewriteWrites(const Candidate &candidate) {
  SmallVector<Value> caches{SparseMlaOp(candidate.op).getKv()};
  for (Operation *indexOp : getIndexOps(candidate))
    if (auto indexer = dyn_cast<IndexerOp>(indexOp))
      caches.push_back(indexer.getKeys());
  for (Value cache : caches)
    while (true) {
      auto write = lookThroughCasts(cache).getDefiningOp<WriteRowsOp>();
      if (!write)
        break;
      if (done.insert(write))
        rewriteWrite(write, candidate);
      cache = write.getCache();
    }
}

void FunctionRewriter::rewriteWrite(WriteRowsOp op,
                                    const Candidate &candidate) {
  ExpandRowsOp expand = candidate.expand;
  std::string reason;
  if (!dominance.properlyDominates(expand.getOperation(), op))
    reason = "it stands before the shardq.expand_rows of its step";
  int64_t rows = cast<ShapedType>(op.getSource().getType()).getDimSize(0);
  int64_t stepRows = expand.getOutType(0).getDimSize(0);
  if (!ShapedType::isDynamic(rows) && !ShapedType::isDynamic(stepRows) &&
      rows != stepRows)
    reason = "it writes " + std::to_string(rows) + " rows, and the step has " +
             std::to_string(stepRows);
  if (!reason.empty()) {
    if (remarks)
      emitRemark(op.getLoc()) << "write is left alone: " << reason;
    return;
  }
  Step &step = getStep(candidate);
  Location loc = op.getLoc();
  builder.setInsertionPoint(op);
  for (OpOperand *list : {&op.getSourceMutable(), &op.getSlotsMutable()})
    lists.expect(*list, expand);
  Type source = withDynamicRows(op.getSource().getType());
  Type at = withDynamicRows(op.getSlots().getType());
  auto gathered = [&]() -> SmallVector<Value> {
    Value all = gather(take(op.getSource(), step.mine), candidate);
    Value local = tensor::DimOp::create(builder, loc, step.mine, 0);
    Type order =
        RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
    auto slots = ChunkSlotsOp::create(
        builder, loc, TypeRange{order, at}, op.getSlots(),
        expand.getQueryStart(), step.decodes, local, ValueRange{},
        candidate.mesh, axis, twoCalls ? builder.getUnitAttr() : UnitAttr());
    return {take(all, slots.getResult(0)), slots.getResult(1)};
  };
  auto given = [&]() -> SmallVector<Value> {
    return {castTo(builder, loc, op.getSource(), source),
            castTo(builder, loc, op.getSlots(), at)};
  };
  // Not the write itself: a cache that branches hand on may be copied.
  SmallVector<Value> written = gate(step, {source, at}, gathered, given);
  op.getSourceMutable().set(written[0]);
  op.getSlotsMutable().set(written[1]);
}

/// Index ops that only own rows of are used, with their taps and casts.
static void eraseUnused(ArrayRef<Operation *> ops) {
  for (Operation *op : llvm::reverse(ops)) {
    for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
      if (isa<tensor::CastOp>(user) && user->use_empty())
        user->erase();
    if (!isIndexOp(op))
      continue;
    // Where own rows are tapped the whole is not, also if others use it.
    eraseTaps(op);
    if (op->use_empty())
      op->erase();
  }
}

void FunctionRewriter::run() {
  SmallVector<Candidate> candidates;
  function.walk([&](SparseMlaOp op) {
    std::string reason;
    std::optional<Candidate> candidate = match(op, reason);
    if (candidate)
      candidates.push_back(*candidate);
    if (!remarks)
      return;
    if (candidate)
      emitRemark(op.getLoc())
          << "attention runs on chunks of requests over " << axis << " ("
          << lookupMeshAxis(op, candidate->mesh, axis).axis.getSize()
          << " ranks)" << (twoCalls ? ", heads and tails apart" : "")
          << (attendsGatheredQueries(op)
                  ? "; all rows are indexed and their queries travel, own ones "
                    "alone with --shardq-pcp in front of --shardq-dcp"
                  : "");
    else if (!reason.empty())
      emitRemark(op.getLoc()) << "attention is left alone: " << reason;
  });
  for (const Candidate &candidate : candidates) {
    rewriteWrites(candidate);
    rewrite(candidate);
  }
  eraseUnused(done.getArrayRef());
}

namespace {

struct ShardQPcpPass : public shardq::impl::ShardQPcpBase<ShardQPcpPass> {
  using ShardQPcpBase::ShardQPcpBase;

  void runOnOperation() override {
    getOperation().walk([&](FunctionOpInterface function) {
      if (!function.isExternal())
        FunctionRewriter(function, axis, twoCalls, gate, remarks).run();
    });
  }
};

} // namespace
