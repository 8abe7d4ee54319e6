//===- PackedLoops.cpp - Rows of 8-bit values with scales -----------------===//

#include "../Utils/PackedValues.h"
#include "Kernels.h"

using namespace mlir;
using namespace mlir::shardq;

static constexpr int64_t kGroup = PackedRowsAttr::kGroup;

void mlir::shardq::emitUnpackedRow(
    LoopBuilder &b, PackedRowsAttr format, Value packed, Value row,
    llvm::function_ref<void(Value, Value)> store) {
  Value zero = b.index(0);
  b.loop(zero, b.index(format.getNumGroups()), [&](Value group) {
    Value at =
        b.add(b.index(format.getScaleOffset()), b.mul(group, b.index(4)));
    Value scale = arith::BitcastOp::create(b, b.getF32Type(),
                                           loadBytes(b, packed, row, at, 4));
    Value first = b.mul(group, b.index(kGroup));
    b.loop(zero, b.index(kGroup), [&](Value i) {
      Value column = b.add(first, i);
      Value value =
          decodeValue(b, format, loadBytes(b, packed, row, column, 1));
      store(column,
            arith::TruncFOp::create(b, b.getBF16Type(), b.mul(value, scale)));
    });
  });
  b.loop(zero, b.index(format.getRope()), [&](Value i) {
    Value at = b.add(b.index(format.getRopeOffset()), b.mul(i, b.index(2)));
    store(b.add(b.index(format.getLatent()), i),
          fromBits(b, loadBytes(b, packed, row, at, 2)));
  });
}

void mlir::shardq::emitUnpackRows(LoopBuilder &b, UnpackRowsOp op,
                                  ValueRange args) {
  Value packed = args[0], rows = args[1];
  b.loop(b.index(0), b.dim(rows, 0), [&](Value row) {
    emitUnpackedRow(b, op.getFormat(), packed, row, [&](Value d, Value value) {
      b.store(value, rows, {row, d});
    });
  });
}

void mlir::shardq::emitPackRows(LoopBuilder &b, PackRowsOp op,
                                ValueRange args) {
  Value rows = args[0], packed = args[1], zero = b.index(0);
  PackedRowsAttr format = op.getFormat();
  auto packGroup = [&](Value row, Value group) {
    Value first = b.mul(group, b.index(kGroup));
    auto load = [&](Value i) {
      return getBits(b, b.load(rows, {row, b.add(first, i)}));
    };
    auto findLargest = [&](Value i, ValueRange carried) -> SmallVector<Value> {
      Value bits = arith::AndIOp::create(b, load(i), b.i32(0x7fff));
      return {b.max(carried[0], bits)};
    };
    Value largest =
        b.loop(zero, b.index(kGroup), b.i32(0), findLargest).front();
    Value isFinite, scale = getScale(b, format, largest, isFinite);
    b.loop(zero, b.index(kGroup), [&](Value i) {
      Value value = arith::DivFOp::create(b, widenBits(b, load(i)), scale);
      Value byte = b.select(isFinite, encodeValue(b, format, value), b.i32(0));
      storeBytes(b, byte, packed, row, b.add(first, i), 1);
    });
    Value at =
        b.add(b.index(format.getScaleOffset()), b.mul(group, b.index(4)));
    storeBytes(b, arith::BitcastOp::create(b, b.getI32Type(), scale), packed,
               row, at, 4);
  };
  b.loop(zero, b.dim(packed, 0), [&](Value row) {
    b.loop(zero, b.index(format.getNumGroups()),
           [&](Value group) { packGroup(row, group); });
    b.loop(zero, b.index(format.getRope()), [&](Value i) {
      Value value = b.load(rows, {row, b.add(b.index(format.getLatent()), i)});
      Value at = b.add(b.index(format.getRopeOffset()), b.mul(i, b.index(2)));
      storeBytes(b, getBits(b, value), packed, row, at, 2);
    });
  });
}
