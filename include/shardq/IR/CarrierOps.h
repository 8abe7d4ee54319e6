//===- CarrierOps.h - Host code of targets ----------------------*- C++ -*-===//

#ifndef SHARDQ_IR_CARRIEROPS_H
#define SHARDQ_IR_CARRIEROPS_H

#include "shardq/IR/ShardQ.h"

#define GET_OP_CLASSES
#include "shardq/IR/ShardQCarrierOps.h.inc"

#endif // SHARDQ_IR_CARRIEROPS_H
