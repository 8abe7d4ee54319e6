// RUN: shardq-opt %s --split-input-file --shardq-plan-workspace --verify-diagnostics

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x8xf32>, %ids: tensor<?xi32>, %o: tensor<5xi32>, %d: index) {
  // expected-error @+1 {{is on tensors: bufferize before planning the workspace}}
  %e = shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x8xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%topk: memref<2049x12xi32>) {
  %all = memref.alloc() : memref<8196x12xi32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{has an inbox of 8196 rows by its types, expected at most 8192, those of the largest step (max-tokens is 8192, max-requests 256)}}
  shardq.gather_rows %topk over @ranks "tp" outs(%all) {token_shards}
      : (memref<2049x12xi32>, memref<8196x12xi32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %a: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{writes to a buffer that is not a memref.alloc of its block: the workspace takes its place}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
shardq.mesh @others ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{this one over @ranks: a module's exchanges share one mesh}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  %b = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@others>>
  // expected-error @+1 {{exchanges over mesh @others}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @others "tp" outs(%b)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@others>>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
// expected-note @+1 {{the plan is here}}
shardq.plan @plan over @ranks {channels = [], exchanges = [], hash = 0 : i64, slot_bytes = 0 : i64, slots = 1 : i64}
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{is not part of the module's plan: plan all exchanges at once}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x4194304x16777216xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %a = memref.alloc(%n) : memref<?x16777216x16777216xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{needs an inbox of 2560 rows of}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x4194304x16777216xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x16777216x16777216xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// The workspace will not be there yet.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) -> index {
  %c0 = arith.constant 0 : index
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-note @+1 {{the other use is here}}
  %m = memref.dim %a, %c0 : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{writes to a buffer that has another use before it, or is another exchange's too}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return %m : index
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{writes to a buffer that has another use before it, or is another exchange's too}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  // expected-note @+1 {{the other use is here}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// Outside the branch the result would be read without an exchange.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index, %c: i1) {
  %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  scf.if %c {
  // expected-error @+1 {{writes to a buffer that is not a memref.alloc of its block}}
  shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
      : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
  }
  return
}

// -----

// A pass runs on one module: what is nested in it has a plan of its own.
// expected-note @+1 {{the pass runs on this module; run it on a nested module by itself}}
module {
  module @inner {
    shardq.mesh @ranks ["tp" = 4]
    func.func @f(%q: memref<?x2x8xf32>, %ids: memref<?xi32>, %o: memref<5xi32>, %d: index, %n: index) {
      %a = memref.alloc(%n) : memref<?x8x8xf32, #shardq.symmetric<@ranks>>
      // expected-error @+1 {{'shardq.exchange' op stands outside the functions (func.func) of the module that the pass runs on}}
      shardq.exchange heads_to_tokens(%q) by(%ids, %o) decodes(%d) over @ranks "tp" outs(%a)
          : (memref<?x2x8xf32>, memref<?xi32>, memref<5xi32>, index, memref<?x8x8xf32, #shardq.symmetric<@ranks>>) -> ()
      return
    }
  }
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) {
  // expected-error @+1 {{'shardq.combine_lse' op is on tensors: bufferize before planning the workspace}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%a: memref<?x2x8xbf16>, %q: memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{'shardq.gather_query' op writes to a buffer that is not a memref.alloc of its block}}
  shardq.gather_query(%a) over @ranks "tp" outs(%q) : (memref<?x2x8xbf16>, memref<?x8x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

// Forms that other ops are made of have no inbox of their own.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %out: memref<?x8x16xbf16>) {
  // expected-error @+1 {{'shardq.combine_lse' op keeps all heads on each rank: run shardq-select-transport before bufferization}}
  shardq.combine_lse %p lse(%l) over @ranks "tp" outs(%out) : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x8x16xbf16>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %out: memref<?x2x16xbf16>) {
  // expected-error @+1 {{'shardq.combine_lse' op has a transport that is made of ops: run shardq-select-transport before bufferization}}
  shardq.combine_lse %p lse(%l) over @ranks "tp" outs(%out) {transport = #shardq.transport<ag_rs>}
      : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x2x16xbf16>) -> ()
  return
}
