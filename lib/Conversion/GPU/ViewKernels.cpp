//===- ViewKernels.cpp - Tables, slots and rows of caches -----------------===//

#include "ViewKernels.h"
#include "../Loops/Kernels.h"
#include "../Utils/PackedValues.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kMaxI32 = std::numeric_limits<int32_t>::max();
/// Columns of a table that a thread takes: a store of 16 bytes.
static constexpr int64_t kTableColumns = 4;
/// Values of a thread in packed rows: a load or a store of 16 bytes.
static constexpr int64_t kPieceValues = 16;
/// Values with rope of a thread: 16 bytes too.
static constexpr int64_t kRopeValues = 8;

static int64_t getRanks(Operation *op, FlatSymbolRefAttr mesh, StringRef axis) {
  return lookupMeshAxis(op, mesh, axis).axis.getSize();
}

//===----------------------------------------------------------------------===//
// Tables and slots
//===----------------------------------------------------------------------===//

static void emitReplicatedTableKernel(KernelBuilder &b, ReplicatedTableOp op,
                                      ValueRange args) {
  Value table = args[0], lengths = args[1], view = args[2], zero = b.index(0);
  Value ranks = b.index(getRanks(op, op.getMeshAttr(), op.getAxis()));
  Value perBlock = b.index(op.getBlocksPerBlock());
  Value requests = b.min(b.dim(table, 0), b.dim(lengths, 0));
  Value width = b.dim(view, 1), most = b.index(kMaxI32);
  auto getEntry = [&](Value row, Value column) {
    Value run = b.divide(column, perBlock);
    Value local = b.add(b.mul(b.divide(run, ranks), perBlock),
                        b.remainder(column, perBlock));
    Value block = b.toIndex(b.choose(
        b.less(local, b.dim(table, 1)),
        [&] { return b.load(table, {row, local}); },
        [&] { return b.i32(-1); }));
    Value first =
        b.add(b.mul(b.divide(block, perBlock), ranks), b.remainder(run, ranks));
    Value entry = b.add(b.mul(first, perBlock), b.remainder(block, perBlock));
    Value isBlock = b.both(b.lessEqual(zero, block), b.lessEqual(entry, most));
    return b.select(isBlock, b.toI32(entry), b.i32(-1));
  };

  Value aligned = isAligned16(b, view);
  Value step = b.index(kTableColumns);
  Value groups = b.divide(b.add(width, b.index(kTableColumns - 1)), step);
  b.overGrid(zero, b.mul(b.dim(view, 0), groups), [&](Value group) {
    Value row = b.divide(group, groups);
    Value first = b.mul(b.remainder(group, groups), step);
    Value length = b.choose(
        b.less(row, requests), [&] { return b.load(lengths, row); },
        [&] { return b.i32(0); });
    SmallVector<Value> entries = b.chooseAll(
        b.less(b.i32(0), length),
        [&] {
          SmallVector<Value> found;
          for (int64_t i = 0; i < kTableColumns; ++i)
            found.push_back(getEntry(row, b.add(first, b.index(i))));
          return found;
        },
        [&] { return SmallVector<Value>(kTableColumns, b.i32(0)); });
    b.when(
        b.both(aligned, b.lessEqual(b.add(first, step), width)),
        [&] { b.storeSeveral(entries, b.address(view, {row, first})); },
        [&] {
          for (int64_t i = 0; i < kTableColumns; ++i) {
            Value column = b.add(first, b.index(i));
            b.when(b.less(column, width),
                   [&] { b.store(entries[i], view, {row, column}); });
          }
        });
  });
}

/// Entries are taken as they are, each to its place.
static void emitGatherAllKernel(KernelBuilder &b, GatherBlocksOp op,
                                ValueRange args) {
  Value table = args[0], pool = op.getPool() ? args[2] : Value();
  ValueRange outs = args.take_back(3);
  Value blocks = outs[0], inverse = outs[1], count = outs[2];
  Value zero = b.index(0), width = b.dim(table, 1);
  Value entries = b.mul(b.dim(table, 0), width);
  b.overGrid(zero, entries, [&](Value place) {
    Value request = b.divide(place, width), column = b.remainder(place, width);
    Value entry = b.load(table, {request, column});
    b.store(entry, blocks, place);
    Value isBlock = b.lessEqual(b.i32(0), entry);
    if (pool)
      isBlock = b.both(isBlock, b.less(b.toIndex(entry), pool));
    b.store(b.select(isBlock, b.toI32(place), b.i32(-1)), inverse,
            {request, column});
  });
  Value isFirst = b.both(b.equal(b.thread(), zero), b.equal(b.block(), zero));
  b.when(isFirst, [&] { b.store(b.toI32(entries), count, zero); });
}

static void emitTokenSlotsKernel(KernelBuilder &b, TokenSlotsOp op,
                                 ValueRange args) {
  Value table = args[0], req = args[1], visible = args[2], slots = args[3];
  Type slotType = cast<MemRefType>(slots.getType()).getElementType();
  Value zero = b.index(0), none = b.index(-1);
  Value limit = b.index(
      slotType.isInteger(32) ? kMaxI32 : std::numeric_limits<int64_t>::max());
  Value rows = b.min(b.dim(req, 0), b.dim(visible, 0));
  bool isShared = bool(op.getMeshAttr());
  int64_t ranks = isShared ? getRanks(op, op.getMeshAttr(), *op.getAxis()) : 1;
  Value run = b.index(isShared ? *op.getInterleave() : 1);
  Value device = args.back();
  auto getSlot = [&](Value row) {
    Value request = b.toIndex(b.load(req, row));
    Value position = b.sub(b.toIndex(b.load(visible, row)), b.index(1));
    Value isMine =
        b.both(b.lessEqual(zero, position), b.lessEqual(zero, request));
    Value local = position;
    if (isShared) {
      Value number = b.divide(position, run), count = b.index(ranks);
      isMine = b.both(isMine, b.equal(b.remainder(number, count), args[4]));
      local = b.add(b.mul(b.divide(number, count), run),
                    b.remainder(position, run));
    }
    return b.choose(
        isMine,
        [&] {
          auto isBeyond = [&](Value block, Value requests, Value width) {
            recordWrong(b, "shardq_device_beyond_table", device,
                        {block, request, requests, width});
          };
          auto isNone = [&](Value block, Value entry) {
            recordWrong(b, "shardq_device_no_place", device,
                        {block, request, entry});
          };
          return emitWrittenRow(b, op, table, request, local, limit,
                                {isBeyond, isNone});
        },
        [&] { return none; });
  };
  // Rows that types promise and nobody has are not written.
  b.overGrid(zero, b.dim(slots, 0), [&](Value row) {
    Value slot = b.choose(
        b.less(row, rows), [&] { return getSlot(row); }, [&] { return none; });
    b.store(b.fromIndex(slot, slotType), slots, row);
  });
}

//===----------------------------------------------------------------------===//
// Packed rows
//===----------------------------------------------------------------------===//

static int64_t getPieces(PackedRowsAttr format) {
  return format.getLatent() / kPieceValues;
}
static int64_t getRopePieces(PackedRowsAttr format) {
  return llvm::divideCeil(format.getRope(), kRopeValues);
}

namespace {

/// Rows of values on one side, packed ones on the other. A thread takes 16
/// values of the latent part, or 8 with rope: 16 bytes at a time where both
/// sides are aligned, single ones otherwise.
class Packing {
public:
  Packing(KernelBuilder &b, PackedRowsAttr format, Value packed, Value values)
      : b(b), format(format), packed(packed), values(values),
        rows(b.min(b.dim(packed, 0), b.dim(values, 0))),
        aligned(b.both(isAligned16(b, packed), isAligned16(b, values))) {}

  void unpack();
  void pack();

private:
  Value index(int64_t value) { return b.index(value); }
  Value getScalePlace(Value piece);
  void unpackPiece(Value row, Value piece);
  void packPiece(Value row, Value piece, Value present);
  void copyRope(Value row, Value piece, bool toValues);
  SmallVector<Value> loadValues(Value row, Value column);

  KernelBuilder &b;
  PackedRowsAttr format;
  Value packed, values, rows, aligned;
};

} // namespace

/// Where the scale of a piece stands in its row.
Value Packing::getScalePlace(Value piece) {
  Value group = b.divide(piece, index(PackedRowsAttr::kGroup / kPieceValues));
  return b.add(index(format.getScaleOffset()), b.mul(group, index(4)));
}

void Packing::unpackPiece(Value row, Value piece) {
  Value column = b.mul(piece, index(kPieceValues));
  Value place = getScalePlace(piece);
  Type f32 = b.getF32Type(), bf16 = b.getBF16Type();
  auto unpackWhole = [&] {
    Value scale = b.loadAt(f32, b.address(packed, {row, place}));
    Value words = b.load16(b.address(packed, {row, column}));
    SmallVector<Value> found;
    for (int64_t i = 0; i < kPieceValues; ++i) {
      Value word = vector::ExtractOp::create(b, words, i / 4);
      Value byte =
          b.bitAnd(i % 4 ? b.shiftRight(word, 8 * (i % 4)) : word, b.i32(0xff));
      found.push_back(b.mul(decodeValue(b, format, byte), scale));
    }
    for (int64_t half : {0, 8}) {
      SmallVector<Value> pairs;
      for (int64_t i = half; i < half + 8; i += 2)
        pairs.push_back(b.pack(bf16, found[i], found[i + 1]));
      b.storeSeveral(pairs,
                     b.address(values, {row, b.add(column, index(half))}));
    }
  };
  auto unpackSingle = [&] {
    Value scale = b.bits(f32, loadBytes(b, packed, row, place, 4));
    b.loop(index(0), index(kPieceValues), [&](Value i) {
      Value at = b.add(column, i);
      Value value = decodeValue(b, format, loadBytes(b, packed, row, at, 1));
      b.storeF32(b.mul(value, scale), values, {row, at});
    });
  };
  b.when(aligned, unpackWhole, unpackSingle);
}

void Packing::copyRope(Value row, Value piece, bool toValues) {
  Value first = b.mul(piece, index(kRopeValues));
  Value place = b.add(index(format.getRopeOffset()), b.mul(first, index(2)));
  Value column = b.add(index(format.getLatent()), first);
  auto copySingle = [&] {
    Value count =
        b.min(b.sub(index(format.getRope()), first), index(kRopeValues));
    b.loop(index(0), count, [&](Value i) {
      Value at = b.add(place, b.mul(i, index(2))), to = b.add(column, i);
      if (toValues)
        b.store(fromBits(b, loadBytes(b, packed, row, at, 2)), values,
                {row, to});
      else
        storeBytes(b, getBits(b, b.load(values, {row, to})), packed, row, at,
                   2);
    });
  };
  if (format.getRopeOffset() % 16 != 0 || format.getRope() % kRopeValues != 0)
    return copySingle();
  b.when(
      aligned,
      [&] {
        Value from = b.address(packed, {row, place});
        Value to = b.address(values, {row, column});
        if (!toValues)
          std::swap(from, to);
        b.store16(b.load16(from), to);
      },
      copySingle);
}

void Packing::unpack() {
  int64_t pieces = getPieces(format), ropePieces = getRopePieces(format);
  Value all = index(pieces + ropePieces);
  b.overGrid(index(0), b.mul(rows, all), [&](Value i) {
    Value row = b.divide(i, all), piece = b.remainder(i, all);
    if (ropePieces == 0)
      return unpackPiece(row, piece);
    b.when(
        b.less(piece, index(pieces)), [&] { unpackPiece(row, piece); },
        [&] { copyRope(row, b.sub(piece, index(pieces)), true); });
  });
}

/// The bits of 16 values, two in an i32.
SmallVector<Value> Packing::loadValues(Value row, Value column) {
  return b.chooseAll(
      aligned,
      [&] {
        SmallVector<Value> words;
        for (int64_t half : {0, 8})
          llvm::append_range(
              words, b.loadSeveral(
                         b.getI32Type(), 4,
                         b.address(values, {row, b.add(column, index(half))})));
        return words;
      },
      [&] {
        SmallVector<Value> words;
        for (int64_t i = 0; i < kPieceValues; i += 2) {
          auto load = [&](int64_t at) {
            Value place = b.add(column, index(at));
            return getBits(b, b.load(values, {row, place}));
          };
          Value low = load(i);
          words.push_back(b.bitOr(low, b.shiftLeft(load(i + 1), 16)));
        }
        return words;
      });
}

/// Called by all lanes of a warp, of which those of a group are neighbours.
void Packing::packPiece(Value row, Value piece, Value present) {
  Value column = b.mul(piece, index(kPieceValues));
  SmallVector<Value> bits;
  Value largest = b.i32(0);
  for (Value word : loadValues(row, column))
    for (Value half : {b.bitAnd(word, b.i32(0xffff)), b.shiftRight(word, 16)}) {
      bits.push_back(half);
      largest = b.max(largest, b.bitAnd(half, b.i32(0x7fff)));
    }
  for (int64_t lanes = 1; lanes < PackedRowsAttr::kGroup / kPieceValues;
       lanes *= 2)
    largest = b.max(largest, b.shuffleXor(largest, lanes));
  Value isFinite, scale = getScale(b, format, largest, isFinite);
  SmallVector<Value> words;
  for (auto [i, half] : llvm::enumerate(bits)) {
    Value value = arith::DivFOp::create(b, widenBits(b, half), scale);
    Value byte = b.select(isFinite, encodeValue(b, format, value), b.i32(0));
    if (i % 4 == 0)
      words.push_back(byte);
    else
      words.back() = b.bitOr(words.back(), b.shiftLeft(byte, 8 * (i % 4)));
  }
  Value place = getScalePlace(piece);
  Value scaleBits = b.bits(b.getI32Type(), scale);
  Value leads =
      b.equal(b.remainder(piece, index(PackedRowsAttr::kGroup / kPieceValues)),
              index(0));
  b.when(b.both(present, aligned), [&] {
    b.storeSeveral(words, b.address(packed, {row, column}));
    b.when(leads,
           [&] { b.storeAt(scaleBits, b.address(packed, {row, place})); });
  });
  b.when(b.both(present, b.negate(aligned)), [&] {
    for (auto [i, word] : llvm::enumerate(words))
      storeBytes(b, word, packed, row, b.add(column, index(4 * i)), 4);
    b.when(leads, [&] { storeBytes(b, scaleBits, packed, row, place, 4); });
  });
}

void Packing::pack() {
  Value pieces = index(getPieces(format)), threads = index(b.numThreads());
  Value all = b.mul(rows, pieces);
  Value tasks = b.divide(b.add(all, index(b.numThreads() - 1)), threads);
  // A block's threads stay together, since lanes exchange their largest.
  b.overBlocks(index(0), tasks, [&](Value task) {
    Value i = b.add(b.mul(task, threads), b.thread());
    Value present = b.less(i, all);
    i = b.select(present, i, index(0));
    packPiece(b.divide(i, pieces), b.remainder(i, pieces), present);
  });
  if (int64_t ropePieces = getRopePieces(format)) {
    Value each = index(ropePieces);
    b.overGrid(index(0), b.mul(rows, each), [&](Value i) {
      copyRope(b.divide(i, each), b.remainder(i, each), false);
    });
  }
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

bool mlir::shardq::isViewOp(Operation *op) {
  auto blocks = dyn_cast<GatherBlocksOp>(op);
  return isa<ReplicatedTableOp, TokenSlotsOp, UnpackRowsOp, PackRowsOp>(op) ||
         (blocks && blocks.getFull());
}

KernelShape mlir::shardq::getViewShape(Operation *op) {
  KernelShape shape;
  int64_t pieces = 0;
  if (auto unpack = dyn_cast<UnpackRowsOp>(op))
    pieces = getPieces(unpack.getFormat()) + getRopePieces(unpack.getFormat());
  else if (auto pack = dyn_cast<PackRowsOp>(op))
    pieces = getPieces(pack.getFormat());
  if (pieces) {
    shape.blocksPerRow = llvm::divideCeil(pieces, shape.threads);
    shape.rowsPerBlock = std::max<int64_t>(shape.threads / pieces, 1);
    return shape;
  }
  if (isa<ReplicatedTableOp>(op)) {
    // A row is as long as the longest request, so a block takes a part of it.
    shape.blocksPerRow = 8;
    shape.maxBlocks = 132 * 16;
    return shape;
  }
  shape.rowsPerBlock = shape.threads;
  return shape;
}

void mlir::shardq::emitViewKernel(KernelBuilder &b, Operation *op,
                                  ValueRange args) {
  llvm::TypeSwitch<Operation *>(op)
      .Case(
          [&](ReplicatedTableOp op) { emitReplicatedTableKernel(b, op, args); })
      .Case([&](TokenSlotsOp op) { emitTokenSlotsKernel(b, op, args); })
      .Case([&](GatherBlocksOp op) { emitGatherAllKernel(b, op, args); })
      .Case([&](UnpackRowsOp op) {
        Packing(b, op.getFormat(), args[0], args[1]).unpack();
      })
      .Case([&](PackRowsOp op) {
        Packing(b, op.getFormat(), args[1], args[0]).pack();
      });
}
