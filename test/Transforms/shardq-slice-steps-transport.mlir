// Merges whose form has been chosen run in slices like others, those with a sink of this rank's heads too: where a slice of the
// sinks begins is no matter of rows.
//
// RUN: shardq-opt %s --split-input-file --shardq-select-transport=remarks=false --shardq-slice-steps=max-tokens=8 --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func @all_heads
// CHECK: %[[SINK:.*]] = tensor.extract_slice %{{.*}}[%{{.*}}] [2] [1]
// CHECK: %[[OWN:.*]] = scf.if
// CHECK: scf.for
// CHECK: shardq.combine_lse {{.*}} sink(%[[SINK]])
// CHECK: scf.if
// CHECK: scf.for
// CHECK: shardq.gather_query
shardq.mesh @ranks ["tp" = 4]
func.func @all_heads(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %s: tensor<8xf32>) -> tensor<?x8x16xbf16> {
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

// -----

// Along two axes: the gathers of a first merge's LSEs do not differ in rows either.
// CHECK-LABEL: func @two_axes
// CHECK-COUNT-3: scf.for
shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @two_axes(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %s: tensor<2xf32>) -> tensor<?x2x16xbf16> {
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "tp" {transport = #shardq.transport<ag_rs>}
      : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %2 = shardq.combine_lse %0 lse(%1) sink(%s) over @ranks "pcp" : (tensor<?x2x16xbf16>, tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2x16xbf16>
  return %2 : tensor<?x2x16xbf16>
}
