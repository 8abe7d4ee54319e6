// A push's grid grows with its rows, of which the host knows a bound: few blocks start sooner, then one a row (of
// eight parts), then some waves.
//
// RUN: shardq-opt %s --convert-shardq-to-gpu --canonicalize | FileCheck %s

shardq.mesh @ranks ["tp" = 2]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 1179648, generations = 2>],
  exchanges = ["q"], hash = 7 : i64, slot_bytes = 2359296 : i64, slots = 1 : i64}
// CHECK: %[[PARTS:.*]] = arith.muli %{{.*}}, %c8
// CHECK-NEXT: %[[FEW:.*]] = arith.minsi %[[PARTS]], %c264
// CHECK-NEXT: %[[ROWS:.*]] = arith.divui %[[PARTS]], %c8
// CHECK-NEXT: %[[MORE:.*]] = arith.maxsi %[[FEW]], %[[ROWS]]
// CHECK-NEXT: %[[MOST:.*]] = arith.minsi %[[MORE]], %c2112
// CHECK-NEXT: %[[BLOCKS:.*]] = arith.maxsi %[[MOST]], %c1
// CHECK-NEXT: gpu.launch blocks(%{{.*}}, %{{.*}}, %{{.*}}) in (%{{.*}} = %[[BLOCKS]],
func.func @push(%q: memref<?x2x8xbf16>, %ids: memref<?xi32>, %offsets: memref<3xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x4x8xbf16, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%c0) into(%0) over @ranks "tp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x2x8xbf16>), memref<?xi32>, memref<3xi32>, memref<?x4x8xbf16, #shardq.symmetric<@ranks>>
  return
}
