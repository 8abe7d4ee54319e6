// Draft steps of a step: their lengths agree with the reference, and those that they begin from are still there. Of
// requests without tokens there are none.

// RUN: shardq-run %s --step=%S/Inputs/decode-step.json --verify | FileCheck %s
// RUN: shardq-run %s --step=%S/Inputs/no-requests.json --verify | FileCheck %s

// CHECK: all agree

shardq.mesh @ranks ["tp" = 2]
func.func @draft(%query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %rows: index)
    -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows {speculative_tokens = 1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %first = shardq.draft_lengths %seq_lens step(%c0) : (tensor<?xi32>, index) -> tensor<?xi32>
  %later = shardq.draft_lengths %seq_lens step(%c3) : (tensor<?xi32>, index) -> tensor<?xi32>
  return %first, %later, %visible : tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
}
