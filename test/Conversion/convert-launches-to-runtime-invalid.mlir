// RUN: shardq-opt %s --split-input-file --convert-launches-to-runtime --verify-diagnostics

func.func @f(%n: index) {
  // expected-error @+1 {{'memref.alloc' op stands in a function without the runtime's context: run convert-shardq-to-runtime first}}
  %0 = memref.alloc(%n) : memref<?xf32>
  return
}

// -----

llvm.func @f() {
  // expected-error @+1 {{stands in a function without the runtime's context}}
  %0 = memref.alloc() : memref<8xf32>
  llvm.return
}

// -----

func.func @f(%context: !llvm.ptr) {
  // expected-error @+1 {{'memref.alloc' op makes a buffer of type 'memref<8xindex>', expected integers or floats without a layout}}
  %0 = memref.alloc() : memref<8xindex>
  return
}

// -----

func.func @f(%context: !llvm.ptr) {
  // expected-error @+1 {{'memref.alloc' op makes a buffer of type 'memref<4x4xf32, strided<[8, 1]>>', expected integers or floats without a layout}}
  %0 = memref.alloc() : memref<4x4xf32, strided<[8, 1]>>
  return
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr, %n: index) {
    %c1 = arith.constant 1 : index
    // expected-error @+1 {{has threads that are no constant, which the runtime's launches cannot have}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr, %n: index) {
    %c1 = arith.constant 1 : index
    // expected-error @+1 {{has sizes of its other dimensions that are no constant}}
    gpu.launch_func @kernels::@k blocks in (%c1, %n, %c1) threads in (%c1, %c1, %c1)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    // expected-error @+1 {{has more than one dimension of blocks or threads}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c2, %c1)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr, %bytes: i32) {
    %c1 = arith.constant 1 : index
    // expected-error @+1 {{has bytes of dynamic shared memory that are no constant}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) dynamic_shared_memory_size %bytes
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr) {
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    // expected-error @+1 {{launches "k" with 32 threads and 0 bytes of dynamic shared memory, and another launch with 1 and 0}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c32, %c1, %c1)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr) {
    %c1 = arith.constant 1 : index
    // expected-error @+1 {{is asynchronous, but the runtime's launches are in the order of one stream}}
    %0 = gpu.launch_func async @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    gpu.wait [%0]
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr) {
    %c1 = arith.constant 1 : index
    // expected-error @+1 {{has clusters, which the runtime's launches cannot have}}
    gpu.launch_func @kernels::@k clusters in (%c1, %c1, %c1) blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr, %x: memref<*xf32>) {
    %c1 = arith.constant 1 : index
    // expected-error @+1 {{has an operand of type 'memref<*xf32>', which the runtime's launches cannot have}}
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<*xf32>)
    return
  }
}

// -----

// expected-error @+1 {{has 0 gpu.binary ops, expected one with all kernels}}
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @k() kernel {
      gpu.return
    }
  }
  func.func @f(%context: !llvm.ptr) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}

// -----

// expected-error @+1 {{has 2 gpu.binary ops, expected one with all kernels}}
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  gpu.binary @others [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k()">]
  func.func @f(%context: !llvm.ptr) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}
