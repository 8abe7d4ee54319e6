// RUN: shardq-opt %s --convert-shardq-to-loops | FileCheck %s

shardq.mesh @ranks ["dp" = 2, "tp" = 4]

// Ops with the same static facts share a kernel, whatever the number of rows
// and the strides; how the attention is sharded changes no loop. So a row is
// computed in the same way in both programs.
// CHECK-LABEL: func.func @attention
func.func @attention(%q: memref<?x2x8xf32>, %q5: memref<5x2x8xf32>, %qs: memref<?x2x8xf32, strided<[16, 8, 1], offset: ?>>,
                     %kv: memref<?x8xf32>, %slots: memref<?x4xi32>, %out: memref<?x2x6xf32>) {
  // CHECK-DAG: call @[[MLA:shardq_sparse_mla_2x8_8_4_2x6_f32]](
  // CHECK: call @[[MLA]](
  // CHECK: call @[[MLA]](
  // CHECK-NOT: {{^ *}}shardq.sparse_mla
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (memref<?x2x8xf32>, memref<?x8xf32>, memref<?x4xi32>, memref<?x2x6xf32>) -> ()
  shardq.sparse_mla q(%q5) kv(%kv) slots(%slots) outs(%out) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>}
      : (memref<5x2x8xf32>, memref<?x8xf32>, memref<?x4xi32>, memref<?x2x6xf32>) -> ()
  shardq.sparse_mla q(%qs) kv(%kv) slots(%slots) outs(%out) {scale = 0.5 : f32}
      : (memref<?x2x8xf32, strided<[16, 8, 1], offset: ?>>, memref<?x8xf32>, memref<?x4xi32>, memref<?x2x6xf32>) -> ()
  // Another scale, another kernel.
  // CHECK: call @[[MLA]]_0(
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out) {scale = 0.25 : f32}
      : (memref<?x2x8xf32>, memref<?x8xf32>, memref<?x4xi32>, memref<?x2x6xf32>) -> ()
  return
}

// Of a sink of all heads the kernel sees this rank's.
// CHECK-LABEL: func.func @sink
// CHECK-SAME: %[[SINK:[a-z0-9]+]]: memref<8xf32>
func.func @sink(%sink: memref<8xf32>, %q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %slots: memref<?x4xi32>, %out: memref<?x2x6xf32>) {
  // CHECK: %[[RANK:.*]] = shardq.rank over @ranks "tp"
  // CHECK: %[[FIRST:.*]] = arith.muli %{{.*}}, %c2{{(_[0-9]+)?}} : index
  // CHECK: memref.subview %[[SINK]][%[[FIRST]]] [2] [1]
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) sink(%sink) outs(%out) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (memref<?x2x8xf32>, memref<?x8xf32>, memref<?x4xi32>, memref<8xf32>, memref<?x2x6xf32>) -> ()
  return
}

// Over two axes the ranks count as in the mesh, the first axis slowest.
// CHECK-LABEL: func.func @sink_of_two_axes
// CHECK-SAME: %[[SINK:[a-z0-9]+]]: memref<16xf32>
func.func @sink_of_two_axes(%sink: memref<16xf32>, %q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %slots: memref<?x4xi32>, %out: memref<?x2x6xf32>) {
  // CHECK: %[[DP:.*]] = shardq.rank over @ranks "dp"
  // CHECK: %[[TP:.*]] = shardq.rank over @ranks "tp"
  // CHECK: %[[SLOW:.*]] = arith.muli %{{.*}}, %c4{{(_[0-9]+)?}} : index
  // CHECK: %[[BOTH:.*]] = arith.addi %[[SLOW]], %[[TP]]
  // CHECK: %[[FIRST:.*]] = arith.muli %[[BOTH]], %c2{{(_[0-9]+)?}} : index
  // CHECK: memref.subview %[[SINK]][%[[FIRST]]] [2] [1]
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) sink(%sink) outs(%out) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["dp", "tp"]>}
      : (memref<?x2x8xf32>, memref<?x8xf32>, memref<?x4xi32>, memref<16xf32>, memref<?x2x6xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @others
func.func @others(%i: memref<?xi32>, %j: memref<?xi32>, %n: index, %q: memref<?x3x8xbf16>, %w: memref<?x3xf32>,
                  %keys: memref<?x8xbf16>, %table: memref<?x?xi32>, %topk: memref<?x4xi32>, %scores: memref<?x?xf32>,
                  %o: memref<5xi32>, %x: memref<?x2x8xf32>, %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // CHECK: call @shardq_expand_rows(
  shardq.expand_rows %i, %i to %n outs(%i, %j) : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  // CHECK: call @shardq_indexer_3x8_3_8_4_bf16(
  shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%i, %j) outs(%topk) {block_size = 2 : i64}
      : (memref<?x3x8xbf16>, memref<?x3xf32>, memref<?x8xbf16>, memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x4xi32>) -> ()
  // CHECK: call @shardq_topk_4_f32(
  shardq.topk %scores visible(%j) outs(%topk) : (memref<?x?xf32>, memref<?xi32>, memref<?x4xi32>) -> ()
  // CHECK: call @shardq_convert_indices_4_4(
  shardq.convert_indices %topk table(%table) rows(%i) outs(%topk) {block_size = 2 : i64}
      : (memref<?x4xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x4xi32>) -> ()
  // CHECK: call @shardq_local_rows(
  shardq.local_rows %i, %o decodes(%n) over @ranks "tp" outs(%j) : (memref<?xi32>, memref<5xi32>, index, memref<?xi32>) -> ()
  // CHECK: call @shardq_take_rows_3x8_3x8_bf16(
  shardq.take_rows %q[%i] outs(%q) : (memref<?x3x8xbf16>, memref<?xi32>, memref<?x3x8xbf16>) -> ()
  // Which exchange pushes is nothing to the kernel.
  // CHECK: call @[[PUSH:shardq_push_2x8_8x8_f32]](
  // CHECK: call @[[PUSH]](
  shardq.push heads_to_tokens(%x) by(%i, %o) decodes(%n) into(%inbox) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%x) by(%i, %o) decodes(%n) into(%inbox) over @ranks "tp" channel 1 exchange 7 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// CHECK-LABEL: func.func @copies
func.func @copies(%a: memref<?x4xf32, strided<[8, 1]>>, %b: memref<?x4xf32>, %c: memref<*xf32>, %d: memref<*xf32>) {
  // CHECK: linalg.generic
  // CHECK-NOT: memref.copy %{{.*}} : memref<?x4xf32, strided<[8, 1]>>
  memref.copy %a, %b : memref<?x4xf32, strided<[8, 1]>> to memref<?x4xf32>
  // Nothing is known of these.
  // CHECK: memref.copy %{{.*}} : memref<*xf32> to memref<*xf32>
  memref.copy %c, %d : memref<*xf32> to memref<*xf32>
  return
}

// Kernels are private, and no symbols of the object file.
// CHECK: func.func private @[[MLA]](%{{.*}}: memref<?x2x8xf32, strided<[?, ?, 1], offset: ?>>{{.*}} attributes {llvm.linkage = #llvm.linkage<internal>}
// CHECK: func.func private @[[PUSH]](
// Peers in rotated order, beginning behind this rank, own rows last.
// CHECK: %[[WORLD:.*]] = shardq.rank over @ranks{{$}}
// CHECK: %[[ME:.*]] = shardq.rank over @ranks "tp"
// CHECK: scf.for %[[TURN:.*]] = %c1{{[_0-9]*}} to %c5 step %c1{{[_0-9]*}} {
// CHECK-NEXT: %[[SUM:.*]] = arith.addi %[[ME]], %[[TURN]] : index
// CHECK: %[[PEER:.*]] = arith.remui %[[SUM]], %c4{{[_0-9]*}} : index
// CHECK: %[[APART:.*]] = arith.subi %[[PEER]], %[[ME]] : index
// CHECK: %[[RANKS:.*]] = arith.muli %[[APART]], %c1{{[_0-9]*}} : index
// CHECK: %[[RANK:.*]] = arith.addi %[[WORLD]], %[[RANKS]] : index
// CHECK: shardq.peer_view %{{.*}}[%[[RANK]]]
// CHECK-NOT: func.func private @[[PUSH]]_
