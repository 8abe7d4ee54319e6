//===- ShareKernels.cpp - One kernel for equal launches -------------------===//

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
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
  llvm::DenseMap<Attribute, SymbolRefAttr> shared;
  for (auto module : getOperation().getOps<gpu::GPUModuleOp>()) {
    llvm::StringMap<gpu::GPUFuncOp> first;
    for (auto kernel :
         llvm::make_early_inc_range(module.getOps<gpu::GPUFuncOp>())) {
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
