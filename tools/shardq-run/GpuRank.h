//===- GpuRank.h - One rank's program on its GPU ----------------*- C++ -*-===//

#ifndef SHARDQ_RUN_GPURANK_H
#define SHARDQ_RUN_GPURANK_H

#include "Gpu.h"
#include "Program.h"

namespace mlir::shardq::run {

/// What a kernel of the program took, in the order of launches.
struct KernelTimes {
  std::string kernel;
  std::vector<double> microseconds; // by run
};

/// Times of one rank, in microseconds.
struct BenchTimes {
  std::vector<double> graph; // a call in a replayed graph, by trial
  std::vector<double> alone; // a call launched kernel by kernel, by run
  std::vector<KernelTimes> kernels;
};

/// Results are poisoned before each run.
class GpuRank {
public:
  GpuRank(const Program &program, Gpu &gpu) : program(program), gpu(gpu) {}

  /// Takes device memory for arguments like these, and for results.
  /// Rows of each result, for those whose types leave them open.
  llvm::Error prepare(ArrayRef<Array> locals, ArrayRef<int64_t> numRows);
  /// The arguments of the runs from now on, of the same shapes.
  llvm::Error upload(ArrayRef<Array> locals);
  /// Calls the program, or replays the graph of a slot.
  llvm::Error run(shardq_context *context, std::vector<Array> &outputs,
                  std::optional<int64_t> slot);
  llvm::Error capture(shardq_context *context, int64_t slot);
  /// Times `replays` replays of what was captured, a few trials of them; then
  /// calls by themselves, and the kernels of a call. The exchanges hold ranks
  /// together; without any, they need not be.
  llvm::Error time(shardq_context *context, int64_t replays, BenchTimes &times);

private:
  llvm::Error enqueue(shardq_context *context);
  llvm::Error timeReplays(int64_t replays, std::vector<double> &trials);
  llvm::Error timeCalls(shardq_context *context, std::vector<double> &runs);
  llvm::Error timeKernels(shardq_context *context,
                          std::vector<KernelTimes> &kernels);

  const Program &program;
  Gpu &gpu;
  std::vector<Program::DeviceValue> arguments, results;
};

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_GPURANK_H
