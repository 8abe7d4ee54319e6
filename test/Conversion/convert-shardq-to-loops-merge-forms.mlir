// The ops that a merge may be made of; how an exchange travels changes no loop.
//
// RUN: shardq-opt %s --convert-shardq-to-loops | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func.func @calls
func.func @calls(%p: memref<?x4x16xbf16>, %l: memref<?x4xf32, strided<[?, ?]>>, %s: memref<?x4x16xf32>, %m: memref<?x4xf32>,
                 %inbox: memref<?x2x16xf32, #shardq.symmetric<@ranks>>, %out: memref<?x2x16xbf16>) {
  // CHECK: call @[[WEIGH:shardq_weigh_partial_[0-9a-z_]*]](
  shardq.weigh_partial %p lses(%l) over @ranks "dcp" outs(%s, %m)
      : (memref<?x4x16xbf16>, memref<?x4xf32, strided<[?, ?]>>, memref<?x4x16xf32>, memref<?x4xf32>) -> ()
  // CHECK: call @[[PUSH:shardq_push_[0-9a-z_]*]](
  // CHECK: call @[[PUSH]](
  shardq.push scatter_heads(%s) into(%inbox) over @ranks "dcp" channel 0 exchange 0
      {capacity = 64 : i64, transport = #shardq.transport<direct, "one">}
      : (memref<?x4x16xf32>), memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  shardq.push scatter_heads(%s) into(%inbox) over @ranks "dcp" channel 0 exchange 1
      {capacity = 64 : i64, transport = #shardq.transport<direct, "another">}
      : (memref<?x4x16xf32>), memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  // CHECK: call @[[SUM:shardq_sum_partials_[0-9a-z_]*]](
  shardq.sum_partials %inbox into(%out) over @ranks "dcp" : memref<?x2x16xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xbf16>
  return
}

// The maximum is subtracted first; an own LSE of -inf leaves the partial output unread.
// CHECK: func.func private @[[WEIGH]](
// CHECK: shardq.rank over @ranks "dcp"
// CHECK: arith.maximumf
// CHECK: arith.subf
// CHECK: math.exp2
// CHECK: arith.cmpf ogt
// CHECK: scf.if
// CHECK: arith.divf
// CHECK: scf.for
// CHECK: else
// CHECK: math.log

// No LSE behind the values.
// CHECK: func.func private @[[PUSH]](
// CHECK: shardq.peer_view
// CHECK-NOT: arith.bitcast
// CHECK: return

// Members in ascending order, in f32.
// CHECK: func.func private @[[SUM]](
// CHECK: memref.alloc{{.*}} memref<16xf32>
// CHECK: arith.addf
// CHECK: arith.truncf
