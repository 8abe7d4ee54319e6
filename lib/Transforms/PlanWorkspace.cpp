//===- PlanWorkspace.cpp - Channels, capacities, push, signal, wait -------===//

#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "shardq/Analysis/ExchangeSchedule.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/xxhash.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQPLANWORKSPACE
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

/// Inboxes begin at multiples of this: a whole number of cache lines, and
/// enough for any vector store.
static constexpr int64_t kInboxAlignment = 256;

static Attribute getGroup(CollectiveOpInterface op) {
  return ArrayAttr::get(op.getContext(), {op.getMeshAttr(), op.getAxisAttr()});
}

/// Where peers write the destination itself: what is an inbox, and becomes part
/// of the workspace. Null for a merge or a sum, which have an inbox of their
/// own.
static Value getInboxOperand(CollectiveOpInterface op) {
  if (isa<CombineLseOp, ReduceHeadsOp>(op))
    return {};
  return cast<TwoFormOpInterface>(*op).getOuts().front();
}

static ValueRange getSources(CollectiveOpInterface op) {
  if (auto exchange = dyn_cast<ExchangeOp>(*op))
    return exchange.getSources();
  // A sink stays here.
  if (auto merge = dyn_cast<CombineLseOp>(*op))
    return merge->getOperands().take_front(2);
  // What others have for operands are sources and destinations.
  return cast<TwoFormOpInterface>(*op).getIns();
}

/// Whether NCCL is to carry the rows.
static bool asksForNccl(CollectiveOpInterface op) {
  TransportAttr transport = op.getTransportAttr();
  return transport && transport.getValue() == Transport::Nccl;
}

/// Whether the sources are shards of one step's rows.
static bool hasTokenShards(CollectiveOpInterface op) {
  auto gather = dyn_cast<GatherRowsOp>(*op);
  return gather && gather.getTokenShards();
}

/// Whether a number of rows is known to be a multiple of `ranks`.
static bool isMultipleOf(Value rows, int64_t ranks) {
  if (std::optional<int64_t> constant = getConstantIntValue(rows))
    return *constant % ranks == 0;
  Operation *op = rows.getDefiningOp();
  if (auto product = dyn_cast_if_present<arith::MulIOp>(op))
    return isMultipleOf(product.getLhs(), ranks) ||
           isMultipleOf(product.getRhs(), ranks);
  auto dim = dyn_cast_if_present<memref::DimOp>(op);
  if (!dim || dim.getConstantIndex() != 0 ||
      !isa<MemRefType>(dim.getSource().getType()))
    return false;
  Value buffer = dim.getSource();
  while (isa_and_present<memref::CastOp, memref::MemorySpaceCastOp>(
      buffer.getDefiningOp()))
    buffer = buffer.getDefiningOp()->getOperand(0);
  auto type = cast<MemRefType>(buffer.getType());
  if (!type.isDynamicDim(0))
    return type.getDimSize(0) % ranks == 0;
  if (auto alloc = buffer.getDefiningOp<memref::AllocOp>())
    return isMultipleOf(alloc.getDynamicSizes().front(), ranks);
  if (auto inbox = buffer.getDefiningOp<WorkspaceOp>())
    return isMultipleOf(inbox.getSizes().front(), ranks);
  return false;
}

/// Forms of a merge that are made of other ops.
static LogicalResult verifyIsPlain(CollectiveOpInterface op) {
  auto merge = dyn_cast<CombineLseOp>(*op);
  if (!merge)
    return success();
  TransportAttr transport = merge.getTransportAttr();
  bool isPlain = !transport || transport.getValue() == Transport::Direct ||
                 transport.getValue() == Transport::Nccl;
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxisAttr());
  if (isPlain && (!merge.keepsAllHeads() || over.axis.getSize() == 1))
    return success();
  return merge.emitOpError(isPlain ? "keeps all heads on each rank"
                                   : "has a transport that is made of ops")
         << ": run shardq-select-transport before bufferization";
}

namespace {

struct Channel {
  std::string name;
  int64_t capacity;
  int64_t bytes;
  int64_t generations;
  bool isCarried;
};

/// What makes two exchanges use one channel.
using ChannelKey = std::pair<Attribute, Type>;

class Planner {
public:
  Planner(ModuleOp module, int64_t maxTokens, int64_t maxRequests,
          int64_t maxKvTokens, int64_t slots)
      : module(module), maxTokens(maxTokens), maxRequests(maxRequests),
        maxKvTokens(maxKvTokens), slots(slots), builder(module.getContext()) {}

  LogicalResult run();

private:
  LogicalResult collect();
  LogicalResult prepareBuffer(CollectiveOpInterface op, Value out);
  ChannelKey getKey(CollectiveOpInterface op);
  int64_t getCapacity(CollectiveOpInterface op);
  int64_t getRankRows(int64_t ranks) const;
  int64_t getRunBlocks(int64_t blockSize);
  int64_t getGatheredBlocks(int64_t ranks, int64_t blockSize);
  LogicalResult addChannel(CollectiveOpInterface op);
  void copyOut(CollectiveOpInterface op, Value out);
  void setGates();
  PlanOp createPlan();
  void lower(CollectiveOpInterface op, int64_t number, PlanOp plan);
  void lowerGather(GatherKvFinishOp op, int64_t number, PlanOp plan);
  Value getInboxRows(CollectiveOpInterface op, Value rows);
  std::pair<Value, Value> getRows(CollectiveOpInterface op, Value source);
  void fillOtherRows(ExchangeOp op, Value inbox);

  ModuleOp module;
  int64_t maxTokens, maxRequests, maxKvTokens, slots;
  OpBuilder builder;
  SmallVector<CollectiveOpInterface> exchanges;
  llvm::MapVector<ChannelKey, Channel> channels;
};

} // namespace

/// The exchange's destination is an allocation that nothing touches before the
/// exchange fills it: the workspace takes its place.
LogicalResult Planner::prepareBuffer(CollectiveOpInterface op, Value out) {
  auto alloc = out.getDefiningOp<memref::AllocOp>();
  if (!alloc || alloc->getBlock() != op->getBlock())
    return op->emitOpError(
        "writes to a buffer that is not a memref.alloc of its "
        "block: the workspace takes its place");
  for (Operation *user : llvm::make_early_inc_range(out.getUsers())) {
    Operation *place = op->getBlock()->findAncestorOpInBlock(*user);
    if (user == op || (place && op->isBeforeInBlock(place) &&
                       !isa<memref::DeallocOp, CollectiveOpInterface>(user)))
      continue;
    // The heap is freed as a whole.
    if (isa<memref::DeallocOp>(user)) {
      user->erase();
      continue;
    }
    // Bufferization makes views early; the workspace stands at the exchange.
    if (isa<memref::MemorySpaceCastOp>(user) && place == user) {
      user->moveAfter(op);
      continue;
    }
    InFlightDiagnostic diag =
        op->emitOpError("writes to a buffer that has another use before it, or "
                        "is another exchange's too");
    diag.attachNote(user->getLoc()) << "the other use is here";
    return diag;
  }
  return success();
}

LogicalResult Planner::collect() {
  WalkResult result = module.walk([&](CollectiveOpInterface op) {
    if (!cast<TwoFormOpInterface>(*op).isOnBuffers()) {
      op->emitOpError("is on tensors: bufferize before planning the workspace");
      return WalkResult::interrupt();
    }
    if (!exchanges.empty() &&
        exchanges.front().getMeshAttr() != op.getMeshAttr()) {
      InFlightDiagnostic diag = op->emitOpError("exchanges over mesh ")
                                << op.getMeshAttr();
      diag.attachNote(exchanges.front().getLoc())
          << "this one over " << exchanges.front().getMeshAttr()
          << ": a module's exchanges share one mesh";
      return WalkResult::interrupt();
    }
    exchanges.push_back(op);
    return WalkResult(verifyIsPlain(op));
  });
  if (result.wasInterrupted())
    return failure();
  for (CollectiveOpInterface op : exchanges)
    if (Value out = getInboxOperand(op))
      if (failed(prepareBuffer(op, out)))
        return failure();
  return success();
}

ChannelKey Planner::getKey(CollectiveOpInterface op) {
  MemRefType inbox = op.getInboxType();
  SmallVector<int64_t> shape(inbox.getShape());
  shape.front() = ShapedType::kDynamic;
  SmallVector<Attribute> key{
      getGroup(op),
      DirectionAttr::get(builder.getContext(), op.getDirection())};
  // The capacity depends on it.
  if (auto finish = dyn_cast<GatherKvFinishOp>(*op))
    key.push_back(finish.getStart().getBlockSizeAttr());
  if (hasTokenShards(op))
    key.push_back(builder.getUnitAttr());
  // A channel travels one way.
  if (asksForNccl(op))
    key.push_back(
        TransportAttr::get(builder.getContext(), Transport::Nccl, {}));
  return {builder.getArrayAttr(key),
          MemRefType::get(shape, inbox.getElementType())};
}

int64_t Planner::getRankRows(int64_t ranks) const {
  return llvm::divideCeil(maxTokens, ranks) + 2 * maxRequests;
}

/// Blocks of the longest run of the interleave, among those of that size.
int64_t Planner::getRunBlocks(int64_t blockSize) {
  int64_t most = 1;
  module.walk([&](GatherBlocksOp op) {
    if (int64_t(op.getBlockSize()) == blockSize)
      most = std::max<int64_t>(
          most, llvm::divideCeil(int64_t(op.getInterleave()), blockSize));
  });
  return most;
}

/// Blocks that a rank sends of the largest step: those of a request on rank 0
/// are `ceil(tokens / (ranks * run))` runs, and no more than all of it.
int64_t Planner::getGatheredBlocks(int64_t ranks, int64_t blockSize) {
  int64_t whole = llvm::divideCeil(maxKvTokens, blockSize) + maxRequests;
  int64_t last;
  if (llvm::MulOverflow(maxRequests, getRunBlocks(blockSize), last))
    return whole;
  int64_t shared = llvm::divideCeil(maxKvTokens, ranks * blockSize);
  return last > whole ? whole : std::min(shared + last, whole);
}

/// Rows of the inbox for the largest step.
int64_t Planner::getCapacity(CollectiveOpInterface op) {
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxisAttr());
  int64_t ranks = over.axis.getSize();
  switch (op.getDirection()) {
  case Direction::TokensToHeads:
  case Direction::GatherHeads:
    return maxTokens;
  case Direction::HeadsToTokens:
    return getRankRows(ranks);
  case Direction::ScatterHeads:
    return maxTokens * ranks;
  case Direction::ScatterRows:
    return llvm::alignTo(maxTokens, ranks);
  case Direction::GatherRows: {
    auto finish = dyn_cast<GatherKvFinishOp>(*op);
    if (hasTokenShards(op))
      return llvm::alignTo(maxTokens, ranks);
    if (!finish)
      return getMostChunkRows(maxTokens, maxRequests) * ranks;
    int64_t blockSize = finish.getStart().getBlockSize();
    int64_t rows;
    if (llvm::MulOverflow(getGatheredBlocks(ranks, blockSize) * ranks,
                          blockSize, rows))
      return std::numeric_limits<int64_t>::max();
    return rows;
  }
  }
  llvm_unreachable("unknown direction");
}

LogicalResult Planner::addChannel(CollectiveOpInterface op) {
  MemRefType inbox = op.getInboxType();
  Channel channel;
  llvm::raw_string_ostream name(channel.name);
  name << stringifyDirection(op.getDirection()) << " ";
  int64_t rowBytes = inbox.getElementTypeBitWidth() / 8;
  for (int64_t size : inbox.getShape().drop_front()) {
    name << size << "x";
    if (llvm::MulOverflow(rowBytes, size, rowBytes))
      rowBytes = -1;
  }
  name << inbox.getElementType();
  channel.isCarried = asksForNccl(op);
  if (channel.isCarried)
    name << " by nccl";
  channel.capacity = getCapacity(op);
  if (rowBytes < 0 ||
      llvm::MulOverflow(rowBytes, channel.capacity, channel.bytes) ||
      channel.bytes > (int64_t(1) << 48))
    return op->emitOpError("needs an inbox of ")
           << channel.capacity << " rows of " << inbox
           << ", expected at most 2^48 bytes";
  channel.bytes = llvm::alignTo(channel.bytes, kInboxAlignment);
  // Of rows that are open the run time sees to that.
  int64_t rows = inbox.getDimSize(0), bytes;
  if (!inbox.isDynamicDim(0) &&
      (llvm::MulOverflow(rowBytes, rows, bytes) || bytes > channel.bytes))
    return op->emitOpError("has an inbox of ")
           << rows << " rows by its types, expected at most "
           << channel.capacity << ", those of the largest step (max-tokens is "
           << maxTokens << ", max-requests " << maxRequests << ")";
  channel.generations = 1;
  channels.try_emplace(getKey(op), channel);
  return success();
}

/// Moves the result into a buffer of its own, behind the exchange.
void Planner::copyOut(CollectiveOpInterface op, Value out) {
  auto alloc = out.getDefiningOp<memref::AllocOp>();
  MemRefType inbox = op.getInboxType();
  builder.setInsertionPointAfter(op);
  Value copy = memref::AllocOp::create(
      builder, op->getLoc(),
      MemRefType::get(inbox.getShape(), inbox.getElementType()),
      alloc.getDynamicSizes(), builder.getI64IntegerAttr(64));
  auto copied = memref::CopyOp::create(builder, op->getLoc(), alloc, copy);
  alloc.getResult().replaceUsesWithIf(copy, [&](OpOperand &use) {
    return use.getOwner() != op && use.getOwner() != copied;
  });
  // The casts to the default space that consumers went through.
  for (Operation *user : llvm::make_early_inc_range(copy.getUsers()))
    if (auto cast = dyn_cast<memref::MemorySpaceCastOp>(user)) {
      cast.getResult().replaceAllUsesWith(copy);
      cast.erase();
    }
}

/// The gate keeps larger steps than planned out of the exchanges.
void Planner::setGates() {
  auto lower = [&](std::optional<uint64_t> have, int64_t planned) {
    return have ? std::min<int64_t>(*have, planned) : planned;
  };
  module.walk([&](SplitGateOp gate) {
    int64_t ranks =
        cast<ShapedType>(gate.getOffsets().getType()).getDimSize(0) - 1;
    gate.setMaxRankRows(lower(gate.getMaxRankRows(), getRankRows(ranks)));
    gate.setMaxRows(lower(gate.getMaxRows(), maxTokens));
  });
  module.walk([&](GatherGateOp gate) {
    MeshAxis over = lookupMeshAxis(gate, gate.getMeshAttr(), gate.getAxis());
    gate.setMaxBlocks(
        lower(gate.getMaxBlocks(),
              getGatheredBlocks(over.axis.getSize(), gate.getBlockSize())));
  });
}

PlanOp Planner::createPlan() {
  SmallVector<Attribute> channelAttrs, names;
  int64_t offset = 0;
  for (auto &[key, channel] : channels) {
    // The reasons are the exchanges', and say nothing to other ranks.
    TransportAttr transport =
        channel.isCarried
            ? TransportAttr::get(builder.getContext(), Transport::Nccl, {})
            : TransportAttr();
    channelAttrs.push_back(ChannelAttr::get(builder.getContext(), channel.name,
                                            offset, channel.bytes,
                                            channel.generations, transport));
    offset += channel.bytes * channel.generations;
  }
  // What must agree between ranks that exchange: every channel, also in how it
  // travels, and every exchange in order with its function.
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (Attribute channel : channelAttrs)
    stream << channel << ";";
  for (auto [number, op] : llvm::enumerate(exchanges)) {
    auto function = op->getParentOfType<FunctionOpInterface>();
    StringRef where = function ? SymbolTable::getSymbolName(function).getValue()
                               : StringRef("module");
    names.push_back(
        builder.getStringAttr(Twine(stringifyDirection(op.getDirection())) +
                              " exchange " + Twine(number) + " of @" + where));
    stream << names.back() << ";";
    // Ranks of which some push and others send would wait for each other.
    if (TransportAttr transport = op.getTransportAttr();
        transport && transport.getValue() != Transport::Direct)
      stream << stringifyTransport(transport.getValue()) << ";";
  }
  stream << slots;
  auto mesh = exchanges.front().getMeshAttr();
  stream
      << SymbolTable::lookupNearestSymbolFrom<MeshOp>(module, mesh).getAxes();

  SymbolTable symbols(module);
  builder.setInsertionPointToStart(module.getBody());
  auto plan = PlanOp::create(
      builder, module.getLoc(), builder.getStringAttr("plan"), mesh,
      builder.getI64IntegerAttr(slots), builder.getI64IntegerAttr(offset),
      builder.getI64IntegerAttr(int64_t(llvm::xxh3_64bits(text) >> 1)),
      builder.getArrayAttr(channelAttrs), builder.getArrayAttr(names),
      StringAttr());
  symbols.insert(plan);
  return plan;
}

/// Rows that no peer sends: decode rows, and graph padding.
void Planner::fillOtherRows(ExchangeOp op, Value inbox) {
  Location loc = op.getLoc();
  auto rowsAt = [&](Value begin, Value size) -> Value {
    SmallVector<OpFoldResult> sizes =
        memref::getMixedSizes(builder, loc, inbox);
    SmallVector<OpFoldResult> offsets(sizes.size(), builder.getIndexAttr(0));
    SmallVector<OpFoldResult> ones(sizes.size(), builder.getIndexAttr(1));
    offsets.front() = begin;
    sizes.front() = size;
    return memref::SubViewOp::create(builder, loc, inbox, offsets, sizes, ones);
  };
  Value zeroIndex = arith::ConstantIndexOp::create(builder, loc, 0);
  Type element = op.getInboxType().getElementType();
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(element));
  // Held inside the inbox, whatever the operands say.
  Value all = memref::DimOp::create(builder, loc, inbox, 0);
  Value decodes = arith::MinSIOp::create(
      builder, loc, all,
      arith::MaxSIOp::create(builder, loc, op.getDecodes(), zeroIndex));
  Value decodeRows = rowsAt(zeroIndex, decodes);
  if (op.getAfter())
    memref::CopyOp::create(builder, loc, op.getAfter(), decodeRows);
  else
    linalg::FillOp::create(builder, loc, zero, decodeRows);

  int64_t last = cast<ShapedType>(op.getOffsets().getType()).getDimSize(0) - 1;
  Value tokens = arith::IndexCastOp::create(
      builder, loc, builder.getIndexType(),
      memref::LoadOp::create(
          builder, loc, op.getOffsets(),
          ValueRange{arith::ConstantIndexOp::create(builder, loc, last)}));
  Value end = arith::AddIOp::create(
      builder, loc, decodes,
      arith::MaxSIOp::create(builder, loc, tokens, zeroIndex));
  end = arith::MinSIOp::create(builder, loc, end, all);
  Value padding = arith::SubIOp::create(builder, loc, all, end);
  linalg::FillOp::create(builder, loc, zero, rowsAt(end, padding));
}

/// Rows that each member sends to each, and those that each waits for. They
/// differ where members cannot share the source's rows, which the wait tells.
std::pair<Value, Value> Planner::getRows(CollectiveOpInterface op,
                                         Value source) {
  Location loc = op->getLoc();
  Value all = memref::DimOp::create(
      builder, loc, source, arith::ConstantIndexOp::create(builder, loc, 0));
  if (op.getDirection() != Direction::ScatterRows)
    return {all, all};
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxisAttr());
  int64_t size = over.axis.getSize();
  Value ranks = arith::ConstantIndexOp::create(builder, loc, size);
  Value rows = arith::DivUIOp::create(builder, loc, all, ranks);
  if (isMultipleOf(all, size))
    return {rows, rows};
  Value rest = arith::RemUIOp::create(builder, loc, all, ranks);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value more = arith::MinUIOp::create(builder, loc, rest, one);
  return {rows, arith::AddIOp::create(builder, loc, rows, more)};
}

/// Rows of the inbox of a gather or a merge, from those of each member.
Value Planner::getInboxRows(CollectiveOpInterface op, Value rows) {
  if (op.getDirection() != Direction::ScatterHeads &&
      op.getDirection() != Direction::ScatterRows)
    return rows;
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxisAttr());
  Value ranks = arith::ConstantIndexOp::create(builder, op->getLoc(),
                                               over.axis.getSize());
  return arith::MulIOp::create(builder, op->getLoc(), rows, ranks);
}

/// The rows leave at the start and are waited for at the finish.
void Planner::lowerGather(GatherKvFinishOp op, int64_t number, PlanOp plan) {
  GatherKvStartOp start = op.getStart();
  auto alloc = op.getOuts().front().getDefiningOp<memref::AllocOp>();
  auto *channel = channels.find(getKey(op));
  auto index = builder.getI32IntegerAttr(channel - channels.begin());
  auto id = builder.getI32IntegerAttr(number);
  auto direction =
      DirectionAttr::get(builder.getContext(), Direction::GatherRows);
  FlatSymbolRefAttr mesh = start.getMeshAttr();
  StringAttr axis = start.getAxisAttr();
  int64_t ranks = lookupMeshAxis(start, mesh, axis).axis.getSize();

  Location loc = start.getLoc();
  builder.setInsertionPoint(start);
  Value rows = start.createRows(builder);
  Value size = arith::MulIOp::create(
      builder, loc, rows, arith::ConstantIndexOp::create(builder, loc, ranks));
  Value inbox = WorkspaceOp::create(
      builder, loc, op.getInboxType(),
      FlatSymbolRefAttr::get(plan.getSymNameAttr()), index, size);
  PushOp::create(builder, loc, direction, start.getSources(), Value(), Value(),
                 Value(), start.getBlocks(), inbox, mesh, axis, index, id,
                 builder.getI64IntegerAttr(channel->second.capacity),
                 start.getBlockSizeAttr(), start.getBlockStrideRowsAttr(),
                 start.getTransportAttr(), UnitAttr());
  SignalOp::create(builder, loc, direction, Value(), rows, mesh, axis, index,
                   id);
  builder.setInsertionPoint(op);
  WaitOp::create(builder, op.getLoc(), direction, Value(), rows, mesh, axis,
                 index, id);
  op.erase();
  start.erase();
  alloc.getResult().replaceAllUsesWith(inbox);
  alloc.erase();
}

void Planner::lower(CollectiveOpInterface op, int64_t number, PlanOp plan) {
  if (auto finish = dyn_cast<GatherKvFinishOp>(*op))
    return lowerGather(finish, number, plan);
  Location loc = op->getLoc();
  auto exchange = dyn_cast<ExchangeOp>(*op);
  memref::AllocOp alloc;
  if (Value out = getInboxOperand(op))
    alloc = out.getDefiningOp<memref::AllocOp>();
  ValueRange sources = getSources(op);
  auto *channel = channels.find(getKey(op));
  auto index = builder.getI32IntegerAttr(channel - channels.begin());
  auto id = builder.getI32IntegerAttr(number);
  auto planName = FlatSymbolRefAttr::get(plan.getSymNameAttr());

  builder.setInsertionPoint(op);
  Value rows, awaited, ids, offsets, decodes;
  if (exchange) {
    ids = exchange.getIds();
    offsets = exchange.getOffsets();
    decodes = exchange.getDecodes();
  } else {
    std::tie(rows, awaited) = getRows(op, sources.front());
  }
  SmallVector<Value> sizes;
  if (alloc)
    sizes = alloc.getDynamicSizes();
  else
    sizes = {getInboxRows(op, rows)};
  auto direction = DirectionAttr::get(builder.getContext(), op.getDirection());
  auto gather = dyn_cast<GatherQueryOp>(*op);
  UnitAttr padded = gather ? gather.getPaddedHeadsAttr() : UnitAttr();
  Value inbox = WorkspaceOp::create(builder, loc, op.getInboxType(), planName,
                                    index, sizes);
  PushOp::create(builder, loc, direction, sources, ids, offsets, decodes,
                 Value(), inbox, op.getMeshAttr(), op.getAxisAttr(), index, id,
                 builder.getI64IntegerAttr(channel->second.capacity),
                 IntegerAttr(), IntegerAttr(), op.getTransportAttr(), padded);
  SignalOp::create(builder, loc, direction, offsets, rows, op.getMeshAttr(),
                   op.getAxisAttr(), index, id);
  WaitOp::create(builder, loc, direction, offsets, awaited, op.getMeshAttr(),
                 op.getAxisAttr(), index, id);
  if (auto reduce = dyn_cast<ReduceHeadsOp>(*op))
    SumPartialsOp::create(builder, loc, inbox, reduce.getOuts()[0],
                          reduce.getMeshAttr(), reduce.getAxisAttr());
  else if (auto merge = dyn_cast<CombineLseOp>(*op))
    MergeLseOp::create(builder, loc, inbox, merge.getOuts()[0],
                       merge.getOuts().size() == 2 ? merge.getOuts()[1]
                                                   : Value(),
                       merge.getSink(), merge.getMeshAttr(),
                       merge.getAxisAttr(), merge.getLseAttr());
  else if (op.getDirection() == Direction::TokensToHeads)
    fillOtherRows(exchange, inbox);
  op->erase();
  if (alloc) {
    alloc.getResult().replaceAllUsesWith(inbox);
    alloc.erase();
  }
}

LogicalResult Planner::run() {
  auto inRange = [](int64_t value) {
    return value > 0 && value <= std::numeric_limits<int32_t>::max();
  };
  for (auto [name, value] :
       {std::pair<StringRef, int64_t>{"max-tokens", maxTokens},
        {"max-requests", maxRequests},
        {"max-kv-tokens", maxKvTokens},
        {"slots", slots}})
    if (!inRange(value))
      return emitError(module.getLoc(), "shardq-plan-workspace: ")
             << name << " is " << value << ", expected 1 to 2147483647";
  if (failed(verifyInFunctionsOf(module)) || failed(collect()))
    return failure();
  setGates();
  if (exchanges.empty())
    return success();
  if (!module.getOps<PlanOp>().empty()) {
    InFlightDiagnostic diag = exchanges.front()->emitOpError(
        "is not part of the module's plan: plan all exchanges at once");
    diag.attachNote((*module.getOps<PlanOp>().begin()).getLoc())
        << "the plan is here";
    return diag;
  }
  for (CollectiveOpInterface op : exchanges)
    if (failed(addChannel(op)))
      return failure();

  ExchangeSchedule schedule(module, [&](Operation *op) -> ChannelUse {
    using Part = ChannelUse::Part;
    auto start = dyn_cast<GatherKvStartOp>(op);
    auto exchange = dyn_cast<CollectiveOpInterface>(
        start ? start.getFinish().getOperation() : op);
    if (!exchange)
      return {};
    auto *channel = channels.find(getKey(exchange));
    ChannelUse use{channel - channels.begin(), getGroup(exchange)};
    if (auto finish = dyn_cast<GatherKvFinishOp>(op)) {
      use.part = Part::Finish;
      use.start = finish.getStart();
    } else if (start) {
      use.part = Part::Start;
    }
    return use;
  });
  for (CollectiveOpInterface op : exchanges) {
    auto *channel = channels.find(getKey(op));
    if (schedule.findUnacknowledged({channel - channels.begin(), getGroup(op)}))
      channel->second.generations = 2;
  }
  for (CollectiveOpInterface op : exchanges)
    if (Value out = getInboxOperand(op); out && schedule.findLateUse(out, op))
      copyOut(op, out);

  PlanOp plan = createPlan();
  for (auto [number, op] : llvm::enumerate(exchanges))
    lower(op, number, plan);
  return success();
}

namespace {
struct ShardQPlanWorkspacePass
    : public shardq::impl::ShardQPlanWorkspaceBase<ShardQPlanWorkspacePass> {
  using ShardQPlanWorkspaceBase::ShardQPlanWorkspaceBase;
  void runOnOperation() override {
    if (failed(
            Planner(getOperation(), maxTokens, maxRequests, maxKvTokens, slots)
                .run()))
      signalPassFailure();
  }
};
} // namespace
