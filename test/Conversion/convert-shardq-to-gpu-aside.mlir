// A gather's push and signal run beside what stands in front of its wait, where nothing there
// writes what they read.
//
// RUN: shardq-opt %s --convert-shardq-to-gpu --canonicalize --cse | FileCheck %s
// RUN: shardq-opt %s --convert-shardq-to-gpu=overlap=false | FileCheck %s --check-prefix=LINE
// LINE-NOT: shardq.{{(join_)?}}aside

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 25344, generations = 2>,
              #shardq.channel<"rows", offset = 51200, bytes = 2048, generations = 1>],
  exchanges = ["kv", "rows", "more"], hash = 7 : i64, slot_bytes = 65536 : i64, slots = 1 : i64}

// The launches of both forms go aside; no more blocks push than one on each multiprocessor, of half
// the threads, and as many as ever pack.
// CHECK-LABEL: func.func @beside(
// CHECK-SAME: %[[LIST:[a-z0-9]+]]: memref<?xi32>, %[[COUNT:[a-z0-9]+]]: memref<1xi32>
// CHECK: %[[CARRIED:.*]] = shardq.is_carried channel {{[0-9]+}} : i1
// CHECK: %[[BLOCKS:.*]] = memref.alloc(%{{.*}}) : memref<?xi32>
// CHECK: %[[TOPK:.*]] = memref.alloc(%{{.*}}) : memref<?x8xi32>
// CHECK: gpu.launch {{.*}} function(@memref_copy
// CHECK: %[[OUTBOX:.*]] = memref.alloc(%{{.*}}) : memref<?x12xbf16>
// CHECK: %[[LANDING:.*]] = memref.alloc(%{{.*}}) : memref<?x12xbf16>
// CHECK-NOT: gpu.launch
// CHECK: shardq.aside channel {{[0-9]+}} {
// CHECK-NEXT: scf.if %[[CARRIED]] {
// CHECK: arith.minsi %{{.*}}, %c4224
// CHECK: gpu.launch {{.*}} function(@shardq_push_8_4_12_bf16_pack)
// CHECK: function(@shardq_announce)
// CHECK: shardq.transfer %[[OUTBOX]] to %[[LANDING]]
// CHECK: } else {
// CHECK-NOT: %c4224
// CHECK: arith.minsi %{{.*}}, %c132
// CHECK-NOT: %c4224
// CHECK: gpu.launch {{.*}} threads({{.*}}) in ({{.*}} = %c128, {{.*}} function(@shardq_push_8_4_12_bf16)
// CHECK: function(@shardq_signal)
// CHECK: gpu.terminator
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: }
//
// The scores are freed when they have been read, what the push reads when it has ended.
// CHECK: %[[SCORES:.*]] = memref.alloc(%{{.*}}) : memref<?x?xf32>
// CHECK: function(@shardq_indexer{{.*}}_scores)
// CHECK: function(@shardq_indexer{{.*}}_topk)
// CHECK-NOT: dealloc
// CHECK: memref.dealloc %[[SCORES]]
// CHECK: function(@shardq_gathered_slots_8_8)
// CHECK: memref.dealloc %[[TOPK]]
// CHECK-NOT: dealloc
// CHECK: shardq.join_aside
// CHECK: memref.dealloc %[[BLOCKS]]
// CHECK-NOT: gpu.launch
// CHECK: gpu.launch {{.*}} function(@shardq_wait)
// CHECK: function(@shardq_push_8_4_12_bf16_unpack)
// CHECK: return
func.func @beside(%list: memref<?xi32>, %count: memref<1xi32>, %inverse: memref<?x?xi32>, %a: memref<?x8xbf16>, %b: memref<?x4xbf16>,
                  %q: memref<?x4x8xbf16>, %w: memref<?x4xf32>, %k: memref<?x8xbf16>, %table: memref<?x?xi32>, %req: memref<?xi32>,
                  %visible: memref<?xi32>, %slots: memref<?x8xi32>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %blocks = memref.alloc(%m) : memref<?xi32>
  %topk = memref.alloc(%n) : memref<?x8xi32>
  memref.copy %list, %blocks : memref<?xi32> to memref<?xi32>
  %0 = memref.load %count[%c0] : memref<1xi32>
  %1 = arith.index_cast %0 : i32 to index
  %2 = arith.muli %1, %c4 : index
  %3 = arith.muli %1, %c8 : index
  %4 = shardq.workspace @plan channel 0 (%3) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%a, %b) blocks(%blocks) into(%4) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x8xbf16>, memref<?x4xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%2) over @ranks "dcp" channel 0 exchange 0
  shardq.indexer q(%q) weights(%w) keys(%k) table(%table) rows(%req, %visible) outs(%topk) {block_size = 4 : i64}
      : (memref<?x4x8xbf16>, memref<?x4xf32>, memref<?x8xbf16>, memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x8xi32>) -> ()
  shardq.gathered_slots %topk blocks(%inverse, %count) rows(%req) over @ranks "dcp" outs(%slots) {block_size = 4 : i64, interleave = 4 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<1xi32>, memref<?xi32>, memref<?x8xi32>) -> ()
  shardq.wait gather_rows rows(%2) over @ranks "dcp" channel 0 exchange 0
  return
}

// What stands in between writes the cache.
// CHECK-LABEL: func.func @cache(
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: return
func.func @cache(%kv: memref<?x12xbf16>, %blocks: memref<?xi32>, %new: memref<?x12xbf16>, %at: memref<?xi64>, %n: index) {
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  shardq.write_rows %new at(%at) into(%kv) : (memref<?x12xbf16>, memref<?xi64>, memref<?x12xbf16>) -> ()
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// Another cache, and a view of this one that is only read.
// CHECK-LABEL: func.func @other_cache(
// CHECK: shardq.aside
// CHECK: function(@shardq_write_rows
// CHECK: function(@memref_copy
// CHECK: shardq.join_aside
func.func @other_cache(%kv: memref<?x12xbf16>, %other: memref<?x12xbf16>, %blocks: memref<?xi32>, %new: memref<?x12xbf16>,
                       %at: memref<?xi64>, %copy: memref<4x12xbf16>, %n: index) {
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  shardq.write_rows %new at(%at) into(%other) : (memref<?x12xbf16>, memref<?xi64>, memref<?x12xbf16>) -> ()
  %1 = memref.subview %kv[0, 0] [4, 12] [1, 1] : memref<?x12xbf16> to memref<4x12xbf16, strided<[12, 1]>>
  memref.copy %1, %copy : memref<4x12xbf16, strided<[12, 1]>> to memref<4x12xbf16>
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// A view of the cache is the cache, also in a branch.
// CHECK-LABEL: func.func @view(
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: return
func.func @view(%kv: memref<?x12xbf16>, %blocks: memref<?xi32>, %condition: i1, %n: index) {
  %cst = arith.constant 0.0 : bf16
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  scf.if %condition {
    %1 = memref.subview %kv[0, 0] [4, 12] [1, 1] : memref<?x12xbf16> to memref<4x12xbf16, strided<[12, 1]>>
    linalg.fill ins(%cst : bf16) outs(%1 : memref<4x12xbf16, strided<[12, 1]>>)
  }
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// So is the list of blocks read, from a buffer made here.
// CHECK-LABEL: func.func @list(
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: return
func.func @list(%kv: memref<?x12xbf16>, %n: index) {
  %zero = arith.constant 0 : i32
  %blocks = memref.alloc(%n) : memref<?xi32>
  linalg.fill ins(%zero : i32) outs(%blocks : memref<?xi32>)
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  linalg.fill ins(%zero : i32) outs(%blocks : memref<?xi32>)
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// And memory that a condition of the kernels is loaded from: here the gate itself.
// CHECK-LABEL: func.func @gate(
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: return
func.func @gate(%kv: memref<?x12xbf16>, %blocks: memref<?xi32>, %flag: memref<1xi64>, %n: index) {
  %c0 = arith.constant 0 : index
  %none = arith.constant 0 : i64
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  %1 = memref.load %flag[%c0] : memref<1xi64>
  %2 = arith.index_cast %1 : i64 to index
  shardq.push gather_rows(%kv) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%2) over @ranks "dcp" channel 0 exchange 0
  linalg.fill ins(%none : i64) outs(%flag : memref<1xi64>)
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// Shape arithmetic is nothing to run beside.
// CHECK-LABEL: func.func @nothing(
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: return
func.func @nothing(%kv: memref<?x12xbf16>, %blocks: memref<?xi32>, %n: index) -> memref<?x12xbf16> {
  %c0 = arith.constant 0 : index
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  %rows = memref.dim %kv, %c0 : memref<?x12xbf16>
  %1 = memref.alloc(%rows) : memref<?x12xbf16>
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  memref.copy %kv, %1 : memref<?x12xbf16> to memref<?x12xbf16>
  return %1 : memref<?x12xbf16>
}

// Rows of an inbox are read in line: the exchange behind tells peers that they were.
// CHECK-LABEL: func.func @inbox(
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: return
func.func @inbox(%x: memref<?x12xbf16>, %blocks: memref<?xi32>, %out: memref<?x12xbf16>, %n: index) {
  %cst = arith.constant 0.0 : bf16
  %1 = shardq.workspace @plan channel 1 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%x) into(%1) over @ranks "dcp" channel 1 exchange 1 {capacity = 64 : i64}
      : (memref<?x12xbf16>), memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 1 exchange 1
  %2 = memref.memory_space_cast %1 : memref<?x12xbf16, #shardq.symmetric<@ranks>> to memref<?x12xbf16>
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%2) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  linalg.fill ins(%cst : bf16) outs(%out : memref<?x12xbf16>)
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// Another exchange in between is no hindrance. A gather that begins meanwhile runs in line.
// CHECK-LABEL: func.func @two(
// CHECK: shardq.aside
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: function(@shardq_push_12_12_bf16{{[_0-9]*}})
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: function(@shardq_signal{{[_0-9]*}})
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: function(@linalg_fill
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: function(@shardq_wait{{[_0-9]*}})
// CHECK: shardq.join_aside
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: function(@shardq_wait{{[_0-9]*}})
// CHECK-NOT: shardq.{{(join_)?}}aside
// CHECK: return
func.func @two(%kv: memref<?x12xbf16>, %other: memref<?x12xbf16>, %blocks: memref<?xi32>, %out: memref<?x12xbf16>, %n: index) {
  %cst = arith.constant 0.0 : bf16
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  %1 = shardq.workspace @plan channel 1 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%other) blocks(%blocks) into(%1) over @ranks "dcp" channel 1 exchange 2 {block_size = 4 : i64, capacity = 64 : i64}
      : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 1 exchange 2
  linalg.fill ins(%cst : bf16) outs(%out : memref<?x12xbf16>)
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 1 exchange 2
  shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
  return
}

// In a loop each turn joins what it began. In a branch on a value of the device, too.
// CHECK-LABEL: func.func @turns(
// CHECK: scf.for
// CHECK: shardq.aside
// CHECK: function(@shardq_push_12_12_bf16{{[_0-9]*}})
// CHECK: function(@linalg_fill
// CHECK: shardq.join_aside
// CHECK: function(@shardq_wait{{[_0-9]*}})
// CHECK: return
func.func @turns(%kv: memref<?x12xbf16>, %blocks: memref<?xi32>, %flag: memref<1xi64>, %out: memref<?x12xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %none = arith.constant 0 : i64
  %cst = arith.constant 0.0 : bf16
  scf.for %i = %c0 to %n step %c1 {
    %1 = memref.load %flag[%c0] : memref<1xi64>
    %2 = arith.cmpi ne, %1, %none : i64
    scf.if %2 {
      %0 = shardq.workspace @plan channel 0 (%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
      shardq.push gather_rows(%kv) blocks(%blocks) into(%0) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, capacity = 1056 : i64}
          : (memref<?x12xbf16>), memref<?xi32>, memref<?x12xbf16, #shardq.symmetric<@ranks>>
      shardq.signal gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
      linalg.fill ins(%cst : bf16) outs(%out : memref<?x12xbf16>)
      shardq.wait gather_rows rows(%n) over @ranks "dcp" channel 0 exchange 0
    }
  }
  return
}
