//===- ReferenceProjections.cpp - Float64 evaluation of projections -------===//

#include "Evaluator.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

/// Largest relative error of a rounding.
static double getRoundoff(Element element) { return getUlp(element, 1) / 2; }

/// Of attention that is projected, each partial output may be rounded here, in
/// place of their sum.
llvm::Error Evaluator::evaluate(arith::TruncFOp op, Values &values) {
  const ReferenceValue source = values[op.getIn()];
  std::optional<Element> element = getElement(op.getType());
  if (!isa<RankedTensorType>(op.getType()) || !element || !isFloat(*element))
    return unsupported(op, "of this type is not evaluated");
  ReferenceValue result = source;
  llvm::Expected<Array> array =
      allocateArray(*element, source.array.shape, "a rounded tensor");
  if (!array)
    return array.takeError();
  result.array = *array;
  bool isPlain = source.kind == ReferenceValue::Plain;
  for (int64_t i = 0, e = array->getNumElements(); i < e; ++i) {
    array->setFloat(i, isPlain ? source.array.getFloat(i) : source.exact[i]);
    if (!source.size.empty())
      result.bound[i] += kDeviations * getRoundoff(*element) * source.size[i];
  }
  values[op->getResult(0)] = std::move(result);
  return llvm::Error::success();
}

namespace {

/// An operand of a contraction, by its loops.
struct LoopedOperand {
  ReferenceValue value;
  SmallVector<int64_t> strides; // of each loop, 0 for those it does not have

  double getExact(int64_t i) const {
    return value.kind == ReferenceValue::Plain ? value.array.getFloat(i)
                                               : value.exact[i];
  }
  double getSize(int64_t i) const {
    return value.size.empty() ? std::abs(getExact(i)) : value.size[i];
  }
  int64_t at(ArrayRef<int64_t> loops) const {
    int64_t index = 0;
    for (auto [stride, loop] : llvm::zip_equal(strides, loops))
      index += stride * loop;
    return index;
  }
};

/// What a contraction sums up for one element.
struct Contraction {
  double exact = 0, worst = 0, squaredError = 0, squaredSize = 0;

  void add(const LoopedOperand &a, int64_t i, const LoopedOperand &b,
           int64_t j) {
    double x = a.getExact(i), y = b.getExact(j);
    auto getProductError = [&](double rounding) {
      double dx = getError(a.value, i, rounding);
      double dy = getError(b.value, j, rounding);
      return std::abs(x) * dy + std::abs(y) * dx + dx * dy;
    };
    double error = getProductError(kRounding);
    double size = a.getSize(i) * b.getSize(j);
    exact += x * y;
    worst += getProductError(1);
    squaredError += error * error;
    squaredSize += size * size;
  }
  double getSize() const { return std::sqrt(squaredSize); }
  /// Sums that are rounded to the element type at each of `steps`.
  double getBound(Element element, int64_t steps) const {
    return std::min(worst, std::sqrt(squaredError)) +
           kDeviations * getRoundoff(element) * std::sqrt(double(steps) + 1) *
               getSize();
  }
};

} // namespace

/// Whether the op multiplies two inputs and sums up, and nothing else.
static bool isContraction(linalg::LinalgOp op) {
  return op.hasPureTensorSemantics() && op.getNumDpsInputs() == 2 &&
         op.getNumDpsInits() == 1 && linalg::isaContractionOpInterface(op) &&
         llvm::all_of(op->getRegion(0).front(), [](Operation &inner) {
           return isa<arith::MulFOp, arith::AddFOp, arith::ExtFOp,
                      linalg::YieldOp>(inner);
         });
}

/// On global arrays heads are those of all ranks, in operands and result alike.
llvm::Error Evaluator::evaluateContraction(linalg::LinalgOp op,
                                           Values &values) {
  if (!isContraction(op))
    return unsupported(op, "is no product of two tensors that is summed up, "
                           "and is not evaluated by the reference");
  const Array init = values[op.getDpsInits().front()].array;
  for (int64_t i = 0, e = init.getNumElements(); i < e; ++i)
    if (init.getFloat(i) != 0)
      return unsupported(op, "adds to values that are not 0");
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  SmallVector<int64_t> extents(op.getNumLoops(), -1);
  LoopedOperand operands[2];
  for (int64_t i = 0; i < 2; ++i) {
    operands[i].value = values[op->getOperand(i)];
    operands[i].strides.resize(extents.size());
    ArrayRef<int64_t> shape = operands[i].value.array.shape;
    int64_t stride = 1;
    for (int64_t d = shape.size(); d-- > 0;) {
      unsigned loop = maps[i].getDimPosition(d);
      if (extents[loop] >= 0 && extents[loop] != shape[d])
        return unsupported(op, "has operands of " + llvm::Twine(extents[loop]) +
                                   " and " + llvm::Twine(shape[d]) +
                                   " entries among those of all ranks");
      extents[loop] = shape[d];
      operands[i].strides[loop] = stride;
      stride *= shape[d];
    }
  }
  SmallVector<int64_t, 4> shape;
  SmallVector<unsigned> outer, inner;
  for (unsigned d = 0; d < maps[2].getNumResults(); ++d)
    outer.push_back(maps[2].getDimPosition(d));
  int64_t steps = 1;
  for (unsigned loop = 0; loop < extents.size(); ++loop)
    if (!llvm::is_contained(outer, loop)) {
      inner.push_back(loop);
      steps *= extents[loop];
    }
  for (unsigned loop : outer)
    shape.push_back(extents[loop]);
  ReferenceValue result;
  result.kind = ReferenceValue::Attention;
  llvm::Expected<Array> array = allocateArray(
      *getElement(op->getResult(0).getType()), shape, "a projection");
  if (!array)
    return array.takeError();
  result.array = *array;
  int64_t count = array->getNumElements();
  bool hasSize =
      !operands[0].value.size.empty() || !operands[1].value.size.empty();
  result.exact.resize(count);
  result.bound.resize(count);
  result.size.resize(hasSize ? count : 0);
  int64_t rows = array->getNumRows(), width = array->getRowElements();
  forEachRow(rows, [&](int64_t row) {
    SmallVector<int64_t> loops(extents.size());
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      for (int64_t rest = i, d = outer.size(); d-- > 0; rest /= shape[d])
        loops[outer[d]] = rest % shape[d];
      Contraction sum;
      for (int64_t step = 0; step < steps; ++step) {
        int64_t rest = step;
        for (unsigned loop : inner) {
          loops[loop] = rest % extents[loop];
          rest /= extents[loop];
        }
        sum.add(operands[0], operands[0].at(loops), operands[1],
                operands[1].at(loops));
      }
      result.exact[i] = sum.exact;
      result.bound[i] = sum.getBound(array->element, steps);
      if (hasSize)
        result.size[i] = sum.getSize();
    }
  });
  for (int64_t i = 0; i < count; ++i)
    array->setFloat(i, result.exact[i]);
  values[op->getResult(0)] = std::move(result);
  return llvm::Error::success();
}
