//===- DcpGather.h - What gathers the keys of a sharded cache ---*- C++ -*-===//

#ifndef SHARDQ_LIB_TRANSFORMS_DCPGATHER_H
#define SHARDQ_LIB_TRANSFORMS_DCPGATHER_H

#include "DcpMatch.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::shardq {

/// Makes what attention over gathered keys needs: the gathered blocks of a
/// table, the gate, slots among gathered keys, and the gather itself.
class KeyGather {
public:
  KeyGather(ModuleOp module, OpBuilder &builder, const DcpOptions &options)
      : step(options.step), gathersAll(options.blocks == GatheredBlocks::Full),
        nullBlock(options.nullBlock), builder(builder), dominance(module) {}

  // Made once for all attentions that share them, as early as what they need is
  // there; the first who asks may have the table's makers moved for that.
  GatherBlocksOp ensureBlocks(const DcpCandidate &candidate);
  /// Whether keys are gathered. Where members have rows of their own, in each
  /// step with chunks: no other way is right.
  Value ensureGate(const DcpCandidate &candidate);

  /// Says of all blocks that have been made which of them the caches have, once
  /// all who share them are known: what no cache has is not gathered, as the
  /// form for decode steps skips such keys.
  void setPools();

  // Where the builder stands.
  GatheredSlotsOp createSlots(const DcpCandidate &candidate, Value indices);
  GatherKvStartOp createStart(const DcpCandidate &candidate);
  Value createFinish(const DcpCandidate &candidate, GatherKvStartOp start);

private:
  /// The gathered blocks of a table, the gate of what attends them, and the
  /// caches whose blocks they are, each with the rows from block to block.
  struct Blocks {
    GatherBlocksOp op;
    Value gate;
    llvm::SmallSetVector<std::pair<Value, int64_t>, 4> caches;
  };

  Blocks &ensureEntry(const DcpCandidate &candidate);
  void setBlocksPlace(const DcpCandidate &candidate);
  GatherBlocksOp createBlocks(const DcpCandidate &candidate);
  Value findPool(const Blocks &blocks);
  Value createGate(const DcpCandidate &candidate, Value decodes);
  Value createChunksGate(const DcpCandidate &candidate);
  Value gateChunks(ChunkSplitOp split, const DcpCandidate &candidate);

  DcpStep step;
  bool gathersAll;
  int32_t nullBlock;
  OpBuilder &builder;
  DominanceInfo dominance;
  llvm::MapVector<BlocksKey, Blocks> blocksOf;
};

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TRANSFORMS_DCPGATHER_H
