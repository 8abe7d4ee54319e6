// RUN: shardq-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// count_chunk_rows
//===----------------------------------------------------------------------===//

func.func @f(%q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0 = shardq.count_chunk_rows all %q decodes(%n) rows(%n) over @ranks "pcp" : tensor<?xi32>
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{mesh @ranks has no axis "dp"}}
  %0 = shardq.count_chunk_rows all %q decodes(%n) rows(%n) over @ranks "dp" : tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<?xi64>, %n: index) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = shardq.count_chunk_rows head %q decodes(%n) rows(%n) over @ranks "pcp" : tensor<?xi64>
  return
}

//===----------------------------------------------------------------------===//
// chunk_split
//===----------------------------------------------------------------------===//

// -----

func.func @f(%q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0:2 = shardq.chunk_split %q decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{mesh @ranks has no axis "pcp"}}
  %0:2 = shardq.chunk_split %q decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{has 1 results and 'outs', expects 2}}
  %0 = shardq.chunk_split %q decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, index, index) -> tensor<?xi32>
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<?xi32>, %n: index, %o: memref<?xi32>) {
  // expected-error @+1 {{operand #0 is 'tensor<?xi32>', expected a memref: the op has 'outs'}}
  shardq.chunk_split %q decodes(%n) rows(%n) over @ranks "pcp" outs(%o, %o) : (tensor<?xi32>, index, index, memref<?xi32>, memref<?xi32>) -> ()
  return
}

//===----------------------------------------------------------------------===//
// chunk_lengths
//===----------------------------------------------------------------------===//

// -----

func.func @f(%q: tensor<?xi32>, %s: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0:3 = shardq.chunk_lengths head %q, %s decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: tensor<?xi32>, %s: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{mesh @ranks has no axis "pcp"}}
  %0:3 = shardq.chunk_lengths head %q, %s decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<?xi32>, %s: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{is of all rows, expected head or tail}}
  %0:3 = shardq.chunk_lengths all %q, %s decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<?xi32>, %s: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{has 2 results and 'outs', expects 3}}
  %0:2 = shardq.chunk_lengths tail %q, %s decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<4xi32>, %s: tensor<4xi32>, %n: index) {
  // expected-error @+1 {{'query_start' has 4 entries, expected 5, one more than 'seq_lens'}}
  %0:3 = shardq.chunk_lengths tail %q, %s decodes(%n) rows(%n) over @ranks "pcp" : (tensor<4xi32>, tensor<4xi32>, index, index) -> (tensor<4xi32>, tensor<4xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<4xi32>, %s: tensor<3xi32>, %n: index) {
  // expected-error @+1 {{'starts' is 'tensor<?xi32>', expected the shape of 'query_start', 'tensor<4xi32>'}}
  %0:3 = shardq.chunk_lengths tail %q, %s decodes(%n) rows(%n) over @ranks "pcp" : (tensor<4xi32>, tensor<3xi32>, index, index) -> (tensor<?xi32>, tensor<3xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%q: tensor<?xi32>, %s: tensor<3xi32>, %n: index) {
  // expected-error @+1 {{'lengths' is 'tensor<2xi32>', expected the shape of 'seq_lens', 'tensor<3xi32>'}}
  %0:3 = shardq.chunk_lengths tail %q, %s decodes(%n) rows(%n) over @ranks "pcp" : (tensor<?xi32>, tensor<3xi32>, index, index) -> (tensor<?xi32>, tensor<2xi32>, tensor<?xi32>)
  return
}

//===----------------------------------------------------------------------===//
// chunk_slots
//===----------------------------------------------------------------------===//

// -----

func.func @f(%s: tensor<?xi64>, %q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh}}
  %0:2 = shardq.chunk_slots %s by(%q) decodes(%n) local(%n) over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  return
}

// -----

// expected-note @+1 {{the mesh is declared here}}
shardq.mesh @ranks ["tp" = 4]
func.func @f(%s: tensor<?xi64>, %q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{mesh @ranks has no axis "pcp"}}
  %0:2 = shardq.chunk_slots %s by(%q) decodes(%n) local(%n) over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?xi64>, %q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{has 3 results and 'outs', expects 2}}
  %0:3 = shardq.chunk_slots %s by(%q) decodes(%n) local(%n) over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?xi64>, %q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{'order' has element type 'i64', expected i32}}
  %0:2 = shardq.chunk_slots %s by(%q) decodes(%n) local(%n) over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi64>, tensor<?xi64>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?xi64>, %q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{'padded' has element type 'i32', expected 'i64' as 'slots'}}
  %0:2 = shardq.chunk_slots %s by(%q) decodes(%n) local(%n) over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
  return
}

// -----

shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
func.func @f(%s: tensor<?xi64>, %q: tensor<?xi32>, %n: index) {
  // expected-error @+1 {{'padded' has 8 rows, expected 6 as 'order'}}
  %0:2 = shardq.chunk_slots %s by(%q) decodes(%n) local(%n) over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<6xi32>, tensor<8xi64>)
  return
}

//===----------------------------------------------------------------------===//
// write_rows
//===----------------------------------------------------------------------===//

// -----

func.func @f(%r: memref<?x8xbf16>, %s: tensor<?xi32>, %c: tensor<?x8xbf16>) {
  // expected-error @+1 {{operand #0 is 'memref<?x8xbf16>', expected a tensor as 'cache'}}
  %0 = shardq.write_rows %r at(%s) into(%c) : (memref<?x8xbf16>, tensor<?xi32>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  return
}

// -----

func.func @f(%r: memref<?x8xbf16>, %s: tensor<?xi32>, %c: memref<?x8xbf16>) {
  // expected-error @+1 {{operand #1 is 'tensor<?xi32>', expected a memref as 'cache'}}
  shardq.write_rows %r at(%s) into(%c) : (memref<?x8xbf16>, tensor<?xi32>, memref<?x8xbf16>) -> ()
  return
}

// -----

func.func @f(%r: memref<?x8xbf16>, %s: memref<?xi32>, %c: memref<?x8xbf16>) {
  // expected-error @+1 {{is on buffers, expected no result}}
  %0 = shardq.write_rows %r at(%s) into(%c) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> tensor<?x8xbf16>
  return
}

// -----

func.func @f(%r: tensor<?x8xbf16>, %s: tensor<?xi32>, %c: tensor<?x8xbf16>) {
  // expected-error @+1 {{is on tensors, expected a result}}
  shardq.write_rows %r at(%s) into(%c) : (tensor<?x8xbf16>, tensor<?xi32>, tensor<?x8xbf16>) -> ()
  return
}

// -----

func.func @f(%r: tensor<?x8xbf16>, %s: tensor<?xi32>, %c: tensor<?x8xbf16>) {
  // expected-error @+1 {{'result' is 'tensor<9x8xbf16>', expected the type of 'cache', 'tensor<?x8xbf16>'}}
  %0 = shardq.write_rows %r at(%s) into(%c) : (tensor<?x8xbf16>, tensor<?xi32>, tensor<?x8xbf16>) -> tensor<9x8xbf16>
  return
}

// -----

func.func @f(%r: tensor<?x8xbf16>, %s: tensor<?xi32>, %c: tensor<?x8xf16>) {
  // expected-error @+1 {{'cache' has element type 'f16', expected 'bf16' as 'source'}}
  %0 = shardq.write_rows %r at(%s) into(%c) : (tensor<?x8xbf16>, tensor<?xi32>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return
}

// -----

func.func @f(%r: tensor<?x8xbf16>, %s: tensor<?xi32>, %c: tensor<?x9xbf16>) {
  // expected-error @+1 {{'cache' has 9 values in dimension 1, expected 8 as 'source'}}
  %0 = shardq.write_rows %r at(%s) into(%c) : (tensor<?x8xbf16>, tensor<?xi32>, tensor<?x9xbf16>) -> tensor<?x9xbf16>
  return
}

// -----

func.func @f(%r: tensor<?x8xbf16>, %s: tensor<?xi32>, %c: tensor<?x8x1xbf16>) {
  // expected-error @+1 {{'cache' has rank 3, expected 2}}
  %0 = shardq.write_rows %r at(%s) into(%c) : (tensor<?x8xbf16>, tensor<?xi32>, tensor<?x8x1xbf16>) -> tensor<?x8x1xbf16>
  return
}

// -----

func.func @f(%r: tensor<?x?xbf16>, %s: tensor<?xi32>, %c: tensor<?x8xbf16>) {
  // expected-error @+1 {{'source' is 'tensor<?x?xbf16>', expected static, positive size (dimension 1)}}
  %0 = shardq.write_rows %r at(%s) into(%c) : (tensor<?x?xbf16>, tensor<?xi32>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  return
}

// -----

func.func @f(%r: tensor<4x8xbf16>, %s: tensor<5xi32>, %c: tensor<?x8xbf16>) {
  // expected-error @+1 {{'slots' has 5 rows, expected 4 as 'source'}}
  %0 = shardq.write_rows %r at(%s) into(%c) : (tensor<4x8xbf16>, tensor<5xi32>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  return
}

//===----------------------------------------------------------------------===//
// take_rows
//===----------------------------------------------------------------------===//

// -----

func.func @f(%x: tensor<?x8xbf16>, %r: tensor<?xi32>) {
  // expected-error @+1 {{has 'missing' and elements of type 'bf16', expected i32, i64 or f32}}
  %0 = shardq.take_rows %x[%r] {missing = 1 : i32} : (tensor<?x8xbf16>, tensor<?xi32>) -> tensor<?x8xbf16>
  return
}

// -----

func.func @f(%x: tensor<?xi32>, %r: tensor<?xi32>) {
  // expected-error @+1 {{missing is 1 : i64, expected a number of type 'i32'}}
  %0 = shardq.take_rows %x[%r] {missing = 1 : i64} : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  return
}
