//===- Failure.cpp - The record of a group's first error ------------------===//

#include "Failure.h"

#include "Memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>

using namespace shardq;

void shardq::post(AbortRecord &record, const Failure &failure) {
  uint64_t unclaimed = 0;
  if (!shared(record.claimed).compare_exchange_strong(unclaimed, 1))
    return;
  int64_t words[Failure::kWords];
  std::memcpy(words, &failure, sizeof(failure));
  for (size_t i = 0; i != Failure::kWords; ++i)
    storeRelaxed(record.words[i], words[i]);
  storeRelease(record.ready, uint64_t(1));
}

bool shardq::read(const AbortRecord &record, Failure &failure) {
  if (!loadAcquire(record.ready))
    return false;
  int64_t words[Failure::kWords];
  for (size_t i = 0; i != Failure::kWords; ++i)
    words[i] = loadRelaxed(record.words[i]);
  std::memcpy(&failure, words, sizeof(failure));
  return true;
}

void shardq::setText(Failure &failure, const std::string &text) {
  std::memset(failure.text, 0, sizeof(failure.text));
  // The last byte stays 0.
  std::memcpy(failure.text, text.data(),
              std::min(text.size(), sizeof(failure.text) - 1));
}

std::string shardq::getText(const Failure &failure) {
  char bytes[sizeof(failure.text)];
  std::memcpy(bytes, failure.text, sizeof(bytes));
  std::string text(bytes, strnlen(bytes, sizeof(bytes)));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

/// Where an exchange was: "slot 1, q exchange 17 of @attention, epoch 812".
static std::string place(const Failure &failure, const Plan &plan) {
  return format("slot %lld, %s, epoch %lld", (long long)failure.slot,
                plan.operationName(failure.operation).c_str(),
                (long long)failure.epoch);
}

static std::string describeMisuse(const Failure &failure, const Plan &plan) {
  long long found = failure.found;
  switch (static_cast<Misuse>(failure.misuse)) {
  case Misuse::Channel:
    return format("channel %lld is not one of the plan's %zu", found,
                  plan.channels.size());
  case Misuse::Group:
    return format("the group of %s has a member %lld outside the world of "
                  "%lld ranks, or no member",
                  plan.operationName(failure.operation).c_str(), found,
                  (long long)failure.expected);
  case Misuse::Rows:
    return format("the row counts of %s are NULL",
                  plan.operationName(failure.operation).c_str());
  case Misuse::Peer:
    return format("peer %lld is outside the world of %lld ranks", found,
                  (long long)failure.expected);
  case Misuse::WaitBeforeSignal:
    return format("wait on channel %lld before its first signal", found);
  case Misuse::HostCallOnDevice:
    return "code for the host called with buffers on a GPU";
  case Misuse::DeviceCallOnHost:
    return "code for GPUs called with buffers on the host";
  case Misuse::NotBegun:
    return format("code for GPUs called outside of shardq_rt_begin and "
                  "shardq_rt_end (slot %lld)",
                  (long long)failure.slot);
  case Misuse::Image:
    return format("the image has no kernel %lld", found);
  case Misuse::LoadCapture:
    return format("kernels are not loaded and the stream of slot %lld is "
                  "captured: call shardq_comm_load before",
                  (long long)failure.slot);
  case Misuse::TapCapture:
    return format("a tap in slot %lld while its stream is captured",
                  (long long)failure.slot);
  case Misuse::NotCarried:
    return format("%s is to be carried by NCCL, but rows go straight to peers",
                  plan.operationName(failure.operation).c_str());
  case Misuse::Transfer:
    return format("the transfer of %s is of %lld rows of %lld bytes, or has no "
                  "memory for them",
                  plan.operationName(failure.operation).c_str(), found,
                  (long long)failure.expected);
  case Misuse::Size:
    return format("sizes disagree, %lld where %lld is expected", found,
                  (long long)failure.expected);
  case Misuse::BlockBeyondTable:
    return format("a token of request %lld is to be written to block %lld, "
                  "and its block table has %lld",
                  (long long)failure.request, found,
                  (long long)failure.expected);
  case Misuse::RequestBeyondTable:
    return format("a token of request %lld is to be written to block %lld, "
                  "and the block table has %lld requests",
                  (long long)failure.request, found,
                  (long long)failure.expected);
  case Misuse::NoPlace:
    return format("a token of request %lld is to be written to block %lld, "
                  "whose entry in the block table is %lld%s",
                  (long long)failure.request, (long long)failure.expected,
                  found, found < 0 ? "" : ", beyond slots of their type");
  case Misuse::BeyondCache:
    return format("row %lld of those to write has slot %lld, and the cache has "
                  "%lld rows",
                  (long long)failure.request, found,
                  (long long)failure.expected);
  case Misuse::FirstStart:
    return format("the step's first query start is %lld, expected 0", found);
  case Misuse::StartBelow:
    return format("query start %lld of the step is %lld, below the one in "
                  "front of it, %lld",
                  (long long)failure.request, found,
                  (long long)failure.expected);
  case Misuse::LastStart:
    return format("query start %lld of the step is %lld, beyond its %lld rows",
                  (long long)failure.request, found,
                  (long long)failure.expected);
  case Misuse::Decodes:
    return format("the step has %lld decode rows, expected 0 to its %lld "
                  "rows",
                  found, (long long)failure.expected);
  case Misuse::SplitRequest:
    return format("the step has %lld decode rows, which end within request "
                  "%lld, and the next one begins at row %lld",
                  found, (long long)failure.request,
                  (long long)failure.expected);
  case Misuse::None:
  case Misuse::Arena:
  case Misuse::Driver:
  case Misuse::Nccl:
    break;
  }
  return "invalid call";
}

/// What the driver calls its errors, where ours are likely to meet them. The
/// driver itself may not be here: the failure may be another rank's.
static const char *driverErrorName(int64_t code) {
  switch (code) {
  case 1:
    return "invalid value";
  case 2:
    return "out of memory";
  case 4:
    return "deinitialized";
  case 201:
    return "invalid context";
  case 209:
    return "no binary for this GPU";
  case 218:
    return "invalid PTX";
  case 222:
    return "PTX version not supported";
  case 400:
    return "invalid handle";
  case 700:
    return "illegal address";
  case 701:
    return "too many resources for a launch";
  case 702:
    return "launch timed out";
  case 715:
    return "illegal instruction";
  case 716:
    return "misaligned address";
  case 719:
    return "launch failed";
  case 900:
    return "not permitted while a stream is captured";
  case 901:
    return "the capture was invalidated";
  default:
    return "error";
  }
}

/// ncclResult_t.
static const char *ncclErrorName(int64_t code) {
  switch (code) {
  case 1:
    return "CUDA error";
  case 2:
    return "system error";
  case 3:
    return "internal error";
  case 4:
    return "invalid argument";
  case 5:
    return "invalid usage";
  case 6:
    return "remote error";
  case 7:
    return "still in progress at the deadline";
  default:
    return "error";
  }
}

static std::string describeDriver(const Failure &failure) {
  static constexpr const char *kCalls[] = {
      "allocation", "loading of kernels",  "launch", "synchronization",
      "copy",       "wait between streams"};
  const char *call =
      failure.expected >= 0 && failure.expected < int64_t(std::size(kCalls))
          ? kCalls[failure.expected]
          : "call";
  std::string text =
      format("rank %lld: the CUDA driver refused a %s in slot "
             "%lld",
             (long long)failure.culprit, call, (long long)failure.slot);
  if (failure.found > 0)
    text += format(": %s (%lld)", driverErrorName(failure.found),
                   (long long)failure.found);
  return text;
}

std::string shardq::describe(const Failure &failure, const Plan &plan) {
  long long reporter = failure.reporter, culprit = failure.culprit;
  long long expected = failure.expected, found = failure.found;
  switch (failure.status) {
  case SHARDQ_OK:
    return "";
  case SHARDQ_DEADLINE: {
    // The culprit itself may be the first to run into its deadline.
    bool ownFault = reporter == culprit;
    std::string target = ownFault ? format("rank %lld, which waits for it",
                                           (long long)failure.neighbour)
                                  : format("rank %lld", culprit);
    std::string text = format(
        "rank %lld waited %.1f s for %s (%s; rank %lld last seen at %lld)",
        reporter, static_cast<double>(failure.waitedMs) / 1000.0,
        target.c_str(), place(failure, plan).c_str(), culprit,
        (long long)failure.lastSeen);
    if (failure.lost)
      text += ", whose signal did not arrive";
    if (failure.circle)
      text += format(", which itself waits in %s: ranks wait for each other in "
                     "a circle, in exchanges that they do not all run",
                     plan.operationName(failure.found).c_str());
    if (failure.neighbour != culprit && !ownFault)
      text +=
          format(", which holds up rank %lld", (long long)failure.neighbour);
    return text;
  }
  case SHARDQ_PEER_DEAD:
    return format("rank %lld died: its process ended without leaving the group "
                  "(noticed by rank %lld)",
                  culprit, reporter);
  case SHARDQ_PEER_LEFT:
    return format("rank %lld left the group while rank %lld waited for it (%s; "
                  "rank %lld last seen at %lld)",
                  culprit, reporter, place(failure, plan).c_str(), culprit,
                  (long long)failure.lastSeen);
  case SHARDQ_WRONG_OPERATION:
    return format("rank %lld ran %s where rank %lld expected %s (slot %lld, "
                  "epoch %lld)",
                  culprit, plan.operationName(found).c_str(), reporter,
                  plan.operationName(expected).c_str(), (long long)failure.slot,
                  (long long)failure.epoch);
  case SHARDQ_WRONG_ROWS:
    return format("rank %lld pushed %lld rows where rank %lld expected %lld "
                  "(%s)",
                  culprit, found, reporter, expected,
                  place(failure, plan).c_str());
  case SHARDQ_OVERRUN:
    return format("rank %lld signalled epoch %lld before rank %lld was done "
                  "waiting (%s)",
                  culprit, found, reporter, place(failure, plan).c_str());
  case SHARDQ_CAPACITY:
    if (failure.misuse == static_cast<int64_t>(Misuse::Arena))
      return format("rank %lld lacks %lld bytes of temporary memory in slot "
                    "%lld, which has %lld, while its stream is captured: run "
                    "once before the capture, or raise arena_bytes",
                    culprit, found, (long long)failure.slot, expected);
    return format("rank %lld has %lld rows for the inbox of %s, the plan holds "
                  "%lld",
                  culprit, found, plan.channelName(failure.channel).c_str(),
                  expected);
  case SHARDQ_ABORTED:
    return format("rank %lld aborted the group", culprit);
  case SHARDQ_INVALID:
    return format("rank %lld: %s", culprit,
                  describeMisuse(failure, plan).c_str());
  case SHARDQ_SYSTEM:
    if (failure.misuse == static_cast<int64_t>(Misuse::Driver))
      return describeDriver(failure);
    if (failure.misuse == static_cast<int64_t>(Misuse::Nccl))
      return format("rank %lld: NCCL failed in slot %lld: %s (%lld)", culprit,
                    (long long)failure.slot, ncclErrorName(found), found);
    [[fallthrough]];
  default:
    return format(
        "rank %lld failed: %s", culprit,
        shardq_status_name(static_cast<shardq_status>(failure.status)));
  }
}
