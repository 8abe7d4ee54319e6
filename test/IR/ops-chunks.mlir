// RUN: shardq-opt %s | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --mlir-print-op-generic | shardq-opt | FileCheck %s

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]

// CHECK-LABEL: func @chunks
func.func @chunks(%q: tensor<?xi32>, %s: tensor<?xi32>, %at: tensor<?xi64>, %n: index, %qb: memref<?xi32>,
                  %sb: memref<4xi32>, %atb: memref<?xi32>, %o: memref<?xi32>, %l: memref<4xi32>) -> (index, index, index) {
  // CHECK: shardq.count_chunk_rows all %{{.*}} decodes(%{{.*}}) rows(%{{.*}}) over @ranks "pcp" : tensor<?xi32>
  %0 = shardq.count_chunk_rows all %q decodes(%n) rows(%n) over @ranks "pcp" : tensor<?xi32>
  // CHECK: shardq.count_chunk_rows head
  %1 = shardq.count_chunk_rows head %q decodes(%n) rows(%n) over @ranks "pcp" : tensor<?xi32>
  // CHECK: shardq.count_chunk_rows tail %{{.*}} : memref<?xi32>
  %2 = shardq.count_chunk_rows tail %qb decodes(%n) rows(%n) over @ranks "pcp" : memref<?xi32>
  // CHECK: shardq.chunk_split %{{.*}} decodes(%{{.*}}) rows(%{{.*}}) over @ranks "pcp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<9xi32>)
  %3:2 = shardq.chunk_split %q decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<9xi32>)
  // CHECK: shardq.chunk_split %{{.*}} over @ranks "pcp" outs(%{{.*}}, %{{.*}}) {by_part} : (memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  shardq.chunk_split %qb decodes(%n) rows(%n) over @ranks "pcp" outs(%o, %o) {by_part} : (memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  // CHECK: shardq.chunk_lengths head %{{.*}}, %{{.*}} decodes(%{{.*}}) rows(%{{.*}}) over @ranks "pcp" : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
  %4:3 = shardq.chunk_lengths head %q, %s decodes(%n) rows(%n) over @ranks "pcp"
      : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
  // CHECK: shardq.chunk_lengths tail %{{.*}}, %{{.*}} over @ranks "pcp" outs(%{{.*}}, %{{.*}}, %{{.*}})
  shardq.chunk_lengths tail %qb, %sb decodes(%n) rows(%n) over @ranks "pcp" outs(%o, %l, %o)
      : (memref<?xi32>, memref<4xi32>, index, index, memref<?xi32>, memref<4xi32>, memref<?xi32>) -> ()
  // CHECK: shardq.chunk_slots %{{.*}} by(%{{.*}}) decodes(%{{.*}}) local(%{{.*}}) over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  %5:2 = shardq.chunk_slots %at by(%q) decodes(%n) local(%n) over @ranks "pcp"
      : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  // CHECK: shardq.chunk_slots %{{.*}} over @ranks "pcp" outs(%{{.*}}, %{{.*}}) {by_part}
  shardq.chunk_slots %atb by(%qb) decodes(%n) local(%n) over @ranks "pcp" outs(%o, %o) {by_part}
      : (memref<?xi32>, memref<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  // CHECK: shardq.chunk_slots %{{.*}} over @ranks "pcp" {by_part, own_decodes} :
  %6:2 = shardq.chunk_slots %at by(%q) decodes(%n) local(%n) over @ranks "pcp" {by_part, own_decodes}
      : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  return %0, %1, %2 : index, index, index
}

// CHECK-LABEL: func @write
func.func @write(%x: tensor<?x8xbf16>, %at: tensor<?xi32>, %c: tensor<9x8xbf16>, %xb: memref<3x2x8xi8>,
                 %atb: memref<?xi64>, %cb: memref<?x2x8xi8>) -> (tensor<9x8xbf16>, tensor<?xi32>) {
  // CHECK: shardq.write_rows %{{.*}} at(%{{.*}}) into(%{{.*}}) : (tensor<?x8xbf16>, tensor<?xi32>, tensor<9x8xbf16>) -> tensor<9x8xbf16>
  %0 = shardq.write_rows %x at(%at) into(%c) : (tensor<?x8xbf16>, tensor<?xi32>, tensor<9x8xbf16>) -> tensor<9x8xbf16>
  // CHECK: shardq.write_rows %{{.*}} at(%{{.*}}) into(%{{.*}}) : (memref<3x2x8xi8>, memref<?xi64>, memref<?x2x8xi8>) -> ()
  shardq.write_rows %xb at(%atb) into(%cb) : (memref<3x2x8xi8>, memref<?xi64>, memref<?x2x8xi8>) -> ()
  // CHECK: shardq.take_rows %{{.*}}[%{{.*}}] {missing = -1 : i32} : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  %1 = shardq.take_rows %at[%at] {missing = -1 : i32} : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  return %0, %1 : tensor<9x8xbf16>, tensor<?xi32>
}
