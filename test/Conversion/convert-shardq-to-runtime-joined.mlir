// RUN: shardq-opt %s --convert-shardq-to-runtime | FileCheck %s

// The coordinate along an axis that joins others: ranks of parts with one rank say nothing of how far apart the
// members are.

shardq.mesh @ranks ["pcp" = 2, "tp" = 4, "dcp" = 1 in "tp", "kv" = 2 of ["pcp", "dcp"], "all" = 8 of ["pcp", "tp"]]
shardq.plan @plan over @ranks {channels = [], exchanges = [], hash = 7 : i64, slot_bytes = 0 : i64, slots = 1 : i64}

// CHECK-LABEL: func.func @apart
// CHECK-DAG: %[[RANK:.*]] = llvm.call @shardq_rt_rank
// CHECK-DAG: %[[STRIDE:.*]] = llvm.mlir.constant(4 : i64)
// CHECK-DAG: %[[SIZE:.*]] = llvm.mlir.constant(2 : i64)
// CHECK: %[[STEPS:.*]] = arith.divui %[[RANK]], %[[STRIDE]]
// CHECK: arith.remui %[[STEPS]], %[[SIZE]]
func.func @apart() -> index {
  %me = shardq.rank over @ranks "kv"
  return %me : index
}

// CHECK-LABEL: func.func @together
// CHECK-DAG: %[[RANK:.*]] = llvm.call @shardq_rt_rank
// CHECK-DAG: %[[STRIDE:.*]] = llvm.mlir.constant(1 : i64)
// CHECK-DAG: %[[SIZE:.*]] = llvm.mlir.constant(8 : i64)
// CHECK: %[[STEPS:.*]] = arith.divui %[[RANK]], %[[STRIDE]]
// CHECK: arith.remui %[[STEPS]], %[[SIZE]]
func.func @together() -> index {
  %me = shardq.rank over @ranks "all"
  return %me : index
}
