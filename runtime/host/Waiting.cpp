//===- Waiting.cpp - How a CPU rank waits ---------------------------------===//

#include "Waiting.h"

#include <algorithm>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

using namespace shardq;

/// Cores that this process may use.
static int countCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return 1;
  return std::max(CPU_COUNT(&set), 1);
}

/// Polls before sleeping. With a core for each rank a spinning wait costs
/// nobody anything; without, it takes the core that the producer needs.
static int64_t spinBudget(int32_t world) {
  static const int cores = countCores();
  return world <= cores ? 4000 : 50;
}

/// Then the core is offered to others, which is cheaper than sleeping when the
/// producer is about to run here.
static constexpr int64_t kYields = 32;

static void pauseCore() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

Waiting::Waiting(shardq_comm &comm, const protocol::Exchange &exchange)
    : HostMemory(comm.heaps), comm(comm), exchange(exchange),
      deadline(Deadline::in(comm.deadlineMs)) {}

Waiting::~Waiting() {
  if (!sleeping)
    return;
  Doorbell &bell = heaps.doorbell(comm.rank, exchange.slot);
  shared(bell.sleepers).fetch_sub(1, std::memory_order_seq_cst);
  // After a failure what was told stays: a peer whose own deadline passes
  // before it hears of this one must not take this rank for one that waits for
  // nobody.
  if (!gaveUp)
    storeRelease(heaps.progress(comm.rank, exchange.slot).waiting, uint64_t(0));
}

bool Waiting::keepWaiting(int64_t producer) {
  if (int64_t budget = spinBudget(comm.world); spins < budget + kYields) {
    if (spins < budget)
      pauseCore();
    else
      sched_yield();
    return (++spins & 63) != 0 || !comm.failed();
  }
  Doorbell &bell = heaps.doorbell(comm.rank, exchange.slot);
  SlotProgress &progress = heaps.progress(comm.rank, exchange.slot);
  if (!sleeping) {
    sleeping = true;
    storeRelaxed(progress.channel, exchange.channel);
    storeRelaxed(progress.operation, exchange.operation);
    storeRelaxed(progress.epoch, exchange.epoch);
    storeRelaxed(progress.target, producer);
    storeRelease(progress.waiting, uint64_t(1));
    shared(bell.sleepers).fetch_add(1, std::memory_order_seq_cst);
  } else {
    storeRelaxed(progress.target, producer);
    sleep();
  }
  // Whatever rings from here on ends the next sleep at once; whatever rang
  // before is seen by the checks below or by the caller's next look at the
  // flag.
  rings = shared(bell.rings).load(std::memory_order_seq_cst);
  gaveUp = !mayStay(producer);
  return !gaveUp;
}

void Waiting::sleep() {
  // Rings end the sleep. The slice is for a peer that died between setting its
  // flag and ringing.
  int64_t slice =
      std::min<int64_t>(std::max<int64_t>(deadline.remaining(), 1), 50);
  timespec timeout{0, slice * 1'000'000};
  Doorbell &bell = heaps.doorbell(comm.rank, exchange.slot);
  syscall(SYS_futex, &bell.rings, FUTEX_WAIT, rings, &timeout, nullptr, 0);
}

bool Waiting::mayStay(int64_t producer) {
  // A rank that leaves because of an error has told it first: read in the
  // reverse order.
  bool left = shardq::loadAcquire(heaps.left(producer)) != 0;
  if (comm.failed())
    return false;
  if (left) {
    // It may have signalled before it left, so one more look at the flag.
    if (leftSeen != producer) {
      leftSeen = producer;
      return true;
    }
    failFor(SHARDQ_PEER_LEFT, producer);
    return false;
  }
  if (!deadline.passed())
    return true;
  failFor(SHARDQ_DEADLINE, producer);
  return false;
}

void Waiting::failFor(shardq_status status, int64_t producer) {
  Failure failure;
  failure.status = status;
  failure.reporter = comm.rank;
  failure.waitedMs = comm.deadlineMs;
  // One that left needs no search: it is not held up by anybody.
  findLaggard(heaps, exchange, producer, failure,
              status == SHARDQ_DEADLINE ? comm.world : 0);
  comm.fail(failure);
}

void shardq::findLaggard(const Heaps &heaps, const protocol::Exchange &exchange,
                         int64_t producer, Failure &failure, int32_t maxHops) {
  HostMemory memory(heaps);
  protocol::findLaggard(memory, heaps.flagTable(), heaps.progressTable(),
                        exchange, producer, maxHops, failure);
}

void shardq::followElsewhere(const Heaps &heaps, Failure &failure) {
  HostMemory memory(heaps);
  const protocol::ProgressTable table = heaps.progressTable();
  protocol::Edge edge;
  int64_t hops = 0;
  for (; hops != table.world &&
         protocol::readEdge(memory, table, failure.culprit, failure.slot, edge);
       ++hops) {
    failure.culprit = edge.target;
    failure.slot = edge.slot;
    failure.channel = edge.channel;
    failure.operation = edge.operation;
    failure.epoch = static_cast<int64_t>(edge.epoch);
    // Whoever waits for it here has been through the exchange before.
    failure.lastSeen = failure.epoch - 1;
  }
  failure.circle =
      hops == table.world &&
      protocol::readEdge(memory, table, failure.culprit, failure.slot, edge);
  if (failure.circle)
    failure.found = edge.operation;
}
