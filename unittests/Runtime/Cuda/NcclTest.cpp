//===- NcclTest.cpp - Exchanges that NCCL carries -------------------------===//
//
// The programs of CudaTest.cpp once more, over NCCL; skipped without one. A
// real NCCL wants a device for each rank.
//
//===----------------------------------------------------------------------===//

#include "CudaRank.h"
#include "Scenarios.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>

using namespace shardq;
using namespace shardq::test;

namespace {

/// Hosts: processes whose ranks say that they are on two.
enum class Kind { Threads, Processes, Hosts };

/// Sets a variable for a test.
class Variable {
public:
  Variable(const char *name, const std::string &value) : name(name) {
    if (const char *text = std::getenv(name))
      before = text;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before.empty())
      unsetenv(name);
    else
      setenv(name, before.c_str(), 1);
  }
  Variable(const Variable &) = delete;

private:
  const char *name;
  std::string before;
};

class Nccl : public testing::Test {
protected:
  void SetUp() override {
    std::string why;
    devices = countCudaDevices(why);
    if (devices == 0)
      GTEST_SKIP() << "no CUDA device: " << why;
    const nccl::Library *library = nullptr;
    if (Outcome outcome = nccl::Library::get(library); outcome.failed())
      GTEST_SKIP() << outcome.text;
  }

  static bool isFake() {
    const char *path = std::getenv("SHARDQ_NCCL");
    return path && std::strstr(path, "libShardQFakeCuda");
  }

  void expectCorrect(const std::vector<RankResult> &results) {
    for (const RankResult &result : results) {
      EXPECT_TRUE(result.ran);
      EXPECT_EQ(result.created, SHARDQ_OK) << result.message;
      EXPECT_EQ(result.status, SHARDQ_OK) << result.message;
      EXPECT_TRUE(result.correct) << result.value;
    }
  }

  /// All ranks but `without` report the same.
  void expectFailure(const std::vector<RankResult> &results,
                     shardq_status status, int32_t culprit,
                     const std::string &text, int32_t without = -1) {
    for (size_t rank = 0; rank != results.size(); ++rank) {
      const RankResult &result = results[rank];
      if (static_cast<int32_t>(rank) == without)
        continue;
      EXPECT_TRUE(result.ran) << "rank " << rank;
      EXPECT_EQ(result.created, SHARDQ_OK) << result.message;
      EXPECT_EQ(result.status, status) << "rank " << rank << result.message;
      EXPECT_EQ(result.error.culprit, culprit) << result.message;
      EXPECT_NE(std::string(result.message).find(text), std::string::npos)
          << result.message;
      EXPECT_TRUE(result.correct) << "rank " << rank << ' ' << result.value;
    }
  }

  /// All ranks fail to be made, alike.
  void expectRefused(const std::vector<RankResult> &results,
                     shardq_status status, const std::string &text) {
    for (const RankResult &result : results) {
      EXPECT_EQ(result.created, status) << result.message;
      EXPECT_NE(std::string(result.message).find(text), std::string::npos)
          << result.message;
    }
  }

  int devices = 0;
};

/// Of two ranks.
class NcclGraph : public Nccl {
protected:
  void SetUp() override {
    Nccl::SetUp();
    if (!IsSkipped() && !isFake() && devices < 2)
      GTEST_SKIP() << "NCCL wants 2 devices";
  }
};

class NcclRanks : public Nccl,
                  public testing::WithParamInterface<std::pair<Kind, int32_t>> {
protected:
  void SetUp() override {
    Nccl::SetUp();
    if (!IsSkipped() && !isFake() && devices < world())
      GTEST_SKIP() << "NCCL wants " << world() << " devices";
  }

  int32_t world() const { return GetParam().second; }

  std::vector<RankResult> run(const char *scenario) {
    if (GetParam().first == Kind::Hosts) {
      Variable hosts("SHARDQ_TEST_HOSTS", "2");
      return runOnProcesses(scenario, world(), SHARDQ_TRANSPORT_AUTO);
    }
    return GetParam().first == Kind::Threads
               ? runOnThreads(scenario, world(), SHARDQ_TRANSPORT_NCCL)
               : runOnProcesses(scenario, world(), SHARDQ_TRANSPORT_NCCL);
  }

  std::string odd() const { return "rank " + std::to_string(oddRank(world())); }
};

} // namespace

//===--- The programs of direct exchanges ---------------------------------===//

TEST_P(NcclRanks, LayersBackToBack) { expectCorrect(run("layers")); }
TEST_P(NcclRanks, LoneExchangeInTwoGenerations) { expectCorrect(run("lone")); }
TEST_P(NcclRanks, ExchangesInsideOthers) { expectCorrect(run("overlap")); }
TEST_P(NcclRanks, AsideInLine) { expectCorrect(run("aside")); }
TEST_P(NcclRanks, GraphReplays) { expectCorrect(run("graph")); }
TEST_P(NcclRanks, SlotsOnTwoStreams) { expectCorrect(run("slots")); }
TEST_P(NcclRanks, DelayedRank) { expectCorrect(run("delayed")); }

TEST_P(NcclRanks, DeadlineNamesTheRank) {
  expectFailure(run("deadline"), SHARDQ_DEADLINE, oddRank(world()),
                odd() + " last seen at 1");
}

TEST_P(NcclRanks, RankLeaves) {
  expectFailure(run("leaving"), SHARDQ_PEER_LEFT, oddRank(world()),
                odd() + " left the group", oddRank(world()));
}

TEST_P(NcclRanks, AbortEndsGroups) {
  expectFailure(run("aborting"), SHARDQ_ABORTED, oddRank(world()),
                odd() + " aborted the group");
}

TEST_P(NcclRanks, CapacityIsChecked) {
  expectFailure(run("capacity"), SHARDQ_CAPACITY, oddRank(world()),
                odd() + " has 1000000 rows for the inbox of");
}

TEST_P(NcclRanks, FaultStall) {
  expectFailure(run("stall"), SHARDQ_DEADLINE, oddRank(world()), odd());
}

TEST_P(NcclRanks, FaultDropFlag) {
  expectFailure(run("drop-flag"), SHARDQ_DEADLINE, oddRank(world()),
                "whose signal did not arrive");
}

TEST_P(NcclRanks, FaultWrongRows) {
  expectFailure(run("wrong-rows"), SHARDQ_WRONG_ROWS, oddRank(world()),
                odd() + " pushed");
}

TEST_P(NcclRanks, FaultWrongOperation) {
  expectFailure(run("wrong-operation"), SHARDQ_WRONG_OPERATION,
                oddRank(world()), odd() + " ran out exchange 1 of @test");
}

TEST_P(NcclRanks, FaultWrongRowsInAGraph) {
  expectFailure(run("graph-wrong-rows"), SHARDQ_WRONG_ROWS, oddRank(world()),
                odd() + " pushed");
}

TEST_P(NcclRanks, FaultStallInAGraph) {
  expectFailure(run("graph-stall"), SHARDQ_DEADLINE, oddRank(world()), odd());
}

TEST_P(NcclRanks, FaultKill) {
  if (GetParam().first == Kind::Threads)
    GTEST_SKIP() << "threads die together";
  expectFailure(run("kill"), SHARDQ_PEER_DEAD, oddRank(world()),
                odd() + " died", oddRank(world()));
}

TEST_P(NcclRanks, StallInsideAnother) {
  expectFailure(run("overlap-stall"), SHARDQ_DEADLINE, oddRank(world()),
                odd() + " (slot 0, out exchange 1");
}

TEST_P(NcclRanks, LaggardBehindAnother) {
  if (world() != 3)
    GTEST_SKIP() << "of three ranks";
  expectFailure(run("chain-stall"), SHARDQ_DEADLINE, 2,
                "rank 2 (slot 0, out exchange 1");
}

TEST_F(NcclGraph, OutlivesTheCommunicator) {
  for (auto *runRanks : {runOnThreads, runOnProcesses})
    expectCorrect(runRanks("graph-stays", 2, SHARDQ_TRANSPORT_NCCL));
}

TEST_F(NcclGraph, OutlivesAnErrorOfTheCommunicator) {
  for (auto *runRanks : {runOnThreads, runOnProcesses})
    expectFailure(runRanks("graph-stays-stall", 2, SHARDQ_TRANSPORT_NCCL),
                  SHARDQ_DEADLINE, oddRank(2), "rank 1");
}

/// What NCCL may still launch has the stream of the call that has failed.
TEST_F(NcclGraph, AbortDuringALaunch) {
  if (!isFake())
    GTEST_SKIP() << "launches are slow in the fake NCCL only";
  // The first one that is not of the rendezvous and the first layer.
  Variable slow("SHARDQ_FAKE_NCCL_SLOW", "0:5");
  expectFailure(runOnProcesses("aborting", 2, SHARDQ_TRANSPORT_NCCL),
                SHARDQ_ABORTED, oddRank(2), "rank 1 aborted the group");
}

static std::string nameOf(Kind kind) {
  static const char *const kNames[] = {"threads_", "processes_", "hosts_"};
  return kNames[static_cast<int>(kind)];
}

static std::string
nameRanks(const testing::TestParamInfo<std::pair<Kind, int32_t>> &info) {
  return nameOf(info.param.first) + std::to_string(info.param.second);
}

INSTANTIATE_TEST_SUITE_P(
    All, NcclRanks,
    testing::Values(std::pair(Kind::Threads, 2), std::pair(Kind::Threads, 3),
                    std::pair(Kind::Threads, 4), std::pair(Kind::Threads, 8),
                    std::pair(Kind::Processes, 2),
                    std::pair(Kind::Processes, 3),
                    std::pair(Kind::Processes, 4), std::pair(Kind::Hosts, 2),
                    std::pair(Kind::Hosts, 3), std::pair(Kind::Hosts, 4)),
    nameRanks);

//===--- One channel by NCCL, one direct ----------------------------------===//

namespace {

/// The same programs, of which one exchange asks for NCCL, or spans hosts while
/// the other does not.
class MixedRanks
    : public Nccl,
      public testing::WithParamInterface<std::tuple<Kind, int32_t, int32_t>> {
protected:
  void SetUp() override {
    Nccl::SetUp();
    if (!IsSkipped() && !isFake() && devices < world())
      GTEST_SKIP() << "NCCL wants " << world() << " devices";
  }

  int32_t world() const { return std::get<1>(GetParam()); }
  int32_t carried() const { return std::get<2>(GetParam()); }

  std::vector<RankResult> run(const char *scenario) {
    Kind kind = std::get<0>(GetParam());
    if (kind == Kind::Hosts) {
      Variable hosts("SHARDQ_TEST_HOSTS", "2");
      return runOnProcesses(scenario, world(), stayingOnHosts(1 - carried()));
    }
    auto *runRanks = kind == Kind::Threads ? runOnThreads : runOnProcesses;
    return runRanks(scenario, world(), carrying(carried()));
  }

  std::string odd() const { return "rank " + std::to_string(oddRank(world())); }
};

} // namespace

TEST_P(MixedRanks, OneOfTwoChannels) {
  std::vector<RankResult> results = run("ways");
  expectCorrect(results);
  for (const RankResult &result : results)
    EXPECT_EQ(result.value, int64_t(1) << carried()) << result.note;
}

TEST_P(MixedRanks, LayersBackToBack) { expectCorrect(run("layers")); }
TEST_P(MixedRanks, ExchangesInsideOthers) { expectCorrect(run("overlap")); }
TEST_P(MixedRanks, Aside) { expectCorrect(run("aside")); }
TEST_P(MixedRanks, AsideOfTwoSlots) { expectCorrect(run("aside-slots")); }
TEST_P(MixedRanks, GraphReplays) { expectCorrect(run("graph")); }
TEST_P(MixedRanks, SlotsOnTwoStreams) { expectCorrect(run("slots")); }
TEST_P(MixedRanks, DelayedRank) { expectCorrect(run("delayed")); }

TEST_P(MixedRanks, DeadlineNamesTheRank) {
  if (std::get<0>(GetParam()) == Kind::Hosts && carried() != 0)
    GTEST_SKIP() << "only one host waits for that rank";
  expectFailure(run("deadline"), SHARDQ_DEADLINE, oddRank(world()),
                odd() + " last seen at 1");
}

TEST_P(MixedRanks, RankLeaves) {
  expectFailure(run("leaving"), SHARDQ_PEER_LEFT, oddRank(world()),
                odd() + " left the group", oddRank(world()));
}

TEST_P(MixedRanks, AbortEndsBothKinds) {
  expectFailure(run("aborting"), SHARDQ_ABORTED, oddRank(world()),
                odd() + " aborted the group");
}

TEST_P(MixedRanks, CapacityIsChecked) {
  expectFailure(run("capacity"), SHARDQ_CAPACITY, oddRank(world()),
                odd() + " has 1000000 rows for the inbox of");
}

// Of one channel and of the other: the faults are in both kinds.

TEST_P(MixedRanks, FaultStall) {
  expectFailure(run("stall"), SHARDQ_DEADLINE, oddRank(world()), odd());
}

TEST_P(MixedRanks, FaultDropFlag) {
  expectFailure(run("drop-flag"), SHARDQ_DEADLINE, oddRank(world()),
                "whose signal did not arrive");
}

TEST_P(MixedRanks, FaultWrongRows) {
  expectFailure(run("wrong-rows"), SHARDQ_WRONG_ROWS, oddRank(world()),
                odd() + " pushed");
}

TEST_P(MixedRanks, FaultWrongOperation) {
  expectFailure(run("wrong-operation"), SHARDQ_WRONG_OPERATION,
                oddRank(world()), odd() + " ran out exchange 1 of @test");
}

TEST_P(MixedRanks, FaultWrongRowsInAGraph) {
  expectFailure(run("graph-wrong-rows"), SHARDQ_WRONG_ROWS, oddRank(world()),
                odd() + " pushed");
}

TEST_P(MixedRanks, FaultStallInAGraph) {
  expectFailure(run("graph-stall"), SHARDQ_DEADLINE, oddRank(world()), odd());
}

TEST_P(MixedRanks, FaultStallAside) {
  expectFailure(run("aside-stall"), SHARDQ_DEADLINE, oddRank(world()), odd());
}

TEST_P(MixedRanks, FaultKill) {
  if (std::get<0>(GetParam()) == Kind::Threads)
    GTEST_SKIP() << "threads die together";
  expectFailure(run("kill"), SHARDQ_PEER_DEAD, oddRank(world()),
                odd() + " died", oddRank(world()));
}

// The exchange around it has begun earlier, and is not what is waited for.

TEST_P(MixedRanks, StallInsideAnother) {
  expectFailure(run("overlap-stall"), SHARDQ_DEADLINE, oddRank(world()),
                odd() + " (slot 0, out exchange 1");
}

TEST_P(MixedRanks, DropFlagInsideAnother) {
  expectFailure(run("overlap-drop-flag"), SHARDQ_DEADLINE, oddRank(world()),
                "whose signal did not arrive");
}

// A rank that waits in one kind for a rank that waits in the other.

TEST_P(MixedRanks, LaggardBehindAnother) {
  if (world() != 3)
    GTEST_SKIP() << "of three ranks";
  std::vector<RankResult> results = run("chain-stall");
  expectFailure(results, SHARDQ_DEADLINE, 2, "rank 2 (slot 0, out exchange 1");
  for (const RankResult &result : results)
    EXPECT_NE(std::string(result.message).find("which holds up rank 1"),
              std::string::npos)
        << result.message;
}

TEST_P(MixedRanks, LaggardBehindHosts) {
  if (std::get<0>(GetParam()) != Kind::Hosts || carried() != 1)
    GTEST_SKIP() << "of two hosts, within which the first channel stays";
  expectFailure(run("chain-over-hosts"), SHARDQ_DEADLINE, 3,
                "rank 3 (slot 0, q exchange 0");
}

TEST_P(MixedRanks, LostSignalBehindAnother) {
  if (world() != 3)
    GTEST_SKIP() << "of three ranks";
  expectFailure(run("chain-drop-flag"), SHARDQ_DEADLINE, 2,
                "whose signal did not arrive");
}

static std::string nameMixed(
    const testing::TestParamInfo<std::tuple<Kind, int32_t, int32_t>> &info) {
  auto [kind, world, carried] = info.param;
  return nameOf(kind) + std::to_string(world) + "_channel_" +
         std::to_string(carried);
}

INSTANTIATE_TEST_SUITE_P(Threads, MixedRanks,
                         testing::Combine(testing::Values(Kind::Threads),
                                          testing::Values(2, 3, 4),
                                          testing::Values(0, 1)),
                         nameMixed);
INSTANTIATE_TEST_SUITE_P(Processes, MixedRanks,
                         testing::Combine(testing::Values(Kind::Processes),
                                          testing::Values(2, 3),
                                          testing::Values(0, 1)),
                         nameMixed);
INSTANTIATE_TEST_SUITE_P(Hosts, MixedRanks,
                         testing::Combine(testing::Values(Kind::Hosts),
                                          testing::Values(4),
                                          testing::Values(0, 1)),
                         nameMixed);
INSTANTIATE_TEST_SUITE_P(Many, MixedRanks,
                         testing::Combine(testing::Values(Kind::Threads),
                                          testing::Values(8),
                                          testing::Values(1)),
                         nameMixed);

//===--- Which transport --------------------------------------------------===//

namespace {

RankOptions
onGpus(const std::function<void(int32_t, shardq_comm_options &)> &adjust = {}) {
  RankOptions options;
  options.adjust = [adjust](int32_t rank, shardq_comm_options &comm) {
    comm.memory = SHARDQ_MEMORY_CUDA;
    comm.cuda_device = deviceOf(rank);
    if (adjust)
      adjust(rank, comm);
  };
  return options;
}

/// Tells what transport there is.
void tell(shardq_comm *comm, RankResult &result) {
  char why[256] = "";
  result.value = shardq_comm_transport(comm, why, sizeof(why));
  result.correct = true;
  std::strncpy(result.note, why, sizeof(result.note) - 1);
}

void expectTransport(const std::vector<RankResult> &results, int64_t transport,
                     const std::string &why) {
  for (const RankResult &result : results) {
    EXPECT_EQ(result.created, SHARDQ_OK) << result.message;
    EXPECT_EQ(result.value, transport) << result.note;
    EXPECT_STREQ(result.note, why.c_str());
  }
}

class NcclChoice : public Nccl {
protected:
  void SetUp() override {
    Nccl::SetUp();
    if (!IsSkipped() && !isFake())
      GTEST_SKIP() << "needs the fake driver";
  }

  TestPlan plan{3, 4};
};

} // namespace

TEST_F(NcclChoice, DirectOnOneHost) {
  expectTransport(runThreads(3, plan.plan, onGpus(), tell),
                  SHARDQ_TRANSPORT_DIRECT,
                  "direct: all ranks are on one host, and what each wrote into "
                  "the GPU memory of the others arrived");
}

TEST_F(NcclChoice, HostMemory) {
  expectTransport(runThreads(3, plan.plan, {}, tell), SHARDQ_TRANSPORT_DIRECT,
                  "direct: ranks share the memory of the host");
}

TEST_F(NcclChoice, AskedFor) {
  RankOptions options = onGpus([](int32_t, shardq_comm_options &comm) {
    comm.transport = SHARDQ_TRANSPORT_NCCL;
  });
  expectTransport(runThreads(3, plan.plan, options, tell),
                  SHARDQ_TRANSPORT_NCCL, "nccl 2.28.9: asked for");
  options = onGpus([](int32_t, shardq_comm_options &comm) {
    comm.transport = SHARDQ_TRANSPORT_DIRECT;
  });
  expectTransport(runThreads(3, plan.plan, options, tell),
                  SHARDQ_TRANSPORT_DIRECT, "direct: asked for");
}

TEST_F(NcclChoice, ProgramAsks) {
  plan.carry(0);
  plan.carry(1);
  expectTransport(runThreads(3, plan.plan, onGpus(), tell),
                  SHARDQ_TRANSPORT_NCCL,
                  "nccl 2.28.9: the program asks for NCCL");
  RankOptions options = onGpus([](int32_t, shardq_comm_options &comm) {
    comm.transport = SHARDQ_TRANSPORT_DIRECT;
  });
  for (const RankResult &result : runThreads(3, plan.plan, options, tell)) {
    EXPECT_EQ(result.created, SHARDQ_UNREACHABLE);
    EXPECT_STREQ(result.message,
                 "transport is direct, but the program asks for NCCL");
  }
  for (const RankResult &result : runThreads(3, plan.plan, {}, tell)) {
    EXPECT_EQ(result.created, SHARDQ_INVALID);
    EXPECT_NE(std::string(result.message)
                  .find("the program asks for NCCL, but buffers are in host "
                        "memory"),
              std::string::npos)
        << result.message;
  }
}

TEST_F(NcclChoice, ProgramAsksForSome) {
  plan.carry(1);
  const char *mixed =
      "direct: all ranks are on one host, and what each wrote into the GPU "
      "memory of the others arrived; nccl 2.28.9: the program asks for NCCL "
      "for 'inbox'";
  expectTransport(runThreads(3, plan.plan, onGpus(), tell),
                  SHARDQ_TRANSPORT_MIXED, mixed);
  // NCCL for all, as the caller wants, or because hosts differ.
  expectTransport(runThreads(3, plan.plan,
                             onGpus([](int32_t, shardq_comm_options &comm) {
                               comm.transport = SHARDQ_TRANSPORT_NCCL;
                             }),
                             tell),
                  SHARDQ_TRANSPORT_NCCL, "nccl 2.28.9: asked for");
  static const char *const kNames[] = {"a", "a", "b"};
  expectTransport(
      runThreads(3, plan.plan,
                 onGpus([](int32_t rank, shardq_comm_options &comm) {
                   comm.host = kNames[rank];
                 }),
                 tell),
      SHARDQ_TRANSPORT_NCCL,
      "nccl 2.28.9: rank 2 and rank 0 are on different hosts");
  expectRefused(runThreads(3, plan.plan,
                           onGpus([](int32_t, shardq_comm_options &comm) {
                             comm.transport = SHARDQ_TRANSPORT_DIRECT;
                           }),
                           tell),
                SHARDQ_UNREACHABLE,
                "transport is direct, but the program asks for NCCL for "
                "'inbox'");
  expectRefused(runThreads(3, plan.plan,
                           onGpus([](int32_t, shardq_comm_options &comm) {
                             comm.transport = SHARDQ_TRANSPORT_MIXED;
                           }),
                           tell),
                SHARDQ_INVALID,
                "transport is 3, expected 0 (auto), 1 (direct) or 2 (NCCL)");
  expectRefused(runThreads(3, plan.plan, {}, tell), SHARDQ_INVALID,
                "the program asks for NCCL for 'inbox', but buffers are in "
                "host memory");
}

TEST_F(NcclChoice, LostWritesBesideNccl) {
  plan.carry(0);
  Variable loss("SHARDQ_FAKE_LOSE", "store");
  for (const RankResult &result : runThreads(3, plan.plan, onGpus(), tell)) {
    EXPECT_EQ(result.created, SHARDQ_OK) << result.message;
    EXPECT_EQ(result.value, SHARDQ_TRANSPORT_NCCL);
  }
}

TEST_F(NcclChoice, BytesOfNcclThatDoNotArriveBesideDirectOnes) {
  plan.carry(0);
  Variable loss("SHARDQ_FAKE_NCCL_LOSE", "1");
  expectRefused(runThreads(3, plan.plan, onGpus(), tell), SHARDQ_UNREACHABLE,
                "what rank 1 sent to rank 0 through NCCL did not arrive");
}

TEST_F(NcclChoice, ChannelsDiffer) {
  TestPlan other{3, 4};
  other.carry(1);
  RankOptions options = onGpus([&](int32_t rank, shardq_comm_options &comm) {
    if (rank == 2)
      comm.plan = &other.plan;
  });
  expectRefused(runThreads(3, plan.plan, options, tell), SHARDQ_MISMATCH,
                "rank 2 and rank 0 have plans of one hash, 0x5eed, but of "
                "different sizes or transports");
}

TEST_F(NcclChoice, OtherHosts) {
  static const char *const kNames[] = {"a", "a", "b"};
  RankOptions options = onGpus([](int32_t rank, shardq_comm_options &comm) {
    comm.host = kNames[rank];
  });
  expectTransport(runThreads(3, plan.plan, options, tell),
                  SHARDQ_TRANSPORT_NCCL,
                  "nccl 2.28.9: rank 2 and rank 0 are on different hosts");
  options = onGpus([](int32_t rank, shardq_comm_options &comm) {
    comm.host = kNames[rank];
    comm.transport = SHARDQ_TRANSPORT_DIRECT;
  });
  expectRefused(runThreads(3, plan.plan, options, tell), SHARDQ_UNREACHABLE,
                "transport is direct, but rank 2 and rank 0 are on different "
                "hosts");
  options = {};
  options.adjust = [](int32_t rank, shardq_comm_options &comm) {
    comm.host = kNames[rank];
  };
  expectRefused(runThreads(3, plan.plan, options, tell), SHARDQ_MISMATCH,
                "rank 2 and rank 0 are on different hosts or in different "
                "network namespaces, with buffers in host memory");
}

TEST_F(NcclChoice, ChannelsThatStayOnHosts) {
  static const char *const kNames[] = {"a", "a", "b", "b"};
  TestPlan four{4, 4};
  auto with = [&](int32_t transport) {
    return runThreads(4, four.plan,
                      onGpus([=](int32_t rank, shardq_comm_options &comm) {
                        comm.host = kNames[rank];
                        comm.transport = transport;
                      }),
                      tell);
  };
  const std::string direct = "direct: within each host, and what each wrote "
                             "into the GPU memory of the others arrived";
  four.group(0, 1, 2);
  expectTransport(with(SHARDQ_TRANSPORT_AUTO), SHARDQ_TRANSPORT_MIXED,
                  direct + "; nccl 2.28.9: rank 2 and rank 0 are on different "
                           "hosts, whose ranks meet in 'inbox'");
  expectRefused(with(SHARDQ_TRANSPORT_DIRECT), SHARDQ_UNREACHABLE,
                "transport is direct, but rank 2 and rank 0 are on different "
                "hosts, whose ranks meet in 'inbox'");
  expectTransport(with(SHARDQ_TRANSPORT_NCCL), SHARDQ_TRANSPORT_NCCL,
                  "nccl 2.28.9: asked for");
  // Each other rank: a group of two hosts.
  four.group(0, 2, 2);
  expectTransport(with(SHARDQ_TRANSPORT_AUTO), SHARDQ_TRANSPORT_NCCL,
                  "nccl 2.28.9: rank 2 and rank 0 are on different hosts");
  // Neither leaves a host: nothing is left for NCCL.
  four.group(0, 1, 2);
  four.group(1, 1, 1);
  expectTransport(with(SHARDQ_TRANSPORT_AUTO), SHARDQ_TRANSPORT_DIRECT, direct);
  expectTransport(with(SHARDQ_TRANSPORT_DIRECT), SHARDQ_TRANSPORT_DIRECT,
                  "direct: asked for");
  // One asks, and one spans hosts.
  TestPlan three(4, 4, 1, {1, 1, 1});
  three.group(0, 1, 2);
  three.group(1, 1, 2);
  three.carry(1);
  expectTransport(
      runThreads(4, three.plan,
                 onGpus([](int32_t rank, shardq_comm_options &comm) {
                   comm.host = kNames[rank];
                 }),
                 tell),
      SHARDQ_TRANSPORT_MIXED,
      direct + "; nccl 2.28.9: the program asks for NCCL for "
               "'inbox', and rank 2 and rank 0 are on different "
               "hosts, whose ranks meet in 'inbox'");
}

TEST_F(NcclChoice, LostWrites) {
  for (const char *lost : {"store", "copy", "copy2d"}) {
    Variable loss("SHARDQ_FAKE_LOSE", lost);
    for (const RankResult &result : runThreads(3, plan.plan, onGpus(), tell)) {
      EXPECT_EQ(result.created, SHARDQ_OK) << result.message;
      EXPECT_EQ(result.value, SHARDQ_TRANSPORT_NCCL);
      EXPECT_NE(
          std::string(result.note)
              .find("nccl 2.28.9: what rank 0 wrote into the GPU memory of "
                    "rank 0 by"),
          std::string::npos)
          << result.note;
    }
    RankOptions direct = onGpus([](int32_t, shardq_comm_options &comm) {
      comm.transport = SHARDQ_TRANSPORT_DIRECT;
    });
    expectRefused(runThreads(3, plan.plan, direct, tell), SHARDQ_UNREACHABLE,
                  "did not arrive");
  }
}

TEST_F(NcclChoice, NoMapping) {
  Variable refusal("SHARDQ_FAKE_NO_PEERS", "1");
  for (const RankResult &result : runThreads(3, plan.plan, onGpus(), tell)) {
    EXPECT_EQ(result.created, SHARDQ_OK) << result.message;
    EXPECT_EQ(result.value, SHARDQ_TRANSPORT_NCCL);
    EXPECT_NE(std::string(result.note).find("out of reach"), std::string::npos)
        << result.note;
  }
}

TEST_F(NcclChoice, TransportsDiffer) {
  RankOptions options = onGpus([](int32_t rank, shardq_comm_options &comm) {
    comm.transport = rank == 1 ? SHARDQ_TRANSPORT_NCCL : SHARDQ_TRANSPORT_AUTO;
  });
  expectRefused(runThreads(3, plan.plan, options, tell), SHARDQ_MISMATCH,
                "rank 1 and rank 0 differ in transport: 2 and 0");
}

TEST_F(NcclChoice, BytesThatDoNotArrive) {
  Variable loss("SHARDQ_FAKE_NCCL_LOSE", "1");
  RankOptions options = onGpus([](int32_t, shardq_comm_options &comm) {
    comm.transport = SHARDQ_TRANSPORT_NCCL;
  });
  expectRefused(runThreads(3, plan.plan, options, tell), SHARDQ_UNREACHABLE,
                "what rank 1 sent to rank 0 through NCCL did not arrive");
}

TEST_F(NcclChoice, PeerThatHangsAtTheBeginning) {
  Variable stall("SHARDQ_FAKE_NCCL_STALL", "1:0");
  RankOptions options = onGpus([](int32_t, shardq_comm_options &comm) {
    comm.transport = SHARDQ_TRANSPORT_NCCL;
  });
  options.rendezvousMs = 1000;
  expectRefused(runThreads(3, plan.plan, options, tell), SHARDQ_SYSTEM,
                "did not finish the first words of NCCL in time");
}

TEST_F(NcclChoice, AlternateCalls) {
  // The transfer of a program for NCCL where rows go straight to peers.
  runThreads(3, plan.plan, onGpus(), [&](shardq_comm *comm, RankResult &) {
    shardq_context *context = shardq_comm_context(comm, 0);
    EXPECT_EQ(shardq_rt_is_carried(context, 0), 0);
    shardq_rt_begin(context, nullptr);
    shardq_rt_transfer(context, 0, 0, 0, 1, 3, nullptr, nullptr, 0, 0);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
    char text[256] = "";
    EXPECT_EQ(shardq_context_status(context, text, sizeof(text)),
              SHARDQ_INVALID);
    EXPECT_NE(std::string(text).find("rows go straight to peers"),
              std::string::npos)
        << text;
  });
}

TEST_F(NcclChoice, EachChannelAnswers) {
  plan.carry(1);
  runThreads(3, plan.plan, onGpus(), [&](shardq_comm *comm, RankResult &) {
    shardq_context *context = shardq_comm_context(comm, 0);
    EXPECT_EQ(shardq_rt_is_carried(context, 0), 0);
    EXPECT_EQ(shardq_rt_is_carried(context, 1), 1);
    shardq_rt_begin(context, nullptr);
    shardq_rt_transfer(context, 0, 0, 0, 1, 3, nullptr, nullptr, 0, 0);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
    char text[256] = "";
    shardq_context_status(context, text, sizeof(text));
    EXPECT_NE(std::string(text).find("rows go straight to peers"),
              std::string::npos)
        << text;
  });
  for (bool isAside : {false, true})
    runThreads(3, plan.plan, onGpus(), [&](shardq_comm *comm, RankResult &) {
      shardq_context *context = shardq_comm_context(comm, 0);
      shardq_rt_begin(context, nullptr);
      if (isAside)
        shardq_rt_begin_aside(context, 2);
      else
        EXPECT_EQ(shardq_rt_is_carried(context, 2), 0);
      EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
      char text[256] = "";
      shardq_context_status(context, text, sizeof(text));
      EXPECT_NE(std::string(text).find("channel 2 is not one of the plan's 2"),
                std::string::npos)
          << text;
    });
}

TEST_F(NcclChoice, TransfersThatCannotBe) {
  struct Call {
    int32_t channel;
    int64_t first, stride, size;
    bool hasMemory;
    int64_t rows, rowBytes;
    const char *text;
  };
  for (const Call &call : {
           Call{2, 0, 1, 2, true, 4, 32,
                "channel 2 is not one of the plan's 2"},
           Call{-1, 0, 1, 2, true, 4, 32, "channel -1 is not one"},
           Call{0, 0, 1, 3, true, 4, 32, "outside the world of 2 ranks"},
           Call{0, 0, 1, 0, true, 4, 32, "or no member"},
           Call{0, 0, 1, 2, true, -1, 32, "is of -1 rows of 32 bytes"},
           Call{0, 0, 1, 2, true, 4, -1, "is of 4 rows of -1 bytes"},
           Call{0, 0, 1, 2, true, INT64_MAX, 32, "rows of 32 bytes"},
           Call{0, 0, 1, 2, false, 4, 32, "has no memory for them"},
       }) {
    RankOptions options = onGpus([](int32_t, shardq_comm_options &comm) {
      comm.transport = SHARDQ_TRANSPORT_NCCL;
    });
    TestPlan two(2, 4);
    runThreads(2, two.plan, options, [&](shardq_comm *comm, RankResult &) {
      shardq_context *context = shardq_comm_context(comm, 0);
      CudaRank rank(comm, two);
      shardq_rt_begin(context, rank.stream);
      void *memory = call.hasMemory ? shardq_rt_alloc(context, 1024) : nullptr;
      shardq_rt_transfer(context, call.channel, 1, call.first, call.stride,
                         call.size, memory, memory, call.rows, call.rowBytes);
      EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
      char text[256] = "";
      shardq_context_status(context, text, sizeof(text));
      EXPECT_NE(std::string(text).find(call.text), std::string::npos) << text;
      rank.synchronize();
    });
  }
  // Outside of a call.
  RankOptions options = onGpus([](int32_t, shardq_comm_options &comm) {
    comm.transport = SHARDQ_TRANSPORT_NCCL;
  });
  runThreads(1, plan.plan, options, [&](shardq_comm *comm, RankResult &) {
    shardq_context *context = shardq_comm_context(comm, 0);
    shardq_rt_transfer(context, 0, 1, 0, 1, 1, nullptr, nullptr, 0, 0);
    EXPECT_EQ(shardq_context_status(context, nullptr, 0), SHARDQ_INVALID);
  });
}

TEST_F(NcclChoice, NoLibrary) {
  // In processes of their own, which have not opened one yet.
  {
    Variable path("SHARDQ_NCCL", "/nowhere/libnccl.so.2");
    expectRefused(runOnProcesses("layers", 2, SHARDQ_TRANSPORT_NCCL),
                  SHARDQ_UNREACHABLE, "rank 0: no NCCL: /nowhere/libnccl.so.2");
    expectCorrect(runOnProcesses("layers", 2, SHARDQ_TRANSPORT_DIRECT));
    Variable loss("SHARDQ_FAKE_LOSE", "store");
    expectRefused(runOnProcesses("layers", 2, SHARDQ_TRANSPORT_AUTO),
                  SHARDQ_UNREACHABLE,
                  "it is needed, why: what rank 0 wrote into the GPU memory");
  }
  {
    Variable path("SHARDQ_NCCL", "libm.so.6");
    expectRefused(runOnProcesses("layers", 2, SHARDQ_TRANSPORT_NCCL),
                  SHARDQ_UNREACHABLE,
                  "the NCCL libm.so.6 is too old: it has no ncclGetVersion");
  }
  Variable version("SHARDQ_FAKE_NCCL_VERSION", "21300");
  expectRefused(runOnProcesses("layers", 2, SHARDQ_TRANSPORT_NCCL),
                SHARDQ_UNREACHABLE, "is of version 21300, expected 21400");
}

TEST(NcclLibrary, ApiOfNothing) {
  char text[64] = "?";
  EXPECT_EQ(shardq_comm_transport(nullptr, text, sizeof(text)), -1);
  EXPECT_STREQ(text, "comm is NULL");
  EXPECT_EQ(shardq_rt_is_carried(nullptr, 0), 0);
  shardq_rt_transfer(nullptr, 0, 0, 0, 1, 1, nullptr, nullptr, 0, 0);
}

//===--- What NCCL itself does --------------------------------------------===//

TEST_F(NcclChoice, AsynchronousError) {
  // The first group is the rendezvous'.
  Variable error("SHARDQ_FAKE_NCCL_ERROR", "2:4");
  expectFailure(runOnThreads("faulty", 3, SHARDQ_TRANSPORT_NCCL), SHARDQ_SYSTEM,
                2, "rank 2: NCCL failed in slot 0: remote error (6)");
}

TEST_F(NcclChoice, DataThatHangs) {
  // Lines arrive, the rows of the second exchange do not. All have begun it, so
  // nobody can say who is late, but everybody ends.
  Variable stall("SHARDQ_FAKE_NCCL_STALL", "2:4");
  for (const RankResult &result :
       runOnThreads("hanging", 3, SHARDQ_TRANSPORT_NCCL)) {
    EXPECT_EQ(result.status, SHARDQ_DEADLINE) << result.message;
    EXPECT_TRUE(result.correct);
  }
}
