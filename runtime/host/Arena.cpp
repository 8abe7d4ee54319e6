//===- Arena.cpp - Temporary memory of a slot -----------------------------===//

#include "Arena.h"

using namespace shardq;

void Arena::add(void *base, uint64_t bytes) {
  blocks.push_back({static_cast<char *>(base), bytes / kAlignment * kAlignment,
                    /*used=*/false,
                    /*first=*/true});
}

void *Arena::allocate(uint64_t bytes) {
  uint64_t wanted = rounded(bytes);
  for (size_t i = 0; i != blocks.size(); ++i) {
    if (blocks[i].used || blocks[i].bytes < wanted)
      continue;
    char *base = blocks[i].base;
    if (uint64_t left = blocks[i].bytes - wanted) {
      blocks[i].bytes = wanted;
      blocks.insert(blocks.begin() + static_cast<ptrdiff_t>(i) + 1,
                    {base + wanted, left, /*used=*/false, /*first=*/false});
    }
    blocks[i].used = true;
    return base;
  }
  return nullptr;
}

void Arena::free(void *address) {
  for (size_t i = 0; i != blocks.size(); ++i) {
    if (blocks[i].base != address || !blocks[i].used)
      continue;
    blocks[i].used = false;
    // What follows joins it, and it joins what precedes.
    auto join = [this](size_t at) {
      if (at == 0 || at >= blocks.size() || blocks[at].first ||
          blocks[at].used || blocks[at - 1].used)
        return;
      blocks[at - 1].bytes += blocks[at].bytes;
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(at));
    };
    join(i + 1);
    join(i);
    return;
  }
}

void Arena::reset() {
  size_t chunks = 0;
  for (const Block &block : blocks) {
    if (block.first) {
      blocks[chunks++] = {block.base, block.bytes, /*used=*/false,
                          /*first=*/true};
      continue;
    }
    blocks[chunks - 1].bytes += block.bytes;
  }
  blocks.resize(chunks);
}

uint64_t Arena::capacity() const {
  uint64_t bytes = 0;
  for (const Block &block : blocks)
    bytes += block.bytes;
  return bytes;
}
