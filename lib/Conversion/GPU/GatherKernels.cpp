//===- GatherKernels.cpp - Blocks of gathered KV, and its slots -----------===//
//
// What stands around the exchange of gathered rows: the list of blocks, whether
// they are gathered at all, and where tokens are then. Results are those of
// runtime/split/Views.cpp, for any table.
//
//===----------------------------------------------------------------------===//

#include "GatherKernels.h"
#include "SlotRows.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kMaxI32 = std::numeric_limits<int32_t>::max();

static int64_t getRanks(Operation *op, FlatSymbolRefAttr mesh, StringRef axis) {
  return lookupMeshAxis(op, mesh, axis).axis.getSize();
}

static Value widen(KernelBuilder &b, Value i32) {
  return arith::ExtSIOp::create(b, b.getI64Type(), i32);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

namespace {

/// The entries of a table that may be gathered.
class Entries {
public:
  Entries(KernelBuilder &b, GatherBlocksOp op, ValueRange args);

  /// An entry (i32), and whether it is gathered.
  std::pair<Value, Value> load(Value request, Value column);

  Value requests; // that the table and the lengths have
  Value width;

private:
  Value countColumns(Value request);

  KernelBuilder &b;
  GatherBlocksOp op;
  Value table, lengths;
  Value pool; // blocks of the caches; null where that is not known
};

/// The first kernel. The blocks of a window are bits in shared memory, which
/// come out in order and once each.
class BlockList {
public:
  BlockList(KernelBuilder &b, GatherBlocksOp op, ValueRange args);
  void emit();

private:
  void clear();
  void collect(Value base);
  Value list(Value base, Value done);
  void listWords(Value word, Value firstBlock, Value place);

  KernelBuilder &b;
  Entries entries;
  Value blocks, count;
  Value bits;  // of a window, in shared memory
  Value cells; // the last word with a bit; the first block behind the window
  Value sums;  // of each warp
};

} // namespace

Entries::Entries(KernelBuilder &b, GatherBlocksOp op, ValueRange args)
    : requests(b.min(b.dim(args[0], 0), b.dim(args[1], 0))),
      width(b.dim(args[0], 1)), b(b), op(op), table(args[0]), lengths(args[1]),
      pool(op.getPool() ? args[2] : Value()) {}

/// Columns that hold a request's tokens on rank 0, which has the most.
Value Entries::countColumns(Value request) {
  int64_t ranks = getRanks(op, op.getMeshAttr(), op.getAxis());
  Value run = b.index(op.getInterleave()), block = b.index(op.getBlockSize());
  Value length = b.max(b.toIndex(b.load(lengths, request)), b.index(0));
  Value base =
      b.mul(b.divide(length, b.index(ranks * op.getInterleave())), run);
  Value rest = b.sub(length, b.mul(base, b.index(ranks)));
  Value tokens = b.add(base, b.min(rest, run));
  return b.divide(b.add(tokens, b.sub(block, b.index(1))), block);
}

std::pair<Value, Value> Entries::load(Value request, Value column) {
  Value entry = b.load(table, {request, column});
  Value isNull = b.equal(entry, b.i32(op.getNullBlock()));
  Value isBlock = b.both(b.lessEqual(b.i32(0), entry), b.negate(isNull));
  if (pool)
    isBlock = b.both(isBlock, b.less(b.toIndex(entry), pool));
  return {entry, b.both(b.less(column, countColumns(request)), isBlock)};
}

static constexpr int64_t kListThreads = 1024;
/// Blocks that a window has bits for.
static constexpr int64_t kWindow = 1 << 18;
static constexpr int64_t kWords = kWindow / 32;
/// Entries of a thread that are loaded before the first is used.
static constexpr int64_t kEntriesAtOnce = 4;

KernelShape mlir::shardq::getBlockListShape() {
  KernelShape shape;
  shape.threads = kListThreads;
  shape.maxBlocks = 1;
  return shape;
}

BlockList::BlockList(KernelBuilder &b, GatherBlocksOp op, ValueRange args)
    : b(b), entries(b, op, args), blocks(args.take_back(3)[0]),
      count(args.back()) {
  Type i32 = b.getI32Type();
  bits = b.shared({kWords}, i32);
  cells = b.shared({2}, i32);
  sums = b.address(b.shared({kListThreads / kWarp}, i32), b.index(0));
}

void BlockList::clear() {
  Value zero = b.i32(0);
  b.overThreads(b.index(0), b.index(kWords),
                [&](Value word) { b.store(zero, bits, word); });
  b.when(b.equal(b.threadI32(), zero), [&] {
    b.store(zero, cells, b.index(0));
    // As an unsigned number larger than all blocks.
    b.store(b.i32(-1), cells, b.index(1));
  });
  b.barrier();
}

/// Sets the bits of the blocks that the window from `base` on holds.
void BlockList::collect(Value base) {
  Value total = b.mul(entries.requests, entries.width);
  Value last = b.sub(total, b.index(1));
  Value zero = b.i32(0), none = b.i32(-1);
  auto updateCell = [&](arith::AtomicRMWKind kind, Value value, Value cell,
                        Value at) {
    memref::AtomicRMWOp::create(b, kind, value, cell, ValueRange{at});
  };
  SmallVector<Value> found = b.loop(
      b.thread(), total, {zero, none},
      [&](Value first, ValueRange carried) -> SmallVector<Value> {
        SmallVector<std::pair<Value, Value>> loaded;
        for (int64_t i = 0; i < kEntriesAtOnce; ++i) {
          Value at = b.add(first, b.index(i * kListThreads));
          Value place = b.min(at, last);
          auto [entry, isGathered] =
              entries.load(b.divide(place, entries.width),
                           b.remainder(place, entries.width));
          loaded.emplace_back(entry, b.both(isGathered, b.less(at, total)));
        }
        Value top = carried[0], behind = carried[1];
        for (auto [entry, isGathered] : loaded) {
          Value bit = b.sub(entry, base);
          Value word = b.shiftRight(bit, 5);
          Value isNew = b.both(isGathered, b.lessEqual(base, entry));
          Value isHere = b.both(isNew, b.less(bit, b.i32(kWindow)));
          b.when(isHere, [&] {
            Value mask =
                arith::ShLIOp::create(b, b.i32(1), b.bitAnd(bit, b.i32(31)));
            updateCell(arith::AtomicRMWKind::ori, mask, bits, b.extend(word));
          });
          top = b.max(top, b.select(isHere, word, zero));
          Value isBehind = b.both(isNew, b.negate(isHere));
          behind = arith::MinUIOp::create(b, behind,
                                          b.select(isBehind, entry, none));
        }
        return {top, behind};
      },
      kEntriesAtOnce *kListThreads);
  Value top = found[0], behind = found[1];
  for (int64_t mask = kWarp / 2; mask > 0; mask /= 2) {
    top = b.max(top, b.shuffleXor(top, mask));
    behind = arith::MinUIOp::create(b, behind, b.shuffleXor(behind, mask));
  }
  b.when(b.equal(b.lane(), zero), [&] {
    updateCell(arith::AtomicRMWKind::maxs, top, cells, b.index(0));
    updateCell(arith::AtomicRMWKind::minu, behind, cells, b.index(1));
  });
  b.barrier();
}

/// Stores the blocks of a warp's 32 words, of which this lane has one that
/// begins at `place` of the list.
void BlockList::listWords(Value word, Value firstBlock, Value place) {
  Value zero = b.i32(0), lane = b.lane();
  Value own = arith::ShLIOp::create(b, b.i32(1), lane);
  Value below = b.sub(own, b.i32(1));
  Value hasBits = b.ballot(b.negate(b.equal(word, zero)));
  b.when(b.negate(b.equal(hasBits, zero)), [&] {
    b.loop32(b.i32(kWarp), ValueRange{},
             [&](Value i, ValueRange) -> SmallVector<Value> {
               Value theirs = b.shuffleFrom(word, i);
               Value begin = b.shuffleFrom(place, i);
               Value before = LLVM::CtPopOp::create(b, b.bitAnd(theirs, below));
               Value at = b.extend(b.add(begin, before));
               Value isBlock = b.negate(b.equal(b.bitAnd(theirs, own), zero));
               b.when(b.both(isBlock, b.less(at, b.dim(blocks, 0))), [&] {
                 Value inside = b.add(b.shiftLeft(i, 5), lane);
                 b.store(b.add(firstBlock, inside), blocks, at);
               });
               return {};
             });
  });
}

/// Appends the window's blocks to `done`. Returns how many there are then.
Value BlockList::list(Value base, Value done) {
  Value top = b.load(cells, b.index(0));
  Value passes = b.add(b.shiftRight(top, 10), b.i32(1));
  static_assert(kListThreads == 1 << 10, "a word a thread and pass");
  return b
      .loop32(passes, done,
              [&](Value pass, ValueRange carried) -> SmallVector<Value> {
                Value firstWord = b.shiftLeft(pass, 10);
                Value word =
                    b.load(bits, b.extend(b.add(firstWord, b.threadI32())));
                Value before;
                Value all =
                    sumBlock(b, sums, LLVM::CtPopOp::create(b, word), before);
                Value warpWord = b.add(firstWord, b.shiftLeft(b.warp(), 5));
                listWords(word, b.add(base, b.shiftLeft(warpWord, 5)),
                          b.add(carried[0], before));
                b.barrier();
                return {b.add(carried[0], all)};
              })
      .front();
}

void BlockList::emit() {
  Value zero = b.i32(0), none = b.i32(-1);
  // Windows, each from the first block behind the one before.
  ValueRange found = b.repeatWhile(
      {zero, zero},
      [&](ValueRange carried) { return b.negate(b.equal(carried[0], none)); },
      [&](ValueRange carried) -> SmallVector<Value> {
        clear();
        collect(carried[0]);
        Value done = list(carried[0], carried[1]);
        Value next = b.load(cells, b.index(1));
        b.barrier();
        return {next, done};
      });
  b.when(b.equal(b.threadI32(), zero),
         [&] { b.store(found[1], count, b.index(0)); });
}

void mlir::shardq::emitBlockListKernel(KernelBuilder &b, GatherBlocksOp op,
                                       ValueRange args) {
  BlockList(b, op, args).emit();
}

KernelShape mlir::shardq::getBlockInverseShape() {
  KernelShape shape;
  shape.rowsPerBlock = shape.threads;
  return shape;
}

/// Where a block stands among the first `known` of the list, by halving.
static Value findBlock(KernelBuilder &b, Value blocks, Value known,
                       Value block) {
  return b.toI32(b.countBefore(known, [&](Value middle) {
    return b.less(b.load(blocks, middle), block);
  }));
}

void mlir::shardq::emitBlockInverseKernel(KernelBuilder &b, GatherBlocksOp op,
                                          ValueRange args) {
  Entries entries(b, op, args);
  ValueRange outs = args.take_back(3);
  Value blocks = outs[0], inverse = outs[1], zero = b.index(0);
  Value known = b.toIndex(b.load(outs[2], zero));
  known = b.max(zero, b.min(known, b.dim(blocks, 0)));
  auto none = [&] { return b.i32(-1); };
  Value width = b.dim(inverse, 1);
  b.overGrid(zero, b.mul(b.dim(inverse, 0), width), [&](Value place) {
    Value request = b.divide(place, width), column = b.remainder(place, width);
    Value isInside = b.both(b.less(request, entries.requests),
                            b.less(column, entries.width));
    Value found = b.choose(
        isInside,
        [&] {
          auto [entry, isGathered] = entries.load(request, column);
          return b.choose(
              isGathered,
              [&, block = entry] { return findBlock(b, blocks, known, block); },
              none);
        },
        none);
    b.store(found, inverse, {request, column});
  });
  b.overGrid(known, b.dim(blocks, 0),
             [&](Value i) { b.store(none(), blocks, i); });
}

void mlir::shardq::emitGatherGateKernel(KernelBuilder &b, GatherGateOp op,
                                        ValueRange args) {
  Value starts = args[0], count = args[1], decodes = args[2], result = args[3];
  Value zero = b.index(0);
  b.when(b.equal(b.thread(), zero), [&] {
    // A list without a first start has no tokens.
    Value last = b.sub(b.dim(starts, 0), b.index(1));
    Value tokens = b.choose(
        b.lessEqual(zero, last),
        [&] { return b.toIndex(b.load(starts, last)); }, [&] { return zero; });
    Value open = b.less(decodes, tokens);
    if (std::optional<uint64_t> most = op.getMaxBlocks())
      open = b.both(
          open, b.lessEqual(b.toIndex(b.load(count, zero)), b.index(*most)));
    b.store(arith::ExtUIOp::create(b, b.getI64Type(), open), result, zero);
  });
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

namespace {

class GatheredSlots : SlotRows {
public:
  GatheredSlots(KernelBuilder &b, GatheredSlotsOp op, ValueRange args);
  void emit();

private:
  void getSlots(const Columns &positions, Columns &found, Columns &valid);

  GatheredSlotsOp op;
  int64_t ranks;
  Value rows, inverse, count, req;
  Value blocks;               // gathered of each rank; i64
  Value request, knownBlocks; // of the row at hand; i32
};

} // namespace

GatheredSlots::GatheredSlots(KernelBuilder &b, GatheredSlotsOp op,
                             ValueRange args)
    : SlotRows(b, args[0], args[4], op.getNumOuts() == 2 ? args[5] : Value(),
               /*isInPlace=*/true),
      op(op), ranks(getRanks(op, op.getMeshAttr(), op.getAxis())),
      rows(getCommonRows(b, op, args)), inverse(args[1]), count(args[2]),
      req(args[3]) {}

/// Positions are divided in 32 bits, since computing is most of the work; all
/// entries are loaded before the first is used.
void GatheredSlots::getSlots(const Columns &positions, Columns &found,
                             Columns &valid) {
  Value zero = b.i32(0), interleave = b.i32(op.getInterleave());
  Value numRanks = b.i32(ranks), blockSize = b.i32(op.getBlockSize());
  // No position is in the second block of 2^31 or more.
  bool isOneBlock = op.getBlockSize() > kMaxI32;
  Columns owners, insides, entries;
  for (Value position : positions) {
    Value run = b.divide(position, interleave);
    owners.push_back(b.remainder(run, numRanks));
    Value local = b.add(b.mul(b.divide(run, numRanks), interleave),
                        b.remainder(position, interleave));
    Value block = isOneBlock ? zero : b.divide(local, blockSize);
    insides.push_back(isOneBlock ? local : b.remainder(local, blockSize));
    Value known =
        b.both(b.lessEqual(zero, position), b.unsignedLess(block, knownBlocks));
    entries.push_back(b.choose(
        known,
        [&] { return b.load(inverse, {b.extend(request), b.extend(block)}); },
        [&] { return b.i32(-1); }));
  }
  Value wideSize = arith::ConstantIntOp::create(b, op.getBlockSize(), 64);
  Value most = arith::ConstantIntOp::create(b, kMaxI32, 64);
  for (auto [owner, inside, entry] :
       llvm::zip_equal(owners, insides, entries)) {
    Value block = b.add(b.mul(widen(b, owner), blocks), widen(b, entry));
    Value slot = b.add(b.mul(block, wideSize), widen(b, inside));
    Value isGathered = b.lessEqual(zero, entry);
    if (isNarrow) {
      isGathered = b.both(isGathered, b.lessEqual(slot, most));
      slot = arith::TruncIOp::create(b, slotType, slot);
    }
    found.push_back(slot);
    valid.push_back(isGathered);
  }
}

void GatheredSlots::emit() {
  sums = b.address(b.dynamicShared(), b.index(0));
  blocks = widen(b, b.load(count, b.index(0)));
  Value columnsOfTable = b.toI32(b.min(b.dim(inverse, 1), b.index(kMaxI32)));
  b.overBlocks(b.index(0), rows, [&](Value row) {
    request = b.load(req, row);
    Value isKnown =
        b.inRange(b.toIndex(request), b.index(0), b.dim(inverse, 0));
    knownBlocks = b.select(isKnown, columnsOfTable, b.i32(0));
    Value done = overPasses([&](Value base, Value done) {
      return convertPass(
          row, base, done,
          [&](const Columns &positions, Columns &found, Columns &valid) {
            getSlots(positions, found, valid);
          });
    });
    storeCount(row, done);
  });
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

/// Columns of a thread: a store of 16 bytes.
static constexpr int64_t kTableColumns = 4;

static void emitGatheredTableKernel(KernelBuilder &b, GatheredTableOp op,
                                    ValueRange args) {
  Value inverse = args[0], table = args[2], zero = b.index(0);
  Value ranks = b.index(getRanks(op, op.getMeshAttr(), op.getAxis()));
  Value columnsOfRun = b.index(op.getInterleave() / op.getBlockSize());
  Value blocks = b.toIndex(b.load(args[1], zero)), most = b.index(kMaxI32);
  // More blocks than entries can name leave a table of -1.
  Value isKnown =
      b.inRange(blocks, zero, b.add(b.divide(most, ranks), b.index(1)));
  Value none = b.i32(-1), width = b.dim(table, 1);
  auto getEntry = [&](Value row, Value column) {
    Value run = b.divide(column, columnsOfRun);
    Value local = b.add(b.mul(b.divide(run, ranks), columnsOfRun),
                        b.remainder(column, columnsOfRun));
    Value isInside = b.both(b.both(isKnown, b.less(row, b.dim(inverse, 0))),
                            b.less(local, b.dim(inverse, 1)));
    Value place = b.choose(
        isInside, [&] { return b.load(inverse, {row, local}); },
        [&] { return none; });
    Value entry =
        b.add(b.mul(b.remainder(run, ranks), blocks), b.toIndex(place));
    Value isBlock =
        b.both(b.lessEqual(b.i32(0), place), b.lessEqual(entry, most));
    return b.select(isBlock, b.toI32(entry), none);
  };

  Value aligned = isAligned16(b, table);
  Value step = b.index(kTableColumns);
  Value groups = b.divide(b.add(width, b.index(kTableColumns - 1)), step);
  b.overGrid(zero, b.mul(b.dim(table, 0), groups), [&](Value group) {
    Value row = b.divide(group, groups);
    Value first = b.mul(b.remainder(group, groups), step);
    SmallVector<Value> entries;
    for (int64_t i = 0; i < kTableColumns; ++i)
      entries.push_back(getEntry(row, b.add(first, b.index(i))));
    b.when(
        b.both(aligned, b.lessEqual(b.add(first, step), width)),
        [&] { b.storeSeveral(entries, b.address(table, {row, first})); },
        [&] {
          for (int64_t i = 0; i < kTableColumns; ++i) {
            Value column = b.add(first, b.index(i));
            b.when(b.less(column, width),
                   [&] { b.store(entries[i], table, {row, column}); });
          }
        });
  });
}

KernelShape mlir::shardq::getGatheredShape(Operation *op) {
  if (auto slots = dyn_cast<GatheredSlotsOp>(op))
    return getSlotRowsShape(cast<MemRefType>(slots.getIndices().getType()), 0,
                            1024);
  KernelShape shape;
  // A row is as long as the longest request, so a block takes a part of it.
  shape.blocksPerRow = 8;
  shape.maxBlocks = 132 * 16;
  return shape;
}

void mlir::shardq::emitGatheredKernel(KernelBuilder &b, Operation *op,
                                      ValueRange args) {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](GatheredSlotsOp op) { GatheredSlots(b, op, args).emit(); })
      .Case([&](GatheredTableOp op) { emitGatheredTableKernel(b, op, args); });
}
