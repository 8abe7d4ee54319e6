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

  /// Where a token stands in the global cache, and in a rank's.
  struct Place {
    int64_t global, own;
  };
  /// By cache: those of its tokens, for each coordinate.
  std::map<unsigned, std::vector<std::vector<Place>>> places;
};

/// What ranks return of a sharded cache, as one: the given cache with the rows
/// of its tokens as their ranks have them. `parts` are of the ranks in turn. An
/// error where ranks that have the same token differ, or where a row that is no
/// token's is not the given one.
llvm::Expected<Array> joinCaches(const Signature &signature, unsigned argument,
                                 const KvShards &shards, const Array &given,
                                 llvm::ArrayRef<const Array *> parts);

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
