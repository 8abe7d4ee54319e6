// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=decode remarks=false" | FileCheck %s --check-prefix=DECODE
// RUN: shardq-opt %s --split-input-file --shardq-dcp="step=gather remarks=false" | FileCheck %s --check-prefix=GATHER
// RUN: shardq-opt %s --split-input-file --shardq-pcp="remarks=false" --shardq-dcp="remarks=false" --cse | FileCheck %s --check-prefix=CHUNKS
// RUN: shardq-opt %s --split-input-file --shardq-pcp="two-calls=true remarks=false" --shardq-dcp="remarks=false" --cse | FileCheck %s --check-prefix=TWO
// RUN: shardq-opt %s --split-input-file --shardq-pcp="remarks=false" --shardq-dcp="step=gather remarks=false" --cse | FileCheck %s --check-prefix=EVERY
// RUN: shardq-opt %s --split-input-file --shardq-pcp="remarks=false" --shardq-dcp -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: shardq-opt %s --split-input-file --shardq-pcp="remarks=false" --shardq-dcp="step=gather" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK-EVERY
// RUN: shardq-opt %s --split-input-file --shardq-pcp -o /dev/null 2>&1 | FileCheck %s --check-prefix=ALONE
// RUN: not shardq-opt %s --split-input-file --shardq-pcp="remarks=false" --shardq-dcp="step=decode remarks=false" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MERGED-CHUNKS

// KV over all ranks of pcp and dcp. Queries travel among ranks of other heads, outputs are
// merged there first, then among those of the same heads, each of which keeps them all.

// DECODE-LABEL: func.func @attend
// DECODE: %[[OWN:.*]]:2 = shardq.filter_indices %{{.*}} over @ranks "kv"
// DECODE: %[[Q:.*]] = shardq.gather_query(%{{.*}}) over @ranks "dcp" : (tensor<?x8x40xbf16>) -> tensor<?x16x40xbf16>
// DECODE: %[[PARTIAL:.*]]:2 = shardq.sparse_mla q(%[[Q]]) kv(%{{.*}}) slots(%[[OWN]]#0)
// DECODE-NOT: sharding
// DECODE: %[[HEADS:.*]]:2 = shardq.combine_lse %[[PARTIAL]]#0 lse(%[[PARTIAL]]#1) over @ranks "dcp"
// DECODE-SAME: -> (tensor<?x8x32xbf16>, tensor<?x8xf32>)
// DECODE: %[[ALL:.*]] = shardq.combine_lse %[[HEADS]]#0 lse(%[[HEADS]]#1) over @ranks "pcp"
// DECODE-SAME: (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x8x32xbf16>
// DECODE: return %[[ALL]]

// GATHER-LABEL: func.func @attend
// GATHER: shardq.gather_blocks %{{.*}} over @ranks "kv"
// GATHER: shardq.gather_kv_start(%{{.*}}) blocks(%{{.*}}) over @ranks "kv"
// GATHER: shardq.gathered_slots %{{.*}} over @ranks "kv"
// GATHER: shardq.sparse_mla
// GATHER-SAME: sharding = #shardq.sharding<@ranks, heads = ["tp"]>

// Ranks along pcp have rows of their own, which cannot be merged: a step with chunks gathers keys, and one whose keys do not
// fit has none. All that divides the step knows that.
// CHUNKS-LABEL: func.func @attend
// CHUNKS: %[[DECODES:.*]] = shardq.count_decode_rows
// CHUNKS: %[[BLOCKS:.*]]:3 = shardq.gather_blocks %{{.*}} over @ranks "kv"
// CHUNKS: %[[FITS:.*]] = shardq.gather_gate %{{.*}} blocks(%[[BLOCKS]]#2) decodes(%[[DECODES]]) over @ranks "kv"
// CHUNKS: %[[WHOLE:.*]] = arith.select %[[FITS]], %[[DECODES]], %[[ROWS:.*]] : index
// CHUNKS: shardq.chunk_split %{{.*}} decodes(%[[WHOLE]]) rows(%[[ROWS]]) over @ranks "pcp"
// CHUNKS: %[[TAILS:.*]] = shardq.count_chunk_rows tail %{{.*}} decodes(%[[WHOLE]]) {{.*}} over @ranks "pcp"
// CHUNKS-NOT: shardq.count_chunk_rows
// CHUNKS: %[[OPEN:.*]] = arith.cmpi sgt, %[[TAILS]], %c0
// CHUNKS: scf.if %[[OPEN]]
// CHUNKS: shardq.gather_kv_start(%{{.*}}) blocks(%{{.*}}) over @ranks "kv"
// CHUNKS-NOT: combine_lse
// CHUNKS: } else {
// CHUNKS: shardq.combine_lse %{{.*}} over @ranks "dcp"
// CHUNKS: shardq.combine_lse %{{.*}} over @ranks "pcp"
// CHUNKS: scf.if %[[OPEN]]
// CHUNKS: shardq.gather_rows %{{.*}} over @ranks "pcp"
// TWO-LABEL: func.func @attend
// TWO: shardq.gather_blocks
// TWO: %[[WHOLE:.*]] = arith.select
// TWO: shardq.chunk_split %{{.*}} decodes(%[[WHOLE]])
// TWO: shardq.count_chunk_rows tail %{{.*}} decodes(%[[WHOLE]])
// TWO: shardq.chunk_lengths head %{{.*}} decodes(%[[WHOLE]])
// TWO: shardq.chunk_lengths tail %{{.*}} decodes(%[[WHOLE]])
// With keys of all steps the split knows their capacity alone, as does the branch.
// EVERY-LABEL: func.func @attend
// EVERY: %[[DECODES:.*]] = shardq.count_decode_rows
// EVERY: %[[BLOCKS:.*]]:3 = shardq.gather_blocks
// EVERY: %[[FITS:.*]] = shardq.gather_gate %{{.*}} blocks(%[[BLOCKS]]#2) decodes(%c-1) over @ranks "kv"
// EVERY: %[[WHOLE:.*]] = arith.select %[[FITS]], %[[DECODES]], %{{.*}} : index
// EVERY: shardq.chunk_split %{{.*}} decodes(%[[WHOLE]])
// EVERY: scf.if %[[FITS]]
// EVERY: shardq.gather_kv_start
// EVERY: } else {
// EVERY: shardq.combine_lse
// REMARK: remark: attention runs on keys gathered over "kv" (4 ranks) in steps with prefill, on own keys in others
// REMARK-NOT: made behind
// REMARK-EVERY: remark: attention runs on keys gathered over "kv" (4 ranks) where they fit, on own keys elsewhere
// REMARK-EVERY-NOT: made behind
// MERGED-CHUNKS: error: 'shardq.sparse_mla' op cannot attend own keys alone: it runs on chunks of requests over "pcp", over which its KV is sharded too

shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "dcp" = 2 in "tp", "kv" = 4 of ["pcp", "dcp"]]
func.func @attend(%q: tensor<?x8x40xbf16>, %kv: tensor<?x40xbf16>, %topk: tensor<?x12xi32>, %table: tensor<?x?xi32>,
                  %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>) -> tensor<?x8x32xbf16> {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : tensor<?x8x40xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots, %count = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?x12xi32>, tensor<?xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["kv"]>}
      : (tensor<?x8x40xbf16>, tensor<?x40xbf16>, tensor<?x12xi32>, tensor<?xi32>) -> tensor<?x8x32xbf16>
  return %out : tensor<?x8x32xbf16>
}

// -----

// Three axes, of which one divides heads.
// DECODE-LABEL: func.func @three
// DECODE: shardq.gather_query(%{{.*}}) over @ranks "tp"
// DECODE: shardq.combine_lse %{{.*}} over @ranks "tp" : (tensor<?x16x32xbf16>, tensor<?x16xf32>) -> (tensor<?x8x32xbf16>, tensor<?x8xf32>)
// DECODE: shardq.combine_lse %{{.*}} over @ranks "pcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> (tensor<?x8x32xbf16>, tensor<?x8xf32>)
// DECODE: %[[MERGED:.*]]:2 = shardq.combine_lse %{{.*}} over @ranks "dp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> (tensor<?x8x32xbf16>, tensor<?x8xf32>)
// DECODE: return %[[MERGED]]#0, %[[MERGED]]#1
// GATHER-LABEL: func.func @three
// CHUNKS-LABEL: func.func @three
// TWO-LABEL: func.func @three

shardq.mesh @ranks ["dp" = 2, "pcp" = 2, "tp" = 2, "kv" = 8 of ["dp", "pcp", "tp"]]
func.func @three(%q: tensor<?x8x40xbf16>, %kv: tensor<?x40xbf16>, %topk: tensor<?x12xi32>, %table: tensor<?x?xi32>,
                 %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>) -> (tensor<?x8x32xbf16>, tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : tensor<?x8x40xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["kv"]>}
      : (tensor<?x8x40xbf16>, tensor<?x40xbf16>, tensor<?x12xi32>, tensor<?xi32>) -> (tensor<?x8x32xbf16>, tensor<?x8xf32>)
  return %out, %lse : tensor<?x8x32xbf16>, tensor<?x8xf32>
}

// -----

// A layer with a table of its own: one whose keys do not fit, and no layer has chunks. A table that is made behind the split is
// made in front of it, unless that may do more: it is too late then, so that attention has whole rows.
// DECODE-LABEL: func.func @tables
// GATHER-LABEL: func.func @tables
// CHUNKS-LABEL: func.func @tables
// CHUNKS: %[[DECODES:.*]] = shardq.count_decode_rows
// CHUNKS: %[[FITS:.*]] = shardq.gather_gate {{.*}} decodes(%[[DECODES]])
// CHUNKS: %[[ONE:.*]] = arith.select %[[FITS]], %[[DECODES]], %{{.*}} : index
// CHUNKS: %[[FITS2:.*]] = shardq.gather_gate {{.*}} decodes(%[[ONE]])
// CHUNKS: %[[BOTH:.*]] = arith.select %[[FITS2]], %[[ONE]], %{{.*}} : index
// CHUNKS: %[[SUM:.*]] = arith.addi %{{.*}}, %{{.*}} : tensor<?x?xi32>
// CHUNKS: %[[VIEWED:.*]] = tensor.cast %[[SUM]]
// CHUNKS: shardq.gather_blocks %[[VIEWED]]
// CHUNKS: %[[FITS3:.*]] = shardq.gather_gate {{.*}} decodes(%[[BOTH]])
// CHUNKS: %[[THREE:.*]] = arith.select %[[FITS3]], %[[BOTH]], %{{.*}} : index
// CHUNKS: shardq.chunk_split {{.*}} decodes(%[[THREE]])
// CHUNKS: %[[TAILS:.*]] = shardq.count_chunk_rows tail {{.*}} decodes(%[[THREE]])
// CHUNKS: %[[OPEN:.*]] = arith.cmpi sgt, %[[TAILS]], %c0
// CHUNKS-NOT: shardq.count_chunk_rows
// CHUNKS-COUNT-3: shardq.gather_kv_start
// CHUNKS: %[[LATE:.*]] = call @table
// CHUNKS: shardq.gather_blocks %[[LATE]]
// CHUNKS: %[[LAST:.*]] = shardq.gather_gate
// CHUNKS: scf.if %[[LAST]]
// CHUNKS: shardq.gather_kv_start
// CHUNKS: shardq.sparse_mla q(%arg0)
// CHUNKS: } else {
// CHUNKS: shardq.gather_query(%arg0) over @ranks "dcp"
// CHUNKS: shardq.combine_lse {{.*}} over @ranks "dcp"
// CHUNKS: shardq.combine_lse {{.*}} over @ranks "pcp"
// EVERY-LABEL: func.func @tables
// EVERY-COUNT-3: shardq.gather_gate
// EVERY: shardq.chunk_split
// EVERY-NOT: shardq.gather_gate
// EVERY: call @table
// EVERY: %[[LAST:.*]] = shardq.gather_gate
// EVERY: scf.if %[[LAST]]
// EVERY: shardq.gather_kv_finish
// REMARK-COUNT-4: in steps with prefill, on own keys in others{{$}}
// REMARK-EVERY-COUNT-4: where they fit, on own keys elsewhere{{$}}
// ALONE: remark: attention is left alone: its KV is sharded over axis "kv", which has the ranks of "pcp", and its block table cannot be made before rows are divided
// TWO-LABEL: func.func @tables

shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "dcp" = 2 in "tp", "kv" = 4 of ["pcp", "dcp"]]
func.func private @table(tensor<?x?xi32>) -> tensor<?x?xi32>
func.func @tables(%q: tensor<?x8x40xbf16>, %kv: tensor<?x40xbf16>, %topk: tensor<?x12xi32>, %table: tensor<?x?xi32>, %other: tensor<?x?xi32>,
                  %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>)
    -> (tensor<?x8x32xbf16>, tensor<?x8x32xbf16>, tensor<?x8x32xbf16>, tensor<?x8x32xbf16>) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : tensor<?x8x40xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req)
      {scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["kv"]>}
      : (tensor<?x8x40xbf16>, tensor<?x40xbf16>, tensor<?x12xi32>, tensor<?xi32>) -> tensor<?x8x32xbf16>
  %slots2 = shardq.convert_indices %topk table(%other) rows(%req) {block_size = 64 : i64}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %1 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots2) rows(%req)
      {scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["kv"]>}
      : (tensor<?x8x40xbf16>, tensor<?x40xbf16>, tensor<?x12xi32>, tensor<?xi32>) -> tensor<?x8x32xbf16>
  %sum = arith.addi %table, %other : tensor<?x?xi32>
  %late = tensor.cast %sum : tensor<?x?xi32> to tensor<?x9xi32>
  %slots3 = shardq.convert_indices %topk table(%late) rows(%req) {block_size = 64 : i64}
      : (tensor<?x12xi32>, tensor<?x9xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %2 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots3) rows(%req)
      {scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["kv"]>}
      : (tensor<?x8x40xbf16>, tensor<?x40xbf16>, tensor<?x12xi32>, tensor<?xi32>) -> tensor<?x8x32xbf16>
  %late4 = func.call @table(%table) : (tensor<?x?xi32>) -> tensor<?x?xi32>
  %slots4 = shardq.convert_indices %topk table(%late4) rows(%req) {block_size = 64 : i64}
      : (tensor<?x12xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x12xi32>
  %3 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots4) rows(%req)
      {scale = 0.2 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["kv"]>}
      : (tensor<?x8x40xbf16>, tensor<?x40xbf16>, tensor<?x12xi32>, tensor<?xi32>) -> tensor<?x8x32xbf16>
  return %0, %1, %2, %3 : tensor<?x8x32xbf16>, tensor<?x8x32xbf16>, tensor<?x8x32xbf16>, tensor<?x8x32xbf16>
}
