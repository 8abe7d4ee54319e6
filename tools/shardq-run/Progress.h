//===- Progress.h - What a long run is doing, on a terminal -----*- C++ -*-===//

#ifndef SHARDQ_RUN_PROGRESS_H
#define SHARDQ_RUN_PROGRESS_H

#include "llvm/ADT/StringRef.h"
#include <chrono>
#include <string>

namespace mlir::shardq::run {

/// One line on stderr that is rewritten as time passes; silent where stderr is
/// not a terminal.
class Progress {
public:
  Progress();
  ~Progress() { clear(); }

  void begin(const std::string &what);
  /// Call now and then. `detail` replaces what stands behind the text.
  void tick(const std::string &detail = "");
  void clear();
  double getSeconds() const;

private:
  using Clock = std::chrono::steady_clock;
  bool onTerminal;
  bool dirty = false;
  std::string text;
  Clock::time_point start, shown;
};

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_PROGRESS_H
