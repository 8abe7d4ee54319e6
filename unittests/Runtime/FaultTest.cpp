//===- FaultTest.cpp - Reading fault texts --------------------------------===//

#include "host/Fault.h"

#include <gtest/gtest.h>

using namespace shardq;

TEST(Fault, Reads) {
  Fault fault;
  ASSERT_FALSE(
      Fault::parse("rank=2,operation=1,epoch=3,action=kill", fault).failed());
  EXPECT_EQ(fault.rank, 2);
  EXPECT_EQ(fault.action, Fault::Action::Kill);
  EXPECT_TRUE(fault.strikes(0, 1, 3));
  EXPECT_FALSE(fault.strikes(0, 1, 4));
  EXPECT_FALSE(fault.strikes(0, 2, 3));

  ASSERT_FALSE(Fault::parse("action=drop-flag,rank=0,slot=1", fault).failed());
  EXPECT_TRUE(fault.strikes(1, 9, 9));
  EXPECT_FALSE(fault.strikes(0, 9, 9));
}

TEST(Fault, EmptyIsNone) {
  Fault fault;
  EXPECT_FALSE(Fault::parse("", fault).failed());
  EXPECT_FALSE(fault.strikes(0, 0, 0));
}

TEST(Fault, RefusesNonsense) {
  for (const char *text :
       {"rank", "rank=", "rank=1", "action=kill", "rank=-1,action=kill",
        "rank=1x,action=kill", "rank=1,action=explode", "rank=1,,action=kill",
        "rank=99999999999999999999,action=kill", "who=1,action=kill", ",", "=",
        "rank=1;action=kill", "rank=1,epoch=,action=stall"}) {
    Fault fault;
    Outcome outcome = Fault::parse(text, fault);
    EXPECT_EQ(outcome.status, SHARDQ_INVALID) << text;
    EXPECT_EQ(outcome.text.rfind("fault: ", 0), 0u) << outcome.text;
    EXPECT_FALSE(fault.strikes(0, 0, 0)) << text;
  }
}
