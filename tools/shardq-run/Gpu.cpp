//===- Gpu.cpp - Device memory, streams and graphs of one rank ------------===//

#include "Gpu.h"
#include <cstdlib>
#include <dlfcn.h>

using namespace mlir::shardq;
using namespace mlir::shardq::run;

namespace {

// Names and parameter lists are no expressions.
// NOLINTBEGIN(bugprone-macro-parentheses)

/// The driver's functions that the tool needs; facts of its ABI.
struct Driver {
  using Address = unsigned long long;
#define FUNCTIONS(X)                                                           \
  X(initialize, "cuInit", (unsigned))                                          \
  X(countDevices, "cuDeviceGetCount", (int *))                                 \
  X(getDevice, "cuDeviceGet", (int *, int))                                    \
  X(retainContext, "cuDevicePrimaryCtxRetain", (void **, int))                 \
  X(releaseContext, "cuDevicePrimaryCtxRelease_v2", (int))                     \
  X(setContext, "cuCtxSetCurrent", (void *))                                   \
  X(createStream, "cuStreamCreate", (void **, unsigned))                       \
  X(destroyStream, "cuStreamDestroy_v2", (void *))                             \
  X(synchronizeStream, "cuStreamSynchronize", (void *))                        \
  X(allocate, "cuMemAlloc_v2", (Address *, size_t))                            \
  X(free, "cuMemFree_v2", (Address))                                           \
  X(toDevice, "cuMemcpyHtoD_v2", (Address, const void *, size_t))              \
  X(toHost, "cuMemcpyDtoH_v2", (void *, Address, size_t))                      \
  X(fill, "cuMemsetD8Async", (Address, unsigned char, size_t, void *))         \
  X(beginCapture, "cuStreamBeginCapture_v2", (void *, int))                    \
  X(endCapture, "cuStreamEndCapture", (void *, void **))                       \
  X(instantiate, "cuGraphInstantiateWithFlags",                                \
    (void **, void *, unsigned long long))                                     \
  X(launchGraph, "cuGraphLaunch", (void *, void *))                            \
  X(destroyGraph, "cuGraphDestroy", (void *))                                  \
  X(destroyInstance, "cuGraphExecDestroy", (void *))                           \
  X(createEvent, "cuEventCreate", (void **, unsigned))                         \
  X(destroyEvent, "cuEventDestroy_v2", (void *))                               \
  X(recordEvent, "cuEventRecord", (void *, void *))                            \
  X(elapsed, "cuEventElapsedTime", (float *, void *, void *))                  \
  X(getErrorText, "cuGetErrorString", (int, const char **))
#define MEMBER(NAME, SYMBOL, PARAMETERS) int(*NAME) PARAMETERS = nullptr;
  FUNCTIONS(MEMBER)
#undef MEMBER
  std::string problem;

  Driver() {
    const char *path = std::getenv("SHARDQ_CUDA_DRIVER");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
    if (!library) {
      problem = std::string("no CUDA driver: ") + dlerror();
      return;
    }
#define LOAD(NAME, SYMBOL, PARAMETERS)                                         \
  NAME = reinterpret_cast<decltype(NAME)>(dlsym(library, SYMBOL));             \
  if (!NAME && problem.empty())                                                \
    problem = "the CUDA driver has no " SYMBOL;
    FUNCTIONS(LOAD)
#undef LOAD
    if (problem.empty() && initialize(0) != 0)
      problem = "the CUDA driver finds no device";
  }
};

// NOLINTEND(bugprone-macro-parentheses)

} // namespace

static const Driver &getDriver() {
  // Opened in each rank: a driver does not survive a fork.
  static const Driver driver;
  return driver;
}

static llvm::Error check(const char *what, int result) {
  if (result == 0)
    return llvm::Error::success();
  const char *text = nullptr;
  getDriver().getErrorText(result, &text);
  return makeError("%s: %s", what, text ? text : "unknown error of the driver");
}

#define TRY(CALL)                                                              \
  if (llvm::Error error = check(#CALL, getDriver().CALL))                      \
  return error

llvm::Expected<int> Gpu::getNumDevices() {
  const Driver &driver = getDriver();
  if (!driver.problem.empty())
    return makeError(driver.problem);
  int count = 0;
  TRY(countDevices(&count));
  return count;
}

llvm::Expected<std::unique_ptr<Gpu>> Gpu::open(int ordinal) {
  llvm::Expected<int> count = getNumDevices();
  if (!count)
    return count.takeError();
  if (ordinal >= *count)
    return makeError("there is no device %d, only %d", ordinal, *count);
  std::unique_ptr<Gpu> gpu(new Gpu());
  TRY(getDevice(&gpu->device, ordinal));
  void *context = nullptr;
  TRY(retainContext(&context, gpu->device));
  TRY(setContext(context));
  TRY(createStream(&gpu->stream, /*non-blocking=*/1));
  return gpu;
}

// The process ends behind this, so nothing that fails here matters.
Gpu::~Gpu() {
  const Driver &driver = getDriver();
  for (void *event : events)
    driver.destroyEvent(event);
  dropGraphs();
  for (uint64_t address : allocations)
    driver.free(address);
  if (stream)
    driver.destroyStream(stream);
  driver.releaseContext(device);
}

llvm::Expected<uint64_t> Gpu::allocate(int64_t bytes) {
  Driver::Address address = 0;
  TRY(allocate(&address, std::max<int64_t>(bytes, 256)));
  allocations.push_back(address);
  return address;
}

llvm::Error Gpu::upload(uint64_t address, const Array &array) {
  TRY(toDevice(address, array.data.get(), array.getNumBytes()));
  return llvm::Error::success();
}

llvm::Error Gpu::download(const Array &array, uint64_t address) {
  TRY(toHost(array.data.get(), address, array.getNumBytes()));
  return llvm::Error::success();
}

llvm::Error Gpu::fill(uint64_t address, uint8_t value, int64_t bytes) {
  TRY(fill(address, value, bytes, stream));
  return llvm::Error::success();
}

llvm::Error Gpu::synchronize() {
  TRY(synchronizeStream(stream));
  return llvm::Error::success();
}

llvm::Error Gpu::capture(int64_t slot, llvm::function_ref<llvm::Error()> body) {
  // Other threads of a rank are not to be disturbed: thread-local mode.
  TRY(beginCapture(stream, 1));
  llvm::Error failure = body();
  void *recorded = nullptr;
  llvm::Error ended =
      check("endCapture", getDriver().endCapture(stream, &recorded));
  if (failure) {
    llvm::consumeError(std::move(ended));
    return failure;
  }
  if (ended)
    return ended;
  void *graph = nullptr;
  int result = getDriver().instantiate(&graph, recorded, 0);
  graphs[slot] = graph;
  getDriver().destroyGraph(recorded);
  return check("instantiate", result);
}

void Gpu::dropGraphs() {
  for (auto [slot, graph] : graphs)
    if (graph)
      getDriver().destroyInstance(graph);
  graphs.clear();
}

llvm::Error Gpu::replay(int64_t slot) {
  TRY(launchGraph(graphs[slot], stream));
  return llvm::Error::success();
}

llvm::Error Gpu::mark(unsigned event) {
  while (events.size() <= event) {
    void *made = nullptr;
    TRY(createEvent(&made, 0));
    events.push_back(made);
  }
  TRY(recordEvent(events[event], stream));
  return llvm::Error::success();
}

llvm::Expected<double> Gpu::getMicroseconds(unsigned first, unsigned last) {
  float milliseconds = 0;
  TRY(elapsed(&milliseconds, events[first], events[last]));
  return milliseconds * 1e3;
}
