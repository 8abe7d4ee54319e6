// RUN: split-file %s %t
// RUN: shardq-opt %t/option.mlir --shardq-slice-steps=max-tokens=0 --verify-diagnostics
// RUN: shardq-opt %t/option-large.mlir --shardq-slice-steps=max-tokens=2147483648 --verify-diagnostics
// RUN: shardq-opt %t/gates.mlir --shardq-slice-steps -o /dev/null --verify-diagnostics
// RUN: shardq-opt %t/option-requests.mlir --shardq-slice-steps=max-requests=0 --verify-diagnostics
// RUN: shardq-opt %t/rank.mlir --shardq-slice-steps --verify-diagnostics
// RUN: shardq-opt %t/mixed.mlir --shardq-slice-steps --verify-diagnostics

//--- option.mlir
// expected-error @+1 {{shardq-slice-steps: max-tokens is 0, expected 1 to 2147483647}}
module {}

//--- option-large.mlir
// expected-error @+1 {{shardq-slice-steps: max-tokens is 2147483648, expected 1 to 2147483647}}
module {}

//--- option-requests.mlir
// expected-error @+1 {{shardq-slice-steps: max-requests is 0, expected 1 to 2147483647}}
module {}

//--- rank.mlir
// Ranks of which each has rows of its own do not take as many turns.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x16xbf16>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %decodes: index) -> tensor<?x32x16xbf16> {
  // expected-remark @+1 {{is under no shardq.split_gate: a step that does not fit its inbox is an error at run time}}
  %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
      : (tensor<?x2x16xbf16>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x16xbf16>
  // expected-remark @+1 {{has rows that may differ between ranks, which would not take as many turns: more than 8192 rows are an error at run time}}
  %1 = shardq.gather_query(%0) over @ranks "tp" : (tensor<?x8x16xbf16>) -> tensor<?x32x16xbf16>
  return %1 : tensor<?x32x16xbf16>
}

//--- mixed.mlir
// Of some of a step's rows a GPU's host does not know how many they are, to compare them with what types say, or to share them.
shardq.mesh @ranks ["tp" = 2]
func.func @f(%partial: tensor<?x4x8xf32>, %lse: tensor<?x4xf32>, %n: index) -> (tensor<16x2x8xf32>, tensor<?x4x8xf32>) {
  %p = tensor.extract_slice %partial[0, 0, 0] [%n, 4, 8] [1, 1, 1] : tensor<?x4x8xf32> to tensor<?x4x8xf32>
  %l = tensor.extract_slice %lse[0, 0] [%n, 4] [1, 1] : tensor<?x4xf32> to tensor<?x4xf32>
  // expected-remark @+1 {{has rows that are in the types of some values and open in those of others: more than 8192 rows are an error at run time}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x4x8xf32>, tensor<?x4xf32>) -> tensor<16x2x8xf32>
  // expected-remark @+1 {{has rows that are some of a step's, which ranks may not be able to share: more than 8192 rows are an error at run time}}
  %1 = shardq.combine_lse %p lse(%l) over @ranks "tp" {scatter_tokens} : (tensor<?x4x8xf32>, tensor<?x4xf32>) -> tensor<?x4x8xf32>
  return %0, %1 : tensor<16x2x8xf32>, tensor<?x4x8xf32>
}

//--- gates.mlir
// An exchange in the branch of a gate, or of what is chosen by one, and outside of it; a start on the other side of one.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x16xbf16>, %ids: tensor<?xi32>, %offsets: tensor<5xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
             %decodes: index, %rows: index, %other: i1, %kv: tensor<?x16xbf16>, %blocks: tensor<?xi32>, %count: tensor<1xi32>) {
  %gate = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%decodes) rows(%rows)
      {min_tokens = 0 : i64, topk = 8 : i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
  %both = arith.andi %gate, %other : i1
  scf.if %both {
    %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
        : (tensor<?x2x16xbf16>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x16xbf16>
  }
  scf.if %other {
    // expected-remark @+1 {{is under no shardq.split_gate}}
    %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
        : (tensor<?x2x16xbf16>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x16xbf16>
  }
  %fits = shardq.gather_gate %start blocks(%count) decodes(%decodes) over @ranks "tp" {block_size = 64 : i64} : tensor<?xi32>, tensor<1xi32>
  scf.if %fits {
  } else {
    // expected-remark @+1 {{is under no shardq.gather_gate: a step that does not fit its inbox is an error at run time}}
    %h = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 64 : i64}
        : (tensor<?x16xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
    %keys = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x16xbf16>
  }
  return
}
