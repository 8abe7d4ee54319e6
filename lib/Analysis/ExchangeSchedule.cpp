//===- ExchangeSchedule.cpp - What lies between exchanges -----------------===//

#include "shardq/Analysis/ExchangeSchedule.h"
#include "shardq/IR/ShardQ.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace mlir::shardq;

ExchangeSchedule::ExchangeSchedule(ModuleOp module, Classify classify)
    : module(module), classify(std::move(classify)) {
  // Functions that exchange, through calls too.
  bool changed = true;
  while (changed) {
    changed = false;
    module.walk([&](FunctionOpInterface function) {
      if (!exchanging.contains(function) && !function.isExternal() &&
          containsExchange(function))
        changed |= exchanging.insert(function).second;
    });
  }
}

bool ExchangeSchedule::containsExchange(Operation *op) {
  return op
      ->walk([&](Operation *inner) {
        if (classify(inner).channel >= 0)
          return WalkResult::interrupt();
        if (auto call = dyn_cast<CallOpInterface>(inner))
          if (exchanging.contains(call.resolveCallableInTable(&symbols)))
            return WalkResult::interrupt();
        return WalkResult::advance();
      })
      .wasInterrupted();
}

bool ExchangeSchedule::walkOp(Operation *op, ChannelUse channel, bool dirty,
                              Operation *&found) {
  ChannelUse use = classify(op);
  if (use.channel >= 0 && use.group == channel.group) {
    if (use.channel != channel.channel)
      return false;
    if (dirty && !found)
      found = op;
    return true;
  }
  if (auto call = dyn_cast<CallOpInterface>(op)) {
    Operation *callee = call.resolveCallableInTable(&symbols);
    auto function = dyn_cast_if_present<FunctionOpInterface>(callee);
    if (!function || !exchanging.contains(callee))
      return dirty;
    // A recursive call may stop anywhere.
    if (!active.insert(callee).second) {
      found = found ? found : op;
      return true;
    }
    dirty = walkRegion(function.getFunctionBody(), channel, dirty, found);
    active.erase(callee);
    return dirty;
  }
  if (op->getNumRegions() == 0)
    return dirty;

  // Each region of an scf.if may run, one of them if there are two; regions of
  // anything else run any number of times, one after another.
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    bool then = walkRegion(branch.getThenRegion(), channel, dirty, found);
    bool otherwise =
        branch.getElseRegion().empty()
            ? dirty
            : walkRegion(branch.getElseRegion(), channel, dirty, found);
    return then || otherwise;
  }
  for (int round = 0; round < 2; ++round)
    for (Region &region : op->getRegions())
      dirty |= walkRegion(region, channel, dirty, found);
  return dirty;
}

bool ExchangeSchedule::walkRegion(Region &region, ChannelUse channel,
                                  bool dirty, Operation *&found) {
  if (region.empty())
    return dirty;
  if (region.hasOneBlock()) {
    for (Operation &op : region.front())
      dirty = walkOp(&op, channel, dirty, found);
    return dirty;
  }
  // Blocks in any order, any number of times.
  for (int round = 0; round < 2; ++round)
    for (Block &block : region)
      for (Operation &op : block)
        dirty |= walkOp(&op, channel, dirty, found);
  return dirty;
}

Operation *ExchangeSchedule::findUnacknowledged(ChannelUse channel) {
  Operation *found = nullptr;
  bool dirty = false;
  // The second round begins as any function may have left the channel.
  for (int round = 0; round < 2; ++round) {
    bool after = dirty;
    module.walk([&](FunctionOpInterface function) {
      if (exchanging.contains(function))
        after |= walkRegion(function.getFunctionBody(), channel, dirty, found);
    });
    dirty = after;
  }
  return found;
}

Operation *ExchangeSchedule::findLateUse(Value inbox, Operation *exchange) {
  Block *block = exchange->getBlock();
  Operation *next = exchange->getNextNode();
  while (next && !containsExchange(next))
    next = next->getNextNode();

  SmallVector<Value> views{inbox};
  while (!views.empty()) {
    Value view = views.pop_back_val();
    for (Operation *user : view.getUsers()) {
      Operation *place = block->findAncestorOpInBlock(*user);
      if (user == exchange || (place && place->isBeforeInBlock(exchange)))
        continue;
      // Handed on by a terminator or a call, the inbox has other names.
      bool escapes = user->hasTrait<OpTrait::IsTerminator>() ||
                     isa<CallOpInterface>(user) || !place;
      if (escapes || (next && !place->isBeforeInBlock(next)))
        return user;
      if (isa<ViewLikeOpInterface>(user))
        llvm::append_range(views, user->getResults());
      else if (llvm::any_of(user->getResultTypes(),
                            llvm::IsaPred<MemRefType>))
        return user;
    }
  }
  return nullptr;
}
