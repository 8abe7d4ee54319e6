// RUN: shardq-opt %s --split-input-file --convert-shardq-to-loops --verify-diagnostics

func.func @tensors(%x: tensor<?xi32>, %rows: tensor<?xi32>) -> tensor<?xi32> {
  // expected-error @+1 {{'shardq.take_rows' op is on tensors: bufferize first}}
  %0 = shardq.take_rows %x[%rows] : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  return %0 : tensor<?xi32>
}

// -----

func.func @layout(%x: memref<?x4xf32, affine_map<(d0, d1) -> (d0 floordiv 2, d1)>>, %rows: memref<?xi32>, %out: memref<?x4xf32>) {
  // expected-error @+1 {{expected a strided layout}}
  shardq.take_rows %x[%rows] outs(%out)
      : (memref<?x4xf32, affine_map<(d0, d1) -> (d0 floordiv 2, d1)>>, memref<?xi32>, memref<?x4xf32>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @other_keys(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %slots: memref<?x4xi32>, %out: memref<?x2x8xf32>) {
  // expected-error @+1 {{'shardq.sparse_mla' op attends keys of 4 ranks: run --shardq-dcp first}}
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["tp"]>}
      : (memref<?x2x8xf32>, memref<?x8xf32>, memref<?x4xi32>, memref<?x2x8xf32>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %x: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'shardq.push' op is to be carried by NCCL, which moves rows between GPUs: choose direct for ranks on CPUs}}
  shardq.push gather_heads(%q) into(%x) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64, transport = #shardq.transport<nccl>}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}
