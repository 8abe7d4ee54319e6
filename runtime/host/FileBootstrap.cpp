//===- FileBootstrap.cpp - Ranks that meet in a directory -----------------===//
//
// Step n of rank r is the file "shardq.n.r", complete from the moment it has
// that name. Nothing locks, so a rank that dies leaves nothing stuck.
//
//===----------------------------------------------------------------------===//

#include "Bootstrap.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace shardq;

namespace {

/// Head of a file: what a reader needs to refuse a stranger's.
struct FileHead {
  uint64_t magic;
  uint64_t step;
  uint64_t bytes;
  int32_t rank;
  int32_t world;
};
constexpr uint64_t kFileMagic = 0x31515442'44524853u;

class FileBootstrap : public shardq_bootstrap {
public:
  FileBootstrap(std::string directory, int32_t rank, int32_t world)
      : shardq_bootstrap(rank, world), directory(std::move(directory)) {}

  Outcome allgather(const void *mine, void *all, size_t bytes,
                    const Deadline &deadline) override;

private:
  std::string path(uint64_t atStep, int32_t ofRank) const {
    return format("%s/shardq.%llu.%d", directory.c_str(),
                  (unsigned long long)atStep, ofRank);
  }
  Outcome write(const void *mine, size_t bytes);
  Outcome read(int32_t peer, void *block, size_t bytes,
               const Deadline &deadline);

  std::string directory;
  uint64_t step = 0;
};

} // namespace

static bool writeAll(int fd, const void *data, size_t bytes) {
  const char *from = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t count = ::write(fd, from, bytes);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    from += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

static bool readAll(int fd, void *data, size_t bytes) {
  char *to = static_cast<char *>(data);
  while (bytes > 0) {
    ssize_t count = ::read(fd, to, bytes);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    to += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

Outcome FileBootstrap::write(const void *mine, size_t bytes) {
  FileHead head{kFileMagic, step, bytes, rank, world};
  std::string name = path(step, rank), partial = name + ".part";
  Descriptor fd(
      ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd || !writeAll(fd.get(), &head, sizeof(head)) ||
      !writeAll(fd.get(), mine, bytes) ||
      ::rename(partial.c_str(), name.c_str()) != 0) {
    Outcome outcome = systemFailure(("writing " + name).c_str());
    return {SHARDQ_BOOTSTRAP, std::move(outcome.text)};
  }
  return {};
}

Outcome FileBootstrap::read(int32_t peer, void *block, size_t bytes,
                            const Deadline &deadline) {
  std::string name = path(step, peer);
  Descriptor fd;
  // Short naps at first, since ranks mostly come together.
  for (long nap = 50'000; !fd; nap = std::min(nap * 2, 5'000'000L)) {
    fd = Descriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd)
      break;
    if (errno != ENOENT) {
      Outcome outcome = systemFailure(("opening " + name).c_str());
      return {SHARDQ_BOOTSTRAP, std::move(outcome.text)};
    }
    if (deadline.passed())
      return failure(SHARDQ_ABSENT,
                     "rank %d did not come to the rendezvous in %s (rank %d "
                     "waited at step %llu)",
                     peer, directory.c_str(), rank, (unsigned long long)step);
    timespec time{0, nap};
    nanosleep(&time, nullptr);
  }
  FileHead head{};
  if (!readAll(fd.get(), &head, sizeof(head)) || head.magic != kFileMagic ||
      head.rank != peer)
    return failure(SHARDQ_BOOTSTRAP, "%s is not a file of a ShardQ rank",
                   name.c_str());
  if (head.world != world)
    return failure(SHARDQ_MISMATCH,
                   "rank %d is one of %d ranks, but rank %d one of %d", rank,
                   world, peer, head.world);
  if (head.bytes != bytes || head.step != step)
    return failure(SHARDQ_MISMATCH,
                   "rank %d is at another step of the rendezvous than rank %d",
                   peer, rank);
  if (!readAll(fd.get(), block, bytes))
    return failure(SHARDQ_BOOTSTRAP, "%s is too short", name.c_str());
  return {};
}

Outcome FileBootstrap::allgather(const void *mine, void *all, size_t bytes,
                                 const Deadline &deadline) {
  if (Outcome outcome = write(mine, bytes); outcome.failed())
    return outcome;
  for (int32_t peer = 0; peer != world; ++peer)
    if (Outcome outcome =
            read(peer, static_cast<char *>(all) + bytes * size_t(peer), bytes,
                 deadline);
        outcome.failed())
      return outcome;
  // Whoever wrote this step has read the one before.
  if (step > 0)
    ::unlink(path(step - 1, rank).c_str());
  ++step;
  return {};
}

shardq_status shardq_bootstrap_files(const char *directory, int32_t rank,
                                     int32_t world, shardq_bootstrap **out) {
  if (!out)
    return SHARDQ_INVALID;
  *out = nullptr;
  if (!directory || !*directory || !isRankOf(rank, world))
    return SHARDQ_INVALID;
  try {
    *out = new FileBootstrap(directory, rank, world);
  } catch (const std::bad_alloc &) {
    return SHARDQ_SYSTEM;
  }
  return SHARDQ_OK;
}
