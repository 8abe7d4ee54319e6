//===- FreeBuffers.cpp - Gives buffers back after their last use ----------===//
//
// Launches run in program order on one stream, so a buffer may serve again as
// soon as its last launch is enqueued, or joined where that runs aside.
// Upstream's ownership-based deallocation would carry flags for the branches
// that are laid flat here.
//
//===----------------------------------------------------------------------===//

#include "FreeBuffers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "shardq/IR/CarrierOps.h"

using namespace mlir;
using namespace mlir::shardq;

/// The last op of the buffer's block that uses it, views of it included; null
/// where it leaves the block.
static Operation *getLastUse(OpResult buffer) {
  Operation *last = buffer.getOwner();
  Block *block = last->getBlock();
  SmallVector<Value> views{buffer};
  while (!views.empty()) {
    for (Operation *user : views.pop_back_val().getUsers()) {
      if (user->hasTrait<OpTrait::IsTerminator>()) {
        if (user->getBlock() == block)
          return nullptr;
        llvm::append_range(views, user->getParentOp()->getResults());
      }
      // A loop without turns gives back what it got.
      if (auto loop = dyn_cast<LoopLikeOpInterface>(user)) {
        llvm::append_range(views, loop.getRegionIterArgs());
        llvm::append_range(views, user->getResults());
      }
      Operation *ancestor = block->findAncestorOpInBlock(*user);
      if (auto aside = dyn_cast<AsideOp>(ancestor))
        ancestor = aside.getJoin();
      if (last->isBeforeInBlock(ancestor))
        last = ancestor;
      if (isa<ViewLikeOpInterface, arith::SelectOp, memref::CastOp>(user))
        llvm::append_range(views, user->getResults());
    }
  }
  return last;
}

/// Whether what a side of a branch yields is a buffer that it has made, and
/// yields once.
static bool isOwnYield(Block &side, unsigned number) {
  auto yield = cast<scf::YieldOp>(side.getTerminator());
  auto getMaker = [](Value value) {
    while (auto cast = value.getDefiningOp<memref::CastOp>())
      value = cast.getSource();
    return value.getDefiningOp<memref::AllocOp>();
  };
  memref::AllocOp alloc = getMaker(yield.getOperand(number));
  return alloc && alloc->getBlock() == &side &&
         llvm::count_if(yield.getOperands(), [&](Value value) {
           return getMaker(value) == alloc;
         }) == 1;
}

/// Whether the branch hands on a new buffer, whichever side it takes.
static bool isNewBuffer(OpResult result) {
  auto branch = dyn_cast<scf::IfOp>(result.getOwner());
  if (!branch || !isa<MemRefType>(result.getType()))
    return false;
  unsigned number = result.getResultNumber();
  return isOwnYield(*branch.thenBlock(), number) &&
         isOwnYield(*branch.elseBlock(), number);
}

void mlir::shardq::freeBuffers(Operation *root) {
  root->walk([](Operation *op) {
    for (OpResult buffer : op->getResults()) {
      if (!isa<memref::AllocOp>(op) && !isNewBuffer(buffer))
        continue;
      Operation *last = getLastUse(buffer);
      if (!last)
        continue;
      OpBuilder b(op->getContext());
      b.setInsertionPointAfter(last);
      memref::DeallocOp::create(b, op->getLoc(), buffer);
    }
  });
}
