//===- Pages.h - Where the keys of a step lie in a paged cache --*- C++ -*-===//

#ifndef SHARDQ_RUN_PAGES_H
#define SHARDQ_RUN_PAGES_H

#include "Random.h"
#include "Step.h"

namespace mlir::shardq::run {

/// A block table: which physical block holds each block of each request.
struct Pages {
  int64_t blockSize = 64;
  int64_t numBlocks = 0; // physical ones
  int64_t width = 0;     // entries per request
  std::vector<int32_t> table;

  /// Blocks that the step's requests fill.
  static int64_t countBlocks(const Step &step, int64_t blockSize);
  static int64_t countWidth(const Step &step, int64_t blockSize);

  /// Deals shuffled blocks to the requests, if it can all but `nullBlock`,
  /// which engines keep free; -1 for none. Entries behind a request's last
  /// block name a block of nobody.
  static Pages shuffled(const Step &step, int64_t blockSize, int64_t numBlocks,
                        int64_t width, int64_t nullBlock, Random &random);

  /// Physical row of a request's position, or -1.
  int64_t getRow(int64_t request, int64_t position, int64_t blockStride) const {
    int64_t block = position / blockSize;
    if (position < 0 || block >= width)
      return -1;
    int64_t entry = table[request * width + block];
    return entry < 0 ? -1 : entry * blockStride + position % blockSize;
  }
};

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_PAGES_H
