// What ptxas finds fault with becomes a diagnostic at the binary.
//
// REQUIRES: ptxas
// RUN: shardq-opt %s --shardq-assemble-kernels --split-input-file --verify-diagnostics
//
// Spills that are allowed are warnings:
// RUN: not shardq-opt %s --shardq-assemble-kernels=allow-spills --split-input-file 2>&1 | FileCheck %s
// CHECK: warning: kernel 'k0' has a stack frame of 64 bytes

// expected-error @+3 {{ptxas: Not a name of any known instruction: 'retx'}}
// expected-note @+2 {{PTX line 5: retx;}}
// expected-error @+1 {{ptxas: Ptx assembly aborted due to errors}}
gpu.binary @kernels {shardq.kernels = [{name = "k0", threads = 32 : i32, dynamic_shared = 0 : i32}]}
    [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".version 8.0\0A.target sm_90a\0A.address_size 64\0A.visible .entry k0() {\0A  retx;\0A}\0A">]

// -----

// expected-error @+1 {{kernel 'k0' has a stack frame of 64 bytes}}
gpu.binary @kernels {shardq.kernels = [{name = "k0", threads = 32 : i32, dynamic_shared = 0 : i32}]}
    [#gpu.object<#nvvm.target<chip = "sm_80">, assembly = ".version 8.0\0A.target sm_80\0A.address_size 64\0A.visible .entry k0(.param .u64 p, .param .u32 i) {\0A.local .align 16 .b8 buf[64];\0A.reg .b32 %r<8>;\0A.reg .b64 %rd<8>;\0Ald.param.u64 %rd1, [p];\0Ald.param.u32 %r1, [i];\0Amov.u64 %rd2, buf;\0Amul.wide.u32 %rd3, %r1, 4;\0Aadd.s64 %rd4, %rd2, %rd3;\0Ast.local.u32 [%rd2+8], %r1;\0Ast.local.u32 [%rd4], %r1;\0Ald.local.u32 %r2, [%rd2+4];\0Ast.global.u32 [%rd1], %r2;\0Aret;\0A}\0A">]
