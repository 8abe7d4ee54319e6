//===- Ptxas.h - NVIDIA's assembler as a child process ----------*- C++ -*-===//

#ifndef SHARDQ_LIB_TARGET_PTXAS_H
#define SHARDQ_LIB_TARGET_PTXAS_H

#include "mlir/Support/LLVM.h"
#include "llvm/Support/Error.h"
#include <map>
#include <string>
#include <vector>

namespace mlir::shardq {

/// What a function takes, in bytes but for the registers.
struct PtxasResources {
  int32_t registers = 0;
  int32_t shared = 0; // static
  int32_t stack = 0;
  int32_t spills = 0; // stores and loads
};

struct PtxasMessage {
  enum Severity { Info, Warning, Error };
  Severity severity = Info;
  int line = 0; // of the PTX, from 1; 0 where none is named
  std::string text;

  /// C75xx: what the compiler had to serialize. Said as an info, and yet the
  /// kernel is several times slower.
  bool isPerformanceLoss() const;
};

struct PtxasReport {
  std::vector<PtxasMessage> messages;
  /// Kernels and functions that were not inlined, by name.
  std::map<std::string, PtxasResources, std::less<>> functions;
};

/// Reads what `ptxas -v` prints.
PtxasReport parsePtxasOutput(StringRef text);

/// The path of ptxas: `given`, or the first in $CUDA_HOME/bin,
/// /usr/local/cuda/bin and PATH. An error where `given` cannot be run; an empty
/// path where none was given and none found.
llvm::Expected<std::string> findPtxas(StringRef given);

struct PtxasResult {
  int status = 0;
  std::string cubin;  // where that is 0
  std::string output; // all that it printed
};

/// Assembles `ptx`. An error where the process could not be run at all.
llvm::Expected<PtxasResult> runPtxas(StringRef path, StringRef ptx,
                                     StringRef chip, int optLevel);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TARGET_PTXAS_H
