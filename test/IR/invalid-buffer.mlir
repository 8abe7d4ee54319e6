// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// plan
//===----------------------------------------------------------------------===//

// expected-error @+1 {{@ranks does not name a shardq.mesh}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"a", offset = 0, bytes = 512, generations = 2>,
              #shardq.channel<"b", offset = 1024, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 1280 : i64, slots = 1 : i64}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-error @+1 {{'shardq.plan' op has 0 slots, expected 1 or more}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"a", offset = 0, bytes = 512, generations = 2>,
              #shardq.channel<"b", offset = 1024, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 1280 : i64, slots = 0 : i64}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-error @+1 {{'shardq.plan' op has -1 slots, expected 1 or more}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"a", offset = 0, bytes = 512, generations = 2>,
              #shardq.channel<"b", offset = 1024, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 1280 : i64, slots = -1 : i64}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-error @+1 {{channel "b" begins at 512, expected at or behind 1024, the end of "a"}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"a", offset = 0, bytes = 512, generations = 2>,
              #shardq.channel<"b", offset = 512, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 1280 : i64, slots = 1 : i64}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-error @+1 {{slot_bytes is 1279, expected at least the end of channel "b": 1024 + 1 * 256}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"a", offset = 0, bytes = 512, generations = 2>,
              #shardq.channel<"b", offset = 1024, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 1279 : i64, slots = 1 : i64}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-error @+1 {{slot_bytes is -256, expected 0 or more}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"a", offset = 0, bytes = 512, generations = 2>,
              #shardq.channel<"b", offset = 1024, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = -256 : i64, slots = 1 : i64}

// -----

// A channel that ends beyond what 64 bits hold.
shardq.mesh @ranks ["tp" = 4]
// expected-error @+1 {{slot_bytes is 0, expected at least}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"a", offset = 0, bytes = 9223372036854775552, generations = 2>],
  exchanges = [], hash = 0 : i64, slot_bytes = 0 : i64, slots = 1 : i64}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the first is here}}
shardq.plan @plan over @ranks {channels = [], exchanges = [], hash = 0 : i64, slot_bytes = 0 : i64, slots = 1 : i64}
// expected-error @+1 {{'shardq.plan' op is the second plan of the module}}
shardq.plan @again over @ranks {channels = [], exchanges = [], hash = 0 : i64, slot_bytes = 0 : i64, slots = 1 : i64}

// -----

//===----------------------------------------------------------------------===//
// rank
//===----------------------------------------------------------------------===//

func.func @f() {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.rank over @ranks
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.rank over @ranks "tp"
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f() {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.rank over @ranks "dp"
  return
}

// -----

//===----------------------------------------------------------------------===//
// workspace
//===----------------------------------------------------------------------===//

shardq.mesh @ranks ["tp" = 4]
func.func @f(%n: index) {
  // expected-error @+1 {{@plan does not name a shardq.plan}}
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{@ranks does not name a shardq.plan}}
  %0 = shardq.workspace @ranks channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the plan is declared here}}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{channel is 1, expected below 1}}
  %0 = shardq.workspace @plan channel 1 (%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{'result' is 'memref<?x8x8xf32>', expected memory space #shardq.symmetric<@ranks>}}
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
shardq.mesh @other ["tp" = 4]
func.func @f(%n: index) {
  // expected-error @+1 {{'result' is 'memref<?x8x8xf32, #shardq.symmetric<@other>>', expected memory space #shardq.symmetric<@ranks>}}
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x8x8xf32, #shardq.symmetric<@other>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{expected the identity layout}}
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x8xf32, strided<[16, 1]>, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{has 0 sizes, expected 1, the dynamic dimensions of}}
  %0 = shardq.workspace @plan channel 0  : memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{has 2 sizes, expected 1, the dynamic dimensions of}}
  %0 = shardq.workspace @plan channel 0 (%n, %n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{expected static sizes behind dimension 0}}
  %0 = shardq.workspace @plan channel 0 (%n) : memref<4x?xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{expected numbers}}
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x4xindex, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{result is 'memref<?x65xf32, #shardq.symmetric<@ranks>>', expected at most 256 bytes, those of channel "q"}}
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x65xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// The size of a row does not overflow.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 256, generations = 1>],
  exchanges = [], hash = 0 : i64, slot_bytes = 256 : i64, slots = 1 : i64}
func.func @f(%n: index) {
  // expected-error @+1 {{expected at most 256 bytes, those of channel "q"}}
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x4294967296x4294967296xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// push
//===----------------------------------------------------------------------===//

func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "dp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<8xi32>, %d: index, %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'offsets' is 'memref<8xi32>', expected 5 entries: axis "tp" has 4 ranks}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<8xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %s1: memref<?x2x8xf32>, %s2: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x24xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has 3 sources, expected 1 or 2}}
  shardq.push heads_to_tokens(%s0, %s1, %s2) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>, memref<?x2x8xf32>, memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x24xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x8x4xf32>, %s1: memref<?x8x4xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x2x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has 2 sources, expected 1 when tokens_to_heads}}
  shardq.push tokens_to_heads(%s0, %s1) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x8x4xf32>, memref<?x8x4xf32>), memref<?xi32>, memref<5xi32>, memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has element type 'f32', expected 'bf16'}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'source' has rank 3, expected 2}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x4x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has 4 heads, expected 8: 2 on each of 4 ranks}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x4x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x4xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{has 4 values a head, expected 8}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x4xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x8xf32>) {
  // expected-error @+1 {{'inbox' is 'memref<?x8x8xf32>', expected memory space #shardq.symmetric<@ranks>}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{capacity is -1, expected 0 or more}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = -1 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{channel is -1, expected 0 or more}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel -1 exchange 0 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%s0: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{exchange is -1, expected 0 or more}}
  shardq.push heads_to_tokens(%s0) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange -1 {capacity = 4 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// signal
//===----------------------------------------------------------------------===//

func.func @f(%offsets: memref<5xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  shardq.signal tokens_to_heads by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%offsets: memref<5xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.signal tokens_to_heads by(%offsets) over @ranks "dp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%offsets: memref<4xi32>) {
  // expected-error @+1 {{'offsets' is 'memref<4xi32>', expected 5 entries: axis "tp" has 4 ranks}}
  shardq.signal tokens_to_heads by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<4xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%offsets: memref<5xi32>) {
  // expected-error @+1 {{channel is -1, expected 0 or more}}
  shardq.signal tokens_to_heads by(%offsets) over @ranks "tp" channel -1 exchange 0 : memref<5xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%offsets: memref<5xi32>) {
  // expected-error @+1 {{exchange is -2, expected 0 or more}}
  shardq.signal tokens_to_heads by(%offsets) over @ranks "tp" channel 0 exchange -2 : memref<5xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// wait
//===----------------------------------------------------------------------===//

func.func @f(%offsets: memref<5xi32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  shardq.wait tokens_to_heads by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%offsets: memref<5xi32>) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  shardq.wait tokens_to_heads by(%offsets) over @ranks "dp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%offsets: memref<4xi32>) {
  // expected-error @+1 {{'offsets' is 'memref<4xi32>', expected 5 entries: axis "tp" has 4 ranks}}
  shardq.wait tokens_to_heads by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<4xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%offsets: memref<5xi32>) {
  // expected-error @+1 {{channel is -1, expected 0 or more}}
  shardq.wait tokens_to_heads by(%offsets) over @ranks "tp" channel -1 exchange 0 : memref<5xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%offsets: memref<5xi32>) {
  // expected-error @+1 {{exchange is -2, expected 0 or more}}
  shardq.wait tokens_to_heads by(%offsets) over @ranks "tp" channel 0 exchange -2 : memref<5xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// peer_view
//===----------------------------------------------------------------------===//

func.func @f(%x: memref<?x8xf32>, %peer: index) {
  // expected-error @+1 {{'source' is 'memref<?x8xf32>', expected a #shardq.symmetric memory space}}
  %0 = shardq.peer_view %x[%peer] : memref<?x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%x: memref<?x8xf32, #shardq.symmetric<@ranks>>, %peer: index) {
  // expected-error @+1 {{failed to verify that all of {source, result} have same type}}
  %0 = "shardq.peer_view"(%x, %peer)
      : (memref<?x8xf32, #shardq.symmetric<@ranks>>, index) -> memref<?x8xf32>
  return
}
