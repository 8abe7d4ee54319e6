//===- Arena.h - Temporary memory of a slot ---------------------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_ARENA_H
#define SHARDQ_RUNTIME_HOST_ARENA_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardq {

/// First fit over chunks that others provide. What it returns depends only on
/// the chunks and on the order of calls since the reset. Addresses are not
/// looked at: they may be those of a device.
class Arena {
public:
  static constexpr uint64_t kAlignment = 256;
  // Far above any machine, and small enough to round up.
  static constexpr uint64_t kMaxBytes = uint64_t(1) << 46;

  /// Adds a chunk whose start is aligned.
  void add(void *base, uint64_t bytes);

  /// Null if there is no room.
  void *allocate(uint64_t bytes);

  /// Ignores what it has not handed out.
  void free(void *address);

  /// Everything is free.
  void reset();

  /// Bytes of all chunks.
  uint64_t capacity() const;

  /// Bytes that a block of that size takes.
  static uint64_t rounded(uint64_t bytes) {
    return (bytes ? bytes + kAlignment - 1 : kAlignment) / kAlignment *
           kAlignment;
  }

private:
  /// Blocks are in the order of chunks and addresses, without gaps in a chunk.
  struct Block {
    char *base;
    uint64_t bytes;
    bool used;
    bool first; // of its chunk
  };
  std::vector<Block> blocks;
};

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_ARENA_H
