// RUN: shardq-opt %s --split-input-file --convert-shardq-to-gpu --verify-diagnostics

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

// expected-error @+1 {{result #1 is 'index', but host code of the GPU target returns buffers only}}
func.func @f(%x: memref<8xf32>, %n: index) -> (memref<8xf32>, index) {
  return %x, %n : memref<8xf32>, index
}

// -----

// expected-error @+1 {{has a control flow graph, which has no form on the GPU: use scf}}
func.func @f(%yes: i1) {
  cf.cond_br %yes, ^bb1, ^bb2
^bb1:
  return
^bb2:
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{'llvm.unreachable' op ends a function, which has no form on the GPU: use func.return}}
  llvm.unreachable
}

// -----

func.func @f(%x: tensor<?xi32>) {
  // expected-error @+1 {{'shardq.tap' op is on tensors: bufferize first}}
  shardq.tap "x" %x : tensor<?xi32>
  return
}

// -----

// expected-note @+1 {{the pass runs on this module; run it on a nested module by itself}}
module {
  module @nested {
    func.func @f(%x: memref<?xi32>) {
      // expected-error @+1 {{'shardq.tap' op stands outside the functions (func.func) of the module that the pass runs on}}
      shardq.tap "x" %x : memref<?xi32>
      return
    }
  }
}

// -----

func.func @f(%a: memref<?xi32, affine_map<(d0)->(d0 floordiv 2)>>) {
  // expected-error @+1 {{expected a strided layout}}
  %d = shardq.count_decode_rows %a : memref<?xi32, affine_map<(d0)->(d0 floordiv 2)>>
  return
}

// -----

// expected-error @+1 {{is named "shardq_device_inbox", which is a name of ShardQ's device library}}
func.func @shardq_device_inbox() {
  return
}

//===----------------------------------------------------------------------===//
// Ops without a form
//===----------------------------------------------------------------------===//

// -----

func.func private @g(memref<8xf32>)
func.func @f(%x: memref<8xf32>) {
  // expected-error @+1 {{'func.call' op has no form on the GPU}}
  func.call @g(%x) : (memref<8xf32>) -> ()
  return
}

// -----

func.func @f(%x: memref<8xf32>, %y: memref<8xf32>) {
  // expected-error @+1 {{'linalg.add' op has no form on the GPU}}
  linalg.add ins(%x, %x : memref<8xf32>, memref<8xf32>) outs(%y : memref<8xf32>)
  return
}

// -----

func.func @f(%n: index) {
  // expected-error @+1 {{'memref.alloca' op has no form on the GPU}}
  %x = memref.alloca(%n) : memref<?xf32>
  return
}

// -----

func.func @f(%x: memref<8xf32>) {
  // expected-error @+1 {{'memref.dealloc' op has no form on the GPU}}
  memref.dealloc %x : memref<8xf32>
  return
}

// -----

func.func @f(%x: memref<i32>) {
  // expected-error @+1 {{'scf.while' op has no form on the GPU}}
  scf.while : () -> () {
    %0 = memref.load %x[] : memref<i32>
    %zero = arith.constant 0 : i32
    %go = arith.cmpi ne, %0, %zero : i32
    scf.condition(%go)
  } do {
    %one = arith.constant 1 : i32
    memref.store %one, %x[] : memref<i32>
    scf.yield
  }
  return
}

// -----

memref.global "private" constant @table : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>
func.func @f() -> memref<4xf32> {
  // expected-error @+1 {{'memref.get_global' op is in the host's memory, where kernels do not read: make it an argument}}
  %0 = memref.get_global @table : memref<4xf32>
  return %0 : memref<4xf32>
}

// -----

func.func @f(%x: memref<8xi1>, %yes: i1) {
  // expected-error @+1 {{'linalg.fill' op operand #1 is 'memref<8xi1>', expected integers or floats of whole bytes}}
  linalg.fill ins(%yes : i1) outs(%x : memref<8xi1>)
  return
}

// -----

func.func @f(%x: memref<8xindex>, %y: memref<8xindex>) {
  // expected-error @+1 {{'memref.copy' op operand #0 is 'memref<8xindex>', expected integers or floats of whole bytes}}
  memref.copy %x, %y : memref<8xindex> to memref<8xindex>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{'memref.alloc' op has a layout, expected a buffer without one: 'memref<4x4xf32, strided<[8, 1]>>'}}
  %0 = memref.alloc() : memref<4x4xf32, strided<[8, 1]>>
  return
}

// -----

func.func @f(%x: memref<*xf32>, %y: memref<*xf32>) {
  // expected-error @+1 {{'memref.copy' op operand #0 is 'memref<*xf32>', expected a known rank}}
  memref.copy %x, %y : memref<*xf32> to memref<*xf32>
  return
}

// -----

func.func @f(%x: memref<4xcomplex<f32>>, %y: memref<4xcomplex<f32>>) {
  // expected-error @+1 {{operand #0 is 'memref<4xcomplex<f32>>', expected integers or floats of whole bytes}}
  memref.copy %x, %y : memref<4xcomplex<f32>> to memref<4xcomplex<f32>>
  return
}

// -----

func.func @f(%x: memref<4xf32>, %i: index) {
  %cst = arith.constant 1.0 : f32
  // expected-error @+1 {{'scf.index_switch' op has no form on the GPU}}
  scf.index_switch %i
  case 1 {
    memref.store %cst, %x[%i] : memref<4xf32>
    scf.yield
  }
  default {
    scf.yield
  }
  return
}

//===----------------------------------------------------------------------===//
// Device values
//===----------------------------------------------------------------------===//

// -----

func.func @f(%n: memref<i32>, %x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %cst = arith.constant 1.0 : f32
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  // expected-error @+1 {{'scf.for' op has a bound that only the device knows: its upper bound}}
  scf.for %i = %c0 to %1 step %c1 {
    linalg.fill ins(%cst : f32) outs(%x : memref<8xf32>)
  }
  return
}

// -----

func.func @f(%n: memref<8xf32>, %x: memref<8xf32>, %turns: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %cst = arith.constant 1.0 : f32
  // expected-error @+1 {{'scf.for' op carries a value to its next turn that only the device knows: result #0, of type 'f32'}}
  %0 = scf.for %i = %c0 to %turns step %c1 iter_args(%sum = %cst) -> f32 {
    %1 = memref.load %n[%i] : memref<8xf32>
    %2 = arith.addf %sum, %1 : f32
    scf.yield %2 : f32
  }
  linalg.fill ins(%0 : f32) outs(%x : memref<8xf32>)
  return
}

// -----

// What a loop starts from is carried too.
shardq.mesh @ranks ["tp" = 4]
shardq.plan @plan over @ranks {
  channels = [#shardq.channel<"q", offset = 0, bytes = 2048, generations = 2>],
  exchanges = ["first"], hash = 7 : i64, slot_bytes = 4096 : i64, slots = 1 : i64}
func.func @f(%x: memref<8x8xf32, #shardq.symmetric<@ranks>>, %y: memref<8x8xf32>, %turns: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = shardq.workspace @plan channel 0 : memref<8x8xf32, #shardq.symmetric<@ranks>>
  // expected-error @+1 {{carries a value to its next turn that only the device knows: result #0, of type 'memref<8x8xf32, #shardq.symmetric<@ranks>>'}}
  %1 = scf.for %i = %c0 to %turns step %c1 iter_args(%a = %0) -> memref<8x8xf32, #shardq.symmetric<@ranks>> {
    scf.yield %x : memref<8x8xf32, #shardq.symmetric<@ranks>>
  }
  memref.copy %1, %y : memref<8x8xf32, #shardq.symmetric<@ranks>> to memref<8x8xf32>
  return
}

// -----

func.func @f(%n: memref<f32>, %x: memref<8xf32>, %yes: i1) {
  %cst = arith.constant 1.0 : f32
  // expected-error @+1 {{'scf.if' op decides on the host about a value that only the device knows: result #0, of type 'f32'}}
  %0 = scf.if %yes -> f32 {
    %1 = memref.load %n[] : memref<f32>
    scf.yield %1 : f32
  } else {
    scf.yield %cst : f32
  }
  linalg.fill ins(%0 : f32) outs(%x : memref<8xf32>)
  return
}

// -----

func.func @f(%n: memref<i32>) {
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  // expected-error @+1 {{has a size that only the device knows, and the function has no step that bounds it: dimension 0 of 'memref<?xf32>'}}
  %2 = memref.alloc(%1) : memref<?xf32>
  return
}

// -----

func.func @f(%n: memref<i32>, %x: memref<8xf32>) {
  %cst = arith.constant 1.0 : f32
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  %2 = memref.subview %x[0] [%1] [1] : memref<8xf32> to memref<?xf32, strided<[1]>>
  // expected-error @+1 {{has a number of rows that only the device knows, and the function has no step that bounds it: those of operand #1, 'memref<?xf32, strided<[1]>>'}}
  linalg.fill ins(%cst : f32) outs(%2 : memref<?xf32, strided<[1]>>)
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%n: memref<i32>, %start: memref<8xi32>, %ids: memref<?xi32>, %offsets: memref<5xi32>) {
  %c0 = arith.constant 0 : index
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  %2 = memref.subview %start[0] [%1] [1] : memref<8xi32> to memref<?xi32, strided<[1]>>
  // expected-error @+1 {{has a number of requests that only the device knows, and the function has no step that bounds it: 'query_start' is 'memref<?xi32, strided<[1]>>'}}
  shardq.zigzag_split %2 decodes(%c0) rows(%1) over @ranks "tp" outs(%ids, %offsets)
      : (memref<?xi32, strided<[1]>>, index, index, memref<?xi32>, memref<5xi32>) -> ()
  return
}

// -----

func.func @f(%n: memref<i32>, %q: memref<?x32x128xbf16>, %w: memref<?x32xf32>, %k: memref<?x128xbf16>, %table: memref<8x8xi32>,
             %req: memref<?xi32>, %visible: memref<?xi32>, %out: memref<?x64xi32>) {
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  %2 = memref.subview %table[0, 0] [8, %1] [1, 1] : memref<8x8xi32> to memref<8x?xi32, strided<[8, 1]>>
  // expected-error @+1 {{has a table whose width only the device knows, and the function has no step that bounds it: 'table' is 'memref<8x?xi32, strided<[8, 1]>>'}}
  shardq.indexer q(%q) weights(%w) keys(%k) table(%2) rows(%req, %visible) outs(%out) {block_size = 64 : i64}
      : (memref<?x32x128xbf16>, memref<?x32xf32>, memref<?x128xbf16>, memref<8x?xi32, strided<[8, 1]>>, memref<?xi32>, memref<?xi32>, memref<?x64xi32>) -> ()
  return
}

// -----

// In a branch of no device, nobody computes it.
func.func @f(%n: memref<i32>) -> memref<1xi32> {
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{'memref.load' op reads on the host what is in device memory: 'memref<i32>'}}
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  %2 = arith.addi %1, %c1 : index
  %3 = memref.alloc() : memref<1xi32>
  %4 = scf.index_switch %2 -> i32
  case 1 {
    %5 = arith.constant 1 : i32
    scf.yield %5 : i32
  }
  default {
    %5 = arith.constant 2 : i32
    scf.yield %5 : i32
  }
  linalg.fill ins(%4 : i32) outs(%3 : memref<1xi32>)
  return %3 : memref<1xi32>
}

// -----

// Kernels load again, so what they load must be there.
func.func @f(%n: memref<1xf32>, %x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %cst = arith.constant 1.0 : f32
  // expected-note @+1 {{it was loaded here}}
  %0 = memref.load %n[%c0] : memref<1xf32>
  %view = memref.cast %n : memref<1xf32> to memref<?xf32>
  memref.store %cst, %view[%c0] : memref<?xf32>
  // expected-error @+1 {{'linalg.fill' op needs a value that only the device knows, from memory that has been written since: operand #0}}
  linalg.fill ins(%0 : f32) outs(%x : memref<8xf32>)
  return
}

// -----

// The second turn would load what the first has written.
func.func @f(%n: memref<1xf32>, %x: memref<8xf32>, %turns: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %cst = arith.constant 1.0 : f32
  // expected-note @+1 {{it was loaded here}}
  %0 = memref.load %n[%c0] : memref<1xf32>
  scf.for %i = %c0 to %turns step %c1 {
    // expected-error @+1 {{'linalg.fill' op needs a value that only the device knows, from memory that has been written since: operand #0}}
    linalg.fill ins(%0 : f32) outs(%x : memref<8xf32>)
    linalg.fill ins(%cst : f32) outs(%n : memref<1xf32>)
  }
  return
}

// -----

func.func @f(%n: memref<i32>, %x: memref<8x4xf32>) {
  %0 = memref.load %n[] : memref<i32>
  %1 = arith.index_cast %0 : i32 to index
  %2 = memref.subview %x[%1, 0] [%1, 4] [1, 1] : memref<8x4xf32> to memref<?x4xf32, strided<[4, 1], offset: ?>>
  // expected-error @+1 {{'shardq.tap' op looks at a value whose place only the device knows: 'value' is 'memref<?x4xf32, strided<[4, 1], offset: ?>>'}}
  shardq.tap "x" %2 : memref<?x4xf32, strided<[4, 1], offset: ?>>
  return
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

// -----

func.func @f(%q: memref<?x16x576xf32>, %kv: memref<?x576xf32>, %slots: memref<?x64xi32>, %out: memref<?x16x512xf32>) {
  // expected-error @+1 {{f32}}
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out) {scale = 0.1 : f32}
      : (memref<?x16x576xf32>, memref<?x576xf32>, memref<?x64xi32>, memref<?x16x512xf32>) -> ()
  return
}

// -----

func.func @f(%q: memref<?x16x576xbf16>, %kv: memref<?x576xbf16, strided<[?, ?], offset: ?>>, %slots: memref<?x64xi32>, %out: memref<?x16x512xbf16>) {
  // expected-error @+1 {{'kv' is 'memref<?x576xbf16, strided<[?, ?], offset: ?>>', expected a last stride of 1}}
  shardq.sparse_mla q(%q) kv(%kv) slots(%slots) outs(%out) {scale = 0.1 : f32}
      : (memref<?x16x576xbf16>, memref<?x576xbf16, strided<[?, ?], offset: ?>>, memref<?x64xi32>, memref<?x16x512xbf16>) -> ()
  return
}

// -----

func.func @f(%q: memref<?x32x128xbf16, strided<[8192, 256, 2]>>, %w: memref<?x32xf32>, %k: memref<?x128xbf16>, %table: memref<?x?xi32>,
             %req: memref<?xi32>, %visible: memref<?xi32>, %out: memref<?x64xi32>) {
  // expected-error @+1 {{'q' is 'memref<?x32x128xbf16, strided<[8192, 256, 2]>>', expected a last stride of 1}}
  shardq.indexer q(%q) weights(%w) keys(%k) table(%table) rows(%req, %visible) outs(%out) {block_size = 64 : i64}
      : (memref<?x32x128xbf16, strided<[8192, 256, 2]>>, memref<?x32xf32>, memref<?x128xbf16>, memref<?x?xi32>, memref<?xi32>, memref<?xi32>, memref<?x64xi32>) -> ()
  return
}

// -----

func.func @f(%scores: memref<?x?xf32, strided<[?, 2]>>, %visible: memref<?xi32>, %out: memref<?x64xi32>) {
  // expected-error @+1 {{'scores' is 'memref<?x?xf32, strided<[?, 2]>>', expected a last stride of 1}}
  shardq.topk %scores visible(%visible) outs(%out) : (memref<?x?xf32, strided<[?, 2]>>, memref<?xi32>, memref<?x64xi32>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%q: memref<?x2x8xf32, strided<[32, 16, 2]>>, %ids: memref<?xi32>, %offsets: memref<5xi32>,
             %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{source 0 of heads_to_tokens is 'memref<?x2x8xf32, strided<[32, 16, 2]>>', expected a last stride of 1}}
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%c0) into(%inbox) over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32, strided<[32, 16, 2]>>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  return
}

// -----

// What a wait's rows are unpacked by is what the push had.
shardq.mesh @ranks ["tp" = 4]
func.func @f(%yes: i1, %q: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>,
             %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  %c0 = arith.constant 0 : index
  scf.if %yes {
    // expected-note @+1 {{the push is here}}
    shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%c0) into(%inbox) over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
        : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  }
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-error @+1 {{stands where the operands of its push are not known: exchange 0 on channel 0}}
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%count: memref<1xi64>, %q: memref<?x2x8xf32>, %ids: memref<?xi32>, %offsets: memref<5xi32>,
             %inbox: memref<?x8x8xf32, #shardq.symmetric<@ranks>>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : i64
  // expected-note @+1 {{it was loaded here}}
  %0 = memref.load %count[%c0] : memref<1xi64>
  %decodes = arith.index_cast %0 : i64 to index
  shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%decodes) into(%inbox) over @ranks "tp" channel 0 exchange 0 {capacity = 8 : i64}
      : (memref<?x2x8xf32>), memref<?xi32>, memref<5xi32>, memref<?x8x8xf32, #shardq.symmetric<@ranks>>
  memref.store %c1, %count[%c0] : memref<1xi64>
  shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  // expected-error @+1 {{belongs to a push of values from memory that has been written since: 'decodes'}}
  shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0 : memref<5xi32>
  return
}
