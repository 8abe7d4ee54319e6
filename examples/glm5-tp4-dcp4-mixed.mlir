// GLM-5 sparse attention over 4 ranks, decode and prefill in one step: 16 heads and a
// quarter of the KV cache each. Runs of 64 tokens go to the ranks in turn.
//
// --shardq-dcp makes each rank attend all keys, which it gathers while the indexer runs,
// in steps with prefill, and its own keys in others, with all heads and a merge.
//
// 64 heads, a top-k of 2,048 by an indexer of 32 heads. The scale is 1/sqrt(256), for
// 192 dimensions without and 64 with rope before the absorbed projection.
//
// Shapes are those of one rank. Arguments and results with shardq.split are this
// rank's heads of a global array. The latent cache is the rank's own. Everything
// else is the same on all ranks, also the table of its blocks and the indexer's cache.

shardq.mesh @ranks ["tp" = 4, "dcp" = 4 in "tp"]

func.func @attention(
    // Queries after the up-projection: the part without and the part with rope.
    %q_nope: tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %q_rope: tensor<?x16x64xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    // Latent cache, this rank's tokens: 512 values that are also the attention's
    // values, 64 of rope. The step's own tokens are written before.
    %kv: tensor<?x576xbf16>,
    // Indexer: queries and weights of the rows, and its own cache of keys.
    %index_q: tensor<?x32x128xbf16>, %index_w: tensor<?x32xf32>,
    %index_k: tensor<?x128xbf16>,
    // The step: first row of each request, context plus new tokens over all ranks, and
    // where the blocks of this rank's latent cache and of the indexer's cache lie.
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>,
    %table: tensor<?x?xi32>, %index_table: tensor<?x?xi32>)
    -> (tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q_nope, %c0 : tensor<?x16x512xbf16>
  // A token and one that was guessed, for each request that decodes.
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      {speculative_tokens = 1 : i64} : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%index_k)
      table(%index_table) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x32x128xbf16>, tensor<?x32xf32>, tensor<?x128xbf16>,
         tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %out = shardq.sparse_mla q(%q_nope, %q_rope) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.0625 : f32,
       sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>,
         tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x16x512xbf16>
  return %out : tensor<?x16x512xbf16>
}
