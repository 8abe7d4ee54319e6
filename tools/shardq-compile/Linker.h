//===- Linker.h - Shared objects by the system's linker ---------*- C++ -*-===//

#ifndef SHARDQ_COMPILE_LINKER_H
#define SHARDQ_COMPILE_LINKER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace mlir::shardq::compile {

struct LinkOptions {
  /// A linker or a compiler that links; empty: the first that is found.
  std::string linker;
  /// libshardq_runtime.so.
  std::string runtime;
  /// DT_SONAME of the result.
  std::string name;
  llvm::ArrayRef<std::string> exported;
};

/// The path of the runtime: `given` (a file or its directory), or the one that
/// belongs to the tool at `program`.
llvm::Expected<std::string> findRuntime(llvm::StringRef given,
                                        llvm::StringRef program);

/// The bytes of a shared object made from an object file's. What the linker
/// says goes to stderr as it is.
llvm::Expected<std::string> linkShared(llvm::StringRef object,
                                       const LinkOptions &options);

} // namespace mlir::shardq::compile

#endif // SHARDQ_COMPILE_LINKER_H
