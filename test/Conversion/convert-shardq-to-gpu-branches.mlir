// A branch of the host that yields a new buffer on each side gives it back
// behind its last use, as the sides do with what they keep.
//
// RUN: shardq-opt %s --convert-shardq-to-gpu | FileCheck %s

// CHECK-LABEL: func.func @branch
func.func @branch(%x: memref<?x8xbf16>, %rows: memref<?xi32>, %n: index, %out: memref<?x8xbf16>) {
  %most = arith.constant 64 : index
  %more = arith.cmpi sgt, %n, %most : index
  // CHECK: %[[TAKEN:.*]] = scf.if
  // CHECK: %[[A:.*]] = memref.alloc
  // CHECK-NOT: memref.dealloc
  // CHECK: scf.yield %[[A]]
  // CHECK: else
  // CHECK: %[[B:.*]] = memref.alloc
  // CHECK: %[[C:.*]] = memref.alloc
  // CHECK: memref.dealloc %[[B]]
  // CHECK-NOT: memref.dealloc %[[C]]
  // CHECK: scf.yield %[[C]]
  %taken = scf.if %more -> (memref<?x8xbf16>) {
    %a = memref.alloc(%n) : memref<?x8xbf16>
    shardq.take_rows %x[%rows] outs(%a) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> ()
    scf.yield %a : memref<?x8xbf16>
  } else {
    %b = memref.alloc(%n) : memref<?x8xbf16>
    %c = memref.alloc(%n) : memref<?x8xbf16>
    shardq.take_rows %x[%rows] outs(%b) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> ()
    shardq.take_rows %b[%rows] outs(%c) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> ()
    scf.yield %c : memref<?x8xbf16>
  }
  // CHECK: gpu.launch
  // CHECK: memref.dealloc %[[TAKEN]]
  shardq.take_rows %taken[%rows] outs(%out) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> ()
  // CHECK: return
  return
}

// One buffer that both sides hand on is whose it was.
// CHECK-LABEL: func.func @handed_through
func.func @handed_through(%x: memref<?x8xbf16>, %rows: memref<?xi32>, %n: index, %out: memref<?x8xbf16>) {
  %most = arith.constant 64 : index
  %more = arith.cmpi sgt, %n, %most : index
  // CHECK: %[[TAKEN:.*]] = scf.if
  %taken = scf.if %more -> (memref<?x8xbf16>) {
    %a = memref.alloc(%n) : memref<?x8xbf16>
    shardq.take_rows %x[%rows] outs(%a) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> ()
    scf.yield %a : memref<?x8xbf16>
  } else {
    scf.yield %x : memref<?x8xbf16>
  }
  shardq.take_rows %taken[%rows] outs(%out) : (memref<?x8xbf16>, memref<?xi32>, memref<?x8xbf16>) -> ()
  // CHECK-NOT: memref.dealloc %[[TAKEN]]
  // CHECK: return
  return
}
