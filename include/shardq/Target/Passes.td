//===- Passes.td - Passes that make binaries ---------------*- tablegen -*-===//

#ifndef SHARDQ_TARGET_PASSES
#define SHARDQ_TARGET_PASSES

include "mlir/Pass/PassBase.td"

def ShardQKernelsToPtx : Pass<"shardq-kernels-to-ptx", "::mlir::ModuleOp"> {
  let summary = "Compiles GPU modules to PTX, with the device library in it";
  let description = [{
    Each `gpu.module` in the NVVM and LLVM dialects becomes a `gpu.binary` with PTX for one
    architecture. What its kernels call of ShardQ's device library (the exchange protocol)
    is linked into it.
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect", "::mlir::gpu::GPUDialect"];
  let options = [
    Option<"arch", "arch", "std::string", /*default=*/"\"sm_90a\"",
           "The card: sm_80, sm_90, sm_90a, sm_100a, ...">,
    Option<"optLevel", "opt-level", "int", /*default=*/"3", "-O of LLVM, 0 to 3">,
  ];
}

def ShardQAssembleKernels : Pass<"shardq-assemble-kernels", "::mlir::ModuleOp"> {
  let summary = "Assembles PTX by ptxas and embeds it with the table of kernels";
  let description = [{
    Takes the module's `gpu.binary` with one object of PTX, as `gpu-module-to-binary{format=isa}`
    makes it, runs ptxas and replaces the op by constants that the runtime reads
    (`shardq_gpu_image` in runtime.h) and `shardq_module_image()`, which returns their address.
    A module without a `gpu.binary` gets a `shardq_module_image()` that returns null.

    Which kernels there are, and in which order the runtime counts them, is said by

    ```mlir
    shardq.kernels = [{name = "k0", threads = 256 : i32, dynamic_shared = 0 : i32}, ...]
    ```

    on the `gpu.binary`, or on the module, since `gpu-module-to-binary` drops attributes.

    Warnings and errors of ptxas are reported at the op. A kernel that spills registers or has a
    stack frame, and a performance warning of ptxas (C75xx: serialized `wgmma`), are errors. What
    each kernel takes is kept as `shardq.resources` on the global with the code:
    `{k0 = {registers = 32 : i32, shared = 1024 : i32, stack = 0 : i32, spills = 0 : i32}}`,
    shared memory, stack and spills (stores and loads) in bytes.

    ptxas is the one of the option, or the first in `$CUDA_HOME/bin`, `/usr/local/cuda/bin` and the
    `PATH`. Where there is none, the PTX itself is embedded, zero-terminated, and the driver
    assembles it when it is loaded; a remark says so.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
  let options = [
    Option<"ptxas", "ptxas", "std::string", /*default=*/"",
           "Path of ptxas; none: embed PTX">,
    Option<"optLevel", "opt-level", "int", /*default=*/"3", "-O of ptxas, 0 to 3">,
    Option<"allowSpills", "allow-spills", "bool", /*default=*/"false",
           "Spills, stack frames and C75xx are warnings">,
  ];
}

#endif // SHARDQ_TARGET_PASSES
