// RUN: shardq-opt %s --split-input-file --shardq-verify-protocol --verify-diagnostics

// No wait.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.wait' of exchange 0 on channel 0, behind it in its block}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// A wait of another gather.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.wait' of exchange 0 on channel 0, behind it in its block}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  // expected-note @+1 {{found 'shardq.wait'}}
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 2
  return
}

// -----

// A signal that is not the next thing.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.signal' of exchange 0 on channel 0, behind it in its block}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  %vq = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{found 'shardq.push'}}
  shardq.push gather_heads(%q) into(%vq) over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// Two gathers under way.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  %w1 = shardq.workspace @plan channel 1 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{that gather begins here}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  // expected-error @+1 {{may begin a gather, or use channel 0, while a gather on it is under way}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w1) over @ranks "tp" channel 1 exchange 2
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 1 exchange 2
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 1 exchange 2
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// A gather that a branch begins.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{that gather begins here}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  // expected-error @+1 {{may begin a gather, or use channel 0, while a gather on it is under way}}
  scf.if %cond {
    %w1 = shardq.workspace @plan channel 1 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
    shardq.push gather_rows(%kv) blocks(%blocks) into(%w1) over @ranks "tp" channel 1 exchange 2
        {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
    shardq.signal gather_rows rows(%n) over @ranks "tp" channel 1 exchange 2
    shardq.wait gather_rows rows(%n) over @ranks "tp" channel 1 exchange 2
  }
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// A gather that a function begins.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{that gather begins here}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  // expected-error @+1 {{may begin a gather, or use channel 0, while a gather on it is under way}}
  call @g(%q, %kv, %blocks, %n) : (memref<?x2x8xf32>, memref<?x8xf32>, memref<?xi32>, index) -> ()
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}
func.func @g(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  %w1 = shardq.workspace @plan channel 1 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w1) over @ranks "tp" channel 1 exchange 2
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 1 exchange 2
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 1 exchange 2
  return
}

// -----

// Another exchange on its channel.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{that gather begins here}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %vq = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{may begin a gather, or use channel 0, while a gather on it is under way}}
  shardq.push gather_heads(%q) into(%vq) over @ranks "tp" channel 0 exchange 1 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 0 exchange 1
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 0 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// Other rows are waited for than sent.
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
  // expected-note @+1 {{the signal is here}}
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  // expected-error @+1 {{expects as many rows as the group signals}}
  shardq.wait gather_rows rows(%m) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// Read before the wait.
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
  // expected-error @+1 {{touches the inbox before its rows have arrived}}
  %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{the wait is here}}
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// Read when the next exchange has begun.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{of this exchange}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %vq = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%q) into(%vq) over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  // expected-error @+1 {{may touch the inbox when the next exchange has begun}}
  %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// A wait alone.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{expects 'shardq.signal' of its exchange before it in its block}}
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// A second wait.
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
  // expected-error @+1 {{expects 'shardq.signal' of its exchange before it in its block}}
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// A signal alone.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{expects 'shardq.push' of its exchange before it in its block}}
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// One generation, and nothing between two gathers.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
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
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  %w1 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{may overwrite rows that a peer still reads: no other exchange lies between it and the one before it on channel 0, which has one generation}}
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w1) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %r1 = memref.load %w1[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// An exchange that overlaps has signalled before the rows are read.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{may overwrite rows that a peer still reads: no other exchange lies between it and the one before it on channel 0, which has one generation}}
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

// A gather that began before does not say that queries were read.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 1>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_rows(%kv) blocks(%blocks) into(%w0) over @ranks "tp" channel 0 exchange 0
      {block_size = 4 : i64, capacity = 64 : i64} : (memref<?x8xf32>), memref<?xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %vq = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{may overwrite rows that a peer still reads: no other exchange lies between it and the one before it on channel 1, which has one generation}}
  shardq.push gather_heads(%q) into(%vq) over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %r0 = memref.load %w0[%c0, %c0] : memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// Without blocks nothing stands between the signal and the wait.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.wait' of exchange 0 on channel 0, behind it in its block}}
  shardq.push gather_rows(%kv) into(%w0) over @ranks "tp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xf32>), memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  %w1 = shardq.workspace @plan channel 1 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{found 'shardq.push'}}
  shardq.push gather_rows(%kv) into(%w1) over @ranks "tp" channel 1 exchange 1 {capacity = 64 : i64}
      : (memref<?x8xf32>), memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}

// -----

// And nothing but another exchange acknowledges it.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"kv", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"q", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["kv", "q", "kv"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %kv: memref<?x8xf32>, %blocks: memref<?xi32>, %n: index, %m: index, %cond: i1) {
  %c0 = arith.constant 0 : index
  %w0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{may overwrite rows that a peer still reads: no other exchange lies between it and the one before it on channel 0, which has one generation}}
  shardq.push gather_rows(%kv) into(%w0) over @ranks "tp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x8xf32>), memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  shardq.wait gather_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  return
}
