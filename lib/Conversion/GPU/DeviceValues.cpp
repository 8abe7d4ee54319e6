//===- DeviceValues.cpp - What only the device knows ----------------------===//

#include "DeviceValues.h"
#include "../Utils/Operands.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::shardq;

/// Nothing is remembered from one question to the next: ops come and go.
static bool isDeviceValue(Value value, llvm::DenseMap<Value, bool> &seen) {
  Operation *op = value.getDefiningOp();
  // Arguments of functions and of host loops.
  if (!op)
    return false;
  if (isa<memref::LoadOp, CountDecodeRowsOp, CountChunkRowsOp, SplitGateOp,
          GatherGateOp, WorkspaceOp>(op))
    return true;
  if (op->getNumRegions() != 0 || !isMemoryEffectFree(op))
    return false;
  if (auto it = seen.find(value); it != seen.end())
    return it->second;
  bool result = llvm::any_of(op->getOperands(), [&](Value operand) {
    return isDeviceValue(operand, seen);
  });
  seen[value] = result;
  return result;
}

bool DeviceValues::isDevice(Value value) {
  llvm::DenseMap<Value, bool> seen;
  return isDeviceValue(value, seen);
}

Value DeviceValues::getDimBound(OpBuilder &b, Location loc, Value buffer,
                                int64_t dim) {
  auto type = cast<MemRefType>(buffer.getType());
  if (!type.isDynamicDim(dim))
    return arith::ConstantIndexOp::create(b, loc, type.getDimSize(dim));
  if (!isDevice(buffer))
    return memref::DimOp::create(b, loc, buffer, dim);
  Operation *op = buffer.getDefiningOp();
  if (auto view = dyn_cast<memref::SubViewOp>(op);
      view && view.getSourceType().getRank() == type.getRank()) {
    OpFoldResult size = view.getMixedSizes()[dim];
    if (auto value = dyn_cast<Value>(size))
      return getBound(b, loc, value);
  }
  if (isa<memref::CastOp, memref::MemorySpaceCastOp>(op))
    return getDimBound(b, loc, op->getOperand(0), dim);
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    Value a = getDimBound(b, loc, select.getTrueValue(), dim);
    Value c = getDimBound(b, loc, select.getFalseValue(), dim);
    return a && c ? Value(arith::MaxSIOp::create(b, loc, a, c)) : Value();
  }
  if (auto inbox = dyn_cast<WorkspaceOp>(op)) {
    unsigned position = 0;
    for (int64_t i = 0; i < dim; ++i)
      position += type.isDynamicDim(i);
    return getBound(b, loc, inbox.getSizes()[position]);
  }
  return stepRows;
}

/// Rows of the largest step that a workspace was planned for.
static int64_t getPlannedRows(WorkspaceOp op) {
  auto plan =
      SymbolTable::lookupNearestSymbolFrom<PlanOp>(op, op.getPlanAttr());
  auto type = cast<MemRefType>(op.getType());
  int64_t rowBytes = type.getElementTypeBitWidth() / 8;
  for (int64_t size : type.getShape().drop_front())
    rowBytes *= std::max<int64_t>(size, 1);
  auto channel = cast<ChannelAttr>(plan.getChannels()[op.getChannel()]);
  return channel.getBytes() / rowBytes;
}

/// Of a number of rows that is a number from memory times a constant, where
/// that memory is and the constant; else null.
static Value findBlockCount(Value rows, int64_t &blockRows) {
  blockRows = 1;
  while (Operation *op = rows.getDefiningOp()) {
    std::optional<int64_t> factor;
    if (auto product = dyn_cast<arith::MulIOp>(op)) {
      unsigned side = getConstantIntValue(product.getRhs()) ? 1 : 0;
      factor = getConstantIntValue(op->getOperand(side));
      rows = op->getOperand(1 - side);
      if (!factor || *factor <= 0 ||
          llvm::MulOverflow(blockRows, *factor, blockRows))
        return {};
    } else if (isa<arith::IndexCastOp>(op)) {
      rows = op->getOperand(0);
    } else {
      break;
    }
  }
  auto load = rows.getDefiningOp<memref::LoadOp>();
  if (!load || load.getMemRefType().getRank() != 1 ||
      load.getMemRefType().getDimSize(0) != 1)
    return {};
  Value memory = load.getMemRef();
  while (auto cast = memory.getDefiningOp<memref::CastOp>())
    memory = cast.getSource();
  return memory;
}

Value DeviceValues::getBound(OpBuilder &b, Location loc, Value size) {
  if (!isDevice(size))
    return size;
  int64_t blockRows;
  Value memory = findBlockCount(size, blockRows);
  if (auto found = mostBlocks.find(memory); found != mostBlocks.end())
    return arith::ConstantIndexOp::create(b, loc, found->second * blockRows);
  if (Value most = mostRows.lookup(memory))
    return arith::MulIOp::create(
        b, loc, most, arith::ConstantIndexOp::create(b, loc, blockRows));
  Operation *op = size.getDefiningOp();
  if (auto dim = dyn_cast<memref::DimOp>(op))
    if (std::optional<int64_t> index = dim.getConstantIndex();
        index && isa<MemRefType>(dim.getSource().getType()))
      return getDimBound(b, loc, dim.getSource(), *index);
  // So many times what is bounded.
  if (auto product = dyn_cast<arith::MulIOp>(op))
    for (unsigned side : {0, 1})
      if (std::optional<int64_t> factor =
              getConstantIntValue(product->getOperand(side));
          factor && *factor > 0) {
        Value bound = getBound(b, loc, product->getOperand(1 - side));
        return bound ? Value(arith::MulIOp::create(b, loc, bound,
                                                   product->getOperand(side)))
                     : Value();
      }
  if (isa<arith::MinSIOp>(op))
    for (Value operand : op->getOperands())
      if (!isDevice(operand))
        return operand;
  return stepRows;
}

void DeviceValues::noteWorkspace(WorkspaceOp op) {
  signalsBefore[op] = signals.lookup(op.getChannel());
  if (!cast<MemRefType>(op.getType()).isDynamicDim(0))
    return;
  int64_t blockRows;
  Value count = findBlockCount(op.getSizes().front(), blockRows);
  // A count that the step bounds may be beyond the inbox: in steps that do not
  // fit nothing is exchanged.
  if (count && !mostRows.contains(count))
    mostBlocks[count] = getPlannedRows(op) / blockRows;
}

void mlir::shardq::findRoots(Value buffer,
                             llvm::SmallPtrSetImpl<Value> &roots) {
  Operation *op = buffer.getDefiningOp();
  if (isa_and_nonnull<ViewLikeOpInterface, memref::CastOp>(op))
    return findRoots(op->getOperand(0), roots);
  if (auto select = dyn_cast_or_null<arith::SelectOp>(op)) {
    findRoots(select.getTrueValue(), roots);
    return findRoots(select.getFalseValue(), roots);
  }
  roots.insert(buffer);
}

void DeviceValues::noteWrites(Operation *op) {
  if (loads.empty())
    return;
  llvm::SmallPtrSet<Value, 4> written;
  op->walk([&](MemoryEffectOpInterface writer) {
    SmallVector<MemoryEffects::EffectInstance> effects;
    writer.getEffects(effects);
    for (const MemoryEffects::EffectInstance &effect : effects)
      if (isa<MemoryEffects::Write>(effect.getEffect()) && effect.getValue())
        findRoots(effect.getValue(), written);
  });
  if (written.empty())
    return;
  for (memref::LoadOp load : loads) {
    llvm::SmallPtrSet<Value, 4> read;
    findRoots(load.getMemRef(), read);
    if (llvm::any_of(read, [&](Value root) { return written.contains(root); }))
      stale.insert(load);
  }
}

/// Loads that `value` is computed from.
void DeviceValues::forEachLoad(Value value,
                               llvm::function_ref<void(memref::LoadOp)> use) {
  llvm::SmallPtrSet<Value, 8> seen;
  SmallVector<Value> values{value};
  while (!values.empty()) {
    Value next = values.pop_back_val();
    if (!seen.insert(next).second || !isDevice(next))
      continue;
    Operation *op = next.getDefiningOp();
    if (auto load = dyn_cast<memref::LoadOp>(op))
      use(load);
    llvm::append_range(values, op->getOperands());
  }
}

memref::LoadOp DeviceValues::findStale(Value value) {
  memref::LoadOp found;
  if (!stale.empty())
    forEachLoad(value, [&](memref::LoadOp load) {
      if (!found && stale.contains(load))
        found = load;
    });
  return found;
}

void DeviceValues::findLoaded(Value value,
                              llvm::SmallPtrSetImpl<Value> &roots) {
  forEachLoad(value,
              [&](memref::LoadOp load) { findRoots(load.getMemRef(), roots); });
}

Value DeviceValues::compute(OpBuilder &b, Value value, Value device,
                            IRMapping &copies) {
  if (!isDevice(value))
    return value;
  if (Value copy = copies.lookupOrNull(value))
    return copy;
  Operation *op = value.getDefiningOp();
  Value result;
  if (auto inbox = dyn_cast<WorkspaceOp>(op)) {
    result = computeInbox(b, inbox, device, copies);
  } else {
    for (Value operand : op->getOperands())
      if (isDevice(operand) && !copies.contains(operand))
        compute(b, operand, device, copies);
    b.clone(*op, copies);
    return copies.lookup(value);
  }
  copies.map(value, result);
  return result;
}

Value DeviceValues::computeInbox(OpBuilder &b, WorkspaceOp op, Value device,
                                 IRMapping &copies) {
  Location loc = op.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  int64_t since = signals.lookup(op.getChannel()) - signalsBefore.lookup(op);
  Value channel = LLVM::ConstantOp::create(b, loc, i32, op.getChannelAttr());
  Value count =
      LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(since));
  Value address =
      LLVM::CallOp::create(b, loc, TypeRange{pointer}, "shardq_device_inbox",
                           ValueRange{device, channel, count})
          .getResult();

  // A step beyond the plan is an error that the push records; what reads and
  // writes the inbox stays inside it all the same.
  auto type = cast<MemRefType>(op.getType());
  Value most = arith::ConstantIndexOp::create(b, loc, getPlannedRows(op));
  SmallVector<Value> sizes;
  for (Value size : op.getSizes()) {
    Value here = compute(b, size, device, copies);
    if (sizes.empty() && type.isDynamicDim(0))
      here = arith::MinSIOp::create(b, loc, here, most);
    sizes.push_back(here);
  }
  return createBufferAt(b, loc, type, address, sizes);
}

void mlir::shardq::declareDeviceLibrary(ModuleOp module) {
  auto b = OpBuilder::atBlockBegin(module.getBody());
  MLIRContext *context = module.getContext();
  auto pointer = LLVM::LLVMPointerType::get(context);
  auto none = LLVM::LLVMVoidType::get(context);
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  auto declare = [&](StringRef name, Type result, ArrayRef<Type> arguments) {
    if (!module.lookupSymbol(name))
      LLVM::LLVMFuncOp::create(b, module.getLoc(), name,
                               LLVM::LLVMFunctionType::get(result, arguments));
  };
  // runtime/device/Device.cpp
  declare("shardq_device_inbox", pointer, {pointer, i32, i64});
  declare("shardq_device_peer", pointer, {pointer, pointer, i64});
  declare("shardq_device_ok", i32, {pointer});
  declare("shardq_device_admit", i32, {pointer, i32, i32, i64, i64});
  for (StringRef wrong :
       {"shardq_device_beyond_table", "shardq_device_wrong_start"})
    declare(wrong, none, {pointer, i64, i64, i64, i64});
  for (StringRef wrong :
       {"shardq_device_no_place", "shardq_device_beyond_cache",
        "shardq_device_split_request"})
    declare(wrong, none, {pointer, i64, i64, i64});
  for (StringRef wrong :
       {"shardq_device_wrong_decodes", "shardq_device_expect"})
    declare(wrong, none, {pointer, i64, i64});
  for (StringRef flag : {"shardq_device_signal", "shardq_device_wait"})
    declare(flag, none, {pointer, i32, i32, i64, i64, i64, pointer});
  declare("shardq_device_announce", none,
          {pointer, i32, i32, i64, i64, i64, pointer, pointer});
  declare("shardq_device_exchange", none,
          {pointer, i32, i32, i64, i64, i64, pointer, pointer, i32});
}
