// RUN: shardq-opt %s --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(shardq-dcp{step=gate remarks=false},shardq-to-nvvm{arch=sm_90a})'

// The output of a layer is what the next one begins with, and which of the buffers
// holds it is the gate's to say. (Layers may put their outputs into one buffer.)
shardq.mesh @ranks ["tp" = 4, "dcp" = 4 in "tp"]
func.func @attention(
    %q_nope: tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %q_rope: tensor<?x16x64xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %kv: tensor<4x?x576xbf16>,
    %index_q: tensor<?x32x128xbf16>, %index_w: tensor<?x32xf32>,
    %index_k: tensor<?x128xbf16>,
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>,
    %table: tensor<?x?xi32>, %index_table: tensor<?x?xi32>)
    -> (tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %rows = tensor.dim %q_nope, %c0 : tensor<?x16x512xbf16>
  %keys = tensor.dim %kv, %c1 : tensor<4x?x576xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      {speculative_tokens = 1 : i64} : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%index_k)
      table(%index_table) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x32x128xbf16>, tensor<?x32xf32>, tensor<?x128xbf16>,
         tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  // expected-error @+1 {{carries a value to its next turn that only the device knows}}
  %all = scf.for %l = %c0 to %c4 step %c1 iter_args(%acc = %q_nope) -> (tensor<?x16x512xbf16>) {
    %k = tensor.extract_slice %kv[%l, 0, 0] [1, %keys, 576] [1, 1, 1] : tensor<4x?x576xbf16> to tensor<?x576xbf16>
    %out = shardq.sparse_mla q(%acc, %q_rope) kv(%k) slots(%slots) rows(%req)
      {scale = 0.0625 : f32,
       sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>,
         tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x16x512xbf16>
    scf.yield %out : tensor<?x16x512xbf16>
  }
  return %all : tensor<?x16x512xbf16>
}
