//===- SlotRows.h - Rows of positions that become slots ---------*- C++ -*-===//

#ifndef SHARDQ_LIB_CONVERSION_GPU_SLOTROWS_H
#define SHARDQ_LIB_CONVERSION_GPU_SLOTROWS_H

#include "Kernels.h"

namespace mlir::shardq {

/// Columns of a thread, side by side: two loads of 16 bytes.
inline constexpr int64_t kSlotColumns = 8;

/// Combines a number (i32) of each thread of a block: `upTo` are those of the
/// threads up to this one, the result all of them. `words` is shared memory of
/// 4 bytes a warp; a barrier has to part it from its use by the next call.
Value scanBlock(KernelBuilder &b, Value words, Value number, Value neutral,
                llvm::function_ref<Value(Value, Value)> combine, Value &upTo);

/// Sums up a number (i32) of each thread of a block: `before` are those of the
/// threads before it, the result all of them. `sums` as of scanBlock.
Value sumBlock(KernelBuilder &b, Value sums, Value count, Value &before);

/// What kernels that turn positions into slots have in common. A block takes a
/// row, in passes of kSlotColumns columns a thread.
class SlotRows {
protected:
  using Columns = SmallVector<Value>;
  using GetSlots =
      llvm::function_ref<void(const Columns &, Columns &, Columns &)>;
  using Pass = llvm::function_ref<Value(Value base, Value done)>;

  /// `counts` is null where valid slots are not counted.
  SlotRows(KernelBuilder &b, Value indices, Value slots, Value counts,
           bool isInPlace);

  /// Positions from column `first` on, -1 behind the last.
  Columns loadPositions(Value row, Value first);
  /// Each slot in its position's column; -1 where it is not valid.
  void storeInPlace(Value row, Value first, Columns found,
                    const Columns &valid);
  /// A pass in place, of columns from `base` on, that adds to `done` slots.
  /// `getSlots` finds slots of positions, and whether they are valid.
  Value convertPass(Value row, Value base, Value done, GetSlots getSlots);
  /// All passes of a row. Returns what the last of them returns.
  Value overPasses(Pass pass);
  void storeCount(Value row, Value count);
  /// Whether the type says that a row is one pass.
  bool isOnePass() const;

  KernelBuilder &b;
  Value indices, slots, counts;
  int64_t width; // of a row, if the type says it
  int64_t passColumns;
  Type slotType;
  bool isNarrow; // slots are i32
  Value columns; // i32
  Value noSlot;
  Value sums; // for sumBlock; in dynamic shared memory

private:
  Value isWhole(Value first);

  Value aligned;
};

/// How they are launched: with shared memory of `bytesPerColumn` for each
/// column of a pass in front of the sums, and registers for `residentThreads`
/// of a multiprocessor.
KernelShape getSlotRowsShape(MemRefType indices, int64_t bytesPerColumn,
                             int64_t residentThreads);

} // namespace mlir::shardq

#endif // SHARDQ_LIB_CONVERSION_GPU_SLOTROWS_H
