//===- Transfer.cpp - Rows between ranks by NCCL --------------------------===//
//
// What stands between the kernel that announces an exchange and the one that
// waits for it. The lines that the first put ready travel ahead, and the host
// compares both sides of every pair before any row moves, so that a mismatch is
// an error that names a rank and not a group that hangs. While the stream is
// captured the host can look at nothing: everything travels in one group, as
// many rows as there may be, and the waiting kernel compares.
//
//===----------------------------------------------------------------------===//

#include "host/Communicator.h"
#include "host/Memory.h"

#include <algorithm>
#include <time.h>

using namespace shardq;
using namespace shardq::nccl;
using cuda::Address;
using protocol::Exchange;
using protocol::Flag;
using protocol::FlagLine;
using protocol::FlagTable;
using protocol::Group;
using protocol::Verdict;

static void nap() {
  timespec time{0, 20'000};
  nanosleep(&time, nullptr);
}

void shardq_context::ncclFailed(const char *call, nccl::Result result) {
  // The reason may be another rank's, and on its way here.
  Deadline patience = Deadline::in(200);
  while (!comm.failed() && !patience.passed())
    nap();
  if (comm.failed())
    return;
  comm.fail(makeFailure(SHARDQ_SYSTEM, Misuse::Nccl, result),
            comm.carrier->link(slot).describe(call, result));
}

/// Enqueues a group. Peers are connected, so it takes no longer than that; what
/// the group does is the watchdog's to limit.
bool shardq_context::enqueueParcels(const std::vector<Parcel> &parcels) {
  bool isEmpty =
      std::none_of(parcels.begin(), parcels.end(), [](const Parcel &parcel) {
        return parcel.sourceBytes || parcel.targetBytes;
      });
  if (isEmpty)
    return true;
  Link &link = comm.carrier->link(slot);
  nccl::Result result = link.enqueue(parcels, stream, isCapturing());
  Deadline deadline = Deadline::in(comm.deadlineMs);
  while (result == nccl::kInProgress && !comm.failed() && !deadline.passed()) {
    nap();
    result = link.state();
  }
  if (result == nccl::kSuccess)
    return !comm.failed();
  if (!comm.failed())
    ncclFailed("ncclGroupEnd", result);
  // NCCL may be about to launch on the stream still, which is the caller's to
  // destroy once the call has returned.
  link.abort();
  return false;
}

/// Until the stream's work so far is done.
bool shardq_context::awaitStream() {
  Link &link = comm.carrier->link(slot);
  for (;;) {
    cuda::Result result;
    {
      cuda::CaptureGuard guard(comm.gpu->driver);
      result = comm.gpu->driver.queryStream(stream);
    }
    if (result == cuda::kSuccess)
      return !comm.failed();
    if (result != cuda::kNotReady) {
      driverFailed(DriverCall::Synchronize, result);
      return false;
    }
    if (comm.failed())
      return false;
    if (nccl::Result state = link.state();
        state != nccl::kSuccess && state != nccl::kInProgress) {
      ncclFailed("ncclCommGetAsyncError", state);
      return false;
    }
    nap();
  }
}

/// The lines of both directions: two of them, since in a capture nobody knows
/// which one it will be.
static void addLines(const cuda::Gpu &gpu, const Exchange &exchange,
                     int64_t world, std::vector<Parcel> &parcels) {
  int32_t slot = static_cast<int32_t>(exchange.slot);
  int32_t channel = static_cast<int32_t>(exchange.channel);
  Address outgoing = gpu.outgoingLines(slot, channel);
  Address arrived = gpu.arrivedLines(slot, channel);
  constexpr uint64_t kLine = sizeof(FlagLine);
  for (int64_t step = 0; step != exchange.group.size; ++step) {
    int64_t peer =
        exchange.group.member(exchange.group.rotated(step, exchange.self));
    if (peer == exchange.self)
      continue;
    for (uint64_t line = 0; line != protocol::kFlagLines; ++line) {
      uint64_t offset =
          (line * static_cast<uint64_t>(world) + static_cast<uint64_t>(peer)) *
          kLine;
      parcels.push_back({static_cast<int32_t>(peer), outgoing + offset, kLine,
                         arrived + offset, kLine});
    }
  }
}

/// Compares both sides of each pair: what peers sent and this rank wants, what
/// it sent and they want. `arrived` and `outgoing` are one channel's lines.
static Failure compareLines(const Exchange &exchange, const FlagTable &arrived,
                            const FlagTable &outgoing) {
  // Where the lines are is this function's memory alone.
  struct Plain {
    Flag loadAcquire(const Flag &flag) { return flag; }
  } memory;
  for (int64_t step = 0; step != exchange.group.size; ++step) {
    int64_t peer =
        exchange.group.member(exchange.group.rotated(step, exchange.self));
    if (peer == exchange.self)
      continue;
    const FlagLine &sent =
        outgoing.line(exchange.self, 0, 0, exchange.epoch, peer);
    const FlagLine &came =
        arrived.line(exchange.self, 0, 0, exchange.epoch, peer);
    Verdict verdict =
        protocol::inspect(memory, arrived, exchange, peer, sent.wanted);
    if (verdict.arrival == protocol::Arrival::Pending) {
      // It took part, and yet its line is an old one.
      Failure failure;
      failure.status = SHARDQ_DEADLINE;
      failure.reporter = exchange.self;
      failure.culprit = failure.neighbour = peer;
      failure.slot = exchange.slot;
      failure.channel = exchange.channel;
      failure.operation = exchange.operation;
      failure.epoch = static_cast<int64_t>(exchange.epoch);
      failure.lastSeen = static_cast<int64_t>(
          std::max(came.flag.epoch,
                   arrived.line(exchange.self, 0, 0, exchange.epoch + 1, peer)
                       .flag.epoch));
      failure.waitedMs = 0;
      failure.lost = 1;
      return failure;
    }
    if (Failure failure = protocol::failureOf(exchange, verdict);
        failure.status != SHARDQ_OK)
      return failure;
    // What the peer will say about this rank, or has said.
    if (sent.flag.epoch == exchange.epoch &&
        sent.flag.news.operation() == exchange.operation &&
        came.wanted != sent.flag.news.rows()) {
      Exchange theirs = exchange;
      theirs.self = peer;
      return protocol::failureOf(theirs,
                                 {protocol::Arrival::WrongRows, exchange.self,
                                  came.wanted, sent.flag.news.rows()});
    }
  }
  return {};
}

bool shardq_context::isCarried(int32_t channel) {
  return checkChannel(channel) && comm.carries(channel);
}

void shardq_context::transfer(int32_t channel, int32_t operation,
                              const Group &group, const void *outbox,
                              void *landing, int64_t rows, int64_t rowBytes) {
  static constexpr int64_t kSomeRows = 0;
  if (!mayCall(/*needsGpu=*/true))
    return;
  if (!checkCall(channel, operation, group, &kSomeRows))
    return;
  if (!comm.carries(channel)) {
    misuse(Misuse::NotCarried, -1, -1, operation);
    return;
  }
  if (carry(channel, operation, group, outbox, landing, rows, rowBytes))
    return;
  // No kernel is launched any more that would do it.
  comm.gpu->driver.fill(
      comm.gpu->inbox(slot, channel,
                      loadAcquire(comm.gpu->mark(slot, channel).begun)),
      0xff, comm.plan.channels[static_cast<size_t>(channel)].bytes, stream);
}

/// False after an error, which is recorded.
bool shardq_context::carry(int32_t channel, int32_t operation,
                           const Group &group, const void *outbox,
                           void *landing, int64_t rows, int64_t rowBytes) {
  uint64_t bytes = 0; // of a peer's place in outbox and landing
  if (rows < 0 || rowBytes < 0 ||
      __builtin_mul_overflow(static_cast<uint64_t>(rows),
                             static_cast<uint64_t>(rowBytes), &bytes) ||
      (bytes > 0 && (!outbox || !landing))) {
    misuse(Misuse::Transfer, rows, rowBytes, operation);
    return false;
  }
  if (group.size == 1)
    return true;
  const cuda::Gpu &gpu = *comm.gpu;
  Address from = reinterpret_cast<Address>(outbox);
  Address to = reinterpret_cast<Address>(landing);
  Exchange exchange{comm.rank, slot, channel, 0, operation, group};
  std::vector<Parcel> parcels;
  addLines(gpu, exchange, comm.world, parcels);
  auto addRows = [&](auto &&rowsOut, auto &&rowsIn) {
    for (int64_t step = 0; step != group.size; ++step) {
      int64_t index = group.rotated(step, comm.rank);
      int64_t peer = group.member(index);
      if (peer == comm.rank)
        continue;
      uint64_t place = static_cast<uint64_t>(index) * bytes;
      uint64_t size = static_cast<uint64_t>(rowBytes);
      parcels.push_back({static_cast<int32_t>(peer), from + place,
                         static_cast<uint64_t>(rowsOut(peer)) * size,
                         to + place,
                         static_cast<uint64_t>(rowsIn(peer)) * size});
    }
  };
  if (isCapturing()) {
    auto all = [&](int64_t) { return rows; };
    addRows(all, all);
    return enqueueParcels(parcels);
  }
  if (!enqueueParcels(parcels))
    return false;

  uint64_t block = gpu.lineBlockBytes();
  char *copies = gpu.lineCopies(slot);
  const Address sources[] = {gpu.arrivedLines(slot, channel),
                             gpu.outgoingLines(slot, channel)};
  for (size_t i = 0; i != 2; ++i)
    if (cuda::Result result = gpu.driver.copyToHost(
            copies + i * block, sources[i], block, stream)) {
      driverFailed(DriverCall::Copy, result);
      return false;
    }
  if (!awaitStream())
    return false;
  exchange.epoch = loadAcquire(gpu.mark(slot, channel).begun);
  // The branch was not taken, on any rank: who did take it finds an old line.
  if (exchange.epoch == transferred[static_cast<size_t>(channel)])
    return true;
  transferred[static_cast<size_t>(channel)] = exchange.epoch;

  // One channel's lines, as tables of one slot with one channel.
  auto tableAt = [&](char *lines) {
    return FlagTable{lines, 0, 0, 1, comm.world};
  };
  FlagTable arrived = tableAt(copies), outgoing = tableAt(copies + block);
  Exchange alone = exchange;
  alone.slot = alone.channel = 0;
  Failure failure = compareLines(alone, arrived, outgoing);
  auto lineOf = [&](const FlagTable &table, int64_t peer) -> FlagLine & {
    return table.line(comm.rank, 0, 0, exchange.epoch, peer);
  };
  for (int64_t i = 0; i != group.size && failure.status == SHARDQ_OK; ++i) {
    int64_t peer = group.member(i);
    if (peer == comm.rank)
      continue;
    const FlagLine &sent = lineOf(outgoing, peer);
    int64_t sentRows = sent.flag.news.rows();
    int64_t most = std::max(sentRows, sent.wanted);
    if (most <= rows && sent.wanted >= 0)
      continue;
    failure.status = SHARDQ_CAPACITY;
    failure.reporter = failure.culprit = comm.rank;
    failure.expected = rows;
    failure.found = most;
  }
  if (failure.status == SHARDQ_DEADLINE) {
    // An old line may be that of a rank whose kernels have found an error, and
    // the news of that is to come first.
    int64_t patienceMs = device::oldLineMs(comm.deadlineMs);
    Deadline patience = Deadline::in(patienceMs);
    while (!comm.failed() && !patience.passed())
      nap();
    failure.waitedMs = patienceMs;
  }
  if (failure.status != SHARDQ_OK) {
    failure.slot = slot;
    failure.channel = channel;
    failure.operation = operation;
    comm.fail(failure);
    return false;
  }
  parcels.clear();
  addRows([&](int64_t peer) { return lineOf(outgoing, peer).flag.news.rows(); },
          [&](int64_t peer) { return lineOf(outgoing, peer).wanted; });
  return enqueueParcels(parcels);
}
