//===- Chunks.cpp - Prefill requests in chunks over ranks -----------------===//

#include "shardq/chunks.h"
#include <algorithm>

namespace {

/// A request, as its rows stand in the buffers.
struct Request {
  bool isDecode;
  int64_t tokens;
  int64_t begin;  // in the step
  int64_t local;  // first local row
  int64_t padded; // first padded row
  int64_t chunk;  // rows of a chunk; 0 for a decode
  int64_t localRows(int64_t ranks) const {
    return isDecode ? tokens : paddedTokens(ranks) / ranks;
  }
  int64_t paddedTokens(int64_t ranks) const { return 2 * ranks * chunk; }
};

} // namespace

static bool isValid(int64_t ranks) {
  return ranks >= 1 && ranks <= SHARDQ_MAX_RANKS;
}

static int64_t getChunk(int64_t tokens, int64_t ranks) {
  return (tokens + 2 * ranks - 1) / (2 * ranks);
}

/// Calls `visit(request)` for each request in order; returns the local rows.
template <typename Visit>
static int64_t overRequests(const int32_t *queryStart, int64_t requests,
                            int64_t decodes, int64_t ranks, Visit visit) {
  int64_t local = 0;
  if (!isValid(ranks))
    return 0;
  for (int64_t i = 0; i < requests; ++i) {
    Request request;
    request.begin = queryStart[i];
    request.tokens =
        std::max<int64_t>(int64_t(queryStart[i + 1]) - queryStart[i], 0);
    request.isDecode = queryStart[i + 1] <= decodes;
    request.chunk = request.isDecode ? 0 : getChunk(request.tokens, ranks);
    request.local = local;
    request.padded = local * ranks;
    visit(request);
    local += request.localRows(ranks);
  }
  return local;
}

/// The token within the request that row `index` of `rank` is.
static int64_t getPosition(const Request &request, int64_t ranks, int64_t rank,
                           int64_t index) {
  if (request.isDecode)
    return index;
  bool isTail = index >= request.chunk;
  int64_t chunk = isTail ? 2 * ranks - 1 - rank : rank;
  return chunk * request.chunk + index - (isTail ? request.chunk : 0);
}

int64_t shardq_chunk_count(const int32_t *queryStart, int64_t requests,
                           int64_t decodes, int64_t ranks) {
  return overRequests(queryStart, requests, decodes, ranks,
                      [](const Request &) {});
}

void shardq_chunk_rows(const int32_t *queryStart, int64_t requests,
                       int64_t decodes, int64_t ranks, int64_t rank,
                       int32_t *rows, int32_t *positions) {
  overRequests(queryStart, requests, decodes, ranks, [&](const Request &r) {
    for (int64_t i = 0, e = r.localRows(ranks); i != e; ++i) {
      int64_t position = getPosition(r, ranks, rank, i);
      positions[r.local + i] = static_cast<int32_t>(position);
      rows[r.local + i] =
          position < r.tokens ? static_cast<int32_t>(r.begin + position) : -1;
    }
  });
}

void shardq_chunk_restore(const int32_t *queryStart, int64_t requests,
                          int64_t decodes, int64_t ranks, int32_t *restore,
                          uint8_t *unpad) {
  int64_t local = shardq_chunk_count(queryStart, requests, decodes, ranks);
  overRequests(queryStart, requests, decodes, ranks, [&](const Request &r) {
    for (int64_t rank = 0; rank != ranks; ++rank)
      for (int64_t i = 0, e = r.localRows(ranks); i != e; ++i) {
        int64_t within =
            r.isDecode ? rank * r.tokens + i : getPosition(r, ranks, rank, i);
        restore[r.padded + within] =
            static_cast<int32_t>(rank * local + r.local + i);
        unpad[r.padded + within] =
            r.isDecode ? within % ranks == 0 : within < r.tokens;
      }
  });
}

void shardq_chunk_parts(const int32_t *queryStart, int64_t requests,
                        int64_t decodes, int64_t ranks, int32_t *head,
                        int32_t *tail, int32_t *full) {
  int64_t half = 0, whole = 0;
  overRequests(queryStart, requests, decodes, ranks,
               [&](const Request &r) { half += r.chunk; });
  int64_t done = 0;
  overRequests(queryStart, requests, decodes, ranks, [&](const Request &r) {
    for (int64_t i = 0; i != r.chunk; ++i) {
      int64_t inHead = whole + i, inTail = whole + r.chunk + i;
      head[done + i] = static_cast<int32_t>(inHead);
      tail[done + i] = static_cast<int32_t>(inTail);
      full[inHead] = static_cast<int32_t>(done + i);
      full[inTail] = static_cast<int32_t>(half + done + i);
    }
    done += r.chunk;
    whole += 2 * r.chunk;
  });
}

int64_t shardq_chunk_key_length(int64_t computed, int64_t tokens, int64_t ranks,
                                int64_t rank, int32_t isTail) {
  if (!isValid(ranks))
    return 0;
  int64_t chunk = getChunk(std::max<int64_t>(tokens, 0), ranks);
  return computed + chunk * (isTail ? 2 * ranks - rank : rank + 1);
}

void shardq_chunk_slots(const int32_t *queryStart, int64_t requests,
                        int64_t decodes, int64_t ranks, const int64_t *slots,
                        int64_t *paddedSlots) {
  overRequests(queryStart, requests, decodes, ranks, [&](const Request &r) {
    for (int64_t i = 0, e = r.localRows(ranks) * ranks; i != e; ++i)
      paddedSlots[r.padded + i] = i < r.tokens ? slots[r.begin + i] : -1;
  });
}

void shardq_chunk_decode_slots(const int32_t *queryStart, int64_t requests,
                               int64_t decodes, int64_t ranks, int64_t *slots) {
  overRequests(queryStart, requests, decodes, ranks, [&](const Request &r) {
    if (!r.isDecode)
      return;
    // Ascending: entry j is read at j*P, which is not behind what was written.
    for (int64_t i = 0; i != r.tokens; ++i)
      slots[r.padded + i] = slots[r.padded + i * ranks];
    std::fill_n(slots + r.padded + r.tokens, r.tokens * (ranks - 1), -1);
  });
}
