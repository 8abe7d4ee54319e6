//===- Scenarios.cpp - Programs of ranks on GPUs --------------------------===//

#include "Scenarios.h"

#include "CudaRank.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace shardq;
using namespace shardq::test;

extern char **environ;

static constexpr int64_t kMaxRows = 100;

int32_t shardq::test::oddRank(int32_t world) { return world - 1; }

static void sleepMs(int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

//===--- Bodies -----------------------------------------------------------===//

/// Which transport there is, and of each channel whether NCCL carries it: bits
/// of the value.
static void ways(shardq_comm *comm, const TestPlan &plan, RankResult &result) {
  shardq_context *context = shardq_comm_context(comm, 0);
  for (int32_t channel = 0; channel != plan.plan.num_channels; ++channel)
    result.value |= int64_t(shardq_rt_is_carried(context, channel)) << channel;
  result.correct =
      shardq_comm_transport(comm, result.note, sizeof(result.note)) ==
      SHARDQ_TRANSPORT_MIXED;
}

/// q and out exchanges back to back, without a word to the host.
static void layers(shardq_comm *comm, const TestPlan &plan,
                   RankResult &result) {
  CudaRank rank(comm, plan);
  int64_t count = isSanitized() ? 10 : 40;
  for (int64_t layer = 0; layer != count; ++layer)
    rank.layer();
  result.correct = rank.synchronize() && rank.countWrong() == 0 &&
                   rank.countRounds() == uint64_t(2 * count);
  result.value = static_cast<int64_t>(rank.countWrong());
}

/// One exchange by itself, in two generations.
static void lone(shardq_comm *comm, const TestPlan &plan, RankResult &result) {
  CudaRank rank(comm, plan);
  int64_t count = isSanitized() ? 15 : 60;
  for (int64_t round = 0; round != count; ++round)
    rank.exchange(0);
  result.correct = rank.synchronize() && rank.countWrong() == 0 &&
                   rank.countRounds() == uint64_t(count);
}

/// Exchanges that begin and end around another, as gathered KV does, eagerly
/// and in a graph.
static void runAround(shardq_comm *comm, const TestPlan &plan,
                      RankResult &result,
                      void (CudaRank::*overlap)(int32_t outer, int32_t inner)) {
  CudaRank rank(comm, plan);
  int64_t count = isSanitized() ? 5 : 20;
  for (int64_t round = 0; round != count; ++round)
    (rank.*overlap)(0, 1);
  CapturedGraph captured = rank.capture([&] {
    (rank.*overlap)(0, 1);
    (rank.*overlap)(1, 0);
  });
  bool launched = static_cast<bool>(captured);
  for (int64_t replay = 0; launched && replay != count; ++replay)
    launched = captured.launch(rank.stream);
  (rank.*overlap)(1, 0);
  result.correct = launched && rank.synchronize() && rank.countWrong() == 0 &&
                   rank.countRounds() == uint64_t(3 * count + 1);
  result.value = static_cast<int64_t>(rank.countWrong());
}

static void overlap(shardq_comm *comm, const TestPlan &plan,
                    RankResult &result) {
  runAround(comm, plan, result, &CudaRank::overlap);
}

/// Pushed and signalled aside.
static void aside(shardq_comm *comm, const TestPlan &plan, RankResult &result) {
  runAround(comm, plan, result, &CudaRank::aside);
}

/// Two micro-batches, each with a stream aside.
static void asideSlots(shardq_comm *comm, const TestPlan &plan,
                       RankResult &result) {
  CudaRank first(comm, plan, 0), second(comm, plan, 1);
  int64_t count = isSanitized() ? 5 : 20;
  for (int64_t round = 0; round != count; ++round) {
    first.aside(0, 1);
    second.aside(1, 0);
  }
  result.correct = first.synchronize() && second.synchronize() &&
                   first.countWrong() == 0 && second.countWrong() == 0 &&
                   first.countRounds() == uint64_t(count) &&
                   second.countRounds() == uint64_t(count);
}

/// Keeps a graph for longer than any communicator.
static void keep(CapturedGraph graph) {
  static std::mutex mutex;
  static auto &kept = *new std::vector<CapturedGraph>;
  std::lock_guard<std::mutex> lock(mutex);
  kept.push_back(std::move(graph));
}

/// A graph of one layer, replayed; counts change from replay to replay. Eager
/// calls before and after it.
static void graph(shardq_comm *comm, const TestPlan &plan, RankResult &result) {
  CudaRank rank(comm, plan);
  const char *text = std::getenv("SHARDQ_TEST_REPLAYS");
  int64_t replays = text ? std::atoll(text) : isSanitized() ? 10 : 50;
  rank.layer();
  CapturedGraph captured = rank.capture([&] { rank.layer(); });
  bool launched = static_cast<bool>(captured);
  for (int64_t replay = 0; launched && replay != replays; ++replay)
    launched = captured.launch(rank.stream);
  rank.layer();
  result.correct = launched && rank.synchronize() && rank.countWrong() == 0 &&
                   rank.countRounds() == uint64_t(2 * replays + 4);
  result.value = static_cast<int64_t>(rank.countRounds());
}

/// Two micro-batches on two streams, interleaved.
static void slots(shardq_comm *comm, const TestPlan &plan, RankResult &result) {
  CudaRank first(comm, plan, 0), second(comm, plan, 1);
  int64_t count = isSanitized() ? 5 : 20;
  for (int64_t layer = 0; layer != count; ++layer) {
    first.exchange(0);
    second.exchange(0);
    second.exchange(1);
    first.exchange(1);
  }
  result.correct = first.synchronize() && second.synchronize() &&
                   first.countWrong() == 0 && second.countWrong() == 0 &&
                   first.countRounds() == uint64_t(2 * count) &&
                   second.countRounds() == uint64_t(2 * count);
}

/// One rank comes 200 ms late, twice; the others wait.
static void delayed(shardq_comm *comm, const TestPlan &plan,
                    RankResult &result) {
  CudaRank rank(comm, plan);
  bool late = shardq_comm_rank(comm) == oddRank(shardq_comm_world(comm));
  for (int i = 0; i != 2; ++i) {
    if (late)
      sleepMs(200);
    rank.layer();
  }
  result.correct = rank.synchronize() && rank.countWrong() == 0;
}

/// One rank stops after the first layer, and later finds the group failed.
static void deadline(shardq_comm *comm, const TestPlan &plan,
                     RankResult &result) {
  CudaRank rank(comm, plan);
  bool late = shardq_comm_rank(comm) == oddRank(shardq_comm_world(comm));
  rank.layer();
  if (!late) {
    rank.exchange(0);
    bool ended = rank.synchronize();
    // The whole inbox is poison.
    result.value = static_cast<int64_t>(rank.countClean(0));
    result.correct = ended && result.value == 0;
    return;
  }
  while (isOk(rank.context))
    sleepMs(5);
  result.correct = rank.synchronize();
}

/// Faults are injected by the scenario's text.
static void runFaulty(shardq_comm *comm, const TestPlan &plan,
                      RankResult &result,
                      const std::function<void(CudaRank &)> &layer) {
  CudaRank rank(comm, plan);
  for (int i = 0; i != 4; ++i)
    layer(rank);
  result.correct = rank.synchronize();
  // What the others found arrives within a few ticks of the watchdog.
  for (int i = 0; i != 5000 && isOk(rank.context); ++i)
    sleepMs(1);
}

static void faulty(shardq_comm *comm, const TestPlan &plan,
                   RankResult &result) {
  runFaulty(comm, plan, result, [](CudaRank &rank) { rank.layer(); });
}

static void faultyAside(shardq_comm *comm, const TestPlan &plan,
                        RankResult &result) {
  runFaulty(comm, plan, result, [](CudaRank &rank) { rank.aside(0, 1); });
}

static void faultyOverlap(shardq_comm *comm, const TestPlan &plan,
                          RankResult &result) {
  runFaulty(comm, plan, result, [](CudaRank &rank) { rank.overlap(0, 1); });
}

/// The first rank waits on one channel for the second, which waits on another
/// for the third, which is late. The second begins so late that the first is at
/// its end before it.
static void chain(shardq_comm *comm, const TestPlan &plan, RankResult &result) {
  CudaRank rank(comm, plan);
  int32_t me = shardq_comm_rank(comm);
  if (me == 1)
    sleepMs(shortDeadlineMs() / 4);
  if (me == 1 || me == 2)
    rank.meet(1, 1);
  if (me == 0 || me == 1)
    rank.meet(0, 0);
  result.correct = rank.synchronize();
  for (int i = 0; i != 5000 && isOk(rank.context); ++i)
    sleepMs(1);
}

/// Of two hosts of two ranks each: the second rank of this one waits for the
/// first, which waits for the first of the other one, which waits for the
/// second there, which is late. Within hosts by one channel, between them by
/// another.
static void chainOverHosts(shardq_comm *comm, const TestPlan &plan,
                           RankResult &result) {
  CudaRank rank(comm, plan);
  int32_t me = shardq_comm_rank(comm);
  constexpr int64_t kHosts = 2; // ranks of a host are that far apart
  if (me == 1 || me == 3)
    rank.meet(0, 1, kHosts);
  if (me == 0 || me == 1)
    rank.meet(1, 0);
  if (me == 0 || me == 2)
    rank.meet(0, 0, kHosts);
  result.correct = rank.synchronize();
  for (int i = 0; i != 5000 && isOk(rank.context); ++i)
    sleepMs(1);
}

/// The same in a graph that is replayed, which is the result.
static CapturedGraph replayFaulty(shardq_comm *comm, const TestPlan &plan,
                                  RankResult &result) {
  CudaRank rank(comm, plan);
  rank.layer();
  CapturedGraph captured = rank.capture([&] { rank.layer(); });
  for (int i = 0; i != 4; ++i)
    captured.launch(rank.stream);
  result.correct = static_cast<bool>(captured) && rank.synchronize() &&
                   rank.countClean(1) == 0;
  for (int i = 0; i != 5000 && isOk(rank.context); ++i)
    sleepMs(1);
  return captured;
}

static void faultyGraph(shardq_comm *comm, const TestPlan &plan,
                        RankResult &result) {
  replayFaulty(comm, plan, result);
}

static void faultyGraphStays(shardq_comm *comm, const TestPlan &plan,
                             RankResult &result) {
  keep(replayFaulty(comm, plan, result));
}

/// A graph that is still there when the communicator goes.
static void graphStays(shardq_comm *comm, const TestPlan &plan,
                       RankResult &result) {
  CudaRank rank(comm, plan);
  rank.layer();
  CapturedGraph captured = rank.capture([&] { rank.layer(); });
  bool launched = captured.launch(rank.stream);
  result.correct = launched && rank.synchronize() && rank.countWrong() == 0;
  keep(std::move(captured));
}

/// One rank destroys its communicator while the others wait for it.
static void leaving(shardq_comm *comm, const TestPlan &plan,
                    RankResult &result) {
  CudaRank rank(comm, plan);
  bool leaves = shardq_comm_rank(comm) == oddRank(shardq_comm_world(comm));
  rank.layer();
  result.correct = rank.synchronize() && rank.countWrong() == 0;
  if (leaves)
    return;
  rank.layer();
  rank.synchronize();
}

/// One rank calls shardq_comm_abort while the others wait in kernels.
static void aborting(shardq_comm *comm, const TestPlan &plan,
                     RankResult &result) {
  CudaRank rank(comm, plan);
  rank.layer();
  result.correct = rank.synchronize() && rank.countWrong() == 0;
  if (shardq_comm_rank(comm) == oddRank(shardq_comm_world(comm))) {
    sleepMs(50);
    shardq_comm_abort(comm);
    return;
  }
  rank.layer();
  result.correct = result.correct && rank.synchronize();
}

/// Something that one rank does wrong between two layers, and may learn of
/// itself by the time that the streams have ended. The streams go on.
static void
runWithMistake(shardq_comm *comm, const TestPlan &plan, RankResult &result,
               const std::function<void(CudaRank &, void *device)> &mistake) {
  CudaRank rank(comm, plan);
  rank.layer();
  if (shardq_comm_rank(comm) == oddRank(shardq_comm_world(comm)))
    mistake(rank, shardq_rt_device(rank.context));
  rank.layer();
  result.correct = rank.synchronize();
  for (int i = 0; i != 2000 && isOk(rank.context); ++i)
    sleepMs(1);
}

/// More rows than the plan holds.
static void capacity(shardq_comm *comm, const TestPlan &plan,
                     RankResult &result) {
  runWithMistake(comm, plan, result, [](CudaRank &rank, void *device) {
    int32_t channel = 1, operation = 1;
    int64_t rows = 1'000'000, rowBytes = 32;
    cuda::Address admitted = 0;
    rank.driver.allocate(&admitted, 8);
    rank.launch(kTestAdmit, 2,
                {&device, &channel, &operation, &rows, &rowBytes, &admitted});
  });
}

/// A token without a place in its table.
static void beyond(shardq_comm *comm, const TestPlan &plan,
                   RankResult &result) {
  runWithMistake(comm, plan, result, [](CudaRank &rank, void *device) {
    int64_t block = 9, request = 3, requests = 4, width = 8;
    rank.launch(kTestBeyond, 2, {&device, &block, &request, &requests, &width});
  });
}

/// A token whose entry in the table is none.
static void noPlace(shardq_comm *comm, const TestPlan &plan,
                    RankResult &result) {
  runWithMistake(comm, plan, result, [](CudaRank &rank, void *device) {
    int64_t block = 9, request = 3, entry = -1;
    rank.launch(kTestNoPlace, 2, {&device, &block, &request, &entry});
  });
}

/// A row whose slot the cache has not.
static void beyondCache(shardq_comm *comm, const TestPlan &plan,
                        RankResult &result) {
  runWithMistake(comm, plan, result, [](CudaRank &rank, void *device) {
    int64_t slot = 5'000'000'000, row = 7, rows = 4096;
    rank.launch(kTestBeyondCache, 2, {&device, &slot, &row, &rows});
  });
}

/// Decode rows that end within a request.
static void splitRequest(shardq_comm *comm, const TestPlan &plan,
                         RankResult &result) {
  runWithMistake(comm, plan, result, [](CudaRank &rank, void *device) {
    int64_t decodes = 2, request = 0, end = 4;
    rank.launch(kTestSplitRequest, 2, {&device, &decodes, &request, &end});
  });
}

/// Sizes that the host finds to disagree.
static void sizes(shardq_comm *comm, const TestPlan &plan, RankResult &result) {
  runWithMistake(comm, plan, result, [](CudaRank &rank, void *) {
    shardq_rt_expect(rank.context, "rows of a list", 5, 4);
  });
}

static const Scenario kScenarios[] = {
    {"ways", {1, 1}, 1, 30'000, "", ways},
    {"layers", {1, 1}, 1, 30'000, "", layers},
    {"lone", {2}, 1, 30'000, "", lone},
    {"overlap", {2, 2}, 1, 30'000, "", overlap},
    {"aside", {2, 2}, 1, 30'000, "", aside},
    {"aside-slots", {2, 2}, 2, 30'000, "", asideSlots},
    {"aside-stall",
     {2, 2},
     1,
     0,
     "operation=0,epoch=3,action=stall",
     faultyAside},
    {"aside-wrong-rows",
     {2, 2},
     1,
     30'000,
     "operation=0,epoch=2,action=wrong-rows",
     faultyAside},
    {"graph", {1, 1}, 1, 30'000, "", graph},
    {"graph-stays", {1, 1}, 1, 30'000, "", graphStays},
    {"slots", {1, 1}, 2, 30'000, "", slots},
    {"delayed", {1, 1}, 1, 30'000, "", delayed},
    {"deadline", {1, 1}, 1, 0, "", deadline},
    {"leaving", {1, 1}, 1, 30'000, "", leaving},
    {"aborting", {1, 1}, 1, 30'000, "", aborting},
    {"capacity", {1, 1}, 1, 30'000, "", capacity},
    {"beyond", {1, 1}, 1, 30'000, "", beyond},
    {"no-place", {1, 1}, 1, 30'000, "", noPlace},
    {"beyond-cache", {1, 1}, 1, 30'000, "", beyondCache},
    {"split-request", {1, 1}, 1, 30'000, "", splitRequest},
    {"sizes", {1, 1}, 1, 30'000, "", sizes},
    {"stall", {1, 1}, 1, 0, "epoch=3,action=stall", faulty},
    {"drop-flag", {1, 1}, 1, 0, "operation=1,epoch=2,action=drop-flag", faulty},
    {"wrong-rows", {1, 1}, 1, 30'000, "epoch=2,action=wrong-rows", faulty},
    {"wrong-operation",
     {1, 1},
     1,
     30'000,
     "operation=0,epoch=2,action=wrong-operation",
     faulty},
    {"overlap-stall",
     {2, 2},
     1,
     0,
     "operation=1,epoch=2,action=stall",
     faultyOverlap},
    {"overlap-drop-flag",
     {2, 2},
     1,
     0,
     "operation=1,epoch=2,action=drop-flag",
     faultyOverlap},
    {"chain-stall", {1, 1}, 1, 0, "operation=1,action=stall", chain},
    {"chain-over-hosts",
     {1, 1},
     1,
     0,
     "operation=0,action=stall",
     chainOverHosts},
    {"chain-drop-flag", {1, 1}, 1, 0, "operation=1,action=drop-flag", chain},
    {"faulty", {1, 1}, 1, 30'000, "", faulty},
    {"hanging", {1, 1}, 1, 0, "", faulty},
    {"graph-wrong-rows",
     {1, 1},
     1,
     30'000,
     "operation=1,epoch=3,action=wrong-rows",
     faultyGraph},
    {"graph-stall", {1, 1}, 1, 0, "epoch=3,action=stall", faultyGraph},
    {"graph-stays-stall",
     {1, 1},
     1,
     0,
     "epoch=3,action=stall",
     faultyGraphStays},
    {"kill", {1, 1}, 1, 30'000, "operation=1,epoch=3,action=kill", faulty},
};

const Scenario *shardq::test::findScenario(const std::string &name) {
  for (const Scenario &scenario : kScenarios)
    if (name == scenario.name)
      return &scenario;
  return nullptr;
}

//===--- Running them -----------------------------------------------------===//

int shardq::test::deviceOf(int32_t rank) {
  if (std::getenv("SHARDQ_TEST_ONE_DEVICE"))
    return 0;
  std::string why;
  int devices = countCudaDevices(why);
  return devices ? rank % devices : 0;
}

namespace {

/// The environment's SHARDQ_TEST_HOSTS is how many hosts ranks are dealt over.
int32_t countHosts() {
  const char *text = std::getenv("SHARDQ_TEST_HOSTS");
  return text ? std::clamp(std::atoi(text), 1, 4) : 1;
}

const char *hostOf(int32_t rank) {
  static const char *const kNames[] = {"a", "b", "c", "d"};
  return countHosts() > 1 ? kNames[rank % countHosts()] : nullptr;
}

/// A scenario for a number of ranks.
struct Run {
  Run(const char *name, int32_t world, int32_t transport)
      : scenario(*findScenario(name)),
        plan(world, kMaxRows, scenario.slots, scenario.generations) {
    if (*scenario.fault)
      fault = "rank=" + std::to_string(oddRank(world)) + "," + scenario.fault;
    options.fault = fault.c_str();
    options.deadlineMs =
        scenario.deadlineMs ? scenario.deadlineMs : shortDeadlineMs();
    if (transport >= stayingOnHosts(0))
      plan.group(transport - stayingOnHosts(0), countHosts(),
                 world / countHosts());
    else if (transport >= carrying(0))
      plan.carry(transport - carrying(0));
    if (transport >= SHARDQ_TRANSPORT_MIXED)
      transport = SHARDQ_TRANSPORT_AUTO;
    options.adjust = [transport](int32_t rank, shardq_comm_options &comm) {
      comm.memory = SHARDQ_MEMORY_CUDA;
      comm.cuda_device = deviceOf(rank);
      comm.arena_bytes = 1 << 18;
      comm.transport = transport;
      comm.host = hostOf(rank);
    };
    body = [this](shardq_comm *comm, RankResult &result) {
      scenario.body(comm, plan, result);
    };
  }

  const Scenario &scenario;
  TestPlan plan;
  std::string fault;
  RankOptions options;
  RankBody body;
};

} // namespace

std::vector<RankResult>
shardq::test::runOnThreads(const char *name, int32_t world, int32_t transport) {
  Run run(name, world, transport);
  ThreadRoom room(world);
  return runThreads(world, run.plan.plan, run.options, run.body);
}

static std::string resultPath(const std::string &directory, int32_t rank) {
  return directory + "/result." + std::to_string(rank);
}

int shardq::test::rankMain(char **argv) {
  int32_t rank = std::atoi(argv[3]), world = std::atoi(argv[4]);
  std::string directory = argv[5];
  int32_t transport = std::atoi(argv[6]);
  // A hang is a failed test, not a stuck one.
  alarm(120);
  Run run(argv[2], world, transport);
  shardq_bootstrap *bootstrap = nullptr;
  shardq_bootstrap_files(directory.c_str(), rank, world, &bootstrap);
  RankResult result{};
  runRank(bootstrap, rank, world, run.plan.plan, run.options, run.body, result);
  shardq_bootstrap_destroy(bootstrap);
  std::FILE *file = std::fopen(resultPath(directory, rank).c_str(), "wb");
  if (!file)
    return 1;
  std::fwrite(&result, sizeof(result), 1, file);
  return std::fclose(file);
}

std::vector<RankResult> shardq::test::runOnProcesses(const char *name,
                                                     int32_t world,
                                                     int32_t transport) {
  TemporaryDirectory directory;
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank != world; ++rank) {
    std::string words[] = {"/proc/self/exe",
                           "--rank",
                           name,
                           std::to_string(rank),
                           std::to_string(world),
                           directory.path(),
                           std::to_string(transport)};
    std::vector<char *> arguments;
    for (std::string &word : words)
      arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    EXPECT_EQ(posix_spawn(&child, words[0].c_str(), nullptr, nullptr,
                          arguments.data(), environ),
              0);
    children.push_back(child);
  }
  std::vector<RankResult> results(static_cast<size_t>(world));
  for (int32_t rank = 0; rank != world; ++rank) {
    size_t index = static_cast<size_t>(rank);
    waitpid(children[index], nullptr, 0);
    if (std::FILE *file =
            std::fopen(resultPath(directory.path(), rank).c_str(), "rb")) {
      if (std::fread(&results[index], sizeof(RankResult), 1, file) != 1)
        results[index] = {};
      std::fclose(file);
    }
  }
  return results;
}
