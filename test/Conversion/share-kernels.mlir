// RUN: shardq-opt %s --shardq-share-kernels | FileCheck %s

// Of @a, @b and @c, which differ in their names, @a stays; @d computes something else and
// @e has another number of threads.
// CHECK: gpu.module @kernels
// CHECK: gpu.func @a(
// CHECK-NOT: gpu.func @b(
// CHECK-NOT: gpu.func @c(
// CHECK: gpu.func @d(
// CHECK: gpu.func @e(
//
// The exchanges' numbers are handed over.
// CHECK: gpu.func @wait(%{{.*}}: !llvm.ptr, %[[NUMBER:.*]]: i32) workgroup(
// CHECK: llvm.call @shardq_device_wait(%{{.*}}, %{{.*}}, %[[NUMBER]],
// CHECK-NOT: gpu.func @wait_0
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @a(%x: memref<?xf32>, %i: index) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c = arith.constant 1.0 : f32
      memref.store %c, %x[%i] : memref<?xf32>
      gpu.return
    }
    // Names of values are no difference.
    gpu.func @b(%y: memref<?xf32>, %at: index) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %one = arith.constant 1.0 : f32
      memref.store %one, %y[%at] : memref<?xf32>
      gpu.return
    }
    // Nor are places in the source.
    gpu.func @c(%x: memref<?xf32>, %i: index) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c = arith.constant 1.0 : f32 loc("elsewhere")
      memref.store %c, %x[%i] : memref<?xf32> loc("there")
      gpu.return
    }
    gpu.func @d(%x: memref<?xf32>, %i: index) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c = arith.constant 2.0 : f32
      memref.store %c, %x[%i] : memref<?xf32>
      gpu.return
    }
    gpu.func @e(%x: memref<?xf32>, %i: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
      %c = arith.constant 1.0 : f32
      memref.store %c, %x[%i] : memref<?xf32>
      gpu.return
    }
  }
  gpu.module @exchanges {
    llvm.func @shardq_device_wait(!llvm.ptr, i32, i32, i64, i64, i64, !llvm.ptr)
    gpu.func @wait(%context: !llvm.ptr) workgroup(%rows: memref<4xi64, #gpu.address_space<workgroup>>) kernel {
      %channel = llvm.mlir.constant(1 : i32) : i32
      %number = llvm.mlir.constant(7 : i32) : i32
      %zero = llvm.mlir.constant(0 : i64) : i64
      llvm.call @shardq_device_wait(%context, %channel, %number, %zero, %zero, %zero, %context)
          : (!llvm.ptr, i32, i32, i64, i64, i64, !llvm.ptr) -> ()
      gpu.return
    }
    // Its number is that of the channel, and constants stand in another order.
    gpu.func @wait_0(%context: !llvm.ptr) workgroup(%rows: memref<4xi64, #gpu.address_space<workgroup>>) kernel {
      %zero = llvm.mlir.constant(0 : i64) : i64
      %channel = llvm.mlir.constant(1 : i32) : i32
      llvm.call @shardq_device_wait(%context, %channel, %channel, %zero, %zero, %zero, %context)
          : (!llvm.ptr, i32, i32, i64, i64, i64, !llvm.ptr) -> ()
      gpu.return
    }
  }

  // Of another module nothing is shared.
  // CHECK: gpu.module @others
  // CHECK: gpu.func @a(
  gpu.module @others {
    gpu.func @a(%x: memref<?xf32>, %i: index) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c = arith.constant 1.0 : f32
      memref.store %c, %x[%i] : memref<?xf32>
      gpu.return
    }
  }

  // CHECK-LABEL: func.func @launches(
  // CHECK: gpu.launch_func @kernels::@a
  // CHECK: gpu.launch_func @kernels::@a
  // CHECK: scf.for
  // CHECK: gpu.launch_func @kernels::@a
  // CHECK: gpu.launch_func @kernels::@d
  // CHECK: gpu.launch_func @kernels::@e
  // CHECK: gpu.launch_func @others::@a
  func.func @launches(%x: memref<?xf32>, %n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    %c256 = arith.constant 256 : index
    gpu.launch_func @kernels::@a blocks in (%c1, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<?xf32>, %c0 : index)
    gpu.launch_func @kernels::@b blocks in (%n, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<?xf32>, %c0 : index)
    scf.for %i = %c0 to %n step %c1 {
      gpu.launch_func @kernels::@c blocks in (%c1, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<?xf32>, %i : index)
    }
    gpu.launch_func @kernels::@d blocks in (%c1, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<?xf32>, %c0 : index)
    gpu.launch_func @kernels::@e blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1) args(%x : memref<?xf32>, %c0 : index)
    gpu.launch_func @others::@a blocks in (%c1, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<?xf32>, %c0 : index)
    return
  }

  // CHECK-LABEL: func.func @exchanges_of_layers(
  // CHECK: %[[SEVEN:.*]] = llvm.mlir.constant(7 : i32)
  // CHECK: gpu.launch_func @exchanges::@wait {{.*}} args(%{{.*}} : !llvm.ptr, %[[SEVEN]] : i32)
  // CHECK: %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: gpu.launch_func @exchanges::@wait {{.*}} args(%{{.*}} : !llvm.ptr, %[[ONE]] : i32)
  func.func @exchanges_of_layers(%context: !llvm.ptr) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @exchanges::@wait blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%context : !llvm.ptr)
    gpu.launch_func @exchanges::@wait_0 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%context : !llvm.ptr)
    return
  }
}
