//===- DeviceValues.h - What only the device knows --------------*- C++ -*-===//
//
// Host code enqueues launches and never reads device memory. So a value that
// comes from there (a row count, the gate) exists on the host only as an SSA
// value to be computed again inside each kernel that uses it.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_DEVICEVALUES_H
#define SHARDQ_LIB_CONVERSION_GPU_DEVICEVALUES_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace mlir::shardq {

/// What `buffer` may be a view of.
void findRoots(Value buffer, llvm::SmallPtrSetImpl<Value> &roots);

class DeviceValues {
public:
  /// Whether `value` is loaded from memory, computed from such a value, or a
  /// buffer whose place or sizes are.
  bool isDevice(Value value);

  /// A host value that `size`, a number of rows, does not exceed; null where
  /// none is known. What the device knows are counts of a step's rows, which
  /// `setStepRows` bounds, and of blocks, which are bounded by the workspace
  /// that was planned for them.
  Value getBound(OpBuilder &b, Location loc, Value size);
  Value getDimBound(OpBuilder &b, Location loc, Value buffer, int64_t dim);

  /// Rows of the step, padding included: a host value.
  void setStepRows(Value rows) { stepRows = rows; }
  /// A number of rows in memory, `memref<1xi64>`, that is at most `rows`.
  void noteCount(Value memory, Value rows) { mostRows[memory] = rows; }

  /// The workspace `op` was reached, or a signal on `channel` was.
  void noteWorkspace(WorkspaceOp op);
  void noteSignal(int32_t channel) { ++signals[channel]; }

  /// A value was loaded; `op`, or an op inside it, will write.
  void noteLoad(memref::LoadOp load) { loads.push_back(load); }
  void noteWrites(Operation *op);
  /// A load that `value` is computed from whose memory was written since.
  memref::LoadOp findStale(Value value);
  /// Memory that `value` is computed from.
  void findLoaded(Value value, llvm::SmallPtrSetImpl<Value> &roots);

  /// Computes device values at the builder's position, inside a kernel.
  /// `device` is the address of the runtime's device context. `copies` holds
  /// what this kernel has computed so far.
  Value compute(OpBuilder &b, Value value, Value device, IRMapping &copies);

private:
  void forEachLoad(Value value, llvm::function_ref<void(memref::LoadOp)> use);
  Value computeInbox(OpBuilder &b, WorkspaceOp op, Value device,
                     IRMapping &copies);

  Value stepRows;
  // Of numbers of blocks in memory.
  llvm::DenseMap<Value, int64_t> mostBlocks;
  // Of numbers of rows in memory; host values.
  llvm::DenseMap<Value, Value> mostRows;
  SmallVector<memref::LoadOp> loads;
  llvm::SmallPtrSet<Operation *, 4> stale; // of the loads
  llvm::DenseMap<int32_t, int64_t> signals;
  // Signals on its channel before a workspace.
  llvm::DenseMap<Operation *, int64_t> signalsBefore;
};

/// Declares the functions of the device library that kernels call.
void declareDeviceLibrary(ModuleOp module);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_DEVICEVALUES_H
