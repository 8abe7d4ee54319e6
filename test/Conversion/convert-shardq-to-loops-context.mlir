// Ops of a sharded KV cache call one kernel for each set of static facts.
//
// RUN: shardq-opt %s --convert-shardq-to-loops | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func.func @calls
func.func @calls(%n: memref<?xi32>, %i: memref<?x8xi32>, %t: memref<?x?xi32>, %s: memref<?x8xi64>, %q: memref<?x2x8xbf16>,
                 %all: memref<?x4x8xbf16, #shardq.symmetric<@ranks>>, %p: memref<?x4x16xbf16>, %l: memref<?x4xf32>,
                 %inbox: memref<?x2x24xbf16, #shardq.symmetric<@ranks>>, %out: memref<?x2x16xbf16>,
                 %step: index) {
  // CHECK: call @shardq_local_lengths(
  shardq.local_lengths %n over @ranks "dcp" outs(%n) {interleave = 4 : i64} : (memref<?xi32>, memref<?xi32>) -> ()
  // CHECK: call @shardq_draft_lengths(
  shardq.draft_lengths %n step(%step) outs(%n) : (memref<?xi32>, index, memref<?xi32>) -> ()
  // Another interleave, another kernel.
  // CHECK: call @[[FIRST:shardq_filter_indices_8_8[_0-9]*]](
  // CHECK: call @[[SECOND:shardq_filter_indices_8_8[_0-9]*]](
  // CHECK: call @[[FIRST]](
  shardq.filter_indices %i table(%t) rows(%n) over @ranks "dcp" outs(%s) {block_size = 8 : i64, interleave = 4 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x8xi64>) -> ()
  shardq.filter_indices %i table(%t) rows(%n) over @ranks "dcp" outs(%s) {block_size = 8 : i64, interleave = 8 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x8xi64>) -> ()
  shardq.filter_indices %i table(%t) rows(%n) over @ranks "dcp" outs(%s) {block_size = 8 : i64, interleave = 4 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x8xi64>) -> ()
  // Which exchange pushes is nothing to the kernel.
  // CHECK: call @[[GATHER:shardq_push_2x8_4x8_bf16]](
  // CHECK: call @[[GATHER]](
  shardq.push gather_heads(%q) into(%all) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?x4x8xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%q) into(%all) over @ranks "dcp" channel 0 exchange 2 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?x4x8xbf16, #shardq.symmetric<@ranks>>
  // CHECK: call @[[SCATTER:shardq_push_4x16_4_2x24_bf16]](
  shardq.push scatter_heads(%p, %l) into(%inbox) over @ranks "dcp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x4x16xbf16>, memref<?x4xf32>), memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  // CHECK: call @[[MERGE:shardq_merge_lse_2x24_2x16_bf16]](
  shardq.merge_lse %inbox into(%out) over @ranks "dcp" : memref<?x2x24xbf16, #shardq.symmetric<@ranks>>, memref<?x2x16xbf16>
  return
}

// The place in the group and the number in the mesh differ.
// CHECK: func.func private @[[GATHER]](
// CHECK-DAG: shardq.rank over @ranks{{$}}
// CHECK-DAG: shardq.rank over @ranks "dcp"
// CHECK: shardq.peer_view

// The LSE's two halves stand behind the 16 values of a head.
// CHECK: func.func private @[[SCATTER]](
// CHECK: shardq.peer_view
// CHECK: arith.bitcast %{{.*}} : f32 to i32
// CHECK: arith.bitcast %{{.*}} : i16 to bf16
// CHECK: arith.bitcast %{{.*}} : i16 to bf16

// What an empty source holds is read under a condition only; the maximum is
// subtracted before the base is converted.
// CHECK: func.func private @[[MERGE]](
// CHECK: arith.cmpf olt
// CHECK: arith.maximumf
// CHECK: arith.cmpf ogt
// CHECK: scf.if
// CHECK: arith.subf
// CHECK: arith.mulf
// CHECK: math.exp2
// CHECK: scf.for
// CHECK: else
