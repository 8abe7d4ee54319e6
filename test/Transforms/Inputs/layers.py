"""Writes a module of N attention layers, each with its own indexer, in which
each layer attends with what the one before it returned."""

import sys

layers = int(sys.argv[1])
print("""shardq.mesh @ranks ["tp" = 8]
func.func @model(%q0: tensor<?x16x512xbf16>, %rope: tensor<?x16x64xbf16>, %kv: tensor<?x576xbf16>,
                 %iq: tensor<?x64x128xbf16>, %iw: tensor<?x64xf32>, %ik: tensor<?x128xbf16>,
                 %start: tensor<?xi32>, %lens: tensor<?xi32>, %table: tensor<?x?xi32>, %rows: index)
    -> tensor<?x16x512xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)""")
for layer in range(layers):
    print(f"""  %topk{layer} = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%table) rows(%req, %visible)
      {{block_size = 64 : i64}}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>, tensor<?x?xi32>,
         tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots{layer} = shardq.convert_indices %topk{layer} table(%table) rows(%req) {{block_size = 64 : i64}}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %q{layer + 1} = shardq.sparse_mla q(%q{layer}, %rope) kv(%kv) slots(%slots{layer})
      {{scale = 0.07 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>, tensor<?x2048xi32>)
      -> tensor<?x16x512xbf16>""")
print(f"""  return %q{layers} : tensor<?x16x512xbf16>
}}""")
