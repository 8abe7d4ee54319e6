// Attention over a sharded KV cache becomes attention over own keys and a merge.
//
// RUN: shardq-opt %s --split-input-file --shardq-dcp=remarks=false | FileCheck %s
// RUN: shardq-opt %s --split-input-file --shardq-dcp --verify-diagnostics
//
// A second run changes nothing, and the result goes all the way to a CPU.
// RUN: shardq-opt %s --split-input-file --shardq-dcp=remarks=false -o %t.once.mlir
// RUN: shardq-opt %t.once.mlir --split-input-file --shardq-dcp -o %t.twice.mlir
// RUN: diff %t.once.mlir %t.twice.mlir
// RUN: shardq-opt %s --split-input-file --shardq-dcp=remarks=false --shardq-to-cpu -o /dev/null

// Two groups of four ranks, each with half of the heads.
// CHECK-LABEL: func @groups
// CHECK-SAME: %[[NOPE:[a-z0-9]+]]: tensor<?x16x512xbf16>, %[[ROPE:[a-z0-9]+]]: tensor<?x16x64xbf16>, %[[KV:[a-z0-9]+]]: tensor<?x576xbf16>,
// CHECK-SAME: %[[SCORES:[a-z0-9]+]]: tensor<?x?xf32>, %[[VISIBLE:[a-z0-9]+]]: tensor<?xi32>, %[[REQ:[a-z0-9]+]]: tensor<?xi32>, %[[TABLE:[a-z0-9]+]]: tensor<?x?xi32>
// CHECK: %[[TOPK:.*]] = shardq.topk
// CHECK: %[[OWN:.*]]:2 = shardq.filter_indices %[[TOPK]] table(%[[TABLE]]) rows(%[[REQ]]) over @ranks "dcp" {block_size = 64 : i64, block_stride_rows = 70 : i64, interleave = 4 : i64}
// CHECK-NOT: shardq.convert_indices
// CHECK: %[[Q:.*]] = shardq.gather_query(%[[NOPE]], %[[ROPE]]) over @ranks "dcp" : {{.*}} -> tensor<?x64x576xbf16>
// CHECK: %[[PART:.*]]:2 = shardq.sparse_mla q(%[[Q]]) kv(%[[KV]]) slots(%[[OWN]]#0) rows(%[[REQ]]) topk_length(%[[OWN]]#1) {scale = 5.000000e-01 : f32} : {{.*}} -> (tensor<?x64x512xbf16>, tensor<?x64xf32>)
// CHECK: %[[OUT:.*]] = shardq.combine_lse %[[PART]]#0 lse(%[[PART]]#1) over @ranks "dcp" : {{.*}} -> tensor<?x16x512xbf16>
// CHECK: return %[[OUT]]
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @groups(%nope: tensor<?x16x512xbf16>, %rope: tensor<?x16x64xbf16>, %kv: tensor<?x576xbf16>,
                  %scores: tensor<?x?xf32>, %visible: tensor<?xi32>, %req: tensor<?xi32>, %table: tensor<?x?xi32>)
    -> tensor<?x16x512xbf16> {
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64, block_stride_rows = 70 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  // expected-remark @+1 {{attention runs on own keys of "dcp" (4 ranks) with their 64 heads}}
  %out = shardq.sparse_mla q(%nope, %rope) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>, tensor<?x2048xi32>, tensor<?xi32>)
      -> tensor<?x16x512xbf16>
  return %out : tensor<?x16x512xbf16>
}

// -----

// The LSE is merged where it is used, in its base; its axis may be that of the heads.
// CHECK-LABEL: func @lse
// CHECK: %[[PART:.*]]:2 = shardq.sparse_mla {{.*}} {lse = #shardq.lse<base = two>, scale = 5.000000e-01 : f32}
// CHECK: %[[OUT:.*]]:2 = shardq.combine_lse {{.*}} over @ranks "tp" {lse = #shardq.lse<base = two>} : {{.*}} -> (tensor<3x2x4xf32>, tensor<3x2xf32>)
// CHECK: return %[[OUT]]#0, %[[OUT]]#1
shardq.mesh @ranks ["tp" = 3]
func.func @lse(%q: tensor<3x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<3x8xi32>, %req: tensor<3xi32>,
               %table: tensor<?x?xi32>) -> (tensor<3x2x4xf32>, tensor<3x2xf32>) {
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<3x8xi32>, tensor<?x?xi32>, tensor<3xi32>) -> tensor<3x8xi32>
  // expected-remark @+1 {{attention runs on own keys of "tp" (3 ranks) with their 6 heads}}
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
      {scale = 0.5 : f32, lse = #shardq.lse<base = two>,
       sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<3x2x4xf32>, tensor<?x4xf32>, tensor<3x8xi32>) -> (tensor<3x2x4xf32>, tensor<3x2xf32>)
  return %out, %lse : tensor<3x2x4xf32>, tensor<3x2xf32>
}

// -----

// An LSE without use is not merged. Attentions that share slots share the filter.
// CHECK-LABEL: func @shared
// CHECK-COUNT-1: shardq.filter_indices
// CHECK-NOT: shardq.filter_indices
// CHECK: shardq.gather_query
// CHECK: shardq.combine_lse {{.*}} -> tensor<?x2x4xf32>
// CHECK: shardq.gather_query
// CHECK: shardq.combine_lse {{.*}} -> tensor<?x2x4xf32>
// CHECK-NOT: shardq.convert_indices
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @shared(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %kv2: tensor<?x4xf32>, %topk: tensor<?x8xi32>,
                  %req: tensor<?xi32>, %table: tensor<?x?xi32>) -> tensor<?x2x4xf32> {
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-remark @+1 {{with their 4 heads}}
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> (tensor<?x2x4xf32>, tensor<?x2xf32>)
  // expected-remark @+1 {{with their 4 heads}}
  %out2 = shardq.sparse_mla q(%out) kv(%kv2) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out2 : tensor<?x2x4xf32>
}

// -----

// A length of the caller's counts columns of the positions, so slots keep theirs.
// CHECK-LABEL: func @length
// CHECK-SAME: %[[LENGTH:[a-z0-9]+]]: tensor<?xi32>)
// CHECK: %[[OWN:.*]] = shardq.filter_indices {{.*}} {block_size = 8 : i64, in_place, interleave = 4 : i64}
// CHECK: shardq.sparse_mla {{.*}} slots(%[[OWN]]) topk_length(%[[LENGTH]])
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @length(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
                  %table: tensor<?x?xi32>, %length: tensor<?xi32>) -> tensor<?x2x4xf32> {
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-remark @+1 {{with their 4 heads}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) topk_length(%length) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// The conversion's count of an indexer's positions becomes the filter's.
// CHECK-LABEL: func @count
// CHECK: %[[OWN:.*]]:2 = shardq.filter_indices {{.*}} -> (tensor<?x8xi64>, tensor<?xi32>)
// CHECK: shardq.sparse_mla {{.*}} slots(%[[OWN]]#0) topk_length(%[[OWN]]#1)
// CHECK-NOT: shardq.convert_indices
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @count(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %scores: tensor<?x?xf32>, %visible: tensor<?xi32>,
                 %req: tensor<?xi32>, %table: tensor<?x?xi32>) -> tensor<?x2x4xf32> {
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x8xi32>
  %slots, %count = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi64>, tensor<?xi32>)
  %cast = tensor.cast %slots : tensor<?x8xi64> to tensor<5x8xi64>
  // expected-remark @+1 {{with their 4 heads}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%cast) topk_length(%count) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<5x8xi64>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// One rank keeps all keys: nothing to do, and nothing is said.
// CHECK-LABEL: func @one_rank
// CHECK: shardq.convert_indices
// CHECK: shardq.sparse_mla {{.*}} kv = interleave<4> ["dcp"]
// CHECK-NOT: shardq.gather_query
shardq.mesh @ranks ["tp" = 4, "dcp" = 1 in "tp"]
func.func @one_rank(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
                    %table: tensor<?x?xi32>) -> tensor<?x2x4xf32> {
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// Under a condition that is equal everywhere, and beside attention over a whole cache.
// CHECK-LABEL: func @branch
// CHECK: scf.if
// CHECK: shardq.gather_query
// CHECK: shardq.combine_lse
// CHECK: else
// CHECK: shardq.sparse_mla {{.*}} sharding = #shardq.sharding<@ranks, heads = ["tp"]>
shardq.mesh @ranks ["tp" = 2]
func.func @branch(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %whole: tensor<?x4xf32>, %topk: tensor<?x8xi32>,
                  %req: tensor<?xi32>, %table: tensor<?x?xi32>, %cond: i1) -> tensor<?x2x4xf32> {
  %out = scf.if %cond -> (tensor<?x2x4xf32>) {
    %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
        : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
    // expected-remark @+1 {{with their 4 heads}}
    %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
        {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["tp"]>}
        : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
    scf.yield %0 : tensor<?x2x4xf32>
  } else {
    %1 = shardq.sparse_mla q(%q) kv(%whole) slots(%topk)
        {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
        : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
    scf.yield %1 : tensor<?x2x4xf32>
  }
  return %out : tensor<?x2x4xf32>
}
