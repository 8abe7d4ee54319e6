//===- Passes.h - Passes inside the ShardQ dialect --------------*- C++ -*-===//

#ifndef SHARDQ_TRANSFORMS_PASSES_H
#define SHARDQ_TRANSFORMS_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::shardq {

/// Which form of attention over a sharded KV cache --shardq-dcp makes.
enum class DcpStep { Decode, Gather, Gate };

/// Which way decode rows go in a step in which keys are gathered.
enum class DecodeRows { Gather, Combine };
/// Blocks that --shardq-dcp gathers.
enum class GatheredBlocks { Compact, Full };

/// How collectives are to travel; `Auto` leaves it to the table of
/// --shardq-select-transport.
enum class TransportChoice { Auto, Direct, Nccl, AgRs, AgAr };

/// Where ranks live.
enum class RankTarget { Cpu, Cuda };

#define GEN_PASS_DECL
#include "shardq/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "shardq/Transforms/Passes.h.inc"

/// Fails, with a diagnostic, on an exchange under control flow that depends on
/// the rank.
LogicalResult verifySameExchangesOnAllRanks(ModuleOp module);

/// Models of BufferizableOpInterface for ShardQ ops.
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);

} // namespace mlir::shardq

#endif // SHARDQ_TRANSFORMS_PASSES_H
