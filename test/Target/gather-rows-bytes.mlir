// Rows of KV are gathered as 16 bytes at a time, whatever their element is: kernels are the
// same but for their widths.
//
// RUN: shardq-compile %s --target=cuda --emit=ptx | FileCheck %s
// RUN: sed 's/f8E4M3FN/i8/g' %s | shardq-compile - --target=cuda --emit=ptx | FileCheck %s
// CHECK: .entry shardq_push_640_16_656
// CHECK: ld.global.v4
// CHECK: st.global.v4
// CHECK: ld.global.b8
// CHECK: st.global.b8
shardq.mesh @ranks ["tp" = 2]
func.func @gather(%nope: tensor<?x640xf8E4M3FN>, %rope: tensor<?x16xf8E4M3FN>, %table: tensor<?x?xi32>, %lens: tensor<?xi32>,
                  %ids: tensor<?xi32>) -> (tensor<?x656xf8E4M3FN>) {
  %blocks, %inverse, %count = shardq.gather_blocks %table lengths(%lens) over @ranks "tp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  %handle = shardq.gather_kv_start(%nope, %rope) blocks(%blocks, %count) over @ranks "tp" {block_size = 64 : i64}
      : (tensor<?x640xf8E4M3FN>, tensor<?x16xf8E4M3FN>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %all = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> tensor<?x656xf8E4M3FN>
  %taken = shardq.take_rows %all[%ids] : (tensor<?x656xf8E4M3FN>, tensor<?xi32>) -> tensor<?x656xf8E4M3FN>
  return %taken : tensor<?x656xf8E4M3FN>
}
