// Ops of host code for exchanges that NCCL carries.
//
// RUN: shardq-opt %s --verify-roundtrip | FileCheck %s
// RUN: shardq-opt %s --cse --canonicalize | FileCheck %s --check-prefix=ONCE

shardq.mesh @ranks ["tp" = 4]

// CHECK-LABEL: func.func @carry(
// CHECK: shardq.transfer %{{.*}} to %{{.*}} over @ranks "tp" channel 0 exchange 1 {rows = 128 : i64} : memref<?x16x576xbf16>
//
// Peers have a part in it: none is one too many.
// ONCE-LABEL: func.func @carry(
// ONCE-COUNT-2: shardq.transfer
func.func @carry(%outbox: memref<?x16x576xbf16>, %landing: memref<?x16x576xbf16>) {
  shardq.transfer %outbox to %landing over @ranks "tp" channel 0 exchange 1 {rows = 128 : i64}
      : memref<?x16x576xbf16>
  shardq.transfer %outbox to %landing over @ranks "tp" channel 0 exchange 1 {rows = 128 : i64}
      : memref<?x16x576xbf16>
  return
}

// CHECK-LABEL: func.func @form(
// CHECK: shardq.is_carried : i1
//
// ONCE-LABEL: func.func @form(
// ONCE-NEXT: %[[CARRIED:.*]] = shardq.is_carried : i1
// ONCE-NEXT: return %[[CARRIED]], %[[CARRIED]]
func.func @form() -> (i1, i1) {
  %0 = shardq.is_carried : i1
  %1 = shardq.is_carried : i1
  return %0, %1 : i1, i1
}
