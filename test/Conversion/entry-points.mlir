// A C function of DLPack tensors for each public function.
//
// RUN: shardq-opt %s --shardq-emit-entry-points | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: shardq-opt %s --shardq-emit-entry-points=device=cpu --canonicalize --cse | FileCheck %s --check-prefix=FOLDED

// CHECK-DAG: llvm.func @shardq_rt_import(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK-DAG: llvm.func @shardq_rt_begin(!llvm.ptr, !llvm.ptr)
// CHECK-DAG: llvm.func @shardq_rt_end(!llvm.ptr) -> i32
// CHECK-DAG: llvm.func @shardq_rt_export(!llvm.ptr, !llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i32) -> i32

// CHECK-LABEL: func.func private @attention__impl(
// CHECK-NOT: emit_c_interface
// CHECK-LABEL: func.func @attention(
// CHECK-SAME: %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr, %[[STREAM:[a-z0-9]+]]: !llvm.ptr, %[[KV:[a-z0-9]+]]: !llvm.ptr,
// CHECK-SAME: %[[N:[a-z0-9]+]]: i64, %[[X:[a-z0-9]+]]: f32, %[[P:[a-z0-9]+]]: i8, %[[H:[a-z0-9]+]]: i16, %[[ROWS:[a-z0-9]+]]: !llvm.ptr,
// CHECK-SAME: %[[R0:[a-z0-9]+]]: !llvm.ptr, %[[R1:[a-z0-9]+]]: !llvm.ptr, %[[R2:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK-SAME: shardq.entry_point = {arguments = [
// CHECK-SAME: {name = "kv", type = memref<?x4xf32>}, {name = "n", type = index}, {type = f32}, {type = i1}, {type = bf16},
// CHECK-SAME: {type = memref<?x8xi8, strided<[?, 1], offset: ?>>}],
// CHECK-SAME: results = [{type = memref<?x4xf32>}, {type = index}, {type = bf16}]}
// CHECK: %[[SPEC:.*]] = llvm.mlir.addressof @shardq_entry_attention
// CHECK: %[[REFUSED:.*]] = llvm.call @shardq_rt_import(%[[CONTEXT]], %[[SPEC]], %{{.*}}, %{{.*}})
// CHECK: %[[RIGHT:.*]] = arith.cmpi eq, %[[REFUSED]], %{{.*}} : i32
// CHECK: %[[STATUS:.*]] = scf.if %[[RIGHT]] -> (i32) {
// CHECK:   llvm.call @shardq_rt_begin(%[[CONTEXT]], %[[STREAM]])
// CHECK:   %[[A:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<?x4xf32>
// CHECK:   %[[INDEX:.*]] = arith.index_cast %[[N]] : i64 to index
// CHECK:   %[[BOOL:.*]] = arith.cmpi ne, %[[P]], %{{.*}} : i8
// CHECK:   %[[HALF:.*]] = arith.bitcast %[[H]] : i16 to bf16
// CHECK:   %[[B:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<?x8xi8, strided<[?, 1], offset: ?>>
// CHECK:   %[[RESULTS:.*]]:3 = func.call @attention__impl(%[[CONTEXT]], %[[A]], %[[INDEX]], %[[X]], %[[BOOL]], %[[HALF]], %[[B]])
// CHECK:   %[[END:.*]] = llvm.call @shardq_rt_end(%[[CONTEXT]])
// CHECK:   %[[TWO:.*]] = llvm.mlir.constant(2 : i32)
// CHECK:   %[[COPIED:.*]] = llvm.call @shardq_rt_export(%[[CONTEXT]], %{{.*}}, %[[TWO]], %{{.*}}, %{{.*}}, %[[END]])
// CHECK:   %[[WANTED:.*]] = llvm.icmp "ne" %[[R1]], %{{.*}} : !llvm.ptr
// CHECK:   scf.if %[[WANTED]] {
// CHECK:     llvm.store %{{.*}}, %[[R1]] : i64, !llvm.ptr
// CHECK:   memref.dealloc %[[RESULTS]]#0
// CHECK:   scf.yield %[[COPIED]] : i32
// CHECK: } else {
// CHECK:   scf.yield %[[REFUSED]] : i32
// CHECK: return %[[STATUS]] : i32
func.func @attention(%context: !llvm.ptr, %kv: memref<?x4xf32> loc("kv"), %n: index loc("n"), %x: f32, %p: i1, %h: bf16,
                     %rows: memref<?x8xi8, strided<[?, 1], offset: ?>>)
    -> (memref<?x4xf32>, index, bf16) attributes {llvm.emit_c_interface} {
  %copy = memref.alloc(%n) : memref<?x4xf32>
  memref.copy %kv, %copy : memref<?x4xf32> to memref<?x4xf32>
  return %copy, %n, %h : memref<?x4xf32>, index, bf16
}

// Callers inside the module call the function behind the entry. Two results that
// are one buffer are freed once; what fills arguments in place is not copied.
//
// CHECK-LABEL: func.func private @caller__impl(
// CHECK: call @attention__impl(
// FOLDED-LABEL: func.func @caller(
// FOLDED-SAME: results = [{name = "out", type = memref<3xi32>}, {type = memref<?x4xf32>}, {type = memref<?x4xf32>}]
// FOLDED: %[[RESULTS:.*]]:2 = func.call @caller__impl(
// FOLDED-COUNT-2: llvm.call @shardq_rt_export
// FOLDED-NOT: shardq_rt_export
// FOLDED: memref.dealloc %[[RESULTS]]#0
// FOLDED-DAG: %[[FIRST:.*]] = memref.extract_aligned_pointer_as_index %[[RESULTS]]#0
// FOLDED-DAG: %[[SECOND:.*]] = memref.extract_aligned_pointer_as_index %[[RESULTS]]#1
// FOLDED: %[[DIFFERS:.*]] = arith.cmpi ne, %[[SECOND]], %[[FIRST]]
// FOLDED: scf.if %[[DIFFERS]] {
// FOLDED-NEXT: memref.dealloc %[[RESULTS]]#1
func.func @caller(%context: !llvm.ptr, %out: memref<3xi32> {shardq.result} loc("out")) -> (memref<?x4xf32>, memref<?x4xf32>) {
  %n = arith.constant 3 : index
  %x = arith.constant 1.0 : f32
  %p = arith.constant true
  %h = arith.constant 1.0 : bf16
  %kv = memref.alloc(%n) : memref<?x4xf32>
  %rows = memref.alloc(%n) : memref<?x8xi8>
  %cast = memref.cast %rows : memref<?x8xi8> to memref<?x8xi8, strided<[?, 1], offset: ?>>
  %r:3 = call @attention(%context, %kv, %n, %x, %p, %h, %cast)
      : (!llvm.ptr, memref<?x4xf32>, index, f32, i1, bf16, memref<?x8xi8, strided<[?, 1], offset: ?>>) -> (memref<?x4xf32>, index, bf16)
  memref.dealloc %kv : memref<?x4xf32>
  memref.dealloc %rows : memref<?x8xi8>
  return %r#0, %r#0 : memref<?x4xf32>, memref<?x4xf32>
}

// Private functions stay what they are.
// CHECK: func.func private @helper(%{{.*}}: index)
func.func private @helper(%n: index) {
  return
}

// CPU-DAG: @shardq_entry_attention_name("kv\00")
// CPU-DAG: @shardq_entry_attention_sizes(dense<[-1, 4]> : tensor<2xi64>) {{.*}} : !llvm.array<2 x i64>
// CPU-DAG: @shardq_entry_attention_strides(dense<[-1, 1]> : tensor<2xi64>) {{.*}} : !llvm.array<2 x i64>
// CPU-DAG: @shardq_entry_attention_text("attention\00")
// CPU: llvm.mlir.global internal constant @shardq_entry_attention_tensors() {{.*}} : !llvm.array<3 x struct<(ptr, ptr, ptr, i32, i32, i32, i32, i32, i32)>>
// CPU: llvm.mlir.global internal constant @shardq_entry_attention() {{.*}} : !llvm.struct<(i64, i64, ptr, ptr, i32, i32)>
