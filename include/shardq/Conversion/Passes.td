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

def ConvertShardQToGPU : Pass<"convert-shardq-to-gpu", "::mlir::ModuleOp"> {
  let summary = "Turns ShardQ ops on buffers into launches of GPU kernels";
  let description = [{
    Each function becomes host code that launches kernels on one stream and reads nothing
    back. Of a gather that ends further below, the push runs beside what stands in between (`shardq.aside`), where nothing there
    writes what it reads. What is loaded from memory (row counts, the gate) is known on the device only: each
    kernel computes it again where it uses it, branches on it are laid flat and become
    conditions of kernels, and buffers whose size it is are as large as a bound that the host
    knows. Results become trailing arguments marked `shardq.result`, written in place where
    they can be. A buffer is freed after its last use.

    Functions must not call each other (inline first), and every loop has bounds that the host
    knows.
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::shardq::ShardQDialect", "::mlir::vector::VectorDialect"];
  let options = [
    Option<"scratchBytes", "scratch-bytes", "int64_t", /*default=*/"int64_t(1) << 28",
           "Memory for indexer scores: more rows than fit are scored in turns">,
    Option<"sharedBytes", "shared-bytes", "int64_t", /*default=*/"227 * 1024",
           "Shared memory that a block of the card may have">,
    Option<"startEarly", "start-early", "bool", /*default=*/"false",
           "Kernels may be started before the one in front of them has ended (sm_90 and later)">,
    Option<"overlap", "overlap", "bool", /*default=*/"true",
           "Gathers of KV run beside what stands between their start and their end">];
}

def ShareKernels : Pass<"shardq-share-kernels", "::mlir::ModuleOp"> {
  let summary = "Makes launches of equal kernels launch one";
  let description = [{
    Outlining makes a kernel of every launch. Of kernels that differ in nothing but their
    names the first stays, so that 61 layers have the kernels of one. The number of an
    exchange, which a kernel needs for the record of a failure only, becomes an argument
    for that.
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect"];
}

def ConvertLaunchesToRuntime : Pass<"convert-launches-to-runtime", "::mlir::ModuleOp"> {
  let summary = "Turns launches and device memory into calls of the runtime";
  let description = [{
    `gpu.launch_func` becomes `shardq_rt_launch`, on the context's stream, and `memref.alloc`
    and `memref.dealloc` take from and give to the context's arena. The kernels' names, threads
    and dynamic shared memory become the attribute `shardq.kernels` of their `gpu.binary`, in
    the order in which calls number them. Runs behind `convert-shardq-to-runtime`, which
    provides the context, and `gpu-module-to-binary`.
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect"];
}

def ShardQEmitEntryPoints : Pass<"shardq-emit-entry-points", "::mlir::ModuleOp"> {
  let summary = "Gives public functions a C interface of DLPack tensors";
  let description = [{
    Each public function `@f`, with the context as first argument and buffers for the rest, is
    renamed `@f__impl` and made private. A new `@f` is

    ```c
    int32_t f(shardq_context *context, void *stream, <arguments>, <results>);
    ```

    with a `const DLTensor *` for each buffer, scalars by value (`int64_t` for an index, bits in a
    `uint16_t` for bf16 and f16) and a pointer for each scalar result, NULL where it is not
    wanted. It checks the tensors (`shardq_rt_import` of tensor.h) against constants made from
    the types and returns what the call's end returns. Results are the arguments marked
    `shardq.result`, then what the function returns: buffers, which the caller owns, are copied
    to the caller's tensors and freed.

    Names in messages are those of the arguments' locations: `loc("kv")`. What an entry point
    takes stays on it as `shardq.entry_point`, from which headers are written.

    Runs behind `convert-shardq-to-runtime`, and before control flow, memref and func go to LLVM.
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"];
  let options = [
    Option<"device", "device", "std::string", /*default=*/"\"cpu\"",
           "Where tensors are: cpu or cuda">];
}

#endif // SHARDQ_CONVERSION_PASSES
