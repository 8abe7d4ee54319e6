// Ops of a sharded KV cache survive printing and parsing, in the pretty form, the
// generic form and bytecode.
//
// RUN: shardq-opt %s | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --mlir-print-op-generic | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --emit-bytecode | shardq-opt | FileCheck %s

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK-LABEL: func @local_lengths
func.func @local_lengths(%n: tensor<?xi32>, %b: memref<3xi32>, %out: memref<?xi32>) {
  // CHECK: shardq.local_lengths %{{.*}} over @ranks "dcp" {interleave = 64 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  %0 = shardq.local_lengths %n over @ranks "dcp" {interleave = 64 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  // CHECK: shardq.local_lengths %{{.*}} over @ranks "tp" outs(%{{.*}}) {interleave = 1 : i64} : (memref<3xi32>, memref<?xi32>) -> ()
  shardq.local_lengths %b over @ranks "tp" outs(%out) {interleave = 1 : i64} : (memref<3xi32>, memref<?xi32>) -> ()
  return
}

// CHECK-LABEL: func @draft_lengths
func.func @draft_lengths(%n: tensor<?xi32>, %b: memref<3xi32>, %out: memref<?xi32>, %step: index) {
  // CHECK: shardq.draft_lengths %{{.*}} step(%{{.*}}) : (tensor<?xi32>, index) -> tensor<?xi32>
  %0 = shardq.draft_lengths %n step(%step) : (tensor<?xi32>, index) -> tensor<?xi32>
  // CHECK: shardq.draft_lengths %{{.*}} step(%{{.*}}) outs(%{{.*}}) : (memref<3xi32>, index, memref<?xi32>) -> ()
  shardq.draft_lengths %b step(%step) outs(%out) : (memref<3xi32>, index, memref<?xi32>) -> ()
  return
}

// CHECK-LABEL: func @filter_indices
func.func @filter_indices(%i: tensor<?x8xi32>, %t: tensor<?x?xi32>, %r: tensor<?xi32>, %ib: memref<?x8xi32>,
                          %tb: memref<?x?xi32>, %rb: memref<?xi32>, %s: memref<?x8xi64>, %c: memref<?xi32>) {
  // CHECK: shardq.filter_indices %{{.*}} table(%{{.*}}) rows(%{{.*}}) over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64} : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %0 = shardq.filter_indices %i table(%t) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 64 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // Local positions, in their columns.
  // CHECK: shardq.filter_indices %{{.*}} over @ranks "dcp" {in_place, interleave = 4 : i64} : (tensor<?x8xi32>) -> (tensor<?x8xi64>, tensor<?xi32>)
  %1, %2 = shardq.filter_indices %i over @ranks "dcp" {in_place, interleave = 4 : i64}
      : (tensor<?x8xi32>) -> (tensor<?x8xi64>, tensor<?xi32>)
  // CHECK: shardq.filter_indices %{{.*}} table(%{{.*}}) rows(%{{.*}}) over @ranks "dcp" outs(%{{.*}}, %{{.*}}) {block_size = 8 : i64, block_stride_rows = 11 : i64, interleave = 4 : i64}
  shardq.filter_indices %ib table(%tb) rows(%rb) over @ranks "dcp" outs(%s, %c)
      {block_size = 8 : i64, block_stride_rows = 11 : i64, interleave = 4 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x8xi64>, memref<?xi32>) -> ()
  // CHECK: shardq.filter_indices %{{.*}} over @ranks "dcp" outs(%{{.*}}) {interleave = 4 : i64} : (memref<?x8xi32>, memref<?x8xi64>) -> ()
  shardq.filter_indices %ib over @ranks "dcp" outs(%s) {interleave = 4 : i64} : (memref<?x8xi32>, memref<?x8xi64>) -> ()
  return
}

// CHECK-LABEL: func @gather_query
func.func @gather_query(%a: tensor<?x2x8xbf16>, %b: tensor<?x2x4xbf16>, %x: memref<5x2x8xf32>,
                        %out: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.gather_query(%{{.*}}, %{{.*}}) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x4x12xbf16>
  %0 = shardq.gather_query(%a, %b) over @ranks "dcp" : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>) -> tensor<?x4x12xbf16>
  // CHECK: shardq.gather_query(%{{.*}}) over @ranks "tp" outs(%{{.*}}) : (memref<5x2x8xf32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  shardq.gather_query(%x) over @ranks "tp" outs(%out) : (memref<5x2x8xf32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// CHECK-LABEL: func @combine_lse
func.func @combine_lse(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %pb: memref<?x8x16xf16>, %lb: memref<?x8xbf16>,
                       %out: memref<?x2x16xf16>, %merged: memref<?x2xbf16>) {
  // CHECK: shardq.combine_lse %{{.*}} lse(%{{.*}}) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  %0 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  // CHECK: shardq.combine_lse %{{.*}} lse(%{{.*}}) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x4x16xbf16>, tensor<?x4xf32>)
  %1, %2 = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>}
      : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x4x16xbf16>, tensor<?x4xf32>)
  // CHECK: shardq.combine_lse %{{.*}} lse(%{{.*}}) over @ranks "tp" outs(%{{.*}}, %{{.*}}) : (memref<?x8x16xf16>, memref<?x8xbf16>, memref<?x2x16xf16>, memref<?x2xbf16>) -> ()
  shardq.combine_lse %pb lse(%lb) over @ranks "tp" outs(%out, %merged)
      : (memref<?x8x16xf16>, memref<?x8xbf16>, memref<?x2x16xf16>, memref<?x2xbf16>) -> ()
  return
}

// CHECK-LABEL: func @merge_lse
func.func @merge_lse(%inbox: memref<?x2x24xf16, #shardq.symmetric<@ranks>>, %out: memref<?x2x16xf16>, %merged: memref<?x2xf32>) {
  // CHECK: shardq.merge_lse %{{.*}} into(%{{.*}}) over @ranks "tp" : memref<?x2x24xf16, #shardq.symmetric<@ranks>>, memref<?x2x16xf16>
  shardq.merge_lse %inbox into(%out) over @ranks "tp" : memref<?x2x24xf16, #shardq.symmetric<@ranks>>, memref<?x2x16xf16>
  // CHECK: shardq.merge_lse %{{.*}} into(%{{.*}}, %{{.*}}) over @ranks "tp" {lse = #shardq.lse<base = two>} : memref<?x2x24xf16, #shardq.symmetric<@ranks>>, memref<?x2x16xf16>, memref<?x2xf32>
  shardq.merge_lse %inbox into(%out, %merged) over @ranks "tp" {lse = #shardq.lse<base = two>}
      : memref<?x2x24xf16, #shardq.symmetric<@ranks>>, memref<?x2x16xf16>, memref<?x2xf32>
  return
}

// CHECK-LABEL: func @push
func.func @push(%a: memref<?x2x8xf32>, %b: memref<?x2x4xf32>, %p: memref<?x8x16xf32>, %l: memref<?x8xbf16>, %n: index,
                %q: memref<?x8x12xf32, #shardq.symmetric<@ranks>>, %o: memref<?x2x20xf32, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.push gather_heads(%{{.*}}, %{{.*}}) into(%{{.*}}) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64} : (memref<?x2x8xf32>, memref<?x2x4xf32>), memref<?x8x12xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%a, %b) into(%q) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>, memref<?x2x4xf32>), memref<?x8x12xf32, #shardq.symmetric<@ranks>>
  // CHECK: shardq.signal gather_heads rows(%{{.*}}) over @ranks "tp" channel 0 exchange 0
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  // CHECK: shardq.wait gather_heads rows(%{{.*}}) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  // CHECK: shardq.push scatter_heads(%{{.*}}, %{{.*}}) into(%{{.*}}) over @ranks "tp" channel 1 exchange 1 {capacity = 16 : i64} : (memref<?x8x16xf32>, memref<?x8xbf16>), memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  shardq.push scatter_heads(%p, %l) into(%o) over @ranks "tp" channel 1 exchange 1 {capacity = 16 : i64}
      : (memref<?x8x16xf32>, memref<?x8xbf16>), memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  return
}

// One base wherever LSEs go, also around a loop.
// CHECK-LABEL: func @carried_lse
func.func @carried_lse(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %begin: index, %end: index) -> tensor<?x8xf32> {
  // CHECK: scf.for
  %0 = scf.for %i = %begin to %end step %begin iter_args(%carried = %l) -> tensor<?x8xf32> {
    // CHECK: shardq.combine_lse %{{.*}} lse(%{{.*}}) over @ranks "tp" {lse = #shardq.lse<base = two>}
    %1, %2 = shardq.combine_lse %p lse(%carried) over @ranks "tp" {lse = #shardq.lse<base = two>}
        : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
    scf.yield %2 : tensor<?x8xf32>
  }
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func @merge_forms
func.func @merge_forms(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %pb: memref<?x8x16xf16>, %lb: memref<?x8xbf16>,
                       %share: memref<?x8x16xf32>, %all: memref<?x8xbf16>, %out: memref<?x2x16xbf16>,
                       %inbox: memref<?x2x16xf32, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.combine_lse %{{.*}} lse(%{{.*}}) over @ranks "tp" {transport = #shardq.transport<ag_ar, "a reason">} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "tp" {transport = #shardq.transport<ag_ar, "a reason">}
      : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  // CHECK: shardq.weigh_partial %{{.*}} lses(%{{.*}}) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xf32>
  %2 = shardq.weigh_partial %p lses(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xf32>
  // CHECK: shardq.weigh_partial %{{.*}} lses(%{{.*}}) over @ranks "tp" outs(%{{.*}}, %{{.*}}) {lse = #shardq.lse<base = two>} : (memref<?x8x16xf16>, memref<?x8xbf16>, memref<?x8x16xf32>, memref<?x8xbf16>) -> ()
  shardq.weigh_partial %pb lses(%lb) over @ranks "tp" outs(%share, %all) {lse = #shardq.lse<base = two>}
      : (memref<?x8x16xf16>, memref<?x8xbf16>, memref<?x8x16xf32>, memref<?x8xbf16>) -> ()
  // CHECK: shardq.reduce_heads %{{.*}} over @ranks "tp" : (tensor<?x8x16xf32>) -> tensor<?x2x16xbf16>
  %3 = shardq.reduce_heads %2 over @ranks "tp" : (tensor<?x8x16xf32>) -> tensor<?x2x16xbf16>
  // CHECK: shardq.reduce_heads %{{.*}} over @ranks "dcp" : (tensor<?x8x16xbf16>) -> tensor<?x4x16xf16>
  %4 = shardq.reduce_heads %p over @ranks "dcp" : (tensor<?x8x16xbf16>) -> tensor<?x4x16xf16>
  // CHECK: shardq.reduce_heads %{{.*}} over @ranks "tp" outs(%{{.*}}) : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  shardq.reduce_heads %share over @ranks "tp" outs(%out) : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  // CHECK: shardq.push scatter_heads(%{{.*}}) into(%{{.*}}) over @ranks "tp" channel 0 exchange 0 {capacity = 16 : i64, transport = #shardq.transport<nccl>} : (memref<?x8x16xf32>), memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  shardq.push scatter_heads(%share) into(%inbox) over @ranks "tp" channel 0 exchange 0
      {capacity = 16 : i64, transport = #shardq.transport<nccl>} : (memref<?x8x16xf32>), memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  // CHECK: shardq.sum_partials %{{.*}} into(%{{.*}}) over @ranks "tp" : memref<?x2x16xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xbf16>
  shardq.sum_partials %inbox into(%out) over @ranks "tp" : memref<?x2x16xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xbf16>
  return
}
