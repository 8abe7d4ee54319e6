//===- ShardQDcp.cpp - Attention over own keys, then a merge --------------===//

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQDCP
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// An attention that can be rewritten.
struct Candidate {
  SparseMlaOp op;
  ConvertIndicesOp convert;
  StringAttr axis;
  int64_t ranks;
  /// What says how many columns of the slots are valid: the filter's own
  /// count, or else the op's topk_length on slots that keep their columns.
  bool isCompacted;
};

Value lookThroughCasts(Value value) {
  while (auto cast = value.getDefiningOp<tensor::CastOp>())
    value = cast.getSource();
  return value;
}

/// Calls `visit` for each use of the value, or of a cast of it, until it fails.
LogicalResult forEachUse(Value value,
                         llvm::function_ref<LogicalResult(OpOperand &)> visit) {
  for (OpOperand &use : value.getUses())
    if (auto cast = dyn_cast<tensor::CastOp>(use.getOwner())) {
      if (failed(forEachUse(cast.getResult(), visit)))
        return failure();
    } else if (failed(visit(use))) {
      return failure();
    }
  return success();
}

/// Rewrites the attentions of a module.
class Rewriter {
public:
  Rewriter(ModuleOp module, bool remarks)
      : module(module), remarks(remarks), builder(module.getContext()) {}

  LogicalResult run();

private:
  FailureOr<Candidate> match(SparseMlaOp op);
  LogicalResult matchUses(SparseMlaOp op, ConvertIndicesOp convert);
  FilterIndicesOp getFilter(const Candidate &candidate);
  void rewrite(const Candidate &candidate);

  ModuleOp module;
  bool remarks;
  OpBuilder builder;
  /// One for all attentions that share the conversion: compacted, in place.
  llvm::MapVector<Operation *, std::array<FilterIndicesOp, 2>> filters;
};

} // namespace

static InFlightDiagnostic reject(SparseMlaOp op) {
  return op.emitOpError("cannot attend own keys alone: ");
}

/// A conversion through a sharded table makes slots that only attentions over
/// the sharded cache understand.
LogicalResult Rewriter::matchUses(SparseMlaOp op, ConvertIndicesOp convert) {
  ShardingAttr sharding = op.getShardingAttr();
  for (OpResult result : convert->getResults()) {
    LogicalResult known = forEachUse(result, [&](OpOperand &use) {
      auto user = dyn_cast<SparseMlaOp>(use.getOwner());
      bool isSlots = user && &user.getSlotsMutable() == &use;
      bool isLength =
          user && result.getResultNumber() == 1 &&
          llvm::any_of(user.getTopkLengthMutable(),
                       [&](OpOperand &operand) { return &operand == &use; });
      ShardingAttr other = user ? user.getShardingAttr() : ShardingAttr();
      if ((isSlots || isLength) && other &&
          other.getMesh() == sharding.getMesh() &&
          other.getKv() == sharding.getKv() &&
          other.getInterleave() == sharding.getInterleave())
        return success();
      InFlightDiagnostic diag = reject(op) << "its slots have a user that does "
                                              "not share its sharding of KV";
      diag.attachNote(use.getOwner()->getLoc()) << "the user is here";
      return failure();
    });
    if (failed(known))
      return failure();
  }
  return success();
}

FailureOr<Candidate> Rewriter::match(SparseMlaOp op) {
  ShardingAttr sharding = op.getShardingAttr();
  Candidate found{op, {}, sharding.getKv().front(), 1, true};
  if (op.isOnBuffers()) {
    reject(op) << "it is on buffers";
    return failure();
  }
  if (sharding.getKv().size() != 1) {
    reject(op) << "its KV is sharded over " << sharding.getKv().size()
               << " axes, expected one";
    return failure();
  }
  if (!sharding.isOverHeads()) {
    reject(op) << "its tokens are sharded, expected heads";
    return failure();
  }
  if (op.getSink()) {
    reject(op) << "it has a sink, which each rank would count";
    return failure();
  }
  found.ranks = getNumKvRanks(op, sharding);
  found.convert =
      lookThroughCasts(op.getSlots()).getDefiningOp<ConvertIndicesOp>();
  if (!found.convert) {
    reject(op) << "its slots do not come from a shardq.convert_indices";
    return failure();
  }
  if (found.convert.getPrefillReq()) {
    InFlightDiagnostic diag = reject(op)
                              << "its slots point into a prefill workspace";
    diag.attachNote(found.convert.getLoc()) << "they are made here";
    return failure();
  }
  if (found.convert.getBlockSize() % sharding.getInterleave() != 0) {
    InFlightDiagnostic diag =
        reject(op) << "its cache blocks have " << found.convert.getBlockSize()
                   << " rows, expected a multiple of the interleave, "
                   << sharding.getInterleave();
    diag.attachNote(found.convert.getLoc()) << "the block size is given here";
    return failure();
  }
  if (failed(matchUses(op, found.convert)))
    return failure();

  if (Value length = op.getTopkLength()) {
    bool isCount = found.convert.getNumOuts() == 2 &&
                   lookThroughCasts(length) == found.convert->getResult(1);
    Operation *chosen =
        lookThroughCasts(found.convert.getIndices()).getDefiningOp();
    // A count of positions that all stand at the front counts columns too.
    if (isCount && !isa_and_present<IndexerOp, TopKOp>(chosen)) {
      reject(op) << "its topk_length counts slots among positions that no "
                    "shardq.indexer or shardq.topk made";
      return failure();
    }
    found.isCompacted = isCount;
  }
  return found;
}

FilterIndicesOp Rewriter::getFilter(const Candidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  FilterIndicesOp &filter = filters[convert][candidate.isCompacted ? 0 : 1];
  if (filter)
    return filter;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(convert);
  auto slots = cast<RankedTensorType>(convert->getResult(0).getType());
  SmallVector<Type> types{slots};
  if (candidate.isCompacted)
    types.push_back(
        RankedTensorType::get({slots.getDimSize(0)}, builder.getI32Type()));
  ShardingAttr sharding = SparseMlaOp(candidate.op).getShardingAttr();
  filter = FilterIndicesOp::create(
      builder, convert.getLoc(), types, convert.getIndices(),
      convert.getTable(), convert.getReq(), ValueRange{}, sharding.getMesh(),
      candidate.axis, builder.getI64IntegerAttr(sharding.getInterleave()),
      convert.getBlockSizeAttr(), convert.getBlockStrideRowsAttr(),
      candidate.isCompacted ? UnitAttr() : builder.getUnitAttr());
  return filter;
}

void Rewriter::rewrite(const Candidate &candidate) {
  SparseMlaOp op = candidate.op;
  Location loc = op.getLoc();
  FlatSymbolRefAttr mesh = op.getShardingAttr().getMesh();
  FilterIndicesOp filter = getFilter(candidate);
  builder.setInsertionPoint(op);

  auto q = cast<RankedTensorType>(op.getQ().front().getType());
  auto out = cast<RankedTensorType>(op->getResult(0).getType());
  int64_t heads = op.getNumHeads() * candidate.ranks;
  auto gather = GatherQueryOp::create(
      builder, loc,
      TypeRange{RankedTensorType::get(
          {q.getDimSize(0), heads, op.getQueryDim()}, q.getElementType())},
      op.getQ(), ValueRange{}, mesh, candidate.axis);
  SmallVector<Type> types{
      RankedTensorType::get({out.getDimSize(0), heads, op.getValueDim()},
                            out.getElementType()),
      RankedTensorType::get({out.getDimSize(0), heads}, builder.getF32Type())};
  auto attend = SparseMlaOp::create(
      builder, loc, types, gather->getResults(), op.getKv(),
      filter->getResult(0), op.getReq(),
      candidate.isCompacted ? Value(filter->getResult(1)) : op.getTopkLength(),
      Value(), ValueRange{}, op.getScaleAttr(), ShardingAttr(),
      op.getLseAttr());
  bool needsLse = op.hasLse() && !op->getResult(1).use_empty();
  SmallVector<Type> merged{out};
  if (needsLse)
    merged.push_back(op->getResult(1).getType());
  auto combine = CombineLseOp::create(
      builder, loc, merged, attend->getResult(0), attend->getResult(1),
      ValueRange{}, mesh, candidate.axis, op.getLseAttr());
  for (auto [result, value] : llvm::zip(op->getResults(), combine.getResults()))
    result.replaceAllUsesWith(value);
  op.erase();
}

/// The conversion, and casts of its results, that nothing uses any more.
static void eraseDead(Operation *op) {
  for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
    if (isa<tensor::CastOp>(user))
      eraseDead(user);
  if (op->use_empty())
    op->erase();
}

LogicalResult Rewriter::run() {
  SmallVector<Candidate> candidates;
  bool ok = true;
  module.walk([&](SparseMlaOp op) {
    if (getNumKvRanks(op, op.getShardingAttr()) == 1)
      return;
    FailureOr<Candidate> candidate = match(op);
    ok &= succeeded(candidate);
    if (succeeded(candidate))
      candidates.push_back(*candidate);
  });
  if (!ok)
    return failure();
  for (const Candidate &candidate : candidates) {
    SparseMlaOp op = candidate.op;
    if (remarks)
      emitRemark(op.getLoc())
          << "attention runs on own keys of " << candidate.axis << " ("
          << candidate.ranks << " ranks) with their "
          << op.getNumHeads() * candidate.ranks << " heads";
    rewrite(candidate);
  }
  for (auto &[convert, made] : filters)
    eraseDead(convert);
  return success();
}

namespace {

struct ShardQDcpPass : public shardq::impl::ShardQDcpBase<ShardQDcpPass> {
  using ShardQDcpBase::ShardQDcpBase;

  void runOnOperation() override {
    if (failed(Rewriter(getOperation(), remarks).run()))
      signalPassFailure();
  }
};

} // namespace
