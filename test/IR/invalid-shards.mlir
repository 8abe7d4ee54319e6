// Every constraint of contiguous token shards, sinks of merges and padded heads has its diagnostic.
//
// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// shard_lengths
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?xi32>, %s: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0:2 = shardq.shard_lengths %q, %s rows(%n) over @ranks "dp" : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?xi32>, %s: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{@other does not name a shardq.mesh}}
  %0:2 = shardq.shard_lengths %q, %s rows(%n) over @other "dcp" : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?xi32>, %s: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{has 1 results and 'outs', expects 2}}
  %0 = shardq.shard_lengths %q, %s rows(%n) over @ranks "dcp" : (tensor<?xi32>, tensor<?xi32>, index) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<4xi32>, %s: tensor<4xi32>, %n: index) {
  // expected-error @+1 {{'query_start' has 4 entries, expected 5, one more than 'seq_lens'}}
  %0:2 = shardq.shard_lengths %q, %s rows(%n) over @ranks "dcp" : (tensor<4xi32>, tensor<4xi32>, index) -> (tensor<4xi32>, tensor<4xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<4xi32>, %s: tensor<3xi32>, %n: index) {
  // expected-error @+1 {{'starts' is 'tensor<?xi32>', expected the shape of 'query_start', 'tensor<4xi32>'}}
  %0:2 = shardq.shard_lengths %q, %s rows(%n) over @ranks "dcp" : (tensor<4xi32>, tensor<3xi32>, index) -> (tensor<?xi32>, tensor<3xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?xi32>, %s: tensor<3xi32>, %n: index) {
  // expected-error @+1 {{'lengths' is 'tensor<2xi32>', expected the shape of 'seq_lens', 'tensor<3xi32>'}}
  %0:2 = shardq.shard_lengths %q, %s rows(%n) over @ranks "dcp" : (tensor<?xi32>, tensor<3xi32>, index) -> (tensor<?xi32>, tensor<2xi32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// gather_rows of two parts
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xf32>) {
  // expected-error @+1 {{has 0 sources, expected 1 or 2}}
  %0 = shardq.gather_rows  over @ranks "dcp" : () -> tensor<?x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x4xf32>, %c: tensor<?x4xf32>) {
  // expected-error @+1 {{has 3 sources, expected 1 or 2}}
  %0 = shardq.gather_rows %a, %b, %c over @ranks "dcp" : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<3x8xf32>, %b: tensor<4x4xf32>) {
  // expected-error @+1 {{'source' has 4 rows, expected 3 as 'source'}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<3x8xf32>, tensor<4x4xf32>) -> tensor<?x12xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x8x4xf32>) {
  // expected-error @+1 {{'source' has rank 3, expected 2}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<?x8xf32>, tensor<?x8x4xf32>) -> tensor<?x12xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xf32>, %b: tensor<?x3x4xf32>) {
  // expected-error @+1 {{'result' has 2 values in dimension 1, expected 3 as 'source'}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<?x2x8xf32>, tensor<?x3x4xf32>) -> tensor<?x2x12xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x4xf32>) {
  // expected-error @+1 {{'result' has rank 3, expected 2}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<?x8xf32>, tensor<?x4xf32>) -> tensor<?x1x12xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x4xf32>) {
  // expected-error @+1 {{'result' has 8 values in dimension 1, expected 12 as the sources together}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<?x8xf32>, tensor<?x4xf32>) -> tensor<?x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x4xbf16>) {
  // expected-error @+1 {{'result' has element type 'f32', expected 'bf16' as 'source'}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<?x8xf32>, tensor<?x4xbf16>) -> tensor<?x12xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x?xf32>) {
  // expected-error @+1 {{expected static, positive size (dimension 1)}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<?x8xf32>, tensor<?x?xf32>) -> tensor<?x12xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x4xf32>) {
  // expected-error @+1 {{expected static, positive size (dimension 1)}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<?x8xf32>, tensor<?x4xf32>) -> tensor<?x?xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<2x8xf32>, %b: tensor<2x4xf32>) {
  // expected-error @+1 {{'result' has 4 rows, expected 2 of each of 4 ranks}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<2x8xf32>, tensor<2x4xf32>) -> tensor<4x12xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// gather_query with padded heads
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>) {
  // expected-error @+1 {{'result' has 7 heads, expected 8 or more: 2 on each of 4 ranks}}
  %0 = shardq.gather_query(%a) over @ranks "dcp" {padded_heads} : (tensor<?x2x8xbf16>) -> tensor<?x7x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x2x8xbf16>) {
  // expected-error @+1 {{'result' has 128 heads, expected 8: 2 on each of 4 ranks}}
  %0 = shardq.gather_query(%a) over @ranks "dcp" : (tensor<?x2x8xbf16>) -> tensor<?x128x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x7x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has 7 heads, expected 8 or more: 2 on each of 4 ranks}}
  shardq.push gather_heads(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64, padded_heads}
      : (memref<?x2x8xbf16>), memref<?x7x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x9x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has 9 heads, expected 8: 2 on each of 4 ranks}}
  shardq.push gather_heads(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xbf16>), memref<?x9x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xbf16>, %l: memref<?x2xf32>, %x: memref<?x2x16xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{is scatter_rows, expected no 'padded_heads'}}
  shardq.push scatter_rows(%s, %l) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64, padded_heads}
      : (memref<?x2x8xbf16>, memref<?x2xf32>), memref<?x2x16xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// combine_lse that scatters tokens, or has a sink
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'out' has 2 heads, expected 8 as 'partial'}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<8x8x16xf32>, %l: tensor<8x8xf32>) {
  // expected-error @+1 {{'partial' has 8 rows, expected 8 of each of 4 ranks}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<8x8x16xf32>, tensor<8x8xf32>) -> tensor<8x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<9x8x16xf32>, %l: tensor<9x8xf32>) {
  // expected-error @+1 {{'partial' has 9 rows, expected 2 of each of 4 ranks}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<9x8x16xf32>, tensor<9x8xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<9x8x16xf32>, %l: tensor<9x8xf32>) {
  // expected-error @+1 {{'partial' has 9 rows, expected a multiple of the 4 ranks}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<9x8x16xf32>, tensor<9x8xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'merged' has 4 heads, expected 8 as 'out'}}
  %0:2 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> (tensor<?x8x16xf32>, tensor<?x4xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<8x8x16xf32>, %l: tensor<8x8xf32>) {
  // expected-error @+1 {{'merged' has 8 rows, expected 2 as 'out'}}
  %0:2 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens} : (tensor<8x8x16xf32>, tensor<8x8xf32>) -> (tensor<2x8x16xf32>, tensor<8x8xf32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>, %s: tensor<2xf32>) {
  // expected-error @+1 {{'sink' is 'tensor<2xf32>', expected 8 entries, one for each head of 'out'}}
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x16xf32>, tensor<?x8xf32>, tensor<2xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>, %s: tensor<8xf32>) {
  // expected-error @+1 {{'sink' is 'tensor<8xf32>', expected 2 entries, one for each head of 'out'}}
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" : (tensor<?x8x16xf32>, tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>, %s: tensor<?xf32>) {
  // expected-error @+1 {{'sink' is 'tensor<?xf32>', expected 2 entries, one for each head of 'out'}}
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" : (tensor<?x8x16xf32>, tensor<?x8xf32>, tensor<?xf32>) -> tensor<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{transport is ag_rs, but it scatters tokens: expected direct or nccl}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {scatter_tokens, transport = #shardq.transport<ag_rs>} : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>, %s: tensor<2xf32>) {
  // expected-error @+1 {{transport is ag_rs, but it has a sink: expected direct or nccl}}
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" {transport = #shardq.transport<ag_rs>} : (tensor<?x8x16xf32>, tensor<?x8xf32>, tensor<2xf32>) -> tensor<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>, %s: tensor<8xf32>) {
  // expected-error @+1 {{transport is ag_ar, but it has a sink: expected direct or nccl}}
  %0 = shardq.combine_lse %p lse(%l) sink(%s) over @ranks "dcp" {transport = #shardq.transport<ag_ar>} : (tensor<?x8x16xf32>, tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: memref<?x2x24xbf16>, %o: memref<?x2x16xbf16>, %s: memref<8xf32>) {
  // expected-error @+1 {{'sink' is 'memref<8xf32>', expected 2 entries, one for each head of 'out'}}
  shardq.merge_lse %i into(%o) sink(%s : memref<8xf32>) over @ranks "dcp" : memref<?x2x24xbf16>, memref<?x2x16xbf16>
  return
}

// -----

//===----------------------------------------------------------------------===//
// push scatter_rows
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %x: memref<?x2x24xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has 2 heads, expected 8 as 'partial'}}
  shardq.push scatter_rows(%s, %l) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>, memref<?x8xf32>), memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %x: memref<?x8x20xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{expected 24 elements a head: 16 values and 16 bytes for the LSE}}
  shardq.push scatter_rows(%s, %l) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>, memref<?x8xf32>), memref<?x8x20xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %x: memref<?x8x16xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has 1 source, expected partial outputs and their LSE}}
  shardq.push scatter_rows(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>), memref<?x8x16xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %x: memref<?x8x24xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.push scatter_rows(%s, %l) into(%x) over @ranks "dp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16>, memref<?x8xf32>), memref<?x8x24xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%n: index, %o: memref<5xi32>) {
  // expected-error @+1 {{is scatter_rows, expected 'rows' and no 'by' offsets}}
  shardq.signal scatter_rows by(%o) rows(%n) over @ranks "dcp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// Indices travel with gathered rows alone.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x2x8xi32>, %x: memref<?x8x8xi32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{is gather_heads of 'i32', expected bf16, f16, f32, i8, f8E4M3FN or f8E5M2}}
  shardq.push gather_heads(%s) into(%x) over @ranks "dcp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xi32>), memref<?x8x8xi32, #shardq.symmetric<@ranks>>
  return
}
