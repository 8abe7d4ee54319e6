//===- ConvertShardQToLoops.cpp - One kernel per set of static facts ------===//

#include "../Utils/Operands.h"
#include "Kernels.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Dominance.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/Conversion/Passes.h"
#include "shardq/IR/CarrierOps.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_CONVERTSHARDQTOLOOPS
#include "shardq/Conversion/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

/// The argument type for an operand: a buffer's rows and strides become
/// dynamic, except a last stride of 1, on which vector accesses rest. Size 1
/// is kept for heads and dimensions, which kernels are made for.
static Type getKernelType(Type type) {
  auto buffer = dyn_cast<MemRefType>(type);
  if (!buffer)
    return type;
  auto [strides, offset] = buffer.getStridesAndOffset();
  for (int64_t &stride : MutableArrayRef(strides).drop_back())
    stride = ShapedType::kDynamic;
  if (strides.back() != 1)
    strides.back() = ShapedType::kDynamic;
  SmallVector<int64_t> shape(buffer.getShape());
  shape.front() = ShapedType::kDynamic;
  auto layout =
      StridedLayoutAttr::get(type.getContext(), ShapedType::kDynamic, strides);
  return MemRefType::get(shape, buffer.getElementType(), layout,
                         buffer.getMemorySpace());
}

namespace {

struct ConvertShardQToLoopsPass
    : public shardq::impl::ConvertShardQToLoopsBase<ConvertShardQToLoopsPass> {
  void runOnOperation() override;

private:
  LogicalResult convert(Operation *op);
  FailureOr<func::FuncOp> getKernel(Operation *op, ArrayRef<Type> types);

  /// Kernels by op name, argument types and attributes.
  llvm::DenseMap<Attribute, func::FuncOp> kernels;
};

} // namespace

static void emitBody(LoopBuilder &b, Operation *op, ValueRange args) {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](ExpandRowsOp op) { emitExpandRows(b, op, args); })
      .Case([&](ConvertIndicesOp op) { emitConvertIndices(b, op, args); })
      .Case([&](LocalRowsOp op) { emitLocalRows(b, op, args); })
      .Case([&](TakeRowsOp op) { emitTakeRows(b, op, args); })
      .Case([&](WriteRowsOp op) { emitWriteRows(b, op, args); })
      .Case([&](TopKOp op) { emitTopK(b, op, args); })
      .Case([&](IndexerOp op) { emitIndexer(b, op, args); })
      .Case([&](SparseMlaOp op) { emitSparseMla(b, op, args); })
      .Case([&](PushOp op) { emitPush(b, op, args); })
      .Case([&](LocalLengthsOp op) { emitLocalLengths(b, op, args); })
      .Case([&](DraftLengthsOp) { emitDraftLengths(b, args); })
      .Case([&](FilterIndicesOp op) { emitFilterIndices(b, op, args); })
      .Case([&](GatheredSlotsOp op) { emitGatheredSlots(b, op, args); })
      .Case([&](MergeLseOp op) { emitMergeLse(b, op, args); })
      .Case([&](WeighPartialOp op) { emitWeighPartial(b, op, args); })
      .Case([&](SumPartialsOp op) { emitSumPartials(b, op, args); })
      .Case([&](TokenSlotsOp op) { emitTokenSlots(b, op, args); })
      .Case([&](UnpackRowsOp op) { emitUnpackRows(b, op, args); })
      .Case([&](PackRowsOp op) { emitPackRows(b, op, args); })
      .Case([&](GatherBlocksOp op) { emitGatherAllBlocks(b, op, args); });
}

FailureOr<func::FuncOp>
ConvertShardQToLoopsPass::getKernel(Operation *op, ArrayRef<Type> types) {
  MLIRContext *context = &getContext();
  // Which exchange pushes, and how an attention is sharded, change no loop.
  NamedAttrList attrs(op->getPropertiesAsAttribute()
                          ? cast<DictionaryAttr>(op->getPropertiesAsAttribute())
                          : DictionaryAttr::get(context));
  for (StringRef irrelevant : {"exchange", "channel", "sharding", "transport"})
    attrs.erase(irrelevant);
  Attribute key = ArrayAttr::get(
      context, {StringAttr::get(context, op->getName().getStringRef()),
                TypeAttr::get(FunctionType::get(context, types, {})),
                attrs.getDictionary(context)});
  func::FuncOp &kernel = kernels[key];
  if (kernel)
    return kernel;

  SymbolTable symbols(getOperation());
  OpBuilder builder(context);
  builder.setInsertionPointToEnd(getOperation().getBody());
  kernel = func::FuncOp::create(builder, op->getLoc(), getKernelName(op),
                                FunctionType::get(context, types, {}));
  kernel.setPrivate();
  // Not a symbol of the object file: two modules may have the same kernel.
  kernel->setAttr("llvm.linkage",
                  LLVM::LinkageAttr::get(context, LLVM::Linkage::Internal));
  symbols.insert(kernel);
  LoopBuilder b(op->getLoc(), context);
  b.setInsertionPointToEnd(kernel.addEntryBlock());
  emitBody(b, op, kernel.getArguments());
  func::ReturnOp::create(b);
  return kernel;
}

/// A buffer from row `first` on, `rows` of them.
static Value takeRows(OpBuilder &builder, Location loc, Value buffer,
                      OpFoldResult first, OpFoldResult rows) {
  SmallVector<OpFoldResult> sizes = memref::getMixedSizes(builder, loc, buffer);
  SmallVector<OpFoldResult> offsets(sizes.size(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> ones(sizes.size(), builder.getIndexAttr(1));
  offsets.front() = first;
  sizes.front() = rows;
  return memref::SubViewOp::create(builder, loc, buffer, offsets, sizes, ones);
}

/// Where row operands may differ in rows, since types and how they were made
/// leave it open, the kernel is held to the fewest; further rows of the results
/// are 0, slots of tokens -1.
static void holdToCommonRows(OpBuilder &builder, Operation *op,
                             MutableArrayRef<Value> operands) {
  Location loc = op->getLoc();
  SmallVector<unsigned> positions = getRowPositions(op);
  if (haveSameRows(llvm::map_to_vector(
          positions, [&](unsigned position) { return operands[position]; })))
    return;

  auto getSize = [&](Value buffer) {
    return builder.createOrFold<memref::DimOp>(loc, buffer, 0);
  };
  Value rows;
  for (unsigned position : positions) {
    Value size = getSize(operands[position]);
    rows = rows ? arith::MinSIOp::create(builder, loc, rows, size).getResult()
                : size;
  }
  unsigned firstOut = op->getNumOperands();
  if (auto twoForms = dyn_cast<TwoFormOpInterface>(op))
    firstOut -= twoForms.getOuts().size();
  for (unsigned position : positions) {
    Value &operand = operands[position];
    if (position >= firstOut) {
      Type element = cast<MemRefType>(operand.getType()).getElementType();
      TypedAttr rest = builder.getZeroAttr(element);
      if (isa<TokenSlotsOp>(op))
        rest = builder.getIntegerAttr(element, -1);
      Value fill = arith::ConstantOp::create(builder, loc, rest);
      Value further =
          arith::SubIOp::create(builder, loc, getSize(operand), rows);
      linalg::FillOp::create(builder, loc, fill,
                             takeRows(builder, loc, operand, rows, further));
    }
    operand = takeRows(builder, loc, operand, builder.getIndexAttr(0), rows);
  }
}

/// What a caller may have got wrong and no type says.
static void checkStep(OpBuilder &builder, Operation *op) {
  checkSizes(builder, op, [](Value) { return true; }, /*readsMemory=*/true);
  auto expand = dyn_cast<ExpandRowsOp>(op);
  if (!expand)
    return;
  Value none = arith::ConstantIndexOp::create(builder, op->getLoc(), 0);
  CheckStartsOp::create(builder, op->getLoc(), expand.getQueryStart(), none,
                        expand.getRows());
}

/// Copies of the inbox have its rows too.
static void holdCopies(Value inbox, Value rows) {
  for (Operation *user : inbox.getUsers()) {
    if (isa<memref::CastOp, memref::MemorySpaceCastOp>(user))
      holdCopies(user->getResult(0), rows);
    auto copy = dyn_cast<memref::CopyOp>(user);
    if (!copy || copy.getSource() != inbox)
      continue;
    auto alloc = copy.getTarget().getDefiningOp<memref::AllocOp>();
    if (alloc && alloc.getDynamicSizes().size() == 1 &&
        DominanceInfo().properlyDominates(rows, alloc))
      alloc.getDynamicSizesMutable().assign(rows);
  }
}

/// How many blocks a gather moves is a number of the step, which may be any. An
/// inbox that the workspace refuses it, and says so, has no rows for all that
/// follows: what was asked for is no size of memory.
static void holdInbox(PushOp push) {
  auto workspace = push.getInbox().getDefiningOp<WorkspaceOp>();
  if (!push.getBlocks() || !workspace || workspace.getSizes().empty())
    return;
  auto plan = SymbolTable::lookupNearestSymbolFrom<PlanOp>(
      workspace, workspace.getPlanAttr());
  auto channel = cast<ChannelAttr>(plan.getChannels()[workspace.getChannel()]);
  auto type = cast<MemRefType>(workspace.getType());
  int64_t rowBytes =
      type.getDimSize(1) * type.getElementTypeBitWidth() / 8; // not 0
  OpBuilder builder(workspace->getContext());
  builder.setInsertionPointAfter(workspace);
  Location loc = workspace.getLoc();
  Value rows = workspace.getSizes().front();
  Value most = arith::ConstantIndexOp::create(builder, loc,
                                              channel.getBytes() / rowBytes);
  // Negative numbers are large ones here.
  Value fits = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ule,
                                     rows, most);
  Value none = arith::ConstantIndexOp::create(builder, loc, 0);
  Value held = arith::SelectOp::create(builder, loc, fits, rows, none);
  OpFoldResult width = builder.getIndexAttr(type.getDimSize(1));
  auto inbox = memref::ReinterpretCastOp::create(
      builder, loc, type, workspace.getResult(), builder.getIndexAttr(0),
      ArrayRef<OpFoldResult>{held, width},
      ArrayRef<OpFoldResult>{width, builder.getIndexAttr(1)});
  workspace.getResult().replaceAllUsesExcept(inbox, inbox);
  holdCopies(inbox, held);
}

LogicalResult ConvertShardQToLoopsPass::convert(Operation *op) {
  OpBuilder builder(op);
  if (auto push = dyn_cast<PushOp>(op))
    holdInbox(push);
  Location loc = op->getLoc();
  SmallVector<Value> operands(op->getOperands());

  if (auto push = dyn_cast<PushOp>(op))
    if (TransportAttr transport = push.getTransportAttr();
        transport && transport.getValue() == Transport::Nccl)
      return push.emitOpError("is to be carried by NCCL, which moves rows "
                              "between GPUs: choose direct for ranks on CPUs");
  if (auto attention = dyn_cast<SparseMlaOp>(op)) {
    if (failed(verifyOwnKeys(attention)))
      return failure();
    takeOwnSink(builder, attention, operands);
  }
  checkStep(builder, op);
  holdToCommonRows(builder, op, operands);
  SmallVector<Type> types;
  for (Value &operand : operands) {
    Type type = getKernelType(operand.getType());
    if (type != operand.getType())
      operand = memref::CastOp::create(builder, loc, type, operand);
    types.push_back(type);
  }
  FailureOr<func::FuncOp> kernel = getKernel(op, types);
  if (failed(kernel))
    return failure();
  func::CallOp::create(builder, loc, *kernel, operands);
  op->erase();
  return success();
}

void ConvertShardQToLoopsPass::runOnOperation() {
  kernels.clear();
  if (failed(verifyInFunctionsOf(getOperation())) ||
      failed(verifyOnStridedBuffers(getOperation())))
    return signalPassFailure();
  SmallVector<Operation *> ops;
  SmallVector<Operation *> calls;
  SmallVector<memref::CopyOp> copies;
  getOperation().walk([&](Operation *op) {
    if (isa<ExpandRowsOp, ConvertIndicesOp, LocalRowsOp, TakeRowsOp,
            WriteRowsOp, TopKOp, IndexerOp, SparseMlaOp, PushOp, LocalLengthsOp,
            FilterIndicesOp, GatheredSlotsOp, MergeLseOp, WeighPartialOp,
            SumPartialsOp, TokenSlotsOp, UnpackRowsOp, PackRowsOp,
            DraftLengthsOp>(op))
      ops.push_back(op);
    // These are a call of the runtime, and looked at here all the same.
    if (isa<ShardLengthsOp, ChunkLengthsOp, ReplicatedTableOp>(op))
      calls.push_back(op);
    if (auto blocks = dyn_cast<GatherBlocksOp>(op))
      (blocks.getFull() ? ops : calls).push_back(op);
    if (auto copy = dyn_cast<memref::CopyOp>(op);
        copy && isa<MemRefType>(copy.getSource().getType()) &&
        isa<MemRefType>(copy.getTarget().getType()))
      copies.push_back(copy);
  });
  for (Operation *op : calls) {
    OpBuilder builder(op);
    checkSizes(builder, op, [](Value) { return true; }, /*readsMemory=*/true);
  }
  for (Operation *op : ops)
    if (failed(convert(op)))
      return signalPassFailure();
  // Upstream lowers strided copies to a function of its own runner library.
  for (memref::CopyOp copy : copies) {
    OpBuilder builder(copy);
    linalg::makeMemRefCopyOp(builder, copy.getLoc(), copy.getSource(),
                             copy.getTarget());
    copy.erase();
  }
}
