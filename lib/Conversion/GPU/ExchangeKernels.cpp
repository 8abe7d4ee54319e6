//===- ExchangeKernels.cpp - Push, signal, wait ---------------------------===//
//
// What a flag means is the device library's business, runtime/device. Here is
// which rows go where.
//
//===----------------------------------------------------------------------===//

#include "Copies.h"
#include "DeviceValues.h"
#include "GroupKernels.h"

using namespace mlir;
using namespace mlir::shardq;

KernelShape mlir::shardq::getExchangeShape(Operation *op) {
  if (auto push = dyn_cast<PushOp>(op); push && !push.isByOffsets())
    return push.getDirection() == Direction::GatherRows
               ? getRowsPushShape(push)
               : getGroupPushShape(push);
  KernelShape shape;
  shape.threads = 256;
  // Lanes signal and wait; the others poison an inbox, should it come to it.
  if (!isa<PushOp>(op)) {
    shape.maxBlocks = 1;
    shape.waitsForPeers = true;
    return shape;
  }
  // Rows are cut into parts of 4 to 9 pieces of 16 bytes a thread. A block that
  // stores little starts for little, and few blocks end late: two on each
  // multiprocessor of the largest card, then one for a row, then some waves of
  // them, so that the last one to end does not leave the links idle for long.
  shape.blocksPerRow = 8;
  shape.fewBlocks = 132 * 2;
  shape.oneOf = 8;
  shape.maxBlocks = 132 * 16;
  return shape;
}

Value mlir::shardq::callDevice(KernelBuilder &b, StringRef name, Type result,
                               ValueRange arguments) {
  auto call = LLVM::CallOp::create(b, result ? TypeRange{result} : TypeRange{},
                                   name, arguments);
  return result ? call.getResult() : Value();
}

static Value i64(KernelBuilder &b, int64_t value) {
  return arith::ConstantIntOp::create(b, value, 64);
}
static Value toI64(KernelBuilder &b, Value index) {
  return b.fromIndex(index, b.getI64Type());
}
static LLVM::LLVMPointerType pointerType(KernelBuilder &b, unsigned space = 0) {
  return LLVM::LLVMPointerType::get(b.getContext(), space);
}

//===----------------------------------------------------------------------===//
// Push
//===----------------------------------------------------------------------===//

namespace {

/// Heads of one row in one buffer.
struct HeadRun {
  Value address;    // of the first, !llvm.ptr<1>
  Value headStride; // bytes
  int64_t width;    // bytes of one head
};

class PushKernel {
public:
  /// `carry` is null where rows go straight to peers; else `args` end with its
  /// buffer.
  PushKernel(KernelBuilder &b, PushOp op, ValueRange args,
             const CarriedRows *carry);
  void emit();

private:
  /// What happens to a row: the rank at the other end, where the row stands
  /// among those of the rank that it is sharded to, and in the step.
  struct Place {
    Value peer, groupRow, row, part;
  };
  using OnPlace = llvm::function_ref<void(const Place &)>;

  /// What a row's heads are cut into for copying.
  struct Pieces {
    int64_t unit = 0;  // bytes
    int64_t count = 0; // of a whole row
    int64_t unroll = 0;
  };

  void overTasks(Value numTasks, llvm::function_ref<void(Value, Value)> body);
  void overTokens(Value rows, Value held, OnPlace body);
  void overOwnTokens(Value rows, Value held, OnPlace body);
  void checkGroup(Value own);
  void pushToTokens();
  void pushToHeads();
  void unpackFromHeads();
  void unpackFromTokens();
  HeadRun getTarget(HeadRun own, const Place &place);
  HeadRun getCarried(const Place &place);
  HeadRun getRun(Value buffer, Value row, Value head);
  void copyHeads(ArrayRef<HeadRun> from, HeadRun to, Value part);
  Value getOffset(Value group);
  Value getRank(Value coordinateOfPeer);

  KernelBuilder &b;
  PushOp op;
  const CarriedRows *carry;
  ValueRange sources;
  Value ids, offsets, decodes, inbox, me, coordinate, device;
  Value box; // outbox or landing
  int64_t ranks, stride, heads, elementBytes;
  bool hasColumns;
  int64_t rowWidth = 0; // bytes of one head, all sources
  int64_t numParts = 1; // blocks that share a row
  Pieces wide, narrow;  // of 16 bytes, of an element
  Value aligned;        // i1: the wide ones will do
};

} // namespace

PushKernel::PushKernel(KernelBuilder &b, PushOp op, ValueRange args,
                       const CarriedRows *carry)
    : b(b), op(op), carry(carry) {
  unsigned numSources = op.getSources().size();
  sources = args.take_front(numSources);
  args = args.drop_front(numSources);
  ids = args[0];
  offsets = args[1];
  decodes = args[2];
  inbox = args[3];
  me = args[4];
  coordinate = args[5];
  device = toPointer(b, b.getLoc(), args[6]);
  if (carry)
    box = args[7];
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  ranks = over.axis.getSize();
  stride = over.mesh.getStride(over.axis);
  auto type = cast<MemRefType>(inbox.getType());
  bool toTokens = op.getDirection() == Direction::HeadsToTokens;
  // Heads that one row carries from one rank to another.
  heads = type.getDimSize(1) / (toTokens ? ranks : 1);
  elementBytes = type.getElementTypeBitWidth() / 8;
  hasColumns = type.getRank() == 3;

  bool isWhole = true;
  for (Value source : sources) {
    auto sourceType = cast<MemRefType>(source.getType());
    int64_t width = elementBytes * (hasColumns ? sourceType.getDimSize(2) : 1);
    isWhole &= width % 16 == 0;
    rowWidth += width;
  }
  narrow = {elementBytes, heads * rowWidth / elementBytes, 4};
  if (!isWhole)
    return;
  wide = {16, heads * rowWidth / 16, 4};
  // Short rows in one go; long ones in parts that come out even, if any do.
  int64_t perThread = llvm::divideCeil(wide.count, b.numThreads());
  wide.unroll = std::min<int64_t>(perThread, 4);
  for (int64_t unroll : {9, 8, 7, 6, 5})
    if (perThread > 4 && perThread % unroll == 0) {
      wide.unroll = unroll;
      break;
    }
  numParts = llvm::divideCeil(perThread, wide.unroll);
}

Value PushKernel::getRank(Value coordinateOfPeer) {
  return b.add(me, b.mul(b.sub(coordinateOfPeer, coordinate), b.index(stride)));
}

/// Groups held inside `ids`, whatever the operands say.
Value PushKernel::getOffset(Value group) {
  Value offset = b.toIndex(b.load(offsets, group));
  return b.max(b.index(0), b.min(offset, b.dim(ids, 0)));
}

HeadRun PushKernel::getRun(Value buffer, Value row, Value head) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<Value> at{row, head};
  if (hasColumns)
    at.push_back(b.index(0));
  auto metadata = memref::ExtractStridedMetadataOp::create(b, buffer);
  Value headStride = b.mul(metadata.getStrides()[1], b.index(elementBytes));
  int64_t width = hasColumns ? type.getDimSize(2) : 1;
  return {b.address(buffer, at), headStride, width * elementBytes};
}

/// Shares the heads' bytes among the block: straight through, without a loop,
/// `unroll` pieces a thread.
void PushKernel::copyHeads(ArrayRef<HeadRun> from, HeadRun to, Value part) {
  auto copy = [&](const Pieces &pieces) {
    Value perHead = b.index(rowWidth / pieces.unit);
    auto split = [&](Value chunk) {
      Value head = arith::DivUIOp::create(b, chunk, perHead);
      Value inside = arith::RemUIOp::create(b, chunk, perHead);
      return std::pair(head, b.mul(inside, b.index(pieces.unit)));
    };
    copyChunks(
        b, pieces.count, pieces.unit,
        [&](Value chunk) {
          auto [head, inside] = split(chunk);
          Value address;
          int64_t begin = 0;
          for (const HeadRun &run : from) {
            Value offset = b.add(b.mul(head, run.headStride),
                                 b.sub(inside, b.index(begin)));
            Value here = b.advance(run.address, offset);
            address = address ? b.select(b.lessEqual(b.index(begin), inside),
                                         here, address)
                              : here;
            begin += run.width;
          }
          return address;
        },
        [&](Value chunk) {
          auto [head, inside] = split(chunk);
          return b.advance(to.address,
                           b.add(b.mul(head, to.headStride), inside));
        },
        part, numParts, pieces.unroll);
  };
  if (wide.count == 0)
    return copy(narrow);
  b.when(aligned, [&] { copy(wide); }, [&] { copy(narrow); });
}

Value mlir::shardq::toPeer(KernelBuilder &b, Value address, Value peerRank,
                           Value device) {
  Value generic = LLVM::AddrSpaceCastOp::create(b, pointerType(b), address);
  Value theirs = callDevice(b, "shardq_device_peer", pointerType(b),
                            {device, generic, toI64(b, peerRank)});
  return LLVM::AddrSpaceCastOp::create(b, pointerType(b, 1), theirs);
}

/// Runs `body(task, part)` for every part of every task, in order.
void PushKernel::overTasks(Value numTasks,
                           llvm::function_ref<void(Value, Value)> body) {
  Value parts = b.index(numParts);
  b.overBlocks(b.index(0), b.mul(numTasks, parts), [&](Value index) {
    body(arith::DivUIOp::create(b, index, parts),
         arith::RemUIOp::create(b, index, parts));
  });
}

/// All tokens, each with the rank that it is sharded to: those whose row of the
/// step is below `rows`, and which are among the first `held` of their rank.
void PushKernel::overTokens(Value rows, Value held, OnPlace body) {
  Value zero = b.index(0), one = b.index(1), count = b.index(ranks);
  Value total = getOffset(count);
  // Tokens of rank+1 first, then rank+2, ...: at any time each rank is written
  // by one other. Own tokens come last.
  Value next = arith::RemUIOp::create(b, b.add(coordinate, one), count);
  Value first = getOffset(next);
  overTasks(total, [&](Value task, Value part) {
    Value token = b.add(task, first);
    token = b.select(b.less(token, total), token, b.sub(token, total));
    Value peer = zero;
    for (int64_t group = 1; group < ranks; ++group)
      peer = b.select(b.lessEqual(getOffset(b.index(group)), token),
                      b.index(group), peer);
    Value groupRow = b.sub(token, getOffset(peer));
    Value row = b.add(decodes, b.toIndex(b.load(ids, token)));
    Value known =
        b.both(b.inRange(row, zero, rows), b.inRange(groupRow, zero, held));
    b.when(known, [&] { body({peer, groupRow, row, part}); });
  });
}

/// The tokens that are sharded to this rank, once with each rank; of those the
/// ones that overTokens would take.
void PushKernel::overOwnTokens(Value rows, Value held, OnPlace body) {
  Value zero = b.index(0), one = b.index(1), count = b.index(ranks);
  Value begin = getOffset(coordinate);
  Value own = b.max(zero, b.sub(getOffset(b.add(coordinate, one)), begin));
  overTasks(b.mul(own, count), [&](Value task, Value part) {
    Value turn = arith::DivUIOp::create(b, task, own);
    Value groupRow = arith::RemUIOp::create(b, task, own);
    Value peer =
        arith::RemUIOp::create(b, b.add(b.add(coordinate, one), turn), count);
    Value row = b.add(decodes, b.toIndex(b.load(ids, b.add(begin, groupRow))));
    Value known = b.both(b.inRange(row, zero, rows), b.less(groupRow, held));
    b.when(known, [&] { body({peer, groupRow, row, part}); });
  });
}

/// A row in the outbox or the landing place: `rows` for each rank.
HeadRun PushKernel::getCarried(const Place &place) {
  Value row = b.add(b.mul(place.peer, b.index(carry->rows)), place.groupRow);
  return getRun(box, row, b.index(0));
}

/// Where a row for `place.peer` goes that belongs at `own` of its inbox.
HeadRun PushKernel::getTarget(HeadRun own, const Place &place) {
  if (!carry) {
    own.address = toPeer(b, own.address, getRank(place.peer), device);
    return own;
  }
  HeadRun carried = getCarried(place);
  Value isOwn = b.equal(place.peer, coordinate);
  return {b.select(isOwn, own.address, carried.address),
          b.select(isOwn, own.headStride, carried.headStride), own.width};
}

void PushKernel::pushToTokens() {
  Value zero = b.index(0), rows;
  // The parts of a row may be buffers of different rows.
  for (Value source : sources)
    rows = rows ? b.min(rows, b.dim(source, 0)) : b.dim(source, 0);
  overTokens(rows, b.index(op.getCapacity()), [&](const Place &place) {
    SmallVector<HeadRun> from;
    for (Value source : sources)
      from.push_back(getRun(source, place.row, zero));
    HeadRun to =
        getRun(inbox, place.groupRow, b.mul(coordinate, b.index(heads)));
    copyHeads(from, getTarget(to, place), place.part);
  });
}

void PushKernel::pushToHeads() {
  Value source = sources[0];
  Value rows = b.min(b.index(op.getCapacity()), b.dim(inbox, 0));
  Value held = b.dim(source, 0);
  if (carry)
    held = b.min(held, b.index(carry->rows));
  overOwnTokens(rows, held, [&](const Place &place) {
    HeadRun from =
        getRun(source, place.groupRow, b.mul(place.peer, b.index(heads)));
    HeadRun to = getRun(inbox, place.row, b.index(0));
    copyHeads(from, getTarget(to, place), place.part);
  });
}

/// What was sent by token comes by rank, and the other way round: the loops
/// change places.
void PushKernel::unpackFromHeads() {
  Value held = b.min(b.index(op.getCapacity()), b.dim(inbox, 0));
  overOwnTokens(b.dim(sources[0], 0), held, [&](const Place &place) {
    Value isOwn = b.equal(place.peer, coordinate);
    b.when(b.negate(isOwn), [&] {
      HeadRun to =
          getRun(inbox, place.groupRow, b.mul(place.peer, b.index(heads)));
      copyHeads(getCarried(place), to, place.part);
    });
  });
}

void PushKernel::unpackFromTokens() {
  Value rows = b.min(b.index(op.getCapacity()), b.dim(inbox, 0));
  overTokens(rows, b.index(carry->rows), [&](const Place &place) {
    Value isOwn = b.equal(place.peer, coordinate);
    b.when(b.negate(isOwn), [&] {
      copyHeads(getCarried(place), getRun(inbox, place.row, b.index(0)),
                place.part);
    });
  });
}

/// Records rows that are sharded to this rank where the type of the inbox says
/// that there are others: only the device knows how many there are.
void PushKernel::checkGroup(Value own) {
  auto type = cast<MemRefType>(inbox.getType());
  if (type.isDynamicDim(0))
    return;
  Value expected = i64(b, type.getDimSize(0)), found = toI64(b, own);
  Value first =
      b.both(b.equal(b.block(), b.index(0)), b.equal(b.thread(), b.index(0)));
  b.when(b.both(first, b.negate(b.equal(found, expected))), [&] {
    callDevice(b, "shardq_device_expect", {}, {device, expected, found});
  });
}

void PushKernel::emit() {
  bool toTokens = op.getDirection() == Direction::HeadsToTokens;
  bool isUnpack = carry && carry->isLanding;
  Value admitted;
  if (!isUnpack) {
    auto type = cast<MemRefType>(inbox.getType());
    int64_t rowBytes = elementBytes;
    for (int64_t size : type.getShape().drop_front())
      rowBytes *= size;
    Value rows = b.dim(ids, 0);
    if (toTokens) {
      rows = b.sub(getOffset(b.add(coordinate, b.index(1))),
                   getOffset(coordinate));
      checkGroup(rows);
    }
    admitted =
        callDevice(b, "shardq_device_admit", b.getI32Type(),
                   {device, b.i32(op.getChannel()), b.i32(op.getExchange()),
                    toI64(b, rows), i64(b, rowBytes)});
  }
  Value ok = callDevice(b, "shardq_device_ok", b.getI32Type(), {device});
  Value go = b.equal(ok, b.i32(1));
  if (admitted)
    go = b.both(b.equal(admitted, b.i32(1)), go);
  b.when(go, [&] {
    aligned = isAligned16(b, inbox);
    for (Value source : sources)
      aligned = b.both(aligned, isAligned16(b, source));
    if (carry)
      aligned = b.both(aligned, isAligned16(b, box));
    if (isUnpack)
      return toTokens ? unpackFromHeads() : unpackFromTokens();
    return toTokens ? pushToTokens() : pushToHeads();
  });
}

//===----------------------------------------------------------------------===//
// Flags
//===----------------------------------------------------------------------===//

/// Rows that each rank of the group is sent, or sends: an array of i64, after a
/// barrier.
template <typename OpTy>
static Value countRows(KernelBuilder &b, OpTy op, bool isSent, int64_t ranks,
                       Value offsets, Value coordinate) {
  // heads_to_tokens fills each owner's inbox; tokens_to_heads spreads own rows.
  bool byPeer = (op.getDirection() == Direction::HeadsToTokens) == isSent;
  Value rows = b.shared({ranks}, b.getI64Type());
  b.overThreads(b.index(0), b.index(ranks), [&](Value peer) {
    // Without offsets, `offsets` is the rows that each sends to each.
    if (!op.isByOffsets())
      return b.store(toI64(b, offsets), rows, peer);
    Value group = byPeer ? peer : coordinate;
    Value count = b.sub(b.load(offsets, b.add(group, b.index(1))),
                        b.load(offsets, group));
    b.store(arith::ExtSIOp::create(b, b.getI64Type(), count), rows, peer);
  });
  return LLVM::AddrSpaceCastOp::create(b, pointerType(b),
                                       b.address(rows, b.index(0)));
}

/// `isSent` for each array of row counts that the function takes: of rows that
/// this rank sends, else of those that it is sent.
template <typename OpTy>
static void emitFlag(KernelBuilder &b, OpTy op, StringRef function,
                     ArrayRef<bool> isSent, ValueRange args,
                     std::optional<bool> ahead = std::nullopt) {
  Value offsets = args[0], me = args[1], coordinate = args[2];
  Value device = toPointer(b, b.getLoc(), args[3]);
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  int64_t ranks = over.axis.getSize();
  SmallVector<Value> counts;
  for (bool sent : isSent)
    counts.push_back(countRows(b, op, sent, ranks, offsets, coordinate));
  b.barrier();
  Value stride = b.index(over.mesh.getStride(over.axis));
  Value first = b.sub(me, b.mul(coordinate, stride));
  SmallVector<Value> arguments{
      device,          b.i32(op.getChannel()), b.i32(op.getExchange()),
      toI64(b, first), toI64(b, stride),       i64(b, ranks)};
  arguments.append(counts);
  if (ahead)
    arguments.push_back(b.i32(*ahead));
  callDevice(b, function, Type(), arguments);
}

void mlir::shardq::emitFlagsKernel(KernelBuilder &b, SignalOp signal,
                                   ValueRange args, bool ahead) {
  emitFlag(b, signal, "shardq_device_exchange", {true, false}, args, ahead);
}

void mlir::shardq::emitAnnounceKernel(KernelBuilder &b, SignalOp signal,
                                      ValueRange args) {
  emitFlag(b, signal, "shardq_device_announce", {true, false}, args);
}

static void emitPushKernel(KernelBuilder &b, PushOp push, ValueRange args,
                           const CarriedRows *carry) {
  if (push.isByOffsets())
    return PushKernel(b, push, args, carry).emit();
  if (push.getDirection() == Direction::GatherRows)
    return emitRowsPushKernel(b, push, args, carry);
  emitGroupPushKernel(b, push, args, carry);
}

void mlir::shardq::emitCarriedKernel(KernelBuilder &b, PushOp push,
                                     const CarriedRows &carry,
                                     ValueRange args) {
  emitPushKernel(b, push, args, &carry);
}

void mlir::shardq::emitExchangeKernel(KernelBuilder &b, Operation *op,
                                      ValueRange args) {
  if (auto push = dyn_cast<PushOp>(op))
    return emitPushKernel(b, push, args, nullptr);
  if (auto signal = dyn_cast<SignalOp>(op))
    return emitFlag(b, signal, "shardq_device_signal", true, args);
  emitFlag(b, cast<WaitOp>(op), "shardq_device_wait", false, args);
}
