// RUN: shardq-opt %s --split-input-file --allow-unregistered-dialect --shardq-plan-workspace | FileCheck %s
// RUN: shardq-opt %s --split-input-file --allow-unregistered-dialect --shardq-plan-workspace="max-tokens=1000 max-requests=77 slots=3" | FileCheck %s --check-prefix=SMALL
//
// A plan is the same each time, and what it plans holds the protocol:
// RUN: shardq-opt %s --split-input-file --allow-unregistered-dialect --shardq-plan-workspace -o %t.one.mlir
// RUN: shardq-opt %s --split-input-file --allow-unregistered-dialect --shardq-plan-workspace -o %t.two.mlir
// RUN: diff %t.one.mlir %t.two.mlir
// RUN: shardq-opt %t.one.mlir --split-input-file --allow-unregistered-dialect --shardq-verify-protocol -o /dev/null

// The sizes of DeepSeek-V3.2 at tp 8: the q inbox for the fullest rank,
// ceil(8192 / 8) + 2 * 256 rows, the out inbox for all 8192 rows. The two
// acknowledge each other: one generation each.
// CHECK-LABEL: shardq.plan @plan over @ranks
// CHECK-SAME: channels = [#shardq.channel<"heads_to_tokens 128x576xbf16", offset = 0, bytes = 226492416, generations = 1>,
// CHECK-SAME:             #shardq.channel<"tokens_to_heads 16x512xbf16", offset = 226492416, bytes = 134217728, generations = 1>]
// CHECK-SAME: exchanges = ["heads_to_tokens exchange 0 of @attention", "tokens_to_heads exchange 1 of @attention"]
// CHECK-SAME: hash = [[HASH:[0-9]+]] : i64, slot_bytes = 360710144 : i64, slots = 1 : i64
// SMALL: bytes = 41140224, generations = 1
// SMALL: bytes = 16384000, generations = 1
// SMALL-SAME: slots = 3 : i64
// CHECK: func @attention
// CHECK-SAME: %[[NOPE:[a-z0-9]+]]: memref<?x16x512xbf16>, %[[ROPE:[a-z0-9]+]]: memref<?x16x64xbf16>, %[[X:[a-z0-9]+]]: memref<?x128x512xbf16>,
// CHECK-SAME: %[[AFTER:[a-z0-9]+]]: memref<?x16x512xbf16>, %[[IDS:[a-z0-9]+]]: memref<?xi32>, %[[OFFSETS:[a-z0-9]+]]: memref<9xi32>,
// CHECK-SAME: %[[D:[a-z0-9]+]]: index, %[[N:[a-z0-9]+]]: index
shardq.mesh @ranks ["tp" = 8]
func.func @attention(%nope: memref<?x16x512xbf16>, %rope: memref<?x16x64xbf16>, %x: memref<?x128x512xbf16>,
                     %after: memref<?x16x512xbf16>, %ids: memref<?xi32>, %o: memref<9xi32>, %d: index, %n: index,
                     %start: memref<?xi32>, %lens: memref<?xi32>) -> (i1, i1) {
  // The gate keeps larger steps out, and keeps what is smaller already.
  // CHECK: shardq.split_gate {{.*}} {max_rank_rows = 1536 : i64, max_rows = 8192 : i64,
  // CHECK: shardq.split_gate {{.*}} {max_rank_rows = 5 : i64, max_rows = 8192 : i64,
  // SMALL: shardq.split_gate {{.*}} {max_rank_rows = 279 : i64, max_rows = 1000 : i64,
  %gate = shardq.split_gate offsets(%o) requests(%start, %lens) decodes(%d) rows(%n)
      {min_tokens = 1 : i64, topk = 4 : i64} : memref<9xi32>, memref<?xi32>, memref<?xi32>
  %gate2 = shardq.split_gate offsets(%o) requests(%start, %lens) decodes(%d) rows(%n)
      {min_tokens = 1 : i64, topk = 4 : i64, max_rank_rows = 5 : i64, max_rows = 100000 : i64}
      : memref<9xi32>, memref<?xi32>, memref<?xi32>
  // CHECK: %[[QIN:.*]] = shardq.workspace @plan channel 0(%[[N]]) : memref<?x128x576xbf16, #shardq.symmetric<@ranks>>
  // CHECK-NEXT: shardq.push heads_to_tokens(%[[NOPE]], %[[ROPE]]) by(%[[IDS]], %[[OFFSETS]]) decodes(%[[D]]) into(%[[QIN]]) over @ranks "tp" channel 0 exchange 0 {capacity = 1536 : i64}
  // CHECK-NEXT: shardq.signal heads_to_tokens by(%[[OFFSETS]]) over @ranks "tp" channel 0 exchange 0
  // CHECK-NEXT: shardq.wait heads_to_tokens by(%[[OFFSETS]]) over @ranks "tp" channel 0 exchange 0
  %a = memref.alloc(%n) : memref<?x128x576xbf16, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%nope, %rope) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x16x512xbf16>, memref<?x16x64xbf16>, memref<?xi32>, memref<9xi32>, index,
         memref<?x128x576xbf16, #shardq.symmetric<@ranks>>) -> ()
  // CHECK: %[[OIN:.*]] = shardq.workspace @plan channel 1(%[[N]]) : memref<?x16x512xbf16, #shardq.symmetric<@ranks>>
  // CHECK-NEXT: shardq.push tokens_to_heads(%[[X]]) {{.*}} into(%[[OIN]]) over @ranks "tp" channel 1 exchange 1 {capacity = 8192 : i64}
  // CHECK-NEXT: shardq.signal tokens_to_heads {{.*}} channel 1 exchange 1
  // CHECK-NEXT: shardq.wait tokens_to_heads {{.*}} channel 1 exchange 1
  //
  // Nobody sends the decode rows and the padding.
  // CHECK: %[[DECODES:.*]] = memref.subview %[[OIN]][%{{.*}}, 0, 0]
  // CHECK: memref.copy %[[AFTER]], %[[DECODES]]
  // CHECK: memref.load %[[OFFSETS]][%c8
  // CHECK: %[[PADDING:.*]] = memref.subview %[[OIN]]
  // CHECK: linalg.fill ins(%{{.*}} : bf16) outs(%[[PADDING]]
  // CHECK-NOT: memref.alloc
  // CHECK-NOT: shardq.exchange
  %b = memref.alloc(%n) : memref<?x16x512xbf16, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) after(%after) over @ranks "tp" outs(%b)
      : (memref<?x128x512xbf16>, memref<?xi32>, memref<9xi32>, index, memref<?x16x512xbf16>,
         memref<?x16x512xbf16, #shardq.symmetric<@ranks>>) -> ()
  return %gate, %gate2 : i1, i1
}

// -----

// An exchange on its own would overwrite rows of the last call: two generations.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 2>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// Twice in a row.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 2>, {{[^>]*}}generations = 1>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %a2 = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a2)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// In turns in a loop, also from one turn to the next.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 1>, {{[^>]*}}generations = 1>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  return
}

// -----

// In a loop on its own, although something follows it; and the loop may not run,
// then what follows it is on its own too.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 2>, {{[^>]*}}generations = 2>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// What may be skipped acknowledges nothing.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 2>, {{[^>]*}}generations = 1>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>, %c: i1) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  scf.if %c {
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  return
}

// -----

// Either way there is one.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 1>, {{[^>]*}}generations = 1>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>, %c: i1) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  scf.if %c {
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  } else {
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  return
}

// -----

// Branches of one condition are taken together, so that one is between the others.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 1>, {{[^>]*}}generations = 1>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>, %c: i1) {
  scf.if %c {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  scf.if %c {
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  return
}

// -----

// Those of two conditions are not.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 2>, {{[^>]*}}generations = 2>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>, %c: i1, %e: i1) {
  scf.if %c {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  scf.if %e {
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  return
}

// -----

// A condition that each turn has anew says nothing of the one before.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 2>, {{[^>]*}}generations = 2>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>, %flags: memref<?xi1>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %c = memref.load %flags[%i] : memref<?xi1>
    scf.if %c {
    } else {
      %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
      shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
          : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
    }
    scf.if %c {
      %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
      shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
          : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
    }
  }
  return
}

// -----

// Two functions in any order, any number of times: neither knows of the other.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 2>, {{[^>]*}}generations = 2>]
shardq.mesh @ranks ["tp" = 4]
func.func @g(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) {
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// A function that calls itself may stop anywhere.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [{{[^>]*}}generations = 2>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  call @f(%q, %ids, %o, %d, %n) : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, index) -> ()
  return
}

// -----

// Exchanges of one shape and direction share a channel; other shapes do not.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [#shardq.channel<"heads_to_tokens 8x8xf32", {{[^>]*}}>, #shardq.channel<"heads_to_tokens 8xf32", {{[^>]*}}>]
// CHECK-SAME: exchanges = ["heads_to_tokens exchange 0 of @f", "heads_to_tokens exchange 1 of @f", "heads_to_tokens exchange 2 of @f"]
// CHECK: shardq.push {{.*}} channel 0 exchange 0
// CHECK: shardq.push {{.*}} channel 1 exchange 1
// CHECK: shardq.push {{.*}} channel 0 exchange 2
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %l: memref<?x2xf32>) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %b = memref.alloc(%n) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%l) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x2xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %c = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%c)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// A result that is returned, or needed behind the next exchange, is copied out.
// CHECK-LABEL: func @escapes
// CHECK: %[[A:.*]] = shardq.workspace
// CHECK: shardq.wait
// CHECK: %[[COPY:.*]] = memref.alloc(%{{.*}}) {alignment = 64 : i64} : memref<?x8x8xf32>
// CHECK: memref.copy %[[A]], %[[COPY]]
// CHECK: shardq.workspace
// CHECK: shardq.wait
// CHECK: %[[B:.*]] = memref.alloc(%{{.*}}) {alignment = 64 : i64} : memref<?x2x8xf32>
// CHECK: memref.load %[[COPY]]
// CHECK-NOT: shardq.workspace
// CHECK: return %{{.*}}, %[[B]]
shardq.mesh @ranks ["tp" = 4]
func.func @escapes(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) -> (f32, memref<?x2x8xf32>) {
  %c0 = arith.constant 0 : index
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  %tokens = memref.memory_space_cast %a : memref<?x8x8xf32, #shardq.symmetric<@ranks>> to memref<?x8x8xf32>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  %heads = memref.memory_space_cast %b : memref<?x2x8xf32, #shardq.symmetric<@ranks>> to memref<?x2x8xf32>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %v = memref.load %tokens[%c0, %c0, %c0] : memref<?x8x8xf32>
  return %v, %heads : f32, memref<?x2x8xf32>
}

// -----

// One that is read before the next exchange is not.
// CHECK-LABEL: func @in_place
// CHECK: %[[A:.*]] = shardq.workspace
// CHECK: shardq.wait
// CHECK-NOT: memref.alloc
// CHECK: memref.load %[[A]]
// CHECK: shardq.workspace
shardq.mesh @ranks ["tp" = 4]
func.func @in_place(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %x: memref<?x8x8xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %v = memref.load %a[%c0, %c0, %c0] : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  %b = memref.alloc(%n) : memref<?x2x8xf32, #shardq.symmetric<@ranks>>
  shardq.exchange tokens_to_heads(%x) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%b)
      : (memref<?x8x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return %v : f32
}

// -----

// A module without exchanges gets no plan.
// CHECK-LABEL: func @nothing
// CHECK-NOT: shardq.plan
shardq.mesh @ranks ["tp" = 4]
func.func @nothing() {
  return
}

// -----

// Gathered queries and partial outputs acknowledge each other: one generation each,
// over two layers. Each rank has room for the rows of all four.
// CHECK-LABEL: shardq.plan @plan over @ranks
// CHECK-SAME: channels = [#shardq.channel<"gather_heads 8x12xbf16", offset = 0, bytes = 1572864, generations = 1>,
// CHECK-SAME:             #shardq.channel<"scatter_heads 2x24xbf16", offset = 1572864, bytes = 3145728, generations = 1>]
// CHECK-SAME: exchanges = ["gather_heads exchange 0 of @layers", "scatter_heads exchange 1 of @layers", "gather_heads exchange 2 of @layers", "scatter_heads exchange 3 of @layers"]
// CHECK: func @layers
// CHECK-SAME: %[[A:[a-z0-9]+]]: memref<?x2x8xbf16>, %[[B:[a-z0-9]+]]: memref<?x2x4xbf16>, %[[P:[a-z0-9]+]]: memref<?x8x16xbf16>, %[[L:[a-z0-9]+]]: memref<?x8xf32>,
// CHECK-SAME: %[[OUT:[a-z0-9]+]]: memref<?x2x16xbf16>, %[[MERGED:[a-z0-9]+]]: memref<?x2xf32>, %[[N:[a-z0-9]+]]: index
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @layers(%a: memref<?x2x8xbf16>, %b: memref<?x2x4xbf16>, %p: memref<?x8x16xbf16>, %l: memref<?x8xf32>,
                  %out: memref<?x2x16xbf16>, %merged: memref<?x2xf32>, %n: index) {
  // CHECK: %[[ROWS:.*]] = memref.dim %[[A]]
  // CHECK-NEXT: %[[IN:.*]] = shardq.workspace @plan channel 0(%[[N]]) : memref<?x8x12xbf16, #shardq.symmetric<@ranks>>
  // CHECK-NEXT: shardq.push gather_heads(%[[A]], %[[B]]) into(%[[IN]]) over @ranks "dcp" channel 0 exchange 0 {capacity = 8192 : i64}
  // CHECK-NEXT: shardq.signal gather_heads rows(%[[ROWS]]) over @ranks "dcp" channel 0 exchange 0
  // CHECK-NEXT: shardq.wait gather_heads rows(%[[ROWS]]) over @ranks "dcp" channel 0 exchange 0
  // CHECK-NEXT: "test.attend"(%[[IN]])
  %q = memref.alloc(%n) : memref<?x8x12xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%a, %b) over @ranks "dcp" outs(%q)
      : (memref<?x2x8xbf16>, memref<?x2x4xbf16>, memref<?x8x12xbf16, #shardq.symmetric<@ranks>>) -> ()
  "test.attend"(%q) : (memref<?x8x12xbf16, #shardq.symmetric<@ranks>>) -> ()
  // CHECK: %[[T:.*]] = memref.dim %[[P]]
  // CHECK: %[[FOUR:.*]] = arith.constant 4 : index
  // CHECK-NEXT: %[[ALL:.*]] = arith.muli %[[T]], %[[FOUR]]
  // CHECK-NEXT: %[[PARTS:.*]] = shardq.workspace @plan channel 1(%[[ALL]]) : memref<?x2x24xbf16, #shardq.symmetric<@ranks>>
  // CHECK-NEXT: shardq.push scatter_heads(%[[P]], %[[L]]) into(%[[PARTS]]) over @ranks "dcp" channel 1 exchange 1 {capacity = 32768 : i64}
  // CHECK-NEXT: shardq.signal scatter_heads rows(%[[T]]) over @ranks "dcp" channel 1 exchange 1
  // CHECK-NEXT: shardq.wait scatter_heads rows(%[[T]]) over @ranks "dcp" channel 1 exchange 1
  // CHECK-NEXT: shardq.merge_lse %[[PARTS]] into(%[[OUT]], %[[MERGED]]) over @ranks "dcp" {lse = #shardq.lse<base = two>}
  shardq.combine_lse %p lse(%l) over @ranks "dcp" outs(%out, %merged) {lse = #shardq.lse<base = two>}
      : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x2x16xbf16>, memref<?x2xf32>) -> ()
  // CHECK: shardq.push gather_heads({{.*}} channel 0 exchange 2
  %q2 = memref.alloc(%n) : memref<?x8x12xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%a, %b) over @ranks "dcp" outs(%q2)
      : (memref<?x2x8xbf16>, memref<?x2x4xbf16>, memref<?x8x12xbf16, #shardq.symmetric<@ranks>>) -> ()
  // CHECK: shardq.push scatter_heads({{.*}} channel 1 exchange 3
  // CHECK: shardq.merge_lse %{{.*}} into(%[[OUT]]) over @ranks "dcp" :
  // CHECK-NOT: shardq.{{gather_query|combine_lse}}
  shardq.combine_lse %p lse(%l) over @ranks "dcp" outs(%out)
      : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x2x16xbf16>) -> ()
  return
}

// -----

// Two gathers with no merge between: two generations of the queries.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [#shardq.channel<"gather_heads 8x8xbf16", {{[^>]*}}generations = 2>, #shardq.channel<"scatter_heads 2x24xbf16", {{[^>]*}}generations = 1>]
shardq.mesh @ranks ["tp" = 4]
func.func @f(%a: memref<?x2x8xbf16>, %p: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %out: memref<?x2x16xbf16>, %n: index) {
  %q = memref.alloc(%n) : memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%a) over @ranks "tp" outs(%q) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  %q2 = memref.alloc(%n) : memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%a) over @ranks "tp" outs(%q2) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  shardq.combine_lse %p lse(%l) over @ranks "tp" outs(%out) : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x2x16xbf16>) -> ()
  return
}

// -----

// A merge of another group acknowledges nothing.
// CHECK-LABEL: shardq.plan
// CHECK-SAME: channels = [#shardq.channel<"gather_heads 8x8xbf16", {{[^>]*}}generations = 2>, #shardq.channel<"scatter_heads 4x24xbf16", {{[^>]*}}generations = 2>]
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%a: memref<?x2x8xbf16>, %p: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %out: memref<?x4x16xbf16>, %n: index) {
  %q = memref.alloc(%n) : memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%a) over @ranks "tp" outs(%q) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  shardq.combine_lse %p lse(%l) over @ranks "dcp" outs(%out) : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x4x16xbf16>) -> ()
  return
}

// -----

// Queries that are read when the merge has begun are copied out first.
// CHECK-LABEL: func @late
// CHECK: shardq.wait gather_heads
// CHECK: %[[COPY:.*]] = memref.alloc(%{{.*}}) {alignment = 64 : i64} : memref<?x8x8xbf16>
// CHECK: memref.copy %{{.*}}, %[[COPY]]
// CHECK: shardq.merge_lse
// CHECK: "test.late"(%[[COPY]])
shardq.mesh @ranks ["tp" = 4]
func.func @late(%a: memref<?x2x8xbf16>, %p: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %out: memref<?x2x16xbf16>, %n: index) {
  %q = memref.alloc(%n) : memref<?x8x8xbf16, #shardq.symmetric<@ranks>>
  shardq.gather_query(%a) over @ranks "tp" outs(%q) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  %read = memref.memory_space_cast %q : memref<?x8x8xbf16, #shardq.symmetric<@ranks>> to memref<?x8x8xbf16>
  shardq.combine_lse %p lse(%l) over @ranks "tp" outs(%out) : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x2x16xbf16>) -> ()
  "test.late"(%read) : (memref<?x8x8xbf16>) -> ()
  return
}
