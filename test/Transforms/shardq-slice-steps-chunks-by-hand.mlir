// Gathers under a gate that no bound can close, or that asks for something else, have turns.
//
// RUN: shardq-opt %s --split-input-file --shardq-slice-steps="max-tokens=64 max-requests=8" | FileCheck %s --implicit-check-not=arith.select

// One number for two steps.
// CHECK-LABEL: func.func @two_steps
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @two_steps(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %t: index, %start2: tensor<?xi32>, %t2: index)
    -> (tensor<?x4xf32>, tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %mine2, %restore2 = shardq.chunk_split %start2 decodes(%decodes) rows(%t2) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %a[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %tails = shardq.count_chunk_rows tail %start decodes(%decodes) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %open = arith.cmpi sgt, %tails, %c0 : index
  %all = scf.if %open -> tensor<?x4xf32> {
    %gathered = shardq.gather_rows %own over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered : tensor<?x4xf32>
  } else {
    scf.yield %own : tensor<?x4xf32>
  }
  return %all, %mine2 : tensor<?x4xf32>, tensor<?xi32>
}

// -----

// A gate of one step around rows of another, and the other side of a gate.
// CHECK-LABEL: func.func @other_gates
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
// CHECK: } else {
// CHECK: scf.for
// CHECK: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @other_gates(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %t: index, %decodes: index, %other: index) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %a[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %tails = shardq.count_chunk_rows tail %start decodes(%other) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %open = arith.cmpi sgt, %tails, %c0 : index
  %all = scf.if %open -> tensor<?x4xf32> {
    %gathered = shardq.gather_rows %own over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered : tensor<?x4xf32>
  } else {
    %gathered = shardq.gather_rows %own over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered : tensor<?x4xf32>
  }
  return %all : tensor<?x4xf32>
}

// -----

// Rows of a cache that chunks were written to are not rows of chunks.
// CHECK-LABEL: func.func @cache
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @cache(%a: tensor<?x4xf32>, %cache: tensor<?x4xf32>, %at: tensor<?xi32>, %start: tensor<?xi32>, %t: index, %decodes: index)
    -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %a[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %written = shardq.write_rows %own at(%at) into(%cache) : (tensor<?x4xf32>, tensor<?xi32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %tails = shardq.count_chunk_rows tail %start decodes(%decodes) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %open = arith.cmpi sgt, %tails, %c0 : index
  %all = scf.if %open -> tensor<?x4xf32> {
    %gathered = shardq.gather_rows %written over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered : tensor<?x4xf32>
  } else {
    scf.yield %written : tensor<?x4xf32>
  }
  return %all : tensor<?x4xf32>
}

// -----

// More rows than those of the chunks.
// CHECK-LABEL: func.func @more
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @more(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %t: index, %decodes: index) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %a[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %twice = tensor.concat dim(0) %own, %own : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %tails = shardq.count_chunk_rows tail %start decodes(%decodes) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %open = arith.cmpi sgt, %tails, %c0 : index
  %all = scf.if %open -> tensor<?x4xf32> {
    %gathered = shardq.gather_rows %twice over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered : tensor<?x4xf32>
  } else {
    scf.yield %twice : tensor<?x4xf32>
  }
  return %all : tensor<?x4xf32>
}
