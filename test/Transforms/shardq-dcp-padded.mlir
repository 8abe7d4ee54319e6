// Rows of gathered queries with room for more heads: the attention takes a part of them, where they lie.
//
// RUN: shardq-opt %s --shardq-dcp="step=decode padded-heads=128 remarks=false" | FileCheck %s
// RUN: shardq-opt %s --shardq-dcp="step=decode padded-heads=8 remarks=false" | FileCheck %s --check-prefix=EXACT
// RUN: shardq-opt %s --shardq-dcp="step=decode padded-heads=128 remarks=false" --one-shot-bufferize="bufferize-function-boundaries" \
// RUN:   --shardq-plan-workspace=max-tokens=16 | FileCheck %s --check-prefix=PLAN
// RUN: shardq-opt %s --shardq-dcp="step=decode padded-heads=128 remarks=false" --shardq-slice-steps=max-tokens=4 | FileCheck %s --check-prefix=SLICES
// RUN: shardq-opt %s --shardq-dcp="step=decode padded-heads=128 remarks=false" --shardq-to-cpu -o /dev/null
// RUN: not shardq-opt %s --shardq-dcp="step=decode padded-heads=7" 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: not shardq-opt %s --shardq-dcp="step=decode padded-heads=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// FEW: error: 'shardq.sparse_mla' op cannot attend own keys alone: its group has 8 heads, more than padded-heads, 7
// NEGATIVE: error: shardq-dcp: padded-heads is -1, expected 0 to 2^24

// CHECK-LABEL: func @attend
// CHECK: %[[ALL:.*]] = shardq.gather_query(%{{.*}}) over @ranks "dcp" {padded_heads} : (tensor<?x2x4xf32>) -> tensor<?x128x4xf32>
// CHECK: %[[Q:.*]] = tensor.extract_slice %[[ALL]][0, 0, 0] [%{{.*}}, 8, 4] [1, 1, 1] : tensor<?x128x4xf32> to tensor<?x8x4xf32>
// CHECK: shardq.sparse_mla q(%[[Q]]) {{.*}} -> (tensor<?x8x4xf32>, tensor<?x8xf32>)
// EXACT: shardq.gather_query(%{{.*}}) over @ranks "dcp" : (tensor<?x2x4xf32>) -> tensor<?x8x4xf32>
// EXACT-NOT: tensor.extract_slice
// PLAN: #shardq.channel<"gather_heads 128x4xf32", offset = 0, bytes = 32768,
// PLAN: %[[INBOX:.*]] = shardq.workspace @plan channel 0
// PLAN: shardq.push gather_heads(%{{.*}}) into(%[[INBOX]]) {{.*}} padded_heads
// PLAN-NOT: memref.copy
// PLAN: shardq.sparse_mla q(%{{.*}}) {{.*}}memref<?x8x4xf32, strided<[512, 4, 1]>>
// SLICES: scf.for
// SLICES: shardq.gather_query
// SLICES: tensor.extract_slice {{.*}} tensor<?x128x4xf32> to tensor<?x8x4xf32>
// SLICES: shardq.sparse_mla
// SLICES: shardq.combine_lse
// SLICES: scf.yield
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @attend(%q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %topk: tensor<?x8xi32>, %req: tensor<?xi32>,
                  %table: tensor<?x?xi32>) -> tensor<?x2x4xf32> {
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 8 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<8> ["dcp"]>}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x8xi32>) -> tensor<?x2x4xf32>
  return %out : tensor<?x2x4xf32>
}
