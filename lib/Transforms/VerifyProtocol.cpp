//===- VerifyProtocol.cpp - No exchange overwrites unread rows ------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "shardq/Analysis/ExchangeSchedule.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQVERIFYPROTOCOL
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

/// The next push, signal or wait behind `op` in its block; null at its end.
static Operation *nextProtocolOp(Operation *op, ExchangeSchedule &schedule) {
  for (op = op->getNextNode(); op; op = op->getNextNode())
    if (isa<PushOp, SignalOp, WaitOp>(op) || schedule.containsExchange(op))
      return op;
  return nullptr;
}

/// `next` is the OpTy of the same exchange as `push`.
template <typename OpTy>
static LogicalResult expectNext(PushOp push, Operation *next) {
  auto found = dyn_cast_if_present<OpTy>(next);
  if (found && found.getChannel() == push.getChannel() &&
      found.getExchange() == push.getExchange() &&
      found.getDirection() == push.getDirection() &&
      found.getMesh() == push.getMesh() && found.getAxis() == push.getAxis() &&
      found.getOffsets() == push.getOffsets())
    return success();
  InFlightDiagnostic diag =
      push.emitOpError("expects '")
      << OpTy::getOperationName() << "' of exchange " << push.getExchange()
      << " on channel " << push.getChannel()
      << (push.isByOffsets() ? ", by the same offsets" : "")
      << ", behind it in its block";
  if (next)
    diag.attachNote(next->getLoc()) << "found '" << next->getName() << "'";
  return diag;
}

/// What concerns the exchange of `op`, nearest before it in its block.
static Operation *findPreviousPart(Operation *op, uint32_t channel,
                                   uint32_t exchange) {
  auto concerns = [&](auto part) {
    return part.getChannel() == channel && part.getExchange() == exchange;
  };
  while ((op = op->getPrevNode())) {
    bool found = llvm::TypeSwitch<Operation *, bool>(op)
                     .Case<PushOp, SignalOp, WaitOp>(concerns)
                     .Default(false);
    if (found)
      return op;
  }
  return nullptr;
}

/// A push of the rows of blocks: its wait may stand further below.
static bool isInParts(PushOp push) { return bool(push.getBlocks()); }

/// The wait of a push in parts, or one of the same direction without a push.
static bool isInParts(WaitOp wait) {
  if (wait.getDirection() != Direction::GatherRows)
    return false;
  Operation *part = wait;
  while ((part = findPreviousPart(part, wait.getChannel(), wait.getExchange())))
    if (auto push = dyn_cast<PushOp>(part))
      return isInParts(push);
  return true;
}

/// The wait of a push of KV rows: others may stand before it, but no other
/// gather and nothing on its channel.
static FailureOr<Operation *> findGatherWait(PushOp push, Operation *signal) {
  ExchangeSchedule others(
      push->getParentOfType<ModuleOp>(), [&](Operation *op) -> ChannelUse {
        auto other = dyn_cast<PushOp>(op);
        if (!other ||
            (!isInParts(other) && other.getChannel() != push.getChannel()))
          return {};
        return {0, {}};
      });
  Operation *op = signal->getNextNode();
  for (; op; op = op->getNextNode()) {
    auto wait = dyn_cast<WaitOp>(op);
    if (wait && isInParts(wait))
      break;
    if (!others.containsExchange(op))
      continue;
    InFlightDiagnostic diag =
        op->emitOpError("may begin a gather, or use channel ")
        << push.getChannel() << ", while a gather on it is under way";
    diag.attachNote(push.getLoc()) << "that gather begins here";
    return failure();
  }
  if (failed(expectNext<WaitOp>(push, op)))
    return failure();
  return op;
}

/// The plan has the push's channel and exchange, which travel alike, and the
/// capacity fits.
static LogicalResult verifyPlanned(PushOp push, PlanOp plan) {
  if (push.getExchange() >= plan.getExchanges().size()) {
    InFlightDiagnostic diag = push.emitOpError("exchange is ")
                              << push.getExchange() << ", expected below "
                              << plan.getExchanges().size();
    diag.attachNote(plan.getLoc()) << "the exchanges are planned here";
    return diag;
  }
  auto channel = cast<ChannelAttr>(plan.getChannels()[push.getChannel()]);
  TransportAttr transport = push.getTransportAttr();
  bool asks = transport && transport.getValue() == Transport::Nccl;
  if (asks != channel.isCarried()) {
    InFlightDiagnostic diag = push.emitOpError(
        asks ? "is to be carried by NCCL, expected as channel "
             : "is not to be carried by NCCL, expected as channel ");
    diag << push.getChannel()
         << (asks ? ", which does not ask for it" : ", which asks for it");
    diag.attachNote(plan.getLoc()) << "the channel is planned here";
    return diag;
  }
  auto inbox = cast<MemRefType>(push.getInbox().getType());
  int64_t bytes = inbox.getElementTypeBitWidth() / 8;
  bool overflow = llvm::MulOverflow(bytes, int64_t(push.getCapacity()), bytes);
  for (int64_t size : inbox.getShape().drop_front())
    overflow |= llvm::MulOverflow(bytes, size, bytes);
  if (!overflow && bytes <= channel.getBytes())
    return success();
  InFlightDiagnostic diag = push.emitOpError("capacity is ")
                            << push.getCapacity() << " rows of " << inbox
                            << ", expected at most " << channel.getBytes()
                            << " bytes, those of channel " << push.getChannel();
  diag.attachNote(plan.getLoc()) << "the channel is planned here";
  return diag;
}

/// Nothing reads or frees the inbox, through any view, before `wait`.
static LogicalResult verifyNotEarly(PushOp push, Operation *wait) {
  SmallVector<Value> views{push.getInbox()};
  while (!views.empty()) {
    for (Operation *user : views.pop_back_val().getUsers()) {
      if (user == push || isa<memref::DimOp>(user))
        continue;
      if (isa<ViewLikeOpInterface>(user) && isPure(user)) {
        llvm::append_range(views, user->getResults());
        continue;
      }
      if (isa<memref::DeallocOp>(user))
        return user->emitOpError("frees an inbox of the symmetric heap");
      Operation *place = push->getBlock()->findAncestorOpInBlock(*user);
      if (place && !place->isBeforeInBlock(wait))
        continue;
      InFlightDiagnostic diag =
          user->emitOpError("touches the inbox before its rows have arrived");
      diag.attachNote(wait->getLoc()) << "the wait is here";
      return diag;
    }
  }
  return success();
}

/// Where members cannot share rows that are scattered, the wait expects some
/// more than the group signals, which is how the runtime comes to tell.
static bool expectsSignalledRows(SignalOp signal, WaitOp wait) {
  if (signal.getRows() == wait.getRows())
    return true;
  auto more = wait.getRows() ? wait.getRows().getDefiningOp<arith::AddIOp>()
                             : arith::AddIOp();
  return wait.getDirection() == Direction::ScatterRows && more &&
         more.getLhs() == signal.getRows();
}

static LogicalResult verifyPush(PushOp push, ExchangeSchedule &schedule,
                                SymbolTableCollection &symbols) {
  Operation *signal = nextProtocolOp(push, schedule);
  if (failed(expectNext<SignalOp>(push, signal)))
    return failure();
  Operation *wait = nextProtocolOp(signal, schedule);
  if (isInParts(push)) {
    FailureOr<Operation *> found = findGatherWait(push, signal);
    if (failed(found))
      return failure();
    wait = *found;
  } else if (failed(expectNext<WaitOp>(push, wait))) {
    return failure();
  }
  if (!expectsSignalledRows(cast<SignalOp>(signal), cast<WaitOp>(wait))) {
    InFlightDiagnostic diag =
        wait->emitOpError("expects as many rows as the group signals");
    diag.attachNote(signal->getLoc()) << "the signal is here";
    return diag;
  }

  // The inbox is named when no exchange of its channel is under way: which
  // generation it is depends on that.
  auto workspace = push.getInbox().getDefiningOp<WorkspaceOp>();
  if (!workspace || workspace.getChannel() != push.getChannel() ||
      workspace->getBlock() != push->getBlock() ||
      nextProtocolOp(workspace, schedule) != push)
    return push.emitOpError("expects the inbox to be the 'shardq.workspace' of "
                            "channel ")
           << push.getChannel()
           << ", in its block with no other exchange between";
  auto plan = symbols.lookupNearestSymbolFrom<PlanOp>(workspace,
                                                      workspace.getPlanAttr());
  if (failed(verifyPlanned(push, plan)) || failed(verifyNotEarly(push, wait)))
    return failure();
  if (Operation *late = schedule.findLateUse(push.getInbox(), wait)) {
    InFlightDiagnostic diag = late->emitOpError(
        "may touch the inbox when the next exchange has begun");
    diag.attachNote(push.getLoc()) << "of this exchange";
    return diag;
  }
  return success();
}

/// The part of the wait's gather that stands before it: its signal, unless
/// something else that concerns the exchange lies between.
static Operation *findGatherPart(WaitOp wait) {
  return findPreviousPart(wait, wait.getChannel(), wait.getExchange());
}

/// A signal or wait that no push precedes.
static LogicalResult verifyNotAlone(Operation *op) {
  Operation *previous = op->getPrevNode();
  while (previous && !isa<PushOp, SignalOp, WaitOp>(previous))
    previous = previous->getPrevNode();
  if (auto wait = dyn_cast<WaitOp>(op); wait && isInParts(wait))
    previous = findGatherPart(wait);
  bool expected = isa<SignalOp>(op) ? isa_and_present<PushOp>(previous)
                                    : isa_and_present<SignalOp>(previous);
  if (expected)
    return success();
  return op->emitOpError("expects '")
         << (isa<SignalOp>(op) ? PushOp::getOperationName()
                               : SignalOp::getOperationName())
         << "' of its exchange before it in its block";
}

/// One generation only where another exchange acknowledges each use.
static LogicalResult verifyGenerations(PushOp push, ChannelUse use,
                                       ExchangeSchedule &schedule,
                                       SymbolTableCollection &symbols) {
  auto workspace = push.getInbox().getDefiningOp<WorkspaceOp>();
  auto plan = symbols.lookupNearestSymbolFrom<PlanOp>(workspace,
                                                      workspace.getPlanAttr());
  auto channel = cast<ChannelAttr>(plan.getChannels()[push.getChannel()]);
  if (channel.getGenerations() >= 2)
    return success();
  Operation *unacknowledged = schedule.findUnacknowledged(use);
  if (!unacknowledged)
    return success();
  InFlightDiagnostic diag =
      unacknowledged->emitOpError("may overwrite rows that a peer still reads: "
                                  "no other exchange lies between it and the "
                                  "one before it on channel ")
      << push.getChannel() << ", which has one generation";
  diag.attachNote(plan.getLoc()) << "the channel is planned here";
  return diag;
}

static LogicalResult verifyProtocol(ModuleOp module) {
  SymbolTableCollection symbols;
  auto classify = [](Operation *op) -> ChannelUse {
    using Part = ChannelUse::Part;
    auto getUse = [&](auto part) -> ChannelUse {
      Attribute group = ArrayAttr::get(
          op->getContext(), {part.getMeshAttr(), part.getAxisAttr()});
      return {part.getChannel(), group};
    };
    if (auto push = dyn_cast<PushOp>(op)) {
      ChannelUse use = getUse(push);
      if (isInParts(push))
        use.part = Part::Start;
      return use;
    }
    auto wait = dyn_cast<WaitOp>(op);
    if (!wait || !isInParts(wait))
      return {};
    ChannelUse use = getUse(wait);
    use.part = Part::Finish;
    use.start = findGatherPart(wait);
    return use;
  };
  ExchangeSchedule schedule(module, classify);
  // The group of each channel: epochs are counted by channel and rank.
  llvm::DenseMap<int64_t, PushOp> channels;
  WalkResult result = module.walk([&](Operation *op) {
    if (isa<SignalOp, WaitOp>(op))
      return WalkResult(verifyNotAlone(op));
    auto push = dyn_cast<PushOp>(op);
    if (!push)
      return WalkResult::advance();
    PushOp first = channels.try_emplace(push.getChannel(), push).first->second;
    if (classify(first).group != classify(push).group) {
      InFlightDiagnostic diag = push.emitOpError("uses channel ")
                                << push.getChannel() << " over axis "
                                << push.getAxisAttr();
      diag.attachNote(first.getLoc())
          << "this one uses it over " << first.getAxisAttr();
      return WalkResult::interrupt();
    }
    if (failed(verifyPush(push, schedule, symbols)))
      return WalkResult::interrupt();
    return WalkResult(
        verifyGenerations(push, classify(push), schedule, symbols));
  });
  return failure(result.wasInterrupted());
}

namespace {
struct ShardQVerifyProtocolPass
    : public shardq::impl::ShardQVerifyProtocolBase<ShardQVerifyProtocolPass> {
  void runOnOperation() override {
    if (failed(verifyInFunctionsOf(getOperation())) ||
        failed(verifySameExchangesOnAllRanks(getOperation())) ||
        failed(verifyProtocol(getOperation())))
      signalPassFailure();
  }
};
} // namespace
