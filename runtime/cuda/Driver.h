//===- Driver.h - The CUDA driver, opened at run time -----------*- C++ -*-===//
//
// The functions of libcuda.so.1 that the runtime calls, with declarations of
// its own: neither building nor installing needs CUDA. A machine without a
// driver gets a status.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_CUDA_DRIVER_H
#define SHARDQ_RUNTIME_CUDA_DRIVER_H

#include "host/Support.h"

namespace shardq::cuda {

/// Types and numbers of the driver's binary interface. Handles are pointers to
/// nothing that anybody here looks into.
using Result = int;
using DeviceId = int;
using Address = unsigned long long; // CUdeviceptr
using MemoryHandle = unsigned long long;
using ContextHandle = struct ContextObject *;
using Stream = struct StreamObject *;
using Event = struct EventObject *;
using Module = struct ModuleObject *;
using Function = struct FunctionObject *;

inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotReady = 600;
inline constexpr Result kCaptureUnsupported = 900;

/// CUdevice_attribute.
enum Attribute : int {
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kVirtualMemoryManagement = 102,
  kPosixHandles = 103,
};

/// CUfunction_attribute.
inline constexpr int kFunctionRegisters = 4;
inline constexpr int kFunctionMaxDynamicShared = 8;

/// CUmemLocation.
struct Location {
  int type; // 1: a device
  int id;
};
inline constexpr int kLocationDevice = 1;

/// CUmemAllocationProp.
struct AllocationProperties {
  int type; // 1: pinned
  int handleTypes;
  Location location;
  void *win32Data;
  struct {
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
static_assert(sizeof(AllocationProperties) == 32);
inline constexpr int kAllocationPinned = 1;
inline constexpr int kHandlePosix = 1;
inline constexpr int kGranularityRecommended = 1;

/// CUmemAccessDesc.
struct AccessDescription {
  Location location;
  int flags; // 3: read and write
};
inline constexpr int kAccessReadWrite = 3;

/// CUDA_MEMCPY2D.
struct Copy2D {
  size_t sourceX, sourceY;
  int sourceType; // 1: host, 2: device
  const void *sourceHost;
  Address sourceDevice;
  void *sourceArray;
  size_t sourcePitch;
  size_t targetX, targetY;
  int targetType;
  void *targetHost;
  Address targetDevice;
  void *targetArray;
  size_t targetPitch;
  size_t width, height;
};
static_assert(sizeof(Copy2D) == 128);
inline constexpr int kMemoryDevice = 2;

/// CUuuid.
struct Uuid {
  unsigned char bytes[16];
};

/// CUlaunchAttribute.
struct LaunchAttribute {
  int id;
  int padding;
  union {
    char bytes[64];
    int number;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);
/// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
inline constexpr int kLaunchEarly = 6;

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned gridX, gridY, gridZ;
  unsigned blockX, blockY, blockZ;
  unsigned dynamicShared;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned numAttributes;
};
static_assert(sizeof(LaunchConfig) == 56);

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventWithoutTime = 2;
inline constexpr unsigned kHostPortable = 1;
inline constexpr unsigned kHostMapped = 2;
inline constexpr int kCaptureRelaxed = 2;

/// CUjit_option.
inline constexpr int kJitErrorLog = 5;
inline constexpr int kJitErrorLogBytes = 6;

/// Every function: its name here, its symbol, its parameters.
// clang-format off
#define SHARDQ_CUDA_FUNCTIONS(X)                                               \
  X(init, "cuInit", (unsigned flags))                                          \
  X(getDevice, "cuDeviceGet", (DeviceId *device, int ordinal))                 \
  X(countDevices, "cuDeviceGetCount", (int *count))                            \
  X(getAttribute, "cuDeviceGetAttribute",                                      \
    (int *value, int attribute, DeviceId device))                              \
  X(getUuid, "cuDeviceGetUuid_v2", (Uuid *uuid, DeviceId device))              \
  X(retainContext, "cuDevicePrimaryCtxRetain",                                 \
    (ContextHandle *context, DeviceId device))                                 \
  X(releaseContext, "cuDevicePrimaryCtxRelease_v2", (DeviceId device))         \
  X(getCurrent, "cuCtxGetCurrent", (ContextHandle *context))                   \
  X(setCurrent, "cuCtxSetCurrent", (ContextHandle context))                    \
  X(synchronizeContext, "cuCtxSynchronize", ())                                \
  X(exchangeCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *mode))     \
  X(getGranularity, "cuMemGetAllocationGranularity",                           \
    (size_t *granularity, const AllocationProperties *properties, int option)) \
  X(createMemory, "cuMemCreate",                                               \
    (MemoryHandle *handle, size_t bytes,                                       \
     const AllocationProperties *properties, unsigned long long flags))        \
  X(releaseMemory, "cuMemRelease", (MemoryHandle handle))                      \
  X(reserveAddress, "cuMemAddressReserve",                                     \
    (Address *address, size_t bytes, size_t alignment, Address wanted,         \
     unsigned long long flags))                                                \
  X(freeAddress, "cuMemAddressFree", (Address address, size_t bytes))          \
  X(mapMemory, "cuMemMap",                                                     \
    (Address address, size_t bytes, size_t offset, MemoryHandle handle,        \
     unsigned long long flags))                                                \
  X(unmapMemory, "cuMemUnmap", (Address address, size_t bytes))                \
  X(setAccess, "cuMemSetAccess",                                               \
    (Address address, size_t bytes, const AccessDescription *descriptions,     \
     size_t count))                                                            \
  X(exportMemory, "cuMemExportToShareableHandle",                              \
    (void *shared, MemoryHandle handle, int type, unsigned long long flags))   \
  X(importMemory, "cuMemImportFromShareableHandle",                            \
    (MemoryHandle *handle, void *shared, int type))                            \
  X(allocate, "cuMemAlloc_v2", (Address *address, size_t bytes))               \
  X(free, "cuMemFree_v2", (Address address))                                   \
  X(allocateHost, "cuMemHostAlloc",                                            \
    (void **address, size_t bytes, unsigned flags))                            \
  X(freeHost, "cuMemFreeHost", (void *address))                                \
  X(getDeviceAddress, "cuMemHostGetDevicePointer_v2",                          \
    (Address *address, void *host, unsigned flags))                            \
  X(copyToDevice, "cuMemcpyHtoDAsync_v2",                                      \
    (Address target, const void *source, size_t bytes, Stream stream))         \
  X(copyToHost, "cuMemcpyDtoHAsync_v2",                                        \
    (void *target, Address source, size_t bytes, Stream stream))               \
  X(copyOnDevice, "cuMemcpyDtoDAsync_v2",                                      \
    (Address target, Address source, size_t bytes, Stream stream))             \
  X(copy2D, "cuMemcpy2DAsync_v2", (const Copy2D *copy, Stream stream))         \
  X(copyAny, "cuMemcpyAsync",                                                  \
    (Address target, Address source, size_t bytes, Stream stream))             \
  X(fill, "cuMemsetD8Async",                                                   \
    (Address target, unsigned char value, size_t bytes, Stream stream))        \
  X(createStream, "cuStreamCreate", (Stream *stream, unsigned flags))          \
  X(destroyStream, "cuStreamDestroy_v2", (Stream stream))                      \
  X(synchronizeStream, "cuStreamSynchronize", (Stream stream))                 \
  X(queryStream, "cuStreamQuery", (Stream stream))                             \
  X(isCapturing, "cuStreamIsCapturing", (Stream stream, int *status))          \
  X(loadModule, "cuModuleLoadDataEx",                                          \
    (Module *module, const void *image, unsigned count, int *options,          \
     void **values))                                                           \
  X(unloadModule, "cuModuleUnload", (Module module))                           \
  X(getFunction, "cuModuleGetFunction",                                        \
    (Function *function, Module module, const char *name))                     \
  X(getFunctionAttribute, "cuFuncGetAttribute",                                \
    (int *value, int attribute, Function function))                            \
  X(setFunctionAttribute, "cuFuncSetAttribute",                                \
    (Function function, int attribute, int value))                             \
  X(launch, "cuLaunchKernel",                                                  \
    (Function function, unsigned gridX, unsigned gridY, unsigned gridZ,        \
     unsigned blockX, unsigned blockY, unsigned blockZ,                        \
     unsigned dynamicShared, Stream stream, void **params, void **extra))      \
  X(getErrorText, "cuGetErrorString", (Result result, const char **text))

/// Functions that older drivers lack; null there.
#define SHARDQ_CUDA_OPTIONAL_FUNCTIONS(X)                                      \
  X(loadFunction, "cuFuncLoad", (Function function))                           \
  X(getVersion, "cuDriverGetVersion", (int *version))                          \
  X(getPriorities, "cuCtxGetStreamPriorityRange", (int *least, int *greatest)) \
  X(createUrgentStream, "cuStreamCreateWithPriority",                          \
    (Stream *stream, unsigned flags, int priority))                            \
  X(createEvent, "cuEventCreate", (Event *event, unsigned flags))              \
  X(destroyEvent, "cuEventDestroy_v2", (Event event))                          \
  X(recordEvent, "cuEventRecord", (Event event, Stream stream))                \
  X(waitForEvent, "cuStreamWaitEvent",                                         \
    (Stream stream, Event event, unsigned flags))                              \
  X(launchConfigured, "cuLaunchKernelEx",                                      \
    (const LaunchConfig *config, Function function, void **params,             \
     void **extra))
// clang-format on

struct Driver {
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration takes none.
#define SHARDQ_CUDA_MEMBER(NAME, SYMBOL, PARAMETERS)                           \
  Result(*NAME) PARAMETERS = nullptr;
  // NOLINTEND(bugprone-macro-parentheses)
  SHARDQ_CUDA_FUNCTIONS(SHARDQ_CUDA_MEMBER)
  SHARDQ_CUDA_OPTIONAL_FUNCTIONS(SHARDQ_CUDA_MEMBER)
#undef SHARDQ_CUDA_MEMBER

  /// The driver of this process, opened and initialized at the first call;
  /// SHARDQ_SYSTEM where there is none. The environment's SHARDQ_CUDA_DRIVER
  /// names another library.
  static Outcome get(const Driver *&driver);

  /// Whether a kernel may be started before the one in front of it has ended,
  /// in a graph too: drivers of CUDA 12.3 and later.
  bool startsEarly() const;

  /// Whether streams can wait for each other.
  bool hasEvents() const {
    return getPriorities && createUrgentStream && createEvent && destroyEvent &&
           recordEvent && waitForEvent;
  }

  /// SHARDQ_SYSTEM, naming the call and what the driver says about it.
  Outcome failed(const char *call, Result result) const;
};

} // namespace shardq::cuda

#endif // SHARDQ_RUNTIME_CUDA_DRIVER_H
