//===- DistributionOps.cpp - Level 2: token shards ------------------------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "shardq/IR/CarrierOps.h"
#include "shardq/IR/OperandNames.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

ParseResult mlir::shardq::parseDirection(OpAsmParser &parser,
                                         DirectionAttr &direction) {
  StringRef keyword;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<Direction> value = symbolizeDirection(keyword);
  if (!value)
    return parser.emitError(loc, "unknown direction '")
           << keyword
           << "', expected 'heads_to_tokens', 'tokens_to_heads', "
              "'gather_heads', 'scatter_heads', 'gather_rows' or "
              "'scatter_rows'";
  direction = DirectionAttr::get(parser.getContext(), *value);
  return success();
}

void mlir::shardq::printDirection(OpAsmPrinter &printer, Operation *,
                                  DirectionAttr direction) {
  printer << stringifyDirection(direction.getValue());
}

//===----------------------------------------------------------------------===//
// CountDecodeRowsOp
//===----------------------------------------------------------------------===//

LogicalResult CountDecodeRowsOp::verify() {
  return verifyNotNegative(*this, "speculative_tokens", getSpeculativeTokens());
}

void CountDecodeRowsOp::getEffects(Effects &effects) {
  getReadEffects(*this, effects);
}

Speculation::Speculatability CountDecodeRowsOp::getSpeculatability() {
  return getReaderSpeculatability(getQueryStart());
}

//===----------------------------------------------------------------------===//
// ZigzagSplitOp
//===----------------------------------------------------------------------===//

LogicalResult ZigzagSplitOp::verify() { return verifyTwoForms(*this, 2, 2); }

LogicalResult
ZigzagSplitOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return verifyOffsets(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                       "rank_offsets", getOutType(1));
}

LogicalResult
ZigzagSplitOp::reifyResultShapes(OpBuilder &builder,
                                 ReifiedRankedShapedTypeDims &shapes) {
  int64_t rows = getOutType(0).getDimSize(0);
  shapes.push_back({ShapedType::isDynamic(rows)
                        ? OpFoldResult(getRows())
                        : OpFoldResult(builder.getIndexAttr(rows))});
  shapes.push_back({builder.getIndexAttr(getOutType(1).getDimSize(0))});
  return success();
}

//===----------------------------------------------------------------------===//
// SplitGateOp
//===----------------------------------------------------------------------===//

LogicalResult SplitGateOp::verify() {
  int64_t offsets = shaped(getOffsets()).getDimSize(0);
  if (ShapedType::isDynamic(offsets) || offsets < 2)
    return emitOpError("'offsets' is ")
           << getOffsets().getType() << ", expected a static size of 2 or more";
  int64_t starts = shaped(getQueryStart()).getDimSize(0);
  int64_t requests = shaped(getSeqLens()).getDimSize(0);
  if (!ShapedType::isDynamic(starts) && !ShapedType::isDynamic(requests) &&
      starts != requests + 1)
    return emitOpError("'query_start' has ")
           << starts << " entries, expected " << requests + 1
           << ", one more than 'seq_lens'";
  if (isa<MemRefType>(getOffsets().getType()) !=
          isa<MemRefType>(getQueryStart().getType()) ||
      isa<MemRefType>(getOffsets().getType()) !=
          isa<MemRefType>(getSeqLens().getType()))
    return emitOpError("mixes tensors and memrefs");
  if (failed(verifyNotNegative(*this, "min_tokens", getMinTokens())) ||
      failed(verifyNotNegative(*this, "topk", getTopk())) ||
      failed(verifyNotNegative(*this, "max_rank_rows",
                               getMaxRankRows().value_or(0))))
    return failure();
  return verifyNotNegative(*this, "max_rows", getMaxRows().value_or(0));
}

void SplitGateOp::getEffects(Effects &effects) {
  getReadEffects(*this, effects);
}

Speculation::Speculatability SplitGateOp::getSpeculatability() {
  return getReaderSpeculatability(getOffsets());
}

//===----------------------------------------------------------------------===//
// LocalRowsOp
//===----------------------------------------------------------------------===//

LogicalResult LocalRowsOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)))
    return failure();
  if (!isOnBuffers() && !getOutType(0).isDynamicDim(0))
    return emitOpError("result is ")
           << getOutType(0)
           << ", expected a dynamic size: it differs between "
              "ranks";
  return success();
}

LogicalResult
LocalRowsOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return verifyOffsets(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                       "offsets", getOffsets().getType());
}

LogicalResult
LocalRowsOp::reifyResultShapes(OpBuilder &builder,
                               ReifiedRankedShapedTypeDims &shapes) {
  Value own = createGroupRows(builder, getLoc(), getOffsets(), getMeshAttr(),
                              getAxisAttr());
  Value rows = arith::AddIOp::create(builder, getLoc(), getDecodes(), own);
  shapes.push_back({rows});
  return success();
}

//===----------------------------------------------------------------------===//
// TakeRowsOp
//===----------------------------------------------------------------------===//

LogicalResult TakeRowsOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)))
    return failure();
  Type source = getSource().getType(), out = getOutType(0);
  if (failed(verifyRank(*this, "result", out, shaped(getSource()).getRank())) ||
      failed(verifySameElement(*this, "result", out, "source", source)) ||
      failed(verifySameView(*this, "result", out, "source", source)))
    return failure();
  for (int64_t dim = 1, rank = cast<ShapedType>(out).getRank(); dim < rank;
       ++dim)
    if (failed(verifySameDim(*this, "values in dimension " + Twine(dim).str(),
                             {"result", out, unsigned(dim)},
                             {"source", source, unsigned(dim)})))
      return failure();
  if (TypedAttr missing = getMissingAttr()) {
    // Others are moved as bytes. A choice between two numbers of 16 bits is
    // compiled to one of wider numbers, which changes subnormal ones.
    Type element = cast<ShapedType>(out).getElementType();
    if (!element.isInteger(32) && !element.isInteger(64) && !element.isF32())
      return emitOpError("has 'missing' and elements of type ")
             << element << ", expected i32, i64 or f32";
    if (!isa<IntegerAttr, FloatAttr>(missing) || missing.getType() != element)
      return emitOpError("missing is ")
             << missing << ", expected a number of type " << element;
  }
  return verifySameDim(*this, "rows", {"result", out, 0},
                       {"rows", getRows().getType(), 0});
}

LogicalResult
TakeRowsOp::reifyResultShapes(OpBuilder &builder,
                              ReifiedRankedShapedTypeDims &shapes) {
  SmallVector<OpFoldResult> sizes =
      tensor::getMixedSizes(builder, getLoc(), getSource());
  sizes.front() = tensor::getMixedSize(builder, getLoc(), getRows(), 0);
  shapes.push_back(std::move(sizes));
  return success();
}

namespace {

/// take_rows of 0, 1, .., T-1 of T rows is the source.
struct TakeAllRows : OpRewritePattern<TakeRowsOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TakeRowsOp op,
                                PatternRewriter &rewriter) const override {
    DenseIntElementsAttr rows;
    if (op.isOnBuffers() || !matchPattern(op.getRows(), m_Constant(&rows)))
      return failure();
    if (rows.getNumElements() != shaped(op.getSource()).getDimSize(0) ||
        op.getSource().getType() != op->getResult(0).getType())
      return failure();
    for (auto [index, row] : llvm::enumerate(rows.getValues<APInt>()))
      if (row.getSExtValue() != int64_t(index))
        return failure();
    rewriter.replaceOp(op, op.getSource());
    return success();
  }
};

} // namespace

void TakeRowsOp::getCanonicalizationPatterns(RewritePatternSet &results,
                                             MLIRContext *context) {
  results.add<TakeAllRows>(context);
}

//===----------------------------------------------------------------------===//
// ExchangeOp
//===----------------------------------------------------------------------===//

LogicalResult mlir::shardq::detail::verifyExchangeShapes(
    Operation *op, Direction direction, ValueRange sources, Value after,
    StringRef resultName, ShapedType result) {
  bool toTokens = direction == Direction::HeadsToTokens;
  if (sources.empty() || sources.size() > (toTokens ? 2u : 1u))
    return op->emitOpError("has ")
           << sources.size() << " sources, expected "
           << (toTokens ? "1 or 2" : "1 when tokens_to_heads");
  Type first = sources.front().getType();
  int64_t width = 0;
  for (Value source : sources) {
    ShapedType type = shaped(source);
    if (failed(verifyRank(op, "source", type, result.getRank())) ||
        failed(verifySameElement(op, "source", type, resultName, result)) ||
        failed(verifyStaticDim(op, "heads", {"source", type, 1})) ||
        failed(verifySameDim(op, "rows", {"source", type, 0},
                             {"source", first, 0})) ||
        failed(verifySameDim(op, "heads", {"source", type, 1},
                             {"source", first, 1})))
      return failure();
    if (type.getRank() == 3) {
      if (failed(verifyStaticDim(op, "head dimension", {"source", type, 2})))
        return failure();
      width += type.getDimSize(2);
    } else if (sources.size() == 2) {
      return op->emitOpError("has two sources of rank 2, expected rank 3");
    }
  }
  if (failed(verifyStaticDim(op, "heads", {resultName, result, 1})))
    return failure();
  if (result.getRank() == 3 &&
      failed(verifyStaticDim(op, "head dimension", {resultName, result, 2})))
    return failure();
  if (result.getRank() == 3 && result.getDimSize(2) != width)
    return op->emitOpError("'")
           << resultName << "' has " << result.getDimSize(2)
           << " values a head, expected " << width
           << " as the sources together";
  if (!after)
    return success();
  if (toTokens)
    return op->emitOpError("has 'after', expected only when tokens_to_heads");
  if (failed(verifyRank(op, "after", after.getType(), result.getRank())) ||
      failed(
          verifySameElement(op, "after", after.getType(), resultName, result)))
    return failure();
  for (int64_t dim = 1; dim < result.getRank(); ++dim)
    if (failed(verifySameDim(op, dim == 1 ? "heads" : "values a head",
                             {"after", after.getType(), unsigned(dim)},
                             {resultName, result, unsigned(dim)})))
      return failure();
  return success();
}

LogicalResult mlir::shardq::detail::verifyExchangeHeads(
    Operation *op, SymbolTableCollection &symbolTable, FlatSymbolRefAttr mesh,
    StringAttr axis, Direction direction, ShapedType source,
    StringRef resultName, ShapedType result, Type offsets) {
  if (failed(verifyOffsets(op, symbolTable, mesh, axis, "offsets", offsets)))
    return failure();
  int64_t ranks = verifyAxis(op, symbolTable, mesh, axis).getSize();
  bool toTokens = direction == Direction::HeadsToTokens;
  int64_t local = (toTokens ? source : result).getDimSize(1);
  int64_t all = (toTokens ? result : source).getDimSize(1);
  if (all == local * ranks)
    return success();
  return op->emitOpError("'")
         << (toTokens ? resultName : "source") << "' has " << all
         << " heads, expected " << local * ranks << ": " << local
         << " on each of " << ranks << " ranks";
}

LogicalResult mlir::shardq::detail::verifySymmetric(Operation *op,
                                                    StringRef name, Type type,
                                                    FlatSymbolRefAttr mesh) {
  auto space = dyn_cast_if_present<SymmetricAttr>(
      cast<MemRefType>(type).getMemorySpace());
  if (space && space.getMesh() == mesh)
    return success();
  return op->emitOpError("'")
         << name << "' is " << type
         << ", expected memory space #shardq.symmetric<" << mesh << ">";
}

LogicalResult ExchangeOp::verify() {
  if (getDirection() != Direction::HeadsToTokens &&
      getDirection() != Direction::TokensToHeads)
    return emitOpError("direction is ")
           << stringifyDirection(getDirection())
           << ", expected heads_to_tokens or tokens_to_heads";
  if (failed(verifyTwoForms(*this, 1, 1)) ||
      failed(verifyExchangeShapes(*this, getDirection(), getSources(),
                                  getAfter(), isOnBuffers() ? "outs" : "result",
                                  getOutType(0))))
    return failure();
  if (isOnBuffers())
    return verifySymmetric(*this, "outs", getOutType(0), getMeshAttr());
  if (getDirection() == Direction::TokensToHeads)
    return verifySameDim(*this, "rows", {"result", getOutType(0), 0},
                         {"ids", getIds().getType(), 0});
  return success();
}

LogicalResult ExchangeOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  return verifyExchangeHeads(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                             getDirection(), shaped(getSources().front()),
                             isOnBuffers() ? "outs" : "result", getOutType(0),
                             getOffsets().getType());
}

void ExchangeOp::getEffects(Effects &effects) {
  getPeerEffects(effects);
  getTwoFormEffects(*this, effects);
}

Speculation::Speculatability ExchangeOp::getSpeculatability() {
  return Speculation::NotSpeculatable;
}

LogicalResult
ExchangeOp::reifyResultShapes(OpBuilder &builder,
                              ReifiedRankedShapedTypeDims &shapes) {
  ShapedType result = getOutType(0);
  SmallVector<OpFoldResult> sizes;
  if (!result.isDynamicDim(0))
    sizes.push_back(builder.getIndexAttr(result.getDimSize(0)));
  else if (getDirection() == Direction::HeadsToTokens)
    sizes.push_back(createGroupRows(builder, getLoc(), getOffsets(),
                                    getMeshAttr(), getAxisAttr()));
  else
    sizes.push_back(tensor::getMixedSize(builder, getLoc(), getIds(), 0));
  for (int64_t size : result.getShape().drop_front())
    sizes.push_back(builder.getIndexAttr(size));
  shapes.push_back(std::move(sizes));
  return success();
}

namespace {

/// Token shards that were just made into head shards need no exchange back.
struct ExchangeBack : OpRewritePattern<ExchangeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ExchangeOp op,
                                PatternRewriter &rewriter) const override {
    if (op.isOnBuffers() || op.getDirection() != Direction::HeadsToTokens ||
        op.getSources().size() != 1)
      return failure();
    auto first = op.getSources().front().getDefiningOp<ExchangeOp>();
    if (!first || first.getDirection() != Direction::TokensToHeads ||
        first.getIds() != op.getIds() ||
        first.getOffsets() != op.getOffsets() ||
        first.getDecodes() != op.getDecodes() ||
        first.getMesh() != op.getMesh() || first.getAxis() != op.getAxis() ||
        first.getSources().front().getType() != op->getResult(0).getType())
      return failure();
    rewriter.replaceOp(op, first.getSources().front());
    // Every rank folds the same pair, so dropping the first one is dropping it
    // everywhere.
    if (first->use_empty())
      rewriter.eraseOp(first);
    return success();
  }
};

/// With one rank, heads_to_tokens drops the decode rows and joins the parts:
/// the one rank's tokens are all tokens in order, if the split says so.
struct ExchangeOfOneRank : OpRewritePattern<ExchangeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ExchangeOp op,
                                PatternRewriter &rewriter) const override {
    if (op.isOnBuffers() || op.getDirection() != Direction::HeadsToTokens)
      return failure();
    MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
    auto split = op.getIds().getDefiningOp<ZigzagSplitOp>();
    if (!over || over.axis.getSize() != 1 || !split || split.isOnBuffers() ||
        op.getIds() != split->getResult(0) ||
        op.getOffsets() != split->getResult(1) ||
        op.getDecodes() != split.getDecodes())
      return failure();
    // What a type promises is compared where an exchange is carried out.
    if (!op.getOutType(0).isDynamicDim(0))
      return failure();
    Location loc = op.getLoc();
    auto [begin, rows] = getCommonRows(rewriter, op, split.getRows());
    SmallVector<Value> parts;
    for (Value source : op.getSources()) {
      SmallVector<OpFoldResult> sizes =
          tensor::getMixedSizes(rewriter, loc, source);
      SmallVector<OpFoldResult> offsets(sizes.size(), rewriter.getIndexAttr(0));
      SmallVector<OpFoldResult> ones(sizes.size(), rewriter.getIndexAttr(1));
      offsets.front() = begin;
      sizes.front() = rows;
      parts.push_back(tensor::ExtractSliceOp::create(rewriter, loc, source,
                                                     offsets, sizes, ones));
    }
    Value joined = parts.front();
    if (parts.size() == 2)
      joined = tensor::ConcatOp::create(rewriter, loc, 2, parts);
    if (joined.getType() != op->getResult(0).getType())
      joined = tensor::CastOp::create(rewriter, loc, op->getResult(0).getType(),
                                      joined);
    rewriter.replaceOp(op, joined);
    return success();
  }

private:
  /// First of the tokens' rows, and how many there are, no more than all
  /// sources have. Sources that may not have the step's rows are compared.
  static std::pair<Value, Value> getCommonRows(OpBuilder &b, ExchangeOp op,
                                               Value step) {
    Location loc = op.getLoc();
    Value rows = createGroupRows(b, loc, op.getOffsets(), op.getMeshAttr(),
                                 op.getAxisAttr());
    Value least = step;
    for (OpOperand &source : op.getSourcesMutable()) {
      OpFoldResult size = tensor::getMixedSize(b, loc, source.get(), 0);
      auto dim = step.getDefiningOp<tensor::DimOp>();
      bool isSame =
          dim && dim.getSource() == source.get() && dim.getConstantIndex() == 0;
      if (isSame || isEqualConstantIntOrValue(size, step))
        continue;
      Value found = getValueOrCreateConstantIndexOp(b, loc, size);
      ExpectOp::create(b, loc, describeRows(source), found, step);
      least = arith::MinSIOp::create(b, loc, least, found);
    }
    Value none = arith::ConstantIndexOp::create(b, loc, 0);
    Value begin = arith::MinSIOp::create(
        b, loc, arith::MaxSIOp::create(b, loc, op.getDecodes(), none), least);
    Value rest = arith::SubIOp::create(b, loc, least, begin);
    return {begin, arith::MinSIOp::create(b, loc, rows, rest)};
  }
};

} // namespace

void ExchangeOp::getCanonicalizationPatterns(RewritePatternSet &results,
                                             MLIRContext *context) {
  results.add<ExchangeBack, ExchangeOfOneRank>(context);
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

SHARDQ_TWO_FORM_EFFECTS(ZigzagSplitOp)
SHARDQ_TWO_FORM_EFFECTS(LocalRowsOp)
SHARDQ_TWO_FORM_EFFECTS(TakeRowsOp)
