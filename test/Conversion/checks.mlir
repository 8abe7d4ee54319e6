// What a call may be given that no type says: rows that differ, tokens without a place, starts
// that do not add up.
//
// RUN: shardq-opt %s --convert-shardq-to-loops | FileCheck %s --check-prefix=LOOPS
// RUN: shardq-opt %s --convert-shardq-to-loops --convert-shardq-to-runtime | FileCheck %s --check-prefix=CALLS
// RUN: shardq-opt %s --convert-shardq-to-gpu | FileCheck %s --check-prefix=GPU

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// Each list is compared with the first, and kernels get the rows that all have; results beyond are filled.
// LOOPS-LABEL: func.func @attention
// LOOPS: %[[REQ:.*]] = memref.dim %arg2, %c0
// LOOPS: %[[TOPK:.*]] = memref.dim %arg0, %c0
// LOOPS: shardq.expect "rows of 'req' of shardq.convert_indices" %[[REQ]] equals %[[TOPK]]
// LOOPS: arith.minsi
// LOOPS: linalg.fill
// LOOPS: call @shardq_convert_indices
// LOOPS: shardq.expect "rows of 'req' of shardq.filter_indices"
// LOOPS: call @shardq_filter_indices
// LOOPS: shardq.expect "rows of 'slots' of shardq.sparse_mla"
// LOOPS: shardq.expect "rows of 'topk_length' of shardq.sparse_mla"
// LOOPS: call @shardq_sparse_mla
// LOOPS: shardq.expect "rows of 'slots' of shardq.write_rows"
// LOOPS: call @shardq_write_rows
//
// Equal texts are one.
// CALLS: llvm.mlir.global internal constant @{{.*}}("rows of 'slots' of shardq.write_rows\00")
// CALLS-NOT: ("rows of 'slots' of shardq.write_rows\00")
// CALLS-LABEL: func.func @attention(
// CALLS-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr
// CALLS: llvm.call @shardq_rt_expect(%[[CONTEXT]], %{{.*}}, %{{.*}}, %{{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64) -> ()
//
// One comparison of the host in front of each launch.
// GPU-LABEL: func.func @attention
// GPU: shardq.expect "rows of 'req' of shardq.convert_indices"
// GPU-NOT: shardq.expect
// GPU: gpu.launch
// GPU: shardq.expect "rows of 'req' of shardq.filter_indices"
// GPU: gpu.launch
// GPU: shardq.expect "rows of 'slots' of shardq.sparse_mla"
// GPU: shardq.expect "rows of 'topk_length' of shardq.sparse_mla"
// GPU: gpu.launch
// GPU: shardq.expect "rows of 'slots' of shardq.write_rows"
// GPU: gpu.launch
// A row for whose slot there is no place, told by one thread.
// GPU: scf.if
// GPU-NEXT: memref.load %{{.*}} : memref<?xi64>
// GPU-NEXT: %[[SLOT:.*]] = arith.index_cast
// GPU-NEXT: %[[BEYOND:.*]] = arith.cmpi sle, %{{.*}}, %[[SLOT]] : index
// GPU-NEXT: scf.if %[[BEYOND]]
// GPU: llvm.call @shardq_device_beyond_cache({{.*}}) : (!llvm.ptr, i64, i64, i64) -> ()
func.func @attention(%topk: memref<?x8xi32>, %table: memref<?x?xi32>, %req: memref<?xi32>, %slots: memref<?x8xi32>,
                     %q: memref<?x16x576xbf16>, %kv: memref<?x576xbf16>, %n: memref<?xi32>, %out: memref<?x16x512xbf16>,
                     %at: memref<?xi64>, %new: memref<?x576xbf16>) {
  shardq.convert_indices %topk table(%table) rows(%req) outs(%slots) {block_size = 64 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x8xi32>) -> ()
  shardq.filter_indices %topk table(%table) rows(%req) over @ranks "dcp" outs(%slots) {block_size = 64 : i64, interleave = 4 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x8xi32>) -> ()
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) topk_length(%n) outs(%out) {scale = 0.5 : f32}
      : (memref<?x16x576xbf16>, memref<?x576xbf16>, memref<?x8xi32>, memref<?xi32>, memref<?x16x512xbf16>) -> ()
  shardq.write_rows %new at(%at) into(%kv) : (memref<?x576xbf16>, memref<?xi64>, memref<?x576xbf16>) -> ()
  shardq.write_rows %new at(%at) into(%kv) : (memref<?x576xbf16>, memref<?xi64>, memref<?x576xbf16>) -> ()
  return
}

// Nothing is compared where it is known: static sizes, one value for several buffers, a buffer with itself, sizes
// of one another.
// LOOPS-LABEL: func.func @known
// LOOPS-NOT: shardq.expect
// LOOPS-NOT: arith.minsi
// LOOPS-NOT: linalg.fill
// LOOPS: return
//
// GPU-LABEL: func.func @known
// GPU-NOT: shardq.expect
// GPU: return
func.func @known(%topk: memref<?x8xi32>, %table: memref<?x?xi32>, %rows: index, %slots: memref<?x8xi32>, %s: memref<4x3xi32>,
                 %r: memref<4xi32>, %o: memref<4x3xi32>, %n: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %a = memref.alloc(%rows) : memref<?xi32>
  %b = memref.alloc(%rows) : memref<?xi64>
  shardq.token_slots table(%table) rows(%a, %a) outs(%b) {block_size = 4 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?xi64>) -> ()
  shardq.convert_indices %s table(%table) rows(%r) outs(%o) {block_size = 4 : i64}
      : (memref<4x3xi32>, memref<?x?xi32>, memref<4xi32>, memref<4x3xi32>) -> ()
  %d = memref.dim %topk, %c0 : memref<?x8xi32>
  %req = memref.alloc(%d) : memref<?xi32>
  %to = memref.alloc(%d) : memref<?x8xi32>
  %cast = memref.cast %topk : memref<?x8xi32> to memref<?x8xi32, strided<[?, ?], offset: ?>>
  shardq.convert_indices %cast table(%table) rows(%req) outs(%to) {block_size = 4 : i64}
      : (memref<?x8xi32, strided<[?, ?], offset: ?>>, memref<?x?xi32>, memref<?xi32>, memref<?x8xi32>) -> ()
  return
}

// Of rows that only the device counts, the host compares none.
// GPU-LABEL: func.func @counted
// GPU-NOT: shardq.expect "rows
// GPU: return
func.func @counted(%start: memref<?xi32>, %x: memref<?xi32>, %table: memref<?x?xi32>, %out: memref<?xi64>, %all: index) {
  %d = shardq.count_decode_rows %start : memref<?xi32>
  %req = memref.alloc(%all) : memref<?xi32>
  %visible = memref.alloc(%all) : memref<?xi32>
  shardq.expand_rows %start, %x to %all outs(%req, %visible)
      : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  %some = memref.subview %req[0] [%d] [1] : memref<?xi32> to memref<?xi32, strided<[1]>>
  shardq.token_slots table(%table) rows(%some, %visible) outs(%out) {block_size = 4 : i64}
      : (memref<?x?xi32>, memref<?xi32, strided<[1]>>, memref<?xi32>, memref<?xi64>) -> ()
  return
}

// Nor what a step hands in for a branch that only the device knows to be taken. On the CPU who is there looks.
// GPU-LABEL: func.func @untaken
// GPU-NOT: shardq.expect
// GPU: return
//
// LOOPS-LABEL: func.func @untaken
// LOOPS: scf.if
// LOOPS: shardq.expect "rows of 'req' of shardq.convert_indices"
func.func @untaken(%start: memref<?xi32>, %topk: memref<?x4xi32>, %table: memref<?x?xi32>, %req: memref<?xi32>, %to: memref<?x4xi32>) {
  %c0 = arith.constant 0 : index
  %d = shardq.count_decode_rows %start : memref<?xi32>
  %taken = arith.cmpi sgt, %d, %c0 : index
  scf.if %taken {
    shardq.convert_indices %topk table(%table) rows(%req) outs(%to) {block_size = 4 : i64}
        : (memref<?x4xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x4xi32>) -> ()
  }
  return
}

// What a program compares itself: on a GPU no numbers that only the device knows, and none of a branch of its own.
// GPU-LABEL: func.func @compared
// GPU: shardq.expect "rows of one" %arg1 equals %arg2
// GPU-NOT: shardq.expect
// GPU: return
//
// LOOPS-LABEL: func.func @compared
// LOOPS: shardq.expect "rows of one"
// LOOPS: shardq.expect "rows of two"
// LOOPS: shardq.expect "rows of three"
func.func @compared(%start: memref<?xi32>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %d = shardq.count_decode_rows %start : memref<?xi32>
  shardq.expect "rows of one" %n equals %m
  shardq.expect "rows of two" %n equals %d
  %taken = arith.cmpi sgt, %d, %c0 : index
  scf.if %taken {
    shardq.expect "rows of three" %n equals %m
  }
  return
}

// A draft step below 0: of those that only a GPU knows its kernel tells.
// LOOPS-LABEL: func.func @draft
// LOOPS: %[[HELD:.*]] = arith.maxsi %arg1, %c0
// LOOPS: shardq.expect "'step' of shardq.draft_lengths" %arg1 equals %[[HELD]]
// LOOPS: call @shardq_draft_lengths
// LOOPS: shardq.expect "'step' of shardq.draft_lengths"
// LOOPS: call @shardq_draft_lengths
// LOOPS-NOT: shardq.expect
// LOOPS: return
//
// GPU-LABEL: func.func @draft
// GPU: shardq.expect "'step' of shardq.draft_lengths" %arg1
// GPU: gpu.launch
// GPU-NOT: shardq.expect
// GPU-NOT: shardq_device_expect
// GPU: gpu.launch
// GPU: llvm.call @shardq_device_expect
// GPU: gpu.launch
// GPU-NOT: shardq_device_expect
// GPU: return
func.func @draft(%lengths: memref<?xi32>, %step: index, %out: memref<?xi32>, %steps: memref<1xi64>) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  shardq.draft_lengths %lengths step(%step) outs(%out) : (memref<?xi32>, index, memref<?xi32>) -> ()
  %number = memref.load %steps[%c0] : memref<1xi64>
  %loaded = arith.index_cast %number : i64 to index
  shardq.draft_lengths %lengths step(%loaded) outs(%out) : (memref<?xi32>, index, memref<?xi32>) -> ()
  shardq.draft_lengths %lengths step(%c3) outs(%out) : (memref<?xi32>, index, memref<?xi32>) -> ()
  return
}

// A token without a place is told by whoever finds it.
// LOOPS-LABEL: func.func @step
// LOOPS: shardq.check_starts %arg0 decodes(%{{.*}}) rows(%arg3) : memref<?xi32>
// LOOPS: call @shardq_expand_rows
// LOOPS: call @[[SLOTS:shardq_token_slots.*]](%{{.*}}) : (memref<?x?xi32
//
// CALLS-LABEL: func.func @step(
// CALLS: llvm.call @shardq_rt_check_starts({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64) -> ()
// CALLS: call @shardq_expand_rows
// CALLS: llvm.call @shardq_rt_check_starts(
// CALLS: llvm.call @shardq_zigzag_split(
// CALLS: llvm.call @shardq_rt_check_starts(
// CALLS: llvm.call @shardq_chunk_split(
// CALLS: %[[NEEDED:.*]] = llvm.call @shardq_chunk_part_rows(
// CALLS: %[[PLACES:.*]] = arith.minsi %{{.*}}, %[[NEEDED]] : i64
// CALLS: llvm.call @shardq_rt_expect(%{{.*}}, %{{.*}}, %[[PLACES]], %[[NEEDED]])
// CALLS: llvm.call @shardq_chunk_own_order(
// CALLS: llvm.call @shardq_rt_check_starts(
// CALLS: llvm.call @shardq_shard_lengths(
// CALLS: func.func private @shardq_token_slots{{.*}}(%{{.*}}: !llvm.ptr,
// CALLS-DAG: llvm.call @shardq_rt_beyond_table({{.*}}) : (!llvm.ptr, i64, i64, i64, i64) -> ()
// CALLS-DAG: llvm.call @shardq_rt_no_place({{.*}}) : (!llvm.ptr, i64, i64, i64) -> ()
//
// The kernel that has the requests in front of it looks at their starts.
// GPU-LABEL: func.func @step
// GPU: gpu.launch {{.*}} function(@shardq_expand_rows{{.*}})
// GPU: llvm.call @shardq_device_wrong_start({{.*}}) : (!llvm.ptr, i64, i64, i64, i64) -> ()
// GPU-NOT: shardq_device_split_request
// GPU: gpu.launch {{.*}} function(@shardq_token_slots{{.*}})
// GPU: scf.if
// GPU-DAG: llvm.call @shardq_device_beyond_table({{.*}}) : (!llvm.ptr, i64, i64, i64, i64) -> ()
// GPU-DAG: llvm.call @shardq_device_no_place({{.*}}) : (!llvm.ptr, i64, i64, i64) -> ()
// GPU: gpu.launch {{.*}} function(@shardq_zigzag_split_count)
// GPU: llvm.call @shardq_device_wrong_start(
// GPU: llvm.call @shardq_device_split_request({{.*}}) : (!llvm.ptr, i64, i64, i64) -> ()
// GPU: llvm.call @shardq_device_wrong_decodes({{.*}}) : (!llvm.ptr, i64, i64) -> ()
// GPU: gpu.launch {{.*}} function(@shardq_zigzag_split_ids)
// GPU-NOT: shardq_device_wrong
// GPU: gpu.launch {{.*}} function(@shardq_chunk_split_table)
// GPU: llvm.call @shardq_device_wrong_start(
// GPU: llvm.call @shardq_device_split_request(
// GPU: llvm.call @shardq_device_wrong_decodes(
// GPU: gpu.launch {{.*}} function(@shardq_chunk_slots_table)
// GPU-NOT: shardq_device_wrong
// GPU: llvm.call @shardq_device_expect({{.*}}) : (!llvm.ptr, i64, i64) -> ()
// GPU-NOT: shardq_device_wrong
// GPU: gpu.launch {{.*}} function(@shardq_shard_lengths)
// GPU: llvm.call @shardq_device_wrong_start(
func.func @step(%start: memref<?xi32>, %lens: memref<?xi32>, %table: memref<?x?xi32>, %rows: index, %d: index,
                %ids: memref<?xi32>, %offsets: memref<5xi32>, %slots: memref<?xi64>, %order: memref<?xi32>,
                %padded: memref<?xi64>) {
  %req = memref.alloc(%rows) : memref<?xi32>
  %visible = memref.alloc(%rows) : memref<?xi32>
  shardq.expand_rows %start, %lens to %rows outs(%req, %visible)
      : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  shardq.token_slots table(%table) rows(%req, %visible) outs(%slots) {block_size = 4 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?xi64>) -> ()
  shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp" outs(%ids, %offsets)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<5xi32>) -> ()
  shardq.chunk_split %start decodes(%d) rows(%rows) over @ranks "dcp" outs(%ids, %order)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  shardq.chunk_slots %slots by(%start) decodes(%d) local(%rows) over @ranks "dcp" outs(%order, %padded) {own_decodes}
      : (memref<?xi64>, memref<?xi32>, index, index, memref<?xi32>, memref<?xi64>) -> ()
  shardq.shard_lengths %start, %lens rows(%rows) over @ranks "dcp" outs(%ids, %order)
      : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  return
}

// A row to write that has a slot behind the cache is told of, and padding is not.
// LOOPS: func.func private @shardq_write_rows
// LOOPS: %[[ROWS:.*]] = memref.dim %arg2, %{{.*}}
// LOOPS: scf.for %[[ROW:.*]] =
// LOOPS: scf.if
// LOOPS: } else {
// LOOPS-NEXT: %[[BEYOND:.*]] = arith.cmpi sle, %[[ROWS]], %[[SLOT:.*]] : index
// LOOPS-NEXT: scf.if %[[BEYOND]] {
// LOOPS-NEXT: shardq.beyond_cache slot %[[SLOT]] of %[[ROW]] in %[[ROWS]]
//
// LOOPS: func.func private @[[SLOTS]](
// LOOPS: scf.if
// LOOPS: memref.load
// LOOPS: shardq.no_place block %{{.*}} of %{{.*}} entry %{{.*}}
// LOOPS: } else {
// LOOPS: shardq.beyond_table block %{{.*}} of %{{.*}} in %{{.*}}, %{{.*}}
// LOOPS: memref.store
