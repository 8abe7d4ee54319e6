//===- runtime.h - C ABI of the ShardQ runtime ------------------*- C -*-===//
//
// Symmetric buffers, exchanges and errors for the ranks of one host, on its
// cores or on its GPUs, and for ranks on the GPUs of several.
//
// Two audiences read this header. A program that runs ranks uses
// `shardq_bootstrap_*`, `shardq_comm_*` and `shardq_context_*`. Code generated
// by the compiler uses `shardq_rt_*` only, and is handed a context.
//
// Rules that hold for every function here:
//  - Nothing throws, exits, prints or asserts. Bad input is a status, or, in
//    the entry points of generated code, an error recorded on the communicator.
//  - Sizes and offsets are bytes, rows are counts of rows, times are
//    milliseconds, ranks and slots count from 0.
//  - A message buffer always ends up zero-terminated, truncated if it is too
//    small; (NULL, 0) means that the text is not wanted.
//  - Structs begin with `struct_size`, which the caller sets to sizeof: a
//    library that is newer than its caller reads only what the caller has.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_H
#define SHARDQ_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define SHARDQ_API __attribute__((visibility("default")))

/* Version of everything below. Raised by any change that an existing caller
 * could notice; ranks of different versions refuse each other. */
#define SHARDQ_ABI_VERSION 4

#ifdef __cplusplus
extern "C" {
#endif

/*===--- Status ----------------------------------------------------------===*/

typedef int32_t shardq_status;

enum {
  SHARDQ_OK = 0,
  /* An argument, plan, fault text or call order that cannot be right. */
  SHARDQ_INVALID = 1,
  /* The system refused memory, a descriptor, a socket or a thread. */
  SHARDQ_SYSTEM = 2,
  /* The bootstrap provider failed, or a callback of it said so. */
  SHARDQ_BOOTSTRAP = 3,
  /* A rank did not come to the rendezvous before its deadline. */
  SHARDQ_ABSENT = 4,
  /* Two ranks disagree on ABI, protocol, plan, world or host. */
  SHARDQ_MISMATCH = 5,
  /* What a peer wrote during the rendezvous did not arrive. */
  SHARDQ_UNREACHABLE = 6,
  /* A wait ran into its deadline. */
  SHARDQ_DEADLINE = 7,
  /* A peer's process ended without destroying its communicator. */
  SHARDQ_PEER_DEAD = 8,
  /* A peer destroyed its communicator while it was still waited for. */
  SHARDQ_PEER_LEFT = 9,
  /* A peer signalled another operation than the one waited for. */
  SHARDQ_WRONG_OPERATION = 10,
  /* A peer signalled another number of rows than expected. */
  SHARDQ_WRONG_ROWS = 11,
  /* A peer ran ahead and overwrote data before it was read. */
  SHARDQ_OVERRUN = 12,
  /* More rows than the planned buffer holds. */
  SHARDQ_CAPACITY = 13,
  /* A rank called shardq_comm_abort. */
  SHARDQ_ABORTED = 14
};

/* Name of a status, for example "peer dead"; "unknown" for any other value.
 * The text is static. Any thread. */
SHARDQ_API const char *shardq_status_name(shardq_status status);

/* SHARDQ_ABI_VERSION of the library that is loaded. Any thread. */
SHARDQ_API uint32_t shardq_abi_version(void);

/*===--- Plan ------------------------------------------------------------===*/

/* One exchange buffer ("channel") of a slot: the inbox that peers push to. */
typedef struct shardq_channel {
  const char *name;    /* for messages; may be NULL */
  uint64_t offset;     /* from the slot's base */
  uint64_t bytes;      /* of one generation */
  int32_t generations; /* copies used in turn, 1 to 8; 1 needs alternation */
  /* SHARDQ_TRANSPORT_NCCL where its exchanges ask for it, on GPUs; else
   * SHARDQ_TRANSPORT_AUTO. */
  int32_t transport;
  /* Who exchanges on it: groups of `group_size` ranks that are `group_stride`
   * apart. Where each is on one host, its rows go straight to peers, whatever
   * hosts the others are on. 0 and 0: perhaps all ranks with each other. */
  int32_t group_stride;
  int32_t group_size;
} shardq_channel;

/* What the compiler planned, equal on all ranks. The communicator copies it, so
 * it may go away after shardq_comm_create. */
typedef struct shardq_plan {
  size_t struct_size;
  uint64_t hash;        /* of the program; compared between ranks */
  int32_t slots;        /* micro-batches in flight, 1 to 64 */
  int32_t num_channels; /* 0 to 1024 */
  uint64_t slot_bytes;  /* symmetric bytes of one slot */
  const shardq_channel *channels;
  int32_t num_operations; /* exchanges that the program can run */
  /* Ranks that the program is for. A world of several times as many is as many
   * worlds of them, one behind the other. 0 where nobody says. */
  int32_t ranks;
  /* "heads_to_tokens exchange 17 of @attention", by operation id; entries may
   * be NULL. */
  const char *const *operation_names;
  size_t channel_size; /* sizeof(shardq_channel): a program may be older */
} shardq_plan;

/*===--- Bootstrap -------------------------------------------------------===*/

/* How ranks find each other. One handle belongs to one rank and is used by one
 * thread at a time. It is needed only during shardq_comm_create and may serve
 * several communicators, made in the same order on all ranks. */
typedef struct shardq_bootstrap shardq_bootstrap;

/* Ranks meet through files in `directory`, which all see. The directory must
 * be fresh for each launch: files of an earlier one would be taken for ranks.
 * The caller removes it after all ranks are done. Works between processes
 * forked from one parent and between unrelated ones.
 * Errors: SHARDQ_INVALID. */
SHARDQ_API shardq_status shardq_bootstrap_files(const char *directory,
                                                int32_t rank, int32_t world,
                                                shardq_bootstrap **out);

/* Ranks meet at rank 0, which listens at `address` (a name or a number of its
 * own machine) and `port`, from the first step of a rendezvous on. The port is
 * one launch's alone: who connects is recognized, not authenticated, so keep it
 * to networks that are trusted. Strangers and what they send are ignored.
 * Errors: SHARDQ_INVALID. */
SHARDQ_API shardq_status shardq_bootstrap_tcp(const char *address, int32_t port,
                                              int32_t rank, int32_t world,
                                              shardq_bootstrap **out);

/* The same with what torchrun puts into the environment: RANK, WORLD_SIZE,
 * MASTER_ADDR and MASTER_PORT; LOCAL_RANK, which is a good cuda_device, must be
 * a number where it is set. MASTER_PORT is taken by torchrun's own store, so
 * rank 0 listens on SHARDQ_PORT, or without it on the first free one of the 16
 * ports that follow; the others look for it there.
 * Errors: SHARDQ_INVALID, where something is missing or not a number. */
SHARDQ_API shardq_status shardq_bootstrap_torchrun(shardq_bootstrap **out);

/* Ranks meet through functions of the embedding framework. A callback returns
 * 0 for success; any other value fails the creation with SHARDQ_BOOTSTRAP. It
 * must return, in success or failure, by about `deadline_ms` from its call. */
typedef struct shardq_bootstrap_callbacks {
  size_t struct_size;
  void *user; /* first argument of both; must outlive the bootstrap */
  /* `all` receives world * `bytes`, block i from rank i, own block included. */
  int32_t (*allgather)(void *user, const void *mine, void *all, size_t bytes,
                       int64_t deadline_ms);
  /* Returns once all ranks called it with the same `tag`. */
  int32_t (*barrier)(void *user, const char *tag, int64_t deadline_ms);
} shardq_bootstrap_callbacks;

/* Errors: SHARDQ_INVALID. */
SHARDQ_API shardq_status shardq_bootstrap_from_callbacks(
    const shardq_bootstrap_callbacks *callbacks, int32_t rank, int32_t world,
    shardq_bootstrap **out);

/* Ranks are threads of this process and share one mapping of all heaps, so
 * that sanitizers see them. The group is shared by its ranks' bootstraps and
 * may be destroyed after they are; communicators outlive both.
 * Errors: SHARDQ_INVALID. */
typedef struct shardq_thread_group shardq_thread_group;
SHARDQ_API shardq_status shardq_thread_group_create(int32_t world,
                                                    shardq_thread_group **out);
SHARDQ_API void shardq_thread_group_destroy(shardq_thread_group *group);
SHARDQ_API shardq_status shardq_bootstrap_threads(shardq_thread_group *group,
                                                  int32_t rank,
                                                  shardq_bootstrap **out);

/* Frees a bootstrap of any kind. NULL is allowed. */
SHARDQ_API void shardq_bootstrap_destroy(shardq_bootstrap *bootstrap);

/*===--- Communicator ----------------------------------------------------===*/

/* Membership of this process (or thread) in a group of ranks. After its first
 * error it can only be destroyed and made anew. */
typedef struct shardq_comm shardq_comm;

/* One micro-batch slot of a communicator: the first argument of generated
 * code. Owned by the communicator. Contexts share nothing but the error, so
 * each may be driven by a thread of its own, one thread at a time. */
typedef struct shardq_context shardq_context;

/* Where the buffers are, the same on all ranks. */
enum { SHARDQ_MEMORY_HOST = 0, SHARDQ_MEMORY_CUDA = 1 };

/* How rows reach a peer's GPU. What cannot be is an error that says why. */
enum {
  /* On each channel: direct where it does not ask for NCCL and the ranks of
   * each of its groups are on one host; else NCCL. NCCL on all where ranks of a
   * host have not mapped each other's memory, or what one wrote there did not
   * arrive. All ranks decide alike. */
  SHARDQ_TRANSPORT_AUTO = 0,
  SHARDQ_TRANSPORT_DIRECT = 1, /* stores into memory that peers have mapped */
  /* Grouped sends of NCCL (libnccl.so.2, or what the environment's SHARDQ_NCCL
   * names). Calls of generated code then wait for the stream, unless it is
   * captured. */
  SHARDQ_TRANSPORT_NCCL = 2,
  /* Of a communicator, not to be asked for: NCCL for the channels that ask for
   * it or span hosts, direct for the others. */
  SHARDQ_TRANSPORT_MIXED = 3
};

typedef struct shardq_comm_options {
  size_t struct_size;
  int32_t rank;
  int32_t world; /* 1 to 1024 */
  shardq_bootstrap *bootstrap;
  const shardq_plan *plan;
  /* Longest wait of one exchange; 0 means 30000. Twice as long where all ranks
   * have come to one by NCCL and rows still do not arrive (docs/Runtime.md). */
  int64_t deadline_ms;
  /* Longest time for the whole rendezvous; 0 means 30000. */
  int64_t rendezvous_deadline_ms;
  /* A fault to inject, "rank=2,operation=1,epoch=3,action=kill"; NULL reads
   * the environment's SHARDQ_FAULT, "" injects nothing. docs/Runtime.md. */
  const char *fault;
  /* Callers of ABI version 1 end here, and get buffers of the host. */
  int32_t memory;
  int32_t cuda_device; /* the driver's ordinal; ranks may share a device */
  int32_t transport;
  int32_t reserved; /* 0 */
  /* Temporary memory of each slot to begin with. It grows on demand, but not
   * while a stream is captured. */
  uint64_t arena_bytes;
  /* A name of this rank's host: ranks with other names are taken for ranks on
   * other hosts. NULL is the empty name. */
  const char *host;
} shardq_comm_options;

/* Makes this rank's heap, meets the other ranks, maps their heaps and checks
 * that every peer's writes arrive. Collective; at the end all ranks succeed or
 * all fail, unless ranks die meanwhile. `*out` is NULL after an error, and
 * `message` says what happened and which ranks it concerns. Returns by about
 * `rendezvous_deadline_ms`. Errors: SHARDQ_INVALID to SHARDQ_UNREACHABLE. */
SHARDQ_API shardq_status shardq_comm_create(const shardq_comm_options *options,
                                            shardq_comm **out, char *message,
                                            size_t message_size);

/* Leaves the group and frees everything, contexts included. Not collective:
 * waits for no peer, dead or alive. The contexts must not be in use: what they
 * have enqueued on a GPU is complete. Synchronizes the device, and is therefore
 * not for threads that run while one of its streams is captured. Peers that
 * still need this rank get SHARDQ_PEER_LEFT. Graphs that were captured through
 * its contexts are not to be launched any more; where NCCL carries the rows
 * they are best destroyed before, since until then NCCL keeps what belongs to
 * them, and this call waits up to two seconds for that. NULL is allowed. */
SHARDQ_API void shardq_comm_destroy(shardq_comm *comm);

/* -1 for NULL. Any thread. */
SHARDQ_API int32_t shardq_comm_rank(const shardq_comm *comm);
SHARDQ_API int32_t shardq_comm_world(const shardq_comm *comm);
SHARDQ_API int32_t shardq_comm_slots(const shardq_comm *comm);

/* The context of a slot, the same one each time; NULL if there is no such
 * slot. Any thread. */
SHARDQ_API shardq_context *shardq_comm_context(shardq_comm *comm, int32_t slot);

/* How rows travel, SHARDQ_TRANSPORT_DIRECT, _NCCL or _MIXED, and in a sentence
 * for a log why so and which channels are NCCL's, the same on all ranks: "nccl
 * 2.28.9: rank 1 and rank 0 are on different hosts". -1 for NULL. Any thread.
 */
SHARDQ_API int32_t shardq_comm_transport(const shardq_comm *comm, char *why,
                                         size_t why_size);

/* Ends the group: every rank's exchanges return with SHARDQ_ABORTED, naming
 * this rank. No effect after an earlier error. Any thread. */
SHARDQ_API void shardq_comm_abort(shardq_comm *comm);

/* One kernel of an image. */
typedef struct shardq_gpu_kernel {
  const char *name;
  int32_t threads;        /* of a block */
  int32_t dynamic_shared; /* bytes of a block */
} shardq_gpu_kernel;

/* Machine code of kernels, embedded in generated code; must outlive the
 * communicators that load it. `code` is a cubin, or zero-terminated PTX that
 * the driver assembles. */
typedef struct shardq_gpu_image {
  size_t struct_size;
  const void *code;
  size_t code_bytes;
  int32_t arch; /* 90 for sm_90 and sm_90a; for messages */
  int32_t num_kernels;
  const shardq_gpu_kernel *kernels;
  /* One byte a kernel, or NULL for all 0: whether it runs griddepcontrol.wait
   * before it touches memory, so that it may be started before the kernel in
   * front of it has ended. */
  const unsigned char *starts_early;
} shardq_gpu_image;

/* Loads all kernels of an image for the communicator's device, so that no
 * launch has to, and a stream may be captured. Otherwise the first launch does
 * it. Not collective, and loading again does nothing. Call it before the
 * first exchange: loading may have to wait for kernels that run. The message
 * holds what the driver's assembler said. Errors: SHARDQ_INVALID,
 * SHARDQ_SYSTEM; they are not recorded on the communicator. */
SHARDQ_API shardq_status shardq_comm_load(shardq_comm *comm,
                                          const shardq_gpu_image *image,
                                          char *message, size_t message_size);

/*===--- Context ---------------------------------------------------------===*/

/* First error of the context's communicator, or SHARDQ_OK. Reading does not
 * clear it. The message has the form
 *   rank 3 waited 30.0 s for rank 5 (slot 1, heads_to_tokens exchange 17 of
 *   @attention, epoch 812; rank 5 last seen at 811)
 * and is the same on every rank that learned of the error from its finder.
 * Any thread. SHARDQ_INVALID for a NULL context. */
SHARDQ_API shardq_status shardq_context_status(shardq_context *context,
                                               char *message,
                                               size_t message_size);

/* The same error in numbers; -1 where a field has no meaning. */
typedef struct shardq_error {
  size_t struct_size;
  shardq_status status;
  int32_t reporter;  /* rank that found it */
  int32_t culprit;   /* rank that caused it: the root one, not a neighbour */
  int32_t slot;      /* slot that the culprit holds up */
  int32_t channel;   /* and its channel */
  int32_t operation; /* and the operation there */
  int64_t epoch;     /* waited for */
  int64_t last_seen; /* epoch that the culprit had signalled */
  int64_t expected;  /* rows, operation or capacity */
  int64_t found;
} shardq_error;

/* Fills `error` up to its struct_size and returns its status; SHARDQ_INVALID,
 * with nothing filled, where either is NULL. Any thread. */
SHARDQ_API shardq_status shardq_context_error(shardq_context *context,
                                              shardq_error *error);

/* -1 for NULL. Any thread. */
SHARDQ_API int32_t shardq_context_slot(const shardq_context *context);

/* An intermediate value that generated code hands out for inspection. Valid
 * only during the callback. */
typedef struct shardq_tap_value {
  const char *name;
  int32_t element_bytes;
  int32_t rank;           /* number of dimensions, 0 to 64 */
  const void *data;       /* first element */
  const int64_t *sizes;   /* `rank` of them, elements */
  const int64_t *strides; /* `rank` of them, elements */
  const int32_t *rows;    /* global row of each row; NULL: not row-sharded */
  int64_t num_rows;       /* rows that hold a value */
} shardq_tap_value;

/* Called on the thread that runs the generated code; must not throw or call
 * shardq_rt_* on the same context. */
typedef void (*shardq_tap_callback)(void *user, const shardq_tap_value *value);

/* Registers the callback of a context; NULL removes it. Not while the context
 * runs. `user` must outlive the registration. */
SHARDQ_API void shardq_context_set_tap(shardq_context *context,
                                       shardq_tap_callback callback,
                                       void *user);

/* Called in front of each kernel that the context enqueues, with the kernel's
 * name, on the thread that runs the generated code: what the callback enqueues
 * on the call's stream, an event say, stands between two kernels. Must not
 * throw or call shardq_rt_* on the same context. */
typedef void (*shardq_launch_callback)(void *user, const char *kernel);

/* Registers the callback of a context; NULL removes it. Not while the context
 * runs. `user` must outlive the registration. */
SHARDQ_API void
shardq_context_set_launch_callback(shardq_context *context,
                                   shardq_launch_callback callback, void *user);

/*===--- Entry points of generated code ----------------------------------===*/
//
// One thread per context at a time. After the first error on the communicator
// all of them return at once; no pointer they return is ever unmapped before
// shardq_comm_destroy. A NULL context, or an argument outside the plan, is
// recorded as SHARDQ_INVALID where there is a communicator to record it on.
//
// An exchange on a channel is: workspace, push of rows through rt_peer, signal,
// wait, read of the workspace. A rank without rows does all of it too.

/* This rank in the world. */
SHARDQ_API int64_t shardq_rt_rank(shardq_context *context);

/* This rank's inbox for the next exchange on `channel`: the one that the next
 * signal and wait on it concern. Records SHARDQ_CAPACITY where `rows` of
 * `row_bytes` each do not fit the channel; then, and for a channel outside the
 * plan, the result is memory of its own of that size, no peer's business. */
SHARDQ_API void *shardq_rt_workspace(shardq_context *context, int32_t channel,
                                     int64_t rows, int64_t row_bytes);

/* Where `local`, an address in this rank's heap, is in the heap of `peer`; any
 * other address stays what it is. */
SHARDQ_API void *shardq_rt_peer(shardq_context *context, void *local,
                                int64_t peer);

/* Begins the channel's next epoch and tells each member `first + i * stride`,
 * 0 <= i < size, that `rows[i]` rows were pushed to it. Everything this thread
 * wrote before is visible to a member whose wait saw the signal. */
SHARDQ_API void shardq_rt_signal(shardq_context *context, int32_t channel,
                                 int32_t operation, int64_t group_first,
                                 int64_t group_stride, int64_t group_size,
                                 const int64_t *rows);

/* Waits until every member signalled the channel's current epoch, and checks
 * that it ran `operation` and pushed `rows[i]` rows. On any error the inbox is
 * filled with 0xFF bytes, the error recorded, and all ranks told. */
SHARDQ_API void shardq_rt_wait(shardq_context *context, int32_t channel,
                               int32_t operation, int64_t group_first,
                               int64_t group_stride, int64_t group_size,
                               const int64_t *rows);

/* Records SHARDQ_INVALID, with both numbers and the first 63 bytes of `what`,
 * unless `found` is `expected`. Buffers may be of the host or on a GPU. */
SHARDQ_API void shardq_rt_expect(shardq_context *context, const char *what,
                                 int64_t found, int64_t expected);

/* Records SHARDQ_INVALID: a token that is to be written belongs to `block` of
 * `request`, in a block table of `requests` rows and `width` columns. */
SHARDQ_API void shardq_rt_beyond_table(shardq_context *context, int64_t block,
                                       int64_t request, int64_t requests,
                                       int64_t width);

/* Records SHARDQ_INVALID: a token that is to be written belongs to `block` of
 * `request`, and the block table's `entry` for it is negative, or more than
 * slots of their type hold. */
SHARDQ_API void shardq_rt_no_place(shardq_context *context, int64_t block,
                                   int64_t request, int64_t entry);

/* Records SHARDQ_INVALID: row `row` of those that are to be written has `slot`,
 * in a cache of `rows` rows. */
SHARDQ_API void shardq_rt_beyond_cache(shardq_context *context, int64_t slot,
                                       int64_t row, int64_t rows);

/* Records SHARDQ_INVALID unless `starts`, of `entries` entries, ascends from 0
 * and ends at `rows` or before, and `decodes` is one of them, or from the last
 * of them up to `rows`. Equal starts are requests without rows. */
SHARDQ_API void shardq_rt_check_starts(shardq_context *context,
                                       const int32_t *starts, int64_t entries,
                                       int64_t decodes, int64_t rows);

/* Hands a value to the context's tap callback, if there is one. The fields are
 * those of shardq_tap_value. On a GPU, `data` and `rows` may be device memory:
 * the stream is synchronized and the callback is handed a copy; recorded as
 * SHARDQ_INVALID while the stream is captured. */
SHARDQ_API void shardq_rt_tap(shardq_context *context, const char *name,
                              int32_t element_bytes, int32_t rank_of_shape,
                              const void *data, const int64_t *sizes,
                              const int64_t *strides, const int32_t *rows,
                              int64_t num_rows);

/* The same, with the number of rows in memory, on a GPU in its memory; where
 * it is negative there is no value, and nothing happens. */
SHARDQ_API void shardq_rt_tap_counted(
    shardq_context *context, const char *name, int32_t element_bytes,
    int32_t rank_of_shape, const void *data, const int64_t *sizes,
    const int64_t *strides, const int32_t *rows, const int64_t *num_rows);

/*===--- Entry points of generated code for GPUs -------------------------===*/
//
// A call of a generated function is begin, any of the others, end. All of it
// only enqueues: errors that kernels find are known after the stream's work is
// done, by shardq_context_status. On a communicator with host memory, begin,
// end, alloc and free work as well; the others record SHARDQ_INVALID. Code for
// GPUs exchanges in kernels: shardq_rt_workspace, _peer, _signal and _wait are
// recorded as SHARDQ_INVALID where buffers are on a GPU.

/* Begins a call: what follows is enqueued on `stream` (a CUstream), and the
 * device's primary context is current on this thread until the call's end. All
 * temporary memory of the slot is free again. */
SHARDQ_API void shardq_rt_begin(shardq_context *context, void *stream);

/* Ends a call; the status so far known on the host, without waiting. */
SHARDQ_API int32_t shardq_rt_end(shardq_context *context);

/* 1 where NCCL carries the rows of exchanges on `channel`. The kernels of one
 * then are: one that packs rows for others into `outbox` and writes own ones to
 * the inbox, one that announces; shardq_rt_transfer; one that waits, one that
 * unpacks. */
SHARDQ_API int32_t shardq_rt_is_carried(shardq_context *context,
                                        int32_t channel);

/* Carries the rows that were announced on `channel`. The rows for member i of
 * the group begin at row `i * rows` of `outbox`, those from it at that row of
 * `landing`; both are device memory for `rows` rows of `row_bytes` from each
 * member. What was announced is compared first: where a pair of ranks differs
 * nothing moves, and the error is recorded. Waits for the stream. While that is
 * captured, all `rows` of each member travel, and the comparison is left to the
 * kernel that waits. SHARDQ_INVALID is recorded where the channel's rows go
 * straight to peers. */
SHARDQ_API void shardq_rt_transfer(shardq_context *context, int32_t channel,
                                   int32_t operation, int64_t group_first,
                                   int64_t group_stride, int64_t group_size,
                                   const void *outbox, void *landing,
                                   int64_t rows, int64_t row_bytes);

/* What kernels take as their context: an address on the device; NULL where
 * buffers are on the host. */
SHARDQ_API void *shardq_rt_device(shardq_context *context);

/* Temporary memory until free or the next begin, aligned to 256 bytes. A block
 * that was freed is used again at once: kernels of one stream run in order. The
 * memory of a slot depends only on the order of these calls, so a captured
 * graph and later calls agree. While the stream is captured nothing is added to
 * it, and a shortage is recorded as SHARDQ_CAPACITY. NULL after an error. */
SHARDQ_API void *shardq_rt_alloc(shardq_context *context, int64_t bytes);
SHARDQ_API void shardq_rt_free(shardq_context *context, void *memory);

/* Kernels that are enqueued between begin_aside and end_aside, of an exchange
 * on `channel`, run on a stream of the slot's own, of the highest priority:
 * behind what was enqueued before begin_aside, beside what follows, and before
 * what is enqueued behind join_aside. So until then their memory is neither
 * freed nor written. A call's end joins what its caller has left open, and
 * begin_aside what another did. In line, and then nothing happens here, where
 * NCCL carries the channel's rows, a launch callback is registered, or the
 * driver has no events. May be captured. */
SHARDQ_API void shardq_rt_begin_aside(shardq_context *context, int32_t channel);
SHARDQ_API void shardq_rt_end_aside(shardq_context *context);
SHARDQ_API void shardq_rt_join_aside(shardq_context *context);

/* Enqueues kernel number `kernel` of the image, `blocks` blocks of it, at least
 * one, with the addresses of its arguments in `params`. */
SHARDQ_API void shardq_rt_launch(shardq_context *context,
                                 const shardq_gpu_image *image, int32_t kernel,
                                 int64_t blocks, void *const *params);

#ifdef __cplusplus
} // extern "C"
#endif

#endif /* SHARDQ_RUNTIME_H */
