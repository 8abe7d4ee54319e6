//===- StepKernels.cpp - The step's rows, its split and its gate ----------===//
//
// The device forms of runtime/split/Split.cpp: same results, for any values of
// query_start and seq_lens.
//
//===----------------------------------------------------------------------===//

#include "StepKernels.h"
#include "Kernels.h"

using namespace mlir;
using namespace mlir::shardq;

static Value clamp(KernelBuilder &b, Value value, Value low, Value high) {
  return b.max(low, b.min(value, high));
}
static Value loadIndex(KernelBuilder &b, Value buffer, ValueRange indices) {
  return b.toIndex(b.load(buffer, indices));
}
static void storeI32(KernelBuilder &b, Value index, Value buffer,
                     ValueRange indices) {
  b.store(b.fromIndex(index, b.getI32Type()), buffer, indices);
}

/// Number of requests that all arrays have.
static Value getRequests(KernelBuilder &b, Value queryStart, Value seqLens) {
  Value requests = b.max(b.index(0), b.sub(b.dim(queryStart, 0), b.index(1)));
  return seqLens ? b.min(requests, b.dim(seqLens, 0)) : requests;
}

static void atomic(KernelBuilder &b, arith::AtomicRMWKind kind, Value index,
                   Value cells, int64_t cell) {
  Value value = b.fromIndex(index, b.getI64Type());
  memref::AtomicRMWOp::create(b, kind, value, cells, ValueRange{b.index(cell)});
}

/// Cells in shared memory that start with these values.
static Value createCells(KernelBuilder &b, ArrayRef<Value> initial) {
  Value cells = b.shared({int64_t(initial.size())}, b.getI64Type());
  b.when(b.equal(b.thread(), b.index(0)), [&] {
    for (auto [i, value] : llvm::enumerate(initial))
      b.store(b.fromIndex(value, b.getI64Type()), cells, b.index(i));
  });
  b.barrier();
  return cells;
}

//===----------------------------------------------------------------------===//
// What does not add up
//===----------------------------------------------------------------------===//

void mlir::shardq::recordWrong(KernelBuilder &b, StringRef function,
                               Value device, ArrayRef<Value> numbers) {
  SmallVector<Value> arguments{toPointer(b, b.getLoc(), device)};
  for (Value number : numbers)
    arguments.push_back(b.fromIndex(number, b.getI64Type()));
  LLVM::CallOp::create(b, b.getLoc(), TypeRange(), function, arguments);
}

void mlir::shardq::emitCheckStarts(KernelBuilder &b, Value starts,
                                   Value decodes, Value rows, Value device) {
  Value zero = b.index(0), one = b.index(1), entries = b.dim(starts, 0);
  auto either = [&](Value x, Value y) -> Value {
    return arith::OrIOp::create(b, x, y);
  };
  b.overGrid(zero, entries, [&](Value i) {
    Value start = loadIndex(b, starts, i);
    Value isFirst = b.equal(i, zero);
    Value before = b.choose(
        isFirst, [&] { return zero; },
        [&] { return loadIndex(b, starts, b.sub(i, one)); });
    Value isWrong = either(b.less(start, before), b.less(rows, start));
    isWrong = either(isWrong, b.both(isFirst, b.less(zero, start)));
    b.when(isWrong, [&] {
      recordWrong(b, "shardq_device_wrong_start", device,
                  {i, start, before, rows});
    });
    if (!decodes)
      return;
    Value isSplit = b.both(b.less(before, decodes), b.less(decodes, start));
    b.when(b.both(isSplit, b.less(zero, i)), [&] {
      recordWrong(b, "shardq_device_split_request", device,
                  {decodes, b.sub(i, one), start});
    });
  });
  if (!decodes)
    return;
  Value leads = b.both(b.equal(b.thread(), zero), b.equal(b.block(), zero));
  b.when(leads, [&] {
    b.when(either(b.less(decodes, zero), b.less(rows, decodes)), [&] {
      recordWrong(b, "shardq_device_wrong_decodes", device, {decodes, rows});
    });
  });
}

//===----------------------------------------------------------------------===//
// Rows of the step
//===----------------------------------------------------------------------===//

void mlir::shardq::emitExpandRowsKernel(KernelBuilder &b, ValueRange args) {
  Value queryStart = args[0], seqLens = args[1], req = args[3],
        visible = args[4];
  Value zero = b.index(0), one = b.index(1);
  emitCheckStarts(b, queryStart, Value(), args[2], args[5]);
  Value requests = getRequests(b, queryStart, seqLens);
  Value rows = b.min(b.dim(req, 0), b.dim(visible, 0));
  b.overGrid(zero, rows, [&](Value row) {
    // The first request that begins behind the row, by halving.
    auto loop = scf::WhileOp::create(
        b, TypeRange{b.getIndexType(), b.getIndexType()},
        ValueRange{zero, requests},
        [&](OpBuilder &nested, Location, ValueRange range) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToEnd(nested.getInsertionBlock());
          scf::ConditionOp::create(b, b.less(range[0], range[1]), range);
        },
        [&](OpBuilder &nested, Location, ValueRange range) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToEnd(nested.getInsertionBlock());
          Value middle = b.divide(b.add(range[0], range[1]), b.index(2));
          Value behind = b.less(row, loadIndex(b, queryStart, middle));
          scf::YieldOp::create(
              b, ValueRange{b.select(behind, range[0], b.add(middle, one)),
                            b.select(behind, middle, range[1])});
        });
    Value r = b.sub(loop.getResult(0), one);
    SmallVector<Value> none{b.index(-1), zero};
    Value safe = b.max(r, zero);
    Value start = b.choose(
        b.less(zero, requests), [&] { return loadIndex(b, queryStart, safe); },
        [&] { return zero; });
    Value next = b.choose(
        b.less(zero, requests),
        [&] { return loadIndex(b, queryStart, b.add(safe, one)); },
        [&] { return zero; });
    Value inside = b.both(b.lessEqual(zero, r), b.less(row, next));
    b.when(
        inside,
        [&] {
          Value context = b.sub(loadIndex(b, seqLens, r), b.sub(next, start));
          Value seen = b.add(b.add(context, b.sub(row, start)), one);
          storeI32(b, r, req, row);
          storeI32(b, b.max(seen, zero), visible, row);
        },
        [&] {
          b.store(b.i32(-1), req, row);
          b.store(b.i32(0), visible, row);
        });
  });
}

void mlir::shardq::emitLocalRowsKernel(KernelBuilder &b, ValueRange args) {
  Value ids = args[0], offsets = args[1], decodes = args[2], mine = args[3],
        coordinate = args[4];
  Value zero = b.index(0);
  Value begin = loadIndex(b, offsets, coordinate);
  b.overGrid(zero, b.dim(mine, 0), [&](Value i) {
    Value prefill = b.sub(i, decodes);
    Value at = b.add(begin, prefill);
    Value row = b.choose(
        b.both(b.lessEqual(zero, prefill), b.inRange(at, zero, b.dim(ids, 0))),
        [&] { return b.add(decodes, loadIndex(b, ids, at)); },
        [&] { return i; });
    storeI32(b, row, mine, i);
  });
}

void mlir::shardq::emitCountDecodeRowsKernel(KernelBuilder &b,
                                             CountDecodeRowsOp op,
                                             ValueRange args) {
  Value queryStart = args[0], result = args[1];
  Value zero = b.index(0), one = b.index(1);
  Value requests = getRequests(b, queryStart, Value());
  Value cells = createCells(b, {requests});
  b.overThreads(zero, requests, [&](Value r) {
    Value tokens = b.sub(loadIndex(b, queryStart, b.add(r, one)),
                         loadIndex(b, queryStart, r));
    Value most = b.index(1 + op.getSpeculativeTokens());
    b.when(b.less(most, tokens),
           [&] { atomic(b, arith::AtomicRMWKind::mins, r, cells, 0); });
  });
  b.barrier();
  b.when(b.equal(b.thread(), zero), [&] {
    Value first = loadIndex(b, cells, zero);
    // Without entries there are no requests and no rows.
    Value rows = b.choose(
        b.less(zero, b.dim(queryStart, 0)),
        [&] { return b.max(loadIndex(b, queryStart, first), zero); },
        [&] { return zero; });
    b.store(b.fromIndex(rows, b.getI64Type()), result, zero);
  });
}

//===----------------------------------------------------------------------===//
// Gate
//===----------------------------------------------------------------------===//

void mlir::shardq::emitSplitGateKernel(KernelBuilder &b, SplitGateOp op,
                                       ValueRange args) {
  Value offsets = args[0], queryStart = args[1], seqLens = args[2],
        decodes = args[3], rows = args[4], result = args[5];
  Value zero = b.index(0), one = b.index(1);
  Value requests = getRequests(b, queryStart, seqLens);
  enum { kTokens, kAnyLong, kEmptyRank, kFullest };
  Value cells = createCells(b, {zero, zero, zero, zero});

  b.overThreads(zero, requests, [&](Value r) {
    Value start = loadIndex(b, queryStart, r);
    Value tokens = b.sub(loadIndex(b, queryStart, b.add(r, one)), start);
    // A prefill request is one whose rows lie behind the decodes.
    Value isPrefill =
        b.both(b.lessEqual(one, tokens), b.lessEqual(decodes, start));
    b.when(isPrefill, [&] {
      atomic(b, arith::AtomicRMWKind::addi, tokens, cells, kTokens);
      b.when(b.less(b.index(op.getTopk()), loadIndex(b, seqLens, r)), [&] {
        atomic(b, arith::AtomicRMWKind::maxs, one, cells, kAnyLong);
      });
    });
  });
  b.overThreads(zero, b.sub(b.dim(offsets, 0), one), [&](Value rank) {
    Value owned = b.sub(loadIndex(b, offsets, b.add(rank, one)),
                        loadIndex(b, offsets, rank));
    b.when(b.less(owned, one), [&] {
      atomic(b, arith::AtomicRMWKind::maxs, one, cells, kEmptyRank);
    });
    atomic(b, arith::AtomicRMWKind::maxs, owned, cells, kFullest);
  });
  b.barrier();
  b.when(b.equal(b.thread(), zero), [&] {
    auto cell = [&](int64_t i) { return loadIndex(b, cells, b.index(i)); };
    Value tokens = b.sub(rows, decodes);
    SmallVector<Value> conditions{
        b.lessEqual(b.index(std::max<int64_t>(1, op.getMinTokens())), tokens),
        b.equal(cell(kAnyLong), one), b.equal(cell(kTokens), tokens),
        b.equal(cell(kEmptyRank), zero)};
    if (op.getMaxRankRows())
      conditions.push_back(
          b.lessEqual(cell(kFullest), b.index(*op.getMaxRankRows())));
    if (op.getMaxRows())
      conditions.push_back(b.lessEqual(rows, b.index(*op.getMaxRows())));
    Value open = conditions.front();
    for (Value condition : ArrayRef(conditions).drop_front())
      open = b.both(open, condition);
    b.store(arith::ExtUIOp::create(b, b.getI64Type(), open), result, zero);
  });
}

//===----------------------------------------------------------------------===//
// Split
//===----------------------------------------------------------------------===//

KernelShape mlir::shardq::getSplitCountShape(int64_t ranks) {
  KernelShape shape;
  shape.threads = kWarp * std::min<int64_t>(ranks, 16);
  shape.maxBlocks = 1;
  return shape;
}

KernelShape mlir::shardq::getSplitIdsShape(int64_t) { return KernelShape(); }

static Value shuffle(KernelBuilder &b, Value value, Value offset,
                     gpu::ShuffleMode mode) {
  Value narrow = b.fromIndex(value, b.getI32Type());
  Value other =
      gpu::ShuffleOp::create(b, narrow, b.fromIndex(offset, b.getI32Type()),
                             b.i32(kWarp), mode)
          .getShuffleResult();
  return b.toIndex(other);
}

/// Inclusive scan of a value a lane.
static Value scan(KernelBuilder &b, Value value, Value lane,
                  llvm::function_ref<Value(Value, Value)> combine) {
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    Value from = b.index(distance);
    Value other = shuffle(b, value, from, gpu::ShuffleMode::UP);
    value = b.select(b.lessEqual(from, lane), combine(value, other), value);
  }
  return value;
}

/// Where chunk `chunk` of 2 * ranks begins among `len` tokens.
static Value getChunkBegin(KernelBuilder &b, Value chunk, Value len,
                           int64_t ranks) {
  return b.divide(b.mul(chunk, len), b.index(2 * ranks));
}

void mlir::shardq::emitSplitCountKernel(KernelBuilder &b, int64_t ranks,
                                        ValueRange args) {
  Value queryStart = args[0], ids = args[3], offsets = args[4],
        before = args[5];
  Value zero = b.index(0), one = b.index(1), warp = b.index(kWarp);
  emitCheckStarts(b, queryStart, args[1], args[2], args[6]);
  Value rows = b.dim(ids, 0);
  Value decodes = clamp(b, args[1], zero, rows);
  Value requests = getRequests(b, queryStart, Value());
  Value totals = b.shared({ranks}, b.getI64Type());
  Value lane = b.remainder(b.thread(), warp);
  Value firstRank = b.divide(b.thread(), warp);
  Value last31 = b.index(kWarp - 1);

  // A warp for each rank; lanes take requests, 32 at a time.
  b.loop(
      firstRank, b.index(ranks),
      [&](Value rank) {
        Value mirrored = b.sub(b.index(2 * ranks - 1), rank);
        SmallVector<Value> carried = b.loop(
            zero, requests, {decodes, zero},
            [&](Value base, ValueRange carried) -> SmallVector<Value> {
              Value r = b.add(base, lane);
              Value valid = b.less(r, requests);
              Value safe = b.select(valid, r, zero);
              Value begin =
                  clamp(b, loadIndex(b, queryStart, safe), decodes, rows);
              Value end = clamp(b, loadIndex(b, queryStart, b.add(safe, one)),
                                begin, rows);
              // Overlapping requests would count tokens twice, so each begins
              // where the ones before it ended.
              Value counts = b.both(valid, b.less(begin, end));
              Value ends = scan(b, b.select(counts, end, decodes), lane,
                                [&](Value a, Value c) { return b.max(a, c); });
              Value prior = shuffle(b, ends, one, gpu::ShuffleMode::UP);
              prior = b.max(carried[0],
                            b.select(b.equal(lane, zero), decodes, prior));
              begin = b.max(begin, prior);
              Value len = b.select(valid, b.max(zero, b.sub(end, begin)), zero);
              auto chunk = [&](Value i) {
                return b.sub(getChunkBegin(b, b.add(i, one), len, ranks),
                             getChunkBegin(b, i, len, ranks));
              };
              Value count = b.add(chunk(rank), chunk(mirrored));
              Value sums = scan(b, count, lane,
                                [&](Value a, Value c) { return b.add(a, c); });
              b.when(valid, [&] {
                storeI32(b, b.add(carried[1], b.sub(sums, count)), before,
                         {r, rank});
                b.when(b.equal(rank, zero), [&] {
                  storeI32(b, begin, before, {r, b.index(ranks)});
                  storeI32(b, len, before, {r, b.index(ranks + 1)});
                });
              });
              Value allEnds = shuffle(b, ends, last31, gpu::ShuffleMode::IDX);
              Value all = shuffle(b, sums, last31, gpu::ShuffleMode::IDX);
              return {b.max(carried[0], allEnds), b.add(carried[1], all)};
            },
            kWarp);
        b.when(b.equal(lane, zero), [&] {
          b.store(b.fromIndex(carried[1], b.getI64Type()), totals, rank);
        });
      },
      b.numThreads() / kWarp);
  b.barrier();
  b.when(b.equal(b.thread(), zero), [&] {
    storeI32(b, zero, offsets, zero);
    b.loop(zero, b.index(ranks), zero,
           [&](Value rank, ValueRange sum) -> SmallVector<Value> {
             Value next = b.add(sum[0], loadIndex(b, totals, rank));
             storeI32(b, next, offsets, b.add(rank, one));
             return {next};
           });
  });
}

void mlir::shardq::emitSplitIdsKernel(KernelBuilder &b, int64_t ranks,
                                      ValueRange args) {
  Value queryStart = args[0], ids = args[3], offsets = args[4],
        before = args[5];
  Value zero = b.index(0), one = b.index(1), warp = b.index(kWarp);
  Value rows = b.dim(ids, 0);
  Value decodes = clamp(b, args[1], zero, rows);
  Value requests = getRequests(b, queryStart, Value());
  Value lane = b.remainder(b.thread(), warp);
  Value firstChunk = b.divide(b.thread(), warp);

  b.overBlocks(zero, requests, [&](Value r) {
    Value begin = loadIndex(b, before, {r, b.index(ranks)});
    Value len = loadIndex(b, before, {r, b.index(ranks + 1)});
    // A warp for each chunk.
    b.loop(
        firstChunk, b.index(2 * ranks),
        [&](Value chunk) {
          Value isLate = b.lessEqual(b.index(ranks), chunk);
          Value rank =
              b.select(isLate, b.sub(b.index(2 * ranks - 1), chunk), chunk);
          Value from = getChunkBegin(b, chunk, len, ranks);
          Value to = getChunkBegin(b, b.add(chunk, one), len, ranks);
          // The early chunk of a request stands before its late one.
          Value early = b.sub(getChunkBegin(b, b.add(rank, one), len, ranks),
                              getChunkBegin(b, rank, len, ranks));
          Value at = b.add(loadIndex(b, offsets, rank),
                           loadIndex(b, before, {r, rank}));
          at = b.add(at, b.select(isLate, early, zero));
          b.loop(
              b.add(from, lane), to,
              [&](Value token) {
                Value position = b.add(at, b.sub(token, from));
                b.when(b.less(position, rows), [&] {
                  storeI32(b, b.add(b.sub(begin, decodes), token), ids,
                           position);
                });
              },
              kWarp);
        },
        b.numThreads() / kWarp);
  });
  b.overGrid(loadIndex(b, offsets, b.index(ranks)), rows,
             [&](Value i) { b.store(b.i32(-1), ids, i); });
}
