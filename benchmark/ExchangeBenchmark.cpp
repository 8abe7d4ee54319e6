//===- ExchangeBenchmark.cpp - Time of one exchange on the CPU ------------===//
//
// Push, signal and wait between rank processes: the protocol's own cost at
// small messages, and a copy's at large ones. One round is an exchange in both
// directions. The peers are forked for each measurement and run the same rounds
// until the first rank leaves.
//
//===----------------------------------------------------------------------===//

#include "shardq/runtime.h"

#include <benchmark/benchmark.h>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

/// One rank, with the memory it pushes from.
class Rank {
public:
  Rank(const std::string &directory, int32_t rank, int32_t world,
       uint64_t bytes)
      : world(world), bytes(bytes), source(bytes, char(rank)),
        rows(static_cast<size_t>(world), 1) {
    // A lone exchange: two generations.
    shardq_channel channel{"inbox", 0, bytes * uint64_t(world), 2, 0, 0, 0};
    shardq_plan plan{};
    plan.struct_size = sizeof(plan);
    plan.slots = 1;
    plan.num_channels = 1;
    plan.channel_size = sizeof(channel);
    plan.channels = &channel;
    plan.slot_bytes = channel.bytes * 2;
    shardq_bootstrap *bootstrap = nullptr;
    shardq_bootstrap_files(directory.c_str(), rank, world, &bootstrap);
    shardq_comm_options options{};
    options.struct_size = sizeof(options);
    options.rank = rank;
    options.world = world;
    options.bootstrap = bootstrap;
    options.plan = &plan;
    options.fault = "";
    shardq_comm_create(&options, &comm, message, sizeof(message));
    shardq_bootstrap_destroy(bootstrap);
    context = shardq_comm_context(comm, 0);
  }
  ~Rank() { shardq_comm_destroy(comm); }
  Rank(const Rank &) = delete;

  bool isReady() const { return context != nullptr; }
  bool isGood() {
    return shardq_context_status(context, message, sizeof(message)) ==
           SHARDQ_OK;
  }
  const char *getMessage() const { return message; }

  /// Pushes to everybody and waits for everybody.
  void exchange() {
    char *inbox = static_cast<char *>(
        shardq_rt_workspace(context, 0, world, int64_t(bytes)));
    int64_t self = shardq_rt_rank(context);
    char *mine = inbox + uint64_t(self) * bytes;
    for (int64_t step = 1; step <= world; ++step)
      std::memcpy(shardq_rt_peer(context, mine, (self + step) % world),
                  source.data(), bytes);
    shardq_rt_signal(context, 0, 0, 0, 1, world, rows.data());
    shardq_rt_wait(context, 0, 0, 0, 1, world, rows.data());
    benchmark::DoNotOptimize(*inbox);
  }

private:
  const int32_t world;
  const uint64_t bytes;
  std::vector<char> source;
  std::vector<int64_t> rows;
  char message[512] = "";
  shardq_comm *comm = nullptr;
  shardq_context *context = nullptr;
};

/// Arguments: ranks, bytes that a rank pushes to each.
void exchangeBetweenProcesses(benchmark::State &state) {
  int32_t world = static_cast<int32_t>(state.range(0));
  uint64_t bytes = static_cast<uint64_t>(state.range(1));
  std::string directory =
      (std::filesystem::temp_directory_path() / "shardq-bench-XXXXXX").string();
  if (!mkdtemp(directory.data())) {
    state.SkipWithError("no temporary directory");
    return;
  }
  std::vector<pid_t> children;
  for (int32_t rank = 1; rank != world; ++rank) {
    pid_t child = fork();
    if (child == 0) {
      {
        // Until rank 0 leaves, which ends the last exchange with an error.
        Rank self(directory, rank, world, bytes);
        while (self.isReady() && self.isGood())
          self.exchange();
      }
      _exit(0);
    }
    children.push_back(child);
  }
  {
    Rank self(directory, 0, world, bytes);
    if (!self.isReady())
      state.SkipWithError(self.getMessage());
    else
      for (auto iteration : state) {
        (void)iteration;
        self.exchange();
      }
    if (self.isReady() && !self.isGood())
      state.SkipWithError(self.getMessage());
  }
  for (pid_t child : children)
    waitpid(child, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  state.SetBytesProcessed(
      static_cast<int64_t>(state.iterations() * uint64_t(world - 1) * bytes));
}

} // namespace

// Registered by hand: the macros of the library use __COUNTER__, which pedantic
// warnings refuse.
int main(int argc, char **argv) {
  benchmark::RegisterBenchmark("exchange", exchangeBetweenProcesses)
      ->ArgNames({"ranks", "bytes"})
      ->Args({2, 64})
      ->Args({2, 1 << 16})
      ->Args({2, 1 << 20})
      ->Args({4, 64})
      ->Args({8, 64})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
