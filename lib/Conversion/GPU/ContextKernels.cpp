//===- ContextKernels.cpp - Own keys, and the merge of partial outputs ----===//

#include "ContextKernels.h"
#include "SlotRows.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

static int64_t getRanks(Operation *op, FlatSymbolRefAttr mesh, StringRef axis) {
  return lookupMeshAxis(op, mesh, axis).axis.getSize();
}

//===----------------------------------------------------------------------===//
// Lengths
//===----------------------------------------------------------------------===//

static void emitLocalLengthsKernel(KernelBuilder &b, LocalLengthsOp op,
                                   ValueRange args) {
  Value lengths = args[0], result = args[1], me = args[2];
  int64_t ranks = getRanks(op, op.getMeshAttr(), op.getAxis());
  Value zero = b.index(0), run = b.index(op.getInterleave());
  b.overGrid(zero, getCommonRows(b, op, args), [&](Value i) {
    Value length = b.max(b.toIndex(b.load(lengths, i)), zero);
    Value period = b.index(ranks * op.getInterleave());
    Value base = b.mul(b.divide(length, period), run);
    Value rest = b.sub(length, b.mul(base, b.index(ranks)));
    Value own = b.max(zero, b.min(b.sub(rest, b.mul(me, run)), run));
    b.store(b.toI32(b.add(base, own)), result, i);
  });
}

/// Records a draft step below 0.
static void checkStep(KernelBuilder &b, Value step, Value device) {
  Value zero = b.index(0);
  Value first = b.both(b.equal(b.block(), zero), b.equal(b.thread(), zero));
  b.when(b.both(first, b.less(step, zero)), [&] {
    Type i64 = b.getI64Type();
    LLVM::CallOp::create(b, b.getLoc(), TypeRange(), "shardq_device_expect",
                         ValueRange{toPointer(b, b.getLoc(), device),
                                    b.fromIndex(step, i64),
                                    b.fromIndex(zero, i64)});
  });
}

static void emitDraftLengthsKernel(KernelBuilder &b, DraftLengthsOp op,
                                   ValueRange args) {
  Value lengths = args[0], result = args[2], zero = b.index(0);
  Value most = b.index(std::numeric_limits<int32_t>::max());
  // Only the device knows the step.
  if (args.size() == 4)
    checkStep(b, args[1], args[3]);
  // Sums of two numbers of 31 bits do not overflow.
  Value step = b.max(zero, b.min(args[1], most));
  Value drafted = b.add(step, b.index(1));
  b.overGrid(zero, getCommonRows(b, op, args), [&](Value i) {
    Value length = b.toIndex(b.load(lengths, i));
    Value sum = b.min(b.add(length, drafted), most);
    b.store(b.toI32(b.select(b.less(zero, length), sum, zero)), result, i);
  });
}

/// The device form of shardq_shard_lengths.
static void emitShardLengthsKernel(KernelBuilder &b, ShardLengthsOp op,
                                   ValueRange args) {
  Value queryStart = args[0], seqLens = args[1], rows = args[2];
  Value starts = args[3], lengths = args[4], me = args[5];
  Value zero = b.index(0), one = b.index(1);
  rows = b.max(zero, b.min(rows, b.index(std::numeric_limits<int32_t>::max())));
  int64_t ranks = getRanks(op, op.getMeshAttr(), op.getAxis());
  emitCheckStarts(b, queryStart, Value(), b.mul(rows, b.index(ranks)), args[6]);
  Value first = b.mul(me, rows), end = b.add(first, rows);
  auto loadStart = [&](Value i) { return b.toIndex(b.load(queryStart, i)); };
  auto hold = [&](Value row) {
    return b.sub(b.max(first, b.min(row, end)), first);
  };
  Value entries = b.min(b.dim(queryStart, 0), b.dim(starts, 0));
  Value requests = b.min(b.dim(seqLens, 0), b.dim(lengths, 0));
  b.overGrid(zero, b.dim(starts, 0), [&](Value i) {
    // Behind requests that only some lists have, nothing begins.
    Value known = b.less(i, entries);
    Value begin = b.choose(
        known, [&] { return hold(loadStart(i)); }, [&] { return zero; });
    b.store(b.toI32(begin), starts, i);
    b.when(b.less(i, b.dim(lengths, 0)), [&] {
      Value next = b.add(i, one);
      Value isRequest = b.both(b.less(next, entries), b.less(i, requests));
      Value length = b.choose(
          isRequest,
          [&] {
            Value last = loadStart(next);
            Value behind = b.max(zero, b.sub(last, end));
            Value seen = b.sub(b.toIndex(b.load(seqLens, i)), behind);
            return b.select(b.less(begin, hold(last)), b.max(seen, zero), zero);
          },
          [&] { return zero; });
      b.store(b.toI32(length), lengths, i);
    });
  });
}

//===----------------------------------------------------------------------===//
// Filter
//===----------------------------------------------------------------------===//

/// Slots of a column, which the compacted form collects in shared memory.
static int64_t getStagingBytes(FilterIndicesOp op) {
  return op.getInPlace() ? 0 : op.getOutType(0).getElementTypeBitWidth() / 8;
}

namespace {

class Filter : SlotRows {
public:
  Filter(KernelBuilder &b, FilterIndicesOp op, ValueRange args);
  void emit();

private:
  void filterRow(Value row);
  void getSlots(const Columns &positions, Columns &found, Columns &valid);
  void findSlots(const Columns &locals, Columns &found, Columns &valid);
  Value compactPass(Value row, Value base, Value done);
  Value compact(Value row, Value done, const Columns &found,
                const Columns &valid);

  FilterIndicesOp op;
  int64_t ranks;
  bool hasTable;
  Value rows, table, req, me;
  Value staging;              // in shared memory
  Value request, knownBlocks; // of the row at hand; i32
};

} // namespace

static Value getFilterSlots(FilterIndicesOp op, ValueRange args) {
  return args[op.getTable() ? 3 : 1];
}

Filter::Filter(KernelBuilder &b, FilterIndicesOp op, ValueRange args)
    : SlotRows(b, args[0], getFilterSlots(op, args),
               op.getNumOuts() == 2 ? args[op.getTable() ? 4 : 2] : Value(),
               op.getInPlace()),
      op(op), ranks(getRanks(op, op.getMeshAttr(), op.getAxis())),
      hasTable(op.getTable()), rows(getCommonRows(b, op, args)) {
  if (hasTable) {
    table = args[1];
    req = args[2];
  }
  me = b.toI32(args.back());
}

/// Slots of positions, and whether they are own ones. Divisions are of 32 bits,
/// since computing is most of the work; all table entries are loaded before the
/// first is used.
void Filter::getSlots(const Columns &positions, Columns &found,
                      Columns &valid) {
  Value zero = b.i32(0);
  Value interleave = b.i32(op.getInterleave()), count = b.i32(ranks);
  Columns locals;
  for (Value position : positions) {
    Value run = b.divide(position, interleave);
    valid.push_back(b.both(b.lessEqual(zero, position),
                           b.equal(b.remainder(run, count), me)));
    locals.push_back(b.add(b.mul(b.divide(run, count), interleave),
                           b.remainder(position, interleave)));
  }
  if (hasTable) {
    findSlots(locals, found, valid);
    return;
  }
  for (Value local : locals)
    found.push_back(
        isNarrow ? local : Value(arith::ExtUIOp::create(b, slotType, local)));
}

/// Through the table, which holds `knownBlocks` blocks of the request.
void Filter::findSlots(const Columns &locals, Columns &found, Columns &valid) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  bool isOneBlock = *op.getBlockSize() > most;
  Value blockSize = b.i32(*op.getBlockSize());
  Columns entries;
  for (auto [local, isOwn] : llvm::zip_equal(locals, valid)) {
    Value block = isOneBlock ? b.i32(0) : b.divide(local, blockSize);
    Value known = b.both(isOwn, b.unsignedLess(block, knownBlocks));
    entries.push_back(b.choose(
        known, [&] { return b.load(table, {request, b.extend(block)}); },
        [&] { return b.i32(-1); }));
  }
  for (auto [local, isOwn, entry] : llvm::zip_equal(locals, valid, entries)) {
    Value inside = isOneBlock ? local : b.remainder(local, blockSize);
    if (!isNarrow) {
      Value start =
          b.mul(arith::ExtSIOp::create(b, slotType, entry),
                arith::ConstantIntOp::create(b, op.getBlockStride(), 64));
      found.push_back(
          b.add(start, arith::ExtUIOp::create(b, slotType, inside)));
      isOwn = b.lessEqual(b.i32(0), entry);
      continue;
    }
    // With an entry up to the limit, which none below zero is, the sum fits 32
    // bits, of which the highest then says that the slot does not fit 31.
    Value limit = b.i32(most / op.getBlockStride() + 1);
    found.push_back(b.add(b.mul(entry, b.i32(op.getBlockStride())), inside));
    isOwn = b.both(b.unsignedLess(entry, limit),
                   b.lessEqual(b.i32(0), found.back()));
  }
}

/// Writes valid slots behind the `done` that are there; returns how many there
/// are then. They pass through shared memory, so that neighbours write to
/// neighbours. All threads have read their positions by then: the slots may
/// take the place of the indices.
Value Filter::compact(Value row, Value done, const Columns &found,
                      const Columns &valid) {
  int64_t bytes = slotType.getIntOrFloatBitWidth() / 8;
  auto staged = [&](Value index) {
    return b.advance(staging, b.mul(index, b.i32(bytes)));
  };
  Value count = b.i32(0);
  SmallVector<Value> offsets;
  for (Value is : valid) {
    offsets.push_back(count);
    count = b.add(count, arith::ExtUIOp::create(b, b.getI32Type(), is));
  }
  Value before;
  Value all = sumBlock(b, sums, count, before);
  for (auto [slot, is, offset] : llvm::zip_equal(found, valid, offsets)) {
    Value at = b.add(before, offset);
    b.when(is, [&] { b.storeAt(slot, staged(at)); });
  }
  b.barrier();
  // A row of one pass is filled up at once.
  Value thread = b.threadI32();
  if (!isOnePass()) {
    b.overThreads32(all, [&](Value i) {
      b.store(b.loadAt(slotType, staged(i)), slots,
              {row, b.extend(b.add(done, i))});
    });
    // The next pass's slots come behind the barrier of its count, which one
    // warp does without.
    if (b.numThreads() == kWarp)
      b.barrier();
    return b.add(done, all);
  }
  for (int64_t i = 0; i < kSlotColumns; ++i) {
    Value column = b.add(thread, b.i32(i * b.numThreads()));
    auto store = [&] {
      Value slot = b.choose(
          b.less(column, all),
          [&] { return b.loadAt(slotType, staged(column)); },
          [&] { return noSlot; });
      b.store(slot, slots, {row, b.extend(column)});
    };
    if ((i + 1) * b.numThreads() <= width)
      store();
    else
      b.when(b.less(column, columns), store);
  }
  if (b.numThreads() == kWarp)
    b.barrier();
  return all;
}

/// Returns how many slots there are up to the end of the pass.
Value Filter::compactPass(Value row, Value base, Value done) {
  Value first = b.add(base, b.mul(b.threadI32(), b.i32(kSlotColumns)));
  Columns found, valid;
  getSlots(loadPositions(row, first), found, valid);
  return compact(row, done, found, valid);
}

void Filter::filterRow(Value row) {
  if (hasTable) {
    request = b.toIndex(b.load(req, row));
    Value blocks =
        b.min(b.dim(table, 1), b.index(std::numeric_limits<int32_t>::max()));
    knownBlocks = b.select(b.inRange(request, b.index(0), b.dim(table, 0)),
                           b.toI32(blocks), b.i32(0));
  }
  Value done = overPasses([&](Value base, Value done) {
    if (!op.getInPlace())
      return compactPass(row, base, done);
    return convertPass(
        row, base, done,
        [&](const Columns &positions, Columns &found, Columns &valid) {
          getSlots(positions, found, valid);
        });
  });
  if (!op.getInPlace() && !isOnePass())
    b.overThreads32(b.sub(columns, done), [&](Value i) {
      b.store(noSlot, slots, {row, b.extend(b.add(done, i))});
    });
  storeCount(row, done);
}

void Filter::emit() {
  staging = b.address(b.dynamicShared(), b.index(0));
  sums = b.advance(staging, getStagingBytes(op) * passColumns);
  b.overBlocks(b.index(0), rows, [&](Value row) { filterRow(row); });
}

//===----------------------------------------------------------------------===//
// Merge
//===----------------------------------------------------------------------===//

/// Members whose LSEs and weights are kept in registers.
static constexpr int64_t kUnrolledMembers = 16;

namespace {

/// A block takes a head of a row.
class Merge {
public:
  Merge(KernelBuilder &b, MergeLseOp op, ValueRange args);
  void emit();

private:
  using Body =
      llvm::function_ref<SmallVector<Value>(Value, ValueRange carried)>;

  void mergeHeads(int64_t pieceBytes);
  void mergeHead();
  void mergePieces();
  SmallVector<Value> overMembers(ValueRange inits, Body body);
  Value addressOf(Value member);
  Value loadLse(Value member);
  Value getLse(Value member);
  Value getWeight(Value member);
  Value takesPart(Value lse);
  Value addSink(Value total);
  Value load(Value member, Value piece);
  SmallVector<Value> widen(Value piece);
  void store(ArrayRef<Value> sums, Value piece);

  KernelBuilder &b;
  MergeLseOp op;
  Value inbox, out, merged, sink;
  int64_t ranks, heads, values, elementBytes;
  Type element;
  Value rows, memberBytes; // of a member
  bool isUnrolled;
  int64_t unit = 0; // bytes of a piece: 16, or an element's
  // Of the head at hand.
  Value row, head, present, first, top, divisor, withSink, isEmpty;
  SmallVector<Value> lses, weights;
};

} // namespace

Merge::Merge(KernelBuilder &b, MergeLseOp op, ValueRange args)
    : b(b), op(op), inbox(args[0]), out(args[1]),
      ranks(getRanks(op, op.getMeshAttr(), op.getAxis())),
      isUnrolled(ranks <= kUnrolledMembers) {
  if (op.getMerged())
    merged = args[2];
  if (op.getSink())
    sink = args.back();
  auto type = cast<MemRefType>(out.getType());
  heads = type.getDimSize(1);
  values = type.getDimSize(2);
  element = type.getElementType();
  elementBytes = element.getIntOrFloatBitWidth() / 8;
}

static Value infinity(KernelBuilder &b, bool isNegative) {
  double value = std::numeric_limits<double>::infinity();
  return b.f32(isNegative ? -value : value);
}

/// `body` in ascending rank order, with what it returned for the one before.
SmallVector<Value> Merge::overMembers(ValueRange inits, Body body) {
  if (!isUnrolled)
    return b.loop(b.index(0), b.index(ranks), inits, body);
  SmallVector<Value> carried(inits);
  for (int64_t i = 0; i < ranks; ++i)
    carried = body(b.index(i), carried);
  return carried;
}

/// Of a member's values of the head.
Value Merge::addressOf(Value member) {
  return b.advance(first, b.mul(member, memberBytes));
}

/// The LSE behind a head's values; NaN and +inf become -inf. Rows that types
/// promise and nobody sent are empty.
Value Merge::loadLse(Value member) {
  Value found = b.choose(
      present,
      [&]() -> Value {
        Value address = b.advance(addressOf(member), values * elementBytes);
        if (unit >= 4)
          return b.loadAt(b.getF32Type(), address);
        // Rows are aligned by their elements only.
        SmallVector<Value> halves;
        for (int64_t i = 0; i < 2; ++i)
          halves.push_back(arith::ExtUIOp::create(
              b, b.getI32Type(),
              b.loadAt(b.getI16Type(), b.advance(address, 2 * i))));
        return b.bits(b.getF32Type(),
                      b.bitOr(b.shiftLeft(halves[1], 16), halves[0]));
      },
      [&] { return infinity(b, true); });
  Value known = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, found,
                                      infinity(b, false));
  return b.select(known, found, infinity(b, true));
}

static int64_t getConstant(Value index) { return *getConstantIntValue(index); }

Value Merge::getLse(Value member) {
  return isUnrolled ? lses[getConstant(member)] : loadLse(member);
}

Value Merge::takesPart(Value lse) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, lse,
                               infinity(b, true));
}

/// The maximum is subtracted before the base is converted: the other order
/// loses bits of large LSEs.
Value Merge::getWeight(Value member) {
  if (isUnrolled && !weights.empty())
    return weights[getConstant(member)];
  bool isBaseTwo = op.getLseBase() == LseBase::Two;
  Value lse = getLse(member);
  Value power =
      b.mul(b.sub(lse, top), b.f32(isBaseTwo ? 1.0 : llvm::numbers::log2e));
  return b.select(takesPart(lse), b.exp2(power), b.f32(0.0));
}

/// The divisor with the sink's weight, of whose natural logarithm the maximum
/// is subtracted in the base of the LSEs.
Value Merge::addSink(Value total) {
  if (!sink)
    return divisor;
  bool isBaseTwo = op.getLseBase() == LseBase::Two;
  Value log2e = b.f32(llvm::numbers::log2e);
  Value logarithm = b.load(sink, head);
  Value power = isBaseTwo ? b.sub(b.mul(logarithm, log2e), top)
                          : b.mul(b.sub(logarithm, top), log2e);
  return b.select(isEmpty, divisor, b.add(total, b.exp2(power)));
}

/// A piece of a member's values; zeros, and nothing is read, of an empty one.
Value Merge::load(Value member, Value piece) {
  Type type = unit == 16 ? Type(VectorType::get({4}, b.getI32Type()))
                         : Type(b.getIntegerType(8 * unit));
  return b.choose(
      takesPart(getLse(member)),
      [&] {
        return b.loadAt(
            type, b.advance(addressOf(member), b.mul(piece, b.index(unit))));
      },
      [&] { return LLVM::ZeroOp::create(b, type); });
}

/// The numbers of a piece, as f32.
SmallVector<Value> Merge::widen(Value piece) {
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  SmallVector<Value> words{piece}, numbers;
  if (unit == 16) {
    words.clear();
    for (int64_t i = 0; i < 4; ++i)
      words.push_back(LLVM::ExtractElementOp::create(b, piece, b.i32(i)));
  } else if (unit == 2) {
    words[0] = arith::ExtUIOp::create(b, i32, piece);
  }
  for (Value word : words) {
    if (element.isF32()) {
      numbers.push_back(b.bits(f32, word));
    } else if (element.isBF16()) {
      numbers.push_back(b.bits(f32, b.shiftLeft(word, 16)));
      numbers.push_back(
          b.bits(f32, b.bitAnd(word, b.i32(int32_t(0xffff0000)))));
    } else {
      Value pair = b.bits(VectorType::get({2}, element), word);
      for (int64_t i = 0; i < 2; ++i)
        numbers.push_back(arith::ExtFOp::create(
            b, f32,
            LLVM::ExtractElementOp::create(b, pair, b.i32(i)).getResult()));
    }
  }
  numbers.truncate(unit / elementBytes);
  return numbers;
}

void Merge::store(ArrayRef<Value> sums, Value piece) {
  SmallVector<Value> words;
  if (element.isF32())
    for (Value sum : sums)
      words.push_back(b.bits(b.getI32Type(), sum));
  else if (sums.size() == 1)
    words.push_back(arith::TruncIOp::create(
        b, b.getI16Type(), b.pack(element, sums[0], b.f32(0.0))));
  else
    for (size_t i = 0; i < sums.size(); i += 2)
      words.push_back(b.pack(element, sums[i], sums[i + 1]));
  Value address = b.address(out, {row, head, b.index(0)});
  b.storeSeveral(words, b.advance(address, b.mul(piece, b.index(unit))));
}

void Merge::mergePieces() {
  int64_t numbers = unit / elementBytes;
  b.overThreads(b.index(0), b.index(values / numbers), [&](Value piece) {
    // Of all members before the first is used.
    SmallVector<Value> pieces;
    if (isUnrolled)
      for (int64_t i = 0; i < ranks; ++i)
        pieces.push_back(load(b.index(i), piece));
    SmallVector<Value> zeros(numbers, b.f32(0.0));
    SmallVector<Value> sums = overMembers(
        zeros, [&](Value member, ValueRange carried) -> SmallVector<Value> {
          Value theirs =
              isUnrolled ? pieces[getConstant(member)] : load(member, piece);
          Value weight = getWeight(member);
          SmallVector<Value> next;
          for (auto [sum, number] : llvm::zip_equal(carried, widen(theirs)))
            next.push_back(b.multiplyAdd(weight, number, sum));
          return next;
        });
    Value inverse = arith::DivFOp::create(b, b.f32(1.0), withSink);
    for (Value &sum : sums)
      sum = b.mul(sum, inverse);
    store(sums, piece);
  });
}

void Merge::mergeHead() {
  // All are on their way before the first is used.
  lses.clear();
  weights.clear();
  if (isUnrolled)
    for (int64_t i = 0; i < ranks; ++i)
      lses.push_back(loadLse(b.index(i)));
  top =
      overMembers(infinity(b, true),
                  [&](Value member, ValueRange carried) -> SmallVector<Value> {
                    return {b.max(carried[0], getLse(member))};
                  })
          .front();
  SmallVector<Value> found;
  Value total =
      overMembers(b.f32(0.0),
                  [&](Value member, ValueRange carried) -> SmallVector<Value> {
                    found.push_back(getWeight(member));
                    return {b.add(carried[0], found.back())};
                  })
          .front();
  weights = std::move(found);
  isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, total, b.f32(0.0));
  divisor = b.select(isEmpty, b.f32(1.0), total);
  withSink = addSink(total);
  mergePieces();
  if (!merged)
    return;
  bool isBaseTwo = op.getLseBase() == LseBase::Two;
  b.when(b.equal(b.thread(), b.index(0)), [&] {
    Value log = b.log2(divisor);
    if (!isBaseTwo)
      log = b.mul(log, b.f32(llvm::numbers::ln2));
    b.storeF32(b.select(isEmpty, infinity(b, true), b.add(top, log)), merged,
               {row, head});
  });
}

void Merge::mergeHeads(int64_t pieceBytes) {
  unit = pieceBytes;
  Value numHeads = b.index(heads);
  Value count = b.dim(out, 0);
  if (merged)
    count = b.min(count, b.dim(merged, 0));
  b.overBlocks(b.index(0), b.mul(count, numHeads), [&](Value task) {
    row = b.divide(task, numHeads);
    head = b.remainder(task, numHeads);
    present = b.less(row, rows);
    first = b.address(inbox, {row, head, b.index(0)});
    mergeHead();
  });
}

void Merge::emit() {
  rows = b.divide(b.dim(inbox, 0), b.index(ranks));
  auto layout = memref::ExtractStridedMetadataOp::create(b, inbox);
  memberBytes =
      b.mul(b.mul(rows, layout.getStrides()[0]), b.index(elementBytes));
  if (values * elementBytes % 16 != 0)
    return mergeHeads(elementBytes);
  b.when(
      b.both(isAligned16(b, inbox), isAligned16(b, out)),
      [&] { mergeHeads(16); }, [&] { mergeHeads(elementBytes); });
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

/// Threads that a multiprocessor is to hold. A row of open width in place has
/// its columns, places and slots at once, where the compacted form has let go
/// of places; and each place takes more registers where runs are neither single
/// tokens nor whole blocks and ranks are no power of two.
static int64_t getResidentThreads(FilterIndicesOp op) {
  int64_t ranks = getRanks(op, op.getMeshAttr(), op.getAxis());
  int64_t interleave = op.getInterleave();
  bool isOpen = cast<MemRefType>(op.getIndices().getType()).isDynamicDim(1);
  bool hasParts = op.getTable() && interleave > 1 &&
                  interleave < int64_t(*op.getBlockSize());
  bool isFull =
      isOpen && op.getInPlace() && hasParts && !llvm::isPowerOf2_64(ranks);
  return isFull ? 1024 : 1280;
}

KernelShape mlir::shardq::getContextShape(Operation *op) {
  KernelShape shape;
  if (isa<LocalLengthsOp, DraftLengthsOp, ShardLengthsOp>(op))
    shape.rowsPerBlock = shape.threads;
  if (auto filter = dyn_cast<FilterIndicesOp>(op))
    shape =
        getSlotRowsShape(cast<MemRefType>(filter.getIndices().getType()),
                         getStagingBytes(filter), getResidentThreads(filter));
  if (auto merge = dyn_cast<MergeLseOp>(op)) {
    auto type = cast<MemRefType>(merge.getOut().getType());
    int64_t bytes = type.getDimSize(2) * type.getElementTypeBitWidth() / 8;
    shape.threads = std::clamp<int64_t>(
        llvm::alignTo(llvm::divideCeil(bytes, 16), kWarp), kWarp, 256);
    shape.blocksPerRow = type.getDimSize(1);
  }
  return shape;
}

void mlir::shardq::emitContextKernel(KernelBuilder &b, Operation *op,
                                     ValueRange args) {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](LocalLengthsOp op) { emitLocalLengthsKernel(b, op, args); })
      .Case([&](DraftLengthsOp op) { emitDraftLengthsKernel(b, op, args); })
      .Case([&](ShardLengthsOp op) { emitShardLengthsKernel(b, op, args); })
      .Case([&](FilterIndicesOp op) { Filter(b, op, args).emit(); })
      .Case([&](MergeLseOp op) { Merge(b, op, args).emit(); });
}
