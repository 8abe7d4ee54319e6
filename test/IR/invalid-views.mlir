// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// replicated_table
//===----------------------------------------------------------------------===//

func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 1 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dp" {blocks_per_block = 1 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32, #shardq.view<replicated>>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'table' is 'tensor<?x?xi32, #shardq.view<replicated>>', expected this rank's own: a table of #shardq.view<replicated> is a view already, and a view is made once}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 1 : i64} : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'result' is 'tensor<?x?xi32>', expected the encoding #shardq.view<replicated>}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 1 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<2x?xi32>, %n: tensor<3xi32>) {
  // expected-error @+1 {{'lengths' has 3 requests, expected 2 as 'table'}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 1 : i64} : (tensor<2x?xi32>, tensor<3xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<2x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'result' has 3 requests, expected 2 as 'table'}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 1 : i64} : (tensor<2x?xi32>, tensor<?xi32>) -> tensor<3x?xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x3xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'result' has 8 columns, expected 3 of each of 4 ranks}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 1 : i64} : (tensor<?x3xi32>, tensor<?xi32>) -> tensor<?x8xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{blocks_per_block is 0, expected 1 to 2147483647}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 0 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{blocks_per_block is 2147483648, expected 1 to 2147483647}}
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 2147483648 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{has 0 results and 'outs', expects 1}}
  shardq.replicated_table %t lengths(%n) over @ranks "dcp" : (tensor<?x?xi32>, tensor<?xi32>) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// token_slots
//===----------------------------------------------------------------------===//

func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{'over' and 'interleave' stand together}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 64 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{'over' and 'interleave' stand together}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{'table' is 'tensor<?x?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{interleave is 0, expected 1 to 2147483647}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 64 : i64, interleave = 0 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{block_size is 64 and interleave 48, expected one to be a multiple of the other}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 64 : i64, interleave = 48 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{block_size is 0, expected a positive number of rows}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 0 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{block_stride_rows is 63, expected at least block_size, 64}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 64 : i64, block_stride_rows = 63 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<4xi32>, %v: tensor<5xi32>) {
  // expected-error @+1 {{'visible' has 5 rows, expected 4 as 'req'}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<4xi32>, tensor<5xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<4xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{'result' has 3 rows, expected 4 as 'req'}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<4xi32>, tensor<?xi32>) -> tensor<3xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{'result' is 'tensor<?xi64>', expected #shardq.view<replicated> as 'table'}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) {block_size = 64 : i64} : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{'result' is 'tensor<?xi64, #shardq.view<replicated>>', expected no view as 'table'}}
  %0 = shardq.token_slots table(%t) rows(%r, %v) {block_size = 64 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %r: tensor<?xi32>, %v: tensor<?xi32>) {
  // expected-error @+1 {{has 0 results and 'outs', expects 1}}
  shardq.token_slots table(%t) rows(%r, %v) {block_size = 64 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// ops in which views meet
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x64x128xbf16>, %w: tensor<?x64xf32>, %k: tensor<?x128xbf16>, %t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'keys' is 'tensor<?x128xbf16>', expected #shardq.view<replicated> as 'table'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%k) table(%t) rows(%r, %r) {block_size = 64 : i64} : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>, tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x64xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x64x128xbf16>, %w: tensor<?x64xf32>, %k: tensor<?x128xbf16, #shardq.view<replicated>>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'keys' is 'tensor<?x128xbf16, #shardq.view<replicated>>', expected no view as 'table'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%k) table(%t) rows(%r, %r) {block_size = 64 : i64} : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16, #shardq.view<replicated>>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x64xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%x: tensor<?x128xbf16>, %s: tensor<?xi64>, %c: tensor<?x128xbf16, #shardq.view<replicated>>) {
  // expected-error @+1 {{'slots' is 'tensor<?xi64>', expected #shardq.view<replicated> as 'cache'}}
  %0 = shardq.write_rows %x at(%s) into(%c) : (tensor<?x128xbf16>, tensor<?xi64>, tensor<?x128xbf16, #shardq.view<replicated>>) -> tensor<?x128xbf16, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%x: tensor<?x128xbf16>, %s: tensor<?xi64, #shardq.view<replicated>>, %c: tensor<?x128xbf16>) {
  // expected-error @+1 {{'slots' is 'tensor<?xi64, #shardq.view<replicated>>', expected no view as 'cache'}}
  %0 = shardq.write_rows %x at(%s) into(%c) : (tensor<?x128xbf16>, tensor<?xi64, #shardq.view<replicated>>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' is 'tensor<?x8xi32>', expected #shardq.view<replicated> as 'table'}}
  %0 = shardq.convert_indices %i table(%t) rows(%r) {block_size = 64 : i64} : (tensor<?x8xi32>, tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' is 'tensor<?x8xi32, #shardq.view<replicated>>', expected no view as 'table'}}
  %0 = shardq.convert_indices %i table(%t) rows(%r) {block_size = 64 : i64} : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'table' is 'tensor<?x?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x8xi32>, tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' is 'tensor<?x8xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32, #shardq.view<replicated>>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'table' is 'tensor<?x?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'blocks' is 'tensor<?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32, #shardq.view<replicated>>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'inverse' is 'tensor<?x?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32, #shardq.view<replicated>>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x16x128xbf16>, %c: tensor<?x128xbf16, #shardq.view<replicated>>, %s: tensor<?x8xi32>) {
  // expected-error @+1 {{'slots' is 'tensor<?x8xi32>', expected #shardq.view<replicated> as 'kv'}}
  %0 = shardq.sparse_mla q(%q) kv(%c) slots(%s) {scale = 1.0 : f32} : (tensor<?x16x128xbf16>, tensor<?x128xbf16, #shardq.view<replicated>>, tensor<?x8xi32>) -> tensor<?x16x128xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%q: tensor<?x16x128xbf16>, %c: tensor<?x128xbf16, #shardq.view<replicated>>, %s: tensor<?x8xi32, #shardq.view<replicated>>) {
  // expected-error @+1 {{'kv' is 'tensor<?x128xbf16, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.sparse_mla q(%q) kv(%c) slots(%s) {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>} : (tensor<?x16x128xbf16>, tensor<?x128xbf16, #shardq.view<replicated>>, tensor<?x8xi32, #shardq.view<replicated>>) -> tensor<?x16x128xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?xi64, #shardq.view<replicated>>, %m: tensor<?xi32>) {
  // expected-error @+1 {{'result' is 'tensor<?xi64>', expected #shardq.view<replicated> as 'source'}}
  %0 = shardq.take_rows %s[%m] : (tensor<?xi64, #shardq.view<replicated>>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?xi64, #shardq.view<replicated>>, %n: tensor<?xi32>, %d: index) {
  // expected-error @+1 {{'padded' is 'tensor<?xi64>', expected #shardq.view<replicated> as 'slots'}}
  %0:2 = shardq.chunk_slots %s by(%n) decodes(%d) local(%d) over @ranks "dcp" : (tensor<?xi64, #shardq.view<replicated>>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%k: tensor<?x128xbf16, #shardq.view<replicated>>, %b: tensor<?xi32>, %n: tensor<1xi32>) {
  // expected-error @+1 {{'source' is 'tensor<?x128xbf16, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.gather_kv_start(%k) blocks(%b, %n) over @ranks "dcp" {block_size = 64 : i64} : (tensor<?x128xbf16, #shardq.view<replicated>>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xi64, #shardq.view<replicated>>) {
  // expected-error @+1 {{'result' is 'tensor<?x8xi64>', expected #shardq.view<replicated> as 'source'}}
  %0 = shardq.gather_rows %s over @ranks "dcp" : (tensor<?x8xi64, #shardq.view<replicated>>) -> tensor<?x8xi64>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xi64>) {
  // expected-error @+1 {{'result' is 'tensor<?x8xi64, #shardq.view<replicated>>', expected no view as 'source'}}
  %0 = shardq.gather_rows %s over @ranks "dcp" : (tensor<?x8xi64>) -> tensor<?x8xi64, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%a: tensor<?x8xbf16, #shardq.view<replicated>>, %b: tensor<?x8xbf16>) {
  // expected-error @+1 {{'result' is 'tensor<?x16xbf16, #shardq.view<replicated>>', expected no view as 'source'}}
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" : (tensor<?x8xbf16, #shardq.view<replicated>>, tensor<?x8xbf16>) -> tensor<?x16xbf16, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%k: tensor<?x128xbf16>, %b: tensor<?xi32, #shardq.view<replicated>>, %n: tensor<1xi32>) {
  // expected-error @+1 {{'blocks' is 'tensor<?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.gather_kv_start(%k) blocks(%b, %n) over @ranks "dcp" {block_size = 64 : i64} : (tensor<?x128xbf16>, tensor<?xi32, #shardq.view<replicated>>, tensor<1xi32>) -> !shardq.kv_gather
  %1 = shardq.gather_kv_finish %0 : (!shardq.kv_gather) -> tensor<?x128xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%k: tensor<?x128xbf16>, %b: tensor<?xi32>, %n: tensor<1xi32>) {
  %0 = shardq.gather_kv_start(%k) blocks(%b, %n) over @ranks "dcp" {block_size = 64 : i64} : (tensor<?x128xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-error @+1 {{'result' is 'tensor<?x128xbf16, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %1 = shardq.gather_kv_finish %0 : (!shardq.kv_gather) -> tensor<?x128xbf16, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %m: tensor<?x?xi32, #shardq.view<replicated>>, %n: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'inverse' is 'tensor<?x?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.gathered_slots %i blocks(%m, %n) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x8xi32>, tensor<?x?xi32, #shardq.view<replicated>>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %m: tensor<?x?xi32>, %n: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' is 'tensor<?x8xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.gathered_slots %i blocks(%m, %n) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x8xi32, #shardq.view<replicated>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%m: tensor<?x?xi32, #shardq.view<replicated>>, %n: tensor<1xi32>) {
  // expected-error @+1 {{'inverse' is 'tensor<?x?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.gathered_table %m, %n over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<1xi32>) -> tensor<?x?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%m: tensor<?x?xi32>, %n: tensor<1xi32>) {
  // expected-error @+1 {{'result' is 'tensor<?x?xi32, #shardq.view<replicated>>', expected this rank's own and not #shardq.view<replicated>}}
  %0 = shardq.gathered_table %m, %n over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// packed rows
//===----------------------------------------------------------------------===//

func.func @f(%p: tensor<?x655xi8>) {
  // expected-error @+1 {{'packed' is 'tensor<?x655xi8>', expected 656 bytes a row as #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope> has}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x655xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{'result' is 'tensor<?x512xbf16>', expected 576 values a row as #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope> has}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> tensor<?x512xbf16>
  return
}

// -----

func.func @f(%p: tensor<4x656xi8>) {
  // expected-error @+1 {{'result' has 3 rows, expected 4 as 'packed'}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<4x656xi8>) -> tensor<3x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8, #shardq.view<replicated>>) {
  // expected-error @+1 {{'result' is 'tensor<?x576xbf16>', expected #shardq.view<replicated> as 'packed'}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x656xi8, #shardq.view<replicated>>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{has 0 results and 'outs', expects 1}}
  shardq.unpack_rows %p {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> ()
  return
}

// -----

func.func @f(%r: tensor<?x512xbf16>) {
  // expected-error @+1 {{'rows' is 'tensor<?x512xbf16>', expected 576 values a row as #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope> has}}
  %0 = shardq.pack_rows %r {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x512xbf16>) -> tensor<?x656xi8>
  return
}

// -----

func.func @f(%r: tensor<?x576xbf16>) {
  // expected-error @+1 {{'result' is 'tensor<?x?xi8>', expected 656 bytes a row as #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope> has}}
  %0 = shardq.pack_rows %r {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x576xbf16>) -> tensor<?x?xi8>
  return
}

// -----

func.func @f(%r: tensor<4x576xbf16>) {
  // expected-error @+1 {{'result' has 3 rows, expected 4 as 'rows'}}
  %0 = shardq.pack_rows %r {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<4x576xbf16>) -> tensor<3x656xi8>
  return
}

// -----

func.func @f(%r: tensor<?x576xbf16>) {
  // expected-error @+1 {{'result' is 'tensor<?x656xi8, #shardq.view<replicated>>', expected no view as 'rows'}}
  %0 = shardq.pack_rows %r {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x576xbf16>) -> tensor<?x656xi8, #shardq.view<replicated>>
  return
}

// -----

func.func @f(%r: tensor<?x576xbf16>) {
  // expected-error @+1 {{has 0 results and 'outs', expects 1}}
  shardq.pack_rows %r {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x576xbf16>) -> ()
  return
}

// -----

func.func @f(%q: tensor<?x16x576xbf16>, %c: tensor<?x640xi8>, %s: tensor<?x8xi32>) {
  // expected-error @+1 {{'kv' is 'tensor<?x640xi8>', expected 656 bytes a row as #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope> has}}
  %0 = shardq.sparse_mla q(%q) kv(%c) slots(%s) {scale = 1.0 : f32, kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x16x576xbf16>, tensor<?x640xi8>, tensor<?x8xi32>) -> tensor<?x16x512xbf16>
  return
}

// -----

func.func @f(%q: tensor<?x16x576xbf16>, %c: tensor<?x576xbf16>, %s: tensor<?x8xi32>) {
  // expected-error @+1 {{'kv' has element type 'bf16', expected i8 for packed rows}}
  %0 = shardq.sparse_mla q(%q) kv(%c) slots(%s) {scale = 1.0 : f32, kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x16x576xbf16>, tensor<?x576xbf16>, tensor<?x8xi32>) -> tensor<?x16x512xbf16>
  return
}

// -----

func.func @f(%q: tensor<?x16x576xbf16>, %c: tensor<?x656xi8>, %s: tensor<?x8xi32>) {
  // expected-error @+1 {{'q' has element type 'bf16', expected 'i8' as 'kv'}}
  %0 = shardq.sparse_mla q(%q) kv(%c) slots(%s) {scale = 1.0 : f32} : (tensor<?x16x576xbf16>, tensor<?x656xi8>, tensor<?x8xi32>) -> tensor<?x16x512xbf16>
  return
}

// -----

func.func @f(%q: tensor<?x16x576xf16>, %c: tensor<?x656xi8>, %s: tensor<?x8xi32>) {
  // expected-error @+1 {{'q' has element type 'f16', expected bf16 as of 'kv' unpacked}}
  %0 = shardq.sparse_mla q(%q) kv(%c) slots(%s) {scale = 1.0 : f32, kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x16x576xf16>, tensor<?x656xi8>, tensor<?x8xi32>) -> tensor<?x16x512xf16>
  return
}

// -----

func.func @f(%q: tensor<?x16x512xbf16>, %c: tensor<?x656xi8>, %s: tensor<?x8xi32>) {
  // expected-error @+1 {{q parts have 512 values a head, expected 576, the size of a 'kv' row}}
  %0 = shardq.sparse_mla q(%q) kv(%c) slots(%s) {scale = 1.0 : f32, kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x16x512xbf16>, tensor<?x656xi8>, tensor<?x8xi32>) -> tensor<?x16x512xbf16>
  return
}
