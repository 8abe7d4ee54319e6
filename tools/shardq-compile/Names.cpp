//===- Names.cpp - Names that a program's functions may have --------------===//

#include "Names.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir::shardq;
using llvm::StringRef;

bool compile::isIdentifier(StringRef name) {
  return !name.empty() && !llvm::isDigit(name.front()) &&
         llvm::all_of(name,
                      [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

bool compile::isWord(StringRef name) {
  static const llvm::StringSet<> words = {
      // C, and what gcc and clang define without being asked.
      "alignas", "alignof", "asm", "auto", "bool", "break", "case", "char",
      "const", "constexpr", "continue", "default", "do", "double", "else",
      "enum", "extern", "false", "float", "for", "goto", "if", "inline", "int",
      "linux", "long", "nullptr", "register", "restrict", "return", "short",
      "signed", "sizeof", "static", "static_assert", "struct", "switch",
      "thread_local", "true", "typedef", "typeof", "typeof_unqual", "union",
      "unix", "unsigned", "void", "volatile", "while",
      // C++
      "and", "and_eq", "bitand", "bitor", "catch", "char16_t", "char32_t",
      "char8_t", "class", "co_await", "co_return", "co_yield", "compl",
      "concept", "const_cast", "consteval", "constinit", "decltype", "delete",
      "dynamic_cast", "explicit", "export", "friend", "mutable", "namespace",
      "new", "noexcept", "not", "not_eq", "operator", "or", "or_eq", "private",
      "protected", "public", "reinterpret_cast", "requires", "static_cast",
      "template", "this", "throw", "try", "typeid", "typename", "using",
      "virtual", "wchar_t", "xor", "xor_eq",
      // Types
      "DLDataType", "DLDataTypeCode", "DLDevice", "DLDeviceType",
      "DLManagedTensor", "DLManagedTensorVersioned", "DLPackVersion",
      "DLTensor", "int16_t", "int32_t", "int64_t", "int8_t", "intmax_t",
      "intptr_t", "ptrdiff_t", "size_t", "uint16_t", "uint32_t", "uint64_t",
      "uint8_t", "uintmax_t", "uintptr_t"};
  return words.contains(name);
}

/// Whether lowered code or LLVM may call a function of that name.
static bool isOfLibrary(StringRef name) {
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  llvm::TargetLibraryInfoImpl library(triple);
  llvm::LibFunc function;
  return library.getLibFunc(name, function);
}

StringRef compile::findOwner(StringRef name) {
  if (name.starts_with("shardq_"))
    return "the runtime";
  // Linkers have both called when the object is loaded and unloaded.
  if (name == "_init" || name == "_fini" || isOfLibrary(name))
    return "the C library";
  return {};
}
