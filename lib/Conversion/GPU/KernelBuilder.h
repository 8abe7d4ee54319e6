//===- KernelBuilder.h - Writes bodies of GPU kernels -----------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_KERNELBUILDER_H
#define SHARDQ_LIB_CONVERSION_GPU_KERNELBUILDER_H

#include "../Utils/LoopBuilder.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::shardq {

/// A LoopBuilder inside a `gpu.launch`: one dimension of blocks, one of threads.
/// Indices are of index type unless it is said otherwise. LoopBuilder::scratch
/// is not for kernels.
class KernelBuilder : public LoopBuilder {
public:
  /// `threads` is how many threads a block has.
  KernelBuilder(Location loc, OpBuilder::Listener *listener, MLIRContext *context,
                int64_t threads);

  int64_t numThreads() const { return threads; }
  Value thread();
  Value block();
  Value numBlocks();
  void barrier();

  /// `body(i)` for `begin <= i < end`, one after the other by each block:
  /// block b takes begin + b, begin + b + numBlocks, ...
  void overBlocks(Value begin, Value end, Body body);
  /// The same among the threads of a block.
  void overThreads(Value begin, Value end, Body body);
  /// The same among all threads of the grid.
  void overGrid(Value begin, Value end, Body body);

  /// Shared memory of fixed size, up to 48 KiB a kernel in all.
  Value shared(ArrayRef<int64_t> shape, Type element);
  /// The kernel's dynamic shared memory: memref<?xi8>, 1024-byte aligned, as
  /// large as KernelShape::dynamicShared says.
  Value dynamicShared();

  /// Address of an element, `!llvm.ptr<1>` for global and `!llvm.ptr<3>` for
  /// shared memory.
  Value address(Value buffer, ValueRange indices);
  /// `pointer` moved by `bytes` (index).
  Value advance(Value pointer, Value bytes);
  /// 16 bytes at a pointer as vector<4xi32>; the address is a multiple of 16.
  Value load16(Value pointer);
  void store16(Value vector, Value pointer);

private:
  int64_t threads;
};

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_KERNELBUILDER_H
