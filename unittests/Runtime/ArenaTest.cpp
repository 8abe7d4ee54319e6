//===- ArenaTest.cpp - Temporary memory of a slot -------------------------===//

#include "host/Arena.h"

#include "Ranks.h"

#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace shardq;
using namespace shardq::test;

static void *at(uint64_t address) { return reinterpret_cast<void *>(address); }

TEST(Arena, FirstFit) {
  Arena arena;
  EXPECT_EQ(arena.allocate(1), nullptr);
  arena.add(at(0x10000), 4096);
  EXPECT_EQ(arena.capacity(), 4096u);
  EXPECT_EQ(arena.allocate(0), at(0x10000));
  EXPECT_EQ(arena.allocate(257), at(0x10100));
  EXPECT_EQ(arena.allocate(256), at(0x10300));
  EXPECT_EQ(arena.allocate(4096), nullptr);
  arena.free(at(0x10100));
  EXPECT_EQ(arena.allocate(513), at(0x10400));
  EXPECT_EQ(arena.allocate(512), at(0x10100));
}

TEST(Arena, FreedNeighboursJoin) {
  Arena arena;
  arena.add(at(0x10000), 1024);
  void *blocks[4];
  for (void *&block : blocks)
    block = arena.allocate(256);
  for (int i : {0, 2, 1, 3})
    arena.free(blocks[i]);
  EXPECT_EQ(arena.allocate(1024), at(0x10000));
}

TEST(Arena, ChunksDoNotJoin) {
  Arena arena;
  arena.add(at(0x10000), 1024);
  // Directly behind the first.
  arena.add(at(0x10400), 1024);
  EXPECT_EQ(arena.allocate(2048), nullptr);
  void *first = arena.allocate(1024), *second = arena.allocate(1024);
  EXPECT_EQ(second, at(0x10400));
  arena.free(first);
  arena.free(second);
  EXPECT_EQ(arena.allocate(2048), nullptr);
  EXPECT_EQ(arena.capacity(), 2048u);
}

TEST(Arena, IgnoresStrangers) {
  Arena arena;
  arena.add(at(0x10000), 1024);
  void *block = arena.allocate(512);
  arena.free(at(0x10100));
  arena.free(at(0x20000));
  arena.free(block);
  arena.free(block);
  EXPECT_EQ(arena.allocate(1024), block);
}

TEST(Arena, SameOrderSamePlaces) {
  std::mt19937_64 random(7);
  for (int round = 0; round != 200; ++round) {
    Arena arena;
    arena.add(at(0x100000), 64 << 10);
    arena.add(at(0x900000), 64 << 10);
    uint64_t seed = random();
    auto program = [&] {
      std::mt19937_64 steps(seed);
      std::vector<void *> places;
      std::map<char *, uint64_t> live;
      for (int step = 0; step != 100; ++step) {
        if (!live.empty() && steps() % 3 == 0) {
          auto victim = live.begin();
          std::advance(victim, static_cast<long>(steps() % live.size()));
          arena.free(victim->first);
          live.erase(victim);
          continue;
        }
        uint64_t bytes = steps() % 5000;
        char *place = static_cast<char *>(arena.allocate(bytes));
        places.push_back(place);
        if (!place)
          continue;
        // Nothing that is in use overlaps it.
        auto next = live.lower_bound(place);
        EXPECT_TRUE(next == live.end() ||
                    place + Arena::rounded(bytes) <= next->first);
        EXPECT_TRUE(next == live.begin() ||
                    std::prev(next)->first + std::prev(next)->second <= place);
        live[place] = Arena::rounded(bytes);
      }
      return places;
    };
    std::vector<void *> before = program();
    arena.reset();
    EXPECT_EQ(program(), before);
    EXPECT_EQ(arena.capacity(), uint64_t(128) << 10);
  }
}

TEST(Arena, HostContextsHaveOne) {
  TestPlan plan(1, 4);
  RankOptions options;
  for (const RankResult &result :
       runThreads(1, plan.plan, options, [](shardq_comm *comm, RankResult &) {
         shardq_context *context = shardq_comm_context(comm, 0);
         shardq_rt_begin(context, nullptr);
         char *first = static_cast<char *>(shardq_rt_alloc(context, 100));
         ASSERT_NE(first, nullptr);
         first[99] = 1;
         char *large = static_cast<char *>(shardq_rt_alloc(context, 100 << 20));
         ASSERT_NE(large, nullptr);
         large[(100 << 20) - 1] = 1;
         EXPECT_EQ(shardq_rt_device(context), nullptr);
         EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
         shardq_rt_begin(context, nullptr);
         EXPECT_EQ(shardq_rt_alloc(context, 100), first);
         EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
         shardq_rt_begin(context, nullptr);
         shardq_rt_launch(context, nullptr, 0, 1, nullptr);
         EXPECT_EQ(shardq_rt_alloc(context, 1), nullptr);
         EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
       })) {
    EXPECT_EQ(result.status, SHARDQ_INVALID);
    EXPECT_STREQ(result.message,
                 "rank 0: code for GPUs called with buffers on the host");
  }
}
