// Every op in its tensor and buffer form survives printing and parsing, in the
// pretty form, the generic form and bytecode.
//
// RUN: shardq-opt %s | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --mlir-print-op-generic | shardq-opt | FileCheck %s
// RUN: shardq-opt %s --emit-bytecode | shardq-opt | FileCheck %s

// CHECK: shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]
shardq.mesh @ranks ["tp" = 4, "dcp" = 2 in "tp"]

// CHECK: shardq.mesh @grid ["dp" = 2, "tp" = 3] {sym_visibility = "private"}
"shardq.mesh"() <{sym_name = "grid", sym_visibility = "private", axes = [#shardq.axis<"dp" = 2>, #shardq.axis<"tp" = 3>]}> : () -> ()

// CHECK: shardq.mesh @joined ["dp" = 2, "tp" = 3, "kv" = 6 of ["dp", "tp"]]
shardq.mesh @joined ["dp" = 2, "tp" = 3, "kv" = 6 of ["dp", "tp"]]

// One rank has no neighbours that could be anywhere.
// CHECK: shardq.mesh @alone ["pcp" = 1, "tp" = 4, "dcp" = 2 in "tp", "kv" = 2 of ["pcp", "dcp"]]
shardq.mesh @alone ["pcp" = 1, "tp" = 4, "dcp" = 2 in "tp", "kv" = 2 of ["pcp", "dcp"]]

// CHECK: shardq.mesh @last ["pcp" = 2, "tp" = 4, "dcp" = 1 in "tp", "kv" = 2 of ["pcp", "dcp"]]
shardq.mesh @last ["pcp" = 2, "tp" = 4, "dcp" = 1 in "tp", "kv" = 2 of ["pcp", "dcp"]]

// CHECK: module attributes {test.axis = #shardq.axis<"kv" = 6 of "dp", "tp">}
module attributes {test.axis = #shardq.axis<"kv" = 6 of "dp", "tp">} {}

// CHECK: shardq.plan @plan over @ranks {
// CHECK-SAME: channels = [#shardq.channel<"q", offset = 0, bytes = 147456, generations = 2>,
// CHECK-SAME:             #shardq.channel<"out", offset = 294912, bytes = 512, generations = 1>]
// CHECK-SAME: exchanges = ["heads_to_tokens exchange 0 of @push"], hash = -7 : i64,
// CHECK-SAME: slot_bytes = 295424 : i64, slots = 2 : i64}
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 147456, generations = 2>,
              #shardq.channel<"out", offset = 294912, bytes = 512, generations = 1>],
  exchanges = ["heads_to_tokens exchange 0 of @push"],
  hash = -7 : i64, slot_bytes = 295424 : i64, slots = 2 : i64}

//===----------------------------------------------------------------------===//
// Model ops
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @expand_rows
func.func @expand_rows(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index,
                       %startb: memref<4xi32>, %lensb: memref<3xi32>,
                       %reqb: memref<?xi32>, %visb: memref<?xi32>) -> (tensor<?xi32>, tensor<?xi32>) {
  // CHECK: shardq.expand_rows %{{.*}}, %{{.*}} to %{{.*}} : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %a, %b = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  // A static number of rows, and decodes of up to three tokens.
  // CHECK: shardq.expand_rows {{.*}} {speculative_tokens = 2 : i64} : {{.*}} -> (tensor<7xi32>, tensor<7xi32>)
  %c, %d = shardq.expand_rows %start, %lens to %rows {speculative_tokens = 2 : i64}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<7xi32>, tensor<7xi32>)
  // CHECK: shardq.expand_rows %{{.*}}, %{{.*}} to %{{.*}} outs(%{{.*}}, %{{.*}}) : (memref<4xi32>, memref<3xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  shardq.expand_rows %startb, %lensb to %rows outs(%reqb, %visb)
      : (memref<4xi32>, memref<3xi32>, index, memref<?xi32>, memref<?xi32>) -> ()
  return %a, %b : tensor<?xi32>, tensor<?xi32>
}

// CHECK-LABEL: func @indexer
func.func @indexer(%q: tensor<?x64x128xbf16>, %w: tensor<?x64xf32>, %keys: tensor<?x128xbf16>,
                   %table: tensor<?x?xi32>, %req: tensor<?xi32>, %vis: tensor<?xi32>,
                   %qb: memref<5x1x16xf32>, %wb: memref<5x1xf32>, %keysb: memref<?x16xf32>,
                   %tableb: memref<2x8xi32>, %reqb: memref<5xi32>, %visb: memref<?xi32>,
                   %out: memref<5x3xi32>) -> tensor<?x2048xi32> {
  // CHECK: shardq.indexer q(%{{.*}}) weights(%{{.*}}) keys(%{{.*}}) table(%{{.*}}) rows(%{{.*}}, %{{.*}}) {block_size = 64 : i64} : {{.*}} -> tensor<?x2048xi32>
  %0 = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%req, %vis) {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>, tensor<?x?xi32>,
         tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
  // CHECK: shardq.indexer {{.*}} outs(%{{.*}}) {block_size = 4 : i64, block_stride_rows = 6 : i64} : {{.*}}, memref<5x3xi32>) -> ()
  shardq.indexer q(%qb) weights(%wb) keys(%keysb) table(%tableb) rows(%reqb, %visb) outs(%out)
      {block_size = 4 : i64, block_stride_rows = 6 : i64}
      : (memref<5x1x16xf32>, memref<5x1xf32>, memref<?x16xf32>, memref<2x8xi32>, memref<5xi32>,
         memref<?xi32>, memref<5x3xi32>) -> ()
  return %0 : tensor<?x2048xi32>
}

// CHECK-LABEL: func @topk
func.func @topk(%scores: tensor<?x?xf32>, %vis: tensor<?xi32>, %scoresb: memref<3x100xf32>,
                %visb: memref<3xi32>, %out: memref<3x64xi32>) -> tensor<?x64xi32> {
  // CHECK: shardq.topk %{{.*}} visible(%{{.*}}) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x64xi32>
  %0 = shardq.topk %scores visible(%vis) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x64xi32>
  // CHECK: shardq.topk %{{.*}} visible(%{{.*}}) outs(%{{.*}}) : (memref<3x100xf32>, memref<3xi32>, memref<3x64xi32>) -> ()
  shardq.topk %scoresb visible(%visb) outs(%out) : (memref<3x100xf32>, memref<3xi32>, memref<3x64xi32>) -> ()
  return %0 : tensor<?x64xi32>
}

// CHECK-LABEL: func @convert_indices
func.func @convert_indices(%topk: tensor<?x8xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>,
                           %start: tensor<?xi32>, %topkb: memref<?x8xi32>, %tableb: memref<?x?xi32>,
                           %reqb: memref<?xi32>, %startb: memref<?xi32>, %outb: memref<?x8xi64>,
                           %countb: memref<?xi32>) {
  // CHECK: shardq.convert_indices %{{.*}} table(%{{.*}}) rows(%{{.*}}) {block_size = 64 : i64} : {{.*}} -> tensor<?x8xi32>
  %0 = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x8xi32>
  // CHECK: shardq.convert_indices {{.*}} prefill(%{{.*}}, %{{.*}}) {{.*}} -> (tensor<?x8xi64>, tensor<?xi32>)
  %1, %2 = shardq.convert_indices %topk table(%table) rows(%req) prefill(%req, %start)
      {block_size = 64 : i64, block_stride_rows = 128 : i64}
      : (tensor<?x8xi32>, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
      -> (tensor<?x8xi64>, tensor<?xi32>)
  // CHECK: shardq.convert_indices {{.*}} prefill(%{{.*}}, %{{.*}}) outs(%{{.*}}, %{{.*}})
  shardq.convert_indices %topkb table(%tableb) rows(%reqb) prefill(%reqb, %startb) outs(%outb, %countb)
      {block_size = 64 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?xi32>,
         memref<?x8xi64>, memref<?xi32>) -> ()
  // CHECK: shardq.convert_indices %{{.*}} table(%{{.*}}) rows(%{{.*}}) outs(%{{.*}}) {block_size = 1 : i64}
  shardq.convert_indices %topkb table(%tableb) rows(%reqb) outs(%outb) {block_size = 1 : i64}
      : (memref<?x8xi32>, memref<?x?xi32>, memref<?xi32>, memref<?x8xi64>) -> ()
  return
}

// CHECK-LABEL: func @sparse_mla
func.func @sparse_mla(%q: tensor<?x16x576xf16>, %qn: tensor<?x16x512xf16>, %qr: tensor<?x16x64xf16>,
                      %kv: tensor<?x576xf16>, %slots: tensor<?x8xi32>, %wide: tensor<?x?xi64>,
                      %rows: tensor<?xi32>, %sink: tensor<64xf32>, %own_sink: tensor<16xf32>,
                      %qb: memref<3x1x4xf32>, %kvb: memref<?x4xf32>, %slotsb: memref<3x2xi64>,
                      %rowsb: memref<3xi32>, %sinkb: memref<1xf32>, %out: memref<3x1x4xf32>,
                      %lse: memref<3x1xf32>) {
  // CHECK: shardq.sparse_mla q(%{{.*}}) kv(%{{.*}}) slots(%{{.*}}) {scale = 5.000000e-01 : f32} : {{.*}} -> tensor<?x16x512xf16>
  %0 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) {scale = 0.5 : f32}
      : (tensor<?x16x576xf16>, tensor<?x576xf16>, tensor<?x8xi32>) -> tensor<?x16x512xf16>
  // CHECK: shardq.sparse_mla q(%{{.*}}, %{{.*}}) kv(%{{.*}}) slots(%{{.*}}) rows(%{{.*}}) topk_length(%{{.*}}) sink(%{{[a-z0-9]+}})
  // CHECK-SAME: {lse = #shardq.lse<base = two>, scale = 5.000000e-01 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
  // CHECK-SAME: -> (tensor<?x16x512xf16>, tensor<?x16xf32>)
  %1, %2 = shardq.sparse_mla q(%qn, %qr) kv(%kv) slots(%wide) rows(%rows) topk_length(%rows) sink(%sink)
      {scale = 0.5 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>, lse = #shardq.lse<base = two>}
      : (tensor<?x16x512xf16>, tensor<?x16x64xf16>, tensor<?x576xf16>, tensor<?x?xi64>, tensor<?xi32>,
         tensor<?xi32>, tensor<64xf32>) -> (tensor<?x16x512xf16>, tensor<?x16xf32>)
  // CHECK: shardq.sparse_mla q(%{{.*}}) kv(%{{.*}}) slots(%{{.*}}) sink(%{{.*}}) {scale = -1.000000e+00 : f32, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>}
  %3 = shardq.sparse_mla q(%q) kv(%kv) slots(%slots) sink(%own_sink)
      {scale = -1.0 : f32, sharding = #shardq.sharding<@ranks, tokens = zigzag ["tp"]>}
      : (tensor<?x16x576xf16>, tensor<?x576xf16>, tensor<?x8xi32>, tensor<16xf32>) -> tensor<?x16x576xf16>
  // CHECK: shardq.sparse_mla {{.*}} rows(%{{.*}}) sink(%{{.*}}) outs(%{{.*}}, %{{.*}}) {scale = 0.000000e+00 : f32}
  shardq.sparse_mla q(%qb) kv(%kvb) slots(%slotsb) rows(%rowsb) sink(%sinkb) outs(%out, %lse) {scale = 0.0 : f32}
      : (memref<3x1x4xf32>, memref<?x4xf32>, memref<3x2xi64>, memref<3xi32>, memref<1xf32>,
         memref<3x1x4xf32>, memref<3x1xf32>) -> ()
  return
}

// CHECK-LABEL: func @tap
func.func @tap(%value: tensor<?x8xi32>, %rows: tensor<?xi32>, %valueb: memref<4x2x3xbf16>, %rowsb: memref<4xi32>) {
  // CHECK: shardq.tap "topk.0" %{{.*}} : tensor<?x8xi32>
  shardq.tap "topk.0" %value : tensor<?x8xi32>
  // CHECK: shardq.tap "topk.0" %{{.*}} rows(%{{.*}} : tensor<?xi32>) : tensor<?x8xi32>
  shardq.tap "topk.0" %value rows(%rows : tensor<?xi32>) : tensor<?x8xi32>
  // CHECK: shardq.tap "q \22quoted\22" %{{.*}} rows(%{{.*}} : memref<4xi32>) : memref<4x2x3xbf16>
  shardq.tap "q \"quoted\"" %valueb rows(%rowsb : memref<4xi32>) : memref<4x2x3xbf16>
  return
}

//===----------------------------------------------------------------------===//
// Distribution ops
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @split
func.func @split(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index, %startb: memref<?xi32>,
                 %lensb: memref<?xi32>, %idsb: memref<?xi32>, %offsetsb: memref<3xi32>, %mineb: memref<?xi32>) {
  // CHECK: shardq.count_decode_rows %{{.*}} : tensor<?xi32>
  %d = shardq.count_decode_rows %start : tensor<?xi32>
  // CHECK: shardq.count_decode_rows %{{.*}} {speculative_tokens = 3 : i64} : memref<?xi32>
  %db = shardq.count_decode_rows %startb {speculative_tokens = 3 : i64} : memref<?xi32>
  // CHECK: shardq.zigzag_split %{{.*}} decodes(%{{.*}}) rows(%{{.*}}) over @ranks "tp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<5xi32>)
  %ids, %offsets = shardq.zigzag_split %start decodes(%d) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<5xi32>)
  // CHECK: shardq.zigzag_split {{.*}} over @ranks "dcp" outs(%{{.*}}, %{{.*}}) : {{.*}} -> ()
  shardq.zigzag_split %startb decodes(%db) rows(%rows) over @ranks "dcp" outs(%idsb, %offsetsb)
      : (memref<?xi32>, index, index, memref<?xi32>, memref<3xi32>) -> ()
  // CHECK: shardq.split_gate offsets(%{{.*}}) requests(%{{.*}}, %{{.*}}) decodes(%{{.*}}) rows(%{{.*}}) {min_tokens = 0 : i64, topk = 8 : i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
  %g = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%d) rows(%rows)
      {min_tokens = 0 : i64, topk = 8 : i64} : tensor<5xi32>, tensor<?xi32>, tensor<?xi32>
  // CHECK: shardq.split_gate {{.*}} {max_rank_rows = 0 : i64, max_rows = 9 : i64, min_tokens = 1 : i64, topk = 0 : i64} : memref<3xi32>, memref<?xi32>, memref<?xi32>
  %gb = shardq.split_gate offsets(%offsetsb) requests(%startb, %lensb) decodes(%d) rows(%rows)
      {min_tokens = 1 : i64, topk = 0 : i64, max_rank_rows = 0 : i64, max_rows = 9 : i64}
      : memref<3xi32>, memref<?xi32>, memref<?xi32>
  // CHECK: shardq.local_rows %{{.*}}, %{{.*}} decodes(%{{.*}}) over @ranks "tp" : (tensor<?xi32>, tensor<5xi32>, index) -> tensor<?xi32>
  %mine = shardq.local_rows %ids, %offsets decodes(%d) over @ranks "tp"
      : (tensor<?xi32>, tensor<5xi32>, index) -> tensor<?xi32>
  // CHECK: shardq.local_rows {{.*}} over @ranks "dcp" outs(%{{.*}}) : {{.*}} -> ()
  shardq.local_rows %idsb, %offsetsb decodes(%d) over @ranks "dcp" outs(%mineb)
      : (memref<?xi32>, memref<3xi32>, index, memref<?xi32>) -> ()
  // CHECK: shardq.take_rows %{{.*}}[%{{.*}}] : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  %t = shardq.take_rows %start[%mine] : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
  // CHECK: shardq.take_rows %{{.*}}[%{{.*}}] outs(%{{.*}}) : (memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  shardq.take_rows %startb[%mineb] outs(%idsb) : (memref<?xi32>, memref<?xi32>, memref<?xi32>) -> ()
  return
}

// CHECK-LABEL: func @exchange
func.func @exchange(%qn: tensor<?x2x8xbf16>, %qr: tensor<?x2x4xbf16>, %all: tensor<?x8x8xbf16>,
                    %lse: tensor<?x8xf32>, %after: tensor<?x2x8xbf16>, %ids: tensor<?xi32>,
                    %offsets: tensor<5xi32>, %d: index, %src: memref<?x8x8xbf16>, %afterb: memref<?x2x8xbf16>,
                    %idsb: memref<?xi32>, %offsetsb: memref<5xi32>,
                    %inbox: memref<?x2x8xbf16, #shardq.symmetric<@ranks>>) {
  // CHECK: shardq.exchange heads_to_tokens(%{{.*}}, %{{.*}}) by(%{{.*}}, %{{.*}}) decodes(%{{.*}}) over @ranks "tp" : {{.*}} -> tensor<?x8x12xbf16>
  %q = shardq.exchange heads_to_tokens(%qn, %qr) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x2x8xbf16>, tensor<?x2x4xbf16>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x8x12xbf16>
  // CHECK: shardq.exchange tokens_to_heads(%{{.*}}) by(%{{.*}}, %{{.*}}) decodes(%{{.*}}) after(%{{.*}}) over @ranks "tp" : {{.*}} -> tensor<?x2x8xbf16>
  %o = shardq.exchange tokens_to_heads(%all) by(%ids, %offsets) decodes(%d) after(%after) over @ranks "tp"
      : (tensor<?x8x8xbf16>, tensor<?xi32>, tensor<5xi32>, index, tensor<?x2x8xbf16>) -> tensor<?x2x8xbf16>
  // CHECK: shardq.exchange tokens_to_heads(%{{.*}}) by(%{{.*}}, %{{.*}}) decodes(%{{.*}}) over @ranks "tp" : {{.*}} -> tensor<?x2xf32>
  %l = shardq.exchange tokens_to_heads(%lse) by(%ids, %offsets) decodes(%d) over @ranks "tp"
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<5xi32>, index) -> tensor<?x2xf32>
  // CHECK: shardq.exchange tokens_to_heads(%{{.*}}) by(%{{.*}}, %{{.*}}) decodes(%{{.*}}) after(%{{.*}}) over @ranks "tp" outs(%{{.*}}) : {{.*}}, memref<?x2x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  shardq.exchange tokens_to_heads(%src) by(%idsb, %offsetsb) decodes(%d) after(%afterb) over @ranks "tp" outs(%inbox)
      : (memref<?x8x8xbf16>, memref<?xi32>, memref<5xi32>, index, memref<?x2x8xbf16>,
         memref<?x2x8xbf16, #shardq.symmetric<@ranks>>) -> ()
  return
}

//===----------------------------------------------------------------------===//
// Buffer ops
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @rank
func.func @rank() -> (index, index) {
  // CHECK: shardq.rank over @ranks{{$}}
  %rank = shardq.rank over @ranks
  // CHECK: shardq.rank over @ranks "dcp"
  %coordinate = shardq.rank over @ranks "dcp"
  return %rank, %coordinate : index, index
}

// CHECK-LABEL: func @push
func.func @push(%q: memref<?x2x576xbf16>, %qn: memref<?x2x512xbf16>, %qr: memref<?x2x64xbf16>,
                %ids: memref<?xi32>, %offsets: memref<5xi32>, %d: index, %rows: index, %peer: index) {
  // CHECK: %[[INBOX:.*]] = shardq.workspace @plan channel 0(%{{.*}}) : memref<?x8x576xbf16, #shardq.symmetric<@ranks>>
  %inbox = shardq.workspace @plan channel 0 (%rows) : memref<?x8x576xbf16, #shardq.symmetric<@ranks>>
  // CHECK: shardq.workspace @plan channel 1 : memref<4x8xf32, #shardq.symmetric<@ranks>>
  %fixed = shardq.workspace @plan channel 1 : memref<4x8xf32, #shardq.symmetric<@ranks>>
  // CHECK: shardq.push heads_to_tokens(%{{.*}}) by(%{{.*}}, %{{.*}}) decodes(%{{.*}}) into(%[[INBOX]]) over @ranks "tp" channel 0 exchange 0 {capacity = 16 : i64}
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 16 : i64}
      : (memref<?x2x576xbf16>), memref<?xi32>, memref<5xi32>, memref<?x8x576xbf16, #shardq.symmetric<@ranks>>
  // CHECK: shardq.push heads_to_tokens(%{{.*}}, %{{.*}}) by
  shardq.push heads_to_tokens(%qn, %qr) by(%ids, %offsets) decodes(%d) into(%inbox)
      over @ranks "tp" channel 0 exchange 0 {capacity = 0 : i64}
      : (memref<?x2x512xbf16>, memref<?x2x64xbf16>), memref<?xi32>, memref<5xi32>,
        memref<?x8x576xbf16, #shardq.symmetric<@ranks>>
  // CHECK: shardq.signal heads_to_tokens by(%{{.*}}) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // CHECK: shardq.wait heads_to_tokens by(%{{.*}}) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // CHECK: shardq.peer_view %[[INBOX]][%{{.*}}] : memref<?x8x576xbf16, #shardq.symmetric<@ranks>>
  %theirs = shardq.peer_view %inbox[%peer] : memref<?x8x576xbf16, #shardq.symmetric<@ranks>>
  return
}
