//===- Watchdog.h - Notices the death of peers ------------------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_WATCHDOG_H
#define SHARDQ_RUNTIME_HOST_WATCHDOG_H

#include "Support.h"

#include <functional>
#include <thread>
#include <vector>

namespace shardq {

/// A thread that watches the control sockets of all peers, and at intervals
/// whatever else there is to watch.
class Watchdog {
public:
  Watchdog() = default;
  ~Watchdog() { stop(); }
  Watchdog(const Watchdog &) = delete;

  /// `closed` is called on the watchdog's thread, once per peer, when its
  /// socket closes: it left, or its process ended. Entries of `sockets` that
  /// are empty are skipped. `tick`, if there is one, is called every
  /// `periodMs`. `receive`, if there is one, reads what has come from a peer
  /// and says whether its socket is still open.
  Outcome start(std::vector<Descriptor> sockets,
                std::function<void(int32_t)> closed,
                std::function<void()> tick = {}, int periodMs = 2,
                std::function<bool(int32_t)> receive = {});

  /// Ends the thread, then closes the sockets.
  void stop();

private:
  void run();

  std::vector<Descriptor> sockets;
  std::function<void(int32_t)> closed;
  std::function<void()> tick;
  std::function<bool(int32_t)> receive;
  int periodMs = -1;
  Descriptor wake;
  std::thread thread;
};

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_WATCHDOG_H
