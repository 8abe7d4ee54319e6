//===- Heap.h - Symmetric memory --------------------------------*- C++ -*-===//
//
// Every rank's heap has the same layout, and a process maps them all at one
// stride, so the peer's copy of an address is one addition away:
//
//   base + 0 * stride        base + 1 * stride        ...
//   +---------+-------+----------------+
//   | header  | flags | slot 0 | slot 1 |
//   +---------+-------+----------------+
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_HOST_HEAP_H
#define SHARDQ_RUNTIME_HOST_HEAP_H

#include "Failure.h"
#include "protocol/Laggard.h"

#include <memory>

namespace shardq {

/// Wakes a rank that sleeps in a wait of the slot.
struct alignas(64) Doorbell {
  uint32_t rings;
  uint32_t sleepers;
};

/// What a heap is for. Ranks on GPUs have two: buffers, flags and epochs are on
/// the device, what processes tell each other stays on the host. (Where NCCL
/// carries the rows, that is also how far they are, in flags as of CPU ranks.)
enum class HeapPart { Whole, Control, Device };

/// Offsets of everything in a heap.
struct Layout {
  Layout() = default;
  /// `page` is what memory comes in; 0 means the host's pages. `tokenBytes` is
  /// what each writer has for its token.
  Layout(const Plan &plan, int32_t world, HeapPart part = HeapPart::Whole,
         uint64_t page = 0, uint64_t tokenBytes = sizeof(uint64_t));

  int32_t world = 0;
  int32_t slots = 0;
  int64_t channels = 0;
  uint64_t slotBytes = 0;

  uint64_t tokens = 0;    // uint64_t [world]
  uint64_t progress = 0;  // SlotProgress [2][slots]
  uint64_t doorbells = 0; // Doorbell [slots]
  uint64_t signalled = 0; // uint64_t [slots][channels]
  uint64_t flags = 0;     // FlagLine [slots][channels][kFlagLines][world]
  uint64_t data = 0;      // slots, each slotStride long
  uint64_t slotStride = 0;
  uint64_t bytes = 0; // of the whole heap, a multiple of the page
};

/// Address space that holds the heaps of all ranks.
class HeapSpace {
public:
  /// Reserves room; nothing is accessible yet.
  static Outcome reserve(uint64_t stride, int32_t world,
                         std::shared_ptr<HeapSpace> &space);
  /// Room and memory at once, for ranks that are threads of this process.
  static Outcome allocate(uint64_t stride, int32_t world,
                          std::shared_ptr<HeapSpace> &space);
  HeapSpace(const HeapSpace &) = delete;
  ~HeapSpace();

  /// Puts the heap behind `fd` at the place of `rank`.
  Outcome map(int32_t rank, int fd);

  char *heap(int64_t rank) const {
    return base + static_cast<uint64_t>(rank) * stride;
  }

private:
  HeapSpace(char *base, uint64_t stride, uint64_t length)
      : base(base), stride(stride), length(length) {}
  static Outcome create(uint64_t stride, int32_t world, int protection,
                        std::shared_ptr<HeapSpace> &space);

  char *base;
  uint64_t stride;
  uint64_t length;
};

/// Makes the memory of a heap: zeroes, and sealed so that no holder of the
/// descriptor can shrink it under the others.
Outcome createHeapMemory(uint64_t bytes, Descriptor &fd);

/// Checks that a descriptor from a peer is such memory of that size.
Outcome checkHeapMemory(int fd, uint64_t bytes);

/// Typed access to the heaps of all ranks.
class Heaps {
public:
  Heaps() = default;
  Heaps(std::shared_ptr<HeapSpace> space, const Layout &layout)
      : space(std::move(space)), layout(layout) {}

  uint64_t &left(int64_t rank) const;
  AbortRecord &abort(int64_t rank) const;
  uint64_t &token(int64_t rank, int64_t writer) const;
  SlotProgress &progress(int64_t rank, int64_t slot) const;
  Doorbell &doorbell(int64_t rank, int64_t slot) const;
  uint64_t &signalled(int64_t rank, int64_t slot, int64_t channel) const;
  char *slotBase(int64_t rank, int64_t slot) const;
  char *heapBase(int64_t rank) const;
  protocol::FlagTable flagTable() const;
  protocol::ProgressTable progressTable() const;
  const Layout &getLayout() const { return layout; }

private:
  template <typename T> T *at(int64_t rank, uint64_t offset) const {
    return reinterpret_cast<T *>(space->heap(rank) + offset);
  }

  std::shared_ptr<HeapSpace> space;
  Layout layout;
};

/// Wakes `rank` if it sleeps in a wait of `slot`.
void ring(const Heaps &heaps, int64_t rank, int64_t slot);

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_HEAP_H
