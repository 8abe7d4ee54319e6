//===- RankDependence.cpp - Which values differ between ranks -------------===//

#include "shardq/Analysis/RankDependence.h"
#include "shardq/IR/ShardQ.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace mlir::shardq;

bool mlir::shardq::isCollective(Operation *op) {
  return isa<ExchangeOp, PushOp, SignalOp, WaitOp>(op);
}

static FunctionOpInterface resolve(CallOpInterface call,
                                   SymbolTableCollection &symbols) {
  return dyn_cast_if_present<FunctionOpInterface>(
      call.resolveCallableInTable(&symbols));
}

llvm::DenseSet<Operation *>
mlir::shardq::findCollectiveFunctions(ModuleOp module,
                                      SymbolTableCollection &symbols) {
  llvm::DenseSet<Operation *> found;
  bool changed = true;
  while (changed) {
    changed = false;
    module.walk([&](FunctionOpInterface function) {
      if (found.contains(function))
        return;
      bool reaches = function
                         .walk([&](Operation *op) {
                           auto call = dyn_cast<CallOpInterface>(op);
                           bool hit =
                               isCollective(op) ||
                               (call && found.contains(resolve(call, symbols)));
                           return hit ? WalkResult::interrupt()
                                      : WalkResult::advance();
                         })
                         .wasInterrupted();
      if (reaches)
        changed |= found.insert(function).second;
    });
  }
  return found;
}

RankDependence::RankDependence(ModuleOp module) {
  module.walk([&](FunctionOpInterface function) {
    if (function.isExternal())
      return;
    for (BlockArgument argument : function.getArguments())
      if (function.getArgAttr(argument.getArgNumber(), kSplitAttrName))
        join(argument, {true, false});
  });
  bool changed = true;
  while (changed) {
    changed = false;
    module.walk([&](Operation *op) { changed |= visit(op); });
  }
}

bool RankDependence::join(Value value, Bits add) {
  Bits &have = bits[value];
  bool changed =
      (add.contents && !have.contents) || (add.shape && !have.shape);
  have.contents |= add.contents;
  have.shape |= add.shape;
  return changed;
}

bool RankDependence::visit(Operation *op) {
  if (isa<FunctionOpInterface, ModuleOp>(op))
    return false;
  bool changed = false;
  if (isa<tensor::DimOp, memref::DimOp>(op)) {
    Bits source = get(op->getOperand(0));
    return join(op->getResult(0),
                {source.shape || get(op->getOperand(1)).contents, false});
  }
  if (isa<CallOpInterface>(op))
    return visitCall(op);

  // What the op computes from: numbers, shapes, and (for ops of a divergent
  // region) whether it runs at all.
  Bits from;
  for (Value operand : op->getOperands()) {
    Bits operandBits = get(operand);
    from.contents |= operandBits.contents;
    from.shape |= operandBits.shape;
    // A size, an offset or an index.
    if (operand.getType().isIndex() && operandBits.contents)
      from.shape = true;
  }
  if (isa<RankOp, LocalRowsOp, PeerViewOp>(op))
    from.contents = true;
  if (isa<LocalRowsOp>(op))
    from.shape = true;
  if (auto exchange = dyn_cast<ExchangeOp>(op)) {
    from.contents = true;
    from.shape = exchange.getDirection() == Direction::HeadsToTokens;
  }
  if (isa<WorkspaceOp>(op))
    from.contents = true;
  if (op->getNumRegions() != 0)
    return visitRegions(op);

  for (Value result : op->getResults())
    changed |= join(result, isa<ShapedType>(result.getType())
                                ? from
                                : Bits{from.any(), false});
  // Buffers take what is written to them, and views give it to what they view.
  if (auto memory = dyn_cast<MemoryEffectOpInterface>(op); memory && from.any())
    for (Value operand : op->getOperands())
      if (isa<MemRefType>(operand.getType()) &&
          memory.getEffectOnValue<MemoryEffects::Write>(operand))
        changed |= join(operand, {true, false});
  if (auto view = dyn_cast<ViewLikeOpInterface>(op))
    changed |= join(view.getViewSource(),
                    {get(op->getResult(0)).contents, false});
  return changed;
}

/// Results and block arguments take what the region's terminators yield, by
/// position where the counts agree and all of it otherwise.
bool RankDependence::visitRegions(Operation *op) {
  bool changed = false;
  bool divergent = isDivergent(op);
  Bits inits;
  for (Value operand : op->getOperands()) {
    inits.contents |= get(operand).contents;
    inits.shape |= get(operand).shape;
  }
  for (Region &region : op->getRegions())
    for (Block &block : region) {
      auto loop = dyn_cast<LoopLikeOpInterface>(op);
      for (BlockArgument argument : block.getArguments()) {
        OpOperand *init = loop ? loop.getTiedLoopInit(argument) : nullptr;
        changed |= join(argument, init ? get(init->get()) : inits);
      }
      if (!block.mightHaveTerminator())
        continue;
      OperandRange yields = block.getTerminator()->getOperands();
      Bits all;
      for (Value yield : yields) {
        all.contents |= get(yield).contents;
        all.shape |= get(yield).shape;
      }
      bool positional = yields.size() == op->getNumResults();
      for (OpResult result : op->getResults()) {
        Bits add = positional ? get(yields[result.getResultNumber()]) : all;
        if (divergent)
          add = {true, isa<ShapedType>(result.getType())};
        changed |= join(result, add);
      }
      if (loop)
        for (BlockArgument argument : block.getArguments()) {
          OpOperand *yielded = loop.getTiedLoopYieldedValue(argument);
          if (yielded)
            changed |= join(argument, get(yielded->get()));
        }
    }
  return changed;
}

bool RankDependence::visitCall(Operation *op) {
  bool changed = false;
  FunctionOpInterface callee = resolve(cast<CallOpInterface>(op), symbols);
  if (!callee || callee.isExternal()) {
    Bits from;
    for (Value operand : op->getOperands()) {
      from.contents |= get(operand).any();
      from.shape |= get(operand).shape;
    }
    for (Value result : op->getResults())
      changed |= join(result, from);
    return changed;
  }
  for (auto [operand, argument] :
       llvm::zip(op->getOperands(), callee.getArguments())) {
    changed |= join(argument, get(operand));
    // What a callee writes to a buffer comes back.
    if (isa<MemRefType>(operand.getType()))
      changed |= join(operand, {get(argument).contents, false});
  }
  for (Block &block : callee.getFunctionBody())
    if (block.getTerminator()->hasTrait<OpTrait::ReturnLike>())
      for (auto [result, value] :
           llvm::zip(op->getResults(), block.getTerminator()->getOperands()))
        changed |= join(result, get(value));
  return changed;
}

/// Ranks may take different ways at `op`.
bool RankDependence::isDivergent(Operation *op) const {
  // Values that a loop only carries do not decide how often it runs.
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return isDependent(loop.getLowerBound()) ||
           isDependent(loop.getUpperBound()) || isDependent(loop.getStep());
  if (auto loop = dyn_cast<scf::WhileOp>(op))
    return isDependent(loop.getConditionOp().getCondition());
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    return isDependent(operand) && !isa<ShapedType>(operand.getType());
  });
}

Operation *RankDependence::getDivergentParent(Operation *op) const {
  while (!isa<FunctionOpInterface, ModuleOp>(op)) {
    // Behind a branch in the same region a block may be skipped.
    Block *own = op->getBlock();
    for (Block &block : *op->getParentRegion()) {
      if (!block.mightHaveTerminator() || own->isEntryBlock())
        continue;
      Operation *terminator = block.getTerminator();
      if (terminator->getNumSuccessors() > 1 && isDivergent(terminator))
        return terminator;
    }
    op = op->getParentOp();
    if (!op)
      return nullptr;
    if (!isa<FunctionOpInterface, ModuleOp>(op) && isDivergent(op))
      return op;
  }
  return nullptr;
}
