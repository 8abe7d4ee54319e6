// RUN: shardq-opt %s --split-input-file --shardq-plan-workspace="max-tokens=10 max-requests=4" | FileCheck %s
// RUN: shardq-opt %s --split-input-file --shardq-plan-workspace="max-tokens=10 max-requests=4" --shardq-verify-protocol -o /dev/null

// Shards of a step's rows are planned for as many rows as a step has, rounded up to a multiple of the
// ranks, and others for one step of each rank. What a rank waits for is what it is sent.
shardq.mesh @ranks ["dcp" = 4]

// CHECK: shardq.plan @plan over @ranks {channels = [#shardq.channel<"gather_rows 2x64xbf16", offset = 0, bytes = 3072, generations = 1>,
// CHECK-SAME: #shardq.channel<"gather_rows 2x64xbf16", offset = 3072, bytes = 18432, generations = 1>,
// CHECK-SAME: #shardq.channel<"scatter_rows 2x24xbf16", offset = 21504, bytes = 1280, generations = 1>]
// CHECK-LABEL: func @layer
// CHECK: shardq.push gather_rows(%{{.*}}, %{{.*}}) into(%{{.*}}) over @ranks "dcp" channel 0 exchange 0 {capacity = 12 : i64}
// CHECK: shardq.push gather_rows(%{{.*}}) into(%{{.*}}) over @ranks "dcp" channel 1 exchange 1 {capacity = 72 : i64}
// CHECK: %[[ROWS:.*]] = arith.divui %{{.*}}, %[[RANKS:.*]] : index
// CHECK: %[[ALL:.*]] = arith.muli %[[ROWS]]
// CHECK: %[[INBOX:.*]] = shardq.workspace @plan channel 2(%[[ALL]])
// CHECK: shardq.push scatter_rows(%{{.*}}, %{{.*}}) into(%[[INBOX]]) over @ranks "dcp" channel 2 exchange 2 {capacity = 12 : i64}
// CHECK: shardq.signal scatter_rows rows(%[[ROWS]])
// CHECK: shardq.wait scatter_rows rows(%[[ROWS]])
// CHECK: shardq.merge_lse %[[INBOX]] into(%{{.*}}) sink(%{{.*}} : memref<2xf32>)
func.func @layer(%a: memref<?x2x32xbf16>, %b: memref<?x2x32xbf16>, %c: memref<?x2x64xbf16>, %sink: memref<2xf32>, %rows: index,
                 %all: index, %own: memref<?x2x16xbf16>) {
  %c4 = arith.constant 4 : index
  %total = arith.muli %rows, %c4 : index
  %g = memref.alloc(%total) : memref<?x2x64xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_rows %a, %b over @ranks "dcp" outs(%g) {token_shards}
      : (memref<?x2x32xbf16>, memref<?x2x32xbf16>, memref<?x2x64xbf16, #shardq.symmetric<@ranks>>) -> ()
  %h = memref.alloc(%all) : memref<?x2x64xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_rows %c over @ranks "dcp" outs(%h) : (memref<?x2x64xbf16>, memref<?x2x64xbf16, #shardq.symmetric<@ranks>>) -> ()
  %p = memref.alloc(%total) : memref<?x2x16xbf16>
  %l = memref.alloc(%total) : memref<?x2xf32>
  shardq.combine_lse %p lse(%l) sink(%sink) over @ranks "dcp" outs(%own) {scatter_tokens}
      : (memref<?x2x16xbf16>, memref<?x2xf32>, memref<2xf32>, memref<?x2x16xbf16>) -> ()
  return
}

// -----

// Rows that the ranks might not be able to share: what is awaited is one more then, which is an error there.
shardq.mesh @ranks ["dcp" = 4]

// CHECK-LABEL: func @unknown
// CHECK: %[[ALL:.*]] = memref.dim
// CHECK: %[[ROWS:.*]] = arith.divui %[[ALL]], %[[RANKS:.*]] : index
// CHECK: %[[REST:.*]] = arith.remui %[[ALL]], %[[RANKS]] : index
// CHECK: %[[MORE:.*]] = arith.minui %[[REST]], %c1
// CHECK: %[[AWAITED:.*]] = arith.addi %[[ROWS]], %[[MORE]]
// CHECK: shardq.signal scatter_rows rows(%[[ROWS]])
// CHECK: shardq.wait scatter_rows rows(%[[AWAITED]])
func.func @unknown(%p: memref<?x2x16xbf16>, %l: memref<?x2xf32>, %own: memref<?x2x16xbf16>) {
  shardq.combine_lse %p lse(%l) over @ranks "dcp" outs(%own) {scatter_tokens}
      : (memref<?x2x16xbf16>, memref<?x2xf32>, memref<?x2x16xbf16>) -> ()
  return
}
