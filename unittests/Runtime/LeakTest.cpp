//===- LeakTest.cpp - A thousand communicators leave nothing behind -------===//

#include "Ranks.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace shardq::test;

namespace {

struct Counts {
  int64_t descriptors = 0;
  int64_t mappings = 0;
  int64_t threads = 0;
};

int64_t entries(const char *directory) {
  int64_t count = 0;
  for ([[maybe_unused]] const auto &entry :
       std::filesystem::directory_iterator(directory))
    ++count;
  return count;
}

Counts count() {
  Counts counts;
  counts.descriptors = entries("/proc/self/fd");
  counts.threads = entries("/proc/self/task");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    ++counts.mappings;
  return counts;
}

/// What has grown; sanitizers and malloc may add a few mappings of their own.
bool grew(const Counts &before, const Counts &after) {
  return after.descriptors > before.descriptors ||
         after.threads > before.threads ||
         after.mappings > before.mappings + (isSanitized() ? 200 : 12);
}

} // namespace

TEST(Leaks, ProcessRanks) {
  TestPlan plan(2, 2);
  RankOptions options;
  options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
    int rounds = isSanitized() ? 200 : 1000;
    Counts before;
    for (int round = 0; round != rounds; ++round) {
      // Some end with an error, as in life.
      RankOptions each;
      if (round % 10 == 3)
        each.fault = "rank=1,operation=0,epoch=1,action=wrong-rows";
      RankResult result{};
      runRank(
          comm.bootstrap, rank, 2, plan.plan, each,
          [&](shardq_comm *member, RankResult &) {
            runLayers(shardq_comm_context(member, 0), plan, 2, 1, 1);
          },
          result);
      if (result.created != SHARDQ_OK)
        _exit(1);
      if (round == 50)
        before = count();
    }
    if (grew(before, count()))
      _exit(2);
  };
  for (const RankResult &result :
       runProcesses(2, plan.plan, options, [](shardq_comm *, RankResult &each) {
         each.correct = true;
       }))
    EXPECT_TRUE(result.correct);
}

TEST(Leaks, FailedRendezvous) {
  TestPlan plan(2, 2);
  shardq_plan other = plan.plan;
  other.hash = 1;
  RankOptions options;
  options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
    Counts before;
    for (int round = 0; round != 200; ++round) {
      RankResult result{};
      runRank(
          comm.bootstrap, rank, 2, rank == 0 ? plan.plan : other, {},
          [](shardq_comm *, RankResult &) {}, result);
      if (result.created != SHARDQ_MISMATCH)
        _exit(1);
      if (round == 50)
        before = count();
    }
    if (grew(before, count()))
      _exit(2);
  };
  for (const RankResult &result :
       runProcesses(2, plan.plan, options, [](shardq_comm *, RankResult &each) {
         each.correct = true;
       }))
    EXPECT_TRUE(result.correct);
}

TEST(Leaks, ThreadRanks) {
  TestPlan plan(2, 2);
  Counts before;
  int rounds = isSanitized() ? 200 : 1000;
  for (int round = 0; round != rounds; ++round) {
    auto results = runThreads(
        2, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
          result.correct =
              runLayers(shardq_comm_context(comm, 0), plan, 2, 1, 1);
        });
    ASSERT_TRUE(results[0].correct && results[1].correct);
    if (round == 50)
      before = count();
  }
  EXPECT_FALSE(grew(before, count()));
}
