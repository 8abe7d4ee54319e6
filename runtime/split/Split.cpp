//===- Split.cpp - Token splits and their gate ----------------------------===//

#include "shardq/split.h"
#include <algorithm>
#include <array>
#include <limits>

namespace {

/// The span of request `r` among the step's prefill rows, held inside them
/// whatever query_start says.
struct Span {
  int64_t begin, end;
};

Span prefillSpan(const int32_t *queryStart, int64_t r, int64_t decodes,
                 int64_t rows) {
  int64_t begin = std::clamp<int64_t>(queryStart[r], decodes, rows);
  return {begin, std::clamp<int64_t>(queryStart[r + 1], begin, rows)};
}

/// Where the chunks of a request begin: `floor(c * len / 2W)` for each chunk
/// `c`, and the length. Counted up without dividing, since a step has some
/// thousands of chunks.
class ChunkBounds {
public:
  void set(int64_t len, int64_t ranks) {
    int64_t chunks = 2 * ranks, whole = len / chunks, rest = len % chunks;
    int64_t begin = 0, carried = 0;
    for (int64_t chunk = 0; chunk <= chunks; ++chunk) {
      bounds[chunk] = begin;
      begin += whole;
      carried += rest;
      if (carried >= chunks) {
        carried -= chunks;
        ++begin;
      }
    }
  }
  int64_t begin(int64_t chunk) const { return bounds[chunk]; }
  int64_t end(int64_t chunk) const { return bounds[chunk + 1]; }

private:
  std::array<int64_t, 2 * SHARDQ_MAX_RANKS + 1> bounds;
};

} // namespace

int64_t shardq_count_decode_rows(const int32_t *queryStart, int64_t requests,
                                 int64_t speculativeTokens) {
  int64_t request = 0;
  while (request < requests &&
         int64_t(queryStart[request + 1]) - queryStart[request] <=
             1 + speculativeTokens)
    ++request;
  return std::max<int64_t>(queryStart[request], 0);
}

void shardq_zigzag_split(const int32_t *queryStart, int64_t requests,
                         int64_t decodes, int64_t rows, int64_t ranks,
                         int32_t *tokenIds, int32_t *rankOffsets) {
  if (ranks < 1 || ranks > SHARDQ_MAX_RANKS) {
    std::fill_n(tokenIds, std::max<int64_t>(rows, 0), -1);
    return;
  }
  decodes = std::clamp<int64_t>(decodes, 0, std::max<int64_t>(rows, 0));

  // A counting sort by owner that never looks at single tokens: a request
  // gives each rank two runs of consecutive tokens, the early chunk first.
  // Overlapping requests (an invalid query_start) would count tokens twice,
  // so each span begins where the one before it ended.
  std::array<int64_t, SHARDQ_MAX_RANKS + 1> next{};
  ChunkBounds chunks;
  auto forEachSpan = [&](auto &&visit) {
    int64_t last = decodes;
    for (int64_t r = 0; r < requests; ++r) {
      Span span = prefillSpan(queryStart, r, decodes, rows);
      span.begin = std::max(span.begin, last);
      if (span.begin >= span.end)
        continue;
      last = span.end;
      chunks.set(span.end - span.begin, ranks);
      visit(span.begin - decodes);
    }
  };
  forEachSpan([&](int64_t) {
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t chunk : {rank, 2 * ranks - 1 - rank})
        next[rank + 1] += chunks.end(chunk) - chunks.begin(chunk);
  });
  rankOffsets[0] = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    next[rank + 1] += next[rank];
    rankOffsets[rank + 1] = int32_t(next[rank + 1]);
  }
  forEachSpan([&](int64_t begin) {
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t chunk : {rank, 2 * ranks - 1 - rank})
        for (int64_t at = chunks.begin(chunk); at < chunks.end(chunk); ++at)
          tokenIds[next[rank]++] = int32_t(begin + at);
  });
  std::fill(tokenIds + rankOffsets[ranks],
            tokenIds + std::max<int64_t>(rows, 0), -1);
}

shardq_gate shardq_split_gate(const int32_t *rankOffsets, int64_t ranks,
                              const int32_t *queryStart, const int32_t *seqLens,
                              int64_t requests, int64_t decodes, int64_t rows,
                              int64_t minTokens, int64_t topk,
                              int64_t maxRankRows, int64_t maxRows) {
  int64_t tokens = rows - decodes;
  if (tokens < 1 || tokens < minTokens)
    return SHARDQ_GATE_FEW_TOKENS;

  // A prefill request is one whose rows lie behind the decodes.
  bool anyLong = false;
  int64_t queryTokens = 0;
  for (int64_t r = 0; r < requests; ++r) {
    int64_t len = int64_t(queryStart[r + 1]) - queryStart[r];
    if (len < 1 || queryStart[r] < decodes)
      continue;
    queryTokens += len;
    anyLong |= seqLens[r] > topk;
  }
  if (!anyLong)
    return SHARDQ_GATE_SHORT_SEQUENCES;
  if (queryTokens != tokens)
    return SHARDQ_GATE_PADDING;

  int64_t fullest = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t owned = int64_t(rankOffsets[rank + 1]) - rankOffsets[rank];
    if (owned < 1)
      return SHARDQ_GATE_EMPTY_RANK;
    fullest = std::max(fullest, owned);
  }
  if ((maxRankRows >= 0 && fullest > maxRankRows) ||
      (maxRows >= 0 && rows > maxRows))
    return SHARDQ_GATE_CAPACITY;
  return SHARDQ_GATE_OPEN;
}

void shardq_shard_lengths(const int32_t *queryStart, const int32_t *seqLens,
                          int64_t requests, int64_t rows, int64_t rank,
                          int32_t *starts, int32_t *lengths) {
  // No row of a step is behind these, and products with a rank stay small.
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
  rows = std::clamp<int64_t>(rows, 0, kMostRows);
  rank = std::clamp<int64_t>(rank, 0, kMostRows);
  int64_t first = rank * rows, end = first + rows;
  auto hold = [&](int64_t row) {
    return static_cast<int32_t>(std::clamp(row, first, end) - first);
  };
  for (int64_t i = 0; i <= requests; ++i) {
    starts[i] = hold(queryStart[i]);
    if (i == requests)
      break;
    int64_t next = queryStart[i + 1];
    int64_t seen = seqLens[i] - std::max<int64_t>(next - end, 0);
    bool hasRows = starts[i] < hold(next);
    lengths[i] = static_cast<int32_t>(hasRows ? std::max<int64_t>(seen, 0) : 0);
  }
}
