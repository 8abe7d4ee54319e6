//===- ReductionKernels.cpp - Merges by weights and sums ------------------===//
//
// weigh_partial and sum_partials: a block for each head of a row, its values
// among the threads.
//
//===----------------------------------------------------------------------===//

#include "ReductionKernels.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::shardq;

/// Of the result with rows, heads and values.
static MemRefType getValuesType(Operation *op) {
  auto sum = dyn_cast<SumPartialsOp>(op);
  Value out = sum ? sum.getOut() : cast<WeighPartialOp>(op).getOuts().front();
  return cast<MemRefType>(out.getType());
}

static int64_t getRanks(Operation *op, FlatSymbolRefAttr mesh, StringRef axis) {
  return lookupMeshAxis(op, mesh, axis).axis.getSize();
}

/// `body(row, head)` for each head of a buffer `[T, H, ...]`, of rows that the
/// other has too, if there is one.
static void overHeads(KernelBuilder &b, Value buffer, Value other,
                      llvm::function_ref<void(Value, Value)> body) {
  Value heads = b.dim(buffer, 1), rows = b.dim(buffer, 0);
  if (other)
    rows = b.min(rows, b.dim(other, 0));
  b.overBlocks(b.index(0), b.mul(rows, heads), [&](Value task) {
    body(b.divide(task, heads), b.remainder(task, heads));
  });
}

static Value negativeInfinity(KernelBuilder &b) {
  return b.f32(-std::numeric_limits<double>::infinity());
}

/// NaN and +inf become -inf.
static Value sanitize(KernelBuilder &b, Value lse) {
  Value below =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, lse,
                            b.f32(std::numeric_limits<double>::infinity()));
  return b.select(below, lse, negativeInfinity(b));
}

static Value takesPart(KernelBuilder &b, Value lse) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, lse,
                               negativeInfinity(b));
}

static void emitWeighPartialKernel(KernelBuilder &b, WeighPartialOp op,
                                   ValueRange args) {
  Value partial = args[0], lses = args[1], share = args[2], me = args.back();
  Value merged = op.getNumOuts() == 2 ? args[3] : Value();
  int64_t ranks = getRanks(op, op.getMeshAttr(), op.getAxis());
  bool isBaseTwo = op.getLseBase() == LseBase::Two;
  Value zero = b.index(0), none = b.f32(0.0), infinity = negativeInfinity(b);
  Value toTwo = b.f32(isBaseTwo ? 1.0 : llvm::numbers::log2e);
  Value rows = b.divide(b.dim(lses, 0), b.index(ranks));
  // The difference first: the other order loses bits of large LSEs.
  auto weigh = [&](Value lse, Value top) {
    return b.select(takesPart(b, lse), b.exp2(b.mul(b.sub(lse, top), toTwo)),
                    none);
  };
  overHeads(b, share, merged, [&](Value row, Value head) {
    // Rows that types promise and nobody sent have no members, nor have those
    // that the partial output lacks.
    Value isKnown = b.both(b.less(row, rows), b.less(row, b.dim(partial, 0)));
    Value members = b.select(isKnown, b.index(ranks), zero);
    auto loadOf = [&](Value member) {
      Value at = b.add(b.mul(member, rows), row);
      return sanitize(b, b.loadF32(lses, {at, head}));
    };
    auto findMax = [&](Value member, ValueRange found) -> SmallVector<Value> {
      return {b.max(found[0], loadOf(member))};
    };
    Value top = b.loop(zero, members, infinity, findMax).front();
    auto add = [&](Value member, ValueRange sum) -> SmallVector<Value> {
      return {b.add(sum[0], weigh(loadOf(member), top))};
    };
    Value total = b.loop(zero, members, none, add).front();
    Value isEmpty =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, total, none);
    Value divisor = b.select(isEmpty, b.f32(1.0), total);
    Value mine =
        b.choose(isKnown, [&] { return loadOf(me); }, [&] { return infinity; });
    Value reads = takesPart(b, mine);
    Value weight = arith::DivFOp::create(b, weigh(mine, top), divisor);
    b.overThreads(zero, b.dim(share, 2), [&](Value d) {
      // What an empty rank has may be stale, or NaN.
      Value value = b.choose(
          reads,
          [&]() -> Value {
            return b.mul(weight, b.loadF32(partial, {row, head, d}));
          },
          [&] { return none; });
      b.storeF32(value, share, {row, head, d});
    });
    if (!merged)
      return;
    b.when(b.equal(b.thread(), zero), [&] {
      Value log = b.log2(divisor);
      if (!isBaseTwo)
        log = b.mul(log, b.f32(llvm::numbers::ln2));
      b.storeF32(b.select(isEmpty, infinity, b.add(top, log)), merged,
                 {row, head});
    });
  });
}

/// In ascending rank order, in f32.
static void emitSumPartialsKernel(KernelBuilder &b, SumPartialsOp op,
                                  ValueRange args) {
  Value inbox = args[0], out = args[1], zero = b.index(0);
  Value ranks = b.index(getRanks(op, op.getMeshAttr(), op.getAxis()));
  Value rows = b.divide(b.dim(inbox, 0), ranks);
  overHeads(b, out, Value(), [&](Value row, Value head) {
    // Rows that types promise and nobody sent have no members.
    Value members = b.select(b.less(row, rows), ranks, zero);
    b.overThreads(zero, b.dim(out, 2), [&](Value d) {
      auto add = [&](Value member, ValueRange sum) -> SmallVector<Value> {
        Value from = b.add(b.mul(member, rows), row);
        return {b.add(sum[0], b.loadF32(inbox, {from, head, d}))};
      };
      b.storeF32(b.loop(zero, members, b.f32(0.0), add).front(), out,
                 {row, head, d});
    });
  });
}

KernelShape mlir::shardq::getReductionShape(Operation *op) {
  MemRefType type = getValuesType(op);
  KernelShape shape;
  shape.threads =
      std::clamp<int64_t>(llvm::alignTo(type.getDimSize(2), kWarp), kWarp, 256);
  shape.blocksPerRow = type.getDimSize(1);
  return shape;
}

void mlir::shardq::emitReductionKernel(KernelBuilder &b, Operation *op,
                                       ValueRange args) {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](WeighPartialOp op) { emitWeighPartialKernel(b, op, args); })
      .Case([&](SumPartialsOp op) { emitSumPartialsKernel(b, op, args); });
}
