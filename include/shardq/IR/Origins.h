//===- Origins.h - Where values are handed on from --------------*- C++ -*-===//

#ifndef SHARDQ_IR_ORIGINS_H
#define SHARDQ_IR_ORIGINS_H

#include "mlir/IR/Value.h"

namespace mlir::shardq {

/// Collects where the elements of `value` come from, if it is handed on: by
/// branches and loops, or by ops of upstream's dialects that choose, slice,
/// reshape or put together, casts not among them. Other ops make values.
/// Verifiers may ask: what is around them, and behind, may lack operands.
void getOrigins(Value value, SmallVectorImpl<Value> &origins);

} // namespace mlir::shardq

#endif // SHARDQ_IR_ORIGINS_H
