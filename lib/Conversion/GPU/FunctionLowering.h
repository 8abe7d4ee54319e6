//===- FunctionLowering.h - A function as code that launches ----*- C++ -*-===//
//
// What lowers the ops of one function, in program order. ConvertShardQToGPU.cpp
// has the walk and the ops that are kernels, Exchanges.cpp what travels between
// ranks, and Results.cpp what the function returns.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_FUNCTIONLOWERING_H
#define SHARDQ_LIB_CONVERSION_GPU_FUNCTIONLOWERING_H

#include "DeviceValues.h"
#include "Kernels.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "shardq/Conversion/Passes.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::shardq {

/// Names that outlining will find free, and what is to be known of the kernels
/// then.
class KernelNames {
public:
  explicit KernelNames(ModuleOp module) : module(module) {}

  StringAttr add(const llvm::Twine &wanted, const KernelShape &shape) {
    std::string name = wanted.str();
    for (int64_t i = 0; !used.insert(name).second; ++i)
      name = (wanted + "_" + llvm::Twine(i)).str();
    Builder b(module.getContext());
    resident.push_back(b.getNamedAttr(
        name, b.getI32IntegerAttr(static_cast<int32_t>(shape.residentBlocks))));
    return b.getStringAttr(name);
  }

  void note() {
    module->setAttr(kResidentBlocksAttrName,
                    DictionaryAttr::get(module.getContext(), resident));
  }

private:
  ModuleOp module;
  llvm::StringSet<> used;
  SmallVector<NamedAttribute> resident;
};

/// What the kernels of an exchange need where NCCL carries it.
struct Carriage {
  PushOp push;
  SmallVector<Value> operands; // of the push's kernels
  Value blockRows;             // a bound of the rows, for grids
  Value outbox, landing;       // [ranks][rows]; empty where nothing is carried
  int64_t rows = 0;            // of each rank
};

/// A gather whose push and signal run beside what stands in front of its wait.
struct Aside {
  WaitOp wait;    // null where there is none
  scf::IfOp push; // the launches
};

/// Lowers one function.
class FunctionLowering {
public:
  FunctionLowering(func::FuncOp function,
                   const ConvertShardQToGPUOptions &options, KernelNames &names)
      : function(function), scratchBytes(options.scratchBytes),
        sharedBytes(options.sharedBytes), startEarly(options.startEarly),
        overlap(options.overlap), names(names), context(function.getContext()) {
  }

  LogicalResult run();

private:
  using Emit = llvm::function_ref<void(KernelBuilder &, ValueRange)>;
  using EmitRows = void (*)(KernelBuilder &, Operation *, ValueRange);

  LogicalResult moveResultsToArguments();
  void writeResultsInPlace(unsigned numResults);

  LogicalResult lowerOps(ArrayRef<Operation *> ops, Value predicate);
  LogicalResult lowerOp(Operation *op, Value predicate);
  LogicalResult lowerEffect(Operation *op, Value predicate);
  LogicalResult flatten(scf::IfOp op, Value predicate);
  LogicalResult lowerHostBranch(scf::IfOp op, Value predicate);
  LogicalResult lowerLoop(scf::ForOp op, Value predicate);
  LogicalResult verifyCarried(scf::ForOp op);
  LogicalResult lowerAlloc(memref::AllocOp op);
  LogicalResult lowerIndexer(IndexerOp op, Value predicate);
  LogicalResult lowerAttention(SparseMlaOp op, Value predicate);
  LogicalResult lowerRowOp(Operation *op, Value predicate);
  LogicalResult lowerScalar(Operation *op, Value predicate);
  LogicalResult lowerSplit(ZigzagSplitOp op, Value predicate);
  LogicalResult lowerTopK(TopKOp op, Value predicate);
  LogicalResult lowerTap(TapOp op, Value predicate);
  Value getWhole(Operation *before, Value view, Value predicate);
  LogicalResult lowerRows(Operation *op, const KernelShape &shape,
                          EmitRows emit, Value predicate);
  LogicalResult lowerBlocks(GatherBlocksOp op, Value predicate);
  LogicalResult noteChunkRows(CountChunkRowsOp op, Value count);
  LogicalResult lowerChunks(Operation *op, Value queryStart, Value predicate);

  // Exchanges: straight into peers' memory, or carried by NCCL.
  LogicalResult lowerExchange(Operation *op, Value predicate);
  void lowerPush(PushOp op, ArrayRef<Value> operands, Value rows,
                 Value predicate);
  void lowerSignal(SignalOp op, ArrayRef<Value> operands, Value rows,
                   Value predicate);
  LogicalResult lowerWait(WaitOp op, ArrayRef<Value> operands, Value rows,
                          Value predicate);
  LogicalResult findCarriage(WaitOp wait, Carriage *&carriage);
  int64_t getCarriedRows(PushOp op);
  Value getInboxRows(PushOp op);
  Value getPushedRows(PushOp op);
  Value isCarried(int32_t channel);
  scf::IfOp whereCarried(Operation *before, int32_t channel, bool hasElse);
  void announce(Operation *at, SignalOp op, ArrayRef<Value> operands,
                Value rows, Value predicate);
  bool beginAside(PushOp op, ArrayRef<Value> operands, Value predicate);
  void putAside(SignalOp op, scf::IfOp branch);
  void unpack(Operation *at, const Carriage &carriage, Value predicate);

  void launch(Operation *op, Twine name, const KernelShape &shape, Value rows,
              ValueRange operands, Value predicate, Emit emit);
  FailureOr<Value> getRows(Operation *op);
  LogicalResult verifyFresh(Operation *op, Value predicate);
  LogicalResult verifyShape(Operation *op, const KernelShape &shape);
  LogicalResult verifyHostOnly();

  func::FuncOp function;
  int64_t scratchBytes, sharedBytes;
  bool startEarly, overlap;
  KernelNames &names;
  MLIRContext *context;
  DeviceValues values;
  Value device;
  llvm::DenseMap<int32_t, Value> carried; // i1 by channel, on the host
  /// Of pushes that were met, by exchange and channel.
  llvm::DenseMap<std::pair<int64_t, int64_t>, Carriage> carriages;
  Aside aside; // under way
  SmallVector<Operation *> lowered;
  /// Among them those that a launch in front of them has taken along.
  llvm::SmallPtrSet<Operation *, 4> launched;
};

/// Ranks of the group that a push is over.
int64_t getGroupRanks(PushOp op);

/// What is cast, whatever it is cast to.
Value stripCasts(Value value);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_FUNCTIONLOWERING_H
