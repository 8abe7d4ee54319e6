//===- RankDependence.cpp - Which values differ between ranks -------------===//

#include "shardq/Analysis/RankDependence.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "shardq/IR/ShardQ.h"

using namespace mlir;
using namespace mlir::shardq;

bool mlir::shardq::isCollective(Operation *op) {
  return isa<CollectiveOpInterface, GatherKvStartOp, PushOp, SignalOp, WaitOp>(
      op);
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
      bool reaches =
          function
              .walk([&](Operation *op) {
                bool hit = isCollective(op) || mayCall(op, found, symbols);
                return hit ? WalkResult::interrupt() : WalkResult::advance();
              })
              .wasInterrupted();
      if (reaches)
        changed |= found.insert(function).second;
    });
  }
  return found;
}

bool mlir::shardq::mayCall(Operation *op,
                           const llvm::DenseSet<Operation *> &collective,
                           SymbolTableCollection &symbols) {
  auto call = dyn_cast<CallOpInterface>(op);
  if (!call || collective.empty())
    return false;
  if (!isa<SymbolRefAttr>(call.getCallableForCallee()))
    return true;
  return collective.contains(call.resolveCallableInTable(&symbols));
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
  auto shaped = dyn_cast<ShapedType>(value.getType());
  if (shaped && shaped.hasRank() && shaped.hasStaticShape())
    add.shape = false;
  Bits &have = bits[value];
  bool changed = (add.contents && !have.contents) || (add.shape && !have.shape);
  have.contents |= add.contents;
  have.shape |= add.shape;
  return changed;
}

/// Whether the number may decide on the shape of a result: where a slice begins
/// does not.
static bool mayBeSize(Operation *op, Value number) {
  auto slice = dyn_cast<OffsetSizeAndStrideOpInterface>(op);
  return !slice ||
         llvm::is_contained(slice.getMixedSizes(), OpFoldResult(number));
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
    if (operand.getType().isIndex() && operandBits.contents)
      from.shape |= mayBeSize(op, operand);
  }
  if (isa<RankOp, LocalRowsOp, LocalLengthsOp, FilterIndicesOp, PeerViewOp,
          GatherQueryOp, CombineLseOp, WeighPartialOp, ReduceHeadsOp,
          GatherRowsOp, GatherKvFinishOp, ChunkSplitOp, ChunkLengthsOp,
          ShardLengthsOp>(op))
    from.contents = true;
  if (auto slots = dyn_cast<TokenSlotsOp>(op); slots && slots.getMeshAttr())
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
  if (isa<BranchOpInterface>(op))
    return visitBranch(op);

  for (Value result : op->getResults())
    changed |= join(result, isa<ShapedType>(result.getType())
                                ? from
                                : Bits{from.any(), false});
  changed |= visitBuffers(op, from);
  return changed;
}

/// Buffers take what is written to them; results that are other names of a
/// buffer share what it holds, both ways.
bool RankDependence::visitBuffers(Operation *op, Bits from) {
  bool changed = false;
  auto memory = dyn_cast<MemoryEffectOpInterface>(op);
  bool known = memory != nullptr;
  // What only some ranks write differs too, whatever it is.
  bool differs = from.any() || getDivergentParent(op) != nullptr;
  for (Value operand : op->getOperands()) {
    if (!isa<MemRefType>(operand.getType()))
      continue;
    bool written =
        !known || memory.getEffectOnValue<MemoryEffects::Write>(operand);
    if (written && differs)
      changed |= join(operand, {true, false});
    for (Value result : op->getResults())
      if (isa<MemRefType>(result.getType()))
        changed |= join(operand, {get(result).contents, false});
  }
  if (auto global = dyn_cast<memref::GetGlobalOp>(op)) {
    Bits &shared = globals[global.getNameAttr()];
    shared.contents |= get(global).contents;
    changed |= join(global, shared);
  }
  return changed;
}

/// Block arguments take what branches pass, and which branch was taken.
bool RankDependence::visitBranch(Operation *op) {
  bool changed = false;
  auto branch = cast<BranchOpInterface>(op);
  bool divergent = op->getNumSuccessors() > 1 && isDivergent(op);
  for (auto [number, block] : llvm::enumerate(op->getSuccessors())) {
    SuccessorOperands passed = branch.getSuccessorOperands(number);
    for (BlockArgument argument : block->getArguments()) {
      Value value = passed[argument.getArgNumber()];
      Bits add = value ? get(value) : Bits{true, true};
      changed |= join(argument, divergent ? Bits{true, true} : add);
    }
  }
  // Behind a branch that ranks take differently, so do the values that meet.
  if (divergent)
    for (Block &block : *op->getParentRegion())
      for (BlockArgument argument : block.getArguments())
        if (!block.isEntryBlock())
          changed |= join(argument, {true, true});
  return changed;
}

/// Results and block arguments take what the region's terminators yield, by
/// position for scf.if and scf.for and all of it otherwise.
bool RankDependence::visitRegions(Operation *op) {
  bool changed = false;
  bool divergent = isDivergent(op);
  auto add = [&](Bits &to, Value value) {
    to.contents |= get(value).contents;
    to.shape |= get(value).shape;
  };
  bool positional = isa<scf::IfOp, scf::ForOp>(op);
  Bits all;
  for (Value operand : op->getOperands())
    add(all, operand);
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (block.mightHaveTerminator())
        for (Value operand : block.getTerminator()->getOperands())
          add(all, operand);

  for (Region &region : op->getRegions())
    for (Block &block : region) {
      for (BlockArgument argument : block.getArguments())
        if (!positional)
          changed |= join(argument, all);
      if (!positional || !block.mightHaveTerminator())
        continue;
      OperandRange yields = block.getTerminator()->getOperands();
      for (auto [result, yield] : llvm::zip(op->getResults(), yields))
        changed |= join(result, get(yield));
    }
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    OperandRange yields = loop.getBody()->getTerminator()->getOperands();
    for (auto [init, argument, yield] :
         llvm::zip(loop.getInitArgs(), loop.getRegionIterArgs(), yields)) {
      changed |= join(argument, get(init));
      changed |= join(argument, get(yield));
    }
    for (auto [init, result] : llvm::zip(loop.getInitArgs(), loop.getResults()))
      changed |= join(result, get(init));
    changed |= join(loop.getInductionVar(), {divergent, false});
  }
  for (Value result : op->getResults()) {
    if (!positional)
      changed |= join(result, all);
    if (divergent)
      changed |= join(result, {true, isa<ShapedType>(result.getType())});
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
    changed |= visitBuffers(op, from);
    return changed;
  }
  // A call that only some ranks make leaves buffers that differ.
  bool isSkippedBySome = getDivergentParent(op) != nullptr;
  for (auto [operand, argument] :
       llvm::zip(op->getOperands(), callee.getArguments())) {
    changed |= join(argument, get(operand));
    // What a callee writes to a buffer comes back.
    if (isa<MemRefType>(operand.getType()))
      changed |=
          join(operand, {get(argument).contents || isSkippedBySome, false});
  }
  bool divergent = hasDivergentBranch(callee.getFunctionBody());
  for (Block &block : callee.getFunctionBody())
    if (block.getTerminator()->hasTrait<OpTrait::ReturnLike>())
      for (auto [result, value] :
           llvm::zip(op->getResults(), block.getTerminator()->getOperands()))
        changed |= join(result, divergent ? Bits{true, true} : get(value));
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
  if (auto branch = dyn_cast<BranchOpInterface>(op)) {
    // Operands that are passed on decide nothing.
    unsigned passed = 0;
    for (unsigned i = 0; i < op->getNumSuccessors(); ++i)
      passed += branch.getSuccessorOperands(i).getForwardedOperands().size();
    return llvm::any_of(op->getOperands().drop_back(passed),
                        [&](Value value) { return isDependent(value); });
  }
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    return isDependent(operand) && !isa<ShapedType>(operand.getType());
  });
}

bool RankDependence::hasDivergentBranch(Region &region) const {
  return llvm::any_of(region, [&](Block &block) {
    return block.mightHaveTerminator() &&
           block.getTerminator()->getNumSuccessors() > 1 &&
           isDivergent(block.getTerminator());
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
