//===- ViewOps.cpp - Level 1 and 2: views and formats of caches -----------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

//===----------------------------------------------------------------------===//
// ReplicatedTableOp
//===----------------------------------------------------------------------===//

LogicalResult ReplicatedTableOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)))
    return failure();
  Type table = getTable().getType(), out = getOutType(0);
  NamedDim requests{"table", table, 0};
  if (ViewAttr view = getView(table))
    return emitOpError("'table' is ")
           << table << ", expected this rank's own: a table of " << view
           << " is a view already, and a view is made once";
  if (!isOnBuffers() && !getView(out))
    return emitOpError("'result' is ")
           << out << ", expected the encoding "
           << ViewAttr::get(getContext(), KvView::Replicated);
  if (failed(verifySameDim(*this, "requests",
                           {"lengths", getLengths().getType(), 0}, requests)) ||
      failed(verifySameDim(*this, "requests", {"result", out, 0}, requests)))
    return failure();
  int64_t blocks = getBlocksPerBlock();
  if (blocks >= 1 && blocks <= std::numeric_limits<int32_t>::max())
    return success();
  return emitOpError("blocks_per_block is ")
         << blocks << ", expected 1 to " << std::numeric_limits<int32_t>::max();
}

LogicalResult
ReplicatedTableOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  AxisAttr axis = verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr());
  if (!axis)
    return failure();
  return verifyTimesRanks(*this, "columns", axis,
                          {isOnBuffers() ? "outs" : "result", getOutType(0), 1},
                          {"table", getTable().getType(), 1});
}

LogicalResult
ReplicatedTableOp::reifyResultShapes(OpBuilder &builder,
                                     ReifiedRankedShapedTypeDims &shapes) {
  return reifyWideTable(builder, *this, getTable(), getMeshAttr(),
                        getAxisAttr(), shapes);
}

//===----------------------------------------------------------------------===//
// TokenSlotsOp
//===----------------------------------------------------------------------===//

/// What says whose tokens a rank's own table is of.
static LogicalResult verifyOwners(TokenSlotsOp op) {
  if (bool(op.getMeshAttr()) != bool(op.getAxisAttr()) ||
      bool(op.getMeshAttr()) != bool(op.getInterleaveAttr()))
    return op.emitOpError("'over' and 'interleave' stand together");
  if (!op.getMeshAttr())
    return success();
  int64_t interleave = *op.getInterleave();
  if (failed(verifyNoView(op, "table", op.getTable().getType())))
    return failure();
  return verifyRuns(op, interleave, op.getBlockSize());
}

LogicalResult TokenSlotsOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)) ||
      failed(verifyBlocks(*this, getBlockSize(), getBlockStride())) ||
      failed(verifyOwners(*this)))
    return failure();
  Type slots = getOutType(0);
  NamedDim rows{"req", getReq().getType(), 0};
  if (failed(verifySameDim(*this, "rows",
                           {"visible", getVisible().getType(), 0}, rows)) ||
      failed(verifySameDim(*this, "rows", {"result", slots, 0}, rows)))
    return failure();
  return verifySameView(*this, "result", slots, "table", getTable().getType());
}

LogicalResult
TokenSlotsOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return success(!getMeshAttr() || verifyAxis(*this, symbolTable, getMeshAttr(),
                                              getAxisAttr()) != nullptr);
}

bool TokenSlotsOp::isRowOperand(OpOperand &operand) {
  return operand.getOperandNumber() != getTableMutable().getOperandNumber();
}

LogicalResult
TokenSlotsOp::reifyResultShapes(OpBuilder &builder,
                                ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getReq(), 0)});
  return success();
}

//===----------------------------------------------------------------------===//
// UnpackRowsOp, PackRowsOp
//===----------------------------------------------------------------------===//

/// Dimension 1 of rows in a format.
static LogicalResult verifyWidth(Operation *op, StringRef name, Type type,
                                 StringRef what, int64_t expected,
                                 PackedRowsAttr format) {
  int64_t found = cast<ShapedType>(type).getDimSize(1);
  if (found == expected)
    return success();
  return op->emitOpError("'")
         << name << "' is " << type << ", expected " << expected << " " << what
         << " a row as " << format << " has";
}

LogicalResult mlir::shardq::detail::verifyPackedRows(Operation *op,
                                                     StringRef name, Type type,
                                                     PackedRowsAttr format) {
  Type element = cast<ShapedType>(type).getElementType();
  if (!element.isInteger(8))
    return op->emitOpError("'") << name << "' has element type " << element
                                << ", expected i8 for packed rows";
  return verifyWidth(op, name, type, "bytes", format.getNumBytes(), format);
}

/// Packed rows on one side, their values on the other.
static LogicalResult verifyPacking(TwoFormOpInterface op, StringRef inName,
                                   Type in, StringRef packedName, Type packed,
                                   StringRef valuesName, Type values,
                                   PackedRowsAttr format) {
  if (failed(verifyTwoForms(op, 1, 1)) ||
      failed(verifyPackedRows(op, packedName, packed, format)) ||
      failed(verifyWidth(op, valuesName, values, "values", format.getDim(),
                         format)))
    return failure();
  ShapedType out = op.getOutType(0);
  if (failed(verifySameDim(op, "rows", {"result", out, 0}, {inName, in, 0})))
    return failure();
  return verifySameView(op, "result", out, inName, in);
}

LogicalResult UnpackRowsOp::verify() {
  Type packed = getPacked().getType();
  if (getNumOuts() == 0)
    return verifyTwoForms(*this, 1, 1);
  return verifyPacking(*this, "packed", packed, "packed", packed, "result",
                       getOutType(0), getFormat());
}

LogicalResult PackRowsOp::verify() {
  Type rows = getRows().getType();
  if (getNumOuts() == 0)
    return verifyTwoForms(*this, 1, 1);
  return verifyPacking(*this, "rows", rows, "result", getOutType(0), "rows",
                       rows, getFormat());
}

bool UnpackRowsOp::isRowOperand(OpOperand &) { return true; }
bool PackRowsOp::isRowOperand(OpOperand &) { return true; }

LogicalResult
UnpackRowsOp::reifyResultShapes(OpBuilder &builder,
                                ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getPacked(), 0),
                    builder.getIndexAttr(getFormat().getDim())});
  return success();
}

LogicalResult
PackRowsOp::reifyResultShapes(OpBuilder &builder,
                              ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getRows(), 0),
                    builder.getIndexAttr(getFormat().getNumBytes())});
  return success();
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

SHARDQ_TWO_FORM_EFFECTS(ReplicatedTableOp)
SHARDQ_TWO_FORM_EFFECTS(TokenSlotsOp)
SHARDQ_TWO_FORM_EFFECTS(UnpackRowsOp)
SHARDQ_TWO_FORM_EFFECTS(PackRowsOp)
