//===- Carrier.cpp - NCCL between the ranks of a communicator -------------===//

#include "Carrier.h"

#include <time.h>

using namespace shardq;
using namespace shardq::nccl;
using cuda::Address;

std::string shardq::nccl::versionText(int version) {
  return format("%d.%d.%d", version / 10000, version / 100 % 100,
                version % 100);
}

Carrier::Carrier(const Library &library, cuda::Gpu &gpu, int32_t rank,
                 int32_t world, int32_t slots)
    : library(library), gpu(gpu), rank(rank), world(world) {
  for (int32_t slot = 0; slot != slots; ++slot)
    links.emplace_back(library);
}

Outcome Carrier::await(Link &link, const char *call, Result result,
                       const Deadline &deadline) {
  while (result == kInProgress && !deadline.passed()) {
    timespec nap{0, 200'000};
    nanosleep(&nap, nullptr);
    result = link.state();
  }
  if (result == kSuccess)
    return {};
  if (result == kInProgress)
    return failure(SHARDQ_ABSENT, "rank %d: %s did not end in time", rank,
                   call);
  return failure(SHARDQ_SYSTEM, "rank %d: %s", rank,
                 link.describe(call, result).c_str());
}

Outcome Carrier::open(const std::vector<UniqueId> &ids,
                      const Deadline &deadline) {
  cuda::Current current(gpu.driver, gpu.context);
  cuda::CaptureGuard guard(gpu.driver);
  for (size_t slot = 0; slot != links.size(); ++slot)
    if (Outcome outcome =
            await(links[slot], "ncclCommInitRankConfig",
                  links[slot].open(rank, world, ids[slot]), deadline);
        outcome.failed())
      return outcome;
  return {};
}

Outcome Carrier::check(const std::vector<uint64_t> &given,
                       const std::vector<uint64_t> &expected,
                       const Deadline &deadline) {
  if (world == 1)
    return {};
  cuda::Current current(gpu.driver, gpu.context);
  cuda::CaptureGuard guard(gpu.driver);
  constexpr uint64_t kWord = sizeof(uint64_t);
  uint64_t bytes = static_cast<uint64_t>(world) * kWord;
  Address sent = 0, came = 0;
  for (Address *address : {&sent, &came})
    if (cuda::Result result = gpu.allocate(bytes, *address))
      return gpu.driver.failed("cuMemAlloc", result);
  std::vector<Parcel> parcels;
  for (int32_t step = 1; step != world; ++step) {
    int32_t peer = (rank + step) % world;
    uint64_t offset = static_cast<uint64_t>(peer) * kWord;
    parcels.push_back({peer, sent + offset, kWord, came + offset, kWord});
  }
  cuda::Stream stream = gpu.ownStream();
  for (Link &link : links) {
    if (cuda::Result result =
            gpu.driver.copyToDevice(sent, given.data(), bytes, stream))
      return gpu.driver.failed("cuMemcpyHtoDAsync", result);
    if (cuda::Result result = gpu.driver.fill(came, 0, bytes, stream))
      return gpu.driver.failed("cuMemsetD8Async", result);
    if (Outcome outcome = await(
            link, "ncclGroupEnd",
            link.enqueue(parcels, stream, /*isCaptured=*/false), deadline);
        outcome.failed())
      return outcome;
    std::vector<uint64_t> words(expected.size());
    if (cuda::Result result =
            gpu.driver.copyToHost(words.data(), came, bytes, stream))
      return gpu.driver.failed("cuMemcpyDtoHAsync", result);
    if (Outcome outcome = gpu.waitFor("the first words of NCCL", deadline);
        outcome.failed()) {
      // The stream must come to rest before `words` goes.
      abort();
      Outcome rest = gpu.waitFor("an aborted group", Deadline::in(5000));
      return rest.failed() ? rest : outcome;
    }
    for (int32_t peer = 0; peer != world; ++peer)
      if (size_t index = static_cast<size_t>(peer);
          peer != rank && words[index] != expected[index])
        return failure(SHARDQ_UNREACHABLE,
                       "what rank %d sent to rank %d through NCCL did not "
                       "arrive",
                       peer, rank);
  }
  return {};
}

void Carrier::finish(const Deadline &deadline) {
  cuda::Current current(gpu.driver, gpu.context);
  cuda::CaptureGuard guard(gpu.driver);
  for (Link &link : links)
    link.finish(deadline);
}

void Carrier::abort() {
  cuda::Current current(gpu.driver, gpu.context);
  cuda::CaptureGuard guard(gpu.driver);
  for (Link &link : links)
    link.abort();
}
