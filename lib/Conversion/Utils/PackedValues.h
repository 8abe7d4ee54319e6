//===- PackedValues.h - Numbers of 8 bits and their scales ------*- C++ -*-===//
//
// In integers and f32 additions alone, which round alike on every target: no
// target has conversions of all these types, and subnormal numbers may be
// flushed.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_LIB_CONVERSION_UTILS_PACKEDVALUES_H
#define SHARDQ_LIB_CONVERSION_UTILS_PACKEDVALUES_H

#include "LoopBuilder.h"
#include "shardq/IR/ShardQ.h"

namespace mlir::shardq {

/// The f32 that a byte of the format is, before its scale. `byte` is an i32 of
/// which the other bits are 0.
Value decodeValue(LoopBuilder &b, PackedRowsAttr format, Value byte);

/// The byte of an f32 of no more than the format's largest number, in the
/// lowest bits of an i32; the others are 0.
Value encodeValue(LoopBuilder &b, PackedRowsAttr format, Value value);

/// The scale of a group by the largest of its bf16 values' bits without the
/// sign (i32). `isFinite` becomes false where bytes are to be 0.
Value getScale(LoopBuilder &b, PackedRowsAttr format, Value largest,
               Value &isFinite);

/// The i32 of a bf16, and back.
Value getBits(LoopBuilder &b, Value bf16);
Value fromBits(LoopBuilder &b, Value bits);
/// The f32 whose upper half are the lower 16 bits of an i32.
Value widenBits(LoopBuilder &b, Value bits);

/// `count` bytes of a row, from `column` on, as one i32, the first the lowest.
Value loadBytes(LoopBuilder &b, Value bytes, Value row, Value column,
                int64_t count);
void storeBytes(LoopBuilder &b, Value bits, Value bytes, Value row,
                Value column, int64_t count);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_UTILS_PACKEDVALUES_H
