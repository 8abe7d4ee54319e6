//===- Register.h - One call for everything ShardQ has ----------*- C++ -*-===//

#ifndef SHARDQ_PIPELINES_REGISTER_H
#define SHARDQ_PIPELINES_REGISTER_H

namespace mlir {
class DialectRegistry;
namespace shardq {

/// Adds the dialect and its external models to the registry and registers
/// all passes and pipelines. Safe to call more than once.
void registerAll(DialectRegistry &registry);

} // namespace shardq
} // namespace mlir

#endif // SHARDQ_PIPELINES_REGISTER_H
