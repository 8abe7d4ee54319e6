// What LLVM's NVPTX backend and its intrinsics get wrong when nobody looks: each kind of
// kernel as PTX.
//
// What stands in none of them: flags of one GPU, the read-only cache, stacks, calls of
// libdevice or of anything else, and what only a whole warpgroup may do.
// DEFINE: %{not} = --implicit-check-not=relaxed.gpu --implicit-check-not=ld.global.nc \
// DEFINE:   --implicit-check-not=.local --implicit-check-not=.func --implicit-check-not=.extern \
// DEFINE:   --implicit-check-not=call --implicit-check-not=wgmma --implicit-check-not=setmaxnreg
// DEFINE: %{ptx} = grep "shardq_image_code(" | sed -e 's/\\0A/\n/g' -e 's/\\09/ /g' -e 's/\\22/"/g'
// RUN: shardq-opt %s --shardq-to-nvvm='arch=sm_90a ptxas=none' | %{ptx} > %t.ptx
// RUN: FileCheck %s --input-file=%t.ptx %{not}
//
// Every kernel says how many threads it has, without which ptxas takes registers for
// granted:
// RUN: grep -c "\.entry" %t.ptx > %t.entries
// RUN: grep -c "^\.maxntid\|^\.reqntid" %t.ptx | diff - %t.entries
//
// The oldest card has all instructions too:
// RUN: shardq-opt %s --shardq-to-nvvm='arch=sm_80 ptxas=none' | %{ptx} | FileCheck %s --check-prefixes=CHECK,OLD %{not}
// OLD: .target sm_80
//
// LLVM merges accesses to static arrays in shared memory as if they began at a multiple of 16 bytes, so they do:
// RUN: grep -c "\.shared \.align 16 " %t.ptx && not grep "\.shared \.align [1248] " %t.ptx
//
// nvvm.inline_ptx loses updates of operands that are read and written, so no kernel has any; ops of NVVM
// that were left over would not become PTX at all:
// RUN: shardq-opt %s --convert-shardq-to-gpu --gpu-kernel-outlining -o %t.gpu.mlir
// RUN: grep -c gpu.func %t.gpu.mlir && not grep inline_ptx %t.gpu.mlir
//
// The host loads no module before main and knows no runtime but ShardQ's:
// RUN: shardq-opt %s --shardq-to-nvvm='arch=sm_90a ptxas=none' | mlir-translate --mlir-to-llvmir \
// RUN:   | FileCheck %s --check-prefix=IR --implicit-check-not=global_ctors --implicit-check-not=mgpu
// IR: define ptr @shardq_module_image()

shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 1179648, generations = 2>],
  exchanges = ["q", "whole"], hash = 7 : i64, slot_bytes = 2359296 : i64, slots = 1 : i64}

func.func @exchange(%q: memref<?x4x512xbf16>, %rope: memref<?x4x64xbf16>, %ids: memref<?xi32>, %offsets: memref<5xi32>,
                    %n: index, %other: memref<8xf32>, %out: memref<?x16x576xbf16>) {
  %c0 = arith.constant 0 : index
  %cst = arith.constant 1.0 : f32
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x16x576xbf16, #shardq.symmetric<@ranks>>

  // Two sources, 16 bytes at a time, to peers; a step beyond the plan writes nothing. What
  // the failure record holds is for the host, so its flags are of the system.
  // CHECK-LABEL: .entry shardq_push_4x512_4x64_16x576_bf16(
  // CHECK: ld.global.v4.b32
  // CHECK: ld.global.v4.b32
  // CHECK: st.global.v4.b32
  shardq.push heads_to_tokens(%q, %rope) by(%ids, %offsets) decodes(%c0) into(%0) over @ranks "tp" channel 0 exchange 0 {capacity = 64 : i64}
      : (memref<?x4x512xbf16>, memref<?x4x64xbf16>), memref<?xi32>, memref<5xi32>, memref<?x16x576xbf16, #shardq.symmetric<@ranks>>
  linalg.fill ins(%cst : f32) outs(%other : memref<8xf32>)

  // Flags are released and acquired for the whole system: LLVM's atomicrmw would be
  // relaxed and of one GPU, whatever it was asked.
  // CHECK-LABEL: .entry shardq_signal(
  // CHECK: st.release.sys
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  linalg.fill ins(%cst : f32) outs(%other : memref<8xf32>)
  // CHECK-LABEL: .entry shardq_wait(
  // CHECK: ld.acquire.sys
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>

  // Peers write the inbox while this rank's kernels run: never through the read-only
  // cache, which does not see that (ld.global.nc, of which there is none at all).
  // CHECK-LABEL: .entry memref_copy_16x576_16x576_bf16(
  // CHECK: ld{{(.global)?}}.v4.b32
  // CHECK: st.global.v4.b32
  %1 = memref.memory_space_cast %0 : memref<?x16x576xbf16, #shardq.symmetric<@ranks>> to memref<?x16x576xbf16>
  memref.copy %1, %out : memref<?x16x576xbf16> to memref<?x16x576xbf16>
  return
}

// Where nothing is overlapped, signal and wait are one kernel.
// CHECK-LABEL: .entry shardq_signal_wait(
// CHECK: st.release.sys
// CHECK: ld.acquire.sys
func.func @whole_exchange(%q: memref<?x4x512xbf16>, %rope: memref<?x4x64xbf16>, %ids: memref<?xi32>, %offsets: memref<5xi32>,
                          %n: index) {
  %c0 = arith.constant 0 : index
  %0 = shardq.workspace @plan channel 0 (%n) : memref<?x16x576xbf16, #shardq.symmetric<@ranks>>
  shardq.push heads_to_tokens(%q, %rope) by(%ids, %offsets) decodes(%c0) into(%0) over @ranks "tp" channel 0 exchange 1 {capacity = 64 : i64}
      : (memref<?x4x512xbf16>, memref<?x4x64xbf16>), memref<?xi32>, memref<5xi32>, memref<?x16x576xbf16, #shardq.symmetric<@ranks>>
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 1 : memref<5xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 1 : memref<5xi32>
  return
}

// CHECK-LABEL: .entry shardq_take_rows_64x128_64x128_bf16(
// CHECK-COUNT-4: ld.global.v4.b32
// CHECK: st.global.v4.b32
func.func @take_rows(%x: memref<?x64x128xbf16>, %rows: memref<?xi32>, %out: memref<?x64x128xbf16>) {
  shardq.take_rows %x[%rows] outs(%out) : (memref<?x64x128xbf16>, memref<?xi32>, memref<?x64x128xbf16>) -> ()
  return
}

// CHECK-LABEL: .entry shardq_convert_indices_2048_2048(
// CHECK-DAG: ld.global.v4.b32
// CHECK-DAG: st.global.v4.b32
func.func @convert(%indices: memref<?x2048xi32>, %table: memref<?x?xi32>, %req: memref<?xi32>, %out: memref<?x2048xi32>) {
  shardq.convert_indices %indices table(%table) rows(%req) outs(%out) {block_size = 64 : i64}
      : (memref<?x2048xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x2048xi32>) -> ()
  return
}

// The matrix unit, fed by asynchronous copies.
// CHECK-LABEL: .entry shardq_indexer_64x128_64_128_2048_bf16_scores(
// CHECK: cp.async
// CHECK: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK-LABEL: .entry shardq_indexer_64x128_64_128_2048_bf16_topk(
// CHECK: ld.global.v4.b32
func.func @indexer(%q: memref<?x64x128xbf16>, %w: memref<?x64xf32>, %k: memref<?x128xbf16>, %table: memref<?x?xi32>,
                   %req: memref<?xi32>, %visible: memref<?xi32>, %out: memref<?x2048xi32>) {
  shardq.indexer q(%q) weights(%w) keys(%k) table(%table) rows(%req, %visible) outs(%out) {block_size = 64 : i64}
      : (memref<?x64x128xbf16>, memref<?x64xf32>, memref<?x128xbf16>, memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x2048xi32>) -> ()
  return
}

// Powers and logarithms of 2 by the approximating unit: LLVM has no lowering of its own
// intrinsics.
// CHECK-LABEL: .entry shardq_sparse_mla_16x512_16x64_576_2048_16x512_16_f16(
// CHECK: cp.async
// CHECK: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// CHECK: ex2.approx.ftz.f32
// Two f32 become a pair at once, the weights as well as the results.
// CHECK: cvt.rn.f16x2.f32
// CHECK: lg2.approx
// CHECK: cvt.rn.f16x2.f32
func.func @attention(%q: memref<?x16x512xf16>, %rope: memref<?x16x64xf16>, %kv: memref<?x576xf16>, %slots: memref<?x2048xi32>,
                     %out: memref<?x16x512xf16>, %lse: memref<?x16xf32>) {
  shardq.sparse_mla q(%q, %rope) kv(%kv) slots(%slots) outs(%out, %lse) {scale = 0.1 : f32}
      : (memref<?x16x512xf16>, memref<?x16x64xf16>, memref<?x576xf16>, memref<?x2048xi32>, memref<?x16x512xf16>, memref<?x16xf32>) -> ()
  return
}

// CHECK-LABEL: .entry shardq_sparse_mla_16x512_16x64_576_2048_16x512_16_bf16(
// CHECK: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK: ex2.approx.ftz.f32
// CHECK: cvt.rn.bf16x2.f32
// CHECK: lg2.approx
// CHECK: cvt.rn.bf16x2.f32
func.func @attention_bf16(%q: memref<?x16x512xbf16>, %rope: memref<?x16x64xbf16>, %kv: memref<?x576xbf16>,
                          %slots: memref<?x2048xi32>, %out: memref<?x16x512xbf16>, %lse: memref<?x16xf32>) {
  shardq.sparse_mla q(%q, %rope) kv(%kv) slots(%slots) outs(%out, %lse) {scale = 0.1 : f32}
      : (memref<?x16x512xbf16>, memref<?x16x64xbf16>, memref<?x576xbf16>, memref<?x2048xi32>, memref<?x16x512xbf16>, memref<?x16xf32>) -> ()
  return
}
