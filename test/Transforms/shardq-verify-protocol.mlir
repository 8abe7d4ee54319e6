// RUN: shardq-opt %s --split-input-file --shardq-verify-protocol | FileCheck %s

// CHECK-COUNT-6: func.func @f

// Two channels that acknowledge each other, one generation each.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %y = memref.load %w[%c0, %c0, %c0] : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  %v = shardq.workspace @plan channel 1 (%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.push tokens_to_heads(%x) by(%ids, %o) decodes(%d) into(%v)
      over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x8x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  shardq.wait tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  %z = memref.load %v[%c0, %c0, %c0] : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// Two generations need no other exchange.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %w2 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w2)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// In a loop, in turns; views may be made early.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  %s = memref.memory_space_cast %w : memref<?x8x8xf32, #shardq.symmetric<@ranks>> to memref<?x8x8xf32>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %y = memref.load %s[%c0, %c0, %c0] : memref<?x8x8xf32>
  %v = shardq.workspace @plan channel 1 (%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.push tokens_to_heads(%x) by(%ids, %o) decodes(%d) into(%v)
      over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x8x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  shardq.wait tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  }
  return
}

// -----

// A workspace that nothing is pushed into.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// Gathered queries and partial outputs acknowledge each other.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"parts", offset = 4096, bytes = 3072, generations = 1>],
  exchanges = ["q", "parts"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%a: memref<?x2x8xf32>, %p: memref<?x8x16xf32>, %l: memref<?x8xf32>, %out: memref<?x2x16xf32>, %n: index, %m: index) {
  %q = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%a) into(%q) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  %parts = shardq.workspace @plan channel 1 (%m) : memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  shardq.push scatter_heads(%p, %l) into(%parts) over @ranks "tp" channel 1 exchange 1 {capacity = 16 : i64}
      : (memref<?x8x16xf32>, memref<?x8xf32>), memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  shardq.signal scatter_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait scatter_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.merge_lse %parts into(%out) over @ranks "tp" : memref<?x2x20xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xf32>
  return
}

// -----

// Two gathers, two generations.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"parts", offset = 4096, bytes = 3072, generations = 1>],
  exchanges = ["q", "parts"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%a: memref<?x2x8xf32>, %p: memref<?x8x16xf32>, %l: memref<?x8xf32>, %out: memref<?x2x16xf32>, %n: index, %m: index) {
  %q = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%a) into(%q) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  %q2 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%a) into(%q2) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  %parts = shardq.workspace @plan channel 1 (%m) : memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  shardq.push scatter_heads(%p, %l) into(%parts) over @ranks "tp" channel 1 exchange 1 {capacity = 16 : i64}
      : (memref<?x8x16xf32>, memref<?x8xf32>), memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  shardq.signal scatter_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait scatter_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.merge_lse %parts into(%out) over @ranks "tp" : memref<?x2x20xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xf32>
  return
}
