// Decode rows of steps in which keys are gathered, by the form for decode steps.
//
// RUN: shardq-opt %s --shardq-dcp="step=gather decode-rows=combine remarks=false" | FileCheck %s
// RUN: shardq-opt %s --shardq-dcp="step=gate remarks=false decode-rows=combine" | FileCheck %s --check-prefix=GATE
// RUN: shardq-opt %s --shardq-dcp="step=gather remarks=false" \
// RUN:   --shard-q-tokens="remarks=false min-tokens=0 decode-rows=combine" | FileCheck %s --check-prefix=TOKENS
// RUN: shardq-opt %s --shardq-dcp="step=gather decode-rows=combine remarks=false" --shardq-to-cpu -o /dev/null
// RUN: shardq-opt %s --shardq-dcp="remarks=false" --shard-q-tokens="remarks=false min-tokens=0 decode-rows=combine" \
// RUN:   --shardq-to-cpu -o /dev/null
// RUN: not shardq-opt %s --shardq-dcp="decode-rows=both" 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: Cannot find option named 'both'

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// While the keys travel; never more rows than there are.
// CHECK-LABEL: func @step
// CHECK-SAME: %[[NOPE:[a-z0-9]+]]: tensor<?x16x512xbf16>, %[[ROPE:[a-z0-9]+]]: tensor<?x16x64xbf16>, %[[KV:[a-z0-9]+]]: tensor<?x576xbf16>,
// CHECK-SAME: %[[START:[a-z0-9]+]]: tensor<?xi32>, %[[LENS:[a-z0-9]+]]: tensor<?xi32>, %[[TABLE:[a-z0-9]+]]: tensor<?x?xi32>, %[[TOPK:[a-z0-9]+]]
// CHECK: %[[OUT:.*]] = scf.if
// CHECK: %[[HANDLE:.*]] = shardq.gather_kv_start(%[[KV]])
// CHECK: %[[SLOTS:.*]] = shardq.gathered_slots %[[TOPK]]
// CHECK: %[[COUNT:.*]] = shardq.count_decode_rows %[[START]] {speculative_tokens = 1 : i64}
// CHECK: %[[ROWS:.*]] = tensor.dim %[[NOPE]], %{{.*}}
// CHECK-NEXT: %[[DECODES:.*]] = arith.minsi %[[COUNT]], %[[ROWS]]
// CHECK: tensor.extract_slice %[[NOPE]][0, 0, 0] [%[[DECODES]], 16, 512]
// CHECK: %[[POSITIONS:.*]] = tensor.extract_slice %[[TOPK]][0, 0] [%[[DECODES]], 2048]
// CHECK: %[[OWN:.*]]:2 = shardq.filter_indices %[[POSITIONS]] table(%[[TABLE]])
// CHECK: %[[ALL:.*]] = shardq.gather_query
// CHECK: %[[PARTIAL:.*]]:2 = shardq.sparse_mla q(%[[ALL]]) kv(%[[KV]]) slots(%[[OWN]]#0)
// CHECK: %[[DECODED:.*]] = shardq.combine_lse %[[PARTIAL]]#0 lse(%[[PARTIAL]]#1)
// CHECK: %[[OTHERS:.*]] = arith.subi %{{.*}}, %[[DECODES]]
// CHECK: tensor.extract_slice %[[NOPE]][%[[DECODES]], 0, 0] [%[[OTHERS]], 16, 512]
// CHECK: tensor.extract_slice %[[SLOTS]][%[[DECODES]], 0] [%[[OTHERS]], 2048]
// CHECK: shardq.gather_kv_finish %[[HANDLE]]
// CHECK: %[[PREFILLED:.*]] = shardq.sparse_mla
// CHECK: tensor.insert_slice %[[DECODED]] into
// CHECK: %[[JOINED:.*]] = tensor.insert_slice %[[PREFILLED]] into
// CHECK: scf.yield %[[JOINED]]
// CHECK: } else {
// CHECK-NOT: shardq.gather_kv
// CHECK: shardq.combine_lse
// CHECK: return %[[OUT]]
//
// GATE-LABEL: func @step
// GATE: scf.if
// GATE: shardq.gather_kv_start
// GATE: shardq.combine_lse
// GATE: shardq.gather_kv_finish
// GATE: } else {
// GATE-NOT: shardq.gather_kv
// GATE: shardq.combine_lse
// GATE-NOT: shardq.gather_kv
// GATE: return
//
// With token shards, before queries arrive: what arrived is then read in place.
// TOKENS-LABEL: func @step
// TOKENS: scf.if
// TOKENS: shardq.gather_kv_start
// TOKENS: shardq.filter_indices
// TOKENS: shardq.gather_query
// TOKENS: %[[DECODED:.*]] = shardq.combine_lse
// TOKENS: shardq.exchange heads_to_tokens
// TOKENS: shardq.gather_kv_finish
// TOKENS: %[[PREFILLED:.*]] = shardq.sparse_mla
// TOKENS: shardq.exchange tokens_to_heads(%[[PREFILLED]]) {{.*}} after(%[[DECODED]])
// TOKENS: } else {
func.func @step(%q_nope: tensor<?x16x512xbf16>, %q_rope: tensor<?x16x64xbf16>, %kv: tensor<?x576xbf16>,
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>, %topk: tensor<?x2048xi32>,
    %rows: index) -> tensor<?x16x512xbf16> {
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows {speculative_tokens = 1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %out = shardq.sparse_mla q(%q_nope, %q_rope) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>, tensor<?x2048xi32>, tensor<?xi32>)
      -> tensor<?x16x512xbf16>
  return %out : tensor<?x16x512xbf16>
}
