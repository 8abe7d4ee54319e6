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

#else

uint32_t threadIndex();
uint32_t blockThreads();
uint32_t blockIndex();
uint32_t blockCount();
bool barrierAny(bool vote);
uint64_t nanoseconds();
void rest(uint32_t nanoseconds);
inline void fenceAliases() {}

#endif

} // namespace shardq::device

#endif // SHARDQ_RUNTIME_DEVICE_INTRINSICS_H
