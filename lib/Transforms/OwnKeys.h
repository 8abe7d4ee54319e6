//===- OwnKeys.h - Attention over the keys that a rank keeps ----*- C++ -*-===//

#ifndef SHARDQ_LIB_TRANSFORMS_OWNKEYS_H
#define SHARDQ_LIB_TRANSFORMS_OWNKEYS_H

#include "shardq/IR/ShardQ.h"

namespace mlir::shardq {

/// Who attends what among the ranks that a KV cache is divided over.
struct KvMembers {
  /// Along it members have different heads, or rows, and queries travel; null
  /// where all have the same.
  StringAttr axis;
  int64_t ranks = 1;
  /// Along these members have the same heads and rows.
  SmallVector<StringAttr> copies;

  KvMembers() = default;
  /// Of an attention on the KV axis.
  KvMembers(SparseMlaOp op, StringAttr axis);
};

/// This rank's part of a KV cache that is divided over an axis.
struct OwnKeys {
  Value kv, table;
  FlatSymbolRefAttr mesh;
  StringAttr axis;
  KvMembers members;
  IntegerAttr interleave, blockSize, blockStrideRows; // the last may be null
  int64_t paddedHeads = 0; // room in rows of gathered queries; 0 for no more
};

/// Rows that attend. Of an op on shards of a step's rows `q` is this rank's,
/// and the others are those of all ranks.
struct AttendingRows {
  SmallVector<Value> q;
  Value req;        // null where the attention is not told
  Value topkLength; // null where the slots' own count says it
};

/// Where the chosen positions stand among own keys: at the front, with a count,
/// unless the rows have lengths of their own, which count columns.
FilterIndicesOp filterToOwnKeys(OpBuilder &builder, Location loc,
                                const OwnKeys &keys, Value indices, Value req,
                                RankedTensorType slots, bool isCompacted);

/// Whether the op has shards of the step's rows, which travel rather than
/// heads.
bool hasTokenShards(SparseMlaOp op);

/// The rows of all ranks, of each rank's shards in one part or two.
Value gatherShards(OpBuilder &builder, Location loc, const OwnKeys &keys,
                   ValueRange parts);

/// The form for decode steps of `op` on some rows: queries travel, each rank
/// attends its own keys, and outputs are merged. Returns what `op` returns for
/// those rows, with null for an LSE that nobody wants.
SmallVector<Value> attendOwnKeys(OpBuilder &builder, SparseMlaOp op,
                                 const OwnKeys &keys, const AttendingRows &rows,
                                 FilterIndicesOp filter, bool needsLse);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TRANSFORMS_OWNKEYS_H
