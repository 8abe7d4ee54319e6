"""Ops of a sharded KV cache against integers of Python and numpy: `context.py CASE...`.

What differs between ranks is split over dimension 0: block r is rank r's.
"""

import subprocess

import numpy as np
from harness import DIGITS, NUMPY, expect, expect_equal, main, round_to, run, split, tensor, ulp, widen

BY_RANK = '{shardq.split = #shardq.split<@ranks, 0 over "tp">}'


def mesh(tp, dcp=None):
    return f'shardq.mesh @ranks ["tp" = {tp}, "dcp" = {dcp or tp} in "tp"]'


def owner(t, ranks, interleave):
    return t // interleave % ranks


def local(t, ranks, interleave):
    return t // (ranks * interleave) * interleave + t % interleave


# Lengths.


def lengths(ranks, interleave, values, tp=None):
    tp = tp or ranks
    (found,) = run(f"""
{mesh(tp, ranks)}
func.func @lengths(%n: tensor<?xi32>) -> (tensor<?xi32> {BY_RANK}) {{
  %l = shardq.local_lengths %n over @ranks "dcp" {{interleave = {interleave} : i64}}
      : (tensor<?xi32>) -> tensor<?xi32>
  return %l : tensor<?xi32>
}}
""", dict(n=np.array(values, "<i4")))
    return found.reshape(tp, len(values))


def lengths_golden():
    found = lengths(2, 4, [0, 3, 4, 5, 8, 9, 12])
    expect_equal(found, [[0, 3, 4, 4, 4, 5, 8], [0, 0, 0, 1, 4, 4, 4]], "lengths")
    expect_equal(lengths(8, 128, [1000])[:, 0], [128] * 7 + [104], "lengths")
    # Four new tokens behind a history of five: what each row sees.
    expect_equal(lengths(2, 1, [6, 7, 8, 9]), [[3, 4, 4, 5], [3, 3, 4, 4]], "visible lengths")


def lengths_counted():
    values = list(range(0, 70)) + [-1, -2**31, 2**31 - 1, 10**9 + 7]
    for ranks in range(1, 9):
        for interleave in (1, 2, 3, 4, 8, 64):
            found = lengths(ranks, interleave, values)
            for i, n in enumerate(values):
                if n < 0:
                    expect(not found[:, i].any(), "a negative length holds tokens")
                elif n < 1000:
                    owners = [owner(t, ranks, interleave) for t in range(n)]
                    expect_equal(found[:, i], [owners.count(r) for r in range(ranks)],
                                 f"{ranks} ranks, interleave {interleave}, length {n}")
                expect(found[:, i].sum(dtype=np.int64) == max(n, 0), "lengths do not add up")


def lengths_groups():
    # Two groups of four among eight ranks.
    found = lengths(4, 2, [0, 1, 9, 30], tp=8)
    expect_equal(found[:4], found[4:], "groups differ")
    expect_equal(found[:4], lengths(4, 2, [0, 1, 9, 30]), "lengths of a group")


def draft(values, step):
    (found,) = run("""
func.func @draft(%n: tensor<?xi32>, %step: index) -> tensor<?xi32> {
  %l = shardq.draft_lengths %n step(%step) : (tensor<?xi32>, index) -> tensor<?xi32>
  return %l : tensor<?xi32>
}
""", dict(n=np.array(values, "<i4"), step=np.array(step, "<i8")))
    return found


def draft_lengths():
    # Absent requests stay absent, and what i32 does not hold is the most of it.
    values = [0, 1, 7, -1, 2**31 - 1, 2**31 - 3, -2**31, 10**9]
    for step in (0, 1, 5, 10**9, 2**31 - 2, 2**31 - 1, 2**40, 2**63 - 1):
        expected = [min(n + step + 1, 2**31 - 1) if n > 0 else 0 for n in values]
        expect_equal(draft(values, step), expected, f"lengths of draft step {step}")
    expect_equal(draft([], 3), np.zeros(0), "lengths of no request")
    # The lengths that were given are still there, in a graph of two steps too.
    first, second, given = run("""
func.func @draft(%n: tensor<?xi32>) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = shardq.draft_lengths %n step(%c0) : (tensor<?xi32>, index) -> tensor<?xi32>
  %b = shardq.draft_lengths %n step(%c1) : (tensor<?xi32>, index) -> tensor<?xi32>
  return %a, %b, %n : tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
}
""", dict(n=np.array([4, 0, 9], "<i4")))
    for found, expected in ((first, [5, 0, 10]), (second, [6, 0, 11]), (given, [4, 0, 9])):
        expect_equal(found, expected, "lengths of two steps")


def draft_steps_wrong():
    """A step below 0 is told with its number, and counts as 0."""
    for ranks, step in zip((1, 2, 3, 4, 8), (-1, -2, -7, -2**31, -2**63)):
        split = '{shardq.split = #shardq.split<@ranks, 0 over "tp">}'
        found = run(f"""
shardq.mesh @ranks ["tp" = {ranks}]
func.func @draft(%n: tensor<?xi32>, %step: index) -> (tensor<?xi32> {split}) {{
  %l = shardq.draft_lengths %n step(%step) : (tensor<?xi32>, index) -> tensor<?xi32>
  return %l : tensor<?xi32>
}}
""", dict(n=np.array([3, 0], "<i4"), step=np.array(step, "<i8")), status=1)
        for rank in range(ranks):
            told = f"rank {rank}: sizes disagree, {step} where 0 is expected: 'step' of shardq.draft_lengths"
            expect(told in found, f"no '{told}' in:\n{found}")


# Indices.


def filter_indices(ranks, interleave, indices, table=None, req=None, block=None, stride=None,
                   in_place=False, slot="i32", count=True, tp=None):
    tp = tp or ranks
    indices = np.array(indices, "<i4")
    rows, width = indices.shape
    names, types, inputs = ["indices"], [tensor("i32", "?", width)], dict(indices=indices)
    operands, attrs = "%indices", [f"interleave = {interleave} : i64"]
    if table is not None:
        names += ["table", "req"]
        types += ["tensor<?x?xi32>", "tensor<?xi32>"]
        inputs.update(table=np.array(table, "<i4"), req=np.array(req, "<i4"))
        operands += " table(%table) rows(%req)"
        attrs.append(f"block_size = {block} : i64")
        if stride:
            attrs.append(f"block_stride_rows = {stride} : i64")
    if in_place:
        attrs.append("in_place")
    results = [tensor(slot, "?", width)] + (["tensor<?xi32>"] if count else [])
    values = "%slots, %count" if count else "%slots"
    found = run(f"""
{mesh(tp, ranks)}
func.func @filter({", ".join(f"%{n}: {t}" for n, t in zip(names, types))})
    -> ({", ".join(f"{r} {BY_RANK}" for r in results)}) {{
  {values} = shardq.filter_indices {operands} over @ranks "dcp" {{{", ".join(attrs)}}}
      : ({", ".join(types)}) -> ({", ".join(results)})
  return {values} : {", ".join(results)}
}}
""", inputs)
    slots = found[0].reshape(tp, rows, width)
    for rank in range(tp):
        expected = filter_oracle(ranks, rank % ranks, interleave, indices, table, req, block,
                                 stride or block, in_place, slot)
        what = f"{ranks} ranks, interleave {interleave}, width {width}, rank {rank}"
        expect_equal(slots[rank], expected, f"slots of {what}")
        if count:
            expect_equal(found[1].reshape(tp, rows)[rank], (expected != -1).sum(axis=1),
                         f"counts of {what}")
    return slots


def filter_oracle(ranks, rank, interleave, indices, table, req, block, stride, in_place, slot):
    """One entry after the other, in integers that do not overflow."""
    limit = 2**31 if slot == "i32" else 2**63
    slots = np.full(indices.shape, -1, np.int64)
    for i, row in enumerate(indices.tolist()):
        front = 0
        for j, t in enumerate(row):
            if t < 0 or owner(t, ranks, interleave) != rank:
                continue
            value = local(t, ranks, interleave)
            if table is not None:
                page = value // block
                if not (0 <= req[i] < len(table) and page < len(table[0])):
                    continue
                entry = int(table[req[i]][page])
                value = entry * stride + value % block if entry >= 0 else -1
            if 0 <= value < limit:
                slots[i, j if in_place else front] = value
                front += 1
    return slots


def filter_golden():
    row = [[8, 5, 130, 7, -1, 262]]
    for in_place, expected in ((False, [708, 129, 451, -1, -1, -1]),
                               (True, [708, -1, 129, -1, -1, 451])):
        slots = filter_indices(2, 1, row, [[11, 2, 7, 5]], [0], 64, in_place=in_place)
        expect_equal(slots[0, 0], expected, "golden slots")
    # Without a table.
    slots = filter_indices(2, 2, [[0, 2, 1, 3, 4, 6, -1, 5]])
    expect_equal(slots[:, 0], [[0, 1, 2, 3] + [-1] * 4, [0, 1, 2] + [-1] * 5], "local positions")
    slots = filter_indices(2, 4, [[9, 0, 5, 13, 2, -1]])
    expect_equal(slots[:, 0], [[5, 0, 2, -1, -1, -1], [1, 5, -1, -1, -1, -1]], "local positions")
    slots = filter_indices(2, 2, [range(12)], [[7, 3]], [0], 4, in_place=True)
    expect_equal(slots[:, 0], [[28, 29, -1, -1, 30, 31, -1, -1, 12, 13, -1, -1],
                               [-1, -1, 28, 29, -1, -1, 30, 31, -1, -1, 12, 13]], "golden slots")


def filter_ranks():
    rng = np.random.default_rng(1)
    for ranks in range(1, 9):
        for interleave in (1, 2, 4, 8, 64):
            for slot in ("i32", "i64"):
                width = int(rng.integers(1, 2177))
                # Longer than the table, which drops tokens.
                indices = rng.integers(-4, 700 * ranks, (5, width))
                table = rng.permutation(30).reshape(3, 10)
                table[1, 3] = -1
                slots = filter_indices(ranks, interleave, indices, table, [0, 2, 1, -1, 3], 64,
                                       in_place=bool(rng.integers(2)), slot=slot)
                remapped = filter_indices(ranks, interleave, indices, count=False, in_place=True)
                expect_equal((remapped != -1).sum(axis=0), indices >= 0,
                             "how many ranks own each position")


def filter_kernel_blocks():
    # A kernel's blocks are parts of the scheduler's, and may be parts of a run.
    rng = np.random.default_rng(20)
    for ranks in (1, 2, 3, 4, 8):
        for interleave, block in ((8, 4), (64, 16), (6, 3), (4, 1), (64, 64)):
            indices = rng.integers(-2, 24 * block * ranks, (4, 40))
            table = rng.permutation(60)[:48].reshape(2, 24) + 1
            slots = filter_indices(ranks, interleave, indices, table, [1, 0, 1, -1], block,
                                   stride=block + int(rng.integers(3)), in_place=True)
            # The kernel's view of a table is the scheduler's, cut up.
            whole = rng.permutation(12).reshape(2, 6)
            parts = max(interleave // block, 1)
            cut = (whole[:, :, None] * parts + np.arange(parts)).reshape(2, -1)
            expect_equal(filter_indices(ranks, interleave, indices, cut, [1, 0, 1, -1], block),
                         filter_indices(ranks, interleave, indices, whole, [1, 0, 1, -1], block * parts),
                         f"slots of {parts} kernel blocks each, {ranks} ranks")
            expect((slots >= -1).all(), "slots")


def filter_widths():
    rng = np.random.default_rng(2)
    for width in (1, 2, 3, 64, 192, 256, 1024, 2048, 2051, 2176):
        indices = rng.integers(-5, 70 * 64 * 3, (3, width))
        filter_indices(3, 4, indices, rng.permutation(128).reshape(2, 64), [1, 0, 1], 64, stride=100)


def filter_wide():
    # Slots above 2^31, and positions that a float32 would round.
    rng = np.random.default_rng(3)
    indices = np.array([np.arange(64) + 2**24 - 32, np.arange(64) + 2**31 - 64], np.int64)
    for slot in ("i32", "i64"):
        filter_indices(2, 1, indices, slot=slot)
        filter_indices(2, 8, rng.integers(0, 1024, (3, 40)), [[0, 1, 2**31 - 1, 1000, 5, 7, 8, 9]],
                       [0] * 3, 64, stride=2**30 + 7, slot=slot)


def filter_writer():
    # The slot that the filter reads is where the owner's writer put the token.
    rng = np.random.default_rng(4)
    for ranks, interleave, block in ((2, 1, 4), (3, 4, 8), (8, 2, 16), (4, 64, 64)):
        lens = rng.integers(1, 5 * block * ranks, 3)
        blocks = 6
        tables = [rng.permutation(3 * blocks).reshape(3, blocks) for _ in range(1)]
        cache = [dict() for _ in range(ranks)]
        for request, n in enumerate(lens):
            held = [0] * ranks
            for t in range(n):
                rank = owner(t, ranks, interleave)
                page, inside = divmod(held[rank], block)
                cache[rank][int(tables[0][request, page]) * block + inside] = (request, t)
                held[rank] += 1
        req = rng.integers(0, 3, 7)
        indices = np.array([rng.permutation(int(lens.max()))[:12] % lens[r] for r in req])
        slots = filter_indices(ranks, interleave, indices, tables[0], req, block, in_place=True)
        for i in range(7):
            for j, t in enumerate(indices[i]):
                rank = owner(int(t), ranks, interleave)
                expect(cache[rank][int(slots[rank, i, j])] == (req[i], t), "another token's slot")


def filter_groups():
    rng = np.random.default_rng(5)
    filter_indices(4, 2, rng.integers(-1, 300, (6, 9)), rng.permutation(40).reshape(2, 20),
                   [0, 1] * 3, 4, tp=8)


# Queries.


def gather_query(rng, tp, dcp, rows, heads, parts, element, held=None):
    q = [rng.integers(-128, 128, (tp * rows, heads, d)).astype("i1") if element == "i8" else
         round_to(element, rng.standard_normal((tp * rows, heads, d))) for d in parts]
    types = [tensor(element, "?", heads, d) for d in parts]
    all_heads = tensor(element, "?", heads * dcp, sum(parts))
    names = [f"%q{i}" for i in range(len(parts))]
    (found,) = run(f"""
{mesh(tp, dcp)}
func.func @gather({", ".join(f"{n}: {t} {BY_RANK}" for n, t in zip(names, types))})
    -> ({all_heads} {BY_RANK}) {{
  %q = shardq.gather_query({", ".join(names)}) over @ranks "dcp" : ({", ".join(types)}) -> {all_heads}
  return %q : {all_heads}
}}
""", {f"q{i}": part for i, part in enumerate(q)}, f"--max-tokens={held or max(rows, 1)}")
    joined = np.concatenate(q, axis=2).reshape(tp // dcp, dcp, rows, heads, sum(parts))
    for rank in range(tp):
        expected = np.concatenate(list(joined[rank // dcp]), axis=1)
        expect_equal(found[rank * rows:(rank + 1) * rows], expected, f"queries of rank {rank}")


def gather():
    rng = np.random.default_rng(6)
    for case in ((2, 2, 5, 3, (8, 5), "bf16"), (3, 3, 1, 2, (7,), "f16"), (4, 2, 17, 1, (16, 4), "f32"),
                 (8, 8, 128, 2, (33, 1), "bf16"), (8, 4, 6, 4, (8,), "bf16"), (8, 8, 0, 1, (4, 4), "bf16"),
                 (1, 1, 3, 2, (5, 3), "f32"), (4, 2, 9, 3, (16, 7), "i8")):
        gather_query(rng, *case)


# Merge.


def by(transport):
    """Runs shardq-select-transport first."""
    return (f"--pipeline=builtin.module(shardq-select-transport{{transport={transport} target=cpu remarks=false}})",)


def combine(partial, lse, ranks, element="f32", lse_element="f32", base="e", merged=True, tp=None,
            options=(), all_heads=False, max_tokens=None):
    """`partial` is [tp, T, H, d] and `lse` [tp, T, H], in float64; what the ranks return."""
    tp = tp or ranks
    _, rows, heads, dim = partial.shape
    own = heads if all_heads else heads // ranks
    partial, lse = round_to(element, partial), round_to(lse_element, lse)
    types = [tensor(element, "?", heads, dim), tensor(lse_element, "?", heads)]
    results = [tensor(element, "?", own, dim)] + [tensor(lse_element, "?", own)] * merged
    values = "%out, %merged" if merged else "%out"
    attr = f"{{lse = #shardq.lse<base = {base}>}}" if base != "e" else ""
    found = run(f"""
{mesh(tp, ranks)}
func.func @combine(%p: {types[0]} {BY_RANK}, %l: {types[1]} {BY_RANK})
    -> ({", ".join(f"{r} {BY_RANK}" for r in results)}) {{
  {values} = shardq.combine_lse %p lse(%l) over @ranks "dcp" {attr}
      : ({", ".join(types)}) -> ({", ".join(results)})
  return {values} : {", ".join(results)}
}}
""", dict(p=partial.reshape(-1, heads, dim), l=lse.reshape(-1, heads)),
                f"--max-tokens={max_tokens or max(rows, 1)}", *options)
    out = found[0].reshape(tp, rows, own, dim)
    exact, exact_lse, bound = merge_oracle(widen(partial), widen(lse), ranks, base, all_heads)
    got = widen(out)
    expect(np.isfinite(got).all(), "a result is not finite")
    off = np.abs(got - exact) - bound
    allowed = np.where((exact == 0) & (bound == 0), 0, 2 * ulp(element, exact))
    worst = np.unravel_index(np.argmax(off - allowed), off.shape) if off.size else None
    expect(worst is None or off[worst] <= allowed[worst],
           f"{element}, base {base}: at {worst} {got[worst] if worst else 0}, "
           f"expected {exact[worst] if worst else 0}")
    if merged:
        got = widen(found[1].reshape(tp, rows, own))
        empty = np.isneginf(exact_lse)
        expect((np.isneginf(got) == empty).all(), "an empty row's LSE")
        slack = 1e-5 if lse_element == "f32" else 2.0 ** -(DIGITS[lse_element] - 1)
        off = np.abs(got[~empty] - exact_lse[~empty])
        expect((off <= slack * np.maximum(1, np.abs(exact_lse[~empty]))).all(), "merged LSE")
    return out


def merge_oracle(partial, lse, ranks, base, all_heads=False):
    """[tp, T, H/N, d] or with all heads, its LSE and the bound of what f32 may cost."""
    tp, rows, heads, dim = partial.shape
    own = heads if all_heads else heads // ranks
    log = np.log(2.0) if base == "two" else 1.0
    out = np.zeros((tp, rows, own, dim))
    merged = np.full((tp, rows, own), -np.inf)
    bound = np.zeros(out.shape)
    for rank in range(tp):
        group = range(rank // ranks * ranks, rank // ranks * ranks + ranks)
        first = 0 if all_heads else rank % ranks * own
        l = lse[group, :, first:first + own]
        l = np.where(np.isnan(l) | np.isposinf(l), -np.inf, l)
        top = l.max(axis=0)
        with np.errstate(invalid="ignore"):
            w = np.where(np.isneginf(l), 0, np.exp((l - top) * log))
        total = w.sum(axis=0)
        some = total > 0
        safe = np.where(some, total, 1)
        p = partial[group, :, first:first + own]
        p = np.where(w[..., None] > 0, p, 0)
        out[rank] = (w[..., None] * p).sum(axis=0) / safe[..., None]
        bound[rank] = 8 * 2.0**-24 * (w[..., None] * np.abs(p)).sum(axis=0) / safe[..., None]
        merged[rank] = np.where(some, top + np.log(safe) / log, -np.inf)
    return out, merged, bound


def combine_golden(options=(), all_heads=False):
    nan, inf = np.nan, np.inf
    # Payload and LSE of two ranks; one row of each case, a head for each rank.
    cases = [((1, 5), (0, 0), 3), ((3, 7), (-inf, 0), 7), ((2, 9), (-inf, -inf), 0),
             ((4, 9), (inf, 0), 9), ((4, 8), (0, np.log(3)), 7), ((nan, 7), (-inf, 0), 7),
             ((nan, 6), (nan, 0), 6), ((inf, nan), (-inf, nan), 0)]
    partial = np.array([[[[c[0][r]]] * 2 for c in cases] for r in range(2)], float)
    lse = np.array([[[c[1][r]] * 2 for c in cases] for r in range(2)], float)
    for element in ("f32", "bf16", "f16"):
        out = combine(partial, lse, 2, element, options=options, all_heads=all_heads)
        for rank in range(2):
            found = widen(out[rank, :, 0, 0])
            expect(np.allclose(found, [c[2] for c in cases], rtol=2**-8, atol=0), f"golden {found}")
            for row in (2, 7):
                expect(not out[rank, row].view(np.uint8).any(), "an empty row is not 0")
    two = lse.copy()
    two[1, 4] = np.log2(3)
    combine(partial, two, 2, base="two", options=options, all_heads=all_heads)


def random_partials(rng, tp, rows, heads, dim):
    partial = rng.standard_normal((tp, rows, heads, dim))
    lse = rng.standard_normal((tp, rows, heads)) * 3 + 2
    lse[rng.random(lse.shape) < 0.2] = -np.inf
    lse[rng.random(lse.shape) < 0.05] = np.nan
    lse[rng.random(lse.shape) < 0.05] = np.inf
    if rows > 2:
        lse[:, 1] = -np.inf
    gone = ~np.isfinite(lse)
    partial[gone] = np.nan
    return partial, lse


def combine_ranks():
    rng = np.random.default_rng(7)
    for tp, dcp, rows, own, dim in ((1, 1, 3, 2, 5), (2, 2, 17, 1, 8), (3, 3, 4, 5, 7), (4, 2, 6, 2, 16),
                                    (8, 4, 5, 2, 9), (8, 8, 128, 1, 32), (2, 2, 0, 3, 4), (8, 8, 1, 2, 512)):
        for element in ("bf16", "f16", "f32"):
            for base in ("e", "two"):
                partial, lse = random_partials(rng, tp, rows, own * dcp, dim)
                combine(partial, lse, dcp, element, base=base, merged=base == "e", tp=tp)


def combine_lse_types():
    rng = np.random.default_rng(8)
    for lse_element in ("f16", "bf16", "f32"):
        partial, lse = random_partials(rng, 3, 9, 6, 12)
        combine(partial, lse, 3, "bf16", lse_element)


def combine_large():
    # The maximum goes before the base is converted: at 3e4 the other order loses all bits.
    rng = np.random.default_rng(9)
    for base in ("e", "two"):
        partial, lse = random_partials(rng, 4, 20, 8, 6)
        combine(partial, lse + 30000, 4, base=base)
        combine(partial, lse * 40, 4, base=base)


def combine_cancels():
    # Sources that cancel: units of the result alone are no bound.
    rng = np.random.default_rng(10)
    partial = rng.standard_normal((2, 40, 2, 8))
    partial[1] = -partial[0] * (1 + 2.0**-20)
    combine(partial, np.zeros((2, 40, 2)), 2, "f32")


# The merge as other ops.


FORMS = (("ag_rs", False), ("ag_ar", True), ("auto", True))


def forms_golden():
    for transport, all_heads in FORMS:
        combine_golden(by(transport), all_heads)


def forms_ranks():
    rng = np.random.default_rng(13)
    for tp, dcp, rows, own, dim in ((1, 1, 3, 2, 5), (2, 2, 17, 1, 8), (3, 3, 1, 5, 7), (8, 4, 5, 2, 9),
                                    (8, 8, 128, 1, 32), (4, 4, 0, 3, 4)):
        for transport, all_heads in FORMS:
            for i, element in enumerate(("bf16", "f16", "f32")):
                partial, lse = random_partials(rng, tp, rows, own * dcp, dim)
                combine(partial, lse, dcp, element, base=("e", "two")[i % 2], merged=i != 1, tp=tp,
                        options=by(transport), all_heads=all_heads)


def forms_types():
    rng = np.random.default_rng(14)
    for transport, all_heads in FORMS:
        for lse_element in ("f16", "bf16"):
            partial, lse = random_partials(rng, 3, 9, 6, 12)
            combine(partial, lse, 3, "bf16", lse_element, options=by(transport), all_heads=all_heads)
        # LSEs of any size.
        partial, lse = random_partials(rng, 4, 20, 8, 6)
        combine(partial, lse + 30000, 4, base="two", options=by(transport), all_heads=all_heads)
        combine(partial, lse * 40, 4, options=by(transport), all_heads=all_heads)


def forms_cancel():
    rng = np.random.default_rng(15)
    partial = rng.standard_normal((2, 40, 2, 8))
    partial[1] = -partial[0] * (1 + 2.0**-20)
    for transport, all_heads in FORMS:
        combine(partial, np.zeros((2, 40, 2)), 2, "f32", options=by(transport), all_heads=all_heads)


# Steps of more rows than inboxes hold.


def slices_merge():
    """A merge is the same bit for bit, whatever the inboxes hold."""
    rng = np.random.default_rng(16)
    for tp, dcp in ((1, 1), (2, 2), (3, 3), (4, 2), (8, 8)):
        for rows in (5, 17, 128):
            partial, lse = random_partials(rng, tp, rows, 2 * dcp, 6)
            for options, all_heads in (((), False), (by("ag_rs"), False), (by("ag_ar"), True)):
                outs = [combine(partial, lse, dcp, "bf16", tp=tp, options=options, all_heads=all_heads,
                                max_tokens=held) for held in (rows, 4)]
                expect_equal(outs[1], outs[0], f"{rows} rows of {tp} ranks in slices")


def slices_gather():
    rng = np.random.default_rng(17)
    for tp, dcp in ((1, 1), (2, 2), (3, 3), (8, 4)):
        for rows, held in ((7, 3), (8, 4), (1, 1), (9, 1)):
            gather_query(rng, tp, dcp, rows, 2, (8, 4), "bf16", held)


def slices_attention():
    """Gather, attention over own keys and merge in one loop."""
    rng = np.random.default_rng(18)
    for tp, dcp in ((2, 2), (3, 3), (4, 2), (8, 8)):
        rows, own, dim, keys, width = 11, 2, 16, 40, 9
        q = round_to("bf16", rng.standard_normal((tp * rows, own, dim)))
        kv = round_to("bf16", rng.standard_normal((tp * keys, dim)))
        slots = rng.integers(-1, keys, (tp * rows, width)).astype("<i4")
        count = rng.integers(0, width + 1, tp * rows).astype("<i4")
        q_type, q_all = tensor("bf16", "?", own, dim), tensor("bf16", "?", own * dcp, dim)
        lse, lse_all = tensor("f32", "?", own), tensor("f32", "?", own * dcp)
        text = f"""
{mesh(tp, dcp)}
func.func @attend(%q: {q_type} {BY_RANK}, %kv: tensor<?x{dim}xbf16> {BY_RANK},
                  %slots: tensor<?x{width}xi32> {BY_RANK}, %count: tensor<?xi32> {BY_RANK})
    -> ({q_type} {BY_RANK}, {lse} {BY_RANK}) {{
  %all = shardq.gather_query(%q) over @ranks "dcp" : ({q_type}) -> {q_all}
  %p, %l = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) topk_length(%count) {{scale = 0.3 : f32}}
      : ({q_all}, tensor<?x{dim}xbf16>, tensor<?x{width}xi32>, tensor<?xi32>) -> ({q_all}, {lse_all})
  %out, %merged = shardq.combine_lse %p lse(%l) over @ranks "dcp" : ({q_all}, {lse_all}) -> ({q_type}, {lse})
  return %out, %merged : {q_type}, {lse}
}}
"""
        inputs = dict(q=q, kv=kv, slots=slots, count=count)
        whole = run(text, inputs, f"--max-tokens={rows}")
        for held in (1, 4, 10):
            sliced = run(text, inputs, f"--max-tokens={held}", "--repeat=5")
            for i in range(2):
                expect_equal(sliced[i], whole[i], f"{rows} rows of {tp} ranks, {held} at a time")


def lse_strides():
    """An LSE is no bulk data: a view of every other column, and one that is transposed."""
    rng = np.random.default_rng(19)
    for tp, dcp in ((1, 1), (2, 2), (3, 3), (8, 4)):
        rows, own, dim = 9, 2, 8
        heads = own * dcp
        partial, lse = random_partials(rng, tp, rows, heads, dim)
        partial, lse = round_to("bf16", partial), round_to("f32", lse)
        part, out = tensor("bf16", "?", heads, dim), tensor("bf16", "?", own, dim)
        flat, merged = tensor("f32", "?", heads), tensor("f32", "?", own)
        wide, turned = tensor("f32", "?", 2 * heads), tensor("f32", heads, "?")
        view = f"memref<?x{heads}xf32, strided<[1, ?]>>"

        def merge(arguments, made):
            return f"""
{mesh(tp, dcp)}
func.func @merge(%p: {part} {BY_RANK}, {arguments}) -> ({out} {BY_RANK}, {merged} {BY_RANK}) {{
{made}
  %out, %merged = shardq.combine_lse %p lse(%l) over @ranks "dcp" : ({part}, {flat}) -> ({out}, {merged})
  return %out, %merged : {out}, {merged}
}}
"""
        p = partial.reshape(-1, heads, dim)
        plain = lse.reshape(-1, heads)
        columns = np.stack([plain, np.full_like(plain, 1e30)], axis=2).reshape(len(plain), 2 * heads)
        transposed = np.ascontiguousarray(np.concatenate([block.T for block in lse], axis=0))
        expected = run(merge(f"%l: {flat} {BY_RANK}", ""), dict(p=p, l=plain))
        strided = merge(f"%w: {wide} {BY_RANK}", f"""
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %w, %c0 : {wide}
  %l = tensor.extract_slice %w[0, 0] [%rows, {heads}] [1, 2] : {wide} to {flat}""")
        across = merge(f"%t: {turned} {BY_RANK}", f"""
  %m = bufferization.to_buffer %t : {turned} to memref<{heads}x?xf32>
  %v = memref.transpose %m (i, j) -> (j, i) : memref<{heads}x?xf32> to {view}
  %l = bufferization.to_tensor %v restrict : {view} to {flat}""")
        for text, inputs in ((strided, dict(p=p, w=columns)), (across, dict(p=p, t=transposed))):
            for options in ((), by("ag_rs")):
                found = run(text, inputs, *options)
                if not options:
                    for i in range(2):
                        expect_equal(found[i], expected[i], f"merge of views on {tp} ranks")
                else:
                    expect(np.allclose(widen(found[0]), widen(expected[0]), rtol=2**-6, atol=1e-6), "shares of views")


def sequence():
    """Gather, combine, gather, combine: single buffers, many runs."""
    rng = np.random.default_rng(11)
    for tp, dcp in ((2, 2), (3, 3), (8, 4)):
        rows, own, dim = 7, 2, 8
        q = round_to("f32", rng.standard_normal((tp * rows, own, dim)))
        lse = round_to("f32", rng.standard_normal((tp * rows, own * dcp)))
        part, whole, l = tensor("f32", "?", own, dim), tensor("f32", "?", own * dcp, dim), tensor("f32", "?", own * dcp)
        body, value = "", "%q"
        for layer in range(4):
            body += f"""
  %g{layer} = shardq.gather_query({value}) over @ranks "dcp" : ({part}) -> {whole}
  %c{layer} = shardq.combine_lse %g{layer} lse(%l) over @ranks "dcp" : ({whole}, {l}) -> {part}"""
            value = f"%c{layer}"
        # Every member gathers the same rows, so a weighted mean of them is themselves.
        (found,) = run(f"""
{mesh(tp, dcp)}
func.func @layers(%q: {part} {BY_RANK}, %l: {l} {BY_RANK}) -> ({part} {BY_RANK}) {{{body}
  return {value} : {part}
}}
""", dict(q=q, l=lse), "--repeat=50", "--slots=2", f"--max-tokens={rows}")
        expect(np.allclose(found, q, rtol=1e-5, atol=1e-6), "rows changed")


# Gathered rows.


def gather_rows(tp, dcp, rows, shape, element, options=()):
    rng = np.random.default_rng(rows)
    values = (tp * rows, *shape)
    local = rng.integers(-128, 128, values).astype("i1") if NUMPY[element] == "|i1" else \
        round_to(element, rng.standard_normal(values))
    t = tensor(element, "?", *shape)
    (found,) = run(f"""
{mesh(tp, dcp)}
func.func @gather(%x: {t} {BY_RANK}) -> ({t} {BY_RANK}) {{
  %all = shardq.gather_rows %x over @ranks "dcp" : ({t}) -> {t}
  return %all : {t}
}}
""", dict(x=local), f"--max-tokens={max(rows, 1)}", *options)
    members = local.reshape(tp // dcp, dcp * rows, *shape)
    found = found.reshape(tp, dcp * rows, *shape)
    for rank in range(tp):
        expect_equal(found[rank], members[rank // dcp], f"{element} rows of rank {rank} of {tp}")


def rows_ranks():
    for tp, dcp in ((1, 1), (2, 2), (3, 3), (4, 4), (8, 8), (4, 2), (8, 4)):
        for rows in (0, 1, 17, 128):
            gather_rows(tp, dcp, rows, (5,), "bf16")
        gather_rows(tp, dcp, 9, (3, 8), "f32")


def slices_rows():
    """More rows than inboxes hold, and as many: rows of each rank in their places, whatever travels before."""
    for tp, dcp in ((1, 1), (2, 2), (3, 3), (4, 4), (8, 8), (4, 2), (8, 4)):
        for rows, held in ((6, 4), (7, 4), (128, 9), (17, 1)):
            gather_rows(tp, dcp, rows, (5,), "bf16", (f"--max-tokens={held}", "--max-requests=1", "--repeat=3"))
        gather_rows(tp, dcp, 9, (3, 8), "f32", ("--max-tokens=2", "--max-requests=1", "--slots=2", "--repeat=4"))


def rows_types():
    for element in ("bf16", "f16", "f32", "i8", "f8E4M3FN", "f8E5M2"):
        gather_rows(3, 3, 11, (7,), element)
        gather_rows(4, 2, 6, (2, 33), element)
    # Many exchanges, one behind the other.
    gather_rows(2, 2, 17, (576,), "bf16", ("--repeat=50", "--slots=2"))


# Gathered KV.


def blocks_oracle(table, lens, ranks, interleave, block, null, pool):
    """Sorted blocks that hold a token of rank 0's, and where each column's stands."""
    table = np.asarray(table)
    inverse = np.full(table.shape, -1, np.int64)
    held = [[c for c in range(table.shape[1])
             if any(local(t, ranks, interleave) // block == c for t in range(n)
                    if owner(t, ranks, interleave) == 0) and 0 <= table[i, c] < pool and table[i, c] != null]
            for i, n in enumerate(lens)]
    valid = sorted({int(table[i, c]) for i, columns in enumerate(held) for c in columns})
    for i, columns in enumerate(held):
        for c in columns:
            inverse[i, c] = valid.index(table[i, c])
    return valid, inverse


def slot_oracle(t, row, count, ranks, interleave, block):
    l = local(t, ranks, interleave)
    if t < 0 or l // block >= len(row) or row[l // block] < 0:
        return -1
    return (owner(t, ranks, interleave) * count + row[l // block]) * block + l % block


def gather_kv(ranks, interleave, block, table, lens, parts=((8, "f32"),), stride=None, null=-1, tp=None,
              seed=0, options=(), full=False, pool=None):
    """Everything of a gather at once, against the oracles; blocks, inverse, count and table."""
    rng = np.random.default_rng(seed)
    tp, stride = tp or ranks, stride or block
    table, lens = np.array(table, "<i4"), np.array(lens, "<i4")
    requests, width = table.shape
    element = parts[0][1]
    cache_rows = (max(int(table.max(initial=0)) + 2 if pool is None else pool, 0)) * stride
    kv = [rng.integers(-128, 128, (tp * cache_rows, d)).astype("i1") if element == "i8" else
          round_to(element, rng.standard_normal((tp * cache_rows, d))) for d, _ in parts]
    longest = max(int(lens.max(initial=0)), 1)
    rows = 6
    req = rng.integers(-1, requests + 1, rows).astype("<i4")
    indices = rng.integers(-2, longest + block, (rows, 9)).astype("<i4")
    names = [f"%kv{i}" for i in range(len(parts))]
    types = [tensor(element, "?", d) for d, _ in parts]
    wide = tensor(element, "?", sum(d for d, _ in parts))
    hasTable, hasPool = interleave % block == 0, pool is not None
    blocks = f"""
  %gtable = shardq.gathered_table %inverse, %count over @ranks "dcp"
      {{block_size = {block} : i64, interleave = {interleave} : i64}}
      : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  %paged = shardq.convert_indices %indices table(%gtable) rows(%req) {{block_size = {block} : i64}}
      : (tensor<?x9xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x9xi32>""" if hasTable else ""
    more = [("%gtable", "tensor<?x?xi32>"), ("%paged", "tensor<?x9xi32>")] if hasTable else []
    results = [("%blocks", "tensor<?xi32>"), ("%inverse", "tensor<?x?xi32>"), ("%count", "tensor<1xi32>"),
               ("%slots", "tensor<?x9xi64>"), ("%valid", "tensor<?xi32>"), ("%all", wide)] + more
    found = run(f"""
{mesh(tp, ranks)}
func.func @gather({", ".join(f"{n}: {t} {BY_RANK}" for n, t in zip(names, types))}, %table: tensor<?x?xi32>,
                  %lens: tensor<?xi32>, %indices: tensor<?x9xi32>, %req: tensor<?xi32>{", %pool: index" * hasPool})
    -> ({", ".join(f"{t} {BY_RANK}" for _, t in results)}) {{
  %blocks, %inverse, %count = shardq.gather_blocks %table lengths(%lens){" pool(%pool)" * hasPool} over @ranks "dcp"
      {{block_size = {block} : i64, interleave = {interleave} : i64, null_block = {null} : i32{", full" * full}}}
      : (tensor<?x?xi32>, tensor<?xi32>{", index" * hasPool}) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  %handle = shardq.gather_kv_start({", ".join(names)}) blocks(%blocks, %count) over @ranks "dcp"
      {{block_size = {block} : i64, block_stride_rows = {stride} : i64}}
      : ({", ".join(types)}, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %slots, %valid = shardq.gathered_slots %indices blocks(%inverse, %count) rows(%req) over @ranks "dcp"
      {{block_size = {block} : i64, interleave = {interleave} : i64}}
      : (tensor<?x9xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> (tensor<?x9xi64>, tensor<?xi32>)
  %all = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> {wide}{blocks}
  return {", ".join(n for n, _ in results)} : {", ".join(t for _, t in results)}
}}
""", dict({f"kv{i}": part for i, part in enumerate(kv)}, table=table, lens=lens, indices=indices, req=req,
                **({"pool": np.array(pool, "<i8")} if hasPool else {})),
                f"--max-kv-tokens={max(table.size * block * ranks if full else int(lens.sum()), 1)}",
                f"--max-requests={requests}", *options)
    most = 2**31 if pool is None else pool
    valid, inverse = blocks_oracle(table, lens, ranks, interleave, block, null, most)
    if full:
        places = np.arange(table.size).reshape(table.shape)
        valid, inverse = table.reshape(-1).tolist(), np.where((table < 0) | (table >= most), -1, places)
    count = len(valid)
    what = f"{ranks} ranks, interleave {interleave}, blocks of {block}"
    slots = np.array([[slot_oracle(int(t), inverse[r], count, ranks, interleave, block)
                       if 0 <= r < requests else -1 for t in row] for r, row in zip(req, indices)])
    per_rank = [f.reshape(tp, len(f) // tp, *f.shape[1:]) for f in found]
    joined = np.concatenate(kv, axis=1).reshape(tp, cache_rows, sum(d for d, _ in parts))
    for rank in range(tp):
        padded = valid + [-1] * (table.size - count)
        expect_equal(per_rank[0][rank], padded, f"blocks of {what}")
        expect_equal(per_rank[1][rank], inverse, f"inverse of {what}")
        expect_equal(per_rank[2][rank], [count], f"count of {what}")
        expect_equal(per_rank[3][rank], slots, f"slots of {what}")
        expect_equal(per_rank[4][rank], (slots >= 0).sum(axis=1), f"valid slots of {what}")
        first = rank // ranks * ranks
        blocks_of = np.array(valid, np.int64)
        isThere = (blocks_of >= 0) & (blocks_of < most)
        rows_of = [b * stride + s for b in np.where(isThere, blocks_of, 0) for s in range(block)]
        expected = joined[first:first + ranks, rows_of] if cache_rows else np.zeros((ranks, len(rows_of), joined.shape[2]), joined.dtype)
        expected[:, np.repeat(~isThere, block)] = 0
        expected = expected.reshape(-1, joined.shape[2])
        expect_equal(per_rank[5][rank], expected, f"rows of {what}")
        if hasTable:
            expect_equal(per_rank[7][rank], slots, f"slots by the table of {what}")
    return valid, inverse, count, per_rank[6][0] if hasTable else None


def gather_counts():
    """A count that is no number of blocks is an error with its rows, and touches no memory; of too many, none is read."""
    text = lambda ranks: f"""
{mesh(ranks, ranks)}
func.func @gather(%kv: tensor<?x8xf32> {BY_RANK}, %blocks: tensor<?xi32>, %count: tensor<1xi32>,
                  %slots: tensor<4x3xi32>, %q: tensor<4x2x8xf32>)
    -> (tensor<4x2x8xf32> {BY_RANK}, tensor<?x8xf32> {BY_RANK}) {{
  %handle = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "dcp" {{block_size = 4 : i64}}
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %all = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> tensor<?x8xf32>
  %out = shardq.sparse_mla q(%q) kv(%all) slots(%slots) {{scale = 1.0 : f32}}
      : (tensor<4x2x8xf32>, tensor<?x8xf32>, tensor<4x3xi32>) -> tensor<4x2x8xf32>
  return %out, %all : tensor<4x2x8xf32>, tensor<?x8xf32>
}}
"""
    top = 2**31 - 1
    for ranks in (1, 2, 3, 4, 8):
        for count in (-3, -1, -top - 1, top, 1 << 20):
            inputs = dict(kv=np.ones((16 * ranks, 8), "<f4"), blocks=np.array([1, 3, 0], "<i4"),
                          count=np.array([count], "<i4"), q=np.ones((4, 2, 8), "<f4"),
                          slots=np.array([[0, 1, 2], [-1, 9, 95], [top, 1 << 30, 7], [-top, 3, 0]], "<i4"))
            said = run(text(ranks), inputs, "--max-kv-tokens=48", "--max-requests=1", status=1)
            for rank in range(ranks):
                expect(f"rank {rank}: capacity: " in said, f"rank {rank} of {ranks} says no status of {count}:\n{said}")
            expect(f"has {count * 4 * ranks} rows" in said, f"no rows of {count} blocks in {said}")


def gather_golden():
    # Requests as long as their tables: 4 ranks with 4 blocks of 2 tokens each.
    valid, inverse, count, table = gather_kv(4, 2, 2, [[1, 2, 3, 4], [5, 6, 1, 2]], [32, 32], null=0)
    expect_equal(np.array(valid), [1, 2, 3, 4, 5, 6], "blocks")
    expect_equal(inverse, [[0, 1, 2, 3], [4, 5, 0, 1]], "inverse")
    expect_equal(table[0], [0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20, 3, 9, 15, 21], "table")
    # Columns past the longest local length, and the null block.
    valid, inverse, *_ = gather_kv(4, 2, 2, [[1, 2, 3, 0], [5, 0, 1, 2]], [17, 25], null=0)
    expect_equal(np.array(valid), [1, 2, 3, 5], "cropped blocks")
    expect_equal(inverse, [[0, 1, 2, -1], [3, -1, 0, 1]], "cropped inverse")
    # Block 0 is one like others where nothing stands for none.
    valid, *_ = gather_kv(4, 2, 2, [[1, 2, 3, 0], [5, 0, -1, 2]], [32, 32])
    expect_equal(np.array(valid), [0, 1, 2, 3, 5], "blocks with block 0")


def gather_full():
    # As many blocks for every step: none is left out or gathered once for several.
    *_, table = gather_kv(4, 2, 2, [[0, 1], [2, 3]], [16, 16], full=True)
    expect_equal(table, [[0, 4, 8, 12, 1, 5, 9, 13], [2, 6, 10, 14, 3, 7, 11, 15]], "table")
    *_, count, table = gather_kv(2, 4, 4, [[3, 3, -1], [0, 5, 3]], [1, 0], null=3, full=True)
    expect(count == 6, "count")
    expect_equal(table, [[0, 6, 1, 7, -1, -1], [3, 9, 4, 10, 5, 11]], "table")
    rng = np.random.default_rng(14)
    for ranks in (1, 2, 3, 4, 8):
        for interleave, block in ((1, 4), (4, 4), (8, 4), (64, 64)):
            table = rng.integers(-1, 9, (3, 4))
            gather_kv(ranks, interleave, block, table, rng.integers(0, 4 * block * ranks, 3), seed=ranks, full=True)
    # A table without entries.
    gather_kv(2, 2, 4, np.zeros((1, 0)), [0], full=True)


def gather_pool():
    """Blocks that the caches have not are not moved, and have no place."""
    rng = np.random.default_rng(21)
    for ranks in (1, 2, 3, 4, 8):
        for interleave, block, stride in ((1, 4, 4), (4, 4, 7), (8, 4, 4)):
            table = rng.integers(-1, 12, (3, 4))
            table[rng.random(table.shape) < 0.3] = 2**31 - 1
            lens = rng.integers(0, 4 * block * ranks, 3)
            for full in (False, True):
                valid, *_ = gather_kv(ranks, interleave, block, table, lens, stride=stride, seed=ranks, full=full, pool=9)
                expect(full or all(b < 9 for b in valid), "blocks that the caches have not")
    # The golden table without its two last blocks; no blocks at all.
    valid, inverse, count, _ = gather_kv(4, 2, 2, [[1, 2, 3, 4], [5, 6, 1, 2]], [32, 32], null=0, pool=5)
    expect_equal(np.array(valid), [1, 2, 3, 4], "blocks of the pool")
    expect_equal(inverse, [[0, 1, 2, 3], [-1, -1, 0, 1]], "inverse")
    gather_kv(2, 4, 4, [[0, 1]], [9], pool=0)


def dcp(text, *options):
    """The module behind --shardq-dcp."""
    done = subprocess.run(["shardq-opt", "-", f"--shardq-dcp={' '.join(options)} remarks=false"],
                          input=text, capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    return done.stdout


def attend(ranks, interleave, block, stride, q, kv, topk, req, table):
    """Attention in float64 over the keys that are in a cache: `kv` has those of each rank."""
    out = np.zeros(q.shape)
    for i, row in enumerate(topk.tolist()):
        keys = []
        for t in row:
            l = local(t, ranks, interleave)
            if t < 0 or req[i] < 0 or l // block >= table.shape[1] or table[req[i], l // block] < 0:
                continue
            slot = int(table[req[i], l // block]) * stride + l % block
            if slot < kv.shape[1]:
                keys.append(kv[owner(t, ranks, interleave), slot].astype(np.float64))
        if not keys:
            continue
        keys = np.array(keys)
        logits = 0.5 * q[i].astype(np.float64) @ keys.T
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        out[i] = weights @ keys / weights.sum(axis=1, keepdims=True)
    return out


def forms_beyond():
    """Entries behind the cache: both forms of --shardq-dcp skip their keys, as the reference does."""
    rng = np.random.default_rng(22)
    block, heads, dim, k = 4, 2, 8, 12
    for ranks, interleave, stride in ((2, 4, 4), (2, 1, 6), (3, 4, 4), (4, 4, 4), (4, 8, 6), (8, 4, 4)):
        # The last block is cut off, and the keys that are in it are attended.
        starts, lens = np.array([0, 1, 2, 9], "<i4"), rng.integers(20, 16 * ranks, 3).astype("<i4")
        rows, pool = 10, 8
        kv = rng.standard_normal((ranks, (pool - 1) * stride + block // 2, dim)).astype("<f4")
        table = rng.integers(1, pool - 1, (3, 4)).astype("<i4")
        table[0, 0], table[1, 2], table[2, :2] = pool, 2**31 - 1, (pool + 1, pool)
        req = np.repeat([0, 1, 2, -1], [1, 1, 7, 1])
        topk = np.array([rng.permutation(int(lens[r]))[:k] if r >= 0 else [-1] * k for r in req], "<i4")
        q = rng.standard_normal((rows, heads * ranks, dim)).astype("<f4")
        text = f"""
{mesh(ranks)}
func.func @attend(%q: tensor<?x{heads}x{dim}xf32> {split(1)}, %kv: tensor<?x{dim}xf32> {BY_RANK}, %topk: tensor<?x{k}xi32>,
                  %starts: tensor<?xi32>, %lens: tensor<?xi32>, %table: tensor<?x?xi32>, %rows: index)
    -> (tensor<?x{heads}x{dim}xf32> {split(1)}) {{
  %req, %visible = shardq.expand_rows %starts, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req)
      {{block_size = {block} : i64, block_stride_rows = {stride} : i64}}
      : (tensor<?x{k}xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x{k}xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {{scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<{interleave}> ["dcp"]>}}
      : (tensor<?x{heads}x{dim}xf32>, tensor<?x{dim}xf32>, tensor<?x{k}xi32>, tensor<?xi32>) -> tensor<?x{heads}x{dim}xf32>
  return %out : tensor<?x{heads}x{dim}xf32>
}}
"""
        # Passes print arguments by their numbers.
        given = (q, kv.reshape(-1, dim), topk, starts, lens, table, np.array(rows, "<i8"))
        inputs = {f"arg{i}": array for i, array in enumerate(given)}
        want = attend(ranks, interleave, block, stride, q, kv, topk, req, table)
        for form in ("step=decode", "step=gather", "step=gate", "step=gather blocks=full",
                     "step=gather decode-rows=combine"):
            (found,) = run(dcp(text, form), inputs, f"--max-kv-tokens={16 * ranks * 3}", "--max-requests=3")
            error = np.abs(found - want).max()
            expect(error < 1e-5, f"{form} on {ranks} ranks, interleave {interleave}: off by {error}")


def gather_ranks():
    rng = np.random.default_rng(12)
    for ranks in (1, 2, 3, 4, 8):
        for interleave, block in ((1, 4), (2, 4), (4, 4), (8, 4), (64, 64), (2, 64), (6, 2), (8, 1)):
            lens = rng.integers(0, 3 * block * ranks, 3)
            table = rng.permutation(30)[:12].reshape(3, 4)
            table[2, :2] = table[0, :2]
            gather_kv(ranks, interleave, block, table, lens, seed=ranks)


def gather_types():
    table, lens = [[3, 1], [2, -1]], [19, 6]
    for parts in (((512, "bf16"), (64, "bf16")), ((5, "f16"),), ((7, "f32"), (1, "f32")), ((656, "i8"),)):
        gather_kv(3, 2, 4, table, lens, parts, stride=7)
    # Two groups of four, no request, no token.
    gather_kv(4, 2, 4, table, lens, tp=8)
    gather_kv(2, 2, 4, np.zeros((1, 2)), [0])
    gather_kv(2, 4, 4, table, lens, options=("--repeat=20", "--slots=2"))


if __name__ == "__main__":
    main(globals())
