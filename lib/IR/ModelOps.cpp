//===- ModelOps.cpp - Level 1: the model ----------------------------------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringMap.h"
#include <cmath>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

//===----------------------------------------------------------------------===//
// MeshOp
//===----------------------------------------------------------------------===//

static ParseResult parseAxes(OpAsmParser &parser, ArrayAttr &axes) {
  SmallVector<Attribute> list;
  auto parseAxis = [&]() -> ParseResult {
    std::string name, parent;
    int64_t size;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseString(&name) || parser.parseEqual() ||
        parser.parseInteger(size))
      return failure();
    StringAttr parentAttr;
    if (succeeded(parser.parseOptionalKeyword("in"))) {
      if (parser.parseString(&parent))
        return failure();
      parentAttr = parser.getBuilder().getStringAttr(parent);
    }
    SmallVector<StringAttr> parts;
    auto parsePart = [&]() -> ParseResult {
      std::string part;
      if (parser.parseString(&part))
        return failure();
      parts.push_back(parser.getBuilder().getStringAttr(part));
      return success();
    };
    if (succeeded(parser.parseOptionalKeyword("of"))) {
      if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                         parsePart))
        return failure();
      if (parts.empty())
        return parser.emitError(loc)
               << "axis \"" << name << "\" joins 0 axes, expected two or more";
    }
    if (failed(AxisAttr::verify([&] { return parser.emitError(loc); }, name,
                                size, parentAttr, parts)))
      return failure();
    list.push_back(
        AxisAttr::get(parser.getContext(), name, size, parentAttr, parts));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseAxis))
    return failure();
  axes = parser.getBuilder().getArrayAttr(list);
  return success();
}

static void printAxes(OpAsmPrinter &printer, MeshOp, ArrayAttr axes) {
  printer << "[";
  llvm::interleaveComma(axes.getAsRange<AxisAttr>(), printer,
                        [&](AxisAttr axis) {
                          printer.printString(axis.getName());
                          printer << " = " << axis.getSize();
                          if (axis.getParent())
                            printer << " in " << axis.getParent();
                          if (axis.getParts().empty())
                            return;
                          printer << " of [";
                          llvm::interleaveComma(axis.getParts(), printer);
                          printer << "]";
                        });
  printer << "]";
}

/// The axes that `axis` joins stand before it, and their ranks together are
/// evenly spaced.
static LogicalResult verifyParts(MeshOp mesh, AxisAttr axis,
                                 const llvm::StringMap<AxisAttr> &seen) {
  auto fail = [&] {
    return mesh.emitOpError("axis \"") << axis.getName() << "\" ";
  };
  if (axis.getParts().size() < 2)
    return fail() << "joins " << axis.getParts().size()
                  << " axes, expected two or more";
  int64_t size = 1;
  for (StringAttr name : axis.getParts()) {
    AxisAttr part = seen.lookup(name.getValue());
    if (!part || !part.getParts().empty())
      return fail()
             << "joins " << name
             << ", expected an axis that stands before it and joins none";
    size *= part.getSize();
  }
  if (size != axis.getSize())
    return fail() << "has size " << axis.getSize() << ", expected " << size
                  << ", the product of those it joins";
  return success();
}

/// Once all axes are known, which say how far apart ranks are.
static LogicalResult verifySpacing(MeshOp mesh, AxisAttr axis) {
  SmallVector<AxisAttr> parts = mesh.getParts(axis);
  // One rank has no neighbours.
  llvm::erase_if(parts, [](AxisAttr part) { return part.getSize() == 1; });
  if (parts.empty())
    return success();
  for (auto [part, next] : llvm::zip(parts, llvm::drop_begin(parts))) {
    int64_t step = mesh.getStride(part);
    int64_t expected = mesh.getStride(next) * next.getSize();
    if (step != expected)
      return mesh.emitOpError("axis \"")
             << axis.getName() << "\" joins ranks that are not evenly spaced: "
             << "neighbours along \"" << part.getName() << "\" are " << step
             << " apart, expected " << expected << ", those along \""
             << next.getName() << "\" times their number";
  }
  return success();
}

LogicalResult MeshOp::verify() {
  if (getAxes().empty())
    return emitOpError("has no axis, expected at least one");
  llvm::StringMap<AxisAttr> seen;
  int64_t ranks = 1;
  for (AxisAttr axis : getAxes().getAsRange<AxisAttr>()) {
    if (StringAttr parent = axis.getParent()) {
      AxisAttr of = seen.lookup(parent.getValue());
      if (!of || of.getParent())
        return emitOpError("axis \"")
               << axis.getName() << "\" lies in " << parent
               << ", expected a top-level axis that stands before it";
      if (of.getSize() % axis.getSize() != 0)
        return emitOpError("axis \"")
               << axis.getName() << "\" has size " << axis.getSize()
               << ", expected a divisor of the size of " << parent << ", "
               << of.getSize();
    } else if (!axis.getParts().empty()) {
      if (failed(verifyParts(*this, axis, seen)))
        return failure();
    } else if (axis.getSize() > kMaxRanks ||
               (ranks *= axis.getSize()) > kMaxRanks) {
      return emitOpError("has more than ") << kMaxRanks << " ranks";
    }
    if (!seen.try_emplace(axis.getName(), axis).second)
      return emitOpError("names axis \"") << axis.getName() << "\" twice";
  }
  for (AxisAttr axis : getAxes().getAsRange<AxisAttr>())
    if (failed(verifySpacing(*this, axis)))
      return failure();
  return success();
}

SmallVector<AxisAttr> MeshOp::getParts(AxisAttr axis) {
  if (axis.getParts().empty())
    return {axis};
  return llvm::map_to_vector(axis.getParts(), [&](StringAttr name) {
    return lookupAxis(name.getValue());
  });
}

AxisAttr MeshOp::lookupAxis(StringRef name) {
  for (AxisAttr axis : getAxes().getAsRange<AxisAttr>())
    if (axis.getName() == name)
      return axis;
  return {};
}

int64_t MeshOp::getNumRanks() {
  int64_t ranks = 1;
  for (AxisAttr axis : getAxes().getAsRange<AxisAttr>())
    if (axis.isTop())
      ranks *= axis.getSize();
  return ranks;
}

int64_t MeshOp::getStride(AxisAttr axis) {
  // Evenly spaced, the last part fastest.
  if (!axis.getParts().empty()) {
    SmallVector<AxisAttr> parts = getParts(axis);
    while (parts.size() > 1 && parts.back().getSize() == 1)
      parts.pop_back();
    return getStride(parts.back());
  }
  // A sub-axis is the fastest part of its parent: the same stride.
  StringRef top =
      axis.getParent() ? axis.getParent().getValue() : axis.getName();
  int64_t stride = 1;
  bool behind = false;
  for (AxisAttr other : getAxes().getAsRange<AxisAttr>()) {
    if (behind && other.isTop())
      stride *= other.getSize();
    behind |= other.getName() == top;
  }
  return stride;
}

//===----------------------------------------------------------------------===//
// ExpandRowsOp
//===----------------------------------------------------------------------===//

/// `query_start` has one entry more than `seq_lens`.
static LogicalResult verifyRequests(Operation *op, Type queryStart,
                                    Type seqLens) {
  int64_t starts = cast<ShapedType>(queryStart).getDimSize(0);
  int64_t requests = cast<ShapedType>(seqLens).getDimSize(0);
  if (ShapedType::isDynamic(starts) || ShapedType::isDynamic(requests) ||
      starts == requests + 1)
    return success();
  return op->emitOpError("'query_start' has ")
         << starts << " entries, expected " << requests + 1
         << ", one more than 'seq_lens'";
}

LogicalResult ExpandRowsOp::verify() {
  if (failed(verifyTwoForms(*this, 2, 2)) ||
      failed(verifyRequests(*this, getQueryStart().getType(),
                            getSeqLens().getType())) ||
      failed(verifySameDim(*this, "rows", {"visible", getOutType(1), 0},
                           {"req", getOutType(0), 0})))
    return failure();
  return verifyNotNegative(*this, "speculative_tokens", getSpeculativeTokens());
}

/// The size of dimension `dim` of result `n`: its static size, or `dynamic`.
static OpFoldResult sizeOr(OpBuilder &builder, Value result, unsigned dim,
                           Value dynamic) {
  int64_t size = cast<ShapedType>(result.getType()).getDimSize(dim);
  if (ShapedType::isDynamic(size))
    return dynamic;
  return builder.getIndexAttr(size);
}

LogicalResult
ExpandRowsOp::reifyResultShapes(OpBuilder &builder,
                                ReifiedRankedShapedTypeDims &shapes) {
  for (Value result : getResults())
    shapes.push_back({sizeOr(builder, result, 0, getRows())});
  return success();
}

//===----------------------------------------------------------------------===//
// IndexerOp
//===----------------------------------------------------------------------===//

LogicalResult IndexerOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)))
    return failure();
  Type q = getQ().getType(), out = getOutType(0);
  NamedDim rows{"q", q, 0};
  if (failed(verifySameDim(*this, "rows",
                           {"weights", getWeights().getType(), 0}, rows)) ||
      failed(
          verifySameDim(*this, "rows", {"req", getReq().getType(), 0}, rows)) ||
      failed(verifySameDim(*this, "rows",
                           {"visible", getVisible().getType(), 0}, rows)) ||
      failed(verifySameDim(*this, "rows", {"result", out, 0}, rows)) ||
      failed(verifyStaticDim(*this, "heads", {"q", q, 1})) ||
      failed(verifyStaticDim(*this, "head dimension", {"q", q, 2})) ||
      failed(verifyStaticDim(*this, "k", {"result", out, 1})) ||
      failed(verifySameDim(*this, "heads",
                           {"weights", getWeights().getType(), 1},
                           {"q", q, 1})) ||
      failed(verifySameDim(*this, "values in a row",
                           {"keys", getKeys().getType(), 1}, {"q", q, 2})) ||
      failed(verifySameElement(*this, "keys", getKeys().getType(), "q", q)) ||
      failed(verifySameView(*this, "keys", getKeys().getType(), "table",
                            getTable().getType())))
    return failure();
  return verifyBlocks(*this, getBlockSize(), getBlockStride());
}

bool IndexerOp::isRowOperand(OpOperand &operand) {
  unsigned number = operand.getOperandNumber();
  return number != getKeysMutable().getOperandNumber() &&
         number != getTableMutable().getOperandNumber();
}

LogicalResult
IndexerOp::reifyResultShapes(OpBuilder &builder,
                             ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getQ(), 0),
                    builder.getIndexAttr(getK())});
  return success();
}

//===----------------------------------------------------------------------===//
// TopKOp
//===----------------------------------------------------------------------===//

LogicalResult TopKOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)))
    return failure();
  NamedDim rows{"scores", getScores().getType(), 0};
  if (failed(verifySameDim(*this, "rows",
                           {"visible", getVisible().getType(), 0}, rows)) ||
      failed(verifySameDim(*this, "rows", {"result", getOutType(0), 0}, rows)))
    return failure();
  return verifyStaticDim(*this, "k", {"result", getOutType(0), 1});
}

bool TopKOp::isRowOperand(OpOperand &) { return true; }

LogicalResult TopKOp::reifyResultShapes(OpBuilder &builder,
                                        ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back({tensor::getMixedSize(builder, getLoc(), getScores(), 0),
                    builder.getIndexAttr(getK())});
  return success();
}

//===----------------------------------------------------------------------===//
// ConvertIndicesOp
//===----------------------------------------------------------------------===//

LogicalResult ConvertIndicesOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 2)))
    return failure();
  if (!getPrefillReq() != !getWorkspaceStart())
    return emitOpError("'prefill_req' and 'workspace_start' stand together");
  Type indices = getIndices().getType(), slots = getOutType(0);
  NamedDim rows{"indices", indices, 0};
  if (failed(verifyRank(*this, "slots", slots, 2)) ||
      failed(
          verifySameDim(*this, "rows", {"req", getReq().getType(), 0}, rows)) ||
      failed(verifySameDim(*this, "rows", {"slots", slots, 0}, rows)) ||
      failed(verifySameDim(*this, "columns", {"slots", slots, 1},
                           {"indices", indices, 1})) ||
      failed(verifyColumns(*this, "indices", indices)) ||
      failed(
          verifySameView(*this, "slots", slots, "table", getTable().getType())))
    return failure();
  if (getPrefillReq() &&
      failed(verifySameDim(
          *this, "rows", {"prefill_req", getPrefillReq().getType(), 0}, rows)))
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
  return verifyBlocks(*this, getBlockSize(), getBlockStride());
}

bool ConvertIndicesOp::isRowOperand(OpOperand &operand) {
  if (operand.getOperandNumber() == getTableMutable().getOperandNumber())
    return false;
  MutableOperandRange starts = getWorkspaceStartMutable();
  return starts.empty() ||
         operand.getOperandNumber() != starts[0].getOperandNumber();
}

LogicalResult
ConvertIndicesOp::reifyResultShapes(OpBuilder &builder,
                                    ReifiedRankedShapedTypeDims &shapes) {
  return reifySlots(builder, getLoc(), getIndices(), getNumOuts() == 2, shapes);
}

//===----------------------------------------------------------------------===//
// SparseMlaOp
//===----------------------------------------------------------------------===//

/// Rows of the keys are of one element type with those of q, or packed.
static LogicalResult verifyKeys(SparseMlaOp op, Type q, Type kv) {
  if (failed(verifySameView(op, "slots", op.getSlots().getType(), "kv", kv)))
    return failure();
  PackedRowsAttr format = op.getKvFormatAttr();
  if (!format)
    return verifySameElement(op, "q", q, "kv", kv);
  if (failed(verifyPackedRows(op, "kv", kv, format)))
    return failure();
  Type element = cast<ShapedType>(q).getElementType();
  if (element.isBF16())
    return success();
  return op.emitOpError("'q' has element type ")
         << element << ", expected bf16 as of 'kv' unpacked";
}

LogicalResult SparseMlaOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 2)))
    return failure();
  if (getQ().size() != 1 && getQ().size() != 2)
    return emitOpError("has ") << getQ().size() << " q parts, expected 1 or 2";
  ShapedType out = getOutType(0);
  Type q = getQ().front().getType(), kv = getKv().getType();
  if (failed(verifyRank(*this, "out", out, 3)))
    return failure();

  NamedDim rows{"q", q, 0}, heads{"q", q, 1};
  int64_t queryDim = 0;
  for (Value part : getQ()) {
    Type type = part.getType();
    if (failed(verifyStaticDim(*this, "heads", {"q", type, 1})) ||
        failed(verifyStaticDim(*this, "head dimension", {"q", type, 2})) ||
        failed(verifySameDim(*this, "rows", {"q", type, 0}, rows)) ||
        failed(verifySameDim(*this, "heads", {"q", type, 1}, heads)) ||
        failed(verifyKeys(*this, type, kv)))
      return failure();
    queryDim += cast<ShapedType>(type).getDimSize(2);
  }
  if (failed(verifyStaticDim(*this, "values in a row", {"kv", kv, 1})) ||
      failed(verifyStaticDim(*this, "heads", {"out", out, 1})) ||
      failed(verifyStaticDim(*this, "value dimension", {"out", out, 2})))
    return failure();
  if (queryDim != getQueryDim())
    return emitOpError("q parts have ")
           << queryDim << " values a head, expected " << getQueryDim()
           << ", the size of a 'kv' row";
  if (getValueDim() > getQueryDim())
    return emitOpError("'out' has ")
           << getValueDim() << " values a head, expected at most "
           << getQueryDim() << ", the size of a 'kv' row";
  if (failed(verifySameElement(*this, "out", out, "q", q)) ||
      failed(verifySameDim(*this, "rows", {"out", out, 0}, rows)) ||
      failed(verifySameDim(*this, "heads", {"out", out, 1}, heads)) ||
      failed(verifySameDim(*this, "rows", {"slots", getSlots().getType(), 0},
                           rows)) ||
      failed(verifyColumns(*this, "slots", getSlots().getType())))
    return failure();
  if (failed(verifySlotsReach(*this, getSlots().getType(), {"kv", kv, 0})))
    return failure();
  if (getReq() && failed(verifySameDim(*this, "rows",
                                       {"req", getReq().getType(), 0}, rows)))
    return failure();
  if (getTopkLength() &&
      failed(verifySameDim(
          *this, "rows", {"topk_length", getTopkLength().getType(), 0}, rows)))
    return failure();
  if (hasLse()) {
    ShapedType lse = getOutType(1);
    if (failed(verifyRank(*this, "lse", lse, 2)) ||
        failed(verifySameDim(*this, "rows", {"lse", lse, 0}, rows)) ||
        failed(verifySameDim(*this, "heads", {"lse", lse, 1}, heads)))
      return failure();
    if (!lse.getElementType().isF32())
      return emitOpError("'lse' has element type ")
             << lse.getElementType() << ", expected f32";
  }
  if (!std::isfinite(getScale().convertToFloat()))
    return emitOpError("scale is not finite");
  return success();
}

/// Whether heads or tokens are divided over the axis or its parent.
static bool isOverAxis(ShardingAttr sharding, AxisAttr axis) {
  return llvm::any_of(sharding.getAxes(), [&](StringAttr name) {
    return name == axis.getName() || name == axis.getParent();
  });
}

/// The KV axes exist, and a group along one shares its queries among itself, or
/// has the same ones.
static LogicalResult verifyKvAxes(SparseMlaOp op,
                                  SymbolTableCollection &symbolTable,
                                  ShardingAttr sharding) {
  if (sharding.isOverKv() &&
      failed(verifyNoView(op, "kv", op.getKv().getType())))
    return failure();
  for (StringAttr name : sharding.getKv()) {
    AxisAttr axis = verifyAxis(op, symbolTable, sharding.getMesh(), name);
    if (!axis)
      return failure();
    auto mesh =
        symbolTable.lookupNearestSymbolFrom<MeshOp>(op, sharding.getMesh());
    // The members of other parts have the same queries.
    if (llvm::any_of(mesh.getParts(axis),
                     [&](AxisAttr part) { return isOverAxis(sharding, part); }))
      continue;
    return op.emitOpError("has KV sharded over axis ")
           << name << ", expected one of the axes of "
           << (sharding.isOverHeads() ? "heads" : "tokens")
           << ", a sub-axis of one, or an axis that joins one with others";
  }
  return success();
}

LogicalResult
SparseMlaOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  int64_t ranks = 1;
  if (ShardingAttr sharding = getShardingAttr())
    for (StringAttr axis : sharding.getAxes()) {
      AxisAttr found = verifyAxis(*this, symbolTable, sharding.getMesh(), axis);
      if (!found)
        return failure();
      if (sharding.isOverHeads())
        ranks *= found.getSize();
    }
  if (ShardingAttr sharding = getShardingAttr())
    if (failed(verifyKvAxes(*this, symbolTable, sharding)))
      return failure();
  if (!getSink())
    return success();
  int64_t heads = getNumHeads(), sinks = shaped(getSink()).getDimSize(0);
  if (sinks == heads || sinks == heads * ranks)
    return success();
  InFlightDiagnostic diag = emitOpError("'sink' is ")
                            << getSink().getType() << ", expected " << heads
                            << " entries";
  if (ranks > 1)
    diag << " (this rank's heads) or " << heads * ranks << " (all heads)";
  return diag;
}

bool SparseMlaOp::isRowOperand(OpOperand &operand) {
  if (operand.getOperandNumber() == getKvMutable().getOperandNumber())
    return false;
  MutableOperandRange sinks = getSinkMutable();
  return sinks.empty() ||
         operand.getOperandNumber() != sinks[0].getOperandNumber();
}

LogicalResult
SparseMlaOp::reifyResultShapes(OpBuilder &builder,
                               ReifiedRankedShapedTypeDims &shapes) {
  OpFoldResult rows =
      tensor::getMixedSize(builder, getLoc(), getQ().front(), 0);
  OpFoldResult heads = builder.getIndexAttr(getNumHeads());
  shapes.push_back({rows, heads, builder.getIndexAttr(getValueDim())});
  if (hasLse())
    shapes.push_back({rows, heads});
  return success();
}

//===----------------------------------------------------------------------===//
// TapOp
//===----------------------------------------------------------------------===//

LogicalResult TapOp::verify() {
  if (getName().empty())
    return emitOpError("name is empty");
  if (getCount() && (!isa<MemRefType>(getValue().getType()) ||
                     cast<MemRefType>(getCount().getType()).getDimSize(0) != 1))
    return emitOpError("'count' is ")
           << getCount().getType() << " beside 'value' of "
           << getValue().getType() << ", expected memref<1xi64> and a buffer";
  if (!getRows())
    return success();
  if (isa<MemRefType>(getRows().getType()) !=
      isa<MemRefType>(getValue().getType()))
    return emitOpError("'rows' is ")
           << getRows().getType() << ", expected the form of 'value', "
           << getValue().getType();
  return verifySameDim(*this, "rows", {"rows", getRows().getType(), 0},
                       {"value", getValue().getType(), 0});
}

bool TapOp::isRowOperand(OpOperand &operand) {
  return operand.get() != getCount();
}

namespace {
/// Where taps go: nothing else reads it, and nothing may drop them.
struct TapResource : SideEffects::Resource::Base<TapResource> {
  StringRef getName() override { return "shardq.tap"; }
};
} // namespace

void TapOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Write::get(), TapResource::get());
  getReadEffects(*this, effects);
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

SHARDQ_TWO_FORM_EFFECTS(ExpandRowsOp)
SHARDQ_TWO_FORM_EFFECTS(IndexerOp)
SHARDQ_TWO_FORM_EFFECTS(TopKOp)
SHARDQ_TWO_FORM_EFFECTS(ConvertIndicesOp)
SHARDQ_TWO_FORM_EFFECTS(SparseMlaOp)

#define GET_OP_CLASSES
#include "shardq/IR/ShardQOps.cpp.inc"
