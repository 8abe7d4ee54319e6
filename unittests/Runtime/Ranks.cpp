//===- Ranks.cpp - Groups of ranks for tests ------------------------------===//

#include "Ranks.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace shardq::test;

static constexpr int64_t kRowWords = 4;
static constexpr int64_t kRowBytes = kRowWords * 8;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SHARDQ_TEST_SANITIZED 1
#endif
#endif

bool shardq::test::isSanitized() {
#ifdef SHARDQ_TEST_SANITIZED
  return true;
#else
  return false;
#endif
}

int64_t shardq::test::shortDeadlineMs() { return isSanitized() ? 2000 : 600; }

TestPlan::TestPlan(int32_t world, int64_t maxRows, int32_t slots,
                   const std::vector<int32_t> &generations)
    : maxRows(maxRows), names({"q exchange 0 of @test", "out exchange 1 of "
                                                        "@test"}) {
  uint64_t offset = 0;
  uint64_t bytes = static_cast<uint64_t>(world * maxRows * kRowBytes);
  for (int32_t count : generations) {
    channels.push_back({"inbox", offset, bytes, count, 0, 0, 0});
    offset += bytes * static_cast<uint64_t>(count);
  }
  plan.struct_size = sizeof(plan);
  plan.hash = 0x5eed;
  plan.slots = slots;
  plan.channel_size = sizeof(shardq_channel);
  plan.num_channels = static_cast<int32_t>(channels.size());
  plan.slot_bytes = offset;
  plan.channels = channels.data();
  plan.num_operations = static_cast<int32_t>(names.size());
  plan.operation_names = names.data();
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "shardq-XXXXXX").string();
  name = mkdtemp(pattern.data()) ? pattern : std::string();
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(name, ignored);
}

static int64_t nowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void shardq::test::runRank(shardq_bootstrap *bootstrap, int32_t rank,
                           int32_t world, const shardq_plan &plan,
                           const RankOptions &options, const RankBody &body,
                           RankResult &result) {
  shardq_comm_options comm{};
  comm.struct_size = sizeof(comm);
  comm.rank = rank;
  comm.world = world;
  comm.bootstrap = bootstrap;
  comm.plan = &plan;
  comm.deadline_ms = options.deadlineMs;
  comm.rendezvous_deadline_ms = options.rendezvousMs;
  comm.fault = options.fault;
  if (options.adjust)
    options.adjust(rank, comm);
  int64_t start = nowMs();
  shardq_comm *member = nullptr;
  result.created = shardq_comm_create(&comm, &member, result.message,
                                      sizeof(result.message));
  result.status = result.created;
  if (member) {
    start = nowMs();
    body(member, result);
    shardq_context *context = shardq_comm_context(member, 0);
    result.error.struct_size = sizeof(result.error);
    shardq_context_error(context, &result.error);
    result.status =
        shardq_context_status(context, result.message, sizeof(result.message));
    shardq_comm_destroy(member);
  }
  result.elapsedMs = nowMs() - start;
  result.ran = true;
}

std::vector<RankResult> shardq::test::runThreads(int32_t world,
                                                 const shardq_plan &plan,
                                                 const RankOptions &options,
                                                 const RankBody &body) {
  std::vector<RankResult> results(static_cast<size_t>(world));
  shardq_thread_group *group = nullptr;
  EXPECT_EQ(shardq_thread_group_create(world, &group), SHARDQ_OK);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank != world; ++rank) {
    if (rank == options.absent)
      continue;
    threads.emplace_back([&, rank] {
      shardq_bootstrap *bootstrap = nullptr;
      shardq_bootstrap_threads(group, rank, &bootstrap);
      runRank(bootstrap, rank, world, plan, options, body,
              results[static_cast<size_t>(rank)]);
      shardq_bootstrap_destroy(bootstrap);
    });
  }
  for (std::thread &thread : threads)
    thread.join();
  shardq_thread_group_destroy(group);
  return results;
}

std::vector<RankResult> shardq::test::runProcesses(int32_t world,
                                                   const shardq_plan &plan,
                                                   const RankOptions &options,
                                                   const RankBody &body) {
  TemporaryDirectory directory;
  size_t bytes = sizeof(RankResult) * static_cast<size_t>(world);
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return {};
  RankResult *results = static_cast<RankResult *>(memory);
  // What is buffered here would be written by the children again.
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank != world; ++rank) {
    if (rank == options.absent)
      continue;
    pid_t child = fork();
    if (child == 0) {
      // A hang is a failed test, not a stuck one.
      alarm(120);
      shardq_bootstrap *bootstrap = nullptr;
      shardq_bootstrap_files(directory.path().c_str(), rank, world, &bootstrap);
      runRank(bootstrap, rank, world, plan, options, body, results[rank]);
      shardq_bootstrap_destroy(bootstrap);
      _exit(0);
    }
    EXPECT_GT(child, 0);
    children.push_back(child);
  }
  for (pid_t child : children)
    waitpid(child, nullptr, 0);
  std::vector<RankResult> copy(results, results + world);
  munmap(memory, bytes);
  return copy;
}

/// A well mixed function of its arguments (splitmix64's finalizer).
static uint64_t mix(uint64_t a, uint64_t b = 0, uint64_t c = 0,
                    uint64_t d = 0) {
  uint64_t hash = 0;
  for (uint64_t word : {a, b, c, d}) {
    hash += word + 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  }
  return hash;
}

int64_t shardq::test::raggedRows(uint64_t seed, int64_t layer, int64_t producer,
                                 int64_t consumer, int64_t maxRows) {
  // A quarter of the ranks has no rows at all in a layer.
  if (mix(seed, uint64_t(layer), uint64_t(producer), 1) % 4 == 0)
    return 0;
  return static_cast<int64_t>(mix(seed ^ uint64_t(layer) << 20,
                                  uint64_t(producer), uint64_t(consumer), 2) %
                              static_cast<uint64_t>(maxRows + 1));
}

bool shardq::test::exchangeRows(shardq_context *context, const TestPlan &plan,
                                int32_t world, int32_t channel,
                                int32_t operation, uint64_t seed,
                                int64_t round) {
  int64_t self = shardq_rt_rank(context);
  int64_t block = plan.maxRows * kRowBytes;
  char *inbox = static_cast<char *>(
      shardq_rt_workspace(context, channel, plan.maxRows, kRowBytes));
  std::vector<int64_t> sent(static_cast<size_t>(world));
  std::vector<int64_t> expected(static_cast<size_t>(world));
  std::vector<uint64_t> row(kRowWords);
  auto fill = [&](int64_t producer, int64_t consumer, int64_t index) {
    for (int64_t word = 0; word != kRowWords; ++word)
      row[size_t(word)] = mix(seed + uint64_t(round), uint64_t(producer),
                              uint64_t(consumer), uint64_t(index * 8 + word));
  };

  for (int64_t peer = 0; peer != world; ++peer) {
    sent[size_t(peer)] = raggedRows(seed, round, self, peer, plan.maxRows);
    expected[size_t(peer)] = raggedRows(seed, round, peer, self, plan.maxRows);
    // My block in the peer's inbox, as generated code pushes: plain stores.
    char *target = static_cast<char *>(
        shardq_rt_peer(context, inbox + self * block, peer));
    for (int64_t i = 0; i != sent[size_t(peer)]; ++i) {
      fill(self, peer, i);
      std::memcpy(target + i * kRowBytes, row.data(), kRowBytes);
    }
  }
  shardq_rt_signal(context, channel, operation, 0, 1, world, sent.data());
  shardq_rt_wait(context, channel, operation, 0, 1, world, expected.data());
  if (!isOk(context))
    return true;
  for (int64_t peer = 0; peer != world; ++peer)
    for (int64_t i = 0; i != expected[size_t(peer)]; ++i) {
      fill(peer, self, i);
      if (std::memcmp(inbox + peer * block + i * kRowBytes, row.data(),
                      kRowBytes) != 0)
        return false;
    }
  return true;
}

bool shardq::test::runLayers(shardq_context *context, const TestPlan &plan,
                             int32_t world, int64_t layers, uint64_t seed) {
  for (int64_t layer = 0; layer != layers; ++layer)
    for (int32_t channel = 0; channel != 2; ++channel) {
      if (!exchangeRows(context, plan, world, channel, channel, seed,
                        2 * layer + channel))
        return false;
      if (!isOk(context))
        return true;
    }
  return true;
}
