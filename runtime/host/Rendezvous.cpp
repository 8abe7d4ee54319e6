//===- Rendezvous.cpp - Ranks meet, compare and map each other ------------===//
//
//   hello       allgather   everybody compares versions, plans, hosts
//   heaps       sockets     descriptors are swapped, heaps mapped
//   (reaches    allgather   ranks on several hosts: where each listens, and a
//                           copy of the heaps for each; descriptors of heaps on
//                           GPUs are swapped within each host)
//   (maps       allgather   threads on GPUs: everybody's heap is in its place)
//   tokens      barrier     everybody wrote into everybody's heap
//   report      allgather   everybody says whether all of that went well
//
// and where GPUs cannot write into each other's memory, or are not to, be it on
// some channels only, as those that span hosts:
//
//   nccl        allgather   everybody has it, of one version
//   ids         allgather   those of rank 0
//   report      allgather   everybody's words arrived that way
//
// A rank that fails in the middle still goes through the later steps, so that
// its peers learn the reason instead of running into their deadline.
//
//===----------------------------------------------------------------------===//

#include "Rendezvous.h"

#include "Memory.h"
#include "Remote.h"
#include "cuda/Gpu.h"
#include "nccl/Carrier.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace shardq;

Membership::Membership() = default;
Membership::~Membership() = default;

static constexpr uint64_t kHelloMagic = 0x4f4c4c45'48515153u;

/// A name of this host that differs between machines and between boots.
static void readHost(char (&host)[64]) {
  Descriptor fd(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  ssize_t length = fd ? read(fd.get(), host, sizeof(host) - 1) : -1;
  if (length <= 0) {
    gethostname(host, sizeof(host) - 1);
    return;
  }
  host[length] = '\0';
  host[std::strcspn(host, "\n")] = '\0';
}

static uint64_t networkNamespace() {
  struct stat status;
  return stat("/proc/self/ns/net", &status) == 0 ? status.st_ino : 0;
}

static Outcome fillHello(Hello &hello, int32_t rank, int32_t world,
                         const Plan &plan, const Outcome &local,
                         const Placement &placement) {
  hello = Hello{};
  hello.magic = kHelloMagic;
  hello.abi = SHARDQ_ABI_VERSION;
  hello.protocol = protocol::kProtocolVersion;
  hello.rank = rank;
  hello.world = world;
  hello.planHash = plan.hash;
  hello.shapeHash = plan.shapeHash();
  readHost(hello.host);
  hello.network = networkNamespace();
  if (placement.host)
    copyMessage(placement.host, hello.group, sizeof(hello.group));
  hello.memory = placement.memory;
  hello.transport = placement.transport;
  hello.device = -1;
  if (const cuda::Gpu *gpu = placement.gpu) {
    hello.device = gpu->getOrdinal();
    hello.deviceArch = gpu->getArch();
    static_assert(sizeof(hello.deviceUuid) == sizeof(cuda::Uuid));
    std::memcpy(hello.deviceUuid, &gpu->getUuid(), sizeof(hello.deviceUuid));
    hello.deviceHeapBytes = gpu->heapBytes();
  }
  hello.status = local.status;
  copyMessage(local.text, hello.text, sizeof(hello.text));
  return makeNonce(hello.nonce);
}

static bool isElsewhere(const Hello &a, const Hello &b) {
  return std::strncmp(a.group, b.group, sizeof(a.group)) != 0 ||
         std::strncmp(a.host, b.host, sizeof(a.host)) != 0 ||
         a.network != b.network;
}

Outcome shardq::compare(const std::vector<Hello> &hellos) {
  // Everybody compares with rank 0, so everybody finds the same pair.
  const Hello &first = hellos.front();
  int rank = 0;
  auto differ = [&rank](const char *what, unsigned long long found,
                        unsigned long long expected) {
    return failure(SHARDQ_MISMATCH,
                   "rank %d and rank 0 differ in %s: %llu and %llu", rank, what,
                   found, expected);
  };
  for (size_t i = 0; i != hellos.size(); ++i) {
    const Hello &other = hellos[i];
    rank = static_cast<int>(i);
    if (other.magic != kHelloMagic)
      return failure(SHARDQ_MISMATCH, "rank %d is not a ShardQ rank", rank);
    if (other.abi != first.abi)
      return differ("ABI version", other.abi, first.abi);
    if (other.protocol != first.protocol)
      return differ("protocol version", other.protocol, first.protocol);
  }
  for (size_t i = 0; i != hellos.size(); ++i) {
    const Hello &other = hellos[i];
    rank = static_cast<int>(i);
    if (other.status != SHARDQ_OK)
      return failure(other.status, "rank %d: %.*s", rank,
                     static_cast<int>(sizeof(other.text)), other.text);
  }
  for (size_t i = 0; i != hellos.size(); ++i) {
    const Hello &other = hellos[i];
    rank = static_cast<int>(i);
    if (other.rank != rank)
      return failure(SHARDQ_MISMATCH,
                     "the bootstrap's rank %d says that it is rank %d", rank,
                     other.rank);
    if (other.world != first.world)
      return failure(SHARDQ_MISMATCH,
                     "rank %d is one of %d ranks, but rank 0 one of %d", rank,
                     other.world, first.world);
    if (other.planHash != first.planHash)
      return failure(SHARDQ_MISMATCH,
                     "rank %d and rank 0 run different plans: hash 0x%llx and "
                     "0x%llx",
                     rank, (unsigned long long)other.planHash,
                     (unsigned long long)first.planHash);
    if (other.shapeHash != first.shapeHash)
      return failure(SHARDQ_MISMATCH,
                     "rank %d and rank 0 have plans of one hash, 0x%llx, but "
                     "of different sizes or transports",
                     rank, (unsigned long long)first.planHash);
    if (other.memory != first.memory) {
      auto name = [](int32_t memory) {
        return memory == SHARDQ_MEMORY_CUDA ? "a GPU" : "the host";
      };
      return failure(SHARDQ_MISMATCH,
                     "rank %d has its buffers on %s, but rank 0 on %s", rank,
                     name(other.memory), name(first.memory));
    }
    if (other.transport != first.transport)
      return differ("transport", static_cast<unsigned>(other.transport),
                    static_cast<unsigned>(first.transport));
    if (other.deviceArch != first.deviceArch)
      return differ("GPU architecture", static_cast<unsigned>(other.deviceArch),
                    static_cast<unsigned>(first.deviceArch));
    if (other.deviceHeapBytes != first.deviceHeapBytes)
      return differ("bytes of the GPU's heap", other.deviceHeapBytes,
                    first.deviceHeapBytes);
    if (other.memory == SHARDQ_MEMORY_HOST && isElsewhere(other, first))
      return failure(SHARDQ_MISMATCH,
                     "rank %d and rank 0 are on different hosts or in "
                     "different network namespaces, with buffers in host "
                     "memory",
                     rank);
  }
  return {};
}

/// The word that `writer` leaves in the heap of `owner`.
static uint64_t tokenOf(const Nonce &writer, int64_t owner) {
  uint64_t word;
  std::memcpy(&word, writer.data(), sizeof(word));
  return (word | 1) + 2 * static_cast<uint64_t>(owner);
}

void shardq::writeTokens(const Heaps &heaps, int32_t rank,
                         const std::vector<Nonce> &nonces) {
  for (size_t owner = 0; owner != nonces.size(); ++owner) {
    int64_t index = static_cast<int64_t>(owner);
    storeRelease(heaps.token(index, rank),
                 tokenOf(nonces[static_cast<size_t>(rank)], index));
  }
}

Outcome shardq::checkTokens(const Heaps &heaps, int32_t rank,
                            const std::vector<Nonce> &nonces) {
  for (size_t writer = 0; writer != nonces.size(); ++writer)
    if (loadAcquire(heaps.token(rank, static_cast<int64_t>(writer))) !=
        tokenOf(nonces[writer], rank))
      return failure(SHARDQ_UNREACHABLE,
                     "what rank %zu wrote into the heap of rank %d did not "
                     "arrive",
                     writer, rank);
  return {};
}

/// Tells everybody `mine` and takes over the first failure of any rank.
/// `canFallBack` becomes whether all failures can be got around, on input those
/// of this rank.
static Outcome shareReport(shardq_bootstrap &bootstrap, const Outcome &mine,
                           const Deadline &deadline, bool &canFallBack) {
  Report report{mine.status, canFallBack, {}};
  copyMessage(mine.text, report.text, sizeof(report.text));
  std::vector<Report> reports(static_cast<size_t>(bootstrap.world));
  canFallBack = false;
  if (Outcome outcome = bootstrap.allgather(&report, reports.data(),
                                            sizeof(report), deadline);
      outcome.failed())
    return mine.failed() ? mine : outcome;
  const Report *first = nullptr;
  for (const Report &other : reports) {
    if (other.status == SHARDQ_OK)
      continue;
    // What cannot be got around comes first.
    if (!first || (first->canFallBack && !other.canFallBack))
      first = &other;
  }
  if (!first)
    return {};
  canFallBack = first->canFallBack != 0;
  return failure(first->status, "%.*s", static_cast<int>(sizeof(first->text)),
                 first->text);
}

static Outcome shareReport(shardq_bootstrap &bootstrap, const Outcome &mine,
                           const Deadline &deadline) {
  bool canFallBack = false;
  return shareReport(bootstrap, mine, deadline, canFallBack);
}

/// The part of mapHeaps for ranks that are threads.
static Outcome mapShared(shardq_bootstrap &bootstrap, const Layout &layout,
                         Membership &membership) {
  std::shared_ptr<HeapSpace> space;
  Outcome outcome = bootstrap.sharedSpace(layout.bytes, space);
  if (!outcome.failed())
    membership.heaps = Heaps(std::move(space), layout);
  return outcome;
}

/// The heaps on GPUs of ranks that are threads; all have the same outcome.
static Outcome mapSharedGpus(shardq_bootstrap &bootstrap,
                             const std::vector<Hello> &hellos, cuda::Gpu &gpu,
                             Outcome outcome, const Deadline &deadline,
                             bool &canFallBack) {
  std::shared_ptr<void> range;
  if (!outcome.failed())
    outcome = bootstrap.sharedObject(
        "GPU heaps",
        [&gpu](std::shared_ptr<void> &made) {
          std::shared_ptr<cuda::AddressRange> fresh;
          Outcome result = gpu.reserve(fresh);
          made = std::move(fresh);
          return result;
        },
        range);
  if (!outcome.failed()) {
    std::vector<int> ordinals;
    for (const Hello &hello : hellos)
      ordinals.push_back(hello.device);
    outcome = gpu.mapShared(std::static_pointer_cast<cuda::AddressRange>(range),
                            ordinals);
  }
  canFallBack = outcome.status == SHARDQ_UNREACHABLE;
  // A peer's heap is there once that peer has been here.
  return shareReport(bootstrap, outcome, deadline, canFallBack);
}

/// Makes this rank's heap and maps those of all others. `gpuHeap` is a
/// descriptor to offer as well, or -1; `onDevice` receives those of the peers.
static Outcome mapHeaps(shardq_bootstrap &bootstrap, const Layout &layout,
                        const std::vector<Nonce> &nonces,
                        const Descriptor &listener, int gpuHeap,
                        const Deadline &deadline, Membership &membership,
                        std::vector<Descriptor> &onDevice) {
  std::shared_ptr<HeapSpace> space;
  int32_t rank = bootstrap.rank;
  Descriptor mine;
  std::vector<Offer> theirs;
  if (Outcome outcome = createHeapMemory(layout.bytes, mine); outcome.failed())
    return outcome;
  std::vector<int> offer = {mine.get()};
  if (gpuHeap >= 0)
    offer.push_back(gpuHeap);
  std::vector<char> nobody(nonces.size());
  if (Outcome outcome = connectMesh(rank, nonces, nobody, listener, offer,
                                    deadline, membership.sockets, theirs);
      outcome.failed())
    return outcome;
  if (Outcome outcome = HeapSpace::reserve(layout.bytes, layout.world, space);
      outcome.failed())
    return outcome;
  onDevice.resize(nonces.size());
  for (int32_t peer = 0; peer != layout.world; ++peer) {
    size_t index = static_cast<size_t>(peer);
    int fd = peer == rank ? mine.get() : theirs[index].front().get();
    if (Outcome outcome = checkHeapMemory(fd, layout.bytes); outcome.failed())
      return outcome;
    if (Outcome outcome = space->map(peer, fd); outcome.failed())
      return outcome;
    if (gpuHeap >= 0 && peer != rank)
      onDevice[index] = std::move(theirs[index].back());
  }
  membership.heaps = Heaps(std::move(space), layout);
  return {};
}

/// Makes a copy of all ranks' heaps for this rank alone, and connections that
/// will carry the changes.
static Outcome connectHosts(shardq_bootstrap &bootstrap, const Layout &layout,
                            const std::vector<Nonce> &nonces,
                            const Deadline &mapping, const Deadline &deadline,
                            Membership &membership) {
  membership.isRemote = true;
  Descriptor listener;
  Reach mine{};
  Outcome outcome = listenRemote(layout.world, listener, mine);
  std::vector<Reach> reaches(nonces.size());
  if (Outcome gathered =
          bootstrap.allgather(&mine, reaches.data(), sizeof(mine), deadline);
      gathered.failed())
    return outcome.failed() ? outcome : gathered;
  if (!outcome.failed())
    outcome = connectRemote(bootstrap.rank, nonces, reaches, listener, mapping,
                            membership.sockets);
  std::shared_ptr<HeapSpace> space;
  if (!outcome.failed())
    outcome = HeapSpace::allocate(layout.bytes, layout.world, space);
  if (!outcome.failed())
    membership.heaps = Heaps(std::move(space), layout);
  return outcome;
}

/// The heaps on GPUs of the ranks that are not elsewhere.
static Outcome swapGpuHeaps(int32_t rank, const std::vector<Nonce> &nonces,
                            const std::vector<char> &elsewhere,
                            const Descriptor &listener, int gpuHeap,
                            const Deadline &deadline,
                            std::vector<Descriptor> &onDevice) {
  // Closed at the end: the connections between hosts are between all ranks.
  std::vector<Descriptor> sockets;
  std::vector<Offer> theirs;
  if (Outcome outcome = connectMesh(rank, nonces, elsewhere, listener,
                                    {gpuHeap}, deadline, sockets, theirs);
      outcome.failed())
    return outcome;
  for (Offer &offer : theirs)
    onDevice.push_back(offer.empty() ? Descriptor() : std::move(offer.front()));
  return {};
}

namespace {

/// What a rank leaves with each other one, and what each other leaves with it.
struct Tokens {
  std::vector<uint64_t> given, expected;
};

/// What a rank says about its NCCL.
struct Invitation {
  int32_t version; // 0 without one
  char text[252];
};

} // namespace

/// The ids that rank 0 makes, one for each slot.
static Outcome shareIds(shardq_bootstrap &bootstrap,
                        const nccl::Library *library, int32_t slots,
                        const Deadline &deadline,
                        std::vector<nccl::UniqueId> &ids) {
  ids.assign(static_cast<size_t>(slots), {});
  Outcome made;
  if (bootstrap.rank == 0)
    for (nccl::UniqueId &id : ids)
      if (nccl::Result result = library->getUniqueId(&id);
          result != nccl::kSuccess && !made.failed())
        made = library->failed("ncclGetUniqueId", result);
  size_t bytes = ids.size() * sizeof(nccl::UniqueId);
  std::vector<nccl::UniqueId> all(ids.size() *
                                  static_cast<size_t>(bootstrap.world));
  Outcome outcome =
      bootstrap.allgather(ids.data(), all.data(), bytes, deadline);
  if (outcome.failed())
    return outcome;
  std::memcpy(ids.data(), all.data(), bytes);
  return shareReport(bootstrap, made, deadline);
}

/// Rows will travel through NCCL, for the reason `why`: all of them, or beside
/// mapped memory those of channels that ask for it.
static Outcome joinNccl(shardq_bootstrap &bootstrap, const Plan &plan,
                        cuda::Gpu &gpu, const Tokens &tokens,
                        const std::string &why, bool besideMapped,
                        const Deadline &deadline, Membership &membership) {
  const nccl::Library *library = nullptr;
  Outcome mine = nccl::Library::get(library);
  Invitation invitation{library ? library->version : 0, {}};
  copyMessage(mine.text, invitation.text, sizeof(invitation.text));
  std::vector<Invitation> all(static_cast<size_t>(bootstrap.world));
  if (Outcome outcome = bootstrap.allgather(&invitation, all.data(),
                                            sizeof(invitation), deadline);
      outcome.failed())
    return outcome;
  for (size_t rank = 0; rank != all.size(); ++rank)
    if (!all[rank].version)
      return failure(SHARDQ_UNREACHABLE,
                     "rank %zu: %.*s; it is needed, why: %s", rank,
                     static_cast<int>(sizeof(all[rank].text)), all[rank].text,
                     why.c_str());
  for (size_t rank = 0; rank != all.size(); ++rank)
    if (all[rank].version != all.front().version)
      return failure(SHARDQ_MISMATCH,
                     "rank %zu and rank 0 have different versions of NCCL: %s "
                     "and %s",
                     rank, nccl::versionText(all[rank].version).c_str(),
                     nccl::versionText(all.front().version).c_str());
  std::vector<nccl::UniqueId> ids;
  if (Outcome outcome = shareIds(bootstrap, library, plan.slots, deadline, ids);
      outcome.failed())
    return outcome;

  Deadline joining = Deadline::in(deadline.remaining() * 3 / 4);
  auto carrier = std::make_unique<nccl::Carrier>(*library, gpu, bootstrap.rank,
                                                 bootstrap.world, plan.slots);
  Outcome outcome;
  if (!besideMapped)
    outcome = gpu.mapAlone();
  if (!besideMapped && !outcome.failed())
    outcome = gpu.prepare(joining);
  if (!outcome.failed())
    outcome = carrier->open(ids, joining);
  if (!outcome.failed())
    outcome = carrier->check(tokens.given, tokens.expected, joining);
  outcome = shareReport(bootstrap, outcome, deadline);
  if (outcome.failed()) {
    carrier->abort();
    return outcome;
  }
  std::string version = nccl::versionText(library->version);
  if (besideMapped)
    membership.transport +=
        format("; nccl %s: %s", version.c_str(), why.c_str());
  else
    membership.transport = format("nccl %s: %s", version.c_str(), why.c_str());
  if (!besideMapped)
    membership.carried.assign(plan.channels.size(), 1);
  membership.carrier = std::move(carrier);
  return {};
}

/// By rank, the first rank of its host.
static std::vector<int32_t> findHosts(const std::vector<Hello> &hellos) {
  std::vector<int32_t> hosts;
  for (const Hello &hello : hellos)
    hosts.push_back(
        std::find_if(hellos.begin(), hellos.end(), [&](const Hello &one) {
          return !isElsewhere(one, hello);
        })->rank);
  return hosts;
}

/// The first rank that is not on the host of rank 0; -1 without one.
static int32_t findOtherHost(const std::vector<int32_t> &hosts) {
  auto other = std::find_if(hosts.begin(), hosts.end(),
                            [](int32_t host) { return host != 0; });
  return other == hosts.end() ? -1
                              : static_cast<int32_t>(other - hosts.begin());
}

namespace {

/// How rows travel between GPUs, as far as what all have said decides it.
struct Ways {
  std::vector<char> carried; // by channel, by NCCL
  std::string whyAll;        // all of them; empty if not
  std::string whySome;       // some beside others; empty if none, or all
};

} // namespace

static Ways chooseWays(const std::vector<Hello> &hellos,
                       const std::vector<int32_t> &hosts, const Plan &plan) {
  Ways ways;
  std::vector<char> spanning;
  int32_t other = findOtherHost(hosts);
  for (const Plan::Channel &channel : plan.channels) {
    bool spans = other >= 0 && !channel.staysOnHosts(hosts);
    ways.carried.push_back(channel.asksForNccl || spans);
    spanning.push_back(spans && !channel.asksForNccl);
  }
  std::string differ;
  if (other >= 0)
    differ = format("rank %d and rank 0 are on different hosts", other);
  std::string asked = plan.describeAsked();
  if (!asked.empty())
    asked = "the program asks for " + asked;

  bool isDirectSomewhere = std::find(ways.carried.begin(), ways.carried.end(),
                                     0) != ways.carried.end();
  if (hellos.front().transport == SHARDQ_TRANSPORT_NCCL)
    ways.whyAll = "asked for";
  else if (plan.asksForNccl)
    ways.whyAll = asked;
  else if (other >= 0 && !isDirectSomewhere)
    ways.whyAll = differ;
  if (!ways.whyAll.empty())
    return ways;

  ways.whySome = asked;
  if (std::string names = plan.describe(spanning); !names.empty())
    ways.whySome += (asked.empty() ? "" : ", and ") + differ +
                    ", whose ranks meet in " + names;
  return ways;
}

Outcome shardq::meet(shardq_bootstrap &bootstrap, int32_t world,
                     const Plan &plan, const Outcome &local,
                     const Placement &placement, const Deadline &deadline,
                     Membership &membership) {
  int32_t rank = bootstrap.rank;
  bool threads = bootstrap.ranksAreThreads();
  cuda::Gpu *gpu = placement.gpu;
  Hello mine;
  Outcome outcome = fillHello(mine, rank, world, plan, local, placement);
  Descriptor listener;
  // The listener is there before anybody can know its name.
  if (!outcome.failed() && !threads)
    outcome = listenFor(mine.nonce, world, listener);
  if (outcome.failed() && !local.failed()) {
    mine.status = outcome.status;
    copyMessage(outcome.text, mine.text, sizeof(mine.text));
  }

  std::vector<Hello> hellos(static_cast<size_t>(bootstrap.world));
  outcome = bootstrap.allgather(&mine, hellos.data(), sizeof(mine), deadline);
  if (outcome.failed())
    return local.failed() ? local : outcome;
  if (outcome = compare(hellos); outcome.failed())
    return outcome;
  const std::vector<int32_t> hosts = findHosts(hellos);
  Ways ways;
  if (gpu)
    ways = chooseWays(hellos, hosts, plan);
  std::string reason = ways.whyAll;
  bool isDirect = reason.empty();
  if (mine.transport == SHARDQ_TRANSPORT_DIRECT &&
      !(reason + ways.whySome).empty())
    return failure(SHARDQ_UNREACHABLE, "transport is direct, but %s",
                   (reason + ways.whySome).c_str());

  std::vector<Nonce> nonces;
  Tokens tokens;
  for (const Hello &hello : hellos) {
    nonces.push_back(hello.nonce);
    tokens.given.push_back(tokenOf(mine.nonce, hello.rank));
    tokens.expected.push_back(tokenOf(hello.nonce, rank));
  }
  // Some time is kept back for telling the others about a failure here.
  Deadline mapping = Deadline::in(deadline.remaining() * 3 / 4);
  Layout layout(plan, world, gpu ? HeapPart::Control : HeapPart::Whole);
  std::vector<Descriptor> onDevice;
  bool isRemote = !threads && findOtherHost(hosts) >= 0;
  // Threads reach each other's memory, whatever their hosts are called.
  std::vector<char> elsewhere(hosts.size());
  for (size_t peer = 0; isRemote && peer != hosts.size(); ++peer)
    elsewhere[peer] = hosts[peer] != hosts[static_cast<size_t>(rank)];
  if (gpu && isDirect)
    gpu->setWays(elsewhere, ways.carried);
  if (threads)
    outcome = mapShared(bootstrap, layout, membership);
  else if (isRemote)
    outcome =
        connectHosts(bootstrap, layout, nonces, mapping, deadline, membership);
  else
    outcome = mapHeaps(bootstrap, layout, nonces, listener,
                       gpu && isDirect ? gpu->descriptor() : -1, mapping,
                       membership, onDevice);
  if (gpu && isDirect && isRemote && !outcome.failed())
    outcome = swapGpuHeaps(rank, nonces, elsewhere, listener, gpu->descriptor(),
                           mapping, onDevice);
  // What concerns direct access only is not the end where there is NCCL.
  Outcome direct;
  bool canFallBack = false;
  if (gpu && isDirect && threads) {
    direct =
        mapSharedGpus(bootstrap, hellos, *gpu, outcome, deadline, canFallBack);
    // All have this outcome.
    if (direct.failed() && !canFallBack)
      return direct;
  } else if (gpu && isDirect && !outcome.failed()) {
    direct = gpu->mapPeers(onDevice);
  }
  bool probes = gpu && isDirect && !outcome.failed();
  if (probes && !ways.whySome.empty() && !direct.failed())
    direct = gpu->createCarriage();
  if (probes && !direct.failed())
    direct = gpu->prepare(mapping);
  if (probes && !direct.failed())
    direct = gpu->writeProbes(tokens.given, mapping);
  if (!outcome.failed() && !isRemote)
    writeTokens(membership.heaps, rank, nonces);
  Outcome barrier = bootstrap.barrier("shardq tokens", deadline);
  if (!outcome.failed())
    outcome = std::move(barrier);
  if (!outcome.failed() && !isRemote)
    outcome = checkTokens(membership.heaps, rank, nonces);
  if (probes && !direct.failed())
    direct = gpu->checkProbes(tokens.expected, deadline);
  canFallBack = !outcome.failed() && (direct.status == SHARDQ_UNREACHABLE);
  if (!outcome.failed())
    outcome = direct;
  outcome = shareReport(bootstrap, outcome, deadline, canFallBack);
  if (!outcome.failed() && isDirect) {
    membership.carried = std::move(ways.carried);
    membership.transport =
        !gpu ? "direct: ranks share the memory of the host"
        : mine.transport == SHARDQ_TRANSPORT_DIRECT
            ? "direct: asked for"
            : format("direct: %s, and what each wrote into the GPU memory of "
                     "the others arrived",
                     findOtherHost(hosts) >= 0 ? "within each host"
                                               : "all ranks are on one host");
    if (ways.whySome.empty())
      return {};
    return joinNccl(bootstrap, plan, *gpu, tokens, ways.whySome,
                    /*besideMapped=*/true, deadline, membership);
  }
  if (outcome.failed() &&
      (!canFallBack || mine.transport == SHARDQ_TRANSPORT_DIRECT))
    return outcome;
  if (outcome.failed())
    reason = std::move(outcome.text);
  return joinNccl(bootstrap, plan, *gpu, tokens, reason, /*besideMapped=*/false,
                  deadline, membership);
}
