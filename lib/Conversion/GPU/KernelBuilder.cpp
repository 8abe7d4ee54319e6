//===- KernelBuilder.cpp - Writes bodies of GPU kernels -------------------===//

#include "KernelBuilder.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace mlir::shardq;

static constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;

KernelBuilder::KernelBuilder(Location loc, OpBuilder::Listener *listener,
                             MLIRContext *context, int64_t threads)
    : LoopBuilder(loc, OpBuilder(context, listener)), threads(threads) {}

Value KernelBuilder::thread() {
  return gpu::ThreadIdOp::create(*this, gpu::Dimension::x);
}
Value KernelBuilder::block() {
  return gpu::BlockIdOp::create(*this, gpu::Dimension::x);
}
Value KernelBuilder::numBlocks() {
  return gpu::GridDimOp::create(*this, gpu::Dimension::x);
}
void KernelBuilder::barrier() { gpu::BarrierOp::create(*this); }

void KernelBuilder::stride(Value begin, Value end, Value step, Body body) {
  scf::ForOp::create(*this, begin, end, step, ValueRange{},
                     [&](OpBuilder &nested, Location, Value i, ValueRange) {
                       InsertionGuard guard(*this);
                       setInsertionPointToEnd(nested.getInsertionBlock());
                       body(i);
                       scf::YieldOp::create(*this);
                     });
}
void KernelBuilder::overBlocks(Value begin, Value end, Body body) {
  stride(add(begin, block()), end, numBlocks(), body);
}
void KernelBuilder::overThreads(Value begin, Value end, Body body) {
  stride(add(begin, thread()), end, index(threads), body);
}
void KernelBuilder::overGrid(Value begin, Value end, Body body) {
  Value width = index(threads);
  Value first = add(mul(block(), width), thread());
  stride(add(begin, first), end, mul(numBlocks(), width), body);
}

ValueRange KernelBuilder::repeatWhile(
    ValueRange inits, llvm::function_ref<Value(ValueRange)> test,
    llvm::function_ref<SmallVector<Value>(ValueRange)> step) {
  auto loop = scf::WhileOp::create(
      *this, inits.getTypes(), inits,
      [&](OpBuilder &nested, Location, ValueRange carried) {
        InsertionGuard guard(*this);
        setInsertionPointToEnd(nested.getInsertionBlock());
        scf::ConditionOp::create(*this, test(carried), carried);
      },
      [&](OpBuilder &nested, Location, ValueRange carried) {
        InsertionGuard guard(*this);
        setInsertionPointToEnd(nested.getInsertionBlock());
        scf::YieldOp::create(*this, step(carried));
      });
  return loop.getResults();
}

Value KernelBuilder::countBefore(Value end,
                                 llvm::function_ref<Value(Value)> isBefore) {
  ValueRange range = repeatWhile(
      {index(0), end},
      [&](ValueRange range) { return less(range[0], range[1]); },
      [&](ValueRange range) -> SmallVector<Value> {
        Value middle = divide(add(range[0], range[1]), index(2));
        Value is = isBefore(middle);
        return {select(is, add(middle, index(1)), range[0]),
                select(is, range[1], middle)};
      });
  return range[0];
}

void mlir::shardq::alignSharedMemory(gpu::GPUFuncOp kernel) {
  StringRef name = LLVM::LLVMDialect::getAlignAttrName();
  for (unsigned i = 0, e = kernel.getNumWorkgroupAttributions(); i != e; ++i)
    if (!kernel.getWorkgroupAttributionAttr(i, name))
      kernel.setWorkgroupAttributionAttr(
          i, name, Builder(kernel.getContext()).getI64IntegerAttr(16));
}

Value KernelBuilder::shared(ArrayRef<int64_t> shape, Type element) {
  auto space =
      gpu::AddressSpaceAttr::get(getContext(), gpu::AddressSpace::Workgroup);
  auto type =
      MemRefType::get(shape, element, MemRefLayoutAttrInterface(), space);
  Operation *parent = getInsertionBlock()->getParentOp();
  while (!isa<gpu::LaunchOp, gpu::GPUFuncOp>(parent))
    parent = parent->getParentOp();
  if (auto launch = dyn_cast<gpu::LaunchOp>(parent))
    return launch.addWorkgroupAttribution(type, getLoc());
  auto kernel = cast<gpu::GPUFuncOp>(parent);
  Value buffer = kernel.addWorkgroupAttribution(type, getLoc());
  alignSharedMemory(kernel);
  return buffer;
}

Value KernelBuilder::dynamicShared() {
  auto space =
      gpu::AddressSpaceAttr::get(getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get({ShapedType::kDynamic}, getI8Type(),
                              MemRefLayoutAttrInterface(), space);
  return gpu::DynamicSharedMemoryOp::create(*this, type);
}

Value KernelBuilder::address(Value buffer, ValueRange indices) {
  auto type = cast<MemRefType>(buffer.getType());
  auto space = dyn_cast_or_null<gpu::AddressSpaceAttr>(type.getMemorySpace());
  bool isShared = space && space.getValue() == gpu::AddressSpace::Workgroup;
  Value start = memref::ExtractAlignedPointerAsIndexOp::create(*this, buffer);
  auto pointer = LLVM::LLVMPointerType::get(
      getContext(), isShared ? kSharedSpace : kGlobalSpace);
  Value base =
      LLVM::IntToPtrOp::create(*this, pointer, fromIndex(start, getI64Type()));
  auto layout = memref::ExtractStridedMetadataOp::create(*this, buffer);
  SmallVector<OpFoldResult> strides = layout.getConstifiedMixedStrides();
  OpFoldResult offset = layout.getConstifiedMixedOffset();
  auto value = [&](OpFoldResult found) -> Value {
    if (auto constant = getConstantIntValue(found))
      return index(*constant);
    return cast<Value>(found);
  };
  Value element = value(offset);
  for (auto [at, step] : llvm::zip_equal(indices, strides))
    element = add(element, mul(at, value(step)));
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  return advance(base, mul(element, index(bytes)));
}

Value KernelBuilder::advance(Value pointer, Value bytes) {
  if (isa<IndexType>(bytes.getType()))
    bytes = fromIndex(bytes, getI64Type());
  return LLVM::GEPOp::create(*this, pointer.getType(), getI8Type(), pointer,
                             ArrayRef<LLVM::GEPArg>{bytes});
}
Value KernelBuilder::advance(Value pointer, int64_t bytes) {
  if (bytes == 0)
    return pointer;
  return LLVM::GEPOp::create(*this, pointer.getType(), getI8Type(), pointer,
                             ArrayRef<LLVM::GEPArg>{int32_t(bytes)});
}

Value KernelBuilder::load16(Value pointer) {
  return loadAt(VectorType::get({4}, getI32Type()), pointer);
}
void KernelBuilder::store16(Value vector, Value pointer) {
  storeAt(vector, pointer);
}

static unsigned bytesOf(Type type) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.getNumElements() * vector.getElementTypeBitWidth() / 8;
  return type.getIntOrFloatBitWidth() / 8;
}
Value KernelBuilder::loadAt(Type type, Value pointer) {
  return LLVM::LoadOp::create(*this, type, pointer, bytesOf(type));
}
void KernelBuilder::storeAt(Value value, Value pointer) {
  LLVM::StoreOp::create(*this, value, pointer, bytesOf(value.getType()));
}

SmallVector<Value> KernelBuilder::loadSeveral(Type type, int64_t count,
                                              Value pointer) {
  if (count == 1)
    return {loadAt(type, pointer)};
  Value loaded = loadAt(VectorType::get({count}, type), pointer);
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(LLVM::ExtractElementOp::create(*this, loaded, i32(i)));
  return values;
}
/// Several values of one type as a vector.
static Value toVector(KernelBuilder &b, ArrayRef<Value> values) {
  auto type = VectorType::get({int64_t(values.size())}, values[0].getType());
  Value all = LLVM::UndefOp::create(b, type);
  for (auto [i, value] : llvm::enumerate(values))
    all = LLVM::InsertElementOp::create(b, all, value, b.i32(i));
  return all;
}
void KernelBuilder::storeSeveral(ArrayRef<Value> values, Value pointer) {
  storeAt(values.size() == 1 ? values[0] : toVector(*this, values), pointer);
}
void KernelBuilder::storePair(Value first, Value second, Value pointer) {
  storeSeveral({first, second}, pointer);
}

Value KernelBuilder::toI32(Value index) {
  return arith::IndexCastOp::create(*this, getI32Type(), index);
}
Value KernelBuilder::extend(Value i32) {
  return arith::IndexCastUIOp::create(*this, getIndexType(), i32);
}
Value KernelBuilder::bitAnd(Value a, Value b) {
  return arith::AndIOp::create(*this, a, b);
}
Value KernelBuilder::bitOr(Value a, Value b) {
  return arith::OrIOp::create(*this, a, b);
}
Value KernelBuilder::bitXor(Value a, Value b) {
  return arith::XOrIOp::create(*this, a, b);
}
Value KernelBuilder::shiftLeft(Value a, int64_t bits) {
  return arith::ShLIOp::create(*this, a, i32(bits));
}
Value KernelBuilder::shiftRight(Value a, int64_t bits) {
  return arith::ShRUIOp::create(*this, a, i32(bits));
}

Value KernelBuilder::divide(Value a, Value b) {
  return arith::DivUIOp::create(*this, a, b);
}

Value KernelBuilder::remainder(Value a, Value b) {
  return arith::RemUIOp::create(*this, a, b);
}
Value KernelBuilder::negate(Value condition) {
  Value yes = arith::ConstantOp::create(*this, getBoolAttr(true));
  return arith::XOrIOp::create(*this, condition, yes);
}
Value KernelBuilder::unsignedLess(Value a, Value b) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::ult, a, b);
}
Value KernelBuilder::bits(Type type, Value value) {
  return LLVM::BitcastOp::create(*this, type, value);
}

SmallVector<Value> KernelBuilder::loop32(Value end, ValueRange inits,
                                         CarryingBody body) {
  auto op = scf::ForOp::create(
      *this, i32(0), end, i32(1), inits,
      [&](OpBuilder &nested, Location, Value i, ValueRange carried) {
        InsertionGuard guard(*this);
        setInsertionPointToEnd(nested.getInsertionBlock());
        SmallVector<Value> yields = body(i, carried);
        scf::YieldOp::create(*this, yields);
      });
  return SmallVector<Value>(op.getResults());
}

void KernelBuilder::overThreads32(Value end, Body body) {
  stride(threadAnew(), end, i32(threads), body);
}

SmallVector<Value>
KernelBuilder::chooseAll(Value condition,
                         llvm::function_ref<SmallVector<Value>()> then,
                         llvm::function_ref<SmallVector<Value>()> otherwise) {
  auto branch = [this](llvm::function_ref<SmallVector<Value>()> body) {
    return [this, body](OpBuilder &nested, Location) {
      InsertionGuard guard(*this);
      setInsertionPointToEnd(nested.getInsertionBlock());
      SmallVector<Value> values = body();
      scf::YieldOp::create(*this, values);
    };
  };
  auto op =
      scf::IfOp::create(*this, condition, branch(then), branch(otherwise));
  return SmallVector<Value>(op.getResults());
}

Value KernelBuilder::threadI32() {
  return NVVM::ThreadIdXOp::create(*this, getI32Type());
}
Value KernelBuilder::lane() { return bitAnd(threadI32(), i32(kWarp - 1)); }
Value KernelBuilder::warp() { return shiftRight(threadI32(), 5); }

Value KernelBuilder::shuffle(Value value, Value offset, int64_t clamp,
                             int kind) {
  return NVVM::ShflOp::create(*this, value.getType(), i32(-1), value, offset,
                              i32(clamp), NVVM::ShflKind(kind), UnitAttr());
}
Value KernelBuilder::shuffleXor(Value value, int64_t mask) {
  return shuffle(value, i32(mask), 31, int(NVVM::ShflKind::bfly));
}
Value KernelBuilder::shuffleUp(Value value, int64_t distance) {
  return shuffle(value, i32(distance), 0, int(NVVM::ShflKind::up));
}
Value KernelBuilder::shuffleFrom(Value value, Value lane) {
  return shuffle(value, lane, 31, int(NVVM::ShflKind::idx));
}
Value KernelBuilder::ballot(Value condition) {
  return NVVM::VoteSyncOp::create(*this, getI32Type(), i32(-1), condition,
                                  NVVM::VoteSyncKind::ballot);
}

SmallVector<Value> KernelBuilder::loadMatrices(Value pointer, bool transposed) {
  SmallVector<Type> four(4, getI32Type());
  auto type = LLVM::LLVMStructType::getLiteral(getContext(), four);
  auto shape = NVVM::LdStMatrixShapeAttr::get(getContext(), 8, 8);
  Value loaded = NVVM::LdMatrixOp::create(*this, type, pointer, 4,
                                          transposed ? NVVM::MMALayout::col
                                                     : NVVM::MMALayout::row,
                                          shape, NVVM::LdStMatrixEltType::B16);
  SmallVector<Value> parts;
  for (int64_t i = 0; i < 4; ++i)
    parts.push_back(LLVM::ExtractValueOp::create(*this, loaded, i));
  return parts;
}

SmallVector<Value> KernelBuilder::multiplyMatrices(Type element, ValueRange a,
                                                   ValueRange b, ValueRange c) {
  bool isHalf = element.isF16();
  auto halves = VectorType::get({2}, getF16Type());
  auto operands = [&](ValueRange values) {
    SmallVector<Value> typed(values);
    if (isHalf)
      for (Value &value : typed)
        value = bits(halves, value);
    return typed;
  };
  SmallVector<Type> four(4, getF32Type());
  auto type = LLVM::LLVMStructType::getLiteral(getContext(), four);
  auto kind = isHalf ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  Value product = NVVM::MmaOp::create(
      *this, type, operands(a), operands(b), c, ArrayRef<int64_t>{16, 8, 16},
      std::nullopt, std::nullopt, std::array<NVVM::MMATypes, 2>{kind, kind},
      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                     NVVM::MMALayout::col});
  SmallVector<Value> parts;
  for (int64_t i = 0; i < 4; ++i)
    parts.push_back(LLVM::ExtractValueOp::create(*this, product, i));
  return parts;
}

Value KernelBuilder::pack(Type element, Value low, Value high) {
  auto narrow = VectorType::get({2}, element);
  Value both = toVector(*this, {low, high});
  return bits(getI32Type(), arith::TruncFOp::create(*this, narrow, both));
}

static Value emitAssembly(LoopBuilder &b, Type type, ValueRange operands,
                          StringRef text, StringRef constraints,
                          bool hasEffects) {
  auto dialect =
      LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT);
  return LLVM::InlineAsmOp::create(
             b, TypeRange{type}, operands, text, constraints, hasEffects,
             /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
             dialect, ArrayAttr())
      .getResult(0);
}
Value KernelBuilder::threadAnew() {
  return emitAssembly(*this, getI32Type(), {}, "mov.u32 $0, %tid.x;", "=r",
                      /*hasEffects=*/true);
}
Value KernelBuilder::exp2(Value x) {
  return emitAssembly(*this, getF32Type(), x, "ex2.approx.ftz.f32 $0, $1;",
                      "=f,f", /*hasEffects=*/false);
}
Value KernelBuilder::log2(Value x) {
  return emitAssembly(*this, getF32Type(), x, "lg2.approx.f32 $0, $1;", "=f,f",
                      /*hasEffects=*/false);
}

Value KernelBuilder::maxNumber(Value a, Value b) {
  return LLVM::MaxNumOp::create(*this, a, b);
}

void KernelBuilder::copyAsync16(Value to, Value from, Value present) {
  Value size = select(present, i32(16), i32(0));
  NVVM::CpAsyncOp::create(*this, to, from, 16, NVVM::LoadCacheModifierKind::CG,
                          size);
}
void KernelBuilder::commitCopies() {
  NVVM::CpAsyncCommitGroupOp::create(*this);
}
void KernelBuilder::waitCopies(int64_t pending) {
  NVVM::CpAsyncWaitGroupOp::create(*this, pending);
}
