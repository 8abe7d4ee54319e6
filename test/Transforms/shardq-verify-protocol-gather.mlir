// RUN: shardq-opt %s --split-input-file --shardq-verify-protocol | FileCheck %s

// CHECK-COUNT-7: func.func @f

// Alone, in two generations, and again.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  %w1 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w1) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %r1 = memref.load %w1[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// Another exchange overlaps.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %vq = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%q) into(%vq) over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// An exchange behind the wait acknowledges the rows, a gather between two exchanges acknowledges those.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  scf.for %i = %c0 to %n step %m {
    %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
    shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
        {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
    shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
    shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
    %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
    %vq = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
    shardq.push gather_heads(%q) into(%vq) over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
        : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
    shardq.signal gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
    shardq.wait gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  }
  return
}

// -----

// Two exchanges, one of which overlaps: the other acknowledges.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %vq = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%q) into(%vq) over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  %v2 = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%q) into(%v2) over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  return
}

// -----

// Under a condition that is equal everywhere.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  scf.if %cond {
    %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
    shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
        {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
    shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
    shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
    %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  }
  return
}

// -----

// Rows without blocks are an exchange like others: two of one generation acknowledge each other.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) into(%w0) over @ranks "tp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xf32>), memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %w1 = shardq.workspace @plan channel 1 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) into(%w1) over @ranks "tp" channel 1 exchange 1 {capacity = 64 : i64}
      : (memref<?x8xf32>), memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 1 exchange 1
  return
}

// -----

// While KV is on its way other rows may be gathered.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %w1 = shardq.workspace @plan channel 1 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) into(%w1) over @ranks "tp" channel 1 exchange 1 {capacity = 64 : i64}
      : (memref<?x8xf32>), memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}
