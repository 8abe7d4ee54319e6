// Ops of gathered KV survive printing and parsing, in the pretty form, the generic
// form and bytecode.
//
// RUN: shardq-opt %s | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --mlir-print-op-generic | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --emit-bytecode | shardq-opt | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func @gather_blocks
func.func @gather_blocks(%t: tensor<?x?xi32>, %n: tensor<?xi32>, %pool: index, %tb: memref<2x3xi32>, %nb: memref<2xi32>,
                         %blocks: memref<6xi32>, %inverse: memref<2x3xi32>, %count: memref<1xi32>) {
  // CHECK: shardq.gather_blocks %{{.*}} lengths(%{{.*}}) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  %0:3 = shardq.gather_blocks %t lengths(%n) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  // Runs of several blocks, and no block that stands for none.
  // CHECK: shardq.gather_blocks %{{.*}} lengths(%{{.*}}) over @ranks "tp" outs(%{{.*}}, %{{.*}}, %{{.*}}) {block_size = 4 : i64, interleave = 16 : i64, null_block = -1 : i32}
  shardq.gather_blocks %tb lengths(%nb) over @ranks "tp" outs(%blocks, %inverse, %count)
      {block_size = 4 : i64, interleave = 16 : i64, null_block = -1 : i32}
      : (memref<2x3xi32>, memref<2xi32>, memref<6xi32>, memref<2x3xi32>, memref<1xi32>) -> ()
  // Blocks that the caches have.
  // CHECK: shardq.gather_blocks %{{.*}} lengths(%{{.*}}) pool(%{{.*}}) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} : (tensor<?x?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  %1:3 = shardq.gather_blocks %t lengths(%n) pool(%pool) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  // CHECK: shardq.gather_blocks %{{.*}} lengths(%{{.*}}) pool(%{{.*}}) over @ranks "tp" outs(%{{.*}}, %{{.*}}, %{{.*}}) {block_size = 4 : i64, full, interleave = 16 : i64} : (memref<2x3xi32>, memref<2xi32>, index, memref<6xi32>, memref<2x3xi32>, memref<1xi32>) -> ()
  shardq.gather_blocks %tb lengths(%nb) pool(%pool) over @ranks "tp" outs(%blocks, %inverse, %count)
      {block_size = 4 : i64, full, interleave = 16 : i64}
      : (memref<2x3xi32>, memref<2xi32>, index, memref<6xi32>, memref<2x3xi32>, memref<1xi32>) -> ()
  return
}

// CHECK-LABEL: func @gather_kv
func.func @gather_kv(%nope: tensor<?x8xbf16>, %rope: tensor<?x4xbf16>, %blocks: tensor<?xi32>, %count: tensor<1xi32>,
                     %kv: memref<40x12xi8>, %blocksb: memref<?xi32>, %countb: memref<1xi32>,
                     %out: memref<?x12xi8, #shardq.symmetric<@ranks>>) -> tensor<?x12xbf16> {
  // CHECK: %[[HANDLE:.*]] = shardq.gather_kv_start(%{{.*}}, %{{.*}}) blocks(%{{.*}}, %{{.*}}) over @ranks "dcp" {block_size = 4 : i64, block_stride_rows = 5 : i64} : (tensor<?x8xbf16>, tensor<?x4xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // CHECK: %[[ALL:.*]] = shardq.gather_kv_finish %[[HANDLE]] : (!shardq.kv_gather) -> tensor<?x12xbf16>
  %handle = shardq.gather_kv_start(%nope, %rope) blocks(%blocks, %count) over @ranks "dcp"
      {block_size = 4 : i64, block_stride_rows = 5 : i64}
      : (tensor<?x8xbf16>, tensor<?x4xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %all = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> tensor<?x12xbf16>
  // A quantized cache is one packed part.
  // CHECK: shardq.gather_kv_start(%{{.*}}) blocks(%{{.*}}, %{{.*}}) over @ranks "tp" {block_size = 4 : i64} : (memref<40x12xi8>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  // CHECK: shardq.gather_kv_finish %{{.*}} outs(%{{.*}}) : (!shardq.kv_gather, memref<?x12xi8, #shardq.symmetric<@ranks>>) -> ()
  %packed = shardq.gather_kv_start(%kv) blocks(%blocksb, %countb) over @ranks "tp" {block_size = 4 : i64}
      : (memref<40x12xi8>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  shardq.gather_kv_finish %packed outs(%out) : (!shardq.kv_gather, memref<?x12xi8, #shardq.symmetric<@ranks>>) -> ()
  return %all : tensor<?x12xbf16>
}

// CHECK-LABEL: func @gathered_slots
func.func @gathered_slots(%i: tensor<?x8xi32>, %inverse: tensor<?x?xi32>, %count: tensor<1xi32>, %r: tensor<?xi32>,
                          %ib: memref<?x8xi32>, %inverseb: memref<2x3xi32>, %countb: memref<1xi32>, %rb: memref<?xi32>,
                          %s: memref<?x8xi64>, %c: memref<?xi32>) {
  // CHECK: shardq.gathered_slots %{{.*}} blocks(%{{.*}}, %{{.*}}) rows(%{{.*}}) over @ranks "dcp" {block_size = 64 : i64, interleave = 1 : i64} : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %0 = shardq.gathered_slots %i blocks(%inverse, %count) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 1 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // CHECK: shardq.gathered_slots %{{.*}} blocks(%{{.*}}, %{{.*}}) rows(%{{.*}}) over @ranks "tp" outs(%{{.*}}, %{{.*}}) {block_size = 4 : i64, interleave = 8 : i64}
  shardq.gathered_slots %ib blocks(%inverseb, %countb) rows(%rb) over @ranks "tp" outs(%s, %c)
      {block_size = 4 : i64, interleave = 8 : i64}
      : (memref<?x8xi32>, memref<2x3xi32>, memref<1xi32>, memref<?xi32>, memref<?x8xi64>, memref<?xi32>) -> ()
  return
}

// CHECK-LABEL: func @gathered_table
func.func @gathered_table(%inverse: tensor<2x3xi32>, %count: tensor<1xi32>, %inverseb: memref<?x?xi32>,
                          %countb: memref<1xi32>, %out: memref<?x?xi32>) {
  // CHECK: shardq.gathered_table %{{.*}}, %{{.*}} over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<2x3xi32>, tensor<1xi32>) -> tensor<2x6xi32>
  %0 = shardq.gathered_table %inverse, %count over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64}
      : (tensor<2x3xi32>, tensor<1xi32>) -> tensor<2x6xi32>
  // CHECK: shardq.gathered_table %{{.*}}, %{{.*}} over @ranks "tp" outs(%{{.*}}) {block_size = 4 : i64, interleave = 8 : i64}
  shardq.gathered_table %inverseb, %countb over @ranks "tp" outs(%out) {block_size = 4 : i64, interleave = 8 : i64}
      : (memref<?x?xi32>, memref<1xi32>, memref<?x?xi32>) -> ()
  return
}

// CHECK-LABEL: func @gather_gate
func.func @gather_gate(%start: tensor<?xi32>, %count: tensor<1xi32>, %decodes: index, %startb: memref<3xi32>,
                       %countb: memref<1xi32>) -> (i1, i1) {
  // CHECK: shardq.gather_gate %{{.*}} blocks(%{{.*}}) decodes(%{{.*}}) over @ranks "dcp" {block_size = 64 : i64} : tensor<?xi32>, tensor<1xi32>
  %0 = shardq.gather_gate %start blocks(%count) decodes(%decodes) over @ranks "dcp" {block_size = 64 : i64}
      : tensor<?xi32>, tensor<1xi32>
  // CHECK: shardq.gather_gate %{{.*}} blocks(%{{.*}}) decodes(%{{.*}}) over @ranks "tp" {block_size = 4 : i64, max_blocks = 9 : i64} : memref<3xi32>, memref<1xi32>
  %1 = shardq.gather_gate %startb blocks(%countb) decodes(%decodes) over @ranks "tp" {block_size = 4 : i64, max_blocks = 9 : i64}
      : memref<3xi32>, memref<1xi32>
  return %0, %1 : i1, i1
}

// CHECK-LABEL: func @push
func.func @push(%a: memref<?x8xbf16>, %b: memref<?x4xbf16>, %blocks: memref<?xi32>, %rows: index,
                %inbox: memref<?x12xbf16, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.push gather_rows(%{{.*}}, %{{.*}}) blocks(%{{.*}}) into(%{{.*}}) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, block_stride_rows = 5 : i64, capacity = 64 : i64} : (memref<?x8xbf16>, memref<?x4xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%a, %b) blocks(%blocks) into(%inbox) over @ranks "dcp" channel 0 exchange 0
      {block_size = 4 : i64, block_stride_rows = 5 : i64, capacity = 64 : i64}
      : (memref<?x8xbf16>, memref<?x4xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  // CHECK: shardq.signal gather_rows rows(%{{.*}}) over @ranks "dcp" channel 0 exchange 0
  shardq.signal gather_rows rows(%rows) over @ranks "dcp" channel 0 exchange 0
  // CHECK: shardq.wait gather_rows rows(%{{.*}}) over @ranks "dcp" channel 0 exchange 0
  shardq.wait gather_rows rows(%rows) over @ranks "dcp" channel 0 exchange 0
  return
}

// CHECK-LABEL: func @gather_rows
func.func @gather_rows(%a: tensor<?x8xbf16>, %b: tensor<3x2x8xi8>, %c: memref<?x8xf8E5M2>,
                       %out: memref<?x8xf8E5M2, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.gather_rows %{{.*}} over @ranks "dcp" : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
  %0 = shardq.gather_rows %a over @ranks "dcp" : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
  // CHECK: shardq.gather_rows %{{.*}} over @ranks "dcp" : (tensor<3x2x8xi8>) -> tensor<6x2x8xi8>
  %1 = shardq.gather_rows %b over @ranks "dcp" : (tensor<3x2x8xi8>) -> tensor<6x2x8xi8>
  // CHECK: shardq.gather_rows %{{.*}} over @ranks "tp" outs(%{{.*}}) : (memref<?x8xf8E5M2>, memref<?x8xf8E5M2, #shardq.symmetric<@ranks>>) -> ()
  shardq.gather_rows %c over @ranks "tp" outs(%out) : (memref<?x8xf8E5M2>, memref<?x8xf8E5M2, #shardq.symmetric<@ranks>>) -> ()
  // CHECK: shardq.push gather_rows(%{{.*}}) into(%{{.*}}) over @ranks "tp" channel 0 exchange 0 {capacity = 64 : i64} : (memref<?x8xf8E5M2>), memref<?x8xf8E5M2, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%c) into(%out) over @ranks "tp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xf8E5M2>), memref<?x8xf8E5M2, #shardq.symmetric<@ranks>>
  return
}
