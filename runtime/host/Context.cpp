//===- Context.cpp - One micro-batch slot of a communicator ---------------===//

#include "Context.h"

#include "Waiting.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

using namespace shardq;
using protocol::Exchange;
using protocol::Group;

shardq_context::shardq_context(shardq_comm &comm, int32_t slot)
    : comm(comm), slot(slot), epochs(comm.plan.channels.size()),
      transferred(comm.plan.channels.size()) {
  if (comm.gpu && comm.gpu->firstArenaBytes())
    arena.add(reinterpret_cast<void *>(comm.gpu->firstArena(slot)),
              comm.gpu->firstArenaBytes());
}

/// Whether buffers are on a GPU, where the host must not touch them.
bool shardq_context::refusesHostCalls() {
  if (!comm.gpu)
    return false;
  misuse(Misuse::HostCallOnDevice, -1);
  return true;
}

char *shardq_context::inbox(int32_t channel, uint64_t epoch) const {
  const Plan::Channel &buffer =
      comm.plan.channels[static_cast<size_t>(channel)];
  uint64_t generation = epoch % buffer.generations;
  return comm.heaps.slotBase(comm.rank, slot) + buffer.offset +
         generation * buffer.bytes;
}

Failure shardq_context::makeFailure(shardq_status status, Misuse kind,
                                    int64_t found, int64_t expected) const {
  Failure failure;
  failure.status = status;
  failure.reporter = comm.rank;
  failure.culprit = comm.rank;
  failure.slot = slot;
  failure.expected = expected;
  failure.found = found;
  failure.misuse = static_cast<int64_t>(kind);
  return failure;
}

void shardq_context::misuse(Misuse kind, int64_t found, int64_t expected,
                            int64_t operation) {
  Failure failure = makeFailure(SHARDQ_INVALID, kind, found, expected);
  failure.operation = operation;
  comm.fail(failure);
}

void shardq_context::wrongStep(Misuse kind, int64_t request, int64_t found,
                               int64_t expected, std::string text) {
  Failure failure = makeFailure(SHARDQ_INVALID, kind, found, expected);
  failure.request = request;
  comm.fail(failure, std::move(text));
}

void shardq_context::expect(const char *what, int64_t found, int64_t expected) {
  if (found != expected)
    wrongStep(Misuse::Size, -1, found, expected, what ? what : "");
}

void shardq_context::beyondTable(int64_t block, int64_t request,
                                 int64_t requests, int64_t width) {
  // The table's first dimension is looked at first.
  if (request < requests)
    wrongStep(Misuse::BlockBeyondTable, request, block, width);
  else
    wrongStep(Misuse::RequestBeyondTable, request, block, requests);
}

void shardq_context::noPlace(int64_t block, int64_t request, int64_t entry) {
  wrongStep(Misuse::NoPlace, request, entry, block);
}

void shardq_context::beyondCache(int64_t slot, int64_t row, int64_t rows) {
  wrongStep(Misuse::BeyondCache, row, slot, rows);
}

void shardq_context::checkStarts(const int32_t *starts, int64_t entries,
                                 int64_t decodes, int64_t rows) {
  int64_t last = 0, split = 0;
  for (int64_t i = 0; i < entries; ++i) {
    int64_t start = starts[i];
    if (i == 0 && start != 0)
      return wrongStep(Misuse::FirstStart, i, start, 0);
    if (start < last)
      return wrongStep(Misuse::StartBelow, i, start, last);
    if (start > rows)
      return wrongStep(Misuse::LastStart, i, start, rows);
    if (last < decodes && decodes < start)
      split = i;
    last = start;
  }
  // Rows of no request may stand behind those of decodes.
  if (decodes < 0 || decodes > rows)
    wrongStep(Misuse::Decodes, -1, decodes, rows);
  else if (split > 0)
    wrongStep(Misuse::SplitRequest, split - 1, decodes, starts[split]);
}

bool shardq_context::checkChannel(int32_t channel) {
  if (channel >= 0 && static_cast<size_t>(channel) < epochs.size())
    return true;
  misuse(Misuse::Channel, channel);
  return false;
}

bool shardq_context::checkCall(int32_t channel, int32_t operation,
                               const Group &group, const int64_t *rows) {
  if (!checkChannel(channel))
    return false;
  int64_t outside;
  if (!group.isWithin(comm.world, outside)) {
    misuse(Misuse::Group, outside, comm.world, operation);
    return false;
  }
  if (!rows) {
    misuse(Misuse::Rows, -1, -1, operation);
    return false;
  }
  return true;
}

PrivateMemory::PrivateMemory(uint64_t bytes) : bytes(bytes) {
  address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    address = nullptr;
}

PrivateMemory::PrivateMemory(PrivateMemory &&other) noexcept
    : address(other.address), bytes(other.bytes) {
  other.address = nullptr;
}

PrivateMemory::~PrivateMemory() {
  if (address)
    munmap(address, bytes);
}

void *shardq_context::spare(uint64_t bytes) {
  // Never less than a page, and large ones serve small requests: a program
  // that ignores the error and goes on does not fill memory.
  bytes = std::max<uint64_t>(bytes, 4096);
  for (const PrivateMemory &memory : spares)
    if (memory.size() >= bytes)
      return memory.get();
  PrivateMemory memory(bytes);
  if (!memory.get())
    return comm.gpu ? nullptr : comm.heaps.slotBase(comm.rank, slot);
  spares.push_back(std::move(memory));
  return spares.back().get();
}

void *shardq_context::workspace(int32_t channel, int64_t rows,
                                int64_t rowBytes) {
  bool known = !refusesHostCalls() && checkChannel(channel);
  uint64_t limit =
      known ? comm.plan.channels[static_cast<size_t>(channel)].bytes : 0;
  uint64_t bytes = 0;
  bool fits =
      rows >= 0 && rowBytes >= 0 &&
      !__builtin_mul_overflow(static_cast<uint64_t>(rows),
                              static_cast<uint64_t>(rowBytes), &bytes) &&
      bytes <= limit;
  if (known && fits)
    return inbox(channel, epochs[static_cast<size_t>(channel)] + 1);
  if (known) {
    Failure failure;
    failure.status = SHARDQ_CAPACITY;
    failure.reporter = comm.rank;
    failure.culprit = comm.rank;
    failure.slot = slot;
    failure.channel = channel;
    failure.expected =
        rowBytes > 0 ? static_cast<int64_t>(limit) / rowBytes : 0;
    failure.found = rows;
    comm.fail(failure);
  }
  return spare(bytes);
}

void *shardq_context::peer(void *local, int64_t peer) {
  if (refusesHostCalls())
    return local;
  if (peer < 0 || peer >= comm.world) {
    misuse(Misuse::Peer, peer, comm.world);
    return local;
  }
  int64_t stride = static_cast<int64_t>(comm.heaps.getLayout().bytes);
  // A spare inbox has no counterpart.
  const char *base = comm.heaps.heapBase(comm.rank);
  char *address = static_cast<char *>(local);
  if (std::less<const char *>()(address, base) ||
      !std::less<const char *>()(address, base + stride))
    return local;
  return address + (peer - comm.rank) * stride;
}

void shardq_context::signal(int32_t channel, int32_t operation,
                            const Group &group, const int64_t *rows) {
  if (refusesHostCalls() || comm.failed() ||
      !checkCall(channel, operation, group, rows))
    return;
  uint64_t epoch = ++epochs[static_cast<size_t>(channel)];
  Exchange exchange{comm.rank, slot, channel, epoch, operation, group};
  if (comm.fault.strikes(slot, operation, epoch))
    return signalFaulty(exchange, rows);
  HostMemory memory(comm.heaps);
  protocol::signal(memory, comm.heaps.flagTable(), exchange, rows);
  storeRelease(comm.heaps.signalled(comm.rank, slot, channel), epoch);
}

void shardq_context::stall() {
  // Far beyond what its peers wait for, and yet not for ever.
  Deadline end = Deadline::in(10 * comm.deadlineMs);
  while (!end.passed() && !comm.failed()) {
    timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
  }
}

void shardq_context::signalFaulty(const Exchange &exchange,
                                  const int64_t *rows) {
  Exchange told = exchange;
  std::vector<int64_t> toldRows(rows, rows + exchange.group.size);
  switch (comm.fault.action) {
  case Fault::Action::Kill:
    ::kill(getpid(), SIGKILL);
    // Even a pending SIGKILL may let the caller run on for a moment.
    for (;;)
      pause();
  case Fault::Action::Stall:
    stall();
    if (comm.failed())
      return;
    break;
  case Fault::Action::DropFlag:
    // Its own flag is set: the rank itself believes that all went well.
    told.group = {comm.rank, 1, 1};
    toldRows = {
        rows[exchange.group.rotated(exchange.group.size - 1, comm.rank)]};
    break;
  case Fault::Action::WrongRows:
  case Fault::Action::WrongOperation:
    for (int64_t i = 0; i != exchange.group.size; ++i)
      if (comm.fault.action == Fault::Action::WrongRows &&
          exchange.group.member(i) != comm.rank)
        ++toldRows[static_cast<size_t>(i)];
    if (comm.fault.action == Fault::Action::WrongOperation)
      ++told.operation;
    break;
  case Fault::Action::None:
    break;
  }
  HostMemory memory(comm.heaps);
  protocol::signal(memory, comm.heaps.flagTable(), told, toldRows.data());
  storeRelease(comm.heaps.signalled(comm.rank, slot, exchange.channel),
               exchange.epoch);
}

void shardq_context::wait(int32_t channel, int32_t operation,
                          const Group &group, const int64_t *rows) {
  if (refusesHostCalls())
    return;
  bool complete = !comm.failed() &&
                  checkCall(channel, operation, group, rows) &&
                  awaitGroup(channel, operation, group, rows);
  if (!complete && channel >= 0 && static_cast<size_t>(channel) < epochs.size())
    poison(channel);
}

bool shardq_context::awaitGroup(int32_t channel, int32_t operation,
                                const Group &group, const int64_t *rows) {
  uint64_t epoch = epochs[static_cast<size_t>(channel)];
  if (epoch == 0) {
    misuse(Misuse::WaitBeforeSignal, channel);
    return false;
  }
  Exchange exchange{comm.rank, slot, channel, epoch, operation, group};
  protocol::Verdict verdict;
  {
    Waiting memory(comm, exchange);
    verdict = protocol::wait(memory, comm.heaps.flagTable(), exchange, rows);
  }
  if (verdict.arrival == protocol::Arrival::Here)
    return true;

  if (Failure failure = protocol::failureOf(exchange, verdict);
      failure.status != SHARDQ_OK)
    comm.fail(failure);
  return false;
}

// Peers that have not heard of the error may still be pushing into the inbox,
// and what they write over the poison is as useless as the poison: a race by
// design, and only after an error, so hidden from ThreadSanitizer.
__attribute__((no_sanitize("thread"), noinline)) static void
fillPoison(volatile unsigned char *at, uint64_t bytes) {
  for (uint64_t i = 0; i != bytes; ++i)
    at[i] = 0xff;
}

void shardq_context::poison(int32_t channel) {
  size_t index = static_cast<size_t>(channel);
  fillPoison(reinterpret_cast<unsigned char *>(inbox(channel, epochs[index])),
             comm.plan.channels[index].bytes);
}
