//===- KernelsToPtx.cpp - GPU modules to PTX ------------------------------===//

#include "DeviceLibrary.h"
#include "mlir/Dialect/GPU/IR/CompilationInterfaces.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Target/LLVM/NVVM/Target.h"
#include "mlir/Target/LLVM/NVVM/Utils.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "shardq/Target/Passes.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MemoryBuffer.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQKERNELSTOPTX
#include "shardq/Target/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;

static constexpr StringLiteral kTriple = "nvptx64-nvidia-cuda";

namespace {
struct KernelsToPtxPass
    : public shardq::impl::ShardQKernelsToPtxBase<KernelsToPtxPass> {
  using ShardQKernelsToPtxBase::ShardQKernelsToPtxBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    ShardQKernelsToPtxBase::getDependentDialects(registry);
    NVVM::registerNVVMTargetInterfaceExternalModels(registry);
    registerLLVMDialectTranslation(registry);
    registerNVVMDialectTranslation(registry);
    registerGPUDialectTranslation(registry);
  }

  void runOnOperation() override;
};
} // namespace

/// What the library leaves to who generates kernels.
static void defineAwaitFront(llvm::Module &module) {
  llvm::Function *function = module.getFunction("shardq_device_await_front");
  if (!function)
    return;
  function->setLinkage(llvm::GlobalValue::InternalLinkage);
  function->addFnAttr(llvm::Attribute::AlwaysInline);
  llvm::IRBuilder<> b(
      llvm::BasicBlock::Create(module.getContext(), "", function));
  b.CreateIntrinsic(llvm::Intrinsic::nvvm_griddepcontrol_wait, {});
  b.CreateRetVoid();
}

/// Links what the kernels call of the device library, and keeps it to them.
static std::string linkDeviceLibrary(llvm::Module &module) {
  llvm::MemoryBufferRef buffer(
      StringRef(reinterpret_cast<const char *>(shardq::kDeviceLibrary),
                shardq::kDeviceLibrarySize),
      "ShardQ device library");
  llvm::Expected<std::unique_ptr<llvm::Module>> library =
      llvm::parseBitcodeFile(buffer, module.getContext());
  if (!library)
    return llvm::toString(library.takeError());
  (*library)->setTargetTriple(module.getTargetTriple());
  (*library)->setDataLayout(module.getDataLayout());
  SmallVector<std::string> names;
  for (llvm::Function &function : **library)
    if (!function.isDeclaration())
      names.push_back(function.getName().str());
  if (llvm::Linker::linkModules(module, std::move(*library),
                                llvm::Linker::LinkOnlyNeeded))
    return "modules do not link";
  for (StringRef name : names)
    if (llvm::Function *function = module.getFunction(name);
        function && !function->isDeclaration()) {
      function->setLinkage(llvm::GlobalValue::InternalLinkage);
      // Made for the oldest card that there is a kernel for.
      function->removeFnAttr("target-cpu");
      function->removeFnAttr("target-features");
    }
  defineAwaitFront(module);
  return "";
}

/// What kernels call and nothing defines: a function of a CUDA library, say.
static std::string findUndefined(const llvm::Module &module) {
  for (const llvm::Function &function : module)
    if (function.isDeclaration() && !function.isIntrinsic())
      return function.getName().str();
  return "";
}

/// Of a name that it does not know, LLVM makes code for some old card.
static bool isKnownToLLVM(StringRef chip) {
  NVVM::SerializeGPUModuleBase::init();
  std::string error;
  llvm::Triple triple(kTriple);
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return false;
  std::unique_ptr<llvm::MCSubtargetInfo> info(
      target->createMCSubtargetInfo(triple, "", ""));
  return info && info->isCPUStringValid(chip);
}

void KernelsToPtxPass::runOnOperation() {
  ModuleOp module = getOperation();
  StringRef chip = arch;
  unsigned number = 0;
  StringRef digits = chip;
  if (!digits.consume_front("sm_") || digits.consumeInteger(10, number) ||
      number < 80 || !(digits.empty() || digits == "a" || digits == "f")) {
    emitError(module.getLoc(), "arch is '")
        << chip << "', expected sm_80 or later, for example sm_90a";
    return signalPassFailure();
  }
  if (!isKnownToLLVM(chip)) {
    emitError(module.getLoc(), "arch is '")
        << chip << "', expected one that LLVM knows, for example sm_90a";
    return signalPassFailure();
  }
  // What LLVM takes for the oldest cards predates what the library needs.
  StringRef features = number < 100 ? "+ptx84" : "";
  auto target = NVVM::NVVMTargetAttr::get(&getContext(), optLevel, kTriple,
                                          chip, features);
  for (auto kernels : module.getOps<gpu::GPUModuleOp>())
    kernels.setTargetsAttr(ArrayAttr::get(&getContext(), {target}));

  std::string error, undefined;
  SymbolTable symbols(module);
  // The options refer to these, and outlive the expression that makes them.
  auto getSymbols = [&] { return &symbols; };
  auto link = [&](llvm::Module &kernels) {
    error = linkDeviceLibrary(kernels);
  };
  auto check = [&](llvm::Module &kernels) {
    undefined = findUndefined(kernels);
  };
  gpu::TargetOptions options(
      /*toolkitPath=*/{}, /*librariesToLink=*/{}, /*cmdOptions=*/{},
      /*elfSection=*/{}, gpu::CompilationTarget::Assembly, getSymbols, link,
      check);
  {
    // MLIR looks for CUDA's library of mathematical functions in any case, and
    // goes on where there is no toolkit. No kernel needs it.
    ScopedDiagnosticHandler ignore(&getContext(), [](Diagnostic &diagnostic) {
      std::string text = diagnostic.str();
      return success(StringRef(text).starts_with("CUDA path: ") ||
                     StringRef(text).starts_with("LibDevice path: "));
    });
    if (failed(gpu::transformGpuModulesToBinaries(module, nullptr, options)))
      return signalPassFailure();
  }
  if (!undefined.empty()) {
    module.emitError("kernels call ")
        << undefined << ", which nothing defines: PTX must need no library";
    return signalPassFailure();
  }
  if (!error.empty()) {
    module.emitError("cannot link the device library: ") << error;
    return signalPassFailure();
  }
}
