//===- MachineCode.cpp - From the LLVM dialect to an object ---------------===//

#include "MachineCode.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"
#include "llvm/Transforms/IPO/Internalize.h"

using namespace mlir;
using namespace mlir::shardq;

StringRef compile::getDefaultCPU() {
  // With F16C, conversions of f16 need no library.
  llvm::Triple host(llvm::sys::getDefaultTargetTriple());
  return host.getArch() == llvm::Triple::x86_64 ? "x86-64-v3" : "generic";
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
compile::createMachine(StringRef cpu) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  std::string reason;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, reason);
  if (!target)
    return llvm::createStringError(reason);

  std::string name = cpu.str();
  llvm::SubtargetFeatures features;
  if (cpu == "native") {
    name = llvm::sys::getHostCPUName().str();
    for (const auto &feature : llvm::sys::getHostCPUFeatures())
      features.AddFeature(feature.first(), feature.second);
  }
  std::unique_ptr<llvm::MCSubtargetInfo> known(
      target->createMCSubtargetInfo(triple, "", ""));
  if (!known || !known->isCPUStringValid(name))
    return llvm::createStringError("--cpu: " + triple.getArchName() +
                                   " has no CPU '" + name + "'");
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, name, features.getString(), {}, llvm::Reloc::PIC_, std::nullopt,
      llvm::CodeGenOptLevel::Aggressive));
  if (!machine)
    return llvm::createStringError("no code generation for " + triple.str());
  return machine;
}

llvm::Expected<std::unique_ptr<llvm::Module>>
compile::translate(ModuleOp module, ArrayRef<std::string> exported,
                   llvm::TargetMachine &machine, llvm::LLVMContext &context) {
  std::unique_ptr<llvm::Module> translated =
      translateModuleToLLVMIR(module, context, "shardq");
  if (!translated)
    return llvm::createStringError("the program could not be translated to "
                                   "LLVM");
  translated->setTargetTriple(machine.getTargetTriple());
  translated->setDataLayout(machine.createDataLayout());
  llvm::StringSet<> names;
  for (const std::string &name : exported)
    names.insert(name);
  llvm::internalizeModule(*translated, [&](const llvm::GlobalValue &value) {
    return names.contains(value.getName());
  });
  auto optimize = makeOptimizingTransformer(3, 0, &machine);
  if (llvm::Error error = optimize(translated.get()))
    return std::move(error);
  return translated;
}

llvm::Expected<std::string> compile::emitObject(llvm::Module &module,
                                                llvm::TargetMachine &machine) {
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager manager;
  if (machine.addPassesToEmitFile(manager, stream, nullptr,
                                  llvm::CodeGenFileType::ObjectFile))
    return llvm::createStringError("no object files for " +
                                   machine.getTargetTriple().str());
  manager.run(module);
  return std::string(bytes);
}
