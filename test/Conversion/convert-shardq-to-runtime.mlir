// RUN: shardq-opt %s --convert-shardq-to-runtime | FileCheck %s

// CHECK-NOT: shardq.{{mesh|plan}}
shardq.mesh @ranks ["dp" = 2, "tp" = 3]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 256, bytes = 2048, generations = 2>],
  exchanges = ["first", "second"], hash = 99 : i64, slot_bytes = 4352 : i64, slots = 5 : i64}

// The context goes to what needs it, and is handed on; a public function has
// it whether it needs it or not.
// CHECK: func.func private @needs(%[[CONTEXT:.*]]: !llvm.ptr) -> index
func.func private @needs() -> index {
  // CHECK: llvm.call @shardq_rt_rank(%[[CONTEXT]])
  %0 = shardq.rank over @ranks
  return %0 : index
}
// CHECK: func.func private @needs_not() -> index
func.func private @needs_not() -> index {
  %0 = arith.constant 0 : index
  return %0 : index
}
// CHECK: func.func @public(%[[CONTEXT:.*]]: !llvm.ptr, %{{.*}}: memref<4xf32>) -> (index, index) attributes {llvm.emit_c_interface}
func.func @public(%x: memref<4xf32> {shardq.split = #shardq.split<@ranks, 0 over "tp">}) -> (index, index) {
  // CHECK: call @needs(%[[CONTEXT]])
  // CHECK: call @needs_not()
  %0 = call @needs() : () -> index
  %1 = call @needs_not() : () -> index
  return %0, %1 : index, index
}

// Each op that a private function may have and that needs the context.
// CHECK-LABEL: func.func private @private_rank(
// CHECK-SAME: !llvm.ptr) -> index
func.func private @private_rank() -> index {
  %0 = shardq.rank over @ranks "dp"
  return %0 : index
}
// CHECK-LABEL: func.func private @private_device(
// CHECK-SAME: !llvm.ptr) -> index
func.func private @private_device() -> index {
  %0 = shardq.device_context : index
  return %0 : index
}
// CHECK-LABEL: func.func private @private_workspace(
// CHECK-SAME: !llvm.ptr)
func.func private @private_workspace() -> memref<4xf32, #shardq.symmetric<@ranks>> {
  %0 = shardq.workspace @plan channel 0 () : memref<4xf32, #shardq.symmetric<@ranks>>
  return %0 : memref<4xf32, #shardq.symmetric<@ranks>>
}
// CHECK-LABEL: func.func private @private_peer(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_peer(%x: memref<4xf32, #shardq.symmetric<@ranks>>, %peer: index) {
  %0 = shardq.peer_view %x[%peer] : memref<4xf32, #shardq.symmetric<@ranks>>
  return
}
// CHECK-LABEL: func.func private @private_signal(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_signal(%rows: index) {
  shardq.signal gather_heads rows(%rows) over @ranks "tp" channel 0 exchange 1
  return
}
// CHECK-LABEL: func.func private @private_wait(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_wait(%rows: index) {
  shardq.wait gather_heads rows(%rows) over @ranks "tp" channel 0 exchange 1
  return
}
// CHECK-LABEL: func.func private @private_is_carried(
// CHECK-SAME: !llvm.ptr) -> i1
func.func private @private_is_carried() -> i1 {
  %0 = shardq.is_carried channel 0 : i1
  return %0 : i1
}
// CHECK-LABEL: func.func private @private_transfer(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_transfer(%x: memref<?x4xf32>) {
  shardq.transfer %x to %x over @ranks "tp" channel 0 exchange 1 {rows = 8 : i64} : memref<?x4xf32>
  return
}
// CHECK-LABEL: func.func private @private_aside(
// CHECK-SAME: !llvm.ptr)
// CHECK: llvm.call @shardq_rt_begin_aside(
// CHECK: llvm.call @shardq_rt_end_aside(
// CHECK: llvm.call @shardq_rt_join_aside(
func.func private @private_aside() {
  shardq.aside channel 0 {
  }
  shardq.join_aside
  return
}
// CHECK-LABEL: func.func private @private_tap(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_tap(%x: memref<4xi32>) {
  shardq.tap "x" %x : memref<4xi32>
  return
}
// CHECK-LABEL: func.func private @private_zigzag_split(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_zigzag_split(%start: memref<?xi32>, %n: index, %ids: memref<?xi32>, %offsets: memref<4xi32>) {
  shardq.zigzag_split %start decodes(%n) rows(%n) over @ranks "tp" outs(%ids, %offsets)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<4xi32>) -> ()
  return
}
// CHECK-LABEL: func.func private @private_chunk_split(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_chunk_split(%start: memref<?xi32>, %n: index, %a: memref<?xi32>, %b: memref<?xi32>) {
  shardq.chunk_split %start decodes(%n) rows(%n) over @ranks "tp" outs(%a, %b)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  return
}
// CHECK-LABEL: func.func private @private_chunk_lengths(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_chunk_lengths(%start: memref<?xi32>, %lens: memref<?xi32>, %n: index, %a: memref<?xi32>,
                                         %b: memref<?xi32>, %c: memref<?xi32>) {
  shardq.chunk_lengths head %start, %lens decodes(%n) rows(%n) over @ranks "tp" outs(%a, %b, %c)
      : (memref<?xi32>, memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  return
}
// CHECK-LABEL: func.func private @private_chunk_slots(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr, %
// CHECK: llvm.call @shardq_rt_expect(%[[CONTEXT]],
func.func private @private_chunk_slots(%at: memref<?xi64>, %start: memref<?xi32>, %n: index, %order: memref<?xi32>,
                                       %padded: memref<?xi64>) {
  shardq.chunk_slots %at by(%start) decodes(%n) local(%n) over @ranks "tp" outs(%order, %padded)
      : (memref<?xi64>, memref<?xi32>, index, index, memref<?xi32>, memref<?xi64>) -> ()
  return
}
// CHECK-LABEL: func.func private @private_shard_lengths(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_shard_lengths(%start: memref<?xi32>, %lens: memref<?xi32>, %n: index, %a: memref<?xi32>,
                                         %b: memref<?xi32>) {
  shardq.shard_lengths %start, %lens rows(%n) over @ranks "tp" outs(%a, %b)
      : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  return
}
// CHECK-LABEL: func.func private @private_expect(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_expect(%n: index, %m: index) {
  shardq.expect "rows" %n equals %m
  return
}
// CHECK-LABEL: func.func private @private_beyond_table(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_beyond_table(%n: index) {
  shardq.beyond_table block %n of %n in %n, %n
  return
}
// CHECK-LABEL: func.func private @private_no_place(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_no_place(%n: index) {
  shardq.no_place block %n of %n entry %n
  return
}
// CHECK-LABEL: func.func private @private_beyond_cache(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr, %
// CHECK: llvm.call @shardq_rt_beyond_cache(%[[CONTEXT]], %{{.*}}, %{{.*}}, %{{.*}}) : (!llvm.ptr, i64, i64, i64) -> ()
func.func private @private_beyond_cache(%n: index, %m: index, %k: index) {
  shardq.beyond_cache slot %n of %m in %k
  return
}
// CHECK-LABEL: func.func private @private_check_starts(
// CHECK-SAME: !llvm.ptr, %
func.func private @private_check_starts(%start: memref<?xi32>, %n: index) {
  shardq.check_starts %start decodes(%n) rows(%n) : memref<?xi32>
  return
}
// Callers of callers take it too, whoever stands first.
// CHECK-LABEL: func.func private @calls_caller(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr) -> index
// CHECK: call @calls(%[[CONTEXT]])
func.func private @calls_caller() -> index {
  %0 = call @calls() : () -> index
  return %0 : index
}
// CHECK-LABEL: func.func private @calls(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr) -> index
// CHECK: call @private_rank(%[[CONTEXT]])
func.func private @calls() -> index {
  %0 = call @private_rank() : () -> index
  return %0 : index
}

// The heap is memory like any other.
// CHECK-LABEL: func.func @spaces
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr
// CHECK-NOT: symmetric
// CHECK-NOT: memory_space_cast
// CHECK: llvm.call @shardq_rt_workspace(%[[CONTEXT]],
// CHECK: llvm.call @shardq_rt_peer(%[[CONTEXT]],
func.func @spaces(%rows: index, %peer: index) -> (memref<?x4xf32>, memref<?x4xf32, #shardq.symmetric<@ranks>>) {
  %0 = shardq.workspace @plan channel 0 (%rows) : memref<?x4xf32, #shardq.symmetric<@ranks>>
  %1 = memref.memory_space_cast %0 : memref<?x4xf32, #shardq.symmetric<@ranks>> to memref<?x4xf32>
  %2 = shardq.peer_view %0[%peer] : memref<?x4xf32, #shardq.symmetric<@ranks>>
  return %1, %2 : memref<?x4xf32>, memref<?x4xf32, #shardq.symmetric<@ranks>>
}

// Channel and exchange, the group's first rank, distance and size.
// CHECK-LABEL: func.func @flags
// CHECK: %[[STRIDE:.*]] = llvm.mlir.constant(3 : i64)
// CHECK: llvm.call @shardq_rt_signal(
// CHECK: llvm.call @shardq_rt_wait(
func.func @flags(%offsets: memref<3xi32>) {
  shardq.signal heads_to_tokens by(%offsets) over @ranks "dp" channel 0 exchange 1 : memref<3xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "dp" channel 0 exchange 1 : memref<3xi32>
  return
}

// Gathers and merges say how many rows each member pushes to each.
// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr, %[[ROWS:[a-z0-9]+]]: index
// CHECK: %[[N:.*]] = arith.index_cast %[[ROWS]] : index to i64
// CHECK-COUNT-3: llvm.store %[[N]]
// CHECK: llvm.call @shardq_rt_signal(
// CHECK: llvm.call @shardq_rt_wait(
func.func @rows(%rows: index) {
  shardq.signal gather_heads rows(%rows) over @ranks "tp" channel 0 exchange 1
  shardq.wait gather_heads rows(%rows) over @ranks "tp" channel 0 exchange 1
  return
}

// CHECK-LABEL: func.func @split
// CHECK: llvm.call @shardq_count_decode_rows(
// CHECK: llvm.call @shardq_zigzag_split(
// CHECK: llvm.call @shardq_split_gate(
// CHECK: arith.cmpi eq
// CHECK: llvm.call @shardq_rt_tap(
func.func @split(%start: memref<?xi32>, %lens: memref<?xi32>, %rows: index, %ids: memref<?xi32>, %offsets: memref<4xi32>) -> i1 {
  %d = shardq.count_decode_rows %start {speculative_tokens = 3 : i64} : memref<?xi32>
  shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp" outs(%ids, %offsets)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<4xi32>) -> ()
  %g = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%d) rows(%rows) {min_tokens = 1 : i64, topk = 4 : i64}
      : memref<4xi32>, memref<?xi32>, memref<?xi32>
  shardq.tap "ids" %ids : memref<?xi32>
  return %g : i1
}

// What is gathered is found by a call, and the gate is a comparison; requests that only one
// of the lists has are not gathered. Every entry is a block where no pool says otherwise.
// CHECK-LABEL: func.func @gather
// CHECK: %[[ALL:.*]] = llvm.mlir.constant(9223372036854775807 : i64)
// CHECK: linalg.fill
// CHECK: linalg.fill
// CHECK: %[[FOUND:.*]] = llvm.call @shardq_gather_blocks({{.*}}, %[[ALL]], %{{[0-9]+}}, %{{[0-9]+}}) : (!llvm.ptr, i64, i64, i64, !llvm.ptr, i64, i64, i64, i32, i64, !llvm.ptr, !llvm.ptr) -> i64
// CHECK: %[[COUNT:.*]] = arith.trunci %[[FOUND]] : i64 to i32
// CHECK: memref.store %[[COUNT]], %{{.*}}[%{{.*}}] : memref<1xi32>
// CHECK: llvm.call @shardq_gathered_table(
// A list without a first start has no tokens, and none is read.
// CHECK: %[[EMPTY:.*]] = arith.cmpi eq
// CHECK: %[[TOKENS:.*]] = scf.if %[[EMPTY]] -> (index) {
// CHECK-NEXT: scf.yield %c0
// CHECK: } else {
// CHECK: memref.load
// CHECK: %[[PREFILL:.*]] = arith.cmpi sgt, %[[TOKENS]], %{{.*}}
// CHECK: %[[FITS:.*]] = arith.cmpi sle
// CHECK: arith.andi %[[PREFILL]], %[[FITS]]
func.func @gather(%table: memref<?x?xi32>, %lens: memref<?xi32>, %start: memref<?xi32>, %blocks: memref<?xi32>,
                  %inverse: memref<?x?xi32>, %count: memref<1xi32>, %gathered: memref<?x?xi32>, %d: index) -> i1 {
  shardq.gather_blocks %table lengths(%lens) over @ranks "tp" outs(%blocks, %inverse, %count)
      {block_size = 4 : i64, interleave = 4 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x?xi32>, memref<1xi32>) -> ()
  shardq.gathered_table %inverse, %count over @ranks "tp" outs(%gathered) {block_size = 4 : i64, interleave = 4 : i64}
      : (memref<?x?xi32>, memref<1xi32>, memref<?x?xi32>) -> ()
  %g = shardq.gather_gate %start blocks(%count) decodes(%d) over @ranks "tp" {block_size = 4 : i64, max_blocks = 9 : i64}
      : memref<?xi32>, memref<1xi32>
  return %g : i1
}

// CHECK-LABEL: func.func @pool
// CHECK-SAME: %[[POOL:[a-z0-9]+]]: index,
// CHECK: %[[BLOCKS:.*]] = arith.index_cast %[[POOL]] : index to i64
// CHECK: llvm.call @shardq_gather_blocks({{.*}}, %[[BLOCKS]], %{{[0-9]+}}, %{{[0-9]+}})
func.func @pool(%pool: index, %table: memref<?x?xi32>, %lens: memref<?xi32>, %blocks: memref<?xi32>, %inverse: memref<?x?xi32>,
                %count: memref<1xi32>) {
  shardq.gather_blocks %table lengths(%lens) pool(%pool) over @ranks "tp" outs(%blocks, %inverse, %count)
      {block_size = 4 : i64, interleave = 4 : i64}
      : (memref<?x?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?x?xi32>, memref<1xi32>) -> ()
  return
}

// Chunks are found by calls, for this rank's place along the axis; lengths of requests that only one list has are 0.
// CHECK-LABEL: func.func @chunks
// CHECK-SAME: !llvm.ptr
// CHECK: llvm.call @shardq_chunk_part_rows(
// CHECK: llvm.call @shardq_rt_rank(
// CHECK: llvm.call @shardq_chunk_split(
// CHECK: linalg.fill
// CHECK: linalg.fill
// CHECK: llvm.call @shardq_chunk_lengths(
// CHECK: llvm.call @shardq_chunk_order(
func.func @chunks(%start: memref<?xi32>, %lens: memref<?xi32>, %at: memref<?xi64>, %n: index, %a: memref<?xi32>,
                  %b: memref<?xi32>, %c: memref<?xi32>, %padded: memref<?xi64>) -> index {
  %0 = shardq.count_chunk_rows head %start decodes(%n) rows(%n) over @ranks "tp" : memref<?xi32>
  shardq.chunk_split %start decodes(%n) rows(%n) over @ranks "tp" outs(%a, %b)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  shardq.chunk_lengths tail %start, %lens decodes(%n) rows(%n) over @ranks "tp" outs(%a, %b, %c)
      : (memref<?xi32>, memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  shardq.chunk_slots %at by(%start) decodes(%n) local(%n) over @ranks "tp" outs(%a, %padded)
      : (memref<?xi64>, memref<?xi32>, index, index, memref<?xi32>, memref<?xi64>) -> ()
  return %0 : index
}

// CHECK-DAG: llvm.mlir.global internal constant @shardq_plan_channels()
// CHECK-DAG: llvm.mlir.global internal constant @shardq_plan_exchanges()
// CHECK: llvm.mlir.global internal constant @shardq_plan()
// CHECK: llvm.mlir.constant(99 : i64)
// CHECK: llvm.mlir.constant(5 : i32)
// CHECK: llvm.mlir.constant(4352 : i64)
// CHECK: llvm.func @shardq_module_plan() -> !llvm.ptr
// CHECK: llvm.mlir.addressof @shardq_plan
