//===- Verify.h - Original, rewritten and reference, compared ---*- C++ -*-===//

#ifndef SHARDQ_RUN_VERIFY_H
#define SHARDQ_RUN_VERIFY_H

#include "Inputs.h"
#include "Ranks.h"
#include "Reference.h"
#include <functional>

namespace mlir::shardq::run {

struct VerifyOptions {
  /// Of KV caches that are cut anew.
  uint64_t seed = 0;
  /// Pass pipeline that rewrites the program.
  std::string pipeline;
  CompileOptions compile;
  RunOptions run;
  int64_t numRanks = 1;
  /// Context and new tokens that tables of the step have room for, where the
  /// sizes of buffers may follow from it.
  int64_t tableTokens = 0;
};

/// Sizes of buffers for a program that passes have made: one that gathers all
/// blocks of its tables needs room for them.
CompileOptions getCompileOptions(ModuleOp changed,
                                 const VerifyOptions &options);

/// An error where gathers of the program take another block for none than the
/// one that made-up caches leave free.
llvm::Error checkNullBlock(ModuleOp changed, const Inputs &inputs);

/// One of the two programs against the reference.
struct ProgramReport {
  double seconds = 0;
  /// By result: units of the output type beyond what f32 accumulation may
  /// cost, of which 2 are allowed; for an LSE the error itself. Where weights
  /// are rounded to 16 bits, of rows: relative to the row.
  std::vector<double> errors;
  double allowed = 0; // of a row where weights are rounded
};

struct RankReport {
  int64_t tokens = 0;       // rows whose top-k and attention it computes
  int64_t indexerWork = 0;  // keys scored, summed over those rows
  double attentionWork = 0; // keys attended by all heads, likewise
};

struct VerifyReport {
  Step step;
  int64_t numRanks = 1;
  ProgramReport original, rewritten;
  double referenceSeconds = 0;
  std::vector<ReferenceValue::Kind> resultKinds;
  /// Attention is held to compareRoundedRows.
  bool isRounded = false;
  std::string gate; // "open", or why it is closed
  bool gateOpen = false;
  std::vector<RankReport> ranks;
  /// Of every rank of the program as given.
  RankReport before;
  /// What does not agree, in words; empty where all do.
  std::vector<std::string> problems;
  /// Global results of the rewritten program, where it ran.
  std::vector<Array> results;
};

/// Taps the indexers' and index conversions' results of everything that the
/// entry reaches: "topk.0", "slots.0", ...
void insertTaps(func::FuncOp entry);

/// How rows of a tapped value were computed.
struct TapRows {
  /// Calls that each computed, and tapped, some of the rows.
  int64_t calls = 1;
  /// Rows from here on belong to no request. Where nobody computes them they
  /// hold no position: -1.
  int64_t tokens = std::numeric_limits<int64_t>::max();
  /// A value that does not name its rows, and has this part of the step's, has
  /// those of the rank's shard.
  int64_t shards = 1;
  std::function<int64_t(int64_t rank)> getShard = {};
};

/// Whole tapped values from what the ranks recorded of them. Says in
/// `problems` where two ranks differ in a row, or nobody has it. Padding, row
/// -1, is left out.
llvm::Expected<TapTable> assembleTaps(const RunOutcome &outcome,
                                      int64_t numRows,
                                      std::vector<std::string> &problems,
                                      const TapRows &rows = {});

/// Largest error of a result, as in ProgramReport. Appends to `problems` the
/// first rows that are further off than kernels of this type may be.
double compareResult(const Array &computed, const ReferenceValue &reference,
                     const llvm::Twine &what,
                     std::vector<std::string> &problems);

/// The same for attention whose weights are rounded to 16 bits before they
/// meet the values, as matrix units take them: a row's error, relative to the
/// row, is at most `allowed`. The largest one.
double compareRoundedRows(const Array &computed,
                          const ReferenceValue &reference, double allowed,
                          const llvm::Twine &what,
                          std::vector<std::string> &problems);

/// Runs both programs and the reference. An error where that cannot be done
/// for this program; what does not agree is in the report.
llvm::Expected<VerifyReport> verify(ModuleOp module, const Signature &signature,
                                    const Inputs &inputs,
                                    const VerifyOptions &options,
                                    Progress &progress);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_VERIFY_H
