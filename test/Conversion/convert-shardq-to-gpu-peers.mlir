// Whose rows a kernel writes first: rank+1, then rank+2, ..., own rows last. At any time each
// rank is written by few, which nothing but time would tell.
//
// RUN: shardq-opt %s --convert-shardq-to-gpu --canonicalize --cse | FileCheck %s

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"a", offset = 0, bytes = 4096, generations = 1>,
              #shardq.channel<"b", offset = 4096, bytes = 4096, generations = 1>],
  exchanges = ["a", "b"], hash = 7 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}

// CHECK-LABEL: func.func @tokens(
// CHECK-SAME: %{{[^:]*}}: memref<?x2x8xf32>, %{{[^:]*}}: memref<?x8x4xf32>, %[[IDS:[^:]*]]: memref<?xi32>, %[[OFFSETS:[^:]*]]: memref<5xi32>
// CHECK: %[[ME:.*]] = shardq.rank over @ranks "tp"
//
// All tokens, from the first of the rank behind this one on, and around.
// CHECK: function(@shardq_push_2x8_8x8_f32)
// CHECK: %[[BEHIND:.*]] = arith.addi %[[ME]], %c1 : index
// CHECK: memref.load %[[OFFSETS]][%c4]
// CHECK: %[[TOKENS:.*]] = arith.maxsi
// CHECK: %[[NEXT:.*]] = arith.remui %[[BEHIND]], %c4 : index
// CHECK: memref.load %[[OFFSETS]][%[[NEXT]]]
// CHECK: %[[FIRST:.*]] = arith.maxsi
// CHECK: scf.for %[[TASK:.*]] = %block_id_x to %[[TOKENS]] step %grid_dim_x {
// CHECK-NEXT: %[[AT:.*]] = arith.addi %[[TASK]], %[[FIRST]] : index
// CHECK-NEXT: %[[IS_IN:.*]] = arith.cmpi slt, %[[AT]], %[[TOKENS]] : index
// CHECK-NEXT: %[[AROUND:.*]] = arith.subi %[[AT]], %[[TOKENS]] : index
// CHECK-NEXT: %[[TOKEN:.*]] = arith.select %[[IS_IN]], %[[AT]], %[[AROUND]] : index
// CHECK: memref.load %[[IDS]][%[[TOKEN]]]
// CHECK: shardq_device_peer
//
// Own tokens, all of them to one rank after the other.
// CHECK: function(@shardq_push_8x4_2x4_f32)
// CHECK: %[[BEHIND:.*]] = arith.addi %[[ME]], %c1 : index
// CHECK: %[[TASKS:.*]] = arith.muli %[[OWN:.*]], %c4 : index
// CHECK: scf.for %[[TASK:.*]] = %block_id_x to %[[TASKS]] step %grid_dim_x {
// CHECK-NEXT: %[[TURN:.*]] = arith.divui %[[TASK]], %[[OWN]] : index
// CHECK-NEXT: %[[ROW:.*]] = arith.remui %[[TASK]], %[[OWN]] : index
// CHECK-NEXT: %[[SUM:.*]] = arith.addi %[[BEHIND]], %[[TURN]] : index
// CHECK-NEXT: %[[PEER:.*]] = arith.remui %[[SUM]], %c4 : index
// CHECK: %[[APART:.*]] = arith.subi %[[PEER]], %[[ME]] : index
// CHECK: %[[RANK:.*]] = arith.addi %{{.*}}, %[[APART]] : index
// CHECK: %[[NUMBER:.*]] = arith.index_cast %[[RANK]] : index to i64
// CHECK: @shardq_device_peer(%{{.*}}, %{{.*}}, %[[NUMBER]])
func.func @tokens(%q: memref<?x2x8xf32>, %o: memref<?x8x4xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%c0) into(%0) over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %1 = shardq.workspace @plan channel 1 (%n) : memref<?x2x4xf32, #shardq.symmetric<@ranks>>
  shardq.push tokens_to_heads(%o) by(%ids, %offsets) decodes(%c0) into(%1) over @ranks "tp" channel 1 exchange 1 {capacity = 32 : i64}
      : (memref<?x8x4xf32>), memref<?xi32>, memref<5xi32>, memref<?x2x4xf32, #shardq.symmetric<@ranks>>
  shardq.signal tokens_to_heads by(%offsets) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  shardq.wait tokens_to_heads by(%offsets) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  return
}

// CHECK-LABEL: func.func @group(
// CHECK: %[[WORLD:.*]] = shardq.rank over @ranks{{$}}
// CHECK: %[[ME:.*]] = shardq.rank over @ranks "tp"
//
// Each row to all ranks in turn.
// CHECK: function(@shardq_push_2x8_8x8_f32{{[_0-9]*}})
// CHECK: scf.for %[[TASK:.*]] = %block_id_x to %{{.*}} step %grid_dim_x {
// CHECK-NEXT: %[[NUMBER:.*]] = arith.remui %[[TASK]], %c4 : index
// CHECK-NEXT: %[[TURN:.*]] = arith.addi %[[NUMBER]], %c1 : index
// CHECK-NEXT: %[[SUM:.*]] = arith.addi %[[ME]], %[[TURN]] : index
// CHECK-NEXT: %[[PEER:.*]] = arith.remui %[[SUM]], %c4 : index
// CHECK-NEXT: arith.divui %[[TASK]], %c4 : index
// CHECK: %[[APART:.*]] = arith.subi %[[PEER]], %[[ME]] : index
// CHECK: %[[RANK:.*]] = arith.addi %[[WORLD]], %[[APART]] : index
// CHECK: %[[NUMBER:.*]] = arith.index_cast %[[RANK]] : index to i64
// CHECK: @shardq_device_peer(%{{.*}}, %{{.*}}, %[[NUMBER]])
//
// Each chunk to the three others in turn; behind all of those the own copies.
// CHECK: function(@shardq_push_2x8_2x8_f32)
// CHECK: %[[CHUNKS:.*]] = arith.divui %{{.*}}, %c1024 : index
// CHECK: %[[OTHERS:.*]] = arith.muli %[[CHUNKS]], %c3 : index
// CHECK: %[[TASKS:.*]] = arith.muli %[[CHUNKS]], %c4 : index
// CHECK: scf.for %[[TASK:.*]] = %block_id_x to %[[TASKS]] step %grid_dim_x {
// CHECK-NEXT: %[[IS_OWN:.*]] = arith.cmpi sle, %[[OTHERS]], %[[TASK]] : index
// CHECK-NEXT: %[[OWN_CHUNK:.*]] = arith.subi %[[TASK]], %[[OTHERS]] : index
// CHECK-NEXT: %[[CHUNK:.*]] = arith.divui %[[TASK]], %c3 : index
// CHECK-NEXT: %[[AT:.*]] = arith.select %[[IS_OWN]], %[[OWN_CHUNK]], %[[CHUNK]] : index
// CHECK-NEXT: %[[NUMBER:.*]] = arith.remui %[[TASK]], %c3 : index
// CHECK-NEXT: %[[BEHIND:.*]] = arith.addi %[[NUMBER]], %c1 : index
// CHECK-NEXT: %[[TURN:.*]] = arith.select %[[IS_OWN]], %c0, %[[BEHIND]] : index
// CHECK-NEXT: %[[SUM:.*]] = arith.addi %[[ME]], %[[TURN]] : index
// CHECK-NEXT: %[[PEER:.*]] = arith.remui %[[SUM]], %c4 : index
// CHECK-NEXT: arith.muli %[[AT]], %c1024 : index
// CHECK: %[[APART:.*]] = arith.subi %[[PEER]], %[[ME]] : index
// CHECK: %[[RANK:.*]] = arith.addi %[[WORLD]], %[[APART]] : index
// CHECK: %[[RANK_NUMBER:.*]] = arith.index_cast %[[RANK]] : index to i64
// CHECK: @shardq_device_peer(%{{.*}}, %{{.*}}, %[[RANK_NUMBER]])
func.func @group(%q: memref<?x2x8xf32>, %x: memref<?x2x8xf32>, %n: index, %all: index) {
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%q) into(%0) over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  %1 = shardq.workspace @plan channel 1 (%all) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%x) into(%1) over @ranks "tp" channel 1 exchange 1 {capacity = 32 : i64}
      : (memref<?x2x8xf32>), memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 1 exchange 1
  return
}
