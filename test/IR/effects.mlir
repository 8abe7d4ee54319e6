// Ops that other ranks or an observer see are never merged, dropped or moved;
// the rest of the dialect on tensors is.
//
// RUN: shardq-opt %s --split-input-file --cse --canonicalize | FileCheck %s --check-prefixes=CHECK,SIMPLE
// RUN: shardq-opt %s --split-input-file --loop-invariant-code-motion | FileCheck %s --check-prefixes=CHECK,LICM

// Two equal exchanges, without uses, are two exchanges.
// CHECK-LABEL: func @exchanges
shardq.mesh @ranks ["tp" = 3]
func.func @exchanges(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<4xi32>, %d: index) {
  // CHECK-COUNT-2: shardq.exchange heads_to_tokens
  %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x6x8xf32>
  %1 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x6x8xf32>
  return
}

// -----

// Views, slots of tokens and packed rows are arithmetic too.
// CHECK-LABEL: func @views
shardq.mesh @ranks ["tp" = 3]
func.func @views(%table: tensor<?x?xi32>, %n: tensor<?xi32>, %rows: tensor<?x128xbf16>) {
  // SIMPLE-NEXT: return
  %0 = shardq.replicated_table %table lengths(%n) over @ranks "tp" : (tensor<?x?xi32>, tensor<?xi32>)
      -> tensor<?x?xi32, #shardq.view<replicated>>
  %1 = shardq.token_slots table(%0) rows(%n, %n) {block_size = 4 : i64}
      : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>)
      -> tensor<?xi64, #shardq.view<replicated>>
  %2 = shardq.pack_rows %rows {format = #shardq.packed_rows<128 x i8, rope = 0, order = rope_scales>}
      : (tensor<?x128xbf16>) -> tensor<?x132xi8>
  %3 = shardq.unpack_rows %2 {format = #shardq.packed_rows<128 x i8, rope = 0, order = rope_scales>}
      : (tensor<?x132xi8>) -> tensor<?x128xbf16>
  return
}

// -----

// Nor is a gather in two parts; what it moves, and where that stands, is arithmetic.
// CHECK-LABEL: func @gather
shardq.mesh @ranks ["tp" = 3]
func.func @gather(%kv: tensor<?x8xf32>, %table: tensor<?x?xi32>, %n: tensor<?xi32>, %d: index, %i: tensor<?x4xi32>) {
  // SIMPLE-COUNT-1: shardq.gather_blocks
  // SIMPLE-NOT: shardq.gather{{_blocks|_gate|ed}}
  // CHECK-COUNT-2: shardq.gather_kv_finish
  // SIMPLE-NOT: shardq.gather{{_blocks|_gate|ed}}
  %0:3 = shardq.gather_blocks %table lengths(%n) over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  %1:3 = shardq.gather_blocks %table lengths(%n) over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  %h0 = shardq.gather_kv_start(%kv) blocks(%0#0, %0#2) over @ranks "tp" {block_size = 4 : i64}
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %a = shardq.gather_kv_finish %h0 : (!shardq.kv_gather) -> tensor<?x8xf32>
  %h1 = shardq.gather_kv_start(%kv) blocks(%1#0, %1#2) over @ranks "tp" {block_size = 4 : i64}
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %b = shardq.gather_kv_finish %h1 : (!shardq.kv_gather) -> tensor<?x8xf32>
  %2 = shardq.gathered_slots %i blocks(%0#1, %0#2) rows(%n) over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %3 = shardq.gathered_table %0#1, %0#2 over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  %4 = shardq.gather_gate %n blocks(%0#2) decodes(%d) over @ranks "tp" {block_size = 4 : i64} : tensor<?xi32>, tensor<1xi32>
  // CHECK: return
  return
}

// -----

// Nor are gathers and merges; what this rank computes for itself is merged and
// dropped like any arithmetic.
// CHECK-LABEL: func @context
shardq.mesh @ranks ["tp" = 3]
func.func @context(%q: tensor<?x2x8xf32>, %p: tensor<?x6x8xf32>, %l: tensor<?x6xf32>, %i: tensor<?x4xi32>,
                   %n: tensor<?xi32>) {
  // CHECK-COUNT-2: shardq.gather_query
  // CHECK-COUNT-2: shardq.combine_lse
  // CHECK-COUNT-2: shardq.gather_rows
  // CHECK-COUNT-2: shardq.reduce_heads
  // SIMPLE-NOT: shardq.filter_indices
  // SIMPLE-NOT: shardq.local_lengths
  // SIMPLE-NOT: shardq.draft_lengths
  // SIMPLE-NOT: shardq.weigh_partial
  %0 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x8xf32>) -> tensor<?x6x8xf32>
  %1 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x8xf32>) -> tensor<?x6x8xf32>
  %2 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x6x8xf32>, tensor<?x6xf32>) -> tensor<?x2x8xf32>
  %3 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x6x8xf32>, tensor<?x6xf32>) -> tensor<?x2x8xf32>
  %6 = shardq.gather_rows %q over @ranks "tp" : (tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  %7 = shardq.gather_rows %q over @ranks "tp" : (tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  %8 = shardq.reduce_heads %p over @ranks "tp" : (tensor<?x6x8xf32>) -> tensor<?x2x8xf32>
  %9 = shardq.reduce_heads %p over @ranks "tp" : (tensor<?x6x8xf32>) -> tensor<?x2x8xf32>
  %10 = shardq.weigh_partial %p lses(%l) over @ranks "tp" : (tensor<?x6x8xf32>, tensor<?x6xf32>) -> tensor<?x6x8xf32>
  %4 = shardq.filter_indices %i over @ranks "tp" {interleave = 4 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  %5 = shardq.local_lengths %n over @ranks "tp" {interleave = 4 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  %c2 = arith.constant 2 : index
  %11 = shardq.draft_lengths %n step(%c2) : (tensor<?xi32>, index) -> tensor<?xi32>
  // CHECK: return
  return
}

// -----

// Invariant, but the loop may run any number of times.
// CHECK-LABEL: func @exchange_in_loop
shardq.mesh @ranks ["tp" = 3]
func.func @exchange_in_loop(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<4xi32>, %d: index,
                            %n: index) {
  // CHECK: scf.for
  // CHECK-NEXT: shardq.exchange
  // CHECK-NEXT: shardq.tap
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x6x8xf32>
    shardq.tap "ids" %ids : tensor<?xi32>
  }
  return
}

// -----

// What is found of chunks may be dropped and joined; a cache that is written may not.
// CHECK-LABEL: func @chunks
shardq.mesh @ranks ["pcp" = 3]
func.func @chunks(%q: tensor<?xi32>, %s: tensor<?xi64>, %x: tensor<?x8xf32>, %xb: memref<?x8xf32>, %sb: memref<?xi64>,
                  %n: index) {
  // SIMPLE-NOT: shardq.chunk
  // SIMPLE-NOT: shardq.shard
  // SIMPLE-NOT: shardq.count_chunk_rows
  // CHECK-COUNT-2: shardq.write_rows
  // SIMPLE-NOT: shardq.write_rows
  %0 = shardq.count_chunk_rows all %q decodes(%n) rows(%n) over @ranks "pcp" : tensor<?xi32>
  %1:2 = shardq.chunk_split %q decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %2:3 = shardq.chunk_lengths tail %q, %q decodes(%n) rows(%n) over @ranks "pcp"
      : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
  %5:2 = shardq.shard_lengths %q, %q rows(%n) over @ranks "pcp" : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %3:2 = shardq.chunk_slots %s by(%q) decodes(%n) local(%n) over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  %4 = shardq.write_rows %x at(%s) into(%x) : (tensor<?x8xf32>, tensor<?xi64>, tensor<?x8xf32>) -> tensor<?x8xf32>
  shardq.write_rows %xb at(%sb) into(%xb) : (memref<?x8xf32>, memref<?xi64>, memref<?x8xf32>) -> ()
  shardq.write_rows %xb at(%sb) into(%xb) : (memref<?x8xf32>, memref<?xi64>, memref<?x8xf32>) -> ()
  return
}

// -----

// CHECK-LABEL: func @taps
func.func @taps(%x: tensor<?xi32>, %y: memref<4xf32>) {
  // CHECK-COUNT-2: shardq.tap "x"
  // CHECK-COUNT-2: shardq.tap "y"
  shardq.tap "x" %x : tensor<?xi32>
  shardq.tap "x" %x : tensor<?xi32>
  shardq.tap "y" %y : memref<4xf32>
  shardq.tap "y" %y : memref<4xf32>
  return
}

// -----

// CHECK-LABEL: func @protocol
shardq.mesh @ranks ["tp" = 3]
func.func @protocol(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<4xi32>, %d: index,
                    %inbox: memref<?x6x8xf32, #shardq.symmetric<@ranks>>) {
  // CHECK-COUNT-2: shardq.push
  // CHECK-COUNT-2: shardq.signal
  // CHECK-COUNT-2: shardq.wait
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) into(%inbox) over @ranks "tp"
      channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<4xi32>, memref<?x6x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) into(%inbox) over @ranks "tp"
      channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<4xi32>, memref<?x6x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<4xi32>
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<4xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<4xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<4xi32>
  return
}

// -----

// A load of the inbox on either side of a wait is not the same load, although
// the wait does not name the inbox.
// CHECK-LABEL: func @loads
shardq.mesh @ranks ["tp" = 3]
func.func @loads(%offsets: memref<4xi32>, %inbox: memref<?x6x8xf32, #shardq.symmetric<@ranks>>) -> (f32, f32) {
  // CHECK: memref.load
  // CHECK: shardq.wait
  // CHECK: memref.load
  %c0 = arith.constant 0 : index
  %0 = memref.load %inbox[%c0, %c0, %c0] : memref<?x6x8xf32, #shardq.symmetric<@ranks>>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<4xi32>
  %1 = memref.load %inbox[%c0, %c0, %c0] : memref<?x6x8xf32, #shardq.symmetric<@ranks>>
  return %0, %1 : f32, f32
}

// -----

// The inbox of the next exchange is another one behind an exchange.
// CHECK-LABEL: func @workspaces
shardq.mesh @ranks ["tp" = 3]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>],
  exchanges = ["q"], hash = 0 : i64, slot_bytes = 4096 : i64, slots = 1 : i64}
func.func @workspaces(%offsets: memref<4xi32>, %n: index)
    -> (memref<?x6x8xf32, #shardq.symmetric<@ranks>>, memref<?x6x8xf32, #shardq.symmetric<@ranks>>) {
  // CHECK: %[[A:.*]] = shardq.workspace
  // CHECK: shardq.signal
  // CHECK: %[[B:.*]] = shardq.workspace
  // CHECK: return %[[A]], %[[B]]
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x6x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<4xi32>
  %1 = shardq.workspace @plan channel 0 (%n) : memref<?x6x8xf32, #shardq.symmetric<@ranks>>
  return %0, %1 : memref<?x6x8xf32, #shardq.symmetric<@ranks>>, memref<?x6x8xf32, #shardq.symmetric<@ranks>>
}

// -----

// Equal ops on tensors are one, and unused ones none.
// CHECK-LABEL: func @model
shardq.mesh @ranks ["tp" = 3]
func.func @model(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index, %q: tensor<?x2x8xf32>, %w: tensor<?x2xf32>,
                 %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %scores: tensor<?x?xf32>)
    -> (tensor<?x2x8xf32>, tensor<?x2x8xf32>) {
  // SIMPLE-COUNT-1: shardq.expand_rows
  // SIMPLE-COUNT-1: shardq.indexer
  // SIMPLE-COUNT-1: shardq.convert_indices
  // SIMPLE-COUNT-1: shardq.sparse_mla
  // SIMPLE-NOT: shardq.
  // SIMPLE: return %[[OUT:.*]], %[[OUT]]
  // LICM: shardq.count_decode_rows
  %a, %b = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %c, %d = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %e = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%a, %b) {block_size = 4 : i64}
      : (tensor<?x2x8xf32>, tensor<?x2xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %f = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%c, %d) {block_size = 4 : i64}
      : (tensor<?x2x8xf32>, tensor<?x2xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %g = shardq.convert_indices %e table(%table) rows(%a) {block_size = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %h = shardq.convert_indices %f table(%table) rows(%c) {block_size = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %i = shardq.sparse_mla q(%q) kv(%keys) slots(%g) {scale = 1.0 : f32}
      : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>) -> tensor<?x2x8xf32>
  %j = shardq.sparse_mla q(%q) kv(%keys) slots(%h) {scale = 1.0 : f32}
      : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>) -> tensor<?x2x8xf32>
  %k = shardq.topk %scores visible(%b) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x4xi32>
  %l = shardq.count_decode_rows %start : tensor<?xi32>
  %ids, %offsets = shardq.zigzag_split %start decodes(%l) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<4xi32>)
  %mine = shardq.local_rows %ids, %offsets decodes(%l) over @ranks "tp"
      : (tensor<?xi32>, tensor<4xi32>, index) -> tensor<?xi32>
  %gate = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%l) rows(%rows)
      {min_tokens = 1 : i64, topk = 4 : i64} : tensor<4xi32>, tensor<?xi32>, tensor<?xi32>
  %taken = shardq.take_rows %q[%mine] : (tensor<?x2x8xf32>, tensor<?xi32>) -> tensor<?x2x8xf32>
  %rank = shardq.rank over @ranks
  return %i, %j : tensor<?x2x8xf32>, tensor<?x2x8xf32>
}

// -----

// What no iteration changes leaves the loop.
// CHECK-LABEL: func @invariant
func.func @invariant(%x: tensor<?x4xf32>, %mine: tensor<?xi32>, %n: index) {
  // LICM: shardq.take_rows
  // LICM: scf.for
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0 = shardq.take_rows %x[%mine] : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
    shardq.tap "x" %0 : tensor<?x4xf32>
  }
  return
}

// -----

// On buffers an op writes its outs: it stays, and what reads them stays behind.
// CHECK-LABEL: func @buffers
func.func @buffers(%x: memref<?xi32>, %rows: memref<?xi32>, %a: memref<?xi32>) -> (index, index) {
  // CHECK: shardq.count_decode_rows
  // CHECK: shardq.take_rows
  // CHECK: shardq.count_decode_rows
  %0 = shardq.count_decode_rows %a : memref<?xi32>
  shardq.take_rows %x[%rows] outs(%a) : (memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  %1 = shardq.count_decode_rows %a : memref<?xi32>
  return %0, %1 : index, index
}
