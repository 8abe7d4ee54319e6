// RUN: shardq-opt %s --split-input-file --shardq-pcp=remarks=false | FileCheck %s
// RUN: shardq-opt %s --split-input-file --shardq-pcp='two-calls=true remarks=false' | FileCheck %s --check-prefix=TWO
// RUN: shardq-opt %s --split-input-file --shardq-pcp='gate=false remarks=false' | FileCheck %s --check-prefix=ALWAYS
//
// A second run changes nothing.
// RUN: shardq-opt %s --split-input-file --shardq-pcp=remarks=false -o %t.once
// RUN: shardq-opt %s --split-input-file --shardq-pcp=remarks=false --shardq-pcp=remarks=false | diff %t.once -

// Indexer, conversion and attention run on own rows, once; outputs are gathered and restored, the LSE with -inf for
// rows of no request. What all ranks hold (keys, tables) is left alone. Without tails there is nothing to gather.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: %[[Q:[^:]*]]: tensor<?x4x8xbf16>, %[[KV:[^:]*]]: tensor<?x8xbf16>, %[[IQ:[^:]*]]: tensor<?x2x8xbf16>
// CHECK: %[[STEP:.*]]:2 = shardq.expand_rows %[[START:.*]], %{{.*}} to %[[ROWS:[^ ]*]]
// CHECK: %[[DECODES:.*]] = shardq.count_decode_rows %[[START]] {speculative_tokens = 1 : i64}
// CHECK: %[[SPLIT:.*]]:2 = shardq.chunk_split %[[START]] decodes(%[[DECODES]]) rows(%[[ROWS]]) over @ranks "pcp"
// CHECK: %[[TAILS:.*]] = shardq.count_chunk_rows tail %[[START]] decodes(%[[DECODES]]) rows(%[[ROWS]]) over @ranks "pcp"
// CHECK: %[[OPEN:.*]] = arith.cmpi sgt, %[[TAILS]], %c0
// CHECK: %[[OWNREQ:.*]] = shardq.take_rows %[[STEP]]#0[%[[SPLIT]]#0] {missing = -1 : i32}
// CHECK: %[[OWNVISIBLE:.*]] = shardq.take_rows %[[STEP]]#1[%[[SPLIT]]#0] :
// CHECK: %[[OWNIQ:.*]] = shardq.take_rows %[[IQ]][%[[SPLIT]]#0]
// CHECK: %[[OWNW:.*]] = shardq.take_rows %{{.*}}[%[[SPLIT]]#0]
// CHECK: %[[TOPK:.*]] = shardq.indexer q(%[[OWNIQ]]) weights(%[[OWNW]]) keys(%{{.*}}) table(%{{.*}}) rows(%[[OWNREQ]], %[[OWNVISIBLE]])
// CHECK: shardq.tap "topk" %[[TOPK]] rows(%[[SPLIT]]#0
// CHECK: %[[SLOTS:.*]] = shardq.convert_indices %[[TOPK]] table(%{{.*}}) rows(%[[OWNREQ]])
// CHECK: %[[OWNQ:.*]] = shardq.take_rows %[[Q]][%[[SPLIT]]#0]
// CHECK: %[[ATTEND:.*]]:2 = shardq.sparse_mla q(%[[OWNQ]]) kv(%[[KV]]) slots(%[[SLOTS]]) rows(%[[OWNREQ]])
// CHECK-SAME: sharding = #shardq.sharding<@ranks, heads = ["tp"]>
// CHECK: %[[OUT:.*]]:2 = scf.if %[[OPEN]] -> (tensor<?x4x8xbf16>, tensor<?x4xf32>) {
// CHECK: %[[ALL:.*]] = shardq.gather_rows %[[ATTEND]]#0 over @ranks "pcp" : (tensor<?x4x8xbf16>) -> tensor<?x4x8xbf16>
// CHECK: %[[BACK:.*]] = shardq.take_rows %[[ALL]][%[[SPLIT]]#1] :
// CHECK: %[[ALLLSE:.*]] = shardq.gather_rows %[[ATTEND]]#1 over @ranks "pcp"
// CHECK: %[[BACKLSE:.*]] = shardq.take_rows %[[ALLLSE]][%[[SPLIT]]#1] {missing = 0xFF800000 : f32}
// CHECK: scf.yield %[[BACK]], %[[BACKLSE]]
// CHECK-NEXT: } else {
// CHECK-NEXT: %[[BACK:.*]] = shardq.take_rows %[[ATTEND]]#0[%[[SPLIT]]#1] :
// CHECK-NEXT: %[[BACKLSE:.*]] = shardq.take_rows %[[ATTEND]]#1[%[[SPLIT]]#1] {missing = 0xFF800000 : f32}
// CHECK-NEXT: scf.yield %[[BACK]], %[[BACKLSE]]
// CHECK: return %[[OUT]]#0, %[[OUT]]#1
// CHECK-NOT: shardq.indexer
// ALWAYS-LABEL: func.func @layer
// ALWAYS-NOT: shardq.count_chunk_rows
// ALWAYS-NOT: scf.if
// ALWAYS: %[[ALL:.*]] = shardq.gather_rows
// ALWAYS: shardq.take_rows %[[ALL]]
//
// Two calls: heads with the decode requests, tails. Requests and visible lengths follow from the key lengths of each
// part, and padded rows are masked.
// TWO-LABEL: func.func @layer
// TWO: %[[SPLIT:.*]]:2 = shardq.chunk_split {{.*}} {by_part}
// TWO: %[[NTAIL:.*]] = shardq.count_chunk_rows tail
// TWO: arith.cmpi sgt, %[[NTAIL]], %c0
// TWO: %[[NHEAD:.*]] = shardq.count_chunk_rows head
// TWO: %[[HEAD:.*]] = tensor.extract_slice %[[SPLIT]]#0[0] [%[[NHEAD]]]
// TWO: %[[LENGTHS:.*]]:3 = shardq.chunk_lengths head
// TWO: %[[CHUNKS:.*]]:2 = shardq.expand_rows %[[LENGTHS]]#0, %[[LENGTHS]]#1 to %{{.*}} {speculative_tokens = 1 : i64}
// TWO: %[[HREQ:.*]] = shardq.take_rows %[[CHUNKS]]#0[%[[LENGTHS]]#2] {missing = -1 : i32}
// TWO: %[[HVISIBLE:.*]] = shardq.take_rows %[[CHUNKS]]#1[%[[LENGTHS]]#2] :
// TWO: %[[TAIL:.*]] = tensor.extract_slice %[[SPLIT]]#0[%[[NHEAD]]] [%[[NTAIL]]]
// TWO: shardq.chunk_lengths tail
// TWO: shardq.indexer {{.*}} rows(%[[HREQ]], %[[HVISIBLE]])
// TWO: shardq.tap "topk" %{{.*}} rows(%[[HEAD]]
// TWO: shardq.indexer
// TWO: shardq.tap "topk" %{{.*}} rows(%[[TAIL]]
// TWO: %[[HEADS:.*]]:2 = shardq.sparse_mla
// TWO: %[[TAILS:.*]]:2 = shardq.sparse_mla
// TWO: tensor.insert_slice %[[HEADS]]#0
// TWO: %[[JOINED:.*]] = tensor.insert_slice %[[TAILS]]#0
// TWO: scf.if
// TWO: %[[ALL:.*]] = shardq.gather_rows %[[JOINED]]
// TWO: shardq.take_rows %[[ALL]][%[[SPLIT]]#1]
// TWO: else
// TWO: shardq.take_rows %[[JOINED]][%[[SPLIT]]#1]
shardq.mesh @ranks ["pcp" = 2, "tp" = 2]
func.func @layer(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %iq: tensor<?x2x8xbf16>, %iw: tensor<?x2xf32>,
                 %ik: tensor<?x8xbf16>, %start: tensor<?xi32>, %lens: tensor<?xi32>, %table: tensor<?x?xi32>, %rows: index)
    -> (tensor<?x4x8xbf16>, tensor<?x4xf32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows {speculative_tokens = 1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%table) rows(%req, %visible) {block_size = 4 : i64}
      : (tensor<?x2x8xbf16>, tensor<?x2xf32>, tensor<?x8xbf16>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x16xi32>
  shardq.tap "topk" %topk : tensor<?x16xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x16xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x16xi32>
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 1.0 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> (tensor<?x4x8xbf16>, tensor<?x4xf32>)
  return %out, %lse : tensor<?x4x8xbf16>, tensor<?x4xf32>
}

// -----

// Two layers share the split and the indexer's choice. The indexer whose result is returned runs on all rows too. Sizes that
// types say are kept.
// CHECK-LABEL: func.func @two_layers
// CHECK-COUNT-1: shardq.chunk_split
// CHECK: shardq.topk %{{.*}} visible
// CHECK: %[[OWN:.*]] = shardq.topk %{{.*}} visible
// CHECK-COUNT-1: shardq.convert_indices %[[OWN]]
// CHECK-COUNT-2: shardq.gather_rows {{.*}} : (tensor<?x4x8xbf16>) -> tensor<?x4x8xbf16>
// CHECK: return {{.*}} : tensor<12x4x8xbf16>, tensor<12x16xi32>
// TWO-LABEL: func.func @two_layers
shardq.mesh @ranks ["pcp" = 2]
func.func @two_layers(%q: tensor<12x4x8xbf16>, %kv: tensor<?x8xbf16>, %scores: tensor<12x?xf32>, %start: tensor<4xi32>,
                      %lens: tensor<3xi32>, %table: tensor<?x?xi32>, %rows: index) -> (tensor<12x4x8xbf16>, tensor<12x16xi32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<4xi32>, tensor<3xi32>, index) -> (tensor<12xi32>, tensor<12xi32>)
  %topk = shardq.topk %scores visible(%visible) : (tensor<12x?xf32>, tensor<12xi32>) -> tensor<12x16xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<12x16xi32>, tensor<?x?xi32>, tensor<12xi32>) -> tensor<12x16xi32>
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<12x4x8xbf16>, tensor<?x8xbf16>, tensor<12x16xi32>, tensor<12xi32>) -> tensor<12x4x8xbf16>
  %1 = shardq.sparse_mla q(%0) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<12x4x8xbf16>, tensor<?x8xbf16>, tensor<12x16xi32>, tensor<12xi32>) -> tensor<12x4x8xbf16>
  return %1, %topk : tensor<12x4x8xbf16>, tensor<12x16xi32>
}

// -----

// The step's KV rows are taken, gathered and written by the padded slots, or as they were. The write itself is not under
// the condition, nor is the cache.
// CHECK-LABEL: func.func @write
// CHECK-SAME: %[[Q:[^:]*]]: tensor<?x4x8xbf16>, %[[KV:[^:]*]]: tensor<?x8xbf16>, %[[NEW:[^:]*]]: tensor<?x8xbf16>, %[[AT:[^:]*]]: tensor<?xi64>
// CHECK: %[[SPLIT:.*]]:2 = shardq.chunk_split
// CHECK: %[[GIVEN:.*]]:2 = scf.if %{{.*}} -> (tensor<?x8xbf16>, tensor<?xi64>) {
// CHECK: %[[OWN:.*]] = shardq.take_rows %[[NEW]][%[[SPLIT]]#0]
// CHECK: %[[ALL:.*]] = shardq.gather_rows %[[OWN]] over @ranks "pcp"
// CHECK: %[[N:.*]] = tensor.dim %[[SPLIT]]#0
// CHECK: %[[SLOTS:.*]]:2 = shardq.chunk_slots %[[AT]] by(%{{.*}}) decodes(%{{.*}}) local(%[[N]]) over @ranks "pcp" :
// CHECK: %[[SORTED:.*]] = shardq.take_rows %[[ALL]][%[[SLOTS]]#0]
// CHECK: scf.yield %[[SORTED]], %[[SLOTS]]#1
// CHECK-NEXT: } else {
// CHECK-NEXT: scf.yield %[[NEW]], %[[AT]]
// CHECK: %[[WRITTEN:.*]] = shardq.write_rows %[[GIVEN]]#0 at(%[[GIVEN]]#1) into(%[[KV]])
// ALWAYS-LABEL: func.func @write
// ALWAYS-NOT: scf.if
// ALWAYS: %[[SLOTS:.*]]:2 = shardq.chunk_slots
// ALWAYS: %[[SORTED:.*]] = shardq.take_rows %{{.*}}[%[[SLOTS]]#0]
// ALWAYS: shardq.write_rows %[[SORTED]] at(%[[SLOTS]]#1)
// CHECK: shardq.sparse_mla q(%{{.*}}) kv(%[[WRITTEN]])
// TWO-LABEL: func.func @write
// TWO: shardq.chunk_slots {{.*}} {by_part}
shardq.mesh @ranks ["pcp" = 2]
func.func @write(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %new: tensor<?x8xbf16>, %at: tensor<?xi64>, %slots: tensor<?x16xi32>,
                 %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %all = shardq.write_rows %new at(%at) into(%kv) : (tensor<?x8xbf16>, tensor<?xi64>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  %out = shardq.sparse_mla q(%q) kv(%all) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// Own rows are seen through casts, which say of them what they said of all.
// CHECK-LABEL: func.func @casts
// CHECK-NOT: = shardq.topk
// CHECK: %[[OWN:.*]] = shardq.topk %{{.*}} : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x16xi32>
// CHECK: %[[CAST:.*]] = tensor.cast %[[OWN]] : tensor<?x16xi32> to tensor<?x?xi32>
// CHECK: shardq.sparse_mla q(%{{.*}}) kv(%{{.*}}) slots(%[[CAST]])
// CHECK-NOT: = shardq.topk
// TWO-LABEL: func.func @casts
shardq.mesh @ranks ["pcp" = 2]
func.func @casts(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %scores: tensor<?x?xf32>, %start: tensor<?xi32>,
                 %lens: tensor<?xi32>, %rows: index) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %topk = shardq.topk %scores visible(%visible) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x16xi32>
  %cast = tensor.cast %topk : tensor<?x16xi32> to tensor<?x?xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%cast) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// No axis, or one rank: as it was.
// CHECK-LABEL: func.func @untouched
// CHECK-NOT: shardq.chunk_split
// TWO-LABEL: func.func @untouched
shardq.mesh @ranks ["pcp" = 1, "tp" = 2]
func.func @untouched(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %start: tensor<?xi32>,
                     %lens: tensor<?xi32>, %rows: index) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// Taps go along, also where others use what is tapped, and those that take two values of an op.
shardq.mesh @ranks ["pcp" = 2]
// CHECK-LABEL: func.func @taps
// CHECK: %[[WHOLE:.*]]:2 = shardq.convert_indices
// CHECK-NOT: shardq.tap
// CHECK: = shardq.convert_indices
// CHECK-NEXT: shardq.tap "slots" %{{.*}} rows(
// CHECK-NEXT: shardq.tap "count" %{{.*}} rows(
// CHECK-NOT: shardq.tap
// CHECK: return %{{.*}}, %[[WHOLE]]#0
func.func @taps(%q: tensor<?x2x8xf32>, %kv: tensor<?x8xf32>, %topk: tensor<?x4xi32>, %table: tensor<?x?xi32>, %starts: tensor<?xi32>,
    %lengths: tensor<?xi32>, %rows: index) -> (tensor<?x2x8xf32>, tensor<?x4xi32>) {
  %req, %visible = shardq.expand_rows %starts, %lengths to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots, %count = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x4xi32>, tensor<?xi32>)
  shardq.tap "slots" %slots : tensor<?x4xi32>
  shardq.tap "count" %count rows(%count : tensor<?xi32>) : tensor<?xi32>
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 0.5 : f32}
      : (tensor<?x2x8xf32>, tensor<?x8xf32>, tensor<?x4xi32>, tensor<?xi32>) -> tensor<?x2x8xf32>
  return %out, %slots : tensor<?x2x8xf32>, tensor<?x4xi32>
}

// -----

// Lists of the caller are to have the step's rows, since a missing one would pass for padding: once, whatever the calls. Of what the
// ops make of them, of static rows, and of the list that the step's rows are counted by, nothing is asked.
// CHECK-LABEL: func.func @lists
// CHECK: %[[ROWS:.*]] = tensor.dim %arg0
// CHECK-NEXT: shardq.expand_rows
// CHECK-DAG: %[[NEW:.*]] = tensor.dim %arg3
// CHECK-DAG: shardq.expect "rows of 'source' of shardq.write_rows" %[[NEW]] equals %[[ROWS]]
// CHECK-DAG: %[[AT:.*]] = tensor.dim %arg4
// CHECK-DAG: shardq.expect "rows of 'slots' of shardq.write_rows" %[[AT]] equals %[[ROWS]]
// CHECK-DAG: %[[TOPK:.*]] = tensor.dim %arg2
// CHECK-DAG: shardq.expect "rows of 'indices' of shardq.convert_indices" %[[TOPK]] equals %[[ROWS]]
// CHECK-DAG: %[[N:.*]] = tensor.dim %arg6
// CHECK-DAG: shardq.expect "rows of 'topk_length' of shardq.sparse_mla" %[[N]] equals %[[ROWS]]
// CHECK: shardq.chunk_split
// CHECK-NOT: shardq.expect
// CHECK: return
// TWO-LABEL: func.func @lists
// TWO-COUNT-4: shardq.expect
// TWO-NOT: shardq.expect
shardq.mesh @ranks ["pcp" = 2]
func.func @lists(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %topk: tensor<?x4xi32>, %new: tensor<?x8xbf16>, %at: tensor<?xi64>,
                 %table: tensor<?x?xi32>, %n: tensor<?xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>) -> tensor<?x4x8xbf16> {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : tensor<?x4x8xbf16>
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %all = shardq.write_rows %new at(%at) into(%kv) : (tensor<?x8xbf16>, tensor<?xi64>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  %out = shardq.sparse_mla q(%q) kv(%all) slots(%slots) rows(%req) topk_length(%n) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x4xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// CHECK-LABEL: func.func @static_lists
// CHECK-NOT: shardq.expect
// TWO-LABEL: func.func @static_lists
// TWO-NOT: shardq.expect
shardq.mesh @ranks ["pcp" = 2]
func.func @static_lists(%q: tensor<6x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<6x4xi32>, %start: tensor<?xi32>,
                        %lens: tensor<?xi32>) -> tensor<6x4x8xbf16> {
  %rows = arith.constant 6 : index
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<6xi32>, tensor<6xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<6x4x8xbf16>, tensor<?x8xbf16>, tensor<6x4xi32>, tensor<6xi32>) -> tensor<6x4x8xbf16>
  return %out : tensor<6x4x8xbf16>
}
