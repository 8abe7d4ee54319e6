//===- Rendezvous.h - Ranks meet, compare and map each other ----*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_RENDEZVOUS_H
#define SHARDQ_RUNTIME_HOST_RENDEZVOUS_H

#include "Bootstrap.h"
#include "Mesh.h"

namespace shardq {

namespace cuda {
class Gpu;
} // namespace cuda
namespace nccl {
class Carrier;
} // namespace nccl

/// What a rank says about itself. Compared between all ranks; all of one size,
/// whatever the versions, up to and including `protocol`.
struct Hello {
  uint64_t magic;
  uint32_t abi;
  uint32_t protocol;
  int32_t rank;
  int32_t world;
  uint64_t planHash;
  uint64_t shapeHash;
  char host[64];
  uint64_t network; // abstract sockets reach only within one of these
  char group[64];   // what the caller calls the host; empty if nothing
  Nonce nonce;
  int32_t memory;
  int32_t transport;
  int32_t device; // ordinal in its process; -1 where buffers are on the host
  int32_t deviceArch;
  uint8_t deviceUuid[16]; // ranks may share a device
  uint64_t deviceHeapBytes;
  int32_t status; // why this rank cannot take part
  char text[228];
};

/// What a rank found; all ranks take the first bad one as theirs.
struct Report {
  int32_t status;
  int32_t canFallBack; // only direct access is in question
  char text[248];
};

/// What a rendezvous gives.
struct Membership {
  Heaps heaps;
  std::vector<Descriptor> sockets; // empty when ranks are threads
  bool isRemote = false; // heaps are copies, and sockets carry the changes
  /// Null where all goes straight into peers' memory.
  std::unique_ptr<nccl::Carrier> carrier;
  /// By channel, whether NCCL carries the rows.
  std::vector<char> carried;
  /// How rows travel, and why so; the same on all ranks.
  std::string transport;
  Membership();
  ~Membership();
};

/// What differs between ranks on cores and ranks on GPUs.
struct Placement {
  int32_t memory = SHARDQ_MEMORY_HOST;
  int32_t transport = SHARDQ_TRANSPORT_AUTO;
  cuda::Gpu *gpu = nullptr;   // null for host memory, and after a local failure
  const char *host = nullptr; // the caller's name for it
};

/// Meets the other ranks. `local` is a failure that this rank brings along: it
/// still comes, so that the others fail with its reason at once.
Outcome meet(shardq_bootstrap &bootstrap, int32_t world, const Plan &plan,
             const Outcome &local, const Placement &placement,
             const Deadline &deadline, Membership &membership);

/// First disagreement between the ranks, naming both.
Outcome compare(const std::vector<Hello> &hellos);

/// Writes a token into every peer's heap; then, once all ranks have, checks
/// that the peers' tokens are here.
void writeTokens(const Heaps &heaps, int32_t rank,
                 const std::vector<Nonce> &nonces);
Outcome checkTokens(const Heaps &heaps, int32_t rank,
                    const std::vector<Nonce> &nonces);

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_RENDEZVOUS_H
