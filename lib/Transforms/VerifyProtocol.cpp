//===- VerifyProtocol.cpp - No exchange overwrites unread rows ------------===//

#include "shardq/Transforms/Passes.h"
#include "shardq/Analysis/ExchangeSchedule.h"
#include "shardq/IR/ShardQ.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

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
      found.getMesh() == push.getMesh() && found.getAxis() == push.getAxis())
    return success();
  InFlightDiagnostic diag = push.emitOpError("expects '")
                            << OpTy::getOperationName() << "' of exchange "
                            << push.getExchange() << " on channel "
                            << push.getChannel() << " behind it in its block";
  if (next)
    diag.attachNote(next->getLoc()) << "found '" << next->getName() << "'";
  return diag;
}

static LogicalResult verifyPush(PushOp push, ExchangeSchedule &schedule,
                                SymbolTableCollection &symbols) {
  Operation *signal = nextProtocolOp(push, schedule);
  if (failed(expectNext<SignalOp>(push, signal)))
    return failure();
  Operation *wait = nextProtocolOp(signal, schedule);
  if (failed(expectNext<WaitOp>(push, wait)))
    return failure();

  // The inbox comes from the workspace of this channel, through views.
  Value inbox = push.getInbox();
  auto workspace = inbox.getDefiningOp<WorkspaceOp>();
  if (!workspace || workspace.getChannel() != push.getChannel())
    return push.emitOpError("expects the inbox to be the 'shardq.workspace' of "
                            "channel ")
           << push.getChannel();
  for (Operation *user : inbox.getUsers()) {
    Operation *place = push->getBlock()->findAncestorOpInBlock(*user);
    if (user == push || isa<memref::DimOp>(user))
      continue;
    if (!place || place->isBeforeInBlock(wait)) {
      // Views may be made early; what matters is what reads through them.
      if (isPure(user) && place)
        continue;
      InFlightDiagnostic diag =
          user->emitOpError("touches the inbox before its rows have arrived");
      diag.attachNote(wait->getLoc()) << "the wait is here";
      return diag;
    }
  }
  if (Operation *late = schedule.findLateUse(inbox, wait)) {
    InFlightDiagnostic diag = late->emitOpError(
        "may touch the inbox when the next exchange has begun");
    diag.attachNote(push.getLoc()) << "of this exchange";
    return diag;
  }
  return success();
}

static LogicalResult verifyProtocol(ModuleOp module) {
  SymbolTableCollection symbols;
  auto getGroup = [](PushOp push) -> Attribute {
    return ArrayAttr::get(push.getContext(),
                          {push.getMeshAttr(), push.getAxisAttr()});
  };
  ExchangeSchedule schedule(module, [&](Operation *op) -> ChannelUse {
    if (auto push = dyn_cast<PushOp>(op))
      return {push.getChannel(), getGroup(push)};
    return {};
  });
  WalkResult result = module.walk([&](Operation *op) {
    if (isa<SignalOp, WaitOp>(op)) {
      // Every push is followed by its own; any other has no push.
      Operation *previous = op->getPrevNode();
      while (previous && !isa<PushOp, SignalOp, WaitOp>(previous))
        previous = previous->getPrevNode();
      bool expected = isa<SignalOp>(op) ? isa_and_present<PushOp>(previous)
                                        : isa_and_present<SignalOp>(previous);
      if (expected)
        return WalkResult::advance();
      op->emitOpError("expects '")
          << (isa<SignalOp>(op) ? PushOp::getOperationName()
                                : SignalOp::getOperationName())
          << "' of its exchange before it in its block";
      return WalkResult::interrupt();
    }
    auto push = dyn_cast<PushOp>(op);
    if (!push)
      return WalkResult::advance();
    if (failed(verifyPush(push, schedule, symbols)))
      return WalkResult::interrupt();
    auto workspace = push.getInbox().getDefiningOp<WorkspaceOp>();
    auto plan = symbols.lookupNearestSymbolFrom<PlanOp>(
        workspace, workspace.getPlanAttr());
    auto channel = cast<ChannelAttr>(plan.getChannels()[push.getChannel()]);
    if (channel.getGenerations() >= 2)
      return WalkResult::advance();
    Operation *unacknowledged =
        schedule.findUnacknowledged({push.getChannel(), getGroup(push)});
    if (!unacknowledged)
      return WalkResult::advance();
    InFlightDiagnostic diag =
        unacknowledged->emitOpError("may overwrite rows that a peer still "
                                    "reads: no other exchange lies between it "
                                    "and the one before it on channel ")
        << push.getChannel() << ", which has one generation";
    diag.attachNote(plan.getLoc()) << "the channel is planned here";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct ShardQVerifyProtocolPass
    : public shardq::impl::ShardQVerifyProtocolBase<ShardQVerifyProtocolPass> {
  void runOnOperation() override {
    if (failed(verifySameExchangesOnAllRanks(getOperation())) ||
        failed(verifyProtocol(getOperation())))
      signalPassFailure();
  }
};
} // namespace
