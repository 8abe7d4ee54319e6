//===- Register.cpp - One call for everything ShardQ has ------------------===//

#include "shardq/Pipelines/Register.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "shardq/Conversion/Passes.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Pipelines/Pipelines.h"
#include "shardq/Target/Passes.h"
#include "shardq/Transforms/Passes.h"

void mlir::shardq::registerAll(DialectRegistry &registry) {
  registerAllDialects(registry);
  registerAllExtensions(registry);
  registry.insert<ShardQDialect>();
  registerBufferizableOpInterfaceExternalModels(registry);
  // gpu-module-to-binary looks them up in the context.
  registerAllGPUToLLVMIRTranslations(registry);
  // The pass registry does not take a pass twice, and a plugin's dialect and
  // pass hooks both come here.
  [[maybe_unused]] static const bool once = [] {
    registerShardQTransformsPasses();
    registerShardQConversionPasses();
    registerShardQTargetPasses();
    registerPipelines();
    return true;
  }();
}
