shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @f(%q: tensor<?x2x8xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">}, %kv: tensor<?x8xf32>,
             %new: tensor<?x8xf32>, %at: tensor<?xi64>, %topk: tensor<?x4xi32>, %req: tensor<?xi32>)
    -> (tensor<?x2x8xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %table = arith.constant dense<1> : tensor<5x20xi32>
  %all = shardq.write_rows %new at(%at) into(%kv) : (tensor<?x8xf32>, tensor<?xi64>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x4xi32>, tensor<5x20xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %out = shardq.sparse_mla q(%q) kv(%all) slots(%slots)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["tp"]>}
      : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>) -> tensor<?x2x8xf32>
  return %out : tensor<?x2x8xf32>
}
