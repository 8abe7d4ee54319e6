//===- PushLoops.cpp - Rows into the inboxes of peers ---------------------===//

#include "Kernels.h"

using namespace mlir;
using namespace mlir::shardq;

/// Copies `heads` heads of a row: `from[fromRow, fromHead + h, :]` to
/// `to[toRow, toHead + h, toColumn + :]`. Buffers of rank 2 have no columns.
static void copyHeads(LoopBuilder &b, int64_t heads, Value from, Value fromRow,
                      Value fromHead, Value to, Value toRow, Value toHead,
                      int64_t toColumn) {
  bool hasColumns = cast<MemRefType>(from.getType()).getRank() == 3;
  b.loop(b.index(0), b.index(heads), [&](Value head) {
    SmallVector<Value> source{fromRow, b.add(fromHead, head)};
    SmallVector<Value> target{toRow, b.add(toHead, head)};
    if (!hasColumns)
      return b.store(b.load(from, source), to, target);
    b.loop(b.index(0), b.dim(from, 2), [&](Value column) {
      Value shifted = b.add(b.index(toColumn), column);
      b.store(b.load(from, {source[0], source[1], column}), to,
              {target[0], target[1], shifted});
    });
  });
}

namespace {

/// The group of a push, and this rank in it.
struct Group {
  Group(LoopBuilder &b, PushOp op);
  /// Runs `body` with each member's coordinate and inbox, own last. At any time
  /// each rank is written by one other.
  void forEachMember(Value inbox, llvm::function_ref<void(Value, Value)> body);

  LoopBuilder &b;
  int64_t ranks, stride;
  Value me, coordinate;
};

} // namespace

Group::Group(LoopBuilder &b, PushOp op) : b(b) {
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  ranks = over.axis.getSize();
  stride = over.mesh.getStride(over.axis);
  me = RankOp::create(b, b.getIndexType(), op.getMeshAttr(), StringAttr());
  coordinate =
      RankOp::create(b, b.getIndexType(), op.getMeshAttr(), op.getAxisAttr());
}

void Group::forEachMember(Value inbox,
                          llvm::function_ref<void(Value, Value)> body) {
  b.loop(b.index(1), b.index(ranks + 1), [&](Value turn) {
    Value peer =
        arith::RemUIOp::create(b, b.add(coordinate, turn), b.index(ranks));
    Value peerRank = b.add(me, b.mul(b.sub(peer, coordinate), b.index(stride)));
    body(peer, PeerViewOp::create(b, inbox.getType(), inbox, peerRank));
  });
}

/// Own head blocks of all rows to everyone.
static void emitGather(LoopBuilder &b, PushOp op, ValueRange sources,
                       Value inbox) {
  Group group(b, op);
  Value zero = b.index(0);
  int64_t heads = cast<MemRefType>(sources[0].getType()).getDimSize(1);
  // The workspace has refused, and is no peer's business, where the rows do not
  // fit the channel.
  Value rows = b.min(b.dim(inbox, 0), b.dim(sources[0], 0));
  Value firstHead = b.mul(group.coordinate, b.index(heads));
  group.forEachMember(inbox, [&](Value, Value theirs) {
    b.loop(zero, rows, [&](Value row) {
      int64_t column = 0;
      for (Value source : sources) {
        copyHeads(b, heads, source, row, zero, theirs, row, firstHead, column);
        column += cast<MemRefType>(source.getType()).getDimSize(2);
      }
    });
  });
}

/// The bits of `lse` at the head of the bytes behind the values.
static void storeLse(LoopBuilder &b, Value lse, Value inbox, Value row,
                     Value head, int64_t values) {
  Type element = cast<MemRefType>(inbox.getType()).getElementType();
  if (element.isF32())
    return b.store(lse, inbox, {row, head, b.index(values)});
  Value bits = arith::BitcastOp::create(b, b.getI32Type(), lse);
  for (int64_t half = 0; half < 2; ++half) {
    Value part = arith::ShRUIOp::create(b, bits, b.i32(16 * half));
    part = arith::TruncIOp::create(b, b.getI16Type(), part);
    b.store(arith::BitcastOp::create(b, element, part), inbox,
            {row, head, b.index(values + half)});
  }
}

/// To each member its heads of the partial output, or its rows with all heads,
/// each with its LSE if there are any.
static void emitScatter(LoopBuilder &b, PushOp op, ValueRange sources,
                        Value inbox) {
  Group group(b, op);
  Value partial = sources[0], zero = b.index(0);
  Value lse = sources.size() == 2 ? sources[1] : Value();
  int64_t heads = cast<MemRefType>(inbox.getType()).getDimSize(1);
  int64_t values = cast<MemRefType>(partial.getType()).getDimSize(2);
  bool isByRows = op.getDirection() == Direction::ScatterRows;
  Value rows = b.dim(partial, 0);
  if (isByRows)
    rows = arith::DivUIOp::create(b, rows, b.index(group.ranks));
  Value first = b.mul(group.coordinate, rows);
  Value end = b.dim(inbox, 0);
  group.forEachMember(inbox, [&](Value peer, Value theirs) {
    Value firstHead = isByRows ? zero : b.mul(peer, b.index(heads));
    Value firstRow = isByRows ? b.mul(peer, rows) : zero;
    b.loop(zero, rows, [&](Value row) {
      Value to = b.add(first, row), from = b.add(firstRow, row);
      b.when(b.less(to, end), [&] {
        copyHeads(b, heads, partial, from, firstHead, theirs, to, zero, 0);
        if (!lse)
          return;
        b.loop(zero, b.index(heads), [&](Value head) {
          storeLse(b, b.loadF32(lse, {from, b.add(firstHead, head)}), theirs,
                   to, head, values);
        });
      });
    });
  });
}

/// All rows to everyone.
static void emitGatherRows(LoopBuilder &b, PushOp op, ValueRange sources,
                           Value inbox) {
  Group group(b, op);
  Value zero = b.index(0);
  Value rows = arith::DivUIOp::create(b, b.dim(inbox, 0), b.index(group.ranks));
  Value first = b.mul(group.coordinate, rows);
  // What the sources have, should types promise more.
  Value known = rows;
  for (Value source : sources)
    known = b.min(known, b.dim(source, 0));
  group.forEachMember(inbox, [&](Value, Value theirs) {
    b.loop(zero, known, [&](Value row) {
      // Rows of one dimension are columns of a single head.
      int64_t column = 0;
      for (Value source : sources) {
        auto type = cast<MemRefType>(source.getType());
        bool hasHeads = type.getRank() == 3;
        Value toHead = hasHeads ? zero : b.index(column);
        copyHeads(b, type.getDimSize(1), source, row, zero, theirs,
                  b.add(first, row), toHead, hasHeads ? column : 0);
        column += type.getShape().back();
      }
    });
  });
}

/// The rows of all blocks to everyone; zeros for those outside the sources.
static void emitGatherBlocks(LoopBuilder &b, PushOp op, ValueRange operands,
                             Value inbox) {
  Group group(b, op);
  ValueRange sources = operands.drop_back();
  Value blocks = operands.back(), zero = b.index(0);
  Value blockSize = b.index(*op.getBlockSize());
  Value stride = b.index(op.getBlockStrideRows().value_or(*op.getBlockSize()));
  Value count =
      arith::DivUIOp::create(b, b.dim(inbox, 0), b.index(group.ranks));
  count = arith::DivUIOp::create(b, count, blockSize);
  // Whatever the step says, no entry behind the list is read.
  Value known = b.min(count, b.dim(blocks, 0));
  Value first = b.mul(group.coordinate, count);
  group.forEachMember(inbox, [&](Value, Value theirs) {
    b.loop(zero, known, [&](Value block) {
      Value entry = b.toIndex(b.load(blocks, block));
      Value fromRow = b.mul(entry, stride);
      Value toRow = b.mul(b.add(first, block), blockSize);
      b.loop(zero, blockSize, [&](Value inside) {
        Value from = b.add(fromRow, inside), to = b.add(toRow, inside);
        Value isInside = b.inRange(from, zero, b.dim(sources[0], 0));
        int64_t column = 0;
        for (Value source : sources) {
          auto type = cast<MemRefType>(source.getType());
          Value none = arith::ConstantOp::create(
              b, b.getZeroAttr(type.getElementType()));
          auto copy = [&](llvm::function_ref<Value(Value)> value) {
            b.loop(zero, b.dim(source, 1), [&](Value i) {
              b.store(value(i), theirs, {to, b.add(b.index(column), i)});
            });
          };
          b.when(
              isInside,
              [&] { copy([&](Value i) { return b.load(source, {from, i}); }); },
              [&] { copy([&](Value) { return none; }); });
          column += type.getDimSize(1);
        }
      });
    });
  });
}

void mlir::shardq::emitPush(LoopBuilder &b, PushOp op, ValueRange args) {
  switch (op.getDirection()) {
  case Direction::GatherHeads:
    return emitGather(b, op, args.drop_back(), args.back());
  case Direction::ScatterHeads:
  case Direction::ScatterRows:
    return emitScatter(b, op, args.drop_back(), args.back());
  case Direction::GatherRows:
    if (!op.getBlocks())
      return emitGatherRows(b, op, args.drop_back(), args.back());
    return emitGatherBlocks(b, op, args.drop_back(), args.back());
  case Direction::HeadsToTokens:
  case Direction::TokensToHeads:
    break;
  }
  unsigned numSources = op.getSources().size();
  ValueRange sources = args.take_front(numSources);
  Value ids = args[numSources], offsets = args[numSources + 1];
  Value decodes = args[numSources + 2], inbox = args[numSources + 3];
  Group members(b, op);
  Value coordinate = members.coordinate;
  bool toTokens = op.getDirection() == Direction::HeadsToTokens;
  auto inboxType = cast<MemRefType>(inbox.getType());
  // Heads that one row carries from one rank to another.
  int64_t heads = inboxType.getDimSize(1) / (toTokens ? members.ranks : 1);

  Value zero = b.index(0), one = b.index(1);
  Value capacity = b.index(op.getCapacity());
  // Groups held inside `ids`, whatever the operands say.
  auto groupOffset = [&](Value group) {
    Value offset = b.toIndex(b.load(offsets, group));
    return b.max(zero, b.min(offset, b.dim(ids, 0)));
  };
  auto stepRow = [&](Value token) {
    return b.add(decodes, b.toIndex(b.load(ids, token)));
  };

  members.forEachMember(inbox, [&](Value peer, Value theirs) {
    Value group = toTokens ? peer : coordinate;
    Value begin = groupOffset(group);
    Value end = b.max(begin, groupOffset(b.add(group, one)));
    b.loop(begin, end, [&](Value token) {
      Value row = stepRow(token), groupRow = b.sub(token, begin);
      if (toTokens) {
        Value known = b.both(b.inRange(row, zero, b.dim(sources[0], 0)),
                             b.less(groupRow, capacity));
        b.when(known, [&] {
          int64_t column = 0;
          for (Value source : sources) {
            copyHeads(b, heads, source, row, zero, theirs, groupRow,
                      b.mul(coordinate, b.index(heads)), column);
            auto type = cast<MemRefType>(source.getType());
            column += type.getRank() == 3 ? type.getDimSize(2) : 0;
          }
        });
        return;
      }
      Value rows = b.min(capacity, b.dim(inbox, 0));
      Value known = b.both(b.inRange(row, zero, rows),
                           b.less(groupRow, b.dim(sources[0], 0)));
      b.when(known, [&] {
        copyHeads(b, heads, sources[0], groupRow, b.mul(peer, b.index(heads)),
                  theirs, row, zero, 0);
      });
    });
  });
}
