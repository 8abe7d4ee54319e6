//===- ConvertShardQToRuntime.cpp - Host ops to runtime calls -------------===//

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/Conversion/Passes.h"
#include "shardq/IR/CarrierOps.h"
#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

namespace mlir::shardq {
#define GEN_PASS_DEF_CONVERTSHARDQTORUNTIME
#include "shardq/Conversion/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// Replaces the host ops of one module; the ABI is runtime.h and split.h.
class RuntimeLowering {
public:
  explicit RuntimeLowering(ModuleOp module)
      : module(module), context(module.getContext()),
        pointer(LLVM::LLVMPointerType::get(context)),
        i32(IntegerType::get(context, 32)), i64(IntegerType::get(context, 64)),
        converter(context), b(module.getLoc(), context) {}

  LogicalResult run();

private:
  // Functions and module.
  LogicalResult verifyNames();
  void addContexts();
  void addContext(func::FuncOp function);
  LogicalResult passContexts();
  LogicalResult eraseSymmetricSpaces();
  void collectGroups();
  void emitPlan(PlanOp plan);
  Value emitString(StringRef text);
  LLVM::LLVMFuncOp getFunction(StringRef name, Type result,
                               ArrayRef<Type> arguments);

  // Pieces of a call.
  Value call(StringRef name, Type result, ValueRange arguments);
  Value constant(Type type, int64_t value);
  Value toI64(Value index);
  Value toContiguous(Value buffer);
  Value getPointer(Value buffer);
  Value allocateOnStack(Type element, int64_t count);
  void storeAt(Value value, Value array, int64_t position);
  Value getContext(Operation *op);
  Value makeBuffer(MemRefType type, Value address, ValueRange sizes,
                   ValueRange strides);
  Value getRows(Direction direction, Value offsets, MeshAxis over,
                bool isSignal);
  Value repeatRows(Value rows, MeshAxis over);

  // Ops.
  void lower(RankOp op);
  void lower(DeviceContextOp op);
  void lower(WorkspaceOp op);
  void lower(PeerViewOp op);
  template <typename OpTy> SmallVector<Value> getExchangeArguments(OpTy op);
  template <typename OpTy> void lowerFlag(OpTy op, StringRef function);
  void lower(CountDecodeRowsOp op);
  void lower(ZigzagSplitOp op);
  void lower(SplitGateOp op);
  void lower(GatherBlocksOp op);
  void lower(GatheredTableOp op);
  void lower(ReplicatedTableOp op);
  void lower(GatherGateOp op);
  void lower(CountChunkRowsOp op);
  void lower(ChunkSplitOp op);
  void lower(ChunkLengthsOp op);
  void lower(ChunkSlotsOp op);
  void lower(ShardLengthsOp op);
  Value clearRequests(Value starts, Value lens, Value partStarts,
                      Value partLens);
  Value getWidth(Value matrix);
  Value getLength(Value vector);
  void checkStarts(Operation *op, Value starts, Value decodes, Value rows);
  void expect(Operation *op, StringRef what, Value found, Value expected);
  void lower(ExpectOp op);
  void lower(BeyondTableOp op);
  void lower(NoPlaceOp op);
  void lower(BeyondCacheOp op);
  void lower(CheckStartsOp op);
  void lower(TapOp op);
  void lower(IsCarriedOp op);
  void lower(TransferOp op);
  void lower(AsideOp op);
  void lower(JoinAsideOp op);
  Value getCoordinate(Operation *op, MeshAxis over);

  ModuleOp module;
  MLIRContext *context;
  Type pointer, i32, i64;
  LLVMTypeConverter converter;
  ImplicitLocOpBuilder b;
  llvm::SetVector<Operation *> takers; // functions that take the context
  int64_t numStrings = 0;
  /// Stride and number of ranks of an exchange, by channel; zeroes where its
  /// exchanges differ.
  llvm::DenseMap<int32_t, std::pair<int64_t, int64_t>> groups;
  int64_t ranks = 0; // of the mesh that exchanges are over; 0 without any
  llvm::StringMap<std::string> checks; // names of the texts that say of what
};

} // namespace

//===----------------------------------------------------------------------===//
// Functions and module
//===----------------------------------------------------------------------===//

/// Public functions take the context whatever is in them, so that entry points
/// are called alike.
void RuntimeLowering::addContexts() {
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal() || !function.isPublic())
      continue;
    addContext(function);
    function->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(),
                      UnitAttr::get(context));
  }
}

void RuntimeLowering::addContext(func::FuncOp function) {
  if (!takers.insert(function))
    return;
  LogicalResult added =
      function.insertArgument(0, pointer, {}, function.getLoc());
  assert(succeeded(added) && "a func.func may take any type");
  (void)added;
}

/// A private function takes the context where the lowering of an op in it has
/// asked for it; so does whoever calls one that takes it.
LogicalResult RuntimeLowering::passContexts() {
  SymbolTableCollection symbols;
  llvm::DenseMap<Operation *, SmallVector<func::CallOp>> calls;
  module.walk([&](func::CallOp call) {
    calls[call.resolveCallableInTable(&symbols)].push_back(call);
  });
  // Callers are appended.
  for (unsigned next = 0; next != takers.size();) {
    Operation *taker = takers[next++];
    for (func::CallOp call : calls.lookup(taker)) {
      auto caller = call->getParentOfType<func::FuncOp>();
      if (!caller || caller->getParentOp() != module)
        return call.emitOpError("stands outside a function of the module");
      call->insertOperands(0, getContext(call));
    }
  }
  WalkResult references = module.walk([&](func::ConstantOp constant) {
    Operation *function =
        symbols.lookupNearestSymbolFrom(constant, constant.getValueAttr());
    if (!takers.contains(function))
      return WalkResult::advance();
    constant.emitOpError("refers to ")
        << constant.getValueAttr()
        << ", which takes the runtime's context: call it directly";
    return WalkResult::interrupt();
  });
  return failure(references.wasInterrupted());
}

/// The heap is memory like any other: drops the space from every type.
LogicalResult RuntimeLowering::eraseSymmetricSpaces() {
  AttrTypeReplacer replacer;
  replacer.addReplacement([](MemRefType type) -> std::optional<Type> {
    if (!isa_and_present<SymmetricAttr>(type.getMemorySpace()))
      return std::nullopt;
    return MemRefType::get(type.getShape(), type.getElementType(),
                           type.getLayout(), Attribute());
  });
  module.walk([&](Operation *op) {
    replacer.replaceElementsIn(op, /*replaceAttrs=*/true,
                               /*replaceLocs=*/false, /*replaceTypes=*/true);
  });
  module.walk([](memref::MemorySpaceCastOp cast) {
    if (cast.getSource().getType() == cast.getResult().getType()) {
      cast.replaceAllUsesWith(cast.getSource());
      cast.erase();
    }
  });
  return success();
}

LLVM::LLVMFuncOp RuntimeLowering::getFunction(StringRef name, Type result,
                                              ArrayRef<Type> arguments) {
  if (auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
    return function;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module.getBody());
  return LLVM::LLVMFuncOp::create(
      b, name, LLVM::LLVMFunctionType::get(result, arguments));
}

/// The address of a zero-terminated constant.
Value RuntimeLowering::emitString(StringRef text) {
  std::string name;
  do {
    name = ("shardq_text_" + Twine(numStrings++)).str();
  } while (module.lookupSymbol(name));
  std::string terminated = text.str() + '\0';
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    auto type = LLVM::LLVMArrayType::get(IntegerType::get(context, 8),
                                         terminated.size());
    LLVM::GlobalOp::create(b, type, /*isConstant=*/true,
                           LLVM::Linkage::Internal, name,
                           b.getStringAttr(terminated));
  }
  return LLVM::AddressOfOp::create(b, pointer, name);
}

void RuntimeLowering::collectGroups() {
  auto add = [&](auto op) {
    MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
    ranks = over.mesh.getNumRanks();
    std::pair<int64_t, int64_t> group(over.mesh.getStride(over.axis),
                                      over.axis.getSize());
    auto [known, isNew] = groups.try_emplace(op.getChannel(), group);
    if (!isNew && known->second != group)
      known->second = {0, 0};
  };
  // On GPUs signals are in kernels by now, and transfers are here.
  module.walk([&](Operation *op) {
    llvm::TypeSwitch<Operation *>(op).Case<SignalOp, TransferOp>(add);
  });
}

/// `const shardq_plan *shardq_module_plan(void)`. A module without exchanges
/// has a plan too, with no channels.
void RuntimeLowering::emitPlan(PlanOp plan) {
  ArrayAttr channels = plan ? plan.getChannels() : b.getArrayAttr({});
  ArrayAttr names = plan ? plan.getExchanges() : b.getArrayAttr({});
  auto channelType = LLVM::LLVMStructType::getLiteral(
      context, {pointer, i64, i64, i32, i32, i32, i32});
  auto planType = LLVM::LLVMStructType::getLiteral(
      context, {i64, i64, i32, i32, i64, pointer, i32, i32, pointer, i64});
  auto channelsType = LLVM::LLVMArrayType::get(channelType, channels.size());
  auto namesType = LLVM::LLVMArrayType::get(pointer, names.size());
  auto insert = [&](Value aggregate, Value value,
                    ArrayRef<int64_t> position) -> Value {
    return LLVM::InsertValueOp::create(b, aggregate, value, position);
  };
  auto global = [&](StringRef name, Type type,
                    llvm::function_ref<Value(Value)> fill) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(module.getBody());
    auto op =
        LLVM::GlobalOp::create(b, type, /*isConstant=*/true,
                               LLVM::Linkage::Internal, name, Attribute());
    b.createBlock(&op.getInitializerRegion());
    LLVM::ReturnOp::create(b, fill(LLVM::UndefOp::create(b, type)));
  };
  global("shardq_plan_channels", channelsType, [&](Value array) {
    for (auto [i, attr] : llvm::enumerate(channels.getAsRange<ChannelAttr>())) {
      int64_t at = i;
      array = insert(array, emitString(attr.getName()), {at, 0});
      array = insert(array, constant(i64, attr.getOffset()), {at, 1});
      array = insert(array, constant(i64, attr.getBytes()), {at, 2});
      array = insert(array, constant(i32, attr.getGenerations()), {at, 3});
      // SHARDQ_TRANSPORT_NCCL, or _AUTO.
      array = insert(array, constant(i32, attr.isCarried() ? 2 : 0), {at, 4});
      auto [stride, size] = groups.lookup(i);
      array = insert(array, constant(i32, stride), {at, 5});
      array = insert(array, constant(i32, size), {at, 6});
    }
    return array;
  });
  global("shardq_plan_exchanges", namesType, [&](Value array) {
    for (auto [i, name] : llvm::enumerate(names.getAsValueRange<StringAttr>()))
      array = insert(array, emitString(name), {int64_t(i)});
    return array;
  });
  global("shardq_plan", planType, [&](Value value) {
    auto address = [&](StringRef name) {
      return LLVM::AddressOfOp::create(b, pointer, name);
    };
    // sizeof(shardq_plan) and sizeof(shardq_channel) on every 64-bit target.
    value = insert(value, constant(i64, 64), {0});
    value = insert(value, constant(i64, 40), {9});
    value = insert(value, constant(i64, plan ? plan.getHash() : 0), {1});
    value = insert(value, constant(i32, plan ? plan.getSlots() : 1), {2});
    value = insert(value, constant(i32, channels.size()), {3});
    value = insert(value, constant(i64, plan ? plan.getSlotBytes() : 0), {4});
    value = insert(value, address("shardq_plan_channels"), {5});
    value = insert(value, constant(i32, names.size()), {6});
    value = insert(value, constant(i32, ranks), {7});
    return insert(value, address("shardq_plan_exchanges"), {8});
  });
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  auto function = LLVM::LLVMFuncOp::create(
      b, "shardq_module_plan", LLVM::LLVMFunctionType::get(pointer, {}));
  b.setInsertionPointToStart(function.addEntryBlock(b));
  LLVM::ReturnOp::create(b,
                         LLVM::AddressOfOp::create(b, pointer, "shardq_plan"));
}

//===----------------------------------------------------------------------===//
// Pieces of a call
//===----------------------------------------------------------------------===//

Value RuntimeLowering::call(StringRef name, Type result, ValueRange arguments) {
  Type type = result ? result : LLVM::LLVMVoidType::get(context);
  LLVM::LLVMFuncOp function =
      getFunction(name, type, llvm::to_vector(arguments.getTypes()));
  auto op = LLVM::CallOp::create(b, function, arguments);
  return result ? op.getResult() : Value();
}

Value RuntimeLowering::constant(Type type, int64_t value) {
  return LLVM::ConstantOp::create(b, type, b.getIntegerAttr(type, value));
}

Value RuntimeLowering::toI64(Value index) {
  return arith::IndexCastOp::create(b, i64, index);
}

/// The buffer itself, or a copy where its rows do not lie one behind the
/// other: the runtime takes plain arrays. Freed at the end of the block.
Value RuntimeLowering::toContiguous(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  bool contiguous = succeeded(type.getStridesAndOffset(strides, offset)) &&
                    type.getRank() == 1 && strides.front() == 1;
  if (contiguous || type.getLayout().isIdentity())
    return buffer;
  SmallVector<Value> sizes;
  for (auto [dim, size] : llvm::enumerate(type.getShape()))
    if (ShapedType::isDynamic(size))
      sizes.push_back(memref::DimOp::create(b, buffer, dim));
  Value copy = memref::AllocOp::create(
      b, MemRefType::get(type.getShape(), type.getElementType()), sizes);
  linalg::makeMemRefCopyOp(b, b.getLoc(), buffer, copy);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(b.getInsertionBlock()->getTerminator());
  memref::DeallocOp::create(b, copy);
  return copy;
}

/// Address of the first element.
Value RuntimeLowering::getPointer(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, buffer);
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, buffer);
  Value bytes = arith::MulIOp::create(
      b, metadata.getOffset(),
      arith::ConstantIndexOp::create(b, type.getElementTypeBitWidth() / 8));
  Value address = arith::AddIOp::create(b, base, bytes);
  return LLVM::IntToPtrOp::create(b, pointer, toI64(address));
}

Value RuntimeLowering::allocateOnStack(Type element, int64_t count) {
  // In the entry block: in a loop the stack would grow with each turn.
  OpBuilder::InsertionGuard guard(b);
  auto function = b.getInsertionBlock()->getParentOp();
  if (!isa<func::FuncOp>(function))
    function = function->getParentOfType<func::FuncOp>();
  b.setInsertionPointToStart(&cast<func::FuncOp>(function).front());
  return LLVM::AllocaOp::create(b, pointer, element, constant(i64, count));
}

void RuntimeLowering::storeAt(Value value, Value array, int64_t position) {
  Value address =
      LLVM::GEPOp::create(b, pointer, value.getType(), array,
                          ArrayRef<LLVM::GEPArg>{int32_t(position)});
  LLVM::StoreOp::create(b, value, address);
}

/// Whoever asks for it makes the function take it.
Value RuntimeLowering::getContext(Operation *op) {
  auto function = op->getParentOfType<func::FuncOp>();
  addContext(function);
  return function.getArgument(0);
}

/// A buffer at an address of the heap.
Value RuntimeLowering::makeBuffer(MemRefType type, Value address,
                                  ValueRange sizes, ValueRange strides) {
  auto descriptor =
      MemRefDescriptor::poison(b, b.getLoc(), converter.convertType(type));
  descriptor.setAllocatedPtr(b, b.getLoc(), address);
  descriptor.setAlignedPtr(b, b.getLoc(), address);
  descriptor.setConstantOffset(b, b.getLoc(), 0);
  for (auto [i, size] : llvm::enumerate(sizes))
    descriptor.setSize(b, b.getLoc(), i, size);
  for (auto [i, stride] : llvm::enumerate(strides))
    descriptor.setStride(b, b.getLoc(), i, stride);
  Value value = descriptor;
  return UnrealizedConversionCastOp::create(b, TypeRange{type}, value)
      .getResult(0);
}

Value RuntimeLowering::getCoordinate(Operation *op, MeshAxis over) {
  Value rank = call("shardq_rt_rank", i64, getContext(op));
  Value stride = constant(i64, over.mesh.getStride(over.axis));
  Value size = constant(i64, over.axis.getSize());
  Value quotient = arith::DivUIOp::create(b, rank, stride);
  return arith::RemUIOp::create(b, quotient, size);
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

void RuntimeLowering::lower(RankOp op) {
  Value rank;
  if (op.getAxisAttr())
    rank =
        getCoordinate(op, lookupMeshAxis(op, op.getMeshAttr(), *op.getAxis()));
  else
    rank = call("shardq_rt_rank", i64, getContext(op));
  op.replaceAllUsesWith(
      Value(arith::IndexCastOp::create(b, b.getIndexType(), rank)));
}

void RuntimeLowering::lower(DeviceContextOp op) {
  Value address = call("shardq_rt_device", pointer, {getContext(op)});
  Value number = LLVM::PtrToIntOp::create(b, i64, address);
  op.replaceAllUsesWith(
      Value(arith::IndexCastOp::create(b, b.getIndexType(), number)));
}

void RuntimeLowering::lower(WorkspaceOp op) {
  auto type = cast<MemRefType>(op.getType());
  SmallVector<Value> sizes, strides;
  auto dynamic = op.getSizes().begin();
  int64_t rowBytes = type.getElementTypeBitWidth() / 8;
  for (int64_t size : type.getShape()) {
    sizes.push_back(ShapedType::isDynamic(size) ? toI64(*dynamic++)
                                                : constant(i64, size));
  }
  Value stride = constant(i64, 1);
  for (Value size : llvm::reverse(sizes)) {
    strides.insert(strides.begin(), stride);
    stride = arith::MulIOp::create(b, stride, size);
  }
  for (int64_t size : type.getShape().drop_front(type.getRank() ? 1 : 0))
    rowBytes *= size;
  // A step beyond the plan is an error there, and gets memory of its own.
  Value address = call("shardq_rt_workspace", pointer,
                       {getContext(op), constant(i32, op.getChannel()),
                        type.getRank() ? sizes.front() : constant(i64, 1),
                        constant(i64, rowBytes)});
  op.replaceAllUsesWith(makeBuffer(type, address, sizes, strides));
}

void RuntimeLowering::lower(PeerViewOp op) {
  auto type = cast<MemRefType>(op.getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, op.getSource());
  SmallVector<Value> sizes, strides;
  for (Value size : metadata.getSizes())
    sizes.push_back(toI64(size));
  for (Value stride : metadata.getStrides())
    strides.push_back(toI64(stride));
  Value address =
      call("shardq_rt_peer", pointer,
           {getContext(op), getPointer(op.getSource()), toI64(op.getPeer())});
  // The address is that of the first element.
  auto flat = MemRefType::get(
      type.getShape(), type.getElementType(),
      StridedLayoutAttr::get(
          context, 0,
          SmallVector<int64_t>(type.getRank(), ShapedType::kDynamic)));
  Value view = makeBuffer(flat, address, sizes, strides);
  if (flat != type)
    view = memref::CastOp::create(b, type, view);
  op.replaceAllUsesWith(view);
}

/// Rows that this rank sends to each member of the group, or expects of it.
Value RuntimeLowering::getRows(Direction direction, Value offsets,
                               MeshAxis over, bool isSignal) {
  int64_t ranks = over.axis.getSize();
  Value array = allocateOnStack(i64, ranks);
  // heads_to_tokens fills each owner's inbox; tokens_to_heads spreads own rows.
  bool byPeer = (direction == Direction::HeadsToTokens) == isSignal;
  auto offset = [&](Value at) -> Value {
    return arith::ExtSIOp::create(b, i64,
                                  memref::LoadOp::create(b, offsets, at));
  };
  Value coordinate;
  if (!byPeer) {
    coordinate = getCoordinate(&*b.getInsertionPoint(), over);
    coordinate = arith::IndexCastOp::create(b, b.getIndexType(), coordinate);
  }
  Value one = arith::ConstantIndexOp::create(b, 1);
  for (int64_t peer = 0; peer < ranks; ++peer) {
    Value group =
        byPeer ? Value(arith::ConstantIndexOp::create(b, peer)) : coordinate;
    Value next = arith::AddIOp::create(b, group, one);
    storeAt(arith::SubIOp::create(b, offset(next), offset(group)), array, peer);
  }
  return array;
}

/// The same number of rows to and of each member.
Value RuntimeLowering::repeatRows(Value rows, MeshAxis over) {
  int64_t ranks = over.axis.getSize();
  Value array = allocateOnStack(i64, ranks), number = toI64(rows);
  for (int64_t peer = 0; peer < ranks; ++peer)
    storeAt(number, array, peer);
  return array;
}

/// What calls that concern an exchange begin with.
template <typename OpTy>
SmallVector<Value> RuntimeLowering::getExchangeArguments(OpTy op) {
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value stride = constant(i64, over.mesh.getStride(over.axis));
  Value rank = call("shardq_rt_rank", i64, getContext(op));
  Value first = arith::SubIOp::create(
      b, rank, arith::MulIOp::create(b, getCoordinate(op, over), stride));
  return {getContext(op),
          constant(i32, op.getChannel()),
          constant(i32, op.getExchange()),
          first,
          stride,
          constant(i64, over.axis.getSize())};
}

template <typename OpTy>
void RuntimeLowering::lowerFlag(OpTy op, StringRef function) {
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value rows = op.isByOffsets() ? getRows(op.getDirection(), op.getOffsets(),
                                          over, std::is_same_v<OpTy, SignalOp>)
                                : repeatRows(op.getRows(), over);
  SmallVector<Value> arguments = getExchangeArguments(op);
  arguments.push_back(rows);
  call(function, {}, arguments);
}

void RuntimeLowering::lower(IsCarriedOp op) {
  Value carried = call("shardq_rt_is_carried", i32,
                       {getContext(op), constant(i32, op.getChannel())});
  op.replaceAllUsesWith(Value(arith::CmpIOp::create(
      b, arith::CmpIPredicate::ne, carried, constant(i32, 0))));
}

void RuntimeLowering::lower(TransferOp op) {
  SmallVector<Value> arguments = getExchangeArguments(op);
  arguments.append({getPointer(op.getOutbox()), getPointer(op.getLanding()),
                    constant(i64, op.getRows()),
                    constant(i64, op.getRowBytes())});
  call("shardq_rt_transfer", {}, arguments);
}

void RuntimeLowering::lower(AsideOp op) {
  call("shardq_rt_begin_aside", {},
       {getContext(op), constant(i32, op.getChannel())});
  Block &body = op.getBody().front();
  op->getBlock()->getOperations().splice(op->getIterator(),
                                         body.getOperations());
  call("shardq_rt_end_aside", {}, {getContext(op)});
}

void RuntimeLowering::lower(JoinAsideOp op) {
  call("shardq_rt_join_aside", {}, {getContext(op)});
}

/// Number of requests that both arrays have.
static Value getRequests(ImplicitLocOpBuilder &b, Value queryStart,
                         Value seqLens) {
  Value zero = arith::ConstantIndexOp::create(b, 0);
  Value one = arith::ConstantIndexOp::create(b, 1);
  Value starts = memref::DimOp::create(b, queryStart, zero);
  Value requests =
      arith::MaxSIOp::create(b, zero, arith::SubIOp::create(b, starts, one));
  if (seqLens)
    requests = arith::MinSIOp::create(b, requests,
                                      memref::DimOp::create(b, seqLens, zero));
  return requests;
}

void RuntimeLowering::lower(CountDecodeRowsOp op) {
  Value starts = toContiguous(op.getQueryStart());
  Value count = call("shardq_count_decode_rows", i64,
                     {getPointer(starts), toI64(getRequests(b, starts, {})),
                      constant(i64, op.getSpeculativeTokens())});
  op.replaceAllUsesWith(
      Value(arith::IndexCastOp::create(b, b.getIndexType(), count)));
}

void RuntimeLowering::lower(ZigzagSplitOp op) {
  Value starts = toContiguous(op.getQueryStart());
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value ids = op.getOuts()[0], offsets = op.getOuts()[1];
  // What fits the array, should the rows be given another size.
  Value size =
      memref::DimOp::create(b, ids, arith::ConstantIndexOp::create(b, 0));
  checkStarts(op, starts, op.getDecodes(), op.getRows());
  call("shardq_zigzag_split", {},
       {getPointer(starts), toI64(getRequests(b, starts, {})),
        toI64(op.getDecodes()), toI64(size), constant(i64, over.axis.getSize()),
        getPointer(ids), getPointer(offsets)});
}

void RuntimeLowering::lower(SplitGateOp op) {
  Value offsets = toContiguous(op.getOffsets());
  Value starts = toContiguous(op.getQueryStart());
  Value lens = toContiguous(op.getSeqLens());
  int64_t ranks = cast<ShapedType>(offsets.getType()).getDimSize(0) - 1;
  auto limit = [&](std::optional<uint64_t> rows) {
    return constant(i64, rows ? int64_t(*rows) : -1);
  };
  // Results of an enum are int.
  Value gate =
      call("shardq_split_gate", i32,
           {getPointer(offsets), constant(i64, ranks), getPointer(starts),
            getPointer(lens), toI64(getRequests(b, starts, lens)),
            toI64(op.getDecodes()), toI64(op.getRows()),
            constant(i64, op.getMinTokens()), constant(i64, op.getTopk()),
            limit(op.getMaxRankRows()), limit(op.getMaxRows())});
  op.replaceAllUsesWith(Value(arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                                    gate, constant(i32, 0))));
}

/// Columns of a matrix.
Value RuntimeLowering::getWidth(Value matrix) {
  return memref::DimOp::create(b, matrix, arith::ConstantIndexOp::create(b, 1));
}

void RuntimeLowering::lower(GatherBlocksOp op) {
  Value table = toContiguous(op.getTable());
  Value lengths = toContiguous(op.getLengths());
  Value blocks = op.getOuts()[0], inverse = op.getOuts()[1];
  Value first = arith::ConstantIndexOp::create(b, 0);
  // Without a pool, every entry is a block.
  Value pool = op.getPool()
                   ? toI64(op.getPool())
                   : constant(i64, std::numeric_limits<int64_t>::max());
  // Requests that only one of the two has are not gathered.
  Value none = arith::ConstantOp::create(b, b.getI32IntegerAttr(-1));
  for (Value list : {blocks, inverse})
    linalg::FillOp::create(b, none, list);
  Value requests =
      arith::MinSIOp::create(b, memref::DimOp::create(b, table, first),
                             memref::DimOp::create(b, lengths, first));
  Value width = toI64(getWidth(table));
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value count = call(
      "shardq_gather_blocks", i64,
      {getPointer(table), toI64(requests), width, width, getPointer(lengths),
       constant(i64, over.axis.getSize()), constant(i64, op.getInterleave()),
       constant(i64, op.getBlockSize()), constant(i32, op.getNullBlock()), pool,
       getPointer(blocks), getPointer(inverse)});
  memref::StoreOp::create(b, arith::TruncIOp::create(b, i32, count),
                          op.getOuts()[2], first);
}

void RuntimeLowering::lower(GatheredTableOp op) {
  Value inverse = toContiguous(op.getInverse()), table = op.getOuts().front();
  Value first = arith::ConstantIndexOp::create(b, 0);
  // Types may leave it open whether both have equally many requests.
  Value requests =
      arith::MinSIOp::create(b, memref::DimOp::create(b, inverse, first),
                             memref::DimOp::create(b, table, first));
  Value none = arith::ConstantOp::create(b, b.getI32IntegerAttr(-1));
  linalg::FillOp::create(b, none, table);
  Value count = arith::ExtSIOp::create(
      b, i64, memref::LoadOp::create(b, op.getCount(), first));
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  // More blocks than entries can name leave a table of -1.
  call("shardq_gathered_table", i32,
       {toI64(requests), toI64(getWidth(inverse)), getPointer(inverse), count,
        constant(i64, over.axis.getSize()), constant(i64, op.getInterleave()),
        constant(i64, op.getBlockSize()), getPointer(table)});
}

void RuntimeLowering::lower(ReplicatedTableOp op) {
  Value table = toContiguous(op.getTable());
  Value lengths = toContiguous(op.getLengths());
  Value view = op.getOuts().front();
  Value first = arith::ConstantIndexOp::create(b, 0);
  // Requests that only some of them have are empty.
  Value none = arith::ConstantOp::create(b, b.getI32IntegerAttr(0));
  linalg::FillOp::create(b, none, view);
  Value requests = memref::DimOp::create(b, view, first);
  for (Value other : {table, lengths})
    requests = arith::MinSIOp::create(b, requests,
                                      memref::DimOp::create(b, other, first));
  Value width = toI64(getWidth(table));
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  call("shardq_replicated_view", {},
       {getPointer(table), toI64(requests), width, width, getPointer(lengths),
        constant(i64, over.axis.getSize()),
        constant(i64, op.getBlocksPerBlock()), getPointer(view)});
}

void RuntimeLowering::lower(GatherGateOp op) {
  Value zero = arith::ConstantIndexOp::create(b, 0);
  Value one = arith::ConstantIndexOp::create(b, 1);
  auto load = [&](Value list, Value at) -> Value {
    return arith::IndexCastOp::create(b, b.getIndexType(),
                                      memref::LoadOp::create(b, list, at));
  };
  // A list without a first start has no tokens.
  Value starts = memref::DimOp::create(b, op.getQueryStart(), zero);
  Value isEmpty =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, starts, zero);
  auto tokens = scf::IfOp::create(b, b.getIndexType(), isEmpty,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(tokens.thenBlock());
    scf::YieldOp::create(b, zero);
    b.setInsertionPointToStart(tokens.elseBlock());
    Value last = arith::SubIOp::create(b, starts, one);
    scf::YieldOp::create(b, load(op.getQueryStart(), last));
  }
  Value open = arith::CmpIOp::create(b, arith::CmpIPredicate::sgt,
                                     tokens.getResult(0), op.getDecodes());
  if (std::optional<uint64_t> most = op.getMaxBlocks()) {
    Value fits = arith::CmpIOp::create(
        b, arith::CmpIPredicate::sle, load(op.getCount(), zero),
        arith::ConstantIndexOp::create(b, *most));
    open = arith::AndIOp::create(b, open, fits);
  }
  op.replaceAllUsesWith(open);
}

/// The part as a shardq_chunk_part.
static int64_t getPart(ChunkPart part) {
  switch (part) {
  case ChunkPart::All:
    return 0;
  case ChunkPart::Head:
    return 1;
  case ChunkPart::Tail:
    return 2;
  }
  llvm_unreachable("unknown part");
}

void RuntimeLowering::lower(CountChunkRowsOp op) {
  Value starts = toContiguous(op.getQueryStart());
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value count = call("shardq_chunk_part_rows", i64,
                     {getPointer(starts), toI64(getRequests(b, starts, {})),
                      toI64(op.getDecodes()), toI64(op.getRows()),
                      constant(i64, over.axis.getSize()),
                      constant(i32, getPart(op.getPart()))});
  op.replaceAllUsesWith(
      Value(arith::IndexCastOp::create(b, b.getIndexType(), count)));
}

/// Entries of a vector.
Value RuntimeLowering::getLength(Value vector) {
  return toI64(
      memref::DimOp::create(b, vector, arith::ConstantIndexOp::create(b, 0)));
}

void RuntimeLowering::lower(ChunkSplitOp op) {
  Value starts = toContiguous(op.getQueryStart());
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value mine = op.getOuts()[0], restore = op.getOuts()[1];
  checkStarts(op, starts, op.getDecodes(), op.getRows());
  call("shardq_chunk_split", {},
       {getPointer(starts), toI64(getRequests(b, starts, {})),
        toI64(op.getDecodes()), toI64(op.getRows()),
        constant(i64, over.axis.getSize()), getCoordinate(op, over),
        constant(i32, op.getByPart()), getLength(mine), getPointer(mine),
        getLength(restore), getPointer(restore)});
}

/// Clears the lists of some of a step's rows, and returns how many requests all
/// have: those that only one has are none, and a list without a first start
/// stays empty.
Value RuntimeLowering::clearRequests(Value starts, Value lens, Value partStarts,
                                     Value partLens) {
  Value first = arith::ConstantIndexOp::create(b, 0);
  Value zero = arith::ConstantOp::create(b, b.getI32IntegerAttr(0));
  for (Value list : {partStarts, partLens})
    linalg::FillOp::create(b, zero, list);
  Value requests = getRequests(b, starts, lens);
  for (Value list : {partStarts, partLens}) {
    Value entries = memref::DimOp::create(b, list, first);
    if (list == partStarts)
      entries = arith::SubIOp::create(b, entries,
                                      arith::ConstantIndexOp::create(b, 1));
    requests = arith::MinSIOp::create(b, requests, entries);
  }
  return requests;
}

void RuntimeLowering::lower(ShardLengthsOp op) {
  Value starts = toContiguous(op.getQueryStart());
  Value lens = toContiguous(op.getSeqLens());
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value partStarts = op.getOuts()[0], partLens = op.getOuts()[1];
  // Starts are of i32, so further rows tell nothing.
  Value most =
      arith::ConstantIndexOp::create(b, std::numeric_limits<int32_t>::max());
  Value ranks = arith::ConstantIndexOp::create(b, over.axis.getSize());
  Value rows = arith::MulIOp::create(
      b, arith::MinSIOp::create(b, op.getRows(), most), ranks);
  checkStarts(op, starts, arith::ConstantIndexOp::create(b, 0), rows);
  Value requests = clearRequests(starts, lens, partStarts, partLens);
  call("shardq_shard_lengths", {},
       {getPointer(starts), getPointer(lens), toI64(requests),
        toI64(op.getRows()), getCoordinate(op, over), getPointer(partStarts),
        getPointer(partLens)});
}

void RuntimeLowering::lower(ChunkLengthsOp op) {
  Value starts = toContiguous(op.getQueryStart());
  Value lens = toContiguous(op.getSeqLens());
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value partStarts = op.getOuts()[0], partLens = op.getOuts()[1];
  Value own = op.getOuts()[2];
  Value requests = clearRequests(starts, lens, partStarts, partLens);
  call("shardq_chunk_lengths", {},
       {getPointer(starts), toI64(requests), toI64(op.getDecodes()),
        toI64(op.getRows()), constant(i64, over.axis.getSize()),
        getCoordinate(op, over), constant(i32, getPart(op.getPart())),
        getPointer(lens), getPointer(partStarts), getPointer(partLens),
        getLength(own), getPointer(own)});
}

void RuntimeLowering::lower(ChunkSlotsOp op) {
  Value starts = toContiguous(op.getQueryStart());
  Value slots = toContiguous(op.getSlots());
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  Value order = op.getOuts()[0], padded = op.getOuts()[1];
  int64_t bytes =
      cast<MemRefType>(slots.getType()).getElementTypeBitWidth() / 8;
  Value entries =
      arith::MinSIOp::create(b, getLength(order), getLength(padded));
  Value requests = toI64(getRequests(b, starts, {}));
  Value decodes = toI64(op.getDecodes()), local = toI64(op.getLocal());
  Value ranks = constant(i64, over.axis.getSize());
  // More rows are padding; a token that fewer leave without one would be lost.
  Value needed = call("shardq_chunk_part_rows", i64,
                      {getPointer(starts), requests, decodes,
                       constant(i64, std::numeric_limits<int32_t>::max()),
                       ranks, constant(i32, getPart(ChunkPart::All))});
  Value found = arith::MinSIOp::create(
      b, local, arith::DivSIOp::create(b, entries, ranks));
  expect(op, "rows of a rank in shardq.chunk_slots",
         arith::MinSIOp::create(b, found, needed), needed);
  call(op.getOwnDecodes() ? "shardq_chunk_own_order" : "shardq_chunk_order", {},
       {getPointer(starts), requests, decodes, getLength(slots), ranks,
        constant(i32, op.getByPart()), local, constant(i32, bytes),
        getPointer(slots), entries, getPointer(order), getPointer(padded)});
}

/// Reports starts of a contiguous array that do not add up.
void RuntimeLowering::checkStarts(Operation *op, Value starts, Value decodes,
                                  Value rows) {
  call("shardq_rt_check_starts", {},
       {getContext(op), getPointer(starts), getLength(starts), toI64(decodes),
        toI64(rows)});
}

/// Reports that `what` is `found`, where it is not `expected`.
void RuntimeLowering::expect(Operation *op, StringRef what, Value found,
                             Value expected) {
  // Many layers are checked alike.
  std::string &name = checks[what];
  Value text;
  if (name.empty()) {
    text = emitString(what);
    name = text.getDefiningOp<LLVM::AddressOfOp>().getGlobalName().str();
  } else {
    text = LLVM::AddressOfOp::create(b, pointer, name);
  }
  call("shardq_rt_expect", {}, {getContext(op), text, found, expected});
}

void RuntimeLowering::lower(ExpectOp op) {
  expect(op, op.getWhat(), toI64(op.getFound()), toI64(op.getExpected()));
}

void RuntimeLowering::lower(BeyondTableOp op) {
  call("shardq_rt_beyond_table", {},
       {getContext(op), toI64(op.getBlock()), toI64(op.getRequest()),
        toI64(op.getRequests()), toI64(op.getWidth())});
}

void RuntimeLowering::lower(NoPlaceOp op) {
  call("shardq_rt_no_place", {},
       {getContext(op), toI64(op.getBlock()), toI64(op.getRequest()),
        toI64(op.getEntry())});
}

void RuntimeLowering::lower(BeyondCacheOp op) {
  call("shardq_rt_beyond_cache", {},
       {getContext(op), toI64(op.getSlot()), toI64(op.getRow()),
        toI64(op.getRows())});
}

void RuntimeLowering::lower(CheckStartsOp op) {
  checkStarts(op, toContiguous(op.getQueryStart()), op.getDecodes(),
              op.getRows());
}

void RuntimeLowering::lower(TapOp op) {
  auto type = cast<MemRefType>(op.getValue().getType());
  int64_t rank = type.getRank();
  auto metadata = memref::ExtractStridedMetadataOp::create(b, op.getValue());
  Value sizes = allocateOnStack(i64, rank),
        strides = allocateOnStack(i64, rank);
  for (int64_t i = 0; i < rank; ++i) {
    storeAt(toI64(metadata.getSizes()[i]), sizes, i);
    storeAt(toI64(metadata.getStrides()[i]), strides, i);
  }
  Value rows = LLVM::ZeroOp::create(b, pointer);
  if (op.getRows())
    rows = getPointer(toContiguous(op.getRows()));
  Value count =
      op.getCount() ? getPointer(op.getCount()) : toI64(metadata.getSizes()[0]);
  call(op.getCount() ? "shardq_rt_tap_counted" : "shardq_rt_tap", {},
       {getContext(op), emitString(op.getName()),
        constant(i32, type.getElementTypeBitWidth() / 8), constant(i32, rank),
        getPointer(op.getValue()), sizes, strides, rows, count});
}

/// The module's own symbols do not hide the runtime's.
LogicalResult RuntimeLowering::verifyNames() {
  for (Operation &op : *module.getBody()) {
    auto name = op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
    if (!name || isa<LLVM::LLVMFuncOp>(op))
      continue;
    StringRef text = name.getValue();
    if (text.starts_with("shardq_rt_") || text == "shardq_module_plan" ||
        text == "shardq_plan" || text == "shardq_plan_channels" ||
        text == "shardq_plan_exchanges" || text == "shardq_zigzag_split" ||
        text == "shardq_split_gate" || text == "shardq_count_decode_rows" ||
        text == "shardq_gather_blocks" || text == "shardq_gathered_table" ||
        text == "shardq_replicated_view" || text == "shardq_chunk_part_rows" ||
        text == "shardq_chunk_split" || text == "shardq_chunk_lengths" ||
        text == "shardq_shard_lengths" || text == "shardq_chunk_order" ||
        text == "shardq_chunk_own_order")
      return op.emitOpError("is named ")
             << name << ", which is a name of ShardQ's runtime";
  }
  return success();
}

LogicalResult RuntimeLowering::run() {
  if (failed(verifyInFunctionsOf(module)) ||
      failed(verifyOnStridedBuffers(module)) || failed(verifyNames()) ||
      failed(eraseSymmetricSpaces()))
    return failure();
  addContexts();
  collectGroups();
  SmallVector<Operation *> ops;
  PlanOp plan;
  SmallVector<Operation *> symbolsToErase;
  module.walk([&](Operation *op) {
    if (isa<MeshOp, PlanOp>(op))
      symbolsToErase.push_back(op);
    else if (isa_and_present<ShardQDialect>(op->getDialect()))
      ops.push_back(op);
    if (auto found = dyn_cast<PlanOp>(op))
      plan = found;
  });
  for (Operation *op : ops) {
    b.setLoc(op->getLoc());
    b.setInsertionPoint(op);
    bool known =
        llvm::TypeSwitch<Operation *, bool>(op)
            .Case<RankOp, DeviceContextOp, WorkspaceOp, PeerViewOp,
                  CountDecodeRowsOp, ZigzagSplitOp, SplitGateOp, GatherBlocksOp,
                  GatheredTableOp, ReplicatedTableOp, GatherGateOp,
                  CountChunkRowsOp, ChunkSplitOp, ChunkLengthsOp, ChunkSlotsOp,
                  ShardLengthsOp, TapOp, IsCarriedOp, TransferOp, AsideOp,
                  JoinAsideOp, ExpectOp, BeyondTableOp, NoPlaceOp,
                  BeyondCacheOp, CheckStartsOp>([&](auto op) {
              lower(op);
              return true;
            })
            .Case([&](SignalOp op) {
              lowerFlag(op, "shardq_rt_signal");
              return true;
            })
            .Case([&](WaitOp op) {
              lowerFlag(op, "shardq_rt_wait");
              return true;
            })
            .Default(false);
    if (!known)
      return op->emitOpError(
          "is no host op: run convert-shardq-to-loops and "
          "shardq-plan-workspace before convert-shardq-to-runtime");
    op->erase();
  }
  if (failed(passContexts()))
    return failure();
  // Split attributes refer to the mesh, which goes away.
  for (auto function : module.getOps<func::FuncOp>()) {
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      function.removeArgAttr(i, kSplitAttrName);
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      function.removeResultAttr(i, StringAttr::get(context, kSplitAttrName));
  }
  b.setLoc(module.getLoc());
  emitPlan(plan);
  for (Operation *op : symbolsToErase)
    op->erase();
  return success();
}

namespace {
struct ConvertShardQToRuntimePass
    : public shardq::impl::ConvertShardQToRuntimeBase<
          ConvertShardQToRuntimePass> {
  void runOnOperation() override {
    if (failed(RuntimeLowering(getOperation()).run()))
      signalPassFailure();
  }
};
} // namespace
