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

shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 1792, generations = 1>], exchanges = ["gather_rows exchange 0 of @inbox"],
  hash = 1 : i64, slot_bytes = 1792 : i64, slots = 1 : i64}

// Rows that the channel does not hold, which only the step says, are none of the inbox, and none of its copies.
// CHECK-LABEL: func.func @inbox
// CHECK-SAME: %[[ROWS:[a-z0-9]+]]: index
// CHECK: %[[WHOLE:.*]] = shardq.workspace @plan channel 0(%[[ROWS]])
// CHECK: %[[FITS:.*]] = arith.cmpi ule, %[[ROWS]], %c74
// CHECK: %[[HELD:.*]] = arith.select %[[FITS]], %[[ROWS]], %c0
// CHECK: %[[INBOX:.*]] = memref.reinterpret_cast %[[WHOLE]] to offset: [0], sizes: [%[[HELD]], 12], strides: [12, 1]
// CHECK: %[[TO:.*]] = memref.cast %[[INBOX]]
// CHECK: call @[[PUSH]](%{{.*}}, %{{.*}}, %{{.*}}, %[[TO]])
// CHECK: %[[COPY:.*]] = memref.alloc(%[[HELD]])
// CHECK: linalg.generic {{.*}} ins(%[[INBOX]] : {{.*}}) outs(%[[COPY]] :
func.func @inbox(%rows: index, %a: memref<?x8xbf16>, %b: memref<?x4xbf16>, %blocks: memref<?xi32>) -> memref<?x12xbf16> {
  %inbox = shardq.workspace @plan channel 0(%rows) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%a, %b) blocks(%blocks) into(%inbox) over @ranks "dcp" channel 0 exchange 0
      {block_size = 4 : i64, block_stride_rows = 5 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>, memref<?x4xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  %copy = memref.alloc(%rows) : memref<?x12xbf16>
  memref.copy %inbox, %copy : memref<?x12xbf16, #shardq.symmetric<@ranks>> to memref<?x12xbf16>
  return %copy : memref<?x12xbf16>
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
