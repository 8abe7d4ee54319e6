//===- Signature.cpp - What an entry function's arguments mean ------------===//

#include "Signature.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

StringRef run::getRoleName(Role role) {
  static constexpr StringLiteral names[] = {"unknown",
                                            "query starts",
                                            "sequence lengths",
                                            "row count",
                                            "decode row count",
                                            "block table",
                                            "cache",
                                            "query",
                                            "row data",
                                            "indexer weights",
                                            "row requests",
                                            "visible lengths",
                                            "positions",
                                            "slots",
                                            "top-k lengths",
                                            "sink",
                                            "prefill requests",
                                            "workspace starts",
                                            "scores",
                                            "row ids",
                                            "slot map",
                                            "token ids",
                                            "rank offsets",
                                            "decode results",
                                            "projection weights"};
  return names[unsigned(role)];
}

bool run::isRowRole(Role role) {
  switch (role) {
  case Role::Query:
  case Role::RowData:
  case Role::Weights:
  case Role::Req:
  case Role::Visible:
  case Role::Positions:
  case Role::Slots:
  case Role::TopkLength:
  case Role::PrefillReq:
  case Role::Scores:
  case Role::RowIds:
  case Role::SlotMap:
  case Role::TokenIds:
    return true;
  default:
    return false;
  }
}

SmallVector<int64_t, 4> Argument::getGlobalShape() const {
  SmallVector<int64_t, 4> shape;
  if (auto shaped = dyn_cast<ShapedType>(type))
    shape.assign(shaped.getShape().begin(), shaped.getShape().end());
  if (split && !ShapedType::isDynamic(shape[split.getDim()]))
    shape[split.getDim()] *= splitAxis.getSize();
  return shape;
}

int64_t Signature::getNumRanks() const {
  return mesh ? MeshOp(mesh).getNumRanks() : 1;
}

int64_t Signature::getBlock(AxisAttr axis, int64_t rank) const {
  return MeshOp(mesh).getCoordinate(axis, rank);
}

std::optional<unsigned> Signature::find(StringRef name) const {
  name.consume_front("%");
  for (auto [i, argument] : llvm::enumerate(arguments))
    if (argument.name == name)
      return i;
  unsigned number;
  if (!name.getAsInteger(10, number) && number < arguments.size())
    return number;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Functions and values
//===----------------------------------------------------------------------===//

static func::FuncOp lookupCallee(func::CallOp call) {
  return SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
      call, call.getCalleeAttr());
}

SmallVector<func::FuncOp> run::getReachable(func::FuncOp entry) {
  llvm::SetVector<func::FuncOp> reached;
  reached.insert(entry);
  for (size_t i = 0; i < reached.size(); ++i)
    func::FuncOp(reached[i]).walk([&](func::CallOp call) {
      if (func::FuncOp callee = lookupCallee(call))
        reached.insert(callee);
    });
  return llvm::to_vector(reached);
}

llvm::Expected<func::FuncOp> run::findEntry(ModuleOp module, StringRef name) {
  SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
  std::string names = llvm::join(
      llvm::map_range(functions,
                      [](func::FuncOp f) { return "@" + f.getName().str(); }),
      ", ");
  if (!name.empty()) {
    name.consume_front("@");
    for (func::FuncOp function : functions)
      if (function.getName() == name) {
        if (function.isExternal())
          return makeError("--entry: @" + name + " has no body");
        return function;
      }
    return makeError("--entry: the module has no function @" + name +
                     (names.empty() ? "" : "; it has " + names));
  }
  llvm::SetVector<func::FuncOp> candidates;
  for (func::FuncOp function : functions)
    if (function.isPublic() && !function.isExternal())
      candidates.insert(function);
  module.walk([&](func::CallOp call) {
    func::FuncOp callee = lookupCallee(call);
    if (callee && callee != call->getParentOfType<func::FuncOp>())
      candidates.remove(callee);
  });
  if (candidates.size() == 1)
    return candidates.front();
  if (names.empty())
    return makeError("the module has no function");
  return makeError("choose a function with --entry: the module has " +
                   llvm::Twine(names));
}

/// Of a product of rows with the weights of heads, which input has the rows:
/// the one whose first dimension is the result's. None for other ops.
static std::optional<unsigned> findProjectedInput(Operation *op) {
  auto product = dyn_cast<linalg::LinalgOp>(op);
  if (!product || !product.hasPureTensorSemantics() ||
      product.getNumDpsInputs() != 2 || product.getNumDpsInits() != 1 ||
      !linalg::isaContractionOpInterface(product))
    return std::nullopt;
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  for (unsigned input : {0, 1})
    if (maps[input].getNumResults() && maps[2].getNumResults() &&
        maps[input].getResult(0) == maps[2].getResult(0))
      return input;
  return std::nullopt;
}

/// One step back along a value that is passed on as it is, or by rows: null
/// where `value` is made here or is an argument of the entry.
static Value stepBack(Value value, func::FuncOp entry) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    if (!function || function == entry)
      return {};
    // A function of several callers is given the same kind of value by all.
    Value operand;
    function->getParentOfType<ModuleOp>().walk([&](func::CallOp call) {
      if (lookupCallee(call) != function)
        return WalkResult::advance();
      operand = call.getOperand(argument.getArgNumber());
      return WalkResult::interrupt();
    });
    return operand;
  }
  Operation *op = value.getDefiningOp();
  unsigned number = cast<OpResult>(value).getResultNumber();
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    return cast.getSource();
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return slice.getSource();
  if (auto take = dyn_cast<TakeRowsOp>(op))
    return take.getSource();
  if (auto write = dyn_cast<WriteRowsOp>(op))
    return write.getCache();
  if (isa<UnpackRowsOp, PackRowsOp, arith::TruncFOp>(op))
    return op->getOperand(0);
  if (std::optional<unsigned> input = findProjectedInput(op))
    return op->getOperand(*input);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return branch.thenYield().getOperand(number);
  if (auto call = dyn_cast<func::CallOp>(op))
    if (func::FuncOp callee = lookupCallee(call);
        callee && !callee.isExternal())
      return callee.getBody().front().getTerminator()->getOperand(number);
  return {};
}

/// Recursive functions would make a cycle; real chains are short.
static Value findOrigin(Value value, func::FuncOp entry) {
  for (int steps = 0; steps < 1000; ++steps) {
    Value next = stepBack(value, entry);
    if (!next)
      return value;
    value = next;
  }
  return value;
}

Operation *run::findProducer(Value value, func::FuncOp entry) {
  return findOrigin(value, entry).getDefiningOp();
}

BlockArgument run::findArgument(Value value, func::FuncOp entry) {
  auto argument = dyn_cast<BlockArgument>(findOrigin(value, entry));
  if (argument && argument.getOwner() == &entry.getBody().front())
    return argument;
  return {};
}

/// The terminators' operands that may become the op's result `number`.
static SmallVector<Value> getYields(Operation *op, unsigned number) {
  SmallVector<Value> yields;
  for (Region &region : op->getRegions())
    for (Block &block : region) {
      Operation *end = block.empty() ? nullptr : &block.back();
      if (end && end->hasTrait<OpTrait::IsTerminator>() &&
          number < end->getNumOperands())
        yields.push_back(end->getOperand(number));
    }
  return yields;
}

/// The entry's argument that a value is when rows have been written to it;
/// null for any other.
static BlockArgument findWritten(Value value, func::FuncOp entry) {
  for (int steps = 0; steps < 1000; ++steps) {
    if (auto branch = value.getDefiningOp<scf::IfOp>()) {
      BlockArgument found;
      for (Value yield :
           getYields(branch, cast<OpResult>(value).getResultNumber())) {
        BlockArgument argument = findWritten(yield, entry);
        if (!argument || (found && found != argument))
          return {};
        found = argument;
      }
      return found;
    }
    Operation *op = value.getDefiningOp();
    if (op && !isa<tensor::CastOp, WriteRowsOp, func::CallOp>(op))
      return {};
    Value next = stepBack(value, entry);
    if (!next)
      break;
    value = next;
  }
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && argument.getOwner() == &entry.getBody().front())
    return argument;
  return {};
}

/// Calls `visit` with each of the entry's arguments that a value is made of,
/// but not through what finds the same tokens on all ranks.
static void forEachSource(Value value, func::FuncOp entry,
                          llvm::function_ref<void(BlockArgument)> visit) {
  llvm::SetVector<Value> values;
  values.insert(value);
  for (unsigned i = 0; i < values.size(); ++i) {
    Value one = values[i];
    auto argument = dyn_cast<BlockArgument>(one);
    if (argument && argument.getOwner() == &entry.getBody().front()) {
      visit(argument);
      continue;
    }
    Operation *op = one.getDefiningOp();
    if (isa_and_present<SparseMlaOp, IndexerOp, tensor::DimOp>(op))
      continue;
    if (Value next = stepBack(one, entry))
      values.insert(next);
    if (!op)
      continue;
    values.insert_range(op->getOperands());
    values.insert_range(getYields(op, cast<OpResult>(one).getResultNumber()));
  }
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

namespace {

/// Gives arguments their roles, op by op.
class RoleFinder {
public:
  explicit RoleFinder(Signature &signature) : signature(signature) {}

  void visit(Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case<ExpandRowsOp>([&](auto op) {
          set(op.getQueryStart(), Role::QueryStart);
          set(op.getSeqLens(), Role::SeqLens);
          set(op.getRows(), Role::Rows);
          signature.speculativeTokens =
              std::max(signature.speculativeTokens.value_or(0),
                       int64_t(op.getSpeculativeTokens()));
        })
        .Case<CountDecodeRowsOp>([&](auto op) {
          set(op.getQueryStart(), Role::QueryStart);
          signature.speculativeTokens = op.getSpeculativeTokens();
        })
        .Case<IndexerOp>([&](auto op) {
          set(op.getQ(), Role::RowData);
          set(op.getWeights(), Role::Weights);
          setPages(op, op.getKeys(), op.getTable(), op.getBlockSize(),
                   op.getBlockStride());
          setRows(op.getReq(), op.getVisible());
          signature.topk = std::max(signature.topk, op.getK());
        })
        .Case<TopKOp>([&](auto op) {
          set(op.getScores(), Role::Scores);
          set(op.getVisible(), Role::Visible);
          signature.topk = std::max(signature.topk, op.getK());
        })
        .Case<ConvertIndicesOp>([&](auto op) {
          set(op.getIndices(), Role::Positions);
          setTable(op.getTable(), op.getBlockSize(), op.getBlockStride());
          set(op.getReq(), Role::Req);
          set(op.getPrefillReq(), Role::PrefillReq);
          set(op.getWorkspaceStart(), Role::WorkspaceStart);
        })
        .Case<SparseMlaOp>([&](auto op) { visitAttention(op); })
        .Case<ZigzagSplitOp>([&](auto op) {
          set(op.getQueryStart(), Role::QueryStart);
          set(op.getDecodes(), Role::Decodes);
          set(op.getRows(), Role::Rows);
        })
        .Case<SplitGateOp>([&](auto op) {
          set(op.getOffsets(), Role::Offsets);
          set(op.getQueryStart(), Role::QueryStart);
          set(op.getSeqLens(), Role::SeqLens);
          set(op.getDecodes(), Role::Decodes);
          set(op.getRows(), Role::Rows);
        })
        .Case<FilterIndicesOp>([&](auto op) {
          set(op.getIndices(), Role::Positions);
          if (op.getTable())
            setTable(op.getTable(), *op.getBlockSize(), op.getBlockStride());
          set(op.getReq(), Role::Req);
        })
        .Case<GatherBlocksOp>([&](auto op) {
          setTable(op.getTable(), op.getBlockSize(), op.getBlockSize());
          set(op.getLengths(), Role::SeqLens);
        })
        .Case<GatherGateOp>([&](auto op) {
          set(op.getQueryStart(), Role::QueryStart);
          set(op.getDecodes(), Role::Decodes);
        })
        .Case<GatherKvStartOp>([&](auto op) {
          auto blocks = dyn_cast_or_null<GatherBlocksOp>(
              findProducer(op.getBlocks(), signature.entry));
          for (Value source : op.getSources())
            if (blocks)
              setCache(source, blocks.getTable(), op.getBlockSize(),
                       op.getBlockStride());
            else
              set(source, Role::Cache);
        })
        .Case<GatheredSlotsOp>([&](auto op) {
          set(op.getIndices(), Role::Positions);
          set(op.getReq(), Role::Req);
        })
        .Case<GatherQueryOp>([&](auto op) {
          for (Value source : op.getSources())
            set(source, Role::RowData);
        })
        .Case<GatherRowsOp>([&](auto op) {
          for (Value source : op.getSources())
            if (isFloat(*getElement(source.getType())))
              set(source, Role::RowData);
        })
        .Case<ReduceHeadsOp>(
            [&](auto op) { set(op.getSource(), Role::RowData); })
        .Case<WeighPartialOp>(
            [&](auto op) { set(op.getPartial(), Role::RowData); })
        .Case<CombineLseOp>([&](auto op) {
          set(op.getPartial(), Role::RowData);
          set(op.getPartialLse(), Role::RowData);
          set(op.getSink(), Role::Sink);
        })
        .Case<ShardLengthsOp>([&](auto op) {
          set(op.getQueryStart(), Role::QueryStart);
          set(op.getSeqLens(), Role::SeqLens);
        })
        .Case<CountChunkRowsOp, ChunkSplitOp, ChunkLengthsOp>([&](auto op) {
          set(op.getQueryStart(), Role::QueryStart);
          set(op.getDecodes(), Role::Decodes);
          set(op.getRows(), Role::Rows);
          if constexpr (std::is_same_v<decltype(op), ChunkLengthsOp>)
            set(op.getSeqLens(), Role::SeqLens);
        })
        .Case<ChunkSlotsOp>([&](auto op) {
          set(op.getSlots(), Role::SlotMap);
          set(op.getQueryStart(), Role::QueryStart);
          set(op.getDecodes(), Role::Decodes);
        })
        .Case<WriteRowsOp>([&](auto op) {
          writes.push_back(op);
          set(op.getSource(), Role::RowData);
          set(op.getSlots(), Role::SlotMap);
          set(op.getCache(), Role::Cache);
          Argument *slots = find(op.getSlots()), *cache = find(op.getCache());
          if (slots && cache)
            slots->cache = cache - signature.arguments.data();
          auto tokens = dyn_cast_or_null<TokenSlotsOp>(
              findProducer(op.getSlots(), signature.entry));
          if (tokens && tokens.getMeshAttr())
            setCache(op.getCache(), tokens.getTable(), tokens.getBlockSize(),
                     tokens.getBlockStride());
          else if (tokens && findView(tokens.getTable()))
            setPages(op, op.getCache(), tokens.getTable(),
                     tokens.getBlockSize(), tokens.getBlockStride());
        })
        .Case<ReplicatedTableOp>(
            [&](auto op) { set(op.getLengths(), Role::SeqLens); })
        .Case<DraftLengthsOp>([&](auto op) {
          set(op.getLengths(), Role::SeqLens);
          visitDraft(op);
        })
        .Case<TokenSlotsOp>([&](auto op) {
          setTable(op.getTable(), op.getBlockSize(), op.getBlockStride());
          setRows(op.getReq(), op.getVisible());
        })
        .Case<UnpackRowsOp>([&](auto op) {
          set(op.getPacked(), Role::RowData);
          setFormat(op.getPacked(), op.getFormat());
        })
        .Case<PackRowsOp>([&](auto op) { set(op.getRows(), Role::RowData); })
        .Case<LocalRowsOp>([&](auto op) {
          set(op.getIds(), Role::TokenIds);
          set(op.getOffsets(), Role::Offsets);
          set(op.getDecodes(), Role::Decodes);
        })
        .Case<TakeRowsOp>([&](auto op) {
          // A weak statement: the op that gets the rows says more.
          if (isFloat(*getElement(op.getSource().getType())))
            set(op.getSource(), Role::RowData);
          set(op.getRows(), Role::RowIds);
        })
        .Case<ExchangeOp>([&](auto op) {
          if (op.getDirection() == Direction::HeadsToTokens)
            for (Value source : op.getSources())
              set(source, Role::RowData);
          set(op.getIds(), Role::TokenIds);
          set(op.getOffsets(), Role::Offsets);
          set(op.getDecodes(), Role::Decodes);
          set(op.getAfter(), Role::After);
        })
        .Case<linalg::LinalgOp>([&](auto op) { visitProjection(op); });
  }

  /// Rows that are written have the format of their cache, which readers know.
  void setWrittenFormats() {
    for (WriteRowsOp write : writes)
      if (Argument *cache = find(write.getCache()); cache && cache->format)
        setFormat(write.getSource(), cache->format);
  }

private:
  Argument *find(Value value) {
    if (!value)
      return nullptr;
    BlockArgument argument = findArgument(value, signature.entry);
    return argument ? &signature.arguments[argument.getArgNumber()] : nullptr;
  }

  void set(Value value, Role role) {
    Argument *argument = find(value);
    if (!argument)
      return;
    bool weak = role == Role::RowData;
    if (argument->role == Role::Unknown || !weak)
      argument->role = role;
  }

  /// Weights of which a projection is as large as what it is made of.
  void visitProjection(linalg::LinalgOp op) {
    std::optional<unsigned> input = findProjectedInput(op);
    if (!input)
      return;
    set(op->getOperand(*input), Role::RowData);
    set(op->getOperand(1 - *input), Role::Projection);
    Argument *weights = find(op->getOperand(1 - *input));
    auto type = dyn_cast<RankedTensorType>(op->getOperand(*input).getType());
    if (weights && type && type.getRank() && type.getShape().back() > 0)
      weights->scale = 1 / std::sqrt(double(type.getShape().back()));
  }

  /// Lengths of a draft step may be counted from those of another.
  void visitDraft(DraftLengthsOp op) {
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    int64_t tokens = 0;
    std::optional<unsigned> given;
    for (; op; op = dyn_cast_or_null<DraftLengthsOp>(
                   findProducer(op.getLengths(), signature.entry))) {
      std::optional<int64_t> step = getConstantIntValue(op.getStep());
      if (Argument *argument = find(op.getStep()))
        given = argument - signature.arguments.data();
      else if (step)
        tokens += std::clamp<int64_t>(*step, -1, most) + 1;
      tokens = std::min(tokens, most);
    }
    if (given)
      signature.draftSteps.push_back({*given, tokens});
    else
      signature.draftTokens = std::max(signature.draftTokens, tokens);
  }

  void setRows(Value req, Value visible) {
    set(req, Role::Req);
    set(visible, Role::Visible);
  }

  /// Of a table that is a view, what it is made from.
  void setTable(Value table, int64_t blockSize, int64_t blockStride) {
    if (ReplicatedTableOp view = findView(table))
      table = view.getTable();
    set(table, Role::Table);
    signature.blockSize = blockSize;
    if (Argument *argument = find(table)) {
      argument->blockSize = blockSize;
      argument->blockStride = std::max(argument->blockStride, blockStride);
    }
  }

  void setCache(Value cache, Value table, int64_t blockSize,
                int64_t blockStride) {
    set(cache, Role::Cache);
    Argument *argument = find(cache);
    if (!argument)
      return;
    Argument *source = find(table);
    int number = source ? int(source - signature.arguments.data()) : -1;
    argument->hasOtherTable |=
        argument->table >= 0 &&
        (argument->table != number || argument->blockSize != blockSize);
    argument->blockSize = blockSize;
    argument->blockStride = std::max(argument->blockStride, blockStride);
    if (source)
      argument->table = number;
  }

  ReplicatedTableOp findView(Value table) {
    return dyn_cast_or_null<ReplicatedTableOp>(
        findProducer(table, signature.entry));
  }

  void setFormat(Value rows, PackedRowsAttr format) {
    Argument *argument = find(rows);
    auto type = argument ? dyn_cast<RankedTensorType>(argument->type) : nullptr;
    // Columns of other rows are no packed ones.
    if (type && type.getRank() == 2 &&
        type.getDimSize(1) == format.getNumBytes())
      argument->format = format;
  }

  /// A cache that each rank has whole, and its table or what that is made from.
  void setPages(Operation *op, Value cache, Value table, int64_t blockSize,
                int64_t blockStride) {
    ReplicatedTableOp view = findView(table);
    Value source = view ? view.getTable() : table;
    setTable(source, blockSize, blockStride);
    setCache(cache, source, blockSize, blockStride);
    AxisAttr over;
    if (view)
      over = lookupMeshAxis(view, view.getMeshAttr(), view.getAxis()).axis;
    // The view of one rank is the table.
    if (!view || over.getSize() == 1) {
      setSharding(cache, op, {});
      setSharding(source, op, {});
      return;
    }
    if (Argument *argument = find(cache)) {
      argument->viewAxis = over;
      argument->blocksPerBlock = view.getBlocksPerBlock();
    }
  }

  void setSharding(Value value, Operation *op, ShardingAttr sharding) {
    Argument *argument = find(value);
    if (!argument)
      return;
    if (getNumKvRanks(op, sharding) == 1) {
      argument->isWhole = true;
      return;
    }
    MeshAxis over =
        lookupMeshAxis(op, sharding.getMesh(), sharding.getKv().front());
    // Two shardings of one argument are one too many.
    argument->isWhole |=
        argument->kvAxis && (argument->kvAxis != over.axis ||
                             argument->interleave != sharding.getInterleave());
    argument->kvAxis = over.axis;
    argument->interleave = sharding.getInterleave();
  }

  void visitAttention(SparseMlaOp op) {
    for (Value part : op.getQ()) {
      set(part, Role::Query);
      if (Argument *argument = find(part))
        argument->scale = op.getScale().convertToDouble() *
                          std::sqrt(double(op.getQueryDim()));
    }
    set(op.getSlots(), Role::Slots);
    set(op.getReq(), Role::Req);
    set(op.getTopkLength(), Role::TopkLength);
    set(op.getSink(), Role::Sink);
    set(op.getKv(), Role::Cache);
    if (PackedRowsAttr format = op.getKvFormatAttr())
      setFormat(op.getKv(), format);
    signature.topk =
        std::max(signature.topk,
                 cast<ShapedType>(op.getSlots().getType()).getDimSize(1));
    Argument *kv = find(op.getKv());
    setSharding(op.getKv(), op, op.getShardingAttr());
    if (auto convert = dyn_cast_or_null<ConvertIndicesOp>(
            findProducer(op.getSlots(), signature.entry))) {
      setCache(op.getKv(), convert.getTable(), convert.getBlockSize(),
               convert.getBlockStride());
      setSharding(convert.getTable(), op, op.getShardingAttr());
      if (kv)
        kv->hasWorkspace |= convert.getPrefillReq() != nullptr;
    } else if (auto filter = dyn_cast_or_null<FilterIndicesOp>(
                   findProducer(op.getSlots(), signature.entry));
               filter && filter.getTable()) {
      setCache(op.getKv(), filter.getTable(), *filter.getBlockSize(),
               filter.getBlockStride());
    } else if (Argument *slots = find(op.getSlots()); slots && kv) {
      // Caches that one argument's slots point into have one set of pages.
      int cache = kv - signature.arguments.data();
      if (slots->cache >= 0 && slots->cache != cache)
        kv->table = slots->cache;
      else
        slots->cache = cache;
    }
  }

  Signature &signature;
  SmallVector<WriteRowsOp> writes;
};

} // namespace

/// Name of an argument in the text, or its number.
static std::string getName(BlockArgument argument,
                           const AsmParserState *names) {
  std::string number = std::to_string(argument.getArgNumber());
  const AsmParserState::BlockDefinition *block =
      names ? names->getBlockDef(argument.getOwner()) : nullptr;
  if (!block || argument.getArgNumber() >= block->arguments.size())
    return number;
  SMRange range = block->arguments[argument.getArgNumber()].loc;
  if (!range.isValid())
    return number;
  StringRef text(range.Start.getPointer(),
                 range.End.getPointer() - range.Start.getPointer());
  return text.ltrim('%').str();
}

/// Fills element and split of an argument or result; an error in its name.
template <typename T>
static llvm::Error fill(T &value, Type type, Attribute split, MeshOp mesh,
                        const llvm::Twine &what) {
  value.type = type;
  std::optional<Element> element = getElement(type);
  if (!element || isa<MemRefType, UnrankedTensorType>(type) ||
      (isa<ShapedType>(type) && !isa<RankedTensorType>(type))) {
    std::string text;
    llvm::raw_string_ostream(text) << type;
    return makeError(what + " has type " + text +
                     "; ranked tensors and scalars of bf16, f16, f32, i1, "
                     "i8, f8E4M3FN, f8E5M2, i32, i64 and index can be passed");
  }
  value.element = *element;
  value.split = dyn_cast_or_null<SplitAttr>(split);
  // The dialect verifies that mesh, axis and dimension exist, but a function
  // may name another mesh than the one that the ranks form.
  if (value.split) {
    if (!mesh || value.split.getMesh().getValue() != mesh.getSymName())
      return makeError(what + " is split over another mesh than the module's");
    value.splitAxis = mesh.lookupAxis(value.split.getAxis().getValue());
  }
  return llvm::Error::success();
}

/// Axes over which ranks have shards of the step's rows.
static llvm::SmallSetVector<StringAttr, 2> findShardAxes(func::FuncOp entry) {
  llvm::SmallSetVector<StringAttr, 2> axes;
  for (func::FuncOp function : getReachable(entry))
    function.walk([&](Operation *op) {
      if (auto attention = dyn_cast<SparseMlaOp>(op)) {
        ShardingAttr sharding = attention.getShardingAttr();
        if (sharding && sharding.getOrder() == TokenOrder::Contiguous)
          axes.insert_range(sharding.getTokens());
      }
      if (auto gather = dyn_cast<GatherRowsOp>(op);
          gather && gather.getTokenShards())
        axes.insert(gather.getAxisAttr());
      if (auto merge = dyn_cast<CombineLseOp>(op);
          merge && merge.getScatterTokens())
        axes.insert(merge.getAxisAttr());
      if (auto lengths = dyn_cast<ShardLengthsOp>(op))
        axes.insert(lengths.getAxisAttr());
    });
  return axes;
}

/// Whether the type is that of the argument's global array, not split.
static bool isWhole(const Argument &argument, Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return argument.split && tensor && getElement(tensor) == argument.element &&
         tensor.getShape() == ArrayRef(argument.getGlobalShape());
}

llvm::Expected<Signature> run::adaptSignature(const Signature &signature,
                                              ModuleOp changed,
                                              StringRef name) {
  Signature adapted = signature;
  auto entry = changed.lookupSymbol<func::FuncOp>(name);
  if (!entry || entry.getNumArguments() != signature.arguments.size())
    return adapted;
  for (auto [i, argument] : llvm::enumerate(adapted.arguments)) {
    Type type = entry.getArgumentTypes()[i];
    Attribute split = entry.getArgAttr(i, kSplitAttrName);
    if (!isa<TensorType>(type) ||
        (type == argument.type && split == argument.split))
      continue;
    if (!split && isWhole(argument, type)) {
      argument.type = type;
      argument.split = {};
      continue;
    }
    std::string text;
    llvm::raw_string_ostream(text)
        << "argument %" << argument.name << " is " << argument.type
        << ", and the passes make it " << type << (split ? "" : " of no split")
        << ": run shardq-opt first, and what it makes here";
    return makeError(text);
  }
  return adapted;
}

/// Finds results that differ between ranks as their parts of caches do.
static void setOwnParts(Signature &signature) {
  func::FuncOp entry = signature.entry;
  auto isOwn = [&](BlockArgument value) {
    const Argument &argument = signature.arguments[value.getArgNumber()];
    return argument.kvAxis || argument.viewAxis;
  };
  // Of several returns nobody says which one it is.
  if (!entry.getBody().hasOneBlock())
    return;
  Operation *end = entry.getBody().front().getTerminator();
  for (auto [result, value] :
       llvm::zip_equal(signature.results, end->getOperands())) {
    BlockArgument cache = findWritten(value, entry);
    if (cache && isOwn(cache) &&
        signature.arguments[cache.getArgNumber()].role == Role::Cache) {
      result.cache = int(cache.getArgNumber());
      continue;
    }
    forEachSource(value, entry, [&](BlockArgument source) {
      if (isOwn(source))
        result.ownPart = int(source.getArgNumber());
    });
  }
}

llvm::Expected<Signature> run::analyzeSignature(func::FuncOp entry,
                                                const AsmParserState *names) {
  Signature signature;
  signature.entry = entry;
  for (MeshOp mesh : entry->getParentOfType<ModuleOp>().getOps<MeshOp>()) {
    if (signature.mesh)
      return makeError("the module has more than one mesh");
    signature.mesh = mesh;
  }
  for (BlockArgument value : entry.getArguments()) {
    unsigned i = value.getArgNumber();
    Argument argument;
    argument.name = getName(value, names);
    if (llvm::Error error =
            fill(argument, value.getType(), entry.getArgAttr(i, kSplitAttrName),
                 signature.mesh, "argument %" + argument.name))
      return error;
    signature.arguments.push_back(std::move(argument));
  }
  llvm::SmallSetVector<StringAttr, 2> shardAxes = findShardAxes(entry);
  for (auto [i, type] : llvm::enumerate(entry.getResultTypes())) {
    Result result;
    if (llvm::Error error =
            fill(result, type, entry.getResultAttr(i, kSplitAttrName),
                 signature.mesh, "result " + llvm::Twine(i)))
      return error;
    result.isShard = result.split && result.split.getDim() == 0 &&
                     shardAxes.contains(result.split.getAxis());
    signature.results.push_back(result);
  }
  RoleFinder finder(signature);
  for (func::FuncOp function : getReachable(entry))
    function.walk([&](Operation *op) { finder.visit(op); });
  finder.setWrittenFormats();
  // A map of slots is one for the cache it writes.
  for (Argument &argument : signature.arguments)
    if (argument.role == Role::SlotMap && argument.cache >= 0) {
      const Argument &cache = signature.arguments[argument.cache];
      argument.kvAxis = cache.kvAxis;
      argument.interleave = cache.interleave;
      argument.table = cache.table;
    }
  setOwnParts(signature);
  return signature;
}
