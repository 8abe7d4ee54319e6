// Steps of more rows than inboxes hold have no chunks: all rows are whole on every rank, as those of decode requests.
//
// RUN: shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64" --verify-diagnostics | FileCheck %s
// RUN: shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64 two-calls=true remarks=false" | FileCheck %s --check-prefix=TWO
// RUN: shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64 remarks=false" -o %t.once
// RUN: shardq-opt %t.once --split-input-file --shardq-pcp="max-tokens=64 remarks=false" | diff %t.once -
//
// RUN: not shardq-opt %s --split-input-file --shardq-pcp="max-tokens=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not shardq-opt %s --split-input-file --shardq-pcp="max-tokens=2147483648" 2>&1 | FileCheck %s --check-prefix=LARGE
// RUN: not shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64 gate=false" 2>&1 | FileCheck %s --check-prefix=UNGATED
// RUN: not shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64 max-requests=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE-REQUESTS
// RUN: not shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64 max-requests=2147483648" 2>&1 | FileCheck %s --check-prefix=LARGE-REQUESTS
// RUN: not shardq-opt %s --split-input-file --shardq-pcp="max-requests=8" 2>&1 | FileCheck %s --check-prefix=ALONE
// NEGATIVE-REQUESTS: error: shardq-pcp: max-requests is -1, expected 0 to 2147483647
// LARGE-REQUESTS: error: shardq-pcp: max-requests is 2147483648, expected 0 to 2147483647
// ALONE: error: shardq-pcp: max-requests is 8 without max-tokens, expected 0
// NEGATIVE: error: shardq-pcp: max-tokens is -1, expected 0 to 2147483647
// LARGE: error: shardq-pcp: max-tokens is 2147483648, expected 0 to 2147483647
// UNGATED: error: shardq-pcp: max-tokens is 64 with gate=false, expected 0: without the gate every step exchanges rows
//
// Requests count as well, with a row more of each; so do they where the types say how many rows there are, if these do not say that it fits.
// RUN: shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64 max-requests=8 remarks=false" | FileCheck %s --check-prefix=REQUESTS
// RUN: shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64 max-requests=32 remarks=false" | FileCheck %s --check-prefix=MANY
// RUN: shardq-opt %s --split-input-file --shardq-pcp="max-tokens=64 max-requests=8" -o /dev/null 2>&1 | FileCheck %s --check-prefix=SAYS
// RUN: shardq-opt %s --split-input-file --shardq-pcp -o /dev/null 2>&1 | FileCheck %s --check-prefix=BARE
// BARE: remark: attention runs on chunks of requests over "pcp" (2 ranks); without max-tokens, steps of more rows than inboxes hold are an error at run time
// SAYS: remark: attention runs on chunks of requests over "pcp" (2 ranks){{$}}
// SAYS: remark: attention is left alone: its step has 60 rows and 30 requests, more than max-tokens + 2*max-requests, 80
// MANY-LABEL: func.func @write
// MANY: %[[MORE:.*]] = arith.cmpi sgt, %{{.*}}, %c64
// MANY-NOT: arith.ori
// MANY: arith.select %[[MORE]],
// MANY-LABEL: func.func @fits
// MANY-NOT: arith.select
// MANY-LABEL: func.func @never
//
// The bound costs no inbox and no generation: what is planned is the same, and proved.
// DEFINE: %{pcp} =
// DEFINE: %{plan} = shardq-opt %shardq_src/examples/deepseek-v32-pcp2-dcp2-chunked.mlir -o /dev/null \
// DEFINE:   --pass-pipeline='builtin.module(%{pcp},shardq-dcp{remarks=false},shardq-to-cpu)' --mlir-print-ir-after=shardq-plan-workspace 2>&1 | grep 'shardq.plan @plan'
// REDEFINE: %{pcp} = shardq-pcp{remarks=false}
// RUN: %{plan} > %t.plan
// REDEFINE: %{pcp} = shardq-pcp{max-tokens=8192 remarks=false}
// RUN: %{plan} | diff %t.plan -

// Whatever divides the step takes one number of whole rows, the gate of the exchanges among it; so the rows to write are
// those given, too.
// REQUESTS-LABEL: func.func @write
// REQUESTS: %[[MORE:.*]] = arith.cmpi sgt, %[[ROWS:.*]], %c64
// REQUESTS: %[[STARTS:.*]] = tensor.dim %[[START:.*]], %c0
// REQUESTS: %[[N:.*]] = arith.subi %[[STARTS]], %c1
// REQUESTS: %[[SOME:.*]] = arith.minsi %[[ROWS]], %[[N]]
// REQUESTS: %[[PADDED:.*]] = arith.addi %[[ROWS]], %[[SOME]]
// REQUESTS: %[[TOO:.*]] = arith.cmpi sgt, %[[PADDED]], %c80
// REQUESTS: %[[EITHER:.*]] = arith.ori %[[MORE]], %[[TOO]]
// REQUESTS: %[[WHOLE:.*]] = arith.select %[[EITHER]], %[[ROWS]], %{{.*}} : index
// REQUESTS: shardq.chunk_split %[[START]] decodes(%[[WHOLE]])
// CHECK-LABEL: func.func @write
// CHECK-SAME: %[[NEW:[^:]*]]: tensor<?x8xbf16>, %[[AT:[^:]*]]: tensor<?xi64>
// CHECK: %[[DECODES:.*]] = shardq.count_decode_rows %[[START:.*]] :
// CHECK: %[[MORE:.*]] = arith.cmpi sgt, %[[ROWS:.*]], %c64
// CHECK: %[[WHOLE:.*]] = arith.select %[[MORE]], %[[ROWS]], %[[DECODES]]
// CHECK: shardq.chunk_split %[[START]] decodes(%[[WHOLE]]) rows(%[[ROWS]])
// CHECK: %[[TAILS:.*]] = shardq.count_chunk_rows tail %[[START]] decodes(%[[WHOLE]])
// CHECK: %[[OPEN:.*]] = arith.cmpi sgt, %[[TAILS]], %c0
// CHECK: %[[GIVEN:.*]]:2 = scf.if %[[OPEN]]
// CHECK: shardq.chunk_slots %[[AT]] by(%[[START]]) decodes(%[[WHOLE]])
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[NEW]], %[[AT]]
// CHECK: shardq.write_rows %[[GIVEN]]#0
// CHECK: shardq.sparse_mla
// CHECK: scf.if %[[OPEN]]
// TWO-LABEL: func.func @write
// TWO: %[[WHOLE:.*]] = arith.select
// TWO: shardq.chunk_split %{{.*}} decodes(%[[WHOLE]])
// TWO: shardq.count_chunk_rows tail %{{.*}} decodes(%[[WHOLE]])
// TWO: shardq.count_chunk_rows head %{{.*}} decodes(%[[WHOLE]])
// TWO: shardq.chunk_lengths head %{{.*}} decodes(%[[WHOLE]])
// TWO: shardq.chunk_lengths tail %{{.*}} decodes(%[[WHOLE]])
shardq.mesh @ranks ["pcp" = 2]
func.func @write(%new: tensor<?x8xbf16>, %at: tensor<?xi64>, %q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>,
                 %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %all = shardq.write_rows %new at(%at) into(%kv) : (tensor<?x8xbf16>, tensor<?xi64>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  // expected-remark @+1 {{attention runs on chunks of requests over "pcp" (2 ranks)}}
  %out = shardq.sparse_mla q(%q) kv(%all) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// Of a known number of rows, 64 need no choice.
// REQUESTS-LABEL: func.func @fits
// REQUESTS: %[[TOO:.*]] = arith.cmpi sgt, %{{.*}}, %c80
// REQUESTS-NOT: arith.ori
// REQUESTS: arith.select %[[TOO]],
// CHECK-LABEL: func.func @fits
// CHECK-NOT: arith.select
// CHECK: shardq.chunk_split
// CHECK-NOT: arith.select
// TWO-LABEL: func.func @fits
shardq.mesh @ranks ["pcp" = 2]
func.func @fits(%q: tensor<64x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<64x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
                %rows: index) -> tensor<64x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<64xi32>, tensor<64xi32>)
  // expected-remark @+1 {{attention runs on chunks of requests over "pcp" (2 ranks)}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<64x4x8xbf16>, tensor<?x8xbf16>, tensor<64x16xi32>, tensor<64xi32>) -> tensor<64x4x8xbf16>
  return %out : tensor<64x4x8xbf16>
}

// -----

// And 65 are never divided.
// CHECK-LABEL: func.func @never
// CHECK-NOT: shardq.chunk_split
// TWO-LABEL: func.func @never
shardq.mesh @ranks ["pcp" = 2]
func.func @never(%q: tensor<65x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<65x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
                 %rows: index) -> tensor<65x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<65xi32>, tensor<65xi32>)
  // expected-remark @+1 {{attention is left alone: its step has 65 rows, more than max-tokens, 64}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<65x4x8xbf16>, tensor<?x8xbf16>, tensor<65x16xi32>, tensor<65xi32>) -> tensor<65x4x8xbf16>
  return %out : tensor<65x4x8xbf16>
}

// -----

// Of known numbers both ways; here 60 rows of 30 requests.
// CHECK-LABEL: func.func @requests
// CHECK: shardq.chunk_split
// TWO-LABEL: func.func @requests
// REQUESTS-LABEL: func.func @requests
// REQUESTS-NOT: shardq.chunk_split
// MANY-LABEL: func.func @requests
// MANY-NOT: arith.select
// MANY: shardq.chunk_split
shardq.mesh @ranks ["pcp" = 2]
func.func @requests(%q: tensor<60x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<60x16xi32>, %start: tensor<31xi32>,
                    %lens: tensor<30xi32>, %rows: index) -> tensor<60x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<31xi32>, tensor<30xi32>, index) -> (tensor<60xi32>, tensor<60xi32>)
  // expected-remark @+1 {{; without max-requests, steps of more requests than inboxes hold are an error at run time}}
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<60x4x8xbf16>, tensor<?x8xbf16>, tensor<60x16xi32>, tensor<60xi32>) -> tensor<60x4x8xbf16>
  return %out : tensor<60x4x8xbf16>
}
