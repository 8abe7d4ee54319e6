// RUN: shardq-opt %s --split-input-file --shardq-pcp --verify-diagnostics
// RUN: shardq-opt %s --split-input-file --shardq-pcp=two-calls=true -o /dev/null 2>&1 | FileCheck %s
// CHECK: remark: attention runs on chunks of requests over "pcp" (2 ranks), heads and tails apart

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention runs on chunks of requests over "pcp" (2 ranks)}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its tokens are sharded}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its heads or KV are sharded over axis "pcp", and chunks are whole heads' over "pcp"}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["pcp"]>}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 4, "dcp" = 2 in "pcp"]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its heads or KV are sharded over axis "dcp", and chunks are whole heads' over "pcp"}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["dcp"]>}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its results are not used}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: no shardq.expand_rows of this function describes its rows (give it 'rows')}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its step is not the same on every rank}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "pcp">}, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its queries are split over axis "pcp", and every rank of it needs all rows}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<12xi32>, tensor<12xi32>)
  %few = tensor.cast %new : tensor<?x8xbf16> to tensor<11x8xbf16>
  %fewat = tensor.cast %at : tensor<?xi64> to tensor<11xi64>
  // expected-remark @+1 {{write is left alone: it writes 11 rows, and the step has 12}}
  %all = shardq.write_rows %few at(%fewat) into(%kv) : (tensor<11x8xbf16>, tensor<11xi64>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  // expected-remark @+1 {{attention runs on chunks of requests over "pcp" (2 ranks)}}
  %out = shardq.sparse_mla q(%q) kv(%all) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<12xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
             %new: tensor<?x8xbf16>, %at: tensor<?xi64>) -> tensor<?x4x8xbf16> {
  // expected-remark @+1 {{write is left alone: it stands before the shardq.expand_rows of its step}}
  %all = shardq.write_rows %new at(%at) into(%kv) : (tensor<?x8xbf16>, tensor<?xi64>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention runs on chunks of requests over "pcp" (2 ranks)}}
  %out = shardq.sparse_mla q(%q) kv(%all) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %scores: tensor<?x9xf32>, %table: tensor<?x?xi32>, %start: tensor<?xi32>,
             %lens: tensor<?xi32>, %rows: index) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %other, %seen = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.topk %scores visible(%seen) : (tensor<?x9xf32>, tensor<?xi32>) -> tensor<?x16xi32>
  // expected-remark @+1 {{attention is left alone: its rows are described by two expand_rows}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%topk) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// Groups of two sub-axes of one axis overlap.
shardq.mesh @ranks ["tp" = 4, "dcp" = 4 in "tp", "pcp" = 2 in "tp"]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its heads or KV are sharded over axis "dcp", and chunks are whole heads' over "pcp"}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["dcp"]>}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

shardq.mesh @ranks ["pcp" = 2]
shardq.mesh @others ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: several meshes have axis "pcp", and it has no sharding that names one}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// KV over both axes, already rewritten: a merge over the chunks' ranks follows.
shardq.mesh @ranks ["pcp" = 2, "dcp" = 2, "kv" = 4 of ["pcp", "dcp"]]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %chosen: tensor<?x16xi32>, %table: tensor<?x?xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> (tensor<?x4x8xbf16>, tensor<?x4xf32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.filter_indices %chosen table(%table) rows(%req) over @ranks "kv" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x16xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x16xi32>
  // expected-remark @+1 {{attention is left alone: it attends this rank's own keys, and ranks of "pcp" merge what they attend of the same rows}}
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> (tensor<?x4x8xbf16>, tensor<?x4xf32>)
  return %out, %lse : tensor<?x4x8xbf16>, tensor<?x4xf32>
}

// -----

// Behind --shardq-dcp.
shardq.mesh @ranks ["pcp" = 2, "dcp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x8x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %all = shardq.gather_query(%q) over @ranks "dcp" : (tensor<?x4x8xbf16>) -> tensor<?x8x8xbf16>
  // expected-remark @+1 {{attention runs on chunks of requests over "pcp" (2 ranks); all rows are indexed and their queries travel, own ones alone with --shardq-pcp in front of --shardq-dcp}}
  %out = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x8x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x8x8xbf16>
  return %out : tensor<?x8x8xbf16>
}

// -----

// The same with room for more heads.
shardq.mesh @ranks ["pcp" = 2, "dcp" = 2]
func.func @f(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x8x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %all = shardq.gather_query(%q) over @ranks "dcp" {padded_heads} : (tensor<?x4x8xbf16>) -> tensor<?x16x8xbf16>
  %c0 = arith.constant 0 : index
  %size = tensor.dim %q, %c0 : tensor<?x4x8xbf16>
  %heads = tensor.extract_slice %all[0, 0, 0] [%size, 8, 8] [1, 1, 1] : tensor<?x16x8xbf16> to tensor<?x8x8xbf16>
  // expected-remark @+1 {{own ones alone with --shardq-pcp in front of --shardq-dcp}}
  %out = shardq.sparse_mla q(%heads) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x8x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x8x8xbf16>
  return %out : tensor<?x8x8xbf16>
}
