// Types that say how many rows come out of exchanges, all the way to host code and kernels.
//
// RUN: shardq-opt %s --shardq-to-nvvm="ptxas=none max-tokens=64" | FileCheck %s
// RUN: shardq-opt %s --shardq-to-cpu="max-tokens=64" | FileCheck %s --check-prefixes=CHECK,CPU

// CPU-DAG: ("rows of 'inbox' of shardq.push\00")
// CHECK-DAG: ("rows of source 0 of heads_to_tokens of shardq.push\00")
// CHECK-DAG: ("rows of source 0 of gather_heads of shardq.push\00")
// CHECK-DAG: ("rows of 'out' of shardq.merge_lse\00")
// CHECK: llvm.func @f(
// CHECK: llvm.call @shardq_rt_expect(

shardq.mesh @ranks ["tp" = 2]
func.func @f(%q: tensor<?x4x64xbf16>, %p: tensor<?x8x64xbf16>, %l: tensor<?x8xf32>, %ids: tensor<?xi32>, %offsets: tensor<3xi32>,
             %d: index) -> (tensor<8x8x64xbf16>, tensor<8x4x64xbf16>, tensor<8x8x64xbf16>) {
  %all = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x4x64xbf16>) -> tensor<8x8x64xbf16>
  %o = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x64xbf16>, tensor<?x8xf32>) -> tensor<8x4x64xbf16>
  %x = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x4x64xbf16>, tensor<?xi32>, tensor<3xi32>, index) -> tensor<8x8x64xbf16>
  return %all, %o, %x : tensor<8x8x64xbf16>, tensor<8x4x64xbf16>, tensor<8x8x64xbf16>
}
