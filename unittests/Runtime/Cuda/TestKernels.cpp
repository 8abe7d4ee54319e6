//===- TestKernels.cpp - Kernels that exchange rows -----------------------===//
//
// What the compiler generates, by hand: compiled to PTX with the device library
// linked in, and for the host, where the fake driver runs them on threads.
//
//===----------------------------------------------------------------------===//

#include "TestKernels.h"

#include "TestData.h"
#include "device/Device.h"
#include "device/Intrinsics.h"

using namespace shardq;
using namespace shardq::device;
using namespace shardq::test;

/// These kernels do not start before the one in front of them has ended.
extern "C" __attribute__((visibility("hidden"))) void
shardq_device_await_front() {}

/// Row counts of the round, by member: what this rank pushes, and what it will
/// find.
SHARDQ_TEST_KERNEL void shardq_test_counts(const DeviceContext *context,
                                           const uint64_t *round,
                                           int64_t maxRows,
                                           protocol::Group group, int64_t *sent,
                                           int64_t *expected) {
  for (int64_t i = threadIndex(); i < group.size; i += blockThreads()) {
    int64_t peer = group.member(i);
    sent[i] = rowsBetween(*round, context->rank, peer, maxRows);
    expected[i] = rowsBetween(*round, peer, context->rank, maxRows);
  }
}

/// Pushes this rank's rows into its block of every inbox; a block for each
/// peer.
SHARDQ_TEST_KERNEL void shardq_test_push(const DeviceContext *context,
                                         int32_t channel, int32_t operation,
                                         const uint64_t *round, int64_t maxRows,
                                         protocol::Group group,
                                         const int64_t *sent) {
  if (!shardq_device_ok(context) ||
      !shardq_device_admit(context, channel, operation,
                           context->world * maxRows, kRowBytes))
    return;
  char *inbox = static_cast<char *>(shardq_device_inbox(context, channel, 0)) +
                context->rank * maxRows * kRowBytes;
  for (int64_t step = blockIndex(); step < group.size; step += blockCount()) {
    int64_t i = group.rotated(step, context->rank);
    int64_t peer = group.member(i);
    uint64_t *target =
        static_cast<uint64_t *>(shardq_device_peer(context, inbox, peer));
    for (int64_t word = threadIndex(); word < sent[i] * kRowWords;
         word += blockThreads())
      target[word] = wordBetween(*round, context->rank, peer, word);
  }
}

/// The same where NCCL carries the rows: those for each peer into its part of
/// the outbox, own ones into the inbox.
SHARDQ_TEST_KERNEL void shardq_test_pack(const DeviceContext *context,
                                         int32_t channel, int32_t operation,
                                         const uint64_t *round, int64_t maxRows,
                                         protocol::Group group,
                                         const int64_t *sent, char *outbox) {
  if (!shardq_device_ok(context) ||
      !shardq_device_admit(context, channel, operation,
                           context->world * maxRows, kRowBytes))
    return;
  char *inbox = static_cast<char *>(shardq_device_inbox(context, channel, 0));
  for (int64_t i = blockIndex(); i < group.size; i += blockCount()) {
    int64_t peer = group.member(i);
    char *place = peer == context->rank ? inbox + peer * maxRows * kRowBytes
                                        : outbox + i * maxRows * kRowBytes;
    uint64_t *target = reinterpret_cast<uint64_t *>(place);
    for (int64_t word = threadIndex(); word < sent[i] * kRowWords;
         word += blockThreads())
      target[word] = wordBetween(*round, context->rank, peer, word);
  }
}

SHARDQ_TEST_KERNEL void shardq_test_announce(const DeviceContext *context,
                                             int32_t channel, int32_t operation,
                                             int64_t first, int64_t stride,
                                             int64_t size, const int64_t *rows,
                                             const int64_t *wanted) {
  shardq_device_announce(context, channel, operation, first, stride, size, rows,
                         wanted);
}

/// What came from each peer, into its block of the inbox.
SHARDQ_TEST_KERNEL void shardq_test_unpack(const DeviceContext *context,
                                           int32_t channel, int64_t maxRows,
                                           protocol::Group group,
                                           const int64_t *expected,
                                           const char *landing) {
  if (!shardq_device_ok(context))
    return;
  char *inbox = static_cast<char *>(shardq_device_inbox(context, channel, 1));
  for (int64_t i = blockIndex(); i < group.size; i += blockCount()) {
    int64_t peer = group.member(i);
    if (peer == context->rank)
      continue;
    const uint64_t *source =
        reinterpret_cast<const uint64_t *>(landing + i * maxRows * kRowBytes);
    uint64_t *target =
        reinterpret_cast<uint64_t *>(inbox + peer * maxRows * kRowBytes);
    for (int64_t word = threadIndex(); word < expected[i] * kRowWords;
         word += blockThreads())
      target[word] = source[word];
  }
}

SHARDQ_TEST_KERNEL void shardq_test_signal(const DeviceContext *context,
                                           int32_t channel, int32_t operation,
                                           int64_t first, int64_t stride,
                                           int64_t size, const int64_t *rows) {
  shardq_device_signal(context, channel, operation, first, stride, size, rows);
}

SHARDQ_TEST_KERNEL void shardq_test_wait(const DeviceContext *context,
                                         int32_t channel, int32_t operation,
                                         int64_t first, int64_t stride,
                                         int64_t size, const int64_t *rows) {
  shardq_device_wait(context, channel, operation, first, stride, size, rows);
}

SHARDQ_TEST_KERNEL void
shardq_test_signal_wait(const DeviceContext *context, int32_t channel,
                        int32_t operation, int64_t first, int64_t stride,
                        int64_t size, const int64_t *rows,
                        const int64_t *expected) {
  shardq_device_exchange(context, channel, operation, first, stride, size, rows,
                         expected, /*ahead=*/0);
}

/// Counts words of the inbox that are not what the peers should have pushed; a
/// block for each peer.
SHARDQ_TEST_KERNEL void
shardq_test_verify(const DeviceContext *context, int32_t channel,
                   const uint64_t *round, int64_t maxRows,
                   protocol::Group group, const int64_t *expected,
                   uint64_t *wrong) {
  if (!shardq_device_ok(context))
    return;
  char *inbox = static_cast<char *>(shardq_device_inbox(context, channel, 1));
  for (int64_t i = blockIndex(); i < group.size; i += blockCount()) {
    int64_t peer = group.member(i);
    const uint64_t *block =
        reinterpret_cast<const uint64_t *>(inbox + peer * maxRows * kRowBytes);
    for (int64_t word = threadIndex(); word < expected[i] * kRowWords;
         word += blockThreads())
      if (block[word] != wordBetween(*round, peer, context->rank, word))
        __scoped_atomic_fetch_add(wrong, uint64_t(1), __ATOMIC_RELAXED,
                                  __MEMORY_SCOPE_SYSTEM);
  }
}

/// Begins the next round. One thread.
SHARDQ_TEST_KERNEL void shardq_test_next(uint64_t *round) { *round += 1; }

/// Counts bytes of the current inbox that are not poison. One block. A wait
/// that failed has not looked at every peer's flag, so nothing but time orders
/// what those peers had pushed before the poison.
__attribute__((no_sanitize("thread"))) SHARDQ_TEST_KERNEL void
shardq_test_clean(const DeviceContext *context, int32_t channel,
                  uint64_t *clean) {
  const char *inbox =
      static_cast<char *>(shardq_device_inbox(context, channel, 1));
  for (uint64_t i = threadIndex(); i < context->channels[channel].bytes;
       i += blockThreads())
    if (inbox[i] != static_cast<char>(0xff))
      __scoped_atomic_fetch_add(clean, uint64_t(1), __ATOMIC_RELAXED,
                                __MEMORY_SCOPE_SYSTEM);
}

/// Says that a token has no place. Any blocks.
SHARDQ_TEST_KERNEL void shardq_test_beyond(const DeviceContext *context,
                                           int64_t block, int64_t request,
                                           int64_t requests, int64_t width) {
  shardq_device_beyond_table(context, block, request, requests, width);
}

/// Says that a token's entry is no place. Any blocks.
SHARDQ_TEST_KERNEL void shardq_test_no_place(const DeviceContext *context,
                                             int64_t block, int64_t request,
                                             int64_t entry) {
  shardq_device_no_place(context, block, request, entry);
}

/// Says that the cache has no such slot. Any blocks.
SHARDQ_TEST_KERNEL void shardq_test_beyond_cache(const DeviceContext *context,
                                                 int64_t slot, int64_t row,
                                                 int64_t rows) {
  shardq_device_beyond_cache(context, slot, row, rows);
}

/// Says that decode rows end within a request. Any blocks.
SHARDQ_TEST_KERNEL void shardq_test_split_request(const DeviceContext *context,
                                                  int64_t decodes,
                                                  int64_t request,
                                                  int64_t end) {
  shardq_device_split_request(context, decodes, request, end);
}

/// Asks whether rows fit. Any blocks.
SHARDQ_TEST_KERNEL void shardq_test_admit(const DeviceContext *context,
                                          int32_t channel, int32_t operation,
                                          int64_t rows, int64_t rowBytes,
                                          uint64_t *admitted) {
  if (shardq_device_admit(context, channel, operation, rows, rowBytes))
    __scoped_atomic_fetch_add(admitted, uint64_t(1), __ATOMIC_RELAXED,
                              __MEMORY_SCOPE_SYSTEM);
}
