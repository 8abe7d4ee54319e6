//===- Header.h - The C header of a compiled module -------------*- C++ -*-===//

#ifndef SHARDQ_COMPILE_HEADER_H
#define SHARDQ_COMPILE_HEADER_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace mlir::shardq::compile {

struct HeaderOptions {
  std::string file;    // the header's, for its guard
  std::string source;  // of the program
  std::string library; // what it is linked to
  /// Facts of the whole module, a line each.
  std::vector<std::string> facts;
  /// What each argument of a function is for; empty where it does not follow.
  llvm::StringMap<std::vector<std::string>> uses;
  bool hasImage = false;
};

/// Declares what shardq-emit-entry-points left in a lowered module.
llvm::Expected<std::string> writeHeader(ModuleOp module,
                                        const HeaderOptions &options);

} // namespace mlir::shardq::compile

#endif // SHARDQ_COMPILE_HEADER_H
