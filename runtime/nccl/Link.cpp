//===- Link.cpp - One NCCL communicator that does not block ---------------===//

#include "Link.h"

#include <thread>
#include <time.h>
#include <utility>

using namespace shardq;
using namespace shardq::nccl;

/// Longest time in which a group of an aborted communicator is launched: its
/// peers are connected, so nothing holds it up.
static constexpr int64_t kLaunchMs = 2000;

static void nap() {
  timespec time{0, 200'000};
  nanosleep(&time, nullptr);
}

static Result orError(Result first, Result second) {
  return first != kSuccess && first != kInProgress ? first : second;
}

Result Link::open(int32_t rank, int32_t world, const UniqueId &id) {
  std::lock_guard<std::mutex> lock(mutex);
  Config config;
  return library.initRank(&communicator, world, id, rank, &config);
}

Result Link::state() {
  std::lock_guard<std::mutex> lock(mutex);
  if (!communicator)
    return kAborted;
  Result state = kSuccess;
  return orError(library.getAsyncError(communicator, &state), state);
}

Result Link::enqueue(const std::vector<Parcel> &parcels, cuda::Stream stream,
                     bool isCaptured) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!communicator)
    return kAborted;
  mayBeInGraphs |= isCaptured;
  Result result = library.groupStart();
  for (const Parcel &parcel : parcels) {
    if (parcel.sourceBytes)
      result = orError(
          result, library.send(reinterpret_cast<const void *>(parcel.source),
                               parcel.sourceBytes, kBytes, parcel.peer,
                               communicator, stream));
    if (parcel.targetBytes)
      result = orError(result,
                       library.receive(reinterpret_cast<void *>(parcel.target),
                                       parcel.targetBytes, kBytes, parcel.peer,
                                       communicator, stream));
  }
  // Also after an error: the group belongs to the thread.
  return orError(result, library.groupEnd());
}

void Link::finish(const Deadline &deadline) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!communicator)
      return;
    Result result = library.finalize(communicator);
    while (result == kInProgress && !deadline.passed()) {
      nap();
      Result state = kSuccess;
      result = orError(library.getAsyncError(communicator, &state), state);
    }
    if (result == kSuccess) {
      library.destroy(communicator);
      communicator = nullptr;
    }
  }
  abort();
}

void Link::abort() {
  std::lock_guard<std::mutex> lock(mutex);
  Communicator ended = std::exchange(communicator, nullptr);
  if (!ended)
    return;
  if (!mayBeInGraphs) {
    library.abort(ended);
    return;
  }
  // What is under way uses the stream of a call that is about to return.
  Result state = kInProgress;
  for (Deadline patience = Deadline::in(kLaunchMs);
       state == kInProgress && !patience.passed();) {
    state = kSuccess;
    state = orError(library.getAsyncError(ended, &state), state);
    if (state == kInProgress)
      nap();
  }
  // It tells the kernels at once, and then waits for the last graph that holds
  // one of them, which the caller may destroy later or never.
  std::thread([&library = library, ended] { library.abort(ended); }).detach();
}

std::string Link::describe(const char *call, Result result) {
  std::lock_guard<std::mutex> lock(mutex);
  if (result == kAborted)
    return "the communicator was aborted";
  return library.failed(call, result, communicator).text;
}
