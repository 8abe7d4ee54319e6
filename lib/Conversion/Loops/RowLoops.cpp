//===- RowLoops.cpp - Rows, slots and row copies --------------------------===//

#include "Kernels.h"
#include "shardq/IR/CarrierOps.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

void mlir::shardq::emitExpandRows(LoopBuilder &b, ExpandRowsOp,
                                  ValueRange args) {
  Value queryStart = args[0], seqLens = args[1], req = args[3],
        visible = args[4];
  Value zero = b.index(0), one = b.index(1);
  b.fill(req, b.i32(-1));
  b.fill(visible, b.i32(0));
  Value requests = b.min(b.dim(seqLens, 0), b.sub(b.dim(queryStart, 0), one));
  b.loop(zero, requests, [&](Value r) {
    Value start = b.toIndex(b.load(queryStart, r));
    Value next = b.toIndex(b.load(queryStart, b.add(r, one)));
    Value context = b.sub(b.toIndex(b.load(seqLens, r)), b.sub(next, start));
    Value id = b.fromIndex(r, b.getI32Type());
    // Held inside the results, whatever query_start says.
    b.loop(b.max(start, zero), b.min(next, b.dim(req, 0)), [&](Value row) {
      Value seen = b.add(b.add(context, b.sub(row, start)), one);
      b.store(id, req, row);
      b.store(b.fromIndex(b.max(seen, zero), b.getI32Type()), visible, row);
    });
  });
}

Value mlir::shardq::emitPagedRow(LoopBuilder &b, Value table, Value req,
                                 Value position, int64_t blockSize,
                                 int64_t blockStride) {
  Value zero = b.index(0), none = b.index(-1);
  // `position` is not negative here or ignored, so unsigned division serves.
  Value block = arith::DivUIOp::create(b, position, b.index(blockSize));
  Value inside = arith::RemUIOp::create(b, position, b.index(blockSize));
  Value known = b.both(b.inRange(req, zero, b.dim(table, 0)),
                       b.inRange(block, zero, b.dim(table, 1)));
  known = b.both(known, b.lessEqual(zero, position));
  return b.choose(
      known,
      [&] {
        Value entry = b.toIndex(b.load(table, {req, block}));
        Value row = b.add(b.mul(entry, b.index(blockStride)), inside);
        return b.select(b.lessEqual(zero, entry), row, none);
      },
      [&] { return none; });
}

Value mlir::shardq::emitWrittenRow(LoopBuilder &b, TokenSlotsOp op, Value table,
                                   Value req, Value position, Value limit,
                                   const NoPlace &noPlace) {
  Value zero = b.index(0), none = b.index(-1);
  Value blockSize = b.index(op.getBlockSize());
  Value block = arith::DivUIOp::create(b, position, blockSize);
  Value inside = arith::RemUIOp::create(b, position, blockSize);
  Value requests = b.dim(table, 0), width = b.dim(table, 1);
  Value isThere = b.both(b.less(req, requests), b.less(block, width));
  return b.choose(
      isThere,
      [&] {
        Value entry = b.toIndex(b.load(table, {req, block}));
        Value row = b.add(b.mul(entry, b.index(op.getBlockStride())), inside);
        Value fits = b.both(b.lessEqual(zero, entry), b.lessEqual(row, limit));
        return b.choose(
            fits, [&] { return row; },
            [&] {
              noPlace.isNone(block, entry);
              return none;
            });
      },
      [&] {
        noPlace.isBeyond(block, requests, width);
        return none;
      });
}

void mlir::shardq::emitConvertIndices(LoopBuilder &b, ConvertIndicesOp op,
                                      ValueRange args) {
  bool hasPrefill = bool(op.getPrefillReq());
  bool hasCounts = op.getNumOuts() == 2;
  Value indices = args[0], table = args[1], req = args[2];
  Value prefillReq = hasPrefill ? args[3] : Value();
  Value workspaceStart = hasPrefill ? args[4] : Value();
  Value slots = args[hasPrefill ? 5 : 3];
  Value counts = hasCounts ? args[hasPrefill ? 6 : 4] : Value();
  Type slotType = cast<MemRefType>(slots.getType()).getElementType();
  Value zero = b.index(0), one = b.index(1), none = b.index(-1);
  Value limit =
      b.index(slotType.isInteger(32) ? std::numeric_limits<int32_t>::max()
                                     : std::numeric_limits<int64_t>::max());

  b.loop(zero, b.dim(indices, 0), [&](Value row) {
    Value request = b.toIndex(b.load(req, row));
    Value workspace = none, isPrefill;
    if (hasPrefill) {
      Value prefill = b.toIndex(b.load(prefillReq, row));
      isPrefill = b.lessEqual(zero, prefill);
      // A workspace beyond the list gives no slot.
      workspace = b.choose(
          b.inRange(prefill, zero, b.dim(workspaceStart, 0)),
          [&] { return b.toIndex(b.load(workspaceStart, prefill)); },
          [&] { return none; });
    }
    SmallVector<Value> count = b.loop(
        zero, b.dim(indices, 1), zero,
        [&](Value column, ValueRange carried) -> SmallVector<Value> {
          Value position = b.toIndex(b.load(indices, {row, column}));
          auto paged = [&] {
            return emitPagedRow(b, table, request, position, op.getBlockSize(),
                                op.getBlockStride());
          };
          Value slot;
          if (hasPrefill)
            slot = b.choose(
                isPrefill,
                [&] {
                  Value valid = b.both(b.lessEqual(zero, position),
                                       b.lessEqual(zero, workspace));
                  return b.select(valid, b.add(workspace, position), none);
                },
                paged);
          else
            slot = paged();
          slot = b.select(b.lessEqual(slot, limit), slot, none);
          b.store(b.fromIndex(slot, slotType), slots, {row, column});
          Value valid = b.lessEqual(zero, slot);
          return {b.add(carried[0], b.select(valid, one, zero))};
        });
    if (hasCounts)
      b.store(b.fromIndex(count[0], b.getI32Type()), counts, row);
  });
}

void mlir::shardq::emitLocalRows(LoopBuilder &b, LocalRowsOp op,
                                 ValueRange args) {
  Value ids = args[0], offsets = args[1], decodes = args[2], mine = args[3];
  Value zero = b.index(0);
  Value rank =
      RankOp::create(b, b.getIndexType(), op.getMeshAttr(), op.getAxisAttr());
  Value begin = b.toIndex(b.load(offsets, rank));
  b.loop(zero, b.dim(mine, 0), [&](Value i) {
    Value prefill = b.sub(i, decodes);
    Value at = b.add(begin, prefill);
    Value row = b.choose(
        b.both(b.lessEqual(zero, prefill), b.inRange(at, zero, b.dim(ids, 0))),
        [&] { return b.add(decodes, b.toIndex(b.load(ids, at))); },
        [&] { return i; });
    b.store(b.fromIndex(row, b.getI32Type()), mine, i);
  });
}

/// Runs `body` for every index behind dimension 0 of a buffer's row.
static void forEachInRow(LoopBuilder &b, Value buffer, unsigned dimension,
                         SmallVector<Value> &indices,
                         llvm::function_ref<void(ValueRange)> body) {
  if (dimension == cast<MemRefType>(buffer.getType()).getRank())
    return body(indices);
  b.loop(b.index(0), b.dim(buffer, dimension), [&](Value i) {
    indices.push_back(i);
    forEachInRow(b, buffer, dimension + 1, indices, body);
    indices.pop_back();
  });
}

void mlir::shardq::emitTakeRows(LoopBuilder &b, TakeRowsOp op,
                                ValueRange args) {
  Value source = args[0], rows = args[1], result = args[2];
  Value missing = arith::ConstantOp::create(b, op.getMissingValue());
  b.loop(b.index(0), b.dim(result, 0), [&](Value i) {
    Value row = b.toIndex(b.load(rows, i));
    SmallVector<Value> to{i};
    b.when(
        b.inRange(row, b.index(0), b.dim(source, 0)),
        [&] {
          forEachInRow(b, result, 1, to, [&](ValueRange indices) {
            SmallVector<Value> from(indices);
            from[0] = row;
            b.store(b.load(source, from), result, indices);
          });
        },
        [&] {
          forEachInRow(b, result, 1, to, [&](ValueRange indices) {
            b.store(missing, result, indices);
          });
        });
  });
}

void mlir::shardq::emitWriteRows(LoopBuilder &b, WriteRowsOp, ValueRange args) {
  Value source = args[0], slots = args[1], cache = args[2];
  Value zero = b.index(0), rows = b.dim(cache, 0);
  b.loop(zero, b.dim(source, 0), [&](Value i) {
    Value slot = b.toIndex(b.load(slots, i));
    SmallVector<Value> from{i};
    b.when(
        b.inRange(slot, zero, rows),
        [&] {
          forEachInRow(b, source, 1, from, [&](ValueRange indices) {
            SmallVector<Value> to(indices);
            to[0] = slot;
            b.store(b.load(source, indices), cache, to);
          });
        },
        [&] {
          // Padding has no slot.
          b.when(b.lessEqual(rows, slot),
                 [&] { BeyondCacheOp::create(b, slot, i, rows); });
        });
  });
}
