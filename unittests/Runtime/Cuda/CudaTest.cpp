//===- CudaTest.cpp - Ranks on GPUs exchange, and fail to -----------------===//
//
// Runs on real devices; where there is no driver, on the fake one that lies
// beside the program, or that the environment's SHARDQ_CUDA_DRIVER names;
// skipped without either. The program carries everything with it, so that it
// can be taken to a machine with GPUs.
//
//===----------------------------------------------------------------------===//

#include "CudaRank.h"
#include "Scenarios.h"
#include "TestPtx.h"
#include "nccl/Library.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <optional>
#include <unistd.h>

using namespace shardq;
using namespace shardq::test;

static bool isFake() {
  const char *path = std::getenv("SHARDQ_CUDA_DRIVER");
  return path && std::strstr(path, "Fake");
}

namespace {

enum class Kind { Threads, Processes };

class Cuda : public testing::Test {
protected:
  void SetUp() override {
    std::string why;
    if (countCudaDevices(why) == 0)
      GTEST_SKIP() << "no CUDA device: " << why;
  }
};

class CudaRanks : public Cuda,
                  public testing::WithParamInterface<std::pair<Kind, int32_t>> {
protected:
  int32_t world() const { return GetParam().second; }

  std::vector<RankResult> run(const char *scenario) {
    return GetParam().first == Kind::Threads
               ? runOnThreads(scenario, world())
               : runOnProcesses(scenario, world());
  }

  void expectCorrect(const char *scenario) {
    for (const RankResult &result : run(scenario)) {
      EXPECT_TRUE(result.ran);
      EXPECT_EQ(result.created, SHARDQ_OK) << result.message;
      EXPECT_EQ(result.status, SHARDQ_OK) << result.message;
      EXPECT_TRUE(result.correct) << result.value;
    }
  }

  /// All ranks but those that the scenario ends report the same.
  void expectFailure(const char *scenario, shardq_status status,
                     int32_t culprit, const std::string &text,
                     int32_t without = -1) {
    std::vector<RankResult> results = run(scenario);
    for (int32_t rank = 0; rank != world(); ++rank) {
      const RankResult &result = results[size_t(rank)];
      if (rank == without)
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

  std::string odd() const { return "rank " + std::to_string(oddRank(world())); }
};

} // namespace

TEST_P(CudaRanks, LayersBackToBack) { expectCorrect("layers"); }
TEST_P(CudaRanks, LoneExchangeInTwoGenerations) { expectCorrect("lone"); }
TEST_P(CudaRanks, ExchangesInsideOthers) { expectCorrect("overlap"); }
TEST_P(CudaRanks, ExchangesAside) { expectCorrect("aside"); }

TEST_P(CudaRanks, ExchangesAsideOfTwoSlots) {
  if (GetParam().first == Kind::Threads && world() > 4 && !isFake())
    GTEST_SKIP() << "one device has queues for 32 streams";
  expectCorrect("aside-slots");
}

TEST_P(CudaRanks, GraphReplays) { expectCorrect("graph"); }
TEST_P(CudaRanks, SlotsOnTwoStreams) { expectCorrect("slots"); }
TEST_P(CudaRanks, DelayedRank) { expectCorrect("delayed"); }

TEST_P(CudaRanks, DeadlineNamesTheRank) {
  expectFailure("deadline", SHARDQ_DEADLINE, oddRank(world()),
                odd() + " last seen at 1");
}

TEST_P(CudaRanks, RankLeaves) {
  expectFailure("leaving", SHARDQ_PEER_LEFT, oddRank(world()),
                odd() + " left the group", oddRank(world()));
}

TEST_P(CudaRanks, AbortEndsKernels) {
  expectFailure("aborting", SHARDQ_ABORTED, oddRank(world()),
                odd() + " aborted the group");
}

TEST_P(CudaRanks, CapacityIsRecorded) {
  expectFailure("capacity", SHARDQ_CAPACITY, oddRank(world()),
                odd() + " has 1000000 rows");
}

TEST_P(CudaRanks, TokenBeyondTheTableIsRecorded) {
  expectFailure("beyond", SHARDQ_INVALID, oddRank(world()),
                odd() + ": a token of request 3 is to be written to block 9, "
                        "and its block table has 8");
}

TEST_P(CudaRanks, EntryThatIsNoPlaceIsRecorded) {
  expectFailure("no-place", SHARDQ_INVALID, oddRank(world()),
                odd() + ": a token of request 3 is to be written to block 9, "
                        "whose entry in the block table is -1");
}

TEST_P(CudaRanks, SlotBeyondTheCacheIsRecorded) {
  expectFailure("beyond-cache", SHARDQ_INVALID, oddRank(world()),
                odd() + ": row 7 of those to write has slot 5000000000, and "
                        "the cache has 4096 rows");
}

TEST_P(CudaRanks, DecodesWithinARequestAreRecorded) {
  expectFailure("split-request", SHARDQ_INVALID, oddRank(world()),
                odd() + ": the step has 2 decode rows, which end within "
                        "request 0, and the next one begins at row 4");
}

TEST_P(CudaRanks, SizesThatDisagreeAreRecorded) {
  expectFailure("sizes", SHARDQ_INVALID, oddRank(world()),
                odd() + ": sizes disagree, 5 where 4 is expected");
}

TEST_P(CudaRanks, FaultStall) {
  expectFailure("stall", SHARDQ_DEADLINE, oddRank(world()), odd());
}

TEST_P(CudaRanks, FaultStallAside) {
  expectFailure("aside-stall", SHARDQ_DEADLINE, oddRank(world()), odd());
}

TEST_P(CudaRanks, FaultWrongRowsAside) {
  expectFailure("aside-wrong-rows", SHARDQ_WRONG_ROWS, oddRank(world()),
                odd() + " pushed");
}

TEST_P(CudaRanks, FaultDropFlag) {
  expectFailure("drop-flag", SHARDQ_DEADLINE, oddRank(world()),
                "whose signal did not arrive");
}

TEST_P(CudaRanks, FaultWrongRows) {
  expectFailure("wrong-rows", SHARDQ_WRONG_ROWS, oddRank(world()),
                odd() + " pushed");
}

TEST_P(CudaRanks, FaultWrongOperation) {
  expectFailure("wrong-operation", SHARDQ_WRONG_OPERATION, oddRank(world()),
                odd() + " ran out exchange 1 of @test");
}

TEST_P(CudaRanks, FaultKill) {
  if (GetParam().first == Kind::Threads)
    GTEST_SKIP() << "threads die together";
  expectFailure("kill", SHARDQ_PEER_DEAD, oddRank(world()), odd() + " died",
                oddRank(world()));
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaRanks,
    testing::Values(std::pair(Kind::Threads, 2), std::pair(Kind::Threads, 3),
                    std::pair(Kind::Threads, 4), std::pair(Kind::Threads, 8),
                    std::pair(Kind::Processes, 2),
                    std::pair(Kind::Processes, 3),
                    std::pair(Kind::Processes, 4)),
    [](const auto &info) {
      return (info.param.first == Kind::Threads ? "threads_" : "processes_") +
             std::to_string(info.param.second);
    });

//===--- One rank ---------------------------------------------------------===//

namespace {

/// A rank alone, with a slot to call.
class CudaAlone : public Cuda {
protected:
  void create(uint64_t arenaBytes = 0) {
    ASSERT_EQ(shardq_thread_group_create(1, &group), SHARDQ_OK);
    ASSERT_EQ(shardq_bootstrap_threads(group, 0, &bootstrap), SHARDQ_OK);
    options.struct_size = sizeof(options);
    options.world = 1;
    options.bootstrap = bootstrap;
    options.plan = &plan.plan;
    options.fault = "";
    options.memory = SHARDQ_MEMORY_CUDA;
    options.arena_bytes = arenaBytes;
    char text[512] = "";
    ASSERT_EQ(shardq_comm_create(&options, &comm, text, sizeof(text)),
              SHARDQ_OK)
        << text;
    context = shardq_comm_context(comm, 0);
  }

  void TearDown() override {
    shardq_comm_destroy(comm);
    shardq_bootstrap_destroy(bootstrap);
    shardq_thread_group_destroy(group);
  }

  shardq_status status() {
    char text[1024] = "";
    shardq_status result = shardq_context_status(context, text, sizeof(text));
    message = text;
    return result;
  }

  TestPlan plan{1, 10};
  shardq_comm_options options{};
  shardq_thread_group *group = nullptr;
  shardq_bootstrap *bootstrap = nullptr;
  shardq_comm *comm = nullptr;
  shardq_context *context = nullptr;
  std::string message;
};

} // namespace

TEST_F(CudaAlone, ArenaGrowsAndStays) {
  create();
  CudaRank rank(comm, plan);
  shardq_rt_begin(context, rank.stream);
  void *first = shardq_rt_alloc(context, 1000);
  void *second = shardq_rt_alloc(context, 0);
  void *third = shardq_rt_alloc(context, int64_t(64) << 20);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 256, 0u);
  EXPECT_EQ(static_cast<char *>(second) - static_cast<char *>(first), 1024);
  shardq_rt_free(context, first);
  EXPECT_EQ(shardq_rt_alloc(context, 512), first);
  shardq_rt_free(context, nullptr);
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  // The next call finds everything free, and in the same places.
  shardq_rt_begin(context, rank.stream);
  EXPECT_EQ(shardq_rt_alloc(context, 1000), first);
  EXPECT_EQ(shardq_rt_alloc(context, 0), second);
  EXPECT_EQ(shardq_rt_alloc(context, int64_t(64) << 20), third);
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  // Captured, too.
  rank.capture([&] {
    shardq_rt_begin(context, rank.stream);
    EXPECT_EQ(shardq_rt_alloc(context, 1000), first);
    EXPECT_EQ(shardq_rt_alloc(context, 0), second);
    EXPECT_EQ(shardq_rt_alloc(context, int64_t(64) << 20), third);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  });
  EXPECT_EQ(status(), SHARDQ_OK);
}

TEST_F(CudaAlone, ArenaShortInACapture) {
  create(4096);
  CudaRank rank(comm, plan);
  rank.capture([&] {
    shardq_rt_begin(context, rank.stream);
    EXPECT_NE(shardq_rt_alloc(context, 4000), nullptr);
    EXPECT_EQ(shardq_rt_alloc(context, 10'000), nullptr);
    // Nothing goes on after it.
    EXPECT_EQ(shardq_rt_alloc(context, 1), nullptr);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_CAPACITY);
  });
  EXPECT_EQ(status(), SHARDQ_CAPACITY);
  EXPECT_EQ(message,
            "rank 0 lacks 10240 bytes of temporary memory in slot 0, which has "
            "4096, while its stream is captured: run once before the capture, "
            "or raise arena_bytes");
}

TEST_F(CudaAlone, KernelsAreLoadedBeforeACapture) {
  create();
  CudaRank rank(comm, plan);
  static const shardq_gpu_image other = kTestImage;
  rank.capture([&] {
    shardq_rt_begin(context, rank.stream);
    cuda::Address word = 0;
    void *params[] = {&word};
    shardq_rt_launch(context, &other, kTestNext, 1, params);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
  });
  EXPECT_EQ(status(), SHARDQ_INVALID);
  EXPECT_NE(message.find("call shardq_comm_load before"), std::string::npos)
      << message;
}

TEST_F(CudaAlone, ImagesThatCannotBeLoaded) {
  create();
  char text[2048] = "";
  EXPECT_EQ(shardq_comm_load(comm, nullptr, text, sizeof(text)),
            SHARDQ_INVALID);
  static const char broken[] =
      ".version 8.0\n.target sm_80\n.address_size 64\nbroken\n";
  shardq_gpu_image image = kTestImage;
  image.code = broken;
  image.code_bytes = sizeof(broken);
  EXPECT_EQ(shardq_comm_load(comm, &image, text, sizeof(text)), SHARDQ_SYSTEM);
  EXPECT_NE(std::string(text).find("the image is PTX for sm_80"),
            std::string::npos)
      << text;
  EXPECT_NE(std::string(text).find("the driver says: ptxas"), std::string::npos)
      << text;

  shardq_gpu_kernel unknown = {"no_such_kernel", 32, 0};
  image = kTestImage;
  image.num_kernels = 1;
  image.kernels = &unknown;
  EXPECT_EQ(shardq_comm_load(comm, &image, text, sizeof(text)), SHARDQ_INVALID);
  EXPECT_NE(std::string(text).find("no_such_kernel"), std::string::npos)
      << text;
  unknown = {"shardq_test_next", 32, 1 << 30};
  EXPECT_EQ(shardq_comm_load(comm, &image, text, sizeof(text)), SHARDQ_SYSTEM);
  unknown = {"shardq_test_next", 0, 0};
  EXPECT_EQ(shardq_comm_load(comm, &image, text, sizeof(text)), SHARDQ_INVALID);
  // None of it is the group's business.
  EXPECT_EQ(status(), SHARDQ_OK);

  cuda::Current current(comm->gpu->driver, comm->gpu->context);
  image.code = broken;
  shardq_rt_begin(context, nullptr);
  shardq_rt_launch(context, &image, 0, 1, nullptr);
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_SYSTEM);
}

TEST_F(CudaAlone, CallsOutOfOrder) {
  create();
  EXPECT_EQ(shardq_rt_alloc(context, 8), nullptr);
  EXPECT_EQ(status(), SHARDQ_INVALID);
  EXPECT_NE(message.find("outside of shardq_rt_begin"), std::string::npos)
      << message;
}

TEST_F(CudaAlone, NoSuchKernel) {
  create();
  shardq_rt_begin(context, nullptr);
  shardq_rt_launch(context, &kTestImage, 99, 1, nullptr);
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
  EXPECT_EQ(status(), SHARDQ_INVALID);
  EXPECT_NE(message.find("no kernel 99"), std::string::npos) << message;
}

TEST_F(CudaAlone, HostCodeIsRefused) {
  create();
  int64_t rows = 0;
  shardq_rt_workspace(context, 0, 1, 1);
  EXPECT_EQ(status(), SHARDQ_INVALID);
  EXPECT_NE(message.find("code for the host"), std::string::npos) << message;
  shardq_rt_signal(context, 0, 0, 0, 1, 1, &rows);
  shardq_rt_wait(context, 0, 0, 0, 1, 1, &rows);
}

TEST_F(CudaAlone, ContextIsTheCallersAfterwards) {
  create();
  const cuda::Driver &driver = comm->gpu->driver;
  driver.setCurrent(nullptr);
  shardq_rt_begin(context, nullptr);
  cuda::ContextHandle current = nullptr;
  driver.getCurrent(&current);
  EXPECT_EQ(current, comm->gpu->context);
  shardq_rt_end(context);
  driver.setCurrent(nullptr);
}

TEST_F(CudaAlone, LaunchCallbackComesBeforeEachKernel) {
  create();
  CudaRank rank(comm, plan);
  struct Seen {
    CudaRank &rank;
    std::vector<std::string> names;
    std::vector<uint64_t> rounds;
  } seen{rank, {}, {}};
  shardq_context_set_launch_callback(
      context,
      [](void *user, const char *kernel) {
        Seen &seen = *static_cast<Seen *>(user);
        seen.names.emplace_back(kernel);
        seen.rounds.push_back(seen.rank.countRounds());
      },
      &seen);
  rank.exchange(0);
  EXPECT_EQ(seen.names,
            (std::vector<std::string>{
                "shardq_test_counts", "shardq_test_push", "shardq_test_signal",
                "shardq_test_wait", "shardq_test_verify", "shardq_test_next"}));
  // The last kernel counts the rounds, and had not run.
  EXPECT_EQ(seen.rounds.back(), 0u);
  EXPECT_EQ(rank.countRounds(), 1u);
  shardq_context_set_launch_callback(context, nullptr, nullptr);
  rank.exchange(0);
  EXPECT_EQ(seen.names.size(), 6u);
  EXPECT_EQ(rank.countWrong(), 0u);
}

TEST_F(CudaAlone, TapCopiesToTheHost) {
  create();
  CudaRank rank(comm, plan);
  struct Seen {
    std::vector<int32_t> values;
    std::vector<int32_t> rows;
  } seen;
  shardq_context_set_tap(
      context,
      [](void *user, const shardq_tap_value *value) {
        Seen &seen = *static_cast<Seen *>(user);
        const int32_t *data = static_cast<const int32_t *>(value->data);
        for (int64_t i = 0; i != value->sizes[0]; ++i)
          for (int64_t j = 0; j != value->sizes[1]; ++j)
            seen.values.push_back(
                data[i * value->strides[0] + j * value->strides[1]]);
        for (int64_t i = 0; i != value->sizes[0]; ++i)
          seen.rows.push_back(value->rows[i]);
      },
      &seen);
  shardq_rt_begin(context, rank.stream);
  int32_t values[12], rows[2] = {7, 9};
  for (int32_t i = 0; i != 12; ++i)
    values[i] = i;
  void *onDevice = shardq_rt_alloc(context, sizeof(values));
  void *rowsOnDevice = shardq_rt_alloc(context, sizeof(rows));
  rank.driver.copyToDevice(reinterpret_cast<cuda::Address>(onDevice), values,
                           sizeof(values), rank.stream);
  rank.driver.copyToDevice(reinterpret_cast<cuda::Address>(rowsOnDevice), rows,
                           sizeof(rows), rank.stream);
  // The last two columns of four, rows backwards.
  int64_t sizes[] = {2, 2}, strides[] = {-4, 1};
  const int32_t *last = static_cast<const int32_t *>(onDevice) + 4 + 2;
  shardq_rt_tap(context, "x", 4, 2, last, sizes, strides,
                static_cast<const int32_t *>(rowsOnDevice), 2);
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  EXPECT_EQ(seen.values, (std::vector<int32_t>{6, 7, 2, 3}));
  EXPECT_EQ(seen.rows, (std::vector<int32_t>{7, 9}));
  rank.capture([&] {
    shardq_rt_begin(context, rank.stream);
    shardq_rt_tap(context, "x", 4, 2, last, sizes, strides, nullptr, 2);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_INVALID);
  });
}

TEST_F(Cuda, DeviceThatIsNotThere) {
  TestPlan plan(2, 4);
  RankOptions options;
  options.adjust = [](int32_t rank, shardq_comm_options &comm) {
    comm.memory = SHARDQ_MEMORY_CUDA;
    comm.cuda_device = rank == 1 ? 1000 : 0;
  };
  for (const RankResult &result :
       runThreads(2, plan.plan, options, [](shardq_comm *, RankResult &) {})) {
    EXPECT_EQ(result.created, SHARDQ_INVALID);
    EXPECT_EQ(std::string(result.message)
                  .rfind("rank 1: cuda_device is 1000, the driver has", 0),
              0u)
        << result.message;
  }
}

TEST_F(Cuda, MemoryKindsDiffer) {
  TestPlan plan(3, 4);
  RankOptions options;
  options.adjust = [](int32_t rank, shardq_comm_options &comm) {
    comm.memory = rank == 2 ? SHARDQ_MEMORY_HOST : SHARDQ_MEMORY_CUDA;
  };
  for (const RankResult &result :
       runThreads(3, plan.plan, options, [](shardq_comm *, RankResult &) {})) {
    EXPECT_EQ(result.created, SHARDQ_MISMATCH);
    EXPECT_STREQ(result.message,
                 "rank 2 has its buffers on the host, but rank 0 on a GPU");
  }
}

//===--- Without any device ----------------------------------------------===//

TEST(CudaDriver, NoMulticastFunctions) {
  // Nothing can make a multicast object that has no function to do so.
#define SYMBOL(NAME, SYMBOL, PARAMETERS) SYMBOL,
#define NCCL_SYMBOL(NAME, TYPE, SYMBOL, PARAMETERS) SYMBOL,
  std::vector<std::string> symbols = {
      SHARDQ_CUDA_FUNCTIONS(SYMBOL) SHARDQ_CUDA_OPTIONAL_FUNCTIONS(SYMBOL)
          SHARDQ_NCCL_FUNCTIONS(NCCL_SYMBOL)};
#undef NCCL_SYMBOL
#undef SYMBOL
  EXPECT_GT(symbols.size(), 50u);
  for (const std::string &symbol : symbols)
    for (const char *word : {"Multicast", "Window", "Register", "ncclMemAlloc"})
      EXPECT_EQ(symbol.find(word), std::string::npos) << symbol;
}

/// The PTX of one test kernel.
static std::string ptxOf(const std::string &kernel) {
  std::string text = kTestPtx;
  size_t begin = text.find(".entry " + kernel + "(");
  if (begin == std::string::npos)
    return "";
  return text.substr(begin, text.find(".entry ", begin + 1) - begin);
}

static size_t count(const std::string &text, const std::string &what) {
  size_t result = 0;
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + 1))
    ++result;
  return result;
}

TEST(CudaDeviceLibrary, FlagsAreOrdered) {
  std::string signal = ptxOf("shardq_test_signal");
  // The flag, told rightly and by a fault, then the epoch; with what is pushed
  // before them, on every GPU of the system.
  EXPECT_GE(count(signal, "st.release.sys"), 2u);
  EXPECT_EQ(count(signal, "st.release"), count(signal, "st.release.sys"));
  // Before the flags, around the epoch.
  EXPECT_GE(count(signal, "bar.red.or.pred"), 3u);
  std::string wait = ptxOf("shardq_test_wait");
  EXPECT_GE(count(wait, "ld.acquire.sys"), 1u);
  EXPECT_EQ(count(wait, "ld.acquire"), count(wait, "ld.acquire.sys"));
  EXPECT_GE(count(wait, "%globaltimer"), 1u);
  EXPECT_GE(count(wait, "fence.proxy.alias"), 1u);
}

TEST(CudaDeviceLibrary, KernelsHaveNoCallsAndNoStack) {
  std::string text = kTestPtx;
  EXPECT_EQ(count(text, "call."), 0u);
  EXPECT_EQ(count(text, ".local"), 0u);
  EXPECT_EQ(count(text, "ld.global.nc"), 0u);
  EXPECT_EQ(count(text, "trap"), 0u);
  EXPECT_EQ(count(text, ".version 8.4"), 1u);
}

//===--- Only with the fake driver ----------------------------------------===//

TEST_F(Cuda, LostWritesAreNoticed) {
  if (!isFake())
    GTEST_SKIP() << "a real device loses none";
  for (auto [lost, text] : {std::pair("store", "a kernel's stores"),
                            std::pair("copy", "cuMemcpyDtoDAsync"),
                            std::pair("copy2d", "cuMemcpy2DAsync")}) {
    setenv("SHARDQ_FAKE_LOSE", lost, 1);
    TestPlan plan(2, 4);
    RankOptions options;
    options.adjust = [](int32_t, shardq_comm_options &comm) {
      comm.memory = SHARDQ_MEMORY_CUDA;
      comm.transport = SHARDQ_TRANSPORT_DIRECT;
    };
    for (const RankResult &result : runThreads(
             2, plan.plan, options, [](shardq_comm *, RankResult &) {})) {
      EXPECT_EQ(result.created, SHARDQ_UNREACHABLE);
      EXPECT_NE(std::string(result.message).find(text), std::string::npos)
          << result.message;
    }
  }
  unsetenv("SHARDQ_FAKE_LOSE");
}

TEST_F(Cuda, DeviceIsFull) {
  if (!isFake())
    GTEST_SKIP() << "a real device is too large";
  setenv("SHARDQ_FAKE_MEMORY", "1000000", 1);
  TestPlan plan(2, 4);
  RankOptions options;
  options.adjust = [](int32_t, shardq_comm_options &comm) {
    comm.memory = SHARDQ_MEMORY_CUDA;
  };
  for (const RankResult &result :
       runThreads(2, plan.plan, options, [](shardq_comm *, RankResult &) {})) {
    EXPECT_EQ(result.created, SHARDQ_SYSTEM);
    EXPECT_STREQ(result.message, "rank 0: 2097152 bytes on CUDA device 0: "
                                 "cuMemCreate failed: out of memory (2)");
  }
  unsetenv("SHARDQ_FAKE_MEMORY");
}

/// What the fake driver has counted on this thread, and the name that it gives.
static uint64_t askFake(const char *question, std::string *name = nullptr) {
  void *library = dlopen(std::getenv("SHARDQ_CUDA_DRIVER"), RTLD_NOW);
  void *address = library ? dlsym(library, question) : nullptr;
  uint64_t (*function)(const char **name) = nullptr;
  std::memcpy(&function, &address, sizeof(function));
  const char *text = "";
  uint64_t result = function ? function(&text) : 0;
  if (name)
    *name = text;
  return result;
}

/// Calls so far that the driver takes long for, or waits in.
static uint64_t countHeavyCalls(std::string &last) {
  return askFake("shardq_fake_heavy_calls", &last);
}

TEST_F(CudaAlone, KernelsThatStartEarly) {
  if (!isFake())
    GTEST_SKIP() << "a real driver does not count launches";
  create();
  CudaRank rank(comm, plan);
  std::vector<unsigned char> flags(static_cast<size_t>(kTestImage.num_kernels));
  flags[kTestNext] = 1;
  shardq_gpu_image early = kTestImage;
  early.starts_early = flags.data();
  auto countEarly = [&](const shardq_gpu_image &image) {
    uint64_t before = askFake("shardq_fake_early_launches");
    shardq_rt_begin(context, rank.stream);
    void *word = shardq_rt_alloc(context, sizeof(uint64_t));
    void *params[] = {&word};
    shardq_rt_launch(context, &image, kTestNext, 1, params);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
    EXPECT_TRUE(rank.synchronize());
    return askFake("shardq_fake_early_launches") - before;
  };
  EXPECT_EQ(countEarly(early), 1u);
  EXPECT_EQ(countEarly(kTestImage), 0u);
  // One of an older compiler has no such field.
  shardq_gpu_image shorter = early;
  shorter.struct_size = offsetof(shardq_gpu_image, starts_early);
  EXPECT_EQ(countEarly(shorter), 0u);
  // Older drivers cannot capture such launches.
  setenv("SHARDQ_FAKE_VERSION", "12020", 1);
  shardq_gpu_image again = early;
  EXPECT_EQ(countEarly(again), 0u);
  unsetenv("SHARDQ_FAKE_VERSION");
}

namespace {

/// A rank alone whose driver tells what streams were asked for.
class CudaAside : public CudaAlone {
protected:
  void SetUp() override {
    CudaAlone::SetUp();
    if (IsSkipped())
      return;
    if (!isFake())
      GTEST_SKIP() << "a real driver tells nothing";
    create();
    flags.assign(static_cast<size_t>(kTestImage.num_kernels), 1);
    early.starts_early = flags.data();
    rank.emplace(comm, plan);
    ASSERT_EQ(shardq_comm_load(comm, &early, nullptr, 0), SHARDQ_OK);
    ASSERT_EQ(rank->driver.allocate(&words, 2 * sizeof(uint64_t)), 0);
    trace();
  }

  void TearDown() override {
    if (rank)
      EXPECT_TRUE(rank->synchronize());
    rank.reset();
    CudaAlone::TearDown();
  }

  /// What has been asked since the last time, streams by letters.
  static std::string trace() {
    std::string text;
    askFake("shardq_fake_trace", &text);
    return text;
  }

  void launch(int word = 0) {
    cuda::Address address = words + static_cast<uint64_t>(word) * 8;
    void *params[] = {&address};
    shardq_rt_launch(context, &early, kTestNext, 1, params);
  }

  void launchAside() {
    shardq_rt_begin_aside(context, 0);
    launch(1);
    shardq_rt_end_aside(context);
  }

  std::vector<unsigned char> flags;
  shardq_gpu_image early = kTestImage;
  std::optional<CudaRank> rank;
  cuda::Address words = 0;
};

} // namespace

TEST_F(CudaAside, BehindBothEndsNothingStartsEarly) {
  shardq_rt_begin(context, rank->stream);
  launch();
  shardq_rt_begin_aside(context, 0);
  launch(1);
  launch(1);
  shardq_rt_end_aside(context);
  launch();
  launch();
  shardq_rt_join_aside(context);
  launch();
  launch();
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  EXPECT_EQ(trace(), "early a next, record a, wait b, launch b next, "
                     "early b next, launch a next, early a next, record b, "
                     "wait a, launch a next, early a next");
}

TEST_F(CudaAside, TwoOneAfterTheOther) {
  shardq_rt_begin(context, rank->stream);
  launchAside();
  shardq_rt_join_aside(context);
  launchAside();
  // Of one that nobody has joined.
  launchAside();
  shardq_rt_join_aside(context);
  // There is nothing to join.
  shardq_rt_join_aside(context);
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  std::string one = "record a, wait b, launch b next, record b, wait a";
  EXPECT_EQ(trace(), one + ", " + one + ", " + one);
}

TEST_F(CudaAside, OnTheDefaultStream) {
  shardq_rt_begin(context, nullptr);
  launchAside();
  shardq_rt_join_aside(context);
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  EXPECT_EQ(trace(), "record a, wait b, launch b next, record b, wait a");
}

TEST_F(CudaAside, ACallsEndJoins) {
  shardq_rt_begin(context, rank->stream);
  launchAside();
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  shardq_rt_begin(context, rank->stream);
  launch();
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  EXPECT_EQ(trace(), "record a, wait b, launch b next, record b, wait a, "
                     "launch a next");
}

TEST_F(CudaAside, TheNextBeginJoins) {
  shardq_rt_begin(context, rank->stream);
  shardq_rt_begin_aside(context, 0);
  launch(1);
  shardq_rt_begin(context, rank->stream);
  launch();
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  EXPECT_EQ(trace(), "record a, wait b, launch b next, record b, wait a, "
                     "launch a next");
}

TEST_F(CudaAside, InLineWithALaunchCallback) {
  int calls = 0;
  shardq_context_set_launch_callback(
      context, [](void *user, const char *) { ++*static_cast<int *>(user); },
      &calls);
  shardq_rt_begin(context, rank->stream);
  launchAside();
  shardq_rt_join_aside(context);
  launch();
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  shardq_context_set_launch_callback(context, nullptr, nullptr);
  EXPECT_EQ(trace(), "early a next, early a next");
  EXPECT_EQ(calls, 2);
}

TEST_F(CudaAside, JoinsAfterAnErrorInACapture) {
  for (bool asks : {true, false}) {
    if (!asks) {
      // The communicator of the first turn has failed.
      TearDown();
      SetUp();
    }
    CapturedGraph captured = rank->capture([&] {
      shardq_rt_begin(context, rank->stream);
      launch();
      shardq_rt_begin_aside(context, 0);
      launch(1);
      shardq_comm_abort(comm);
      launch(1);
      shardq_rt_end_aside(context);
      if (asks)
        shardq_rt_join_aside(context);
      launch();
      EXPECT_EQ(shardq_rt_end(context), SHARDQ_ABORTED);
    });
    EXPECT_TRUE(static_cast<bool>(captured));
    EXPECT_EQ(trace(), "early a next, record a, wait b, launch b next, "
                       "record b, wait a");
    // After it none begins.
    shardq_rt_begin(context, rank->stream);
    launchAside();
    shardq_rt_join_aside(context);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_ABORTED);
    EXPECT_EQ(trace(), "");
  }
}

TEST_F(CudaAside, ACaptureNeedsItsJoin) {
  // The fake driver is as strict as others.
  CapturedGraph captured = rank->capture([&] {
    shardq_rt_begin(context, rank->stream);
    launchAside();
  });
  EXPECT_FALSE(static_cast<bool>(captured));
  shardq_rt_join_aside(context);
  EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
}

TEST_F(CudaAlone, LaterCallsOnlyEnqueue) {
  if (!isFake())
    GTEST_SKIP() << "a real driver does not count calls";
  create();
  CudaRank rank(comm, plan);
  // That nobody has loaded.
  static const shardq_gpu_image lazy = kTestImage;
  auto program = [&](int64_t bytes) {
    rank.layer();
    rank.aside(0, 1);
    shardq_rt_begin(context, rank.stream);
    void *large = shardq_rt_alloc(context, bytes);
    void *word = shardq_rt_alloc(context, sizeof(uint64_t));
    EXPECT_NE(large, nullptr);
    void *params[] = {&word};
    shardq_rt_launch(context, &lazy, kTestNext, 1, params);
    shardq_rt_free(context, word);
    shardq_rt_free(context, large);
    EXPECT_EQ(shardq_rt_end(context), SHARDQ_OK);
  };
  std::string last;
  uint64_t before = countHeavyCalls(last);
  program(int64_t(80) << 20);
  uint64_t first = countHeavyCalls(last);
  EXPECT_GT(first, before);
  for (int64_t bytes : {int64_t(80) << 20, int64_t(1), int64_t(50) << 20})
    program(bytes);
  EXPECT_EQ(countHeavyCalls(last), first) << last;
  CapturedGraph captured = rank.capture([&] { program(int64_t(80) << 20); });
  captured.launch(rank.stream);
  EXPECT_EQ(countHeavyCalls(last), first) << last;
  EXPECT_TRUE(rank.synchronize());
  EXPECT_EQ(rank.countWrong(), 0u);
}

/// Takes the fake driver where there is no other.
static void chooseDriver() {
  if (std::getenv("SHARDQ_CUDA_DRIVER"))
    return;
  if (void *library = dlopen("libcuda.so.1", RTLD_NOW)) {
    dlclose(library);
    return;
  }
  char path[4096] = "";
  ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  std::string fake(path, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  fake = fake.substr(0, fake.rfind('/')) + "/libShardQFakeCuda.so";
  if (access(fake.c_str(), R_OK) != 0)
    return;
  std::fprintf(stderr, "no CUDA driver: tests run on %s\n", fake.c_str());
  setenv("SHARDQ_CUDA_DRIVER", fake.c_str(), 1);
  // NCCL's functions are in it, too.
  setenv("SHARDQ_NCCL", fake.c_str(), 0);
}

int main(int argc, char **argv) {
  chooseDriver();
  // Ranks that share a device need a hardware queue for each of their streams:
  // in one queue, a wait would hold up the signal that it waits for.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (argc == 7 && std::strcmp(argv[1], "--rank") == 0)
    return rankMain(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
