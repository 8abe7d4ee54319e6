// A form that is asked for, of merges along two axes: the first keeps its own heads, the second all. Each takes the form of
// its kind, or where it has none what `auto` chooses.
//
// RUN: shardq-opt %s --split-input-file --shardq-select-transport=transport=ag_rs --verify-diagnostics | FileCheck %s
// RUN: shardq-opt %s --split-input-file --shardq-select-transport="transport=ag_ar remarks=false" | FileCheck %s --check-prefix=AR

// CHECK-LABEL: func.func @joined
// CHECK: shardq.gather_rows {{.*}} over @ranks "tp" {transport = #shardq.transport<direct, "ag_rs of a merge: asked for; ranks of a host write into each other's memory{{.*}}">}
// CHECK: shardq.reduce_heads {{.*}} over @ranks "tp"
// CHECK: shardq.gather_rows {{.*}} over @ranks "pcp" {transport = #shardq.transport<direct, "ag_ar of a merge: ag_rs was asked for, but each rank keeps all heads, which ag_ar is for; ranks of a host write into each other's memory{{.*}}">}
// CHECK: shardq.reduce_heads {{.*}} over @ranks "pcp"
// CHECK: shardq.gather_query(%{{.*}}) over @ranks "pcp"
// AR-LABEL: func.func @joined
// AR: shardq.gather_rows {{.*}} over @ranks "tp" {transport = #shardq.transport<direct, "ag_rs of a merge: ag_ar was asked for, but each rank keeps its own heads, which ag_rs is for; ranks of a host write into each other's memory{{.*}}">}
// AR: shardq.reduce_heads {{.*}} over @ranks "pcp" {transport = #shardq.transport<direct, "ag_ar of a merge: asked for; ranks of a host write into each other's memory{{.*}}">}
shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @joined(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> tensor<?x2x16xbf16> {
  // expected-remark @+1 {{travels by ag_rs: asked for}}
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  // expected-remark @+1 {{travels by ag_ar: ag_rs was asked for, but each rank keeps all heads, which ag_ar is for}}
  %2 = shardq.combine_lse %0 lse(%1) over @ranks "pcp" : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> tensor<?x2x16xbf16>
  return %2 : tensor<?x2x16xbf16>
}

// -----

// CHECK-LABEL: func.func @sink
// CHECK: shardq.reduce_heads {{.*}} over @ranks "tp"
// CHECK: shardq.combine_lse {{.*}} sink({{.*}} over @ranks "pcp" {transport = #shardq.transport<direct, "ag_rs was asked for, but it has a sink
// AR-LABEL: func.func @sink
shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @sink(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %s: tensor<2xf32>, %keep: tensor<?x2x16xbf16>, %m: tensor<?x2xf32>)
    -> (tensor<?x2x16xbf16>, tensor<?x2x16xbf16>) {
  // expected-remark @+1 {{travels by ag_rs: asked for}}
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  // expected-remark @+1 {{travels by direct: ag_rs was asked for, but it has a sink, and weights of all heads would need the sinks of all}}
  %2 = shardq.combine_lse %0 lse(%1) sink(%s) over @ranks "pcp" : (tensor<?x2x16xbf16>, tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2x16xbf16>
  // expected-remark @+1 {{travels by ag_ar}}
  %3 = shardq.combine_lse %keep lse(%m) over @ranks "pcp" : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> tensor<?x2x16xbf16>
  return %2, %3 : tensor<?x2x16xbf16>, tensor<?x2x16xbf16>
}
