//===- Overlap.h - What a gather may run beside -----------------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_OVERLAP_H
#define SHARDQ_LIB_CONVERSION_GPU_OVERLAP_H

#include "DeviceValues.h"

namespace mlir::shardq {

/// The wait that ends the gather of `push`, where push and signal may run
/// beside what stands in front of it, and something does; else null. `needed`
/// are the values that the launches of push and signal are made of.
WaitOp findWaitBeside(PushOp push, ValueRange needed, DeviceValues &values);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_OVERLAP_H
