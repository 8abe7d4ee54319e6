//===- PushKernels.h - What host and kernels agree on -----------*- C++ -*-===//

#ifndef SHARDQ_BENCHMARK_PUSH_PUSHKERNELS_H
#define SHARDQ_BENCHMARK_PUSH_PUSHKERNELS_H

#include <stdint.h>

namespace shardq {

/// A held stream goes on by itself after this.
inline constexpr uint64_t kHoldNs = 5'000'000'000;

inline constexpr uint32_t kThreads = 256; // of a block that stores
inline constexpr uint32_t kPieces = 9;    // of 16 bytes a thread

inline constexpr uint32_t kStages = 4; // of a block that copies in bulk
inline constexpr uint32_t kStageBytes = 18432;
inline constexpr uint32_t kBulkShared = 128 + kStages * kStageBytes;

/// The kernels as PTX.
extern const char kPushPtx[];

} // namespace shardq

#endif // SHARDQ_BENCHMARK_PUSH_PUSHKERNELS_H
