//===- ChunksTest.cpp - Prefill requests in chunks over ranks -------------===//

#include "shardq/chunks.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <vector>

namespace {

using Ints = std::vector<int32_t>;
using Slots = std::vector<int64_t>;

/// A step: decode requests, then prefill requests.
struct Batch {
  Ints starts{0};
  int64_t requests = 0, decodes = 0, ranks = 1;

  Batch(const Ints &decodeLens, const Ints &prefillLens, int64_t ranks)
      : ranks(ranks) {
    for (const Ints *lens : {&decodeLens, &prefillLens}) {
      for (int32_t len : *lens)
        starts.push_back(starts.back() + len);
      if (lens == &decodeLens)
        decodes = starts.back();
    }
    requests = static_cast<int64_t>(starts.size()) - 1;
  }
  int64_t local() const {
    return shardq_chunk_count(starts.data(), requests, decodes, ranks);
  }
  std::pair<Ints, Ints> rows(int64_t rank) const {
    Ints rows(local()), positions(local());
    shardq_chunk_rows(starts.data(), requests, decodes, ranks, rank,
                      rows.data(), positions.data());
    return {rows, positions};
  }
  std::pair<Ints, Ints> restore() const {
    Ints restore(local() * ranks);
    std::vector<uint8_t> unpad(restore.size());
    shardq_chunk_restore(starts.data(), requests, decodes, ranks,
                         restore.data(), unpad.data());
    return {restore, Ints(unpad.begin(), unpad.end())};
  }
  struct Parts {
    Ints head, tail, full;
  };
  Parts parts() const {
    int64_t prefill = local() - decodes;
    Parts parts{Ints(prefill / 2), Ints(prefill / 2), Ints(prefill)};
    shardq_chunk_parts(starts.data(), requests, decodes, ranks,
                       parts.head.data(), parts.tail.data(), parts.full.data());
    return parts;
  }
};

} // namespace

TEST(Chunks, GoldenSplitOfTwoRanks) {
  Batch batch({1}, {5, 8}, 2);
  EXPECT_EQ(batch.local(), 9);
  auto [rows, positions] = batch.rows(0);
  EXPECT_EQ(positions, (Ints{0, 0, 1, 6, 7, 0, 1, 6, 7}));
  EXPECT_EQ(rows, (Ints{0, 1, 2, -1, -1, 6, 7, 12, 13}));
  std::tie(rows, positions) = batch.rows(1);
  EXPECT_EQ(positions, (Ints{0, 2, 3, 4, 5, 2, 3, 4, 5}));
  EXPECT_EQ(rows, (Ints{0, 3, 4, 5, -1, 8, 9, 10, 11}));
  auto [restore, unpad] = batch.restore();
  EXPECT_EQ(restore, (Ints{0, 9, 1, 2, 10, 11, 12, 13, 3, 4, 5, 6, 14, 15, 16,
                           17, 7, 8}));
  EXPECT_EQ(unpad,
            (Ints{1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(Chunks, GoldenRowsOfFourRanks) {
  Batch batch({}, {10}, 4);
  const Ints expected[] = {
      {0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}};
  for (int64_t rank = 0; rank != 4; ++rank)
    EXPECT_EQ(batch.rows(rank).second, expected[rank]);
}

TEST(Chunks, GoldenParts) {
  // Two requests of local length 4.
  auto [head, tail, full] = Batch({}, {5, 8}, 2).parts();
  EXPECT_EQ(head, (Ints{0, 1, 4, 5}));
  EXPECT_EQ(tail, (Ints{2, 3, 6, 7}));
  EXPECT_EQ(full, (Ints{0, 1, 4, 5, 2, 3, 6, 7}));
}

TEST(Chunks, GoldenKeyLengths) {
  auto lengths = [](int64_t computed, int64_t tokens, int64_t ranks,
                    int64_t rank) {
    return std::pair(shardq_chunk_key_length(computed, tokens, ranks, rank, 0),
                     shardq_chunk_key_length(computed, tokens, ranks, rank, 1));
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(lengths(8, 8, 2, 0), Pair(10, 16));
  EXPECT_EQ(lengths(0, 10, 4, 1), Pair(4, 14));
  EXPECT_EQ(lengths(100, 10, 2, 0), Pair(103, 112));
  EXPECT_EQ(lengths(16384, 8192, 2, 0), Pair(18432, 24576));
  EXPECT_EQ(lengths(24576, 8192, 2, 1), Pair(28672, 30720));
}

TEST(Chunks, GoldenSlotsOfDecodes) {
  Batch two({2, 1}, {}, 2);
  Slots slots{10, 20, 30, 40, 50, 60};
  shardq_chunk_decode_slots(two.starts.data(), two.requests, two.decodes, 2,
                            slots.data());
  EXPECT_EQ(slots, (Slots{10, 30, -1, -1, 50, -1}));
  Batch three({3, 1}, {}, 3);
  slots = {7, -1, -1, 8, -1, -1, 9, -1, -1, 42, -1, -1};
  shardq_chunk_decode_slots(three.starts.data(), three.requests, three.decodes,
                            3, slots.data());
  EXPECT_EQ(slots, (Slots{7, 8, 9, -1, -1, -1, -1, -1, -1, 42, -1, -1}));
}

TEST(Chunks, NoRowsAndNoRanks) {
  EXPECT_EQ(Batch({}, {}, 3).local(), 0);
  EXPECT_EQ(Batch({}, {0, 0}, 3).local(), 0);
  EXPECT_EQ(Batch({1}, {5}, 0).local(), 0);
  EXPECT_EQ(Batch({1}, {5}, SHARDQ_MAX_RANKS + 1).local(), 0);
}

/// Over random batches: each token is one rank's, gathering and restoring gives
/// the step back, and slots go where the tokens are.
TEST(Chunks, RandomBatchesComeBack) {
  unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int turn = 0; turn != 300; ++turn) {
    auto lens = [&](int32_t most, int32_t least) {
      Ints result(random() % 4);
      for (int32_t &len : result)
        len = least + static_cast<int32_t>(random() % (most - least + 1));
      return result;
    };
    int64_t ranks = 1 + random() % 8;
    Batch batch(lens(3, 1), lens(40, 0), ranks);
    int64_t local = batch.local(), rows = batch.starts.back();

    std::vector<int> owners(rows);
    Ints gathered;
    std::vector<Ints> positions;
    for (int64_t rank = 0; rank != ranks; ++rank) {
      auto [own, at] = batch.rows(rank);
      for (int32_t row : own)
        if (row >= 0)
          ++owners[row];
      gathered.insert(gathered.end(), own.begin(), own.end());
      positions.push_back(at);
    }
    for (int64_t row = 0; row != rows; ++row)
      EXPECT_EQ(owners[row], row < batch.decodes ? ranks : 1) << row;

    auto [restore, unpad] = batch.restore();
    Ints sorted = restore;
    std::sort(sorted.begin(), sorted.end());
    Ints all(ranks * local);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
    EXPECT_EQ(std::accumulate(unpad.begin(), unpad.end(), 0), rows);

    // Slots by both ways: at once, and unpadded, then put together.
    Slots slots(rows), direct(restore.size()), stepwise;
    std::iota(slots.begin(), slots.end(), 1000);
    shardq_chunk_slots(batch.starts.data(), batch.requests, batch.decodes,
                       ranks, slots.data(), direct.data());
    size_t next = 0;
    for (int32_t isToken : unpad)
      stepwise.push_back(isToken ? slots[next++] : -1);
    shardq_chunk_decode_slots(batch.starts.data(), batch.requests,
                              batch.decodes, ranks, stepwise.data());
    EXPECT_EQ(direct, stepwise);
    // What is written to a slot is the row that belongs there.
    std::vector<int> written(rows);
    for (size_t i = 0; i != restore.size(); ++i)
      if (direct[i] >= 0) {
        EXPECT_EQ(gathered[restore[i]] + 1000, direct[i]);
        ++written[direct[i] - 1000];
      }
    EXPECT_EQ(written, std::vector<int>(rows, 1));

    // Two calls and the order of their results.
    auto [head, tail, full] = batch.parts();
    Ints joined = head;
    joined.insert(joined.end(), tail.begin(), tail.end());
    for (size_t i = 0; i != full.size(); ++i)
      EXPECT_EQ(joined[full[i]], static_cast<int32_t>(i));
  }
}
