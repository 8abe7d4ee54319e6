//===- OperandNames.h - Operands as documentation has them ------*- C++ -*-===//

#ifndef SHARDQ_IR_OPERANDNAMES_H
#define SHARDQ_IR_OPERANDNAMES_H

#include "mlir/IR/Operation.h"
#include <string>

namespace mlir::shardq {

/// What the op's documentation calls the operand at `position`.
std::string getOperandName(Operation *op, unsigned position);

/// The same with the op, of what is compared: "rows of 'slots' of
/// shardq.sparse_mla".
std::string describeRows(OpOperand &operand);

} // namespace mlir::shardq

#endif // SHARDQ_IR_OPERANDNAMES_H
