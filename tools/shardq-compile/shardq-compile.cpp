//===- shardq-compile.cpp - Programs to shared objects --------------------===//

#include "Header.h"
#include "Linker.h"
#include "MachineCode.h"
#include "Names.h"
#include "Program.h"
#include "Signature.h"
#include "Source.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "shardq/Pipelines/Register.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include <limits>
#include <set>

using namespace mlir;
using namespace mlir::shardq;
namespace cl = llvm::cl;

static constexpr const char *kOverview =
    R"(Compiles a ShardQ program ahead of time

FILE is a module of level 1 (sparse_mla, indexer, ...) or later. Each public
function becomes a C function that takes DLPack tensors:

  shardq-compile attention.mlir -o attention.so --header=attention.h

The shared object needs libshardq_runtime and nothing else of ShardQ;
docs/Integration.md says how to load and call it.

Attentions are rewritten by shardq-pcp, shardq-dcp and shard-q-tokens first.
--shard-q-tokens=false leaves the program as it is, --pipeline=... runs other
passes instead.

Exit status: 0 ok, 1 the program could not be compiled or written, 2 bad options
or input.
)";

/// Exit statuses.
enum { kOk = 0, kFailed = 1, kBadInput = 2 };

namespace {

enum class Target { CPU, CUDA };
enum class Emit { MLIR, LLVM, PTX, Object, SharedObject };

struct Flags {
  cl::OptionCategory category{"shardq-compile options"};
  cl::opt<std::string> file{cl::Positional, cl::desc("FILE.mlir"), cl::Required,
                            cl::cat(category)};
  cl::opt<Target> target{
      "target", cl::desc("What the program runs on (default cpu)"),
      cl::values(clEnumValN(Target::CPU, "cpu", "Processes of this host"),
                 clEnumValN(Target::CUDA, "cuda", "NVIDIA GPUs")),
      cl::init(Target::CPU), cl::cat(category)};
  cl::opt<std::string> arch{"arch", cl::value_desc("sm_NN"), cl::init("sm_90a"),
                            cl::cat(category),
                            cl::desc("GPU to compile for (default sm_90a)")};
  cl::opt<std::string> cpu{
      "cpu", cl::value_desc("NAME"), cl::cat(category),
      cl::desc("CPU to compile for, or native (default: x86-64-v3, generic "
               "elsewhere)")};
  cl::opt<Emit> emit{
      "emit", cl::desc("What to write (default so)"),
      cl::values(
          clEnumValN(Emit::MLIR, "mlir", "The lowered module"),
          clEnumValN(Emit::LLVM, "llvm", "Host code as LLVM IR, optimized"),
          clEnumValN(Emit::PTX, "ptx", "Kernels as PTX"),
          clEnumValN(Emit::Object, "obj", "Host code as an object file"),
          clEnumValN(Emit::SharedObject, "so", "A shared object")),
      cl::init(Emit::SharedObject), cl::cat(category)};
  cl::opt<std::string> output{"o", cl::value_desc("FILE"), cl::cat(category),
                              cl::desc("Output (default: stdout for text)")};
  cl::opt<std::string> header{"header", cl::value_desc("FILE.h"),
                              cl::cat(category), cl::desc("Write a C header")};
  cl::opt<std::string> pipeline{
      "pipeline", cl::value_desc("TEXT"), cl::cat(category),
      cl::desc("Passes to run first, as in --pass-pipeline of shardq-opt")};
  cl::opt<bool> shardQTokens{"shard-q-tokens", cl::cat(category),
                             cl::init(true),
                             cl::desc("Run the passes shardq-pcp, shardq-dcp "
                                      "and shard-q-tokens first")};
  cl::opt<int64_t> minTokens{
      "min-tokens", cl::value_desc("N"), cl::init(1024), cl::cat(category),
      cl::desc("min-tokens of shard-q-tokens (default 1024)")};
  cl::opt<int64_t> maxTokens{
      "max-tokens", cl::value_desc("N"), cl::init(8192), cl::cat(category),
      cl::desc("Rows that exchange buffers hold (default 8192)")};
  cl::opt<int64_t> maxRequests{
      "max-requests", cl::value_desc("N"), cl::init(256), cl::cat(category),
      cl::desc("Requests that exchange buffers hold (default 256)")};
  cl::opt<int64_t> maxKvTokens{
      "max-kv-tokens", cl::value_desc("N"), cl::init(65536), cl::cat(category),
      cl::desc(
          "Context and new tokens that gathered KV holds (default 65536)")};
  cl::opt<int64_t> nullBlock{
      "null-block", cl::value_desc("N"), cl::init(0), cl::cat(category),
      cl::desc("Block that stands for none in block tables, -1: all may hold "
               "tokens (default 0)")};
  cl::opt<int64_t> slots{"slots", cl::value_desc("N"), cl::init(1),
                         cl::cat(category),
                         cl::desc("Micro-batch slots (default 1)")};
  cl::opt<std::string> transport{
      "transport", cl::value_desc("NAME"), cl::init("auto"), cl::cat(category),
      cl::desc("How collectives travel: auto (default), direct, nccl, ag_rs or "
               "ag_ar; see --shardq-select-transport of shardq-opt")};
  cl::opt<int64_t> hostRanks{
      "host-ranks", cl::value_desc("N"), cl::init(0), cl::cat(category),
      cl::desc("Consecutive ranks that share a host (default 0: all)")};
  cl::opt<std::string> ptxas{
      "ptxas", cl::value_desc("PATH"), cl::cat(category),
      cl::desc("NVIDIA's assembler (default: of CUDA_HOME, /usr/local/cuda or "
               "PATH); none: embed PTX")};
  cl::opt<std::string> linker{
      "linker", cl::value_desc("PATH"), cl::cat(category),
      cl::desc("Linker, or compiler that links (default: lld, clang or cc)")};
  cl::opt<std::string> runtime{
      "runtime", cl::value_desc("PATH"), cl::cat(category),
      cl::desc("libshardq_runtime.so to link (default: beside this tool)")};
};

} // namespace

static int report(int status, const Twine &message) {
  llvm::errs() << "shardq-compile: error: " << message << '\n';
  return status;
}
static int report(int status, llvm::Error error) {
  return report(status, llvm::toString(std::move(error)));
}

//===----------------------------------------------------------------------===//
// Input
//===----------------------------------------------------------------------===//

/// Keeps the names of arguments where passes keep them: in locations.
static void nameArguments(ModuleOp module, const AsmParserState &names) {
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    const auto *block = names.getBlockDef(&function.getBody().front());
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      if (!block || i >= block->arguments.size() ||
          argument.getLoc()->findInstanceOf<NameLoc>())
        continue;
      SMRange range = block->arguments[i].loc;
      StringRef name(range.Start.getPointer(),
                     range.End.getPointer() - range.Start.getPointer());
      argument.setLoc(
          NameLoc::get(StringAttr::get(module.getContext(), name.ltrim('%')),
                       argument.getLoc()));
    }
  }
}

/// Whether the functions are such that C can call them; says why not.
static bool checkFunctions(ModuleOp module) {
  bool isGood = true, hasEntry = false;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    hasEntry |= function.isPublic();
    // Private ones too: lowered code that calls malloc would find them.
    if (StringRef owner = compile::findOwner(function.getName());
        !owner.empty()) {
      function.emitError() << "@" << function.getName() << " is a name of "
                           << owner << ", expected one that is free";
      isGood = false;
    }
  }
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    hasEntry |= function->hasAttr(kEntryPointAttrName);
  if (!hasEntry)
    module.emitError("nothing to call: found no public function with a body, "
                     "expected at least one");
  return isGood && hasEntry;
}

/// What a header can say only of the program as it was written.
static void describeProgram(ModuleOp module, const AsmParserState &names,
                            compile::HeaderOptions &header) {
  for (auto mesh : module.getOps<MeshOp>())
    header.facts.push_back("Ranks: " + std::to_string(mesh.getNumRanks()) +
                           ", of mesh @" + mesh.getSymName().str() + ".");
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic() || function.isExternal())
      continue;
    auto signature = run::analyzeSignature(function, &names);
    if (!signature) {
      llvm::consumeError(signature.takeError());
      continue;
    }
    std::vector<std::string> &uses = header.uses[function.getName()];
    for (const run::Argument &argument : signature->arguments)
      uses.push_back(argument.role == run::Role::Unknown
                         ? std::string()
                         : run::getRoleName(argument.role).str());
  }
}

/// Which entries of block tables mean nothing to a program whose passes have
/// run: whoever fills them has to know.
static void describeTables(ModuleOp module, compile::HeaderOptions &header) {
  std::set<int32_t> blocks;
  module.walk([&](GatherBlocksOp op) {
    if (!op.getFull())
      blocks.insert(static_cast<int32_t>(op.getNullBlock()));
  });
  for (int32_t block : blocks)
    header.facts.push_back(
        block < 0 ? std::string("Block tables: every block may hold tokens.")
                  : "Block tables: block " + std::to_string(block) +
                        " stands for none, keep it free.");
}

/// The passes before lowering.
static std::string getFirstPipeline(ModuleOp module, const Flags &flags) {
  if (!flags.pipeline.empty() || !flags.shardQTokens)
    return flags.pipeline;
  return run::getDefaultPipeline(module, flags.minTokens, flags.nullBlock);
}

/// The passes that lower.
static std::string getTargetPipeline(const Flags &flags) {
  std::string plan =
      ("max-tokens=" + Twine(flags.maxTokens) + " max-requests=" +
       Twine(flags.maxRequests) + " max-kv-tokens=" + Twine(flags.maxKvTokens) +
       " slots=" + Twine(flags.slots) + " transport=" + flags.transport +
       " host-ranks=" + Twine(flags.hostRanks) + " entry-points=true")
          .str();
  if (flags.target == Target::CPU)
    return "shardq-to-cpu{" + plan + "}";
  // PTX is what --emit=ptx wants to see.
  std::string ptxas = flags.emit == Emit::PTX ? "none" : flags.ptxas.getValue();
  return "shardq-to-nvvm{arch=" + flags.arch + " " + plan +
         (ptxas.empty() ? "" : " ptxas=" + ptxas) + "}";
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

/// Writes all of it or nothing.
static llvm::Error writeFile(StringRef path, StringRef bytes) {
  llvm::Error error = llvm::writeToOutput(path, [&](llvm::raw_ostream &os) {
    os << bytes;
    return llvm::Error::success();
  });
  if (!error)
    return llvm::Error::success();
  return llvm::createStringError("cannot write '" + path +
                                 "': " + llvm::toString(std::move(error)));
}

/// What the module shows to the outside.
static std::vector<std::string> getExported(ModuleOp module) {
  std::vector<std::string> names;
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    if (!function.isExternal() && (function->hasAttr(kEntryPointAttrName) ||
                                   function.getName() == "shardq_module_plan" ||
                                   function.getName() == "shardq_module_image"))
      names.push_back(function.getName().str());
  return names;
}

/// The PTX that shardq-assemble-kernels has embedded.
static llvm::Expected<std::string> getPtx(ModuleOp module) {
  auto code = module.lookupSymbol<LLVM::GlobalOp>("shardq_image_code");
  auto text =
      code ? dyn_cast_or_null<StringAttr>(code.getValueOrNull()) : StringAttr();
  if (!text)
    return llvm::createStringError("the program has no kernels");
  return text.getValue().rtrim('\0').str();
}

static llvm::Expected<std::string>
makeOutput(ModuleOp module, const Flags &flags, StringRef program) {
  std::string text;
  if (flags.emit == Emit::MLIR) {
    llvm::raw_string_ostream(text) << module << '\n';
    return text;
  }
  if (flags.emit == Emit::PTX)
    return getPtx(module);

  auto machine = compile::createMachine(
      flags.cpu.empty() ? compile::getDefaultCPU() : StringRef(flags.cpu));
  if (!machine)
    return machine.takeError();
  std::vector<std::string> exported = getExported(module);
  llvm::LLVMContext context;
  auto translated = compile::translate(module, exported, **machine, context);
  if (!translated)
    return translated.takeError();
  if (flags.emit == Emit::LLVM) {
    llvm::raw_string_ostream(text) << **translated;
    return text;
  }
  auto object = compile::emitObject(**translated, **machine);
  if (!object || flags.emit == Emit::Object)
    return object;

  compile::LinkOptions link;
  link.linker = flags.linker;
  link.name = llvm::sys::path::filename(flags.output).str();
  link.exported = exported;
  auto runtime = compile::findRuntime(flags.runtime, program);
  if (!runtime)
    return runtime.takeError();
  link.runtime = std::move(*runtime);
  return compile::linkShared(*object, link);
}

/// Files appear when everything is made, the header first.
static llvm::Error writeOutputs(const Flags &flags, StringRef output,
                                StringRef header) {
  if (!flags.header.empty())
    if (llvm::Error error = writeFile(flags.header, header))
      return error;
  StringRef path = flags.output.empty() ? StringRef("-") : flags.output;
  if (llvm::Error error = writeFile(path, output)) {
    if (!flags.header.empty() && flags.header != "-")
      (void)llvm::sys::fs::remove(flags.header);
    return error;
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Tool
//===----------------------------------------------------------------------===//

/// Why options cannot be; empty if they can.
static std::string checkFlags(const Flags &flags) {
  if (flags.shardQTokens.getNumOccurrences() && flags.shardQTokens &&
      !flags.pipeline.empty())
    return "give --pipeline or --shard-q-tokens, not both";
  if (flags.minTokens < 0)
    return "--min-tokens cannot be negative";
  for (auto [name, value] :
       {std::pair<const char *, int64_t>{"max-tokens", flags.maxTokens},
        {"max-requests", flags.maxRequests},
        {"max-kv-tokens", flags.maxKvTokens},
        {"slots", flags.slots}})
    if (value < 1)
      return "--" + std::string(name) + " must be positive";
  if (flags.nullBlock < -1 ||
      flags.nullBlock > std::numeric_limits<int32_t>::max())
    return "--null-block is " + std::to_string(int64_t(flags.nullBlock)) +
           ", expected -1 to 2147483647";
  if (flags.nullBlock.getNumOccurrences() &&
      (!flags.pipeline.empty() || !flags.shardQTokens))
    return "--null-block is for the passes that run by default; in --pipeline "
           "give null-block to shardq-dcp";
  if (flags.slots > 64)
    return "--slots must be at most 64";
  if (!llvm::is_contained({"auto", "direct", "nccl", "ag_rs", "ag_ar"},
                          StringRef(flags.transport)))
    return "--transport is '" + flags.transport +
           "', expected auto, direct, nccl, ag_rs or ag_ar";
  if (flags.hostRanks < 0)
    return "--host-ranks cannot be negative";
  if (flags.target == Target::CPU) {
    if (flags.emit == Emit::PTX)
      return "--emit=ptx needs --target=cuda";
    if (flags.arch.getNumOccurrences() || flags.ptxas.getNumOccurrences())
      return "--arch and --ptxas need --target=cuda";
  }
  StringRef arch = flags.arch;
  if (!arch.consume_front("sm_") || arch.empty() ||
      !llvm::isDigit(arch.front()))
    return "--arch is '" + flags.arch + "', expected sm_90a or the like";
  bool isText = flags.emit == Emit::MLIR || flags.emit == Emit::LLVM ||
                flags.emit == Emit::PTX;
  if (flags.output.empty() && !isText)
    return flags.emit == Emit::Object ? "-o is needed for --emit=obj"
                                      : "-o is needed for --emit=so";
  if (!flags.header.empty() && flags.header == flags.output)
    return "-o and --header name one file";
  return {};
}

static int runTool(const Flags &flags, StringRef program) {
  if (std::string reason = checkFlags(flags); !reason.empty())
    return report(kBadInput, reason);

  DialectRegistry registry;
  registerAllPasses();
  registerAllToLLVMIRTranslations(registry);
  shardq::registerAll(registry);
  if (flags.target == Target::CUDA &&
      !PassPipelineInfo::lookup("shardq-to-nvvm"))
    return report(kBadInput, "--target=cuda: this build has no GPU target");

  MLIRContext context(registry);
  std::string reason;
  std::unique_ptr<llvm::MemoryBuffer> buffer =
      openInputFile(flags.file, &reason);
  if (!buffer)
    return report(kBadInput, reason);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(buffer), SMLoc());
  SourceMgrDiagnosticHandler handler(sources, &context);
  AsmParserState names;
  OwningOpRef<ModuleOp> module = run::parseModule(sources, context, names);
  if (!module)
    return kBadInput;

  compile::HeaderOptions header;
  header.file = llvm::sys::path::filename(flags.header).str();
  header.source = llvm::sys::path::filename(flags.file).str();
  if (flags.emit == Emit::SharedObject)
    header.library = llvm::sys::path::filename(flags.output).str();
  if (!checkFunctions(*module))
    return kBadInput;
  nameArguments(*module, names);
  describeProgram(*module, names, header);
  header.facts.push_back(("Steps: up to " + Twine(flags.maxTokens) +
                          " rows of " + Twine(flags.maxRequests) +
                          " requests, " + Twine(flags.slots) +
                          (flags.slots == 1 ? " slot." : " slots."))
                             .str());

  std::string first = getFirstPipeline(*module, flags);
  if (!first.empty())
    if (llvm::Error error = run::runPipeline(*module, first))
      return report(kFailed, std::move(error));
  describeTables(*module, header);
  if (llvm::Error error = run::runPipeline(*module, getTargetPipeline(flags)))
    return report(kFailed, std::move(error));

  std::string headerText;
  if (!flags.header.empty()) {
    header.hasImage = module->lookupSymbol<LLVM::LLVMFuncOp>(
                          "shardq_module_image") != nullptr;
    auto text = compile::writeHeader(*module, header);
    if (!text)
      return report(kFailed, text.takeError());
    headerText = std::move(*text);
  }
  auto output = makeOutput(*module, flags, program);
  if (!output)
    return report(kFailed, output.takeError());
  if (llvm::Error error = writeOutputs(flags, *output, headerText))
    return report(kFailed, std::move(error));
  return kOk;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  Flags flags;
  cl::HideUnrelatedOptions(flags.category);
  // With a stream for errors the parser returns, and a bad option is bad input.
  if (!cl::ParseCommandLineOptions(argc, argv, kOverview, &llvm::errs()))
    return kBadInput;
  // Any function of this program will do.
  return runTool(flags, llvm::sys::fs::getMainExecutable(
                            argv[0], reinterpret_cast<void *>(&main)));
}
