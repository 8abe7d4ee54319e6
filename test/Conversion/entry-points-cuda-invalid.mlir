// RUN: shardq-opt %s --shardq-emit-entry-points=device=cuda --verify-diagnostics

// expected-error @+1 {{returns a buffer, and host code does not wait for it: results on a GPU are arguments marked 'shardq.result'}}
func.func @returned(%context: !llvm.ptr, %a: memref<4xf32>) -> memref<4xf32> {
  return %a : memref<4xf32>
}
