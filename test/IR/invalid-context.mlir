// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// local_lengths
//===----------------------------------------------------------------------===//

func.func @f(%x: tensor<?xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.local_lengths %x over @ranks "dcp" {interleave = 4 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%x: tensor<?xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.local_lengths %x over @ranks "dp" {interleave = 4 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%x: tensor<?xi32>) {
  // expected-error @+1 {{interleave is 0, expected 1 to 2147483647}}
  %0 = shardq.local_lengths %x over @ranks "dcp" {interleave = 0 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%x: tensor<?xi32>) {
  // expected-error @+1 {{interleave is 4611686018427387904, expected 1 to 2147483647}}
  %0 = shardq.local_lengths %x over @ranks "dcp" {interleave = 4611686018427387904 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%x: tensor<?xi32>) {
  // expected-error @+1 {{interleave is -64, expected 1 to 2147483647}}
  %0 = shardq.local_lengths %x over @ranks "dcp" {interleave = -64 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%x: tensor<3xi32>) {
  // expected-error @+1 {{'result' has 4 entries, expected 3 as 'lengths'}}
  %0 = shardq.local_lengths %x over @ranks "dcp" {interleave = 4 : i64} : (tensor<3xi32>) -> tensor<4xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%y: tensor<?xi64>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = shardq.local_lengths %y over @ranks "dcp" {interleave = 4 : i64} : (tensor<?xi64>) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%x: memref<?xi32>) {
  // expected-error @+1 {{operand #0 is 'memref<?xi32>', expected a tensor: the op has results}}
  %0 = shardq.local_lengths %x over @ranks "dcp" {interleave = 4 : i64} : (memref<?xi32>) -> tensor<?xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// draft_lengths
//===----------------------------------------------------------------------===//

func.func @f(%x: tensor<3xi32>, %step: index) {
  // expected-error @+1 {{'result' has 4 entries, expected 3 as 'lengths'}}
  %0 = shardq.draft_lengths %x step(%step) : (tensor<3xi32>, index) -> tensor<4xi32>
  return
}

// -----

func.func @f(%x: tensor<?xi64>, %step: index) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = shardq.draft_lengths %x step(%step) : (tensor<?xi64>, index) -> tensor<?xi32>
  return
}

// -----

func.func @f(%x: memref<?xi32>, %step: index) {
  // expected-error @+1 {{operand #0 is 'memref<?xi32>', expected a tensor: the op has results}}
  %0 = shardq.draft_lengths %x step(%step) : (memref<?xi32>, index) -> tensor<?xi32>
  return
}

// -----

func.func @f(%x: memref<?xi32>, %step: index) {
  // expected-error @+1 {{has 0 results and 'outs', expects 1}}
  shardq.draft_lengths %x step(%step) : (memref<?xi32>, index) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// filter_indices
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{@other does not name a shardq.mesh}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @other "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{interleave is 0, expected 1 to 2147483647}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 0 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

// A run of tokens must not straddle two blocks.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{block_size is 64 and interleave 48, expected one to be a multiple of the other}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 48 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{block_size is 64 and interleave 96, expected one to be a multiple of the other}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 96 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{block_size is -4, expected a positive number of rows}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = -4 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{block_stride_rows is 63, expected at least block_size, 64}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, block_stride_rows = 63 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'table', 'rows' and 'block_size' stand together, and 'block_stride_rows' only with them}}
  %0 = shardq.filter_indices %i table(%t) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'table', 'rows' and 'block_size' stand together, and 'block_stride_rows' only with them}}
  %0 = shardq.filter_indices %i rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'table', 'rows' and 'block_size' stand together, and 'block_stride_rows' only with them}}
  %0 = shardq.filter_indices %i over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'table', 'rows' and 'block_size' stand together, and 'block_stride_rows' only with them}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'table', 'rows' and 'block_size' stand together, and 'block_stride_rows' only with them}}
  %0 = shardq.filter_indices %i over @ranks "dcp" {block_stride_rows = 70 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<5x8xi32>, %t: tensor<?x?xi32>, %r: tensor<4xi32>) {
  // expected-error @+1 {{'req' has 4 rows, expected 5 as 'indices'}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<5x8xi32>, tensor<?x?xi32>, tensor<4xi32>) -> tensor<5x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<5x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has 6 rows, expected 5 as 'indices'}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<5x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<6x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has 9 columns, expected 8 as 'indices'}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x9xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has rank 1, expected 2}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{has 3 results and 'outs', expects 1 or 2}}
  %0:3 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has element type 'i64', expected i32}}
  %0, %1 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?xi64>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has rank 2, expected 1}}
  %0, %1 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?x8xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<5x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has 4 rows, expected 5 as 'indices'}}
  %0, %1 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<5x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<5x8xi32>, tensor<4xi32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// gather_query
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.gather_query(%a, %b) over @ranks "dp" : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x8x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>) {
  // expected-error @+1 {{@other does not name a shardq.mesh}}
  %0 = shardq.gather_query(%a, %b) over @other "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x8x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>) {
  // expected-error @+1 {{has 0 sources, expected 1 or 2}}
  %0 = shardq.gather_query() over @ranks "dcp" : () -> tensor<?x8x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>) {
  // expected-error @+1 {{has 3 sources, expected 1 or 2}}
  %0 = shardq.gather_query(%a, %a, %b) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x8x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<3x2x8xbf16>, %b: tensor<4x2x4xbf16>) {
  // expected-error @+1 {{'source' has 4 rows, expected 3 as 'source'}}
  %0 = shardq.gather_query(%a, %b) over @ranks "dcp" : (tensor<3x2x8xbf16>, tensor<4x2x4xbf16>) -> tensor<?x8x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x3x4xbf16>) {
  // expected-error @+1 {{'source' has 3 heads, expected 2 as 'source'}}
  %0 = shardq.gather_query(%a, %b) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x3x4xbf16>) -> tensor<?x8x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<3x2x8xbf16>) {
  // expected-error @+1 {{'result' has 4 rows, expected 3 as 'source'}}
  %0 = shardq.gather_query(%a) over @ranks "dcp" : (tensor<3x2x8xbf16>) -> tensor<4x8x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xf16>) {
  // expected-error @+1 {{'source' has element type 'f16', expected 'bf16' as 'result'}}
  %0 = shardq.gather_query(%a, %b) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x4xf16>) -> tensor<?x8x12xbf16>
  return
}

// -----

// The group has four ranks, the mesh eight.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>) {
  // expected-error @+1 {{'result' has 16 heads, expected 8: 2 on each of 4 ranks}}
  %0 = shardq.gather_query(%a, %b) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x16x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>) {
  // expected-error @+1 {{'result' has 8 values a head, expected 12 as the sources together}}
  %0 = shardq.gather_query(%a, %b) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x8x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x?x8xbf16>) {
  // expected-error @+1 {{expected static, positive heads (dimension 1)}}
  %0 = shardq.gather_query(%a) over @ranks "dcp" : (tensor<?x?x8xbf16>) -> tensor<?x8x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x?xbf16>) {
  // expected-error @+1 {{expected static, positive head dimension (dimension 2)}}
  %0 = shardq.gather_query(%a) over @ranks "dcp" : (tensor<?x2x?xbf16>) -> tensor<?x8x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>) {
  // expected-error @+1 {{expected static, positive heads (dimension 1)}}
  %0 = shardq.gather_query(%a, %b) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x?x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>) {
  // expected-error @+1 {{expected static, positive head dimension (dimension 2)}}
  %0 = shardq.gather_query(%a, %b) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x8x?xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: memref<?x2x8xbf16>, %o: memref<?x8x8xbf16>) {
  // expected-error @+1 {{'outs' is 'memref<?x8x8xbf16>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.gather_query(%a) over @ranks "dcp" outs(%o) : (memref<?x2x8xbf16>, memref<?x8x8xbf16>) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// combine_lse
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{@other does not name a shardq.mesh}}
  %0 = shardq.combine_lse %p lse(%l) over @other "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{has 3 results and 'outs', expects 1 or 2}}
  %0:3 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>, tensor<?x2xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<3x8x16xbf16>, %l: tensor<4x8xf32>) {
  // expected-error @+1 {{'partial_lse' has 4 rows, expected 3 as 'partial'}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<3x8x16xbf16>, tensor<4x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x9xf32>) {
  // expected-error @+1 {{'partial_lse' has 9 heads, expected 8 as 'partial'}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x9xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<3x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'out' has 4 rows, expected 3 as 'partial'}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<3x8x16xbf16>, tensor<?x8xf32>) -> tensor<4x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'partial' has 8 heads, expected 16: 4 on each of 4 ranks}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x4x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'out' has 12 values a head, expected 16 as 'partial'}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'out' has element type 'f32', expected 'bf16' as 'partial'}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'out' has rank 2, expected 3}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'merged' has rank 3, expected 2}}
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2x16xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'merged' has 3 heads, expected 2 as 'out'}}
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x3xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'merged' has 5 rows, expected 4 as 'out'}}
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<4x2x16xbf16>, tensor<5x2xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'merged' has element type 'bf16', expected 'f32' as 'partial_lse'}}
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xbf16>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x?x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{expected static, positive heads (dimension 1)}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x?x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x?xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{expected static, positive head dimension (dimension 2)}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x?xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{expected static, positive heads (dimension 1)}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x?x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{expected static, positive head dimension (dimension 2)}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x?xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) {
  // expected-note @+1 {{it is computed here}}
  %p, %l = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32, lse = #shardq.lse<base = two>}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  // expected-error @+1 {{merges LSEs of base e, but 'partial_lse' has base two}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) {
  // expected-note @+1 {{it is computed here}}
  %p, %l = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  // expected-error @+1 {{merges LSEs of base two, but 'partial_lse' has base e}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

//===----------------------------------------------------------------------===//
// merge_lse
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x24xbf16>, %o: memref<?x2x16xbf16>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dp" : memref<?x2x24xbf16>, memref<?x2x16xbf16>, memref<?x2xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x20xbf16>, %o: memref<?x2x16xbf16>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{'inbox' is 'memref<?x2x20xbf16>', expected 24 elements a head: 16 values and 16 bytes for the LSE}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x2x20xbf16>, memref<?x2x16xbf16>, memref<?x2xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x24xf32>, %o: memref<?x2x16xf32>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{'inbox' is 'memref<?x2x24xf32>', expected 20 elements a head: 16 values and 16 bytes for the LSE}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x2x24xf32>, memref<?x2x16xf32>, memref<?x2xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x3x24xbf16>, %o: memref<?x2x16xbf16>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{'inbox' has 3 heads, expected 2 as 'out'}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x3x24xbf16>, memref<?x2x16xbf16>, memref<?x2xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x24xf16>, %o: memref<?x2x16xbf16>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{'inbox' has element type 'f16', expected 'bf16' as 'out'}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x2x24xf16>, memref<?x2x16xbf16>, memref<?x2xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x24xbf16>, %o: memref<?x2x16xbf16>, %m: memref<?x3xf32>) {
  // expected-error @+1 {{'merged' has 3 heads, expected 2 as 'out'}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x2x24xbf16>, memref<?x2x16xbf16>, memref<?x3xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x24xbf16>, %o: memref<5x2x16xbf16>, %m: memref<4x2xf32>) {
  // expected-error @+1 {{'merged' has 4 rows, expected 5 as 'out'}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x2x24xbf16>, memref<5x2x16xbf16>, memref<4x2xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<12x2x24xbf16>, %o: memref<5x2x16xbf16>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{'inbox' has 12 rows, expected 5 of each of 4 ranks}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<12x2x24xbf16>, memref<5x2x16xbf16>, memref<?x2xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x24xbf16>, %o: memref<?x?x16xbf16>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{expected static, positive heads (dimension 1)}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x2x24xbf16>, memref<?x?x16xbf16>, memref<?x2xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x24xbf16>, %o: memref<?x2x?xbf16>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{expected static, positive head dimension (dimension 2)}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x2x24xbf16>, memref<?x2x?xbf16>, memref<?x2xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// push, signal and wait of gather_heads and scatter_heads
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.push gather_heads(%s) into(%x) over @ranks "dp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x8x8xbf16>) {
  // expected-error @+1 {{'inbox' is 'memref<?x8x8xbf16>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.push gather_heads(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?x8x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x6x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has 6 heads, expected 8: 2 on each of 4 ranks}}
  shardq.push gather_heads(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?x6x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x8x9xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has 9 values a head, expected 8 as the sources together}}
  shardq.push gather_heads(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?x8x9xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x8x8xbf16, #shardq.symmetric<@ranks>>, %i: memref<?xi32>, %o: memref<5xi32>, %d: index) {
  // expected-error @+1 {{is gather_heads, expected no 'ids', 'offsets' or 'decodes'}}
  shardq.push gather_heads(%s) by(%i, %o) decodes(%d) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?xi32>, memref<5xi32>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{is heads_to_tokens, expected 'ids', 'offsets' and 'decodes'}}
  shardq.push heads_to_tokens(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %x: memref<?x2x24xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{expected 16 elements a head}}
  shardq.push scatter_heads(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>), memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %x: memref<?x2x20xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{expected 24 elements a head: 16 values and 16 bytes for the LSE}}
  shardq.push scatter_heads(%s, %l) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>, memref<?x8xf32>), memref<?x2x20xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %x: memref<?x4x24xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'partial' has 8 heads, expected 16: 4 on each of 4 ranks}}
  shardq.push scatter_heads(%s, %l) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>, memref<?x8xf32>), memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %x: memref<?x2x24xf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has element type 'f16', expected 'bf16' as 'partial'}}
  shardq.push scatter_heads(%s, %l) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>, memref<?x8xf32>), memref<?x2x24xf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x7xf32>, %x: memref<?x2x24xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'partial_lse' has 7 heads, expected 8 as 'partial'}}
  shardq.push scatter_heads(%s, %l) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>, memref<?x7xf32>), memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xi8>, %x: memref<?x2x24xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{scatters partial outputs of element type 'i8', expected bf16, f16 or f32}}
  shardq.push scatter_heads(%s, %l) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>, memref<?x8xi8>), memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index) {
  // expected-error @+1 {{is gather_heads, expected 'rows' and no 'by' offsets}}
  shardq.signal gather_heads over @ranks "dcp" channel 0 exchange 0
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index, %o: memref<5xi32>) {
  // expected-error @+1 {{is scatter_heads, expected 'rows' and no 'by' offsets}}
  shardq.signal scatter_heads by(%o) rows(%n) over @ranks "dcp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index) {
  // expected-error @+1 {{is heads_to_tokens, expected 'by' offsets and no 'rows'}}
  shardq.signal heads_to_tokens rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.signal gather_heads rows(%n) over @ranks "dp" channel 0 exchange 0
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index) {
  // expected-error @+1 {{channel is -1, expected 0 or more}}
  shardq.signal gather_heads rows(%n) over @ranks "dcp" channel -1 exchange 0
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index) {
  // expected-error @+1 {{is gather_heads, expected 'rows' and no 'by' offsets}}
  shardq.wait gather_heads over @ranks "dcp" channel 0 exchange 0
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index, %o: memref<5xi32>) {
  // expected-error @+1 {{is scatter_heads, expected 'rows' and no 'by' offsets}}
  shardq.wait scatter_heads by(%o) rows(%n) over @ranks "dcp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index) {
  // expected-error @+1 {{is heads_to_tokens, expected 'by' offsets and no 'rows'}}
  shardq.wait heads_to_tokens rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.wait gather_heads rows(%n) over @ranks "dp" channel 0 exchange 0
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index) {
  // expected-error @+1 {{channel is -1, expected 0 or more}}
  shardq.wait gather_heads rows(%n) over @ranks "dcp" channel -1 exchange 0
  return
}

// -----

shardq.mesh @ranks ["tp" = 8]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x16x8xbf16, #shardq.symmetric<@ranks>>) {
  shardq.push gather_heads(%s) into(%x) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      // expected-error @+1 {{expected the type of the inbox behind those of the sources, or of blocks and inbox, or of ids, offsets and inbox}}
      : (memref<?x2x8xbf16>), memref<?xi32>, memref<?xi32>, memref<?xi32>, memref<?x16x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// exchange and sparse_mla
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x2x8xf32>, %i: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{direction is gather_heads, expected heads_to_tokens or tokens_to_heads}}
  %0 = shardq.exchange gather_heads(%q) by(%i, %o) decodes(%d) over @ranks "dcp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["dp" = 2, "tp" = 4, "dcp" = 2 in "tp", "sub" = 2 in "dp"]
func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "pcp"}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%s)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["pcp"]>}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> tensor<?x8x16xbf16>
  return
}

// -----

// Whose heads are other ranks than whose keys.
shardq.mesh @ranks ["dp" = 2, "tp" = 4, "dcp" = 2 in "tp", "sub" = 2 in "dp"]
func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) {
  // expected-error @+1 {{has KV sharded over axis "sub", expected one of the axes of heads, a sub-axis of one, or an axis that joins one with others}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%s)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["sub"]>}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> tensor<?x8x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["dp" = 2, "tp" = 4, "dcp" = 2 in "tp", "sub" = 2 in "dp"]
func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) {
  // expected-error @+1 {{has KV sharded over axis "dp", expected one of the axes of tokens, a sub-axis of one, or an axis that joins one with others}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%s)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"], kv = interleave<4> ["dcp", "dp"]>}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> tensor<?x8x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%i: tensor<5x0xi32>) {
  // expected-error @+1 {{'indices' is 'tensor<5x0xi32>', expected a column or more}}
  %0 = shardq.filter_indices %i over @ranks "dcp" {interleave = 4 : i64} : (tensor<5x0xi32>) -> tensor<5x0xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{block_stride_rows is 9223372036854775807, expected at most 4294967296}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp"
      {block_size = 64 : i64, block_stride_rows = 9223372036854775807 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) {
  // expected-note @+1 {{it is computed here}}
  %p, %l = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32, lse = #shardq.lse<base = two>}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  %cast = tensor.cast %l : tensor<?x8xf32> to tensor<3x8xf32>
  %part = tensor.cast %p : tensor<?x8x16xbf16> to tensor<3x8x16xbf16>
  // expected-error @+1 {{merges LSEs of base e, but 'partial_lse' has base two}}
  %0 = shardq.combine_lse %part lse(%cast) over @ranks "dcp" : (tensor<3x8x16xbf16>, tensor<3x8xf32>) -> tensor<3x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>) {
  // expected-note @+1 {{it is computed here}}
  %p, %l = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32, lse = #shardq.lse<base = two>}
      : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  %all = shardq.gather_rows %l over @ranks "dcp" : (tensor<?x8xf32>) -> tensor<?x8xf32>
  // expected-error @+1 {{merges LSEs of base e, but 'lses' has base two}}
  %0 = shardq.weigh_partial %p lses(%all) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<2147483648x16xbf16>, %s: tensor<?x4xi32>) {
  // expected-error @+1 {{'slots' has element type i32, expected i64 for the 2147483648 rows of 'kv'}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32}
      : (tensor<?x8x16xbf16>, tensor<2147483648x16xbf16>, tensor<?x4xi32>) -> tensor<?x8x16xbf16>
  return
}

// -----

func.func @f(%rows: tensor<?x16xbf16>, %kv: tensor<2147483648x16xbf16>, %s: tensor<?xi32>) -> tensor<2147483648x16xbf16> {
  // expected-error @+1 {{'slots' has element type i32, expected i64 for the 2147483648 rows of 'cache'}}
  %0 = shardq.write_rows %rows at(%s) into(%kv)
      : (tensor<?x16xbf16>, tensor<?xi32>, tensor<2147483648x16xbf16>) -> tensor<2147483648x16xbf16>
  return %0 : tensor<2147483648x16xbf16>
}

// -----

func.func @f(%i: memref<?x2x24xbf16>, %o: memref<?x2x16xbf16>, %m: memref<?x2xf32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  shardq.merge_lse %i into(%o, %m) over @ranks "dcp" : memref<?x2x24xbf16>, memref<?x2x16xbf16>, memref<?x2xf32>
  return
}

// -----

func.func @f(%p: tensor<?x8x16xbf16>, %all: tensor<?x8xf32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.weigh_partial %p lses(%all) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

func.func @f(%s: tensor<?x8x16xf32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.reduce_heads %s over @ranks "dcp" : (tensor<?x8x16xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

// What one merge gives is merged again.
shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-note @+1 {{it is computed here}}
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "pcp" {lse = #shardq.lse<base = two>}
      : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x4x16xbf16>, tensor<?x4xf32>)
  // expected-error @+1 {{merges LSEs of base e, but 'partial_lse' has base two}}
  %2 = shardq.combine_lse %0 lse(%1) over @ranks "tp" : (tensor<?x4x16xbf16>, tensor<?x4xf32>) -> tensor<?x1x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %map: tensor<?xi32>) {
  // expected-note @+1 {{it is computed here}}
  %0, %1 = shardq.weigh_partial %p lses(%l) over @ranks "pcp"
      : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xf32>, tensor<?x8xf32>)
  %2 = shardq.take_rows %1[%map] : (tensor<?x8xf32>, tensor<?xi32>) -> tensor<?x8xf32>
  // expected-error @+1 {{merges LSEs of base two, but 'partial_lse' has base e}}
  %3 = shardq.combine_lse %p lse(%2) over @ranks "tp" {lse = #shardq.lse<base = two>}
      : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

// One branch is enough.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x8x16xbf16>, %kv: tensor<?x16xbf16>, %s: tensor<?x4xi32>, %c: i1) {
  %p, %l = scf.if %c -> (tensor<?x8x16xbf16>, tensor<?x8xf32>) {
    %0:2 = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32}
        : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
    scf.yield %0#0, %0#1 : tensor<?x8x16xbf16>, tensor<?x8xf32>
  } else {
    // expected-note @+1 {{it is computed here}}
    %0:2 = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32, lse = #shardq.lse<base = two>}
        : (tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
    scf.yield %0#0, %0#1 : tensor<?x8x16xbf16>, tensor<?x8xf32>
  }
  // expected-error @+1 {{merges LSEs of base e, but 'partial_lse' has base two}}
  %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

// Of what a loop carries, the merge of the turn before.
shardq.mesh @ranks ["tp" = 8, "dcp" = 1 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %begin: index, %end: index) {
  %0 = scf.for %i = %begin to %end step %begin iter_args(%carried = %l) -> tensor<?x8xf32> {
    // expected-error @+1 {{merges LSEs of base e, but 'partial_lse' has base two}}
    %1, %2 = shardq.combine_lse %p lse(%carried) over @ranks "dcp"
        : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
    // expected-note @+1 {{it is computed here}}
    %3, %4 = shardq.combine_lse %p lse(%2) over @ranks "dcp" {lse = #shardq.lse<base = two>}
        : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
    scf.yield %4 : tensor<?x8xf32>
  }
  return
}

// -----

// What a loop gives.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %begin: index, %end: index) {
  // expected-note @+1 {{it is computed here}}
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>}
      : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  %2 = scf.for %i = %begin to %end step %begin iter_args(%carried = %1) -> tensor<?x8xf32> {
    scf.yield %carried : tensor<?x8xf32>
  }
  // expected-error @+1 {{merges LSEs of base e, but 'partial_lse' has base two}}
  %3 = shardq.combine_lse %p lse(%2) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

// A loop that is not whole.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %begin: index, %end: index) {
  // expected-error @+1 {{along control flow edge}}
  %0 = "scf.for"(%begin, %end, %begin, %l) ({
  ^bb0(%i: index, %carried: tensor<?x8xf32>):
    %1 = shardq.combine_lse %p lse(%carried) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
    // expected-note @+1 {{region branch point}}
    "scf.yield"() : () -> ()
  }) : (index, index, index, tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

// One of two.
shardq.mesh @ranks ["tp" = 2]
func.func @f(%q: tensor<?x4x8xf32>, %kv: tensor<?x8xf32>, %s: tensor<?x6xi32>, %c: i1) -> tensor<?x2x8xf32> {
  // expected-note @+1 {{it is computed here}}
  %p, %two = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32, lse = #shardq.lse<base = two>}
      : (tensor<?x4x8xf32>, tensor<?x8xf32>, tensor<?x6xi32>) -> (tensor<?x4x8xf32>, tensor<?x4xf32>)
  %o, %e = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32}
      : (tensor<?x4x8xf32>, tensor<?x8xf32>, tensor<?x6xi32>) -> (tensor<?x4x8xf32>, tensor<?x4xf32>)
  %lse = arith.select %c, %e, %two : tensor<?x4xf32>
  // expected-error @+1 {{merges LSEs of base e, but 'partial_lse' has base two}}
  %out = shardq.combine_lse %p lse(%lse) over @ranks "tp" : (tensor<?x4x8xf32>, tensor<?x4xf32>) -> tensor<?x2x8xf32>
  return %out : tensor<?x2x8xf32>
}

// -----

func.func @f(%n: tensor<?xi32>) {
  %step = arith.constant -2 : index
  // expected-error @+1 {{'step' is -2, expected 0 or more}}
  %0 = shardq.draft_lengths %n step(%step) : (tensor<?xi32>, index) -> tensor<?xi32>
  return
}
