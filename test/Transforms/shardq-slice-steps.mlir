// RUN: shardq-opt %s --split-input-file --shardq-slice-steps=max-tokens=64 | FileCheck %s
// RUN: shardq-opt %s --split-input-file --shardq-slice-steps=max-tokens=64 --canonicalize --cse > %t.once
// RUN: shardq-opt %s --split-input-file --shardq-slice-steps=max-tokens=64 --canonicalize --cse --shardq-slice-steps=max-tokens=64 > %t.twice
// RUN: diff %t.once %t.twice
// RUN: shardq-opt %s --split-input-file --shardq-slice-steps=max-tokens=64 > %t.once
// RUN: shardq-opt %s --split-input-file --shardq-slice-steps=max-tokens=64 --shardq-slice-steps=max-tokens=64 > %t.twice
// RUN: diff %t.once %t.twice

// Queries, attention and merge are one loop: gathers and merges alternate in it
// as they do without.

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @attend
// CHECK-SAME: %[[Q:.*]]: tensor<?x2x16xbf16>, %[[KV:.*]]: tensor<?x16xbf16>, %[[S:.*]]: tensor<?x4xi32>
func.func @attend(%q: tensor<?x2x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) -> tensor<?x2x16xbf16> {
  // CHECK: %[[T:.*]] = tensor.dim %[[Q]], %c0
  // CHECK: %[[MORE:.*]] = arith.cmpi sgt, %[[T]], %c64
  // CHECK: %[[OUT:.*]] = scf.if %[[MORE]] -> (tensor<?x2x16xbf16>) {
  // CHECK: %[[SLOTS:.*]] = tensor.dim %[[S]], %c0
  // CHECK: shardq.expect "rows of 'slots' of shardq.sparse_mla" %[[SLOTS]] equals %[[T]]
  // CHECK: %[[COMMON:.*]] = arith.minsi %[[T]], %[[SLOTS]]
  // CHECK: %[[EMPTY:.*]] = tensor.empty(%[[T]]) : tensor<?x2x16xbf16>
  // CHECK: scf.for %[[AT:.*]] = %{{.*}} to %[[T]] step %{{.*}} iter_args(%[[SO_FAR:.*]] = %[[EMPTY]])
  // CHECK: %[[I:.*]] = arith.minsi %[[AT]], %[[COMMON]]
  // CHECK: %[[REST:.*]] = arith.subi %[[COMMON]], %[[I]]
  // CHECK: %[[N:.*]] = arith.minsi %[[REST]], %c64
  // CHECK: %[[QS:.*]] = tensor.extract_slice %[[Q]][%[[I]], 0, 0] [%[[N]], 2, 16] [1, 1, 1]
  // CHECK: %[[ALLS:.*]] = shardq.gather_query(%[[QS]])
  // CHECK: %[[SS:.*]] = tensor.extract_slice %[[S]][%[[I]], 0] [%[[N]], 4] [1, 1]
  // CHECK: %[[PS:.*]]:2 = shardq.sparse_mla q(%[[ALLS]]) kv(%[[KV]]) slots(%[[SS]])
  // CHECK: %[[SLICE:.*]] = shardq.combine_lse %[[PS]]#0 lse(%[[PS]]#1)
  // CHECK: tensor.insert_slice %[[SLICE]] into %[[SO_FAR]][%[[I]], 0, 0] [%[[N]], 2, 16] [1, 1, 1]
  // CHECK: } else {
  // CHECK-NEXT: %[[ALL:.*]] = shardq.gather_query(%[[Q]])
  // CHECK-NEXT: %[[P:.*]]:2 = shardq.sparse_mla q(%[[ALL]]) kv(%[[KV]]) slots(%[[S]])
  // CHECK-NEXT: %[[WHOLE:.*]] = shardq.combine_lse %[[P]]#0 lse(%[[P]]#1)
  // CHECK-NEXT: scf.yield %[[WHOLE]]
  // CHECK: return %[[OUT]]
  %all = shardq.gather_query(%q) over @ranks "dcp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  %p, %l = shardq.sparse_mla q(%all) kv(%kv) slots(%s) {scale = 1.0 : f32}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  %out = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return %out : tensor<?x2x16xbf16>
}

// -----

// Rows that are known need no branch, and no loop where they fit. A gather that
// something else reads is a loop of its own.

shardq.mesh @ranks ["tp" = 4]

// CHECK-LABEL: func @known
func.func @known(%q: tensor<64x2x16xbf16>, %many: tensor<65x2x16xbf16>, %p: tensor<65x8x16xbf16>, %l: tensor<65x8xf32>)
    -> (tensor<64x8x16xbf16>, tensor<65x8x16xbf16>, tensor<65x2x16xbf16>, tensor<65x2xf32>) {
  // CHECK-NOT: scf
  // CHECK: shardq.gather_query(%{{.*}}) over @ranks "tp" : (tensor<64x2x16xbf16>) -> tensor<64x8x16xbf16>
  %0 = shardq.gather_query(%q) over @ranks "tp" : (tensor<64x2x16xbf16>) -> tensor<64x8x16xbf16>
  // CHECK-NOT: scf.if
  // CHECK: scf.for {{.*}} -> (tensor<65x8x16xbf16>)
  // CHECK: shardq.gather_query(%{{.*}}) over @ranks "tp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  %1 = shardq.gather_query(%many) over @ranks "tp" : (tensor<65x2x16xbf16>) -> tensor<65x8x16xbf16>
  // CHECK: scf.for {{.*}} -> (tensor<65x2x16xbf16>, tensor<65x2xf32>)
  // CHECK: shardq.combine_lse {{.*}} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %2, %3 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<65x8x16xbf16>, tensor<65x8xf32>) -> (tensor<65x2x16xbf16>, tensor<65x2xf32>)
  return %0, %1, %2, %3 : tensor<64x8x16xbf16>, tensor<65x8x16xbf16>, tensor<65x2x16xbf16>, tensor<65x2xf32>
}

// -----

// The ops that a merge may be made of; the merged LSE is used behind them.

shardq.mesh @ranks ["tp" = 4]

// CHECK-LABEL: func @forms
// CHECK-SAME: %[[P:.*]]: tensor<?x8x16xf32>, %[[L:.*]]: tensor<?x8xf32>
func.func @forms(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>) -> (tensor<?x2x16xf32>, tensor<?x8xf32>) {
  // CHECK: %[[R:.*]]:2 = scf.if %{{.*}} -> (tensor<?x8xf32>, tensor<?x2x16xf32>) {
  // CHECK: scf.for
  // CHECK: %[[LS:.*]] = tensor.extract_slice %[[L]]
  // CHECK: %[[LSES:.*]] = shardq.gather_rows %[[LS]]
  // CHECK: %[[PS:.*]] = tensor.extract_slice %[[P]]
  // CHECK: %[[SHARE:.*]]:2 = shardq.weigh_partial %[[PS]] lses(%[[LSES]])
  // CHECK: %[[SUMS:.*]] = shardq.reduce_heads %[[SHARE]]#0
  // CHECK: tensor.insert_slice %[[SHARE]]#1
  // CHECK: tensor.insert_slice %[[SUMS]]
  // CHECK: else
  // CHECK-NEXT: %[[LSES:.*]] = shardq.gather_rows %[[L]]
  // CHECK-NEXT: %[[SHARE:.*]]:2 = shardq.weigh_partial %[[P]] lses(%[[LSES]])
  // CHECK-NEXT: %[[SUMS:.*]] = shardq.reduce_heads %[[SHARE]]#0
  // CHECK-NEXT: scf.yield %[[SHARE]]#1, %[[SUMS]]
  // CHECK: return %[[R]]#1, %[[R]]#0
  %lses = shardq.gather_rows %l over @ranks "tp" : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %share, %merged = shardq.weigh_partial %p lses(%lses) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> (tensor<?x8x16xf32>, tensor<?x8xf32>)
  %sums = shardq.reduce_heads %share over @ranks "tp" : (tensor<?x8x16xf32>) -> tensor<?x2x16xf32>
  return %sums, %merged : tensor<?x2x16xf32>, tensor<?x8xf32>
}

// -----

// A merge of what was gathered, and one whose queries are read once more.

shardq.mesh @ranks ["tp" = 4]

// CHECK-LABEL: func @others
func.func @others(%q: tensor<?x2x16xf32>, %l: tensor<?x8xf32>) -> (tensor<?x2x16xf32>, tensor<?x2x16xf32>, tensor<?x8x16xf32>) {
  // CHECK: scf.if
  // CHECK: shardq.gather_query
  // CHECK: shardq.combine_lse
  // CHECK: else
  // CHECK-NEXT: shardq.gather_query
  // CHECK-NEXT: shardq.combine_lse
  %0 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x16xf32>) -> tensor<?x8x16xf32>
  %1 = shardq.combine_lse %0 lse(%l) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  // CHECK: %[[ALL:.*]] = scf.if
  // CHECK: shardq.gather_query
  // CHECK: else
  // CHECK-NEXT: shardq.gather_query
  // CHECK: scf.if
  // CHECK: tensor.extract_slice %[[ALL]]
  // CHECK: shardq.combine_lse
  // CHECK: else
  // CHECK-NEXT: shardq.combine_lse %[[ALL]]
  %2 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x16xf32>) -> tensor<?x8x16xf32>
  %3 = shardq.combine_lse %2 lse(%l) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  return %1, %3, %2 : tensor<?x2x16xf32>, tensor<?x2x16xf32>, tensor<?x8x16xf32>
}

// -----

// A layer of a stacked array: the array's first dimension is no bound of its rows. Some rows of an array: the array's is.
shardq.mesh @ranks ["tp" = 2]
// CHECK-LABEL: func @layer
// CHECK-SAME: %[[STACK:.*]]: tensor<2x?x4x8xf32>
// CHECK: %[[LAYER:.*]] = tensor.extract_slice %[[STACK]]
// CHECK: %[[ROWS:.*]] = tensor.dim %[[LAYER]], %c0
// CHECK: arith.cmpi sgt, %[[ROWS]], %c64
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[ROWS]]
// CHECK-LABEL: func @some
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x8xf32>, %[[N:.*]]: index
// CHECK: %[[SOME:.*]] = tensor.extract_slice %[[Q]]
// CHECK: %[[ROWS:.*]] = tensor.dim %[[SOME]], %c0
// CHECK: %[[BOUND:.*]] = tensor.dim %[[Q]], %c0
// CHECK-NOT: scf.if
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[BOUND]]
// CHECK: %[[FIRST:.*]] = arith.minsi %[[I]], %[[ROWS]]
// CHECK: %[[REST:.*]] = arith.subi %[[ROWS]], %[[FIRST]]
func.func @layer(%stack: tensor<2x?x4x8xf32>, %n: index) -> tensor<?x8x8xf32> {
  %q = tensor.extract_slice %stack[1, 0, 0, 0] [1, %n, 4, 8] [1, 1, 1, 1] : tensor<2x?x4x8xf32> to tensor<?x4x8xf32>
  %all = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x4x8xf32>) -> tensor<?x8x8xf32>
  return %all : tensor<?x8x8xf32>
}
func.func @some(%given: tensor<?x4x8xf32>, %n: index) -> tensor<?x8x8xf32> {
  %q = tensor.extract_slice %given[0, 0, 0] [%n, 4, 8] [1, 1, 1] : tensor<?x4x8xf32> to tensor<?x4x8xf32>
  %all = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x4x8xf32>) -> tensor<?x8x8xf32>
  return %all : tensor<?x8x8xf32>
}

// -----

// A rank's rows of requests in chunks, all of them or those of a call: no more than the step's and one of each request.
shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
// CHECK-LABEL: func @chunks
// CHECK-SAME: %[[Q:.*]]: tensor<?x4x8xf32>, %[[START:.*]]: tensor<?xi32>, %[[T:.*]]: index,
// CHECK: %[[OWN:.*]] = shardq.take_rows %[[Q]]
// CHECK: %[[ROWS:.*]] = tensor.dim %[[OWN]], %c0
// CHECK: %[[STARTS:.*]] = tensor.dim %[[START]], %c0
// CHECK: %[[BOUND:.*]] = arith.addi %[[T]], %[[STARTS]]
// CHECK-NOT: scf.if
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[BOUND]]
// CHECK: arith.minsi %[[I]], %[[ROWS]]
// CHECK: %[[HEADS:.*]] = shardq.take_rows %[[Q]]
// CHECK: tensor.dim %[[HEADS]], %c0
// CHECK: %[[STARTS:.*]] = tensor.dim %[[START]], %c0
// CHECK: %[[BOUND:.*]] = arith.addi %[[T]], %[[STARTS]]
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[BOUND]]
func.func @chunks(%q: tensor<?x4x8xf32>, %start: tensor<?xi32>, %t: index, %n: index) -> (tensor<?x8x8xf32>, tensor<?x8x8xf32>) {
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %q[%mine] : (tensor<?x4x8xf32>, tensor<?xi32>) -> tensor<?x4x8xf32>
  %all = shardq.gather_query(%own) over @ranks "tp" : (tensor<?x4x8xf32>) -> tensor<?x8x8xf32>
  %head = tensor.extract_slice %mine[0] [%n] [1] : tensor<?xi32> to tensor<?xi32>
  %heads = shardq.take_rows %q[%head] : (tensor<?x4x8xf32>, tensor<?xi32>) -> tensor<?x4x8xf32>
  %some = shardq.gather_query(%heads) over @ranks "tp" : (tensor<?x4x8xf32>) -> tensor<?x8x8xf32>
  return %all, %some : tensor<?x8x8xf32>, tensor<?x8x8xf32>
}

// -----

// Merges along two axes are in one loop with the queries and the attention.

shardq.mesh @ranks ["pcp" = 2, "tp" = 4, "kv" = 8 of ["pcp", "tp"]]

// CHECK-LABEL: func @two_axes
// CHECK-COUNT-1: scf.for
// CHECK: shardq.gather_query
// CHECK: shardq.sparse_mla
// CHECK: %[[HEADS:.*]]:2 = shardq.combine_lse %{{.*}} over @ranks "tp"
// CHECK: shardq.combine_lse %[[HEADS]]#0 lse(%[[HEADS]]#1) over @ranks "pcp"
// CHECK: scf.yield
// CHECK: } else {
// CHECK-NOT: scf.for
// CHECK: return
func.func @two_axes(%q: tensor<?x2x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) -> tensor<?x2x16xbf16> {
  %all = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  %p, %l = shardq.sparse_mla q(%all) kv(%kv) slots(%s) {scale = 0.5 : f32}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  %o, %m = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %out = shardq.combine_lse %o lse(%m) over @ranks "pcp" : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> tensor<?x2x16xbf16>
  return %out : tensor<?x2x16xbf16>
}

// -----

// Rows of all ranks that the program gathers itself: those of a turn stand where those of their rank do. What comes of the same
// list has as many rows, and is not compared; nor is what only the device knows.

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]

// CHECK-LABEL: func @gathered
// CHECK-SAME: %[[A:.*]]: tensor<?x4xf32>, %[[B:.*]]: tensor<?x2xf32>
// CHECK: %[[T:.*]] = tensor.dim %[[A]], %c0
// CHECK: %[[MORE:.*]] = arith.cmpi sgt, %[[T]], %c576
// CHECK: scf.if %[[MORE]]
// CHECK: shardq.expect "rows of source 1 of shardq.gather_rows" %{{.*}} equals %[[T]]
// CHECK: %[[ALL:.*]] = arith.muli %[[T]], %c2
// CHECK: tensor.empty(%[[ALL]]) : tensor<?x6xf32>
// CHECK: scf.for {{.*}} to %[[T]] step %c576
// CHECK: %[[BOTH:.*]] = shardq.gather_rows
// CHECK-COUNT-2: tensor.extract_slice %[[BOTH]]
// CHECK: } else {
// CHECK-NEXT: shardq.gather_rows %[[A]], %[[B]]
func.func @gathered(%a: tensor<?x4xf32>, %b: tensor<?x2xf32>) -> tensor<?x6xf32> {
  %all = shardq.gather_rows %a, %b over @ranks "pcp" : (tensor<?x4xf32>, tensor<?x2xf32>) -> tensor<?x6xf32>
  return %all : tensor<?x6xf32>
}

// CHECK-LABEL: func @same
// CHECK-NOT: shardq.expect
// CHECK: scf.for
// CHECK-NOT: shardq.expect
// CHECK: return
func.func @same(%a: tensor<?x4xf32>) -> tensor<?x8xf32> {
  %b = arith.negf %a : tensor<?x4xf32>
  %all = shardq.gather_rows %a, %b over @ranks "pcp" : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x8xf32>
  return %all : tensor<?x8xf32>
}

// Whatever the host computes is compared.
// CHECK-LABEL: func @computed
// CHECK: scf.if
// CHECK: shardq.expect "rows of 'lse' of shardq.combine_lse"
// CHECK: scf.for
func.func @computed(%p: tensor<?x4x3xf32>, %l: tensor<?x4xf32>) -> tensor<?x2x3xf32> {
  %twice = tensor.concat dim(0) %l, %l : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %out = shardq.combine_lse %p lse(%twice) over @ranks "pcp" : (tensor<?x4x3xf32>, tensor<?x4xf32>) -> tensor<?x2x3xf32>
  return %out : tensor<?x2x3xf32>
}

// What a type says that does not fit has turns only.
// CHECK-LABEL: func @too_long
// CHECK-NOT: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_query
// CHECK-NOT: shardq.gather_query
func.func @too_long(%q: tensor<?x2x3xf32>) -> tensor<70x4x3xf32> {
  %all = shardq.gather_query(%q) over @ranks "pcp" : (tensor<?x2x3xf32>) -> tensor<70x4x3xf32>
  return %all : tensor<70x4x3xf32>
}

// Rows that chunks brought back into order are all of the step.
// CHECK-LABEL: func @restored
// CHECK: scf.for
// CHECK: shardq.gather_rows
func.func @restored(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %t: index) -> tensor<?x4xf32> {
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %step = shardq.take_rows %a[%restore] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %all = shardq.gather_rows %step over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %all : tensor<?x4xf32>
}

// Of chunks that every step gathers turns have as many rows as inboxes hold of each rank.
// CHECK-LABEL: func @of_chunks
// CHECK: %[[MOST:.*]] = arith.constant 576 : index
// CHECK: scf.for %{{.*}} step %[[MOST]]
// CHECK: shardq.gather_rows
func.func @of_chunks(%a: tensor<?x4xf32>, %start: tensor<?xi32>, %t: index) -> tensor<?x4xf32> {
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %a[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %twice = arith.addf %own, %own : tensor<?x4xf32>
  %all = shardq.gather_rows %twice over @ranks "pcp" : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %all : tensor<?x4xf32>
}

// Where steps with chunks alone gather, those that do not fit have none. So it is of rows that a loop over slices has put together, too.
// CHECK-LABEL: func @of_looped_chunks
// CHECK: %[[WHOLE:.*]] = arith.select
// CHECK: shardq.chunk_split %{{.*}} decodes(%[[WHOLE]])
// CHECK: scf.for
// CHECK: shardq.gather_query
// CHECK: shardq.count_chunk_rows tail %{{.*}} decodes(%[[WHOLE]])
// CHECK-NOT: scf.for
// CHECK: shardq.gather_rows
// CHECK-NOT: scf.for
// CHECK: return
func.func @of_looped_chunks(%q: tensor<?x4x8xf32>, %start: tensor<?xi32>, %t: index) -> tensor<?x8x8xf32> {
  %c0 = arith.constant 0 : index
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%t) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own = shardq.take_rows %q[%mine] : (tensor<?x4x8xf32>, tensor<?xi32>) -> tensor<?x4x8xf32>
  %heads = shardq.gather_query(%own) over @ranks "tp" : (tensor<?x4x8xf32>) -> tensor<?x8x8xf32>
  %tails = shardq.count_chunk_rows tail %start decodes(%decodes) rows(%t) over @ranks "pcp" : tensor<?xi32>
  %open = arith.cmpi sgt, %tails, %c0 : index
  %all = scf.if %open -> tensor<?x8x8xf32> {
    %gathered = shardq.gather_rows %heads over @ranks "pcp" : (tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
    scf.yield %gathered : tensor<?x8x8xf32>
  } else {
    scf.yield %heads : tensor<?x8x8xf32>
  }
  return %all : tensor<?x8x8xf32>
}

// -----

// A type that says how many rows come out has room for no more. It has more than fit, so there is no form without turns.

shardq.mesh @ranks ["tp" = 2]

// CHECK-LABEL: func @room
// CHECK-NOT: scf.if
// CHECK: arith.minsi %{{.*}}, %c100
// CHECK: tensor.empty() : tensor<100x2x8xf32>
func.func @room(%partial: tensor<?x4x8xf32>, %lse: tensor<?x4xf32>) -> tensor<100x2x8xf32> {
  %0 = shardq.combine_lse %partial lse(%lse) over @ranks "tp" : (tensor<?x4x8xf32>, tensor<?x4xf32>) -> tensor<100x2x8xf32>
  return %0 : tensor<100x2x8xf32>
}
