//===- Pipelines.cpp - Named pipelines ------------------------------------===//

#include "shardq/Pipelines/Pipelines.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/Transforms/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Transforms/Passes.h"
#include "shardq/Conversion/Passes.h"
#include "shardq/Target/Passes.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::shardq;

/// Values: one exchange schedule on all ranks, and how it travels; then
/// buffers, planned and proved.
template <typename Options>
static void addBufferPasses(OpPassManager &manager, RankTarget target,
                            const Options &options) {
  manager.addPass(createShardQVerifyLayouts());
  // In front of patterns that join casts.
  manager.addPass(createShardQVerifyViews());
  manager.addPass(createShardQVerifyExchanges());
  ShardQSliceStepsOptions slices;
  slices.maxTokens = options.maxTokens;
  slices.maxRequests = options.maxRequests;
  manager.addPass(createShardQSliceSteps(slices));
  ShardQSelectTransportOptions transport;
  transport.transport = options.transport;
  transport.target = target;
  transport.hostRanks = options.hostRanks;
  transport.maxTokens = options.maxTokens;
  // What is chosen unasked is in the IR; a compiler that says so of each
  // exchange each time is not heard when it matters.
  transport.remarks = options.transport != TransportChoice::Auto;
  manager.addPass(createShardQSelectTransport(transport));
  // Arithmetic on tensors has no buffer form.
  manager.addPass(createConvertElementwiseToLinalgPass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  // Of a tensor.empty a branch does not know that it is dense, and what it
  // hands on would be copied for the caller.
  manager.addPass(bufferization::createEmptyTensorToAllocTensorPass());
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  // A loop over layers carries each output to the next turn.
  bufferize.allowReturnAllocsFromLoops = true;
  bufferize.functionBoundaryTypeConversion =
      bufferization::LayoutMapOption::IdentityLayoutMap;
  manager.addPass(bufferization::createOneShotBufferizePass(bufferize));

  ShardQPlanWorkspaceOptions plan;
  plan.maxTokens = options.maxTokens;
  plan.maxRequests = options.maxRequests;
  plan.maxKvTokens = options.maxKvTokens;
  plan.slots = options.slots;
  manager.addPass(createShardQPlanWorkspace(plan));
  manager.addPass(createShardQVerifyProtocol());
}

/// What is left for host code behind the conversion of ShardQ's ops: LLVM.
static void addHostPasses(OpPassManager &manager) {
  manager.addPass(createConvertLinalgToLoopsPass());
  manager.addPass(memref::createExpandStridedMetadataPass());
  manager.addPass(createLowerAffinePass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());

  // bf16 conversions become integer ops: not every CPU has them, and LLVM would
  // call a library function.
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  manager.addPass(arith::createArithExpandOpsPass(expand));
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(createConvertVectorToLLVMPass());
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createFinalizeMemRefToLLVMConversionPass());
  manager.addPass(createConvertFuncToLLVMPass());
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createConvertIndexToLLVMPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
}

/// Shared memory that a block may have: the tables of compute capabilities in
/// the CUDA programming guide.
static int64_t getSharedBytes(llvm::StringRef arch) {
  int64_t kilobytes = llvm::StringSwitch<int64_t>(arch.rtrim("af"))
                          .Cases({"sm_80", "sm_87"}, 163)
                          .Cases({"sm_86", "sm_89", "sm_120", "sm_121"}, 99)
                          .Default(227);
  return kilobytes * 1024;
}

/// `griddepcontrol` is there from compute capability 9.0 on.
static bool canStartEarly(llvm::StringRef arch) {
  unsigned number = 0;
  return arch.consume_front("sm_") && !arch.consumeInteger(10, number) &&
         number >= 90;
}

void mlir::shardq::buildShardQToCPUPipeline(OpPassManager &manager,
                                            const ShardQToCPUOptions &options) {
  addBufferPasses(manager, RankTarget::Cpu, options);
  bufferization::buildBufferDeallocationPipeline(
      manager, bufferization::BufferDeallocationPipelineOptions());
  // Clones of what is handed through: arguments and constants that are results.
  manager.addPass(createConvertBufferizationToMemRefPass());

  // Loops and runtime calls.
  manager.addPass(createConvertShardQToLoops());
  manager.addPass(createConvertShardQToRuntime());
  if (options.entryPoints)
    manager.addPass(createShardQEmitEntryPoints());
  addHostPasses(manager);
}

void mlir::shardq::buildShardQToNVVMPipeline(
    OpPassManager &manager, const ShardQToNVVMOptions &options) {
  addBufferPasses(manager, RankTarget::Cuda, options);
  // A kernel belongs to the function that launches it.
  manager.addPass(createInlinerPass());
  manager.addPass(createSymbolDCEPass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());

  // Host code and kernels part.
  ConvertShardQToGPUOptions gpu;
  gpu.scratchBytes = options.scratchBytes;
  gpu.sharedBytes = getSharedBytes(options.arch);
  gpu.startEarly = canStartEarly(options.arch);
  gpu.overlap = options.overlap;
  manager.addPass(createConvertShardQToGPU(gpu));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createGpuLaunchSinkIndexComputationsPass());
  manager.addPass(createGpuKernelOutliningPass());
  manager.addPass(createShareKernels());
  manager.addPass(createConvertShardQToRuntime());

  // Kernels: NVVM, PTX.
  manager.addPass(memref::createExpandStridedMetadataPass());
  manager.addPass(createLowerAffinePass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  OpPassManager &kernels = manager.nest<gpu::GPUModuleOp>();
  kernels.addPass(createSCFToControlFlowPass());
  kernels.addPass(createConvertGpuOpsToNVVMOps());
  kernels.addPass(createConvertNVVMToLLVMPass());
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
  ShardQKernelsToPtxOptions ptx;
  ptx.arch = options.arch;
  manager.addPass(createShardQKernelsToPtx(ptx));

  // Host code: calls of the runtime, with the machine code beside them.
  if (options.entryPoints) {
    ShardQEmitEntryPointsOptions entryPoints;
    entryPoints.device = "cuda";
    manager.addPass(createShardQEmitEntryPoints(entryPoints));
  }
  manager.addPass(createConvertLaunchesToRuntime());
  ShardQAssembleKernelsOptions assemble;
  assemble.ptxas = options.ptxas;
  manager.addPass(createShardQAssembleKernels(assemble));
  addHostPasses(manager);
}

void mlir::shardq::registerPipelines() {
  PassPipelineRegistration<ShardQToCPUOptions>(
      "shardq-to-cpu",
      "From ShardQ on tensors to the LLVM dialect and runtime calls, for ranks "
      "that are CPU processes",
      buildShardQToCPUPipeline);
  PassPipelineRegistration<ShardQToNVVMOptions>(
      "shardq-to-nvvm",
      "From ShardQ on tensors to host code in the LLVM dialect and GPU kernels "
      "as machine code in it, for ranks that are processes with a GPU",
      buildShardQToNVVMPipeline);
}
