// RUN: shardq-opt %s --split-input-file --shard-q-tokens=remarks=false | FileCheck %s
//
// A second run changes nothing:
// RUN: shardq-opt %s --split-input-file --shard-q-tokens=remarks=false -o %t.once.mlir
// RUN: shardq-opt %t.once.mlir --split-input-file --shard-q-tokens=remarks=false -o %t.twice.mlir
// RUN: diff %t.once.mlir %t.twice.mlir

// Plain prefill, q in two parts. The indexer and the conversion move into the
// branches: on own rows in one, as they were in the other.
// CHECK-LABEL: func @prefill
// CHECK-SAME: %[[NOPE:[a-z0-9]+]]: tensor<?x16x512xbf16>, %[[ROPE:[a-z0-9]+]]: tensor<?x16x64xbf16>,
// CHECK-SAME: %[[KV:[a-z0-9]+]]: tensor<?x576xbf16>, %[[IQ:[a-z0-9]+]]: tensor<?x64x128xbf16>,
// CHECK-SAME: %[[IW:[a-z0-9]+]]: tensor<?x64xf32>, %[[IK:[a-z0-9]+]]: tensor<?x128xbf16>,
// CHECK-SAME: %[[START:[a-z0-9]+]]: tensor<?xi32>, %[[LENS:[a-z0-9]+]]: tensor<?xi32>,
// CHECK-SAME: %[[TABLE:[a-z0-9]+]]: tensor<?x?xi32>, %[[ITABLE:[a-z0-9]+]]: tensor<?x?xi32>, %[[ROWS:[a-z0-9]+]]: index
shardq.mesh @ranks ["tp" = 8]
func.func @prefill(%q_nope: tensor<?x16x512xbf16>, %q_rope: tensor<?x16x64xbf16>, %kv: tensor<?x576xbf16>,
                   %iq: tensor<?x64x128xbf16>, %iw: tensor<?x64xf32>, %ik: tensor<?x128xbf16>,
                   %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>,
                   %itable: tensor<?x?xi32>, %rows: index) -> tensor<?x16x512xbf16> {
  // CHECK: %[[STEP:.*]]:2 = shardq.expand_rows %[[START]], %[[LENS]] to %[[ROWS]]
  // CHECK: %[[DECODES:.*]] = shardq.count_decode_rows %[[START]]
  // CHECK: %[[SPLIT:.*]]:2 = shardq.zigzag_split %[[START]] decodes(%[[DECODES]]) rows(%[[ROWS]]) over @ranks "tp" : {{.*}} -> (tensor<?xi32>, tensor<9xi32>)
  // CHECK: %[[MINE:.*]] = shardq.local_rows %[[SPLIT]]#0, %[[SPLIT]]#1 decodes(%[[DECODES]]) over @ranks "tp"
  // CHECK: %[[GATE:.*]] = shardq.split_gate offsets(%[[SPLIT]]#1) requests(%[[START]], %[[LENS]]) decodes(%[[DECODES]]) rows(%[[ROWS]]) {min_tokens = 1024 : i64, topk = 2048 : i64}
  // CHECK-DAG: %[[REQ_L:.*]] = shardq.take_rows %[[STEP]]#0[%[[MINE]]]
  // CHECK-DAG: %[[VISIBLE_L:.*]] = shardq.take_rows %[[STEP]]#1[%[[MINE]]]
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%itable) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  // CHECK: %[[OUT:.*]] = scf.if %[[GATE]] -> (tensor<?x16x512xbf16>) {
  // CHECK-DAG: %[[IQ_L:.*]] = shardq.take_rows %[[IQ]][%[[MINE]]]
  // CHECK-DAG: %[[IW_L:.*]] = shardq.take_rows %[[IW]][%[[MINE]]]
  // CHECK: %[[TOPK_L:.*]] = shardq.indexer q(%[[IQ_L]]) weights(%[[IW_L]]) keys(%[[IK]]) table(%[[ITABLE]]) rows(%[[REQ_L]], %[[VISIBLE_L]])
  // CHECK: %[[SLOTS_L:.*]] = shardq.convert_indices %[[TOPK_L]] table(%[[TABLE]]) rows(%[[REQ_L]])
  //
  // Own prefill rows are behind the decode rows.
  // CHECK: %[[LOCAL:.*]] = tensor.dim %[[MINE]]
  // CHECK: %[[PREFILL:.*]] = arith.subi %[[LOCAL]], %[[DECODES]]
  // CHECK-DAG: %[[SLOTS_P:.*]] = tensor.extract_slice %[[SLOTS_L]][%[[DECODES]], 0] [%[[PREFILL]], 2048]
  // CHECK-DAG: %[[SLOTS_D:.*]] = tensor.extract_slice %[[SLOTS_L]][0, 0] [%[[DECODES]], 2048]
  // CHECK-DAG: %[[NOPE_D:.*]] = tensor.extract_slice %[[NOPE]][0, 0, 0] [%[[DECODES]], 16, 512]
  // CHECK-DAG: %[[ROPE_D:.*]] = tensor.extract_slice %[[ROPE]][0, 0, 0] [%[[DECODES]], 16, 64]
  //
  // Both parts are sent as they are.
  // CHECK-NOT: tensor.concat
  // CHECK: %[[Q_L:.*]] = shardq.exchange heads_to_tokens(%[[NOPE]], %[[ROPE]]) by(%[[SPLIT]]#0, %[[SPLIT]]#1) decodes(%[[DECODES]]) over @ranks "tp" : {{.*}} -> tensor<?x128x576xbf16>
  // CHECK: %[[OUT_P:.*]] = shardq.sparse_mla q(%[[Q_L]]) kv(%[[KV]]) slots(%[[SLOTS_P]]) {scale = {{.*}}, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>} : {{.*}} -> tensor<?x128x512xbf16>
  // CHECK: %[[OUT_D:.*]] = shardq.sparse_mla q(%[[NOPE_D]], %[[ROPE_D]]) kv(%[[KV]]) slots(%[[SLOTS_D]]) {scale = {{.*}}, sharding = #shardq.sharding<@ranks, heads = ["tp"]>} : {{.*}} -> tensor<?x16x512xbf16>
  // CHECK: %[[OUT_H:.*]] = shardq.exchange tokens_to_heads(%[[OUT_P]]) by(%[[SPLIT]]#0, %[[SPLIT]]#1) decodes(%[[DECODES]]) after(%[[OUT_D]]) over @ranks "tp"
  // CHECK: scf.yield %[[OUT_H]]
  // CHECK: } else {
  // CHECK-NEXT: %[[TOPK:.*]] = shardq.indexer q(%[[IQ]]) weights(%[[IW]]) keys(%[[IK]]) table(%[[ITABLE]]) rows(%[[STEP]]#0, %[[STEP]]#1) {block_size = 64 : i64}
  // CHECK-NEXT: %[[SLOTS:.*]] = shardq.convert_indices %[[TOPK]] table(%[[TABLE]]) rows(%[[STEP]]#0)
  // CHECK-NEXT: %[[SAME:.*]] = shardq.sparse_mla q(%[[NOPE]], %[[ROPE]]) kv(%[[KV]]) slots(%[[SLOTS]]) {scale = {{.*}}, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
  // CHECK-NEXT: scf.yield %[[SAME]]
  // CHECK-NEXT: }
  // CHECK-NEXT: return %[[OUT]]
  %out = shardq.sparse_mla q(%q_nope, %q_rope) kv(%kv) slots(%slots)
      {scale = 0.07 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>, tensor<?x2048xi32>) -> tensor<?x16x512xbf16>
  return %out : tensor<?x16x512xbf16>
}

// -----

// An LSE that is used comes back as well, in the op's base; slots come from
// outside, are taken by rows, and `rows` says which step they belong to.
// CHECK-LABEL: func @lse
// CHECK-SAME: %[[SLOTS:[a-z0-9]+]]: tensor<?x8xi64>
shardq.mesh @ranks ["tp" = 3]
func.func @lse(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi64>, %start: tensor<?xi32>,
               %lens: tensor<?xi32>, %rows: index) -> (tensor<?x2x4xf32>, tensor<?x2xf32>) {
  // CHECK: %[[STEP:.*]]:2 = shardq.expand_rows
  // CHECK: %[[MINE:.*]] = shardq.local_rows
  // CHECK: %[[REQ_L:.*]] = shardq.take_rows %[[STEP]]#0[%[[MINE]]]
  // CHECK-NOT: shardq.take_rows %[[STEP]]#1
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // CHECK: scf.if {{.*}} -> (tensor<?x2x4xf32>, tensor<?x2xf32>) {
  // CHECK: %[[SLOTS_L:.*]] = shardq.take_rows %[[SLOTS]][%[[MINE]]]
  // CHECK-DAG: %[[REQ_P:.*]] = tensor.extract_slice %[[REQ_L]][%{{[a-z0-9]+}}]
  // CHECK-DAG: %[[REQ_D:.*]] = tensor.extract_slice %[[REQ_L]][0]
  // CHECK: %[[P:.*]]:2 = shardq.sparse_mla {{.*}} rows(%[[REQ_P]]) {lse = #shardq.lse<base = two>, {{.*}}tokens = zigzag{{.*}} -> (tensor<?x6x4xf32>, tensor<?x6xf32>)
  // CHECK: %[[D:.*]]:2 = shardq.sparse_mla {{.*}} rows(%[[REQ_D]]) {lse = #shardq.lse<base = two>, {{.*}}heads = {{.*}} -> (tensor<?x2x4xf32>, tensor<?x2xf32>)
  // CHECK: %[[OUT:.*]] = shardq.exchange tokens_to_heads(%[[P]]#0) {{.*}} after(%[[D]]#0)
  // CHECK: %[[LSE:.*]] = shardq.exchange tokens_to_heads(%[[P]]#1) {{.*}} after(%[[D]]#1) {{.*}} -> tensor<?x2xf32>
  // CHECK: scf.yield %[[OUT]], %[[LSE]]
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, lse = #shardq.lse<base = two>, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi64>, tensor<?xi32>) -> (tensor<?x2x4xf32>, tensor<?x2xf32>)
  return %out, %lse : tensor<?x2x4xf32>, tensor<?x2xf32>
}

// -----

// One that is not used costs nothing; nor does an output.
// CHECK-LABEL: func @one_result
shardq.mesh @ranks ["tp" = 3]
func.func @one_result(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>,
                      %lens: tensor<?xi32>, %rows: index) -> (tensor<?x2x4xf32>, tensor<?x2xf32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // CHECK: %[[OUT:.*]] = scf.if {{.*}} -> (tensor<?x2x4xf32>) {
  // CHECK: shardq.sparse_mla {{.*}} tokens = {{.*}} -> tensor<?x6x4xf32>
  // CHECK: shardq.sparse_mla {{.*}} heads = {{.*}} -> tensor<?x2x4xf32>
  // CHECK-COUNT-1: shardq.exchange tokens_to_heads
  // CHECK-NOT: shardq.exchange
  // CHECK: } else {
  // CHECK-NEXT: %[[SAME:.*]]:2 = shardq.sparse_mla
  // CHECK-NEXT: scf.yield %[[SAME]]#0
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> (tensor<?x2x4xf32>, tensor<?x2xf32>)
  // CHECK: %[[LSE:.*]] = scf.if {{.*}} -> (tensor<?x2xf32>) {
  // CHECK: shardq.exchange tokens_to_heads(%{{.*}}#1)
  // CHECK-NOT: shardq.exchange
  // CHECK: return %[[OUT]], %[[LSE]]
  %out2, %lse2 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> (tensor<?x2x4xf32>, tensor<?x2xf32>)
  return %out, %lse2 : tensor<?x2x4xf32>, tensor<?x2xf32>
}

// -----

// A sink of all heads serves both attentions as it is.
// CHECK-LABEL: func @sink
// CHECK-SAME: %[[SINK:[a-z0-9]+]]: tensor<8xf32>, %[[LENGTH:[a-z0-9]+]]: tensor<?xi32>
shardq.mesh @ranks ["tp" = 4]
func.func @sink(%sink: tensor<8xf32>, %length: tensor<?xi32>, %q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>,
                %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // CHECK: %[[MINE:.*]] = shardq.local_rows
  // CHECK: scf.if
  // CHECK: %[[LENGTH_L:.*]] = shardq.take_rows %[[LENGTH]][%[[MINE]]]
  // CHECK: %[[LENGTH_P:.*]] = tensor.extract_slice %[[LENGTH_L]]
  // CHECK: %[[LENGTH_D:.*]] = tensor.extract_slice %[[LENGTH_L]]
  // CHECK: shardq.sparse_mla {{.*}} topk_length(%[[LENGTH_P]]) sink(%[[SINK]]) {{.*}}tokens =
  // CHECK: shardq.sparse_mla {{.*}} topk_length(%[[LENGTH_D]]) sink(%[[SINK]]) {{.*}}heads =
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) topk_length(%length) sink(%sink)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>, tensor<?xi32>, tensor<8xf32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// Decodes of up to three tokens.
// CHECK-LABEL: func @speculative
shardq.mesh @ranks ["tp" = 4]
func.func @speculative(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>,
                       %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  // CHECK: shardq.count_decode_rows %{{.*}} {speculative_tokens = 2 : i64}
  %req, %visible = shardq.expand_rows %start, %lens to %rows {speculative_tokens = 2 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// A static number of rows: what a rank owns of them is dynamic.
// CHECK-LABEL: func @static_rows
shardq.mesh @ranks ["tp" = 3]
func.func @static_rows(%q: tensor<64x2x4xf32>, %kv: tensor<32x4xf32>, %topk: tensor<64x8xi32>, %table: tensor<4x8xi32>,
                       %start: tensor<5xi32>, %lens: tensor<4xi32>, %rows: index) -> tensor<64x2x4xf32> {
  // CHECK: shardq.zigzag_split {{.*}} -> (tensor<64xi32>, tensor<4xi32>)
  // CHECK: shardq.local_rows {{.*}} -> tensor<?xi32>
  // CHECK: scf.if {{.*}} -> (tensor<64x2x4xf32>) {
  // CHECK: shardq.convert_indices {{.*}} -> tensor<?x8xi32>
  // CHECK: shardq.exchange heads_to_tokens{{.*}} -> tensor<?x6x4xf32>
  // A step of more rows than inboxes hold is for the other side, so this one must not say how many there are.
  // CHECK: %[[OUT:.*]] = shardq.exchange tokens_to_heads{{.*}} -> tensor<?x2x4xf32>
  // CHECK: tensor.cast %[[OUT]] : tensor<?x2x4xf32> to tensor<64x2x4xf32>
  // CHECK: } else {
  // CHECK: shardq.convert_indices {{.*}} -> tensor<64x8xi32>
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<5xi32>, tensor<4xi32>, index) -> (tensor<64xi32>, tensor<64xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 1 : i64}
      : (tensor<64x8xi32>, tensor<4x8xi32>, tensor<64xi32>) -> tensor<64x8xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<64x2x4xf32>, tensor<32x4xf32>, tensor<64x8xi32>) -> tensor<64x2x4xf32>
  return %out : tensor<64x2x4xf32>
}

// -----

// Layers of a step share its split and gate.
// CHECK-LABEL: func @layers
// CHECK-COUNT-1: shardq.zigzag_split
// CHECK-COUNT-1: shardq.split_gate
// CHECK-NOT: shardq.zigzag_split
// CHECK-NOT: shardq.split_gate
// CHECK-NOT: shardq.local_rows
// CHECK: return
// CHECK-LABEL: func @two_layers_share_indices
shardq.mesh @ranks ["tp" = 2]
func.func @layers(%q0: tensor<?x2x4xf32>, %q1: tensor<?x2x4xf32>, %q2: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>,
                  %s0: tensor<?x8xi32>, %s1: tensor<?x8xi32>, %s2: tensor<?x8xi32>, %start: tensor<?xi32>,
                  %lens: tensor<?xi32>, %rows: index) -> (tensor<?x2x4xf32>, tensor<?x2x4xf32>, tensor<?x2x4xf32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %0 = shardq.sparse_mla q(%q0) kv(%kv) slots(%s0) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  %1 = shardq.sparse_mla q(%q1) kv(%kv) slots(%s1) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  %2 = shardq.sparse_mla q(%q2) kv(%kv) slots(%s2) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0, %1, %2 : tensor<?x2x4xf32>, tensor<?x2x4xf32>, tensor<?x2x4xf32>
}

// Shared indices are computed once, on own rows or on all. Where all rows are
// needed the op itself is as it was.
func.func @two_layers_share_indices(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>,
                                    %table: tensor<?x?xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
                                    %rows: index) -> (tensor<?x2x4xf32>, tensor<?x2x4xf32>) {
  // CHECK: %[[MINE:.*]] = shardq.local_rows
  // CHECK: %[[GATE:.*]] = shardq.split_gate
  // CHECK: %[[SLOTS:.*]] = scf.if %[[GATE]] -> (tensor<?x8xi32>) {
  // CHECK: %[[TOPK_L:.*]] = shardq.take_rows %{{.*}}[%[[MINE]]]
  // CHECK: shardq.convert_indices %[[TOPK_L]]
  // CHECK: } else {
  // CHECK: shardq.convert_indices
  // CHECK: }
  // CHECK-NOT: shardq.convert_indices
  // CHECK-COUNT-2: scf.if %[[GATE]] -> (tensor<?x2x4xf32>)
  // CHECK-NOT: shardq.convert_indices
  // CHECK: return
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 1 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  %1 = shardq.sparse_mla q(%0) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %0, %1 : tensor<?x2x4xf32>, tensor<?x2x4xf32>
}

// -----

// The same lengths under two gates: each gate takes its own rows of them.
// CHECK-LABEL: func @two_widths
// CHECK-SAME: %[[LENGTH:[a-z0-9]+]]: tensor<?xi32>
shardq.mesh @ranks ["tp" = 4]
func.func @two_widths(%length: tensor<?xi32>, %q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %s4: tensor<?x4xi32>,
                      %s8: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index)
    -> (tensor<?x2x4xf32>, tensor<?x2x4xf32>) {
  // CHECK-COUNT-1: shardq.zigzag_split
  // CHECK-DAG: %[[G4:.*]] = shardq.split_gate {{.*}}topk = 4
  // CHECK-DAG: %[[G8:.*]] = shardq.split_gate {{.*}}topk = 8
  // CHECK: scf.if %[[G4]] -> (tensor<?x2x4xf32>)
  // CHECK: shardq.take_rows %[[LENGTH]]
  // CHECK: scf.if %[[G8]] -> (tensor<?x2x4xf32>)
  // CHECK: shardq.take_rows %[[LENGTH]]
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%s4) rows(%req) topk_length(%length) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x4xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%s8) rows(%req) topk_length(%length) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0, %1 : tensor<?x2x4xf32>, tensor<?x2x4xf32>
}

// -----

// Two meshes split one step each in its own way.
// CHECK-LABEL: func @two_meshes
shardq.mesh @ranks ["tp" = 4]
shardq.mesh @others ["tp" = 3]
func.func @two_meshes(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>,
                      %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index)
    -> (tensor<?x2x4xf32>, tensor<?x2x4xf32>) {
  // CHECK-DAG: shardq.zigzag_split {{.*}} over @ranks "tp"
  // CHECK-DAG: shardq.zigzag_split {{.*}} over @others "tp"
  // CHECK: shardq.exchange heads_to_tokens{{.*}} over @ranks "tp" {{.*}} -> tensor<?x8x4xf32>
  // CHECK: shardq.exchange heads_to_tokens{{.*}} over @others "tp" {{.*}} -> tensor<?x6x4xf32>
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@others, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0, %1 : tensor<?x2x4xf32>, tensor<?x2x4xf32>
}

// -----

// Taps stay, with the step rows of what they then see.
// CHECK-LABEL: func @taps
shardq.mesh @ranks ["tp" = 4]
func.func @taps(%scores: tensor<?x?xf32>, %q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>,
                %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  // CHECK: %[[MINE:.*]] = shardq.local_rows
  // CHECK: scf.if
  // CHECK: %[[TOPK_L:.*]] = shardq.topk
  // CHECK-NEXT: shardq.tap "topk.0" %[[TOPK_L]] rows(%[[MINE]] : tensor<?xi32>)
  // CHECK: } else {
  // CHECK: %[[TOPK:.*]] = shardq.topk
  // CHECK-NEXT: shardq.tap "topk.0" %[[TOPK]] : tensor<?x8xi32>
  // CHECK-NOT: shardq.tap
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x8xi32>
  shardq.tap "topk.0" %topk : tensor<?x8xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%topk) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// An index op with another use runs on all rows, which are then taken.
// CHECK-LABEL: func @other_use
shardq.mesh @ranks ["tp" = 4]
func.func @other_use(%scores: tensor<?x?xf32>, %q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>,
                     %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> (tensor<?x2x4xf32>, tensor<?x8xi32>) {
  // CHECK: %[[TOPK:.*]] = shardq.topk
  // CHECK: %[[OUT:.*]] = scf.if
  // CHECK: shardq.take_rows %[[TOPK]]
  // CHECK-NOT: shardq.topk
  // CHECK: return %[[OUT]], %[[TOPK]]
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x8xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%topk) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out, %topk : tensor<?x2x4xf32>, tensor<?x8xi32>
}

// -----

// Layers as a loop: the split stands outside, the indices that no turn changes
// are not computed in each.
// CHECK-LABEL: func @loop
shardq.mesh @ranks ["tp" = 4]
func.func @loop(%scores: tensor<?x?xf32>, %q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>,
                %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index, %n: index) -> tensor<?x2x4xf32> {
  // CHECK: %[[GATE:.*]] = shardq.split_gate
  // CHECK: scf.if %[[GATE]] -> (tensor<?x8xi32>)
  // CHECK: scf.for
  // CHECK-NOT: shardq.topk
  // CHECK: scf.if %[[GATE]] -> (tensor<?x2x4xf32>)
  // CHECK-NOT: shardq.topk
  // CHECK: return
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x8xi32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %out = scf.for %i = %c0 to %n step %c1 iter_args(%x = %q) -> tensor<?x2x4xf32> {
    %next = shardq.sparse_mla q(%x) kv(%kv) slots(%topk) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
        : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
    scf.yield %next : tensor<?x2x4xf32>
  }
  return %out : tensor<?x2x4xf32>
}

// -----

// Indices made before the step is described, shared by two layers.
// CHECK-LABEL: func @indices_first
shardq.mesh @ranks ["tp" = 4]
func.func @indices_first(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %table: tensor<?x?xi32>,
                         %rq: tensor<?xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index)
    -> (tensor<?x2x4xf32>, tensor<?x2x4xf32>) {
  // CHECK-COUNT-2: shardq.exchange heads_to_tokens
  %slots = shardq.convert_indices %topk table(%table) rows(%rq) {block_size = 1 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0, %1 : tensor<?x2x4xf32>, tensor<?x2x4xf32>
}

// -----

// Blocks: what a later one is handed is not there yet at the gate.
// CHECK-LABEL: func @blocks
shardq.mesh @ranks ["tp" = 4]
func.func @blocks(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %s: tensor<?x8xi32>, %start: tensor<?xi32>,
                  %lens: tensor<?xi32>, %rows: index) -> (tensor<?x2x4xf32>, tensor<?x2x4xf32>) {
  // CHECK: shardq.split_gate
  // CHECK: ^bb1(%[[SLOTS:.*]]: tensor<?x8xi32>):
  // CHECK: shardq.take_rows %[[SLOTS]]
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  cf.br ^next(%s : tensor<?x8xi32>)
^next(%slots: tensor<?x8xi32>):
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0, %1 : tensor<?x2x4xf32>, tensor<?x2x4xf32>
}

// -----

// A value that is both a row operand and a table is taken by rows as the one
// and stays whole as the other.
// CHECK-LABEL: func @rows_and_table
// CHECK-SAME: %[[TOPK:[a-z0-9]+]]: tensor<?x8xi32>
shardq.mesh @ranks ["tp" = 4]
func.func @rows_and_table(%topk: tensor<?x8xi32>, %q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>,
                          %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  // CHECK: scf.if
  // CHECK: %[[TOPK_L:.*]] = shardq.take_rows %[[TOPK]]
  // CHECK: shardq.convert_indices %[[TOPK_L]] table(%[[TOPK]])
  // CHECK: } else {
  // CHECK: shardq.convert_indices %[[TOPK]] table(%[[TOPK]])
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%topk) rows(%req) {block_size = 1 : i64}
      : (tensor<?x8xi32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

// A sub-axis is an axis like any other, and ops that have nothing to do with
// the attention are as they were.
// CHECK-LABEL: func @sub_axis
shardq.mesh @ranks ["tp" = 8, "sub" = 4 in "tp"]
func.func @sub_axis(%x: tensor<?x8xf32>, %keep: memref<4xf32>, %v: f32, %i: index) -> tensor<?x8xf32> {
  // CHECK-NEXT: memref.store
  // CHECK-NEXT: %[[Y:.*]] = arith.addf
  // CHECK-NEXT: return %[[Y]]
  memref.store %v, %keep[%i] : memref<4xf32>
  %y = arith.addf %x, %x : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Lists of the caller are to have the step's rows, which is compared in front of the gate: a list that layers share once, and one that
// is made later behind that.
// CHECK-LABEL: func @lists
// CHECK: shardq.expand_rows
// CHECK: %[[SLOTS:.*]] = tensor.dim %arg2
// CHECK: shardq.expect "rows of 'slots' of shardq.sparse_mla" %[[SLOTS]] equals %arg6
// CHECK: shardq.split_gate
// CHECK: %[[SUM:.*]] = arith.addi %arg3, %arg3
// CHECK: %[[SIZE:.*]] = tensor.dim %[[SUM]]
// CHECK: shardq.expect "rows of 'topk_length' of shardq.sparse_mla" %[[SIZE]] equals %arg6
// CHECK-NOT: shardq.expect
// CHECK: return
shardq.mesh @ranks ["tp" = 2]
func.func @lists(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x4xi32>, %n: tensor<?xi32>, %start: tensor<?xi32>,
                 %lens: tensor<?xi32>, %rows: index) -> (tensor<?x4x8xbf16>, tensor<?x4x8xbf16>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %sum = arith.addi %n, %n : tensor<?xi32>
  %a = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) topk_length(%sum)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x4xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  %b = shardq.sparse_mla q(%a) kv(%kv) slots(%slots) rows(%req) topk_length(%sum)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x4xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %a, %b : tensor<?x4x8xbf16>, tensor<?x4x8xbf16>
}
