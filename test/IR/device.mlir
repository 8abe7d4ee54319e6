// Ops of host code that launches kernels.
//
// RUN: shardq-opt %s --verify-roundtrip | FileCheck %s
// RUN: shardq-opt %s --cse --canonicalize | FileCheck %s --check-prefix=ONCE

// CHECK-LABEL: func.func @counted_taps(
// CHECK: shardq.tap "x" %{{[a-z0-9]+}} count(%{{[a-z0-9]+}} : memref<1xi64>) : memref<?x4xf32>
// CHECK: shardq.tap "x" %{{[a-z0-9]+}} rows(%{{[a-z0-9]+}} : memref<?xi32>) count(%{{[a-z0-9]+}} : memref<1xi64>) {note = 1 : i64} : memref<?x4xf32>
//
// A count that is written in between is another one: no tap is dropped.
// ONCE-LABEL: func.func @counted_taps(
// ONCE-COUNT-2: shardq.tap
func.func @counted_taps(%x: memref<?x4xf32>, %rows: memref<?xi32>, %count: memref<1xi64>) {
  shardq.tap "x" %x count(%count : memref<1xi64>) : memref<?x4xf32>
  shardq.tap "x" %x rows(%rows : memref<?xi32>) count(%count : memref<1xi64>) {note = 1 : i64} : memref<?x4xf32>
  return
}

// CHECK-LABEL: func.func @state(
// CHECK: shardq.device_context : index
//
// One address is enough, and none where nobody wants it.
// ONCE-LABEL: func.func @state(
// ONCE-NEXT: %[[STATE:.*]] = shardq.device_context : index
// ONCE-NEXT: return %[[STATE]], %[[STATE]]
func.func @state() -> (index, index) {
  %0 = shardq.device_context : index
  %1 = shardq.device_context : index
  %2 = shardq.device_context : index
  return %0, %1 : index, index
}
