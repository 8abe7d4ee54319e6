//===- KernelBuilder.h - Writes bodies of GPU kernels -----------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_KERNELBUILDER_H
#define SHARDQ_LIB_CONVERSION_GPU_KERNELBUILDER_H

#include "../Utils/LoopBuilder.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::shardq {

/// Shared memory of a fixed size begins at a multiple of 16 bytes. Left to
/// itself, LLVM merges accesses to such an array as if it were so aligned, and
/// tells ptxas the alignment of an element.
void alignSharedMemory(gpu::GPUFuncOp kernel);

/// Threads of a warp.
inline constexpr int64_t kWarp = 32;

/// A LoopBuilder inside a `gpu.launch` or `gpu.func`: one dimension of blocks,
/// one of threads. Indices are of index type unless it is said otherwise.
/// LoopBuilder::scratch is not for kernels.
class KernelBuilder : public LoopBuilder {
public:
  /// `threads` is how many threads a block has.
  KernelBuilder(Location loc, OpBuilder::Listener *listener,
                MLIRContext *context, int64_t threads);

  int64_t numThreads() const { return threads; }
  Value thread();
  Value block();
  Value numBlocks();
  void barrier();

  /// `body(i)` for `begin <= i < end`, one after the other by each block:
  /// block b takes begin + b, begin + b + numBlocks, ...
  void overBlocks(Value begin, Value end, Body body);
  /// The same among the threads of a block.
  void overThreads(Value begin, Value end, Body body);
  /// The same among all threads of the grid.
  void overGrid(Value begin, Value end, Body body);

  /// `while (test(carried)) carried = step(carried);`
  ValueRange
  repeatWhile(ValueRange inits, llvm::function_ref<Value(ValueRange)> test,
              llvm::function_ref<SmallVector<Value>(ValueRange)> step);
  /// The first number below `end` for which `isBefore` does not hold, or `end`.
  /// It holds for all in front of that one, which is found by halving.
  Value countBefore(Value end, llvm::function_ref<Value(Value)> isBefore);

  /// Shared memory of fixed size, up to 48 KiB a kernel in all.
  Value shared(ArrayRef<int64_t> shape, Type element);
  /// The kernel's dynamic shared memory: memref<?xi8>, 16-byte aligned, as
  /// large as KernelShape::dynamicShared says.
  Value dynamicShared();

  /// Address of an element, `!llvm.ptr<1>` for global and `!llvm.ptr<3>` for
  /// shared memory.
  Value address(Value buffer, ValueRange indices);
  /// `pointer` moved by `bytes` (index, i32 or i64).
  Value advance(Value pointer, Value bytes);
  Value advance(Value pointer, int64_t bytes);
  /// 16 bytes at a pointer as vector<4xi32>; the address is a multiple of 16.
  Value load16(Value pointer);
  void store16(Value vector, Value pointer);

  //===--- Narrow integers, several values at once ------------------------===//

  /// Arithmetic within a block is in i32: half the registers of an index.
  Value toI32(Value index);
  /// Zero-extends to an index.
  Value extend(Value i32);
  Value bitAnd(Value a, Value b);
  Value bitOr(Value a, Value b);
  Value bitXor(Value a, Value b);
  Value shiftLeft(Value a, int64_t bits);
  /// Logical, fills with zeros.
  Value shiftRight(Value a, int64_t bits);
  /// Of numbers without a sign.
  Value divide(Value a, Value b);
  Value remainder(Value a, Value b);
  Value negate(Value condition);
  Value unsignedLess(Value a, Value b);
  /// LLVM's loads and stores of any type at a pointer, aligned by its size.
  Value loadAt(Type type, Value pointer);
  void storeAt(Value value, Value pointer);
  /// `count` neighbours, 16 bytes at most; the address is a multiple of their
  /// size in all.
  SmallVector<Value> loadSeveral(Type type, int64_t count, Value pointer);
  void storeSeveral(ArrayRef<Value> values, Value pointer);
  void storePair(Value first, Value second, Value pointer);
  /// The bits of a value as another type.
  Value bits(Type type, Value value);
  /// LoopBuilder::loop and overThreads from 0 with a counter of i32.
  SmallVector<Value> loop32(Value end, ValueRange inits, CarryingBody body);
  void overThreads32(Value end, Body body);
  SmallVector<Value>
  chooseAll(Value condition, llvm::function_ref<SmallVector<Value>()> then,
            llvm::function_ref<SmallVector<Value>()> otherwise);

  //===--- Warps: called by all lanes -------------------------------------===//

  /// This thread in its block, its place in its warp, and its warp, as i32.
  Value threadI32();
  Value lane();
  Value warp();
  /// The thread, read anew: what is computed from it stays in the loop where it
  /// is needed, and does not take up registers in the others.
  Value threadAnew();
  /// Another lane's i32 or f32: that of lane ^ mask, of lane - distance (its
  /// own where there is none), of a given lane.
  Value shuffleXor(Value value, int64_t mask);
  Value shuffleUp(Value value, int64_t distance);
  Value shuffleFrom(Value value, Value lane);
  /// Bit i is lane i's condition.
  Value ballot(Value condition);

  //===--- Matrix unit and asynchronous copies ----------------------------===//

  /// Four 8x8 matrices of 16 bits as four i32 a lane. Lane i gives the address
  /// of row i % 8 of matrix i / 8. Lane i gets columns 2 * (i % 4) and the next
  /// of row i / 4; of the matrices' transposes where `transposed`.
  SmallVector<Value> loadMatrices(Value pointer, bool transposed);
  /// c + a b: a is 16x16 (four i32 a lane), b 16x8 (two), c 16x8 of f32 (four).
  /// With g = lane / 4 and j = 2 * (lane % 4), a lane holds of a the rows g,
  /// g + 8, g, g + 8 at columns j, j, j + 8, j + 8 (two values each); of b the
  /// rows j and j + 8 (two values each) of column g; of c the rows g, g, g + 8,
  /// g + 8 at columns j, j + 1, j, j + 1.
  SmallVector<Value> multiplyMatrices(Type element, ValueRange a, ValueRange b,
                                      ValueRange c);
  /// Two f32 rounded to 16 bits, in an i32; `low` in the lower half.
  Value pack(Type element, Value low, Value high);
  /// 2^x and log2(x), f32, by the approximating unit.
  Value exp2(Value x);
  Value log2(Value x);
  /// The larger of two f32; of a number and a NaN, the number. Not arith's op,
  /// which becomes a call of CUDA's libdevice.
  Value maxNumber(Value a, Value b);

  /// Copies 16 bytes from global to shared memory; where not `present`, writes
  /// zeros and does not read.
  void copyAsync16(Value to, Value from, Value present);
  /// Ends a group of copies.
  void commitCopies();
  /// Waits until all but the last `pending` groups of this thread are done.
  void waitCopies(int64_t pending);

private:
  void stride(Value begin, Value end, Value step, Body body);
  Value shuffle(Value value, Value offset, int64_t clamp, int kind);
  int64_t threads;
};

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_KERNELBUILDER_H
