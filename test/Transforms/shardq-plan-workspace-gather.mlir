// RUN: shardq-opt %s --split-input-file --allow-unregistered-dialect --shardq-plan-workspace="max-kv-tokens=1000 max-requests=7" | FileCheck %s
//
// What it plans holds the protocol.
// RUN: shardq-opt %s --split-input-file --allow-unregistered-dialect --shardq-plan-workspace --shardq-verify-protocol -o /dev/null

// The rows leave at the start and are waited for at the finish; what stands between
// overlaps. ceil(1000 / (2*4)) + 7 = 132 blocks of 4 rows from each of two ranks; nothing
// acknowledges them before the next gather: two generations.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [#shardq.channel<"gather_rows 12xbf16", offset = 0, bytes = 25344, generations = 2>]
// CHECK-SAME: exchanges = ["gather_rows exchange 0 of @f"]
// CHECK: func @f(%[[A:.*]]: memref<?x8xbf16>, %[[B:.*]]: memref<?x4xbf16>, %[[BLOCKS:.*]]: memref<?xi32>, %[[COUNT:.*]]: memref<1xi32>, %{{.*}}: index, %[[START:.*]]: memref<?xi32>
// The gate keeps larger steps out, and keeps what is smaller already.
// CHECK: shardq.gather_gate {{.*}} {block_size = 4 : i64, max_blocks = 132 : i64}
// CHECK: shardq.gather_gate {{.*}} {block_size = 4 : i64, max_blocks = 9 : i64}
// CHECK: %[[LOADED:.*]] = memref.load %[[COUNT]]
// CHECK: %[[CAST:.*]] = arith.index_cast %[[LOADED]]
// CHECK: %[[ROWS:.*]] = arith.muli %[[CAST]], %c4
// CHECK: %[[ALL:.*]] = arith.muli %[[ROWS]], %c2
// CHECK: %[[INBOX:.*]] = shardq.workspace @plan channel 0(%[[ALL]]) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
// CHECK: shardq.push gather_rows(%[[A]], %[[B]]) blocks(%[[BLOCKS]]) into(%[[INBOX]]) over @ranks "dcp" channel 0 exchange 0 {block_size = 4 : i64, block_stride_rows = 5 : i64, capacity = 1056 : i64}
// CHECK: shardq.signal gather_rows rows(%[[ROWS]]) over @ranks "dcp" channel 0 exchange 0
// CHECK: "test.between"
// CHECK: shardq.wait gather_rows rows(%[[ROWS]]) over @ranks "dcp" channel 0 exchange 0
// CHECK: %[[CAST:.*]] = memref.memory_space_cast %[[INBOX]]
// CHECK: "test.use"(%[[CAST]])
// CHECK-NOT: memref.alloc
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%a: memref<?x8xbf16>, %b: memref<?x4xbf16>, %blocks: memref<?xi32>, %count: memref<1xi32>, %n: index,
             %start: memref<?xi32>) -> (i1, i1) {
  %0 = shardq.gather_gate %start blocks(%count) decodes(%n) over @ranks "dcp" {block_size = 4 : i64} : memref<?xi32>, memref<1xi32>
  %1 = shardq.gather_gate %start blocks(%count) decodes(%n) over @ranks "dcp" {block_size = 4 : i64, max_blocks = 9 : i64}
      : memref<?xi32>, memref<1xi32>
  %h = shardq.gather_kv_start(%a, %b) blocks(%blocks, %count) over @ranks "dcp" {block_size = 4 : i64, block_stride_rows = 5 : i64}
      : (memref<?x8xbf16>, memref<?x4xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  "test.between"() : () -> ()
  %all = memref.alloc(%n) : memref<?x12xbf16, #shardq.symmetric<@ranks>>
  %read = memref.memory_space_cast %all : memref<?x12xbf16, #shardq.symmetric<@ranks>> to memref<?x12xbf16>
  shardq.gather_kv_finish %h outs(%all) : (!shardq.kv_gather, memref<?x12xbf16, #shardq.symmetric<@ranks>>) -> ()
  "test.use"(%read) : (memref<?x12xbf16>) -> ()
  return %0, %1 : i1, i1
}

// -----

// Where runs of the interleave are several blocks, a request's last one may be a whole run: ceil(1000 / (2*4)) + 7*4 =
// 153 blocks; and never more than all of the step, ceil(1000 / 8) + 7 = 132 of 8 rows.
// CHECK-LABEL: shardq.plan
// CHECK: func @runs
// CHECK: shardq.gather_gate {{.*}} {block_size = 4 : i64, max_blocks = 153 : i64}
// CHECK: shardq.gather_gate {{.*}} {block_size = 8 : i64, max_blocks = 132 : i64}
// CHECK: shardq.push gather_rows({{.*}} {block_size = 4 : i64, capacity = 1224 : i64}
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @runs(%kv: memref<?x8xbf16>, %table: memref<?x?xi32>, %lens: memref<?xi32>, %blocks: memref<?xi32>,
                %inverse: memref<?x?xi32>, %count: memref<1xi32>, %n: index, %start: memref<?xi32>) -> (i1, i1) {
  shardq.gather_blocks %table lengths(%lens) over @ranks "dcp" outs(%blocks, %inverse, %count)
      {block_size = 4 : i64, interleave = 16 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x?xi32>, memref<1xi32>) -> ()
  shardq.gather_blocks %table lengths(%lens) over @ranks "dcp" outs(%blocks, %inverse, %count)
      {block_size = 8 : i64, interleave = 2147483640 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x?xi32>, memref<1xi32>) -> ()
  %0 = shardq.gather_gate %start blocks(%count) decodes(%n) over @ranks "dcp" {block_size = 4 : i64} : memref<?xi32>, memref<1xi32>
  %1 = shardq.gather_gate %start blocks(%count) decodes(%n) over @ranks "dcp" {block_size = 8 : i64} : memref<?xi32>, memref<1xi32>
  %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "dcp" {block_size = 4 : i64}
      : (memref<?x8xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  %all = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  %read = memref.memory_space_cast %all : memref<?x8xbf16, #shardq.symmetric<@ranks>> to memref<?x8xbf16>
  shardq.gather_kv_finish %h outs(%all) : (!shardq.kv_gather, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  "test.use"(%read) : (memref<?x8xbf16>) -> ()
  return %0, %1 : i1, i1
}

// -----

// An exchange behind the finish acknowledges the gather, and a gather that stands
// between two of its exchanges acknowledges those.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [#shardq.channel<"gather_rows 8xbf16", {{[^>]*}}generations = 1>, #shardq.channel<"gather_heads 8x8xbf16", {{[^>]*}}generations = 1>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xbf16>, %kv: memref<?x8xbf16>, %blocks: memref<?xi32>, %count: memref<1xi32>, %n: index) {
  %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 4 : i64}
      : (memref<?x8xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  %all = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_kv_finish %h outs(%all) : (!shardq.kv_gather, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  %q2 = memref.alloc(%n) : memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%q) over @ranks "tp" outs(%q2) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// One that stands between start and finish does neither: what it signals is that rows of
// the gather before were read, and the gather signals before it is read itself.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [#shardq.channel<"gather_heads 8x8xbf16", {{[^>]*}}generations = 2>, #shardq.channel<"gather_rows 8xbf16", {{[^>]*}}generations = 2>]
// CHECK: shardq.signal gather_rows
// CHECK: shardq.push gather_heads
// CHECK: shardq.wait gather_heads
// CHECK: shardq.wait gather_rows
// Read before another signal, in place.
// CHECK-NOT: memref.alloc
// CHECK: "test.use"
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xbf16>, %kv: memref<?x8xbf16>, %blocks: memref<?xi32>, %count: memref<1xi32>, %n: index) {
  %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 4 : i64}
      : (memref<?x8xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  %q2 = memref.alloc(%n) : memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%q) over @ranks "tp" outs(%q2) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  %all = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_kv_finish %h outs(%all) : (!shardq.kv_gather, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  "test.use"(%q2, %all) : (memref<?x8x8xbf16, #shardq.symmetric<@ranks>>, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// Queries that are read when a gather has started are copied out first.
// CHECK-LABEL: func @late
// CHECK: shardq.wait gather_heads
// CHECK: %[[COPY:.*]] = memref.alloc(%{{.*}}) {alignment = 64 : i64} : memref<?x8x8xbf16>
// CHECK: shardq.push gather_rows
// CHECK: "test.late"(%[[COPY]])
// CHECK: shardq.wait gather_rows
shardq.mesh @ranks ["tp" = 4]
func.func @late(%q: memref<?x2x8xbf16>, %kv: memref<?x8xbf16>, %blocks: memref<?xi32>, %count: memref<1xi32>, %n: index) {
  %q2 = memref.alloc(%n) : memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%q) over @ranks "tp" outs(%q2) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  %read = memref.memory_space_cast %q2 : memref<?x8x8xbf16, #shardq.symmetric<@ranks>> to memref<?x8x8xbf16>
  %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 4 : i64}
      : (memref<?x8xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  "test.late"(%read) : (memref<?x8x8xbf16>) -> ()
  %all = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_kv_finish %h outs(%all) : (!shardq.kv_gather, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// Blocks of another size have a channel of their own.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: bytes = 16896
// CHECK-SAME: bytes = 17920
shardq.mesh @ranks ["tp" = 2]
func.func @f(%kv: memref<?x8xbf16>, %blocks: memref<?xi32>, %count: memref<1xi32>, %n: index) {
  %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 4 : i64}
      : (memref<?x8xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  %a = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_kv_finish %h outs(%a) : (!shardq.kv_gather, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  %h2 = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 8 : i64}
      : (memref<?x8xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  %b = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_kv_finish %h2 outs(%b) : (!shardq.kv_gather, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// Rows of each rank for the largest step, and what chunks are padded with: (8192 + 2*7) * 2. The two inbox types
// acknowledge each other; what leaves the block is copied out.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [#shardq.channel<"gather_rows 8xbf16", offset = 0, bytes = 262656, generations = 1>, #shardq.channel<"gather_rows 2x4xi8", offset = 262656, bytes = 131328, generations = 1>]
// CHECK-SAME: exchanges = ["gather_rows exchange 0 of @f", "gather_rows exchange 1 of @f"]
// CHECK: func @f(%[[A:.*]]: memref<?x8xbf16>, %[[B:.*]]: memref<?x2x4xi8>, %[[N:.*]]: index
// CHECK: %[[ROWS:.*]] = memref.dim %[[A]]
// CHECK: %[[INBOX:.*]] = shardq.workspace @plan channel 0(%[[N]]) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
// CHECK: shardq.push gather_rows(%[[A]]) into(%[[INBOX]]) over @ranks "pcp" channel 0 exchange 0 {capacity = 16412 : i64}
// CHECK-NEXT: shardq.signal gather_rows rows(%[[ROWS]]) over @ranks "pcp" channel 0 exchange 0
// CHECK-NEXT: shardq.wait gather_rows rows(%[[ROWS]]) over @ranks "pcp" channel 0 exchange 0
// CHECK: "test.use"(%[[INBOX]])
// CHECK: shardq.push gather_rows(%[[B]]) into(%[[SECOND:.*]]) over @ranks "pcp" channel 1 exchange 1
// CHECK: %[[COPY:.*]] = memref.alloc({{.*}}) {{.*}} : memref<?x2x4xi8>
// CHECK: memref.copy %[[SECOND]], %[[COPY]]
// CHECK: return %[[COPY]]
shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%a: memref<?x8xbf16>, %b: memref<?x2x4xi8>, %n: index) -> memref<?x2x4xi8> {
  %0 = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_rows %a over @ranks "pcp" outs(%0) : (memref<?x8xbf16>, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  "test.use"(%0) : (memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  %1 = memref.alloc(%n) : memref<?x2x4xi8, #shardq.symmetric<@ranks>>
  %read = memref.memory_space_cast %1 : memref<?x2x4xi8, #shardq.symmetric<@ranks>> to memref<?x2x4xi8>
  shardq.gather_rows %b over @ranks "pcp" outs(%1) : (memref<?x2x4xi8>, memref<?x2x4xi8, #shardq.symmetric<@ranks>>) -> ()
  return %read : memref<?x2x4xi8>
}

// -----

// Rows that are gathered while KV is on its way: two channels, since they are read at different places.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [#shardq.channel<"gather_rows 8xbf16", {{[^>]*}}>, #shardq.channel<"gather_rows 8xbf16", {{[^>]*}}>]
// CHECK: shardq.push gather_rows({{.*}}) blocks
// CHECK: shardq.signal gather_rows {{.*}} channel [[KV:[01]]]
// CHECK: shardq.push gather_rows(%{{.*}}) into
// CHECK: shardq.wait gather_rows
// CHECK: shardq.wait gather_rows {{.*}} channel [[KV]]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%a: memref<?x8xbf16>, %kv: memref<?x8xbf16>, %blocks: memref<?xi32>, %count: memref<1xi32>, %n: index) {
  %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 4 : i64}
      : (memref<?x8xbf16>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  %0 = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_rows %a over @ranks "tp" outs(%0) : (memref<?x8xbf16>, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  %all = memref.alloc(%n) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_kv_finish %h outs(%all) : (!shardq.kv_gather, memref<?x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}
