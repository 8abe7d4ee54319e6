//===- FakeStream.h - Streams of the fake driver ----------------*- C++ -*-===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_CUDA_FAKESTREAM_H
#define SHARDQ_UNITTESTS_RUNTIME_CUDA_FAKESTREAM_H

#include "cuda/Driver.h"

#include <cstring>
#include <functional>

namespace shardq::fake {

/// Runs `work` in its turn on the stream, or adds it to what the stream
/// captures.
void enqueue(cuda::Stream stream, std::function<void()> work);

/// Whether it has been made and not destroyed.
bool isThere(cuda::Stream stream);

template <typename Word>
void copyWords(void *target, const void *source, size_t bytes) {
  for (size_t i = 0; i != bytes / sizeof(Word); ++i)
    __atomic_store_n(static_cast<Word *>(target) + i,
                     __atomic_load_n(static_cast<const Word *>(source) + i,
                                     __ATOMIC_ACQUIRE),
                     __ATOMIC_RELEASE);
}

/// Words that kernels look at, or write, meanwhile are copied as such: those of
/// short records. What is longer nobody looks at.
inline void copyBytes(void *target, const void *source, size_t bytes) {
  constexpr size_t kRecord = 64;
  uintptr_t both =
      reinterpret_cast<uintptr_t>(target) | reinterpret_cast<uintptr_t>(source);
  if (bytes <= kRecord && (bytes | both) % sizeof(uint64_t) == 0)
    copyWords<uint64_t>(target, source, bytes);
  else if (bytes == sizeof(uint32_t) && both % sizeof(uint32_t) == 0)
    copyWords<uint32_t>(target, source, bytes);
  else
    std::memcpy(target, source, bytes);
}

} // namespace shardq::fake

#endif // SHARDQ_UNITTESTS_RUNTIME_CUDA_FAKESTREAM_H
