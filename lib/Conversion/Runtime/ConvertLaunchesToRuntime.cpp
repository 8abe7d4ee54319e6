//===- ConvertLaunchesToRuntime.cpp - Launches to runtime calls -----------===//

#include "../Utils/Operands.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"
#include "shardq/Conversion/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_CONVERTLAUNCHESTORUNTIME
#include "shardq/Conversion/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// What the runtime is told about one kernel.
struct KernelFacts {
  int64_t threads;
  int64_t dynamicShared;
  int32_t number;
};

struct ConvertLaunchesToRuntimePass
    : public shardq::impl::ConvertLaunchesToRuntimeBase<
          ConvertLaunchesToRuntimePass> {
  void runOnOperation() override;

private:
  LogicalResult lower(gpu::LaunchFuncOp op);
  LogicalResult lower(memref::AllocOp op);
  void lower(memref::DeallocOp op);
  FailureOr<int32_t> getNumber(gpu::LaunchFuncOp op);
  Value call(ImplicitLocOpBuilder &b, StringRef name, Type result,
             ValueRange arguments);
  Value onStack(ImplicitLocOpBuilder &b, Type type, int64_t count);

  llvm::MapVector<StringAttr, KernelFacts> kernels;
};

} // namespace

static Value getRuntimeContext(Operation *op) {
  return op->getParentOfType<func::FuncOp>().getArgument(0);
}

static Value constant(ImplicitLocOpBuilder &b, Type type, int64_t value) {
  return LLVM::ConstantOp::create(b, type, b.getIntegerAttr(type, value));
}

Value ConvertLaunchesToRuntimePass::call(ImplicitLocOpBuilder &b,
                                         StringRef name, Type result,
                                         ValueRange arguments) {
  ModuleOp module = getOperation();
  if (!module.lookupSymbol(name)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    Type type = result ? result : LLVM::LLVMVoidType::get(&getContext());
    LLVM::LLVMFuncOp::create(b, name,
                             LLVM::LLVMFunctionType::get(
                                 type, llvm::to_vector(arguments.getTypes())));
  }
  auto op = LLVM::CallOp::create(b, result ? TypeRange{result} : TypeRange{},
                                 name, arguments);
  return result ? op.getResult() : Value();
}

/// In the entry block: in a loop the stack would grow with each turn.
Value ConvertLaunchesToRuntimePass::onStack(ImplicitLocOpBuilder &b, Type type,
                                            int64_t count) {
  OpBuilder::InsertionGuard guard(b);
  auto function =
      b.getInsertionBlock()->getParentOp()->getParentOfType<func::FuncOp>();
  if (!function)
    function = cast<func::FuncOp>(b.getInsertionBlock()->getParentOp());
  b.setInsertionPointToStart(&function.front());
  return LLVM::AllocaOp::create(b, LLVM::LLVMPointerType::get(&getContext()),
                                type, constant(b, b.getI64Type(), count));
}

FailureOr<int32_t>
ConvertLaunchesToRuntimePass::getNumber(gpu::LaunchFuncOp op) {
  auto fact = [&](Value value, StringRef name) -> FailureOr<int64_t> {
    APInt number;
    if (!matchPattern(value, m_ConstantInt(&number)))
      return op.emitOpError("has ")
             << name << " that are no constant, which the runtime's launches "
             << "cannot have";
    return number.getSExtValue();
  };
  for (Value size : {op.getGridSizeY(), op.getGridSizeZ(), op.getBlockSizeY(),
                     op.getBlockSizeZ()}) {
    FailureOr<int64_t> number = fact(size, "sizes of its other dimensions");
    if (failed(number))
      return failure();
    if (*number != 1)
      return op.emitOpError("has more than one dimension of blocks or threads");
  }
  FailureOr<int64_t> threads = fact(op.getBlockSizeX(), "threads");
  if (failed(threads))
    return failure();
  int64_t shared = 0;
  if (Value bytes = op.getDynamicSharedMemorySize()) {
    FailureOr<int64_t> number = fact(bytes, "bytes of dynamic shared memory");
    if (failed(number))
      return failure();
    shared = *number;
  }
  StringAttr name = op.getKernelName();
  auto [it, isNew] = kernels.insert(
      {name, {*threads, shared, static_cast<int32_t>(kernels.size())}});
  if (!isNew &&
      (it->second.threads != *threads || it->second.dynamicShared != shared))
    return op.emitOpError("launches ")
           << name << " with " << *threads << " threads and " << shared
           << " bytes of dynamic shared memory, and another launch with "
           << it->second.threads << " and " << it->second.dynamicShared;
  return it->second.number;
}

LogicalResult ConvertLaunchesToRuntimePass::lower(gpu::LaunchFuncOp op) {
  if (op.getAsyncToken() || !op.getAsyncDependencies().empty())
    return op.emitOpError("is asynchronous, but the runtime's launches are in "
                          "the order of one stream");
  if (op.hasClusterSize())
    return op.emitOpError("has clusters, which the runtime's launches cannot "
                          "have");
  for (Value operand : op.getKernelOperands())
    if (!isa<MemRefType, IndexType, IntegerType, FloatType,
             LLVM::LLVMPointerType>(operand.getType()))
      return op.emitOpError("has an operand of type ")
             << operand.getType()
             << ", which the runtime's launches cannot have";
  FailureOr<int32_t> number = getNumber(op);
  if (failed(number))
    return failure();
  ImplicitLocOpBuilder b(op.getLoc(), op);
  LLVMTypeConverter converter(&getContext());
  Type i64 = b.getI64Type();
  auto pointer = LLVM::LLVMPointerType::get(&getContext());

  // A buffer is handed over as the fields of its descriptor.
  SmallVector<Value> parameters;
  for (Value operand : op.getKernelOperands()) {
    if (auto type = dyn_cast<MemRefType>(operand.getType())) {
      Value descriptor = UnrealizedConversionCastOp::create(
                             b, TypeRange{converter.convertType(type)}, operand)
                             .getResult(0);
      MemRefDescriptor::unpack(b, op.getLoc(), descriptor, type, parameters);
    } else if (operand.getType().isIndex()) {
      parameters.push_back(arith::IndexCastOp::create(b, i64, operand));
    } else {
      parameters.push_back(operand);
    }
  }
  Value array = onStack(b, pointer, std::max<int64_t>(parameters.size(), 1));
  for (auto [i, parameter] : llvm::enumerate(parameters)) {
    Value cell = onStack(b, parameter.getType(), 1);
    LLVM::StoreOp::create(b, parameter, cell);
    Value entry = LLVM::GEPOp::create(b, pointer, pointer, array,
                                      ArrayRef<LLVM::GEPArg>{int32_t(i)});
    LLVM::StoreOp::create(b, cell, entry);
  }
  Value image = call(b, "shardq_module_image", pointer, {});
  Value blocks = arith::IndexCastOp::create(b, i64, op.getGridSizeX());
  call(b, "shardq_rt_launch", {},
       {getRuntimeContext(op), image, constant(b, b.getI32Type(), *number),
        blocks, array});
  op.erase();
  return success();
}

LogicalResult ConvertLaunchesToRuntimePass::lower(memref::AllocOp op) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  MemRefType type = op.getType();
  if (!type.getElementType().isIntOrFloat() || !type.getLayout().isIdentity())
    return op.emitOpError("makes a buffer of type ")
           << type << ", expected integers or floats without a layout";
  Type i64 = b.getI64Type();
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  int64_t bytes = llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  for (int64_t size : type.getShape())
    if (!ShapedType::isDynamic(size))
      bytes *= size;
  Value total = constant(b, i64, bytes);
  for (Value size : op.getDynamicSizes())
    total =
        LLVM::MulOp::create(b, total, arith::IndexCastOp::create(b, i64, size));
  Value address =
      call(b, "shardq_rt_alloc", pointer, {getRuntimeContext(op), total});
  op.replaceAllUsesWith(
      createBufferAt(b, op.getLoc(), type, address, op.getDynamicSizes()));
  op.erase();
  return success();
}

void ConvertLaunchesToRuntimePass::lower(memref::DeallocOp op) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  Value address =
      memref::ExtractAlignedPointerAsIndexOp::create(b, op.getMemref());
  Value number = arith::IndexCastOp::create(b, b.getI64Type(), address);
  call(b, "shardq_rt_free", {},
       {getRuntimeContext(op), LLVM::IntToPtrOp::create(b, pointer, number)});
  op.erase();
}

void ConvertLaunchesToRuntimePass::runOnOperation() {
  kernels.clear();
  SmallVector<Operation *> ops;
  SmallVector<gpu::BinaryOp> binaries;
  getOperation().walk([&](Operation *op) {
    if (isa<gpu::LaunchFuncOp, memref::AllocOp, memref::DeallocOp>(op))
      ops.push_back(op);
    if (auto binary = dyn_cast<gpu::BinaryOp>(op))
      binaries.push_back(binary);
  });
  for (Operation *op : ops) {
    auto function = op->getParentOfType<func::FuncOp>();
    if (!function || function.getNumArguments() == 0 ||
        !isa<LLVM::LLVMPointerType>(function.getArgument(0).getType())) {
      op->emitOpError("stands in a function without the runtime's context: run "
                      "convert-shardq-to-runtime first");
      return signalPassFailure();
    }
    if (auto launch = dyn_cast<gpu::LaunchFuncOp>(op)) {
      if (failed(lower(launch)))
        return signalPassFailure();
    } else if (auto alloc = dyn_cast<memref::AllocOp>(op)) {
      if (failed(lower(alloc)))
        return signalPassFailure();
    } else {
      lower(cast<memref::DeallocOp>(op));
    }
  }
  // Results have been told from arguments where that mattered.
  for (auto function : getOperation().getOps<func::FuncOp>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      function.removeArgAttr(i,
                             StringAttr::get(&getContext(), kResultAttrName));
  if (kernels.empty())
    return;
  if (binaries.size() != 1) {
    getOperation().emitOpError("has ")
        << binaries.size() << " gpu.binary ops, expected one with all kernels";
    return signalPassFailure();
  }
  Builder b(&getContext());
  SmallVector<Attribute> facts;
  for (auto &[name, kernel] : kernels)
    facts.push_back(b.getDictionaryAttr(
        {b.getNamedAttr("name", name),
         b.getNamedAttr("threads", b.getI32IntegerAttr(kernel.threads)),
         b.getNamedAttr("dynamic_shared",
                        b.getI32IntegerAttr(kernel.dynamicShared))}));
  binaries.front()->setAttr(kKernelsAttrName, b.getArrayAttr(facts));
}
