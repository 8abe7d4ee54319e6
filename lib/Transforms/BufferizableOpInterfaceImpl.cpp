//===- BufferizableOpInterfaceImpl.cpp - From tensors to buffers ----------===//
//
// Every op with two forms bufferizes alike: its results become new buffers,
// sized by its own reifyResultShapes, that its buffer form writes. Results of
// an exchange or a gather lie in symmetric memory, where peers write them.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace mlir::shardq;

/// The operands of `op`, tensors replaced by their buffers.
static FailureOr<SmallVector<Value>>
getBuffers(RewriterBase &rewriter, Operation *op,
           const BufferizationOptions &options, BufferizationState &state) {
  SmallVector<Value> buffers;
  for (Value operand : op->getOperands()) {
    if (!isa<TensorType>(operand.getType())) {
      buffers.push_back(operand);
      continue;
    }
    FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
    if (failed(buffer))
      return failure();
    buffers.push_back(*buffer);
  }
  return buffers;
}

namespace {

/// No op writes its tensors or returns one of them.
template <typename Model, typename OpTy>
struct ReadingModel : BufferizableOpInterface::ExternalModel<Model, OpTy> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }
};

/// Ops that read their tensors and return numbers, or nothing.
template <typename OpTy>
struct ReaderModel : ReadingModel<ReaderModel<OpTy>, OpTy> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    FailureOr<SmallVector<Value>> buffers =
        getBuffers(rewriter, op, options, state);
    if (failed(buffers))
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op->setOperands(*buffers); });
    return success();
  }
};

/// Writes its cache, which becomes the result.
struct WriteRowsModel
    : BufferizableOpInterface::ExternalModel<WriteRowsModel, WriteRowsOp> {
  static bool isCache(OpOperand &operand) {
    return &operand == &cast<WriteRowsOp>(operand.getOwner()).getCacheMutable();
  }
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true; // rows of the cache that are not written stay
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &operand,
                               const AnalysisState &) const {
    return isCache(operand);
  }
  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand,
                                      const AnalysisState &) const {
    if (!isCache(operand) || op->getNumResults() == 0)
      return {};
    return {{op->getResult(0), BufferRelation::Equivalent}};
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    if (cast<WriteRowsOp>(op).isOnBuffers())
      return success();
    FailureOr<SmallVector<Value>> buffers =
        getBuffers(rewriter, op, options, state);
    if (failed(buffers))
      return failure();
    OperationState onBuffers(op->getLoc(), op->getName());
    onBuffers.addOperands(*buffers);
    onBuffers.addAttributes(llvm::to_vector(op->getDiscardableAttrs()));
    rewriter.create(onBuffers);
    replaceOpWithBufferizedValues(rewriter, op, buffers->back());
    return success();
  }
};

/// Ops with results on tensors and `outs` on buffers.
template <typename OpTy>
struct TwoFormModel : ReadingModel<TwoFormModel<OpTy>, OpTy> {
  bool bufferizesToAllocation(Operation *, Value) const { return true; }

  /// New buffers are dense, which branches and loops need to know that yield
  /// them.
  FailureOr<BufferLikeType> getBufferType(Operation *, Value value,
                                          const BufferizationOptions &,
                                          const BufferizationState &,
                                          SmallVector<Value> &) const {
    return cast<BufferLikeType>(getMemRefTypeWithStaticIdentityLayout(
        cast<TensorType>(value.getType())));
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto typed = cast<OpTy>(op);
    if (typed.isOnBuffers())
      return success();
    ReifiedRankedShapedTypeDims shapes;
    if (failed(typed.reifyResultShapes(rewriter, shapes)))
      return op->emitOpError("has result shapes that cannot be computed");
    FailureOr<SmallVector<Value>> buffers =
        getBuffers(rewriter, op, options, state);
    if (failed(buffers))
      return failure();

    Location loc = op->getLoc();
    Attribute space;
    if constexpr (std::is_same_v<OpTy, ExchangeOp> ||
                  std::is_same_v<OpTy, GatherQueryOp> ||
                  std::is_same_v<OpTy, GatherRowsOp> ||
                  std::is_same_v<OpTy, GatherKvFinishOp>)
      space = SymmetricAttr::get(op->getContext(), typed.getMeshAttr());
    SmallVector<Value> outs, replacements;
    for (auto [result, shape] : llvm::zip_equal(op->getResults(), shapes)) {
      auto tensor = cast<RankedTensorType>(result.getType());
      SmallVector<Value> sizes;
      for (auto [size, dim] : llvm::zip_equal(tensor.getShape(), shape))
        if (ShapedType::isDynamic(size))
          sizes.push_back(getValueOrCreateConstantIndexOp(rewriter, loc, dim));
      auto type = MemRefType::get(tensor.getShape(), tensor.getElementType(),
                                  MemRefLayoutAttrInterface(), space);
      Value out;
      if (space) {
        // Not through `createAlloc`: the heap is no place of the user's
        // allocator, and the planning pass replaces this.
        out = memref::AllocOp::create(rewriter, loc, type, sizes);
        replacements.push_back(memref::MemorySpaceCastOp::create(
            rewriter, loc,
            MemRefType::get(type.getShape(), type.getElementType()), out));
      } else {
        FailureOr<Value> alloc =
            options.createAlloc(rewriter, loc, type, sizes);
        if (failed(alloc))
          return failure();
        out = *alloc;
        replacements.push_back(out);
      }
      outs.push_back(out);
    }

    OperationState bufferState(loc, op->getName());
    bufferState.addOperands(*buffers);
    bufferState.addOperands(outs);
    bufferState.propertiesAttr = op->getPropertiesAsAttribute();
    bufferState.addAttributes(llvm::to_vector(op->getDiscardableAttrs()));
    Operation *onBuffers = rewriter.create(bufferState);
    if constexpr (OpTy::template hasTrait<
                      OpTrait::AttrSizedOperandSegments>()) {
      auto &properties = *onBuffers->getPropertiesStorage()
                              .template as<typename OpTy::Properties *>();
      properties.operandSegmentSizes.back() = outs.size();
    }
    replaceOpWithBufferizedValues(rewriter, op, replacements);
    return success();
  }
};

} // namespace

void mlir::shardq::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, ShardQDialect *) {
    ExpandRowsOp::attachInterface<TwoFormModel<ExpandRowsOp>>(*context);
    IndexerOp::attachInterface<TwoFormModel<IndexerOp>>(*context);
    TopKOp::attachInterface<TwoFormModel<TopKOp>>(*context);
    ConvertIndicesOp::attachInterface<TwoFormModel<ConvertIndicesOp>>(*context);
    SparseMlaOp::attachInterface<TwoFormModel<SparseMlaOp>>(*context);
    ZigzagSplitOp::attachInterface<TwoFormModel<ZigzagSplitOp>>(*context);
    LocalRowsOp::attachInterface<TwoFormModel<LocalRowsOp>>(*context);
    TakeRowsOp::attachInterface<TwoFormModel<TakeRowsOp>>(*context);
    ExchangeOp::attachInterface<TwoFormModel<ExchangeOp>>(*context);
    DraftLengthsOp::attachInterface<TwoFormModel<DraftLengthsOp>>(*context);
    LocalLengthsOp::attachInterface<TwoFormModel<LocalLengthsOp>>(*context);
    ShardLengthsOp::attachInterface<TwoFormModel<ShardLengthsOp>>(*context);
    FilterIndicesOp::attachInterface<TwoFormModel<FilterIndicesOp>>(*context);
    GatherQueryOp::attachInterface<TwoFormModel<GatherQueryOp>>(*context);
    CombineLseOp::attachInterface<TwoFormModel<CombineLseOp>>(*context);
    WeighPartialOp::attachInterface<TwoFormModel<WeighPartialOp>>(*context);
    ReduceHeadsOp::attachInterface<TwoFormModel<ReduceHeadsOp>>(*context);
    GatherRowsOp::attachInterface<TwoFormModel<GatherRowsOp>>(*context);
    GatherBlocksOp::attachInterface<TwoFormModel<GatherBlocksOp>>(*context);
    GatherKvFinishOp::attachInterface<TwoFormModel<GatherKvFinishOp>>(*context);
    GatheredSlotsOp::attachInterface<TwoFormModel<GatheredSlotsOp>>(*context);
    GatheredTableOp::attachInterface<TwoFormModel<GatheredTableOp>>(*context);
    GatherKvStartOp::attachInterface<ReaderModel<GatherKvStartOp>>(*context);
    ChunkSplitOp::attachInterface<TwoFormModel<ChunkSplitOp>>(*context);
    ChunkLengthsOp::attachInterface<TwoFormModel<ChunkLengthsOp>>(*context);
    ChunkSlotsOp::attachInterface<TwoFormModel<ChunkSlotsOp>>(*context);
    CountChunkRowsOp::attachInterface<ReaderModel<CountChunkRowsOp>>(*context);
    WriteRowsOp::attachInterface<WriteRowsModel>(*context);
    ReplicatedTableOp::attachInterface<TwoFormModel<ReplicatedTableOp>>(
        *context);
    TokenSlotsOp::attachInterface<TwoFormModel<TokenSlotsOp>>(*context);
    UnpackRowsOp::attachInterface<TwoFormModel<UnpackRowsOp>>(*context);
    PackRowsOp::attachInterface<TwoFormModel<PackRowsOp>>(*context);
    GatherGateOp::attachInterface<ReaderModel<GatherGateOp>>(*context);
    CountDecodeRowsOp::attachInterface<ReaderModel<CountDecodeRowsOp>>(
        *context);
    SplitGateOp::attachInterface<ReaderModel<SplitGateOp>>(*context);
    TapOp::attachInterface<ReaderModel<TapOp>>(*context);
  });
}
