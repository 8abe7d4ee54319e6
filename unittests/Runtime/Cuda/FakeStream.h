//===- FakeStream.h - Streams of the fake driver ----------------*- C++ -*-===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_CUDA_FAKESTREAM_H
#define SHARDQ_UNITTESTS_RUNTIME_CUDA_FAKESTREAM_H

#include "cuda/Driver.h"

#include <functional>

namespace shardq::fake {

/// Runs `work` in its turn on the stream, or adds it to what the stream
/// captures.
void enqueue(cuda::Stream stream, std::function<void()> work);

} // namespace shardq::fake

#endif // SHARDQ_UNITTESTS_RUNTIME_CUDA_FAKESTREAM_H
