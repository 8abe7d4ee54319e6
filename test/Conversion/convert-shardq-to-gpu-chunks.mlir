// Steps in chunks become kernels. How many rows a rank has is a number in memory; the host takes
// memory and grids for a row more of each request that may have tokens.
//
// RUN: shardq-opt %s --split-input-file --convert-shardq-to-gpu --canonicalize --cse | FileCheck %s

shardq.mesh @ranks ["pcp" = 2, "tp" = 2]

// CHECK-LABEL: func.func @chunks(
// CHECK-SAME: %[[START:[a-z0-9]+]]: memref<?xi32>, %{{.*}}: memref<?xi32>, %[[NEW:[a-z0-9]+]]: memref<?x576xbf16>
// CHECK: %[[ROWS:.*]] = memref.dim %[[NEW]]
// CHECK: %[[DECODES:.*]] = memref.alloc() : memref<1xi64>
// CHECK: %[[COUNT:.*]] = memref.alloc() : memref<1xi64>
// CHECK: gpu.launch {{.*}} in ({{.*}} = %c1, {{.*}} threads({{.*}}) in ({{.*}} = %c512, {{.*}} function(@shardq_count_chunk_rows{{[_0-9]*}})
// CHECK-SAME: workgroup({{.*}} : memref<48xi32, #gpu.address_space<workgroup>>
// CHECK: memref.load %[[DECODES]]
// CHECK: memref.store %{{.*}}, %[[COUNT]]
// CHECK: %[[STARTS:.*]] = memref.dim %[[START]]
// CHECK: %[[MOST:.*]] = arith.maxsi %[[ROWS]], %c0
// CHECK: %[[PADDING:.*]] = arith.minsi %[[MOST]], %[[STARTS]]
// CHECK: %[[BOUND:.*]] = arith.addi %[[MOST]], %[[PADDING]]
//
// Where each request begins, by one block; then a thread for each row.
// CHECK: %[[MINE:.*]] = memref.alloc(%[[BOUND]]) : memref<?xi32>
// CHECK: %[[RESTORE:.*]] = memref.alloc(%[[ROWS]]) : memref<?xi32>
// CHECK: %[[ENTRIES:.*]] = arith.addi %[[STARTS]], %c2
// CHECK: %[[TABLE:.*]] = memref.alloc(%[[ENTRIES]]) : memref<?x3xi32>
// CHECK: %[[RANK:.*]] = shardq.rank over @ranks "pcp"
// CHECK: gpu.launch {{.*}} in ({{.*}} = %c1, {{.*}} function(@shardq_chunk_split_table{{[_0-9]*}})
// CHECK: memref.store %{{.*}}, %[[TABLE]]
// CHECK: %[[BLOCKS:.*]] = arith.ceildivui %[[ROWS]], %c256
// CHECK: gpu.launch {{.*}} function(@shardq_chunk_split_rows{{[_0-9]*}})
// CHECK: memref.load %[[COUNT]]
// CHECK: scf.while
// CHECK: memref.load %[[TABLE]]
// CHECK: memref.store %{{.*}}, %[[RESTORE]]
// CHECK: memref.dealloc %[[TABLE]]
//
// Tails are no more than the step's rows.
// CHECK: gpu.launch {{.*}} function(@shardq_count_chunk_rows{{[_0-9]*}})
// CHECK: memref.alloc(%[[MOST]]) : memref<?xi32>
// CHECK: gpu.launch {{.*}} function(@shardq_chunk_lengths_table{{[_0-9]*}})
// CHECK: gpu.launch {{.*}} function(@shardq_chunk_lengths_rows{{[_0-9]*}})
//
// Rows of all ranks.
// CHECK: %[[ALL:.*]] = arith.muli %[[BOUND]], %c2
// CHECK: memref.alloc(%[[ALL]]) : memref<?xi64>
// CHECK: gpu.launch {{.*}} function(@shardq_chunk_slots_table{{[_0-9]*}})
// CHECK: gpu.launch {{.*}} function(@shardq_chunk_slots_rows{{[_0-9]*}})
// CHECK: gpu.launch {{.*}} function(@shardq_take_rows_576_576_bf16{{[_0-9]*}})
//
// A block writes eight rows, those of which no later row replaces, with stores of 16 bytes.
// CHECK: arith.ceildivui %[[ALL]], %c8
// CHECK: gpu.launch {{.*}} function(@shardq_write_rows_576_576_bf16{{[_0-9]*}})
// CHECK-SAME: workgroup({{.*}} : memref<1xi32, #gpu.address_space<workgroup>>
// CHECK: memref.atomic_rmw ori
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
//
// CHECK: gpu.launch {{.*}} function(@shardq_take_rows_4_4_f32{{[_0-9]*}})
// CHECK: memref.store %cst
// CHECK-NOT: gpu.launch
func.func @chunks(%start: memref<?xi32>, %lens: memref<?xi32>, %new: memref<?x576xbf16>, %at: memref<?xi64>,
                  %kv: memref<?x576xbf16>, %lse: memref<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %rows = memref.dim %new, %c0 : memref<?x576xbf16>
  %decodes = shardq.count_decode_rows %start : memref<?xi32>
  %n = shardq.count_chunk_rows all %start decodes(%decodes) rows(%rows) over @ranks "pcp" : memref<?xi32>
  %mine = memref.alloc(%n) : memref<?xi32>
  %restore = memref.alloc(%rows) : memref<?xi32>
  shardq.chunk_split %start decodes(%decodes) rows(%rows) over @ranks "pcp" outs(%mine, %restore)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  %tails = shardq.count_chunk_rows tail %start decodes(%decodes) rows(%rows) over @ranks "pcp" : memref<?xi32>
  %own = memref.alloc(%tails) : memref<?xi32>
  %starts = memref.alloc(%rows) : memref<?xi32>
  %length = memref.alloc(%rows) : memref<?xi32>
  shardq.chunk_lengths tail %start, %lens decodes(%decodes) rows(%rows) over @ranks "pcp" outs(%starts, %length, %own)
      : (memref<?xi32>, memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  %all = arith.muli %n, %c2 : index
  %order = memref.alloc(%all) : memref<?xi32>
  %padded = memref.alloc(%all) : memref<?xi64>
  shardq.chunk_slots %at by(%start) decodes(%decodes) local(%n) over @ranks "pcp" outs(%order, %padded)
      : (memref<?xi64>, memref<?xi32>, index, index, memref<?xi32>, memref<?xi64>) -> ()
  %sorted = memref.alloc(%all) : memref<?x576xbf16>
  shardq.take_rows %new[%order] outs(%sorted) : (memref<?x576xbf16>, memref<?xi32>, memref<?x576xbf16>) -> ()
  shardq.write_rows %sorted at(%padded) into(%kv) : (memref<?x576xbf16>, memref<?xi64>, memref<?x576xbf16>) -> ()
  %back = memref.alloc(%rows) : memref<?x4xf32>
  shardq.take_rows %lse[%restore] outs(%back) {missing = 0xFF800000 : f32} : (memref<?x4xf32>, memref<?xi32>, memref<?x4xf32>) -> ()
  return
}

// -----

// Where both branches forget strides by casts, what they yield keeps them.
// CHECK-LABEL: func.func @branches(
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_2x8_f32{{[_0-9]*}}_pack)
shardq.mesh @ranks ["tp" = 2]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"rows", offset = 0, bytes = 2048, generations = 1>],
  exchanges = ["rows"], hash = 7 : i64, slot_bytes = 65536 : i64, slots = 1 : i64}
func.func @branches(%x: memref<8x2x8xf32>, %y: memref<8x2x8xf32>, %flag: memref<1xi64>) {
  %c0 = arith.constant 0 : index
  %none = arith.constant 0 : i64
  %number = memref.load %flag[%c0] : memref<1xi64>
  %open = arith.cmpi ne, %number, %none : i64
  %one = scf.if %open -> memref<8x2x8xf32, strided<[?, ?, ?], offset: ?>> {
    %cast = memref.cast %x : memref<8x2x8xf32> to memref<8x2x8xf32, strided<[?, ?, ?], offset: ?>>
    scf.yield %cast : memref<8x2x8xf32, strided<[?, ?, ?], offset: ?>>
  } else {
    %cast = memref.cast %y : memref<8x2x8xf32> to memref<8x2x8xf32, strided<[?, ?, ?], offset: ?>>
    scf.yield %cast : memref<8x2x8xf32, strided<[?, ?, ?], offset: ?>>
  }
  %inbox = shardq.workspace @plan channel 0 : memref<16x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%one) into(%inbox) over @ranks "tp" channel 0 exchange 0 {capacity = 16 : i64}
      : (memref<8x2x8xf32, strided<[?, ?, ?], offset: ?>>), memref<16x2x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// What is looked at from a place on that only the device knows is copied to one that the host knows.
// CHECK-LABEL: func.func @tails(
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<?x8xi32>, %{{[a-z0-9]+}}: memref<?xi32>, %[[ROWS:[a-z0-9]+]]: index
// CHECK: %[[MOST:.*]] = arith.maxsi %[[ROWS]], %c0
// CHECK: %[[COPY:.*]] = memref.alloc(%[[MOST]]) : memref<?x8xi32>
// CHECK: gpu.launch {{.*}} function(@memref_copy_8_8{{[_0-9]*}})
// CHECK: memref.subview %[[X]]
// CHECK: shardq.tap "tails" %[[COPY]] count(%{{.*}} : memref<1xi64>)
shardq.mesh @ranks ["pcp" = 2]
func.func @tails(%x: memref<?x8xi32>, %start: memref<?xi32>, %rows: index) {
  %c0 = arith.constant 0 : index
  %heads = shardq.count_chunk_rows head %start decodes(%c0) rows(%rows) over @ranks "pcp" : memref<?xi32>
  %tails = shardq.count_chunk_rows tail %start decodes(%c0) rows(%rows) over @ranks "pcp" : memref<?xi32>
  %0 = memref.subview %x[%heads, 0] [%tails, 8] [1, 1] : memref<?x8xi32> to memref<?x8xi32, strided<[8, 1], offset: ?>>
  shardq.tap "tails" %0 : memref<?x8xi32, strided<[8, 1], offset: ?>>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2]
shardq.plan @plan over @ranks {channels = [#shardq.channel<"gather_rows 8xf32", offset = 0, bytes = 1024, generations = 1>],
  exchanges = ["gather_rows exchange 0 of @f"], hash = 7 : i64, slot_bytes = 1024 : i64, slots = 1 : i64}
// A step that does not fit its inbox has all rows on each rank, which the step bounds, not the plan.
// CHECK-LABEL: func.func @larger(
// CHECK: %[[MOST:.*]] = arith.maxsi %arg2, %c0
// CHECK: %[[BOUND:.*]] = arith.addi %[[MOST]]
// CHECK: memref.alloc(%[[BOUND]]) : memref<?x8xf32>
// CHECK: memref.alloc(%[[BOUND]]) : memref<?x8xf32>
func.func @larger(%start: memref<?xi32>, %decodes: index, %rows: index, %x: memref<?x8xf32>, %y: memref<?x8xf32>) {
  %two = arith.constant 2 : index
  %n = shardq.count_chunk_rows all %start decodes(%decodes) rows(%rows) over @ranks "pcp" : memref<?xi32>
  %mine = memref.alloc(%n) : memref<?xi32>
  %all = memref.alloc(%rows) : memref<?xi32>
  shardq.chunk_split %start decodes(%decodes) rows(%rows) over @ranks "pcp" outs(%mine, %all)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  %own = memref.alloc(%n) : memref<?x8xf32>
  shardq.take_rows %x[%mine] outs(%own) : (memref<?x8xf32>, memref<?xi32>, memref<?x8xf32>) -> ()
  %of_all = arith.muli %n, %two : index
  %inbox = shardq.workspace @plan channel 0 (%of_all) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  %again = memref.alloc(%n) : memref<?x8xf32>
  shardq.take_rows %y[%mine] outs(%again) : (memref<?x8xf32>, memref<?xi32>, memref<?x8xf32>) -> ()
  return
}
