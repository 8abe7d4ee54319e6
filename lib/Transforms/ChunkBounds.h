//===- ChunkBounds.h - Steps whose chunks inboxes do not hold ---*- C++ -*-===//

#ifndef SHARDQ_LIB_TRANSFORMS_CHUNKBOUNDS_H
#define SHARDQ_LIB_TRANSFORMS_CHUNKBOUNDS_H

#include "shardq/IR/ShardQ.h"

namespace mlir::shardq {

/// The largest step that inboxes hold.
struct StepBounds {
  int64_t tokens, requests;
};

/// Whether the op divides a step in chunks and takes this number of whole rows.
bool takesWholeRows(Operation *op, Value wholeRows);

/// Has steps that are too large divided into no chunks: all of their rows are
/// whole, as those of decode requests are, so what is gathered in steps with
/// chunks alone is not gathered then. Changes nothing where that is so already.
void boundChunks(ModuleOp module, const StepBounds &bounds);

/// Whether the rows are gathered in steps with chunks alone, and of these
/// inboxes hold all that there are.
bool isBoundedGather(GatherRowsOp gather, const StepBounds &bounds);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_TRANSFORMS_CHUNKBOUNDS_H
