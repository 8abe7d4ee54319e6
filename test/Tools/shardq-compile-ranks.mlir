// A step on several ranks, threads here, agrees with shardq-run's.
//
// UNSUPPORTED: sanitizer
// RUN: mkdir -p %t
// RUN: cp %s %t/two.mlir
// RUN: sed 's/"tp" = 2/"tp" = 3/' %s > %t/three.mlir
// RUN: sed 's/"tp" = 2/"tp" = 4/' %s > %t/four.mlir
//
// Both branches of the gate: exchanges, and the program as it is.
// RUN: shardq-compile %t/two.mlir --min-tokens=1 --max-tokens=64 --max-requests=4 -o %t/two.so
// RUN: %python -B %S/Inputs/call-ranks.py %shardq_libs %t/two.so %t/two.mlir 2 %t/arrays | FileCheck %s
// RUN: shardq-compile %t/three.mlir --min-tokens=1 --max-tokens=64 --max-requests=4 -o %t/three.so
// RUN: %python -B %S/Inputs/call-ranks.py %shardq_libs %t/three.so %t/three.mlir 3 %t/arrays | FileCheck %s
// RUN: shardq-compile %t/four.mlir -o %t/four.so
// RUN: %python -B %S/Inputs/call-ranks.py %shardq_libs %t/four.so %t/four.mlir 4 %t/arrays | FileCheck %s
// CHECK: all right on {{[234]}} ranks
//
// Queries with strides, where the program asks for them: no copy is made.
// RUN: sed 's/%q: tensor<?x2x12xbf16> {/&bufferization.buffer_layout = affine_map<(t, h, d)[s0, s1] -> (t * s0 + h * s1 + d)>, /' \
// RUN:   %t/three.mlir > %t/strided.mlir
// RUN: shardq-compile %t/strided.mlir --min-tokens=1 --max-tokens=64 --max-requests=4 -o %t/strided.so --header=%t/strided.h
// RUN: FileCheck %s --check-prefix=STRIDED < %t/strided.h
// RUN: %python -B %S/Inputs/call-ranks.py %shardq_libs %t/strided.so %t/three.mlir 3 %t/arrays strided | FileCheck %s
// STRIDED: q {{.*}} bfloat16, strides [?, ?, 1]
//
// The exchanges are in it, unless the rewrite is not wanted or done by hand:
// RUN: shardq-compile %t/two.mlir --emit=llvm | FileCheck %s --check-prefix=EXCHANGE
// RUN: shardq-compile %t/two.mlir --pipeline='builtin.module(shard-q-tokens{remarks=false})' --emit=llvm \
// RUN:   | FileCheck %s --check-prefix=EXCHANGE
// EXCHANGE: call void @shardq_rt_signal
// RUN: shardq-compile %t/two.mlir --shard-q-tokens=false --emit=llvm | FileCheck %s --check-prefix=PLAIN
// RUN: shardq-compile %t/two.mlir --pipeline=canonicalize --emit=llvm | FileCheck %s --check-prefix=PLAIN
// PLAIN-NOT: shardq_rt_signal
shardq.mesh @ranks ["tp" = 2]
func.func @attention(%q: tensor<?x2x12xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}, %kv: tensor<?x12xbf16>,
                     %iq: tensor<?x4x8xbf16>, %iw: tensor<?x4xf32>, %ik: tensor<?x8xbf16>, %start: tensor<?xi32>,
                     %lens: tensor<?xi32>, %table: tensor<?x?xi32>, %rows: index)
    -> (tensor<?x2x8xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
        tensor<?x2xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%table) rows(%req, %visible) {block_size = 4 : i64}
      : (tensor<?x4x8xbf16>, tensor<?x4xf32>, tensor<?x8xbf16>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x6xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x6xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x6xi32>
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.3 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x2x12xbf16>, tensor<?x12xbf16>, tensor<?x6xi32>) -> (tensor<?x2x8xbf16>, tensor<?x2xf32>)
  return %out, %lse : tensor<?x2x8xbf16>, tensor<?x2xf32>
}
