// DeepSeek-V3.2 sparse attention over 4 ranks, chunked prefill with cached context: the
// rows of prefill requests over 2 (pcp), heads and the KV cache over 2 in each of
// those (tp and dcp). Runs of 64 tokens go to the ranks of a dcp group in turn.
//
// --shardq-pcp makes each rank run on its own chunks of the requests and on all decode
// requests, and gathers KV rows before they are written, and outputs. Behind it,
// --shardq-dcp makes it attend all keys, which it gathers, in steps with prefill.
//
// 128 heads, a top-k of 2,048 by an indexer of 64 heads, cache blocks of 64 tokens.
// The scale is 1/sqrt(192), for 128 dimensions without and 64 with rope before the
// absorbed projection, times (0.1 ln 40 + 1)^2 of the long-context rope.
//
// Shapes are those of one rank. Arguments and results with shardq.split are this
// rank's heads of a global array. The latent cache, the table of its blocks and the
// slots of new tokens are the rank's own. Everything else is the same on all ranks.

shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "dcp" = 2 in "tp"]

func.func @attention(
    // Queries after the up-projection: the part without and the part with rope.
    %q_nope: tensor<?x64x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %q_rope: tensor<?x64x64xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    // Latent cache, this rank's tokens; the step's rows, after rope, and where this
    // rank keeps them (-1: another one does).
    %kv: tensor<?x576xbf16>, %kv_rows: tensor<?x576xbf16>, %kv_slots: tensor<?xi64>,
    // Indexer: queries and weights of the rows, its own cache of keys, the step's
    // keys and their slots.
    %index_q: tensor<?x64x128xbf16>, %index_w: tensor<?x64xf32>,
    %index_k: tensor<?x128xbf16>, %index_rows: tensor<?x128xbf16>,
    %index_slots: tensor<?xi64>,
    // The step: first row of each request, context plus new tokens over all ranks, and
    // where the blocks of this rank's latent cache and of the indexer's cache lie.
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>,
    %table: tensor<?x?xi32>, %index_table: tensor<?x?xi32>)
    -> (tensor<?x64x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q_nope, %c0 : tensor<?x64x512xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %index_all = shardq.write_rows %index_rows at(%index_slots) into(%index_k)
      : (tensor<?x128xbf16>, tensor<?xi64>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %kv_all = shardq.write_rows %kv_rows at(%kv_slots) into(%kv)
      : (tensor<?x576xbf16>, tensor<?xi64>, tensor<?x576xbf16>) -> tensor<?x576xbf16>
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%index_all)
      table(%index_table) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>,
         tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %out = shardq.sparse_mla q(%q_nope, %q_rope) kv(%kv_all) slots(%slots) rows(%req)
      {scale = 0.135233775 : f32,
       sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x64x512xbf16>, tensor<?x64x64xbf16>, tensor<?x576xbf16>,
         tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x64x512xbf16>
  return %out : tensor<?x64x512xbf16>
}
