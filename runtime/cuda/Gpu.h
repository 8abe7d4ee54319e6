//===- Gpu.h - A rank's part of a GPU ---------------------------*- C++ -*-===//
//
// Everything of a communicator that is on a device, or that the device has
// mapped. A communicator with host memory has none.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUNTIME_CUDA_GPU_H
#define SHARDQ_RUNTIME_CUDA_GPU_H

#include "AddressRange.h"
#include "Images.h"
#include "device/DeviceContext.h"
#include "host/Fault.h"
#include "host/Heap.h"

namespace shardq::cuda {

/// Makes a context of the driver current on this thread, for a while.
class Current {
public:
  Current(const Driver &driver, ContextHandle context);
  ~Current();
  Current(const Current &) = delete;

private:
  const Driver &driver;
  ContextHandle before = nullptr;
  bool changed = false;
};

/// Allows this thread calls that are unsafe while some stream of the process is
/// captured, of which none here takes part in the capture.
class CaptureGuard {
public:
  explicit CaptureGuard(const Driver &driver) : driver(driver) {
    driver.exchangeCaptureMode(&mode);
  }
  ~CaptureGuard() { driver.exchangeCaptureMode(&mode); }
  CaptureGuard(const CaptureGuard &) = delete;

private:
  const Driver &driver;
  int mode = kCaptureRelaxed;
};

struct GpuOptions {
  int ordinal = 0;
  int32_t rank = 0;
  int32_t world = 0;
  int64_t deadlineMs = 0;
  uint64_t arenaBytes = 0;
};

/// A stream beside that of the caller, and what orders the two.
struct SideStream {
  Stream stream = nullptr;
  Event begin = nullptr; // recorded on the caller's stream
  Event end = nullptr;   // recorded on this one
};

class Gpu {
public:
  /// Opens the device and makes this rank's heap on it.
  static Outcome open(const GpuOptions &options, const Plan &plan,
                      const Fault &fault, std::unique_ptr<Gpu> &gpu);
  Gpu(const Gpu &) = delete;
  /// Ends this rank's kernels that wait, waits for all that the device does,
  /// and frees everything.
  ~Gpu();

  //===--- Rendezvous -----------------------------------------------------===//

  /// What peers are told: whose device it is, and how much they map.
  const Uuid &getUuid() const { return uuid; }
  /// 90 for compute capability 9.0.
  int getArch() const { return arch; }
  uint64_t heapBytes() const { return layout.bytes; }
  int getOrdinal() const { return options.ordinal; }
  /// The heap, for peers to map.
  int descriptor() const { return heapFd.get(); }

  /// Says which ranks' heaps are not to be mapped, by rank, and of which
  /// channels NCCL carries the rows, by channel. Before all that follows.
  void setWays(const std::vector<char> &elsewhere,
               const std::vector<char> &carried);

  /// Maps all heaps but those elsewhere into a range of this rank's own.
  /// `theirs` holds the peers' descriptors.
  Outcome mapPeers(const std::vector<Descriptor> &theirs);

  /// Makes a range that ranks of this process share.
  Outcome reserve(std::shared_ptr<AddressRange> &fresh);
  /// Puts this rank's heap into a range that ranks of this process share, for
  /// the devices of all of them.
  Outcome mapShared(std::shared_ptr<AddressRange> shared,
                    const std::vector<int> &ordinals);

  /// Takes memory for this rank's heap that no peer maps: NCCL carries what
  /// goes there.
  Outcome mapAlone();
  bool isAlone() const { return heapAlone != 0; }
  /// Whether the rank's heap may be mapped here.
  bool reaches(int64_t rank) const {
    return !elsewhere[static_cast<size_t>(rank)];
  }

  /// Makes what the NCCL form needs, also beside memory that peers map.
  Outcome createCarriage();

  /// Clears this rank's flags and epochs, and writes the slots' contexts.
  Outcome prepare(const Deadline &deadline);

  /// Writes into every heap that is mapped, by kernel and by copy engine.
  /// `given` by owner.
  Outcome writeProbes(const std::vector<uint64_t> &given,
                      const Deadline &deadline);
  /// Looks at what all of them wrote here. `expected` by writer.
  Outcome checkProbes(const std::vector<uint64_t> &expected,
                      const Deadline &deadline);

  //===--- Failures -------------------------------------------------------===//

  /// Waits of this rank's kernels give up. Any thread.
  void abort();
  /// Kernels that do not wait learn of it, too. The watchdog.
  void tellKernels();
  /// A failure that a kernel found. Any thread.
  bool readFailure(Failure &failure) const;
  /// Kernels that wait for the rank give up. The watchdog.
  void noteLeft(int32_t rank);
  /// Whether a kernel asks for the end of the process: an injected fault.
  bool wantsKill() const;

  //===--- The NCCL form --------------------------------------------------===//

  /// Lines of the last two epochs, [kFlagLines][world], on the device: those
  /// that arrived from each rank, and those to be sent to each.
  Address arrivedLines(int32_t slot, int32_t channel) const;
  Address outgoingLines(int32_t slot, int32_t channel) const;
  uint64_t lineBlockBytes() const;
  Address inbox(int32_t slot, int32_t channel, uint64_t epoch) const;
  const device::Mark &mark(int32_t slot, int32_t channel) const;
  /// Brings what the rank waits for, by its watchdog, to where the kernels of
  /// all ranks find it. Does nothing while it is there already, or while the
  /// runtime's own stream is busy.
  void tellProgress(int32_t slot, const SlotProgress &progress);
  /// What kernels follow to find a laggard; words of it are read by readWord.
  protocol::FlagTable flagTable() const;
  protocol::ProgressTable progressTable() const;
  /// A word of any rank's heap on a GPU; 0 where it does not come in time. The
  /// watchdog.
  uint64_t readWord(const uint64_t *word);
  /// Page-locked memory for two such blocks of a slot.
  char *lineCopies(int32_t slot) const;
  /// Waits for the runtime's own stream.
  Outcome waitFor(const char *what, const Deadline &deadline);
  Stream ownStream() const { return stream; }

  //===--- Calls of generated code ----------------------------------------===//

  Address deviceContext(int32_t slot) const;
  /// Memory until the communicator's end; the device's context is current.
  Result allocate(uint64_t bytes, Address &address);
  /// What a slot's arena begins with; 0 if it begins empty.
  Address firstArena(int32_t slot) const;
  uint64_t firstArenaBytes() const { return options.arenaBytes; }
  /// Null where the driver cannot order streams.
  const SideStream *sideStream(int32_t slot) const;

  const Driver &driver;
  /// The device's primary context.
  ContextHandle context = nullptr;
  Images images;

private:
  Gpu(const Driver &driver, const GpuOptions &options, const Plan &plan,
      const Fault &fault);
  Outcome openDevice();
  Outcome createHeap();
  Outcome createControl();
  Outcome createPrivate();
  Outcome createSideStreams();
  Outcome loadCheck();
  Outcome createPinned();
  uint64_t pairOf(int32_t slot, int32_t channel) const;
  Address ownHeap() const {
    return heapAlone ? heapAlone : range->heap(options.rank);
  }
  char *at(uint64_t offset) const;
  std::vector<uint64_t> ofReached(const std::vector<uint64_t> &tokens) const;

  const GpuOptions options;
  const Fault fault;
  const Layout layout;
  std::vector<device::Channel> channels;
  std::vector<char> elsewhere; // by rank

  DeviceId device = -1;
  bool hasContext = false;
  int arch = 0;
  Uuid uuid{};
  Stream stream = nullptr; // the runtime's own

  MemoryHandle heap = 0;
  bool hasHeap = false;
  Descriptor heapFd;
  std::shared_ptr<AddressRange> range;

  // Of the NCCL form.
  Address heapAlone = 0; // in place of `heap`, where nobody maps it
  Address outgoing = 0;  // FlagLine [slots][channels][kFlagLines][world]
  device::Mark *marks = nullptr; // [slots][channels], page-locked
  Address marksOnDevice = 0;
  char *copies = nullptr; // page-locked
  /// What tellProgress has brought, by slot, page-locked; behind it the word
  /// that readWord reads.
  SlotProgress *told = nullptr;

  device::Control *control = nullptr; // page-locked
  Address controlOnDevice = 0;

  // Offsets in the private memory of the device.
  struct {
    uint64_t failed, channels, contexts, tokens, probes, bad, bytes;
  } place{};
  Address privateMemory = 0;

  Module checkModule = nullptr;
  Function checkWrite = nullptr;
  Function checkRead = nullptr;

  std::vector<Address> firstArenas;
  std::vector<SideStream> sideStreams;
  std::mutex mutex;
  std::vector<Address> allocations; // guarded by mutex
};

} // namespace shardq::cuda

#endif // SHARDQ_RUNTIME_CUDA_GPU_H
