// All trace steps are split over 8 ranks and open the gate at their full size:
// the split and the gate alone, which is quick.

// RUN: %python %S/Inputs/trace_steps.py %shardq_bin/bin/shardq-run %s %shardq_src/examples/steps %t | FileCheck %s
// CHECK-COUNT-10: trace-{{[0-9]*}}.json: 8 ranks, at most {{[0-9]*}} rows
// CHECK-NOT: trace-

shardq.mesh @ranks ["tp" = 8]
func.func @split(%query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %rows: index)
    -> (tensor<9xi32>, i1) {
  %decodes = shardq.count_decode_rows %query_start : tensor<?xi32>
  %ids, %offsets = shardq.zigzag_split %query_start decodes(%decodes) rows(%rows)
      over @ranks "tp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<9xi32>)
  %gate = shardq.split_gate offsets(%offsets) requests(%query_start, %seq_lens)
      decodes(%decodes) rows(%rows) {min_tokens = 1024 : i64, topk = 2048 : i64}
      : tensor<9xi32>, tensor<?xi32>, tensor<?xi32>
  return %offsets, %gate : tensor<9xi32>, i1
}
