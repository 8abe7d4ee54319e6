// From the rewritten program to nothing but LLVM and calls of the runtime.
//
// RUN: shardq-opt %s --shard-q-tokens=remarks=false --shardq-to-cpu="max-tokens=64 max-requests=4 slots=2" -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: mlir-translate %t.mlir --mlir-to-llvmir -o /dev/null
//
// No line holds an op of another dialect:
// RUN: sed -E '/^ *(module|\}|\^|"?llvm\.|%%[^=]* = "?llvm\.|#|$)/d' %t.mlir | count 0
//
// What is not rewritten goes the same way, with a plan of no channels:
// RUN: shardq-opt %s --shardq-to-cpu | FileCheck %s --check-prefix=HEADS
// HEADS-NOT: llvm.call @shardq_rt_signal
// HEADS: llvm.func @shardq_module_plan

// CHECK-DAG: llvm.func @_mlir_ciface_attention(%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr
// CHECK-DAG: llvm.call @shardq_rt_signal
// CHECK-DAG: llvm.call @shardq_rt_wait
// CHECK-DAG: llvm.func @shardq_module_plan() -> !llvm.ptr
shardq.mesh @ranks ["tp" = 3]
func.func @attention(%q: tensor<?x2x12xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}, %kv: tensor<?x12xbf16>,
                     %iq: tensor<?x4x8xbf16>, %iw: tensor<?x4xf32>, %ik: tensor<?x8xbf16>, %start: tensor<?xi32>,
                     %lens: tensor<?xi32>, %table: tensor<?x?xi32>, %rows: index)
    -> (tensor<?x2x8xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}, tensor<?x2xf32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%table) rows(%req, %visible) {block_size = 4 : i64}
      : (tensor<?x4x8xbf16>, tensor<?x4xf32>, tensor<?x8xbf16>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x6xi32>
  shardq.tap "topk.0" %topk : tensor<?x6xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x6xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x6xi32>
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.3 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x12xbf16>, tensor<?x12xbf16>, tensor<?x6xi32>) -> (tensor<?x2x8xbf16>, tensor<?x2xf32>)
  return %out, %lse : tensor<?x2x8xbf16>, tensor<?x2xf32>
}
