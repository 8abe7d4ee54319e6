//===- Waiting.h - How a CPU rank waits -------------------------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_WAITING_H
#define SHARDQ_RUNTIME_HOST_WAITING_H

#include "Communicator.h"
#include "Memory.h"
#include "protocol/Laggard.h"

namespace shardq {

/// The protocol's memory policy on the host, without waiting.
class HostMemory {
public:
  explicit HostMemory(const Heaps &heaps) : heaps(heaps) {}

  uint64_t loadAcquire(const uint64_t &word) {
    return shardq::loadAcquire(word);
  }
  void storeRelease(uint64_t &word, uint64_t value) {
    shardq::storeRelease(word, value);
  }
  protocol::Flag loadAcquire(const protocol::Flag &flag) {
    return protocol::loadByWords(*this, flag);
  }
  void storeRelease(protocol::Flag &flag, const protocol::Flag &value) {
    protocol::storeByWords(*this, flag, value);
  }
  int64_t load(const int64_t &word) { return loadRelaxed(word); }
  void store(int64_t &word, int64_t value) { storeRelaxed(word, value); }
  bool reaches(int64_t) { return true; }
  void ring(int64_t rank, int64_t slot) { shardq::ring(heaps, rank, slot); }

protected:
  const Heaps &heaps;
};

/// Spins for a while, then sleeps on the slot's doorbell. Gives up when the
/// group has failed, the deadline has passed, or the producer has left.
class Waiting : public HostMemory {
public:
  Waiting(shardq_comm &comm, const protocol::Exchange &exchange);
  ~Waiting();
  Waiting(const Waiting &) = delete;

  bool keepWaiting(int64_t producer);

private:
  bool mayStay(int64_t producer);
  void sleep();
  void failFor(shardq_status status, int64_t producer);

  shardq_comm &comm;
  const protocol::Exchange &exchange;
  Deadline deadline;
  int64_t spins = 0;
  bool sleeping = false; // counted among the doorbell's sleepers
  bool gaveUp = false;
  int64_t leftSeen = -1; // producer that had left at the last look
  uint32_t rings = 0;
};

/// protocol::findLaggard over the heaps of CPU ranks.
void findLaggard(const Heaps &heaps, const protocol::Exchange &exchange,
                 int64_t producer, Failure &failure, int32_t maxHops);

/// Goes on where a search through the heaps on GPUs has come to a rank of
/// another host, by what the ranks' watchdogs tell all others.
void followElsewhere(const Heaps &heaps, Failure &failure);

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_WAITING_H
