//===- Pipelines.cpp - Named pipelines ------------------------------------===//

#include "shardq/Pipelines/Pipelines.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/Transforms/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Transforms/Passes.h"
#include "shardq/Conversion/Passes.h"
#include "shardq/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::shardq;

void mlir::shardq::buildShardQToCPUPipeline(OpPassManager &manager,
                                            const ShardQToCPUOptions &options) {
  // Values: one exchange schedule on all ranks, then buffers.
  manager.addPass(createShardQVerifyExchanges());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  // A loop over layers carries each output to the next turn.
  bufferize.allowReturnAllocsFromLoops = true;
  bufferize.functionBoundaryTypeConversion =
      bufferization::LayoutMapOption::IdentityLayoutMap;
  manager.addPass(bufferization::createOneShotBufferizePass(bufferize));

  // Buffers: plan, prove, free.
  ShardQPlanWorkspaceOptions plan;
  plan.maxTokens = options.maxTokens;
  plan.maxRequests = options.maxRequests;
  plan.slots = options.slots;
  manager.addPass(createShardQPlanWorkspace(plan));
  manager.addPass(createShardQVerifyProtocol());
  bufferization::buildBufferDeallocationPipeline(
      manager, bufferization::BufferDeallocationPipelineOptions());
  // Clones of what is handed through: arguments and constants that are results.
  manager.addPass(createConvertBufferizationToMemRefPass());

  // Loops and runtime calls.
  manager.addPass(createConvertShardQToLoops());
  manager.addPass(createConvertShardQToRuntime());
  if (options.entryPoints)
    manager.addPass(createShardQEmitEntryPoints());
  manager.addPass(createConvertLinalgToLoopsPass());
  manager.addPass(memref::createExpandStridedMetadataPass());
  manager.addPass(createLowerAffinePass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());

  // LLVM. bf16 conversions become integer ops: not every CPU has them, and
  // LLVM would call a library function.
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

void mlir::shardq::registerPipelines() {
  PassPipelineRegistration<ShardQToCPUOptions>(
      "shardq-to-cpu",
      "From ShardQ on tensors to the LLVM dialect and runtime calls, for ranks "
      "that are CPU processes",
      buildShardQToCPUPipeline);
}
