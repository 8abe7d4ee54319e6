//===- Device.h - The device library ----------------------------*- C++ -*-===//
//
// What generated kernels call, by name and in this form: `extern "C"`, generic
// pointers. "One block" means that all threads of one block of the grid call
// the function together, any number of them that is a multiple of a warp.
//
// The kernels of one exchange follow each other on one stream: push (as many
// blocks as there are), signal (one block), wait (one block), read.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_DEVICE_DEVICE_H
#define SHARDQ_RUNTIME_DEVICE_DEVICE_H

#include "DeviceContext.h"

extern "C" {

/// Defined by who generates kernels: returns when the kernel in front has ended
/// and its stores are visible, where this one may have started before that. All
/// threads.
void shardq_device_await_front();

/// Own inbox on `channel` of the next epoch, the one that the next signal
/// begins; where `signals_since` signals have been issued on the channel since
/// the program asked for it, of that many epochs earlier. Any threads.
void *shardq_device_inbox(const shardq::device::DeviceContext *context,
                          int32_t channel, int64_t signals_since);

/// Where `local`, an address in this rank's heap, is in the heap of `peer`. Any
/// threads.
void *shardq_device_peer(const shardq::device::DeviceContext *context,
                         void *local, int64_t peer);

/// 1 while no failure is known to this rank's kernels. Any threads.
int32_t shardq_device_ok(const shardq::device::DeviceContext *context);

/// 1 if `rows` of `row_bytes` each fit the channel; else 0, and
/// SHARDQ_CAPACITY is recorded. Any threads.
int32_t shardq_device_admit(const shardq::device::DeviceContext *context,
                            int32_t channel, int32_t operation, int64_t rows,
                            int64_t row_bytes);

/// Records SHARDQ_INVALID: a token that is to be written belongs to `block` of
/// `request`, in a block table of `requests` rows and `width` columns. Any
/// threads.
void shardq_device_beyond_table(const shardq::device::DeviceContext *context,
                                int64_t block, int64_t request,
                                int64_t requests, int64_t width);

/// Records SHARDQ_INVALID: a token that is to be written belongs to `block` of
/// `request`, and the block table's `entry` for it is negative, or more than
/// slots of their type hold. Any threads.
void shardq_device_no_place(const shardq::device::DeviceContext *context,
                            int64_t block, int64_t request, int64_t entry);

/// Records SHARDQ_INVALID: row `row` of those that are to be written has
/// `slot`, in a cache of `rows` rows. Any threads.
void shardq_device_beyond_cache(const shardq::device::DeviceContext *context,
                                int64_t slot, int64_t row, int64_t rows);

/// Records SHARDQ_INVALID: query start `index` of a step of `rows` rows is
/// `start`, and the one in front of it is `before`. Any threads.
void shardq_device_wrong_start(const shardq::device::DeviceContext *context,
                               int64_t index, int64_t start, int64_t before,
                               int64_t rows);

/// Records SHARDQ_INVALID: `decodes` rows of decode requests in a step of
/// `rows` rows. Any threads.
void shardq_device_wrong_decodes(const shardq::device::DeviceContext *context,
                                 int64_t decodes, int64_t rows);

/// Records SHARDQ_INVALID: `decodes` rows of decode requests end within
/// `request`, which ends at `end`. Any threads.
void shardq_device_split_request(const shardq::device::DeviceContext *context,
                                 int64_t decodes, int64_t request, int64_t end);

/// Records SHARDQ_INVALID: a size is `found` where `expected` is right. Any
/// threads.
void shardq_device_expect(const shardq::device::DeviceContext *context,
                          int64_t found, int64_t expected);

/// Begins the channel's next epoch and tells each member `group_first + i *
/// group_stride` that `rows[i]` rows were pushed to it. What earlier kernels of
/// the stream stored, and this block before the call, is visible to a member
/// whose wait saw the signal. One block.
void shardq_device_signal(const shardq::device::DeviceContext *context,
                          int32_t channel, int32_t operation,
                          int64_t group_first, int64_t group_stride,
                          int64_t group_size, const int64_t *rows);

/// The same where NCCL carries the rows: puts the lines where it takes them
/// from, and into each that `wanted[i]` rows are expected from the member. One
/// block.
void shardq_device_announce(const shardq::device::DeviceContext *context,
                            int32_t channel, int32_t operation,
                            int64_t group_first, int64_t group_stride,
                            int64_t group_size, const int64_t *rows,
                            const int64_t *wanted);

/// Waits until every member signalled the channel's current epoch, and checks
/// that it ran `operation` and pushed `rows[i]` rows. After it, this block and
/// later kernels of the stream may read the inbox. On any error, and at once
/// after an earlier one, the inbox is filled with 0xFF bytes. One block.
void shardq_device_wait(const shardq::device::DeviceContext *context,
                        int32_t channel, int32_t operation, int64_t group_first,
                        int64_t group_stride, int64_t group_size,
                        const int64_t *rows);

/// Signal and wait at once: `rows` are pushed, `expected` to be found. With
/// `ahead` the push, the kernel in front, may not have ended yet. One block.
void shardq_device_exchange(const shardq::device::DeviceContext *context,
                            int32_t channel, int32_t operation,
                            int64_t group_first, int64_t group_stride,
                            int64_t group_size, const int64_t *rows,
                            const int64_t *expected, int32_t ahead);

} // extern "C"

#endif // SHARDQ_RUNTIME_DEVICE_DEVICE_H
