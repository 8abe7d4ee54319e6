//===- Protocol.h - One exchange, one signal, one wait ----------*- C++ -*-===//
//
// The exchange protocol, free of any operating system or standard library, so
// that the same lines are compiled for CPU ranks, for kernels and for the
// simulator of the tests. What differs between them is the `Memory` policy:
//
//   Flag loadAcquire(const Flag &flag)                // the epoch first
//   void storeRelease(Flag &flag, const Flag &value)  // the epoch last
//   void ring(int64_t rank, int64_t slot)             // a flag of it was set
//   bool keepWaiting(int64_t rank)                    // false: give up
//
// and for the records of Laggard.h
//
//   uint64_t loadAcquire(const uint64_t &word)
//   void     storeRelease(uint64_t &word, uint64_t value)
//   int64_t  load(const int64_t &word)            // any order
//   void     store(int64_t &word, int64_t value)  // any order
//   bool     reaches(int64_t rank)  // whether its records are there to be read
//
// The words live in symmetric memory, where other ranks touch them meanwhile.
//
// A rank that is one thread calls `signal` and `wait`, which go from member to
// member; a block of threads calls `signalMember` and `awaitMember`, a lane for
// each member.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_PROTOCOL_PROTOCOL_H
#define SHARDQ_RUNTIME_PROTOCOL_PROTOCOL_H

#include <stdint.h>

namespace shardq::protocol {

/// Raised by any change of what ranks write into each other's memory.
inline constexpr uint32_t kProtocolVersion = 5;

/// What is told about an exchange besides its epoch, in one word.
class News {
public:
  News() = default;
  /// Row counts that cannot be, negative ones say, are all kNoRows.
  News(int64_t rows, int64_t operation)
      : word((rows < 0 || rows > kNoRows ? kNoRows : rows) | operation
                                                                 << kRowBits) {}
  int64_t rows() const { return word & kNoRows; }
  int64_t operation() const { return word >> kRowBits; }

  static constexpr int64_t kRowBits = 40;
  static constexpr int64_t kNoRows = (int64_t(1) << kRowBits) - 1;
  int64_t word;
};

/// 16 bytes, so that a memory that has such stores needs one of them: what is
/// told must not arrive behind the epoch.
struct alignas(16) Flag {
  uint64_t epoch;
  News news;
};

/// The two accesses where a memory has words only: the epoch, for which others
/// look, is loaded first and stored last.
template <typename Memory> Flag loadByWords(Memory &memory, const Flag &flag) {
  Flag result;
  result.epoch = memory.loadAcquire(flag.epoch);
  result.news.word = memory.load(flag.news.word);
  return result;
}
template <typename Memory>
void storeByWords(Memory &memory, Flag &flag, const Flag &value) {
  memory.store(flag.news.word, value.news.word);
  memory.storeRelease(flag.epoch, value.epoch);
}

/// What one producer tells one consumer about one exchange. A line has exactly
/// one writer and is a cache line, so that producers do not disturb each other.
struct alignas(64) FlagLine {
  Flag flag;
  /// Rows that the producer wants from the consumer; only where lines travel
  /// ahead of the rows, which both sides then check before any row moves.
  int64_t wanted;
  int64_t unused[5];
};

/// Lines per (slot, channel, producer), used in turn. A producer sets a line
/// again two epochs later, and gets there only through a wait for the signal
/// that the consumer sends after it read the line. With one line, a producer
/// one epoch ahead could change rows and operation under the reader.
inline constexpr uint64_t kFlagLines = 2;

/// Ranks `first + i * stride`.
struct Group {
  int64_t first;
  int64_t stride;
  int64_t size;

  int64_t member(int64_t index) const { return first + index * stride; }

  /// Index of the member to visit at `step`. The start differs from rank to
  /// rank, so that they do not all push to the same peer at once; a member
  /// comes to itself last.
  int64_t rotated(int64_t step, int64_t self) const {
    int64_t distance = self - first;
    bool isMember = stride != 0 && distance % stride == 0 &&
                    distance / stride >= 0 && distance / stride < size;
    int64_t start = isMember ? distance / stride + 1 : 0;
    return (start + step) % size;
  }

  /// Whether it has members, and all of them are ranks of the world; `outside`
  /// is one that is not.
  bool isWithin(int64_t world, int64_t &outside) const {
    outside = first;
    if (size < 1 || size > world || first < 0 || first >= world)
      return false;
    if (size == 1)
      return true;
    if (stride == 0 || stride <= -world || stride >= world)
      return false;
    // Every member lies between the first and the last.
    outside = member(size - 1);
    return outside >= 0 && outside < world;
  }
};

/// Where the flag lines are: at the same offset in every rank's heap.
struct FlagTable {
  char *heaps;     // heap of rank 0
  uint64_t stride; // from one rank's heap to the next
  uint64_t offset; // of the lines within a heap
  int64_t channels;
  int64_t world;

  FlagLine &line(int64_t consumer, int64_t slot, int64_t channel,
                 uint64_t epoch, int64_t producer) const {
    uint64_t index = static_cast<uint64_t>(slot * channels + channel);
    index = index * kFlagLines + epoch % kFlagLines;
    index =
        index * static_cast<uint64_t>(world) + static_cast<uint64_t>(producer);
    char *heap = heaps + static_cast<uint64_t>(consumer) * stride + offset;
    return reinterpret_cast<FlagLine *>(heap)[index];
  }
};

/// One exchange as one rank sees it.
struct Exchange {
  int64_t self;
  int64_t slot;
  int64_t channel;
  uint64_t epoch;
  int64_t operation;
  Group group;
};

enum class Arrival {
  Pending,
  Here,
  Overrun,
  WrongOperation,
  WrongRows,
  Stopped
};

/// How a wait ended; unless it is `Here`, which member it is about and what was
/// found in place of the expected operation, rows or epoch.
struct Verdict {
  Arrival arrival;
  int64_t rank;
  int64_t expected;
  int64_t found;
};

/// Epochs are compared by signed difference: they may wrap around.
inline int64_t epochsAhead(uint64_t epoch, uint64_t of) {
  return static_cast<int64_t>(epoch - of);
}

/// Tells the member at `index` that this rank's rows are in its memory.
template <typename Memory>
void signalMember(Memory &memory, const FlagTable &table,
                  const Exchange &exchange, int64_t index,
                  const int64_t *rows) {
  int64_t consumer = exchange.group.member(index);
  FlagLine &line = table.line(consumer, exchange.slot, exchange.channel,
                              exchange.epoch, exchange.self);
  // The release orders the pushed rows before the epoch, and this rank's reads
  // of the previous buffer before it as well: that is what lets the consumer
  // overwrite them without another barrier.
  memory.storeRelease(line.flag,
                      {exchange.epoch, News(rows[index], exchange.operation)});
  memory.ring(consumer, exchange.slot);
}

/// Tells every member.
template <typename Memory>
void signal(Memory &memory, const FlagTable &table, const Exchange &exchange,
            const int64_t *rows) {
  for (int64_t step = 0; step != exchange.group.size; ++step)
    signalMember(memory, table, exchange,
                 exchange.group.rotated(step, exchange.self), rows);
}

/// Looks once whether `producer` has signalled.
template <typename Memory>
Verdict inspect(Memory &memory, const FlagTable &table,
                const Exchange &exchange, int64_t producer, int64_t rows) {
  FlagLine &line = table.line(exchange.self, exchange.slot, exchange.channel,
                              exchange.epoch, producer);
  Flag flag = memory.loadAcquire(line.flag);
  int64_t ahead = epochsAhead(flag.epoch, exchange.epoch);
  if (ahead < 0)
    return {Arrival::Pending, producer, 0, 0};
  // In a proved schedule nobody gets here twice before this rank signals
  // again. Were this an `==`, a broken schedule would hang instead.
  if (ahead > 0)
    return {Arrival::Overrun, producer, static_cast<int64_t>(exchange.epoch),
            static_cast<int64_t>(exchange.epoch) + ahead};
  if (flag.news.operation() != exchange.operation)
    return {Arrival::WrongOperation, producer, exchange.operation,
            flag.news.operation()};
  if (flag.news.rows() != rows)
    return {Arrival::WrongRows, producer, rows, flag.news.rows()};
  return {Arrival::Here, producer, 0, 0};
}

/// Waits until the member at `index` has signalled, or the policy gives up.
template <typename Memory>
Verdict awaitMember(Memory &memory, const FlagTable &table,
                    const Exchange &exchange, int64_t index,
                    const int64_t *rows) {
  int64_t producer = exchange.group.member(index);
  for (;;) {
    Verdict verdict = inspect(memory, table, exchange, producer, rows[index]);
    if (verdict.arrival != Arrival::Pending)
      return verdict;
    if (!memory.keepWaiting(producer))
      return {Arrival::Stopped, producer, 0, 0};
  }
}

/// Waits for every member.
template <typename Memory>
Verdict wait(Memory &memory, const FlagTable &table, const Exchange &exchange,
             const int64_t *rows) {
  for (int64_t step = 0; step != exchange.group.size; ++step) {
    Verdict verdict =
        awaitMember(memory, table, exchange,
                    exchange.group.rotated(step, exchange.self), rows);
    if (verdict.arrival != Arrival::Here)
      return verdict;
  }
  return {Arrival::Here, exchange.self, 0, 0};
}

} // namespace shardq::protocol

#endif // SHARDQ_RUNTIME_PROTOCOL_PROTOCOL_H
