//===- Watch.cpp - Deadlines of exchanges that NCCL carries ---------------===//

#include "Watch.h"

#include "host/Communicator.h"
#include "host/Waiting.h"

#include <algorithm>

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

static int32_t numChannels(const shardq_comm &comm) {
  return static_cast<int32_t>(comm.plan.channels.size());
}

static bool isCarried(const shardq_comm &comm, int64_t channel) {
  return comm.carries(static_cast<int32_t>(channel));
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
    for (int32_t channel = 0; channel != numChannels(comm); ++channel)
      if (comm.carries(channel))
        publish(slot, channel);
}

void Watch::tick() {
  if (comm.failed())
    return;
  std::lock_guard<std::mutex> lock(mutex);
  publishAll();
  for (int32_t slot = 0; slot != comm.plan.slots; ++slot) {
    look(slot);
    if (comm.gpu->isAlone())
      continue;
    // What kernels wait for is in the heap on the GPU already.
    const SlotProgress &told = comm.heaps.progress(comm.rank, slot);
    bool isDirect = told.waiting && !isCarried(comm, told.channel);
    comm.gpu->tellProgress(slot, isDirect ? SlotProgress{} : told);
  }
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
void Watch::tellNothing(int32_t slot, int32_t channel) {
  SlotProgress &progress = comm.heaps.progress(comm.rank, slot);
  if (loadRelaxed(progress.waiting) == 0 ||
      loadRelaxed(progress.channel) != channel)
    return;
  storeRelease(progress.waiting, uint64_t(0));
  if (comm.remote)
    comm.remote->tellProgress(readExchange(comm, slot, channel),
                              loadRelaxed(progress.target),
                              /*isWaiting=*/false);
}

/// It is not this exchange that the stream waits in: its time has not begun.
void Watch::forget(int32_t slot, int32_t channel) {
  tellNothing(slot, channel);
  at(slot, channel).end.reset();
}

std::optional<Watch::Open> Watch::findOpen(int32_t slot, int32_t channel) {
  Open open{readExchange(comm, slot, channel), -1, -1, false};
  const Exchange &exchange = open.exchange;
  uint64_t arrived = loadAcquire(comm.gpu->mark(slot, channel).arrived);
  int64_t outside;
  if (protocol::epochsAhead(exchange.epoch, arrived) <= 0 ||
      !exchange.group.isWithin(comm.world, outside))
    return std::nullopt;
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
    if (missing && open.late < 0)
      open.late = member;
    if (missing && gone && open.left < 0)
      open.left = member;
  }
  open.isMissing = open.late >= 0;
  if (!open.isMissing)
    open.late = exchange.group.member(exchange.group.rotated(0, comm.rank));
  return open;
}

/// The channel of a direct exchange of which a kernel has waited for so long
/// that it said so.
std::optional<int32_t> Watch::findDirectWait(int32_t slot) {
  for (int32_t channel = 0; channel != numChannels(comm); ++channel) {
    if (comm.carries(channel))
      continue;
    const device::Mark &mark = comm.gpu->mark(slot, channel);
    // What is over was begun before.
    uint64_t arrived = loadAcquire(mark.arrived);
    if (loadAcquire(mark.begun) != arrived)
      return channel;
  }
  return std::nullopt;
}

/// Of the exchanges of a slot that have begun, the stream waits in one at most:
/// in none while a kernel of a direct one waits, and in one of which somebody
/// has not come rather than in those to which all have.
void Watch::look(int32_t slot) {
  std::vector<Open> open;
  for (int32_t channel = 0; channel != numChannels(comm); ++channel) {
    if (!comm.carries(channel))
      continue;
    if (std::optional<Open> found = findOpen(slot, channel))
      open.push_back(*found);
    else
      forget(slot, channel);
  }
  if (open.empty() && !comm.remote)
    return;
  std::optional<int32_t> direct = findDirectWait(slot);
  if (comm.remote)
    tellDirectWait(slot, direct);
  bool isMissing = std::any_of(open.begin(), open.end(),
                               [](const Open &one) { return one.isMissing; });
  for (const Open &one : open) {
    if (direct || (isMissing && !one.isMissing))
      forget(slot, static_cast<int32_t>(one.exchange.channel));
    else
      look(one);
  }
}

void Watch::look(const Open &open) {
  const Exchange &exchange = open.exchange;
  int32_t slot = static_cast<int32_t>(exchange.slot);
  int32_t channel = static_cast<int32_t>(exchange.channel);
  Channel &state = at(slot, channel);
  if (!state.end || state.waitedFor != exchange.epoch) {
    state.waitedFor = exchange.epoch;
    state.end = Deadline::in(comm.deadlineMs);
    state.endWhereAllCame = Deadline::in(2 * comm.deadlineMs);
    state.tell = Deadline::in(kTellMs);
    // What was told is about the epoch before.
    tellNothing(slot, channel);
    return;
  }
  if (!open.isMissing)
    tellNothing(slot, channel);
  else if (state.tell->passed())
    tellTarget(exchange, open.late);
  // Where all have come, the stream may be behind the transfer, in kernels that
  // take their time in front of the wait: whoever waits for this rank then
  // finds it, and comes first.
  bool isOver =
      open.isMissing ? state.end->passed() : state.endWhereAllCame->passed();
  int64_t waitedMs = open.isMissing ? comm.deadlineMs : 2 * comm.deadlineMs;
  if (open.left >= 0 && !comm.failed())
    fail(SHARDQ_PEER_LEFT, exchange, open.left, open.isMissing, waitedMs);
  else if (isOver)
    fail(SHARDQ_DEADLINE, exchange, open.late, open.isMissing, waitedMs);
}

namespace {

/// The protocol's memory policy for heaps on GPUs, as the host reads them: only
/// what the search for a laggard needs.
class WordsOnGpus {
public:
  explicit WordsOnGpus(cuda::Gpu &gpu) : gpu(gpu) {}
  bool reaches(int64_t rank) { return gpu.reaches(rank); }
  uint64_t loadAcquire(const uint64_t &word) { return gpu.readWord(&word); }
  int64_t load(const int64_t &word) {
    return static_cast<int64_t>(
        gpu.readWord(reinterpret_cast<const uint64_t *>(&word)));
  }

private:
  cuda::Gpu &gpu;
};

} // namespace

/// Ranks of other hosts cannot read what this one's kernels say. `channel` is
/// that of a direct wait, where there is one.
void Watch::tellDirectWait(int32_t slot, std::optional<int32_t> channel) {
  const SlotProgress &told = comm.heaps.progress(comm.rank, slot);
  bool isTold = told.waiting && !isCarried(comm, told.channel);
  if (!channel) {
    if (isTold)
      tellNothing(slot, static_cast<int32_t>(told.channel));
    return;
  }
  if (isTold && told.channel == *channel &&
      told.epoch == loadAcquire(comm.gpu->mark(slot, *channel).begun))
    return;
  WordsOnGpus memory(*comm.gpu);
  const SlotProgress &record = comm.gpu->progressTable().at(comm.rank, slot);
  bool isWaiting = memory.loadAcquire(record.waiting) != 0;
  int64_t target = memory.load(record.target);
  Exchange exchange{comm.rank,
                    slot,
                    memory.load(record.channel),
                    memory.loadAcquire(record.epoch),
                    memory.load(record.operation),
                    {}};
  if (!isWaiting || exchange.channel != *channel || target < 0 ||
      target >= comm.world)
    return;
  tellNothing(slot, *channel);
  tellTarget(exchange, target);
}

void Watch::fail(shardq_status status, const Exchange &exchange,
                 int64_t culprit, bool isMissing, int64_t waitedMs) {
  Failure failure;
  failure.status = status;
  failure.reporter = comm.rank;
  failure.waitedMs = waitedMs;
  // Where all have come, none of them waits for another.
  bool follow = status == SHARDQ_DEADLINE && isMissing;
  int32_t maxHops = follow ? comm.world : 0;
  if (comm.gpu->isAlone()) {
    findLaggard(comm.heaps, exchange, culprit, failure, maxHops);
    failure.lost = 0; // flags are told in front of the epochs there
  } else {
    WordsOnGpus memory(*comm.gpu);
    protocol::findLaggard(memory, comm.gpu->flagTable(),
                          comm.gpu->progressTable(), exchange, culprit, maxHops,
                          failure);
    if (follow && comm.remote && !comm.gpu->reaches(failure.culprit))
      followElsewhere(comm.heaps, failure);
  }
  failure.lost |= !isMissing;
  comm.fail(failure);
}
