//===- Library.cpp - NCCL, opened at run time -----------------------------===//

#include "Library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>

using namespace shardq;
using namespace shardq::nccl;

static Outcome openLibrary(Library &library) {
  const char *path = std::getenv("SHARDQ_NCCL");
  if (!path || !*path)
    path = "libnccl.so.2";
  // NCCL would make multicast objects for collectives that nobody calls here,
  // and reads this once, when the first communicator is made.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1);
  // Never closed: it has threads that live to the end.
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return failure(SHARDQ_SYSTEM, "no NCCL: %s", dlerror());
  const char *missing = nullptr;
  auto find = [&](auto &function, const char *symbol) {
    void *address = dlsym(handle, symbol);
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    if (!address && !missing)
      missing = symbol;
  };
#define SHARDQ_NCCL_FIND(NAME, TYPE, SYMBOL, PARAMETERS)                       \
  find(library.NAME, SYMBOL);
  SHARDQ_NCCL_FUNCTIONS(SHARDQ_NCCL_FIND)
#undef SHARDQ_NCCL_FIND
  if (missing)
    return failure(SHARDQ_SYSTEM, "the NCCL %s is too old: it has no %s", path,
                   missing);
  if (Result result = library.getVersion(&library.version))
    return library.failed("ncclGetVersion", result);
  if (library.version < kMinVersion)
    return failure(SHARDQ_SYSTEM,
                   "the NCCL %s is of version %d, expected %d or later", path,
                   library.version, kMinVersion);
  return {};
}

Outcome Library::get(const Library *&library) {
  static std::mutex mutex;
  static Library opened;
  static bool isOpen = false;
  std::lock_guard<std::mutex> lock(mutex);
  // A failure is not remembered: the next communicator may find one.
  if (!isOpen) {
    if (Outcome outcome = openLibrary(opened); outcome.failed())
      return outcome;
    isOpen = true;
  }
  library = &opened;
  return {};
}

Outcome Library::failed(const char *call, Result result,
                        Communicator communicator) const {
  const char *text = getErrorText ? getErrorText(result) : nullptr;
  Outcome outcome = failure(SHARDQ_SYSTEM, "%s failed: %s (%d)", call,
                            text ? text : "unknown error", result);
  const char *more =
      communicator && getLastError ? getLastError(communicator) : nullptr;
  if (more && *more)
    outcome.text += format(": %s", more);
  return outcome;
}
