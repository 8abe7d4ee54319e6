// Attributes survive printing, parsing and bytecode, in any place an attribute
// may stand.
//
// RUN: shardq-opt %s --allow-unregistered-dialect | shardq-opt --allow-unregistered-dialect | FileCheck %s
// RUN: shardq-opt %s --allow-unregistered-dialect --emit-bytecode | shardq-opt --allow-unregistered-dialect | FileCheck %s

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
shardq.mesh @wide ["tp" = 256]

// CHECK: axis = #shardq.axis<"tp" = 8>
"test.op"() {axis = #shardq.axis<"tp" = 8>} : () -> ()
// CHECK: axis = #shardq.axis<"dcp" = 4 in "tp">
"test.op"() {axis = #shardq.axis<"dcp" = 4 in "tp">} : () -> ()
// The greatest size of an axis attribute is that of its type; the mesh is what holds it to 256.
// CHECK: axis = #shardq.axis<"a b\22c" = 9223372036854775807>
"test.op"() {axis = #shardq.axis<"a b\"c" = 9223372036854775807>} : () -> ()

// CHECK: sharding = #shardq.sharding<@ranks, heads = ["tp"]>
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp"]>} : () -> ()
// CHECK: sharding = #shardq.sharding<@ranks, heads = ["dp", "tp"]>
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["dp", "tp"]>} : () -> ()
// CHECK: sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>
"test.op"() {sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>} : () -> ()
// CHECK: sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>
"test.op"() {sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64>["dcp"]>} : () -> ()
// CHECK: sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"], kv = interleave<1> ["pcp", "tp"]>
"test.op"() {sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"], kv = interleave<1> ["pcp", "tp"]>} : () -> ()

// CHECK: transport = #shardq.transport<direct>
"test.op"() {transport = #shardq.transport<direct>} : () -> ()
// CHECK: transport = #shardq.transport<ag_rs, "a \22reason\22">
"test.op"() {transport = #shardq.transport<ag_rs, "a \"reason\"">} : () -> ()

// CHECK: lse = #shardq.lse<base = e>
"test.op"() {lse = #shardq.lse<base = e>} : () -> ()
// CHECK: lse = #shardq.lse<base = two>
"test.op"() {lse = #shardq.lse<base = two>} : () -> ()

// CHECK: channel = #shardq.channel<"q", offset = 256, bytes = 512, generations = 2>
"test.op"() {channel = #shardq.channel<"q", offset = 256, bytes = 512, generations = 2>} : () -> ()
// The fields may come in any order.
// CHECK: channel = #shardq.channel<"empty", offset = 0, bytes = 0, generations = 1>
"test.op"() {channel = #shardq.channel<"empty", generations = 1, bytes = 0, offset = 0>} : () -> ()

// CHECK: direction = #shardq<direction heads_to_tokens>, other = #shardq<direction tokens_to_heads>
"test.op"() {direction = #shardq<direction heads_to_tokens>, other = #shardq<direction tokens_to_heads>} : () -> ()
// CHECK: direction = #shardq<direction gather_heads>, other = #shardq<direction scatter_heads>
"test.op"() {direction = #shardq<direction gather_heads>, other = #shardq<direction scatter_heads>} : () -> ()

// CHECK: func private @split(tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
// CHECK-SAME: memref<4xf32> {shardq.split = #shardq.split<@ranks, 0 over "dcp">})
// CHECK-SAME: -> (tensor<?x16xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">})
func.func private @split(tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
                         memref<4xf32> {shardq.split = #shardq.split<@ranks, 0 over "dcp">})
    -> (tensor<?x16xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">})

// CHECK: func private @space(memref<?x128x576xbf16, #shardq.symmetric<@ranks>>)
func.func private @space(memref<?x128x576xbf16, #shardq.symmetric<@ranks>>)
