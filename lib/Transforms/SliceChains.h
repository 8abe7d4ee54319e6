//===- SliceChains.h - Exchanges that are sliced together -------*- C++ -*-===//

#ifndef SHARDQ_LIB_TRANSFORMS_SLICECHAINS_H
#define SHARDQ_LIB_TRANSFORMS_SLICECHAINS_H

#include "shardq/IR/ShardQ.h"

namespace mlir::shardq {

/// Ops of one block that work on the same rows, in program order. What they
/// hand on is used behind the last one only.
using SliceChain = SmallVector<Operation *>;

/// Exchanges of rows or heads with what belongs to them, and gathers that
/// nothing belongs to, but for those that are within the inboxes whatever the
/// step.
SmallVector<SliceChain> findSliceChains(ModuleOp module);

/// Whether all that uses the values is in the chain.
bool isUsedWithin(ValueRange values, ArrayRef<Operation *> chain);

/// A gather by itself of rows that are not shards of a step's.
GatherRowsOp getLoneGather(const SliceChain &chain);

/// A merge by itself of rows of which each rank gets its own.
CombineLseOp getLoneScatter(const SliceChain &chain);

/// How many ranks have rows in the chain, of which each has a slice in each
/// turn; none where all have the same.
std::optional<int64_t> getShards(const SliceChain &chain);

/// Whether the operand is rows, of which a turn takes some.
bool isRowOperand(OpOperand &operand);

/// Whether the operand, or a result, has the rows of all ranks that have shards
/// of them, rank after rank: of a chain in which some do.
bool isOfAllRanks(OpOperand &operand);
bool isOfAllRanks(OpResult result);

/// What the rows of a chain are counted by: in shards, those of this rank, but
/// of a merge by itself, which has those of all.
Value getRowSource(const SliceChain &chain);

/// The split of whose step the value has all rows, in their order, whatever
/// branch made it; null if none.
ChunkSplitOp getRestored(Value value);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TRANSFORMS_SLICECHAINS_H
