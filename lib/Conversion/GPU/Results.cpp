//===- Results.cpp - What a function on GPUs returns ----------------------===//
//
// Buffers of the caller's, which are written in place where that is possible.
//
//===----------------------------------------------------------------------===//

#include "FunctionLowering.h"

using namespace mlir;
using namespace mlir::shardq;

/// Results become trailing arguments that the caller owns.
LogicalResult FunctionLowering::moveResultsToArguments() {
  FunctionType type = function.getFunctionType();
  auto terminator = dyn_cast<func::ReturnOp>(function.front().getTerminator());
  if (!terminator)
    return function.front().getTerminator()->emitOpError(
        "ends a function, which has no form on the GPU: use func.return");
  for (auto [i, result] : llvm::enumerate(type.getResults())) {
    if (!isa<MemRefType>(result))
      return function.emitOpError("result #")
             << i << " is " << result
             << ", but host code of the GPU target returns buffers only";
    NamedAttrList attrs(function.getResultAttrDict(i));
    attrs.set(kResultAttrName, UnitAttr::get(context));
    if (failed(function.insertArgument(function.getNumArguments(), result,
                                       attrs.getDictionary(context),
                                       function.getLoc())))
      return function.emitOpError("cannot take its results as arguments");
  }
  unsigned firstOut = function.getNumArguments() - type.getNumResults();
  OpBuilder b(terminator);
  for (auto [i, value] : llvm::enumerate(terminator.getOperands()))
    memref::CopyOp::create(b, function.getLoc(), value,
                           function.getArgument(firstOut + i));
  terminator->setOperands({});
  llvm::BitVector all(type.getNumResults(), true);
  return function.eraseResults(all);
}

/// The copies into a result, if that is all there is to it: then whoever fills
/// the source may as well fill the result. Nothing without a block in common
/// writes it twice, since there was one copy to begin with.
static SmallVector<memref::CopyOp> getOnlyCopiesInto(Value result) {
  SmallVector<memref::CopyOp> copies;
  for (Operation *user : result.getUsers()) {
    // What a branch yields although nobody wants its contents any more.
    if (isa<scf::YieldOp>(user) ||
        (isa<memref::CastOp>(user) &&
         llvm::all_of(user->getUsers(), llvm::IsaPred<scf::YieldOp>)))
      continue;
    auto copy = dyn_cast<memref::CopyOp>(user);
    if (!copy || copy.getTarget() != result || copy.getSource() == result)
      return {};
    copies.push_back(copy);
  }
  return copies;
}

/// `copy %if#0, %result` behind a branch becomes a copy at the end of each
/// side, which are added to `sunk`.
static bool sinkIntoBranch(memref::CopyOp copy,
                           SmallVectorImpl<memref::CopyOp> &sunk) {
  auto branch = copy.getSource().getDefiningOp<scf::IfOp>();
  if (!branch || branch->getBlock() != copy->getBlock() ||
      !llvm::all_of(copy.getSource().getUsers(), [&](Operation *user) {
        return user == copy || isa<memref::DimOp>(user);
      }))
    return false;
  unsigned index = cast<OpResult>(copy.getSource()).getResultNumber();
  // Then nobody wants what the sides have, which may be the device's.
  Type type = copy.getSource().getType();
  bool isOnlyCopied =
      memref::CastOp::areCastCompatible(copy.getTarget().getType(), type) &&
      llvm::all_of(copy.getSource().getUsers(), [&](Operation *user) {
        return user == copy || user->use_empty();
      });
  for (Region *side : {&branch.getThenRegion(), &branch.getElseRegion()}) {
    Operation *yield = side->front().getTerminator();
    OpBuilder b(yield);
    sunk.push_back(memref::CopyOp::create(
        b, copy.getLoc(), yield->getOperand(index), copy.getTarget()));
    if (isOnlyCopied)
      yield->setOperand(index, b.createOrFold<memref::CastOp>(
                                   copy.getLoc(), type, copy.getTarget()));
  }
  copy.erase();
  return true;
}

Value mlir::shardq::stripCasts(Value value) {
  while (auto cast = value.getDefiningOp<memref::CastOp>())
    value = cast.getSource();
  return value;
}

/// A buffer that is made only to be copied to `result` is `result`. (Nothing
/// happens to a buffer behind the copy: that stands where it is returned.)
/// The copies that fill it then are added to `copies`.
static void writeInPlace(memref::CopyOp copy, BlockArgument result,
                         SmallVectorImpl<memref::CopyOp> &copies) {
  auto alloc = stripCasts(copy.getSource()).getDefiningOp<memref::AllocOp>();
  if (!alloc || alloc->getBlock() != copy->getBlock() ||
      alloc.getType() != result.getType())
    return;
  // Sizes are those of the buffer: the caller's may have more rows.
  for (Operation *user : llvm::make_early_inc_range(alloc->getUsers()))
    if (auto dim = dyn_cast<memref::DimOp>(user))
      if (std::optional<int64_t> index = dim.getConstantIndex();
          index && alloc.getType().isDynamicDim(*index)) {
        unsigned position = alloc.getType().getDynamicDimIndex(*index);
        dim.replaceAllUsesWith(alloc.getDynamicSizes()[position]);
        dim.erase();
      }
  copy.erase();
  llvm::append_range(copies, getOnlyCopiesInto(alloc));
  alloc.getResult().replaceAllUsesWith(result);
  alloc.erase();
}

void FunctionLowering::writeResultsInPlace(unsigned numResults) {
  // What the caller had marked before may be written in other ways.
  for (BlockArgument argument : function.getArguments().take_back(numResults)) {
    // The sides of a branch copy on their own, whatever became of the other.
    SmallVector<memref::CopyOp> copies = getOnlyCopiesInto(argument);
    while (!copies.empty()) {
      memref::CopyOp copy = copies.pop_back_val();
      if (!sinkIntoBranch(copy, copies))
        writeInPlace(copy, argument, copies);
    }
  }
}
