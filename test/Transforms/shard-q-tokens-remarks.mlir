// Says of each attention that it was rewritten, or why it was not; then it is
// as it was.
//
// RUN: shardq-opt %s --split-input-file --shard-q-tokens --verify-diagnostics
// RUN: shardq-opt %s --split-input-file --shard-q-tokens=remarks=false | FileCheck %s
//
// CHECK-LABEL: func @rewritten
// CHECK: shardq.exchange
// CHECK: return
// CHECK-NOT: shardq.exchange

shardq.mesh @ranks ["tp" = 4]
func.func @rewritten(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>,
                     %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention runs on token shards over "tp" (4 ranks) when the gate is open}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its heads are not sharded}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["dp" = 3, "tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its heads are not sharded over axis "tp" alone}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["dp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["dp" = 3, "tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its heads are not sharded over axis "tp" alone}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["dp", "tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["dp" = 3, "tp" = 1]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: axis "tp" has one rank}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its results are not used}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index, %sink: tensor<2xf32>) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its sink holds this rank's 2 heads, and token shards need all 8}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) sink(%sink) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>, tensor<2xf32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x?xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: the width of its slots is dynamic, and the gate needs the top-k}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %req2, %visible2 = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its rows are described by two expand_rows}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) topk_length(%visible2) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  // expected-remark @+1 {{attention is left alone: no shardq.expand_rows of this function describes its rows (give it 'rows')}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its step is not the same on every rank}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its step is not the same on every rank}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<6x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<6x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<5xi32>, tensor<5xi32>)
  %any = tensor.cast %req : tensor<5xi32> to tensor<?xi32>
  // expected-remark @+1 {{attention is left alone: it has 6 rows, and its step 5}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%any) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<6x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<6x2x4xf32>
  return %0 : tensor<6x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: memref<?x2x4xf32>, %kv: memref<?x4xf32>, %slots: memref<?x8xi32>, %out: memref<?x2x4xf32>) {
  // expected-remark @+1 {{attention is left alone: it is on buffers}}
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (memref<?x2x4xf32>, memref<?x4xf32>, memref<?x8xi32>, memref<?x2x4xf32>) -> ()
  return
}

// -----

// One that is on token shards already is no news.
shardq.mesh @ranks ["tp" = 4]
func.func @tokens(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>) -> tensor<?x2x4xf32> {
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @left_alone(%q: tensor<0x1x8xf32>, %kv: tensor<?x8xf32>, %slots: tensor<0x2xi32>, %start: tensor<1xi32>,
                      %lens: tensor<0xi32>, %rows: index) -> tensor<0x1x8xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<1xi32>, tensor<0xi32>, index) -> (tensor<0xi32>, tensor<0xi32>)
  // expected-remark @+1 {{attention is left alone: it has no rows}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<0x1x8xf32>, tensor<?x8xf32>, tensor<0x2xi32>, tensor<0xi32>) -> tensor<0x1x8xf32>
  return %0 : tensor<0x1x8xf32>
}

// -----

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @left_alone(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // expected-remark @+1 {{attention is left alone: its KV is sharded, which is for --shardq-dcp, and token shards need all of it}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %0 : tensor<?x2x4xf32>
}
