//===- SplitBenchmark.cpp - The zigzag split on the host ------------------===//
//
// Target: 16,384 tokens in 64 requests below 30 us.
//
//===----------------------------------------------------------------------===//

#include "shardq/split.h"
#include <benchmark/benchmark.h>
#include <random>
#include <vector>

/// Ragged requests, since equal ones would be kinder than real steps.
static std::vector<int32_t> makeStarts(int64_t tokens, int64_t requests) {
  std::mt19937 random(1);
  std::vector<int32_t> starts{0, int32_t(tokens)};
  std::uniform_int_distribution<int32_t> cut(0, int32_t(tokens));
  while (int64_t(starts.size()) < requests + 1)
    starts.push_back(cut(random));
  std::sort(starts.begin(), starts.end());
  return starts;
}

static void zigzagSplit(benchmark::State &state) {
  int64_t tokens = state.range(0), requests = state.range(1),
          ranks = state.range(2);
  std::vector<int32_t> starts = makeStarts(tokens, requests);
  std::vector<int32_t> ids(tokens), offsets(ranks + 1);
  for (auto _ : state) {
    shardq_zigzag_split(starts.data(), requests, /*decodes=*/0, tokens, ranks,
                        ids.data(), offsets.data());
    benchmark::DoNotOptimize(ids.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(zigzagSplit)
    ->ArgNames({"tokens", "requests", "ranks"})
    ->Args({16384, 64, 2})
    ->Args({16384, 64, 8})
    ->Args({16384, 64, 64})
    ->Unit(benchmark::kMicrosecond);
