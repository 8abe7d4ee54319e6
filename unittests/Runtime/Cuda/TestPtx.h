//===- TestPtx.h - TestKernels.cpp as PTX -----------------------*- C++ -*-===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTPTX_H
#define SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTPTX_H

namespace shardq::test {

// Made at build time.
extern const char kTestPtx[];

} // namespace shardq::test

#endif // SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTPTX_H
