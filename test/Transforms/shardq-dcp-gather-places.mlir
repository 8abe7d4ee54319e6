// Where blocks, gates and slots of a gather stand: in front of all that uses them.
//
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gather remarks=false" | FileCheck %s --check-prefixes=CHECK,GATHER
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gate remarks=false" | FileCheck %s --check-prefix=CHECK

// Two descriptions of one step in regions that do not see each other.
shardq.mesh @ranks ["tp" = 2]
// CHECK-LABEL: func @regions
// CHECK: scf.if
// CHECK: shardq.gather_blocks
// CHECK: } else {
// CHECK: shardq.gather_blocks
func.func @regions(%q: tensor<?x2x8xf32>, %kv: tensor<?x8xf32>, %c: i1, %topk: tensor<?x4xi32>, %table: tensor<?x?xi32>,
    %starts: tensor<?xi32>, %lengths: tensor<?xi32>, %rows: index) -> tensor<?x2x8xf32> {
  %r = scf.if %c -> tensor<?x2x8xf32> {
    %req, %v = shardq.expand_rows %starts, %lengths to %rows
        : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
    %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
        : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
    %a = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
        {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["tp"]>}
        : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>, tensor<?xi32>) -> tensor<?x2x8xf32>
    scf.yield %a : tensor<?x2x8xf32>
  } else {
    %req, %v = shardq.expand_rows %starts, %lengths to %rows
        : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
    %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
        : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
    %a = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
        {scale = 0.25 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["tp"]>}
        : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>, tensor<?xi32>) -> tensor<?x2x8xf32>
    scf.yield %a : tensor<?x2x8xf32>
  }
  return %r : tensor<?x2x8xf32>
}

// -----

// The step is described behind the conversion.
shardq.mesh @ranks ["tp" = 2]
// CHECK-LABEL: func @behind
// CHECK: shardq.expand_rows
// GATHER: %[[BLOCKS:.*]]:3 = shardq.gather_blocks
// GATHER: shardq.gathered_slots %{{.*}} blocks(%[[BLOCKS]]#1, %[[BLOCKS]]#2)
func.func @behind(%q: tensor<?x2x8xf32>, %kv: tensor<?x8xf32>, %topk: tensor<?x4xi32>, %given: tensor<?xi32>,
    %table: tensor<?x?xi32>, %starts: tensor<?xi32>, %lengths: tensor<?xi32>, %rows: index) -> tensor<?x2x8xf32> {
  %slots = shardq.convert_indices %topk table(%table) rows(%given) {block_size = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %req, %v = shardq.expand_rows %starts, %lengths to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %a = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["tp"]>}
      : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>, tensor<?xi32>) -> tensor<?x2x8xf32>
  return %a : tensor<?x2x8xf32>
}
