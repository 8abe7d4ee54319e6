//===- Remote.cpp - Control plane between hosts ---------------------------===//

#include "Remote.h"

#include "Waiting.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

using namespace shardq;
using protocol::Exchange;

//===--- Connections ------------------------------------------------------===//

namespace {

/// First words of a connection in both directions. The one who connects then
/// confirms, so that a connection that it gave up is none.
struct Hand {
  uint64_t magic;
  Nonce nonce;
  int32_t rank;
  int32_t unused;
};
constexpr uint64_t kHandMagic = 0x444e414851485353u;
constexpr char kConfirm = 'k';

/// How long one address is tried, and a stranger listened to.
constexpr int64_t kAttemptMs = 2000;

} // namespace

static Deadline attempt(const Deadline &deadline) {
  return Deadline::in(std::min<int64_t>(deadline.remaining(), kAttemptMs));
}

/// A host that goes away says nothing: it is asked.
static void setOptions(int fd) {
  static constexpr int kOptions[][3] = {
      {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
      {IPPROTO_TCP, TCP_KEEPIDLE, 5}, {IPPROTO_TCP, TCP_KEEPINTVL, 2},
      {IPPROTO_TCP, TCP_KEEPCNT, 3},  {IPPROTO_TCP, TCP_USER_TIMEOUT, 15000}};
  for (const auto &[level, option, value] : kOptions)
    setsockopt(fd, level, option, &value, sizeof(value));
}

static void addAddress(const sockaddr *address, Reach &reach) {
  if (!address || reach.count == Reach::kMax)
    return;
  Reach::Address entry{};
  if (address->sa_family == AF_INET) {
    const auto *v4 = reinterpret_cast<const sockaddr_in *>(address);
    std::memcpy(entry.bytes, &v4->sin_addr, sizeof(v4->sin_addr));
  } else if (address->sa_family == AF_INET6) {
    const auto *v6 = reinterpret_cast<const sockaddr_in6 *>(address);
    // Those of a link would need its name on the other side.
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
      return;
    std::memcpy(entry.bytes, &v6->sin6_addr, sizeof(v6->sin6_addr));
    entry.isV6 = 1;
  } else {
    return;
  }
  reach.addresses[reach.count++] = entry;
}

static Outcome findAddresses(Reach &reach) {
  if (const char *name = std::getenv("SHARDQ_ADDRESS"); name && *name) {
    addrinfo hints{}, *first = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (int error = getaddrinfo(name, nullptr, &hints, &first))
      return failure(SHARDQ_INVALID, "SHARDQ_ADDRESS is %s: %s", name,
                     gai_strerror(error));
    for (addrinfo *info = first; info; info = info->ai_next)
      addAddress(info->ai_addr, reach);
    freeaddrinfo(first);
    return {};
  }
  ifaddrs *first = nullptr;
  if (getifaddrs(&first) != 0)
    return systemFailure("getifaddrs");
  // Loopback last: on another host it is another one.
  for (auto [family, loopback] :
       {std::pair(AF_INET, false), std::pair(AF_INET6, false),
        std::pair(AF_INET, true)})
    for (ifaddrs *entry = first; entry; entry = entry->ifa_next)
      if (entry->ifa_addr && entry->ifa_addr->sa_family == family &&
          (entry->ifa_flags & IFF_UP) &&
          ((entry->ifa_flags & IFF_LOOPBACK) != 0) == loopback)
        addAddress(entry->ifa_addr, reach);
  freeifaddrs(first);
  return {};
}

Outcome shardq::listenRemote(int32_t world, Descriptor &listener,
                             Reach &reach) {
  reach = {};
  if (Outcome outcome = findAddresses(reach); outcome.failed())
    return outcome;
  // One socket for both families, or for the one that there is.
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in6);
  listener = Descriptor(
      socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener) {
    int off = 0;
    setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    address.ss_family = AF_INET6;
  }
  if (!listener || bind(listener.get(), reinterpret_cast<sockaddr *>(&address),
                        length) != 0) {
    listener = Descriptor(
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    address = {};
    address.ss_family = AF_INET;
    length = sizeof(sockaddr_in);
    if (!listener || bind(listener.get(),
                          reinterpret_cast<sockaddr *>(&address), length) != 0)
      return systemFailure("bind of the control socket");
  }
  if (listen(listener.get(), std::max<int>(world, 16)) != 0)
    return systemFailure("listen on the control socket");
  length = sizeof(address);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr *>(&address),
                  &length) != 0)
    return systemFailure("getsockname");
  reach.port = ntohs(address.ss_family == AF_INET6
                         ? reinterpret_cast<sockaddr_in6 *>(&address)->sin6_port
                         : reinterpret_cast<sockaddr_in *>(&address)->sin_port);
  return {};
}

static Descriptor connectOnce(const Reach::Address &to, uint16_t port,
                              const Deadline &deadline) {
  sockaddr_storage address{};
  socklen_t length;
  if (to.isV6) {
    auto *v6 = reinterpret_cast<sockaddr_in6 *>(&address);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    std::memcpy(&v6->sin6_addr, to.bytes, sizeof(v6->sin6_addr));
    length = sizeof(*v6);
  } else {
    auto *v4 = reinterpret_cast<sockaddr_in *>(&address);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    std::memcpy(&v4->sin_addr, to.bytes, sizeof(v4->sin_addr));
    length = sizeof(*v4);
  }
  Descriptor fd(
      socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    return {};
  setOptions(fd.get());
  if (connect(fd.get(), reinterpret_cast<sockaddr *>(&address), length) != 0) {
    int error = errno;
    socklen_t size = sizeof(error);
    if ((error != EINPROGRESS && error != EINTR) ||
        !awaitReady(fd.get(), POLLOUT, deadline) ||
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 ||
        error != 0)
      return {};
  }
  return fd;
}

Outcome shardq::connectRemote(int32_t rank, const std::vector<Nonce> &nonces,
                              const std::vector<Reach> &reaches,
                              const Descriptor &listener,
                              const Deadline &deadline,
                              std::vector<Descriptor> &sockets) {
  int32_t world = static_cast<int32_t>(nonces.size());
  sockets.resize(nonces.size());
  Hand mine{kHandMagic, nonces[static_cast<size_t>(rank)], rank, 0};
  auto isFrom = [&](const Hand &hand, int32_t peer) {
    return hand.magic == kHandMagic && hand.rank == peer &&
           hand.nonce == nonces[static_cast<size_t>(peer)];
  };

  // Rank 0 only accepts, so everybody comes to the end one after the other.
  for (int32_t peer = 0; peer != rank; ++peer) {
    size_t index = static_cast<size_t>(peer);
    const Reach &reach = reaches[index];
    size_t count = std::min<size_t>(reach.count, Reach::kMax);
    for (size_t turn = 0; !sockets[index]; ++turn) {
      if (deadline.passed() || count == 0)
        return failure(SHARDQ_ABSENT,
                       "rank %d cannot reach rank %d by TCP at any of its %zu "
                       "addresses",
                       rank, peer, count);
      Deadline until = attempt(deadline);
      Descriptor fd =
          connectOnce(reach.addresses[turn % count], reach.port, until);
      Hand theirs{};
      if (fd && sendAll(fd.get(), &mine, sizeof(mine), until) &&
          receiveAll(fd.get(), &theirs, sizeof(theirs), until) &&
          isFrom(theirs, peer) &&
          sendAll(fd.get(), &kConfirm, sizeof(kConfirm), until)) {
        sockets[index] = std::move(fd);
        break;
      }
      timespec nap{0, 5'000'000};
      nanosleep(&nap, nullptr);
    }
  }

  for (int32_t missing = world - 1 - rank; missing > 0;) {
    if (!awaitReady(listener.get(), POLLIN, deadline)) {
      int32_t peer = rank + 1;
      while (sockets[static_cast<size_t>(peer)])
        ++peer;
      return failure(SHARDQ_ABSENT, "rank %d did not connect to rank %d", peer,
                     rank);
    }
    Descriptor fd(accept4(listener.get(), nullptr, nullptr,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd)
      continue;
    setOptions(fd.get());
    // Strangers are dropped, not an error: they could be anybody's.
    Deadline until = attempt(deadline);
    Hand theirs{};
    char confirmed = 0;
    if (!receiveAll(fd.get(), &theirs, sizeof(theirs), until) ||
        theirs.rank <= rank || theirs.rank >= world ||
        !isFrom(theirs, theirs.rank) ||
        sockets[static_cast<size_t>(theirs.rank)] ||
        !sendAll(fd.get(), &mine, sizeof(mine), until) ||
        !receiveAll(fd.get(), &confirmed, sizeof(confirmed), until) ||
        confirmed != kConfirm)
      continue;
    sockets[static_cast<size_t>(theirs.rank)] = std::move(fd);
    --missing;
  }
  return {};
}

//===--- Messages ---------------------------------------------------------===//

struct Remote::Message {
  enum Kind : int64_t { Abort = 1, Left, Flag, Progress };
  int64_t kind;
  int64_t words[Failure::kWords];
};

Remote::Remote(const Heaps &heaps, int32_t rank,
               const std::vector<Descriptor> &descriptors)
    : heaps(heaps), rank(rank), isMute(descriptors.size()),
      unread(descriptors.size()) {
  static_assert(sizeof(Failure) == sizeof(Message::words));
  for (const Descriptor &descriptor : descriptors)
    sockets.push_back(descriptor.get());
}

/// News of how far a rank is may be left out where a peer does not read: they
/// only say whom to name. What is urgent is sent as long as that takes, in
/// reason.
void Remote::tell(const Message &message, bool isUrgent) {
  std::lock_guard<std::mutex> lock(mutex);
  Deadline deadline = Deadline::in(500);
  for (size_t peer = 0; peer != sockets.size(); ++peer) {
    int fd = sockets[peer];
    if (fd < 0 || isMute[peer])
      continue;
    pollfd entry{fd, POLLOUT, 0};
    if (!isUrgent && (poll(&entry, 1, 0) <= 0 || !(entry.revents & POLLOUT)))
      continue;
    // Half a message would be taken for the beginning of the next.
    isMute[peer] = !sendAll(fd, &message, sizeof(message), deadline);
  }
}

void Remote::tellAbort(const Failure &failure) {
  Message message{Message::Abort, {}};
  std::memcpy(message.words, &failure, sizeof(failure));
  tell(message, /*isUrgent=*/true);
}

void Remote::tellLeft() { tell({Message::Left, {}}, /*isUrgent=*/true); }

void Remote::tellFlag(const Exchange &exchange) {
  tell({Message::Flag,
        {exchange.slot, exchange.channel, static_cast<int64_t>(exchange.epoch),
         exchange.operation, exchange.group.first, exchange.group.stride,
         exchange.group.size}},
       /*isUrgent=*/false);
}

void Remote::tellProgress(const Exchange &exchange, int64_t target,
                          bool isWaiting) {
  tell({Message::Progress,
        {exchange.slot, isWaiting, target, exchange.channel, exchange.operation,
         static_cast<int64_t>(exchange.epoch)}},
       /*isUrgent=*/false);
}

bool Remote::receive(int32_t peer) {
  std::vector<char> &bytes = unread[static_cast<size_t>(peer)];
  int fd = sockets[static_cast<size_t>(peer)];
  char buffer[4096];
  ssize_t count = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
  if (count <= 0)
    return count < 0 && (errno == EAGAIN || errno == EINTR);
  bytes.insert(bytes.end(), buffer, buffer + count);
  size_t at = 0;
  for (; bytes.size() - at >= sizeof(Message); at += sizeof(Message)) {
    Message message;
    std::memcpy(&message, bytes.data() + at, sizeof(message));
    apply(peer, message);
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(at));
  return true;
}

/// Into this rank's copy. What a peer says is not trusted to be in range.
void Remote::apply(int32_t peer, const Message &message) {
  const Layout &layout = heaps.getLayout();
  const int64_t *words = message.words;
  auto isWithin = [](int64_t value, int64_t end) {
    return value >= 0 && value < end;
  };
  switch (message.kind) {
  case Message::Abort: {
    Failure failure;
    std::memcpy(&failure, words, sizeof(failure));
    post(heaps.abort(rank), failure);
    return;
  }
  case Message::Left:
    storeRelease(heaps.left(peer), uint64_t(1));
    return;
  case Message::Flag: {
    Exchange exchange{peer,     words[0],
                      words[1], static_cast<uint64_t>(words[2]),
                      words[3], {words[4], words[5], words[6]}};
    int64_t outside;
    if (!isWithin(exchange.slot, layout.slots) ||
        !isWithin(exchange.channel, layout.channels) ||
        !exchange.group.isWithin(layout.world, outside))
      return;
    HostMemory memory(heaps);
    std::vector<int64_t> rows(static_cast<size_t>(exchange.group.size));
    protocol::signal(memory, heaps.flagTable(), exchange, rows.data());
    storeRelease(heaps.signalled(peer, exchange.slot, exchange.channel),
                 exchange.epoch);
    return;
  }
  case Message::Progress: {
    if (!isWithin(words[0], layout.slots))
      return;
    SlotProgress &progress = heaps.progress(peer, words[0]);
    storeRelaxed(progress.target, words[2]);
    storeRelaxed(progress.channel, words[3]);
    storeRelaxed(progress.operation, words[4]);
    storeRelaxed(progress.epoch, static_cast<uint64_t>(words[5]));
    storeRelease(progress.waiting, static_cast<uint64_t>(words[1] != 0));
    return;
  }
  default:
    return;
  }
}
