//===- Plan.cpp - The compiler's plan -------------------------------------===//

#include "Plan.h"

#include <algorithm>

using namespace shardq;

namespace {
constexpr int32_t kMaxSlots = 64;
constexpr int32_t kMaxChannels = 1024;
constexpr int32_t kMaxGenerations = 8;
constexpr int32_t kMaxOperations = 1 << 20;
// Far above any machine, and small enough that no product below overflows.
constexpr uint64_t kMaxBytes = uint64_t(1) << 46;
} // namespace

static Outcome readChannel(const shardq_channel &source, int32_t index,
                           uint64_t slotBytes, Plan &plan) {
  std::string name = source.name ? source.name : format("channel %d", index);
  if (source.generations < 1 || source.generations > kMaxGenerations)
    return failure(SHARDQ_INVALID,
                   "plan: %s has %d generations, expected 1 to %d",
                   name.c_str(), source.generations, kMaxGenerations);
  uint64_t generations = static_cast<uint64_t>(source.generations);
  if (source.bytes > kMaxBytes || source.offset > slotBytes ||
      source.bytes * generations > slotBytes - source.offset)
    return failure(SHARDQ_INVALID,
                   "plan: %s (offset %llu, %llu bytes, %d generations) does "
                   "not fit in a slot of %llu bytes",
                   name.c_str(), (unsigned long long)source.offset,
                   (unsigned long long)source.bytes, source.generations,
                   (unsigned long long)slotBytes);
  if (source.transport != SHARDQ_TRANSPORT_AUTO &&
      source.transport != SHARDQ_TRANSPORT_NCCL)
    return failure(SHARDQ_INVALID,
                   "plan: transport of %s is %d, expected %d (auto) or %d "
                   "(NCCL)",
                   name.c_str(), source.transport, SHARDQ_TRANSPORT_AUTO,
                   SHARDQ_TRANSPORT_NCCL);
  bool hasGroups = source.group_stride != 0 || source.group_size != 0;
  if (hasGroups && (source.group_stride < 1 || source.group_size < 1))
    return failure(SHARDQ_INVALID,
                   "plan: %s has groups of %d ranks, %d apart, expected at "
                   "least 1 of each, or 0",
                   name.c_str(), source.group_size, source.group_stride);
  plan.channels.push_back({std::move(name), source.offset, source.bytes,
                           generations,
                           source.transport == SHARDQ_TRANSPORT_NCCL,
                           source.group_stride, source.group_size});
  return {};
}

Outcome Plan::read(const shardq_plan *source, Plan &plan) {
  if (!source)
    return failure(SHARDQ_INVALID, "plan is NULL");
  if (source->struct_size < sizeof(shardq_plan))
    return failure(SHARDQ_INVALID, "plan: struct_size is %zu, expected %zu",
                   source->struct_size, sizeof(shardq_plan));
  if (source->num_channels > 0 &&
      source->channel_size != sizeof(shardq_channel))
    return failure(SHARDQ_INVALID, "plan: channel_size is %zu, expected %zu",
                   source->channel_size, sizeof(shardq_channel));
  if (source->slots < 1 || source->slots > kMaxSlots)
    return failure(SHARDQ_INVALID, "plan: %d slots, expected 1 to %d",
                   source->slots, kMaxSlots);
  if (source->slot_bytes > kMaxBytes)
    return failure(SHARDQ_INVALID, "plan: slot of %llu bytes is too large",
                   (unsigned long long)source->slot_bytes);
  if (source->num_channels < 0 || source->num_channels > kMaxChannels ||
      (source->num_channels > 0 && !source->channels))
    return failure(SHARDQ_INVALID, "plan: %d channels at %p, expected 0 to %d",
                   source->num_channels,
                   static_cast<const void *>(source->channels), kMaxChannels);
  if (source->num_operations < 0 || source->num_operations > kMaxOperations ||
      (source->num_operations > 0 && !source->operation_names))
    return failure(
        SHARDQ_INVALID, "plan: %d operations at %p, expected 0 to %d",
        source->num_operations,
        static_cast<const void *>(source->operation_names), kMaxOperations);

  if (source->ranks < 0)
    return failure(SHARDQ_INVALID, "plan: %d ranks, expected 0 or more",
                   source->ranks);

  plan.hash = source->hash;
  plan.ranks = source->ranks;
  plan.slots = source->slots;
  plan.slotBytes = source->slot_bytes;
  for (int32_t i = 0; i != source->num_channels; ++i)
    if (Outcome outcome =
            readChannel(source->channels[i], i, source->slot_bytes, plan);
        outcome.failed())
      return outcome;
  plan.asksForNccl =
      !plan.channels.empty() &&
      std::all_of(plan.channels.begin(), plan.channels.end(),
                  [](const Channel &channel) { return channel.asksForNccl; });
  for (int32_t i = 0; i != source->num_operations; ++i) {
    const char *name = source->operation_names[i];
    plan.operations.push_back(name ? name : format("operation %d", i));
  }
  return {};
}

Outcome Plan::checkWorld(int32_t world) const {
  if (ranks == 0 || world % ranks == 0)
    return {};
  return failure(SHARDQ_MISMATCH,
                 "the program is for %d ranks, or several times as many, and "
                 "the world has %d",
                 ranks, world);
}

uint64_t Plan::shapeHash() const {
  // FNV-1a over words; a mistake is caught, an attack is not the point.
  uint64_t hash = 0xcbf29ce484222325u;
  auto add = [&hash](uint64_t word) {
    for (int byte = 0; byte != 8; ++byte, word >>= 8)
      hash = (hash ^ (word & 0xff)) * 0x100000001b3u;
  };
  add(static_cast<uint64_t>(slots));
  add(slotBytes);
  add(static_cast<uint64_t>(ranks));
  add(channels.size());
  for (const Channel &channel : channels) {
    add(channel.offset);
    add(channel.bytes);
    add(channel.generations);
    add(channel.asksForNccl);
    add(static_cast<uint64_t>(channel.groupStride));
    add(static_cast<uint64_t>(channel.groupSize));
  }
  return hash;
}

std::string Plan::describe(const std::vector<char> &marked) const {
  constexpr int kNamed = 3;
  std::string text;
  int count = 0;
  for (size_t i = 0; i != channels.size(); ++i)
    if (marked[i] && ++count <= kNamed)
      text += (count == 1 ? "'" : ", '") + channels[i].name + '\'';
  if (count > kNamed)
    text += format(" and %d more", count - kNamed);
  return text;
}

std::string Plan::describeAsked() const {
  if (asksForNccl)
    return "NCCL";
  std::vector<char> asks;
  for (const Channel &channel : channels)
    asks.push_back(channel.asksForNccl);
  std::string names = describe(asks);
  return names.empty() ? names : "NCCL for " + names;
}

bool Plan::Channel::staysOnHosts(const std::vector<int32_t> &hosts) const {
  int64_t world = static_cast<int64_t>(hosts.size());
  int64_t reach = groupStride * groupSize; // ranks of neighbouring groups
  // No groups of all ranks: whoever exchanges is not what the plan says.
  if (groupSize == 0 || world % reach != 0)
    return false;
  for (int64_t rank = 0; rank != world; ++rank) {
    int64_t first = rank / reach * reach + rank % groupStride;
    if (hosts[static_cast<size_t>(rank)] != hosts[static_cast<size_t>(first)])
      return false;
  }
  return true;
}

std::string Plan::channelName(int64_t channel) const {
  if (channel >= 0 && channel < static_cast<int64_t>(channels.size()) &&
      !channels[static_cast<size_t>(channel)].name.empty())
    return channels[static_cast<size_t>(channel)].name;
  return format("channel %lld", (long long)channel);
}

std::string Plan::operationName(int64_t operation) const {
  if (operation >= 0 && operation < static_cast<int64_t>(operations.size()))
    return operations[static_cast<size_t>(operation)];
  return format("operation %lld", (long long)operation);
}
