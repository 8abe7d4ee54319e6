//===- MoveProjections.cpp - Per-head projections across exchanges --------===//
//
// A projection of each head by itself is the same before and behind an
// exchange of heads, and merging outputs is linear in them. So it may run
// where its operand or result is the narrower one.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQMOVEPROJECTIONS
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// `result[t, h, n] = sum_k values[t, h, k] * weights[h, k, n]`, whatever the
/// order of the weights' dimensions, and perhaps a rounding behind it.
struct Projection {
  linalg::LinalgOp op;
  Operation *narrow = nullptr; // an arith.truncf, the only user; or null
  unsigned valuesInput = 0, weightsInput = 1;
  unsigned weightsHeads = 0; // dimension of the weights

  Value getValues() const { return op->getOperand(valuesInput); }
  Value getWeights() const { return op->getOperand(weightsInput); }
  Value getResult() const {
    return narrow ? narrow->getResult(0) : op->getResult(0);
  }
};

/// A weight argument, which the moved projections need of all heads.
struct Weights {
  BlockArgument argument;
  unsigned heads; // dimension
  FlatSymbolRefAttr mesh;
  StringAttr axis;
  int64_t ranks;
};

class Mover {
public:
  Mover(FunctionOpInterface function, int64_t &memory, bool remarks)
      : function(function), memory(memory), remarks(remarks),
        builder(function.getContext()) {}

  void run();

private:
  bool widen(const Projection &projection, Operation *exchange,
             FlatSymbolRefAttr mesh, StringAttr axis);
  Projection cloneFor(const Projection &projection, Value values);
  Value project(const Projection &projection, Value values);
  Projection sink(const Projection &projection, ArrayRef<OpResult> results,
                  Operation *merge);
  Projection sink(const Projection &projection, GatherQueryOp gather);
  CombineLseOp moveBefore(CombineLseOp combine);
  SmallVector<Projection> takeProjections(Value &source, GatherQueryOp gather);
  void moveBehind(GatherQueryOp gather);
  void finish();
  void remark(Operation *op, const llvm::Twine &text);

  FunctionOpInterface function;
  int64_t &memory; // bytes that are left for weights of other ranks
  bool remarks;
  OpBuilder builder;
  /// Widened arguments, by number.
  llvm::MapVector<unsigned, Weights> widened;
  /// What reads them with all heads.
  llvm::DenseSet<OpOperand *> moved;
};

} // namespace

//===----------------------------------------------------------------------===//
// Matching
//===----------------------------------------------------------------------===//

/// The results of the map are these loops, in this order.
static bool hasResults(AffineMap map, ArrayRef<unsigned> loops) {
  return map.getNumResults() == loops.size() &&
         llvm::all_of(llvm::zip_equal(map.getResults(), loops), [](auto pair) {
           auto dim = dyn_cast<AffineDimExpr>(std::get<0>(pair));
           return dim && dim.getPosition() == std::get<1>(pair);
         });
}

static bool isZeroFill(Value value) {
  auto fill = value.getDefiningOp<linalg::FillOp>();
  return fill && matchPattern(fill.getInputs().front(), m_AnyZeroFloat());
}

/// Whether the op is linear in each input. What upstream takes for a
/// contraction may have other ops around the product.
static bool isLinear(linalg::LinalgOp op) {
  return llvm::all_of(op->getRegion(0).front(), [](Operation &inner) {
    return isa<arith::MulFOp, arith::AddFOp, arith::ExtFOp, linalg::YieldOp>(
        inner);
  });
}

/// Whether only the rows, if anything, are open.
static bool hasStaticHeads(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 3 && !tensor.isDynamicDim(1) &&
         !tensor.isDynamicDim(2);
}

/// The op as a projection of its input `input`.
static std::optional<Projection> matchProjection(linalg::LinalgOp op,
                                                 unsigned input) {
  if (!op || !op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || !linalg::isaContractionOpInterface(op) ||
      !isLinear(op) || !isZeroFill(op.getDpsInits().front()) ||
      !hasStaticHeads(op->getOperand(input).getType()) ||
      !hasStaticHeads(op->getResult(0).getType()))
    return std::nullopt;
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(op);
  if (failed(dims) || dims->batch.size() != 1 || dims->k.size() != 1 ||
      dims->m.size() != 1 || dims->n.size() != 1)
    return std::nullopt;
  unsigned heads = dims->batch.front(), values = dims->k.front();
  // Which operand has the rows is a matter of its place.
  unsigned row = input == 0 ? dims->m.front() : dims->n.front();
  unsigned out = input == 0 ? dims->n.front() : dims->m.front();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  AffineMap weights = maps[1 - input];
  if (!hasResults(maps[input], {row, heads, values}) ||
      !hasResults(maps[2], {row, heads, out}) || weights.getNumResults() != 3)
    return std::nullopt;
  Projection found;
  found.op = op;
  found.valuesInput = input;
  found.weightsInput = 1 - input;
  for (unsigned i = 0; i < 3; ++i)
    if (weights.getDimPosition(i) == heads)
      found.weightsHeads = i;
  Operation *result = op;
  if (result->hasOneUse())
    if (isa<arith::TruncFOp>(*result->user_begin()))
      found.narrow = *result->user_begin();
  return found;
}

/// The projection that makes the value.
static std::optional<Projection> findProducer(Value value) {
  Operation *producer = value.getDefiningOp();
  if (auto narrow = dyn_cast_if_present<arith::TruncFOp>(producer))
    producer = narrow.getIn().getDefiningOp();
  auto op = dyn_cast_if_present<linalg::LinalgOp>(producer);
  for (unsigned input : {0, 1})
    if (std::optional<Projection> found = matchProjection(op, input))
      if (found->getResult() == value)
        return found;
  return std::nullopt;
}

/// Asks for a size, which is the same on both sides of a projection or known.
static bool asksForSize(Operation *op) {
  auto dim = dyn_cast<tensor::DimOp>(op);
  return dim && dim.getConstantIndex();
}

/// Who reads the values.
static SmallVector<OpOperand *> getReaders(Value value) {
  SmallVector<OpOperand *> readers;
  for (OpOperand &use : value.getUses())
    if (!asksForSize(use.getOwner()))
      readers.push_back(&use);
  return readers;
}

/// The only op that reads the value; null if there are others. Branches hand it
/// on: `results` are theirs, from the inner to the outer ones.
static OpOperand *followToReader(Value value,
                                 SmallVectorImpl<OpResult> &results) {
  for (;;) {
    SmallVector<OpOperand *> readers = getReaders(value);
    if (readers.size() != 1)
      return nullptr;
    OpOperand *reader = readers.front();
    auto branch = dyn_cast<scf::IfOp>(reader->getOwner()->getParentOp());
    if (!branch || !isa<scf::YieldOp>(reader->getOwner()))
      return reader;
    results.push_back(branch->getResult(reader->getOperandNumber()));
    value = results.back();
  }
}

/// Whether the value is made for `reader` alone, or for branches of one op of
/// which `reader` is in one, each of which may make it for itself.
static bool isMadeFor(Value value, Operation *reader) {
  SmallVector<OpOperand *> readers = getReaders(value);
  Block *block = value.getParentBlock();
  for (;;) {
    Operation *ancestor = block->findAncestorOpInBlock(*reader);
    if (!ancestor)
      return false;
    if (ancestor == reader)
      return readers.size() == 1;
    if (!isa<scf::IfOp>(ancestor) || llvm::any_of(readers, [&](OpOperand *use) {
          return !ancestor->isAncestor(use->getOwner());
        }))
      return false;
    Region *side = nullptr;
    for (Region &region : ancestor->getRegions())
      if (region.isAncestor(reader->getParentRegion()))
        side = &region;
    llvm::erase_if(readers, [&](OpOperand *use) {
      return !side->isAncestor(use->getOwner()->getParentRegion());
    });
    block = &side->front();
  }
}

void Mover::remark(Operation *op, const llvm::Twine &text) {
  if (remarks)
    op->emitRemark(text);
}

/// Makes the weights those of all heads of the group; false if that cannot be,
/// with a remark.
bool Mover::widen(const Projection &projection, Operation *exchange,
                  FlatSymbolRefAttr mesh, StringAttr axis) {
  Operation *op = projection.op;
  auto stays = [&](const llvm::Twine &why) {
    remark(op, "projection stays where it is: " + why);
    return false;
  };
  auto argument = dyn_cast<BlockArgument>(projection.getWeights());
  if (!argument || argument.getOwner() != &function.getFunctionBody().front())
    return stays("its weights are no argument of the function");
  unsigned number = argument.getArgNumber();
  if (auto known = widened.find(number); known != widened.end())
    return known->second.axis == axis &&
                   known->second.heads == projection.weightsHeads
               ? true
               : stays("its weights are needed in two forms");
  auto split = function.getArgAttrOfType<SplitAttr>(number, kSplitAttrName);
  if (!split || split.getDim() != projection.weightsHeads)
    return stays("its weights are not split over ranks by heads");
  MeshAxis over = lookupMeshAxis(exchange, mesh, axis.getValue());
  MeshAxis given =
      lookupMeshAxis(function, split.getMesh(), split.getAxis().getValue());
  if (split.getMesh() != mesh || !given ||
      given.axis.getSize() != over.axis.getSize() ||
      given.mesh.getStride(given.axis) != over.mesh.getStride(over.axis))
    return stays("its weights are split over axis " +
                 split.getAxis().getValue() + ", and heads travel over " +
                 axis.getValue());
  auto type = cast<RankedTensorType>(argument.getType());
  if (!type.hasStaticShape())
    return stays("the size of its weights is open");
  if (function.getArgAttr(
          number, bufferization::BufferizationDialect::kBufferLayoutAttrName))
    return stays("its weights have a layout of their own");
  int64_t ranks = over.axis.getSize();
  int64_t bytes = llvm::divideCeil(
      type.getNumElements() * type.getElementTypeBitWidth() * (ranks - 1), 8);
  if (bytes > memory)
    return stays("weights of other ranks take " + llvm::Twine(bytes) +
                 " bytes, and " + llvm::Twine(memory) + " are left");
  memory -= bytes;
  widened.insert(
      {number, {argument, projection.weightsHeads, mesh, axis, ranks}});
  return true;
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

/// The projection of other values, where the builder stands.
Projection Mover::cloneFor(const Projection &projection, Value values) {
  linalg::LinalgOp op = projection.op;
  Location loc = op.getLoc();
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  auto given = cast<RankedTensorType>(values.getType());
  auto all = RankedTensorType::get(
      {given.getDimSize(0), given.getDimSize(1), type.getDimSize(2)},
      type.getElementType());
  SmallVector<OpFoldResult> sizes{tensor::getMixedSize(builder, loc, values, 0),
                                  builder.getIndexAttr(all.getDimSize(1)),
                                  builder.getIndexAttr(all.getDimSize(2))};
  Value empty =
      tensor::EmptyOp::create(builder, loc, sizes, all.getElementType());
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getZeroAttr(all.getElementType()));
  Value init = linalg::FillOp::create(builder, loc, zero, empty).getResult(0);
  SmallVector<Value> operands(op->getOperands());
  operands[projection.valuesInput] = values;
  operands[2] = init;
  Projection made = projection;
  made.op =
      cast<linalg::LinalgOp>(clone(builder, op, TypeRange{all}, operands));
  if (projection.narrow) {
    Type narrow = getElementTypeOrSelf(projection.narrow->getResult(0));
    made.narrow = clone(builder, projection.narrow,
                        RankedTensorType::get(all.getShape(), narrow),
                        made.op->getResults());
  }
  return made;
}

/// The same of the values of all heads.
Value Mover::project(const Projection &projection, Value values) {
  Projection made = cloneFor(projection, values);
  moved.insert(&made.op->getOpOperand(projection.weightsInput));
  return made.getResult();
}

static void eraseUnused(const Projection &projection) {
  if (projection.narrow && projection.narrow->use_empty())
    projection.narrow->erase();
  if (projection.op->use_empty())
    projection.op->erase();
}

/// Who asks for a size of the value asks `other`, which has as many rows.
static void askOther(Value value, Value other) {
  auto type = cast<RankedTensorType>(value.getType());
  for (Operation *user : llvm::make_early_inc_range(value.getUsers())) {
    if (!asksForSize(user))
      continue;
    auto dim = cast<tensor::DimOp>(user);
    int64_t index = *dim.getConstantIndex();
    if (index == 0) {
      if (other != value)
        dim.getSourceMutable().assign(other);
      continue;
    }
    OpBuilder b(dim);
    Value size =
        arith::ConstantIndexOp::create(b, dim.getLoc(), type.getDimSize(index));
    dim.replaceAllUsesWith(size);
    dim.erase();
  }
}

/// Each side of the branches that hand on what `merge` returns projects it for
/// itself. Returns the projection of the merge's side.
Projection Mover::sink(const Projection &projection, ArrayRef<OpResult> results,
                       Operation *merge) {
  Projection last = projection;
  for (OpResult result : llvm::reverse(results)) {
    auto branch = cast<scf::IfOp>(result.getOwner());
    Projection outer = last;
    for (Region &side : branch->getRegions()) {
      OpOperand &yielded =
          side.front().getTerminator()->getOpOperand(result.getResultNumber());
      builder.setInsertionPoint(yielded.getOwner());
      Projection made = cloneFor(outer, yielded.get());
      yielded.set(made.getResult());
      if (side.isAncestor(merge->getParentRegion()))
        last = made;
    }
    askOther(result, result);
    // The projection may have known how many rows there are.
    Type known = outer.getResult().getType();
    builder.setInsertionPointAfter(branch);
    result.setType(last.getResult().getType());
    Value projected = result;
    if (known != result.getType())
      projected =
          tensor::CastOp::create(builder, branch.getLoc(), known, result);
    outer.getResult().replaceAllUsesWith(projected);
    eraseUnused(outer);
  }
  return last;
}

/// Each branch that reads what the projection makes makes it for itself, down
/// to the one that the gather is in. Returns that one's.
Projection Mover::sink(const Projection &projection, GatherQueryOp gather) {
  Projection last = projection;
  while (last.op->getBlock() != gather->getBlock()) {
    Operation *branch = last.op->getBlock()->findAncestorOpInBlock(*gather);
    Projection outer = last;
    askOther(outer.getResult(), outer.getValues());
    for (Region &side : branch->getRegions()) {
      SmallVector<OpOperand *> readers = getReaders(outer.getResult());
      llvm::erase_if(readers, [&](OpOperand *use) {
        return !side.isAncestor(use->getOwner()->getParentRegion());
      });
      if (readers.empty())
        continue;
      builder.setInsertionPointToStart(&side.front());
      Projection made = cloneFor(outer, outer.getValues());
      for (OpOperand *use : readers)
        use->set(made.getResult());
      if (side.isAncestor(gather->getParentRegion()))
        last = made;
    }
    eraseUnused(outer);
  }
  return last;
}

/// Nothing travels over an axis of one rank.
static bool isAlone(CollectiveOpInterface op) {
  return lookupMeshAxis(op, op.getMeshAttr(), op.getAxisAttr().getValue())
             .axis.getSize() == 1;
}

/// Bits of a head's values.
static int64_t getHeadBits(Type type) {
  auto shaped = cast<ShapedType>(type);
  return shaped.getDimSize(2) * shaped.getElementTypeBitWidth();
}

/// Partial outputs are projected, and the narrower ones merged. Returns the
/// merge of these, or null if nothing moves.
CombineLseOp Mover::moveBefore(CombineLseOp combine) {
  auto stays = [&](Operation *projection, StringRef why) {
    remark(projection, "projection stays where it is: " + why);
    return CombineLseOp();
  };
  if (combine.isOnBuffers() || isAlone(combine))
    return {};
  SmallVector<OpResult> branches;
  OpOperand *use = followToReader(combine->getResult(0), branches);
  if (!use || use->getOperandNumber() > 1)
    return {};
  std::optional<Projection> projection = matchProjection(
      dyn_cast<linalg::LinalgOp>(use->getOwner()), use->getOperandNumber());
  if (!projection)
    return {};
  auto type = cast<RankedTensorType>(projection->getResult().getType());
  if (getHeadBits(type) >= getHeadBits(combine.getPartial().getType()))
    return stays(projection->op, "what it makes is not smaller");
  if (!isa<BFloat16Type, Float16Type, Float32Type>(type.getElementType()))
    return stays(projection->op, "what it makes cannot be merged");
  // Where rows are scattered, or each rank keeps all heads, it has the weights
  // of all of them already.
  Value weights = projection->getWeights();
  if (combine.getScatterTokens() || combine.keepsAllHeads()) {
    if (!cast<RankedTensorType>(weights.getType()).hasStaticShape() ||
        !DominanceInfo(function).properlyDominates(weights, combine))
      return stays(projection->op,
                   "its weights are not there before the merge");
  } else if (!widen(*projection, combine, combine.getMeshAttr(),
                    combine.getAxisAttr())) {
    return {};
  }
  if (!branches.empty()) {
    projection = sink(*projection, branches, combine);
    type = cast<RankedTensorType>(projection->getResult().getType());
  }
  builder.setInsertionPoint(combine);
  Value partial = project(*projection, combine.getPartial());
  SmallVector<Value> operands(combine->getOperands());
  operands[combine.getPartialMutable().getOperandNumber()] = partial;
  SmallVector<Type> types(combine->getResultTypes());
  types[0] = type;
  auto merged = cast<CombineLseOp>(clone(builder, combine, types, operands));
  projection->getResult().replaceAllUsesWith(merged->getResult(0));
  askOther(combine->getResult(0), merged->getResult(0));
  if (combine->getNumResults() == 2)
    combine->getResult(1).replaceAllUsesWith(merged->getResult(1));
  remark(merged, "partial outputs are projected before they are merged");
  eraseUnused(*projection);
  combine->erase();
  return merged;
}

/// The projections that make a source of the gather of narrower queries, the
/// last one first. The source is then what the first one projects.
SmallVector<Projection> Mover::takeProjections(Value &source,
                                               GatherQueryOp gather) {
  SmallVector<Projection> taken;
  Type element = getElementTypeOrSelf(gather->getResult(0).getType());
  auto take = [&] {
    std::optional<Projection> found = findProducer(source);
    if (!found)
      return false;
    auto stays = [&](StringRef why) {
      remark(found->op, "projection stays where it is: " + why);
      return false;
    };
    auto values = cast<RankedTensorType>(found->getValues().getType());
    if (values.getElementType() != element ||
        getHeadBits(values) >= getHeadBits(source.getType()))
      return stays("what it takes is not smaller, or of another element type");
    if (gather.getPaddedHeads())
      return stays("its heads are gathered with room for others");
    if (!isMadeFor(source, gather))
      return stays("others read what it makes, or a loop does");
    if (!widen(*found, gather, gather.getMeshAttr(), gather.getAxisAttr()))
      return false;
    taken.push_back(sink(*found, gather));
    source = taken.back().getValues();
    return true;
  };
  while (take())
    ;
  return taken;
}

/// Narrower queries are gathered, and projected behind that.
void Mover::moveBehind(GatherQueryOp gather) {
  if (gather.isOnBuffers() || isAlone(gather) || !gather->hasOneUse())
    return;
  auto attention = dyn_cast<SparseMlaOp>(*gather->user_begin());
  if (!attention || attention.getQ().size() != 1)
    return;
  auto type = cast<RankedTensorType>(gather->getResult(0).getType());
  SmallVector<Value> sources(gather.getSources());
  SmallVector<SmallVector<Projection>> projections;
  for (Value &source : sources)
    projections.push_back(takeProjections(source, gather));
  if (llvm::all_of(projections,
                   [](ArrayRef<Projection> taken) { return taken.empty(); }))
    return;
  int64_t width = 0;
  for (Value source : sources)
    width += cast<RankedTensorType>(source.getType()).getDimSize(2);
  builder.setInsertionPoint(gather);
  auto all = RankedTensorType::get(
      {type.getDimSize(0), type.getDimSize(1), width}, type.getElementType());
  Operation *gathered = clone(builder, gather, TypeRange{all}, sources);
  Location loc = gather.getLoc();
  SmallVector<Value> parts;
  int64_t begin = 0;
  for (auto [source, taken] : llvm::zip_equal(sources, projections)) {
    int64_t size = cast<RankedTensorType>(source.getType()).getDimSize(2);
    Value part = gathered->getResult(0);
    if (size != width) {
      SmallVector<OpFoldResult> offsets{builder.getIndexAttr(0),
                                        builder.getIndexAttr(0),
                                        builder.getIndexAttr(begin)};
      SmallVector<OpFoldResult> sizes =
          tensor::getMixedSizes(builder, loc, part);
      sizes[2] = builder.getIndexAttr(size);
      SmallVector<OpFoldResult> ones(3, builder.getIndexAttr(1));
      part = tensor::ExtractSliceOp::create(builder, loc, part, offsets, sizes,
                                            ones);
    }
    begin += size;
    for (const Projection &projection : llvm::reverse(taken))
      part = project(projection, part);
    parts.push_back(part);
  }
  attention.getQMutable().assign(parts);
  remark(gathered, "queries are gathered before they are projected");
  gather->erase();
  for (ArrayRef<Projection> taken : projections)
    for (const Projection &projection : taken) {
      askOther(projection.getResult(), projection.getValues());
      eraseUnused(projection);
    }
}

/// Arguments get all heads of the group; what did not move takes its own.
void Mover::finish() {
  for (auto &[number, weights] : widened) {
    BlockArgument argument = weights.argument;
    auto own = cast<RankedTensorType>(argument.getType());
    SmallVector<int64_t> shape(own.getShape());
    shape[weights.heads] *= weights.ranks;
    SmallVector<OpOperand *> others;
    for (OpOperand &use : argument.getUses())
      if (!moved.contains(&use))
        others.push_back(&use);
    argument.setType(
        RankedTensorType::get(shape, own.getElementType(), own.getEncoding()));
    function.removeArgAttr(number, kSplitAttrName);
    if (others.empty())
      continue;
    builder.setInsertionPointToStart(&function.getFunctionBody().front());
    Location loc = argument.getLoc();
    Value rank = RankOp::create(builder, loc, builder.getIndexType(),
                                weights.mesh, weights.axis);
    Value first =
        arith::MulIOp::create(builder, loc, rank,
                              arith::ConstantIndexOp::create(
                                  builder, loc, own.getDimSize(weights.heads)));
    SmallVector<OpFoldResult> offsets(own.getRank(), builder.getIndexAttr(0));
    offsets[weights.heads] = first;
    SmallVector<OpFoldResult> sizes =
        getAsIndexOpFoldResult(builder.getContext(), own.getShape());
    SmallVector<OpFoldResult> ones(own.getRank(), builder.getIndexAttr(1));
    Value slice = tensor::ExtractSliceOp::create(builder, loc, own, argument,
                                                 offsets, sizes, ones);
    for (OpOperand *use : others)
      use->set(slice);
  }
  if (widened.empty())
    return;
  auto type = cast<FunctionType>(function.getFunctionType());
  function.setType(
      FunctionType::get(function.getContext(),
                        function.getFunctionBody().front().getArgumentTypes(),
                        type.getResults()));
}

void Mover::run() {
  llvm::SetVector<CombineLseOp> merges;
  SmallVector<GatherQueryOp> gathers;
  // Of merges one behind the other the last first, or its projection would not
  // be there for the others.
  auto add = [&](CombineLseOp op, auto &addFirst) -> void {
    if (merges.contains(op))
      return;
    for (OpOperand *reader : getReaders(op->getResult(0)))
      if (auto next = dyn_cast<CombineLseOp>(reader->getOwner()))
        addFirst(next, addFirst);
    merges.insert(op);
  };
  function.walk([&](CombineLseOp op) { add(op, add); });
  function.walk([&](GatherQueryOp op) { gathers.push_back(op); });
  for (CombineLseOp op : merges)
    while (op)
      op = moveBefore(op);
  for (GatherQueryOp op : gathers)
    moveBehind(op);
  finish();
}

namespace {
struct ShardQMoveProjectionsPass
    : public shardq::impl::ShardQMoveProjectionsBase<
          ShardQMoveProjectionsPass> {
  using ShardQMoveProjectionsBase::ShardQMoveProjectionsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (memory < 0) {
      module.emitError("memory is ")
          << int64_t(memory) << ", expected 0 or more";
      return signalPassFailure();
    }
    int64_t left = memory;
    for (auto function : module.getOps<FunctionOpInterface>()) {
      // Arguments change their types, which callers would have to know.
      if (function.isExternal() ||
          !SymbolTable::symbolKnownUseEmpty(function.getOperation(), module))
        continue;
      Mover(function, left, remarks).run();
    }
  }
};
} // namespace
