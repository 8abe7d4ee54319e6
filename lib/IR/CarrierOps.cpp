//===- CarrierOps.cpp - Exchanges that NCCL carries -----------------------===//

#include "shardq/IR/CarrierOps.h"
#include "OpHelpers.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

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

void TransferOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getOutboxMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getLandingMutable());
  effects.emplace_back(MemoryEffects::Write::get(), PeerMemoryResource::get());
}

#define GET_OP_CLASSES
#include "shardq/IR/ShardQCarrierOps.cpp.inc"
