//===- Progress.cpp - What a long run is doing, on a terminal -------------===//

#include "Progress.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir::shardq::run;

Progress::Progress() : onTerminal(llvm::errs().is_displayed()) {}

void Progress::begin(const std::string &what) {
  text = what;
  start = shown = Clock::now();
}

double Progress::getSeconds() const {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void Progress::tick(const std::string &detail) {
  // Short runs leave no trace, and a terminal needs no more than this.
  if (!onTerminal || Clock::now() - shown < std::chrono::milliseconds(250))
    return;
  shown = Clock::now();
  dirty = true;
  llvm::errs() << "\r\x1b[K" << text << " " << detail
               << llvm::format("  %.0f s", getSeconds());
  llvm::errs().flush();
}

void Progress::clear() {
  if (dirty)
    llvm::errs() << "\r\x1b[K";
  dirty = false;
}
