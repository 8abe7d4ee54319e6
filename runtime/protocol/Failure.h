//===- Failure.h - An error in numbers --------------------------*- C++ -*-===//
//
// What a rank that finds an error writes down. Free of any operating system or
// standard library, since kernels write it too.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_PROTOCOL_FAILURE_H
#define SHARDQ_RUNTIME_PROTOCOL_FAILURE_H

#include "Protocol.h"
#include "shardq/runtime.h"

namespace shardq {

/// What a call was refused for, or what of several reasons a status has.
/// Numbers, which kernels write too.
enum class Misuse : int64_t {
  None,
  Channel,
  Group,
  Rows,
  Peer,
  WaitBeforeSignal,
  HostCallOnDevice, // an entry point of host code, buffers on a GPU
  DeviceCallOnHost,
  NotBegun,
  Image,       // not a table of kernels, or no such kernel in it
  LoadCapture, // kernels must not be loaded while a stream is captured
  TapCapture,
  Arena,      // SHARDQ_CAPACITY: temporary memory while a stream is captured
  Driver,     // SHARDQ_SYSTEM: a call of the CUDA driver failed
  Nccl,       // SHARDQ_SYSTEM: a call of NCCL failed
  NotCarried, // a transfer where ranks write into each other's memory
  Transfer,   // one of rows that cannot be, or without memory for them
  Size,       // of two that agree where a call is right
  // What the data of a step says. `request` is of it.
  BlockBeyondTable,
  RequestBeyondTable,
  FirstStart,  // not 0
  StartBelow,  // the one in front of it
  LastStart,   // beyond the rows
  Decodes,     // not from 0 up to the rows
  NoPlace,     // of a token to write: the table's entry is not one
  BeyondCache, // the slot of a row to write; `request` is the row
  SplitRequest // by the last of the decode rows
};

/// An error in 64-bit words, copied word by word between heaps.
struct Failure {
  int64_t status = SHARDQ_OK;
  int64_t reporter = -1;
  int64_t culprit = -1;
  int64_t slot = -1;
  int64_t channel = -1;
  int64_t operation = -1;
  int64_t epoch = -1;
  int64_t lastSeen = -1;
  int64_t expected = -1;
  int64_t found = -1;
  int64_t waitedMs = -1;
  /// Rank that the reporter itself waited for, when the culprit is behind it.
  int64_t neighbour = -1;
  /// 1: the culprit did signal, but its flag did not arrive.
  int64_t lost = 0;
  /// 1: the culprit waits as well, in the exchange `found`, and whoever is
  /// followed from there waits for others in turn.
  int64_t circle = 0;
  int64_t misuse = 0;
  /// Request of the step, or another place in what a call was given, where that
  /// is wrong.
  int64_t request = -1;
  /// What the host of the finder has to say beside, in bytes, as much as fits:
  /// kernels have nothing.
  static constexpr uint64_t kTextWords = 8;
  int64_t text[kTextWords] = {};

  static constexpr uint64_t kWords = 16 + kTextWords;
};
static_assert(sizeof(Failure) == Failure::kWords * sizeof(int64_t));

namespace protocol {

/// The failure that a wait's verdict means; status SHARDQ_OK for none, and for
/// a wait that was stopped: whoever stopped it has recorded why.
inline Failure failureOf(const Exchange &exchange, const Verdict &verdict) {
  Failure failure;
  switch (verdict.arrival) {
  case Arrival::Overrun:
    failure.status = SHARDQ_OVERRUN;
    break;
  case Arrival::WrongOperation:
    failure.status = SHARDQ_WRONG_OPERATION;
    break;
  case Arrival::WrongRows:
    failure.status = SHARDQ_WRONG_ROWS;
    break;
  case Arrival::Pending:
  case Arrival::Here:
  case Arrival::Stopped:
    return failure;
  }
  failure.reporter = exchange.self;
  failure.culprit = verdict.rank;
  failure.slot = exchange.slot;
  failure.channel = exchange.channel;
  failure.operation = exchange.operation;
  failure.epoch = static_cast<int64_t>(exchange.epoch);
  failure.expected = verdict.expected;
  failure.found = verdict.found;
  return failure;
}

} // namespace protocol
} // namespace shardq

#endif // SHARDQ_RUNTIME_PROTOCOL_FAILURE_H
