// Shards of the rows are gathered, attended and scattered in slices of each rank's; sinks belong to all rows.
//
// RUN: shardq-opt %s --shardq-slice-steps=max-tokens=8 --verify-diagnostics | FileCheck %s
//
// A second run changes nothing.
// RUN: shardq-opt %s --shardq-slice-steps=max-tokens=8 -o %t.once 2> /dev/null
// RUN: shardq-opt %t.once --shardq-slice-steps=max-tokens=8 2> /dev/null | diff %t.once -
//
// In a turn gathers and merges acknowledge each other, so that inboxes have one generation; but for that of positions that
// two attentions share, which a loop of its own gathers.
// RUN: shardq-opt %s --shardq-to-cpu=max-tokens=8 --mlir-print-ir-after=shardq-plan-workspace -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=PLAN
// PLAN: shardq.plan
// PLAN-DAG: #shardq.channel<"gather_rows 4xi32", {{[^>]*}} generations = 2>
// PLAN-DAG: #shardq.channel<"gather_rows 2x16xbf16", {{[^>]*}} generations = 1>
// PLAN-DAG: #shardq.channel<"gather_rows 6xi32", {{[^>]*}} generations = 1>
// PLAN-DAG: #shardq.channel<"gather_rows 1xi32", {{[^>]*}} generations = 1>

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// Nothing gathers the rows of this one: a slice is of those of each rank, which they can share.
// CHECK-LABEL: func @tokens
// CHECK-SAME: %[[P:.*]]: tensor<?x8x16xbf16>, %[[L:.*]]: tensor<?x8xf32>
// CHECK: %[[ALL:.*]] = tensor.dim %[[P]], %c0
// CHECK: %[[MORE:.*]] = arith.cmpi sgt, %[[ALL]], %c8
// CHECK: scf.if %[[MORE]]
// CHECK: %[[ROWS:.*]] = arith.divui %[[ALL]], %c4
// CHECK: %[[SHARED:.*]] = arith.muli %[[ROWS]], %c4
// CHECK: shardq.expect "rows of 'partial' of shardq.combine_lse" %[[ALL]] equals %[[SHARED]]
// CHECK: shardq.expect "rows of 'lse' of shardq.combine_lse"
// CHECK: tensor.empty(%[[ROWS]]) : tensor<?x8x16xbf16>
// CHECK: scf.for {{.*}} to %[[ROWS]] step %c2
// CHECK-COUNT-4: tensor.extract_slice %[[P]]
// CHECK-COUNT-4: tensor.extract_slice %[[L]]
// CHECK: shardq.combine_lse
// CHECK: } else {
// CHECK: shardq.combine_lse %[[P]] lse(%[[L]])
func.func @tokens(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> tensor<?x8x16xbf16> {
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

// CHECK-LABEL: func @few_tokens
// CHECK-NOT: scf.for
func.func @few_tokens(%p: tensor<8x8x16xbf16>, %l: tensor<8x8xf32>) -> tensor<2x8x16xbf16> {
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<8x8x16xbf16>, tensor<8x8xf32>) -> tensor<2x8x16xbf16>
  return %0 : tensor<2x8x16xbf16>
}

// CHECK-LABEL: func @sink
// CHECK-SAME: %[[SINK:[a-z0-9]+]]: tensor<2xf32>
// CHECK: scf.for
// CHECK: shardq.combine_lse {{.*}} sink(%[[SINK]])
// CHECK: scf.yield
// CHECK: shardq.combine_lse {{.*}} sink(%[[SINK]])
func.func @sink(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %s: tensor<2xf32>) -> tensor<?x2x16xbf16> {
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<2xf32>) -> tensor<?x2x16xbf16>
  return %0 : tensor<?x2x16xbf16>
}

// What the chain makes itself it makes of its slices: positions, requests and queries are gathered in turns. Lengths of all
// rows are taken from each rank's part.
// CHECK-LABEL: func @attend
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x2x16xbf16>, %[[KV:[a-z0-9]+]]: tensor<?x16xbf16>, %[[TOPK:[a-z0-9]+]]: tensor<?x6xi32>,
// CHECK-SAME: %[[REQ:[a-z0-9]+]]: tensor<?xi32>, %[[LENGTH:[a-z0-9]+]]: tensor<?xi32>
// CHECK: %[[ONE:.*]] = tensor.expand_shape %[[REQ]]
// CHECK: %[[ROWS:.*]] = tensor.dim %[[TOPK]], %c0
// CHECK: %[[MORE:.*]] = arith.cmpi sgt, %[[ROWS]], %c2
// CHECK: %[[OUT:.*]] = scf.if %[[MORE]] -> (tensor<?x2x16xbf16>) {
// CHECK: shardq.expect "rows of source 0 of shardq.gather_rows" %{{.*}} equals %[[ROWS]]
// CHECK: shardq.expect "rows of source 0 of shardq.gather_rows" %{{.*}} equals %[[ROWS]]
// CHECK: %[[LENGTHS:.*]] = tensor.dim %[[LENGTH]], %c0
// CHECK: %[[OF_ALL:.*]] = arith.muli %[[ROWS]], %c4
// CHECK: shardq.expect "rows of 'topk_length' of shardq.sparse_mla" %[[LENGTHS]] equals %[[OF_ALL]]
// CHECK: %[[SHARE:.*]] = arith.divui %[[LENGTHS]], %c4
// CHECK: %[[COMMON:.*]] = arith.minsi %{{.*}}, %[[SHARE]]
// CHECK: %[[EMPTY:.*]] = tensor.empty(%[[ROWS]]) : tensor<?x2x16xbf16>
// CHECK: scf.for %[[AT:.*]] = %{{.*}} to %[[ROWS]] step %{{.*}} iter_args(%[[SO_FAR:.*]] = %[[EMPTY]])
// CHECK: %[[I:.*]] = arith.minsi %[[AT]], %[[COMMON]]
// CHECK: %[[REST:.*]] = arith.subi %[[COMMON]], %[[I]]
// CHECK: %[[N:.*]] = arith.minsi %[[REST]], %c2
// CHECK: %[[TS:.*]] = tensor.extract_slice %[[TOPK]][%[[I]], 0] [%[[N]], 6]
// CHECK: %[[TA:.*]] = shardq.gather_rows %[[TS]] over @ranks "dcp" {token_shards}
// CHECK: %[[OS:.*]] = tensor.extract_slice %[[ONE]][%[[I]], 0] [%[[N]], 1]
// CHECK: %[[OA:.*]] = shardq.gather_rows %[[OS]] over @ranks "dcp" {token_shards}
// CHECK: %[[RA:.*]] = tensor.collapse_shape %[[OA]]
// CHECK: %[[SLOTS:.*]] = shardq.filter_indices %[[TA]] table(%{{.*}}) rows(%[[RA]])
// CHECK: %[[QS:.*]] = tensor.extract_slice %[[Q]][%[[I]], 0, 0] [%[[N]], 2, 16]
// CHECK: %[[QA:.*]] = shardq.gather_rows %[[QS]] over @ranks "dcp" {token_shards}
// CHECK: %[[L0:.*]] = tensor.extract_slice %[[LENGTH]][%[[I]]] [%[[N]]]
// CHECK: %[[BEFORE:.*]] = arith.muli %[[COMMON]], %c1
// CHECK: %[[AT:.*]] = arith.addi %[[BEFORE]], %[[I]]
// CHECK: %[[L1:.*]] = tensor.extract_slice %[[LENGTH]][%[[AT]]] [%[[N]]]
// CHECK: tensor.extract_slice %[[LENGTH]]
// CHECK: tensor.extract_slice %[[LENGTH]]
// CHECK: tensor.insert_slice %[[L0]]
// CHECK: tensor.insert_slice %[[L1]]
// CHECK: %[[LA:.*]] = tensor.insert_slice
// CHECK: %[[LA:.*]] = tensor.insert_slice
// CHECK: %[[PS:.*]]:2 = shardq.sparse_mla q(%[[QA]]) kv(%[[KV]]) slots(%[[SLOTS]]) topk_length(%[[LA]])
// CHECK: %[[SLICE:.*]] = shardq.combine_lse %[[PS]]#0 lse(%[[PS]]#1) over @ranks "dcp" {scatter_tokens}
// CHECK: tensor.insert_slice %[[SLICE]] into %[[SO_FAR]][%[[I]], 0, 0] [%[[N]], 2, 16]
// CHECK: } else {
// CHECK-NEXT: shardq.gather_rows %[[TOPK]]
// CHECK-NEXT: shardq.gather_rows %[[ONE]]
// CHECK-NEXT: tensor.collapse_shape
// CHECK-NEXT: shardq.filter_indices
// CHECK-NEXT: shardq.gather_rows %[[Q]]
// CHECK-NEXT: shardq.sparse_mla
// CHECK-NEXT: shardq.combine_lse
// CHECK-NEXT: scf.yield
// CHECK: return %[[OUT]]
func.func @attend(%q: tensor<?x2x16xbf16>, %kv: tensor<?x16xbf16>, %topk: tensor<?x6xi32>, %req: tensor<?xi32>, %length: tensor<?xi32>,
                  %table: tensor<?x?xi32>, %rows: index) -> tensor<?x2x16xbf16> {
  %positions = shardq.gather_rows %topk over @ranks "dcp" {token_shards} : (tensor<?x6xi32>) -> tensor<?x6xi32>
  %column = tensor.expand_shape %req [[0, 1]] output_shape [%rows, 1] : tensor<?xi32> into tensor<?x1xi32>
  %columns = shardq.gather_rows %column over @ranks "dcp" {token_shards} : (tensor<?x1xi32>) -> tensor<?x1xi32>
  %requests = tensor.collapse_shape %columns [[0, 1]] : tensor<?x1xi32> into tensor<?xi32>
  %slots = shardq.filter_indices %positions table(%table) rows(%requests) over @ranks "dcp"
      {interleave = 4 : i64, block_size = 64 : i64, in_place} : (tensor<?x6xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x6xi32>
  %all = shardq.gather_rows %q over @ranks "dcp" {token_shards} : (tensor<?x2x16xbf16>) -> tensor<?x2x16xbf16>
  %p, %l = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) topk_length(%length) {scale = 1.0 : f32}
      : (tensor<?x2x16xbf16>, tensor<?x16xbf16>, tensor<?x6xi32>, tensor<?xi32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %out = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> tensor<?x2x16xbf16>
  return %out : tensor<?x2x16xbf16>
}

// Positions that two attentions share are gathered in turns by themselves, and become slots, each rank's in its part.
// CHECK-LABEL: func @shared
// CHECK: %[[SLOTS:.*]] = scf.if %{{.*}} -> (tensor<?x4xi32>) {
// CHECK: %[[EMPTY:.*]] = tensor.empty(%{{.*}}) : tensor<?x4xi32>
// CHECK: scf.for
// CHECK: %[[PART:.*]] = shardq.gather_rows
// CHECK-COUNT-4: tensor.extract_slice %arg3
// CHECK: %[[OWN:.*]] = shardq.filter_indices %[[PART]]
// CHECK-COUNT-4: tensor.extract_slice %[[OWN]]
// CHECK: } else {
// CHECK-NEXT: %[[WHOLE:.*]] = shardq.gather_rows
// CHECK-NEXT: %[[OWN:.*]] = shardq.filter_indices %[[WHOLE]]
// CHECK-NEXT: scf.yield %[[OWN]]
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
// CHECK-COUNT-4: tensor.extract_slice %[[SLOTS]]
// CHECK: shardq.sparse_mla
// CHECK: shardq.combine_lse
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.combine_lse
func.func @shared(%q: tensor<?x2x16xbf16>, %kv: tensor<?x16xbf16>, %topk: tensor<?x4xi32>, %req: tensor<?xi32>, %table: tensor<?x?xi32>)
    -> (tensor<?x2x16xbf16>, tensor<?x2x16xbf16>) {
  %positions = shardq.gather_rows %topk over @ranks "dcp" {token_shards} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  %slots = shardq.filter_indices %positions table(%table) rows(%req) over @ranks "dcp"
      {interleave = 4 : i64, block_size = 64 : i64, in_place} : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %all = shardq.gather_rows %q over @ranks "dcp" {token_shards} : (tensor<?x2x16xbf16>) -> tensor<?x2x16xbf16>
  %p, %l = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> tensor<?x2x16xbf16>
  %more = shardq.gather_rows %0 over @ranks "dcp" {token_shards} : (tensor<?x2x16xbf16>) -> tensor<?x2x16xbf16>
  %p2, %l2 = shardq.sparse_mla q(%more) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %1 = shardq.combine_lse %p2 lse(%l2) over @ranks "dcp" {scatter_tokens} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> tensor<?x2x16xbf16>
  return %0, %1 : tensor<?x2x16xbf16>, tensor<?x2x16xbf16>
}

// Known rows: two of each rank fit, three do not.
// CHECK-LABEL: func @known
// CHECK-NOT: scf
// CHECK: shardq.gather_rows %{{.*}} : (tensor<2x16xbf16>) -> tensor<8x16xbf16>
// CHECK-NOT: scf.if
// CHECK: scf.for {{.*}} -> (tensor<12x16xbf16>)
// CHECK: shardq.gather_rows %{{.*}} : (tensor<?x16xbf16>) -> tensor<?x16xbf16>
func.func @known(%few: tensor<2x16xbf16>, %many: tensor<3x16xbf16>) -> (tensor<8x16xbf16>, tensor<12x16xbf16>) {
  %0 = shardq.gather_rows %few over @ranks "dcp" {token_shards} : (tensor<2x16xbf16>) -> tensor<8x16xbf16>
  %1 = shardq.gather_rows %many over @ranks "dcp" {token_shards} : (tensor<3x16xbf16>) -> tensor<12x16xbf16>
  return %0, %1 : tensor<8x16xbf16>, tensor<12x16xbf16>
}
