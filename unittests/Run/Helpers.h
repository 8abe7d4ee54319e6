//===- Helpers.h - Modules and arrays for the tests -------------*- C++ -*-===//

#ifndef SHARDQ_UNITTESTS_RUN_HELPERS_H
#define SHARDQ_UNITTESTS_RUN_HELPERS_H

#include "Inputs.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/SourceMgr.h"
#include "gtest/gtest.h"
#include <limits>

namespace mlir::shardq::run {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// A parsed module and its arguments' names.
struct TestModule {
  MLIRContext context;
  llvm::SourceMgr sources;
  AsmParserState names;
  OwningOpRef<ModuleOp> module;

  explicit TestModule(llvm::StringRef text) {
    context.loadDialect<ShardQDialect, func::FuncDialect, arith::ArithDialect,
                        tensor::TensorDialect, scf::SCFDialect,
                        linalg::LinalgDialect>();
    sources.AddNewSourceBuffer(
        llvm::MemoryBuffer::getMemBufferCopy(text, "test"), SMLoc());
    Block block;
    ParserConfig config(&context);
    if (succeeded(parseAsmSourceFile(sources, &block, config, &names)))
      module = mlir::detail::constructContainerOpForParserIfNecessary<ModuleOp>(
          &block, &context, UnknownLoc::get(&context));
    EXPECT_TRUE(module);
  }

  func::FuncOp entry(llvm::StringRef name = "") {
    llvm::Expected<func::FuncOp> found = findEntry(*module, name);
    EXPECT_TRUE(bool(found)) << llvm::toString(found.takeError());
    return *found;
  }
  Signature signature() {
    llvm::Expected<Signature> result = analyzeSignature(entry(), &names);
    EXPECT_TRUE(bool(result)) << llvm::toString(result.takeError());
    return *result;
  }
};

inline Array makeArray(Element element, llvm::ArrayRef<int64_t> shape,
                       llvm::ArrayRef<double> values) {
  Array array = llvm::cantFail(allocateArray(element, shape, "test"));
  EXPECT_EQ(array.getNumElements(), int64_t(values.size()));
  for (size_t i = 0; i < values.size(); ++i)
    array.setFloat(i, values[i]);
  return array;
}

inline std::vector<int64_t> getInts(const Array &array) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < array.getNumElements(); ++i)
    values.push_back(array.getInt(i));
  return values;
}

/// The error's text, or "" for success.
template <typename T> std::string getError(llvm::Expected<T> value) {
  return value ? "" : llvm::toString(value.takeError());
}

} // namespace mlir::shardq::run

#endif // SHARDQ_UNITTESTS_RUN_HELPERS_H
