//===- RankDependence.h - Which values differ between ranks -----*- C++ -*-===//

#ifndef SHARDQ_ANALYSIS_RANKDEPENDENCE_H
#define SHARDQ_ANALYSIS_RANKDEPENDENCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace mlir::shardq {

/// Whether an op is run by all ranks of a group together: any collective of
/// level 2 (CollectiveOpInterface), `gather_kv_start`, `push`, `signal` or
/// `wait`.
bool isCollective(Operation *op);

/// Functions that reach a collective op, through calls too.
llvm::DenseSet<Operation *>
findCollectiveFunctions(ModuleOp module, SymbolTableCollection &symbols);

/// Whether a call may lead to one of `collective`: a call whose callee is not
/// known may lead anywhere.
bool mayCall(Operation *op, const llvm::DenseSet<Operation *> &collective,
             SymbolTableCollection &symbols);

/// Which values may differ between the ranks that run a module.
///
/// The numbers in a value and its shape are told apart: an argument with
/// `shardq.split` holds different numbers everywhere and has one shape, a
/// result of heads_to_tokens differs in both. Sound and simple: an op's
/// results depend on the rank when an operand does, and a buffer does when
/// anything that differs is ever written to it.
class RankDependence {
public:
  explicit RankDependence(ModuleOp module);

  /// The numbers may differ.
  bool isDependent(Value value) const { return get(value).contents; }

  /// The shape may differ.
  bool isShapeDependent(Value value) const { return get(value).shape; }

  /// The op that makes `op` run on some ranks and not on others, or null. Goes
  /// outwards through regions up to the function.
  Operation *getDivergentParent(Operation *op) const;

private:
  struct Bits {
    bool contents = false, shape = false;
    bool any() const { return contents || shape; }
  };
  Bits get(Value value) const { return bits.lookup(value); }
  bool join(Value value, Bits add);
  bool visit(Operation *op);
  bool visitRegions(Operation *op);
  bool visitBranch(Operation *op);
  bool visitCall(Operation *op);
  bool visitBuffers(Operation *op, Bits from);
  bool isDivergent(Operation *op) const;
  bool hasDivergentBranch(Region &region) const;

  llvm::DenseMap<Value, Bits> bits;
  /// Contents of memref.global buffers, by name.
  llvm::DenseMap<Attribute, Bits> globals;
  SymbolTableCollection symbols;
};

} // namespace mlir::shardq

#endif // SHARDQ_ANALYSIS_RANKDEPENDENCE_H
