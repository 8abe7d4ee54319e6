// Kernels get by with the shared memory that a block of the card may have: fewer
// heads share a block where it is small. What cannot is said.
//
// RUN: shardq-opt %s --split-input-file --convert-shardq-to-gpu | FileCheck %s
// RUN: shardq-opt %s --split-input-file --convert-shardq-to-gpu=shared-bytes=166912 | FileCheck %s --check-prefix=SM80
// RUN: not shardq-opt %s --split-input-file --convert-shardq-to-gpu=shared-bytes=75000 2>&1 | FileCheck %s --check-prefix=NONE
//
// The pipeline knows the cards:
// RUN: not shardq-opt %s --split-input-file --shardq-to-nvvm=arch=sm_89 2>&1 | FileCheck %s --check-prefix=SM89

// CHECK: %[[BYTES:.*]] = arith.constant 196352 : i32
// CHECK: gpu.launch {{.*}} dynamic_shared_memory_size %[[BYTES]]
// SM80: %[[BYTES:.*]] = arith.constant 156288 : i32
// SM80: gpu.launch {{.*}} dynamic_shared_memory_size %[[BYTES]]
// NONE: error: 'shardq.sparse_mla' op has a query of 576 and values of 512 elements, expected widths of which 32 keys fit twice into the 75000 bytes of a block's shared memory and 16 heads into its registers
func.func @attention(%q: memref<?x64x576xbf16>, %kv: memref<?x576xbf16>, %slots: memref<?x64xi32>, %out: memref<?x64x512xbf16>) {
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out) {scale = 0.1 : f32}
      : (memref<?x64x576xbf16>, memref<?x576xbf16>, memref<?x64xi32>, memref<?x64x512xbf16>) -> ()
  return
}

// -----

// NONE: error: 'shardq.topk' op has a kernel that needs 151696 bytes of shared memory in a block, where 75000 are to be had
// SM89: error: 'shardq.topk' op has a kernel that needs 151696 bytes of shared memory in a block, where 101376 are to be had
func.func @topk(%scores: memref<?x?xf32>, %visible: memref<?xi32>, %out: memref<?x64xi32>) {
  shardq.topk %scores visible(%visible) outs(%out) : (memref<?x?xf32>, memref<?xi32>, memref<?x64xi32>) -> ()
  return
}

// -----

// NONE: error: 'shardq.indexer' op has a kernel that needs 151696 bytes
func.func @indexer(%q: memref<?x32x128xbf16>, %w: memref<?x32xf32>, %k: memref<?x128xbf16>, %table: memref<?x?xi32>,
                   %req: memref<?xi32>, %visible: memref<?xi32>, %out: memref<?x64xi32>) {
  shardq.indexer q(%q) weights(%w) keys(%k) table(%table) rows(%req, %visible) outs(%out) {block_size = 64 : i64}
      : (memref<?x32x128xbf16>, memref<?x32xf32>, memref<?x128xbf16>, memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x64xi32>) -> ()
  return
}

// Nothing is lowered for a number that makes no sense.
// RUN: not shardq-opt %s --convert-shardq-to-gpu=shared-bytes=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: error: convert-shardq-to-gpu: shared-bytes is -1, expected 0 to 2^40
