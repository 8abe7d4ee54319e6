//===- Mesh.h - Control sockets between rank processes ----------*- C++ -*-===//
//
// One connected SEQPACKET socket per pair of ranks, under an abstract name that
// nobody can guess. It carries the heaps' descriptors during the rendezvous,
// and then nothing: its closing tells that a peer's process ended.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_HOST_MESH_H
#define SHARDQ_RUNTIME_HOST_MESH_H

#include "Support.h"

#include <array>
#include <vector>

namespace shardq {

/// Names a rank's listener and proves who connects to it.
using Nonce = std::array<uint8_t, 16>;

Outcome makeNonce(Nonce &nonce);

/// Listens under the name of `nonce`.
Outcome listenFor(const Nonce &nonce, int32_t world, Descriptor &listener);

/// Descriptors that a rank offers to its peers, at most kMaxOffered; all offer
/// equally many.
inline constexpr size_t kMaxOffered = 2;
using Offer = std::vector<Descriptor>;

/// Connects to all other ranks but those `elsewhere`, by rank, and swaps
/// descriptors with them. `nonces` are those of all ranks. Entries of this rank
/// and of those elsewhere stay empty in both results.
Outcome connectMesh(int32_t rank, const std::vector<Nonce> &nonces,
                    const std::vector<char> &elsewhere,
                    const Descriptor &listener, const std::vector<int> &offer,
                    const Deadline &deadline, std::vector<Descriptor> &sockets,
                    std::vector<Offer> &theirs);

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_MESH_H
