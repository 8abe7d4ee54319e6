//===- Operands.cpp - What both targets do to operands --------------------===//

#include "Operands.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::shardq;

std::string mlir::shardq::getKernelName(Operation *op) {
  std::string name = op->getName().getStringRef().str();
  std::replace(name.begin(), name.end(), '.', '_');
  // The runtime's function of that name makes the other form.
  if (auto blocks = dyn_cast<GatherBlocksOp>(op); blocks && blocks.getFull())
    name += "_full";
  llvm::raw_string_ostream stream(name);
  Type element;
  for (Type type : op->getOperandTypes()) {
    auto buffer = dyn_cast<MemRefType>(type);
    if (!buffer)
      continue;
    if (isa<FloatType>(buffer.getElementType()) && !element)
      element = buffer.getElementType();
    if (buffer.getRank() < 2 ||
        ShapedType::isDynamicShape(buffer.getShape().drop_front()))
      continue;
    stream << "_";
    llvm::interleave(buffer.getShape().drop_front(), stream, "x");
  }
  if (element)
    stream << "_" << element;
  return name;
}

LogicalResult mlir::shardq::verifyOwnKeys(SparseMlaOp op) {
  int64_t ranks = getNumKvRanks(op, op.getShardingAttr());
  if (ranks == 1)
    return success();
  return op.emitOpError("attends keys of ")
         << ranks << " ranks: run --shardq-dcp first";
}

/// Which block of the heads this rank has: its joint coordinate along the
/// sharding's axes, the first slowest.
static Value getHeadBlock(OpBuilder &builder, Location loc, SparseMlaOp op) {
  ShardingAttr sharding = op.getShardingAttr();
  Value block = arith::ConstantIndexOp::create(builder, loc, 0);
  for (StringAttr name : sharding.getAxes()) {
    MeshAxis over = lookupMeshAxis(op, sharding.getMesh(), name);
    Value size =
        arith::ConstantIndexOp::create(builder, loc, over.axis.getSize());
    Value coordinate = RankOp::create(builder, loc, builder.getIndexType(),
                                      sharding.getMesh(), name);
    block = arith::MulIOp::create(builder, loc, block, size);
    block = arith::AddIOp::create(builder, loc, block, coordinate);
  }
  return block;
}

void mlir::shardq::takeOwnSink(OpBuilder &builder, SparseMlaOp op,
                               MutableArrayRef<Value> operands) {
  Location loc = op.getLoc();
  int64_t heads = op.getNumHeads();
  for (Value &operand : operands) {
    if (!op.getSink() || operand != op.getSink() ||
        cast<MemRefType>(operand.getType()).getDimSize(0) == heads)
      continue;
    Value block = getHeadBlock(builder, loc, op);
    Value first = arith::MulIOp::create(
        builder, loc, block,
        arith::ConstantIndexOp::create(builder, loc, heads));
    operand = memref::SubViewOp::create(
        builder, loc, operand, ArrayRef<OpFoldResult>{first},
        ArrayRef<OpFoldResult>{builder.getIndexAttr(heads)},
        ArrayRef<OpFoldResult>{builder.getIndexAttr(1)});
  }
}

Value mlir::shardq::createBufferAt(OpBuilder &b, Location loc, MemRefType type,
                                   Value pointer, ValueRange dynamicSizes) {
  // Kernels know no symmetric space: the heap is global memory.
  auto plain = MemRefType::get(type.getShape(), type.getElementType());
  LLVMTypeConverter converter(b.getContext());
  auto descriptor =
      MemRefDescriptor::poison(b, loc, converter.convertType(plain));
  descriptor.setAllocatedPtr(b, loc, pointer);
  descriptor.setAlignedPtr(b, loc, pointer);
  descriptor.setConstantOffset(b, loc, 0);
  Type i64 = b.getI64Type();
  Value stride = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(1));
  unsigned next = dynamicSizes.size();
  for (int64_t i = type.getRank() - 1; i >= 0; --i) {
    Value size;
    if (type.isDynamicDim(i))
      size = arith::IndexCastOp::create(b, loc, i64, dynamicSizes[--next]);
    else
      size = LLVM::ConstantOp::create(b, loc, i64,
                                      b.getI64IntegerAttr(type.getDimSize(i)));
    descriptor.setSize(b, loc, i, size);
    descriptor.setStride(b, loc, i, stride);
    stride = LLVM::MulOp::create(b, loc, stride, size);
  }
  Value value = descriptor;
  Value buffer =
      UnrealizedConversionCastOp::create(b, loc, TypeRange{plain}, value)
          .getResult(0);
  if (plain != type)
    buffer = memref::MemorySpaceCastOp::create(b, loc, type, buffer);
  return buffer;
}
