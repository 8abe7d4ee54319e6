//===- OperandNames.cpp - Operands as documentation has them --------------===//

#include "shardq/IR/OperandNames.h"
#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::shardq;

template <typename OpTy>
static std::string getNameAmong(OpTy op, unsigned position,
                                ArrayRef<StringRef> names) {
  for (auto [i, name] : llvm::enumerate(names)) {
    auto [first, size] = op.getODSOperandIndexAndLength(i);
    if (position >= first && position < first + size)
      return ("'" + name + "'").str();
  }
  return "operand #" + std::to_string(position);
}

std::string mlir::shardq::getOperandName(Operation *op, unsigned position) {
  if (auto twoForms = dyn_cast<TwoFormOpInterface>(op);
      twoForms && position >= twoForms.getIns().size())
    return "'outs'";
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case([&](ConvertIndicesOp op) {
        return getNameAmong(op, position,
                            {"indices", "table", "req", "prefill_req"});
      })
      .Case([&](FilterIndicesOp op) {
        return getNameAmong(op, position, {"indices", "table", "req"});
      })
      .Case([&](GatheredSlotsOp op) {
        return getNameAmong(op, position,
                            {"indices", "inverse", "count", "req"});
      })
      .Case([&](TokenSlotsOp op) {
        return getNameAmong(op, position, {"table", "req", "visible"});
      })
      .Case([&](WriteRowsOp op) {
        return getNameAmong(op, position, {"source", "slots", "cache"});
      })
      .Case([&](IndexerOp op) {
        return getNameAmong(
            op, position, {"q", "weights", "keys", "table", "req", "visible"});
      })
      .Case([&](TopKOp op) {
        return getNameAmong(op, position, {"scores", "visible"});
      })
      .Case([&](SparseMlaOp op) {
        return getNameAmong(op, position,
                            {"q", "kv", "slots", "req", "topk_length"});
      })
      .Case([&](CombineLseOp op) {
        return getNameAmong(op, position, {"partial", "lse", "sink"});
      })
      .Case([&](WeighPartialOp op) {
        return getNameAmong(op, position, {"partial", "lses"});
      })
      .Case([&](DraftLengthsOp op) {
        return getNameAmong(op, position, {"lengths", "step"});
      })
      .Case([&](TakeRowsOp op) {
        return getNameAmong(op, position, {"source", "rows"});
      })
      .Case([&](ExpandRowsOp op) {
        return getNameAmong(op, position, {"query_start", "seq_lens", "rows"});
      })
      .Case([&](MergeLseOp op) {
        return getNameAmong(op, position, {"inbox", "out", "merged", "sink"});
      })
      .Case<GatherQueryOp, GatherRowsOp>(
          [&](auto) { return "source " + std::to_string(position); })
      .Case([&](ExchangeOp op) {
        return position < op.getSources().size()
                   ? "source " + std::to_string(position)
                   : getNameAmong(op, position,
                                  {"source", "ids", "offsets", "decodes"});
      })
      .Case([&](ReduceHeadsOp op) {
        return getNameAmong(op, position, {"source"});
      })
      .Case([&](PushOp op) {
        if (position >= op.getSources().size())
          return getNameAmong(
              op, position,
              {"source", "ids", "offsets", "decodes", "blocks", "inbox"});
        return "source " + std::to_string(position) + " of " +
               stringifyDirection(op.getDirection()).str();
      })
      .Default("operand #" + std::to_string(position));
}

std::string mlir::shardq::describeRows(OpOperand &operand) {
  Operation *op = operand.getOwner();
  return "rows of " + getOperandName(op, operand.getOperandNumber()) + " of " +
         op->getName().getStringRef().str();
}
