//===- PackedValues.cpp - Numbers of 8 bits and their scales --------------===//

#include "PackedValues.h"
#include <cmath>

using namespace mlir;
using namespace mlir::shardq;

// The parts of an f8E4M3FN (bias 7) and of an f32 (bias 127).
static constexpr int64_t kMantissaShift = 23 - 3;
static constexpr int64_t kRebias = (127 - 7) << 3;
static constexpr int64_t kLowestNormal = int64_t(127 - 6) << 23; // 2^-6
static constexpr int64_t kNaN = 0x7fc00000;

static Value mask(LoopBuilder &b, Value value, int64_t bits) {
  return arith::AndIOp::create(b, value, b.i32(bits));
}
static Value merge(LoopBuilder &b, Value first, Value second) {
  return arith::OrIOp::create(b, first, second);
}
static Value up(LoopBuilder &b, Value value, int64_t bits) {
  return arith::ShLIOp::create(b, value, b.i32(bits));
}
static Value down(LoopBuilder &b, Value value, int64_t bits) {
  return arith::ShRUIOp::create(b, value, b.i32(bits));
}
static Value asF32(LoopBuilder &b, Value bits) {
  return arith::BitcastOp::create(b, b.getF32Type(), bits);
}
static Value asI32(LoopBuilder &b, Value value) {
  return arith::BitcastOp::create(b, b.getI32Type(), value);
}

Value mlir::shardq::decodeValue(LoopBuilder &b, PackedRowsAttr format,
                                Value byte) {
  if (!format.isOfFloats()) {
    Value narrow = arith::TruncIOp::create(b, b.getI8Type(), byte);
    return arith::SIToFPOp::create(b, b.getF32Type(), narrow);
  }
  Value sign = up(b, mask(b, byte, 0x80), 24), magnitude = mask(b, byte, 0x7f);
  Value normal = up(b, b.add(magnitude, b.i32(kRebias)), kMantissaShift);
  // Multiples of 2^-9 below the normal numbers.
  Value number = arith::SIToFPOp::create(b, b.getF32Type(), magnitude);
  Value subnormal = asI32(b, b.mul(number, b.f32(std::ldexp(1.0, -9))));
  Value bits = b.select(b.less(magnitude, b.i32(8)), subnormal, normal);
  bits = b.select(b.equal(magnitude, b.i32(0x7f)), b.i32(kNaN), bits);
  return asF32(b, merge(b, bits, sign));
}

Value mlir::shardq::encodeValue(LoopBuilder &b, PackedRowsAttr format,
                                Value value) {
  // Next to such a number, f32 has the spacing to which is rounded.
  if (!format.isOfFloats())
    return mask(b, asI32(b, b.add(value, b.f32(std::ldexp(1.5, 23)))), 0xff);
  Value bits = asI32(b, value);
  Value sign = mask(b, down(b, bits, 24), 0x80);
  Value magnitude = mask(b, bits, 0x7fffffff);
  Value odd = mask(b, down(b, magnitude, kMantissaShift), 1);
  Value half = b.i32((int64_t(1) << (kMantissaShift - 1)) - 1);
  Value rounded = b.add(b.add(magnitude, half), odd);
  Value normal = b.sub(down(b, rounded, kMantissaShift), b.i32(kRebias));
  Value shifted = b.add(asF32(b, magnitude), b.f32(std::ldexp(1.0, 23 - 9)));
  Value subnormal = mask(b, asI32(b, shifted), 0xf);
  Value isSmall = b.less(magnitude, b.i32(kLowestNormal));
  return merge(b, b.select(isSmall, subnormal, normal), sign);
}

Value mlir::shardq::getScale(LoopBuilder &b, PackedRowsAttr format,
                             Value largest, Value &isFinite) {
  isFinite = b.less(largest, b.i32(0x7f80));
  Value scale = arith::DivFOp::create(b, widenBits(b, largest),
                                      b.f32(format.getLargest()));
  Value least = b.f32(std::ldexp(1.0, -100));
  Value isLess =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, scale, least);
  scale = b.select(isLess, least, scale);
  return b.select(isFinite, scale, asF32(b, b.i32(kNaN)));
}

Value mlir::shardq::getBits(LoopBuilder &b, Value bf16) {
  Value bits = arith::BitcastOp::create(b, b.getI16Type(), bf16);
  return arith::ExtUIOp::create(b, b.getI32Type(), bits);
}

Value mlir::shardq::fromBits(LoopBuilder &b, Value bits) {
  bits = arith::TruncIOp::create(b, b.getI16Type(), bits);
  return arith::BitcastOp::create(b, b.getBF16Type(), bits);
}

Value mlir::shardq::widenBits(LoopBuilder &b, Value bits) {
  return asF32(b, up(b, bits, 16));
}

Value mlir::shardq::loadBytes(LoopBuilder &b, Value bytes, Value row,
                              Value column, int64_t count) {
  Value bits;
  for (int64_t i = 0; i < count; ++i) {
    Value byte = b.load(bytes, {row, b.add(column, b.index(i))});
    byte = arith::ExtUIOp::create(b, b.getI32Type(), byte);
    bits = bits ? merge(b, bits, up(b, byte, 8 * i)) : byte;
  }
  return bits;
}

void mlir::shardq::storeBytes(LoopBuilder &b, Value bits, Value bytes,
                              Value row, Value column, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Value byte = arith::TruncIOp::create(b, b.getI8Type(),
                                         i ? down(b, bits, 8 * i) : bits);
    b.store(byte, bytes, {row, b.add(column, b.index(i))});
  }
}
