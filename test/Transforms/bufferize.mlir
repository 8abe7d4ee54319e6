// Results become buffers of the size that the op computes, exchanges' results
// lie in symmetric memory, and exchanges keep their order.
//
// RUN: shardq-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %s

shardq.mesh @ranks ["tp" = 3]

// CHECK-LABEL: func @model
// CHECK-SAME: %[[START:[a-z0-9]+]]: memref<?xi32>, %[[LENS:[a-z0-9]+]]: memref<?xi32>, %[[ROWS:[a-z0-9]+]]: index,
// CHECK-SAME: %[[IQ:[a-z0-9]+]]: memref<?x4x8xf32>
func.func @model(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index, %iq: tensor<?x4x8xf32>,
                 %iw: tensor<?x4xf32>, %ik: tensor<?x8xf32>, %table: tensor<?x?xi32>, %scores: tensor<5x?xf32>,
                 %visible5: tensor<5xi32>, %q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %sink: tensor<2xf32>)
    -> (tensor<?x2x3xf32>, tensor<?x2xf32>, tensor<5x6xi32>) {
  // CHECK: %[[REQ:.*]] = memref.alloc(%[[ROWS]]) {{.*}} : memref<?xi32>
  // CHECK: %[[VISIBLE:.*]] = memref.alloc(%[[ROWS]]) {{.*}} : memref<?xi32>
  // CHECK: shardq.expand_rows %[[START]], %[[LENS]] to %[[ROWS]] outs(%[[REQ]], %[[VISIBLE]]) {speculative_tokens = 1 : i64}
  %req, %visible = shardq.expand_rows %start, %lens to %rows {speculative_tokens = 1 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // CHECK: %[[T:.*]] = memref.dim %[[IQ]]
  // CHECK: %[[TOPK:.*]] = memref.alloc(%[[T]]) {{.*}} : memref<?x6xi32>
  // CHECK: shardq.indexer q(%[[IQ]]) {{.*}} rows(%[[REQ]], %[[VISIBLE]]) outs(%[[TOPK]]) {block_size = 2 : i64, block_stride_rows = 3 : i64}
  %topk = shardq.indexer q(%iq) weights(%iw) keys(%ik) table(%table) rows(%req, %visible) {block_size = 2 : i64, block_stride_rows = 3 : i64}
      : (tensor<?x4x8xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x6xi32>
  // CHECK: %[[TOPK5:.*]] = memref.alloc() {{.*}} : memref<5x6xi32>
  // CHECK: shardq.topk {{.*}} outs(%[[TOPK5]])
  %topk5 = shardq.topk %scores visible(%visible5) : (tensor<5x?xf32>, tensor<5xi32>) -> tensor<5x6xi32>
  // CHECK: %[[SLOTS:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x6xi64>
  // CHECK: %[[COUNTS:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?xi32>
  // CHECK: shardq.convert_indices %[[TOPK]] {{.*}} prefill(%[[REQ]], %[[START]]) outs(%[[SLOTS]], %[[COUNTS]])
  %slots, %counts = shardq.convert_indices %topk table(%table) rows(%req) prefill(%req, %start) {block_size = 2 : i64}
      : (tensor<?x6xi32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x6xi64>, tensor<?xi32>)
  // CHECK: shardq.tap "slots" %[[SLOTS]] rows(%[[REQ]] : memref<?xi32>) : memref<?x6xi64>
  shardq.tap "slots" %slots rows(%req : tensor<?xi32>) : tensor<?x6xi64>
  // CHECK: %[[OUT:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x2x3xf32>
  // CHECK: %[[LSE:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x2xf32>
  // CHECK: shardq.sparse_mla {{.*}} slots(%[[SLOTS]]) rows(%[[REQ]]) topk_length(%[[COUNTS]]) sink(%{{[a-z0-9]+}}) outs(%[[OUT]], %[[LSE]])
  // CHECK: return %[[OUT]], %[[LSE]], %[[TOPK5]]
  %out, %lse = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) rows(%req) topk_length(%counts) sink(%sink) {scale = 0.5 : f32}
      : (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x6xi64>, tensor<?xi32>, tensor<?xi32>, tensor<2xf32>) -> (tensor<?x2x3xf32>, tensor<?x2xf32>)
  return %out, %lse, %topk5 : tensor<?x2x3xf32>, tensor<?x2xf32>, tensor<5x6xi32>
}

// CHECK-LABEL: func @split
// CHECK-SAME: %[[START:[a-z0-9]+]]: memref<?xi32>
func.func @split(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index, %x: tensor<?x4xbf16>)
    -> (tensor<?x4xbf16>, i1) {
  // CHECK: %[[D:.*]] = shardq.count_decode_rows %[[START]] : memref<?xi32>
  %d = shardq.count_decode_rows %start : tensor<?xi32>
  // CHECK: %[[IDS:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?xi32>
  // CHECK: %[[OFFSETS:.*]] = memref.alloc() {{.*}} : memref<4xi32>
  // CHECK: shardq.zigzag_split %[[START]] decodes(%[[D]]) {{.*}} outs(%[[IDS]], %[[OFFSETS]])
  %ids, %offsets = shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<4xi32>)
  // Decode rows and the own group.
  // CHECK: %[[RANK:.*]] = shardq.rank over @ranks "tp"
  // CHECK: memref.load %[[OFFSETS]][%[[RANK]]]
  // CHECK: %[[OWN:.*]] = arith.subi
  // CHECK: %[[SIZE:.*]] = arith.addi %[[D]], %[[OWN]]
  // CHECK: %[[MINE:.*]] = memref.alloc(%[[SIZE]])
  // CHECK: shardq.local_rows %[[IDS]], %[[OFFSETS]] {{.*}} outs(%[[MINE]])
  %mine = shardq.local_rows %ids, %offsets decodes(%d) over @ranks "tp"
      : (tensor<?xi32>, tensor<4xi32>, index) -> tensor<?xi32>
  // CHECK: %[[T:.*]] = memref.dim %[[MINE]]
  // CHECK: %[[TAKEN:.*]] = memref.alloc(%[[T]]) {{.*}} : memref<?x4xbf16>
  // CHECK: shardq.take_rows %{{.*}}[%[[MINE]]] outs(%[[TAKEN]])
  %taken = shardq.take_rows %x[%mine] : (tensor<?x4xbf16>, tensor<?xi32>) -> tensor<?x4xbf16>
  // CHECK: shardq.split_gate offsets(%[[OFFSETS]]) {{.*}} : memref<4xi32>, memref<?xi32>, memref<?xi32>
  %gate = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%d) rows(%rows)
      {min_tokens = 1 : i64, topk = 4 : i64} : tensor<4xi32>, tensor<?xi32>, tensor<?xi32>
  return %taken, %gate : tensor<?x4xbf16>, i1
}

// CHECK-LABEL: func @exchange
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<?x2x8xbf16>, %[[IDS:[a-z0-9]+]]: memref<?xi32>, %[[OFFSETS:[a-z0-9]+]]: memref<4xi32>
func.func @exchange(%x: tensor<?x2x8xbf16>, %ids: tensor<?xi32>, %offsets: tensor<4xi32>, %d: index)
    -> tensor<?x2x8xbf16> {
  // CHECK: %[[N:.*]] = arith.subi
  // CHECK: %[[INBOX:.*]] = memref.alloc(%[[N]]) : memref<?x6x8xbf16, #shardq.symmetric<@ranks>>
  // CHECK: %[[TOKENS:.*]] = memref.memory_space_cast %[[INBOX]] : memref<?x6x8xbf16, #shardq.symmetric<@ranks>> to memref<?x6x8xbf16>
  // CHECK: shardq.exchange heads_to_tokens(%[[X]]) by(%[[IDS]], %[[OFFSETS]]) {{.*}} outs(%[[INBOX]])
  %0 = shardq.exchange heads_to_tokens(%x) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xbf16>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x6x8xbf16>
  // As many rows as there are ids.
  // CHECK: %[[T:.*]] = memref.dim %[[IDS]]
  // CHECK: %[[BACK:.*]] = memref.alloc(%[[T]]) : memref<?x2x8xbf16, #shardq.symmetric<@ranks>>
  // CHECK: %[[HEADS:.*]] = memref.memory_space_cast %[[BACK]]
  // CHECK: shardq.exchange tokens_to_heads(%[[TOKENS]]) {{.*}} after(%[[X]]) {{.*}} outs(%[[BACK]])
  // CHECK: return %[[HEADS]] : memref<?x2x8xbf16>
  %1 = shardq.exchange tokens_to_heads(%0) by(%ids, %offsets) decodes(%d) after(%x) over @ranks "tp"
      : (tensor<?x6x8xbf16>, tensor<?xi32>, tensor<4xi32>, index, tensor<?x2x8xbf16>) -> tensor<?x2x8xbf16>
  return %1 : tensor<?x2x8xbf16>
}

// Queries are gathered where their consumer reads them; merged outputs are
// buffers like others.
// CHECK-LABEL: func @context
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x2x8xf32>, %[[L:[a-z0-9]+]]: memref<?x6xf32>, %[[I:[a-z0-9]+]]: memref<?x4xi32>,
func.func @context(%q: tensor<?x2x8xf32>, %l: tensor<?x6xf32>, %i: tensor<?x4xi32>, %n: tensor<?xi32>)
    -> (tensor<?x2x8xf32>, tensor<?x2xf32>, tensor<?x4xi64>, tensor<?xi32>) {
  // CHECK: %[[T:.*]] = memref.dim %[[Q]]
  // CHECK: %[[ALL:.*]] = memref.alloc(%[[T]]) : memref<?x6x8xf32, #shardq.symmetric<@ranks>>
  // CHECK: %[[READ:.*]] = memref.memory_space_cast %[[ALL]]
  // CHECK: shardq.gather_query(%[[Q]]) over @ranks "tp" outs(%[[ALL]])
  %0 = shardq.gather_query(%q) over @ranks "tp" : (tensor<?x2x8xf32>) -> tensor<?x6x8xf32>
  // CHECK: %[[OUT:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x2x8xf32>
  // CHECK: %[[MERGED:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x2xf32>
  // CHECK: shardq.combine_lse %[[READ]] lse(%[[L]]) over @ranks "tp" outs(%[[OUT]], %[[MERGED]])
  %1, %2 = shardq.combine_lse %0 lse(%l) over @ranks "tp" : (tensor<?x6x8xf32>, tensor<?x6xf32>) -> (tensor<?x2x8xf32>, tensor<?x2xf32>)
  // CHECK: shardq.filter_indices %[[I]] over @ranks "tp" outs(%{{.*}}) {interleave = 4 : i64} : (memref<?x4xi32>, memref<?x4xi64>)
  %3 = shardq.filter_indices %i over @ranks "tp" {interleave = 4 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi64>
  // CHECK: shardq.local_lengths %{{.*}} over @ranks "tp" outs(%{{.*}}) {interleave = 4 : i64}
  %4 = shardq.local_lengths %n over @ranks "tp" {interleave = 4 : i64} : (tensor<?xi32>) -> tensor<?xi32>
  return %1, %2, %3, %4 : tensor<?x2x8xf32>, tensor<?x2xf32>, tensor<?x4xi64>, tensor<?xi32>
}

// Lengths of a draft step are a buffer of their own, even where nobody reads the old ones any more.
// CHECK-LABEL: func @draft
// CHECK-SAME: %[[N:[a-z0-9]+]]: memref<?xi32>, %[[STEP:[a-z0-9]+]]: index
func.func @draft(%n: tensor<?xi32>, %step: index) -> tensor<?xi32> {
  // CHECK: %[[OUT:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?xi32>
  // CHECK: shardq.draft_lengths %[[N]] step(%[[STEP]]) outs(%[[OUT]]) : (memref<?xi32>, index, memref<?xi32>) -> ()
  %0 = shardq.draft_lengths %n step(%step) : (tensor<?xi32>, index) -> tensor<?xi32>
  // CHECK: return %[[OUT]]
  return %0 : tensor<?xi32>
}

// Gathered rows, as many as the blocks of all ranks hold, are read where peers write them.
// CHECK-LABEL: func @gather
// CHECK-SAME: %[[KV:[a-z0-9]+]]: memref<?x8xf32>, %[[TABLE:[a-z0-9]+]]: memref<?x?xi32>, %[[N:[a-z0-9]+]]: memref<?xi32>
func.func @gather(%kv: tensor<?x8xf32>, %table: tensor<?x?xi32>, %n: tensor<?xi32>, %i: tensor<?x4xi32>, %d: index)
    -> (tensor<?x8xf32>, tensor<?x4xi64>, tensor<?x?xi32>, i1) {
  // CHECK-DAG: %[[R:.*]] = memref.dim %[[TABLE]], %c0
  // CHECK-DAG: %[[W:.*]] = memref.dim %[[TABLE]], %c1
  // CHECK-DAG: %[[ENTRIES:.*]] = arith.muli %[[R]], %[[W]]
  // CHECK-DAG: %[[BLOCKS:.*]] = memref.alloc(%[[ENTRIES]]) {{.*}} : memref<?xi32>
  // CHECK-DAG: %[[INVERSE:.*]] = memref.alloc(%[[R]], %[[W]]) {{.*}} : memref<?x?xi32>
  // CHECK-DAG: %[[COUNT:.*]] = memref.alloc() {{.*}} : memref<1xi32>
  // CHECK: shardq.gather_blocks %[[TABLE]] lengths(%[[N]]) over @ranks "tp" outs(%[[BLOCKS]], %[[INVERSE]], %[[COUNT]])
  %0:3 = shardq.gather_blocks %table lengths(%n) over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  // CHECK: %[[HANDLE:.*]] = shardq.gather_kv_start(%[[KV]]) blocks(%[[BLOCKS]], %[[COUNT]])
  %h = shardq.gather_kv_start(%kv) blocks(%0#0, %0#2) over @ranks "tp" {block_size = 4 : i64}
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  // CHECK: shardq.gathered_slots %{{.*}} blocks(%[[INVERSE]], %[[COUNT]]) rows(%[[N]]) over @ranks "tp" outs(%{{.*}})
  %1 = shardq.gathered_slots %i blocks(%0#1, %0#2) rows(%n) over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x4xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x4xi64>
  // CHECK: %[[FOUND:.*]] = memref.load %[[COUNT]]
  // CHECK: %[[CAST:.*]] = arith.index_cast %[[FOUND]]
  // CHECK: %[[ROWS:.*]] = arith.muli %[[CAST]], %c4
  // CHECK: %[[ALLROWS:.*]] = arith.muli %[[ROWS]], %c3
  // CHECK: %[[ALL:.*]] = memref.alloc(%[[ALLROWS]]) : memref<?x8xf32, #shardq.symmetric<@ranks>>
  // CHECK: %[[READ:.*]] = memref.memory_space_cast %[[ALL]]
  // CHECK: shardq.gather_kv_finish %[[HANDLE]] outs(%[[ALL]])
  %2 = shardq.gather_kv_finish %h : (!shardq.kv_gather) -> tensor<?x8xf32>
  // CHECK: shardq.gathered_table %[[INVERSE]], %[[COUNT]] over @ranks "tp" outs(%{{.*}})
  %3 = shardq.gathered_table %0#1, %0#2 over @ranks "tp" {block_size = 4 : i64, interleave = 4 : i64}
      : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
  // CHECK: %[[GATE:.*]] = shardq.gather_gate %[[N]] blocks(%[[COUNT]])
  %4 = shardq.gather_gate %n blocks(%0#2) decodes(%d) over @ranks "tp" {block_size = 4 : i64} : tensor<?xi32>, tensor<1xi32>
  // CHECK: return %[[READ]], {{.*}} %[[GATE]]
  return %2, %1, %3, %4 : tensor<?x8xf32>, tensor<?x4xi64>, tensor<?x?xi32>, i1
}

// Encodings are of tensors only.
// CHECK-LABEL: func.func @views
// CHECK-SAME: %[[TABLE:.*]]: memref<?x?xi32>, %[[N:.*]]: memref<?xi32>, %[[KEYS:.*]]: memref<?x144xbf16>, %[[CACHE:.*]]: memref<?x164xi8>
func.func @views(%table: tensor<?x?xi32>, %n: tensor<?xi32>, %keys: tensor<?x144xbf16>,
                 %cache: tensor<?x164xi8, #shardq.view<replicated>>)
    -> (tensor<?x164xi8, #shardq.view<replicated>>, tensor<?x144xbf16, #shardq.view<replicated>>) {
  // CHECK: %[[W:.*]] = memref.dim %[[TABLE]], %c1
  // CHECK: %[[WIDE:.*]] = arith.muli %[[W]], %c3
  // CHECK: %[[VIEW:.*]] = memref.alloc(%{{.*}}, %[[WIDE]]) {{.*}} : memref<?x?xi32>
  // CHECK: shardq.replicated_table %[[TABLE]] lengths(%[[N]]) over @ranks "tp" outs(%[[VIEW]])
  %view = shardq.replicated_table %table lengths(%n) over @ranks "tp" : (tensor<?x?xi32>, tensor<?xi32>)
      -> tensor<?x?xi32, #shardq.view<replicated>>
  // CHECK: shardq.token_slots table(%[[VIEW]]) rows(%[[N]], %[[N]]) outs(%[[SLOTS:.*]]) {block_size = 4 : i64}
  %slots = shardq.token_slots table(%view) rows(%n, %n) {block_size = 4 : i64}
      : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>)
      -> tensor<?xi64, #shardq.view<replicated>>
  // CHECK: %[[PACKED:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x164xi8>
  // CHECK: shardq.pack_rows %[[KEYS]] outs(%[[PACKED]])
  %packed = shardq.pack_rows %keys {format = #shardq.packed_rows<128 x i8, rope = 16, order = rope_scales>}
      : (tensor<?x144xbf16>) -> tensor<?x164xi8>
  // CHECK: shardq.write_rows %[[PACKED]] at(%[[SLOTS]]) into(%[[CACHE]])
  %written = shardq.write_rows %packed at(%slots) into(%cache)
      : (tensor<?x164xi8>, tensor<?xi64, #shardq.view<replicated>>, tensor<?x164xi8, #shardq.view<replicated>>)
      -> tensor<?x164xi8, #shardq.view<replicated>>
  // CHECK: %[[ROWS:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x144xbf16>
  // CHECK: shardq.unpack_rows %[[CACHE]] outs(%[[ROWS]])
  %rows = shardq.unpack_rows %written {format = #shardq.packed_rows<128 x i8, rope = 16, order = rope_scales>}
      : (tensor<?x164xi8, #shardq.view<replicated>>) -> tensor<?x144xbf16, #shardq.view<replicated>>
  // CHECK: return %[[CACHE]], %[[ROWS]]
  return %written, %rows : tensor<?x164xi8, #shardq.view<replicated>>, tensor<?x144xbf16, #shardq.view<replicated>>
}

// CHECK-LABEL: func.func @gather_rows
// CHECK-SAME: %[[A:.*]]: memref<?x8xbf16>, %[[B:.*]]: memref<5x2x4xi8>
func.func @gather_rows(%a: tensor<?x8xbf16>, %b: tensor<5x2x4xi8>) -> (tensor<?x8xbf16>, tensor<15x2x4xi8>) {
  // CHECK: %[[T:.*]] = memref.dim %[[A]]
  // CHECK: %[[ALLROWS:.*]] = arith.muli %[[T]], %c3
  // CHECK: %[[ALL:.*]] = memref.alloc(%[[ALLROWS]]) : memref<?x8xbf16, #shardq.symmetric<@ranks>>
  // CHECK: %[[READ:.*]] = memref.memory_space_cast %[[ALL]]
  // CHECK: shardq.gather_rows %[[A]] over @ranks "tp" outs(%[[ALL]])
  %0 = shardq.gather_rows %a over @ranks "tp" : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
  // CHECK: %[[STATIC:.*]] = memref.alloc() : memref<15x2x4xi8, #shardq.symmetric<@ranks>>
  // CHECK: shardq.gather_rows %[[B]] over @ranks "tp" outs(%[[STATIC]])
  %1 = shardq.gather_rows %b over @ranks "tp" : (tensor<5x2x4xi8>) -> tensor<15x2x4xi8>
  return %0, %1 : tensor<?x8xbf16>, tensor<15x2x4xi8>
}

// CHECK-LABEL: func.func @chunks
// CHECK-SAME: %[[START:.*]]: memref<?xi32>, %[[LENS:.*]]: memref<?xi32>, %[[AT:.*]]: memref<?xi64>, %[[D:.*]]: index, %[[ROWS:.*]]: index
func.func @chunks(%start: tensor<?xi32>, %lens: tensor<?xi32>, %at: tensor<?xi64>, %d: index, %rows: index)
    -> (tensor<?xi32>, tensor<9xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi64>) {
  // CHECK: %[[N:.*]] = shardq.count_chunk_rows all %[[START]] decodes(%[[D]]) rows(%[[ROWS]]) over @ranks "tp" : memref<?xi32>
  // CHECK: %[[MINE:.*]] = memref.alloc(%[[N]])
  // CHECK: %[[RESTORE:.*]] = memref.alloc() {{.*}} : memref<9xi32>
  // CHECK: shardq.chunk_split %[[START]] decodes(%[[D]]) rows(%[[ROWS]]) over @ranks "tp" outs(%[[MINE]], %[[RESTORE]]) {by_part}
  %mine, %restore = shardq.chunk_split %start decodes(%d) rows(%rows) over @ranks "tp" {by_part}
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<9xi32>)
  // CHECK: %[[NTAIL:.*]] = shardq.count_chunk_rows tail %[[START]]
  // CHECK: %[[OWN:.*]] = memref.alloc(%[[NTAIL]])
  // CHECK: shardq.chunk_lengths tail %[[START]], %[[LENS]] {{.*}} outs(%{{.*}}, %{{.*}}, %[[OWN]])
  %s, %l, %own = shardq.chunk_lengths tail %start, %lens decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
  // CHECK: arith.muli %[[ROWS]], %c3
  // CHECK: shardq.chunk_slots %[[AT]] by(%[[START]]) decodes(%[[D]]) local(%[[ROWS]]) over @ranks "tp" outs(%{{.*}}, %{{.*}})
  %order, %padded = shardq.chunk_slots %at by(%start) decodes(%d) local(%rows) over @ranks "tp"
      : (tensor<?xi64>, tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi64>)
  return %mine, %restore, %s, %l, %own, %order, %padded
      : tensor<?xi32>, tensor<9xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi64>
}

// The cache is written in place, but not where the old one is still read.
// CHECK-LABEL: func.func @write
// CHECK-SAME: %[[X:.*]]: memref<?x8xbf16>, %[[AT:.*]]: memref<?xi64>, %[[A:.*]]: memref<?x8xbf16>, %[[B:.*]]: memref<?x8xbf16>
func.func @write(%x: tensor<?x8xbf16>, %at: tensor<?xi64>, %a: tensor<?x8xbf16>, %b: tensor<?x8xbf16>)
    -> (tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?x8xbf16>) {
  // CHECK-NOT: memref.alloc
  // CHECK: shardq.write_rows %[[X]] at(%[[AT]]) into(%[[A]])
  %0 = shardq.write_rows %x at(%at) into(%a) : (tensor<?x8xbf16>, tensor<?xi64>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  // CHECK: %[[COPY:.*]] = memref.alloc
  // CHECK: memref.copy %[[B]], %[[COPY]]
  // CHECK: shardq.write_rows %[[X]] at(%[[AT]]) into(%[[COPY]])
  %1 = shardq.write_rows %x at(%at) into(%b) : (tensor<?x8xbf16>, tensor<?xi64>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  return %0, %1, %b : tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?x8xbf16>
}
