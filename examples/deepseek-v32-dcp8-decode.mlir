// DeepSeek-V3.2 sparse attention over 8 ranks, decode: 16 heads and an eighth of the
// KV cache each. Runs of 64 tokens go to the ranks in turn.
//
// --shardq-dcp makes each rank attend its own keys with all 128 heads and merge what
// comes out; before it, the op reads keys of other ranks and has no code.
//
// 128 heads, a top-k of 2,048 by an indexer of 64 heads, cache blocks of 64 tokens.
// The scale is 1/sqrt(192), for 128 dimensions without and 64 with rope before the
// absorbed projection, times (0.1 ln 40 + 1)^2 of the long-context rope.
//
// Shapes are those of one rank. Arguments and results with shardq.split are this
// rank's heads of a global array. The latent cache and its table are the rank's own;
// everything else is the same on all ranks. So are the keys in the indexer's cache: every
// rank scores all keys of all rows and finds the same positions. That cache has a block
// for each rank where the latent cache has one, so its table follows from the latter's.

shardq.mesh @ranks ["tp" = 8, "dcp" = 8 in "tp"]

func.func @attention(
    // Queries after the up-projection: the part without and the part with rope.
    %q_nope: tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %q_rope: tensor<?x16x64xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    // Latent cache, this rank's tokens: 512 values that are also the attention's
    // values, 64 of rope.
    %kv: tensor<?x576xbf16>,
    // Indexer: queries and weights of the rows, and its own cache of keys.
    %index_q: tensor<?x64x128xbf16>, %index_w: tensor<?x64xf32>,
    %index_k: tensor<?x128xbf16, #shardq.view<replicated>>,
    // The step: first row of each request, context plus new tokens over all ranks, and
    // where the blocks of this rank's latent cache lie.
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>)
    -> (tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q_nope, %c0 : tensor<?x16x512xbf16>
  // A token and one that was guessed, for each request.
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      {speculative_tokens = 1 : i64} : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %index_table = shardq.replicated_table %table lengths(%seq_lens) over @ranks "dcp"
      : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%index_k)
      table(%index_table) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16, #shardq.view<replicated>>,
         tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %out = shardq.sparse_mla q(%q_nope, %q_rope) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.135233775 : f32,
       sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>,
         tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x16x512xbf16>
  return %out : tensor<?x16x512xbf16>
}
