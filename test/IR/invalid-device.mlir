// RUN: shardq-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: memref<?x4xf32>, %count: memref<2xi64>) {
  // expected-error @+1 {{'count' is 'memref<2xi64>' beside 'value' of 'memref<?x4xf32>', expected memref<1xi64> and a buffer}}
  shardq.tap "x" %x count(%count : memref<2xi64>) : memref<?x4xf32>
  return
}

// -----

func.func @f(%x: memref<?x4xf32>, %count: memref<?xi64>) {
  // expected-error @+1 {{'count' is 'memref<?xi64>' beside 'value' of 'memref<?x4xf32>', expected memref<1xi64> and a buffer}}
  shardq.tap "x" %x count(%count : memref<?xi64>) : memref<?x4xf32>
  return
}

// -----

func.func @f(%x: tensor<?x4xf32>, %count: memref<1xi64>) {
  // expected-error @+1 {{'count' is 'memref<1xi64>' beside 'value' of 'tensor<?x4xf32>', expected memref<1xi64> and a buffer}}
  shardq.tap "x" %x count(%count : memref<1xi64>) : tensor<?x4xf32>
  return
}

// -----

func.func @f(%x: memref<?x4xf32>, %count: memref<1xi32>) {
  // expected-error @+1 {{operand #1 must be 1D memref of 64-bit signless integer values, but got 'memref<1xi32>'}}
  shardq.tap "x" %x count(%count : memref<1xi32>) : memref<?x4xf32>
  return
}

// -----

func.func @f() -> i64 {
  // expected-error @+1 {{'shardq.device_context' op result #0 must be index, but got 'i64'}}
  %0 = "shardq.device_context"() : () -> i64
  return %0 : i64
}
