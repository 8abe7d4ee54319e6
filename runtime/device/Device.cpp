//===- Device.cpp - The exchange protocol for kernels ---------------------===//
//
// Compiled to a bitcode library that generated kernels link.
//
// A wait never traps and never hangs: it ends by arrival, by its deadline, or
// by the abort word, and after a failure the inbox is filled with 0xFF.
//
//===----------------------------------------------------------------------===//

#include "Device.h"
#include "Intrinsics.h"

using namespace shardq;
using namespace shardq::device;
using protocol::Exchange;
using protocol::Group;
using protocol::Verdict;

// Inlined into the kernels: calls of kernels cost a stack.
#define SHARDQ_DEVICE extern "C" __attribute__((always_inline))

namespace {

/// The protocol's memory policy on a device, without waiting.
struct DeviceMemory {
  uint64_t loadAcquire(const uint64_t &word) {
    return __scoped_atomic_load_n(&word, __ATOMIC_ACQUIRE,
                                  __MEMORY_SCOPE_SYSTEM);
  }
  void storeRelease(uint64_t &word, uint64_t value) {
    __scoped_atomic_store_n(&word, value, __ATOMIC_RELEASE,
                            __MEMORY_SCOPE_SYSTEM);
  }
  protocol::Flag loadAcquire(const protocol::Flag &flag) {
    protocol::Flag result;
    uint64_t news;
    loadPair(&flag, result.epoch, news);
    result.news.word = static_cast<int64_t>(news);
    return result;
  }
  void storeRelease(protocol::Flag &flag, const protocol::Flag &value) {
    storePair(&flag, value.epoch, static_cast<uint64_t>(value.news.word));
  }
  int64_t load(const int64_t &word) {
    return __scoped_atomic_load_n(&word, __ATOMIC_RELAXED,
                                  __MEMORY_SCOPE_SYSTEM);
  }
  void store(int64_t &word, int64_t value) {
    __scoped_atomic_store_n(&word, value, __ATOMIC_RELAXED,
                            __MEMORY_SCOPE_SYSTEM);
  }
  // Waiting kernels poll.
  void ring(int64_t, int64_t) {}
};

uint32_t loadRelaxed(const uint32_t *word) {
  return __scoped_atomic_load_n(word, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

/// epoch % generations in 32 bits: a remainder of 64 bits is a call, for which
/// the kernel would need a stack.
uint64_t generationOf(uint64_t epoch, uint64_t generations) {
  uint32_t count = static_cast<uint32_t>(generations);
  uint32_t high = static_cast<uint32_t>(epoch >> 32) % count;
  uint32_t low = static_cast<uint32_t>(epoch) % count;
  uint32_t carry = (0u - count) % count; // 2^32 % count
  return (high * carry + low) % count;
}

bool hasFailed(const DeviceContext &context) {
  return loadRelaxed(context.failed) != 0;
}

/// Whether NCCL carries the channel's rows. Where it carries none, that is
/// known without another look at memory.
bool isCarried(const DeviceContext &context, int32_t channel) {
  return context.marks && context.channels[channel].isCarried != 0;
}

/// Claims the right to say why; true for the first on this rank.
bool claim(const DeviceContext &context) {
  uint32_t expected = 0;
  return __scoped_atomic_compare_exchange_n(
      context.failed, &expected, uint32_t(1), /*weak=*/false, __ATOMIC_RELAXED,
      __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

/// Hands a claimed failure to the watchdog.
void publish(const DeviceContext &context, const Failure &failure) {
  DeviceMemory memory;
  Failure &record = context.control->record;
  memory.store(record.status, failure.status);
  memory.store(record.reporter, failure.reporter);
  memory.store(record.culprit, failure.culprit);
  memory.store(record.slot, failure.slot);
  memory.store(record.channel, failure.channel);
  memory.store(record.operation, failure.operation);
  memory.store(record.epoch, failure.epoch);
  memory.store(record.lastSeen, failure.lastSeen);
  memory.store(record.expected, failure.expected);
  memory.store(record.found, failure.found);
  memory.store(record.waitedMs, failure.waitedMs);
  memory.store(record.neighbour, failure.neighbour);
  memory.store(record.lost, failure.lost);
  memory.store(record.circle, failure.circle);
  memory.store(record.misuse, failure.misuse);
  memory.store(record.request, failure.request);
  memory.storeRelease(context.control->ready, 1);
}

void record(const DeviceContext &context, const Failure &failure) {
  if (claim(context))
    publish(context, failure);
}

/// A call that cannot be right, or data of a step: of `request`, if of one.
void recordMisuse(const DeviceContext &context, Misuse kind, int64_t operation,
                  int64_t found, int64_t expected, int64_t request = -1) {
  Failure failure;
  failure.status = SHARDQ_INVALID;
  failure.reporter = context.rank;
  failure.culprit = context.rank;
  failure.slot = context.slot;
  failure.operation = operation;
  failure.expected = expected;
  failure.found = found;
  failure.misuse = static_cast<int64_t>(kind);
  failure.request = request;
  record(context, failure);
}

bool isChannel(const DeviceContext &context, int32_t channel) {
  return channel >= 0 && channel < context.numChannels;
}

/// Whether the call names a channel and ranks; else records that.
bool checkCall(const DeviceContext &context, int32_t channel, int32_t operation,
               const Group &group) {
  if (!isChannel(context, channel)) {
    recordMisuse(context, Misuse::Channel, operation, channel, -1);
    return false;
  }
  int64_t outside;
  if (!group.isWithin(context.world, outside)) {
    recordMisuse(context, Misuse::Group, operation, outside, context.world);
    return false;
  }
  return true;
}

// Fruitless looks at a flag before the clock is read for the first time: what
// comes at once pays for nothing else.
constexpr uint32_t kFreeLooks = 64;
// Looks from which on the lane rests in between. Lanes are few, so this spares
// the link rather than the multiprocessor.
constexpr uint32_t kBusyLooks = 4096;
// Time between two looks at host memory, which is a round trip over the bus.
constexpr uint64_t kHostLookNs = 20'000;
// Time after which a wait is worth telling others about.
constexpr uint64_t kPublishNs = 200'000;

/// How a lane waits: looks at the flag, now and then at whether this rank has
/// failed, at intervals at the words of the host, at last at the clock.
class Waiting : public DeviceMemory {
public:
  Waiting(const DeviceContext &context, const Exchange &exchange,
          bool isCarried)
      : context(context), exchange(exchange), isCarried(isCarried) {}

  bool keepWaiting(int64_t producer) {
    if (++looks < kFreeLooks)
      return true;
    if (looks >= kBusyLooks)
      rest(64);
    if (looks % 16 != 0)
      return true;
    if (hasFailed(context))
      return false;
    uint64_t now = nanoseconds();
    if (!started) {
      started = true;
      begin = lastLook = now;
      return true;
    }
    if (now - lastLook < kHostLookNs)
      return true;
    lastLook = now;
    fenceAliases();
    return mayStay(producer, now - begin);
  }

  bool reaches(int64_t rank) const {
    return !context.elsewhere || loadRelaxed(&context.elsewhere[rank]) == 0;
  }

  /// Nobody is waited for any more. After a failure what was told stays: a peer
  /// whose own deadline passes before it hears of this one must not take this
  /// rank for one that waits for nobody.
  void finish() {
    if (!hasPublished)
      return;
    storeRelease(context.progress.at(context.rank, context.slot).waiting, 0);
    if (hasMark())
      storeRelease(context.marks[exchange.channel].arrived, exchange.epoch);
  }

private:
  /// Whether the watchdog wants to know of a direct wait, since it sees to the
  /// deadlines of exchanges around it.
  bool hasMark() const { return context.marks && !isCarried; }

  bool mayStay(int64_t producer, uint64_t waited) {
    // A rank that leaves because of an error has told it first: read in the
    // reverse order.
    bool left =
        __scoped_atomic_load_n(&context.left[producer], __ATOMIC_ACQUIRE,
                               __MEMORY_SCOPE_SYSTEM) != 0;
    if (loadRelaxed(&context.control->abort) != 0) {
      // The host knows why.
      claim(context);
      return false;
    }
    if (left) {
      // It may have signalled before it left, so one more look at the flag.
      if (leftSeen != producer) {
        leftSeen = producer;
        return true;
      }
      fail(SHARDQ_PEER_LEFT, producer);
      return false;
    }
    if (waited >= kPublishNs)
      tell(producer);
    if (static_cast<int64_t>(waited) < patienceNs())
      return true;
    fail(SHARDQ_DEADLINE, producer);
    return false;
  }

  int64_t patienceNs() const {
    constexpr int64_t kMs = 1'000'000;
    return isCarried ? oldLineMs(context.deadlineNs / kMs) * kMs
                     : context.deadlineNs;
  }

  /// Several lanes may write here: all fields but the target are the same, and
  /// any of their targets is one that this rank waits for.
  void tell(int64_t producer) {
    SlotProgress &progress = context.progress.at(context.rank, context.slot);
    store(progress.channel, exchange.channel);
    store(progress.operation, exchange.operation);
    store(progress.target, producer);
    __scoped_atomic_store_n(&progress.epoch, exchange.epoch, __ATOMIC_RELAXED,
                            __MEMORY_SCOPE_SYSTEM);
    storeRelease(progress.waiting, 1);
    if (hasMark())
      storeRelease(context.marks[exchange.channel].begun, exchange.epoch);
    hasPublished = true;
  }

  void fail(shardq_status status, int64_t producer) {
    if (!claim(context))
      return;
    Failure failure;
    failure.status = status;
    failure.reporter = context.rank;
    failure.waitedMs = patienceNs() / 1'000'000;
    // One that left needs no search: it is not held up by anybody. Nor is one
    // whose line NCCL has brought: it took part, and yet its line is an old
    // one.
    protocol::findLaggard(
        *this, context.flags, context.progress, exchange, producer,
        status == SHARDQ_DEADLINE && !isCarried ? context.world : 0, failure);
    failure.lost |= isCarried;
    publish(context, failure);
  }

  const DeviceContext &context;
  const Exchange &exchange;
  const bool isCarried;
  bool hasPublished = false; // this lane has told others what it waits for
  uint32_t looks = 0;
  bool started = false;
  uint64_t begin = 0;
  uint64_t lastLook = 0;
  int64_t leftSeen = -1; // producer that had left at the last look
};

bool strikes(const Fault &fault, int32_t operation, uint64_t epoch) {
  return fault.action != Fault::None &&
         (fault.operation < 0 || fault.operation == operation) &&
         (fault.epoch < 0 || static_cast<uint64_t>(fault.epoch) == epoch);
}

/// Stops until somebody gives up: far beyond what its peers wait for, and yet
/// not for ever. One thread.
void stall(const DeviceContext &context) {
  uint64_t begin = nanoseconds();
  uint64_t limit = 10 * static_cast<uint64_t>(context.deadlineNs);
  while (nanoseconds() - begin < limit && !hasFailed(context)) {
    if (loadRelaxed(&context.control->abort) != 0) {
      claim(context);
      return;
    }
    rest(10'000);
  }
}

/// A signal that a fault strikes. One block. False if nothing is to be told.
bool isSignalToldFaulty(const DeviceContext &context) {
  if (context.fault.action != Fault::Kill &&
      context.fault.action != Fault::Stall)
    return true;
  if (threadIndex() == 0) {
    if (context.fault.action == Fault::Kill)
      __scoped_atomic_store_n(&context.control->kill, uint32_t(1),
                              __ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
    stall(context);
  }
  return !barrierAny(threadIndex() == 0 && hasFailed(context));
}

/// Where the line for a member is put.
protocol::FlagTable tableFor(const DeviceContext &context, int64_t consumer,
                             bool isCarried) {
  return isCarried && consumer != context.rank ? context.outgoing
                                               : context.flags;
}

/// One lane's part of such a signal.
void signalFaulty(DeviceMemory &memory, const DeviceContext &context,
                  const protocol::FlagTable &table, const Exchange &exchange,
                  int64_t index, const int64_t *rows) {
  int64_t consumer = exchange.group.member(index);
  Exchange told = exchange;
  // A group of this member alone, so that its row count can be another.
  told.group = {consumer, 1, 1};
  int64_t toldRows = rows[index];
  switch (context.fault.action) {
  case Fault::DropFlag:
    // Its own flag is set: the rank itself believes that all went well.
    if (consumer != context.rank)
      return;
    break;
  case Fault::WrongRows:
    toldRows += consumer != context.rank;
    break;
  case Fault::WrongOperation:
    ++told.operation;
    break;
  default:
    break;
  }
  protocol::signalMember(memory, table, told, 0, &toldRows);
}

/// What a signal needs to know and the push in front of it does not write, read
/// at once: possibly before the push has ended.
struct Facts {
  Facts(const DeviceContext &context, int32_t channel, const Group &group)
      : known(context) {
    int64_t outside;
    isRight =
        isChannel(context, channel) && group.isWithin(context.world, outside);
    if (!isRight)
      return;
    isCarriedByNccl = isCarried(known, channel);
    // What earlier kernels wrote may not be in this multiprocessor's cache yet.
    epoch = 1 + __scoped_atomic_load_n(&context.epochs[channel],
                                       __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  }

  DeviceContext known;
  bool isRight; // channel and group
  bool isCarriedByNccl = false;
  uint64_t epoch = 0; // that the signal begins
};

/// Signals; `wanted` is null where lines need not say what is expected. The new
/// epoch, or 0 after an error that is known. One block.
__attribute__((always_inline)) uint64_t
signalGroup(const DeviceContext &context, const Facts &facts, int32_t channel,
            int32_t operation, const Group &group, const int64_t *rows,
            const int64_t *wanted) {
  bool refuse = loadRelaxed(facts.known.failed) != 0 || !facts.isRight;
  // Orders what the block stored before what each lane releases below, and all
  // threads take one way.
  if (barrierAny(refuse)) {
    if (!hasFailed(context))
      checkCall(context, channel, operation, group);
    return 0;
  }
  uint64_t epoch = facts.epoch;
  Exchange exchange{
      facts.known.rank, facts.known.slot, channel, epoch, operation, group};
  bool isFaulty = strikes(facts.known.fault, operation, epoch);
  if (isFaulty && !isSignalToldFaulty(context))
    return 0;
  DeviceMemory memory;
  for (int64_t step = threadIndex(); step < group.size;
       step += blockThreads()) {
    int64_t index = group.rotated(step, context.rank);
    int64_t member = group.member(index);
    const protocol::FlagTable table =
        tableFor(facts.known, member, facts.isCarriedByNccl);
    if (wanted)
      memory.store(
          table.line(member, context.slot, channel, epoch, context.rank).wanted,
          wanted[index]);
    if (isFaulty)
      signalFaulty(memory, context, table, exchange, index, rows);
    else
      protocol::signalMember(memory, table, exchange, index, rows);
  }
  // All have read the epoch, and all flags are set: who looks for a laggard
  // takes the epoch for a promise.
  barrierAny(false);
  // The release goes over the link and back; the lanes that wait for peers next
  // are others.
  if (threadIndex() == blockThreads() - 1) {
    memory.storeRelease(facts.known.epochs[channel], epoch);
    if (facts.isCarriedByNccl) {
      Mark &mark = facts.known.marks[channel];
      memory.store(mark.operation, operation);
      memory.store(mark.group.first, group.first);
      memory.store(mark.group.stride, group.stride);
      memory.store(mark.group.size, group.size);
      memory.storeRelease(mark.begun, epoch);
    }
  }
  return epoch;
}

/// Fills the channel's current inbox. One block. Peers that have not heard of
/// the error may still be pushing there, and what they write over the poison is
/// as useless as the poison: a race by design.
__attribute__((no_sanitize("thread"))) void
poison(const DeviceContext &context, int32_t channel, uint64_t epoch) {
  const Channel &buffer = context.channels[channel];
  uint64_t generation = generationOf(epoch, buffer.generations);
  char *inbox = context.slotBase + buffer.offset + generation * buffer.bytes;
  uint64_t words =
      reinterpret_cast<uint64_t>(inbox) % 8 == 0 ? buffer.bytes / 8 : 0;
  uint64_t thread = threadIndex(), threads = blockThreads();
  for (uint64_t i = thread; i < words; i += threads)
    reinterpret_cast<uint64_t *>(inbox)[i] = ~uint64_t(0);
  for (uint64_t i = words * 8 + thread; i < buffer.bytes; i += threads)
    inbox[i] = static_cast<char>(0xff);
}

/// Waits for all members, or fills the inbox of `epoch`. One block.
__attribute__((always_inline)) void
awaitGroup(const DeviceContext &context, const protocol::FlagTable &flags,
           int32_t channel, int32_t operation, const Group &group,
           const int64_t *rows, uint64_t epoch, bool isCarried, bool refuse) {
  if (!refuse) {
    Exchange exchange{context.rank, context.slot, channel,
                      epoch,        operation,    group};
    Waiting memory(context, exchange, isCarried);
    for (int64_t step = threadIndex(); step < group.size && !refuse;
         step += blockThreads()) {
      Verdict verdict = protocol::awaitMember(
          memory, flags, exchange, group.rotated(step, context.rank), rows);
      refuse = verdict.arrival != protocol::Arrival::Here;
      if (Failure failure = protocol::failureOf(exchange, verdict);
          failure.status != SHARDQ_OK)
        record(context, failure);
    }
    // Behind the barrier no lane tells anything any more.
    refuse = barrierAny(refuse);
    if (!refuse)
      return memory.finish();
  }
  if (isChannel(context, channel))
    poison(context, channel, epoch);
}

} // namespace

SHARDQ_DEVICE void *shardq_device_inbox(const DeviceContext *context,
                                        int32_t channel,
                                        int64_t signals_since) {
  const Channel &buffer = context->channels[channel];
  uint64_t epoch =
      context->epochs[channel] + 1 - static_cast<uint64_t>(signals_since);
  return context->slotBase + buffer.offset +
         generationOf(epoch, buffer.generations) * buffer.bytes;
}

SHARDQ_DEVICE void *shardq_device_peer(const DeviceContext *context,
                                       void *local, int64_t peer) {
  return static_cast<char *>(local) +
         (peer - context->rank) * static_cast<int64_t>(context->flags.stride);
}

SHARDQ_DEVICE int32_t shardq_device_ok(const DeviceContext *context) {
  // It may be set meanwhile; a kernel that began before goes on in peace.
  return __scoped_atomic_load_n(context->failed, __ATOMIC_RELAXED,
                                __MEMORY_SCOPE_WRKGRP) == 0;
}

SHARDQ_DEVICE int32_t shardq_device_admit(const DeviceContext *context,
                                          int32_t channel, int32_t operation,
                                          int64_t rows, int64_t row_bytes) {
  uint64_t limit = context->channels[channel].bytes;
  // rows * row_bytes may overflow.
  if (rows >= 0 && row_bytes >= 0 &&
      (row_bytes == 0 ||
       static_cast<uint64_t>(rows) <= limit / static_cast<uint64_t>(row_bytes)))
    return 1;
  Failure failure;
  failure.status = SHARDQ_CAPACITY;
  failure.reporter = context->rank;
  failure.culprit = context->rank;
  failure.slot = context->slot;
  failure.channel = channel;
  failure.operation = operation;
  failure.expected =
      row_bytes > 0 ? static_cast<int64_t>(limit) / row_bytes : 0;
  failure.found = rows;
  record(*context, failure);
  return 0;
}

SHARDQ_DEVICE void shardq_device_beyond_table(const DeviceContext *context,
                                              int64_t block, int64_t request,
                                              int64_t requests, int64_t width) {
  bool isKnown = request < requests;
  recordMisuse(*context,
               isKnown ? Misuse::BlockBeyondTable : Misuse::RequestBeyondTable,
               /*operation=*/-1, block, isKnown ? width : requests, request);
}

SHARDQ_DEVICE void shardq_device_no_place(const DeviceContext *context,
                                          int64_t block, int64_t request,
                                          int64_t entry) {
  recordMisuse(*context, Misuse::NoPlace, /*operation=*/-1, entry, block,
               request);
}

SHARDQ_DEVICE void shardq_device_beyond_cache(const DeviceContext *context,
                                              int64_t slot, int64_t row,
                                              int64_t rows) {
  recordMisuse(*context, Misuse::BeyondCache, /*operation=*/-1, slot, rows,
               row);
}

SHARDQ_DEVICE void shardq_device_wrong_start(const DeviceContext *context,
                                             int64_t index, int64_t start,
                                             int64_t before, int64_t rows) {
  Misuse kind = index == 0       ? Misuse::FirstStart
                : start < before ? Misuse::StartBelow
                                 : Misuse::LastStart;
  recordMisuse(*context, kind, /*operation=*/-1, start,
               kind == Misuse::LastStart ? rows : before, index);
}

SHARDQ_DEVICE void shardq_device_wrong_decodes(const DeviceContext *context,
                                               int64_t decodes, int64_t rows) {
  recordMisuse(*context, Misuse::Decodes, /*operation=*/-1, decodes, rows);
}

SHARDQ_DEVICE void shardq_device_split_request(const DeviceContext *context,
                                               int64_t decodes, int64_t request,
                                               int64_t end) {
  recordMisuse(*context, Misuse::SplitRequest, /*operation=*/-1, decodes, end,
               request);
}

SHARDQ_DEVICE void shardq_device_expect(const DeviceContext *context,
                                        int64_t found, int64_t expected) {
  if (found != expected)
    recordMisuse(*context, Misuse::Size, /*operation=*/-1, found, expected);
}

SHARDQ_DEVICE void shardq_device_signal(const DeviceContext *context,
                                        int32_t channel, int32_t operation,
                                        int64_t group_first,
                                        int64_t group_stride,
                                        int64_t group_size,
                                        const int64_t *rows) {
  Group group{group_first, group_stride, group_size};
  signalGroup(*context, Facts(*context, channel, group), channel, operation,
              group, rows, nullptr);
}

SHARDQ_DEVICE void
shardq_device_announce(const DeviceContext *context, int32_t channel,
                       int32_t operation, int64_t group_first,
                       int64_t group_stride, int64_t group_size,
                       const int64_t *rows, const int64_t *wanted) {
  Group group{group_first, group_stride, group_size};
  signalGroup(*context, Facts(*context, channel, group), channel, operation,
              group, rows, wanted);
}

SHARDQ_DEVICE void shardq_device_wait(const DeviceContext *context,
                                      int32_t channel, int32_t operation,
                                      int64_t group_first, int64_t group_stride,
                                      int64_t group_size, const int64_t *rows) {
  Group group{group_first, group_stride, group_size};
  bool carried = isChannel(*context, channel) && isCarried(*context, channel);
  // Kernels of NCCL come and go without asking what the host knows.
  if (carried && threadIndex() == 0 &&
      loadRelaxed(&context->control->abort) != 0)
    claim(*context);
  bool refuse =
      hasFailed(*context) || !checkCall(*context, channel, operation, group);
  uint64_t epoch = isChannel(*context, channel) ? context->epochs[channel] : 0;
  if (!refuse && epoch == 0) {
    recordMisuse(*context, Misuse::WaitBeforeSignal, operation, channel, -1);
    refuse = true;
  }
  refuse = barrierAny(refuse);
  if (carried && !refuse && threadIndex() == 0) {
    DeviceMemory memory;
    memory.storeRelease(context->marks[channel].arrived, epoch);
  }
  awaitGroup(*context, context->flags, channel, operation, group, rows, epoch,
             carried, refuse);
}

SHARDQ_DEVICE void shardq_device_exchange(
    const DeviceContext *context, int32_t channel, int32_t operation,
    int64_t group_first, int64_t group_stride, int64_t group_size,
    const int64_t *rows, const int64_t *expected, int32_t ahead) {
  Group group{group_first, group_stride, group_size};
  Facts facts(*context, channel, group);
  if (ahead)
    shardq_device_await_front();
  uint64_t epoch =
      signalGroup(*context, facts, channel, operation, group, rows, nullptr);
  bool refuse = epoch == 0;
  if (refuse && isChannel(*context, channel))
    epoch = context->epochs[channel];
  awaitGroup(*context, facts.known.flags, channel, operation, group, expected,
             epoch, facts.isCarriedByNccl, refuse);
}
