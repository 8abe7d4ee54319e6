//===- Verify.cpp - Original, rewritten and reference, compared -----------===//

#include "Verify.h"
#include "SplitDecision.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <cstring>
#include <numeric>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

/// Rows shown of each result that differs.
static constexpr int kShownRows = 5;
/// Units of the output type that a result may be off.
static constexpr double kAllowedUlps = 2;
static constexpr double kAllowedLse = 1e-5;
/// Relative error of a row whose weights were rounded to 16 bits.
static constexpr double kAllowedRounded = 2.5e-3;
/// Of one that was merged from partial outputs of 16 bits: each of them brings
/// a rounding of its own, at most 2^-9 (bf16), which is independent.
static constexpr double kAllowedMerged = 3.2e-3;

//===----------------------------------------------------------------------===//
// Taps
//===----------------------------------------------------------------------===//

/// Its slots are those of whichever rank keeps a token, which the rewritten
/// program has no equal of.
static bool addressesShardedKv(Operation *op) {
  return llvm::any_of(op->getUsers(), [](Operation *user) {
    if (isa<tensor::CastOp>(user))
      return addressesShardedKv(user);
    auto attention = dyn_cast<SparseMlaOp>(user);
    return attention && getNumKvRanks(user, attention.getShardingAttr()) > 1;
  });
}

/// The program with whole KV caches, which needs no rewrite to run.
/// A table of a whole cache is that of both caches, and finds all tokens.
static OwningOpRef<ModuleOp> cloneWithWholeKv(ModuleOp module) {
  OwningOpRef<ModuleOp> clone = module.clone();
  clone->walk([](ReplicatedTableOp op) {
    OpBuilder builder(op);
    op->getResult(0).replaceAllUsesWith(
        tensor::CastOp::create(builder, op.getLoc(), op->getResult(0).getType(),
                               op.getTable())
            .getResult());
    op.erase();
  });
  clone->walk([](TokenSlotsOp op) {
    op.removeMeshAttr();
    op.removeAxisAttr();
    op.removeInterleaveAttr();
  });
  clone->walk([](SparseMlaOp op) {
    ShardingAttr sharding = op.getShardingAttr();
    if (sharding && sharding.isOverKv())
      op.setShardingAttr(ShardingAttr::get(
          op.getContext(), sharding.getMesh(), sharding.getHeads(),
          sharding.getOrder(), sharding.getTokens()));
  });
  return clone;
}

void run::insertTaps(func::FuncOp entry) {
  int64_t topks = 0, conversions = 0;
  for (func::FuncOp function : getReachable(entry))
    function.walk([&](Operation *op) {
      std::string name;
      if (isa<IndexerOp, TopKOp>(op))
        name = "topk." + std::to_string(topks++);
      else if (isa<ConvertIndicesOp>(op) && !addressesShardedKv(op))
        name = "slots." + std::to_string(conversions++);
      if (name.empty() || op->getNumResults() == 0)
        return;
      OpBuilder builder(op->getContext());
      builder.setInsertionPointAfter(op);
      TapOp::create(builder, op->getLoc(), name, op->getResult(0), Value());
    });
}

namespace {

/// One tapped value in the making.
struct PartialTap {
  Array array;
  std::vector<bool> covered;
};

} // namespace

llvm::Expected<TapTable> run::assembleTaps(const RunOutcome &outcome,
                                           int64_t numRows,
                                           std::vector<std::string> &problems,
                                           const TapRows &rows) {
  std::map<std::string, std::vector<PartialTap>> partial;
  for (auto [rank, one] : llvm::enumerate(outcome.ranks)) {
    std::map<std::string, size_t> turns;
    for (const TapRecord &tap : one.taps) {
      // The calls of a turn hold rows of one value.
      size_t turn = turns[tap.name]++ / rows.calls;
      std::vector<PartialTap> &values = partial[tap.name];
      SmallVector<int64_t, 4> shape(tap.shape.begin(), tap.shape.end());
      bool isShard = rows.shards > 1 && !tap.rows && !shape.empty() &&
                     shape[0] * rows.shards == numRows;
      if ((tap.rows || isShard) && !shape.empty())
        shape[0] = numRows;
      std::string what = tap.name + " on rank " + std::to_string(rank);
      if (turn >= values.size()) {
        llvm::Expected<Array> array = allocateArray(
            tap.elementBytes == 8 ? Element::I64 : Element::I32, shape, what);
        if (!array)
          return array.takeError();
        values.push_back({*array, std::vector<bool>(array->getNumRows())});
      }
      PartialTap &value = values[turn];
      int64_t rowBytes = value.array.getRowElements() * tap.elementBytes;
      int64_t recorded = tap.shape.empty() ? 1 : tap.shape[0];
      if (value.array.shape != shape ||
          int64_t(tap.data.size()) != recorded * rowBytes ||
          (tap.rows && int64_t(tap.rows->size()) < recorded)) {
        problems.push_back(what + " has another shape than on rank 0");
        continue;
      }
      int64_t firstRow = isShard ? rows.getShard(rank) * recorded : 0;
      for (int64_t i = 0; i < recorded; ++i) {
        int64_t row = tap.rows ? (*tap.rows)[i] : firstRow + i;
        if (row == -1 && tap.rows)
          continue; // padding of chunks
        if (row < 0 || row >= value.array.getNumRows()) {
          problems.push_back(what + " names row " + std::to_string(row) +
                             " of " + std::to_string(numRows));
          break;
        }
        char *target = value.array.data.get() + row * rowBytes;
        const char *source = tap.data.data() + i * rowBytes;
        if (!value.covered[row]) {
          std::memcpy(target, source, rowBytes);
          value.covered[row] = true;
        } else if (std::memcmp(target, source, rowBytes) != 0) {
          problems.push_back(what + " differs from another rank in row " +
                             std::to_string(row));
          break;
        }
      }
    }
  }
  TapTable taps;
  for (auto &[name, values] : partial)
    for (PartialTap &value : values) {
      int64_t rowBytes =
          value.array.getRowElements() * getElementBytes(value.array.element);
      for (int64_t row = rows.tokens, e = value.covered.size(); row < e; ++row)
        if (!value.covered[row]) {
          std::memset(value.array.data.get() + row * rowBytes, 0xff, rowBytes);
          value.covered[row] = true;
        }
      auto missing = llvm::find(value.covered, false);
      if (missing != value.covered.end())
        problems.push_back(name + ": no rank has row " +
                           std::to_string(missing - value.covered.begin()));
      taps[name].push_back(std::move(value.array));
    }
  return taps;
}

/// Shards of the step's rows, of which the program is given this rank's.
static TapRows findShards(const Signature &signature) {
  TapRows rows;
  for (const Argument &argument : signature.arguments) {
    if (!isRowRole(argument.role) || !argument.split ||
        argument.split.getDim() != 0)
      continue;
    AxisAttr axis = argument.splitAxis;
    rows.shards = axis.getSize();
    rows.getShard = [&signature, axis](int64_t rank) {
      return signature.getBlock(axis, rank);
    };
    break;
  }
  return rows;
}

/// Rows, top-k indices and slots of the two programs are equal to the bit.
static void compareTaps(const TapTable &original, const TapTable &rewritten,
                        std::vector<std::string> &problems) {
  for (const auto &[name, values] : original) {
    auto found = rewritten.find(name);
    if (found == rewritten.end() || found->second.size() != values.size()) {
      problems.push_back("the rewritten program does not compute " + name);
      continue;
    }
    for (auto [a, b] : llvm::zip(values, found->second)) {
      int64_t width = std::max<int64_t>(a.getRowElements(), 1);
      int shown = 0;
      if (a.shape != b.shape)
        problems.push_back(name + " is " + describe(a) +
                           " in the program as given, " + describe(b) +
                           " in the rewritten one");
      else
        for (int64_t i = 0, e = a.getNumElements(); i < e; ++i)
          if (a.getInt(i) != b.getInt(i) && shown++ < kShownRows) {
            problems.push_back(
                name + " row " + std::to_string(i / width) + ", column " +
                std::to_string(i % width) + ": " + std::to_string(a.getInt(i)) +
                " in the program as given, " + std::to_string(b.getInt(i)) +
                " in the rewritten one");
            i += width - 1 - i % width;
          }
    }
  }
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

namespace {

struct Difference {
  double size = 0; // for the report
  bool allowed = true;
};

} // namespace

static Difference measure(const Array &computed,
                          const ReferenceValue &reference, int64_t i) {
  if (reference.kind == ReferenceValue::Plain) {
    int64_t bytes = getElementBytes(computed.element);
    bool same = std::memcmp(computed.data.get() + i * bytes,
                            reference.array.data.get() + i * bytes, bytes) == 0;
    return {same ? 0.0 : 1.0, same};
  }
  double value = computed.getFloat(i), exact = reference.exact[i];
  // Infinities and exact zeros (no valid key) have no neighbours.
  if (value == exact)
    return {};
  double error = std::abs(value - exact);
  if (!std::isfinite(error))
    return {error, false};
  if (reference.kind == ReferenceValue::Lse) {
    double more = reference.bound.empty() ? 0 : reference.bound[i];
    return {error,
            error <= kAllowedLse * std::max(1.0, std::abs(exact)) + more};
  }
  double bound = reference.bound[i];
  if (bound == 0 && exact == 0)
    return {error / getUlp(computed.element, 0), false};
  double ulps = std::max(error - bound, 0.0) / getUlp(computed.element, exact);
  return {ulps, ulps <= kAllowedUlps};
}

double run::compareResult(const Array &computed,
                          const ReferenceValue &reference,
                          const llvm::Twine &what,
                          std::vector<std::string> &problems) {
  if (computed.shape != reference.array.shape ||
      computed.element != reference.array.element) {
    problems.push_back((what + " is " + describe(computed) + ", expected " +
                        describe(reference.array))
                           .str());
    return std::numeric_limits<double>::infinity();
  }
  double largest = 0;
  int shown = 0;
  int64_t width = std::max<int64_t>(computed.getRowElements(), 1);
  int64_t lastRow = -1, badRows = 0;
  for (int64_t i = 0, e = computed.getNumElements(); i < e; ++i) {
    Difference difference = measure(computed, reference, i);
    if (!(difference.size <= largest))
      largest = difference.size;
    if (difference.allowed || i / width == lastRow)
      continue;
    lastRow = i / width;
    ++badRows;
    if (shown++ >= kShownRows)
      continue;
    std::string place = "row " + std::to_string(lastRow);
    int64_t inner = i % width;
    if (computed.shape.size() == 3)
      place += ", head " + std::to_string(inner / computed.shape[2]) +
               ", element " + std::to_string(inner % computed.shape[2]);
    else if (computed.shape.size() == 2)
      place += ", column " + std::to_string(inner);
    double exact = reference.kind == ReferenceValue::Plain
                       ? reference.array.getFloat(i)
                       : reference.exact[i];
    problems.push_back((what + " " + place + ": " +
                        formatNumber(computed.getFloat(i)) + ", reference " +
                        formatNumber(exact))
                           .str());
  }
  if (badRows > kShownRows)
    problems.push_back((what + ": " + llvm::Twine(badRows) + " of " +
                        llvm::Twine(computed.getNumRows()) + " rows differ")
                           .str());
  return largest;
}

double run::compareRoundedRows(const Array &computed,
                               const ReferenceValue &reference, double allowed,
                               const llvm::Twine &what,
                               std::vector<std::string> &problems) {
  if (reference.kind != ReferenceValue::Attention ||
      computed.shape != reference.array.shape ||
      computed.element != reference.array.element)
    return compareResult(computed, reference, what, problems);
  double largest = 0;
  int64_t width = computed.getRowElements(), badRows = 0;
  for (int64_t row = 0, e = computed.getNumRows(); row < e; ++row) {
    double error = 0, size = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      double exact = reference.exact[i], off = computed.getFloat(i) - exact;
      error += off * off;
      size += exact * exact;
    }
    // A row without keys is zero, to the bit.
    double relative = error == 0 ? 0 : std::sqrt(error / size);
    if (!(relative <= largest))
      largest = relative;
    if (relative <= allowed || badRows++ >= kShownRows)
      continue;
    problems.push_back((what + " row " + llvm::Twine(row) +
                        ": relative error " + formatNumber(relative) +
                        ", allowed " + formatNumber(allowed))
                           .str());
  }
  if (badRows > kShownRows)
    problems.push_back((what + ": " + llvm::Twine(badRows) + " of " +
                        llvm::Twine(computed.getNumRows()) + " rows differ")
                           .str());
  return largest;
}

//===----------------------------------------------------------------------===//
// Split and gate
//===----------------------------------------------------------------------===//

/// The rows that a rank computes under the decision.
static std::vector<int32_t> getRankRows(const SplitDecision &decision,
                                        const Step &step, int64_t member) {
  std::vector<int32_t> rows;
  if (!decision.chunks.empty()) {
    for (ArrayRef<int32_t> call : decision.chunks[member])
      llvm::copy_if(call, std::back_inserter(rows),
                    [](int32_t row) { return row >= 0; });
    return rows;
  }
  int64_t whole = decision.open ? step.getDecodeRows() : step.getNumRows();
  rows.reserve(step.getNumRows());
  for (int64_t row = 0; row < whole; ++row)
    rows.push_back(int32_t(row));
  if (decision.open)
    for (int32_t i = decision.offsets[member]; i < decision.offsets[member + 1];
         ++i)
      rows.push_back(int32_t(step.getDecodeRows()) + decision.ids[i]);
  return rows;
}

/// The tapped rows of every rank against the split, and the gate against what
/// the program did.
static void checkSplit(const RunOutcome &outcome, const SplitDecision &decision,
                       const Signature &signature, const Step &step,
                       std::vector<std::string> &problems) {
  for (auto [rank, one] : llvm::enumerate(outcome.ranks)) {
    int64_t member =
        decision.axis ? signature.getBlock(decision.axis, rank) : 0;
    std::map<std::string, size_t> turns;
    for (const TapRecord &tap : one.taps) {
      if (!decision.chunks.empty() && tap.rows) {
        const auto &calls = decision.chunks[member];
        if (*tap.rows == calls[turns[tap.name]++ % calls.size()])
          continue;
        problems.push_back(tap.name + " on rank " + std::to_string(rank) +
                           " holds other rows than those of its chunks");
        return;
      }
      if (!decision.gatedTaps.contains(tap.name))
        continue;
      if (tap.rows.has_value() != decision.open) {
        problems.push_back(tap.name + " on rank " + std::to_string(rank) +
                           " ran " +
                           (tap.rows ? "token-sharded" : "head-sharded") +
                           ", but the gate is " + decision.text);
        return;
      }
      if (tap.rows && *tap.rows != getRankRows(decision, step, member)) {
        problems.push_back(tap.name + " on rank " + std::to_string(rank) +
                           " holds other rows than the zigzag split's");
        return;
      }
    }
  }
}

/// Work of a rank on `rows`; of those before `headSharded` it computes its own
/// heads alone, a part of `members`.
static RankReport countWork(ArrayRef<int32_t> rows, int64_t headSharded,
                            int64_t members, const Step &step, int64_t topk) {
  std::vector<int32_t> visible = step.getRowVisible();
  RankReport work;
  work.tokens = rows.size();
  for (int32_t row : rows) {
    int64_t attended = visible[row];
    if (topk > 0)
      attended = std::min(attended, topk);
    work.indexerWork += visible[row];
    work.attentionWork += double(attended) / (row < headSharded ? members : 1);
  }
  return work;
}

/// The same of a program whose ranks are given shards of the rows, with all
/// heads.
static void measureShards(const TapRows &shards, VerifyReport &report,
                          int64_t topk) {
  int64_t rows = report.step.getNumRows() / shards.shards;
  for (int64_t rank = 0; rank < report.numRanks; ++rank) {
    std::vector<int32_t> own(rows);
    std::iota(own.begin(), own.end(), int32_t(shards.getShard(rank) * rows));
    report.ranks.push_back(countWork(own, 0, 1, report.step, topk));
  }
  report.before = report.ranks.front();
}

static void measureWork(const SplitDecision &decision,
                        const Signature &signature, VerifyReport &report) {
  const Step &step = report.step;
  // A program without a gate is taken to shard its heads over all ranks.
  int64_t members =
      decision.hasGate ? decision.axis.getSize() : report.numRanks;
  if (!decision.chunks.empty())
    members /= decision.axis.getSize();
  TapRows shards = findShards(signature);
  if (shards.shards > 1)
    return measureShards(shards, report, signature.topk);
  SplitDecision closed = decision;
  closed.open = false;
  closed.chunks.clear();
  report.before = countWork(getRankRows(closed, step, 0), step.getNumRows(),
                            members, step, signature.topk);
  for (int64_t rank = 0; rank < report.numRanks; ++rank) {
    int64_t member =
        decision.axis ? signature.getBlock(decision.axis, rank) : 0;
    report.ranks.push_back(
        countWork(getRankRows(decision, step, member),
                  decision.open ? step.getDecodeRows() : step.getNumRows(),
                  members, step, signature.topk));
  }
}

//===----------------------------------------------------------------------===//
// All together
//===----------------------------------------------------------------------===//

/// What comes out of a rank's own part of a cache is put together where it is
/// that part.
static llvm::Error checkResults(const Signature &signature) {
  for (auto [i, result] : llvm::enumerate(signature.results))
    if (result.ownPart >= 0)
      return makeError(
          "result " + llvm::Twine(i) + " is made of argument %" +
          signature.arguments[result.ownPart].name +
          ", of which each rank has its own, and cannot be compared: only the "
          "cache itself and what attends it can");
  return llvm::Error::success();
}

/// Only programs before any distribution have a meaning on global arrays.
static llvm::Error checkLevel(const Signature &signature) {
  for (func::FuncOp function : getReachable(signature.entry)) {
    Operation *found = nullptr;
    function.walk([&](Operation *op) {
      if (isa<ZigzagSplitOp, SplitGateOp, LocalRowsOp, CollectiveOpInterface,
              LocalLengthsOp, FilterIndicesOp, GatherBlocksOp, GatherGateOp,
              GatherKvStartOp, GatheredSlotsOp, GatheredTableOp, PushOp,
              SignalOp, WaitOp, MergeLseOp, WorkspaceOp, PeerViewOp, RankOp,
              CountChunkRowsOp, ChunkSplitOp, ChunkLengthsOp, ChunkSlotsOp>(
              op) &&
          !found)
        found = op;
    });
    if (found)
      return makeError("--verify needs a program before any rewrite, and this "
                       "one has '" +
                       found->getName().getStringRef() +
                       "', which has no meaning on global arrays; it runs "
                       "without --verify");
  }
  return llvm::Error::success();
}

CompileOptions run::getCompileOptions(ModuleOp changed,
                                      const VerifyOptions &options) {
  CompileOptions compile = options.compile;
  bool gathersAll = changed
                        .walk([](GatherBlocksOp op) {
                          return op.getFull() ? WalkResult::interrupt()
                                              : WalkResult::advance();
                        })
                        .wasInterrupted();
  if (gathersAll)
    compile.maxKvTokens = std::max(compile.maxKvTokens, options.tableTokens);
  return compile;
}

llvm::Error run::checkNullBlock(ModuleOp changed, const Inputs &inputs) {
  std::optional<int64_t> other;
  changed.walk([&](GatherBlocksOp op) {
    int64_t none = static_cast<int32_t>(op.getNullBlock());
    if (!op.getFull() && none >= 0 && none != inputs.nullBlock)
      other = none;
  });
  if (!other || !inputs.hasMadeTables)
    return llvm::Error::success();
  return makeError(
      "the program takes block " + llvm::Twine(*other) +
      " for none, and the tables made up here " +
      (inputs.nullBlock < 0
           ? "use every block"
           : "leave block " + std::to_string(inputs.nullBlock) + " free") +
      ": give --null-block=" + llvm::Twine(*other));
}

/// Compiles and runs one program; problems of its ranks go to the report.
static llvm::Expected<RunOutcome>
runProgram(ModuleOp module, const Signature &signature, const Inputs &inputs,
           const VerifyOptions &options, const char *what, Progress &progress,
           VerifyReport &report) {
  progress.begin(std::string("compiling the ") + what);
  auto program = Program::compile(
      module, func::FuncOp(signature.entry).getName(), options.compile);
  if (!program)
    return program.takeError();
  progress.begin(std::string("running the ") + what);
  auto outcome = runRanks(**program, signature, {inputs.arrays},
                          options.numRanks, options.run, progress);
  if (!outcome)
    return outcome.takeError();
  for (auto [rank, one] : llvm::enumerate(outcome->ranks))
    if (!one.ok)
      report.problems.push_back(std::string("the ") + what + ", rank " +
                                std::to_string(rank) + ": " + one.message);
  return outcome;
}

llvm::Expected<VerifyReport>
run::verify(ModuleOp module, const Signature &signature, const Inputs &inputs,
            const VerifyOptions &options, Progress &progress) {
  if (llvm::Error error = checkLevel(signature))
    return error;
  if (llvm::Error error = checkResults(signature))
    return error;
  StringRef entryName = func::FuncOp(signature.entry).getName();
  OwningOpRef<ModuleOp> original = module.clone();
  auto entry = original->lookupSymbol<func::FuncOp>(entryName);
  insertTaps(entry);
  OwningOpRef<ModuleOp> rewritten = original->clone();
  if (llvm::Error error = runPipeline(*rewritten, options.pipeline))
    return error;
  llvm::Expected<Signature> changed =
      adaptSignature(signature, *rewritten, entryName);
  if (!changed)
    return changed.takeError();
  if (llvm::Error error = checkNullBlock(*rewritten, inputs))
    return error;

  VerifyReport report;
  report.step = inputs.step;
  report.numRanks = options.numRanks;
  report.isRounded = options.compile.target == Target::CUDA;
  report.original.allowed = report.rewritten.allowed = kAllowedRounded;
  rewritten->walk([&](Operation *op) {
    if (isa<CombineLseOp, ReduceHeadsOp>(op))
      report.rewritten.allowed = kAllowedMerged;
  });
  VerifyOptions tapped = options;
  tapped.compile = getCompileOptions(*rewritten, options);
  tapped.run.recordTaps = true;
  SplitDecision decision = decideSplit(*rewritten, inputs.step, tapped.compile);
  report.gate = decision.text;
  report.gateOpen = decision.open;
  measureWork(decision, signature, report);

  KvShards alike;
  if (needsTablesAlike(*rewritten)) {
    auto cut = shardCaches(signature, inputs, options.seed, Tables::Alike);
    if (!cut)
      return cut.takeError();
    alike = std::move(*cut);
    tapped.run.shards = alike;
  }
  VerifyOptions whole = tapped;
  whole.run.shards = {};
  OwningOpRef<ModuleOp> runnable = cloneWithWholeKv(*original);
  auto first = runProgram(*runnable, signature, inputs, whole,
                          "program as given", progress, report);
  if (!first)
    return first.takeError();
  auto second = runProgram(*rewritten, *changed, inputs, tapped,
                           "rewritten program", progress, report);
  if (!second)
    return second.takeError();
  report.original.seconds = first->seconds;
  report.rewritten.seconds = second->seconds;
  if (!first->allOk() || !second->allOk())
    return report;

  TapRows rows = findShards(signature);
  auto firstTaps =
      assembleTaps(*first, inputs.step.getNumRows(), report.problems, rows);
  if (!firstTaps)
    return firstTaps.takeError();
  if (!decision.chunks.empty()) {
    rows.calls = decision.chunks[0].size();
    rows.tokens = inputs.step.getNumTokens();
  }
  auto secondTaps =
      assembleTaps(*second, inputs.step.getNumRows(), report.problems, rows);
  if (!secondTaps)
    return secondTaps.takeError();
  compareTaps(*firstTaps, *secondTaps, report.problems);
  checkSplit(*second, decision, signature, inputs.step, report.problems);

  progress.begin("evaluating the reference");
  auto reference =
      evaluateReference(entry, inputs.arrays, *firstTaps, progress);
  if (!reference)
    return reference.takeError();
  report.referenceSeconds = progress.getSeconds();
  llvm::append_range(report.problems, reference->violations);

  for (bool given : {true, false}) {
    const KvShards *shards = given || tapped.run.shards.empty()
                                 ? nullptr
                                 : &tapped.run.shards.front();
    auto results = assembleResults(signature, given ? *first : *second, shards,
                                   inputs.arrays);
    const char *what =
        given ? "the program as given: " : "the rewritten program: ";
    ProgramReport &part = given ? report.original : report.rewritten;
    if (!results) {
      report.problems.push_back(what + llvm::toString(results.takeError()));
      continue;
    }
    for (auto [i, value] : llvm::enumerate(*results)) {
      std::string name = (llvm::Twine(what) + "result " + llvm::Twine(i)).str();
      const ReferenceValue &exact = reference->results[i];
      part.errors.push_back(
          report.isRounded
              ? compareRoundedRows(value, exact, part.allowed, name,
                                   report.problems)
              : compareResult(value, exact, name, report.problems));
    }
    if (!given)
      report.results = std::move(*results);
  }
  for (const ReferenceValue &value : reference->results)
    report.resultKinds.push_back(value.kind);
  progress.clear();
  return report;
}
