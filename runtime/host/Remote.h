//===- Remote.h - Control plane between hosts -------------------*- C++ -*-===//
//
// Ranks of one host tell each other through memory that all have mapped: abort
// words, "left" words, and how far each is. Ranks of several hosts have a copy
// of that memory each, and a TCP connection per pair that carries the changes.
// It is also how the death of a peer is noticed.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_HOST_REMOTE_H
#define SHARDQ_RUNTIME_HOST_REMOTE_H

#include "Heap.h"
#include "Mesh.h"

#include <mutex>

namespace shardq {

/// Where a rank can be reached, as its peers are told; the most likely first.
struct Reach {
  static constexpr size_t kMax = 6;
  struct Address {
    uint8_t bytes[16];
    uint8_t isV6;
  };
  uint16_t port; // of the host's byte order
  uint16_t count;
  Address addresses[kMax];
};

/// Listens on all of the host's addresses, or on the one that the environment's
/// SHARDQ_ADDRESS names.
Outcome listenRemote(int32_t world, Descriptor &listener, Reach &reach);

/// Connects to all other ranks, which prove to be ranks by their nonces.
Outcome connectRemote(int32_t rank, const std::vector<Nonce> &nonces,
                      const std::vector<Reach> &reaches,
                      const Descriptor &listener, const Deadline &deadline,
                      std::vector<Descriptor> &sockets);

/// Tells the other ranks, and takes in what they tell. Any thread may tell; one
/// receives.
class Remote {
public:
  /// The descriptors stay the caller's, and open.
  Remote(const Heaps &heaps, int32_t rank,
         const std::vector<Descriptor> &descriptors);

  void tellAbort(const Failure &failure);
  void tellLeft();
  void tellFlag(const protocol::Exchange &exchange);
  void tellProgress(const protocol::Exchange &exchange, int64_t target,
                    bool isWaiting);

  /// Takes in what `peer` has sent; false once its connection is closed.
  bool receive(int32_t peer);

private:
  struct Message;
  void tell(const Message &message, bool isUrgent);
  void apply(int32_t peer, const Message &message);

  const Heaps heaps;
  const int32_t rank;
  std::vector<int> sockets; // -1 for this rank
  std::mutex mutex;
  std::vector<char> isMute; // nothing more can be sent; guarded by mutex
  std::vector<std::vector<char>> unread;
};

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_REMOTE_H
