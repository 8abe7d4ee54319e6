//===- SimulatorTest.cpp - Seeded interleavings of the protocol -----------===//

#include "Simulator.h"

#include "Ranks.h"

#include <gtest/gtest.h>
#include <set>

using namespace shardq::test;

namespace {

uint64_t seeds() { return isSanitized() ? 40 : 120; }

void expectCorrect(const Simulation &simulation) {
  for (uint64_t seed = 1; seed <= seeds(); ++seed)
    ASSERT_EQ(simulate(simulation, seed), SimulationEnd::Correct)
        << "seed " << seed;
}

/// How a mutant ends, over all seeds.
std::set<SimulationEnd> endsOf(const Simulation &simulation) {
  std::set<SimulationEnd> ends;
  for (uint64_t seed = 1; seed <= seeds(); ++seed)
    ends.insert(simulate(simulation, seed));
  return ends;
}

} // namespace

TEST(Simulator, AlternatingExchangesNeedOneBuffer) {
  for (int64_t world : {2, 3, 4}) {
    Simulation simulation;
    simulation.world = world;
    expectCorrect(simulation);
  }
}

TEST(Simulator, LoneExchangeNeedsTwo) {
  for (int64_t world : {2, 3}) {
    Simulation simulation;
    simulation.world = world;
    simulation.layers = 5;
    simulation.alternate = false;
    simulation.generations = 2;
    expectCorrect(simulation);
    simulation.generations = 1;
    simulation.mutant = Mutant::OneGeneration;
    EXPECT_TRUE(endsOf(simulation).count(SimulationEnd::StaleRow));
  }
}

TEST(Simulator, EpochsWrapAround) {
  for (uint64_t start : {UINT64_MAX - 1, uint64_t(INT64_MAX) - 1}) {
    Simulation simulation;
    simulation.layers = 4;
    simulation.startEpoch = start;
    expectCorrect(simulation);
    simulation.alternate = false;
    simulation.generations = 2;
    expectCorrect(simulation);
  }
}

TEST(Simulator, NoReleaseIsFound) {
  Simulation simulation;
  simulation.mutant = Mutant::NoRelease;
  std::set<SimulationEnd> ends = endsOf(simulation);
  EXPECT_TRUE(ends.count(SimulationEnd::StaleRow) ||
              ends.count(SimulationEnd::Refused));
}

TEST(Simulator, SilentEmptyRankIsFound) {
  Simulation simulation;
  simulation.world = 3;
  simulation.mutant = Mutant::SilentEmpty;
  EXPECT_EQ(endsOf(simulation), std::set{SimulationEnd::Deadlock});
}

TEST(Simulator, EmptyRankThatDoesNotWaitIsFound) {
  Simulation simulation;
  simulation.world = 3;
  simulation.layers = 4;
  simulation.mutant = Mutant::NoWaitEmpty;
  std::set<SimulationEnd> ends = endsOf(simulation);
  EXPECT_TRUE(ends.count(SimulationEnd::StaleRow) ||
              ends.count(SimulationEnd::Refused));
}

TEST(Simulator, SeedsRepeat) {
  Simulation simulation;
  simulation.alternate = false;
  simulation.mutant = Mutant::OneGeneration;
  for (uint64_t seed = 1; seed <= 40; ++seed)
    EXPECT_EQ(simulate(simulation, seed), simulate(simulation, seed));
}
