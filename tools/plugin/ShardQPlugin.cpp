//===- ShardQPlugin.cpp - ShardQ inside other MLIR tools ------------------===//
//
//   mlir-opt --load-dialect-plugin=ShardQPlugin.so \
//     --pass-pipeline='builtin.module(shard-q-tokens)'
//
// The dialect plugin brings the passes along. A tool that knows pass plugins
// only gets the passes and, through them, the dialect.
//
//===----------------------------------------------------------------------===//

#include "HostCheck.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "shardq/Pipelines/Register.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

// A test builds a plugin that believes in another version.
#ifndef SHARDQ_PLUGIN_LLVM_VERSION
#define SHARDQ_PLUGIN_LLVM_VERSION LLVM_VERSION_STRING
#endif

/// The interface version to answer with: MLIR's, or one that its loader
/// rejects.
static uint32_t checkedVersion(const void *caller) {
  std::string error =
      shardq::plugin::checkHost(caller, SHARDQ_PLUGIN_LLVM_VERSION);
  if (error.empty())
    return MLIR_PLUGIN_API_VERSION;
  llvm::errs() << "ShardQPlugin: not loaded: " << error << "\n";
  return 0;
}

extern "C" LLVM_ATTRIBUTE_WEAK
    LLVM_ATTRIBUTE_VISIBILITY_DEFAULT DialectPluginLibraryInfo
    mlirGetDialectPluginInfo() {
  return {checkedVersion(__builtin_return_address(0)), "ShardQ",
          SHARDQ_PLUGIN_LLVM_VERSION,
          [](DialectRegistry *registry) { shardq::registerAll(*registry); }};
}

extern "C" LLVM_ATTRIBUTE_WEAK
    LLVM_ATTRIBUTE_VISIBILITY_DEFAULT PassPluginLibraryInfo
    mlirGetPassPluginInfo() {
  return {checkedVersion(__builtin_return_address(0)), "ShardQ",
          SHARDQ_PLUGIN_LLVM_VERSION, [] {
            // Passes name the dialects they make; the tool's registry is not
            // at hand here.
            DialectRegistry scratch;
            shardq::registerAll(scratch);
          }};
}
