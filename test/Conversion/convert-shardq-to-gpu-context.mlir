// Ops of a sharded KV cache become kernels: exchanges of a group with this rank's number
// in the mesh and in the group, in the direct form and the one of NCCL.
//
// RUN: shardq-opt %s --convert-shardq-to-gpu --canonicalize --cse | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 4096, generations = 1>,
              #shardq.channel<"out", offset = 4096, bytes = 6144, generations = 1>],
  exchanges = ["q", "out"], hash = 7 : i64, slot_bytes = 16384 : i64, slots = 1 : i64}

// CHECK-LABEL: func.func @layer(
// CHECK: %[[CARRIED:.*]] = shardq.is_carried channel 0 : i1
//
// Own keys. The rank's place in the group comes from the host.
// CHECK: %[[ME:.*]] = shardq.rank over @ranks "dcp"
// CHECK: gpu.launch {{.*}} function(@shardq_local_lengths)
// CHECK: arith.muli %[[ME]]
// CHECK: gpu.launch {{.*}} function(@shardq_draft_lengths)
// CHECK: gpu.launch {{.*}} threads({{.*}}) in ({{.*}} = %c32, {{.*}} function(@shardq_filter_indices_8_8)
// CHECK: nvvm.shfl.sync up
// CHECK: gpu.barrier
//
// To each of two members go 2 heads of 16 rows at most.
// CHECK: %[[ROWS:.*]] = arith.select %[[CARRIED]], %c32, %c0 : index
// CHECK: %[[OUTBOX:.*]] = memref.alloc(%[[ROWS]]) : memref<?x2x24xbf16>
// CHECK: %[[LANDING:.*]] = memref.alloc(%[[ROWS]]) : memref<?x2x24xbf16>
// CHECK: scf.if %[[CARRIED]] {
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x16_2x8_4x24_bf16_pack)
// CHECK: shardq_device_admit
// CHECK-NOT: shardq_device_peer
// CHECK: } else {
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x16_2x8_4x24_bf16)
// CHECK: shardq_device_peer
// CHECK: }
// All members send and await the same rows.
// CHECK: gpu.launch {{.*}} function(@shardq_announce)
// CHECK: %[[COUNT:.*]] = arith.index_cast %arg{{[0-9]+}} : index to i64
// CHECK: memref.store %[[COUNT]]
// CHECK: shardq_device_announce
// CHECK: shardq.transfer %[[OUTBOX]] to %[[LANDING]] over @ranks "dcp" channel 0 exchange 0 {rows = 16 : i64} : memref<?x2x24xbf16>
// CHECK: function(@shardq_wait)
// CHECK: function(@shardq_push_2x16_2x8_4x24_bf16_unpack)
// CHECK: function(@shardq_signal_wait)
//
// The inbox of the partial outputs has the rows of both.
// CHECK: memref.alloc(%{{.*}}) : memref<?x2x24xbf16>
// CHECK: function(@shardq_push_4x16_4_2x24_bf16_pack)
// CHECK: function(@shardq_push_4x16_4_2x24_bf16)
// CHECK: shardq.transfer {{.*}} channel 1 exchange 1 {rows = 24 : i64} : memref<?x2x24xbf16>
// CHECK: function(@shardq_push_4x16_4_2x24_bf16_unpack)
// CHECK: gpu.launch {{.*}} function(@shardq_merge_lse_2x24_2x16_bf16)
// CHECK: shardq_device_inbox
// CHECK: arith.cmpf olt
// CHECK: arith.cmpf ogt
// CHECK: ex2.approx.ftz.f32
// CHECK: return
func.func @layer(%n: memref<?xi32>, %i: memref<?x8xi32>, %s: memref<?x8xi32>, %q: memref<?x2x16xbf16>, %r: memref<?x2x8xbf16>,
                 %p: memref<?x4x16xbf16>, %l: memref<?x4xf32, strided<[?, ?]>>, %o: memref<?x2x16xbf16>, %rows: index, %all: index) {
  shardq.local_lengths %n over @ranks "dcp" outs(%n) {interleave = 4 : i64} : (memref<?xi32>, memref<?xi32>) -> ()
  shardq.draft_lengths %n step(%rows) outs(%n) : (memref<?xi32>, index, memref<?xi32>) -> ()
  shardq.filter_indices %i over @ranks "dcp" outs(%s) {interleave = 4 : i64} : (memref<?x8xi32>, memref<?x8xi32>) -> ()
  %0 = shardq.workspace @plan channel 0 (%rows) : memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%q, %r) into(%0) over @ranks "dcp" channel 0 exchange 0 {capacity = 16 : i64}
      : (memref<?x2x16xbf16>, memref<?x2x8xbf16>), memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%rows) over @ranks "dcp" channel 0 exchange 0
  shardq.wait gather_heads rows(%rows) over @ranks "dcp" channel 0 exchange 0
  %1 = shardq.workspace @plan channel 1 (%all) : memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  shardq.push scatter_heads(%p, %l) into(%1) over @ranks "dcp" channel 1 exchange 1 {capacity = 48 : i64}
      : (memref<?x4x16xbf16>, memref<?x4xf32, strided<[?, ?]>>), memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  shardq.signal scatter_heads rows(%rows) over @ranks "dcp" channel 1 exchange 1
  shardq.wait scatter_heads rows(%rows) over @ranks "dcp" channel 1 exchange 1
  shardq.merge_lse %1 into(%o) over @ranks "dcp" : memref<?x2x24xbf16, #shardq.symmetric<@ranks>>, memref<?x2x16xbf16>
  return
}
