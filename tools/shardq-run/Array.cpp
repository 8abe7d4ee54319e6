//===- Array.cpp - Dense host arrays with a runtime element type ----------===//

#include "Array.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

unsigned run::getElementBytes(Element element) {
  switch (element) {
  case Element::I1:
  case Element::I8:
    return 1;
  case Element::BF16:
  case Element::F16:
    return 2;
  case Element::F32:
  case Element::I32:
    return 4;
  case Element::I64:
    return 8;
  }
  return 0;
}

StringRef run::getElementName(Element element) {
  static constexpr StringLiteral names[] = {"bf16", "f16", "f32", "i1",
                                            "i8",   "i32", "i64"};
  return names[unsigned(element)];
}

bool run::isFloat(Element element) { return element <= Element::F32; }

std::optional<Element> run::getElement(Type type) {
  if (auto shaped = dyn_cast<ShapedType>(type))
    type = shaped.getElementType();
  if (type.isBF16())
    return Element::BF16;
  if (type.isF16())
    return Element::F16;
  if (type.isF32())
    return Element::F32;
  if (type.isInteger(1))
    return Element::I1;
  if (type.isInteger(8) || isa<Float8E4M3FNType, Float8E5M2Type>(type))
    return Element::I8;
  if (type.isInteger(32))
    return Element::I32;
  if (type.isInteger(64) || type.isIndex())
    return Element::I64;
  return std::nullopt;
}

double run::getUlp(Element element, double value) {
  int digits = element == Element::BF16 ? 7 : element == Element::F16 ? 10 : 23;
  int lowest = element == Element::F16 ? -14 : -126;
  int exponent = lowest;
  if (value != 0 && std::isfinite(value))
    exponent = std::max(lowest, std::ilogb(value));
  return std::ldexp(1.0, exponent - digits);
}

int64_t Array::getNumElements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

int64_t Array::getNumBytes() const {
  return getNumElements() * getElementBytes(element);
}

int64_t Array::getRowElements() const {
  int64_t count = 1;
  for (int64_t size : llvm::drop_begin(shape, shape.empty() ? 0 : 1))
    count *= size;
  return count;
}

// Round to nearest even, as the targets do; NaN keeps a payload bit.
uint16_t run::roundToBF16(float value) {
  uint32_t bits = llvm::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return uint16_t(bits >> 16) | 0x40;
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float run::widenBF16(uint16_t bits) {
  return llvm::bit_cast<float>(uint32_t(bits) << 16);
}

double Array::getFloat(int64_t i) const {
  switch (element) {
  case Element::BF16:
    return widenBF16(as<uint16_t>()[i]);
  case Element::F16:
    return float(as<_Float16>()[i]);
  case Element::F32:
    return as<float>()[i];
  default:
    return double(getInt(i));
  }
}

int64_t Array::getInt(int64_t i) const {
  switch (element) {
  case Element::I1:
    return as<uint8_t>()[i] & 1;
  case Element::I8:
    return as<int8_t>()[i];
  case Element::I32:
    return as<int32_t>()[i];
  case Element::I64:
    return as<int64_t>()[i];
  default:
    return int64_t(getFloat(i));
  }
}

void Array::setFloat(int64_t i, double value) {
  switch (element) {
  case Element::BF16:
    as<uint16_t>()[i] = roundToBF16(float(value));
    break;
  case Element::F16:
    as<_Float16>()[i] = _Float16(float(value));
    break;
  case Element::F32:
    as<float>()[i] = float(value);
    break;
  default:
    setInt(i, int64_t(value));
  }
}

void Array::setInt(int64_t i, int64_t value) {
  switch (element) {
  case Element::I1:
    as<uint8_t>()[i] = value & 1;
    break;
  case Element::I8:
    as<int8_t>()[i] = int8_t(value);
    break;
  case Element::I32:
    as<int32_t>()[i] = int32_t(value);
    break;
  case Element::I64:
    as<int64_t>()[i] = value;
    break;
  default:
    setFloat(i, double(value));
  }
}

llvm::Expected<Array> run::allocateArray(Element element,
                                         ArrayRef<int64_t> shape,
                                         const llvm::Twine &what) {
  // Memory is overcommitted: an absurd size would be granted here and kill the
  // process later, so it is held against the memory that the machine has.
  static const int64_t limit =
      int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  int64_t bytes = getElementBytes(element);
  bool tooLarge = false;
  for (int64_t size : shape) {
    if (size < 0)
      return makeError(what + " has a negative size");
    tooLarge |= llvm::MulOverflow(bytes, size, bytes);
  }
  if (llvm::is_contained(shape, 0))
    bytes = 0;
  else if (tooLarge || bytes > limit)
    return makeError(what + " (" + describe(element, shape) +
                     ") does not fit the memory of this machine");
  Array array;
  array.element = element;
  array.shape.assign(shape.begin(), shape.end());
  array.data.reset(
      static_cast<char *>(std::calloc(std::max<int64_t>(bytes, 1), 1)),
      std::free);
  if (!array.data)
    return makeError("out of memory for " + what);
  return array;
}

std::string run::describe(Element element, ArrayRef<int64_t> shape) {
  std::string text;
  for (int64_t size : shape)
    text += (ShapedType::isDynamic(size) ? "?" : std::to_string(size)) + "x";
  return text + getElementName(element).str();
}

std::string run::formatNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string run::describe(const Array &array) {
  return describe(array.element, array.shape);
}

llvm::Error run::writeText(StringRef path, StringRef text) {
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (error)
    return makeError(path + ": " + error.message());
  out << text;
  out.close();
  if (!out.has_error())
    return llvm::Error::success();
  error = out.error();
  out.clear_error();
  return makeError(path + ": " + error.message());
}
