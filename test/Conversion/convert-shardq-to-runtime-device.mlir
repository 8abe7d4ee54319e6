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
