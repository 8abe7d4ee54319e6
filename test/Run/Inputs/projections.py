"""projections.py TP [DCP [TYPE]]: an attention of V3.2's form with the projections of its heads, up of queries and down of
outputs, over a KV cache that is sharded over DCP of TP ranks (all); they accumulate in TYPE (f32, else bf16). 24
heads, a top-k of 12, cache blocks of 64. Weights of outputs are the first input, and transposed."""

import sys

tp = int(sys.argv[1])
dcp = int(sys.argv[2]) if len(sys.argv) > 2 else tp
wide = sys.argv[3] if len(sys.argv) > 3 else "f32"
heads = 24 // tp
rows = '{shardq.split = #shardq.split<@ranks, 1 over "tp">}'
weights = '{shardq.split = #shardq.split<@ranks, 0 over "tp">}'


def project(name, values, k, n, w, order, swapped=False):
    dims = {"h": heads, "k": k, "n": n}
    given = [(values, f"tensor<?x{heads}x{k}xbf16>", "t, h, k"),
             (w, f"tensor<{'x'.join(str(dims[d]) for d in order)}xbf16>", ", ".join(order))]
    if swapped:
        given.reverse()
    (a, ta, ma), (b, tb, mb) = given
    out = f"tensor<?x{heads}x{n}x{wide}>"
    text = f"""
  %{name}_empty = tensor.empty(%rows) : {out}
  %{name}_zeros = linalg.fill ins(%zero : {wide}) outs(%{name}_empty : {out}) -> {out}
  %{name}_sums = linalg.contract indexing_maps = [affine_map<(t, h, n, k) -> ({ma})>, affine_map<(t, h, n, k) -> ({mb})>,
        affine_map<(t, h, n, k) -> (t, h, n)>]
      ins({a}, {b} : {ta}, {tb}) outs(%{name}_zeros : {out}) -> {out}"""
    if wide == "bf16":
        return text.replace(f"%{name}_sums", f"%{name}")
    return text + f"\n  %{name} = arith.truncf %{name}_sums : {out} to tensor<?x{heads}x{n}xbf16>"


print(f"""
shardq.mesh @ranks ["tp" = {tp}, "dcp" = {dcp} in "tp"]
func.func @attention(
    %q: tensor<?x{heads}x16xbf16> {rows}, %rope: tensor<?x{heads}x8xbf16> {rows},
    %w_uk: tensor<{heads}x16x32xbf16> {weights}, %w_uv: tensor<{heads}x12x32xbf16> {weights}, %kv: tensor<?x40xbf16>,
    %iq: tensor<?x4x16xbf16>, %iw: tensor<?x4xf32>, %ik: tensor<?x16xbf16>,
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>, %index_table: tensor<?x?xi32>)
    -> (tensor<?x{heads}x12xbf16> {rows}, tensor<?x{heads}xf32> {rows}) {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : {wide}
  %rows = tensor.dim %q, %c0 : tensor<?x{heads}x16xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%index_table) rows(%req, %visible) {{block_size = 64 : i64}}
      : (tensor<?x4x16xbf16>, tensor<?x4xf32>, tensor<?x16xbf16>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {{block_size = 64 : i64}}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x12xi32>{project("nope", "%q", 16, 32, "%w_uk", "hkn")}
  %out, %lse = shardq.sparse_mla q(%nope, %rope) kv(%kv) slots(%slots) rows(%req)
      {{scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}}
      : (tensor<?x{heads}x32xbf16>, tensor<?x{heads}x8xbf16>, tensor<?x40xbf16>, tensor<?x12xi32>, tensor<?xi32>)
      -> (tensor<?x{heads}x32xbf16>, tensor<?x{heads}xf32>){project("v", "%out", 32, 12, "%w_uv", "hnk", swapped=True)}
  return %v, %lse : tensor<?x{heads}x12xbf16>, tensor<?x{heads}xf32>
}}""")
