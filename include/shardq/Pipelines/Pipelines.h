//===- Pipelines.h - Named pipelines ----------------------------*- C++ -*-===//

#ifndef SHARDQ_PIPELINES_PIPELINES_H
#define SHARDQ_PIPELINES_PIPELINES_H

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "shardq/Transforms/Passes.h"

namespace mlir::shardq {

/// What every target plans for; see --shardq-plan-workspace. Descriptions have
/// the defaults, which no help text shows otherwise.
template <typename Derived>
struct TargetOptions : PassPipelineOptions<Derived> {
  mlir::detail::PassOptions::Option<int64_t> maxTokens{
      *this, "max-tokens",
      llvm::cl::desc("Rows of the largest step (default 8192)"),
      llvm::cl::init(8192)};
  mlir::detail::PassOptions::Option<int64_t> maxRequests{
      *this, "max-requests",
      llvm::cl::desc("Requests of the largest step (default 256)"),
      llvm::cl::init(256)};
  mlir::detail::PassOptions::Option<int64_t> maxKvTokens{
      *this, "max-kv-tokens",
      llvm::cl::desc("Context plus new tokens of the largest step whose KV is "
                     "gathered (default 65536)"),
      llvm::cl::init(65536)};
  mlir::detail::PassOptions::Option<int64_t> slots{
      *this, "slots", llvm::cl::desc("Micro-batches in flight (default 1)"),
      llvm::cl::init(1)};
  mlir::detail::PassOptions::Option<TransportChoice> transport{
      *this, "transport",
      llvm::cl::desc("How collectives travel; see --shardq-select-transport "
                     "(default auto)"),
      llvm::cl::init(TransportChoice::Auto),
      llvm::cl::values(
          clEnumValN(TransportChoice::Auto, "auto", "As its table says"),
          clEnumValN(TransportChoice::Direct, "direct",
                     "Into the memory of peers"),
          clEnumValN(TransportChoice::Nccl, "nccl", "NCCL carries them"),
          clEnumValN(TransportChoice::AgRs, "ag_rs",
                     "Merges by all-gather and reduce-scatter"),
          clEnumValN(TransportChoice::AgAr, "ag_ar",
                     "Merges by all-gather and all-reduce"))};
  mlir::detail::PassOptions::Option<int64_t> hostRanks{
      *this, "host-ranks",
      llvm::cl::desc("Consecutive ranks that share a host; 0: all (default 0)"),
      llvm::cl::init(0)};
  mlir::detail::PassOptions::Option<bool> entryPoints{
      *this, "entry-points",
      llvm::cl::desc(
          "A C function of DLPack tensors for each public function, "
          "in place of its interface of memref descriptors (default false)"),
      llvm::cl::init(false)};
};

struct ShardQToCPUOptions : TargetOptions<ShardQToCPUOptions> {};

/// From tensors to the LLVM dialect, calling the runtime: bufferization,
/// workspace planning, protocol check, loops. Every public function gets the
/// context as its first argument and a C interface: of memref descriptors under
/// a name that begins with _mlir_ciface_, or of DLPack tensors under its own.
void buildShardQToCPUPipeline(OpPassManager &manager,
                              const ShardQToCPUOptions &options);

/// What the GPU pipeline plans for and which card it compiles for.
struct ShardQToNVVMOptions : TargetOptions<ShardQToNVVMOptions> {
  Option<std::string> arch{*this, "arch",
                           llvm::cl::desc("The card (default sm_90a)"),
                           llvm::cl::init("sm_90a")};
  Option<int64_t> scratchBytes{
      *this, "scratch-bytes",
      llvm::cl::desc("Device memory for the indexer's scores (default 2^28)"),
      llvm::cl::init(int64_t(1) << 28)};
  Option<std::string> ptxas{*this, "ptxas",
                            llvm::cl::desc("Path of ptxas; none: embed PTX"),
                            llvm::cl::init("")};
  Option<bool> overlap{
      *this, "overlap",
      llvm::cl::desc("Gathers of KV run beside what stands between their start "
                     "and their end (default true)"),
      llvm::cl::init(true)};
};

/// From tensors to host code that launches kernels through the runtime, with
/// the kernels' machine code as constants. Functions are called as
/// `name(context, arguments..., results...)`, between shardq_rt_begin and
/// shardq_rt_end, or as C functions of DLPack tensors, which do both.
void buildShardQToNVVMPipeline(OpPassManager &manager,
                               const ShardQToNVVMOptions &options);

/// Registers `shardq-to-cpu` and `shardq-to-nvvm`.
void registerPipelines();

} // namespace mlir::shardq

#endif // SHARDQ_PIPELINES_PIPELINES_H
