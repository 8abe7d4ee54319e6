// Rows that are scattered have no slices of their own; sinks belong to all rows.
//
// RUN: shardq-opt %s --shardq-slice-steps=max-tokens=8 --verify-diagnostics | FileCheck %s

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @tokens
// CHECK-NOT: scf.for
func.func @tokens(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> tensor<?x8x16xbf16> {
  // expected-remark @+1 {{has rows that are scattered, of which slices would belong to some ranks only: more than 8 rows are an error at run time}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

// CHECK-LABEL: func @few_tokens
// CHECK-NOT: scf.for
func.func @few_tokens(%p: tensor<8x8x16xbf16>, %l: tensor<8x8xf32>) -> tensor<2x8x16xbf16> {
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<8x8x16xbf16>, tensor<8x8xf32>) -> tensor<2x8x16xbf16>
  return %0 : tensor<2x8x16xbf16>
}

// CHECK-LABEL: func @sink
// CHECK-SAME: %[[SINK:[a-z0-9]+]]: tensor<2xf32>
// CHECK: scf.for
// CHECK: shardq.combine_lse {{.*}} sink(%[[SINK]])
// CHECK: scf.yield
// CHECK: shardq.combine_lse {{.*}} sink(%[[SINK]])
func.func @sink(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %s: tensor<2xf32>) -> tensor<?x2x16xbf16> {
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<2xf32>) -> tensor<?x2x16xbf16>
  return %0 : tensor<?x2x16xbf16>
}
