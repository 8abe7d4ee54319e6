//===- Bootstrap.cpp - What providers have in common ----------------------===//

#include "Bootstrap.h"

#include <vector>

using namespace shardq;

uint64_t shardq::tagNumber(std::string_view tag) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char letter : tag)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return hash;
}

Outcome shardq_bootstrap::barrier(std::string_view tag,
                                  const Deadline &deadline) {
  uint64_t mine = tagNumber(tag);
  std::vector<uint64_t> all(static_cast<size_t>(world));
  if (Outcome outcome = allgather(&mine, all.data(), sizeof(mine), deadline);
      outcome.failed())
    return outcome;
  for (int32_t peer = 0; peer != world; ++peer)
    if (all[static_cast<size_t>(peer)] != mine)
      return failure(SHARDQ_MISMATCH,
                     "rank %d is at another barrier than rank %d", peer, rank);
  return {};
}
