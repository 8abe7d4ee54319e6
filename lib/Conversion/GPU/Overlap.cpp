//===- Overlap.cpp - What a gather may run beside -------------------------===//
//
// Kernels aside run at any time up to the wait. So nothing in between may write
// what they read. An inbox is no such memory at all: exchanges in between tell
// peers that it has been read, and they write the next rows there.
//
//===----------------------------------------------------------------------===//

#include "Overlap.h"
#include "mlir/Analysis/AliasAnalysis.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "shardq/IR/CarrierOps.h"

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// The ops behind a push, up to its wait.
class Between {
public:
  Between(PushOp push, const llvm::SmallPtrSetImpl<Value> &read)
      : push(push), read(read), aliases(push->getParentOp()) {}

  SignalOp findSignal();
  WaitOp findWait(SignalOp signal);

private:
  template <typename OpTy> bool isPart(OpTy op);
  bool mayRunBeside(Operation *op);
  bool mayRunBesideItself(Operation *op);
  bool isRead(Value written);
  bool mayAlias(Value a, Value b);

  PushOp push;
  const llvm::SmallPtrSetImpl<Value> &read; // what the push reads
  AliasAnalysis aliases;
};

} // namespace

/// Whether `op` is of the push's exchange.
template <typename OpTy> bool Between::isPart(OpTy op) {
  return op && op.getChannel() == push.getChannel() &&
         op.getExchange() == push.getExchange() &&
         op.getDirection() == push.getDirection() &&
         op.getMeshAttr() == push.getMeshAttr() &&
         op.getAxisAttr() == push.getAxisAttr();
}

/// Arguments of a function are buffers of their own, as bufferization assumes.
bool Between::mayAlias(Value a, Value b) {
  if (a == b)
    return true;
  if (isa<BlockArgument>(a) && isa<BlockArgument>(b) &&
      isa<FunctionOpInterface>(a.getParentBlock()->getParentOp()) &&
      a.getParentBlock() == b.getParentBlock())
    return false;
  return !aliases.alias(a, b).isNo();
}

bool Between::isRead(Value written) {
  llvm::SmallPtrSet<Value, 4> roots;
  findRoots(written, roots);
  return llvm::any_of(roots, [&](Value root) {
    return llvm::any_of(read,
                        [&](Value source) { return mayAlias(root, source); });
  });
}

/// Without the ops inside it.
bool Between::mayRunBesideItself(Operation *op) {
  if (isMemoryEffectFree(op))
    return true;
  // The epoch of the channel changes meanwhile, and its inbox fills.
  for (Value operand : op->getOperands()) {
    llvm::SmallPtrSet<Value, 4> roots;
    if (isa<BaseMemRefType>(operand.getType()))
      findRoots(operand, roots);
    for (Value root : roots)
      if (auto inbox = root.getDefiningOp<WorkspaceOp>();
          inbox && inbox.getChannel() == push.getChannel())
        return false;
  }
  // Of a rank's own memory these write inboxes only.
  if (isa<PushOp, SignalOp, WaitOp>(op))
    return op->getAttr("channel") != push.getChannelAttr();
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (!interface)
    return op->hasTrait<OpTrait::HasRecursiveMemoryEffects>();
  SmallVector<MemoryEffects::EffectInstance> effects;
  interface.getEffects(effects);
  return llvm::none_of(effects, [&](const MemoryEffects::EffectInstance &it) {
    if (!isa<MemoryEffects::Write, MemoryEffects::Free>(it.getEffect()))
      return false;
    if (Value written = it.getValue())
      return isRead(written);
    return it.getResource() == SideEffects::DefaultResource::get();
  });
}

bool Between::mayRunBeside(Operation *op) {
  return !op->walk([&](Operation *inside) {
              return mayRunBesideItself(inside) ? WalkResult::advance()
                                                : WalkResult::interrupt();
            }).wasInterrupted();
}

/// Whether kernels come of it.
static bool hasLaunches(Operation *op) {
  return op
      ->walk([](Operation *inside) {
        bool none =
            isMemoryEffectFree(inside) ||
            isa<memref::LoadOp, memref::AllocOp, RankOp, WorkspaceOp, ExpectOp>(
                inside) ||
            (inside->hasTrait<OpTrait::HasRecursiveMemoryEffects>() &&
             !isa<MemoryEffectOpInterface>(inside));
        return none ? WalkResult::advance() : WalkResult::interrupt();
      })
      .wasInterrupted();
}

/// Both are launched at once, so nothing else is in between.
SignalOp Between::findSignal() {
  for (Operation *op = push->getNextNode(); op; op = op->getNextNode()) {
    if (auto signal = dyn_cast<SignalOp>(op); isPart(signal))
      return signal;
    if (hasLaunches(op))
      break;
  }
  return {};
}

WaitOp Between::findWait(SignalOp signal) {
  bool isEmpty = true;
  for (Operation *op = signal->getNextNode(); op; op = op->getNextNode()) {
    if (auto wait = dyn_cast<WaitOp>(op); isPart(wait))
      return isEmpty ? WaitOp() : wait;
    if (!mayRunBeside(op))
      return {};
    isEmpty &= !hasLaunches(op);
  }
  return {};
}

WaitOp mlir::shardq::findWaitBeside(PushOp push, ValueRange needed,
                                    DeviceValues &values) {
  // Only of these the wait may stand further below.
  if (!push.getBlocks())
    return {};
  llvm::SmallPtrSet<Value, 8> read;
  Between between(push, read);
  SignalOp signal = between.findSignal();
  if (!signal)
    return {};
  SmallVector<Value> all(needed);
  llvm::append_range(all, signal->getOperands());
  for (Value value : all) {
    values.findLoaded(value, read);
    if (isa<BaseMemRefType>(value.getType()) && value != push.getInbox())
      findRoots(value, read);
  }
  for (Value value : read)
    if (value.getDefiningOp<WorkspaceOp>())
      return {};
  return between.findWait(signal);
}
