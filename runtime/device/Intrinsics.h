//===- Intrinsics.h - What a thread of a block asks the machine -*- C++ -*-===//
//
// For NVPTX, the compiler's builtins. Elsewhere the functions are only
// declared: the unit tests run the device library on threads of the host.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_DEVICE_INTRINSICS_H
#define SHARDQ_RUNTIME_DEVICE_INTRINSICS_H

#include <stdint.h>

namespace shardq::device {

#ifdef __NVPTX__

inline uint32_t threadIndex() { return __nvvm_read_ptx_sreg_tid_x(); }
inline uint32_t blockThreads() { return __nvvm_read_ptx_sreg_ntid_x(); }
inline uint32_t blockIndex() { return __nvvm_read_ptx_sreg_ctaid_x(); }
inline uint32_t blockCount() { return __nvvm_read_ptx_sreg_nctaid_x(); }

/// A barrier of the block; true on all threads if `vote` is on any.
inline bool barrierAny(bool vote) { return __nvvm_bar0_or(vote) != 0; }

/// Nanoseconds on a clock that all kernels of the device share.
inline uint64_t nanoseconds() { return __nvvm_read_ptx_sreg_globaltimer(); }

inline void rest(uint32_t nanoseconds) { __nvvm_nanosleep(nanoseconds); }

/// Ranks of one device may see one page at several addresses, and what was
/// written through one is seen through another only after this.
inline void fenceAliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }

/// Two words of 16 aligned bytes at once, in the order of all of the system. A
/// store of the second word that the first had to wait for would be a way to
/// the peer and back.
inline void loadPair(const void *address, uint64_t &first, uint64_t &second) {
  asm volatile("{ .reg .b128 pair; ld.acquire.sys.b128 pair, [%2]; "
               "mov.b128 {%0, %1}, pair; }"
               : "=l"(first), "=l"(second)
               : "l"(address)
               : "memory");
}
inline void storePair(void *address, uint64_t first, uint64_t second) {
  asm volatile("{ .reg .b128 pair; mov.b128 pair, {%1, %2}; "
               "st.release.sys.b128 [%0], pair; }"
               :
               : "l"(address), "l"(first), "l"(second)
               : "memory");
}

#else

uint32_t threadIndex();
uint32_t blockThreads();
uint32_t blockIndex();
uint32_t blockCount();
bool barrierAny(bool vote);
uint64_t nanoseconds();
void rest(uint32_t nanoseconds);
inline void fenceAliases() {}
// The first word is the one that others look for.
inline void loadPair(const void *address, uint64_t &first, uint64_t &second) {
  const uint64_t *words = static_cast<const uint64_t *>(address);
  first = __atomic_load_n(words, __ATOMIC_ACQUIRE);
  second = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
}
inline void storePair(void *address, uint64_t first, uint64_t second) {
  uint64_t *words = static_cast<uint64_t *>(address);
  __atomic_store_n(words + 1, second, __ATOMIC_RELAXED);
  __atomic_store_n(words, first, __ATOMIC_RELEASE);
}

#endif

} // namespace shardq::device

#endif // SHARDQ_RUNTIME_DEVICE_INTRINSICS_H
