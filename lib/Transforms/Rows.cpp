//===- Rows.cpp - Rows of tensors, and ops on some of them ----------------===//

#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "shardq/IR/CarrierOps.h"
#include "shardq/IR/OperandNames.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::shardq;

RankedTensorType mlir::shardq::withDynamicRows(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape.front() = ShapedType::kDynamic;
  return RankedTensorType::get(shape, tensor.getElementType(),
                               tensor.getEncoding());
}

Value mlir::shardq::castTo(OpBuilder &builder, Location loc, Value value,
                           Type type) {
  if (value.getType() == type)
    return value;
  return tensor::CastOp::create(builder, loc, type, value);
}

Value mlir::shardq::sliceRows(OpBuilder &builder, Location loc, Value value,
                              OpFoldResult begin, Value size) {
  SmallVector<OpFoldResult> sizes{size};
  for (int64_t dim = 1,
               rank = cast<RankedTensorType>(value.getType()).getRank();
       dim < rank; ++dim)
    sizes.push_back(tensor::getMixedSize(builder, loc, value, dim));
  SmallVector<OpFoldResult> offsets(sizes.size(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> ones(sizes.size(), builder.getIndexAttr(1));
  offsets.front() = begin;
  return tensor::ExtractSliceOp::create(builder, loc,
                                        withDynamicRows(value.getType()), value,
                                        offsets, sizes, ones);
}

Value mlir::shardq::takeHeads(OpBuilder &builder, Location loc, Value value,
                              int64_t heads, OpFoldResult rows) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<OpFoldResult> offsets(3, builder.getIndexAttr(0));
  SmallVector<OpFoldResult> ones(3, builder.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes{rows, builder.getIndexAttr(heads),
                                  builder.getIndexAttr(type.getDimSize(2))};
  auto part = RankedTensorType::get(
      {type.getDimSize(0), heads, type.getDimSize(2)}, type.getElementType());
  return tensor::ExtractSliceOp::create(builder, loc, part, value, offsets,
                                        sizes, ones);
}

Value mlir::shardq::takeBlock(OpBuilder &builder, Location loc, Value vector,
                              Value block, int64_t size) {
  Value first = arith::MulIOp::create(
      builder, loc, block, arith::ConstantIndexOp::create(builder, loc, size));
  auto type = RankedTensorType::get(
      {size}, cast<RankedTensorType>(vector.getType()).getElementType());
  return tensor::ExtractSliceOp::create(
      builder, loc, type, vector, ArrayRef<OpFoldResult>{first},
      ArrayRef<OpFoldResult>{builder.getIndexAttr(size)},
      ArrayRef<OpFoldResult>{builder.getIndexAttr(1)});
}

Value mlir::shardq::joinRows(OpBuilder &builder, ValueRange parts) {
  if (parts.size() == 1)
    return parts.front();
  Location loc = parts.front().getLoc();
  RankedTensorType type = withDynamicRows(parts.front().getType());
  Value rows;
  SmallVector<Value> sizes;
  for (Value part : parts) {
    sizes.push_back(tensor::DimOp::create(builder, loc, part, 0));
    rows = rows ? arith::AddIOp::create(builder, loc, rows, sizes.back())
                      .getResult()
                : sizes.back();
  }
  Value joined = tensor::EmptyOp::create(builder, loc, type, rows);
  OpFoldResult begin = builder.getIndexAttr(0);
  for (auto [part, size] : llvm::zip_equal(parts, sizes)) {
    SmallVector<OpFoldResult> offsets(type.getRank(), builder.getIndexAttr(0));
    SmallVector<OpFoldResult> ones(type.getRank(), builder.getIndexAttr(1));
    SmallVector<OpFoldResult> extent{size};
    for (int64_t dim : type.getShape().drop_front())
      extent.push_back(builder.getIndexAttr(dim));
    offsets.front() = begin;
    joined = tensor::InsertSliceOp::create(builder, loc, part, joined, offsets,
                                           extent, ones);
    auto before = dyn_cast<Value>(begin);
    begin = before
                ? arith::AddIOp::create(builder, loc, before, size).getResult()
                : size;
  }
  return joined;
}

Value mlir::shardq::lookThroughCasts(Value value) {
  while (auto cast = value.getDefiningOp<tensor::CastOp>())
    value = cast.getSource();
  return value;
}

/// The value that has as many rows as the op's result; null if none has.
static Value getRowOrigin(OpResult result) {
  Operation *op = result.getOwner();
  if (auto rowWise = dyn_cast<RowWiseOpInterface>(op)) {
    for (OpOperand &operand : op->getOpOperands())
      if (rowWise.isRowOperand(operand))
        return operand.get();
    return {};
  }
  if (auto take = dyn_cast<TakeRowsOp>(op))
    return take.getRows();
  if (auto init = dyn_cast<DestinationStyleOpInterface>(op))
    return init.getTiedOpOperand(result)->get();
  // Dimensions behind that of the rows are put together or taken apart, or one
  // of size 1 goes.
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return expand.getReassociationIndices().front().size() == 1
               ? expand.getSrc()
               : Value();
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
    size_t dims = collapse.getReassociationIndices().front().size();
    return llvm::all_of(shape.slice(1, dims - 1),
                        [](int64_t size) { return size == 1; })
               ? collapse.getSrc()
               : Value();
  }
  if (!isa<tensor::CastOp>(op) && !op->hasTrait<OpTrait::Elementwise>())
    return {};
  for (Value operand : op->getOperands())
    if (isa<RankedTensorType>(operand.getType()))
      return operand;
  return {};
}

/// The number itself, where it is not that of a tensor's rows.
static OpFoldResult getRowCountOf(OpFoldResult size) {
  auto value = dyn_cast<Value>(size);
  if (!value)
    return size;
  auto dim = value.getDefiningOp<tensor::DimOp>();
  if (dim && dim.getConstantIndex() == 0)
    return getRowCount(dim.getSource());
  return getAsOpFoldResult(value);
}

OpFoldResult mlir::shardq::getRowCount(Value tensor) {
  auto type = cast<RankedTensorType>(tensor.getType());
  if (!type.isDynamicDim(0))
    return Builder(type.getContext()).getIndexAttr(type.getDimSize(0));
  auto result = dyn_cast<OpResult>(tensor);
  if (!result)
    return tensor;
  Operation *op = result.getOwner();
  if (auto expand = dyn_cast<ExpandRowsOp>(op))
    return getRowCountOf(expand.getRows());
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return getRowCountOf(empty.getMixedSizes().front());
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return getRowCountOf(expand.getMixedOutputShape().front());
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
      slice && !slice.getDroppedDims().test(0))
    return getRowCountOf(slice.getMixedSizes().front());
  Value origin = getRowOrigin(result);
  return origin ? getRowCount(origin) : OpFoldResult(tensor);
}

static bool isHostNumber(Value value, llvm::SmallPtrSetImpl<void *> &seen) {
  auto all = [&](ValueRange values) {
    return llvm::all_of(values, [&](Value other) {
      // Of tensors the sizes.
      auto tensor = dyn_cast<RankedTensorType>(other.getType());
      if (tensor && tensor.getRank() == 0)
        return true;
      if (!tensor)
        return isHostNumber(other, seen);
      auto rows = dyn_cast<Value>(getRowCount(other));
      return !rows || isHostNumber(rows, seen);
    });
  };
  // What a loop carries depends on itself, and on what else it depends on.
  if (!seen.insert(value.getAsOpaquePointer()).second)
    return true;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *parent = argument.getOwner()->getParentOp();
    auto loop = dyn_cast<scf::ForOp>(parent);
    if (!loop || argument == loop.getInductionVar())
      return loop ? all({loop.getLowerBound(), loop.getUpperBound(),
                         loop.getStep()})
                  : isa<FunctionOpInterface>(parent);
    return all({loop.getTiedLoopInit(argument)->get(),
                loop.getTiedLoopYieldedValue(argument)->get()});
  }
  auto result = cast<OpResult>(value);
  Operation *op = result.getOwner();
  if (auto dim = dyn_cast<tensor::DimOp>(op))
    return dim.getConstantIndex() != 0 || all(dim.getSource());
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    unsigned number = result.getResultNumber();
    return all({branch.getCondition(), branch.thenYield()->getOperand(number),
                branch.elseYield()->getOperand(number)});
  }
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    unsigned number = result.getResultNumber();
    return all({loop.getInitArgs()[number], loop.getYieldedValues()[number]});
  }
  // Numbers out of tensors are the device's, and so are those of ops that count
  // what tensors hold. Of other control flow nothing is known.
  bool hasSizesOfOperands = isa<ShardQDialect>(op->getDialect())
                                ? isa<RankOp, GatherRowsOp, GatherQueryOp,
                                      CombineLseOp, ReduceHeadsOp>(op)
                                : !isa<tensor::ExtractOp>(op) &&
                                      !isa<scf::SCFDialect>(op->getDialect());
  return hasSizesOfOperands && all(op->getOperands());
}

bool mlir::shardq::isHostNumber(OpFoldResult rows) {
  auto value = dyn_cast<Value>(rows);
  llvm::SmallPtrSet<void *, 8> seen;
  return !value || ::isHostNumber(value, seen);
}

void mlir::shardq::eraseTaps(Operation *op) {
  // One that takes two values of the op is a user twice.
  llvm::SetVector<Operation *> taps;
  for (Operation *user : op->getUsers())
    if (isa<TapOp>(user))
      taps.insert(user);
  for (Operation *tap : taps)
    tap->erase();
}

/// Behind the step, or behind a list that is made later; in front of the op
/// where neither place will do.
static void setInsertionPointFor(OpBuilder &builder, OpOperand &list,
                                 ExpandRowsOp step) {
  DominanceInfo dominance;
  Operation *maker = list.get().getDefiningOp();
  if (dominance.properlyDominates(list.get(), step))
    builder.setInsertionPointAfter(step);
  else if (maker && dominance.properlyDominates(step.getOperation(), maker))
    builder.setInsertionPointAfter(maker);
  else
    builder.setInsertionPoint(list.getOwner());
}

void StepLists::expect(OpOperand &list, ExpandRowsOp step) {
  Operation *op = list.getOwner();
  Operation *maker = lookThroughCasts(list.get()).getDefiningOp();
  bool isMadeHere =
      maker && isa<ShardQDialect, scf::SCFDialect>(maker->getDialect());
  if (isMadeHere || !known.insert({list.get(), step}).second)
    return;
  Value rows = step.getRows();
  auto size = rows.getDefiningOp<tensor::DimOp>();
  if (size && size.getConstantIndex() == 0 &&
      lookThroughCasts(size.getSource()) == lookThroughCasts(list.get()))
    return;
  OpBuilder builder(op);
  setInsertionPointFor(builder, list, step);
  Location loc = op->getLoc();
  OpFoldResult found = tensor::getMixedSize(builder, loc, list.get(), 0);
  if (isEqualConstantIntOrValue(found, rows))
    return;
  ExpectOp::create(builder, loc, describeRows(list),
                   getValueOrCreateConstantIndexOp(builder, loc, found), rows);
}

void StepLists::expect(Operation *op, ExpandRowsOp step) {
  auto rowWise = cast<RowWiseOpInterface>(op);
  for (OpOperand &operand : op->getOpOperands())
    if (rowWise.isRowOperand(operand))
      expect(operand, step);
}

Operation *mlir::shardq::cloneOnRows(OpBuilder &builder, Operation *op,
                                     Value rows,
                                     llvm::function_ref<Value(Value)> getRows) {
  auto rowWise = cast<RowWiseOpInterface>(op);
  // By operand and not by value: one value may be rows here and a table there.
  SmallVector<Value> operands;
  for (OpOperand &operand : op->getOpOperands())
    operands.push_back(rowWise.isRowOperand(operand) ? getRows(operand.get())
                                                     : operand.get());
  Operation *clone = builder.clone(*op);
  clone->setOperands(operands);
  for (auto [result, local] :
       llvm::zip_equal(op->getResults(), clone->getResults())) {
    local.setType(withDynamicRows(result.getType()));
    for (OpOperand &use : result.getUses())
      if (auto tap = dyn_cast<TapOp>(use.getOwner());
          tap && &tap.getValueMutable() == &use)
        TapOp::create(builder, tap.getLoc(), tap.getName(), local, rows);
  }
  return clone;
}
