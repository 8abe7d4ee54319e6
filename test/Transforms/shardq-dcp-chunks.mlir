// Two calls over chunks of one step attend the keys of one gather, which the indexers of both overlap with. Where decode
// rows are combined in between, each has its own.
//
// DEFINE: %{dcp} =
// DEFINE: %{run} = shardq-opt %shardq_src/examples/deepseek-v32-pcp2-dcp2-chunked.mlir --pass-pipeline='builtin.module(shardq-pcp{two-calls=true remarks=false},%{dcp},canonicalize,cse)'
// REDEFINE: %{dcp} = shardq-dcp{remarks=false}
// RUN: %{run} | FileCheck %s --check-prefix=GATE
// REDEFINE: %{dcp} = shardq-dcp{step=gather remarks=false}
// RUN: %{run} | FileCheck %s --check-prefix=GATHER
// REDEFINE: %{dcp} = shardq-dcp{decode-rows=combine remarks=false}
// RUN: %{run} | FileCheck %s --check-prefix=COMBINE

// GATE: %[[KV:.*]] = shardq.write_rows {{.*}} tensor<?x576xbf16>
// GATE: %[[OUT:.*]]:2 = scf.if %{{.*}} -> (tensor<?x64x512xbf16>, tensor<?x64x512xbf16>) {
// GATE: %[[START:.*]] = shardq.gather_kv_start(%[[KV]])
// GATE: shardq.indexer
// GATE: %[[HEADS:.*]] = shardq.gathered_slots
// GATE: shardq.indexer
// GATE: %[[TAILS:.*]] = shardq.gathered_slots
// GATE: %[[ALL:.*]] = shardq.gather_kv_finish %[[START]]
// GATE-NEXT: %[[A:.*]] = shardq.sparse_mla {{.*}} kv(%[[ALL]]) slots(%[[HEADS]])
// GATE-NEXT: %[[B:.*]] = shardq.sparse_mla {{.*}} kv(%[[ALL]]) slots(%[[TAILS]])
// GATE-NEXT: scf.yield %[[A]], %[[B]]
// GATE: } else {
// GATE-COUNT-2: shardq.combine_lse
// GATE: scf.yield
// GATE-NOT: shardq.gather_kv_start

// GATHER: %[[START:.*]] = shardq.gather_kv_start
// GATHER-COUNT-2: shardq.indexer
// GATHER: %[[ALL:.*]] = shardq.gather_kv_finish %[[START]]
// GATHER-NEXT: shardq.sparse_mla {{.*}} kv(%[[ALL]])
// GATHER-NEXT: shardq.sparse_mla {{.*}} kv(%[[ALL]])
// GATHER-NOT: shardq.gather_kv_start

// COMBINE-COUNT-2: shardq.gather_kv_start
// COMBINE-NOT: shardq.gather_kv_start
