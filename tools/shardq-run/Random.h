//===- Random.h - Seeded random values --------------------------*- C++ -*-===//

#ifndef SHARDQ_RUN_RANDOM_H
#define SHARDQ_RUN_RANDOM_H

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mlir::shardq::run {

/// The splitmix64 sequence: the same values on every machine and library,
/// which the distributions of <random> do not promise.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}

  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// From 0 to `count` - 1.
  int64_t below(int64_t count) {
    return count > 0 ? int64_t(next() % uint64_t(count)) : 0;
  }

  /// Mean 0, variance 1, within +-3.5: the sum of four uniform values. One
  /// draw per value, since caches have millions of them.
  double normal() {
    uint64_t bits = next();
    uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) +
                   (bits >> 32 & 0xffff) + (bits >> 48);
    return (double(sum) / 65536 - 2) * 1.7320508075688772;
  }

  template <typename T> void shuffle(std::vector<T> &values) {
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[below(i)]);
  }

private:
  uint64_t state;
};

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_RANDOM_H
