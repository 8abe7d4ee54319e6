//===- CudaRank.cpp - Ranks on GPUs for tests -----------------------------===//

#include "CudaRank.h"

#include "TestData.h"
#include "TestPtx.h"

#include <barrier>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace shardq;
using namespace shardq::cuda;
using namespace shardq::test;

namespace {

/// Functions of the driver that only tests call.
struct GraphDriver {
  Result (*beginCapture)(Stream stream, int mode);
  Result (*endCapture)(Stream stream, void **graph);
  Result (*instantiate)(void **executable, void *graph,
                        unsigned long long flags);
  Result (*launch)(void *executable, Stream stream);
  Result (*destroyExecutable)(void *executable);
  Result (*destroyGraph)(void *graph);
};

} // namespace

static const GraphDriver &graphDriver() {
  static const GraphDriver instance = [] {
    const char *path = std::getenv("SHARDQ_CUDA_DRIVER");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
    GraphDriver found{};
    auto find = [library](auto &function, const char *symbol) {
      void *address = library ? dlsym(library, symbol) : nullptr;
      std::memcpy(&function, &address, sizeof(address));
    };
    find(found.beginCapture, "cuStreamBeginCapture_v2");
    find(found.endCapture, "cuStreamEndCapture");
    find(found.instantiate, "cuGraphInstantiateWithFlags");
    find(found.launch, "cuGraphLaunch");
    find(found.destroyExecutable, "cuGraphExecDestroy");
    find(found.destroyGraph, "cuGraphDestroy");
    return found;
  }();
  return instance;
}

// In the order of TestKernel.
static constexpr shardq_gpu_kernel kKernels[] = {
    {"shardq_test_counts", 32, 0},       {"shardq_test_push", 128, 0},
    {"shardq_test_signal", 64, 0},       {"shardq_test_wait", 64, 0},
    {"shardq_test_verify", 128, 0},      {"shardq_test_next", 1, 0},
    {"shardq_test_clean", 256, 0},       {"shardq_test_admit", 32, 1024},
    {"shardq_test_pack", 128, 0},        {"shardq_test_announce", 64, 0},
    {"shardq_test_unpack", 128, 0},      {"shardq_test_signal_wait", 128, 0},
    {"shardq_test_beyond", 32, 0},       {"shardq_test_no_place", 32, 0},
    {"shardq_test_beyond_cache", 32, 0}, {"shardq_test_split_request", 32, 0}};

const shardq_gpu_image shardq::test::kTestImage = {
    sizeof(shardq_gpu_image),
    kTestPtx,
    std::strlen(kTestPtx) + 1,
    80,
    static_cast<int32_t>(std::size(kKernels)),
    kKernels,
    nullptr};

int shardq::test::countCudaDevices(std::string &why) {
  const Driver *driver = nullptr;
  int count = 0;
  Outcome outcome = Driver::get(driver);
  if (!outcome.failed())
    if (Result result = driver->countDevices(&count))
      outcome = driver->failed("cuDeviceGetCount", result);
  why = outcome.text;
  return outcome.failed() ? 0 : count;
}

static std::unique_ptr<std::barrier<>> room;

ThreadRoom::ThreadRoom(int32_t ranks) {
  room = std::make_unique<std::barrier<>>(ranks);
}

ThreadRoom::~ThreadRoom() { room.reset(); }

void ThreadRoom::meet() {
  if (room)
    room->arrive_and_wait();
}

CapturedGraph::~CapturedGraph() {
  if (executable)
    graphDriver().destroyExecutable(executable);
}

bool CapturedGraph::launch(Stream stream) const {
  return graphDriver().launch(executable, stream) == kSuccess;
}

CudaRank::CudaRank(shardq_comm *comm, const TestPlan &plan, int32_t slot)
    : comm(comm), context(shardq_comm_context(comm, slot)),
      driver(comm->gpu->driver), plan(plan),
      current(driver, comm->gpu->context) {
  EXPECT_EQ(driver.createStream(&stream, kStreamNonBlocking), kSuccess);
  char message[1024] = "";
  EXPECT_EQ(shardq_comm_load(comm, &kTestImage, message, sizeof(message)),
            SHARDQ_OK)
      << message;
  round = newWord();
  wrong = newWord();
  scratch = newWord();
  EXPECT_EQ(driver.allocate(&noRows, 2 * sizeof(int64_t)), kSuccess);
  EXPECT_EQ(driver.fill(noRows, 0, 2 * sizeof(int64_t), stream), kSuccess);
  // Not through the runtime, which launches nothing after an error.
  Module module = nullptr;
  EXPECT_EQ(driver.loadModule(&module, kTestPtx, 0, nullptr, nullptr),
            kSuccess);
  EXPECT_EQ(driver.getFunction(&clean, module, "shardq_test_clean"), kSuccess);
  if (driver.loadFunction)
    EXPECT_EQ(driver.loadFunction(clean), kSuccess);
  EXPECT_TRUE(synchronize());
  ThreadRoom::meet();
}

CudaRank::~CudaRank() {
  // Freeing memory may wait for kernels of other ranks on this device, so the
  // words are left to the process.
  if (stream)
    driver.destroyStream(stream);
}

Address CudaRank::newWord() {
  Address address = 0;
  EXPECT_EQ(driver.allocate(&address, sizeof(uint64_t)), kSuccess);
  EXPECT_EQ(driver.fill(address, 0, sizeof(uint64_t), stream), kSuccess);
  return address;
}

protocol::Group CudaRank::groupOf(int32_t channel) const {
  const shardq_channel &planned = plan.plan.channels[channel];
  if (planned.group_size == 0)
    return {0, 1, shardq_comm_world(comm)};
  int64_t stride = planned.group_stride, size = planned.group_size;
  int64_t rank = shardq_comm_rank(comm), reach = stride * size;
  return {rank / reach * reach + rank % stride, stride, size};
}

CudaRank::Started CudaRank::start(int32_t channel, int32_t operation,
                                  bool waitsAtOnce, bool isAside) {
  Started started{channel, operation, waitsAtOnce, shardq_rt_device(context)};
  protocol::Group group = groupOf(channel);
  int64_t bytes = group.size * static_cast<int64_t>(sizeof(int64_t));
  int64_t maxRows = plan.maxRows;
  void *&device = started.device, *&sent = started.sent;
  void *&expected = started.expected;
  sent = shardq_rt_alloc(context, bytes);
  expected = shardq_rt_alloc(context, bytes);

  void *counts[] = {&device, &round, &maxRows, &group, &sent, &expected};
  shardq_rt_launch(context, &kTestImage, kTestCounts, 1, counts);
  if (isAside)
    shardq_rt_begin_aside(context, channel);
  push(started);
  if (isAside)
    shardq_rt_end_aside(context);
  return started;
}

void CudaRank::push(Started &started) {
  protocol::Group group = groupOf(started.channel);
  int64_t maxRows = plan.maxRows;
  int32_t &channel = started.channel, &operation = started.operation;
  void *&device = started.device, *&sent = started.sent;
  void *&expected = started.expected, *&outbox = started.outbox;
  void *&landing = started.landing;
  // One program serves both transports.
  if (shardq_rt_is_carried(context, channel)) {
    outbox = shardq_rt_alloc(context, group.size * maxRows * kRowBytes);
    landing = shardq_rt_alloc(context, group.size * maxRows * kRowBytes);
    void *pack[] = {&device,  &channel, &operation, &round,
                    &maxRows, &group,   &sent,      &outbox};
    shardq_rt_launch(context, &kTestImage, kTestPack, 2 * group.size, pack);
    void *announce[] = {&device,       &channel,    &operation, &group.first,
                        &group.stride, &group.size, &sent,      &expected};
    shardq_rt_launch(context, &kTestImage, kTestAnnounce, 1, announce);
    shardq_rt_transfer(context, channel, operation, group.first, group.stride,
                       group.size, outbox, landing, maxRows, kRowBytes);
    return;
  }
  void *push[] = {&device,  &channel, &operation, &round,
                  &maxRows, &group,   &sent};
  shardq_rt_launch(context, &kTestImage, kTestPush, 2 * group.size, push);
  void *signal[] = {&device,       &channel,    &operation, &group.first,
                    &group.stride, &group.size, &sent,      &expected};
  shardq_rt_launch(context, &kTestImage,
                   started.waitsAtOnce ? kTestSignalWait : kTestSignal, 1,
                   signal);
}

void CudaRank::finish(Started started) {
  protocol::Group group = groupOf(started.channel);
  int64_t maxRows = plan.maxRows;
  int32_t &channel = started.channel, &operation = started.operation;
  void *&device = started.device, *&expected = started.expected;
  bool isCarried = started.landing;
  if (isCarried || !started.waitsAtOnce) {
    void *wait[] = {&device,       &channel,    &operation, &group.first,
                    &group.stride, &group.size, &expected};
    shardq_rt_launch(context, &kTestImage, kTestWait, 1, wait);
  }
  if (isCarried) {
    void *unpack[] = {&device, &channel,  &maxRows,
                      &group,  &expected, &started.landing};
    shardq_rt_launch(context, &kTestImage, kTestUnpack, 2 * group.size, unpack);
    shardq_rt_free(context, started.landing);
    shardq_rt_free(context, started.outbox);
  }
  void *verify[] = {&device, &channel,  &round, &maxRows,
                    &group,  &expected, &wrong};
  shardq_rt_launch(context, &kTestImage, kTestVerify, group.size, verify);
  shardq_rt_free(context, expected);
  shardq_rt_free(context, started.sent);
}

void CudaRank::exchange(int32_t channel, int32_t operation) {
  shardq_rt_begin(context, stream);
  waitsAtOnce = !waitsAtOnce;
  finish(start(channel, operation, waitsAtOnce));
  void *next[] = {&round};
  shardq_rt_launch(context, &kTestImage, kTestNext, 1, next);
  shardq_rt_end(context);
}

void CudaRank::overlap(int32_t outer, int32_t inner) {
  shardq_rt_begin(context, stream);
  waitsAtOnce = !waitsAtOnce;
  Started around = start(outer, outer, /*waitsAtOnce=*/false);
  finish(start(inner, inner, waitsAtOnce));
  finish(around);
  void *next[] = {&round};
  shardq_rt_launch(context, &kTestImage, kTestNext, 1, next);
  shardq_rt_end(context);
}

void CudaRank::aside(int32_t outer, int32_t inner) {
  shardq_rt_begin(context, stream);
  waitsAtOnce = !waitsAtOnce;
  Started around = start(outer, outer, /*waitsAtOnce=*/false, /*isAside=*/true);
  finish(start(inner, inner, waitsAtOnce));
  shardq_rt_join_aside(context);
  finish(around);
  void *next[] = {&round};
  shardq_rt_launch(context, &kTestImage, kTestNext, 1, next);
  shardq_rt_end(context);
}

void CudaRank::meet(int32_t channel, int64_t first, int64_t stride) {
  shardq_rt_begin(context, stream);
  void *device = shardq_rt_device(context);
  int64_t size = 2;
  void *signal[] = {&device, &channel, &channel, &first,
                    &stride, &size,    &noRows,  &noRows};
  bool isCarried = shardq_rt_is_carried(context, channel);
  shardq_rt_launch(context, &kTestImage,
                   isCarried ? kTestAnnounce : kTestSignal, 1, signal);
  if (isCarried)
    shardq_rt_transfer(context, channel, channel, first, stride, size, nullptr,
                       nullptr, 0, kRowBytes);
  void *wait[] = {&device, &channel, &channel, &first, &stride, &size, &noRows};
  shardq_rt_launch(context, &kTestImage, kTestWait, 1, wait);
  shardq_rt_end(context);
}

void CudaRank::launch(TestKernel kernel, int64_t blocks,
                      std::vector<void *> const &params) {
  shardq_rt_begin(context, stream);
  shardq_rt_launch(context, &kTestImage, kernel, blocks, params.data());
  shardq_rt_end(context);
}

CapturedGraph CudaRank::capture(const std::function<void()> &body) {
  CapturedGraph result;
  void *graph = nullptr;
  // Other ranks of this process make calls meanwhile that have nothing to do
  // with this capture.
  constexpr int kThreadLocal = 1;
  if (graphDriver().beginCapture(stream, kThreadLocal) != kSuccess)
    return result;
  body();
  if (graphDriver().endCapture(stream, &graph) != kSuccess)
    return result;
  if (graphDriver().instantiate(&result.executable, graph, 0) != kSuccess)
    result.executable = nullptr;
  graphDriver().destroyGraph(graph);
  return result;
}

bool CudaRank::synchronize() {
  return driver.synchronizeStream(stream) == kSuccess;
}

uint64_t CudaRank::read(Address address) {
  uint64_t word = ~uint64_t(0);
  EXPECT_EQ(driver.copyToHost(&word, address, sizeof(word), stream), kSuccess);
  EXPECT_TRUE(synchronize());
  return word;
}

uint64_t CudaRank::countWrong() { return read(wrong); }
uint64_t CudaRank::countRounds() { return read(round); }

uint64_t CudaRank::countClean(int32_t channel) {
  EXPECT_EQ(driver.fill(scratch, 0, sizeof(uint64_t), stream), kSuccess);
  void *device = shardq_rt_device(context);
  void *params[] = {&device, &channel, &scratch};
  EXPECT_EQ(
      driver.launch(clean, 1, 1, 1, 256, 1, 1, 0, stream, params, nullptr),
      kSuccess);
  return read(scratch);
}
