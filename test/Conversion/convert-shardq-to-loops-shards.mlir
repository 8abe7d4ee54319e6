// Contiguous token shards and sinks of merges on a CPU: loops, and calls of the runtime.
//
// RUN: shardq-opt %s --convert-shardq-to-loops | FileCheck %s
// RUN: shardq-opt %s --convert-shardq-to-loops --convert-shardq-to-runtime | FileCheck %s --check-prefix=RUNTIME

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// RUNTIME: llvm.func @shardq_shard_lengths(!llvm.ptr, !llvm.ptr, i64, i64, i64, !llvm.ptr, !llvm.ptr)

// CHECK-LABEL: func @layer
func.func @layer(%start: memref<?xi32>, %lens: memref<?xi32>, %starts: memref<?xi32>, %lengths: memref<?xi32>, %rows: index,
                 %q: memref<?x4x16xbf16>, %r: memref<?x4x8xbf16>, %all: memref<?x4x24xbf16, #shardq.symmetric<@ranks>>,
                 %p: memref<?x4x16xbf16>, %l: memref<?x4xf32>, %inbox: memref<?x4x24xbf16, #shardq.symmetric<@ranks>>,
                 %out: memref<?x4x16xbf16>, %sink: memref<4xf32>) {
  // CHECK: shardq.shard_lengths
  // RUNTIME: linalg.fill
  // RUNTIME: %[[RANK:.*]] = llvm.call @shardq_rt_rank
  // RUNTIME: %[[ME:.*]] = arith.remui
  // RUNTIME: llvm.call @shardq_shard_lengths({{.*}}, %[[ME]], {{.*}})
  shardq.shard_lengths %start, %lens rows(%rows) over @ranks "dcp" outs(%starts, %lengths)
      : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  // CHECK: call @[[GATHER:shardq_push_4x16_4x8_4x24_bf16]](
  shardq.push gather_rows(%q, %r) into(%all) over @ranks "dcp" channel 0 exchange 0 {capacity = 16 : i64}
      : (memref<?x4x16xbf16>, memref<?x4x8xbf16>), memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  // CHECK: call @[[SCATTER:shardq_push_4x16_4_4x24_bf16]](
  shardq.push scatter_rows(%p, %l) into(%inbox) over @ranks "dcp" channel 1 exchange 1 {capacity = 16 : i64}
      : (memref<?x4x16xbf16>, memref<?x4xf32>), memref<?x4x24xbf16, #shardq.symmetric<@ranks>>
  // CHECK: call @[[MERGE:shardq_merge_lse_4x24_4x16.*_bf16]](
  shardq.merge_lse %inbox into(%out) sink(%sink : memref<4xf32>) over @ranks "dcp"
      : memref<?x4x24xbf16, #shardq.symmetric<@ranks>>, memref<?x4x16xbf16>
  return
}

// The columns of the second part lie behind those of the first.
// CHECK: func private @[[GATHER]](
// CHECK: %[[COLUMN:.*]] = arith.addi %c16
// CHECK: memref.store

// Half of the rows for each member, with all heads.
// CHECK: func private @[[SCATTER]](
// CHECK: %[[ROWS:.*]] = arith.divui %{{.*}}, %c2
// CHECK: arith.muli %{{.*}}, %[[ROWS]]

// The sink's weight is no member's.
// CHECK: func private @[[MERGE]](
// CHECK: %[[SUM:.*]] = memref.load %{{.*}} : memref<?xf32, strided<[1], offset: ?>>
// CHECK: math.exp2
// CHECK: arith.divf
