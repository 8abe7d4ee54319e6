//===- Watch.h - Deadlines of exchanges that NCCL carries -------*- C++ -*-===//
//
// Kernels of NCCL know no deadline, and a captured exchange has no host code
// that could. So the watchdog of each rank looks at how far its streams are,
// tells the others through the control heaps, in the flags and records of CPU
// ranks, and ends what takes too long. Where other exchanges are direct, their
// kernels see to themselves; the search for a laggard then goes through the
// heaps on the GPUs, where the records of both kinds are.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_NCCL_WATCH_H
#define SHARDQ_RUNTIME_NCCL_WATCH_H

#include "host/Support.h"
#include "protocol/Failure.h"

#include <mutex>
#include <optional>
#include <vector>

struct shardq_comm;

namespace shardq::nccl {

class Watch {
public:
  explicit Watch(shardq_comm &comm);

  /// One look; the watchdog's thread.
  void tick();
  /// Tells the others how far this rank is.
  void publish();

private:
  struct Channel {
    uint64_t published = 0; // last epoch that the others know of
    uint64_t waitedFor = 0; // epoch that `since` is about
    std::optional<Deadline> end;
    std::optional<Deadline> endWhereAllCame;
    std::optional<Deadline> tell;
  };

  /// An exchange that has begun, and has not been waited for.
  struct Open {
    protocol::Exchange exchange;
    int64_t late;   // the first that has not come; where all have, the next one
    int64_t left;   // one that has not come and never will, or -1
    bool isMissing; // whether any has not come
  };

  void publishAll();
  void publish(int32_t slot, int32_t channel);
  void look(int32_t slot);
  std::optional<Open> findOpen(int32_t slot, int32_t channel);
  std::optional<int32_t> findDirectWait(int32_t slot);
  void tellDirectWait(int32_t slot, std::optional<int32_t> channel);
  void look(const Open &open);
  void forget(int32_t slot, int32_t channel);
  void tellTarget(const protocol::Exchange &exchange, int64_t target);
  void tellNothing(int32_t slot, int32_t channel);
  void fail(shardq_status status, const protocol::Exchange &exchange,
            int64_t culprit, bool isMissing, int64_t waitedMs);
  Channel &at(int32_t slot, int32_t channel);

  shardq_comm &comm;
  std::mutex mutex;              // of all below
  std::vector<Channel> channels; // [slots][channels]
  std::vector<int64_t> noRows;
};

} // namespace shardq::nccl

#endif // SHARDQ_RUNTIME_NCCL_WATCH_H
