//===- Program.cpp - An entry function compiled for this CPU --------------===//

#include "Program.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "shardq/Pipelines/Pipelines.h"
#include "shardq/chunks.h"
#include "shardq/split.h"
#include "shardq/views.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include <cstdlib>
#include <cstring>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

llvm::Error run::runPipeline(ModuleOp module, StringRef text) {
  PassManager manager(module.getContext());
  std::string reason;
  llvm::raw_string_ostream stream(reason);
  // With an anchor as in mlir-opt, or passes alone.
  if (text.trim().starts_with("builtin.module(")) {
    FailureOr<OpPassManager> parsed = parsePassPipeline(text, stream);
    if (succeeded(parsed))
      static_cast<OpPassManager &>(manager) = std::move(*parsed);
  } else {
    (void)parsePassPipeline(text, manager, stream);
  }
  // Options that a pass does not have are reported without a failure.
  if (!StringRef(stream.str()).trim().empty())
    return makeError("pipeline '" + text +
                     "': " + StringRef(stream.str()).trim());
  if (failed(manager.run(module)))
    return makeError("pipeline '" + text + "' failed");
  return llvm::Error::success();
}

/// What generated code may call. Registered by address: the tool's own copy of
/// the runtime is the one to use, whatever else the process has loaded.
static llvm::orc::SymbolMap
getRuntimeSymbols(llvm::orc::MangleAndInterner interner) {
  llvm::orc::SymbolMap symbols;
  auto add = [&](StringRef name, auto *function) {
    symbols[interner(name)] = {llvm::orc::ExecutorAddr::fromPtr(function),
                               llvm::JITSymbolFlags::Exported |
                                   llvm::JITSymbolFlags::Callable};
  };
#define ADD(NAME) add(#NAME, &(NAME))
  ADD(shardq_rt_rank);
  ADD(shardq_rt_workspace);
  ADD(shardq_rt_peer);
  ADD(shardq_rt_signal);
  ADD(shardq_rt_wait);
  ADD(shardq_rt_tap);
  ADD(shardq_rt_tap_counted);
  ADD(shardq_rt_expect);
  ADD(shardq_rt_beyond_table);
  ADD(shardq_rt_no_place);
  ADD(shardq_rt_beyond_cache);
  ADD(shardq_rt_check_starts);
  ADD(shardq_rt_device);
  ADD(shardq_rt_alloc);
  ADD(shardq_rt_free);
  ADD(shardq_rt_launch);
  ADD(shardq_rt_begin_aside);
  ADD(shardq_rt_end_aside);
  ADD(shardq_rt_join_aside);
  ADD(shardq_count_decode_rows);
  ADD(shardq_zigzag_split);
  ADD(shardq_split_gate);
  ADD(shardq_gather_blocks);
  ADD(shardq_gathered_table);
  ADD(shardq_replicated_view);
  ADD(shardq_chunk_part_rows);
  ADD(shardq_chunk_split);
  ADD(shardq_chunk_lengths);
  ADD(shardq_shard_lengths);
  ADD(shardq_chunk_order);
  ADD(shardq_chunk_own_order);
#undef ADD
  return symbols;
}

/// Tensors and buffers are passed alike, so that a user's pipeline may have
/// bufferized; numbers by value.
static llvm::Expected<Type> getPassedType(Type type) {
  Type passed = type;
  if (auto buffer = dyn_cast<MemRefType>(type);
      buffer && buffer.getLayout().isIdentity() && !buffer.getMemorySpace())
    passed = RankedTensorType::get(buffer.getShape(), buffer.getElementType());
  auto tensor = dyn_cast<RankedTensorType>(passed);
  if (getElement(tensor ? tensor.getElementType() : passed))
    return passed;
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return makeError("the pipeline gave the entry a value of type " + text +
                   "; ranked tensors, buffers with the identity layout and "
                   "numbers can be passed");
}

llvm::Expected<std::unique_ptr<Program>>
Program::compile(ModuleOp module, StringRef entry,
                 const CompileOptions &options) {
  static bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialized;

  auto program = std::make_unique<Program>();
  auto original = module.lookupSymbol<func::FuncOp>(entry);
  if (!original && module.lookupSymbol<LLVM::LLVMFuncOp>(entry))
    return makeError("the pipeline lowered @" + entry +
                     " to LLVM: shardq-run does that itself, and takes a "
                     "func.func");
  if (!original)
    return makeError("the pipeline removed the entry @" + entry);
  for (auto [types, list] :
       {std::pair{original.getArgumentTypes(), &program->argumentTypes},
        {original.getResultTypes(), &program->resultTypes}})
    for (Type type : types) {
      llvm::Expected<Type> passed = getPassedType(type);
      if (!passed)
        return passed.takeError();
      list->push_back(*passed);
    }

  OwningOpRef<ModuleOp> lowered = module.clone();
  PassManager manager(module.getContext());
  bool forGpu = options.target == Target::CUDA;
  if (forGpu) {
    ShardQToNVVMOptions pipelineOptions;
    pipelineOptions.arch = options.arch;
    pipelineOptions.overlap = options.overlap;
    pipelineOptions.maxTokens = options.maxTokens;
    pipelineOptions.maxRequests = options.maxRequests;
    pipelineOptions.maxKvTokens = options.maxKvTokens;
    pipelineOptions.slots = options.slots;
    buildShardQToNVVMPipeline(manager, pipelineOptions);
  } else {
    ShardQToCPUOptions pipelineOptions;
    pipelineOptions.maxTokens = options.maxTokens;
    pipelineOptions.maxRequests = options.maxRequests;
    pipelineOptions.maxKvTokens = options.maxKvTokens;
    pipelineOptions.slots = options.slots;
    buildShardQToCPUPipeline(manager, pipelineOptions);
  }
  if (failed(manager.run(*lowered)))
    return makeError("the program could not be lowered to " +
                     llvm::Twine(forGpu ? options.arch : "this CPU"));

  std::string name = "_mlir_ciface_" + entry.str();
  auto function = lowered->lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!function)
    return makeError("the lowered program has no @" + llvm::Twine(name));
  // Leading context, then the arguments; anything more is the result pointer.
  unsigned extra = function.getNumArguments() - original.getNumArguments();
  // On a GPU results are arguments.
  if (forGpu)
    extra -= original.getNumResults();
  if (extra != 1 && (forGpu || extra != 2))
    return makeError("@" + llvm::Twine(name) + " has " +
                     llvm::Twine(function.getNumArguments()) + " arguments");
  program->hasResultPointer = extra == 2;

  auto builder = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!builder)
    return builder.takeError();
  auto level = static_cast<llvm::CodeGenOptLevel>(options.optimize);
  builder->setCodeGenOptLevel(level);
  auto machine = builder->createTargetMachine();
  if (!machine)
    return machine.takeError();
  auto optimize =
      makeOptimizingTransformer(options.optimize, 0, machine->get());
  ExecutionEngineOptions engineOptions;
  engineOptions.transformer = optimize;
  engineOptions.jitCodeGenOptLevel = level;
  engineOptions.enableGDBNotificationListener = false;
  engineOptions.enablePerfNotificationListener = false;
  auto engineMachine = builder->createTargetMachine();
  if (!engineMachine)
    return engineMachine.takeError();
  auto engine = ExecutionEngine::create(*lowered, engineOptions,
                                        std::move(*engineMachine));
  if (!engine)
    return engine.takeError();
  program->engine = std::move(*engine);
  program->engine->registerSymbols(getRuntimeSymbols);

  auto packed = program->engine->lookupPacked(name);
  if (!packed)
    return packed.takeError();
  program->function = *packed;

  // A module without exchanges may lack a plan; its ranks meet all the same.
  program->plan.struct_size = sizeof(shardq_plan);
  program->plan.slots = int32_t(options.slots);
  if (lowered->lookupSymbol<LLVM::LLVMFuncOp>("shardq_module_plan")) {
    auto getPlan = program->engine->lookup("shardq_module_plan");
    if (!getPlan)
      return getPlan.takeError();
    program->plan = *reinterpret_cast<const shardq_plan *(*)()>(*getPlan)();
  }
  if (forGpu) {
    auto getImage = program->engine->lookup("shardq_module_image");
    if (!getImage)
      return getImage.takeError();
    program->image =
        reinterpret_cast<const shardq_gpu_image *(*)()>(*getImage)();
    if (!program->image)
      return makeError("the program has no kernel");
  }
  return program;
}

//===----------------------------------------------------------------------===//
// Calling
//===----------------------------------------------------------------------===//

// A memref descriptor is pointer, aligned pointer, offset, sizes, strides: all
// words of eight bytes.
static constexpr int64_t kDescriptorHead = 3;

static std::vector<int64_t> makeDescriptor(const Array &array,
                                           uint64_t address) {
  size_t rank = array.shape.size();
  std::vector<int64_t> words(kDescriptorHead + 2 * rank);
  words[0] = words[1] = static_cast<int64_t>(address);
  llvm::copy(array.shape, words.begin() + kDescriptorHead);
  int64_t stride = 1;
  for (size_t d = rank; d-- > 0;) {
    words[kDescriptorHead + rank + d] = stride;
    stride *= array.shape[d];
  }
  return words;
}

/// Copies a strided buffer into a new array.
static llvm::Expected<Array> copyDescriptor(const int64_t *words, Type type,
                                            const llvm::Twine &what) {
  auto tensor = cast<RankedTensorType>(type);
  int64_t rank = tensor.getRank();
  ArrayRef<int64_t> sizes(words + kDescriptorHead, rank);
  ArrayRef<int64_t> strides(words + kDescriptorHead + rank, rank);
  llvm::Expected<Array> array = allocateArray(*getElement(type), sizes, what);
  if (!array)
    return array.takeError();
  int64_t bytes = getElementBytes(array->element);
  const char *source =
      reinterpret_cast<const char *>(words[1]) + words[2] * bytes;
  SmallVector<int64_t, 4> index(rank, 0);
  for (int64_t i = 0, e = array->getNumElements(); i < e; ++i) {
    int64_t offset = 0;
    for (int64_t d = 0; d < rank; ++d)
      offset += index[d] * strides[d];
    std::memcpy(array->data.get() + i * bytes, source + offset * bytes, bytes);
    for (int64_t d = rank; d-- > 0 && ++index[d] == sizes[d];)
      index[d] = 0;
  }
  return array;
}

llvm::Error Program::call(shardq_context *context, ArrayRef<Array> arguments,
                          std::vector<Array> &results) const {
  // The results' struct has C layout.
  SmallVector<int64_t> offsets;
  int64_t bytes = 0;
  for (Type type : resultTypes) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    int64_t size = tensor ? (kDescriptorHead + 2 * tensor.getRank()) * 8
                          : getElementBytes(*getElement(type));
    offsets.push_back(llvm::alignTo(bytes, std::min<int64_t>(size, 8)));
    bytes = offsets.back() + size;
  }
  std::vector<int64_t> storage(bytes / 8 + 1);
  char *base = reinterpret_cast<char *>(storage.data());

  std::vector<std::vector<int64_t>> descriptors;
  std::vector<void *> pointers(arguments.size()), values;
  void *resultPointer = base;
  if (hasResultPointer)
    values.push_back(&resultPointer);
  values.push_back(&context);
  for (auto [i, array] : llvm::enumerate(arguments)) {
    if (!isa<RankedTensorType>(argumentTypes[i])) {
      values.push_back(array.data.get());
      continue;
    }
    descriptors.push_back(
        makeDescriptor(array, reinterpret_cast<uintptr_t>(array.data.get())));
    pointers[i] = descriptors.back().data();
    values.push_back(&pointers[i]);
  }
  if (!hasResultPointer)
    values.push_back(base);
  function(values.data());
  if (shardq_context_status(context, nullptr, 0) != SHARDQ_OK)
    return llvm::Error::success();

  results.clear();
  llvm::SmallPtrSet<void *, 8> keep;
  for (const Array &array : arguments)
    keep.insert(array.data.get());
  for (auto [i, type] : llvm::enumerate(resultTypes)) {
    const char *field = base + offsets[i];
    if (!isa<RankedTensorType>(type)) {
      llvm::Expected<Array> scalar =
          allocateArray(*getElement(type), {}, "a result");
      if (!scalar)
        return scalar.takeError();
      std::memcpy(scalar->data.get(), field, getElementBytes(scalar->element));
      results.push_back(std::move(*scalar));
      continue;
    }
    llvm::Expected<Array> array =
        copyDescriptor(reinterpret_cast<const int64_t *>(field), type,
                       "result " + llvm::Twine(i));
    if (!array)
      return array.takeError();
    results.push_back(std::move(*array));
  }
  // Results belong to the caller, unless they are arguments handed through; two
  // may be one buffer.
  for (auto [i, type] : llvm::enumerate(resultTypes))
    if (isa<RankedTensorType>(type)) {
      void *allocated = reinterpret_cast<void *>(
          *reinterpret_cast<int64_t *>(base + offsets[i]));
      if (keep.insert(allocated).second)
        std::free(allocated);
    }
  return llvm::Error::success();
}

llvm::Error Program::enqueue(shardq_context *context, void *stream,
                             ArrayRef<DeviceValue> arguments,
                             ArrayRef<DeviceValue> results) const {
  std::vector<std::vector<int64_t>> descriptors;
  std::vector<void *> pointers(arguments.size() + results.size()), values;
  values.push_back(&context);
  auto pass = [&](const DeviceValue &value, Type type, void *&pointer) {
    if (!isa<RankedTensorType>(type)) {
      values.push_back(value.array.data.get());
      return;
    }
    descriptors.push_back(makeDescriptor(value.array, value.address));
    pointer = descriptors.back().data();
    values.push_back(&pointer);
  };
  for (auto [i, value] : llvm::enumerate(arguments))
    pass(value, argumentTypes[i], pointers[i]);
  for (auto [i, value] : llvm::enumerate(results))
    pass(value, resultTypes[i], pointers[arguments.size() + i]);
  shardq_rt_begin(context, stream);
  function(values.data());
  shardq_rt_end(context);
  return llvm::Error::success();
}
