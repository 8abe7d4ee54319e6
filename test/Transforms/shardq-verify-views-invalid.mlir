// Views that a slice, or a reshape, between two ops of ShardQ loses or adds.
//
// RUN: shardq-opt %s --split-input-file --shardq-verify-views --verify-diagnostics
// RUN: shardq-opt %s --split-input-file --shardq-to-cpu --verify-diagnostics

func.func @extract_slice(%t: tensor<?x?xi32, #shardq.view<replicated>>, %i: tensor<?x4xi32>, %r: tensor<?xi32>, %n: index) {
  // expected-note @+1 {{the view changes here, which only 'tensor.cast' may do}}
  %s = tensor.extract_slice %t[0, 0] [%n, %n] [1, 1] : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  // expected-error @+1 {{'table' comes from 'tensor<?x?xi32, #shardq.view<replicated>>' by way of 'tensor<?x?xi32>', expected one view throughout}}
  %0 = shardq.convert_indices %i table(%s) rows(%r) {block_size = 64 : i64} : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  return
}

// -----

// The other way round: own slots become those of another cache.
func.func @added(%s: tensor<?x4xi64>, %kv: tensor<?x16xbf16, #shardq.view<replicated>>, %q: tensor<?x2x16xbf16>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.extract_slice %s[0, 0] [%n, 4] [1, 1] : tensor<?x4xi64> to tensor<?x4xi64, #shardq.view<replicated>>
  // expected-error @+1 {{'slots' comes from 'tensor<?x4xi64>' by way of 'tensor<?x4xi64, #shardq.view<replicated>>', expected one view throughout}}
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%a) {scale = 1.0 : f32}
      : (tensor<?x2x16xbf16>, tensor<?x16xbf16, #shardq.view<replicated>>, tensor<?x4xi64, #shardq.view<replicated>>) -> tensor<?x2x16xbf16>
  return
}

// -----

func.func @kv(%s: tensor<?x4xi64>, %kv: tensor<?x16xbf16, #shardq.view<replicated>>, %q: tensor<?x2x16xbf16>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.extract_slice %kv[0, 0] [%n, 16] [1, 1] : tensor<?x16xbf16, #shardq.view<replicated>> to tensor<?x16xbf16>
  // expected-error @+1 {{'kv' comes from 'tensor<?x16xbf16, #shardq.view<replicated>>' by way of 'tensor<?x16xbf16>'}}
  %0 = shardq.sparse_mla q(%q) kv(%a) slots(%s) {scale = 1.0 : f32} : (tensor<?x2x16xbf16>, tensor<?x16xbf16>, tensor<?x4xi64>) -> tensor<?x2x16xbf16>
  return
}

// -----

func.func @collapse_shape(%s: tensor<?x1xi64, #shardq.view<replicated>>, %new: tensor<?x16xbf16>, %cache: tensor<?x16xbf16>) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.collapse_shape %s [[0, 1]] : tensor<?x1xi64, #shardq.view<replicated>> into tensor<?xi64>
  // expected-error @+1 {{'slots' comes from 'tensor<?x1xi64, #shardq.view<replicated>>' by way of 'tensor<?xi64>'}}
  %0 = shardq.write_rows %new at(%a) into(%cache) : (tensor<?x16xbf16>, tensor<?xi64>, tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return
}

// -----

func.func @expand_shape(%c: tensor<?xbf16, #shardq.view<replicated>>, %new: tensor<?x16xbf16>, %s: tensor<?xi64>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.expand_shape %c [[0, 1]] output_shape [%n, 16] : tensor<?xbf16, #shardq.view<replicated>> into tensor<?x16xbf16>
  // expected-error @+1 {{'cache' comes from 'tensor<?xbf16, #shardq.view<replicated>>' by way of 'tensor<?x16xbf16>'}}
  %0 = shardq.write_rows %new at(%s) into(%a) : (tensor<?x16xbf16>, tensor<?xi64>, tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return
}

// -----

// Slots of both caches in one list.
func.func @insert_slice(%s: tensor<?xi64, #shardq.view<replicated>>, %own: tensor<?xi64>, %start: tensor<?xi32>, %d: index, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.insert_slice %s into %own[%n] [%n] [1] : tensor<?xi64, #shardq.view<replicated>> into tensor<?xi64>
  // expected-error @+1 {{'source' comes from 'tensor<?xi64, #shardq.view<replicated>>' by way of 'tensor<?xi64>'}}
  %0 = shardq.take_rows %a[%start] : (tensor<?xi64>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

func.func @concat(%s: tensor<?xi64, #shardq.view<replicated>>, %start: tensor<?xi32>) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.concat dim(0) %s, %s : (tensor<?xi64, #shardq.view<replicated>>, tensor<?xi64, #shardq.view<replicated>>) -> tensor<?xi64>
  // expected-error @+1 {{'source' comes from 'tensor<?xi64, #shardq.view<replicated>>' by way of 'tensor<?xi64>'}}
  %0 = shardq.take_rows %a[%start] : (tensor<?xi64>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

func.func @pad(%t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>, %n: index) {
  %none = arith.constant -1 : i32
  // expected-note @+1 {{the view changes here}}
  %a = tensor.pad %t low[0, 0] high[%n, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %none : i32
  } : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  // expected-error @+1 {{'table' comes from 'tensor<?x?xi32, #shardq.view<replicated>>' by way of 'tensor<?x?xi32>'}}
  %0 = shardq.token_slots table(%a) rows(%r, %r) {block_size = 64 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

func.func @reshape(%t: tensor<?xi32, #shardq.view<replicated>>, %shape: tensor<2xi32>, %r: tensor<?xi32>) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.reshape %t(%shape) : (tensor<?xi32, #shardq.view<replicated>>, tensor<2xi32>) -> tensor<?x?xi32>
  // expected-error @+1 {{'table' comes from 'tensor<?xi32, #shardq.view<replicated>>' by way of 'tensor<?x?xi32>'}}
  %0 = shardq.token_slots table(%a) rows(%r, %r) {block_size = 64 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}

// -----

// What ops that know owners want.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @filter(%t: tensor<?x?xi32, #shardq.view<replicated>>, %i: tensor<?x4xi32>, %r: tensor<?xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %t[0, 0] [%n, %n] [1, 1] : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  // expected-error @+1 {{'table' comes from}}
  %0 = shardq.filter_indices %i table(%s) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @blocks(%t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %t[0, 0] [%n, %n] [1, 1] : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  // expected-error @+1 {{'table' comes from}}
  %0, %1, %2 = shardq.gather_blocks %s lengths(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @start(%kv: tensor<?x16xbf16, #shardq.view<replicated>>, %b: tensor<?xi32>, %c: tensor<1xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %kv[0, 0] [%n, 16] [1, 1] : tensor<?x16xbf16, #shardq.view<replicated>> to tensor<?x16xbf16>
  // expected-error @+1 {{'source' comes from}}
  %h = shardq.gather_kv_start(%s) blocks(%b, %c) over @ranks "dcp" {block_size = 64 : i64} : (tensor<?x16xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @list(%kv: tensor<?x16xbf16>, %b: tensor<?xi32, #shardq.view<replicated>>, %c: tensor<1xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %b[0] [%n] [1] : tensor<?xi32, #shardq.view<replicated>> to tensor<?xi32>
  // expected-error @+1 {{'blocks' comes from}}
  %h = shardq.gather_kv_start(%kv) blocks(%s, %c) over @ranks "dcp" {block_size = 64 : i64} : (tensor<?x16xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %0 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @gathered_slots(%i: tensor<?x4xi32>, %inverse: tensor<?x?xi32, #shardq.view<replicated>>, %c: tensor<1xi32>, %r: tensor<?xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %inverse[0, 0] [%n, %n] [1, 1] : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  // expected-error @+1 {{'inverse' comes from}}
  %0 = shardq.gathered_slots %i blocks(%s, %c) rows(%r) over @ranks "dcp" {block_size = 64 : i64, interleave = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x4xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @gathered_table(%inverse: tensor<?x?xi32, #shardq.view<replicated>>, %c: tensor<1xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %inverse[0, 0] [%n, %n] [1, 1] : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  // expected-error @+1 {{'inverse' comes from}}
  %0 = shardq.gathered_table %s, %c over @ranks "dcp" {block_size = 2 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  return
}

// -----

// A view of a view, by way of a slice.
shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @replicated_table(%t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %t[0, 0] [%n, %n] [1, 1] : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  // expected-error @+1 {{'table' comes from}}
  %0 = shardq.replicated_table %s lengths(%r) over @ranks "dcp" {blocks_per_block = 1 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
  return
}

// -----

func.func @indexer_keys(%q: tensor<?x4x16xbf16>, %w: tensor<?x4xf32>, %k: tensor<?x16xbf16, #shardq.view<replicated>>, %t: tensor<?x?xi32>, %r: tensor<?xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %k[0, 0] [%n, 16] [1, 1] : tensor<?x16xbf16, #shardq.view<replicated>> to tensor<?x16xbf16>
  // expected-error @+1 {{'keys' comes from}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%s) table(%t) rows(%r, %r) {block_size = 64 : i64}
      : (tensor<?x4x16xbf16>, tensor<?x4xf32>, tensor<?x16xbf16>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

func.func @indexer_table(%q: tensor<?x4x16xbf16>, %w: tensor<?x4xf32>, %k: tensor<?x16xbf16>, %t: tensor<?x?xi32, #shardq.view<replicated>>, %r: tensor<?xi32>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %t[0, 0] [%n, %n] [1, 1] : tensor<?x?xi32, #shardq.view<replicated>> to tensor<?x?xi32>
  // expected-error @+1 {{'table' comes from}}
  %0 = shardq.indexer q(%q) weights(%w) keys(%k) table(%s) rows(%r, %r) {block_size = 64 : i64}
      : (tensor<?x4x16xbf16>, tensor<?x4xf32>, tensor<?x16xbf16>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @gather_rows(%k: tensor<?x16xbf16, #shardq.view<replicated>>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %k[0, 0] [%n, 16] [1, 1] : tensor<?x16xbf16, #shardq.view<replicated>> to tensor<?x16xbf16>
  // expected-error @+1 {{'source' comes from}}
  %0 = shardq.gather_rows %s over @ranks "dcp" : (tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return
}

// -----

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
func.func @chunk_slots(%s: tensor<?xi64, #shardq.view<replicated>>, %start: tensor<?xi32>, %d: index, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.extract_slice %s[0] [%n] [1] : tensor<?xi64, #shardq.view<replicated>> to tensor<?xi64>
  // expected-error @+1 {{'slots' comes from}}
  %0, %1 = shardq.chunk_slots %a by(%start) decodes(%d) local(%n) over @ranks "dcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  return
}

// -----

func.func @unpack(%k: tensor<?x656xi8, #shardq.view<replicated>>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %k[0, 0] [%n, 656] [1, 1] : tensor<?x656xi8, #shardq.view<replicated>> to tensor<?x656xi8>
  // expected-error @+1 {{'packed' comes from}}
  %0 = shardq.unpack_rows %s {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @pack(%k: tensor<?x576xbf16, #shardq.view<replicated>>, %n: index) {
  // expected-note @+1 {{the view changes here}}
  %s = tensor.extract_slice %k[0, 0] [%n, 576] [1, 1] : tensor<?x576xbf16, #shardq.view<replicated>> to tensor<?x576xbf16>
  // expected-error @+1 {{'rows' comes from}}
  %0 = shardq.pack_rows %s {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>} : (tensor<?x576xbf16>) -> tensor<?x656xi8>
  return
}

// -----

// Through casts, slices of slices, selections, branches and loops.
func.func @far(%t: tensor<?x?x1xi32, #shardq.view<replicated>>, %own: tensor<?x?xi32>, %r: tensor<?xi32>, %n: index, %c: i1) {
  // expected-note @+1 {{the view changes here}}
  %a = tensor.collapse_shape %t [[0], [1, 2]] : tensor<?x?x1xi32, #shardq.view<replicated>> into tensor<?x?xi32>
  %b = scf.while (%x = %own) : (tensor<?x?xi32>) -> tensor<?x?xi32> {
    scf.condition(%c) %x : tensor<?x?xi32>
  } do {
  ^bb0(%y: tensor<?x?xi32>):
    %z = scf.index_switch %n -> tensor<?x?xi32>
    case 1 {
      scf.yield %y : tensor<?x?xi32>
    }
    default {
      %s = arith.select %c, %y, %a : tensor<?x?xi32>
      scf.yield %s : tensor<?x?xi32>
    }
    scf.yield %z : tensor<?x?xi32>
  }
  %d = tensor.cast %b : tensor<?x?xi32> to tensor<4x?xi32>
  %e = tensor.extract_slice %d[0, 0] [%n, %n] [1, 1] : tensor<4x?xi32> to tensor<?x?xi32>
  // expected-error @+1 {{'table' comes from 'tensor<?x?x1xi32, #shardq.view<replicated>>' by way of 'tensor<?x?xi32>'}}
  %0 = shardq.token_slots table(%e) rows(%r, %r) {block_size = 64 : i64} : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
  return
}
