/*===- views.h - Block tables of a sharded KV cache, C ABI -----------------===
 *
 * N ranks share a KV cache; token t of a request is kept by rank (t / I) % N at
 * the local position l(t) = (t / (N*I)) * I + t % I, with I the interleave.
 * Block tables have a column for each kernel block of k tokens; a physical
 * block of B tokens is bpp = B / k of them.
 *
 * Functions are pure and allocate nothing. Their parameters:
 *
 * table: [requests, width] i32, rows table_stride entries apart: kernel blocks
 * of each request, those of this rank's own tokens.
 *
 * seq_lens: [requests] i32, context plus new tokens.
 *
 * ranks: N, 1 to SHARDQ_MAX_RANKS.
 *
 *===-----------------------------------------------------------------------===*/

#ifndef SHARDQ_VIEWS_H
#define SHARDQ_VIEWS_H

#include "shardq/runtime.h"
#include "shardq/split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tokens of the first `tokens` that `rank` keeps: base = n / I / N * I,
 * base + clamp(n - base*N - rank*I, 0, I). */
SHARDQ_API int64_t shardq_local_length(int64_t tokens, int64_t ranks,
                                       int64_t rank, int64_t interleave);

/* The view of a cache that every rank has whole (the indexer's keys), by the
 * table of one that is sharded with as many blocks: physical block b stands for
 * blocks b*N to b*N + N-1.
 *
 * view [requests, width * ranks]: column c is table[c / (N*bpp) * bpp + c %
 * bpp], of rank (c / bpp) % N. 0 for requests without tokens; -1 where the
 * table is negative or the block is none of i32.
 *
 * The table is that of a rank, not a view itself: the view is made once. */
SHARDQ_API void shardq_replicated_view(const int32_t *table, int64_t requests,
                                       int64_t width, int64_t table_stride,
                                       const int32_t *seq_lens, int64_t ranks,
                                       int64_t blocks_per_block, int32_t *view);

/* Slot of the token at `position` in a cache that is read through a row of such
 * a view, `view_width` columns of `block` tokens; -1 for a negative position,
 * one beyond the view, and a negative entry. */
SHARDQ_API int64_t shardq_view_slot(const int32_t *view, int64_t view_width,
                                    int64_t block, int64_t position);

/* Which blocks a gather of KV for whole requests moves: those in columns that
 * hold tokens on the rank with most of them, rank 0, so that all ranks move as
 * many. `null_block` stands for no block and is not moved, nor is a negative
 * one, nor one from `pool` on, the number of blocks that the cache has.
 *
 * valid [requests * width]: the blocks, ascending, each once, and -1 behind
 * them; their number is the result. inverse [requests, width]: where in it each
 * column's block stands; -1 for columns that are not gathered. */
SHARDQ_API int64_t shardq_gather_blocks(const int32_t *table, int64_t requests,
                                        int64_t width, int64_t table_stride,
                                        const int32_t *seq_lens, int64_t ranks,
                                        int64_t interleave, int64_t block,
                                        int32_t null_block, int64_t pool,
                                        int32_t *valid, int32_t *inverse);

/* The block table of gathered KV: `blocks` blocks of each rank, rank after
 * rank.
 *
 * gathered [requests, width * ranks]: column c holds tokens c*k to c*k + k-1 of
 * the request. `inverse` is that of shardq_gather_blocks, or NULL where all
 * requests * width entries of the table were gathered, in its order.
 *
 * SHARDQ_INVALID where the interleave is not a multiple of the kernel block, of
 * which then no column holds neighbours: such rows are found by
 * shardq_gathered_slot alone. Also for sizes that are not positive, and for
 * more blocks than i32 counts. */
SHARDQ_API shardq_status shardq_gathered_table(
    int64_t requests, int64_t width, const int32_t *inverse, int64_t blocks,
    int64_t ranks, int64_t interleave, int64_t kernel_block, int32_t *gathered);

/* Row of the token at `position` among gathered KV rows, for any interleave: in
 * blocks of `block` tokens, (owner*blocks + inverse[l / block]) * block + l %
 * block. `inverse` is the request's row, `width` long. -1 where it is not
 * gathered. */
SHARDQ_API int64_t shardq_gathered_slot(const int32_t *inverse, int64_t width,
                                        int64_t blocks, int64_t ranks,
                                        int64_t interleave, int64_t block,
                                        int64_t position);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SHARDQ_VIEWS_H */
