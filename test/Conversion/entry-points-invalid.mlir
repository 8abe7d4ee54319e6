// RUN: shardq-opt %s --shardq-emit-entry-points --split-input-file --verify-diagnostics
// RUN: not shardq-opt %s --shardq-emit-entry-points=device=tpu 2>&1 | FileCheck %s --check-prefix=DEVICE
// DEVICE: error: shardq-emit-entry-points: device is 'tpu', expected cpu or cuda

// expected-error @+1 {{does not take the runtime's context: run convert-shardq-to-runtime before shardq-emit-entry-points}}
func.func @no_context(%a: memref<4xf32>) {
  return
}

// -----

// expected-error @+1 {{has argument 1 of type 'i7', which an entry point cannot take}}
func.func @odd_integer(%context: !llvm.ptr, %a: memref<4xf32>, %n: i7) {
  return
}

// -----

// expected-error @+1 {{has argument 0 of type 'memref<4xi4>', which an entry point cannot take}}
func.func @odd_element(%context: !llvm.ptr, %a: memref<4xi4>) {
  return
}

// -----

// expected-error @+1 {{has argument 0 of type 'tensor<4xf32>', which an entry point cannot take}}
func.func @tensor(%context: !llvm.ptr, %a: tensor<4xf32>) {
  return
}

// -----

// expected-error @+1 {{has argument 0 of type 'f8E4M3FN', which an entry point cannot take}}
func.func @scalar_float8(%context: !llvm.ptr, %a: f8E4M3FN) {
  return
}

// -----

// expected-error @+1 {{has result 0 of type 'memref<4xf32, affine_map<(d0) -> (d0 mod 2)>>', whose layout DLPack cannot say}}
func.func @layout(%context: !llvm.ptr, %a: memref<4xf32, affine_map<(d0) -> (d0 mod 2)>> {shardq.result}) {
  return
}

// -----

// expected-error @+1 {{which begins behind its first element}}
func.func @offset(%context: !llvm.ptr, %a: memref<4xf32, strided<[1], offset: 4>>) {
  return
}

// -----

// expected-error @+1 {{whose memory space an entry point cannot take}}
func.func @space(%context: !llvm.ptr, %a: memref<4xf32, "vault">) {
  return
}

// -----

// expected-error @+1 {{has argument 2 behind arguments that are results}}
func.func @order(%context: !llvm.ptr, %out: memref<4xf32> {shardq.result}, %a: memref<4xf32>) {
  return
}

// -----

// expected-error @+1 {{has result 0 in an argument of type 'index', expected a buffer}}
func.func @scalar_in_place(%context: !llvm.ptr, %out: index {shardq.result}) {
  return
}
