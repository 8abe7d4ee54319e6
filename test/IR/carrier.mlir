// Ops that only host code of targets has.
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

// Who finds nothing wrong changes nothing, but what is found must be told.
// CHECK-LABEL: func.func @checks(
// CHECK: shardq.expect "rows of 'req'" %{{.*}} equals %{{.*}}
// CHECK: shardq.beyond_table block %{{.*}} of %{{.*}} in %{{.*}}, %{{.*}}
// CHECK: shardq.check_starts %{{.*}} decodes(%{{.*}}) rows(%{{.*}}) : memref<?xi32>
// CHECK: shardq.check_starts %{{.*}} : memref<?xi32, strided<[2], offset: ?>>
//
// ONCE-LABEL: func.func @checks(
// ONCE-NEXT: shardq.expect
// ONCE-NEXT: shardq.beyond_table
// ONCE-NEXT: shardq.check_starts
// ONCE-NEXT: shardq.check_starts
func.func @checks(%starts: memref<?xi32>, %others: memref<?xi32, strided<[2], offset: ?>>, %n: index, %m: index) {
  shardq.expect "rows of 'req'" %n equals %m
  shardq.beyond_table block %n of %m in %n, %m
  shardq.check_starts %starts decodes(%n) rows(%m) : memref<?xi32>
  shardq.check_starts %others decodes(%n) rows(%m) : memref<?xi32, strided<[2], offset: ?>>
  return
}
