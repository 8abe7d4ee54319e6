//===- Heap.cpp - Symmetric memory ----------------------------------------===//

#include "Heap.h"

#include "Memory.h"

#include <climits>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace shardq;

namespace {

/// First bytes of every heap.
struct Header {
  AbortRecord abort;
  alignas(64) uint64_t left;
};

constexpr int kHeapSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

} // namespace

static uint64_t alignTo(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

Layout::Layout(const Plan &plan, int32_t world, HeapPart part, uint64_t page,
               uint64_t tokenBytes)
    : world(world), slots(plan.slots),
      channels(static_cast<int64_t>(plan.channels.size())),
      slotBytes(part == HeapPart::Control ? 0 : plan.slotBytes) {
  if (page == 0)
    page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t ranks = static_cast<uint64_t>(world);
  uint64_t slotCount = static_cast<uint64_t>(slots);
  uint64_t pairs = slotCount * static_cast<uint64_t>(channels);

  uint64_t end = sizeof(Header);
  auto place = [&end](uint64_t size) {
    uint64_t offset = alignTo(end, 64);
    end = offset + size;
    return offset;
  };
  tokens = place(ranks * tokenBytes);
  progress = place(2 * slotCount * sizeof(SlotProgress));
  doorbells = place(slotCount * sizeof(Doorbell));
  signalled = place(pairs * sizeof(uint64_t));
  // In a control heap, of the NCCL form only: pages that are never written are
  // never there.
  flags =
      place(pairs * protocol::kFlagLines * ranks * sizeof(protocol::FlagLine));
  if (part == HeapPart::Control) {
    data = bytes = alignTo(end, page);
    return;
  }
  // Slots start on pages of their own: micro-batches share nothing. A GPU's
  // pages are too large for that, its cache lines are not.
  uint64_t unit = part == HeapPart::Device ? 4096 : page;
  data = alignTo(end, unit);
  slotStride = alignTo(slotBytes ? slotBytes : 1, unit);
  bytes = alignTo(data + slotCount * slotStride, page);
}

Outcome HeapSpace::create(uint64_t stride, int32_t world, int protection,
                          std::shared_ptr<HeapSpace> &space) {
  uint64_t length;
  if (__builtin_mul_overflow(stride, static_cast<uint64_t>(world), &length))
    return failure(SHARDQ_SYSTEM, "heaps of %llu bytes do not fit",
                   (unsigned long long)stride);
  void *base = mmap(nullptr, length, protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return systemFailure("mmap of the heaps");
  space.reset(new HeapSpace(static_cast<char *>(base), stride, length));
  return {};
}

Outcome HeapSpace::reserve(uint64_t stride, int32_t world,
                           std::shared_ptr<HeapSpace> &space) {
  return create(stride, world, PROT_NONE, space);
}

Outcome HeapSpace::allocate(uint64_t stride, int32_t world,
                            std::shared_ptr<HeapSpace> &space) {
  return create(stride, world, PROT_READ | PROT_WRITE, space);
}

HeapSpace::~HeapSpace() { munmap(base, length); }

Outcome HeapSpace::map(int32_t rank, int fd) {
  if (mmap(heap(rank), stride, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           fd, 0) == MAP_FAILED)
    return systemFailure("mmap of a heap");
  return {};
}

Outcome shardq::createHeapMemory(uint64_t bytes, Descriptor &fd) {
  fd = Descriptor(static_cast<int>(
      memfd_create("shardq-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!fd)
    return systemFailure("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return systemFailure("ftruncate of the heap");
  if (fcntl(fd.get(), F_ADD_SEALS, kHeapSeals) != 0)
    return systemFailure("sealing the heap");
  return {};
}

Outcome shardq::checkHeapMemory(int fd, uint64_t bytes) {
  struct stat status;
  if (fstat(fd, &status) != 0)
    return systemFailure("fstat of a peer's heap");
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kHeapSeals) != kHeapSeals ||
      static_cast<uint64_t>(status.st_size) != bytes)
    return failure(SHARDQ_SYSTEM,
                   "a peer's heap is not sealed memory of %llu bytes",
                   (unsigned long long)bytes);
  return {};
}

uint64_t &Heaps::left(int64_t rank) const { return at<Header>(rank, 0)->left; }

AbortRecord &Heaps::abort(int64_t rank) const {
  return at<Header>(rank, 0)->abort;
}

uint64_t &Heaps::token(int64_t rank, int64_t writer) const {
  return at<uint64_t>(rank, layout.tokens)[writer];
}

SlotProgress &Heaps::progress(int64_t rank, int64_t slot) const {
  return at<SlotProgress>(rank, layout.progress)[slot];
}

Doorbell &Heaps::doorbell(int64_t rank, int64_t slot) const {
  return at<Doorbell>(rank, layout.doorbells)[slot];
}

uint64_t &Heaps::signalled(int64_t rank, int64_t slot, int64_t channel) const {
  return at<uint64_t>(rank, layout.signalled)[slot * layout.channels + channel];
}

char *Heaps::heapBase(int64_t rank) const { return at<char>(rank, 0); }

char *Heaps::slotBase(int64_t rank, int64_t slot) const {
  return at<char>(rank, layout.data +
                            static_cast<uint64_t>(slot) * layout.slotStride);
}

protocol::FlagTable Heaps::flagTable() const {
  return {space->heap(0), layout.bytes, layout.flags, layout.channels,
          layout.world};
}

protocol::ProgressTable Heaps::progressTable() const {
  return {space->heap(0), layout.bytes,    layout.progress, layout.signalled,
          layout.slots,   layout.channels, layout.world};
}

void shardq::ring(const Heaps &heaps, int64_t rank, int64_t slot) {
  Doorbell &bell = heaps.doorbell(rank, slot);
  // Sequentially consistent on both sides: either the sleeper's count is seen
  // here, or the ring is seen by the sleeper before it sleeps.
  shared(bell.rings).fetch_add(1, std::memory_order_seq_cst);
  if (shared(bell.sleepers).load(std::memory_order_seq_cst))
    syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
