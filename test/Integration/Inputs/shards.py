"""Contiguous token shards, sinks of merges and padded heads against numpy: `shards.py CASE...`.

What differs between ranks is split over dimension 0: block r is rank r's.
"""

import re

import numpy as np
from context import BY_RANK, mesh, merge_oracle, random_partials
from harness import expect, expect_equal, main, round_to, run, tensor, ulp, widen

GROUPS = ((1, 1), (2, 2), (3, 3), (4, 4), (8, 8), (4, 2), (8, 4))


# Lengths of a shard.


def shard_lengths(ranks, rows, starts, lens, tp=None):
    tp = tp or ranks
    t = tensor("i32", "?")
    found = run(f"""
{mesh(tp, ranks)}
func.func @own(%q: {t}, %s: {t}, %rows: index) -> ({t} {BY_RANK}, {t} {BY_RANK}) {{
  %starts, %lengths = shardq.shard_lengths %q, %s rows(%rows) over @ranks "dcp" : ({t}, {t}, index) -> ({t}, {t})
  return %starts, %lengths : {t}, {t}
}}
""", dict(q=np.array(starts, "<i4"), s=np.array(lens, "<i4"), rows=np.array(rows, "<i8")))
    return found[0].reshape(tp, -1), found[1].reshape(tp, -1)


def lengths():
    starts, lens = shard_lengths(2, 3, [0, 3, 5], [3, 5])
    expect_equal(starts, [[0, 3, 3], [0, 0, 2]], "starts")
    expect_equal(lens, [[3, 0], [0, 5]], "lengths")
    # Padding of a graph: ranks behind the tokens have none, and no length is negative.
    starts, lens = shard_lengths(8, 10, list(range(0, 58, 7)), [3] * 8)
    expect((lens >= 0).all() and not lens[6:].any(), "lengths behind the tokens")
    rng = np.random.default_rng(1)
    for ranks, tp in ((1, 1), (2, 2), (3, 3), (4, 8), (8, 8)):
        for requests in (0, 1, 5, 40):
            tokens = rng.integers(0, 6, requests)
            seqs = tokens + rng.integers(0, 50, requests)
            starts = np.concatenate([[0], np.cumsum(tokens)])
            rows = -(-(starts[-1] + int(rng.integers(0, 4))) // ranks)
            found, lens = shard_lengths(ranks, rows, starts, seqs, tp)
            for rank in range(tp):
                first = rank % ranks * rows
                for r in range(requests):
                    own = [t for t in range(starts[r], starts[r + 1]) if first <= t < first + rows]
                    begin = found[rank][r]
                    expect_equal(found[rank][r + 1] - begin, len(own), f"rows of request {r} on rank {rank}")
                    for i, t in enumerate(own):
                        expect(begin + i == t - first, "a row's place")
                        sees = lens[rank][r] - len(own) + i + 1
                        expect(sees == seqs[r] - tokens[r] + t - starts[r] + 1, "what a row sees")
                    expect(own or lens[rank][r] == 0, "a length without rows")


# Rows of two parts, and of indices.


def two_parts():
    rng = np.random.default_rng(2)
    for tp, dcp in GROUPS:
        for rows, shape, widths, element in ((0, (), (4, 4), "f32"), (1, (), (8, 5), "bf16"), (128, (), (3, 1), "f16"),
                                             (17, (3,), (16, 4), "bf16"), (5, (2,), (512, 64), "f16"),
                                             (6, (), (33, 1), "i8")):
            parts = [rng.integers(-128, 128, (tp * rows, *shape, w)).astype("i1") if element == "i8" else
                     round_to(element, rng.standard_normal((tp * rows, *shape, w))) for w in widths]
            types = [tensor(element, "?", *shape, w) for w in widths]
            whole = tensor(element, "?", *shape, sum(widths))
            (found,) = run(f"""
{mesh(tp, dcp)}
func.func @gather(%a: {types[0]} {BY_RANK}, %b: {types[1]} {BY_RANK}) -> ({whole} {BY_RANK}) {{
  %all = shardq.gather_rows %a, %b over @ranks "dcp" {{token_shards}} : ({", ".join(types)}) -> {whole}
  return %all : {whole}
}}
""", dict(a=parts[0], b=parts[1]), f"--max-tokens={max(rows * dcp, 1)}")
            joined = np.concatenate(parts, axis=-1).reshape(tp // dcp, dcp * rows, *shape, sum(widths))
            found = found.reshape(tp, dcp * rows, *shape, sum(widths))
            for rank in range(tp):
                expect_equal(found[rank], joined[rank // dcp], f"{element} rows of rank {rank} of {tp}")


def indices():
    rng = np.random.default_rng(3)
    for element, numpy in (("i32", "<i4"), ("i64", "<i8")):
        for tp, dcp in GROUPS:
            x = rng.integers(-1, 2**31 - 1, (tp * 5, 12)).astype(numpy)
            t = tensor(element, "?", 12)
            (found,) = run(f"""
{mesh(tp, dcp)}
func.func @gather(%x: {t} {BY_RANK}) -> ({t} {BY_RANK}) {{
  %all = shardq.gather_rows %x over @ranks "dcp" {{token_shards}} : ({t}) -> {t}
  return %all : {t}
}}
""", dict(x=x), f"--max-tokens={5 * dcp}")
            members = x.reshape(tp // dcp, dcp * 5, 12)
            for rank, all_rows in enumerate(found.reshape(tp, dcp * 5, 12)):
                expect_equal(all_rows, members[rank // dcp], f"{element} of rank {rank}")


def capacity():
    # Shards are planned for one step's rows, and not for one of each rank. Inboxes begin at multiples of
    # 256 bytes. Rows of a larger one are scattered in turns, if ranks can share them.
    p, l = tensor("f32", "?", 1, 60), tensor("f32", "?", 1)
    text = f"""
{mesh(4)}
func.func @combine(%p: {p}, %l: {l}) -> ({p} {BY_RANK}) {{
  %out = shardq.combine_lse %p lse(%l) over @ranks "dcp" {{scatter_tokens}} : ({p}, {l}) -> {p}
  return %out : {p}
}}
"""
    for rows in (16, 18):
        inputs = dict(p=np.zeros((rows, 1, 60), "<f4"), l=np.zeros((rows, 1), "<f4"))
        report = run(text, inputs, "--max-tokens=12", status=int(rows == 18))
    expect("sizes disagree, 18 where 16 is expected" in report, f"no numbers in\n{report}")


# Steps of more rows than inboxes hold.


def slices_gather():
    rng = np.random.default_rng(4)
    for tp, dcp in GROUPS:
        for rows, held in ((7, 1), (7, 3 * dcp), (8, 4 * dcp), (1, 1), (5, 4 * dcp - 1)):
            x = rng.integers(-1, 2**31 - 1, (tp * rows, 12)).astype("<i4")
            t = tensor("i32", "?", 12)
            (found,) = run(f"""
{mesh(tp, dcp)}
func.func @gather(%x: {t} {BY_RANK}) -> ({t} {BY_RANK}) {{
  %all = shardq.gather_rows %x over @ranks "dcp" {{token_shards}} : ({t}) -> {t}
  return %all : {t}
}}
""", dict(x=x), f"--max-tokens={held}", "--repeat=3")
            members = x.reshape(tp // dcp, dcp * rows, 12)
            for rank, all_rows in enumerate(found.reshape(tp, dcp * rows, 12)):
                expect_equal(all_rows, members[rank // dcp], f"{rows} rows of rank {rank} of {tp}, {held} at a time")


def slices_scatter():
    """Rows of all ranks that nothing gathers, merged and scattered in turns: the same bits as at once."""
    rng = np.random.default_rng(6)
    for tp, dcp in GROUPS:
        for rows in (1, 5, 16):
            partial, lse = random_partials(rng, tp, dcp * rows, 2 * dcp, 6)
            outs = [combine(partial, lse, dcp, "bf16", tp=tp, held=held) for held in (dcp * rows, 3)]
            for one, other in zip(outs[0][:2], outs[1][:2]):
                expect(one.tobytes() == other.tobytes(), f"{rows} rows of {tp} ranks in slices")


def slices_attention():
    """Gathers, attention over own keys and merge in one loop; lengths are those of all rows."""
    rng = np.random.default_rng(5)
    for tp, dcp in GROUPS:
        rows, heads, dim, keys, width = 7, 2, 16, 40, 9
        q = round_to("bf16", rng.standard_normal((tp * rows, heads, dim)))
        kv = round_to("bf16", rng.standard_normal((tp * keys, dim)))
        slots = rng.integers(-1, keys, (tp * rows, width)).astype("<i4")
        count = rng.integers(0, width + 1, tp * rows).astype("<i4")
        q_type, lse = tensor("bf16", "?", heads, dim), tensor("f32", "?", heads)
        s_type, n_type, one = tensor("i32", "?", width), tensor("i32", "?"), tensor("i32", "?", 1)
        text = f"""
{mesh(tp, dcp)}
func.func @attend(%q: {q_type} {BY_RANK}, %kv: tensor<?x{dim}xbf16> {BY_RANK}, %slots: {s_type} {BY_RANK}, %count: {n_type} {BY_RANK})
    -> ({q_type} {BY_RANK}, {lse} {BY_RANK}, {n_type} {BY_RANK}) {{
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %count, %c0 : {n_type}
  %column = tensor.expand_shape %count [[0, 1]] output_shape [%rows, 1] : {n_type} into {one}
  %columns = shardq.gather_rows %column over @ranks "dcp" {{token_shards}} : ({one}) -> {one}
  %counts = tensor.collapse_shape %columns [[0, 1]] : {one} into {n_type}
  %s = shardq.gather_rows %slots over @ranks "dcp" {{token_shards}} : ({s_type}) -> {s_type}
  %all = shardq.gather_rows %q over @ranks "dcp" {{token_shards}} : ({q_type}) -> {q_type}
  %p, %l = shardq.sparse_mla q(%all) kv(%kv) slots(%s) topk_length(%counts) {{scale = 0.3 : f32}}
      : ({q_type}, tensor<?x{dim}xbf16>, {s_type}, {n_type}) -> ({q_type}, {lse})
  %out, %merged = shardq.combine_lse %p lse(%l) over @ranks "dcp" {{scatter_tokens}} : ({q_type}, {lse}) -> ({q_type}, {lse})
  return %out, %merged, %counts : {q_type}, {lse}, {n_type}
}}
"""
        inputs = dict(q=q, kv=kv, slots=slots, count=count)
        whole = run(text, inputs, f"--max-tokens={rows * dcp}")
        for held in (1, 2 * dcp, 6 * dcp):
            sliced = run(text, inputs, f"--max-tokens={held}", "--repeat=5")
            for i in range(3):
                expect_equal(sliced[i], whole[i], f"{rows} rows of {tp} ranks, {held} at a time")


def uneven():
    """Ranks with other rows than their peers, and rows that ranks cannot share."""
    t = tensor("f32", "?", 4)
    report = run(f"""
{mesh(3)}
func.func @gather(%x: {t} {BY_RANK}) -> ({t} {BY_RANK}) {{
  %me = shardq.rank over @ranks "dcp"
  %c2 = arith.constant 2 : index
  %last = arith.cmpi eq, %me, %c2 : index
  %c3 = arith.constant 3 : index
  %rows = arith.select %last, %c2, %c3 : index
  %own = tensor.extract_slice %x[0, 0] [%rows, 4] [1, 1] : {t} to {t}
  %all = shardq.gather_rows %own over @ranks "dcp" {{token_shards}} : ({t}) -> {t}
  return %all : {t}
}}
""", dict(x=np.zeros((9, 4), "<f4")), "--max-tokens=9", status=1)
    expect("rank 2" in report and "3" in report, f"nobody names the rank in\n{report}")
    p, l = tensor("f32", "?", 2, 4), tensor("f32", "?", 2)
    report = run(f"""
{mesh(2)}
func.func @combine(%p: {p}, %l: {l}) -> ({p} {BY_RANK}) {{
  %out = shardq.combine_lse %p lse(%l) over @ranks "dcp" {{scatter_tokens}} : ({p}, {l}) -> {p}
  return %out : {p}
}}
""", dict(p=np.zeros((5, 2, 4), "<f4"), l=np.zeros((5, 2), "<f4")), "--max-tokens=8", status=1)
    expect("rank" in report and "2" in report and "3" in report, f"no numbers in\n{report}")


# Merges.


def combine(partial, lse, ranks, element="f32", base="e", tp=None, sink=None, lse_element="f32", held=None):
    """Both scatters of one batch, as whole rows of each group; they agree to the bit."""
    tp = tp or ranks
    _, rows, heads, dim = partial.shape
    partial, lse = round_to(element, partial), round_to(lse_element, lse)
    p, l = tensor(element, "?", heads, dim), tensor(lse_element, "?", heads)
    own, own_lse = tensor(element, "?", heads // ranks, dim), tensor(lse_element, "?", heads // ranks)
    s, half = tensor("f32", heads), tensor("f32", heads // ranks)
    attr = f"lse = #shardq.lse<base = {base}>"
    with_sink = sink is not None
    arguments = f", %s: {s}" if with_sink else ""
    first = "" if not with_sink else f"""
  %me = shardq.rank over @ranks "dcp"
  %n = arith.constant {heads // ranks} : index
  %first = arith.muli %me, %n : index
  %block = tensor.extract_slice %s[%first] [{heads // ranks}] [1] : {s} to {half}"""
    by_heads, by_rows = (" sink(%block)", " sink(%s)") if with_sink else ("", "")
    types = [f"{p}, {l}" + (f", {x}" if with_sink else "") for x in (half, s)]
    inputs = dict(p=partial.reshape(-1, heads, dim), l=lse.reshape(-1, heads))
    if with_sink:
        inputs["s"] = np.asarray(sink, "<f4")
    found = run(f"""
{mesh(tp, ranks)}
func.func @combine(%p: {p} {BY_RANK}, %l: {l} {BY_RANK}{arguments})
    -> ({own} {BY_RANK}, {own_lse} {BY_RANK}, {p} {BY_RANK}, {l} {BY_RANK}) {{{first}
  %h, %hl = shardq.combine_lse %p lse(%l){by_heads} over @ranks "dcp" {{{attr}}} : ({types[0]}) -> ({own}, {own_lse})
  %t, %tl = shardq.combine_lse %p lse(%l){by_rows} over @ranks "dcp" {{{attr}, scatter_tokens}} : ({types[1]}) -> ({p}, {l})
  return %h, %hl, %t, %tl : {own}, {own_lse}, {p}, {l}
}}
""", inputs, f"--max-tokens={held or max(rows, 1)}")
    groups = tp // ranks
    out = found[0].reshape(groups, ranks, rows, heads // ranks, dim).transpose(0, 2, 1, 3, 4)
    merged = found[1].reshape(groups, ranks, rows, heads // ranks).transpose(0, 2, 1, 3)
    out, merged = out.reshape(groups, rows, heads, dim), merged.reshape(groups, rows, heads)
    bits = {2: "<u2", 4: "<u4"}
    for one, other, what in ((out, found[2], "rows"), (merged, found[3], "LSEs")):
        one = np.ascontiguousarray(one)
        other = other.reshape(one.shape)
        expect_equal(other.view(bits[other.dtype.itemsize]), one.view(bits[one.dtype.itemsize]),
                     f"{what} by tokens and by heads")
    return out, merged, partial, lse


def check(partial, lse, ranks, element="f32", base="e", tp=None, sink=None, lse_element="f32"):
    out, merged, partial, lse = combine(partial, lse, ranks, element, base, tp, sink, lse_element)
    exact, exact_lse, bound = merge_oracle(widen(partial), widen(lse), ranks, base, all_heads=True)
    # Each rank of a group would have the same: the first is enough.
    exact, exact_lse, bound = (a[::ranks] for a in (exact, exact_lse, bound))
    if sink is not None:
        log = np.log(2.0) if base == "two" else 1.0
        with np.errstate(invalid="ignore", over="ignore"):
            # The sum without the sink is exp(lse), all in natural logarithms.
            share = 1 / (1 + np.exp(np.asarray(sink, float) - exact_lse * log))
        share = np.where(np.isneginf(exact_lse), 1, share)[..., None]
        # An error of the sink's exponent is one of its weight.
        size = np.abs(np.asarray(sink, float)) + np.abs(np.where(np.isneginf(exact_lse), 0, exact_lse) * log)
        with np.errstate(invalid="ignore"):
            lost = np.where(np.isfinite(size), size, 0)[..., None] * 2.0**-22 * (1 - share)
        bound = bound * share + np.abs(exact * share) * lost
        exact = exact * share
    got = widen(out)
    expect(np.isfinite(got).all(), "a result is not finite")
    off = np.abs(got - exact) - bound
    allowed = np.where((exact == 0) & (bound == 0), 0, 2 * ulp(element, exact))
    expect((off <= allowed).all(), f"{element}, base {base}: {np.max(off - allowed) if off.size else 0}")
    got = widen(merged)
    empty = np.isneginf(exact_lse)
    expect((np.isneginf(got) == empty).all(), "an empty row's LSE")
    slack = 1e-5 if lse_element == "f32" else 2.0**-7
    expect((np.abs(got[~empty] - exact_lse[~empty]) <= slack * np.maximum(1, np.abs(exact_lse[~empty]))).all(), "LSE")


def scatter():
    rng = np.random.default_rng(4)
    for tp, dcp in GROUPS:
        for own_rows, own_heads, dim in ((1, 1, 8), (3, 2, 7), (0, 2, 4), (16, 1, 32)):
            for element in ("bf16", "f16", "f32"):
                base = "two" if element == "f16" else "e"
                partial, lse = random_partials(rng, tp, own_rows * dcp, own_heads * dcp, dim)
                check(partial, lse, dcp, element, base, tp)
    partial, lse = random_partials(rng, 4, 8, 4, 512)
    check(partial, lse, 4, "bf16", lse_element="bf16")


def views():
    """An LSE is no bulk data: every other column of one, and one that is transposed."""
    rng = np.random.default_rng(9)
    for tp, dcp in ((1, 1), (2, 2), (3, 3), (8, 4)):
        rows, heads, dim = 3 * dcp, 2, 8
        partial, lse = random_partials(rng, tp, rows, heads, dim)
        partial, lse = round_to("bf16", partial), round_to("f32", lse)
        p, flat = tensor("bf16", "?", heads, dim), tensor("f32", "?", heads)
        wide, turned = tensor("f32", "?", 2 * heads), tensor("f32", heads, "?")
        view = f"memref<?x{heads}xf32, strided<[1, ?]>>"

        def merge(argument, made):
            return f"""
{mesh(tp, dcp)}
func.func @merge(%p: {p} {BY_RANK}, {argument} {BY_RANK}) -> ({p} {BY_RANK}, {flat} {BY_RANK}) {{{made}
  %out, %merged = shardq.combine_lse %p lse(%l) over @ranks "dcp" {{scatter_tokens}} : ({p}, {flat}) -> ({p}, {flat})
  return %out, %merged : {p}, {flat}
}}
"""
        plain = lse.reshape(-1, heads)
        columns = np.stack([plain, np.full_like(plain, 1e30)], axis=2).reshape(len(plain), 2 * heads)
        across = np.ascontiguousarray(np.concatenate([block.T for block in lse], axis=0))
        strided = merge(f"%w: {wide}", f"""
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %w, %c0 : {wide}
  %l = tensor.extract_slice %w[0, 0] [%rows, {heads}] [1, 2] : {wide} to {flat}""")
        transposed = merge(f"%t: {turned}", f"""
  %m = bufferization.to_buffer %t : {turned} to memref<{heads}x?xf32>
  %v = memref.transpose %m (i, j) -> (j, i) : memref<{heads}x?xf32> to {view}
  %l = bufferization.to_tensor %v restrict : {view} to {flat}""")
        parts = partial.reshape(-1, heads, dim)
        expected = run(merge(f"%l: {flat}", ""), dict(p=parts, l=plain))
        expect(np.isfinite(widen(expected[0])).all() and expected[0].any(), "nothing was merged")
        for text, inputs in ((strided, dict(p=parts, w=columns)), (transposed, dict(p=parts, t=across))):
            found = run(text, inputs)
            for i in range(2):
                expect_equal(found[i], expected[i], f"merge of views on {tp} ranks")


def sequence():
    """Gather, merge, gather, merge: single buffers of two slots, many runs."""
    rng = np.random.default_rng(10)
    for tp, dcp in ((2, 2), (3, 3), (8, 4)):
        rows, heads, dim = 5, 2, 8
        x = round_to("f32", rng.standard_normal((tp * rows, heads, dim)))
        lse = round_to("f32", rng.standard_normal((tp * rows, heads)))
        t, l = tensor("f32", "?", heads, dim), tensor("f32", "?", heads)
        body, value = f"""
  %lses = shardq.gather_rows %l over @ranks "dcp" {{token_shards}} : ({l}) -> {l}""", "%x"
        for layer in range(4):
            body += f"""
  %g{layer} = shardq.gather_rows {value} over @ranks "dcp" {{token_shards}} : ({t}) -> {t}
  %c{layer} = shardq.combine_lse %g{layer} lse(%lses) over @ranks "dcp" {{scatter_tokens}} : ({t}, {l}) -> {t}"""
            value = f"%c{layer}"
        # Every member gathers the same rows, so their mean is themselves.
        (found,) = run(f"""
{mesh(tp, dcp)}
func.func @layers(%x: {t} {BY_RANK}, %l: {l} {BY_RANK}) -> ({t} {BY_RANK}) {{{body}
  return {value} : {t}
}}
""", dict(x=x, l=lse), "--repeat=50", "--slots=2", f"--max-tokens={rows * dcp}")
        expect(np.allclose(found, x, rtol=1e-5, atol=1e-6), "rows changed")


def sinks():
    rng = np.random.default_rng(5)
    for tp, dcp in GROUPS:
        for element in ("bf16", "f16", "f32"):
            for base in ("e", "two"):
                partial, lse = random_partials(rng, tp, 4 * dcp, 2 * dcp, 8)
                check(partial, lse, dcp, element, base, tp, rng.standard_normal(2 * dcp) * 4)
    # Nothing, everything, and more than an exponential holds; large LSEs beside them.
    for base in ("e", "two"):
        for shift in (0, 3000):
            partial, lse = random_partials(rng, 2, 6, 6, 8)
            natural = shift * (np.log(2.0) if base == "two" else 1.0)
            sink = np.array([-np.inf, np.inf, 200, -200, 0.5, 40]) + natural
            check(partial, lse + shift, 2, "f32", base, sink=sink)


def sink_golden():
    # A sink as large as the one key halves its row; without keys nothing changes, whatever it is.
    partial = np.array([[[[8.0]] * 2] * 3] * 2)
    lse = np.array([[[0.0] * 2, [-np.inf] * 2, [np.nan] * 2], [[-np.inf] * 2, [-np.inf] * 2, [np.inf] * 2]])
    for base in ("e", "two"):
        for sink, expected in ((0.0, 4), (np.log(3), 2), (-np.inf, 8), (np.inf, 0)):
            out, merged, _, _ = combine(np.concatenate([partial, partial], axis=1),
                                        np.concatenate([lse, lse], axis=1), 2, base=base, sink=[sink] * 2)
            found = widen(out)[0, :, :, 0]
            expect(np.allclose(found[0], expected, rtol=1e-6, atol=0), f"sink {sink}: {found[0]}")
            expect(not found[1:3].any(), "rows without keys")
            expect((widen(merged)[0, 0] == 0).all() and np.isneginf(widen(merged)[0, 1]).all(), "LSE")


def keeps_all():
    """Sinks of a merge after which each rank has all heads."""
    rng = np.random.default_rng(6)
    for tp, dcp in ((2, 2), (3, 3), (8, 4)):
        partial, lse = random_partials(rng, tp, 5, 2 * dcp, 8)
        sink = rng.standard_normal(2 * dcp)
        p, l, s = tensor("f32", "?", 2 * dcp, 8), tensor("f32", "?", 2 * dcp), tensor("f32", 2 * dcp)
        found = run(f"""
{mesh(tp, dcp)}
func.func @combine(%p: {p} {BY_RANK}, %l: {l} {BY_RANK}, %s: {s}) -> ({p} {BY_RANK}, {l} {BY_RANK}) {{
  %out, %merged = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" : ({p}, {l}, {s}) -> ({p}, {l})
  return %out, %merged : {p}, {l}
}}
""", dict(p=partial.astype("<f4").reshape(-1, 2 * dcp, 8), l=lse.astype("<f4").reshape(-1, 2 * dcp), s=sink.astype("<f4")),
                    "--max-tokens=5", "--pipeline=builtin.module(shardq-select-transport{target=cpu remarks=false})")
        exact, exact_lse, _ = merge_oracle(widen(partial.astype("<f4")), widen(lse.astype("<f4")), dcp, "e", True)
        share = np.where(np.isneginf(exact_lse), 1, 1 / (1 + np.exp(sink - exact_lse)))[..., None]
        expect(np.allclose(found[0].reshape(exact.shape), exact * share, rtol=1e-5, atol=1e-6), "rows of all heads")
        expect(np.allclose(found[1].reshape(exact_lse.shape), exact_lse, rtol=1e-5, atol=1e-5), "LSEs of all heads")


# Attentions.


def attentions():
    """One batch by heads and by tokens: the same rows, positions and cache, and the same bits."""
    rng = np.random.default_rng(8)
    lens, contexts = [1, 2, 4, 0, 3, 1], [200, 0, 65, 9, 130, 3]
    rows, dims, k = 24, (8, 4), 16
    starts = np.concatenate([[0], np.cumsum(lens)]).astype("<i4")
    seqs = np.add(lens, contexts).astype("<i4")
    topk = np.full((rows, k), -1, "<i4")
    for r, (n, context) in enumerate(zip(lens, contexts)):
        for i in range(n):
            seen = context + i + 1
            chosen = np.sort(rng.choice(seen, min(seen, k), replace=False))
            topk[starts[r] + i, :len(chosen)] = chosen
    for ranks in (1, 2, 3, 4, 8):
        heads = 2 * ranks
        q = [round_to("bf16", rng.standard_normal((rows, heads, d))) for d in dims]
        sink = rng.standard_normal(heads).astype("<f4")
        by_head = [tensor("bf16", "?", 2, d) for d in dims]
        by_row = [tensor("bf16", "?", heads, d) for d in dims]
        out = tensor("bf16", "?", 2, dims[0]), tensor("bf16", "?", heads, dims[0])
        splits = ['{shardq.split = #shardq.split<@ranks, %d over "dcp">}' % d for d in (1, 0)]
        i32, table, chosen = tensor("i32", "?"), tensor("i32", "?", "?"), tensor("i32", "?", k)
        kv, sinks = tensor("bf16", "?", sum(dims)), tensor("f32", heads)
        for interleave in (1, 2, 4, 64):
            sharding = f'kv = interleave<{interleave}> ["dcp"]>'
            text = f"""
{mesh(ranks)}
func.func @both(%a: {by_head[0]} {splits[0]}, %b: {by_head[1]} {splits[0]}, %c: {by_row[0]} {splits[1]},
                %d: {by_row[1]} {splits[1]}, %i: {chosen}, %j: {chosen} {splits[1]}, %kv: {kv}, %q: {i32}, %s: {i32},
                %table: {table}, %sink: {sinks}) -> ({out[0]} {splits[0]}, {out[1]} {splits[1]}) {{
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %a, %c0 : {by_head[0]}
  %req, %visible = shardq.expand_rows %q, %s to %rows : ({i32}, {i32}, index) -> ({i32}, {i32})
  %slots = shardq.convert_indices %i table(%table) rows(%req) {{block_size = 64 : i64}} : ({chosen}, {table}, {i32}) -> {chosen}
  %h = shardq.sparse_mla q(%a, %b) kv(%kv) slots(%slots) sink(%sink)
      {{scale = 0.3 : f32, sharding = #shardq.sharding<@ranks, heads = ["dcp"], {sharding}}}
      : ({", ".join(by_head)}, {kv}, {chosen}, {sinks}) -> {out[0]}
  %own = tensor.dim %c, %c0 : {by_row[0]}
  %starts, %lengths = shardq.shard_lengths %q, %s rows(%own) over @ranks "dcp" : ({i32}, {i32}, index) -> ({i32}, {i32})
  %r, %v = shardq.expand_rows %starts, %lengths to %own : ({i32}, {i32}, index) -> ({i32}, {i32})
  %shard = shardq.convert_indices %j table(%table) rows(%r) {{block_size = 64 : i64}} : ({chosen}, {table}, {i32}) -> {chosen}
  %t = shardq.sparse_mla q(%c, %d) kv(%kv) slots(%shard) sink(%sink)
      {{scale = 0.3 : f32, sharding = #shardq.sharding<@ranks, tokens = contiguous ["dcp"], {sharding}}}
      : ({", ".join(by_row)}, {kv}, {chosen}, {sinks}) -> {out[1]}
  return %h, %t : {out[0]}, {out[1]}
}}
"""
            found = run(text, dict(a=q[0], b=q[1], c=q[0], d=q[1], i=topk, j=topk, q=starts, s=seqs, sink=sink),
                        "--pipeline=builtin.module(shardq-dcp{step=decode remarks=false})")
            expect_equal(found[1], found[0], f"{ranks} ranks, interleave {interleave}")
            expect(found[0].any(), "nothing was attended")


# Padded heads.


def padded():
    rng = np.random.default_rng(7)
    for tp, dcp, own, dims, element in ((1, 1, 3, (8, 4), "f32"), (2, 2, 16, (8, 5), "bf16"), (4, 4, 16, (7,), "f16"),
                                        (8, 4, 2, (4, 4), "bf16"), (8, 8, 16, (4,), "bf16")):
        # The last ones in slices.
        for rows, held in ((0, 128), (1, 128), (17, 128), (128, 128), (128, 127), (17, 4)):
            q = [round_to(element, rng.standard_normal((tp * rows, own, d))) for d in dims]
            types = [tensor(element, "?", own, d) for d in dims]
            whole = tensor(element, "?", 128, sum(dims))
            names = [f"%q{i}" for i in range(len(dims))]
            text = f"""
{mesh(tp, dcp)}
func.func @gather({", ".join(f"{n}: {t} {BY_RANK}" for n, t in zip(names, types))}) -> ({whole} {BY_RANK}) {{
  %q = shardq.gather_query({", ".join(names)}) over @ranks "dcp" {{padded_heads}} : ({", ".join(types)}) -> {whole}
  return %q : {whole}
}}
"""
            inputs = {f"q{i}": part for i, part in enumerate(q)}
            (found,) = run(text, inputs, f"--max-tokens={held}")
            joined = np.concatenate(q, axis=2).reshape(tp // dcp, dcp, rows, own, sum(dims))
            found = found.reshape(tp, rows, 128, sum(dims))
            for rank in range(tp):
                expected = np.concatenate(list(joined[rank // dcp]), axis=1)
                expect_equal(found[rank][:, :own * dcp], expected, f"queries of rank {rank}")
                # The heap begins with zeros, and nobody has written here.
                expect(not found[rank][:, own * dcp:].any(), "padding was written")


if __name__ == "__main__":
    main(globals())
