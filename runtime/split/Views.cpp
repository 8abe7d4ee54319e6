//===- Views.cpp - Block tables of a sharded KV cache ---------------------===//

#include "shardq/views.h"
#include <algorithm>
#include <limits>

namespace {

/// Where the tokens of a request are kept.
struct Ownership {
  int64_t ranks, interleave;

  int64_t owner(int64_t token) const { return token / interleave % ranks; }
  int64_t local(int64_t token) const {
    return token / (ranks * interleave) * interleave + token % interleave;
  }
};

} // namespace

/// A block as an entry of a table; -1 for one that is none.
static int32_t toEntry(int64_t block) {
  return block <= std::numeric_limits<int32_t>::max()
             ? static_cast<int32_t>(block)
             : -1;
}

int64_t shardq_local_length(int64_t tokens, int64_t ranks, int64_t rank,
                            int64_t interleave) {
  if (tokens <= 0 || ranks < 1 || interleave < 1)
    return 0;
  int64_t base = tokens / interleave / ranks * interleave;
  int64_t rest = tokens - base * ranks - rank * interleave;
  return base + std::clamp<int64_t>(rest, 0, interleave);
}

void shardq_replicated_view(const int32_t *table, int64_t requests,
                            int64_t width, int64_t tableStride,
                            const int32_t *seqLens, int64_t ranks,
                            int64_t blocksPerBlock, int32_t *view) {
  if (ranks < 1 || blocksPerBlock < 1)
    return;
  for (int64_t i = 0; i < requests; ++i)
    for (int64_t column = 0; column != width * ranks; ++column) {
      int32_t &entry = view[i * width * ranks + column];
      int64_t local = column / (ranks * blocksPerBlock) * blocksPerBlock +
                      column % blocksPerBlock;
      int64_t rank = column / blocksPerBlock % ranks;
      if (seqLens[i] <= 0) {
        entry = 0;
        continue;
      }
      // A last physical block may be cut off by the width.
      int64_t block = local < width ? table[i * tableStride + local] : -1;
      entry = block < 0 ? -1
                        : toEntry((block / blocksPerBlock * ranks + rank) *
                                      blocksPerBlock +
                                  block % blocksPerBlock);
    }
}

int64_t shardq_view_slot(const int32_t *view, int64_t viewWidth, int64_t block,
                         int64_t position) {
  if (position < 0 || block < 1 || position / block >= viewWidth)
    return -1;
  int64_t entry = view[position / block];
  return entry < 0 ? -1 : entry * block + position % block;
}

int64_t shardq_gather_blocks(const int32_t *table, int64_t requests,
                             int64_t width, int64_t tableStride,
                             const int32_t *seqLens, int64_t ranks,
                             int64_t interleave, int64_t block,
                             int32_t nullBlock, int64_t pool, int32_t *valid,
                             int32_t *inverse) {
  int64_t count = 0;
  for (int64_t i = 0; i < requests; ++i) {
    int64_t longest = shardq_local_length(seqLens[i], ranks, 0, interleave);
    int64_t columns =
        block < 1 ? 0 : std::min(width, (longest + block - 1) / block);
    for (int64_t column = 0; column < width; ++column) {
      int32_t entry = table[i * tableStride + column];
      bool isGathered =
          column < columns && entry >= 0 && entry < pool && entry != nullBlock;
      // The block for now, and its place once all are known.
      inverse[i * width + column] = isGathered ? entry : -1;
      if (isGathered)
        valid[count++] = entry;
    }
  }
  std::sort(valid, valid + count);
  int32_t *end = std::unique(valid, valid + count);
  for (int64_t i = 0; i < requests * width; ++i)
    if (inverse[i] >= 0)
      inverse[i] = static_cast<int32_t>(
          std::lower_bound(valid, end, inverse[i]) - valid);
  std::fill(end, valid + requests * width, -1);
  return end - valid;
}

shardq_status shardq_gathered_table(int64_t requests, int64_t width,
                                    const int32_t *inverse, int64_t blocks,
                                    int64_t ranks, int64_t interleave,
                                    int64_t kernelBlock, int32_t *gathered) {
  if (requests < 0 || width < 0 || blocks < 0 || ranks < 1 ||
      ranks > SHARDQ_MAX_RANKS || interleave < 1 || kernelBlock < 1 ||
      interleave % kernelBlock != 0 ||
      blocks > std::numeric_limits<int32_t>::max() / ranks)
    return SHARDQ_INVALID;
  Ownership ownership{ranks, interleave};
  for (int64_t i = 0; i != requests; ++i)
    for (int64_t column = 0; column != width * ranks; ++column) {
      int64_t token = column * kernelBlock;
      int64_t local = ownership.local(token) / kernelBlock;
      int64_t entry = -1;
      // The last run of an interleave may be cut off by the width.
      if (local < width)
        entry = inverse ? inverse[i * width + local] : i * width + local;
      gathered[i * width * ranks + column] =
          entry < 0 ? -1 : toEntry(ownership.owner(token) * blocks + entry);
    }
  return SHARDQ_OK;
}

int64_t shardq_gathered_slot(const int32_t *inverse, int64_t width,
                             int64_t blocks, int64_t ranks, int64_t interleave,
                             int64_t block, int64_t position) {
  if (position < 0 || ranks < 1 || interleave < 1 || block < 1)
    return -1;
  Ownership ownership{ranks, interleave};
  int64_t local = ownership.local(position);
  if (local / block >= width || inverse[local / block] < 0)
    return -1;
  int64_t place = ownership.owner(position) * blocks + inverse[local / block];
  return place * block + local % block;
}
