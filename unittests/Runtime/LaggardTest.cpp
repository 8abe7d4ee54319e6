//===- LaggardTest.cpp - The rank named is the root one -------------------===//

#include "host/Waiting.h"

#include "Ranks.h"

#include <gtest/gtest.h>

using namespace shardq;
using shardq::test::TestPlan;

namespace {

constexpr int32_t kWorld = 5;

/// Heaps in which the test plays all ranks.
class Laggard : public testing::Test {
protected:
  void SetUp() override {
    TestPlan source(kWorld, 2, 2);
    Plan plan;
    ASSERT_FALSE(Plan::read(&source.plan, plan).failed());
    Layout layout(plan, kWorld);
    std::shared_ptr<HeapSpace> space;
    ASSERT_FALSE(HeapSpace::allocate(layout.bytes, kWorld, space).failed());
    heaps = Heaps(space, layout);
  }

  void waits(int64_t rank, int64_t target, int64_t slot, int64_t channel,
             uint64_t epoch) {
    heaps.progress(rank, slot) = {1, target, channel, channel, epoch};
  }

  void signals(int64_t rank, int64_t slot, int64_t channel, uint64_t epoch,
               int64_t lostFor = -1) {
    heaps.signalled(rank, slot, channel) = epoch;
    for (int64_t peer = 0; peer != kWorld; ++peer)
      if (peer != lostFor)
        heaps.flagTable().line(peer, slot, channel, epoch, rank).flag.epoch =
            epoch;
  }

  Failure find(int64_t self, int64_t producer, int64_t slot, int64_t channel,
               uint64_t epoch) {
    protocol::Exchange exchange{self, slot, channel, epoch, channel, {}};
    Failure failure;
    findLaggard(heaps, exchange, producer, failure, kWorld);
    return failure;
  }

  Heaps heaps;
};

} // namespace

TEST_F(Laggard, DirectOne) {
  signals(2, 0, 0, 7);
  Failure failure = find(0, 2, 0, 0, 8);
  EXPECT_EQ(failure.culprit, 2);
  EXPECT_EQ(failure.neighbour, 2);
  EXPECT_EQ(failure.lastSeen, 7);
  EXPECT_EQ(failure.lost, 0);
}

TEST_F(Laggard, BehindOthers) {
  // 0 waits for 1, which waits for 2 in another exchange, which waits for 3 in
  // another slot; 3 computes.
  waits(1, 2, 0, 1, 5);
  waits(2, 3, 1, 0, 9);
  signals(3, 1, 0, 8);
  Failure failure = find(0, 1, 0, 0, 6);
  EXPECT_EQ(failure.culprit, 3);
  EXPECT_EQ(failure.neighbour, 1);
  EXPECT_EQ(failure.slot, 1);
  EXPECT_EQ(failure.channel, 0);
  EXPECT_EQ(failure.epoch, 9);
  EXPECT_EQ(failure.lastSeen, 8);
}

TEST_F(Laggard, LostSignal) {
  // 2 signalled epoch 6 but 0 has not got it; 2 has gone on and now waits for 0
  // in the next exchange.
  signals(2, 0, 0, 5);
  signals(2, 0, 0, 6, /*lostFor=*/0);
  waits(2, 0, 0, 1, 6);
  Failure failure = find(0, 2, 0, 0, 6);
  EXPECT_EQ(failure.culprit, 2);
  EXPECT_EQ(failure.lost, 1);
  EXPECT_EQ(failure.lastSeen, 5);
  // Seen from 2 itself, the cause is 2 as well.
  waits(0, 2, 0, 0, 6);
  failure = find(2, 0, 0, 1, 6);
  EXPECT_EQ(failure.culprit, 2);
  EXPECT_EQ(failure.neighbour, 0);
  EXPECT_EQ(failure.lost, 1);
}

TEST_F(Laggard, LostSignalOfOneAhead) {
  // 2 signalled epoch 6, which 0 has not got, and epoch 7, which it has; 2 now
  // waits for 0 there.
  signals(2, 0, 0, 4);
  signals(2, 0, 0, 5);
  signals(2, 0, 0, 6, /*lostFor=*/0);
  signals(2, 0, 0, 7);
  waits(2, 0, 0, 0, 7);
  Failure failure = find(0, 2, 0, 0, 6);
  EXPECT_EQ(failure.culprit, 2);
  EXPECT_EQ(failure.epoch, 6);
  EXPECT_EQ(failure.lost, 1);
  EXPECT_EQ(failure.lastSeen, 4);
  // Seen from 2 itself, the cause is 2 as well.
  waits(0, 2, 0, 0, 6);
  failure = find(2, 0, 0, 0, 7);
  EXPECT_EQ(failure.culprit, 2);
  EXPECT_EQ(failure.neighbour, 0);
  EXPECT_EQ(failure.lost, 1);
}

TEST_F(Laggard, CircleEnds) {
  waits(1, 2, 0, 0, 5);
  waits(2, 1, 0, 1, 5);
  Failure failure = find(0, 1, 0, 0, 5);
  EXPECT_TRUE(failure.culprit == 1 || failure.culprit == 2);
  EXPECT_EQ(failure.circle, 1);
  // What the culprit waits in.
  EXPECT_EQ(failure.found, failure.culprit == 1 ? 0 : 1);
}

TEST_F(Laggard, LongestChainIsNoCircle) {
  for (int64_t rank = 1; rank != kWorld - 1; ++rank)
    waits(rank, rank + 1, 0, 0, 5);
  Failure failure = find(0, 1, 0, 0, 5);
  EXPECT_EQ(failure.culprit, kWorld - 1);
  EXPECT_EQ(failure.circle, 0);
}

TEST_F(Laggard, NonsenseOfAPeerIsIgnored) {
  waits(1, 99, 0, 0, 5);
  EXPECT_EQ(find(0, 1, 0, 0, 5).culprit, 1);
  waits(1, 2, 0, -4, 5);
  EXPECT_EQ(find(0, 1, 0, 0, 5).culprit, 1);
}
