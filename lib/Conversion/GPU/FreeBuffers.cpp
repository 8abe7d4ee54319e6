//===- FreeBuffers.cpp - Gives buffers back after their last use ----------===//
//
// Launches run in program order on one stream, so a buffer may serve again as
// soon as its last launch is enqueued. Upstream's ownership-based deallocation
// would carry flags for the branches that are laid flat here.
//
//===----------------------------------------------------------------------===//

#include "FreeBuffers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace mlir::shardq;

/// The last op of `alloc`'s block that uses the buffer, views of it included;
/// null where it leaves the block.
static Operation *getLastUse(memref::AllocOp alloc) {
  Block *block = alloc->getBlock();
  Operation *last = alloc;
  SmallVector<Value> views{alloc};
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
      if (last->isBeforeInBlock(ancestor))
        last = ancestor;
      if (isa<ViewLikeOpInterface, arith::SelectOp, memref::CastOp>(user))
        llvm::append_range(views, user->getResults());
    }
  }
  return last;
}

void mlir::shardq::freeBuffers(Operation *root) {
  root->walk([](memref::AllocOp alloc) {
    Operation *last = getLastUse(alloc);
    if (!last)
      return;
    OpBuilder b(alloc.getContext());
    b.setInsertionPointAfter(last);
    memref::DeallocOp::create(b, alloc.getLoc(), alloc);
  });
}
