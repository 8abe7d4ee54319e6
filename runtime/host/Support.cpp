//===- Support.cpp - Outcomes, deadlines, descriptors ---------------------===//

#include "Support.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace shardq;

static std::string formatList(const char *text, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int length = std::vsnprintf(nullptr, 0, text, arguments);
  std::string result(static_cast<size_t>(std::max(length, 0)), '\0');
  // The terminator lands on the string's own.
  std::vsnprintf(result.data(), result.size() + 1, text, again);
  va_end(again);
  return result;
}

std::string shardq::format(const char *text, ...) {
  va_list arguments;
  va_start(arguments, text);
  std::string result = formatList(text, arguments);
  va_end(arguments);
  return result;
}

Outcome shardq::failure(shardq_status status, const char *text, ...) {
  va_list arguments;
  va_start(arguments, text);
  Outcome outcome{status, formatList(text, arguments)};
  va_end(arguments);
  return outcome;
}

Outcome shardq::systemFailure(const char *call) {
  // strerror's buffer may be shared between threads; the description functions
  // of glibc return static text.
  const char *description = strerrordesc_np(errno);
  return failure(SHARDQ_SYSTEM, "%s failed: %s", call,
                 description ? description : "unknown error");
}

void shardq::copyMessage(const std::string &text, char *message, size_t size) {
  if (!message || size == 0)
    return;
  size_t length = std::min(text.size(), size - 1);
  std::memcpy(message, text.data(), length);
  message[length] = '\0';
}

Deadline Deadline::in(int64_t milliseconds) {
  return Deadline(Clock::now() + std::chrono::milliseconds(milliseconds));
}

int64_t Deadline::remaining() const {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(at - Clock::now());
  return std::max<int64_t>(left.count(), 0);
}

void Descriptor::reset() {
  if (fd >= 0)
    ::close(fd);
  fd = -1;
}

bool shardq::awaitReady(int fd, short events, const Deadline &deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    int timeout =
        static_cast<int>(std::min<int64_t>(deadline.remaining(), INT_MAX));
    int count = poll(&entry, 1, timeout);
    if (count > 0)
      return true;
    if (count == 0 && deadline.passed())
      return false;
    if (count < 0 && errno != EINTR)
      return false;
  }
}

bool shardq::sendAll(int fd, const void *data, size_t bytes,
                     const Deadline &deadline) {
  const char *from = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t count = send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      from += count;
      bytes -= static_cast<size_t>(count);
    } else if (errno != EINTR &&
               (errno != EAGAIN || !awaitReady(fd, POLLOUT, deadline))) {
      return false;
    }
  }
  return true;
}

bool shardq::receiveAll(int fd, void *data, size_t bytes,
                        const Deadline &deadline) {
  char *to = static_cast<char *>(data);
  while (bytes > 0) {
    ssize_t count = recv(fd, to, bytes, MSG_DONTWAIT);
    if (count > 0) {
      to += count;
      bytes -= static_cast<size_t>(count);
    } else if (count == 0 ||
               (errno != EINTR &&
                (errno != EAGAIN || !awaitReady(fd, POLLIN, deadline)))) {
      return false;
    }
  }
  return true;
}
