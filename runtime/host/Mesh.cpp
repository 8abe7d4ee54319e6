//===- Mesh.cpp - Control sockets between rank processes ------------------===//

#include "Mesh.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

using namespace shardq;

namespace {

/// The one message of a connection, sent by both ends with the heaps attached.
struct Greeting {
  Nonce nonce;
  int32_t rank;
};

struct Address {
  sockaddr_un name;
  socklen_t length;
};

} // namespace

Outcome shardq::makeNonce(Nonce &nonce) {
  if (getrandom(nonce.data(), nonce.size(), 0) !=
      static_cast<ssize_t>(nonce.size()))
    return systemFailure("getrandom");
  return {};
}

static Address addressOf(const Nonce &nonce) {
  Address address{};
  address.name.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract: no file, gone with the socket.
  char *text = address.name.sun_path + 1;
  int length =
      std::snprintf(text, sizeof(address.name.sun_path) - 1, "shardq-");
  for (uint8_t byte : nonce)
    length += std::snprintf(text + length, 3, "%02x", byte);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                          static_cast<size_t>(length));
  return address;
}

static Descriptor openSocket() {
  return Descriptor(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Any process of the machine may connect to an abstract name; only those of
/// the same user are ranks.
static bool isSameUser(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == geteuid();
}

Outcome shardq::listenFor(const Nonce &nonce, int32_t world,
                          Descriptor &listener) {
  listener = openSocket();
  if (!listener)
    return systemFailure("socket");
  Address address = addressOf(nonce);
  if (bind(listener.get(), reinterpret_cast<sockaddr *>(&address.name),
           address.length) != 0)
    return systemFailure("bind of the control socket");
  if (listen(listener.get(), world) != 0)
    return systemFailure("listen on the control socket");
  return {};
}

static Outcome connectTo(int32_t peer, const Nonce &nonce,
                         const Deadline &deadline, Descriptor &socket) {
  socket = openSocket();
  if (!socket)
    return systemFailure("socket");
  Address address = addressOf(nonce);
  while (connect(socket.get(), reinterpret_cast<sockaddr *>(&address.name),
                 address.length) != 0) {
    // EAGAIN: the peer's queue is full for the moment.
    if (errno != EAGAIN && errno != EINTR)
      return failure(SHARDQ_BOOTSTRAP, "rank %d refuses connections: %s", peer,
                     strerrordesc_np(errno));
    if (deadline.passed())
      return failure(SHARDQ_ABSENT, "rank %d accepts no connections", peer);
    timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
  }
  if (!isSameUser(socket.get()))
    return failure(SHARDQ_BOOTSTRAP, "rank %d belongs to another user", peer);
  return {};
}

static Outcome sendGreeting(int fd, Greeting greeting,
                            const std::vector<int> &heaps, int32_t peer) {
  iovec data{&greeting, sizeof(greeting)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxOffered * sizeof(int))] = {};
  size_t bytes = heaps.size() * sizeof(int);
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(head), heaps.data(), bytes);
  ssize_t count;
  do
    count = sendmsg(fd, &message, MSG_NOSIGNAL);
  while (count < 0 && errno == EINTR);
  // A fresh connection has room for one message, so this never has to wait.
  if (count != static_cast<ssize_t>(sizeof(greeting)))
    return failure(SHARDQ_BOOTSTRAP, "sending the heap to rank %d failed: %s",
                   peer, strerrordesc_np(errno));
  return {};
}

/// Receives a greeting with `expected` descriptors; false if what came is none.
static bool receiveGreeting(int fd, Greeting &greeting, size_t expected,
                            Offer &heaps) {
  iovec data{&greeting, sizeof(greeting)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxOffered * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t count;
  do
    count = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  for (cmsghdr *head = CMSG_FIRSTHDR(&message); count >= 0 && head;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
      continue;
    // All of them are owned from here on, wanted or not.
    for (size_t offset = 0; CMSG_LEN(offset + sizeof(int)) <= head->cmsg_len;
         offset += sizeof(int)) {
      int received;
      std::memcpy(&received, CMSG_DATA(head) + offset, sizeof(int));
      heaps.emplace_back(received);
    }
  }
  return count == static_cast<ssize_t>(sizeof(greeting)) &&
         heaps.size() == expected;
}

Outcome shardq::connectMesh(int32_t rank, const std::vector<Nonce> &nonces,
                            const std::vector<char> &elsewhere,
                            const Descriptor &listener,
                            const std::vector<int> &offer,
                            const Deadline &deadline,
                            std::vector<Descriptor> &sockets,
                            std::vector<Offer> &theirs) {
  int32_t world = static_cast<int32_t>(nonces.size());
  sockets.resize(nonces.size());
  theirs.resize(nonces.size());
  Greeting mine{nonces[static_cast<size_t>(rank)], rank};

  std::vector<int32_t> below, above;
  for (int32_t peer = 0; peer != world; ++peer)
    if (peer != rank && !elsewhere[static_cast<size_t>(peer)])
      (peer < rank ? below : above).push_back(peer);

  // Connecting does not need the other side to accept yet, so no order of
  // ranks can block here.
  for (int32_t peer : below) {
    size_t index = static_cast<size_t>(peer);
    if (Outcome outcome =
            connectTo(peer, nonces[index], deadline, sockets[index]);
        outcome.failed())
      return outcome;
    if (Outcome outcome = sendGreeting(sockets[index].get(), mine, offer, peer);
        outcome.failed())
      return outcome;
  }

  for (size_t missing = above.size(); missing > 0;) {
    if (!awaitReady(listener.get(), POLLIN, deadline)) {
      auto absent = std::find_if(above.begin(), above.end(), [&](int32_t peer) {
        return !sockets[static_cast<size_t>(peer)];
      });
      return failure(SHARDQ_ABSENT, "rank %d did not connect to rank %d",
                     *absent, rank);
    }
    Descriptor socket(accept4(listener.get(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket || !isSameUser(socket.get()))
      continue;
    // Strangers are dropped, not an error: they could be anybody's.
    Greeting greeting{};
    Offer taken;
    if (!awaitReady(socket.get(), POLLIN, deadline) ||
        !receiveGreeting(socket.get(), greeting, offer.size(), taken) ||
        greeting.rank <= rank || greeting.rank >= world)
      continue;
    size_t index = static_cast<size_t>(greeting.rank);
    if (greeting.nonce != nonces[index] || sockets[index] || elsewhere[index])
      continue;
    if (Outcome outcome =
            sendGreeting(socket.get(), mine, offer, greeting.rank);
        outcome.failed())
      return outcome;
    sockets[index] = std::move(socket);
    theirs[index] = std::move(taken);
    --missing;
  }

  for (int32_t peer : below) {
    size_t index = static_cast<size_t>(peer);
    Greeting greeting{};
    if (!awaitReady(sockets[index].get(), POLLIN, deadline))
      return failure(SHARDQ_ABSENT, "rank %d did not send its heap to rank %d",
                     peer, rank);
    if (!receiveGreeting(sockets[index].get(), greeting, offer.size(),
                         theirs[index]) ||
        greeting.rank != peer || greeting.nonce != nonces[index])
      return failure(SHARDQ_BOOTSTRAP,
                     "rank %d closed its connection to rank %d during the "
                     "rendezvous",
                     peer, rank);
  }
  return {};
}
