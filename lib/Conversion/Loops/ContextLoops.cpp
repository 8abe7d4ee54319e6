//===- ContextLoops.cpp - Own keys, and the merge of partial outputs ------===//

#include "Kernels.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "shardq/IR/CarrierOps.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// Which tokens of a sequence this rank keeps. All numbers are 64-bit indices.
struct Ownership {
  Ownership(LoopBuilder &b, FlatSymbolRefAttr mesh, StringAttr axis,
            int64_t ranks, int64_t interleave)
      : b(b), ranks(ranks), interleave(interleave),
        me(RankOp::create(b, b.getIndexType(), mesh, axis)) {}

  // Positions are not negative here or their results ignored.
  Value div(Value value, int64_t by) {
    return arith::DivUIOp::create(b, value, b.index(by));
  }
  Value rem(Value value, int64_t by) {
    return arith::RemUIOp::create(b, value, b.index(by));
  }
  Value getOwner(Value position) {
    return rem(div(position, interleave), ranks);
  }
  Value isMine(Value position) { return b.equal(getOwner(position), me); }
  Value getLocal(Value position) {
    Value runs = div(position, ranks * interleave);
    return b.add(b.mul(runs, b.index(interleave)), rem(position, interleave));
  }
  Value getLength(Value length) {
    Value run = b.index(interleave), zero = b.index(0);
    Value base = b.mul(div(length, ranks * interleave), run);
    Value rest = b.sub(length, b.mul(base, b.index(ranks)));
    return b.add(base, b.max(zero, b.min(b.sub(rest, b.mul(me, run)), run)));
  }

  LoopBuilder &b;
  int64_t ranks, interleave;
  Value me;
};

} // namespace

static int64_t getRanks(Operation *op, FlatSymbolRefAttr mesh, StringRef axis) {
  return lookupMeshAxis(op, mesh, axis).axis.getSize();
}

void mlir::shardq::emitLocalLengths(LoopBuilder &b, LocalLengthsOp op,
                                    ValueRange args) {
  Value lengths = args[0], result = args[1], zero = b.index(0);
  Ownership own(b, op.getMeshAttr(), op.getAxisAttr(),
                getRanks(op, op.getMeshAttr(), op.getAxis()),
                op.getInterleave());
  b.loop(zero, b.dim(result, 0), [&](Value i) {
    Value length = b.max(b.toIndex(b.load(lengths, i)), zero);
    b.store(b.fromIndex(own.getLength(length), b.getI32Type()), result, i);
  });
}

void mlir::shardq::emitDraftLengths(LoopBuilder &b, ValueRange args) {
  Value lengths = args[0], result = args[2], zero = b.index(0);
  Value most = b.index(std::numeric_limits<int32_t>::max());
  // Sums of two numbers of 31 bits do not overflow.
  Value step = b.max(zero, b.min(args[1], most));
  Value drafted = b.add(step, b.index(1));
  b.loop(zero, b.dim(result, 0), [&](Value i) {
    Value length = b.toIndex(b.load(lengths, i));
    Value sum = b.min(b.add(length, drafted), most);
    sum = b.select(b.less(zero, length), sum, zero);
    b.store(b.fromIndex(sum, b.getI32Type()), result, i);
  });
}

void mlir::shardq::emitFilterIndices(LoopBuilder &b, FilterIndicesOp op,
                                     ValueRange args) {
  bool hasTable = bool(op.getTable()), hasCounts = op.getNumOuts() == 2;
  Value indices = args[0];
  Value table = hasTable ? args[1] : Value(),
        req = hasTable ? args[2] : Value();
  Value slots = args[hasTable ? 3 : 1];
  Value counts = hasCounts ? args[hasTable ? 4 : 2] : Value();
  Type slotType = cast<MemRefType>(slots.getType()).getElementType();
  Value zero = b.index(0), one = b.index(1), none = b.index(-1);
  Value noSlot = b.fromIndex(none, slotType);
  Value limit =
      b.index(slotType.isInteger(32) ? std::numeric_limits<int32_t>::max()
                                     : std::numeric_limits<int64_t>::max());
  Ownership own(b, op.getMeshAttr(), op.getAxisAttr(),
                getRanks(op, op.getMeshAttr(), op.getAxis()),
                op.getInterleave());

  b.loop(zero, b.dim(indices, 0), [&](Value row) {
    Value request = hasTable ? b.toIndex(b.load(req, row)) : Value();
    Value width = b.dim(indices, 1);
    auto filterColumn = [&](Value column,
                            ValueRange carried) -> SmallVector<Value> {
      Value position = b.toIndex(b.load(indices, {row, column}));
      Value mine = b.both(b.lessEqual(zero, position), own.isMine(position));
      Value slot = b.choose(
          mine,
          [&] {
            Value local = own.getLocal(position);
            if (!hasTable)
              return local;
            return emitPagedRow(b, table, request, local, *op.getBlockSize(),
                                op.getBlockStride());
          },
          [&] { return none; });
      Value valid = b.both(b.lessEqual(zero, slot), b.lessEqual(slot, limit));
      slot = b.select(valid, slot, none);
      Value next = b.add(carried[0], b.select(valid, one, zero));
      if (op.getInPlace())
        b.store(b.fromIndex(slot, slotType), slots, {row, column});
      else
        b.when(valid, [&] {
          b.store(b.fromIndex(slot, slotType), slots, {row, carried[0]});
        });
      return {next};
    };
    Value count = b.loop(zero, width, zero, filterColumn).front();
    if (!op.getInPlace())
      b.loop(count, width,
             [&](Value column) { b.store(noSlot, slots, {row, column}); });
    if (hasCounts)
      b.store(b.fromIndex(count, b.getI32Type()), counts, row);
  });
}

void mlir::shardq::emitGatheredSlots(LoopBuilder &b, GatheredSlotsOp op,
                                     ValueRange args) {
  bool hasCounts = op.getNumOuts() == 2;
  Value indices = args[0], inverse = args[1], count = args[2], req = args[3];
  Value slots = args[4], counts = hasCounts ? args[5] : Value();
  Type slotType = cast<MemRefType>(slots.getType()).getElementType();
  Value zero = b.index(0), one = b.index(1), none = b.index(-1);
  Value limit =
      b.index(slotType.isInteger(32) ? std::numeric_limits<int32_t>::max()
                                     : std::numeric_limits<int64_t>::max());
  int64_t blockSize = op.getBlockSize();
  Ownership own(b, op.getMeshAttr(), op.getAxisAttr(),
                getRanks(op, op.getMeshAttr(), op.getAxis()),
                op.getInterleave());
  Value rankRows = b.mul(b.toIndex(b.load(count, zero)), b.index(blockSize));

  b.loop(zero, b.dim(indices, 0), [&](Value row) {
    Value request = b.toIndex(b.load(req, row));
    auto convertColumn = [&](Value column,
                             ValueRange carried) -> SmallVector<Value> {
      Value position = b.toIndex(b.load(indices, {row, column}));
      Value slot = b.choose(
          b.lessEqual(zero, position),
          [&] {
            // The gathered rows of a rank are pages, and `inverse` their table.
            Value paged =
                emitPagedRow(b, inverse, request, own.getLocal(position),
                             blockSize, blockSize);
            Value first = b.mul(own.getOwner(position), rankRows);
            return b.select(b.lessEqual(zero, paged), b.add(first, paged),
                            none);
          },
          [&] { return none; });
      slot = b.select(b.lessEqual(slot, limit), slot, none);
      b.store(b.fromIndex(slot, slotType), slots, {row, column});
      Value valid = b.lessEqual(zero, slot);
      return {b.add(carried[0], b.select(valid, one, zero))};
    };
    Value valid = b.loop(zero, b.dim(indices, 1), zero, convertColumn).front();
    if (hasCounts)
      b.store(b.fromIndex(valid, b.getI32Type()), counts, row);
  });
}

void mlir::shardq::emitTokenSlots(LoopBuilder &b, TokenSlotsOp op,
                                  ValueRange args) {
  Value table = args[0], req = args[1], visible = args[2], slots = args[3];
  Type slotType = cast<MemRefType>(slots.getType()).getElementType();
  Value zero = b.index(0), none = b.index(-1);
  Value limit =
      b.index(slotType.isInteger(32) ? std::numeric_limits<int32_t>::max()
                                     : std::numeric_limits<int64_t>::max());
  std::optional<Ownership> own;
  if (op.getMeshAttr())
    own.emplace(b, op.getMeshAttr(), op.getAxisAttr(),
                getRanks(op, op.getMeshAttr(), *op.getAxis()),
                *op.getInterleave());
  b.loop(zero, b.dim(slots, 0), [&](Value row) {
    Value request = b.toIndex(b.load(req, row));
    Value position = b.sub(b.toIndex(b.load(visible, row)), b.index(1));
    Value isMine =
        b.both(b.lessEqual(zero, position), b.lessEqual(zero, request));
    if (own)
      isMine = b.both(isMine, own->isMine(position));
    Value slot = b.choose(
        isMine,
        [&] {
          Value local = own ? own->getLocal(position) : position;
          auto isBeyond = [&](Value block, Value requests, Value width) {
            BeyondTableOp::create(b, block, request, requests, width);
          };
          auto isNone = [&](Value block, Value entry) {
            NoPlaceOp::create(b, block, request, entry);
          };
          return emitWrittenRow(b, op, table, request, local, limit,
                                {isBeyond, isNone});
        },
        [&] { return none; });
    b.store(b.fromIndex(slot, slotType), slots, row);
  });
}

void mlir::shardq::emitGatherAllBlocks(LoopBuilder &b, GatherBlocksOp op,
                                       ValueRange args) {
  Value table = args[0], pool = op.getPool() ? args[2] : Value();
  ValueRange outs = args.take_back(3);
  Value blocks = outs[0], inverse = outs[1], count = outs[2];
  Value zero = b.index(0), width = b.dim(table, 1);
  Value entries = b.mul(b.dim(table, 0), width);
  b.loop(zero, b.dim(table, 0), [&](Value request) {
    b.loop(zero, width, [&](Value column) {
      Value entry = b.load(table, {request, column});
      Value place = b.add(b.mul(request, width), column);
      b.store(entry, blocks, place);
      Value isBlock = b.lessEqual(b.i32(0), entry);
      if (pool)
        isBlock = b.both(isBlock, b.less(b.toIndex(entry), pool));
      Value number = b.select(isBlock, place, b.index(-1));
      b.store(b.fromIndex(number, b.getI32Type()), inverse, {request, column});
    });
  });
  b.store(b.fromIndex(entries, b.getI32Type()), count, zero);
}

//===----------------------------------------------------------------------===//
// Merge
//===----------------------------------------------------------------------===//

/// NaN and +inf become -inf.
static Value sanitize(LoopBuilder &b, Value lse) {
  Value below =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, lse,
                            b.f32(std::numeric_limits<double>::infinity()));
  return b.select(below, lse, b.f32(-std::numeric_limits<double>::infinity()));
}

/// The LSE behind a head's values.
static Value loadLse(LoopBuilder &b, Value inbox, Value row, Value head,
                     int64_t values) {
  Type element = cast<MemRefType>(inbox.getType()).getElementType();
  Value lse;
  if (element.isF32()) {
    lse = b.load(inbox, {row, head, b.index(values)});
  } else {
    auto loadHalf = [&](int64_t half) -> Value {
      Value part = b.load(inbox, {row, head, b.index(values + half)});
      part = arith::BitcastOp::create(b, b.getI16Type(), part);
      return arith::ExtUIOp::create(b, b.getI32Type(), part);
    };
    Value high = arith::ShLIOp::create(b, loadHalf(1), b.i32(16));
    Value bits = arith::OrIOp::create(b, high, loadHalf(0));
    lse = arith::BitcastOp::create(b, b.getF32Type(), bits);
  }
  return sanitize(b, lse);
}

namespace {
/// The arithmetic of LSEs of a base.
struct Base {
  Base(LoopBuilder &b, LseBase base)
      : b(b), isTwo(base == LseBase::Two),
        toTwo(b.f32(isTwo ? 1.0 : llvm::numbers::log2e)) {}
  /// `base ^ (lse - top)`, the difference first.
  Value weigh(Value lse, Value top) {
    return math::Exp2Op::create(b, b.mul(b.sub(lse, top), toTwo));
  }
  /// `e ^ (sink - top)`, of a natural logarithm and an LSE of the base.
  Value weighSink(Value sink, Value top) {
    if (!isTwo)
      return weigh(sink, top);
    Value power = b.sub(b.mul(sink, b.f32(llvm::numbers::log2e)), top);
    return math::Exp2Op::create(b, power);
  }
  Value log(Value value) {
    if (isTwo)
      return math::Log2Op::create(b, value);
    return math::LogOp::create(b, value);
  }

  LoopBuilder &b;
  bool isTwo;
  Value toTwo;
};
} // namespace

void mlir::shardq::emitMergeLse(LoopBuilder &b, MergeLseOp op,
                                ValueRange args) {
  Value inbox = args[0], out = args[1];
  Value merged = op.getMerged() ? args[2] : Value();
  Value sink = op.getSink() ? args.back() : Value();
  int64_t ranks = getRanks(op, op.getMeshAttr(), op.getAxis());
  auto type = cast<MemRefType>(out.getType());
  int64_t heads = type.getDimSize(1), values = type.getDimSize(2);
  Value zero = b.index(0), width = b.index(values);
  Value infinity = b.f32(-std::numeric_limits<double>::infinity());
  Base base(b, op.getLseBase());
  Value sums = b.scratch({values}, b.getF32Type());
  Value lses = b.scratch({ranks}, b.getF32Type());
  Value rows = arith::DivUIOp::create(b, b.dim(inbox, 0), b.index(ranks));

  Value count = b.dim(out, 0);
  if (merged)
    count = b.min(count, b.dim(merged, 0));
  b.loop(zero, count, [&](Value row) {
    // Rows that types promise and nobody sent have no members.
    Value members = b.select(b.less(row, rows), b.index(ranks), zero);
    b.loop(zero, b.index(heads), [&](Value head) {
      auto rowOf = [&](Value member) {
        return b.add(b.mul(member, rows), row);
      };
      auto findMax = [&](Value member,
                         ValueRange carried) -> SmallVector<Value> {
        Value lse = loadLse(b, inbox, rowOf(member), head, values);
        b.store(lse, lses, member);
        return {b.max(carried[0], lse)};
      };
      Value top = b.loop(zero, members, infinity, findMax).front();
      b.fill(sums, b.f32(0.0));
      auto add = [&](Value member, ValueRange carried) -> SmallVector<Value> {
        Value lse = b.load(lses, member);
        Value takesPart =
            arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, lse, infinity);
        Value weight = b.choose(
            takesPart,
            [&] {
              Value w = base.weigh(lse, top);
              b.loop(zero, width, [&](Value d) {
                Value value = b.loadF32(inbox, {rowOf(member), head, d});
                b.store(b.multiplyAdd(w, value, b.load(sums, d)), sums, d);
              });
              return w;
            },
            [&] { return b.f32(0.0); });
        return {b.add(carried[0], weight)};
      };
      Value total = b.loop(zero, members, b.f32(0.0), add).front();
      Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, total,
                                            b.f32(0.0));
      Value divisor = b.select(isEmpty, b.f32(1.0), total);
      Value withSink = divisor;
      if (sink)
        withSink =
            b.select(isEmpty, divisor,
                     b.add(total, base.weighSink(b.load(sink, head), top)));
      b.loop(zero, width, [&](Value d) {
        Value value = arith::DivFOp::create(b, b.load(sums, d), withSink);
        b.storeF32(value, out, {row, head, d});
      });
      if (!merged)
        return;
      Value lse = b.add(top, base.log(divisor));
      b.storeF32(b.select(isEmpty, infinity, lse), merged, {row, head});
    });
  });
  b.free({sums, lses});
}

//===----------------------------------------------------------------------===//
// Merge in two steps: weights, sums
//===----------------------------------------------------------------------===//

void mlir::shardq::emitWeighPartial(LoopBuilder &b, WeighPartialOp op,
                                    ValueRange args) {
  Value partial = args[0], lses = args[1], share = args[2];
  Value merged = op.getNumOuts() == 2 ? args[3] : Value();
  int64_t ranks = getRanks(op, op.getMeshAttr(), op.getAxis());
  auto type = cast<MemRefType>(share.getType());
  Value zero = b.index(0), width = b.index(type.getDimSize(2));
  Value infinity = b.f32(-std::numeric_limits<double>::infinity());
  Value none = b.f32(0.0);
  Base base(b, op.getLseBase());
  Value me =
      RankOp::create(b, b.getIndexType(), op.getMeshAttr(), op.getAxisAttr());
  Value rows = arith::DivUIOp::create(b, b.dim(lses, 0), b.index(ranks));

  Value count = b.dim(share, 0);
  if (merged)
    count = b.min(count, b.dim(merged, 0));
  b.loop(zero, count, [&](Value row) {
    // Rows that types promise and nobody sent have no members, nor have those
    // that the partial output lacks.
    Value isKnown = b.both(b.less(row, rows), b.less(row, b.dim(partial, 0)));
    Value members = b.select(isKnown, b.index(ranks), zero);
    b.loop(zero, b.index(type.getDimSize(1)), [&](Value head) {
      auto loadOf = [&](Value member) {
        Value at = b.add(b.mul(member, rows), row);
        return sanitize(b, b.loadF32(lses, {at, head}));
      };
      auto takesPart = [&](Value lse) -> Value {
        return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, lse,
                                     infinity);
      };
      auto findMax = [&](Value member,
                         ValueRange carried) -> SmallVector<Value> {
        return {b.max(carried[0], loadOf(member))};
      };
      Value top = b.loop(zero, members, infinity, findMax).front();
      auto add = [&](Value member, ValueRange carried) -> SmallVector<Value> {
        Value lse = loadOf(member);
        Value w = b.select(takesPart(lse), base.weigh(lse, top), none);
        return {b.add(carried[0], w)};
      };
      Value total = b.loop(zero, members, none, add).front();
      Value isEmpty =
          arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, total, none);
      Value mine = b.choose(
          isKnown, [&] { return loadOf(me); }, [&] { return infinity; });
      b.when(
          takesPart(mine),
          [&] {
            Value w = arith::DivFOp::create(b, base.weigh(mine, top), total);
            b.loop(zero, width, [&](Value d) {
              Value value = b.loadF32(partial, {row, head, d});
              b.storeF32(b.mul(w, value), share, {row, head, d});
            });
          },
          [&] {
            b.loop(zero, width,
                   [&](Value d) { b.storeF32(none, share, {row, head, d}); });
          });
      if (!merged)
        return;
      Value divisor = b.select(isEmpty, b.f32(1.0), total);
      Value lse = b.add(top, base.log(divisor));
      b.storeF32(b.select(isEmpty, infinity, lse), merged, {row, head});
    });
  });
}

void mlir::shardq::emitSumPartials(LoopBuilder &b, SumPartialsOp op,
                                   ValueRange args) {
  Value inbox = args[0], out = args[1];
  int64_t ranks = getRanks(op, op.getMeshAttr(), op.getAxis());
  auto type = cast<MemRefType>(out.getType());
  Value zero = b.index(0), width = b.index(type.getDimSize(2));
  Value sums = b.scratch({type.getDimSize(2)}, b.getF32Type());
  Value rows = arith::DivUIOp::create(b, b.dim(inbox, 0), b.index(ranks));

  b.loop(zero, b.dim(out, 0), [&](Value row) {
    // Rows that types promise and nobody sent have no members.
    Value members = b.select(b.less(row, rows), b.index(ranks), zero);
    b.loop(zero, b.index(type.getDimSize(1)), [&](Value head) {
      b.fill(sums, b.f32(0.0));
      b.loop(zero, members, [&](Value member) {
        Value from = b.add(b.mul(member, rows), row);
        b.loop(zero, width, [&](Value d) {
          Value value = b.loadF32(inbox, {from, head, d});
          b.store(b.add(b.load(sums, d), value), sums, d);
        });
      });
      b.loop(zero, width, [&](Value d) {
        b.storeF32(b.load(sums, d), out, {row, head, d});
      });
    });
  });
  b.free(sums);
}
