//===- RowKernels.cpp - Row copies and index conversion -------------------===//

#include "../Loops/Kernels.h"
#include "ChunkKernels.h"
#include "Copies.h"
#include "GatherKernels.h"
#include "Kernels.h"
#include "StepKernels.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

KernelShape mlir::shardq::getRowShape(Operation *op) {
  KernelShape shape;
  if (isa<WriteRowsOp>(op))
    return getWriteRowsShape();
  if (isa<CountChunkRowsOp>(op))
    return getChunkTableShape();
  if (isa<CountDecodeRowsOp, SplitGateOp, GatherGateOp, memref::StoreOp>(op))
    shape.maxBlocks = 1;
  // A thread for each row.
  auto isVector = [](Value buffer) {
    return cast<MemRefType>(buffer.getType()).getRank() <= 1;
  };
  auto take = dyn_cast<TakeRowsOp>(op);
  auto copy = dyn_cast<memref::CopyOp>(op);
  auto fill = dyn_cast<linalg::FillOp>(op);
  if (isa<ExpandRowsOp, LocalRowsOp>(op) ||
      (take && isVector(take.getOuts().front())) ||
      (copy && isVector(copy.getTarget())) ||
      (fill && isVector(fill.getOutputs().front())))
    shape.rowsPerBlock = shape.threads;
  return shape;
}

Value mlir::shardq::getCommonRows(KernelBuilder &b, RowWiseOpInterface op,
                                  ValueRange args) {
  Value rows;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!op.isRowOperand(operand))
      continue;
    Value here = b.dim(args[operand.getOperandNumber()], 0);
    rows = rows ? b.min(rows, here) : here;
  }
  return rows;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static void emitTakeRowsKernel(KernelBuilder &b, TakeRowsOp op,
                               ValueRange args) {
  Value source = args[0], rows = args[1], result = args[2];
  Value zero = b.index(0);
  Value count = b.min(b.dim(rows, 0), b.dim(result, 0));
  auto type = cast<MemRefType>(result.getType());
  Value none = arith::ConstantOp::create(b, op.getMissingValue());
  if (type.getRank() == 1) {
    b.overGrid(zero, count, [&](Value i) {
      Value row = b.toIndex(b.load(rows, i));
      Value value = b.choose(
          b.inRange(row, zero, b.dim(source, 0)),
          [&] { return b.load(source, row); }, [&] { return none; });
      b.store(value, result, i);
    });
    return;
  }
  RowCopy copy(b, source, result);
  b.overBlocks(zero, count, [&](Value i) {
    Value row = b.toIndex(b.load(rows, i));
    b.when(
        b.inRange(row, zero, b.dim(source, 0)), [&] { copy.copy(row, i); },
        [&] { copy.fill(i, none); });
  });
}

static void emitCopyKernel(KernelBuilder &b, ValueRange args) {
  Value source = args[0], target = args[1];
  Value zero = b.index(0);
  int64_t rank = cast<MemRefType>(source.getType()).getRank();
  if (rank == 0) {
    b.when(b.equal(b.thread(), zero),
           [&] { b.store(b.load(source, {}), target, {}); });
    return;
  }
  Value rows = b.min(b.dim(source, 0), b.dim(target, 0));
  if (rank == 1) {
    b.overGrid(zero, rows,
               [&](Value i) { b.store(b.load(source, i), target, i); });
    return;
  }
  RowCopy copy(b, source, target);
  b.overBlocks(zero, rows, [&](Value row) { copy.copy(row, row); });
}

static void emitFillKernel(KernelBuilder &b, Value value, Value target) {
  Value zero = b.index(0);
  int64_t rank = cast<MemRefType>(target.getType()).getRank();
  if (rank == 0) {
    b.when(b.equal(b.thread(), zero), [&] { b.store(value, target, {}); });
    return;
  }
  if (rank == 1) {
    b.overGrid(zero, b.dim(target, 0),
               [&](Value i) { b.store(value, target, i); });
    return;
  }
  b.overBlocks(zero, b.dim(target, 0), [&](Value row) {
    forEachInRow(b, target, [&](ValueRange behind) {
      SmallVector<Value> indices{row};
      llvm::append_range(indices, behind);
      b.store(value, target, indices);
    });
  });
}

//===----------------------------------------------------------------------===//
// Index conversion
//===----------------------------------------------------------------------===//

namespace {

/// Slots of one row's positions.
class IndexConversion {
public:
  IndexConversion(KernelBuilder &b, ConvertIndicesOp op, ValueRange args)
      : b(b), op(op), hasPrefill(op.getPrefillReq()),
        rows(getCommonRows(b, op, args)), indices(args[0]), table(args[1]),
        req(args[2]) {
    if (hasPrefill) {
      prefillReq = args[3];
      workspaceStart = args[4];
    }
    slots = args[hasPrefill ? 5 : 3];
    if (op.getNumOuts() == 2)
      counts = args[hasPrefill ? 6 : 4];
    slotType = cast<MemRefType>(slots.getType()).getElementType();
  }

  void emit();

private:
  Value getSlot(Value position);
  void convertRow(Value row);

  KernelBuilder &b;
  ConvertIndicesOp op;
  bool hasPrefill;
  Value rows, indices, table, req, prefillReq, workspaceStart, slots, counts;
  Type slotType;
  Value aligned, cell;
  // Of the row at hand.
  Value request, requestKnown, workspace, isPrefill;
};

} // namespace

/// The slot, as i64, of a position of type i32; -1 for none. Block and offset
/// are found in 32 bits: divisions are what this kernel computes most.
Value IndexConversion::getSlot(Value position) {
  Type i64 = b.getI64Type();
  auto wide = [&](Value value) -> Value {
    return arith::ExtSIOp::create(b, i64, value);
  };
  Value none = arith::ConstantIntOp::create(b, -1, 64);
  Value zero32 = b.i32(0);
  Value valid = b.lessEqual(zero32, position);
  // No position is in the second block of 2^31 or more.
  using Limits = std::numeric_limits<int32_t>;
  bool isOneBlock = op.getBlockSize() > Limits::max();
  Value blockSize = b.i32(isOneBlock ? Limits::min() : op.getBlockSize());
  Value block = arith::DivUIOp::create(b, position, blockSize);
  Value inside = arith::RemUIOp::create(b, position, blockSize);
  Value blockIndex = arith::IndexCastUIOp::create(b, b.getIndexType(), block);
  Value known =
      b.both(b.both(valid, requestKnown), b.less(blockIndex, b.dim(table, 1)));
  Value slot = b.choose(
      known,
      [&]() -> Value {
        Value entry = wide(b.load(table, {request, blockIndex}));
        Value start = b.mul(
            entry, arith::ConstantIntOp::create(b, op.getBlockStride(), 64));
        Value row = b.add(start, wide(inside));
        Value zero = arith::ConstantIntOp::create(b, 0, 64);
        return b.select(b.lessEqual(zero, entry), row, none);
      },
      [&] { return none; });
  if (hasPrefill) {
    Value there = b.both(valid, b.lessEqual(b.index(0), workspace));
    Value start = b.fromIndex(workspace, i64);
    slot = b.select(isPrefill,
                    b.select(there, b.add(start, wide(position)), none), slot);
  }
  if (slotType.isInteger(32)) {
    Value limit = arith::ConstantIntOp::create(
        b, std::numeric_limits<int32_t>::max(), 64);
    slot = b.select(b.lessEqual(slot, limit), slot, none);
  }
  return slot;
}

void IndexConversion::convertRow(Value row) {
  Value zero = b.index(0);
  request = b.toIndex(b.load(req, row));
  requestKnown = b.inRange(request, zero, b.dim(table, 0));
  if (hasPrefill) {
    Value prefill = b.toIndex(b.load(prefillReq, row));
    isPrefill = b.lessEqual(zero, prefill);
    // A workspace beyond the list gives no slot.
    workspace = b.choose(
        b.inRange(prefill, zero, b.dim(workspaceStart, 0)),
        [&] { return b.toIndex(b.load(workspaceStart, prefill)); },
        [&] { return b.index(-1); });
  }
  Value columns = b.dim(indices, 1);
  Type i32 = b.getI32Type();
  auto count = [&](Value total, Value slot) -> Value {
    if (!counts)
      return total;
    Value valid = b.lessEqual(arith::ConstantIntOp::create(b, 0, 64), slot);
    return b.add(total, arith::ExtUIOp::create(b, i32, valid));
  };

  // Four columns at a time where both rows allow it.
  bool vectors = slotType.isInteger(32);
  Value whole = zero;
  if (vectors) {
    Value four = b.index(4);
    whole = b.sub(columns, arith::RemUIOp::create(b, columns, four));
    whole = b.select(aligned, whole, zero);
  }
  SmallVector<Value> totals{b.i32(0)};
  if (vectors)
    totals = b.loop(
        b.mul(b.thread(), b.index(4)), whole, totals,
        [&](Value column, ValueRange carried) -> SmallVector<Value> {
          Value positions = b.load16(b.address(indices, {row, column}));
          Value result = arith::ConstantOp::create(
              b, b.getZeroAttr(VectorType::get({4}, i32)));
          Value total = carried[0];
          for (int64_t i = 0; i < 4; ++i) {
            Value slot = getSlot(vector::ExtractOp::create(b, positions, i));
            total = count(total, slot);
            result = vector::InsertOp::create(
                b, arith::TruncIOp::create(b, i32, slot), result, i);
          }
          b.store16(result, b.address(slots, {row, column}));
          return {total};
        },
        4 * b.numThreads());
  totals = b.loop(
      b.add(whole, b.thread()), columns, totals,
      [&](Value column, ValueRange carried) -> SmallVector<Value> {
        Value slot = getSlot(b.load(indices, {row, column}));
        Value stored = slot;
        if (slotType.isInteger(32))
          stored = arith::TruncIOp::create(b, i32, slot);
        b.store(stored, slots, {row, column});
        return {count(carried[0], slot)};
      },
      b.numThreads());
  if (!counts)
    return;
  Value first = b.equal(b.thread(), zero);
  b.when(first, [&] { b.store(b.i32(0), cell, zero); });
  b.barrier();
  memref::AtomicRMWOp::create(b, arith::AtomicRMWKind::addi, totals[0], cell,
                              ValueRange{zero});
  b.barrier();
  b.when(first, [&] { b.store(b.load(cell, zero), counts, row); });
  b.barrier();
}

void IndexConversion::emit() {
  if (counts)
    cell = b.shared({1}, b.getI32Type());
  if (slotType.isInteger(32))
    aligned = b.both(isAligned16(b, indices), isAligned16(b, slots));
  b.overBlocks(b.index(0), rows, [&](Value row) { convertRow(row); });
}

void mlir::shardq::emitRowKernel(KernelBuilder &b, Operation *op,
                                 ValueRange args) {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](ExpandRowsOp) { emitExpandRowsKernel(b, args); })
      .Case([&](LocalRowsOp) { emitLocalRowsKernel(b, args); })
      .Case(
          [&](CountDecodeRowsOp op) { emitCountDecodeRowsKernel(b, op, args); })
      .Case([&](SplitGateOp op) { emitSplitGateKernel(b, op, args); })
      .Case([&](CountChunkRowsOp op) { emitCountChunkRowsKernel(b, op, args); })
      .Case([&](WriteRowsOp) { emitWriteRowsKernel(b, args); })
      .Case([&](GatherGateOp op) { emitGatherGateKernel(b, op, args); })
      .Case([&](ConvertIndicesOp op) { IndexConversion(b, op, args).emit(); })
      .Case([&](TakeRowsOp op) { emitTakeRowsKernel(b, op, args); })
      .Case([&](memref::CopyOp) { emitCopyKernel(b, args); })
      .Case([&](linalg::FillOp) { emitFillKernel(b, args[0], args[1]); })
      .Case([&](memref::StoreOp) {
        b.when(b.equal(b.thread(), b.index(0)),
               [&] { b.store(args[0], args[1], args.drop_front(2)); });
      });
}
