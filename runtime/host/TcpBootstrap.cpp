//===- TcpBootstrap.cpp - Ranks that meet at rank 0 -----------------------===//
//
// Rank 0 listens, the others connect, and what all say goes through rank 0.
// Nothing is opened before the first step, which has a deadline as all steps.
//
// Whoever connects and does not say what a rank of this launch says is dropped,
// and whoever says nothing delays nobody: all connections are read side by
// side. Where the port may be somebody else's, several are tried in turn, by
// both sides; only rank 0 of this launch gives the right answer.
//
//===----------------------------------------------------------------------===//

#include "Bootstrap.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace shardq;

namespace {

/// First words of a connection, from the rank and back from rank 0.
struct Greeting {
  uint64_t magic;
  uint64_t session;
  int32_t rank;
  int32_t world;
};
constexpr uint64_t kGreetingMagic = 0x3150435451485348u;

/// Head of a step's data: a block to rank 0, all blocks back, or why not.
struct Head {
  uint64_t magic;
  uint64_t step;
  uint64_t bytes;
  int32_t status;
  char text[228];
};
constexpr uint64_t kHeadMagic = 0x3253505451485348u;

/// Strangers that are listened to at a time.
constexpr size_t kMaxStrangers = 64;
/// How long a port is waited for that took the connection.
constexpr int64_t kAnswerMs = 1000;
/// Ports from torchrun's on that are tried.
constexpr int32_t kPortsTried = 16;

/// A connection and what has been read of the message under way.
struct Peer {
  Descriptor socket;
  std::vector<char> read;
  bool complete = false; // this step's block is here
};

class TcpBootstrap : public shardq_bootstrap {
public:
  TcpBootstrap(std::string address, std::vector<int32_t> ports,
               uint64_t session, int32_t rank, int32_t world)
      : shardq_bootstrap(rank, world), address(std::move(address)),
        ports(std::move(ports)), session(session) {}

  Outcome allgather(const void *mine, void *all, size_t bytes,
                    const Deadline &deadline) override;

private:
  Outcome serve(const void *mine, void *all, size_t bytes,
                const Deadline &deadline);
  Outcome collect(void *all, size_t bytes, const Deadline &deadline);
  Outcome listenAnywhere(const Deadline &deadline);
  void acceptAll();
  Outcome greet(Peer &stranger, bool &gone);
  Outcome readBlock(int32_t peer, void *all, size_t bytes);
  void refuse(const std::vector<int> &fds, const Outcome &outcome);

  Outcome ask(const void *mine, void *all, size_t bytes,
              const Deadline &deadline);
  Outcome connectSomewhere(const Deadline &deadline);
  void disconnect();

  std::string place() const {
    return ports.size() == 1 ? format("%s:%d", address.c_str(), ports.front())
                             : format("%s:%d to %d", address.c_str(),
                                      ports.front(), ports.back());
  }

  const std::string address;
  const std::vector<int32_t> ports;
  const uint64_t session;
  uint64_t step = 0;

  // Rank 0's.
  Descriptor listener;
  std::vector<Peer> peers; // by rank
  std::vector<Peer> strangers;
  // Of the others.
  Descriptor root;
};

} // namespace

//===--- Sockets with deadlines -------------------------------------------===//

/// Reads what is there, at most up to `wanted` bytes in all; false once the
/// connection is closed.
static bool readSome(Peer &peer, size_t wanted) {
  while (peer.read.size() < wanted) {
    size_t before = peer.read.size();
    peer.read.resize(wanted);
    ssize_t count =
        recv(peer.socket.get(), peer.read.data() + before, wanted - before, 0);
    peer.read.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count > 0 || (count < 0 && errno == EINTR))
      continue;
    return count < 0 && errno == EAGAIN;
  }
  return true;
}

namespace {

/// Socket addresses of a host's port.
class Addresses {
public:
  Addresses(const std::string &host, int32_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    error =
        getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first);
  }
  ~Addresses() {
    if (!error)
      freeaddrinfo(first);
  }
  Addresses(const Addresses &) = delete;

  int error = 0;
  addrinfo *first = nullptr;
};

} // namespace

static Descriptor openSocket(const addrinfo &info) {
  Descriptor result(socket(info.ai_family,
                           info.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                           info.ai_protocol));
  if (result) {
    int on = 1;
    setsockopt(result.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return result;
}

//===--- Rank 0 -----------------------------------------------------------===//

Outcome TcpBootstrap::listenAnywhere(const Deadline &deadline) {
  std::string reason = "no address";
  // A port may be taken for a moment: by the sockets of an earlier launch, or
  // by a peer that looks for somebody there.
  Deadline patience =
      Deadline::in(std::min<int64_t>(deadline.remaining(), 1000));
  for (size_t turn = 0; turn < ports.size() || !patience.passed(); ++turn) {
    if (turn >= ports.size()) {
      timespec nap{0, 10'000'000};
      nanosleep(&nap, nullptr);
    }
    int32_t port = ports[turn % ports.size()];
    Addresses addresses(address, port);
    if (addresses.error)
      return failure(SHARDQ_BOOTSTRAP, "the address %s is unknown: %s",
                     address.c_str(), gai_strerror(addresses.error));
    for (addrinfo *info = addresses.first; info; info = info->ai_next) {
      Descriptor fd = openSocket(*info);
      if (!fd)
        continue;
      int on = 1;
      setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      if (bind(fd.get(), info->ai_addr, info->ai_addrlen) == 0 &&
          listen(fd.get(), std::max<int>(world, 16)) == 0) {
        listener = std::move(fd);
        peers.clear();
        peers.resize(static_cast<size_t>(world));
        return {};
      }
      reason = strerrordesc_np(errno);
    }
  }
  return failure(SHARDQ_BOOTSTRAP, "rank 0 cannot listen at %s: %s",
                 place().c_str(), reason.c_str());
}

void TcpBootstrap::acceptAll() {
  for (;;) {
    Descriptor socket(accept4(listener.get(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket)
      return;
    int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // The one that has been silent longest makes room.
    if (strangers.size() == kMaxStrangers)
      strangers.erase(strangers.begin());
    strangers.push_back({std::move(socket), {}, false});
  }
}

/// Tells everybody that is connected why the step failed, as far as they
/// listen.
void TcpBootstrap::refuse(const std::vector<int> &fds, const Outcome &outcome) {
  Head head{kHeadMagic, step, 0, outcome.status, {}};
  copyMessage(outcome.text, head.text, sizeof(head.text));
  Deadline patience = Deadline::in(500);
  for (int fd : fds)
    if (sendAll(fd, &head, sizeof(head), patience))
      shutdown(fd, SHUT_WR);
  // Closing while something is unread would take back what was just sent.
  char ignored[256];
  for (int fd : fds)
    while (awaitReady(fd, POLLIN, patience) &&
           recv(fd, ignored, sizeof(ignored), 0) > 0)
      ;
}

/// Reads a stranger's greeting; `gone` once it is a peer or dropped.
Outcome TcpBootstrap::greet(Peer &stranger, bool &gone) {
  gone = false;
  if (!readSome(stranger, sizeof(Greeting))) {
    gone = true;
    return {};
  }
  if (stranger.read.size() < sizeof(Greeting))
    return {};
  gone = true;
  Greeting greeting;
  std::memcpy(&greeting, stranger.read.data(), sizeof(greeting));
  if (greeting.magic != kGreetingMagic || greeting.session != session)
    return {};
  Greeting answer{kGreetingMagic, session, rank, world};
  if (!sendAll(stranger.socket.get(), &answer, sizeof(answer),
               Deadline::in(kAnswerMs)))
    return {};
  Outcome outcome;
  if (greeting.world != world)
    outcome = failure(SHARDQ_MISMATCH,
                      "rank %d is one of %d ranks, but rank 0 one of %d",
                      greeting.rank, greeting.world, world);
  else if (greeting.rank <= 0 || greeting.rank >= world ||
           peers[static_cast<size_t>(greeting.rank)].socket)
    outcome = failure(SHARDQ_MISMATCH, "rank %d came twice to the rendezvous",
                      greeting.rank);
  if (outcome.failed()) {
    refuse({stranger.socket.get()}, outcome);
    return outcome;
  }
  peers[static_cast<size_t>(greeting.rank)] = {
      std::move(stranger.socket), {}, false};
  return {};
}

Outcome TcpBootstrap::readBlock(int32_t peer, void *all, size_t bytes) {
  Peer &from = peers[static_cast<size_t>(peer)];
  bool open = readSome(from, sizeof(Head) + bytes);
  if (from.read.size() >= sizeof(Head)) {
    Head head;
    std::memcpy(&head, from.read.data(), sizeof(head));
    if (head.magic != kHeadMagic || head.step != step || head.bytes != bytes)
      return failure(SHARDQ_MISMATCH,
                     "rank %d is at another step of the rendezvous than rank 0",
                     peer);
  }
  if (from.read.size() == sizeof(Head) + bytes) {
    std::memcpy(static_cast<char *>(all) + static_cast<size_t>(peer) * bytes,
                from.read.data() + sizeof(Head), bytes);
    from.read.clear();
    from.complete = true;
    return {};
  }
  if (open)
    return {};
  // One that gave up waiting for an answer comes again.
  if (step == 0) {
    from = {};
    return {};
  }
  return failure(SHARDQ_ABSENT,
                 "rank %d closed its connection during the rendezvous", peer);
}

Outcome TcpBootstrap::collect(void *all, size_t bytes,
                              const Deadline &deadline) {
  for (;;) {
    int32_t missing = 1;
    while (missing != world && peers[static_cast<size_t>(missing)].complete)
      ++missing;
    if (missing == world)
      return {};
    if (deadline.passed())
      return failure(SHARDQ_ABSENT,
                     "rank %d did not come to the rendezvous at %s (rank 0 "
                     "waited at step %llu)",
                     missing, place().c_str(), (unsigned long long)step);

    std::vector<pollfd> entries = {{listener.get(), POLLIN, 0}};
    for (const Peer &stranger : strangers)
      entries.push_back({stranger.socket.get(), POLLIN, 0});
    for (const Peer &peer : peers)
      // poll skips negative descriptors.
      entries.push_back({peer.complete ? -1 : peer.socket.get(), POLLIN, 0});
    int timeout =
        static_cast<int>(std::min<int64_t>(deadline.remaining(), INT_MAX));
    if (poll(entries.data(), entries.size(), timeout) <= 0)
      continue;

    size_t known = strangers.size();
    for (int32_t peer = 1; peer != world; ++peer)
      if (entries[1 + known + static_cast<size_t>(peer)].revents)
        if (Outcome outcome = readBlock(peer, all, bytes); outcome.failed())
          return outcome;
    for (size_t i = known; i != 0; --i) {
      if (!entries[i].revents)
        continue;
      bool gone;
      Outcome outcome = greet(strangers[i - 1], gone);
      if (gone)
        strangers.erase(strangers.begin() + static_cast<ptrdiff_t>(i) - 1);
      if (outcome.failed())
        return outcome;
    }
    if (entries.front().revents)
      acceptAll();
  }
}

Outcome TcpBootstrap::serve(const void *mine, void *all, size_t bytes,
                            const Deadline &deadline) {
  if (!listener)
    if (Outcome outcome = listenAnywhere(deadline); outcome.failed())
      return outcome;
  for (Peer &peer : peers)
    peer.complete = false;
  std::memcpy(all, mine, bytes);
  Outcome outcome = collect(all, bytes, deadline);
  if (outcome.failed()) {
    // The others learn the reason, and not only that nothing comes.
    std::vector<int> fds;
    for (const Peer &peer : peers)
      if (peer.socket)
        fds.push_back(peer.socket.get());
    refuse(fds, outcome);
    return outcome;
  }
  Head head{kHeadMagic, step, bytes, SHARDQ_OK, {}};
  for (int32_t peer = 1; peer != world; ++peer) {
    int fd = peers[static_cast<size_t>(peer)].socket.get();
    if (!sendAll(fd, &head, sizeof(head), deadline) ||
        !sendAll(fd, all, bytes * static_cast<size_t>(world), deadline))
      return failure(SHARDQ_ABSENT,
                     "rank %d closed its connection during the rendezvous",
                     peer);
  }
  return {};
}

//===--- The others -------------------------------------------------------===//

Outcome TcpBootstrap::connectSomewhere(const Deadline &deadline) {
  Greeting mine{kGreetingMagic, session, rank, world};
  for (size_t turn = 0;; ++turn) {
    int32_t port = ports[turn % ports.size()];
    Addresses addresses(address, port);
    if (addresses.error && addresses.error != EAI_AGAIN)
      return failure(SHARDQ_BOOTSTRAP, "the address %s is unknown: %s",
                     address.c_str(), gai_strerror(addresses.error));
    for (addrinfo *info = addresses.first; info; info = info->ai_next) {
      Deadline answer = Deadline::in(std::min(kAnswerMs, deadline.remaining()));
      Descriptor fd = openSocket(*info);
      Greeting theirs{};
      if (!fd)
        continue;
      int error = 0;
      socklen_t length = sizeof(error);
      if (connect(fd.get(), info->ai_addr, info->ai_addrlen) != 0 &&
          (errno != EINPROGRESS || !awaitReady(fd.get(), POLLOUT, answer)))
        continue;
      if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 ||
          error != 0)
        continue;
      if (sendAll(fd.get(), &mine, sizeof(mine), answer) &&
          receiveAll(fd.get(), &theirs, sizeof(theirs), answer) &&
          // A port that nobody listens on may connect a socket to itself.
          theirs.magic == kGreetingMagic && theirs.session == session &&
          theirs.rank == 0) {
        root = std::move(fd);
        return {};
      }
    }
    if (deadline.passed())
      return failure(SHARDQ_ABSENT,
                     "rank 0 did not come to the rendezvous at %s (rank %d "
                     "waited)",
                     place().c_str(), rank);
    // All ports once, then a nap.
    if (turn % ports.size() == ports.size() - 1) {
      timespec nap{0, 20'000'000};
      nanosleep(&nap, nullptr);
    }
  }
}

Outcome TcpBootstrap::ask(const void *mine, void *all, size_t bytes,
                          const Deadline &deadline) {
  if (!root)
    if (Outcome outcome = connectSomewhere(deadline); outcome.failed())
      return outcome;
  Head head{kHeadMagic, step, bytes, SHARDQ_OK, {}};
  // Rank 0 has the same deadline, and says who is missing.
  Deadline late = Deadline::in(deadline.remaining() + 300);
  Head answer{};
  if (!sendAll(root.get(), &head, sizeof(head), late) ||
      !sendAll(root.get(), mine, bytes, late) ||
      !receiveAll(root.get(), &answer, sizeof(answer), late) ||
      answer.magic != kHeadMagic)
    return failure(SHARDQ_ABSENT,
                   "rank 0 %s during the rendezvous (rank %d waited at step "
                   "%llu)",
                   late.passed() ? "did not answer" : "closed its connection",
                   rank, (unsigned long long)step);
  if (answer.status != SHARDQ_OK)
    return failure(answer.status, "%.*s", static_cast<int>(sizeof(answer.text)),
                   answer.text);
  if (answer.step != step || answer.bytes != bytes)
    return failure(SHARDQ_MISMATCH,
                   "rank %d is at another step of the rendezvous than rank 0",
                   rank);
  if (!receiveAll(root.get(), all, bytes * static_cast<size_t>(world), late))
    return failure(SHARDQ_ABSENT,
                   "rank 0 closed its connection during the rendezvous (rank "
                   "%d waited at step %llu)",
                   rank, (unsigned long long)step);
  return {};
}

//===--- Both -------------------------------------------------------------===//

void TcpBootstrap::disconnect() {
  listener.reset();
  peers.clear();
  strangers.clear();
  root.reset();
  step = 0;
}

Outcome TcpBootstrap::allgather(const void *mine, void *all, size_t bytes,
                                const Deadline &deadline) {
  Outcome outcome = rank == 0 ? serve(mine, all, bytes, deadline)
                              : ask(mine, all, bytes, deadline);
  // After an error everybody begins anew.
  if (outcome.failed())
    disconnect();
  else
    ++step;
  return outcome;
}

static shardq_status makeTcp(std::string address, std::vector<int32_t> ports,
                             uint64_t session, int32_t rank, int32_t world,
                             shardq_bootstrap **out) {
  for (int32_t port : ports)
    if (port < 1 || port > 65535)
      return SHARDQ_INVALID;
  if (address.empty() || ports.empty() || !isRankOf(rank, world))
    return SHARDQ_INVALID;
  *out = new TcpBootstrap(std::move(address), std::move(ports), session, rank,
                          world);
  return SHARDQ_OK;
}

shardq_status shardq_bootstrap_tcp(const char *address, int32_t port,
                                   int32_t rank, int32_t world,
                                   shardq_bootstrap **out) {
  if (!out)
    return SHARDQ_INVALID;
  *out = nullptr;
  if (!address)
    return SHARDQ_INVALID;
  try {
    return makeTcp(address, {port}, tagNumber("shardq_bootstrap_tcp"), rank,
                   world, out);
  } catch (const std::bad_alloc &) {
    return SHARDQ_SYSTEM;
  }
}

/// A number of the environment; false if it is not there or none.
static bool readNumber(const char *name, int32_t &number) {
  const char *text = std::getenv(name);
  if (!text)
    return false;
  const char *end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, number);
  return error == std::errc() && stop == end && stop != text;
}

shardq_status shardq_bootstrap_torchrun(shardq_bootstrap **out) {
  if (!out)
    return SHARDQ_INVALID;
  *out = nullptr;
  int32_t rank = 0, world = 0, masterPort = 0, localRank = 0, port = 0;
  const char *address = std::getenv("MASTER_ADDR");
  if (!address || !readNumber("RANK", rank) ||
      !readNumber("WORLD_SIZE", world) ||
      !readNumber("MASTER_PORT", masterPort) ||
      (std::getenv("LOCAL_RANK") && !readNumber("LOCAL_RANK", localRank)) ||
      (std::getenv("SHARDQ_PORT") && !readNumber("SHARDQ_PORT", port)) ||
      masterPort < 1 || masterPort > 65535)
    return SHARDQ_INVALID;
  try {
    // Two launches on one machine may try the same ports.
    const char *run = std::getenv("TORCHELASTIC_RUN_ID");
    uint64_t session = tagNumber(
        format("torchrun %s %d %s", address, masterPort, run ? run : ""));
    std::vector<int32_t> ports;
    if (port)
      ports.push_back(port);
    // torchrun's own store has the first.
    for (int32_t i = 1; !port && i <= kPortsTried; ++i)
      ports.push_back(masterPort + i <= 65535 ? masterPort + i
                                              : masterPort - i);
    return makeTcp(address, std::move(ports), session, rank, world, out);
  } catch (const std::bad_alloc &) {
    return SHARDQ_SYSTEM;
  }
}
