//===- PushBenchmark.cpp - Stores, bulk copies and copy engines -----------===//
//
// What limits an exchange: rows of 64 heads x 576 bf16 from each of two devices
// into the other's rows of twice that pitch, both directions at once, moved in
// three ways. One line a size and way: its name, the median time of the slower
// device, and bytes that one device pushed over that time. Before them, what a
// copy on one device reads and writes.
//
// Needs two devices with peer access and exits with 77 where there are none.
//
//===----------------------------------------------------------------------===//

#include "Push/PushKernels.h"
#include "cuda/Driver.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <random>
#include <string>
#include <vector>

using namespace shardq;
using namespace shardq::cuda;

namespace {

constexpr uint32_t kRowBytes = 64 * 576 * 2;
constexpr uint32_t kPitch = 2 * kRowBytes;
constexpr int kTokens[] = {256, 1024, 4096, 16384};
constexpr int kUnrolled = 8; // pushes of one trial
constexpr int kTrials = 30;
constexpr int kWarmUps = 5;

[[noreturn]] __attribute__((format(printf, 2, 3))) void
quit(int status, const char *text, ...) {
  va_list arguments;
  va_start(arguments, text);
  std::vfprintf(stderr, text, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::exit(status);
}

/// Functions of the driver that the runtime has no use for.
struct Events {
  int (*canAccessPeer)(int *, DeviceId, DeviceId);
  int (*enablePeer)(ContextHandle, unsigned);
  int (*create)(void **, unsigned);
  int (*record)(void *, Stream);
  int (*elapsed)(float *, void *, void *);
};

/// One of the two devices, with what it pushes and what it receives.
struct Side {
  ContextHandle context = nullptr;
  Stream stream = nullptr;
  Function stores = nullptr, bulk = nullptr, hold = nullptr;
  void *begin = nullptr, *end = nullptr;
  Address source = 0, inbox = 0;
  int multiprocessors = 0;
};

class PushBenchmark {
public:
  PushBenchmark();
  void run();

private:
  enum Way { Stores, Bulk, CopyEngine };
  static constexpr const char *kNames[] = {"stores of 16 bytes", "bulk copies",
                                           "copy engine"};

  void check(const char *what, Result result) const;
  void open(int ordinal);
  void push(int self, Way way, uint32_t rows);
  float runTrial(const std::function<void(int)> &once);
  double findMedian(const std::function<void(int)> &once);
  void verify(Way way, uint32_t rows);

  const Driver *driver = nullptr;
  Events events = {};
  Side sides[2];
  uint32_t *go = nullptr; // lets held streams go
  std::vector<char> sent;
};

} // namespace

#define TRY(CALL) check(#CALL, driver->CALL)

void PushBenchmark::check(const char *what, Result result) const {
  if (result == kSuccess)
    return;
  const char *text = nullptr;
  driver->getErrorText(result, &text);
  quit(1, "%s: %s", what, text ? text : "unknown error");
}

PushBenchmark::PushBenchmark() {
  if (Outcome outcome = Driver::get(driver); outcome.failed())
    quit(77, "%s", outcome.text.c_str());
  int count = 0, reaches[2] = {0, 0};
  TRY(countDevices(&count));
  if (count < 2)
    quit(77, "needs two devices, there is %d", count);
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  auto load = [&](auto &function, const char *symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        library ? dlsym(library, symbol) : nullptr);
    if (!function)
      quit(77, "the driver has no %s", symbol);
  };
  load(events.canAccessPeer, "cuDeviceCanAccessPeer");
  load(events.enablePeer, "cuCtxEnablePeerAccess");
  load(events.create, "cuEventCreate");
  load(events.record, "cuEventRecord");
  load(events.elapsed, "cuEventElapsedTime");
  for (int i : {0, 1})
    check("canAccessPeer", events.canAccessPeer(&reaches[i], i, 1 - i));
  if (!reaches[0] || !reaches[1])
    quit(77, "the devices do not reach each other's memory");

  // The largest push, of bytes that no push before has left.
  sent.resize(size_t(kTokens[std::size(kTokens) - 1] / 2) * kRowBytes);
  std::mt19937_64 random(7);
  for (size_t i = 0; i != sent.size(); i += 8) {
    uint64_t word = random();
    std::memcpy(&sent[i], &word, 8);
  }
  for (int i : {0, 1})
    open(i);
  for (int i : {0, 1}) {
    TRY(setCurrent(sides[i].context));
    check("enablePeer", events.enablePeer(sides[1 - i].context, 0));
  }
  void *memory = nullptr;
  TRY(allocateHost(&memory, sizeof(*go), kHostPortable | kHostMapped));
  go = static_cast<uint32_t *>(memory);
}

void PushBenchmark::open(int ordinal) {
  Side &side = sides[ordinal];
  DeviceId device;
  TRY(getDevice(&device, ordinal));
  TRY(retainContext(&side.context, device));
  TRY(setCurrent(side.context));
  TRY(getAttribute(&side.multiprocessors, kMultiprocessorCount, device));
  TRY(createStream(&side.stream, kStreamNonBlocking));
  Module module = nullptr;
  TRY(loadModule(&module, kPushPtx, 0, nullptr, nullptr));
  TRY(getFunction(&side.stores, module, "shardq_push_stores"));
  TRY(getFunction(&side.bulk, module, "shardq_push_bulk"));
  TRY(getFunction(&side.hold, module, "shardq_push_hold"));
  TRY(setFunctionAttribute(side.bulk, kFunctionMaxDynamicShared, kBulkShared));
  for (void **event : {&side.begin, &side.end})
    check("createEvent", events.create(event, 0));
  TRY(allocate(&side.source, sent.size()));
  TRY(allocate(&side.inbox, 2 * sent.size()));
  TRY(copyToDevice(side.source, sent.data(), sent.size(), side.stream));
  TRY(synchronizeStream(side.stream));
}

/// Enqueues one push to the other device. The context is current.
void PushBenchmark::push(int self, Way way, uint32_t rows) {
  Side &side = sides[self];
  // As rank `self` of two writes: its heads are the left or the right half.
  Address target = sides[1 - self].inbox + Address(self) * kRowBytes;
  if (way == CopyEngine) {
    // Rows that are neighbours: two runs of tokens, as a zigzag split has.
    for (uint32_t half = 0; half != 2; ++half) {
      uint32_t first = half * (rows / 2);
      Copy2D copy = {};
      copy.sourceType = copy.targetType = kMemoryDevice;
      copy.sourceDevice = side.source + Address(first) * kRowBytes;
      copy.sourcePitch = kRowBytes;
      copy.targetDevice = target + Address(first) * kPitch;
      copy.targetPitch = kPitch;
      copy.width = kRowBytes;
      copy.height = half ? rows - rows / 2 : rows / 2;
      TRY(copy2D(&copy, side.stream));
    }
    return;
  }
  bool isBulk = way == Bulk;
  uint32_t unit = isBulk ? 1 : 16;
  uint32_t part = isBulk ? kStageBytes : kThreads * kPieces * 16;
  uint32_t rowUnits = kRowBytes / unit, pitchUnits = kPitch / unit;
  uint32_t parts = (kRowBytes + part - 1) / part;
  uint32_t blocks = std::min<uint32_t>(rows * parts, side.multiprocessors *
                                                         (isBulk ? 3 : 16));
  void *parameters[] = {&side.source, &target, &rowUnits,
                        &pitchUnits,  &parts,  &rows};
  TRY(launch(isBulk ? side.bulk : side.stores, blocks, 1, 1,
             isBulk ? 1 : kThreads, 1, 1, isBulk ? kBulkShared : 0, side.stream,
             parameters, nullptr));
}

/// Microseconds that one `once(device)` takes on the slower device.
float PushBenchmark::runTrial(const std::function<void(int)> &once) {
  __atomic_store_n(go, 0, __ATOMIC_RELEASE);
  for (int i : {0, 1}) {
    Side &side = sides[i];
    TRY(setCurrent(side.context));
    Address word = 0;
    TRY(getDeviceAddress(&word, go, 0));
    void *parameters[] = {&word};
    TRY(launch(side.hold, 1, 1, 1, 1, 1, 1, 0, side.stream, parameters,
               nullptr));
    check("record", events.record(side.begin, side.stream));
    for (int turn = 0; turn != kUnrolled; ++turn)
      once(i);
    check("record", events.record(side.end, side.stream));
  }
  __atomic_store_n(go, 1, __ATOMIC_RELEASE);
  float slower = 0;
  for (Side &side : sides) {
    TRY(setCurrent(side.context));
    TRY(synchronizeStream(side.stream));
    float milliseconds = 0;
    check("elapsed", events.elapsed(&milliseconds, side.begin, side.end));
    slower = std::max(slower, milliseconds);
  }
  return slower * 1000 / kUnrolled;
}

/// Whether what arrives is what was sent, and nothing else is written.
void PushBenchmark::verify(Way way, uint32_t rows) {
  std::vector<char> found(size_t(rows) * kPitch);
  for (int i : {0, 1}) {
    TRY(setCurrent(sides[i].context));
    TRY(fill(sides[i].inbox, 0xff, found.size(), sides[i].stream));
    TRY(synchronizeStream(sides[i].stream));
  }
  for (int i : {0, 1}) {
    TRY(setCurrent(sides[i].context));
    push(i, way, rows);
    TRY(synchronizeStream(sides[i].stream));
    Side &other = sides[1 - i];
    TRY(setCurrent(other.context));
    TRY(copyToHost(found.data(), other.inbox, found.size(), other.stream));
    TRY(synchronizeStream(other.stream));
    for (uint32_t row = 0; row != rows; ++row)
      for (int half : {0, 1}) {
        const char *at =
            &found[size_t(row) * kPitch + size_t(half) * kRowBytes];
        bool isRight =
            half == i
                ? !std::memcmp(at, &sent[size_t(row) * kRowBytes], kRowBytes)
                : std::count(at, at + kRowBytes, '\xff') == kRowBytes;
        if (!isRight)
          quit(1, "%s: row %u of %u on device %d is wrong", kNames[way], row,
               rows, 1 - i);
      }
  }
}

double PushBenchmark::findMedian(const std::function<void(int)> &once) {
  std::vector<float> times;
  for (int trial = 0; trial != kWarmUps + kTrials; ++trial) {
    float time = runTrial(once);
    if (trial >= kWarmUps)
      times.push_back(time);
  }
  std::nth_element(times.begin(), times.begin() + kTrials / 2, times.end());
  return times[kTrials / 2];
}

static void print(const std::string &name, double microseconds, double bytes) {
  std::printf("%-32s %.2f us %.0f GB/s\n", name.c_str(), microseconds,
              bytes / microseconds * 1e-3);
  std::fflush(stdout);
}

void PushBenchmark::run() {
  size_t bytes = size_t(64) << 20;
  double time = findMedian([&](int self) {
    Side &side = sides[self];
    TRY(copyOnDevice(side.inbox, side.source, bytes, side.stream));
  });
  print("copy on one device", time, 2.0 * double(bytes));
  for (int tokens : kTokens)
    for (Way way : {Stores, Bulk, CopyEngine}) {
      // Half of the tokens are the other device's.
      uint32_t rows = tokens / 2;
      verify(way, std::min<uint32_t>(rows, 513));
      time = findMedian([&](int self) { push(self, way, rows); });
      print(format("push T=%d, %s", tokens, kNames[way]), time,
            double(rows) * kRowBytes);
    }
}

int main() { PushBenchmark().run(); }
