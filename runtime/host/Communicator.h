//===- Communicator.h - Membership in a group of ranks ----------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_COMMUNICATOR_H
#define SHARDQ_RUNTIME_HOST_COMMUNICATOR_H

#include "Context.h"
#include "Fault.h"
#include "Remote.h"
#include "Rendezvous.h"
#include "Watchdog.h"
#include "cuda/Gpu.h"
#include "nccl/Carrier.h"
#include "nccl/Watch.h"

#include <atomic>
#include <deque>
#include <mutex>

/// The state behind the C handle.
struct shardq_comm {
public:
  /// `given` may be shorter or longer than this library's options.
  static shardq::Outcome create(const shardq_comm_options &given,
                                std::unique_ptr<shardq_comm> &comm);
  ~shardq_comm();

  /// Records the group's first error and tells all ranks. `text` is what only
  /// this rank knows. Any thread.
  void fail(const shardq::Failure &found, std::string text = {});

  /// Whether this rank, a kernel of it or any other rank has failed. Cheap. Any
  /// thread.
  bool failed() {
    return status.load(std::memory_order_acquire) != SHARDQ_OK ||
           adoptRemote() || adoptDevice();
  }

  /// The first error. Any thread.
  shardq::Failure firstFailure();
  /// Its message.
  std::string firstMessage();

  /// Whether NCCL carries the rows of a channel that the plan has.
  bool carries(int32_t channel) const {
    return carrier && carried[static_cast<size_t>(channel)];
  }

  shardq_context *context(int32_t slot);

  const int32_t rank;
  const int32_t world;
  const shardq::Plan plan;
  const int64_t deadlineMs;
  const shardq::Fault fault; // none unless it is this rank's
  const bool ranksAreThreads;
  const shardq::Heaps heaps;
  /// Null where buffers are on the host.
  std::unique_ptr<shardq::cuda::Gpu> gpu;
  /// Null where ranks write into each other's memory on all channels.
  std::unique_ptr<shardq::nccl::Carrier> carrier;
  /// Null where heaps are shared, and not copies.
  std::unique_ptr<shardq::Remote> remote;
  /// How rows travel, and why so.
  const std::string transport;
  /// By channel, whether NCCL carries the rows.
  const std::vector<char> carried;

private:
  shardq_comm(const shardq_comm_options &options, shardq::Plan plan,
              int64_t deadlineMs, const shardq::Fault &fault,
              bool ranksAreThreads, shardq::Membership &membership,
              std::unique_ptr<shardq::cuda::Gpu> gpu);

  bool adoptRemote();
  bool adoptDevice();
  void tick();
  void peerClosed(int32_t peer);
  void ringAll();

  std::atomic<shardq_status> status = SHARDQ_OK;
  std::mutex mutex;
  shardq::Failure first;    // guarded by mutex
  std::string detail;       // guarded by mutex
  bool toldKernels = false; // the watchdog's

  // A deque, since contexts have addresses that others keep.
  std::deque<shardq_context> contexts;
  std::optional<shardq::nccl::Watch> watch;
  shardq::Watchdog watchdog;
};

#endif // SHARDQ_RUNTIME_HOST_COMMUNICATOR_H
