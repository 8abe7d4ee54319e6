//===- BufferOps.cpp - Level 3: symmetric buffers -------------------------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

//===----------------------------------------------------------------------===//
// PlanOp
//===----------------------------------------------------------------------===//

LogicalResult PlanOp::verify() {
  int64_t slots = getSlots(), slotBytes = getSlotBytes();
  if (slots < 1)
    return emitOpError("has ") << slots << " slots, expected 1 or more";
  if (failed(verifyNotNegative(*this, "slot_bytes", slotBytes)))
    return failure();
  int64_t end = 0;
  StringRef previous;
  for (auto channel : getChannels().getAsRange<ChannelAttr>()) {
    if (channel.getOffset() < end)
      return emitOpError("channel \"")
             << channel.getName() << "\" begins at " << channel.getOffset()
             << ", expected at or behind " << end << ", the end of \""
             << previous << "\"";
    int64_t bytes;
    if (llvm::MulOverflow(channel.getGenerations(), channel.getBytes(),
                          bytes) ||
        llvm::AddOverflow(channel.getOffset(), bytes, end) || end > slotBytes)
      return emitOpError("slot_bytes is ")
             << slotBytes << ", expected at least the end of channel \""
             << channel.getName() << "\": " << channel.getOffset() << " + "
             << channel.getGenerations() << " * " << channel.getBytes();
    previous = channel.getName();
  }
  return success();
}

LogicalResult PlanOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  if (!symbolTable.lookupNearestSymbolFrom<MeshOp>(*this, getMeshAttr()))
    return emitOpError() << getMeshAttr() << " does not name a shardq.mesh";
  for (Operation &other : (*this)->getParentRegion()->front()) {
    if (&other == getOperation())
      break;
    if (isa<PlanOp>(other)) {
      InFlightDiagnostic diag = emitOpError("is the second plan of the module");
      diag.attachNote(other.getLoc()) << "the first is here";
      return diag;
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// RankOp
//===----------------------------------------------------------------------===//

LogicalResult RankOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  if (getAxisAttr())
    return success(verifyAxis(*this, symbolTable, getMeshAttr(),
                              getAxisAttr()) != nullptr);
  if (symbolTable.lookupNearestSymbolFrom<MeshOp>(*this, getMeshAttr()))
    return success();
  return emitOpError() << getMeshAttr() << " does not name a shardq.mesh";
}

LogicalResult RankOp::canonicalize(RankOp op, PatternRewriter &rewriter) {
  auto mesh =
      SymbolTable::lookupNearestSymbolFrom<MeshOp>(op, op.getMeshAttr());
  AxisAttr axis;
  if (mesh && op.getAxis())
    axis = mesh.lookupAxis(*op.getAxis());
  if (!mesh || (op.getAxis() && !axis) ||
      (axis ? axis.getSize() : mesh.getNumRanks()) != 1)
    return failure();
  rewriter.replaceOpWithNewOp<arith::ConstantIndexOp>(op, 0);
  return success();
}

//===----------------------------------------------------------------------===//
// WorkspaceOp
//===----------------------------------------------------------------------===//

LogicalResult WorkspaceOp::verify() {
  auto type = cast<MemRefType>(getResult().getType());
  if (!type.getLayout().isIdentity())
    return emitOpError("result is ")
           << type << ", expected the identity layout";
  int64_t dynamic = type.getNumDynamicDims();
  if (dynamic != int64_t(getSizes().size()))
    return emitOpError("has ")
           << getSizes().size() << " sizes, expected " << dynamic
           << ", the dynamic dimensions of " << type;
  for (int64_t size : type.getShape().drop_front(type.getRank() ? 1 : 0))
    if (ShapedType::isDynamic(size))
      return emitOpError("result is ")
             << type << ", expected static sizes behind dimension 0";
  if (!type.getElementType().isIntOrFloat() ||
      type.getElementTypeBitWidth() % 8 != 0)
    return emitOpError("result is ")
           << type << ", expected numbers of whole bytes";
  return success();
}

LogicalResult
WorkspaceOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto plan = symbolTable.lookupNearestSymbolFrom<PlanOp>(*this, getPlanAttr());
  if (!plan)
    return emitOpError() << getPlanAttr() << " does not name a shardq.plan";
  if (getChannel() >= plan.getChannels().size()) {
    InFlightDiagnostic diag = emitOpError("channel is ")
                              << getChannel() << ", expected below "
                              << plan.getChannels().size();
    diag.attachNote(plan.getLoc()) << "the plan is declared here";
    return diag;
  }
  auto channel = cast<ChannelAttr>(plan.getChannels()[getChannel()]);
  auto type = cast<MemRefType>(getResult().getType());
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  bool overflow = false;
  for (int64_t size : type.getShape())
    overflow |=
        llvm::MulOverflow(bytes, ShapedType::isDynamic(size) ? 1 : size, bytes);
  if (overflow || bytes > channel.getBytes())
    return emitOpError("result is ")
           << type << ", expected at most " << channel.getBytes()
           << " bytes, those of channel \"" << channel.getName() << "\"";
  return verifySymmetric(*this, "result", type, plan.getMeshAttr());
}

void WorkspaceOp::getEffects(Effects &effects) {
  // Which generation it names depends on the exchanges before it.
  effects.emplace_back(MemoryEffects::Read::get(), PeerMemoryResource::get());
}

//===----------------------------------------------------------------------===//
// PushOp, SignalOp, WaitOp
//===----------------------------------------------------------------------===//

LogicalResult PushOp::verify() {
  if (failed(verifyExchangeShapes(*this, getDirection(), getSources(), {},
                                  "inbox", shaped(getInbox()))) ||
      failed(verifySymmetric(*this, "inbox", getInbox().getType(),
                             getMeshAttr())) ||
      failed(verifyNotNegative(*this, "capacity", getCapacity())) ||
      failed(verifyNotNegative(*this, "channel", int32_t(getChannel()))))
    return failure();
  return verifyNotNegative(*this, "exchange", int32_t(getExchange()));
}

LogicalResult PushOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return verifyExchangeHeads(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                             getDirection(), shaped(getSources().front()),
                             "inbox", shaped(getInbox()),
                             getOffsets().getType());
}

/// `push`, `signal` and `wait` stay in program order among themselves and
/// with everything that touches an inbox.
static void getProtocolEffects(Operation *op, Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), PeerMemoryResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), PeerMemoryResource::get());
  // The inbox is filled by peers between signal and wait, unseen by any
  // operand: reads and writes of all memory stay on their side.
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}

void PushOp::getEffects(Effects &effects) {
  getProtocolEffects(*this, effects);
}

#define SHARDQ_FLAG_OP(OP)                                                     \
  LogicalResult OP::verify() {                                                 \
    if (failed(verifyNotNegative(*this, "channel", int32_t(getChannel()))))    \
      return failure();                                                        \
    return verifyNotNegative(*this, "exchange", int32_t(getExchange()));       \
  }                                                                            \
  LogicalResult OP::verifySymbolUses(SymbolTableCollection &symbolTable) {     \
    return verifyOffsets(*this, symbolTable, getMeshAttr(), getAxisAttr(),     \
                         "offsets", getOffsets().getType());                   \
  }                                                                            \
  void OP::getEffects(Effects &effects) { getProtocolEffects(*this, effects); }
SHARDQ_FLAG_OP(SignalOp)
SHARDQ_FLAG_OP(WaitOp)
#undef SHARDQ_FLAG_OP

//===----------------------------------------------------------------------===//
// PeerViewOp
//===----------------------------------------------------------------------===//

LogicalResult PeerViewOp::verify() {
  auto type = cast<MemRefType>(getSource().getType());
  if (isa_and_present<SymmetricAttr>(type.getMemorySpace()))
    return success();
  return emitOpError("'source' is ")
         << type << ", expected a #shardq.symmetric memory space";
}
