// RUN: shardq-opt %s --split-input-file --shardq-select-transport=remarks=false | FileCheck %s --check-prefixes=CHECK,AUTO
// RUN: shardq-opt %s --split-input-file --shardq-select-transport=remarks=false --shardq-select-transport=remarks=false | FileCheck %s --check-prefixes=CHECK,AUTO
// RUN: shardq-opt %s --split-input-file --shardq-select-transport="transport=nccl remarks=false" | FileCheck %s --check-prefix=NCCL
// RUN: shardq-opt %s --split-input-file --shardq-select-transport="host-ranks=4 remarks=false" | FileCheck %s --check-prefix=HOSTS
// RUN: not shardq-opt %s --split-input-file --shardq-select-transport="target=cpu remarks=false" 2>/dev/null | FileCheck %s --check-prefix=CPU

// Every kind of collective gets a choice and its reason; a gather in two parts
// has it at its start.

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @kinds
// NCCL-LABEL: func @kinds
// HOSTS-LABEL: func @kinds
func.func @kinds(%q: tensor<?x2x16xbf16>, %ids: tensor<?xi32>, %offsets: tensor<9xi32>, %decodes: index,
                 %kv: tensor<?x16xbf16>, %blocks: tensor<?xi32>, %count: tensor<1xi32>)
    -> (tensor<?x16x16xbf16>, tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>) {
  // AUTO: shardq.exchange {{.*}} {transport = #shardq.transport<direct, "ranks of a host write into each other's memory, 16 bytes at a time where buffers are aligned">}
  // CPU: shardq.exchange {{.*}} {transport = #shardq.transport<direct, "ranks of a host write into each other's memory">}
  // NCCL: shardq.exchange {{.*}} {transport = #shardq.transport<nccl, "asked for">}
  // HOSTS: shardq.exchange {{.*}} {transport = #shardq.transport<nccl, "ranks of the group are on several hosts">}
  %0 = shardq.exchange heads_to_tokens(%q) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
      : (tensor<?x2x16xbf16>, tensor<?xi32>, tensor<9xi32>, index) -> tensor<?x16x16xbf16>
  // The groups of this axis are of one host each.
  // AUTO: shardq.gather_query({{.*}} {transport = #shardq.transport<direct, "ranks of a host write into each other's memory, 16 bytes at a time where buffers are aligned">}
  // HOSTS: shardq.gather_query({{.*}} {transport = #shardq.transport<direct, "ranks of a host write into each other's memory, 16 bytes at a time where buffers are aligned">}
  %1 = shardq.gather_query(%q) over @ranks "dcp" : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  // AUTO: shardq.gather_kv_start({{.*}} transport = #shardq.transport<direct
  // NCCL: shardq.gather_kv_start({{.*}} transport = #shardq.transport<nccl, "asked for">
  %handle = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x16xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %2 = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> tensor<?x16xbf16>
  // AUTO: shardq.gather_rows {{.*}} {transport = #shardq.transport<direct
  %3 = shardq.gather_rows %kv over @ranks "dcp" : (tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return %0, %1, %2, %3 : tensor<?x16x16xbf16>, tensor<?x8x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
}

// -----

// A choice made by hand stays, with its reason.

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @by_hand
// NCCL-LABEL: func @by_hand
func.func @by_hand(%q: tensor<?x2x16xbf16>) -> (tensor<?x8x16xbf16>, tensor<?x8x16xbf16>) {
  // CHECK: shardq.gather_query({{.*}} {transport = #shardq.transport<nccl, "asked for">}
  %0 = shardq.gather_query(%q) over @ranks "dcp" {transport = #shardq.transport<nccl>} : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  // CHECK: shardq.gather_query({{.*}} {transport = #shardq.transport<direct, "measured">}
  // NCCL: shardq.gather_query({{.*}} {transport = #shardq.transport<direct, "measured">}
  %1 = shardq.gather_query(%q) over @ranks "dcp" {transport = #shardq.transport<direct, "measured">} : (tensor<?x2x16xbf16>) -> tensor<?x8x16xbf16>
  return %0, %1 : tensor<?x8x16xbf16>, tensor<?x8x16xbf16>
}

// -----

// Where each rank keeps all heads, own heads are merged and gathered, LSEs as
// heads of one value.

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @all_heads
// NCCL-LABEL: func @all_heads
func.func @all_heads(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>) {
  // CHECK: %[[OWN:.*]]:2 = shardq.combine_lse %{{.*}} lse(%{{.*}}) over @ranks "dcp" {transport = #shardq.transport<direct, "own heads are merged and then gathered{{.*}} -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  // NCCL: shardq.combine_lse {{.*}} {transport = #shardq.transport<nccl, "asked for">}
  // CHECK: %[[OUT:.*]] = shardq.gather_query(%[[OWN]]#0) {{.*}} -> tensor<?x8x16xbf16>
  // NCCL: shardq.gather_query({{.*}} {transport = #shardq.transport<nccl, "asked for">}
  // CHECK: %[[ONE:.*]] = tensor.expand_shape %[[OWN]]#1 {{\[\[}}0], [1, 2]]
  // CHECK: %[[LSES:.*]] = shardq.gather_query(%[[ONE]]) {{.*}} -> tensor<?x8x1xf32>
  // CHECK: %[[LSE:.*]] = tensor.collapse_shape %[[LSES]] {{\[\[}}0], [1, 2]]
  // CHECK: return %[[OUT]], %[[LSE]]
  %0, %1 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8x16xbf16>, tensor<?x8xf32>)
  return %0, %1 : tensor<?x8x16xbf16>, tensor<?x8xf32>
}

// -----

// One rank has all heads and merges them itself.

shardq.mesh @ranks ["tp" = 1]

// CHECK-LABEL: func @one_rank
func.func @one_rank(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>) -> tensor<?x8x16xbf16> {
  // CHECK: shardq.combine_lse {{.*}} {transport = #shardq.transport<direct, "ranks of a host
  // CHECK-NOT: shardq.gather_query
  %0 = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}

// -----

// What types say: parts of rows that are no multiples of 16 bytes, and exchanges of rows without columns.

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @pieces
func.func @pieces(%q: tensor<?x2x12xbf16>, %bytes: tensor<?x2x12xi8>, %other: tensor<?x2x20xi8>, %sixteen: tensor<?x2x16xi8>,
                  %w: tensor<?x8xf32>, %p: tensor<?x8x8xbf16>, %l: tensor<?x8xf32>, %kv: tensor<?x640xi8>, %blocks: tensor<?xi32>,
                  %count: tensor<1xi32>, %ids: tensor<?xi32>, %offsets: tensor<9xi32>, %decodes: index)
    -> (tensor<?x8x12xbf16>, tensor<?x8x32xi8>, tensor<?x8x16xi8>, tensor<?x64xf32>, tensor<?x2x8xbf16>, tensor<?x640xi8>) {
  // CHECK: shardq.gather_query({{.*}} {transport = #shardq.transport<direct, "ranks of a host write into each other's memory, by single elements: parts of a row are no multiples of 16 bytes">}
  %0 = shardq.gather_query(%q) over @ranks "dcp" : (tensor<?x2x12xbf16>) -> tensor<?x8x12xbf16>
  // Both together are one, each by itself is not.
  // CHECK: shardq.gather_query({{.*}} memory, by single elements
  %1 = shardq.gather_query(%bytes, %other) over @ranks "dcp" : (tensor<?x2x12xi8>, tensor<?x2x20xi8>) -> tensor<?x8x32xi8>
  // CHECK: shardq.gather_query({{.*}} memory, 16 bytes at a time
  %2 = shardq.gather_query(%sixteen) over @ranks "dcp" : (tensor<?x2x16xi8>) -> tensor<?x8x16xi8>
  // CHECK: shardq.exchange {{.*}} memory, by single elements
  %3 = shardq.exchange heads_to_tokens(%w) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<9xi32>, index) -> tensor<?x64xf32>
  // The LSE stands in 16 bytes of its own.
  // CHECK: shardq.combine_lse {{.*}} memory, 16 bytes at a time
  %4 = shardq.combine_lse %p lse(%l) over @ranks "dcp" : (tensor<?x8x8xbf16>, tensor<?x8xf32>) -> tensor<?x2x8xbf16>
  // CHECK: shardq.gather_kv_start({{.*}} memory, 16 bytes at a time
  %handle = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "dcp" {block_size = 4 : i64}
      : (tensor<?x640xi8>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %5 = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> tensor<?x640xi8>
  return %0, %1, %2, %3, %4, %5 : tensor<?x8x12xbf16>, tensor<?x8x32xi8>, tensor<?x8x16xi8>, tensor<?x64xf32>, tensor<?x2x8xbf16>, tensor<?x640xi8>
}

// -----

// More rows than inboxes hold, of 8192 rows: of shards, all of them together.

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]

// CHECK-LABEL: func @rows
// HOSTS-LABEL: func @rows
func.func @rows(%q: tensor<8193x2x16xbf16>, %fits: tensor<8192x2x16xbf16>, %shards: tensor<2049x16xbf16>, %own: tensor<9000x16xbf16>)
    -> (tensor<8193x8x16xbf16>, tensor<8193x16x16xbf16>, tensor<8192x8x16xbf16>, tensor<8196x16xbf16>, tensor<36000x16xbf16>) {
  // CHECK: shardq.gather_query({{.*}} where buffers are aligned; it has more rows than inboxes hold, which shardq-slice-steps has to take in turns">}
  %0 = shardq.gather_query(%q) over @ranks "dcp" : (tensor<8193x2x16xbf16>) -> tensor<8193x8x16xbf16>
  // HOSTS: shardq.gather_query({{.*}} "ranks of the group are on several hosts; it has more rows than inboxes hold, which shardq-slice-steps has to take in turns">}
  %1 = shardq.gather_query(%q) over @ranks "tp" : (tensor<8193x2x16xbf16>) -> tensor<8193x16x16xbf16>
  // CHECK: shardq.gather_query(%{{.*}} where buffers are aligned">}{{.*}} tensor<8192x8x16xbf16>
  %2 = shardq.gather_query(%fits) over @ranks "dcp" : (tensor<8192x2x16xbf16>) -> tensor<8192x8x16xbf16>
  // CHECK: shardq.gather_rows {{.*}} {token_shards, {{.*}} which shardq-slice-steps has to take in turns">}
  %3 = shardq.gather_rows %shards over @ranks "dcp" {token_shards} : (tensor<2049x16xbf16>) -> tensor<8196x16xbf16>
  // Rows that a program gathers by itself have another bound.
  // CHECK: shardq.gather_rows {{.*}} where buffers are aligned">}{{.*}} tensor<36000x16xbf16>
  %4 = shardq.gather_rows %own over @ranks "dcp" : (tensor<9000x16xbf16>) -> tensor<36000x16xbf16>
  return %0, %1, %2, %3, %4 : tensor<8193x8x16xbf16>, tensor<8193x16x16xbf16>, tensor<8192x8x16xbf16>, tensor<8196x16xbf16>, tensor<36000x16xbf16>
}
