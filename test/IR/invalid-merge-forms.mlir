// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// transport
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{transport is ag_rs, which is a form of 'shardq.combine_lse', expected direct or nccl}}
  %0 = shardq.gather_query(%q) over @ranks "dcp" {transport = #shardq.transport<ag_rs>} : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{transport is ag_ar, which is a form of 'shardq.combine_lse', expected direct or nccl}}
  %0 = shardq.gather_rows %kv over @ranks "dcp" {transport = #shardq.transport<ag_ar>} : (tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{transport is ag_rs, which is a form of 'shardq.combine_lse', expected direct or nccl}}
  %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" {transport = #shardq.transport<ag_rs>} : (tensor<?x2x16xbf16>, tensor<?xi32>, tensor<9xi32>, index) -> tensor<?x16x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{transport is ag_rs, which is a form of 'shardq.combine_lse', expected direct or nccl}}
  %0 = shardq.reduce_heads %s over @ranks "dcp" {transport = #shardq.transport<ag_rs>} : (tensor<?x8x16xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  %h = shardq.gather_kv_start(%kv) blocks(%ids, %count) over @ranks "dcp" {block_size = 4 : i64, transport = #shardq.transport<ag_rs>}
      : (tensor<?x16xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-error @+1 {{transport is ag_rs, which is a form of 'shardq.combine_lse', expected direct or nccl}}
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{transport is ag_ar, but each rank keeps its own heads: expected ag_rs, direct or nccl}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {transport = #shardq.transport<ag_ar>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{transport is ag_rs, but each rank keeps all heads: expected ag_ar, direct or nccl}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {transport = #shardq.transport<ag_rs>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %x: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{transport is ag_rs, expected direct or nccl}}
  shardq.push gather_heads(%q) into(%x) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64, transport = #shardq.transport<ag_rs>}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s: memref<?x8x16xf32>, %l: memref<?x8x16xf32>, %x: memref<?x2x16xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has 3 sources, expected partial outputs, with or without their LSE}}
  shardq.push scatter_heads(%s, %l, %l) into(%x) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xf32>, memref<?x8x16xf32>, memref<?x8x16xf32>), memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// weigh_partial
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.weigh_partial %p lses(%l) over @ranks "dp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{has 3 results and 'outs', expects 1 or 2}}
  %0:3 = shardq.weigh_partial %p lses(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'lses' has 13 rows, expected 3 of each of 4 ranks}}
  %0 = shardq.weigh_partial %few lses(%some) over @ranks "dcp" : (tensor<3x8x16xbf16>, tensor<13x8xf32>) -> tensor<3x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'lses' has 8 heads, expected 2 as 'partial'}}
  %0 = shardq.weigh_partial %q lses(%l) over @ranks "dcp" : (tensor<?x2x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'share' has 4 rows, expected 3 as 'partial'}}
  %0 = shardq.weigh_partial %few lses(%l) over @ranks "dcp" : (tensor<3x8x16xbf16>, tensor<?x8xf32>) -> tensor<4x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'share' has 2 heads, expected 8 as 'partial'}}
  %0 = shardq.weigh_partial %p lses(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'share' has 12 values a head, expected 16 as 'partial'}}
  %0 = shardq.weigh_partial %p lses(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x12xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'share' has element type 'bf16', expected f32}}
  %0 = shardq.weigh_partial %p lses(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'share' has rank 2, expected 3}}
  %0 = shardq.weigh_partial %p lses(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'merged' has 4 rows, expected 3 as 'share'}}
  %0:2 = shardq.weigh_partial %few lses(%l) over @ranks "dcp" : (tensor<3x8x16xbf16>, tensor<?x8xf32>) -> (tensor<3x8x16xf32>, tensor<4x8xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'merged' has 2 heads, expected 8 as 'share'}}
  %0:2 = shardq.weigh_partial %p lses(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xf32>, tensor<?x2xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'merged' has element type 'bf16', expected 'f32' as 'lses'}}
  %0:2 = shardq.weigh_partial %p lses(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xf32>, tensor<?x8xbf16>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'share' is 'tensor<?x?x16xf32>', expected static, positive heads (dimension 1)}}
  %0 = shardq.weigh_partial %p lses(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x?x16xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// reduce_heads
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.reduce_heads %s over @ranks "dp" : (tensor<?x8x16xf32>) -> tensor<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{has 2 results and 'outs', expects 1}}
  %0:2 = shardq.reduce_heads %s over @ranks "dcp" : (tensor<?x8x16xf32>) -> (tensor<?x2x16xf32>, tensor<?x2x16xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'result' has 4 rows, expected 3 as 'source'}}
  %0 = shardq.reduce_heads %few over @ranks "dcp" : (tensor<3x8x16xbf16>) -> tensor<4x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'result' has 12 values a head, expected 16 as 'source'}}
  %0 = shardq.reduce_heads %s over @ranks "dcp" : (tensor<?x8x16xf32>) -> tensor<?x2x12xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'source' has 8 heads, expected 16: 4 on each of 4 ranks}}
  %0 = shardq.reduce_heads %s over @ranks "dcp" : (tensor<?x8x16xf32>) -> tensor<?x4x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %few: tensor<3x8x16xbf16>, %q: tensor<?x2x16xbf16>, %l: tensor<?x8xf32>, %some: tensor<13x8xf32>,
             %s: tensor<?x8x16xf32>, %kv: tensor<?x16xbf16>, %ids: tensor<?xi32>, %count: tensor<1xi32>, %o: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'result' is 'tensor<?x?x16xf32>', expected static, positive heads (dimension 1)}}
  %0 = shardq.reduce_heads %s over @ranks "dcp" : (tensor<?x8x16xf32>) -> tensor<?x?x16xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// sum_partials
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x16xf32>, %o: memref<?x2x16xbf16>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.sum_partials %i into(%o) over @ranks "dp" : memref<?x2x16xf32>, memref<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<13x2x16xf32>, %o: memref<3x2x16xbf16>) {
  // expected-error @+1 {{'inbox' has 13 rows, expected 3 of each of 4 ranks}}
  shardq.sum_partials %i into(%o) over @ranks "dcp" : memref<13x2x16xf32>, memref<3x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x4x16xf32>, %o: memref<?x2x16xbf16>) {
  // expected-error @+1 {{'inbox' has 4 heads, expected 2 as 'out'}}
  shardq.sum_partials %i into(%o) over @ranks "dcp" : memref<?x4x16xf32>, memref<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x20xf32>, %o: memref<?x2x16xbf16>) {
  // expected-error @+1 {{'inbox' has 20 values a head, expected 16 as 'out'}}
  shardq.sum_partials %i into(%o) over @ranks "dcp" : memref<?x2x20xf32>, memref<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x16xf32>, %o: memref<?x?x16xbf16>) {
  // expected-error @+1 {{'out' is 'memref<?x?x16xbf16>', expected static, positive heads (dimension 1)}}
  shardq.sum_partials %i into(%o) over @ranks "dcp" : memref<?x2x16xf32>, memref<?x?x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-error @+1 {{channel "q" has transport direct, expected nccl, or none}}
shardq.plan @plan over @ranks {channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1, transport = <direct>>],
  exchanges = [], hash = 7 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
