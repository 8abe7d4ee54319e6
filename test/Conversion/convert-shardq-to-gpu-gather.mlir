// Gathered KV becomes kernels that read on the device how many blocks there are; the host
// knows what was planned.
//
// RUN: shardq-opt %s --convert-shardq-to-gpu --canonicalize --cse | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 25344, generations = 2>,
              #shardq.channel<"rows", offset = 51200, bytes = 2048, generations = 1>],
  exchanges = ["kv", "rows"], hash = 7 : i64, slot_bytes = 65536 : i64, slots = 1 : i64}

// CHECK-LABEL: func.func @layer(
// CHECK-SAME: %[[TABLE:[a-z0-9]+]]: memref<?x?xi32>, {{.*}} %[[BLOCKS:[a-z0-9]+]]: memref<?xi32>, %[[INVERSE:[a-z0-9]+]]: memref<?x?xi32>, %[[COUNT:[a-z0-9]+]]: memref<1xi32>,
// CHECK: %[[CARRIED:.*]] = shardq.is_carried channel {{[0-9]+}} : i1
//
// The list by one block, a bit for each of a window's blocks; then what stands where by many.
// CHECK: gpu.launch {{.*}} in ({{.*}} = %c1, {{.*}} threads({{.*}}) in ({{.*}} = %c1024, {{.*}} function(@shardq_gather_blocks_list)
// CHECK-SAME: workgroup({{.*}} : memref<8192xi32, #gpu.address_space<workgroup>>
// CHECK: scf.while
// CHECK: memref.atomic_rmw ori
// CHECK: memref.atomic_rmw minu
// CHECK: nvvm.vote.sync ballot
// CHECK: gpu.launch {{.*}} function(@shardq_gather_blocks_inverse)
// CHECK-NOT: atomic_rmw
//
// The gate is a number in memory, by which kernels of both branches decide.
// CHECK: %[[GATE:.*]] = memref.alloc() : memref<1xi64>
// CHECK: gpu.launch {{.*}} function(@shardq_gather_gate)
// CHECK: arith.cmpi sle, %{{.*}}, %c132
//
// 1,056 rows are planned for, of which half come from each rank, and no more stand in the list.
// CHECK: %[[LISTED:.*]] = arith.muli %{{.*}}, %c4
// CHECK: arith.minsi %[[LISTED]], %c528
// CHECK: %[[BOX:.*]] = arith.select %[[CARRIED]], %c1056, %c0 : index
// CHECK: %[[OUTBOX:.*]] = memref.alloc(%[[BOX]]) : memref<?x12xbf16>
// CHECK: %[[LANDING:.*]] = memref.alloc(%[[BOX]]) : memref<?x12xbf16>
// Push and signal run aside.
// CHECK: shardq.aside channel {{[0-9]+}} {
// CHECK-NEXT: scf.if %[[CARRIED]] {
// CHECK: gpu.launch {{.*}} function(@shardq_push_8_4_12_bf16_pack)
// CHECK-NOT: shardq_device_peer
// CHECK: function(@shardq_announce)
// CHECK: shardq.transfer %[[OUTBOX]] to %[[LANDING]] over @ranks "dcp" channel 0 exchange 0 {rows = 528 : i64} : memref<?x12xbf16>
// CHECK: } else {
// CHECK: gpu.launch {{.*}} function(@shardq_push_8_4_12_bf16)
// CHECK: %[[OPEN:.*]] = memref.load %[[GATE]]
// CHECK: %[[TAKEN:.*]] = arith.cmpi ne, %[[OPEN]]
// CHECK: scf.if %[[TAKEN]] {
// CHECK: shardq_device_inbox
// What is wanted is asked for; what the inbox is taken for is held to the plan.
// CHECK: %[[BLOCKS_HERE:.*]] = memref.load %[[COUNT]]
// CHECK: %[[WANTED:.*]] = arith.muli %{{.*}}, %c8 : index
// CHECK: arith.minsi %[[WANTED]], %c1056 : index
// CHECK: %[[ASKED:.*]] = arith.index_cast %[[WANTED]] : index to i64
// CHECK: llvm.call @shardq_device_admit({{.*}} %[[ASKED]], %c24_i64)
// CHECK: shardq_device_peer
// CHECK: memref.load %[[BLOCKS]]
// CHECK: function(@shardq_signal)
//
// Slots stand between signal and wait.
// CHECK: gpu.launch {{.*}} function(@shardq_gathered_slots_8_8)
// CHECK: shardq.join_aside
// CHECK: gpu.launch {{.*}} function(@shardq_wait)
// CHECK: scf.if %[[CARRIED]] {
// CHECK: gpu.launch {{.*}} function(@shardq_push_8_4_12_bf16_unpack)
//
// A copy of the rows has as many as were planned, behind a signal.
// CHECK: memref.alloc() : memref<1056x12xbf16>
// CHECK: gpu.launch {{.*}} function(@memref_copy_12_12_bf16)
// CHECK: shardq_device_inbox
// CHECK: gpu.launch {{.*}} function(@shardq_gathered_table)
// CHECK: return
func.func @layer(%table: memref<?x?xi32>, %lens: memref<?xi32>, %starts: memref<?xi32>, %d: index,
                 %a: memref<?x8xbf16>, %b: memref<?x4xbf16>, %topk: memref<?x8xi32>, %req: memref<?xi32>, %slots: memref<?x8xi32>,
                 %blocks: memref<?xi32>, %inverse: memref<?x?xi32>, %count: memref<1xi32>, %gathered: memref<?x?xi32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  shardq.gather_blocks %table lengths(%lens) over @ranks "dcp" outs(%blocks, %inverse, %count) {block_size = 4 : i64, interleave = 2 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x?xi32>, memref<1xi32>) -> ()
  %gate = shardq.gather_gate %starts blocks(%count) decodes(%d) over @ranks "dcp" {block_size = 4 : i64, max_blocks = 132 : i64}
      : memref<?xi32>, memref<1xi32>
  scf.if %gate {
    %0 = memref.load %count[%c0] : memref<1xi32>
    %1 = arith.index_cast %0 : i32 to index
    %2 = arith.muli %1, %c4 : index
    %3 = arith.muli %1, %c8 : index
    %4 = shardq.workspace @plan channel 0 (%3) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
    shardq.push gather_rows(%a, %b) blocks(%blocks) into(%4) over @ranks "dcp" channel 0 exchange 0
        {block_size = 4 : i64, block_stride_rows = 5 : i64, capacity = 1056 : i64}
        : (memref<?x8xbf16>, memref<?x4xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
    shardq.signal gather_rows rows(%2) over @ranks "dcp" channel 0 exchange 0
    shardq.gathered_slots %topk blocks(%inverse, %count) rows(%req) over @ranks "dcp" outs(%slots) {block_size = 4 : i64, interleave = 2 : i64}
        : (memref<?x8xi32>, memref<?x?xi32>, memref<1xi32>, memref<?xi32>, memref<?x8xi32>) -> ()
    shardq.wait gather_rows rows(%2) over @ranks "dcp" channel 0 exchange 0
    %5 = memref.load %count[%c0] : memref<1xi32>
    %6 = arith.index_cast %5 : i32 to index
    %7 = arith.muli %6, %c8 : index
    %8 = memref.alloc(%7) : memref<?x12xbf16>
    memref.copy %4, %8 : memref<?x12xbf16, #shardq.symmetric<@ranks>> to memref<?x12xbf16>
    memref.copy %8, %8 : memref<?x12xbf16> to memref<?x12xbf16>
  }
  shardq.gathered_table %inverse, %count over @ranks "dcp" outs(%gathered) {block_size = 4 : i64, interleave = 8 : i64}
      : (memref<?x?xi32>, memref<1xi32>, memref<?x?xi32>) -> ()
  return
}

// All rows, with heads: no list is read, and the host knows how many there are.
// CHECK-LABEL: func.func @rows(
// CHECK: memref.alloc(%{{.*}}) : memref<?x2x8xbf16>
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_2x8_bf16_pack)
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_2x8_bf16)
// CHECK: arith.index_cast %[[ALL:arg[0-9]+]] : index to i64
// CHECK: llvm.call @shardq_device_admit({{.*}}, %c32_i64)
// CHECK: shardq_device_peer
// CHECK-NOT: memref<?xi32
// CHECK: gpu.terminator
// CHECK: shardq.transfer {{.*}} channel 1 exchange 1 {rows = 32 : i64} : memref<?x2x8xbf16>
// CHECK: function(@shardq_push_2x8_2x8_bf16_unpack)
// CHECK: function(@shardq_signal_wait)
// CHECK: return
func.func @rows(%x: memref<?x2x8xbf16>, %n: index, %all: index) {
  %0 = shardq.workspace @plan channel 1 (%all) : memref<?x2x8xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%x) into(%0) over @ranks "dcp" channel 1 exchange 1 {capacity = 64 : i64}
      : (memref<?x2x8xbf16>), memref<?x2x8xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 1 exchange 1
  return
}

// So many times a number of rows that the step bounds is bounded so many times as high.
// CHECK-LABEL: func.func @doubled(
// CHECK-SAME: %[[N:[a-z0-9]+]]: index
// CHECK: %[[TWICE:.*]] = arith.muli %[[N]], %c2
// CHECK: memref.alloc(%[[TWICE]]) : memref<?x4xf32>
// CHECK: gpu.launch {{.*}} function(@linalg_fill_4_f32)
// CHECK: return
func.func @doubled(%start: memref<?xi32>, %lens: memref<?xi32>, %req: memref<?xi32>, %visible: memref<?xi32>, %n: index) {
  %c2 = arith.constant 2 : index
  %cst = arith.constant 0.0 : f32
  shardq.expand_rows %start, %lens to %n outs(%req, %visible) : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  %d = shardq.count_decode_rows %start : memref<?xi32>
  %twice = arith.muli %d, %c2 : index
  %x = memref.alloc(%twice) : memref<?x4xf32>
  linalg.fill ins(%cst : f32) outs(%x : memref<?x4xf32>)
  return
}

// A branch that the host decides on, inside of one that the device does: each side writes
// the result where it makes what it returns, and nothing of the device's is left to yield.
// CHECK-LABEL: func.func @returned(
// CHECK-SAME: %[[RESULT:[a-z0-9]+]]: memref<?x4xf32> {shardq.result})
// CHECK: scf.if %{{.*}} {
// CHECK-NOT: memref_copy
// CHECK: gpu.launch {{.*}} function(@linalg_fill_4_f32
// CHECK-NOT: memref_copy
// CHECK: gpu.launch {{.*}} function(@linalg_fill_4_f32
// CHECK: gpu.launch {{.*}} function(@memref_copy_4_4_f32
// CHECK-NOT: memref_copy
// CHECK: return
func.func @returned(%flag: memref<1xi64>, %fits: i1, %kv: memref<?x4xf32>, %counts: memref<4xi32>, %n: index) -> memref<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %starts = memref.alloc(%n) : memref<?xi32>
  shardq.expand_rows %starts, %starts to %n outs(%starts, %starts) : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  %d = shardq.count_decode_rows %starts : memref<?xi32>
  %0 = memref.load %flag[%c0] : memref<1xi64>
  %1 = arith.cmpi ne, %0, %c0_i64 : i64
  %2 = scf.if %1 -> (memref<?x4xf32>) {
    %3 = scf.if %fits -> (memref<?x4xf32>) {
      %a = memref.alloc(%d) : memref<?x4xf32>
      linalg.fill ins(%cst : f32) outs(%a : memref<?x4xf32>)
      scf.yield %a : memref<?x4xf32>
    } else {
      %b = memref.alloc(%n) : memref<?x4xf32>
      linalg.fill ins(%one : f32) outs(%b : memref<?x4xf32>)
      scf.yield %b : memref<?x4xf32>
    }
    scf.yield %3 : memref<?x4xf32>
  } else {
    scf.yield %kv : memref<?x4xf32>
  }
  return %2 : memref<?x4xf32>
}
