//===- ShareKernels.cpp - One kernel for equal launches -------------------===//

#include "KernelBuilder.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "shardq/Conversion/Passes.h"
#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHAREKERNELS
#include "shardq/Conversion/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;

namespace {
struct ShareKernelsPass
    : public shardq::impl::ShareKernelsBase<ShareKernelsPass> {
  void runOnOperation() override;
};
} // namespace

/// The number of the exchange that `kernel` is part of, which the device
/// library puts into its record of a failure: a constant, or null.
static Operation *findExchange(gpu::GPUFuncOp kernel,
                               SmallVectorImpl<OpOperand *> &uses) {
  Operation *number = nullptr;
  kernel.walk([&](LLVM::CallOp call) {
    StringRef name = call.getCallee().value_or("");
    if (!llvm::is_contained({"shardq_device_admit", "shardq_device_signal",
                             "shardq_device_announce", "shardq_device_wait",
                             "shardq_device_exchange"},
                            name))
      return;
    OpOperand &operand = call->getOpOperand(2);
    Operation *op = operand.get().getDefiningOp();
    if (!op || !op->hasTrait<OpTrait::ConstantLike>())
      return;
    if (!number)
      number = op;
    if (number == op)
      uses.push_back(&operand);
  });
  return number;
}

/// Makes that number an argument: it is what tells the kernels of two layers
/// apart.
static void handOverExchanges(ModuleOp module) {
  llvm::DenseMap<Attribute, Operation *> numbers;
  SmallVector<Operation *> unused;
  for (auto kernels : module.getOps<gpu::GPUModuleOp>())
    for (auto kernel : kernels.getOps<gpu::GPUFuncOp>()) {
      SmallVector<OpOperand *> uses;
      Operation *number = findExchange(kernel, uses);
      unsigned last = kernel.getNumArguments();
      if (!number || !kernel.isKernel() ||
          failed(kernel.insertArgument(last, number->getResult(0).getType(), {},
                                       kernel.getLoc())))
        continue;
      for (OpOperand *use : uses)
        use->set(kernel.getArgument(last));
      numbers[SymbolRefAttr::get(kernels.getNameAttr(),
                                 {FlatSymbolRefAttr::get(kernel)})] = number;
      unused.push_back(number);
    }
  module.walk([&](gpu::LaunchFuncOp launch) {
    if (Operation *number = numbers.lookup(launch.getKernel())) {
      OpBuilder b(launch);
      launch.getKernelOperandsMutable().append(b.clone(*number)->getResult(0));
    }
  });
  for (Operation *number : unused)
    if (number->use_empty())
      number->erase();
}

/// Which constant was met first is no difference either.
static void sortConstants(gpu::GPUFuncOp kernel) {
  Block &block = kernel.getBody().front();
  SmallVector<std::pair<std::string, Operation *>> constants;
  for (Operation &op : block)
    if (op.hasTrait<OpTrait::ConstantLike>()) {
      std::string text;
      llvm::raw_string_ostream stream(text);
      op.print(stream, OpPrintingFlags().printGenericOpForm().useLocalScope());
      // Without the name of its result.
      constants.push_back({text.substr(text.find('=')), &op});
    }
  llvm::sort(constants, llvm::less_first());
  for (auto &[text, op] : llvm::reverse(constants))
    op->moveBefore(&block, block.begin());
}

/// The kernel as text, all but its name.
static std::string getText(gpu::GPUFuncOp kernel) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  StringAttr name = kernel.getNameAttr();
  kernel.setName("kernel");
  kernel->print(stream, OpPrintingFlags().printGenericOpForm().useLocalScope());
  kernel.setName(name);
  return text;
}

void ShareKernelsPass::runOnOperation() {
  // ptxas counts registers by it.
  if (auto resident = getOperation()->getAttrOfType<DictionaryAttr>(
          shardq::kResidentBlocksAttrName)) {
    getOperation().walk([&](gpu::GPUFuncOp kernel) {
      if (auto blocks = resident.getAs<IntegerAttr>(kernel.getNameAttr()))
        kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), blocks);
    });
    getOperation()->removeAttr(shardq::kResidentBlocksAttrName);
  }
  getOperation().walk(
      [](gpu::GPUFuncOp kernel) { shardq::alignSharedMemory(kernel); });
  handOverExchanges(getOperation());
  llvm::DenseMap<Attribute, SymbolRefAttr> shared;
  for (auto module : getOperation().getOps<gpu::GPUModuleOp>()) {
    llvm::StringMap<gpu::GPUFuncOp> first;
    for (auto kernel :
         llvm::make_early_inc_range(module.getOps<gpu::GPUFuncOp>())) {
      if (kernel.isKernel())
        sortConstants(kernel);
      auto [it, isNew] = first.try_emplace(getText(kernel), kernel);
      if (isNew)
        continue;
      auto symbol = [&](gpu::GPUFuncOp function) {
        return SymbolRefAttr::get(module.getNameAttr(),
                                  {FlatSymbolRefAttr::get(function)});
      };
      shared[symbol(kernel)] = symbol(it->second);
      kernel.erase();
    }
  }
  getOperation().walk([&](gpu::LaunchFuncOp launch) {
    if (SymbolRefAttr kernel = shared.lookup(launch.getKernel()))
      launch.setKernelAttr(kernel);
  });
}
