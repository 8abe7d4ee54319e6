//===- Source.cpp - Programs as users hand them in ------------------------===//

#include "Source.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "shardq/IR/ShardQ.h"

using namespace mlir;
using namespace mlir::shardq;

OwningOpRef<ModuleOp> run::parseModule(llvm::SourceMgr &sources,
                                       MLIRContext &context,
                                       AsmParserState &names) {
  ParserConfig config(&context);
  StringRef text =
      sources.getMemoryBuffer(sources.getMainFileID())->getBuffer();
  if (text.starts_with("ML\xefR"))
    return parseSourceFile<ModuleOp>(sources, config);
  Block block;
  if (failed(parseAsmSourceFile(sources, &block, config, &names)))
    return {};
  auto location = FileLineColLoc::get(
      &context,
      sources.getMemoryBuffer(sources.getMainFileID())->getBufferIdentifier(),
      1, 1);
  OwningOpRef<ModuleOp> module =
      mlir::detail::constructContainerOpForParserIfNecessary<ModuleOp>(
          &block, &context, location);
  if (module && failed(mlir::verify(*module)))
    return {};
  return module;
}

std::string run::getDefaultPipeline(Operation *root, int64_t minTokens,
                                    int64_t nullBlock) {
  std::string axis = "tp";
  root->walk([&](SparseMlaOp op) {
    ShardingAttr sharding = op.getShardingAttr();
    if (!sharding || !sharding.isOverHeads())
      return WalkResult::advance();
    axis = sharding.getAxes().front().getValue().str();
    return WalkResult::interrupt();
  });
  // KV first: an attention that reads keys of other ranks cannot run.
  bool hasShardedKv = root->walk([&](SparseMlaOp op) {
                            return getNumKvRanks(op, op.getShardingAttr()) > 1
                                       ? WalkResult::interrupt()
                                       : WalkResult::advance();
                          })
                          .wasInterrupted();
  // Chunks before both: they change nothing in a program without the axis.
  return (llvm::Twine("builtin.module(shardq-pcp{remarks=false},") +
          (hasShardedKv ? ("shardq-dcp{null-block=" + llvm::Twine(nullBlock) +
                           " remarks=false},")
                              .str()
                        : "") +
          "shard-q-tokens{axis=" + axis +
          " min-tokens=" + llvm::Twine(minTokens) + " remarks=false})")
      .str();
}
