// Rows of bytes move as others do: kernels are the same but for their widths.
//
// RUN: shardq-compile %s --target=cuda --emit=ptx | FileCheck %s
// RUN: sed 's/f8E4M3FN/i8/g' %s | shardq-compile - --target=cuda --emit=ptx | FileCheck %s
// CHECK-DAG: .entry shardq_push_6x576_12x576
// CHECK-DAG: .entry shardq_push_12x576_6x576
// CHECK-DAG: st.global.v4
shardq.mesh @ranks ["tp" = 2]
func.func @exchange(%q: tensor<?x6x576xf8E4M3FN> {shardq.split = #shardq.split<@ranks, 1 over "tp">}, %query_start: tensor<?xi32>) -> (tensor<?x6x576xf8E4M3FN> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : tensor<?x6x576xf8E4M3FN>
  %decodes = shardq.count_decode_rows %query_start : tensor<?xi32>
  %ids, %offsets = shardq.zigzag_split %query_start decodes(%decodes) rows(%rows) over @ranks "tp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<3xi32>)
  %mine = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%decodes) over @ranks "tp" : (tensor<?x6x576xf8E4M3FN>, tensor<?xi32>, tensor<3xi32>, index) -> tensor<?x12x576xf8E4M3FN>
  %back = shardq.exchange tokens_to_heads(%mine) by(%ids, %offsets) decodes(%decodes) over @ranks "tp" : (tensor<?x12x576xf8E4M3FN>, tensor<?xi32>, tensor<3xi32>, index) -> tensor<?x6x576xf8E4M3FN>
  %taken = shardq.take_rows %back[%ids] : (tensor<?x6x576xf8E4M3FN>, tensor<?xi32>) -> tensor<?x6x576xf8E4M3FN>
  return %back : tensor<?x6x576xf8E4M3FN>
}
