//===- Failure.h - The record of a group's first error ----------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_FAILURE_H
#define SHARDQ_RUNTIME_HOST_FAILURE_H

#include "Plan.h"
#include "protocol/Failure.h"

namespace shardq {

/// The driver's calls that a failure may be about.
enum class DriverCall : int64_t {
  Allocate,
  Load,
  Launch,
  Synchronize,
  Copy,
  Order // of two streams
};

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

/// The text that travels with the failure: what of it fits, without control
/// characters, since it may be another rank's.
void setText(Failure &failure, const std::string &text);
std::string getText(const Failure &failure);

/// The message of a failure, without that text; equal on all ranks.
std::string describe(const Failure &failure, const Plan &plan);

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_FAILURE_H
