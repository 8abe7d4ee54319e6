//===- Bootstrap.h - How ranks find each other ------------------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_BOOTSTRAP_H
#define SHARDQ_RUNTIME_HOST_BOOTSTRAP_H

#include "Heap.h"

#include <functional>
#include <memory>
#include <string_view>

/// The interface behind the C handle. All ranks call the same functions in the
/// same order; a provider returns SHARDQ_ABSENT, naming the rank, when one does
/// not come in time.
struct shardq_bootstrap {
  shardq_bootstrap(int32_t rank, int32_t world) : rank(rank), world(world) {}
  virtual ~shardq_bootstrap() = default;

  /// `all` receives `world` blocks of `bytes`, in the order of ranks.
  virtual shardq::Outcome allgather(const void *mine, void *all, size_t bytes,
                                    const shardq::Deadline &deadline) = 0;

  /// Returns once all ranks are here; SHARDQ_MISMATCH where one came with
  /// another tag. Gathers the tags, where a provider has no way of its own.
  virtual shardq::Outcome barrier(std::string_view tag,
                                  const shardq::Deadline &deadline);

  /// Memory of a new communicator for ranks that are threads of this process;
  /// the same for all of them. Null, with success, for ranks of their own.
  virtual shardq::Outcome sharedSpace(uint64_t stride,
                                      std::shared_ptr<shardq::HeapSpace> &) {
    (void)stride;
    return {};
  }
  virtual bool ranksAreThreads() const { return false; }

  /// Any other object that ranks of one process share, made by the first that
  /// asks. All ask for the same kinds at the same step.
  using Make = std::function<shardq::Outcome(std::shared_ptr<void> &)>;
  virtual shardq::Outcome sharedObject(const char *kind, const Make &make,
                                       std::shared_ptr<void> &object) {
    (void)kind;
    return make(object);
  }

  const int32_t rank;
  const int32_t world;
};

namespace shardq {

inline constexpr int32_t kMaxWorld = 1024;

/// Whether `rank` of `world` makes sense.
inline bool isRankOf(int32_t rank, int32_t world) {
  return world >= 1 && world <= kMaxWorld && rank >= 0 && rank < world;
}

/// Number of a barrier's tag, for providers that compare what ranks send.
uint64_t tagNumber(std::string_view tag);

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_BOOTSTRAP_H
