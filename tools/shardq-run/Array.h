//===- Array.h - Dense host arrays with a runtime element type --*- C++ -*-===//

#ifndef SHARDQ_RUN_ARRAY_H
#define SHARDQ_RUN_ARRAY_H

#include "mlir/IR/Types.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <optional>
#include <string>

namespace mlir::shardq::run {

/// What an array may hold. `index` values are kept as I64, 8-bit floats as I8:
/// nobody computes with them here.
enum class Element { BF16, F16, F32, I1, I8, I32, I64 };

unsigned getElementBytes(Element element);
llvm::StringRef getElementName(Element element);
bool isFloat(Element element);
/// The element of a scalar type, or of the elements of a shaped type.
std::optional<Element> getElement(Type type);
/// Distance from `value` to its neighbour in the format: the unit in which
/// errors are told. Zero and subnormals have the smallest subnormal's.
double getUlp(Element element, double value);

/// A row-major array. Copies share the data: an array is filled by whoever
/// allocates it and only read from then on.
struct Array {
  Element element = Element::F32;
  llvm::SmallVector<int64_t, 4> shape;
  std::shared_ptr<char> data;

  int64_t getNumElements() const;
  int64_t getNumBytes() const;
  /// Rows are dimension 0; a scalar is one row.
  int64_t getNumRows() const { return shape.empty() ? 1 : shape.front(); }
  int64_t getRowElements() const;

  template <typename T> T *as() const {
    return reinterpret_cast<T *>(data.get());
  }
  double getFloat(int64_t i) const;
  int64_t getInt(int64_t i) const;
  void setFloat(int64_t i, double value);
  void setInt(int64_t i, int64_t value);
};

/// A zeroed array. An error, in the name of `what`, where the size overflows
/// or does not fit this machine: both follow from user input.
llvm::Expected<Array> allocateArray(Element element,
                                    llvm::ArrayRef<int64_t> shape,
                                    const llvm::Twine &what);

/// "16x512xbf16".
std::string describe(Element element, llvm::ArrayRef<int64_t> shape);
std::string describe(const Array &array);

/// Writes a file whole. Errors name it.
llvm::Error writeText(llvm::StringRef path, llvm::StringRef text);

/// The shortest usual form of a number, for messages.
std::string formatNumber(double value);

uint16_t roundToBF16(float value);
float widenBF16(uint16_t bits);

template <typename... Ts>
llvm::Error makeError(const char *format, const Ts &...values) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), format,
                                 values...);
}
inline llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_ARRAY_H
