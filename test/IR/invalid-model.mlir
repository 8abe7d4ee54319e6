// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// mesh
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'shardq.mesh' op has no axis, expected at least one}}
shardq.mesh @ranks []

// -----

// expected-error @+1 {{'shardq.mesh' op names axis "tp" twice}}
shardq.mesh @ranks ["tp" = 2, "tp" = 3]

// -----

// expected-error @+1 {{axis "tp" has size 0, expected 1 or more}}
shardq.mesh @ranks ["tp" = 0]

// -----

// expected-error @+1 {{axis "tp" has size -8, expected 1 or more}}
shardq.mesh @ranks ["tp" = -8]

// -----

// expected-error @+1 {{axis name is empty}}
shardq.mesh @ranks ["" = 2]

// -----

// expected-error @+1 {{'shardq.mesh' op axis "dcp" lies in "tp", expected a top-level axis that stands before it}}
shardq.mesh @ranks ["dcp" = 4 in "tp", "tp" = 8]

// -----

// expected-error @+1 {{axis "b" lies in "a", expected a top-level axis that stands before it}}
shardq.mesh @ranks ["tp" = 8, "a" = 4 in "tp", "b" = 2 in "a"]

// -----

// expected-error @+1 {{axis "tp" lies in "tp", expected a top-level axis that stands before it}}
shardq.mesh @ranks ["tp" = 8 in "tp"]

// -----

// expected-error @+1 {{axis "dcp" has size 3, expected a divisor of the size of "tp", 8}}
shardq.mesh @ranks ["tp" = 8, "dcp" = 3 in "tp"]

// -----

// expected-error @+1 {{axis "kv" lies in "tp" and joins others, expected one of the two}}
shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "kv" = 4 in "tp" of ["pcp", "tp"]]

// -----

// expected-error @+1 {{axis "kv" joins 1 axes, expected two or more}}
shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "kv" = 2 of ["tp"]]

// -----

// expected-error @+1 {{axis "kv" joins 0 axes, expected two or more}}
shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "kv" = 2 of []]

// -----

// expected-error @+1 {{axis "kv" joins "tp", expected an axis that stands before it and joins none}}
shardq.mesh @ranks ["pcp" = 2, "kv" = 4 of ["pcp", "tp"], "tp" = 2]

// -----

// expected-error @+1 {{axis "all" joins "kv", expected an axis that stands before it and joins none}}
shardq.mesh @ranks ["dp" = 2, "pcp" = 2, "tp" = 2, "kv" = 4 of ["pcp", "tp"], "all" = 8 of ["dp", "kv"]]

// -----

// expected-error @+1 {{axis "kv" has size 6, expected 4, the product of those it joins}}
shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "kv" = 6 of ["pcp", "tp"]]

// -----

// expected-error @+1 {{axis "kv" joins ranks that are not evenly spaced: neighbours along "pcp" are 4 apart, expected 2, those along "dcp" times their number}}
shardq.mesh @ranks ["pcp" = 2, "tp" = 4, "dcp" = 2 in "tp", "kv" = 4 of ["pcp", "dcp"]]

// -----

// expected-error @+1 {{neighbours along "tp" are 1 apart, expected 4, those along "pcp" times their number}}
shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "kv" = 4 of ["tp", "pcp"]]

// -----

// expected-error @+1 {{'shardq.mesh' op has more than 256 ranks}}
shardq.mesh @ranks ["tp" = 257]

// -----

// expected-error @+1 {{'shardq.mesh' op has more than 256 ranks}}
shardq.mesh @ranks ["dp" = 2, "pp" = 2, "tp" = 128]

// -----

// No product of axes overflows.
// expected-error @+1 {{'shardq.mesh' op has more than 256 ranks}}
shardq.mesh @ranks ["dp" = 4294967296, "tp" = 4294967296]

// -----

//===----------------------------------------------------------------------===//
// expand_rows
//===----------------------------------------------------------------------===//

func.func @f(%start: tensor<4xi32>, %lens: tensor<4xi32>, %rows: index) {
  // expected-error @+1 {{'query_start' has 4 entries, expected 5, one more than 'seq_lens'}}
  %0, %1 = shardq.expand_rows %start, %lens to %rows
      : (tensor<4xi32>, tensor<4xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

func.func @f(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) {
  // expected-error @+1 {{'visible' has 8 rows, expected 7 as 'req'}}
  %0, %1 = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<7xi32>, tensor<8xi32>)
  return
}

// -----

func.func @f(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) {
  // expected-error @+1 {{speculative_tokens is -1, expected 0 or more}}
  %0, %1 = shardq.expand_rows %start, %lens to %rows {speculative_tokens = -1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

func.func @f(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) {
  // expected-error @+1 {{has 1 results and 'outs', expects 2}}
  %0 = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> tensor<?xi32>
  return
}

// -----

// Neither form.
func.func @f(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) {
  // expected-error @+1 {{has 0 results and 'outs', expects 2}}
  shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> ()
  return
}

// -----

// Both forms.
func.func @f(%start: memref<?xi32>, %lens: memref<?xi32>, %rows: index, %out: memref<?xi32>) {
  // expected-error @+1 {{has results and 'outs': expects results on tensors, or 'outs' on buffers}}
  %0 = shardq.expand_rows %start, %lens to %rows outs(%out)
      : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>) -> tensor<?xi32>
  return
}

// -----

func.func @f(%start: tensor<?xi32>, %lens: memref<?xi32>, %rows: index) {
  // expected-error @+1 {{operand #1 is 'memref<?xi32>', expected a tensor: the op has results}}
  %0, %1 = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, memref<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

func.func @f(%start: tensor<?xi32>, %lens: memref<?xi32>, %rows: index, %out: memref<?xi32>) {
  // expected-error @+1 {{operand #0 is 'tensor<?xi32>', expected a memref: the op has 'outs'}}
  shardq.expand_rows %start, %lens to %rows outs(%out, %out)
      : (tensor<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  return
}

// -----

func.func @f(%start: tensor<*xi32>, %lens: tensor<?xi32>, %rows: index) {
  // expected-error @+1 {{operand #0 must be}}
  %0, %1 = shardq.expand_rows %start, %lens to %rows
      : (tensor<*xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// indexer
//===----------------------------------------------------------------------===//

func.func @f(%q: tensor<5x4x8xf32>, %w: tensor<6x4xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'weights' has 6 rows, expected 5 as 'q'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<5x4x8xf32>, tensor<6x4xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<5x4x8xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>, %six: tensor<6xi32>) {
  // expected-error @+1 {{'req' has 6 rows, expected 5 as 'q'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%six, %rows) {block_size = 4 : i64}
      : (tensor<5x4x8xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<6xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<5x4x8xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>, %six: tensor<6xi32>) {
  // expected-error @+1 {{'visible' has 6 rows, expected 5 as 'q'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %six) {block_size = 4 : i64}
      : (tensor<5x4x8xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<6xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<5x4x8xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'result' has 4 rows, expected 5 as 'q'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<5x4x8xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<4x3xi32>
  return
}

// -----

func.func @f(%q: tensor<?x4x8xf32>, %w: tensor<?x3xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'weights' has 3 heads, expected 4 as 'q'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<?x4x8xf32>, tensor<?x3xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<?x4x8xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x9xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'keys' has 9 values in a row, expected 8 as 'q'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<?x4x8xf32>, tensor<?x4xf32>, tensor<?x9xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<?x4x8xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x8xbf16>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'keys' has element type 'bf16', expected 'f32' as 'q'}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<?x4x8xf32>, tensor<?x4xf32>, tensor<?x8xbf16>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<?x?x8xf32>, %w: tensor<?x?xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'q' is 'tensor<?x?x8xf32>', expected static, positive heads (dimension 1)}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<?x?x8xf32>, tensor<?x?xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<?x0x8xf32>, %w: tensor<?x0xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'q' is 'tensor<?x0x8xf32>', expected static, positive heads (dimension 1)}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<?x0x8xf32>, tensor<?x0xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<?x4x?xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x?xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'q' is 'tensor<?x4x?xf32>', expected static, positive head dimension (dimension 2)}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<?x4x?xf32>, tensor<?x4xf32>, tensor<?x?xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<?x4x8xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'result' is 'tensor<?x?xi32>', expected static, positive k (dimension 1)}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 4 : i64}
      : (tensor<?x4x8xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x?xi32>
  return
}

// -----

func.func @f(%q: tensor<?x4x8xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{block_size is 0, expected a positive number of rows}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 0 : i64}
      : (tensor<?x4x8xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%q: tensor<?x4x8xf32>, %w: tensor<?x4xf32>, %keys: tensor<?x8xf32>, %table: tensor<?x?xi32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{block_stride_rows is 63, expected at least block_size, 64}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%rows, %rows) {block_size = 64 : i64, block_stride_rows = 63 : i64}
      : (tensor<?x4x8xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x3xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// topk
//===----------------------------------------------------------------------===//

func.func @f(%scores: tensor<5x?xf32>, %visible: tensor<4xi32>) {
  // expected-error @+1 {{'visible' has 4 rows, expected 5 as 'scores'}}
  %0 = shardq.topk %scores visible(%visible) : (tensor<5x?xf32>, tensor<4xi32>) -> tensor<?x3xi32>
  return
}

// -----

func.func @f(%scores: memref<5x?xf32>, %visible: memref<?xi32>, %out: memref<4x3xi32>) {
  // expected-error @+1 {{'result' has 4 rows, expected 5 as 'scores'}}
  shardq.topk %scores visible(%visible) outs(%out) : (memref<5x?xf32>, memref<?xi32>, memref<4x3xi32>) -> ()
  return
}

// -----

func.func @f(%scores: tensor<?x?xf32>, %visible: tensor<?xi32>) {
  // expected-error @+1 {{'result' is 'tensor<?x0xi32>', expected static, positive k (dimension 1)}}
  %0 = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x0xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// convert_indices
//===----------------------------------------------------------------------===//

func.func @f(%topk: tensor<5x8xi32>, %table: tensor<?x?xi32>, %req: tensor<6xi32>) {
  // expected-error @+1 {{'req' has 6 rows, expected 5 as 'indices'}}
  %0 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<5x8xi32>, tensor<?x?xi32>, tensor<6xi32>) -> tensor<?x8xi32>
  return
}

// -----

func.func @f(%topk: tensor<5x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has 6 rows, expected 5 as 'indices'}}
  %0 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<5x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<6x8xi32>
  return
}

// -----

func.func @f(%topk: tensor<5x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has 9 columns, expected 8 as 'indices'}}
  %0 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<5x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x9xi32>
  return
}

// -----

func.func @f(%topk: tensor<5x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>, %prefill: tensor<4xi32>) {
  // expected-error @+1 {{'prefill_req' has 4 rows, expected 5 as 'indices'}}
  %0 = shardq.convert_indices %topk table(%table) rows(%req) prefill(%prefill, %req) {block_size = 4 : i64}
      : (tensor<5x8xi32>, tensor<?x?xi32>, tensor<?xi32>, tensor<4xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

// The custom form cannot say this.
func.func @f(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{'prefill_req' and 'workspace_start' stand together}}
  %0 = "shardq.convert_indices"(%topk, %table, %req, %req)
      <{block_size = 4 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}>
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

func.func @f(%topk: tensor<5x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has 4 rows, expected 5 as 'indices'}}
  %0, %1 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<5x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<4xi32>)
  return
}

// -----

func.func @f(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has element type 'i64', expected i32}}
  %0, %1 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?xi64>)
  return
}

// -----

func.func @f(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{'counts' has rank 2, expected 1}}
  %0, %1 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?x8xi32>)
  return
}

// -----

func.func @f(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{'slots' has rank 1, expected 2}}
  %0 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?xi32>
  return
}

// -----

func.func @f(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{has 3 results and 'outs', expects 1 or 2}}
  %0, %1, %2 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

func.func @f(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{result #0 must be}}
  %0 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @f(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{block_size is -64, expected a positive number of rows}}
  %0 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = -64 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

func.func @f(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>) {
  // expected-error @+1 {{block_stride_rows is 0, expected at least block_size, 64}}
  %0 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64, block_stride_rows = 0 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// sparse_mla
//===----------------------------------------------------------------------===//

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x12xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{has 3 q parts, expected 1 or 2}}
  %0 = shardq.sparse_mla q(%q, %q, %q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x2x4xf32>, tensor<?x2x4xf32>, tensor<?x12xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%kv: tensor<?x12xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{has 0 q parts, expected 1 or 2}}
  %0 = shardq.sparse_mla q() kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x12xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{has 3 results and 'outs', expects 1 or 2}}
  %0, %1, %2 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> (tensor<?x2x4xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
  return
}

// -----

func.func @f(%q: tensor<5x2x4xf32>, %r: tensor<6x2x4xf32>, %kv: tensor<?x8xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'q' has 6 rows, expected 5 as 'q'}}
  %0 = shardq.sparse_mla q(%q, %r) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<5x2x4xf32>, tensor<6x2x4xf32>, tensor<?x8xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %r: tensor<?x3x4xf32>, %kv: tensor<?x8xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'q' has 3 heads, expected 2 as 'q'}}
  %0 = shardq.sparse_mla q(%q, %r) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x3x4xf32>, tensor<?x8xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<5x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<6x8xi32>) {
  // expected-error @+1 {{'slots' has 6 rows, expected 5 as 'q'}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<5x2x4xf32>, tensor<?x4xf32>, tensor<6x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<5x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %req: tensor<6xi32>) {
  // expected-error @+1 {{'req' has 6 rows, expected 5 as 'q'}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<5x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<6xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<5x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %length: tensor<6xi32>) {
  // expected-error @+1 {{'topk_length' has 6 rows, expected 5 as 'q'}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) topk_length(%length) {scale = 1.0 : f32}
      : (tensor<5x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<6xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<5x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'out' has 6 rows, expected 5 as 'q'}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<5x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<6x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'out' has 3 heads, expected 2 as 'q'}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x3x4xf32>
  return
}

// -----

func.func @f(%q: tensor<5x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'lse' has 6 rows, expected 5 as 'q'}}
  %0, %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<5x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> (tensor<?x2x4xf32>, tensor<6x2xf32>)
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'lse' has 3 heads, expected 2 as 'q'}}
  %0, %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> (tensor<?x2x4xf32>, tensor<?x3xf32>)
  return
}

// -----

func.func @f(%q: tensor<?x2x4xbf16>, %kv: tensor<?x4xbf16>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'lse' has element type 'bf16', expected f32}}
  %0, %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xbf16>, tensor<?x4xbf16>, tensor<?x8xi32>) -> (tensor<?x2x4xbf16>, tensor<?x2xbf16>)
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'lse' has rank 3, expected 2}}
  %0, %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> (tensor<?x2x4xf32>, tensor<?x2x4xf32>)
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'out' has rank 2, expected 3}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %r: tensor<?x2x3xf32>, %kv: tensor<?x8xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{q parts have 7 values a head, expected 8, the size of a 'kv' row}}
  %0 = shardq.sparse_mla q(%q, %r) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x2x3xf32>, tensor<?x8xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'out' has 5 values a head, expected at most 4, the size of a 'kv' row}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x5xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xbf16>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'q' has element type 'bf16', expected 'f32' as 'kv'}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xbf16>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf16>, %kv: tensor<?x4xf16>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'out' has element type 'f32', expected 'f16' as 'q'}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf16>, tensor<?x4xf16>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x0x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'q' is 'tensor<?x0x4xf32>', expected static, positive heads (dimension 1)}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x0x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x0x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'out' is 'tensor<?x?x4xf32>', expected static, positive heads (dimension 1)}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x?x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x?xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'q' is 'tensor<?x2x?xf32>', expected static, positive head dimension (dimension 2)}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x?xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x?xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'kv' is 'tensor<?x?xf32>', expected static, positive values in a row (dimension 1)}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x?xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{'out' is 'tensor<?x2x?xf32>', expected static, positive value dimension (dimension 2)}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x?xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %sink: tensor<3xf32>) {
  // expected-error @+1 {{'sink' is 'tensor<3xf32>', expected 2 entries}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) sink(%sink) {scale = 1.0 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<3xf32>) -> tensor<?x2x4xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %sink: tensor<?xf32>) {
  // expected-error @+1 {{'sink' is 'tensor<?xf32>', expected 2 entries (this rank's heads) or 8 (all heads)}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) sink(%sink)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xf32>) -> tensor<?x2x4xf32>
  return
}

// -----

// Over tokens every head is here, and there is no block to choose.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %sink: tensor<8xf32>) {
  // expected-error @+1 {{'sink' is 'tensor<8xf32>', expected 2 entries}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) sink(%sink)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<8xf32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{scale is not finite}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0x7F800000 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{scale is not finite}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0x7FC00000 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp", "dp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

// A mesh of the outer module is out of sight.
shardq.mesh @ranks ["tp" = 4]
module {
  func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) {
    // expected-error @+1 {{@ranks does not name a shardq.mesh}}
    %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
        {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
        : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
    return
  }
}

// -----

//===----------------------------------------------------------------------===//
// tap
//===----------------------------------------------------------------------===//

func.func @f(%value: tensor<?x8xi32>) {
  // expected-error @+1 {{'shardq.tap' op name is empty}}
  shardq.tap "" %value : tensor<?x8xi32>
  return
}

// -----

func.func @f(%value: tensor<5x8xi32>, %rows: tensor<4xi32>) {
  // expected-error @+1 {{'rows' has 4 rows, expected 5 as 'value'}}
  shardq.tap "topk" %value rows(%rows : tensor<4xi32>) : tensor<5x8xi32>
  return
}

// -----

func.func @f(%value: tensor<5x8xi32>, %rows: memref<5xi32>) {
  // expected-error @+1 {{'rows' is 'memref<5xi32>', expected the form of 'value', 'tensor<5x8xi32>'}}
  shardq.tap "topk" %value rows(%rows : memref<5xi32>) : tensor<5x8xi32>
  return
}

// -----

func.func @f(%i: tensor<?x0xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{'indices' is 'tensor<?x0xi32>', expected a column or more}}
  %0 = shardq.convert_indices %i table(%t) rows(%r) {block_size = 64 : i64} : (tensor<?x0xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x0xi32>
  return
}

// -----

func.func @f(%q: tensor<?x2x8xf32>, %kv: tensor<?x8xf32>, %s: tensor<?x0xi32>) {
  // expected-error @+1 {{'slots' is 'tensor<?x0xi32>', expected a column or more}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 1.0 : f32} : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x0xi32>) -> tensor<?x2x8xf32>
  return
}
