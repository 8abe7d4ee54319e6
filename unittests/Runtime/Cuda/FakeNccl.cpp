//===- FakeNccl.cpp - NCCL over memory that processes share ---------------===//
//
// The functions of NCCL that the runtime calls, in the fake driver's library:
// groups run on its streams and can be captured there. Ranks are processes or
// threads; each pair has a mailbox in shared memory, found by the unique id.
//
// It is as impolite as NCCL may be: communicators come into being, and groups
// are enqueued, only while somebody asks for the state, what the two sides of a
// pair do not agree on hangs, what is aborted on its way to a stream may still
// come there, and communicators end after the last graph that holds a group of
// theirs.
//
// The environment changes it:
//   SHARDQ_FAKE_NCCL_VERSION  22809 without it
//   SHARDQ_FAKE_NCCL_STALL    "rank:group": that rank's groups from that one on
//                             (they count from 0, for each communicator) move
//                             nothing
//   SHARDQ_FAKE_NCCL_ERROR    "rank:group": an asynchronous error of that group
//   SHARDQ_FAKE_NCCL_SLOW     "rank:group": that rank's groups from that one on
//                             are not launched before they are aborted
//   SHARDQ_FAKE_NCCL_LOSE     a rank whose bytes arrive as zeros
//
//===----------------------------------------------------------------------===//

#include "FakeStream.h"
#include "nccl/Library.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace shardq;
using namespace shardq::nccl;

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

constexpr Result kSystemError = 2;
constexpr Result kInvalidArgument = 4;
constexpr Result kInvalidUsage = 5;
constexpr Result kRemoteError = 6;

constexpr size_t kBoxBytes = 4096;

/// Bytes under way from one rank to another.
struct Mailbox {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  char bytes[kBoxBytes];
};

/// What all ranks of a communicator map; zeroes are its beginning.
struct Shared {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> left;
};

class World {
public:
  /// The same object for all ranks of this process, so that sanitizers see
  /// what orders them.
  static std::shared_ptr<World> find(const UniqueId &id, int world);
  World(const World &) = delete;
  ~World() { munmap(base, bytes); }

  Shared &shared() { return *reinterpret_cast<Shared *>(base); }
  Mailbox &box(int from, int to) {
    return reinterpret_cast<Mailbox *>(base + 4096)[from * world + to];
  }
  void unlink() { shm_unlink(name.c_str()); }

private:
  World(std::string name, char *base, size_t bytes, int world)
      : name(std::move(name)), base(base), bytes(bytes), world(world) {}

  std::string name;
  char *base;
  size_t bytes;
  int world;
};

/// One send or receive, as far as it is.
struct Operation {
  bool isSend;
  int peer;
  char *memory;
  size_t bytes;
};

/// What outlives the communicator while work of it is enqueued.
struct Inside {
  std::shared_ptr<World> world;
  int rank = 0, size = 0;
  std::atomic<bool> aborted = false;

  /// Whether streams or graphs have groups of it, beside the one who asks.
  static bool isHeld(const std::shared_ptr<Inside> &inside) {
    return inside.use_count() > 1;
  }
};

} // namespace

namespace shardq::nccl {

struct CommunicatorObject {
  std::shared_ptr<Inside> inside;
  std::atomic<Result> error = kSuccess;
  bool isComplete = false;
  bool isFinalizing = false;
  int groups = 0;
  // The last group, until somebody asks how it is.
  std::vector<Operation> pending;
  cuda::Stream stream = nullptr;
  int asked = 0;
};

} // namespace shardq::nccl

static void nap(long nanoseconds) {
  timespec time{0, nanoseconds};
  nanosleep(&time, nullptr);
}

static bool strikes(const char *variable, int rank, int group, bool fromThere) {
  const char *text = std::getenv(variable);
  int strikenRank = -1, strikenGroup = -1;
  return text && std::sscanf(text, "%d:%d", &strikenRank, &strikenGroup) == 2 &&
         rank == strikenRank &&
         (fromThere ? group >= strikenGroup : group == strikenGroup);
}

std::shared_ptr<World> World::find(const UniqueId &id, int world) {
  static std::mutex mutex;
  static auto &known = *new std::map<std::string, std::weak_ptr<World>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::string name(id.bytes);
  std::weak_ptr<World> &entry = known[name];
  if (std::shared_ptr<World> found = entry.lock())
    return found;
  size_t bytes = 4096 + sizeof(Mailbox) * static_cast<size_t>(world * world);
  int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    return nullptr;
  void *memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED)
    return nullptr;
  std::shared_ptr<World> made(
      new World(name, static_cast<char *>(memory), bytes, world));
  entry = made;
  return made;
}

/// Moves what can be moved; true once the operation is done.
static bool advance(Inside &inside, Operation &operation) {
  Mailbox &box = operation.isSend
                     ? inside.world->box(inside.rank, operation.peer)
                     : inside.world->box(operation.peer, inside.rank);
  uint64_t written = box.written.load(std::memory_order_acquire);
  uint64_t read = box.read.load(std::memory_order_acquire);
  uint64_t at = operation.isSend ? written : read;
  uint64_t room =
      operation.isSend ? kBoxBytes - (written - read) : written - read;
  size_t count = std::min(
      {static_cast<size_t>(room), operation.bytes, kBoxBytes - at % kBoxBytes});
  if (count == 0)
    return operation.bytes == 0;
  char *place = box.bytes + at % kBoxBytes;
  if (operation.isSend) {
    const char *lost = std::getenv("SHARDQ_FAKE_NCCL_LOSE");
    if (lost && std::atoi(lost) == inside.rank)
      std::memset(place, 0, count);
    else
      std::memcpy(place, operation.memory, count);
    box.written.store(at + count, std::memory_order_release);
  } else {
    fake::copyBytes(operation.memory, place, count);
    box.read.store(at + count, std::memory_order_release);
  }
  operation.memory += count;
  operation.bytes -= count;
  return operation.bytes == 0;
}

/// A group on its stream: the operations of a pair and a direction in order,
/// all others at the same time.
static void runGroup(Inside &inside, std::vector<Operation> operations,
                     bool stalls) {
  while (!operations.empty() && !inside.aborted) {
    bool moved = false;
    for (size_t i = 0; i < operations.size() && !stalls;) {
      const Operation before = operations[i];
      bool isFirst = std::none_of(
          operations.begin(), operations.begin() + static_cast<long>(i),
          [&](const Operation &other) {
            return other.isSend == before.isSend && other.peer == before.peer;
          });
      bool done = isFirst && advance(inside, operations[i]);
      moved |= done || operations[i].bytes != before.bytes;
      if (done)
        operations.erase(operations.begin() + static_cast<long>(i));
      else
        ++i;
    }
    if (!moved)
      nap(20'000);
  }
}

static thread_local int groupDepth = 0;
static thread_local std::vector<Operation> groupOperations;
static thread_local Communicator groupCommunicator = nullptr;
static thread_local cuda::Stream groupStream = nullptr;

// NOLINTBEGIN(readability-identifier-naming): these names are NCCL's.

FAKE Result ncclGetVersion(int *version) {
  const char *text = std::getenv("SHARDQ_FAKE_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22809;
  return kSuccess;
}

FAKE Result ncclGetUniqueId(UniqueId *id) {
  uint64_t words[2];
  if (getrandom(words, sizeof(words), 0) != sizeof(words))
    return kSystemError;
  std::snprintf(id->bytes, sizeof(id->bytes),
                "/shardq-fake-nccl-%016llx%016llx",
                static_cast<unsigned long long>(words[0]),
                static_cast<unsigned long long>(words[1]));
  return kSuccess;
}

FAKE Result ncclCommInitRankConfig(Communicator *communicator, int world,
                                   UniqueId id, int rank, Config *config) {
  if (config->magic != 0xcafebeef || config->size != sizeof(Config) ||
      config->version != 21400 || config->blocking != 0 || rank < 0 ||
      rank >= world)
    return kInvalidArgument;
  const char *nvls = std::getenv("NCCL_NVLS_ENABLE");
  if (!nvls || std::strcmp(nvls, "0") != 0)
    return kInvalidUsage;
  auto made = std::make_unique<CommunicatorObject>();
  made->inside = std::make_shared<Inside>();
  made->inside->rank = rank;
  made->inside->size = world;
  made->inside->world = World::find(id, world);
  if (!made->inside->world)
    return kSystemError;
  made->inside->world->shared().arrived.fetch_add(1);
  *communicator = made.release();
  return kInProgress;
}

FAKE Result ncclCommGetAsyncError(Communicator communicator, Result *error) {
  CommunicatorObject &object = *communicator;
  Inside &inside = *object.inside;
  *error = object.error;
  if (*error != kSuccess)
    return kSuccess;
  if (!object.isComplete) {
    if (inside.world->shared().arrived.load() <
        static_cast<uint32_t>(inside.size)) {
      *error = kInProgress;
      return kSuccess;
    }
    inside.world->unlink();
    object.isComplete = true;
  }
  if (object.isFinalizing && Inside::isHeld(object.inside)) {
    *error = kInProgress;
    return kSuccess;
  }
  if (object.pending.empty())
    return kSuccess;
  if (strikes("SHARDQ_FAKE_NCCL_SLOW", inside.rank, object.groups, true)) {
    *error = kInProgress;
    return kSuccess;
  }
  // Somebody has to ask twice.
  if (object.asked++ == 0) {
    *error = kInProgress;
    return kSuccess;
  }
  int group = object.groups++;
  if (strikes("SHARDQ_FAKE_NCCL_ERROR", inside.rank, group, false))
    object.error = kRemoteError;
  bool stalls = strikes("SHARDQ_FAKE_NCCL_STALL", inside.rank, group, true) ||
                object.error != kSuccess;
  fake::enqueue(object.stream,
                [inside = object.inside, operations = object.pending, stalls] {
                  runGroup(*inside, operations, stalls);
                });
  object.pending.clear();
  object.asked = 0;
  return kSuccess;
}

FAKE Result ncclCommAbort(Communicator communicator) {
  communicator->inside->aborted = true;
  // A thread may be about to launch what is under way, and takes its time.
  if (!communicator->pending.empty() && communicator->error == kSuccess) {
    nap(50'000'000);
    if (!fake::isThere(communicator->stream)) {
      std::fputs("fake NCCL: a group's stream is gone\n", stderr);
      std::abort();
    }
  }
  communicator->inside->world->unlink();
  while (Inside::isHeld(communicator->inside))
    nap(200'000);
  delete communicator;
  return kSuccess;
}

FAKE Result ncclCommFinalize(Communicator communicator) {
  if (communicator->error != kSuccess)
    return communicator->error;
  communicator->isFinalizing = true;
  return kInProgress;
}

FAKE Result ncclCommDestroy(Communicator communicator) {
  delete communicator;
  return kSuccess;
}

FAKE Result ncclGroupStart() {
  ++groupDepth;
  return kSuccess;
}

static Result addOperation(Operation operation, int type,
                           Communicator communicator, cuda::Stream stream) {
  bool isOther = groupCommunicator &&
                 (groupCommunicator != communicator || groupStream != stream);
  if (groupDepth == 0 || type != kBytes || isOther || operation.peer < 0 ||
      operation.peer >= communicator->inside->size || !operation.memory)
    return kInvalidArgument;
  // The group before must have been seen to the end.
  if (!communicator->isComplete || !communicator->pending.empty())
    return kInvalidUsage;
  groupCommunicator = communicator;
  groupStream = stream;
  groupOperations.push_back(operation);
  return kSuccess;
}

FAKE Result ncclSend(const void *source, size_t count, int type, int peer,
                     Communicator communicator, cuda::Stream stream) {
  return addOperation(
      {true, peer, static_cast<char *>(const_cast<void *>(source)), count},
      type, communicator, stream);
}

FAKE Result ncclRecv(void *target, size_t count, int type, int peer,
                     Communicator communicator, cuda::Stream stream) {
  return addOperation({false, peer, static_cast<char *>(target), count}, type,
                      communicator, stream);
}

FAKE Result ncclGroupEnd() {
  if (groupDepth == 0)
    return kInvalidUsage;
  if (--groupDepth > 0)
    return kSuccess;
  Communicator communicator = std::exchange(groupCommunicator, nullptr);
  std::vector<Operation> operations = std::exchange(groupOperations, {});
  if (!communicator)
    return kSuccess;
  communicator->pending = std::move(operations);
  communicator->stream = groupStream;
  communicator->asked = 0;
  return kInProgress;
}

FAKE const char *ncclGetErrorString(Result result) {
  return result == kRemoteError ? "remote error" : "an error of the fake NCCL";
}

FAKE const char *ncclGetLastError(Communicator) { return ""; }

// NOLINTEND(readability-identifier-naming)
