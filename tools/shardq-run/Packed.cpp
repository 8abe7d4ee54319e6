//===- Packed.cpp - Rows of 8-bit values with scales ----------------------===//

#include "Packed.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

/// The number that the bits of an f8E4M3FN are.
static double decodeFloat(uint8_t bits) {
  int exponent = bits >> 3 & 15, mantissa = bits & 7;
  double magnitude = exponent ? std::ldexp(8 + mantissa, exponent - 10)
                              : std::ldexp(mantissa, -9);
  if (exponent == 15 && mantissa == 7)
    magnitude = std::numeric_limits<double>::quiet_NaN();
  return bits & 0x80 ? -magnitude : magnitude;
}

/// The nearest f8E4M3FN to a number of at most 448.
static uint8_t encodeFloat(double value) {
  double magnitude = std::abs(value);
  int exponent = magnitude == 0 ? -6 : std::max(std::ilogb(magnitude), -6);
  // In units of the last place, 8 to 16 of which a normal number has.
  int units = int(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  if (units == 16) {
    units = 8;
    ++exponent;
  }
  int bits = units < 8 ? units : (exponent + 7) << 3 | (units - 8);
  return uint8_t(bits | (std::signbit(value) ? 0x80 : 0));
}

float run::unpackValue(PackedRowsAttr format, const uint8_t *row, int64_t d) {
  if (d >= format.getLatent()) {
    uint16_t bits;
    std::memcpy(&bits,
                row + format.getRopeOffset() + 2 * (d - format.getLatent()), 2);
    return widenBF16(bits);
  }
  float scale;
  std::memcpy(&scale,
              row + format.getScaleOffset() + 4 * (d / PackedRowsAttr::kGroup),
              4);
  double value = format.isOfFloats() ? decodeFloat(row[d]) : int8_t(row[d]);
  return widenBF16(roundToBF16(float(value * scale)));
}

void run::packRow(PackedRowsAttr format, const float *values, uint8_t *row) {
  for (int64_t group = 0; group < format.getNumGroups(); ++group) {
    const float *first = values + group * PackedRowsAttr::kGroup;
    uint8_t *bytes = row + group * PackedRowsAttr::kGroup;
    float largest = 0;
    bool isFinite = true;
    for (int64_t i = 0; i < PackedRowsAttr::kGroup; ++i) {
      isFinite &= bool(std::isfinite(first[i]));
      largest = std::max(largest, std::abs(first[i]));
    }
    float scale =
        std::max(largest / float(format.getLargest()), std::ldexp(1.0f, -100));
    for (int64_t i = 0; i < PackedRowsAttr::kGroup; ++i) {
      float value = first[i] / scale;
      bytes[i] = !isFinite             ? 0
                 : format.isOfFloats() ? encodeFloat(value)
                                       : uint8_t(int(std::nearbyint(value)));
    }
    if (!isFinite)
      scale = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(row + format.getScaleOffset() + 4 * group, &scale, 4);
  }
  for (int64_t i = 0; i < format.getRope(); ++i) {
    uint16_t bits = roundToBF16(values[format.getLatent() + i]);
    std::memcpy(row + format.getRopeOffset() + 2 * i, &bits, 2);
  }
}

llvm::Expected<Array> run::unpackRows(PackedRowsAttr format,
                                      const Array &packed) {
  int64_t rows = packed.getNumRows(), dim = format.getDim();
  llvm::Expected<Array> values =
      allocateArray(Element::BF16, {rows, dim}, "unpacked rows");
  if (!values)
    return values;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t d = 0; d < dim; ++d)
      values->setFloat(
          i * dim + d,
          unpackValue(format, packed.as<uint8_t>() + i * format.getNumBytes(),
                      d));
  return values;
}

llvm::Expected<Array> run::packRows(PackedRowsAttr format, const Array &rows) {
  int64_t count = rows.getNumRows(), dim = format.getDim();
  llvm::Expected<Array> packed =
      allocateArray(Element::I8, {count, format.getNumBytes()}, "packed rows");
  if (!packed)
    return packed;
  std::vector<float> values(dim);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t d = 0; d < dim; ++d)
      values[d] = float(rows.getFloat(i * dim + d));
    packRow(format, values.data(),
            packed->as<uint8_t>() + i * format.getNumBytes());
  }
  return packed;
}
