//===- HostCheck.h - Whether a tool can use the plugin ----------*- C++ -*-===//
//
// MLIR's loader compares the version of the plugin interface, which has been 1
// since there are plugins, and not the version of MLIR. A plugin and a tool of
// two versions, or a tool with an MLIR of its own inside, share no type ids: at
// best the tool does not know the plugin's passes, at worst it crashes.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_TOOLS_PLUGIN_HOSTCHECK_H
#define SHARDQ_TOOLS_PLUGIN_HOSTCHECK_H

#include <string>

namespace mlir::shardq::plugin {

/// What is wrong when a plugin built for one LLVM version meets another; empty
/// when nothing is. Releases of one `major.minor` are compatible.
std::string checkVersions(const std::string &builtFor,
                          const std::string &running);

/// What keeps the tool that called the plugin at `caller` from using it; empty
/// when nothing does. `builtFor` is the plugin's LLVM version.
std::string checkHost(const void *caller, const std::string &builtFor);

} // namespace mlir::shardq::plugin

#endif // SHARDQ_TOOLS_PLUGIN_HOSTCHECK_H
