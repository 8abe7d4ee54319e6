// Views of tables, slots of tokens and packed rows survive printing and parsing, in the
// pretty form, the generic form and bytecode.
//
// RUN: shardq-opt %s | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --mlir-print-op-generic | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --emit-bytecode | shardq-opt | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func @replicated_table
func.func @replicated_table(%t: tensor<?x?xi32>, %n: tensor<?xi32>, %s: tensor<2x3xi32>, %m: tensor<2xi32>,
                            %tb: memref<2x3xi32>, %nb: memref<2xi32>, %out: memref<2x12xi32>) {
  // CHECK: shardq.replicated_table %{{.*}} lengths(%{{.*}}) over @ranks "dcp" : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  %0 = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {blocks_per_block = 1 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  // CHECK: shardq.replicated_table %{{.*}} lengths(%{{.*}}) over @ranks "dcp" {blocks_per_block = 2 : i64} : (tensor<2x3xi32>, tensor<2xi32>) -> tensor<2x6xi32, #shardq.view<replicated>>
  %1 = shardq.replicated_table %s lengths(%m) over @ranks "dcp" {blocks_per_block = 2 : i64} : (tensor<2x3xi32>, tensor<2xi32>) -> tensor<2x6xi32, #shardq.view<replicated>>
  // CHECK: shardq.replicated_table %{{.*}} lengths(%{{.*}}) over @ranks "tp" outs(%{{.*}})
  shardq.replicated_table %tb lengths(%nb) over @ranks "tp" outs(%out) : (memref<2x3xi32>, memref<2xi32>, memref<2x12xi32>) -> ()
  return
}

// CHECK-LABEL: func @token_slots
func.func @token_slots(%t: tensor<?x?xi32>, %v: tensor<?x?xi32, #shardq.view<replicated>>, %req: tensor<?xi32>, %visible: tensor<?xi32>,
                       %tb: memref<?x?xi32>, %rb: memref<?xi32>, %out: memref<?xi32>) {
  // CHECK: shardq.token_slots table(%{{.*}}) rows(%{{.*}}, %{{.*}}) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  %0 = shardq.token_slots table(%t) rows(%req, %visible) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  // CHECK: shardq.token_slots table(%{{.*}}) rows(%{{.*}}, %{{.*}}) {block_size = 64 : i64, block_stride_rows = 70 : i64} : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32, #shardq.view<replicated>>
  %1 = shardq.token_slots table(%v) rows(%req, %visible) {block_size = 64 : i64, block_stride_rows = 70 : i64}
      : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32, #shardq.view<replicated>>
  // CHECK: shardq.token_slots table(%{{.*}}) rows(%{{.*}}, %{{.*}}) outs(%{{.*}}) {block_size = 64 : i64}
  shardq.token_slots table(%tb) rows(%rb, %rb) outs(%out) {block_size = 64 : i64} : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  return
}

// CHECK-LABEL: func @packed
func.func @packed(%p: tensor<?x656xi8>, %r: tensor<?x144xbf16>, %pb: memref<?x656xi8>, %rb: memref<?x576xbf16>, %q: tensor<?x16x576xbf16>, %s: tensor<?x8xi32>) {
  // CHECK: shardq.unpack_rows %{{.*}} {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  // CHECK: shardq.pack_rows %{{.*}} {format = #shardq.packed_rows<128 x i8, rope = 16, order = rope_scales>} : (tensor<?x144xbf16>) -> tensor<?x164xi8>
  %1 = shardq.pack_rows %r {format = #shardq.packed_rows<128 x i8, rope = 16, order = rope_scales>} : (tensor<?x144xbf16>) -> tensor<?x164xi8>
  // CHECK: shardq.unpack_rows %{{.*}} outs(%{{.*}})
  shardq.unpack_rows %pb outs(%rb) {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (memref<?x656xi8>, memref<?x576xbf16>) -> ()
  // CHECK: shardq.pack_rows %{{.*}} outs(%{{.*}})
  shardq.pack_rows %rb outs(%pb) {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (memref<?x576xbf16>, memref<?x656xi8>) -> ()
  // CHECK: shardq.sparse_mla q(%{{.*}}) kv(%{{.*}}) slots(%{{.*}}) {kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>, scale = 1.000000e+00 : f32}
  %2 = shardq.sparse_mla q(%q) kv(%p) slots(%s) {kv_format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>, scale = 1.0 : f32} : (tensor<?x16x576xbf16>, tensor<?x656xi8>, tensor<?x8xi32>) -> tensor<?x16x512xbf16>
  return
}

// CHECK-LABEL: func @full
func.func @full(%t: tensor<?x?xi32>, %n: tensor<?xi32>) {
  // CHECK: shardq.gather_blocks %{{.*}} lengths(%{{.*}}) over @ranks "dcp" {block_size = 64 : i64, full, interleave = 64 : i64}
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, full, interleave = 64 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}
