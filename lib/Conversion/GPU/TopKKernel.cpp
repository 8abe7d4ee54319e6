//===- TopKKernel.cpp - Exact top-k of rows of scores ---------------------===//
//
// A block takes one row after another. Scores become unsigned integers in their
// order ("keys"); the k-th largest is found by three histograms of its digits,
// and one more pass writes the positions of those above it, and of the first
// ones that equal it. Nothing here depends on the order in which threads run:
// histograms are sums of integers.
//
// Keys of a row stay in shared memory where they fit; longer rows are read anew
// in each pass.
//
//===----------------------------------------------------------------------===//

#include "Kernels.h"

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kThreads = 1024;
static constexpr int64_t kWarps = kThreads / kWarp;
/// Keys that shared memory holds: with the rest less than the 163 KiB of an
/// A100's block.
static constexpr int64_t kCapacity = 32768;
/// 16-byte loads that a thread has under way.
static constexpr int64_t kLoads = 4;
/// Digits of a key, from the top.
static constexpr int64_t kDigits[] = {11, 11, 10};

/// Keys of what is no candidate and of a NaN. -inf, the least number, has
/// 0x007fffff.
static constexpr int64_t kHoleKey = 0, kNaNKey = 1;

// Layout of shared memory, in bytes.
static constexpr int64_t kHistogramsAt = kCapacity * 4;
static constexpr int64_t kSumsAt = kHistogramsAt + (2048 + 2048 + 1024) * 4;
/// What one thread found for all: the digit, how many keys of it are wanted.
static constexpr int64_t kFoundAt = kSumsAt + kWarps * 4;
static constexpr int64_t kSharedBytes = kFoundAt + 16;

namespace {

/// Writes the kernel.
class TopKKernel {
public:
  TopKKernel(KernelBuilder &b, int64_t k, bool holes, Value scores,
             Value result)
      : b(b), k(k), holes(holes), scores(scores), result(result),
        thread(b.threadI32()), lane(b.lane()), warp(b.warp()) {
    memory = b.address(b.dynamicShared(), b.index(0));
  }
  void emit(Value visible, Value firstRow);

private:
  /// What a pass does with keys: one value or a vector of four.
  using Take = llvm::function_ref<void(Value key)>;

  Value key(Value bits);
  Value sharedWord(int64_t base, Value index);
  Value scoreAt(Value position);
  void zeroHistograms();
  void sweepGlobal(Take take, bool keep);
  void sweepWide(Take take, bool keep);
  void sweepNarrow(Take take, bool keep);
  void sweepShared(Take take);
  void count(int64_t histogram, Value digit);
  Value inclusive(Value value);
  std::pair<Value, Value> scanWarps(Value warpSum);
  std::array<Value, 3> find(int64_t histogram, int64_t bins, Value wanted);
  std::pair<Value, Value> select();
  void write(Value threshold, Value ties);
  void writeAll();
  void pad(Value begin);

  KernelBuilder &b;
  int64_t k;
  bool holes;
  Value scores, result, thread, lane, warp, memory;
  // Of the row at hand.
  Value row, resultRow;
  Value start;   // of its scores, a pointer
  Value length;  // i32
  Value fits;    // whether its keys are in shared memory
  Value aligned; // whether `start` is a multiple of 16
};

} // namespace

/// The key of a score's bits: positive numbers get the sign flipped, negative
/// ones all bits. -0.0 is 0.0.
Value TopKKernel::key(Value bits) {
  Value sign = arith::ShRSIOp::create(b, bits, b.i32(31));
  Value ordered = b.bitXor(bits, b.bitOr(sign, b.i32(int64_t(0x80000000))));
  Value magnitude = b.bitAnd(bits, b.i32(0x7fffffff));
  ordered = b.select(b.equal(magnitude, b.i32(0)), b.i32(int64_t(0x80000000)),
                     ordered);
  Value isNaN = b.unsignedLess(b.i32(0x7f800000), magnitude);
  ordered = b.select(isNaN, b.i32(kNaNKey), ordered);
  if (!holes)
    return ordered;
  return b.select(b.equal(bits, b.i32(int64_t(kNoKey))), b.i32(kHoleKey),
                  ordered);
}

Value TopKKernel::sharedWord(int64_t base, Value index) {
  return b.advance(b.advance(memory, b.shiftLeft(index, 2)), base);
}

Value TopKKernel::scoreAt(Value position) {
  Value offset = b.mul(b.extend(position), b.index(4));
  return b.loadAt(b.getI32Type(), b.advance(start, offset));
}

void TopKKernel::zeroHistograms() {
  Value zeros = arith::ConstantOp::create(
      b, b.getZeroAttr(VectorType::get({4}, b.getI32Type())));
  b.overThreads(
      b.index(0), b.index((kSumsAt - kHistogramsAt) / 16), [&](Value i) {
        b.store16(zeros, b.advance(b.advance(memory, b.mul(i, b.index(16))),
                                   kHistogramsAt));
      });
}

/// All scores of the row from global memory, any order. Where `keep`, keys are
/// also written to shared memory if they fit there.
void TopKKernel::sweepGlobal(Take take, bool keep) {
  b.when(
      aligned, [&] { sweepWide(take, keep); },
      [&] { sweepNarrow(take, keep); });
}

void TopKKernel::sweepWide(Take take, bool keep) {
  Value quads = b.shiftRight(length, 2);
  Value last = b.sub(quads, b.i32(1));
  Value step = b.i32(kThreads * kLoads);
  // A thread beyond the end loads the last four again: loads under no branch
  // are all under way at once.
  scf::ForOp::create(
      b, b.i32(0), quads, step, ValueRange{},
      [&](OpBuilder &nested, Location, Value base, ValueRange) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(nested.getInsertionBlock());
        SmallVector<Value> positions;
        SmallVector<SmallVector<Value>> loaded;
        for (int64_t i = 0; i < kLoads; ++i) {
          Value quad = b.add(b.add(base, thread), b.i32(i * kThreads));
          positions.push_back(quad);
          Value clamped = b.min(quad, last);
          Value offset = b.mul(b.extend(clamped), b.index(16));
          loaded.push_back(
              b.loadSeveral(b.getI32Type(), 4, b.advance(start, offset)));
        }
        for (int64_t i = 0; i < kLoads; ++i) {
          b.when(b.less(positions[i], quads), [&] {
            SmallVector<Value> keys;
            for (Value score : loaded[i])
              keys.push_back(key(score));
            if (keep) {
              b.when(fits, [&] {
                b.storeSeveral(keys,
                               b.advance(memory, b.shiftLeft(positions[i], 4)));
              });
            }
            for (Value each : keys)
              take(each);
          });
        }
        scf::YieldOp::create(b);
      });
  // The rest, up to three.
  Value rest = b.add(b.shiftLeft(quads, 2), thread);
  b.when(b.less(rest, length), [&] {
    Value found = key(scoreAt(rest));
    if (keep)
      b.when(fits, [&] { b.storeAt(found, sharedWord(0, rest)); });
    take(found);
  });
}

void TopKKernel::sweepNarrow(Take take, bool keep) {
  scf::ForOp::create(
      b, thread, length, b.i32(kThreads), ValueRange{},
      [&](OpBuilder &nested, Location, Value position, ValueRange) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(nested.getInsertionBlock());
        Value found = key(scoreAt(position));
        if (keep)
          b.when(fits, [&] { b.storeAt(found, sharedWord(0, position)); });
        take(found);
        scf::YieldOp::create(b);
      });
}

/// All keys of the row from shared memory, any order.
void TopKKernel::sweepShared(Take take) {
  Value quads = b.shiftRight(length, 2);
  scf::ForOp::create(b, thread, quads, b.i32(kThreads), ValueRange{},
                     [&](OpBuilder &nested, Location, Value quad, ValueRange) {
                       OpBuilder::InsertionGuard guard(b);
                       b.setInsertionPointToEnd(nested.getInsertionBlock());
                       Value place = b.advance(memory, b.shiftLeft(quad, 4));
                       for (Value each :
                            b.loadSeveral(b.getI32Type(), 4, place))
                         take(each);
                       scf::YieldOp::create(b);
                     });
  Value rest = b.add(b.shiftLeft(quads, 2), thread);
  b.when(b.less(rest, length),
         [&] { take(b.loadAt(b.getI32Type(), sharedWord(0, rest))); });
}

/// One more key with that digit. The constant increment without a result is one
/// instruction that counts all lanes of a digit at once, so that thousands of
/// equal scores do not wait for each other.
void TopKKernel::count(int64_t histogram, Value digit) {
  LLVM::AtomicRMWOp::create(b, LLVM::AtomicBinOp::add,
                            sharedWord(histogram, digit), b.i32(1),
                            LLVM::AtomicOrdering::monotonic, "block");
}

/// Sum of `value` over this lane and those below.
Value TopKKernel::inclusive(Value value) {
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    Value below = b.shuffleUp(value, distance);
    Value isThere = b.lessEqual(b.i32(distance), lane);
    value = b.add(value, b.select(isThere, below, b.i32(0)));
  }
  return value;
}

/// From each warp's sum (the same in all its lanes): the sum over the warps
/// before this one, and over all. There is a barrier after the stores; callers
/// have one between two calls.
std::pair<Value, Value> TopKKernel::scanWarps(Value warpSum) {
  static_assert(kWarps == kWarp, "one lane for each warp's sum");
  b.when(b.equal(lane, b.i32(0)),
         [&] { b.storeAt(warpSum, sharedWord(kSumsAt, warp)); });
  b.barrier();
  Value own = b.loadAt(b.getI32Type(), sharedWord(kSumsAt, lane));
  Value scanned = inclusive(own);
  Value total = b.shuffleFrom(scanned, b.i32(kWarps - 1));
  Value before = b.shuffleFrom(b.sub(scanned, own), warp);
  return {before, total};
}

/// The first digit from the top with which `wanted` keys are reached, how many
/// of its keys are wanted then, and how many keys the histogram has in all.
/// Where it has fewer than `wanted`, the first two mean nothing.
std::array<Value, 3> TopKKernel::find(int64_t histogram, int64_t bins,
                                      Value wanted) {
  int64_t each = bins / kThreads;
  Type i32 = b.getI32Type();
  b.barrier(); // all have counted
  // This thread's digits, the largest first, and their counts.
  SmallVector<Value> counts;
  Value top = b.sub(b.i32(bins - 1), b.mul(thread, b.i32(each)));
  Value sum = b.i32(0);
  for (int64_t i = 0; i < each; ++i) {
    Value digit = b.sub(top, b.i32(i));
    counts.push_back(b.loadAt(i32, sharedWord(histogram, digit)));
    sum = b.add(sum, counts.back());
  }
  Value scanned = inclusive(sum);
  auto [before, total] = scanWarps(b.shuffleFrom(scanned, b.i32(kWarp - 1)));
  Value above = b.add(before, b.sub(scanned, sum));
  for (int64_t i = 0; i < each; ++i) {
    Value next = b.add(above, counts[i]);
    b.when(b.both(b.less(above, wanted), b.lessEqual(wanted, next)), [&] {
      b.storeAt(b.sub(top, b.i32(i)), b.advance(memory, kFoundAt));
      b.storeAt(b.sub(wanted, above), b.advance(memory, kFoundAt + 4));
    });
    above = next;
  }
  b.barrier();
  return {b.loadAt(i32, b.advance(memory, kFoundAt)),
          b.loadAt(i32, b.advance(memory, kFoundAt + 4)), total};
}

/// The k-th largest key, and how many of the keys that equal it belong to the
/// k. Where there are no more than k candidates: kHoleKey, and none of it.
std::pair<Value, Value> TopKKernel::select() {
  int64_t histogram = kHistogramsAt;
  int64_t shift = 32 - kDigits[0];
  int64_t firstShift = shift;
  auto countFirst = [&](Value each) {
    Value digit = b.shiftRight(each, firstShift);
    if (!holes)
      return count(kHistogramsAt, digit);
    b.when(b.negate(b.equal(each, b.i32(kHoleKey))),
           [&] { count(kHistogramsAt, digit); });
  };
  sweepGlobal(countFirst, /*keep=*/true);
  auto [first, firstWanted, candidates] =
      find(histogram, int64_t(1) << kDigits[0], b.i32(k));
  Value prefix = first, wanted = firstWanted;

  SmallVector<Value> found = b.chooseAll(
      b.less(b.i32(k), candidates),
      [&]() -> SmallVector<Value> {
        for (int64_t pass : {1, 2}) {
          histogram += (int64_t(1) << kDigits[pass - 1]) * 4;
          int64_t above = shift;
          shift -= kDigits[pass];
          int64_t bins = int64_t(1) << kDigits[pass];
          Value upper = prefix;
          auto countNext = [&](Value each) {
            b.when(b.equal(b.shiftRight(each, above), upper), [&] {
              count(histogram,
                    b.bitAnd(b.shiftRight(each, shift), b.i32(bins - 1)));
            });
          };
          b.when(
              fits, [&] { sweepShared(countNext); },
              [&] { sweepGlobal(countNext, /*keep=*/false); });
          auto [digit, left, all] = find(histogram, bins, wanted);
          (void)all;
          prefix = b.bitOr(b.shiftLeft(prefix, kDigits[pass]), digit);
          wanted = left;
        }
        return {prefix, wanted};
      },
      [&]() -> SmallVector<Value> { return {b.i32(kHoleKey), b.i32(0)}; });
  return {found[0], found[1]};
}

/// Writes -1 to the row's columns from `begin` on.
void TopKKernel::pad(Value begin) {
  b.overThreads(b.extend(begin), b.index(k), [&](Value column) {
    b.store(b.i32(-1), result, {resultRow, column});
  });
}

/// Writes the positions of keys above the threshold and of the first `ties`
/// that equal it. Each warp looks at 32 times 32 positions in a row, whose
/// lane j remembers what the j-th 32 of them hold.
void TopKKernel::write(Value threshold, Value ties) {
  Type i32 = b.getI32Type();
  int64_t chunk = kThreads * kWarp;
  Value zero = b.i32(0), one = b.i32(1);
  // Counted with the chunks before: above the threshold, and equal to it.
  auto chunks = scf::ForOp::create(
      b, zero, length, b.i32(chunk), ValueRange{zero, zero},
      [&](OpBuilder &nested, Location, Value base, ValueRange carried) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(nested.getInsertionBlock());
        b.barrier(); // sums before have been read
        Value warpBase = b.add(base, b.mul(warp, b.i32(kWarp * kWarp)));
        auto look = [&](bool inShared) -> SmallVector<Value> {
          auto loop = scf::ForOp::create(
              b, zero, b.i32(kWarp), one, ValueRange{zero, zero},
              [&](OpBuilder &inner, Location, Value j, ValueRange masks) {
                OpBuilder::InsertionGuard guard(b);
                b.setInsertionPointToEnd(inner.getInsertionBlock());
                Value position =
                    b.add(b.add(warpBase, b.shiftLeft(j, 5)), lane);
                Value found = b.choose(
                    b.less(position, length),
                    [&]() -> Value {
                      if (inShared)
                        return b.loadAt(i32, sharedWord(0, position));
                      return key(scoreAt(position));
                    },
                    [&] { return b.i32(kHoleKey); });
                Value above = b.ballot(b.unsignedLess(threshold, found));
                Value equal = b.ballot(b.equal(threshold, found));
                Value mine = b.equal(j, lane);
                scf::YieldOp::create(
                    b, ValueRange{b.select(mine, above, masks[0]),
                                  b.select(mine, equal, masks[1])});
              });
          return SmallVector<Value>(loop.getResults());
        };
        SmallVector<Value> masks = b.chooseAll(
            fits, [&] { return look(true); }, [&] { return look(false); });
        Value above = masks[0], equal = masks[1];

        // Both counts in one integer: a chunk has 2^15 positions.
        Value counts = b.add(LLVM::CtPopOp::create(b, above),
                             b.shiftLeft(LLVM::CtPopOp::create(b, equal), 16));
        Value scanned = inclusive(counts);
        auto [before, total] =
            scanWarps(b.shuffleFrom(scanned, b.i32(kWarp - 1)));
        Value prior = b.add(before, b.sub(scanned, counts));
        auto low = [&](Value both) { return b.bitAnd(both, b.i32(0xffff)); };
        auto high = [&](Value both) { return b.shiftRight(both, 16); };
        Value aboveBefore = b.add(carried[0], low(prior));
        Value equalBefore = b.add(carried[1], high(prior));
        Value to = b.add(aboveBefore, b.min(equalBefore, ties));
        Value left = b.max(zero, b.sub(ties, equalBefore));
        equal = b.select(b.less(zero, left), equal, zero);
        Value position = b.add(warpBase, b.shiftLeft(lane, 5));

        scf::WhileOp::create(
            b, TypeRange{i32, i32, i32},
            ValueRange{b.bitOr(above, equal), to, left},
            [&](OpBuilder &inner, Location, ValueRange state) {
              OpBuilder::InsertionGuard guard(b);
              b.setInsertionPointToEnd(inner.getInsertionBlock());
              Value more = b.negate(b.equal(state[0], zero));
              scf::ConditionOp::create(b, more, state);
            },
            [&](OpBuilder &inner, Location, ValueRange state) {
              OpBuilder::InsertionGuard guard(b);
              b.setInsertionPointToEnd(inner.getInsertionBlock());
              Value mask = state[0];
              Value bit = LLVM::CountTrailingZerosOp::create(
                  b, i32, mask, /*is_zero_poison=*/false);
              Value lowest = b.bitAnd(mask, b.sub(zero, mask));
              Value isTie = b.negate(b.equal(b.bitAnd(equal, lowest), zero));
              Value spent = b.both(isTie, b.lessEqual(state[2], zero));
              Value takes = b.negate(spent);
              b.when(takes, [&] {
                b.store(b.add(position, bit), result,
                        {resultRow, b.extend(state[1])});
              });
              Value next = b.bitXor(mask, lowest);
              scf::YieldOp::create(
                  b,
                  ValueRange{next, b.add(state[1], b.select(takes, one, zero)),
                             b.sub(state[2], b.select(isTie, one, zero))});
            });
        scf::YieldOp::create(b, ValueRange{b.add(carried[0], low(total)),
                                           b.add(carried[1], high(total))});
      });
  Value equalTaken = b.min(chunks.getResult(1), ties);
  pad(b.add(chunks.getResult(0), equalTaken));
}

/// Writes the positions of all scores.
void TopKKernel::writeAll() {
  b.overThreads(b.index(0), b.index(k), [&](Value column) {
    Value position = b.toI32(column);
    Value isThere = b.less(position, length);
    b.store(b.select(isThere, position, b.i32(-1)), result,
            {resultRow, column});
  });
}

void TopKKernel::emit(Value visible, Value firstRow) {
  Value zero = b.index(0);
  Value known = b.min(b.dim(result, 0), b.dim(visible, 0));
  Value rows = b.min(b.dim(scores, 0), b.sub(known, firstRow));
  Value width = b.dim(scores, 1);
  b.overBlocks(zero, rows, [&](Value i) {
    row = i;
    resultRow = b.add(firstRow, i);
    Value seen = b.toIndex(b.load(visible, resultRow));
    length = b.toI32(b.max(zero, b.min(seen, width)));
    start = b.address(scores, {row, zero});
    Value bytes = LLVM::PtrToIntOp::create(b, b.getI64Type(), start);
    Value low = arith::TruncIOp::create(b, b.getI32Type(), bytes);
    aligned = b.equal(b.bitAnd(low, b.i32(15)), b.i32(0));
    fits = b.lessEqual(length, b.i32(kCapacity));
    auto general = [&] {
      zeroHistograms();
      b.barrier();
      auto [threshold, ties] = select();
      // No barrier for the next row: the one behind its zeros keeps its keys
      // from overtaking, and histograms were read several barriers ago.
      write(threshold, ties);
    };
    if (holes)
      return general();
    b.when(b.lessEqual(length, b.i32(k)), [&] { writeAll(); }, general);
  });
}

KernelShape mlir::shardq::getTopKShape(int64_t k) {
  KernelShape shape;
  shape.threads = kThreads;
  shape.dynamicShared = kSharedBytes;
  return shape;
}

void mlir::shardq::emitTopKKernel(KernelBuilder &b, int64_t k, bool holes,
                                  Value scores, Value visible, Value firstRow,
                                  Value result) {
  TopKKernel(b, k, holes, scores, result).emit(visible, firstRow);
}
