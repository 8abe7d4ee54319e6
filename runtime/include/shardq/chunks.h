/*===- chunks.h - Prefill requests in chunks over ranks, C ABI -------------===
 *
 * Prefill context parallelism (pcp) over P ranks. A prefill request of S tokens
 * is padded to S', the next multiple of 2P, and cut into 2P chunks of c = S' /
 * 2P tokens. Rank p owns chunk p (its head), then chunk 2P-1-p (its tail): 2c
 * tokens. A decode request of n tokens is whole on every rank.
 *
 * Buffers of rows:
 *
 * step: what the engine scheduled: row query_start[i] + j is token j of request
 * i.
 *
 * local: a rank's own, request after request, head before tail. As many on
 * every rank.
 *
 * gathered: the local rows of all ranks, rank after rank.
 *
 * padded: request after request: S' rows of a prefill request; of a decode of n
 * tokens n*P rows, all copies of rank 0 first.
 *
 * Functions are pure and allocate nothing. Their parameters:
 *
 * query_start: [requests + 1] i32, first row of each request, ascending from 0.
 *
 * decodes: rows of the decode requests, which lead the step.
 *
 * ranks: P, 1 to SHARDQ_MAX_RANKS; for others there are no rows.
 *
 * rank: 0 to P-1.
 *
 *===-----------------------------------------------------------------------===*/

#ifndef SHARDQ_CHUNKS_H
#define SHARDQ_CHUNKS_H

#include "shardq/split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of the local buffer; the padded and the gathered one have `ranks` times
 * as many. */
SHARDQ_API int64_t shardq_chunk_count(const int32_t *query_start,
                                      int64_t requests, int64_t decodes,
                                      int64_t ranks);

/* rows [local]: the step row of each local row of `rank`, -1 for padding.
 * positions [local]: its token within the request, beyond the last for padding.
 * RoPE and visible lengths follow from it: a row with position j of a request
 * with C computed tokens sees C + j + 1 keys, one of padding none. */
SHARDQ_API void shardq_chunk_rows(const int32_t *query_start, int64_t requests,
                                  int64_t decodes, int64_t ranks, int64_t rank,
                                  int32_t *rows, int32_t *positions);

/* restore [padded]: the gathered row that each padded row is; every gathered
 * row occurs once. unpad [padded]: 1 where the padded row takes the next slot
 * of the step, for shardq_chunk_slots; 0 elsewhere. */
SHARDQ_API void shardq_chunk_restore(const int32_t *query_start,
                                     int64_t requests, int64_t decodes,
                                     int64_t ranks, int32_t *restore,
                                     uint8_t *unpad);

/* Of the local prefill rows, counted from the first of them: `head` and `tail`
 * [prefill / 2] are those of head and tail chunks, `full` [prefill] where each
 * of them stands in head followed by tail. Two attention calls, one over each,
 * and `full` of their results give the local order again. */
SHARDQ_API void shardq_chunk_parts(const int32_t *query_start, int64_t requests,
                                   int64_t decodes, int64_t ranks,
                                   int32_t *head, int32_t *tail, int32_t *full);

/* Keys that the last row of a chunk sees: `computed` tokens and those up to the
 * chunk's end. Row j of c sees key_length - c + j + 1. It may exceed the
 * request by padding, and is not clamped: that would shift the diagonal. */
SHARDQ_API int64_t shardq_chunk_key_length(int64_t computed, int64_t tokens,
                                           int64_t ranks, int64_t rank,
                                           int32_t is_tail);

/* padded_slots [padded]: where the KV writer puts each row of the padded
 * buffer, from `slots` of the step's rows; -1 for none. The n tokens of a
 * decode are the first n rows of its n*P, which are rank 0's. */
SHARDQ_API void shardq_chunk_slots(const int32_t *query_start, int64_t requests,
                                   int64_t decodes, int64_t ranks,
                                   const int64_t *slots, int64_t *padded_slots);

/* The decode part alone, in place, of a padded slot map whose every P-th entry
 * is a token's: out[s + j] = in[s + j*P] for the n tokens of each request,
 * whose n*P entries begin at s; -1 behind them. */
SHARDQ_API void shardq_chunk_decode_slots(const int32_t *query_start,
                                          int64_t requests, int64_t decodes,
                                          int64_t ranks, int64_t *slots);

/* The same for a writer that runs before the gather, where each rank writes its
 * own rows: the tokens of all decodes come first, and -1 behind them. */
SHARDQ_API void shardq_chunk_own_decode_slots(const int32_t *query_start,
                                              int64_t requests, int64_t decodes,
                                              int64_t ranks, int64_t *slots);

/* What programs call. Here starts need not ascend, and tokens behind row `rows`
 * of the step are none. `by_part`: decode requests, then all heads, then all
 * tails stand in the local buffer. */

typedef enum shardq_chunk_part {
  SHARDQ_CHUNK_ALL = 0,
  SHARDQ_CHUNK_HEAD = 1, /* and decode requests */
  SHARDQ_CHUNK_TAIL = 2
} shardq_chunk_part;

/* Local rows of a part. */
SHARDQ_API int64_t shardq_chunk_part_rows(const int32_t *query_start,
                                          int64_t requests, int64_t decodes,
                                          int64_t rows, int64_t ranks,
                                          int32_t part);

/* mine [local]: as `rows` of shardq_chunk_rows. restore [restore_size]: the
 * gathered row of each row of the step, of `local` rows of each rank; rank 0's
 * of a decode. Both -1 for none, also where a row is behind `local`. */
SHARDQ_API void shardq_chunk_split(const int32_t *query_start, int64_t requests,
                                   int64_t decodes, int64_t rows, int64_t ranks,
                                   int64_t rank, int32_t by_part, int64_t local,
                                   int32_t *mine, int64_t restore_size,
                                   int32_t *restore);

/* For a call over one part, head or tail. starts [requests + 1]: first row of
 * each request. lengths [requests]: its keys, as of shardq_chunk_key_length;
 * seq_lens of a decode. own [local]: the row's number, -1 for padding. */
SHARDQ_API void shardq_chunk_lengths(const int32_t *query_start,
                                     int64_t requests, int64_t decodes,
                                     int64_t rows, int64_t ranks, int64_t rank,
                                     int32_t part, const int32_t *seq_lens,
                                     int32_t *starts, int32_t *lengths,
                                     int64_t local, int32_t *own);

/* order [padded_size]: the gathered row, of `local` rows of each rank, that
 * each row of the padded buffer is. padded: its slot, as of shardq_chunk_slots.
 * -1 for none. Slots have 4 or 8 bytes; `rows` of them are there. */
SHARDQ_API void shardq_chunk_order(const int32_t *query_start, int64_t requests,
                                   int64_t decodes, int64_t rows, int64_t ranks,
                                   int32_t by_part, int64_t local,
                                   int32_t slot_bytes, const void *slots,
                                   int64_t padded_size, int32_t *order,
                                   void *padded);

/* The same with the rows of all decodes together in front: rank 0's, whose
 * slots are those of the step, then those of the other ranks. */
SHARDQ_API void shardq_chunk_own_order(
    const int32_t *query_start, int64_t requests, int64_t decodes, int64_t rows,
    int64_t ranks, int32_t by_part, int64_t local, int32_t slot_bytes,
    const void *slots, int64_t padded_size, int32_t *order, void *padded);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SHARDQ_CHUNKS_H */
