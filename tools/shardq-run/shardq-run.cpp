//===- shardq-run.cpp - Runs a program on rank processes ------------------===//

#include "Bench.h"
#include "Npy.h"
#include "Report.h"
#include "Source.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "shardq/Pipelines/Register.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"
#include <algorithm>
#include <csignal>
#include <cstring>
#include <limits>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;
namespace cl = llvm::cl;

static constexpr const char *kOverview =
    R"(Runs a ShardQ program on rank processes of this CPU, or of its GPUs

FILE is a module of level 1 (sparse_mla, indexer, ...) or 2 (exchange, ...). Its
entry runs on --ranks processes, which meet through shared memory. Arrays are
GLOBAL: an argument with shardq.split is cut into the ranks' blocks, any other
is given to every rank; results are put together the same way.

A KV cache that is sharded over ranks (kv = interleave<...> of sparse_mla) and its
block table are GLOBAL too: each rank is given the tokens that it owns, in blocks and
with a table of its own.

Arguments that no --input gives are made up: the sizes follow from --step, the
contents from what the ops use an argument for. Cache rows that no request owns
are NaN, so reading one shows.

  shardq-run f.mlir --step=step.json --shard-q-tokens --output-dir=out
  shardq-run f.mlir --step=step.json --verify
  shardq-run op.mlir --input=q=q.npy --input=1=kv.npy --output-dir=out

--verify runs the program as given, the rewritten one and a float64 reference,
and compares rows, top-k indices, slots and results.

A step file:
  {"query_lens": [1, 30], "context_lens": [4000, 0], "block_size": 64,
   "speculative_tokens": 0, "padding_rows": 0}

.npy files are row-major and little-endian: '<f4', '<f2', '<i4', '<i8' (i64 and
index), '|b1', '|i1', '|u1'. NumPy has no bf16: it is read as '<u2' or as the '|V2' that
np.save writes for ml_dtypes.bfloat16, and written as '<u2'; in Python:
  x.view(numpy.uint16)    numpy.load(f).view(ml_dtypes.bfloat16)

Exit status: 0 ok, all agree; 1 mismatch or an error of a rank; 2 bad input.
)";

/// Exit statuses.
enum { kOk = 0, kMismatch = 1, kBadInput = 2 };

namespace {

struct Flags {
  cl::OptionCategory category{"shardq-run options"};
  cl::opt<std::string> file{cl::Positional, cl::desc("FILE.mlir"), cl::Required,
                            cl::cat(category)};
  cl::opt<int64_t> ranks{"ranks", cl::value_desc("N"),
                         cl::desc("Number of ranks (default: the mesh's)"),
                         cl::init(0), cl::cat(category)};
  cl::opt<std::string> entry{
      "entry", cl::value_desc("NAME"), cl::cat(category),
      cl::desc("Function to run (default: the only one not called)")};
  cl::opt<std::string> pipeline{
      "pipeline", cl::value_desc("TEXT"), cl::cat(category),
      cl::desc("Passes to run first, as in --pass-pipeline of shardq-opt")};
  cl::opt<bool> shardQTokens{"shard-q-tokens", cl::cat(category),
                             cl::desc("Run the passes shardq-pcp, shardq-dcp "
                                      "and shard-q-tokens first")};
  cl::opt<int64_t> minTokens{
      "min-tokens", cl::value_desc("N"), cl::init(1), cl::cat(category),
      cl::desc(
          "min-tokens of shard-q-tokens (default 1: CPU steps are small)")};
  cl::opt<std::string> step{"step", cl::value_desc("STEP.json"),
                            cl::cat(category),
                            cl::desc("The requests of the step")};
  cl::list<std::string> nextSteps{
      "next-step", cl::value_desc("STEP.json"), cl::cat(category),
      cl::desc("With --repeat: another step of the same sizes; runs take "
               "turns, each with random inputs of its own")};
  cl::list<std::string> inputs{
      "input", cl::value_desc("NAME=FILE.npy"), cl::cat(category),
      cl::desc("Global array of an argument, by its name or number")};
  cl::opt<std::string> outputDir{
      "output-dir", cl::value_desc("DIR"), cl::cat(category),
      cl::desc("Write global results to DIR/result0.npy, ...")};
  cl::opt<uint64_t> seed{"seed", cl::value_desc("S"), cl::init(0),
                         cl::cat(category), cl::desc("Of random inputs")};
  cl::opt<int64_t> nullBlock{
      "null-block", cl::value_desc("N"), cl::init(0), cl::cat(category),
      cl::desc("Block that made-up caches leave free, -1 for none (default 0); "
               "the default passes take it for none")};
  cl::opt<bool> verify{
      "verify", cl::cat(category),
      cl::desc("Compare program, rewritten program and float64 reference")};
  cl::opt<double> timeout{
      "timeout", cl::value_desc("SECONDS"), cl::init(120), cl::cat(category),
      cl::desc("After which ranks are killed (default 120)")};
  cl::opt<std::string> report{
      "report", cl::value_desc("FILE.json"), cl::cat(category),
      cl::desc("Write what --verify or --bench tells as JSON")};
  cl::opt<int64_t> slots{"slots", cl::value_desc("N"), cl::init(1),
                         cl::cat(category),
                         cl::desc("Micro-batch slots (default 1)")};
  cl::opt<bool> concurrent{
      "concurrent", cl::cat(category),
      cl::desc("With --slots and --repeat: a thread for each slot")};
  cl::opt<int64_t> repeat{
      "repeat", cl::value_desc("M"), cl::init(1), cl::cat(category),
      cl::desc("Run M times, one slot after the other; results must be equal")};
  cl::opt<unsigned> optimize{
      "optimize", cl::value_desc("LEVEL"), cl::init(3), cl::cat(category),
      cl::desc("Of code for the CPU, 0 (compiled fast) to 3 (default)")};
  cl::opt<Target> target{
      "target", cl::cat(category), cl::init(Target::CPU),
      cl::desc("Where ranks run"),
      cl::values(clEnumValN(Target::CPU, "cpu", "processes of this CPU"),
                 clEnumValN(Target::CUDA, "cuda", "processes with a GPU"))};
  cl::opt<std::string> arch{"arch", cl::value_desc("sm_90a"),
                            cl::init("sm_90a"), cl::cat(category),
                            cl::desc("The card, for --target=cuda")};
  cl::opt<int64_t> ranksPerGpu{"ranks-per-gpu", cl::value_desc("N"),
                               cl::init(1), cl::cat(category),
                               cl::desc("Ranks that share a GPU (default 1)")};
  cl::opt<run::Transport> transport{
      "transport", cl::cat(category), cl::init(run::Transport::Auto),
      cl::desc("With --target=cuda: how rows travel between GPUs"),
      cl::values(clEnumValN(run::Transport::Auto, "auto",
                            "direct where that works, else nccl (default)"),
                 clEnumValN(run::Transport::Direct, "direct",
                            "stores into the memory of the others"),
                 clEnumValN(run::Transport::Nccl, "nccl", "sends of NCCL"))};
  cl::list<std::string> hosts{
      "hosts", cl::value_desc("NAME,..."), cl::CommaSeparated,
      cl::cat(category),
      cl::desc("With --target=cuda: what ranks call their hosts, in turn; "
               "other names are other hosts")};
  cl::opt<bool> overlap{
      "overlap", cl::init(true), cl::cat(category),
      cl::desc("With --target=cuda: gathers of KV run beside other kernels "
               "(default)")};
  cl::opt<bool> graph{
      "graph", cl::cat(category),
      cl::desc("With --target=cuda and --repeat: replay a captured graph")};
  cl::opt<int64_t> eagerEvery{
      "eager-every", cl::value_desc("N"), cl::init(0), cl::cat(category),
      cl::desc("With --graph: call each N-th run rather than replay it")};
  cl::opt<int64_t> bench{
      "bench", cl::value_desc("N"), cl::init(0), cl::cat(category),
      cl::desc("With --target=cuda: time N replays of a captured graph, 7 "
               "trials")};
  cl::opt<int64_t> maxTokens{
      "max-tokens", cl::value_desc("N"), cl::init(0), cl::cat(category),
      cl::desc("Rows that exchange buffers hold (default: the step's)")};
  cl::opt<int64_t> maxRequests{
      "max-requests", cl::value_desc("N"), cl::init(0), cl::cat(category),
      cl::desc("Requests that exchange buffers hold (default: the step's)")};
  cl::opt<int64_t> maxKvTokens{
      "max-kv-tokens", cl::value_desc("N"), cl::init(0), cl::cat(category),
      cl::desc("Context and new tokens that gathered KV holds (default: the "
               "step's)")};
};

} // namespace

static int reportBadInput(llvm::Error error) {
  llvm::errs() << "shardq-run: error: " << llvm::toString(std::move(error))
               << '\n';
  return kBadInput;
}
static int reportBadInput(const llvm::Twine &message) {
  return reportBadInput(makeError(message));
}

static llvm::Error writeResults(StringRef directory, ArrayRef<Array> results) {
  if (std::error_code error = llvm::sys::fs::create_directories(directory))
    return makeError(directory + ": " + error.message());
  for (auto [i, result] : llvm::enumerate(results)) {
    llvm::SmallString<128> path(directory);
    llvm::sys::path::append(path, "result" + llvm::Twine(i) + ".npy");
    if (llvm::Error error = writeNpy(path, result))
      return error;
  }
  return llvm::Error::success();
}

/// Tokens that the tables have room for, those of all ranks.
static int64_t countTableTokens(const Signature &signature,
                                const Inputs &inputs, const KvShards &shards) {
  int64_t most = 0;
  for (auto [i, table] : llvm::enumerate(signature.arguments)) {
    if (table.role != Role::Table)
      continue;
    const Array *own = shards.find(signature, i, 0);
    int64_t tokens = (own ? *own : inputs.arrays[i]).getNumElements();
    int64_t ranks =
        table.kvAxis ? table.kvAxis.getSize() : signature.getNumRanks();
    // What is beyond the planner's limit cannot be gathered.
    if (llvm::MulOverflow(tokens, table.blockSize * ranks, tokens))
      tokens = std::numeric_limits<int32_t>::max();
    most = std::max(most, tokens);
  }
  return std::min<int64_t>(most, std::numeric_limits<int32_t>::max());
}

/// The inputs of another step, which has to fit into the buffers of the first.
static llvm::Expected<Inputs> makeNextInputs(const Signature &signature,
                                             const Inputs &first,
                                             InputOptions options,
                                             const std::string &path) {
  auto step = readStep(path);
  if (!step)
    return step.takeError();
  options.step = std::move(*step);
  auto next = makeInputs(signature, options);
  if (!next)
    return next.takeError();
  for (auto [i, before, now] : llvm::enumerate(first.arrays, next->arrays)) {
    // A captured graph holds numbers as they were.
    bool isNumber = !isa<ShapedType>(signature.arguments[i].type);
    if (before.shape != now.shape)
      return makeError("--next-step=" + path + ": argument " + llvm::Twine(i) +
                       " is " + describe(now) + ", in the first step " +
                       describe(before));
    if (isNumber && std::memcmp(before.data.get(), now.data.get(),
                                before.getNumBytes()) != 0)
      return makeError("--next-step=" + path + ": argument " + llvm::Twine(i) +
                       " is a number, and not that of the first step");
  }
  return next;
}

static int runPlain(ModuleOp module, const Signature &signature,
                    ArrayRef<Inputs> turns, const VerifyOptions &options,
                    const Flags &flags, Progress &progress) {
  const Inputs &inputs = turns.front();
  std::string entry = func::FuncOp(signature.entry).getName().str();
  if (!options.pipeline.empty())
    if (llvm::Error error = runPipeline(module, options.pipeline))
      return reportBadInput(std::move(error));
  auto changed = adaptSignature(signature, module, entry);
  if (!changed)
    return reportBadInput(changed.takeError());
  std::vector<KvShards> alike;
  RunOptions run = options.run;
  if (needsTablesAlike(module)) {
    for (const Inputs &turn : turns) {
      auto cut = shardCaches(signature, turn, options.seed, Tables::Alike);
      if (!cut)
        return reportBadInput(cut.takeError());
      alike.push_back(std::move(*cut));
    }
    run.shards = alike;
  }
  if (llvm::Error error = checkNullBlock(module, inputs))
    return reportBadInput(std::move(error));
  CompileOptions compile = getCompileOptions(module, options);
  progress.begin("compiling");
  auto program = Program::compile(module, entry, compile);
  if (!program)
    return reportBadInput(program.takeError());
  progress.begin("running");
  std::vector<std::vector<Array>> arguments;
  for (const Inputs &turn : turns)
    arguments.push_back(turn.arrays);
  auto outcome =
      runRanks(**program, *changed, arguments, options.numRanks, run, progress);
  if (!outcome)
    return reportBadInput(outcome.takeError());
  if (!outcome->allOk()) {
    for (auto [rank, one] : llvm::enumerate(outcome->ranks))
      llvm::errs() << "rank " << rank << ": " << (one.ok ? "ok" : one.message)
                   << '\n';
    return kMismatch;
  }
  auto results = assembleResults(
      signature, *outcome, run.shards.empty() ? nullptr : &run.shards.front(),
      inputs.arrays);
  if (!results) {
    llvm::errs() << "mismatch: " << llvm::toString(results.takeError()) << '\n';
    return kMismatch;
  }
  if (!flags.outputDir.empty())
    if (llvm::Error error = writeResults(flags.outputDir, *results))
      return reportBadInput(std::move(error));
  llvm::outs() << "ran @" << entry << " on " << options.numRanks << " ranks, "
               << inputs.step.getNumRows() << " rows";
  for (auto [i, result] : llvm::enumerate(*results))
    llvm::outs() << "; result " << i << " " << describe(result);
  llvm::outs() << '\n';
  if (!flags.bench)
    return kOk;
  BenchReport report = makeBenchReport(
      *outcome, findExchanges(signature.entry,
                              decideSplit(module, inputs.step, compile)));
  report.numRows = inputs.step.getNumRows();
  printBench(report, llvm::outs());
  if (!flags.report.empty())
    if (llvm::Error error = writeBench(report, flags.report))
      return reportBadInput(std::move(error));
  return kOk;
}

static int runVerify(ModuleOp module, const Signature &signature,
                     const Inputs &inputs, const VerifyOptions &options,
                     const Flags &flags, Progress &progress) {
  auto report = verify(module, signature, inputs, options, progress);
  progress.clear();
  if (!report)
    return reportBadInput(report.takeError());
  printReport(*report, llvm::outs());
  if (!flags.outputDir.empty())
    if (llvm::Error error = writeResults(flags.outputDir, report->results))
      return reportBadInput(std::move(error));
  if (!flags.report.empty())
    if (llvm::Error error = writeReport(*report, flags.report))
      return reportBadInput(std::move(error));
  return report->problems.empty() ? kOk : kMismatch;
}

/// What is wrong with a flag, or with several together.
static llvm::Error checkFlags(const Flags &flags) {
  for (auto [name, value] :
       {std::pair<const char *, int64_t>{"slots", flags.slots},
        {"repeat", flags.repeat}})
    if (value < 1)
      return makeError("--" + llvm::Twine(name) + " must be positive");
  if (flags.optimize > 3)
    return makeError("--optimize=" + llvm::Twine(unsigned(flags.optimize)) +
                     ", expected 0 to 3");
  if (flags.slots > 64)
    return makeError("--slots must be at most 64");
  if (!(flags.timeout > 0))
    return makeError("--timeout must be positive");
  if (flags.shardQTokens && !flags.pipeline.empty())
    return makeError("give --pipeline or --shard-q-tokens, not both");
  if (!flags.report.empty() && !flags.verify && !flags.bench)
    return makeError("--report needs --verify or --bench");
  if (flags.bench && flags.verify)
    return makeError("give --bench or --verify, not both");
  if (flags.ranksPerGpu < 1 || flags.bench < 0)
    return makeError(
        "--ranks-per-gpu must be positive, --bench cannot be negative");
  if (flags.target == Target::CPU &&
      (flags.graph || flags.bench || flags.ranksPerGpu != 1 ||
       flags.transport != run::Transport::Auto || !flags.hosts.empty() ||
       !flags.overlap))
    return makeError("--graph, --bench, --ranks-per-gpu, --transport, "
                     "--hosts and --overlap=false need --target=cuda");
  if (flags.verify && !flags.nextSteps.empty())
    return makeError("give --next-step or --verify, not both");
  if (flags.repeat <= int64_t(flags.nextSteps.size()) &&
      !flags.nextSteps.empty())
    return makeError("--repeat=" + llvm::Twine(int64_t(flags.repeat)) +
                     ", but there are " +
                     llvm::Twine(flags.nextSteps.size() + 1) + " steps");
  if (flags.eagerEvery < 0 || (flags.eagerEvery > 0 && !flags.graph))
    return makeError("--eager-every=" + llvm::Twine(flags.eagerEvery) +
                     (flags.graph ? " cannot be negative" : " needs --graph"));
  if (flags.graph && flags.repeat < 2)
    return makeError("--graph needs --repeat: the first run is eager");
  if (flags.target == Target::CUDA && flags.concurrent)
    return makeError("--concurrent needs --target=cpu");
  if (flags.minTokens < 0 || flags.maxTokens < 0 || flags.maxRequests < 0 ||
      flags.maxKvTokens < 0)
    return makeError("--min-tokens, --max-tokens, --max-requests and "
                     "--max-kv-tokens cannot be negative");
  return llvm::Error::success();
}

/// The number of ranks, which a mesh knows too.
static llvm::Expected<int64_t> getNumRanks(const Signature &signature,
                                           const Flags &flags) {
  int64_t ranks = flags.ranks.getNumOccurrences() ? int64_t(flags.ranks)
                                                  : signature.getNumRanks();
  // A method of an op is not const.
  MeshOp mesh = signature.mesh;
  if (mesh && ranks != signature.getNumRanks())
    return makeError("--ranks=" + llvm::Twine(ranks) + ", but mesh @" +
                     mesh.getSymName() + " has " +
                     llvm::Twine(signature.getNumRanks()) + " ranks");
  if (ranks < 1 || ranks > MeshOp::kMaxRanks)
    return makeError("--ranks must be 1 to " +
                     llvm::Twine(int64_t(MeshOp::kMaxRanks)));
  return ranks;
}

/// The inputs of the step, and of those that runs take turns with.
static llvm::Expected<std::vector<Inputs>> makeTurns(const Signature &signature,
                                                     const Flags &flags) {
  InputOptions options;
  if (!flags.step.empty()) {
    auto step = readStep(flags.step);
    if (!step)
      return step.takeError();
    options.step = std::move(*step);
  }
  options.files.assign(flags.inputs.begin(), flags.inputs.end());
  options.seed = flags.seed;
  if (flags.nullBlock < -1 ||
      flags.nullBlock > std::numeric_limits<int32_t>::max())
    return makeError("--null-block=" + llvm::Twine(int64_t(flags.nullBlock)) +
                     ", expected -1 to 2147483647");
  options.nullBlock = flags.nullBlock;
  auto inputs = makeInputs(signature, options);
  if (!inputs)
    return inputs.takeError();
  std::vector<Inputs> turns{std::move(*inputs)};
  for (const std::string &path : flags.nextSteps) {
    ++options.seed;
    auto next = makeNextInputs(signature, turns.front(), options, path);
    if (!next)
      return next.takeError();
    turns.push_back(std::move(*next));
  }
  return turns;
}

/// What the program is compiled for, where a step says what flags do not.
static CompileOptions makeCompileOptions(const Step &step, const Flags &flags) {
  auto given = [](int64_t flag, int64_t ofStep) {
    return flag ? flag : std::max<int64_t>(ofStep, 1);
  };
  CompileOptions options;
  options.maxTokens = given(flags.maxTokens, step.getNumRows());
  options.maxRequests = given(flags.maxRequests, step.getNumRequests());
  // What is beyond the planner's limit cannot be gathered.
  options.maxKvTokens =
      flags.maxKvTokens
          ? int64_t(flags.maxKvTokens)
          : std::clamp<int64_t>(step.getNumKvTokens(), 1,
                                std::numeric_limits<int32_t>::max());
  options.slots = flags.slots;
  options.optimize = flags.optimize;
  options.target = flags.target;
  options.arch = flags.arch;
  options.overlap = flags.overlap;
  return options;
}

static RunOptions makeRunOptions(const Step &step, const Flags &flags) {
  RunOptions options;
  options.ranksPerGpu = flags.ranksPerGpu;
  options.transport = flags.transport;
  options.hosts.assign(flags.hosts.begin(), flags.hosts.end());
  options.graph = flags.graph;
  options.eagerEvery = flags.eagerEvery;
  options.benchReplays = flags.bench;
  options.numRows = step.getNumRows();
  options.timeoutSeconds = flags.timeout;
  options.repeat = flags.repeat;
  options.concurrent = flags.concurrent;
  return options;
}

/// `shards` are those of the turns, and have to outlive the options.
static VerifyOptions makeOptions(ModuleOp module, const Signature &signature,
                                 ArrayRef<Inputs> turns,
                                 ArrayRef<KvShards> shards,
                                 const Flags &flags) {
  const Step &step = turns.front().step;
  VerifyOptions options;
  options.seed = flags.seed;
  options.compile = makeCompileOptions(step, flags);
  options.run = makeRunOptions(step, flags);
  options.run.shards = shards;
  options.pipeline = flags.pipeline;
  if (flags.shardQTokens || (flags.verify && flags.pipeline.empty()))
    options.pipeline =
        getDefaultPipeline(module, flags.minTokens, flags.nullBlock);
  if (!flags.maxKvTokens)
    for (const auto &[turn, cut] : llvm::zip_equal(turns, shards))
      options.tableTokens =
          std::max(options.tableTokens, countTableTokens(signature, turn, cut));
  return options;
}

static int runModule(ModuleOp module, const AsmParserState &names,
                     const Flags &flags) {
  auto entry = findEntry(module, flags.entry);
  if (!entry)
    return reportBadInput(entry.takeError());
  auto signature = analyzeSignature(*entry, &names);
  if (!signature)
    return reportBadInput(signature.takeError());
  auto ranks = getNumRanks(*signature, flags);
  if (!ranks)
    return reportBadInput(ranks.takeError());
  auto turns = makeTurns(*signature, flags);
  if (!turns)
    return reportBadInput(turns.takeError());
  std::vector<KvShards> shards;
  for (const Inputs &turn : *turns) {
    auto cut = shardCaches(*signature, turn, flags.seed);
    if (!cut)
      return reportBadInput(cut.takeError());
    shards.push_back(std::move(*cut));
  }
  VerifyOptions options =
      makeOptions(module, *signature, *turns, shards, flags);
  options.numRanks = *ranks;
  Progress progress;
  if (flags.verify)
    return runVerify(module, *signature, turns->front(), options, flags,
                     progress);
  return runPlain(module, *signature, *turns, options, flags, progress);
}

static int runTool(const Flags &flags) {
  if (llvm::Error error = checkFlags(flags))
    return reportBadInput(std::move(error));
  DialectRegistry registry;
  registerAllPasses();
  registerAllToLLVMIRTranslations(registry);
  shardq::registerAll(registry);
  MLIRContext context(registry);
  std::string reason;
  std::unique_ptr<llvm::MemoryBuffer> buffer =
      openInputFile(flags.file, &reason);
  if (!buffer)
    return reportBadInput(reason);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(buffer), SMLoc());
  SourceMgrDiagnosticHandler handler(sources, &context);
  AsmParserState names;
  OwningOpRef<ModuleOp> module = parseModule(sources, context, names);
  if (!module)
    return kBadInput;
  return runModule(*module, names, flags);
}

int main(int argc, char **argv) {
  // A file that grows beyond a limit is an error of the write.
  std::signal(SIGXFSZ, SIG_IGN);
  llvm::InitLLVM init(argc, argv);
  Flags flags;
  cl::HideUnrelatedOptions(flags.category);
  // With a stream for errors the parser returns, and a bad option is bad input.
  if (!cl::ParseCommandLineOptions(argc, argv, kOverview, &llvm::errs()))
    return kBadInput;
  return runTool(flags);
}
