//===- ExchangeSchedule.cpp - What lies between exchanges -----------------===//

#include "shardq/Analysis/ExchangeSchedule.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "shardq/Analysis/RankDependence.h"
#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace mlir::shardq;

/// Conditions that are told apart, of each function: twice the paths for each.
static constexpr unsigned kMaxConditions = 4;

/// Conditions that decide about several exchanges of a function, and have one
/// value in all of a call: that of its first block, which runs once.
static SmallVector<Value> findSharedConditions(FunctionOpInterface function,
                                               ExchangeSchedule &schedule) {
  llvm::MapVector<Value, unsigned> uses;
  function.walk([&](scf::IfOp branch) {
    Value condition = branch.getCondition();
    if (condition.getParentBlock() == &function.getFunctionBody().front() &&
        schedule.containsExchange(branch))
      ++uses[condition];
  });
  SmallVector<Value> shared;
  for (auto [condition, count] : uses)
    if (count > 1 && shared.size() < kMaxConditions)
      shared.push_back(condition);
  return shared;
}

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
  module.walk([&](FunctionOpInterface function) {
    if (exchanging.contains(function))
      conditions[function] = findSharedConditions(function, *this);
  });
}

bool ExchangeSchedule::containsExchange(Operation *op) {
  return op
      ->walk([&](Operation *inner) {
        ChannelUse use = classify(inner);
        if (use.channel >= 0 && use.part != ChannelUse::Part::Finish)
          return WalkResult::interrupt();
        return mayCall(inner, exchanging, symbols) ? WalkResult::interrupt()
                                                   : WalkResult::advance();
      })
      .wasInterrupted();
}

bool ExchangeSchedule::walkFunction(Operation *op, Query &query, bool dirty) {
  auto function = dyn_cast_if_present<FunctionOpInterface>(op);
  if (!function || !exchanging.contains(op))
    return dirty;
  auto [entry, isNew] = query.calls.try_emplace({op, dirty}, std::nullopt);
  if (!isNew) {
    // A recursive call may stop anywhere.
    return entry->second.value_or(true);
  }
  bool after = walkPaths(function.getFunctionBody(), conditions.lookup(op),
                         query, dirty);
  query.calls[{op, dirty}] = after;
  return after;
}

/// The paths on which conditions hold and those on which they do not, apart.
bool ExchangeSchedule::walkPaths(Region &body, ArrayRef<Value> conditions,
                                 Query &query, bool dirty) {
  if (conditions.empty())
    return walkRegion(body, query, dirty);
  bool after = false;
  for (bool holds : {true, false}) {
    query.taken[conditions.front()] = holds;
    after |= walkPaths(body, conditions.drop_front(), query, dirty);
  }
  query.taken.erase(conditions.front());
  return after;
}

/// Whether the query's channel may be used between the parts of an exchange.
bool ExchangeSchedule::usesChannelBetween(Operation *start, Operation *finish,
                                          const Query &query) {
  if (!start || start->getBlock() != finish->getBlock())
    return true;
  for (Operation *op = start; op != finish; op = op->getNextNode()) {
    WalkResult walk = op->walk([&](Operation *inner) {
      ChannelUse use = classify(inner);
      bool uses = use.channel == query.channel.channel &&
                  use.group == query.channel.group;
      return uses || mayCall(inner, exchanging, symbols)
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return true;
  }
  return false;
}

bool ExchangeSchedule::walkOp(Operation *op, Query &query, bool dirty) {
  using Part = ChannelUse::Part;
  ChannelUse use = classify(op);
  if (use.channel >= 0 && use.group == query.channel.group) {
    if (use.channel == query.channel.channel) {
      if (dirty && !query.found && use.part != Part::Finish)
        query.found = op;
      return true;
    }
    switch (use.part) {
    case Part::Whole:
      return false;
    case Part::Start:
      return dirty;
    case Part::Finish:
      return dirty && usesChannelBetween(use.start, op, query);
    }
  }
  if (auto call = dyn_cast<CallOpInterface>(op)) {
    if (isa<SymbolRefAttr>(call.getCallableForCallee()))
      return walkFunction(call.resolveCallableInTable(&symbols), query, dirty);
    // An unknown callee may be any function of the module.
    for (Operation *function : exchanging)
      dirty |= walkFunction(function, query, dirty);
    return dirty;
  }
  if (op->getNumRegions() == 0)
    return dirty;

  // Each region of an scf.if may run, one of them if there are two; regions of
  // anything else run any number of times, one after another. A state that was
  // seen before teaches nothing new.
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    auto taken = query.taken.find(branch.getCondition());
    if (taken != query.taken.end())
      return walkRegion(taken->second ? branch.getThenRegion()
                                      : branch.getElseRegion(),
                        query, dirty);
    bool then = walkRegion(branch.getThenRegion(), query, dirty);
    bool otherwise = branch.getElseRegion().empty()
                         ? dirty
                         : walkRegion(branch.getElseRegion(), query, dirty);
    return then || otherwise;
  }
  for (int round = 0; round < 2; ++round) {
    bool before = dirty;
    for (Region &region : op->getRegions())
      dirty |= walkRegion(region, query, dirty);
    if (dirty == before)
      break;
  }
  return dirty;
}

bool ExchangeSchedule::walkRegion(Region &region, Query &query, bool dirty) {
  if (region.empty())
    return dirty;
  if (region.hasOneBlock()) {
    for (Operation &op : region.front())
      dirty = walkOp(&op, query, dirty);
    return dirty;
  }
  // Blocks in any order, any number of times.
  for (int round = 0; round < 2; ++round) {
    bool before = dirty;
    for (Block &block : region)
      for (Operation &op : block)
        dirty |= walkOp(&op, query, dirty);
    if (dirty == before)
      break;
  }
  return dirty;
}

Operation *ExchangeSchedule::findUnacknowledged(ChannelUse channel) {
  Query query;
  query.channel = channel;
  bool dirty = false;
  // The second round begins as any function may have left the channel.
  for (int round = 0; round < 2; ++round) {
    bool after = dirty;
    module.walk([&](FunctionOpInterface function) {
      after |= walkFunction(function, query, dirty);
    });
    dirty = after;
  }
  return query.found;
}

/// Buffer results of an op that takes a view of the inbox.
static bool makesViews(Operation *op) {
  return isa<ViewLikeOpInterface>(op) ||
         llvm::any_of(op->getResultTypes(), llvm::IsaPred<MemRefType>);
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
      if (user == exchange)
        continue;
      Operation *place = block->findAncestorOpInBlock(*user);
      // A view is no use of its own, but its users are.
      if (place && isa<ViewLikeOpInterface>(user) && isPure(user)) {
        llvm::append_range(views, user->getResults());
        continue;
      }
      if (place && place->isBeforeInBlock(exchange))
        continue;
      // Handed on by a terminator or a call, the inbox has other names.
      bool escapes = user->hasTrait<OpTrait::IsTerminator>() ||
                     isa<CallOpInterface>(user) || !place || makesViews(user);
      if (escapes || (next && !place->isBeforeInBlock(next)))
        return user;
    }
  }
  return nullptr;
}
