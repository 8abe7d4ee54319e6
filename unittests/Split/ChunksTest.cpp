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
  /// `mine` and `restore` of a program.
  std::pair<Ints, Ints> split(int64_t rank, bool byPart, int64_t local,
                              int64_t size, int64_t limit = 1000) const {
    Ints mine(local), restore(size);
    shardq_chunk_split(starts.data(), requests, decodes, limit, ranks, rank,
                       byPart, local, mine.data(), size, restore.data());
    return {mine, restore};
  }
  std::pair<Ints, Ints> split(int64_t rank, bool byPart) const {
    return split(rank, byPart, local(), starts.back());
  }
  struct Lengths {
    Ints starts, lengths, own;
  };
  Lengths lengths(int64_t rank, shardq_chunk_part part,
                  const Ints &seqLens) const {
    int64_t rows = shardq_chunk_part_rows(starts.data(), requests, decodes,
                                          1000, ranks, part);
    Lengths found{Ints(requests + 1), Ints(requests), Ints(rows)};
    shardq_chunk_lengths(starts.data(), requests, decodes, 1000, ranks, rank,
                         part, seqLens.data(), found.starts.data(),
                         found.lengths.data(), rows, found.own.data());
    return found;
  }
  template <typename Slot>
  std::pair<Ints, std::vector<Slot>>
  order(bool byPart, int64_t local, const std::vector<Slot> &slots) const {
    Ints order(local * ranks);
    std::vector<Slot> padded(order.size());
    shardq_chunk_order(
        starts.data(), requests, decodes, static_cast<int64_t>(slots.size()),
        ranks, byPart, local, sizeof(Slot), slots.data(),
        static_cast<int64_t>(order.size()), order.data(), padded.data());
    return {order, padded};
  }
  /// The same with the rows of all decodes together.
  std::pair<Ints, Slots> ownOrder(bool byPart, const Slots &slots) const {
    Ints order(local() * ranks);
    Slots padded(order.size());
    shardq_chunk_own_order(
        starts.data(), requests, decodes, static_cast<int64_t>(slots.size()),
        ranks, byPart, local(), sizeof(int64_t), slots.data(),
        static_cast<int64_t>(order.size()), order.data(), padded.data());
    return {order, padded};
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

TEST(Chunks, DecodesOfAllRequestsTogether) {
  // Slots of the step's rows, and those of a padded map, of whose entries every
  // P-th is a token's.
  Batch two({2, 1}, {}, 2);
  EXPECT_EQ(two.ownOrder(false, {10, 30, 50}),
            std::pair(Ints{0, 1, 2, 3, 4, 5}, Slots{10, 30, 50, -1, -1, -1}));
  Slots map{10, 20, 30, 40, 50, 60};
  shardq_chunk_own_decode_slots(two.starts.data(), 2, 3, 2, map.data());
  EXPECT_EQ(map, (Slots{10, 30, 50, -1, -1, -1}));
  Batch three({3, 1}, {}, 3);
  map = {7, -1, -1, 8, -1, -1, 9, -1, -1, 42, -1, -1};
  shardq_chunk_own_decode_slots(three.starts.data(), 2, 4, 3, map.data());
  EXPECT_EQ(map, (Slots{7, 8, 9, 42, -1, -1, -1, -1, -1, -1, -1, -1}));
  // Prefill requests stand where they stand without it.
  Batch mixed({2, 1}, {5}, 2);
  for (bool byPart : {false, true}) {
    Slots slots{10, 30, 50, 1, 2, 3, 4, 5};
    auto [order, padded] = mixed.ownOrder(byPart, slots);
    EXPECT_EQ(padded,
              (Slots{10, 30, 50, -1, -1, -1, 1, 2, 3, 4, 5, -1, -1, -1}));
    EXPECT_EQ(Ints(order.begin(), order.begin() + 6), (Ints{0, 1, 2, 7, 8, 9}));
    Ints others = mixed.order(byPart, mixed.local(), slots).first;
    EXPECT_EQ(Ints(order.begin() + 6, order.end()),
              Ints(others.begin() + 6, others.end()));
  }
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

TEST(Chunks, GoldenSplitOfPrograms) {
  Batch batch({1}, {5, 8}, 2);
  auto [mine, restore] = batch.split(1, /*byPart=*/false);
  EXPECT_EQ(mine, (Ints{0, 3, 4, 5, -1, 8, 9, 10, 11}));
  EXPECT_EQ(restore, (Ints{0, 1, 2, 10, 11, 12, 5, 6, 14, 15, 16, 17, 7, 8}));
  std::tie(mine, restore) = batch.split(1, /*byPart=*/true);
  EXPECT_EQ(mine, (Ints{0, 3, 4, 8, 9, 5, -1, 10, 11}));
  // Rows behind the step's, and an array too small for all rows.
  EXPECT_EQ(batch.split(0, false, 9, 16).second[15], -1);
  std::tie(mine, restore) = batch.split(0, false, 3, 14);
  EXPECT_EQ(mine, (Ints{0, 1, 2}));
  EXPECT_EQ(restore, (Ints{0, 1, 2, 4, 5, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
}

TEST(Chunks, GoldenLengthsOfParts) {
  // One request of 8 tokens behind 8 computed ones, and a decode before it.
  Batch batch({2}, {8}, 2);
  auto head = batch.lengths(0, SHARDQ_CHUNK_HEAD, {40, 16});
  EXPECT_EQ(head.starts, (Ints{0, 2, 4}));
  EXPECT_EQ(head.lengths, (Ints{40, 10}));
  EXPECT_EQ(head.own, (Ints{0, 1, 2, 3}));
  auto tail = batch.lengths(0, SHARDQ_CHUNK_TAIL, {40, 16});
  EXPECT_EQ(tail.starts, (Ints{0, 0, 2}));
  EXPECT_EQ(tail.lengths, (Ints{0, 16}));
  EXPECT_EQ(tail.own, (Ints{0, 1}));
  // Padding: 10 tokens of 2*4 chunks of 2; beyond the sequence, not clamped.
  tail = Batch({}, {10}, 4).lengths(1, SHARDQ_CHUNK_TAIL, {10});
  EXPECT_EQ(tail.lengths, (Ints{14}));
  EXPECT_EQ(tail.own, (Ints{-1, -1}));
}

/// Starts that do not ascend, or that reach beyond the step, name no row that
/// is not there.
TEST(Chunks, StartsThatAreNoStep) {
  for (const Ints &starts :
       {Ints{0, 9, 3, 12}, Ints{-5, 2, 2, 8}, Ints{0, 2147483647, 1},
        Ints{7, 0}, Ints{0, -3, 5}}) {
    Batch batch({}, {}, 3);
    batch.starts = starts;
    batch.requests = static_cast<int64_t>(starts.size()) - 1;
    for (int64_t rank = 0; rank != 3; ++rank)
      for (bool byPart : {false, true}) {
        int64_t local = shardq_chunk_part_rows(starts.data(), batch.requests, 1,
                                               8, 3, SHARDQ_CHUNK_ALL);
        EXPECT_LE(local, 8 + 2 * batch.requests);
        auto [mine, restore] = batch.split(rank, byPart, local, 8, 8);
        for (int32_t row : mine)
          EXPECT_TRUE(row >= -1 && row < 8) << row;
        for (int32_t row : restore)
          EXPECT_TRUE(row >= -1 && row < 3 * local) << row;
        auto [order, slots] = batch.order(byPart, local, Slots(8, 5));
        for (int32_t row : order)
          EXPECT_TRUE(row >= -1 && row < 3 * local) << row;
      }
  }
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

    // What programs call says the same, in either order.
    Ints small(rows);
    std::iota(small.begin(), small.end(), 1000);
    for (bool byPart : {false, true}) {
      Ints ofRanks;
      for (int64_t rank = 0; rank != ranks; ++rank) {
        auto [mine, back] = batch.split(rank, byPart);
        ofRanks.insert(ofRanks.end(), mine.begin(), mine.end());
        if (rank != 0)
          EXPECT_EQ(back, batch.split(0, byPart).second);
        Ints expected = batch.rows(rank).first;
        if (byPart) {
          Ints parted(expected.begin(), expected.begin() + batch.decodes);
          for (int32_t row : joined)
            parted.push_back(expected[batch.decodes + row]);
          expected = parted;
        }
        EXPECT_EQ(mine, expected);
      }
      auto back = batch.split(0, byPart).second;
      for (int64_t row = 0; row != rows; ++row) {
        EXPECT_EQ(ofRanks[back[row]], row);
        if (row < batch.decodes)
          EXPECT_LT(back[row], local); // rank 0's
      }
      auto [order, padded] = batch.order(byPart, local, slots);
      EXPECT_EQ(padded, direct);
      if (!byPart)
        EXPECT_EQ(order, restore);
      for (size_t i = 0; i != order.size(); ++i)
        EXPECT_EQ(ofRanks[order[i]], gathered[restore[i]]);
      auto [sameOrder, narrow] = batch.order(byPart, local, small);
      EXPECT_EQ(sameOrder, order);
      EXPECT_TRUE(std::equal(narrow.begin(), narrow.end(), direct.begin()));
    }

    // Key lengths and their masks give each row the keys up to itself.
    Ints seqLens;
    for (int64_t i = 0; i != batch.requests; ++i)
      seqLens.push_back(batch.starts[i + 1] - batch.starts[i] +
                        static_cast<int32_t>(random() % 50));
    for (int64_t rank = 0; rank != ranks; ++rank) {
      auto [mine, back] = batch.split(rank, /*byPart=*/true);
      size_t at = 0;
      for (shardq_chunk_part part : {SHARDQ_CHUNK_HEAD, SHARDQ_CHUNK_TAIL}) {
        auto [first, lengths, own] = batch.lengths(rank, part, seqLens);
        ASSERT_EQ(first.back(), static_cast<int32_t>(own.size()));
        for (int64_t i = 0; i != batch.requests; ++i)
          for (int32_t j = first[i]; j != first[i + 1]; ++j, ++at) {
            EXPECT_EQ(own[j], mine[at] < 0 ? -1 : j);
            if (mine[at] < 0)
              continue;
            int32_t sees = lengths[i] - (first[i + 1] - j) + 1;
            EXPECT_EQ(sees, seqLens[i] - batch.starts[i + 1] + mine[at] + 1);
          }
      }
      EXPECT_EQ(at, mine.size());
    }
  }
}
