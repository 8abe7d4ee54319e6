//===- GatherOps.cpp - Level 2: gathered rows and KV ----------------------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::detail;

static LogicalResult verifyOneEntry(Operation *op, StringRef name, Type type) {
  if (cast<ShapedType>(type).getDimSize(0) == 1)
    return success();
  return op->emitOpError("'")
         << name << "' is " << type << ", expected 1 entry";
}

#define SHARDQ_ON_AXIS(OP)                                                     \
  LogicalResult OP::verifySymbolUses(SymbolTableCollection &symbolTable) {     \
    return success(verifyAxis(*this, symbolTable, getMeshAttr(),               \
                              getAxisAttr()) != nullptr);                      \
  }
SHARDQ_ON_AXIS(GatherBlocksOp)
SHARDQ_ON_AXIS(GatherKvStartOp)
SHARDQ_ON_AXIS(GatheredSlotsOp)
SHARDQ_ON_AXIS(GatherGateOp)
#undef SHARDQ_ON_AXIS

//===----------------------------------------------------------------------===//
// GatherRowsOp
//===----------------------------------------------------------------------===//

LogicalResult mlir::shardq::detail::verifySameRows(Operation *op,
                                                   StringRef name,
                                                   ShapedType rows,
                                                   ShapedType source) {
  if (failed(verifyRank(op, name, rows, source.getRank())) ||
      failed(verifySameElement(op, name, rows, "source", source)))
    return failure();
  for (int64_t dim = 1, rank = rows.getRank(); dim < rank; ++dim) {
    std::string what = "values in dimension " + std::to_string(dim);
    if (failed(
            verifyStaticDim(op, "size", {"source", source, unsigned(dim)})) ||
        failed(verifySameDim(op, what, {name, rows, unsigned(dim)},
                             {"source", source, unsigned(dim)})))
      return failure();
    if (rows.isDynamicDim(dim))
      return verifyStaticDim(op, "size", {name, rows, unsigned(dim)});
  }
  return success();
}

LogicalResult mlir::shardq::detail::verifyJoinedRows(Operation *op,
                                                     StringRef name,
                                                     ShapedType rows,
                                                     ValueRange sources) {
  if (failed(verifyOneOrTwo(op, sources)))
    return failure();
  ShapedType first = shaped(sources.front());
  for (Value source : sources)
    if (failed(verifySameView(op, name, rows, "source", source.getType())))
      return failure();
  if (sources.size() == 1)
    return verifySameRows(op, name, rows, first);
  unsigned last = first.getRank() - 1;
  if (failed(verifyRank(op, name, rows, first.getRank())))
    return failure();
  int64_t width = 0;
  for (Value source : sources) {
    ShapedType type = shaped(source);
    if (failed(verifyRank(op, "source", type, first.getRank())) ||
        failed(verifySameDim(op, "rows", {"source", type, 0},
                             {"source", first, 0})))
      return failure();
    // All but the last dimension as the result's.
    SmallVector<int64_t> shape(rows.getShape());
    shape[last] = type.getDimSize(last);
    if (failed(verifySameRows(op, name, rows.clone(shape), type)))
      return failure();
    width += type.getDimSize(last);
  }
  if (failed(verifyStaticDim(op, "size", {name, rows, last})))
    return failure();
  if (rows.getDimSize(last) == width)
    return success();
  return op->emitOpError("'")
         << name << "' has " << rows.getDimSize(last) << " values in dimension "
         << last << ", expected " << width << " as the sources together";
}

LogicalResult GatherRowsOp::verify() {
  StringRef name = isOnBuffers() ? "outs" : "result";
  if (failed(verifyTwoForms(*this, 1, 1)) ||
      failed(verifyJoinedRows(*this, name, getOutType(0), getSources())))
    return failure();
  if (isOnBuffers())
    return verifySymmetric(*this, name, getOutType(0), getMeshAttr());
  return success();
}

LogicalResult
GatherRowsOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  AxisAttr axis = verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr());
  if (!axis)
    return failure();
  return verifyTimesRanks(*this, "rows", axis,
                          {isOnBuffers() ? "outs" : "result", getOutType(0), 0},
                          {"source", getSources().front().getType(), 0});
}

LogicalResult
GatherRowsOp::reifyResultShapes(OpBuilder &builder,
                                ReifiedRankedShapedTypeDims &shapes) {
  Location loc = getLoc();
  MeshAxis over =
      lookupMeshAxis(*this, getMeshAttr(), getAxisAttr().getValue());
  if (!over)
    return failure();
  ShapedType out = getOutType(0);
  SmallVector<OpFoldResult> sizes;
  if (out.isDynamicDim(0)) {
    Value rows = getValueOrCreateConstantIndexOp(
        builder, loc,
        tensor::getMixedSize(builder, loc, getSources().front(), 0));
    Value ranks =
        arith::ConstantIndexOp::create(builder, loc, over.axis.getSize());
    sizes.push_back(
        arith::MulIOp::create(builder, loc, rows, ranks).getResult());
  } else {
    sizes.push_back(builder.getIndexAttr(out.getDimSize(0)));
  }
  for (int64_t size : out.getShape().drop_front())
    sizes.push_back(builder.getIndexAttr(size));
  shapes.push_back(std::move(sizes));
  return success();
}

//===----------------------------------------------------------------------===//
// GatherBlocksOp
//===----------------------------------------------------------------------===//

LogicalResult GatherBlocksOp::verify() {
  if (failed(verifyTwoForms(*this, 3, 3)) ||
      failed(verifyRuns(*this, getInterleave(), getBlockSize())))
    return failure();
  ShapedType table = shaped(getTable()), blocks = getOutType(0);
  Type inverse = getOutType(1), count = getOutType(2);
  NamedDim requests{"table", table, 0};
  if (failed(verifySameDim(*this, "requests",
                           {"lengths", getLengths().getType(), 0}, requests)) ||
      failed(verifyRank(*this, "blocks", blocks, 1)) ||
      failed(verifyRank(*this, "inverse", inverse, 2)) ||
      failed(verifyRank(*this, "count", count, 1)) ||
      failed(verifyOneEntry(*this, "count", count)) ||
      failed(verifyNoView(*this, "table", table)) ||
      failed(verifyNoView(*this, "blocks", blocks)) ||
      failed(verifyNoView(*this, "inverse", inverse)))
    return failure();
  // What is computed is as wide as the table: sizes that types leave open for
  // one and not the other might differ.
  if (cast<ShapedType>(inverse).getShape() != table.getShape())
    return emitOpError("'inverse' is ")
           << inverse << ", expected the shape of 'table', " << table;
  int64_t found = blocks.getDimSize(0), entries;
  if (ShapedType::isDynamic(found))
    return success();
  if (table.hasStaticShape() &&
      !llvm::MulOverflow(table.getDimSize(0), table.getDimSize(1), entries) &&
      found == entries)
    return success();
  return emitOpError("'blocks' has ")
         << found << " entries, expected one for each of 'table', " << table;
}

LogicalResult
GatherBlocksOp::reifyResultShapes(OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &shapes) {
  Location loc = getLoc();
  OpFoldResult requests = tensor::getMixedSize(builder, loc, getTable(), 0);
  OpFoldResult width = tensor::getMixedSize(builder, loc, getTable(), 1);
  auto toValue = [&](OpFoldResult size) {
    return getValueOrCreateConstantIndexOp(builder, loc, size);
  };
  // A static size is what the result's own type has.
  ShapedType blocks = getOutType(0);
  if (blocks.isDynamicDim(0))
    shapes.push_back(
        {arith::MulIOp::create(builder, loc, toValue(requests), toValue(width))
             .getResult()});
  else
    shapes.push_back({builder.getIndexAttr(blocks.getDimSize(0))});
  shapes.push_back({requests, width});
  shapes.push_back({builder.getIndexAttr(1)});
  return success();
}

//===----------------------------------------------------------------------===//
// GatherKvStartOp
//===----------------------------------------------------------------------===//

GatherKvFinishOp GatherKvStartOp::getFinish() {
  if (!getHandle().hasOneUse())
    return {};
  return dyn_cast<GatherKvFinishOp>(*getHandle().user_begin());
}

Value GatherKvStartOp::createRows(OpBuilder &builder) {
  Location loc = getLoc();
  Value first = arith::ConstantIndexOp::create(builder, loc, 0), count;
  if (isOnBuffers())
    count = memref::LoadOp::create(builder, loc, getCount(), first);
  else
    count = tensor::ExtractOp::create(builder, loc, getCount(), first);
  count =
      arith::IndexCastOp::create(builder, loc, builder.getIndexType(), count);
  Value blockSize =
      arith::ConstantIndexOp::create(builder, loc, getBlockSize());
  return arith::MulIOp::create(builder, loc, count, blockSize);
}

LogicalResult mlir::shardq::detail::verifyGatheredSources(Operation *op,
                                                          ValueRange sources,
                                                          int64_t &width) {
  if (failed(verifyOneOrTwo(op, sources)))
    return failure();
  width = 0;
  Type first = sources.front().getType();
  for (Value source : sources) {
    ShapedType type = shaped(source);
    if (failed(verifyRank(op, "source", type, 2)) ||
        failed(verifyStaticDim(op, "dimension", {"source", type, 1})) ||
        failed(verifyNoView(op, "source", type)) ||
        failed(verifySameElement(op, "source", type, "source", first)) ||
        failed(verifySameDim(op, "rows", {"source", type, 0},
                             {"source", first, 0})))
      return failure();
    width += type.getDimSize(1);
  }
  return success();
}

LogicalResult mlir::shardq::detail::verifyGatheredRows(Operation *op,
                                                       StringRef name,
                                                       ShapedType rows,
                                                       Type source,
                                                       int64_t width) {
  if (failed(verifyRank(op, name, rows, 2)) ||
      failed(verifySameElement(op, name, rows, "source", source)))
    return failure();
  if (rows.getDimSize(1) == width)
    return success();
  return op->emitOpError("'")
         << name << "' is " << rows << ", expected rows of " << width
         << " values as the sources together";
}

LogicalResult GatherKvStartOp::verify() {
  int64_t width;
  if (failed(verifyGatheredSources(*this, getSources(), width)) ||
      failed(verifyNoView(*this, "blocks", getBlocks().getType())) ||
      failed(verifyOneEntry(*this, "count", getCount().getType())) ||
      failed(verifyBlocks(*this, getBlockSize(), getBlockStride())))
    return failure();
  for (auto [index, type] : llvm::enumerate(getOperandTypes()))
    if (isa<MemRefType>(type) != isOnBuffers())
      return emitOpError("operand #")
             << index << " is " << type << ", expected a "
             << (isOnBuffers() ? "memref" : "tensor") << " as 'blocks'";

  GatherKvFinishOp finish = getFinish();
  if (!finish) {
    InFlightDiagnostic diag =
        emitOpError("expects one use of the handle, by a '")
        << GatherKvFinishOp::getOperationName() << "'";
    for (Operation *user : getHandle().getUsers())
      diag.attachNote(user->getLoc()) << "it is used here";
    return diag;
  }
  if (finish->getBlock() != (*this)->getBlock())
    return success(); // said at the finish
  for (Operation *op = (*this)->getNextNode(); op && op != finish;
       op = op->getNextNode()) {
    WalkResult walk = op->walk([&](GatherKvStartOp other) {
      InFlightDiagnostic diag = other.emitOpError(
          "begins while another gather is under way: one at a time");
      diag.attachNote(getLoc()) << "the other one begins here";
      diag.attachNote(finish.getLoc()) << "and ends here";
      return WalkResult::interrupt();
    });
    if (walk.wasInterrupted())
      return failure();
  }
  return success();
}

void GatherKvStartOp::getEffects(Effects &effects) {
  getPeerEffects(effects);
  getReadEffects(*this, effects);
}

Speculation::Speculatability GatherKvStartOp::getSpeculatability() {
  return Speculation::NotSpeculatable;
}

//===----------------------------------------------------------------------===//
// GatherKvFinishOp
//===----------------------------------------------------------------------===//

GatherKvStartOp GatherKvFinishOp::getStart() {
  return getHandle().getDefiningOp<GatherKvStartOp>();
}
FlatSymbolRefAttr GatherKvFinishOp::getMeshAttr() {
  return getStart().getMeshAttr();
}
StringAttr GatherKvFinishOp::getAxisAttr() { return getStart().getAxisAttr(); }

// Asked for before the op is known to have a start.
TransportAttr GatherKvFinishOp::getTransportAttr() {
  GatherKvStartOp start = getStart();
  return start ? start.getTransportAttr() : TransportAttr();
}
void GatherKvFinishOp::setTransportAttr(TransportAttr transport) {
  getStart().setTransportAttr(transport);
}

LogicalResult GatherKvFinishOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)))
    return failure();
  GatherKvStartOp start = getStart();
  if (!start || start->getBlock() != (*this)->getBlock()) {
    InFlightDiagnostic diag = emitOpError("expects 'handle' to come from a '")
                              << GatherKvStartOp::getOperationName()
                              << "' of its block";
    if (start)
      diag.attachNote(start.getLoc()) << "it comes from here";
    return diag;
  }
  if (start.isOnBuffers() != isOnBuffers()) {
    InFlightDiagnostic diag =
        emitOpError("is on ")
        << (isOnBuffers() ? "buffers" : "tensors") << ", expected "
        << (isOnBuffers() ? "tensors" : "buffers") << " as its start";
    diag.attachNote(start.getLoc()) << "the gather starts here";
    return diag;
  }
  StringRef name = isOnBuffers() ? "outs" : "result";
  ShapedType out = getOutType(0);
  int64_t width = 0;
  for (Value source : start.getSources())
    width += shaped(source).getDimSize(1);
  if (failed(verifyGatheredRows(*this, name, out,
                                start.getSources().front().getType(), width)) ||
      failed(verifyNoView(*this, name, out)))
    return failure();
  if (!out.isDynamicDim(0))
    return emitOpError("'") << name << "' is " << out
                            << ", expected dynamic rows: how many blocks are "
                               "gathered is known at run time";
  if (isOnBuffers())
    return verifySymmetric(*this, name, out, getMeshAttr());
  return success();
}

LogicalResult
GatherKvFinishOp::reifyResultShapes(OpBuilder &builder,
                                    ReifiedRankedShapedTypeDims &shapes) {
  Location loc = getLoc();
  MeshAxis over =
      lookupMeshAxis(*this, getMeshAttr(), getAxisAttr().getValue());
  if (!over)
    return failure();
  Value ranks =
      arith::ConstantIndexOp::create(builder, loc, over.axis.getSize());
  Value rows = arith::MulIOp::create(builder, loc,
                                     getStart().createRows(builder), ranks);
  shapes.push_back({rows, builder.getIndexAttr(getOutType(0).getDimSize(1))});
  return success();
}

//===----------------------------------------------------------------------===//
// GatheredSlotsOp
//===----------------------------------------------------------------------===//

LogicalResult GatheredSlotsOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 2)) ||
      failed(verifyRuns(*this, getInterleave(), getBlockSize())) ||
      failed(verifyOneEntry(*this, "count", getCount().getType())))
    return failure();
  Type indices = getIndices().getType(), slots = getOutType(0);
  NamedDim rows{"indices", indices, 0};
  if (failed(verifyRank(*this, "slots", slots, 2)) ||
      failed(
          verifySameDim(*this, "rows", {"req", getReq().getType(), 0}, rows)) ||
      failed(verifySameDim(*this, "rows", {"slots", slots, 0}, rows)) ||
      failed(verifySameDim(*this, "columns", {"slots", slots, 1},
                           {"indices", indices, 1})) ||
      failed(verifyColumns(*this, "indices", indices)) ||
      failed(verifyNoView(*this, "inverse", getInverse().getType())) ||
      failed(verifyNoView(*this, "slots", slots)))
    return failure();
  if (getNumOuts() == 1)
    return success();
  ShapedType counts = getOutType(1);
  if (failed(verifyRank(*this, "counts", counts, 1)) ||
      failed(verifySameDim(*this, "rows", {"counts", counts, 0}, rows)))
    return failure();
  if (counts.getElementType().isInteger(32))
    return success();
  return emitOpError("'counts' has element type ")
         << counts.getElementType() << ", expected i32";
}

bool GatheredSlotsOp::isRowOperand(OpOperand &operand) {
  return operand.getOperandNumber() != getInverseMutable().getOperandNumber() &&
         operand.getOperandNumber() != getCountMutable().getOperandNumber();
}

LogicalResult
GatheredSlotsOp::reifyResultShapes(OpBuilder &builder,
                                   ReifiedRankedShapedTypeDims &shapes) {
  return reifySlots(builder, getLoc(), getIndices(), getNumOuts() == 2, shapes);
}

//===----------------------------------------------------------------------===//
// GatheredTableOp
//===----------------------------------------------------------------------===//

LogicalResult GatheredTableOp::verify() {
  if (failed(verifyTwoForms(*this, 1, 1)) ||
      failed(verifyInterleave(*this, getInterleave())) ||
      failed(verifyBlocks(*this, getBlockSize(), getBlockSize())) ||
      failed(verifyOneEntry(*this, "count", getCount().getType())) ||
      failed(verifyNoView(*this, "inverse", getInverse().getType())) ||
      failed(verifyNoView(*this, "result", getOutType(0))))
    return failure();
  if (getInterleave() % getBlockSize() != 0)
    return emitOpError("interleave is ")
           << getInterleave() << ", expected a multiple of block_size, "
           << getBlockSize() << ": no block of gathered rows holds neighbours";
  return verifySameDim(*this, "requests", {"result", getOutType(0), 0},
                       {"inverse", getInverse().getType(), 0});
}

LogicalResult
GatheredTableOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  AxisAttr axis = verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr());
  if (!axis)
    return failure();
  return verifyTimesRanks(*this, "columns", axis, {"result", getOutType(0), 1},
                          {"inverse", getInverse().getType(), 1});
}

LogicalResult
GatheredTableOp::reifyResultShapes(OpBuilder &builder,
                                   ReifiedRankedShapedTypeDims &shapes) {
  return reifyWideTable(builder, *this, getInverse(), getMeshAttr(),
                        getAxisAttr(), shapes);
}

//===----------------------------------------------------------------------===//
// GatherGateOp
//===----------------------------------------------------------------------===//

LogicalResult GatherGateOp::verify() {
  if (failed(verifyOneEntry(*this, "count", getCount().getType())) ||
      failed(verifyBlocks(*this, getBlockSize(), getBlockSize())))
    return failure();
  return verifyNotNegative(*this, "max_blocks", getMaxBlocks().value_or(0));
}

void GatherGateOp::getEffects(Effects &effects) {
  getReadEffects(*this, effects);
}

Speculation::Speculatability GatherGateOp::getSpeculatability() {
  return getReaderSpeculatability(getQueryStart());
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

SHARDQ_TWO_FORM_EFFECTS(GatherBlocksOp)
SHARDQ_TWO_FORM_EFFECTS(GatheredSlotsOp)
SHARDQ_TWO_FORM_EFFECTS(GatheredTableOp)

SHARDQ_COLLECTIVE_EFFECTS(GatherRowsOp)
SHARDQ_COLLECTIVE_EFFECTS(GatherKvFinishOp)
