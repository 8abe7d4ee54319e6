//===- CudaOptionsTest.cpp - Options of GPUs, on machines without ---------===//

#include "Ranks.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>

using namespace shardq::test;

namespace {

/// Names another library as the CUDA driver, for a test.
class DriverPath {
public:
  explicit DriverPath(const char *path) {
    if (const char *text = std::getenv("SHARDQ_CUDA_DRIVER"))
      before = text;
    setenv("SHARDQ_CUDA_DRIVER", path, 1);
  }
  ~DriverPath() {
    if (before.empty())
      unsetenv("SHARDQ_CUDA_DRIVER");
    else
      setenv("SHARDQ_CUDA_DRIVER", before.c_str(), 1);
  }

private:
  std::string before;
};

void idle(shardq_comm *, RankResult &result) { result.correct = true; }

void expectAll(const std::vector<RankResult> &results, shardq_status status,
               const std::string &text) {
  for (const RankResult &result : results) {
    EXPECT_EQ(result.created, status) << result.message;
    EXPECT_NE(std::string(result.message).find(text), std::string::npos)
        << result.message;
  }
}

RankOptions
adjusted(std::function<void(int32_t, shardq_comm_options &)> adjust) {
  RankOptions options;
  options.adjust = std::move(adjust);
  return options;
}

} // namespace

TEST(CudaOptions, NoDriver) {
  DriverPath path("/nowhere/libcuda.so.1");
  TestPlan plan(3, 4);
  RankOptions options = adjusted([](int32_t, shardq_comm_options &comm) {
    comm.memory = SHARDQ_MEMORY_CUDA;
  });
  expectAll(runThreads(3, plan.plan, options, idle), SHARDQ_SYSTEM,
            "rank 0: no CUDA driver: /nowhere/libcuda.so.1");
  expectAll(runProcesses(3, plan.plan, options, idle), SHARDQ_SYSTEM,
            "rank 0: no CUDA driver: /nowhere/libcuda.so.1");
}

TEST(CudaOptions, DriverWithoutSymbols) {
  DriverPath path("libm.so.6");
  TestPlan plan(2, 4);
  RankOptions options = adjusted([](int32_t, shardq_comm_options &comm) {
    comm.memory = SHARDQ_MEMORY_CUDA;
  });
  expectAll(runThreads(2, plan.plan, options, idle), SHARDQ_SYSTEM,
            "the CUDA driver libm.so.6 is too old: it has no cuInit");
}

TEST(CudaOptions, OneRankWithoutDriverFailsAll) {
  DriverPath path("/nowhere/libcuda.so.1");
  TestPlan plan(3, 4);
  RankOptions options = adjusted([](int32_t rank, shardq_comm_options &comm) {
    comm.memory = rank == 1 ? SHARDQ_MEMORY_CUDA : SHARDQ_MEMORY_HOST;
  });
  expectAll(runThreads(3, plan.plan, options, idle), SHARDQ_SYSTEM,
            "rank 1: no CUDA driver");
}

TEST(CudaOptions, CallersOfVersionOne) {
  TestPlan plan(2, 4);
  RankOptions options = adjusted([](int32_t, shardq_comm_options &comm) {
    // What lies behind is not the library's.
    comm.struct_size = offsetof(shardq_comm_options, memory);
    std::memset(&comm.memory, 0x77,
                sizeof(comm) - offsetof(shardq_comm_options, memory));
  });
  expectAll(runThreads(2, plan.plan, options, idle), SHARDQ_OK, "");
  // One that stops in between has the fields it has.
  options = adjusted([](int32_t, shardq_comm_options &comm) {
    comm.struct_size = offsetof(shardq_comm_options, transport);
    std::memset(&comm.transport, 0x77,
                sizeof(comm) - offsetof(shardq_comm_options, transport));
  });
  expectAll(runThreads(2, plan.plan, options, idle), SHARDQ_OK, "");
  options = adjusted([](int32_t, shardq_comm_options &comm) {
    comm.struct_size = offsetof(shardq_comm_options, memory) - 1;
  });
  expectAll(runThreads(2, plan.plan, options, idle), SHARDQ_INVALID,
            "struct_size is");
  // A caller that is newer than the library.
  struct {
    shardq_comm_options options;
    char more[64];
  } newer{};
  newer.options.struct_size = sizeof(newer);
  newer.options.world = 1;
  newer.options.plan = &plan.plan;
  char text[256];
  shardq_comm *comm = nullptr;
  EXPECT_EQ(shardq_comm_create(&newer.options, &comm, text, sizeof(text)),
            SHARDQ_INVALID);
  EXPECT_STREQ(text, "options: bootstrap is NULL");
}

TEST(CudaOptions, UnknownValues) {
  TestPlan plan(2, 4);
  expectAll(runThreads(2, plan.plan,
                       adjusted([](int32_t, shardq_comm_options &comm) {
                         comm.memory = 2;
                       }),
                       idle),
            SHARDQ_INVALID, "memory is 2");
  expectAll(runThreads(2, plan.plan,
                       adjusted([](int32_t, shardq_comm_options &comm) {
                         comm.transport = SHARDQ_TRANSPORT_NCCL;
                       }),
                       idle),
            SHARDQ_INVALID, "transport is NCCL");
  expectAll(runThreads(2, plan.plan,
                       adjusted([](int32_t, shardq_comm_options &comm) {
                         comm.transport = 9;
                       }),
                       idle),
            SHARDQ_INVALID, "transport is 9");
  expectAll(runThreads(2, plan.plan,
                       adjusted([](int32_t, shardq_comm_options &comm) {
                         comm.arena_bytes = ~uint64_t(0);
                       }),
                       idle),
            SHARDQ_INVALID, "arena_bytes is");
}

TEST(CudaOptions, TransportsDiffer) {
  TestPlan plan(3, 4);
  expectAll(runThreads(3, plan.plan,
                       adjusted([](int32_t rank, shardq_comm_options &comm) {
                         comm.transport = rank == 2 ? SHARDQ_TRANSPORT_DIRECT
                                                    : SHARDQ_TRANSPORT_AUTO;
                       }),
                       idle),
            SHARDQ_MISMATCH, "rank 2 and rank 0 differ in transport: 1 and 0");
}

TEST(CudaOptions, LoadNeedsAGpu) {
  char text[256] = "?";
  EXPECT_EQ(shardq_comm_load(nullptr, nullptr, text, sizeof(text)),
            SHARDQ_INVALID);
  EXPECT_STREQ(text, "comm is NULL");
  TestPlan plan(1, 4);
  runThreads(1, plan.plan, {}, [](shardq_comm *comm, RankResult &) {
    char message[256] = "?";
    EXPECT_EQ(shardq_comm_load(comm, nullptr, message, sizeof(message)),
              SHARDQ_INVALID);
    EXPECT_STREQ(message, "the communicator's buffers are not on a GPU");
  });
}
