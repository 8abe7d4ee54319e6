// Views of tables, slots of tokens, gathers of all blocks and packed rows: what each target makes
// of them.
//
// RUN: shardq-opt %s --convert-shardq-to-loops | FileCheck %s --check-prefix=LOOPS
// RUN: shardq-opt %s --convert-shardq-to-loops --convert-shardq-to-runtime | FileCheck %s --check-prefix=CALLS
// RUN: shardq-opt %s --convert-shardq-to-gpu | FileCheck %s --check-prefix=GPU

shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// LOOPS: func.func @views
// The runtime's function does it.
// LOOPS: shardq.replicated_table
// The other form of these blocks is a call, of another name than this.
// LOOPS: call @shardq_gather_blocks_full
// LOOPS: call @[[SLOTS:shardq_token_slots.*]](%{{.*}}) : (memref<?x?xi32
// LOOPS: call @[[OWN:shardq_token_slots.*]](%{{.*}}) : (memref<?x?xi32
// LOOPS: call @shardq_unpack_rows
// LOOPS: call @shardq_pack_rows
//
// CALLS-LABEL: func.func @views
// CALLS: linalg.fill
// CALLS: llvm.call @shardq_replicated_view(
//
// GPU-LABEL: func.func @views
// GPU: gpu.launch {{.*}} function(@shardq_replicated_table)
// GPU: gpu.launch {{.*}} function(@shardq_gather_blocks_full)
// GPU-NOT: shardq_gather_blocks_list
// GPU: gpu.launch {{.*}} function(@shardq_token_slots{{.*}})
// GPU: %[[ME:.*]] = shardq.rank over @ranks "dcp"
// GPU: gpu.launch {{.*}} function(@shardq_token_slots{{.*}})
// GPU: gpu.launch {{.*}} function(@shardq_unpack_rows{{.*}})
// GPU: llvm.load {{.*}} -> vector<4xi32>
// GPU: llvm.store {{.*}} : vector<4xi32>
// GPU: gpu.launch {{.*}} function(@shardq_pack_rows{{.*}})
// GPU-COUNT-3: nvvm.shfl.sync bfly
func.func @views(%table: memref<?x?xi32>, %n: memref<?xi32>, %view: memref<?x?xi32>, %blocks: memref<?xi32>,
                 %inverse: memref<?x?xi32>, %count: memref<1xi32>, %slots: memref<?xi64>, %own: memref<?xi32>,
                 %packed: memref<?x656xi8>, %rows: memref<?x576xbf16>) {
  shardq.replicated_table %table lengths(%n) over @ranks "dcp" outs(%view) {blocks_per_block = 2 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?x?xi32>) -> ()
  shardq.gather_blocks %table lengths(%n) over @ranks "dcp" outs(%blocks, %inverse, %count)
      {block_size = 64 : i64, full, interleave = 64 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x?xi32>, memref<1xi32>) -> ()
  shardq.token_slots table(%view) rows(%n, %n) outs(%slots) {block_size = 64 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?xi64>) -> ()
  shardq.token_slots table(%table) rows(%n, %n) over @ranks "dcp" outs(%own) {block_size = 64 : i64, interleave = 4 : i64}
      : (memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  shardq.unpack_rows %packed outs(%rows) {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>}
      : (memref<?x656xi8>, memref<?x576xbf16>) -> ()
  shardq.pack_rows %rows outs(%packed) {format = #shardq.packed_rows<512 x i8, rope = 64, order = rope_scales>}
      : (memref<?x576xbf16>, memref<?x656xi8>) -> ()
  return
}

// Where types leave it open how many rows there are, tokens of others are not written.
// LOOPS: func.func @rows
// LOOPS: %[[NONE:.*]] = arith.constant -1 : i32
// LOOPS: linalg.fill ins(%[[NONE]] : i32)
func.func @rows(%table: memref<?x?xi32>, %n: memref<4xi32>, %m: memref<?xi32>, %slots: memref<?xi32>) {
  shardq.token_slots table(%table) rows(%n, %m) outs(%slots) {block_size = 64 : i64}
      : (memref<?x?xi32>, memref<4xi32>, memref<?xi32>, memref<?xi32>) -> ()
  return
}

// Only own tokens depend on the rank.
// LOOPS: func.func private @[[SLOTS]](
// LOOPS-NOT: shardq.rank
// LOOPS: func.func private @[[OWN]](
// LOOPS: shardq.rank over @ranks "dcp"
