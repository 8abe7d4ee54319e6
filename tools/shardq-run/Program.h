//===- Program.h - An entry function compiled for this CPU ------*- C++ -*-===//

#ifndef SHARDQ_RUN_PROGRAM_H
#define SHARDQ_RUN_PROGRAM_H

#include "Array.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/IR/BuiltinOps.h"
#include "shardq/runtime.h"

namespace mlir::shardq::run {

enum class Target { CPU, CUDA };

struct CompileOptions {
  Target target = Target::CPU;
  /// The card, for Target::CUDA.
  std::string arch = "sm_90a";
  /// Whether gathers run beside other kernels there.
  bool overlap = true;
  /// Sizes of the exchange buffers.
  int64_t maxTokens = 0;
  int64_t maxRequests = 0;
  int64_t maxKvTokens = 0;
  int64_t slots = 1;
  /// Level of LLVM's optimizer and code generator for the CPU, up to 3.
  unsigned optimize = 3;
};

/// Runs a pass pipeline given as text. Passes report at their ops.
llvm::Error runPipeline(ModuleOp module, llvm::StringRef text);

class Program {
public:
  /// Lowers a clone of the module and compiles it. Everything is resolved and
  /// emitted here, so that processes forked later run it as it is.
  static llvm::Expected<std::unique_ptr<Program>>
  compile(ModuleOp module, llvm::StringRef entry,
          const CompileOptions &options);

  /// Calls the entry with one rank's arrays, and copies its results out. The
  /// context knows whether the run went well.
  llvm::Error call(shardq_context *context, llvm::ArrayRef<Array> arguments,
                   std::vector<Array> &results) const;

  /// The same on a GPU: enqueues the entry on the stream. A tensor is the
  /// address of its elements on the device and its shape; a number is in an
  /// array. Results are given, too.
  struct DeviceValue {
    uint64_t address = 0;
    Array array; // the shape, and the data of a number
  };
  llvm::Error enqueue(shardq_context *context, void *stream,
                      llvm::ArrayRef<DeviceValue> arguments,
                      llvm::ArrayRef<DeviceValue> results) const;

  bool isForGpu() const { return image != nullptr; }
  /// The kernels; null for a CPU.
  const shardq_gpu_image *getImage() const { return image; }
  llvm::ArrayRef<Type> getResultTypes() const { return resultTypes; }

  /// What shardq_comm_create wants to know.
  const shardq_plan *getPlan() const { return &plan; }

private:
  std::unique_ptr<ExecutionEngine> engine;
  void (*function)(void **) = nullptr;
  /// Results come back through a pointer, which is then the first argument.
  bool hasResultPointer = false;
  std::vector<Type> argumentTypes, resultTypes;
  shardq_plan plan = {};
  const shardq_gpu_image *image = nullptr;
};

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_PROGRAM_H
