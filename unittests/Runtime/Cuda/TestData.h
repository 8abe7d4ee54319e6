//===- TestData.h - What the tests' kernels exchange ------------*- C++ -*-===//
//
// Row counts and row contents as functions of their place, the same on the host
// and on the device.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTDATA_H
#define SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTDATA_H

#include <stdint.h>

namespace shardq::test {

inline constexpr int64_t kRowWords = 4;
inline constexpr int64_t kRowBytes = kRowWords * 8;

inline uint64_t mixWord(uint64_t hash, uint64_t word) {
  hash += word + 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

/// Rows that `producer` pushes to `consumer`: ragged, often none.
inline int64_t rowsBetween(uint64_t round, int64_t producer, int64_t consumer,
                           int64_t maxRows) {
  uint64_t hash = mixWord(round, static_cast<uint64_t>(producer));
  if (hash % 4 == 0)
    return 0;
  hash = mixWord(hash, static_cast<uint64_t>(consumer));
  return static_cast<int64_t>(hash % static_cast<uint64_t>(maxRows + 1));
}

/// Word `word` of the block that `producer` pushes to `consumer`.
inline uint64_t wordBetween(uint64_t round, int64_t producer, int64_t consumer,
                            int64_t word) {
  uint64_t hash = mixWord(round, static_cast<uint64_t>(producer));
  hash = mixWord(hash, static_cast<uint64_t>(consumer));
  return mixWord(hash, static_cast<uint64_t>(word));
}

} // namespace shardq::test

#endif // SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTDATA_H
