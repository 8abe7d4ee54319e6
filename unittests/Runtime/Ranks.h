//===- Ranks.h - Groups of ranks for tests ----------------------*- C++ -*-===//
//
// Runs a function on every rank of a group, as threads or as forked processes,
// and a small program of exchanges that checks each row it receives.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_RANKS_H
#define SHARDQ_UNITTESTS_RUNTIME_RANKS_H

#include "shardq/runtime.h"

#include <functional>
#include <string>
#include <vector>

namespace shardq::test {

/// Longest wait of tests that expect a deadline error. Sanitizers are slow, and
/// a rank must not be late only because of them.
int64_t shortDeadlineMs();

/// A factor for the amount of work in tests that are slow under sanitizers.
bool isSanitized();

/// Whether no error is recorded.
inline bool isOk(shardq_context *context) {
  return shardq_context_status(context, nullptr, 0) == SHARDQ_OK;
}

/// A plan of channels that each hold `maxRows` rows from every rank, with the
/// storage that the C struct points to.
class TestPlan {
public:
  TestPlan(int32_t world, int64_t maxRows, int32_t slots = 1,
           const std::vector<int32_t> &generations = {1, 1});
  TestPlan(const TestPlan &) = delete;

  /// Lets a channel ask for NCCL.
  void carry(int32_t channel) {
    channels[static_cast<size_t>(channel)].transport = SHARDQ_TRANSPORT_NCCL;
  }

  /// Says that a channel is of groups of `size` ranks, `stride` apart.
  void group(int32_t channel, int32_t stride, int32_t size) {
    channels[static_cast<size_t>(channel)].group_stride = stride;
    channels[static_cast<size_t>(channel)].group_size = size;
  }

  shardq_plan plan{};
  const int64_t maxRows;

private:
  std::vector<shardq_channel> channels;
  std::vector<const char *> names;
};

/// What a rank reports. Plain, since it crosses between processes.
struct RankResult {
  bool ran;
  bool correct; // all rows that it read were right
  shardq_status created;
  shardq_status status;
  shardq_error error;
  int64_t elapsedMs;
  int64_t value;
  char message[512];
  char note[256]; // what else the body has to say
};

/// Body of a rank: fills in `correct` and `value`; status, error and message
/// are read from slot 0 afterwards.
using RankBody = std::function<void(shardq_comm *comm, RankResult &result)>;

struct RankOptions {
  int64_t deadlineMs = 30'000;
  int64_t rendezvousMs = 30'000;
  const char *fault = "";
  /// Changes a rank's options before the communicator is made.
  std::function<void(int32_t rank, shardq_comm_options &options)> adjust;
  /// Ranks that never come.
  int32_t absent = -1;
};

std::vector<RankResult> runThreads(int32_t world, const shardq_plan &plan,
                                   const RankOptions &options,
                                   const RankBody &body);
std::vector<RankResult> runProcesses(int32_t world, const shardq_plan &plan,
                                     const RankOptions &options,
                                     const RankBody &body);

/// Makes a communicator and runs `body` on this thread.
void runRank(shardq_bootstrap *bootstrap, int32_t rank, int32_t world,
             const shardq_plan &plan, const RankOptions &options,
             const RankBody &body, RankResult &result);

/// A directory that is removed at the end.
class TemporaryDirectory {
public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory &) = delete;
  const std::string &path() const { return name; }

private:
  std::string name;
};

/// Rows that `producer` pushes to `consumer` in one exchange: ragged, often
/// none, and the same wherever it is asked.
int64_t raggedRows(uint64_t seed, int64_t layer, int64_t producer,
                   int64_t consumer, int64_t maxRows);

/// One exchange of all ranks: pushes, signals, waits, checks. `round` tells
/// exchanges of a program apart. False if a row was wrong; true after an error
/// of the communicator, when there are no rows to check.
bool exchangeRows(shardq_context *context, const TestPlan &plan, int32_t world,
                  int32_t channel, int32_t operation, uint64_t seed,
                  int64_t round);

/// `layers` layers of a q exchange and an out exchange.
bool runLayers(shardq_context *context, const TestPlan &plan, int32_t world,
               int64_t layers, uint64_t seed);

} // namespace shardq::test

#endif // SHARDQ_UNITTESTS_RUNTIME_RANKS_H
