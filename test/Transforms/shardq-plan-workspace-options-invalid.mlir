// RUN: not shardq-opt %s --shardq-plan-workspace=max-tokens=0 2>&1 | FileCheck %s --check-prefix=TOKENS
// RUN: not shardq-opt %s --shardq-plan-workspace=max-requests=-3 2>&1 | FileCheck %s --check-prefix=REQUESTS
// RUN: not shardq-opt %s --shardq-plan-workspace=slots=2147483648 2>&1 | FileCheck %s --check-prefix=SLOTS

// TOKENS: error: shardq-plan-workspace: max-tokens is 0, expected 1 to 2147483647
// REQUESTS: error: shardq-plan-workspace: max-requests is -3, expected 1 to 2147483647
// SLOTS: error: shardq-plan-workspace: slots is 2147483648, expected 1 to 2147483647
module {}
