//===- EntryPoints.cpp - C functions that take DLPack tensors -------------===//

#include "../Utils/ConstantWriter.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "shardq/Conversion/Passes.h"
#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::shardq {
#define GEN_PASS_DEF_SHARDQEMITENTRYPOINTS
#include "shardq/Conversion/Passes.h.inc"
} // namespace mlir::shardq

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// DLPack's numbers, which its ABI fixes.
enum DeviceType { CPU = 1, CUDA = 2 };
struct DataType {
  enum Code { Int = 0, UInt = 1, Float = 2, Bfloat = 4, Bool = 6 };
  int code;
  int bits;
};

/// An argument or result of an entry point.
struct Parameter {
  Type type;
  StringAttr name; // null where the program gives none
  bool isResult = false;
  unsigned number = 0; // among the arguments or results

  MemRefType getBuffer() const { return dyn_cast<MemRefType>(type); }
};

/// Makes the entry points of one module.
class EntryPointWriter {
public:
  EntryPointWriter(ModuleOp module, DeviceType device)
      : module(module), context(module.getContext()), device(device),
        converter(context), constants(module), b(module.getLoc(), context),
        pointer(constants.pointer), i32(constants.i32), i64(constants.i64) {}

  LogicalResult run(func::FuncOp function);

private:
  LogicalResult collect(func::FuncOp function);
  LogicalResult verify(func::FuncOp function, const Parameter &parameter);
  LLVM::GlobalOp writeSpec(StringRef name);
  func::FuncOp hide(func::FuncOp function);
  Type getPassedType(const Parameter &parameter);
  Attribute describe();
  void writeBody(func::FuncOp entry, func::FuncOp function,
                 LLVM::GlobalOp spec);
  Value runFunction(func::FuncOp entry, func::FuncOp function,
                    LLVM::GlobalOp spec);
  Value takeResults(func::FuncOp entry, ValueRange results, Value spec,
                    Value status);

  Value call(StringRef name, Type result, ValueRange arguments);
  Value allocate(Type type, int64_t count);
  void storeAt(Value value, Value array, int64_t position);
  Value fromPassed(Value value, Type type);
  Value toPassed(Value value, Type type);

  ModuleOp module;
  MLIRContext *context;
  DeviceType device;
  LLVMTypeConverter converter;
  ConstantWriter constants;
  ImplicitLocOpBuilder b;
  Type pointer, i32, i64;

  // Of the function at hand: all of them, arguments first, and of each buffer
  // the descriptor's place.
  SmallVector<Parameter> parameters;
  unsigned numArguments = 0, numInPlace = 0;
  SmallVector<Value> descriptors;
};

} // namespace

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// What DLPack calls an element type.
static std::optional<DataType> getDataType(Type type) {
  if (type.isIndex())
    return DataType{DataType::Int, 64};
  if (type.isInteger(1))
    return DataType{DataType::Bool, 8};
  if (auto integer = dyn_cast<IntegerType>(type)) {
    int bits = integer.getWidth();
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
      return std::nullopt;
    return DataType{integer.isUnsigned() ? DataType::UInt : DataType::Int,
                    bits};
  }
  if (type.isBF16())
    return DataType{DataType::Bfloat, 16};
  if (type.isF16() || type.isF32() || type.isF64())
    return DataType{DataType::Float, int(type.getIntOrFloatBitWidth())};
  int code = llvm::TypeSwitch<Type, int>(type)
                 .Case([](Float8E3M4Type) { return 7; })
                 .Case([](Float8E4M3Type) { return 8; })
                 .Case([](Float8E4M3B11FNUZType) { return 9; })
                 .Case([](Float8E4M3FNType) { return 10; })
                 .Case([](Float8E4M3FNUZType) { return 11; })
                 .Case([](Float8E5M2Type) { return 12; })
                 .Case([](Float8E5M2FNUZType) { return 13; })
                 .Default(-1);
  if (code < 0)
    return std::nullopt;
  return DataType{code, 8};
}

/// A scalar in C: bits where C has no such number.
static Type getScalarType(Type type) {
  if (type.isIndex())
    return IntegerType::get(type.getContext(), 64);
  unsigned bits = type.getIntOrFloatBitWidth();
  if (type.isF32() || type.isF64())
    return type;
  return IntegerType::get(type.getContext(), std::max(bits, 8u));
}

Type EntryPointWriter::getPassedType(const Parameter &parameter) {
  if (parameter.getBuffer() || parameter.isResult)
    return pointer;
  return getScalarType(parameter.type);
}

LogicalResult EntryPointWriter::verify(func::FuncOp function,
                                       const Parameter &parameter) {
  auto fail = [&]() {
    return function.emitOpError(parameter.isResult ? "has result "
                                                   : "has argument ")
           << parameter.number << " of type " << parameter.type;
  };
  MemRefType buffer = parameter.getBuffer();
  Type element = buffer ? buffer.getElementType() : parameter.type;
  bool isFloat8 = isa<FloatType>(element) && element.isIntOrFloat() &&
                  element.getIntOrFloatBitWidth() == 8;
  if (!getDataType(element) || (isFloat8 && !buffer))
    return fail() << ", which an entry point cannot take";
  if (!buffer)
    return success();
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(buffer.getStridesAndOffset(strides, offset)))
    return fail() << ", whose layout DLPack cannot say";
  if (offset != 0 && !ShapedType::isDynamic(offset))
    return fail() << ", which begins behind its first element";
  Attribute space = buffer.getMemorySpace();
  if (space && !isa<IntegerAttr>(space))
    return fail() << ", whose memory space an entry point cannot take";
  return success();
}

/// Arguments, results in place and returned results, in this order.
LogicalResult EntryPointWriter::collect(func::FuncOp function) {
  parameters.clear();
  numArguments = numInPlace = 0;
  Block &body = function.getBody().front();
  if (body.getNumArguments() == 0 || body.getArgument(0).getType() != pointer)
    return function.emitOpError(
        "does not take the runtime's context: run convert-shardq-to-runtime "
        "before shardq-emit-entry-points");
  for (BlockArgument argument : body.getArguments().drop_front()) {
    bool isResult = function.getArgAttr(argument.getArgNumber(),
                                        kResultAttrName) != nullptr;
    if (numInPlace && !isResult)
      return function.emitOpError("has argument ")
             << argument.getArgNumber() << " behind arguments that are results";
    Parameter parameter;
    parameter.type = argument.getType();
    if (auto name = argument.getLoc()->findInstanceOf<NameLoc>())
      parameter.name = name.getName();
    parameter.isResult = isResult;
    parameter.number = isResult ? numInPlace++ : numArguments++;
    if (isResult && !parameter.getBuffer())
      return function.emitOpError("has result ")
             << parameter.number << " in an argument of type " << parameter.type
             << ", expected a buffer";
    parameters.push_back(parameter);
  }
  for (auto [i, type] : llvm::enumerate(function.getResultTypes())) {
    Parameter parameter;
    parameter.type = type;
    parameter.isResult = true;
    parameter.number = numInPlace + i;
    if (parameter.getBuffer() && device == CUDA)
      return function.emitOpError("returns a buffer, and host code does not "
                                  "wait for it: results on a GPU are arguments "
                                  "marked '")
             << kResultAttrName << "'";
    parameters.push_back(parameter);
  }
  for (const Parameter &parameter : parameters)
    if (failed(verify(function, parameter)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

/// `shardq_function_spec` of tensor.h.
LLVM::GlobalOp EntryPointWriter::writeSpec(StringRef name) {
  struct Tensor {
    const Parameter *parameter;
    LLVM::GlobalOp name, sizes, strides;
  };
  auto dynamicIsMinusOne = [](ArrayRef<int64_t> values) {
    return llvm::map_to_vector(values, [](int64_t value) {
      return ShapedType::isDynamic(value) ? -1 : value;
    });
  };
  std::string prefix = ("shardq_entry_" + name).str();
  SmallVector<Tensor> tensors;
  for (const Parameter &parameter : parameters) {
    MemRefType buffer = parameter.getBuffer();
    if (!buffer)
      continue;
    Tensor tensor{&parameter, {}, {}, {}};
    if (parameter.name)
      tensor.name = constants.writeText(prefix + "_name", parameter.name);
    if (buffer.getRank() > 0)
      tensor.sizes = constants.writeArray(prefix + "_sizes",
                                          dynamicIsMinusOne(buffer.getShape()));
    if (!buffer.getLayout().isIdentity() && buffer.getRank() > 0)
      tensor.strides = constants.writeArray(
          prefix + "_strides",
          dynamicIsMinusOne(buffer.getStridesAndOffset().first));
    tensors.push_back(tensor);
  }
  LLVM::GlobalOp text = constants.writeText(prefix + "_text", name);

  auto tensorType = LLVM::LLVMStructType::getLiteral(
      context, {pointer, pointer, pointer, i32, i32, i32, i32, i32, i32});
  auto tableType = LLVM::LLVMArrayType::get(tensorType, tensors.size());
  auto integer = [&](int64_t value) { return constants.constant(i32, value); };
  LLVM::GlobalOp table =
      constants.writeValue(prefix + "_tensors", tableType, [&](Value value) {
        for (auto [i, tensor] : llvm::enumerate(tensors)) {
          const Parameter &parameter = *tensor.parameter;
          MemRefType buffer = parameter.getBuffer();
          DataType type = *getDataType(buffer.getElementType());
          // Kernels that load 16 bytes at once look at the address first.
          int64_t alignment = type.bits / 8;
          value = constants.setFields(
              value, {int64_t(i)},
              {constants.address(tensor.name), constants.address(tensor.sizes),
               constants.address(tensor.strides), integer(parameter.isResult),
               integer(parameter.number), integer(type.code),
               integer(type.bits), integer(buffer.getRank()),
               integer(alignment)});
        }
        return value;
      });
  auto specType = LLVM::LLVMStructType::getLiteral(
      context, {i64, i64, pointer, pointer, i32, i32});
  return constants.writeValue(prefix, specType, [&](Value value) {
    // sizeof of both structs on every 64-bit host.
    return constants.setFields(
        value, {},
        {constants.constant(i64, 40), constants.constant(i64, 48),
         constants.address(text), constants.address(table),
         integer(tensors.size()), integer(device)});
  });
}

/// What a header has to say of the function.
Attribute EntryPointWriter::describe() {
  SmallVector<Attribute> lists[2];
  for (const Parameter &parameter : parameters) {
    NamedAttrList fields;
    if (parameter.name)
      fields.append("name", parameter.name);
    fields.append("type", TypeAttr::get(parameter.type));
    lists[parameter.isResult].push_back(fields.getDictionary(context));
  }
  return b.getDictionaryAttr(
      {b.getNamedAttr("arguments", b.getArrayAttr(lists[0])),
       b.getNamedAttr("results", b.getArrayAttr(lists[1]))});
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

Value EntryPointWriter::call(StringRef name, Type result,
                             ValueRange arguments) {
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!function) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    Type type = result ? result : LLVM::LLVMVoidType::get(context);
    function = LLVM::LLVMFuncOp::create(
        b, name,
        LLVM::LLVMFunctionType::get(type,
                                    llvm::to_vector(arguments.getTypes())));
  }
  auto op = LLVM::CallOp::create(b, function, arguments);
  return result ? op.getResult() : Value();
}

/// On the stack, where the entry begins.
Value EntryPointWriter::allocate(Type type, int64_t count) {
  OpBuilder::InsertionGuard guard(b);
  auto entry = cast<func::FuncOp>(
      b.getInsertionBlock()->getParent()->getParentOfType<func::FuncOp>());
  b.setInsertionPointToStart(&entry.getBody().front());
  Value number = LLVM::ConstantOp::create(b, i64, b.getI64IntegerAttr(count));
  return LLVM::AllocaOp::create(b, pointer, type, number);
}

void EntryPointWriter::storeAt(Value value, Value array, int64_t position) {
  Value address =
      LLVM::GEPOp::create(b, pointer, value.getType(), array,
                          ArrayRef<LLVM::GEPArg>{int32_t(position)});
  LLVM::StoreOp::create(b, value, address);
}

/// A scalar as the program has it.
Value EntryPointWriter::fromPassed(Value value, Type type) {
  if (value.getType() == type)
    return value;
  if (type.isIndex())
    return arith::IndexCastOp::create(b, type, value);
  if (type.isInteger(1)) {
    Value zero = arith::ConstantIntOp::create(b, value.getType(), 0);
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, value, zero);
  }
  return arith::BitcastOp::create(b, type, value);
}

/// A scalar as C has it.
Value EntryPointWriter::toPassed(Value value, Type type) {
  Type passed = getScalarType(type);
  if (passed == type)
    return value;
  if (type.isIndex())
    return arith::IndexCastOp::create(b, passed, value);
  if (type.isInteger(1))
    return arith::ExtUIOp::create(b, passed, value);
  return arith::BitcastOp::create(b, passed, value);
}

/// Gives the function a name of its own and leaves its old one to the entry.
func::FuncOp EntryPointWriter::hide(func::FuncOp function) {
  std::string hidden = function.getName().str() + "__impl";
  while (module.lookupSymbol(hidden))
    hidden += '_';
  auto name = b.getStringAttr(function.getName());
  (void)SymbolTable::replaceAllSymbolUses(function, b.getStringAttr(hidden),
                                          module);
  function.setName(hidden);
  function.setPrivate();
  function->removeAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName());
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    function.removeArgAttr(i, kResultAttrName);

  SmallVector<Type> types = {pointer, pointer};
  SmallVector<Location> locations(2, function.getLoc());
  for (const Parameter &parameter : parameters) {
    types.push_back(getPassedType(parameter));
    locations.push_back(parameter.name ? Location(NameLoc::get(parameter.name))
                                       : function.getLoc());
  }
  b.setInsertionPointAfter(function);
  auto entry = func::FuncOp::create(b, name, b.getFunctionType(types, i32));
  entry->setAttr(kEntryPointAttrName, describe());
  b.createBlock(&entry.getBody(), {}, types, locations);
  return entry;
}

/// Copies out what the function returned and frees it.
Value EntryPointWriter::takeResults(func::FuncOp entry, ValueRange results,
                                    Value spec, Value status) {
  unsigned firstParameter = parameters.size() - results.size();
  unsigned tensor =
      descriptors.size() -
      llvm::count_if(results.getTypes(), llvm::IsaPred<MemRefType>);
  SmallVector<Value> returned;
  for (auto [i, result] : llvm::enumerate(results)) {
    const Parameter &parameter = parameters[firstParameter + i];
    Value wanted = entry.getArgument(2 + firstParameter + i);
    if (!parameter.getBuffer()) {
      Value null = LLVM::ZeroOp::create(b, pointer);
      Value isWanted =
          LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, wanted, null);
      scf::IfOp::create(b, isWanted, [&](OpBuilder &, Location) {
        LLVM::StoreOp::create(b, toPassed(result, parameter.type), wanted);
        scf::YieldOp::create(b);
      });
      continue;
    }
    Type type = converter.convertType(parameter.type);
    Value place = allocate(type, 1);
    Value descriptor =
        UnrealizedConversionCastOp::create(b, type, result).getResult(0);
    LLVM::StoreOp::create(b, descriptor, place);
    Value number =
        LLVM::ConstantOp::create(b, i32, b.getI32IntegerAttr(tensor));
    status = call("shardq_rt_export", i32,
                  {entry.getArgument(0), spec, number, place,
                   descriptors[tensor], status});
    ++tensor;
    returned.push_back(result);
  }
  // Two results may be one buffer.
  auto getAddress = [&](Value buffer) -> Value {
    return memref::ExtractAlignedPointerAsIndexOp::create(b, buffer);
  };
  for (auto [i, buffer] : llvm::enumerate(returned)) {
    Value isNew;
    for (Value earlier : ArrayRef(returned).take_front(i)) {
      Value differs = arith::CmpIOp::create(
          b, arith::CmpIPredicate::ne, getAddress(buffer), getAddress(earlier));
      isNew = isNew ? Value(arith::AndIOp::create(b, isNew, differs)) : differs;
    }
    if (!isNew) {
      memref::DeallocOp::create(b, buffer);
      continue;
    }
    scf::IfOp::create(b, isNew, [&](OpBuilder &, Location) {
      memref::DeallocOp::create(b, buffer);
      scf::YieldOp::create(b);
    });
  }
  return status;
}

/// The call itself, once the tensors are known to be right.
Value EntryPointWriter::runFunction(func::FuncOp entry, func::FuncOp function,
                                    LLVM::GlobalOp spec) {
  Value runtimeContext = entry.getArgument(0);
  call("shardq_rt_begin", {}, {runtimeContext, entry.getArgument(1)});
  SmallVector<Value> operands = {runtimeContext};
  unsigned numPassed = numArguments + numInPlace, tensor = 0;
  for (auto [i, parameter] :
       llvm::enumerate(ArrayRef(parameters).take_front(numPassed))) {
    if (!parameter.getBuffer()) {
      operands.push_back(fromPassed(entry.getArgument(2 + i), parameter.type));
      continue;
    }
    Value descriptor = LLVM::LoadOp::create(
        b, converter.convertType(parameter.type), descriptors[tensor++]);
    operands.push_back(
        UnrealizedConversionCastOp::create(b, parameter.type, descriptor)
            .getResult(0));
  }
  auto results = func::CallOp::create(b, function, operands);
  Value status = call("shardq_rt_end", i32, runtimeContext);
  return takeResults(entry, results.getResults(),
                     LLVM::AddressOfOp::create(b, spec), status);
}

void EntryPointWriter::writeBody(func::FuncOp entry, func::FuncOp function,
                                 LLVM::GlobalOp spec) {
  b.setInsertionPointToEnd(&entry.getBody().front());
  descriptors.clear();
  SmallVector<Value> tensors;
  for (auto [i, parameter] : llvm::enumerate(parameters)) {
    if (!parameter.getBuffer())
      continue;
    tensors.push_back(entry.getArgument(2 + i));
    descriptors.push_back(allocate(converter.convertType(parameter.type), 1));
  }
  int64_t count = std::max<int64_t>(tensors.size(), 1);
  Value tensorArray = allocate(pointer, count);
  Value descriptorArray = allocate(pointer, count);
  for (auto [i, tensor] : llvm::enumerate(tensors)) {
    storeAt(tensor, tensorArray, i);
    storeAt(descriptors[i], descriptorArray, i);
  }
  Value refused =
      call("shardq_rt_import", i32,
           {entry.getArgument(0), LLVM::AddressOfOp::create(b, spec),
            tensorArray, descriptorArray});
  Value zero = arith::ConstantIntOp::create(b, i32, 0);
  Value isRight =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, refused, zero);
  auto branch = scf::IfOp::create(b, TypeRange{i32}, isRight,
                                  /*withElseRegion=*/true);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, runFunction(entry, function, spec));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, refused);
  b.setInsertionPointAfter(branch);
  func::ReturnOp::create(b, branch.getResults());
}

LogicalResult EntryPointWriter::run(func::FuncOp function) {
  if (failed(collect(function)))
    return failure();
  b.setLoc(function.getLoc());
  LLVM::GlobalOp spec = writeSpec(function.getName());
  func::FuncOp entry = hide(function);
  writeBody(entry, function, spec);
  return success();
}

namespace {
struct ShardQEmitEntryPointsPass
    : public shardq::impl::ShardQEmitEntryPointsBase<
          ShardQEmitEntryPointsPass> {
  using ShardQEmitEntryPointsBase::ShardQEmitEntryPointsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (device != "cpu" && device != "cuda") {
      module.emitError("shardq-emit-entry-points: device is '")
          << device.getValue() << "', expected cpu or cuda";
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> functions;
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic() && !function.isExternal())
        functions.push_back(function);
    EntryPointWriter writer(module, device == "cuda" ? CUDA : CPU);
    for (func::FuncOp function : functions)
      if (failed(writer.run(function)))
        return signalPassFailure();
  }
};
} // namespace
