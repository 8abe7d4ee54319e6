//===- AssembleKernels.cpp - PTX to what the runtime loads ----------------===//

#include "Ptxas.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
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

/// Writes the constants of runtime.h.
class ImageWriter {
public:
  explicit ImageWriter(ModuleOp module)
      : module(module), b(module.getLoc(), module.getContext()),
        pointer(LLVM::LLVMPointerType::get(module.getContext())),
        i32(b.getI32Type()), i64(b.getI64Type()) {
    b.setInsertionPointToEnd(module.getBody());
  }

  void write(const Code &code, int32_t arch, ArrayRef<Kernel> kernels);
  void writeNull();

private:
  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(b, type, b.getIntegerAttr(type, value));
  }
  Value insert(Value aggregate, Value value, ArrayRef<int64_t> position) {
    return LLVM::InsertValueOp::create(b, aggregate, value, position);
  }
  LLVM::GlobalOp writeBytes(StringRef name, StringRef bytes, int64_t alignment);
  void writeGlobal(StringRef name, Type type,
                   llvm::function_ref<Value(Value)> fill);
  void writeFunction(llvm::function_ref<Value()> result);

  ModuleOp module;
  ImplicitLocOpBuilder b;
  Type pointer, i32, i64;
};

} // namespace

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

LLVM::GlobalOp ImageWriter::writeBytes(StringRef name, StringRef bytes,
                                       int64_t alignment) {
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size());
  return LLVM::GlobalOp::create(b, type, /*isConstant=*/true,
                                LLVM::Linkage::Internal, name,
                                b.getStringAttr(bytes), alignment);
}

void ImageWriter::writeGlobal(StringRef name, Type type,
                              llvm::function_ref<Value(Value)> fill) {
  OpBuilder::InsertionGuard guard(b);
  auto global = LLVM::GlobalOp::create(
      b, type, /*isConstant=*/true, LLVM::Linkage::Internal, name, Attribute());
  b.createBlock(&global.getInitializerRegion());
  LLVM::ReturnOp::create(b, fill(LLVM::UndefOp::create(b, type)));
}

void ImageWriter::writeFunction(llvm::function_ref<Value()> result) {
  OpBuilder::InsertionGuard guard(b);
  // Launches that call it have declared it.
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(kImageFunction);
  if (!function)
    function = LLVM::LLVMFuncOp::create(
        b, kImageFunction, LLVM::LLVMFunctionType::get(pointer, {}));
  b.setInsertionPointToStart(function.addEntryBlock(b));
  LLVM::ReturnOp::create(b, result());
}

void ImageWriter::writeNull() {
  writeFunction([&] { return LLVM::ZeroOp::create(b, pointer); });
}

void ImageWriter::write(const Code &code, int32_t arch,
                        ArrayRef<Kernel> kernels) {
  // The driver reads an ELF file's words in place.
  LLVM::GlobalOp bytes = writeBytes("shardq_image_code", code.bytes, 64);
  SmallVector<NamedAttribute> resources;
  for (const Kernel &kernel : kernels) {
    auto found = code.report.functions.find(kernel.name);
    if (found == code.report.functions.end())
      continue;
    const PtxasResources &figures = found->second;
    resources.push_back(b.getNamedAttr(
        kernel.name,
        b.getDictionaryAttr(
            {b.getNamedAttr("registers",
                            b.getI32IntegerAttr(figures.registers)),
             b.getNamedAttr("shared", b.getI32IntegerAttr(figures.shared)),
             b.getNamedAttr("stack", b.getI32IntegerAttr(figures.stack)),
             b.getNamedAttr("spills", b.getI32IntegerAttr(figures.spills))})));
  }
  if (!resources.empty())
    bytes->setAttr(kResourcesAttrName, b.getDictionaryAttr(resources));
  for (auto [i, kernel] : llvm::enumerate(kernels))
    writeBytes(("shardq_kernel_name_" + Twine(i)).str(),
               kernel.name.str() + '\0', 1);

  MLIRContext *context = module.getContext();
  auto kernelType =
      LLVM::LLVMStructType::getLiteral(context, {pointer, i32, i32});
  auto tableType = LLVM::LLVMArrayType::get(kernelType, kernels.size());
  auto imageType = LLVM::LLVMStructType::getLiteral(
      context, {i64, pointer, i64, i32, i32, pointer});
  auto address = [&](const Twine &name) {
    return LLVM::AddressOfOp::create(b, pointer, name.str());
  };
  writeGlobal("shardq_image_kernels", tableType, [&](Value table) {
    for (auto [i, kernel] : llvm::enumerate(kernels)) {
      int64_t at = i;
      table = insert(table, address("shardq_kernel_name_" + Twine(i)), {at, 0});
      table = insert(table, constant(i32, kernel.threads), {at, 1});
      table = insert(table, constant(i32, kernel.dynamicShared), {at, 2});
    }
    return table;
  });
  writeGlobal("shardq_image", imageType, [&](Value image) {
    // sizeof(shardq_gpu_image) on every 64-bit host.
    image = insert(image, constant(i64, 40), {0});
    image = insert(image, address("shardq_image_code"), {1});
    image = insert(image, constant(i64, code.bytes.size()), {2});
    image = insert(image, constant(i32, arch), {3});
    image = insert(image, constant(i32, kernels.size()), {4});
    return insert(image, address("shardq_image_kernels"), {5});
  });
  writeFunction([&] { return address("shardq_image"); });
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
         name.getValue().starts_with("shardq_image") ||
         name.getValue().starts_with("shardq_kernel_name_")))
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

/// Whether PTX has an entry of that name.
static bool hasEntry(StringRef ptx, StringRef name) {
  auto isNameChar = [](char c) {
    return llvm::isAlnum(c) || c == '_' || c == '$' || c == '%';
  };
  std::string text = (".entry " + name).str();
  for (size_t at = ptx.find(text); at != StringRef::npos;
       at = ptx.find(text, at + 1)) {
    size_t end = at + text.size();
    if (end == ptx.size() || !isNameChar(ptx[end]))
      return true;
  }
  return false;
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
    if (!hasEntry(ptx, name.getValue()))
      return fail(binary, "has no kernel ") << name << " in its PTX";
    kernels.push_back({name.getValue(), int32_t(numThreads), int32_t(bytes)});
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
  if (!result->succeeded)
    return fail(binary, "ptxas failed: ") << StringRef(result->output);
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
    return ImageWriter(module).writeNull();

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
  ImageWriter(module).write(*code, arch, *kernels);
  module->removeAttr(kKernelsAttrName);
  binary->erase();
}
