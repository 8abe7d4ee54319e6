// RUN: shardq-opt %s --convert-shardq-to-gpu | FileCheck %s

// Merges by weights and sums: a kernel for the weights, with this rank's coordinate; a push of heads
// without an LSE; a kernel for the sums.

shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"scatter_heads", offset = 0, bytes = 8192, generations = 2>],
  exchanges = ["scatter_heads exchange 0 of @layer"], hash = 7 : i64, slot_bytes = 16384 : i64, slots = 1 : i64}

// CHECK-LABEL: func.func @layer
// CHECK: gpu.launch {{.*}} function(@shardq_weigh_partial_
// CHECK: arith.cmpf olt
// CHECK: ex2.approx.ftz.f32
// CHECK: arith.divf
// CHECK: function(@shardq_push_4x16_2x16_f32_pack)
// CHECK: function(@shardq_push_4x16_2x16_f32)
// CHECK: shardq_device_peer
// CHECK: function(@shardq_signal_wait)
// CHECK: gpu.launch {{.*}} function(@shardq_sum_partials_
// CHECK: arith.addf
// CHECK: return
func.func @layer(%p: memref<?x4x16xbf16>, %l: memref<?x4xf32, strided<[?, ?]>>, %s: memref<?x4x16xf32>, %m: memref<?x4xf32>,
                 %o: memref<?x2x16xbf16>, %rows: index, %all: index) {
  shardq.weigh_partial %p lses(%l) over @ranks "dcp" outs(%s, %m)
      : (memref<?x4x16xbf16>, memref<?x4xf32, strided<[?, ?]>>, memref<?x4x16xf32>, memref<?x4xf32>) -> ()
  %0 = shardq.workspace @plan channel 0 (%all) : memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  shardq.push scatter_heads(%s) into(%0) over @ranks "dcp" channel 0 exchange 0 {capacity = 48 : i64}
      : (memref<?x4x16xf32>), memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  shardq.signal scatter_heads rows(%rows) over @ranks "dcp" channel 0 exchange 0
  shardq.wait scatter_heads rows(%rows) over @ranks "dcp" channel 0 exchange 0
  shardq.sum_partials %0 into(%o) over @ranks "dcp" : memref<?x2x16xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xbf16>
  return
}
