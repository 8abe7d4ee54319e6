//===- Passes.td - Passes out of the ShardQ dialect --------*- tablegen -*-===//

#ifndef SHARDQ_CONVERSION_PASSES
#define SHARDQ_CONVERSION_PASSES

include "mlir/Pass/PassBase.td"

def ConvertShardQToLoops : Pass<"convert-shardq-to-loops", "::mlir::ModuleOp"> {
  let summary = "Turns ShardQ ops on buffers into loops for the CPU";
  let description = [{
    Each op becomes a call of a private function with the loops, made once for each
    combination of static facts (heads, dimensions, top-k, types, strides) and named by
    them. So an op computes a row in the same way, bit for bit, wherever it stands: in
    the original program and in the token-sharded one. `memref.copy` becomes loops too.
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def ConvertShardQToRuntime : Pass<"convert-shardq-to-runtime", "::mlir::ModuleOp"> {
  let summary = "Turns ShardQ's host ops into calls of the runtime";
  let description = [{
    Functions that reach the runtime, and all public ones, get the runtime's context as a
    leading `!llvm.ptr` argument, and public ones a C interface. The plan becomes
    `shardq_module_plan()`, which returns the runtime's `shardq_plan`. Symmetric memory
    spaces disappear: the heap is ordinary memory of the process.
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"];
}

#endif // SHARDQ_CONVERSION_PASSES
