"""Attention with the projections of its heads over keys of several ranks, as it is written and with the
projections moved across the exchanges, against numpy."""

import re
import subprocess

import numpy as np

from harness import Failure, expect, main, round_to, run, split, tensor, widen

NAMES = ("q", "rope", "w_uk", "w_uv", "kv", "slots", "rows", "w_q", "w_o")
GATED = ("q", "rope", "w_uk", "w_uv", "kv", "topk", "query_start", "seq_lens", "table", "rows")
ROWS, KEYS, TOPK, ROPE, LATENT, NOPE, VALUE = 5, 9, 6, 8, 32, 16, 24
# Of projections one behind the other, what the first of queries takes and the last of outputs makes.
FIRST, LAST = 8, 16


def project(name, heads, values, weights, k, n, order):
    """Weights of [h, k, n], or with `order` "hnk" of [h, n, k], and either operand first."""
    wide, dims = tensor("f32", "?", heads, n), {"h": heads, "k": k, "n": n}
    w = tensor("bf16", *(dims[d] for d in order))
    x, y = (f"affine_map<(t, h, n, k) -> ({', '.join(d)})>" for d in ("thk", order))
    given = [(values, tensor("bf16", "?", heads, k), x), (weights, w, y)]
    if order == "hnk":
        given.reverse()
    (a, ta, ma), (b, tb, mb) = given
    return f"""
  %{name}_empty = tensor.empty(%rows) : {wide}
  %{name}_zeros = linalg.fill ins(%zero : f32) outs(%{name}_empty : {wide}) -> {wide}
  %{name}_f32 = linalg.contract indexing_maps = [{ma}, {mb}, affine_map<(t, h, n, k) -> (t, h, n)>]
      ins({a}, {b} : {ta}, {tb}) outs(%{name}_zeros : {wide}) -> {wide}
  %{name} = arith.truncf %{name}_f32 : {wide} to {tensor("bf16", "?", heads, n)}"""


def program(tp, dcp, heads, order, extra, chain=False):
    group = heads * dcp
    shapes = {"h": heads, "k": LATENT, "n": VALUE}
    q, rope = tensor("bf16", "?", heads, FIRST if chain else NOPE), tensor("bf16", "?", heads, ROPE)
    w_uk, w_uv = tensor("bf16", heads, NOPE, LATENT), tensor("bf16", *(shapes[d] for d in order))
    kv, slots = tensor("bf16", "?", LATENT + ROPE), tensor("i32", "?", TOPK)
    absorbed, everyone = tensor("bf16", "?", heads, LATENT), tensor("bf16", "?", group, LATENT + ROPE)
    partial, lse = tensor("bf16", "?", group, LATENT), tensor("f32", "?", group)
    out, v = tensor("bf16", "?", heads, LATENT), tensor("bf16", "?", heads, VALUE)
    result, types = "%v", f"{v} {split(1)}"
    if extra:
        # Own heads of the weights are wanted elsewhere too.
        result, types = "%v, %w_uv", f"{v} {split(1)}, {w_uv} {split(0)}"
    before = after = more = ""
    queries = "%q"
    if chain:
        queries, result, types = "%first", "%last", f"{tensor('bf16', '?', heads, LAST)} {split(1)}"
        before = project("first", heads, "%q", "%w_q", FIRST, NOPE, "hkn")
        after = project("last", heads, "%v", "%w_o", VALUE, LAST, "hkn")
        more = "".join(f", %{name}: {tensor('bf16', heads, k, n)} {split(0)}"
                       for name, k, n in (("w_q", FIRST, NOPE), ("w_o", VALUE, LAST)))
    return f"""
shardq.mesh @ranks ["tp" = {tp}, "dcp" = {dcp} in "tp"]
func.func @attention(%q: {q} {split(1)}, %rope: {rope} {split(1)}, %w_uk: {w_uk} {split(0)},
    %w_uv: {w_uv} {split(0)}, %kv: {kv} {split(0)}, %slots: {slots} {split(1)}, %rows: index{more}) -> ({types}) {{
  %zero = arith.constant 0.0 : f32{before}{project("nope", heads, queries, "%w_uk", NOPE, LATENT, "hkn")}
  %all = shardq.gather_query(%nope, %rope) over @ranks "dcp" : ({absorbed}, {rope}) -> {everyone}
  %partial, %lse = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {{scale = 0.2 : f32}}
      : ({everyone}, {kv}, {slots}) -> ({partial}, {lse})
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : ({partial}, {lse}) -> {out}{
      project("v", heads, "%out", "%w_uv", LATENT, VALUE, order)}{after}
  return {result} : {types.replace(" " + split(1), "").replace(" " + split(0), "")}
}}
"""


def passes(text, names, *options):
    done = subprocess.run(["shardq-opt", *options], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(done.stderr)
    return re.sub(r"%arg(\d)", lambda m: "%" + names[int(m[1])], done.stdout)


def move(text, memory=1 << 20):
    return passes(text, NAMES, f"--shardq-move-projections=memory={memory} remarks=false")


def reference(tp, dcp, heads, arrays, order):
    q, rope, w_uk, w_uv, kv, slots = (widen(arrays[n]) for n in ("q", "rope", "w_uk", "w_uv", "kv", "slots"))
    if order == "hnk":
        w_uv = w_uv.transpose(0, 2, 1)
    if "w_q" in arrays:
        q = widen(round_to("bf16", np.einsum("thk,hkn->thn", q, widen(arrays["w_q"]))))
    nope = widen(round_to("bf16", np.einsum("thk,hkn->thn", q, w_uk)))
    whole = np.concatenate([nope, rope], 2)
    kv = kv.reshape(tp, KEYS, -1)
    slots = slots.reshape(ROWS, tp, TOPK).transpose(1, 0, 2).astype(int)
    out = np.zeros((ROWS, heads * tp, LATENT))
    for t in range(ROWS):
        for h in range(heads * tp):
            first = h // (heads * dcp) * dcp
            keys = [kv[r, s] for r in range(first, first + dcp) for s in slots[r, t] if s >= 0]
            if not keys:
                continue
            keys = np.array(keys)
            p = np.exp(keys @ whole[t, h] * 0.2)
            out[t, h] = p / p.sum() @ keys[:, :LATENT]
    v = np.einsum("thk,hkn->thn", out, w_uv)
    return np.einsum("thk,hkn->thn", v, widen(arrays["w_o"])) if "w_o" in arrays else v


def make(tp, heads, order):
    rng = np.random.default_rng(tp)
    shapes = {"h": heads * tp, "k": LATENT, "n": VALUE}

    def normal(*shape):
        return round_to("bf16", rng.standard_normal(shape))

    slots = rng.integers(0, KEYS, (ROWS, tp * TOPK)).astype("<i4")
    slots[rng.random(slots.shape) < 0.3] = -1
    # A row without keys on one rank, and one without any.
    slots[0, :TOPK] = -1
    slots[1] = -1
    return dict(q=normal(ROWS, heads * tp, NOPE), rope=normal(ROWS, heads * tp, ROPE),
                w_uk=normal(heads * tp, NOPE, LATENT), w_uv=normal(*(shapes[d] for d in order)),
                kv=normal(tp * KEYS, LATENT + ROPE), slots=slots)


def moved():
    for tp, dcp, order, extra in ((1, 1, "hkn", False), (2, 2, "hkn", False), (3, 3, "hnk", True),
                                  (4, 4, "hnk", False), (8, 8, "hkn", True), (4, 2, "hkn", False)):
        heads = 3
        arrays = make(tp, heads, order)
        text = program(tp, dcp, heads, order, extra)
        other = move(text)
        # Heads of a group that is not all of tp are of weights that no rank has.
        narrow = f"tensor<?x{heads * dcp}x{VALUE}xf32>" in other
        expect(narrow == (tp == dcp), f"over {tp} and {dcp} ranks the wrong thing is merged:\n{other}")
        exact = reference(tp, dcp, heads, arrays, order)
        for what, module in (("as written", text), ("moved", other)):
            found = run(module, dict(arrays, rows=np.array(ROWS)), f"--max-tokens={ROWS}")
            off = np.linalg.norm(widen(found[0]) - exact, axis=2)
            allowed = 8e-3 * np.linalg.norm(exact, axis=2)
            expect((off <= allowed).all(), f"{tp} ranks, {what}: {off.max()} off")
            if extra:
                expect((found[1] == arrays["w_uv"]).all(), f"{tp} ranks, {what}: other weights")


def chains():
    """Projections one behind the other move in one run; a bound that is one for all stops them where it is spent."""
    for tp in (1, 2, 3, 4, 8):
        heads = 3
        arrays, rng = make(tp, heads, "hkn"), np.random.default_rng(tp)
        for name, shape in (("q", (ROWS, heads * tp, FIRST)), ("w_q", (heads * tp, FIRST, NOPE)),
                            ("w_o", (heads * tp, VALUE, LAST))):
            arrays[name] = round_to("bf16", rng.standard_normal(shape))
        exact = reference(tp, tp, heads, arrays, "hkn")
        text = program(tp, tp, heads, "hkn", False, chain=True)
        others = heads * (tp - 1) * 2
        # Outputs first: LATENT to VALUE, VALUE to LAST; then queries.
        outputs = others * (LATENT * VALUE + VALUE * LAST)
        for memory, width, gathered in ((1 << 20, LAST, FIRST), (outputs, LAST, LATENT)):
            other = move(text, memory)
            if tp > 1:
                merge = f": (tensor<?x{heads * tp}x{width}xbf16>, tensor<?x{heads * tp}xf32>)"
                gather = f": (tensor<?x{heads}x{gathered}xbf16>, tensor<?x{heads}x{ROPE}xbf16>)"
                expect(merge in other and gather in other, f"{tp} ranks, {memory} bytes: what travels is not narrow\n{other}")
            found = run(other, dict(arrays, rows=np.array(ROWS)), f"--max-tokens={ROWS}")
            off = np.linalg.norm(widen(found[0]) - exact, axis=2)
            expect((off <= 8e-3 * np.linalg.norm(exact, axis=2)).all(), f"{tp} ranks and {memory} bytes: {off.max()} off")


# Of a cache that ranks share in runs of tokens.
RUN, BLOCK, BLOCKS = 2, 4, 12


def gated_program(tp, heads):
    q, rope = tensor("bf16", "?", heads, NOPE), tensor("bf16", "?", heads, ROPE)
    w_uk, w_uv = tensor("bf16", heads, NOPE, LATENT), tensor("bf16", heads, LATENT, VALUE)
    kv, topk, table = tensor("bf16", "?", LATENT + ROPE), tensor("i32", "?", TOPK), tensor("i32", "?", "?")
    list_, out, v = tensor("i32", "?"), tensor("bf16", "?", heads, LATENT), tensor("bf16", "?", heads, VALUE)
    return f"""
shardq.mesh @ranks ["tp" = {tp}, "dcp" = {tp} in "tp"]
func.func @attention(%q: {q} {split(1)}, %rope: {rope} {split(1)}, %w_uk: {w_uk} {split(0)}, %w_uv: {w_uv} {split(0)},
    %kv: {kv} {split(0)}, %topk: {topk}, %query_start: {list_}, %seq_lens: {list_}, %table: {table}, %rows: index)
    -> ({v} {split(1)}) {{
  %zero = arith.constant 0.0 : f32{project("nope", heads, "%q", "%w_uk", NOPE, LATENT, "hkn")}
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows : ({list_}, {list_}, index) -> ({list_}, {list_})
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {{block_size = {BLOCK} : i64}}
      : ({topk}, {table}, {list_}) -> {topk}
  %out = shardq.sparse_mla q(%nope, %rope) kv(%kv) slots(%slots) rows(%req) {{scale = 0.2 : f32,
      sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<{RUN}> ["dcp"]>}}
      : ({out}, {rope}, {kv}, {topk}, {list_}) -> {out}{project("v", heads, "%out", "%w_uv", LATENT, VALUE, "hkn")}
  return %v : {v}
}}
"""


def gated():
    """Behind a gate, where one side merges and the other gathers keys: each projects for itself."""
    for tp in (2, 3, 4, 8):
        heads, rng = 3, np.random.default_rng(tp)
        text = gated_program(tp, heads)
        other = passes(text, GATED, "--shardq-dcp=step=gate remarks=false",
                       "--shardq-move-projections=memory=1048576 remarks=false")
        for narrow in (f"-> tensor<?x{heads}x{VALUE}xbf16>", f"-> tensor<?x{heads * tp}x{NOPE + ROPE}xbf16>"):
            expect(re.search(f"shardq.(combine_lse|gather_query).*{re.escape(narrow)}", other),
                   f"{tp} ranks: what travels is not narrow\n{other}")
        # A token of each of five requests; five of one, and of two.
        for starts in ([0, 1, 2, 3, 4, 5], [0, 5], [0, 4, 5]):
            requests = len(starts) - 1
            lens = rng.integers(5, 2 * BLOCK * tp, requests)
            table = rng.permutation(np.arange(1, BLOCKS))[:requests * 2].reshape(requests, 2).astype("<i4")

            def normal(*shape):
                return round_to("bf16", rng.standard_normal(shape))

            arrays = dict(q=normal(ROWS, heads * tp, NOPE), rope=normal(ROWS, heads * tp, ROPE),
                          w_uk=normal(heads * tp, NOPE, LATENT), w_uv=normal(heads * tp, LATENT, VALUE),
                          kv=normal(tp * BLOCKS * BLOCK, LATENT + ROPE),
                          query_start=np.array(starts, "<i4"), seq_lens=lens.astype("<i4"), table=table)
            topk = np.full((ROWS, TOPK), -1, "<i4")
            whole = [widen(arrays[n]) for n in ("q", "rope", "w_uk", "w_uv", "kv")]
            q, rope, w_uk, w_uv, kv = whole
            nope = widen(round_to("bf16", np.einsum("thk,hkn->thn", q, w_uk)))
            out = np.zeros((ROWS, heads * tp, LATENT))
            for row in range(ROWS):
                request = np.searchsorted(starts, row, side="right") - 1
                seen = lens[request] - (starts[request + 1] - 1 - row)
                count = rng.integers(1, min(TOPK, seen) + 1)
                topk[row, :count] = rng.choice(seen, count, replace=False)
                keys = []
                for p in topk[row, :count]:
                    rank, local = p // RUN % tp, p // (RUN * tp) * RUN + p % RUN
                    keys.append(kv[rank * BLOCKS * BLOCK + table[request, local // BLOCK] * BLOCK + local % BLOCK])
                keys = np.array(keys)
                logits = np.einsum("hd,kd->hk", np.concatenate([nope[row], rope[row]], 1), keys) * 0.2
                p = np.exp(logits - logits.max(1, keepdims=True))
                out[row] = p / p.sum(1, keepdims=True) @ keys[:, :LATENT]
            exact = np.einsum("thk,hkn->thn", out, w_uv)
            found = run(other, dict(arrays, topk=topk, rows=np.array(ROWS)), f"--max-tokens={ROWS}", "--max-requests=8",
                        f"--max-kv-tokens={tp * BLOCKS * BLOCK}")
            off = np.linalg.norm(widen(found[0]) - exact, axis=2)
            expect((off <= 8e-3 * np.linalg.norm(exact, axis=2)).all(), f"{tp} ranks, starts {starts}: {off.max()} off")


def passed():
    """Passes that give a rank weights of all heads are run as they are: results are those of their output."""
    for tp in (1, 2, 3, 4, 8):
        arrays = dict(make(tp, 3, "hkn"), rows=np.array(ROWS))
        text = program(tp, tp, 3, "hkn", False)
        pipeline = "builtin.module(shardq-move-projections{memory=1048576 remarks=false})"
        found = run(text, arrays, f"--max-tokens={ROWS}", f"--pipeline={pipeline}")
        expect((found[0] == run(move(text), arrays, f"--max-tokens={ROWS}")[0]).all(), f"{tp} ranks")


if __name__ == "__main__":
    main(globals())
