//===- VerifyViews.cpp - Views of caches on the way to their ops ----------===//

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "shardq/IR/Origins.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQVERIFYVIEWS
#include "shardq/Transforms/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// An operand that is compared with the op's others, by view.
struct Viewed {
  StringRef name;
  Value value;
};

} // namespace

static SmallVector<Viewed> getViewed(Operation *op) {
  using List = SmallVector<Viewed>;
  auto getSources = [](auto op) {
    return llvm::map_to_vector(
        op.getSources(), [](Value value) { return Viewed{"source", value}; });
  };
  return llvm::TypeSwitch<Operation *, List>(op)
      .Case([](IndexerOp op) {
        return List{{"keys", op.getKeys()}, {"table", op.getTable()}};
      })
      .Case([](SparseMlaOp op) {
        return List{{"kv", op.getKv()}, {"slots", op.getSlots()}};
      })
      .Case<ConvertIndicesOp, TokenSlotsOp, ReplicatedTableOp, GatherBlocksOp>(
          [](auto op) { return List{{"table", op.getTable()}}; })
      .Case([](FilterIndicesOp op) {
        return op.getTable() ? List{{"table", op.getTable()}} : List();
      })
      .Case([](TakeRowsOp op) { return List{{"source", op.getSource()}}; })
      .Case([](ChunkSlotsOp op) { return List{{"slots", op.getSlots()}}; })
      .Case([](WriteRowsOp op) {
        return List{{"slots", op.getSlots()}, {"cache", op.getCache()}};
      })
      .Case<GatheredSlotsOp, GatheredTableOp>(
          [](auto op) { return List{{"inverse", op.getInverse()}}; })
      .Case([](UnpackRowsOp op) { return List{{"packed", op.getPacked()}}; })
      .Case([](PackRowsOp op) { return List{{"rows", op.getRows()}}; })
      .Case([&](GatherRowsOp op) { return getSources(op); })
      .Case([&](GatherKvStartOp op) {
        List viewed = getSources(op);
        viewed.push_back({"blocks", op.getBlocks()});
        return viewed;
      })
      .Default(List());
}

static ViewAttr getView(Value value) {
  auto tensor = dyn_cast<RankedTensorType>(value.getType());
  return tensor ? dyn_cast_if_present<ViewAttr>(tensor.getEncoding())
                : ViewAttr();
}

/// Whether nothing has put tokens of any cache into the value: what others are
/// filled up with.
static bool isOfNone(Value value) {
  Operation *op = value.getDefiningOp();
  return op && (op->hasTrait<OpTrait::ConstantLike>() ||
                isa<tensor::EmptyOp, tensor::FromElementsOp, tensor::GenerateOp,
                    tensor::SplatOp>(op));
}

/// Of a result that has another view than what it is made of; null if it has
/// the same. `origins` becomes what it is made of.
static Value findOtherView(Value value, SmallVectorImpl<Value> &origins) {
  if (auto cast = value.getDefiningOp<tensor::CastOp>()) {
    if (getView(cast.getSource()) == getView(value))
      origins.push_back(cast.getSource());
    return {};
  }
  getOrigins(value, origins);
  auto *other = llvm::find_if(origins, [&](Value origin) {
    return isa<RankedTensorType>(origin.getType()) &&
           getView(origin) != getView(value) && !isOfNone(origin);
  });
  return other == origins.end() ? Value() : *other;
}

/// Fails where something on the way to an operand has a result of another view
/// than its source. `tensor.cast` is how a program says that it means to.
static LogicalResult verifyViewKept(Operation *op, Viewed viewed) {
  // A loop may carry a value on from itself.
  llvm::SmallSetVector<Value, 8> seen;
  seen.insert(viewed.value);
  for (size_t next = 0; next != seen.size(); ++next) {
    SmallVector<Value> origins;
    Value made = seen[next], other = findOtherView(made, origins);
    if (!other) {
      seen.insert_range(origins);
      continue;
    }
    InFlightDiagnostic diag =
        op->emitOpError("'")
        << viewed.name << "' comes from " << other.getType() << " by way of "
        << made.getType() << ", expected one view throughout";
    diag.attachNote(made.getLoc())
        << "the view changes here, which only 'tensor.cast' may do";
    return diag;
  }
  return success();
}

namespace {
struct ShardQVerifyViewsPass
    : public shardq::impl::ShardQVerifyViewsBase<ShardQVerifyViewsPass> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk([](Operation *op) {
      for (Viewed viewed : getViewed(op))
        if (failed(verifyViewKept(op, viewed)))
          return WalkResult::interrupt();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
