//===- DeviceLibrary.h - Bitcode that kernels link --------------*- C++ -*-===//

#ifndef SHARDQ_LIB_TARGET_DEVICELIBRARY_H
#define SHARDQ_LIB_TARGET_DEVICELIBRARY_H

#include <cstddef>

namespace mlir::shardq {

/// runtime/device/Device.cpp, compiled with the runtime it belongs to.
extern const unsigned char kDeviceLibrary[];
extern const size_t kDeviceLibrarySize;

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TARGET_DEVICELIBRARY_H
