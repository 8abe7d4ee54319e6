//===- Chunks.cpp - Prefill requests in chunks over ranks -----------------===//

#include "shardq/chunks.h"
#include <algorithm>
#include <limits>
#include <utility>

namespace {

/// A request, as its rows stand in the buffers.
struct Request {
  bool isDecode;
  int64_t tokens;
  int64_t begin;  // in the step
  int64_t local;  // first local row
  int64_t padded; // first padded row
  int64_t head;   // first local row of a head or decode, heads alone
  int64_t tail;   // first local row of a tail, tails alone
  int64_t chunk;  // rows of a chunk; 0 for a decode
  int64_t localRows(int64_t ranks) const {
    return isDecode ? tokens : paddedTokens(ranks) / ranks;
  }
  int64_t paddedTokens(int64_t ranks) const { return 2 * ranks * chunk; }
  int64_t headRows() const { return isDecode ? tokens : chunk; }
};

/// Where parts stand in the local buffer.
struct Order {
  bool byPart;
  int64_t heads; // rows of all heads
  int64_t getRow(const Request &request, int64_t index) const {
    if (!byPart)
      return request.local + index;
    if (index < request.headRows())
      return request.head + index;
    return heads + request.tail + index - request.chunk;
  }
};

constexpr int64_t kNoLimit = std::numeric_limits<int32_t>::max();

} // namespace

static bool isValid(int64_t ranks) {
  return ranks >= 1 && ranks <= SHARDQ_MAX_RANKS;
}

static int64_t getChunk(int64_t tokens, int64_t ranks) {
  return (tokens + 2 * ranks - 1) / (2 * ranks);
}

/// Calls `visit(request)` for each request in order; returns the local rows.
/// No request begins before the end of another, so that there are never more
/// tokens than `limit`.
template <typename Visit>
static int64_t overRequests(const int32_t *queryStart, int64_t requests,
                            int64_t decodes, int64_t ranks, Visit visit,
                            int64_t limit = kNoLimit) {
  Request request{};
  if (!isValid(ranks))
    return 0;
  int64_t end = 0;
  for (int64_t i = 0; i < requests; ++i) {
    request.begin =
        std::clamp<int64_t>(queryStart[i], end, std::max(end, limit));
    end = std::clamp<int64_t>(queryStart[i + 1], request.begin,
                              std::max(request.begin, limit));
    request.tokens = end - request.begin;
    request.isDecode = end <= decodes;
    request.chunk = request.isDecode ? 0 : getChunk(request.tokens, ranks);
    request.padded = request.local * ranks;
    visit(request);
    request.local += request.localRows(ranks);
    request.head += request.headRows();
    request.tail += request.chunk;
  }
  return request.local;
}

/// Rows of all heads, which tails stand behind by part.
static int64_t countHeads(const int32_t *queryStart, int64_t requests,
                          int64_t decodes, int64_t ranks, int64_t limit) {
  int64_t heads = 0;
  overRequests(
      queryStart, requests, decodes, ranks,
      [&](const Request &r) { heads += r.headRows(); }, limit);
  return heads;
}

/// The gathered row of local row `row` of a rank; -1 where no rank has so many.
static int32_t getGathered(int64_t rank, int64_t row, int64_t local) {
  int64_t gathered = rank * local + row;
  return row < local && gathered <= kNoLimit ? static_cast<int32_t>(gathered)
                                             : -1;
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

void shardq_chunk_own_decode_slots(const int32_t *queryStart, int64_t requests,
                                   int64_t decodes, int64_t ranks,
                                   int64_t *slots) {
  // Decodes come first, so heads before them are rows of theirs.
  int64_t done = 0;
  overRequests(queryStart, requests, decodes, ranks, [&](const Request &r) {
    if (!r.isDecode)
      return;
    // Not behind what is read, of this request or a later one.
    for (int64_t i = 0; i != r.tokens; ++i)
      slots[done++] = slots[r.padded + i * ranks];
  });
  std::fill_n(slots + done, done * (ranks - 1), -1);
}

//===----------------------------------------------------------------------===//
// What programs call
//===----------------------------------------------------------------------===//

int64_t shardq_chunk_part_rows(const int32_t *queryStart, int64_t requests,
                               int64_t decodes, int64_t rows, int64_t ranks,
                               int32_t part) {
  int64_t heads = countHeads(queryStart, requests, decodes, ranks, rows);
  if (part == SHARDQ_CHUNK_HEAD)
    return heads;
  int64_t all = overRequests(
      queryStart, requests, decodes, ranks, [](const Request &) {}, rows);
  return part == SHARDQ_CHUNK_TAIL ? all - heads : all;
}

/// The rank that has the token of a prefill request, and its row within the
/// request's rows there.
static std::pair<int64_t, int64_t> findToken(const Request &request,
                                             int64_t ranks, int64_t token) {
  int64_t chunk = token / request.chunk, inside = token % request.chunk;
  if (chunk < ranks)
    return {chunk, inside};
  return {2 * ranks - 1 - chunk, request.chunk + inside};
}

void shardq_chunk_split(const int32_t *queryStart, int64_t requests,
                        int64_t decodes, int64_t rows, int64_t ranks,
                        int64_t rank, int32_t byPart, int64_t local,
                        int32_t *mine, int64_t restoreSize, int32_t *restore) {
  std::fill_n(mine, local, -1);
  std::fill_n(restore, restoreSize, -1);
  Order order{byPart != 0,
              countHeads(queryStart, requests, decodes, ranks, rows)};
  auto split = [&](const Request &r) {
    for (int64_t i = 0, e = r.localRows(ranks); i != e; ++i) {
      int64_t position = getPosition(r, ranks, rank, i);
      int64_t row = order.getRow(r, i);
      if (position < r.tokens && row < local)
        mine[row] = static_cast<int32_t>(r.begin + position);
    }
    for (int64_t j = 0; j != r.tokens && r.begin + j < restoreSize; ++j) {
      // Of a decode, rank 0's.
      auto [owner, index] = r.isDecode ? std::pair<int64_t, int64_t>{0, j}
                                       : findToken(r, ranks, j);
      restore[r.begin + j] = getGathered(owner, order.getRow(r, index), local);
    }
  };
  overRequests(queryStart, requests, decodes, ranks, split, rows);
}

void shardq_chunk_lengths(const int32_t *queryStart, int64_t requests,
                          int64_t decodes, int64_t rows, int64_t ranks,
                          int64_t rank, int32_t part, const int32_t *seqLens,
                          int32_t *starts, int32_t *lengths, int64_t local,
                          int32_t *own) {
  std::fill_n(own, local, -1);
  bool isTail = part == SHARDQ_CHUNK_TAIL;
  int64_t request = 0, end = 0;
  auto visit = [&](const Request &r) {
    int64_t begin = isTail ? r.tail : r.head;
    int64_t count = isTail ? r.chunk : r.headRows();
    int64_t length = 0, first = 0;
    if (r.isDecode) {
      length = isTail ? 0 : seqLens[request];
    } else if (count != 0) {
      length = shardq_chunk_key_length(seqLens[request] - r.tokens, r.tokens,
                                       ranks, rank, isTail);
      first = getPosition(r, ranks, rank, isTail ? r.chunk : 0);
    }
    starts[request] = static_cast<int32_t>(begin);
    lengths[request++] =
        static_cast<int32_t>(std::clamp<int64_t>(length, -kNoLimit, kNoLimit));
    for (int64_t i = 0; i != count && begin + i < local; ++i)
      if (first + i < r.tokens)
        own[begin + i] = static_cast<int32_t>(begin + i);
    end = begin + count;
  };
  overRequests(queryStart, requests, decodes, ranks, visit, rows);
  if (requests >= 0)
    starts[request] = static_cast<int32_t>(end);
}

namespace {
/// What the rows of the padded buffer are, and their slots.
template <typename Slot> struct PaddedRows {
  const Slot *slots;
  int64_t rows; // of the step, that have slots
  int64_t size;
  int32_t *order;
  Slot *padded;

  void clear() {
    std::fill_n(order, size, -1);
    std::fill_n(padded, size, Slot(-1));
  }
  /// `step` is -1 for rows without a slot.
  void set(int64_t row, int32_t gathered, int64_t step) {
    order[row] = gathered;
    if (step >= 0 && step < rows)
      padded[row] = slots[step];
  }
};

/// A step and how a rank has its rows.
struct Chunked {
  const int32_t *queryStart;
  int64_t requests, decodes, ranks, local;
  bool byPart, ownDecodes;
};
} // namespace

template <typename Slot>
static void orderChunks(const Chunked &step, PaddedRows<Slot> out) {
  out.clear();
  auto over = [&](auto visit) {
    overRequests(step.queryStart, step.requests, step.decodes, step.ranks,
                 visit);
  };
  Order parts{step.byPart, 0};
  int64_t decoded = 0; // rows of all decodes on a rank
  over([&](const Request &r) {
    parts.heads += r.headRows();
    decoded += r.isDecode ? r.tokens : 0;
  });
  over([&](const Request &r) {
    if (r.isDecode) {
      for (int64_t rank = 0; rank != step.ranks; ++rank) {
        int64_t first = step.ownDecodes ? rank * decoded + r.head
                                        : r.padded + rank * r.tokens;
        for (int64_t i = 0; i != r.tokens && first + i < out.size; ++i)
          out.set(first + i, getGathered(rank, parts.getRow(r, i), step.local),
                  rank == 0 ? r.begin + i : -1);
      }
      return;
    }
    int64_t count = r.paddedTokens(step.ranks);
    for (int64_t i = 0; i != count && r.padded + i < out.size; ++i) {
      auto [owner, index] = findToken(r, step.ranks, i);
      out.set(r.padded + i,
              getGathered(owner, parts.getRow(r, index), step.local),
              i < r.tokens ? r.begin + i : -1);
    }
  });
}

static void orderChunks(const Chunked &step, int64_t rows, int32_t slotBytes,
                        const void *slots, int64_t size, int32_t *order,
                        void *padded) {
  if (slotBytes == 4)
    orderChunks<int32_t>(step, {static_cast<const int32_t *>(slots), rows, size,
                                order, static_cast<int32_t *>(padded)});
  else
    orderChunks<int64_t>(step, {static_cast<const int64_t *>(slots), rows, size,
                                order, static_cast<int64_t *>(padded)});
}

void shardq_chunk_order(const int32_t *queryStart, int64_t requests,
                        int64_t decodes, int64_t rows, int64_t ranks,
                        int32_t byPart, int64_t local, int32_t slotBytes,
                        const void *slots, int64_t size, int32_t *order,
                        void *padded) {
  orderChunks({queryStart, requests, decodes, ranks, local, byPart != 0,
               /*ownDecodes=*/false},
              rows, slotBytes, slots, size, order, padded);
}

void shardq_chunk_own_order(const int32_t *queryStart, int64_t requests,
                            int64_t decodes, int64_t rows, int64_t ranks,
                            int32_t byPart, int64_t local, int32_t slotBytes,
                            const void *slots, int64_t size, int32_t *order,
                            void *padded) {
  orderChunks({queryStart, requests, decodes, ranks, local, byPart != 0,
               /*ownDecodes=*/true},
              rows, slotBytes, slots, size, order, padded);
}
