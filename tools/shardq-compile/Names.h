//===- Names.h - Names that a program's functions may have ------*- C++ -*-===//

#ifndef SHARDQ_COMPILE_NAMES_H
#define SHARDQ_COMPILE_NAMES_H

#include "llvm/ADT/StringRef.h"

namespace mlir::shardq::compile {

/// Whether a C header can say the name, word of the language or not.
bool isIdentifier(llvm::StringRef name);

/// Words that C or C++ has, and types that headers of entry points use.
bool isWord(llvm::StringRef name);

/// What has the name already, where a shared object may not define it too: the
/// C library, which it is linked to and which LLVM calls by name, or the
/// runtime. Empty for a name that is free.
llvm::StringRef findOwner(llvm::StringRef name);

} // namespace mlir::shardq::compile

#endif // SHARDQ_COMPILE_NAMES_H
