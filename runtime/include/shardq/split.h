/*===- split.h - Token splits and their gate, C ABI -------------------------===
 *
 * Host form of shardq.count_decode_rows, shardq.zigzag_split,
 * shardq.split_gate and shardq.shard_lengths; generated code calls these.
 * Formulas: docs/Dialect.md, ops of the same names. All functions are pure,
 * allocate nothing, and stay inside the given arrays for any values of
 * query_start and seq_lens.
 *
 * query_start: [requests + 1] i32, first row of each request, ascending from 0.
 * seq_lens:    [requests] i32, context plus new tokens.
 * decodes:     rows of the decode requests, which lead the step.
 * rows:        rows of the step, graph padding included.
 *
 *===-----------------------------------------------------------------------===*/

#ifndef SHARDQ_SPLIT_H
#define SHARDQ_SPLIT_H

#include <stdint.h>

#ifndef SHARDQ_API
#define SHARDQ_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of ranks that a split takes. */
#define SHARDQ_MAX_RANKS 256

/* Rows of the leading requests with at most 1 + speculative_tokens tokens. */
SHARDQ_API int64_t shardq_count_decode_rows(const int32_t *query_start,
                                            int64_t requests,
                                            int64_t speculative_tokens);

/* Writes token_ids [rows] (counted from row `decodes`, grouped by owner,
 * ascending in a group, -1 behind the last) and rank_offsets [ranks + 1].
 * Linear time. With ranks outside 1..SHARDQ_MAX_RANKS no rank owns a token
 * and only token_ids is written. */
SHARDQ_API void shardq_zigzag_split(const int32_t *query_start,
                                    int64_t requests, int64_t decodes,
                                    int64_t rows, int64_t ranks,
                                    int32_t *token_ids, int32_t *rank_offsets);

/* Why a step runs head-sharded: the number of the condition that fails first.
 */
typedef enum shardq_gate {
  SHARDQ_GATE_OPEN = 0,
  SHARDQ_GATE_FEW_TOKENS = 1,
  SHARDQ_GATE_SHORT_SEQUENCES = 2,
  SHARDQ_GATE_PADDING = 3,
  SHARDQ_GATE_EMPTY_RANK = 4,
  SHARDQ_GATE_CAPACITY = 5
} shardq_gate;

/* max_rank_rows and max_rows: rows that the planned buffers hold, of the
 * fullest rank and of the whole step; negative for no limit. */
SHARDQ_API shardq_gate shardq_split_gate(
    const int32_t *rank_offsets, int64_t ranks, const int32_t *query_start,
    const int32_t *seq_lens, int64_t requests, int64_t decodes, int64_t rows,
    int64_t min_tokens, int64_t topk, int64_t max_rank_rows, int64_t max_rows);

/* What belongs to the rows of one rank, rank * rows up to (rank + 1) * rows of
 * the step: host form of shardq.shard_lengths, for steps whose rows are padded
 * to a multiple of the ranks and divided among them in rank order.
 *
 * starts [requests + 1]: first row of each request among the rank's. lengths
 * [requests]: seq_lens without those of the request's tokens that stand behind
 * the rank's rows, not below 0; 0 where it has none of the rows. With no
 * requests (requests < 0: not even a first start) nothing else is written. */
SHARDQ_API void shardq_shard_lengths(const int32_t *query_start,
                                     const int32_t *seq_lens, int64_t requests,
                                     int64_t rows, int64_t rank,
                                     int32_t *starts, int32_t *lengths);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SHARDQ_SPLIT_H */
