// Two layers that attend the same keys, over 4 ranks: the first layer's indexer
// chooses for both, as in models that share indices between neighbouring layers.
//
// The rewrite splits the step once, computes the indices of a rank's rows once, and
// exchanges each layer's queries and outputs. Heads and dimensions are those of
// DeepSeek-V3.2; each layer has its own cache behind one block table.

shardq.mesh @ranks ["tp" = 4]

func.func @two_layers(
    %q_nope_0: tensor<?x32x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %q_rope_0: tensor<?x32x64xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %q_nope_1: tensor<?x32x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %q_rope_1: tensor<?x32x64xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %kv_0: tensor<?x576xbf16>, %kv_1: tensor<?x576xbf16>,
    %index_q: tensor<?x64x128xbf16>, %index_w: tensor<?x64xf32>,
    %index_k: tensor<?x128xbf16>,
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>)
    -> (tensor<?x32x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
        tensor<?x32x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q_nope_0, %c0 : tensor<?x32x512xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%index_k)
      table(%table) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>,
         tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %out_0 = shardq.sparse_mla q(%q_nope_0, %q_rope_0) kv(%kv_0) slots(%slots) rows(%req)
      {scale = 0.135233775 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x32x512xbf16>, tensor<?x32x64xbf16>, tensor<?x576xbf16>,
         tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x32x512xbf16>
  %out_1 = shardq.sparse_mla q(%q_nope_1, %q_rope_1) kv(%kv_1) slots(%slots) rows(%req)
      {scale = 0.135233775 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x32x512xbf16>, tensor<?x32x64xbf16>, tensor<?x576xbf16>,
         tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x32x512xbf16>
  return %out_0, %out_1 : tensor<?x32x512xbf16>, tensor<?x32x512xbf16>
}
