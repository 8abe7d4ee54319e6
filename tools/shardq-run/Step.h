//===- Step.h - The requests of one step ------------------------*- C++ -*-===//

#ifndef SHARDQ_RUN_STEP_H
#define SHARDQ_RUN_STEP_H

#include "Array.h"
#include <vector>

namespace mlir::shardq::run {

/// What an engine's scheduler hands to one step. In a file:
///
///     {"query_lens": [1, 30], "context_lens": [4000, 0],
///      "block_size": 64, "speculative_tokens": 0, "padding_rows": 0,
///      "decodes": 1, "comment": "..."}
///
/// `query_lens` and `context_lens` (tokens per request; context is what the KV
/// cache holds beforehand) are required. `decodes` (requests) follows from the
/// definition of `count_decode_rows` and is checked where it is given.
struct Step {
  std::vector<int64_t> queryLens;
  std::vector<int64_t> contextLens;
  /// Those that the file leaves out are the program's.
  std::optional<int64_t> blockSize;
  std::optional<int64_t> speculativeTokens;
  std::optional<int64_t> decodes;
  /// Rows behind the last request, as graph capture makes them.
  int64_t paddingRows = 0;
  /// Tokens behind each sequence that draft steps of the program attend.
  int64_t draftTokens = 0;

  int64_t getNumRequests() const { return queryLens.size(); }
  int64_t getNumTokens() const;
  int64_t getNumRows() const { return getNumTokens() + paddingRows; }
  int64_t getSeqLen(int64_t request) const {
    return queryLens[request] + contextLens[request];
  }
  /// What the KV cache holds of a request in the end: drafted tokens too, of
  /// which an absent one has none.
  int64_t getKvLen(int64_t request) const {
    int64_t length = getSeqLen(request);
    return length > 0 ? length + draftTokens : 0;
  }
  int64_t getMaxKvLen() const;
  /// The same of all requests.
  int64_t getNumKvTokens() const;
  /// Requests, and their rows, of the leading run of decodes.
  int64_t getNumDecodes() const;
  int64_t getDecodeRows() const;

  /// The arrays that programs take: [R + 1] and [R].
  std::vector<int32_t> getQueryStart() const;
  std::vector<int32_t> getSeqLens() const;
  /// Request and visible length of each row; -1 and 0 for padding.
  std::vector<int32_t> getRowRequests() const;
  std::vector<int32_t> getRowVisible() const;

  /// That lengths and totals stay within i32.
  llvm::Error check() const;
};

/// Errors name the JSON path and the value found there.
llvm::Expected<Step> parseStep(llvm::StringRef text);
/// Reads a file. Errors name it.
llvm::Expected<Step> readStep(llvm::StringRef path);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_STEP_H
