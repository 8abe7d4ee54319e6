// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// gather_blocks
//===----------------------------------------------------------------------===//

func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{has 2 results and 'outs', expects 3}}
  %0:2 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{interleave is 0, expected 1 to 2147483647}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 0 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{block_size is 0, expected a positive number of rows}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 0 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{block_size is 64 and interleave 48, expected one to be a multiple of the other}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 48 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<2x5xi32>, %n: tensor<3xi32>) {
  // expected-error @+1 {{'lengths' has 3 requests, expected 2 as 'table'}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<2x5xi32>, tensor<3xi32>) -> (tensor<?xi32>, tensor<2x5xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'blocks' has rank 2, expected 1}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'inverse' has rank 1, expected 2}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'count' has rank 2, expected 1}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1x1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<2x5xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'inverse' is 'tensor<3x5xi32>', expected the shape of 'table', 'tensor<2x5xi32>'}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<2x5xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<3x5xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'inverse' is 'tensor<?x5xi32>', expected the shape of 'table', 'tensor<?x?xi32>'}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x5xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'blocks' has 10 entries, expected one for each of 'table', 'tensor<?x?xi32>'}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<10xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'count' is 'tensor<2xi32>', expected 1 entry}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<2xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'count' is 'tensor<?xi32>', expected 1 entry}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%t: tensor<2x5xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'blocks' has 9 entries, expected one for each of 'table', 'tensor<2x5xi32>'}}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<2x5xi32>, tensor<?xi32>) -> (tensor<9xi32>, tensor<2x5xi32>, tensor<1xi32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// gather_kv_start
//===----------------------------------------------------------------------===//

func.func @f(%s0: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %h = shardq.gather_kv_start(%s0) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64} : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %h = shardq.gather_kv_start(%s0) blocks(%b, %c) over @ranks "dp" {block_size = 4 : i64} : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{has 0 sources, expected 1 or 2}}
  %h = shardq.gather_kv_start() blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64} : (tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: tensor<?x8xbf16>, %s1: tensor<?x8xbf16>, %s2: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{has 3 sources, expected 1 or 2}}
  %h = shardq.gather_kv_start(%s0, %s1, %s2) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64} : (tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: tensor<?x?xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{'source' is 'tensor<?x?xbf16>', expected static, positive dimension (dimension 1)}}
  %h = shardq.gather_kv_start(%s0) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64} : (tensor<?x?xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: tensor<?x8xbf16>, %s1: tensor<?x4xf32>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{'source' has element type 'f32', expected 'bf16' as 'source'}}
  %h = shardq.gather_kv_start(%s0, %s1) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64} : (tensor<?x8xbf16>, tensor<?x4xf32>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: tensor<5x8xbf16>, %s1: tensor<6x4xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{'source' has 6 rows, expected 5 as 'source'}}
  %h = shardq.gather_kv_start(%s0, %s1) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64} : (tensor<5x8xbf16>, tensor<6x4xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<2xi32>) {
  // expected-error @+1 {{'count' is 'tensor<2xi32>', expected 1 entry}}
  %h = shardq.gather_kv_start(%s0) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64} : (tensor<?x8xbf16>, tensor<?xi32>, tensor<2xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{block_size is -4, expected a positive number of rows}}
  %h = shardq.gather_kv_start(%s0) blocks(%b, %c) over @ranks "dcp" {block_size = -4 : i64} : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{block_stride_rows is 3, expected at least block_size, 4}}
  %h = shardq.gather_kv_start(%s0) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64, block_stride_rows = 3 : i64} : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{operand #0 is 'memref<?x8xbf16>', expected a tensor as 'blocks'}}
  %h = shardq.gather_kv_start(%s0) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64} : (memref<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{expects one use of the handle, by a 'shardq.gather_kv_finish'}}
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{expects one use of the handle, by a 'shardq.gather_kv_finish'}}
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-note @+1 {{it is used here}}
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  // expected-note @+1 {{it is used here}}
  %1 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func private @g(!shardq.kv_gather)
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{expects one use of the handle, by a 'shardq.gather_kv_finish'}}
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-note @+1 {{it is used here}}
  call @g(%h) : (!shardq.kv_gather) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  // expected-note @+1 {{the other one begins here}}
  %h0 = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-error @+1 {{begins while another gather is under way: one at a time}}
  %h1 = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-note @+1 {{and ends here}}
  %0 = shardq.gather_kv_finish %h0 : (!shardq.kv_gather) -> tensor<?x8xbf16>
  %1 = shardq.gather_kv_finish %h1 : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>, %cond: i1) {
  // expected-note @+1 {{the other one begins here}}
  %h0 = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  scf.if %cond {
    // expected-error @+1 {{begins while another gather is under way: one at a time}}
    %h1 = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
    %1 = shardq.gather_kv_finish %h1 : (!shardq.kv_gather) -> tensor<?x8xbf16>
  }
  // expected-note @+1 {{and ends here}}
  %0 = shardq.gather_kv_finish %h0 : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

//===----------------------------------------------------------------------===//
// gather_kv_finish
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%h: !shardq.kv_gather) {
  // expected-error @+1 {{expects 'handle' to come from a 'shardq.gather_kv_start' of its block}}
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>, %cond: i1) {
  // expected-note @+1 {{it comes from here}}
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  scf.if %cond {
    // expected-error @+1 {{expects 'handle' to come from a 'shardq.gather_kv_start' of its block}}
    %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xbf16>
  }
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-error @+1 {{'result' has element type 'f32', expected 'bf16' as 'source'}}
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-error @+1 {{'result' is 'tensor<?x12xbf16>', expected rows of 8 values as the sources together}}
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x12xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>) {
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-error @+1 {{'result' is 'tensor<64x8xbf16>', expected dynamic rows: how many blocks are gathered is known at run time}}
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<64x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?x8xbf16>, %b: tensor<?xi32>, %c: tensor<1xi32>, %o: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-note @+1 {{the gather starts here}}
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // expected-error @+1 {{is on buffers, expected tensors as its start}}
  shardq.gather_kv_finish %h outs(%o) : (!shardq.kv_gather, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: memref<?x8xbf16>, %b: memref<?xi32>, %c: memref<1xi32>, %o: memref<?x8xbf16>) {
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 4 : i64}
      : (memref<?x8xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  // expected-error @+1 {{'outs' is 'memref<?x8xbf16>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.gather_kv_finish %h outs(%o) : (!shardq.kv_gather, memref<?x8xbf16>) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// gathered_slots
//===----------------------------------------------------------------------===//

func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{has 3 results and 'outs', expects 1 or 2}}
  %0:3 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{interleave is -1, expected 1 to 2147483647}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = -1 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{block_size is 6 and interleave 4, expected one to be a multiple of the other}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 6 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<3xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'count' is 'tensor<3xi32>', expected 1 entry}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<3xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has rank 1, expected 2}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<4x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<5xi32>) {
  // expected-error @+1 {{'req' has 5 rows, expected 4 as 'indices'}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<4x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<5xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<4x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has 5 rows, expected 4 as 'indices'}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<4x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<5x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has 9 columns, expected 8 as 'indices'}}
  %0 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x9xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has rank 2, expected 1}}
  %0:2 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?x1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<4x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has 5 rows, expected 4 as 'indices'}}
  %0:2 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<4x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> (tensor<4x8xi32>, tensor<5xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %c: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has element type 'i64', expected i32}}
  %0:2 = shardq.gathered_slots %i blocks(%inverse, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?xi64>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// gathered_table
//===----------------------------------------------------------------------===//

func.func @f(%inverse: tensor<?x?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%inverse: tensor<?x?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%inverse: tensor<?x?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{interleave is 0, expected 1 to 2147483647}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dcp" {block_size = 64 : i64, interleave = 0 : i64} : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%inverse: tensor<?x?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{block_size is 0, expected a positive number of rows}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dcp" {block_size = 0 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%inverse: tensor<?x?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{interleave is 32, expected a multiple of block_size, 64: no block of gathered rows holds neighbours}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dcp" {block_size = 64 : i64, interleave = 32 : i64} : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%inverse: tensor<?x?xi32>, %c: tensor<?xi32>) {
  // expected-error @+1 {{'count' is 'tensor<?xi32>', expected 1 entry}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%inverse: tensor<2x5xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{'result' has 3 requests, expected 2 as 'inverse'}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<2x5xi32>, tensor<1xi32>) -> tensor<3x20xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%inverse: tensor<2x5xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{'result' has 10 columns, expected 5 of each of 4 ranks}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<2x5xi32>, tensor<1xi32>) -> tensor<2x10xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%inverse: tensor<?x?xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{'result' has 20 columns, expected dynamic ones as 'inverse'}}
  %0 = shardq.gathered_table %inverse, %c over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x20xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// gather_gate
//===----------------------------------------------------------------------===//

func.func @f(%s: tensor<?xi32>, %c: tensor<1xi32>, %d: index) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.gather_gate %s blocks(%c) decodes(%d) over @ranks "dcp" {block_size = 64 : i64} : tensor<?xi32>, tensor<1xi32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?xi32>, %c: tensor<1xi32>, %d: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.gather_gate %s blocks(%c) decodes(%d) over @ranks "dp" {block_size = 64 : i64} : tensor<?xi32>, tensor<1xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?xi32>, %c: tensor<2xi32>, %d: index) {
  // expected-error @+1 {{'count' is 'tensor<2xi32>', expected 1 entry}}
  %0 = shardq.gather_gate %s blocks(%c) decodes(%d) over @ranks "dcp" {block_size = 64 : i64} : tensor<?xi32>, tensor<2xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?xi32>, %c: tensor<1xi32>, %d: index) {
  // expected-error @+1 {{block_size is 0, expected a positive number of rows}}
  %0 = shardq.gather_gate %s blocks(%c) decodes(%d) over @ranks "dcp" {block_size = 0 : i64} : tensor<?xi32>, tensor<1xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s: tensor<?xi32>, %c: tensor<1xi32>, %d: index) {
  // expected-error @+1 {{max_blocks is -1, expected 0 or more}}
  %0 = shardq.gather_gate %s blocks(%c) decodes(%d) over @ranks "dcp" {block_size = 64 : i64, max_blocks = -1 : i64} : tensor<?xi32>, tensor<1xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// push gather_rows
//===----------------------------------------------------------------------===//

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.push gather_rows(%s0) blocks(%b) into(%inbox) over @ranks "dp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?xi32>, memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'blocks' and 'block_size' stand together, and 'block_stride_rows' only with them}}
  shardq.push gather_rows(%s0) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'blocks' and 'block_size' stand together, and 'block_stride_rows' only with them}}
  shardq.push gather_rows(%s0) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?xi32>, memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{is gather_heads, expected no 'blocks', 'block_size' or 'block_stride_rows'}}
  shardq.push gather_heads(%s0) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?xi32>, memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{is gather_heads, expected no 'blocks', 'block_size' or 'block_stride_rows'}}
  shardq.push gather_heads(%s0) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_stride_rows = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %s1: memref<?x8xbf16>, %s2: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has 3 sources, expected 1 or 2}}
  shardq.push gather_rows(%s0, %s1, %s2) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>, memref<?x8xbf16>, memref<?x8xbf16>), memref<?xi32>, memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8x1xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'source' has rank 3, expected 2}}
  shardq.push gather_rows(%s0) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8x1xbf16>), memref<?xi32>, memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x9xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' is 'memref<?x9xbf16, #shardq.symmetric<@ranks>>', expected rows of 8 values as the sources together}}
  shardq.push gather_rows(%s0) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?xi32>, memref<?x9xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8x1xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has rank 3, expected 2}}
  shardq.push gather_rows(%s0) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?xi32>, memref<?x8x1xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has element type 'f32', expected 'bf16' as 'source'}}
  shardq.push gather_rows(%s0) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{block_stride_rows is 2, expected at least block_size, 4}}
  shardq.push gather_rows(%s0) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, block_stride_rows = 2 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?xi32>, memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%s0: memref<?x8xbf16>, %b: memref<?xi32>, %inbox: memref<?x8xbf16>) {
  // expected-error @+1 {{'inbox' is 'memref<?x8xbf16>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.push gather_rows(%s0) blocks(%b) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?xi32>, memref<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s0: memref<?x8xbf16>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'blocks' and 'block_size' stand together, and 'block_stride_rows' only with them}}
  shardq.push gather_rows(%s0) into(%inbox) over @ranks "pcp" channel 0 exchange 0 {block_stride_rows = 4 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s0: memref<?x8xbf16>, %inbox: memref<?x16xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has 3 sources, expected 1 or 2}}
  shardq.push gather_rows(%s0, %s0, %s0) into(%inbox) over @ranks "pcp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xbf16>, memref<?x8xbf16>, memref<?x8xbf16>), memref<?x16xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s0: memref<?x8xbf16>, %inbox: memref<?x8x1xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has rank 3, expected 2}}
  shardq.push gather_rows(%s0) into(%inbox) over @ranks "pcp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?x8x1xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s0: memref<?x8x2xbf16>, %inbox: memref<?x8x3xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has 3 values in dimension 2, expected 2 as 'source'}}
  shardq.push gather_rows(%s0) into(%inbox) over @ranks "pcp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8x2xbf16>), memref<?x8x3xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s0: memref<?x8xbf16>, %inbox: memref<?x8xf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'inbox' has element type 'f16', expected 'bf16' as 'source'}}
  shardq.push gather_rows(%s0) into(%inbox) over @ranks "pcp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?x8xf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s0: memref<?x8xbf16>, %inbox: memref<?x8xbf16>) {
  // expected-error @+1 {{'inbox' is 'memref<?x8xbf16>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.push gather_rows(%s0) into(%inbox) over @ranks "pcp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xbf16>), memref<?x8xbf16>
  return
}

//===----------------------------------------------------------------------===//
// gather_rows
//===----------------------------------------------------------------------===//

// -----

func.func @f(%s: tensor<?x8xbf16>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x8xbf16>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.gather_rows %s over @ranks "dp" : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x8xbf16>) {
  // expected-error @+1 {{'result' has rank 3, expected 2}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x8xbf16>) -> tensor<?x8x1xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x8xbf16>) {
  // expected-error @+1 {{'result' has element type 'f32', expected 'bf16' as 'source'}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x8xbf16>) -> tensor<?x8xf32>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x8xi16>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x8xi16>) -> tensor<?x8xi16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?xbf16>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?xbf16>) -> tensor<?xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x?xbf16>) {
  // expected-error @+1 {{'source' is 'tensor<?x?xbf16>', expected static, positive size (dimension 1)}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x?xbf16>) -> tensor<?x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x8xbf16>) {
  // expected-error @+1 {{'result' is 'tensor<?x?xbf16>', expected static, positive size (dimension 1)}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x8xbf16>) -> tensor<?x?xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x8xbf16>) {
  // expected-error @+1 {{'result' has 9 values in dimension 1, expected 8 as 'source'}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x8xbf16>) -> tensor<?x9xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x2x8xbf16>) {
  // expected-error @+1 {{'result' has 7 values in dimension 2, expected 8 as 'source'}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x2x8xbf16>) -> tensor<?x2x7xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<3x8xbf16>) {
  // expected-error @+1 {{'result' has 5 rows, expected 3 of each of 2 ranks}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<3x8xbf16>) -> tensor<5x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x8xbf16>) {
  // expected-error @+1 {{'result' has 6 rows, expected dynamic ones as 'source'}}
  %0 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x8xbf16>) -> tensor<6x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?x8xbf16>) {
  // expected-error @+1 {{has 2 results and 'outs', expects 1}}
  %0:2 = shardq.gather_rows %s over @ranks "pcp" : (tensor<?x8xbf16>) -> (tensor<?x8xbf16>, tensor<?x8xbf16>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: memref<?x8xbf16>, %o: memref<?x8xbf16>) {
  // expected-error @+1 {{'outs' is 'memref<?x8xbf16>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.gather_rows %s over @ranks "pcp" outs(%o) : (memref<?x8xbf16>, memref<?x8xbf16>) -> ()
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s0: memref<?x8xbf16>, %inbox: memref<?x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{capacity is 5, expected a multiple of 2: each rank has as many rows of the inbox}}
  shardq.push gather_rows(%s0) into(%inbox) over @ranks "pcp" channel 0 exchange 0 {capacity = 5 : i64}
      : (memref<?x8xbf16>), memref<?x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @f(%i: tensor<?x0xi32>, %m: tensor<?x?xi32>, %n: tensor<1xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'indices' is 'tensor<?x0xi32>', expected a column or more}}
  %0 = shardq.gathered_slots %i blocks(%m, %n) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64}
      : (tensor<?x0xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x0xi32>
  return
}

// -----

// How many blocks there are is a number of the host.
shardq.mesh @ranks ["tp" = 2]
func.func @pool(%t: tensor<?x?xi32>, %n: tensor<?xi32>, %pool: tensor<1xi32>) {
  // expected-error @+1 {{'shardq.gather_blocks' op operand #2 must be index, but got 'tensor<1xi32>'}}
  %0:3 = shardq.gather_blocks %t lengths(%n) pool(%pool) over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>, tensor<1xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}
