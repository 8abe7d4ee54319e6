//===- Watchdog.cpp - Notices the death of peers --------------------------===//

#include "Watchdog.h"

#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

using namespace shardq;

Outcome Watchdog::start(std::vector<Descriptor> newSockets,
                        std::function<void(int32_t)> newClosed,
                        std::function<void()> newTick, int newPeriodMs,
                        std::function<bool(int32_t)> newReceive) {
  sockets = std::move(newSockets);
  closed = std::move(newClosed);
  tick = std::move(newTick);
  receive = std::move(newReceive);
  // Without a tick only events count.
  periodMs = tick ? newPeriodMs : -1;
  wake = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake)
    return systemFailure("eventfd");
  // The embedding program's signal handlers must not run on this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Outcome outcome;
  try {
    thread = std::thread([this] { run(); });
  } catch (const std::system_error &error) {
    outcome =
        failure(SHARDQ_SYSTEM, "no thread for the watchdog: %s", error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return outcome;
}

void Watchdog::stop() {
  if (thread.joinable()) {
    uint64_t one = 1;
    // An eventfd at zero always takes a one.
    while (write(wake.get(), &one, sizeof(one)) < 0 && errno == EINTR)
      ;
    thread.join();
  }
  sockets.clear();
  wake.reset();
}

/// Nothing is ever sent, so what can be read is the end; a byte from a confused
/// peer is dropped.
static bool isOpen(int fd) {
  char byte;
  ssize_t count = recv(fd, &byte, sizeof(byte), MSG_DONTWAIT);
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

void Watchdog::run() {
  std::vector<pollfd> entries;
  for (const Descriptor &socket : sockets)
    // poll skips negative descriptors.
    entries.push_back({socket.get(), POLLIN, 0});
  entries.push_back({wake.get(), POLLIN, 0});
  for (;;) {
    if (poll(entries.data(), entries.size(), periodMs) < 0) {
      if (errno == EINTR || errno == ENOMEM)
        continue;
      return;
    }
    if (entries.back().revents)
      return;
    for (size_t peer = 0; peer != sockets.size(); ++peer) {
      if (!entries[peer].revents)
        continue;
      int32_t rank = static_cast<int32_t>(peer);
      if (receive ? receive(rank) : isOpen(entries[peer].fd))
        continue;
      entries[peer].fd = -1;
      closed(rank);
    }
    if (tick)
      tick();
  }
}
