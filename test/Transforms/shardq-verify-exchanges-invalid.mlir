// RUN: shardq-opt %s --split-input-file --shardq-verify-exchanges --verify-diagnostics

// A branch on the rank.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A loop to the number of own rows.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %mine = shardq.local_rows %ids, %o decodes(%d) over @ranks "tp" : (tensor<?xi32>, tensor<5xi32>, index) -> tensor<?xi32>
  %n = tensor.dim %mine, %c0 : tensor<?xi32>
  // expected-note @+1 {{'scf.for' here decides by rank}}
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// What an exchange returns, and how much of it.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  %n = tensor.dim %x, %c0 : tensor<?x8x8xf32>
  %z = arith.cmpi eq, %n, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A block of an array that is split over ranks.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index, %split: tensor<4xi32> {shardq.split = #shardq.split<@ranks, 0 over "tp">}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = tensor.extract %split[%c0] : tensor<4xi32>
  %r = arith.index_cast %v : i32 to index
  %z = arith.cmpi eq, %r, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A call that leads to one.
shardq.mesh @ranks ["tp" = 4]
func.func private @inner(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}
func.func private @outer(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  call @inner(%q, %ids, %o, %d) : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> ()
  return
}
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    func.call @outer(%q, %ids, %o, %d) : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> ()
  }
  return
}

// -----

// The number goes through a call.
shardq.mesh @ranks ["tp" = 4]
func.func private @g(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index, %z: i1) {
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  call @g(%q, %ids, %o, %d, %z) : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index, i1) -> ()
  return
}

// -----

// A loop whose condition depends on the rank.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  // expected-note @+1 {{'scf.while' here decides by rank}}
  scf.while : () -> () {
    %go = arith.cmpi sgt, %r, %c0 : index
    scf.condition(%go)
  } do {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
    scf.yield
  }
  return
}

// -----

// What the condition of a loop hands to its body.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = scf.while (%i = %n) : (index) -> index {
    %go = arith.cmpi sgt, %i, %c0 : index
    %r = shardq.rank over @ranks "tp"
    scf.condition(%go) %r : index
  } do {
  ^bb0(%r: index):
    %z = arith.cmpi eq, %r, %c0 : index
    // expected-note @+1 {{'scf.if' here decides by rank}}
    scf.if %z {
      // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
      %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
    }
    scf.yield %c0 : index
  }
  return
}

// -----

// What one turn of a loop hands to the next.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %w = scf.for %i = %c0 to %n step %c1 iter_args(%p = %c0) -> index {
    %z = arith.cmpi eq, %p, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
    scf.if %z {
      // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
      %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
    }
    scf.yield %r : index
  }
  return
}

// -----

// A branch between blocks.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  // expected-note @+1 {{'cf.cond_br' here decides by rank}}
  cf.cond_br %z, ^one, ^two
^one:
  // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
  %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  cf.br ^two
^two:
  return
}

// -----

// A number that a branch hands to a block.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  cf.br ^next(%r : index)
^next(%x: index):
  %z = arith.cmpi eq, %x, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A constant that only some ranks store.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %true = arith.constant true
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  %m = memref.alloc() : memref<i1>
  scf.if %z {
    memref.store %true, %m[] : memref<i1>
  }
  %s = memref.load %m[] : memref<i1>
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %s {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A buffer that holds the rank, seen through a view.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %m = memref.alloc() : memref<4xindex>
  %v = memref.cast %m : memref<4xindex> to memref<?xindex>
  memref.store %r, %v[%c0] : memref<?xindex>
  %s = memref.load %m[%c1] : memref<4xindex>
  %z = arith.cmpi eq, %s, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// Which of two returns a function takes.
shardq.mesh @ranks ["tp" = 4]
func.func private @g(%r: index) -> i1 {
  %c0 = arith.constant 0 : index
  %true = arith.constant true
  %false = arith.constant false
  %z = arith.cmpi eq, %r, %c0 : index
  cf.cond_br %z, ^one, ^two
^one:
  return %true : i1
^two:
  return %false : i1
}
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %r = shardq.rank over @ranks "tp"
  %s = call @g(%r) : (index) -> i1
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %s {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
        : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A signal on its own.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%o: memref<5xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    shardq.signal heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  }
  return
}

// -----

// A wait on its own.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%o: memref<5xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = shardq.rank over @ranks "tp"
  %z = arith.cmpi eq, %r, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    shardq.wait heads_to_tokens by(%o) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  }
  return
}

// -----

// A function called by its address may be any.
shardq.mesh @ranks ["tp" = 4]
func.func private @g(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
   %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
   return
}
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %r = shardq.rank over @ranks "tp"
  %fn = func.constant @g : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> ()
  %z = arith.cmpi eq, %r, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    func.call_indirect %fn(%q, %ids, %o, %d) : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> ()
  }
  return
}

// -----

// A global is one buffer, however often it is asked for.
shardq.mesh @ranks ["tp" = 4]
memref.global @g : memref<index> = uninitialized
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %r = shardq.rank over @ranks "tp"
  %m = memref.get_global @g : memref<index>
  memref.store %r, %m[] : memref<index>
  %m2 = memref.get_global @g : memref<index>
  %x = memref.load %m2[] : memref<index>
  %z = arith.cmpi eq, %x, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// One of two buffers: either may hold the rank.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index, %s: i1) {
  %c0 = arith.constant 0 : index
  %r = shardq.rank over @ranks "tp"
  %a = memref.alloc() : memref<index>
  %b = memref.alloc() : memref<index>
  memref.store %c0, %a[] : memref<index>
  %m = arith.select %s, %a, %b : memref<index>
  memref.store %r, %m[] : memref<index>
  %x = memref.load %a[] : memref<index>
  %z = arith.cmpi eq, %x, %c0 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %z {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// A rank without keys of its own merges all the same.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%i: tensor<?x8xi32>, %q: tensor<?x2x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %s, %n = shardq.filter_indices %i over @ranks "tp" {interleave = 4 : i64} : (tensor<?x8xi32>) -> (tensor<?x8xi32>, tensor<?xi32>)
  %first = tensor.extract %n[%c0] : tensor<?xi32>
  %some = arith.cmpi sgt, %first, %zero : i32
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %some {
    // expected-error @+1 {{'shardq.gather_query' op runs under control flow that depends on the rank}}
    %g = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x8xf32>) -> tensor<?x8x8xf32>
  }
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%lens: tensor<?xi32>, %p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %n = shardq.local_lengths %lens over @ranks "tp" {interleave = 4 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  %first = tensor.extract %n[%c0] : tensor<?xi32>
  %some = arith.cmpi sgt, %first, %zero : i32
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %some {
    // expected-error @+1 {{'shardq.combine_lse' op runs under control flow that depends on the rank}}
    %g = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  }
  return
}

// -----

// A gather that ranks begin by their number.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%kv: tensor<?x8xf32>, %blocks: tensor<?xi32>, %count: tensor<1xi32>) {
  %rank = shardq.rank over @ranks
  %c1 = arith.constant 1 : index
  %first = arith.cmpi ult, %rank, %c1 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %first {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 4 : i64}
        : (tensor<?x8xf32>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
    %all = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xf32>
  }
  return
}

// -----

// Gathered rows are those of a group.
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x2x8xf32>, %kv: tensor<?x8xf32>, %blocks: tensor<?xi32>, %count: tensor<1xi32>) {
  %c0 = arith.constant 0 : index
  %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %all = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xf32>
  %x = tensor.extract %all[%c0, %c0] : tensor<?x8xf32>
  %some = arith.cmpf olt, %x, %x : f32
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %some {
    // expected-error @+1 {{runs under control flow that depends on the rank}}
    %all_q = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x8xf32>) -> tensor<?x8x8xf32>
  }
  return
}

// -----

// Which tokens a rank keeps.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%table: tensor<?x?xi32>, %lens: tensor<?xi32>, %p: tensor<?x8x16xf32>, %l: tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %s = shardq.token_slots table(%table) rows(%lens, %lens) over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  %first = tensor.extract %s[%c0] : tensor<?xi32>
  %some = arith.cmpi sgt, %first, %zero : i32
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %some {
    // expected-error @+1 {{'shardq.combine_lse' op runs under control flow that depends on the rank}}
    %g = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  }
  return
}

// -----

// What a rank has of the step is another thing on each.
shardq.mesh @ranks ["tp" = 4]
func.func @shards(%q: tensor<?x2x4xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) {
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : i32
  %starts, %lengths = shardq.shard_lengths %start, %lens rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %first = tensor.extract %starts[%c1] : tensor<?xi32>
  %any = arith.cmpi sgt, %first, %c0 : i32
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %any {
    // expected-error @+1 {{runs under control flow that depends on the rank}}
    %all = shardq.gather_rows %q over @ranks "tp" : (tensor<?x2x4xf32>) -> tensor<?x2x4xf32>
  }
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @slices(%x: tensor<?x8x16xf32>, %l: tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %r = shardq.rank over @ranks "tp"
  %own = tensor.extract_slice %x[0, 0, 0] [%r, 8, 16] [1, 1, 1] : tensor<?x8x16xf32> to tensor<?x8x16xf32>
  %rows = tensor.dim %own, %c0 : tensor<?x8x16xf32>
  %many = arith.cmpi sgt, %rows, %c2 : index
  // expected-note @+1 {{'scf.if' here decides by rank}}
  scf.if %many {
    // expected-error @+1 {{runs under control flow that depends on the rank: ranks that skip it leave the others waiting}}
    %g = shardq.combine_lse %own lse(%l) over @ranks "tp" : (tensor<?x8x16xf32>, tensor<?x8xf32>) -> tensor<?x2x16xf32>
  }
  return
}
