//===- AttentionLoops.cpp - Sparse MLA ------------------------------------===//

#include "Kernels.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

/// Keys that are converted to f32 and attended at a time: with 576 values
/// each they stay in a second-level cache.
static constexpr int64_t kKeyBlock = 64;
/// Keys of one inner loop, which shares its loads of q or out among them.
static constexpr int64_t kKeyUnroll = 4;

namespace {

/// Writes the attention of one row after another.
class AttentionKernel {
public:
  AttentionKernel(LoopBuilder &b, SparseMlaOp op, ValueRange args);
  void emit();

private:
  void loadQuery(Value row);
  Value collectSlots(Value row);
  void attendBlock(Value begin, Value numKeys);
  void scoreHead(Value head, Value numKeys);
  void addValues(Value head, Value numKeys, Value correction);
  void writeRow(Value row, Value numValid);
  Value number(double value);
  Value widen(Value value);
  Value narrow(Value value);

  LoopBuilder &b;
  SparseMlaOp op;
  SmallVector<Value> q;
  Value kv, slots, req, topkLength, sink, out, lse;
  int64_t heads, queryDim, valueDim;
  Value zero, one;
  /// Scores, and what is made of them up to the weights: f32 for 16-bit rows.
  /// For f32 rows f64, since an error of a score is a relative error of its
  /// weight, and scores of 10 rounded to f32 would cost four bits.
  Type score;

  // Of the row at hand: `query`, `keys`, `partial` and `sum` in f32; `weights`,
  // `maximum` and `total` as scores.
  Value query;   // [heads, queryDim]
  Value valid;   // [K] index: slots of the valid entries
  Value keys;    // [kKeyBlock, queryDim]
  Value weights; // [kKeyBlock]: scores, then their exponentials, of one head
  Value partial; // [valueDim]: sum over the block, of one head
  Value sum;     // [heads, valueDim]
  Value maximum; // [heads]
  Value total;   // [heads]
};

} // namespace

AttentionKernel::AttentionKernel(LoopBuilder &b, SparseMlaOp op,
                                 ValueRange args)
    : b(b), op(op), heads(op.getNumHeads()), queryDim(op.getQueryDim()),
      valueDim(op.getValueDim()), zero(b.index(0)), one(b.index(1)) {
  Type element = cast<MemRefType>(args.front().getType()).getElementType();
  score = element.isF32() ? b.getF64Type() : b.getF32Type();
  unsigned next = 0;
  for (unsigned part = 0; part < op.getQ().size(); ++part)
    q.push_back(args[next++]);
  kv = args[next++];
  slots = args[next++];
  if (op.getReq())
    req = args[next++];
  if (op.getTopkLength())
    topkLength = args[next++];
  if (op.getSink())
    sink = args[next++];
  out = args[next++];
  if (op.hasLse())
    lse = args[next++];
}

Value AttentionKernel::number(double value) {
  return arith::ConstantOp::create(b, b.getFloatAttr(score, value));
}

Value AttentionKernel::widen(Value value) {
  if (value.getType() == score)
    return value;
  return arith::ExtFOp::create(b, score, value);
}

Value AttentionKernel::narrow(Value value) {
  if (value.getType().isF32())
    return value;
  return arith::TruncFOp::create(b, b.getF32Type(), value);
}

void AttentionKernel::loadQuery(Value row) {
  int64_t offset = 0;
  for (Value part : q) {
    int64_t width = cast<MemRefType>(part.getType()).getDimSize(2);
    b.loop(zero, b.index(heads), [&](Value head) {
      b.loop(zero, b.index(width), [&](Value d) {
        b.store(b.loadF32(part, {row, head, d}), query,
                {head, b.add(d, b.index(offset))});
      });
    });
    offset += width;
  }
}

/// Gathers the row's valid slots, in order, and returns how many there are.
/// Only these are ever read.
Value AttentionKernel::collectSlots(Value row) {
  Value columns = b.dim(slots, 1);
  if (topkLength) {
    Value length = b.toIndex(b.load(topkLength, row));
    columns = b.max(zero, b.min(length, columns));
  }
  if (req) {
    Value isRow = b.lessEqual(zero, b.toIndex(b.load(req, row)));
    columns = b.select(isRow, columns, zero);
  }
  return b
      .loop(zero, columns, zero,
            [&](Value column, ValueRange carried) -> SmallVector<Value> {
              Value slot = b.toIndex(b.load(slots, {row, column}));
              Value known = b.inRange(slot, zero, b.dim(kv, 0));
              // Written always and counted only when known: no branch.
              b.store(slot, valid, carried[0]);
              return {b.add(carried[0], b.select(known, one, zero))};
            })
      .front();
}

/// weights[j] = scale * query[head] . keys[j].
void AttentionKernel::scoreHead(Value head, Value numKeys) {
  Value scale = number(op.getScale().convertToDouble());
  auto dot = [&](Value first, int64_t count) {
    SmallVector<Value> inits(count, number(0.0));
    SmallVector<Value> dots = b.loop(
        zero, b.index(queryDim), inits,
        [&](Value d, ValueRange carried) -> SmallVector<Value> {
          Value value = widen(b.load(query, {head, d}));
          SmallVector<Value> next;
          for (int64_t j = 0; j < count; ++j)
            next.push_back(b.multiplyAdd(
                value, widen(b.load(keys, {b.add(first, b.index(j)), d})),
                carried[j]));
          return next;
        });
    for (int64_t j = 0; j < count; ++j)
      b.store(b.mul(dots[j], scale), weights, b.add(first, b.index(j)));
  };
  Value rest = arith::RemUIOp::create(b, numKeys, b.index(kKeyUnroll));
  Value whole = b.sub(numKeys, rest);
  b.loop(zero, whole, [&](Value j) { dot(j, kKeyUnroll); }, kKeyUnroll);
  b.loop(whole, numKeys, [&](Value j) { dot(j, 1); });
}

/// sum[head] = sum[head] * correction + sum_j weights[j] * keys[j]. The block
/// is summed on its own first: fewer roundings at the size of the whole.
void AttentionKernel::addValues(Value head, Value numKeys, Value correction) {
  b.fill(partial, b.f32(0.0));
  auto accumulate = [&](Value first, int64_t count) {
    SmallVector<Value> p;
    for (int64_t j = 0; j < count; ++j)
      p.push_back(narrow(b.load(weights, b.add(first, b.index(j)))));
    b.loop(zero, b.index(valueDim), [&](Value d) {
      Value value = b.load(partial, d);
      for (int64_t j = 0; j < count; ++j)
        value = b.multiplyAdd(p[j], b.load(keys, {b.add(first, b.index(j)), d}),
                              value);
      b.store(value, partial, d);
    });
  };
  Value rest = arith::RemUIOp::create(b, numKeys, b.index(kKeyUnroll));
  Value whole = b.sub(numKeys, rest);
  b.loop(zero, whole, [&](Value j) { accumulate(j, kKeyUnroll); }, kKeyUnroll);
  b.loop(whole, numKeys, [&](Value j) { accumulate(j, 1); });
  b.loop(zero, b.index(valueDim), [&](Value d) {
    Value scaled =
        b.multiplyAdd(b.load(sum, {head, d}), correction, b.load(partial, d));
    b.store(scaled, sum, {head, d});
  });
}

/// Attends `numKeys` valid entries from `begin`: online softmax.
void AttentionKernel::attendBlock(Value begin, Value numKeys) {
  b.loop(zero, numKeys, [&](Value j) {
    Value slot = b.load(valid, b.add(begin, j));
    if (PackedRowsAttr format = op.getKvFormatAttr())
      return emitUnpackedRow(b, format, kv, slot, [&](Value d, Value value) {
        b.store(arith::ExtFOp::create(b, b.getF32Type(), value), keys, {j, d});
      });
    b.loop(zero, b.index(queryDim),
           [&](Value d) { b.store(b.loadF32(kv, {slot, d}), keys, {j, d}); });
  });
  b.loop(zero, b.index(heads), [&](Value head) {
    scoreHead(head, numKeys);
    Value before = b.load(maximum, head);
    Value after =
        b.loop(zero, numKeys, before,
               [&](Value j, ValueRange carried) -> SmallVector<Value> {
                 return {b.max(carried[0], b.load(weights, j))};
               })
            .front();
    Value blockTotal =
        b.loop(zero, numKeys, number(0.0),
               [&](Value j, ValueRange carried) -> SmallVector<Value> {
                 Value p =
                     math::ExpOp::create(b, b.sub(b.load(weights, j), after));
                 b.store(p, weights, j);
                 return {b.add(carried[0], p)};
               })
            .front();
    Value correction = math::ExpOp::create(b, b.sub(before, after));
    b.store(b.add(b.mul(b.load(total, head), correction), blockTotal), total,
            head);
    b.store(after, maximum, head);
    addValues(head, numKeys, narrow(correction));
  });
}

void AttentionKernel::writeRow(Value row, Value numValid) {
  Value noKey = b.equal(numValid, zero);
  Value minusInfinity = number(-std::numeric_limits<double>::infinity());
  b.loop(zero, b.index(heads), [&](Value head) {
    Value top = b.load(maximum, head), denominator = b.load(total, head);
    if (lse) {
      Value value = b.add(top, math::LogOp::create(b, denominator));
      if (op.getLseBase() == LseBase::Two)
        value = b.mul(value, number(1.0 / llvm::numbers::ln2));
      b.storeF32(narrow(b.select(noKey, minusInfinity, value)), lse,
                 {row, head});
    }
    Value factor = number(1.0);
    if (sink) {
      // Both terms relative to the larger exponent, so that neither overflows.
      Value sinkValue = widen(b.load(sink, head));
      Value joint = b.max(top, sinkValue);
      factor = math::ExpOp::create(b, b.sub(top, joint));
      denominator = b.add(b.mul(denominator, factor),
                          math::ExpOp::create(b, b.sub(sinkValue, joint)));
    }
    factor = arith::DivFOp::create(b, factor, denominator);
    factor = narrow(b.select(noKey, number(0.0), factor));
    b.loop(zero, b.index(valueDim), [&](Value d) {
      b.storeF32(b.mul(b.load(sum, {head, d}), factor), out, {row, head, d});
    });
  });
}

void AttentionKernel::emit() {
  Type f32 = b.getF32Type();
  query = b.scratch({heads, queryDim}, f32);
  // One more entry, since collectSlots writes before it knows.
  valid = b.scratch({ShapedType::kDynamic}, b.getIndexType(),
                    b.add(b.dim(slots, 1), one));
  keys = b.scratch({kKeyBlock, queryDim}, f32);
  weights = b.scratch({kKeyBlock}, score);
  partial = b.scratch({valueDim}, f32);
  sum = b.scratch({heads, valueDim}, f32);
  maximum = b.scratch({heads}, score);
  total = b.scratch({heads}, score);

  b.loop(zero, b.dim(out, 0), [&](Value row) {
    loadQuery(row);
    Value numValid = collectSlots(row);
    b.fill(sum, b.f32(0.0));
    b.fill(total, number(0.0));
    b.fill(maximum, number(-std::numeric_limits<double>::infinity()));
    b.loop(
        zero, numValid,
        [&](Value begin) {
          attendBlock(begin, b.min(b.index(kKeyBlock), b.sub(numValid, begin)));
        },
        kKeyBlock);
    writeRow(row, numValid);
  });
  b.free({query, valid, keys, weights, partial, sum, maximum, total});
}

void mlir::shardq::emitSparseMla(LoopBuilder &b, SparseMlaOp op,
                                 ValueRange args) {
  AttentionKernel(b, op, args).emit();
}
