// RUN: shardq-opt %s --split-input-file --canonicalize | FileCheck %s

//===----------------------------------------------------------------------===//
// A world, or an axis, of one rank
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @rank
shardq.mesh @ranks ["dp" = 3, "tp" = 1]
shardq.mesh @alone ["tp" = 1]
func.func @rank() -> (index, index, index, index) {
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
  // CHECK-DAG: %[[DP:.*]] = shardq.rank over @ranks "dp"
  // CHECK-DAG: %[[RANK:.*]] = shardq.rank over @ranks{{$}}
  // CHECK: return %[[ZERO]], %[[ZERO]], %[[DP]], %[[RANK]]
  %0 = shardq.rank over @alone
  %1 = shardq.rank over @ranks "tp"
  %2 = shardq.rank over @ranks "dp"
  %3 = shardq.rank over @ranks
  return %0, %1, %2, %3 : index, index, index, index
}

// -----

// The rows behind the decodes; nobody to talk to.
// CHECK-LABEL: func @one_part
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x2x8xf32>, %[[START:[a-z0-9]+]]: tensor<?xi32>, %[[DECODES:[a-z0-9]+]]: index
shardq.mesh @ranks ["dp" = 3, "tp" = 1]
func.func @one_part(%q: tensor<?x2x8xf32>, %start: tensor<?xi32>, %d: index, %rows: index) -> tensor<?x2x8xf32> {
  // CHECK: %[[SPLIT:.*]]:2 = shardq.zigzag_split %[[START]]
  // CHECK: %[[END:.*]] = tensor.extract %[[SPLIT]]#1[%c1]
  // CHECK-NOT: shardq.exchange {{heads|tokens}}
  // CHECK: %[[HELD:.*]] = arith.maxsi %[[DECODES]], %c0
  // CHECK: %[[FIRST:.*]] = arith.minsi %[[HELD]]
  // CHECK: %[[SLICE:.*]] = tensor.extract_slice %[[Q]][%[[FIRST]], 0, 0] [%{{.*}}, 2, 8] [1, 1, 1]
  // CHECK: return %[[SLICE]]
  %ids, %offsets = shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<2xi32>)
  %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<2xi32>, index) -> tensor<?x2x8xf32>
  return %0 : tensor<?x2x8xf32>
}

// -----

// CHECK-LABEL: func @two_parts
// CHECK-SAME: %[[NOPE:[a-z0-9]+]]: tensor<?x2x8xf32>, %[[ROPE:[a-z0-9]+]]: tensor<?x2x4xf32>
// CHECK-SAME: %[[ROWS:[a-z0-9]+]]: index)
shardq.mesh @ranks ["tp" = 1]
func.func @two_parts(%nope: tensor<?x2x8xf32>, %rope: tensor<?x2x4xf32>, %start: tensor<?xi32>,
                     %d: index, %rows: index) -> tensor<?x2x12xf32> {
  // CHECK-NOT: shardq.exchange {{heads|tokens}}
  // Sources that may have other rows than the step are compared with it, and nothing is read beyond them.
  // CHECK-DAG: %[[SIZE0:.*]] = tensor.dim %[[NOPE]], %c0
  // CHECK-DAG: %[[SIZE1:.*]] = tensor.dim %[[ROPE]], %c0
  // CHECK-DAG: shardq.expect "rows of source 0 of shardq.exchange" %[[SIZE0]] equals %[[ROWS]]
  // CHECK-DAG: shardq.expect "rows of source 1 of shardq.exchange" %[[SIZE1]] equals %[[ROWS]]
  // CHECK: %[[A:.*]] = tensor.extract_slice %[[NOPE]]
  // CHECK: %[[B:.*]] = tensor.extract_slice %[[ROPE]]
  // CHECK: %[[JOINED:.*]] = tensor.concat dim(2) %[[A]], %[[B]]
  // CHECK: return %[[JOINED]]
  %ids, %offsets = shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<2xi32>)
  %0 = shardq.exchange heads_to_tokens(%nope, %rope) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?x2x4xf32>, tensor<?xi32>, tensor<2xi32>, index) -> tensor<?x2x12xf32>
  return %0 : tensor<?x2x12xf32>
}

// -----

// A number of rows that the type has is compared at run time, where an exchange is carried out.
// CHECK-LABEL: func @static_rows
shardq.mesh @ranks ["tp" = 1]
func.func @static_rows(%q: tensor<6x2x8xf32>, %start: tensor<?xi32>, %d: index, %rows: index) -> tensor<5x2x8xf32> {
  // CHECK: shardq.exchange
  %ids, %offsets = shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<2xi32>)
  %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<6x2x8xf32>, tensor<?xi32>, tensor<2xi32>, index) -> tensor<5x2x8xf32>
  return %0 : tensor<5x2x8xf32>
}

// -----

// Two ranks talk.
// CHECK-LABEL: func @two_ranks
shardq.mesh @ranks ["tp" = 2]
func.func @two_ranks(%q: tensor<?x2x8xf32>, %start: tensor<?xi32>, %d: index, %rows: index) -> tensor<?x4x8xf32> {
  // CHECK: shardq.exchange
  %ids, %offsets = shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<3xi32>)
  %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<3xi32>, index) -> tensor<?x4x8xf32>
  return %0 : tensor<?x4x8xf32>
}

// -----

// Ids that are no split may be in any order.
// CHECK-LABEL: func @foreign_ids
shardq.mesh @ranks ["tp" = 1]
func.func @foreign_ids(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<2xi32>, %d: index)
    -> (tensor<?x2x8xf32>, tensor<?x2x8xf32>) {
  // CHECK: shardq.exchange
  // CHECK: shardq.take_rows
  %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<2xi32>, index) -> tensor<?x2x8xf32>
  %mine = shardq.local_rows %ids, %offsets decodes(%d) over @ranks "tp"
      : (tensor<?xi32>, tensor<2xi32>, index) -> tensor<?xi32>
  %1 = shardq.take_rows %q[%mine] : (tensor<?x2x8xf32>, tensor<?xi32>) -> tensor<?x2x8xf32>
  return %0, %1 : tensor<?x2x8xf32>, tensor<?x2x8xf32>
}

// -----

//===----------------------------------------------------------------------===//
// take_rows
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @all_rows
// CHECK-SAME: %[[X:.*]]: tensor<3x2xf32>
func.func @all_rows(%x: tensor<3x2xf32>) -> tensor<3x2xf32> {
  // CHECK-NOT: shardq.take_rows
  // CHECK: return %[[X]]
  %rows = arith.constant dense<[0, 1, 2]> : tensor<3xi32>
  %0 = shardq.take_rows %x[%rows] : (tensor<3x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// -----

// CHECK-LABEL: func @only_row
// CHECK-SAME: %[[X:.*]]: tensor<1xi64>
func.func @only_row(%x: tensor<1xi64>) -> tensor<1xi64> {
  // CHECK: return %[[X]]
  %rows = arith.constant dense<0> : tensor<1xi32>
  %0 = shardq.take_rows %x[%rows] : (tensor<1xi64>, tensor<1xi32>) -> tensor<1xi64>
  return %0 : tensor<1xi64>
}

// -----

// Another order, fewer rows, an unknown number of rows.
// CHECK-LABEL: func @other_rows
func.func @other_rows(%x: tensor<3x2xf32>, %y: tensor<?x2xf32>)
    -> (tensor<3x2xf32>, tensor<2x2xf32>, tensor<3x2xf32>) {
  // CHECK-COUNT-3: shardq.take_rows
  %order = arith.constant dense<[0, 2, 1]> : tensor<3xi32>
  %some = arith.constant dense<[0, 1]> : tensor<2xi32>
  %all = arith.constant dense<[0, 1, 2]> : tensor<3xi32>
  %0 = shardq.take_rows %x[%order] : (tensor<3x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>
  %1 = shardq.take_rows %x[%some] : (tensor<3x2xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  %2 = shardq.take_rows %y[%all] : (tensor<?x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>
  return %0, %1, %2 : tensor<3x2xf32>, tensor<2x2xf32>, tensor<3x2xf32>
}

// -----

// Rows outside the source are zeros, also in a world of one: the rows that a
// rank owns are no slice.
// CHECK-LABEL: func @local_rows_of_one
shardq.mesh @ranks ["tp" = 1]
func.func @local_rows_of_one(%x: tensor<?x4xf32>, %start: tensor<?xi32>, %d: index, %rows: index) -> tensor<?x4xf32> {
  // CHECK: shardq.take_rows
  %ids, %offsets = shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<2xi32>)
  %mine = shardq.local_rows %ids, %offsets decodes(%d) over @ranks "tp"
      : (tensor<?xi32>, tensor<2xi32>, index) -> tensor<?xi32>
  %0 = shardq.take_rows %x[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Exchanges there and back
//===----------------------------------------------------------------------===//

// Both exchanges go, on every rank alike.
// CHECK-LABEL: func @pair
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8x8xf32>
shardq.mesh @ranks ["tp" = 4]
func.func @pair(%x: tensor<?x8x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index,
                %after: tensor<?x2x8xf32>) -> tensor<?x8x8xf32> {
  // CHECK-NOT: shardq.exchange {{heads|tokens}}
  // CHECK: return %[[X]]
  %0 = shardq.exchange tokens_to_heads(%x) by(%ids, %offsets) decodes(%d) after(%after) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index, tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  %1 = shardq.exchange heads_to_tokens(%0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return %1 : tensor<?x8x8xf32>
}

// -----

// The head shards have another use: their exchange stays.
// CHECK-LABEL: func @pair_with_use
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8x8xf32>
shardq.mesh @ranks ["tp" = 4]
func.func @pair_with_use(%x: tensor<?x8x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index)
    -> (tensor<?x8x8xf32>, tensor<?x2x8xf32>) {
  // CHECK: %[[HEADS:.*]] = shardq.exchange tokens_to_heads(%[[X]])
  // CHECK-NOT: shardq.exchange {{heads|tokens}}
  // CHECK: return %[[X]], %[[HEADS]]
  %0 = shardq.exchange tokens_to_heads(%x) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x2x8xf32>
  %1 = shardq.exchange heads_to_tokens(%0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return %1, %0 : tensor<?x8x8xf32>, tensor<?x2x8xf32>
}

// -----

// Another grouping, other decodes, another mesh, another axis: other rows.
// CHECK-LABEL: func @no_pair
shardq.mesh @ranks ["dp" = 4, "tp" = 4]
shardq.mesh @others ["tp" = 4]
func.func @no_pair(%x: tensor<?x8x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index,
                   %ids2: tensor<?xi32>, %offsets2: tensor<5xi32>, %d2: index)
    -> (tensor<?x8x8xf32>, tensor<?x8x8xf32>, tensor<?x8x8xf32>, tensor<?x8x8xf32>, tensor<?x8x8xf32>) {
  // CHECK: %[[HEADS:.*]] = shardq.exchange tokens_to_heads
  %0 = shardq.exchange tokens_to_heads(%x) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x2x8xf32>
  // CHECK-COUNT-5: shardq.exchange heads_to_tokens(%[[HEADS]])
  %1 = shardq.exchange heads_to_tokens(%0) by(%ids2, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  %2 = shardq.exchange heads_to_tokens(%0) by(%ids, %offsets2) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  %3 = shardq.exchange heads_to_tokens(%0) by(%ids, %offsets) decodes(%d2) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  %4 = shardq.exchange heads_to_tokens(%0) by(%ids, %offsets) decodes(%d) over @others "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  %5 = shardq.exchange heads_to_tokens(%0) by(%ids, %offsets) decodes(%d) over @ranks "dp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return %1, %2, %3, %4, %5 : tensor<?x8x8xf32>, tensor<?x8x8xf32>, tensor<?x8x8xf32>, tensor<?x8x8xf32>, tensor<?x8x8xf32>
}

// -----

// Heads, then tokens, then heads: decode rows would be lost.
// CHECK-LABEL: func @other_way_round
shardq.mesh @ranks ["tp" = 4]
func.func @other_way_round(%x: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) -> tensor<?x2x8xf32> {
  // CHECK: shardq.exchange heads_to_tokens
  // CHECK: shardq.exchange tokens_to_heads
  %0 = shardq.exchange heads_to_tokens(%x) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  %1 = shardq.exchange tokens_to_heads(%0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x2x8xf32>
  return %1 : tensor<?x2x8xf32>
}
