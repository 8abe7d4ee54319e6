// Views of tables and packed rows go through every pass that divides attention, and to both
// targets: what passes make of slots and rows is of the same view and format.
//
// RUN: shardq-opt %s --shardq-dcp="step=decode remarks=false" | FileCheck %s --check-prefixes=CHECK,DECODE
// RUN: shardq-opt %s --shardq-dcp="step=gather remarks=false" | FileCheck %s --check-prefixes=CHECK,GATHER
// RUN: shardq-opt %s --shardq-dcp="step=gather decode-rows=combine remarks=false" | FileCheck %s --check-prefixes=CHECK,COMBINE
// RUN: shardq-opt %s --shardq-dcp="remarks=false" | FileCheck %s --check-prefixes=CHECK,GATE
// RUN: shardq-opt %s --shardq-dcp="blocks=full remarks=false" | FileCheck %s --check-prefixes=CHECK,FULL
// RUN: shardq-opt %s --shardq-dcp="remarks=false" --shard-q-tokens="remarks=false min-tokens=0" | FileCheck %s --check-prefixes=CHECK,TOKENS
// RUN: shardq-opt %s --shardq-pcp="remarks=false" --shardq-dcp="remarks=false" | FileCheck %s --check-prefixes=PCP
//
// RUN: shardq-opt %s --shardq-dcp="step=decode remarks=false" --shardq-to-cpu -o /dev/null
// RUN: shardq-opt %s --shardq-dcp="remarks=false" --shard-q-tokens="remarks=false min-tokens=0" --shardq-to-cpu -o /dev/null
// RUN: shardq-opt %s --shardq-pcp="remarks=false" --shardq-dcp="blocks=full remarks=false" --shardq-to-cpu -o /dev/null
// RUN: not shardq-opt %s --shardq-dcp="blocks=some" 2>&1 | FileCheck %s --check-prefix=OPTION

// OPTION: for the --blocks option: Cannot find option named 'some'

#e4m3 = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>
shardq.mesh @ranks ["pcp" = 2, "tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func @step
// FULL: shardq.gather_blocks {{.*}} {block_size = 64 : i64, full, interleave = 64 : i64}
// CHECK: %[[VIEW:.*]] = shardq.replicated_table %{{.*}} lengths(%{{.*}}) over @ranks "dcp" : ({{.*}}) -> tensor<?x?xi32, #shardq.view<replicated>>
// CHECK: shardq.token_slots table(%[[VIEW]])
//
// DECODE: shardq.gather_query(%{{.*}}) over @ranks "dcp" : (tensor<?x16x576xbf16>) -> tensor<?x32x576xbf16>
// DECODE: shardq.sparse_mla {{.*}} {kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>, scale = 5.000000e-01 : f32} : (tensor<?x32x576xbf16>, tensor<?x656xi8>
//
// GATHER: shardq.gather_kv_finish {{.*}} -> tensor<?x656xi8>
// GATHER-NEXT: shardq.sparse_mla {{.*}} {kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>, scale = 5.000000e-01 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>} : (tensor<?x16x576xbf16>, tensor<?x656xi8>
//
// Decode rows over own keys, others over gathered ones.
// COMBINE-COUNT-2: shardq.sparse_mla {{.*}} {kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>
// GATE-COUNT-2: shardq.sparse_mla {{.*}} {kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>
// TOKENS-COUNT-3: shardq.sparse_mla {{.*}} {kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>
//
// PCP-LABEL: func @step
// PCP-DAG: shardq.chunk_slots {{.*}} -> (tensor<?xi32>, tensor<?xi64>)
// PCP-DAG: shardq.chunk_slots {{.*}} -> (tensor<?xi32>, tensor<?xi64, #shardq.view<replicated>>)
// PCP-COUNT-2: shardq.sparse_mla {{.*}} {kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>
func.func @step(%q: tensor<?x16x576xbf16>, %new: tensor<?x656xi8>, %kv: tensor<?x656xi8>,
                %index_q: tensor<?x64x128xbf16>, %index_w: tensor<?x64xf32>, %new_key: tensor<?x128xbf16>,
                %index_k: tensor<?x128xbf16, #shardq.view<replicated>>,
                %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>, %rows: index)
    -> tensor<?x16x512xbf16> {
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows {speculative_tokens = 1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %view = shardq.replicated_table %table lengths(%seq_lens) over @ranks "dcp"
      : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  %all_at = shardq.token_slots table(%view) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>)
      -> tensor<?xi64, #shardq.view<replicated>>
  %keys = shardq.write_rows %new_key at(%all_at) into(%index_k)
      : (tensor<?x128xbf16>, tensor<?xi64, #shardq.view<replicated>>, tensor<?x128xbf16, #shardq.view<replicated>>)
      -> tensor<?x128xbf16, #shardq.view<replicated>>
  %own_at = shardq.token_slots table(%table) rows(%req, %visible) over @ranks "dcp"
      {block_size = 64 : i64, interleave = 64 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  %written = shardq.write_rows %new at(%own_at) into(%kv)
      : (tensor<?x656xi8>, tensor<?xi64>, tensor<?x656xi8>) -> tensor<?x656xi8>
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%keys) table(%view) rows(%req, %visible)
      {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16, #shardq.view<replicated>>,
         tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %out = shardq.sparse_mla q(%q) kv(%written) slots(%slots) rows(%req) {scale = 0.5 : f32, kv_format = #e4m3,
      sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x16x576xbf16>, tensor<?x656xi8>, tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x16x512xbf16>
  return %out : tensor<?x16x512xbf16>
}
