//===- Images.cpp - Kernels that are loaded -------------------------------===//

#include "Images.h"

#include <cstddef>
#include <cstring>

using namespace shardq;
using namespace shardq::cuda;

static Outcome check(const shardq_gpu_image *image) {
  if (!image)
    return failure(SHARDQ_INVALID, "image is NULL");
  // Images of an older compiler end before the last field.
  if (image->struct_size < offsetof(shardq_gpu_image, starts_early))
    return failure(SHARDQ_INVALID, "image: struct_size is %zu, expected %zu",
                   image->struct_size, sizeof(*image));
  if (!image->code || image->code_bytes < 4)
    return failure(SHARDQ_INVALID, "image: %zu bytes of code at %p",
                   image->code_bytes, image->code);
  if (image->num_kernels < 0 || (image->num_kernels > 0 && !image->kernels))
    return failure(SHARDQ_INVALID, "image: %d kernels at %p",
                   image->num_kernels,
                   static_cast<const void *>(image->kernels));
  for (int32_t i = 0; i != image->num_kernels; ++i) {
    const shardq_gpu_kernel &kernel = image->kernels[i];
    if (!kernel.name || kernel.threads < 1 || kernel.threads > 1024 ||
        kernel.dynamic_shared < 0)
      return failure(SHARDQ_INVALID,
                     "image: kernel %d (%s) has %d threads and %d bytes of "
                     "shared memory",
                     i, kernel.name ? kernel.name : "without a name",
                     kernel.threads, kernel.dynamic_shared);
  }
  return {};
}

/// Whether this is text; cubins and fat binaries begin with magic numbers.
static bool isPtx(const shardq_gpu_image &image) {
  static constexpr unsigned char kElf[4] = {0x7f, 'E', 'L', 'F'};
  static constexpr unsigned char kFatBinary[4] = {0x50, 0xed, 0x55, 0xba};
  return std::memcmp(image.code, kElf, sizeof(kElf)) != 0 &&
         std::memcmp(image.code, kFatBinary, sizeof(kFatBinary)) != 0;
}

static Outcome loadModule(const Driver &driver, const shardq_gpu_image &image,
                          Module &module) {
  const void *code = image.code;
  std::string text;
  if (isPtx(image)) {
    // The driver reads to the end of the text, wherever that is.
    const char *begin = static_cast<const char *>(image.code);
    if (!std::memchr(begin, '\0', image.code_bytes)) {
      text.assign(begin, image.code_bytes);
      code = text.c_str();
    }
  }
  std::vector<char> log(8192);
  int options[] = {kJitErrorLog, kJitErrorLogBytes};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size())};
  Result result = driver.loadModule(&module, code, 2, options, values);
  if (result == kSuccess)
    return {};
  Outcome outcome = driver.failed("loading kernels", result);
  log.back() = '\0';
  outcome.text = format("%s; the image is %s for sm_%d", outcome.text.c_str(),
                        isPtx(image) ? "PTX" : "machine code", image.arch);
  if (log.front())
    outcome.text += format("; the driver says: %s", log.data());
  return outcome;
}

/// Whether the image says so of a kernel.
static bool startsEarly(const shardq_gpu_image &image, int32_t kernel) {
  return image.struct_size >= sizeof(image) && image.starts_early &&
         image.starts_early[kernel] != 0;
}

const LoadedImage *Images::find(const shardq_gpu_image *image) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const std::unique_ptr<LoadedImage> &loaded : images)
    if (loaded->image == image && image && loaded->code == image->code)
      return loaded.get();
  return nullptr;
}

Outcome Images::loadKernels(LoadedImage &loaded) {
  bool canStartEarly = driver.startsEarly();
  for (int32_t i = 0; i != loaded.image->num_kernels; ++i) {
    const shardq_gpu_kernel &kernel = loaded.image->kernels[i];
    Function function = nullptr;
    if (Result result =
            driver.getFunction(&function, loaded.module, kernel.name)) {
      Outcome outcome = driver.failed("cuModuleGetFunction", result);
      return failure(SHARDQ_INVALID, "image: kernel %d (%s): %s", i,
                     kernel.name, outcome.text.c_str());
    }
    // Drivers load a function when it is first launched unless told otherwise,
    // and behind a kernel that waits for this rank's signal that is too late.
    int registers;
    Result result = driver.loadFunction
                        ? driver.loadFunction(function)
                        : driver.getFunctionAttribute(
                              &registers, kFunctionRegisters, function);
    if (result == kSuccess && kernel.dynamic_shared > 0)
      result = driver.setFunctionAttribute(function, kFunctionMaxDynamicShared,
                                           kernel.dynamic_shared);
    if (result != kSuccess) {
      Outcome outcome = driver.failed("preparing it", result);
      return failure(SHARDQ_SYSTEM,
                     "image: kernel %d (%s, %d bytes of shared memory): %s", i,
                     kernel.name, kernel.dynamic_shared, outcome.text.c_str());
    }
    loaded.kernels.push_back({function, static_cast<unsigned>(kernel.threads),
                              static_cast<unsigned>(kernel.dynamic_shared),
                              canStartEarly && startsEarly(*loaded.image, i)});
  }
  return {};
}

Outcome Images::load(const shardq_gpu_image *image,
                     const LoadedImage *&loaded) {
  if (Outcome outcome = check(image); outcome.failed())
    return outcome;
  if ((loaded = find(image)))
    return {};
  auto fresh = std::make_unique<LoadedImage>();
  fresh->image = image;
  fresh->code = image->code;
  if (Outcome outcome = loadModule(driver, *image, fresh->module);
      outcome.failed())
    return outcome;
  Outcome outcome = loadKernels(*fresh);
  if (outcome.failed()) {
    driver.unloadModule(fresh->module);
    return outcome;
  }
  std::lock_guard<std::mutex> lock(mutex);
  // Two slots may load the same image at once; one of the two is never found.
  loaded = fresh.get();
  images.push_back(std::move(fresh));
  return {};
}

void Images::clear() {
  std::lock_guard<std::mutex> lock(mutex);
  for (const std::unique_ptr<LoadedImage> &loaded : images)
    driver.unloadModule(loaded->module);
  images.clear();
}
