"""Packed rows against numpy: `packed.py CASE...`."""

import numpy as np
from context import BY_RANK, mesh
from harness import expect, expect_equal, main, round_to, run, tensor, widen

GROUP = 128
FORMATS = [(512, "f8E4M3FN", 64, "scales_rope"), (512, "i8", 64, "rope_scales"), (128, "f8E4M3FN", 0, "rope_scales"),
           (384, "i8", 6, "scales_rope"), (256, "f8E4M3FN", 64, "rope_scales"), (128, "i8", 16, "scales_rope")]


class Format:
    def __init__(self, latent, element, rope, order):
        self.text = f"#shardq.packed_rows<{latent} x {element}, rope = {rope}, order = {order}>"
        self.latent, self.element, self.rope = latent, element, rope
        self.groups, self.dim = latent // GROUP, latent + rope
        self.bytes = latent + 4 * self.groups + 2 * rope
        self.scales = latent + (2 * rope if order == "rope_scales" else 0)
        self.ropes = latent + (4 * self.groups if order == "scales_rope" else 0)
        self.largest = 127 if element == "i8" else 448
        self.packed, self.values = tensor("i8", "?", self.bytes), tensor("bf16", "?", self.dim)


def numbers():
    """The f8E4M3FN of each byte."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0**(exponent - 10))
    value[bits & 127 == 127] = np.nan
    return np.where(bits & 128, -value, value)


def unpack_oracle(form, packed):
    packed = packed.view(np.uint8)
    rows = len(packed)
    values = numbers()[packed[:, :form.latent]]
    if form.element == "i8":
        values = packed[:, :form.latent].view(np.int8).astype(float)
    scales = packed[:, form.scales:form.scales + 4 * form.groups].copy().view("<f4").reshape(rows, form.groups)
    with np.errstate(all="ignore"):
        product = values.astype("<f4") * np.repeat(scales, GROUP, axis=1)
    rope = packed[:, form.ropes:form.ropes + 2 * form.rope].copy().view("<u2").reshape(rows, form.rope)
    return np.concatenate([round_to("bf16", product), rope], axis=1)


def pack_oracle(form, rows):
    latent = widen(rows[:, :form.latent]).astype("<f4").reshape(len(rows), form.groups, GROUP)
    finite = np.isfinite(latent).all(axis=2)
    scale = np.maximum(np.abs(latent).max(axis=2) / np.float32(form.largest), np.float32(2.0**-100))
    with np.errstate(all="ignore"):
        scaled = (latent / scale[..., None]).astype(float)
    if form.element == "i8":
        codes = np.round(np.where(finite[..., None], scaled, 0)).astype(np.int8).view(np.uint8)
    else:
        # The nearest of all numbers; of two, the even one.
        table = numbers()[:127]
        size = np.abs(np.where(finite[..., None], scaled, 0))
        above = np.clip(np.searchsorted(table, size), 1, 126)
        low, high = table[above - 1], table[above]
        up = (high - size < size - low) | ((high - size == size - low) & (above % 2 == 0))
        codes = np.where(up, above, above - 1) | np.where(np.signbit(scaled), 128, 0)
    codes = np.where(finite[..., None], codes, 0).astype(np.uint8).reshape(len(rows), form.latent)
    packed = np.zeros((len(rows), form.bytes), np.uint8)
    packed[:, :form.latent] = codes
    scale = np.where(finite, scale, np.float32(np.nan)).astype("<f4")
    packed[:, form.scales:form.scales + 4 * form.groups] = scale.view(np.uint8).reshape(len(rows), 4 * form.groups)
    packed[:, form.ropes:form.ropes + 2 * form.rope] = (
        np.ascontiguousarray(rows[:, form.latent:]).view(np.uint8).reshape(len(rows), 2 * form.rope))
    return packed.view(np.int8)


def unpack_text(form):
    return f"shardq.unpack_rows %p {{format = {form.text}}} : ({form.packed}) -> {form.values}"


def unpack():
    rng = np.random.default_rng(0)
    for form in (Format(*f) for f in FORMATS):
        for rows in (0, 1, 7):
            packed = rng.integers(0, 256, (rows, form.bytes)).astype(np.uint8)
            # Every byte, with scales of every size and sign.
            packed[:, :form.latent] = (np.arange(form.latent) + 3 * np.arange(rows)[:, None]) % 256
            scales = rng.standard_normal((rows, form.groups)) * 2.0**rng.integers(-120, 100, (rows, form.groups))
            packed[:, form.scales:form.scales + 4 * form.groups] = scales.astype("<f4").view(np.uint8).reshape(rows, 4 * form.groups)
            (found,) = run(f"""
func.func @unpack(%p: {form.packed}) -> {form.values} {{
  %r = {unpack_text(form)}
  return %r : {form.values}
}}
""", dict(p=packed.view(np.int8)))
            want = unpack_oracle(form, packed)
            nan = np.isnan(widen(want))
            nan[:, form.latent:] = False
            expect_equal(np.isnan(widen(found))[:, :form.latent], nan[:, :form.latent], f"NaN of {form.text}")
            expect_equal(found[~nan], want[~nan], form.text)


def pack():
    rng = np.random.default_rng(1)
    for form in (Format(*f) for f in FORMATS):
        rows = rng.standard_normal((16, form.dim)) * 2.0**rng.integers(-140, 100, (16, 1))
        rows[0] = 0
        rows[1, 1:] = 0
        rows[2, 5], rows[3, form.latent - 1], rows[4, 7] = np.nan, np.inf, -np.inf
        # Halfway between two numbers: the largest is a power of two times the format's.
        rows[5, :form.latent] = np.arange(form.latent) / 2.0 - 60
        rows[6, :form.latent] = form.largest * 2.0**-(np.arange(form.latent) % 21.0)
        rows[7, :form.latent] = np.arange(form.latent) % 17 * 2.0**-10
        rows[5:8, ::GROUP][:, :form.groups] = -form.largest
        rows[8] = 2.0**-133
        given = round_to("bf16", rows)
        packed, back = run(f"""
func.func @pack(%r: {form.values}) -> ({form.packed}, {form.values}) {{
  %p = shardq.pack_rows %r {{format = {form.text}}} : ({form.values}) -> {form.packed}
  %b = {unpack_text(form)}
  return %p, %b : {form.packed}, {form.values}
}}
""", dict(r=given))
        want = pack_oracle(form, given)
        expect_equal(packed, want, form.text)
        # What comes back is off by half a step of the largest at most.
        latent, found = widen(given)[:, :form.latent], widen(back)[:, :form.latent]
        groups = np.abs(latent).reshape(len(rows), -1, GROUP)
        finite = np.isfinite(groups).all(axis=2)
        expect_equal(np.isnan(found).reshape(groups.shape), np.broadcast_to(~finite[..., None], groups.shape), "NaN")
        step = np.where(finite, groups.max(axis=2), 0)[..., None] * ((1 / 254 if form.element == "i8" else 1 / 28) + 2.0**-8)
        off = np.where(finite[..., None], np.abs(latent - found).reshape(groups.shape), 0)
        bad = np.argwhere(off > step * 1.01 + 2.0**-99)
        expect(len(bad) == 0, f"{form.text}: values at {bad[:3].tolist()} are far off")
        expect_equal(back[:, form.latent:], given[:, form.latent:], "values with rope")


def gathered():
    # Packed rows that were gathered, and gathered rows that were unpacked before.
    rng = np.random.default_rng(2)
    for ranks, form in zip((1, 2, 3, 4, 8), (Format(*f) for f in FORMATS)):
        kv = pack_oracle(form, round_to("bf16", rng.standard_normal((ranks * 24, form.dim))))
        count = "tensor<1xi32>"
        gather = "block_size = 4 : i64, interleave = 4 : i64"
        start = 'over @ranks "dcp" {block_size = 4 : i64}'
        late, early = run(f"""
{mesh(ranks)}
func.func @gather(%p: {form.packed} {BY_RANK}, %table: tensor<?x?xi32>, %lens: tensor<?xi32>)
    -> ({form.values} {BY_RANK}, {form.values} {BY_RANK}) {{
  %blocks, %inverse, %count = shardq.gather_blocks %table lengths(%lens) over @ranks "dcp" {{{gather}}}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, {count})
  %h0 = shardq.gather_kv_start(%p) blocks(%blocks, %count) {start}
      : ({form.packed}, tensor<?xi32>, {count}) -> !shardq.kv_gather
  %g0 = shardq.gather_kv_finish %h0 : (!shardq.kv_gather) -> {form.packed}
  %late = shardq.unpack_rows %g0 {{format = {form.text}}} : ({form.packed}) -> {form.values}
  %rows = {unpack_text(form)}
  %h1 = shardq.gather_kv_start(%rows) blocks(%blocks, %count) {start}
      : ({form.values}, tensor<?xi32>, {count}) -> !shardq.kv_gather
  %early = shardq.gather_kv_finish %h1 : (!shardq.kv_gather) -> {form.values}
  return %late, %early : {form.values}, {form.values}
}}
""", dict(p=kv, table=np.array([[3, 1], [5, 2]], "<i4"), lens=np.array([8 * ranks, 3], "<i4")), "--max-kv-tokens=512")
        expect_equal(late, early, form.text)
        expect(late.any(), "no rows were gathered")


def attention():
    # On packed rows, as on those that were unpacked before.
    rng = np.random.default_rng(3)
    for form in (Format(*f) for f in FORMATS[:4]):
        kv = pack_oracle(form, round_to("bf16", rng.standard_normal((40, form.dim))))
        kv[7] = -1  # reads as NaN, and nobody does
        q = round_to("bf16", rng.standard_normal((5, 3, form.dim)))
        slots = rng.permutation(np.delete(np.arange(-3, 40), 10))[:40].reshape(5, 8).astype("<i4")
        qt, out = tensor("bf16", "?", 3, form.dim), tensor("bf16", "?", 3, form.latent)
        results = f"{out}, tensor<?x3xf32>"
        a, al, b, bl = run(f"""
func.func @attend(%q: {qt}, %p: {form.packed}, %s: tensor<?x8xi32>) -> ({results}, {results}) {{
  %a, %al = shardq.sparse_mla q(%q) kv(%p) slots(%s) {{scale = 0.05 : f32, kv_format = {form.text}}}
      : ({qt}, {form.packed}, tensor<?x8xi32>) -> ({results})
  %r = {unpack_text(form)}
  %b, %bl = shardq.sparse_mla q(%q) kv(%r) slots(%s) {{scale = 0.05 : f32}}
      : ({qt}, {form.values}, tensor<?x8xi32>) -> ({results})
  return %a, %al, %b, %bl : {results}, {results}
}}
""", dict(q=q, p=kv, s=slots))
        expect_equal(a, b, form.text)
        expect_equal(al, bl, form.text)
        expect(np.isfinite(widen(a)).all() and a.any(), "outputs")


if __name__ == "__main__":
    main(globals())
