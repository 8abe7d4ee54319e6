//===- SelectTransport.cpp - How each collective travels, and why ---------===//

#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQSELECTTRANSPORT
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

namespace {

/// What is known of a collective when it is compiled.
struct Facts {
  bool isMerge = false; // a combine_lse
  // Of a merge; the first two both in a group of one rank.
  bool keepsAllHeads = false;
  bool keepsOwnHeads = false;
  bool scattersTokens = false;
  bool hasSink = false;
  bool spansHosts = false; // the group
  bool isOnGpus = false;
  /// Parts of a row that lie in one piece, of a head where there are heads, are
  /// multiples of 16 bytes.
  bool isWhole = false;
  bool isTooLong = false; // known to have more rows than inboxes hold
};

struct Row {
  enum Verdict {
    Never, // it cannot travel so, for the reason
    Take,  // the choice of `auto`, if no row says never
    Note   // what the reason of that choice says besides
  };
  Transport transport;
  Verdict verdict;
  bool (*holds)(const Facts &facts);
  StringRef reason;
};

} // namespace

static constexpr StringLiteral kScattersTokens =
    "it scatters tokens, and shares are summed by heads";
static constexpr StringLiteral kHasSink =
    "it has a sink, and weights of all heads would need the sinks of all";

static constexpr StringLiteral kTooLong =
    "; it has more rows than inboxes hold, which shardq-slice-steps has to "
    "take in turns";

/// The first row to take that holds is the choice. Types, alignment and rows
/// are no reason against any: kernels move what is not aligned by elements,
/// also into what NCCL sends, and all share the inboxes.
static constexpr Row kTable[] = {
    {Transport::Direct, Row::Never,
     [](const Facts &facts) { return facts.spansHosts; },
     "ranks of the group are on several hosts and do not reach each other's "
     "memory"},
    {Transport::Nccl, Row::Never,
     [](const Facts &facts) { return !facts.isOnGpus; },
     "NCCL moves rows between GPUs, and ranks are on CPUs"},
    {Transport::AgRs, Row::Never,
     [](const Facts &facts) { return facts.scattersTokens; }, kScattersTokens},
    {Transport::AgAr, Row::Never,
     [](const Facts &facts) { return facts.scattersTokens; }, kScattersTokens},
    {Transport::AgRs, Row::Never,
     [](const Facts &facts) { return facts.hasSink; }, kHasSink},
    {Transport::AgAr, Row::Never,
     [](const Facts &facts) { return facts.hasSink; }, kHasSink},
    {Transport::AgRs, Row::Never,
     [](const Facts &facts) { return !facts.keepsOwnHeads; },
     "each rank keeps all heads, which ag_ar is for"},
    {Transport::AgAr, Row::Never,
     [](const Facts &facts) { return !facts.keepsAllHeads; },
     "each rank keeps its own heads, which ag_rs is for"},

    {Transport::Nccl, Row::Take,
     [](const Facts &facts) { return facts.spansHosts; },
     "ranks of the group are on several hosts"},
    {Transport::Direct, Row::Take,
     [](const Facts &facts) { return facts.isMerge && !facts.keepsOwnHeads; },
     "own heads are merged and then gathered, which moves half the bytes of "
     "ag_ar"},
    {Transport::Direct, Row::Take, [](const Facts &) { return true; },
     "ranks of a host write into each other's memory"},

    {Transport::Direct, Row::Note,
     [](const Facts &facts) { return facts.isOnGpus && facts.isWhole; },
     ", 16 bytes at a time where buffers are aligned"},
    {Transport::Direct, Row::Note,
     [](const Facts &facts) { return facts.isOnGpus && !facts.isWhole; },
     ", by single elements: parts of a row are no multiples of 16 bytes"},
    {Transport::Direct, Row::Note,
     [](const Facts &facts) { return facts.isTooLong; }, kTooLong},
    {Transport::Nccl, Row::Note,
     [](const Facts &facts) { return facts.isTooLong; }, kTooLong},
};

/// Why it cannot travel so; empty if it can.
static StringRef findObstacle(Transport transport, const Facts &facts) {
  for (const Row &row : kTable)
    if (row.verdict == Row::Never && row.transport == transport &&
        row.holds(facts))
      return row.reason;
  return {};
}

/// What `auto` chooses; null if nothing works.
static const Row *findChoice(const Facts &facts) {
  for (const Row &row : kTable)
    if (row.verdict == Row::Take && row.holds(facts) &&
        findObstacle(row.transport, facts).empty())
      return &row;
  return nullptr;
}

/// The reason of such a choice, with all that is to be said besides.
static std::string getReason(const Row &choice, const Facts &facts) {
  std::string reason = choice.reason.str();
  for (const Row &row : kTable)
    if (row.verdict == Row::Note && row.transport == choice.transport &&
        row.holds(facts))
      reason += row.reason;
  return reason;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {

class Selector {
public:
  Selector(ModuleOp module, TransportChoice wanted, RankTarget target,
           int64_t hostRanks, int64_t maxTokens, bool remarks)
      : module(module), wanted(wanted), target(target), hostRanks(hostRanks),
        maxTokens(maxTokens), remarks(remarks), builder(module.getContext()) {}

  LogicalResult run();

private:
  Facts getFacts(CollectiveOpInterface op);
  std::optional<Transport> getWanted(const Facts &facts) const;
  TransportAttr makeChoice(Transport transport, const llvm::Twine &reason);
  TransportAttr chooseOther(Transport wanted, StringRef obstacle,
                            const Facts &facts);
  FailureOr<TransportAttr> choose(CollectiveOpInterface op, const Facts &facts);
  LogicalResult select(CollectiveOpInterface op);
  LogicalResult selectPart(CollectiveOpInterface part, TransportAttr whole);
  LogicalResult expand(CombineLseOp op, TransportAttr transport);
  CombineLseOp shareEvenly(CombineLseOp op, int64_t ranks);
  SmallVector<CollectiveOpInterface> reduce(CombineLseOp op,
                                            SmallVectorImpl<Value> &results);
  SmallVector<CollectiveOpInterface>
  mergeAndGather(CombineLseOp op, SmallVectorImpl<Value> &results);
  GatherQueryOp gatherHeads(CombineLseOp op, Value own, Type all);

  ModuleOp module;
  TransportChoice wanted;
  RankTarget target;
  int64_t hostRanks;
  int64_t maxTokens;
  bool remarks;
  OpBuilder builder;
  /// Whether a merge of the program can take the form that is wanted of merges:
  /// those that cannot take another one.
  bool isTakenBySome = false;
};

} // namespace

/// Whether a group of the axis has ranks of two hosts.
static bool spansHosts(MeshAxis over, int64_t hostRanks) {
  int64_t size = over.axis.getSize(), stride = over.mesh.getStride(over.axis);
  if (hostRanks == 0 || size == 1)
    return false;
  for (int64_t rank = 0, end = over.mesh.getNumRanks(); rank < end; ++rank) {
    int64_t first = rank - over.mesh.getCoordinate(over.axis, rank) * stride;
    if (first / hostRanks != rank / hostRanks)
      return true;
  }
  return false;
}

/// What rows are made of; without the LSE of a merge, which stands in 16 bytes
/// of its own, and a sink, which stays here.
static ValueRange getParts(CollectiveOpInterface op) {
  if (auto exchange = dyn_cast<ExchangeOp>(*op))
    return exchange.getSources();
  if (auto finish = dyn_cast<GatherKvFinishOp>(*op)) {
    GatherKvStartOp start = finish.getStart();
    return start ? ValueRange(start.getSources()) : ValueRange();
  }
  if (auto gather = dyn_cast<GatherQueryOp>(*op))
    return gather.getSources();
  if (auto gather = dyn_cast<GatherRowsOp>(*op))
    return gather.getSources();
  return op->getOperands().take_front(1);
}

/// Whether a push can move the rows 16 bytes at a time: each part of a head, or
/// of a row without heads.
static bool isWhole(CollectiveOpInterface op) {
  return llvm::all_of(getParts(op), [&](Value part) {
    auto type = cast<ShapedType>(part.getType());
    // A head of such a row is one element.
    bool hasNoColumns = isa<ExchangeOp>(*op) && type.getRank() == 2;
    int64_t width = hasNoColumns ? 1 : type.getShape().back();
    return width * type.getElementTypeBitWidth() % 128 == 0;
  });
}

/// Whether the rows are known to be more than those of the largest step. Steps
/// that exchange heads for tokens have a gate, and gathered KV has its own
/// bound, as have rows that a program gathers by itself.
static bool isTooLong(CollectiveOpInterface op, int64_t ranks,
                      int64_t maxTokens) {
  auto gather = dyn_cast<GatherRowsOp>(*op);
  if (isa<ExchangeOp, GatherKvFinishOp>(*op) ||
      (gather && !gather.getTokenShards()))
    return false;
  int64_t rows = cast<ShapedType>(op->getOperand(0).getType()).getDimSize(0);
  // Shards come together in the inbox.
  int64_t most =
      gather ? int64_t(llvm::divideCeil(maxTokens, ranks)) : maxTokens;
  return !ShapedType::isDynamic(rows) && rows > most;
}

Facts Selector::getFacts(CollectiveOpInterface op) {
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxisAttr());
  Facts facts;
  facts.isOnGpus = target == RankTarget::Cuda;
  facts.spansHosts = spansHosts(over, hostRanks);
  facts.isWhole = isWhole(op);
  facts.isTooLong = isTooLong(op, over.axis.getSize(), maxTokens);
  if (auto merge = dyn_cast<CombineLseOp>(*op)) {
    facts.isMerge = true;
    facts.keepsAllHeads = merge.keepsAllHeads();
    facts.keepsOwnHeads = !facts.keepsAllHeads || over.axis.getSize() == 1;
    facts.scattersTokens = merge.getScatterTokens();
    facts.hasSink = merge.getSink() != nullptr;
  }
  return facts;
}

/// What the option says about a collective with these facts.
std::optional<Transport> Selector::getWanted(const Facts &facts) const {
  switch (wanted) {
  case TransportChoice::Auto:
    return std::nullopt;
  case TransportChoice::Direct:
    return Transport::Direct;
  case TransportChoice::Nccl:
    return Transport::Nccl;
  case TransportChoice::AgRs:
    return facts.isMerge ? std::optional(Transport::AgRs) : std::nullopt;
  case TransportChoice::AgAr:
    return facts.isMerge ? std::optional(Transport::AgAr) : std::nullopt;
  }
  llvm_unreachable("unknown choice");
}

TransportAttr Selector::makeChoice(Transport transport,
                                   const llvm::Twine &reason) {
  return TransportAttr::get(builder.getContext(), transport,
                            builder.getStringAttr(reason));
}

/// Of a merge that cannot take the form that others take: that of the other
/// kind, or what `auto` chooses. Null if nothing works.
TransportAttr Selector::chooseOther(Transport wanted, StringRef obstacle,
                                    const Facts &facts) {
  Transport other =
      wanted == Transport::AgRs ? Transport::AgAr : Transport::AgRs;
  if (!findObstacle(other, facts).empty()) {
    const Row *row = findChoice(facts);
    if (!row)
      return {};
    other = row->transport;
  }
  return makeChoice(other, stringifyTransport(wanted) + " was asked for, but " +
                               obstacle);
}

/// What stands against each way for rows.
static InFlightDiagnostic rejectAll(CollectiveOpInterface op,
                                    const Facts &facts) {
  return op->emitOpError("cannot travel: ")
         << findObstacle(Transport::Direct, facts) << "; "
         << findObstacle(Transport::Nccl, facts);
}

FailureOr<TransportAttr> Selector::choose(CollectiveOpInterface op,
                                          const Facts &facts) {
  TransportAttr given = op.getTransportAttr();
  std::optional<Transport> forced =
      given ? std::optional(given.getValue()) : getWanted(facts);
  if (forced) {
    StringRef obstacle = findObstacle(*forced, facts);
    if (obstacle.empty())
      return given && given.getReason() ? given
                                        : makeChoice(*forced, "asked for");
    if (!given && isTakenBySome)
      if (TransportAttr other = chooseOther(*forced, obstacle, facts))
        return other;
    return op->emitOpError("cannot travel by ")
           << stringifyTransport(*forced) << ": " << obstacle;
  }
  if (const Row *row = findChoice(facts))
    return makeChoice(row->transport, getReason(*row, facts));
  return rejectAll(op, facts);
}

LogicalResult Selector::select(CollectiveOpInterface op) {
  bool isNew = !op.getTransportAttr();
  FailureOr<TransportAttr> transport = choose(op, getFacts(op));
  if (failed(transport))
    return failure();
  if (remarks && isNew)
    op->emitRemark("travels by ") << stringifyTransport(transport->getValue())
                                  << ": " << transport->getReason().getValue();
  op.setTransportAttr(*transport);
  if (auto merge = dyn_cast<CombineLseOp>(*op))
    return expand(merge, *transport);
  return success();
}

/// Of an exchange that `whole`, the transport of a merge, is made of.
LogicalResult Selector::selectPart(CollectiveOpInterface part,
                                   TransportAttr whole) {
  Facts facts = getFacts(part);
  Transport transport = whole.getValue();
  std::string reason = whole.getReason().getValue().str();
  if (transport == Transport::AgRs || transport == Transport::AgAr) {
    const Row *row = findChoice(facts);
    if (!row)
      return rejectAll(part, facts);
    // Why there is such a part, and why it travels as it does.
    reason = (stringifyTransport(transport) + " of a merge: " + reason + "; " +
              getReason(*row, facts))
                 .str();
    transport = row->transport;
  }
  part.setTransportAttr(TransportAttr::get(builder.getContext(), transport,
                                           builder.getStringAttr(reason)));
  return success();
}

/// The merge as other ops, where its form is made of them.
LogicalResult Selector::expand(CombineLseOp op, TransportAttr transport) {
  bool isReduced = transport.getValue() == Transport::AgRs ||
                   transport.getValue() == Transport::AgAr;
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  bool keepsAllHeads = op.keepsAllHeads() && over.axis.getSize() > 1;
  if (!isReduced && !keepsAllHeads)
    return success();
  if (op.isOnBuffers())
    return op.emitOpError("is on buffers, where no ops can be made of it: run "
                          "shardq-select-transport before bufferization");
  builder.setInsertionPoint(op);
  if (keepsAllHeads)
    op = shareEvenly(op, over.axis.getSize());
  SmallVector<Value> results;
  SmallVector<CollectiveOpInterface> parts =
      isReduced ? reduce(op, results) : mergeAndGather(op, results);
  for (CollectiveOpInterface part : parts)
    if (failed(selectPart(part, transport)))
      return failure();
  op->replaceAllUsesWith(results);
  op.erase();
  return success();
}

static RankedTensorType withHeads(Type type, int64_t heads) {
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[1] = heads;
  return RankedTensorType::get(shape, tensor.getElementType());
}

/// A value with room for more heads, which hold `fill`, or anything.
static Value addHeads(OpBuilder &builder, Location loc, Value value,
                      int64_t heads, std::optional<double> fill) {
  RankedTensorType type = withHeads(value.getType(), heads);
  SmallVector<OpFoldResult> own = tensor::getMixedSizes(builder, loc, value);
  SmallVector<OpFoldResult> sizes = own;
  sizes[1] = builder.getIndexAttr(heads);
  Value room =
      tensor::EmptyOp::create(builder, loc, sizes, type.getElementType());
  if (fill) {
    auto number = builder.getFloatAttr(type.getElementType(), *fill);
    Value scalar = arith::ConstantOp::create(builder, loc, number);
    room = linalg::FillOp::create(builder, loc, scalar, room).getResult(0);
  }
  SmallVector<OpFoldResult> zeros(own.size(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> ones(own.size(), builder.getIndexAttr(1));
  return tensor::InsertSliceOp::create(builder, loc, value, room, zeros, own,
                                       ones);
}

/// The merge, kept by each rank, with as many heads as the ranks can share
/// evenly. Those beyond have an LSE of -inf, so that nobody reads their values.
CombineLseOp Selector::shareEvenly(CombineLseOp op, int64_t ranks) {
  int64_t heads = cast<ShapedType>(op.getPartial().getType()).getDimSize(1);
  int64_t even = llvm::alignTo(heads, ranks);
  if (even == heads)
    return op;
  Location loc = op.getLoc();
  Value partial =
      addHeads(builder, loc, op.getPartial(), even, /*fill=*/std::nullopt);
  Value lse = addHeads(builder, loc, op.getPartialLse(), even,
                       -std::numeric_limits<double>::infinity());
  SmallVector<Value> operands{partial, lse};
  if (Value sink = op.getSink()) {
    auto type = RankedTensorType::get({even}, getElementTypeOrSelf(sink));
    Value room = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                         type.getElementType());
    operands.push_back(tensor::InsertSliceOp::create(
        builder, loc, sink, room,
        SmallVector<OpFoldResult>{builder.getIndexAttr(0)},
        SmallVector<OpFoldResult>{builder.getIndexAttr(heads)},
        SmallVector<OpFoldResult>{builder.getIndexAttr(1)}));
  }
  SmallVector<Type> types;
  for (Type type : op->getResultTypes())
    types.push_back(withHeads(type, even));
  auto merge = cast<CombineLseOp>(clone(builder, op, types, operands));
  for (auto [result, padded] :
       llvm::zip_equal(op->getResults(), merge->getResults())) {
    SmallVector<OpFoldResult> sizes =
        tensor::getMixedSizes(builder, loc, padded);
    sizes[1] = builder.getIndexAttr(heads);
    SmallVector<OpFoldResult> zeros(sizes.size(), builder.getIndexAttr(0));
    SmallVector<OpFoldResult> ones(sizes.size(), builder.getIndexAttr(1));
    result.replaceAllUsesWith(tensor::ExtractSliceOp::create(
        builder, loc, cast<RankedTensorType>(result.getType()), padded, zeros,
        sizes, ones));
  }
  op.erase();
  builder.setInsertionPoint(merge);
  return merge;
}

GatherQueryOp Selector::gatherHeads(CombineLseOp op, Value own, Type all) {
  return GatherQueryOp::create(builder, op.getLoc(), TypeRange{all}, own,
                               ValueRange{}, op.getMeshAttr(), op.getAxisAttr(),
                               TransportAttr(), UnitAttr());
}

/// All-gather of LSEs, weights, sums of own heads, and a gather of the sums
/// where each rank keeps all.
SmallVector<CollectiveOpInterface>
Selector::reduce(CombineLseOp op, SmallVectorImpl<Value> &results) {
  Location loc = op.getLoc();
  FlatSymbolRefAttr mesh = op.getMeshAttr();
  StringAttr axis = op.getAxisAttr();
  int64_t ranks = lookupMeshAxis(op, mesh, axis).axis.getSize();
  auto partial = cast<RankedTensorType>(op.getPartial().getType());
  auto lse = cast<RankedTensorType>(op.getPartialLse().getType());
  int64_t heads = partial.getDimSize(1), own = heads / ranks;
  bool keepsAll = op.keepsAllHeads() && ranks > 1;

  int64_t rows = lse.getDimSize(0);
  auto gathered = RankedTensorType::get(
      {ShapedType::isDynamic(rows) ? rows : rows * ranks, heads},
      lse.getElementType());
  auto lses = GatherRowsOp::create(builder, loc, TypeRange{gathered},
                                   op.getPartialLse(), ValueRange{}, mesh, axis,
                                   TransportAttr(), UnitAttr());
  SmallVector<Type> types{
      RankedTensorType::get(partial.getShape(), builder.getF32Type())};
  if (op.getNumResults() == 2)
    types.push_back(withHeads(op.getResult(1).getType(), heads));
  auto share = WeighPartialOp::create(builder, loc, types, op.getPartial(),
                                      lses.getResult(0), ValueRange{}, mesh,
                                      axis, op.getLseAttr());
  auto sums = ReduceHeadsOp::create(
      builder, loc, TypeRange{withHeads(op.getResult(0).getType(), own)},
      share.getResult(0), ValueRange{}, mesh, axis, TransportAttr());
  SmallVector<CollectiveOpInterface> parts{lses, sums};
  results.push_back(sums.getResult(0));
  if (keepsAll) {
    auto all = gatherHeads(op, sums.getResult(0), op.getResult(0).getType());
    parts.push_back(all);
    results.back() = all.getResult(0);
  }
  if (op.getNumResults() == 1)
    return parts;
  results.push_back(share.getResult(1));
  if (keepsAll || ranks == 1)
    return parts;
  Value me = RankOp::create(builder, loc, builder.getIndexType(), mesh, axis);
  Value first = arith::MulIOp::create(
      builder, loc, me, arith::ConstantIndexOp::create(builder, loc, own));
  SmallVector<OpFoldResult> offsets{builder.getIndexAttr(0), first};
  SmallVector<OpFoldResult> sizes{
      tensor::getMixedSize(builder, loc, share.getResult(1), 0),
      builder.getIndexAttr(own)};
  SmallVector<OpFoldResult> ones(2, builder.getIndexAttr(1));
  results.back() = tensor::ExtractSliceOp::create(
      builder, loc, cast<RankedTensorType>(op.getResult(1).getType()),
      share.getResult(1), offsets, sizes, ones);
  return parts;
}

/// Own heads first, which are then gathered like those of queries.
SmallVector<CollectiveOpInterface>
Selector::mergeAndGather(CombineLseOp op, SmallVectorImpl<Value> &results) {
  Location loc = op.getLoc();
  int64_t ranks =
      lookupMeshAxis(op, op.getMeshAttr(), op.getAxis()).axis.getSize();
  SmallVector<Type> types;
  for (Type type : op.getResultTypes())
    types.push_back(
        withHeads(type, cast<ShapedType>(type).getDimSize(1) / ranks));
  Value sink = op.getSink();
  if (sink) {
    Value me = RankOp::create(builder, loc, builder.getIndexType(),
                              op.getMeshAttr(), op.getAxisAttr());
    sink = takeBlock(builder, loc, sink, me,
                     cast<ShapedType>(types.front()).getDimSize(1));
  }
  auto merge = CombineLseOp::create(
      builder, loc, types, op.getPartial(), op.getPartialLse(), sink,
      ValueRange{}, op.getMeshAttr(), op.getAxisAttr(), op.getLseAttr(),
      TransportAttr(), UnitAttr());
  auto all = gatherHeads(op, merge.getResult(0), op.getResult(0).getType());
  results.push_back(all.getResult(0));
  SmallVector<CollectiveOpInterface> parts{merge, all};
  if (op.getNumResults() == 1)
    return parts;
  // An LSE is a head of one value.
  auto one = [&](Type type) {
    SmallVector<int64_t> shape(cast<ShapedType>(type).getShape());
    shape.push_back(1);
    return RankedTensorType::get(shape,
                                 cast<ShapedType>(type).getElementType());
  };
  SmallVector<ReassociationIndices> columns{{0}, {1, 2}};
  SmallVector<OpFoldResult> shape =
      tensor::getMixedSizes(builder, loc, merge.getResult(1));
  shape.push_back(builder.getIndexAttr(1));
  Value own = tensor::ExpandShapeOp::create(builder, loc, one(types[1]),
                                            merge.getResult(1), columns, shape);
  auto lses = gatherHeads(op, own, one(op.getResult(1).getType()));
  parts.push_back(lses);
  results.push_back(tensor::CollapseShapeOp::create(
      builder, loc, op.getResult(1).getType(), lses.getResult(0), columns));
  return parts;
}

LogicalResult Selector::run() {
  if (hostRanks < 0)
    return emitError(module.getLoc(), "shardq-select-transport: ")
           << "host-ranks is " << hostRanks << ", expected 0 or more";
  if (maxTokens < 1 || maxTokens > std::numeric_limits<int32_t>::max())
    return emitError(module.getLoc(), "shardq-select-transport: ")
           << "max-tokens is " << maxTokens << ", expected 1 to 2147483647";
  if (failed(verifyInFunctionsOf(module)))
    return failure();
  SmallVector<CollectiveOpInterface> collectives;
  module.walk([&](CollectiveOpInterface op) { collectives.push_back(op); });
  bool isForm =
      wanted == TransportChoice::AgRs || wanted == TransportChoice::AgAr;
  isTakenBySome =
      isForm && llvm::any_of(collectives, [&](CollectiveOpInterface op) {
        Facts facts = getFacts(op);
        return facts.isMerge && !op.getTransportAttr() &&
               findObstacle(*getWanted(facts), facts).empty();
      });
  for (CollectiveOpInterface op : collectives)
    if (failed(select(op)))
      return failure();
  return success();
}

namespace {
struct ShardQSelectTransportPass
    : public shardq::impl::ShardQSelectTransportBase<
          ShardQSelectTransportPass> {
  using ShardQSelectTransportBase::ShardQSelectTransportBase;
  void runOnOperation() override {
    if (failed(Selector(getOperation(), transport, target, hostRanks, maxTokens,
                        remarks)
                   .run()))
      signalPassFailure();
  }
};
} // namespace
