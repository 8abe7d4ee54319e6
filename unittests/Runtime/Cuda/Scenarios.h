//===- Scenarios.h - Programs of ranks on GPUs ------------------*- C++ -*-===//
//
// By name, since a rank in a process of its own is another run of this program:
// a process that has used CUDA must not fork.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_CUDA_SCENARIOS_H
#define SHARDQ_UNITTESTS_RUNTIME_CUDA_SCENARIOS_H

#include "Ranks.h"

namespace shardq::test {

struct Scenario {
  const char *name;
  std::vector<int32_t> generations;
  int32_t slots;
  int64_t deadlineMs;
  const char *fault;
  void (*body)(shardq_comm *comm, const TestPlan &plan, RankResult &result);
};

const Scenario *findScenario(const std::string &name);

/// Device of a rank: ranks are dealt over all devices, or, with the
/// environment's SHARDQ_TEST_ONE_DEVICE, all on the first.
int deviceOf(int32_t rank);

/// A transport for a scenario: the runtime's own choice, and a channel that
/// asks for NCCL.
inline int32_t carrying(int32_t channel) {
  return SHARDQ_TRANSPORT_MIXED + channel;
}

/// Another: the runtime's own choice, and a channel whose exchanges stay within
/// the hosts of SHARDQ_TEST_HOSTS.
inline int32_t stayingOnHosts(int32_t channel) { return 16 + channel; }

/// The rank that lags behind, or has the fault, where one does.
int32_t oddRank(int32_t world);

std::vector<RankResult> runOnThreads(const char *name, int32_t world,
                                     int32_t transport = SHARDQ_TRANSPORT_AUTO);
std::vector<RankResult>
runOnProcesses(const char *name, int32_t world,
               int32_t transport = SHARDQ_TRANSPORT_AUTO);

/// What such a process does: argv is "--rank scenario rank world directory
/// transport".
int rankMain(char **argv);

} // namespace shardq::test

#endif // SHARDQ_UNITTESTS_RUNTIME_CUDA_SCENARIOS_H
