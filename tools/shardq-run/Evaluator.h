//===- Evaluator.h - What evaluates the ops of the reference ----*- C++ -*-===//
//
// Reference.cpp walks a program and evaluates rows, indices, tensors and
// integers, ReferenceAttention.cpp attention, and ReferenceProjections.cpp what
// is projected before and after it.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUN_EVALUATOR_H
#define SHARDQ_RUN_EVALUATOR_H

#include "Reference.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseMap.h"
#include <cmath>
#include <mutex>

namespace mlir::shardq::run {

/// Roundings of many numbers are independent, and so are the signs of what
/// projections sum: so many standard deviations are allowed for a sum.
inline constexpr double kDeviations = 4;
/// That in half units of a rounding, which may be any part of one.
inline const double kRounding = kDeviations / std::sqrt(3.0);

/// A float array as doubles, in rows of `stride`.
struct DoubleRows {
  int64_t stride = 0;
  std::vector<double> values;
  const double *row(int64_t i) const { return values.data() + i * stride; }
};

/// Rows of `heads` blocks; dimension 0 is the row and the last is padded.
/// Several parts are joined along the last dimension.
DoubleRows widen(ArrayRef<const Array *> parts, int64_t firstRow,
                 int64_t numRows);

llvm::Error unsupported(Operation *op, const llvm::Twine &why);

/// How far a computed element of the value may be off: by its bound, and a
/// rounding of at most half a unit, or of so many half units in a sum of many.
double getError(const ReferenceValue &value, int64_t i, double rounding = 1);

using ReferenceValues = llvm::DenseMap<Value, ReferenceValue>;

class Evaluator {
public:
  Evaluator(const TapTable &taps, Progress &progress)
      : taps(taps), progress(progress) {}

  llvm::Expected<std::vector<ReferenceValue>>
  evaluate(func::FuncOp function, ArrayRef<ReferenceValue> arguments);

  std::vector<std::string> violations;

private:
  using Values = ReferenceValues;

  llvm::Error evaluate(Operation *op, Values &values);
  llvm::Error evaluate(ExpandRowsOp op, Values &values);
  llvm::Error evaluate(ShardLengthsOp op, Values &values);
  llvm::Error evaluate(DraftLengthsOp op, Values &values);
  llvm::Error evaluate(IndexerOp op, Values &values);
  llvm::Error evaluate(TopKOp op, Values &values);
  llvm::Error evaluate(ConvertIndicesOp op, Values &values);
  llvm::Error evaluate(SparseMlaOp op, Values &values);
  llvm::Error evaluate(TakeRowsOp op, Values &values);
  llvm::Error evaluate(WriteRowsOp op, Values &values);
  llvm::Error evaluate(ReplicatedTableOp op, Values &values);
  llvm::Error evaluate(TokenSlotsOp op, Values &values);
  llvm::Error evaluate(UnpackRowsOp op, Values &values);
  llvm::Error evaluate(PackRowsOp op, Values &values);
  llvm::Error evaluate(CountDecodeRowsOp op, Values &values);
  llvm::Error evaluate(tensor::ExtractSliceOp op, Values &values);
  llvm::Error evaluate(tensor::DimOp op, Values &values);
  llvm::Error evaluate(arith::ConstantOp op, Values &values);
  llvm::Error evaluate(linalg::FillOp op, Values &values);
  llvm::Error evaluate(arith::TruncFOp op, Values &values);
  llvm::Error evaluateContraction(linalg::LinalgOp op, Values &values);
  llvm::Error checkTap(TapOp op, Values &values);
  llvm::Error checkRows(RowWiseOpInterface op, Values &values);
  llvm::Error setInt(Value result, int64_t value, Values &values);

  /// The tapped value of a result, in its turn; null where it has no tap.
  const Array *getTapped(Value value);
  void checkSelection(int64_t row, ArrayRef<int32_t> chosen,
                      ArrayRef<double> scores, ArrayRef<bool> candidates,
                      llvm::function_ref<double(int64_t)> getError);
  void report(const llvm::Twine &violation);

  /// Calls `work` for each of `count` rows on all processors.
  void forEachRow(int64_t count, llvm::function_ref<void(int64_t)> work);

  const TapTable &taps;
  Progress &progress;
  std::mutex mutex;
  int depth = 0;
  std::map<std::string, size_t> tapTurns;
};

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_EVALUATOR_H
