//===- Plan.h - The compiler's plan and the heap made from it ---*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_PLAN_H
#define SHARDQ_RUNTIME_HOST_PLAN_H

#include "Support.h"

#include <string>
#include <vector>

namespace shardq {

/// A checked copy of a shardq_plan.
struct Plan {
  struct Channel {
    std::string name;
    uint64_t offset;
    uint64_t bytes;
    uint64_t generations;
    bool asksForNccl;
    /// Ranks of an exchange: `groupSize` of them, `groupStride` apart; 0 where
    /// they may be any.
    int64_t groupStride, groupSize;

    /// Whether each rank exchanges with ranks of its own host only. `hosts` by
    /// rank, equal for ranks of one host.
    bool staysOnHosts(const std::vector<int32_t> &hosts) const;
  };

  uint64_t hash = 0;
  int32_t slots = 0;
  uint64_t slotBytes = 0;
  std::vector<Channel> channels;
  std::vector<std::string> operations;
  int32_t ranks = 0; // of the program; 0 where nobody says
  /// Whether all channels do.
  bool asksForNccl = false;

  /// Copies `source`, or says what is wrong with it.
  static Outcome read(const shardq_plan *source, Plan &plan);

  /// Whether a world of that many ranks can run it.
  Outcome checkWorld(int32_t world) const;

  /// Which exchanges NCCL is to carry, for messages: "NCCL", or "NCCL for
  /// 'out'"; empty if none.
  std::string describeAsked() const;

  /// Names of the channels that are marked, for messages: "'q', 'out' and 2
  /// more"; empty if none is.
  std::string describe(const std::vector<char> &marked) const;

  /// Hash of the sizes: two plans whose hash was given equal by mistake must
  /// not make ranks address each other's heaps differently.
  uint64_t shapeHash() const;

  /// Name of an operation for messages, whether the plan knows it or not.
  std::string operationName(int64_t operation) const;
  std::string channelName(int64_t channel) const;
};

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_PLAN_H
