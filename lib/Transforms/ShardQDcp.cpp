//===- ShardQDcp.cpp - Attention over a sharded KV cache ------------------===//
//
// Two forms: queries travel, by heads or by rows, each rank attends its own
// keys, and outputs are merged; or keys travel, while the indexer runs, and
// each rank attends them all. The option `step` says which, and a gate between
// both, since not all keys fit.
//
// DcpMatch.cpp says which attentions can have which form, and DcpGather.cpp
// makes what the second needs and attentions share. Here is what takes the
// place of each.
//
//===----------------------------------------------------------------------===//

#include "DcpGather.h"
#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQDCP
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

using Candidate = DcpCandidate;
using Group = DcpGroup;

/// Rewrites the attentions of a module.
class Rewriter {
public:
  Rewriter(ModuleOp module, const DcpOptions &options, bool remarks)
      : module(module), step(options.step),
        combinesDecodeRows(options.decodeRows == DecodeRows::Combine),
        paddedHeads(options.paddedHeads), remarks(remarks),
        builder(module.getContext()), matcher(module, options),
        gather(module, builder, options) {}

  LogicalResult run();

private:
  // Emission, where the builder stands.
  OwnKeys getOwnKeys(const Candidate &candidate);
  Value createAllReq(const Candidate &candidate, Value req);
  Value createAllRows(const Candidate &candidate, Value rows);
  FilterIndicesOp createFilter(const Candidate &candidate, Value indices);
  SmallVector<Value> createMerged(const Candidate &candidate,
                                  FilterIndicesOp filter);
  SmallVector<Value> createGathered(const Candidate &candidate,
                                    GatherKvStartOp start, Value &keys,
                                    GatheredSlotsOp slots);
  SmallVector<Value> attendGathered(const Candidate &candidate,
                                    GatherKvStartOp start, Value &keys,
                                    TypeRange types, ValueRange q, Value slots,
                                    Value req, Value length);
  Value createDecodes(const Candidate &candidate);
  SmallVector<Value> createDecodeRows(const Candidate &candidate, Value indices,
                                      Value decodes);

  // Shared by attentions.
  FilterIndicesOp ensureFilter(const Candidate &candidate);

  SmallVector<SmallVector<Value>> version(Group group);
  SmallVector<SmallVector<Value>> create(Group group);
  void rewrite(Group group);
  void remark(const Candidate &candidate);

  ModuleOp module;
  DcpStep step;
  bool combinesDecodeRows;
  int64_t paddedHeads;
  bool remarks;
  OpBuilder builder;
  DcpMatcher matcher;
  KeyGather gather;
  /// What describes all rows of a step, by what describes a shard.
  llvm::DenseMap<Operation *, ExpandRowsOp> wholes;
  /// By conversion: compacted, in place.
  llvm::DenseMap<Operation *, std::array<FilterIndicesOp, 2>> filters;
  /// Conversions, and index ops behind the one that they feed.
  llvm::SetVector<Operation *> replaced;
};

} // namespace

//===----------------------------------------------------------------------===//
// Own keys
//===----------------------------------------------------------------------===//

static bool needsLse(SparseMlaOp op) {
  return op.hasLse() && !op->getResult(1).use_empty();
}

OwnKeys Rewriter::getOwnKeys(const Candidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  SparseMlaOp op = candidate.op;
  ShardingAttr sharding = op.getShardingAttr();
  return {op.getKv(),
          convert.getTable(),
          sharding.getMesh(),
          candidate.axis,
          candidate.members,
          builder.getI64IntegerAttr(sharding.getInterleave()),
          convert.getBlockSizeAttr(),
          convert.getBlockStrideRowsAttr(),
          paddedHeads};
}

/// Of this rank's shard, the rows of all ranks.
Value Rewriter::createAllRows(const Candidate &candidate, Value rows) {
  SparseMlaOp op = candidate.op;
  if (!rows || !hasTokenShards(op))
    return rows;
  return gatherShards(builder, op.getLoc(), getOwnKeys(candidate), rows);
}

/// The requests of all rows. Where the step says what a shard's are, it says
/// what all are, and nothing travels.
Value Rewriter::createAllReq(const Candidate &candidate, Value req) {
  SparseMlaOp op = candidate.op;
  auto expand = req ? lookThroughCasts(req).getDefiningOp<ExpandRowsOp>()
                    : ExpandRowsOp();
  auto shards = expand ? expand.getSeqLens().getDefiningOp<ShardLengthsOp>()
                       : ShardLengthsOp();
  if (!hasTokenShards(op) || !shards ||
      expand.getQueryStart() != shards.getResult(0) ||
      expand.getRows() != shards.getRows() ||
      shards.getMeshAttr() != op.getShardingAttr().getMesh() ||
      shards.getAxisAttr() != candidate.members.axis)
    return createAllRows(candidate, req);
  ExpandRowsOp &whole = wholes[expand];
  if (!whole) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfter(expand);
    Location loc = expand.getLoc();
    Value rows = arith::MulIOp::create(
        builder, loc, expand.getRows(),
        arith::ConstantIndexOp::create(builder, loc, candidate.members.ranks));
    Type type =
        RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
    whole =
        ExpandRowsOp::create(builder, loc, TypeRange{type, type},
                             shards.getQueryStart(), shards.getSeqLens(), rows,
                             ValueRange{}, expand.getSpeculativeTokensAttr());
  }
  auto type = cast<RankedTensorType>(req.getType());
  if (type.isDynamicDim(0))
    return whole->getResult(0);
  return castTo(
      builder, op.getLoc(), whole->getResult(0),
      RankedTensorType::get({type.getDimSize(0) * candidate.members.ranks},
                            type.getElementType()));
}

FilterIndicesOp Rewriter::createFilter(const Candidate &candidate,
                                       Value indices) {
  ConvertIndicesOp convert = candidate.convert;
  Value all = createAllRows(candidate, indices);
  auto slots = cast<RankedTensorType>(convert->getResult(0).getType());
  return filterToOwnKeys(
      builder, convert.getLoc(), getOwnKeys(candidate), all,
      createAllReq(candidate, convert.getReq()),
      RankedTensorType::get(cast<RankedTensorType>(all.getType()).getShape(),
                            slots.getElementType()),
      candidate.isCompacted);
}

FilterIndicesOp Rewriter::ensureFilter(const Candidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  FilterIndicesOp &filter = filters[convert][candidate.isCompacted ? 0 : 1];
  if (filter)
    return filter;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(convert);
  return filter = createFilter(candidate, convert.getIndices());
}

/// The form for decode steps. Returns what replaces the op's results; null for
/// an LSE that is not used.
SmallVector<Value> Rewriter::createMerged(const Candidate &candidate,
                                          FilterIndicesOp filter) {
  SparseMlaOp op = candidate.op;
  AttendingRows rows{
      SmallVector<Value>(op.getQ()), createAllReq(candidate, op.getReq()),
      candidate.isCompacted ? Value()
                            : createAllRows(candidate, op.getTopkLength())};
  SmallVector<Value> values = attendOwnKeys(builder, op, getOwnKeys(candidate),
                                            rows, filter, needsLse(op));
  for (auto [value, result] : llvm::zip_equal(values, op->getResults()))
    if (value)
      value = castTo(builder, op.getLoc(), value, result.getType());
  return values;
}

//===----------------------------------------------------------------------===//
// Gathered keys
//===----------------------------------------------------------------------===//

/// Whether the rows are tails of requests alone.
static bool isOfTails(ExpandRowsOp expand) {
  ChunkLengthsOp chunks = expand ? getChunks(expand) : ChunkLengthsOp();
  return chunks && chunks.getPart() == ChunkPart::Tail;
}

/// The decode rows of a step in which keys are gathered, by the form for decode
/// steps. `indices` are those of all rows.
SmallVector<Value> Rewriter::createDecodeRows(const Candidate &candidate,
                                              Value indices, Value decodes) {
  SparseMlaOp op = candidate.op;
  ConvertIndicesOp convert = candidate.convert;
  Location loc = op.getLoc();
  auto take = [&](Value value) -> Value {
    return value ? sliceRows(builder, loc, value, builder.getIndexAttr(0),
                             decodes)
                 : value;
  };
  AttendingRows rows;
  for (Value part : op.getQ())
    rows.q.push_back(take(part));
  rows.req = take(op.getReq());
  if (!candidate.isCompacted)
    rows.topkLength = take(op.getTopkLength());
  OwnKeys keys = getOwnKeys(candidate);
  FilterIndicesOp filter = filterToOwnKeys(
      builder, loc, keys, take(indices),
      convert.getReq() == op.getReq() ? rows.req : take(convert.getReq()),
      withDynamicRows(convert->getResult(0).getType()), candidate.isCompacted);
  return attendOwnKeys(builder, op, keys, rows, filter, needsLse(op));
}

/// Leading rows of decode requests, of the rows that the op has.
Value Rewriter::createDecodes(const Candidate &candidate) {
  SparseMlaOp op = candidate.op;
  ExpandRowsOp expand = candidate.expand;
  Location loc = op.getLoc();
  Value decodes = CountDecodeRowsOp::create(
      builder, loc, builder.getIndexType(), getStepLengths(expand).first,
      expand.getSpeculativeTokensAttr());
  Value rows = tensor::DimOp::create(builder, loc, op.getQ().front(), 0);
  return arith::MinSIOp::create(builder, loc, decodes, rows);
}

/// The form for steps with prefill: the op itself over all keys, with its
/// slots among them. `keys` are null where none has attended them before.
SmallVector<Value> Rewriter::createGathered(const Candidate &candidate,
                                            GatherKvStartOp start, Value &keys,
                                            GatheredSlotsOp slots) {
  SparseMlaOp op = candidate.op;
  Value length = op.getTopkLength();
  if (candidate.takesCount)
    length = castTo(builder, op.getLoc(), slots->getResult(1),
                    op.getTopkLength().getType());
  Value ownSlots = castTo(builder, op.getLoc(), slots->getResult(0),
                          op.getSlots().getType());
  // Ranks have different numbers of decode rows in shards of the step's, and
  // none among tails.
  if (!combinesDecodeRows || hasTokenShards(op) || isOfTails(candidate.expand))
    return attendGathered(candidate, start, keys, op->getResultTypes(),
                          op.getQ(), ownSlots, op.getReq(), length);

  Location loc = op.getLoc();
  Value decodes = createDecodes(candidate);
  // While keys travel.
  SmallVector<Value> ofDecode =
      createDecodeRows(candidate, slots.getIndices(), decodes);
  Value rows = tensor::DimOp::create(builder, loc, op.getQ().front(), 0);
  Value others = arith::SubIOp::create(builder, loc, rows, decodes);
  auto take = [&](Value value) -> Value {
    return value ? sliceRows(builder, loc, value, decodes, others) : value;
  };
  SmallVector<Type> types;
  for (Type type : op->getResultTypes())
    types.push_back(withDynamicRows(type));
  SmallVector<Value> ofOthers = attendGathered(
      candidate, start, keys, types, llvm::map_to_vector(op.getQ(), take),
      take(ownSlots), take(op.getReq()), take(length));
  SmallVector<Value> values;
  for (auto [result, decode, other] :
       llvm::zip_equal(op->getResults(), ofDecode, ofOthers))
    values.push_back(decode ? castTo(builder, loc,
                                     joinRows(builder, {decode, other}),
                                     result.getType())
                            : Value());
  return values;
}

SmallVector<Value> Rewriter::attendGathered(const Candidate &candidate,
                                            GatherKvStartOp start, Value &keys,
                                            TypeRange types, ValueRange q,
                                            Value slots, Value req,
                                            Value length) {
  SparseMlaOp op = candidate.op;
  Location loc = op.getLoc();
  ShardingAttr sharding = op.getShardingAttr();
  if (!keys)
    keys = gather.createFinish(candidate, start);
  auto attend = SparseMlaOp::create(
      builder, loc, types, q, keys, slots, req, length, op.getSink(),
      ValueRange{}, op.getScaleAttr(),
      ShardingAttr::get(builder.getContext(), sharding.getMesh(),
                        sharding.getHeads(), sharding.getOrder(),
                        sharding.getTokens()),
      op.getLseAttr(), op.getKvFormatAttr());
  return SmallVector<Value>(attend->getResults());
}

//===----------------------------------------------------------------------===//
// One form or both
//===----------------------------------------------------------------------===//

/// Both forms under the step's gate. Returns what replaces the results of each.
SmallVector<SmallVector<Value>> Rewriter::version(Group group) {
  Location loc = SparseMlaOp(group.back().op).getLoc();
  Value gate = gather.ensureGate(group.front());
  SmallVector<SmallVector<Operation *>> indexOps;
  SmallVector<std::pair<unsigned, unsigned>> used;
  SmallVector<Type> types;
  for (auto [number, candidate] : llvm::enumerate(group)) {
    indexOps.push_back(getOwnIndexOps(candidate));
    for (OpResult result : SparseMlaOp(candidate.op)->getResults())
      if (!result.use_empty()) {
        used.emplace_back(number, result.getResultNumber());
        types.push_back(result.getType());
      }
  }
  auto branch =
      scf::IfOp::create(builder, loc, types, gate, /*withElseRegion=*/true);
  auto cloneIndices = [&](unsigned number) -> Value {
    IRMapping inBranch;
    for (Operation *indexOp : indexOps[number]) {
      builder.clone(*indexOp, inBranch);
      for (Operation *user : indexOp->getUsers())
        if (isa<TapOp>(user))
          builder.clone(*user, inBranch);
    }
    ConvertIndicesOp convert = group[number].convert;
    return inBranch.lookupOrDefault(convert.getIndices());
  };
  // The branches end by themselves where there is nothing to yield.
  auto yield = [&](ArrayRef<SmallVector<Value>> values) {
    SmallVector<Value> yields;
    for (auto [number, result] : used)
      yields.push_back(values[number][result]);
    if (!yields.empty())
      scf::YieldOp::create(builder, loc, yields);
  };
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  GatherKvStartOp start = gather.createStart(group.front());
  // Of all, while keys travel.
  SmallVector<GatheredSlotsOp> slots;
  for (auto [number, candidate] : llvm::enumerate(group))
    slots.push_back(gather.createSlots(candidate, cloneIndices(number)));
  Value keys;
  SmallVector<SmallVector<Value>> values;
  for (auto [candidate, own] : llvm::zip_equal(group, slots))
    values.push_back(createGathered(candidate, start, keys, own));
  yield(values);
  builder.setInsertionPointToStart(branch.elseBlock());
  values.clear();
  for (auto [number, candidate] : llvm::enumerate(group)) {
    FilterIndicesOp filter = createFilter(candidate, cloneIndices(number));
    values.push_back(createMerged(candidate, filter));
  }
  yield(values);

  for (auto [candidate, ops] : llvm::zip_equal(group, indexOps)) {
    replaced.insert(candidate.convert);
    replaced.insert(ops.begin(), ops.end());
  }
  for (SmallVector<Value> &results : values)
    results.assign(results.size(), Value());
  for (auto [place, result] : llvm::zip_equal(used, branch.getResults()))
    values[place.first][place.second] = result;
  return values;
}

/// What replaces the results of each, where the builder stands: at the last.
SmallVector<SmallVector<Value>> Rewriter::create(Group group) {
  const Candidate &first = group.front();
  if (first.form == DcpStep::Gate)
    return version(group);
  return {createMerged(first, ensureFilter(first))};
}

void Rewriter::rewrite(Group group) {
  builder.setInsertionPoint(SparseMlaOp(group.back().op));
  SmallVector<SmallVector<Value>> values = create(group);
  for (auto [candidate, replacements] : llvm::zip_equal(group, values)) {
    SparseMlaOp op = candidate.op;
    replaced.insert(candidate.convert);
    for (auto [result, value] : llvm::zip_equal(op->getResults(), replacements))
      if (value)
        result.replaceAllUsesWith(value);
    op.erase();
  }
}

void Rewriter::remark(const Candidate &candidate) {
  SparseMlaOp op = candidate.op;
  int64_t ranks = getNumKvRanks(op, op.getShardingAttr());
  InFlightDiagnostic diag = emitRemark(op.getLoc()) << "attention runs on ";
  if (candidate.form == DcpStep::Decode) {
    diag << "own keys of " << candidate.axis << " (" << ranks
         << " ranks) with their ";
    if (hasTokenShards(op))
      diag << "rows";
    else
      diag << op.getNumHeads() * candidate.members.ranks << " heads";
    return;
  }
  diag << "keys gathered over " << candidate.axis << " (" << ranks << " ranks) "
       << (step == DcpStep::Gate
               ? "in steps with prefill, on own keys in others"
               : "where they fit, on own keys elsewhere");
}

/// What was replaced and nothing uses any more, with casts and taps of it.
static void eraseDead(Operation *op, bool withTaps) {
  if (withTaps)
    eraseTaps(op);
  for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
    if (isa<tensor::CastOp>(user))
      eraseDead(user, withTaps);
  if (op->use_empty())
    op->erase();
}

LogicalResult Rewriter::run() {
  SmallVector<Candidate> candidates;
  bool ok = true;
  module.walk([&](SparseMlaOp op) {
    if (getNumKvRanks(op, op.getShardingAttr()) == 1)
      return;
    FailureOr<Candidate> candidate = matcher.match(op);
    ok &= succeeded(candidate);
    if (succeeded(candidate))
      candidates.push_back(*candidate);
  });
  if (!ok)
    return failure();
  if (remarks)
    for (const Candidate &candidate : candidates)
      remark(candidate);
  for (Group rest = candidates; !rest.empty();) {
    unsigned size = 1;
    while (size < rest.size() &&
           matcher.canJoin(rest.take_front(size), rest[size]))
      ++size;
    rewrite(rest.take_front(size));
    rest = rest.drop_front(size);
  }
  gather.setPools();
  // Users before what they use.
  SmallVector<Operation *> dead(replaced.begin(), replaced.end());
  for (Operation *op : dead)
    eraseDead(op, !isa<ConvertIndicesOp>(op));
  return success();
}

namespace {

struct ShardQDcpPass : public shardq::impl::ShardQDcpBase<ShardQDcpPass> {
  using ShardQDcpBase::ShardQDcpBase;

  void runOnOperation() override {
    if (paddedHeads < 0 || paddedHeads > (1 << 24)) {
      emitError(getOperation().getLoc(), "shardq-dcp: ")
          << "padded-heads is " << int64_t(paddedHeads)
          << ", expected 0 to 2^24";
      return signalPassFailure();
    }
    DcpOptions options{step, decodeRows, blocks, nullBlock, paddedHeads};
    if (failed(Rewriter(getOperation(), options, remarks).run()))
      signalPassFailure();
  }
};

} // namespace
