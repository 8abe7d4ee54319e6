//===- OpHelpers.cpp - Checks and effects shared by op files --------------===//

#include "OpHelpers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::shardq {

MeshAxis lookupMeshAxis(Operation *from, FlatSymbolRefAttr mesh,
                        StringRef axis) {
  auto meshOp = SymbolTable::lookupNearestSymbolFrom<MeshOp>(from, mesh);
  return {meshOp, meshOp ? meshOp.lookupAxis(axis) : AxisAttr()};
}

int64_t getNumKvRanks(Operation *from, ShardingAttr sharding) {
  int64_t ranks = 1;
  if (sharding)
    for (StringAttr axis : sharding.getKv())
      if (MeshAxis over = lookupMeshAxis(from, sharding.getMesh(), axis))
        ranks *= over.axis.getSize();
  return ranks;
}

Value createGroupRows(OpBuilder &builder, Location loc, Value offsets,
                      FlatSymbolRefAttr mesh, StringAttr axis) {
  Value rank = RankOp::create(builder, loc, builder.getIndexType(), mesh, axis);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value next = arith::AddIOp::create(builder, loc, rank, one);
  auto load = [&](Value index) -> Value {
    Value entry;
    if (isa<TensorType>(offsets.getType()))
      entry = tensor::ExtractOp::create(builder, loc, offsets, index);
    else
      entry = memref::LoadOp::create(builder, loc, offsets, index);
    return arith::IndexCastOp::create(builder, loc, builder.getIndexType(),
                                      entry);
  };
  Value begin = load(rank);
  return arith::SubIOp::create(builder, loc, load(next), begin);
}

namespace detail {

LogicalResult verifyTwoForms(TwoFormOpInterface op, unsigned min,
                             unsigned max) {
  unsigned numOuts = op.getOuts().size(), numResults = op->getNumResults();
  if (numOuts != 0 && numResults != 0)
    return op->emitOpError("has results and 'outs': expects results on "
                           "tensors, or 'outs' on buffers");
  unsigned found = numOuts + numResults;
  if (found < min || found > max) {
    InFlightDiagnostic diag = op->emitOpError("has ")
                              << found << " results and 'outs', expects "
                              << min;
    if (max != min)
      diag << " or " << max;
    return diag;
  }
  for (auto [index, operand] : llvm::enumerate(op.getIns())) {
    Type type = operand.getType();
    if (!isa<ShapedType>(type) || isa<MemRefType>(type) == (numOuts != 0))
      continue;
    return op->emitOpError("operand #")
           << index << " is " << type << ", expected a "
           << (numOuts ? "memref: the op has 'outs'"
                       : "tensor: the op has results");
  }
  return success();
}

LogicalResult verifySameDim(Operation *op, StringRef what, NamedDim dim,
                            NamedDim expected) {
  int64_t found = cast<ShapedType>(dim.type).getDimSize(dim.dim);
  int64_t want = cast<ShapedType>(expected.type).getDimSize(expected.dim);
  if (ShapedType::isDynamic(found) || ShapedType::isDynamic(want) ||
      found == want)
    return success();
  return op->emitOpError("'")
         << dim.name << "' has " << found << " " << what << ", expected "
         << want << " as '" << expected.name << "'";
}

ViewAttr getView(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? dyn_cast_if_present<ViewAttr>(tensor.getEncoding())
                : ViewAttr();
}

LogicalResult verifySameView(Operation *op, StringRef name, Type type,
                             StringRef expectedName, Type expected) {
  ViewAttr found = getView(type), want = getView(expected);
  if (found == want)
    return success();
  InFlightDiagnostic diag = op->emitOpError("'") << name << "' is " << type;
  if (want)
    return diag << ", expected " << want << " as '" << expectedName << "'";
  return diag << ", expected no view as '" << expectedName << "'";
}

LogicalResult verifyNoView(Operation *op, StringRef name, Type type) {
  ViewAttr found = getView(type);
  if (!found)
    return success();
  return op->emitOpError("'") << name << "' is " << type
                              << ", expected this rank's own and not " << found;
}

static constexpr int64_t kMaxStaticDim = int64_t(1) << 24;

LogicalResult verifyTimesRanks(Operation *op, StringRef what, AxisAttr axis,
                               NamedDim many, NamedDim few) {
  auto size = [](NamedDim dim) {
    return cast<ShapedType>(dim.type).getDimSize(dim.dim);
  };
  int64_t found = size(many), each = size(few), ranks = axis.getSize();
  if (ShapedType::isDynamic(found) ||
      (found % ranks == 0 && found / ranks == each))
    return success();
  InFlightDiagnostic error = op->emitOpError("'")
                             << many.name << "' has " << found << " " << what
                             << ", expected ";
  if (ShapedType::isDynamic(each))
    return error << "dynamic ones as '" << few.name << "'";
  return error << each << " of each of " << ranks << " ranks";
}

LogicalResult verifyStaticDim(Operation *op, StringRef what, NamedDim dim) {
  int64_t found = cast<ShapedType>(dim.type).getDimSize(dim.dim);
  if (ShapedType::isDynamic(found) || found <= 0)
    return op->emitOpError("'")
           << dim.name << "' is " << dim.type << ", expected static, positive "
           << what << " (dimension " << dim.dim << ")";
  // Products of these, of ranks and of bytes stay within 64 bits.
  if (found > kMaxStaticDim)
    return op->emitOpError("'") << dim.name << "' has " << found << " " << what
                                << ", expected at most " << kMaxStaticDim;
  return success();
}

LogicalResult verifySameElement(Operation *op, StringRef name, Type type,
                                StringRef expectedName, Type expected) {
  Type found = cast<ShapedType>(type).getElementType();
  Type want = cast<ShapedType>(expected).getElementType();
  if (found == want)
    return success();
  return op->emitOpError("'")
         << name << "' has element type " << found << ", expected " << want
         << " as '" << expectedName << "'";
}

LogicalResult verifyOneOrTwo(Operation *op, ValueRange sources) {
  if (sources.size() == 1 || sources.size() == 2)
    return success();
  return op->emitOpError("has ")
         << sources.size() << " sources, expected 1 or 2";
}

LogicalResult verifyRank(Operation *op, StringRef name, Type type,
                         int64_t rank) {
  int64_t found = cast<ShapedType>(type).getRank();
  if (found == rank)
    return success();
  return op->emitOpError("'")
         << name << "' has rank " << found << ", expected " << rank;
}

LogicalResult verifySlotsReach(Operation *op, Type slots, NamedDim pool) {
  int64_t rows = cast<ShapedType>(pool.type).getDimSize(pool.dim);
  if (!cast<ShapedType>(slots).getElementType().isInteger(32) ||
      ShapedType::isDynamic(rows) || llvm::isInt<32>(rows))
    return success();
  return op->emitOpError("'slots' has element type i32, expected i64 for the ")
         << rows << " rows of '" << pool.name << "'";
}

LogicalResult verifyBlocks(Operation *op, int64_t blockSize, int64_t stride) {
  if (blockSize <= 0)
    return op->emitOpError("block_size is ")
           << blockSize << ", expected a positive number of rows";
  if (stride < blockSize)
    return op->emitOpError("block_stride_rows is ")
           << stride << ", expected at least block_size, " << blockSize;
  // Blocks are numbered in 31 bits and rows in 63.
  constexpr int64_t most = int64_t(1) << 32;
  if (stride > most)
    return op->emitOpError("block_stride_rows is ")
           << stride << ", expected at most " << most;
  return success();
}

LogicalResult verifyColumns(Operation *op, StringRef name, Type type) {
  if (cast<ShapedType>(type).getDimSize(1) != 0)
    return success();
  return op->emitOpError("'")
         << name << "' is " << type << ", expected a column or more";
}

LogicalResult reifySlots(OpBuilder &builder, Location loc, Value indices,
                         bool hasCounts, ReifiedRankedShapedTypeDims &shapes) {
  OpFoldResult rows = tensor::getMixedSize(builder, loc, indices, 0);
  shapes.push_back({rows, tensor::getMixedSize(builder, loc, indices, 1)});
  if (hasCounts)
    shapes.push_back({rows});
  return success();
}

LogicalResult reifyWideTable(OpBuilder &builder, Operation *op, Value table,
                             FlatSymbolRefAttr mesh, StringAttr axis,
                             ReifiedRankedShapedTypeDims &shapes) {
  Location loc = op->getLoc();
  MeshAxis over = lookupMeshAxis(op, mesh, axis.getValue());
  if (!over)
    return failure();
  OpFoldResult requests = tensor::getMixedSize(builder, loc, table, 0);
  int64_t width = shaped(table).getDimSize(1);
  int64_t ranks = over.axis.getSize();
  if (!ShapedType::isDynamic(width)) {
    shapes.push_back({requests, builder.getIndexAttr(width * ranks)});
    return success();
  }
  Value columns = arith::MulIOp::create(
      builder, loc, cast<Value>(tensor::getMixedSize(builder, loc, table, 1)),
      arith::ConstantIndexOp::create(builder, loc, ranks));
  shapes.push_back({requests, columns});
  return success();
}

LogicalResult verifyNotNegative(Operation *op, StringRef name, int64_t value) {
  if (value >= 0)
    return success();
  return op->emitOpError() << name << " is " << value << ", expected 0 or more";
}

AxisAttr verifyAxis(Operation *op, SymbolTableCollection &symbolTable,
                    FlatSymbolRefAttr mesh, StringAttr axis) {
  auto meshOp = symbolTable.lookupNearestSymbolFrom<MeshOp>(op, mesh);
  if (!meshOp) {
    op->emitOpError() << mesh << " does not name a shardq.mesh";
    return {};
  }
  AxisAttr found = meshOp.lookupAxis(axis);
  if (!found) {
    InFlightDiagnostic diag = op->emitOpError("mesh ")
                              << mesh << " has no axis " << axis;
    diag.attachNote(meshOp.getLoc()) << "the mesh is declared here";
  }
  return found;
}

LogicalResult verifyOffsets(Operation *op, SymbolTableCollection &symbolTable,
                            FlatSymbolRefAttr mesh, StringAttr axis,
                            StringRef name, Type offsets) {
  AxisAttr found = verifyAxis(op, symbolTable, mesh, axis);
  if (!found)
    return failure();
  int64_t size = cast<ShapedType>(offsets).getDimSize(0);
  if (size == found.getSize() + 1)
    return success();
  return op->emitOpError("'")
         << name << "' is " << offsets << ", expected " << found.getSize() + 1
         << " entries: axis " << axis << " has " << found.getSize() << " ranks";
}

LogicalResult verifyTransport(CollectiveOpInterface op) {
  TransportAttr transport = op.getTransportAttr();
  if (!transport || isa<CombineLseOp>(op.getOperation()) ||
      transport.getValue() == Transport::Direct ||
      transport.getValue() == Transport::Nccl)
    return success();
  return op->emitOpError("transport is ")
         << stringifyTransport(transport.getValue()) << ", which is a form of '"
         << CombineLseOp::getOperationName() << "', expected direct or nccl";
}

void getPeerEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), PeerMemoryResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), PeerMemoryResource::get());
}

void getTwoFormEffects(TwoFormOpInterface op, Effects &effects) {
  if (!op.isOnBuffers())
    return;
  unsigned numIns = op.getIns().size();
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (operand.getOperandNumber() < numIns)
      effects.emplace_back(MemoryEffects::Read::get(), &operand,
                           SideEffects::DefaultResource::get());
    else
      effects.emplace_back(MemoryEffects::Write::get(), &operand,
                           SideEffects::DefaultResource::get());
  }
}

void getReadEffects(Operation *op, Effects &effects) {
  for (OpOperand &operand : op->getOpOperands())
    if (isa<MemRefType>(operand.get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), &operand,
                           SideEffects::DefaultResource::get());
}

} // namespace detail
} // namespace mlir::shardq
