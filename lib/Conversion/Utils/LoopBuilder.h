//===- LoopBuilder.h - Writes loops over buffers ----------------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_UTILS_LOOPBUILDER_H
#define SHARDQ_LIB_CONVERSION_UTILS_LOOPBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::shardq {

/// An ImplicitLocOpBuilder with short names for what kernels are made of.
/// Indices are of index type; numbers are f32 whatever the buffers hold.
class LoopBuilder : public ImplicitLocOpBuilder {
public:
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  using Body = llvm::function_ref<void(Value)>;
  using CarryingBody =
      llvm::function_ref<SmallVector<Value>(Value, ValueRange)>;

  Value index(int64_t value);
  Value f32(double value);
  Value i32(int64_t value);

  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value min(Value a, Value b);
  Value max(Value a, Value b);
  Value less(Value a, Value b);
  Value lessEqual(Value a, Value b);
  Value equal(Value a, Value b);
  Value both(Value a, Value b);
  Value select(Value condition, Value a, Value b);
  /// `low <= value < high`.
  Value inRange(Value value, Value low, Value high);

  /// a * b + c on f32, with leave to reassociate: reductions vectorize.
  Value multiplyAdd(Value a, Value b, Value c);

  Value toIndex(Value integer);
  Value fromIndex(Value index, Type integer);

  Value dim(Value buffer, int64_t dimension);
  Value load(Value buffer, ValueRange indices);
  void store(Value value, Value buffer, ValueRange indices);
  /// Loads bf16, f16 or f32 as f32, and rounds once on the way back.
  Value loadF32(Value buffer, ValueRange indices);
  void storeF32(Value value, Value buffer, ValueRange indices);
  /// A buffer that lives until `free`.
  Value scratch(ArrayRef<int64_t> shape, Type element, ValueRange sizes = {});
  void free(ArrayRef<Value> buffers);

  void loop(Value begin, Value end, Body body, int64_t step = 1);
  SmallVector<Value> loop(Value begin, Value end, ValueRange inits,
                          CarryingBody body, int64_t step = 1);
  void when(Value condition, llvm::function_ref<void()> then,
            llvm::function_ref<void()> otherwise = nullptr);
  Value choose(Value condition, llvm::function_ref<Value()> then,
               llvm::function_ref<Value()> otherwise);

  /// Sets every entry of a buffer of rank 1 or 2, or of one row of it.
  void fill(Value buffer, Value value);
  void fillRow(Value buffer, Value row, Value value);
};

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_UTILS_LOOPBUILDER_H
