//===- SplitTest.cpp - Zigzag token split and its gate --------------------===//

#include "shardq/split.h"
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

using Ints = std::vector<int32_t>;

struct Split {
  Ints ids, offsets;

  Ints counts() const {
    Ints result;
    for (size_t r = 0; r + 1 < offsets.size(); ++r)
      result.push_back(offsets[r + 1] - offsets[r]);
    return result;
  }
  Ints group(size_t rank) const {
    return Ints(ids.begin() + offsets[rank], ids.begin() + offsets[rank + 1]);
  }
};

Ints startsOf(const Ints &lens) {
  Ints starts{0};
  for (int32_t len : lens)
    starts.push_back(starts.back() + len);
  return starts;
}

Split split(const Ints &lens, int64_t ranks, int64_t decodes = 0,
            int64_t padding = 0) {
  Ints starts = startsOf(lens);
  int64_t rows = starts.back() + padding;
  // A poisoned end shows writes behind the arrays.
  Split result{Ints(rows + 1, 12345), Ints(ranks + 2, 12345)};
  shardq_zigzag_split(starts.data(), lens.size(), decodes, rows, ranks,
                      result.ids.data(), result.offsets.data());
  EXPECT_EQ(result.ids.back(), 12345);
  EXPECT_EQ(result.offsets.back(), 12345);
  result.ids.pop_back();
  result.offsets.pop_back();
  return result;
}

shardq_gate gate(const Ints &lens, const Ints &seqLens, int64_t ranks,
                 int64_t minTokens = 1, int64_t topk = 4,
                 int64_t maxRankRows = -1, int64_t maxRows = -1,
                 int64_t padding = 0, int64_t speculative = 0) {
  Ints starts = startsOf(lens);
  int64_t decodes =
      shardq_count_decode_rows(starts.data(), lens.size(), speculative);
  Split s = split(lens, ranks, decodes, padding);
  return shardq_split_gate(
      s.offsets.data(), ranks, starts.data(), seqLens.data(), lens.size(),
      decodes, starts.back() + padding, minTokens, topk, maxRankRows, maxRows);
}

//===----------------------------------------------------------------------===//
// Golden values
//===----------------------------------------------------------------------===//

TEST(ZigzagSplit, SixteenTokensFourRanks) {
  Split s = split({16}, 4);
  EXPECT_EQ(s.ids,
            (Ints{0, 1, 14, 15, 2, 3, 12, 13, 4, 5, 10, 11, 6, 7, 8, 9}));
  EXPECT_EQ(s.counts(), (Ints{4, 4, 4, 4}));
}

TEST(ZigzagSplit, TenTokensFourRanks) {
  Split s = split({10}, 4);
  EXPECT_EQ(s.group(0), (Ints{0, 8, 9}));
  EXPECT_EQ(s.group(1), (Ints{1, 7}));
  EXPECT_EQ(s.group(2), (Ints{2, 6}));
  EXPECT_EQ(s.group(3), (Ints{3, 4, 5}));
}

TEST(ZigzagSplit, SevenTokensFourRanks) {
  Split s = split({7}, 4);
  EXPECT_EQ(s.group(0), (Ints{6}));
  EXPECT_EQ(s.group(1), (Ints{0, 5}));
  EXPECT_EQ(s.group(2), (Ints{1, 4}));
  EXPECT_EQ(s.group(3), (Ints{2, 3}));
}

TEST(ZigzagSplit, ThreeTokensLeaveRanksEmpty) {
  EXPECT_EQ(split({3}, 4).counts(), (Ints{1, 0, 2, 0}));
}

TEST(ZigzagSplit, SeveralRequests) {
  EXPECT_EQ(split({5, 9}, 2).counts(), (Ints{8, 6}));
  Split s = split({1, 2, 3}, 2);
  EXPECT_EQ(s.group(0), (Ints{0, 2, 5}));
  EXPECT_EQ(s.group(1), (Ints{1, 3, 4}));
}

TEST(ZigzagSplit, LengthsThatLeaveARankEmpty) {
  struct Case {
    int64_t ranks;
    Ints lens;
  };
  for (const Case &c : {Case{2, {1}}, Case{4, {1, 2, 3, 5}},
                        Case{8, {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13}}})
    for (int32_t len = 1; len <= 64; ++len) {
      Ints counts = split({len}, c.ranks).counts();
      bool empty = std::find(counts.begin(), counts.end(), 0) != counts.end();
      bool listed =
          std::find(c.lens.begin(), c.lens.end(), len) != c.lens.end();
      EXPECT_EQ(empty, listed) << "W=" << c.ranks << " len=" << len;
    }
}

/// Work per rank as max/mean, at one request of 8,192 tokens and eight ranks.
double balance(int64_t context, int64_t cap) {
  Split s = split({8192}, 8);
  std::vector<double> work(8);
  for (size_t rank = 0; rank < 8; ++rank)
    for (int32_t token : s.group(rank))
      work[rank] += std::min<double>(double(context + token + 1), double(cap));
  double mean = std::accumulate(work.begin(), work.end(), 0.0) / 8;
  return *std::max_element(work.begin(), work.end()) / mean;
}

TEST(ZigzagSplit, Balance) {
  EXPECT_NEAR(balance(0, 1 << 30), 1.000, 0.0005);
  EXPECT_NEAR(balance(0, 2048), 1.143, 0.0005);
  EXPECT_NEAR(balance(32768, 2048), 1.000, 0.0005);
}

//===----------------------------------------------------------------------===//
// Properties
//===----------------------------------------------------------------------===//

TEST(ZigzagSplit, RandomRaggedBatches) {
  unsigned seed = std::random_device{}();
  if (const char *fixed = std::getenv("SHARDQ_TEST_SEED"))
    seed = unsigned(std::strtoul(fixed, nullptr, 10));
  SCOPED_TRACE("SHARDQ_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  auto below = [&](int64_t n) { return int64_t(random() % n); };
  for (int64_t ranks = 1; ranks <= 64; ++ranks)
    for (int round = 0; round < 20; ++round) {
      Ints lens(below(12));
      int64_t decodes = 0, longest = 1 + below(400);
      bool leading = true;
      for (int32_t &len : lens) {
        len = int32_t(below(longest));
        leading &= len <= 1;
        decodes += leading ? len : 0;
      }
      int64_t padding = below(5);
      Split s = split(lens, ranks, decodes, padding);
      int64_t tokens = startsOf(lens).back() - decodes;

      // Partition: each token once, padding behind them.
      Ints sorted(s.ids.begin(), s.ids.begin() + tokens);
      std::sort(sorted.begin(), sorted.end());
      for (int64_t i = 0; i < tokens; ++i)
        ASSERT_EQ(sorted[i], i);
      for (size_t i = tokens; i < s.ids.size(); ++i)
        ASSERT_EQ(s.ids[i], -1);
      ASSERT_EQ(s.offsets.back(), tokens);

      // Owner by the other definition, order inside a group, bound.
      Ints counts = s.counts(), starts = startsOf(lens);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        Ints group = s.group(rank);
        ASSERT_TRUE(std::is_sorted(group.begin(), group.end()));
        ASSERT_LE(counts[rank],
                  (tokens + ranks - 1) / ranks + 2 * int64_t(lens.size()));
        for (int32_t token : group) {
          int64_t row = token + decodes;
          size_t request = std::upper_bound(starts.begin(), starts.end(), row) -
                           starts.begin() - 1;
          int64_t position = row - starts[request], len = lens[request];
          int64_t chunk = ((position + 1) * 2 * ranks - 1) / len;
          ASSERT_EQ(std::min(chunk, 2 * ranks - 1 - chunk), rank);
        }
      }
    }
}

TEST(ZigzagSplit, InvalidStartsStayInsideTheArrays) {
  std::mt19937 random(7);
  for (int round = 0; round < 1000; ++round) {
    Ints starts(1 + random() % 6);
    for (int32_t &start : starts)
      start = int32_t(random()) >> (random() % 32);
    int64_t rows = random() % 20, decodes = int64_t(random() % 30) - 5;
    Ints ids(rows + 1, 12345), offsets(5, 12345);
    shardq_zigzag_split(starts.data(), starts.size() - 1, decodes, rows, 3,
                        ids.data(), offsets.data());
    ASSERT_EQ(ids.back(), 12345);
    ASSERT_EQ(offsets.back(), 12345);
    ASSERT_TRUE(std::is_sorted(offsets.begin(), offsets.begin() + 4));
    ASSERT_LE(offsets[3], rows);
  }
}

TEST(ZigzagSplit, ManyRanks) {
  EXPECT_EQ(split({1024}, 256).counts(), Ints(256, 4));
  Ints ids(4, 7), offsets(1, 7);
  int32_t starts[] = {0, 4};
  shardq_zigzag_split(starts, 1, 0, 4, SHARDQ_MAX_RANKS + 1, ids.data(),
                      offsets.data());
  EXPECT_EQ(ids, Ints(4, -1));
  EXPECT_EQ(offsets.front(), 7);
}

//===----------------------------------------------------------------------===//
// Contiguous shards
//===----------------------------------------------------------------------===//

struct Shard {
  Ints starts, lengths;
};

Shard shardOf(const Ints &starts, const Ints &lens, int64_t rows,
              int64_t rank) {
  Shard shard{Ints(starts.size(), 77), Ints(lens.size(), 77)};
  shardq_shard_lengths(starts.data(), lens.data(), int64_t(starts.size()) - 1,
                       rows, rank, shard.starts.data(), shard.lengths.data());
  return shard;
}

TEST(ShardLengths, Golden) {
  Shard shard = shardOf({0, 3, 5}, {3, 5}, 3, 0);
  EXPECT_EQ(shard.starts, Ints({0, 3, 3}));
  EXPECT_EQ(shard.lengths, Ints({3, 0}));
  shard = shardOf({0, 3, 5}, {3, 5}, 3, 1);
  EXPECT_EQ(shard.starts, Ints({0, 0, 2}));
  EXPECT_EQ(shard.lengths, Ints({0, 5}));
}

// Of 80 rows on 8 ranks, the last are padding, and so is all of rank 6's.
TEST(ShardLengths, PaddingIsNotNegative) {
  Ints starts, lens;
  for (int32_t i = 0; i <= 29; ++i)
    starts.push_back(2 * i);
  lens.assign(29, 1);
  for (int64_t rank = 0; rank < 8; ++rank) {
    Shard shard = shardOf(starts, lens, 10, rank);
    for (int32_t length : shard.lengths)
      EXPECT_GE(length, 0);
    if (rank >= 6) {
      EXPECT_EQ(shard.starts, Ints(30, 0));
      EXPECT_EQ(shard.lengths, Ints(29, 0));
    }
  }
}

// Every row sees what it sees in the whole step, and is on one rank.
TEST(ShardLengths, RowsSeeTheSame) {
  std::mt19937 random(3);
  for (int64_t ranks : {1, 2, 3, 4, 8})
    for (int round = 0; round < 20; ++round) {
      Ints lens, seqs;
      for (uint32_t r = random() % 12; r != 0; --r) {
        lens.push_back(int32_t(random() % 6));
        seqs.push_back(lens.back() + int32_t(random() % 40));
      }
      Ints starts = startsOf(lens);
      int64_t rows =
          (starts.back() + int64_t(random() % 4) + ranks - 1) / ranks;
      for (size_t r = 0; r < lens.size(); ++r) {
        int64_t found = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          Shard shard = shardOf(starts, seqs, rows, rank);
          int64_t count = shard.starts[r + 1] - shard.starts[r];
          for (int64_t i = 0; i < count; ++i) {
            int64_t row = rank * rows + shard.starts[r] + i;
            EXPECT_EQ(shard.lengths[r] - count + i + 1,
                      seqs[r] - lens[r] + row - starts[r] + 1);
          }
          EXPECT_EQ(count == 0, shard.lengths[r] == 0);
          found += count;
        }
        EXPECT_EQ(found, lens[r]);
      }
    }
}

TEST(ShardLengths, AnyValues) {
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  // Starts that do not ascend, lengths below 0, more rows than there can be.
  for (int64_t rows : {int64_t(-5), int64_t(0), int64_t(7), int64_t(1) << 62})
    for (int64_t rank : {0, 1, 255}) {
      Shard shard = shardOf({5, -3, most, 0}, {-most, most, -1}, rows, rank);
      for (int32_t start : shard.starts) {
        EXPECT_GE(start, 0);
        EXPECT_LE(start, std::max<int64_t>(rows, 0));
      }
      for (int32_t length : shard.lengths)
        EXPECT_GE(length, 0);
    }
  // Not even a first start.
  shardq_shard_lengths(nullptr, nullptr, -1, 4, 0, nullptr, nullptr);
}

//===----------------------------------------------------------------------===//
// Decodes and gate
//===----------------------------------------------------------------------===//

TEST(CountDecodeRows, LeadingRunOnly) {
  auto count = [](const Ints &lens, int64_t speculative) {
    Ints starts = startsOf(lens);
    return shardq_count_decode_rows(starts.data(), lens.size(), speculative);
  };
  EXPECT_EQ(count({}, 0), 0);
  EXPECT_EQ(count({1, 1, 1}, 0), 3);
  EXPECT_EQ(count({1, 1, 5, 1}, 0), 2); // a short one behind is prefill
  EXPECT_EQ(count({2, 1, 3, 2}, 1), 3);
  EXPECT_EQ(count({0, 1, 5}, 0), 1);
  EXPECT_EQ(count({5, 1}, 0), 0);
}

TEST(SplitGate, Open) { EXPECT_EQ(gate({16}, {16}, 4), SHARDQ_GATE_OPEN); }

TEST(SplitGate, EachReason) {
  // No prefill request; too few tokens.
  EXPECT_EQ(gate({1, 1}, {9, 9}, 2), SHARDQ_GATE_FEW_TOKENS);
  EXPECT_EQ(gate({}, {}, 2), SHARDQ_GATE_FEW_TOKENS);
  EXPECT_EQ(gate({16}, {16}, 4, /*minTokens=*/17), SHARDQ_GATE_FEW_TOKENS);
  // Nothing is cut by top-k; a long decode does not count.
  EXPECT_EQ(gate({16}, {16}, 4, 1, /*topk=*/16), SHARDQ_GATE_SHORT_SEQUENCES);
  EXPECT_EQ(gate({1, 16}, {99, 16}, 4, 1, 16), SHARDQ_GATE_SHORT_SEQUENCES);
  EXPECT_EQ(gate({16}, {17}, 4, 1, 16), SHARDQ_GATE_OPEN);
  // Graph padding.
  EXPECT_EQ(gate({16}, {16}, 4, 1, 4, -1, -1, /*padding=*/1),
            SHARDQ_GATE_PADDING);
  // A rank without a token.
  EXPECT_EQ(gate({3}, {9}, 4), SHARDQ_GATE_EMPTY_RANK);
  EXPECT_EQ(gate({5}, {9}, 4), SHARDQ_GATE_EMPTY_RANK);
  // The buffers.
  EXPECT_EQ(gate({10}, {10}, 4, 1, 4, /*maxRankRows=*/3), SHARDQ_GATE_OPEN);
  EXPECT_EQ(gate({10}, {10}, 4, 1, 4, 2), SHARDQ_GATE_CAPACITY);
  EXPECT_EQ(gate({1, 10}, {1, 10}, 4, 1, 4, -1, /*maxRows=*/11),
            SHARDQ_GATE_OPEN);
  EXPECT_EQ(gate({1, 10}, {1, 10}, 4, 1, 4, -1, 10), SHARDQ_GATE_CAPACITY);
}

TEST(SplitGate, SpeculativeTokensAreDecodes) {
  EXPECT_EQ(gate({2, 2}, {9, 9}, 2, 1, 4, -1, -1, 0, /*speculative=*/1),
            SHARDQ_GATE_FEW_TOKENS);
  EXPECT_EQ(gate({2, 2}, {9, 9}, 2), SHARDQ_GATE_OPEN);
}

} // namespace
