// The plugin in stock mlir-opt: dialect, passes and pipelines.
// UNSUPPORTED: sanitizer

// RUN: mlir-opt --load-dialect-plugin=%shardq_libs/ShardQPlugin.so \
// RUN:   --pass-pipeline='builtin.module(shard-q-tokens)' %s | FileCheck %s
// RUN: shardq-opt --shard-q-tokens %s > %t.tool
// RUN: mlir-opt --load-dialect-plugin=%shardq_libs/ShardQPlugin.so \
// RUN:   --pass-pipeline='builtin.module(shard-q-tokens)' %s > %t.plugin
// RUN: diff %t.tool %t.plugin

// The dialect plugin alone bufferizes, so its external models are there.
// RUN: mlir-opt --load-dialect-plugin=%shardq_libs/ShardQPlugin.so \
// RUN:   --pass-pipeline='builtin.module(one-shot-bufferize{bufferize-function-boundaries})' \
// RUN:   %s | FileCheck %s --check-prefix=BUFFERS

// Both plugin interfaces at once, and the passes on their own.
// RUN: mlir-opt --load-dialect-plugin=%shardq_libs/ShardQPlugin.so \
// RUN:   --load-pass-plugin=%shardq_libs/ShardQPlugin.so \
// RUN:   --pass-pipeline='builtin.module(shard-q-tokens)' %s | FileCheck %s
// RUN: echo 'module {}' | mlir-opt --load-pass-plugin=%shardq_libs/ShardQPlugin.so \
// RUN:   --pass-pipeline='builtin.module(shard-q-tokens,shardq-to-cpu)' \
// RUN:   | FileCheck %s --check-prefix=EMPTY

// CHECK: shardq.mesh @ranks ["tp" = 4]
// CHECK-LABEL: func.func @attention
// CHECK: shardq.zigzag_split
// CHECK: %[[GATE:.*]] = shardq.split_gate
// CHECK: scf.if %[[GATE]]
// CHECK: shardq.exchange heads_to_tokens
// CHECK: shardq.exchange tokens_to_heads

// BUFFERS-LABEL: func.func @attention
// BUFFERS: shardq.sparse_mla {{.*}} outs(

// EMPTY: module

shardq.mesh @ranks ["tp" = 4]
func.func @attention(%q: tensor<?x4x24xf32>, %kv: tensor<?x24xf32>, %topk: tensor<?x32xi32>,
                     %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>,
                     %table: tensor<?x?xi32>) -> tensor<?x4x16xf32> {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : tensor<?x4x24xf32>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x32xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x32xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
      {scale = 0.25 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x4x24xf32>, tensor<?x24xf32>, tensor<?x32xi32>) -> tensor<?x4x16xf32>
  return %out : tensor<?x4x16xf32>
}
