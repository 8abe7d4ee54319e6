//===- Gpu.cpp - A rank's part of a GPU -----------------------------------===//

#include "Gpu.h"

#include "CheckPtx.h"
#include "device/Probe.h"
#include "host/Memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <time.h>

using namespace shardq;
using namespace shardq::cuda;
using device::Probe;

Current::Current(const Driver &driver, ContextHandle context) : driver(driver) {
  driver.getCurrent(&before);
  if (before == context)
    return;
  driver.setCurrent(context);
  changed = true;
}

Current::~Current() {
  if (changed)
    driver.setCurrent(before);
}

Gpu::Gpu(const Driver &driver, const GpuOptions &options, const Plan &plan,
         const Fault &fault)
    : driver(driver), images(driver), options(options), fault(fault),
      // What memory comes in is 2 MiB on all devices so far; a device that
      // wants more refuses the heap.
      layout(plan, options.world, HeapPart::Device, uint64_t(2) << 20,
             sizeof(Probe)),
      elsewhere(static_cast<size_t>(options.world)) {
  for (const Plan::Channel &channel : plan.channels)
    channels.push_back({channel.offset, channel.bytes, channel.generations, 0});
}

Outcome Gpu::open(const GpuOptions &options, const Plan &plan,
                  const Fault &fault, std::unique_ptr<Gpu> &gpu) {
  const Driver *driver = nullptr;
  if (Outcome outcome = Driver::get(driver); outcome.failed())
    return outcome;
  gpu.reset(new Gpu(*driver, options, plan, fault));
  if (Outcome outcome = gpu->openDevice(); outcome.failed())
    return outcome;
  Current current(*driver, gpu->context);
  CaptureGuard guard(*driver);
  if (Outcome outcome = gpu->createHeap(); outcome.failed())
    return outcome;
  if (Outcome outcome = gpu->createControl(); outcome.failed())
    return outcome;
  if (Outcome outcome = gpu->createPrivate(); outcome.failed())
    return outcome;
  if (Outcome outcome = gpu->createSideStreams(); outcome.failed())
    return outcome;
  return gpu->loadCheck();
}

Outcome Gpu::openDevice() {
  int count = 0;
  if (Result result = driver.countDevices(&count))
    return driver.failed("cuDeviceGetCount", result);
  if (options.ordinal < 0 || options.ordinal >= count)
    return failure(SHARDQ_INVALID, "cuda_device is %d, the driver has %d",
                   options.ordinal, count);
  if (Result result = driver.getDevice(&device, options.ordinal))
    return driver.failed("cuDeviceGet", result);
  for (auto [attribute, name] :
       {std::pair(kVirtualMemoryManagement, "virtual memory management"),
        std::pair(kPosixHandles, "memory behind file descriptors")}) {
    int has = 0;
    if (Result result = driver.getAttribute(&has, attribute, device))
      return driver.failed("cuDeviceGetAttribute", result);
    if (!has)
      return failure(SHARDQ_SYSTEM, "CUDA device %d has no %s", options.ordinal,
                     name);
  }
  int major = 0, minor = 0;
  for (auto [attribute, value] : {std::pair(kComputeCapabilityMajor, &major),
                                  std::pair(kComputeCapabilityMinor, &minor)})
    if (Result result = driver.getAttribute(value, attribute, device))
      return driver.failed("cuDeviceGetAttribute", result);
  arch = 10 * major + minor;
  if (Result result = driver.getUuid(&uuid, device))
    return driver.failed("cuDeviceGetUuid", result);
  if (Result result = driver.retainContext(&context, device))
    return driver.failed("cuDevicePrimaryCtxRetain", result);
  hasContext = true;
  return {};
}

Outcome Gpu::createHeap() {
  if (Result result = driver.createStream(&stream, kStreamNonBlocking))
    return driver.failed("cuStreamCreate", result);
  AllocationProperties properties{};
  properties.type = kAllocationPinned;
  properties.handleTypes = kHandlePosix;
  properties.location = {kLocationDevice, device};
  size_t granularity = 0;
  if (Result result = driver.getGranularity(&granularity, &properties,
                                            kGranularityRecommended))
    return driver.failed("cuMemGetAllocationGranularity", result);
  if (granularity == 0 || layout.bytes % granularity != 0)
    return failure(SHARDQ_SYSTEM,
                   "CUDA device %d allocates in units of %zu bytes, of which "
                   "2 MiB is no multiple",
                   options.ordinal, granularity);
  if (Result result =
          driver.createMemory(&heap, layout.bytes, &properties, 0)) {
    Outcome outcome = driver.failed("cuMemCreate", result);
    return failure(SHARDQ_SYSTEM, "%llu bytes on CUDA device %d: %s",
                   (unsigned long long)layout.bytes, options.ordinal,
                   outcome.text.c_str());
  }
  hasHeap = true;
  int fd = -1;
  if (Result result = driver.exportMemory(&fd, heap, kHandlePosix, 0))
    return driver.failed("cuMemExportToShareableHandle", result);
  heapFd = Descriptor(fd);
  return {};
}

Outcome Gpu::createControl() {
  size_t bytes = sizeof(device::Control) +
                 2 * static_cast<size_t>(options.world) * sizeof(uint32_t);
  void *memory = nullptr;
  if (Result result =
          driver.allocateHost(&memory, bytes, kHostPortable | kHostMapped))
    return driver.failed("cuMemHostAlloc", result);
  std::memset(memory, 0, bytes);
  control = new (memory) device::Control{};
  control->one = 1;
  if (Result result = driver.getDeviceAddress(&controlOnDevice, memory, 0))
    return driver.failed("cuMemHostGetDevicePointer", result);
  return {};
}

Outcome Gpu::createPrivate() {
  uint64_t ranks = static_cast<uint64_t>(options.world);
  uint64_t end = 0;
  auto put = [&end](uint64_t size) {
    uint64_t offset = (end + 255) / 256 * 256;
    end = offset + size;
    return offset;
  };
  place.failed = put(sizeof(uint32_t));
  place.channels = put(channels.size() * sizeof(device::Channel));
  place.contexts =
      put(static_cast<uint64_t>(layout.slots) * sizeof(device::DeviceContext));
  place.tokens = put(ranks * sizeof(uint64_t));
  place.probes = put(ranks * sizeof(Probe));
  place.bad = put(ranks * Probe::kWays * sizeof(uint32_t));
  place.bytes = end;
  if (Result result = allocate(place.bytes, privateMemory))
    return driver.failed("cuMemAlloc", result);
  for (int32_t slot = 0; options.arenaBytes && slot != layout.slots; ++slot) {
    Address arena = 0;
    if (Result result = allocate(options.arenaBytes, arena)) {
      Outcome outcome = driver.failed("cuMemAlloc", result);
      return failure(SHARDQ_SYSTEM, "arena_bytes is %llu: %s",
                     (unsigned long long)options.arenaBytes,
                     outcome.text.c_str());
    }
    firstArenas.push_back(arena);
  }
  return {};
}

/// Of all slots at once: while a stream is captured none can be made.
Outcome Gpu::createSideStreams() {
  if (!driver.hasEvents())
    return {};
  int least = 0, greatest = 0;
  if (Result result = driver.getPriorities(&least, &greatest))
    return driver.failed("cuCtxGetStreamPriorityRange", result);
  for (int32_t slot = 0; slot != layout.slots; ++slot) {
    SideStream &side = sideStreams.emplace_back();
    if (Result result = driver.createUrgentStream(&side.stream,
                                                  kStreamNonBlocking, greatest))
      return driver.failed("cuStreamCreateWithPriority", result);
    for (Event *event : {&side.begin, &side.end})
      if (Result result = driver.createEvent(event, kEventWithoutTime))
        return driver.failed("cuEventCreate", result);
  }
  return {};
}

Outcome Gpu::loadCheck() {
  if (Result result =
          driver.loadModule(&checkModule, kCheckPtx, 0, nullptr, nullptr))
    return driver.failed("loading the kernels of the write check", result);
  for (auto [function, name] : {std::pair(&checkWrite, "shardq_check_write"),
                                std::pair(&checkRead, "shardq_check_read")})
    if (Result result = driver.getFunction(function, checkModule, name))
      return driver.failed("cuModuleGetFunction", result);
  return {};
}

Gpu::~Gpu() {
  if (!hasContext)
    return;
  {
    Current current(driver, context);
    CaptureGuard guard(driver);
    if (control)
      abort();
    // Nothing may be unmapped under a kernel. All of this rank's that wait have
    // just been told to end, and those of peers that wait for it learn that it
    // leaves. Where the device does not come to rest because a stream of it is
    // captured, the memory is left to the end of the process.
    Result result = driver.synchronizeContext();
    for (int tries = 0; result == kCaptureUnsupported && tries != 200;
         ++tries) {
      timespec nap{0, 10'000'000};
      nanosleep(&nap, nullptr);
      result = driver.synchronizeContext();
    }
    if (result == kCaptureUnsupported) {
      static_cast<void>(new std::shared_ptr<AddressRange>(range));
    } else {
      images.clear();
      if (checkModule)
        driver.unloadModule(checkModule);
      for (Address address : allocations)
        driver.free(address);
      for (void *memory :
           {static_cast<void *>(control), static_cast<void *>(marks),
            static_cast<void *>(copies), static_cast<void *>(told)})
        if (memory)
          driver.freeHost(memory);
      for (const SideStream &side : sideStreams) {
        for (Event event : {side.begin, side.end})
          if (event)
            driver.destroyEvent(event);
        if (side.stream)
          driver.destroyStream(side.stream);
      }
      if (stream)
        driver.destroyStream(stream);
    }
    range.reset();
    if (hasHeap)
      driver.releaseMemory(heap);
  }
  driver.releaseContext(device);
}

void Gpu::setWays(const std::vector<char> &elsewhere,
                  const std::vector<char> &carried) {
  this->elsewhere = elsewhere;
  for (size_t i = 0; i != channels.size(); ++i)
    channels[i].isCarried = static_cast<uint64_t>(carried[i]);
}

Outcome Gpu::mapPeers(const std::vector<Descriptor> &theirs) {
  Current current(driver, context);
  CaptureGuard guard(driver);
  if (Outcome outcome = reserve(range); outcome.failed())
    return outcome;
  for (int32_t peer = 0; peer != options.world; ++peer) {
    if (!reaches(peer))
      continue;
    MemoryHandle memory = heap;
    if (peer != options.rank) {
      // The driver takes the descriptor's number in the place of a pointer.
      intptr_t fd = theirs[static_cast<size_t>(peer)].get();
      if (Result result = driver.importMemory(
              &memory, reinterpret_cast<void *>(fd), kHandlePosix)) {
        Outcome outcome =
            driver.failed("cuMemImportFromShareableHandle", result);
        return failure(SHARDQ_UNREACHABLE,
                       "rank %d cannot use the GPU memory of rank %d: %s",
                       options.rank, peer, outcome.text.c_str());
      }
    }
    Outcome outcome = range->map(peer, memory, {device});
    // What is mapped lives on.
    if (peer != options.rank)
      driver.releaseMemory(memory);
    if (outcome.failed())
      return outcome;
  }
  heapFd.reset();
  return {};
}

Outcome Gpu::reserve(std::shared_ptr<AddressRange> &fresh) {
  return AddressRange::reserve(driver, layout.bytes, options.world, fresh);
}

Outcome Gpu::mapShared(std::shared_ptr<AddressRange> shared,
                       const std::vector<int> &ordinals) {
  Current current(driver, context);
  CaptureGuard guard(driver);
  range = std::move(shared);
  std::vector<int> devices = ordinals;
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  heapFd.reset();
  return range->map(options.rank, heap, devices);
}

Outcome Gpu::mapAlone() {
  Current current(driver, context);
  CaptureGuard guard(driver);
  heapFd.reset();
  range.reset();
  if (hasHeap)
    driver.releaseMemory(heap);
  hasHeap = false;
  // An ordinary allocation: NCCL may share it between devices in its own ways.
  if (Result result = allocate(layout.bytes, heapAlone)) {
    Outcome outcome = driver.failed("cuMemAlloc", result);
    return failure(SHARDQ_SYSTEM, "%llu bytes on CUDA device %d: %s",
                   (unsigned long long)layout.bytes, options.ordinal,
                   outcome.text.c_str());
  }
  for (device::Channel &channel : channels)
    channel.isCarried = 1;
  return createCarriage();
}

Outcome Gpu::createCarriage() {
  // A rendezvous that began with mapped memory may end without.
  if (told)
    return {};
  Current current(driver, context);
  CaptureGuard guard(driver);
  uint64_t pairs = static_cast<uint64_t>(layout.slots) *
                   static_cast<uint64_t>(layout.channels);
  // Plans without exchanges are allowed.
  uint64_t blocks = std::max<uint64_t>(pairs, 1) * lineBlockBytes();
  if (Result result = allocate(blocks, outgoing))
    return driver.failed("cuMemAlloc", result);
  if (Result result = driver.fill(outgoing, 0, blocks, stream))
    return driver.failed("cuMemsetD8Async", result);
  return createPinned();
}

Outcome Gpu::createPinned() {
  uint64_t pairs = static_cast<uint64_t>(layout.slots) *
                   static_cast<uint64_t>(layout.channels);
  size_t slots = static_cast<size_t>(layout.slots);
  Outcome outcome;
  auto take = [&](size_t bytes, unsigned flags) {
    void *memory = nullptr;
    if (outcome.failed())
      return memory;
    if (Result result = driver.allocateHost(&memory, bytes, flags)) {
      outcome = driver.failed("cuMemHostAlloc", result);
      return memory;
    }
    std::memset(memory, 0, bytes);
    return memory;
  };
  marks = static_cast<device::Mark *>(
      take(std::max<uint64_t>(pairs, 1) * sizeof(device::Mark),
           kHostPortable | kHostMapped));
  copies =
      static_cast<char *>(take(slots * 2 * lineBlockBytes(), kHostPortable));
  told = static_cast<SlotProgress *>(
      take((slots + 1) * sizeof(SlotProgress), kHostPortable));
  if (outcome.failed())
    return outcome;
  if (Result result = driver.getDeviceAddress(&marksOnDevice, marks, 0))
    return driver.failed("cuMemHostGetDevicePointer", result);
  return {};
}

uint64_t Gpu::lineBlockBytes() const {
  return protocol::kFlagLines * static_cast<uint64_t>(options.world) *
         sizeof(protocol::FlagLine);
}

uint64_t Gpu::pairOf(int32_t slot, int32_t channel) const {
  return static_cast<uint64_t>(slot) * static_cast<uint64_t>(layout.channels) +
         static_cast<uint64_t>(channel);
}

Address Gpu::arrivedLines(int32_t slot, int32_t channel) const {
  return ownHeap() + layout.flags + pairOf(slot, channel) * lineBlockBytes();
}

Address Gpu::outgoingLines(int32_t slot, int32_t channel) const {
  return outgoing + pairOf(slot, channel) * lineBlockBytes();
}

Address Gpu::inbox(int32_t slot, int32_t channel, uint64_t epoch) const {
  const device::Channel &buffer = channels[static_cast<size_t>(channel)];
  return ownHeap() + layout.data +
         static_cast<uint64_t>(slot) * layout.slotStride + buffer.offset +
         epoch % buffer.generations * buffer.bytes;
}

const device::Mark &Gpu::mark(int32_t slot, int32_t channel) const {
  return marks[pairOf(slot, channel)];
}

char *Gpu::lineCopies(int32_t slot) const {
  return copies + static_cast<uint64_t>(slot) * 2 * lineBlockBytes();
}

char *Gpu::at(uint64_t offset) const {
  return reinterpret_cast<char *>(privateMemory + offset);
}

Address Gpu::deviceContext(int32_t slot) const {
  return privateMemory + place.contexts +
         static_cast<uint64_t>(slot) * sizeof(device::DeviceContext);
}

Address Gpu::firstArena(int32_t slot) const {
  return firstArenas.empty() ? 0 : firstArenas[static_cast<size_t>(slot)];
}

const SideStream *Gpu::sideStream(int32_t slot) const {
  return sideStreams.empty() ? nullptr
                             : &sideStreams[static_cast<size_t>(slot)];
}

/// Alone, only this rank's places in the tables are there.
static char *firstHeap(Address own, uint64_t bytes, int32_t rank) {
  return reinterpret_cast<char *>(own) - static_cast<uint64_t>(rank) * bytes;
}

protocol::FlagTable Gpu::flagTable() const {
  return {firstHeap(ownHeap(), layout.bytes, options.rank), layout.bytes,
          layout.flags, layout.channels, layout.world};
}

protocol::ProgressTable Gpu::progressTable() const {
  return {firstHeap(ownHeap(), layout.bytes, options.rank),
          layout.bytes,
          layout.progress,
          layout.signalled,
          layout.slots,
          layout.channels,
          layout.world};
}

void Gpu::tellProgress(int32_t slot, const SlotProgress &progress) {
  SlotProgress &last = told[slot];
  if (std::memcmp(&last, &progress, sizeof(last)) == 0)
    return;
  Current current(driver, context);
  CaptureGuard guard(driver);
  // What is copied must stay until it has been.
  if (driver.queryStream(stream) != kSuccess)
    return;
  last = progress;
  constexpr size_t kWord = sizeof(last.waiting);
  constexpr size_t kFields =
      offsetof(SlotProgress, epoch) + sizeof(last.epoch) - kWord;
  Address record =
      reinterpret_cast<Address>(&progressTable().carriedAt(options.rank, slot));
  // Readers look at the first word first, and nobody waits for this.
  if (driver.fill(record, 0, kWord, stream) != kSuccess ||
      driver.copyToDevice(record + kWord, &last.target, kFields, stream) !=
          kSuccess)
    return;
  driver.copyToDevice(record, &last.waiting, kWord, stream);
}

uint64_t Gpu::readWord(const uint64_t *word) {
  Current current(driver, context);
  CaptureGuard guard(driver);
  uint64_t *copy = &told[layout.slots].waiting;
  *copy = 0;
  // A copy engine waits behind no kernel, so that this is a matter of
  // microseconds; one that hangs must not hold up the news of a failure.
  constexpr int64_t kPatienceMs = 100;
  if (driver.copyToHost(copy, reinterpret_cast<Address>(word), sizeof(*word),
                        stream) != kSuccess ||
      waitFor("reading a peer's memory", Deadline::in(kPatienceMs)).failed())
    return 0;
  return *copy;
}

Outcome Gpu::prepare(const Deadline &deadline) {
  Current current(driver, context);
  CaptureGuard guard(driver);
  char *own = reinterpret_cast<char *>(ownHeap());
  // Everything before the slots but the probes: peers may be writing there.
  uint64_t cleared = layout.progress;
  if (Result result =
          driver.fill(ownHeap() + cleared, 0,
                      static_cast<size_t>(layout.data - cleared), stream))
    return driver.failed("cuMemsetD8Async", result);

  bool isAnyElsewhere = false;
  for (int32_t rank = 0; rank != options.world; ++rank) {
    uint32_t is = !reaches(rank);
    isAnyElsewhere |= is != 0;
    reinterpret_cast<uint32_t *>(control + 1)[options.world + rank] = is;
  }

  // As it will be in the device's private memory, up to the tokens.
  std::vector<char> image(place.tokens);
  std::memcpy(image.data() + place.channels, channels.data(),
              channels.size() * sizeof(device::Channel));
  for (int32_t slot = 0; slot != layout.slots; ++slot) {
    uint64_t pairs =
        static_cast<uint64_t>(slot) * static_cast<uint64_t>(layout.channels);
    device::DeviceContext context{};
    context.flags = context.outgoing = flagTable();
    if (marks) {
      // Consumer and producer change places: this rank's lines lie together.
      constexpr uint64_t kLine = sizeof(protocol::FlagLine);
      context.outgoing = {reinterpret_cast<char *>(outgoing) -
                              static_cast<uint64_t>(options.rank) * kLine,
                          kLine, 0, layout.channels, layout.world};
      context.marks = reinterpret_cast<device::Mark *>(marksOnDevice) + pairs;
    }
    context.progress = progressTable();
    context.rank = options.rank;
    context.world = options.world;
    context.slot = slot;
    context.slotBase =
        own + layout.data + static_cast<uint64_t>(slot) * layout.slotStride;
    context.channels = reinterpret_cast<device::Channel *>(at(place.channels));
    context.numChannels = layout.channels;
    context.epochs =
        reinterpret_cast<uint64_t *>(own + layout.signalled) + pairs;
    context.failed = reinterpret_cast<uint32_t *>(at(place.failed));
    context.control = reinterpret_cast<device::Control *>(controlOnDevice);
    context.left = reinterpret_cast<const uint32_t *>(controlOnDevice +
                                                      sizeof(device::Control));
    if (isAnyElsewhere)
      context.elsewhere = context.left + options.world;
    context.deadlineNs = options.deadlineMs * 1'000'000;
    if (fault.slot < 0 || fault.slot == slot)
      context.fault = {static_cast<int64_t>(fault.action), fault.operation,
                       fault.epoch};
    std::memcpy(image.data() + place.contexts +
                    static_cast<size_t>(slot) * sizeof(context),
                &context, sizeof(context));
  }
  if (Result result = driver.copyToDevice(privateMemory, image.data(),
                                          image.size(), stream))
    return driver.failed("cuMemcpyHtoDAsync", result);
  return waitFor("preparing the heap", deadline);
}

Outcome Gpu::waitFor(const char *what, const Deadline &deadline) {
  for (;;) {
    Result result = driver.queryStream(stream);
    if (result == kSuccess)
      return {};
    if (result != kNotReady)
      return driver.failed(what, result);
    if (deadline.passed())
      return failure(SHARDQ_SYSTEM, "CUDA device %d did not finish %s in time",
                     options.ordinal, what);
    timespec nap{0, 50'000};
    nanosleep(&nap, nullptr);
  }
}

std::vector<uint64_t>
Gpu::ofReached(const std::vector<uint64_t> &tokens) const {
  std::vector<uint64_t> kept = tokens;
  for (size_t rank = 0; rank != kept.size(); ++rank)
    if (elsewhere[rank])
      kept[rank] = 0;
  return kept;
}

Outcome Gpu::writeProbes(const std::vector<uint64_t> &given,
                         const Deadline &deadline) {
  Current current(driver, context);
  CaptureGuard guard(driver);
  std::vector<uint64_t> tokens = ofReached(given);
  if (Result result =
          driver.copyToDevice(privateMemory + place.tokens, tokens.data(),
                              tokens.size() * sizeof(uint64_t), stream))
    return driver.failed("cuMemcpyHtoDAsync", result);
  Address heaps = range->heap(0);
  uint64_t stride = layout.bytes, offset = layout.tokens;
  uint64_t writer = static_cast<uint64_t>(options.rank);
  Address tokensOnDevice = privateMemory + place.tokens;
  Address probes = privateMemory + place.probes;
  void *params[] = {&heaps,  &stride,         &offset,
                    &writer, &tokensOnDevice, &probes};
  if (Result result =
          driver.launch(checkWrite, static_cast<unsigned>(options.world), 1, 1,
                        Probe::kWords, 1, 1, 0, stream, params, nullptr))
    return driver.failed("launching the write check", result);
  constexpr size_t kWayBytes = Probe::kWords * sizeof(uint64_t);
  for (int32_t owner = 0; owner != options.world; ++owner) {
    if (!reaches(owner))
      continue;
    Address source = probes + static_cast<uint64_t>(owner) * sizeof(Probe);
    Address target =
        range->heap(owner) + layout.tokens + writer * sizeof(Probe);
    if (Result result = driver.copyOnDevice(target + Probe::Copy * kWayBytes,
                                            source + Probe::Copy * kWayBytes,
                                            kWayBytes, stream))
      return driver.failed("cuMemcpyDtoDAsync", result);
    Copy2D copy{};
    copy.sourceType = copy.targetType = kMemoryDevice;
    copy.sourceDevice = source + Probe::Copy2D * kWayBytes;
    copy.targetDevice = target + Probe::Copy2D * kWayBytes;
    copy.height = 4;
    copy.width = copy.sourcePitch = copy.targetPitch = kWayBytes / copy.height;
    if (Result result = driver.copy2D(&copy, stream))
      return driver.failed("cuMemcpy2DAsync", result);
  }
  return waitFor("the write check", deadline);
}

Outcome Gpu::checkProbes(const std::vector<uint64_t> &expected,
                         const Deadline &deadline) {
  Current current(driver, context);
  CaptureGuard guard(driver);
  std::vector<uint64_t> tokens = ofReached(expected);
  if (Result result =
          driver.copyToDevice(privateMemory + place.tokens, tokens.data(),
                              tokens.size() * sizeof(uint64_t), stream))
    return driver.failed("cuMemcpyHtoDAsync", result);
  Address own = range->heap(options.rank) + layout.tokens;
  Address tokensOnDevice = privateMemory + place.tokens;
  Address bad = privateMemory + place.bad;
  void *params[] = {&own, &tokensOnDevice, &bad};
  if (Result result =
          driver.launch(checkRead, static_cast<unsigned>(options.world), 1, 1,
                        Probe::kWays, 1, 1, 0, stream, params, nullptr))
    return driver.failed("launching the write check", result);
  std::vector<uint32_t> counts(tokens.size() * Probe::kWays, ~uint32_t(0));
  if (Result result = driver.copyToHost(
          counts.data(), bad, counts.size() * sizeof(uint32_t), stream))
    return driver.failed("cuMemcpyDtoHAsync", result);
  if (Outcome outcome = waitFor("the write check", deadline); outcome.failed())
    return outcome;
  static constexpr const char *kWays[] = {
      "a kernel's stores", "cuMemcpyDtoDAsync", "cuMemcpy2DAsync"};
  for (size_t i = 0; i != counts.size(); ++i)
    if (counts[i] != 0)
      return failure(SHARDQ_UNREACHABLE,
                     "what rank %zu wrote into the GPU memory of rank %d by %s "
                     "did not arrive (%u of %u words)",
                     i / Probe::kWays, options.rank, kWays[i % Probe::kWays],
                     counts[i], Probe::kWords);
  return {};
}

void Gpu::abort() { storeRelease(control->abort, uint32_t(1)); }

void Gpu::tellKernels() {
  Current current(driver, context);
  CaptureGuard guard(driver);
  // By a copy engine, which waits behind no kernel. Nobody waits for it.
  driver.copyToDevice(privateMemory + place.failed, &control->one,
                      sizeof(control->one), stream);
}

bool Gpu::readFailure(Failure &failure) const {
  if (!loadAcquire(control->ready))
    return false;
  // The kernel writes it once, before the word above.
  std::memcpy(&failure, &control->record, sizeof(failure));
  return true;
}

void Gpu::noteLeft(int32_t rank) {
  storeRelease(reinterpret_cast<uint32_t *>(control + 1)[rank], uint32_t(1));
}

bool Gpu::wantsKill() const { return loadAcquire(control->kill) != 0; }

Result Gpu::allocate(uint64_t bytes, Address &address) {
  Result result = driver.allocate(&address, bytes);
  if (result != kSuccess)
    return result;
  std::lock_guard<std::mutex> lock(mutex);
  allocations.push_back(address);
  return result;
}
