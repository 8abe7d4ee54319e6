//===- CheckPtx.h - Kernels of the rendezvous -------------------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_CUDA_CHECKPTX_H
#define SHARDQ_RUNTIME_CUDA_CHECKPTX_H

namespace shardq::cuda {

/// device/Check.cpp as PTX, made at build time.
extern const char kCheckPtx[];

} // namespace shardq::cuda

#endif // SHARDQ_RUNTIME_CUDA_CHECKPTX_H
