//===- ThreadTest.cpp - Exchanges between thread ranks --------------------===//
//
// Pushed rows are plain stores, ordered by nothing but the protocol: under
// ThreadSanitizer a missing edge is a reported race.
//
//===----------------------------------------------------------------------===//

#include "Ranks.h"

#include "host/Communicator.h"

#include <chrono>
#include <gtest/gtest.h>
#include <random>
#include <thread>

using namespace shardq::test;

namespace {

void expectCorrect(const std::vector<RankResult> &results, uint64_t seed) {
  for (size_t rank = 0; rank != results.size(); ++rank) {
    EXPECT_EQ(results[rank].status, SHARDQ_OK)
        << results[rank].message << ", seed " << seed;
    EXPECT_TRUE(results[rank].correct) << "rank " << rank << ", seed " << seed;
  }
}

uint64_t freshSeed() {
  uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

} // namespace

TEST(Threads, RaggedSizesAndWorlds) {
  uint64_t seed = freshSeed();
  for (int32_t world : {1, 2, 3, 4, 5, 8, 13, 16, 32, 64}) {
    TestPlan plan(world, world > 16 ? 3 : 9);
    int64_t layers = (isSanitized() ? 60 : 200) / world + 3;
    expectCorrect(runThreads(world, plan.plan, {},
                             [&](shardq_comm *comm, RankResult &result) {
                               result.correct =
                                   runLayers(shardq_comm_context(comm, 0), plan,
                                             world, layers, seed);
                             }),
                  seed);
  }
}

TEST(Threads, LoneExchangeWithTwoGenerations) {
  uint64_t seed = freshSeed();
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 5, 1, {2});
    expectCorrect(runThreads(world, plan.plan, {},
                             [&](shardq_comm *comm, RankResult &result) {
                               shardq_context *context =
                                   shardq_comm_context(comm, 0);
                               result.correct = true;
                               for (int64_t round = 0; round != 300; ++round)
                                 result.correct &= exchangeRows(
                                     context, plan, world, 0, 0, seed, round);
                             }),
                  seed);
  }
}

TEST(Threads, RankWithoutRows) {
  // Nobody has a row for anybody: only signals and waits are left.
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 0);
    expectCorrect(runThreads(world, plan.plan, {},
                             [&](shardq_comm *comm, RankResult &result) {
                               result.correct =
                                   runLayers(shardq_comm_context(comm, 0), plan,
                                             world, 100, 1);
                             }),
                  1);
  }
}

TEST(Threads, TwoSlotsInterleaved) {
  uint64_t seed = freshSeed();
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 5, 2);
    expectCorrect(
        runThreads(world, plan.plan, {},
                   [&](shardq_comm *comm, RankResult &result) {
                     result.correct = true;
                     for (int64_t layer = 0; layer != 60; ++layer)
                       for (int32_t channel = 0; channel != 2; ++channel)
                         for (int32_t slot = 0; slot != 2; ++slot)
                           result.correct &= exchangeRows(
                               shardq_comm_context(comm, slot), plan, world,
                               channel, channel, seed + uint64_t(slot),
                               2 * layer + channel);
                   }),
        seed);
  }
}

TEST(Threads, TwoSlotsOnTwoThreads) {
  uint64_t seed = freshSeed();
  TestPlan plan(3, 5, 2);
  expectCorrect(runThreads(3, plan.plan, {},
                           [&](shardq_comm *comm, RankResult &result) {
                             bool other = false;
                             std::thread thread([&] {
                               other = runLayers(shardq_comm_context(comm, 1),
                                                 plan, 3, 80, seed + 1);
                             });
                             bool mine = runLayers(shardq_comm_context(comm, 0),
                                                   plan, 3, 50, seed);
                             thread.join();
                             result.correct = mine && other;
                           }),
                seed);
}

TEST(Threads, SlowRank) {
  uint64_t seed = freshSeed();
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 5);
    expectCorrect(
        runThreads(world, plan.plan, {},
                   [&](shardq_comm *comm, RankResult &result) {
                     shardq_context *context = shardq_comm_context(comm, 0);
                     result.correct = true;
                     for (int64_t round = 0; round != 60; ++round) {
                       if (shardq_rt_rank(context) == world / 2)
                         std::this_thread::sleep_for(
                             std::chrono::milliseconds(1));
                       int32_t channel = static_cast<int32_t>(round % 2);
                       result.correct &= exchangeRows(
                           context, plan, world, channel, channel, seed, round);
                     }
                   }),
        seed);
  }
}

TEST(Threads, ManyLayersBackToBack) {
  TestPlan plan(4, 2);
  int64_t layers = isSanitized() ? 500 : 5000;
  expectCorrect(runThreads(4, plan.plan, {},
                           [&](shardq_comm *comm, RankResult &result) {
                             result.correct =
                                 runLayers(shardq_comm_context(comm, 0), plan,
                                           4, layers, 5);
                           }),
                5);
}

TEST(Threads, CapacityErrorReachesAllRanks) {
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 2);
    auto results = runThreads(
        world, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
          shardq_context *context = shardq_comm_context(comm, 0);
          result.correct = runLayers(context, plan, world, 3, 1);
          if (shardq_rt_rank(context) == 1)
            shardq_rt_workspace(context, 1, 1 << 20, 8);
          runLayers(context, plan, world, 3, 1);
        });
    for (const RankResult &result : results) {
      EXPECT_EQ(result.status, SHARDQ_CAPACITY);
      EXPECT_EQ(result.error.culprit, 1);
      EXPECT_EQ(result.error.channel, 1);
      EXPECT_EQ(result.error.found, 1 << 20);
    }
  }
}

TEST(Threads, AbortFromAnotherThread) {
  TestPlan plan(4, 2);
  auto results =
      runThreads(4, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
        shardq_context *context = shardq_comm_context(comm, 0);
        result.correct = true;
        if (shardq_comm_rank(comm) == 2) {
          std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            shardq_comm_abort(comm);
          });
          other.join();
          shardq_comm_abort(comm);
        } else {
          runLayers(context, plan, 4, 1, 1);
        }
      });
  for (const RankResult &result : results) {
    EXPECT_EQ(result.status, SHARDQ_ABORTED) << result.message;
    EXPECT_STREQ(result.message, "rank 2 aborted the group");
    EXPECT_LT(result.elapsedMs, 10'000);
  }
}

TEST(Threads, RankThatLeavesEarly) {
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 2);
    auto results = runThreads(
        world, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
          int64_t layers = shardq_comm_rank(comm) == 1 ? 4 : 5;
          result.correct =
              runLayers(shardq_comm_context(comm, 0), plan, world, layers, 1);
        });
    EXPECT_EQ(results[1].status, SHARDQ_OK) << results[1].message;
    results.erase(results.begin() + 1);
    for (const RankResult &result : results) {
      EXPECT_EQ(result.status, SHARDQ_PEER_LEFT) << result.message;
      EXPECT_EQ(result.error.culprit, 1) << result.message;
      EXPECT_EQ(result.error.epoch, 5);
      EXPECT_EQ(result.error.last_seen, 4);
      EXPECT_LT(result.elapsedMs, 10'000);
    }
  }
}

TEST(Threads, RanksInOtherExchanges) {
  for (int32_t world : {2, 3}) {
    TestPlan plan(world, 2);
    RankOptions options;
    options.deadlineMs = shortDeadlineMs();
    auto results = runThreads(
        world, plan.plan, options, [&](shardq_comm *comm, RankResult &) {
          int32_t own = shardq_comm_rank(comm) == 0 ? 0 : 1;
          exchangeRows(shardq_comm_context(comm, 0), plan, world, own, own, 1,
                       0);
        });
    for (const RankResult &result : results) {
      std::string message = result.message;
      EXPECT_EQ(result.status, SHARDQ_DEADLINE);
      EXPECT_NE(message.find("q exchange 0 of @test"), std::string::npos)
          << message;
      EXPECT_NE(message.find("out exchange 1 of @test"), std::string::npos)
          << message;
      EXPECT_NE(message.find("wait for each other in a circle"),
                std::string::npos)
          << message;
    }
  }
}

// A peer whose own deadline passes before it has heard of the failure follows
// what this rank waited for.
TEST(Threads, WhatAFailedWaitSaidStays) {
  TestPlan plan(2, 2);
  RankOptions options;
  options.deadlineMs = shortDeadlineMs();
  auto results = runThreads(
      2, plan.plan, options, [&](shardq_comm *comm, RankResult &result) {
        shardq_context *context = shardq_comm_context(comm, 0);
        if (shardq_comm_rank(comm) == 0) {
          exchangeRows(context, plan, 2, 0, 0, 1, 0);
          result.value =
              static_cast<int64_t>(comm->heaps.progress(0, 0).waiting);
        }
        // It would be one that left, otherwise.
        while (isOk(context))
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
  EXPECT_EQ(results[0].status, SHARDQ_DEADLINE) << results[0].message;
  EXPECT_EQ(results[0].value, 1);
}

TEST(Threads, StalledRankIsNamed) {
  for (int32_t world : {2, 3, 8}) {
    TestPlan plan(world, 2);
    RankOptions options;
    options.deadlineMs = shortDeadlineMs();
    options.fault = "rank=1,operation=1,epoch=3,action=stall";
    auto results = runThreads(
        world, plan.plan, options, [&](shardq_comm *comm, RankResult &result) {
          result.correct =
              runLayers(shardq_comm_context(comm, 0), plan, world, 6, 1);
        });
    for (const RankResult &result : results) {
      EXPECT_TRUE(result.correct);
      EXPECT_EQ(result.status, SHARDQ_DEADLINE) << result.message;
      EXPECT_EQ(result.error.culprit, 1) << result.message;
    }
  }
}
