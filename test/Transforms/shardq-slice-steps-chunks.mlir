// Steps of more rows than inboxes hold have no chunks: all rows are whole on every rank, as those of decode requests.
//
// DEFINE: %{pcp} = --shardq-pcp=remarks=false
// DEFINE: %{two} = --shardq-pcp="two-calls=true remarks=false"
// DEFINE: %{every} = --shardq-pcp="gate=false remarks=false"
// DEFINE: %{few} = --shardq-slice-steps="max-tokens=64 max-requests=8"
// DEFINE: %{many} = --shardq-slice-steps="max-tokens=64 max-requests=32"
// RUN: shardq-opt %s --split-input-file %{pcp} %{few} | FileCheck %s --implicit-check-not=scf.for
// RUN: shardq-opt %s --split-input-file %{two} %{few} | FileCheck %s --check-prefix=TWO --implicit-check-not=scf.for
// RUN: shardq-opt %s --split-input-file %{pcp} %{many} | FileCheck %s --check-prefix=MANY --implicit-check-not=scf.for
// RUN: shardq-opt %s --split-input-file %{every} %{few} | FileCheck %s --check-prefix=EVERY
// RUN: shardq-opt %s --split-input-file %{two} %{few} > %t.once
// RUN: shardq-opt %t.once --split-input-file %{few} | diff %t.once -
// RUN: shardq-opt %s --split-input-file %{pcp} %{few} --canonicalize --cse > %t.once
// RUN: shardq-opt %t.once --split-input-file %{few} --canonicalize --cse | diff %t.once -
//
// The bound costs no inbox and no generation.
// RUN: shardq-opt %shardq_src/examples/deepseek-v32-pcp2-dcp2-chunked.mlir -o /dev/null \
// RUN:   --pass-pipeline='builtin.module(shardq-pcp{remarks=false},shardq-dcp{remarks=false},shardq-to-cpu)' --mlir-print-ir-after=shardq-plan-workspace 2>&1 \
// RUN:   | grep 'shardq.plan @plan' | FileCheck %s --check-prefix=PLAN
// PLAN: #shardq.channel<"gather_rows 128xbf16", offset = 0, bytes = 4456448, generations = 1>
// PLAN: #shardq.channel<"gather_rows 64x512xbf16", offset = {{[0-9]*}}, bytes = 1140850688, generations = 1>]

// Whatever divides the step takes one number of whole rows, the gate of the exchanges among it; so the rows to write are
// those given, too. Requests count with a row more of each.
// CHECK-LABEL: func.func @write
// CHECK-SAME: %[[NEW:[^:]*]]: tensor<?x8xbf16>, %[[AT:[^:]*]]: tensor<?xi64>
// CHECK: %[[DECODES:.*]] = shardq.count_decode_rows %[[START:.*]] :
// CHECK: %[[MORE:.*]] = arith.cmpi sgt, %[[ROWS:.*]], %c64
// CHECK: %[[STARTS:.*]] = tensor.dim %[[START]], %c0
// CHECK: %[[N:.*]] = arith.subi %[[STARTS]], %c1
// CHECK: %[[SOME:.*]] = arith.minsi %[[ROWS]], %[[N]]
// CHECK: %[[PADDED:.*]] = arith.addi %[[ROWS]], %[[SOME]]
// CHECK: %[[TOO:.*]] = arith.cmpi sgt, %[[PADDED]], %c80
// CHECK: %[[EITHER:.*]] = arith.ori %[[MORE]], %[[TOO]]
// CHECK: %[[WHOLE:.*]] = arith.select %[[EITHER]], %[[ROWS]], %[[DECODES]] : index
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
// MANY-LABEL: func.func @write
// MANY: %[[MORE:.*]] = arith.cmpi sgt, %{{.*}}, %c64
// MANY-NOT: arith.ori
// MANY: arith.select %[[MORE]],
//
// Where every step gathers, there are chunks of all, and turns of 80 rows of each rank: as many as the host of a GPU knows to be enough.
// EVERY-LABEL: func.func @write
// EVERY-NOT: arith.select
// EVERY: %[[MOST:.*]] = arith.addi %{{.*}}, %{{.*}} : index
// EVERY: scf.for %{{.*}} = %c0{{.*}} to %[[MOST]] step %c80
// EVERY: shardq.gather_rows
// EVERY: shardq.sparse_mla
// EVERY: scf.for %{{.*}} = %c0{{.*}} to %{{.*}} step %c80
// EVERY: shardq.gather_rows
shardq.mesh @ranks ["pcp" = 2]
func.func @write(%new: tensor<?x8xbf16>, %at: tensor<?xi64>, %q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>,
                 %start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index) -> tensor<?x4x8xbf16> {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %all = shardq.write_rows %new at(%at) into(%kv) : (tensor<?x8xbf16>, tensor<?xi64>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  %out = shardq.sparse_mla q(%q) kv(%all) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// Of a known number of rows, 64 need no choice, but for requests.
// CHECK-LABEL: func.func @fits
// CHECK: %[[TOO:.*]] = arith.cmpi sgt, %{{.*}}, %c80
// CHECK-NOT: arith.ori
// CHECK: arith.select %[[TOO]],
// MANY-LABEL: func.func @fits
// MANY-NOT: arith.select
// TWO-LABEL: func.func @fits
// EVERY-LABEL: func.func @fits
shardq.mesh @ranks ["pcp" = 2]
func.func @fits(%q: tensor<64x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<64x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>)
    -> tensor<64x4x8xbf16> {
  %rows = arith.constant 64 : index
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<64xi32>, tensor<64xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<64x4x8xbf16>, tensor<?x8xbf16>, tensor<64x16xi32>, tensor<64xi32>) -> tensor<64x4x8xbf16>
  return %out : tensor<64x4x8xbf16>
}

// -----

// And 65 are never divided.
// CHECK-LABEL: func.func @never
// CHECK: arith.cmpi sgt, %c65, %c64
// CHECK: arith.select
// TWO-LABEL: func.func @never
// MANY-LABEL: func.func @never
// MANY: arith.select
// EVERY-LABEL: func.func @never
shardq.mesh @ranks ["pcp" = 2]
func.func @never(%q: tensor<65x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<65x16xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>)
    -> tensor<65x4x8xbf16> {
  %rows = arith.constant 65 : index
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<65xi32>, tensor<65xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<65x4x8xbf16>, tensor<?x8xbf16>, tensor<65x16xi32>, tensor<65xi32>) -> tensor<65x4x8xbf16>
  return %out : tensor<65x4x8xbf16>
}

// -----

// Of known numbers both ways; here 60 rows of 30 requests.
// CHECK-LABEL: func.func @requests
// CHECK: arith.cmpi sgt, %{{.*}}, %c80
// CHECK-NOT: arith.ori
// CHECK: arith.select
// TWO-LABEL: func.func @requests
// MANY-LABEL: func.func @requests
// MANY-NOT: arith.select
// MANY: shardq.chunk_split
// EVERY-LABEL: func.func @requests
shardq.mesh @ranks ["pcp" = 2]
func.func @requests(%q: tensor<60x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<60x16xi32>, %start: tensor<31xi32>, %lens: tensor<30xi32>)
    -> tensor<60x4x8xbf16> {
  %rows = arith.constant 60 : index
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<31xi32>, tensor<30xi32>, index) -> (tensor<60xi32>, tensor<60xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<60x4x8xbf16>, tensor<?x8xbf16>, tensor<60x16xi32>, tensor<60xi32>) -> tensor<60x4x8xbf16>
  return %out : tensor<60x4x8xbf16>
}

// -----

// Starts that are some of others: the number of requests is what a second run finds it to be.
// CHECK-LABEL: func.func @made
// CHECK: arith.select
// TWO-LABEL: func.func @made
// MANY-LABEL: func.func @made
// EVERY-LABEL: func.func @made
shardq.mesh @ranks ["pcp" = 2]
func.func @made(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %starts: tensor<?xi32>, %lens: tensor<?xi32>,
                %rows: index, %n: index) -> tensor<?x4x8xbf16> {
  %start = tensor.extract_slice %starts[0] [%n] [1] : tensor<?xi32> to tensor<?xi32>
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}

// -----

// CHECK-LABEL: func.func @cast
// CHECK: arith.select
// TWO-LABEL: func.func @cast
// MANY-LABEL: func.func @cast
// EVERY-LABEL: func.func @cast
shardq.mesh @ranks ["pcp" = 2]
func.func @cast(%q: tensor<?x4x8xbf16>, %kv: tensor<?x8xbf16>, %slots: tensor<?x16xi32>, %starts: tensor<31xi32>, %lens: tensor<?xi32>,
                %rows: index) -> tensor<?x4x8xbf16> {
  %start = tensor.cast %starts : tensor<31xi32> to tensor<?xi32>
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %out = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) {scale = 1.0 : f32}
      : (tensor<?x4x8xbf16>, tensor<?x8xbf16>, tensor<?x16xi32>, tensor<?xi32>) -> tensor<?x4x8xbf16>
  return %out : tensor<?x4x8xbf16>
}
