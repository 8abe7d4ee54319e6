//===- SlotRows.cpp - Rows of positions that become slots -----------------===//

#include "SlotRows.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::shardq;

/// As many threads as a row takes, if it is known and not a long one.
static int64_t getThreads(int64_t width) {
  if (ShapedType::isDynamic(width))
    return 256;
  int64_t threads = llvm::divideCeil(width, kSlotColumns);
  return std::clamp<int64_t>(llvm::alignTo(threads, kWarp), kWarp, 512);
}

KernelShape mlir::shardq::getSlotRowsShape(MemRefType indices,
                                           int64_t bytesPerColumn,
                                           int64_t residentThreads) {
  KernelShape shape;
  shape.threads = getThreads(indices.getDimSize(1));
  // Memory takes many rows at a time to be busy; what a block finds out before
  // its first row is worth several.
  shape.residentBlocks = std::min<int64_t>(16, residentThreads / shape.threads);
  shape.maxBlocks = 3 * 132 * shape.residentBlocks;
  // Not static memory: of that LLVM believes more about the alignment than it
  // tells ptxas.
  shape.dynamicShared =
      shape.threads * kSlotColumns * bytesPerColumn + 4 * shape.threads / kWarp;
  return shape;
}

Value mlir::shardq::scanBlock(KernelBuilder &b, Value words, Value number,
                              Value neutral,
                              llvm::function_ref<Value(Value, Value)> combine,
                              Value &upTo) {
  Value lane = b.lane(), warp = b.warp(), last = b.i32(kWarp - 1);
  upTo = number;
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    Value other = b.shuffleUp(upTo, distance);
    upTo = b.select(b.lessEqual(b.i32(distance), lane), combine(upTo, other),
                    upTo);
  }
  int64_t numWarps = b.numThreads() / kWarp;
  if (numWarps == 1)
    return b.shuffleFrom(upTo, last);
  auto word = [&](Value index) {
    return b.advance(words, b.mul(index, b.i32(4)));
  };
  b.when(b.equal(lane, last), [&] { b.storeAt(upTo, word(warp)); });
  b.barrier();
  Value all = neutral;
  for (int64_t i = 0; i < numWarps; ++i) {
    Value here = b.loadAt(b.getI32Type(), word(b.i32(i)));
    upTo = combine(upTo, b.select(b.less(b.i32(i), warp), here, neutral));
    all = combine(all, here);
  }
  return all;
}

Value mlir::shardq::sumBlock(KernelBuilder &b, Value sums, Value count,
                             Value &before) {
  Value upTo;
  Value all = scanBlock(
      b, sums, count, b.i32(0),
      [&](Value one, Value other) { return b.add(one, other); }, upTo);
  before = b.sub(upTo, count);
  return all;
}

SlotRows::SlotRows(KernelBuilder &b, Value indices, Value slots, Value counts,
                   bool isInPlace)
    : b(b), indices(indices), slots(slots), counts(counts),
      width(cast<MemRefType>(indices.getType()).getDimSize(1)),
      passColumns(kSlotColumns * b.numThreads()),
      slotType(cast<MemRefType>(slots.getType()).getElementType()),
      isNarrow(slotType.isInteger(32)) {
  columns = b.toI32(b.min(b.dim(indices, 1), b.dim(slots, 1)));
  noSlot =
      arith::ConstantIntOp::create(b, -1, slotType.getIntOrFloatBitWidth());
  aligned = isAligned16(b, indices);
  if (isInPlace)
    aligned = b.both(aligned, isAligned16(b, slots));
}

bool SlotRows::isOnePass() const {
  return !ShapedType::isDynamic(width) && width <= passColumns;
}

/// Whether 16 bytes at a time are right for a thread's columns from `first`.
Value SlotRows::isWhole(Value first) {
  if (!ShapedType::isDynamic(width) && width % passColumns == 0)
    return aligned;
  return b.both(aligned,
                b.lessEqual(b.add(first, b.i32(kSlotColumns)), columns));
}

SlotRows::Columns SlotRows::loadPositions(Value row, Value first) {
  Type i32 = b.getI32Type();
  return b.chooseAll(
      isWhole(first),
      [&] {
        Columns loaded;
        Value address = b.address(indices, {row, b.extend(first)});
        for (int64_t i = 0; i < kSlotColumns; i += 4)
          llvm::append_range(loaded,
                             b.loadSeveral(i32, 4, b.advance(address, 4 * i)));
        return loaded;
      },
      [&] {
        Columns loaded;
        for (int64_t i = 0; i < kSlotColumns; ++i) {
          Value column = b.add(first, b.i32(i));
          loaded.push_back(b.choose(
              b.less(column, columns),
              [&] { return b.load(indices, {row, b.extend(column)}); },
              [&] { return b.i32(-1); }));
        }
        return loaded;
      });
}

void SlotRows::storeInPlace(Value row, Value first, Columns found,
                            const Columns &valid) {
  for (auto [slot, is] : llvm::zip_equal(found, valid))
    slot = b.select(is, slot, noSlot);
  int64_t bytes = slotType.getIntOrFloatBitWidth() / 8, several = 16 / bytes;
  b.when(
      isWhole(first),
      [&] {
        Value address = b.address(slots, {row, b.extend(first)});
        for (int64_t i = 0; i < kSlotColumns; i += several)
          b.storeSeveral(ArrayRef(found).slice(i, several),
                         b.advance(address, bytes * i));
      },
      [&] {
        for (int64_t i = 0; i < kSlotColumns; ++i) {
          Value column = b.add(first, b.i32(i));
          b.when(b.less(column, columns),
                 [&] { b.store(found[i], slots, {row, b.extend(column)}); });
        }
      });
}

Value SlotRows::convertPass(Value row, Value base, Value done,
                            GetSlots getSlots) {
  Value first = b.add(base, b.mul(b.threadI32(), b.i32(kSlotColumns)));
  Columns found, valid;
  getSlots(loadPositions(row, first), found, valid);
  storeInPlace(row, first, found, valid);
  if (!counts)
    return done;
  Value count = b.i32(0), before;
  for (Value is : valid)
    count = b.add(count, arith::ExtUIOp::create(b, b.getI32Type(), is));
  Value all = sumBlock(b, sums, count, before);
  b.barrier();
  return b.add(done, all);
}

Value SlotRows::overPasses(Pass pass) {
  Value none = b.i32(0);
  if (isOnePass())
    return pass(none, none);
  Value passes = arith::DivUIOp::create(
      b, b.add(columns, b.i32(passColumns - 1)), b.i32(passColumns));
  return b
      .loop32(passes, none,
              [&](Value number, ValueRange done) -> SmallVector<Value> {
                return {pass(b.mul(number, b.i32(passColumns)), done[0])};
              })
      .front();
}

void SlotRows::storeCount(Value row, Value count) {
  if (counts)
    b.when(b.equal(b.threadI32(), b.i32(0)),
           [&] { b.store(count, counts, row); });
}
