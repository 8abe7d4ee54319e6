// RUN: not shardq-opt %s --shard-q-tokens=min-tokens=-1 2>&1 | FileCheck %s

// CHECK: error: shard-q-tokens: min-tokens is -1, expected 0 or more
module {}
