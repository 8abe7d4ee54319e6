// Gathered KV: one kernel that pushes, one that finds slots.
//
// RUN: shardq-opt %s --convert-shardq-to-loops | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func.func @calls
func.func @calls(%a: memref<?x8xbf16>, %b: memref<?x4xbf16>, %blocks: memref<?xi32>, %count: memref<1xi32>,
                 %inbox: memref<?x12xbf16, #shardq.symmetric<@ranks>>, %i: memref<?x8xi32>, %inverse: memref<?x?xi32>,
                 %req: memref<?xi32>, %s: memref<?x8xi64>, %c: memref<?xi32>) {
  // Which exchange pushes is nothing to the kernel, how long blocks are is.
  // CHECK: call @[[PUSH:shardq_push_8_4_12_bf16]](
  // CHECK: call @[[PUSH]](
  // CHECK: call @shardq_push_8_4_12_bf16_0(
  shardq.push gather_rows(%a, %b) blocks(%blocks) into(%inbox) over @ranks "dcp" channel 0 exchange 0
      {block_size = 4 : i64, block_stride_rows = 5 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>, memref<?x4xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%a, %b) blocks(%blocks) into(%inbox) over @ranks "dcp" channel 0 exchange 2
      {block_size = 4 : i64, block_stride_rows = 5 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>, memref<?x4xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%a, %b) blocks(%blocks) into(%inbox) over @ranks "dcp" channel 0 exchange 0
      {block_size = 8 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>, memref<?x4xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  // CHECK: call @[[SLOTS:shardq_gathered_slots_8_8]](
  shardq.gathered_slots %i blocks(%inverse, %count) rows(%req) over @ranks "dcp" outs(%s, %c)
      {block_size = 8 : i64, interleave = 4 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<1xi32>, memref<?xi32>, memref<?x8xi64>, memref<?xi32>) -> ()
  return
}

// Rows without blocks: the rows of a member stand behind those of the one before it, whatever sizes promise.
// CHECK-LABEL: func.func @rows
func.func @rows(%a: memref<?x8xbf16>, %b: memref<?x2x4xi8>, %inboxa: memref<?x8xbf16, #shardq.symmetric<@ranks>>,
                %inboxb: memref<?x2x4xi8, #shardq.symmetric<@ranks>>) {
  // CHECK: call @[[FLAT:shardq_push_8_8_bf16]](
  // CHECK: call @[[FLAT]](
  // CHECK: call @shardq_push_2x4_2x4(
  shardq.push gather_rows(%a) into(%inboxa) over @ranks "dcp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%a) into(%inboxa) over @ranks "dcp" channel 0 exchange 1 {capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%b) into(%inboxb) over @ranks "dcp" channel 0 exchange 2 {capacity = 64 : i64}
      : (memref<?x2x4xi8>), memref<?x2x4xi8, #shardq.symmetric<@ranks>>
  return
}

// The place in the group and the number in the mesh differ; rows outside the cache are not read.
// CHECK: func.func private @[[PUSH]](
// CHECK-DAG: shardq.rank over @ranks{{$}}
// CHECK-DAG: shardq.rank over @ranks "dcp"
// CHECK: shardq.peer_view
// CHECK: scf.if
// CHECK: memref.load
// CHECK: else
// CHECK-NOT: memref.load
// CHECK: memref.store

// CHECK: func.func private @[[SLOTS]](
// CHECK: arith.remui

// CHECK: func.func private @[[FLAT]](
// CHECK: arith.divui
// CHECK: arith.minsi
// CHECK: shardq.peer_view
