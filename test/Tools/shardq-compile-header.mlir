// The C header: what every tensor is.
//
// RUN: shardq-compile %s --emit=mlir -o %t.mlir --header=%t.h --max-tokens=512 --max-requests=8 --slots=2 --shard-q-tokens=false
// RUN: FileCheck %s --match-full-lines --strict-whitespace < %t.h
// RUN: %cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I %shardq_src/runtime/include -x c %t.h
// RUN: %cxx -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I %shardq_src/runtime/include -x c++ %t.h
//
// A name that C does not have is an error, and nothing is written.
// RUN: sed 's/@attention(/@"zero-copy"(/' %s > %t.dash.mlir
// RUN: rm -f %t.none %t.none.h
// RUN: not shardq-compile %t.dash.mlir --emit=mlir -o %t.none --header=%t.none.h 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: shardq-compile: error: --header: @zero-copy is no name in C
// RUN: not ls %t.none
// RUN: not ls %t.none.h
//
// Who fills block tables is told which block stands for none.
// RUN: shardq-compile %shardq_src/examples/deepseek-v32-dcp8-prefill.mlir --emit=mlir -o %t.mlir --header=%t.tables.h
// RUN: FileCheck %s --check-prefix=ZERO < %t.tables.h
// RUN: shardq-compile %shardq_src/examples/deepseek-v32-dcp8-prefill.mlir --emit=mlir -o %t.mlir --header=%t.tables.h --null-block=7
// RUN: FileCheck %s --check-prefix=SEVEN < %t.tables.h
// RUN: shardq-compile %shardq_src/examples/deepseek-v32-dcp8-prefill.mlir --emit=mlir -o %t.mlir --header=%t.tables.h --null-block=-1
// RUN: FileCheck %s --check-prefix=EVERY < %t.tables.h
// ZERO: * Block tables: block 0 stands for none, keep it free.
// SEVEN: * Block tables: block 7 stands for none, keep it free.
// EVERY: * Block tables: every block may hold tokens.

//      CHECK:/* Made by shardq-compile from shardq-compile-header.mlir.
// CHECK-NEXT: * Ranks: 3, of mesh @ranks.
// CHECK-NEXT: * Steps: up to 512 rows of 8 requests, 2 slots.
// CHECK-NEXT: *
// CHECK-NEXT: * Functions return SHARDQ_OK or an error, whose text
// CHECK-NEXT: * shardq_context_message gives. `?` is any size or stride; sizes are those of
// CHECK-NEXT: * one rank, strides count elements. */
// CHECK-NEXT:#ifndef SHARDQ_COMPILE_HEADER_MLIR_TMP_H
// CHECK-NEXT:#define SHARDQ_COMPILE_HEADER_MLIR_TMP_H
// CHECK-EMPTY:
// CHECK-NEXT:#include "shardq/tensor.h"
// CHECK-EMPTY:
// CHECK-NEXT:#ifdef __cplusplus
// CHECK-NEXT:extern "C" {
// CHECK-NEXT:#endif
// CHECK-EMPTY:
// CHECK-NEXT:/* What shardq_comm_create has to know of the program. */
// CHECK-NEXT:const shardq_plan *shardq_module_plan(void);
// CHECK-EMPTY:
// CHECK-NEXT:/* attention
// CHECK-NEXT: *   q        [?, 2, 12] bfloat16, contiguous: query
// CHECK-NEXT: *   kv       [?, 12] bfloat16, contiguous: cache
// CHECK-NEXT: *   start    [?] int32, contiguous: query starts
// CHECK-NEXT: *   lens     [?] int32, contiguous: sequence lengths
// CHECK-NEXT: *   slots    [?, 6] int32, contiguous: slots
// CHECK-NEXT: *   rows     int64, by value: row count
// CHECK-NEXT: *   result0  [?, 2, 8] bfloat16, contiguous
// CHECK-NEXT: *   result1  [?] int32, contiguous
// CHECK-NEXT: */
// CHECK-NEXT:int32_t attention(shardq_context *context, void *stream,
// CHECK-NEXT:    const DLTensor *q,
// CHECK-NEXT:    const DLTensor *kv,
// CHECK-NEXT:    const DLTensor *start,
// CHECK-NEXT:    const DLTensor *lens,
// CHECK-NEXT:    const DLTensor *slots,
// CHECK-NEXT:    int64_t rows,
// CHECK-NEXT:    DLTensor *result0,
// CHECK-NEXT:    DLTensor *result1);
// CHECK-EMPTY:
// CHECK-NEXT:/* odd
// CHECK-NEXT: *   arg0     [?, 8] float32, strides [?, 1]
// CHECK-NEXT: *   arg1     bfloat16, its bits, by value
// CHECK-NEXT: *   flag     bool, by value
// CHECK-NEXT: *   wide     float64, by value
// CHECK-NEXT: *   bytes    [4] int8, contiguous
// CHECK-NEXT: *   scales   [4] float8 (f8E4M3FN), contiguous
// CHECK-NEXT: *   result0  bool, NULL if not wanted
// CHECK-NEXT: *   result1  float32, NULL if not wanted
// CHECK-NEXT: */
// CHECK-NEXT:int32_t odd(shardq_context *context, void *stream,
// CHECK-NEXT:    const DLTensor *arg0,
// CHECK-NEXT:    uint16_t arg1,
// CHECK-NEXT:    uint8_t flag,
// CHECK-NEXT:    double wide,
// CHECK-NEXT:    const DLTensor *bytes,
// CHECK-NEXT:    const DLTensor *scales,
// CHECK-NEXT:    uint8_t *result0,
// CHECK-NEXT:    float *result1);
// CHECK-EMPTY:
// CHECK-NEXT:/* taken
// CHECK-NEXT: *   arg0  [2] int32, contiguous
// CHECK-NEXT: *   arg1  int64, by value
// CHECK-NEXT: *   arg2  int64, by value
// CHECK-NEXT: */
// CHECK-NEXT:int32_t taken(shardq_context *context, void *stream,
// CHECK-NEXT:    const DLTensor *arg0,
// CHECK-NEXT:    int64_t arg1,
// CHECK-NEXT:    int64_t arg2);
// CHECK-EMPTY:
// CHECK-NEXT:/* nothing: takes nothing
// CHECK-NEXT: */
// CHECK-NEXT:int32_t nothing(shardq_context *context, void *stream);
// CHECK-EMPTY:
// CHECK-NEXT:#ifdef __cplusplus
// CHECK-NEXT:}
// CHECK-NEXT:#endif
// CHECK-EMPTY:
// CHECK-NEXT:#endif /* SHARDQ_COMPILE_HEADER_MLIR_TMP_H */
//  CHECK-NOT:{{.}}
shardq.mesh @ranks ["tp" = 3]
func.func @attention(%q: tensor<?x2x12xbf16>, %kv: tensor<?x12xbf16>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
                     %slots: tensor<?x6xi32>, %rows: index) -> (tensor<?x2x8xbf16>, tensor<?xi32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.3 : f32}
      : (tensor<?x2x12xbf16>, tensor<?x12xbf16>, tensor<?x6xi32>) -> tensor<?x2x8xbf16>
  return %out, %req : tensor<?x2x8xbf16>, tensor<?xi32>
}

// Names that C has already, or takes for something else, become numbers.
func.func @odd(%float: memref<?x8xf32, strided<[?, 1], offset: ?>>, %0: bf16, %flag: i1, %wide: f64, %bytes: tensor<4xi8>,
               %scales: tensor<4xf8E4M3FN>) -> (i1, f32) {
  %narrow = arith.truncf %wide : f64 to f32
  return %flag, %narrow : i1, f32
}

func.func @taken(%DLTensor: tensor<2xi32>, %int64_t: index, %new: index) {
  return
}

func.func @nothing() {
  return
}
