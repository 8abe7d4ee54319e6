//===- Copies.cpp - Rows from one buffer to another -----------------------===//

#include "Copies.h"
#include "Kernels.h"

using namespace mlir;
using namespace mlir::shardq;

/// Loads of one thread in flight before its first store.
static constexpr int64_t kUnroll = 4;

static Value loadUnit(KernelBuilder &b, Value pointer, int64_t unit) {
  if (unit == 16)
    return b.load16(pointer);
  return LLVM::LoadOp::create(b, b.getIntegerType(8 * unit), pointer, unit);
}

static void storeUnit(KernelBuilder &b, Value value, Value pointer,
                      int64_t unit) {
  if (unit == 16)
    return b.store16(value, pointer);
  LLVM::StoreOp::create(b, value, pointer, unit);
}

/// One go of a block from piece `first` of this thread. Loads have no branch,
/// so that all are in flight at once.
static void copyBatch(KernelBuilder &b, Value first, Value chunks, int64_t unit,
                      int64_t unroll, bool isEven,
                      llvm::function_ref<Value(Value)> load,
                      llvm::function_ref<Value(Value)> to) {
  Value last = b.sub(chunks, b.index(1));
  SmallVector<Value> at, loaded;
  for (int64_t i = 0; i < unroll; ++i) {
    at.push_back(b.add(first, b.index(i * b.numThreads())));
    Value there = isEven ? at.back() : b.min(at.back(), last);
    loaded.push_back(load(there));
  }
  for (int64_t i = 0; i < unroll; ++i) {
    auto store = [&] { storeUnit(b, loaded[i], to(at[i]), unit); };
    if (isEven)
      store();
    else
      b.when(b.less(at[i], chunks), store);
  }
}

void mlir::shardq::copyChunks(KernelBuilder &b, Value chunks, int64_t unit,
                              llvm::function_ref<Value(Value)> from,
                              llvm::function_ref<Value(Value)> to) {
  auto load = [&](Value chunk) { return loadUnit(b, from(chunk), unit); };
  b.loop(
      b.thread(), chunks,
      [&](Value first) {
        copyBatch(b, first, chunks, unit, kUnroll, /*isEven=*/false, load, to);
      },
      b.numThreads() * kUnroll);
}

void mlir::shardq::copyChunks(KernelBuilder &b, int64_t chunks, int64_t unit,
                              llvm::function_ref<Value(Value)> from,
                              llvm::function_ref<Value(Value)> to, Value part,
                              int64_t numParts, int64_t unroll) {
  auto load = [&](Value chunk) { return loadUnit(b, from(chunk), unit); };
  storeChunks(b, chunks, unit, load, to, part, numParts, unroll);
}

void mlir::shardq::storeChunks(KernelBuilder &b, int64_t chunks, int64_t unit,
                               llvm::function_ref<Value(Value)> load,
                               llvm::function_ref<Value(Value)> to, Value part,
                               int64_t numParts, int64_t unroll) {
  int64_t batch = b.numThreads() * unroll;
  bool isEven = chunks % batch == 0;
  Value first = b.add(b.mul(part, b.index(batch)), b.thread());
  if (chunks <= batch * numParts)
    return copyBatch(b, first, b.index(chunks), unit, unroll, isEven, load, to);
  b.loop(
      first, b.index(chunks),
      [&](Value at) {
        copyBatch(b, at, b.index(chunks), unit, unroll, isEven, load, to);
      },
      batch * numParts);
}

void mlir::shardq::storeRun(KernelBuilder &b, Value first, Value end,
                            int64_t unit, int64_t unroll,
                            llvm::function_ref<Value(Value)> load,
                            llvm::function_ref<Value(Value)> to) {
  Value own = b.add(first, b.thread());
  Value behind = b.add(first, b.index(b.numThreads() * unroll));
  auto copy = [&](bool isEven) {
    copyBatch(b, own, end, unit, unroll, isEven, load, to);
  };
  b.when(b.lessEqual(behind, end), [&] { copy(true); }, [&] { copy(false); });
}

void mlir::shardq::forEachInRow(KernelBuilder &b, Value buffer,
                                llvm::function_ref<void(ValueRange)> body) {
  int64_t rank = cast<MemRefType>(buffer.getType()).getRank();
  Value count = b.index(1);
  for (int64_t i = 1; i < rank; ++i)
    count = b.mul(count, b.dim(buffer, i));
  b.overThreads(b.index(0), count, [&](Value linear) {
    SmallVector<Value> indices(rank - 1);
    for (int64_t i = rank - 1; i >= 1; --i) {
      Value size = b.dim(buffer, i);
      indices[i - 1] = arith::RemUIOp::create(b, linear, size);
      linear = arith::DivUIOp::create(b, linear, size);
    }
    body(indices);
  });
}

Value mlir::shardq::toPointer(OpBuilder &b, Location loc, Value address) {
  if (isa<LLVM::LLVMPointerType>(address.getType()))
    return address;
  Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), address);
  return LLVM::IntToPtrOp::create(
      b, loc, LLVM::LLVMPointerType::get(b.getContext()), number);
}

Value mlir::shardq::isAligned16(KernelBuilder &b, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  Value bytes = b.index(type.getElementTypeBitWidth() / 8);
  SmallVector<Value> zeros(type.getRank(), b.index(0));
  Value bits = b.toIndex(
      LLVM::PtrToIntOp::create(b, b.getI64Type(), b.address(buffer, zeros)));
  auto metadata = memref::ExtractStridedMetadataOp::create(b, buffer);
  for (Value stride : metadata.getStrides().drop_back())
    bits = arith::OrIOp::create(b, bits, b.mul(stride, bytes));
  Value rest = arith::RemUIOp::create(b, bits, b.index(16));
  return b.both(b.equal(rest, b.index(0)),
                b.equal(metadata.getStrides().back(), b.index(1)));
}

RowCopy::RowCopy(KernelBuilder &b, Value source, Value target)
    : b(b), source(source), target(target) {
  auto type = cast<MemRefType>(source.getType());
  Value count = b.index(1);
  for (int64_t i = 1; i < type.getRank(); ++i)
    count = b.mul(count, b.dim(source, i));
  Value bytes = b.mul(count, b.index(type.getElementTypeBitWidth() / 8));
  chunks = arith::DivUIOp::create(b, bytes, b.index(16));
  whole = b.equal(b.mul(chunks, b.index(16)), bytes);
  for (Value buffer : {source, target}) {
    whole = b.both(whole, isAligned16(b, buffer));
    auto metadata = memref::ExtractStridedMetadataOp::create(b, buffer);
    Value dense = b.index(1);
    for (int64_t i = type.getRank() - 1; i >= 1; --i) {
      whole = b.both(whole, b.equal(metadata.getStrides()[i], dense));
      dense = b.mul(dense, b.dim(buffer, i));
    }
  }
}

Value RowCopy::addressOf(Value buffer, Value row) {
  SmallVector<Value> indices(cast<MemRefType>(buffer.getType()).getRank(),
                             b.index(0));
  indices[0] = row;
  return b.address(buffer, indices);
}

void RowCopy::copyElements(Value sourceRow, Value targetRow) {
  forEachInRow(b, target, [&](ValueRange behind) {
    SmallVector<Value> from{sourceRow}, to{targetRow};
    llvm::append_range(from, behind);
    llvm::append_range(to, behind);
    b.store(b.load(source, from), target, to);
  });
}

void RowCopy::copy(Value sourceRow, Value targetRow) {
  b.when(
      whole,
      [&] {
        Value fromAddress = addressOf(source, sourceRow);
        Value toAddress = addressOf(target, targetRow);
        auto piece = [&](Value base) {
          return [&b = b, base](Value chunk) {
            return b.advance(base, b.mul(chunk, b.index(16)));
          };
        };
        copyChunks(b, chunks, 16, piece(fromAddress), piece(toAddress));
      },
      [&] { copyElements(sourceRow, targetRow); });
}

/// The rows are one run of chunks, so that threads are busy with short rows
/// too. Loads have no branch, so that all are in flight at once.
void RowCopy::scatterChunks(Value first, Value count,
                            llvm::function_ref<Value(Value)> place) {
  Value all = b.mul(count, chunks), last = b.sub(all, b.index(1));
  b.loop(
      b.thread(), all,
      [&](Value begin) {
        SmallVector<Value> numbers, inside, loaded;
        for (int64_t i = 0; i < kUnroll; ++i) {
          Value at = b.min(b.add(begin, b.index(i * b.numThreads())), last);
          numbers.push_back(b.divide(at, chunks));
          inside.push_back(b.mul(b.remainder(at, chunks), b.index(16)));
          Value row = addressOf(source, b.add(first, numbers.back()));
          loaded.push_back(b.load16(b.advance(row, inside.back())));
        }
        for (int64_t i = 0; i < kUnroll; ++i) {
          Value row = place(numbers[i]);
          Value at = b.add(begin, b.index(i * b.numThreads()));
          b.when(b.both(b.less(at, all), b.lessEqual(b.index(0), row)), [&] {
            b.store16(loaded[i], b.advance(addressOf(target, row), inside[i]));
          });
        }
      },
      b.numThreads() * kUnroll);
}

void RowCopy::scatter(Value first, Value count,
                      llvm::function_ref<Value(Value)> place) {
  b.when(
      whole, [&] { scatterChunks(first, count, place); },
      [&] {
        b.loop(b.index(0), count, [&](Value number) {
          Value row = place(number);
          b.when(b.lessEqual(b.index(0), row),
                 [&] { copyElements(b.add(first, number), row); });
        });
      });
}

void RowCopy::fill(Value targetRow, Value value) {
  forEachInRow(b, target, [&](ValueRange behind) {
    SmallVector<Value> to{targetRow};
    llvm::append_range(to, behind);
    b.store(value, target, to);
  });
}
