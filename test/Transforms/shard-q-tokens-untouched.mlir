// A module without attention passes through as it is.
//
// RUN: shardq-opt %s -o %t.before.mlir
// RUN: shardq-opt %s --shard-q-tokens -o %t.after.mlir 2> %t.said
// RUN: diff %t.before.mlir %t.after.mlir
// RUN: count 0 < %t.said

shardq.mesh @ranks ["tp" = 8]

func.func private @external(tensor<4xf32>) -> tensor<4xf32>

func.func @indexer_alone(%scores: tensor<?x?xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index)
    -> tensor<?x8xi32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x8xi32>
  shardq.tap "topk" %topk : tensor<?x8xi32>
  return %topk : tensor<?x8xi32>
}

func.func @loop(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = scf.for %i = %c0 to %n step %c1 iter_args(%y = %x) -> tensor<4xf32> {
    %1 = func.call @external(%y) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}
