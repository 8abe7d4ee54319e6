//===- Signature.h - What an entry function's arguments mean ----*- C++ -*-===//
//
// A program does not say what an argument is for. It follows from the ops that
// use it: the first operand of `expand_rows` is a list of query starts, what
// `sparse_mla` takes as `kv` is a cache. Uses are followed through casts,
// `take_rows`, control flow and calls.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUN_SIGNATURE_H
#define SHARDQ_RUN_SIGNATURE_H

#include "Array.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "shardq/IR/ShardQ.h"

namespace mlir {
class AsmParserState;
} // namespace mlir

namespace mlir::shardq::run {

enum class Role {
  Unknown,
  QueryStart,     // [R + 1]
  SeqLens,        // [R]
  Rows,           // index: rows of the step
  Decodes,        // index: decode rows of the step
  Table,          // [R, M]
  Cache,          // [rows, dim]: latent KV or index keys
  Query,          // [T, ...] scaled so that a softmax over it is not degenerate
  RowData,        // [T, ...] any other floats of rows
  Weights,        // [T, H] of the indexer, both signs
  Req,            // [T]
  Visible,        // [T]
  Positions,      // [T, K] request-relative, ascending
  Slots,          // [T, K] physical
  TopkLength,     // [T]
  Sink,           // [H]
  PrefillReq,     // [T]
  WorkspaceStart, // [P], P prefill requests
  Scores,         // [T, longest sequence]
  RowIds,         // [T] rows of the step
  SlotMap,        // [T] where each row's KV is written
  TokenIds,       // [T] as of zigzag_split
  Offsets,        // [W + 1] as of zigzag_split
  After,          // [decode rows, ...]
  Projection      // weights of heads
};

llvm::StringRef getRoleName(Role role);
/// Whether dimension 0 is the rows of the step.
bool isRowRole(Role role);

struct Argument {
  std::string name; // without the '%'; its number where the text has none
  Type type;        // of one rank
  Element element = Element::F32;
  SplitAttr split;
  AxisAttr splitAxis;
  Role role = Role::Unknown;

  /// Blocks of a table and of the caches that it addresses.
  int64_t blockSize = 0;
  int64_t blockStride = 0;
  /// The argument that holds a cache's or slots' table, or another cache with
  /// the same pages; -1 where there is none.
  int table = -1;
  /// Slots and slot maps: the argument that holds the cache they point into,
  /// -1 for none.
  int cache = -1;
  /// The cache holds prefill workspace behind its pages.
  bool hasWorkspace = false;
  /// A table, cache or slot map of which each rank of the axis has its own
  /// tokens.
  AxisAttr kvAxis;
  int64_t interleave = 0;
  /// Of a cache that each rank has whole, read through a view of a table whose
  /// tokens are divided over this axis.
  AxisAttr viewAxis;
  int64_t blocksPerBlock = 1;
  /// Of rows of bytes, how they are packed; null for others.
  PackedRowsAttr format;
  /// A table or cache that an op reads as a whole.
  bool isWhole = false;
  /// Of a cache: it is addressed by tables or in blocks that differ.
  bool hasOtherTable = false;
  /// Query: the softmax scale. Projection: the deviation of its values.
  double scale = 1;

  /// Sizes of the global array; dynamic dimensions stay dynamic.
  SmallVector<int64_t, 4> getGlobalShape() const;
};

struct Result {
  Type type;
  Element element = Element::F32;
  SplitAttr split;
  AxisAttr splitAxis;
  /// Each rank of the axis has its shard of the step's rows.
  bool isShard = false;
  /// The argument that is a sharded cache, or a view's, and that this is when
  /// rows have been written; -1 where it is none.
  int cache = -1;
  /// Such a cache, or its table, that this is made of otherwise; -1 for none.
  int ownPart = -1;

  /// Rows of a rank's block, where the type leaves them open.
  int64_t getRows(int64_t stepRows) const {
    return isShard ? stepRows / splitAxis.getSize() : stepRows;
  }
};

struct Signature {
  func::FuncOp entry;
  MeshOp mesh; // null without one
  std::vector<Argument> arguments;
  std::vector<Result> results;
  /// What the program's ops say; nothing where no op does.
  std::optional<int64_t> speculativeTokens;
  std::optional<int64_t> blockSize;
  /// Tokens behind each sequence that draft steps of known numbers attend, and
  /// arguments that are such numbers, each with the tokens drafted before.
  int64_t draftTokens = 0;
  SmallVector<std::pair<unsigned, int64_t>> draftSteps;
  /// The k of its top-k, which the gate compares sequences with; 0 without.
  int64_t topk = 0;

  /// Ranks of the mesh, or 1.
  int64_t getNumRanks() const;
  /// First index of a rank's block along the split dimension.
  int64_t getBlock(AxisAttr axis, int64_t rank) const;
  /// The number of the argument of that name or number.
  std::optional<unsigned> find(llvm::StringRef name) const;
};

/// Finds the entry: `name`, or with an empty name the only public function
/// that no other calls.
llvm::Expected<func::FuncOp> findEntry(ModuleOp module, llvm::StringRef name);

/// `names` gives the arguments' names where the text was parsed with it.
llvm::Expected<Signature> analyzeSignature(func::FuncOp entry,
                                           const AsmParserState *names);

/// The signature of the entry of a module that passes have changed, in which
/// the signature's own may be gone: an argument that was split may be taken as
/// a whole. An error where it takes others than that, since arrays are cut by
/// what the signature says.
llvm::Expected<Signature> adaptSignature(const Signature &signature,
                                         ModuleOp changed,
                                         llvm::StringRef name);

/// The functions that the entry reaches through calls, itself first.
SmallVector<func::FuncOp> getReachable(func::FuncOp entry);

/// The op that made a value, seen through casts, rows taken, control flow and
/// calls; null where it is an argument of the entry.
Operation *findProducer(Value value, func::FuncOp entry);
/// The entry's argument that a value is, seen through the same; null if none.
BlockArgument findArgument(Value value, func::FuncOp entry);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_SIGNATURE_H
