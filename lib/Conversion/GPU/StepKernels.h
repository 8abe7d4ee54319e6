//===- StepKernels.h - Bodies that emitRowKernel chooses from ---*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_STEPKERNELS_H
#define SHARDQ_LIB_CONVERSION_GPU_STEPKERNELS_H

#include "KernelBuilder.h"
#include "shardq/IR/ShardQ.h"

namespace mlir::shardq {

void emitExpandRowsKernel(KernelBuilder &b, ValueRange args);
void emitLocalRowsKernel(KernelBuilder &b, ValueRange args);
/// One block; the last argument is memref<1xi64> for the result.
void emitCountDecodeRowsKernel(KernelBuilder &b, CountDecodeRowsOp op,
                               ValueRange args);
void emitSplitGateKernel(KernelBuilder &b, SplitGateOp op, ValueRange args);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_STEPKERNELS_H
