"""dcp.py TP DCP INTERLEAVE [LAYERS [BASE]] [WORD...]: attentions of V3.2's form over a KV cache
that is sharded over DCP of TP ranks; 24 heads, a top-k of 12, cache blocks of 64.

Words: `tokens`, each rank has a contiguous shard of the rows and the heads of its group; `given`, requests
of rows are an argument; `sink`, sinks of all heads, `ownsink`, of those of the rank."""

import sys

words = {"tokens", "given", "sink", "ownsink"} & set(sys.argv)
numbers = [a for a in sys.argv[1:] if a not in words]
tp, dcp, interleave = (int(a) for a in numbers[:3])
layers = int(numbers[3]) if len(numbers) > 3 else 1
base = numbers[4] if len(numbers) > 4 else "e"
tokens = "tokens" in words
heads = 24 // (tp // dcp if tokens else tp)
split = '{shardq.split = #shardq.split<@ranks, 1 over "tp">}'
own = '{shardq.split = #shardq.split<@ranks, 0 over "tp">}'
rows = ""
# A group of all ranks may go by the name of the axis itself.
axis = "tp" if dcp == tp and interleave == 2 else "dcp"
if tokens:
    split = rows = f'{{shardq.split = #shardq.split<@ranks, 0 over "{axis}">}}'
    sharding = f'tokens = contiguous ["{axis}"]'
else:
    sharding = 'heads = ["tp"]'
arguments, body, values, types = [], "", [], []
if "sink" in words:
    arguments.append(f"%sink: tensor<{heads if tokens else 24}xf32>")
if "ownsink" in words:
    arguments.append(f"%sink: tensor<{heads}xf32> {own}")
sink, sink_type = ("", "") if not {"sink", "ownsink"} & words else (
    " sink(%sink)", ", " + arguments[0].split()[1])
for layer in range(layers):
    arguments += [f"%q_nope{layer}: tensor<?x{heads}x32xbf16> {split}",
                  f"%q_rope{layer}: tensor<?x{heads}x8xbf16> {split}", f"%kv{layer}: tensor<?x40xbf16>"]
    body += f"""
  %out{layer}, %lse{layer} = shardq.sparse_mla q(%q_nope{layer}, %q_rope{layer}) kv(%kv{layer}) slots(%slots)
      rows(%req){sink} {{scale = 0.2 : f32, lse = #shardq.lse<base = {base}>, sharding = #shardq.sharding<
          @ranks, {sharding}, kv = interleave<{interleave}> ["{axis}"]>}}
      : (tensor<?x{heads}x32xbf16>, tensor<?x{heads}x8xbf16>, tensor<?x40xbf16>,
         tensor<?x12xi32>, tensor<?xi32>{sink_type}) -> (tensor<?x{heads}x32xbf16>, tensor<?x{heads}xf32>)"""
    values += [f"%out{layer}", f"%lse{layer}"]
    types += [f"tensor<?x{heads}x32xbf16>", f"tensor<?x{heads}xf32>"]
step = """
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      {speculative_tokens = 1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)"""
counted = ", %rows: index"
if tokens:
    counted = ""
    step = f"""
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q_nope0, %c0 : tensor<?x{heads}x32xbf16>
  %starts, %lengths = shardq.shard_lengths %query_start, %seq_lens rows(%rows) over @ranks "{axis}"
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %req, %visible = shardq.expand_rows %starts, %lengths to %rows
      {{speculative_tokens = 1 : i64}}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)"""
if "given" in words:
    step = ""
    counted = f", %req: tensor<?xi32> {rows}, %visible: tensor<?xi32> {rows}"
print(f"""
shardq.mesh @ranks ["tp" = {tp}, "dcp" = {dcp} in "tp"]
func.func @attention(
    {", ".join(arguments)},
    %iq: tensor<?x4x16xbf16> {rows}, %iw: tensor<?x4xf32> {rows}, %ik: tensor<?x16xbf16>,
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>,
    %index_table: tensor<?x?xi32>{counted})
    -> ({", ".join(f"{t} {split}" for t in types)}) {{{step}
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%index_table)
      rows(%req, %visible) {{block_size = 64 : i64}}
      : (tensor<?x4x16xbf16>, tensor<?x4xf32>, tensor<?x16xbf16>, tensor<?x?xi32>,
         tensor<?xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req)
      {{block_size = 64 : i64, block_stride_rows = 70 : i64}}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x12xi32>{body}
  return {", ".join(values)} : {", ".join(types)}
}}""")
