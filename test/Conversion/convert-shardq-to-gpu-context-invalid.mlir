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
  // expected-error @+1 {{'shardq.push' op source 0 of scatter_heads is 'memref<?x8x16xbf16, strided<[?, ?, ?]>>', expected a last stride of 1}}
  shardq.push scatter_heads(%p, %l) into(%x) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x16xbf16, strided<[?, ?, ?]>>, memref<?x8xf32, strided<[?, ?]>>), memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%i: memref<?x2x24xbf16>, %o: memref<?x2x16xbf16, strided<[?, ?, ?]>>) {
  // expected-error @+1 {{'shardq.merge_lse' op 'out' is 'memref<?x2x16xbf16, strided<[?, ?, ?]>>', expected a last stride of 1}}
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
  // expected-error @+1 {{'shardq.push' op source 0 of gather_rows is 'memref<?x8xf32, strided<[?, ?]>>', expected a last stride of 1}}
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
  // expected-error @+1 {{'shardq.gather_gate' op needs a value that only the device knows, from memory that has been written since: operand #2}}
  %g = shardq.gather_gate %n blocks(%c) decodes(%1) over @ranks "tp" {block_size = 4 : i64} : memref<?xi32>, memref<1xi32>
  scf.if %g {
    memref.copy %n, %n : memref<?xi32> to memref<?xi32>
  }
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%n: memref<i32>, %start: memref<8xi32>, %q: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  %2 = memref.subview %start[0] [%1] [1] : memref<8xi32> to memref<?xi32, strided<[1]>>
  // expected-error @+1 {{'shardq.chunk_split' op has rows or requests that only the device knows, and the function has no step that bounds them: requests of 'query_start', 'memref<?xi32, strided<[1]>>'}}
  shardq.chunk_split %2 decodes(%c0) rows(%c0) over @ranks "tp" outs(%q, %q)
      : (memref<?xi32, strided<[1]>>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%n: memref<i32>, %start: memref<8xi32>) {
  %c0 = arith.constant 0 : index
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  // expected-error @+1 {{'shardq.count_chunk_rows' op has rows or requests that only the device knows, and the function has no step that bounds them: 'rows'}}
  %2 = shardq.count_chunk_rows all %start decodes(%c0) rows(%1) over @ranks "tp" : memref<8xi32>
  %3 = memref.alloc(%2) : memref<?xi32>
  return
}

// -----

func.func @f(%n: memref<i32>, %x: memref<8x8xbf16>, %at: memref<8xi32>) {
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  %2 = memref.subview %x[0, 0] [%1, 8] [1, 1] : memref<8x8xbf16> to memref<?x8xbf16, strided<[8, 1]>>
  %3 = memref.cast %at : memref<8xi32> to memref<?xi32>
  // expected-error @+1 {{'shardq.write_rows' op has a number of rows that only the device knows, and the function has no step that bounds it: those of 'source', 'memref<?x8xbf16, strided<[8, 1]>>'}}
  shardq.write_rows %2 at(%3) into(%x) : (memref<?x8xbf16, strided<[8, 1]>>, memref<?xi32>, memref<8x8xbf16>) -> ()
  return
}

// -----

// What a branch of the device hands on.
func.func @f(%start: memref<?xi32>, %a: memref<?x16x576xbf16, strided<[?, ?, ?], offset: ?>>, %b: memref<?x16x576xbf16, strided<[?, ?, ?], offset: ?>>,
             %kv: memref<?x576xbf16>, %slots: memref<?x64xi32>, %out: memref<?x16x512xbf16>) {
  %c0 = arith.constant 0 : index
  %d = shardq.count_decode_rows %start : memref<?xi32>
  %some = arith.cmpi sgt, %d, %c0 : index
  // expected-note @+1 {{a branch hands it on, whose sides lie in memory differently}}
  %q = scf.if %some -> memref<?x16x576xbf16, strided<[?, ?, ?], offset: ?>> {
    scf.yield %a : memref<?x16x576xbf16, strided<[?, ?, ?], offset: ?>>
  } else {
    scf.yield %b : memref<?x16x576xbf16, strided<[?, ?, ?], offset: ?>>
  }
  // expected-error @+1 {{'q' is 'memref<?x16x576xbf16, strided<[?, ?, ?], offset: ?>>', expected a last stride of 1}}
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out) {scale = 0.1 : f32}
      : (memref<?x16x576xbf16, strided<[?, ?, ?], offset: ?>>, memref<?x576xbf16>, memref<?x64xi32>, memref<?x16x512xbf16>) -> ()
  return
}

// -----

// Rows that a branch of the device counts, and no step bounds.
func.func @f(%start: memref<?xi32>, %m: memref<?xi32>, %q: memref<?x8xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %d = shardq.count_decode_rows %start : memref<?xi32>
  // expected-error @+1 {{has a size that only the device knows, and the function has no step that bounds it: dimension 0 of 'memref<?x8xbf16>', for a result of shardq.take_rows}}
  %rows = memref.alloc(%d) : memref<?x8xbf16>
  // expected-note @+1 {{its rows are counted here}}
  shardq.take_rows %q[%m] outs(%rows) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> ()
  return
}
