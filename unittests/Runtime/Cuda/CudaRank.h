//===- CudaRank.h - Ranks on GPUs for tests ---------------------*- C++ -*-===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_CUDA_CUDARANK_H
#define SHARDQ_UNITTESTS_RUNTIME_CUDA_CUDARANK_H

#include "Ranks.h"
#include "TestKernels.h"
#include "host/Communicator.h"

namespace shardq::test {

/// The image of TestKernels.cpp.
extern const shardq_gpu_image kTestImage;

/// Devices of the driver; 0 without one, and then `why` says why.
int countCudaDevices(std::string &why);

/// For ranks that are threads: all of them pass together. A device on which one
/// rank's kernel waits may not load another's kernels, so ranks of one context
/// prepare everything first.
class ThreadRoom {
public:
  explicit ThreadRoom(int32_t ranks);
  ~ThreadRoom();
  ThreadRoom(const ThreadRoom &) = delete;
  /// Waits for the others, where ranks are threads.
  static void meet();
};

/// A captured program.
class CapturedGraph {
public:
  CapturedGraph() = default;
  CapturedGraph(CapturedGraph &&other) noexcept
      : executable(std::exchange(other.executable, nullptr)) {}
  CapturedGraph &operator=(CapturedGraph &&) = delete;
  ~CapturedGraph();

  bool launch(cuda::Stream stream) const;
  explicit operator bool() const { return executable; }

private:
  friend class CudaRank;
  void *executable = nullptr;
};

/// One slot of a rank: its stream, and the program of the tests, which pushes
/// rows that depend on a round counter in device memory and checks what
/// arrives.
class CudaRank {
public:
  /// All ranks make equally many.
  CudaRank(shardq_comm *comm, const TestPlan &plan, int32_t slot = 0);
  ~CudaRank();
  CudaRank(const CudaRank &) = delete;

  /// Enqueues one exchange of the channel's group, which is all ranks where the
  /// plan does not say. Row counts and contents are made on
  /// the device. Signal and wait of every other one are one kernel.
  void exchange(int32_t channel, int32_t operation);
  void exchange(int32_t channel) { exchange(channel, channel); }
  /// Enqueues an exchange on `inner` between signal and wait of one on `outer`.
  void overlap(int32_t outer, int32_t inner);
  /// The same, with push and signal of `outer` aside.
  void aside(int32_t outer, int32_t inner);
  /// An exchange without rows among the ranks `first` and `first` + `stride`.
  void meet(int32_t channel, int64_t first, int64_t stride = 1);
  /// A q exchange and an out exchange.
  void layer() {
    exchange(0);
    exchange(1);
  }

  /// Enqueues one kernel in a call of its own.
  void launch(TestKernel kernel, int64_t blocks,
              std::vector<void *> const &params);

  /// What `body` enqueues, captured.
  CapturedGraph capture(const std::function<void()> &body);

  /// Waits for everything; false if the driver reports an error.
  bool synchronize();

  /// After synchronize: words that were not what the peers should have pushed.
  uint64_t countWrong();
  /// Bytes of the channel's current inbox that are not poison.
  uint64_t countClean(int32_t channel);
  /// Rounds so far, as the device counts them.
  uint64_t countRounds();

  shardq_comm *comm;
  shardq_context *context;
  const cuda::Driver &driver;
  cuda::Stream stream = nullptr;

private:
  /// An exchange that has signalled.
  struct Started {
    int32_t channel, operation;
    bool waitsAtOnce;
    void *device;
    void *sent = nullptr, *expected = nullptr;
    void *outbox = nullptr, *landing = nullptr; // where NCCL carries the rows
  };

  Started start(int32_t channel, int32_t operation, bool waitsAtOnce,
                bool isAside = false);
  protocol::Group groupOf(int32_t channel) const;
  void push(Started &started);
  void finish(Started started);
  uint64_t read(cuda::Address address);
  cuda::Address newWord();

  const TestPlan &plan;
  cuda::Current current;
  cuda::Function clean = nullptr;
  cuda::Address round = 0, wrong = 0, scratch = 0;
  cuda::Address noRows = 0; // of two ranks
  bool waitsAtOnce = true;  // the last exchange
};

} // namespace shardq::test

#endif // SHARDQ_UNITTESTS_RUNTIME_CUDA_CUDARANK_H
