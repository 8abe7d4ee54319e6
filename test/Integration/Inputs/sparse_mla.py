"""sparse_mla on the CPU against float64: `sparse_mla.py CASE...`.

The reference gathers all of a row's keys at once and takes logarithms of sums
directly; nothing of it is shared with the lowering or the tool's own reference.
"""

import os

import numpy as np
from harness import (Directory, Failure, expect, expect_equal, main, round_to, run, split,
                     tensor, ulp, widen)

SCALE = 0.23


def module(q, kv, slots, value, element, *, req=None, length=None, sink=None, lse=None,
           ranks=1, scale=SCALE):
    """One attention; arguments q0, q1, kv, slots, req, length, sink."""
    heads = q[0].shape[1] // ranks
    slot = "i64" if slots.dtype == np.int64 else "i32"
    local = f" {split(1)}" if ranks > 1 else ""
    args = [(f"q{i}", tensor(element, "?", heads, part.shape[2]), local)
            for i, part in enumerate(q)]
    args += [("kv", tensor(element, "?", kv.shape[1]), ""),
             ("slots", tensor(slot, "?", slots.shape[1]), "")]
    operands = "q(%s) kv(%%kv) slots(%%slots)" % ", ".join(f"%q{i}" for i in range(len(q)))
    if req is not None:
        operands += " rows(%req)"
        args.append(("req", "tensor<?xi32>", ""))
    if length is not None:
        operands += " topk_length(%length)"
        args.append(("length", "tensor<?xi32>", ""))
    if sink is not None:
        operands += " sink(%sink)"
        args.append(("sink", tensor("f32", sink.shape[0]), ""))
    results = [tensor(element, "?", heads, value)]
    attrs = f"scale = {float(np.float32(scale))!r} : f32"
    if ranks > 1:
        attrs += ', sharding = #shardq.sharding<@ranks, heads = ["tp"]>'
    if lse:
        results.append(tensor("f32", "?", heads))
        attrs += f", lse = #shardq.lse<base = {lse}>"
    names = "%out, %lse" if lse else "%out"
    mesh = f'shardq.mesh @ranks ["tp" = {ranks}]\n' if ranks > 1 else ""
    return f"""{mesh}func.func @attend({", ".join(f"%{n}: {t}{s}" for n, t, s in args)})
    -> ({", ".join(t + local for t in results)}) {{
  {names} = shardq.sparse_mla {operands} {{{attrs}}}
      : ({", ".join(t for _, t, _ in args)}) -> ({", ".join(results)})
  return {names} : {", ".join(results)}
}}
"""


def reference(q, kv, slots, value, *, req=None, length=None, sink=None, scale=SCALE):
    """out, lse (natural) and sum_k p_k |v_k|, all float64."""
    q = np.concatenate([widen(part) for part in q], axis=2)
    rows, heads, _ = q.shape
    out, bound = np.zeros((rows, heads, value)), np.zeros((rows, heads, value))
    lse = np.full((rows, heads), -np.inf)
    with np.errstate(divide="ignore"):
        for t in range(rows):
            if req is not None and req[t] < 0:
                continue
            listed = slots[t] if length is None else slots[t, :max(length[t], 0)]
            valid = listed[(listed >= 0) & (listed < kv.shape[0])]
            if valid.size == 0:
                continue
            keys = widen(kv[valid])
            scores = float(np.float32(scale)) * (q[t] @ keys.T)
            most = scores.max(axis=1)
            lse[t] = most + np.log(np.exp(scores - most[:, None]).sum(axis=1))
            whole = lse[t]
            if sink is not None:
                whole = np.logaddexp(whole, sink.astype(np.float64))
            p = np.exp(scores - whole[:, None])
            out[t] = p @ keys[:, :value]
            bound[t] = p @ np.abs(keys[:, :value])
    return out, lse, bound


def check(element, found, expected, lse_base=None):
    """The tolerance of kernels.md."""
    out, lse, bound = expected
    got = widen(found[0])
    expect(got.shape == out.shape, f"out is {got.shape}, expected {out.shape}")
    error = np.abs(got - out)
    allowed = 2 * ulp(element, out) + 8 * 2.0**-24 * bound
    empty = np.isneginf(lse)
    allowed[empty] = 0
    bad = ~(error <= allowed)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise Failure(f"out{list(at)} is {got[at]!r}, expected {out[at]!r} +- {allowed[at]:.3e}; "
                      f"{bad.sum()} of {bad.size} are off")
    if lse_base:
        exact = lse / (np.log(2) if lse_base == "two" else 1)
        got = widen(found[1])
        with np.errstate(invalid="ignore"):
            good = (got == exact) | (np.abs(got - exact) <= 1e-5 * np.maximum(1, np.abs(exact)))
        if not good.all():
            at = tuple(int(i) for i in np.argwhere(~good)[0])
            raise Failure(f"lse{list(at)} is {got[at]!r}, expected {exact[at]!r}")


def attend(q, kv, slots, value, element="bf16", *options, lse="e", ranks=1, scale=SCALE, **extra):
    """Runs, compares, and returns the results."""
    text = module(q, kv, slots, value, element, lse=lse, ranks=ranks, scale=scale, **extra)
    inputs = {f"q{i}": part for i, part in enumerate(q)}
    inputs.update(kv=kv, slots=slots)
    inputs.update({name: array for name, array in extra.items() if array is not None})
    found = run(text, inputs, *options)
    check(element, found, reference(q, kv, slots, value, scale=scale, **extra), lse)
    return found


def random_case(seed, rows, heads, dims, keys, k, element="bf16", slot="<i4"):
    """Distinct slots where there are enough keys, else any with holes."""
    rng = np.random.default_rng(seed)
    q = [round_to(element, rng.standard_normal((rows, heads, d))) for d in dims]
    kv = round_to(element, rng.standard_normal((keys, sum(dims))))
    if keys >= k:
        slots = np.stack([rng.permutation(keys)[:k] for _ in range(rows)])
    else:
        slots = rng.integers(-1, keys, (rows, k))
    return q, kv, slots.astype(slot), rng


def leading_masked():
    # As many leading -1 as any block of a kernel has keys, and whole blocks in the middle.
    for lead in (1, 63, 64, 65, 128, 191):
        q, kv, slots, _ = random_case(lead, 3, 8, [32, 8], 400, 192)
        slots[0, :lead] = -1
        slots[1, :lead] = 400
        slots[2, 64:128] = -1
        attend(q, kv, slots, 32)


def nan_in_unused_rows():
    # Slot 0 is where a masked index lands when it is clamped instead of skipped.
    q, kv, slots, rng = random_case(1, 4, 8, [32, 8], 300, 64)
    slots[slots == 0] = 1
    slots[0, ::2] = -1
    slots[1, :40] = -7
    slots[2, 10:] = -1
    slots[3] = -1
    used = np.unique(slots[slots >= 0])
    unused = np.setdiff1d(np.arange(300), used)
    expect(0 in unused, "slot 0 is used")
    for element, nan in (("bf16", 0x7FC1), ("bf16", 0xFFFF), ("bf16", 0x7F80)):
        poisoned = kv.copy()
        poisoned[unused] = nan
        out, _ = attend(q, poisoned, slots, 32, element)
        expect(np.isfinite(widen(out)).all(), "a NaN reached the output")
    # Also behind topk_length, and in rows without a request.
    length = np.array([64, 50, 3, 10], "<i4")
    req = np.array([0, -1, 0, 0], "<i4")
    slots[0] = rng.permutation(np.arange(1, 200))[:64]
    slots[1:] = 0
    slots[2, :3] = [7, 8, 9]
    slots[3, :10] = -1
    used = np.unique(np.concatenate([slots[0], [7, 8, 9]]))
    poisoned = kv.copy()
    poisoned[np.setdiff1d(np.arange(300), used)] = 0x7FC1
    attend(q, poisoned, slots, 32, length=length, req=req)


def widths():
    for k in (1, 2, 7, 64, 192, 256, 2051):
        q, kv, slots, rng = random_case(k, 2, 4, [32, 8], 2500, k)
        slots[1, rng.random(k) < 0.3] = -1
        attend(q, kv, slots, 32)


def fewer_keys_than_k():
    for keys in (1, 2, 5, 63):
        q, kv, slots, _ = random_case(keys, 4, 8, [32, 8], keys, 192)
        slots[0] = -1
        slots[0, :keys] = np.arange(keys)
        slots[1] = -1
        slots[1, -keys:] = np.arange(keys)
        attend(q, kv, slots, 32)
    # A cache without rows.
    q, kv, slots, _ = random_case(3, 2, 8, [32, 8], 1, 64)
    out, lse = attend(q, kv[:0], np.zeros_like(slots), 32)
    expect(not out.any() and np.isneginf(lse).all(), "an empty cache gave something")


def beyond_the_cache():
    for slot, far in (("<i4", [300, 301, 2**31 - 1, -2**31]),
                      ("<i8", [300, 2**31, 2**32, 2**32 + 5, 2**62, 2**63 - 1, -2**63])):
        q, kv, slots, _ = random_case(2, 2, 8, [32, 8], 300, 64, slot=slot)
        slots[0, 3:3 + len(far)] = far
        slots[1, :] = (far * 64)[:64]
        attend(q, kv, slots, 32)


def no_valid_key():
    sinks = np.linspace(-3, 3, 8).astype("<f4")
    for base in ("e", "two"):
        for sink in (None, sinks):
            q, kv, slots, _ = random_case(5, 5, 8, [32, 8], 300, 64)
            slots[1] = -1
            slots[2] = 300
            slots[3, ::2], slots[3, 1::2] = -5, 1000
            length = np.array([64, 64, 64, 64, 0], "<i4")
            out, lse = attend(q, kv, slots, 32, lse=base, sink=sink, length=length)
            expect((widen(out[1:]) == 0).all(), "out is not exactly 0")
            expect(np.isneginf(lse[1:]).all(), "lse is not -inf")


def duplicates():
    q, kv, slots, _ = random_case(6, 3, 8, [32, 8], 300, 64)
    slots[0, 1:30] = slots[0, 0]
    slots[1] = slots[1, 0]
    slots[2, 32:] = slots[2, :32]
    out, lse = attend(q, kv, slots, 32)
    # 64 times the same key: the logarithm of 64 more than once, out the same row.
    once = np.full_like(slots, -1)
    once[:, 0] = slots[:, 0]
    single, single_lse = attend(q, kv, once, 32)
    expect(np.allclose(lse[1], single_lse[1] + np.log(64), atol=1e-5), "duplicates count once")
    expect(np.abs(widen(out[1]) - widen(single[1])).max() <= 0.02, "duplicates change out")


def topk_length():
    lengths = [-(2**31), -1, 0, 1, 63, 64, 65, 191, 192, 193, 2**31 - 1]
    q, kv, slots, _ = random_case(7, len(lengths), 8, [32, 8], 300, 192)
    attend(q, kv, slots, 32, length=np.array(lengths, "<i4"))
    slots[:, ::3] = -1
    attend(q, kv, slots, 32, length=np.array(lengths, "<i4"))


def sink():
    for values in ([-np.inf] * 8, [0.0] * 8, [-1e4, -3e38, 1e4, 3e38, -np.inf, 30.0, -30.0, 4.0]):
        for base in ("e", "two"):
            element = "f32" if base == "e" else "bf16"
            q, kv, slots, _ = random_case(8, 4, 8, [32, 8], 300, 64, element)
            slots[1, :40] = -1
            slots[2] = -1
            # An f32 exponent of 30 is worth more units than are allowed.
            array = np.array([6.0 if v == 30 and element == "f32" else v for v in values], "<f4")
            out, lse = attend(q, kv, slots, 32, element, sink=array, lse=base)
            plain, plain_lse = attend(q, kv, slots, 32, element, lse=base)
            expect_equal(lse, plain_lse, "lse with and without sink")
            if np.isneginf(array).all():
                expect_equal(out, plain, "out with a sink of -inf and without")
            else:
                expect((out != plain).any(), "the sink changes nothing")


def sink_of_all_heads():
    # The op takes its rank's part of a sink that has the mesh's heads.
    for ranks in (2, 3, 4, 8):
        heads = 3 * ranks
        q, kv, slots, rng = random_case(ranks, 3, heads, [32, 8], 300, 64)
        array = rng.standard_normal(heads).astype("<f4") * 4
        attend(q, kv, slots, 32, sink=array, ranks=ranks)


def sink_of_own_heads():
    for ranks in (2, 3, 4, 8):
        q, kv, slots, rng = random_case(ranks, 3, 3 * ranks, [32, 8], 300, 64)
        one = rng.standard_normal(3).astype("<f4") * 4
        text = module(q, kv, slots, 32, "bf16", sink=one, lse="e", ranks=ranks)
        found = run(text, dict(q0=q[0], q1=q[1], kv=kv, slots=slots, sink=one))
        check("bf16", found, reference(q, kv, slots, 32, sink=np.tile(one, ranks)), "e")


def lse_base():
    q, kv, slots, _ = random_case(9, 3, 8, [32, 8], 300, 64)
    _, natural = attend(q, kv, slots, 32, lse="e")
    _, two = attend(q, kv, slots, 32, lse="two")
    expect(np.allclose(two * np.log(2), natural, rtol=1e-5), "bases disagree")
    # Without #shardq.lse a second result has base e.
    text = module(q, kv, slots, 32, "bf16", lse="e").replace(", lse = #shardq.lse<base = e>", "")
    found = run(text, dict(q0=q[0], q1=q[1], kv=kv, slots=slots))
    expect_equal(found[1], natural, "default base")
    # Large scores of either sign neither overflow nor vanish.
    for sign in (1, -1):
        far = [round_to("f32", np.full((1, 8, 40), 10.0))]
        keys = round_to("f32", np.linspace(8, 10, 300)[:, None] * np.full((1, 40), sign))
        for base in ("e", "two"):
            _, lse = attend(far, keys, slots[:1], 32, "f32", lse=base, scale=1.0)
            expect(np.abs(lse).min() > 3000, "lse is too small")


def rows_without_request():
    req = np.array([0, -1, 1, -1, -2, 5], "<i4")
    for lse in (None, "e"):
        q, kv, slots, _ = random_case(10, 6, 8, [32, 8], 300, 64)
        found = attend(q, kv, slots, 32, req=req, lse=lse)
        expect(not widen(found[0][req < 0]).any(), "a row without request has output")


def head_counts():
    for heads in (1, 8, 16, 24, 31, 64, 65, 96, 128):
        q, kv, slots, _ = random_case(heads, 2, heads, [64, 8], 200, 70)
        slots[1, :20] = -1
        attend(q, kv, slots, 64)


def full_dimensions():
    # DeepSeek-V3.2 with and without rope.
    q, kv, slots, _ = random_case(11, 2, 128, [512, 64], 2200, 2048)
    attend(q, kv, slots, 512, scale=0.07)
    q, kv, slots, _ = random_case(12, 2, 31, [512], 2200, 2051)
    attend(q, kv, slots, 512, scale=0.07)


def element_types():
    for element in ("bf16", "f16", "f32"):
        for slot in ("<i4", "<i8"):
            for dims in ([32, 8], [40], [17, 6]):
                q, kv, slots, _ = random_case(13, 3, 5, dims, 300, 64, element, slot)
                slots[1, :11] = -1
                attend(q, kv, slots, 17, element)


def parts():
    """One part and two: the same numbers from the same bits."""
    q, kv, slots, _ = random_case(14, 3, 8, [32, 8], 300, 64)
    two = attend(q, kv, slots, 32)
    one = attend([np.concatenate(q, axis=2)], kv, slots, 32)
    check("bf16", one, reference(q, kv, slots, 32), "e")
    for a, b, name in zip(one, two, ("out", "lse")):
        difference = np.abs(widen(a) - widen(b)).max()
        expect(difference < 0.02, f"{name} differs by {difference} between one part and two")
    for value in (1, 31, 33, 40):
        attend(q, kv, slots, value)


def no_rows():
    q, kv, slots, _ = random_case(15, 1, 8, [32, 8], 300, 64)
    out, lse = attend([part[:0] for part in q], kv, slots[:0], 32, req=np.zeros(0, "<i4"),
                      length=np.zeros(0, "<i4"))
    expect(out.shape == (0, 8, 32) and lse.shape == (0, 8), "shapes of no rows")


def repeated():
    # shardq-run compares the 20 launches; two processes are compared here.
    q, kv, slots, rng = random_case(16, 5, 16, [64, 8], 3000, 2051)
    slots[rng.random(slots.shape) < 0.2] = -1
    first = attend(q, kv, slots, 64, "bf16", "--repeat=20")
    again = attend(q, kv, slots, 64, "bf16")
    for a, b in zip(first, again):
        expect_equal(a, b, "another process")


def many_rows():
    # Beyond the 65,535 of a grid dimension.
    q, kv, slots, rng = random_case(17, 70001, 1, [4, 2], 9, 3)
    slots[rng.random(slots.shape) < 0.2] = -1
    attend(q, kv, slots, 4)


def large_cache():
    """Rows beyond 2^31 elements and 4 GiB; the file is sparse."""
    with open("/proc/meminfo") as file:
        available = [int(line.split()[1]) for line in file if line.startswith("MemAvailable")][0]
    with Directory() as directory:
        disk = os.statvfs(directory)
        if available < 14 << 20 or disk.f_bavail * disk.f_frsize < 12 << 30:
            print("skipped: needs 14 GB of memory and 12 GB of disk")
            return
        rows, dim = 4_300_000, 512
        path = os.path.join(directory, "kv.npy")
        kv = np.lib.format.open_memmap(path, mode="w+", dtype="<u2", shape=(rows, dim))
        # Around 2^31 elements, 2^31 bytes, 4 GiB, the ends; and where a 32-bit
        # offset that wraps around would read instead, other rows.
        edges = [0, 1, 2**21 - 1, 2**21, 2**21 + 1, 2**22 - 1, 2**22, 2**22 + 1, rows - 1]
        wrapped = [rows - 1 - 2**22, rows - 1 - 2**21]
        rng = np.random.default_rng(18)
        for row in edges + wrapped:
            kv[row] = round_to("bf16", rng.standard_normal(dim))
        kv.flush()
        q = round_to("bf16", rng.standard_normal((len(edges) + 1, 2, dim)))
        slots = np.full((len(edges) + 1, 16), -1)
        slots[:-1, 5] = edges
        slots[-1, :len(edges)] = edges
        # Both slot types at once: the file takes longer to read than to attend.
        found = run(f"""
func.func @attend(%q: tensor<?x2x{dim}xbf16>, %kv: tensor<?x{dim}xbf16>,
                  %narrow: tensor<?x16xi32>, %wide: tensor<?x16xi64>)
    -> (tensor<?x2x{dim}xbf16>, tensor<?x2xf32>, tensor<?x2x{dim}xbf16>, tensor<?x2xf32>) {{
  %0, %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%narrow) {{scale = {SCALE} : f32}}
      : (tensor<?x2x{dim}xbf16>, tensor<?x{dim}xbf16>, tensor<?x16xi32>)
      -> (tensor<?x2x{dim}xbf16>, tensor<?x2xf32>)
  %2, %3 = shardq.sparse_mla q(%q) kv(%kv) slots(%wide) {{scale = {SCALE} : f32}}
      : (tensor<?x2x{dim}xbf16>, tensor<?x{dim}xbf16>, tensor<?x16xi64>)
      -> (tensor<?x2x{dim}xbf16>, tensor<?x2xf32>)
  return %0, %1, %2, %3 : tensor<?x2x{dim}xbf16>, tensor<?x2xf32>, tensor<?x2x{dim}xbf16>,
                          tensor<?x2xf32>
}}
""", dict(q=q, kv=path, narrow=slots.astype("<i4"), wide=slots.astype("<i8")))
        expected = reference([q], kv, slots, dim)
        check("bf16", found[:2], expected, "e")
        check("bf16", found[2:], expected, "e")


if __name__ == "__main__":
    main(globals())
