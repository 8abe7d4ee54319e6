//===- Reference.cpp - Float64 evaluation of model programs ---------------===//

#include "Evaluator.h"
#include "Kernels.h"
#include "Packed.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Relative error of a score that accumulates in f32.
static const double kScoreError = std::ldexp(1.0, -18);
static constexpr size_t kMaxViolations = 5;
static constexpr int kMaxCallDepth = 100;

void Evaluator::report(const llvm::Twine &violation) {
  std::lock_guard<std::mutex> lock(mutex);
  if (violations.size() < kMaxViolations)
    violations.push_back(violation.str());
}

void Evaluator::forEachRow(int64_t count, function_ref<void(int64_t)> work) {
  std::atomic<int64_t> next{0};
  auto takeRows = [&](bool ticks) {
    for (int64_t row; (row = next++) < count;) {
      work(row);
      if (ticks)
        progress.tick("(row " + std::to_string(row) + " of " +
                      std::to_string(count) + ")");
    }
  };
  int64_t helpers = std::min<int64_t>(
      int64_t(std::thread::hardware_concurrency()) - 1, count - 1);
  std::vector<std::thread> threads;
  threads.reserve(std::max<int64_t>(helpers, 0));
  for (int64_t i = 0; i < helpers; ++i)
    threads.emplace_back(takeRows, false);
  takeRows(true);
  for (std::thread &thread : threads)
    thread.join();
}

//===----------------------------------------------------------------------===//
// Helpers
//===----------------------------------------------------------------------===//

DoubleRows run::widen(ArrayRef<const Array *> parts, int64_t firstRow,
                      int64_t numRows) {
  int64_t heads = parts[0]->shape.size() == 3 ? parts[0]->shape[1] : 1;
  int64_t dim = 0;
  for (const Array *part : parts)
    dim += part->shape.back();
  int64_t padded = padToLanes(dim);
  DoubleRows rows;
  rows.stride = heads * padded;
  rows.values.resize(numRows * rows.stride);
  int64_t column = 0;
  for (const Array *part : parts) {
    int64_t width = part->shape.back();
    for (int64_t i = 0; i < numRows * heads; ++i)
      for (int64_t d = 0; d < width; ++d)
        rows.values[i * padded + column + d] =
            part->getFloat((firstRow * heads + i) * width + d);
    column += width;
  }
  return rows;
}

llvm::Error run::unsupported(Operation *op, const llvm::Twine &why) {
  std::string text;
  llvm::raw_string_ostream(text) << op->getLoc();
  return makeError("--verify: '" + op->getName().getStringRef() + "' at " +
                   text + " " + why);
}

double run::getError(const ReferenceValue &value, int64_t i, double rounding) {
  if (value.kind == ReferenceValue::Plain)
    return 0;
  return value.bound[i] +
         rounding * getUlp(value.array.element, value.exact[i]) / 2;
}

/// The value as it is, of another static type.
static llvm::Error evaluateCast(Operation *op, ReferenceValues &values) {
  ReferenceValue source = values[op->getOperand(0)];
  values[op->getResult(0)] = std::move(source);
  return llvm::Error::success();
}

/// `shape` elements of `source`, element i from `indexOf(i)`; zero where that
/// is negative.
static llvm::Expected<ReferenceValue>
gather(const ReferenceValue &source, ArrayRef<int64_t> shape,
       function_ref<int64_t(int64_t)> indexOf) {
  ReferenceValue result;
  result.kind = source.kind;
  llvm::Expected<Array> array =
      allocateArray(source.array.element, shape, "an intermediate value");
  if (!array)
    return array.takeError();
  result.array = *array;
  int64_t count = array->getNumElements();
  int64_t bytes = getElementBytes(array->element);
  if (source.kind != ReferenceValue::Plain) {
    result.exact.resize(count);
    result.bound.resize(source.bound.empty() ? 0 : count);
    result.size.resize(source.size.empty() ? 0 : count);
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t from = indexOf(i);
    if (from < 0)
      continue;
    std::memcpy(array->data.get() + i * bytes,
                source.array.data.get() + from * bytes, bytes);
    if (!result.exact.empty())
      result.exact[i] = source.exact[from];
    if (!result.bound.empty())
      result.bound[i] = source.bound[from];
    if (!result.size.empty())
      result.size[i] = source.size[from];
  }
  return result;
}

llvm::Error Evaluator::setInt(Value result, int64_t value, Values &values) {
  std::optional<Element> element = getElement(result.getType());
  if (!element)
    return unsupported(result.getDefiningOp(), "has an unsupported type");
  llvm::Expected<Array> array = allocateArray(*element, {}, "a scalar");
  if (!array)
    return array.takeError();
  array->setInt(0, value);
  values[result].array = *array;
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Rows and indices
//===----------------------------------------------------------------------===//

/// How many ranks have as many rows each as `rows` says, where that is a number
/// that the program knows of one rank.
static int64_t getShardsOf(ExpandRowsOp op) {
  auto shards = op.getQueryStart().getDefiningOp<ShardLengthsOp>();
  auto size = op.getRows().getDefiningOp<tensor::DimOp>();
  auto source = size ? dyn_cast<RankedTensorType>(size.getSource().getType())
                     : RankedTensorType();
  bool isOwn =
      matchPattern(op.getRows(), m_Constant()) ||
      (source && size.getConstantIndex() == 0 && !source.isDynamicDim(0));
  if (!shards || !isOwn)
    return 1;
  return lookupMeshAxis(op, shards.getMeshAttr(), shards.getAxis())
      .axis.getSize();
}

llvm::Error Evaluator::evaluate(ExpandRowsOp op, Values &values) {
  const Array start = values[op.getQueryStart()].array;
  const Array lens = values[op.getSeqLens()].array;
  int64_t rows = values[op.getRows()].array.getInt(0);
  if (llvm::MulOverflow(rows, getShardsOf(op), rows))
    return unsupported(op, "has more than 2^63 rows");
  llvm::Expected<Array> req =
      allocateArray(Element::I32, {rows}, "row requests");
  if (!req)
    return req.takeError();
  llvm::Expected<Array> visible =
      allocateArray(Element::I32, {rows}, "visible lengths");
  if (!visible)
    return visible.takeError();
  for (int64_t i = 0; i < rows; ++i) {
    req->setInt(i, -1);
    for (int64_t r = 0; r < lens.getNumRows(); ++r) {
      int64_t begin = start.getInt(r), end = start.getInt(r + 1);
      if (i < begin || i >= end)
        continue;
      req->setInt(i, r);
      visible->setInt(
          i,
          std::max<int64_t>(lens.getInt(r) - (end - begin) + i - begin + 1, 0));
    }
  }
  values[op->getResult(0)].array = *req;
  values[op->getResult(1)].array = *visible;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(CountDecodeRowsOp op, Values &values) {
  const Array start = values[op.getQueryStart()].array;
  int64_t request = 0;
  while (request + 1 < start.getNumRows() &&
         start.getInt(request + 1) - start.getInt(request) <=
             1 + int64_t(op.getSpeculativeTokens()))
    ++request;
  return setInt(op.getResult(), start.getInt(request), values);
}

/// NaN sorts below every number.
static double getKey(double score) {
  return std::isnan(score) ? -kInfinity : score;
}

/// The k largest candidates in ascending order.
static std::vector<int32_t>
selectLargest(ArrayRef<double> scores, ArrayRef<bool> candidates, int64_t k) {
  std::vector<int32_t> positions;
  for (size_t s = 0; s < scores.size(); ++s)
    if (candidates[s])
      positions.push_back(int32_t(s));
  if (int64_t(positions.size()) > k) {
    auto isBefore = [&](int32_t a, int32_t b) {
      bool nanA = std::isnan(scores[a]), nanB = std::isnan(scores[b]);
      if (nanA != nanB)
        return nanB;
      if (nanA || scores[a] == scores[b])
        return a < b;
      return scores[a] > scores[b];
    };
    std::nth_element(positions.begin(), positions.begin() + k, positions.end(),
                     isBefore);
    positions.resize(k);
    std::sort(positions.begin(), positions.end());
  }
  return positions;
}

/// Reports where `chosen` is not a valid answer to these scores: in order, as
/// many as there are, and no other candidate clearly larger than one of them.
void Evaluator::checkSelection(int64_t row, ArrayRef<int32_t> chosen,
                               ArrayRef<double> scores,
                               ArrayRef<bool> candidates,
                               function_ref<double(int64_t)> getError) {
  auto fail = [&](const llvm::Twine &what) {
    report("row " + llvm::Twine(row) + ": top-k " + what);
  };
  int64_t count = 0, k = chosen.size();
  while (count < k && chosen[count] >= 0)
    ++count;
  std::vector<bool> taken(scores.size());
  for (int64_t i = 0; i < k; ++i) {
    if (i >= count && chosen[i] != -1)
      return fail("column " + llvm::Twine(i) + " holds " +
                  llvm::Twine(chosen[i]) + " behind a -1");
    if (i >= count)
      continue;
    if (i && chosen[i] <= chosen[i - 1])
      return fail("column " + llvm::Twine(i) + " holds " +
                  llvm::Twine(chosen[i]) + " behind " +
                  llvm::Twine(chosen[i - 1]) + ", not ascending");
    if (chosen[i] >= int64_t(scores.size()) || !candidates[chosen[i]])
      return fail("position " + llvm::Twine(chosen[i]) + " is not visible");
    taken[chosen[i]] = true;
  }
  int64_t expected = std::min<int64_t>(k, llvm::count(candidates, true));
  if (count != expected)
    return fail("has " + llvm::Twine(count) + " positions, expected " +
                llvm::Twine(expected));

  // Only scores within rounding of the border need their rounding computed.
  double lowest = kInfinity, highest = -kInfinity;
  for (size_t s = 0; s < scores.size(); ++s) {
    if (taken[s])
      lowest = std::min(lowest, getKey(scores[s]));
    else if (candidates[s])
      highest = std::max(highest, getKey(scores[s]));
  }
  if (count == 0 || highest < lowest || highest == -kInfinity)
    return;
  int64_t worstTaken = -1, worstLeft = -1, lastZero = -1, firstZero = -1;
  double upper = kInfinity, lower = -kInfinity;
  for (int64_t s = 0, e = scores.size(); s < e; ++s) {
    double key = getKey(scores[s]);
    if (!candidates[s] || (taken[s] ? key > highest : key < lowest))
      continue;
    double error = getError(s);
    // Without any rounding in them, equal scores are ties, of which the lower
    // position wins.
    if (error == 0 && key == 0) {
      if (taken[s])
        lastZero = s;
      else if (firstZero < 0)
        firstZero = s;
    }
    if (taken[s] && key + error < upper) {
      upper = key + error;
      worstTaken = s;
    } else if (!taken[s] && key - error > lower) {
      lower = key - error;
      worstLeft = s;
    }
  }
  if (lower > upper)
    fail("takes position " + llvm::Twine(worstTaken) + " with score " +
         formatNumber(scores[worstTaken]) + " and leaves position " +
         llvm::Twine(worstLeft) + " with score " +
         formatNumber(scores[worstLeft]));
  else if (firstZero >= 0 && lastZero > firstZero)
    fail("takes position " + llvm::Twine(lastZero) + " and leaves position " +
         llvm::Twine(firstZero) + ", which has the same score");
}

/// The step's own starts and lengths: all rows are those of one shard.
llvm::Error Evaluator::evaluate(ShardLengthsOp op, Values &values) {
  values[op->getResult(0)] = ReferenceValue(values[op.getQueryStart()]);
  values[op->getResult(1)] = ReferenceValue(values[op.getSeqLens()]);
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(DraftLengthsOp op, Values &values) {
  const Array given = values[op.getLengths()].array;
  // Below 0 is an error of the program, and counts as 0.
  int64_t step = std::max<int64_t>(values[op.getStep()].array.getInt(0), 0);
  llvm::Expected<Array> lengths =
      allocateArray(Element::I32, {given.getNumRows()}, "draft lengths");
  if (!lengths)
    return lengths.takeError();
  for (int64_t i = 0; i < given.getNumRows(); ++i) {
    // Tokens that there were, the drafted ones, and the one that is drafted.
    double tokens = double(given.getInt(i)) + double(step) + 1;
    bool isAbsent = given.getInt(i) <= 0;
    lengths->setInt(i, isAbsent
                           ? 0
                           : int64_t(std::min<double>(
                                 tokens, std::numeric_limits<int>::max())));
  }
  values[op->getResult(0)].array = *lengths;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(IndexerOp op, Values &values) {
  const Array q = values[op.getQ()].array;
  const Array weights = values[op.getWeights()].array;
  const Array keys = values[op.getKeys()].array;
  const Array table = values[op.getTable()].array;
  const Array req = values[op.getReq()].array;
  const Array visible = values[op.getVisible()].array;
  int64_t rows = q.shape[0], heads = q.shape[1], k = op.getK();
  int64_t blockSize = op.getBlockSize(), stride = op.getBlockStride();
  llvm::Expected<Array> result =
      allocateArray(Element::I32, {rows, k}, "the indexer's result");
  if (!result)
    return result.takeError();
  const Array *tapped = getTapped(op->getResult(0));
  if (tapped && tapped->shape != result->shape)
    return unsupported(op, "was tapped with another shape");

  DoubleRows wideKeys = widen(&keys, 0, keys.getNumRows());
  int64_t dim = wideKeys.stride;
  forEachRow(rows, [&](int64_t t) {
    int64_t request = req.getInt(t);
    int64_t length = std::min(visible.getInt(t), table.shape[1] * blockSize);
    if (request < 0 || request >= table.shape[0])
      length = 0;
    length = std::max<int64_t>(length, 0);
    std::vector<double> scores(length);
    std::unique_ptr<bool[]> candidates(new bool[length + 1]());
    std::vector<int64_t> positions;
    std::vector<const double *> found, keyOf(length);
    for (int64_t s = 0; s < length; ++s) {
      int64_t block = table.getInt(request * table.shape[1] + s / blockSize);
      int64_t row = block * stride + s % blockSize;
      if (block < 0 || row >= keys.getNumRows())
        continue;
      candidates[s] = true;
      positions.push_back(s);
      found.push_back(keyOf[s] = wideKeys.row(row));
    }
    DoubleRows wideQ = widen(&q, t, 1);
    int64_t count = found.size();
    std::vector<double> dots(heads * count);
    dotKeys(wideQ.row(0), heads, dim, found.data(), count, dots.data(), count);
    for (int64_t h = 0; h < heads; ++h) {
      double weight = weights.getFloat(t * heads + h);
      for (int64_t i = 0; i < count; ++i)
        scores[positions[i]] += weight * std::max(dots[h * count + i], 0.0);
    }
    ArrayRef<bool> candidateRef(candidates.get(), length);
    int32_t *out = result->as<int32_t>() + t * k;
    if (tapped) {
      std::memcpy(out, tapped->as<int32_t>() + t * k, k * sizeof(int32_t));
      // A head whose product is negative beyond rounding adds an exact zero.
      std::vector<double> sizes(heads), dots(heads);
      auto getError = [&](int64_t s) {
        dotKeys(wideQ.row(0), heads, dim, &keyOf[s], 1, dots.data(), 1);
        dotAbsHeads(wideQ.row(0), heads, dim, keyOf[s], sizes.data());
        double error = 0;
        for (int64_t h = 0; h < heads; ++h)
          if (dots[h] > -kScoreError * sizes[h])
            error += std::abs(weights.getFloat(t * heads + h)) * sizes[h];
        return kScoreError * error;
      };
      checkSelection(t, ArrayRef<int32_t>(out, k), scores, candidateRef,
                     getError);
      return;
    }
    std::vector<int32_t> chosen = selectLargest(scores, candidateRef, k);
    std::fill(std::copy(chosen.begin(), chosen.end(), out), out + k, -1);
  });
  values[op->getResult(0)].array = *result;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(TopKOp op, Values &values) {
  const Array scores = values[op.getScores()].array;
  const Array visible = values[op.getVisible()].array;
  int64_t rows = scores.shape[0], width = scores.shape[1], k = op.getK();
  llvm::Expected<Array> result =
      allocateArray(Element::I32, {rows, k}, "the top-k result");
  if (!result)
    return result.takeError();
  forEachRow(rows, [&](int64_t t) {
    int64_t length = std::clamp<int64_t>(visible.getInt(t), 0, width);
    std::vector<double> row(length);
    for (int64_t s = 0; s < length; ++s)
      row[s] = scores.getFloat(t * width + s);
    std::unique_ptr<bool[]> candidates(new bool[length + 1]);
    std::fill_n(candidates.get(), length, true);
    std::vector<int32_t> chosen =
        selectLargest(row, ArrayRef<bool>(candidates.get(), length), k);
    int32_t *out = result->as<int32_t>() + t * k;
    std::fill(std::copy(chosen.begin(), chosen.end(), out), out + k, -1);
  });
  values[op->getResult(0)].array = *result;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(ConvertIndicesOp op, Values &values) {
  const Array indices = values[op.getIndices()].array;
  const Array table = values[op.getTable()].array;
  const Array req = values[op.getReq()].array;
  bool hasPrefill = bool(op.getPrefillReq());
  const Array prefill = hasPrefill ? values[op.getPrefillReq()].array : Array();
  const Array starts =
      hasPrefill ? values[op.getWorkspaceStart()].array : Array();
  int64_t rows = indices.shape[0], width = indices.shape[1];
  int64_t blockSize = op.getBlockSize(), stride = op.getBlockStride();
  Element element = *getElement(op->getResult(0).getType());
  llvm::Expected<Array> slots =
      allocateArray(element, {rows, width}, "the slots");
  if (!slots)
    return slots.takeError();
  llvm::Expected<Array> counts =
      allocateArray(Element::I32, {rows}, "the slot counts");
  if (!counts)
    return counts.takeError();

  auto convert = [&](int64_t row, int64_t position) -> int64_t {
    if (position < 0)
      return -1;
    if (hasPrefill && prefill.getInt(row) >= 0) {
      int64_t request = prefill.getInt(row);
      return request < starts.getNumRows() ? starts.getInt(request) + position
                                           : -1;
    }
    int64_t request = req.getInt(row), block = position / blockSize;
    if (request < 0 || request >= table.shape[0] || block >= table.shape[1])
      return -1;
    int64_t entry = table.getInt(request * table.shape[1] + block);
    return entry < 0 ? -1 : entry * stride + position % blockSize;
  };
  for (int64_t row = 0; row < rows; ++row) {
    int64_t count = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      int64_t slot = convert(row, indices.getInt(i));
      if (element == Element::I32 && slot > std::numeric_limits<int32_t>::max())
        slot = -1;
      slots->setInt(i, slot);
      count += slot != -1;
    }
    counts->setInt(row, count);
  }
  values[op->getResult(0)].array = *slots;
  if (op->getNumResults() == 2)
    values[op->getResult(1)].array = *counts;
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Views and packed rows
//===----------------------------------------------------------------------===//

/// On global arrays the table is that of all tokens, and so is its view.
llvm::Error Evaluator::evaluate(ReplicatedTableOp op, Values &values) {
  const Array table = values[op.getTable()].array;
  const Array lengths = values[op.getLengths()].array;
  llvm::Expected<Array> view =
      allocateArray(Element::I32, table.shape, "a view of a table");
  if (!view)
    return view.takeError();
  int64_t width = table.shape[1];
  for (int64_t i = 0, e = table.getNumElements(); i < e; ++i)
    view->setInt(i, lengths.getInt(i / width) > 0 ? table.getInt(i) : 0);
  values[op->getResult(0)].array = *view;
  return llvm::Error::success();
}

/// All tokens, which are there whichever rank keeps them.
llvm::Error Evaluator::evaluate(TokenSlotsOp op, Values &values) {
  const Array table = values[op.getTable()].array;
  const Array req = values[op.getReq()].array;
  const Array visible = values[op.getVisible()].array;
  llvm::Expected<Array> slots =
      allocateArray(*getElement(op->getResult(0).getType()), {req.getNumRows()},
                    "slots of tokens");
  if (!slots)
    return slots.takeError();
  int64_t limit = slots->element == Element::I32
                      ? std::numeric_limits<int32_t>::max()
                      : std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < req.getNumRows(); ++i) {
    int64_t slot = -1, request = req.getInt(i), token = visible.getInt(i) - 1;
    int64_t block = token / int64_t(op.getBlockSize());
    if (token >= 0 && request >= 0 && request < table.shape[0] &&
        block < table.shape[1])
      if (int64_t entry = table.getInt(request * table.shape[1] + block);
          entry >= 0)
        slot = entry * op.getBlockStride() + token % int64_t(op.getBlockSize());
    slots->setInt(i, slot <= limit ? slot : -1);
  }
  values[op->getResult(0)].array = *slots;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(UnpackRowsOp op, Values &values) {
  llvm::Expected<Array> rows =
      unpackRows(op.getFormat(), values[op.getPacked()].array);
  if (!rows)
    return rows.takeError();
  values[op->getResult(0)].array = *rows;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(PackRowsOp op, Values &values) {
  const ReferenceValue rows = values[op.getRows()];
  if (rows.kind != ReferenceValue::Plain)
    return unsupported(op, "of computed values is not evaluated");
  llvm::Expected<Array> packed = packRows(op.getFormat(), rows.array);
  if (!packed)
    return packed.takeError();
  values[op->getResult(0)].array = *packed;
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Tensors and integers
//===----------------------------------------------------------------------===//

llvm::Error Evaluator::evaluate(WriteRowsOp op, Values &values) {
  const ReferenceValue source = values[op.getSource()];
  const ReferenceValue cache = values[op.getCache()];
  const Array slots = values[op.getSlots()].array;
  if (source.kind != ReferenceValue::Plain ||
      cache.kind != ReferenceValue::Plain)
    return unsupported(op, "of computed values is not evaluated");
  auto result = gather(cache, cache.array.shape, [](int64_t i) { return i; });
  if (!result)
    return result.takeError();
  int64_t bytes =
      cache.array.getRowElements() * getElementBytes(cache.array.element);
  for (int64_t i = 0; i < source.array.getNumRows(); ++i)
    if (int64_t slot = slots.getInt(i);
        slot >= 0 && slot < cache.array.getNumRows())
      std::memcpy(result->array.data.get() + slot * bytes,
                  source.array.data.get() + i * bytes, bytes);
  values[op.getResult()] = std::move(*result);
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(TakeRowsOp op, Values &values) {
  if (op.getMissingAttr())
    return unsupported(op, "with 'missing' is not evaluated");
  const ReferenceValue source = values[op.getSource()];
  const Array rows = values[op.getRows()].array;
  int64_t width = source.array.getRowElements();
  SmallVector<int64_t, 4> shape = source.array.shape;
  shape[0] = rows.getNumRows();
  llvm::Expected<ReferenceValue> result =
      gather(source, shape, [&](int64_t i) -> int64_t {
        int64_t row = rows.getInt(i / width);
        if (row < 0 || row >= source.array.getNumRows())
          return -1;
        return row * width + i % width;
      });
  if (!result)
    return result.takeError();
  values[op->getResult(0)] = std::move(*result);
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(tensor::ExtractSliceOp op, Values &values) {
  const ReferenceValue source = values[op.getSource()];
  RankedTensorType type = op.getSourceType();
  int64_t rank = type.getRank();
  if (op.getType().getRank() != rank)
    return unsupported(op, "that drops dimensions is not evaluated");
  auto getInt = [&](OpFoldResult value) {
    if (auto attribute = dyn_cast<Attribute>(value))
      return cast<IntegerAttr>(attribute).getInt();
    return values[cast<Value>(value)].array.getInt(0);
  };
  SmallVector<int64_t, 4> shape, offsets, strides;
  for (int64_t d = 0; d < rank; ++d) {
    int64_t offset = getInt(op.getMixedOffsets()[d]);
    int64_t size = getInt(op.getMixedSizes()[d]);
    int64_t stride = getInt(op.getMixedStrides()[d]);
    int64_t extent = source.array.shape[d];
    // A rank's block of a split dimension stands for the whole only as a whole.
    if (!type.isDynamicDim(d) && type.getDimSize(d) != extent) {
      if (offset != 0 || stride != 1 || size != type.getDimSize(d))
        return unsupported(op, "of a part of a split dimension is not "
                               "evaluated");
      size = extent;
    }
    if (offset < 0 || size < 0 || stride < 1 ||
        (size && offset + (size - 1) * stride >= extent))
      return unsupported(op, "reaches outside its source");
    shape.push_back(size);
    offsets.push_back(offset);
    strides.push_back(stride);
  }
  llvm::Expected<ReferenceValue> result = gather(source, shape, [&](int64_t i) {
    int64_t from = 0, scaleOfDim = 1;
    for (int64_t d = rank; d-- > 0;) {
      from += (offsets[d] + i % shape[d] * strides[d]) * scaleOfDim;
      i /= shape[d];
      scaleOfDim *= source.array.shape[d];
    }
    return from;
  });
  if (!result)
    return result.takeError();
  values[op->getResult(0)] = std::move(*result);
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(tensor::DimOp op, Values &values) {
  std::optional<int64_t> dim = op.getConstantIndex();
  if (!dim)
    dim = values[op.getIndex()].array.getInt(0);
  auto type = dyn_cast<RankedTensorType>(op.getSource().getType());
  const Array source = values[op.getSource()].array;
  if (!type || *dim < 0 || *dim >= type.getRank())
    return unsupported(op, "has no such dimension");
  // The program means its own block's size.
  int64_t size =
      type.isDynamicDim(*dim) ? source.shape[*dim] : type.getDimSize(*dim);
  return setInt(op.getResult(), size, values);
}

llvm::Error Evaluator::evaluate(arith::ConstantOp op, Values &values) {
  if (auto integer = dyn_cast<IntegerAttr>(op.getValue()))
    return setInt(op.getResult(), integer.getValue().getSExtValue(), values);
  std::optional<Element> element = getElement(op.getType());
  if (auto number = dyn_cast<FloatAttr>(op.getValue()); number && element) {
    llvm::Expected<Array> array = allocateArray(*element, {}, "a number");
    if (!array)
      return array.takeError();
    array->setFloat(0, number.getValueAsDouble());
    values[op.getResult()].array = *array;
    return llvm::Error::success();
  }
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!dense || !element)
    return unsupported(op, "of this type is not evaluated");
  llvm::Expected<Array> array =
      allocateArray(*element, dense.getType().getShape(), "a constant");
  if (!array)
    return array.takeError();
  int64_t i = 0;
  if (isFloat(*element))
    for (APFloat value : dense.getValues<APFloat>()) {
      bool inexact;
      value.convert(llvm::APFloat::IEEEdouble(),
                    llvm::APFloat::rmNearestTiesToEven, &inexact);
      array->setFloat(i++, value.convertToDouble());
    }
  else
    for (APInt value : dense.getValues<APInt>())
      array->setInt(i++, value.getSExtValue());
  values[op.getResult()].array = *array;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(linalg::FillOp op, Values &values) {
  const Array init = values[op.getOutputs().front()].array;
  double value = values[op.getInputs().front()].array.getFloat(0);
  if (op->getNumResults() != 1 || !isFloat(init.element))
    return unsupported(op, "of this type is not evaluated");
  llvm::Expected<Array> array =
      allocateArray(init.element, init.shape, "a filled tensor");
  if (!array)
    return array.takeError();
  for (int64_t i = 0, e = array->getNumElements(); i < e; ++i)
    array->setFloat(i, value);
  values[op->getResult(0)].array = *array;
  return llvm::Error::success();
}

/// Integer arithmetic on scalars; nothing for other ops.
static std::optional<int64_t> computeInt(Operation *op, int64_t a, int64_t b) {
  // Wraps as the machine does, without undefined behaviour on the way.
  auto wrap = [](uint64_t value) { return int64_t(value); };
  return llvm::TypeSwitch<Operation *, std::optional<int64_t>>(op)
      .Case<arith::AddIOp>(
          [&](auto) { return wrap(uint64_t(a) + uint64_t(b)); })
      .Case<arith::SubIOp>(
          [&](auto) { return wrap(uint64_t(a) - uint64_t(b)); })
      .Case<arith::MulIOp>(
          [&](auto) { return wrap(uint64_t(a) * uint64_t(b)); })
      .Case<arith::MinSIOp>([&](auto) { return std::min(a, b); })
      .Case<arith::MaxSIOp>([&](auto) { return std::max(a, b); })
      .Case<arith::IndexCastOp>([&](auto) { return a; })
      .Default(std::optional<int64_t>());
}

//===----------------------------------------------------------------------===//
// Taps
//===----------------------------------------------------------------------===//

const Array *Evaluator::getTapped(Value value) {
  for (Operation *user : value.getUsers())
    if (auto tap = dyn_cast<TapOp>(user); tap && tap.getValue() == value) {
      auto found = taps.find(tap.getName().str());
      size_t turn = tapTurns[tap.getName().str()];
      if (found != taps.end() && turn < found->second.size())
        return &found->second[turn];
    }
  return nullptr;
}

llvm::Error Evaluator::checkTap(TapOp op, Values &values) {
  const ReferenceValue value = values[op.getValue()];
  std::string name = op.getName().str();
  size_t turn = tapTurns[name]++;
  auto found = taps.find(name);
  if (found == taps.end() || turn >= found->second.size())
    return llvm::Error::success();
  const Array &tapped = found->second[turn];
  if (value.kind != ReferenceValue::Plain || isFloat(value.array.element))
    return llvm::Error::success();
  if (tapped.shape != value.array.shape) {
    report(name + " has shape " + describe(tapped) + ", expected " +
           describe(value.array));
    return llvm::Error::success();
  }
  int64_t width = std::max<int64_t>(tapped.getRowElements(), 1);
  for (int64_t i = 0, e = tapped.getNumElements(); i < e; ++i)
    if (tapped.getInt(i) != value.array.getInt(i)) {
      report(name + " row " + llvm::Twine(i / width) + ", column " +
             llvm::Twine(i % width) + " is " + llvm::Twine(tapped.getInt(i)) +
             ", expected " + llvm::Twine(value.array.getInt(i)));
      break;
    }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Rows that a program for one rank has as constants are not those of the
/// program for all.
llvm::Error Evaluator::checkRows(RowWiseOpInterface op, Values &values) {
  std::optional<int64_t> rows;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!op.isRowOperand(operand))
      continue;
    int64_t found = values[operand.get()].array.getNumRows();
    if (rows && *rows != found)
      return unsupported(op, "has operands of " + llvm::Twine(*rows) + " and " +
                                 llvm::Twine(found) +
                                 " rows among those of all ranks: rows of a "
                                 "rank are to be sizes of its values");
    rows = found;
  }
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluate(Operation *op, Values &values) {
  if (auto rowWise = dyn_cast<RowWiseOpInterface>(op))
    if (llvm::Error error = checkRows(rowWise, values))
      return error;
  return llvm::TypeSwitch<Operation *, llvm::Error>(op)
      .Case<ExpandRowsOp, ShardLengthsOp, DraftLengthsOp, IndexerOp, TopKOp,
            ConvertIndicesOp, SparseMlaOp, TakeRowsOp, WriteRowsOp,
            ReplicatedTableOp, TokenSlotsOp, UnpackRowsOp, PackRowsOp,
            CountDecodeRowsOp, tensor::ExtractSliceOp, tensor::DimOp,
            arith::ConstantOp, arith::TruncFOp, linalg::FillOp>(
          [&](auto op) { return evaluate(op, values); })
      .Case<linalg::LinalgOp>(
          [&](auto op) { return evaluateContraction(op, values); })
      .Case<TapOp>([&](auto op) { return checkTap(op, values); })
      .Case<tensor::CastOp>([&](auto op) { return evaluateCast(op, values); })
      .Case<tensor::EmptyOp>([&](tensor::EmptyOp op) -> llvm::Error {
        SmallVector<int64_t, 4> shape;
        for (OpFoldResult size : op.getMixedSizes())
          shape.push_back(
              isa<Attribute>(size)
                  ? cast<IntegerAttr>(cast<Attribute>(size)).getInt()
                  : values[cast<Value>(size)].array.getInt(0));
        std::optional<Element> element = getElement(op.getType());
        if (!element)
          return unsupported(op, "has an unsupported type");
        llvm::Expected<Array> array =
            allocateArray(*element, shape, "an empty tensor");
        if (!array)
          return array.takeError();
        values[op.getResult()].array = *array;
        return llvm::Error::success();
      })
      .Case<func::CallOp>([&](func::CallOp call) -> llvm::Error {
        auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
            call, call.getCalleeAttr());
        if (!callee || callee.isExternal())
          return unsupported(call, "calls a function without a body");
        std::vector<ReferenceValue> arguments;
        for (Value operand : call.getOperands())
          arguments.push_back(values[operand]);
        auto results = evaluate(callee, arguments);
        if (!results)
          return results.takeError();
        for (auto [value, result] : llvm::zip(call.getResults(), *results))
          values[value] = std::move(result);
        return llvm::Error::success();
      })
      .Default([&](Operation *op) -> llvm::Error {
        bool scalars =
            op->getNumResults() == 1 && op->getNumOperands() >= 1 &&
            llvm::none_of(op->getOperandTypes(), llvm::IsaPred<ShapedType>);
        if (scalars) {
          int64_t a = values[op->getOperand(0)].array.getInt(0);
          int64_t b = values[op->getOperands().back()].array.getInt(0);
          if (std::optional<int64_t> result = computeInt(op, a, b))
            return setInt(op->getResult(0), *result, values);
        }
        return unsupported(op, "is not evaluated by the reference");
      });
}

llvm::Expected<std::vector<ReferenceValue>>
Evaluator::evaluate(func::FuncOp function, ArrayRef<ReferenceValue> arguments) {
  if (depth >= kMaxCallDepth)
    return makeError("--verify: @" + function.getName() + " recurses");
  if (!function.getBody().hasOneBlock())
    return makeError("--verify: @" + function.getName() +
                     " has branches, which the reference does not evaluate");
  ++depth;
  Values values;
  for (auto [value, argument] : llvm::zip(function.getArguments(), arguments))
    values[value] = argument;
  std::vector<ReferenceValue> results;
  for (Operation &op : function.getBody().front()) {
    if (auto ret = dyn_cast<func::ReturnOp>(op)) {
      for (Value operand : ret.getOperands())
        results.push_back(values[operand]);
      break;
    }
    if (llvm::Error error = evaluate(&op, values))
      return error;
  }
  --depth;
  return results;
}

llvm::Expected<ReferenceOutcome> run::evaluateReference(func::FuncOp entry,
                                                        ArrayRef<Array> inputs,
                                                        const TapTable &taps,
                                                        Progress &progress) {
  Evaluator evaluator(taps, progress);
  std::vector<ReferenceValue> arguments;
  for (const Array &input : inputs) {
    arguments.emplace_back();
    arguments.back().array = input;
  }
  auto results = evaluator.evaluate(entry, arguments);
  if (!results)
    return results.takeError();
  return ReferenceOutcome{std::move(*results), std::move(evaluator.violations)};
}
