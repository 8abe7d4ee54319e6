// RUN: shardq-opt %s --convert-shardq-to-gpu --canonicalize --cse | FileCheck %s

// What kernels call of the device library is declared once.
// CHECK-COUNT-1: llvm.func @shardq_device_inbox(!llvm.ptr, i32, i64) -> !llvm.ptr
// CHECK-DAG: llvm.func @shardq_device_peer(
// CHECK-DAG: llvm.func @shardq_device_admit(
// CHECK-DAG: llvm.func @shardq_device_signal(
// CHECK-DAG: llvm.func @shardq_device_wait(

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["first", "second", "third"], hash = 7 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

// Each result is an argument that keeps the result's attributes, and is written in
// place: no buffer, no copy.
// CHECK-LABEL: func.func @results(
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<?x4xf32>, %[[ROWS:[a-z0-9]+]]: memref<?xi32>,
// CHECK-SAME: %[[A:[a-z0-9]+]]: memref<?x4xf32> {shardq.result, shardq.split = #shardq.split<@ranks, 1 over "tp">},
// CHECK-SAME: %[[B:[a-z0-9]+]]: memref<?x4xf32> {shardq.result}) {
// CHECK-NOT: memref.alloc
// CHECK: gpu.launch {{.*}} module(@shardq_kernels) function(@shardq_take_rows_4_4_f32{{[_0-9]*}})
// CHECK: memref.load %[[ROWS]]
// CHECK: llvm.store
// CHECK: gpu.launch {{.*}} function(@shardq_take_rows_4_4_f32{{[_0-9]*}})
// CHECK-NOT: memref.copy
// CHECK: {{^    return$}}
func.func @results(%x: memref<?x4xf32>, %rows: memref<?xi32>)
    -> (memref<?x4xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">}, memref<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %n = memref.dim %rows, %c0 : memref<?xi32>
  %a = memref.alloc(%n) : memref<?x4xf32>
  shardq.take_rows %x[%rows] outs(%a) : (memref<?x4xf32>, memref<?xi32>, memref<?x4xf32>) -> ()
  %b = memref.alloc(%n) : memref<?x4xf32>
  shardq.take_rows %a[%rows] outs(%b) : (memref<?x4xf32>, memref<?xi32>, memref<?x4xf32>) -> ()
  return %a, %b : memref<?x4xf32>, memref<?x4xf32>
}

// An argument, or one buffer twice, is copied.
// CHECK-LABEL: func.func @handed_through(
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<8xf32>, %[[R0:[a-z0-9]+]]: memref<8xf32> {shardq.result}, %[[R1:[a-z0-9]+]]: memref<8xf32> {shardq.result}, %[[R2:[a-z0-9]+]]: memref<8xf32> {shardq.result})
// CHECK-NOT: memref.alloc
// CHECK: function(@linalg_fill_f32{{[_0-9]*}})
// CHECK: memref.store %{{.*}}, %[[R1]]
// CHECK: function(@memref_copy_f32{{[_0-9]*}})
// CHECK: %[[V:.*]] = memref.load %[[X]]
// CHECK: memref.store %[[V]], %[[R0]]
// CHECK: function(@memref_copy_f32{{[_0-9]*}})
// CHECK: %[[V:.*]] = memref.load %[[R1]]
// CHECK: memref.store %[[V]], %[[R2]]
func.func @handed_through(%x: memref<8xf32>) -> (memref<8xf32>, memref<8xf32>, memref<8xf32>) {
  %cst = arith.constant 1.0 : f32
  %a = memref.alloc() : memref<8xf32>
  linalg.fill ins(%cst : f32) outs(%a : memref<8xf32>)
  return %x, %a, %a : memref<8xf32>, memref<8xf32>, memref<8xf32>
}

// A result that the program had marked itself, and writes twice, is copied to.
// CHECK-LABEL: func.func @marked_before(
// CHECK-SAME: %[[OUT:[a-z0-9]+]]: memref<8xf32> {shardq.result})
// CHECK: %[[A:.*]] = memref.alloc() : memref<8xf32>
// CHECK: function(@linalg_fill_f32{{[_0-9]*}})
// CHECK: memref.store %{{.*}}, %[[A]]
// CHECK: function(@memref_copy_f32{{[_0-9]*}})
// CHECK: memref.store %{{.*}}, %[[OUT]]
// CHECK: function(@linalg_fill_f32{{[_0-9]*}})
// CHECK: memref.store %{{.*}}, %[[A]]
// CHECK: memref.dealloc %[[A]]
func.func @marked_before(%out: memref<8xf32> {shardq.result}) {
  %c1 = arith.constant 1.0 : f32
  %c2 = arith.constant 2.0 : f32
  %a = memref.alloc() : memref<8xf32>
  linalg.fill ins(%c1 : f32) outs(%a : memref<8xf32>)
  memref.copy %a, %out : memref<8xf32> to memref<8xf32>
  linalg.fill ins(%c2 : f32) outs(%a : memref<8xf32>)
  return
}

// Both sides of a branch fill the result; here the host decides, and branches stay.
// CHECK-LABEL: func.func @branches(
// CHECK-SAME: %[[YES:[a-z0-9]+]]: i1, %[[OUT:[a-z0-9]+]]: memref<8xf32> {shardq.result})
// CHECK-NOT: memref.alloc
// CHECK: scf.if %[[YES]] {
// CHECK: function(@linalg_fill_f32{{[_0-9]*}})
// CHECK: memref.store %{{.*}}, %[[OUT]]
// CHECK: } else {
// CHECK: function(@linalg_fill_f32{{[_0-9]*}})
// CHECK: memref.store %{{.*}}, %[[OUT]]
// CHECK-NOT: memref_copy
// CHECK: return
func.func @branches(%yes: i1) -> memref<8xf32> {
  %c1 = arith.constant 1.0 : f32
  %c2 = arith.constant 2.0 : f32
  %r = scf.if %yes -> memref<8xf32> {
    %a = memref.alloc() : memref<8xf32>
    linalg.fill ins(%c1 : f32) outs(%a : memref<8xf32>)
    scf.yield %a : memref<8xf32>
  } else {
    %b = memref.alloc() : memref<8xf32>
    linalg.fill ins(%c2 : f32) outs(%b : memref<8xf32>)
    scf.yield %b : memref<8xf32>
  }
  return %r : memref<8xf32>
}

//===----------------------------------------------------------------------===//
// Device values
//===----------------------------------------------------------------------===//

// A branch on what only the device knows is laid flat: all launches are made, and each
// kernel asks for itself. The result of both is one buffer.
// CHECK-LABEL: func.func @gate(
// CHECK-SAME: %[[OFFSETS:[a-z0-9]+]]: memref<5xi32>, %[[START:[a-z0-9]+]]: memref<?xi32>, %[[LENS:[a-z0-9]+]]: memref<?xi32>, %[[N:[a-z0-9]+]]: index,
// CHECK-SAME: %[[OUT:[a-z0-9]+]]: memref<8xf32> {shardq.result})
// CHECK: %[[OPEN:.*]] = memref.alloc() : memref<1xi64>
// CHECK: gpu.launch {{.*}} function(@shardq_split_gate{{[_0-9]*}})
// CHECK: memref.store %{{.*}}, %[[OPEN]]
// CHECK-NOT: scf.if
// CHECK: gpu.launch {{.*}} function(@linalg_fill_f32{{[_0-9]*}})
// CHECK-NEXT: %[[FLAG:.*]] = memref.load %[[OPEN]]
// CHECK-NEXT: %[[TAKEN:.*]] = arith.cmpi ne, %[[FLAG]]
// CHECK-NEXT: scf.if %[[TAKEN]] {
// CHECK: memref.store %{{.*}}, %[[OUT]]
// CHECK: gpu.launch {{.*}} function(@linalg_fill_f32{{[_0-9]*}})
// CHECK-NEXT: %[[FLAG:.*]] = memref.load %[[OPEN]]
// CHECK-NEXT: %[[NOT:.*]] = arith.cmpi eq, %[[FLAG]]
// CHECK-NEXT: scf.if %[[NOT]] {
// CHECK: memref.store %{{.*}}, %[[OUT]]
// CHECK: memref.dealloc %[[OPEN]]
// CHECK-NEXT: return
func.func @gate(%offsets: memref<5xi32>, %start: memref<?xi32>, %lens: memref<?xi32>, %n: index) -> memref<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1.0 : f32
  %c2 = arith.constant 2.0 : f32
  %open = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%c0) rows(%n) {min_tokens = 1 : i64, topk = 4 : i64}
      : memref<5xi32>, memref<?xi32>, memref<?xi32>
  %r = scf.if %open -> memref<8xf32> {
    %a = memref.alloc() : memref<8xf32>
    linalg.fill ins(%c1 : f32) outs(%a : memref<8xf32>)
    scf.yield %a : memref<8xf32>
  } else {
    %b = memref.alloc() : memref<8xf32>
    linalg.fill ins(%c2 : f32) outs(%b : memref<8xf32>)
    scf.yield %b : memref<8xf32>
  }
  return %r : memref<8xf32>
}

// Branches in branches: both conditions.
// CHECK-LABEL: func.func @nested_gates(
// CHECK-SAME: %[[A:[a-z0-9]+]]: memref<i8>, %[[B:[a-z0-9]+]]: memref<i8>,
// CHECK-NOT: {{^    }}scf.if
// CHECK: gpu.launch {{.*}} function(@linalg_fill_f32{{[_0-9]*}})
// CHECK: memref.load %[[A]]
// CHECK: memref.load %[[B]]
// CHECK: %[[BOTH:.*]] = arith.andi
// CHECK: scf.if %[[BOTH]]
// CHECK-NOT: {{^    }}memref.load
// CHECK: {{^    return}}
func.func @nested_gates(%a: memref<i8>, %b: memref<i8>, %x: memref<8xf32>) {
  %zero = arith.constant 0 : i8
  %c1 = arith.constant 1.0 : f32
  %0 = memref.load %a[] : memref<i8>
  %1 = memref.load %b[] : memref<i8>
  %2 = arith.cmpi ne, %0, %zero : i8
  %3 = arith.cmpi ne, %1, %zero : i8
  scf.if %2 {
    scf.if %3 {
      linalg.fill ins(%c1 : f32) outs(%x : memref<8xf32>)
    }
  }
  return
}

// A number of rows that was loaded is loaded again in each kernel; the buffer has the
// step's rows, which the host knows.
// CHECK-LABEL: func.func @rows_on_device(
// CHECK-SAME: %[[N:[a-z0-9]+]]: index)
// CHECK: %[[DECODES:.*]] = memref.alloc() : memref<1xi64>
// CHECK: function(@shardq_count_decode_rows{{[_0-9]*}})
// CHECK: %[[WHOLE:.*]] = memref.alloc(%[[N]]) : memref<?x4xf32>
// CHECK: gpu.launch {{.*}} function(@linalg_fill_4_f32{{[_0-9]*}})
// CHECK-NOT: gpu.launch
// CHECK: %[[COUNT:.*]] = memref.load %[[DECODES]]
// CHECK: %[[INDEX:.*]] = arith.index_cast %[[COUNT]] : i64 to index
// CHECK: %[[LOW:.*]] = arith.maxsi %[[INDEX]], %c0
// CHECK: %[[HERE:.*]] = arith.minsi %[[LOW]], %[[N]]
// CHECK: memref.subview %[[WHOLE]][0, 0] [%[[HERE]], 4] [1, 1]
// CHECK: gpu.terminator
// CHECK: memref.dealloc %[[WHOLE]]
func.func @rows_on_device(%start: memref<?xi32>, %lens: memref<?xi32>, %n: index) {
  %cst = arith.constant 1.0 : f32
  %req = memref.alloc(%n) : memref<?xi32>
  %visible = memref.alloc(%n) : memref<?xi32>
  shardq.expand_rows %start, %lens to %n outs(%req, %visible) : (memref<?xi32>, memref<?xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  %d = shardq.count_decode_rows %start : memref<?xi32>
  %a = memref.alloc(%d) : memref<?x4xf32>
  linalg.fill ins(%cst : f32) outs(%a : memref<?x4xf32>)
  return
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

// The inbox of a channel with two generations is found by the device, which is told how
// many signals the program made since it asked.
// CHECK-LABEL: func.func @inboxes(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x2x8xf32>, %[[IDS:[a-z0-9]+]]: memref<?xi32>, %[[OFFSETS:[a-z0-9]+]]: memref<5xi32>, %[[N:[a-z0-9]+]]: index,
// CHECK-NOT: shardq.workspace
// CHECK-DAG: %[[TWO:.*]] = llvm.mlir.constant(2 : i64) : i64
// CHECK-DAG: %[[ONE:.*]] = llvm.mlir.constant(1 : i64) : i64
// CHECK-DAG: %[[NONE:.*]] = llvm.mlir.constant(0 : i64) : i64
// CHECK-DAG: %[[CHANNEL:.*]] = llvm.mlir.constant(0 : i32) : i32
// CHECK: %[[DEVICE:.*]] = shardq.device_context : index
// CHECK: shardq.rank over @ranks{{$}}
// CHECK: shardq.rank over @ranks "tp"
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_8x8_f32{{[_0-9]*}})
// CHECK: %[[NUMBER:.*]] = arith.index_cast %[[DEVICE]] : index to i64
// CHECK: %[[CONTEXT:.*]] = llvm.inttoptr %[[NUMBER]]
// CHECK: llvm.call @shardq_device_inbox(%[[CONTEXT]], %[[CHANNEL]], %[[NONE]])
// CHECK: llvm.call @shardq_device_admit
// CHECK: llvm.call @shardq_device_peer
// CHECK: gpu.launch {{.*}} function(@linalg_fill_f32{{[_0-9]*}})
// A signal and its wait are one kernel where nothing stands between.
// CHECK: gpu.launch {{.*}} function(@shardq_signal_wait{{[_0-9]*}})
// CHECK: %[[SENT:.*]] = llvm.addrspacecast
// CHECK: %[[EXPECTED:.*]] = llvm.addrspacecast
// CHECK: gpu.barrier
// CHECK: llvm.call @shardq_device_exchange({{.*}}, %[[SENT]], %[[EXPECTED]], %{{.*}})

// Read after one signal of the channel:
// CHECK: gpu.launch {{.*}} function(@memref_copy_8x8_8x8_f32{{[_0-9]*}})
// CHECK: llvm.call @shardq_device_inbox(%{{.*}}, %[[CHANNEL]], %[[ONE]])

// The next one is the other generation: none since it was asked for.
// CHECK: gpu.launch {{.*}} function(@shardq_push_2x8_8x8_f32{{[_0-9]*}})
// CHECK: llvm.call @shardq_device_inbox(%{{.*}}, %[[CHANNEL]], %[[NONE]])
// CHECK: gpu.launch {{.*}} function(@linalg_fill_f32{{[_0-9]*}})
// CHECK: gpu.launch {{.*}} function(@shardq_signal_wait{{[_0-9]*}})

// The first is two signals behind, the second one; signals of other channels do not
// count.
// CHECK: gpu.launch {{.*}} function(@memref_copy_8x8_8x8_f32{{[_0-9]*}})
// CHECK: llvm.call @shardq_device_inbox(%{{.*}}, %[[CHANNEL]], %[[TWO]])
// CHECK: gpu.launch {{.*}} function(@shardq_signal{{[_0-9]*}})
// CHECK: gpu.launch {{.*}} function(@memref_copy_8x8_8x8_f32{{[_0-9]*}})
// CHECK: llvm.call @shardq_device_inbox(%{{.*}}, %[[CHANNEL]], %[[ONE]])
// CHECK-NOT: shardq.workspace
// CHECK: {{^    return}}
func.func @inboxes(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %n: index,
                   %other: memref<8xf32>, %out: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %cst = arith.constant 1.0 : f32
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%c0) into(%0) over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  linalg.fill ins(%cst : f32) outs(%other : memref<8xf32>)
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %1 = memref.memory_space_cast %0 : memref<?x8x8xf32, #shardq.symmetric<@ranks>> to memref<?x8x8xf32>
  memref.copy %1, %out : memref<?x8x8xf32> to memref<?x8x8xf32>
  %2 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%c0) into(%2) over @ranks "tp" channel 0 exchange 1 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  linalg.fill ins(%cst : f32) outs(%other : memref<8xf32>)
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 1 : memref<5xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 1 : memref<5xi32>
  memref.copy %1, %out : memref<?x8x8xf32> to memref<?x8x8xf32>
  %3 = memref.memory_space_cast %2 : memref<?x8x8xf32, #shardq.symmetric<@ranks>> to memref<?x8x8xf32>
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 1 exchange 2 : memref<5xi32>
  memref.copy %3, %out : memref<?x8x8xf32> to memref<?x8x8xf32>
  return
}

// An inbox whose rows only the device knows stays inside its channel: 2,048 bytes are 8
// rows of 256.
// CHECK-LABEL: func.func @inbox_inside(
// CHECK-SAME: %[[COUNT:[a-z0-9]+]]: memref<1xi64>
// CHECK: gpu.launch {{.*}} function(@memref_copy_8x8_8x8_f32{{[_0-9]*}})
// CHECK: %[[LOADED:.*]] = memref.load %[[COUNT]]
// CHECK: %[[ROWS:.*]] = arith.index_cast %[[LOADED]]
// CHECK: arith.minsi %[[ROWS]], %c8
func.func @inbox_inside(%count: memref<1xi64>, %out: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %0 = memref.load %count[%c0] : memref<1xi64>
  %n = arith.index_cast %0 : i64 to index
  %1 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  memref.copy %1, %out : memref<?x8x8xf32, #shardq.symmetric<@ranks>> to memref<?x8x8xf32>
  return
}

//===----------------------------------------------------------------------===//
// Ops of several launches
//===----------------------------------------------------------------------===//

// Rows are scored in turns, as many at a time as 2^28 bytes hold.
// CHECK-LABEL: func.func @indexer(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x32x128xbf16>,
// CHECK-DAG: %[[BLOCKS:.*]] = memref.dim %[[TABLE:[a-z0-9]+]], %c1 : memref<?x?xi32>
// CHECK-DAG: %[[WIDTH:.*]] = arith.muli %[[BLOCKS]], %c64
// CHECK: %[[AT_ONCE:.*]] = arith.divui %c67108864, %[[WIDE:.*]] : index
// CHECK: %[[SOME:.*]] = arith.minsi %[[AT_ONCE]], %[[ROWS:.*]] : index
// CHECK: %[[TURN:.*]] = arith.maxsi %[[SOME]], %c1
// CHECK: %[[SCORES:.*]] = memref.alloc(%[[TURN]], %[[WIDE]]) : memref<?x?xf32>
// CHECK: scf.for %{{.*}} = %c0 to %[[ROWS]] step %[[TURN]] {
// CHECK: gpu.launch {{.*}} function(@shardq_indexer_32x128_32_128_64_bf16_scores{{[_0-9]*}})
// CHECK: gpu.launch {{.*}} function(@shardq_indexer_32x128_32_128_64_bf16_topk{{[_0-9]*}})
// CHECK: {{^    }$}}
// CHECK: {{^    }$}}
// CHECK-NOT: gpu.launch
// CHECK: memref.dealloc %[[SCORES]]
func.func @indexer(%q: memref<?x32x128xbf16>, %w: memref<?x32xf32>, %k: memref<?x128xbf16>, %table: memref<?x?xi32>,
                   %req: memref<?xi32>, %visible: memref<?xi32>, %out: memref<?x64xi32>) {
  shardq.indexer q(%q) weights(%w) keys(%k) table(%table) rows(%req, %visible) outs(%out) {block_size = 64 : i64}
      : (memref<?x32x128xbf16>, memref<?x32xf32>, memref<?x128xbf16>, memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x64xi32>) -> ()
  return
}

// CHECK-LABEL: func.func @split(
// CHECK-SAME: %[[START:[a-z0-9]+]]: memref<?xi32>
// CHECK: %[[STARTS:.*]] = memref.dim %[[START]], %c0
// CHECK: %[[BEFORE:.*]] = memref.alloc(%[[STARTS]]) : memref<?x6xi32>
// CHECK: gpu.launch {{.*}}threads{{.*}} = %c128{{.*}} function(@shardq_zigzag_split_count{{[_0-9]*}})
// CHECK: gpu.launch {{.*}} function(@shardq_zigzag_split_ids{{[_0-9]*}})
// CHECK: memref.dealloc %[[BEFORE]]
func.func @split(%start: memref<?xi32>, %n: index, %ids: memref<?xi32>, %offsets: memref<5xi32>) {
  %c0 = arith.constant 0 : index
  shardq.zigzag_split %start decodes(%c0) rows(%n) over @ranks "tp" outs(%ids, %offsets)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<5xi32>) -> ()
  return
}

// A loop over layers stays a loop.
// CHECK-LABEL: func.func @layers(
// CHECK: scf.for %{{.*}} = %c0 to %c61 step %c1 {
// CHECK: gpu.launch {{.*}} function(@linalg_fill_f32{{[_0-9]*}})
// CHECK-NOT: {{^    }}gpu.launch
// CHECK: return
func.func @layers(%x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c61 = arith.constant 61 : index
  %cst = arith.constant 1.0 : f32
  scf.for %i = %c0 to %c61 step %c1 {
    linalg.fill ins(%cst : f32) outs(%x : memref<8xf32>)
  }
  return
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

// Of a sink of all heads, this rank's block.
// CHECK-LABEL: func.func @sink(
// CHECK-SAME: %[[SINK:[a-z0-9]+]]: memref<64xf32>
// CHECK: %[[RANK:.*]] = shardq.rank over @ranks "tp"
// CHECK: %[[FIRST:.*]] = {{affine.apply|arith.muli}}{{.*}}%[[RANK]]
// CHECK: memref.subview %[[SINK]][%[[FIRST]]] [16] [1]
// CHECK: gpu.launch {{.*}} function(@shardq_sparse_mla_16x576_576_64_16x512_bf16{{[_0-9]*}})
func.func @sink(%q: memref<?x16x576xbf16>, %kv: memref<?x576xbf16>, %slots: memref<?x64xi32>, %sink: memref<64xf32>,
                %out: memref<?x16x512xbf16>) {
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) sink(%sink) outs(%out)
      {scale = 0.1 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (memref<?x16x576xbf16>, memref<?x576xbf16>, memref<?x64xi32>, memref<64xf32>, memref<?x16x512xbf16>) -> ()
  return
}

// A cast that forgot that the last stride is 1 is left out.
// CHECK-LABEL: func.func @forgotten_stride(
// CHECK-SAME: %[[KV:[a-z0-9]+]]: memref<?x576xbf16>
// CHECK: gpu.launch {{.*}} function(@shardq_sparse_mla_16x576_576_64_16x512_bf16{{[_0-9]*}})
// CHECK: memref.extract_aligned_pointer_as_index %[[KV]] : memref<?x576xbf16> -> index
func.func @forgotten_stride(%q: memref<?x16x576xbf16>, %kv: memref<?x576xbf16>, %slots: memref<?x64xi32>, %out: memref<?x16x512xbf16>) {
  %cast = memref.cast %kv : memref<?x576xbf16> to memref<?x576xbf16, strided<[?, ?], offset: ?>>
  shardq.sparse_mla q(%q) kv(%cast) slots(%slots) outs(%out) {scale = 0.1 : f32}
      : (memref<?x16x576xbf16>, memref<?x576xbf16, strided<[?, ?], offset: ?>>, memref<?x64xi32>, memref<?x16x512xbf16>) -> ()
  return
}

//===----------------------------------------------------------------------===//
// Taps
//===----------------------------------------------------------------------===//

// What is there in any case has no count.
// CHECK-LABEL: func.func @tap(
// CHECK-NOT: gpu.launch
// CHECK: shardq.tap "x" %{{[a-z0-9]+}} : memref<?x4xf32>
func.func @tap(%x: memref<?x4xf32>) {
  shardq.tap "x" %x : memref<?x4xf32>
  return
}

// Behind a device's branch, or with rows that only the device knows: the whole buffer, and
// where the device writes how many rows there are, -1 first.
// CHECK-LABEL: func.func @counted_tap(
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<8x4xf32>, %[[N:[a-z0-9]+]]: memref<1xi64>, %[[OPEN:[a-z0-9]+]]: memref<i8>
// CHECK: %[[COUNT:.*]] = memref.alloc() : memref<1xi64>
// CHECK: gpu.launch {{.*}} function(@shardq_tap_none{{[_0-9]*}})
// CHECK: memref.store %c-1_i64, %[[COUNT]]
// CHECK: gpu.launch {{.*}} function(@shardq_tap_count{{[_0-9]*}})
// CHECK-DAG: memref.load %[[OPEN]]
// CHECK-DAG: memref.load %[[N]]
// CHECK: memref.store %{{.*}}, %[[COUNT]]
// CHECK: shardq.tap "x" %[[X]] count(%[[COUNT]] : memref<1xi64>) : memref<8x4xf32>
// CHECK-NEXT: memref.dealloc %[[COUNT]]
func.func @counted_tap(%x: memref<8x4xf32>, %n: memref<1xi64>, %open: memref<i8>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i8
  %0 = memref.load %open[] : memref<i8>
  %1 = arith.cmpi ne, %0, %zero : i8
  scf.if %1 {
    %2 = memref.load %n[%c0] : memref<1xi64>
    %3 = arith.index_cast %2 : i64 to index
    %4 = memref.subview %x[0, 0] [%3, 4] [1, 1] : memref<8x4xf32> to memref<?x4xf32, strided<[4, 1]>>
    shardq.tap "x" %4 : memref<?x4xf32, strided<[4, 1]>>
  }
  return
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

// Given back after the last launch that uses it, so that the next may take its place.
// CHECK-LABEL: func.func @freed(
// CHECK: %[[A:.*]] = memref.alloc() : memref<16xf32>
// CHECK: gpu.launch
// CHECK: gpu.launch {{.*}} function(@memref_copy_f32{{[_0-9]*}})
// CHECK: memref.dealloc %[[A]]
// CHECK: %[[B:.*]] = memref.alloc() : memref<16xf32>
// CHECK: gpu.launch
// CHECK: gpu.launch {{.*}} function(@memref_copy_f32{{[_0-9]*}})
// CHECK: memref.dealloc %[[B]]
func.func @freed(%x: memref<8xf32>, %y: memref<16xf32>) {
  %cst = arith.constant 1.0 : f32
  %a = memref.alloc() : memref<16xf32>
  linalg.fill ins(%cst : f32) outs(%a : memref<16xf32>)
  %view = memref.subview %a[0] [8] [1] : memref<16xf32> to memref<8xf32, strided<[1]>>
  memref.copy %view, %x : memref<8xf32, strided<[1]>> to memref<8xf32>
  %b = memref.alloc() : memref<16xf32>
  linalg.fill ins(%cst : f32) outs(%b : memref<16xf32>)
  memref.copy %b, %y : memref<16xf32> to memref<16xf32>
  return
}

// What a loop starts from may be what it ends with.
// CHECK-LABEL: func.func @carried(
// CHECK: %[[A:.*]] = memref.alloc() : memref<8xf32>
// CHECK: %[[LAST:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[A]])
// CHECK: %[[NEXT:.*]] = memref.alloc() : memref<8xf32>
// CHECK: scf.yield %[[NEXT]]
// CHECK: }
// CHECK-NOT: memref.dealloc
// CHECK: gpu.launch {{.*}} function(@memref_copy_f32{{[_0-9]*}})
// CHECK: memref.load %[[LAST]]
// CHECK: memref.dealloc %[[A]]
func.func @carried(%n: index, %x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %cst = arith.constant 1.0 : f32
  %a = memref.alloc() : memref<8xf32>
  linalg.fill ins(%cst : f32) outs(%a : memref<8xf32>)
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%b = %a) -> memref<8xf32> {
    %next = memref.alloc() : memref<8xf32>
    memref.copy %b, %next : memref<8xf32> to memref<8xf32>
    scf.yield %next : memref<8xf32>
  }
  memref.copy %last, %x : memref<8xf32> to memref<8xf32>
  return
}

// CHECK-LABEL: func.func @empty() {
// CHECK-NEXT: return
func.func @empty() {
  return
}
// CHECK: func.func private @declared(memref<8xf32>)
func.func private @declared(memref<8xf32>)
