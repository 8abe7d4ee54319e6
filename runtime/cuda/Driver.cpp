//===- Driver.cpp - The CUDA driver, opened at run time -------------------===//

#include "Driver.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>

using namespace shardq;
using namespace shardq::cuda;

static Outcome openDriver(Driver &driver) {
  const char *path = std::getenv("SHARDQ_CUDA_DRIVER");
  if (!path || !*path)
    path = "libcuda.so.1";
  // Never closed: contexts and threads of the driver live to the end.
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return failure(SHARDQ_SYSTEM, "no CUDA driver: %s", dlerror());
  const char *missing = nullptr;
  auto find = [&](auto &function, const char *symbol, bool required) {
    void *address = dlsym(library, symbol);
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    if (!address && required && !missing)
      missing = symbol;
  };
#define SHARDQ_CUDA_FIND(NAME, SYMBOL, PARAMETERS)                             \
  find(driver.NAME, SYMBOL, /*required=*/true);
  SHARDQ_CUDA_FUNCTIONS(SHARDQ_CUDA_FIND)
#undef SHARDQ_CUDA_FIND
#define SHARDQ_CUDA_FIND(NAME, SYMBOL, PARAMETERS)                             \
  find(driver.NAME, SYMBOL, /*required=*/false);
  SHARDQ_CUDA_OPTIONAL_FUNCTIONS(SHARDQ_CUDA_FIND)
#undef SHARDQ_CUDA_FIND
  if (missing)
    return failure(SHARDQ_SYSTEM, "the CUDA driver %s is too old: it has no %s",
                   path, missing);
  if (Result result = driver.init(0))
    return driver.failed("cuInit", result);
  return {};
}

Outcome Driver::get(const Driver *&driver) {
  static std::mutex mutex;
  static Driver opened;
  static bool isOpen = false;
  std::lock_guard<std::mutex> lock(mutex);
  // A failure is not remembered: the next communicator may find a driver.
  if (!isOpen) {
    if (Outcome outcome = openDriver(opened); outcome.failed())
      return outcome;
    isOpen = true;
  }
  driver = &opened;
  return {};
}

bool Driver::startsEarly() const {
  int version = 0;
  return launchConfigured && getVersion && getVersion(&version) == kSuccess &&
         version >= 12030;
}

Outcome Driver::failed(const char *call, Result result) const {
  const char *text = nullptr;
  if (!getErrorText || getErrorText(result, &text) != kSuccess || !text)
    text = "unknown error";
  return failure(SHARDQ_SYSTEM, "%s failed: %s (%d)", call, text, result);
}
