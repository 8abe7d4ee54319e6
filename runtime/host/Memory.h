//===- Memory.h - Atomic access to shared words -----------------*- C++ -*-===//
//
// Words of a heap are plain integers in a mapping that other processes write,
// so every access goes through std::atomic_ref. The functions are templates
// over the width only to serve futex words too.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_HOST_MEMORY_H
#define SHARDQ_RUNTIME_HOST_MEMORY_H

#include <atomic>
#include <cstdint>

namespace shardq {

template <typename Word> std::atomic_ref<Word> shared(const Word &word) {
  static_assert(std::atomic_ref<Word>::is_always_lock_free,
                "a lock would not be shared between processes");
  // atomic_ref of a const word cannot be loaded from before C++26.
  return std::atomic_ref<Word>(const_cast<Word &>(word));
}

template <typename Word> Word loadAcquire(const Word &word) {
  return shared(word).load(std::memory_order_acquire);
}
template <typename Word> Word loadRelaxed(const Word &word) {
  return shared(word).load(std::memory_order_relaxed);
}
template <typename Word> void storeRelease(Word &word, Word value) {
  shared(word).store(value, std::memory_order_release);
}
template <typename Word> void storeRelaxed(Word &word, Word value) {
  shared(word).store(value, std::memory_order_relaxed);
}

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_MEMORY_H
