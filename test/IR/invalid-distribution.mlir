// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// count_decode_rows
//===----------------------------------------------------------------------===//

func.func @f(%start: tensor<?xi32>) {
  // expected-error @+1 {{speculative_tokens is -1, expected 0 or more}}
  %0 = shardq.count_decode_rows %start {speculative_tokens = -1 : i64} : tensor<?xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// zigzag_split
//===----------------------------------------------------------------------===//

func.func @f(%start: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0, %1 = shardq.zigzag_split %start decodes(%n) rows(%n) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<5xi32>)
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%start: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0, %1 = shardq.zigzag_split %start decodes(%n) rows(%n) over @ranks "dp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<5xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%start: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{'rank_offsets' is 'tensor<4xi32>', expected 5 entries: axis "tp" has 4 ranks}}
  %0, %1 = shardq.zigzag_split %start decodes(%n) rows(%n) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<4xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%start: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{'rank_offsets' is 'tensor<?xi32>', expected 5 entries: axis "tp" has 4 ranks}}
  %0, %1 = shardq.zigzag_split %start decodes(%n) rows(%n) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%start: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{has 1 results and 'outs', expects 2}}
  %0 = shardq.zigzag_split %start decodes(%n) rows(%n) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> tensor<?xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// split_gate
//===----------------------------------------------------------------------===//

func.func @f(%offsets: tensor<?xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{'offsets' is 'tensor<?xi32>', expected a static size of 2 or more}}
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%n) rows(%n)
      {min_tokens = 1 : i64, topk = 8 : i64} : tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @f(%offsets: tensor<1xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{'offsets' is 'tensor<1xi32>', expected a static size of 2 or more}}
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%n) rows(%n)
      {min_tokens = 1 : i64, topk = 8 : i64} : tensor<1xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @f(%offsets: tensor<5xi32>, %start: tensor<3xi32>, %lens: tensor<3xi32>, %n: index) {
  // expected-error @+1 {{'query_start' has 3 entries, expected 4, one more than 'seq_lens'}}
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%n) rows(%n)
      {min_tokens = 1 : i64, topk = 8 : i64} : tensor<5xi32>, tensor<3xi32>, tensor<3xi32>
  return
}

// -----

func.func @f(%offsets: tensor<5xi32>, %start: tensor<?xi32>, %lens: memref<?xi32>, %n: index) {
  // expected-error @+1 {{mixes tensors and memrefs}}
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%n) rows(%n)
      {min_tokens = 1 : i64, topk = 8 : i64} : tensor<5xi32>, tensor<?xi32>, memref<?xi32>
  return
}

// -----

func.func @f(%offsets: tensor<5xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{min_tokens is -1, expected 0 or more}}
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%n) rows(%n)
      {min_tokens = -1 : i64, topk = 8 : i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @f(%offsets: tensor<5xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{topk is -8, expected 0 or more}}
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%n) rows(%n)
      {min_tokens = 1 : i64, topk = -8 : i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @f(%offsets: tensor<5xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{max_rank_rows is -1, expected 0 or more}}
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%n) rows(%n)
      {min_tokens = 1 : i64, topk = 8 : i64, max_rank_rows = -1 : i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @f(%offsets: tensor<5xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{max_rows is -2, expected 0 or more}}
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%n) rows(%n)
      {min_tokens = 1 : i64, topk = 8 : i64, max_rows = -2 : i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// local_rows
//===----------------------------------------------------------------------===//

// A symbol that is no mesh.
func.func private @ranks()
func.func @f(%ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.local_rows %ids, %offsets decodes(%d) over @ranks "tp"
      : (tensor<?xi32>, tensor<5xi32>, index) -> tensor<?xi32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.local_rows %ids, %offsets decodes(%d) over @ranks "dp"
      : (tensor<?xi32>, tensor<5xi32>, index) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%ids: tensor<?xi32>, %offsets: tensor<9xi32>, %d: index) {
  // expected-error @+1 {{'offsets' is 'tensor<9xi32>', expected 5 entries: axis "tp" has 4 ranks}}
  %0 = shardq.local_rows %ids, %offsets decodes(%d) over @ranks "tp"
      : (tensor<?xi32>, tensor<9xi32>, index) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{result is 'tensor<3xi32>', expected a dynamic size: it differs between ranks}}
  %0 = shardq.local_rows %ids, %offsets decodes(%d) over @ranks "tp"
      : (tensor<?xi32>, tensor<5xi32>, index) -> tensor<3xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// take_rows
//===----------------------------------------------------------------------===//

func.func @f(%source: tensor<?x8xbf16>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'result' has element type 'f32', expected 'bf16' as 'source'}}
  %0 = shardq.take_rows %source[%rows] : (tensor<?x8xbf16>, tensor<?xi32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @f(%source: tensor<?x8xf32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'result' has rank 1, expected 2}}
  %0 = shardq.take_rows %source[%rows] : (tensor<?x8xf32>, tensor<?xi32>) -> tensor<?xf32>
  return
}

// -----

func.func @f(%source: tensor<?x8xf32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'result' has 9 values in dimension 1, expected 8 as 'source'}}
  %0 = shardq.take_rows %source[%rows] : (tensor<?x8xf32>, tensor<?xi32>) -> tensor<?x9xf32>
  return
}

// -----

func.func @f(%source: tensor<?x8x5xf32>, %rows: tensor<?xi32>) {
  // expected-error @+1 {{'result' has 4 values in dimension 2, expected 5 as 'source'}}
  %0 = shardq.take_rows %source[%rows] : (tensor<?x8x5xf32>, tensor<?xi32>) -> tensor<?x8x4xf32>
  return
}

// -----

func.func @f(%source: tensor<?x8xf32>, %rows: tensor<3xi32>) {
  // expected-error @+1 {{'result' has 4 rows, expected 3 as 'rows'}}
  %0 = shardq.take_rows %source[%rows] : (tensor<?x8xf32>, tensor<3xi32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%source: tensor<?x8xf32>, %rows: memref<3xi32>) {
  // expected-error @+1 {{operand #1 is 'memref<3xi32>', expected a tensor: the op has results}}
  %0 = shardq.take_rows %source[%rows] : (tensor<?x8xf32>, memref<3xi32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @f(%source: tensor<?x8xf32>, %rows: tensor<3xi32>) {
  // expected-error @+1 {{has 2 results and 'outs', expects 1}}
  %0:2 = shardq.take_rows %source[%rows] : (tensor<?x8xf32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x8xf32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// exchange
//===----------------------------------------------------------------------===//

func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "dp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<4xi32>, %d: index) {
  // expected-error @+1 {{'offsets' is 'tensor<4xi32>', expected 5 entries: axis "tp" has 4 ranks}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{has 0 sources, expected 1 or 2}}
  %0 = shardq.exchange heads_to_tokens() by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %s1: tensor<?x2x8xf32>, %s2: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{has 3 sources, expected 1 or 2}}
  %0 = shardq.exchange heads_to_tokens(%s0, %s1, %s2) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x24xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x8x4xf32>, %s1: tensor<?x8x4xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{has 2 sources, expected 1 when tokens_to_heads}}
  %0 = shardq.exchange tokens_to_heads(%s0, %s1) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x8x4xf32>, tensor<?x8x4xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x2x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2xf32>, %s1: tensor<?x2xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{has two sources of rank 2, expected rank 3}}
  %0 = shardq.exchange heads_to_tokens(%s0, %s1) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' has element type 'f32', expected 'bf16' as 'result'}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x4xf32>, %s1: tensor<?x2x4xbf16>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' has element type 'bf16', expected 'f32' as 'result'}}
  %0 = shardq.exchange heads_to_tokens(%s0, %s1) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x4xf32>, tensor<?x2x4xbf16>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' has rank 2, expected 3}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<5x2x4xf32>, %s1: tensor<6x2x4xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' has 6 rows, expected 5 as 'source'}}
  %0 = shardq.exchange heads_to_tokens(%s0, %s1) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<5x2x4xf32>, tensor<6x2x4xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x4xf32>, %s1: tensor<?x1x4xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' has 1 heads, expected 2 as 'source'}}
  %0 = shardq.exchange heads_to_tokens(%s0, %s1) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x4xf32>, tensor<?x1x4xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'result' has 7 heads, expected 8: 2 on each of 4 ranks}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x7x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' has 2 heads, expected 8: 2 on each of 4 ranks}}
  %0 = shardq.exchange tokens_to_heads(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x2x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf64>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{operand #0 must be variadic of 2D/3D tensor of bfloat16 type or 16-bit float or 32-bit float or 8-bit signless integer or f8E4M3FN type or f8E5M2 type values}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf64>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf64>
  return
}

// -----

// Products with ranks and bytes stay within 64 bits.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x4611686018427387905x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' has 4611686018427387905 heads, expected at most 16777216}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x4611686018427387905x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x4x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'result' has 9 values a head, expected 8 as the sources together}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x9xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %s1: tensor<?x2x4xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'result' has 8 values a head, expected 12 as the sources together}}
  %0 = shardq.exchange heads_to_tokens(%s0, %s1) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?x2x4xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index, %after: tensor<?x8x8xf32>) {
  // expected-error @+1 {{has 'after', expected only when tokens_to_heads}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) after(%after) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index, tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x8x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index, %after: tensor<?x3x8xf32>) {
  // expected-error @+1 {{'after' has 3 heads, expected 2 as 'result'}}
  %0 = shardq.exchange tokens_to_heads(%s0) by(%ids, %offsets) decodes(%d) after(%after) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index, tensor<?x3x8xf32>) -> tensor<?x2x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x8x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index, %after: tensor<?x2x7xf32>) {
  // expected-error @+1 {{'after' has 7 values a head, expected 8 as 'result'}}
  %0 = shardq.exchange tokens_to_heads(%s0) by(%ids, %offsets) decodes(%d) after(%after) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index, tensor<?x2x7xf32>) -> tensor<?x2x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x8x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index, %after: tensor<?x2x8xbf16>) {
  // expected-error @+1 {{'after' has element type 'bf16', expected 'f32' as 'result'}}
  %0 = shardq.exchange tokens_to_heads(%s0) by(%ids, %offsets) decodes(%d) after(%after) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index, tensor<?x2x8xbf16>) -> tensor<?x2x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x8x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index, %after: tensor<?x2xf32>) {
  // expected-error @+1 {{'after' has rank 2, expected 3}}
  %0 = shardq.exchange tokens_to_heads(%s0) by(%ids, %offsets) decodes(%d) after(%after) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<?xi32>, tensor<5xi32>, index, tensor<?x2xf32>) -> tensor<?x2x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x8x8xf32>, %ids: tensor<6xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'result' has 7 rows, expected 6 as 'ids'}}
  %0 = shardq.exchange tokens_to_heads(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x8x8xf32>, tensor<6xi32>, tensor<5xi32>, index) -> tensor<7x2x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x?x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' is 'tensor<?x?x8xf32>', expected static, positive heads (dimension 1)}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x?x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x?xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'source' is 'tensor<?x2x?xf32>', expected static, positive head dimension (dimension 2)}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x?xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{'result' is 'tensor<?x?x8xf32>', expected static, positive heads (dimension 1)}}
  %0 = shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x?x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %out: memref<?x8x8xf32>) {
  // expected-error @+1 {{'outs' is 'memref<?x8x8xf32>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp" outs(%out)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.mesh @other ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %out: memref<?x8x8xf32, #shardq.symmetric<@other>>) {
  // expected-error @+1 {{'outs' is 'memref<?x8x8xf32, #shardq.symmetric<@other>>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp" outs(%out)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@other>>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %out: memref<?x8x8xf32, 1>) {
  // expected-error @+1 {{'outs' is 'memref<?x8x8xf32, 1>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.exchange heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) over @ranks "tp" outs(%out)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, 1>) -> ()
  return
}
