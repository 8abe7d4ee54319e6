//===- VerifyLayouts.cpp - Layouts of arguments ---------------------------===//

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "shardq/Transforms/Passes.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQVERIFYLAYOUTS
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

static LogicalResult verifyLayout(func::FuncOp function, unsigned number,
                                  Attribute layout) {
  auto fail = [&]() {
    // Without the whole function behind it.
    return emitError(function.getLoc(), "argument #")
           << number << " of @" << function.getName() << ", of type "
           << function.getArgument(number).getType() << ", has the layout "
           << layout;
  };
  auto tensor =
      dyn_cast<RankedTensorType>(function.getArgument(number).getType());
  if (!tensor)
    return fail() << ", expected a ranked tensor to have one";
  // The attribute's own dialect has seen to that.
  auto map = cast<MemRefLayoutAttrInterface>(layout);
  int64_t dims = map.getAffineMap().getNumDims();
  if (dims != tensor.getRank())
    return fail() << " of " << dims << " dimensions, expected "
                  << tensor.getRank();
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(map.getStridesAndOffset(tensor.getShape(), strides, offset)))
    return fail() << ", expected one that strides can say";
  return success();
}

namespace {
struct ShardQVerifyLayoutsPass
    : public shardq::impl::ShardQVerifyLayoutsBase<ShardQVerifyLayoutsPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (unsigned i = 0, e = function.getNumArguments(); i != e; ++i)
        if (Attribute layout = function.getArgAttr(
                i, bufferization::BufferizationDialect::kBufferLayoutAttrName))
          if (failed(verifyLayout(function, i, layout)))
            return signalPassFailure();
  }
};
} // namespace
