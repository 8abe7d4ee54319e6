// Contiguous token shards, sinks of merges and padded heads become kernels, in the direct form and the one of NCCL.
//
// RUN: shardq-opt %s --convert-shardq-to-gpu --canonicalize --cse | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 4096, generations = 1>,
              #shardq.channel<"out", offset = 4096, bytes = 6144, generations = 1>,
              #shardq.channel<"all", offset = 10240, bytes = 32768, generations = 1>],
  exchanges = ["q", "out", "all"], hash = 7 : i64, slot_bytes = 65536 : i64, slots = 1 : i64}

// CHECK-LABEL: func.func @layer(
// The rank's place in the group comes from the host.
// CHECK: gpu.launch {{.*}} function(@shardq_shard_lengths)
//
// Of two parts, to each of two members 8 rows at most.
// CHECK: memref.alloc(%{{.*}}) : memref<?x4x24xbf16>
// CHECK: function(@shardq_push_4x16_4x8_4x24_bf16_pack)
// CHECK: function(@shardq_push_4x16_4x8_4x24_bf16)
// CHECK: shardq.transfer {{.*}} channel 0 exchange 0 {rows = 8 : i64} : memref<?x4x24xbf16>
//
// Each member gets half of the rows, with all heads; signal and wait are one kernel.
// CHECK: %[[HALF:.*]] = arith.ceildivui %{{.*}}, %c2
// CHECK: memref.alloc(%{{.*}}) : memref<?x4x24xbf16>
// CHECK: function(@shardq_push_4x16_4_4x24_bf16_pack)
// CHECK: function(@shardq_push_4x16_4_4x24_bf16)
// CHECK: arith.divui %{{.*}}, %c2
// CHECK: shardq_device_peer
// CHECK: shardq.transfer {{.*}} channel 1 exchange 1 {rows = 12 : i64} : memref<?x4x24xbf16>
// CHECK: function(@shardq_push_4x16_4_4x24_bf16_unpack)
// CHECK: function(@shardq_signal_wait_0)
// CHECK: gpu.launch {{.*}} function(@shardq_merge_lse_4x24_4x16_bf16)
// CHECK-COUNT-3: ex2.approx.ftz.f32
//
// What travels has the heads of a rank, wherever it lands.
// CHECK: memref.alloc(%{{.*}}) : memref<?x2x8xbf16>
// CHECK: function(@shardq_push_2x8_128x8_bf16_pack)
// CHECK: shardq.transfer {{.*}} channel 2 exchange 2 {rows = 16 : i64} : memref<?x2x8xbf16>
func.func @layer(%start: memref<?xi32>, %lens: memref<?xi32>, %starts: memref<?xi32>, %lengths: memref<?xi32>,
                 %q: memref<?x4x16xbf16>, %r: memref<?x4x8xbf16>, %p: memref<?x4x16xbf16>, %l: memref<?x4xf32>,
                 %sink: memref<4xf32>, %o: memref<?x4x16xbf16>, %own: memref<?x2x8xbf16>, %rows: index, %all: index) {
  shardq.shard_lengths %start, %lens rows(%rows) over @ranks "dcp" outs(%starts, %lengths)
      : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  %0 = shardq.workspace @plan channel 0 (%all) : memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%q, %r) into(%0) over @ranks "dcp" channel 0 exchange 0 {capacity = 16 : i64}
      : (memref<?x4x16xbf16>, memref<?x4x8xbf16>), memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%rows) over @ranks "dcp" channel 0 exchange 0
  shardq.wait gather_rows rows(%rows) over @ranks "dcp" channel 0 exchange 0
  %1 = shardq.workspace @plan channel 1 (%all) : memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  shardq.push scatter_rows(%p, %l) into(%1) over @ranks "dcp" channel 1 exchange 1 {capacity = 24 : i64}
      : (memref<?x4x16xbf16>, memref<?x4xf32>), memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  shardq.signal scatter_rows rows(%rows) over @ranks "dcp" channel 1 exchange 1
  shardq.wait scatter_rows rows(%rows) over @ranks "dcp" channel 1 exchange 1
  shardq.merge_lse %1 into(%o) sink(%sink : memref<4xf32>) over @ranks "dcp"
      : memref<?x4x24xbf16, #shardq.symmetric<@ranks>>, memref<?x4x16xbf16>
  %2 = shardq.workspace @plan channel 2 (%rows) : memref<?x128x8xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%own) into(%2) over @ranks "dcp" channel 2 exchange 2 {capacity = 16 : i64, padded_heads}
      : (memref<?x2x8xbf16>), memref<?x128x8xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%rows) over @ranks "dcp" channel 2 exchange 2
  shardq.wait gather_heads rows(%rows) over @ranks "dcp" channel 2 exchange 2
  return
}
