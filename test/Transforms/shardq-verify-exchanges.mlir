// RUN: shardq-opt %s --split-input-file --shardq-verify-exchanges | FileCheck %s

// CHECK-COUNT-4: func.func @

// Every rank computes the same gate: its inputs are those of the step.
shardq.mesh @ranks ["tp" = 4]
func.func @gate(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) {
  %ids2, %o2 = shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<5xi32>)
  %gate = shardq.split_gate offsets(%o2) requests(%start, %lens) decodes(%d) rows(%rows)
      {min_tokens = 1 : i64, topk = 4 : i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
  scf.if %gate {
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A split array has the same shape everywhere, and so has what comes back over heads.
shardq.mesh @ranks ["tp" = 4]
func.func @shapes(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index, %x: tensor<?x8x8xf32>, %split: tensor<?xi32> {shardq.split = #shardq.split<@ranks, 0 over "tp">}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %h = shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x2x8xf32>
  %n = tensor.dim %split, %c0 : tensor<?xi32>
  %m = tensor.dim %h, %c0 : tensor<?x2x8xf32>
  %s = arith.addi %n, %m : index
  scf.for %i = %c0 to %s step %c1 {
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A loop may carry what differs, as long as it does not decide.
shardq.mesh @ranks ["tp" = 4]
func.func @carry(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %w = scf.for %i = %c0 to %n step %c1 iter_args(%p = %r) -> index {
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
    %next = arith.addi %p, %c1 : index
    scf.yield %next : index
  }
  return
}

// -----

// Other work may depend on the rank.
shardq.mesh @ranks ["tp" = 4]
func.func @other_work(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  %m = memref.alloc() : memref<i1>
  scf.if %z {
    memref.store %z, %m[] : memref<i1>
  }
  %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

// The cache that each rank has whole is the same on all, and so are its slots.
shardq.mesh @ranks ["tp" = 4]
func.func @view(%table: tensor<?x?xi32>, %lens: tensor<?xi32>, %p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %view = shardq.replicated_table %table lengths(%lens) over @ranks "tp"
      : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  %s = shardq.token_slots table(%view) rows(%lens, %lens) {block_size = 4 : i64}
      : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>)
      -> tensor<?xi32, #shardq.view<replicated>>
  %first = tensor.extract %s[%c0] : tensor<?xi32, #shardq.view<replicated>>
  %some = arith.cmpi sgt, %first, %zero : i32
  scf.if %some {
    %g = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  }
  return
}

// -----

// Where a slice begins decides nothing about its rows, nor does anything about rows that a type says.
shardq.mesh @ranks ["tp" = 4]
func.func @slices(%x: tensor<?x8x16xf32>, %l: tensor<?x8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c9 = arith.constant 9 : index
  %r = shardq.rank over @ranks "tp"
  %first = arith.muli %r, %n : index
  %own = tensor.extract_slice %x[%first, 0, 0] [%n, 8, 16] [1, 1, 1] : tensor<?x8x16xf32> to tensor<?x8x16xf32>
  %rows = tensor.dim %own, %c0 : tensor<?x8x16xf32>
  %many = arith.cmpi sgt, %rows, %c9 : index
  scf.if %many {
    %g = shardq.combine_lse %own lse(%l) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  }
  %some = tensor.extract_slice %x[0, 0, 0] [%r, 8, 16] [1, 1, 1] : tensor<?x8x16xf32> to tensor<?x8x16xf32>
  %known = tensor.cast %some : tensor<?x8x16xf32> to tensor<9x8x16xf32>
  %size = tensor.dim %known, %c0 : tensor<9x8x16xf32>
  %is = arith.cmpi sgt, %size, %c9 : index
  scf.if %is {
    %g = shardq.combine_lse %x lse(%l) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  }
  return
}
