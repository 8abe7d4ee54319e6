//===- Header.cpp - The C header of a compiled module ---------------------===//

#include "Header.h"
#include "Names.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "shardq/IR/ShardQ.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mlir::shardq;

namespace {

/// A row of an entry point's comment, and its parameter.
struct Item {
  std::string name;
  Type type;
  std::string use;
  bool isResult;
};

class HeaderWriter {
public:
  HeaderWriter(const compile::HeaderOptions &options, raw_ostream &os)
      : options(options), os(os) {}

  void writeHead();
  llvm::Error writeFunction(LLVM::LLVMFuncOp function, DictionaryAttr entry);
  void writeTail();

private:
  const compile::HeaderOptions &options;
  raw_ostream &os;
  std::string guard;
};

} // namespace

//===----------------------------------------------------------------------===//
// Names and types
//===----------------------------------------------------------------------===//

/// Names that the parameters before use, and those that C does not take.
static bool isTaken(StringRef name) {
  return compile::isWord(name) || name == "context" || name == "stream";
}

static std::string getElementName(Type type) {
  if (type.isIndex())
    return "int64";
  if (type.isInteger(1))
    return "bool";
  if (type.isBF16())
    return "bfloat16";
  if (type.isF16() || type.isF32() || type.isF64())
    return "float" + std::to_string(type.getIntOrFloatBitWidth());
  if (type.isUnsignedInteger())
    return "uint" + std::to_string(type.getIntOrFloatBitWidth());
  if (type.isInteger())
    return "int" + std::to_string(type.getIntOrFloatBitWidth());
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return StringRef(text).starts_with("f8") ? "float8 (" + text + ")" : text;
}

static std::string getScalarType(Type type) {
  if (type.isF32())
    return "float";
  if (type.isF64())
    return "double";
  if (type.isInteger(1))
    return "uint8_t";
  if (type.isBF16() || type.isF16())
    return "uint16_t";
  return getElementName(type) + "_t";
}

/// "[rows, 2, 12] bfloat16, contiguous", "int64, by value".
static std::string describe(const Item &item) {
  auto buffer = dyn_cast<MemRefType>(item.type);
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (!buffer) {
    stream << getElementName(item.type);
    if (item.type.isBF16() || item.type.isF16())
      stream << ", its bits";
    stream << (item.isResult ? ", NULL if not wanted" : ", by value");
    return text;
  }
  auto size = [](int64_t value) {
    return ShapedType::isDynamic(value) ? std::string("?")
                                        : std::to_string(value);
  };
  stream << '[' << llvm::join(llvm::map_range(buffer.getShape(), size), ", ")
         << "] " << getElementName(buffer.getElementType());
  if (buffer.getLayout().isIdentity())
    stream << ", contiguous";
  else
    stream << ", strides ["
           << llvm::join(
                  llvm::map_range(buffer.getStridesAndOffset().first, size),
                  ", ")
           << ']';
  return text;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

void HeaderWriter::writeHead() {
  for (char c : options.file)
    guard += llvm::isAlnum(c) ? llvm::toUpper(c) : '_';
  if (guard.empty() || llvm::isDigit(guard.front()))
    guard.insert(0, "SHARDQ_");
  os << "/* Made by shardq-compile from " << options.source;
  if (!options.library.empty())
    os << "; goes with " << options.library;
  os << ".\n";
  for (const std::string &fact : options.facts)
    os << " * " << fact << '\n';
  os << " *\n"
        " * Functions return SHARDQ_OK or an error, whose text\n"
        " * shardq_context_message gives. `?` is any size or stride; sizes are "
        "those of\n"
        " * one rank, strides count elements. */\n"
     << "#ifndef " << guard << "\n#define " << guard << "\n\n"
     << "#include \"shardq/tensor.h\"\n\n"
        "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
        "/* What shardq_comm_create has to know of the program. */\n"
        "const shardq_plan *shardq_module_plan(void);\n\n";
  if (options.hasImage)
    os << "/* The kernels, for shardq_comm_load. */\n"
          "const shardq_gpu_image *shardq_module_image(void);\n\n";
}

void HeaderWriter::writeTail() {
  os << "#ifdef __cplusplus\n}\n#endif\n\n#endif /* " << guard << " */\n";
}

llvm::Error HeaderWriter::writeFunction(LLVM::LLVMFuncOp function,
                                        DictionaryAttr entry) {
  StringRef name = function.getName();
  if (!compile::isIdentifier(name))
    return llvm::createStringError("--header: @" + name + " is no name in C");
  // That of a program's start has arguments of its own.
  if (compile::isWord(name) || name == "main")
    return llvm::createStringError("--header: @" + name +
                                   " has another meaning in C or C++, expected "
                                   "a name that is free");
  SmallVector<Item> items;
  llvm::StringSet<> names;
  std::vector<std::string> uses = options.uses.lookup(name);
  for (bool isResult : {false, true}) {
    auto list = entry.getAs<ArrayAttr>(isResult ? "results" : "arguments");
    for (auto [i, attr] : llvm::enumerate(list)) {
      auto fields = cast<DictionaryAttr>(attr);
      Item item;
      item.type = fields.getAs<TypeAttr>("type").getValue();
      item.isResult = isResult;
      if (auto given = fields.getAs<StringAttr>("name"))
        item.name = given.getValue();
      if (!compile::isIdentifier(item.name) || isTaken(item.name) ||
          !names.insert(item.name).second) {
        item.name = (isResult ? "result" : "arg") + std::to_string(i);
        while (!names.insert(item.name).second)
          item.name += '_';
      }
      if (!isResult && i < uses.size())
        item.use = uses[i];
      items.push_back(std::move(item));
    }
  }
  size_t width = 0;
  for (const Item &item : items)
    width = std::max(width, item.name.size());

  os << "/* " << name << (items.empty() ? ": takes nothing" : "") << '\n';
  for (const Item &item : items) {
    os << " *   " << item.name << std::string(width - item.name.size(), ' ')
       << "  " << describe(item);
    if (!item.use.empty())
      os << ": " << item.use;
    os << '\n';
  }
  os << " */\nint32_t " << name << "(shardq_context *context, void *stream";
  for (const Item &item : items) {
    os << ",\n    ";
    bool isBuffer = isa<MemRefType>(item.type);
    if (isBuffer)
      os << (item.isResult ? "DLTensor *" : "const DLTensor *");
    else
      os << getScalarType(item.type) << (item.isResult ? " *" : " ");
    os << item.name;
  }
  os << ");\n\n";
  return llvm::Error::success();
}

llvm::Expected<std::string> compile::writeHeader(ModuleOp module,
                                                 const HeaderOptions &options) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  HeaderWriter writer(options, stream);
  writer.writeHead();
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    if (auto entry =
            function->getAttrOfType<DictionaryAttr>(kEntryPointAttrName))
      if (llvm::Error error = writer.writeFunction(function, entry))
        return std::move(error);
  writer.writeTail();
  return text;
}
