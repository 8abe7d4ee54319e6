// How merges travel that scatter tokens or have sinks, and why not otherwise.
//
// RUN: shardq-opt %s --split-input-file --shardq-select-transport --verify-diagnostics | FileCheck %s
// RUN: not shardq-opt %s --split-input-file --shardq-select-transport="transport=ag_rs remarks=false" 2>&1 | FileCheck %s --check-prefix=SHARES
// RUN: not shardq-opt %s --split-input-file --shardq-select-transport="transport=ag_ar remarks=false" 2>&1 | FileCheck %s --check-prefix=SHARES

// SHARES: error: 'shardq.combine_lse' op cannot travel by {{ag_rs|ag_ar}}: it scatters tokens, and shares are summed by heads
// SHARES: error: 'shardq.combine_lse' op cannot travel by {{ag_rs|ag_ar}}: it has a sink, and weights of all heads would need the sinks of all
// SHARES: error: 'shardq.combine_lse' op cannot travel by {{ag_rs|ag_ar}}: it has a sink, and weights of all heads would need the sinks of all

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @tokens
// CHECK: shardq.combine_lse {{.*}} {scatter_tokens, transport = #shardq.transport<direct,
func.func @tokens(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> tensor<?x8x16xbf16> {
  // expected-remark @+1 {{travels by direct: ranks of a host write into each other's memory}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @sink
// CHECK: shardq.combine_lse {{.*}} sink(%{{.*}}) over @ranks "dcp" {transport = #shardq.transport<direct,
func.func @sink(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %s: tensor<2xf32>) -> tensor<?x2x16xbf16> {
  // expected-remark @+1 {{travels by direct: ranks of a host write into each other's memory}}
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<2xf32>) -> tensor<?x2x16xbf16>
  return %0 : tensor<?x2x16xbf16>
}

// -----

// Own heads have own sinks, of all that there are.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @all_heads
// CHECK-SAME: %[[SINK:[a-z0-9]+]]: tensor<8xf32>
// CHECK: %[[ME:.*]] = shardq.rank over @ranks "dcp"
// CHECK: %[[FIRST:.*]] = arith.muli %[[ME]], %c2
// CHECK: %[[OWN:.*]] = tensor.extract_slice %[[SINK]][%[[FIRST]]] [2] [1] : tensor<8xf32> to tensor<2xf32>
// CHECK: shardq.combine_lse {{.*}} sink(%[[OWN]]) {{.*}} -> tensor<?x2x16xbf16>
// CHECK: shardq.gather_query
func.func @all_heads(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %s: tensor<8xf32>) -> tensor<?x8x16xbf16> {
  // expected-remark @+1 {{travels by direct: own heads are merged and then gathered, which moves half the bytes of ag_ar}}
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}
