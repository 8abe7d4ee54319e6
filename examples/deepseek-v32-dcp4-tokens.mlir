// DeepSeek-V3.2 sparse attention over 4 ranks, decode with divided tokens: all 128 heads of
// a quarter of the rows and a quarter of the KV cache each. Runs of 64 tokens go to the ranks in turn.
//
// Rows of the step are padded to a multiple of the ranks, and lie on them in rank order. --shardq-dcp
// makes each rank attend its own keys with the rows of all and gives each rank back what
// belongs to its own; before it, the op reads keys of other ranks and has no code.
//
// 128 heads, a top-k of 2,048 by an indexer of 64 heads, cache blocks of 64 tokens.
// The scale is 1/sqrt(192), for 128 dimensions without and 64 with rope before the
// absorbed projection, times (0.1 ln 40 + 1)^2 of the long-context rope.
//
// Shapes are those of one rank. Arguments and results with shardq.split are this
// rank's rows of a global array. The latent cache and its table are the rank's own;
// everything else is the same on all ranks.

shardq.mesh @ranks ["tp" = 4, "dcp" = 4 in "tp"]

func.func @attention(
    // Queries after the up-projection: the part without and the part with rope.
    %q_nope: tensor<?x128x512xbf16> {shardq.split = #shardq.split<@ranks, 0 over "dcp">},
    %q_rope: tensor<?x128x64xbf16> {shardq.split = #shardq.split<@ranks, 0 over "dcp">},
    // Latent cache, this rank's tokens: 512 values that are also the attention's
    // values, 64 of rope.
    %kv: tensor<?x576xbf16>,
    // Indexer: queries and weights of the rows, and its own cache of keys, which is whole.
    %index_q: tensor<?x64x128xbf16> {shardq.split = #shardq.split<@ranks, 0 over "dcp">},
    %index_w: tensor<?x64xf32> {shardq.split = #shardq.split<@ranks, 0 over "dcp">},
    %index_k: tensor<?x128xbf16>,
    // The step: first row of each request, context plus new tokens over all ranks, and
    // where the blocks of this rank's latent cache and of the indexer's cache lie.
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>,
    %table: tensor<?x?xi32>, %index_table: tensor<?x?xi32>)
    -> (tensor<?x128x512xbf16> {shardq.split = #shardq.split<@ranks, 0 over "dcp">}) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q_nope, %c0 : tensor<?x128x512xbf16>
  // Of the step, what belongs to this rank's rows.
  %starts, %lengths = shardq.shard_lengths %query_start, %seq_lens rows(%rows) over @ranks "dcp"
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %req, %visible = shardq.expand_rows %starts, %lengths to %rows
      {speculative_tokens = 1 : i64} : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%index_k)
      table(%index_table) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>,
         tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %out = shardq.sparse_mla q(%q_nope, %q_rope) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.135233775 : f32,
       sharding = #shardq.sharding<@ranks, tokens = contiguous ["dcp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x128x512xbf16>, tensor<?x128x64xbf16>, tensor<?x576xbf16>,
         tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x128x512xbf16>
  return %out : tensor<?x128x512xbf16>
}
