//===- Api.cpp - C functions of communicators and contexts ----------------===//

#include "Communicator.h"

#include <algorithm>
#include <cstring>
#include <new>

using namespace shardq;

const char *shardq_status_name(shardq_status status) {
  static constexpr const char *kNames[] = {
      "ok",          "invalid argument", "system error",    "bootstrap",
      "absent rank", "mismatch",         "unreachable",     "deadline",
      "peer dead",   "peer left",        "wrong operation", "wrong rows",
      "overrun",     "capacity",         "aborted"};
  static_assert(sizeof(kNames) / sizeof(*kNames) == SHARDQ_ABORTED + 1);
  if (status < SHARDQ_OK || status > SHARDQ_ABORTED)
    return "unknown";
  return kNames[status];
}

uint32_t shardq_abi_version(void) { return SHARDQ_ABI_VERSION; }

shardq_status shardq_comm_create(const shardq_comm_options *options,
                                 shardq_comm **out, char *message,
                                 size_t message_size) {
  copyMessage("", message, message_size);
  if (!out || !options) {
    copyMessage("options or out is NULL", message, message_size);
    return SHARDQ_INVALID;
  }
  *out = nullptr;
  // Allocation is the only thing that throws, and no exception may reach C.
  try {
    std::unique_ptr<shardq_comm> comm;
    Outcome outcome = shardq_comm::create(*options, comm);
    copyMessage(outcome.text, message, message_size);
    *out = comm.release();
    return outcome.status;
  } catch (const std::bad_alloc &) {
    copyMessage("out of memory", message, message_size);
    return SHARDQ_SYSTEM;
  }
}

void shardq_comm_destroy(shardq_comm *comm) { delete comm; }

int32_t shardq_comm_rank(const shardq_comm *comm) {
  return comm ? comm->rank : -1;
}

int32_t shardq_comm_world(const shardq_comm *comm) {
  return comm ? comm->world : -1;
}

int32_t shardq_comm_slots(const shardq_comm *comm) {
  return comm ? comm->plan.slots : -1;
}

shardq_context *shardq_comm_context(shardq_comm *comm, int32_t slot) {
  return comm ? comm->context(slot) : nullptr;
}

shardq_status shardq_comm_load(shardq_comm *comm, const shardq_gpu_image *image,
                               char *message, size_t message_size) {
  copyMessage("", message, message_size);
  if (!comm || !comm->gpu) {
    copyMessage(comm ? "the communicator's buffers are not on a GPU"
                     : "comm is NULL",
                message, message_size);
    return SHARDQ_INVALID;
  }
  try {
    cuda::Current current(comm->gpu->driver, comm->gpu->context);
    cuda::CaptureGuard guard(comm->gpu->driver);
    const cuda::LoadedImage *loaded = nullptr;
    Outcome outcome = comm->gpu->images.load(image, loaded);
    copyMessage(outcome.text, message, message_size);
    return outcome.status;
  } catch (const std::bad_alloc &) {
    copyMessage("out of memory", message, message_size);
    return SHARDQ_SYSTEM;
  }
}

int32_t shardq_comm_transport(const shardq_comm *comm, char *why,
                              size_t why_size) {
  copyMessage(comm ? comm->transport : "comm is NULL", why, why_size);
  if (!comm)
    return -1;
  if (!comm->carrier)
    return SHARDQ_TRANSPORT_DIRECT;
  return comm->gpu->isAlone() ? SHARDQ_TRANSPORT_NCCL : SHARDQ_TRANSPORT_MIXED;
}

void shardq_comm_abort(shardq_comm *comm) {
  if (!comm || comm->failed())
    return;
  Failure failure;
  failure.status = SHARDQ_ABORTED;
  failure.reporter = comm->rank;
  failure.culprit = comm->rank;
  comm->fail(failure);
}

shardq_status shardq_context_status(shardq_context *context, char *message,
                                    size_t message_size) {
  if (!context) {
    copyMessage("context is NULL", message, message_size);
    return SHARDQ_INVALID;
  }
  Failure failure = context->comm.firstFailure();
  try {
    copyMessage(context->comm.firstMessage(), message, message_size);
  } catch (const std::bad_alloc &) {
    copyMessage("out of memory", message, message_size);
  }
  return static_cast<shardq_status>(failure.status);
}

shardq_status shardq_context_error(shardq_context *context,
                                   shardq_error *error) {
  if (!context || !error)
    return SHARDQ_INVALID;
  Failure failure = context->comm.firstFailure();
  shardq_error full{};
  full.struct_size = error->struct_size;
  full.status = static_cast<shardq_status>(failure.status);
  full.reporter = static_cast<int32_t>(failure.reporter);
  full.culprit = static_cast<int32_t>(failure.culprit);
  full.slot = static_cast<int32_t>(failure.slot);
  full.channel = static_cast<int32_t>(failure.channel);
  full.operation = static_cast<int32_t>(failure.operation);
  full.epoch = failure.epoch;
  full.last_seen = failure.lastSeen;
  full.expected = failure.expected;
  full.found = failure.found;
  std::memcpy(error, &full, std::min(full.struct_size, sizeof(full)));
  return full.status;
}

int32_t shardq_context_slot(const shardq_context *context) {
  return context ? context->slot : -1;
}

void shardq_context_set_tap(shardq_context *context,
                            shardq_tap_callback callback, void *user) {
  if (!context)
    return;
  context->tap = callback;
  context->tapUser = user;
}

void shardq_context_set_launch_callback(shardq_context *context,
                                        shardq_launch_callback callback,
                                        void *user) {
  if (!context)
    return;
  context->beforeLaunch = callback;
  context->beforeLaunchUser = user;
}
