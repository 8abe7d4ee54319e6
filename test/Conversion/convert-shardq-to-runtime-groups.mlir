// RUN: shardq-opt %s --convert-shardq-to-runtime | FileCheck %s

// The plan says which ranks exchange on a channel, by the exchanges themselves, so that
// the runtime can tell whether they are on one host.
shardq.mesh @ranks ["dp" = 2, "tp" = 3]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"inner", offset = 0, bytes = 256, generations = 2>,
              #shardq.channel<"outer", offset = 512, bytes = 256, generations = 2>,
              #shardq.channel<"both", offset = 1024, bytes = 256, generations = 2>,
              #shardq.channel<"unused", offset = 1536, bytes = 256, generations = 2>],
  exchanges = ["first"], hash = 1 : i64, slot_bytes = 2048 : i64, slots = 1 : i64}

func.func @exchange(%rows: index, %box: memref<?x4xf32>) {
  shardq.signal gather_heads rows(%rows) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_heads rows(%rows) over @ranks "tp" channel 0 exchange 0
  // What kernels signal is in their transfers.
  shardq.transfer %box to %box over @ranks "dp" channel 1 exchange 0 {rows = 4 : i64} : memref<?x4xf32>
  shardq.signal gather_heads rows(%rows) over @ranks "tp" channel 2 exchange 0
  shardq.signal gather_heads rows(%rows) over @ranks "dp" channel 2 exchange 0
  return
}

// CHECK-LABEL: global internal constant @shardq_plan_channels()
// CHECK: %[[C:.*]] = llvm.mlir.constant(1 : i32) : i32
// CHECK-NEXT: llvm.insertvalue %[[C]], {{.*}}[0, 5]
// CHECK: %[[C:.*]] = llvm.mlir.constant(3 : i32) : i32
// CHECK-NEXT: llvm.insertvalue %[[C]], {{.*}}[0, 6]
// CHECK: %[[C:.*]] = llvm.mlir.constant(3 : i32) : i32
// CHECK-NEXT: llvm.insertvalue %[[C]], {{.*}}[1, 5]
// CHECK: %[[C:.*]] = llvm.mlir.constant(2 : i32) : i32
// CHECK-NEXT: llvm.insertvalue %[[C]], {{.*}}[1, 6]
// Any ranks: exchanges that differ, and none.
// CHECK: [2, 4]
// CHECK-NEXT: %[[C:.*]] = llvm.mlir.constant(0 : i32) : i32
// CHECK-NEXT: llvm.insertvalue %[[C]], {{.*}}[2, 5]
// CHECK: [3, 4]
// CHECK-NEXT: %[[C:.*]] = llvm.mlir.constant(0 : i32) : i32
// CHECK-NEXT: llvm.insertvalue %[[C]], {{.*}}[3, 5]
// CHECK-LABEL: global internal constant @shardq_plan()
// CHECK: %[[C:.*]] = llvm.mlir.constant(6 : i32) : i32
// CHECK-NEXT: llvm.insertvalue %[[C]], {{.*}}[7]
