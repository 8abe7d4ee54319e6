//===- VerifyExchanges.cpp - Same exchanges on every rank -----------------===//

#include "shardq/Analysis/RankDependence.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQVERIFYEXCHANGES
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

LogicalResult mlir::shardq::verifySameExchangesOnAllRanks(ModuleOp module) {
  SymbolTableCollection symbols;
  llvm::DenseSet<Operation *> collective =
      findCollectiveFunctions(module, symbols);
  if (collective.empty())
    return success();
  RankDependence dependence(module);
  WalkResult result = module.walk([&](Operation *op) {
    if (!isCollective(op) && !mayCall(op, collective, symbols))
      return WalkResult::advance();
    Operation *divergent = dependence.getDivergentParent(op);
    if (!divergent)
      return WalkResult::advance();
    InFlightDiagnostic diag =
        op->emitOpError("runs under control flow that depends on the rank: "
                        "ranks that skip it leave the others waiting");
    diag.attachNote(divergent->getLoc())
        << "'" << divergent->getName() << "' here decides by rank";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct ShardQVerifyExchangesPass
    : public shardq::impl::ShardQVerifyExchangesBase<
          ShardQVerifyExchangesPass> {
  void runOnOperation() override {
    if (failed(verifySameExchangesOnAllRanks(getOperation())))
      signalPassFailure();
  }
};
} // namespace
