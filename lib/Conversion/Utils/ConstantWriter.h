//===- ConstantWriter.h - C constants in LLVM modules -----------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_UTILS_CONSTANTWRITER_H
#define SHARDQ_LIB_CONVERSION_UTILS_CONSTANTWRITER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::shardq {

/// Appends constants with C layout to a module: texts, arrays, structs that
/// point to each other. A name that is taken gets a number.
class ConstantWriter {
public:
  using Fill = llvm::function_ref<Value(Value)>;

  explicit ConstantWriter(ModuleOp module)
      : symbols(module), b(module.getLoc(), module.getContext()),
        pointer(LLVM::LLVMPointerType::get(module.getContext())),
        i32(b.getI32Type()), i64(b.getI64Type()) {
    b.setInsertionPointToEnd(module.getBody());
  }

  /// Bytes as they are.
  LLVM::GlobalOp writeBytes(StringRef name, StringRef bytes,
                            int64_t alignment = 1) {
    auto type = LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size());
    return write(name, type, b.getStringAttr(bytes), alignment);
  }
  /// A zero-terminated text.
  LLVM::GlobalOp writeText(StringRef name, StringRef text) {
    return writeBytes(name, text.str() + '\0');
  }
  LLVM::GlobalOp writeArray(StringRef name, ArrayRef<int64_t> values) {
    auto type = LLVM::LLVMArrayType::get(i64, values.size());
    return write(name, type, b.getI64TensorAttr(values));
  }
  /// `fill` makes the value from an undefined one, by the functions below.
  LLVM::GlobalOp writeValue(StringRef name, Type type, Fill fill) {
    LLVM::GlobalOp global = write(name, type, Attribute());
    OpBuilder::InsertionGuard guard(b);
    b.createBlock(&global.getInitializerRegion());
    LLVM::ReturnOp::create(b, fill(LLVM::UndefOp::create(b, type)));
    return global;
  }

  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(b, type, b.getIntegerAttr(type, value));
  }
  /// Null for a null op.
  Value address(LLVM::GlobalOp global) {
    if (!global)
      return LLVM::ZeroOp::create(b, pointer);
    return LLVM::AddressOfOp::create(b, global);
  }
  /// Sets the fields of the struct at `position` in an aggregate.
  Value setFields(Value aggregate, ArrayRef<int64_t> position,
                  ValueRange fields) {
    for (auto [i, field] : llvm::enumerate(fields)) {
      SmallVector<int64_t> at(position);
      at.push_back(i);
      aggregate = LLVM::InsertValueOp::create(b, aggregate, field, at);
    }
    return aggregate;
  }

private:
  LLVM::GlobalOp write(StringRef name, Type type, Attribute value,
                       int64_t alignment = 0) {
    auto global =
        LLVM::GlobalOp::create(b, type, /*isConstant=*/true,
                               LLVM::Linkage::Internal, name, value, alignment);
    symbols.insert(global);
    return global;
  }

  SymbolTable symbols;

public:
  ImplicitLocOpBuilder b;
  const Type pointer, i32, i64;
};

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_UTILS_CONSTANTWRITER_H
