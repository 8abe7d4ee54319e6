//===- Images.h - Kernels that are loaded -----------------------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_CUDA_IMAGES_H
#define SHARDQ_RUNTIME_CUDA_IMAGES_H

#include "Driver.h"

#include <memory>
#include <mutex>
#include <vector>

namespace shardq::cuda {

/// An image in the device's context, all of it.
struct LoadedImage {
  struct Kernel {
    Function function;
    unsigned threads;
    unsigned dynamicShared;
    bool startsEarly;
  };

  const shardq_gpu_image *image; // what names it
  const void *code;
  Module module;
  std::vector<Kernel> kernels;
};

/// The images of a communicator. Any thread, with the device's context current.
class Images {
public:
  explicit Images(const Driver &driver) : driver(driver) {}
  Images(const Images &) = delete;

  /// One that is loaded; null if it is not.
  const LoadedImage *find(const shardq_gpu_image *image);

  /// Loads what is not loaded yet.
  Outcome load(const shardq_gpu_image *image, const LoadedImage *&loaded);

  /// Unloads everything.
  void clear();

private:
  Outcome loadKernels(LoadedImage &loaded);

  const Driver &driver;
  std::mutex mutex;
  std::vector<std::unique_ptr<LoadedImage>> images;
};

} // namespace shardq::cuda

#endif // SHARDQ_RUNTIME_CUDA_IMAGES_H
