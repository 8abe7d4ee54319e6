//===- IndexerLoops.cpp - Scores and exact top-k --------------------------===//

#include "Kernels.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// Buffers of the selection among the candidates of one row.
struct Candidates {
  Value scores;    // f32, one per candidate
  Value positions; // i32, ascending
  Value keys;      // i32, the scores as ordered integers
  Value histogram; // 256 x i32
};

} // namespace

static Candidates allocateCandidates(LoopBuilder &b, Value capacity) {
  int64_t dynamic = ShapedType::kDynamic;
  return {b.scratch({dynamic}, b.getF32Type(), capacity),
          b.scratch({dynamic}, b.getI32Type(), capacity),
          b.scratch({dynamic}, b.getI32Type(), capacity),
          b.scratch({256}, b.getI32Type())};
}

static void freeCandidates(LoopBuilder &b, const Candidates &c) {
  b.free({c.scores, c.positions, c.keys, c.histogram});
}

/// An unsigned integer in the order of the scores: NaN is 0, below -inf, and
/// -0.0 is 0.0. Flips the sign of positive numbers and all bits of others.
static Value emitOrderedKey(LoopBuilder &b, Value score) {
  Type i32 = b.getI32Type();
  // -0.0 + 0.0 is 0.0.
  Value bits = arith::BitcastOp::create(b, i32, b.add(score, b.f32(0.0)));
  Value sign = arith::ShRSIOp::create(b, bits, b.i32(31));
  Value mask = arith::OrIOp::create(b, sign, b.i32(int64_t(0x80000000)));
  Value key = arith::XOrIOp::create(b, bits, mask);
  Value isNaN =
      arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, score, score);
  return b.select(isNaN, b.i32(0), key);
}

/// The k-th largest key, `1 <= k <= n`, and how many of the keys that equal it
/// belong to the k: found digit by digit from the top, exact for any scores.
static std::pair<Value, Value> emitSelect(LoopBuilder &b, const Candidates &c,
                                          Value n, int64_t k) {
  Value zero = b.index(0);
  Value prefix = b.i32(0), left = b.index(k);
  for (int shift : {24, 16, 8, 0}) {
    Value amount = b.i32(shift);
    // Digits above this one; those of the first pass are all alike.
    auto upper = [&](Value key) -> Value {
      if (shift == 24)
        return b.i32(0);
      return arith::ShRUIOp::create(b, key, b.i32(shift + 8));
    };
    b.fill(c.histogram, b.i32(0));
    Value wanted = upper(prefix);
    b.loop(zero, n, [&](Value i) {
      Value key = b.load(c.keys, i);
      Value digit = arith::AndIOp::create(
          b, arith::ShRUIOp::create(b, key, amount), b.i32(255));
      Value at = arith::IndexCastUIOp::create(b, b.getIndexType(), digit);
      Value same = arith::ExtUIOp::create(b, b.getI32Type(),
                                          b.equal(upper(key), wanted));
      b.store(b.add(b.load(c.histogram, at), same), c.histogram, at);
    });
    // The first digit from the top at which `left` keys are reached.
    SmallVector<Value> found =
        b.loop(zero, b.index(256), {zero, zero, b.index(-1)},
               [&](Value i, ValueRange carried) -> SmallVector<Value> {
                 Value digit = b.sub(b.index(255), i);
                 Value count = b.toIndex(b.load(c.histogram, digit));
                 Value above = carried[0], aboveFound = carried[1],
                       digitFound = carried[2];
                 Value next = b.add(above, count);
                 Value hit =
                     b.both(b.less(digitFound, zero), b.lessEqual(left, next));
                 return {next, b.select(hit, above, aboveFound),
                         b.select(hit, digit, digitFound)};
               });
    left = b.sub(left, found[1]);
    Value digit = b.fromIndex(found[2], b.getI32Type());
    prefix = arith::OrIOp::create(b, prefix,
                                  arith::ShLIOp::create(b, digit, amount));
  }
  return {prefix, left};
}

/// Writes the positions of the k largest of `n` candidates to row `row` of
/// `result`, ascending, -1 behind them.
static void emitTopKRow(LoopBuilder &b, const Candidates &c, Value n, int64_t k,
                        Value result, Value row) {
  Value zero = b.index(0), one = b.index(1);
  b.fillRow(result, row, b.i32(-1));
  b.when(
      b.lessEqual(n, b.index(k)),
      [&] {
        b.loop(zero, n, [&](Value i) {
          b.store(b.load(c.positions, i), result, {row, i});
        });
      },
      [&] {
        b.loop(zero, n, [&](Value i) {
          b.store(emitOrderedKey(b, b.load(c.scores, i)), c.keys, i);
        });
        auto [threshold, ties] = emitSelect(b, c, n, k);
        Value kth = threshold;
        // Ties go to the lowest positions, which come first.
        b.loop(zero, n, {zero, ties},
               [&](Value i, ValueRange carried) -> SmallVector<Value> {
                 Value key = b.load(c.keys, i);
                 Value above = arith::CmpIOp::create(
                     b, arith::CmpIPredicate::ugt, key, kth);
                 Value tie =
                     b.both(b.equal(key, kth), b.less(zero, carried[1]));
                 Value take = arith::OrIOp::create(b, above, tie);
                 b.when(take, [&] {
                   b.store(b.load(c.positions, i), result, {row, carried[0]});
                 });
                 return {b.add(carried[0], b.select(take, one, zero)),
                         b.sub(carried[1], b.select(tie, one, zero))};
               });
      });
}

void mlir::shardq::emitTopK(LoopBuilder &b, TopKOp op, ValueRange args) {
  Value scores = args[0], visible = args[1], result = args[2];
  Value zero = b.index(0), width = b.dim(scores, 1);
  Candidates c = allocateCandidates(b, width);
  b.loop(zero, width, [&](Value i) {
    b.store(b.fromIndex(i, b.getI32Type()), c.positions, i);
  });
  b.loop(zero, b.dim(result, 0), [&](Value row) {
    Value n = b.max(zero, b.min(b.toIndex(b.load(visible, row)), width));
    b.loop(zero, n,
           [&](Value i) { b.store(b.load(scores, {row, i}), c.scores, i); });
    emitTopKRow(b, c, n, op.getK(), result, row);
  });
  freeCandidates(b, c);
}

void mlir::shardq::emitIndexer(LoopBuilder &b, IndexerOp op, ValueRange args) {
  Value q = args[0], weights = args[1], keys = args[2], table = args[3],
        req = args[4], visible = args[5], result = args[6];
  auto qType = cast<MemRefType>(q.getType());
  int64_t heads = qType.getDimSize(1), dim = qType.getDimSize(2);
  // Heads lie across vector lanes, so that no sum over lanes is needed until
  // the last; lanes beyond the heads hold zeros.
  int64_t lanes = llvm::alignTo(heads, 16);
  auto vectorType = VectorType::get({lanes}, b.getF32Type());
  Value zero = b.index(0), one = b.index(1);

  Value span = b.mul(b.dim(table, 1), b.index(op.getBlockSize()));
  Candidates c = allocateCandidates(b, span);
  Value rows = b.scratch({ShapedType::kDynamic}, b.getIndexType(), span);
  Value queries = b.scratch({dim, lanes}, b.getF32Type());
  Value weightRow = b.scratch({lanes}, b.getF32Type());
  b.fill(queries, b.f32(0.0));
  b.fill(weightRow, b.f32(0.0));

  b.loop(zero, b.dim(result, 0), [&](Value row) {
    Value request = b.toIndex(b.load(req, row));
    Value seen = b.max(zero, b.min(b.toIndex(b.load(visible, row)), span));

    // Candidates: visible positions whose key exists.
    SmallVector<Value> n =
        b.loop(zero, seen, zero,
               [&](Value position, ValueRange carried) -> SmallVector<Value> {
                 Value key =
                     emitPagedRow(b, table, request, position,
                                  op.getBlockSize(), op.getBlockStride());
                 Value exists = b.inRange(key, zero, b.dim(keys, 0));
                 b.when(exists, [&] {
                   b.store(key, rows, carried[0]);
                   b.store(b.fromIndex(position, b.getI32Type()), c.positions,
                           carried[0]);
                 });
                 return {b.add(carried[0], b.select(exists, one, zero))};
               });

    b.loop(zero, b.index(heads), [&](Value head) {
      b.store(b.load(weights, {row, head}), weightRow, head);
      b.loop(zero, b.index(dim), [&](Value d) {
        b.store(b.loadF32(q, {row, head, d}), queries, {d, head});
      });
    });
    Value weight =
        vector::LoadOp::create(b, vectorType, weightRow, ValueRange{zero});
    Value noScore = arith::ConstantOp::create(b, b.getZeroAttr(vectorType));
    b.loop(zero, n[0], [&](Value candidate) {
      Value key = b.load(rows, candidate);
      SmallVector<Value> dots =
          b.loop(zero, b.index(dim), noScore,
                 [&](Value d, ValueRange carried) -> SmallVector<Value> {
                   Value value = vector::BroadcastOp::create(
                       b, vectorType, b.loadF32(keys, {key, d}));
                   Value query = vector::LoadOp::create(b, vectorType, queries,
                                                        ValueRange{d, zero});
                   return {vector::FMAOp::create(b, query, value, carried[0])};
                 });
      // maximumf keeps a NaN, which top-k sorts below everything.
      Value positive = arith::MaximumFOp::create(b, dots[0], noScore);
      Value weighted = arith::MulFOp::create(b, positive, weight);
      Value score =
          vector::ReductionOp::create(b, vector::CombiningKind::ADD, weighted,
                                      arith::FastMathFlags::reassoc);
      b.store(score, c.scores, candidate);
    });
    emitTopKRow(b, c, n[0], op.getK(), result, row);
  });
  freeCandidates(b, c);
  b.free({rows, queries, weightRow});
}
