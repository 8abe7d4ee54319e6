// A graph compiler of ten lines: parses a module and shards its query tokens.
#include "mlir/InitAllDialects.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "shardq/Pipelines/Register.h"
#include "shardq/Transforms/Passes.h"

int main(int, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::shardq::registerAll(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(argv[1], &context);
  mlir::PassManager manager(&context);
  manager.addPass(mlir::shardq::createShardQTokens());
  if (!module || mlir::failed(manager.run(*module)))
    return 1;
  module->print(llvm::outs());
  return 0;
}
