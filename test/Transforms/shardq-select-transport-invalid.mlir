// RUN: split-file %s %t
// RUN: shardq-opt %t/cpu.mlir --split-input-file --shardq-select-transport="transport=nccl target=cpu" --verify-diagnostics
// RUN: shardq-opt %t/own.mlir --shardq-select-transport=transport=ag_ar --verify-diagnostics
// RUN: shardq-opt %t/all.mlir --shardq-select-transport=transport=ag_rs --verify-diagnostics
// RUN: shardq-opt %t/hosts.mlir --shardq-select-transport="transport=direct host-ranks=2" --verify-diagnostics
// RUN: shardq-opt %t/cpu-hosts.mlir --shardq-select-transport="target=cpu host-ranks=2" --verify-diagnostics
// RUN: shardq-opt %t/cpu-hosts-merge.mlir --shardq-select-transport="target=cpu host-ranks=2 transport=ag_rs" --verify-diagnostics
// RUN: shardq-opt %t/by-hand.mlir --shardq-select-transport=target=cpu --verify-diagnostics
// RUN: shardq-opt %t/buffers.mlir --shardq-select-transport=remarks=false --verify-diagnostics
// RUN: shardq-opt %t/option.mlir --shardq-select-transport=host-ranks=-1 --verify-diagnostics
// RUN: shardq-opt %t/tokens.mlir --shardq-select-transport=max-tokens=0 --verify-diagnostics
// RUN: shardq-opt %t/nested.mlir --shardq-select-transport=remarks=false --verify-diagnostics

//--- cpu.mlir
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16> {
  // expected-error @+1 {{'shardq.gather_query' op cannot travel by nccl: NCCL moves rows between GPUs, and ranks are on CPUs}}
  %0 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

//--- own.mlir
shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> tensor<?x2x16xbf16> {
  // expected-error @+1 {{'shardq.combine_lse' op cannot travel by ag_ar: each rank keeps its own heads, which ag_rs is for}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return %0 : tensor<?x2x16xbf16>
}

//--- all.mlir
shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> tensor<?x8x16xbf16> {
  // expected-error @+1 {{'shardq.combine_lse' op cannot travel by ag_rs: each rank keeps all heads, which ag_ar is for}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

//--- hosts.mlir
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16> {
  // expected-error @+1 {{'shardq.gather_query' op cannot travel by direct: ranks of the group are on several hosts and do not reach each other's memory}}
  %0 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

//--- cpu-hosts.mlir
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16> {
  // expected-error @+1 {{'shardq.gather_query' op cannot travel: ranks of the group are on several hosts and do not reach each other's memory; NCCL moves rows between GPUs, and ranks are on CPUs}}
  %0 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

//--- cpu-hosts-merge.mlir
shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> tensor<?x2x16xbf16> {
  // expected-remark @+2 {{travels by ag_rs: asked for}}
  // expected-error @+1 {{'shardq.gather_rows' op cannot travel: ranks of the group are on several hosts and do not reach each other's memory; NCCL moves rows between GPUs, and ranks are on CPUs}}
  %0 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x2x16xbf16>
  return %0 : tensor<?x2x16xbf16>
}

//--- by-hand.mlir
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16> {
  // expected-error @+1 {{'shardq.gather_query' op cannot travel by nccl: NCCL moves rows between GPUs, and ranks are on CPUs}}
  %0 = shardq.gather_query(%q) over @ranks "tp" {transport = #shardq.transport<nccl>} : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

//--- buffers.mlir
shardq.mesh @ranks ["tp" = 4]
func.func @f(%p: memref<?x8x16xbf16>, %l: memref<?x8xf32>, %out: memref<?x2x16xbf16>) {
  // expected-error @+1 {{'shardq.combine_lse' op is on buffers, where no ops can be made of it: run shardq-select-transport before bufferization}}
  shardq.combine_lse %p lse(%l) over @ranks "tp" outs(%out) {transport = #shardq.transport<ag_rs>}
      : (memref<?x8x16xbf16>, memref<?x8xf32>, memref<?x2x16xbf16>) -> ()
  return
}

//--- option.mlir
// expected-error @+1 {{shardq-select-transport: host-ranks is -1, expected 0 or more}}
module {}

//--- tokens.mlir
// expected-error @+1 {{shardq-select-transport: max-tokens is 0, expected 1 to 2147483647}}
module {}

//--- nested.mlir
// expected-note @+1 {{the pass runs on this module; run it on a nested module by itself}}
module {
  module {
    shardq.mesh @ranks ["tp" = 4]
    func.func @f(%q: tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16> {
      // expected-error @+1 {{stands outside the functions (func.func) of the module that the pass runs on}}
      %0 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
      return %0 : tensor<?x8x16xbf16>
    }
  }
}
