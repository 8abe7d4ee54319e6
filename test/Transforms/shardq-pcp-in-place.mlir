// Keys are written into the caches that the caller gave, in every form of the pass, also over sharded KV: no cache is
// copied.
//
// DEFINE: %{buffers} = canonicalize,cse,one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map}
// DEFINE: %{pcp} =
// DEFINE: %{run} = shardq-opt %shardq_src/examples/deepseek-v32-pcp2-dcp2-chunked.mlir --pass-pipeline='builtin.module(%{pcp},%{buffers})'
// REDEFINE: %{pcp} = shardq-pcp{remarks=false}
// RUN: %{run} | FileCheck %s
// REDEFINE: %{pcp} = shardq-pcp{gate=false remarks=false}
// RUN: %{run} | FileCheck %s
// REDEFINE: %{pcp} = shardq-pcp{two-calls=true remarks=false}
// RUN: %{run} | FileCheck %s
// REDEFINE: %{pcp} = shardq-pcp{remarks=false},shardq-dcp{remarks=false}
// RUN: %{run} | FileCheck %s
// REDEFINE: %{pcp} = shardq-pcp{two-calls=true remarks=false},shardq-dcp{remarks=false},shardq-slice-steps
// RUN: %{run} | FileCheck %s
// REDEFINE: %{pcp} = shardq-pcp{remarks=false},shardq-dcp{remarks=false},shardq-slice-steps{max-tokens=64}
// RUN: %{run} | FileCheck %s
// REDEFINE: %{pcp} = shardq-pcp{two-calls=true remarks=false},shardq-dcp{remarks=false},shardq-slice-steps{max-tokens=64}
// RUN: %{run} | FileCheck %s

// CHECK-LABEL: func.func @attention
// CHECK-SAME: %[[KV:[a-z0-9]+]]: memref<?x576xbf16>, %{{[a-z0-9]+}}: memref<?x576xbf16>, %{{[a-z0-9]+}}: memref<?xi64>
// CHECK-SAME: %[[KEYS:[a-z0-9]+]]: memref<?x128xbf16>, %{{[a-z0-9]+}}: memref<?x128xbf16>
// CHECK-NOT: memref.copy %{{.*}} : memref<?x576xbf16>
// CHECK-NOT: memref.copy %{{.*}} : memref<?x128xbf16>
// CHECK: shardq.write_rows %{{.*}} at(%{{.*}}) into(%[[KEYS]])
// CHECK-NOT: memref.copy %{{.*}} : memref<?x576xbf16>
// CHECK-NOT: memref.copy %{{.*}} : memref<?x128xbf16>
// CHECK: shardq.write_rows %{{.*}} at(%{{.*}}) into(%[[KV]])
// CHECK-NOT: memref.copy %{{.*}} : memref<?x576xbf16>
// CHECK-NOT: memref.copy %{{.*}} : memref<?x128xbf16>
// CHECK: return
