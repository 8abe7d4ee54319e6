//===- Packed.h - Rows of 8-bit values with scales --------------*- C++ -*-===//
//
// In float64 and from the definitions: what the lowerings of packed rows are
// held to.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUN_PACKED_H
#define SHARDQ_RUN_PACKED_H

#include "Array.h"
#include "shardq/IR/ShardQ.h"

namespace mlir::shardq::run {

/// Value `d` of the row that begins at `row`.
float unpackValue(PackedRowsAttr format, const uint8_t *row, int64_t d);

/// Writes a row from its values, which bf16 holds.
void packRow(PackedRowsAttr format, const float *values, uint8_t *row);

/// All rows of an array, as bf16.
llvm::Expected<Array> unpackRows(PackedRowsAttr format, const Array &packed);
llvm::Expected<Array> packRows(PackedRowsAttr format, const Array &rows);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_PACKED_H
