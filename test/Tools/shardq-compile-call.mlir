// A shared object, called with tensors that numpy owns.
//
// UNSUPPORTED: sanitizer
// RUN: shardq-compile %s -o %t.so
// RUN: %python -B %S/Inputs/call-alone.py %shardq_libs %t.so | FileCheck %s
// CHECK: all right
//
// The loader finds the runtime beside the shared object, and nowhere else by itself.
// RUN: rm -rf %t.beside && mkdir %t.beside && cp %t.so %t.beside/take.so
// RUN: not env -u LD_LIBRARY_PATH %python -c "import ctypes; ctypes.CDLL('%t.beside/take.so')" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ALONE
// RUN: cp -L %shardq_libs/libshardq_runtime.so.1 %t.beside
// RUN: env -u LD_LIBRARY_PATH %python -c "import ctypes; ctypes.CDLL('%t.beside/take.so').take"
// ALONE: libshardq_runtime.so.1: cannot open shared object file

func.func @take(%source: tensor<?x4xbf16>, %rows: tensor<?xi32>, %n: index) -> (tensor<?x4xbf16>, index) {
  %taken = shardq.take_rows %source[%rows] : (tensor<?x4xbf16>, tensor<?xi32>) -> tensor<?x4xbf16>
  return %taken, %n : tensor<?x4xbf16>, index
}

func.func @twice(%rows: tensor<6xi32>, %flag: i1, %half: bf16, %single: f32)
    -> (tensor<?xi32>, tensor<?xi32>, i1, bf16, f64) {
  %reverse = arith.constant dense<[5, 4, 3, 2, 1, 0]> : tensor<6xi32>
  %taken = shardq.take_rows %rows[%reverse] : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
  %open = tensor.cast %taken : tensor<6xi32> to tensor<?xi32>
  %wide = arith.extf %single : f32 to f64
  return %open, %open, %flag, %half, %wide : tensor<?xi32>, tensor<?xi32>, i1, bf16, f64
}

func.func @strided(%view: memref<?x8xf32, strided<[?, 1], offset: ?>>) -> memref<?x8xf32> {
  %zero = arith.constant 0 : index
  %rows = memref.dim %view, %zero : memref<?x8xf32, strided<[?, 1], offset: ?>>
  %copy = memref.alloc(%rows) : memref<?x8xf32>
  memref.copy %view, %copy : memref<?x8xf32, strided<[?, 1], offset: ?>> to memref<?x8xf32>
  return %copy : memref<?x8xf32>
}
