//===- Ptxas.cpp - NVIDIA's assembler as a child process ------------------===//

#include "Ptxas.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::shardq;

//===----------------------------------------------------------------------===//
// Report
//===----------------------------------------------------------------------===//

bool PtxasMessage::isPerformanceLoss() const {
  StringRef rest = text;
  return rest.consume_front("(C75") && rest.size() >= 3 &&
         llvm::isDigit(rest[0]) && llvm::isDigit(rest[1]) && rest[2] == ')';
}

/// The number before `what`, as in "0 bytes stack frame"; 0 where it is not.
static int32_t getFigure(StringRef text, StringRef what) {
  size_t end = text.find((" " + what).str());
  if (end == StringRef::npos)
    return 0;
  StringRef head = text.take_front(end);
  StringRef digits =
      head.drop_front(head.find_last_not_of("0123456789") == StringRef::npos
                          ? 0
                          : head.find_last_not_of("0123456789") + 1);
  int32_t figure = 0;
  digits.getAsInteger(10, figure);
  return figure;
}

PtxasReport shardq::parsePtxasOutput(StringRef text) {
  // "ptxas a.ptx, line 23; error   : text", "ptxas info    : text"
  static llvm::Regex head(
      "^ptxas (.*, line ([0-9]+); )?(info|warning|error|fatal) *: (.*)$");
  PtxasReport report;
  std::string function;
  SmallVector<StringRef> lines;
  text.split(lines, '\n');
  for (StringRef line : lines) {
    line = line.rtrim();
    SmallVector<StringRef> parts;
    StringRef rest = line;
    if (head.match(line, &parts)) {
      PtxasMessage message;
      parts[2].getAsInteger(10, message.line);
      message.severity = parts[3] == "info"      ? PtxasMessage::Info
                         : parts[3] == "warning" ? PtxasMessage::Warning
                                                 : PtxasMessage::Error;
      message.text = parts[4].str();
      rest = parts[4];
      report.messages.push_back(std::move(message));
    }
    if (rest.consume_front("Function properties for ")) {
      function = rest.trim().str();
      report.functions[function];
    } else if (rest.consume_front("Compiling entry function '")) {
      function = rest.split('\'').first.str();
      report.functions[function];
    } else if (rest.contains(" bytes stack frame") && !function.empty()) {
      PtxasResources &resources = report.functions[function];
      resources.stack = getFigure(rest, "bytes stack frame");
      resources.spills = getFigure(rest, "bytes spill stores") +
                         getFigure(rest, "bytes spill loads");
    } else if (rest.starts_with("Used ") && !function.empty()) {
      PtxasResources &resources = report.functions[function];
      resources.registers = getFigure(rest, "registers");
      resources.shared = getFigure(rest, "bytes smem");
    }
  }
  return report;
}

//===----------------------------------------------------------------------===//
// Process
//===----------------------------------------------------------------------===//

llvm::Expected<std::string> shardq::findPtxas(StringRef given) {
  if (!given.empty()) {
    auto path = llvm::sys::findProgramByName(given);
    if (path && llvm::sys::fs::can_execute(*path))
      return *path;
    return llvm::createStringError("ptxas '" + given +
                                   "' is not there or cannot be run");
  }
  SmallVector<std::string> directories;
  if (auto home = llvm::sys::Process::GetEnv("CUDA_HOME")) {
    llvm::SmallString<128> bin(*home);
    llvm::sys::path::append(bin, "bin");
    directories.push_back(std::string(bin));
  }
  directories.push_back("/usr/local/cuda/bin");
  SmallVector<StringRef> paths(directories.begin(), directories.end());
  if (auto path = llvm::sys::findProgramByName("ptxas", paths))
    return *path;
  if (auto path = llvm::sys::findProgramByName("ptxas"))
    return *path;
  return std::string();
}

static llvm::Error makeTemporary(StringRef suffix,
                                 llvm::SmallString<128> &path) {
  if (std::error_code error =
          llvm::sys::fs::createTemporaryFile("shardq", suffix, path))
    return llvm::createStringError(error, "no temporary file for ptxas: " +
                                              error.message());
  return llvm::Error::success();
}

static llvm::Expected<std::string> readFile(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return llvm::createStringError(buffer.getError(),
                                   "cannot read what ptxas wrote: " +
                                       buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

llvm::Expected<PtxasResult> shardq::runPtxas(StringRef path, StringRef ptx,
                                             StringRef chip, int optLevel) {
  llvm::SmallString<128> source, binary, log;
  llvm::FileRemover removers[3];
  for (auto [i, file, suffix] : {std::tuple{0, &source, "ptx"},
                                 {1, &binary, "cubin"},
                                 {2, &log, "log"}}) {
    if (llvm::Error error = makeTemporary(suffix, *file))
      return std::move(error);
    removers[i].setFile(*file);
  }
  std::error_code code;
  {
    llvm::raw_fd_ostream stream(source, code);
    stream << ptx;
    stream.close();
    if (!code && stream.has_error())
      code = stream.error();
    stream.clear_error();
  }
  if (code)
    return llvm::createStringError(code, "cannot write PTX for ptxas: " +
                                             code.message());

  std::string arch = ("-arch=" + chip).str();
  std::string level = "-O" + std::to_string(optLevel);
  std::optional<StringRef> redirects[] = {StringRef(), StringRef(log),
                                          StringRef(log)};
  std::string message;
  int status = llvm::sys::ExecuteAndWait(
      path, {path, "-v", arch, level, source, "-o", binary},
      /*Env=*/std::nullopt, redirects, /*SecondsToWait=*/0, /*MemoryLimit=*/0,
      &message);
  if (status < 0)
    return llvm::createStringError("ptxas '" + path +
                                   "' did not run: " + message);
  PtxasResult result;
  result.status = status;
  llvm::Expected<std::string> output = readFile(log);
  if (!output)
    return output.takeError();
  result.output = std::move(*output);
  if (result.status == 0) {
    llvm::Expected<std::string> cubin = readFile(binary);
    if (!cubin)
      return cubin.takeError();
    result.cubin = std::move(*cubin);
  }
  return result;
}
