//===- ChunkOps.cpp - Level 2: chunks of requests -------------------------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

#define SHARDQ_ON_AXIS(OP)                                                     \
  LogicalResult OP::verifySymbolUses(SymbolTableCollection &symbolTable) {     \
    return success(verifyAxis(*this, symbolTable, getMeshAttr(),               \
                              getAxisAttr()) != nullptr);                      \
  }
SHARDQ_ON_AXIS(CountChunkRowsOp)
SHARDQ_ON_AXIS(ChunkSplitOp)
SHARDQ_ON_AXIS(ChunkLengthsOp)
SHARDQ_ON_AXIS(ChunkSlotsOp)
#undef SHARDQ_ON_AXIS

/// The size of the vector `type`: its own where static, as its type has it.
static OpFoldResult getSize(OpBuilder &builder, ShapedType type,
                            llvm::function_ref<OpFoldResult()> dynamic) {
  if (!type.isDynamicDim(0))
    return builder.getIndexAttr(type.getDimSize(0));
  return dynamic();
}

/// How many rows of `part` each rank has.
template <typename OpTy>
static OpFoldResult countRows(OpBuilder &builder, OpTy op, ChunkPart part) {
  return CountChunkRowsOp::create(builder, op.getLoc(), builder.getIndexType(),
                                  part, op.getQueryStart(), op.getDecodes(),
                                  op.getRows(), op.getMesh(), op.getAxis())
      .getResult();
}

//===----------------------------------------------------------------------===//
// CountChunkRowsOp
//===----------------------------------------------------------------------===//

void CountChunkRowsOp::getEffects(Effects &effects) {
  getReadEffects(*this, effects);
}

Speculation::Speculatability CountChunkRowsOp::getSpeculatability() {
  return getReaderSpeculatability(getQueryStart());
}

//===----------------------------------------------------------------------===//
// ChunkSplitOp
//===----------------------------------------------------------------------===//

LogicalResult ChunkSplitOp::verify() { return verifyTwoForms(*this, 2, 2); }

LogicalResult
ChunkSplitOp::reifyResultShapes(OpBuilder &builder,
                                ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back({getSize(builder, getOutType(0), [&] {
    return countRows(builder, *this, ChunkPart::All);
  })});
  shapes.push_back({getSize(builder, getOutType(1),
                            [&]() -> OpFoldResult { return getRows(); })});
  return success();
}

//===----------------------------------------------------------------------===//
// ChunkLengthsOp
//===----------------------------------------------------------------------===//

LogicalResult mlir::shardq::detail::verifyStartsAndLengths(Operation *op,
                                                           Value queryStart,
                                                           Value seqLens,
                                                           ShapedType starts,
                                                           ShapedType lengths) {
  int64_t entries = shaped(queryStart).getDimSize(0);
  int64_t requests = shaped(seqLens).getDimSize(0);
  if (!ShapedType::isDynamic(entries) && !ShapedType::isDynamic(requests) &&
      entries != requests + 1)
    return op->emitOpError("'query_start' has ")
           << entries << " entries, expected " << requests + 1
           << ", one more than 'seq_lens'";
  // Written as far as these go, so sizes are not left open for one alone.
  auto verifySameSize = [&](StringRef name, ShapedType found, StringRef as,
                            Value expected) -> LogicalResult {
    if (found.getDimSize(0) == shaped(expected).getDimSize(0))
      return success();
    return op->emitOpError("'")
           << name << "' is " << found << ", expected the shape of '" << as
           << "', " << expected.getType();
  };
  if (failed(verifySameSize("starts", starts, "query_start", queryStart)))
    return failure();
  return verifySameSize("lengths", lengths, "seq_lens", seqLens);
}

LogicalResult ChunkLengthsOp::verify() {
  if (getPart() == ChunkPart::All)
    return emitOpError("is of ")
           << stringifyChunkPart(getPart()) << " rows, expected head or tail";
  if (failed(verifyTwoForms(*this, 3, 3)))
    return failure();
  return verifyStartsAndLengths(*this, getQueryStart(), getSeqLens(),
                                getOutType(0), getOutType(1));
}

LogicalResult
ChunkLengthsOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(
      {tensor::getMixedSize(builder, getLoc(), getQueryStart(), 0)});
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getSeqLens(), 0)});
  shapes.push_back({getSize(builder, getOutType(2), [&] {
    return countRows(builder, *this, getPart());
  })});
  return success();
}

//===----------------------------------------------------------------------===//
// ChunkSlotsOp
//===----------------------------------------------------------------------===//

LogicalResult ChunkSlotsOp::verify() {
  if (failed(verifyTwoForms(*this, 2, 2)))
    return failure();
  ShapedType order = getOutType(0), padded = getOutType(1);
  if (!order.getElementType().isInteger(32))
    return emitOpError("'order' has element type ")
           << order.getElementType() << ", expected i32";
  Type slots = getSlots().getType();
  if (failed(verifySameElement(*this, "padded", padded, "slots", slots)) ||
      failed(verifySameView(*this, "padded", padded, "slots", slots)))
    return failure();
  return verifySameDim(*this, "rows", {"padded", padded, 0},
                       {"order", order, 0});
}

LogicalResult
ChunkSlotsOp::reifyResultShapes(OpBuilder &builder,
                                ReifiedRankedShapedTypeDims &shapes) {
  MeshAxis over =
      lookupMeshAxis(*this, getMeshAttr(), getAxisAttr().getValue());
  if (!over)
    return failure();
  for (unsigned n : {0, 1})
    shapes.push_back({getSize(builder, getOutType(n), [&]() -> OpFoldResult {
      Value ranks = arith::ConstantIndexOp::create(builder, getLoc(),
                                                   over.axis.getSize());
      return arith::MulIOp::create(builder, getLoc(), getLocal(), ranks)
          .getResult();
    })});
  return success();
}

//===----------------------------------------------------------------------===//
// WriteRowsOp
//===----------------------------------------------------------------------===//

LogicalResult WriteRowsOp::verify() {
  for (auto [index, type] : llvm::enumerate(getOperandTypes()))
    if (isa<MemRefType>(type) != isOnBuffers())
      return emitOpError("operand #")
             << index << " is " << type << ", expected a "
             << (isOnBuffers() ? "memref" : "tensor") << " as 'cache'";
  if (bool(getResult()) == isOnBuffers())
    return emitOpError("is on ")
           << (isOnBuffers() ? "buffers, expected no result"
                             : "tensors, expected a result");
  if (getResult() && getResult().getType() != getCache().getType())
    return emitOpError("'result' is ")
           << getResult().getType() << ", expected the type of 'cache', "
           << getCache().getType();
  if (failed(verifySameRows(*this, "cache", shaped(getCache()),
                            shaped(getSource()))) ||
      failed(verifySameView(*this, "slots", getSlots().getType(), "cache",
                            getCache().getType())) ||
      failed(verifySlotsReach(*this, getSlots().getType(),
                              {"cache", getCache().getType(), 0})))
    return failure();
  return verifySameDim(*this, "rows", {"slots", getSlots().getType(), 0},
                       {"source", getSource().getType(), 0});
}

void WriteRowsOp::getEffects(Effects &effects) {
  getReadEffects(*this, effects);
  if (isOnBuffers())
    effects.emplace_back(MemoryEffects::Write::get(), &getCacheMutable(),
                         SideEffects::DefaultResource::get());
}

Speculation::Speculatability WriteRowsOp::getSpeculatability() {
  return getReaderSpeculatability(getCache());
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

SHARDQ_TWO_FORM_EFFECTS(ChunkSplitOp)
SHARDQ_TWO_FORM_EFFECTS(ChunkLengthsOp)
SHARDQ_TWO_FORM_EFFECTS(ChunkSlotsOp)
