//===- Support.h - Outcomes, deadlines, descriptors -------------*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_HOST_SUPPORT_H
#define SHARDQ_RUNTIME_HOST_SUPPORT_H

#include "shardq/runtime.h"

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <string>
#include <utility>

namespace shardq {

/// Status of a fallible step and what to tell the user about it.
struct [[nodiscard]] Outcome {
  shardq_status status = SHARDQ_OK;
  std::string text;

  bool failed() const { return status != SHARDQ_OK; }
};

/// printf into a string.
__attribute__((format(printf, 1, 2))) std::string format(const char *text, ...);

/// An outcome with a printf message.
__attribute__((format(printf, 2, 3))) Outcome failure(shardq_status status,
                                                      const char *text, ...);

/// SHARDQ_SYSTEM, naming the call that failed and the current errno.
Outcome systemFailure(const char *call);

/// Copies `text` into a caller's buffer, always zero-terminated.
void copyMessage(const std::string &text, char *message, size_t size);

/// A point on the monotonic clock.
class Deadline {
public:
  static Deadline in(int64_t milliseconds);

  /// Whole milliseconds left, rounded up, 0 once passed.
  int64_t remaining() const;
  bool passed() const { return Clock::now() >= at; }
  std::chrono::steady_clock::time_point point() const { return at; }

private:
  using Clock = std::chrono::steady_clock;
  explicit Deadline(Clock::time_point at) : at(at) {}
  Clock::time_point at;
};

/// Owns a file descriptor.
class Descriptor {
public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(Descriptor &&other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Descriptor() { reset(); }

  void reset();
  int get() const { return fd; }
  explicit operator bool() const { return fd >= 0; }

private:
  int fd = -1;
};

/// Waits until `fd` is ready for `events` of poll(); false once the deadline
/// has passed, or for a descriptor that cannot be waited for.
bool awaitReady(int fd, short events, const Deadline &deadline);

/// Sends or receives all bytes over a connected stream socket; false once the
/// deadline has passed or the connection is closed or broken.
bool sendAll(int fd, const void *data, size_t bytes, const Deadline &deadline);
bool receiveAll(int fd, void *data, size_t bytes, const Deadline &deadline);

} // namespace shardq

#endif // SHARDQ_RUNTIME_HOST_SUPPORT_H
