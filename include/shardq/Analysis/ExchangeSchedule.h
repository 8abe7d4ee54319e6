//===- ExchangeSchedule.h - What lies between exchanges ---------*- C++ -*-===//
//
// One wait per exchange suffices when buffers are reused safely:
//
//   two generations  an inbox is overwritten two exchanges of its channel
//                    later. The producer has then waited for the exchange in
//                    between, which the consumer signals after reading.
//   one generation   an inbox is overwritten by the next exchange of its
//                    channel. Safe when between the two, on every path, an
//                    exchange on another channel of the same group signals
//                    (the consumer has read) and waits (the producer knows).
//
// Both hold only if the inbox is read before the next exchange of the group.
//
// Branches of one condition, which has one value throughout a call of the
// function, are taken together or not at all.
//
// An exchange in two parts signals where it starts and waits where it finishes.
// So what is read in between is not acknowledged by it, and what another
// exchange signals in between does not acknowledge it.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_ANALYSIS_EXCHANGESCHEDULE_H
#define SHARDQ_ANALYSIS_EXCHANGESCHEDULE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseSet.h"
#include <functional>

namespace mlir::shardq {

/// Which channel an op uses, and in which group of ranks.
struct ChannelUse {
  enum class Part { Whole, Start, Finish };
  /// -1: the op is no exchange.
  int64_t channel = -1;
  /// The mesh and axis, as one attribute.
  Attribute group;
  Part part = Part::Whole;
  /// Of a finish: its start, in the same block; null where it is not known.
  Operation *start = nullptr;
};

/// The order of the exchanges of a module, whose functions may be called in
/// any order. `classify` says what is an exchange at the level at hand
/// (`exchange` or `push`).
class ExchangeSchedule {
public:
  using Classify = std::function<ChannelUse(Operation *)>;
  ExchangeSchedule(ModuleOp module, Classify classify);

  /// An exchange of the channel that may follow another one of it with no
  /// other channel of the group between; null when there is none, which proves
  /// that one generation is enough.
  Operation *findUnacknowledged(ChannelUse channel);

  /// Whether the op is or contains an exchange or the start of one, or calls a
  /// function that does.
  bool containsExchange(Operation *op);

  /// A use of the inbox `inbox` (through views) that is not safely before the
  /// next exchange behind `exchange`, an op of the same block: behind it, or in
  /// a place that cannot be ordered against it. Null when every use is safe.
  Operation *findLateUse(Value inbox, Operation *exchange);

private:
  /// One question. `dirty`: the last exchange of the group seen may be on the
  /// channel.
  struct Query {
    ChannelUse channel;
    Operation *found = nullptr;
    /// What a function leaves, by what it finds; absent while it is walked.
    llvm::DenseMap<llvm::PointerIntPair<Operation *, 1, bool>,
                   std::optional<bool>>
        calls;
    /// Conditions of the functions that are walked, as taken for this path.
    llvm::DenseMap<Value, bool> taken;
  };
  bool usesChannelBetween(Operation *start, Operation *finish,
                          const Query &query);
  bool walkRegion(Region &region, Query &query, bool dirty);
  bool walkOp(Operation *op, Query &query, bool dirty);
  bool walkPaths(Region &body, ArrayRef<Value> conditions, Query &query,
                 bool dirty);
  bool walkFunction(Operation *op, Query &query, bool dirty);

  ModuleOp module;
  Classify classify;
  SymbolTableCollection symbols;
  llvm::DenseSet<Operation *> exchanging;
  /// Of functions that exchange: conditions that several branches share.
  llvm::DenseMap<Operation *, SmallVector<Value>> conditions;
};

} // namespace mlir::shardq

#endif // SHARDQ_ANALYSIS_EXCHANGESCHEDULE_H
