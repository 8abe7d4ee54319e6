//===- EntryPointTest.cpp - Misuse by generated code is an error ----------===//

#include "Ranks.h"

#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

using namespace shardq::test;

namespace {

/// Runs `body` on a world of one rank.
RankResult alone(const std::function<void(shardq_context *)> &body) {
  TestPlan plan(1, 4, 2);
  return runThreads(1, plan.plan, {},
                    [&](shardq_comm *comm, RankResult &) {
                      body(shardq_comm_context(comm, 0));
                    })
      .front();
}

const int64_t kNoRows[] = {0};

} // namespace

TEST(EntryPoint, Contexts) {
  TestPlan plan(1, 4, 2);
  runThreads(1, plan.plan, {}, [&](shardq_comm *comm, RankResult &) {
    EXPECT_EQ(shardq_comm_slots(comm), 2);
    EXPECT_EQ(shardq_comm_context(comm, 2), nullptr);
    EXPECT_EQ(shardq_comm_context(comm, -1), nullptr);
    shardq_context *context = shardq_comm_context(comm, 1);
    EXPECT_EQ(context, shardq_comm_context(comm, 1));
    EXPECT_EQ(shardq_context_slot(context), 1);
    EXPECT_EQ(shardq_context_status(context, nullptr, 0), SHARDQ_OK);
    shardq_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(shardq_context_error(context, &error), SHARDQ_OK);
    EXPECT_EQ(error.culprit, -1);
    EXPECT_EQ(shardq_context_error(context, nullptr), SHARDQ_INVALID);
  });
}

TEST(EntryPoint, UnknownChannel) {
  RankResult result = alone([](shardq_context *context) {
    // Valid memory even so: generated code may store there before it looks.
    char *memory = static_cast<char *>(shardq_rt_workspace(context, 9, 1, 32));
    ASSERT_NE(memory, nullptr);
    *memory = 1;
    EXPECT_FALSE(isOk(context));
    EXPECT_NE(shardq_rt_workspace(context, 0, 1, 32), nullptr);
  });
  EXPECT_EQ(result.status, SHARDQ_INVALID);
  EXPECT_STREQ(result.message, "rank 0: channel 9 is not one of the plan's 2");
}

TEST(EntryPoint, SizesThatDisagree) {
  RankResult result = alone([](shardq_context *context) {
    shardq_rt_expect(context, "rows of 'req'", 4, 4);
    EXPECT_TRUE(isOk(context));
    shardq_rt_expect(context, "rows of 'req'", 5, 4);
    shardq_rt_expect(context, "rows of 'slots'", 6, 4);
    shardq_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(shardq_context_error(context, &error), SHARDQ_INVALID);
    EXPECT_EQ(error.found, 5);
    EXPECT_EQ(error.expected, 4);
  });
  EXPECT_EQ(result.status, SHARDQ_INVALID);
  EXPECT_STREQ(result.message, "rank 0: sizes disagree, 5 where 4 is expected: "
                               "rows of 'req'");
  result = alone([](shardq_context *context) {
    shardq_rt_expect(context, nullptr, 0, 1);
  });
  EXPECT_STREQ(result.message, "rank 0: sizes disagree, 0 where 1 is expected");
}

TEST(EntryPoint, TextOfTheFinderIsTold) {
  TestPlan plan(3, 4);
  const std::string what(80, 'x');
  std::vector<RankResult> results = runProcesses(
      3, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
        shardq_context *context = shardq_comm_context(comm, 0);
        if (shardq_comm_rank(comm) == 1)
          shardq_rt_expect(context, what.c_str(), 5, 4);
        while (isOk(context))
          std::this_thread::yield();
        result.correct = true;
      });
  const std::string numbers = "rank 1: sizes disagree, 5 where 4 is expected: ";
  EXPECT_EQ(results[1].message, numbers + what);
  for (int rank : {0, 2})
    EXPECT_EQ(results[size_t(rank)].message, numbers + what.substr(0, 63));
}

TEST(EntryPoint, TokensBeyondTheTable) {
  RankResult result = alone([](shardq_context *context) {
    shardq_rt_beyond_table(context, 9, 3, 4, 8);
  });
  EXPECT_EQ(result.status, SHARDQ_INVALID);
  EXPECT_STREQ(result.message,
               "rank 0: a token of request 3 is to be written to block 9, and "
               "its block table has 8");
  result = alone([](shardq_context *context) {
    shardq_rt_beyond_table(context, 2, 4, 4, 8);
  });
  EXPECT_STREQ(result.message,
               "rank 0: a token of request 4 is to be written to block 2, and "
               "the block table has 4 requests");
}

TEST(EntryPoint, TokensWhoseEntryIsNoPlace) {
  RankResult result = alone([](shardq_context *context) {
    shardq_rt_no_place(context, 9, 3, -1);
    shardq_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(shardq_context_error(context, &error), SHARDQ_INVALID);
    EXPECT_EQ(error.found, -1);
  });
  EXPECT_EQ(result.status, SHARDQ_INVALID);
  EXPECT_STREQ(result.message,
               "rank 0: a token of request 3 is to be written to block 9, "
               "whose entry in the block table is -1");
  result = alone([](shardq_context *context) {
    shardq_rt_no_place(context, 2, 0, 2000000000);
  });
  EXPECT_STREQ(result.message,
               "rank 0: a token of request 0 is to be written to block 2, "
               "whose entry in the block table is 2000000000, beyond slots of "
               "their type");
}

TEST(EntryPoint, RowsBeyondTheCache) {
  RankResult result = alone([](shardq_context *context) {
    shardq_rt_beyond_cache(context, 5000000000, 7, 4096);
    shardq_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(shardq_context_error(context, &error), SHARDQ_INVALID);
    EXPECT_EQ(error.found, 5000000000);
    EXPECT_EQ(error.expected, 4096);
  });
  EXPECT_EQ(result.status, SHARDQ_INVALID);
  EXPECT_STREQ(result.message,
               "rank 0: row 7 of those to write has slot 5000000000, and the "
               "cache has 4096 rows");
}

TEST(EntryPoint, StartsThatAddUp) {
  alone([](shardq_context *context) {
    auto check = [&](const std::vector<int32_t> &starts, int64_t decodes,
                     int64_t rows) {
      shardq_rt_check_starts(context, starts.data(),
                             static_cast<int64_t>(starts.size()), decodes,
                             rows);
      EXPECT_TRUE(isOk(context));
    };
    check({}, 0, 0);
    check({0}, 0, 0);
    check({0, 3, 9}, 9, 9);
    // Padding of requests and of rows.
    check({0, 3, 9, 9, 9}, 3, 12);
    check({0, 3, 9, 9, 9}, 12, 12);
    // Behind the last request; in front of all.
    check({0, 3, 9}, 10, 12);
    check({0, 0, 3}, 0, 3);
    shardq_rt_check_starts(context, nullptr, 5, 0, 0);
    EXPECT_TRUE(isOk(context));
  });
}

TEST(EntryPoint, StartsThatDoNotAddUp) {
  auto check = [](const std::vector<int32_t> &starts, int64_t decodes,
                  int64_t rows, const char *message) {
    RankResult result = alone([&](shardq_context *context) {
      shardq_rt_check_starts(context, starts.data(),
                             static_cast<int64_t>(starts.size()), decodes,
                             rows);
    });
    EXPECT_EQ(result.status, SHARDQ_INVALID);
    EXPECT_STREQ(result.message, message);
  };
  check({1, 4}, 0, 9, "rank 0: the step's first query start is 1, expected 0");
  check({0, 7, 4}, 0, 9,
        "rank 0: query start 2 of the step is 4, below the one in front of it, "
        "7");
  check({0, 7, 10}, 0, 9,
        "rank 0: query start 2 of the step is 10, beyond its 9 rows");
  check({0, 7}, 10, 9,
        "rank 0: the step has 10 decode rows, expected 0 to its 9 rows");
  check({0, 7}, -1, 9,
        "rank 0: the step has -1 decode rows, expected 0 to its 9 rows");
  check({0, 4, 10}, 2, 12,
        "rank 0: the step has 2 decode rows, which end within request 0, and "
        "the next one begins at row 4");
  check({0, 4, 4, 10}, 9, 10,
        "rank 0: the step has 9 decode rows, which end within request 2, and "
        "the next one begins at row 10");
  check({}, 1, 0,
        "rank 0: the step has 1 decode rows, expected 0 to its 0 rows");
}

TEST(EntryPoint, UnknownPeer) {
  RankResult result = alone([](shardq_context *context) {
    void *local = shardq_rt_workspace(context, 0, 1, 32);
    EXPECT_EQ(shardq_rt_peer(context, local, 1), local);
  });
  EXPECT_EQ(result.status, SHARDQ_INVALID);
  EXPECT_STREQ(result.message,
               "rank 0: peer 1 is outside the world of 1 ranks");
}

TEST(EntryPoint, GroupOutsideTheWorld) {
  struct {
    int64_t first, stride, size;
  } groups[] = {{0, 1, 2},         {0, 1, 0},        {0, 1, -1},
                {-1, 1, 1},        {1, 1, 1},        {0, INT64_MAX, 2},
                {INT64_MIN, 1, 1}, {0, 1, INT64_MAX}};
  for (auto group : groups)
    for (bool waits : {false, true}) {
      RankResult result = alone([&](shardq_context *context) {
        (waits ? shardq_rt_wait : shardq_rt_signal)(
            context, 0, 0, group.first, group.stride, group.size, kNoRows);
      });
      EXPECT_EQ(result.status, SHARDQ_INVALID) << group.first;
      EXPECT_NE(std::string(result.message).find("the group of q exchange 0"),
                std::string::npos)
          << result.message;
    }
}

TEST(EntryPoint, MissingRows) {
  RankResult result = alone([](shardq_context *context) {
    shardq_rt_signal(context, 0, 1, 0, 1, 1, nullptr);
  });
  EXPECT_EQ(result.status, SHARDQ_INVALID);
  EXPECT_STREQ(result.message, "rank 0: the row counts of out exchange 1 of "
                               "@test are NULL");
}

TEST(EntryPoint, WaitBeforeSignal) {
  RankResult result = alone([](shardq_context *context) {
    shardq_rt_wait(context, 1, 0, 0, 1, 1, kNoRows);
  });
  EXPECT_EQ(result.status, SHARDQ_INVALID);
  EXPECT_STREQ(result.message,
               "rank 0: wait on channel 1 before its first signal");
}

TEST(EntryPoint, Capacity) {
  RankResult result = alone([](shardq_context *context) {
    auto *inbox = static_cast<char *>(shardq_rt_workspace(context, 0, 4, 32));
    EXPECT_TRUE(isOk(context));
    // Memory of its own, large enough, and no peer's business.
    auto *spare =
        static_cast<char *>(shardq_rt_workspace(context, 0, 1 << 20, 32));
    EXPECT_FALSE(isOk(context));
    EXPECT_NE(spare, inbox);
    spare[(1 << 25) - 1] = 1;
    EXPECT_EQ(shardq_rt_peer(context, spare, 0), spare);
    // It serves what comes after, and the first error stays.
    EXPECT_EQ(shardq_rt_workspace(context, 0, 600, 32), spare);
    EXPECT_NE(shardq_rt_workspace(context, 0, -1, 32), nullptr);
    EXPECT_NE(shardq_rt_workspace(context, 0, INT64_MAX, INT64_MAX), nullptr);
    EXPECT_EQ(shardq_rt_workspace(context, 0, 4, 32), inbox);
  });
  EXPECT_EQ(result.status, SHARDQ_CAPACITY);
  EXPECT_EQ(result.error.channel, 0);
  EXPECT_EQ(result.error.expected, result.error.channel == 0 ? 4 : -1);
  EXPECT_EQ(result.error.found, 1 << 20);
  EXPECT_NE(
      std::string(result.message).find("has 1048576 rows for the inbox of"),
      std::string::npos)
      << result.message;
}

TEST(EntryPoint, GenerationsAlternate) {
  TestPlan plan(1, 4, 1, {2, 1});
  runThreads(1, plan.plan, {}, [&](shardq_comm *comm, RankResult &) {
    shardq_context *context = shardq_comm_context(comm, 0);
    auto next = [&](int32_t channel) {
      void *memory = shardq_rt_workspace(context, channel, 1, 32);
      EXPECT_EQ(memory, shardq_rt_workspace(context, channel, 1, 32));
      shardq_rt_signal(context, channel, 0, 0, 1, 1, kNoRows);
      shardq_rt_wait(context, channel, 0, 0, 1, 1, kNoRows);
      return memory;
    };
    void *first = next(0), *second = next(0);
    EXPECT_NE(first, second);
    EXPECT_EQ(next(0), first);
    EXPECT_EQ(next(0), second);
    void *single = next(1);
    EXPECT_EQ(next(1), single);
    EXPECT_TRUE(isOk(context));
  });
}

TEST(EntryPoint, PoisonAfterAnError) {
  RankResult result = alone([](shardq_context *context) {
    auto *inbox =
        static_cast<unsigned char *>(shardq_rt_workspace(context, 0, 1, 32));
    const int64_t rows[] = {1};
    shardq_rt_signal(context, 0, 0, 0, 1, 1, rows);
    // This rank pushed one row to itself and expects none.
    shardq_rt_wait(context, 0, 0, 0, 1, 1, kNoRows);
    for (int byte = 0; byte != 4 * 32; ++byte)
      ASSERT_EQ(inbox[byte], 0xff) << byte;
    // Short-circuited ones poison too: their rows are as wrong.
    inbox[0] = 0;
    shardq_rt_signal(context, 0, 0, 0, 1, 1, kNoRows);
    shardq_rt_wait(context, 0, 0, 0, 1, 1, kNoRows);
    EXPECT_EQ(inbox[0], 0xff);
    shardq_rt_wait(context, 99, 0, 0, 1, 1, kNoRows);
  });
  EXPECT_EQ(result.status, SHARDQ_WRONG_ROWS);
  EXPECT_STREQ(result.message,
               "rank 0 pushed 1 rows where rank 0 expected 0 (slot 0, q "
               "exchange 0 of @test, epoch 1)");
}

TEST(EntryPoint, Tap) {
  static int calls;
  calls = 0;
  alone([](shardq_context *context) {
    const int64_t sizes[] = {2, 3}, strides[] = {3, 1};
    const int32_t rows[] = {7, 9};
    const float data[6] = {1, 2, 3, 4, 5, 6};
    auto hand = [&] {
      shardq_rt_tap(context, "scores", 4, 2, data, sizes, strides, rows, 2);
    };
    hand();
    shardq_context_set_tap(
        context,
        [](void *user, const shardq_tap_value *value) {
          ++*static_cast<int *>(user);
          EXPECT_STREQ(value->name, "scores");
          EXPECT_EQ(value->element_bytes, 4);
          EXPECT_EQ(value->rank, 2);
          EXPECT_EQ(static_cast<const float *>(value->data)[5], 6);
          EXPECT_EQ(value->sizes[1], 3);
          EXPECT_EQ(value->strides[0], 3);
          EXPECT_EQ(value->rows[1], 9);
          EXPECT_EQ(value->num_rows, 2);
        },
        &calls);
    hand();
    shardq_context_set_tap(context, nullptr, nullptr);
    hand();
  });
  EXPECT_EQ(calls, 1);
}

TEST(EntryPoint, SubgroupsAreApart) {
  // Two groups of a 2 x 2 mesh per axis: strides 1 and 2.
  TestPlan plan(4, 4);
  auto results =
      runThreads(4, plan.plan, {}, [&](shardq_comm *comm, RankResult &result) {
        shardq_context *context = shardq_comm_context(comm, 0);
        int64_t rank = shardq_rt_rank(context);
        for (int64_t round = 0; round != 50; ++round) {
          const int64_t rows[] = {round, round};
          shardq_rt_signal(context, 0, 0, rank / 2 * 2, 1, 2, rows);
          shardq_rt_wait(context, 0, 0, rank / 2 * 2, 1, 2, rows);
          shardq_rt_signal(context, 1, 1, rank % 2, 2, 2, rows);
          shardq_rt_wait(context, 1, 1, rank % 2, 2, 2, rows);
        }
        result.correct = isOk(context);
      });
  for (const RankResult &result : results)
    EXPECT_TRUE(result.correct) << result.message;
}

TEST(EntryPoint, AsideIsForGpus) {
  using Call = void (*)(shardq_context *);
  const Call begin = [](shardq_context *context) {
    shardq_rt_begin_aside(context, 0);
  };
  for (Call function :
       {begin, Call(shardq_rt_end_aside), Call(shardq_rt_join_aside)}) {
    RankResult result = alone([&](shardq_context *context) {
      shardq_rt_begin(context, nullptr);
      function(context);
      EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
    });
    EXPECT_EQ(result.status, SHARDQ_INVALID);
    EXPECT_NE(std::string(result.message).find("code for GPUs"),
              std::string::npos)
        << result.message;
  }
}
