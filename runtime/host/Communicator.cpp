//===- Communicator.cpp - Membership in a group of ranks ------------------===//

#include "Communicator.h"

#include "Memory.h"
#include "Waiting.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace shardq;

/// Between two looks of the watchdog.
static constexpr int kTickMs = 2;
static constexpr int64_t kDefaultDeadlineMs = 30'000;
// Above any use, and small enough to add to a clock.
static constexpr int64_t kMaxDeadlineMs = int64_t(1000) * 60 * 60 * 24 * 365;

static Outcome checkDeadline(const char *name, int64_t &milliseconds) {
  if (milliseconds < 0 || milliseconds > kMaxDeadlineMs)
    return failure(SHARDQ_INVALID, "%s is %lld", name, (long long)milliseconds);
  if (milliseconds == 0)
    milliseconds = kDefaultDeadlineMs;
  return {};
}

static Outcome readFault(const shardq_comm_options &options, bool threads,
                         Fault &fault) {
  const char *text = options.fault;
  if (!text)
    text = std::getenv("SHARDQ_FAULT");
  Fault parsed;
  if (Outcome outcome = Fault::parse(text ? text : "", parsed);
      outcome.failed())
    return outcome;
  if (parsed.action == Fault::Action::Kill && threads)
    return failure(SHARDQ_INVALID,
                   "fault: kill would end all ranks, since they are threads");
  if (parsed.rank == options.rank)
    fault = parsed;
  return {};
}

/// Reads a caller's options, as many as it has.
static Outcome readOptions(const shardq_comm_options &given,
                           shardq_comm_options &options) {
  constexpr size_t kFirstVersion = offsetof(shardq_comm_options, memory);
  if (given.struct_size < kFirstVersion)
    return failure(SHARDQ_INVALID, "options: struct_size is %zu, expected %zu",
                   given.struct_size, sizeof(options));
  options = {};
  std::memcpy(&options, &given, std::min(given.struct_size, sizeof(options)));
  return {};
}

static Outcome checkPlacement(const shardq_comm_options &options) {
  if (options.memory != SHARDQ_MEMORY_HOST &&
      options.memory != SHARDQ_MEMORY_CUDA)
    return failure(SHARDQ_INVALID,
                   "memory is %d, expected %d (host) or %d "
                   "(CUDA)",
                   options.memory, SHARDQ_MEMORY_HOST, SHARDQ_MEMORY_CUDA);
  switch (options.transport) {
  case SHARDQ_TRANSPORT_AUTO:
  case SHARDQ_TRANSPORT_DIRECT:
    break;
  case SHARDQ_TRANSPORT_NCCL:
    if (options.memory == SHARDQ_MEMORY_CUDA)
      break;
    return failure(SHARDQ_INVALID,
                   "transport is NCCL, but buffers are in host memory");
  default:
    return failure(SHARDQ_INVALID,
                   "transport is %d, expected %d (auto), %d (direct) or %d "
                   "(NCCL)",
                   options.transport, SHARDQ_TRANSPORT_AUTO,
                   SHARDQ_TRANSPORT_DIRECT, SHARDQ_TRANSPORT_NCCL);
  }
  if (options.arena_bytes > Arena::kMaxBytes)
    return failure(SHARDQ_INVALID, "arena_bytes is %llu",
                   (unsigned long long)options.arena_bytes);
  return {};
}

Outcome shardq_comm::create(const shardq_comm_options &given,
                            std::unique_ptr<shardq_comm> &comm) {
  // Without these nobody can be met.
  shardq_comm_options options;
  if (Outcome outcome = readOptions(given, options); outcome.failed())
    return outcome;
  shardq_bootstrap *bootstrap = options.bootstrap;
  if (!bootstrap)
    return failure(SHARDQ_INVALID, "options: bootstrap is NULL");
  if (!isRankOf(options.rank, options.world) || options.rank != bootstrap->rank)
    return failure(SHARDQ_INVALID,
                   "options: rank %d of %d with a bootstrap of rank %d of %d",
                   options.rank, options.world, bootstrap->rank,
                   bootstrap->world);
  int64_t rendezvousMs = options.rendezvous_deadline_ms;
  if (Outcome outcome = checkDeadline("rendezvous_deadline_ms", rendezvousMs);
      outcome.failed())
    return outcome;
  Deadline rendezvous = Deadline::in(rendezvousMs);

  // Everything else that is wrong here is told to the others.
  bool threads = bootstrap->ranksAreThreads();
  int64_t deadlineMs = options.deadline_ms;
  Plan plan;
  Fault fault;
  Outcome local = Plan::read(options.plan, plan);
  if (!local.failed())
    local = plan.checkWorld(options.world);
  if (!local.failed())
    local = checkDeadline("deadline_ms", deadlineMs);
  if (!local.failed())
    local = readFault(options, threads, fault);
  if (!local.failed() && options.world != bootstrap->world)
    local = failure(SHARDQ_MISMATCH, "%d ranks, but the bootstrap has %d",
                    options.world, bootstrap->world);
  if (!local.failed())
    local = checkPlacement(options);
  if (std::string asked = plan.describeAsked();
      !local.failed() && !asked.empty() && options.memory != SHARDQ_MEMORY_CUDA)
    local = failure(SHARDQ_INVALID,
                    "the program asks for %s, but buffers are in host memory",
                    asked.c_str());
  std::unique_ptr<cuda::Gpu> gpu;
  if (!local.failed() && options.memory == SHARDQ_MEMORY_CUDA)
    local = cuda::Gpu::open({options.cuda_device, options.rank, options.world,
                             deadlineMs, options.arena_bytes},
                            plan, fault, gpu);
  if (local.failed())
    gpu.reset();

  Membership membership;
  if (Outcome outcome =
          meet(*bootstrap, options.world, plan, local,
               {options.memory, options.transport, gpu.get(), options.host},
               rendezvous, membership);
      outcome.failed())
    return outcome;

  comm.reset(new shardq_comm(options, std::move(plan), deadlineMs, fault,
                             threads, membership, std::move(gpu)));
  if (membership.sockets.empty() && !comm->gpu)
    return {};
  std::function<void()> tick;
  if (comm->gpu)
    tick = [member = comm.get()] { member->tick(); };
  std::function<bool(int32_t)> receive;
  if (Remote *remote = comm->remote.get())
    receive = [remote](int32_t peer) { return remote->receive(peer); };
  Outcome outcome = comm->watchdog.start(
      std::move(membership.sockets),
      [member = comm.get()](int32_t peer) { member->peerClosed(peer); },
      std::move(tick), kTickMs, std::move(receive));
  // The others are members already and see this rank leave.
  if (outcome.failed())
    comm.reset();
  return outcome;
}

shardq_comm::shardq_comm(const shardq_comm_options &options, Plan plan,
                         int64_t deadlineMs, const Fault &fault,
                         bool ranksAreThreads, Membership &membership,
                         std::unique_ptr<cuda::Gpu> gpu)
    : rank(options.rank), world(options.world), plan(std::move(plan)),
      deadlineMs(deadlineMs), fault(fault), ranksAreThreads(ranksAreThreads),
      heaps(std::move(membership.heaps)), gpu(std::move(gpu)),
      carrier(std::move(membership.carrier)),
      transport(std::move(membership.transport)),
      carried(std::move(membership.carried)) {
  for (int32_t slot = 0; slot != this->plan.slots; ++slot)
    contexts.emplace_back(*this, slot);
  if (carrier)
    watch.emplace(*this);
  if (membership.isRemote)
    remote = std::make_unique<Remote>(heaps, rank, membership.sockets);
}

/// Longest time to end NCCL's communicators in peace, which peers may disturb.
static constexpr int64_t kFinishMs = 2000;

shardq_comm::~shardq_comm() {
  // What has been done has been told to the end.
  if (carrier)
    watch->publish();
  if (remote)
    remote->tellLeft();
  // Before the sockets close: a peer that sees one close looks here to tell
  // leaving from dying. The heap itself stays for as long as peers map it.
  storeRelease(heaps.left(rank), uint64_t(1));
  ringAll();
  // Kernels that still wait would hold up the device's memory.
  if (gpu)
    gpu->abort();
  watchdog.stop();
  if (!carrier)
    return;
  if (failed())
    carrier->abort();
  else
    carrier->finish(Deadline::in(std::min(kFinishMs, deadlineMs)));
}

shardq_context *shardq_comm::context(int32_t slot) {
  if (slot < 0 || slot >= plan.slots)
    return nullptr;
  return &contexts[static_cast<size_t>(slot)];
}

void shardq_comm::ringAll() {
  for (int32_t peer = 0; peer != world; ++peer)
    for (int32_t slot = 0; slot != plan.slots; ++slot)
      ring(heaps, peer, slot);
}

void shardq_comm::fail(const Failure &found, std::string text) {
  Failure failure = found;
  // The other ranks get what fits, and hand that on.
  if (text.empty())
    text = getText(failure);
  else
    setText(failure, text);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (status.load(std::memory_order_relaxed) != SHARDQ_OK)
      return;
    first = failure;
    detail = std::move(text);
    status.store(static_cast<shardq_status>(failure.status),
                 std::memory_order_release);
  }
  if (gpu)
    gpu->abort();
  // Also when it came from another rank, which may have died while it told
  // the others.
  for (int32_t step = 0; step != world; ++step)
    post(heaps.abort((rank + step) % world), failure);
  if (remote)
    remote->tellAbort(failure);
  ringAll();
}

bool shardq_comm::adoptRemote() {
  Failure failure;
  if (!read(heaps.abort(rank), failure))
    return false;
  // A peer that writes nonsense still ends this rank's exchanges.
  if (failure.status <= SHARDQ_OK || failure.status > SHARDQ_ABORTED)
    failure.status = SHARDQ_ABORTED;
  fail(failure);
  return true;
}

bool shardq_comm::adoptDevice() {
  Failure failure;
  if (!gpu || !gpu->readFailure(failure))
    return false;
  // A kernel follows ranks that wait as far as it can read, which is its host.
  if (failure.status == SHARDQ_DEADLINE && remote &&
      !gpu->reaches(failure.culprit))
    followElsewhere(heaps, failure);
  fail(failure);
  return true;
}

/// Passes news between the kernels of this rank and the other ranks.
void shardq_comm::tick() {
  if (failed() && !toldKernels) {
    toldKernels = true;
    gpu->tellKernels();
    if (carrier)
      carrier->abort();
  }
  if (watch)
    watch->tick();
  for (int32_t peer = 0; peer != world; ++peer)
    if (loadAcquire(heaps.left(peer)))
      gpu->noteLeft(peer);
  if (gpu->wantsKill())
    ::kill(getpid(), SIGKILL);
}

std::string shardq_comm::firstMessage() {
  Failure failure = firstFailure();
  std::string text = describe(failure, plan);
  std::lock_guard<std::mutex> lock(mutex);
  return detail.empty() ? text : text + ": " + detail;
}

Failure shardq_comm::firstFailure() {
  failed();
  std::lock_guard<std::mutex> lock(mutex);
  return first;
}

void shardq_comm::peerClosed(int32_t peer) {
  if (loadAcquire(heaps.left(peer)) || failed())
    return;
  Failure failure;
  failure.status = SHARDQ_PEER_DEAD;
  failure.reporter = rank;
  failure.culprit = peer;
  fail(failure);
}
