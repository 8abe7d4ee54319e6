//===- Operands.cpp - What both targets do to operands --------------------===//

#include "Operands.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "shardq/IR/CarrierOps.h"
#include "shardq/IR/OperandNames.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

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

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

SmallVector<unsigned> mlir::shardq::getRowPositions(Operation *op) {
  if (isa<TakeRowsOp>(op))
    return {1, 2};
  if (isa<WriteRowsOp>(op))
    return {0, 1};
  if (auto push = dyn_cast<PushOp>(op))
    return llvm::to_vector(llvm::seq<unsigned>(push.getSources().size()));
  SmallVector<unsigned> positions;
  auto rowWise = dyn_cast<RowWiseOpInterface>(op);
  for (OpOperand &operand : op->getOpOperands())
    if (rowWise && rowWise.isRowOperand(operand))
      positions.push_back(operand.getOperandNumber());
  return positions;
}

/// Says how many rows a buffer has: a constant, a size that it was made with,
/// or the buffer that has as many.
static OpFoldResult getRowCount(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  if (!type.isDynamicDim(0))
    return Builder(type.getContext()).getIndexAttr(type.getDimSize(0));
  Operation *maker = buffer.getDefiningOp();
  OpFoldResult size;
  if (isa_and_present<memref::CastOp, memref::MemorySpaceCastOp>(maker)) {
    auto source = dyn_cast<MemRefType>(maker->getOperand(0).getType());
    return source ? getRowCount(maker->getOperand(0)) : buffer;
  }
  if (auto alloc = dyn_cast_or_null<memref::AllocOp>(maker))
    size = alloc.getDynamicSizes().front();
  else if (auto inbox = dyn_cast_or_null<WorkspaceOp>(maker))
    size = inbox.getSizes().front();
  else if (auto view = dyn_cast_or_null<memref::SubViewOp>(maker);
           view && view.getSourceType().getRank() == type.getRank())
    size = view.getMixedSizes().front();
  else
    return buffer;
  auto value = dyn_cast<Value>(size);
  auto dim = value ? value.getDefiningOp<memref::DimOp>() : memref::DimOp();
  if (dim && dim.getConstantIndex() == 0 &&
      isa<MemRefType>(dim.getSource().getType()))
    return getRowCount(dim.getSource());
  return size;
}

bool mlir::shardq::haveSameRows(ArrayRef<Value> buffers) {
  return llvm::all_of(buffers, [&](Value buffer) {
    return isEqualConstantIntOrValue(getRowCount(buffer),
                                     getRowCount(buffers.front()));
  });
}

/// `what` of the operand is `found`.
static void expectSize(OpBuilder &builder, Operation *op, StringRef what,
                       StringRef operand, Value found, Value expected) {
  ExpectOp::create(
      builder, op->getLoc(),
      (what + " of " + operand + " of " + op->getName().getStringRef()).str(),
      found, expected);
}

/// Rows of those operands that are read, where they may differ.
static void checkRows(OpBuilder &builder, Operation *op,
                      llvm::function_ref<bool(Value)> isKnown) {
  unsigned numRead = op->getNumOperands();
  if (auto twoForms = dyn_cast<TwoFormOpInterface>(op))
    numRead -= twoForms.getOuts().size();
  SmallVector<unsigned> positions = getRowPositions(op);
  llvm::erase_if(positions, [&](unsigned position) {
    return position >= numRead || !isKnown(op->getOperand(position));
  });
  if (positions.empty())
    return;
  Location loc = op->getLoc();
  auto getSize = [&](Value buffer) {
    return builder.createOrFold<memref::DimOp>(loc, buffer, 0);
  };
  Value first = op->getOperand(positions.front());
  for (unsigned position : ArrayRef(positions).drop_front()) {
    Value other = op->getOperand(position);
    if (haveSameRows({first, other}))
      continue;
    ExpectOp::create(builder, loc, describeRows(op->getOpOperand(position)),
                     getSize(other), getSize(first));
  }
}

/// Sizes that are not the same number, but follow from each other.
static void checkRelated(OpBuilder &builder, Operation *op, StringRef what,
                         StringRef name, Value buffer, Value other,
                         llvm::function_ref<bool(Value)> isKnown,
                         llvm::function_ref<Value(Value)> expected) {
  bool isOpen = cast<MemRefType>(buffer.getType()).isDynamicDim(0) ||
                cast<MemRefType>(other.getType()).isDynamicDim(0);
  if (!isOpen || !isKnown(buffer) || !isKnown(other))
    return;
  auto getSize = [&](Value of) {
    return builder.createOrFold<memref::DimOp>(op->getLoc(), of, 0);
  };
  expectSize(builder, op, what, ("'" + name + "'").str(), getSize(buffer),
             expected(getSize(other)));
}

/// Whether both are the same number for certain: constants, one value, rows of
/// one buffer, or the same arithmetic on such.
static bool isSameCount(OpFoldResult one, OpFoldResult other) {
  if (isEqualConstantIntOrValue(one, other))
    return true;
  auto getMaker = [](OpFoldResult number) -> Operation * {
    auto value = dyn_cast<Value>(number);
    return value ? value.getDefiningOp() : nullptr;
  };
  Operation *maker = getMaker(one), *otherMaker = getMaker(other);
  if (!maker || !otherMaker || maker->getName() != otherMaker->getName())
    return false;
  if (auto dim = dyn_cast<memref::DimOp>(maker)) {
    auto otherDim = cast<memref::DimOp>(otherMaker);
    return dim.getConstantIndex() == 0 && otherDim.getConstantIndex() == 0 &&
           isa<MemRefType>(dim.getSource().getType()) &&
           isa<MemRefType>(otherDim.getSource().getType()) &&
           isSameCount(getRowCount(dim.getSource()),
                       getRowCount(otherDim.getSource()));
  }
  return isa<arith::MulIOp, arith::DivUIOp>(maker) &&
         llvm::all_of(
             llvm::zip_equal(maker->getOperands(), otherMaker->getOperands()),
             [](auto pair) {
               auto [a, b] = pair;
               return isSameCount(a, b);
             });
}

/// Whether `all` is so many times `rows`, for certain.
static bool isTimes(OpFoldResult all, int64_t ranks, OpFoldResult rows) {
  std::optional<int64_t> allNumber = getConstantIntValue(all);
  std::optional<int64_t> number = getConstantIntValue(rows);
  if (allNumber && number)
    return *allNumber % ranks == 0 && *allNumber / ranks == *number;
  if (ranks == 1)
    return isSameCount(all, rows);
  auto value = dyn_cast<Value>(all);
  auto product = value ? value.getDefiningOp<arith::MulIOp>() : arith::MulIOp();
  if (!product || getConstantIntValue(product.getRhs()) != ranks)
    return false;
  auto part = product.getLhs().getDefiningOp<memref::DimOp>();
  if (part && part.getConstantIndex() == 0 &&
      isa<MemRefType>(part.getSource().getType()) &&
      isSameCount(getRowCount(part.getSource()), rows))
    return true;
  return isSameCount(OpFoldResult(product.getLhs()), rows);
}

namespace {

/// What an exchange moves, and the rows that it ends in: the second may be in
/// a type that was written by hand. What of both is the host's is compared.
class ExchangeSizes {
public:
  ExchangeSizes(OpBuilder &builder, Operation *op,
                llvm::function_ref<bool(Value)> isKnown, bool readsMemory)
      : b(builder), op(op), isKnown(isKnown), readsMemory(readsMemory) {}

  void check(PushOp push);
  void checkMerge(Value inbox, Value out, Value merged, MeshAxis over);
  void checkSame(StringRef name, Value buffer, Value other);

private:
  Value getRows(Value buffer);
  void expect(StringRef name, Value found, Value expected) {
    if (found && expected)
      expectSize(b, op, "rows", name, found, expected);
  }
  void checkTimes(Value many, int64_t ranks, StringRef name, Value few);
  void checkGroup(StringRef name, Value buffer, PushOp push);

  OpBuilder &b;
  Operation *op;
  llvm::function_ref<bool(Value)> isKnown;
  bool readsMemory;
};

} // namespace

/// Rows of a buffer, by what it was made with; null where the host does not
/// know them.
Value ExchangeSizes::getRows(Value buffer) {
  OpFoldResult count = getRowCount(buffer);
  auto value = dyn_cast<Value>(count);
  if (!value)
    return arith::ConstantIndexOp::create(
        b, op->getLoc(), cast<MemRefType>(buffer.getType()).getDimSize(0));
  if (!isKnown(value))
    return {};
  if (!isa<MemRefType>(value.getType()))
    return value;
  return b.createOrFold<memref::DimOp>(op->getLoc(), value, 0);
}

void ExchangeSizes::checkSame(StringRef name, Value buffer, Value other) {
  if (!isSameCount(getRowCount(buffer), getRowCount(other)))
    expect(name, getRows(buffer), getRows(other));
}

/// `few` has the rows of each of the ranks that `many` has those of.
void ExchangeSizes::checkTimes(Value many, int64_t ranks, StringRef name,
                               Value few) {
  if (isTimes(getRowCount(many), ranks, getRowCount(few)))
    return;
  Value all = getRows(many);
  if (!all)
    return;
  Location loc = op->getLoc();
  Value each = arith::DivUIOp::create(
      b, loc, all, arith::ConstantIndexOp::create(b, loc, ranks));
  expect(name, getRows(few), each);
}

void ExchangeSizes::checkMerge(Value inbox, Value out, Value merged,
                               MeshAxis over) {
  checkTimes(inbox, over.axis.getSize(), "'out'", out);
  if (merged)
    checkSame("'merged'", merged, out);
}

/// Whether a number of rows was computed from these offsets.
static bool isFromOffsets(OpFoldResult rows, Value offsets) {
  auto value = dyn_cast<Value>(rows);
  auto difference =
      value ? value.getDefiningOp<arith::SubIOp>() : arith::SubIOp();
  return difference &&
         llvm::all_of(difference->getOperands(), [&](Value operand) {
           auto cast = operand.getDefiningOp<arith::IndexCastOp>();
           auto load = cast ? cast.getIn().getDefiningOp<memref::LoadOp>()
                            : memref::LoadOp();
           return load && load.getMemRef() == offsets;
         });
}

/// The buffer has the rows that are sharded to this rank.
void ExchangeSizes::checkGroup(StringRef name, Value buffer, PushOp push) {
  if (!readsMemory || isFromOffsets(getRowCount(buffer), push.getOffsets()))
    return;
  Value found = getRows(buffer);
  if (!found)
    return;
  expect(name, found,
         createGroupRows(b, op->getLoc(), push.getOffsets(), push.getMeshAttr(),
                         push.getAxisAttr()));
}

void ExchangeSizes::check(PushOp push) {
  int64_t ranks =
      lookupMeshAxis(op, push.getMeshAttr(), push.getAxis()).axis.getSize();
  Value source = push.getSources().front(), inbox = push.getInbox();
  std::string name = getOperandName(op, 0), of = "'inbox'";
  switch (push.getDirection()) {
  case Direction::GatherHeads:
    return checkSame(name, source, inbox);
  case Direction::ScatterHeads:
    return checkTimes(inbox, ranks, name, source);
  case Direction::GatherRows:
    // Blocks are as many as a number of the step says.
    if (!push.getBlocks())
      checkTimes(inbox, ranks, name, source);
    return;
  case Direction::ScatterRows:
    // What members cannot share is told by the wait.
    return;
  case Direction::HeadsToTokens:
    checkSame(name, source, push.getIds());
    return checkGroup(of, inbox, push);
  case Direction::TokensToHeads:
    checkGroup(name, source, push);
    return checkSame(of, inbox, push.getIds());
  }
}

void mlir::shardq::checkSizes(OpBuilder &builder, Operation *op,
                              llvm::function_ref<bool(Value)> isKnown,
                              bool readsMemory) {
  checkRows(builder, op, isKnown);
  ExchangeSizes exchange(builder, op, isKnown, readsMemory);
  auto getAxis = [](auto op) {
    return lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  };
  Location loc = op->getLoc();
  auto checkLengths = [&](StringRef name, Value lengths, Value starts) {
    checkRelated(builder, op, "requests", name, lengths, starts, isKnown,
                 [&](Value entries) -> Value {
                   // No starts at all are no requests.
                   Value one = arith::ConstantIndexOp::create(builder, loc, 1);
                   Value some =
                       arith::MaxSIOp::create(builder, loc, entries, one);
                   return arith::SubIOp::create(builder, loc, some, one);
                 });
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<ExpandRowsOp, ShardLengthsOp, ChunkLengthsOp>([&](auto op) {
        checkLengths("seq_lens", op.getSeqLens(), op.getQueryStart());
      })
      .Case<GatherBlocksOp, ReplicatedTableOp>([&](auto op) {
        if (!haveSameRows({op.getTable(), op.getLengths()}))
          checkRelated(builder, op, "requests", "lengths", op.getLengths(),
                       op.getTable(), isKnown, [](Value size) { return size; });
      })
      .Case([&](DraftLengthsOp op) {
        // The verifier has seen constants.
        Value step = op.getStep();
        if (getConstantIntValue(step) || !isKnown(step))
          return;
        Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
        Value held = arith::MaxSIOp::create(builder, loc, step, zero);
        ExpectOp::create(builder, loc, "'step' of shardq.draft_lengths", step,
                         held);
      })
      .Case([&](PushOp op) { exchange.check(op); })
      .Case([&](MergeLseOp op) {
        exchange.checkMerge(op.getInbox(), op.getOut(), op.getMerged(),
                            getAxis(op));
      })
      .Case([&](SumPartialsOp op) {
        exchange.checkMerge(op.getInbox(), op.getOut(), Value(), getAxis(op));
      })
      .Case([&](WeighPartialOp op) {
        MeshAxis over = getAxis(op);
        checkRelated(builder, op, "rows", "lses", op.getLses(), op.getPartial(),
                     isKnown, [&](Value rows) -> Value {
                       Value ranks = arith::ConstantIndexOp::create(
                           builder, loc, over.axis.getSize());
                       return arith::MulIOp::create(builder, loc, rows, ranks);
                     });
        static constexpr StringLiteral kOuts[] = {"'share'", "'merged'"};
        for (auto [name, out] : llvm::zip(kOuts, op.getOuts()))
          exchange.checkSame(name, out, op.getPartial());
      });
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
