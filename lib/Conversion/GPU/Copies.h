//===- Copies.h - Rows from one buffer to another ---------------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_COPIES_H
#define SHARDQ_LIB_CONVERSION_GPU_COPIES_H

#include "KernelBuilder.h"

namespace mlir::shardq {

/// Copies `chunks` pieces of `unit` bytes (16, or an element's size), shared
/// among the threads of a block, several in flight. `from` and `to` give the
/// address of a piece.
void copyChunks(KernelBuilder &b, Value chunks, int64_t unit,
                llvm::function_ref<Value(Value)> from,
                llvm::function_ref<Value(Value)> to);

/// The same for one of `numParts` parts, each a block's, with `unroll` pieces
/// of a thread in flight: part p begins at piece p * unroll * threads.
void copyChunks(KernelBuilder &b, int64_t chunks, int64_t unit,
                llvm::function_ref<Value(Value)> from,
                llvm::function_ref<Value(Value)> to, Value part,
                int64_t numParts, int64_t unroll);

/// The same of pieces that `load` makes: i8 to i64, or vector<4xi32>.
void storeChunks(KernelBuilder &b, int64_t chunks, int64_t unit,
                 llvm::function_ref<Value(Value)> load,
                 llvm::function_ref<Value(Value)> to, Value part,
                 int64_t numParts, int64_t unroll);

/// The same of the next `unroll` pieces of each thread, piece `first` of the
/// block on, with `end` known on the device only: the block's last thread may
/// have fewer.
void storeRun(KernelBuilder &b, Value first, Value end, int64_t unit,
              int64_t unroll, llvm::function_ref<Value(Value)> load,
              llvm::function_ref<Value(Value)> to);

/// Runs `body` for the indices behind dimension 0 of a buffer, shared among the
/// threads of a block.
void forEachInRow(KernelBuilder &b, Value buffer,
                  llvm::function_ref<void(ValueRange)> body);

/// Rows of one buffer to rows of another of the same shape behind dimension 0.
/// A block copies a row; 16 bytes at a time where both rows are contiguous and
/// aligned, which is decided once, on the device.
class RowCopy {
public:
  RowCopy(KernelBuilder &b, Value source, Value target);
  void copy(Value sourceRow, Value targetRow);
  /// `count` rows of the source from `first` on, each to the row of the target
  /// that `place` gives for its number among them, or to none for -1.
  void scatter(Value first, Value count,
               llvm::function_ref<Value(Value)> place);
  /// Sets all of a row of the target to `value`.
  void fill(Value targetRow, Value value);

private:
  Value addressOf(Value buffer, Value row);
  void copyElements(Value sourceRow, Value targetRow);
  void scatterChunks(Value first, Value count,
                     llvm::function_ref<Value(Value)> place);

  KernelBuilder &b;
  Value source, target;
  Value chunks; // of 16 bytes, in a row
  Value whole;  // i1: rows are whole chunks
};

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_COPIES_H
