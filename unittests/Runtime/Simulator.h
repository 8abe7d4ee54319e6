//===- Simulator.h - The protocol under a seeded scheduler ------*- C++ -*-===//
//
// A memory policy for protocol/Protocol.h in which every access is a step that
// a seeded scheduler orders, and in which plain stores take effect late and out
// of order until a release. A seed gives one interleaving, always the same.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_SIMULATOR_H
#define SHARDQ_UNITTESTS_RUNTIME_SIMULATOR_H

#include "protocol/Protocol.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <vector>

namespace shardq::test {

/// What is wrong with the program or the memory of a simulation.
enum class Mutant {
  None,
  NoRelease,    // the flag may pass the rows
  SilentEmpty,  // rank 0 has no rows and does not signal
  NoWaitEmpty,  // rank 0 has no rows and does not wait for the out exchange
  OneGeneration // a lone exchange with a single buffer
};

struct Simulation {
  int64_t world = 2;
  int64_t layers = 3;
  bool alternate = true; // q and out exchange, else one lone exchange
  uint64_t generations = 1;
  uint64_t startEpoch = 0;
  Mutant mutant = Mutant::None;
};

enum class SimulationEnd { Correct, StaleRow, Deadlock, Refused };

/// Runs a simulation once.
SimulationEnd simulate(const Simulation &simulation, uint64_t seed);

} // namespace shardq::test

#endif // SHARDQ_UNITTESTS_RUNTIME_SIMULATOR_H
