//===- Failure.h - The record of a group's first error ----------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_FAILURE_H
#define SHARDQ_RUNTIME_HOST_FAILURE_H

#include "Plan.h"

namespace shardq {

/// What a call was refused for. Numbers rather than text, so that the record
/// has a fixed size and crosses to other ranks.
enum class Misuse : int64_t {
  None,
  Channel,
  Group,
  Rows,
  Peer,
  WaitBeforeSignal,
};

/// An error in numbers: 64-bit words only, copied word by word between heaps.
struct Failure {
  int64_t status = SHARDQ_OK;
  int64_t reporter = -1;
  int64_t culprit = -1;
  int64_t slot = -1;
  int64_t channel = -1;
  int64_t operation = -1;
  int64_t epoch = -1;
  int64_t lastSeen = -1;
  int64_t expected = -1;
  int64_t found = -1;
  int64_t waitedMs = -1;
  /// Rank that the reporter itself waited for, when the culprit is behind it.
  int64_t neighbour = -1;
  /// 1: the culprit did signal, but its flag did not arrive.
  int64_t lost = 0;
  int64_t misuse = 0;

  static constexpr size_t kWords = 14;
};
static_assert(sizeof(Failure) == Failure::kWords * sizeof(int64_t));

/// A heap's abort word: any rank may post the first failure there.
struct alignas(64) AbortRecord {
  uint64_t claimed;
  uint64_t ready;
  int64_t words[Failure::kWords];
};

/// Posts `failure` unless another rank was first.
void post(AbortRecord &record, const Failure &failure);

/// Reads a posted failure; false if there is none.
bool read(const AbortRecord &record, Failure &failure);

/// The message of a failure; equal on all ranks.
std::string describe(const Failure &failure, const Plan &plan);

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_FAILURE_H
