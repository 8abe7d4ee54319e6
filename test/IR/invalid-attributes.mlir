// RUN: shardq-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

// expected-error @+1 {{axis name is empty}}
"test.op"() {axis = #shardq.axis<"" = 8>} : () -> ()

// -----

// expected-error @+1 {{axis "tp" has size 0, expected 1 or more}}
"test.op"() {axis = #shardq.axis<"tp" = 0>} : () -> ()

// -----

// expected-error @+1 {{sharding divides neither heads nor tokens, expected one of them over at least one axis}}
"test.op"() {sharding = #shardq.sharding<@ranks, heads = []>} : () -> ()

// -----

// expected-error @+1 {{sharding divides neither heads nor tokens}}
"test.op"() {sharding = #shardq.sharding<@ranks, tokens = zigzag []>} : () -> ()

// -----

// expected-error @+1 {{sharding names axis "tp" twice}}
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp", "dp", "tp"]>} : () -> ()

// -----

// expected-error @+1 {{sharding names axis "tp" twice}}
"test.op"() {sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp", "tp"]>} : () -> ()

// -----

// expected-error @+1 {{unknown token order 'striped', expected 'zigzag' or 'contiguous'}}
"test.op"() {sharding = #shardq.sharding<@ranks, tokens = striped ["tp"]>} : () -> ()

// -----

// expected-error @+1 {{expected 'heads' or 'tokens'}}
"test.op"() {sharding = #shardq.sharding<@ranks, = ["tp"]>} : () -> ()

// -----

// Heads and tokens cannot be given together.
// expected-error @+1 {{expected 'kv'}}
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp"], tokens = zigzag ["tp"]>} : () -> ()

// -----

// expected-error @+1 {{kv interleave is 0, expected 1 or more}}
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<0> ["dcp"]>} : () -> ()

// -----

// expected-error @+1 {{kv interleave is -64, expected 1 or more}}
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<-64> ["dcp"]>} : () -> ()

// -----

// expected-error @+1 {{sharding names axis "dcp" twice}}
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> ["dcp", "dcp"]>} : () -> ()

// -----

// expected-error @+1 {{kv is divided over no axis, expected one}}
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<4> []>} : () -> ()

// -----

// expected-error @+1 {{expected 'interleave'}}
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = zigzag ["dcp"]>} : () -> ()

// -----

// expected-error @+1 {{split dimension is -1, expected 0 or more}}
"test.op"() {split = #shardq.split<@ranks, -1 over "tp">} : () -> ()

// -----

// expected-error @+1 {{channel "q" has 3 generations, expected 1 or 2}}
"test.op"() {channel = #shardq.channel<"q", offset = 0, bytes = 256, generations = 3>} : () -> ()

// -----

// expected-error @+1 {{channel "q" has 0 generations, expected 1 or 2}}
"test.op"() {channel = #shardq.channel<"q", offset = 0, bytes = 256, generations = 0>} : () -> ()

// -----

// expected-error @+1 {{channel "q" has offset 128, expected a multiple of 256}}
"test.op"() {channel = #shardq.channel<"q", offset = 128, bytes = 256, generations = 1>} : () -> ()

// -----

// expected-error @+1 {{channel "q" has offset -256, expected a multiple of 256}}
"test.op"() {channel = #shardq.channel<"q", offset = -256, bytes = 256, generations = 1>} : () -> ()

// -----

// expected-error @+1 {{channel "q" has bytes 255, expected a multiple of 256}}
"test.op"() {channel = #shardq.channel<"q", offset = 0, bytes = 255, generations = 1>} : () -> ()

// -----

// expected-error @+1 {{channel "q" has bytes -256, expected a multiple of 256}}
"test.op"() {channel = #shardq.channel<"q", offset = 0, bytes = -256, generations = 1>} : () -> ()

// -----

// expected-error @+1 {{'test.op' op has unknown attribute 'shardq.split': 'shardq.split' stands on function arguments and results}}
"test.op"() {shardq.split = #shardq.split<@ranks, 0 over "tp">} : () -> ()

// -----

shardq.mesh @ranks ["tp" = 8]
// expected-error @+1 {{'func.func' op has unknown attribute 'shardq.splitt' on argument 1}}
func.func private @f(index, tensor<4xf32> {shardq.splitt = #shardq.split<@ranks, 0 over "tp">})

// -----

// expected-error @+1 {{'func.func' op has 'shardq.split' on argument 0 that is 3 : i64, expected a #shardq.split attribute}}
func.func private @f(tensor<4xf32> {shardq.split = 3})

// -----

shardq.mesh @ranks ["tp" = 8]
// expected-error @+1 {{'func.func' op splits dimension 2 of argument 0, which is 'tensor<?x16xf32>'}}
func.func private @f(tensor<?x16xf32> {shardq.split = #shardq.split<@ranks, 2 over "tp">})

// -----

shardq.mesh @ranks ["tp" = 8]
// expected-error @+1 {{'func.func' op splits dimension 0 of argument 0, which is 'index'}}
func.func private @f(index {shardq.split = #shardq.split<@ranks, 0 over "tp">})

// -----

shardq.mesh @ranks ["tp" = 8]
// expected-error @+1 {{'func.func' op splits dimension 0 of argument 0, which is 'tensor<*xf32>'}}
func.func private @f(tensor<*xf32> {shardq.split = #shardq.split<@ranks, 0 over "tp">})

// -----

shardq.mesh @ranks ["tp" = 8]
// expected-error @+1 {{'func.func' op splits dimension 1 of result 1, which is 'tensor<4xf32>'}}
func.func private @f() -> (index, tensor<4xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">})

// -----

// expected-error @+1 {{'func.func' op splits argument 0 over axis "tp" of @ranks, which does not exist}}
func.func private @f(tensor<4xf32> {shardq.split = #shardq.split<@ranks, 0 over "tp">})

// -----

shardq.mesh @ranks ["tp" = 8]
// expected-error @+1 {{'func.func' op splits result 0 over axis "dp" of @ranks, which does not exist}}
func.func private @f() -> (tensor<4xf32> {shardq.split = #shardq.split<@ranks, 0 over "dp">})

// -----

// A symbol that is no mesh.
func.func private @ranks()
// expected-error @+1 {{'func.func' op splits argument 0 over axis "tp" of @ranks, which does not exist}}
func.func private @f(tensor<4xf32> {shardq.split = #shardq.split<@ranks, 0 over "tp">})

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{packed rows have 130 latent values, expected a positive multiple of 128, at most 1048576}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<130 x i8, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{packed rows have 0 latent values, expected a positive multiple of 128, at most 1048576}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<0 x i8, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{packed rows have 2097152 latent values, expected a positive multiple of 128, at most 1048576}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<2097152 x i8, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{packed rows have values of type 'f8E5M2', expected f8E4M3FN or i8}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x f8E5M2, rope = 64, order = scales_rope>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{packed rows have 63 values with rope, expected an even number, at most 1048576}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x i8, rope = 63, order = rope_scales>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{packed rows have -2 values with rope, expected an even number, at most 1048576}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x i8, rope = -2, order = rope_scales>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+1 {{packed rows have 1048578 values with rope, expected an even number, at most 1048576}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x i8, rope = 1048578, order = rope_scales>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

func.func @f(%p: tensor<?x656xi8>) {
  // expected-error @+2 {{failed to parse ShardQ_PackedRowsAttr parameter 'order'}}
  // expected-error @+1 {{expected ::mlir::shardq::PackedOrder to be one of: scales_rope, rope_scales}}
  %0 = shardq.unpack_rows %p {format = #shardq.packed_rows<512 x i8, rope = 64, order = rope>} : (tensor<?x656xi8>) -> tensor<?x576xbf16>
  return
}

// -----

// expected-error @+2 {{failed to parse ShardQ_ViewAttr parameter 'value'}}
// expected-error @+1 {{expected ::mlir::shardq::KvView to be one of: replicated}}
func.func private @f(tensor<?xi32, #shardq.view<local>>)
