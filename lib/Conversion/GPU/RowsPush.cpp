//===- RowsPush.cpp - Rows of every member to every member ----------------===//
//
// gather_rows: all rows of a source, or those of a list of blocks, one member's
// behind the other's. They are copied as a run of pieces, whatever rows and
// blocks these belong to: blocks of threads are full for every block size, and
// the inbox is filled in order. A row is one line, or one of each head.
//
//===----------------------------------------------------------------------===//

#include "Copies.h"
#include "GroupKernels.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kThreads = 256;
/// Pieces of a thread in flight. More take registers from other blocks.
static constexpr int64_t kUnroll = 4;
static constexpr int64_t kMaxBlocks = 132 * 32;
/// Beside other kernels. A block of the indexer's scores leaves 12,288
/// registers of a multiprocessor, which are enough for a block this small; one
/// on each fills the link.
static constexpr int64_t kThreadsAside = 128;
static constexpr int64_t kBlocksAside = 132;

namespace {

/// Static facts of a push.
struct Geometry {
  explicit Geometry(PushOp op);

  int64_t ranks, stride;
  int64_t elementBytes;
  int64_t lines;     // of a row
  int64_t lineBytes; // of all sources
  bool isWhole;      // pieces of 16 bytes belong to one source each
};

class RowsPush {
public:
  RowsPush(KernelBuilder &b, PushOp op, ValueRange args,
           const CarriedRows *carry);
  void emit();

private:
  /// A chunk of the rows for, or from, the member at `peer`.
  struct Task {
    Value peer, isOwn;
    Value line, piece; // where it begins
    Value pieces;      // from that line on, also those of other chunks
  };
  /// Lines of a buffer from `first` on.
  struct Run {
    Value address; // of the buffer's first line
    Value first;
    Value rowStride, lineStride; // bytes
  };

  Value countRows();
  void emitTasks();
  void copyTask(const Task &task);
  Value toLines(Value rows) { return b.mul(rows, b.index(shape.lines)); }
  SmallVector<Value> getIndices(Value line);
  Run getRun(Value buffer, Value firstLine);
  Run getCarried(const Task &task);
  Run getTarget(const Task &task);
  Value pieceAt(const Run &run, Value piece);
  Type getPieceType();
  Value load(const Task &task, Value piece);
  std::pair<Value, Value> split(Value piece);

  bool isUnpack() const { return carry && carry->isLanding; }

  KernelBuilder &b;
  PushOp op;
  const CarriedRows *carry;
  Geometry shape;
  ValueRange sources;
  Value blocks; // null where all rows are sent
  Value inbox, me, coordinate, device, needed;
  Value box;        // outbox or landing
  int64_t unit = 0; // bytes of a piece: 16, or an element's
  Value memberRows; // of each member, in the inbox
  Value rows;       // that this member sends
  Value sourceRows; // that there are
};

} // namespace

Geometry::Geometry(PushOp op) {
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  ranks = over.axis.getSize();
  stride = over.mesh.getStride(over.axis);
  auto inbox = cast<MemRefType>(op.getInbox().getType());
  elementBytes = inbox.getElementTypeBitWidth() / 8;
  lines = inbox.getRank() == 3 ? inbox.getDimSize(1) : 1;
  lineBytes = inbox.getShape().back() * elementBytes;
  isWhole = true;
  for (Value source : op.getSources())
    isWhole &= cast<MemRefType>(source.getType()).getShape().back() *
                   elementBytes % 16 ==
               0;
}

static KernelShape getShape(PushOp op, int64_t threads) {
  Geometry geometry(op);
  int64_t chunk = threads * kUnroll;
  int64_t pieces = geometry.lines * geometry.lineBytes /
                   (geometry.isWhole ? 16 : geometry.elementBytes);
  KernelShape shape;
  shape.threads = threads;
  shape.rowsPerBlock =
      std::max<int64_t>(1, chunk / std::max<int64_t>(1, pieces));
  shape.blocksPerRow = geometry.ranks;
  if (pieces > chunk)
    shape.blocksPerRow =
        std::min<int64_t>(kMaxBlocks, llvm::divideCeil(pieces, chunk)) *
        geometry.ranks;
  // As for exchanges: two blocks on each multiprocessor, then one for two
  // chunks.
  shape.fewBlocks = 132 * 2;
  shape.oneOf = 2;
  shape.maxBlocks = kMaxBlocks;
  return shape;
}

KernelShape mlir::shardq::getRowsPushShape(PushOp op) {
  return getShape(op, kThreads);
}

KernelShape mlir::shardq::getAsideShape(PushOp op) {
  KernelShape shape = getShape(op, kThreadsAside);
  shape.maxBlocks = kBlocksAside;
  return shape;
}

RowsPush::RowsPush(KernelBuilder &b, PushOp op, ValueRange args,
                   const CarriedRows *carry)
    : b(b), op(op), carry(carry), shape(op) {
  unsigned numSources = op.getSources().size();
  sources = args.take_front(numSources);
  args = args.drop_front(numSources);
  if (op.getBlocks()) {
    blocks = args.front();
    args = args.drop_front();
  }
  inbox = args[0];
  me = args[1];
  coordinate = args[2];
  device = toPointer(b, b.getLoc(), args[3]);
  needed = args[4];
  if (carry)
    box = args[5];
  for (Value source : sources) {
    Value here = b.dim(source, 0);
    sourceRows = sourceRows ? b.min(sourceRows, here) : here;
  }
}

/// Rows that are sent. The workspace has clamped the inbox where the step does
/// not fit, and no entry behind the list is read, whatever the step says.
Value RowsPush::countRows() {
  Value count = b.min(memberRows, sourceRows);
  if (blocks) {
    Value blockSize = b.index(*op.getBlockSize());
    Value known = arith::DivUIOp::create(b, memberRows, blockSize);
    count = b.mul(b.min(known, b.dim(blocks, 0)), blockSize);
  }
  return carry ? b.min(count, b.index(carry->rows)) : count;
}

/// Of a line's first element.
SmallVector<Value> RowsPush::getIndices(Value line) {
  Value zero = b.index(0), lines = b.index(shape.lines);
  if (cast<MemRefType>(inbox.getType()).getRank() == 2)
    return {line, zero};
  return {arith::DivUIOp::create(b, line, lines),
          arith::RemUIOp::create(b, line, lines), zero};
}

RowsPush::Run RowsPush::getRun(Value buffer, Value firstLine) {
  auto metadata = memref::ExtractStridedMetadataOp::create(b, buffer);
  auto getStride = [&](unsigned dim) {
    return b.mul(metadata.getStrides()[dim], b.index(shape.elementBytes));
  };
  return {b.address(buffer, getIndices(b.index(0))), firstLine, getStride(0),
          getStride(metadata.getStrides().size() - 2)};
}

/// Line and piece of it, of pieces behind the beginning of a line.
std::pair<Value, Value> RowsPush::split(Value piece) {
  int64_t perLine = shape.lineBytes / unit;
  if (perLine > (1 << 30)) {
    Value count = b.index(perLine);
    return {arith::DivUIOp::create(b, piece, count),
            arith::RemUIOp::create(b, piece, count)};
  }
  Value number = b.toI32(piece), count = b.i32(perLine);
  return {b.extend(arith::DivUIOp::create(b, number, count)),
          b.extend(arith::RemUIOp::create(b, number, count))};
}

Value RowsPush::pieceAt(const Run &run, Value piece) {
  auto [linesOn, inside] = split(piece);
  SmallVector<Value> at = getIndices(b.add(run.first, linesOn));
  Value offset = b.mul(at[0], run.rowStride);
  if (at.size() == 3)
    offset = b.add(offset, b.mul(at[1], run.lineStride));
  return b.advance(run.address, b.add(offset, b.mul(inside, b.index(unit))));
}

/// In the outbox or the landing place: `rows` for each member.
RowsPush::Run RowsPush::getCarried(const Task &task) {
  Value first = b.mul(task.peer, b.index(carry->rows));
  return getRun(box, b.add(toLines(first), task.line));
}

/// Where own rows of a task go.
RowsPush::Run RowsPush::getTarget(const Task &task) {
  Value first = toLines(b.mul(coordinate, memberRows));
  Run own = getRun(inbox, b.add(first, task.line));
  if (!carry) {
    Value steps = b.mul(b.sub(task.peer, coordinate), b.index(shape.stride));
    own.address = toPeer(b, own.address, b.add(me, steps), device);
    return own;
  }
  Run carried = getCarried(task);
  return {b.select(task.isOwn, own.address, carried.address),
          b.select(task.isOwn, own.first, carried.first),
          b.select(task.isOwn, own.rowStride, carried.rowStride),
          b.select(task.isOwn, own.lineStride, carried.lineStride)};
}

Type RowsPush::getPieceType() {
  if (unit == 16)
    return VectorType::get({4}, b.getI32Type());
  return b.getIntegerType(8 * unit);
}

/// From the source that has it; zeros of a row that none has. There is no
/// branch, so that several pieces are in flight: what is read in place of such
/// a row is the own inbox.
Value RowsPush::load(const Task &task, Value piece) {
  auto [linesOn, inPieces] = split(piece);
  Value inside = b.mul(inPieces, b.index(unit));
  Value line = b.add(task.line, linesOn), isThere;
  if (blocks) {
    Value blockSize = b.index(*op.getBlockSize());
    Value entry = arith::DivUIOp::create(b, line, blockSize);
    Value block = b.toIndex(b.load(blocks, entry));
    Value stride =
        b.index(op.getBlockStrideRows().value_or(*op.getBlockSize()));
    line =
        b.add(b.mul(block, stride), arith::RemUIOp::create(b, line, blockSize));
    isThere = b.inRange(line, b.index(0), sourceRows);
    line = b.select(isThere, line, b.index(0));
  }
  Value address;
  int64_t begin = 0;
  for (Value source : sources) {
    Value here = b.advance(b.address(source, getIndices(line)),
                           b.sub(inside, b.index(begin)));
    address = address
                  ? b.select(b.lessEqual(b.index(begin), inside), here, address)
                  : here;
    begin += cast<MemRefType>(source.getType()).getShape().back() *
             shape.elementBytes;
  }
  Type type = getPieceType();
  if (!isThere)
    return b.loadAt(type, address);
  Value other = b.address(inbox, getIndices(b.index(0)));
  Value loaded = b.loadAt(type, b.select(isThere, address, other));
  return b.select(isThere, loaded, LLVM::ZeroOp::create(b, type));
}

void RowsPush::copyTask(const Task &task) {
  Run from, to;
  if (isUnpack()) {
    from = getCarried(task);
    to = getRun(inbox, b.add(toLines(b.mul(task.peer, memberRows)), task.line));
  } else {
    to = getTarget(task);
  }
  storeRun(
      b, task.piece, task.pieces, unit, kUnroll,
      [&](Value piece) {
        return isUnpack() ? b.loadAt(getPieceType(), pieceAt(from, piece))
                          : load(task, piece);
      },
      [&](Value piece) { return pieceAt(to, piece); });
}

/// Each chunk for rank+1, rank+2, ... in turn: at any time each rank is written
/// by all others alike, and a chunk comes from the cache but for the first. Own
/// rows stand last, so that they take no time from the link.
void RowsPush::emitTasks() {
  Value zero = b.index(0), perLine = b.index(shape.lineBytes / unit);
  Value ranks = b.index(shape.ranks), others = b.index(shape.ranks - 1);
  int64_t inChunk = b.numThreads() * kUnroll;
  Value pieces = b.mul(toLines(rows), perLine), chunk = b.index(inChunk);
  Value chunks =
      arith::DivUIOp::create(b, b.add(pieces, b.index(inChunk - 1)), chunk);
  Value firstOwn = b.mul(chunks, others);
  Value tasks = isUnpack() ? firstOwn : b.mul(chunks, ranks);
  b.overBlocks(zero, tasks, [&](Value number) {
    Task task;
    task.isOwn = b.lessEqual(firstOwn, number);
    Value at = b.sub(number, firstOwn), turn = zero;
    if (shape.ranks > 1) {
      at = b.select(task.isOwn, at, arith::DivUIOp::create(b, number, others));
      turn = b.select(
          task.isOwn, zero,
          b.add(arith::RemUIOp::create(b, number, others), b.index(1)));
    }
    task.peer = arith::RemUIOp::create(b, b.add(coordinate, turn), ranks);
    Value first = b.mul(at, chunk);
    task.line = arith::DivUIOp::create(b, first, perLine);
    task.piece = arith::RemUIOp::create(b, first, perLine);
    task.pieces = b.sub(pieces, b.mul(task.line, perLine));
    copyTask(task);
  });
}

void RowsPush::emit() {
  Value go = b.equal(
      callDevice(b, "shardq_device_ok", b.getI32Type(), {device}), b.i32(1));
  if (!isUnpack()) {
    Value admitted = callDevice(
        b, "shardq_device_admit", b.getI32Type(),
        {device, b.i32(op.getChannel()), b.i32(op.getExchange()),
         b.fromIndex(needed, b.getI64Type()),
         arith::ConstantIntOp::create(b, shape.lines * shape.lineBytes, 64)});
    go = b.both(go, b.equal(admitted, b.i32(1)));
  }
  b.when(go, [&] {
    memberRows =
        arith::DivUIOp::create(b, b.dim(inbox, 0), b.index(shape.ranks));
    rows = countRows();
    auto emitPieces = [&](int64_t bytes) {
      unit = bytes;
      emitTasks();
    };
    // Rows of no bytes.
    if (shape.lines * shape.lineBytes == 0)
      return;
    if (!shape.isWhole)
      return emitPieces(shape.elementBytes);
    Value aligned = isAligned16(b, inbox);
    for (Value source : sources)
      aligned = b.both(aligned, isAligned16(b, source));
    if (carry)
      aligned = b.both(aligned, isAligned16(b, box));
    b.when(
        aligned, [&] { emitPieces(16); },
        [&] { emitPieces(shape.elementBytes); });
  });
}

void mlir::shardq::emitRowsPushKernel(KernelBuilder &b, PushOp op,
                                      ValueRange args,
                                      const CarriedRows *carry) {
  RowsPush(b, op, args, carry).emit();
}
