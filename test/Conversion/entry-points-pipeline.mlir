// In the pipeline, C functions replace the interface of memref descriptors.
//
// RUN: shardq-opt %s --shardq-to-cpu=entry-points -o %t.mlir
// RUN: mlir-translate %t.mlir --mlir-to-llvmir | FileCheck %s --implicit-check-not=_mlir_ciface
// RUN: shardq-opt %s --shardq-to-cpu | FileCheck %s --check-prefix=CIFACE --implicit-check-not=shardq_rt_import
// CIFACE: llvm.func @_mlir_ciface_take

// CHECK: @shardq_entry_take_name = internal constant [{{[0-9]+}} x i8] c"source\00"
// CHECK: define i32 @take(ptr %0, ptr %1, ptr %2, ptr %3, i64 %4, ptr %5, ptr %6)
func.func @take(%source: tensor<?x4xbf16> loc("source"), %rows: tensor<?xi32>, %n: index) -> (tensor<?x4xbf16>, index) {
  %taken = shardq.take_rows %source[%rows] : (tensor<?x4xbf16>, tensor<?xi32>) -> tensor<?x4xbf16>
  return %taken, %n : tensor<?x4xbf16>, index
}
