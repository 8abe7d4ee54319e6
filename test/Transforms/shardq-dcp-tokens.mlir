// Contiguous shards of a step's tokens: rows travel, and each rank gets its own back.
//
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=decode remarks=false" | FileCheck %s --check-prefixes=CHECK,DECODE
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gate remarks=false" | FileCheck %s --check-prefixes=CHECK,GATE
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=decode padded-heads=128" --verify-diagnostics -o /dev/null
//
// A second run changes nothing, nor do passes for other shardings, and the result goes all the way to a CPU.
// RUN: shardq-opt %s --split-input-file --shardq-dcp=remarks=false -o %t.once.mlir
// RUN: shardq-opt %t.once.mlir --split-input-file --shardq-dcp --shard-q-tokens --shardq-pcp -o %t.twice.mlir
// RUN: diff %t.once.mlir %t.twice.mlir
// RUN: shardq-opt %t.once.mlir --split-input-file --shardq-to-cpu -o /dev/null

// What the step says of a shard's rows it says of all rows: requests do not travel.
// CHECK-LABEL: func @step
// CHECK-SAME: %[[NOPE:[a-z0-9]+]]: tensor<?x16x512xbf16>, %[[ROPE:[a-z0-9]+]]: tensor<?x16x64xbf16>, %[[TOPK:[a-z0-9]+]]: tensor<?x64xi32>,
// CHECK-SAME: %[[KV:[a-z0-9]+]]: tensor<?x576xbf16>, %[[START:[a-z0-9]+]]: tensor<?xi32>, %[[LENS:[a-z0-9]+]]: tensor<?xi32>, %[[TABLE:[a-z0-9]+]]: tensor<?x?xi32>
// CHECK: %[[ROWS:.*]] = tensor.dim %[[NOPE]]
// CHECK: shardq.shard_lengths %[[START]], %[[LENS]] rows(%[[ROWS]])
// CHECK: shardq.expand_rows %{{.*}} to %[[ROWS]]
// CHECK: %[[ALL:.*]] = arith.muli %[[ROWS]], %c4
// CHECK: %[[REQ:.*]]:2 = shardq.expand_rows %[[START]], %[[LENS]] to %[[ALL]]
// GATE: shardq.gather_blocks %[[TABLE]] lengths(%[[LENS]])
// GATE: shardq.count_decode_rows %[[START]]
// GATE: scf.if
// GATE: shardq.gather_kv_start(%[[KV]])
// GATE: shardq.sparse_mla q(%[[NOPE]], %[[ROPE]]) {{.*}} sharding = #shardq.sharding<@ranks, tokens = contiguous ["dcp"]>} : {{.*}} -> tensor<?x16x512xbf16>
// GATE: } else {
// CHECK: %[[CHOSEN:.*]] = shardq.gather_rows %[[TOPK]] over @ranks "dcp" {token_shards} : (tensor<?x64xi32>) -> tensor<?x64xi32>
// CHECK: %[[OWN:.*]]:2 = shardq.filter_indices %[[CHOSEN]] table(%[[TABLE]]) rows(%[[REQ]]#0)
// CHECK: %[[Q:.*]] = shardq.gather_rows %[[NOPE]], %[[ROPE]] over @ranks "dcp" {token_shards} : {{.*}} -> tensor<?x16x576xbf16>
// CHECK: %[[PART:.*]]:2 = shardq.sparse_mla q(%[[Q]]) kv(%[[KV]]) slots(%[[OWN]]#0) rows(%[[REQ]]#0) topk_length(%[[OWN]]#1) {scale = 5.000000e-01 : f32} : {{.*}} -> (tensor<?x16x512xbf16>, tensor<?x16xf32>)
// CHECK: %[[OUT:.*]] = shardq.combine_lse %[[PART]]#0 lse(%[[PART]]#1) over @ranks "dcp" {scatter_tokens} : {{.*}} -> tensor<?x16x512xbf16>
// DECODE: return %[[OUT]]
// GATE: scf.yield %[[OUT]]
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @step(%nope: tensor<?x16x512xbf16>, %rope: tensor<?x16x64xbf16>, %topk: tensor<?x64xi32>, %kv: tensor<?x576xbf16>,
                %start: tensor<?xi32>, %lens: tensor<?xi32>, %table: tensor<?x?xi32>) -> tensor<?x16x512xbf16> {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %nope, %c0 : tensor<?x16x512xbf16>
  %starts, %lengths = shardq.shard_lengths %start, %lens rows(%rows) over @ranks "dcp"
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %req, %visible = shardq.expand_rows %starts, %lengths to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x64xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x64xi32>
  // expected-remark @+1 {{attention runs on own keys of "dcp" (4 ranks) with their rows}}
  %out = shardq.sparse_mla q(%nope, %rope) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, tokens = contiguous ["dcp"], kv = interleave<64> ["dcp"]>}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>, tensor<?x64xi32>, tensor<?xi32>)
      -> tensor<?x16x512xbf16>
  return %out : tensor<?x16x512xbf16>
}

// -----

// Requests and lengths of rows that are given travel too, as rows of one number. A merge has the sinks of all heads.
// CHECK-LABEL: func @given
// CHECK-SAME: %[[REQ:[a-z0-9]+]]: tensor<2xi32>, %[[LENGTH:[a-z0-9]+]]: tensor<2xi32>, %{{[a-z0-9]+}}: tensor<?x?xi32>, %[[SINK:[a-z0-9]+]]: tensor<4xf32>
// CHECK: %[[CHOSEN:.*]] = shardq.gather_rows %{{.*}} : (tensor<2x8xi32>) -> tensor<6x8xi32>
// CHECK: %[[COLUMN:.*]] = tensor.expand_shape %[[REQ]]
// CHECK: %[[GATHERED:.*]] = shardq.gather_rows %[[COLUMN]] over @ranks "tp" {token_shards} : (tensor<2x1xi32>) -> tensor<6x1xi32>
// CHECK: %[[ALL:.*]] = tensor.collapse_shape %[[GATHERED]]
// CHECK: shardq.filter_indices %[[CHOSEN]] {{.*}} rows(%[[ALL]]) {{.*}} in_place
// CHECK: tensor.expand_shape %[[LENGTH]]
// CHECK: shardq.sparse_mla {{.*}} topk_length({{.*}} -> (tensor<6x4x4xf32>, tensor<6x4xf32>)
// CHECK: shardq.combine_lse {{.*}} sink(%[[SINK]]) over @ranks "tp" {lse = #shardq.lse<base = two>, scatter_tokens} : {{.*}} -> (tensor<2x4x4xf32>, tensor<2x4xf32>)
shardq.mesh @ranks ["tp" = 3]
func.func @given(%q: tensor<2x4x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<2x8xi32>, %req: tensor<2xi32>, %length: tensor<2xi32>,
                 %table: tensor<?x?xi32>, %sink: tensor<4xf32>) -> (tensor<2x4x4xf32>, tensor<2x4xf32>) {
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<2x8xi32>, tensor<?x?xi32>, tensor<2xi32>) -> tensor<2x8xi64>
  // expected-remark @+1 {{attention runs on own keys of "tp" (3 ranks) with their rows}}
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) topk_length(%length) sink(%sink)
      {scale = 0.5 : f32, lse = #shardq.lse<base = two>,
       sharding = #shardq.sharding<@ranks, tokens = contiguous ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<2x4x4xf32>, tensor<?x4xf32>, tensor<2x8xi64>, tensor<2xi32>, tensor<4xf32>) -> (tensor<2x4x4xf32>, tensor<2x4xf32>)
  return %out, %lse : tensor<2x4x4xf32>, tensor<2x4xf32>
}

// -----

// One rank keeps all keys: nothing to do, and nothing is said.
// CHECK-LABEL: func @one_rank
// CHECK-NOT: shardq.gather
// CHECK: shardq.sparse_mla {{.*}} kv = interleave<4> ["dcp"]
shardq.mesh @ranks ["tp" = 4, "dcp" = 1 in "tp"]
func.func @one_rank(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) -> tensor<?x2x4xf32> {
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, tokens = contiguous ["dcp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}
