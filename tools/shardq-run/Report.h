//===- Report.h - What --verify tells ---------------------------*- C++ -*-===//

#ifndef SHARDQ_RUN_REPORT_H
#define SHARDQ_RUN_REPORT_H

#include "Verify.h"

namespace mlir::shardq::run {

/// The table for people.
void printReport(const VerifyReport &report, llvm::raw_ostream &out);

/// The same as JSON. Work counts keys, times are seconds.
llvm::Error writeReport(const VerifyReport &report, llvm::StringRef path);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_REPORT_H
