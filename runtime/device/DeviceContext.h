//===- DeviceContext.h - What kernels know of a slot ------------*- C++ -*-===//
//
// The first argument of every exchange kernel: one struct in device memory for
// each slot, written by the host when the communicator is made and read-only
// afterwards. Free of standard library and driver, since both the host and the
// device library compile it.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_DEVICE_DEVICECONTEXT_H
#define SHARDQ_RUNTIME_DEVICE_DEVICECONTEXT_H

#include "protocol/Laggard.h"

namespace shardq::device {

/// Page-locked host memory of one rank that its GPU has mapped: the one place
/// where kernels and the rank's watchdog meet. Followed by a uint32_t for each
/// rank of the world, nonzero once that rank has left, and by another, nonzero
/// where the rank is elsewhere: its heap is not mapped.
struct Control {
  // Written by the host.
  alignas(64) uint32_t abort; // nonzero: waits give up
  uint32_t one;               // always 1; copied into DeviceContext::failed

  // Written by the device, once, by whoever set DeviceContext::failed first.
  alignas(64) uint64_t ready; // nonzero: the record holds
  Failure record;
  /// Asks the watchdog to end the process: an injected fault.
  alignas(64) uint32_t kill;
};

/// How far this rank's stream is on one channel, where NCCL carries the rows:
/// host memory, like Control, since it is the watchdog that sees to deadlines.
/// Of a direct channel beside such ones: the epoch of a wait that takes long,
/// in `begun`, and in `arrived` once it is over, so that the watchdog knows
/// where the stream is.
struct alignas(64) Mark {
  uint64_t begun; // epoch whose lines are ready to be sent
  int64_t operation;
  protocol::Group group;
  uint64_t arrived; // epoch that was waited for
};

struct Channel {
  uint64_t offset; // of the first generation, from the slot's base
  uint64_t bytes;  // of one generation
  uint64_t generations;
  uint64_t isCarried; // 1 where NCCL carries the rows
};

/// How long an old line waits for news of its producer, where NCCL carries the
/// rows, and less than the watchdog waits for the whole.
constexpr int64_t oldLineMs(int64_t deadlineMs) {
  return deadlineMs < 2000 ? deadlineMs / 2 : 1000;
}

/// A fault that strikes when this rank signals an exchange that fits; the
/// actions are those of the host's Fault.
struct Fault {
  enum Action : int64_t {
    None,
    Kill,
    Stall,
    DropFlag,
    WrongRows,
    WrongOperation
  };
  int64_t action;
  // -1 fits any.
  int64_t operation;
  int64_t epoch;
};

struct DeviceContext {
  protocol::FlagTable flags;
  /// Where lines for the other ranks are put on channels that NCCL carries,
  /// and where it takes them from.
  protocol::FlagTable outgoing;
  protocol::ProgressTable progress;
  int64_t rank;
  int64_t world;
  int64_t slot;
  char *slotBase; // own inboxes
  const Channel *channels;
  int64_t numChannels;
  /// Last epoch that this rank signalled, by channel: in the heap, where peers
  /// that look for a laggard read it.
  uint64_t *epochs;
  /// Nonzero once a failure is known to this rank's kernels; in memory of the
  /// device, so that asking costs little. Shared by the slots.
  uint32_t *failed;
  Control *control;          // as the device addresses it
  const uint32_t *left;      // by rank, host memory as well
  const uint32_t *elsewhere; // likewise; null where no rank is
  int64_t deadlineNs;        // of one wait
  Fault fault;
  /// The slot's channels; null where NCCL carries none. Of one that it carries,
  /// lines have arrived before a wait begins or never will; a wait for one that
  /// has not is a short one: its producer may have failed, and the news of that
  /// is to come first.
  Mark *marks;
};

} // namespace shardq::device

#endif // SHARDQ_RUNTIME_DEVICE_DEVICECONTEXT_H
