// RUN: shardq-opt %s --split-input-file --convert-shardq-to-gpu --verify-diagnostics


shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %slots: memref<?x4xi32>, %out: memref<?x2x8xf32>) {
  // expected-error @+1 {{'shardq.sparse_mla' op attends keys of 4 ranks: run --shardq-dcp first}}
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["tp"]>}
      : (memref<?x2x8xf32>, memref<?x8xf32>, memref<?x4xi32>, memref<?x2x8xf32>) -> ()
  return
}

// -----

// Values are read 16 bytes at a time, LSEs are not.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: memref<?x8x16xbf16, strided<[?, ?, ?]>>, %l: memref<?x8xf32, strided<[?, ?]>>, %x: memref<?x2x24xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'shardq.push' op has a buffer of type 'memref<?x8x16xbf16, strided<[?, ?, ?]>>', expected a last stride of 1}}
  shardq.push scatter_heads(%p, %l) into(%x) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16, strided<[?, ?, ?]>>, memref<?x8xf32, strided<[?, ?]>>), memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%i: memref<?x2x24xbf16>, %o: memref<?x2x16xbf16, strided<[?, ?, ?]>>) {
  // expected-error @+1 {{'shardq.merge_lse' op has a buffer of type 'memref<?x2x16xbf16, strided<[?, ?, ?]>>', expected a last stride of 1}}
  shardq.merge_lse %i into(%o) over @ranks "tp" : memref<?x2x24xbf16>, memref<?x2x16xbf16, strided<[?, ?, ?]>>
  return
}

// -----

// Ops on values become pushes first.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%s: memref<?x2x8xbf16>, %x: memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'shardq.gather_query' op has no form on the GPU}}
  shardq.gather_query(%s) over @ranks "tp" outs(%x) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %o: memref<?x2x16xbf16>) {
  // expected-error @+1 {{'shardq.combine_lse' op has no form on the GPU}}
  shardq.combine_lse %p lse(%l) over @ranks "tp" outs(%o) : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x2x16xbf16>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%kv: memref<?x8xf32>, %n: memref<?xi32>, %c: memref<1xi32>, %out: memref<?x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'shardq.gather_kv_start' op has no form on the GPU}}
  %h = shardq.gather_kv_start(%kv) blocks(%n, %c) over @ranks "tp" {block_size = 4 : i64}
      : (memref<?x8xf32>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  shardq.gather_kv_finish %h outs(%out) : (!shardq.kv_gather, memref<?x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// Their bytes are read 16 at a time.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%kv: memref<?x8xf32, strided<[?, ?]>>, %n: memref<?xi32>, %inbox: memref<?x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'shardq.push' op has a buffer of type 'memref<?x8xf32, strided<[?, ?]>>', expected a last stride of 1}}
  shardq.push gather_rows(%kv) blocks(%n) into(%inbox) over @ranks "tp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 8 : i64}
      : (memref<?x8xf32, strided<[?, ?]>>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// A gate reads what the blocks that it counts have written.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%t: memref<?x?xi32>, %n: memref<?xi32>, %c: memref<1xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  // expected-note @+1 {{it was loaded here}}
  %0 = memref.load %c[%c0] : memref<1xi32>
  %1 = arith.index_cast %0 : i32 to index
  shardq.gather_blocks %t lengths(%n) over @ranks "tp" outs(%n, %t, %c) {block_size = 4 : i64, interleave = 4 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x?xi32>, memref<1xi32>) -> ()
  // expected-error @+1 {{'shardq.gather_gate' op needs a value that only the device knows, from memory that has been written since}}
  %g = shardq.gather_gate %n blocks(%c) decodes(%1) over @ranks "tp" {block_size = 4 : i64} : memref<?xi32>, memref<1xi32>
  scf.if %g {
    memref.copy %n, %n : memref<?xi32> to memref<?xi32>
  }
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?xi32>, %n: index) {
  // expected-error @+1 {{'shardq.chunk_split' op has no form on the GPU}}
  shardq.chunk_split %q decodes(%n) rows(%n) over @ranks "tp" outs(%q, %q) : (memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  return
}

// -----

// Merges that are made of other ops.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %s: memref<?x8x16xf32>) {
  // expected-error @+1 {{'shardq.weigh_partial' op belongs to a merge by ag_rs or ag_ar, which has no form on the GPU: choose direct or nccl for it}}
  shardq.weigh_partial %p lses(%l) over @ranks "tp" outs(%s) : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x8x16xf32>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s: memref<?x8x16xf32>, %x: memref<?x2x16xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'shardq.push' op belongs to a merge by ag_rs or ag_ar, which has no form on the GPU: choose direct or nccl for it}}
  shardq.push scatter_heads(%s) into(%x) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xf32>), memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

func.func @f(%x: memref<?x8xbf16>, %at: memref<?xi32>) {
  // expected-error @+1 {{'shardq.write_rows' op has no form on the GPU}}
  shardq.write_rows %x at(%at) into(%x) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> ()
  return
}

// -----

func.func @f(%x: memref<?x8xf32>, %at: memref<?xi32>) {
  // expected-error @+1 {{'shardq.take_rows' op with 'missing' on rows of more than one number has no form on the GPU}}
  shardq.take_rows %x[%at] outs(%x) {missing = 1.0 : f32} : (memref<?x8xf32>, memref<?xi32>, memref<?x8xf32>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%x: memref<?x2x16xf32, #shardq.symmetric<@ranks>>, %out: memref<?x2x16xbf16>) {
  // expected-error @+1 {{'shardq.sum_partials' op belongs to a merge by ag_rs or ag_ar, which has no form on the GPU: choose direct or nccl for it}}
  shardq.sum_partials %x into(%out) over @ranks "tp" : memref<?x2x16xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xbf16>
  return
}
