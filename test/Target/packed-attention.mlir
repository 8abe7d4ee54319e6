// A step over packed rows, a view of a table and all blocks of another is compiled for GPUs as for
// CPUs, and assembled without spills for every architecture.
//
// REQUIRES: ptxas
// DEFINE: %{arch} = sm_80
// DEFINE: %{compile} = shardq-opt %s -o %t.mlir \
// DEFINE:   --pass-pipeline='builtin.module(shardq-dcp{remarks=false blocks=full},shard-q-tokens{remarks=false},shardq-to-nvvm{arch=%{arch}})' && \
// DEFINE:   FileCheck %s < %t.mlir
// RUN: %{compile}
// REDEFINE: %{arch} = sm_90a
// RUN: %{compile}
// REDEFINE: %{arch} = sm_100a
// RUN: %{compile}
// RUN: shardq-opt %s --shardq-dcp="remarks=false blocks=full" --shard-q-tokens=remarks=false --shardq-to-cpu -o /dev/null
//
// CHECK: @shardq_image_code("\7FELF

shardq.mesh @ranks ["tp" = 8, "dcp" = 2 in "tp"]
func.func @attention(%q: tensor<?x16x576xbf16>, %kv: tensor<?x656xi8>, %index_q: tensor<?x64x128xbf16>,
                     %index_w: tensor<?x64xf32>, %index_k: tensor<?x128xbf16, #shardq.view<replicated>>,
                     %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>,
                     %new: tensor<?x576xbf16>)
    -> (tensor<?x16x512xbf16>, tensor<?x656xi8>, tensor<?xi64>) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : tensor<?x16x576xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows {speculative_tokens = 1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %view = shardq.replicated_table %table lengths(%seq_lens) over @ranks "dcp"
      : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%index_k) table(%view) rows(%req, %visible)
      {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16, #shardq.view<replicated>>,
         tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.1 : f32,
      kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>,
      sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x16x576xbf16>, tensor<?x656xi8>, tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x16x512xbf16>
  // What a writer stores, and where.
  %packed = shardq.pack_rows %new {format = #shardq.packed_rows<512 x i8, rope = 64, order = rope_scales>}
      : (tensor<?x576xbf16>) -> tensor<?x656xi8>
  %at = shardq.token_slots table(%table) rows(%req, %visible) over @ranks "dcp"
      {block_size = 64 : i64, interleave = 64 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return %out, %packed, %at : tensor<?x16x512xbf16>, tensor<?x656xi8>, tensor<?xi64>
}
