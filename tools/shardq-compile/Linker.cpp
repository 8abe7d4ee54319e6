//===- Linker.cpp - Shared objects by the system's linker -----------------===//

#include "Linker.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"
#include <vector>

using namespace mlir::shardq;
using llvm::StringRef;
using llvm::Twine;

static constexpr const char *kRuntime = "libshardq_runtime.so";

llvm::Expected<std::string> compile::findRuntime(StringRef given,
                                                 StringRef program) {
  llvm::SmallString<256> path(given);
  if (given.empty()) {
    path = llvm::sys::path::parent_path(program);
    llvm::sys::path::append(path, SHARDQ_RUNTIME_FROM_BIN, kRuntime);
    llvm::sys::path::remove_dots(path, /*remove_dot_dot=*/true);
  } else if (llvm::sys::fs::is_directory(path)) {
    llvm::sys::path::append(path, kRuntime);
  }
  if (!llvm::sys::fs::exists(path))
    return llvm::createStringError("the runtime is not at " + path +
                                   "; give --runtime");
  return std::string(path);
}

/// A path, and whether it is a compiler: those take a linker's options behind
/// -Wl.
struct Program {
  std::string path;
  bool isCompiler;
};

static llvm::Expected<Program> findLinker(StringRef given) {
  auto isCompiler = [](StringRef path) {
    StringRef name = llvm::sys::path::filename(path);
    return !name.starts_with("ld") && !name.starts_with("mold") &&
           !name.starts_with("wild");
  };
  if (!given.empty()) {
    auto path = llvm::sys::findProgramByName(given);
    if (!path || !llvm::sys::fs::can_execute(*path))
      return llvm::createStringError("--linker: '" + given +
                                     "' is not there or cannot be run");
    return Program{*path, isCompiler(*path)};
  }
  for (const char *name : {"ld.lld-22", "ld.lld", "clang-22", "clang", "cc"})
    if (auto path = llvm::sys::findProgramByName(name))
      return Program{*path, isCompiler(*path)};
  return llvm::createStringError("no linker was found (ld.lld, clang or cc); "
                                 "give --linker");
}

namespace {
/// A file in the system's directory for such, removed at the end.
struct TemporaryFile {
  llvm::Error create(StringRef suffix, StringRef contents) {
    if (std::error_code code =
            llvm::sys::fs::createTemporaryFile("shardq", suffix, path))
      return llvm::createStringError(code,
                                     "no temporary file: " + code.message());
    remover.setFile(path);
    std::error_code code;
    llvm::raw_fd_ostream stream(path, code);
    stream << contents;
    stream.close();
    if (!code)
      code = stream.error();
    stream.clear_error();
    if (code)
      return llvm::createStringError(code, "cannot write " + path + ": " +
                                               code.message());
    return llvm::Error::success();
  }

  llvm::SmallString<128> path;
  llvm::FileRemover remover;
};
} // namespace

/// Only the entry points are visible.
static std::string getVersionScript(llvm::ArrayRef<std::string> exported) {
  std::string script = "{\n";
  if (!exported.empty()) {
    script += "  global:\n";
    for (const std::string &name : exported)
      script += "    \"" + name + "\";\n";
  }
  return script + "  local: *;\n};\n";
}

llvm::Expected<std::string> compile::linkShared(StringRef object,
                                                const LinkOptions &options) {
  llvm::Expected<Program> linker = findLinker(options.linker);
  if (!linker)
    return linker.takeError();
  TemporaryFile input, script, output;
  if (llvm::Error error = input.create("o", object))
    return std::move(error);
  if (llvm::Error error =
          script.create("map", getVersionScript(options.exported)))
    return std::move(error);
  if (llvm::Error error = output.create("so", ""))
    return std::move(error);

  std::vector<std::string> words = {linker->path, "-shared", "-o",
                                    output.path.str().str(),
                                    input.path.str().str()};
  auto add = [&](const Twine &option) {
    words.push_back((linker->isCompiler ? "-Wl," + option : option).str());
  };
  auto addPair = [&](StringRef option, StringRef value) {
    if (linker->isCompiler) {
      words.push_back(("-Wl," + option + "," + value).str());
      return;
    }
    words.push_back(option.str());
    words.push_back(value.str());
  };
  addPair("-soname", options.name);
  // The runtime may lie beside what needs it; a folder of this machine would be
  // wrong on another one.
  addPair("-rpath", "$ORIGIN");
  add("--enable-new-dtags");
  add("--version-script=" + script.path);
  // A symbol that nobody has is an error here and not in the engine.
  for (StringRef keyword : {"defs", "relro", "now", "noexecstack"})
    addPair("-z", keyword);
  add("--gc-sections");
  add("--as-needed");
  // The C library without what only a compiler's installation has: neither
  // start files nor linker scripts are needed.
  if (linker->isCompiler)
    words.emplace_back("-nostdlib");
  else
    for (StringRef directory :
         {"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64",
          "/usr/lib64", "/lib", "/usr/lib"})
      words.emplace_back(("-L" + directory).str());
  words.push_back(options.runtime);
  words.emplace_back("-l:libm.so.6");
  words.emplace_back("-l:libc.so.6");
  if (linker->isCompiler)
    words.emplace_back("-lgcc");

  std::vector<StringRef> arguments(words.begin(), words.end());
  std::string message;
  int status = llvm::sys::ExecuteAndWait(
      linker->path, arguments, std::nullopt, {},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  if (status < 0)
    return llvm::createStringError("'" + linker->path +
                                   "' did not run: " + message);
  if (status != 0)
    return llvm::createStringError(
        "'" + linker->path + "' failed with exit status " + Twine(status));
  auto bytes = llvm::MemoryBuffer::getFile(output.path);
  if (!bytes || (*bytes)->getBufferSize() == 0)
    return llvm::createStringError("'" + linker->path + "' wrote nothing");
  return (*bytes)->getBuffer().str();
}
