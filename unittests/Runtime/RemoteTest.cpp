//===- RemoteTest.cpp - Control plane between hosts -----------------------===//

#include "host/Remote.h"
#include "host/Memory.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace shardq;

namespace {

/// Ranks of one process that take each other for ranks elsewhere.
class RemoteRanks {
public:
  explicit RemoteRanks(int32_t world)
      : world(world), nonces(size_t(world)), reaches(size_t(world)),
        listeners(size_t(world)), sockets(size_t(world)),
        outcomes(size_t(world)) {
    for (int32_t rank = 0; rank != world; ++rank) {
      EXPECT_FALSE(makeNonce(nonces[size_t(rank)]).failed());
      Outcome outcome =
          listenRemote(world, listeners[size_t(rank)], reaches[size_t(rank)]);
      EXPECT_FALSE(outcome.failed()) << outcome.text;
    }
  }

  void connect(int64_t milliseconds, int32_t absent = -1) {
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank != world; ++rank)
      if (rank != absent)
        threads.emplace_back([this, rank, milliseconds] {
          size_t index = size_t(rank);
          outcomes[index] =
              connectRemote(rank, nonces, reaches, listeners[index],
                            Deadline::in(milliseconds), sockets[index]);
        });
    for (std::thread &thread : threads)
      thread.join();
  }

  const int32_t world;
  std::vector<Nonce> nonces;
  std::vector<Reach> reaches;
  std::vector<Descriptor> listeners;
  std::vector<std::vector<Descriptor>> sockets;
  std::vector<Outcome> outcomes;
};

/// A connection of somebody who knows the port.
Descriptor visit(uint16_t port, const void *text, size_t bytes) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr *>(&address),
                    sizeof(address)),
            0);
  EXPECT_EQ(send(fd.get(), text, bytes, MSG_NOSIGNAL), ssize_t(bytes));
  return fd;
}

Plan twoChannels() {
  Plan plan;
  plan.slots = 2;
  plan.slotBytes = 64;
  plan.channels.resize(2);
  return plan;
}

/// A rank's copy of the heaps.
Heaps copyOfHeaps(int32_t world) {
  Layout layout(twoChannels(), world, HeapPart::Control);
  std::shared_ptr<HeapSpace> space;
  EXPECT_FALSE(HeapSpace::allocate(layout.bytes, world, space).failed());
  return Heaps(std::move(space), layout);
}

/// Two ranks that are connected.
class RemotePair : public testing::Test {
protected:
  void SetUp() override {
    ranks.connect(20'000);
    for (int32_t rank = 0; rank != 2; ++rank) {
      ASSERT_FALSE(ranks.outcomes[size_t(rank)].failed());
      heaps.push_back(copyOfHeaps(2));
      remotes.push_back(std::make_unique<Remote>(heaps.back(), rank,
                                                 ranks.sockets[size_t(rank)]));
    }
  }

  /// Takes in what rank 0 has told.
  bool receive() {
    pollfd entry{ranks.sockets[1][0].get(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, 20'000), 1);
    return remotes[1]->receive(0);
  }

  RemoteRanks ranks{2};
  std::vector<Heaps> heaps;
  std::vector<std::unique_ptr<Remote>> remotes;
};

} // namespace

TEST(Remote, AllPairsAreConnected) {
  for (int32_t world : {1, 2, 3, 8}) {
    RemoteRanks ranks(world);
    ranks.connect(20'000);
    for (int32_t rank = 0; rank != world; ++rank) {
      EXPECT_FALSE(ranks.outcomes[size_t(rank)].failed())
          << ranks.outcomes[size_t(rank)].text;
      for (int32_t peer = 0; peer != world; ++peer)
        EXPECT_EQ(bool(ranks.sockets[size_t(rank)][size_t(peer)]),
                  peer != rank);
    }
  }
}

TEST(Remote, StrangersAreDropped) {
  RemoteRanks ranks(3);
  char garbage[64] = "GET / HTTP/1.1";
  Descriptor first = visit(ranks.reaches[0].port, garbage, sizeof(garbage));
  // One who says nothing more delays, and no more than that.
  Descriptor second = visit(ranks.reaches[1].port, garbage, 3);
  ranks.connect(20'000);
  for (const Outcome &outcome : ranks.outcomes)
    EXPECT_FALSE(outcome.failed()) << outcome.text;
}

TEST(Remote, RanksThatDoNotCome) {
  RemoteRanks ranks(3);
  ranks.connect(500, /*absent=*/2);
  for (int32_t rank : {0, 1}) {
    EXPECT_EQ(ranks.outcomes[size_t(rank)].status, SHARDQ_ABSENT);
    EXPECT_NE(ranks.outcomes[size_t(rank)].text.find("rank 2 did not connect"),
              std::string::npos)
        << ranks.outcomes[size_t(rank)].text;
  }
}

TEST(Remote, RanksOutOfReach) {
  RemoteRanks ranks(2);
  ranks.listeners[0].reset();
  ranks.connect(300, /*absent=*/0);
  EXPECT_EQ(ranks.outcomes[1].status, SHARDQ_ABSENT);
  EXPECT_NE(ranks.outcomes[1].text.find("rank 1 cannot reach rank 0 by TCP"),
            std::string::npos)
      << ranks.outcomes[1].text;
  ranks.reaches[0] = {};
  ranks.connect(300, /*absent=*/0);
  EXPECT_EQ(ranks.outcomes[1].status, SHARDQ_ABSENT);
}

TEST(Remote, AddressOfTheCaller) {
  setenv("SHARDQ_ADDRESS", "127.0.0.1", 1);
  {
    RemoteRanks ranks(2);
    EXPECT_EQ(ranks.reaches[0].count, 1);
    ranks.connect(20'000);
    EXPECT_FALSE(ranks.outcomes[1].failed()) << ranks.outcomes[1].text;
  }
  setenv("SHARDQ_ADDRESS", "not an address", 1);
  Descriptor listener;
  Reach reach;
  EXPECT_EQ(listenRemote(2, listener, reach).status, SHARDQ_INVALID);
  unsetenv("SHARDQ_ADDRESS");
}

TEST_F(RemotePair, NewsArrive) {
  remotes[0]->tellFlag({0, 1, 1, 7, 3, {0, 1, 2}});
  ASSERT_TRUE(receive());
  EXPECT_EQ(heaps[1].flagTable().line(1, 1, 1, 7, 0).flag.epoch, 7u);
  EXPECT_EQ(heaps[1].signalled(0, 1, 1), 7u);
  remotes[0]->tellProgress({0, 1, 0, 9, 2, {0, 1, 2}}, 1, true);
  ASSERT_TRUE(receive());
  EXPECT_EQ(heaps[1].progress(0, 1).waiting, 1u);
  EXPECT_EQ(heaps[1].progress(0, 1).target, 1);
  EXPECT_EQ(heaps[1].progress(0, 1).epoch, 9u);
  Failure failure, found;
  failure.status = SHARDQ_CAPACITY;
  failure.culprit = 0;
  EXPECT_FALSE(read(heaps[1].abort(1), found));
  remotes[0]->tellAbort(failure);
  ASSERT_TRUE(receive());
  ASSERT_TRUE(read(heaps[1].abort(1), found));
  EXPECT_EQ(found.status, SHARDQ_CAPACITY);
  EXPECT_EQ(heaps[1].left(0), 0u);
  remotes[0]->tellLeft();
  ASSERT_TRUE(receive());
  EXPECT_EQ(heaps[1].left(0), 1u);
}

TEST_F(RemotePair, NonsenseIsIgnored) {
  remotes[0]->tellFlag({0, 2, 0, 7, 3, {0, 1, 2}});
  remotes[0]->tellFlag({0, 0, -1, 7, 3, {0, 1, 2}});
  remotes[0]->tellFlag({0, 0, 0, 7, 3, {0, 1, 3}});
  remotes[0]->tellFlag({0, 0, 0, 7, 3, {1, INT64_MAX, 2}});
  remotes[0]->tellProgress({0, -3, 0, 9, 2, {0, 1, 2}}, 1, true);
  char text[1000];
  std::memset(text, 0x5a, sizeof(text));
  EXPECT_EQ(send(ranks.sockets[0][1].get(), text, sizeof(text), 0),
            ssize_t(sizeof(text)));
  EXPECT_TRUE(receive());
  ranks.sockets[0][1].reset();
  while (receive())
    ;
  for (int64_t channel : {0, 1})
    EXPECT_EQ(heaps[1].signalled(0, 0, channel), 0u);
}
