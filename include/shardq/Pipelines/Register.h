//===- Register.h - One call for everything ShardQ has ----------*- C++ -*-===//

#ifndef SHARDQ_PIPELINES_REGISTER_H
#define SHARDQ_PIPELINES_REGISTER_H

namespace mlir {
class DialectRegistry;
namespace shardq {

/// Adds to the registry all that ShardQ's passes and pipelines need of a
/// context: its dialect, and MLIR's, with their extensions and translations to
/// LLVM IR. Registers ShardQ's passes and pipelines. Safe to call more than
/// once.
void registerAll(DialectRegistry &registry);

} // namespace shardq
} // namespace mlir

#endif // SHARDQ_PIPELINES_REGISTER_H
