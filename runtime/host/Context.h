//===- Context.h - One micro-batch slot of a communicator -------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_CONTEXT_H
#define SHARDQ_RUNTIME_HOST_CONTEXT_H

#include "Failure.h"
#include "protocol/Protocol.h"

#include <vector>

struct shardq_comm;

namespace shardq {

/// Zeroed pages, committed when touched.
class PrivateMemory {
public:
  explicit PrivateMemory(uint64_t bytes);
  PrivateMemory(PrivateMemory &&other) noexcept;
  PrivateMemory &operator=(PrivateMemory &&) = delete;
  ~PrivateMemory();

  void *get() const { return address; }
  uint64_t size() const { return bytes; }

private:
  void *address;
  uint64_t bytes;
};

} // namespace shardq

/// The state behind the C handle. One thread at a time.
struct shardq_context {
public:
  shardq_context(shardq_comm &comm, int32_t slot);

  void *workspace(int32_t channel, int64_t rows, int64_t rowBytes);
  void *peer(void *local, int64_t peer);
  void signal(int32_t channel, int32_t operation,
              const shardq::protocol::Group &group, const int64_t *rows);
  void wait(int32_t channel, int32_t operation,
            const shardq::protocol::Group &group, const int64_t *rows);

  shardq_comm &comm;
  const int32_t slot;
  shardq_tap_callback tap = nullptr;
  void *tapUser = nullptr;

private:
  bool checkChannel(int32_t channel);
  bool checkCall(int32_t channel, int32_t operation,
                 const shardq::protocol::Group &group, const int64_t *rows);
  bool awaitGroup(int32_t channel, int32_t operation,
                  const shardq::protocol::Group &group, const int64_t *rows);
  void misuse(shardq::Misuse kind, int64_t found, int64_t expected = -1,
              int64_t operation = -1);
  void signalFaulty(const shardq::protocol::Exchange &exchange,
                    const int64_t *rows);
  void stall();
  char *inbox(int32_t channel, uint64_t epoch) const;
  void poison(int32_t channel);
  void *spare(uint64_t bytes);

  // Last epoch that this rank signalled, by channel.
  std::vector<uint64_t> epochs;
  // Inboxes of steps that the plan does not hold, so that code which goes on
  // after the error stays in memory of its own.
  std::vector<shardq::PrivateMemory> spares;
};

#endif // SHARDQ_RUNTIME_HOST_CONTEXT_H
