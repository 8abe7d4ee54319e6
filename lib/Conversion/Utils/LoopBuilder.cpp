//===- LoopBuilder.cpp - Writes loops over buffers ------------------------===//

#include "LoopBuilder.h"

using namespace mlir;
using namespace mlir::shardq;

Value LoopBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(*this, value);
}
Value LoopBuilder::f32(double value) {
  return arith::ConstantOp::create(*this, getF32FloatAttr(float(value)));
}
Value LoopBuilder::i32(int64_t value) {
  return arith::ConstantOp::create(*this, getI32IntegerAttr(int32_t(value)));
}

static bool isFloat(Value value) { return isa<FloatType>(value.getType()); }

Value LoopBuilder::add(Value a, Value b) {
  if (isFloat(a))
    return arith::AddFOp::create(*this, a, b);
  return arith::AddIOp::create(*this, a, b);
}
Value LoopBuilder::sub(Value a, Value b) {
  if (isFloat(a))
    return arith::SubFOp::create(*this, a, b);
  return arith::SubIOp::create(*this, a, b);
}
Value LoopBuilder::mul(Value a, Value b) {
  if (isFloat(a))
    return arith::MulFOp::create(*this, a, b);
  return arith::MulIOp::create(*this, a, b);
}
Value LoopBuilder::min(Value a, Value b) {
  return arith::MinSIOp::create(*this, a, b);
}
Value LoopBuilder::max(Value a, Value b) {
  if (isFloat(a))
    return arith::MaximumFOp::create(*this, a, b);
  return arith::MaxSIOp::create(*this, a, b);
}
Value LoopBuilder::less(Value a, Value b) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::slt, a, b);
}
Value LoopBuilder::lessEqual(Value a, Value b) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::sle, a, b);
}
Value LoopBuilder::equal(Value a, Value b) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::eq, a, b);
}
Value LoopBuilder::both(Value a, Value b) {
  return arith::AndIOp::create(*this, a, b);
}
Value LoopBuilder::select(Value condition, Value a, Value b) {
  return arith::SelectOp::create(*this, condition, a, b);
}
Value LoopBuilder::inRange(Value value, Value low, Value high) {
  return both(lessEqual(low, value), less(value, high));
}

Value LoopBuilder::multiplyAdd(Value a, Value b, Value c) {
  auto flags = arith::FastMathFlags::reassoc | arith::FastMathFlags::contract;
  Value product = arith::MulFOp::create(*this, a, b, flags);
  return arith::AddFOp::create(*this, product, c, flags);
}

Value LoopBuilder::toIndex(Value integer) {
  return arith::IndexCastOp::create(*this, getIndexType(), integer);
}
Value LoopBuilder::fromIndex(Value index, Type integer) {
  return arith::IndexCastOp::create(*this, integer, index);
}

Value LoopBuilder::dim(Value buffer, int64_t dimension) {
  return createOrFold<memref::DimOp>(buffer, dimension);
}
Value LoopBuilder::load(Value buffer, ValueRange indices) {
  return memref::LoadOp::create(*this, buffer, indices);
}
void LoopBuilder::store(Value value, Value buffer, ValueRange indices) {
  memref::StoreOp::create(*this, value, buffer, indices);
}
Value LoopBuilder::loadF32(Value buffer, ValueRange indices) {
  Value value = load(buffer, indices);
  if (value.getType().isF32())
    return value;
  return arith::ExtFOp::create(*this, getF32Type(), value);
}
void LoopBuilder::storeF32(Value value, Value buffer, ValueRange indices) {
  Type element = cast<MemRefType>(buffer.getType()).getElementType();
  if (!element.isF32())
    value = arith::TruncFOp::create(*this, element, value);
  store(value, buffer, indices);
}

Value LoopBuilder::scratch(ArrayRef<int64_t> shape, Type element,
                           ValueRange sizes) {
  // One cache line, so that no vector access straddles two.
  return memref::AllocOp::create(*this, MemRefType::get(shape, element), sizes,
                                 getI64IntegerAttr(64));
}
void LoopBuilder::free(ArrayRef<Value> buffers) {
  for (Value buffer : buffers)
    memref::DeallocOp::create(*this, buffer);
}

void LoopBuilder::loop(Value begin, Value end, Body body, int64_t step) {
  loop(
      begin, end, ValueRange{},
      [&](Value i, ValueRange) -> SmallVector<Value> {
        body(i);
        return {};
      },
      step);
}

SmallVector<Value> LoopBuilder::loop(Value begin, Value end, ValueRange inits,
                                     CarryingBody body, int64_t step) {
  auto op = scf::ForOp::create(
      *this, begin, end, index(step), inits,
      [&](OpBuilder &nested, Location, Value i, ValueRange carried) {
        InsertionGuard guard(*this);
        setInsertionPointToEnd(nested.getInsertionBlock());
        SmallVector<Value> yields = body(i, carried);
        scf::YieldOp::create(*this, yields);
      });
  return SmallVector<Value>(op.getResults());
}

void LoopBuilder::when(Value condition, llvm::function_ref<void()> then,
                       llvm::function_ref<void()> otherwise) {
  auto branch = scf::IfOp::create(*this, TypeRange{}, condition,
                                  /*withElseRegion=*/bool(otherwise));
  InsertionGuard guard(*this);
  setInsertionPointToStart(branch.thenBlock());
  then();
  if (!otherwise)
    return;
  setInsertionPointToStart(branch.elseBlock());
  otherwise();
}

Value LoopBuilder::choose(Value condition, llvm::function_ref<Value()> then,
                          llvm::function_ref<Value()> otherwise) {
  auto branch = [&](llvm::function_ref<Value()> body) {
    return [this, body](OpBuilder &nested, Location) {
      InsertionGuard guard(*this);
      setInsertionPointToEnd(nested.getInsertionBlock());
      Value value = body();
      scf::YieldOp::create(*this, value);
    };
  };
  return scf::IfOp::create(*this, condition, branch(then), branch(otherwise))
      .getResult(0);
}

void LoopBuilder::fill(Value buffer, Value value) {
  bool isVector = cast<MemRefType>(buffer.getType()).getRank() == 1;
  loop(index(0), dim(buffer, 0), [&](Value i) {
    if (isVector)
      return store(value, buffer, i);
    fillRow(buffer, i, value);
  });
}

void LoopBuilder::fillRow(Value buffer, Value row, Value value) {
  loop(index(0), dim(buffer, 1),
       [&](Value i) { store(value, buffer, {row, i}); });
}
