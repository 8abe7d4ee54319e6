//===- TcpBootstrapTest.cpp - Ranks that meet at a port -------------------===//

#include "host/Bootstrap.h"

#include "Ranks.h"

#include <arpa/inet.h>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace shardq;
using namespace shardq::test;

namespace {

sockaddr_in loopback(int32_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

/// A listening socket; port 0 takes any.
Descriptor listenAt(int32_t &port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(port);
  socklen_t length = sizeof(address);
  if (bind(fd.get(), reinterpret_cast<sockaddr *>(&address), length) != 0 ||
      listen(fd.get(), 16) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr *>(&address), &length) !=
          0)
    return {};
  port = ntohs(address.sin_port);
  return fd;
}

/// A port that was free a moment ago, with `count` free ones after it.
int32_t freePort(int32_t count = 0) {
  for (;;) {
    int32_t port = 0;
    std::vector<Descriptor> held;
    held.push_back(listenAt(port));
    bool free = port + count <= 65535;
    for (int32_t i = 1; free && i <= count; ++i) {
      int32_t next = port + i;
      held.push_back(listenAt(next));
      free = static_cast<bool>(held.back());
    }
    if (free)
      return port;
  }
}

Descriptor connectTo(int32_t port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(port);
  if (connect(fd.get(), reinterpret_cast<sockaddr *>(&address),
              sizeof(address)) != 0)
    return {};
  return fd;
}

using MakeBootstrap = std::function<shardq_bootstrap *(int32_t rank)>;

MakeBootstrap tcpAt(int32_t port, int32_t world) {
  return [=](int32_t rank) {
    shardq_bootstrap *bootstrap = nullptr;
    EXPECT_EQ(shardq_bootstrap_tcp("127.0.0.1", port, rank, world, &bootstrap),
              SHARDQ_OK);
    return bootstrap;
  };
}

/// Ranks on threads, which are processes to the runtime. `times` groups one
/// after the other from the same bootstraps.
std::vector<RankResult> run(int32_t world, const RankOptions &options,
                            const MakeBootstrap &make, int times = 1) {
  TestPlan plan(world, 4);
  std::vector<RankResult> results(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank != world; ++rank) {
    if (rank == options.absent)
      continue;
    shardq_bootstrap *bootstrap = make(rank);
    threads.emplace_back([&, rank, bootstrap] {
      for (int i = 0; i != times; ++i)
        runRank(
            bootstrap, rank, world, plan.plan, options,
            [&](shardq_comm *comm, RankResult &result) {
              result.correct =
                  runLayers(shardq_comm_context(comm, 0), plan, world, 3, 5);
            },
            results[static_cast<size_t>(rank)]);
      shardq_bootstrap_destroy(bootstrap);
    });
  }
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

void expectMet(const std::vector<RankResult> &results) {
  for (const RankResult &result : results) {
    EXPECT_EQ(result.status, SHARDQ_OK) << result.message;
    EXPECT_TRUE(result.correct);
  }
}

/// The environment of torchrun, for a rank.
void setTorchrun(int32_t rank, int32_t world, int32_t port) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(world).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

MakeBootstrap torchrunAt(int32_t port, int32_t world) {
  return [=](int32_t rank) {
    setTorchrun(rank, world, port);
    shardq_bootstrap *bootstrap = nullptr;
    EXPECT_EQ(shardq_bootstrap_torchrun(&bootstrap), SHARDQ_OK);
    return bootstrap;
  };
}

} // namespace

TEST(Tcp, Arguments) {
  shardq_bootstrap *bootstrap = nullptr;
  EXPECT_EQ(shardq_bootstrap_tcp("localhost", 1, 0, 1, nullptr),
            SHARDQ_INVALID);
  EXPECT_EQ(shardq_bootstrap_tcp(nullptr, 1, 0, 1, &bootstrap), SHARDQ_INVALID);
  EXPECT_EQ(shardq_bootstrap_tcp("", 1, 0, 1, &bootstrap), SHARDQ_INVALID);
  for (int32_t port : {-1, 0, 65536})
    EXPECT_EQ(shardq_bootstrap_tcp("localhost", port, 0, 1, &bootstrap),
              SHARDQ_INVALID);
  EXPECT_EQ(shardq_bootstrap_tcp("localhost", 1, 2, 2, &bootstrap),
            SHARDQ_INVALID);
  EXPECT_EQ(bootstrap, nullptr);
}

TEST(Tcp, RanksMeet) {
  for (int32_t world : {1, 2, 3, 8})
    expectMet(run(world, {}, tcpAt(freePort(), world)));
}

TEST(Tcp, SeveralGroupsFromOneBootstrap) {
  expectMet(run(3, {}, tcpAt(freePort(), 3), 3));
}

TEST(Tcp, Processes) {
  int32_t port = freePort();
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank != 4; ++rank) {
    pid_t child = fork();
    if (child == 0) {
      alarm(60);
      // The root comes last.
      if (rank == 0)
        usleep(100'000);
      TestPlan plan(4, 4);
      RankResult result{};
      shardq_bootstrap *bootstrap = nullptr;
      shardq_bootstrap_tcp("localhost", port, rank, 4, &bootstrap);
      runRank(
          bootstrap, rank, 4, plan.plan, {},
          [&](shardq_comm *comm, RankResult &outcome) {
            outcome.correct =
                runLayers(shardq_comm_context(comm, 0), plan, 4, 3, 5);
          },
          result);
      shardq_bootstrap_destroy(bootstrap);
      _exit(result.correct && result.status == SHARDQ_OK ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(Tcp, AbsentRank) {
  RankOptions options;
  options.rendezvousMs = 400;
  options.absent = 2;
  std::vector<RankResult> results = run(4, options, tcpAt(freePort(), 4));
  for (int32_t rank : {0, 1, 3}) {
    const RankResult &result = results[size_t(rank)];
    EXPECT_EQ(result.created, SHARDQ_ABSENT);
    EXPECT_EQ(
        std::string(result.message)
            .rfind("rank 2 did not come to the rendezvous at 127.0.0.1:", 0),
        0u)
        << result.message;
    EXPECT_LT(result.elapsedMs, 5000);
  }
}

TEST(Tcp, AbsentRoot) {
  RankOptions options;
  options.rendezvousMs = 300;
  options.absent = 0;
  std::vector<RankResult> results = run(3, options, tcpAt(freePort(), 3));
  for (int32_t rank : {1, 2}) {
    const RankResult &result = results[size_t(rank)];
    EXPECT_EQ(result.created, SHARDQ_ABSENT);
    EXPECT_NE(std::string(result.message).find("rank 0 did not come"),
              std::string::npos)
        << result.message;
    EXPECT_LT(result.elapsedMs, 5000);
  }
}

TEST(Tcp, PortIsTaken) {
  int32_t port = 0;
  Descriptor other = listenAt(port);
  RankOptions options;
  options.rendezvousMs = 300;
  std::vector<RankResult> results = run(2, options, tcpAt(port, 2));
  EXPECT_EQ(results[0].created, SHARDQ_BOOTSTRAP);
  EXPECT_NE(std::string(results[0].message).find("cannot listen"),
            std::string::npos)
      << results[0].message;
  EXPECT_EQ(results[1].created, SHARDQ_ABSENT) << results[1].message;
}

TEST(Tcp, UnknownAddress) {
  RankOptions options;
  options.rendezvousMs = 300;
  std::vector<RankResult> results = run(2, options, [](int32_t rank) {
    shardq_bootstrap *bootstrap = nullptr;
    shardq_bootstrap_tcp("no.such.host.invalid", 4000, rank, 2, &bootstrap);
    return bootstrap;
  });
  for (const RankResult &result : results)
    EXPECT_TRUE(result.created == SHARDQ_BOOTSTRAP ||
                result.created == SHARDQ_ABSENT)
        << result.message;
}

TEST(Tcp, WorldsDiffer) {
  int32_t port = freePort();
  RankOptions options;
  options.rendezvousMs = 2000;
  options.adjust = [](int32_t rank, shardq_comm_options &comm) {
    comm.world = rank == 1 ? 3 : 2;
  };
  std::vector<RankResult> results = run(2, options, [port](int32_t rank) {
    shardq_bootstrap *bootstrap = nullptr;
    shardq_bootstrap_tcp("127.0.0.1", port, rank, rank == 1 ? 3 : 2,
                         &bootstrap);
    return bootstrap;
  });
  for (const RankResult &result : results) {
    EXPECT_EQ(result.created, SHARDQ_MISMATCH);
    EXPECT_STREQ(result.message,
                 "rank 1 is one of 3 ranks, but rank 0 one of 2");
  }
}

TEST(Tcp, RankTwice) {
  int32_t port = freePort();
  RankOptions options;
  options.rendezvousMs = 2000;
  // Three ranks, of which two say that they are rank 1.
  TestPlan plan(3, 4);
  std::vector<RankResult> results(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i != 3; ++i)
    threads.emplace_back([&, i] {
      int32_t rank = i == 0 ? 0 : 1;
      shardq_bootstrap *bootstrap = tcpAt(port, 3)(rank);
      runRank(
          bootstrap, rank, 3, plan.plan, options,
          [](shardq_comm *, RankResult &) {}, results[i]);
      shardq_bootstrap_destroy(bootstrap);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const RankResult &result : results) {
    EXPECT_EQ(result.created, SHARDQ_MISMATCH);
    EXPECT_STREQ(result.message, "rank 1 came twice to the rendezvous");
  }
}

TEST(Tcp, StrangersAreIgnored) {
  int32_t port = freePort();
  std::atomic<bool> done = false;
  // Silent ones, ones that send nonsense of every length, ones that hang up.
  std::thread stranger([&] {
    std::vector<Descriptor> silent;
    std::string nonsense;
    for (unsigned turn = 0; !done; ++turn) {
      Descriptor fd = connectTo(port);
      if (!fd) {
        usleep(1000);
        continue;
      }
      nonsense.push_back(static_cast<char>(turn * 37 + 11));
      if (turn % 3 != 0)
        send(fd.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
      if (turn % 3 != 2)
        silent.push_back(std::move(fd));
      if (silent.size() > 100)
        silent.clear();
    }
  });
  std::vector<RankResult> results = run(4, {}, [&](int32_t rank) {
    // Time for strangers to come first.
    if (rank == 1)
      usleep(50'000);
    return tcpAt(port, 4)(rank);
  });
  done = true;
  stranger.join();
  expectMet(results);
}

TEST(Tcp, TorchrunEnvironment) {
  for (const char *name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    setTorchrun(0, 1, 4000);
    unsetenv(name);
    shardq_bootstrap *bootstrap = nullptr;
    EXPECT_EQ(shardq_bootstrap_torchrun(&bootstrap), SHARDQ_INVALID) << name;
  }
  for (auto [name, value] :
       {std::pair("RANK", "x"), std::pair("RANK", "1"), std::pair("RANK", "0 "),
        std::pair("WORLD_SIZE", ""), std::pair("MASTER_PORT", "70000"),
        std::pair("LOCAL_RANK", "?")}) {
    setTorchrun(0, 1, 4000);
    setenv(name, value, 1);
    shardq_bootstrap *bootstrap = nullptr;
    EXPECT_EQ(shardq_bootstrap_torchrun(&bootstrap), SHARDQ_INVALID) << name;
  }
  EXPECT_EQ(shardq_bootstrap_torchrun(nullptr), SHARDQ_INVALID);
  setTorchrun(0, 1, 4000);
  setenv("SHARDQ_PORT", "0x10", 1);
  shardq_bootstrap *bootstrap = nullptr;
  EXPECT_EQ(shardq_bootstrap_torchrun(&bootstrap), SHARDQ_INVALID);
  unsetenv("SHARDQ_PORT");
}

TEST(Tcp, TorchrunRanksMeet) {
  expectMet(run(3, {}, torchrunAt(freePort(16), 3)));
}

TEST(Tcp, TorchrunOwnPort) {
  setenv("SHARDQ_PORT", std::to_string(freePort()).c_str(), 1);
  expectMet(run(3, {}, torchrunAt(4000, 3)));
  unsetenv("SHARDQ_PORT");
}

TEST(Tcp, TorchrunPortsOfStrangers) {
  // torchrun's store and a server that answers everybody with nonsense have the
  // first two ports.
  int32_t port = freePort(16), store = port, next = port + 1;
  Descriptor torch = listenAt(store);
  Descriptor server = listenAt(next);
  ASSERT_TRUE(torch);
  ASSERT_TRUE(server);
  std::atomic<bool> done = false;
  std::thread answers([&] {
    while (!done) {
      Descriptor client(accept(server.get(), nullptr, nullptr));
      std::string nonsense(500, 'n');
      send(client.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
    }
  });
  expectMet(run(3, {}, torchrunAt(port, 3)));
  done = true;
  connectTo(next);
  answers.join();
}

TEST(Tcp, TwoLaunchesOfTorchrun) {
  // The second one's ports overlap the first one's.
  int32_t port = freePort(20);
  std::vector<shardq_bootstrap *> first, second;
  for (int32_t rank = 0; rank != 3; ++rank) {
    first.push_back(torchrunAt(port, 3)(rank));
    second.push_back(torchrunAt(port + 1, 3)(rank));
  }
  std::vector<RankResult> results;
  std::thread other([&] {
    results = run(3, {}, [&](int32_t rank) { return second[size_t(rank)]; });
  });
  expectMet(run(3, {}, [&](int32_t rank) { return first[size_t(rank)]; }));
  other.join();
  expectMet(results);
}
