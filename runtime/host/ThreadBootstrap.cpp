//===- ThreadBootstrap.cpp - Ranks that are threads -----------------------===//

#include "Bootstrap.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

using namespace shardq;

namespace {

/// One step of the rendezvous.
struct Round {
  std::vector<char> blocks;
  std::vector<bool> here;
  size_t bytes = 0;
  int32_t arrived = 0;
  int32_t gone = 0;
};

/// Shared by the bootstraps of a group, which may outlive the C handle.
struct Meeting {
  explicit Meeting(int32_t world) : world(world) {}

  const int32_t world;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, Round> rounds;
  // By number of the communicator and kind; owned by the communicators.
  std::map<std::pair<uint64_t, std::string>, std::weak_ptr<void>> objects;
};

class ThreadBootstrap : public shardq_bootstrap {
public:
  ThreadBootstrap(std::shared_ptr<Meeting> meeting, int32_t rank)
      : shardq_bootstrap(rank, meeting->world), meeting(std::move(meeting)) {}

  Outcome allgather(const void *mine, void *all, size_t bytes,
                    const Deadline &deadline) override;
  Outcome sharedSpace(uint64_t stride,
                      std::shared_ptr<HeapSpace> &space) override;
  Outcome sharedObject(const char *kind, const Make &make,
                       std::shared_ptr<void> &object) override;
  bool ranksAreThreads() const override { return true; }

private:
  std::shared_ptr<Meeting> meeting;
  uint64_t step = 0;
};

} // namespace

struct shardq_thread_group {
  std::shared_ptr<Meeting> meeting;
};

Outcome ThreadBootstrap::allgather(const void *mine, void *all, size_t bytes,
                                   const Deadline &deadline) {
  std::unique_lock<std::mutex> lock(meeting->mutex);
  uint64_t key = step++;
  Round &round = meeting->rounds[key];
  if (round.here.empty()) {
    round.here.resize(static_cast<size_t>(world));
    round.blocks.resize(static_cast<size_t>(world) * bytes);
    round.bytes = bytes;
  }
  if (round.bytes != bytes || round.here[static_cast<size_t>(rank)])
    return failure(SHARDQ_BOOTSTRAP,
                   "rank %d came twice to the rendezvous, or at another step "
                   "than its peers",
                   rank);
  std::memcpy(round.blocks.data() + static_cast<size_t>(rank) * bytes, mine,
              bytes);
  round.here[static_cast<size_t>(rank)] = true;
  if (++round.arrived == world)
    meeting->changed.notify_all();
  bool complete = meeting->changed.wait_until(
      lock, deadline.point(), [&] { return round.arrived == world; });
  if (!complete) {
    int32_t missing = 0;
    while (round.here[static_cast<size_t>(missing)])
      ++missing;
    return failure(SHARDQ_ABSENT,
                   "rank %d did not come to the rendezvous (rank %d waited at "
                   "step %llu)",
                   missing, rank, (unsigned long long)key);
  }
  std::memcpy(all, round.blocks.data(), round.blocks.size());
  if (++round.gone == world)
    meeting->rounds.erase(key);
  return {};
}

Outcome ThreadBootstrap::sharedSpace(uint64_t stride,
                                     std::shared_ptr<HeapSpace> &space) {
  std::shared_ptr<void> object;
  Outcome outcome = sharedObject(
      "heaps",
      [&](std::shared_ptr<void> &made) {
        std::shared_ptr<HeapSpace> fresh;
        Outcome result = HeapSpace::allocate(stride, world, fresh);
        made = std::move(fresh);
        return result;
      },
      object);
  space = std::static_pointer_cast<HeapSpace>(object);
  return outcome;
}

Outcome ThreadBootstrap::sharedObject(const char *kind, const Make &make,
                                      std::shared_ptr<void> &object) {
  std::lock_guard<std::mutex> lock(meeting->mutex);
  // All ranks ask at the same step, so the step names the communicator.
  std::weak_ptr<void> &known = meeting->objects[{step, kind}];
  object = known.lock();
  if (object)
    return {};
  std::erase_if(meeting->objects, [this](const auto &entry) {
    return entry.first.first != step && entry.second.expired();
  });
  if (Outcome outcome = make(object); outcome.failed())
    return outcome;
  known = object;
  return {};
}

shardq_status shardq_thread_group_create(int32_t world,
                                         shardq_thread_group **out) {
  if (!out)
    return SHARDQ_INVALID;
  *out = nullptr;
  if (!isRankOf(0, world))
    return SHARDQ_INVALID;
  try {
    *out = new shardq_thread_group{std::make_shared<Meeting>(world)};
  } catch (const std::bad_alloc &) {
    return SHARDQ_SYSTEM;
  }
  return SHARDQ_OK;
}

void shardq_thread_group_destroy(shardq_thread_group *group) { delete group; }

shardq_status shardq_bootstrap_threads(shardq_thread_group *group, int32_t rank,
                                       shardq_bootstrap **out) {
  if (!out)
    return SHARDQ_INVALID;
  *out = nullptr;
  if (!group || !isRankOf(rank, group->meeting->world))
    return SHARDQ_INVALID;
  *out = new (std::nothrow) ThreadBootstrap(group->meeting, rank);
  return *out ? SHARDQ_OK : SHARDQ_SYSTEM;
}
