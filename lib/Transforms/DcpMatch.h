//===- DcpMatch.h - Attentions that --shardq-dcp can rewrite ----*- C++ -*-===//

#ifndef SHARDQ_LIB_TRANSFORMS_DCPMATCH_H
#define SHARDQ_LIB_TRANSFORMS_DCPMATCH_H

#include "OwnKeys.h"
#include "mlir/IR/Dominance.h"
#include "shardq/Transforms/Passes.h"

namespace mlir::shardq {

/// What the pass is asked for.
struct DcpOptions {
  DcpStep step;
  DecodeRows decodeRows;
  GatheredBlocks blocks;
  int32_t nullBlock;
  int64_t paddedHeads;
};

/// An attention that can be rewritten.
struct DcpCandidate {
  SparseMlaOp op;
  ConvertIndicesOp convert;
  StringAttr axis;
  KvMembers members;
  /// Of the rows, where its ranks keep KV too: they are other rows on each.
  StringAttr chunks;
  /// What says how many columns of own slots are valid: the filter's own
  /// count, or else the op's topk_length on slots that keep their columns.
  bool isCompacted = true;
  /// The op's topk_length is the conversion's count.
  bool takesCount = false;
  /// The form for decode steps, or both under a gate.
  DcpStep form = DcpStep::Decode;
  /// What the step holds; null where only the form for decode steps is made.
  ExpandRowsOp expand;
};

/// Attentions that attend keys of one gather, in program order.
using DcpGroup = ArrayRef<DcpCandidate>;

/// Asks only: what it is asked about stays as it is.
class DcpMatcher {
public:
  DcpMatcher(ModuleOp module, const DcpOptions &options)
      : step(options.step),
        combinesDecodeRows(options.decodeRows == DecodeRows::Combine),
        paddedHeads(options.paddedHeads), dominance(module) {}

  /// Says why where the attention cannot be rewritten.
  FailureOr<DcpCandidate> match(SparseMlaOp op);
  /// Whether `next` may attend the keys that are gathered for the group.
  bool canJoin(DcpGroup group, const DcpCandidate &next);

private:
  LogicalResult matchSharding(SparseMlaOp op);
  LogicalResult matchUses(SparseMlaOp op, ConvertIndicesOp convert);
  LogicalResult matchBlocks(SparseMlaOp op, ConvertIndicesOp convert);
  LogicalResult matchLength(DcpCandidate &candidate);
  LogicalResult chooseForm(DcpCandidate &candidate);
  bool canBoundKeys(const DcpCandidate &candidate);
  bool isOverSameKeys(const DcpCandidate &one, const DcpCandidate &other);

  DcpStep step;
  bool combinesDecodeRows;
  int64_t paddedHeads;
  DominanceInfo dominance;
};

/// What says which chunks of the step the rows are; null for all of them.
ChunkLengthsOp getChunks(ExpandRowsOp expand);

/// Starts and lengths of the whole step, also where the rows are those of its
/// chunks, or of a shard: what is gathered, and when, is the same on all ranks.
std::pair<Value, Value> getStepLengths(ExpandRowsOp expand);

/// Whether the op, or one inside it, is an exchange or becomes one.
bool mayExchange(Operation *op);

/// What has to move for the value to be there in front of `place`, in program
/// order; none where it is already. Fails where something must stay.
FailureOr<SmallVector<Operation *>> findMoves(Value value, Operation *place,
                                              DominanceInfo &dominance);

/// Whether the attention's block table is there in front of `place`, or can be.
bool canHaveTableBefore(SparseMlaOp op, Operation *place,
                        DominanceInfo &dominance);

/// The index ops that feed the attention alone: they move into the branches of
/// its gate, so that a gather overlaps with them.
SmallVector<Operation *> getOwnIndexOps(const DcpCandidate &candidate);

/// What gathered blocks depend on: where they are made, the step's starts and
/// lengths, the table, and how it is sharded. Attentions with the same share
/// them.
using BlocksKey = std::tuple<Block *, Value, Value, Value, Attribute>;
BlocksKey getBlocksKey(const DcpCandidate &candidate, DominanceInfo &dominance);

/// The split that blocks are made in front of: where keys do not fit there are
/// no chunks, which it has to know. Null where they are made behind what they
/// come from.
ChunkSplitOp getBlocksSplit(const DcpCandidate &candidate);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TRANSFORMS_DCPMATCH_H
