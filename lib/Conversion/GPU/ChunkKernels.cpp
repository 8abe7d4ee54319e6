//===- ChunkKernels.cpp - Prefill requests in chunks, and KV writes -------===//
//
// The device forms of runtime/split/Chunks.cpp: same results, for any values of
// query_start. A request begins at the largest start up to its own, so that no
// two overlap.
//
//===----------------------------------------------------------------------===//

#include "ChunkKernels.h"
#include "Copies.h"
#include "SlotRows.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kMaxI32 = std::numeric_limits<int32_t>::max();

namespace {

/// What the ops say of a step, as the kernel sees it.
struct Step {
  Value starts, decodes;
  Value rows;     // of the step; tokens behind them are none
  Value requests; // that all lists have
  int64_t ranks;
};

/// Where a request's rows begin: in the step, among the rows of decode requests
/// and heads, among those of tails.
struct Place {
  Value step, head, tail;
};

/// A request of the table.
struct Request {
  Place begin, end;
  Value tokens, isDecode;
  Value chunk; // rows of one; 0 for a decode
};

} // namespace

static int64_t getRanks(Operation *op) {
  return lookupMeshAxis(op, op->getAttrOfType<FlatSymbolRefAttr>("mesh"),
                        op->getAttrOfType<StringAttr>("axis"))
      .axis.getSize();
}

static Value loadIndex(KernelBuilder &b, Value buffer, ValueRange indices) {
  return b.toIndex(b.load(buffer, indices));
}
static void storeI32(KernelBuilder &b, Value index, Value buffer, Value at) {
  b.store(b.toI32(index), buffer, at);
}

static Step getStep(KernelBuilder &b, Operation *op, Value starts,
                    Value decodes, Value rows) {
  Value requests = b.sub(b.dim(starts, 0), b.index(1));
  return {starts, decodes, rows, b.max(requests, b.index(0)), getRanks(op)};
}

static Step getStep(KernelBuilder &b, Operation *op, ValueRange args) {
  return llvm::TypeSwitch<Operation *, Step>(op)
      .Case<CountChunkRowsOp, ChunkSplitOp>(
          [&](auto) { return getStep(b, op, args[0], args[1], args[2]); })
      .Case([&](ChunkLengthsOp) {
        Step step = getStep(b, op, args[0], args[2], args[3]);
        Value starts = b.sub(b.dim(args[4], 0), b.index(1));
        for (Value most : {starts, b.dim(args[1], 0), b.dim(args[5], 0)})
          step.requests = b.min(step.requests, most);
        step.requests = b.max(step.requests, b.index(0));
        return step;
      })
      .Case([&](ChunkSlotsOp) {
        // Those behind the last slot are left out one by one.
        return getStep(b, op, args[1], args[2], b.index(kMaxI32));
      });
}

//===----------------------------------------------------------------------===//
// Where requests begin
//===----------------------------------------------------------------------===//

static constexpr int64_t kTableThreads = 512;

KernelShape mlir::shardq::getChunkTableShape() {
  KernelShape shape;
  shape.threads = kTableThreads;
  shape.maxBlocks = 1;
  return shape;
}

namespace {

/// Goes through the requests with a block, each a thread's.
class RequestScan {
public:
  RequestScan(KernelBuilder &b, const Step &step);

  /// Calls `visit(i, place)`, of i32, for each request and once for what is
  /// behind the last. Returns that place.
  Place run(llvm::function_ref<void(Value, const Place &)> visit);

private:
  using Combine = llvm::function_ref<Value(Value, Value)>;

  Value loadStart(Value i);
  Value clamp(Value start);
  Value getChunk(Value tokens);
  Value scan(int64_t number, Value value, Value neutral, Combine combine,
             Value &upTo);
  SmallVector<Value> scanPass(Value base, ValueRange before,
                              llvm::function_ref<void(Value, const Place &)>);

  KernelBuilder &b;
  const Step &step;
  Value most;  // tokens of the step; i32
  Value words; // of the scans
};

} // namespace

RequestScan::RequestScan(KernelBuilder &b, const Step &step)
    : b(b), step(step) {
  most = b.toI32(b.max(b.index(0), b.min(step.rows, b.index(kMaxI32))));
  words = b.address(b.shared({3 * kTableThreads / kWarp}, b.getI32Type()),
                    b.index(0));
}

/// Where there is no such start, one that moves nothing.
Value RequestScan::loadStart(Value i) {
  return b.choose(
      b.less(i, b.dim(step.starts, 0)), [&] { return b.load(step.starts, i); },
      [&] { return b.i32(0); });
}

Value RequestScan::clamp(Value start) {
  return b.max(b.i32(0), b.min(start, most));
}

Value RequestScan::getChunk(Value tokens) {
  Value parts = b.i32(2 * step.ranks), zero = b.i32(0);
  Value isPadded = b.less(zero, b.remainder(tokens, parts));
  return b.add(b.divide(tokens, parts), b.select(isPadded, b.i32(1), zero));
}

/// The `number`th scan of a pass.
Value RequestScan::scan(int64_t number, Value value, Value neutral,
                        Combine combine, Value &upTo) {
  Value own = b.advance(words, 4 * number * (kTableThreads / kWarp));
  return scanBlock(b, own, value, neutral, combine, upTo);
}

SmallVector<Value>
RequestScan::scanPass(Value base, ValueRange before,
                      llvm::function_ref<void(Value, const Place &)> visit) {
  Value zero = b.i32(0), i = b.add(base, b.thread());
  auto largest = [&](Value one, Value other) { return b.max(one, other); };
  auto sum = [&](Value one, Value other) { return b.add(one, other); };
  Value upTo;
  Value all = scan(0, loadStart(i), zero, largest, upTo);
  Value begin = b.max(upTo, before[0]);
  Value end = clamp(b.max(begin, loadStart(b.add(i, b.index(1)))));
  begin = clamp(begin);

  Value isRequest = b.less(i, step.requests);
  Value tokens = b.select(isRequest, b.sub(end, begin), zero);
  Value isDecode = b.lessEqual(b.toIndex(end), step.decodes);
  Value tails = b.select(isDecode, zero, getChunk(tokens));
  Value heads = b.select(isDecode, tokens, tails);
  Value upToHead, upToTail;
  Value allHeads = scan(1, heads, zero, sum, upToHead);
  Value allTails = scan(2, tails, zero, sum, upToTail);
  Place place{begin, b.add(before[1], b.sub(upToHead, heads)),
              b.add(before[2], b.sub(upToTail, tails))};
  b.when(b.lessEqual(i, step.requests), [&] { visit(i, place); });
  b.barrier();
  return {b.max(before[0], all), b.add(before[1], allHeads),
          b.add(before[2], allTails)};
}

Place RequestScan::run(llvm::function_ref<void(Value, const Place &)> visit) {
  Value zero = b.i32(0);
  SmallVector<Value> all = b.loop(
      b.index(0), b.add(step.requests, b.index(1)), {zero, zero, zero},
      [&](Value base, ValueRange before) {
        return scanPass(base, before, visit);
      },
      kTableThreads);
  return {clamp(all[0]), all[1], all[2]};
}

/// Records rows of a rank, of `chunk_slots`, that are fewer than the step's
/// requests have: a token would lose its place. More are padding.
static void checkPlaces(KernelBuilder &b, const Step &step, const Place &all,
                        ValueRange args, Value device) {
  Value local = args[3], order = args[4], padded = args[5];
  Value entries = b.min(b.dim(order, 0), b.dim(padded, 0));
  Value found = b.min(local, b.divide(entries, b.index(step.ranks)));
  Value needed = b.add(b.toIndex(all.head), b.toIndex(all.tail));
  Value isShort = b.less(found, needed);
  b.when(b.both(isShort, b.equal(b.thread(), b.index(0))), [&] {
    recordWrong(b, "shardq_device_expect", device, {found, needed});
  });
}

void mlir::shardq::emitChunkTableKernel(KernelBuilder &b, Operation *op,
                                        ValueRange args) {
  Value table = args.back();
  Step step = getStep(b, op, args);
  if (isa<ChunkSplitOp>(op))
    emitCheckStarts(b, step.starts, step.decodes, step.rows,
                    args[op->getNumOperands()]);
  Place all = RequestScan(b, step).run([&](Value i, const Place &place) {
    b.store(place.step, table, {i, b.index(0)});
    b.store(place.head, table, {i, b.index(1)});
    b.store(place.tail, table, {i, b.index(2)});
  });
  if (isa<ChunkSlotsOp>(op))
    checkPlaces(b, step, all, args, args[op->getNumOperands()]);
}

void mlir::shardq::emitCountChunkRowsKernel(KernelBuilder &b,
                                            CountChunkRowsOp op,
                                            ValueRange args) {
  Step step = getStep(b, op, args);
  Value result = args.back();
  Place all = RequestScan(b, step).run([](Value, const Place &) {});
  Value heads = b.toIndex(all.head), tails = b.toIndex(all.tail);
  Value rows = op.getPart() == ChunkPart::Head   ? heads
               : op.getPart() == ChunkPart::Tail ? tails
                                                 : b.add(heads, tails);
  b.when(b.equal(b.thread(), b.index(0)), [&] {
    b.store(b.fromIndex(rows, b.getI64Type()), result, b.index(0));
  });
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

KernelShape mlir::shardq::getChunkRowsShape() {
  KernelShape shape;
  shape.rowsPerBlock = shape.threads;
  return shape;
}

namespace {

/// Finds requests in the table, and their rows in a rank's own. All of index
/// type; each row of a result is a thread's.
class ChunkRows {
public:
  ChunkRows(KernelBuilder &b, Operation *op, ValueRange args)
      : b(b), op(op), args(args), step(getStep(b, op, args)),
        rank(args[args.size() - 2]), table(args.back()),
        heads(load(step.requests, 1)) {
    byPart = op->hasAttr("by_part") || isa<ChunkLengthsOp>(op);
  }

  void emit();

private:
  using Begin = llvm::function_ref<Value(const Place &)>;
  using Use = llvm::function_ref<Value(const Request &, Value)>;

  Value load(Value i, int64_t column) {
    return loadIndex(b, table, {i, b.index(column)});
  }
  Place loadPlace(Value i) { return {load(i, 0), load(i, 1), load(i, 2)}; }
  Request loadRequest(Value i);

  /// What `use` makes of the request that has `row`, counted as `begin` counts,
  /// and of the row within it; -1 where there is none.
  Value find(Value row, Begin begin, Use use);
  /// The same of a row of a rank: the second number is that among the
  /// request's rows there.
  Value findOwn(Value row, Use use);

  Value getLocal(const Place &place) { return b.add(place.head, place.tail); }
  Value getHeadRows(const Request &request) {
    return b.select(request.isDecode, request.tokens, request.chunk);
  }
  Value getOwnRow(const Request &request, Value index);
  Value getToken(const Request &request, Value index);
  Value getGathered(const Request &request, Value token, Value local);
  Value getGathered(Value owner, Value row, Value local);

  void emitSplit(Value mine, Value restore);
  void emitLengths(ChunkPart part, Value seqLens, Value starts, Value lengths,
                   Value own);
  void emitSlots(Value slots, Value local, Value order, Value padded);
  Value chooseOwn(Value row, Value decoded, llvm::function_ref<Value()> ofOwn,
                  llvm::function_ref<Value()> otherwise);

  KernelBuilder &b;
  Operation *op;
  ValueRange args;
  Step step;
  Value rank, table;
  Value heads; // rows of all
  bool byPart;
};

} // namespace

Request ChunkRows::loadRequest(Value i) {
  Request request;
  request.begin = loadPlace(i);
  request.end = loadPlace(b.add(i, b.index(1)));
  request.tokens = b.sub(request.end.step, request.begin.step);
  request.isDecode = b.lessEqual(request.end.step, step.decodes);
  request.chunk = b.sub(request.end.tail, request.begin.tail);
  return request;
}

Value ChunkRows::find(Value row, Begin begin, Use use) {
  // Requests without rows begin where the next one does.
  Value behind = b.countBefore(step.requests, [&](Value i) {
    return b.lessEqual(begin(loadPlace(i)), row);
  });
  auto none = [&] { return b.index(-1); };
  return b.choose(
      b.less(b.index(0), behind),
      [&] {
        Request request = loadRequest(b.sub(behind, b.index(1)));
        Value inside = b.sub(row, begin(request.begin));
        return b.choose(
            b.less(row, begin(request.end)),
            [&] { return use(request, inside); }, none);
      },
      none);
}

Value ChunkRows::findOwn(Value row, Use use) {
  if (!byPart)
    return find(row, [&](const Place &place) { return getLocal(place); }, use);
  Value isTail = b.lessEqual(heads, row);
  return find(
      row,
      [&](const Place &place) {
        return b.select(isTail, b.add(heads, place.tail), place.head);
      },
      [&](const Request &request, Value inside) {
        Value before = b.select(isTail, request.chunk, b.index(0));
        return use(request, b.add(inside, before));
      });
}

/// Where a row of the request stands in the rows of a rank.
Value ChunkRows::getOwnRow(const Request &request, Value index) {
  if (!byPart)
    return b.add(getLocal(request.begin), index);
  Value tail =
      b.add(b.add(heads, request.begin.tail), b.sub(index, request.chunk));
  return b.select(b.less(index, getHeadRows(request)),
                  b.add(request.begin.head, index), tail);
}

/// The token of the request that a row of this rank is.
Value ChunkRows::getToken(const Request &request, Value index) {
  Value isTail = b.lessEqual(request.chunk, index);
  Value number =
      b.select(isTail, b.sub(b.index(2 * step.ranks - 1), rank), rank);
  Value inside = b.sub(index, b.select(isTail, request.chunk, b.index(0)));
  return b.select(request.isDecode, index,
                  b.add(b.mul(number, request.chunk), inside));
}

/// The gathered row of a rank's; -1 where no rank has so many.
Value ChunkRows::getGathered(Value owner, Value row, Value local) {
  Value gathered = b.add(b.mul(owner, local), row);
  Value isThere =
      b.both(b.less(row, local), b.lessEqual(gathered, b.index(kMaxI32)));
  return b.select(isThere, gathered, b.index(-1));
}

/// That of a token, or of a copy behind the tokens of a decode.
Value ChunkRows::getGathered(const Request &request, Value token, Value local) {
  Value size = b.select(request.isDecode, request.tokens, request.chunk);
  Value number = b.divide(token, size), inside = b.remainder(token, size);
  // Of a prefill request, the ranks back from the last are those of tails.
  Value isTail = b.both(b.lessEqual(b.index(step.ranks), number),
                        b.negate(request.isDecode));
  Value owner =
      b.select(isTail, b.sub(b.index(2 * step.ranks - 1), number), number);
  Value index = b.add(inside, b.select(isTail, request.chunk, b.index(0)));
  return getGathered(owner, getOwnRow(request, index), local);
}

void ChunkRows::emitSplit(Value mine, Value restore) {
  Value zero = b.index(0), local = b.dim(mine, 0);
  b.overGrid(zero, local, [&](Value row) {
    Value found = findOwn(row, [&](const Request &request, Value index) {
      Value token = getToken(request, index);
      return b.select(b.less(token, request.tokens),
                      b.add(request.begin.step, token), b.index(-1));
    });
    storeI32(b, found, mine, row);
  });
  b.overGrid(zero, b.dim(restore, 0), [&](Value row) {
    Value found = find(
        row, [](const Place &place) { return place.step; },
        [&](const Request &request, Value token) {
          return getGathered(request, token, local);
        });
    storeI32(b, found, restore, row);
  });
}

void ChunkRows::emitLengths(ChunkPart part, Value seqLens, Value starts,
                            Value lengths, Value own) {
  bool isTail = part == ChunkPart::Tail;
  Value zero = b.index(0);
  auto begin = [&](const Place &place) {
    return isTail ? place.tail : place.head;
  };
  b.overGrid(zero, b.dim(starts, 0), [&](Value i) {
    Value first = b.choose(
        b.lessEqual(i, step.requests), [&] { return begin(loadPlace(i)); },
        [&] { return zero; });
    storeI32(b, first, starts, i);
  });
  // Chunks of the request up to the end of this rank's.
  Value chunks =
      isTail ? b.sub(b.index(2 * step.ranks), rank) : b.add(rank, b.index(1));
  b.overGrid(zero, b.dim(lengths, 0), [&](Value i) {
    auto getLength = [&] {
      Request request = loadRequest(i);
      Value length = loadIndex(b, seqLens, i);
      Value ofDecode = isTail ? zero : length;
      Value ofChunk =
          b.add(b.sub(length, request.tokens), b.mul(chunks, request.chunk));
      ofChunk = b.max(b.index(-kMaxI32), b.min(ofChunk, b.index(kMaxI32)));
      ofChunk = b.select(b.equal(request.chunk, zero), zero, ofChunk);
      ofDecode = b.max(b.index(-kMaxI32), b.min(ofDecode, b.index(kMaxI32)));
      return b.select(request.isDecode, ofDecode, ofChunk);
    };
    Value length =
        b.choose(b.less(i, step.requests), getLength, [&] { return zero; });
    storeI32(b, length, lengths, i);
  });
  b.overGrid(zero, b.dim(own, 0), [&](Value row) {
    Value found = find(row, begin, [&](const Request &request, Value inside) {
      Value index = isTail ? b.add(inside, request.chunk) : inside;
      return b.select(b.less(getToken(request, index), request.tokens), row,
                      b.index(-1));
    });
    storeI32(b, found, own, row);
  });
}

/// `ofOwn` for a row of the decodes that stand together in front, `decoded` of
/// each rank.
Value ChunkRows::chooseOwn(Value row, Value decoded,
                           llvm::function_ref<Value()> ofOwn,
                           llvm::function_ref<Value()> otherwise) {
  if (!decoded)
    return otherwise();
  Value isOwn = b.less(row, b.mul(decoded, b.index(step.ranks)));
  return b.choose(isOwn, ofOwn, otherwise);
}

void ChunkRows::emitSlots(Value slots, Value local, Value order, Value padded) {
  Value zero = b.index(0), ranks = b.index(step.ranks), none = b.index(-1);
  Type slotType = cast<MemRefType>(padded.getType()).getElementType();
  Value decoded;
  if (cast<ChunkSlotsOp>(op).getOwnDecodes()) {
    Value count = b.countBefore(step.requests, [&](Value i) {
      return b.lessEqual(load(b.add(i, b.index(1)), 0), step.decodes);
    });
    decoded = load(count, 1);
  }
  b.overGrid(zero, b.min(b.dim(order, 0), b.dim(padded, 0)), [&](Value row) {
    auto begin = [&](const Place &place) {
      return b.mul(getLocal(place), ranks);
    };
    // Decodes come first in the step and among a rank's rows.
    Value gathered = chooseOwn(
        row, decoded,
        [&] {
          return getGathered(b.divide(row, decoded), b.remainder(row, decoded),
                             local);
        },
        [&] {
          return find(row, begin, [&](const Request &request, Value i) {
            return getGathered(request, i, local);
          });
        });
    storeI32(b, gathered, order, row);
    Value from = chooseOwn(
        row, decoded,
        [&] {
          return b.select(b.less(row, decoded), b.add(load(zero, 0), row),
                          none);
        },
        [&] {
          return find(row, begin, [&](const Request &request, Value i) {
            return b.select(b.less(i, request.tokens),
                            b.add(request.begin.step, i), none);
          });
        });
    Value slot = b.choose(
        b.inRange(from, zero, b.dim(slots, 0)),
        [&] { return loadIndex(b, slots, from); }, [&] { return none; });
    b.store(b.fromIndex(slot, slotType), padded, row);
  });
}

void ChunkRows::emit() {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](ChunkSplitOp) { emitSplit(args[3], args[4]); })
      .Case([&](ChunkLengthsOp op) {
        emitLengths(op.getPart(), args[1], args[4], args[5], args[6]);
      })
      .Case(
          [&](ChunkSlotsOp) { emitSlots(args[0], args[3], args[4], args[5]); });
}

void mlir::shardq::emitChunkRowsKernel(KernelBuilder &b, Operation *op,
                                       ValueRange args) {
  ChunkRows(b, op, args).emit();
}

//===----------------------------------------------------------------------===//
// Writes
//===----------------------------------------------------------------------===//

/// Rows of a block, which share a look at the slots behind them.
static constexpr int64_t kWrittenRows = 8;
/// Slots of a thread that are loaded before the first is compared.
static constexpr int64_t kSlotsAtOnce = 4;

KernelShape mlir::shardq::getWriteRowsShape() {
  KernelShape shape;
  shape.rowsPerBlock = kWrittenRows;
  return shape;
}

namespace {

/// Blocks write in any order, so a row whose slot a later row has is left out.
class RowWriter {
public:
  RowWriter(KernelBuilder &b, ValueRange args)
      : b(b), slots(args[1]), cache(args[2]),
        rows(b.min(b.dim(args[0], 0), b.dim(slots, 0))),
        last(b.sub(rows, b.index(1))), copy(b, args[0], cache),
        replaced(b.shared({1}, b.getI32Type())), device(args.back()) {}

  void emit();

private:
  Value isRow(Value slot) {
    return b.inRange(b.toIndex(slot), b.index(0), b.dim(cache, 0));
  }
  SmallVector<Value> loadOwn(Value first);
  Value findAmong(ArrayRef<Value> own);
  Value findBehind(Value first, ArrayRef<Value> own);
  void checkSlots(Value first);
  void writeBlock(Value first);

  KernelBuilder &b;
  Value slots, cache, rows, last;
  RowCopy copy;
  // A bit for each row of the block. Shared memory is one more argument of the
  // kernel: those that are read come first.
  Value replaced;
  Value device;
};

} // namespace

/// The block's slots; where a row is not written, one that no row has.
SmallVector<Value> RowWriter::loadOwn(Value first) {
  Type type = cast<MemRefType>(slots.getType()).getElementType();
  Value none = arith::ConstantOp::create(
      b, b.getIntegerAttr(
             type, APInt::getSignedMinValue(type.getIntOrFloatBitWidth())));
  SmallVector<Value> own;
  for (int64_t i = 0; i < kWrittenRows; ++i) {
    Value at = b.add(first, b.index(i));
    Value slot = b.load(slots, b.min(at, last));
    own.push_back(b.select(b.both(b.less(at, rows), isRow(slot)), slot, none));
  }
  return own;
}

/// Bits of the rows that another of the block replaces.
Value RowWriter::findAmong(ArrayRef<Value> own) {
  Value found = b.i32(0);
  for (int64_t i = 0; i < kWrittenRows; ++i)
    for (int64_t later = i + 1; later < kWrittenRows; ++later)
      found = b.bitOr(found, b.select(b.equal(own[i], own[later]),
                                      b.i32(1 << i), b.i32(0)));
  return found;
}

/// Bits of the rows that one behind the block replaces, as far as this thread
/// looks. There are few at most, so a bit is set apart from the comparisons.
Value RowWriter::findBehind(Value first, ArrayRef<Value> own) {
  Value begin = b.add(b.add(first, b.index(kWrittenRows)), b.thread());
  return b
      .loop(
          begin, rows, b.i32(0),
          [&](Value at, ValueRange carried) -> SmallVector<Value> {
            SmallVector<Value> loaded, isAny;
            for (int64_t i = 0; i < kSlotsAtOnce; ++i) {
              Value there = b.add(at, b.index(i * b.numThreads()));
              loaded.push_back(b.load(slots, b.min(there, last)));
            }
            Value any;
            for (Value slot : loaded)
              for (Value mine : own) {
                Value is = b.equal(slot, mine);
                any = any ? arith::OrIOp::create(b, any, is).getResult() : is;
              }
            return {b.choose(
                any,
                [&] {
                  Value found = carried[0];
                  for (Value slot : loaded)
                    for (auto [i, mine] : llvm::enumerate(own))
                      found = b.bitOr(found, b.select(b.equal(slot, mine),
                                                      b.i32(1 << i), b.i32(0)));
                  return found;
                },
                [&] { return carried[0]; })};
          },
          kSlotsAtOnce *b.numThreads())
      .front();
}

/// Records rows of the block whose slot the cache has not, each by a thread.
void RowWriter::checkSlots(Value first) {
  Value row = b.add(first, b.thread()), most = b.dim(cache, 0);
  Value isHere =
      b.both(b.less(b.thread(), b.index(kWrittenRows)), b.less(row, rows));
  b.when(isHere, [&] {
    Value slot = b.toIndex(b.load(slots, row));
    b.when(b.lessEqual(most, slot), [&] {
      recordWrong(b, "shardq_device_beyond_cache", device, {slot, row, most});
    });
  });
}

void RowWriter::writeBlock(Value first) {
  Value zero = b.index(0), none = b.i32(0);
  SmallVector<Value> own = loadOwn(first);
  checkSlots(first);
  b.when(b.equal(b.thread(), zero),
         [&] { b.store(findAmong(own), replaced, zero); });
  Value found = findBehind(first, own);
  b.barrier();
  b.when(b.negate(b.equal(found, none)), [&] {
    memref::AtomicRMWOp::create(b, arith::AtomicRMWKind::ori, found, replaced,
                                ValueRange{zero});
  });
  b.barrier();
  Value bits = b.load(replaced, zero);
  Value count = b.min(b.sub(rows, first), b.index(kWrittenRows));
  copy.scatter(first, count, [&](Value number) {
    Value slot = b.load(slots, b.add(first, number));
    Value bit = arith::ShRUIOp::create(b, bits, b.toI32(number));
    Value isKept = b.equal(b.bitAnd(bit, b.i32(1)), none);
    return b.select(b.both(isKept, isRow(slot)), b.toIndex(slot), b.index(-1));
  });
  b.barrier();
}

void RowWriter::emit() {
  Value size = b.index(kWrittenRows);
  Value blocks =
      b.divide(b.add(b.max(rows, b.index(0)), b.index(kWrittenRows - 1)), size);
  b.overBlocks(b.index(0), blocks,
               [&](Value block) { writeBlock(b.mul(block, size)); });
}

void mlir::shardq::emitWriteRowsKernel(KernelBuilder &b, ValueRange args) {
  RowWriter(b, args).emit();
}
