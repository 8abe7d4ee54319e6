// A program without kernels has no image, and says so to who asks.
//
// RUN: shardq-opt %s --shardq-assemble-kernels | FileCheck %s
// CHECK: llvm.func @shardq_module_image() -> !llvm.ptr
// CHECK-NEXT: %[[NULL:.*]] = llvm.mlir.zero : !llvm.ptr
// CHECK-NEXT: llvm.return %[[NULL]]
// CHECK-NOT: shardq_module_image
llvm.func @shardq_module_image() -> !llvm.ptr
func.func @nothing() {
  return
}
