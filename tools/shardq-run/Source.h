//===- Source.h - Programs as users hand them in ----------------*- C++ -*-===//

#ifndef SHARDQ_RUN_SOURCE_H
#define SHARDQ_RUN_SOURCE_H

#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/SourceMgr.h"
#include <string>

namespace mlir::shardq::run {

/// Parses the main file, text with the names of its values or bytecode without,
/// and verifies it. Null where the context's handler has been told why.
OwningOpRef<ModuleOp> parseModule(llvm::SourceMgr &sources,
                                  MLIRContext &context, AsmParserState &names);

/// The default rewrite as text of a pass pipeline: token sharding on the axis
/// that the first head-sharded attention under `root` names;
/// `nullBlock` stands for no block in block tables.
std::string getDefaultPipeline(Operation *root, int64_t minTokens,
                               int64_t nullBlock);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_SOURCE_H
