// RUN: shardq-opt %s --split-input-file --shardq-select-transport --verify-diagnostics | FileCheck %s

// The forms of a merge that are made of other ops, and what is said of each
// choice.

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @ag_rs
// CHECK-SAME: %[[P:.*]]: tensor<?x8x16xbf16>, %[[L:.*]]: tensor<?x8xf32>
func.func @ag_rs(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>) {
  // CHECK: %[[LSES:.*]] = shardq.gather_rows %[[L]] over @ranks "dcp" {transport = #shardq.transport<direct, "ag_rs of a merge: asked for; ranks of a host write into each other's memory{{.*}}">} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  // CHECK: %[[SHARE:.*]]:2 = shardq.weigh_partial %[[P]] lses(%[[LSES]]) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xf32>, tensor<?x8xf32>)
  // CHECK: %[[OUT:.*]] = shardq.reduce_heads %[[SHARE]]#0 over @ranks "dcp" {transport = #shardq.transport<direct, "ag_rs of a merge: asked for; ranks of a host write into each other's memory{{.*}}">} : (tensor<?x8x16xf32>) -> tensor<?x2x16xbf16>
  // CHECK: %[[ME:.*]] = shardq.rank over @ranks "dcp"
  // CHECK: %[[FIRST:.*]] = arith.muli %[[ME]], %c2
  // CHECK: %[[OWN:.*]] = tensor.extract_slice %[[SHARE]]#1[0, %[[FIRST]]] [%{{.*}}, 2] [1, 1]
  // CHECK: return %[[OUT]], %[[OWN]]
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>, transport = #shardq.transport<ag_rs>}
      : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return %0, %1 : tensor<?x2x16xbf16>, tensor<?x2xf32>
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @ag_ar
// CHECK-SAME: %[[P:.*]]: tensor<5x8x16xf16>, %[[L:.*]]: tensor<5x8xf32>
func.func @ag_ar(%p: tensor<5x8x16xf16>, %l: tensor<5x8xf32>) -> (tensor<5x8x16xf16>, tensor<5x8xf32>) {
  // CHECK: %[[LSES:.*]] = shardq.gather_rows %[[L]] {{.*}} -> tensor<20x8xf32>
  // CHECK: %[[SHARE:.*]]:2 = shardq.weigh_partial %[[P]] lses(%[[LSES]]) over @ranks "dcp" : (tensor<5x8x16xf16>, tensor<20x8xf32>) -> (tensor<5x8x16xf32>, tensor<5x8xf32>)
  // CHECK: %[[OWN:.*]] = shardq.reduce_heads %[[SHARE]]#0 {{.*}} -> tensor<5x2x16xf16>
  // CHECK: %[[OUT:.*]] = shardq.gather_query(%[[OWN]]) over @ranks "dcp" {transport = #shardq.transport<direct, "ag_ar of a merge: the model's; ranks of a host write into each other's memory{{.*}}">} {{.*}} -> tensor<5x8x16xf16>
  // CHECK: return %[[OUT]], %[[SHARE]]#1
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {transport = #shardq.transport<ag_ar, "the model's">}
      : (tensor<5x8x16xf16>, tensor<5x8xf32>) -> (tensor<5x8x16xf16>, tensor<5x8xf32>)
  return %0, %1 : tensor<5x8x16xf16>, tensor<5x8xf32>
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @remarks(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %q: tensor<?x2x16xbf16>)
    -> (tensor<?x8x16xbf16>, tensor<?x2x16xbf16>, tensor<?x8x16xbf16>) {
  // expected-remark @+1 {{travels by direct: ranks of a host write into each other's memory}}
  %0 = shardq.gather_query(%q) over @ranks "dcp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  // expected-remark @+1 {{travels by direct: ranks of a host write into each other's memory}}
  %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  // expected-remark @+1 {{travels by direct: own heads are merged and then gathered, which moves half the bytes of ag_ar}}
  %2 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xbf16>
  return %0, %1, %2 : tensor<?x8x16xbf16>, tensor<?x2x16xbf16>, tensor<?x8x16xbf16>
}

// -----

// Three heads on four ranks that each keep all: room for a fourth, which nobody has.

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func.func @uneven(
// CHECK-SAME: %[[P:.*]]: tensor<?x3x16xbf16>, %[[L:.*]]: tensor<?x3xf32>, %[[S:.*]]: tensor<3xf32>
func.func @uneven(%p: tensor<?x3x16xbf16>, %l: tensor<?x3xf32>, %s: tensor<3xf32>) -> (tensor<?x3x16xbf16>, tensor<?x3xf32>) {
  // CHECK: %[[ROOM:.*]] = tensor.empty(%{{.*}}) : tensor<?x4x16xbf16>
  // CHECK: %[[FOUR:.*]] = tensor.insert_slice %[[P]] into %[[ROOM]][0, 0, 0] [%{{.*}}, 3, 16] [1, 1, 1]
  // CHECK: %[[EMPTY:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<?x4xf32>)
  // CHECK: %[[LSES:.*]] = tensor.insert_slice %[[L]] into %[[EMPTY]][0, 0] [%{{.*}}, 3] [1, 1]
  // CHECK: %[[SINKS:.*]] = tensor.insert_slice %[[S]] into %{{.*}}[0] [3] [1] : tensor<3xf32> into tensor<4xf32>
  // CHECK: %[[SINK:.*]] = tensor.extract_slice %[[SINKS]][%{{.*}}] [1] [1]
  // CHECK: %[[OWN:.*]]:2 = shardq.combine_lse %[[FOUR]] lse(%[[LSES]]) sink(%[[SINK]]) {{.*}} -> (tensor<?x1x16xbf16>, tensor<?x1xf32>)
  // CHECK: %[[ALL:.*]] = shardq.gather_query(%[[OWN]]#0) {{.*}} -> tensor<?x4x16xbf16>
  // CHECK: %[[OUT:.*]] = tensor.extract_slice %[[ALL]][0, 0, 0] [%{{.*}}, 3, 16] [1, 1, 1]
  // CHECK: %[[LSE:.*]] = tensor.extract_slice %{{.*}}[0, 0] [%{{.*}}, 3] [1, 1]
  // CHECK: return %[[OUT]], %[[LSE]]
  // expected-remark @+1 {{travels by direct: own heads are merged and then gathered}}
  %0, %1 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" : (tensor<?x3x16xbf16>, tensor<?x3xf32>, tensor<3xf32>) -> (tensor<?x3x16xbf16>, tensor<?x3xf32>)
  return %0, %1 : tensor<?x3x16xbf16>, tensor<?x3xf32>
}
