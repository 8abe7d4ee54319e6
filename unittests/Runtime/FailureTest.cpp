//===- FailureTest.cpp - Records and messages of errors -------------------===//

#include "host/Failure.h"

#include "Ranks.h"

#include <cstring>

#include <gtest/gtest.h>

using namespace shardq;

namespace {

Plan namedPlan() {
  Plan plan;
  plan.operations.assign(18, "");
  plan.operations[16] = "out exchange 16 of @attention";
  plan.operations[17] = "q exchange 17 of @attention";
  return plan;
}

Failure sample(shardq_status status) {
  Failure failure;
  failure.status = status;
  failure.reporter = 3;
  failure.culprit = 5;
  failure.neighbour = 5;
  failure.slot = 1;
  failure.operation = 17;
  failure.epoch = 812;
  failure.lastSeen = 811;
  failure.waitedMs = 30'000;
  failure.expected = 16;
  failure.found = 17;
  return failure;
}

std::string say(const Failure &failure) {
  return describe(failure, namedPlan());
}

} // namespace

TEST(FailureText, Deadline) {
  Failure failure = sample(SHARDQ_DEADLINE);
  const std::string direct =
      "rank 3 waited 30.0 s for rank 5 (slot 1, q exchange 17 of @attention, "
      "epoch 812; rank 5 last seen at 811)";
  EXPECT_EQ(say(failure), direct);
  failure.lost = 1;
  EXPECT_EQ(say(failure), direct + ", whose signal did not arrive");
  failure.lost = 0;
  failure.neighbour = 4;
  EXPECT_EQ(say(failure), direct + ", which holds up rank 4");
  failure.neighbour = 5;
  failure.circle = 1;
  EXPECT_EQ(say(failure),
            direct + ", which itself waits in q exchange 17 of @attention: "
                     "ranks wait for each other in a circle, in exchanges that "
                     "they do not all run");
}

TEST(FailureText, Others) {
  EXPECT_EQ(say(sample(SHARDQ_OK)), "");
  EXPECT_EQ(say(sample(SHARDQ_PEER_DEAD)),
            "rank 5 died: its process ended without leaving the group (noticed "
            "by rank 3)");
  EXPECT_EQ(say(sample(SHARDQ_PEER_LEFT)),
            "rank 5 left the group while rank 3 waited for it (slot 1, q "
            "exchange 17 of @attention, epoch 812; rank 5 last seen at 811)");
  EXPECT_EQ(say(sample(SHARDQ_WRONG_OPERATION)),
            "rank 5 ran q exchange 17 of @attention where rank 3 expected out "
            "exchange 16 of @attention (slot 1, epoch 812)");
  EXPECT_EQ(say(sample(SHARDQ_WRONG_ROWS)),
            "rank 5 pushed 17 rows where rank 3 expected 16 (slot 1, q "
            "exchange 17 of @attention, epoch 812)");
  EXPECT_EQ(say(sample(SHARDQ_OVERRUN)),
            "rank 5 signalled epoch 17 before rank 3 was done waiting (slot 1, "
            "q exchange 17 of @attention, epoch 812)");
  EXPECT_EQ(
      say(sample(SHARDQ_CAPACITY)),
      "rank 5 has 17 rows for the inbox of channel -1, the plan holds 16");
  EXPECT_EQ(say(sample(SHARDQ_ABORTED)), "rank 5 aborted the group");
  EXPECT_EQ(say(sample(SHARDQ_SYSTEM)), "rank 5 failed: system error");
}

TEST(FailureText, OfTheFinder) {
  Failure failure;
  EXPECT_EQ(getText(failure), "");
  setText(failure, "rows of 'slots'");
  EXPECT_EQ(getText(failure), "rows of 'slots'");
  setText(failure, "short");
  EXPECT_EQ(getText(failure), "short");
  // What does not fit is cut, and what a peer writes may be anything.
  setText(failure, std::string(100, 'x'));
  EXPECT_EQ(getText(failure), std::string(63, 'x'));
  std::memset(failure.text, 0xff, sizeof(failure.text));
  EXPECT_EQ(getText(failure), std::string(64, '?'));
  setText(failure, "a\nb\x1b[0m");
  EXPECT_EQ(getText(failure), "a?b?[0m");
}

TEST(AbortRecord, FirstFailureStays) {
  AbortRecord record{};
  Failure found;
  EXPECT_FALSE(read(record, found));
  Failure first = sample(SHARDQ_DEADLINE);
  setText(first, "of the first");
  post(record, first);
  post(record, sample(SHARDQ_PEER_DEAD));
  ASSERT_TRUE(read(record, found));
  EXPECT_EQ(found.status, SHARDQ_DEADLINE);
  EXPECT_EQ(say(found), say(sample(SHARDQ_DEADLINE)));
  EXPECT_EQ(getText(found), "of the first");
}
