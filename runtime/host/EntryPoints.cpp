//===- EntryPoints.cpp - What generated code calls ------------------------===//

#include "Communicator.h"

int64_t shardq_rt_rank(shardq_context *context) {
  return context ? context->comm.rank : -1;
}

void *shardq_rt_workspace(shardq_context *context, int32_t channel,
                          int64_t rows, int64_t row_bytes) {
  return context ? context->workspace(channel, rows, row_bytes) : nullptr;
}

void *shardq_rt_peer(shardq_context *context, void *local, int64_t peer) {
  return context ? context->peer(local, peer) : local;
}

void shardq_rt_signal(shardq_context *context, int32_t channel,
                      int32_t operation, int64_t group_first,
                      int64_t group_stride, int64_t group_size,
                      const int64_t *rows) {
  if (context)
    context->signal(channel, operation, {group_first, group_stride, group_size},
                    rows);
}

void shardq_rt_wait(shardq_context *context, int32_t channel, int32_t operation,
                    int64_t group_first, int64_t group_stride,
                    int64_t group_size, const int64_t *rows) {
  if (context)
    context->wait(channel, operation, {group_first, group_stride, group_size},
                  rows);
}

void shardq_rt_expect(shardq_context *context, const char *what, int64_t found,
                      int64_t expected) {
  if (context)
    context->expect(what, found, expected);
}

void shardq_rt_beyond_table(shardq_context *context, int64_t block,
                            int64_t request, int64_t requests, int64_t width) {
  if (context)
    context->beyondTable(block, request, requests, width);
}

void shardq_rt_no_place(shardq_context *context, int64_t block, int64_t request,
                        int64_t entry) {
  if (context)
    context->noPlace(block, request, entry);
}

void shardq_rt_beyond_cache(shardq_context *context, int64_t slot, int64_t row,
                            int64_t rows) {
  if (context)
    context->beyondCache(slot, row, rows);
}

void shardq_rt_check_starts(shardq_context *context, const int32_t *starts,
                            int64_t entries, int64_t decodes, int64_t rows) {
  if (context && (starts || entries <= 0))
    context->checkStarts(starts, entries, decodes, rows);
}

void shardq_rt_tap(shardq_context *context, const char *name,
                   int32_t element_bytes, int32_t rank_of_shape,
                   const void *data, const int64_t *sizes,
                   const int64_t *strides, const int32_t *rows,
                   int64_t num_rows) {
  if (!context || !context->tap)
    return;
  shardq_tap_value value{name,  element_bytes, rank_of_shape, data,
                         sizes, strides,       rows,          num_rows};
  context->tapValue(value);
}

void shardq_rt_tap_counted(shardq_context *context, const char *name,
                           int32_t element_bytes, int32_t rank_of_shape,
                           const void *data, const int64_t *sizes,
                           const int64_t *strides, const int32_t *rows,
                           const int64_t *num_rows) {
  if (!context || !context->tap)
    return;
  int64_t count = context->readCount(num_rows);
  if (count < 0)
    return;
  shardq_tap_value value{name,  element_bytes, rank_of_shape, data,
                         sizes, strides,       rows,          count};
  context->tapValue(value);
}

void shardq_rt_begin(shardq_context *context, void *stream) {
  if (context)
    context->begin(stream);
}

int32_t shardq_rt_end(shardq_context *context) {
  return context ? context->end() : SHARDQ_INVALID;
}

int32_t shardq_rt_is_carried(shardq_context *context, int32_t channel) {
  return context && context->isCarried(channel);
}

void shardq_rt_transfer(shardq_context *context, int32_t channel,
                        int32_t operation, int64_t group_first,
                        int64_t group_stride, int64_t group_size,
                        const void *outbox, void *landing, int64_t rows,
                        int64_t row_bytes) {
  if (context)
    context->transfer(channel, operation,
                      {group_first, group_stride, group_size}, outbox, landing,
                      rows, row_bytes);
}

void *shardq_rt_device(shardq_context *context) {
  return context ? context->device() : nullptr;
}

void *shardq_rt_alloc(shardq_context *context, int64_t bytes) {
  return context ? context->allocate(bytes) : nullptr;
}

void shardq_rt_free(shardq_context *context, void *memory) {
  if (context)
    context->release(memory);
}

void shardq_rt_begin_aside(shardq_context *context, int32_t channel) {
  if (context)
    context->beginAside(channel);
}

void shardq_rt_end_aside(shardq_context *context) {
  if (context)
    context->endAside();
}

void shardq_rt_join_aside(shardq_context *context) {
  if (context)
    context->joinAside();
}

void shardq_rt_launch(shardq_context *context, const shardq_gpu_image *image,
                      int32_t kernel, int64_t blocks, void *const *params) {
  if (context)
    context->launch(image, kernel, blocks, params);
}
