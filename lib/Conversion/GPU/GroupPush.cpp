//===- GroupPush.cpp - Heads of all rows to or from a group ---------------===//
//
// gather_heads and scatter_heads: from every member, of every row, a block of
// heads to every member; scatter_rows: all heads of its rows. No split says
// whose a row is.
//
//===----------------------------------------------------------------------===//

#include "Copies.h"
#include "GroupKernels.h"

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kMaxBlocks = 132 * 16;
/// Pieces of a thread in flight. A decode step has few rows, so blocks are to
/// be many rather than long.
static constexpr int64_t kMaxUnroll = 4;
/// One for each multiprocessor.
static constexpr int64_t kFewBlocks = 132;

namespace {

/// What a block of heads is cut into for copying.
struct Pieces {
  int64_t unit = 0;    // bytes
  int64_t perHead = 0; // pieces
  int64_t count = 0;   // of all heads
  int64_t unroll = 1;
  int64_t parts = 1; // blocks that share the heads
};

/// Static facts of a push.
struct Geometry {
  explicit Geometry(PushOp op);

  int64_t ranks, stride;
  int64_t heads; // that travel from one rank to another
  int64_t elementBytes;
  int64_t values; // elements of a head, all sources, without the LSE
  int64_t width;  // with it
  bool isGather, isByRows;
  int64_t threads;
  Pieces wide;   // of 16 bytes, where heads consist of them
  Pieces fine;   // the same, one for a thread
  Pieces narrow; // of an element

  int64_t fewRows() const;
};

} // namespace

static Pieces cut(int64_t heads, int64_t width, int64_t unit, int64_t threads,
                  int64_t unroll) {
  Pieces pieces{unit, width / unit, heads * (width / unit), unroll};
  pieces.parts = llvm::divideCeil(pieces.count, threads * unroll);
  return pieces;
}

/// How many threads, with how many pieces each, share pieces without a rest. If
/// none can, a piece each, with as little idle as there can be: stores that
/// have a condition draw their loads behind it, one after the other.
static std::pair<int64_t, int64_t> shareEvenly(int64_t count) {
  for (int64_t unroll = kMaxUnroll; unroll > 1; --unroll)
    for (int64_t threads : {128, 96, 160, 192, 224, 256})
      if (count % (threads * unroll) == 0)
        return {threads, unroll};
  int64_t best = kWarp, least = count;
  for (int64_t threads : {128, 160, 192, 224, 256, 96, 64, 32})
    if (int64_t idle = llvm::alignTo(count, threads) - count; idle < least) {
      best = threads;
      least = idle;
    }
  return {best, 1};
}

Geometry::Geometry(PushOp op) {
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  ranks = over.axis.getSize();
  stride = over.mesh.getStride(over.axis);
  isGather = op.getDirection() == Direction::GatherHeads;
  isByRows = op.getDirection() == Direction::ScatterRows;
  auto inbox = cast<MemRefType>(op.getInbox().getType());
  // The inbox of a gather may have room for more.
  heads = isGather
              ? cast<MemRefType>(op.getSources()[0].getType()).getDimSize(1)
              : inbox.getDimSize(1);
  elementBytes = inbox.getElementTypeBitWidth() / 8;
  width = inbox.getDimSize(2);
  bool hasLse = !isGather && op.getSources().size() == 2;
  values = width - (hasLse ? kLseBytes / elementBytes : 0);
  bool isWhole = values * elementBytes % 16 == 0;
  if (isGather)
    for (Value source : op.getSources())
      isWhole &= cast<MemRefType>(source.getType()).getDimSize(2) *
                     elementBytes % 16 ==
                 0;
  int64_t bytes = width * elementBytes;
  auto [even, unroll] = shareEvenly(heads * (isWhole ? bytes / 16 : width));
  threads = even;
  narrow =
      cut(heads, bytes, elementBytes, threads, isWhole ? kMaxUnroll : unroll);
  if (isWhole) {
    wide = cut(heads, bytes, 16, threads, unroll);
    fine = cut(heads, bytes, 16, threads, 1);
  }
}

/// Rows that do not fill the card: blocks are many rather than long. 0 where
/// blocks are as short as can be.
int64_t Geometry::fewRows() const {
  if (wide.unroll <= 1)
    return 0;
  return kFewBlocks / (ranks * fine.parts);
}

KernelShape mlir::shardq::getGroupPushShape(PushOp op) {
  Geometry geometry(op);
  const Pieces &pieces = geometry.wide.count ? geometry.wide : geometry.narrow;
  KernelShape shape;
  shape.threads = geometry.threads;
  shape.blocksPerRow = geometry.ranks * pieces.parts;
  shape.maxBlocks = kMaxBlocks;
  shape.leastBlocks = std::max<int64_t>(1, geometry.fewRows() * geometry.ranks *
                                               geometry.fine.parts);
  return shape;
}

namespace {

class GroupPush {
public:
  GroupPush(KernelBuilder &b, PushOp op, ValueRange args,
            const CarriedRows *carry);
  void emit();

private:
  /// One row's block of heads for, or from, the member at `peer`.
  struct Place {
    Value row, peer, part;
  };
  /// Address of a head, and bytes from one head to the next.
  struct HeadRun {
    Value address, headStride;
  };

  void emitRows(const Pieces &pieces);
  void emitWide();
  void copyPlace(const Pieces &pieces, const Place &place);
  /// Head and piece of it, computed in 32 bits.
  std::pair<Value, Value> split(const Pieces &pieces, Value piece);
  Value loadGathered(const Pieces &pieces, const Place &place, Value piece);
  Value loadScattered(const Pieces &pieces, const Place &place, Value piece);
  HeadRun getRun(Value buffer, Value row, Value head);
  HeadRun getInboxRun(Value row, Value member);
  HeadRun getTarget(const Place &place);
  Value pieceAt(const Pieces &pieces, const HeadRun &run, Value piece);

  KernelBuilder &b;
  PushOp op;
  const CarriedRows *carry;
  Geometry shape;
  ValueRange sources;
  Value inbox, me, coordinate, device;
  Value box;  // outbox or landing
  Value rows; // for each member
};

} // namespace

GroupPush::GroupPush(KernelBuilder &b, PushOp op, ValueRange args,
                     const CarriedRows *carry)
    : b(b), op(op), carry(carry), shape(op) {
  unsigned numSources = op.getSources().size();
  sources = args.take_front(numSources);
  inbox = args[numSources];
  me = args[numSources + 1];
  coordinate = args[numSources + 2];
  device = toPointer(b, b.getLoc(), args[numSources + 3]);
  if (carry)
    box = args[numSources + 4];
  // The parts of a row may be buffers of different rows.
  for (Value source : sources)
    rows = rows ? b.min(rows, b.dim(source, 0)) : b.dim(source, 0);
  if (shape.isByRows)
    rows = arith::DivUIOp::create(b, rows, b.index(shape.ranks));
}

GroupPush::HeadRun GroupPush::getRun(Value buffer, Value row, Value head) {
  auto metadata = memref::ExtractStridedMetadataOp::create(b, buffer);
  return {b.address(buffer, {row, head, b.index(0)}),
          b.mul(metadata.getStrides()[1], b.index(shape.elementBytes))};
}

/// Where `member`'s heads of a row stand in an inbox.
GroupPush::HeadRun GroupPush::getInboxRun(Value row, Value member) {
  if (shape.isGather)
    return getRun(inbox, row, b.mul(member, b.index(shape.heads)));
  return getRun(inbox, b.add(b.mul(member, rows), row), b.index(0));
}

/// Where own heads of a row go.
GroupPush::HeadRun GroupPush::getTarget(const Place &place) {
  HeadRun own = getInboxRun(place.row, coordinate);
  if (!carry) {
    Value steps = b.mul(b.sub(place.peer, coordinate), b.index(shape.stride));
    own.address = toPeer(b, own.address, b.add(me, steps), device);
    return own;
  }
  Value row = b.add(b.mul(place.peer, b.index(carry->rows)), place.row);
  HeadRun carried = getRun(box, row, b.index(0));
  Value isOwn = b.equal(place.peer, coordinate);
  return {b.select(isOwn, own.address, carried.address),
          b.select(isOwn, own.headStride, carried.headStride)};
}

Value GroupPush::pieceAt(const Pieces &pieces, const HeadRun &run,
                         Value piece) {
  auto [head, inside] = split(pieces, piece);
  return b.advance(run.address, b.add(b.mul(head, run.headStride),
                                      b.mul(inside, b.index(pieces.unit))));
}

std::pair<Value, Value> GroupPush::split(const Pieces &pieces, Value piece) {
  Value number = b.toI32(piece), perHead = b.i32(pieces.perHead);
  return {b.extend(arith::DivUIOp::create(b, number, perHead)),
          b.extend(arith::RemUIOp::create(b, number, perHead))};
}

static Value loadPiece(KernelBuilder &b, const Pieces &pieces, Value address) {
  if (pieces.unit == 16)
    return b.load16(address);
  return b.loadAt(b.getIntegerType(8 * pieces.unit), address);
}

/// From the part of the query that has it.
Value GroupPush::loadGathered(const Pieces &pieces, const Place &place,
                              Value piece) {
  auto [head, inPieces] = split(pieces, piece);
  Value inside = b.mul(inPieces, b.index(pieces.unit));
  Value address;
  int64_t begin = 0;
  for (Value source : sources) {
    HeadRun run = getRun(source, place.row, b.index(0));
    Value offset =
        b.add(b.mul(head, run.headStride), b.sub(inside, b.index(begin)));
    Value here = b.advance(run.address, offset);
    address = address
                  ? b.select(b.lessEqual(b.index(begin), inside), here, address)
                  : here;
    begin +=
        cast<MemRefType>(source.getType()).getDimSize(2) * shape.elementBytes;
  }
  return loadPiece(b, pieces, address);
}

/// From the partial output, or the LSE behind it, where there is one. Both are
/// loaded, so that no branch stands between the loads of several pieces.
Value GroupPush::loadScattered(const Pieces &pieces, const Place &place,
                               Value piece) {
  auto [head, inside] = split(pieces, piece);
  int64_t numValues = shape.values * shape.elementBytes / pieces.unit;
  Value isValue = b.less(inside, b.index(numValues));
  Value first = b.index(0), row = place.row;
  if (shape.isByRows)
    row = b.add(b.mul(place.peer, rows), row);
  else
    first = b.mul(place.peer, b.index(shape.heads));
  HeadRun run = getRun(sources[0], row, first);
  if (shape.values == shape.width)
    return loadPiece(
        b, pieces,
        b.advance(run.address, b.add(b.mul(head, run.headStride),
                                     b.mul(inside, b.index(pieces.unit)))));
  Value known = b.min(inside, b.index(numValues - 1));
  Value value = loadPiece(
      b, pieces,
      b.advance(run.address, b.add(b.mul(head, run.headStride),
                                   b.mul(known, b.index(pieces.unit)))));

  Value lse = b.loadF32(sources[1], {row, b.add(first, head)});
  Value bits = b.bits(b.getI32Type(), lse);
  Value behind;
  if (pieces.unit == 16) {
    auto type = VectorType::get({4}, b.getI32Type());
    Value zeros = LLVM::ZeroOp::create(b, type);
    behind = LLVM::InsertElementOp::create(b, zeros, bits, b.i32(0));
  } else {
    // The bits' own piece; zeros behind the last of them.
    int64_t width = 8 * pieces.unit;
    Value at = b.toI32(b.sub(inside, b.index(numValues)));
    Value shift = b.mul(at, b.i32(width));
    Value inBits = b.unsignedLess(shift, b.i32(32));
    Value shifted =
        arith::ShRUIOp::create(b, bits, b.select(inBits, shift, b.i32(0)));
    behind = b.select(inBits, shifted, b.i32(0));
    if (width < 32)
      behind = arith::TruncIOp::create(b, b.getIntegerType(width), behind);
  }
  return b.select(isValue, value, behind);
}

void GroupPush::copyPlace(const Pieces &pieces, const Place &place) {
  bool isUnpack = carry && carry->isLanding;
  HeadRun to = isUnpack ? getInboxRun(place.row, place.peer) : getTarget(place);
  auto target = [&](Value piece) { return pieceAt(pieces, to, piece); };
  if (isUnpack) {
    Value row = b.add(b.mul(place.peer, b.index(carry->rows)), place.row);
    HeadRun from = getRun(box, row, b.index(0));
    return copyChunks(
        b, pieces.count, pieces.unit,
        [&](Value piece) { return pieceAt(pieces, from, piece); }, target,
        place.part, pieces.parts, pieces.unroll);
  }
  storeChunks(
      b, pieces.count, pieces.unit,
      [&](Value piece) {
        return shape.isGather ? loadGathered(pieces, place, piece)
                              : loadScattered(pieces, place, piece);
      },
      target, place.part, pieces.parts, pieces.unroll);
}

void GroupPush::emitRows(const Pieces &pieces) {
  bool isUnpack = carry && carry->isLanding;
  Value ranks = b.index(shape.ranks), parts = b.index(pieces.parts);
  // Rows that the inbox holds, from each member. The workspace has clamped it
  // where the step does not fit, which is no peer's business.
  Value held = b.dim(inbox, 0);
  if (!shape.isGather)
    held = arith::DivUIOp::create(b, held, ranks);
  Value count = b.min(rows, held);
  if (carry)
    count = b.min(count, b.index(carry->rows));
  Value tasks = b.mul(count, b.index(shape.ranks * pieces.parts));
  b.overBlocks(b.index(0), tasks, [&](Value task) {
    Value part = arith::RemUIOp::create(b, task, parts);
    Value pair = arith::DivUIOp::create(b, task, parts);
    // rank+1 first, then rank+2, ...: at any time each rank is written by few.
    Value turn = b.add(arith::RemUIOp::create(b, pair, ranks), b.index(1));
    Value peer = arith::RemUIOp::create(b, b.add(coordinate, turn), ranks);
    Value row = arith::DivUIOp::create(b, pair, ranks);
    if (!isUnpack)
      return copyPlace(pieces, {row, peer, part});
    b.when(b.negate(b.equal(peer, coordinate)),
           [&] { copyPlace(pieces, {row, peer, part}); });
  });
}

void GroupPush::emitWide() {
  if (shape.fewRows() == 0)
    return emitRows(shape.wide);
  b.when(
      b.lessEqual(rows, b.index(shape.fewRows())),
      [&] { emitRows(shape.fine); }, [&] { emitRows(shape.wide); });
}

void GroupPush::emit() {
  bool isUnpack = carry && carry->isLanding;
  Value go = b.equal(
      callDevice(b, "shardq_device_ok", b.getI32Type(), {device}), b.i32(1));
  if (!isUnpack) {
    Value needed = shape.isGather ? rows : b.mul(rows, b.index(shape.ranks));
    int64_t rowBytes = cast<MemRefType>(inbox.getType()).getDimSize(1) *
                       shape.width * shape.elementBytes;
    Value admitted =
        callDevice(b, "shardq_device_admit", b.getI32Type(),
                   {device, b.i32(op.getChannel()), b.i32(op.getExchange()),
                    b.fromIndex(needed, b.getI64Type()),
                    arith::ConstantIntOp::create(b, rowBytes, 64)});
    go = b.both(go, b.equal(admitted, b.i32(1)));
  }
  b.when(go, [&] {
    if (shape.wide.count == 0)
      return emitRows(shape.narrow);
    Value aligned = isAligned16(b, inbox);
    // The LSE is no bulk data.
    for (Value source : shape.isGather ? sources : sources.take_front(1))
      aligned = b.both(aligned, isAligned16(b, source));
    if (carry)
      aligned = b.both(aligned, isAligned16(b, box));
    b.when(aligned, [&] { emitWide(); }, [&] { emitRows(shape.narrow); });
  });
}

void mlir::shardq::emitGroupPushKernel(KernelBuilder &b, PushOp op,
                                       ValueRange args,
                                       const CarriedRows *carry) {
  GroupPush(b, op, args, carry).emit();
}
