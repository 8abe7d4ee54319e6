"""pcp.py PCP TP DCP [INTERLEAVE [LAYERS]]: attentions of V3.2's form in programs whose
ranks form PCP groups of TP; with an interleave, over KV that is sharded over DCP of each
TP, or where DCP is "all" over all ranks. KV rows of the step are written. 12 heads, a top-k of 12, cache blocks of 64."""

import sys

pcp, tp = (int(a) for a in sys.argv[1:3])
dcp = tp if sys.argv[3] == "all" else int(sys.argv[3])
mesh = f'"pcp" = {pcp}, "tp" = {tp}, "dcp" = {dcp} in "tp"'
kv_axis = "dcp"
if sys.argv[3] == "all":
    mesh += f', "kv" = {pcp * tp} of ["pcp", "dcp"]'
    kv_axis = "kv"
interleave = int(sys.argv[4]) if len(sys.argv) > 4 else 0
layers = int(sys.argv[5]) if len(sys.argv) > 5 else 1
heads = 12 // tp
split = '{shardq.split = #shardq.split<@ranks, 1 over "tp">}'
kv_sharding = f', kv = interleave<{interleave}> ["{kv_axis}"]' if interleave else ""
arguments, body, values, types = [], "", [], []
for layer in range(layers):
    arguments += [f"%q_nope{layer}: tensor<?x{heads}x32xbf16> {split}",
                  f"%q_rope{layer}: tensor<?x{heads}x8xbf16> {split}", f"%kv{layer}: tensor<?x40xbf16>",
                  f"%new{layer}: tensor<?x40xbf16>"]
    body += f"""
  %all{layer} = shardq.write_rows %new{layer} at(%kv_slots) into(%kv{layer})
      : (tensor<?x40xbf16>, tensor<?xi64>, tensor<?x40xbf16>) -> tensor<?x40xbf16>
  %out{layer}, %lse{layer} = shardq.sparse_mla q(%q_nope{layer}, %q_rope{layer}) kv(%all{layer}) slots(%slots)
      rows(%req) {{scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]{kv_sharding}>}}
      : (tensor<?x{heads}x32xbf16>, tensor<?x{heads}x8xbf16>, tensor<?x40xbf16>,
         tensor<?x12xi32>, tensor<?xi32>) -> (tensor<?x{heads}x32xbf16>, tensor<?x{heads}xf32>)"""
    values += [f"%out{layer}", f"%lse{layer}"]
    types += [f"tensor<?x{heads}x32xbf16>", f"tensor<?x{heads}xf32>"]
print(f"""
shardq.mesh @ranks [{mesh}]
func.func @attention(
    {", ".join(arguments)}, %kv_slots: tensor<?xi64>,
    %iq: tensor<?x4x16xbf16>, %iw: tensor<?x4xf32>, %ik: tensor<?x16xbf16>, %inew: tensor<?x16xbf16>,
    %ik_slots: tensor<?xi32>, %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>,
    %index_table: tensor<?x?xi32>, %rows: index)
    -> ({", ".join(f"{t} {split}" for t in types)}) {{
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      {{speculative_tokens = 1 : i64}}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %ik_all = shardq.write_rows %inew at(%ik_slots) into(%ik)
      : (tensor<?x16xbf16>, tensor<?xi32>, tensor<?x16xbf16>) -> tensor<?x16xbf16>
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik_all) table(%index_table)
      rows(%req, %visible) {{block_size = 64 : i64}}
      : (tensor<?x4x16xbf16>, tensor<?x4xf32>, tensor<?x16xbf16>, tensor<?x?xi32>,
         tensor<?xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req)
      {{block_size = 64 : i64, block_stride_rows = 70 : i64}}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x12xi32>{body}
  return {", ".join(values)} : {", ".join(types)}
}}""")
