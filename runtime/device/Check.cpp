//===- Check.cpp - Whether a GPU's stores reach its peers -----------------===//
//
// Kernels of the rendezvous, compiled to PTX that the runtime carries with it:
// virtual machines can report peer access that loses writes, so every rank
// writes into every heap, and every owner looks at what arrived.
//
//===----------------------------------------------------------------------===//

#include "Intrinsics.h"
#include "Probe.h"

using namespace shardq::device;

#ifdef __NVPTX__
#define SHARDQ_KERNEL extern "C" __attribute__((nvptx_kernel))
#else
#define SHARDQ_KERNEL extern "C"
#endif

/// One block for each owner: writes `tokens[owner]` and what follows from it
/// into this rank's place in the owner's heap, by stores. `copies[owner]`, in
/// memory of its own, receives the same for the copy engines. A token of 0 is
/// of an owner whose heap is not there.
SHARDQ_KERNEL void shardq_check_write(char *heaps, uint64_t stride,
                                      uint64_t offset, uint64_t writer,
                                      const uint64_t *tokens, Probe *copies) {
  uint64_t owner = blockIndex();
  if (tokens[owner] == 0)
    return;
  char *place = heaps + owner * stride + offset;
  Probe &probe = reinterpret_cast<Probe *>(place)[writer];
  for (uint32_t i = threadIndex(); i < Probe::kWords; i += blockThreads()) {
    // Plain stores, as kernels push rows.
    probe.words[Probe::Store][i] = probeWord(tokens[owner], Probe::Store, i);
    for (uint32_t way = Probe::Copy; way != Probe::kWays; ++way)
      copies[owner].words[way][i] = probeWord(tokens[owner], way, i);
  }
}

/// One block for each writer: `bad[writer * kWays + way]` receives how many of
/// the words that it should have written are not there, of one with a token of
/// 0 none. One thread a block.
SHARDQ_KERNEL void shardq_check_read(const Probe *own, const uint64_t *tokens,
                                     uint32_t *bad) {
  uint64_t writer = blockIndex();
  for (uint32_t way = threadIndex(); way < Probe::kWays;
       way += blockThreads()) {
    uint32_t count = 0;
    for (uint32_t i = 0; tokens[writer] != 0 && i != Probe::kWords; ++i)
      count += __scoped_atomic_load_n(
                   &own[writer].words[way][i], __ATOMIC_RELAXED,
                   __MEMORY_SCOPE_SYSTEM) != probeWord(tokens[writer], way, i);
    bad[writer * Probe::kWays + way] = count;
  }
}
