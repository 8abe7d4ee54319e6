//===- Ranks.cpp - A program on rank processes ----------------------------===//

#include "Ranks.h"
#include "Gpu.h"
#include "Inputs.h"
#include "Wire.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include <chrono>
#include <csignal>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

using Clock = std::chrono::steady_clock;

static double getSecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

//===----------------------------------------------------------------------===//
// In a rank process
//===----------------------------------------------------------------------===//

static void recordTap(void *user, const shardq_tap_value *value) {
  TapRecord record;
  record.name = value->name ? value->name : "";
  record.elementBytes = value->element_bytes;
  record.shape.assign(value->sizes, value->sizes + value->rank);
  if (value->rows)
    record.rows.emplace(value->rows, value->rows + value->num_rows);
  // Rows that hold no value are left out.
  if (!record.shape.empty())
    record.shape[0] = std::min(record.shape[0], value->num_rows);
  int64_t count = 1;
  for (int64_t size : record.shape)
    count *= size;
  record.data.resize(count * value->element_bytes);
  std::vector<int64_t> index(value->rank, 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (int32_t d = 0; d < value->rank; ++d)
      offset += index[d] * value->strides[d];
    std::memcpy(record.data.data() + i * value->element_bytes,
                static_cast<const char *>(value->data) +
                    offset * value->element_bytes,
                value->element_bytes);
    for (int32_t d = value->rank; d-- > 0 && ++index[d] == record.shape[d];)
      index[d] = 0;
  }
  static_cast<std::vector<TapRecord> *>(user)->push_back(std::move(record));
}

/// The message of a run whose results are not those of the first.
static std::string compareRuns(ArrayRef<Array> first, ArrayRef<Array> now,
                               int64_t run, int64_t slot) {
  for (auto [i, a, b] : llvm::enumerate(first, now))
    if (a.shape != b.shape ||
        std::memcmp(a.data.get(), b.data.get(), a.getNumBytes()) != 0)
      return "result " + std::to_string(i) + " of run " + std::to_string(run) +
             " (slot " + std::to_string(slot) +
             ") differs from the first with this step";
  return "";
}

/// For what the runtime has to say about an error.
static constexpr size_t kMessageBytes = 1024;

/// This rank's blocks of the arguments.
static llvm::Expected<std::vector<Array>> takeBlocks(const Signature &signature,
                                                     ArrayRef<Array> arguments,
                                                     const KvShards *shards,
                                                     int64_t rank) {
  std::vector<Array> locals;
  for (auto [i, argument, array] :
       llvm::enumerate(signature.arguments, arguments)) {
    if (const Array *own =
            shards ? shards->find(signature, i, rank) : nullptr) {
      locals.push_back(*own);
      continue;
    }
    llvm::Expected<Array> local = takeBlock(
        array, argument.split, argument.splitAxis,
        argument.split ? signature.getBlock(argument.splitAxis, rank) : 0);
    if (!local)
      return local.takeError();
    locals.push_back(std::move(*local));
  }
  return locals;
}

namespace {

/// Runs the program as one rank. What returns text returns why it failed, and
/// nothing where it did not.
class RankRun {
public:
  RankRun(const Program &program, const Signature &signature, int64_t rank,
          const RunOptions &options, RankOutcome &outcome)
      : program(program), signature(signature), rank(rank), options(options),
        outcome(outcome), slots(program.getPlan()->slots) {}
  ~RankRun();
  RankRun(const RankRun &) = delete;
  RankRun &operator=(const RankRun &) = delete;

  std::string prepare(ArrayRef<std::vector<Array>> turns);
  /// Tells the others too where this rank could not prepare itself.
  std::string join(StringRef directory, int64_t numRanks, StringRef unprepared);
  std::string runAll();

private:
  llvm::Error prepareGpu();
  std::string create(shardq_bootstrap *bootstrap, int64_t numRanks);
  std::string load();
  std::string runOnce(int64_t i);
  std::string capture();
  std::string runRest();
  std::string runConcurrently();

  bool isOnGpu() const { return onGpu.has_value(); }
  int32_t getDevice() const { return int32_t(rank / options.ranksPerGpu); }
  int64_t getNumTurns() const { return int64_t(locals.size()); }
  shardq_context *getContext(int64_t slot) const {
    return shardq_comm_context(comm, int32_t(slot));
  }

  const Program &program;
  const Signature &signature;
  int64_t rank;
  const RunOptions &options;
  RankOutcome &outcome;
  int64_t slots;
  std::vector<std::vector<Array>> locals; // by turn
  /// The first run of a turn says what its others have to give.
  std::vector<std::vector<Array>> expected;
  std::unique_ptr<Gpu> gpu;
  std::optional<GpuRank> onGpu;
  shardq_comm *comm = nullptr;
  bool captured = false;
};

} // namespace

RankRun::~RankRun() {
  // Graphs hold what belongs to the communicator.
  if (gpu)
    gpu->dropGraphs();
  shardq_comm_destroy(comm);
}

/// What this rank needs of its own: its blocks, and what a GPU keeps of them.
std::string RankRun::prepare(ArrayRef<std::vector<Array>> turns) {
  for (auto [turn, arguments] : llvm::enumerate(turns)) {
    const KvShards *shards =
        turn < options.shards.size() ? &options.shards[turn] : nullptr;
    auto blocks = takeBlocks(signature, arguments, shards, rank);
    if (!blocks)
      return llvm::toString(blocks.takeError());
    locals.push_back(std::move(*blocks));
  }
  expected.resize(turns.size());
  if (program.isForGpu())
    if (llvm::Error error = prepareGpu())
      return llvm::toString(std::move(error));
  return "";
}

llvm::Error RankRun::prepareGpu() {
  llvm::Expected<std::unique_ptr<Gpu>> opened = Gpu::open(getDevice());
  if (!opened)
    return opened.takeError();
  gpu = std::move(*opened);
  onGpu.emplace(program, *gpu);
  SmallVector<int64_t> rows;
  for (const Result &result : signature.results)
    rows.push_back(result.cache >= 0 ? locals.front()[result.cache].getNumRows()
                                     : result.getRows(options.numRows));
  return onGpu->prepare(locals.front(), rows);
}

std::string RankRun::join(StringRef directory, int64_t numRanks,
                          StringRef unprepared) {
  shardq_bootstrap *bootstrap = nullptr;
  if (shardq_bootstrap_files(directory.str().c_str(), int32_t(rank),
                             int32_t(numRanks), &bootstrap) != SHARDQ_OK)
    return "could not join the other ranks in " + directory.str();
  std::string failure = create(bootstrap, numRanks);
  shardq_bootstrap_destroy(bootstrap);
  if (unprepared.empty())
    return failure.empty() ? load() : failure;
  // The others have met this rank, or have heard that it failed, and would wait
  // for its first exchange.
  if (comm)
    shardq_comm_abort(comm);
  return unprepared.str();
}

std::string RankRun::create(shardq_bootstrap *bootstrap, int64_t numRanks) {
  shardq_comm_options comms = {};
  comms.struct_size = sizeof(comms);
  comms.rank = int32_t(rank);
  comms.world = int32_t(numRanks);
  comms.bootstrap = bootstrap;
  comms.plan = program.getPlan();
  // Below the parent's timeout, so that the rank can still say whom it waits
  // for.
  comms.deadline_ms =
      std::max<int64_t>(int64_t(options.timeoutSeconds * 800), 100);
  comms.rendezvous_deadline_ms = comms.deadline_ms;
  if (program.isForGpu()) {
    comms.memory = SHARDQ_MEMORY_CUDA;
    comms.cuda_device = getDevice();
    comms.transport = int32_t(options.transport);
    if (!options.hosts.empty())
      comms.host = options.hosts[rank % options.hosts.size()].c_str();
  }
  char message[kMessageBytes] = "";
  shardq_status status =
      shardq_comm_create(&comms, &comm, message, sizeof(message));
  if (status != SHARDQ_OK)
    return std::string(shardq_status_name(status)) + ": " + message;
  return "";
}

/// The kernels, where there are any, to where the rank met the others.
std::string RankRun::load() {
  if (!isOnGpu())
    return "";
  char message[kMessageBytes] = "";
  shardq_comm_transport(comm, message, sizeof(message));
  outcome.transport = message;
  if (shardq_comm_load(comm, program.getImage(), message, sizeof(message)) ==
      SHARDQ_OK)
    return "";
  shardq_comm_abort(comm);
  return message;
}

std::string RankRun::runOnce(int64_t i) {
  int64_t turn = i % getNumTurns();
  if (isOnGpu() && getNumTurns() > 1)
    if (llvm::Error error = onGpu->upload(locals[turn]))
      return llvm::toString(std::move(error));
  shardq_context *context = getContext(i % slots);
  if (options.recordTaps)
    shardq_context_set_tap(context, i == 0 ? recordTap : nullptr,
                           &outcome.taps);
  bool replays =
      captured && (options.eagerEvery == 0 || i % options.eagerEvery != 0);
  std::vector<Array> results;
  llvm::Error error =
      isOnGpu() ? onGpu->run(context, results,
                             replays ? std::optional(i % slots) : std::nullopt)
                : program.call(context, locals[turn], results);
  if (error)
    return llvm::toString(std::move(error));
  char text[kMessageBytes];
  shardq_status after = shardq_context_status(context, text, sizeof(text));
  if (after != SHARDQ_OK)
    return std::string(shardq_status_name(after)) + ": " + text;
  if (i >= getNumTurns())
    return compareRuns(expected[turn], results, i, i % slots);
  expected[turn] = std::move(results);
  return "";
}

/// The graphs of all slots.
std::string RankRun::capture() {
  for (int64_t slot = 0; slot < slots; ++slot) {
    // Memory is taken by the first call, not in a capture.
    if (slot >= getNumTurns())
      if (std::string failure = runOnce(slot); !failure.empty())
        return failure;
    // Observers read back, which no captured stream can.
    shardq_context_set_tap(getContext(slot), nullptr, nullptr);
    if (llvm::Error error = onGpu->capture(getContext(slot), slot))
      return llvm::toString(std::move(error));
  }
  captured = true;
  return "";
}

/// A thread for each slot: exchanges of different slots are in flight together,
/// in an order that differs between ranks.
std::string RankRun::runConcurrently() {
  std::vector<std::string> failures(slots);
  std::vector<std::thread> threads;
  threads.reserve(slots);
  for (int64_t slot = 0; slot < slots; ++slot)
    threads.emplace_back([&, slot] {
      for (int64_t i = slot; i < options.repeat && failures[slot].empty();
           i += slots)
        if (i >= getNumTurns())
          failures[slot] = runOnce(i);
    });
  for (std::thread &thread : threads)
    thread.join();
  auto failed = llvm::find_if(
      failures, [](const std::string &text) { return !text.empty(); });
  return failed == failures.end() ? "" : *failed;
}

/// The runs behind the first of each turn.
std::string RankRun::runRest() {
  if (options.concurrent)
    return runConcurrently();
  std::string failure;
  for (int64_t i = getNumTurns(); i < options.repeat && failure.empty(); ++i)
    failure = runOnce(i);
  return failure;
}

std::string RankRun::runAll() {
  auto start = Clock::now();
  std::string failure;
  for (int64_t i = 0; i < getNumTurns() && failure.empty(); ++i)
    failure = runOnce(i);
  if (isOnGpu() && (options.graph || options.benchReplays) && failure.empty())
    failure = capture();
  if (captured && options.benchReplays)
    if (llvm::Error error =
            onGpu->time(getContext(0), options.benchReplays, outcome.times))
      failure = llvm::toString(std::move(error));
  if (failure.empty())
    failure = runRest();
  outcome.results = std::move(expected.front());
  outcome.seconds = getSecondsSince(start);
  // A rank that failed by itself tells the others, which would wait for it.
  if (!failure.empty())
    shardq_comm_abort(comm);
  return failure;
}

/// Everything that a rank does; the return value is why it failed.
static std::string runRank(const Program &program, const Signature &signature,
                           ArrayRef<std::vector<Array>> turns, int64_t rank,
                           int64_t numRanks, StringRef directory,
                           const RunOptions &options, RankOutcome &outcome) {
  RankRun run(program, signature, rank, options, outcome);
  std::string unprepared = run.prepare(turns);
  std::string failure = run.join(directory, numRanks, unprepared);
  return failure.empty() ? run.runAll() : failure;
}

static void send(int descriptor, const RankOutcome &outcome) {
  WireWriter writer;
  writer.put(int64_t(outcome.ok));
  writer.put(StringRef(outcome.message));
  writer.put(StringRef(outcome.transport));
  writer.put(int64_t(outcome.seconds * 1e9));
  writer.put(int64_t(outcome.results.size()));
  for (const Array &array : outcome.results) {
    writer.put(int64_t(array.element));
    writer.putList<int64_t>(array.shape);
    writer.put(StringRef(array.data.get(), array.getNumBytes()));
  }
  writer.putList<double>(outcome.times.graph);
  writer.putList<double>(outcome.times.alone);
  writer.put(int64_t(outcome.times.kernels.size()));
  for (const KernelTimes &kernel : outcome.times.kernels) {
    writer.put(StringRef(kernel.kernel));
    writer.putList<double>(kernel.microseconds);
  }
  writer.put(int64_t(outcome.taps.size()));
  for (const TapRecord &tap : outcome.taps) {
    writer.put(StringRef(tap.name));
    writer.put(tap.elementBytes);
    writer.putList<int64_t>(tap.shape);
    writer.putList<char>(tap.data);
    writer.put(int64_t(tap.rows.has_value()));
    writer.putList<int32_t>(tap.rows.value_or(std::vector<int32_t>()));
  }
  StringRef rest = writer.getBytes();
  while (!rest.empty()) {
    ssize_t written = write(descriptor, rest.data(), rest.size());
    if (written <= 0)
      return;
    rest = rest.drop_front(written);
  }
}

//===----------------------------------------------------------------------===//
// In the parent
//===----------------------------------------------------------------------===//

/// Reads what the rank sent; not ok where it did not come to the end.
static RankOutcome receive(int descriptor) {
  RankOutcome outcome;
  outcome.message = "ended without a result";
  lseek(descriptor, 0, SEEK_SET);
  auto buffer = llvm::MemoryBuffer::getOpenFile(
      llvm::sys::fs::convertFDToNativeFile(descriptor), "result",
      /*FileSize=*/-1, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return outcome;
  WireReader reader((*buffer)->getBuffer());
  bool ok = reader.takeInt();
  std::string message = reader.takeText().str();
  outcome.transport = reader.takeText().str();
  outcome.seconds = double(reader.takeInt()) * 1e-9;
  for (int64_t i = 0, e = reader.takeInt(); i < e && reader.ok(); ++i) {
    Element element = Element(reader.takeInt());
    std::vector<int64_t> shape = reader.takeList<int64_t>();
    StringRef data = reader.takeText();
    llvm::Expected<Array> array = allocateArray(element, shape, "a result");
    if (!array) {
      outcome.message = llvm::toString(array.takeError());
      return outcome;
    }
    if (int64_t(data.size()) != array->getNumBytes())
      return outcome;
    std::memcpy(array->data.get(), data.data(), data.size());
    outcome.results.push_back(std::move(*array));
  }
  outcome.times.graph = reader.takeList<double>();
  outcome.times.alone = reader.takeList<double>();
  for (int64_t i = 0, e = reader.takeInt(); i < e && reader.ok(); ++i) {
    KernelTimes kernel;
    kernel.kernel = reader.takeText().str();
    kernel.microseconds = reader.takeList<double>();
    outcome.times.kernels.push_back(std::move(kernel));
  }
  for (int64_t i = 0, e = reader.takeInt(); i < e && reader.ok(); ++i) {
    TapRecord tap;
    tap.name = reader.takeText().str();
    tap.elementBytes = reader.takeInt();
    tap.shape = reader.takeList<int64_t>();
    tap.data = reader.takeList<char>();
    bool hasRows = reader.takeInt();
    std::vector<int32_t> rows = reader.takeList<int32_t>();
    if (hasRows)
      tap.rows = std::move(rows);
    outcome.taps.push_back(std::move(tap));
  }
  if (!reader.ok())
    return outcome;
  outcome.ok = ok;
  outcome.message = std::move(message);
  return outcome;
}

static constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};
static volatile std::sig_atomic_t interruptedBy = 0;

namespace {
/// While ranks run, an interrupt ends them and what they left in the file
/// system before it ends the tool.
class InterruptGuard {
public:
  InterruptGuard() {
    interruptedBy = 0;
    for (auto [signal, before] : llvm::zip_equal(kInterrupts, previous))
      before = std::signal(signal, [](int by) { interruptedBy = by; });
  }
  ~InterruptGuard() {
    for (auto [signal, before] : llvm::zip_equal(kInterrupts, previous))
      std::signal(signal, before);
    if (interruptedBy) {
      std::signal(interruptedBy, SIG_DFL);
      std::raise(interruptedBy);
    }
  }
  InterruptGuard(const InterruptGuard &) = delete;
  InterruptGuard &operator=(const InterruptGuard &) = delete;

private:
  void (*previous[std::size(kInterrupts)])(int) = {};
};
} // namespace

[[noreturn]] static void
becomeRank(const Program &program, const Signature &signature,
           ArrayRef<std::vector<Array>> turns, int64_t rank, int64_t numRanks,
           StringRef directory, const RunOptions &options, int descriptor) {
  // No rank outlives the tool, and a crash is the parent's to report: without
  // LLVM's stack dump and without a core.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int signal : kInterrupts)
    std::signal(signal, SIG_DFL);
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP})
    std::signal(signal, SIG_DFL);
  rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  RankOutcome outcome;
  outcome.message = runRank(program, signature, turns, rank, numRanks,
                            directory, options, outcome);
  outcome.ok = outcome.message.empty();
  send(descriptor, outcome);
  // Not exit: the parent's buffers and handlers are not this process' own.
  _exit(0);
}

/// A line about how rows travel, the first time that ranks have met.
static void reportTransport(const RunOutcome &run) {
  static bool isReported = false;
  for (const RankOutcome &rank : run.ranks) {
    if (rank.transport.empty() || isReported)
      continue;
    isReported = true;
    llvm::errs() << "transport " << rank.transport << '\n';
  }
}

llvm::Expected<RunOutcome>
run::runRanks(const Program &program, const Signature &signature,
              ArrayRef<std::vector<Array>> turns, int64_t numRanks,
              const RunOptions &options, Progress &progress) {
  // Before the directory, so that it outlives its removal.
  InterruptGuard interrupts;
  SmallString<128> directory;
  if (std::error_code error =
          llvm::sys::fs::createUniqueDirectory("shardq-run", directory))
    return makeError("could not make a directory: " + error.message());
  // What cannot be removed is the system's to clean.
  llvm::scope_exit removeDirectory(
      [&] { (void)llvm::sys::fs::remove_directories(directory); });

  RunOutcome run;
  run.ranks.resize(numRanks);
  std::vector<int> descriptors(numRanks, -1);
  std::vector<pid_t> processes(numRanks, -1);
  llvm::scope_exit closeAll([&] {
    for (int descriptor : descriptors)
      if (descriptor >= 0)
        close(descriptor);
  });
  auto start = Clock::now();
  llvm::outs().flush();
  llvm::errs().flush();
  std::string failure;
  for (int64_t rank = 0; rank < numRanks && failure.empty(); ++rank) {
    descriptors[rank] = memfd_create("shardq-run result", MFD_CLOEXEC);
    if (descriptors[rank] < 0) {
      failure = std::string("memfd_create: ") + std::strerror(errno);
      break;
    }
    pid_t process = fork();
    if (process == 0)
      becomeRank(program, signature, turns, rank, numRanks, directory, options,
                 descriptors[rank]);
    if (process < 0)
      failure = std::string("fork: ") + std::strerror(errno);
    processes[rank] = process;
  }

  int64_t running = llvm::count_if(processes, [](pid_t p) { return p > 0; });
  bool killed = false;
  while (running > 0) {
    bool late = getSecondsSince(start) > options.timeoutSeconds;
    if (interruptedBy && failure.empty())
      failure = "interrupted";
    if ((late || !failure.empty()) && !killed) {
      killed = true;
      for (pid_t process : processes)
        if (process > 0)
          kill(process, SIGKILL);
    }
    for (int64_t rank = 0; rank < numRanks; ++rank) {
      int status = 0;
      if (processes[rank] <= 0 ||
          waitpid(processes[rank], &status, WNOHANG) != processes[rank])
        continue;
      processes[rank] = -1;
      --running;
      RankOutcome &outcome = run.ranks[rank];
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        outcome = receive(descriptors[rank]);
      } else if (late && WIFSIGNALED(status)) {
        outcome.message = "did not end within " +
                          std::to_string(int64_t(options.timeoutSeconds)) +
                          " s and was killed";
      } else if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        outcome.message =
            std::string("died by signal SIG") + (name ? name : "?");
      } else {
        outcome.message =
            "exited with status " + std::to_string(WEXITSTATUS(status));
      }
    }
    progress.tick("(" + std::to_string(numRanks - running) + " of " +
                  std::to_string(numRanks) + " ranks done)");
    if (running > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  progress.clear();
  run.seconds = getSecondsSince(start);
  if (!failure.empty())
    return makeError(failure);
  reportTransport(run);
  return run;
}

llvm::Expected<std::vector<Array>>
run::assembleResults(const Signature &signature, const RunOutcome &outcome,
                     const KvShards *shards, ArrayRef<Array> given) {
  std::vector<Array> globals;
  for (auto [i, result] : llvm::enumerate(signature.results)) {
    if (shards && result.cache >= 0 && shards->places.count(result.cache)) {
      std::vector<const Array *> parts;
      for (const RankOutcome &rank : outcome.ranks)
        parts.push_back(&rank.results[i]);
      auto joined = joinCaches(signature, result.cache, *shards,
                               given[result.cache], parts);
      if (!joined)
        return makeError("result " + llvm::Twine(i) + ": " +
                         llvm::toString(joined.takeError()));
      globals.push_back(*joined);
      continue;
    }
    const Array &first = outcome.ranks.front().results[i];
    if (result.split) {
      SmallVector<int64_t, 4> shape = first.shape;
      unsigned dim = result.split.getDim();
      shape[dim] *= result.splitAxis.getSize();
      llvm::Expected<Array> global =
          allocateArray(result.element, shape, "result " + llvm::Twine(i));
      if (!global)
        return global.takeError();
      globals.push_back(*global);
    } else {
      globals.push_back(first);
    }
    std::vector<const Array *> blocks(result.split ? result.splitAxis.getSize()
                                                   : 1);
    for (auto [rank, one] : llvm::enumerate(outcome.ranks)) {
      const Array &local = one.results[i];
      if (local.shape != first.shape)
        return makeError("result %zu: rank 0 returned %s, rank %zu %s",
                         size_t(i), describe(first).c_str(), size_t(rank),
                         describe(local).c_str());
      int64_t block =
          result.split ? signature.getBlock(result.splitAxis, rank) : 0;
      // Ranks off the axis repeat the blocks of others, bit by bit.
      if (!blocks[block]) {
        blocks[block] = &local;
        if (result.split)
          putBlock(local, result.split, block, globals.back());
        continue;
      }
      const char *a = blocks[block]->data.get(), *b = local.data.get();
      for (int64_t at = 0, e = local.getNumBytes(); at < e; ++at) {
        if (a[at] == b[at])
          continue;
        int64_t element = at / getElementBytes(local.element);
        int64_t width = std::max<int64_t>(local.getRowElements(), 1);
        return makeError("result %zu is not split, but rank %zu differs from "
                         "another first in row %ld, element %ld: %g and %g",
                         size_t(i), size_t(rank), long(element / width),
                         long(element % width), local.getFloat(element),
                         blocks[block]->getFloat(element));
      }
    }
  }
  return globals;
}
