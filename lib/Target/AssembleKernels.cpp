//===- AssembleKernels.cpp - PTX to what the runtime loads ----------------===//

#include "../Conversion/Utils/ConstantWriter.h"
#include "Ptxas.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "shardq/IR/ShardQ.h"
#include "shardq/Target/Passes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQASSEMBLEKERNELS
#include "shardq/Target/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

static constexpr StringLiteral kImageFunction = "shardq_module_image";

namespace {

struct Kernel {
  StringRef name;
  int32_t threads;
  int32_t dynamicShared; // bytes
  bool startsEarly;      // it waits for the kernel in front of it itself
};

/// The machine code of a module, or its PTX.
struct Code {
  std::string bytes;
  PtxasReport report; // empty for PTX
};

struct ShardQAssembleKernelsPass
    : public shardq::impl::ShardQAssembleKernelsBase<
          ShardQAssembleKernelsPass> {
  using ShardQAssembleKernelsBase::ShardQAssembleKernelsBase;

  void runOnOperation() override;

private:
  FailureOr<gpu::BinaryOp> findBinary();
  FailureOr<SmallVector<Kernel>> getKernels(gpu::BinaryOp binary,
                                            StringRef ptx);
  FailureOr<Code> assemble(gpu::BinaryOp binary, StringRef ptx, StringRef chip);
  LogicalResult report(gpu::BinaryOp binary, const PtxasReport &report,
                       StringRef ptx);
};

} // namespace

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

/// `const shardq_gpu_image *shardq_module_image(void)`; null without an image.
static void writeFunction(ModuleOp module, LLVM::GlobalOp image) {
  ConstantWriter constants(module);
  ImplicitLocOpBuilder &b = constants.b;
  // Launches that call it have declared it.
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(kImageFunction);
  if (!function)
    function = LLVM::LLVMFuncOp::create(
        b, kImageFunction, LLVM::LLVMFunctionType::get(constants.pointer, {}));
  b.setInsertionPointToStart(function.addEntryBlock(b));
  LLVM::ReturnOp::create(b, constants.address(image));
}

/// What each kernel takes, as an attribute.
static DictionaryAttr getResources(Builder &b, const PtxasReport &report,
                                   ArrayRef<Kernel> kernels) {
  SmallVector<NamedAttribute> resources;
  for (const Kernel &kernel : kernels) {
    auto found = report.functions.find(kernel.name);
    if (found == report.functions.end())
      continue;
    SmallVector<NamedAttribute> figures;
    for (auto [name, figure] :
         {std::pair<StringRef, int32_t>{"registers", found->second.registers},
          {"shared", found->second.shared},
          {"stack", found->second.stack},
          {"spills", found->second.spills}})
      figures.push_back(b.getNamedAttr(name, b.getI32IntegerAttr(figure)));
    resources.push_back(
        b.getNamedAttr(kernel.name, b.getDictionaryAttr(figures)));
  }
  return b.getDictionaryAttr(resources);
}

/// `shardq_gpu_image` of runtime.h.
static LLVM::GlobalOp writeImage(ModuleOp module, const Code &code,
                                 int32_t arch, ArrayRef<Kernel> kernels) {
  ConstantWriter constants(module);
  // The driver reads an ELF file's words in place.
  LLVM::GlobalOp bytes =
      constants.writeBytes("shardq_image_code", code.bytes, 64);
  DictionaryAttr resources = getResources(constants.b, code.report, kernels);
  if (!resources.empty())
    bytes->setAttr(kResourcesAttrName, resources);
  SmallVector<LLVM::GlobalOp> names;
  for (const Kernel &kernel : kernels)
    names.push_back(constants.writeText("shardq_kernel_name", kernel.name));

  MLIRContext *context = module.getContext();
  Type pointer = constants.pointer, i32 = constants.i32, i64 = constants.i64;
  auto kernelType =
      LLVM::LLVMStructType::getLiteral(context, {pointer, i32, i32});
  auto tableType = LLVM::LLVMArrayType::get(kernelType, kernels.size());
  LLVM::GlobalOp table =
      constants.writeValue("shardq_image_kernels", tableType, [&](Value value) {
        for (auto [i, kernel] : llvm::enumerate(kernels))
          value = constants.setFields(
              value, {int64_t(i)},
              {constants.address(names[i]),
               constants.constant(i32, kernel.threads),
               constants.constant(i32, kernel.dynamicShared)});
        return value;
      });
  std::string early;
  for (const Kernel &kernel : kernels)
    early.push_back(kernel.startsEarly);
  LLVM::GlobalOp earlyBytes =
      constants.writeBytes("shardq_image_early", early, 1);
  auto imageType = LLVM::LLVMStructType::getLiteral(
      context, {i64, pointer, i64, i32, i32, pointer, pointer});
  return constants.writeValue("shardq_image", imageType, [&](Value value) {
    // sizeof(shardq_gpu_image) on every 64-bit host.
    return constants.setFields(
        value, {},
        {constants.constant(i64, 48), constants.address(bytes),
         constants.constant(i64, code.bytes.size()),
         constants.constant(i32, arch), constants.constant(i32, kernels.size()),
         constants.address(table), constants.address(earlyBytes)});
  });
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// Not op.emitOpError, which prints the op and all of its PTX.
static InFlightDiagnostic fail(gpu::BinaryOp binary, const Twine &message) {
  return emitError(binary.getLoc(), "binary @")
         << binary.getSymName() << " " << message.str();
}

/// The one gpu.binary, or null.
FailureOr<gpu::BinaryOp> ShardQAssembleKernelsPass::findBinary() {
  ModuleOp module = getOperation();
  gpu::BinaryOp binary;
  for (auto op : module.getOps<gpu::BinaryOp>()) {
    if (binary) {
      InFlightDiagnostic error =
          fail(op, "is the module's second binary, expected one");
      error.attachNote(binary.getLoc()) << "the first is here";
      return error;
    }
    binary = op;
  }
  for (auto op : module.getOps<gpu::GPUModuleOp>())
    return op.emitOpError("is not compiled: run gpu-module-to-binary before "
                          "shardq-assemble-kernels");
  for (Operation &op : *module.getBody()) {
    auto name = op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
    auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
    bool declares = function && function.isExternal() &&
                    function.getName() == kImageFunction;
    if (name && !declares &&
        (name.getValue() == kImageFunction ||
         name.getValue().starts_with("shardq_image")))
      return op.emitOpError("is named ")
             << name << ", which is a name of the embedded kernels";
  }
  if (!binary)
    return binary;
  if (auto uses = SymbolTable::getSymbolUses(binary, &module.getBodyRegion());
      uses && !uses->empty())
    return uses->begin()->getUser()->emitOpError("refers to ")
           << binary.getSymNameAttr()
           << ": lower launches to the runtime before "
              "shardq-assemble-kernels";
  return binary;
}

/// The text of an entry of that name; empty if PTX has none.
static StringRef findEntry(StringRef ptx, StringRef name) {
  auto isNameChar = [](char c) {
    return llvm::isAlnum(c) || c == '_' || c == '$' || c == '%';
  };
  std::string text = (".entry " + name).str();
  for (size_t at = ptx.find(text); at != StringRef::npos;
       at = ptx.find(text, at + 1)) {
    size_t end = at + text.size();
    if (end == ptx.size() || !isNameChar(ptx[end]))
      return ptx.slice(at, ptx.find(".entry ", end));
  }
  return "";
}

FailureOr<SmallVector<Kernel>>
ShardQAssembleKernelsPass::getKernels(gpu::BinaryOp binary, StringRef ptx) {
  Attribute attr = binary->getAttr(kKernelsAttrName);
  if (!attr)
    attr = getOperation()->getAttr(kKernelsAttrName);
  auto list = dyn_cast_if_present<ArrayAttr>(attr);
  if (!list)
    return fail(binary, "needs '")
           << kKernelsAttrName
           << "', a list of {name, threads, dynamic_shared}, on it or on its "
              "module";
  SmallVector<Kernel> kernels;
  llvm::StringSet<> names;
  for (Attribute entry : list) {
    auto dictionary = dyn_cast<DictionaryAttr>(entry);
    auto name = dictionary ? dictionary.getAs<StringAttr>("name") : nullptr;
    auto threads =
        dictionary ? dictionary.getAs<IntegerAttr>("threads") : nullptr;
    auto shared =
        dictionary ? dictionary.getAs<IntegerAttr>("dynamic_shared") : nullptr;
    if (!name || !threads || !shared || dictionary.size() != 3)
      return fail(binary, "has kernel ")
             << entry << ", expected {name = \"...\", threads = N : i32, "
             << "dynamic_shared = N : i32}";
    int64_t numThreads = threads.getInt(), bytes = shared.getInt();
    if (numThreads < 1 || numThreads > 1024)
      return fail(binary, "has kernel ")
             << name << " of " << numThreads << " threads, expected 1 to 1024";
    // The largest block of any architecture has less than a megabyte.
    if (bytes < 0 || bytes >= (1 << 20))
      return fail(binary, "has kernel ")
             << name << " with " << bytes << " bytes of dynamic shared memory";
    if (!names.insert(name.getValue()).second)
      return fail(binary, "has kernel ") << name << " twice";
    StringRef text = findEntry(ptx, name.getValue());
    if (text.empty())
      return fail(binary, "has no kernel ") << name << " in its PTX";
    kernels.push_back({name.getValue(), int32_t(numThreads), int32_t(bytes),
                       text.contains("griddepcontrol.wait")});
  }
  return kernels;
}

/// Repeats what ptxas said, and refuses what makes a kernel slow in silence.
LogicalResult ShardQAssembleKernelsPass::report(gpu::BinaryOp binary,
                                                const PtxasReport &report,
                                                StringRef ptx) {
  bool failed = false;
  auto slow = [&]() {
    failed |= !allowSpills;
    return allowSpills ? emitWarning(binary.getLoc())
                       : emitError(binary.getLoc());
  };
  SmallVector<StringRef> lines;
  ptx.split(lines, '\n');
  for (const PtxasMessage &message : report.messages) {
    bool loss = message.isPerformanceLoss();
    if (message.severity == PtxasMessage::Info && !loss)
      continue;
    InFlightDiagnostic diagnostic = message.severity == PtxasMessage::Error
                                        ? emitError(binary.getLoc())
                                    : loss ? slow()
                                           : emitWarning(binary.getLoc());
    failed |= message.severity == PtxasMessage::Error;
    diagnostic << "ptxas: " << message.text;
    if (message.line > 0 && size_t(message.line) <= lines.size())
      diagnostic.attachNote() << "PTX line " << message.line << ": "
                              << lines[message.line - 1].trim();
  }
  for (const auto &[name, figures] : report.functions) {
    if (figures.spills)
      slow() << "kernel '" << name << "' spills registers: " << figures.spills
             << " bytes of stores and loads";
    if (figures.stack)
      slow() << "kernel '" << name << "' has a stack frame of " << figures.stack
             << " bytes";
  }
  return failure(failed);
}

FailureOr<Code> ShardQAssembleKernelsPass::assemble(gpu::BinaryOp binary,
                                                    StringRef ptx,
                                                    StringRef chip) {
  std::string path;
  if (ptxas != "none") {
    llvm::Expected<std::string> found = findPtxas(ptxas);
    if (!found)
      return emitError(binary.getLoc(), llvm::toString(found.takeError()));
    path = std::move(*found);
  }
  Code code;
  if (path.empty()) {
    if (ptxas != "none")
      emitRemark(binary.getLoc(),
                 "embeds PTX, since no ptxas was found: the driver assembles "
                 "it when it is loaded");
    code.bytes = ptx.str() + '\0';
    return code;
  }
  llvm::Expected<PtxasResult> result = runPtxas(path, ptx, chip, optLevel);
  if (!result)
    return emitError(binary.getLoc(), llvm::toString(result.takeError()));
  code.report = parsePtxasOutput(result->output);
  if (failed(report(binary, code.report, ptx)))
    return failure();
  if (result->status != 0)
    return fail(binary, "ptxas failed with status ")
           << result->status << ": " << StringRef(result->output);
  if (result->cubin.empty())
    return fail(binary, "ptxas wrote nothing");
  code.bytes = std::move(result->cubin);
  return code;
}

void ShardQAssembleKernelsPass::runOnOperation() {
  ModuleOp module = getOperation();
  if (optLevel < 0 || optLevel > 3) {
    module.emitError("shardq-assemble-kernels: opt-level is ")
        << optLevel.getValue() << ", expected 0 to 3";
    return signalPassFailure();
  }
  FailureOr<gpu::BinaryOp> binary = findBinary();
  if (failed(binary))
    return signalPassFailure();
  if (!*binary)
    return writeFunction(module, {});

  auto object = dyn_cast<gpu::ObjectAttr>(
      binary->getObjects().size() == 1 ? binary->getObjects()[0] : Attribute());
  auto target = object ? dyn_cast<NVVM::NVVMTargetAttr>(object.getTarget())
                       : NVVM::NVVMTargetAttr();
  if (!target || object.getFormat() != gpu::CompilationTarget::Assembly) {
    fail(*binary, "holds no PTX: run gpu-module-to-binary{format=isa} "
                  "for one #nvvm.target");
    return signalPassFailure();
  }
  StringRef ptx = object.getObject().getValue().rtrim('\0');
  StringRef chip = target.getChip();
  StringRef digits = chip;
  digits.consume_front("sm_");
  int32_t arch = 0;
  if (digits.take_while(llvm::isDigit).getAsInteger(10, arch)) {
    fail(*binary, "is for ") << chip << ", expected sm_NN";
    return signalPassFailure();
  }
  FailureOr<SmallVector<Kernel>> kernels = getKernels(*binary, ptx);
  if (failed(kernels))
    return signalPassFailure();
  FailureOr<Code> code = assemble(*binary, ptx, chip);
  if (failed(code))
    return signalPassFailure();
  writeFunction(module, writeImage(module, *code, arch, *kernels));
  module->removeAttr(kKernelsAttrName);
  binary->erase();
}
