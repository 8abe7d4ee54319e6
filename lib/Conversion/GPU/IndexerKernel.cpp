//===- IndexerKernel.cpp - Scores of the lightning indexer ----------------===//
//
// A task is 16 rows and 256 positions. Each warp keeps 32 positions' keys in
// registers, as operand A of the matrix unit, as long as rows are of one
// request; the rows' queries pass through shared memory, one ahead. The matrix
// unit gets the values of a dot product in another order than memory has them,
// the same one for queries and keys: what a lane needs of 32 values of a row is
// then 16 bytes in a row.
//
// A score is summed over heads by lanes and in an order that depend on the head
// alone.
//
//===----------------------------------------------------------------------===//

#include "Kernels.h"

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kThreads = 256;
static constexpr int64_t kWarps = kThreads / kWarp;
static constexpr int64_t kRows = 16;
static constexpr int64_t kKeysPerWarp = 32;
static constexpr int64_t kKeys = kWarps * kKeysPerWarp;
static constexpr int64_t kTiles = kKeysPerWarp / 16;
/// Values that a lane loads at once hold two steps of the matrix unit.
static constexpr int64_t kChunk = 32;
/// Of keys up to this wide all stay in registers; of wider ones, which are read
/// anew for each row, so many values at a time.
static constexpr int64_t kResident = 128;
static constexpr int64_t kPassing = 32;
/// Heads whose scores are in registers at a time.
static constexpr int64_t kHeads = 64;
static constexpr int64_t kMaxShared = 226 * 1024;

namespace {

/// Shared memory: two buffers of a row's queries, and weights.
struct Plan {
  int64_t heads; // a multiple of 8
  int64_t dim;   // a multiple of kChunk
  int64_t pitch; // of a head, bytes
  int64_t bufferBytes, weightsAt, bytes;
};

/// Writes the kernel.
class IndexerKernel {
public:
  IndexerKernel(KernelBuilder &b, IndexerOp op, ValueRange args,
                Value firstRow, Value scores);
  void emit();

private:
  using Fragments = SmallVector<Value>; // [chunk][tile][4 words, two halves]

  void emitTask(Value group, Value tile);
  void stageRow(Value row, Value buffer);
  Value keyRow(Value request, Value position);
  SmallVector<Value> findKeys(Value request);
  Fragments loadKeys(ValueRange rows, int64_t firstChunk, int64_t chunks);
  SmallVector<Value> loadChunk(Value keyRow, int64_t chunk);
  void scoreRow(Value row, Value buffer, ValueRange rows,
                const Fragments &resident);

  KernelBuilder &b;
  IndexerOp op;
  Value q, weights, keys, table, req, visible, firstRow, scores;
  int64_t heads, dim;
  Type element, i32, f32;
  Plan plan;

  Value memory, thread, lane, warp;
  Value queryIsWide, keysAreWide;
  Value numRows;  // of the scores that the op has
  Value firstKey; // of this task, i32
};

} // namespace

static Plan makePlan(int64_t heads, int64_t dim) {
  Plan plan;
  plan.heads = llvm::alignTo(heads, 8);
  plan.dim = llvm::alignTo(dim, kChunk);
  // An odd multiple of 64 bytes: the two heads whose 64 bytes are read at once
  // then lie in different banks.
  plan.pitch = plan.dim * 2;
  if (plan.pitch % 128 == 0)
    plan.pitch += 64;
  plan.bufferBytes = plan.heads * plan.pitch;
  plan.weightsAt = 2 * plan.bufferBytes;
  plan.bytes = plan.weightsAt + 2 * plan.heads * 4;
  return plan;
}

static Plan makePlan(IndexerOp op) {
  auto type = cast<ShapedType>(op.getQ().getType());
  return makePlan(type.getDimSize(1), type.getDimSize(2));
}

IndexerKernel::IndexerKernel(KernelBuilder &b, IndexerOp op, ValueRange args,
                             Value firstRow, Value scores)
    : b(b), op(op), q(args[0]), weights(args[1]), keys(args[2]),
      table(args[3]), req(args[4]), visible(args[5]), firstRow(firstRow),
      scores(scores), plan(makePlan(op)) {
  auto type = cast<MemRefType>(q.getType());
  heads = type.getDimSize(1);
  dim = type.getDimSize(2);
  element = type.getElementType();
  i32 = b.getI32Type();
  f32 = b.getF32Type();
}

/// Copies a row's queries and weights to a buffer (0 or 1, i32); zeros where
/// there is no value.
void IndexerKernel::stageRow(Value row, Value buffer) {
  Value zero = b.index(0);
  Value base = b.advance(memory, b.mul(buffer, b.i32(plan.bufferBytes)));
  auto wide = [&] {
    int64_t chunks = dim / 8, padded = plan.dim / 8;
    b.overThreads(zero, b.index(heads * padded), [&](Value i) {
      Value head = arith::DivUIOp::create(b, i, b.index(padded));
      Value chunk = arith::RemUIOp::create(b, i, b.index(padded));
      Value known = b.less(chunk, b.index(chunks));
      Value from = b.select(known, b.mul(chunk, b.index(8)), zero);
      Value to =
          b.add(b.mul(head, b.index(plan.pitch)), b.mul(chunk, b.index(16)));
      b.copyAsync16(b.advance(base, to), b.address(q, {row, head, from}),
                    known);
    });
  };
  auto narrow = [&] {
    Value none = arith::ConstantOp::create(b, b.getZeroAttr(element));
    b.overThreads(zero, b.index(heads * plan.dim), [&](Value i) {
      Value head = arith::DivUIOp::create(b, i, b.index(plan.dim));
      Value column = arith::RemUIOp::create(b, i, b.index(plan.dim));
      Value value = b.choose(
          b.less(column, b.index(dim)),
          [&] { return b.load(q, {row, head, column}); },
          [&] { return none; });
      Value to =
          b.add(b.mul(head, b.index(plan.pitch)), b.mul(column, b.index(2)));
      b.storeAt(value, b.advance(base, to));
    });
  };
  if (queryIsWide)
    b.when(queryIsWide, wide, narrow);
  else
    narrow();
  Value weightBase = b.advance(
      b.advance(memory, b.mul(buffer, b.i32(plan.heads * 4))), plan.weightsAt);
  b.overThreads(zero, b.index(plan.heads), [&](Value head) {
    Value weight = b.choose(
        b.less(head, b.index(heads)),
        [&] { return b.load(weights, {row, head}); },
        [&] { return b.f32(0.0); });
    b.storeAt(weight, b.advance(weightBase, b.mul(head, b.index(4))));
  });
}

/// The row of `keys` that holds a position (i32) of a request, -1 for none.
Value IndexerKernel::keyRow(Value request, Value position) {
  Value zero = b.index(0), none = b.index(-1);
  int64_t size = op.getBlockSize();
  Value block = b.extend(arith::DivUIOp::create(b, position, b.i32(size)));
  Value inside = b.extend(arith::RemUIOp::create(b, position, b.i32(size)));
  Value known = b.both(b.inRange(request, zero, b.dim(table, 0)),
                       b.less(block, b.dim(table, 1)));
  return b.choose(
      known,
      [&] {
        Value entry = b.toIndex(b.load(table, {request, block}));
        Value row = b.add(b.mul(entry, b.index(op.getBlockStride())), inside);
        Value exists = b.both(b.lessEqual(zero, entry),
                              b.less(row, b.dim(keys, 0)));
        return b.select(exists, row, none);
      },
      [&] { return none; });
}

/// Rows of the four keys of this lane's group (lane / 4, and 8, 16 and 24 more).
SmallVector<Value> IndexerKernel::findKeys(Value request) {
  Value position =
      b.add(b.add(firstKey, b.mul(warp, b.i32(kKeysPerWarp))),
            b.shiftRight(lane, 2));
  SmallVector<Value> rows;
  for (int64_t i = 0; i < kKeysPerWarp; i += 8)
    rows.push_back(keyRow(request, b.add(position, b.i32(i))));
  return rows;
}

/// The 8 values that are this lane's of 32 of a key, as four words; zeros
/// behind the key and for no key.
SmallVector<Value> IndexerKernel::loadChunk(Value keyRow, int64_t chunk) {
  Value zero = b.i32(0);
  SmallVector<Value> nothing(4, zero);
  Value known = b.lessEqual(b.index(0), keyRow);
  Value column = b.add(b.index(chunk * kChunk),
                       b.extend(b.shiftLeft(b.bitAnd(lane, b.i32(3)), 3)));
  auto wide = [&]() -> SmallVector<Value> {
    Value present = known;
    if ((chunk + 1) * kChunk > dim)
      present = b.both(known, b.less(column, b.index(dim)));
    return b.chooseAll(
        present,
        [&] { return b.loadSeveral(i32, 4, b.address(keys, {keyRow, column})); },
        [&] { return nothing; });
  };
  auto narrow = [&]() -> SmallVector<Value> {
    SmallVector<Value> words;
    Type i16 = b.getIntegerType(16);
    for (int64_t i = 0; i < 8; i += 2) {
      SmallVector<Value> halves;
      for (int64_t half : {i, i + 1}) {
        Value at = b.add(column, b.index(half));
        halves.push_back(b.choose(
            b.both(known, b.less(at, b.index(dim))),
            [&] {
              Value value = b.bits(i16, b.load(keys, {keyRow, at}));
              return Value(arith::ExtUIOp::create(b, i32, value));
            },
            [&] { return zero; }));
      }
      words.push_back(b.bitOr(halves[0], b.shiftLeft(halves[1], 16)));
    }
    return words;
  };
  if (!keysAreWide)
    return narrow();
  return b.chooseAll(keysAreWide, wide, narrow);
}

IndexerKernel::Fragments IndexerKernel::loadKeys(ValueRange rows,
                                                 int64_t firstChunk,
                                                 int64_t chunks) {
  Fragments fragments;
  for (int64_t chunk = firstChunk; chunk < firstChunk + chunks; ++chunk)
    for (int64_t tile = 0; tile < kTiles; ++tile) {
      SmallVector<Value> upper = loadChunk(rows[tile * 2], chunk);
      SmallVector<Value> lower = loadChunk(rows[tile * 2 + 1], chunk);
      // Words 0 and 1 are the first step's columns, 2 and 3 the second's.
      for (int64_t step = 0; step < 2; ++step)
        fragments.append({upper[step * 2], lower[step * 2],
                          upper[step * 2 + 1], lower[step * 2 + 1]});
    }
  return fragments;
}

/// Scores of the task's positions for a row whose queries are in a buffer.
void IndexerKernel::scoreRow(Value row, Value buffer, ValueRange rows,
                             const Fragments &resident) {
  Value group = b.shiftRight(lane, 2), quarter = b.bitAnd(lane, b.i32(3));
  // Of head lane / 4, the 16 bytes that are this lane's of 64.
  Value queryBase = b.advance(
      memory, b.add(b.mul(buffer, b.i32(plan.bufferBytes)),
                    b.add(b.mul(group, b.i32(plan.pitch)),
                          b.shiftLeft(quarter, 4))));
  Value weightBase = b.advance(
      b.advance(memory, b.add(b.mul(buffer, b.i32(plan.heads * 4)),
                              b.shiftLeft(quarter, 3))),
      plan.weightsAt);

  // Of the keys lane / 4 + 8 i, over this lane's heads.
  SmallVector<Value> sums(kTiles * 2, b.f32(0.0));
  for (int64_t first = 0; first < plan.heads; first += kHeads) {
    int64_t columns = std::min(kHeads, plan.heads - first) / 8;
    SmallVector<Value> dots(kTiles * columns * 4, b.f32(0.0));
    int64_t width = plan.dim > kResident ? kPassing : plan.dim;
    for (int64_t begin = 0; begin < plan.dim; begin += width) {
      int64_t chunks = std::min(width, plan.dim - begin) / kChunk;
      Fragments loaded;
      if (plan.dim > kResident)
        loaded = loadKeys(rows, begin / kChunk, chunks);
      const Fragments &a = plan.dim > kResident ? loaded : resident;
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        for (int64_t n = 0; n < columns; ++n) {
          int64_t place = (first + n * 8) * plan.pitch +
                          (begin / kChunk + chunk) * kChunk * 2;
          SmallVector<Value> words =
              b.loadSeveral(i32, 4, b.advance(queryBase, place));
          for (int64_t step = 0; step < 2; ++step)
            for (int64_t tile = 0; tile < kTiles; ++tile) {
              int64_t at = (tile * columns + n) * 4;
              SmallVector<Value> next = b.multiplyMatrices(
                  element,
                  ValueRange(a).slice(((chunk * kTiles + tile) * 2 + step) * 4,
                                      4),
                  ValueRange(words).slice(step * 2, 2),
                  ValueRange(dots).slice(at, 4));
              llvm::copy(next, dots.begin() + at);
            }
        }
    }
    for (int64_t n = 0; n < columns; ++n) {
      SmallVector<Value> weight = b.loadSeveral(
          f32, 2, b.advance(weightBase, (first + n * 8) * 4));
      for (int64_t side = 0; side < 2; ++side) {
        int64_t head = first + n * 8 + side; // of quarter 0
        for (int64_t tile = 0; tile < kTiles; ++tile)
          for (int64_t half = 0; half < 2; ++half) {
            Value &sum = sums[tile * 2 + half];
            Value dot = dots[(tile * columns + n) * 4 + half * 2 + side];
            // maximumf keeps a NaN, which top-k sorts below everything.
            Value positive = b.max(dot, b.f32(0.0));
            Value next = LLVM::FMAOp::create(b, positive, weight[side], sum);
            // Of heads that do not exist a key may still make a NaN.
            if (head + 6 >= heads) {
              Value exists = b.less(b.add(b.i32(head), b.shiftLeft(quarter, 1)),
                                    b.i32(heads));
              next = b.select(exists, next, sum);
            }
            sum = next;
          }
      }
    }
  }
  for (Value &sum : sums)
    for (int64_t mask : {1, 2})
      sum = b.add(sum, b.shuffleXor(sum, mask));

  // Lane 4 g + j writes key g + 8 j.
  Value score = sums[0], keyRow = rows[0];
  for (int64_t j = 1; j < kTiles * 2; ++j) {
    Value mine = b.equal(quarter, b.i32(j));
    score = b.select(mine, sums[j], score);
    keyRow = b.select(mine, rows[j], keyRow);
  }
  Value isNaN = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, score, score);
  Value bits = b.select(isNaN, b.i32(0x7fffffff), b.bits(i32, score));
  bits = b.select(b.lessEqual(b.index(0), keyRow), bits,
                  b.i32(int64_t(kNoKey)));
  Value position = b.add(
      b.add(b.extend(firstKey),
            b.extend(b.mul(warp, b.i32(kKeysPerWarp)))),
      b.extend(b.add(group, b.shiftLeft(quarter, 3))));
  Value seen = b.min(b.toIndex(b.load(visible, b.add(firstRow, row))),
                     b.dim(scores, 1));
  b.when(b.less(position, seen),
         [&] { b.store(b.bits(f32, bits), scores, {row, position}); });
}

void IndexerKernel::emitTask(Value group, Value tile) {
  Value one = b.index(1);
  firstKey = b.toI32(b.mul(tile, b.index(kKeys)));
  Value begin = b.mul(group, b.index(kRows));
  Value end = b.min(numRows, b.add(begin, b.index(kRows)));
  int64_t resident = plan.dim > kResident ? 0 : plan.dim / kChunk;

  // Rows that see none of the positions are passed over. The next one that
  // does, at or behind `row`, or `end`.
  auto nextRow = [&](Value row) {
    auto loop = scf::WhileOp::create(
        b, TypeRange{b.getIndexType()}, ValueRange{row},
        [&](OpBuilder &nested, Location, ValueRange state) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToEnd(nested.getInsertionBlock());
          Value sees = b.choose(
              b.less(state[0], end),
              [&] {
                Value seen = b.load(visible, b.add(firstRow, state[0]));
                return b.lessEqual(seen, firstKey);
              },
              [&]() -> Value {
                return arith::ConstantOp::create(b, b.getBoolAttr(false));
              });
          scf::ConditionOp::create(b, sees, state);
        },
        [&](OpBuilder &nested, Location, ValueRange state) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToEnd(nested.getInsertionBlock());
          scf::YieldOp::create(b, ValueRange{b.add(state[0], one)});
        });
    return loop.getResult(0);
  };

  Value first = nextRow(begin);
  b.when(b.less(first, end), [&] {
    stageRow(b.add(firstRow, first), b.i32(0));
    b.commitCopies();
  });
  // The row at hand, its buffer, the request whose keys are in registers; where
  // they lie, and they.
  SmallVector<Value> state{first, b.i32(0), b.index(-2)};
  state.append(kTiles * 2, b.index(-1));
  state.append(resident * kTiles * 8, b.i32(0));
  SmallVector<Type> types = llvm::to_vector(
      llvm::map_range(state, [](Value value) { return value.getType(); }));
  scf::WhileOp::create(
      b, types, state,
      [&](OpBuilder &nested, Location, ValueRange state) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(nested.getInsertionBlock());
        scf::ConditionOp::create(b, b.less(state[0], end), state);
      },
      [&](OpBuilder &nested, Location, ValueRange state) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(nested.getInsertionBlock());
        Value row = state[0], buffer = state[1], loaded = state[2];
        Value following = nextRow(b.add(row, one));
        Value other = b.sub(b.i32(1), buffer);
        b.when(b.less(following, end),
               [&] { stageRow(b.add(firstRow, following), other); });
        b.commitCopies();
        // What has no request has no keys either, whichever number it is.
        Value request = b.max(b.index(-1),
                              b.toIndex(b.load(req, b.add(firstRow, row))));
        SmallVector<Value> held = b.chooseAll(
            b.equal(request, loaded),
            [&] { return SmallVector<Value>(state.drop_front(3)); },
            [&] {
              SmallVector<Value> values = findKeys(request);
              llvm::append_range(values, loadKeys(values, 0, resident));
              return values;
            });
        b.waitCopies(1);
        b.barrier();
        scoreRow(row, buffer, ValueRange(held).take_front(kTiles * 2),
                 SmallVector<Value>(ValueRange(held).drop_front(kTiles * 2)));
        b.barrier(); // the buffer is free again
        SmallVector<Value> next{following, other, request};
        llvm::append_range(next, held);
        scf::YieldOp::create(b, next);
      });
}

void IndexerKernel::emit() {
  Value zero = b.index(0);
  memory = b.address(b.dynamicShared(), zero);
  thread = b.threadI32();
  lane = b.lane();
  warp = b.warp();
  if (dim % 8 == 0) {
    queryIsWide = isAligned16(b, q);
    keysAreWide = isAligned16(b, keys);
  }
  // Queries of heads that do not exist.
  if (plan.heads != heads) {
    Value zeros = arith::ConstantOp::create(
        b, b.getZeroAttr(VectorType::get({4}, i32)));
    int64_t chunks = plan.pitch / 16;
    for (int64_t buffer = 0; buffer < 2; ++buffer)
      b.overThreads(zero, b.index((plan.heads - heads) * chunks), [&](Value i) {
        b.store16(zeros, b.advance(b.advance(memory, b.mul(i, b.index(16))),
                                   buffer * plan.bufferBytes +
                                       heads * plan.pitch));
      });
  }
  numRows = b.min(b.dim(scores, 0), b.sub(b.dim(q, 0), firstRow));
  Value groups = arith::DivUIOp::create(
      b, b.add(b.max(zero, numRows), b.index(kRows - 1)), b.index(kRows));
  Value tiles = arith::DivUIOp::create(
      b, b.add(b.dim(scores, 1), b.index(kKeys - 1)), b.index(kKeys));
  b.overBlocks(zero, b.mul(groups, tiles), [&](Value task) {
    emitTask(arith::DivUIOp::create(b, task, tiles),
             arith::RemUIOp::create(b, task, tiles));
  });
}

LogicalResult mlir::shardq::verifyIndexerKernel(IndexerOp op) {
  auto type = cast<ShapedType>(op.getQ().getType());
  Type element = type.getElementType();
  if (!element.isBF16() && !element.isF16())
    return op.emitOpError("has 'q' of ")
           << element << ", expected bf16 or f16 for a GPU";
  if (makePlan(op).bytes > kMaxShared)
    return op.emitOpError("has 'q' of ")
           << type.getDimSize(1) << " heads of " << type.getDimSize(2)
           << " elements, expected no more than fit into " << kMaxShared
           << " bytes twice";
  return success();
}

KernelShape mlir::shardq::getIndexerScoresShape(IndexerOp op) {
  KernelShape shape;
  shape.threads = kThreads;
  shape.blocksPerRow = 132;
  shape.maxBlocks = 1056;
  shape.dynamicShared = makePlan(op).bytes;
  return shape;
}

void mlir::shardq::emitIndexerScoresKernel(KernelBuilder &b, IndexerOp op,
                                           ValueRange args, Value firstRow,
                                           Value scores) {
  IndexerKernel(b, op, args, firstRow, scores).emit();
}
