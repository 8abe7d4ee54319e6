"""small.py RANKS: an attention of V3.2's form with 24 heads and a top-k of 8."""

import sys

ranks = int(sys.argv[1])
heads = 24 // ranks
print(f"""
shardq.mesh @ranks ["tp" = {ranks}]
func.func @attention(
    %q_nope: tensor<?x{heads}x32xbf16> {{shardq.split = #shardq.split<@ranks, 1 over "tp">}},
    %q_rope: tensor<?x{heads}x8xbf16> {{shardq.split = #shardq.split<@ranks, 1 over "tp">}},
    %kv: tensor<?x40xbf16>, %iq: tensor<?x4x16xbf16>, %iw: tensor<?x4xf32>,
    %ik: tensor<?x16xbf16>, %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>,
    %table: tensor<?x?xi32>, %index_table: tensor<?x?xi32>, %rows: index)
    -> (tensor<?x{heads}x32xbf16> {{shardq.split = #shardq.split<@ranks, 1 over "tp">}},
        tensor<?x{heads}xf32> {{shardq.split = #shardq.split<@ranks, 1 over "tp">}}) {{
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      {{speculative_tokens = 1 : i64}}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%index_table)
      rows(%req, %visible) {{block_size = 4 : i64}}
      : (tensor<?x4x16xbf16>, tensor<?x4xf32>, tensor<?x16xbf16>, tensor<?x?xi32>,
         tensor<?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req)
      {{block_size = 4 : i64, block_stride_rows = 7 : i64}}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %out, %lse = shardq.sparse_mla q(%q_nope, %q_rope) kv(%kv) slots(%slots) rows(%req)
      {{scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}}
      : (tensor<?x{heads}x32xbf16>, tensor<?x{heads}x8xbf16>, tensor<?x40xbf16>,
         tensor<?x8xi32>, tensor<?xi32>)
      -> (tensor<?x{heads}x32xbf16>, tensor<?x{heads}xf32>)
  return %out, %lse : tensor<?x{heads}x32xbf16>, tensor<?x{heads}xf32>
}}""")
