// A graph compiler of ten lines: parses a module, shards its query tokens, and
// lowers it by a pipeline, if one is given.
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "shardq/Pipelines/Register.h"
#include "shardq/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::shardq::registerAll(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(argv[1], &context);
  mlir::PassManager manager(&context);
  manager.addPass(mlir::shardq::createShardQTokens());
  if (argc > 2 && mlir::failed(mlir::parsePassPipeline(argv[2], manager)))
    return 1;
  if (!module || mlir::failed(manager.run(*module)))
    return 1;
  module->print(llvm::outs());
  llvm::outs() << '\n';
  return 0;
}
