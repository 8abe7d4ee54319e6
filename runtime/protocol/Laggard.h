//===- Laggard.h - Who really holds up an exchange --------------*- C++ -*-===//
//
// Ranks publish what they wait for and what they have signalled. A rank whose
// wait ran into its deadline follows these records to the first rank that waits
// for nobody. Over the same memory policies as Protocol.h.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_PROTOCOL_LAGGARD_H
#define SHARDQ_RUNTIME_PROTOCOL_LAGGARD_H

#include "Failure.h"

namespace shardq {

/// What a rank waits for, so that others can tell a laggard from a victim. Its
/// one writer is the rank itself.
struct alignas(64) SlotProgress {
  uint64_t waiting; // 1 while the fields below hold
  int64_t target;
  int64_t channel;
  int64_t operation;
  uint64_t epoch;
};

namespace protocol {

/// Where the records are: at the same offsets in every rank's heap.
struct ProgressTable {
  char *heaps;
  uint64_t stride;
  uint64_t progress;  // SlotProgress [2][slots]
  uint64_t signalled; // uint64_t [slots][channels]
  int64_t slots;
  int64_t channels;
  int64_t world;

  SlotProgress &at(int64_t rank, int64_t slot) const {
    return recordOf(rank, slot);
  }

  /// What the rank's watchdog says, of exchanges that NCCL carries beside
  /// others that are direct. The other record is their kernels', and a record
  /// has one writer.
  SlotProgress &carriedAt(int64_t rank, int64_t slot) const {
    return recordOf(rank, slots + slot);
  }

  SlotProgress &recordOf(int64_t rank, int64_t index) const {
    char *heap = heaps + static_cast<uint64_t>(rank) * stride + progress;
    return reinterpret_cast<SlotProgress *>(heap)[index];
  }

  /// Last epoch that `rank` has signalled.
  uint64_t &signalledBy(int64_t rank, int64_t slot, int64_t channel) const {
    char *heap = heaps + static_cast<uint64_t>(rank) * stride + signalled;
    return reinterpret_cast<uint64_t *>(heap)[slot * channels + channel];
  }
};

/// One edge of the waits-for graph.
struct Edge {
  int64_t waiter;
  int64_t target;
  int64_t slot;
  int64_t channel;
  int64_t operation;
  uint64_t epoch;
};

/// Last epoch of the edge's target whose flag is in the waiter's memory, up to
/// the edge's own: with two generations a target goes on to the next exchange
/// before it notices that a flag of this one was lost.
template <typename Memory>
uint64_t lastFlag(Memory &memory, const FlagTable &table, const Edge &edge) {
  uint64_t last = 0;
  for (uint64_t line = 0; line != kFlagLines; ++line) {
    uint64_t epoch =
        memory.loadAcquire(table
                               .line(edge.waiter, edge.slot, edge.channel,
                                     edge.epoch + line, edge.target)
                               .flag.epoch);
    if (line == 0 ||
        (epochsAhead(epoch, edge.epoch) <= 0 && epochsAhead(epoch, last) > 0))
      last = epoch;
  }
  return last;
}

/// What `rank` waits for, looking at `slot` first; false if for nothing.
template <typename Memory>
bool readEdge(Memory &memory, const ProgressTable &table, int64_t rank,
              int64_t slot, Edge &edge) {
  for (int64_t step = 0; step != 2 * table.slots; ++step) {
    // No remainder: in a kernel that is a call, for which it needs a stack.
    int64_t at = slot + step / 2;
    if (at >= table.slots)
      at -= table.slots;
    const SlotProgress &progress =
        step % 2 == 0 ? table.at(rank, at) : table.carriedAt(rank, at);
    if (!memory.loadAcquire(progress.waiting))
      continue;
    Edge found{rank,
               memory.load(progress.target),
               at,
               memory.load(progress.channel),
               memory.load(progress.operation),
               memory.loadAcquire(progress.epoch)};
    // It is the memory of another process: use nothing of it as an index
    // unchecked.
    if (found.target < 0 || found.target >= table.world || found.channel < 0 ||
        found.channel >= table.channels)
      continue;
    edge = found;
    return true;
  }
  return false;
}

/// Fills in who really holds up `exchange`, of which `producer` is late: ranks
/// that are late because they wait themselves are followed to the first that
/// does not, `maxHops` far: as many as the world has ranks are a circle.
/// The search ends at a rank of which `memory.reaches` says that its heap is
/// not there to be read.
template <typename Memory>
void findLaggard(Memory &memory, const FlagTable &flags,
                 const ProgressTable &progress, const Exchange &exchange,
                 int64_t producer, int64_t maxHops, Failure &failure) {
  Edge edge{exchange.self,    producer,           exchange.slot,
            exchange.channel, exchange.operation, exchange.epoch};
  bool lost = false;
  failure.circle = 0;
  for (int64_t hops = 0; maxHops > 0 && memory.reaches(edge.target); ++hops) {
    uint64_t signalled = memory.loadAcquire(
        progress.signalledBy(edge.target, edge.slot, edge.channel));
    // The target believes that it did its part: its own later waits are a
    // consequence, not the cause.
    lost = epochsAhead(signalled, edge.epoch) >= 0 &&
           epochsAhead(lastFlag(memory, flags, edge), edge.epoch) < 0;
    Edge next;
    if (lost || !readEdge(memory, progress, edge.target, edge.slot, next))
      break;
    if (hops == maxHops) {
      failure.circle = 1;
      failure.found = next.operation;
      break;
    }
    edge = next;
  }
  failure.culprit = edge.target;
  failure.slot = edge.slot;
  failure.channel = edge.channel;
  failure.operation = edge.operation;
  failure.epoch = static_cast<int64_t>(edge.epoch);
  failure.lastSeen = static_cast<int64_t>(lastFlag(memory, flags, edge));
  failure.neighbour = producer;
  failure.lost = lost;
}

} // namespace protocol
} // namespace shardq

#endif // SHARDQ_RUNTIME_PROTOCOL_LAGGARD_H
