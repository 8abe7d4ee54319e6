// What only host code of the GPU target has.
//
// RUN: shardq-opt %s --convert-shardq-to-runtime | FileCheck %s

// A tap with a count is another call, which knows that value, rows and count are in
// device memory.
// CHECK-LABEL: func.func @taps(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr, %[[X:[a-z0-9]+]]: memref<?x4xf32>, %[[ROWS:[a-z0-9]+]]: memref<?xi32>, %[[COUNT:[a-z0-9]+]]: memref<1xi64>)
// Kind, bits and rank as in runtime.h; sizes and strides; rows; the count.
// CHECK: memref.extract_aligned_pointer_as_index %[[ROWS]]
// CHECK: %[[ROWS_AT:.*]] = llvm.inttoptr
// CHECK: memref.extract_aligned_pointer_as_index %[[COUNT]]
// CHECK: %[[COUNT_AT:.*]] = llvm.inttoptr
// CHECK: llvm.call @shardq_rt_tap_counted(%[[CONTEXT]], {{.*}}, %[[ROWS_AT]], %[[COUNT_AT]])
// CHECK: %[[NO_ROWS:.*]] = llvm.mlir.zero
// CHECK: llvm.call @shardq_rt_tap_counted(%[[CONTEXT]], {{.*}}, %[[NO_ROWS]], %{{[0-9]+}}) :
// CHECK: llvm.call @shardq_rt_tap(%[[CONTEXT]],
// CHECK-NOT: shardq.tap
func.func @taps(%x: memref<?x4xf32>, %rows: memref<?xi32>, %count: memref<1xi64>) {
  shardq.tap "x" %x rows(%rows : memref<?xi32>) count(%count : memref<1xi64>) : memref<?x4xf32>
  shardq.tap "x" %x count(%count : memref<1xi64>) : memref<?x4xf32>
  shardq.tap "x" %x : memref<?x4xf32>
  return
}

// CHECK-LABEL: func.func @state(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr
// CHECK: llvm.call @shardq_rt_device(%[[CONTEXT]])
// CHECK-NOT: shardq.device_context
func.func @state() -> index {
  %0 = shardq.device_context : index
  return %0 : index
}

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func.func @carried(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr
// CHECK: %[[CHANNEL:.*]] = llvm.mlir.constant(3 : i32)
// CHECK: %[[NUMBER:.*]] = llvm.call @shardq_rt_is_carried(%[[CONTEXT]], %[[CHANNEL]]) : (!llvm.ptr, i32) -> i32
// CHECK: arith.cmpi ne, %[[NUMBER]]
// CHECK-NOT: shardq.is_carried
func.func @carried() -> i1 {
  %0 = shardq.is_carried channel 3 : i1
  return %0 : i1
}

// Channel and exchange; the group as of a signal; both buffers; rows of a rank, bytes of
// a row.
// CHECK-LABEL: func.func @transfer(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr, %[[OUTBOX:[a-z0-9]+]]: memref<?x2x4xf32>, %[[LANDING:[a-z0-9]+]]: memref<?x2x4xf32>
// CHECK: %[[FIRST:.*]] = arith.subi
// CHECK: %[[CHANNEL:.*]] = llvm.mlir.constant(3 : i32)
// CHECK: %[[EXCHANGE:.*]] = llvm.mlir.constant(5 : i32)
// CHECK: memref.extract_aligned_pointer_as_index %[[OUTBOX]]
// CHECK: %[[FROM:.*]] = llvm.inttoptr
// CHECK: memref.extract_aligned_pointer_as_index %[[LANDING]]
// CHECK: %[[TO:.*]] = llvm.inttoptr
// CHECK: %[[ROWS:.*]] = llvm.mlir.constant(100 : i64)
// CHECK: %[[BYTES:.*]] = llvm.mlir.constant(32 : i64)
// CHECK: llvm.call @shardq_rt_transfer(%[[CONTEXT]], %[[CHANNEL]], %[[EXCHANGE]], %[[FIRST]], %{{.*}}, %{{.*}}, %[[FROM]], %[[TO]], %[[ROWS]], %[[BYTES]])
func.func @transfer(%outbox: memref<?x2x4xf32>, %landing: memref<?x2x4xf32>) {
  shardq.transfer %outbox to %landing over @ranks "dcp" channel 3 exchange 5 {rows = 100 : i64}
      : memref<?x2x4xf32>
  return
}

// What stands aside is inlined between two calls.
// CHECK-LABEL: func.func @beside(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr
// CHECK: %[[CARRIED:.*]] = arith.cmpi ne
// CHECK: %[[CHANNEL:.*]] = llvm.mlir.constant(4 : i32)
// CHECK: llvm.call @shardq_rt_begin_aside(%[[CONTEXT]], %[[CHANNEL]]) : (!llvm.ptr, i32) -> ()
// CHECK-NEXT: scf.if %[[CARRIED]] {
// CHECK-NEXT: llvm.call @shardq_rt_device(%[[CONTEXT]])
// CHECK: }
// CHECK-NEXT: llvm.call @shardq_rt_end_aside(%[[CONTEXT]])
// CHECK-NEXT: memref.store
// CHECK-NEXT: llvm.call @shardq_rt_join_aside(%[[CONTEXT]])
// CHECK-NEXT: return
func.func @beside(%x: memref<1xindex>, %y: index) {
  %c0 = arith.constant 0 : index
  %0 = shardq.is_carried channel 4 : i1
  shardq.aside channel 4 {
    scf.if %0 {
      %1 = shardq.device_context : index
      memref.store %1, %x[%c0] : memref<1xindex>
    }
  }
  memref.store %y, %x[%c0] : memref<1xindex>
  shardq.join_aside
  return
}

// A private function that nothing else gives a context needs one.
// CHECK-LABEL: func.func private @alone(
// CHECK-SAME: !llvm.ptr
func.func private @alone() {
  shardq.aside channel 4 {
  }
  shardq.join_aside
  return
}
func.func @calls() {
  func.call @alone() : () -> ()
  return
}
