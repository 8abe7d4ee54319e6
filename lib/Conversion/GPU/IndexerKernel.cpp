//===- IndexerKernel.cpp - Scores of the lightning indexer ----------------===//
//
// A task is 16 rows and 256 positions. Each warp keeps 32 positions' keys in
// registers, as operand B of the matrix unit, as long as rows are of one
// request; the rows' queries, operand A, pass through shared memory, one row
// ahead.
//
// A score is summed over heads in an order that depends on the head alone.
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
static constexpr int64_t kColumns = kKeysPerWarp / 8; // of operand B
/// Values of a key that four lanes load at once: two steps of the matrix unit.
static constexpr int64_t kChunk = 32;
/// Of keys up to this wide all stay in registers; of wider ones, which are read
/// anew for each row, so many values at a time.
static constexpr int64_t kResident = 128;
static constexpr int64_t kPassing = 32;
/// Tiles of 16 heads whose scores are in registers at a time.
static constexpr int64_t kTiles = 4;
static constexpr int64_t kMaxShared = 226 * 1024;

namespace {

/// Shared memory: two buffers of a row's queries, and weights.
struct Plan {
  int64_t heads; // a multiple of 16
  int64_t dim;   // a multiple of kChunk
  int64_t pitch; // of a head, bytes
  int64_t bufferBytes, weightsAt, bytes;
};

/// Writes the kernel.
class IndexerKernel {
public:
  IndexerKernel(KernelBuilder &b, IndexerOp op, ValueRange args, Value firstRow,
                Value scores);
  void emit();

private:
  using Keys = SmallVector<Value>; // [chunk][8 keys][4 words, two steps]

  void emitTask(Value group, Value tile);
  void stageRow(Value row, Value buffer);
  Value keyRow(Value request, Value position);
  Value fromLane(Value index, Value lane);
  Keys loadKeys(Value ownRow, int64_t firstChunk, int64_t chunks);
  SmallVector<Value> loadWide(Value keyRow, int64_t firstChunk, int64_t chunks);
  SmallVector<Value> loadNarrow(Value keyRow, int64_t firstChunk,
                                int64_t chunks);
  void transpose(MutableArrayRef<Value> words);
  void scoreRow(Value row, Value buffer, Value ownRow, const Keys &resident);

  KernelBuilder &b;
  IndexerOp op;
  Value rows, q, weights, keys, table, req, visible, firstRow, scores;
  int64_t heads, dim;
  Type element, i32, f32;
  Plan plan;

  Value memory, lane, warp;
  Value queryIsWide, keysAreWide;
  Value numRows;  // of the scores that the op has
  Value firstKey; // of this task, i32
};

} // namespace

static Plan makePlan(int64_t heads, int64_t dim) {
  Plan plan;
  plan.heads = llvm::alignTo(heads, 16);
  plan.dim = llvm::alignTo(dim, kChunk);
  // An odd multiple of 16 bytes: eight rows of a matrix then lie in different
  // banks.
  plan.pitch = plan.dim * 2 + 16;
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
    : b(b), op(op), rows(getCommonRows(b, op, args)), q(args[0]),
      weights(args[1]), keys(args[2]), table(args[3]), req(args[4]),
      visible(args[5]), firstRow(firstRow), scores(scores), plan(makePlan(op)) {
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
  Value base = b.advance(memory, b.mul(buffer, b.i32(plan.bufferBytes)));
  auto wide = [&] {
    int64_t chunks = dim / 8, padded = plan.dim / 8;
    b.overThreads32(b.i32(heads * padded), [&](Value i) {
      Value head = arith::DivUIOp::create(b, i, b.i32(padded));
      Value chunk = arith::RemUIOp::create(b, i, b.i32(padded));
      Value known = b.less(chunk, b.i32(chunks));
      Value from = b.select(known, b.shiftLeft(chunk, 3), b.i32(0));
      Value to = b.add(b.mul(head, b.i32(plan.pitch)), b.shiftLeft(chunk, 4));
      b.copyAsync16(b.advance(base, to),
                    b.address(q, {row, b.extend(head), b.extend(from)}), known);
    });
  };
  auto narrow = [&] {
    Value none = arith::ConstantOp::create(b, b.getZeroAttr(element));
    b.overThreads32(b.i32(heads * plan.dim), [&](Value i) {
      Value head = arith::DivUIOp::create(b, i, b.i32(plan.dim));
      Value column = arith::RemUIOp::create(b, i, b.i32(plan.dim));
      Value value = b.choose(
          b.less(column, b.i32(dim)),
          [&] { return b.load(q, {row, b.extend(head), b.extend(column)}); },
          [&] { return none; });
      Value to = b.add(b.mul(head, b.i32(plan.pitch)), b.shiftLeft(column, 1));
      b.storeAt(value, b.advance(base, to));
    });
  };
  if (queryIsWide)
    b.when(queryIsWide, wide, narrow);
  else
    narrow();
  Value weightBase = b.advance(
      b.advance(memory, b.mul(buffer, b.i32(plan.heads * 4))), plan.weightsAt);
  b.overThreads32(b.i32(plan.heads), [&](Value head) {
    Value weight = b.choose(
        b.less(head, b.i32(heads)),
        [&] { return b.load(weights, {row, b.extend(head)}); },
        [&] { return b.f32(0.0); });
    b.storeAt(weight, b.advance(weightBase, b.shiftLeft(head, 2)));
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
        Value exists =
            b.both(b.lessEqual(zero, entry), b.less(row, b.dim(keys, 0)));
        return b.select(exists, row, none);
      },
      [&] { return none; });
}

/// What another lane has of an index.
Value IndexerKernel::fromLane(Value index, Value lane) {
  Type i64 = b.getI64Type();
  Value wide = b.fromIndex(index, i64);
  Value low = b.shuffleFrom(arith::TruncIOp::create(b, i32, wide), lane);
  Value upper = arith::ShRUIOp::create(
      b, wide, arith::ConstantOp::create(b, b.getI64IntegerAttr(32)));
  Value high = b.shuffleFrom(arith::TruncIOp::create(b, i32, upper), lane);
  Value joined = arith::OrIOp::create(
      b, arith::ExtUIOp::create(b, i64, low),
      arith::ShLIOp::create(
          b, arith::ExtUIOp::create(b, i64, high),
          arith::ConstantOp::create(b, b.getI64IntegerAttr(32))));
  return b.toIndex(joined);
}

/// This lane's 8 values of each 32 of a key, as four words; zeros behind the
/// key and for no key.
SmallVector<Value> IndexerKernel::loadWide(Value keyRow, int64_t firstChunk,
                                           int64_t chunks) {
  Value column = b.add(b.index(firstChunk * kChunk),
                       b.extend(b.shiftLeft(b.bitAnd(lane, b.i32(3)), 3)));
  SmallVector<Value> nothing(4, b.i32(0));
  auto load = [&] {
    Value base = b.address(keys, {keyRow, column});
    SmallVector<Value> words;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      auto four = [&] {
        return b.loadSeveral(i32, 4, b.advance(base, chunk * kChunk * 2));
      };
      if ((firstChunk + chunk + 1) * kChunk <= dim)
        llvm::append_range(words, four());
      else
        llvm::append_range(
            words, b.chooseAll(b.less(b.add(column, b.index(chunk * kChunk)),
                                      b.index(dim)),
                               four, [&] { return nothing; }));
    }
    return words;
  };
  return b.chooseAll(b.lessEqual(b.index(0), keyRow), load,
                     [&] { return SmallVector<Value>(chunks * 4, b.i32(0)); });
}

SmallVector<Value> IndexerKernel::loadNarrow(Value keyRow, int64_t firstChunk,
                                             int64_t chunks) {
  Value known = b.lessEqual(b.index(0), keyRow);
  Value column = b.add(b.index(firstChunk * kChunk),
                       b.extend(b.shiftLeft(b.bitAnd(lane, b.i32(3)), 3)));
  auto half = [&](int64_t i) {
    Value at = b.add(column, b.index(i));
    return b.choose(
        b.both(known, b.less(at, b.index(dim))),
        [&] {
          Value value =
              b.bits(b.getIntegerType(16), b.load(keys, {keyRow, at}));
          return Value(arith::ExtUIOp::create(b, i32, value));
        },
        [&] { return b.i32(0); });
  };
  SmallVector<Value> words;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t i = 0; i < 8; i += 2) {
      Value low = half(chunk * kChunk + i);
      words.push_back(
          b.bitOr(low, b.shiftLeft(half(chunk * kChunk + i + 1), 16)));
    }
  return words;
}

/// Among four lanes with four words each: lane j gets the j-th words of all.
void IndexerKernel::transpose(MutableArrayRef<Value> words) {
  auto exchange = [&](int64_t bit, Value &first, Value &second) {
    Value isUpper = b.negate(b.equal(b.bitAnd(lane, b.i32(bit)), b.i32(0)));
    Value got = b.shuffleXor(b.select(isUpper, first, second), bit);
    Value newFirst = b.select(isUpper, got, first);
    second = b.select(isUpper, second, got);
    first = newFirst;
  };
  exchange(1, words[0], words[1]);
  exchange(1, words[2], words[3]);
  exchange(2, words[0], words[2]);
  exchange(2, words[1], words[3]);
}

/// This warp's keys as operands B; `ownRow` is the row of key `lane`.
IndexerKernel::Keys IndexerKernel::loadKeys(Value ownRow, int64_t firstChunk,
                                            int64_t chunks) {
  SmallVector<Value> rows;
  for (int64_t n = 0; n < kColumns; ++n)
    rows.push_back(
        fromLane(ownRow, b.add(b.shiftRight(lane, 2), b.i32(n * 8))));
  auto load = [&](bool wide) {
    SmallVector<Value> words; // [8 keys][chunk][4]
    for (Value row : rows)
      llvm::append_range(words, wide ? loadWide(row, firstChunk, chunks)
                                     : loadNarrow(row, firstChunk, chunks));
    return words;
  };
  SmallVector<Value> words = keysAreWide
                                 ? b.chooseAll(
                                       keysAreWide, [&] { return load(true); },
                                       [&] { return load(false); })
                                 : load(false);
  Keys operands;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t n = 0; n < kColumns; ++n) {
      auto four =
          MutableArrayRef<Value>(words).slice((n * chunks + chunk) * 4, 4);
      transpose(four);
      llvm::append_range(operands, four);
    }
  return operands;
}

/// Scores of the task's positions for a row whose queries are in a buffer.
void IndexerKernel::scoreRow(Value row, Value buffer, Value ownRow,
                             const Keys &resident) {
  Value group = b.shiftRight(lane, 2), quarter = b.bitAnd(lane, b.i32(3));
  // Matrices of operand A: heads 0, 8, 0, 8; values 0, 0, 8, 8.
  Value matrixRow = b.add(b.mul(b.bitAnd(lane, b.i32(15)), b.i32(plan.pitch)),
                          b.shiftLeft(b.shiftRight(lane, 4), 4));
  Value queryBase = b.advance(
      memory, b.add(b.mul(buffer, b.i32(plan.bufferBytes)), matrixRow));
  Value weightBase =
      b.advance(b.advance(memory, b.add(b.mul(buffer, b.i32(plan.heads * 4)),
                                        b.shiftLeft(group, 2))),
                plan.weightsAt);

  // Of the keys 8 n + 2 * (lane % 4) and the next, over this lane's heads.
  SmallVector<Value> sums(kColumns * 2, b.f32(0.0));
  int64_t allTiles = plan.heads / 16;
  for (int64_t first = 0; first < allTiles; first += kTiles) {
    int64_t tiles = std::min(kTiles, allTiles - first);
    SmallVector<Value> dots(tiles * kColumns * 4, b.f32(0.0));
    int64_t width = plan.dim > kResident ? kPassing : plan.dim;
    for (int64_t begin = 0; begin < plan.dim; begin += width) {
      int64_t chunks = std::min(width, plan.dim - begin) / kChunk;
      Keys loaded;
      if (plan.dim > kResident)
        loaded = loadKeys(ownRow, begin / kChunk, chunks);
      ValueRange operands = plan.dim > kResident ? loaded : resident;
      for (int64_t step = 0; step < chunks * 2; ++step)
        for (int64_t tile = 0; tile < tiles; ++tile) {
          SmallVector<Value> a = b.loadMatrices(
              b.advance(queryBase, (first + tile) * 16 * plan.pitch +
                                       begin * 2 + step * 32),
              /*transposed=*/false);
          for (int64_t n = 0; n < kColumns; ++n) {
            int64_t at = (tile * kColumns + n) * 4;
            SmallVector<Value> next = b.multiplyMatrices(
                element, a,
                operands.slice((step / 2 * kColumns + n) * 4 + step % 2 * 2, 2),
                ValueRange(dots).slice(at, 4));
            llvm::copy(next, dots.begin() + at);
          }
        }
    }
    for (int64_t tile = 0; tile < tiles; ++tile)
      for (int64_t half = 0; half < 2; ++half) {
        int64_t head = (first + tile) * 16 + half * 8; // of group 0
        Value weight = b.loadAt(f32, b.advance(weightBase, head * 4));
        for (int64_t n = 0; n < kColumns; ++n)
          for (int64_t side = 0; side < 2; ++side) {
            Value &sum = sums[n * 2 + side];
            Value dot = dots[(tile * kColumns + n) * 4 + half * 2 + side];
            // maximumf keeps a NaN, which top-k sorts below everything.
            Value positive = b.max(dot, b.f32(0.0));
            Value next = LLVM::FMAOp::create(b, positive, weight, sum);
            // Of heads that do not exist a key may still make a NaN.
            if (head + 8 > heads) {
              Value exists = b.less(b.add(group, b.i32(head)), b.i32(heads));
              next = b.select(exists, next, sum);
            }
            sum = next;
          }
      }
  }
  // Over the groups of lanes; each time, half of the keys stay with a lane.
  for (int64_t bit : {16, 8, 4}) {
    Value isUpper = b.negate(b.equal(b.bitAnd(lane, b.i32(bit)), b.i32(0)));
    SmallVector<Value> kept;
    size_t half = sums.size() / 2;
    for (size_t i = 0; i < half; ++i) {
      Value other = b.select(isUpper, sums[i], sums[i + half]);
      Value own = b.select(isUpper, sums[i + half], sums[i]);
      kept.push_back(b.add(own, b.shuffleXor(other, bit)));
    }
    sums = kept;
  }
  // Lane bits 4 and 3 say which 8 keys, bits 1 and 0 which two, bit 2 which
  // one.
  Value key = b.bitAnd(lane, b.i32(24));
  key = b.add(key, b.shiftLeft(quarter, 1));
  key = b.add(key, b.bitAnd(group, b.i32(1)));

  Value score = sums[0];
  Value isNaN =
      arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, score, score);
  Value bits = b.select(isNaN, b.i32(0x7fffffff), b.bits(i32, score));
  Value exists = b.shuffleFrom(
      b.select(b.lessEqual(b.index(0), ownRow), b.i32(1), b.i32(0)), key);
  bits = b.select(b.equal(exists, b.i32(0)), b.i32(int64_t(kNoKey)), bits);
  Value position =
      b.extend(b.add(b.add(firstKey, b.mul(warp, b.i32(kKeysPerWarp))), key));
  Value seen =
      b.min(b.toIndex(b.load(visible, b.add(firstRow, row))), b.dim(scores, 1));
  b.when(b.less(position, seen),
         [&] { b.store(b.bits(f32, bits), scores, {row, position}); });
}

void IndexerKernel::emitTask(Value group, Value tile) {
  Value zero = b.i32(0);
  firstKey = b.toI32(b.mul(tile, b.index(kKeys)));
  Value begin = b.mul(group, b.index(kRows));
  int64_t resident = plan.dim > kResident ? 0 : plan.dim / kChunk;

  // A bit for each row that sees one of the positions: others are passed over.
  Value laneRow = b.add(begin, b.extend(lane));
  Value isRow = b.both(b.less(lane, b.i32(kRows)), b.less(laneRow, numRows));
  Value seen = b.choose(
      isRow, [&] { return b.load(visible, b.add(firstRow, laneRow)); },
      [&] { return zero; });
  Value seeing = b.ballot(b.less(firstKey, seen));
  auto firstOf = [&](Value rows) {
    Value bit = LLVM::CountTrailingZerosOp::create(b, i32, rows,
                                                   /*is_zero_poison=*/false);
    return b.add(begin, b.extend(bit));
  };
  auto any = [&](Value rows) { return b.negate(b.equal(rows, zero)); };

  b.when(any(seeing),
         [&] { stageRow(b.add(firstRow, firstOf(seeing)), zero); });
  b.commitCopies();
  // The rows to come and their first one's buffer; the request whose keys are
  // in registers, where key `lane` of this warp lies, and the keys.
  SmallVector<Value> state{seeing, zero, b.index(-2), b.index(-1)};
  state.append(resident * kColumns * 4, b.i32(0));
  SmallVector<Type> types = llvm::to_vector(
      llvm::map_range(state, [](Value value) { return value.getType(); }));
  scf::WhileOp::create(
      b, types, state,
      [&](OpBuilder &nested, Location, ValueRange state) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(nested.getInsertionBlock());
        scf::ConditionOp::create(b, any(state[0]), state);
      },
      [&](OpBuilder &nested, Location, ValueRange state) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(nested.getInsertionBlock());
        Value row = firstOf(state[0]), buffer = state[1], loaded = state[2];
        Value following = b.bitAnd(state[0], b.sub(state[0], b.i32(1)));
        Value other = b.sub(b.i32(1), buffer);
        b.when(any(following),
               [&] { stageRow(b.add(firstRow, firstOf(following)), other); });
        b.commitCopies();
        // What has no request has no keys either, whichever number it is.
        Value request =
            b.max(b.index(-1), b.toIndex(b.load(req, b.add(firstRow, row))));
        SmallVector<Value> held = b.chooseAll(
            b.equal(request, loaded),
            [&] { return SmallVector<Value>(state.drop_front(3)); },
            [&] {
              Value position = b.add(
                  b.add(firstKey, b.mul(warp, b.i32(kKeysPerWarp))), lane);
              SmallVector<Value> values{keyRow(request, position)};
              if (resident)
                llvm::append_range(values, loadKeys(values[0], 0, resident));
              return values;
            });
        b.waitCopies(1);
        b.barrier();
        scoreRow(row, buffer, held[0], Keys(ValueRange(held).drop_front()));
        b.barrier(); // the buffer is free again
        SmallVector<Value> next{following, other, request};
        llvm::append_range(next, held);
        scf::YieldOp::create(b, next);
      });
}

void IndexerKernel::emit() {
  Value zero = b.index(0);
  memory = b.address(b.dynamicShared(), zero);
  lane = b.lane();
  warp = b.warp();
  if (dim % 8 == 0) {
    queryIsWide = isAligned16(b, q);
    keysAreWide = isAligned16(b, keys);
  }
  // Queries of heads that do not exist.
  if (plan.heads != heads) {
    Value zeros =
        arith::ConstantOp::create(b, b.getZeroAttr(VectorType::get({4}, i32)));
    int64_t chunks = plan.pitch / 16;
    for (int64_t buffer = 0; buffer < 2; ++buffer)
      b.overThreads(zero, b.index((plan.heads - heads) * chunks), [&](Value i) {
        b.store16(zeros,
                  b.advance(b.advance(memory, b.mul(i, b.index(16))),
                            buffer * plan.bufferBytes + heads * plan.pitch));
      });
  }
  numRows = b.min(b.dim(scores, 0), b.sub(rows, firstRow));
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
