// RUN: shardq-opt %s --split-input-file --shardq-move-projections="memory=16384 remarks=false" --canonicalize | FileCheck %s
// RUN: shardq-opt %s --split-input-file --shardq-move-projections="memory=16384 remarks=false" \
// RUN:   --shardq-move-projections="memory=16384 remarks=false" --canonicalize | FileCheck %s

// Outputs are projected before they are merged. The weights are those of all heads; what else reads them
// takes this rank's.

// CHECK-LABEL: func.func @down(
// CHECK-SAME: %[[PARTIAL:.*]]: tensor<?x8x32xbf16>, %[[LSE:.*]]: tensor<?x8xf32>, %[[W:.*]]: tensor<8x32x16xbf16>)
// CHECK: %[[RANK:.*]] = shardq.rank over @ranks "dcp"
// CHECK: %[[FIRST:.*]] = arith.muli %[[RANK]], %c4
// CHECK: %[[OWN:.*]] = tensor.extract_slice %[[W]][%[[FIRST]], 0, 0] [4, 32, 16] [1, 1, 1]
// CHECK: %[[ZEROS:.*]] = linalg.fill {{.*}} -> tensor<?x8x16xf32>
// CHECK: %[[NARROW:.*]] = linalg.contract {{.*}} ins(%[[PARTIAL]], %[[W]] : {{.*}}) outs(%[[ZEROS]] : tensor<?x8x16xf32>)
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[NARROW]]
// CHECK: %[[OUT:.*]]:2 = shardq.combine_lse %[[ROUNDED]] lse(%[[LSE]]) over @ranks "dcp"
// CHECK-SAME: {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x4x16xbf16>, tensor<?x4xf32>)
// CHECK: return %[[OUT]]#0, %[[OUT]]#1, %[[OWN]]
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @down(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x16xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">})
    -> (tensor<?x4x16xbf16>, tensor<?x4xf32>, tensor<4x32x16xbf16>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %out, %merged = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" {lse = #shardq.lse<base = two>}
      : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> (tensor<?x4x32xbf16>, tensor<?x4xf32>)
  %rows = tensor.dim %partial, %c0 : tensor<?x8x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x16xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x16xbf16>)
      outs(%zeros : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %rounded = arith.truncf %v : tensor<?x4x16xf32> to tensor<?x4x16xbf16>
  return %rounded, %merged, %w : tensor<?x4x16xbf16>, tensor<?x4xf32>, tensor<4x32x16xbf16>
}

// -----

// Queries are gathered before they are projected.

// CHECK-LABEL: func.func @up(
// CHECK-SAME: %[[Q:[a-z0-9]*]]: tensor<?x4x16xbf16>, %[[ROPE:[a-z0-9]*]]: tensor<?x4x8xbf16>, %[[W:[a-z0-9]*]]: tensor<8x16x32xbf16>,
// CHECK: %[[ALL:.*]] = shardq.gather_query(%[[Q]], %[[ROPE]]) over @ranks "dcp" {{.*}} -> tensor<?x8x24xbf16>
// CHECK: %[[NOPE:.*]] = tensor.extract_slice %[[ALL]][0, 0, 0] [{{.*}}, 8, 16] [1, 1, 1]
// CHECK: %[[WIDE:.*]] = linalg.contract {{.*}} ins(%[[NOPE]], %[[W]] : {{.*}} -> tensor<?x8x32xbf16>
// CHECK: %[[REST:.*]] = tensor.extract_slice %[[ALL]][0, 0, 16] [{{.*}}, 8, 8] [1, 1, 1]
// CHECK: shardq.sparse_mla q(%[[WIDE]], %[[REST]])
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @up(%q: tensor<?x4x16xbf16>, %rope: tensor<?x4x8xbf16>, %w: tensor<4x16x32xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
              %kv: tensor<?x40xbf16>, %slots: tensor<?x6xi32>) -> tensor<?x8x32xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %rows = tensor.dim %q, %c0 : tensor<?x4x16xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x32xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%empty : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %nope = linalg.contract indexing_maps = [#row, #weight, #out] ins(%q, %w : tensor<?x4x16xbf16>, tensor<4x16x32xbf16>)
      outs(%zeros : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %all = shardq.gather_query(%nope, %rope) over @ranks "dcp" : (tensor<?x4x32xbf16>, tensor<?x4x8xbf16>) -> tensor<?x8x40xbf16>
  %out = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 0.2 : f32}
      : (tensor<?x8x40xbf16>, tensor<?x40xbf16>, tensor<?x6xi32>) -> tensor<?x8x32xbf16>
  return %out : tensor<?x8x32xbf16>
}

// -----

// Functions that are called keep their arguments.
// CHECK-LABEL: func.func @called(
// CHECK-SAME: tensor<4x32x16xbf16> {shardq.split
// CHECK: shardq.combine_lse %{{.*}} -> tensor<?x4x32xbf16>
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @called(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x16xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
                  %rows: index) -> tensor<?x4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x16xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x16xbf16>)
      outs(%zeros : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  return %v : tensor<?x4x16xf32>
}
func.func @caller(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x16xbf16>, %rows: index) -> tensor<?x4x16xf32> {
  %v = call @called(%partial, %lse, %w, %rows) : (tensor<?x8x32xbf16>, tensor<?x8xf32>, tensor<4x32x16xbf16>, index) -> tensor<?x4x16xf32>
  return %v : tensor<?x4x16xf32>
}

// -----

// Where rows are scattered each rank has the weights of all heads.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[PARTIAL:.*]]: tensor<?x8x32xbf16>, %[[LSE:.*]]: tensor<?x8xf32>, %[[W:.*]]: tensor<8x32x8xbf16>,
// CHECK: %[[NARROW:.*]] = linalg.contract {{.*}} ins(%[[PARTIAL]], %[[W]] : {{.*}}) outs({{.*}} : tensor<?x8x8xf32>)
// CHECK: shardq.combine_lse %[[NARROW]] lse(%[[LSE]]) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x8xf32>, tensor<?x8xf32>) -> tensor<?x8x8xf32>
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @rows(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<8x32x8xbf16>, %rows: index) -> tensor<?x8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x8x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x8x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x8x32xbf16>, tensor<8x32x8xbf16>)
      outs(%zeros : tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  return %v : tensor<?x8x8xf32>
}

// -----

// Rows with room for more heads than there are weights for.
// CHECK-LABEL: func.func @padded(
// CHECK-SAME: tensor<4x16x32xbf16> {shardq.split
// CHECK: %[[WIDE:.*]] = linalg.contract {{.*}} -> tensor<?x4x32xbf16>
// CHECK: shardq.gather_query(%[[WIDE]]) {{.*}} -> tensor<?x16x32xbf16>
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @padded(%q: tensor<?x4x16xbf16>, %w: tensor<4x16x32xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
                  %kv: tensor<?x32xbf16>, %slots: tensor<?x6xi32>, %rows: index) -> tensor<?x16x32xbf16> {
  %zero = arith.constant 0.0 : bf16
  %empty = tensor.empty(%rows) : tensor<?x4x32xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%empty : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %wide = linalg.contract indexing_maps = [#row, #weight, #out] ins(%q, %w : tensor<?x4x16xbf16>, tensor<4x16x32xbf16>)
      outs(%zeros : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %all = shardq.gather_query(%wide) over @ranks "dcp" {padded_heads} : (tensor<?x4x32xbf16>) -> tensor<?x16x32xbf16>
  %out = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 0.2 : f32}
      : (tensor<?x16x32xbf16>, tensor<?x32xbf16>, tensor<?x6xi32>) -> tensor<?x16x32xbf16>
  return %out : tensor<?x16x32xbf16>
}

// -----

// Of projections one behind the other all move: before the merge in their order, and behind the gather.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME: %[[Q:[a-z0-9]*]]: tensor<?x4x8xbf16>, %[[KV:[a-z0-9]*]]: tensor<?x32xbf16>, %{{.*}}: tensor<?x6xi32>,
// CHECK-SAME: %[[UP1:[a-z0-9]*]]: tensor<8x8x16xbf16>, %[[UP2:[a-z0-9]*]]: tensor<8x16x32xbf16>,
// CHECK-SAME: %[[DOWN1:[a-z0-9]*]]: tensor<8x32x16xbf16>, %[[DOWN2:[a-z0-9]*]]: tensor<8x16x8xbf16>,
// CHECK: %[[ALL:.*]] = shardq.gather_query(%[[Q]]) over @ranks "dcp" : (tensor<?x4x8xbf16>) -> tensor<?x8x8xbf16>
// CHECK: %[[WIDER:.*]] = linalg.contract {{.*}} ins(%[[ALL]], %[[UP1]] : {{.*}} -> tensor<?x8x16xf32>
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[WIDER]]
// CHECK: %[[WIDE:.*]] = linalg.contract {{.*}} ins(%[[ROUNDED]], %[[UP2]] : {{.*}} -> tensor<?x8x32xf32>
// CHECK: %[[QUERIES:.*]] = arith.truncf %[[WIDE]]
// CHECK: %[[PARTIAL:.*]]:2 = shardq.sparse_mla q(%[[QUERIES]])
// CHECK: %[[LESS:.*]] = linalg.contract {{.*}} ins(%[[PARTIAL]]#0, %[[DOWN1]] : {{.*}} -> tensor<?x8x16xf32>
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[LESS]]
// CHECK: %[[LEAST:.*]] = linalg.contract {{.*}} ins(%[[ROUNDED]], %[[DOWN2]] : {{.*}} -> tensor<?x8x8xf32>
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[LEAST]]
// CHECK: %[[OUT:.*]] = shardq.combine_lse %[[ROUNDED]] lse(%[[PARTIAL]]#1) over @ranks "dcp" : (tensor<?x8x8xbf16>, tensor<?x8xf32>) -> tensor<?x4x8xbf16>
// CHECK: return %[[OUT]]
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @chain(%q: tensor<?x4x8xbf16>, %kv: tensor<?x32xbf16>, %slots: tensor<?x6xi32>,
                 %up1: tensor<4x8x16xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
                 %up2: tensor<4x16x32xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
                 %down1: tensor<4x32x16xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
                 %down2: tensor<4x16x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index) -> tensor<?x4x8xbf16> {
  %zero = arith.constant 0.0 : f32
  %empty16 = tensor.empty(%rows) : tensor<?x4x16xf32>
  %zeros16 = linalg.fill ins(%zero : f32) outs(%empty16 : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %empty32 = tensor.empty(%rows) : tensor<?x4x32xf32>
  %zeros32 = linalg.fill ins(%zero : f32) outs(%empty32 : tensor<?x4x32xf32>) -> tensor<?x4x32xf32>
  %empty8 = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros8 = linalg.fill ins(%zero : f32) outs(%empty8 : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %a = linalg.contract indexing_maps = [#row, #weight, #out] ins(%q, %up1 : tensor<?x4x8xbf16>, tensor<4x8x16xbf16>)
      outs(%zeros16 : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %b = arith.truncf %a : tensor<?x4x16xf32> to tensor<?x4x16xbf16>
  %c = linalg.contract indexing_maps = [#row, #weight, #out] ins(%b, %up2 : tensor<?x4x16xbf16>, tensor<4x16x32xbf16>)
      outs(%zeros32 : tensor<?x4x32xf32>) -> tensor<?x4x32xf32>
  %nope = arith.truncf %c : tensor<?x4x32xf32> to tensor<?x4x32xbf16>
  %all = shardq.gather_query(%nope) over @ranks "dcp" : (tensor<?x4x32xbf16>) -> tensor<?x8x32xbf16>
  %partial, %lse = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 0.2 : f32}
      : (tensor<?x8x32xbf16>, tensor<?x32xbf16>, tensor<?x6xi32>) -> (tensor<?x8x32xbf16>, tensor<?x8xf32>)
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %d = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %down1 : tensor<?x4x32xbf16>, tensor<4x32x16xbf16>)
      outs(%zeros16 : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %e = arith.truncf %d : tensor<?x4x16xf32> to tensor<?x4x16xbf16>
  %f = linalg.contract indexing_maps = [#row, #weight, #out] ins(%e, %down2 : tensor<?x4x16xbf16>, tensor<4x16x8xbf16>)
      outs(%zeros8 : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %g = arith.truncf %f : tensor<?x4x8xf32> to tensor<?x4x8xbf16>
  return %g : tensor<?x4x8xbf16>
}

// -----

// Through a gate, as --shardq-dcp makes it: each side projects for itself, the one that merges before that and the
// one that gathers behind that. Sizes may be asked of what moves.

// CHECK-LABEL: func.func @gated(
// CHECK-SAME: %[[Q:[a-z0-9]*]]: tensor<?x4x16xbf16>, %[[ROPE:[a-z0-9]*]]: tensor<?x4x8xbf16>, %[[UK:[a-z0-9]*]]: tensor<8x16x32xbf16>,
// CHECK-SAME: %[[UV:[a-z0-9]*]]: tensor<8x32x16xbf16>,
// CHECK-DAG: %[[OWN_UK:.*]] = tensor.extract_slice %[[UK]][%{{.*}}, 0, 0] [4, 16, 32]
// CHECK-DAG: %[[OWN_UV:.*]] = tensor.extract_slice %[[UV]][%{{.*}}, 0, 0] [4, 32, 16]
// CHECK: scf.if %{{.*}} -> (tensor<?x4x16xbf16>) {
// CHECK:   %[[WIDE:.*]] = linalg.contract {{.*}} ins(%[[Q]], %[[OWN_UK]] :
// CHECK:   %[[OUT:.*]] = shardq.sparse_mla q(%[[WIDE]], %[[ROPE]])
// CHECK:   %[[V:.*]] = linalg.contract {{.*}} ins(%[[OUT]], %[[OWN_UV]] :
// CHECK:   %[[ROUNDED:.*]] = arith.truncf %[[V]]
// CHECK:   scf.yield %[[ROUNDED]]
// CHECK: } else {
// CHECK:   %[[ALL:.*]] = shardq.gather_query(%[[Q]], %[[ROPE]]) over @ranks "dcp" {{.*}} -> tensor<?x8x24xbf16>
// CHECK:   linalg.contract {{.*}} ins(%{{.*}}, %[[UK]] : {{.*}} -> tensor<?x8x32xbf16>
// CHECK:   %[[PARTIAL:.*]]:2 = shardq.sparse_mla
// CHECK:   %[[NARROW:.*]] = linalg.contract {{.*}} ins(%[[PARTIAL]]#0, %[[UV]] : {{.*}} -> tensor<?x8x16xf32>
// CHECK:   arith.truncf %[[NARROW]]
// CHECK:   %[[MERGED:.*]] = shardq.combine_lse %{{.*}} lse(%[[PARTIAL]]#1) {{.*}} -> tensor<?x4x16xbf16>
// CHECK:   scf.yield %[[MERGED]]
// CHECK-NOT: linalg.contract
// CHECK: tensor.dim
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @gated(%q: tensor<?x4x16xbf16>, %rope: tensor<?x4x8xbf16>,
                 %w_uk: tensor<4x16x32xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
                 %w_uv: tensor<4x32x16xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
                 %kv: tensor<?x40xbf16>, %all_kv: tensor<?x40xbf16>, %slots: tensor<?x6xi32>, %gate: i1)
    -> (tensor<?x4x16xbf16>, index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %zero32 = arith.constant 0.0 : f32
  %rows = tensor.dim %q, %c0 : tensor<?x4x16xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x32xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%empty : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %nope = linalg.contract indexing_maps = [#row, #weight, #out] ins(%q, %w_uk : tensor<?x4x16xbf16>, tensor<4x16x32xbf16>)
      outs(%zeros : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %out = scf.if %gate -> tensor<?x4x32xbf16> {
    %o = shardq.sparse_mla q(%nope, %rope) kv(%all_kv) slots(%slots) {scale = 0.2 : f32}
        : (tensor<?x4x32xbf16>, tensor<?x4x8xbf16>, tensor<?x40xbf16>, tensor<?x6xi32>) -> tensor<?x4x32xbf16>
    scf.yield %o : tensor<?x4x32xbf16>
  } else {
    %all = shardq.gather_query(%nope, %rope) over @ranks "dcp" : (tensor<?x4x32xbf16>, tensor<?x4x8xbf16>) -> tensor<?x8x40xbf16>
    %partial, %lse = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 0.2 : f32}
        : (tensor<?x8x40xbf16>, tensor<?x40xbf16>, tensor<?x6xi32>) -> (tensor<?x8x32xbf16>, tensor<?x8xf32>)
    %o = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
    scf.yield %o : tensor<?x4x32xbf16>
  }
  %rows_out = tensor.dim %out, %c0 : tensor<?x4x32xbf16>
  %empty_out = tensor.empty(%rows_out) : tensor<?x4x16xf32>
  %zeros_out = linalg.fill ins(%zero32 : f32) outs(%empty_out : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w_uv : tensor<?x4x32xbf16>, tensor<4x32x16xbf16>)
      outs(%zeros_out : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %rounded = arith.truncf %v : tensor<?x4x16xf32> to tensor<?x4x16xbf16>
  return %rounded, %rows_out : tensor<?x4x16xbf16>, index
}

// -----

// The projection may know how many rows there are where the gate does not.

// CHECK-LABEL: func.func @known_rows(
// CHECK: %[[OUT:.*]] = scf.if %{{.*}} -> (tensor<?x4x8xf32>)
// CHECK: shardq.combine_lse {{.*}} -> tensor<?x4x8xf32>
// CHECK: %[[KNOWN:.*]] = tensor.cast %[[OUT]] : tensor<?x4x8xf32> to tensor<34x4x8xf32>
// CHECK: return %[[KNOWN]]
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @known_rows(%own: tensor<?x4x32xbf16>, %partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>,
                      %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %gate: i1) -> tensor<34x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = scf.if %gate -> tensor<?x4x32xbf16> {
    scf.yield %own : tensor<?x4x32xbf16>
  } else {
    %o = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
    scf.yield %o : tensor<?x4x32xbf16>
  }
  %empty = tensor.empty() : tensor<34x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<34x4x8xf32>) -> tensor<34x4x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<34x4x8xf32>) -> tensor<34x4x8xf32>
  return %v : tensor<34x4x8xf32>
}

// -----

// Merges one behind the other are both of what is narrow.

// CHECK-LABEL: func.func @twice(
// CHECK: shardq.combine_lse {{.*}} over @ranks "dcp" {{.*}} -> (tensor<?x4x8xf32>, tensor<?x4xf32>)
// CHECK: shardq.combine_lse {{.*}} over @ranks "pcp" {{.*}} -> tensor<?x4x8xf32>
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["pcp" = 2, "tp" = 2, "dcp" = 2 in "tp"]
func.func @twice(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>,
                 %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %o, %l = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> (tensor<?x4x32xbf16>, tensor<?x4xf32>)
  %out = shardq.combine_lse %o lse(%l) over @ranks "pcp" : (tensor<?x4x32xbf16>, tensor<?x4xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}
