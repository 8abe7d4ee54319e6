"""views.py TP DCP INTERLEAVE BLOCKS_PER_BLOCK FORMAT [ROWS [PCP]]: a step that writes its tokens, packed
into a KV cache that is sharded over DCP of TP ranks and the indexer's keys into a cache that
each rank has whole, and attends them; 24 heads, a top-k of 12, cache blocks of 64.
FORMAT is none, or what #shardq.packed_rows takes, for rows of 144 values. With ROWS "given" the
rows to write come packed, else they are packed here. With PCP there are so many such groups of TP."""

import sys

tp, dcp, interleave, per_block = (int(a) for a in sys.argv[1:5])
form = sys.argv[5]
is_given = sys.argv[6:7] == ["given"]
pcp = f'"pcp" = {sys.argv[7]}, ' if len(sys.argv) > 7 else ""
heads = 24 // tp
split = '{shardq.split = #shardq.split<@ranks, 1 over "tp">}'
view = "#shardq.view<replicated>"
keys, table = f"tensor<?x16xbf16, {view}>", f"tensor<?x?xi32, {view}>"
cache, pack, attr = "tensor<?x144xbf16>", "%packed = tensor.cast %new : tensor<?x144xbf16> to tensor<?x144xbf16>", ""
if form != "none":
    groups = 128 // 128
    cache, form = f"tensor<?x{128 + 4 * groups + 32}xi8>", f"#shardq.packed_rows<{form}>"
    pack = f"%packed = shardq.pack_rows %new {{format = {form}}} : (tensor<?x144xbf16>) -> {cache}"
    attr = f"kv_format = {form}, "
new, name = "tensor<?x144xbf16>", "new"
if is_given:
    new, name, pack = cache, "packed", ""
print(f"""
shardq.mesh @ranks [{pcp}"tp" = {tp}, "dcp" = {dcp} in "tp"]
func.func @attention(
    %q: tensor<?x{heads}x144xbf16> {split}, %{name}: {new}, %kv: {cache},
    %iq: tensor<?x4x16xbf16>, %iw: tensor<?x4xf32>, %new_key: tensor<?x16xbf16>, %ik: {keys},
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>, %rows: index)
    -> (tensor<?x{heads}x128xbf16> {split}, tensor<?x{heads}xf32> {split}) {{
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      {{speculative_tokens = 1 : i64}}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %view = shardq.replicated_table %table lengths(%seq_lens) over @ranks "dcp"
      {{blocks_per_block = {per_block} : i64}} : (tensor<?x?xi32>, tensor<?xi32>) -> {table}

  %all_at = shardq.token_slots table(%view) rows(%req, %visible) {{block_size = 64 : i64}}
      : ({table}, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64, {view}>
  %keys = shardq.write_rows %new_key at(%all_at) into(%ik)
      : (tensor<?x16xbf16>, tensor<?xi64, {view}>, {keys}) -> {keys}
  %own_at = shardq.token_slots table(%table) rows(%req, %visible) over @ranks "dcp"
      {{block_size = 64 : i64, block_stride_rows = 70 : i64, interleave = {interleave} : i64}}
      : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  {pack}
  %written = shardq.write_rows %packed at(%own_at) into(%kv) : ({cache}, tensor<?xi64>, {cache}) -> {cache}

  %topk = shardq.indexer q(%iq) weights(%iw) keys(%keys) table(%view)
      rows(%req, %visible) {{block_size = 64 : i64}}
      : (tensor<?x4x16xbf16>, tensor<?x4xf32>, {keys}, {table}, tensor<?xi32>, tensor<?xi32>)
      -> tensor<?x12xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req)
      {{block_size = 64 : i64, block_stride_rows = 70 : i64}}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %out, %lse = shardq.sparse_mla q(%q) kv(%written) slots(%slots) rows(%req) {{scale = 0.1 : f32, {attr}sharding
      = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<{interleave}> ["dcp"]>}}
      : (tensor<?x{heads}x144xbf16>, {cache}, tensor<?x12xi32>, tensor<?xi32>)
      -> (tensor<?x{heads}x128xbf16>, tensor<?x{heads}xf32>)
  return %out, %lse : tensor<?x{heads}x128xbf16>, tensor<?x{heads}xf32>
}}""")
