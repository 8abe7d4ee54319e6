// RUN: shardq-opt %s --shard-q-tokens="axis=sub min-tokens=7 remarks=false" | FileCheck %s
// RUN: shardq-opt %s --shard-q-tokens="min-tokens=0 remarks=false" 2>&1 | FileCheck %s --check-prefix=TP

// The axis and the least number of tokens are options; without remarks nothing
// is said.
shardq.mesh @ranks ["tp" = 8, "sub" = 4 in "tp"]
// CHECK-LABEL: func @f
// TP-NOT: remark
// TP-LABEL: func @f
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>,
             %lens: tensor<?xi32>, %rows: index) -> (tensor<?x2x4xf32>, tensor<?x2x4xf32>) {
  // CHECK: shardq.zigzag_split {{.*}} over @ranks "sub" : {{.*}} -> (tensor<?xi32>, tensor<5xi32>)
  // CHECK: shardq.split_gate {{.*}} {min_tokens = 7 : i64, topk = 8 : i64}
  // CHECK: shardq.exchange heads_to_tokens{{.*}} over @ranks "sub"
  // CHECK-NOT: shardq.exchange heads_to_tokens
  // TP: shardq.zigzag_split {{.*}} over @ranks "tp" : {{.*}} -> (tensor<?xi32>, tensor<9xi32>)
  // TP: shardq.split_gate {{.*}} {min_tokens = 0 : i64, topk = 8 : i64}
  // TP: shardq.exchange heads_to_tokens{{.*}} over @ranks "tp"
  // TP-NOT: shardq.exchange heads_to_tokens
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["sub"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0, %1 : tensor<?x2x4xf32>, tensor<?x2x4xf32>
}
