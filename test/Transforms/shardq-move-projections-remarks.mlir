// Which projections move, and why others do not. Those that are none are not spoken of.
//
// RUN: shardq-opt %s --split-input-file --shardq-move-projections=memory=2048 --verify-diagnostics
// RUN: not shardq-opt %s --split-input-file --shardq-move-projections=memory=-1 2>&1 | FileCheck %s
// CHECK: error: memory is -1, expected 0 or more

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index, %more: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  // expected-remark @+1 {{partial outputs are projected before they are merged}}
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16>, %rows: index, %more: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // expected-remark @+1 {{projection stays where it is: its weights are not split over ranks by heads}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}, %rows: index, %more: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // expected-remark @+1 {{projection stays where it is: its weights are not split over ranks by heads}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index, %more: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // expected-remark @+1 {{projection stays where it is: its weights are split over axis tp, and heads travel over dcp}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x16xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index, %more: tensor<?x4x16xf32>) -> tensor<?x4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x16xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  // expected-remark @+1 {{projection stays where it is: what it makes is not smaller}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x16xbf16>)
      outs(%zeros : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  return %v : tensor<?x4x16xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x?xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index, %more: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // expected-remark @+1 {{projection stays where it is: the size of its weights is open}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x?xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index, %more: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %w2 = arith.addf %w, %w : tensor<4x32x8xbf16>
  // expected-remark @+1 {{projection stays where it is: its weights are no argument of the function}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w2 : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index, %more: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%more : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index, %more: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %zero = arith.constant 1.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
             %w2: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %zeros: tensor<?x4x8xf32>, %rows: index)
    -> (tensor<?x4x8xf32>, tensor<?x4x8xf32>, tensor<?x4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // expected-remark @+1 {{partial outputs are projected before they are merged}}
  %a = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %u = linalg.contract indexing_maps = [#row, #weight, #out] ins(%a, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%init : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %b = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  // expected-remark @+1 {{projection stays where it is: weights of other ranks take 2048 bytes, and 0 are left}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%b, %w2 : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%init : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // Layers that share weights pay once.
  // expected-remark @+1 {{partial outputs are projected before they are merged}}
  %c = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %x = linalg.contract indexing_maps = [#row, #weight, #out] ins(%c, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%init : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %u, %v, %x : tensor<?x4x8xf32>, tensor<?x4x8xf32>, tensor<?x4x8xf32>
}

// -----

// Not linear: what upstream takes for a contraction has more around the product.
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xf32>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xf32> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xf32>, tensor<?x8xf32>) -> tensor<?x4x32xf32>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %v = linalg.generic {indexing_maps = [#row, #weight, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%out, %w : tensor<?x4x32xf32>, tensor<4x32x8xf32>) outs(%zeros : tensor<?x4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %size = math.absf %a : f32
    %product = arith.mulf %size, %b : f32
    %sum = arith.addf %c, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x4xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index) -> tensor<?x4x4xf64> {
  %zero = arith.constant 0.0 : f64
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x4xf64>
  %zeros = linalg.fill ins(%zero : f64) outs(%empty : tensor<?x4x4xf64>) -> tensor<?x4x4xf64>
  // expected-remark @+1 {{projection stays where it is: what it makes cannot be merged}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x4xbf16>)
      outs(%zeros : tensor<?x4x4xf64>) -> tensor<?x4x4xf64>
  return %v : tensor<?x4x4xf64>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<8x32x8xbf16>, %rows: index) -> tensor<?x8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" {scatter_tokens} : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x8x32xbf16>
  %twice = arith.addf %w, %w : tensor<8x32x8xbf16>
  %empty = tensor.empty(%rows) : tensor<?x8x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  // expected-remark @+1 {{projection stays where it is: its weights are not there before the merge}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %twice : tensor<?x8x32xbf16>, tensor<8x32x8xbf16>)
      outs(%zeros : tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  return %v : tensor<?x8x8xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>,
             %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">, bufferization.buffer_layout = strided<[256, 8, 1]>}, %rows: index) -> tensor<?x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // expected-remark @+1 {{projection stays where it is: its weights have a layout of their own}}
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v : tensor<?x4x8xf32>
}

// -----

// Queries, which travel before their projection.
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%small: tensor<?x4x8xbf16>, %w: tensor<4x8x32xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index,
             %kv: tensor<?x32xbf16>, %slots: tensor<?x16xi32>) -> tensor<?x8x32xbf16> {
  %zero = arith.constant 0.0 : bf16
  %empty = tensor.empty(%rows) : tensor<?x4x32xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%empty : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %q = linalg.contract indexing_maps = [#row, #weight, #out] ins(%small, %w : tensor<?x4x8xbf16>, tensor<4x8x32xbf16>)
      outs(%zeros : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  // expected-remark @+1 {{queries are gathered before they are projected}}
  %all = shardq.gather_query(%q) over @ranks "dcp" : (tensor<?x4x32xbf16>) -> tensor<?x8x32xbf16>
  %out = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x8x32xbf16>, tensor<?x32xbf16>, tensor<?x16xi32>) -> tensor<?x8x32xbf16>
  return %out : tensor<?x8x32xbf16>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%large: tensor<?x4x32xbf16>, %w: tensor<4x32x32xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index,
             %kv: tensor<?x32xbf16>, %slots: tensor<?x16xi32>) -> tensor<?x8x32xbf16> {
  %zero = arith.constant 0.0 : bf16
  %empty = tensor.empty(%rows) : tensor<?x4x32xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%empty : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  // expected-remark @+1 {{projection stays where it is: what it takes is not smaller, or of another element type}}
  %q = linalg.contract indexing_maps = [#row, #weight, #out] ins(%large, %w : tensor<?x4x32xbf16>, tensor<4x32x32xbf16>)
      outs(%zeros : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %all = shardq.gather_query(%q) over @ranks "dcp" : (tensor<?x4x32xbf16>) -> tensor<?x8x32xbf16>
  %out = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 1.0 : f32}
      : (tensor<?x8x32xbf16>, tensor<?x32xbf16>, tensor<?x16xi32>) -> tensor<?x8x32xbf16>
  return %out : tensor<?x8x32xbf16>
}

// -----

// The same weights over two names of one axis.
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
             %rows: index) -> (tensor<?x4x8xf32>, tensor<?x4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  // expected-remark @+1 {{partial outputs are projected before they are merged}}
  %one = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %two = shardq.combine_lse %partial lse(%lse) over @ranks "tp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x4x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%one, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // expected-remark @+1 {{projection stays where it is: its weights are needed in two forms}}
  %u = linalg.contract indexing_maps = [#row, #weight, #out] ins(%two, %w : tensor<?x4x32xbf16>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %v, %u : tensor<?x4x8xf32>, tensor<?x4x8xf32>
}

// -----

// The bound is one for all of a chain: the second finds nothing left.
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xf32>, %lse: tensor<?x8xf32>, %w: tensor<4x32x8xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
             %less: tensor<4x8x4xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">}, %rows: index) -> tensor<?x4x4xf32> {
  %zero = arith.constant 0.0 : f32
  // expected-remark @+1 {{partial outputs are projected before they are merged}}
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xf32>, tensor<?x8xf32>) -> tensor<?x4x32xf32>
  %empty = tensor.empty(%rows) : tensor<?x4x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x4x32xf32>, tensor<4x32x8xbf16>)
      outs(%zeros : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %empty4 = tensor.empty(%rows) : tensor<?x4x4xf32>
  %zeros4 = linalg.fill ins(%zero : f32) outs(%empty4 : tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  // expected-remark @+1 {{projection stays where it is: weights of other ranks take 256 bytes, and 0 are left}}
  %u = linalg.contract indexing_maps = [#row, #weight, #out] ins(%v, %less : tensor<?x4x8xf32>, tensor<4x8x4xbf16>)
      outs(%zeros4 : tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  return %u : tensor<?x4x4xf32>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x4x8xbf16>, %w: tensor<4x8x32xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
             %kv: tensor<?x32xbf16>, %slots: tensor<?x6xi32>, %rows: index) -> (tensor<?x16x16xbf16>) {
  %zero = arith.constant 0.0 : bf16
  %empty = tensor.empty(%rows) : tensor<?x4x32xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%empty : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  // expected-remark @+1 {{projection stays where it is: its heads are gathered with room for others}}
  %nope = linalg.contract indexing_maps = [#row, #weight, #out] ins(%q, %w : tensor<?x4x8xbf16>, tensor<4x8x32xbf16>)
      outs(%zeros : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %all = shardq.gather_query(%nope) over @ranks "dcp" {padded_heads} : (tensor<?x4x32xbf16>) -> tensor<?x16x32xbf16>
  %out = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 0.2 : f32}
      : (tensor<?x16x32xbf16>, tensor<?x32xbf16>, tensor<?x6xi32>) -> tensor<?x16x16xbf16>
  return %out : tensor<?x16x16xbf16>
}

// -----

#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%q: tensor<?x4x8xbf16>, %w: tensor<4x8x32xbf16> {shardq.split = #shardq.split<@ranks, 0 over "tp">},
             %kv: tensor<?x32xbf16>, %slots: tensor<?x6xi32>, %rows: index) -> (tensor<?x8x16xbf16>, tensor<?x4x32xbf16>) {
  %zero = arith.constant 0.0 : bf16
  %empty = tensor.empty(%rows) : tensor<?x4x32xbf16>
  %zeros = linalg.fill ins(%zero : bf16) outs(%empty : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  // expected-remark @+1 {{projection stays where it is: others read what it makes}}
  %nope = linalg.contract indexing_maps = [#row, #weight, #out] ins(%q, %w : tensor<?x4x8xbf16>, tensor<4x8x32xbf16>)
      outs(%zeros : tensor<?x4x32xbf16>) -> tensor<?x4x32xbf16>
  %all = shardq.gather_query(%nope) over @ranks "dcp" : (tensor<?x4x32xbf16>) -> tensor<?x8x32xbf16>
  %out = shardq.sparse_mla q(%all) kv(%kv) slots(%slots) {scale = 0.2 : f32}
      : (tensor<?x8x32xbf16>, tensor<?x32xbf16>, tensor<?x6xi32>) -> tensor<?x8x16xbf16>
  return %out, %nope : tensor<?x8x16xbf16>, tensor<?x4x32xbf16>
}

// -----

// Each rank keeps all heads, so it has their weights.
#row = affine_map<(t, h, n, k) -> (t, h, k)>
#weight = affine_map<(t, h, n, k) -> (h, k, n)>
#out = affine_map<(t, h, n, k) -> (t, h, n)>
shardq.mesh @ranks ["tp" = 2, "dcp" = 2 in "tp"]
func.func @f(%partial: tensor<?x8x32xbf16>, %lse: tensor<?x8xf32>, %w: tensor<8x32x8xbf16>, %rows: index) -> tensor<?x8x8xf32> {
  %zero = arith.constant 0.0 : f32
  // expected-remark @+1 {{partial outputs are projected before they are merged}}
  %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : (tensor<?x8x32xbf16>, tensor<?x8xf32>) -> tensor<?x8x32xbf16>
  %empty = tensor.empty(%rows) : tensor<?x8x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  %v = linalg.contract indexing_maps = [#row, #weight, #out] ins(%out, %w : tensor<?x8x32xbf16>, tensor<8x32x8xbf16>)
      outs(%zeros : tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  return %v : tensor<?x8x8xf32>
}
