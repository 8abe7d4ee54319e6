//===- ConvertShardQToGPU.cpp - Host code that launches kernels -----------===//
//
// One walk over a function in program order. Branches on device values are laid
// flat, and each op that touches memory becomes a `gpu.launch` whose body first
// computes the device values it needs, and does nothing where its branch was
// not taken. docs/Rationale.md, "The GPU target".
//
//===----------------------------------------------------------------------===//

#include "../Utils/Operands.h"
#include "ChunkKernels.h"
#include "ContextKernels.h"
#include "FreeBuffers.h"
#include "FunctionLowering.h"
#include "GatherKernels.h"
#include "Overlap.h"
#include "ReductionKernels.h"
#include "ViewKernels.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Iterators.h"
#include "shardq/Analysis/Placement.h"
#include "shardq/Conversion/Passes.h"
#include "shardq/IR/CarrierOps.h"
#include "shardq/IR/OperandNames.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_CONVERTSHARDQTOGPU
#include "shardq/Conversion/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

struct ConvertShardQToGPUPass
    : public shardq::impl::ConvertShardQToGPUBase<ConvertShardQToGPUPass> {
  using ConvertShardQToGPUBase::ConvertShardQToGPUBase;
  void runOnOperation() override;
};

} // namespace

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

/// One of two values, of which branches may have forgotten by casts what their
/// types had in common: kernels want to know strides.
static Value selectOne(OpBuilder &b, Location loc, Value condition, Value then,
                       Value otherwise) {
  Value known = stripCasts(then), other = stripCasts(otherwise);
  if (known.getType() != other.getType() || known.getType() == then.getType())
    return arith::SelectOp::create(b, loc, condition, then, otherwise);
  Value one = arith::SelectOp::create(b, loc, condition, known, other);
  return memref::CastOp::create(b, loc, then.getType(), one);
}

LogicalResult FunctionLowering::flatten(scf::IfOp op, Value predicate) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Value condition = op.getCondition();
  Value taken = predicate
                    ? Value(arith::AndIOp::create(b, loc, predicate, condition))
                    : condition;
  Value yes = arith::ConstantIntOp::create(b, loc, 1, 1);
  Value inverse = arith::XOrIOp::create(b, loc, condition, yes);
  Value notTaken =
      predicate ? Value(arith::AndIOp::create(b, loc, predicate, inverse))
                : inverse;

  SmallVector<Value> results[2];
  SmallVector<Operation *> ops[2];
  for (auto [i, region] : llvm::enumerate(op->getRegions())) {
    if (region.empty())
      continue;
    Block &block = region.front();
    results[i] = llvm::to_vector(block.getTerminator()->getOperands());
    block.getTerminator()->erase();
    for (Operation &nested : block)
      ops[i].push_back(&nested);
    op->getBlock()->getOperations().splice(op->getIterator(),
                                           block.getOperations());
  }
  b.setInsertionPoint(op);
  for (auto [result, then, otherwise] :
       llvm::zip(op.getResults(), results[0], results[1])) {
    if (result.use_empty())
      continue;
    result.replaceAllUsesWith(selectOne(b, loc, condition, then, otherwise));
  }
  op.erase();
  if (failed(lowerOps(ops[0], taken)))
    return failure();
  return lowerOps(ops[1], notTaken);
}

LogicalResult FunctionLowering::lowerOps(ArrayRef<Operation *> ops,
                                         Value predicate) {
  for (Operation *op : ops)
    if (failed(lowerOp(op, predicate)))
      return failure();
  return success();
}

static SmallVector<Operation *> getOps(Block &block) {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  return ops;
}

/// The rows of an inbox as those that were asked for, which the host may know,
/// or a share of them. Kernels that read an inbox hold themselves to the rows
/// that are there.
static Value getRowsAskedFor(OpBuilder &b, Value size) {
  if (auto share = size.getDefiningOp<arith::DivUIOp>()) {
    Value known = getRowsAskedFor(b, share.getLhs());
    return known == share.getLhs()
               ? size
               : arith::DivUIOp::create(b, share.getLoc(), known,
                                        share.getRhs())
                     .getResult();
  }
  auto dim = size.getDefiningOp<memref::DimOp>();
  if (!dim || dim.getConstantIndex() != 0)
    return size;
  Value source = dim.getSource();
  while (isa_and_present<memref::CastOp, memref::MemorySpaceCastOp>(
      source.getDefiningOp()))
    source = source.getDefiningOp()->getOperand(0);
  auto inbox = source.getDefiningOp<WorkspaceOp>();
  if (!inbox || !cast<MemRefType>(inbox.getType()).isDynamicDim(0))
    return size;
  return inbox.getSizes().front();
}

/// What asks for a buffer: an op with a result of that many rows.
static void describeUse(InFlightDiagnostic &error, memref::AllocOp op) {
  for (Operation *user : op->getUsers()) {
    auto twoForms = dyn_cast<TwoFormOpInterface>(user);
    if (!twoForms || !llvm::is_contained(twoForms.getOuts(), op.getResult()))
      continue;
    error << ", for a result of " << user->getName();
    error.attachNote(user->getLoc()) << "its rows are counted here";
    return;
  }
}

/// The bound of a size in place of the size, and a view of what is there.
LogicalResult FunctionLowering::lowerAlloc(memref::AllocOp op) {
  if (!op.getType().getLayout().isIdentity())
    return op.emitOpError("has a layout, expected a buffer without one: ")
           << op.getType();
  OpBuilder b(op);
  for (OpOperand &size : op.getDynamicSizesMutable())
    if (Value known = getRowsAskedFor(b, size.get()); !values.isDevice(known))
      size.set(known);
  if (llvm::none_of(op.getDynamicSizes(),
                    [&](Value size) { return values.isDevice(size); }))
    return success();
  Location loc = op.getLoc();
  MemRefType type = op.getType();
  SmallVector<Value> bounds;
  SmallVector<OpFoldResult> sizes;
  auto dynamic = op.getDynamicSizes().begin();
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  for (int64_t size : type.getShape()) {
    if (!ShapedType::isDynamic(size)) {
      sizes.push_back(b.getIndexAttr(size));
      continue;
    }
    Value known = *dynamic++;
    Value bound = values.getBound(b, loc, known);
    if (!bound) {
      InFlightDiagnostic error =
          op.emitOpError("has a size that only the device knows, and the "
                         "function has no step that bounds it: dimension ")
          << sizes.size() << " of " << type;
      describeUse(error, op);
      return error;
    }
    bounds.push_back(bound);
    if (values.isDevice(known)) {
      known = arith::MaxSIOp::create(b, loc, known, zero);
      known = arith::MinSIOp::create(b, loc, known, bound);
    }
    sizes.push_back(known);
  }
  Value whole =
      memref::AllocOp::create(b, loc, type, bounds, op.getAlignmentAttr());
  SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0));
  SmallVector<OpFoldResult> ones(type.getRank(), b.getIndexAttr(1));
  Value view = memref::SubViewOp::create(b, loc, whole, offsets, sizes, ones);
  if (view.getType() != type)
    view = memref::CastOp::create(b, loc, type, view);
  op.replaceAllUsesWith(view);
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// Operand or result `value` of the op, as documentation has it.
static std::string getName(Operation *op, Value value) {
  for (OpOperand &operand : op->getOpOperands())
    if (operand.get() == value)
      return getOperandName(op, operand.getOperandNumber());
  if (auto result = dyn_cast<OpResult>(value); result.getOwner() == op)
    return "result #" + std::to_string(result.getResultNumber());
  return "a value that it needs";
}

/// Buffers that kernels can count in rows and bytes.
static LogicalResult verifyBuffers(Operation *op) {
  auto verify = [&](Value value) -> LogicalResult {
    auto buffer = dyn_cast<BaseMemRefType>(value.getType());
    if (!buffer)
      return success();
    if (!buffer.hasRank())
      return op->emitOpError() << getName(op, value) << " is " << buffer
                               << ", expected a known rank";
    if (Type element = buffer.getElementType();
        !element.isIntOrFloat() || element.getIntOrFloatBitWidth() % 8 != 0)
      return op->emitOpError()
             << getName(op, value) << " is " << buffer
             << ", expected integers or floats of whole bytes";
    return success();
  };
  for (ValueRange values :
       {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : values)
      if (failed(verify(value)))
        return failure();
  return success();
}

static bool hasUnitStride(Value buffer) {
  SmallVector<int64_t> strides;
  int64_t offset;
  auto type = cast<MemRefType>(buffer.getType());
  return succeeded(type.getStridesAndOffset(strides, offset)) &&
         (strides.empty() || strides.back() == 1);
}

/// Of these operands kernels access neighbours at a time. A cast that only
/// forgets the stride is left out.
static LogicalResult makeRowsDense(Operation *op, ValueRange buffers) {
  for (Value buffer : llvm::to_vector(buffers)) {
    Value known = buffer;
    while (!hasUnitStride(known)) {
      auto type = cast<MemRefType>(known.getType());
      auto cast = known.getDefiningOp<memref::CastOp>();
      auto from = cast ? dyn_cast<MemRefType>(cast.getSource().getType())
                       : MemRefType();
      if (!from || from.getShape() != type.getShape()) {
        InFlightDiagnostic error = op->emitOpError()
                                   << getName(op, buffer) << " is "
                                   << buffer.getType()
                                   << ", expected a last stride of 1";
        if (Operation *select = known.getDefiningOp();
            isa_and_present<arith::SelectOp, scf::IfOp>(select))
          error.attachNote(select->getLoc())
              << "a branch hands it on, whose sides lie in memory differently";
        return error;
      }
      known = cast.getSource();
    }
    if (known != buffer)
      op->replaceUsesOfWith(buffer, known);
  }
  return success();
}

/// Kernels read again what was loaded here, so it must still be there.
LogicalResult FunctionLowering::verifyFresh(Operation *op, Value predicate) {
  SmallVector<Value> needed(op->getOperands());
  if (predicate)
    needed.push_back(predicate);
  for (Value value : needed)
    if (memref::LoadOp load = values.findStale(value)) {
      InFlightDiagnostic error = op->emitOpError(
          "needs a value that only the device knows, from memory that has been "
          "written since: ");
      if (value == predicate)
        error << "the condition of a branch around it";
      else
        error << getName(op, value);
      error.attachNote(load.getLoc()) << "it was loaded here";
      return error;
    }
  // Of a branch, each op will be here by itself; of a loop, an earlier turn may
  // write what a later one needs.
  if (!isa<scf::IfOp>(op))
    values.noteWrites(op);
  return success();
}

/// A bound of the rows that a kernel works through: those of its results, or
/// of the step.
FailureOr<Value> FunctionLowering::getRows(Operation *op) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  Value buffer;
  if (auto twoForms = dyn_cast<TwoFormOpInterface>(op);
      twoForms && !twoForms.getOuts().empty())
    buffer = twoForms.getOuts().front();
  else if (auto push = dyn_cast<PushOp>(op); push && push.getBlocks())
    return getPushedRows(push);
  else if (push)
    buffer = push.isByOffsets() ? push.getIds() : push.getSources().front();
  else if (auto merge = dyn_cast<MergeLseOp>(op))
    buffer = merge.getOut();
  else if (auto sum = dyn_cast<SumPartialsOp>(op))
    buffer = sum.getOut();
  else if (auto write = dyn_cast<WriteRowsOp>(op))
    buffer = write.getSource();
  else if (auto copy = dyn_cast<memref::CopyOp>(op))
    buffer = copy.getTarget();
  else if (auto fill = dyn_cast<linalg::FillOp>(op))
    buffer = fill.getOutputs().front();
  if (!buffer || cast<MemRefType>(buffer.getType()).getRank() == 0)
    return Value(arith::ConstantIndexOp::create(b, loc, 1));
  Value rows = values.getDimBound(b, loc, buffer, 0);
  if (!rows)
    return op->emitOpError(
               "has a number of rows that only the device knows, and "
               "the function has no step that bounds it: those of ")
           << getName(op, buffer) << ", " << buffer.getType();
  // Each member gets its part.
  if (auto push = dyn_cast<PushOp>(op);
      push && push.getDirection() == Direction::ScatterRows)
    rows = arith::CeilDivUIOp::create(
        b, loc, rows,
        arith::ConstantIndexOp::create(b, loc, getGroupRanks(push)));
  return rows;
}

/// The kernel is there before the one in front of it has ended, and touches no
/// memory until then. Then it lets the next one come, unless it waits for
/// peers: what they wait for may be behind a kernel of another stream, which
/// needs the room that the next one would hold.
static void emitEarlyStart(KernelBuilder &k, const KernelShape &shape) {
  NVVM::GriddepcontrolOp::create(k, NVVM::GridDepActionKind::wait);
  if (!shape.waitsForPeers)
    NVVM::GriddepcontrolOp::create(k,
                                   NVVM::GridDepActionKind::launch_dependents);
}

void FunctionLowering::launch(Operation *op, Twine name,
                              const KernelShape &shape, Value rows,
                              ValueRange operands, Value predicate, Emit emit) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value teams = rows;
  if (shape.rowsPerBlock != 1)
    teams = arith::CeilDivUIOp::create(
        b, loc, rows,
        arith::ConstantIndexOp::create(b, loc, shape.rowsPerBlock));
  Value blocks = arith::MulIOp::create(
      b, loc, teams,
      arith::ConstantIndexOp::create(b, loc, shape.blocksPerRow));
  if (shape.oneOf != 1) {
    Value few = arith::MinSIOp::create(
        b, loc, blocks,
        arith::ConstantIndexOp::create(b, loc, shape.fewBlocks));
    Value some = arith::DivUIOp::create(
        b, loc, blocks, arith::ConstantIndexOp::create(b, loc, shape.oneOf));
    blocks = arith::MaxSIOp::create(b, loc, few, some);
  }
  blocks = arith::MinSIOp::create(
      b, loc, blocks, arith::ConstantIndexOp::create(b, loc, shape.maxBlocks));
  blocks = arith::MaxSIOp::create(
      b, loc, blocks,
      arith::ConstantIndexOp::create(b, loc, shape.leastBlocks));
  Value threads = arith::ConstantIndexOp::create(b, loc, shape.threads);
  Value shared;
  if (shape.dynamicShared)
    shared = arith::ConstantIntOp::create(b, loc, shape.dynamicShared, 32);
  auto launchOp = gpu::LaunchOp::create(
      b, loc, blocks, one, one, threads, one, one, shared, Type(), ValueRange{},
      TypeRange{}, TypeRange{}, Value(), Value(), Value(),
      FlatSymbolRefAttr::get(context, kKernelModuleName),
      FlatSymbolRefAttr::get(names.add(name, shape)));
  KernelBuilder k(loc, b.getListener(), context, shape.threads);
  k.setInsertionPointToStart(&launchOp.getBody().front());
  Operation *end = gpu::TerminatorOp::create(k);
  k.setInsertionPoint(end);
  if (startEarly && !shape.looksAhead)
    emitEarlyStart(k, shape);

  IRMapping copies;
  Value address;
  if (llvm::any_of(operands, [&](Value v) { return values.isDevice(v); }) ||
      (predicate && values.isDevice(predicate)))
    address = toPointer(k, loc, device);
  auto body = [&] {
    SmallVector<Value> args;
    for (Value operand : operands)
      args.push_back(values.compute(k, operand, address, copies));
    emit(k, args);
  };
  if (predicate) {
    Value taken = values.compute(k, predicate, address, copies);
    k.when(taken, body);
  } else {
    body();
  }
  // Whatever way the body took: the next kernel waits for this one only.
  if (startEarly && shape.looksAhead)
    NVVM::GriddepcontrolOp::create(k, NVVM::GridDepActionKind::wait);
}

/// A block of the card has to hold what a kernel keeps in shared memory.
LogicalResult FunctionLowering::verifyShape(Operation *op,
                                            const KernelShape &shape) {
  if (shape.dynamicShared <= sharedBytes)
    return success();
  return op->emitOpError("has a kernel that needs ")
         << shape.dynamicShared << " bytes of shared memory in a block, where "
         << sharedBytes << " are to be had";
}

LogicalResult FunctionLowering::lowerIndexer(IndexerOp op, Value predicate) {
  if (failed(verifyIndexerKernel(op)) ||
      failed(verifyShape(op, getIndexerScoresShape(op))) ||
      failed(verifyShape(op, getTopKShape(op.getK()))) ||
      failed(makeRowsDense(op, {op.getQ(), op.getKeys()})))
    return failure();
  FailureOr<Value> rows = getRows(op);
  if (failed(rows))
    return failure();
  OpBuilder b(op);
  Location loc = op.getLoc();
  // Scores of as many rows at a time as the scratch memory holds.
  Value blocks = values.getDimBound(b, loc, op.getTable(), 1);
  if (!blocks)
    return op.emitOpError(
               "has a table whose width only the device knows, and "
               "the function has no step that bounds it: 'table' is ")
           << op.getTable().getType();
  Value width = arith::MulIOp::create(
      b, loc, blocks,
      arith::ConstantIndexOp::create(b, loc, op.getBlockSize()));
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  // Scores are read 16 bytes at a time.
  Value four = arith::ConstantIndexOp::create(b, loc, 4);
  width = arith::MulIOp::create(
      b, loc, arith::CeilDivUIOp::create(b, loc, width, four), four);
  width = arith::MaxSIOp::create(b, loc, width, four);
  Value chunk = arith::DivUIOp::create(
      b, loc, arith::ConstantIndexOp::create(b, loc, scratchBytes / 4), width);
  chunk = arith::MaxSIOp::create(
      b, loc, arith::MinSIOp::create(b, loc, chunk, *rows), one);
  auto type = MemRefType::get({ShapedType::kDynamic, ShapedType::kDynamic},
                              b.getF32Type());
  Value scores =
      memref::AllocOp::create(b, loc, type, ValueRange{chunk, width});
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  auto loop = scf::ForOp::create(b, loc, zero, *rows, chunk);
  // Launches are made in front of an op, which the loop's end is.
  Operation *at = loop.getBody()->getTerminator();
  Value first = loop.getInductionVar();
  SmallVector<Value> operands(op->getOperands());
  launch(at, getKernelName(op) + "_scores", getIndexerScoresShape(op), chunk,
         operands, predicate, [&](KernelBuilder &k, ValueRange args) {
           emitIndexerScoresKernel(k, op, args, first, scores);
         });
  SmallVector<Value> selected{op.getVisible(), op.getOuts().front()};
  int64_t topk = op.getK();
  launch(at, getKernelName(op) + "_topk", getTopKShape(topk), chunk, selected,
         predicate, [&](KernelBuilder &k, ValueRange args) {
           emitTopKKernel(k, topk, /*holes=*/true, scores, args[0], first,
                          args[1]);
         });
  lowered.push_back(op);
  return success();
}

LogicalResult FunctionLowering::lowerTopK(TopKOp op, Value predicate) {
  if (failed(verifyShape(op, getTopKShape(op.getK()))) ||
      failed(makeRowsDense(op, op.getScores())))
    return failure();
  FailureOr<Value> rows = getRows(op);
  if (failed(rows))
    return failure();
  launch(op, getKernelName(op), getTopKShape(op.getK()), *rows,
         op->getOperands(), predicate, [&](KernelBuilder &k, ValueRange args) {
           emitTopKKernel(k, op.getK(), /*holes=*/false, args[0], args[1],
                          k.index(0), args[2]);
         });
  lowered.push_back(op);
  return success();
}

/// Counts of rows and gates: a number in memory, loaded where it is used.
LogicalResult FunctionLowering::lowerScalar(Operation *op, Value predicate) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  auto type = MemRefType::get({1}, b.getI64Type());
  Value cell = memref::AllocOp::create(b, loc, type);
  SmallVector<Value> operands(op->getOperands());
  operands.push_back(cell);
  launch(
      op, getKernelName(op), getRowShape(op),
      arith::ConstantIndexOp::create(b, loc, 1), operands, predicate,
      [&](KernelBuilder &k, ValueRange args) { emitRowKernel(k, op, args); });
  if (auto count = dyn_cast<CountChunkRowsOp>(op);
      count && failed(noteChunkRows(count, cell)))
    return failure();
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value number = memref::LoadOp::create(b, loc, cell, zero);
  Value result;
  if (op->getResult(0).getType().isIndex())
    result = arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
  else
    result = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, number,
                                   arith::ConstantIntOp::create(b, loc, 0, 64));
  op->getResult(0).replaceAllUsesWith(result);
  lowered.push_back(op);
  return success();
}

/// A rank's rows are padded by less than one a token of each request that has
/// any: chunks come in pairs.
LogicalResult FunctionLowering::noteChunkRows(CountChunkRowsOp op,
                                              Value count) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Value starts = values.getDimBound(b, loc, op.getQueryStart(), 0);
  Value rows = values.getBound(b, loc, op.getRows());
  if (!starts || !rows)
    return op.emitOpError("has rows or requests that only the device knows, "
                          "and the function has no step that bounds them: ")
           << (starts ? "'rows'" : "requests of 'query_start'");
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  rows = arith::MaxSIOp::create(b, loc, rows, zero);
  Value most = arith::AddIOp::create(
      b, loc, rows, arith::MinSIOp::create(b, loc, rows, starts));
  values.noteCount(count, op.getPart() == ChunkPart::All ? most : rows);
  // What is computed from such counts is some of all these rows.
  values.setStepRows(most);
  return success();
}

/// Where each request's rows begin first, by one block, then rows by many.
LogicalResult FunctionLowering::lowerChunks(Operation *op, Value queryStart,
                                            Value predicate) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  Value starts = values.getDimBound(b, loc, queryStart, 0);
  Value outs = cast<TwoFormOpInterface>(op).getOuts().back();
  Value rows = values.getDimBound(b, loc, outs, 0);
  if (!starts || !rows)
    return op->emitOpError("has rows or requests that only the device knows, "
                           "and the function has no step that bounds them: ")
           << (starts ? "rows of its last result, "
                      : "requests of 'query_start', ")
           << (starts ? outs : queryStart).getType();
  Value two = arith::ConstantIndexOp::create(b, loc, 2);
  auto type = MemRefType::get({ShapedType::kDynamic, 3}, b.getI32Type());
  Value table = memref::AllocOp::create(
      b, loc, type, ValueRange{arith::AddIOp::create(b, loc, starts, two)});
  SmallVector<Value> operands(op->getOperands());
  if (isa<ChunkSplitOp, ChunkSlotsOp>(op))
    operands.push_back(device);
  operands.push_back(RankOp::create(
      b, loc, b.getIndexType(), op->getAttrOfType<FlatSymbolRefAttr>("mesh"),
      op->getAttrOfType<StringAttr>("axis")));
  operands.push_back(table);
  launch(op, getKernelName(op) + "_table", getChunkTableShape(),
         arith::ConstantIndexOp::create(b, loc, 1), operands, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitChunkTableKernel(k, op, args);
         });
  launch(op, getKernelName(op) + "_rows", getChunkRowsShape(), rows, operands,
         predicate, [&](KernelBuilder &k, ValueRange args) {
           emitChunkRowsKernel(k, op, args);
         });
  lowered.push_back(op);
  return success();
}

/// Counts first, by one block, then token ids by many.
LogicalResult FunctionLowering::lowerSplit(ZigzagSplitOp op, Value predicate) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  if (!values.isDevice(op.getRows()))
    values.setStepRows(op.getRows());
  MeshAxis over = lookupMeshAxis(op, op.getMeshAttr(), op.getAxis());
  int64_t ranks = over.axis.getSize();
  Value starts = values.getDimBound(b, loc, op.getQueryStart(), 0);
  if (!starts)
    return op.emitOpError(
               "has a number of requests that only the device knows, "
               "and the function has no step that bounds it: 'query_start' is ")
           << op.getQueryStart().getType();
  auto type =
      MemRefType::get({ShapedType::kDynamic, ranks + 2}, b.getI32Type());
  Value before = memref::AllocOp::create(b, loc, type, ValueRange{starts});
  SmallVector<Value> operands(op->getOperands());
  operands.append({before, device});
  launch(op, getKernelName(op) + "_count", getSplitCountShape(ranks),
         arith::ConstantIndexOp::create(b, loc, 1), operands, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitSplitCountKernel(k, ranks, args);
         });
  launch(op, getKernelName(op) + "_ids", getSplitIdsShape(ranks), starts,
         operands, predicate, [&](KernelBuilder &k, ValueRange args) {
           emitSplitIdsKernel(k, ranks, args);
         });
  lowered.push_back(op);
  return success();
}

/// The list first, by one block, then where each entry stands in it.
LogicalResult FunctionLowering::lowerBlocks(GatherBlocksOp op,
                                            Value predicate) {
  FailureOr<Value> entries = getRows(op);
  if (failed(entries))
    return failure();
  OpBuilder b(op);
  SmallVector<Value> operands(op->getOperands());
  launch(op, getKernelName(op) + "_list", getBlockListShape(),
         arith::ConstantIndexOp::create(b, op.getLoc(), 1), operands, predicate,
         [&](KernelBuilder &k, ValueRange args) {
           emitBlockListKernel(k, op, args);
         });
  launch(op, getKernelName(op) + "_inverse", getBlockInverseShape(), *entries,
         operands, predicate, [&](KernelBuilder &k, ValueRange args) {
           emitBlockInverseKernel(k, op, args);
         });
  lowered.push_back(op);
  return success();
}

/// Whether the kernel has to know where this rank stands on the op's axis.
static bool wantsRank(Operation *op) {
  auto slots = dyn_cast<TokenSlotsOp>(op);
  return isa<LocalLengthsOp, ShardLengthsOp, FilterIndicesOp, WeighPartialOp>(
             op) ||
         (slots && slots.getMeshAttr());
}

/// An op that is one kernel of its rows.
LogicalResult FunctionLowering::lowerRows(Operation *op,
                                          const KernelShape &shape,
                                          EmitRows emit, Value predicate) {
  FailureOr<Value> rows = getRows(op);
  if (failed(rows))
    return failure();
  OpBuilder b(op);
  SmallVector<Value> operands(op->getOperands());
  if (wantsRank(op))
    operands.push_back(
        RankOp::create(b, op->getLoc(), b.getIndexType(),
                       op->getAttrOfType<FlatSymbolRefAttr>("mesh"),
                       op->getAttrOfType<StringAttr>("axis")));
  // Where what is wrong is recorded.
  if (isa<ShardLengthsOp, TokenSlotsOp>(op))
    operands.push_back(device);
  if (auto draft = dyn_cast<DraftLengthsOp>(op);
      draft && values.isDevice(draft.getStep()))
    operands.push_back(device);
  launch(op, getKernelName(op), shape, *rows, operands, predicate,
         [&](KernelBuilder &k, ValueRange args) { emit(k, op, args); });
  lowered.push_back(op);
  return success();
}

/// A buffer whose place the host knows and that begins with `view`: what it is
/// the first part of, else a copy. Null where that has no bound.
Value FunctionLowering::getWhole(Operation *before, Value view,
                                 Value predicate) {
  Value whole = view;
  while (whole && values.isDevice(whole)) {
    Operation *maker = whole.getDefiningOp();
    auto slice = dyn_cast<memref::SubViewOp>(maker);
    bool fromStart =
        slice && llvm::all_of(slice.getStaticOffsets(),
                              [](int64_t offset) { return offset == 0; });
    whole = fromStart || isa<memref::CastOp>(maker) ? maker->getOperand(0)
                                                    : Value();
  }
  if (whole)
    return whole;
  OpBuilder b(before);
  Location loc = before->getLoc();
  auto type = cast<MemRefType>(view.getType());
  SmallVector<Value> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      sizes.push_back(values.getDimBound(b, loc, view, dim));
  if (llvm::is_contained(sizes, Value()))
    return {};
  whole = memref::AllocOp::create(
      b, loc, MemRefType::get(type.getShape(), type.getElementType()), sizes);
  auto copy = memref::CopyOp::create(b, loc, view, whole);
  return succeeded(lowerOp(copy, predicate)) ? whole : Value();
}

/// Where a value is looked at from the host, the device says how many rows of
/// it there are: -1 where the branch was not taken.
LogicalResult FunctionLowering::lowerTap(TapOp op, Value predicate) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  if (!predicate && !values.isDevice(op.getValue()) &&
      (!op.getRows() || !values.isDevice(op.getRows())))
    return success();
  Value value = getWhole(op, op.getValue(), predicate);
  Value rows = op.getRows() ? getWhole(op, op.getRows(), predicate) : Value();
  if (!value || (op.getRows() && !rows))
    return op.emitOpError(
               "looks at a value whose place only the device knows: ")
           << (value ? "'rows'" : "'value'") << " is "
           << (value ? op.getRows() : op.getValue()).getType();
  Value count =
      memref::AllocOp::create(b, loc, MemRefType::get({1}, b.getI64Type()));
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  auto store = [&](Value taken, Value number, Value condition) {
    SmallVector<Value> operands{number};
    launch(op, taken ? "shardq_tap_count" : "shardq_tap_none", KernelShape(),
           one, operands, condition, [&](KernelBuilder &k, ValueRange args) {
             k.when(k.equal(k.thread(), k.index(0)), [&] {
               k.store(k.fromIndex(args[0], k.getI64Type()), count, k.index(0));
             });
           });
  };
  store(Value(), arith::ConstantIndexOp::create(b, loc, -1), Value());
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value number = memref::DimOp::create(b, loc, op.getValue(), zero);
  store(number, number, predicate);
  auto tap = TapOp::create(b, loc, op.getName(), value, rows);
  tap.getCountMutable().assign(count);
  op.erase();
  return success();
}

/// The host takes one of the two, or neither.
LogicalResult FunctionLowering::lowerHostBranch(scf::IfOp op, Value predicate) {
  for (Region &region : op->getRegions())
    if (!region.empty() && failed(lowerOps(getOps(region.front()), predicate)))
      return failure();
  // Nothing could tell which of them a kernel would have to compute.
  for (Region &region : op->getRegions())
    if (!region.empty())
      for (OpOperand &yielded : region.front().getTerminator()->getOpOperands())
        if (values.isDevice(yielded.get()))
          return op->emitOpError("decides on the host about a value that "
                                 "only the device knows: result #")
                 << yielded.getOperandNumber() << ", of type "
                 << yielded.get().getType();
  return success();
}

LogicalResult FunctionLowering::lowerLoop(scf::ForOp op, Value predicate) {
  for (auto [name, bound] :
       {std::pair<StringRef, Value>{"lower bound", op.getLowerBound()},
        {"upper bound", op.getUpperBound()},
        {"step", op.getStep()}})
    if (values.isDevice(bound))
      return op->emitOpError("has a bound that only the device knows: its ")
             << name;
  // Also before the body is looked at, whose kernels may not take what such
  // a branch hands on: they would say so of themselves.
  if (failed(verifyCarried(op)) ||
      failed(lowerOps(getOps(*op.getBody()), predicate)))
    return failure();
  return verifyCarried(op);
}

/// What a loop carries the host has to know.
LogicalResult FunctionLowering::verifyCarried(scf::ForOp op) {
  for (ValueRange carried :
       {ValueRange(op.getInitArgs()), op.getYieldedValues()})
    for (auto [index, value] : llvm::enumerate(carried)) {
      auto branch = stripCasts(value).getDefiningOp<scf::IfOp>();
      if (values.isDevice(value) ||
          (branch && values.isDevice(branch.getCondition())))
        return op->emitOpError("carries a value to its next turn that only the "
                               "device knows: result #")
               << index << ", of type " << value.getType();
    }
  return success();
}

/// What kernels copy in bulk lies in rows without gaps.
static LogicalResult makeOperandsDense(Operation *op) {
  if (auto attention = dyn_cast<SparseMlaOp>(op))
    return success(succeeded(makeRowsDense(op, attention.getQ())) &&
                   succeeded(makeRowsDense(op, attention.getKv())) &&
                   succeeded(makeRowsDense(op, attention.getOuts())));
  if (auto push = dyn_cast<PushOp>(op)) {
    ValueRange sources = push.getSources();
    // An LSE is no bulk data: any strides will do.
    if (push.getDirection() == Direction::ScatterHeads ||
        push.getDirection() == Direction::ScatterRows)
      sources = sources.take_front();
    return success(succeeded(makeRowsDense(op, sources)) &&
                   succeeded(makeRowsDense(op, push.getInbox())));
  }
  if (auto merge = dyn_cast<MergeLseOp>(op))
    return makeRowsDense(op, {merge.getInbox(), merge.getOut()});
  return success();
}

LogicalResult FunctionLowering::lowerAttention(SparseMlaOp op,
                                               Value predicate) {
  if (failed(verifySparseMlaKernel(op, sharedBytes)))
    return failure();
  OpBuilder b(op);
  SmallVector<Value> operands(op->getOperands());
  takeOwnSink(b, op, operands);
  FailureOr<Value> rows = getRows(op);
  if (failed(rows))
    return failure();
  launch(op, getKernelName(op), getSparseMlaShape(op, sharedBytes), *rows,
         operands, predicate, [&](KernelBuilder &k, ValueRange args) {
           emitSparseMlaKernel(k, op, args, sharedBytes);
         });
  lowered.push_back(op);
  return success();
}

/// An op with one kernel that copies rows, or computes a few numbers of each.
LogicalResult FunctionLowering::lowerRowOp(Operation *op, Value predicate) {
  OpBuilder b(op);
  SmallVector<Value> operands(op->getOperands());
  if (auto local = dyn_cast<LocalRowsOp>(op))
    operands.push_back(RankOp::create(b, op->getLoc(), b.getIndexType(),
                                      local.getMeshAttr(),
                                      local.getAxisAttr()));
  FailureOr<Value> rows = getRows(op);
  if (failed(rows))
    return failure();
  if (auto expand = dyn_cast<ExpandRowsOp>(op);
      expand && !values.isDevice(expand.getRows()))
    values.setStepRows(expand.getRows());
  if (isa<ExpandRowsOp, WriteRowsOp>(op))
    operands.push_back(device);
  launch(
      op, getKernelName(op), getRowShape(op), *rows, operands, predicate,
      [&](KernelBuilder &k, ValueRange args) { emitRowKernel(k, op, args); });
  lowered.push_back(op);
  return success();
}

LogicalResult FunctionLowering::lowerOp(Operation *op, Value predicate) {
  if (launched.contains(op))
    return success();
  // What the host does not know it does not compare, nor what is for steps in
  // which a branch is taken.
  if (auto expect = dyn_cast<ExpectOp>(op)) {
    if (predicate || values.isDevice(expect.getFound()) ||
        values.isDevice(expect.getExpected()))
      lowered.push_back(op);
    return success();
  }
  if (failed(verifyBuffers(op)) || failed(verifyFresh(op, predicate)))
    return failure();
  // Where only the device knows whether it runs, what it is given may be for
  // steps in which it does not.
  OpBuilder checks(op);
  if (!predicate)
    checkSizes(
        checks, op, [&](Value value) { return !values.isDevice(value); },
        /*readsMemory=*/false);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return values.isDevice(branch.getCondition())
               ? flatten(branch, predicate)
               : lowerHostBranch(branch, predicate);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return lowerLoop(loop, predicate);
  if (auto alloc = dyn_cast<memref::AllocOp>(op))
    return lowerAlloc(alloc);
  if (auto inbox = dyn_cast<WorkspaceOp>(op)) {
    values.noteWorkspace(inbox);
    return success();
  }
  if (auto tap = dyn_cast<TapOp>(op))
    return lowerTap(tap, predicate);
  if (isa<CountDecodeRowsOp, CountChunkRowsOp, SplitGateOp, GatherGateOp>(op))
    return lowerScalar(op, predicate);
  if (auto split = dyn_cast<ZigzagSplitOp>(op))
    return lowerSplit(split, predicate);
  if (auto indexer = dyn_cast<IndexerOp>(op))
    return lowerIndexer(indexer, predicate);
  if (auto topk = dyn_cast<TopKOp>(op))
    return lowerTopK(topk, predicate);
  if (isa<memref::GetGlobalOp>(op))
    return op->emitOpError("is in the host's memory, where kernels do not "
                           "read: make it an argument");
  if (auto load = dyn_cast<memref::LoadOp>(op))
    values.noteLoad(load);
  if (isMemoryEffectFree(op) ||
      isa<memref::LoadOp, memref::AssumeAlignmentOp, RankOp>(op))
    return success();
  return lowerEffect(op, predicate);
}

/// An op that writes buffers, and has kernels for that or none.
LogicalResult FunctionLowering::lowerEffect(Operation *op, Value predicate) {
  if (failed(makeOperandsDense(op)))
    return failure();
  if (auto attention = dyn_cast<SparseMlaOp>(op))
    return lowerAttention(attention, predicate);
  if (isa<PushOp, SignalOp, WaitOp>(op))
    return lowerExchange(op, predicate);
  if (isa<LocalLengthsOp, DraftLengthsOp, ShardLengthsOp, FilterIndicesOp,
          MergeLseOp>(op))
    return lowerRows(op, getContextShape(op), emitContextKernel, predicate);
  if (isa<WeighPartialOp, SumPartialsOp>(op))
    return lowerRows(op, getReductionShape(op), emitReductionKernel, predicate);
  if (isViewOp(op))
    return lowerRows(op, getViewShape(op), emitViewKernel, predicate);
  if (auto blocks = dyn_cast<GatherBlocksOp>(op))
    return lowerBlocks(blocks, predicate);
  if (isa<GatheredSlotsOp, GatheredTableOp>(op))
    return lowerRows(op, getGatheredShape(op), emitGatheredKernel, predicate);
  if (auto split = dyn_cast<ChunkSplitOp>(op))
    return lowerChunks(op, split.getQueryStart(), predicate);
  if (auto lengths = dyn_cast<ChunkLengthsOp>(op))
    return lowerChunks(op, lengths.getQueryStart(), predicate);
  if (auto slots = dyn_cast<ChunkSlotsOp>(op))
    return lowerChunks(op, slots.getQueryStart(), predicate);
  if (isa<ExpandRowsOp, ConvertIndicesOp, LocalRowsOp, TakeRowsOp, WriteRowsOp,
          memref::CopyOp, linalg::FillOp, memref::StoreOp>(op))
    return lowerRowOp(op, predicate);
  return op->emitOpError("has no form on the GPU");
}

/// What is left must not touch device memory.
LogicalResult FunctionLowering::verifyHostOnly() {
  WalkResult result = function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isa<gpu::LaunchOp>(op))
      return WalkResult::skip();
    if (auto load = dyn_cast<memref::LoadOp>(op)) {
      load.emitOpError("reads on the host what is in device memory: ")
          << load.getMemRefType();
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult FunctionLowering::run() {
  if (!llvm::hasSingleElement(function.getBody()))
    return function.emitOpError(
        "has a control flow graph, which has no form on "
        "the GPU: use scf");
  unsigned numResults = function.getNumResults();
  if (failed(moveResultsToArguments()))
    return failure();
  writeResultsInPlace(numResults);
  auto b = OpBuilder::atBlockBegin(&function.front());
  device = DeviceContextOp::create(b, function.getLoc(), b.getIndexType());
  SmallVector<Operation *> ops = getOps(function.front());
  if (failed(lowerOps(ArrayRef(ops).drop_front(), Value())))
    return failure();
  for (Operation *op : llvm::reverse(lowered))
    op->erase();

  // Values of the device that kernels have computed for themselves.
  function.walk<WalkOrder::PostOrder, ReverseIterator>([&](Operation *op) {
    if (isOpTriviallyDead(op) ||
        (op->use_empty() && isa<WorkspaceOp, memref::LoadOp>(op) &&
         !op->getParentOfType<gpu::LaunchOp>()))
      op->erase();
  });
  freeBuffers(function);
  return verifyHostOnly();
}

/// Of ops with kernels, the forms that have none.
static LogicalResult verifyKnownForms(ModuleOp module) {
  WalkResult result =
      module.walk([](SparseMlaOp op) { return WalkResult(verifyOwnKeys(op)); });
  return failure(result.wasInterrupted());
}

void ConvertShardQToGPUPass::runOnOperation() {
  ModuleOp module = getOperation();
  for (auto [name, value] :
       {std::pair<StringRef, int64_t>{"shared-bytes", sharedBytes},
        {"scratch-bytes", scratchBytes}})
    if (value < 0 || value > (int64_t(1) << 40)) {
      emitError(module.getLoc(), "convert-shardq-to-gpu: ")
          << name << " is " << value << ", expected 0 to 2^40";
      return signalPassFailure();
    }
  if (failed(verifyInFunctionsOf(module)) ||
      failed(verifyOnStridedBuffers(module)))
    return signalPassFailure();
  for (Operation &op : *module.getBody()) {
    auto name = op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
    auto declared = dyn_cast<LLVM::LLVMFuncOp>(op);
    if (name && name.getValue().starts_with("shardq_device_") &&
        !(declared && declared.isExternal())) {
      op.emitOpError("is named ")
          << name << ", which is a name of ShardQ's device library";
      return signalPassFailure();
    }
  }
  if (failed(verifyKnownForms(module)))
    return signalPassFailure();
  declareDeviceLibrary(module);
  KernelNames names(module);
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
    if (function.isExternal())
      continue;
    ConvertShardQToGPUOptions options{scratchBytes, sharedBytes, startEarly,
                                      overlap};
    if (failed(FunctionLowering(function, options, names).run()))
      return signalPassFailure();
  }
  names.note();
}
