//===- PushKernels.cpp - Two ways for kernels to push rows ----------------===//
//
// The bare movement of an exchange, without split, flags or gate: rows of this
// device into rows of a wider pitch on its peer. Compiled to PTX for sm_90.
//
//===----------------------------------------------------------------------===//

#include "PushKernels.h"
#include "device/Intrinsics.h"

using namespace shardq;
using namespace shardq::device;

#define SHARDQ_KERNEL extern "C" __attribute__((nvptx_kernel))

namespace {
/// 16 bytes, moved at once.
using Piece = uint32_t __attribute__((ext_vector_type(4)));
} // namespace

/// Holds the stream until the host has enqueued all of a trial. One thread.
SHARDQ_KERNEL void shardq_push_hold(const uint32_t *go) {
  uint64_t begin = nanoseconds();
  while (!__scoped_atomic_load_n(go, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_SYSTEM))
    if (nanoseconds() - begin > kHoldNs)
      return;
}

/// Stores of 16 bytes: each block copies parts of kThreads * kPieces pieces,
/// all loads before the first store. `parts` is how many a row has.
SHARDQ_KERNEL void shardq_push_stores(const Piece *source, Piece *target,
                                      uint32_t rowPieces, uint32_t pitchPieces,
                                      uint32_t parts, uint32_t rows) {
  for (uint32_t task = blockIndex(); task < rows * parts;
       task += blockCount()) {
    uint32_t row = task / parts;
    uint32_t first = task % parts * (kThreads * kPieces) + threadIndex();
    const Piece *from = source + static_cast<uint64_t>(row) * rowPieces;
    Piece *to = target + static_cast<uint64_t>(row) * pitchPieces;
    Piece held[kPieces];
#pragma unroll
    for (uint32_t i = 0; i != kPieces; ++i)
      if (uint32_t at = first + i * kThreads; at < rowPieces)
        held[i] = from[at];
#pragma unroll
    for (uint32_t i = 0; i != kPieces; ++i)
      if (uint32_t at = first + i * kThreads; at < rowPieces)
        to[at] = held[i];
  }
}

//===----------------------------------------------------------------------===//
// Bulk copies
//===----------------------------------------------------------------------===//

// Instructions that the compiler has no builtins for.

static uint64_t toGlobal(const void *pointer) {
  uint64_t address;
  asm("cvta.to.global.u64 %0, %1;" : "=l"(address) : "l"(pointer));
  return address;
}

/// Dynamic shared memory.
extern "C"
    __attribute__((address_space(3), aligned(128))) char shardq_push_stages[];

static void initBarrier(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier)
               : "memory");
}

static void loadBulk(uint32_t stage, uint64_t from, uint32_t bytes,
                     uint32_t barrier) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
               "bytes [%0], [%1], %2, [%3];" ::"r"(stage),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

static void awaitBulk(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p;\n"
                 "  mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "  selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

static void storeBulk(uint64_t to, uint32_t stage, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
               "cp.async.bulk.commit_group;" ::"l"(to),
               "r"(stage), "r"(bytes)
               : "memory");
}

/// Bulk copies through shared memory, kStages of kStageBytes in flight. One
/// thread a block: the rest is the copy units' work. `parts` stages make a row.
SHARDQ_KERNEL void shardq_push_bulk(const char *source, char *target,
                                    uint32_t rowBytes, uint32_t pitchBytes,
                                    uint32_t parts, uint32_t rows) {
  auto barriers =
      static_cast<uint32_t>(reinterpret_cast<uint64_t>(&shardq_push_stages[0]));
  uint32_t stages = barriers + 128;
  for (uint32_t i = 0; i != kStages; ++i)
    initBarrier(barriers + 8 * i);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");

  uint32_t tasks = rows * parts;
  uint32_t own = blockIndex() < tasks
                     ? (tasks - blockIndex() + blockCount() - 1) / blockCount()
                     : 0;
  auto each = [&](uint32_t turn, auto body) {
    uint32_t task = blockIndex() + turn * blockCount();
    uint32_t row = task / parts, at = task % parts * kStageBytes;
    uint32_t bytes = rowBytes - at < kStageBytes ? rowBytes - at : kStageBytes;
    uint32_t stage = turn % kStages;
    body(row, at, bytes, stages + stage * kStageBytes, barriers + 8 * stage);
  };
  auto load = [&](uint32_t turn) {
    each(turn, [&](uint64_t row, uint32_t at, uint32_t bytes, uint32_t stage,
                   uint32_t barrier) {
      loadBulk(stage, toGlobal(source + row * rowBytes + at), bytes, barrier);
    });
  };
  for (uint32_t turn = 0; turn < own && turn < kStages; ++turn)
    load(turn);
  for (uint32_t turn = 0; turn < own; ++turn) {
    each(turn, [&](uint64_t row, uint32_t at, uint32_t bytes, uint32_t stage,
                   uint32_t barrier) {
      awaitBulk(barrier, turn / kStages % 2);
      storeBulk(toGlobal(target + row * pitchBytes + at), stage, bytes);
    });
    if (turn == 0 || turn - 1 + kStages >= own)
      continue;
    // The stage of the turn before has been read out.
    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    load(turn - 1 + kStages);
  }
  // All of it is written before the kernel ends, as before a flag.
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
