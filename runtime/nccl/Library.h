//===- Library.h - NCCL, opened at run time ---------------------*- C++ -*-===//
//
// The functions of libnccl.so.2 that the runtime calls, with declarations of
// its own: neither building nor installing needs NCCL. A machine without one
// gets a status. No windows, no collectives, nothing that makes multicast
// objects.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_NCCL_LIBRARY_H
#define SHARDQ_RUNTIME_NCCL_LIBRARY_H

#include "cuda/Driver.h"

namespace shardq::nccl {

/// Types and numbers of NCCL's binary interface.
using Result = int;
using Communicator = struct CommunicatorObject *;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInProgress = 7;
inline constexpr int kBytes = 0; // ncclInt8

/// ncclUniqueId.
struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t up to the fields of 2.14, which later versions take as well
/// and fill up with their defaults.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};
static_assert(sizeof(Config) == 24);

/// First version with communicators that do not block.
inline constexpr int kMinVersion = 21400;

// clang-format off
#define SHARDQ_NCCL_FUNCTIONS(X)                                               \
  X(getVersion, Result, "ncclGetVersion", (int *version))                      \
  X(getUniqueId, Result, "ncclGetUniqueId", (UniqueId *id))                    \
  X(initRank, Result, "ncclCommInitRankConfig",                                \
    (Communicator *communicator, int world, UniqueId id, int rank,             \
     Config *config))                                                          \
  X(getAsyncError, Result, "ncclCommGetAsyncError",                            \
    (Communicator communicator, Result *error))                                \
  X(abort, Result, "ncclCommAbort", (Communicator communicator))               \
  X(finalize, Result, "ncclCommFinalize", (Communicator communicator))         \
  X(destroy, Result, "ncclCommDestroy", (Communicator communicator))           \
  X(groupStart, Result, "ncclGroupStart", ())                                  \
  X(groupEnd, Result, "ncclGroupEnd", ())                                      \
  X(send, Result, "ncclSend",                                                  \
    (const void *source, size_t count, int type, int peer,                     \
     Communicator communicator, cuda::Stream stream))                          \
  X(receive, Result, "ncclRecv",                                               \
    (void *target, size_t count, int type, int peer,                           \
     Communicator communicator, cuda::Stream stream))                          \
  X(getErrorText, const char *, "ncclGetErrorString", (Result result))         \
  X(getLastError, const char *, "ncclGetLastError",                            \
    (Communicator communicator))
// clang-format on

struct Library {
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration takes none.
#define SHARDQ_NCCL_MEMBER(NAME, TYPE, SYMBOL, PARAMETERS)                     \
  TYPE(*NAME) PARAMETERS = nullptr;
  // NOLINTEND(bugprone-macro-parentheses)
  SHARDQ_NCCL_FUNCTIONS(SHARDQ_NCCL_MEMBER)
#undef SHARDQ_NCCL_MEMBER

  int version = 0;

  /// The library of this process, opened at the first call; SHARDQ_SYSTEM where
  /// there is none. The environment's SHARDQ_NCCL names another one.
  static Outcome get(const Library *&library);

  /// SHARDQ_SYSTEM, naming the call and what NCCL says about it.
  Outcome failed(const char *call, Result result,
                 Communicator communicator = nullptr) const;
};

} // namespace shardq::nccl

#endif // SHARDQ_RUNTIME_NCCL_LIBRARY_H
