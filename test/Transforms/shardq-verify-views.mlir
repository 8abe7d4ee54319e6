// Views through slices and reshapes that keep them, and where a program says itself that they change.
//
// RUN: shardq-opt %s --shardq-verify-views --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @kept
// CHECK: shardq.convert_indices
func.func @kept(%t: tensor<8x16x1xi32, #shardq.view<replicated>>, %i: tensor<?x4xi32>, %r: tensor<?xi32>, %n: index)
    -> tensor<?x4xi32, #shardq.view<replicated>> {
  %c4 = arith.constant 4 : index
  %a = tensor.collapse_shape %t [[0], [1, 2]] : tensor<8x16x1xi32, #shardq.view<replicated>> into tensor<8x16xi32, #shardq.view<replicated>>
  %b = tensor.extract_slice %a[0, 0] [%n, %c4] [1, 1] : tensor<8x16xi32, #shardq.view<replicated>> to tensor<?x?xi32, #shardq.view<replicated>>
  %c = tensor.cast %b : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x4xi32, #shardq.view<replicated>>
  %d = tensor.extract_slice %c[0, 0] [%n, %c4] [1, 1] : tensor<?x4xi32, #shardq.view<replicated>> to tensor<?x?xi32, #shardq.view<replicated>>
  %0 = shardq.convert_indices %i table(%d) rows(%r) {block_size = 64 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?x4xi32, #shardq.view<replicated>>
  return %0 : tensor<?x4xi32, #shardq.view<replicated>>
}

// A cast says that a table is of another cache, with the shape or without, in front of a slice or behind it.
// CHECK-LABEL: func.func @said
// CHECK-COUNT-4: shardq.token_slots
func.func @said(%t: tensor<8x16xi32, #shardq.view<replicated>>, %r: tensor<?xi32>, %n: index)
    -> (tensor<?xi64>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64>) {
  %a = tensor.extract_slice %t[0, 0] [%n, %n] [1, 1] : tensor<8x16xi32, #shardq.view<replicated>> to tensor<?x?xi32, #shardq.view<replicated>>
  %b = tensor.cast %a : tensor<?x?xi32, #shardq.view<replicated>> to tensor<4x?xi32>
  %0 = shardq.token_slots table(%b) rows(%r, %r) {block_size = 64 : i64} : (tensor<4x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  %c = tensor.cast %t : tensor<8x16xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  %d = tensor.extract_slice %c[0, 0] [%n, %n] [1, 1] : tensor<?x?xi32> to tensor<?x?xi32>
  %1 = shardq.token_slots table(%d) rows(%r, %r) {block_size = 64 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  %e = tensor.cast %t : tensor<8x16xi32, #shardq.view<replicated>> to tensor<8x16xi32>
  %f = tensor.extract_slice %e[0, 0] [4, 8] [1, 1] : tensor<8x16xi32> to tensor<4x8xi32>
  %2 = shardq.token_slots table(%f) rows(%r, %r) {block_size = 64 : i64} : (tensor<4x8xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  %g = tensor.expand_shape %e [[0], [1, 2]] output_shape [8, 16, 1] : tensor<8x16xi32> into tensor<8x16x1xi32>
  %h = tensor.collapse_shape %g [[0], [1, 2]] : tensor<8x16x1xi32> into tensor<8x16xi32>
  %3 = shardq.token_slots table(%h) rows(%r, %r) {block_size = 64 : i64} : (tensor<8x16xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return %0, %1, %2, %3 : tensor<?xi64>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64>
}

// What fills slots up is of no cache, whatever its type.
// CHECK-LABEL: func.func @filled
// CHECK-COUNT-3: shardq.take_rows
func.func @filled(%s: tensor<?xi64, #shardq.view<replicated>>, %rows: tensor<?xi32>, %n: index, %v: i64)
    -> (tensor<?xi64, #shardq.view<replicated>>, tensor<?xi64, #shardq.view<replicated>>, tensor<?xi64, #shardq.view<replicated>>) {
  %none = arith.constant dense<-1> : tensor<4xi64>
  %a = tensor.insert_slice %none into %s[%n] [4] [1] : tensor<4xi64> into tensor<?xi64, #shardq.view<replicated>>
  %0 = shardq.take_rows %a[%rows] : (tensor<?xi64, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?xi64, #shardq.view<replicated>>
  %e = tensor.empty(%n) : tensor<?xi64, #shardq.view<replicated>>
  %b = tensor.insert_slice %s into %e[0] [%n] [1] : tensor<?xi64, #shardq.view<replicated>> into tensor<?xi64, #shardq.view<replicated>>
  %1 = shardq.take_rows %b[%rows] : (tensor<?xi64, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?xi64, #shardq.view<replicated>>
  %f = tensor.from_elements %v, %v : tensor<2xi64>
  %c = tensor.concat dim(0) %s, %f : (tensor<?xi64, #shardq.view<replicated>>, tensor<2xi64>) -> tensor<?xi64, #shardq.view<replicated>>
  %2 = shardq.take_rows %c[%rows] : (tensor<?xi64, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?xi64, #shardq.view<replicated>>
  return %0, %1, %2 : tensor<?xi64, #shardq.view<replicated>>, tensor<?xi64, #shardq.view<replicated>>, tensor<?xi64, #shardq.view<replicated>>
}

// A loop that carries a table on from itself.
// CHECK-LABEL: func.func @carried
// CHECK: shardq.token_slots
func.func @carried(%t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>, %n: index) -> tensor<?xi64, #shardq.view<replicated>> {
  %a = scf.for %i = %n to %n step %n iter_args(%x = %t) -> tensor<?x?xi32, #shardq.view<replicated>> {
    %b = tensor.extract_slice %x[0, 0] [%i, %i] [1, 1] : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32, #shardq.view<replicated>>
    scf.yield %b : tensor<?x?xi32, #shardq.view<replicated>>
  }
  %0 = shardq.token_slots table(%a) rows(%r, %r) {block_size = 64 : i64} : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64, #shardq.view<replicated>>
  return %0 : tensor<?xi64, #shardq.view<replicated>>
}

// A slice of fewer dimensions, of which upstream makes one without a view and a cast.
// CHECK-LABEL: func.func @reduced
// CHECK: shardq.take_rows
func.func @reduced(%t: tensor<8x16xi64, #shardq.view<replicated>>, %rows: tensor<?xi32>, %n: index) -> tensor<?xi64, #shardq.view<replicated>> {
  %c4 = arith.constant 4 : index
  %a = tensor.extract_slice %t[%n, 0] [1, %c4] [1, 1] : tensor<8x16xi64, #shardq.view<replicated>> to tensor<?xi64, #shardq.view<replicated>>
  %0 = shardq.take_rows %a[%rows] : (tensor<?xi64, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?xi64, #shardq.view<replicated>>
  return %0 : tensor<?xi64, #shardq.view<replicated>>
}

// What a cast says may be gone when upstream's patterns have joined it with others, so pipelines ask in front of them.
// CHECK-LABEL: func.func @joined
// CHECK-COUNT-2: shardq.take_rows
func.func @joined(%t: tensor<8x1xi64, #shardq.view<replicated>>, %rows: tensor<?xi32>, %n: index) -> (tensor<?xi64>, tensor<?xi64>) {
  %a = tensor.cast %t : tensor<8x1xi64, #shardq.view<replicated>> to tensor<?x1xi64, #shardq.view<replicated>>
  %b = tensor.collapse_shape %a [[0, 1]] : tensor<?x1xi64, #shardq.view<replicated>> into tensor<?xi64, #shardq.view<replicated>>
  %c = tensor.cast %b : tensor<?xi64, #shardq.view<replicated>> to tensor<?xi64>
  %0 = shardq.take_rows %c[%rows] : (tensor<?xi64>, tensor<?xi32>) -> tensor<?xi64>
  %c4 = arith.constant 4 : index
  %d = tensor.extract_slice %t[%n, 0] [%c4, 1] [1, 1] : tensor<8x1xi64, #shardq.view<replicated>> to tensor<?xi64, #shardq.view<replicated>>
  %e = tensor.cast %d : tensor<?xi64, #shardq.view<replicated>> to tensor<?xi64>
  %1 = shardq.take_rows %e[%rows] : (tensor<?xi64>, tensor<?xi32>) -> tensor<?xi64>
  return %0, %1 : tensor<?xi64>, tensor<?xi64>
}
