// Host code asks the runtime once for each channel whether NCCL carries its exchanges, and
// has the launches of both forms.
//
// RUN: shardq-opt %s --convert-shardq-to-gpu --canonicalize --cse | FileCheck %s

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["q", "out"], hash = 7 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}

// CHECK-LABEL: func.func @layer(
// CHECK-DAG: %[[CARRIED:.*]] = shardq.is_carried channel 0 : i1
// CHECK-DAG: %[[BACK:.*]] = shardq.is_carried channel 1 : i1
// CHECK-NOT: shardq.is_carried
//
// A row of the outbox holds the heads that travel between two ranks. Without NCCL there is
// none.
// CHECK: %[[ROWS:.*]] = arith.select %[[CARRIED]], %c32, %c0 : index
// CHECK: %[[OUTBOX:.*]] = memref.alloc(%[[ROWS]]) : memref<?x2x8xf32>
// CHECK: %[[LANDING:.*]] = memref.alloc(%[[ROWS]]) : memref<?x2x8xf32>
// CHECK: scf.if %[[CARRIED]] {
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_8x8_f32_pack)
// CHECK-NOT: shardq_device_peer
// CHECK: shardq_device_admit
// CHECK: extract_aligned_pointer_as_index %[[OUTBOX]]
// CHECK-NOT: shardq_device_peer
// CHECK: } else {
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_8x8_f32)
// CHECK: shardq_device_peer
//
// Other launches stand between.
// CHECK: gpu.launch {{.*}} function(@linalg_fill_f32)
//
// CHECK: scf.if %[[CARRIED]] {
// CHECK: gpu.launch {{.*}} function(@shardq_announce)
// CHECK: llvm.call @shardq_device_announce
// CHECK: shardq.transfer %[[OUTBOX]] to %[[LANDING]] over @ranks "tp" channel 0 exchange 0 {rows = 8 : i64} : memref<?x2x8xf32>
// CHECK: gpu.launch {{.*}} function(@shardq_wait)
// CHECK: llvm.call @shardq_device_wait
// The rows go to where those of the epoch before the signal's would have been pushed.
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_8x8_f32_unpack)
// CHECK: llvm.call @shardq_device_inbox(%{{.*}}, %{{.*}}, %[[ONE:.*]]) :
// CHECK-NOT: shardq_device_admit
// CHECK: extract_aligned_pointer_as_index %[[LANDING]]
// CHECK: } else {
// CHECK: gpu.launch {{.*}} function(@shardq_signal_wait)
// CHECK: }
// Whoever comes next may have both.
// CHECK-DAG: memref.dealloc %[[OUTBOX]] :
// CHECK-DAG: memref.dealloc %[[LANDING]] :
//
// On the way back a rank has no more rows than came, whatever the inbox holds.
// CHECK: %[[BACKROWS:.*]] = arith.select %[[BACK]], %c32, %c0 : index
// CHECK: memref.alloc(%[[BACKROWS]]) : memref<?x2x4xf32>
// CHECK: memref.alloc(%[[BACKROWS]]) : memref<?x2x4xf32>
// CHECK: function(@shardq_push_8x4_2x4_f32_pack)
//
// Where something stands between signal and wait, it stands between both halves.
// CHECK: scf.if %[[BACK]] {
// CHECK: function(@shardq_announce{{[_0-9]*}})
// CHECK: shardq.transfer {{.*}} channel 1 exchange 1 {rows = 8 : i64} : memref<?x2x4xf32>
// CHECK: } else {
// CHECK: function(@shardq_signal)
// CHECK: }
// CHECK: gpu.launch {{.*}} function(@linalg_fill_f32{{[_0-9]*}})
// CHECK: gpu.launch {{.*}} function(@shardq_wait{{[_0-9]*}})
// CHECK: scf.if %[[BACK]] {
// CHECK: gpu.launch {{.*}} function(@shardq_push_8x4_2x4_f32_unpack)
// CHECK: return
func.func @layer(%q: memref<?x2x8xf32>, %o: memref<?x8x4xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>,
                 %n: index, %other: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %cst = arith.constant 1.0 : f32
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%c0) into(%0) over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  linalg.fill ins(%cst : f32) outs(%other : memref<8xf32>)
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %1 = shardq.workspace @plan channel 1 (%n) : memref<?x2x4xf32, #shardq.symmetric<@ranks>>
  shardq.push tokens_to_heads(%o) by(%ids, %offsets) decodes(%c0) into(%1) over @ranks "tp" channel 1 exchange 1 {capacity = 30 : i64}
      : (memref<?x8x4xf32>), memref<?xi32>, memref<5xi32>, memref<?x2x4xf32, #shardq.symmetric<@ranks>>
  shardq.signal tokens_to_heads by(%offsets) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  linalg.fill ins(%cst : f32) outs(%other : memref<8xf32>)
  shardq.wait tokens_to_heads by(%offsets) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  return
}

// A signal without rows is carried all the same: its peers wait for it.
// CHECK-LABEL: func.func @nothing_pushed(
// CHECK: scf.if %{{.*}} {
// CHECK: function(@shardq_announce{{[_0-9]*}})
// CHECK: shardq.transfer %[[NONE:.*]] to %[[NONE]] over @ranks "tp" channel 1 exchange 1 {rows = 0 : i64} : memref<?xi8>
// CHECK: function(@shardq_wait{{[_0-9]*}})
// CHECK-NOT: unpack
// CHECK: return
func.func @nothing_pushed(%offsets: memref<5xi32>) {
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  return
}

// Kernels of a branch that the device decides on ask for themselves; what the host does
// between them is done either way.
// CHECK-LABEL: func.func @gated(
// CHECK: %[[CARRIED:.*]] = shardq.is_carried channel {{[0-9]+}} : i1
// CHECK: scf.if %[[CARRIED]] {
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_8x8_f32_pack{{[_0-9]*}})
// CHECK: %[[FLAG:.*]] = memref.load
// CHECK: %[[TAKEN:.*]] = arith.cmpi ne, %[[FLAG]]
// CHECK: scf.if %[[TAKEN]] {
// CHECK: shardq.transfer
// CHECK: return
func.func @gated(%flag: memref<1xi64>, %q: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c0_i64 = arith.constant 0 : i64
  %0 = memref.load %flag[%c0] : memref<1xi64>
  %1 = arith.cmpi ne, %0, %c0_i64 : i64
  scf.if %1 {
    %2 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
    shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%c0) into(%2) over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
        : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
    shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
    shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  }
  return
}
