//===- PlanTest.cpp - Plans are checked before they are used --------------===//

#include "host/Heap.h"

#include "Ranks.h"

#include <gtest/gtest.h>

using namespace shardq;
using shardq::test::TestPlan;

namespace {

std::string refusal(const shardq_plan &source) {
  Plan plan;
  Outcome outcome = Plan::read(&source, plan);
  EXPECT_EQ(outcome.status, SHARDQ_INVALID);
  return outcome.text;
}

} // namespace

TEST(PlanCheck, Copies) {
  TestPlan source(4, 8, 2, {1, 2});
  Plan plan;
  ASSERT_FALSE(Plan::read(&source.plan, plan).failed());
  EXPECT_EQ(plan.slots, 2);
  ASSERT_EQ(plan.channels.size(), 2u);
  EXPECT_EQ(plan.channels[1].generations, 2u);
  EXPECT_EQ(plan.operationName(1), "out exchange 1 of @test");
  EXPECT_EQ(plan.operationName(2), "operation 2");
  EXPECT_EQ(plan.operationName(-1), "operation -1");
}

TEST(PlanCheck, Refuses) {
  Plan plan;
  EXPECT_EQ(Plan::read(nullptr, plan).status, SHARDQ_INVALID);
  TestPlan source(4, 8);
  auto with = [&](auto change) {
    shardq_plan copy = source.plan;
    change(copy);
    return refusal(copy);
  };
  EXPECT_EQ(with([](auto &p) { p.slots = 0; }),
            "plan: 0 slots, expected 1 to 64");
  with([](auto &p) { p.slots = 65; });
  with([](auto &p) { p.struct_size = 1; });
  // A program of an earlier version, whose channels are shorter.
  EXPECT_EQ(with([](auto &p) { p.struct_size = 56; }),
            "plan: struct_size is 56, expected 64");
  EXPECT_EQ(with([](auto &p) { p.channel_size = 32; }),
            "plan: channel_size is 32, expected 40");
  with([](auto &p) { p.num_channels = -1; });
  with([](auto &p) { p.num_channels = 1025; });
  with([](auto &p) { p.channels = nullptr; });
  with([](auto &p) { p.num_operations = -1; });
  with([](auto &p) { p.operation_names = nullptr; });
  with([](auto &p) { p.slot_bytes = UINT64_MAX; });
  EXPECT_EQ(with([](auto &p) { p.ranks = -1; }),
            "plan: -1 ranks, expected 0 or more");
  std::string text = with([](auto &p) { p.slot_bytes -= 1; });
  EXPECT_NE(text.find("does not fit in a slot of 2047 bytes"),
            std::string::npos)
      << text;
}

TEST(PlanCheck, RefusesChannels) {
  TestPlan source(4, 8);
  for (shardq_channel channel :
       {shardq_channel{"c", 0, 8, 0, 0, 0, 0},
        shardq_channel{"c", 0, 8, 9, 0, 0, 0},
        shardq_channel{"c", UINT64_MAX, 8, 1, 0, 0, 0},
        shardq_channel{"c", 0, UINT64_MAX, 8, 0, 0, 0},
        shardq_channel{nullptr, 0, UINT64_MAX / 8 + 1, 8, 0, 0, 0},
        shardq_channel{"c", 2048, 1, 1, 0, 0, 0}}) {
    shardq_plan plan = source.plan;
    plan.channels = &channel;
    plan.num_channels = 1;
    refusal(plan);
  }
  shardq_channel channel{"c", 0, 8, 1, SHARDQ_TRANSPORT_DIRECT, 0, 0};
  shardq_plan plan = source.plan;
  plan.channels = &channel;
  plan.num_channels = 1;
  EXPECT_EQ(refusal(plan),
            "plan: transport of c is 1, expected 0 (auto) or 2 (NCCL)");
  for (auto [stride, size] :
       {std::pair(0, 2), std::pair(2, 0), std::pair(-1, 2), std::pair(1, -2)}) {
    channel = {"c", 0, 8, 1, SHARDQ_TRANSPORT_AUTO, stride, size};
    EXPECT_EQ(refusal(plan), "plan: c has groups of " + std::to_string(size) +
                                 " ranks, " + std::to_string(stride) +
                                 " apart, expected at least 1 of each, or 0");
  }
}

TEST(PlanCheck, GroupsOnHosts) {
  auto stays = [](int64_t stride, int64_t size,
                  const std::vector<int32_t> &hosts) {
    Plan::Channel channel{"c", 0, 8, 1, false, stride, size};
    return channel.staysOnHosts(hosts);
  };
  EXPECT_TRUE(stays(1, 2, {0, 0, 2, 2}));
  EXPECT_TRUE(stays(1, 4, {0, 0, 0, 0}));
  EXPECT_FALSE(stays(1, 4, {0, 0, 2, 2}));
  EXPECT_FALSE(stays(2, 2, {0, 0, 2, 2}));
  EXPECT_TRUE(stays(2, 2, {0, 1, 0, 1}));
  EXPECT_FALSE(stays(1, 2, {0, 1, 0, 1}));
  // In the second half of the world only.
  EXPECT_FALSE(stays(2, 2, {0, 0, 0, 0, 4, 4, 4, 7}));
  EXPECT_TRUE(stays(1, 1, {0, 1, 2, 3}));
  // Nobody knows, or the world has no such groups.
  EXPECT_FALSE(stays(0, 0, {0, 0, 0, 0}));
  EXPECT_FALSE(stays(1, 3, {0, 0, 0, 0}));
  EXPECT_FALSE(stays(int64_t(1) << 31, int64_t(1) << 31, {0, 0, 0, 0}));
}

TEST(PlanCheck, ChannelsThatAskForNccl) {
  auto asked = [](std::vector<const char *> names,
                  std::vector<int32_t> transports) {
    std::vector<shardq_channel> channels;
    for (size_t i = 0; i != names.size(); ++i)
      channels.push_back({names[i], 0, 8, 1, transports[i], 0, 0});
    TestPlan source(4, 8);
    source.plan.channels = channels.data();
    source.plan.num_channels = static_cast<int32_t>(channels.size());
    Plan plan;
    EXPECT_FALSE(Plan::read(&source.plan, plan).failed());
    EXPECT_EQ(plan.asksForNccl, plan.describeAsked() == "NCCL");
    for (const Plan::Channel &channel : plan.channels)
      EXPECT_TRUE(!plan.asksForNccl || channel.asksForNccl);
    return plan.describeAsked();
  };
  EXPECT_EQ(asked({}, {}), "");
  EXPECT_EQ(asked({"a", "b"}, {0, 0}), "");
  EXPECT_EQ(asked({"a", "b"}, {0, 2}), "NCCL for 'b'");
  EXPECT_EQ(asked({"a", "b"}, {2, 2}), "NCCL");
  EXPECT_EQ(asked({"a", nullptr, "c"}, {2, 2, 0}), "NCCL for 'a', 'channel 1'");
  EXPECT_EQ(asked({"a", "b", "c", "d", "e", "f"}, {2, 2, 0, 2, 2, 2}),
            "NCCL for 'a', 'b', 'd' and 2 more");
}

TEST(PlanCheck, RanksOfTheProgram) {
  TestPlan source(4, 8);
  auto refusalOf = [&](int32_t ranks, int32_t world) {
    source.plan.ranks = ranks;
    Plan plan;
    EXPECT_FALSE(Plan::read(&source.plan, plan).failed());
    Outcome outcome = plan.checkWorld(world);
    EXPECT_EQ(outcome.status,
              outcome.text.empty() ? SHARDQ_OK : SHARDQ_MISMATCH);
    return outcome.text;
  };
  for (auto [ranks, world] :
       {std::pair(0, 3), std::pair(2, 2), std::pair(2, 4), std::pair(1, 3)})
    EXPECT_EQ(refusalOf(ranks, world), "");
  EXPECT_EQ(refusalOf(2, 1), "the program is for 2 ranks, or several times as "
                             "many, and the world has 1");
  EXPECT_EQ(refusalOf(4, 6), "the program is for 4 ranks, or several times as "
                             "many, and the world has 6");
}

TEST(PlanCheck, NoChannelsNoBytes) {
  shardq_plan source{};
  source.struct_size = sizeof(source);
  source.slots = 1;
  Plan plan;
  ASSERT_FALSE(Plan::read(&source, plan).failed());
  Layout layout(plan, 3);
  EXPECT_GT(layout.bytes, layout.data);
}

TEST(PlanCheck, LayoutHasNoOverlaps) {
  TestPlan source(5, 3, 3, {1, 2});
  Plan plan;
  ASSERT_FALSE(Plan::read(&source.plan, plan).failed());
  Layout layout(plan, 5);
  EXPECT_LE(layout.tokens + 5 * 8, layout.progress);
  EXPECT_LE(layout.progress + 2 * 3 * sizeof(SlotProgress), layout.doorbells);
  EXPECT_LE(layout.doorbells + 3 * sizeof(Doorbell), layout.signalled);
  EXPECT_LE(layout.signalled + 3 * 2 * 8, layout.flags);
  EXPECT_LE(layout.flags + 3 * 2 * 2 * 5 * 64, layout.data);
  EXPECT_GE(layout.slotStride, plan.slotBytes);
  EXPECT_EQ(layout.bytes, layout.data + 3 * layout.slotStride);
  EXPECT_EQ(layout.bytes % 4096, 0u);
}

TEST(PlanCheck, ShapeHashSeesEverySize) {
  Plan plan;
  TestPlan source(4, 8);
  ASSERT_FALSE(Plan::read(&source.plan, plan).failed());
  uint64_t hash = plan.shapeHash();
  auto changed = [&](auto change) {
    Plan copy = plan;
    change(copy);
    return copy.shapeHash() != hash;
  };
  EXPECT_TRUE(changed([](Plan &p) { p.slots = 2; }));
  EXPECT_TRUE(changed([](Plan &p) { p.slotBytes += 1; }));
  EXPECT_TRUE(changed([](Plan &p) { p.channels[0].bytes -= 1; }));
  EXPECT_TRUE(changed([](Plan &p) { p.channels[1].offset -= 1; }));
  EXPECT_TRUE(changed([](Plan &p) { p.channels[1].generations = 2; }));
  EXPECT_TRUE(changed([](Plan &p) { p.channels.pop_back(); }));
  EXPECT_TRUE(changed([](Plan &p) { p.channels[1].asksForNccl = true; }));
  EXPECT_TRUE(changed([](Plan &p) { p.channels[1].groupStride = 2; }));
  EXPECT_TRUE(changed([](Plan &p) { p.channels[1].groupSize = 2; }));
  EXPECT_TRUE(changed([](Plan &p) { p.ranks = 2; }));
}
