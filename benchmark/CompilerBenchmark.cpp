//===- CompilerBenchmark.cpp - The rewrite, and module to JIT -------------===//
//
// Targets: --shard-q-tokens on 61 layers below 100 ms; one module from text to
// callable code below 2 s.
//
//===----------------------------------------------------------------------===//

#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "shardq/Pipelines/Pipelines.h"
#include "shardq/Pipelines/Register.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/Support/TargetSelect.h"
#include <benchmark/benchmark.h>

using namespace mlir;

/// DeepSeek-V3.2 at tp 8, each layer with its own indexer and caches.
static std::string makeModule(int64_t layers) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "shardq.mesh @ranks [\"tp\" = 8]\nfunc.func @model(\n";
  for (int64_t i = 0; i < layers; ++i)
    out << "    %qn" << i << ": tensor<?x16x512xbf16>, %qr" << i
        << ": tensor<?x16x64xbf16>, %kv" << i << ": tensor<?x576xbf16>, %iq"
        << i << ": tensor<?x64x128xbf16>, %iw" << i << ": tensor<?x64xf32>, %ik"
        << i << ": tensor<?x128xbf16>,\n";
  out << "    %starts: tensor<?xi32>, %lens: tensor<?xi32>, %table: "
         "tensor<?x?xi32>, %rows: index) -> (";
  for (int64_t i = 0; i < layers; ++i)
    out << (i ? ", " : "") << "tensor<?x16x512xbf16>";
  out << ") {\n  %req, %visible = shardq.expand_rows %starts, %lens to %rows : "
         "(tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, "
         "tensor<?xi32>)\n";
  for (int64_t i = 0; i < layers; ++i)
    out << "  %k" << i << " = shardq.indexer q(%iq" << i << ") weights(%iw" << i
        << ") keys(%ik" << i
        << ") table(%table) rows(%req, %visible) {block_size = 64 : i64} : "
           "(tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>, "
           "tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> "
           "tensor<?x2048xi32>\n  %s"
        << i << " = shardq.convert_indices %k" << i
        << " table(%table) rows(%req) {block_size = 64 : i64} : "
           "(tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>) -> "
           "tensor<?x2048xi32>\n  %o"
        << i << " = shardq.sparse_mla q(%qn" << i << ", %qr" << i << ") kv(%kv"
        << i << ") slots(%s" << i
        << ") {scale = 0.07 : f32, sharding = #shardq.sharding<@ranks, heads = "
           "[\"tp\"]>} : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, "
           "tensor<?x576xbf16>, tensor<?x2048xi32>) -> "
           "tensor<?x16x512xbf16>\n";
  out << "  return ";
  for (int64_t i = 0; i < layers; ++i)
    out << (i ? ", " : "") << "%o" << i;
  out << " : ";
  for (int64_t i = 0; i < layers; ++i)
    out << (i ? ", " : "") << "tensor<?x16x512xbf16>";
  out << "\n}\n";
  return text;
}

static MLIRContext &getContext() {
  static MLIRContext *context = [] {
    DialectRegistry registry;
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registerAllToLLVMIRTranslations(registry);
    shardq::registerAll(registry);
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto *made = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    made->loadAllAvailableDialects();
    return made;
  }();
  return *context;
}

static void shardQTokens(benchmark::State &state) {
  MLIRContext &context = getContext();
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(makeModule(state.range(0)), &context);
  shardq::ShardQTokensOptions options;
  options.remarks = false;
  for (auto _ : state) {
    state.PauseTiming();
    OwningOpRef<ModuleOp> copy = module->clone();
    state.ResumeTiming();
    PassManager manager(&context);
    manager.addPass(shardq::createShardQTokens(options));
    if (failed(manager.run(*copy)))
      return state.SkipWithError("the pass failed");
    state.PauseTiming();
    copy = nullptr;
    state.ResumeTiming();
  }
}
BENCHMARK(shardQTokens)
    ->ArgName("layers")
    ->Arg(1)
    ->Arg(61)
    ->Unit(benchmark::kMillisecond);

static void moduleToJit(benchmark::State &state) {
  MLIRContext &context = getContext();
  std::string text = makeModule(state.range(0));
  for (auto _ : state) {
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
    PassManager manager(&context);
    shardq::ShardQTokensOptions tokens;
    tokens.remarks = false;
    manager.addPass(shardq::createShardQTokens(tokens));
    shardq::buildShardQToCPUPipeline(manager, shardq::ShardQToCPUOptions());
    if (failed(manager.run(*module)))
      return state.SkipWithError("the pipeline failed");
    ExecutionEngineOptions options;
    auto transformer = makeOptimizingTransformer(3, 0, nullptr);
    options.transformer = transformer;
    auto engine = ExecutionEngine::create(*module, options);
    if (!engine)
      return state.SkipWithError("no execution engine");
    // Code is made when it is looked up. Runtime functions need not exist.
    llvm::consumeError((*engine)->lookup("_mlir_ciface_model").takeError());
  }
}
BENCHMARK(moduleToJit)
    ->ArgName("layers")
    ->Arg(1)
    ->Arg(4)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(3);
