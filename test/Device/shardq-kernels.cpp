//===- shardq-kernels.cpp - PTX of single kernels -------------------------===//
//
// Reads functions of one op on buffers each, and writes the PTX of its kernels
// with a list of how they are launched. The tests on a device, which has no
// MLIR, and those of the PTX's meaning run what this makes.
//
//===----------------------------------------------------------------------===//

#include "../../lib/Conversion/GPU/ChunkKernels.h"
#include "../../lib/Conversion/GPU/ContextKernels.h"
#include "../../lib/Conversion/GPU/GatherKernels.h"
#include "../../lib/Conversion/GPU/ReductionKernels.h"
#include "../../lib/Conversion/GPU/ViewKernels.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Verifier.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Target/LLVM/NVVM/Target.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;
using namespace mlir::shardq;
namespace cl = llvm::cl;

static cl::opt<std::string> inputFile(cl::Positional, cl::Required,
                                      cl::desc("<input .mlir>"));
static cl::opt<std::string> outputFolder("o", cl::Required,
                                         cl::desc("Folder for the results"));
static cl::opt<std::string> chip("chip", cl::init("sm_90"),
                                 cl::desc("Target chip"));
static cl::opt<std::string> features("features", cl::init("+ptx83"),
                                     cl::desc("Target features"));
static cl::opt<int64_t> sharedBytes("shared-bytes", cl::init(227 * 1024),
                                    cl::desc("Shared memory of a block"));
static cl::opt<bool> dumpIR("dump-ir", cl::desc("Print modules as built"));

namespace {

/// Makes modules of one kernel and their PTX.
class KernelWriter {
public:
  explicit KernelWriter(ModuleOp input)
      : input(input), context(input.getContext()) {}

  LogicalResult run();

private:
  using Emit = llvm::function_ref<void(KernelBuilder &, ValueRange)>;
  LogicalResult writeFunction(func::FuncOp function);
  LogicalResult writeExchange(func::FuncOp function, PushOp push);
  LogicalResult writeChunks(StringRef name, Operation *op);
  LogicalResult writeKernel(StringRef name, ArrayRef<Type> arguments,
                            const KernelShape &shape, Emit emit);

  ModuleOp input;
  MLIRContext *context;
  std::string list; // of all kernels, a line each
};

} // namespace

/// How the command line of a kernel looks: a memref is its pointer, again its
/// pointer, its offset, sizes and strides.
static std::string describe(Type type) {
  if (auto memref = dyn_cast<MemRefType>(type))
    return "m" + std::to_string(memref.getRank());
  return "i";
}

/// What the kernels of an exchange call of the device library, for a device
/// context that is this rank and the bytes between two heaps.
static void defineLibrary(gpu::GPUModuleOp kernels) {
  MLIRContext *context = kernels.getContext();
  OpBuilder b = OpBuilder::atBlockBegin(kernels.getBody());
  Location loc = kernels.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(context);
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  auto define = [&](StringRef name, Type result, ArrayRef<Type> arguments,
                    llvm::function_ref<Value(ValueRange)> body) {
    OpBuilder::InsertionGuard guard(b);
    auto function = LLVM::LLVMFuncOp::create(
        b, loc, name, LLVM::LLVMFunctionType::get(result, arguments),
        LLVM::Linkage::Internal);
    function.setAlwaysInline(true);
    Block *block = function.addEntryBlock(b);
    b.setInsertionPointToStart(block);
    Value value = body(block->getArguments());
    LLVM::ReturnOp::create(b, loc, value ? ValueRange(value) : ValueRange());
  };
  auto yes = [&](ValueRange) -> Value {
    return LLVM::ConstantOp::create(b, loc, i32, b.getI32IntegerAttr(1));
  };
  define("shardq_device_ok", i32, {pointer}, yes);
  define("shardq_device_admit", i32, {pointer, i32, i32, i64, i64}, yes);
  // Those that record an error leave its numbers in the context's words.
  auto record = [&](StringRef name, int32_t first, int32_t count) {
    SmallVector<Type> types{pointer};
    types.append(count, i64);
    define(name, LLVM::LLVMVoidType::get(context), types,
           [&](ValueRange args) -> Value {
             for (int32_t i = 0; i < count; ++i) {
               Value at =
                   LLVM::GEPOp::create(b, loc, pointer, i64, args[0],
                                       ArrayRef<LLVM::GEPArg>{first + i});
               LLVM::StoreOp::create(b, loc, args[1 + i], at);
             }
             return {};
           });
  };
  record("shardq_device_beyond_table", 0, 4);
  record("shardq_device_no_place", 4, 3);
  record("shardq_device_beyond_cache", 0, 3);
  record("shardq_device_wrong_start", 0, 4);
  record("shardq_device_wrong_decodes", 4, 2);
  record("shardq_device_split_request", 6, 3);
  record("shardq_device_expect", 4, 2);
  define("shardq_device_peer", pointer, {pointer, pointer, i64},
         [&](ValueRange args) -> Value {
           auto word = [&](int32_t index) {
             Value at = LLVM::GEPOp::create(b, loc, pointer, i64, args[0],
                                            ArrayRef<LLVM::GEPArg>{index});
             return LLVM::LoadOp::create(b, loc, i64, at);
           };
           Value steps = LLVM::SubOp::create(b, loc, args[2], word(0));
           Value bytes = LLVM::MulOp::create(b, loc, steps, word(1));
           return LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), args[1],
                                      ArrayRef<LLVM::GEPArg>{bytes});
         });
}

LogicalResult KernelWriter::writeKernel(StringRef name,
                                        ArrayRef<Type> arguments,
                                        const KernelShape &shape, Emit emit) {
  Location loc = input.getLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  OpBuilder top = OpBuilder::atBlockBegin(module->getBody());
  module.get()->setAttr(gpu::GPUDialect::getContainerModuleAttrName(),
                        top.getUnitAttr());
  auto kernels = gpu::GPUModuleOp::create(top, loc, "kernels");
  auto target = NVVM::NVVMTargetAttr::get(context, 3, "nvptx64-nvidia-cuda",
                                          chip, features);
  kernels.setTargetsAttr(top.getArrayAttr({target}));
  top.setInsertionPointToStart(&kernels.getBodyRegion().front());
  defineLibrary(kernels);
  auto function = gpu::GPUFuncOp::create(
      top, loc, name, FunctionType::get(context, arguments, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(),
                    top.getUnitAttr());
  function.setKnownBlockSize(ArrayRef<int32_t>{int32_t(shape.threads), 1, 1});
  function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                    top.getI32IntegerAttr(shape.residentBlocks));
  Block &body = function.getBody().front();
  KernelBuilder b(loc, nullptr, context, shape.threads);
  b.setInsertionPointToStart(&body);
  emit(b, body.getArguments());
  gpu::ReturnOp::create(b);
  if (dumpIR)
    module->print(llvm::outs());
  if (failed(verify(*module)))
    return failure();

  PassManager passes(context);
  OpPassManager &nested = passes.nest<gpu::GPUModuleOp>();
  nested.addPass(createCanonicalizerPass());
  nested.addPass(createCSEPass());
  nested.addPass(createSCFToControlFlowPass());
  nested.addPass(createConvertGpuOpsToNVVMOps());
  nested.addPass(createConvertNVVMToLLVMPass());
  nested.addPass(createReconcileUnrealizedCastsPass());
  GpuModuleToBinaryPassOptions binary;
  binary.compilationTarget = "isa";
  passes.addPass(createGpuModuleToBinaryPass(binary));
  if (failed(passes.run(*module)))
    return failure();

  gpu::BinaryOp found = *module->getOps<gpu::BinaryOp>().begin();
  auto object = cast<gpu::ObjectAttr>(found.getObjects()[0]);
  SmallString<128> path(outputFolder);
  llvm::sys::path::append(path, name + "." + chip + ".ptx");
  std::string error;
  auto file = openOutputFile(path, &error);
  if (!file)
    return emitError(loc) << error;
  file->os() << object.getObject().getValue();
  file->keep();

  list += name.str() + " " + std::to_string(shape.threads) + " " +
          std::to_string(shape.dynamicShared) + " " +
          std::to_string(shape.blocksPerRow) + " " +
          std::to_string(shape.maxBlocks) + " ";
  for (Type type : arguments)
    list += describe(type);
  list += "\n";
  return success();
}

/// Three kernels: the push, and what packs and unpacks the same rows.
LogicalResult KernelWriter::writeExchange(func::FuncOp function, PushOp push) {
  Type index = IndexType::get(context);
  SmallVector<Type> types;
  for (Type type : push->getOperandTypes()) {
    if (auto buffer = dyn_cast<MemRefType>(type))
      type = MemRefType::get(buffer.getShape(), buffer.getElementType(),
                             buffer.getLayout());
    types.push_back(type);
  }
  // This rank, its coordinate, the device context; the inbox's rows.
  bool ofRows = push.getDirection() == Direction::GatherRows;
  types.append(ofRows ? 4 : 3, index);
  KernelShape shape =
      function->hasAttr("aside") ? getAsideShape(push) : getExchangeShape(push);
  StringRef name = function.getName();
  if (failed(writeKernel((name + "_push").str(), types, shape,
                         [&](KernelBuilder &b, ValueRange args) {
                           emitExchangeKernel(b, push, args);
                         })))
    return failure();
  auto carried = function->getAttrOfType<IntegerAttr>("carried");
  if (!carried)
    return function.emitOpError("does not say how many rows are carried");
  auto inbox = cast<MemRefType>(push.getInbox().getType());
  SmallVector<int64_t> box(inbox.getShape());
  if (push.getDirection() == Direction::HeadsToTokens)
    box[1] /=
        lookupMeshAxis(push, push.getMeshAttr(), push.getAxis()).axis.getSize();
  else if (push.getDirection() == Direction::GatherHeads)
    box[1] = cast<MemRefType>(push.getSources()[0].getType()).getDimSize(1);
  types.push_back(MemRefType::get(box, inbox.getElementType()));
  for (bool isLanding : {false, true})
    if (failed(writeKernel(
            (name + (isLanding ? "_unpack" : "_pack")).str(), types, shape,
            [&](KernelBuilder &b, ValueRange args) {
              emitCarriedKernel(b, push, {carried.getInt(), isLanding}, args);
            })))
      return failure();
  return success();
}

/// Two kernels, with this rank and the table of requests behind the operands.
LogicalResult KernelWriter::writeChunks(StringRef name, Operation *op) {
  SmallVector<Type> types(op->getOperandTypes());
  if (isa<ChunkSplitOp, ChunkSlotsOp>(op))
    types.push_back(IndexType::get(context)); // the device context
  types.push_back(IndexType::get(context));
  types.push_back(MemRefType::get({ShapedType::kDynamic, 3},
                                  IntegerType::get(context, 32)));
  if (failed(writeKernel((name + "_table").str(), types, getChunkTableShape(),
                         [&](KernelBuilder &b, ValueRange args) {
                           emitChunkTableKernel(b, op, args);
                         })))
    return failure();
  return writeKernel((name + "_rows").str(), types, getChunkRowsShape(),
                     [&](KernelBuilder &b, ValueRange args) {
                       emitChunkRowsKernel(b, op, args);
                     });
}

LogicalResult KernelWriter::writeFunction(func::FuncOp function) {
  Operation *op = nullptr;
  for (Operation &each : function.getBody().front().without_terminator())
    op = &each;
  if (!op || isa<func::ReturnOp>(op))
    return function.emitOpError("has no op to make a kernel of");
  StringRef name = function.getName();
  SmallVector<Type> types(op->getOperandTypes());
  Type index = IndexType::get(context);
  if (auto attention = dyn_cast<SparseMlaOp>(op)) {
    if (failed(verifySparseMlaKernel(attention, sharedBytes)))
      return failure();
    return writeKernel(name, types, getSparseMlaShape(attention, sharedBytes),
                       [&](KernelBuilder &b, ValueRange args) {
                         emitSparseMlaKernel(b, attention, args, sharedBytes);
                       });
  }
  if (auto indexer = dyn_cast<IndexerOp>(op)) {
    if (failed(verifyIndexerKernel(indexer)))
      return failure();
    // The operands, the first row, and the scores.
    types.push_back(index);
    int64_t dynamic = ShapedType::kDynamic;
    auto layout = StridedLayoutAttr::get(context, dynamic, {dynamic, 1});
    types.push_back(
        MemRefType::get({dynamic, dynamic}, Float32Type::get(context), layout));
    return writeKernel(name, types, getIndexerScoresShape(indexer),
                       [&](KernelBuilder &b, ValueRange args) {
                         emitIndexerScoresKernel(b, indexer, args.drop_back(2),
                                                 args[args.size() - 2],
                                                 args.back());
                       });
  }
  if (auto topk = dyn_cast<TopKOp>(op)) {
    types.push_back(index);
    bool holes = function->hasAttr("holes");
    return writeKernel(name, types, getTopKShape(topk.getK()),
                       [&](KernelBuilder &b, ValueRange args) {
                         emitTopKKernel(b, topk.getK(), holes, args[0], args[1],
                                        args[3], args[2]);
                       });
  }
  if (auto push = dyn_cast<PushOp>(op))
    return writeExchange(function, push);
  if (isa<CountChunkRowsOp>(op))
    types.push_back(MemRefType::get({1}, IntegerType::get(context, 64)));
  if (isa<WriteRowsOp>(op))
    types.push_back(index); // the device context
  if (isa<ConvertIndicesOp, TakeRowsOp, WriteRowsOp, CountChunkRowsOp>(op))
    return writeKernel(
        name, types, getRowShape(op),
        [&](KernelBuilder &b, ValueRange args) { emitRowKernel(b, op, args); });
  if (isa<LocalLengthsOp, DraftLengthsOp, ShardLengthsOp, FilterIndicesOp,
          MergeLseOp>(op)) {
    if (!isa<MergeLseOp, DraftLengthsOp>(op))
      types.push_back(index);
    if (isa<ShardLengthsOp>(op))
      types.push_back(index); // the device context
    return writeKernel(name, types, getContextShape(op),
                       [&](KernelBuilder &b, ValueRange args) {
                         emitContextKernel(b, op, args);
                       });
  }
  if (isa<WeighPartialOp, SumPartialsOp>(op)) {
    if (isa<WeighPartialOp>(op))
      types.push_back(index);
    return writeKernel(name, types, getReductionShape(op),
                       [&](KernelBuilder &b, ValueRange args) {
                         emitReductionKernel(b, op, args);
                       });
  }
  if (isa<ChunkSplitOp, ChunkLengthsOp, ChunkSlotsOp>(op))
    return writeChunks(name, op);
  if (isViewOp(op)) {
    if (auto slots = dyn_cast<TokenSlotsOp>(op)) {
      if (slots.getMeshAttr())
        types.push_back(index);
      types.push_back(index); // the device context
    }
    return writeKernel(name, types, getViewShape(op),
                       [&](KernelBuilder &b, ValueRange args) {
                         emitViewKernel(b, op, args);
                       });
  }
  if (auto blocks = dyn_cast<GatherBlocksOp>(op)) {
    if (failed(writeKernel((name + "_list").str(), types, getBlockListShape(),
                           [&](KernelBuilder &b, ValueRange args) {
                             emitBlockListKernel(b, blocks, args);
                           })))
      return failure();
    return writeKernel((name + "_inverse").str(), types, getBlockInverseShape(),
                       [&](KernelBuilder &b, ValueRange args) {
                         emitBlockInverseKernel(b, blocks, args);
                       });
  }
  if (isa<GatheredSlotsOp, GatheredTableOp>(op))
    return writeKernel(name, types, getGatheredShape(op),
                       [&](KernelBuilder &b, ValueRange args) {
                         emitGatheredKernel(b, op, args);
                       });
  return op->emitOpError("has no kernel here");
}

LogicalResult KernelWriter::run() {
  for (auto function : input.getOps<func::FuncOp>())
    if (failed(writeFunction(function)))
      return failure();
  SmallString<128> path(outputFolder);
  llvm::sys::path::append(path, "kernels.txt");
  std::string error;
  auto file = openOutputFile(path, &error);
  if (!file)
    return emitError(input.getLoc()) << error;
  file->os() << list;
  file->keep();
  return success();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(argc, argv, "PTX of single ShardQ kernels\n");
  llvm::InitializeAllTargets();
  llvm::InitializeAllTargetMCs();
  llvm::InitializeAllAsmPrinters();
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  registerAllToLLVMIRTranslations(registry);
  NVVM::registerNVVMTargetInterfaceExternalModels(registry);
  registry.insert<ShardQDialect>();
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> input = parseSourceFile<ModuleOp>(inputFile, &context);
  if (!input)
    return 1;
  if (std::error_code error = llvm::sys::fs::create_directories(outputFolder)) {
    llvm::errs() << outputFolder << ": " << error.message() << "\n";
    return 1;
  }
  return failed(KernelWriter(*input).run());
}
