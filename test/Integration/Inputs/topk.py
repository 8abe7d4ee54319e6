"""topk on the CPU against an exact oracle: `topk.py CASE...`."""

import numpy as np
from harness import expect, expect_equal, main, run


def oracle(scores, visible, k):
    result = np.full((scores.shape[0], k), -1, "<i4")
    for t, row in enumerate(scores):
        seen = row[:min(max(int(visible[t]), 0), scores.shape[1])]
        # Least significant key first: position, then falling score, then NaN last.
        nan = np.isnan(seen)
        order = np.lexsort((np.arange(seen.size), -np.where(nan, 0, seen), nan))
        chosen = np.sort(order[:k])
        result[t, :chosen.size] = chosen
    return result


def choose(scores, visible, k, *options):
    text = f"""
func.func @topk(%scores: tensor<?x?xf32>, %visible: tensor<?xi32>) -> tensor<?x{k}xi32> {{
  %0 = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x{k}xi32>
  return %0 : tensor<?x{k}xi32>
}}
"""
    scores = np.ascontiguousarray(scores, "<f4")
    found, = run(text, dict(scores=scores, visible=np.array(visible, "<i4")), *options)
    expect_equal(found, oracle(scores, visible, k), f"top {k} of {scores.shape}")
    return found


def few_positive_among_zeros():
    # 100 that matter: a bin of 8,220 equal scores must not crowd them out.
    rng = np.random.default_rng(1)
    scores = np.zeros((6, 8320), "<f4")
    for t in range(5):
        where = [np.arange(100), np.arange(8220, 8320), *(rng.permutation(8320)[:100] for _ in "abc")]
        scores[t, where[t]] = rng.random(100) * 10.0**-t + 1e-30
    found = choose(scores, [8320] * 6, 2048)
    for t in range(5):
        expect(np.isin(np.flatnonzero(scores[t]), found[t]).all(), "a positive score is missing")
    expect_equal(found[5], np.arange(2048), "zeros alone")


def low_bits():
    # One bin for any shortcut that looks at the high bits.
    rng = np.random.default_rng(2)
    low = rng.integers(0, 1024, (4, 6000), dtype="<u4")
    low[1] = np.arange(6000) % 1024
    base = np.array([0x3F800000, 0x3F800000, 0xBF800000, 0x00000000], "<u4")
    scores = (low | base[:, None]).view("<f4")
    choose(scores, [6000, 6000, 5999, 6000], 2048)
    # All bits alike but one.
    scores = np.full((3, 5000), 0x41200000, "<u4")
    scores[0, 4999] += 1
    scores[1, 0] -= 1
    scores[2, 2048:2050] += 1
    choose(scores.view("<f4"), [5000] * 3, 2048)


def row_lengths():
    rng = np.random.default_rng(3)
    for k in (64, 2048):
        lengths = [-2**31, -1, 0, 1, k - 1, k, k + 1, 2047, 2049, 3000, 3001, 2**31 - 1]
        scores = rng.standard_normal((len(lengths), 3000))
        choose(scores, lengths, k)
        # What lies behind a row's length is larger than all before.
        scores += 100 * (np.arange(3000) >= np.array(lengths)[:, None])
        choose(scores, lengths, k)


def narrower_than_k():
    rng = np.random.default_rng(4)
    for width in (1, 2047, 2048):
        choose(rng.standard_normal((3, width)), [width, 99999, 0], 2048)
    choose(np.zeros((2, 0)), [5, 0], 2048)


def widths():
    rng = np.random.default_rng(5)
    for k in (1, 7, 64, 192, 256, 2051, 2176):
        choose(np.round(rng.standard_normal((3, 2500)) * 8), [2500, k, k + 1], k)


def signed_zeros():
    rng = np.random.default_rng(6)
    scores = np.where(rng.random((4, 500)) < 0.5, 0.0, -0.0)
    scores[1, ::7] = -1e-45
    scores[2, ::7] = 1e-45
    scores[3, :250] = -0.0
    scores[3, 250:] = 0.0
    found = choose(scores, [500] * 4, 64)
    expect_equal(found[[0, 3]], np.tile(np.arange(64), (2, 1)), "zeros of both signs")


def nan_and_infinity():
    rng = np.random.default_rng(7)
    scores = rng.standard_normal((8, 300)).astype("<f4")
    negative_nan = np.array(0xFFC00001, "<u4").view("<f4")
    scores[0, ::2] = np.nan
    scores[1, 5:] = np.nan
    scores[2] = np.nan
    scores[3, ::3] = negative_nan
    scores[4, ::2] = np.inf
    scores[5, ::2] = -np.inf
    scores[5, 1::4] = np.nan
    scores[6] = -np.inf
    scores[6, 100:120] = np.nan
    scores[7, :290] = np.nan
    scores[7, 290:] = -np.inf
    scores[7, 3] = negative_nan
    for k in (1, 64, 299):
        choose(scores, [300] * 8, k)


def many_rows():
    rng = np.random.default_rng(8)
    choose(np.round(rng.standard_normal((66001, 5)) * 2), rng.integers(-1, 7, 66001), 3)
    choose(np.zeros((0, 5)), [], 3)


def repeated():
    rng = np.random.default_rng(9)
    choose(np.round(rng.standard_normal((3, 9000)) * 50), [9000, 8999, 5000], 2048, "--repeat=20")


if __name__ == "__main__":
    main(globals())
