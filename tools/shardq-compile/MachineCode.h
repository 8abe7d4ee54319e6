//===- MachineCode.h - From the LLVM dialect to an object -------*- C++ -*-===//

#ifndef SHARDQ_COMPILE_MACHINECODE_H
#define SHARDQ_COMPILE_MACHINECODE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"
#include <memory>
#include <string>
#include <vector>

namespace mlir::shardq::compile {

/// Code generation for this host's architecture, position-independent. `cpu` is
/// a name that LLVM knows, or "native".
llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
createMachine(llvm::StringRef cpu);

/// The default of --cpu: what every server of the last ten years runs.
llvm::StringRef getDefaultCPU();

/// Translates a module of the LLVM dialect, keeps `exported` visible and
/// nothing else, and optimizes. MLIR's diagnostics tell of errors.
llvm::Expected<std::unique_ptr<llvm::Module>>
translate(ModuleOp module, llvm::ArrayRef<std::string> exported,
          llvm::TargetMachine &machine, llvm::LLVMContext &context);

/// The bytes of an object file.
llvm::Expected<std::string> emitObject(llvm::Module &module,
                                       llvm::TargetMachine &machine);

} // namespace mlir::shardq::compile

#endif // SHARDQ_COMPILE_MACHINECODE_H
