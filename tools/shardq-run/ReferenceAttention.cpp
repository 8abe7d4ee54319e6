//===- ReferenceAttention.cpp - Float64 evaluation of attention -----------===//

#include "Evaluator.h"
#include "Kernels.h"
#include "Packed.h"
#include <algorithm>
#include <limits>
#include <numeric>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Relative error of an attention output, or of a merge of some, that
/// accumulates in f32.
static const double kOutputError = std::ldexp(8.0, -24);

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

namespace {

/// Which rank keeps each key of an attention over a sharded cache.
struct KeyOwners {
  int64_t ranks = 1, interleave = 1;
  Array positions;
  /// Consecutive owners whose outputs are merged, and rounded, on the way.
  SmallVector<int64_t> merged;
  int64_t get(int64_t entry) const {
    if (ranks == 1)
      return 0;
    return positions.getInt(entry) / interleave % ranks;
  }
};

/// What an attention is given: of all ranks, so that heads are those of the
/// arrays and not of the op's type.
struct Operands {
  SmallVector<ReferenceValue, 2> queries;
  Array kv, slots;
  Array req, lengths, sink; // without data where the op has none
  KeyOwners owners;

  int64_t getRows() const { return queries[0].array.shape[0]; }
  int64_t getHeads() const { return queries[0].array.shape[1]; }
};

} // namespace

/// Where the axis joins others, outputs are merged along the last of them
/// first, and so on.
static SmallVector<int64_t> getMergedOwners(SparseMlaOp op) {
  ShardingAttr sharding = op.getShardingAttr();
  MeshAxis over =
      lookupMeshAxis(op, sharding.getMesh(), sharding.getKv().front());
  SmallVector<AxisAttr> parts = over.mesh.getParts(over.axis);
  SmallVector<int64_t> sizes{1};
  for (AxisAttr part : llvm::reverse(parts))
    sizes.push_back(sizes.back() * part.getSize());
  // All of them give the output itself.
  sizes.pop_back();
  return sizes;
}

static llvm::Expected<KeyOwners> readOwners(SparseMlaOp op,
                                            ReferenceValues &values) {
  KeyOwners owners;
  owners.ranks = getNumKvRanks(op, op.getShardingAttr());
  if (owners.ranks == 1)
    return owners;
  Value slots = op.getSlots();
  while (auto cast = slots.getDefiningOp<tensor::CastOp>())
    slots = cast.getSource();
  auto convert = slots.getDefiningOp<ConvertIndicesOp>();
  if (!convert)
    return unsupported(op, "has sharded KV, and slots that no "
                           "shardq.convert_indices beside it made");
  owners.positions = values[convert.getIndices()].array;
  owners.interleave = op.getShardingAttr().getInterleave();
  owners.merged = getMergedOwners(op);
  return owners;
}

static llvm::Expected<Operands> readOperands(SparseMlaOp op,
                                             ReferenceValues &values) {
  auto getOptional = [&](Value value) {
    return value ? values[value].array : Array();
  };
  Operands operands;
  for (Value part : op.getQ())
    operands.queries.push_back(values[part]);
  operands.kv = values[op.getKv()].array;
  if (PackedRowsAttr format = op.getKvFormatAttr()) {
    llvm::Expected<Array> rows = unpackRows(format, operands.kv);
    if (!rows)
      return rows.takeError();
    operands.kv = *rows;
  }
  operands.slots = values[op.getSlots()].array;
  operands.req = getOptional(op.getReq());
  operands.lengths = getOptional(op.getTopkLength());
  operands.sink = getOptional(op.getSink());
  llvm::Expected<KeyOwners> owners = readOwners(op, values);
  if (!owners)
    return owners.takeError();
  operands.owners = std::move(*owners);
  return operands;
}

//===----------------------------------------------------------------------===//
// Error bounds
//===----------------------------------------------------------------------===//

/// Adds what merging partial outputs may cost: each was rounded to the output
/// type, `sums` is its part of the output and `weight` its part of the softmax.
static void addPartialBound(Element element, ArrayRef<double> sums,
                            double weight, double *bound) {
  if (weight == 0)
    return;
  for (auto [d, sum] : llvm::enumerate(sums))
    bound[d] += kOutputError * std::abs(sum) +
                weight * getUlp(element, sum / weight) / 2;
}

/// How far the query of a row may be off in a sum, squared, as `widen` lays it;
/// nothing where all parts are given and not computed.
static std::vector<double> widenErrors(ArrayRef<ReferenceValue> parts,
                                       int64_t row) {
  bool isComputed = llvm::any_of(parts, [](const ReferenceValue &part) {
    return part.kind != ReferenceValue::Plain;
  });
  if (!isComputed)
    return {};
  int64_t heads = parts[0].array.shape[1], dim = 0;
  for (const ReferenceValue &part : parts)
    dim += part.array.shape[2];
  int64_t padded = padToLanes(dim), column = 0;
  std::vector<double> errors(heads * padded);
  for (const ReferenceValue &part : parts) {
    int64_t width = part.array.shape[2];
    for (int64_t i = 0; i < heads * width; ++i) {
      double error = getError(part, row * heads * width + i, kRounding);
      errors[i / width * padded + column + i % width] = error * error;
    }
    column += width;
  }
  return errors;
}

/// How far the logits of a head may be off, of `dim` products each.
static double getLogitError(const double *errors, ArrayRef<const double *> keys,
                            int64_t dim, double scale) {
  double largest = 0;
  for (const double *key : keys) {
    double sum = 0;
    for (int64_t d = 0; d < dim; ++d)
      sum += errors[d] * key[d] * key[d];
    largest = std::max(largest, sum);
  }
  return std::abs(scale) * std::sqrt(largest);
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {

/// The keys that a row attends, grouped by owner; without a sharding there is
/// one.
struct RowKeys {
  std::vector<const double *> keys;
  std::vector<int64_t> ends; // of each owner's

  int64_t getBegin(int64_t owner) const { return owner ? ends[owner - 1] : 0; }
};

/// What some keys give, [heads][padded values], and the same of absolute
/// values.
struct WeightedSums {
  std::vector<double> sums, sizes;
};

/// Attends rows, each by itself.
class Attention {
public:
  Attention(SparseMlaOp op, Operands operands)
      : operands(std::move(operands)), heads(this->operands.getHeads()),
        valueDim(op.getValueDim()), paddedValue(padToLanes(valueDim)),
        scale(op.getScale().convertToFloat()),
        logOfBase(op.getLseBase() == LseBase::Two ? std::log(2.0) : 1.0),
        wideKv(widen(&this->operands.kv, 0, this->operands.kv.getNumRows())) {}

  llvm::Error allocate(Element element);
  void attend(int64_t row);
  /// The values of the results' types.
  void round();

  ReferenceValue out, lse;

private:
  RowKeys takeKeys(int64_t row) const;
  std::vector<double> weigh(int64_t row, const RowKeys &keys);
  WeightedSums sum(const RowKeys &keys, ArrayRef<double> weights,
                   int64_t firstOwner, int64_t numOwners) const;
  void addOutputs(int64_t row, const RowKeys &keys, ArrayRef<double> weights);
  void addQueryErrors(int64_t row, const RowKeys &keys);
  void addMergeErrors(int64_t row, const RowKeys &keys,
                      ArrayRef<double> weights);

  Operands operands;
  int64_t heads, valueDim, paddedValue;
  double scale, logOfBase;
  DoubleRows wideKv;
};

} // namespace

llvm::Error Attention::allocate(Element element) {
  int64_t rows = operands.getRows();
  llvm::Expected<Array> outArray =
      allocateArray(element, {rows, heads, valueDim}, "the attention's result");
  if (!outArray)
    return outArray.takeError();
  llvm::Expected<Array> lseArray =
      allocateArray(Element::F32, {rows, heads}, "the LSE");
  if (!lseArray)
    return lseArray.takeError();
  out.kind = ReferenceValue::Attention;
  out.array = *outArray;
  out.exact.resize(out.array.getNumElements());
  out.bound.resize(out.array.getNumElements());
  out.size.resize(out.array.getNumElements());
  lse.kind = ReferenceValue::Lse;
  lse.array = *lseArray;
  lse.exact.assign(rows * heads, -kInfinity);
  lse.bound.assign(rows * heads, 0);
  return llvm::Error::success();
}

RowKeys Attention::takeKeys(int64_t row) const {
  int64_t k = operands.slots.shape[1], columns = k;
  if (operands.lengths.data)
    columns = std::clamp<int64_t>(operands.lengths.getInt(row), 0, k);
  if (operands.req.data && operands.req.getInt(row) < 0)
    columns = 0;
  RowKeys taken;
  for (int64_t owner = 0; owner < operands.owners.ranks; ++owner) {
    for (int64_t i = 0; i < columns; ++i) {
      int64_t slot = operands.slots.getInt(row * k + i);
      if (slot >= 0 && slot < operands.kv.getNumRows() &&
          operands.owners.get(row * k + i) == owner)
        taken.keys.push_back(wideKv.row(slot));
    }
    taken.ends.push_back(taken.keys.size());
  }
  return taken;
}

/// The weights of the keys, [heads][keys], and the row's LSE.
std::vector<double> Attention::weigh(int64_t row, const RowKeys &keys) {
  SmallVector<const Array *, 2> parts;
  for (const ReferenceValue &query : operands.queries)
    parts.push_back(&query.array);
  DoubleRows wideQ = widen(parts, row, 1);
  int64_t count = keys.keys.size();
  // Logits first, then weights in place.
  std::vector<double> p(heads * count);
  dotKeys(wideQ.row(0), heads, wideKv.stride, keys.keys.data(), count, p.data(),
          count);
  for (int64_t h = 0; h < heads; ++h) {
    double *logits = p.data() + h * count;
    for (int64_t i = 0; i < count; ++i)
      logits[i] *= scale;
    double largest = *std::max_element(logits, logits + count);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i)
      sum += logits[i] = std::exp(logits[i] - largest);
    lse.exact[row * heads + h] = (largest + std::log(sum)) / logOfBase;
    // The sink takes part in the denominator only. It may be infinite.
    const Array &sink = operands.sink;
    if (sink.data)
      sum += std::exp(sink.getFloat(h % sink.getNumRows()) - largest);
    for (int64_t i = 0; i < count; ++i)
      logits[i] /= sum;
  }
  return p;
}

/// Over the keys of consecutive owners.
WeightedSums Attention::sum(const RowKeys &keys, ArrayRef<double> weights,
                            int64_t firstOwner, int64_t numOwners) const {
  int64_t begin = keys.getBegin(firstOwner);
  int64_t end = keys.ends[firstOwner + numOwners - 1];
  WeightedSums all{std::vector<double>(heads * paddedValue),
                   std::vector<double>(heads * paddedValue)};
  addWeighted(weights.data() + begin, keys.keys.size(), heads,
              keys.keys.data() + begin, end - begin, paddedValue,
              all.sums.data(), all.sizes.data());
  return all;
}

void Attention::addOutputs(int64_t row, const RowKeys &keys,
                           ArrayRef<double> weights) {
  for (int64_t owner = 0; owner < operands.owners.ranks; ++owner) {
    WeightedSums own = sum(keys, weights, owner, 1);
    for (int64_t h = 0; h < heads; ++h) {
      int64_t first = (row * heads + h) * valueDim;
      for (int64_t d = 0; d < valueDim; ++d) {
        out.exact[first + d] += own.sums[h * paddedValue + d];
        out.bound[first + d] += kOutputError * own.sizes[h * paddedValue + d];
        out.size[first + d] += own.sizes[h * paddedValue + d];
      }
    }
  }
}

/// What a computed query may be off moves weights.
void Attention::addQueryErrors(int64_t row, const RowKeys &keys) {
  std::vector<double> errors = widenErrors(operands.queries, row);
  int64_t dim = wideKv.stride;
  for (int64_t h = 0; h < heads && !errors.empty(); ++h) {
    double error =
        getLogitError(errors.data() + h * dim, keys.keys, dim, scale);
    lse.bound[row * heads + h] = error / logOfBase;
    // A weight and the sum of all are each off by that much at most.
    int64_t first = (row * heads + h) * valueDim;
    for (int64_t d = 0; d < valueDim; ++d)
      out.bound[first + d] += std::expm1(2 * error) * out.size[first + d];
  }
}

/// What owners, and groups of them, give is rounded before it is merged.
void Attention::addMergeErrors(int64_t row, const RowKeys &keys,
                               ArrayRef<double> weights) {
  int64_t count = keys.keys.size();
  for (int64_t group : operands.owners.merged)
    for (int64_t owner = 0; owner < operands.owners.ranks; owner += group) {
      int64_t begin = keys.getBegin(owner), end = keys.ends[owner + group - 1];
      WeightedSums partial = sum(keys, weights, owner, group);
      for (int64_t h = 0; h < heads; ++h) {
        const double *ofHead = weights.data() + h * count;
        addPartialBound(out.array.element,
                        ArrayRef(partial.sums).slice(h * paddedValue, valueDim),
                        std::accumulate(ofHead + begin, ofHead + end, 0.0),
                        &out.bound[(row * heads + h) * valueDim]);
      }
    }
}

void Attention::attend(int64_t row) {
  RowKeys keys = takeKeys(row);
  if (keys.keys.empty())
    return;
  std::vector<double> weights = weigh(row, keys);
  addOutputs(row, keys, weights);
  addQueryErrors(row, keys);
  addMergeErrors(row, keys, weights);
}

void Attention::round() {
  for (ReferenceValue *value : {&out, &lse})
    for (int64_t i = 0, e = value->exact.size(); i < e; ++i)
      value->array.setFloat(i, value->exact[i]);
}

llvm::Error Evaluator::evaluate(SparseMlaOp op, Values &values) {
  llvm::Expected<Operands> operands = readOperands(op, values);
  if (!operands)
    return operands.takeError();
  int64_t rows = operands->getRows();
  Attention attention(op, std::move(*operands));
  if (llvm::Error error =
          attention.allocate(*getElement(op->getResult(0).getType())))
    return error;
  forEachRow(rows, [&](int64_t row) { attention.attend(row); });
  attention.round();
  values[op->getResult(0)] = std::move(attention.out);
  if (op.hasLse())
    values[op->getResult(1)] = std::move(attention.lse);
  return llvm::Error::success();
}
