//===- ContextOps.cpp - Level 2: sharded KV cache -------------------------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "shardq/IR/Origins.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

LogicalResult mlir::shardq::detail::verifyInterleave(Operation *op,
                                                     int64_t interleave) {
  if (interleave > 0 && interleave <= std::numeric_limits<int32_t>::max())
    return success();
  return op->emitOpError("interleave is ")
         << interleave << ", expected 1 to "
         << std::numeric_limits<int32_t>::max();
}

LogicalResult mlir::shardq::detail::verifyRuns(Operation *op,
                                               int64_t interleave,
                                               int64_t blockSize) {
  if (failed(verifyInterleave(op, interleave)) ||
      failed(verifyBlocks(op, blockSize, blockSize)))
    return failure();
  if (interleave % blockSize == 0 || blockSize % interleave == 0)
    return success();
  return op->emitOpError("block_size is ")
         << blockSize << " and interleave " << interleave
         << ", expected one to be a multiple of the other";
}

/// A result of two dimensions in the rows and heads of another of three.
static LogicalResult verifyLseShape(Operation *op, StringRef name,
                                    ShapedType lse, StringRef outName,
                                    ShapedType out) {
  if (failed(verifyRank(op, name, lse, 2)) ||
      failed(verifySameDim(op, "rows", {name, lse, 0}, {outName, out, 0})))
    return failure();
  return verifySameDim(op, "heads", {name, lse, 1}, {outName, out, 1});
}

/// The base of the value, if it is the LSE that an op makes beside outputs.
static std::optional<LseBase> getMadeBase(Value value) {
  auto result = dyn_cast<OpResult>(value);
  if (!result || result.getResultNumber() != 1)
    return std::nullopt;
  return llvm::TypeSwitch<Operation *, std::optional<LseBase>>(
             result.getOwner())
      .Case<SparseMlaOp, CombineLseOp, WeighPartialOp>(
          [](auto op) { return op.getLseBase(); })
      .Default(std::nullopt);
}

/// Where an LSE comes from: also rows that ShardQ's ops hand on as they are.
static void getLseOrigins(Value value, SmallVectorImpl<Value> &origins) {
  getOrigins(value, origins);
  Operation *op = value.getDefiningOp();
  if (isa_and_present<tensor::CastOp, GatherRowsOp, TakeRowsOp>(op))
    llvm::append_range(origins, op->getOperands().take_front(1));
  else if (isa_and_present<ExchangeOp, WriteRowsOp>(op))
    llvm::append_range(origins, op->getOperands());
}

/// LSEs have the base of the attention or the merge that computed them,
/// wherever they have been since.
static LogicalResult verifySameBase(Operation *op, StringRef name, Value lse,
                                    LseBase base) {
  // A loop may carry a value on from itself.
  llvm::SmallSetVector<Value, 8> seen;
  seen.insert(lse);
  for (size_t next = 0; next != seen.size(); ++next) {
    std::optional<LseBase> made = getMadeBase(seen[next]);
    if (!made) {
      SmallVector<Value> origins;
      getLseOrigins(seen[next], origins);
      seen.insert_range(origins);
      continue;
    }
    if (*made == base)
      continue;
    InFlightDiagnostic diag = op->emitOpError("merges LSEs of base ")
                              << stringifyLseBase(base) << ", but '" << name
                              << "' has base " << stringifyLseBase(*made);
    diag.attachNote(seen[next].getLoc()) << "it is computed here";
    return diag;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// LocalLengthsOp
//===----------------------------------------------------------------------===//

LogicalResult LocalLengthsOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)) ||
      failed(verifyInterleave(*this, getInterleave())))
    return failure();
  return verifySameDim(*this, "entries", {"result", getOutType(0), 0},
                       {"lengths", getLengths().getType(), 0});
}

LogicalResult
LocalLengthsOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return success(verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr()) !=
                 nullptr);
}

bool LocalLengthsOp::isRowOperand(OpOperand &) { return true; }

LogicalResult
LocalLengthsOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getLengths(), 0)});
  return success();
}

//===----------------------------------------------------------------------===//
// DraftLengthsOp
//===----------------------------------------------------------------------===//

LogicalResult DraftLengthsOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)))
    return failure();
  if (std::optional<int64_t> step = getConstantIntValue(getStep()))
    if (failed(verifyNotNegative(*this, "'step'", *step)))
      return failure();
  return verifySameDim(*this, "entries", {"result", getOutType(0), 0},
                       {"lengths", getLengths().getType(), 0});
}

bool DraftLengthsOp::isRowOperand(OpOperand &operand) {
  return operand.getOperandNumber() != getStepMutable().getOperandNumber();
}

LogicalResult
DraftLengthsOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getLengths(), 0)});
  return success();
}

//===----------------------------------------------------------------------===//
// ShardLengthsOp
//===----------------------------------------------------------------------===//

LogicalResult ShardLengthsOp::verify() {
  if (failed(verifyTwoForms(*this, 2, 2)))
    return failure();
  return verifyStartsAndLengths(*this, getQueryStart(), getSeqLens(),
                                getOutType(0), getOutType(1));
}

LogicalResult
ShardLengthsOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return success(verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr()) !=
                 nullptr);
}

LogicalResult
ShardLengthsOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(
      {tensor::getMixedSize(builder, getLoc(), getQueryStart(), 0)});
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getSeqLens(), 0)});
  return success();
}

//===----------------------------------------------------------------------===//
// FilterIndicesOp
//===----------------------------------------------------------------------===//

LogicalResult FilterIndicesOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 2)) ||
      failed(verifyInterleave(*this, getInterleave())))
    return failure();
  bool hasTable = bool(getTable());
  if (hasTable != bool(getReq()) || hasTable != getBlockSize().has_value() ||
      (getBlockStrideRows() && !hasTable))
    return emitOpError("'table', 'rows' and 'block_size' stand together, and "
                       "'block_stride_rows' only with them");
  Type indices = getIndices().getType(), slots = getOutType(0);
  NamedDim rows{"indices", indices, 0};
  if (failed(verifyRank(*this, "slots", slots, 2)) ||
      failed(verifySameDim(*this, "rows", {"slots", slots, 0}, rows)) ||
      failed(verifySameDim(*this, "columns", {"slots", slots, 1},
                           {"indices", indices, 1})) ||
      failed(verifyColumns(*this, "indices", indices)))
    return failure();
  if (getNumOuts() == 2) {
    ShapedType counts = getOutType(1);
    if (failed(verifyRank(*this, "counts", counts, 1)) ||
        failed(verifySameDim(*this, "rows", {"counts", counts, 0}, rows)))
      return failure();
    if (!counts.getElementType().isInteger(32))
      return emitOpError("'counts' has element type ")
             << counts.getElementType() << ", expected i32";
  }
  if (failed(verifyNoView(*this, "slots", slots)))
    return failure();
  if (!hasTable)
    return success();
  if (failed(verifyNoView(*this, "table", getTable().getType())) ||
      failed(
          verifySameDim(*this, "rows", {"req", getReq().getType(), 0}, rows)) ||
      failed(verifyBlocks(*this, *getBlockSize(), getBlockStride())))
    return failure();
  return verifyRuns(*this, getInterleave(), *getBlockSize());
}

LogicalResult
FilterIndicesOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return success(verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr()) !=
                 nullptr);
}

bool FilterIndicesOp::isRowOperand(OpOperand &operand) {
  MutableOperandRange table = getTableMutable();
  return table.empty() ||
         operand.getOperandNumber() != table[0].getOperandNumber();
}

LogicalResult
FilterIndicesOp::reifyResultShapes(OpBuilder &builder,
                                   ReifiedRankedShapedTypeDims &shapes) {
  return reifySlots(builder, getLoc(), getIndices(), getNumOuts() == 2, shapes);
}

//===----------------------------------------------------------------------===//
// GatherQueryOp
//===----------------------------------------------------------------------===//

LogicalResult mlir::shardq::detail::verifyGatherShapes(Operation *op,
                                                       ValueRange sources,
                                                       StringRef resultName,
                                                       ShapedType result) {
  if (failed(verifyOneOrTwo(op, sources)))
    return failure();
  if (failed(verifyRank(op, resultName, result, 3)) ||
      failed(verifyStaticDim(op, "heads", {resultName, result, 1})) ||
      failed(verifyStaticDim(op, "head dimension", {resultName, result, 2})))
    return failure();
  Type first = sources.front().getType();
  int64_t width = 0;
  for (Value source : sources) {
    ShapedType type = shaped(source);
    if (failed(verifyRank(op, "source", type, 3)) ||
        failed(verifySameElement(op, "source", type, resultName, result)) ||
        failed(verifyStaticDim(op, "heads", {"source", type, 1})) ||
        failed(verifyStaticDim(op, "head dimension", {"source", type, 2})) ||
        failed(verifySameDim(op, "rows", {"source", type, 0},
                             {"source", first, 0})) ||
        failed(verifySameDim(op, "heads", {"source", type, 1},
                             {"source", first, 1})) ||
        failed(verifySameDim(op, "rows", {resultName, result, 0},
                             {"source", type, 0})))
      return failure();
    width += type.getDimSize(2);
  }
  if (result.getDimSize(2) == width)
    return success();
  return op->emitOpError("'")
         << resultName << "' has " << result.getDimSize(2)
         << " values a head, expected " << width << " as the sources together";
}

LogicalResult mlir::shardq::detail::verifyGroupHeads(
    Operation *op, SymbolTableCollection &symbolTable, FlatSymbolRefAttr mesh,
    StringAttr axis, ShapedType local, StringRef allName, ShapedType all,
    bool isPadded) {
  AxisAttr found = verifyAxis(op, symbolTable, mesh, axis);
  if (!found)
    return failure();
  int64_t heads = local.getDimSize(1), ranks = found.getSize();
  if (all.getDimSize(1) == heads * ranks ||
      (isPadded && all.getDimSize(1) > heads * ranks))
    return success();
  return op->emitOpError("'")
         << allName << "' has " << all.getDimSize(1) << " heads, expected "
         << heads * ranks << (isPadded ? " or more" : "") << ": " << heads
         << " on each of " << ranks << " ranks";
}

LogicalResult GatherQueryOp::verify() {
  StringRef name = isOnBuffers() ? "outs" : "result";
  if (failed(verifyTwoForms(*this, 1, 1)) ||
      failed(verifyGatherShapes(*this, getSources(), name, getOutType(0))))
    return failure();
  if (isOnBuffers())
    return verifySymmetric(*this, name, getOutType(0), getMeshAttr());
  return success();
}

LogicalResult
GatherQueryOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return verifyGroupHeads(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                          shaped(getSources().front()),
                          isOnBuffers() ? "outs" : "result", getOutType(0),
                          getPaddedHeads());
}

LogicalResult
GatherQueryOp::reifyResultShapes(OpBuilder &builder,
                                 ReifiedRankedShapedTypeDims &shapes) {
  ShapedType result = getOutType(0);
  shapes.push_back(
      {tensor::getMixedSize(builder, getLoc(), getSources().front(), 0),
       builder.getIndexAttr(result.getDimSize(1)),
       builder.getIndexAttr(result.getDimSize(2))});
  return success();
}

//===----------------------------------------------------------------------===//
// CombineLseOp
//===----------------------------------------------------------------------===//

int64_t mlir::shardq::detail::getPartialWidth(Type element, int64_t values) {
  return values + kLseBytes / (element.getIntOrFloatBitWidth() / 8);
}

LogicalResult mlir::shardq::detail::verifyHeads(Operation *op, StringRef name,
                                                ShapedType type) {
  if (failed(verifyRank(op, name, type, 3)) ||
      failed(verifyStaticDim(op, "heads", {name, type, 1})))
    return failure();
  return verifyStaticDim(op, "head dimension", {name, type, 2});
}

LogicalResult mlir::shardq::detail::verifyPartial(Operation *op,
                                                  ShapedType partial,
                                                  ShapedType lse) {
  if (failed(verifyHeads(op, "partial", partial)))
    return failure();
  return verifyLseShape(op, "partial_lse", lse, "partial", partial);
}

/// `many` has the rows of `few` of each rank of the axis, where both are known.
static LogicalResult verifyRowsOfRanks(Operation *op, AxisAttr axis,
                                       StringRef manyName, ShapedType many,
                                       ShapedType few) {
  int64_t found = many.getDimSize(0), rows = few.getDimSize(0);
  int64_t ranks = axis.getSize();
  bool isKnown = !ShapedType::isDynamic(rows);
  if (ShapedType::isDynamic(found) ||
      (found % ranks == 0 && (!isKnown || found / ranks == rows)))
    return success();
  InFlightDiagnostic diag = op->emitOpError("'") << manyName << "' has "
                                                 << found << " rows, expected ";
  if (isKnown)
    diag << rows << " of each of " << ranks << " ranks";
  else
    diag << "a multiple of the " << ranks << " ranks";
  return diag;
}

/// One entry for each head of `out`, where there are sinks.
static LogicalResult verifySink(Operation *op, Value sink, ShapedType out) {
  if (!sink)
    return success();
  int64_t found = shaped(sink).getDimSize(0), heads = out.getDimSize(1);
  if (found == heads)
    return success();
  return op->emitOpError("'sink' is ")
         << sink.getType() << ", expected " << heads
         << " entries, one for each head of 'out'";
}

bool CombineLseOp::keepsAllHeads() {
  return !getScatterTokens() &&
         getOutType(0).getDimSize(1) == shaped(getPartial()).getDimSize(1);
}

MemRefType CombineLseOp::getInboxType() {
  ShapedType out = getOutType(0);
  return MemRefType::get(
      {ShapedType::kDynamic, out.getDimSize(1),
       getPartialWidth(out.getElementType(), out.getDimSize(2))},
      out.getElementType(), MemRefLayoutAttrInterface(),
      SymmetricAttr::get(getContext(), getMeshAttr()));
}

LogicalResult CombineLseOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 2)))
    return failure();
  ShapedType partial = shaped(getPartial()), lse = shaped(getPartialLse());
  ShapedType out = getOutType(0);
  NamedDim rows{"partial", partial, 0}, heads{"partial", partial, 1};
  if (failed(verifyPartial(*this, partial, lse)) ||
      failed(verifyRank(*this, "out", out, 3)) ||
      failed(verifyStaticDim(*this, "heads", {"out", out, 1})) ||
      failed(verifySameElement(*this, "out", out, "partial", partial)) ||
      failed(getScatterTokens()
                 ? verifySameDim(*this, "heads", {"out", out, 1}, heads)
                 : verifySameDim(*this, "rows", {"out", out, 0}, rows)) ||
      failed(verifyStaticDim(*this, "head dimension", {"out", out, 2})) ||
      failed(verifySameDim(*this, "values a head", {"out", out, 2},
                           {"partial", partial, 2})))
    return failure();
  if (getNumOuts() == 2) {
    ShapedType merged = getOutType(1);
    if (failed(verifyLseShape(*this, "merged", merged, "out", out)) ||
        failed(verifySameElement(*this, "merged", merged, "partial_lse", lse)))
      return failure();
  }
  if (failed(verifySink(*this, getSink(), out)))
    return failure();
  return verifySameBase(*this, "partial_lse", getPartialLse(), getLseBase());
}

LogicalResult
CombineLseOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  AxisAttr axis = verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr());
  if (!axis)
    return failure();
  bool all = keepsAllHeads();
  TransportAttr transport = getTransportAttr();
  if (getScatterTokens()) {
    if (failed(verifyRowsOfRanks(*this, axis, "partial", shaped(getPartial()),
                                 getOutType(0))))
      return failure();
  } else if (!all && failed(verifyGroupHeads(
                         *this, symbolTable, getMeshAttr(), getAxisAttr(),
                         getOutType(0), "partial", shaped(getPartial())))) {
    return failure();
  }
  if (transport && (getScatterTokens() || getSink()) &&
      transport.getValue() != Transport::Direct &&
      transport.getValue() != Transport::Nccl)
    return emitOpError("transport is ")
           << stringifyTransport(transport.getValue()) << ", but it "
           << (getScatterTokens() ? "scatters tokens" : "has a sink")
           << ": expected direct or nccl";
  Transport wrong = all ? Transport::AgRs : Transport::AgAr;
  if (!transport || transport.getValue() != wrong || axis.getSize() == 1)
    return success();
  return emitOpError("transport is ")
         << stringifyTransport(wrong) << ", but each rank keeps "
         << (all ? "all heads" : "its own heads") << ": expected "
         << stringifyTransport(all ? Transport::AgAr : Transport::AgRs)
         << ", direct or nccl";
}

LogicalResult
CombineLseOp::reifyResultShapes(OpBuilder &builder,
                                ReifiedRankedShapedTypeDims &shapes) {
  Location loc = getLoc();
  ShapedType out = getOutType(0);
  OpFoldResult rows = tensor::getMixedSize(builder, loc, getPartial(), 0);
  if (!out.isDynamicDim(0)) {
    rows = builder.getIndexAttr(out.getDimSize(0));
  } else if (getScatterTokens()) {
    MeshAxis over = lookupMeshAxis(*this, getMeshAttr(), getAxis());
    if (!over)
      return failure();
    Value ranks =
        arith::ConstantIndexOp::create(builder, loc, over.axis.getSize());
    rows = arith::DivUIOp::create(
               builder, loc,
               getValueOrCreateConstantIndexOp(builder, loc, rows), ranks)
               .getResult();
  }
  OpFoldResult heads = builder.getIndexAttr(out.getDimSize(1));
  shapes.push_back({rows, heads, builder.getIndexAttr(out.getDimSize(2))});
  if (getNumOuts() == 2)
    shapes.push_back({rows, heads});
  return success();
}

//===----------------------------------------------------------------------===//
// WeighPartialOp
//===----------------------------------------------------------------------===//

LogicalResult WeighPartialOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 2)))
    return failure();
  ShapedType partial = shaped(getPartial()), lses = shaped(getLses());
  ShapedType share = getOutType(0);
  if (failed(verifyHeads(*this, "partial", partial)) ||
      failed(verifyRank(*this, "lses", lses, 2)) ||
      failed(verifySameDim(*this, "heads", {"lses", lses, 1},
                           {"partial", partial, 1})) ||
      failed(verifyHeads(*this, "share", share)))
    return failure();
  static constexpr StringLiteral kDims[] = {"rows", "heads", "values a head"};
  for (auto [dim, what] : llvm::enumerate(kDims))
    if (failed(verifySameDim(*this, what, {"share", share, unsigned(dim)},
                             {"partial", partial, unsigned(dim)})))
      return failure();
  if (!share.getElementType().isF32())
    return emitOpError("'share' has element type ")
           << share.getElementType() << ", expected f32";
  if (failed(verifySameBase(*this, "lses", getLses(), getLseBase())))
    return failure();
  if (getNumOuts() == 1)
    return success();
  ShapedType merged = getOutType(1);
  if (failed(verifyLseShape(*this, "merged", merged, "share", share)))
    return failure();
  return verifySameElement(*this, "merged", merged, "lses", lses);
}

LogicalResult
WeighPartialOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  AxisAttr axis = verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr());
  if (!axis)
    return failure();
  return verifyRowsOfRanks(*this, axis, "lses", shaped(getLses()),
                           shaped(getPartial()));
}

LogicalResult
WeighPartialOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &shapes) {
  ShapedType share = getOutType(0);
  OpFoldResult rows = tensor::getMixedSize(builder, getLoc(), getPartial(), 0);
  OpFoldResult heads = builder.getIndexAttr(share.getDimSize(1));
  shapes.push_back({rows, heads, builder.getIndexAttr(share.getDimSize(2))});
  if (getNumOuts() == 2)
    shapes.push_back({rows, heads});
  return success();
}

//===----------------------------------------------------------------------===//
// ReduceHeadsOp
//===----------------------------------------------------------------------===//

MemRefType ReduceHeadsOp::getInboxType() {
  ShapedType out = getOutType(0);
  return MemRefType::get(
      {ShapedType::kDynamic, out.getDimSize(1), out.getDimSize(2)},
      shaped(getSource()).getElementType(), MemRefLayoutAttrInterface(),
      SymmetricAttr::get(getContext(), getMeshAttr()));
}

LogicalResult ReduceHeadsOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)))
    return failure();
  StringRef name = isOnBuffers() ? "outs" : "result";
  ShapedType source = shaped(getSource()), out = getOutType(0);
  if (failed(verifyHeads(*this, "source", source)) ||
      failed(verifyHeads(*this, name, out)) ||
      failed(
          verifySameDim(*this, "rows", {name, out, 0}, {"source", source, 0})))
    return failure();
  return verifySameDim(*this, "values a head", {name, out, 2},
                       {"source", source, 2});
}

LogicalResult
ReduceHeadsOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return verifyGroupHeads(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                          getOutType(0), "source", shaped(getSource()));
}

LogicalResult
ReduceHeadsOp::reifyResultShapes(OpBuilder &builder,
                                 ReifiedRankedShapedTypeDims &shapes) {
  ShapedType out = getOutType(0);
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getSource(), 0),
                    builder.getIndexAttr(out.getDimSize(1)),
                    builder.getIndexAttr(out.getDimSize(2))});
  return success();
}

//===----------------------------------------------------------------------===//
// SumPartialsOp
//===----------------------------------------------------------------------===//

LogicalResult SumPartialsOp::verify() {
  ShapedType inbox = shaped(getInbox()), out = shaped(getOut());
  if (failed(verifyHeads(*this, "out", out)) ||
      failed(
          verifySameDim(*this, "heads", {"inbox", inbox, 1}, {"out", out, 1})))
    return failure();
  return verifySameDim(*this, "values a head", {"inbox", inbox, 2},
                       {"out", out, 2});
}

LogicalResult
SumPartialsOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  AxisAttr axis = verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr());
  if (!axis)
    return failure();
  return verifyRowsOfRanks(*this, axis, "inbox", shaped(getInbox()),
                           shaped(getOut()));
}

void SumPartialsOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getInboxMutable(),
                       SideEffects::DefaultResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), &getOutMutable(),
                       SideEffects::DefaultResource::get());
}

//===----------------------------------------------------------------------===//
// MergeLseOp
//===----------------------------------------------------------------------===//

LogicalResult MergeLseOp::verify() {
  ShapedType inbox = shaped(getInbox()), out = shaped(getOut());
  if (failed(verifyStaticDim(*this, "heads", {"out", out, 1})) ||
      failed(verifyStaticDim(*this, "head dimension", {"out", out, 2})) ||
      failed(verifySameElement(*this, "inbox", inbox, "out", out)) ||
      failed(
          verifySameDim(*this, "heads", {"inbox", inbox, 1}, {"out", out, 1})))
    return failure();
  int64_t width = getPartialWidth(out.getElementType(), out.getDimSize(2));
  if (inbox.getDimSize(2) != width)
    return emitOpError("'inbox' is ")
           << inbox << ", expected " << width
           << " elements a head: " << out.getDimSize(2) << " values and "
           << kLseBytes << " bytes for the LSE";
  if (failed(verifySink(*this, getSink(), out)))
    return failure();
  if (!getMerged())
    return success();
  return verifyLseShape(*this, "merged", shaped(getMerged()), "out", out);
}

LogicalResult MergeLseOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  AxisAttr axis = verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr());
  if (!axis)
    return failure();
  return verifyRowsOfRanks(*this, axis, "inbox", shaped(getInbox()),
                           shaped(getOut()));
}

void MergeLseOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getInboxMutable(),
                       SideEffects::DefaultResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), &getOutMutable(),
                       SideEffects::DefaultResource::get());
  for (OpOperand &sink : getSinkMutable())
    effects.emplace_back(MemoryEffects::Read::get(), &sink,
                         SideEffects::DefaultResource::get());
  for (OpOperand &merged : getMergedMutable())
    effects.emplace_back(MemoryEffects::Write::get(), &merged,
                         SideEffects::DefaultResource::get());
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

SHARDQ_TWO_FORM_EFFECTS(DraftLengthsOp)
SHARDQ_TWO_FORM_EFFECTS(LocalLengthsOp)
SHARDQ_TWO_FORM_EFFECTS(ShardLengthsOp)
SHARDQ_TWO_FORM_EFFECTS(FilterIndicesOp)
SHARDQ_TWO_FORM_EFFECTS(WeighPartialOp)

SHARDQ_COLLECTIVE_EFFECTS(GatherQueryOp)
SHARDQ_COLLECTIVE_EFFECTS(CombineLseOp)
SHARDQ_COLLECTIVE_EFFECTS(ReduceHeadsOp)
