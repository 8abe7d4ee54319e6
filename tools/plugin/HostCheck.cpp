//===- HostCheck.cpp - Whether a tool can use the plugin ------------------===//

#include "HostCheck.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "llvm-c/Core.h"
#include <dlfcn.h>

using namespace mlir::shardq;

/// `22.1` of `22.1.8`.
static std::string getRelease(const std::string &version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

std::string plugin::checkVersions(const std::string &builtFor,
                                  const std::string &running) {
  if (getRelease(builtFor) == getRelease(running))
    return "";
  return "built for LLVM " + builtFor + ", loaded by a tool that runs LLVM " +
         running;
}

/// The object file that an address lies in; empty if in none.
static std::string getObject(const void *address) {
  Dl_info info;
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

/// The version of the LLVM that the process found first, which is the tool's.
static std::string getRunningVersion() {
  // Called by its name: a direct call would bind to the symbol version that the
  // plugin was linked with, so to the plugin's own LLVM.
  auto *get = reinterpret_cast<decltype(&LLVMGetVersion)>(
      dlsym(RTLD_DEFAULT, "LLVMGetVersion"));
  if (!get)
    return "unknown";
  unsigned major = 0, minor = 0, patch = 0;
  get(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." +
         std::to_string(patch);
}

std::string plugin::checkHost(const void *caller, const std::string &builtFor) {
  std::string error = checkVersions(builtFor, getRunningVersion());
  if (!error.empty())
    return error;
  // The loader that called has to be in the libMLIR that the plugin uses.
  auto *loader = &mlir::DialectPlugin::load;
  std::string own = getObject(reinterpret_cast<const void *>(loader));
  std::string theirs = getObject(caller);
  if (own == theirs)
    return "";
  return "uses the MLIR in " + own + ", loaded by the one in " + theirs;
}
