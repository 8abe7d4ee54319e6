// Ops of contiguous token shards, sinks of merges and padded heads survive printing and parsing, in the
// pretty form, the generic form and bytecode.
//
// RUN: shardq-opt %s | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --mlir-print-op-generic | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --emit-bytecode | shardq-opt | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func @shard_lengths
func.func @shard_lengths(%q: tensor<?xi32>, %s: tensor<?xi32>, %n: index, %qb: memref<4xi32>, %sb: memref<3xi32>,
                         %o: memref<4xi32>, %l: memref<3xi32>) {
  // CHECK: shardq.shard_lengths %{{.*}}, %{{.*}} rows(%{{.*}}) over @ranks "dcp" : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %0:2 = shardq.shard_lengths %q, %s rows(%n) over @ranks "dcp" : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // CHECK: shardq.shard_lengths %{{.*}}, %{{.*}} rows(%{{.*}}) over @ranks "tp" outs(%{{.*}}, %{{.*}}) : (memref<4xi32>, memref<3xi32>, index, memref<4xi32>, memref<3xi32>) -> ()
  shardq.shard_lengths %qb, %sb rows(%n) over @ranks "tp" outs(%o, %l)
      : (memref<4xi32>, memref<3xi32>, index, memref<4xi32>, memref<3xi32>) -> ()
  return
}

// CHECK-LABEL: func @shards
func.func @shards(%a: tensor<?x8x16xbf16>, %b: tensor<?x8x4xbf16>, %i: tensor<?x12xi32>, %w: tensor<?x3xi64>,
                  %kv: tensor<?x20xbf16>, %ab: memref<?x16xf32>, %bb: memref<?x4xf32>,
                  %out: memref<?x20xf32, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.gather_rows %{{.*}}, %{{.*}} over @ranks "dcp" {token_shards} : (tensor<?x8x16xbf16>, tensor<?x8x4xbf16>) -> tensor<?x8x20xbf16>
  %0 = shardq.gather_rows %a, %b over @ranks "dcp" {token_shards} : (tensor<?x8x16xbf16>, tensor<?x8x4xbf16>) -> tensor<?x8x20xbf16>
  // CHECK: shardq.gather_rows %{{.*}} over @ranks "dcp" {token_shards} : (tensor<?x12xi32>) -> tensor<?x12xi32>
  %1 = shardq.gather_rows %i over @ranks "dcp" {token_shards} : (tensor<?x12xi32>) -> tensor<?x12xi32>
  // CHECK: shardq.gather_rows %{{.*}} over @ranks "tp" : (tensor<?x3xi64>) -> tensor<?x3xi64>
  %2 = shardq.gather_rows %w over @ranks "tp" : (tensor<?x3xi64>) -> tensor<?x3xi64>
  // CHECK: shardq.gather_rows %{{.*}}, %{{.*}} over @ranks "tp" outs(%{{.*}}) : (memref<?x16xf32>, memref<?x4xf32>, memref<?x20xf32, #shardq.symmetric<@ranks>>) -> ()
  shardq.gather_rows %ab, %bb over @ranks "tp" outs(%out) : (memref<?x16xf32>, memref<?x4xf32>, memref<?x20xf32, #shardq.symmetric<@ranks>>) -> ()
  // CHECK: sharding = #shardq.sharding<@ranks, tokens = contiguous ["dcp"], kv = interleave<4> ["dcp"]>
  %3 = shardq.sparse_mla q(%a, %b) kv(%kv) slots(%i)
      {scale = 0.1 : f32, sharding = #shardq.sharding<@ranks, tokens = contiguous ["dcp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x8x16xbf16>, tensor<?x8x4xbf16>, tensor<?x20xbf16>, tensor<?x12xi32>) -> tensor<?x8x16xbf16>
  return
}

// CHECK-LABEL: func @merge
func.func @merge(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %own: tensor<4xf32>, %all: tensor<8xf32>,
                 %pb: memref<6x8x16xf16>, %lb: memref<6x8xf32>, %sb: memref<8xf32>, %out: memref<3x8x16xf16>, %m: memref<3x8xf32>,
                 %inbox: memref<?x8x24xf16, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.combine_lse %{{.*}} lse(%{{.*}}) sink(%{{.*}}) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<4xf32>) -> tensor<?x4x16xbf16>
  %0 = shardq.combine_lse %p lse(%l) sink(%own) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<4xf32>) -> tensor<?x4x16xbf16>
  // CHECK: shardq.combine_lse %{{.*}} lse(%{{.*}}) sink(%{{.*}}) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  %1:2 = shardq.combine_lse %p lse(%l) sink(%all) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x16xbf16>, tensor<?x8xf32>, tensor<8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  // CHECK: shardq.combine_lse %{{.*}} lse(%{{.*}}) sink(%{{.*}}) over @ranks "dcp" outs(%{{.*}}, %{{.*}}) {scatter_tokens} : (memref<6x8x16xf16>, memref<6x8xf32>, memref<8xf32>, memref<3x8x16xf16>, memref<3x8xf32>) -> ()
  shardq.combine_lse %pb lse(%lb) sink(%sb) over @ranks "dcp" outs(%out, %m) {scatter_tokens}
      : (memref<6x8x16xf16>, memref<6x8xf32>, memref<8xf32>, memref<3x8x16xf16>, memref<3x8xf32>) -> ()
  // CHECK: shardq.push scatter_rows(%{{.*}}, %{{.*}}) into(%{{.*}}) over @ranks "dcp" channel 0 exchange 0 {capacity = 16 : i64} : (memref<6x8x16xf16>, memref<6x8xf32>), memref<?x8x24xf16, #shardq.symmetric<@ranks>>
  shardq.push scatter_rows(%pb, %lb) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {capacity = 16 : i64}
      : (memref<6x8x16xf16>, memref<6x8xf32>), memref<?x8x24xf16, #shardq.symmetric<@ranks>>
  // CHECK: shardq.merge_lse %{{.*}} into(%{{.*}}, %{{.*}}) sink(%{{.*}} : memref<8xf32>) over @ranks "dcp" : memref<?x8x24xf16, #shardq.symmetric<@ranks>>, memref<3x8x16xf16>, memref<3x8xf32>
  shardq.merge_lse %inbox into(%out, %m) sink(%sb : memref<8xf32>) over @ranks "dcp"
      : memref<?x8x24xf16, #shardq.symmetric<@ranks>>, memref<3x8x16xf16>, memref<3x8xf32>
  // CHECK: shardq.merge_lse %{{.*}} into(%{{.*}}) sink(%{{.*}} : memref<8xf32>) over @ranks "dcp" : memref<?x8x24xf16, #shardq.symmetric<@ranks>>, memref<3x8x16xf16>
  shardq.merge_lse %inbox into(%out) sink(%sb : memref<8xf32>) over @ranks "dcp"
      : memref<?x8x24xf16, #shardq.symmetric<@ranks>>, memref<3x8x16xf16>
  return
}

// CHECK-LABEL: func @padded
func.func @padded(%a: tensor<?x2x8xbf16>, %s: memref<?x2x8xf32>, %inbox: memref<?x128x8xf32, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.gather_query(%{{.*}}) over @ranks "dcp" {padded_heads} : (tensor<?x2x8xbf16>) -> tensor<?x128x8xbf16>
  %0 = shardq.gather_query(%a) over @ranks "dcp" {padded_heads} : (tensor<?x2x8xbf16>) -> tensor<?x128x8xbf16>
  // CHECK: shardq.push gather_heads(%{{.*}}) into(%{{.*}}) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64, padded_heads} :
  shardq.push gather_heads(%s) into(%inbox) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64, padded_heads}
      : (memref<?x2x8xf32>), memref<?x128x8xf32, #shardq.symmetric<@ranks>>
  return
}
