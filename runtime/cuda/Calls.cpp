//===- Calls.cpp - A call of generated code for GPUs ----------------------===//
//
// Host code of generated functions only enqueues. On a communicator with host
// memory, the calls that make sense there work too.
//
//===----------------------------------------------------------------------===//

#include "host/Communicator.h"

#include <algorithm>
#include <new>
#include <utility>

using namespace shardq;
using namespace shardq::cuda;

/// Chunks of an arena are at least that large and grow with it up to the second
/// size: each is a call of the driver, and its rest may stay unused.
static constexpr uint64_t kChunkBytes = uint64_t(8) << 20;
static constexpr uint64_t kMaxChunkBytes = uint64_t(256) << 20;

void shardq_context::begin(void *callerStream) {
  // By a call without an end.
  if (isForked) {
    Current current(comm.gpu->driver, comm.gpu->context);
    stream = static_cast<Stream>(callerStream);
    joinSide();
  }
  if (comm.failed())
    return;
  begun = true;
  arena.reset();
  stream = static_cast<Stream>(callerStream);
  if (!comm.gpu)
    return;
  const Driver &driver = comm.gpu->driver;
  ContextHandle current = nullptr;
  driver.getCurrent(&current);
  before = nullptr;
  if (current == comm.gpu->context)
    return;
  before = current;
  driver.setCurrent(comm.gpu->context);
}

shardq_status shardq_context::end() {
  joinSide();
  // Also after an error: what begin changed is the caller's.
  if (begun && before)
    comm.gpu->driver.setCurrent(before);
  begun = false;
  before = nullptr;
  return static_cast<shardq_status>(comm.firstFailure().status);
}

/// Whether a call between begin and end may go on.
bool shardq_context::mayCall(bool needsGpu) {
  if (comm.failed())
    return false;
  if (needsGpu && !comm.gpu) {
    misuse(Misuse::DeviceCallOnHost, -1);
    return false;
  }
  if (!begun) {
    misuse(Misuse::NotBegun, -1);
    return false;
  }
  return true;
}

void *shardq_context::device() {
  return comm.gpu ? reinterpret_cast<void *>(comm.gpu->deviceContext(slot))
                  : nullptr;
}

void shardq_context::driverFailed(DriverCall call, Result result,
                                  std::string detail) {
  comm.fail(makeFailure(SHARDQ_SYSTEM, Misuse::Driver, result,
                        static_cast<int64_t>(call)),
            std::move(detail));
}

bool shardq_context::isCapturing() {
  int status = 0;
  // An error means that another stream's capture forbids to ask about the
  // default stream, which itself cannot be captured.
  return comm.gpu->driver.isCapturing(stream, &status) == kSuccess &&
         status != 0;
}

/// Adds a chunk that holds `bytes`; else records why it cannot.
bool shardq_context::grow(uint64_t bytes) {
  // Where that much is not to be had, as much as is needed.
  uint64_t wanted = std::max(
      {bytes, kChunkBytes, std::min(arena.capacity(), kMaxChunkBytes)});
  if (!comm.gpu) {
    PrivateMemory memory(wanted);
    if (!memory.get()) {
      driverFailed(DriverCall::Allocate, kOutOfMemory);
      return false;
    }
    arena.add(memory.get(), wanted);
    hostChunks.push_back(std::move(memory));
    return true;
  }
  if (isCapturing()) {
    comm.fail(makeFailure(SHARDQ_CAPACITY, Misuse::Arena,
                          static_cast<int64_t>(bytes),
                          static_cast<int64_t>(arena.capacity())));
    return false;
  }
  CaptureGuard guard(comm.gpu->driver);
  Address address = 0;
  Result result = comm.gpu->allocate(wanted, address);
  if (result == kOutOfMemory && wanted != bytes) {
    wanted = bytes;
    result = comm.gpu->allocate(wanted, address);
  }
  if (result != kSuccess) {
    driverFailed(DriverCall::Allocate, result,
                 format("%llu bytes", (unsigned long long)bytes));
    return false;
  }
  arena.add(reinterpret_cast<void *>(address), wanted);
  return true;
}

void *shardq_context::allocate(int64_t bytes) {
  if (!mayCall(/*needsGpu=*/false))
    return nullptr;
  if (bytes < 0 || static_cast<uint64_t>(bytes) > Arena::kMaxBytes) {
    driverFailed(DriverCall::Allocate, kOutOfMemory,
                 format("%lld bytes", (long long)bytes));
    return nullptr;
  }
  uint64_t wanted = Arena::rounded(static_cast<uint64_t>(bytes));
  void *memory = arena.allocate(wanted);
  if (memory || !grow(wanted))
    return memory;
  return arena.allocate(wanted);
}

void shardq_context::release(void *memory) {
  if (memory && mayCall(/*needsGpu=*/false))
    arena.free(memory);
}

/// A loaded image; else records why there is none.
const LoadedImage *shardq_context::findImage(const shardq_gpu_image *image) {
  for (const LoadedImage *known : images)
    if (known->image == image && image && known->code == image->code)
      return known;
  const LoadedImage *loaded = comm.gpu->images.find(image);
  if (!loaded) {
    if (isCapturing()) {
      misuse(Misuse::LoadCapture, -1);
      return nullptr;
    }
    CaptureGuard guard(comm.gpu->driver);
    Outcome outcome = comm.gpu->images.load(image, loaded);
    if (outcome.failed()) {
      driverFailed(DriverCall::Load, 0, std::move(outcome.text));
      return nullptr;
    }
  }
  images.push_back(loaded);
  return loaded;
}

/// The next kernels go to the slot's own stream, where beside is of use.
void shardq_context::beginAside(int32_t channel) {
  if (!mayCall(/*needsGpu=*/true) || !checkChannel(channel))
    return;
  const SideStream *side = comm.gpu->sideStream(slot);
  // NCCL's transfers are in the order of one stream, that of the call, whatever
  // direct push runs beside them. And who measures kernels does so there.
  if (!side || comm.carries(channel) || beforeLaunch)
    return;
  joinSide();
  const Driver &driver = comm.gpu->driver;
  Result result = driver.recordEvent(side->begin, stream);
  if (result == kSuccess)
    result = driver.waitForEvent(side->stream, side->begin, 0);
  if (result != kSuccess) {
    driverFailed(DriverCall::Order, result);
    return;
  }
  isAside = isForked = true;
  waits = waitsAside = true;
}

void shardq_context::endAside() {
  isAside = false;
  // Buffers on the host are an error.
  mayCall(/*needsGpu=*/true);
}

/// What has begun aside is joined after an error, too: a capture could not end
/// without.
void shardq_context::joinSide() {
  if (!isForked)
    return;
  isAside = isForked = false;
  waits = true;
  const SideStream *side = comm.gpu->sideStream(slot);
  const Driver &driver = comm.gpu->driver;
  Result result = driver.recordEvent(side->end, side->stream);
  if (result == kSuccess)
    result = driver.waitForEvent(stream, side->end, 0);
  if (result != kSuccess)
    driverFailed(DriverCall::Order, result);
}

void shardq_context::joinAside() {
  joinSide();
  mayCall(/*needsGpu=*/true);
}

void shardq_context::launch(const shardq_gpu_image *image, int32_t kernel,
                            int64_t blocks, void *const *params) {
  if (!mayCall(/*needsGpu=*/true))
    return;
  const LoadedImage *loaded = findImage(image);
  if (!loaded)
    return;
  if (kernel < 0 || static_cast<size_t>(kernel) >= loaded->kernels.size()) {
    misuse(Misuse::Image, kernel);
    return;
  }
  const LoadedImage::Kernel &entry =
      loaded->kernels[static_cast<size_t>(kernel)];
  if (beforeLaunch)
    beforeLaunch(beforeLaunchUser, image->kernels[kernel].name);
  // Kernels loop over as many rows as there are, so fewer blocks are right.
  unsigned grid =
      static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, 0x7fffffff));
  const Driver &driver = comm.gpu->driver;
  void **arguments = const_cast<void **>(params);
  Stream target = isAside ? comm.gpu->sideStream(slot)->stream : stream;
  // It waits for the kernel in front of it, which is not all there is.
  bool waitsForMore = std::exchange(isAside ? waitsAside : waits, false);
  Result result;
  if (entry.startsEarly && !waitsForMore) {
    LaunchAttribute early = {kLaunchEarly, 0, {}};
    early.value.number = 1;
    LaunchConfig config = {
        grid,   1,      1, entry.threads, 1, 1, entry.dynamicShared,
        target, &early, 1};
    result =
        driver.launchConfigured(&config, entry.function, arguments, nullptr);
  } else {
    result = driver.launch(entry.function, grid, 1, 1, entry.threads, 1, 1,
                           entry.dynamicShared, target, arguments, nullptr);
  }
  if (result != kSuccess)
    driverFailed(DriverCall::Launch, result,
                 format("kernel %s", image->kernels[kernel].name));
}

/// Elements from the lowest to one past the highest that the strides reach, and
/// how far before `data` they begin.
static void measure(const shardq_tap_value &value, int64_t &count,
                    int64_t &before) {
  count = 1;
  before = 0;
  for (int32_t i = 0; i != value.rank; ++i) {
    if (value.sizes[i] <= 0) {
      count = before = 0;
      return;
    }
    int64_t reach = (value.sizes[i] - 1) * value.strides[i];
    count += reach < 0 ? -reach : reach;
    before += reach < 0 ? -reach : 0;
  }
}

int64_t shardq_context::readCount(const int64_t *count) {
  if (!comm.gpu)
    return *count;
  if (!mayCall(/*needsGpu=*/true))
    return -1;
  if (isCapturing()) {
    misuse(Misuse::TapCapture, -1);
    return -1;
  }
  const Driver &driver = comm.gpu->driver;
  int64_t value = -1;
  Result result =
      driver.copyAny(reinterpret_cast<Address>(&value),
                     reinterpret_cast<Address>(count), sizeof(value), stream);
  if (result == kSuccess)
    result = driver.synchronizeStream(stream);
  if (result != kSuccess) {
    driverFailed(DriverCall::Copy, result);
    return -1;
  }
  return value;
}

void shardq_context::tapValue(const shardq_tap_value &value) {
  if (!comm.gpu) {
    tap(tapUser, &value);
    return;
  }
  if (!mayCall(/*needsGpu=*/true))
    return;
  if (isCapturing()) {
    misuse(Misuse::TapCapture, -1);
    return;
  }
  const Driver &driver = comm.gpu->driver;
  if (Result result = driver.synchronizeStream(stream)) {
    driverFailed(DriverCall::Synchronize, result);
    return;
  }
  // What the kernels so far found has been written.
  if (comm.failed())
    return;
  int64_t count, before;
  measure(value, count, before);
  int64_t rows =
      value.rows && value.rank > 0 ? std::max<int64_t>(value.sizes[0], 0) : 0;
  size_t bytes =
      static_cast<size_t>(count) * static_cast<size_t>(value.element_bytes);
  try {
    std::vector<char> data(bytes);
    std::vector<int32_t> rowCopy(static_cast<size_t>(rows));
    Address source = reinterpret_cast<Address>(value.data) -
                     static_cast<Address>(before * value.element_bytes);
    Result result = kSuccess;
    if (bytes)
      result = driver.copyAny(reinterpret_cast<Address>(data.data()), source,
                              bytes, stream);
    if (result == kSuccess && rows)
      result = driver.copyAny(reinterpret_cast<Address>(rowCopy.data()),
                              reinterpret_cast<Address>(value.rows),
                              rowCopy.size() * sizeof(int32_t), stream);
    if (result == kSuccess)
      result = driver.synchronizeStream(stream);
    if (result != kSuccess) {
      driverFailed(DriverCall::Copy, result);
      return;
    }
    shardq_tap_value copy = value;
    copy.data = data.data() + before * value.element_bytes;
    copy.rows = value.rows ? rowCopy.data() : nullptr;
    tap(tapUser, &copy);
  } catch (const std::bad_alloc &) {
    driverFailed(DriverCall::Copy, kOutOfMemory);
  }
}
