//===- Exchanges.cpp - What travels between ranks, launch by launch -------===//
//
// Straight into peers' memory, or carried by NCCL: host code has both, and asks
// which of them a channel is for.
//
//===----------------------------------------------------------------------===//

#include "../Utils/Operands.h"
#include "FunctionLowering.h"
#include "Overlap.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/IR/CarrierOps.h"
#include "shardq/IR/OperandNames.h"

using namespace mlir;
using namespace mlir::shardq;

int64_t mlir::shardq::getGroupRanks(PushOp op) {
  return lookupMeshAxis(op, op.getMeshAttr(), op.getAxis()).axis.getSize();
}

/// The wait that directly follows a signal: an exchange that nothing overlaps.
static WaitOp getWaitBehind(SignalOp signal) {
  auto wait = dyn_cast_or_null<WaitOp>(signal->getNextNode());
  bool belongs = wait && wait.getChannel() == signal.getChannel() &&
                 wait.getExchange() == signal.getExchange() &&
                 wait.getDirection() == signal.getDirection() &&
                 wait.getMeshAttr() == signal.getMeshAttr() &&
                 wait.getAxis() == signal.getAxis() &&
                 wait.getOffsets() == signal.getOffsets() &&
                 wait.getRows() == signal.getRows();
  return belongs ? wait : WaitOp();
}

Value FunctionLowering::isCarried(int32_t channel) {
  Value &answer = carried[channel];
  if (!answer) {
    OpBuilder b(context);
    b.setInsertionPointAfterValue(device);
    answer = IsCarriedOp::create(b, function.getLoc(), b.getI1Type(),
                                 b.getI32IntegerAttr(channel));
  }
  return answer;
}

/// A host branch in front of `before`; launches go in front of the ends of its
/// sides.
scf::IfOp FunctionLowering::whereCarried(Operation *before, int32_t channel,
                                         bool hasElse) {
  OpBuilder b(before);
  return scf::IfOp::create(b, before->getLoc(), isCarried(channel), hasElse);
}

/// Rows that one rank sends another at most. The rows of a rank's own tokens
/// have no bound of their own on the way back, but they are those that came.
int64_t FunctionLowering::getCarriedRows(PushOp op) {
  int64_t rows = op.getCapacity();
  // The inbox holds the rows of all.
  if (op.getDirection() == Direction::ScatterHeads ||
      op.getDirection() == Direction::ScatterRows ||
      op.getDirection() == Direction::GatherRows)
    return rows / getGroupRanks(op);
  function.walk([&](PushOp other) {
    if (other.getDirection() == Direction::HeadsToTokens &&
        other.getOffsets() == op.getOffsets() &&
        other.getMeshAttr() == op.getMeshAttr() &&
        other.getAxisAttr() == op.getAxisAttr())
      rows = std::min<int64_t>(rows, other.getCapacity());
  });
  return rows;
}

/// Rows that the step wants of an inbox: the buffer itself has no more than
/// what was planned.
Value FunctionLowering::getInboxRows(PushOp op) {
  Value inbox = op.getInbox();
  while (Operation *view = inbox.getDefiningOp()) {
    if (!isa<memref::CastOp, memref::MemorySpaceCastOp>(view))
      break;
    inbox = view->getOperand(0);
  }
  auto workspace = inbox.getDefiningOp<WorkspaceOp>();
  if (workspace && cast<MemRefType>(workspace.getType()).isDynamicDim(0))
    return workspace.getSizes().front();
  OpBuilder b(op);
  return memref::DimOp::create(b, op.getLoc(), inbox, 0);
}

/// Rows of a list of blocks, of which the device knows how many there are.
Value FunctionLowering::getPushedRows(PushOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Value most = arith::ConstantIndexOp::create(
      b, loc, op.getCapacity() / getGroupRanks(op));
  Value blocks = values.getDimBound(b, loc, op.getBlocks(), 0);
  if (!blocks)
    return most;
  Value rows = arith::MulIOp::create(
      b, loc, blocks,
      arith::ConstantIndexOp::create(b, loc, *op.getBlockSize()));
  return arith::MinSIOp::create(b, loc, rows, most);
}

/// Whether the push and its signal run aside, until their wait is reached. One
/// at a time: another that begins meanwhile runs in line.
bool FunctionLowering::beginAside(PushOp op, ArrayRef<Value> operands,
                                  Value predicate) {
  if (!overlap || aside.wait)
    return false;
  SmallVector<Value> needed(operands);
  if (predicate)
    needed.push_back(predicate);
  aside.wait = findWaitBeside(op, needed, values);
  return static_cast<bool>(aside.wait);
}

/// The launches of the push and of its signal, `branch`, in front of the
/// signal.
void FunctionLowering::putAside(SignalOp op, scf::IfOp branch) {
  OpBuilder b(op);
  auto region = AsideOp::create(b, op.getLoc(), op.getChannelAttr());
  Block &body = region.getBody().emplaceBlock();
  for (scf::IfOp launches : {aside.push, branch})
    launches->moveBefore(&body, body.end());
  aside.push = {};
}

void FunctionLowering::lowerPush(PushOp op, ArrayRef<Value> operands,
                                 Value rows, Value predicate) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  int64_t ranks = getGroupRanks(op);
  Carriage carriage;
  carriage.push = op;
  carriage.operands.assign(operands.begin(), operands.end());
  carriage.blockRows = rows;
  carriage.rows = getCarriedRows(op);
  // A row of it holds the heads that travel from one rank to another.
  auto inbox = cast<MemRefType>(op.getInbox().getType());
  SmallVector<int64_t> shape(inbox.getShape());
  shape[0] = ShapedType::kDynamic;
  if (op.getDirection() == Direction::HeadsToTokens)
    shape[1] /= ranks;
  else if (op.getDirection() == Direction::GatherHeads)
    shape[1] = cast<MemRefType>(op.getSources()[0].getType()).getDimSize(1);
  auto type = MemRefType::get(shape, inbox.getElementType());
  Value size = arith::SelectOp::create(
      b, loc, isCarried(op.getChannel()),
      arith::ConstantIndexOp::create(b, loc, ranks * carriage.rows),
      arith::ConstantIndexOp::create(b, loc, 0));
  carriage.outbox = memref::AllocOp::create(b, loc, type, size);
  carriage.landing = memref::AllocOp::create(b, loc, type, size);

  KernelShape kernel = getExchangeShape(op);
  bool isAside = beginAside(op, operands, predicate);
  scf::IfOp branch = whereCarried(op, op.getChannel(), /*hasElse=*/true);
  SmallVector<Value> packed(operands);
  packed.push_back(carriage.outbox);
  launch(branch.thenBlock()->getTerminator(), getKernelName(op) + "_pack",
         kernel, rows, packed, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitCarriedKernel(k, op, {carriage.rows, /*isLanding=*/false}, args);
         });
  if (isAside) {
    aside.push = branch;
    kernel = getAsideShape(op);
  }
  launch(branch.elseBlock()->getTerminator(), getKernelName(op), kernel, rows,
         operands, predicate, [&](KernelBuilder &k, ValueRange args) {
           emitExchangeKernel(k, op, args);
         });
  carriages[{op.getExchange(), op.getChannel()}] = std::move(carriage);
}

/// Tells the peers what comes and moves it.
void FunctionLowering::announce(Operation *at, SignalOp op,
                                ArrayRef<Value> operands, Value rows,
                                Value predicate) {
  launch(at, "shardq_announce", getExchangeShape(op), rows, operands, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitAnnounceKernel(k, op, args);
         });
  OpBuilder b(at);
  Location loc = op.getLoc();
  Carriage carriage = carriages.lookup({op.getExchange(), op.getChannel()});
  if (!carriage.push ||
      !carriage.push->getBlock()->findAncestorOpInBlock(*at)) {
    // Nothing was pushed.
    auto type = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
    Value none = arith::ConstantIndexOp::create(b, loc, 0);
    carriage.outbox = memref::AllocOp::create(b, loc, type, none);
    carriage.landing = carriage.outbox;
    carriage.rows = 0;
  }
  TransferOp::create(b, loc, carriage.outbox, carriage.landing,
                     op.getMeshAttr(), op.getAxisAttr(), op.getChannelAttr(),
                     op.getExchangeAttr(), b.getI64IntegerAttr(carriage.rows));
}

void FunctionLowering::unpack(Operation *at, const Carriage &carriage,
                              Value predicate) {
  PushOp push = carriage.push;
  SmallVector<Value> operands(carriage.operands);
  operands.push_back(carriage.landing);
  launch(at, getKernelName(push) + "_unpack", getExchangeShape(push),
         carriage.blockRows, operands, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitCarriedKernel(k, push, {carriage.rows, /*isLanding=*/true},
                             args);
         });
}

/// What the wait's exchange has pushed; null if nothing. Its operands are used
/// once more.
LogicalResult FunctionLowering::findCarriage(WaitOp wait, Carriage *&carriage) {
  carriage = nullptr;
  auto found = carriages.find({wait.getExchange(), wait.getChannel()});
  if (found == carriages.end())
    return success();
  PushOp push = found->second.push;
  if (!push->getBlock()->findAncestorOpInBlock(*wait)) {
    InFlightDiagnostic error =
        wait.emitOpError("stands where the operands of its push are not "
                         "known: exchange ")
        << wait.getExchange() << " on channel " << wait.getChannel();
    error.attachNote(push.getLoc()) << "the push is here";
    return error;
  }
  for (auto [position, value] : llvm::enumerate(found->second.operands))
    if (memref::LoadOp load = values.findStale(value)) {
      InFlightDiagnostic error = wait.emitOpError(
          "belongs to a push of values from memory that has been written "
          "since: ");
      error << (position < push->getNumOperands()
                    ? getOperandName(push, position)
                    : "rows of 'inbox'");
      error.attachNote(load.getLoc()) << "it was loaded here";
      return error;
    }
  carriage = &found->second;
  return success();
}

void FunctionLowering::lowerSignal(SignalOp op, ArrayRef<Value> operands,
                                   Value rows, Value predicate) {
  scf::IfOp branch = whereCarried(op, op.getChannel(), /*hasElse=*/true);
  announce(branch.thenBlock()->getTerminator(), op, operands, rows, predicate);
  launch(branch.elseBlock()->getTerminator(), getKernelName(op),
         getExchangeShape(op), rows, operands, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitExchangeKernel(k, op, args);
         });
  values.noteSignal(op.getChannel());
  // Nothing is launched between a push aside and its signal.
  if (aside.push)
    putAside(op, branch);
}

LogicalResult FunctionLowering::lowerWait(WaitOp op, ArrayRef<Value> operands,
                                          Value rows, Value predicate) {
  Carriage *carriage;
  if (failed(findCarriage(op, carriage)))
    return failure();
  if (op == aside.wait) {
    OpBuilder b(op);
    JoinAsideOp::create(b, op.getLoc());
    aside = {};
  }
  launch(op, getKernelName(op), getExchangeShape(op), rows, operands, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitExchangeKernel(k, op, args);
         });
  if (carriage) {
    scf::IfOp branch = whereCarried(op, op.getChannel(), /*hasElse=*/false);
    unpack(branch.thenBlock()->getTerminator(), *carriage, predicate);
  }
  return success();
}

LogicalResult FunctionLowering::lowerExchange(Operation *op, Value predicate) {
  // Where this rank stands is known on the host.
  auto mesh = op->getAttrOfType<FlatSymbolRefAttr>("mesh");
  auto axis = op->getAttrOfType<StringAttr>("axis");
  Location loc = op->getLoc();
  OpBuilder b(op);
  SmallVector<Value> operands(op->getOperands());
  operands.push_back(
      RankOp::create(b, loc, b.getIndexType(), mesh, StringAttr()));
  operands.push_back(RankOp::create(b, loc, b.getIndexType(), mesh, axis));
  operands.push_back(device);
  if (auto push = dyn_cast<PushOp>(op);
      push && push.getDirection() == Direction::GatherRows)
    operands.push_back(getInboxRows(push));
  FailureOr<Value> rows = getRows(op);
  if (failed(rows))
    return failure();
  lowered.push_back(op);
  if (auto push = dyn_cast<PushOp>(op)) {
    lowerPush(push, operands, *rows, predicate);
    return success();
  }
  if (auto wait = dyn_cast<WaitOp>(op))
    return lowerWait(wait, operands, *rows, predicate);
  auto signal = cast<SignalOp>(op);
  WaitOp wait = getWaitBehind(signal);
  if (!wait) {
    lowerSignal(signal, operands, *rows, predicate);
    return success();
  }
  // Straight into peers' memory, both are one kernel.
  Carriage *carriage;
  if (failed(findCarriage(wait, carriage)))
    return failure();
  scf::IfOp branch = whereCarried(op, signal.getChannel(), /*hasElse=*/true);
  Operation *then = branch.thenBlock()->getTerminator();
  announce(then, signal, operands, *rows, predicate);
  KernelShape shape = getExchangeShape(op);
  shape.looksAhead = !predicate && llvm::none_of(operands, [&](Value value) {
    return values.isDevice(value);
  });
  launch(branch.elseBlock()->getTerminator(), getKernelName(op) + "_wait",
         shape, *rows, operands, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitFlagsKernel(k, signal, args, startEarly && shape.looksAhead);
         });
  values.noteSignal(signal.getChannel());
  launch(then, getKernelName(wait), getExchangeShape(wait), *rows, operands,
         predicate, [&](KernelBuilder &k, ValueRange args) {
           emitExchangeKernel(k, wait, args);
         });
  if (carriage)
    unpack(then, *carriage, predicate);
  launched.insert(wait);
  lowered.push_back(wait);
  return success();
}
