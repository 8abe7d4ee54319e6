// RUN: shardq-opt %s --split-input-file --shardq-verify-protocol --verify-diagnostics

// No signal.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.signal' of exchange 0 on channel 0, by the same offsets, behind it in its block}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// No wait.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.wait' of exchange 0 on channel 0, by the same offsets, behind it in its block}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// Another exchange between push and signal.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  %v = shardq.workspace @plan channel 1 (%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.signal' of exchange 0 on channel 0, by the same offsets, behind it in its block}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{found 'shardq.push'}}
  shardq.push tokens_to_heads(%x) by(%ids, %o) decodes(%d) into(%v)
      over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x8x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.signal tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  shardq.wait tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  return
}

// -----

// A signal of another exchange.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.signal' of exchange 0 on channel 0, by the same offsets, behind it in its block}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{found 'shardq.signal'}}
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 1 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// A wait on another channel.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.wait' of exchange 0 on channel 0, by the same offsets, behind it in its block}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-note @+1 {{found 'shardq.wait'}}
  shardq.wait tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  return
}

// -----

// A signal without a push.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{expects 'shardq.push' of its exchange before it in its block}}
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// A wait without a signal.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{expects 'shardq.signal' of its exchange before it in its block}}
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// A second wait.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-error @+1 {{expects 'shardq.signal' of its exchange before it in its block}}
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// Only some ranks.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{runs under control flow that depends on the rank}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  }
  return
}

// -----

// An inbox that is no workspace.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>, %w: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{expects the inbox to be the 'shardq.workspace' of channel 0}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// Read before the rows have arrived.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-error @+1 {{touches the inbox before its rows have arrived}}
  %y = memref.load %w[%c0, %c0, %c0] : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{the wait is here}}
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// The same through a view.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  %v = memref.memory_space_cast %w : memref<?x8x8xf32, #shardq.symmetric<@ranks>> to memref<?x8x8xf32>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-error @+1 {{touches the inbox before its rows have arrived}}
  %y = memref.load %v[%c0, %c0, %c0] : memref<?x8x8xf32>
  // expected-note @+1 {{the wait is here}}
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// Read when the next exchange has begun.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{of this exchange}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %v = shardq.workspace @plan channel 1 (%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.push tokens_to_heads(%x) by(%ids, %o) decodes(%d) into(%v)
      over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x8x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  shardq.wait tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  // expected-error @+1 {{may touch the inbox when the next exchange has begun}}
  %y = memref.load %w[%c0, %c0, %c0] : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// The same through a view that was made early.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  %s = memref.memory_space_cast %w : memref<?x8x8xf32, #shardq.symmetric<@ranks>> to memref<?x8x8xf32>
  // expected-note @+1 {{of this exchange}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %v = shardq.workspace @plan channel 1 (%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.push tokens_to_heads(%x) by(%ids, %o) decodes(%d) into(%v)
      over @ranks "tp" channel 1 exchange 1 {capacity = 8 : i64}
      : (memref<?x8x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  shardq.wait tokens_to_heads by(%o) over @ranks "tp" channel 1 exchange 1 : memref<5xi32>
  // expected-error @+1 {{may touch the inbox when the next exchange has begun}}
  %y = memref.load %s[%c0, %c0, %c0] : memref<?x8x8xf32>
  return
}

// -----

// An inbox that is returned.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) -> memref<?x8x8xf32, #shardq.symmetric<@ranks>> {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{of this exchange}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-error @+1 {{may touch the inbox when the next exchange has begun}}
  return %w : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
}

// -----

// One generation, twice in a row.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
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
  // expected-error @+1 {{may overwrite rows that a peer still reads: no other exchange lies between it and the one before it on channel 0, which has one generation}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w2)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// One generation, from one call to the next.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{may overwrite rows that a peer still reads}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// More rows than the channel holds would reach into the next.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{capacity}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 9 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// An exchange that the plan does not know.
shardq.mesh @ranks ["tp" = 4, "dp" = 2]
// expected-note @+1 {{the exchanges are planned here}}
shardq.plan @plan over @ranks {channels = [#shardq.channel<"a", offset = 0, bytes = 1024, generations = 2>,#shardq.channel<"b", offset = 2048, bytes = 1024, generations = 1>], exchanges = ["x"], hash = 0 : i64, slot_bytes = 4096 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{exchange is 77, expected below 1}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w) over @ranks "tp" channel 0 exchange 77 {capacity = 4 : i64} : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 77 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 77 : memref<5xi32>
  return
}

// -----

// Two groups on one channel would mix their epochs.
shardq.mesh @ranks ["tp" = 4, "dp" = 2]
shardq.plan @plan over @ranks {channels = [#shardq.channel<"a", offset = 0, bytes = 1024, generations = 2>,#shardq.channel<"b", offset = 2048, bytes = 1024, generations = 1>], exchanges = ["x"], hash = 0 : i64, slot_bytes = 4096 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %o2: memref<3xi32>, %q2: memref<?x4x8xf32>) {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{this one uses it over "tp"}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64} : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  %w2 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{uses channel 0 over axis "dp"}}
  shardq.push heads_to_tokens(%q2) by(%ids, %o2) decodes(%d) into(%w2) over @ranks "dp" channel 0 exchange 0 {capacity = 4 : i64} : (memref<?x4x8xf32>), memref<?xi32>, memref<3xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o2) over @ranks "dp" channel 0 exchange 0 : memref<3xi32>
  shardq.wait heads_to_tokens by(%o2) over @ranks "dp" channel 0 exchange 0 : memref<3xi32>
  return
}

// -----

// The inbox of the next exchange was asked for before the last one ran.
shardq.mesh @ranks ["tp" = 4, "dp" = 2]
shardq.plan @plan over @ranks {channels = [#shardq.channel<"a", offset = 0, bytes = 1024, generations = 2>,#shardq.channel<"b", offset = 2048, bytes = 1024, generations = 1>], exchanges = ["x"], hash = 0 : i64, slot_bytes = 4096 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  %w2 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64} : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-error @+1 {{expects the inbox to be the 'shardq.workspace' of channel 0, in its block with no other exchange between}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w2) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64} : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// A signal by another split.
shardq.mesh @ranks ["tp" = 4, "dp" = 2]
shardq.plan @plan over @ranks {channels = [#shardq.channel<"a", offset = 0, bytes = 1024, generations = 2>,#shardq.channel<"b", offset = 2048, bytes = 1024, generations = 1>], exchanges = ["x"], hash = 0 : i64, slot_bytes = 4096 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %o2: memref<5xi32>) {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.signal' of exchange 0 on channel 0, by the same offsets, behind it in its block}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64} : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{found 'shardq.signal'}}
  shardq.signal heads_to_tokens by(%o2) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// Two gathers with no merge between overwrite queries that a peer still reads.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
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
  %q2 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{may overwrite rows that a peer still reads: no other exchange lies between it and the one before it on channel 0, which has one generation}}
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

// -----

// The members wait for as many rows as they signal.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"parts", offset = 4096, bytes = 3072, generations = 1>],
  exchanges = ["q", "parts"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%a: memref<?x2x8xf32>, %p: memref<?x8x16xf32>, %l: memref<?x8xf32>, %out: memref<?x2x16xf32>, %n: index, %m: index) {
  %q = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push gather_heads(%a) into(%q) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{the signal is here}}
  shardq.signal gather_heads rows(%n) over @ranks "tp" channel 0 exchange 0
  // expected-error @+1 {{expects as many rows as the group signals}}
  shardq.wait gather_heads rows(%m) over @ranks "tp" channel 0 exchange 0
  %parts = shardq.workspace @plan channel 1 (%m) : memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  shardq.push scatter_heads(%p, %l) into(%parts) over @ranks "tp" channel 1 exchange 1 {capacity = 16 : i64}
      : (memref<?x8x16xf32>, memref<?x8xf32>), memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  shardq.signal scatter_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.wait scatter_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.merge_lse %parts into(%out) over @ranks "tp" : memref<?x2x20xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xf32>
  return
}

// -----

// A merge before its wait.
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
  // expected-error @+1 {{touches the inbox before its rows have arrived}}
  shardq.merge_lse %parts into(%out) over @ranks "tp" : memref<?x2x20xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xf32>
  shardq.signal scatter_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  // expected-note @+1 {{the wait is here}}
  shardq.wait scatter_heads rows(%n) over @ranks "tp" channel 1 exchange 1
  shardq.merge_lse %parts into(%out) over @ranks "tp" : memref<?x2x20xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 1>,
              #shardq.channel<"parts", offset = 4096, bytes = 3072, generations = 1>],
  exchanges = ["q", "parts"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%a: memref<?x2x8xf32>, %p: memref<?x8x16xf32>, %l: memref<?x8xf32>, %out: memref<?x2x16xf32>, %n: index, %m: index) {
  %q = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{expects 'shardq.signal' of exchange 0 on channel 0, behind it in its block}}
  shardq.push gather_heads(%a) into(%q) over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// Of scattered rows a wait may expect some more than the group signals, which is an error at run time, but no
// other number.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"parts", offset = 0, bytes = 3072, generations = 2>],
  exchanges = ["parts"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%p: memref<?x2x16xf32>, %l: memref<?x2xf32>, %out: memref<?x2x16xf32>, %n: index, %m: index, %all: index) {
  %parts = shardq.workspace @plan channel 0 (%all) : memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  shardq.push scatter_rows(%p, %l) into(%parts) over @ranks "tp" channel 0 exchange 0 {capacity = 16 : i64}
      : (memref<?x2x16xf32>, memref<?x2xf32>), memref<?x2x20xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{the signal is here}}
  shardq.signal scatter_rows rows(%n) over @ranks "tp" channel 0 exchange 0
  // expected-error @+1 {{expects as many rows as the group signals}}
  shardq.wait scatter_rows rows(%m) over @ranks "tp" channel 0 exchange 0
  shardq.merge_lse %parts into(%out) over @ranks "tp" : memref<?x2x20xf32, #shardq.symmetric<@ranks>>, memref<?x2x16xf32>
  return
}

// -----

// Nobody frees what peers write into.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out", offset = 4096, bytes = 2048, generations = 2>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-error @+1 {{'memref.dealloc' op frees an inbox of the symmetric heap}}
  memref.dealloc %w : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// A push by NCCL on a channel that does not ask for it.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out by nccl", offset = 4096, bytes = 2048, generations = 2, transport = <nccl>>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %w = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{is to be carried by NCCL, expected as channel 0, which does not ask for it}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64, transport = #shardq.transport<nccl>}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// The other way round.
shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the channel is planned here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>,
              #shardq.channel<"out by nccl", offset = 4096, bytes = 2048, generations = 2, transport = <nccl>>],
  exchanges = ["q", "out"], hash = 0 : i64, slot_bytes = 8192 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %w = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{is not to be carried by NCCL, expected as channel 1, which asks for it}}
  shardq.push heads_to_tokens(%q) by(%ids, %o) decodes(%d) into(%w)
      over @ranks "tp" channel 1 exchange 0 {capacity = 8 : i64, transport = #shardq.transport<direct>}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 1 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 1 exchange 0 : memref<5xi32>
  return
}
