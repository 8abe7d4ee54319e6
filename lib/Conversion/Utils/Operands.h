//===- Operands.h - What both targets do to operands ------------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_UTILS_OPERANDS_H
#define SHARDQ_LIB_CONVERSION_UTILS_OPERANDS_H

#include "mlir/IR/Builders.h"
#include "shardq/IR/ShardQ.h"

namespace mlir::shardq {

/// `shardq_sparse_mla_16x512_16x64_576_2048_16x512_bf16`: what tells kernels
/// of one op apart most of the time.
std::string getKernelName(Operation *op);

/// Fails, with a diagnostic, on an attention that reads keys of other ranks.
LogicalResult verifyOwnKeys(SparseMlaOp op);

/// A sink of all heads becomes this rank's block of it among `operands`, the
/// operands of `op`.
void takeOwnSink(OpBuilder &builder, SparseMlaOp op,
                 MutableArrayRef<Value> operands);

/// Positions of the operands that have one entry per row, results included.
SmallVector<unsigned> getRowPositions(Operation *op);

/// Whether all those operands have equally many rows for certain, by their
/// types or by how they were made.
bool haveSameRows(ArrayRef<Value> buffers);

/// Has the runtime compare the sizes of operands of `op` that are read and
/// belong together, where they may differ: rows, requests; of exchanges also
/// those of where rows go. `isKnown` says which numbers the host knows, and of
/// which buffers, `readsMemory` whether it may look at what they hold.
void checkSizes(OpBuilder &builder, Operation *op,
                llvm::function_ref<bool(Value)> isKnown, bool readsMemory);

/// A buffer of `type` at an `!llvm.ptr`, as a memref whose sizes are given for
/// its dynamic dimensions and whose layout is the identity.
Value createBufferAt(OpBuilder &b, Location loc, MemRefType type, Value pointer,
                     ValueRange dynamicSizes);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_UTILS_OPERANDS_H
