//===- FakeDriver.cpp - A CUDA driver over host memory --------------------===//
//
// A shared library with the driver's symbols that the runtime calls, so that
// everything but a GPU's memory model is tested on machines without one.
// Device memory is host memory, a stream is a thread, and kernels are those of
// the device library and the tests, compiled for the host and run by a few
// threads a block. Images are not read: kernels are found by name.
//
// It refuses what a driver refuses: calls without a current context, bad
// handles, unaligned sizes, launches of stream-captured work outside.
//
// The environment changes it:
//   SHARDQ_FAKE_DEVICES   number of devices, 2 without it
//   SHARDQ_FAKE_MEMORY    bytes of a device; allocations beyond fail
//   SHARDQ_FAKE_NO_PEERS  a device gives no other one access to its memory
//   SHARDQ_FAKE_LOSE      "store", "copy" or "copy2d": the write check's writes
//                         of that kind go nowhere
//
//===----------------------------------------------------------------------===//

#include "FakeStream.h"
#include "TestKernels.h"
#include "cuda/Driver.h"
#include "device/Intrinsics.h"
#include "device/Probe.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace shardq;
using namespace shardq::cuda;
using shardq::device::Probe;

extern "C" void shardq_check_write(char *heaps, uint64_t stride,
                                   uint64_t offset, uint64_t writer,
                                   const uint64_t *tokens, Probe *copies);
extern "C" void shardq_check_read(const Probe *own, const uint64_t *tokens,
                                  uint32_t *bad);

#define FAKE extern "C" __attribute__((visibility("default")))

//===--- Blocks of threads ------------------------------------------------===//

namespace {

/// A block while it runs.
struct Block {
  uint32_t index;
  uint32_t count;
  uint32_t threads;

  bool barrier(bool vote) {
    std::unique_lock<std::mutex> lock(mutex);
    any |= vote;
    if (++arrived == threads) {
      result = any;
      any = false;
      arrived = 0;
      ++generation;
      changed.notify_all();
      return result;
    }
    uint64_t mine = generation;
    changed.wait(lock, [&] { return generation != mine; });
    return result;
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  bool any = false, result = false;
  uint32_t arrived = 0;
  uint64_t generation = 0;
};

thread_local Block *currentBlock = nullptr;
thread_local uint32_t currentThread = 0;

} // namespace

uint32_t device::threadIndex() { return currentThread; }
uint32_t device::blockThreads() { return currentBlock->threads; }
uint32_t device::blockIndex() { return currentBlock->index; }
uint32_t device::blockCount() { return currentBlock->count; }
bool device::barrierAny(bool vote) { return currentBlock->barrier(vote); }

uint64_t device::nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<uint64_t>(now.tv_nsec);
}

void device::rest(uint32_t nanoseconds) {
  timespec nap{0, static_cast<long>(nanoseconds)};
  nanosleep(&nap, nullptr);
}

/// More threads than a test machine has cores would only be slow.
static constexpr uint32_t kMaxThreads = 3;

static void runBlocks(uint32_t blocks, uint32_t threads,
                      const std::function<void()> &body) {
  for (uint32_t index = 0; index != blocks; ++index) {
    Block block;
    block.index = index;
    block.count = blocks;
    block.threads = std::min(threads, kMaxThreads);
    auto lane = [&](uint32_t thread) {
      currentBlock = &block;
      currentThread = thread;
      body();
      currentBlock = nullptr;
    };
    std::vector<std::thread> others;
    for (uint32_t thread = 1; thread < block.threads; ++thread)
      others.emplace_back(lane, thread);
    lane(0);
    for (std::thread &other : others)
      other.join();
  }
}

//===--- Kernels ----------------------------------------------------------===//

namespace {

using Work = std::function<void()>;

/// Copies the arguments, as a launch does, and returns the call.
template <typename... Arguments, size_t... Indices>
Work bindKernel(void (*kernel)(Arguments...), void **params,
                std::index_sequence<Indices...>) {
  return
      [kernel, ... arguments = *static_cast<std::remove_cvref_t<Arguments> *>(
                   params[Indices])] { kernel(arguments...); };
}

template <typename... Arguments>
std::function<Work(void **)> wrap(void (*kernel)(Arguments...)) {
  return [kernel](void **params) {
    return bindKernel(kernel, params, std::index_sequence_for<Arguments...>());
  };
}

} // namespace

namespace shardq::cuda {

struct FunctionObject {
  const char *name;
  std::function<Work(void **)> bind;
};

struct ModuleObject {
  int unused;
};

struct ContextObject {
  int unused;
};

} // namespace shardq::cuda

static FunctionObject kernels[] = {
    {"shardq_check_write", wrap(shardq_check_write)},
    {"shardq_check_read", wrap(shardq_check_read)},
    {"shardq_test_counts", wrap(shardq_test_counts)},
    {"shardq_test_push", wrap(shardq_test_push)},
    {"shardq_test_signal", wrap(shardq_test_signal)},
    {"shardq_test_wait", wrap(shardq_test_wait)},
    {"shardq_test_verify", wrap(shardq_test_verify)},
    {"shardq_test_next", wrap(shardq_test_next)},
    {"shardq_test_clean", wrap(shardq_test_clean)},
    {"shardq_test_admit", wrap(shardq_test_admit)},
    {"shardq_test_pack", wrap(shardq_test_pack)},
    {"shardq_test_announce", wrap(shardq_test_announce)},
    {"shardq_test_unpack", wrap(shardq_test_unpack)},
    {"shardq_test_signal_wait", wrap(shardq_test_signal_wait)},
    {"shardq_test_beyond", wrap(shardq_test_beyond)},
    {"shardq_test_no_place", wrap(shardq_test_no_place)},
    {"shardq_test_beyond_cache", wrap(shardq_test_beyond_cache)},
    {"shardq_test_split_request", wrap(shardq_test_split_request)},
};

//===--- Streams and graphs -----------------------------------------------===//

namespace {

/// Work of one or more streams, run in the order in which it was enqueued.
struct Graph {
  std::vector<Work> work;
  // Streams that joined the capture, and how much of each the stream that began
  // it has come to wait for.
  std::map<Stream, std::pair<size_t, size_t>> others;
};

} // namespace

namespace shardq::cuda {

struct StreamObject {
  StreamObject() : thread([this] { run(); }) {}
  ~StreamObject() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      ending = true;
    }
    changed.notify_all();
    thread.join();
  }

  void enqueue(Work work) {
    std::lock_guard<std::mutex> lock(mutex);
    if (Graph *graph = capture) {
      graph->work.push_back(std::move(work));
      if (auto other = graph->others.find(this); other != graph->others.end())
        ++other->second.first;
      return;
    }
    queue.push_back(std::move(work));
    changed.notify_all();
  }

  bool isIdle() {
    std::lock_guard<std::mutex> lock(mutex);
    return queue.empty() && !busy;
  }

  void synchronize() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return queue.empty() && !busy; });
  }

  std::atomic<Graph *> capture = nullptr;

private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || !queue.empty(); });
      if (queue.empty())
        return;
      Work work = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      work();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool busy = false, ending = false;
  std::thread thread;
};

/// Where a stream was when it was recorded last.
struct EventObject {
  /// Of a stream that is not captured: set once the stream has come there.
  struct Point {
    void pass() {
      std::lock_guard<std::mutex> lock(mutex);
      passed = true;
      changed.notify_all();
    }
    void await() {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [this] { return passed; });
    }

  private:
    std::mutex mutex;
    std::condition_variable changed;
    bool passed = false;
  };
  std::shared_ptr<Point> point;
  // Of one that is.
  Graph *graph = nullptr;
  Stream stream = nullptr;
  size_t position = 0;
};

} // namespace shardq::cuda

//===--- The driver's state -----------------------------------------------===//

namespace {

struct Memory {
  int fd;
  size_t bytes;
};

struct State {
  std::mutex mutex;
  std::vector<StreamObject *> streams;
  std::map<MemoryHandle, Memory> memories;
  std::map<Address, size_t> allocations;
  MemoryHandle nextHandle = 1;
  size_t used = 0;
  StreamObject *defaultStream = nullptr;
};

// Never destroyed: threads of streams may outlive main.
State &state() {
  static State *instance = new State;
  return *instance;
}

thread_local ContextHandle currentContext = nullptr;

constexpr Result kInvalidValue = 1;
constexpr Result kInvalidDevice = 101;
constexpr Result kInvalidContext = 201;
constexpr Result kInvalidHandle = 400;
constexpr Result kNotFound = 500;
constexpr Result kCaptureUnjoined = 904;
constexpr Result kCaptureIsolation = 905;
constexpr int kGreatestPriority = -5;
constexpr size_t kGranularity = size_t(2) << 20;

size_t environment(const char *name, size_t otherwise) {
  const char *text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

bool loses(const char *way) {
  const char *text = std::getenv("SHARDQ_FAKE_LOSE");
  return text && std::strcmp(text, way) == 0;
}

/// What no call of a program may do once it has run: calls of this thread that
/// allocate, free, load or wait, and the last one's name.
thread_local uint64_t heavyCalls = 0;
thread_local uint64_t earlyLaunches = 0;
thread_local bool isEarly = false; // the launch under way
thread_local const char *lastHeavyCall = "";

void countHeavy(const char *name) {
  ++heavyCalls;
  lastHeavyCall = name;
}

/// What this thread has asked of streams, once it is asked for: launches and
/// the like, with a letter for each stream in the order in which they appear.
struct Trace {
  bool isOn = false;
  std::string text, told;
  std::vector<Stream> streams;
};
thread_local Trace trace;

void note(const char *call, Stream stream, const char *kernel = nullptr) {
  if (!trace.isOn)
    return;
  auto found = std::find(trace.streams.begin(), trace.streams.end(), stream);
  auto number = found - trace.streams.begin();
  if (found == trace.streams.end())
    trace.streams.push_back(stream);
  if (!trace.text.empty())
    trace.text += ", ";
  trace.text += call;
  trace.text += ' ';
  trace.text += static_cast<char>('a' + number);
  if (kernel)
    trace.text += std::string(" ") + (kernel + std::strlen("shardq_test_"));
}

Stream orDefault(Stream stream) {
  if (stream)
    return stream;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().defaultStream) {
    state().defaultStream = new StreamObject;
    state().streams.push_back(state().defaultStream);
  }
  return state().defaultStream;
}

void enqueueAnyway(Stream stream, Work work) {
  orDefault(stream)->enqueue(std::move(work));
}

Result enqueue(Stream stream, Work work) {
  if (!currentContext)
    return kInvalidContext;
  enqueueAnyway(stream, std::move(work));
  return kSuccess;
}

template <typename T = void> T *pointer(Address address) {
  return reinterpret_cast<T *>(address);
}

void fillBytes(void *target, unsigned char value, size_t bytes) {
  uint64_t word;
  std::memset(&word, value, sizeof(word));
  if (bytes == sizeof(word) &&
      reinterpret_cast<uintptr_t>(target) % sizeof(word) == 0)
    return fake::copyBytes(target, &word, sizeof(word));
  std::memset(target, value, bytes);
}

Result enqueueCopy(Address target, const void *source, size_t bytes,
                   Stream stream, bool staged) {
  if (!staged)
    return enqueue(stream,
                   [=] { fake::copyBytes(pointer(target), source, bytes); });
  // Pageable memory is read before the call returns.
  std::vector<char> data(static_cast<const char *>(source),
                         static_cast<const char *>(source) + bytes);
  return enqueue(stream, [target, data = std::move(data)] {
    fake::copyBytes(pointer(target), data.data(), data.size());
  });
}

Result newMemory(size_t bytes, Address *address) {
  std::lock_guard<std::mutex> lock(state().mutex);
  if (state().used + bytes > environment("SHARDQ_FAKE_MEMORY", SIZE_MAX / 2))
    return kOutOfMemory;
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return kOutOfMemory;
  *address = reinterpret_cast<Address>(memory);
  state().allocations[*address] = bytes;
  state().used += bytes;
  return kSuccess;
}

Result deleteMemory(Address address) {
  std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().allocations.find(address);
  if (found == state().allocations.end())
    return kInvalidValue;
  munmap(pointer(address), found->second);
  state().used -= found->second;
  state().allocations.erase(found);
  return kSuccess;
}

} // namespace

void fake::enqueue(Stream stream, std::function<void()> work) {
  enqueueAnyway(stream, std::move(work));
}

bool fake::isThere(Stream stream) {
  std::lock_guard<std::mutex> lock(state().mutex);
  return !stream || std::find(state().streams.begin(), state().streams.end(),
                              stream) != state().streams.end();
}

//===--- The driver's functions -------------------------------------------===//

// NOLINTBEGIN(readability-identifier-naming): these names are the driver's.

FAKE Result cuInit(unsigned) { return kSuccess; }

FAKE Result cuDeviceGetCount(int *count) {
  *count = static_cast<int>(environment("SHARDQ_FAKE_DEVICES", 2));
  return kSuccess;
}

FAKE Result cuDeviceGet(DeviceId *device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}

FAKE Result cuDeviceGetAttribute(int *value, int, DeviceId) {
  *value = 1;
  return kSuccess;
}

FAKE Result cuDeviceGetUuid_v2(Uuid *uuid, DeviceId device) {
  std::memset(uuid, device + 1, sizeof(*uuid));
  return kSuccess;
}

FAKE Result cuDevicePrimaryCtxRetain(ContextHandle *context, DeviceId device) {
  static ContextObject contexts[16];
  if (device < 0 || device >= 16)
    return kInvalidValue;
  *context = &contexts[device];
  return kSuccess;
}

FAKE Result cuDevicePrimaryCtxRelease_v2(DeviceId) { return kSuccess; }

FAKE Result cuCtxGetCurrent(ContextHandle *context) {
  *context = currentContext;
  return kSuccess;
}

FAKE Result cuCtxSetCurrent(ContextHandle context) {
  currentContext = context;
  return kSuccess;
}

FAKE Result cuCtxSynchronize() {
  countHeavy(__func__);
  if (!currentContext)
    return kInvalidContext;
  // Streams of other threads may go meanwhile, so the list is asked again.
  for (;;) {
    bool idle = true;
    {
      std::lock_guard<std::mutex> lock(state().mutex);
      for (StreamObject *stream : state().streams) {
        if (stream->capture)
          return kCaptureUnsupported;
        idle = idle && stream->isIdle();
      }
    }
    if (idle)
      return kSuccess;
    device::rest(100'000);
  }
}

FAKE Result cuThreadExchangeStreamCaptureMode(int *mode) {
  static thread_local int current = 0;
  std::swap(*mode, current);
  return kSuccess;
}

FAKE Result cuMemGetAllocationGranularity(size_t *granularity,
                                          const AllocationProperties *, int) {
  *granularity = kGranularity;
  return kSuccess;
}

FAKE Result cuMemCreate(MemoryHandle *handle, size_t bytes,
                        const AllocationProperties *properties,
                        unsigned long long flags) {
  countHeavy(__func__);
  if (bytes == 0 || bytes % kGranularity || flags || properties->type != 1 ||
      properties->handleTypes != 1 || properties->location.type != 1)
    return kInvalidValue;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (bytes > environment("SHARDQ_FAKE_MEMORY", SIZE_MAX / 2))
    return kOutOfMemory;
  int fd = static_cast<int>(memfd_create("fake-gpu", MFD_CLOEXEC));
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    return kOutOfMemory;
  *handle = state().nextHandle++;
  state().memories[*handle] = {fd, bytes};
  return kSuccess;
}

FAKE Result cuMemRelease(MemoryHandle handle) {
  countHeavy(__func__);
  std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().memories.find(handle);
  if (found == state().memories.end())
    return kInvalidHandle;
  close(found->second.fd);
  state().memories.erase(found);
  return kSuccess;
}

FAKE Result cuMemAddressReserve(Address *address, size_t bytes, size_t, Address,
                                unsigned long long) {
  countHeavy(__func__);
  void *memory = mmap(nullptr, bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return kOutOfMemory;
  *address = reinterpret_cast<Address>(memory);
  return kSuccess;
}

FAKE Result cuMemAddressFree(Address address, size_t bytes) {
  countHeavy(__func__);
  return munmap(pointer(address), bytes) == 0 ? kSuccess : kInvalidValue;
}

FAKE Result cuMemMap(Address address, size_t bytes, size_t offset,
                     MemoryHandle handle, unsigned long long) {
  countHeavy(__func__);
  std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().memories.find(handle);
  if (found == state().memories.end())
    return kInvalidHandle;
  if (bytes != found->second.bytes || offset != 0)
    return kInvalidValue;
  return mmap(pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
              found->second.fd, 0) == MAP_FAILED
             ? kInvalidValue
             : kSuccess;
}

FAKE Result cuMemUnmap(Address address, size_t bytes) {
  countHeavy(__func__);
  return mmap(pointer(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
              0) == MAP_FAILED
             ? kInvalidValue
             : kSuccess;
}

FAKE Result cuMemSetAccess(Address address, size_t bytes,
                           const AccessDescription *descriptions,
                           size_t count) {
  countHeavy(__func__);
  for (size_t i = 0; i != count; ++i)
    if (descriptions[i].location.type != 1 || descriptions[i].flags != 3)
      return kInvalidValue;
  if (count == 0)
    return kInvalidValue;
  if (count > 1 && std::getenv("SHARDQ_FAKE_NO_PEERS"))
    return kInvalidDevice;
  return mprotect(pointer(address), bytes, PROT_READ | PROT_WRITE) == 0
             ? kSuccess
             : kInvalidValue;
}

FAKE Result cuMemExportToShareableHandle(void *shared, MemoryHandle handle,
                                         int type, unsigned long long) {
  std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().memories.find(handle);
  if (found == state().memories.end() || type != 1)
    return kInvalidHandle;
  int fd = dup(found->second.fd);
  std::memcpy(shared, &fd, sizeof(fd));
  return kSuccess;
}

FAKE Result cuMemImportFromShareableHandle(MemoryHandle *handle, void *shared,
                                           int type) {
  int fd = static_cast<int>(reinterpret_cast<intptr_t>(shared));
  struct stat status;
  if (type != 1 || fstat(fd, &status) != 0)
    return kInvalidHandle;
  std::lock_guard<std::mutex> lock(state().mutex);
  *handle = state().nextHandle++;
  state().memories[*handle] = {dup(fd), static_cast<size_t>(status.st_size)};
  return kSuccess;
}

FAKE Result cuMemAlloc_v2(Address *address, size_t bytes) {
  countHeavy(__func__);
  if (!currentContext)
    return kInvalidContext;
  return bytes ? newMemory(bytes, address) : kInvalidValue;
}

FAKE Result cuMemFree_v2(Address address) {
  countHeavy(__func__);
  return deleteMemory(address);
}

FAKE Result cuMemHostAlloc(void **address, size_t bytes, unsigned) {
  countHeavy(__func__);
  if (!currentContext)
    return kInvalidContext;
  Address memory = 0;
  Result result = newMemory(bytes, &memory);
  *address = pointer(memory);
  return result;
}

FAKE Result cuMemFreeHost(void *address) {
  countHeavy(__func__);
  return deleteMemory(reinterpret_cast<Address>(address));
}

FAKE Result cuMemHostGetDevicePointer_v2(Address *address, void *host,
                                         unsigned) {
  *address = reinterpret_cast<Address>(host);
  return kSuccess;
}

FAKE Result cuMemcpyHtoDAsync_v2(Address target, const void *source,
                                 size_t bytes, Stream stream) {
  return enqueueCopy(target, source, bytes, stream, /*staged=*/true);
}

FAKE Result cuMemcpyDtoHAsync_v2(void *target, Address source, size_t bytes,
                                 Stream stream) {
  return enqueueCopy(reinterpret_cast<Address>(target), pointer(source), bytes,
                     stream, /*staged=*/false);
}

FAKE Result cuMemcpyDtoDAsync_v2(Address target, Address source, size_t bytes,
                                 Stream stream) {
  if (loses("copy"))
    return kSuccess;
  return enqueueCopy(target, pointer(source), bytes, stream, /*staged=*/false);
}

FAKE Result cuMemcpyAsync(Address target, Address source, size_t bytes,
                          Stream stream) {
  return enqueueCopy(target, pointer(source), bytes, stream, /*staged=*/false);
}

FAKE Result cuMemcpy2DAsync_v2(const Copy2D *copy, Stream stream) {
  if (loses("copy2d"))
    return kSuccess;
  Copy2D rows = *copy;
  if (rows.sourceType != 2 || rows.targetType != 2 || rows.sourceX ||
      rows.sourceY || rows.targetX || rows.targetY ||
      rows.width > rows.sourcePitch || rows.width > rows.targetPitch)
    return kInvalidValue;
  return enqueue(stream, [rows] {
    for (size_t row = 0; row != rows.height; ++row)
      std::memcpy(pointer(rows.targetDevice + row * rows.targetPitch),
                  pointer(rows.sourceDevice + row * rows.sourcePitch),
                  rows.width);
  });
}

FAKE Result cuMemsetD8Async(Address target, unsigned char value, size_t bytes,
                            Stream stream) {
  return enqueue(stream, [=] { fillBytes(pointer(target), value, bytes); });
}

FAKE Result cuStreamCreate(Stream *stream, unsigned) {
  countHeavy(__func__);
  if (!currentContext)
    return kInvalidContext;
  *stream = new StreamObject;
  std::lock_guard<std::mutex> lock(state().mutex);
  state().streams.push_back(*stream);
  return kSuccess;
}

FAKE Result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = kGreatestPriority;
  return currentContext ? kSuccess : kInvalidContext;
}

FAKE Result cuStreamCreateWithPriority(Stream *stream, unsigned flags,
                                       int priority) {
  if (priority > 0 || priority < kGreatestPriority)
    return kInvalidValue;
  return cuStreamCreate(stream, flags);
}

FAKE Result cuEventCreate(Event *event, unsigned) {
  countHeavy(__func__);
  if (!currentContext)
    return kInvalidContext;
  *event = new EventObject;
  return kSuccess;
}

FAKE Result cuEventDestroy_v2(Event event) {
  countHeavy(__func__);
  delete event;
  return kSuccess;
}

FAKE Result cuEventRecord(Event event, Stream stream) {
  note("record", stream);
  stream = orDefault(stream);
  event->point = nullptr;
  event->graph = stream->capture;
  event->stream = stream;
  if (Graph *graph = event->graph) {
    auto other = graph->others.find(stream);
    event->position = other == graph->others.end() ? 0 : other->second.first;
    return kSuccess;
  }
  event->point = std::make_shared<EventObject::Point>();
  return enqueue(stream, [point = event->point] { point->pass(); });
}

FAKE Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  note("wait", stream);
  if (flags)
    return kInvalidValue;
  stream = orDefault(stream);
  Graph *graph = stream->capture;
  if (event->graph) {
    if (graph && graph != event->graph)
      return kCaptureIsolation;
    if (!graph) {
      stream->capture = event->graph;
      // Its own beginning is to be waited for, too.
      event->graph->others[stream] = {1, 0};
    }
    auto other = event->graph->others.find(event->stream);
    if (other != event->graph->others.end() &&
        !event->graph->others.contains(stream))
      other->second.second = event->position;
    return kSuccess;
  }
  if (!event->point)
    return kSuccess;
  if (graph)
    return kCaptureIsolation;
  return enqueue(stream, [point = event->point] { point->await(); });
}

FAKE Result cuStreamDestroy_v2(Stream stream) {
  countHeavy(__func__);
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    std::erase(state().streams, stream);
  }
  delete stream;
  return kSuccess;
}

FAKE Result cuStreamSynchronize(Stream stream) {
  countHeavy(__func__);
  if (!stream)
    return kSuccess;
  if (stream->capture)
    return kCaptureUnsupported;
  stream->synchronize();
  return kSuccess;
}

FAKE Result cuStreamQuery(Stream stream) {
  if (!stream) {
    std::lock_guard<std::mutex> lock(state().mutex);
    stream = state().defaultStream;
  }
  if (!stream)
    return kSuccess;
  if (stream->capture)
    return kCaptureUnsupported;
  return stream->isIdle() ? kSuccess : kNotReady;
}

FAKE Result cuStreamIsCapturing(Stream stream, int *status) {
  *status = stream && stream->capture ? 1 : 0;
  return kSuccess;
}

FAKE Result cuStreamBeginCapture_v2(Stream stream, int) {
  if (!stream || stream->capture)
    return kInvalidValue;
  stream->capture = new Graph;
  return kSuccess;
}

FAKE Result cuStreamEndCapture(Stream stream, void **graph) {
  Graph *ended = stream->capture.exchange(nullptr);
  *graph = nullptr;
  if (!ended)
    return kInvalidValue;
  bool isJoined = true;
  for (auto [other, done] : ended->others) {
    other->capture = nullptr;
    isJoined = isJoined && done.first == done.second;
  }
  ended->others.clear();
  if (!isJoined) {
    delete ended;
    return kCaptureUnjoined;
  }
  *graph = ended;
  return kSuccess;
}

FAKE Result cuGraphInstantiateWithFlags(void **executable, void *graph,
                                        unsigned long long) {
  *executable = new Graph(*static_cast<Graph *>(graph));
  return kSuccess;
}

FAKE Result cuGraphLaunch(void *executable, Stream stream) {
  for (const Work &work : static_cast<Graph *>(executable)->work)
    if (Result result = enqueue(stream, work))
      return result;
  return kSuccess;
}

FAKE Result cuGraphExecDestroy(void *executable) {
  delete static_cast<Graph *>(executable);
  return kSuccess;
}

FAKE Result cuGraphDestroy(void *graph) {
  delete static_cast<Graph *>(graph);
  return kSuccess;
}

FAKE Result cuModuleLoadDataEx(Module *module, const void *image,
                               unsigned count, int *options, void **values) {
  countHeavy(__func__);
  if (!currentContext)
    return kInvalidContext;
  // What a test hands over as a broken image.
  if (std::strstr(static_cast<const char *>(image), "broken")) {
    for (unsigned i = 0; i != count; ++i)
      if (options[i] == kJitErrorLog)
        std::strcpy(static_cast<char *>(values[i]), "ptxas fatal: not PTX");
    return 218;
  }
  static ModuleObject modules[1];
  *module = modules;
  return kSuccess;
}

FAKE Result cuModuleUnload(Module) {
  countHeavy(__func__);
  return kSuccess;
}

FAKE Result cuModuleGetFunction(Function *function, Module, const char *name) {
  countHeavy(__func__);
  for (FunctionObject &kernel : kernels)
    if (std::strcmp(kernel.name, name) == 0) {
      *function = &kernel;
      return kSuccess;
    }
  return kNotFound;
}

FAKE Result cuFuncLoad(Function) {
  countHeavy(__func__);
  return kSuccess;
}

FAKE Result cuFuncGetAttribute(int *value, int, Function) {
  *value = 32;
  return kSuccess;
}

FAKE Result cuFuncSetAttribute(Function, int attribute, int value) {
  countHeavy(__func__);
  return attribute == 8 && value <= 232448 ? kSuccess : kInvalidValue;
}

FAKE Result cuLaunchKernel(Function function, unsigned gridX, unsigned gridY,
                           unsigned gridZ, unsigned blockX, unsigned blockY,
                           unsigned blockZ, unsigned, Stream stream,
                           void **params, void **extra) {
  if (gridX == 0 || gridY != 1 || gridZ != 1 || blockX == 0 || blockX > 1024 ||
      blockY != 1 || blockZ != 1 || extra)
    return kInvalidValue;
  if (loses("store") && std::strcmp(function->name, "shardq_check_write") == 0)
    return kSuccess;
  note(isEarly ? "early" : "launch", stream, function->name);
  isEarly = false;
  return enqueue(stream, [gridX, blockX, body = function->bind(params)] {
    runBlocks(gridX, blockX, body);
  });
}

FAKE Result cuDriverGetVersion(int *version) {
  const char *given = std::getenv("SHARDQ_FAKE_VERSION");
  *version = given ? std::atoi(given) : 12040;
  return kSuccess;
}

FAKE Result cuLaunchKernelEx(const LaunchConfig *config, Function function,
                             void **params, void **extra) {
  if (config->numAttributes != 1 || config->attributes->id != kLaunchEarly ||
      config->attributes->value.number != 1)
    return kInvalidValue;
  ++earlyLaunches;
  isEarly = true;
  return cuLaunchKernel(function, config->gridX, config->gridY, config->gridZ,
                        config->blockX, config->blockY, config->blockZ,
                        config->dynamicShared, config->stream, params, extra);
}

FAKE Result cuGetErrorString(Result result, const char **text) {
  switch (result) {
  case kOutOfMemory:
    *text = "out of memory";
    return kSuccess;
  case kNotFound:
    *text = "named symbol not found";
    return kSuccess;
  default:
    *text = "an error of the fake driver";
    return kSuccess;
  }
}

FAKE uint64_t shardq_fake_early_launches(const char **) {
  return earlyLaunches;
}

/// What this thread has asked of streams since the last question.
FAKE uint64_t shardq_fake_trace(const char **text) {
  trace.isOn = true;
  trace.told = std::move(trace.text);
  trace.text.clear();
  trace.streams.clear();
  *text = trace.told.c_str();
  return 0;
}

FAKE uint64_t shardq_fake_heavy_calls(const char **last) {
  *last = lastHeavyCall;
  return heavyCalls;
}

// NOLINTEND(readability-identifier-naming)
