//===- SplitDecision.cpp - What a program does with a step ----------------===//

#include "SplitDecision.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "shardq/chunks.h"
#include "shardq/split.h"
#include "shardq/views.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

static const char *describeGate(shardq_gate gate) {
  switch (gate) {
  case SHARDQ_GATE_OPEN:
    return "open";
  case SHARDQ_GATE_FEW_TOKENS:
    return "closed: fewer prefill tokens than min-tokens";
  case SHARDQ_GATE_SHORT_SEQUENCES:
    return "closed: no prefill sequence is longer than top-k";
  case SHARDQ_GATE_PADDING:
    return "closed: padding among the prefill tokens";
  case SHARDQ_GATE_EMPTY_RANK:
    return "closed: a rank would own no token";
  case SHARDQ_GATE_CAPACITY:
    return "closed: the step does not fit the exchange buffers";
  }
  return "closed";
}

/// Blocks of a rank that --shardq-plan-workspace plans for.
static int64_t getPlannedBlocks(GatherGateOp gate, int64_t ranks,
                                const CompileOptions &options) {
  int64_t block = gate.getBlockSize(), run = 1;
  gate->getParentOfType<ModuleOp>().walk([&](GatherBlocksOp op) {
    if (int64_t(op.getBlockSize()) == block)
      run = std::max<int64_t>(
          run, llvm::divideCeil(int64_t(op.getInterleave()), block));
  });
  int64_t whole =
      llvm::divideCeil(options.maxKvTokens, block) + options.maxRequests;
  int64_t shared = llvm::divideCeil(options.maxKvTokens, ranks * block);
  return std::min(shared + run * options.maxRequests, whole);
}

/// Whether the step fits the inbox that --shardq-plan-workspace will plan.
static bool fitsGather(GatherGateOp gate, int64_t interleave, const Step &step,
                       const CompileOptions &options) {
  MeshAxis over = lookupMeshAxis(gate, gate.getMeshAttr(), gate.getAxis());
  int64_t ranks = over.axis.getSize(), block = gate.getBlockSize();
  auto countOwn = [&](int64_t tokens) {
    return int64_t(llvm::divideCeil(
        shardq_local_length(tokens, ranks, 0, interleave), block));
  };
  int64_t blocks = 0;
  for (int64_t r = 0; r < step.getNumRequests(); ++r)
    blocks += countOwn(step.getSeqLen(r));
  // Tables are as wide as the longest request is.
  auto gathered = gate.getCount().getDefiningOp<GatherBlocksOp>();
  if (gathered && gathered.getFull())
    blocks = step.getNumRequests() * countOwn(step.getMaxKvLen());
  return blocks <= getPlannedBlocks(gate, ranks, options);
}

/// What says that there are chunks, where the branch is for steps with some.
static CountChunkRowsOp getChunkGate(scf::IfOp branch) {
  auto compare = branch.getCondition().getDefiningOp<arith::CmpIOp>();
  return compare ? compare.getLhs().getDefiningOp<CountChunkRowsOp>()
                 : CountChunkRowsOp();
}

/// Whether ranks exchange rows of chunks only where there are any.
static bool areChunksGated(ModuleOp module) {
  return module
      .walk([](GatherRowsOp gather) {
        for (Operation *op = gather;
             auto branch = op->getParentOfType<scf::IfOp>(); op = branch)
          if (getChunkGate(branch))
            return WalkResult::interrupt();
        return WalkResult::advance();
      })
      .wasInterrupted();
}

/// Whether --shardq-slice-steps will leave the step without chunks.
static bool isTooLarge(const Step &step, const CompileOptions &options) {
  int64_t rows = step.getNumRows();
  return rows > options.maxTokens ||
         rows + std::min<int64_t>(rows, step.getNumRequests()) >
             options.maxTokens + 2 * options.maxRequests;
}

/// Whether chunks begin behind so many rows, or where keys do not fit, behind
/// all.
static bool areBeforeChunks(Value rows) {
  return llvm::any_of(rows.getUsers(), [](Operation *user) {
    return isa<ChunkSplitOp>(user) ||
           (isa<arith::SelectOp>(user) && areBeforeChunks(user->getResult(0)));
  });
}

/// Rows that are whole on every rank: those of decode requests, or where the
/// rows or the keys of chunks do not fit, all.
static int64_t countWholeRows(Value rows, const Step &step,
                              const CompileOptions &options) {
  if (isTooLarge(step, options) && areBeforeChunks(rows) &&
      areChunksGated(rows.getParentRegion()->getParentOfType<ModuleOp>()))
    return step.getNumRows();
  // Choices by whether rows fit, which are looked at above, and whether keys
  // do.
  while (auto bound = rows.getDefiningOp<arith::SelectOp>()) {
    auto gate = bound.getCondition().getDefiningOp<GatherGateOp>();
    rows = gate ? bound.getTrueValue() : bound.getFalseValue();
    auto blocks = gate ? gate.getCount().getDefiningOp<GatherBlocksOp>()
                       : GatherBlocksOp();
    if (blocks && !fitsGather(gate, blocks.getInterleave(), step, options))
      return step.getNumRows();
  }
  return step.getDecodeRows();
}

/// Whether steps without prefill are none for the gate.
static bool asksForPrefill(GatherGateOp gate) {
  std::optional<int64_t> decodes = getConstantIntValue(gate.getDecodes());
  return !decodes || *decodes >= 0;
}

/// What a program with a sharded KV cache does; nothing of others.
static std::string describeContext(ModuleOp rewritten, const Step &step,
                                   const CompileOptions &options) {
  GatherGateOp gate;
  bool merges = false, gathers = false;
  CountChunkRowsOp chunks;
  rewritten.walk([&](Operation *op) {
    merges |= isa<CombineLseOp, ReduceHeadsOp>(op);
    if (isa<GatherKvStartOp>(op)) {
      gathers = true;
      auto branch = op->getParentOfType<scf::IfOp>();
      if (branch && !chunks)
        chunks = getChunkGate(branch);
    }
    if (auto found = dyn_cast<GatherGateOp>(op); found && !gate)
      gate = found;
  });
  if (!gate && !chunks)
    return merges && gathers
               ? "none: each rank attends gathered keys, with decode rows its "
                 "own"
           : merges  ? "none: each rank attends its own keys"
           : gathers ? "none: each rank attends gathered keys"
                     : "";
  bool isForAll = gate && !asksForPrefill(gate);
  if (!isForAll && step.getDecodeRows() == step.getNumTokens())
    return "closed: no prefill, each rank attends its own keys";
  Value wholeRows = gate ? gate.getDecodes() : chunks.getDecodes();
  if (!isForAll &&
      countWholeRows(wholeRows, step, options) >= step.getNumTokens())
    return "closed: the step does not fit the exchange buffers, each rank "
           "attends its own keys";
  auto blocks =
      gate ? gate.getCount().getDefiningOp<GatherBlocksOp>() : GatherBlocksOp();
  if (blocks && !fitsGather(gate, blocks.getInterleave(), step, options))
    return "closed: the step does not fit the gathered KV, each rank attends "
           "its own keys";
  return "open: each rank attends gathered keys";
}

/// The rows of each rank and call of a step in chunks.
static void decideChunks(ChunkSplitOp split, const Step &step,
                         const CompileOptions &options,
                         SplitDecision &decision) {
  MeshAxis over = lookupMeshAxis(split, split.getMeshAttr(), split.getAxis());
  decision.axis = over.axis;
  int64_t ranks = over.axis.getSize(), requests = step.getNumRequests();
  int64_t decodes = countWholeRows(split.getDecodes(), step, options);
  decision.wholeRows = decodes;
  std::vector<int32_t> start = step.getQueryStart();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    auto &calls = decision.chunks.emplace_back(split.getByPart() ? 2 : 1);
    std::vector<int32_t> rows(
        shardq_chunk_count(start.data(), requests, decodes, ranks));
    std::vector<int32_t> positions(rows.size());
    shardq_chunk_rows(start.data(), requests, decodes, ranks, rank, rows.data(),
                      positions.data());
    if (!split.getByPart()) {
      calls.front() = std::move(rows);
      continue;
    }
    decodes = std::min<int64_t>(decodes, rows.size());
    int64_t prefill = rows.size() - decodes;
    std::vector<int32_t> head(prefill / 2), tail(prefill / 2), full(prefill);
    shardq_chunk_parts(start.data(), requests, decodes, ranks, head.data(),
                       tail.data(), full.data());
    calls[0].assign(rows.begin(), rows.begin() + decodes);
    for (int32_t row : head)
      calls[0].push_back(rows[decodes + row]);
    for (int32_t row : tail)
      calls[1].push_back(rows[decodes + row]);
  }
}

static std::string describeChunks(ModuleOp module, const Step &step,
                                  const SplitDecision &decision) {
  if (!areChunksGated(module))
    return "none: each rank has its chunks of the requests";
  if (step.getDecodeRows() == step.getNumTokens())
    return "closed: no prefill, each rank has all rows";
  if (decision.wholeRows >= step.getNumTokens())
    return "closed: the step does not fit the exchange buffers, each rank has "
           "all rows";
  return "open: each rank has its chunks of the requests";
}

SplitDecision run::decideSplit(ModuleOp rewritten, const Step &step,
                               const CompileOptions &options) {
  SplitDecision decision;
  SplitGateOp gate;
  ZigzagSplitOp split;
  int64_t gates = 0;
  rewritten.walk([&](Operation *op) {
    if (auto found = dyn_cast<SplitGateOp>(op)) {
      ++gates;
      gate = gate ? gate : found;
    }
    if (auto found = dyn_cast<ZigzagSplitOp>(op); found && !split)
      split = found;
    if (auto found = dyn_cast<ChunkSplitOp>(op);
        found && decision.chunks.empty())
      decideChunks(found, step, options, decision);
    // Index ops that run on all rows either way have taps outside a branch.
    auto tap = dyn_cast<TapOp>(op);
    auto branch = tap ? tap->getParentOfType<scf::IfOp>() : scf::IfOp();
    if (branch && branch.getCondition().getDefiningOp<SplitGateOp>())
      decision.gatedTaps.insert(tap.getName());
  });
  // Which of several gates a tap obeys is not told here; its values are
  // compared all the same.
  if (gates > 1)
    decision.gatedTaps.clear();
  std::string context = describeContext(rewritten, step, options);
  if (!split) {
    if (!decision.chunks.empty())
      decision.text = describeChunks(rewritten, step, decision);
    if (!context.empty())
      decision.text = decision.chunks.empty()
                          ? context
                          : decision.text + "; KV: " + context;
    return decision;
  }
  decision.chunks.clear();
  MeshAxis mesh = lookupMeshAxis(split, split.getMeshAttr(), split.getAxis());
  if (!mesh)
    return decision;
  decision.axis = mesh.axis;
  int64_t ranks = mesh.axis.getSize();
  std::vector<int32_t> start = step.getQueryStart(), lens = step.getSeqLens();
  decision.ids.resize(step.getNumRows());
  decision.offsets.resize(ranks + 1);
  shardq_zigzag_split(start.data(), step.getNumRequests(), step.getDecodeRows(),
                      step.getNumRows(), ranks, decision.ids.data(),
                      decision.offsets.data());
  if (!gate)
    return decision;
  decision.hasGate = true;
  // The capacities that --shardq-plan-workspace will give the gate.
  int64_t maxRankRows =
      llvm::divideCeil(options.maxTokens, ranks) + 2 * options.maxRequests;
  shardq_gate result = shardq_split_gate(
      decision.offsets.data(), ranks, start.data(), lens.data(),
      step.getNumRequests(), step.getDecodeRows(), step.getNumRows(),
      gate.getMinTokens(), gate.getTopk(), maxRankRows, options.maxTokens);
  decision.open = result == SHARDQ_GATE_OPEN;
  decision.text = describeGate(result);
  // Token shards of gathered KV stand in the branch that gathers.
  if (StringRef(context).starts_with("closed")) {
    decision.open = false;
    decision.text = context;
  } else if (!context.empty()) {
    decision.text += "; KV: " + context;
  }
  return decision;
}
