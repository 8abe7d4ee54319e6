//===- Origins.cpp - Where values are handed on from ----------------------===//

#include "shardq/IR/Origins.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/Support/Threading.h"

using namespace mlir;

/// Whether the op has the operands and regions of its kind: a loop hands on
/// values of ops that stand behind the one that asks, which nothing has
/// verified yet.
static bool isWellFormed(Operation *op) {
  // The verifier says what is wrong when it comes to them. Other functions may
  // be verified meanwhile.
  uint64_t thread = llvm::get_threadid();
  ScopedDiagnosticHandler later(op->getContext(), [&](Diagnostic &) {
    return success(llvm::get_threadid() == thread);
  });
  return succeeded(op->getName().verifyInvariants(op));
}

/// From the ops that branch to where `value` begins, by the places in which
/// they hand it on.
static void getRegionOrigins(RegionBranchOpInterface op, Value value,
                             SmallVectorImpl<Value> &origins) {
  // Its arguments are verified with its body.
  if (isa<scf::ForOp>(op) && op->getRegion(0).getNumArguments() == 0)
    return;
  SmallVector<RegionBranchPoint> points{RegionBranchPoint::parent()};
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (!block.empty())
        if (auto end =
                dyn_cast<RegionBranchTerminatorOpInterface>(block.back());
            end && isWellFormed(end))
          points.push_back(end);
  for (RegionBranchPoint point : points) {
    SmallVector<RegionSuccessor> successors;
    op.getSuccessorRegions(point, successors);
    for (RegionSuccessor successor : successors) {
      ValueRange inputs = successor.getSuccessorInputs();
      size_t index = llvm::find(inputs, value) - inputs.begin();
      if (index == inputs.size())
        continue;
      auto end = cast_if_present<RegionBranchTerminatorOpInterface>(
          point.getTerminatorPredecessorOrNull());
      OperandRange handedOn = end ? end.getSuccessorOperands(successor)
                                  : op.getEntrySuccessorOperands(successor);
      if (index < handedOn.size())
        origins.push_back(handedOn[index]);
    }
  }
}

/// From the branches of a control flow graph.
static void getBlockOrigins(BlockArgument argument,
                            SmallVectorImpl<Value> &origins) {
  Block *block = argument.getOwner();
  for (auto it = block->pred_begin(), end = block->pred_end(); it != end;
       ++it) {
    auto branch = dyn_cast<BranchOpInterface>((*it)->back());
    if (!branch || !isWellFormed(branch))
      continue;
    SuccessorOperands operands =
        branch.getSuccessorOperands(it.getSuccessorIndex());
    if (argument.getArgNumber() < operands.size())
      if (Value value = operands[argument.getArgNumber()])
        origins.push_back(value);
  }
}

/// Turns of a loop in parallel write into an argument, which they have from the
/// op, and from which the result is.
static void getParallelOrigins(scf::ForallOp loop, unsigned index,
                               bool isResult, SmallVectorImpl<Value> &origins) {
  unsigned position = loop.getRank() + index;
  if (index >= loop.getOutputs().size() ||
      position >= loop.getRegion().getNumArguments())
    return;
  origins.push_back(loop.getOutputs()[index]);
  if (!isResult)
    return;
  for (Operation *user : loop.getRegion().getArgument(position).getUsers())
    if (auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(user);
        insert && isWellFormed(insert))
      origins.push_back(insert.getSource());
}

/// From what the op that the block stands in hands on to it, or another block.
static void getArgumentOrigins(BlockArgument argument,
                               SmallVectorImpl<Value> &origins) {
  if (!argument.getOwner()->isEntryBlock())
    return getBlockOrigins(argument, origins);
  Operation *parent = argument.getOwner()->getParentOp();
  if (auto loop = dyn_cast_if_present<scf::ForallOp>(parent)) {
    unsigned rank = loop.getRank();
    if (argument.getArgNumber() >= rank)
      getParallelOrigins(loop, argument.getArgNumber() - rank,
                         /*isResult=*/false, origins);
  } else if (auto branch =
                 dyn_cast_if_present<RegionBranchOpInterface>(parent)) {
    getRegionOrigins(branch, argument, origins);
  }
}

void mlir::shardq::getOrigins(Value value, SmallVectorImpl<Value> &origins) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return getArgumentOrigins(argument, origins);
  Operation *op = value.getDefiningOp();
  bool handsOn = isa<RegionBranchOpInterface, SelectLikeOpInterface>(op) ||
                 isa_and_present<tensor::TensorDialect>(op->getDialect());
  if (!handsOn || !isWellFormed(op))
    return;
  if (auto loop = dyn_cast<scf::ForallOp>(op))
    getParallelOrigins(loop, cast<OpResult>(value).getResultNumber(),
                       /*isResult=*/true, origins);
  else if (auto branch = dyn_cast<RegionBranchOpInterface>(op))
    getRegionOrigins(branch, value, origins);
  else if (auto select = dyn_cast<SelectLikeOpInterface>(op))
    llvm::append_values(origins, select.getTrueValue(), select.getFalseValue());
  else if (isa<tensor::ExtractSliceOp, tensor::CollapseShapeOp,
               tensor::ExpandShapeOp, tensor::ReshapeOp, tensor::PadOp>(op))
    origins.push_back(op->getOperand(0));
  else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    llvm::append_values(origins, insert.getSource(), insert.getDest());
  else if (isa<tensor::ConcatOp>(op))
    llvm::append_range(origins, op->getOperands());
}
