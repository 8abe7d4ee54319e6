// Two attentions with different top-k have gates of their own. The steps open the
// narrower one alone, and --verify follows. A negative scale is a scale.

// RUN: shardq-run %s --step=%S/Inputs/open.json --verify | FileCheck %s
// RUN: shardq-run %s --step=%S/Inputs/mixed.json --verify | FileCheck %s
// CHECK: all agree

shardq.mesh @ranks ["tp" = 2]
func.func @layers(%q: tensor<?x4x16xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
                  %kv: tensor<?x16xbf16>, %iq: tensor<?x2x8xbf16>, %iw: tensor<?x2xf32>,
                  %ik: tensor<?x8xbf16>, %starts: tensor<?xi32>, %lens: tensor<?xi32>,
                  %table: tensor<?x?xi32>, %rows: index)
    -> (tensor<?x4x16xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
        tensor<?x4x16xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %req, %visible = shardq.expand_rows %starts, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk0 = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%table) rows(%req, %visible)
      {block_size = 4 : i64}
      : (tensor<?x2x8xbf16>, tensor<?x2xf32>, tensor<?x8xbf16>, tensor<?x?xi32>, tensor<?xi32>,
         tensor<?xi32>) -> tensor<?x8xi32>
  %slots0 = shardq.convert_indices %topk0 table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %out0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots0)
      {scale = -0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x4x16xbf16>, tensor<?x16xbf16>, tensor<?x8xi32>) -> tensor<?x4x16xbf16>
  %topk1 = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%table) rows(%req, %visible)
      {block_size = 4 : i64}
      : (tensor<?x2x8xbf16>, tensor<?x2xf32>, tensor<?x8xbf16>, tensor<?x?xi32>, tensor<?xi32>,
         tensor<?xi32>) -> tensor<?x1000xi32>
  %slots1 = shardq.convert_indices %topk1 table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x1000xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x1000xi32>
  %out1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots1)
      {scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x4x16xbf16>, tensor<?x16xbf16>, tensor<?x1000xi32>) -> tensor<?x4x16xbf16>
  return %out0, %out1 : tensor<?x4x16xbf16>, tensor<?x4x16xbf16>
}
