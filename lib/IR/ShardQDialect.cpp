//===- ShardQDialect.cpp - Dialect and attributes -------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"
#include "shardq/IR/CarrierOps.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::shardq;

#include "shardq/IR/ShardQDialect.cpp.inc"
#include "shardq/IR/ShardQEnums.cpp.inc"
#include "shardq/IR/ShardQInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "shardq/IR/ShardQAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "shardq/IR/ShardQTypes.cpp.inc"

namespace {

/// Rows and ranks mean the same in every function of a module, so any op may
/// move into a caller.
struct ShardQInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final {
    return true;
  }
};

} // namespace

void ShardQDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "shardq/IR/ShardQAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "shardq/IR/ShardQTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "shardq/IR/ShardQOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "shardq/IR/ShardQCarrierOps.cpp.inc"
      >();
  addInterfaces<ShardQInliner>();
  declarePromisedInterfaces<
      bufferization::BufferizableOpInterface, CombineLseOp, CountDecodeRowsOp,
      ConvertIndicesOp, DraftLengthsOp, ExchangeOp, ExpandRowsOp,
      FilterIndicesOp, GatherBlocksOp, GatherGateOp, GatherKvFinishOp,
      GatherKvStartOp, GatherQueryOp, GatheredSlotsOp, GatheredTableOp,
      IndexerOp, LocalLengthsOp, LocalRowsOp, PackRowsOp, ReplicatedTableOp,
      ShardLengthsOp, SparseMlaOp, SplitGateOp, TakeRowsOp, TapOp, TokenSlotsOp,
      TopKOp, UnpackRowsOp, ZigzagSplitOp>();
}

/// Checks `shardq.split` on the n-th argument or result of a function.
static LogicalResult verifySplit(Operation *op, StringRef kind, unsigned index,
                                 Type type, NamedAttribute attr) {
  if (attr.getName() != kSplitAttrName)
    return op->emitOpError()
           << "has unknown attribute '" << attr.getName().getValue() << "' on "
           << kind << " " << index;
  auto split = dyn_cast<SplitAttr>(attr.getValue());
  if (!split)
    return op->emitOpError() << "has '" << kSplitAttrName << "' on " << kind
                             << " " << index << " that is " << attr.getValue()
                             << ", expected a #shardq.split attribute";
  auto shape = dyn_cast<ShapedType>(type);
  if (!shape || !shape.hasRank() || split.getDim() >= shape.getRank())
    return op->emitOpError() << "splits dimension " << split.getDim() << " of "
                             << kind << " " << index << ", which is " << type;
  if (!lookupMeshAxis(op, split.getMesh(), split.getAxis()))
    return op->emitOpError() << "splits " << kind << " " << index
                             << " over axis " << split.getAxis() << " of "
                             << split.getMesh() << ", which does not exist";
  return success();
}

LogicalResult ShardQDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                      unsigned index,
                                                      NamedAttribute attr) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitOpError() << "cannot carry '" << attr.getName().getValue()
                             << "': expected on a function";
  if (attr.getName() == kResultAttrName && isa<UnitAttr>(attr.getValue()))
    return success();
  return verifySplit(op, "argument", index, function.getArgumentTypes()[index],
                     attr);
}

LogicalResult ShardQDialect::verifyRegionResultAttribute(Operation *op,
                                                         unsigned,
                                                         unsigned index,
                                                         NamedAttribute attr) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitOpError() << "cannot carry '" << attr.getName().getValue()
                             << "': expected on a function";
  return verifySplit(op, "result", index, function.getResultTypes()[index],
                     attr);
}

LogicalResult ShardQDialect::verifyOperationAttribute(Operation *op,
                                                      NamedAttribute attr) {
  // Their contents are read, and checked, by one pass.
  if (attr.getName() == kKernelsAttrName ||
      attr.getName() == kResidentBlocksAttrName ||
      attr.getName() == kResourcesAttrName ||
      attr.getName() == kEntryPointAttrName)
    return success();
  return op->emitOpError() << "has unknown attribute '"
                           << attr.getName().getValue()
                           << "': 'shardq.split' stands on function arguments "
                              "and results";
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

LogicalResult
PackedRowsAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                       int64_t latent, Type element, int64_t rope,
                       PackedOrder) {
  constexpr int64_t most = int64_t(1) << 20;
  if (latent < 1 || latent % kGroup != 0 || latent > most)
    return emitError() << "packed rows have " << latent
                       << " latent values, expected a positive multiple of "
                       << kGroup << ", at most " << most;
  if (!isa<Float8E4M3FNType>(element) && !element.isSignlessInteger(8))
    return emitError() << "packed rows have values of type " << element
                       << ", expected f8E4M3FN or i8";
  if (rope < 0 || rope % 2 != 0 || rope > most)
    return emitError() << "packed rows have " << rope
                       << " values with rope, expected an even number, at most "
                       << most;
  return success();
}

LogicalResult AxisAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               StringRef name, int64_t size, StringAttr parent,
                               ArrayRef<StringAttr> parts) {
  if (name.empty())
    return emitError() << "axis name is empty";
  if (parent && !parts.empty())
    return emitError() << "axis \"" << name << "\" lies in " << parent
                       << " and joins others, expected one of the two";
  if (size < 1)
    return emitError() << "axis \"" << name << "\" has size " << size
                       << ", expected 1 or more";
  return success();
}

LogicalResult SplitAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                FlatSymbolRefAttr, int64_t dim, StringAttr) {
  if (dim < 0)
    return emitError() << "split dimension is " << dim
                       << ", expected 0 or more";
  return success();
}

LogicalResult ChannelAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                  StringRef name, int64_t offset, int64_t bytes,
                                  int64_t generations,
                                  TransportAttr transport) {
  if (transport && transport.getValue() != Transport::Nccl)
    return emitError() << "channel \"" << name << "\" has transport "
                       << stringifyTransport(transport.getValue())
                       << ", expected nccl, or none";
  if (generations != 1 && generations != 2)
    return emitError() << "channel \"" << name << "\" has " << generations
                       << " generations, expected 1 or 2";
  for (auto [what, value] :
       {std::pair<StringRef, int64_t>{"offset", offset}, {"bytes", bytes}})
    if (value < 0 || value % 256 != 0)
      return emitError() << "channel \"" << name << "\" has " << what << " "
                         << value << ", expected a multiple of 256";
  return success();
}

LogicalResult ShardingAttr::verify(
    function_ref<InFlightDiagnostic()> emitError, FlatSymbolRefAttr,
    ArrayRef<StringAttr> heads, std::optional<TokenOrder> order,
    ArrayRef<StringAttr> tokens, int64_t interleave, ArrayRef<StringAttr> kv) {
  if (heads.empty() == tokens.empty())
    return emitError() << "sharding divides "
                       << (heads.empty() ? "neither heads nor tokens"
                                         : "both heads and tokens")
                       << ", expected one of them over at least one axis";
  if (order.has_value() == tokens.empty())
    return emitError() << "token order and token axes stand together";
  // Heads and KV may be divided over one axis: a rank's heads need the keys of
  // all of them.
  for (ArrayRef<StringAttr> axes : {heads, tokens, kv}) {
    llvm::StringSet<> seen;
    for (StringAttr axis : axes)
      if (!seen.insert(axis.getValue()).second)
        return emitError() << "sharding names axis " << axis << " twice";
  }
  if (!kv.empty() &&
      (interleave < 1 || interleave > std::numeric_limits<int32_t>::max()))
    return emitError() << "kv interleave is " << interleave
                       << ", expected 1 or more";
  if (kv.empty() && interleave != 0)
    return emitError() << "kv interleave stands without an axis";
  return success();
}

static ParseResult parseAxes(AsmParser &parser,
                             SmallVectorImpl<StringAttr> &axes) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
    return parser.parseAttribute(axes.emplace_back());
  });
}

// `<` mesh `,` (`heads` `=` axes | `tokens` `=` order axes)
//     (`,` `kv` `=` `interleave` `<` integer `>` axes)? `>`
Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  FlatSymbolRefAttr mesh;
  SmallVector<StringAttr> heads, tokens, kv;
  std::optional<TokenOrder> order;
  int64_t interleave = 0;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseAttribute(mesh) || parser.parseComma())
    return {};
  if (succeeded(parser.parseOptionalKeyword("heads"))) {
    if (parser.parseEqual() || parseAxes(parser, heads))
      return {};
  } else {
    StringRef name;
    SMLoc orderLoc;
    if (parser.parseKeyword("tokens", ": expected 'heads' or 'tokens'") ||
        parser.parseEqual() || parser.getCurrentLocation(&orderLoc) ||
        parser.parseKeyword(&name))
      return {};
    order = symbolizeTokenOrder(name);
    if (!order) {
      parser.emitError(orderLoc, "unknown token order '")
          << name << "', expected 'zigzag' or 'contiguous'";
      return {};
    }
    if (parseAxes(parser, tokens))
      return {};
  }
  if (succeeded(parser.parseOptionalComma())) {
    if (parser.parseKeyword("kv") || parser.parseEqual() ||
        parser.parseKeyword("interleave") || parser.parseLess() ||
        parser.parseInteger(interleave) || parser.parseGreater() ||
        parseAxes(parser, kv))
      return {};
    if (kv.empty()) {
      parser.emitError(loc, "kv is divided over no axis, expected one");
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<ShardingAttr>(loc, parser.getContext(), mesh, heads,
                                         order, tokens, interleave, kv);
}

void ShardingAttr::print(AsmPrinter &printer) const {
  printer << "<" << getMesh() << ", ";
  if (isOverHeads())
    printer << "heads = ";
  else
    printer << "tokens = " << stringifyTokenOrder(*getOrder()) << " ";
  printer << "[";
  llvm::interleaveComma(getAxes(), printer);
  printer << "]";
  if (isOverKv()) {
    printer << ", kv = interleave<" << getInterleave() << "> [";
    llvm::interleaveComma(getKv(), printer);
    printer << "]";
  }
  printer << ">";
}
