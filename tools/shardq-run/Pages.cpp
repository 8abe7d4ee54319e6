//===- Pages.cpp - Where the keys of a step lie in a paged cache ----------===//

#include "Pages.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

int64_t Pages::countBlocks(const Step &step, int64_t blockSize) {
  int64_t blocks = 0;
  for (int64_t r = 0; r < step.getNumRequests(); ++r)
    blocks += llvm::divideCeil(step.getKvLen(r), blockSize);
  return blocks;
}

int64_t Pages::countWidth(const Step &step, int64_t blockSize) {
  return llvm::divideCeil(step.getMaxKvLen(), blockSize);
}

Pages Pages::shuffled(const Step &step, int64_t blockSize, int64_t numBlocks,
                      int64_t width, int64_t nullBlock, Random &random) {
  Pages pages{blockSize, numBlocks, width, {}};
  int64_t needed = countBlocks(step, blockSize);
  std::vector<int32_t> blocks(numBlocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  // What stands for none is left free where there is room.
  bool isFree = nullBlock >= 0 && nullBlock < numBlocks && needed < numBlocks;
  if (isFree)
    blocks.erase(blocks.begin() + nullBlock);
  random.shuffle(blocks);
  // Where all blocks are used there is no stranger to name, and -1 does.
  int32_t stranger = needed < int64_t(blocks.size()) ? blocks.back()
                     : isFree                        ? int32_t(nullBlock)
                                                     : -1;
  pages.table.assign(step.getNumRequests() * width, stranger);
  auto next = blocks.begin();
  for (int64_t r = 0; r < step.getNumRequests(); ++r) {
    int64_t count = llvm::divideCeil(step.getKvLen(r), blockSize);
    std::copy_n(next, count, pages.table.begin() + r * width);
    next += count;
  }
  return pages;
}
