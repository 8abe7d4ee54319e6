//===- Placement.cpp - Where ops of a module stand ------------------------===//

#include "shardq/Analysis/Placement.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "shardq/IR/ShardQ.h"

using namespace mlir;
using namespace mlir::shardq;

static LogicalResult
forEachShardQOp(ModuleOp module,
                llvm::function_ref<LogicalResult(Operation *)> check) {
  WalkResult result = module.walk([&](Operation *op) {
    if (!isa_and_present<ShardQDialect>(op->getDialect()) ||
        isa<MeshOp, PlanOp>(op))
      return WalkResult::advance();
    return WalkResult(check(op));
  });
  return failure(result.wasInterrupted());
}

LogicalResult mlir::shardq::verifyInFunctionsOf(ModuleOp module) {
  return forEachShardQOp(module, [&](Operation *op) -> LogicalResult {
    auto function = op->getParentOfType<func::FuncOp>();
    if (function && function->getParentOp() == module)
      return success();
    InFlightDiagnostic diag = op->emitOpError(
        "stands outside the functions (func.func) of the module "
        "that the pass runs on");
    diag.attachNote(module.getLoc()) << "the pass runs on this module; run it "
                                        "on a nested module by itself";
    return diag;
  });
}

LogicalResult mlir::shardq::verifyOnStridedBuffers(ModuleOp module) {
  return forEachShardQOp(module, [&](Operation *op) -> LogicalResult {
    for (Type type : llvm::concat<const Type>(
             llvm::to_vector_of<Type>(op->getOperandTypes()),
             llvm::to_vector_of<Type>(op->getResultTypes()))) {
      if (isa<TensorType>(type))
        return op->emitOpError("is on tensors: bufferize first");
      SmallVector<int64_t> strides;
      int64_t offset;
      auto buffer = dyn_cast<MemRefType>(type);
      if (buffer && failed(buffer.getStridesAndOffset(strides, offset)))
        return op->emitOpError("has a buffer of type ")
               << type << ", expected a strided layout";
    }
    return success();
  });
}
