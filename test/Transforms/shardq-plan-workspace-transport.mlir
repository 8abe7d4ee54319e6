// RUN: shardq-opt %s --split-input-file --shardq-plan-workspace | FileCheck %s

// A push has the transport of its exchange; what is not direct is part of the
// hash. Sums have an inbox like merges, without an LSE.

// CHECK: shardq.plan @plan over @ranks {{.*}}#shardq.channel<"scatter_heads 2x16xf32", {{.*}} hash = [[HASH:[0-9]+]] : i64
shardq.mesh @ranks ["tp" = 4]
// CHECK-LABEL: func @reduce
// CHECK-SAME: %[[S:[a-z0-9]+]]: memref<?x8x16xf32>, %[[OUT:[a-z0-9]+]]: memref<?x2x16xbf16>
func.func @reduce(%s: memref<?x8x16xf32>, %out: memref<?x2x16xbf16>) {
  // CHECK: %[[T:.*]] = memref.dim %[[S]]
  // CHECK: %[[ALL:.*]] = arith.muli %[[T]], %c4
  // CHECK: %[[IN:.*]] = shardq.workspace @plan channel 0(%[[ALL]]) : memref<?x2x16xf32, #shardq.symmetric<@ranks>>
  // CHECK-NEXT: shardq.push scatter_heads(%[[S]]) into(%[[IN]]) over @ranks "tp" channel 0 exchange 0 {capacity = 32768 : i64, transport = #shardq.transport<direct, "a reason">}
  // CHECK-NEXT: shardq.signal scatter_heads rows(%[[T]])
  // CHECK-NEXT: shardq.wait scatter_heads rows(%[[T]])
  // CHECK-NEXT: shardq.sum_partials %[[IN]] into(%[[OUT]]) over @ranks "tp"
  shardq.reduce_heads %s over @ranks "tp" outs(%out) {transport = #shardq.transport<direct, "a reason">}
      : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  return
}

// -----

// CHECK: shardq.plan
// CHECK-NOT: hash = [[HASH]]
// CHECK-LABEL: func @reduce
shardq.mesh @ranks ["tp" = 4]
func.func @reduce(%s: memref<?x8x16xf32>, %out: memref<?x2x16xbf16>) {
  // CHECK: shardq.push {{.*}} transport = #shardq.transport<nccl>
  shardq.reduce_heads %s over @ranks "tp" outs(%out) {transport = #shardq.transport<nccl>}
      : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  return
}
