// What types of inboxes and destinations say of rows, and what sizes leave open, of exchanges.
//
// RUN: shardq-opt %s --convert-shardq-to-loops | FileCheck %s --check-prefix=LOOPS
// RUN: shardq-opt %s --convert-shardq-to-gpu | FileCheck %s --check-prefix=GPU

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"gather", offset = 0, bytes = 4194304, generations = 1>,
              #shardq.channel<"scatter", offset = 4194304, bytes = 4194304, generations = 1>,
              #shardq.channel<"sums", offset = 8388608, bytes = 4194304, generations = 1>,
              #shardq.channel<"tokens", offset = 12582912, bytes = 4194304, generations = 1>],
  exchanges = ["gather", "merge", "sum", "tokens"], hash = 7 : i64, slot_bytes = 16777216 : i64, slots = 1 : i64}

// Rows that types of inboxes and destinations promise are compared with those that are sent.
// LOOPS-LABEL: func.func @promised
// LOOPS: shardq.expect "rows of source 0 of gather_heads of shardq.push" %dim{{.*}} equals %c8
// LOOPS: call @shardq_push
// LOOPS: %[[EACH:.*]] = arith.divui %[[ALL:.*]], %c2
// LOOPS: shardq.expect "rows of 'out' of shardq.merge_lse" %c8{{.*}} equals %[[EACH]]
// LOOPS: shardq.expect "rows of 'merged' of shardq.merge_lse"
// LOOPS: call @shardq_merge_lse
// LOOPS: shardq.expect "rows of 'out' of shardq.sum_partials"
// LOOPS: call @shardq_sum_partials
//
// GPU-LABEL: func.func @promised
// GPU: shardq.expect "rows of source 0 of gather_heads of shardq.push"
// GPU: shardq.expect "rows of 'out' of shardq.merge_lse"
// GPU: shardq.expect "rows of 'merged' of shardq.merge_lse"
// GPU: shardq.expect "rows of 'out' of shardq.sum_partials"
// GPU-NOT: shardq.expect
// GPU: return
func.func @promised(%q: memref<?x4x64xf32>, %out: memref<8x4x64xf32>, %merged: memref<?x4xf32>, %sum: memref<8x4x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %rows = memref.dim %q, %c0 : memref<?x4x64xf32>
  %all = arith.muli %rows, %c2 : index
  %inbox = shardq.workspace @plan channel 0 : memref<8x8x64xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%q) into(%inbox) over @ranks "dcp" channel 0 exchange 0 {capacity = 1024 : i64}
      : (memref<?x4x64xf32>), memref<8x8x64xf32, #shardq.symmetric<@ranks>>
  %partials = shardq.workspace @plan channel 1 (%all) : memref<?x4x68xf32, #shardq.symmetric<@ranks>>
  shardq.merge_lse %partials into(%out, %merged) over @ranks "dcp"
      : memref<?x4x68xf32, #shardq.symmetric<@ranks>>, memref<8x4x64xf32>, memref<?x4xf32>
  %sums = shardq.workspace @plan channel 2 (%all) : memref<?x4x64xf32, #shardq.symmetric<@ranks>>
  shardq.sum_partials %sums into(%sum) over @ranks "dcp"
      : memref<?x4x64xf32, #shardq.symmetric<@ranks>>, memref<8x4x64xbf16>
  return
}

// Nothing is, where sizes are made of those of the source.
// LOOPS-LABEL: func.func @follows
// LOOPS-NOT: shardq.expect
// LOOPS: return
//
// GPU-LABEL: func.func @follows
// GPU-NOT: shardq.expect
// GPU: return
func.func @follows(%partial: memref<?x8x64xf32>, %lse: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %rows = memref.dim %partial, %c0 : memref<?x8x64xf32>
  %again = memref.dim %partial, %c0 : memref<?x8x64xf32>
  %all = arith.muli %rows, %c2 : index
  %share = arith.divui %again, %c2 : index
  %shares = arith.divui %rows, %c2 : index
  %whole = arith.muli %shares, %c2 : index
  %out = memref.alloc(%again) : memref<?x4x64xf32>
  %merged = memref.alloc(%rows) : memref<?x4xf32>
  %own = memref.alloc(%share) : memref<?x8x64xf32>
  %inbox = shardq.workspace @plan channel 1 (%all) : memref<?x4x68xf32, #shardq.symmetric<@ranks>>
  shardq.merge_lse %inbox into(%out, %merged) over @ranks "dcp"
      : memref<?x4x68xf32, #shardq.symmetric<@ranks>>, memref<?x4x64xf32>, memref<?x4xf32>
  %scattered = shardq.workspace @plan channel 2 (%whole) : memref<?x8x68xf32, #shardq.symmetric<@ranks>>
  shardq.merge_lse %scattered into(%own) over @ranks "dcp"
      : memref<?x8x68xf32, #shardq.symmetric<@ranks>>, memref<?x8x64xf32>
  return
}

// How many of a step's rows are this rank's only memory says: a kernel compares them on a GPU.
// LOOPS-LABEL: func.func @tokens
// LOOPS: shardq.expect "rows of source 0 of heads_to_tokens of shardq.push"
// LOOPS: memref.load %arg2
// LOOPS: memref.load %arg2
// LOOPS: shardq.expect "rows of 'inbox' of shardq.push" %c8
// LOOPS: call @shardq_push
//
// GPU-LABEL: func.func @tokens
// GPU: shardq.expect "rows of source 0 of heads_to_tokens of shardq.push"
// GPU-NOT: shardq.expect
// The kernel that pushes, and the one that packs for NCCL.
// GPU: gpu.launch
// GPU-COUNT-2: llvm.call @shardq_device_expect
// GPU-NOT: llvm.call @shardq_device_expect
// GPU: return
func.func @tokens(%q: memref<?x4x64xf32>, %ids: memref<?xi32>, %offsets: memref<3xi32>, %d: index) {
  %inbox = shardq.workspace @plan channel 3 : memref<8x8x64xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) into(%inbox) over @ranks "dcp" channel 3 exchange 3
      {capacity = 1024 : i64}
      : (memref<?x4x64xf32>), memref<?xi32>, memref<3xi32>, memref<8x8x64xf32, #shardq.symmetric<@ranks>>
  return
}
