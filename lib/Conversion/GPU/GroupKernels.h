//===- GroupKernels.h - Exchanges of a dcp group ----------------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_GROUPKERNELS_H
#define SHARDQ_LIB_CONVERSION_GPU_GROUPKERNELS_H

#include "Kernels.h"

namespace mlir::shardq {

/// Pushes of gather_heads and scatter_heads; arguments as in
/// emitExchangeKernel, and as in emitCarriedKernel where `carry` is given.
KernelShape getGroupPushShape(PushOp op);
void emitGroupPushKernel(KernelBuilder &b, PushOp op, ValueRange args,
                         const CarriedRows *carry);

/// Push of gather_rows, with the rows that the inbox is to have (index) behind
/// the device context: its own number of rows is held to what was planned.
KernelShape getRowsPushShape(PushOp op);
void emitRowsPushKernel(KernelBuilder &b, PushOp op, ValueRange args,
                        const CarriedRows *carry);

/// A call of the device library; null where it has no result.
Value callDevice(KernelBuilder &b, StringRef name, Type result,
                 ValueRange arguments);

/// The same address in the heap of a rank of the mesh.
Value toPeer(KernelBuilder &b, Value address, Value peerRank, Value device);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_GROUPKERNELS_H
