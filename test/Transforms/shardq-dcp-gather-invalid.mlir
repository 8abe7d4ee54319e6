// RUN: shardq-opt %s --split-input-file --shardq-dcp=step=gather --verify-diagnostics

shardq.mesh @ranks ["tp" = 2]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %table: tensor<?x?xi32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>)
    -> tensor<?x2x4xf32> {
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{cannot attend gathered keys: no shardq.expand_rows of this function describes its rows (give it 'rows')}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

shardq.mesh @ranks ["tp" = 2]
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %lens2: tensor<?xi32>,
             %table: tensor<?x?xi32>, %topk: tensor<?x8xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %req2, %visible2 = shardq.expand_rows %start, %lens2 to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{cannot attend gathered keys: its rows are described by two expand_rows}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req2)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// Chunks that were made in front of the table: --shardq-pcp makes none then.
shardq.mesh @ranks ["pcp" = 2, "dcp" = 2, "kv" = 4 of ["pcp", "dcp"]]
func.func private @table() -> tensor<?x?xi32>
func.func @f(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %topk: tensor<?x8xi32>, %rows: index)
    -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  // expected-note @+1 {{chunks are made here}}
  %mine, %restore = shardq.chunk_split %start decodes(%decodes) rows(%rows) over @ranks "pcp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  %own_q = shardq.take_rows %q[%mine] : (tensor<?x2x4xf32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  %own_req = shardq.take_rows %req[%mine] {missing = -1 : i32} : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  %own_topk = shardq.take_rows %topk[%mine] : (tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %table = func.call @table() : () -> tensor<?x?xi32>
  %slots = shardq.convert_indices %own_topk table(%table) rows(%own_req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-error @+1 {{cannot attend gathered keys: its block table, starts or lengths are not there in front of the chunks of its rows, and keys that do not fit must have none}}
  %out = shardq.sparse_mla q(%own_q) kv(%kv) slots(%slots) rows(%own_req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["dcp"], kv = interleave<8> ["kv"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}
