//===- AttentionKernel.cpp - Sparse MLA -----------------------------------===//
//
// A block takes one row after another and up to 64 of its heads ("tiles" of
// 16). It gathers keys, 32 at a time, into shared memory, some blocks of keys
// ahead of what it computes. For each 32 keys:
//
// 1. Scores. Warps share out the query's values ("parts", of the sum over them)
//    and, where there are more warps than parts, tiles or keys. Each writes its
//    partial scores to shared memory.
// 2. Weights. A few threads for each head add the parts in order, keep the
//    running maximum and sum, and write the weights in 16 bits and by what
//    factor the sums so far shrink.
// 3. Values. Each warp multiplies all weights by its columns of the keys, which
//    it adds to its part of the output in registers.
//
//===----------------------------------------------------------------------===//

#include "../Utils/PackedValues.h"
#include "Kernels.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kThreads = 256;
static constexpr int64_t kWarps = kThreads / kWarp;
static constexpr int64_t kKeys = 32; // gathered at a time
static constexpr int64_t kTile = 16; // heads, or values of a step
static constexpr int64_t kMaxTiles = 4;
/// 8x16 blocks of the output in a warp's registers, 4 each.
static constexpr int64_t kMaxBlocks = 32;
/// Registers of a thread that may hold the query.
static constexpr int64_t kMaxQueryRegisters = 40;
static constexpr int64_t kMaxStages = 3;
/// Shared memory that each block takes besides its own.
static constexpr int64_t kReservedShared = 1024;
/// Lanes that gather one key together.
static constexpr int64_t kLanesPerKey = kThreads / kKeys;

namespace {

/// How a block divides the work, and its shared memory.
struct Plan {
  int64_t tiles;      // of 16 heads, of a block
  int64_t headBlocks; // blocks of the grid that share a row
  int64_t steps;      // of 16 values, of a query
  int64_t columns;    // of the output, of a warp: multiple of 16
  int64_t stages;     // 32 keys each, in shared memory
  bool queryInRegisters;
  // The warps' shares of the scores.
  int64_t tileGroups, keyGroups, parts;
  // Of a key, of a head's partial scores and weights; bytes.
  int64_t pitch, partialPitch, weightPitch;
  // Places in shared memory.
  int64_t stageBytes, partialAt, weightsAt, validAt, correctionAt, factorAt,
      queryAt, bytes;

  int64_t heads() const { return tiles * kTile; }
  int64_t tilesPerWarp() const { return tiles / tileGroups; }
  int64_t keysPerWarp() const { return kKeys / keyGroups; }
  int64_t threadsPerHead() const { return tiles > 2 ? 4 : 16 / tiles; }
  int64_t keysPerThread() const { return kKeys / threadsPerHead(); }
};

/// Writes the kernel.
class AttentionKernel {
public:
  AttentionKernel(KernelBuilder &b, SparseMlaOp op, ValueRange args,
                  const Plan &plan);
  void emit();

private:
  // What one iteration over keys hands to the next.
  struct State {
    SmallVector<Value> sums; // [tile][8 columns][4], f32
    Value maximum, total;    // of this thread's head
    Value seen;              // i32, not 0 once the head had a key
    Value slot;              // of the block of keys to gather next
    Value reading, writing;  // stages as byte offsets, i32
  };
  SmallVector<Value> flatten(const State &state);
  State unflatten(ValueRange values);

  Value at(int64_t place, Value offset);
  void emitRow(Value task);
  Value columnsOf(Value row);
  void loadQuery();
  void loadQueryWide(Value to);
  void loadQueryNarrow(Value to);
  void keepQuery();
  Value slotOf(Value keyBlock);
  void gather(Value slot, Value stage);
  void gatherPacked(Value known, Value from, Value base);
  void gatherColumns(Value known, Value base,
                     llvm::function_ref<Value(Value)> load);
  void unpackChunks(Value known, Value from, Value base);
  void copyRope(Value known, Value from, Value base);
  Value unpackColumn(Value from, Value column);
  Value nextStage(Value stage);
  void score(Value stage);
  void weigh(State &state);
  void addValues(State &state);
  void finish(const State &state);
  void writeOut(const State &state);

  KernelBuilder &b;
  SparseMlaOp op;
  const Plan &plan;
  SmallVector<Value> q;
  Value rows, kv, slots, req, topkLength, sink, out, lse;
  int64_t heads, queryDim, valueDim;
  Type element, i32, f32;
  PackedRowsAttr format; // of `kv`, or null

  Value memory, lane, warp;
  Value queryIsWide, keysAreWide, outIsWide;
  Value keyInBlock, laneOfKey;    // what this thread gathers
  Value headOfThread, partOfHead; // whose weights it computes
  // Of the row at hand.
  Value row, firstHead;
  Value length;                          // columns that may hold keys, i32
  SmallVector<SmallVector<Value>> query; // [step of this warp * tiles][4]
};

} // namespace

/// What each of two blocks on one multiprocessor can have, where one alone can
/// have `sharedBytes`.
static int64_t getHalf(int64_t sharedBytes) {
  return (sharedBytes + kReservedShared) / 2 - kReservedShared;
}

/// The widths that fit, or nothing.
static std::optional<Plan> makePlan(int64_t heads, int64_t queryDim,
                                    int64_t valueDim, int64_t sharedBytes) {
  Plan plan;
  plan.steps = llvm::divideCeil(queryDim, kTile);
  plan.columns = llvm::alignTo(llvm::divideCeil(valueDim, kWarps), 16);
  int64_t allTiles = llvm::divideCeil(heads, kTile);
  // Each key a multiple of 16 bytes, an odd one: eight rows of a matrix then
  // lie in different banks.
  int64_t width = std::max(plan.steps * kTile, plan.columns * kWarps);
  plan.pitch = width * 2 + 16;
  plan.stageBytes = kKeys * plan.pitch;
  plan.partialPitch = (kKeys + 8) * 4;
  plan.weightPitch = kKeys * 2 + 16;

  for (int64_t most = kMaxTiles; most > 0; --most) {
    plan.headBlocks = llvm::divideCeil(allTiles, most);
    plan.tiles = llvm::divideCeil(allTiles, plan.headBlocks);
    if (plan.tiles * plan.columns / 8 > kMaxBlocks)
      continue;
    plan.tileGroups = plan.tiles == 4 ? 2 : 1;
    plan.keyGroups = plan.tiles == 3 ? 2 : 1;
    plan.parts = kWarps / plan.tileGroups / plan.keyGroups;
    int64_t registers =
        llvm::divideCeil(plan.steps, plan.parts) * plan.tilesPerWarp() * 4;
    plan.queryInRegisters = plan.tiles <= 2 && registers <= kMaxQueryRegisters;
    for (plan.stages = kMaxStages; plan.stages >= 2; --plan.stages) {
      int64_t next = plan.stages * plan.stageBytes;
      auto place = [&](int64_t bytes) {
        int64_t here = next;
        next += llvm::alignTo(bytes, 16);
        return here;
      };
      plan.partialAt = place(plan.parts * plan.heads() * plan.partialPitch);
      plan.weightsAt = place(plan.heads() * plan.weightPitch);
      plan.validAt = place(plan.stages * kKeys * 4);
      plan.correctionAt = place(plan.heads() * 4);
      plan.factorAt = place(plan.heads() * 4);
      // A query that goes to registers passes through the last stage.
      plan.queryAt = plan.queryInRegisters ? (plan.stages - 1) * plan.stageBytes
                                           : place(plan.heads() * plan.pitch);
      plan.bytes = next;
      // Few heads: two blocks hide each other's waiting.
      int64_t limit = plan.tiles == 1 && plan.stages > 2 ? getHalf(sharedBytes)
                                                         : sharedBytes;
      if (plan.bytes <= limit)
        return plan;
    }
  }
  return std::nullopt;
}

static std::optional<Plan> makePlan(SparseMlaOp op, int64_t sharedBytes) {
  return makePlan(op.getNumHeads(), op.getQueryDim(), op.getValueDim(),
                  sharedBytes);
}

AttentionKernel::AttentionKernel(KernelBuilder &b, SparseMlaOp op,
                                 ValueRange args, const Plan &plan)
    : b(b), op(op), plan(plan), heads(op.getNumHeads()),
      queryDim(op.getQueryDim()), valueDim(op.getValueDim()) {
  rows = getCommonRows(b, op, args);
  unsigned next = 0;
  for (unsigned part = 0; part < op.getQ().size(); ++part)
    q.push_back(args[next++]);
  kv = args[next++];
  slots = args[next++];
  if (op.getReq())
    req = args[next++];
  if (op.getTopkLength())
    topkLength = args[next++];
  if (op.getSink())
    sink = args[next++];
  out = args[next++];
  if (op.hasLse())
    lse = args[next++];
  // Of keys once they are in shared memory.
  element = cast<MemRefType>(q[0].getType()).getElementType();
  format = op.getKvFormatAttr();
  i32 = b.getI32Type();
  f32 = b.getF32Type();
}

SmallVector<Value> AttentionKernel::flatten(const State &state) {
  SmallVector<Value> all(state.sums);
  all.append({state.maximum, state.total, state.seen, state.slot, state.reading,
              state.writing});
  return all;
}
AttentionKernel::State AttentionKernel::unflatten(ValueRange values) {
  ValueRange rest = values.take_back(6);
  return {SmallVector<Value>(values.drop_back(6)),
          rest[0],
          rest[1],
          rest[2],
          rest[3],
          rest[4],
          rest[5]};
}

/// Shared memory at a place and `offset` (i32) bytes.
Value AttentionKernel::at(int64_t place, Value offset) {
  return b.advance(b.advance(memory, offset), place);
}

/// How many columns of a row may hold keys.
Value AttentionKernel::columnsOf(Value row) {
  Value zero = b.index(0);
  Value columns = b.dim(slots, 1);
  if (topkLength) {
    Value given = b.toIndex(b.load(topkLength, row));
    columns = b.max(zero, b.min(given, columns));
  }
  if (req) {
    Value isRow = b.lessEqual(zero, b.toIndex(b.load(req, row)));
    columns = b.select(isRow, columns, zero);
  }
  return columns;
}

/// Copies the heads' queries to shared memory, zeros where there is no head or
/// no value.
void AttentionKernel::loadQuery() {
  Value to = b.advance(memory, plan.queryAt);
  if (!queryIsWide)
    return loadQueryNarrow(to);
  b.when(queryIsWide, [&] { loadQueryWide(to); }, [&] { loadQueryNarrow(to); });
}

void AttentionKernel::loadQueryWide(Value to) {
  int64_t done = 0; // bytes of a head
  for (Value part : q) {
    int64_t chunks = cast<MemRefType>(part.getType()).getDimSize(2) / 8;
    b.overThreads32(b.i32(plan.heads() * chunks), [&](Value i) {
      Value head = arith::DivUIOp::create(b, i, b.i32(chunks));
      Value chunk = arith::RemUIOp::create(b, i, b.i32(chunks));
      Value global = b.add(firstHead, b.extend(head));
      Value known = b.less(global, b.index(heads));
      Value from = b.select(known, global, b.index(0));
      Value target =
          b.add(b.mul(head, b.i32(plan.pitch)), b.shiftLeft(chunk, 4));
      b.copyAsync16(
          b.advance(b.advance(to, target), done),
          b.address(part, {row, from, b.extend(b.shiftLeft(chunk, 3))}), known);
    });
    done += chunks * 16;
  }
  if (queryDim % kTile == 0)
    return;
  Value zeros =
      arith::ConstantOp::create(b, b.getZeroAttr(VectorType::get({4}, i32)));
  b.overThreads32(b.i32(plan.heads()), [&](Value head) {
    b.store16(zeros,
              b.advance(b.advance(to, b.mul(head, b.i32(plan.pitch))), done));
  });
}

void AttentionKernel::loadQueryNarrow(Value to) {
  int64_t done = 0; // values of a head
  Value none = arith::ConstantOp::create(b, b.getZeroAttr(element));
  auto fill = [&](Value part, int64_t width) {
    b.overThreads32(b.i32(plan.heads() * width), [&](Value i) {
      Value head = arith::DivUIOp::create(b, i, b.i32(width));
      Value column = arith::RemUIOp::create(b, i, b.i32(width));
      Value value = none;
      if (part) {
        Value global = b.add(firstHead, b.extend(head));
        value = b.choose(
            b.less(global, b.index(heads)),
            [&] { return b.load(part, {row, global, b.extend(column)}); },
            [&] { return none; });
      }
      Value target =
          b.add(b.mul(head, b.i32(plan.pitch)), b.shiftLeft(column, 1));
      b.storeAt(value, b.advance(b.advance(to, target), done * 2));
    });
    done += width;
  };
  for (Value part : q)
    fill(part, cast<MemRefType>(part.getType()).getDimSize(2));
  if (int64_t rest = plan.steps * kTile - queryDim)
    fill(Value(), rest);
}

/// Address offsets of matrix rows, by lane: of a 16x16 operand A at rows of
/// `pitch` bytes, and B as B's columns, or B itself to be transposed.
static Value rowsOfA(KernelBuilder &b, Value lane, int64_t pitch) {
  // Matrices: rows 0, 8, 0, 8; columns 0, 0, 8, 8.
  Value row = b.bitAnd(lane, b.i32(15));
  Value column = b.shiftRight(lane, 4);
  return b.add(b.mul(row, b.i32(pitch)), b.shiftLeft(column, 4));
}
static Value rowsOfB(KernelBuilder &b, Value lane, int64_t pitch) {
  // Matrices: keys 0, 0, 8, 8; values 0, 8, 0, 8.
  Value key =
      b.add(b.bitAnd(lane, b.i32(7)), b.shiftLeft(b.shiftRight(lane, 4), 3));
  Value column = b.bitAnd(b.shiftRight(lane, 3), b.i32(1));
  return b.add(b.mul(key, b.i32(pitch)), b.shiftLeft(column, 4));
}

/// Reads this warp's steps of the query into registers.
void AttentionKernel::keepQuery() {
  query.clear();
  Value offset = b.add(rowsOfA(b, lane, plan.pitch), b.shiftLeft(warp, 5));
  int64_t rounds = llvm::divideCeil(plan.steps, plan.parts);
  for (int64_t round = 0; round < rounds; ++round)
    for (int64_t tile = 0; tile < plan.tiles; ++tile)
      query.push_back(b.loadMatrices(
          at(plan.queryAt + round * plan.parts * 32 + tile * kTile * plan.pitch,
             offset),
          /*transposed=*/false));
}

/// The slot that this thread gathers from in a block of keys (i32), -1 for
/// none.
Value AttentionKernel::slotOf(Value keyBlock) {
  Value none = b.index(-1);
  Value column = b.add(b.mul(keyBlock, b.i32(kKeys)), keyInBlock);
  return b.choose(
      b.less(column, length),
      [&] {
        Value slot = b.toIndex(b.load(slots, {row, b.extend(column)}));
        Value known = b.inRange(slot, b.index(0), b.dim(kv, 0));
        return b.select(known, slot, none);
      },
      [&] { return none; });
}

/// Packed rows: a lane takes 16 values, of which those of the key's lanes have
/// one scale.
static constexpr int64_t kPackedValues = 16;
static_assert(kPackedValues * kLanesPerKey == PackedRowsAttr::kGroup);

void AttentionKernel::unpackChunks(Value known, Value from, Value base) {
  Type bf16 = b.getBF16Type();
  // Loaded before the first is unpacked; sums of many heads leave fewer
  // registers.
  int64_t atOnce = plan.tiles > 2 ? 2 : 4;
  for (int64_t begin = 0; begin < format.getNumGroups(); begin += atOnce) {
    int64_t end = std::min(begin + atOnce, format.getNumGroups());
    // Words of each group's values, and its scale; zeros of no key.
    SmallVector<Value> loaded = b.chooseAll(
        known,
        [&] {
          SmallVector<Value> words;
          for (int64_t group = begin; group < end; ++group) {
            Value column =
                b.add(b.mul(b.extend(laneOfKey), b.index(kPackedValues)),
                      b.index(group * PackedRowsAttr::kGroup));
            llvm::append_range(
                words, b.loadSeveral(i32, 4, b.address(kv, {from, column})));
            Value scale = b.index(format.getScaleOffset() + 4 * group);
            words.push_back(b.loadAt(i32, b.address(kv, {from, scale})));
          }
          return words;
        },
        [&] { return SmallVector<Value>((end - begin) * 5, b.i32(0)); });
    for (int64_t group = begin; group < end; ++group) {
      auto words = ArrayRef<Value>(loaded).slice((group - begin) * 5, 5);
      Value scale = b.bits(f32, words[4]);
      Value to = b.advance(b.advance(base, b.shiftLeft(laneOfKey, 5)),
                           group * PackedRowsAttr::kGroup * 2);
      SmallVector<Value> pairs;
      for (int64_t i = 0; i < kPackedValues; i += 2) {
        auto unpack = [&](int64_t at) {
          Value word = words[at / 4];
          Value byte = b.bitAnd(
              at % 4 ? b.shiftRight(word, 8 * (at % 4)) : word, b.i32(0xff));
          return b.mul(decodeValue(b, format, byte), scale);
        };
        pairs.push_back(b.pack(bf16, unpack(i), unpack(i + 1)));
      }
      b.storeSeveral(ArrayRef<Value>(pairs).take_front(4), to);
      b.storeSeveral(ArrayRef<Value>(pairs).drop_front(4), b.advance(to, 16));
    }
  }
}

/// Values with rope, as they are, and zeros behind them.
void AttentionKernel::copyRope(Value known, Value from, Value base) {
  int64_t latent = format.getLatent(), chunks = format.getRope() / 8;
  int64_t padded = plan.steps * 2 - latent / 8;
  Value place = b.index(format.getRopeOffset());
  for (int64_t first = 0; first < padded; first += kLanesPerKey) {
    Value chunk = b.add(laneOfKey, b.i32(first));
    b.when(b.less(chunk, b.i32(padded)), [&] {
      Value present = b.both(known, b.less(chunk, b.i32(chunks)));
      Value column = b.add(place, b.mul(b.extend(chunk), b.index(16)));
      b.copyAsync16(
          b.advance(b.advance(base, b.shiftLeft(chunk, 4)), latent * 2),
          b.address(kv, {from, column}), present);
    });
  }
}

/// A bf16 of a row that is there.
Value AttentionKernel::unpackColumn(Value from, Value column) {
  return b.choose(
      b.less(column, b.index(format.getLatent())),
      [&] {
        Value group = b.divide(column, b.index(PackedRowsAttr::kGroup));
        Value at =
            b.add(b.index(format.getScaleOffset()), b.mul(group, b.index(4)));
        Value scale = b.bits(f32, loadBytes(b, kv, from, at, 4));
        Value value = decodeValue(b, format, loadBytes(b, kv, from, column, 1));
        return Value(arith::TruncFOp::create(b, element, b.mul(value, scale)));
      },
      [&] {
        Value at = b.sub(column, b.index(format.getLatent()));
        at = b.add(b.index(format.getRopeOffset()), b.mul(at, b.index(2)));
        return fromBits(b, loadBytes(b, kv, from, at, 2));
      });
}

/// This thread's columns of a key, one after the other; zeros for no key and
/// behind the last column.
void AttentionKernel::gatherColumns(Value known, Value base,
                                    llvm::function_ref<Value(Value)> load) {
  Value none = arith::ConstantOp::create(b, b.getZeroAttr(element));
  b.loop(
      b.extend(laneOfKey), b.index(plan.steps * kTile),
      [&](Value column) {
        Value value = b.choose(
            b.both(known, b.less(column, b.index(queryDim))),
            [&] { return load(column); }, [&] { return none; });
        b.storeAt(value, b.advance(base, b.mul(column, b.index(2))));
      },
      kLanesPerKey);
}

void AttentionKernel::gatherPacked(Value known, Value from, Value base) {
  auto narrow = [&] {
    gatherColumns(known, base,
                  [&](Value column) { return unpackColumn(from, column); });
  };
  if (!keysAreWide)
    return narrow();
  b.when(
      keysAreWide,
      [&] {
        copyRope(known, from, base);
        unpackChunks(known, from, base);
      },
      narrow);
}

/// Copies this thread's share of a key, zeros for none, and says whether it is
/// one.
void AttentionKernel::gather(Value slot, Value stage) {
  Value zero = b.index(0);
  Value known = b.lessEqual(zero, slot);
  Value from = b.select(known, slot, zero);
  Value base =
      b.advance(memory, b.add(stage, b.mul(keyInBlock, b.i32(plan.pitch))));
  auto wide = [&] {
    int64_t chunks = queryDim / 8;
    int64_t padded = plan.steps * 2;
    Value source =
        b.address(kv, {from, b.mul(b.extend(laneOfKey), b.index(8))});
    Value target = b.advance(base, b.shiftLeft(laneOfKey, 4));
    for (int64_t first = 0; first < padded; first += kLanesPerKey) {
      Value chunk = b.add(laneOfKey, b.i32(first));
      auto copy = [&] {
        Value present = known;
        if (first + kLanesPerKey > chunks)
          present = b.both(known, b.less(chunk, b.i32(chunks)));
        b.copyAsync16(b.advance(target, first * 16),
                      b.advance(source, first * 16), present);
      };
      if (first + kLanesPerKey > padded)
        b.when(b.less(chunk, b.i32(padded)), copy);
      else
        copy();
    }
  };
  auto narrow = [&] {
    gatherColumns(known, base,
                  [&](Value column) { return b.load(kv, {from, column}); });
  };
  if (format)
    gatherPacked(known, from, base);
  else if (keysAreWide)
    b.when(keysAreWide, wide, narrow);
  else
    narrow();
  b.when(b.equal(laneOfKey, b.i32(0)), [&] {
    // One word a key: stage / stageBytes * kKeys + key.
    Value index = arith::DivUIOp::create(b, stage, b.i32(plan.stageBytes));
    Value place = b.add(b.mul(index, b.i32(kKeys)), keyInBlock);
    b.storeAt(arith::ExtUIOp::create(b, i32, known),
              at(plan.validAt, b.shiftLeft(place, 2)));
  });
}

Value AttentionKernel::nextStage(Value stage) {
  Value next = b.add(stage, b.i32(plan.stageBytes));
  return b.select(b.equal(next, b.i32(plan.stages * plan.stageBytes)), b.i32(0),
                  next);
}

/// This warp's partial scores of a stage's keys.
void AttentionKernel::score(Value stage) {
  int64_t tiles = plan.tilesPerWarp(), columns = plan.keysPerWarp() / 8;
  Value part = arith::RemUIOp::create(b, warp, b.i32(plan.parts));
  Value group = arith::DivUIOp::create(b, warp, b.i32(plan.parts));
  Value keyGroup = arith::RemUIOp::create(b, group, b.i32(plan.keyGroups));
  Value tileGroup = arith::DivUIOp::create(b, group, b.i32(plan.keyGroups));

  Value ofPart = b.shiftLeft(part, 5); // 16 values of 2 bytes
  Value queryBase = b.add(b.add(rowsOfA(b, lane, plan.pitch), ofPart),
                          b.mul(tileGroup, b.i32(tiles * kTile * plan.pitch)));
  Value keyBase =
      b.add(b.add(b.add(rowsOfB(b, lane, plan.pitch), ofPart), stage),
            b.mul(keyGroup, b.i32(plan.keysPerWarp() * plan.pitch)));

  // [tile][8 keys][4]
  SmallVector<Value> sums(tiles * columns * 4, b.f32(0.0));
  auto step = [&](int64_t round, SmallVector<Value> sums) {
    int64_t moved = round * plan.parts * 32;
    SmallVector<SmallVector<Value>> a;
    for (int64_t tile = 0; tile < tiles; ++tile)
      a.push_back(plan.queryInRegisters
                      ? query[round * tiles + tile]
                      : b.loadMatrices(
                            at(plan.queryAt + moved + tile * kTile * plan.pitch,
                               queryBase),
                            /*transposed=*/false));
    for (int64_t pair = 0; pair < columns / 2; ++pair) {
      SmallVector<Value> both = b.loadMatrices(
          at(moved + pair * 16 * plan.pitch, keyBase), /*transposed=*/false);
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t tile = 0; tile < tiles; ++tile) {
          int64_t first = (tile * columns + pair * 2 + half) * 4;
          SmallVector<Value> next = b.multiplyMatrices(
              element, a[tile], ValueRange(both).slice(half * 2, 2),
              ValueRange(sums).slice(first, 4));
          llvm::copy(next, sums.begin() + first);
        }
    }
    return sums;
  };
  int64_t whole = plan.steps / plan.parts;
  for (int64_t round = 0; round < whole; ++round)
    sums = step(round, sums);
  if (int64_t rest = plan.steps % plan.parts)
    sums = b.chooseAll(
        b.less(part, b.i32(rest)), [&] { return step(whole, sums); },
        [&] { return sums; });

  // Rows lane / 4 and 8 more, two neighbours each.
  Value head = b.add(b.mul(part, b.i32(plan.heads())),
                     b.mul(tileGroup, b.i32(tiles * kTile)));
  head = b.add(head, b.shiftRight(lane, 2));
  Value column = b.add(b.mul(keyGroup, b.i32(plan.keysPerWarp())),
                       b.shiftLeft(b.bitAnd(lane, b.i32(3)), 1));
  Value base =
      b.add(b.mul(head, b.i32(plan.partialPitch)), b.shiftLeft(column, 2));
  for (int64_t tile = 0; tile < tiles; ++tile)
    for (int64_t n = 0; n < columns; ++n)
      for (int64_t half = 0; half < 2; ++half) {
        int64_t first = (tile * columns + n) * 4 + half * 2;
        Value place =
            at(plan.partialAt + (tile * kTile + half * 8) * plan.partialPitch +
                   n * 8 * 4,
               base);
        b.storePair(sums[first], sums[first + 1], place);
      }
}

/// The weights of a stage's keys: each thread those of some keys of one head.
void AttentionKernel::weigh(State &state) {
  int64_t count = plan.keysPerThread();
  auto body = [&]() -> SmallVector<Value> {
    Value firstKey = b.mul(partOfHead, b.i32(count));
    Value base = b.add(b.mul(headOfThread, b.i32(plan.partialPitch)),
                       b.shiftLeft(firstKey, 2));
    int64_t width = std::min<int64_t>(count, 4);
    SmallVector<Value> scores(count);
    for (int64_t part = 0; part < plan.parts; ++part)
      for (int64_t key = 0; key < count; key += width) {
        SmallVector<Value> loaded = b.loadSeveral(
            f32, width,
            at(plan.partialAt + part * plan.heads() * plan.partialPitch +
                   key * 4,
               base));
        for (int64_t i = 0; i < width; ++i)
          scores[key + i] =
              part == 0 ? loaded[i] : b.add(scores[key + i], loaded[i]);
      }
    // Powers of 2 from here on.
    Value scale = b.f32(op.getScale().convertToDouble() / llvm::numbers::ln2);
    Value none = b.f32(-std::numeric_limits<double>::infinity());
    Value index =
        arith::DivUIOp::create(b, state.reading, b.i32(plan.stageBytes));
    Value flags = b.shiftLeft(b.add(b.mul(index, b.i32(kKeys)), firstKey), 2);
    Value seen = state.seen;
    Value top = state.maximum;
    for (int64_t key = 0; key < count; key += width) {
      SmallVector<Value> valid =
          b.loadSeveral(i32, width, at(plan.validAt + key * 4, flags));
      for (int64_t i = 0; i < width; ++i) {
        Value isKey = b.negate(b.equal(valid[i], b.i32(0)));
        seen = b.bitOr(seen, valid[i]);
        Value &score = scores[key + i];
        score = b.select(isKey, b.mul(score, scale), none);
        top = b.maxNumber(top, score);
      }
    }
    for (int64_t mask = 1; mask < plan.threadsPerHead(); mask *= 2)
      top = b.maxNumber(top, b.shuffleXor(top, mask));
    Value correction = b.exp2(b.sub(state.maximum, top));
    Value sum = b.f32(0.0);
    SmallVector<Value> words;
    for (int64_t key = 0; key < count; key += 2) {
      Value low = b.exp2(b.sub(scores[key], top));
      Value high = b.exp2(b.sub(scores[key + 1], top));
      sum = b.add(sum, b.add(low, high));
      words.push_back(b.pack(element, low, high));
    }
    b.storeSeveral(words, at(plan.weightsAt,
                             b.add(b.mul(headOfThread, b.i32(plan.weightPitch)),
                                   b.shiftLeft(firstKey, 1))));
    b.when(b.equal(partOfHead, b.i32(0)), [&] {
      b.storeAt(correction,
                at(plan.correctionAt, b.shiftLeft(headOfThread, 2)));
    });
    Value total = b.add(b.mul(state.total, correction), sum);
    return {top, total, seen};
  };
  SmallVector<Value> next;
  if (plan.heads() * plan.threadsPerHead() == kThreads)
    next = body();
  else
    next = b.chooseAll(b.less(headOfThread, b.i32(plan.heads())), body,
                       [&]() -> SmallVector<Value> {
                         return {state.maximum, state.total, state.seen};
                       });
  state.maximum = next[0];
  state.total = next[1];
  state.seen = next[2];
}

/// Adds the stage's values, by weight, to what this warp has of the output.
void AttentionKernel::addValues(State &state) {
  int64_t columns = plan.columns / 8;
  // By what sums so far shrink: mostly by nothing, once the maximum is found.
  Value group = b.shiftLeft(b.shiftRight(lane, 2), 2);
  SmallVector<Value> corrections;
  Value shrinks = arith::ConstantOp::create(b, b.getBoolAttr(false));
  for (int64_t tile = 0; tile < plan.tiles; ++tile)
    for (int64_t half = 0; half < 2; ++half) {
      corrections.push_back(b.loadAt(
          f32, at(plan.correctionAt + (tile * kTile + half * 8) * 4, group)));
      Value differs = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE,
                                            corrections.back(), b.f32(1.0));
      shrinks = b.bitOr(shrinks, differs);
    }
  Value anyShrinks = b.negate(b.equal(b.ballot(shrinks), b.i32(0)));
  state.sums = b.chooseAll(
      anyShrinks,
      [&] {
        SmallVector<Value> smaller;
        for (auto [i, sum] : llvm::enumerate(state.sums))
          smaller.push_back(
              b.mul(sum, corrections[i / (columns * 4) * 2 + i % 4 / 2]));
        return smaller;
      },
      [&] { return state.sums; });
  Value weightBase = rowsOfA(b, lane, plan.weightPitch);
  // Matrices to transpose: keys 0, 8, 0, 8; columns 0, 0, 8, 8.
  Value valueBase = b.add(b.add(rowsOfA(b, lane, plan.pitch), state.reading),
                          b.mul(warp, b.i32(plan.columns * 2)));
  for (int64_t step = 0; step < kKeys / 16; ++step) {
    SmallVector<SmallVector<Value>> a;
    for (int64_t tile = 0; tile < plan.tiles; ++tile)
      a.push_back(b.loadMatrices(
          at(plan.weightsAt + step * 32 + tile * kTile * plan.weightPitch,
             weightBase),
          /*transposed=*/false));
    for (int64_t pair = 0; pair < columns / 2; ++pair) {
      SmallVector<Value> both =
          b.loadMatrices(at(step * 16 * plan.pitch + pair * 32, valueBase),
                         /*transposed=*/true);
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t tile = 0; tile < plan.tiles; ++tile) {
          int64_t first = (tile * columns + pair * 2 + half) * 4;
          SmallVector<Value> next = b.multiplyMatrices(
              element, a[tile], ValueRange(both).slice(half * 2, 2),
              ValueRange(state.sums).slice(first, 4));
          llvm::copy(next, state.sums.begin() + first);
        }
    }
  }
}

/// The LSE, and by what each head's sums are multiplied.
void AttentionKernel::finish(const State &state) {
  Value total = state.total, seen = state.seen;
  for (int64_t mask = 1; mask < plan.threadsPerHead(); mask *= 2) {
    total = b.add(total, b.shuffleXor(total, mask));
    seen = b.bitOr(seen, b.shuffleXor(seen, mask));
  }
  Value global = b.add(firstHead, b.extend(headOfThread));
  Value writes = b.both(b.equal(partOfHead, b.i32(0)),
                        b.less(headOfThread, b.i32(plan.heads())));
  b.when(b.both(writes, b.less(global, b.index(heads))), [&] {
    Value noKey = b.equal(seen, b.i32(0));
    Value top = state.maximum;
    if (lse) {
      Value value = b.add(top, b.log2(total));
      if (op.getLseBase() == LseBase::E)
        value = b.mul(value, b.f32(llvm::numbers::ln2));
      value = b.select(noKey, b.f32(-std::numeric_limits<double>::infinity()),
                       value);
      b.store(value, lse, {row, global});
    }
    Value factor = b.f32(1.0), denominator = total;
    if (sink) {
      // Both terms relative to the larger exponent, so that neither overflows.
      Value own = b.mul(b.load(sink, global), b.f32(1.0 / llvm::numbers::ln2));
      Value joint = b.max(top, own);
      factor = b.exp2(b.sub(top, joint));
      denominator = b.add(b.mul(total, factor), b.exp2(b.sub(own, joint)));
    }
    factor = arith::DivFOp::create(b, factor, denominator);
    factor = b.select(noKey, b.f32(0.0), factor);
    b.storeAt(factor, at(plan.factorAt, b.shiftLeft(headOfThread, 2)));
  });
}

/// Writes the heads' outputs by way of the stages, which nobody reads any more,
/// so that neighbouring threads write neighbouring memory.
void AttentionKernel::writeOut(const State &state) {
  int64_t columns = plan.columns / 8;
  int64_t pitch = plan.columns * kWarps * 2 + 16; // bytes of a head
  assert(plan.heads() * pitch <= plan.stages * plan.stageBytes);
  Value group = b.shiftRight(lane, 2);
  Value own = b.add(b.mul(group, b.i32(pitch)),
                    b.add(b.mul(warp, b.i32(plan.columns * 2)),
                          b.shiftLeft(b.bitAnd(lane, b.i32(3)), 2)));
  for (int64_t tile = 0; tile < plan.tiles; ++tile)
    for (int64_t half = 0; half < 2; ++half) {
      int64_t above = tile * kTile + half * 8;
      Value factor =
          b.loadAt(f32, at(plan.factorAt + above * 4, b.shiftLeft(group, 2)));
      for (int64_t n = 0; n < columns; ++n) {
        int64_t first = (tile * columns + n) * 4 + half * 2;
        b.storeAt(b.pack(element, b.mul(state.sums[first], factor),
                         b.mul(state.sums[first + 1], factor)),
                  at(above * pitch + n * 16, own));
      }
    }
  b.barrier();

  // Items of one head after those of another: `each` writes one.
  auto overItems = [&](int64_t perHead, int64_t values,
                       llvm::function_ref<void(Value, Value)> each) {
    b.overThreads32(b.i32(plan.heads() * perHead), [&](Value i) {
      Value head = arith::DivUIOp::create(b, i, b.i32(perHead));
      Value item = arith::RemUIOp::create(b, i, b.i32(perHead));
      Value global = b.add(firstHead, b.extend(head));
      b.when(b.less(global, b.index(heads)), [&] {
        Value place =
            b.add(b.mul(head, b.i32(pitch)), b.mul(item, b.i32(values * 2)));
        Value column = b.extend(b.mul(item, b.i32(values)));
        each(at(0, place), b.address(out, {row, global, column}));
      });
    });
  };
  auto wide = [&] {
    overItems(valueDim / 8, 8,
              [&](Value from, Value to) { b.store16(b.load16(from), to); });
  };
  auto narrow = [&] {
    overItems(valueDim, 1, [&](Value from, Value to) {
      b.storeAt(b.loadAt(b.getIntegerType(16), from), to);
    });
  };
  if (outIsWide)
    b.when(outIsWide, wide, narrow);
  else
    narrow();
  b.barrier(); // stages are free again
}

void AttentionKernel::emitRow(Value task) {
  Value thread = b.threadAnew();
  lane = b.bitAnd(thread, b.i32(kWarp - 1));
  warp = b.shiftRight(thread, 5);
  keyInBlock = arith::DivUIOp::create(b, thread, b.i32(kLanesPerKey));
  laneOfKey = arith::RemUIOp::create(b, thread, b.i32(kLanesPerKey));
  Value perHead = b.i32(plan.threadsPerHead());
  headOfThread = arith::DivUIOp::create(b, thread, perHead);
  partOfHead = arith::RemUIOp::create(b, thread, perHead);
  Value blocks = b.index(plan.headBlocks);
  row = arith::DivUIOp::create(b, task, blocks);
  firstHead =
      b.mul(arith::RemUIOp::create(b, task, blocks), b.index(plan.heads()));
  length = b.toI32(columnsOf(row));
  Value keyBlocks =
      arith::DivUIOp::create(b, b.add(length, b.i32(kKeys - 1)), b.i32(kKeys));

  loadQuery();
  b.commitCopies();
  int64_t ahead = plan.stages - 1;
  for (int64_t i = 0; i < ahead; ++i) {
    Value slot = slotOf(b.i32(i));
    b.when(b.less(b.i32(i), keyBlocks),
           [&] { gather(slot, b.i32(i * plan.stageBytes)); });
    b.commitCopies();
  }
  b.waitCopies(ahead);
  b.barrier();
  if (plan.queryInRegisters)
    keepQuery();

  State start;
  start.sums.assign(plan.tiles * plan.columns / 8 * 4, b.f32(0.0));
  // Finite, or keys that are masked as a whole would turn into NaN.
  start.maximum = b.f32(-std::numeric_limits<float>::max());
  start.total = b.f32(0.0);
  start.seen = b.i32(0);
  start.slot = slotOf(b.i32(ahead));
  start.reading = b.i32(0);
  start.writing = b.i32(ahead * plan.stageBytes);
  SmallVector<Value> end =
      b.loop32(keyBlocks, flatten(start),
               [&](Value i, ValueRange carried) -> SmallVector<Value> {
                 State state = unflatten(carried);
                 b.waitCopies(ahead - 1);
                 b.barrier();
                 Value coming = b.add(i, b.i32(ahead));
                 b.when(b.less(coming, keyBlocks),
                        [&] { gather(state.slot, state.writing); });
                 b.commitCopies();
                 state.slot = slotOf(b.add(coming, b.i32(1)));
                 score(state.reading);
                 b.barrier();
                 weigh(state);
                 b.barrier();
                 addValues(state);
                 state.reading = nextStage(state.reading);
                 state.writing = nextStage(state.writing);
                 return flatten(state);
               });
  State state = unflatten(end);
  finish(state);
  b.barrier(); // stages are free, factors are there
  writeOut(state);
}

void AttentionKernel::emit() {
  memory = b.address(b.dynamicShared(), b.index(0));
  // Wide accesses where widths allow them and, as the kernel finds, addresses
  // do.
  bool widthsAllow = true;
  for (Value part : q)
    widthsAllow &= cast<MemRefType>(part.getType()).getDimSize(2) % 8 == 0;
  if (widthsAllow) {
    queryIsWide = isAligned16(b, q[0]);
    for (Value part : ArrayRef<Value>(q).drop_front())
      queryIsWide = b.both(queryIsWide, isAligned16(b, part));
  }
  bool keysAllow =
      format ? format.getRopeOffset() % 16 == 0 && format.getRope() % 8 == 0
             : queryDim % 8 == 0;
  if (keysAllow)
    keysAreWide = isAligned16(b, kv);
  if (valueDim % 8 == 0)
    outIsWide = isAligned16(b, out);
  b.overBlocks(b.index(0), b.mul(rows, b.index(plan.headBlocks)),
               [&](Value task) { emitRow(task); });
}

LogicalResult mlir::shardq::verifySparseMlaKernel(SparseMlaOp op,
                                                  int64_t sharedBytes) {
  // That of 'kv', or of its rows once they are unpacked.
  Type element = cast<ShapedType>(op.getQ().front().getType()).getElementType();
  if (!element.isBF16() && !element.isF16())
    return op.emitOpError("has 'kv' of ")
           << element << ", expected bf16 or f16 for a GPU";
  if (!makePlan(op, sharedBytes))
    return op.emitOpError("has a query of ")
           << op.getQueryDim() << " and values of " << op.getValueDim()
           << " elements, expected widths of which 32 keys fit twice into the "
           << sharedBytes
           << " bytes of a block's shared memory and 16 heads into its "
              "registers";
  return success();
}

KernelShape mlir::shardq::getSparseMlaShape(SparseMlaOp op,
                                            int64_t sharedBytes) {
  Plan plan = *makePlan(op, sharedBytes);
  KernelShape shape;
  shape.threads = kThreads;
  shape.blocksPerRow = plan.headBlocks;
  shape.dynamicShared = plan.bytes;
  shape.residentBlocks =
      plan.tiles == 1 && plan.bytes <= getHalf(sharedBytes) ? 2 : 1;
  return shape;
}

void mlir::shardq::emitSparseMlaKernel(KernelBuilder &b, SparseMlaOp op,
                                       ValueRange args, int64_t sharedBytes) {
  Plan plan = *makePlan(op, sharedBytes);
  AttentionKernel(b, op, args, plan).emit();
}
