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
// CHECK: shardq.is_carried channel 0 : i1
//
// Each channel has an answer of its own.
// ONCE-LABEL: func.func @form(
// ONCE-NEXT: %[[CARRIED:.*]] = shardq.is_carried channel 0 : i1
// ONCE-NEXT: %[[OTHER:.*]] = shardq.is_carried channel 1 : i1
// ONCE-NEXT: return %[[CARRIED]], %[[CARRIED]], %[[OTHER]]
func.func @form() -> (i1, i1, i1) {
  %0 = shardq.is_carried channel 0 : i1
  %1 = shardq.is_carried channel 0 : i1
  %2 = shardq.is_carried channel 1 : i1
  return %0, %1, %2 : i1, i1, i1
}

// CHECK-LABEL: func.func @beside(
// CHECK: shardq.aside channel 2 {
// CHECK-NEXT: memref.store
// CHECK-NEXT: }
// CHECK: memref.load
// CHECK: shardq.join_aside
// CHECK: shardq.aside channel 2 {
// CHECK-NEXT: } {note = 1 : i64}
// CHECK-NEXT: shardq.join_aside {note = 2 : i64}
// CHECK: scf.if
// CHECK-NEXT: shardq.aside channel 2
// CHECK: shardq.join_aside
//
// Nothing of it is dropped, merged, or moved over an end, whether it launches anything or not.
// ONCE-LABEL: func.func @beside(
// ONCE-NEXT: %[[ZERO:.*]] = arith.constant 0 : index
// ONCE-NEXT: shardq.aside channel 2 {
// ONCE-NEXT: memref.store
// ONCE-NEXT: }
// ONCE-NEXT: %[[FIRST:.*]] = memref.load
// ONCE-NEXT: shardq.join_aside
// ONCE-NEXT: %[[SECOND:.*]] = memref.load
// ONCE-NEXT: shardq.aside channel 2 {
// ONCE-NEXT: }
// ONCE-NEXT: shardq.join_aside
// ONCE-NEXT: scf.if
// ONCE-NEXT: shardq.aside channel 2 {
// ONCE-NEXT: }
// ONCE-NEXT: shardq.join_aside
// ONCE-NEXT: }
// ONCE-NEXT: return %[[FIRST]], %[[SECOND]]
func.func @beside(%x: memref<8xf32>, %y: f32, %condition: i1) -> (f32, f32) {
  %c0 = arith.constant 0 : index
  shardq.aside channel 2 {
    memref.store %y, %x[%c0] : memref<8xf32>
  }
  %0 = memref.load %x[%c0] : memref<8xf32>
  shardq.join_aside
  %1 = memref.load %x[%c0] : memref<8xf32>
  shardq.aside channel 2 {
  } {note = 1 : i64}
  shardq.join_aside {note = 2 : i64}
  scf.if %condition {
    shardq.aside channel 2 {
    }
    shardq.join_aside
  }
  return %0, %1 : f32, f32
}

// Who finds nothing wrong changes nothing, but what is found must be told.
// CHECK-LABEL: func.func @checks(
// CHECK: shardq.expect "rows of 'req'" %{{.*}} equals %{{.*}}
// CHECK: shardq.beyond_table block %{{.*}} of %{{.*}} in %{{.*}}, %{{.*}}
// CHECK: shardq.no_place block %{{.*}} of %{{.*}} entry %{{.*}}
// CHECK: shardq.beyond_cache slot %{{.*}} of %{{.*}} in %{{.*}}
// CHECK: shardq.check_starts %{{.*}} decodes(%{{.*}}) rows(%{{.*}}) : memref<?xi32>
// CHECK: shardq.check_starts %{{.*}} : memref<?xi32, strided<[2], offset: ?>>
//
// ONCE-LABEL: func.func @checks(
// ONCE-NEXT: shardq.expect
// ONCE-NEXT: shardq.beyond_table
// ONCE-NEXT: shardq.no_place
// ONCE-NEXT: shardq.beyond_cache
// ONCE-NEXT: shardq.check_starts
// ONCE-NEXT: shardq.check_starts
func.func @checks(%starts: memref<?xi32>, %others: memref<?xi32, strided<[2], offset: ?>>, %n: index, %m: index) {
  shardq.expect "rows of 'req'" %n equals %m
  shardq.beyond_table block %n of %m in %n, %m
  shardq.no_place block %n of %m entry %n
  shardq.beyond_cache slot %n of %m in %n
  shardq.check_starts %starts decodes(%n) rows(%m) : memref<?xi32>
  shardq.check_starts %others decodes(%n) rows(%m) : memref<?xi32, strided<[2], offset: ?>>
  return
}
