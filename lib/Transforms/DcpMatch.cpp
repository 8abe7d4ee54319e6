//===- DcpMatch.cpp - Attentions that --shardq-dcp can rewrite ------------===//

#include "DcpMatch.h"
#include "ChunkBounds.h"
#include "IndexProducers.h"
#include "Rows.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::shardq;

//===----------------------------------------------------------------------===//
// What a step and its rows are made by
//===----------------------------------------------------------------------===//

ChunkLengthsOp shardq::getChunks(ExpandRowsOp expand) {
  return expand.getSeqLens().getDefiningOp<ChunkLengthsOp>();
}

std::pair<Value, Value> shardq::getStepLengths(ExpandRowsOp expand) {
  if (ChunkLengthsOp chunks = getChunks(expand))
    return {chunks.getQueryStart(), chunks.getSeqLens()};
  if (auto shards = expand.getSeqLens().getDefiningOp<ShardLengthsOp>())
    return {shards.getQueryStart(), shards.getSeqLens()};
  return {expand.getQueryStart(), expand.getSeqLens()};
}

bool shardq::mayExchange(Operation *op) {
  return op
      ->walk([](Operation *inner) {
        return isa<SparseMlaOp, CollectiveOpInterface, GatherKvStartOp,
                   CallOpInterface>(inner)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

FailureOr<SmallVector<Operation *>>
shardq::findMoves(Value value, Operation *place, DominanceInfo &dominance) {
  llvm::SetVector<Operation *> moves;
  SmallVector<Value> needed{value};
  while (!needed.empty()) {
    Value next = needed.pop_back_val();
    if (dominance.properlyDominates(next, place))
      continue;
    Operation *op = next.getDefiningOp();
    if (!op || op == place || op->getBlock() != place->getBlock() ||
        op->getNumRegions() != 0 || !isMemoryEffectFree(op))
      return failure();
    if (moves.insert(op))
      llvm::append_range(needed, op->getOperands());
  }
  SmallVector<Operation *> ordered = moves.takeVector();
  llvm::sort(ordered, [](Operation *one, Operation *other) {
    return one->isBeforeInBlock(other);
  });
  return ordered;
}

bool shardq::canHaveTableBefore(SparseMlaOp op, Operation *place,
                                DominanceInfo &dominance) {
  auto convert =
      lookThroughCasts(op.getSlots()).getDefiningOp<ConvertIndicesOp>();
  return convert && succeeded(findMoves(convert.getTable(), place, dominance));
}

//===----------------------------------------------------------------------===//
// One attention
//===----------------------------------------------------------------------===//

/// Calls `visit` for each use of the value, or of a cast of it, until it fails.
static LogicalResult
forEachUse(Value value, llvm::function_ref<LogicalResult(OpOperand &)> visit) {
  for (OpOperand &use : value.getUses())
    if (auto cast = dyn_cast<tensor::CastOp>(use.getOwner())) {
      if (failed(forEachUse(cast.getResult(), visit)))
        return failure();
    } else if (failed(visit(use))) {
      return failure();
    }
  return success();
}

static InFlightDiagnostic reject(SparseMlaOp op) {
  return op.emitOpError("cannot attend own keys alone: ");
}

/// A conversion through a sharded table makes slots that only attentions over
/// the sharded cache understand.
LogicalResult DcpMatcher::matchUses(SparseMlaOp op, ConvertIndicesOp convert) {
  ShardingAttr sharding = op.getShardingAttr();
  for (OpResult result : convert->getResults()) {
    LogicalResult known = forEachUse(result, [&](OpOperand &use) {
      auto user = dyn_cast<SparseMlaOp>(use.getOwner());
      bool isSlots = user && &user.getSlotsMutable() == &use;
      bool isLength =
          user && result.getResultNumber() == 1 &&
          llvm::any_of(user.getTopkLengthMutable(),
                       [&](OpOperand &operand) { return &operand == &use; });
      ShardingAttr other = user ? user.getShardingAttr() : ShardingAttr();
      if ((isSlots || isLength) && other &&
          other.getMesh() == sharding.getMesh() &&
          other.getKv() == sharding.getKv() &&
          other.getInterleave() == sharding.getInterleave())
        return success();
      InFlightDiagnostic diag = reject(op) << "its slots have a user that does "
                                              "not share its sharding of KV";
      diag.attachNote(use.getOwner()->getLoc()) << "the user is here";
      return failure();
    });
    if (failed(known))
      return failure();
  }
  return success();
}

/// What queries and outputs can travel by.
LogicalResult DcpMatcher::matchSharding(SparseMlaOp op) {
  ShardingAttr sharding = op.getShardingAttr();
  if (sharding.getKv().size() != 1)
    return reject(op) << "its KV is sharded over " << sharding.getKv().size()
                      << " axes, expected one";
  if (sharding.isOverTokens()) {
    if (sharding.getOrder() == TokenOrder::Contiguous)
      return success();
    return reject(op) << "its tokens are sharded in the order "
                      << stringifyTokenOrder(*sharding.getOrder())
                      << ", expected contiguous";
  }
  int64_t heads =
      op.getNumHeads() * KvMembers(op, sharding.getKv().front()).ranks;
  if (paddedHeads == 0 || paddedHeads >= heads)
    return success();
  return reject(op) << "its group has " << heads
                    << " heads, more than padded-heads, " << paddedHeads;
}

/// Runs of the interleave lie in cache blocks, or blocks in runs.
LogicalResult DcpMatcher::matchBlocks(SparseMlaOp op,
                                      ConvertIndicesOp convert) {
  int64_t run = op.getShardingAttr().getInterleave(),
          block = convert.getBlockSize();
  if (block % run == 0 || run % block == 0)
    return success();
  InFlightDiagnostic diag = reject(op)
                            << "its cache blocks have " << block
                            << " rows and the interleave is " << run
                            << ", expected one to be a multiple of the other";
  diag.attachNote(convert.getLoc()) << "the block size is given here";
  return failure();
}

/// What counts the valid columns of own slots.
LogicalResult DcpMatcher::matchLength(DcpCandidate &candidate) {
  SparseMlaOp op = candidate.op;
  ConvertIndicesOp convert = candidate.convert;
  Value length = op.getTopkLength();
  if (!length)
    return success();
  bool isCount = convert.getNumOuts() == 2 &&
                 lookThroughCasts(length) == convert->getResult(1);
  Operation *chosen = lookThroughCasts(convert.getIndices()).getDefiningOp();
  // A count of positions that all stand at the front counts columns too.
  if (isCount && !isa_and_present<IndexerOp, TopKOp>(chosen))
    return reject(op) << "its topk_length counts slots among positions that no "
                         "shardq.indexer or shardq.topk made";
  candidate.isCompacted = candidate.takesCount = isCount;
  return success();
}

FailureOr<DcpCandidate> DcpMatcher::match(SparseMlaOp op) {
  DcpCandidate found;
  found.op = op;
  found.form = step;
  if (op.isOnBuffers()) {
    reject(op) << "it is on buffers";
    return failure();
  }
  if (failed(matchSharding(op)))
    return failure();
  found.axis = op.getShardingAttr().getKv().front();
  found.members = KvMembers(op, found.axis);
  found.convert =
      lookThroughCasts(op.getSlots()).getDefiningOp<ConvertIndicesOp>();
  if (!found.convert) {
    reject(op) << "its slots do not come from a shardq.convert_indices";
    return failure();
  }
  if (found.convert.getPrefillReq()) {
    InFlightDiagnostic diag = reject(op)
                              << "its slots point into a prefill workspace";
    diag.attachNote(found.convert.getLoc()) << "they are made here";
    return failure();
  }
  if (failed(matchBlocks(op, found.convert)) ||
      failed(matchUses(op, found.convert)) || failed(matchLength(found)) ||
      failed(chooseForm(found)))
    return failure();
  return found;
}

/// What each step can have: a gather needs to know the step.
LogicalResult DcpMatcher::chooseForm(DcpCandidate &candidate) {
  SparseMlaOp op = candidate.op;
  // Members that run on other rows have nothing to merge.
  StringAttr chunks = getChunkAxis(op);
  if (llvm::is_contained(candidate.members.copies, chunks)) {
    if (step == DcpStep::Decode)
      return reject(op) << "it runs on chunks of requests over " << chunks
                        << ", over which its KV is sharded too";
    candidate.chunks = chunks;
  }
  if (candidate.form == DcpStep::Decode)
    return success();
  StringRef reason;
  // Of chunks too: keys are gathered for the whole step.
  candidate.expand = findExpandRows(op, reason, TakenRows::Follow);
  if (candidate.expand) {
    // Keys that do not fit go the other way.
    candidate.form = DcpStep::Gate;
    if (canBoundKeys(candidate))
      return success();
    InFlightDiagnostic diag =
        op.emitOpError("cannot attend gathered keys: its block table, starts "
                       "or lengths are not there in front of the chunks of its "
                       "rows, and keys that do not fit must have none");
    diag.attachNote(getChunkSplit(op).getLoc()) << "chunks are made here";
    return diag;
  }
  if (candidate.form == DcpStep::Gather || candidate.chunks)
    return op.emitOpError("cannot attend gathered keys: ") << reason;
  candidate.form = DcpStep::Decode;
  return success();
}

/// Whether a step whose keys do not fit can go the way of decode steps. Chunks
/// over ranks that keep other keys cannot, so their split has to know: the
/// table is there in front of it, or can be.
bool DcpMatcher::canBoundKeys(const DcpCandidate &candidate) {
  if (!candidate.chunks)
    return true;
  ChunkSplitOp split = getChunkSplit(candidate.op);
  auto [starts, lengths] = getStepLengths(candidate.expand);
  Value wholeRows = split.getDecodes();
  auto isBehind = [&](Operation *op) {
    return op == split || !takesWholeRows(op, wholeRows) ||
           dominance.properlyDominates(split.getOperation(), op);
  };
  return canHaveTableBefore(candidate.op, split, dominance) &&
         dominance.properlyDominates(starts, split) &&
         dominance.properlyDominates(lengths, split) &&
         llvm::all_of(wholeRows.getUsers(), isBehind);
}

SmallVector<Operation *> shardq::getOwnIndexOps(const DcpCandidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  SparseMlaOp op = candidate.op;
  Operation *chosen = convert.getIndices().getDefiningOp();
  if (!isa_and_present<IndexerOp, TopKOp>(chosen) ||
      chosen->getBlock() != op->getBlock() ||
      !llvm::all_of(convert->getUsers(),
                    [&](Operation *user) { return user == op; }))
    return {};
  bool feedsOthers = llvm::any_of(chosen->getUsers(), [&](Operation *user) {
    auto tap = dyn_cast<TapOp>(user);
    bool moves = tap && !tap.getRows() && tap->getBlock() == op->getBlock();
    return user != convert && !moves;
  });
  if (feedsOthers)
    return {};
  return {chosen};
}

//===----------------------------------------------------------------------===//
// Attentions over the same keys
//===----------------------------------------------------------------------===//

ChunkSplitOp shardq::getBlocksSplit(const DcpCandidate &candidate) {
  return candidate.chunks ? getChunkSplit(candidate.op) : ChunkSplitOp();
}

BlocksKey shardq::getBlocksKey(const DcpCandidate &candidate,
                               DominanceInfo &dominance) {
  ConvertIndicesOp convert = candidate.convert;
  ExpandRowsOp expand = candidate.expand;
  Value table = convert.getTable();
  ShardingAttr sharding = SparseMlaOp(candidate.op).getShardingAttr();
  Builder builder(convert.getContext());
  Attribute facts =
      builder.getArrayAttr({sharding.getMesh(), candidate.axis,
                            builder.getI64IntegerAttr(sharding.getInterleave()),
                            convert.getBlockSizeAttr()});
  Block *block = table.getParentBlock();
  if (ChunkSplitOp split = getBlocksSplit(candidate))
    block = split->getBlock();
  else if (dominance.properlyDominates(table, expand.getOperation()))
    block = expand->getBlock();
  auto [starts, lengths] = getStepLengths(expand);
  return {block, starts, lengths, table, facts};
}

/// Whether both are calls over chunks of one step, with the same keys. (Others
/// have a gather each, which --shard-q-tokens moves into the branches of the
/// attention that it is for.)
bool DcpMatcher::isOverSameKeys(const DcpCandidate &one,
                                const DcpCandidate &other) {
  SparseMlaOp op = one.op, otherOp = other.op;
  ConvertIndicesOp convert = one.convert, otherConvert = other.convert;
  return one.expand && other.expand && getChunks(one.expand) &&
         getChunks(other.expand) && one.form != DcpStep::Decode &&
         one.form == other.form && op.getKv() == otherOp.getKv() &&
         one.axis == other.axis &&
         convert.getBlockStrideRowsAttr() ==
             otherConvert.getBlockStrideRowsAttr() &&
         getBlocksKey(one, dominance) == getBlocksKey(other, dominance);
}

/// Where `next` stands all of the group may attend, since nothing in between
/// uses their results, or exchanges, which would take the inbox from those
/// behind. Decode rows that are combined are such an exchange.
bool DcpMatcher::canJoin(DcpGroup group, const DcpCandidate &next) {
  SparseMlaOp op = group.back().op, nextOp = next.op;
  Block *block = op->getBlock();
  if (combinesDecodeRows || block != nextOp->getBlock())
    return false;
  for (const DcpCandidate &candidate : group)
    for (Operation *user : SparseMlaOp(candidate.op)->getUsers()) {
      Operation *place = block->findAncestorOpInBlock(*user);
      if (!place || !nextOp->isBeforeInBlock(place))
        return false;
    }
  for (Operation *between = op->getNextNode(); between != nextOp;
       between = between->getNextNode())
    if (mayExchange(between))
      return false;
  return isOverSameKeys(group.front(), next);
}
