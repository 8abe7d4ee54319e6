//===- Context.h - One micro-batch slot of a communicator -------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_CONTEXT_H
#define SHARDQ_RUNTIME_HOST_CONTEXT_H

#include "Arena.h"
#include "Failure.h"
#include "cuda/Gpu.h"
#include "nccl/Link.h"
#include "protocol/Protocol.h"

#include <string>
#include <vector>

struct shardq_comm;

namespace shardq {

/// Zeroed pages, committed when touched.
class PrivateMemory {
public:
  explicit PrivateMemory(uint64_t bytes);
  PrivateMemory(PrivateMemory &&other) noexcept;
  PrivateMemory &operator=(PrivateMemory &&) = delete;
  ~PrivateMemory();

  void *get() const { return address; }
  uint64_t size() const { return bytes; }

private:
  void *address;
  uint64_t bytes;
};

} // namespace shardq

/// The state behind the C handle. One thread at a time.
struct shardq_context {
public:
  shardq_context(shardq_comm &comm, int32_t slot);

  void *workspace(int32_t channel, int64_t rows, int64_t rowBytes);
  void *peer(void *local, int64_t peer);
  void signal(int32_t channel, int32_t operation,
              const shardq::protocol::Group &group, const int64_t *rows);
  void wait(int32_t channel, int32_t operation,
            const shardq::protocol::Group &group, const int64_t *rows);
  void expect(const char *what, int64_t found, int64_t expected);
  void beyondTable(int64_t block, int64_t request, int64_t requests,
                   int64_t width);
  void noPlace(int64_t block, int64_t request, int64_t entry);
  void beyondCache(int64_t slot, int64_t row, int64_t rows);
  void checkStarts(const int32_t *starts, int64_t entries, int64_t decodes,
                   int64_t rows);

  // In cuda/Calls.cpp: calls of code for GPUs.
  void begin(void *stream);
  shardq_status end();
  void *device();
  void *allocate(int64_t bytes);
  void release(void *memory);
  void launch(const shardq_gpu_image *image, int32_t kernel, int64_t blocks,
              void *const *params);
  void tapValue(const shardq_tap_value &value);
  void beginAside(int32_t channel);
  void endAside();
  void joinAside();
  /// In nccl/Transfer.cpp.
  bool isCarried(int32_t channel);
  void transfer(int32_t channel, int32_t operation,
                const shardq::protocol::Group &group, const void *outbox,
                void *landing, int64_t rows, int64_t rowBytes);
  /// What is at `count`, on a GPU once the stream has come here; -1 after an
  /// error.
  int64_t readCount(const int64_t *count);

  shardq_comm &comm;
  const int32_t slot;
  shardq_tap_callback tap = nullptr;
  void *tapUser = nullptr;
  shardq_launch_callback beforeLaunch = nullptr;
  void *beforeLaunchUser = nullptr;
  // Why the last call was refused; no error of the communicator.
  shardq_status callStatus = SHARDQ_OK;
  std::string callError;

private:
  bool checkChannel(int32_t channel);
  bool checkCall(int32_t channel, int32_t operation,
                 const shardq::protocol::Group &group, const int64_t *rows);
  bool awaitGroup(int32_t channel, int32_t operation,
                  const shardq::protocol::Group &group, const int64_t *rows);
  /// Of this rank, which nobody else caused.
  shardq::Failure makeFailure(shardq_status status, shardq::Misuse kind,
                              int64_t found, int64_t expected = -1) const;
  void misuse(shardq::Misuse kind, int64_t found, int64_t expected = -1,
              int64_t operation = -1);
  void wrongStep(shardq::Misuse kind, int64_t request, int64_t found,
                 int64_t expected, std::string text = {});
  void signalFaulty(const shardq::protocol::Exchange &exchange,
                    const int64_t *rows);
  void stall();
  char *inbox(int32_t channel, uint64_t epoch) const;
  void poison(int32_t channel);
  void *spare(uint64_t bytes);
  bool refusesHostCalls();
  bool mayCall(bool needsGpu);
  bool isCapturing();
  void joinSide();
  bool grow(uint64_t bytes);
  const shardq::cuda::LoadedImage *findImage(const shardq_gpu_image *image);
  void driverFailed(shardq::DriverCall call, shardq::cuda::Result result,
                    std::string detail = {});
  void ncclFailed(const char *call, shardq::nccl::Result result);
  bool enqueueParcels(const std::vector<shardq::nccl::Parcel> &parcels);
  bool awaitStream();
  bool carry(int32_t channel, int32_t operation,
             const shardq::protocol::Group &group, const void *outbox,
             void *landing, int64_t rows, int64_t rowBytes);

  // Last epoch that this rank signalled, by channel.
  std::vector<uint64_t> epochs;
  // Last epoch that a transfer has moved, by channel.
  std::vector<uint64_t> transferred;
  // Inboxes of steps that the plan does not hold, so that code which goes on
  // after the error stays in memory of its own.
  std::vector<shardq::PrivateMemory> spares;

  // The call of code for GPUs that is under way.
  bool begun = false;
  shardq::cuda::Stream stream = nullptr;
  shardq::cuda::ContextHandle before = nullptr; // the caller's, if another
  bool isAside = false;                         // what is launched now
  bool isForked = false; // `stream` is to wait for the side stream
  // Whether the next kernel of that stream waits for more than the one in
  // front of it.
  bool waits = false, waitsAside = false;
  shardq::Arena arena;
  std::vector<shardq::PrivateMemory> hostChunks;         // of the arena
  std::vector<const shardq::cuda::LoadedImage *> images; // used before
};

#endif // SHARDQ_RUNTIME_HOST_CONTEXT_H
