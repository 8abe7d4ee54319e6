//===- ShardQ.h - The ShardQ dialect ----------------------------*- C++ -*-===//
//
// Ops, attributes and interfaces of the dialect. Semantics, shapes and
// constraints of each are in docs/Dialect.md.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_IR_SHARDQ_H
#define SHARDQ_IR_SHARDQ_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <optional>

#include "shardq/IR/ShardQDialect.h.inc"
#include "shardq/IR/ShardQEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "shardq/IR/ShardQAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "shardq/IR/ShardQTypes.h.inc"

namespace mlir::shardq {
class CollectiveOpInterface;
namespace detail {
/// Reduce forms are those of a merge.
LogicalResult verifyTransport(CollectiveOpInterface op);
} // namespace detail
} // namespace mlir::shardq

#include "shardq/IR/ShardQInterfaces.h.inc"

namespace mlir::shardq {
// `custom<Direction>` of the ops' assembly.
ParseResult parseDirection(OpAsmParser &parser, DirectionAttr &direction);
void printDirection(OpAsmPrinter &printer, Operation *op,
                    DirectionAttr direction);
// `custom<PushTypes>`: `(sources), inbox`, `(sources), blocks, inbox` or
// `(sources), ids, offsets, inbox`.
ParseResult parsePushTypes(OpAsmParser &parser, SmallVectorImpl<Type> &sources,
                           Type &ids, Type &offsets, Type &blocks, Type &inbox);
void printPushTypes(OpAsmPrinter &printer, Operation *op, TypeRange sources,
                    Type ids, Type offsets, Type blocks, Type inbox);
} // namespace mlir::shardq

#define GET_OP_CLASSES
#include "shardq/IR/ShardQOps.h.inc"

namespace mlir::shardq {

/// Memory of other ranks. Ops that write it are collective: all ranks run the
/// same ones in the same order, so none may be dropped, moved or speculated.
struct PeerMemoryResource : SideEffects::Resource::Base<PeerMemoryResource> {
  StringRef getName() override { return "shardq.peer_memory"; }
};

/// Function argument and result attribute that holds a SplitAttr.
inline constexpr StringLiteral kSplitAttrName = "shardq.split";
/// Unit attribute of function arguments: the callee writes a result there.
inline constexpr StringLiteral kResultAttrName = "shardq.result";
/// Op attributes of lowered GPU modules: the kernels that a binary has, and
/// what each of them takes; see --shardq-assemble-kernels.
inline constexpr StringLiteral kKernelsAttrName = "shardq.kernels";
inline constexpr StringLiteral kResourcesAttrName = "shardq.resources";
/// Module attribute between two GPU passes: blocks of a kernel that a
/// multiprocessor is to hold, by name.
inline constexpr StringLiteral kResidentBlocksAttrName =
    "shardq.resident_blocks";
/// Op attribute of a function that C code calls: what it takes; see
/// --shardq-emit-entry-points.
inline constexpr StringLiteral kEntryPointAttrName = "shardq.entry_point";

/// The mesh and axis that `op` names by its `mesh` and `axis` attributes; a
/// null axis where either does not exist.
struct MeshAxis {
  MeshOp mesh;
  AxisAttr axis;
  explicit operator bool() const { return axis != nullptr; }
};
MeshAxis lookupMeshAxis(Operation *from, FlatSymbolRefAttr mesh,
                        StringRef axis);

/// Bytes behind the values of a head in an inbox of `combine_lse`. The first
/// four are the LSE as f32, the others keep rows whole for vector stores.
inline constexpr int64_t kLseBytes = 16;

/// Ranks that the KV cache of an attention with this sharding is divided over:
/// 1 where it is not. `from` is an op of the module.
int64_t getNumKvRanks(Operation *from, ShardingAttr sharding);

/// Rows of this rank's group, `offsets[r+1] - offsets[r]` with `r` the rank's
/// coordinate along the axis, as an index value. `offsets` may be a tensor or
/// a memref.
Value createGroupRows(OpBuilder &builder, Location loc, Value offsets,
                      FlatSymbolRefAttr mesh, StringAttr axis);

} // namespace mlir::shardq

#endif // SHARDQ_IR_SHARDQ_H
