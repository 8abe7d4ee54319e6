//===- Carrier.h - NCCL between the ranks of a communicator -----*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_NCCL_CARRIER_H
#define SHARDQ_RUNTIME_NCCL_CARRIER_H

#include "Link.h"
#include "cuda/Gpu.h"

#include <deque>

namespace shardq::nccl {

/// A link for each slot: slots share nothing, and what they enqueue has no
/// order that all ranks would agree on.
class Carrier {
public:
  Carrier(const Library &library, cuda::Gpu &gpu, int32_t rank, int32_t world,
          int32_t slots);
  Carrier(const Carrier &) = delete;

  /// Makes the links. `ids` by slot, the same on all ranks.
  Outcome open(const std::vector<UniqueId> &ids, const Deadline &deadline);

  /// Sends a word to each rank through each link and looks at what came:
  /// afterwards all pairs are connected, so that no exchange has to do that,
  /// which a captured one could not. `given` by receiver, `expected` by sender.
  Outcome check(const std::vector<uint64_t> &given,
                const std::vector<uint64_t> &expected,
                const Deadline &deadline);

  Link &link(int32_t slot) { return links[static_cast<size_t>(slot)]; }
  int getVersion() const { return library.version; }

  void finish(const Deadline &deadline);
  void abort();

private:
  Outcome await(Link &link, const char *call, Result result,
                const Deadline &deadline);

  const Library &library;
  cuda::Gpu &gpu;
  const int32_t rank;
  const int32_t world;
  std::deque<Link> links; // have addresses that others keep
};

/// "2.28.9".
std::string versionText(int version);

} // namespace shardq::nccl

#endif // SHARDQ_RUNTIME_NCCL_CARRIER_H
