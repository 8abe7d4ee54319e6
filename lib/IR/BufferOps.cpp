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

ParseResult mlir::shardq::parsePushTypes(OpAsmParser &parser,
                                         SmallVectorImpl<Type> &sources,
                                         Type &ids, Type &offsets, Type &blocks,
                                         Type &inbox) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Type> others;
  if (parser.parseLParen() || parser.parseTypeList(sources) ||
      parser.parseRParen() || parser.parseComma() ||
      parser.parseTypeList(others))
    return failure();
  if (others.empty() || others.size() > 3)
    return parser.emitError(loc, "expected the type of the inbox behind those "
                                 "of the sources, or of blocks and inbox, or "
                                 "of ids, offsets and inbox");
  inbox = others.back();
  if (others.size() == 3) {
    ids = others[0];
    offsets = others[1];
  } else if (others.size() == 2) {
    blocks = others[0];
  }
  return success();
}

void mlir::shardq::printPushTypes(OpAsmPrinter &printer, Operation *,
                                  TypeRange sources, Type ids, Type offsets,
                                  Type blocks, Type inbox) {
  printer << "(" << sources << "), ";
  if (ids)
    printer << ids << ", " << offsets << ", ";
  if (blocks)
    printer << blocks << ", ";
  printer << inbox;
}

/// Sources and inbox of a push of partial outputs.
static LogicalResult verifyScatterShapes(PushOp op) {
  unsigned numSources = op.getSources().size();
  if (numSources != 1 && numSources != 2)
    return op.emitOpError("has ")
           << numSources << " sources, expected partial outputs, with or "
           << "without their LSE";
  bool hasLse = numSources == 2;
  ShapedType partial = shaped(op.getSources()[0]);
  ShapedType inbox = shaped(op.getInbox());
  for (Value source : op.getSources())
    if (Type element = shaped(source).getElementType();
        !element.isF32() && !element.isF16() && !element.isBF16())
      return op.emitOpError("scatters partial outputs of element type ")
             << element << ", expected bf16, f16 or f32";
  if (failed(hasLse ? verifyPartial(op, partial, shaped(op.getSources()[1]))
                    : verifyHeads(op, "partial", partial)) ||
      failed(verifyRank(op, "inbox", inbox, 3)) ||
      failed(verifySameElement(op, "inbox", inbox, "partial", partial)) ||
      failed(verifyStaticDim(op, "heads", {"inbox", inbox, 1})))
    return failure();
  bool isByRows = op.getDirection() == Direction::ScatterRows;
  if (isByRows && !hasLse)
    return op.emitOpError("has 1 source, expected partial outputs and their "
                          "LSE");
  if (isByRows && failed(verifySameDim(op, "heads", {"inbox", inbox, 1},
                                       {"partial", partial, 1})))
    return failure();
  int64_t values = partial.getDimSize(2);
  int64_t width =
      hasLse ? getPartialWidth(partial.getElementType(), values) : values;
  if (inbox.getDimSize(2) == width)
    return success();
  InFlightDiagnostic diag = op.emitOpError("'inbox' is ")
                            << inbox << ", expected " << width
                            << " elements a head";
  if (hasLse)
    diag << ": " << values << " values and " << kLseBytes
         << " bytes for the LSE";
  return diag;
}

/// Sources and inbox of a push of rows, or of the rows of blocks.
static LogicalResult verifyGatherRows(PushOp op) {
  if (!op.getBlocks())
    return verifyJoinedRows(op, "inbox", shaped(op.getInbox()),
                            op.getSources());
  int64_t width, blockSize = *op.getBlockSize();
  if (failed(verifyGatheredSources(op, op.getSources(), width)) ||
      failed(verifyBlocks(op, blockSize,
                          op.getBlockStrideRows().value_or(blockSize))))
    return failure();
  return verifyGatheredRows(op, "inbox", shaped(op.getInbox()),
                            op.getSources().front().getType(), width);
}

/// Sources and inbox, by what moves where.
static LogicalResult verifyPushedShapes(PushOp op) {
  switch (op.getDirection()) {
  case Direction::GatherHeads:
    return verifyGatherShapes(op, op.getSources(), "inbox",
                              shaped(op.getInbox()));
  case Direction::ScatterHeads:
  case Direction::ScatterRows:
    return verifyScatterShapes(op);
  case Direction::GatherRows:
    return verifyGatherRows(op);
  case Direction::HeadsToTokens:
  case Direction::TokensToHeads:
    return verifyExchangeShapes(op, op.getDirection(), op.getSources(), {},
                                "inbox", shaped(op.getInbox()));
  }
  llvm_unreachable("unknown direction");
}

LogicalResult PushOp::verify() {
  bool byOffsets = isByOffsets();
  if (byOffsets != bool(getIds()) || byOffsets != bool(getOffsets()) ||
      byOffsets != bool(getDecodes()))
    return emitOpError("is ")
           << stringifyDirection(getDirection()) << ", expected "
           << (byOffsets ? "'ids', 'offsets' and 'decodes'"
                         : "no 'ids', 'offsets' or 'decodes'");
  bool ofRows = getDirection() == Direction::GatherRows;
  if (!ofRows && (getBlocks() || getBlockSize() || getBlockStrideRows()))
    return emitOpError("is ")
           << stringifyDirection(getDirection())
           << ", expected no 'blocks', 'block_size' or 'block_stride_rows'";
  Type element = shaped(getInbox()).getElementType();
  if (!ofRows && (element.isInteger(32) || element.isInteger(64)))
    return emitOpError("is ")
           << stringifyDirection(getDirection()) << " of " << element
           << ", expected bf16, f16, f32, i8, f8E4M3FN or f8E5M2";
  if (getPaddedHeads() && getDirection() != Direction::GatherHeads)
    return emitOpError("is ") << stringifyDirection(getDirection())
                              << ", expected no 'padded_heads'";
  if (bool(getBlocks()) != getBlockSize().has_value() ||
      (getBlockStrideRows() && !getBlocks()))
    return emitOpError("'blocks' and 'block_size' stand together, and "
                       "'block_stride_rows' only with them");
  if (failed(verifyPushedShapes(*this)) ||
      failed(verifySymmetric(*this, "inbox", getInbox().getType(),
                             getMeshAttr())) ||
      failed(verifyNotNegative(*this, "capacity", getCapacity())) ||
      failed(verifyNotNegative(*this, "channel", int32_t(getChannel()))))
    return failure();
  if (TransportAttr transport = getTransportAttr();
      transport && transport.getValue() != Transport::Direct &&
      transport.getValue() != Transport::Nccl)
    return emitOpError("transport is ")
           << stringifyTransport(transport.getValue())
           << ", expected direct or nccl";
  return verifyNotNegative(*this, "exchange", int32_t(getExchange()));
}

LogicalResult PushOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  ShapedType source = shaped(getSources().front()), inbox = shaped(getInbox());
  if (getDirection() == Direction::GatherRows ||
      getDirection() == Direction::ScatterRows) {
    AxisAttr axis =
        verifyAxis(*this, symbolTable, getMeshAttr(), getAxisAttr());
    if (!axis)
      return failure();
    if (getCapacity() % axis.getSize() == 0)
      return success();
    return emitOpError("capacity is ")
           << getCapacity() << ", expected a multiple of " << axis.getSize()
           << ": each rank has as many rows of the inbox";
  }
  if (getDirection() == Direction::GatherHeads)
    return verifyGroupHeads(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                            source, "inbox", inbox, getPaddedHeads());
  if (getDirection() == Direction::ScatterHeads)
    return verifyGroupHeads(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                            inbox, "partial", source);
  return verifyExchangeHeads(*this, symbolTable, getMeshAttr(), getAxisAttr(),
                             getDirection(), shaped(getSources().front()),
                             "inbox", shaped(getInbox()),
                             getOffsets().getType());
}

/// `push`, `signal` and `wait` stay in program order among themselves and
/// with everything that touches an inbox.
static void getProtocolEffects(Operation *op, Effects &effects) {
  getPeerEffects(effects);
  // The inbox is filled by peers between signal and wait, unseen by any
  // operand: reads and writes of all memory stay on their side.
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}

void PushOp::getEffects(Effects &effects) {
  getProtocolEffects(*this, effects);
}

template <typename OpTy> static LogicalResult verifyFlagOperands(OpTy op) {
  bool byOffsets = op.isByOffsets();
  if (byOffsets == bool(op.getOffsets()) && byOffsets != bool(op.getRows()))
    return success();
  return op.emitOpError("is ")
         << stringifyDirection(op.getDirection()) << ", expected "
         << (byOffsets ? "'by' offsets and no 'rows'"
                       : "'rows' and no 'by' offsets");
}

#define SHARDQ_FLAG_OP(OP)                                                     \
  LogicalResult OP::verify() {                                                 \
    if (failed(verifyFlagOperands(*this)))                                     \
      return failure();                                                        \
    if (failed(verifyNotNegative(*this, "channel", int32_t(getChannel()))))    \
      return failure();                                                        \
    return verifyNotNegative(*this, "exchange", int32_t(getExchange()));       \
  }                                                                            \
  LogicalResult OP::verifySymbolUses(SymbolTableCollection &symbolTable) {     \
    if (!getOffsets())                                                         \
      return success(verifyAxis(*this, symbolTable, getMeshAttr(),             \
                                getAxisAttr()) != nullptr);                    \
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
