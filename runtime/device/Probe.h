//===- Probe.h - What ranks write to see whether it arrives -----*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_DEVICE_PROBE_H
#define SHARDQ_RUNTIME_DEVICE_PROBE_H

#include <stdint.h>

namespace shardq::device {

/// One writer's place in an owner's heap, written in every way that generated
/// programs move rows.
struct Probe {
  enum Way : uint32_t { Store, Copy, Copy2D, kWays };
  static constexpr uint32_t kWords = 64;

  uint64_t words[kWays][kWords];
};

/// Word `index` of what a writer with this token writes; never the same for two
/// ways, and hardly for two tokens.
inline uint64_t probeWord(uint64_t token, uint32_t way, uint32_t index) {
  return token + (uint64_t(way) * Probe::kWords + index) * 0x9e3779b97f4a7c15u;
}

} // namespace shardq::device

#endif // SHARDQ_RUNTIME_DEVICE_PROBE_H
