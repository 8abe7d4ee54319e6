// Gathers under a gate that no bound can close, or that asks for something else, have turns.
//
// RUN: shardq-opt %s --split-input-file --shardq-slice-steps="max-tokens=64 max-requests=8" | FileCheck %s

// One number for two steps.
// CHECK-LABEL: func.func @two_steps
// CHECK-NOT: arith.select
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @two_steps(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %t: index, %t2: index)
    -> (tensor<?x4xf32>, tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %mine2, %restore2 = shardq.chunk_split %start decodes(%decodes) rows(%t2) over @ranks "pcp"
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
// CHECK-NOT: arith.select
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
// CHECK-NOT: arith.select
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
// CHECK-NOT: arith.select
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

// -----

// A count of heads is more than zero where decode requests are, so no gate of chunks.
// CHECK-LABEL: func.func @heads
// CHECK-NOT: arith.select
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @heads(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %t: index, %decodes: index) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %a[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %heads = shardq.count_chunk_rows head %start decodes(%decodes) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %open = arith.cmpi sgt, %heads, %c0 : index
  %all = scf.if %open -> tensor<?x4xf32> {
    %gathered = shardq.gather_rows %own over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered : tensor<?x4xf32>
  } else {
    scf.yield %own : tensor<?x4xf32>
  }
  return %all : tensor<?x4xf32>
}

// -----

// Something takes the number where the step's starts are not there yet.
// CHECK-LABEL: func.func @early
// CHECK-NOT: arith.select
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @early(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %t: index, %at: tensor<?xi64>, %local: index)
    -> (tensor<?x4xf32>, tensor<?xi64>) {
  %c0 = arith.constant 0 : index
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %order, %slots = shardq.chunk_slots %at by(%start) decodes(%decodes) local(%local) over @ranks "pcp"
      : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  %rows = arith.addi %t, %t : index
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%rows) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %a[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %tails = shardq.count_chunk_rows tail %start decodes(%decodes) rows(%rows) over @ranks "pcp" : tensor<?xi32>
  %open = arith.cmpi sgt, %tails, %c0 : index
  %all = scf.if %open -> tensor<?x4xf32> {
    %gathered = shardq.gather_rows %own over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered : tensor<?x4xf32>
  } else {
    scf.yield %own : tensor<?x4xf32>
  }
  return %all, %slots : tensor<?x4xf32>, tensor<?xi64>
}

// -----

// Heads and tails are a rank's rows, heads and heads may be more.
// CHECK-LABEL: func.func @parts
// CHECK: arith.select
// CHECK: scf.if
// CHECK-NOT: scf.for
// CHECK: shardq.gather_rows
// CHECK: scf.for
// CHECK: shardq.gather_rows
// CHECK: } else {
shardq.mesh @ranks ["pcp" = 2]
func.func @parts(%start: tensor<?xi32>, %t: index, %decodes: index) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp" {by_part}
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %heads = shardq.count_chunk_rows head %start decodes(%decodes) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %tails = shardq.count_chunk_rows tail %start decodes(%decodes) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %both = arith.addi %heads, %tails : index
  %one = tensor.empty(%both) : tensor<?x4xf32>
  %twice = arith.addi %heads, %heads : index
  %two = tensor.empty(%twice) : tensor<?x4xf32>
  %open = arith.cmpi sgt, %tails, %c0 : index
  %all:2 = scf.if %open -> (tensor<?x4xf32>, tensor<?x4xf32>) {
    %gathered = shardq.gather_rows %one over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %more = shardq.gather_rows %two over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered, %more : tensor<?x4xf32>, tensor<?x4xf32>
  } else {
    scf.yield %one, %two : tensor<?x4xf32>, tensor<?x4xf32>
  }
  return %all#0, %all#1 : tensor<?x4xf32>, tensor<?x4xf32>
}

// -----

// A gate of another step's chunks.
// CHECK-LABEL: func.func @other_starts
// CHECK-NOT: arith.select
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @other_starts(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %start2: tensor<?xi32>, %t: index, %decodes: index) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %a[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %tails = shardq.count_chunk_rows tail %start2 decodes(%decodes) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %open = arith.cmpi sgt, %tails, %c0 : index
  %all = scf.if %open -> tensor<?x4xf32> {
    %gathered = shardq.gather_rows %own over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %gathered : tensor<?x4xf32>
  } else {
    scf.yield %own : tensor<?x4xf32>
  }
  return %all : tensor<?x4xf32>
}
