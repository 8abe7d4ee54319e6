//===- ProcessFaultTest.cpp - Every fault, every survivor -----------------===//

#include "Ranks.h"

#include <gtest/gtest.h>

using namespace shardq::test;

namespace {

struct FaultCase {
  const char *action;
  shardq_status status;
  bool victimSurvives;
};

class ProcessFaults
    : public testing::TestWithParam<std::tuple<FaultCase, int32_t>> {};

std::string
caseName(const testing::TestParamInfo<std::tuple<FaultCase, int32_t>> &info) {
  std::string name = std::get<0>(info.param).action;
  for (char &letter : name)
    if (letter == '-')
      letter = '_';
  return name + "_" + std::to_string(std::get<1>(info.param));
}

} // namespace

TEST_P(ProcessFaults, EverySurvivorNamesTheRootRank) {
  auto [fault, world] = GetParam();
  int32_t victim = world - 1;
  TestPlan plan(world, 4);
  std::string text = "rank=" + std::to_string(victim) +
                     ",operation=1,epoch=3,action=" + fault.action;
  RankOptions options;
  options.deadlineMs = shortDeadlineMs();
  options.fault = text.c_str();
  auto results = runProcesses(
      world, plan.plan, options, [&](shardq_comm *comm, RankResult &result) {
        shardq_context *context = shardq_comm_context(comm, 0);
        result.correct = runLayers(context, plan, world, 8, 11);
        // Later exchanges return at once.
        runLayers(context, plan, world, 1000, 11);
      });
  for (int32_t rank = 0; rank != world; ++rank) {
    const RankResult &result = results[static_cast<size_t>(rank)];
    if (rank == victim && !fault.victimSurvives) {
      EXPECT_FALSE(result.ran);
      continue;
    }
    EXPECT_TRUE(result.ran) << rank;
    EXPECT_TRUE(result.correct) << rank;
    EXPECT_EQ(result.status, fault.status) << result.message;
    EXPECT_EQ(result.error.culprit, victim) << result.message;
    EXPECT_LT(result.elapsedMs, options.deadlineMs + 2000) << result.message;
    std::string message = result.message;
    EXPECT_NE(message.find("rank " + std::to_string(victim)), std::string::npos)
        << message;
    if (fault.status == SHARDQ_DEADLINE) {
      EXPECT_EQ(result.error.operation, 1) << message;
      EXPECT_EQ(result.error.epoch, 3) << message;
      EXPECT_EQ(result.error.last_seen, 2) << message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ProcessFaults,
    testing::Combine(
        testing::Values(FaultCase{"kill", SHARDQ_PEER_DEAD, false},
                        FaultCase{"stall", SHARDQ_DEADLINE, true},
                        FaultCase{"drop-flag", SHARDQ_DEADLINE, true},
                        FaultCase{"wrong-rows", SHARDQ_WRONG_ROWS, true},
                        FaultCase{"wrong-operation", SHARDQ_WRONG_OPERATION,
                                  true}),
        testing::Values(2, 3, 4, 8)),
    caseName);

TEST(ProcessFaults, RootBehindAChainOfSubgroups) {
  // Groups {0,1}, {1,2}, {2,3} with a channel each; 3 stalls in the last. 0 and
  // 1 only see their neighbours late, and yet must name 3.
  TestPlan plan(4, 4, 1, {1, 1, 1});
  RankOptions options;
  options.deadlineMs = shortDeadlineMs();
  options.fault = "rank=3,operation=1,action=stall";
  auto results = runProcesses(
      4, plan.plan, options, [&](shardq_comm *comm, RankResult &result) {
        shardq_context *context = shardq_comm_context(comm, 0);
        int64_t rank = shardq_rt_rank(context);
        const int64_t rows[] = {1, 1};
        auto pair = [&](int64_t first) {
          int32_t channel = static_cast<int32_t>(first);
          shardq_rt_signal(context, channel, 1, first, 1, 2, rows);
          shardq_rt_wait(context, channel, 1, first, 1, 2, rows);
        };
        // The pair with the higher neighbour comes first: 0 waits for 1, which
        // waits for 2, which waits for 3.
        for (int64_t first = rank; first >= rank - 1; --first)
          if (first >= 0 && first < 3)
            pair(first);
        result.correct = true;
      });
  for (const RankResult &result : results) {
    EXPECT_EQ(result.status, SHARDQ_DEADLINE) << result.message;
    EXPECT_EQ(result.error.culprit, 3) << result.message;
    EXPECT_EQ(result.error.channel, 2) << result.message;
  }
}
