//===- CallbackBootstrap.cpp - Ranks of an embedding framework ------------===//

#include "Bootstrap.h"

#include <new>
#include <string>

using namespace shardq;

namespace {

class CallbackBootstrap : public shardq_bootstrap {
public:
  CallbackBootstrap(const shardq_bootstrap_callbacks &callbacks, int32_t rank,
                    int32_t world)
      : shardq_bootstrap(rank, world), callbacks(callbacks) {}

  Outcome allgather(const void *mine, void *all, size_t bytes,
                    const Deadline &deadline) override {
    return check("allgather", callbacks.allgather(callbacks.user, mine, all,
                                                  bytes, deadline.remaining()));
  }

  Outcome barrier(std::string_view tag, const Deadline &deadline) override {
    return check("barrier",
                 callbacks.barrier(callbacks.user, std::string(tag).c_str(),
                                   deadline.remaining()));
  }

private:
  Outcome check(const char *name, int32_t result) {
    if (result == 0)
      return {};
    return failure(SHARDQ_BOOTSTRAP,
                   "rank %d: the bootstrap's %s callback returned %d", rank,
                   name, result);
  }

  shardq_bootstrap_callbacks callbacks;
};

} // namespace

shardq_status
shardq_bootstrap_from_callbacks(const shardq_bootstrap_callbacks *callbacks,
                                int32_t rank, int32_t world,
                                shardq_bootstrap **out) {
  if (!out)
    return SHARDQ_INVALID;
  *out = nullptr;
  if (!callbacks || callbacks->struct_size < sizeof(*callbacks) ||
      !callbacks->allgather || !callbacks->barrier || !isRankOf(rank, world))
    return SHARDQ_INVALID;
  *out = new (std::nothrow) CallbackBootstrap(*callbacks, rank, world);
  return *out ? SHARDQ_OK : SHARDQ_SYSTEM;
}

void shardq_bootstrap_destroy(shardq_bootstrap *bootstrap) { delete bootstrap; }
