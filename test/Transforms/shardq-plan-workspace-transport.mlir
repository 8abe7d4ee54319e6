// RUN: shardq-opt %s --split-input-file --shardq-plan-workspace --verify-diagnostics | FileCheck %s

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

// The channel says what the runtime is to do, without the exchange's reason.

// CHECK: shardq.plan {{.*}}#shardq.channel<"scatter_heads 2x16xf32 by nccl", offset = 0, bytes = 4194304, generations = 2, transport = <nccl>>]
// CHECK-NOT: hash = [[HASH]]
// CHECK-LABEL: func @reduce
shardq.mesh @ranks ["tp" = 4]
func.func @reduce(%s: memref<?x8x16xf32>, %out: memref<?x2x16xbf16>) {
  // CHECK: shardq.push {{.*}} transport = #shardq.transport<nccl, "far away">
  shardq.reduce_heads %s over @ranks "tp" outs(%out) {transport = #shardq.transport<nccl, "far away">}
      : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  return
}

// -----

// Each travels as it says. What travels alike shares a channel; the rest has the same generations
// as without, since an exchange acknowledges whichever way it goes.

// CHECK: shardq.plan {{.*}}channels = [#shardq.channel<"scatter_heads 2x16xf32 by nccl", offset = 0, bytes = 4194304, generations = 1, transport = <nccl>>,
// CHECK-SAME: #shardq.channel<"scatter_heads 2x16xf32", offset = 4194304, bytes = 4194304, generations = 1>]
// CHECK-LABEL: func @both
shardq.mesh @ranks ["tp" = 4]
func.func @both(%s: memref<?x8x16xf32>, %a: memref<?x2x16xbf16>, %b: memref<?x2x16xbf16>, %c: memref<?x2x16xbf16>,
                %d: memref<?x2x16xbf16>) {
  // CHECK: shardq.push {{.*}} channel 0 exchange 0 {{.*}} transport = #shardq.transport<nccl>
  shardq.reduce_heads %s over @ranks "tp" outs(%a) {transport = #shardq.transport<nccl>}
      : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  // CHECK: shardq.push {{.*}} channel 1 exchange 1 {{.*}} transport = #shardq.transport<direct>
  shardq.reduce_heads %s over @ranks "tp" outs(%b) {transport = #shardq.transport<direct>}
      : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  // CHECK: shardq.push {{.*}} channel 0 exchange 2 {{.*}} transport = #shardq.transport<nccl, "again">
  shardq.reduce_heads %s over @ranks "tp" outs(%c) {transport = #shardq.transport<nccl, "again">}
      : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  // CHECK: shardq.push {{.*}} channel 1 exchange 3 {capacity = 32768 : i64}
  shardq.reduce_heads %s over @ranks "tp" outs(%d) : (memref<?x8x16xf32>, memref<?x2x16xbf16>) -> ()
  return
}
