//===- ProcessTest.cpp - Exchanges between forked ranks -------------------===//

#include "Ranks.h"

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <unistd.h>

using namespace shardq::test;

TEST(Processes, RaggedLayers) {
  uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (int32_t world : {1, 2, 3, 4, 8}) {
    TestPlan plan(world, 9);
    auto results = runProcesses(
        world, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
          result.correct = runLayers(shardq_comm_context(comm, 0), plan, world,
                                     isSanitized() ? 50 : 500, seed);
        });
    for (const RankResult &result : results) {
      EXPECT_EQ(result.status, SHARDQ_OK)
          << result.message << ", seed " << seed;
      EXPECT_TRUE(result.correct) << "seed " << seed;
    }
  }
}

TEST(Processes, LeavingIsNotDying) {
  // Rank 0 leaves first; the others go on without needing it.
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 2);
    auto results = runProcesses(
        world, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
          shardq_context *context = shardq_comm_context(comm, 0);
          result.correct = runLayers(context, plan, world, 3, 1);
          int64_t rank = shardq_rt_rank(context);
          if (rank == 0)
            return;
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          const int64_t rows[] = {1, 1, 1, 1, 1, 1, 1};
          shardq_rt_signal(context, 0, 0, 1, 1, world - 1, rows);
          shardq_rt_wait(context, 0, 0, 1, 1, world - 1, rows);
        });
    for (const RankResult &result : results)
      EXPECT_EQ(result.status, SHARDQ_OK) << result.message;
  }
}

TEST(Processes, RankThatLeavesEarly) {
  TestPlan plan(4, 2);
  auto results = runProcesses(
      4, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
        int64_t layers = shardq_comm_rank(comm) == 3 ? 1 : 2;
        result.correct =
            runLayers(shardq_comm_context(comm, 0), plan, 4, layers, 1);
      });
  for (int rank = 0; rank != 3; ++rank) {
    EXPECT_EQ(results[size_t(rank)].status, SHARDQ_PEER_LEFT);
    EXPECT_EQ(results[size_t(rank)].error.culprit, 3);
  }
}

TEST(Processes, DeathIsNoticedOutsideAWait) {
  TestPlan plan(3, 2);
  auto results = runProcesses(
      3, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
        if (shardq_comm_rank(comm) == 1)
          _exit(1);
        shardq_context *context = shardq_comm_context(comm, 0);
        for (int i = 0; i != 5000 && isOk(context); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        result.correct = true;
      });
  for (int rank : {0, 2}) {
    EXPECT_EQ(results[size_t(rank)].status, SHARDQ_PEER_DEAD);
    EXPECT_EQ(results[size_t(rank)].error.culprit, 1);
    EXPECT_LT(results[size_t(rank)].elapsedMs, 4000);
  }
}

TEST(Processes, KilledAtAnyMoment) {
  uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round != (isSanitized() ? 8 : 25); ++round) {
    int32_t world = 2 + round % 4;
    int32_t victim = static_cast<int32_t>(random() % uint64_t(world));
    auto moment = std::chrono::microseconds(random() % 10'000);
    TestPlan plan(world, 9);
    auto results = runProcesses(
        world, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
          if (shardq_comm_rank(comm) == victim)
            std::thread([&] {
              std::this_thread::sleep_for(moment);
              kill(getpid(), SIGKILL);
            }).detach();
          // Far more than anybody gets to.
          result.correct = runLayers(shardq_comm_context(comm, 0), plan, world,
                                     100'000'000, seed);
        });
    for (int32_t rank = 0; rank != world; ++rank) {
      if (rank == victim)
        continue;
      const RankResult &result = results[static_cast<size_t>(rank)];
      EXPECT_TRUE(result.correct) << "seed " << seed;
      EXPECT_EQ(result.status, SHARDQ_PEER_DEAD)
          << result.message << ", seed " << seed;
      EXPECT_EQ(result.error.culprit, victim) << "seed " << seed;
    }
  }
}

TEST(Processes, FaultFromTheEnvironment) {
  TestPlan plan(3, 4);
  RankOptions options;
  options.fault = nullptr;
  ASSERT_EQ(setenv("SHARDQ_FAULT", "rank=0,action=wrong-operation", 1), 0);
  auto results = runProcesses(
      3, plan.plan, options, [&](shardq_comm *comm, RankResult &result) {
        result.correct = runLayers(shardq_comm_context(comm, 0), plan, 3, 4, 1);
      });
  ASSERT_EQ(unsetenv("SHARDQ_FAULT"), 0);
  for (const RankResult &result : results) {
    EXPECT_EQ(result.status, SHARDQ_WRONG_OPERATION) << result.message;
    EXPECT_EQ(result.error.culprit, 0);
    EXPECT_EQ(result.error.epoch, 1);
  }
}

TEST(Processes, NewCommunicatorAfterAnError) {
  TestPlan plan(3, 2);
  RankOptions options;
  options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
    RankResult broken{};
    RankOptions first;
    first.fault = "rank=2,operation=0,epoch=2,action=wrong-rows";
    runRank(
        comm.bootstrap, rank, 3, plan.plan, first,
        [&](shardq_comm *member, RankResult &) {
          runLayers(shardq_comm_context(member, 0), plan, 3, 4, 1);
        },
        broken);
    if (broken.status != SHARDQ_WRONG_ROWS)
      _exit(1);
  };
  auto results = runProcesses(
      3, plan.plan, options, [&](shardq_comm *comm, RankResult &result) {
        result.correct = runLayers(shardq_comm_context(comm, 0), plan, 3, 4, 1);
      });
  for (const RankResult &result : results) {
    EXPECT_TRUE(result.correct);
    EXPECT_EQ(result.status, SHARDQ_OK) << result.message;
  }
}
