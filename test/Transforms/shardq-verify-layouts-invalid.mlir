// RUN: shardq-opt %s --split-input-file --shardq-verify-layouts --verify-diagnostics
// The pipelines begin with it.
// RUN: not shardq-opt %s --split-input-file --shardq-to-cpu 2>&1 | FileCheck %s
// RUN: not shardq-opt %s --split-input-file --shardq-to-nvvm 2>&1 | FileCheck %s
// CHECK: error: argument #1 of @more, {{.*}} of 4 dimensions, expected 3

// expected-error @+1 {{argument #1 of @more, of type 'tensor<?x2x4xf32>', has the layout affine_map<(d0, d1, d2, d3) -> (d0 * 4 + d3)> of 4 dimensions, expected 3}}
func.func @more(%a: tensor<4xf32>, %b: tensor<?x2x4xf32> {bufferization.buffer_layout = affine_map<(a, b, c, d) -> (a * 4 + d)>}) {
  return
}

// -----

// expected-error @+1 {{of 1 dimensions, expected 3}}
func.func @fewer(%b: tensor<?x2x4xf32> {bufferization.buffer_layout = affine_map<(a) -> (a * 4)>}) {
  return
}

// -----

// expected-error @+1 {{has the layout strided<[?, ?]> of 2 dimensions, expected 3}}
func.func @strides(%b: tensor<?x2x4xf32> {bufferization.buffer_layout = strided<[?, ?]>}) {
  return
}

// -----

// expected-error @+1 {{expected one that strides can say}}
func.func @folded(%b: tensor<?x2x4xf32> {bufferization.buffer_layout = affine_map<(a, b, c) -> (a floordiv 2, b, c)>}) {
  return
}

// -----

// expected-error @+1 {{expected one that strides can say}}
func.func @modulo(%b: tensor<?x2x4xf32> {bufferization.buffer_layout = affine_map<(a, b, c) -> ((a mod 2) * 8 + b * 4 + c)>}) {
  return
}

// -----

func.func @fine(%b: tensor<?x2x4xf32> {bufferization.buffer_layout = affine_map<(a, b, c)[s] -> (a * s + b * 4 + c)>},
                %c: tensor<?x4xf32> {bufferization.buffer_layout = strided<[?, 1], offset: ?>}) {
  return
}

// -----

// expected-error @+1 {{argument #0 of @number, of type 'index', has the layout strided<[1]>, expected a ranked tensor to have one}}
func.func @number(%n: index {bufferization.buffer_layout = strided<[1]>}) {
  return
}

// -----

// expected-error @+1 {{of type 'tensor<*xf32>', has the layout strided<[1]>, expected a ranked tensor to have one}}
func.func @unranked(%a: tensor<*xf32> {bufferization.buffer_layout = strided<[1]>}) {
  return
}
