//===- CarrierOps.cpp - Host code of targets ------------------------------===//

#include "shardq/IR/CarrierOps.h"
#include "OpHelpers.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

LogicalResult IsCarriedOp::verify() {
  return verifyNotNegative(*this, "channel", int32_t(getChannel()));
}

LogicalResult TransferOp::verify() {
  for (auto [name, number] :
       {std::pair("channel", int64_t(int32_t(getChannel()))),
        std::pair("exchange", int64_t(int32_t(getExchange()))),
        std::pair("rows", int64_t(getRows()))})
    if (failed(verifyNotNegative(*this, name, number)))
      return failure();
  auto type = cast<MemRefType>(getOutbox().getType());
  bool isPlain =
      type.getRank() >= 1 && type.getLayout().isIdentity() &&
      type.getElementType().isIntOrFloat() &&
      type.getElementTypeBitWidth() % 8 == 0 &&
      llvm::none_of(type.getShape().drop_front(), ShapedType::isDynamic);
  if (!isPlain)
    return emitOpError("'outbox' is ")
           << type
           << ", expected the identity layout, static sizes behind dimension "
              "0, and elements of whole bytes";
  return success();
}

LogicalResult TransferOp::verifySymbolUses(SymbolTableCollection &) {
  if (!lookupMeshAxis(*this, getMeshAttr(), getAxis()))
    return emitOpError() << getMeshAttr() << " does not name a shardq.mesh "
                         << "with an axis " << getAxisAttr();
  return success();
}

int64_t TransferOp::getRowBytes() {
  auto type = cast<MemRefType>(getOutbox().getType());
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  for (int64_t size : type.getShape().drop_front())
    bytes *= size;
  return bytes;
}

namespace {
/// What calls return: nothing of the program reads it.
struct FailureResource : SideEffects::Resource::Base<FailureResource> {
  StringRef getName() override { return "shardq.failure"; }
};
} // namespace

void ExpectOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  effects.emplace_back(MemoryEffects::Write::get(), FailureResource::get());
}

void TransferOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getOutboxMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getLandingMutable());
  effects.emplace_back(MemoryEffects::Write::get(), PeerMemoryResource::get());
}

/// The nearest op of either kind on that side in the block; null if none.
template <typename NextFn>
static Operation *findOtherEnd(Operation *op, NextFn next) {
  do
    op = next(op);
  while (op && !isa<AsideOp, JoinAsideOp>(op));
  return op;
}

Operation *AsideOp::getJoin() {
  return findOtherEnd(*this, [](Operation *op) { return op->getNextNode(); });
}

LogicalResult AsideOp::verify() {
  if (failed(verifyNotNegative(*this, "channel", int32_t(getChannel()))))
    return failure();
  if (auto outer = (*this)->getParentOfType<AsideOp>()) {
    InFlightDiagnostic diag = emitOpError("stands in another");
    diag.attachNote(outer.getLoc()) << "that one is here";
    return diag;
  }
  Operation *end = getJoin();
  if (!isa_and_present<JoinAsideOp>(end))
    return emitOpError("expects '")
           << JoinAsideOp::getOperationName() << "' behind it in its block"
           << (end ? ", before the next '" : "")
           << (end ? getOperationName() : "") << (end ? "'" : "");
  for (Operation *op = getOperation()->getNextNode(); op != end;
       op = op->getNextNode()) {
    WalkResult result = op->walk([&](AsideOp other) {
      InFlightDiagnostic diag = emitOpError("is not joined before another");
      diag.attachNote(other.getLoc()) << "the other is here";
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return failure();
  }
  return success();
}

LogicalResult JoinAsideOp::verify() {
  Operation *begin =
      findOtherEnd(*this, [](Operation *op) { return op->getPrevNode(); });
  if (isa_and_present<AsideOp>(begin))
    return success();
  return emitOpError("expects '")
         << AsideOp::getOperationName() << "' before it in its block, and no "
         << "other '" << getOperationName() << "' between";
}

#define GET_OP_CLASSES
#include "shardq/IR/ShardQCarrierOps.cpp.inc"
