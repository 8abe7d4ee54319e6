// Steps with prefill, or all: keys are gathered where they fit, while the indexer runs.
//
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gather remarks=false" | FileCheck %s --check-prefixes=CHECK,GATHER
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gate remarks=false null-block=-1" | FileCheck %s --check-prefixes=CHECK,GATE
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gather remarks=false" --shard-q-tokens="remarks=false min-tokens=0" | FileCheck %s --check-prefix=TOKENS
// RUN: shardq-opt %s --split-input-file --shardq-dcp --verify-diagnostics
//
// A second run changes nothing, and the result goes all the way to a CPU, with the
// tokens sharded and without.
// RUN: shardq-opt %s --split-input-file --shardq-dcp=remarks=false -o %t.once.mlir
// RUN: shardq-opt %t.once.mlir --split-input-file --shardq-dcp -o %t.twice.mlir
// RUN: diff %t.once.mlir %t.twice.mlir
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gather remarks=false" --shardq-to-cpu -o /dev/null
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gate remarks=false" --shardq-to-cpu -o /dev/null
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gate remarks=false" --shard-q-tokens="remarks=false min-tokens=0" --shardq-to-cpu -o /dev/null

// The gather starts in front of what feeds this attention alone, behind the write of the cache, and ends at the
// attention; a tap goes along with what it observes. Where keys of all steps are gathered the gate asks for capacity alone.
// CHECK-LABEL: func @step
// CHECK-SAME: %[[NOPE:[a-z0-9]+]]: tensor<?x16x512xbf16>, %[[ROPE:[a-z0-9]+]]: tensor<?x16x64xbf16>, %[[OLD:[a-z0-9]+]]: tensor<?x576xbf16>,
// CHECK-SAME: %[[START:[a-z0-9]+]]: tensor<?xi32>, %[[LENS:[a-z0-9]+]]: tensor<?xi32>, %[[TABLE:[a-z0-9]+]]: tensor<?x?xi32>
// CHECK: %[[STEP:.*]]:2 = shardq.expand_rows
// GATHER: %[[BLOCKS:.*]]:3 = shardq.gather_blocks %[[TABLE]] lengths(%[[LENS]]) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64} :
// GATHER: %[[NONE:.*]] = arith.constant -1 : index
// GATHER: %[[FITS:.*]] = shardq.gather_gate %[[START]] blocks(%[[BLOCKS]]#2) decodes(%[[NONE]]) over @ranks "dcp" {block_size = 64 : i64}
// GATHER: %[[KV:.*]] = call @write(%[[OLD]])
// GATHER-NEXT: %[[OUT:.*]] = scf.if %[[FITS]] -> (tensor<?x16x512xbf16>) {
// GATHER-NEXT: %[[HANDLE:.*]] = shardq.gather_kv_start(%[[KV]]) blocks(%[[BLOCKS]]#0, %[[BLOCKS]]#2) over @ranks "dcp" {block_size = 64 : i64, block_stride_rows = 70 : i64}
// GATHER: %[[TOPK:.*]] = shardq.topk
// GATHER-NEXT: shardq.tap "topk" %[[TOPK]]
// GATHER-NEXT: %[[SLOTS:.*]] = shardq.gathered_slots %[[TOPK]] blocks(%[[BLOCKS]]#1, %[[BLOCKS]]#2) rows(%[[STEP]]#0) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
// GATHER-NEXT: %[[ALL:.*]] = shardq.gather_kv_finish %[[HANDLE]] : (!shardq.kv_gather) -> tensor<?x576xbf16>
// GATHER-NEXT: %[[ATTENDED:.*]] = shardq.sparse_mla q(%[[NOPE]], %[[ROPE]]) kv(%[[ALL]]) slots(%[[SLOTS]]) rows(%[[STEP]]#0) {scale = 5.000000e-01 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
// GATHER-NEXT: scf.yield %[[ATTENDED]]
// GATHER-NEXT: } else {
// GATHER-NEXT: %[[TOPK:.*]] = shardq.topk
// GATHER-NEXT: shardq.tap "topk" %[[TOPK]]
// GATHER-NEXT: shardq.filter_indices %[[TOPK]]
// GATHER-NEXT: shardq.gather_query
// GATHER-NEXT: shardq.sparse_mla
// GATHER-NEXT: shardq.combine_lse
// GATHER-NEXT: scf.yield
// GATHER-NEXT: }
//
// GATE: %[[BLOCKS:.*]]:3 = shardq.gather_blocks %[[TABLE]] lengths(%[[LENS]]) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64, null_block = -1 : i32}
// GATE: %[[DECODES:.*]] = shardq.count_decode_rows %[[START]] {speculative_tokens = 1 : i64}
// GATE: %[[GATE:.*]] = shardq.gather_gate %[[START]] blocks(%[[BLOCKS]]#2) decodes(%[[DECODES]]) over @ranks "dcp" {block_size = 64 : i64}
// GATE: %[[KV:.*]] = call @write(%[[OLD]])
// GATE-NEXT: %[[OUT:.*]] = scf.if %[[GATE]] -> (tensor<?x16x512xbf16>) {
// GATE-NEXT: shardq.gather_kv_start(%[[KV]])
// GATE-NEXT: %[[TOPK:.*]] = shardq.topk
// GATE-NEXT: shardq.tap "topk" %[[TOPK]]
// GATE-NEXT: shardq.gathered_slots %[[TOPK]]
// GATE-NEXT: shardq.gather_kv_finish
// GATE-NEXT: shardq.sparse_mla
// GATE-NEXT: scf.yield
// GATE-NEXT: } else {
// GATE-NEXT: %[[TOPK:.*]] = shardq.topk
// GATE-NEXT: shardq.tap "topk" %[[TOPK]]
// GATE-NEXT: shardq.filter_indices %[[TOPK]]
// GATE-NEXT: shardq.gather_query
// GATE-NEXT: shardq.sparse_mla
// GATE-NEXT: shardq.combine_lse
// GATE-NEXT: scf.yield
// GATE-NEXT: }
// CHECK-NEXT: return %[[OUT]]
//
// With token shards, the gather overlaps with the exchange of queries too, and its keys are read where they
// arrive: behind that exchange and before the next.
// TOKENS-LABEL: func @step
// TOKENS-NOT: shardq.gather_kv_start
// TOKENS: scf.if
// TOKENS-NEXT: scf.if
// TOKENS-NEXT: %[[HANDLE:.*]] = shardq.gather_kv_start
// TOKENS: shardq.topk
// TOKENS: shardq.gathered_slots
// TOKENS: shardq.exchange heads_to_tokens
// TOKENS-NEXT: %[[ALL:.*]] = shardq.gather_kv_finish %[[HANDLE]]
// TOKENS: shardq.sparse_mla {{.*}} kv(%[[ALL]])
// TOKENS: shardq.sparse_mla {{.*}} kv(%[[ALL]])
// TOKENS: shardq.exchange tokens_to_heads
// TOKENS: else
// TOKENS-NEXT: %[[HANDLE:.*]] = shardq.gather_kv_start
// TOKENS: shardq.topk
// TOKENS: shardq.gather_kv_finish %[[HANDLE]]
// TOKENS: }
// TOKENS-NOT: shardq.gather_kv
// TOKENS: return
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func private @write(tensor<?x576xbf16>) -> tensor<?x576xbf16>
func.func @step(%nope: tensor<?x16x512xbf16>, %rope: tensor<?x16x64xbf16>, %old: tensor<?x576xbf16>, %start: tensor<?xi32>,
                %lens: tensor<?xi32>, %table: tensor<?x?xi32>, %scores: tensor<?x?xf32>, %rows: index) -> tensor<?x16x512xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows {speculative_tokens = 1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %kv = func.call @write(%old) : (tensor<?x576xbf16>) -> tensor<?x576xbf16>
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x2048xi32>
  shardq.tap "topk" %topk : tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64, block_stride_rows = 70 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  // expected-remark @+1 {{attention runs on keys gathered over "dcp" (4 ranks) in steps with prefill, on own keys in others}}
  %out = shardq.sparse_mla q(%nope, %rope) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>, tensor<?x2048xi32>, tensor<?xi32>)
      -> tensor<?x16x512xbf16>
  return %out : tensor<?x16x512xbf16>
}

// -----

// Layers share blocks, gate and indices. The second gather starts when the first attention has read
// its inbox. Lengths and counts stay with their slots; an LSE is not merged.
// CHECK-LABEL: func @layers
// CHECK-COUNT-1: shardq.gather_blocks
// CHECK-NOT: shardq.gather_blocks
// GATHER: shardq.topk
// GATHER: scf.if
// GATHER-NEXT: %[[H1:.*]] = shardq.gather_kv_start
// GATHER: %[[SLOTS:.*]]:2 = shardq.gathered_slots {{.*}} -> (tensor<?x8xi64>, tensor<?xi32>)
// GATHER: shardq.gather_kv_finish %[[H1]]
// GATHER: %[[O1:.*]]:2 = shardq.sparse_mla {{.*}} slots(%[[SLOTS]]#0) rows(%{{.*}}) topk_length(%[[SLOTS]]#1) {lse = #shardq.lse<base = two>
// GATHER: else
// GATHER: scf.if
// GATHER-NEXT: %[[H2:.*]] = shardq.gather_kv_start
// GATHER-NEXT: shardq.gathered_slots
// GATHER-NEXT: shardq.gather_kv_finish %[[H2]]
// GATHER-NEXT: shardq.sparse_mla
// GATHER: else
// CHECK-NOT: shardq.convert_indices
// GATE: shardq.topk
// GATE: scf.if
// GATE-NOT: shardq.topk
// GATE: else
// GATE: scf.if
// GATE: else
shardq.mesh @ranks ["tp" = 2]
func.func @layers(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %kv2: tensor<?x4xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
                  %table: tensor<?x?xi32>, %scores: tensor<?x?xf32>, %rows: index) -> (tensor<?x2x4xf32>, tensor<?x2xf32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x8xi32>
  %slots, %count = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x8xi64>, tensor<?xi32>)
  // expected-remark @+1 {{keys gathered over "tp" (2 ranks)}}
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) topk_length(%count)
      {scale = 0.5 : f32, lse = #shardq.lse<base = two>, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi64>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x2x4xf32>, tensor<?x2xf32>)
  // expected-remark @+1 {{keys gathered over "tp" (2 ranks)}}
  %out2 = shardq.sparse_mla q(%out) kv(%kv2) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi64>) -> tensor<?x2x4xf32>
  return %out2, %lse : tensor<?x2x4xf32>, tensor<?x2xf32>
}

// -----

// Blocks that no cache has are not gathered: as many as begin in the largest of those that share a table, also where they are
// written behind, or cast. Block strides count.
// CHECK-LABEL: func @pool
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<?x2x4xf32>, %[[KV:[a-z0-9]+]]: tensor<?x4xf32>
// CHECK-DAG: %[[ROWS:.*]] = tensor.dim %[[KV]], %c0
// CHECK-DAG: %[[C9:.*]] = arith.constant 9 : index
// CHECK-DAG: %[[BEGUN:.*]] = arith.addi %[[ROWS]], %[[C9]]
// CHECK-DAG: %[[C10:.*]] = arith.constant 10 : index
// CHECK-DAG: %[[BLOCKS:.*]] = arith.divui %[[BEGUN]], %[[C10]]
// CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
// CHECK: %[[POOL:.*]] = arith.maxui %[[BLOCKS]], %[[C4]]
// CHECK-NEXT: shardq.gather_blocks %{{.*}} lengths(%{{.*}}) pool(%[[POOL]]) over @ranks "tp"
// CHECK-NOT: shardq.gather_blocks
// CHECK: shardq.write_rows
// CHECK: return
shardq.mesh @ranks ["tp" = 2]
func.func @pool(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %kv2: tensor<31x4xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
                %table: tensor<?x?xi32>, %topk: tensor<?x8xi32>, %new: tensor<?x4xf32>, %at: tensor<?xi64>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64, block_stride_rows = 10 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi64>
  %written = shardq.write_rows %new at(%at) into(%kv) : (tensor<?x4xf32>, tensor<?xi64>, tensor<?x4xf32>) -> tensor<?x4xf32>
  // expected-remark @+1 {{keys gathered over "tp" (2 ranks)}}
  %out = shardq.sparse_mla q(%q) kv(%written) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi64>) -> tensor<?x2x4xf32>
  %written2 = shardq.write_rows %new at(%at) into(%kv2) : (tensor<?x4xf32>, tensor<?xi64>, tensor<31x4xf32>) -> tensor<31x4xf32>
  %cast = tensor.cast %written2 : tensor<31x4xf32> to tensor<?x4xf32>
  // expected-remark @+1 {{keys gathered over "tp" (2 ranks)}}
  %out2 = shardq.sparse_mla q(%out) kv(%cast) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi64>) -> tensor<?x2x4xf32>
  return %out2 : tensor<?x2x4xf32>
}

// -----

// Of caches alone whose size types say; and nothing is said of the blocks where one cache is made behind, by who may do anything.
// CHECK-LABEL: func @static_pool
// CHECK: %[[POOL:.*]] = arith.constant 4 : index
// CHECK-NEXT: shardq.gather_blocks %{{.*}} lengths(%{{.*}}) pool(%[[POOL]])
//
// CHECK-LABEL: func @unknown_pool
// CHECK-NOT: arith.divui
// CHECK: shardq.gather_blocks %{{.*}} lengths(%{{.*}}) over @ranks "tp"
shardq.mesh @ranks ["tp" = 2]
func.func @static_pool(%q: tensor<?x2x4xf32>, %kv: tensor<31x4xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %table: tensor<?x?xi32>,
                       %topk: tensor<?x8xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi64>
  // expected-remark @+1 {{keys gathered over "tp" (2 ranks)}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<31x4xf32>, tensor<?x8xi64>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}
func.func private @made() -> tensor<?x4xf32>
func.func @unknown_pool(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %table: tensor<?x?xi32>,
                        %topk: tensor<?x8xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi64>
  // expected-remark @+1 {{keys gathered over "tp" (2 ranks)}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi64>) -> tensor<?x2x4xf32>
  %kv2 = func.call @made() : () -> tensor<?x4xf32>
  // expected-remark @+1 {{keys gathered over "tp" (2 ranks)}}
  %out2 = shardq.sparse_mla q(%out) kv(%kv2) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi64>) -> tensor<?x2x4xf32>
  return %out2 : tensor<?x2x4xf32>
}

// -----

// A sink joins the attention over gathered keys, of the head block that it takes; and the merge, of this
// rank's block.
// CHECK-LABEL: func @sink
// CHECK-SAME: %[[SINK:[a-z0-9]+]]: tensor<4xf32>
// CHECK: scf.if
// CHECK: shardq.gather_kv_start
// CHECK: shardq.sparse_mla {{.*}} sink(%[[SINK]])
// CHECK: } else {
// GATE: %[[PART:.*]]:2 = shardq.sparse_mla
// GATE-NOT: sink(
// GATE: %[[ME:.*]] = shardq.rank over @ranks "tp"
// GATE: %[[OWN:.*]] = tensor.extract_slice %[[SINK]][%{{.*}}] [2] [1]
// GATE: shardq.combine_lse %[[PART]]#0 lse(%[[PART]]#1) sink(%[[OWN]])
shardq.mesh @ranks ["tp" = 2]
func.func @sink(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %table: tensor<?x?xi32>,
                %topk: tensor<?x8xi32>, %sink: tensor<4xf32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // expected-remark @+1 {{attention runs on keys gathered over "tp" (2 ranks) in steps with prefill, on own keys in others}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) sink(%sink)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["tp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>, tensor<?xi32>, tensor<4xf32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}

// -----

// One rank keeps all keys: nothing to do, and nothing is said.
// CHECK-LABEL: func @one_rank
// CHECK-NOT: shardq.gather
// CHECK: shardq.sparse_mla {{.*}} kv = interleave<4> ["dcp"]
shardq.mesh @ranks ["tp" = 4, "dcp" = 1 in "tp"]
func.func @one_rank(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
                    %table: tensor<?x?xi32>, %rows: index) -> tensor<?x2x4xf32> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}
