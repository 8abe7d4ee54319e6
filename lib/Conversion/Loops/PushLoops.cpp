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

void mlir::shardq::emitPush(LoopBuilder &b, PushOp op, ValueRange args) {
  unsigned numSources = op.getSources().size();
  ValueRange sources = args.take_front(numSources);
  Value ids = args[numSources], offsets = args[numSources + 1];
  Value decodes = args[numSources + 2], inbox = args[numSources + 3];
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  int64_t ranks = over.axis.getSize();
  int64_t stride = over.mesh.getStride(over.axis);
  bool toTokens = op.getDirection() == Direction::HeadsToTokens;
  auto inboxType = cast<MemRefType>(inbox.getType());
  // Heads that one row carries from one rank to another.
  int64_t heads = inboxType.getDimSize(1) / (toTokens ? ranks : 1);

  Value zero = b.index(0), one = b.index(1), count = b.index(ranks);
  Value capacity = b.index(op.getCapacity());
  Value me =
      RankOp::create(b, b.getIndexType(), op.getMeshAttr(), StringAttr());
  Value coordinate =
      RankOp::create(b, b.getIndexType(), op.getMeshAttr(), op.getAxisAttr());
  // Groups held inside `ids`, whatever the operands say.
  auto groupOffset = [&](Value group) {
    Value offset = b.toIndex(b.load(offsets, group));
    return b.max(zero, b.min(offset, b.dim(ids, 0)));
  };
  auto stepRow = [&](Value token) {
    return b.add(decodes, b.toIndex(b.load(ids, token)));
  };

  b.loop(one, b.index(ranks + 1), [&](Value turn) {
    // rank+1, rank+2, ...: at any time each rank is written by one other.
    Value peer = arith::RemUIOp::create(b, b.add(coordinate, turn), count);
    Value peerRank = b.add(me, b.mul(b.sub(peer, coordinate), b.index(stride)));
    Value theirs = PeerViewOp::create(b, inboxType, inbox, peerRank);

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
