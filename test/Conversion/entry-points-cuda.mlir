// On a GPU, results are arguments.
//
// RUN: shardq-opt %s --shardq-emit-entry-points=device=cuda -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: shardq-opt %t.mlir --convert-scf-to-cf --finalize-memref-to-llvm --convert-func-to-llvm --convert-arith-to-llvm \
// RUN:   --convert-cf-to-llvm --reconcile-unrealized-casts | mlir-translate --mlir-to-llvmir | FileCheck %s --check-prefix=IR
//
// Each tensor: name, sizes, strides, is result, number, code, bits, rank, alignment.
// IR: @shardq_entry_attention_tensors = internal constant
// IR-SAME: { ptr @shardq_entry_attention_name, ptr @shardq_entry_attention_sizes, ptr null, i32 0, i32 0, i32 4, i32 16, i32 2, i32 2 }
// IR-SAME: { ptr null, ptr null, ptr null, i32 0, i32 1, i32 0, i32 32, i32 0, i32 4 }
// IR-SAME: { ptr @shardq_entry_attention_name_0, ptr @shardq_entry_attention_sizes_1, ptr null, i32 1, i32 0, i32 2, i32 32, i32 1, i32 4 }
// IR: @shardq_entry_attention = internal constant { i64, i64, ptr, ptr, i32, i32 }
// IR-SAME: { i64 40, i64 48, ptr @shardq_entry_attention_text, ptr @shardq_entry_attention_tensors, i32 3, i32 2 }

// CHECK: func.func private @attention__impl(%{{.*}}: !llvm.ptr, %{{.*}}: memref<?x576xbf16>, %{{.*}}: memref<i32>, %{{.*}}: memref<?xf32>) {
// CHECK-LABEL: func.func @attention(
// CHECK-NOT: shardq_rt_export
// CHECK: func.call @attention__impl(
// CHECK: llvm.call @shardq_rt_end
// CHECK-NOT: memref.dealloc
func.func @attention(%context: !llvm.ptr, %kv: memref<?x576xbf16> loc("kv"), %count: memref<i32>,
                     %out: memref<?xf32> {shardq.result} loc("out")) {
  return
}
