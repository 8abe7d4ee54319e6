// Any op may move into a caller.
//
// RUN: shardq-opt %s --inline | FileCheck %s

shardq.mesh @ranks ["tp" = 3]

func.func private @layer(%x: tensor<?x6x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<4xi32>, %d: index)
    -> tensor<?x2x8xf32> {
  shardq.tap "x" %x : tensor<?x6x8xf32>
  %0 = shardq.exchange tokens_to_heads(%x) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x6x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x2x8xf32>
  return %0 : tensor<?x2x8xf32>
}

// CHECK-LABEL: func @step
func.func @step(%x: tensor<?x6x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<4xi32>, %d: index)
    -> (tensor<?x2x8xf32>, tensor<?x2x8xf32>) {
  // CHECK-NEXT: shardq.tap "x"
  // CHECK-NEXT: %[[A:.*]] = shardq.exchange
  // CHECK-NEXT: shardq.tap "x"
  // CHECK-NEXT: %[[B:.*]] = shardq.exchange
  // CHECK-NEXT: return %[[A]], %[[B]]
  %0 = call @layer(%x, %ids, %offsets, %d) : (tensor<?x6x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x2x8xf32>
  %1 = call @layer(%x, %ids, %offsets, %d) : (tensor<?x6x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x2x8xf32>
  return %0, %1 : tensor<?x2x8xf32>, tensor<?x2x8xf32>
}
// CHECK-NOT: func
