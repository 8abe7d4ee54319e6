// Queries of bytes are gathered as others are: kernels are the same but for their widths.
//
// RUN: shardq-compile %s --target=cuda --emit=ptx | FileCheck %s
// RUN: sed 's/f8E4M3FN/i8/g' %s | shardq-compile - --target=cuda --emit=ptx | FileCheck %s
// CHECK: .entry shardq_push_6x656_12x656
// CHECK: ld.global.v4
// CHECK: st.global.v4
// CHECK: ld.global.b8
// CHECK: st.global.b8
shardq.mesh @ranks ["tp" = 2]
func.func @gather(%q: tensor<?x6x656xf8E4M3FN> {shardq.split = #shardq.split<@ranks, 1 over "tp">}, %ids: tensor<?xi32>) -> (tensor<?x12x656xf8E4M3FN>) {
  %all = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x6x656xf8E4M3FN>) -> tensor<?x12x656xf8E4M3FN>
  %taken = shardq.take_rows %all[%ids] : (tensor<?x12x656xf8E4M3FN>, tensor<?xi32>) -> tensor<?x12x656xf8E4M3FN>
  return %taken : tensor<?x12x656xf8E4M3FN>
}
