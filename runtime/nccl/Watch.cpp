//===- Watch.cpp - Deadlines of exchanges that NCCL carries ---------------===//

#include "Watch.h"

#include "host/Communicator.h"
#include "host/Waiting.h"

using namespace shardq;
using namespace shardq::nccl;
using protocol::Exchange;

/// Time after which a wait is worth telling others about.
static constexpr int64_t kTellMs = 10;

Watch::Watch(shardq_comm &comm)
    : comm(comm), channels(static_cast<size_t>(comm.plan.slots) *
                           comm.plan.channels.size()),
      noRows(static_cast<size_t>(comm.world)) {}

Watch::Channel &Watch::at(int32_t slot, int32_t channel) {
  return channels[static_cast<size_t>(slot) * comm.plan.channels.size() +
                  static_cast<size_t>(channel)];
}

/// What this rank's stream has come to on a channel, as of `mark`.
static Exchange readExchange(const shardq_comm &comm, int32_t slot,
                             int32_t channel) {
  const device::Mark &mark = comm.gpu->mark(slot, channel);
  uint64_t epoch = loadAcquire(mark.begun);
  return {comm.rank,
          slot,
          channel,
          epoch,
          loadRelaxed(mark.operation),
          {loadRelaxed(mark.group.first), loadRelaxed(mark.group.stride),
           loadRelaxed(mark.group.size)}};
}

void Watch::publish(int32_t slot, int32_t channel) {
  Channel &state = at(slot, channel);
  Exchange exchange = readExchange(comm, slot, channel);
  int64_t outside;
  if (exchange.epoch == state.published ||
      !exchange.group.isWithin(comm.world, outside))
    return;
  state.published = exchange.epoch;
  HostMemory memory(comm.heaps);
  protocol::signal(memory, comm.heaps.flagTable(), exchange, noRows.data());
  storeRelease(comm.heaps.signalled(comm.rank, slot, channel), exchange.epoch);
  if (comm.remote)
    comm.remote->tellFlag(exchange);
}

void Watch::publish() {
  std::lock_guard<std::mutex> lock(mutex);
  publishAll();
}

void Watch::publishAll() {
  for (int32_t slot = 0; slot != comm.plan.slots; ++slot)
    for (size_t channel = 0; channel != comm.plan.channels.size(); ++channel)
      publish(slot, static_cast<int32_t>(channel));
}

void Watch::tick() {
  if (comm.failed())
    return;
  std::lock_guard<std::mutex> lock(mutex);
  publishAll();
  for (int32_t slot = 0; slot != comm.plan.slots; ++slot)
    for (size_t channel = 0; channel != comm.plan.channels.size(); ++channel)
      look(slot, static_cast<int32_t>(channel));
}

/// This rank waits for `target`.
void Watch::tellTarget(const Exchange &exchange, int64_t target) {
  SlotProgress &progress = comm.heaps.progress(comm.rank, exchange.slot);
  if (loadRelaxed(progress.waiting) != 0 &&
      loadRelaxed(progress.channel) == exchange.channel &&
      loadRelaxed(progress.target) == target)
    return;
  storeRelaxed(progress.channel, exchange.channel);
  storeRelaxed(progress.operation, exchange.operation);
  storeRelaxed(progress.target, target);
  storeRelaxed(progress.epoch, exchange.epoch);
  storeRelease(progress.waiting, uint64_t(1));
  if (comm.remote)
    comm.remote->tellProgress(exchange, target, /*isWaiting=*/true);
}

/// It no longer waits in this exchange.
void Watch::tellNothing(const Exchange &exchange) {
  SlotProgress &progress = comm.heaps.progress(comm.rank, exchange.slot);
  if (loadRelaxed(progress.waiting) == 0 ||
      loadRelaxed(progress.channel) != exchange.channel)
    return;
  storeRelease(progress.waiting, uint64_t(0));
  if (comm.remote)
    comm.remote->tellProgress(exchange, loadRelaxed(progress.target),
                              /*isWaiting=*/false);
}

void Watch::look(int32_t slot, int32_t channel) {
  Channel &state = at(slot, channel);
  Exchange exchange = readExchange(comm, slot, channel);
  uint64_t arrived = loadAcquire(comm.gpu->mark(slot, channel).arrived);
  int64_t outside;
  if (protocol::epochsAhead(exchange.epoch, arrived) <= 0 ||
      !exchange.group.isWithin(comm.world, outside)) {
    tellNothing(exchange);
    state.end.reset();
    return;
  }
  if (!state.end || state.waitedFor != exchange.epoch) {
    state.waitedFor = exchange.epoch;
    state.end = Deadline::in(comm.deadlineMs);
    state.tell = Deadline::in(kTellMs);
    // What was told is about the epoch before.
    tellNothing(exchange);
    return;
  }

  // The first that has not come; where all have, the next one.
  int64_t late = -1, left = -1;
  for (int64_t step = 0; step != exchange.group.size; ++step) {
    int64_t member =
        exchange.group.member(exchange.group.rotated(step, comm.rank));
    if (member == comm.rank)
      continue;
    // It has told how far it is before it leaves.
    bool gone = loadAcquire(comm.heaps.left(member)) != 0;
    uint64_t flag =
        loadAcquire(comm.heaps.flagTable()
                        .line(comm.rank, slot, channel, exchange.epoch, member)
                        .flag.epoch);
    bool missing = protocol::epochsAhead(flag, exchange.epoch) < 0;
    if (missing && late < 0)
      late = member;
    if (missing && gone && left < 0)
      left = member;
  }
  bool isMissing = late >= 0;
  if (!isMissing)
    late = exchange.group.member(exchange.group.rotated(0, comm.rank));
  if (state.tell->passed())
    tellTarget(exchange, late);
  if (left >= 0 && !comm.failed())
    fail(SHARDQ_PEER_LEFT, exchange, left, isMissing);
  else if (state.end->passed())
    fail(SHARDQ_DEADLINE, exchange, late, isMissing);
}

void Watch::fail(shardq_status status, const Exchange &exchange,
                 int64_t culprit, bool isMissing) {
  Failure failure;
  failure.status = status;
  failure.reporter = comm.rank;
  failure.waitedMs = comm.deadlineMs;
  // Where all have come, none of them waits for another.
  bool follow = status == SHARDQ_DEADLINE && isMissing;
  findLaggard(comm.heaps, exchange, culprit, failure, follow ? comm.world : 0);
  failure.lost = !isMissing;
  comm.fail(failure);
}
