//===- KvShards.h - Each rank's part of a sharded KV cache ------*- C++ -*-===//

#ifndef SHARDQ_RUN_KVSHARDS_H
#define SHARDQ_RUN_KVSHARDS_H

#include "Inputs.h"
#include <map>

namespace mlir::shardq::run {

/// Caches and block tables that differ between the ranks of an axis.
class KvShards {
public:
  /// The rank's own array of an argument; null where it has the global one.
  const Array *find(const Signature &signature, unsigned argument,
                    int64_t rank) const;

  /// By argument: one array for each coordinate along its axis.
  std::map<unsigned, std::vector<Array>> arrays;
};

/// Whether each rank's blocks are dealt anew, or a request has the same ones on
/// all ranks.
enum class Tables { Own, Alike };

/// The program gathers KV, for which tables are alike.
bool needsTablesAlike(ModuleOp module);

/// Cuts the global caches that the signature says are sharded: each rank gets
/// the tokens that it owns, in blocks of its cache, and a table of those. Rows
/// of nobody are NaN.
llvm::Expected<KvShards> shardCaches(const Signature &signature,
                                     const Inputs &inputs, uint64_t seed,
                                     Tables tables = Tables::Own);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_KVSHARDS_H
