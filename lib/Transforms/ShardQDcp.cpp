//===- ShardQDcp.cpp - Attention over a sharded KV cache ------------------===//
//
// Two forms: queries travel, by heads or by rows, each rank attends its own
// keys, and outputs are merged; or keys travel, while the indexer runs, and
// each rank attends them all. The option `step` says which, and a gate where
// the second is not for every step, or not for those of any size.
//
//===----------------------------------------------------------------------===//

#include "IndexProducers.h"
#include "OwnKeys.h"
#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQDCP
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// An attention that can be rewritten.
struct Candidate {
  SparseMlaOp op;
  ConvertIndicesOp convert;
  StringAttr axis;
  KvMembers members;
  /// Of the rows, where its ranks keep KV too: they are other rows on each.
  StringAttr chunks;
  /// What says how many columns of own slots are valid: the filter's own
  /// count, or else the op's topk_length on slots that keep their columns.
  bool isCompacted;
  /// The op's topk_length is the conversion's count.
  bool takesCount;
  DcpStep form;
  /// Whether a step whose keys do not fit can go the way of decode steps.
  bool isBounded = false;
  /// What the step holds; null where only the form for decode steps is made.
  ExpandRowsOp expand;
};

/// Attentions that attend keys of one gather, in program order.
using Group = ArrayRef<Candidate>;

/// The gathered blocks of a table, the gate of what attends them, and the
/// caches whose blocks they are, each with the rows from block to block.
struct Blocks {
  GatherBlocksOp op;
  Value gate;
  llvm::SmallSetVector<std::pair<Value, int64_t>, 4> caches;
};

/// What says which chunks of the step the rows are; null for all of them.
ChunkLengthsOp getChunks(ExpandRowsOp expand) {
  return expand.getSeqLens().getDefiningOp<ChunkLengthsOp>();
}

/// Starts and lengths of the whole step, also where the rows are those of its
/// chunks, or of a shard: what is gathered, and when, is the same on all ranks.
std::pair<Value, Value> getStepLengths(ExpandRowsOp expand) {
  if (ChunkLengthsOp chunks = getChunks(expand))
    return {chunks.getQueryStart(), chunks.getSeqLens()};
  if (auto shards = expand.getSeqLens().getDefiningOp<ShardLengthsOp>())
    return {shards.getQueryStart(), shards.getSeqLens()};
  return {expand.getQueryStart(), expand.getSeqLens()};
}

/// Whether the rows are tails of requests alone.
bool isOfTails(ExpandRowsOp expand) {
  ChunkLengthsOp chunks = expand ? getChunks(expand) : ChunkLengthsOp();
  return chunks && chunks.getPart() == ChunkPart::Tail;
}

/// Calls `visit` for each use of the value, or of a cast of it, until it fails.
LogicalResult forEachUse(Value value,
                         llvm::function_ref<LogicalResult(OpOperand &)> visit) {
  for (OpOperand &use : value.getUses())
    if (auto cast = dyn_cast<tensor::CastOp>(use.getOwner())) {
      if (failed(forEachUse(cast.getResult(), visit)))
        return failure();
    } else if (failed(visit(use))) {
      return failure();
    }
  return success();
}

/// Rewrites the attentions of a module.
class Rewriter {
public:
  Rewriter(ModuleOp module, DcpStep step, DecodeRows decodeRows,
           GatheredBlocks blocks, int32_t nullBlock, int64_t paddedHeads,
           bool remarks)
      : module(module), step(step),
        combinesDecodeRows(decodeRows == DecodeRows::Combine),
        gathersAll(blocks == GatheredBlocks::Full), nullBlock(nullBlock),
        paddedHeads(paddedHeads), remarks(remarks),
        builder(module.getContext()), dominance(module) {}

  LogicalResult run();

private:
  // Analysis.
  FailureOr<Candidate> match(SparseMlaOp op);
  LogicalResult matchSharding(SparseMlaOp op);
  LogicalResult matchUses(SparseMlaOp op, ConvertIndicesOp convert);
  LogicalResult chooseForm(Candidate &candidate);
  bool canBoundKeys(const Candidate &candidate);
  SmallVector<Operation *> getOwnIndexOps(const Candidate &candidate);
  bool isOverSameKeys(const Candidate &one, const Candidate &other);
  bool canJoin(Group group, const Candidate &next);

  // Emission, where the builder stands.
  OwnKeys getOwnKeys(const Candidate &candidate);
  Value createAllReq(const Candidate &candidate, Value req);
  Value createAllRows(const Candidate &candidate, Value rows);
  FilterIndicesOp createFilter(const Candidate &candidate, Value indices);
  GatheredSlotsOp createSlots(const Candidate &candidate, Value indices);
  GatherKvStartOp createStart(const Candidate &candidate);
  SmallVector<Value> createMerged(const Candidate &candidate,
                                  FilterIndicesOp filter);
  SmallVector<Value> createGathered(const Candidate &candidate,
                                    GatherKvStartOp start, Value &keys,
                                    GatheredSlotsOp slots);
  SmallVector<Value> attendGathered(const Candidate &candidate,
                                    GatherKvStartOp start, Value &keys,
                                    TypeRange types, ValueRange q, Value slots,
                                    Value req, Value length);
  Value createDecodes(const Candidate &candidate);
  SmallVector<Value> createDecodeRows(const Candidate &candidate, Value indices,
                                      Value decodes);

  // Shared by attentions.
  Blocks &getBlocks(const Candidate &candidate);
  Value findPool(const Blocks &blocks);
  void setPools();
  Value createGate(const Candidate &candidate, Value decodes);
  Value gateChunks(ChunkSplitOp split, const Candidate &candidate);
  Value getGate(const Candidate &candidate);
  FilterIndicesOp getFilter(const Candidate &candidate);
  GatheredSlotsOp getSlots(const Candidate &candidate);

  SmallVector<SmallVector<Value>> version(Group group);
  SmallVector<SmallVector<Value>> create(Group group);
  void rewrite(Group group);
  void remark(const Candidate &candidate);

  ModuleOp module;
  DcpStep step;
  bool combinesDecodeRows;
  bool gathersAll;
  int32_t nullBlock;
  int64_t paddedHeads;
  bool remarks;
  OpBuilder builder;
  DominanceInfo dominance;
  /// What describes all rows of a step, by what describes a shard.
  llvm::DenseMap<Operation *, ExpandRowsOp> wholes;
  /// By conversion: compacted, in place.
  llvm::DenseMap<Operation *, std::array<FilterIndicesOp, 2>> filters;
  /// By conversion and blocks.
  llvm::DenseMap<std::pair<Operation *, Operation *>, GatheredSlotsOp> slotsOf;
  /// By the step's starts and lengths, and by table with what else they depend
  /// on; once in each block.
  llvm::MapVector<std::tuple<Block *, Value, Value, Value, Attribute>, Blocks>
      blocksOf;
  /// Conversions, and index ops behind the one that they feed.
  llvm::SetVector<Operation *> replaced;
};

} // namespace

//===----------------------------------------------------------------------===//
// Analysis
//===----------------------------------------------------------------------===//

/// Whether the op, or one inside it, is an exchange or becomes one.
static bool mayExchange(Operation *op) {
  return op
      ->walk([](Operation *inner) {
        return isa<SparseMlaOp, CollectiveOpInterface, GatherKvStartOp,
                   CallOpInterface>(inner)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

static InFlightDiagnostic reject(SparseMlaOp op) {
  return op.emitOpError("cannot attend own keys alone: ");
}

/// A conversion through a sharded table makes slots that only attentions over
/// the sharded cache understand.
LogicalResult Rewriter::matchUses(SparseMlaOp op, ConvertIndicesOp convert) {
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
LogicalResult Rewriter::matchSharding(SparseMlaOp op) {
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

FailureOr<Candidate> Rewriter::match(SparseMlaOp op) {
  ShardingAttr sharding = op.getShardingAttr();
  Candidate found{
      op, {}, sharding.getKv().front(), {}, {}, true, false, step, false, {}};
  if (op.isOnBuffers()) {
    reject(op) << "it is on buffers";
    return failure();
  }
  if (failed(matchSharding(op)))
    return failure();
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
  int64_t run = sharding.getInterleave(), block = found.convert.getBlockSize();
  if (block % run != 0 && run % block != 0) {
    InFlightDiagnostic diag = reject(op)
                              << "its cache blocks have " << block
                              << " rows and the interleave is " << run
                              << ", expected one to be a multiple of the other";
    diag.attachNote(found.convert.getLoc()) << "the block size is given here";
    return failure();
  }
  if (failed(matchUses(op, found.convert)))
    return failure();

  if (Value length = op.getTopkLength()) {
    bool isCount = found.convert.getNumOuts() == 2 &&
                   lookThroughCasts(length) == found.convert->getResult(1);
    Operation *chosen =
        lookThroughCasts(found.convert.getIndices()).getDefiningOp();
    // A count of positions that all stand at the front counts columns too.
    if (isCount && !isa_and_present<IndexerOp, TopKOp>(chosen)) {
      reject(op) << "its topk_length counts slots among positions that no "
                    "shardq.indexer or shardq.topk made";
      return failure();
    }
    found.isCompacted = found.takesCount = isCount;
  }
  if (failed(chooseForm(found)))
    return failure();
  return found;
}

/// What each step can have: a gather needs to know the step.
LogicalResult Rewriter::chooseForm(Candidate &candidate) {
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
    candidate.isBounded = canBoundKeys(candidate);
    // Keys of any size go the other way only where there is one.
    if (candidate.isBounded)
      candidate.form = DcpStep::Gate;
    return success();
  }
  if (candidate.form == DcpStep::Gather || candidate.chunks)
    return op.emitOpError("cannot attend gathered keys: ") << reason;
  candidate.form = DcpStep::Decode;
  return success();
}

/// Whether the op divides a step in chunks and takes this number of whole rows.
static bool takesWholeRows(Operation *op, Value wholeRows) {
  if (auto count = dyn_cast<CountChunkRowsOp>(op))
    return count.getDecodes() == wholeRows;
  if (auto split = dyn_cast<ChunkSplitOp>(op))
    return split.getDecodes() == wholeRows;
  if (auto lengths = dyn_cast<ChunkLengthsOp>(op))
    return lengths.getDecodes() == wholeRows;
  auto slots = dyn_cast<ChunkSlotsOp>(op);
  return slots && slots.getDecodes() == wholeRows;
}

/// What has to move for the value to be there in front of `place`, in program
/// order; none where it is already. Fails where something must stay.
static FailureOr<SmallVector<Operation *>>
findMoves(Value value, Operation *place, DominanceInfo &dominance) {
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

/// Whether a step whose keys do not fit can go the way of decode steps. Chunks
/// over ranks that keep other keys cannot, so their split has to know: the
/// table is there in front of it, or can be.
bool Rewriter::canBoundKeys(const Candidate &candidate) {
  if (!candidate.chunks)
    return true;
  ChunkSplitOp split = getChunkSplit(candidate.op);
  ConvertIndicesOp convert = candidate.convert;
  auto [starts, lengths] = getStepLengths(candidate.expand);
  Value wholeRows = split.getDecodes();
  auto isBehind = [&](Operation *op) {
    return op == split || !takesWholeRows(op, wholeRows) ||
           dominance.properlyDominates(split.getOperation(), op);
  };
  return succeeded(findMoves(convert.getTable(), split, dominance)) &&
         dominance.properlyDominates(starts, split) &&
         dominance.properlyDominates(lengths, split) &&
         llvm::all_of(wholeRows.getUsers(), isBehind);
}

/// The index ops that feed the attention alone: they move into the branches of
/// its gate, so that a gather overlaps with them.
SmallVector<Operation *> Rewriter::getOwnIndexOps(const Candidate &candidate) {
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

/// Whether both are calls over chunks of one step, with the same keys. (Others
/// have a gather each, which --shard-q-tokens moves into the branches of the
/// attention that it is for.)
bool Rewriter::isOverSameKeys(const Candidate &one, const Candidate &other) {
  SparseMlaOp op = one.op, otherOp = other.op;
  ConvertIndicesOp convert = one.convert, otherConvert = other.convert;
  return one.expand && other.expand && getChunks(one.expand) &&
         getChunks(other.expand) && one.form != DcpStep::Decode &&
         one.form == other.form && op.getKv() == otherOp.getKv() &&
         one.axis == other.axis &&
         convert.getBlockStrideRowsAttr() ==
             otherConvert.getBlockStrideRowsAttr() &&
         getBlocks(one).op == getBlocks(other).op;
}

/// Whether `next` may attend the keys that are gathered for the group: where it
/// stands all of them may, since nothing in between uses their results, or
/// exchanges, which would take the inbox from those behind. Decode rows that
/// are combined are such an exchange.
bool Rewriter::canJoin(Group group, const Candidate &next) {
  SparseMlaOp op = group.back().op, nextOp = next.op;
  Block *block = op->getBlock();
  if (combinesDecodeRows || block != nextOp->getBlock())
    return false;
  for (const Candidate &candidate : group)
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

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

static bool needsLse(SparseMlaOp op) {
  return op.hasLse() && !op->getResult(1).use_empty();
}

OwnKeys Rewriter::getOwnKeys(const Candidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  SparseMlaOp op = candidate.op;
  ShardingAttr sharding = op.getShardingAttr();
  return {op.getKv(),
          convert.getTable(),
          sharding.getMesh(),
          candidate.axis,
          candidate.members,
          builder.getI64IntegerAttr(sharding.getInterleave()),
          convert.getBlockSizeAttr(),
          convert.getBlockStrideRowsAttr(),
          paddedHeads};
}

/// Of this rank's shard, the rows of all ranks.
Value Rewriter::createAllRows(const Candidate &candidate, Value rows) {
  SparseMlaOp op = candidate.op;
  if (!rows || !hasTokenShards(op))
    return rows;
  return gatherShards(builder, op.getLoc(), getOwnKeys(candidate), rows);
}

/// The requests of all rows. Where the step says what a shard's are, it says
/// what all are, and nothing travels.
Value Rewriter::createAllReq(const Candidate &candidate, Value req) {
  SparseMlaOp op = candidate.op;
  auto expand = req ? lookThroughCasts(req).getDefiningOp<ExpandRowsOp>()
                    : ExpandRowsOp();
  auto shards = expand ? expand.getSeqLens().getDefiningOp<ShardLengthsOp>()
                       : ShardLengthsOp();
  if (!hasTokenShards(op) || !shards ||
      expand.getQueryStart() != shards.getResult(0) ||
      expand.getRows() != shards.getRows() ||
      shards.getMeshAttr() != op.getShardingAttr().getMesh() ||
      shards.getAxisAttr() != candidate.members.axis)
    return createAllRows(candidate, req);
  ExpandRowsOp &whole = wholes[expand];
  if (!whole) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfter(expand);
    Location loc = expand.getLoc();
    Value rows = arith::MulIOp::create(
        builder, loc, expand.getRows(),
        arith::ConstantIndexOp::create(builder, loc, candidate.members.ranks));
    Type type =
        RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
    whole =
        ExpandRowsOp::create(builder, loc, TypeRange{type, type},
                             shards.getQueryStart(), shards.getSeqLens(), rows,
                             ValueRange{}, expand.getSpeculativeTokensAttr());
  }
  auto type = cast<RankedTensorType>(req.getType());
  if (type.isDynamicDim(0))
    return whole->getResult(0);
  return castTo(
      builder, op.getLoc(), whole->getResult(0),
      RankedTensorType::get({type.getDimSize(0) * candidate.members.ranks},
                            type.getElementType()));
}

FilterIndicesOp Rewriter::createFilter(const Candidate &candidate,
                                       Value indices) {
  ConvertIndicesOp convert = candidate.convert;
  Value all = createAllRows(candidate, indices);
  auto slots = cast<RankedTensorType>(convert->getResult(0).getType());
  return filterToOwnKeys(
      builder, convert.getLoc(), getOwnKeys(candidate), all,
      createAllReq(candidate, convert.getReq()),
      RankedTensorType::get(cast<RankedTensorType>(all.getType()).getShape(),
                            slots.getElementType()),
      candidate.isCompacted);
}

FilterIndicesOp Rewriter::getFilter(const Candidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  FilterIndicesOp &filter = filters[convert][candidate.isCompacted ? 0 : 1];
  if (filter)
    return filter;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(convert);
  return filter = createFilter(candidate, convert.getIndices());
}

/// Once for all attentions of a step over one table, as early as both are
/// there.
Blocks &Rewriter::getBlocks(const Candidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  ExpandRowsOp expand = candidate.expand;
  Value table = convert.getTable();
  ShardingAttr sharding = SparseMlaOp(candidate.op).getShardingAttr();
  auto interleave = builder.getI64IntegerAttr(sharding.getInterleave());
  Attribute facts =
      builder.getArrayAttr({sharding.getMesh(), candidate.axis, interleave,
                            convert.getBlockSizeAttr()});
  auto [starts, lengths] = getStepLengths(expand);
  OpBuilder::InsertionGuard guard(builder);
  // Where keys do not fit there are no chunks, which their split has to know.
  if (candidate.chunks && candidate.isBounded) {
    ChunkSplitOp split = getChunkSplit(candidate.op);
    auto moves = findMoves(table, split, dominance);
    for (Operation *op : *moves)
      op->moveBefore(split);
    builder.setInsertionPoint(split);
    // Both dominate the attention, so one dominates the other.
  } else if (dominance.properlyDominates(table, expand.getOperation())) {
    builder.setInsertionPointAfter(expand);
  } else {
    builder.setInsertionPointAfterValue(table);
  }
  Blocks &blocks =
      blocksOf[{builder.getInsertionBlock(), starts, lengths, table, facts}];
  blocks.caches.insert(
      {SparseMlaOp(candidate.op).getKv(),
       convert.getBlockStrideRows().value_or(convert.getBlockSize())});
  if (blocks.op)
    return blocks;
  auto type = cast<RankedTensorType>(table.getType());
  int64_t entries =
      type.hasStaticShape() ? type.getNumElements() : ShapedType::kDynamic;
  Type i32 = builder.getI32Type();
  SmallVector<Type> types{RankedTensorType::get({entries}, i32),
                          RankedTensorType::get(type.getShape(), i32),
                          RankedTensorType::get({1}, i32)};
  blocks.op = GatherBlocksOp::create(
      builder, expand.getLoc(), types, table, lengths, Value(), ValueRange{},
      sharding.getMesh(), candidate.axis, interleave,
      convert.getBlockSizeAttr(), builder.getI32IntegerAttr(nullBlock),
      gathersAll ? builder.getUnitAttr() : UnitAttr());
  return blocks;
}

/// What has as many rows as the cache, and says so in front of `place`; null
/// where nothing does. Writes leave as many.
static Value findSameRows(Value cache, Operation *place,
                          DominanceInfo &dominance) {
  while (auto type = dyn_cast<RankedTensorType>(cache.getType())) {
    if (!type.isDynamicDim(0) || dominance.properlyDominates(cache, place))
      return cache;
    if (auto cast = cache.getDefiningOp<tensor::CastOp>())
      cache = cast.getSource();
    else if (auto write = cache.getDefiningOp<WriteRowsOp>())
      cache = write.getCache();
    else
      break;
  }
  return {};
}

/// Blocks that begin in one of the caches, as many as the largest has, in front
/// of the op; null where that is not known there.
Value Rewriter::findPool(const Blocks &blocks) {
  SmallVector<std::pair<Value, int64_t>> known;
  for (auto [cache, stride] : blocks.caches) {
    Value rows = findSameRows(cache, blocks.op, dominance);
    if (!rows)
      return {};
    known.emplace_back(rows, stride);
  }
  builder.setInsertionPoint(blocks.op);
  Location loc = blocks.op->getLoc();
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };
  int64_t least = 0;
  Value most;
  for (auto [cache, stride] : known) {
    auto type = cast<RankedTensorType>(cache.getType());
    if (!type.isDynamicDim(0)) {
      least = std::max<int64_t>(least,
                                llvm::divideCeil(type.getDimSize(0), stride));
      continue;
    }
    Value rows = tensor::DimOp::create(builder, loc, cache, 0);
    Value begun =
        arith::AddIOp::create(builder, loc, rows, constant(stride - 1));
    Value number =
        arith::DivUIOp::create(builder, loc, begun, constant(stride));
    most = most ? arith::MaxUIOp::create(builder, loc, most, number).getResult()
                : number;
  }
  if (!most)
    return constant(least);
  if (least == 0)
    return most;
  return arith::MaxUIOp::create(builder, loc, most, constant(least));
}

/// Blocks that no cache has are not gathered, as the form for decode steps
/// skips their keys.
void Rewriter::setPools() {
  for (auto &[key, blocks] : blocksOf)
    if (Value pool = findPool(blocks))
      blocks.op.getPoolMutable().assign(pool);
}

/// Whether the keys fit, and the step has prefill where that is asked for.
Value Rewriter::createGate(const Candidate &candidate, Value decodes) {
  GatherBlocksOp blocks = getBlocks(candidate).op;
  Location loc = blocks.getLoc();
  // Keys of every step that they fit in: none has prefill too little.
  if (step == DcpStep::Gather)
    decodes = arith::ConstantIndexOp::create(builder, loc, -1);
  Value starts = getStepLengths(candidate.expand).first;
  return GatherGateOp::create(builder, loc, builder.getI1Type(), starts,
                              blocks.getResult(2), decodes,
                              blocks.getMeshAttr(), candidate.axis,
                              blocks.getBlockSizeAttr(), IntegerAttr());
}

/// A step whose keys are not gathered has no chunks: whole rows are what ranks
/// that keep other keys can merge. So all rows are whole where keys do not fit.
Value Rewriter::gateChunks(ChunkSplitOp split, const Candidate &candidate) {
  Value wholeRows = split.getDecodes();
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(split);
  Value isGathered = createGate(candidate, wholeRows);
  Value chosen = arith::SelectOp::create(builder, split.getLoc(), isGathered,
                                         wholeRows, split.getRows());
  wholeRows.replaceUsesWithIf(chosen, [&](OpOperand &use) {
    return takesWholeRows(use.getOwner(), wholeRows);
  });
  return isGathered;
}

/// Whether keys are gathered. Where members have rows of their own, in each
/// step with chunks: no other way is right.
Value Rewriter::getGate(const Candidate &candidate) {
  Blocks &blocks = getBlocks(candidate);
  if (blocks.gate)
    return blocks.gate;
  OpBuilder::InsertionGuard guard(builder);
  ExpandRowsOp expand = candidate.expand;
  Location loc = expand.getLoc();
  if (candidate.chunks) {
    ChunkSplitOp split = getChunkSplit(candidate.op);
    Value isGathered;
    if (candidate.isBounded)
      isGathered = gateChunks(split, candidate);
    if (step == DcpStep::Gather)
      return blocks.gate = isGathered;
    builder.setInsertionPointAfter(split);
    Value tails = CountChunkRowsOp::create(
        builder, loc, builder.getIndexType(),
        ChunkPartAttr::get(builder.getContext(), ChunkPart::Tail),
        split.getQueryStart(), split.getDecodes(), split.getRows(),
        split.getMeshAttr(), candidate.chunks);
    return blocks.gate = arith::CmpIOp::create(
               builder, loc, arith::CmpIPredicate::sgt, tails,
               arith::ConstantIndexOp::create(builder, loc, 0));
  }
  builder.setInsertionPointAfter(blocks.op);
  Value decodes;
  if (step == DcpStep::Gate)
    decodes = CountDecodeRowsOp::create(builder, loc, builder.getIndexType(),
                                        getStepLengths(expand).first,
                                        expand.getSpeculativeTokensAttr());
  return blocks.gate = createGate(candidate, decodes);
}

GatheredSlotsOp Rewriter::createSlots(const Candidate &candidate,
                                      Value indices) {
  ConvertIndicesOp convert = candidate.convert;
  GatherBlocksOp blocks = getBlocks(candidate).op;
  return GatheredSlotsOp::create(
      builder, convert.getLoc(), convert->getResultTypes(), indices,
      blocks.getResult(1), blocks.getResult(2), convert.getReq(), ValueRange{},
      blocks.getMeshAttr(), candidate.axis, blocks.getInterleaveAttr(),
      blocks.getBlockSizeAttr());
}

GatheredSlotsOp Rewriter::getSlots(const Candidate &candidate) {
  ConvertIndicesOp convert = candidate.convert;
  GatherBlocksOp blocks = getBlocks(candidate).op;
  GatheredSlotsOp &slots = slotsOf[{convert, blocks}];
  if (slots)
    return slots;
  OpBuilder::InsertionGuard guard(builder);
  // Both dominate the attention, so one dominates the other.
  if (dominance.properlyDominates(blocks.getOperation(), convert))
    builder.setInsertionPoint(convert);
  else
    builder.setInsertionPointAfter(blocks);
  return slots = createSlots(candidate, convert.getIndices());
}

GatherKvStartOp Rewriter::createStart(const Candidate &candidate) {
  SparseMlaOp op = candidate.op;
  ConvertIndicesOp convert = candidate.convert;
  GatherBlocksOp blocks = getBlocks(candidate).op;
  return GatherKvStartOp::create(
      builder, op.getLoc(), KvGatherType::get(builder.getContext()),
      ValueRange{op.getKv()}, blocks.getResult(0), blocks.getResult(2),
      blocks.getMeshAttr(), candidate.axis, convert.getBlockSizeAttr(),
      convert.getBlockStrideRowsAttr(), TransportAttr());
}

/// The form for decode steps. Returns what replaces the op's results; null for
/// an LSE that is not used.
SmallVector<Value> Rewriter::createMerged(const Candidate &candidate,
                                          FilterIndicesOp filter) {
  SparseMlaOp op = candidate.op;
  AttendingRows rows{
      SmallVector<Value>(op.getQ()), createAllReq(candidate, op.getReq()),
      candidate.isCompacted ? Value()
                            : createAllRows(candidate, op.getTopkLength())};
  SmallVector<Value> values = attendOwnKeys(builder, op, getOwnKeys(candidate),
                                            rows, filter, needsLse(op));
  for (auto [value, result] : llvm::zip_equal(values, op->getResults()))
    if (value)
      value = castTo(builder, op.getLoc(), value, result.getType());
  return values;
}

/// The decode rows of a step in which keys are gathered, by the form for decode
/// steps. `indices` are those of all rows.
SmallVector<Value> Rewriter::createDecodeRows(const Candidate &candidate,
                                              Value indices, Value decodes) {
  SparseMlaOp op = candidate.op;
  ConvertIndicesOp convert = candidate.convert;
  Location loc = op.getLoc();
  auto take = [&](Value value) -> Value {
    return value ? sliceRows(builder, loc, value, builder.getIndexAttr(0),
                             decodes)
                 : value;
  };
  AttendingRows rows;
  for (Value part : op.getQ())
    rows.q.push_back(take(part));
  rows.req = take(op.getReq());
  if (!candidate.isCompacted)
    rows.topkLength = take(op.getTopkLength());
  OwnKeys keys = getOwnKeys(candidate);
  FilterIndicesOp filter = filterToOwnKeys(
      builder, loc, keys, take(indices),
      convert.getReq() == op.getReq() ? rows.req : take(convert.getReq()),
      withDynamicRows(convert->getResult(0).getType()), candidate.isCompacted);
  return attendOwnKeys(builder, op, keys, rows, filter, needsLse(op));
}

/// Leading rows of decode requests, of the rows that the op has.
Value Rewriter::createDecodes(const Candidate &candidate) {
  SparseMlaOp op = candidate.op;
  ExpandRowsOp expand = candidate.expand;
  Location loc = op.getLoc();
  Value decodes = CountDecodeRowsOp::create(
      builder, loc, builder.getIndexType(), getStepLengths(expand).first,
      expand.getSpeculativeTokensAttr());
  Value rows = tensor::DimOp::create(builder, loc, op.getQ().front(), 0);
  return arith::MinSIOp::create(builder, loc, decodes, rows);
}

/// The form for steps with prefill: the op itself over all keys, with its
/// slots among them. `keys` are null where none has attended them before.
SmallVector<Value> Rewriter::createGathered(const Candidate &candidate,
                                            GatherKvStartOp start, Value &keys,
                                            GatheredSlotsOp slots) {
  SparseMlaOp op = candidate.op;
  Value length = op.getTopkLength();
  if (candidate.takesCount)
    length = castTo(builder, op.getLoc(), slots->getResult(1),
                    op.getTopkLength().getType());
  Value ownSlots = castTo(builder, op.getLoc(), slots->getResult(0),
                          op.getSlots().getType());
  // Ranks have different numbers of decode rows in shards of the step's, and
  // none among tails.
  if (!combinesDecodeRows || hasTokenShards(op) || isOfTails(candidate.expand))
    return attendGathered(candidate, start, keys, op->getResultTypes(),
                          op.getQ(), ownSlots, op.getReq(), length);

  Location loc = op.getLoc();
  Value decodes = createDecodes(candidate);
  // While keys travel.
  SmallVector<Value> ofDecode =
      createDecodeRows(candidate, slots.getIndices(), decodes);
  Value rows = tensor::DimOp::create(builder, loc, op.getQ().front(), 0);
  Value others = arith::SubIOp::create(builder, loc, rows, decodes);
  auto take = [&](Value value) -> Value {
    return value ? sliceRows(builder, loc, value, decodes, others) : value;
  };
  SmallVector<Type> types;
  for (Type type : op->getResultTypes())
    types.push_back(withDynamicRows(type));
  SmallVector<Value> ofOthers = attendGathered(
      candidate, start, keys, types, llvm::map_to_vector(op.getQ(), take),
      take(ownSlots), take(op.getReq()), take(length));
  SmallVector<Value> values;
  for (auto [result, decode, other] :
       llvm::zip_equal(op->getResults(), ofDecode, ofOthers))
    values.push_back(decode ? castTo(builder, loc,
                                     joinRows(builder, {decode, other}),
                                     result.getType())
                            : Value());
  return values;
}

SmallVector<Value> Rewriter::attendGathered(const Candidate &candidate,
                                            GatherKvStartOp start, Value &keys,
                                            TypeRange types, ValueRange q,
                                            Value slots, Value req,
                                            Value length) {
  SparseMlaOp op = candidate.op;
  Location loc = op.getLoc();
  ShardingAttr sharding = op.getShardingAttr();
  auto kv = cast<RankedTensorType>(op.getKv().getType());
  if (!keys)
    keys =
        GatherKvFinishOp::create(
            builder, loc,
            TypeRange{RankedTensorType::get(
                {ShapedType::kDynamic, kv.getDimSize(1)}, kv.getElementType())},
            start.getHandle(), ValueRange{})
            ->getResult(0);
  auto attend = SparseMlaOp::create(
      builder, loc, types, q, keys, slots, req, length, op.getSink(),
      ValueRange{}, op.getScaleAttr(),
      ShardingAttr::get(builder.getContext(), sharding.getMesh(),
                        sharding.getHeads(), sharding.getOrder(),
                        sharding.getTokens()),
      op.getLseAttr(), op.getKvFormatAttr());
  return SmallVector<Value>(attend->getResults());
}

/// Both forms under the step's gate. Returns what replaces the results of each.
SmallVector<SmallVector<Value>> Rewriter::version(Group group) {
  Location loc = SparseMlaOp(group.back().op).getLoc();
  Value gate = getGate(group.front());
  SmallVector<SmallVector<Operation *>> indexOps;
  SmallVector<std::pair<unsigned, unsigned>> used;
  SmallVector<Type> types;
  for (auto [number, candidate] : llvm::enumerate(group)) {
    indexOps.push_back(getOwnIndexOps(candidate));
    for (OpResult result : SparseMlaOp(candidate.op)->getResults())
      if (!result.use_empty()) {
        used.emplace_back(number, result.getResultNumber());
        types.push_back(result.getType());
      }
  }
  auto branch =
      scf::IfOp::create(builder, loc, types, gate, /*withElseRegion=*/true);
  auto cloneIndices = [&](unsigned number) -> Value {
    IRMapping inBranch;
    for (Operation *indexOp : indexOps[number]) {
      builder.clone(*indexOp, inBranch);
      for (Operation *user : indexOp->getUsers())
        if (isa<TapOp>(user))
          builder.clone(*user, inBranch);
    }
    ConvertIndicesOp convert = group[number].convert;
    return inBranch.lookupOrDefault(convert.getIndices());
  };
  // The branches end by themselves where there is nothing to yield.
  auto yield = [&](ArrayRef<SmallVector<Value>> values) {
    SmallVector<Value> yields;
    for (auto [number, result] : used)
      yields.push_back(values[number][result]);
    if (!yields.empty())
      scf::YieldOp::create(builder, loc, yields);
  };
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  GatherKvStartOp start = createStart(group.front());
  // Of all, while keys travel.
  SmallVector<GatheredSlotsOp> slots;
  for (auto [number, candidate] : llvm::enumerate(group))
    slots.push_back(createSlots(candidate, cloneIndices(number)));
  Value keys;
  SmallVector<SmallVector<Value>> values;
  for (auto [candidate, own] : llvm::zip_equal(group, slots))
    values.push_back(createGathered(candidate, start, keys, own));
  yield(values);
  builder.setInsertionPointToStart(branch.elseBlock());
  values.clear();
  for (auto [number, candidate] : llvm::enumerate(group)) {
    FilterIndicesOp filter = createFilter(candidate, cloneIndices(number));
    values.push_back(createMerged(candidate, filter));
  }
  yield(values);

  for (auto [candidate, ops] : llvm::zip_equal(group, indexOps)) {
    replaced.insert(candidate.convert);
    replaced.insert(ops.begin(), ops.end());
  }
  for (SmallVector<Value> &results : values)
    results.assign(results.size(), Value());
  for (auto [place, result] : llvm::zip_equal(used, branch.getResults()))
    values[place.first][place.second] = result;
  return values;
}

/// Where a gather may start that ends before `op`: behind what its operands
/// come from, and behind other attentions and exchanges, whose rows lie in
/// inboxes that are not read any more when it starts.
static Operation *findEarliestStart(Operation *op, ArrayRef<Value> operands) {
  auto staysBefore = [&](Operation *other) {
    bool defines = llvm::any_of(other->getResults(), [&](Value result) {
      return llvm::is_contained(operands, result);
    });
    if (defines)
      return true;
    return mayExchange(other);
  };
  while (Operation *previous = op->getPrevNode()) {
    if (staysBefore(previous))
      break;
    op = previous;
  }
  return op;
}

/// What replaces the results of each, where the builder stands: at the last.
SmallVector<SmallVector<Value>> Rewriter::create(Group group) {
  const Candidate &first = group.front();
  switch (first.form) {
  case DcpStep::Decode:
    return {createMerged(first, getFilter(first))};
  case DcpStep::Gate:
    return version(group);
  case DcpStep::Gather:
    break;
  }
  SparseMlaOp op = first.op;
  GatherBlocksOp blocks = getBlocks(first).op;
  OpBuilder::InsertPoint last = builder.saveInsertionPoint();
  builder.setInsertionPoint(findEarliestStart(
      op, {op.getKv(), blocks.getResult(0), blocks.getResult(2)}));
  GatherKvStartOp start = createStart(first);
  builder.restoreInsertionPoint(last);
  Value keys;
  SmallVector<SmallVector<Value>> values;
  for (const Candidate &candidate : group)
    values.push_back(
        createGathered(candidate, start, keys, getSlots(candidate)));
  return values;
}

void Rewriter::rewrite(Group group) {
  builder.setInsertionPoint(SparseMlaOp(group.back().op));
  SmallVector<SmallVector<Value>> values = create(group);
  for (auto [candidate, replacements] : llvm::zip_equal(group, values)) {
    SparseMlaOp op = candidate.op;
    replaced.insert(candidate.convert);
    for (auto [result, value] : llvm::zip_equal(op->getResults(), replacements))
      if (value)
        result.replaceAllUsesWith(value);
    op.erase();
  }
}

void Rewriter::remark(const Candidate &candidate) {
  SparseMlaOp op = candidate.op;
  int64_t ranks = getNumKvRanks(op, op.getShardingAttr());
  InFlightDiagnostic diag = emitRemark(op.getLoc()) << "attention runs on ";
  if (candidate.form == DcpStep::Decode) {
    diag << "own keys of " << candidate.axis << " (" << ranks
         << " ranks) with their ";
    if (hasTokenShards(op))
      diag << "rows";
    else
      diag << op.getNumHeads() * candidate.members.ranks << " heads";
    return;
  }
  diag << "keys gathered over " << candidate.axis << " (" << ranks << " ranks)";
  if (candidate.form == DcpStep::Gate)
    diag << (step == DcpStep::Gate ? " in steps with prefill, on own keys in "
                                     "others"
                                   : " where they fit, on own keys elsewhere");
  if (!candidate.isBounded)
    diag
        << "; its block table, starts or lengths are not there in front of the "
           "shardq.chunk_split of its rows, so keys that do not fit are an "
           "error at run time";
}

/// What was replaced and nothing uses any more, with casts and taps of it.
static void eraseDead(Operation *op, bool withTaps) {
  if (withTaps)
    eraseTaps(op);
  for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
    if (isa<tensor::CastOp>(user))
      eraseDead(user, withTaps);
  if (op->use_empty())
    op->erase();
}

LogicalResult Rewriter::run() {
  SmallVector<Candidate> candidates;
  bool ok = true;
  module.walk([&](SparseMlaOp op) {
    if (getNumKvRanks(op, op.getShardingAttr()) == 1)
      return;
    FailureOr<Candidate> candidate = match(op);
    ok &= succeeded(candidate);
    if (succeeded(candidate))
      candidates.push_back(*candidate);
  });
  if (!ok)
    return failure();
  if (remarks)
    for (const Candidate &candidate : candidates)
      remark(candidate);
  for (Group rest = candidates; !rest.empty();) {
    unsigned size = 1;
    while (size < rest.size() && canJoin(rest.take_front(size), rest[size]))
      ++size;
    rewrite(rest.take_front(size));
    rest = rest.drop_front(size);
  }
  setPools();
  // Users before what they use.
  SmallVector<Operation *> dead(replaced.begin(), replaced.end());
  for (Operation *op : dead)
    eraseDead(op, !isa<ConvertIndicesOp>(op));
  return success();
}

namespace {

struct ShardQDcpPass : public shardq::impl::ShardQDcpBase<ShardQDcpPass> {
  using ShardQDcpBase::ShardQDcpBase;

  void runOnOperation() override {
    if (paddedHeads < 0 || paddedHeads > (1 << 24)) {
      emitError(getOperation().getLoc(), "shardq-dcp: ")
          << "padded-heads is " << int64_t(paddedHeads)
          << ", expected 0 to 2^24";
      return signalPassFailure();
    }
    if (failed(Rewriter(getOperation(), step, decodeRows, blocks, nullBlock,
                        paddedHeads, remarks)
                   .run()))
      signalPassFailure();
  }
};

} // namespace
