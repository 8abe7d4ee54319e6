// RUN: shardq-opt %s --convert-launches-to-runtime | FileCheck %s

// Calls number the kernels by their first launch; the binary lists them in that order,
// those that nobody launches not at all.
// CHECK: llvm.func @shardq_rt_launch(!llvm.ptr, !llvm.ptr, i32, i64, !llvm.ptr)
// CHECK: llvm.func @shardq_module_image() -> !llvm.ptr
// CHECK: gpu.binary @kernels {shardq.kernels = [
// CHECK-SAME: {dynamic_shared = 0 : i32, name = "second", threads = 256 : i32},
// CHECK-SAME: {dynamic_shared = 49152 : i32, name = "first", threads = 128 : i32}]}
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry first() .entry second() .entry third()">]

  // A buffer is handed over as the fields of its descriptor, an index as i64; the list of
  // addresses is made on the stack, once, and not in the loop.
  // CHECK-LABEL: func.func @launches(
  // CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr, %[[X:[a-z0-9]+]]: memref<?xf32>, %[[N:[a-z0-9]+]]: index, %[[F:[a-z0-9]+]]: f32) {
  // CHECK-COUNT-2: llvm.alloca
  // CHECK: %[[BUFFER:.*]] = builtin.unrealized_conversion_cast %[[X]]
  // CHECK: %[[ALIGNED:.*]] = llvm.extractvalue %[[BUFFER]][1]
  // CHECK: %[[NUMBER:.*]] = arith.index_cast %[[N]] : index to i64
  // CHECK: llvm.store %{{.*}}, %[[CELL:.*]] : !llvm.ptr, !llvm.ptr
  // CHECK: %[[ENTRY:.*]] = llvm.getelementptr %[[ARRAY:.*]][0]
  // CHECK: llvm.store %[[CELL]], %[[ENTRY]]
  // CHECK: llvm.store %[[ALIGNED]],
  // CHECK: llvm.getelementptr %[[ARRAY]][1]
  // CHECK: llvm.store %[[NUMBER]],
  // CHECK: llvm.getelementptr %[[ARRAY]][5]
  // CHECK: llvm.store %[[F]],
  // CHECK: llvm.getelementptr %[[ARRAY]][6]
  // CHECK: %[[IMAGE:.*]] = llvm.call @shardq_module_image()
  // CHECK: %[[BLOCKS:.*]] = arith.index_cast %[[N]] : index to i64
  // CHECK: %[[KERNEL:.*]] = llvm.mlir.constant(0 : i32)
  // CHECK: llvm.call @shardq_rt_launch(%[[CONTEXT]], %[[IMAGE]], %[[KERNEL]], %[[BLOCKS]], %[[ARRAY]])
  // CHECK: scf.for
  // CHECK-NOT: llvm.alloca
  // CHECK: %[[KERNEL:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: llvm.call @shardq_rt_launch(%[[CONTEXT]], %{{.*}}, %[[KERNEL]],
  // CHECK: }
  // CHECK: %[[KERNEL:.*]] = llvm.mlir.constant(0 : i32)
  // CHECK: llvm.call @shardq_rt_launch(%[[CONTEXT]], %{{.*}}, %[[KERNEL]],
  func.func @launches(%context: !llvm.ptr, %x: memref<?xf32>, %n: index, %f: f32 {shardq.result}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    %c256 = arith.constant 256 : index
    %shared = arith.constant 49152 : i32
    gpu.launch_func @kernels::@second blocks in (%n, %c1, %c1) threads in (%c256, %c1, %c1)
        args(%x : memref<?xf32>, %n : index, %f : f32)
    scf.for %i = %c0 to %n step %c1 {
      gpu.launch_func @kernels::@first blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1)
          dynamic_shared_memory_size %shared args(%i : index)
    }
    // No arguments at all.
    gpu.launch_func @kernels::@second blocks in (%c1, %c1, %c1) threads in (%c256, %c1, %c1)
    return
  }

  // Memory comes from the context's arena, in bytes.
  // CHECK-LABEL: func.func @memory(
  // CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr, %[[N:[a-z0-9]+]]: index)
  // CHECK: %[[ROW:.*]] = llvm.mlir.constant(1152 : i64)
  // CHECK: %[[ROWS:.*]] = arith.index_cast %[[N]] : index to i64
  // CHECK: %[[BYTES:.*]] = llvm.mul %[[ROW]], %[[ROWS]]
  // CHECK: %[[ADDRESS:.*]] = llvm.call @shardq_rt_alloc(%[[CONTEXT]], %[[BYTES]])
  // CHECK: llvm.insertvalue %[[ADDRESS]], %{{.*}}[0]
  // CHECK: %[[BUFFER:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<?x576xbf16>
  // CHECK: %[[ALIGNED:.*]] = memref.extract_aligned_pointer_as_index %[[BUFFER]]
  // CHECK: llvm.call @shardq_rt_free(%[[CONTEXT]],
  // CHECK-NOT: memref.alloc
  // CHECK-NOT: memref.dealloc
  func.func @memory(%context: !llvm.ptr, %n: index) {
    %0 = memref.alloc(%n) : memref<?x576xbf16>
    memref.dealloc %0 : memref<?x576xbf16>
    return
  }

  // Results are arguments like others from here on.
  // CHECK-LABEL: func.func @result(
  // CHECK-NOT: shardq.result
  func.func @result(%context: !llvm.ptr, %x: memref<8xf32> {shardq.result}) {
    return
  }
}
