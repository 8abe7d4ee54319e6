"""Ops of steps in chunks against integers of Python: `chunks.py CASE...`.

What differs between ranks is split over dimension 0: block r is rank r's.
"""

import random
import sys

import numpy as np
from harness import NUMPY, expect, expect_equal, main, round_to, run, tensor

BY_RANK = '{shardq.split = #shardq.split<@ranks, 0 over "pcp">}'


class Batch:
    """A step: decode requests of a few tokens, then prefill requests."""

    def __init__(self, ranks, decodes, prefills, contexts=None, padding=0):
        self.ranks, self.lens = ranks, list(decodes) + list(prefills)
        self.decodes = sum(decodes)
        self.isDecode = [True] * len(decodes) + [False] * len(prefills)
        self.starts = np.cumsum([0] + self.lens).astype("<i4")
        contexts = [0] * len(self.lens) if contexts is None else contexts
        self.seqs = (np.array(self.lens, int) + contexts).astype("<i4")
        self.contexts = contexts
        self.tokens = sum(self.lens)
        self.rows = self.tokens + padding

    def chunk(self, i):
        return 0 if self.isDecode[i] else -(-self.lens[i] // (2 * self.ranks))

    def positions(self, rank, i):
        """The positions of a request's tokens on a rank: head, then tail."""
        if self.isDecode[i]:
            return list(range(self.lens[i])), []
        c = self.chunk(i)
        tail = 2 * self.ranks - 1 - rank
        return [rank * c + j for j in range(c)], [tail * c + j for j in range(c)]

    def local(self, rank, by_part=False):
        """(request, position) of each row of a rank."""
        heads = [[(i, p) for p in self.positions(rank, i)[0]] for i in range(len(self.lens))]
        tails = [[(i, p) for p in self.positions(rank, i)[1]] for i in range(len(self.lens))]
        if by_part:
            return sum(heads, []) + sum(tails, [])
        return sum((h + t for h, t in zip(heads, tails)), [])

    def row(self, request, position):
        return int(self.starts[request]) + position if position < self.lens[request] else -1

    def mine(self, rank, by_part=False):
        return [self.row(*at) for at in self.local(rank, by_part)]

    def gathered(self, by_part=False):
        return sum((self.local(rank, by_part) for rank in range(self.ranks)), [])

    def restore(self, by_part=False):
        rows = [self.row(*at) for at in self.gathered(by_part)]
        # The first copy of a decode row is rank 0's.
        return [rows.index(r) if r < self.tokens else -1 for r in range(self.rows)]

    def padded(self, own=False):
        """(request, position, rank) of each row of the padded buffer; rank of decodes alone. With `own` the decodes
        of each rank stand together."""
        if own:
            rows = self.padded()
            decodes = [row for row in rows if row[2] is not None]
            return sorted(decodes, key=lambda row: row[2]) + rows[len(decodes):]
        rows = []
        for i, n in enumerate(self.lens):
            if self.isDecode[i]:
                rows += [(i, t, rank) for rank in range(self.ranks) for t in range(n)]
            else:
                rows += [(i, p, None) for p in range(2 * self.ranks * self.chunk(i))]
        return rows


def random_batch(rng, ranks):
    decodes = [rng.randint(1, 3) for _ in range(rng.randint(0, 3))]
    prefills = [rng.choice([0, 4, 5, 8, 17, rng.randint(4, 70)]) for _ in range(rng.randint(0, 3))]
    # What speculative decoding would take for a decode is none behind a longer request.
    if prefills and prefills[0] < 4:
        prefills[0] = 4
    contexts = [rng.randint(0, 90) for _ in decodes + prefills]
    return Batch(ranks, decodes, prefills, contexts, rng.choice([0, 0, 3]))


def split(batch, by_part=False, static=False):
    rows = batch.rows
    n = len(batch.local(0))
    mine, restore = (f"tensor<{n}xi32>", f"tensor<{rows}xi32>") if static else ("tensor<?xi32>",) * 2
    found = run(f"""
shardq.mesh @ranks ["pcp" = {batch.ranks}]
func.func @split(%start: tensor<?xi32>, %x: tensor<?x3xf32>)
    -> ({mine} {BY_RANK}, {restore} {BY_RANK}, tensor<1x3xindex> {BY_RANK}) {{
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x3xf32>
  %d = shardq.count_decode_rows %start {{speculative_tokens = 2 : i64}} : tensor<?xi32>
  %mine, %restore = shardq.chunk_split %start decodes(%d) rows(%rows) over @ranks "pcp" {"{by_part}" if by_part else ""}
      : (tensor<?xi32>, index, index) -> ({mine}, {restore})
  %all = shardq.count_chunk_rows all %start decodes(%d) rows(%rows) over @ranks "pcp" : tensor<?xi32>
  %head = shardq.count_chunk_rows head %start decodes(%d) rows(%rows) over @ranks "pcp" : tensor<?xi32>
  %tail = shardq.count_chunk_rows tail %start decodes(%d) rows(%rows) over @ranks "pcp" : tensor<?xi32>
  %counts = tensor.from_elements %all, %head, %tail : tensor<1x3xindex>
  return %mine, %restore, %counts : {mine}, {restore}, tensor<1x3xindex>
}}
""", dict(start=batch.starts, x=np.zeros((rows, 3), "<f4")))
    per_rank = [f.reshape(batch.ranks, -1) for f in found]
    what = f"{batch.ranks} ranks, {batch.lens}, {batch.decodes} decode rows"
    tails = sum(batch.chunk(i) for i in range(len(batch.lens)))
    for rank in range(batch.ranks):
        expect_equal(per_rank[0][rank], np.array(batch.mine(rank, by_part), int), f"mine of {what}")
        expect_equal(per_rank[1][rank], np.array(batch.restore(by_part), int), f"restore of {what}")
        expect_equal(per_rank[2][rank], [n, n - tails, tails], f"counts of {what}")
    return per_rank


def split_golden():
    per_rank = split(Batch(2, [1], [5, 8]))
    expect_equal(per_rank[0][0], [0, 1, 2, -1, -1, 6, 7, 12, 13], "rows of rank 0")
    expect_equal(per_rank[0][1], [0, 3, 4, 5, -1, 8, 9, 10, 11], "rows of rank 1")
    # What is restored of the golden order 0,9,1,2,10,11,12,13,3,4,5,6,14,15,16,17,7,8.
    expect_equal(per_rank[1][0], [0, 1, 2, 10, 11, 12, 5, 6, 14, 15, 16, 17, 7, 8], "restore")
    per_rank = split(Batch(4, [], [10]))
    expect_equal(per_rank[0], [[0, 1, -1, -1], [2, 3, -1, -1], [4, 5, -1, -1], [6, 7, 8, 9]], "rows")
    per_rank = split(Batch(2, [], [5, 8]), by_part=True)
    # Local rows 0,1,4,5 are heads and 2,3,6,7 tails.
    expect_equal(per_rank[0][0], [0, 1, 5, 6, -1, -1, 11, 12], "rows by part")


def seeded():
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", file=sys.stderr)
    return random.Random(seed)


def split_ranks():
    rng = seeded()
    for ranks in (1, 2, 3, 4, 8):
        for _ in range(3):
            batch = random_batch(rng, ranks)
            split(batch, by_part=rng.random() < 0.5, static=rng.random() < 0.3)
    split(Batch(3, [], []))
    split(Batch(2, [1, 1], []))


def lengths(batch, part):
    found = run(f"""
shardq.mesh @ranks ["pcp" = {batch.ranks}]
func.func @lengths(%start: tensor<?xi32>, %seqs: tensor<?xi32>, %x: tensor<?x3xf32>)
    -> (tensor<?xi32> {BY_RANK}, tensor<?xi32> {BY_RANK}, tensor<?xi32> {BY_RANK}, tensor<?xi32> {BY_RANK},
        tensor<?xi32> {BY_RANK}) {{
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x3xf32>
  %d = shardq.count_decode_rows %start {{speculative_tokens = 2 : i64}} : tensor<?xi32>
  %starts, %lengths, %own = shardq.chunk_lengths {part} %start, %seqs decodes(%d) rows(%rows) over @ranks "pcp"
      : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
  %n = tensor.dim %own, %c0 : tensor<?xi32>
  %r, %v = shardq.expand_rows %starts, %lengths to %n : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %req = shardq.take_rows %r[%own] {{missing = -1 : i32}} : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  %visible = shardq.take_rows %v[%own] : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  return %starts, %lengths, %own, %req, %visible
      : tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
}}
""", dict(start=batch.starts, seqs=batch.seqs, x=np.zeros((batch.rows, 3), "<f4")))
    per_rank = [f.reshape(batch.ranks, -1) for f in found]
    for rank in range(batch.ranks):
        at = 0 if part == "head" else 1
        rows = [[(i, p) for p in batch.positions(rank, i)[at]] for i in range(len(batch.lens))]
        flat = sum(rows, [])
        what = f"{part} on rank {rank} of {batch.ranks}, {batch.lens}"
        expect_equal(per_rank[0][rank], np.cumsum([0] + [len(r) for r in rows]), f"starts of {what}")
        sees = [max(batch.contexts[i] + r[-1][1] + 1, 0) if r else 0 for i, r in enumerate(rows)]
        expect_equal(per_rank[1][rank], np.array(sees, int), f"lengths of {what}")
        isToken = [p < batch.lens[i] for i, p in flat]
        expect_equal(per_rank[2][rank], np.array([j if t else -1 for j, t in enumerate(isToken)], int),
                     f"own rows of {what}")
        expect_equal(per_rank[3][rank], np.array([i if t else -1 for (i, _), t in zip(flat, isToken)], int),
                     f"requests of {what}")
        expect_equal(per_rank[4][rank],
                     np.array([batch.contexts[i] + p + 1 if t else 0 for (i, p), t in zip(flat, isToken)], int),
                     f"visible lengths of {what}")
    return per_rank


def lengths_golden():
    # (C, S, P, p) and what head and tail see.
    for context, tokens, ranks, rank, head, tail in ((8, 8, 2, 0, 10, 16), (0, 10, 4, 1, 4, 14), (100, 10, 2, 0, 103, 112),
                                                     (16384, 8192, 2, 0, 18432, 24576), (24576, 8192, 2, 1, 28672, 30720)):
        batch = Batch(ranks, [], [tokens], [context])
        for part, expected in (("head", head), ("tail", tail)):
            expect_equal(lengths(batch, part)[1][rank], [expected], f"{part} of {context}, {tokens}")


def lengths_ranks():
    rng = seeded()
    for ranks in (1, 2, 3, 4, 8):
        batch = random_batch(rng, ranks)
        for part in ("head", "tail"):
            lengths(batch, part)


def slots(batch, slot="i64", by_part=False, at=None, own=False):
    dtype = NUMPY[slot]
    at = np.arange(batch.rows)[::-1] * 3 + 100 if at is None else np.array(at)
    t = f"tensor<?x{slot}>"
    flags = ["by_part"] * by_part + ["own_decodes"] * own
    attr = "{" + ", ".join(flags) + "}" if flags else ""
    found = run(f"""
shardq.mesh @ranks ["pcp" = {batch.ranks}]
func.func @slots(%start: tensor<?xi32>, %at: {t})
    -> (tensor<?xi32> {BY_RANK}, {t} {BY_RANK}) {{
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %at, %c0 : {t}
  %d = shardq.count_decode_rows %start {{speculative_tokens = 2 : i64}} : tensor<?xi32>
  %n = shardq.count_chunk_rows all %start decodes(%d) rows(%rows) over @ranks "pcp" : tensor<?xi32>
  %order, %padded = shardq.chunk_slots %at by(%start) decodes(%d) local(%n) over @ranks "pcp" {attr}
      : ({t}, tensor<?xi32>, index, index) -> (tensor<?xi32>, {t})
  return %order, %padded : tensor<?xi32>, {t}
}}
""", dict(start=batch.starts, at=at.astype(dtype)))
    per_rank = [f.reshape(batch.ranks, -1) for f in found]
    gathered = batch.gathered(by_part)
    n = len(batch.local(0))
    order, expected = [], []
    for i, p, rank in batch.padded(own):
        first = (rank or 0) * n
        order.append(first + gathered[first:].index((i, p)) if rank is not None else gathered.index((i, p)))
        isReal = p < batch.lens[i] and not rank
        expected.append(int(at[batch.starts[i] + p]) if isReal else -1)
    for rank in range(batch.ranks):
        what = f"{batch.ranks} ranks, {batch.lens}"
        expect_equal(per_rank[0][rank], np.array(order, int), f"order of {what}")
        expect_equal(per_rank[1][rank], np.array(expected, int), f"slots of {what}")
    return per_rank


def slots_golden():
    # Of tokens 10,30 and 50 the real slots come first.
    expect_equal(slots(Batch(2, [2, 1], []), at=[10, 30, 50])[1][0], [10, 30, -1, -1, 50, -1], "slots")
    expect_equal(slots(Batch(3, [3, 1], []), at=[7, 8, 9, 42])[1][0], [7, 8, 9] + [-1] * 6 + [42, -1, -1], "slots")
    per_rank = slots(Batch(2, [1], [5, 8]), at=range(50, 64))
    expect_equal(per_rank[0][0], [0, 9, 1, 2, 10, 11, 12, 13, 3, 4, 5, 6, 14, 15, 16, 17, 7, 8], "order")
    expect_equal(per_rank[1][0] >= 0, np.array([1, 0, 1, 1, 1, 1, 1, 0, 0, 0] + [1] * 8) > 0, "unpadded rows")


def slots_own():
    # The writer of decodes runs before the gather: its own rows come first.
    expect_equal(slots(Batch(2, [2, 1], []), at=[10, 30, 50], own=True)[1][0], [10, 30, 50, -1, -1, -1], "slots")
    expect_equal(slots(Batch(3, [3, 1], []), at=[7, 8, 9, 42], own=True)[1][0], [7, 8, 9, 42] + [-1] * 8, "slots")
    # Prefill requests stand behind all copies, as without it.
    per_rank = slots(Batch(2, [2, 1], [5]), at=[10, 30, 50, 1, 2, 3, 4, 5], own=True, by_part=True)
    expect_equal(per_rank[1][0], [10, 30, 50, -1, -1, -1, 1, 2, 3, 4, 5, -1, -1, -1], "slots")
    expect_equal(per_rank[0][0][:6], [0, 1, 2, 7, 8, 9], "order")
    rng = seeded()
    for ranks in (1, 2, 3, 4, 8):
        for by_part in (False, True):
            slots(random_batch(rng, ranks), rng.choice(["i32", "i64"]), by_part, own=True)


def slots_ranks():
    rng = seeded()
    for ranks in (1, 2, 3, 4, 8):
        for _ in range(2):
            slots(random_batch(rng, ranks), rng.choice(["i32", "i64"]), rng.random() < 0.5)


def slots_short():
    """Fewer rows than the step has are an error with both numbers, of each rank alike; more are padding."""
    batch = Batch(3, [2, 1], [5, 8])
    needed = len(batch.local(0))
    for own in ("", "{own_decodes}"):
        for local, size in ((needed - 1, needed), (needed, needed - 1), (0, needed), (-2, needed), (needed, needed),
                            (needed + 2, needed + 2)):
            found = min(local, size)
            text = f"""
shardq.mesh @ranks ["pcp" = 3]
func.func @slots(%start: tensor<?xi32>, %at: tensor<?xi64>)
    -> (tensor<{3 * size}xi32> {BY_RANK}, tensor<{3 * size}xi64> {BY_RANK}) {{
  %n = arith.constant {local} : index
  %d = shardq.count_decode_rows %start {{speculative_tokens = 2 : i64}} : tensor<?xi32>
  %order, %padded = shardq.chunk_slots %at by(%start) decodes(%d) local(%n) over @ranks "pcp" {own}
      : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<{3 * size}xi32>, tensor<{3 * size}xi64>)
  return %order, %padded : tensor<{3 * size}xi32>, tensor<{3 * size}xi64>
}}
"""
            inputs = dict(start=batch.starts, at=np.arange(batch.rows, dtype="<i8"))
            if found >= needed:
                _, padded = run(text, inputs)
                expect_equal(np.sort(padded[:3 * size][padded[:3 * size] >= 0]), np.arange(batch.tokens), "slots")
                continue
            said = run(text, inputs, status=1)
            part = f"{found} where {needed} is expected: rows of a rank in shardq.chunk_slots"
            expect(part in said, f"no '{part}' in {said}")


def back():
    """Rows taken, gathered and restored are the rows; written by the padded slots they are in their slots."""
    rng = seeded()
    for ranks in (1, 2, 3, 4, 8):
        for shape, element in (((5,), "bf16"), ((2, 3), "f32"), ((7,), "i8")):
            batch = random_batch(rng, ranks)
            generator = np.random.default_rng(rng.randrange(2**32))
            values = (batch.rows, *shape)
            x = generator.integers(-128, 128, values).astype("i1") if element == "i8" else \
                round_to(element, generator.standard_normal(values))
            cache = np.zeros((batch.rows + 11, *shape), x.dtype) + x.dtype.type(3)
            at = generator.permutation(len(cache))[:batch.rows].astype("<i8")
            at[generator.random(batch.rows) < 0.2] = -1
            by_part = rng.random() < 0.5
            attr = "{by_part}" if by_part else ""
            of_slots = rng.choice(["", "own_decodes"])
            of_slots = "{" + ", ".join(filter(None, ["by_part" * by_part, of_slots])) + "}"
            t, i = tensor(element, "?", *shape), "tensor<?xi32>"
            restored, written = run(f"""
shardq.mesh @ranks ["pcp" = {ranks}]
func.func @back(%start: {i}, %x: {t}, %at: tensor<?xi64>, %cache: {t}) -> ({t} {BY_RANK}, {t} {BY_RANK}) {{
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : {t}
  %d = shardq.count_decode_rows %start {{speculative_tokens = 2 : i64}} : {i}
  %mine, %restore = shardq.chunk_split %start decodes(%d) rows(%rows) over @ranks "pcp" {attr}
      : ({i}, index, index) -> ({i}, {i})
  %own = shardq.take_rows %x[%mine] : ({t}, {i}) -> {t}
  %all = shardq.gather_rows %own over @ranks "pcp" : ({t}) -> {t}
  %same = shardq.take_rows %all[%restore] : ({t}, {i}) -> {t}
  %n = tensor.dim %mine, %c0 : {i}
  %order, %padded = shardq.chunk_slots %at by(%start) decodes(%d) local(%n) over @ranks "pcp" {of_slots}
      : (tensor<?xi64>, {i}, index, index) -> ({i}, tensor<?xi64>)
  %ordered = shardq.take_rows %all[%order] : ({t}, {i}) -> {t}
  %written = shardq.write_rows %ordered at(%padded) into(%cache) : ({t}, tensor<?xi64>, {t}) -> {t}
  return %same, %written : {t}, {t}
}}
""", dict(start=batch.starts, x=x, at=at, cache=cache), f"--max-tokens={max(batch.rows, 1)}",
                                    f"--max-requests={max(len(batch.lens), 1)}")
            expected = x.copy()
            expected[batch.tokens:] = 0
            after = cache.copy()
            for row in range(batch.tokens):
                if at[row] >= 0:
                    after[at[row]] = x[row]
            for rank in range(ranks):
                rows = slice(rank * batch.rows, (rank + 1) * batch.rows)
                expect_equal(restored[rows], expected, f"rows on rank {rank} of {ranks}, {batch.lens}")
                of = slice(rank * len(cache), (rank + 1) * len(cache))
                expect_equal(written[of], after, f"cache on rank {rank} of {ranks}, {batch.lens}")


def write():
    """Padding, slots twice, no rows; the cache that was is still there where it is read."""
    for element, shape, slot in (("bf16", (4,), "i32"), ("f32", (3,), "i64"), ("f16", (2, 5), "i64"),
                                 ("f8E4M3FN", (656,), "i64"), ("i8", (7,), "i32")):
        generator = np.random.default_rng(len(element))
        for rows in (0, 1, 9):
            bits = {"bf16": "<u2", "f32": "<f4", "f16": "<f2"}.get(element, "|i1")
            make = lambda n: generator.integers(0, 100, (n, *shape)).astype(bits)
            x, cache = make(rows), make(12)
            at = generator.integers(-2, 12, rows)
            if rows == 9:
                at[:4] = [5, 5, -2**31, 11]
            t = tensor(element, "?", *shape)
            old, new = run(f"""
func.func @write(%x: {t}, %at: tensor<?x{slot}>, %cache: {t}) -> ({t}, {t}) {{
  %new = shardq.write_rows %x at(%at) into(%cache) : ({t}, tensor<?x{slot}>, {t}) -> {t}
  return %cache, %new : {t}, {t}
}}
""", dict(x=x, at=at.astype(NUMPY[slot]), cache=cache))
            after = cache.copy()
            for row in range(rows):
                if at[row] >= 0:
                    after[at[row]] = x[row]
            expect_equal(old, cache, f"old cache of {element}")
            expect_equal(new, after, f"new cache of {element}")


def write_beyond():
    """A slot behind the cache is an error of each rank that has one, with its numbers; all ranks say the same."""
    for ranks in (1, 2, 3, 4, 8):
        culprit = ranks // 2
        for slot, far in (("i32", 12), ("i32", 2**31 - 1), ("i64", 12), ("i64", 2**40)):
            at = np.full((ranks, 5), -1, np.int64)
            at[:, 1] = 11
            at[culprit, 3] = far
            by_rank = '{shardq.split = #shardq.split<@ranks, 0 over "tp">}'
            text = run(f"""
shardq.mesh @ranks ["tp" = {ranks}]
func.func @write(%x: tensor<?x4xf32>, %at_of: tensor<?x1x{slot}> {by_rank}, %cache: tensor<?x4xf32>) -> (tensor<?x4xf32> {by_rank}) {{
  %at = tensor.collapse_shape %at_of [[0, 1]] : tensor<?x1x{slot}> into tensor<?x{slot}>
  %new = shardq.write_rows %x at(%at) into(%cache) : (tensor<?x4xf32>, tensor<?x{slot}>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %all = shardq.gather_rows %new over @ranks "tp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %all : tensor<?x4xf32>
}}
""", dict(x=np.ones((5, 4), "<f4"), at_of=at.reshape(-1, 1).astype(NUMPY[slot]), cache=np.zeros((12, 4), "<f4")), status=1)
            what = f"invalid argument: rank {culprit}: row 3 of those to write has slot {far}, and the cache has 12 rows"
            expect(text.count(what) == ranks, f"not {ranks} times '{what}' in:\n{text}")


def missing():
    """take_rows with a number for rows that are not there."""
    rows = np.array([2, -1, 0, 3, 99], "<i4")
    for element, shape, literal, value in (("i32", (), "-1", -1), ("i64", (2,), "7", 7), ("f32", (3,), "0xFF800000", -np.inf),
                                           ("f32", (2, 2), "1.5", 1.5), ("i32", (5,), "-3", -3)):
        generator = np.random.default_rng(1)
        x = generator.integers(0, 100, (4, *shape)).astype(NUMPY[element])
        t = tensor(element, "?", *shape)
        (found,) = run(f"""
func.func @take(%x: {t}, %rows: tensor<?xi32>) -> {t} {{
  %y = shardq.take_rows %x[%rows] {{missing = {literal} : {element}}} : ({t}, tensor<?xi32>) -> {t}
  return %y : {t}
}}
""", dict(x=x, rows=rows))
        expected = np.full((5, *shape), value, x.dtype)
        for i, row in enumerate(rows):
            if 0 <= row < 4:
                expected[i] = x[row]
        expect_equal(found, expected, f"rows of {element}")


if __name__ == "__main__":
    main(globals())
