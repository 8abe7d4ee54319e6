//===- Simulator.cpp - The protocol under a seeded scheduler --------------===//

#include "Simulator.h"

#include <atomic>
#include <thread>

using namespace shardq;
using namespace shardq::test;

namespace {

/// The ranks, of which one runs at a time, and their memory.
class Machine {
public:
  Machine(int64_t ranks, uint64_t seed, bool hasRelease)
      : random(seed), hasRelease(hasRelease), states(size_t(ranks)),
        turn(size_t(ranks)) {}

  void enter(int64_t rank) {
    std::unique_lock<std::mutex> lock(mutex);
    if (++entered == states.size())
      pickNext();
    turn[size_t(rank)].wait(lock, [&] { return current == rank; });
  }

  void leave(int64_t rank) {
    std::lock_guard<std::mutex> lock(mutex);
    // What it stored still takes effect some time.
    drain(rank);
    states[size_t(rank)].done = true;
    pickNext();
  }

  uint64_t load(int64_t rank, const uint64_t &word) {
    step(rank);
    // A rank sees its own stores at once, as processors do.
    auto &pending = states[size_t(rank)].pending;
    for (size_t i = pending.size(); i != 0; --i)
      if (pending[i - 1].word == &word)
        return pending[i - 1].value;
    return word;
  }

  void store(int64_t rank, uint64_t &word, uint64_t value, bool release) {
    step(rank);
    idleSteps = 0;
    if (release && hasRelease) {
      drain(rank);
      word = value;
      return;
    }
    states[size_t(rank)].pending.push_back({&word, value});
  }

  /// A fruitless look at a flag. False once nobody can ever proceed.
  bool idle(int64_t rank) {
    step(rank, /*mayStay=*/false);
    // With a fair coin, everybody has looked many times by then.
    if (++idleSteps > 80 * states.size())
      stuck = true;
    return !stuck;
  }

  bool isStuck() const { return stuck; }

private:
  struct Store {
    uint64_t *word;
    uint64_t value;
  };
  struct State {
    bool done = false;
    std::vector<Store> pending;
  };

  void step(int64_t rank, bool mayStay = true) {
    std::unique_lock<std::mutex> lock(mutex);
    // Any store of any rank may take effect now; those to one word keep their
    // order.
    State &other = states[random() % states.size()];
    if (!other.pending.empty() && random() % 4 == 0) {
      size_t index = random() % other.pending.size();
      for (size_t i = 0; i < index; ++i)
        if (other.pending[i].word == other.pending[index].word)
          index = i;
      *other.pending[index].word = other.pending[index].value;
      other.pending.erase(other.pending.begin() + ptrdiff_t(index));
      idleSteps = 0;
    }
    // Runs of one rank, long and short: a rank far ahead of the others finds
    // more than ranks in step, and switching threads is what takes the time.
    if (mayStay && random() % 4 != 0)
      return;
    pickNext();
    turn[size_t(rank)].wait(lock, [&] { return current == rank; });
  }

  void drain(int64_t rank) {
    State &state = states[size_t(rank)];
    for (const Store &store : state.pending)
      *store.word = store.value;
    state.pending.clear();
  }

  void pickNext() {
    std::vector<int64_t> ready;
    for (size_t rank = 0; rank != states.size(); ++rank)
      if (!states[rank].done)
        ready.push_back(int64_t(rank));
    if (ready.empty())
      return;
    current = ready[random() % ready.size()];
    turn[size_t(current)].notify_one();
  }

  std::mt19937_64 random;
  const bool hasRelease;
  std::mutex mutex;
  std::vector<State> states;
  std::vector<std::condition_variable> turn;
  size_t entered = 0;
  int64_t current = -1;
  size_t idleSteps = 0;
  bool stuck = false;
};

/// The policy: one rank's view of the machine.
class SimulatedMemory {
public:
  SimulatedMemory(Machine &machine, int64_t rank)
      : machine(machine), rank(rank) {}

  uint64_t loadAcquire(const uint64_t &word) {
    return machine.load(rank, word);
  }
  void storeRelease(uint64_t &word, uint64_t value) {
    machine.store(rank, word, value, true);
  }
  protocol::Flag loadAcquire(const protocol::Flag &flag) {
    return protocol::loadByWords(*this, flag);
  }
  void storeRelease(protocol::Flag &flag, const protocol::Flag &value) {
    protocol::storeByWords(*this, flag, value);
  }
  int64_t load(const int64_t &word) {
    return int64_t(
        machine.load(rank, reinterpret_cast<const uint64_t &>(word)));
  }
  void store(int64_t &word, int64_t value) {
    machine.store(rank, reinterpret_cast<uint64_t &>(word), uint64_t(value),
                  false);
  }
  void ring(int64_t, int64_t) {}
  bool keepWaiting(int64_t) { return machine.idle(rank); }

private:
  Machine &machine;
  const int64_t rank;
};

/// Symmetric memory of the simulated ranks: flags and one word per row block.
class World {
public:
  World(const Simulation &simulation)
      : simulation(simulation),
        lines(size_t(simulation.world * simulation.world) * 2 *
              protocol::kFlagLines),
        rows(size_t(simulation.world * simulation.world) * 2 * 2) {
    for (protocol::FlagLine &line : lines)
      line.flag.epoch = simulation.startEpoch;
  }

  protocol::FlagTable table() {
    uint64_t stride = uint64_t(simulation.world) * 2 * protocol::kFlagLines *
                      sizeof(protocol::FlagLine);
    return {reinterpret_cast<char *>(lines.data()), stride, 0, 2,
            simulation.world};
  }

  int64_t &row(int64_t consumer, int64_t channel, uint64_t epoch,
               int64_t producer) {
    uint64_t generation = epoch % simulation.generations;
    int64_t index = (consumer * 2 + channel) * 2 + int64_t(generation);
    return rows[size_t(index * simulation.world + producer)];
  }

private:
  const Simulation &simulation;
  std::vector<protocol::FlagLine> lines;
  std::vector<int64_t> rows;
};

/// One rank's program.
class Program {
public:
  Program(const Simulation &simulation, World &world, Machine &machine,
          int64_t rank)
      : simulation(simulation), world(world), memory(machine, rank),
        machine(machine), rank(rank),
        rows(size_t(simulation.world), int64_t(1)) {}

  SimulationEnd run() {
    machine.enter(rank);
    SimulationEnd end = SimulationEnd::Correct;
    for (int64_t layer = 1;
         layer <= simulation.layers && end == SimulationEnd::Correct; ++layer)
      for (int64_t channel = 0; channel != (simulation.alternate ? 2 : 1) &&
                                end == SimulationEnd::Correct;
           ++channel)
        end = exchange(channel, simulation.startEpoch + uint64_t(layer));
    machine.leave(rank);
    return end;
  }

private:
  SimulationEnd exchange(int64_t channel, uint64_t epoch) {
    bool isEmpty = rank == 0 && (simulation.mutant == Mutant::SilentEmpty ||
                                 simulation.mutant == Mutant::NoWaitEmpty);
    protocol::Exchange exchange{rank,  0,       channel,
                                epoch, channel, {0, 1, simulation.world}};
    protocol::FlagTable table = world.table();
    bool isSilent = isEmpty && simulation.mutant == Mutant::SilentEmpty;
    if (!isSilent) {
      for (int64_t consumer = 0; consumer != simulation.world; ++consumer)
        memory.store(world.row(consumer, channel, epoch, rank), int64_t(epoch));
      protocol::signal(memory, table, exchange, rows.data());
    }
    if (isEmpty && simulation.mutant == Mutant::NoWaitEmpty && channel == 1)
      return SimulationEnd::Correct;
    protocol::Verdict verdict =
        protocol::wait(memory, table, exchange, rows.data());
    if (verdict.arrival == protocol::Arrival::Stopped)
      return SimulationEnd::Deadlock;
    if (verdict.arrival != protocol::Arrival::Here)
      return SimulationEnd::Refused;
    // Twice, as a kernel reads rows for as long as it runs.
    for (int pass = 0; pass != 2; ++pass)
      for (int64_t producer = 0; producer != simulation.world; ++producer)
        if (memory.load(world.row(rank, channel, epoch, producer)) !=
            int64_t(epoch))
          return SimulationEnd::StaleRow;
    return SimulationEnd::Correct;
  }

  const Simulation &simulation;
  World &world;
  SimulatedMemory memory;
  Machine &machine;
  const int64_t rank;
  std::vector<int64_t> rows;
};

} // namespace

SimulationEnd shardq::test::simulate(const Simulation &simulation,
                                     uint64_t seed) {
  World world(simulation);
  Machine machine(simulation.world, seed,
                  simulation.mutant != Mutant::NoRelease);
  std::vector<SimulationEnd> ends(size_t(simulation.world));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank != simulation.world; ++rank)
    threads.emplace_back([&, rank] {
      ends[size_t(rank)] = Program(simulation, world, machine, rank).run();
    });
  for (std::thread &thread : threads)
    thread.join();
  // A rank that ended early starves the others: its own end is the reason.
  SimulationEnd worst = SimulationEnd::Correct;
  for (SimulationEnd end : ends)
    if (end != SimulationEnd::Correct &&
        (worst == SimulationEnd::Correct || worst == SimulationEnd::Deadlock))
      worst = end;
  return worst;
}
