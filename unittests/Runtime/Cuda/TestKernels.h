//===- TestKernels.h - Kernels that exchange rows ---------------*- C++ -*-===//

#ifndef SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTKERNELS_H
#define SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTKERNELS_H

#include "device/DeviceContext.h"

#ifdef __NVPTX__
#define SHARDQ_TEST_KERNEL extern "C" __attribute__((nvptx_kernel))
#else
#define SHARDQ_TEST_KERNEL extern "C"
#endif

using shardq::device::DeviceContext;

SHARDQ_TEST_KERNEL void shardq_test_counts(const DeviceContext *context,
                                           const uint64_t *round,
                                           int64_t maxRows,
                                           shardq::protocol::Group group,
                                           int64_t *sent, int64_t *expected);
SHARDQ_TEST_KERNEL void shardq_test_push(const DeviceContext *context,
                                         int32_t channel, int32_t operation,
                                         const uint64_t *round, int64_t maxRows,
                                         shardq::protocol::Group group,
                                         const int64_t *sent);
SHARDQ_TEST_KERNEL void shardq_test_pack(const DeviceContext *context,
                                         int32_t channel, int32_t operation,
                                         const uint64_t *round, int64_t maxRows,
                                         shardq::protocol::Group group,
                                         const int64_t *sent, char *outbox);
SHARDQ_TEST_KERNEL void shardq_test_announce(const DeviceContext *context,
                                             int32_t channel, int32_t operation,
                                             int64_t first, int64_t stride,
                                             int64_t size, const int64_t *rows,
                                             const int64_t *wanted);
SHARDQ_TEST_KERNEL void shardq_test_unpack(const DeviceContext *context,
                                           int32_t channel, int64_t maxRows,
                                           shardq::protocol::Group group,
                                           const int64_t *expected,
                                           const char *landing);
SHARDQ_TEST_KERNEL void shardq_test_signal(const DeviceContext *context,
                                           int32_t channel, int32_t operation,
                                           int64_t first, int64_t stride,
                                           int64_t size, const int64_t *rows);
SHARDQ_TEST_KERNEL void shardq_test_wait(const DeviceContext *context,
                                         int32_t channel, int32_t operation,
                                         int64_t first, int64_t stride,
                                         int64_t size, const int64_t *rows);
SHARDQ_TEST_KERNEL void
shardq_test_signal_wait(const DeviceContext *context, int32_t channel,
                        int32_t operation, int64_t first, int64_t stride,
                        int64_t size, const int64_t *rows,
                        const int64_t *expected);
SHARDQ_TEST_KERNEL void
shardq_test_verify(const DeviceContext *context, int32_t channel,
                   const uint64_t *round, int64_t maxRows,
                   shardq::protocol::Group group, const int64_t *expected,
                   uint64_t *wrong);
SHARDQ_TEST_KERNEL void shardq_test_next(uint64_t *round);
SHARDQ_TEST_KERNEL void shardq_test_clean(const DeviceContext *context,
                                          int32_t channel, uint64_t *clean);
SHARDQ_TEST_KERNEL void shardq_test_admit(const DeviceContext *context,
                                          int32_t channel, int32_t operation,
                                          int64_t rows, int64_t rowBytes,
                                          uint64_t *admitted);
SHARDQ_TEST_KERNEL void shardq_test_beyond(const DeviceContext *context,
                                           int64_t block, int64_t request,
                                           int64_t requests, int64_t width);
SHARDQ_TEST_KERNEL void shardq_test_no_place(const DeviceContext *context,
                                             int64_t block, int64_t request,
                                             int64_t entry);
SHARDQ_TEST_KERNEL void shardq_test_beyond_cache(const DeviceContext *context,
                                                 int64_t slot, int64_t row,
                                                 int64_t rows);
SHARDQ_TEST_KERNEL void shardq_test_split_request(const DeviceContext *context,
                                                  int64_t decodes,
                                                  int64_t request, int64_t end);

/// Places in the image's table.
enum TestKernel : int32_t {
  kTestCounts,
  kTestPush,
  kTestSignal,
  kTestWait,
  kTestVerify,
  kTestNext,
  kTestClean,
  kTestAdmit,
  kTestPack,
  kTestAnnounce,
  kTestUnpack,
  kTestSignalWait,
  kTestBeyond,
  kTestNoPlace,
  kTestBeyondCache,
  kTestSplitRequest
};

#endif // SHARDQ_UNITTESTS_RUNTIME_CUDA_TESTKERNELS_H
