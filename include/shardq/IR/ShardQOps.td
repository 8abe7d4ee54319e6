//===- ShardQOps.td - Ops of the ShardQ dialect ------------*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQOPS
#define SHARDQ_IR_SHARDQOPS

include "shardq/IR/ShardQModelOps.td"
include "shardq/IR/ShardQDistributionOps.td"
include "shardq/IR/ShardQContextOps.td"
include "shardq/IR/ShardQGatherOps.td"
include "shardq/IR/ShardQChunkOps.td"
include "shardq/IR/ShardQViewOps.td"
include "shardq/IR/ShardQBufferOps.td"

#endif // SHARDQ_IR_SHARDQOPS
