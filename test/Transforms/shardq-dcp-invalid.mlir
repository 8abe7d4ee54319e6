// RUN: shardq-opt %s --split-input-file --shardq-dcp=step=decode --verify-diagnostics

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: memref<?x2x4xf32>, %kv: memref<?x4xf32>, %slots: memref<?x8xi32>, %out: memref<?x2x4xf32>) {
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: it is on buffers}}
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (memref<?x2x4xf32>, memref<?x4xf32>, memref<?x8xi32>, memref<?x2x4xf32>) -> ()
  return
}

// -----

// Slots of an argument: whose they are is not known.
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
             %table: tensor<?x?xi32>, %slots: tensor<?x8xi32>, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: its slots do not come from a shardq.convert_indices}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
             %table: tensor<?x?xi32>, %slots: tensor<?x8xi32>, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  %s = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: its KV is sharded over 2 axes, expected one}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp", "tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
             %table: tensor<?x?xi32>, %slots: tensor<?x8xi32>, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  %s = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: its tokens are sharded in the order zigzag, expected contiguous}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// A run of tokens would straddle blocks.
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
             %table: tensor<?x?xi32>, %slots: tensor<?x8xi32>, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  // expected-note @+1 {{the block size is given here}}
  %s = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: its cache blocks have 8 rows and the interleave is 3, expected one to be a multiple of the other}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<3> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
             %table: tensor<?x?xi32>, %slots: tensor<?x8xi32>, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  // expected-note @+1 {{they are made here}}
  %s = shardq.convert_indices %topk table(%table) rows(%req) prefill(%req, %req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: its slots point into a prefill workspace}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// Slots through a sharded table are nothing to anyone else.
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
             %table: tensor<?x?xi32>, %slots: tensor<?x8xi32>, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  %s = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: its slots have a user that does not share its sharding of KV}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  // expected-note @+1 {{the user is here}}
  shardq.tap "slots" %s : tensor<?x8xi32>
  return %out : tensor<?x2x4xf32>
}

// -----

// An attention over a whole cache.
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
             %table: tensor<?x?xi32>, %slots: tensor<?x8xi32>, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  %s = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: its slots have a user that does not share its sharding of KV}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  // expected-note @+1 {{the user is here}}
  %whole = shardq.sparse_mla q(%q) kv(%kv) slots(%s) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// A count of slots that may stand anywhere says nothing of columns.
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
             %table: tensor<?x?xi32>, %slots: tensor<?x8xi32>, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  %s, %n = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi32>, tensor<?xi32>)
  // expected-error @+1 {{'shardq.sparse_mla' op cannot attend own keys alone: its topk_length counts slots among positions that no shardq.indexer or shardq.topk made}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%s) topk_length(%n) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}
