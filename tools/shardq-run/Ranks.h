//===- Ranks.h - A program on rank processes --------------------*- C++ -*-===//

#ifndef SHARDQ_RUN_RANKS_H
#define SHARDQ_RUN_RANKS_H

#include "GpuRank.h"
#include "KvShards.h"
#include "Progress.h"
#include "Signature.h"

namespace mlir::shardq::run {

/// A value that `shardq.tap` handed out on one rank.
struct TapRecord {
  std::string name;
  int64_t elementBytes = 0;
  std::vector<int64_t> shape;
  std::vector<char> data;
  /// The step row of each row; nothing where the value has all rows.
  std::optional<std::vector<int32_t>> rows;
};

/// What became of one rank.
struct RankOutcome {
  bool ok = false;
  std::string message; // why not
  std::vector<Array> results;
  std::vector<TapRecord> taps;
  double seconds = 0;    // of the calls
  std::string transport; // on GPUs: how rows travel, and why so
  BenchTimes times;      // where RunOptions asks for them
};

enum class Transport : int32_t {
  Auto = SHARDQ_TRANSPORT_AUTO,
  Direct = SHARDQ_TRANSPORT_DIRECT,
  Nccl = SHARDQ_TRANSPORT_NCCL
};

struct RunOptions {
  double timeoutSeconds = 120;
  int64_t repeat = 1;
  /// The runs behind the first in a thread for each slot.
  bool concurrent = false;
  bool recordTaps = false;

  /// On GPUs: rank r runs on device r / ranksPerGpu.
  int64_t ranksPerGpu = 1;
  Transport transport = Transport::Auto;
  /// On GPUs: what ranks call their hosts, dealt over them in turn.
  std::vector<std::string> hosts;
  /// Runs behind the first replay a captured graph.
  bool graph = false;
  /// Of those, each one with a number that this divides is a call; 0 for none.
  int64_t eagerEvery = 0;
  /// On a GPU: times the program, with so many replays a trial; 0 for not.
  int64_t benchReplays = 0;
  /// What ranks have in place of their blocks of global arrays, by turn; empty
  /// where no turn has any.
  llvm::ArrayRef<KvShards> shards;
  /// Rows of the step, which results with an open number of rows have.
  int64_t numRows = 0;
};

struct RunOutcome {
  std::vector<RankOutcome> ranks;
  double seconds = 0; // from the first fork to the last exit
  bool allOk() const {
    return llvm::all_of(ranks, [](const RankOutcome &r) { return r.ok; });
  }
};

/// Forks one process per rank and waits for all, at most the timeout; what runs
/// then is killed. Runs take turns with the sets of arguments, of equal shapes;
/// results are those of the first. An error only where the run could not begin.
llvm::Expected<RunOutcome> runRanks(const Program &program,
                                    const Signature &signature,
                                    llvm::ArrayRef<std::vector<Array>> turns,
                                    int64_t numRanks, const RunOptions &options,
                                    Progress &progress);

/// Global results of all ranks. An error says where ranks that hold the whole
/// of a result differ, or blocks of one do not fit together. `shards` are those
/// of the results' turn, null where ranks had whole caches, and `given` its
/// global arrays.
llvm::Expected<std::vector<Array>> assembleResults(const Signature &signature,
                                                   const RunOutcome &outcome,
                                                   const KvShards *shards,
                                                   llvm::ArrayRef<Array> given);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_RANKS_H
