//===- Link.h - One NCCL communicator that does not block -------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_NCCL_LINK_H
#define SHARDQ_RUNTIME_NCCL_LINK_H

#include "Library.h"

#include <mutex>
#include <vector>

namespace shardq::nccl {

/// What goes to one peer and comes from it in a group; empty parts are left
/// out.
struct Parcel {
  int32_t peer;
  cuda::Address source;
  size_t sourceBytes;
  cuda::Address target;
  size_t targetBytes;
};

/// All members may be called by several threads: the one that exchanges, and
/// the watchdog that ends what hangs.
class Link {
public:
  explicit Link(const Library &library) : library(library) {}
  Link(const Link &) = delete;
  /// Aborts what finish has not ended.
  ~Link() { abort(); }

  /// Begins to make the communicator; done once `state` is kSuccess.
  Result open(int32_t rank, int32_t world, const UniqueId &id);

  /// kInProgress while an earlier call is under way; an error of this rank or
  /// of a peer; kAborted once there is no communicator.
  static constexpr Result kAborted = -1;
  Result state();

  /// Enqueues a group. Nothing else may be enqueued on the stream until
  /// `state` leaves kInProgress. Into a graph where the stream `isCaptured`.
  Result enqueue(const std::vector<Parcel> &parcels, cuda::Stream stream,
                 bool isCaptured);

  /// Ends it in peace where that is done within `deadline`, else aborts it:
  /// peers may be gone, and graphs that hold groups of it may still be there.
  void finish(const Deadline &deadline);

  /// Ends it and whatever kernels of it run. Does not wait for graphs.
  void abort();

  /// What NCCL says about a result.
  std::string describe(const char *call, Result result);

private:
  const Library &library;
  std::mutex mutex;
  // Guarded by mutex.
  Communicator communicator = nullptr;
  bool mayBeInGraphs = false;
};

} // namespace shardq::nccl

#endif // SHARDQ_RUNTIME_NCCL_LINK_H
