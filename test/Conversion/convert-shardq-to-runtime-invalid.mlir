// RUN: shardq-opt %s --split-input-file --convert-shardq-to-runtime --verify-diagnostics

func.func @model(%x: memref<?xi32>, %rows: memref<?xi32>, %out: memref<?xi32>) {
  // expected-error @+1 {{is no host op: run convert-shardq-to-loops and shardq-plan-workspace before convert-shardq-to-runtime}}
  shardq.take_rows %x[%rows] outs(%out) : (memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  return
}

// -----

func.func @f(%a: tensor<?xi32>) -> index {
  // expected-error @+1 {{'shardq.count_decode_rows' op is on tensors: bufferize first}}
  %d = shardq.count_decode_rows %a : tensor<?xi32>
 return %d : index
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%a: tensor<?xi32>, %d: index) -> tensor<5xi32> {
  // expected-error @+1 {{'shardq.zigzag_split' op is on tensors: bufferize first}}
  %i, %o = shardq.zigzag_split %a decodes(%d) rows(%d) over @ranks "tp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<5xi32>)
 return %o : tensor<5xi32>
}

// -----

func.func @f(%a: tensor<?xi32>, %d: index, %o: tensor<5xi32>) -> i1 {
  // expected-error @+1 {{'shardq.split_gate' op is on tensors: bufferize first}}
  %i = shardq.split_gate offsets(%o) requests(%a, %a) decodes(%d) rows(%d) {min_tokens = 1 : i64, topk = 1: i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
 return %i : i1
}

// -----

func.func @f(%a: tensor<?xi32>) {
  // expected-error @+1 {{'shardq.tap' op is on tensors: bufferize first}}
  shardq.tap "x" %a : tensor<?xi32>
 return
}

// -----

// No function that could take the context.
// expected-note @+1 {{the pass runs on this module; run it on a nested module by itself}}
module {
  shardq.mesh @ranks ["tp" = 4]
  llvm.func @f() {
    // expected-error @+1 {{'shardq.rank' op stands outside the functions (func.func) of the module that the pass runs on}}
    %r = shardq.rank over @ranks
    llvm.return
  }
}

// -----

// The context would be missing.
shardq.mesh @ranks ["tp" = 4]
func.func private @g() -> index {
  %r = shardq.rank over @ranks
  return %r : index
}
func.func @f() -> index {
  // expected-error @+1 {{refers to @g, which takes the runtime's context: call it directly}}
  %g = func.constant @g : () -> index
  %r = func.call_indirect %g() : () -> index
  return %r : index
}

// -----

shardq.mesh @ranks ["tp" = 4]
  // expected-error @+1 {{is named "shardq_rt_rank", which is a name of ShardQ's runtime}}
func.func private @shardq_rt_rank(i32) -> i32
func.func @shardq_module_plan() { return
}
func.func @f() -> index {
  %r = shardq.rank over @ranks
  return %r : index
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%a: memref<?xi32, affine_map<(d0)->(d0 floordiv 2)>>) {
  // expected-error @+1 {{expected a strided layout}}
  %d = shardq.count_decode_rows %a : memref<?xi32, affine_map<(d0)->(d0 floordiv 2)>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
  // expected-error @+1 {{is named "shardq_chunk_split", which is a name of ShardQ's runtime}}
func.func private @shardq_chunk_split(i32) -> i32
func.func @f() -> index {
  %r = shardq.rank over @ranks
  return %r : index
}

// -----

shardq.mesh @ranks ["tp" = 4]
  // expected-error @+1 {{is named "shardq_gather_blocks", which is a name of ShardQ's runtime}}
func.func private @shardq_gather_blocks(i32) -> i32
func.func @f() -> index {
  %r = shardq.rank over @ranks
  return %r : index
}

// -----

// Level 2: the gather is not planned yet.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%kv: memref<?x8xf32>, %b: memref<?xi32>, %c: memref<1xi32>, %out: memref<?x8xf32, #shardq.symmetric<@ranks>>) {
  // expected-error @+1 {{is no host op: run convert-shardq-to-loops and shardq-plan-workspace before convert-shardq-to-runtime}}
  %h = shardq.gather_kv_start(%kv) blocks(%b, %c) over @ranks "tp" {block_size = 4 : i64}
      : (memref<?x8xf32>, memref<?xi32>, memref<1xi32>) -> !shardq.kv_gather
  shardq.gather_kv_finish %h outs(%out) : (!shardq.kv_gather, memref<?x8xf32, #shardq.symmetric<@ranks>>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
  // expected-error @+1 {{is named "shardq_replicated_view", which is a name of ShardQ's runtime}}
func.func private @shardq_replicated_view(i32) -> i32
func.func @f() -> index {
  %r = shardq.rank over @ranks
  return %r : index
}
