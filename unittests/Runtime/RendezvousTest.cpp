//===- RendezvousTest.cpp - Meeting, and failing to meet ------------------===//

#include "host/Rendezvous.h"

#include "Ranks.h"

#include <condition_variable>
#include <cstring>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace shardq;
using namespace shardq::test;

namespace {

void idle(shardq_comm *, RankResult &result) { result.correct = true; }

/// An allgather between threads through the callbacks provider, in which a test
/// can change what a rank says.
class CallbackRoom {
public:
  explicit CallbackRoom(int32_t world) : world(world) {}

  std::function<void(int32_t rank, int step, void *block)> tamper;
  std::function<int32_t(int32_t rank, int step)> answer;

  std::vector<RankResult> run(const shardq_plan &plan) {
    std::vector<RankResult> results(static_cast<size_t>(world));
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank != world; ++rank)
      threads.emplace_back([this, rank, &plan, &results] {
        Seat seat{this, rank, 0};
        shardq_bootstrap_callbacks callbacks{};
        callbacks.struct_size = sizeof(callbacks);
        callbacks.user = &seat;
        callbacks.allgather = [](void *user, const void *mine, void *all,
                                 size_t bytes, int64_t) {
          return static_cast<Seat *>(user)->allgather(mine, all, bytes);
        };
        callbacks.barrier = [](void *user, const char *, int64_t) {
          char mine = 0;
          std::vector<char> all(
              static_cast<size_t>(static_cast<Seat *>(user)->room->world));
          return static_cast<Seat *>(user)->allgather(&mine, all.data(), 1);
        };
        shardq_bootstrap *bootstrap = nullptr;
        EXPECT_EQ(shardq_bootstrap_from_callbacks(&callbacks, rank, world,
                                                  &bootstrap),
                  SHARDQ_OK);
        runRank(bootstrap, rank, world, plan, {}, idle,
                results[static_cast<size_t>(rank)]);
        shardq_bootstrap_destroy(bootstrap);
      });
    for (std::thread &thread : threads)
      thread.join();
    return results;
  }

private:
  struct Seat {
    CallbackRoom *room;
    int32_t rank;
    int step;

    int32_t allgather(const void *mine, void *all, size_t bytes) {
      int at = step++;
      if (room->answer)
        if (int32_t code = room->answer(rank, at))
          return code;
      std::vector<char> block(bytes);
      std::memcpy(block.data(), mine, bytes);
      if (room->tamper)
        room->tamper(rank, at, block.data());
      std::unique_lock<std::mutex> lock(room->mutex);
      auto &blocks = room->steps[static_cast<size_t>(at)];
      blocks.resize(static_cast<size_t>(room->world));
      blocks[static_cast<size_t>(rank)] = block;
      ++room->arrived[at];
      room->changed.notify_all();
      if (!room->changed.wait_for(lock, std::chrono::seconds(10), [&] {
            return room->arrived[at] == room->world;
          }))
        return 110;
      for (size_t peer = 0; peer != blocks.size(); ++peer)
        std::memcpy(static_cast<char *>(all) + peer * bytes,
                    blocks[peer].data(), bytes);
      return 0;
    }
  };

  int32_t world;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<char>> steps[3];
  int32_t arrived[3] = {};
};

void expectAll(const std::vector<RankResult> &results, shardq_status status,
               const std::string &text) {
  for (const RankResult &result : results) {
    EXPECT_EQ(result.created, status) << result.message;
    EXPECT_NE(std::string(result.message).find(text), std::string::npos)
        << result.message;
  }
}

} // namespace

TEST(Rendezvous, CallbacksWork) {
  // Ranks of this provider are processes to the runtime, sockets and all, even
  // if they happen to be threads.
  TestPlan plan(4, 2);
  for (const RankResult &result : CallbackRoom(4).run(plan.plan))
    EXPECT_TRUE(result.correct) << result.message;
}

TEST(Rendezvous, CallbackFails) {
  TestPlan plan(2, 2);
  CallbackRoom room(2);
  room.answer = [](int32_t, int) { return 7; };
  expectAll(room.run(plan.plan), SHARDQ_BOOTSTRAP, "callback returned 7");
}

TEST(Rendezvous, VersionsDiffer) {
  TestPlan plan(3, 2);
  CallbackRoom abi(3);
  abi.tamper = [](int32_t rank, int step, void *block) {
    if (rank == 2 && step == 0)
      static_cast<Hello *>(block)->abi = 99;
  };
  expectAll(abi.run(plan.plan), SHARDQ_MISMATCH,
            "rank 2 and rank 0 differ in ABI version: 99 and " +
                std::to_string(SHARDQ_ABI_VERSION));

  CallbackRoom protocol(3);
  protocol.tamper = [](int32_t rank, int step, void *block) {
    if (rank == 1 && step == 0)
      static_cast<Hello *>(block)->protocol = 7;
  };
  expectAll(protocol.run(plan.plan), SHARDQ_MISMATCH,
            "rank 1 and rank 0 differ in protocol version: 7 and " +
                std::to_string(protocol::kProtocolVersion));
}

TEST(Rendezvous, DevicesDiffer) {
  TestPlan plan(3, 2);
  CallbackRoom architecture(3);
  architecture.tamper = [](int32_t rank, int step, void *block) {
    if (rank == 2 && step == 0)
      static_cast<Hello *>(block)->deviceArch = 80;
  };
  expectAll(architecture.run(plan.plan), SHARDQ_MISMATCH,
            "rank 2 and rank 0 differ in GPU architecture: 80 and 0");

  CallbackRoom memory(3);
  memory.tamper = [](int32_t rank, int step, void *block) {
    if (rank == 1 && step == 0)
      static_cast<Hello *>(block)->memory = SHARDQ_MEMORY_CUDA;
  };
  expectAll(memory.run(plan.plan), SHARDQ_MISMATCH,
            "rank 1 has its buffers on a GPU, but rank 0 on the host");
}

TEST(Rendezvous, HostsDiffer) {
  TestPlan plan(3, 2);
  CallbackRoom room(3);
  room.tamper = [](int32_t rank, int step, void *block) {
    if (rank == 1 && step == 0)
      std::strcpy(static_cast<Hello *>(block)->host, "elsewhere");
  };
  expectAll(room.run(plan.plan), SHARDQ_MISMATCH,
            "rank 1 and rank 0 are on different hosts");
}

TEST(Rendezvous, RankWithAnotherIdentity) {
  TestPlan plan(3, 2);
  CallbackRoom rank(3);
  rank.tamper = [](int32_t rank, int step, void *block) {
    if (rank == 2 && step == 0)
      static_cast<Hello *>(block)->rank = 0;
  };
  expectAll(rank.run(plan.plan), SHARDQ_MISMATCH, "rank 2 says that it is");

  CallbackRoom world(3);
  world.tamper = [](int32_t rank, int step, void *block) {
    if (rank == 2 && step == 0)
      static_cast<Hello *>(block)->world = 4;
  };
  expectAll(world.run(plan.plan), SHARDQ_MISMATCH,
            "rank 2 is one of 4 ranks, but rank 0 one of 3");

  CallbackRoom magic(3);
  magic.tamper = [](int32_t rank, int step, void *block) {
    if (rank == 2 && step == 0)
      static_cast<Hello *>(block)->magic = 0;
  };
  expectAll(magic.run(plan.plan), SHARDQ_MISMATCH, "rank 2 is not a ShardQ");
}

TEST(Rendezvous, PlansDiffer) {
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 2);
    shardq_plan other = plan.plan;
    other.hash = 0xbad;
    RankOptions options;
    options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
      if (rank == 1)
        comm.plan = &other;
    };
    const char *text = "rank 1 and rank 0 run different plans: hash 0xbad and "
                       "0x5eed";
    expectAll(runThreads(world, plan.plan, options, idle), SHARDQ_MISMATCH,
              text);
    expectAll(runProcesses(world, plan.plan, options, idle), SHARDQ_MISMATCH,
              text);
  }
}

TEST(Rendezvous, PlanSizesDiffer) {
  TestPlan plan(3, 2), larger(3, 4);
  RankOptions options;
  options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
    if (rank == 2)
      comm.plan = &larger.plan;
  };
  expectAll(runProcesses(3, plan.plan, options, idle), SHARDQ_MISMATCH,
            "rank 2 and rank 0 have plans of one hash, 0x5eed");
}

TEST(Rendezvous, BadPlanOfOneRankIsToldToAll) {
  TestPlan plan(4, 2);
  shardq_plan bad = plan.plan;
  bad.slots = 0;
  RankOptions options;
  options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
    if (rank == 3)
      comm.plan = &bad;
  };
  expectAll(runProcesses(4, plan.plan, options, idle), SHARDQ_INVALID,
            "0 slots, expected 1 to 64");
}

TEST(Rendezvous, AbsentRank) {
  for (int32_t world : {2, 3, 4, 8}) {
    TestPlan plan(world, 2);
    RankOptions options;
    options.rendezvousMs = 300;
    options.absent = world - 1;
    std::string text =
        "rank " + std::to_string(world - 1) + " did not come to the rendezvous";
    for (bool processes : {false, true}) {
      auto results = (processes ? runProcesses : runThreads)(world, plan.plan,
                                                             options, idle);
      EXPECT_FALSE(results.back().ran);
      results.pop_back();
      expectAll(results, SHARDQ_ABSENT, text);
      for (const RankResult &result : results)
        EXPECT_LT(result.elapsedMs, 3000);
    }
  }
}

TEST(Rendezvous, RankDiesDuringIt) {
  // It says hello and is gone before its heap can be asked for.
  TestPlan plan(3, 2);
  RankOptions options;
  options.rendezvousMs = 1000;
  TemporaryDirectory directory;
  options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
    if (rank != 2)
      return;
    std::vector<Hello> all(3);
    Hello mine{};
    mine.magic = 0; // never looked at: it dies first
    Outcome outcome = comm.bootstrap->allgather(&mine, all.data(), sizeof(mine),
                                                Deadline::in(1000));
    _exit(outcome.failed());
  };
  auto results = runProcesses(3, plan.plan, options, idle);
  results.pop_back();
  expectAll(results, SHARDQ_MISMATCH, "rank 2 is not a ShardQ rank");
}

TEST(Rendezvous, RankDiesBeforeItConnects) {
  TestPlan plan(3, 2);
  RankOptions options;
  options.rendezvousMs = 1500;
  options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
    if (rank != 2)
      return;
    // As the runtime does it, up to the point of death.
    Plan read;
    Outcome outcome = Plan::read(comm.plan, read);
    struct Mortal : shardq_bootstrap {
      explicit Mortal(shardq_bootstrap &inner)
          : shardq_bootstrap(inner.rank, inner.world), inner(inner) {}
      Outcome allgather(const void *mine, void *all, size_t bytes,
                        const Deadline &deadline) override {
        Outcome outcome = inner.allgather(mine, all, bytes, deadline);
        _exit(outcome.failed());
      }
      Outcome barrier(std::string_view, const Deadline &) override {
        return {};
      }
      shardq_bootstrap &inner;
    } mortal(*comm.bootstrap);
    Membership membership;
    outcome =
        meet(mortal, 3, read, outcome, {}, Deadline::in(1000), membership);
  };
  auto results = runProcesses(3, plan.plan, options, idle);
  results.pop_back();
  for (const RankResult &result : results) {
    EXPECT_EQ(result.created, SHARDQ_ABSENT) << result.message;
    EXPECT_NE(std::string(result.message).find("rank 2 did not"),
              std::string::npos)
        << result.message;
    EXPECT_LT(result.elapsedMs, 4000);
  }
}

TEST(Rendezvous, FilesOfAnotherWorld) {
  TestPlan plan(4, 2);
  TemporaryDirectory directory;
  std::vector<RankResult> results(2);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank != 2; ++rank)
    threads.emplace_back([&, rank] {
      int32_t world = rank == 0 ? 2 : 3;
      RankOptions options;
      options.rendezvousMs = 500;
      shardq_bootstrap *bootstrap = nullptr;
      shardq_bootstrap_files(directory.path().c_str(), rank, world, &bootstrap);
      runRank(bootstrap, rank, world, plan.plan, options, idle,
              results[size_t(rank)]);
      shardq_bootstrap_destroy(bootstrap);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(results[0].created, SHARDQ_MISMATCH);
  EXPECT_STREQ(results[0].message,
               "rank 0 is one of 2 ranks, but rank 1 one of 3");
  EXPECT_EQ(results[1].created, SHARDQ_MISMATCH);
}

TEST(Rendezvous, DirectoryProblems) {
  TestPlan plan(1, 2);
  RankResult result{};
  shardq_bootstrap *bootstrap = nullptr;
  ASSERT_EQ(shardq_bootstrap_files("/nonexistent/shardq", 0, 1, &bootstrap),
            SHARDQ_OK);
  runRank(bootstrap, 0, 1, plan.plan, {}, idle, result);
  shardq_bootstrap_destroy(bootstrap);
  EXPECT_EQ(result.created, SHARDQ_BOOTSTRAP);
  EXPECT_NE(std::string(result.message).find("No such file"), std::string::npos)
      << result.message;

  TemporaryDirectory directory;
  std::ofstream(directory.path() + "/shardq.0.1") << "not a rank's";
  ASSERT_EQ(shardq_bootstrap_files(directory.path().c_str(), 0, 2, &bootstrap),
            SHARDQ_OK);
  runRank(bootstrap, 0, 2, plan.plan, {}, idle, result);
  shardq_bootstrap_destroy(bootstrap);
  EXPECT_EQ(result.created, SHARDQ_BOOTSTRAP);
  EXPECT_NE(std::string(result.message).find("not a file of a ShardQ rank"),
            std::string::npos)
      << result.message;
}

TEST(Rendezvous, LostTokensAreNoticed) {
  TestPlan source(2, 2);
  Plan plan;
  ASSERT_FALSE(Plan::read(&source.plan, plan).failed());
  Layout layout(plan, 2);
  std::shared_ptr<HeapSpace> space;
  ASSERT_FALSE(HeapSpace::allocate(layout.bytes, 2, space).failed());
  Heaps heaps(space, layout);
  std::vector<Nonce> nonces(2);
  ASSERT_FALSE(makeNonce(nonces[0]).failed());
  ASSERT_FALSE(makeNonce(nonces[1]).failed());
  writeTokens(heaps, 0, nonces);
  Outcome outcome = checkTokens(heaps, 0, nonces);
  EXPECT_EQ(outcome.status, SHARDQ_UNREACHABLE);
  EXPECT_EQ(outcome.text,
            "what rank 1 wrote into the heap of rank 0 did not arrive");
  writeTokens(heaps, 1, nonces);
  EXPECT_FALSE(checkTokens(heaps, 0, nonces).failed());
  EXPECT_FALSE(checkTokens(heaps, 1, nonces).failed());
}

TEST(Rendezvous, ForeignHeapsAreRefused) {
  Descriptor good;
  ASSERT_FALSE(createHeapMemory(8192, good).failed());
  EXPECT_FALSE(checkHeapMemory(good.get(), 8192).failed());
  EXPECT_EQ(checkHeapMemory(good.get(), 4096).status, SHARDQ_SYSTEM);
  // Unsealed memory could be cut under its users.
  Descriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(checkHeapMemory(unsealed.get(), 8192).status, SHARDQ_SYSTEM);
  EXPECT_NE(ftruncate(good.get(), 0), 0);
}

TEST(Rendezvous, BootstrapServesSeveralCommunicators) {
  TestPlan plan(3, 2);
  auto again = [&](shardq_comm *, RankResult &result) {
    result.correct = true;
  };
  RankOptions options;
  options.adjust = [&](int32_t rank, shardq_comm_options &comm) {
    for (int round = 0; round != 3; ++round) {
      RankResult inner{};
      runRank(comm.bootstrap, rank, 3, plan.plan, {}, idle, inner);
      EXPECT_EQ(inner.created, SHARDQ_OK) << inner.message;
    }
  };
  for (const RankResult &result : runThreads(3, plan.plan, options, again))
    EXPECT_TRUE(result.correct) << result.message;
  for (const RankResult &result : runProcesses(3, plan.plan, options, again))
    EXPECT_TRUE(result.correct) << result.message;
}
