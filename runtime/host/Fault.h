//===- Fault.h - Faults that tests inject -----------------------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_FAULT_H
#define SHARDQ_RUNTIME_HOST_FAULT_H

#include "Support.h"

#include <string_view>

namespace shardq {

/// A fault strikes when `rank` signals an exchange that fits.
struct Fault {
  enum class Action { None, Kill, Stall, DropFlag, WrongRows, WrongOperation };

  Action action = Action::None;
  int64_t rank = -1;
  // -1 fits any.
  int64_t slot = -1;
  int64_t operation = -1;
  int64_t epoch = -1;

  bool strikes(int64_t atSlot, int64_t atOperation, uint64_t atEpoch) const {
    return action != Action::None && (slot < 0 || slot == atSlot) &&
           (operation < 0 || operation == atOperation) &&
           (epoch < 0 || static_cast<uint64_t>(epoch) == atEpoch);
  }

  /// Reads "rank=2,operation=1,epoch=3,action=kill"; empty text is no fault.
  static Outcome parse(std::string_view text, Fault &fault);
};

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_FAULT_H
