// RUN: shardq-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: memref<?x4xf32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh with an axis "tp"}}
  shardq.transfer %x to %x over @ranks "tp" channel 0 exchange 0 {rows = 1 : i64} : memref<?x4xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%x: memref<?x4xf32>) {
  // expected-error @+1 {{@ranks does not name a shardq.mesh with an axis "dcp"}}
  shardq.transfer %x to %x over @ranks "dcp" channel 0 exchange 0 {rows = 1 : i64} : memref<?x4xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%x: memref<?x?xf32>) {
  // expected-error @+1 {{'outbox' is 'memref<?x?xf32>', expected the identity layout, static sizes behind dimension 0, and elements of whole bytes}}
  shardq.transfer %x to %x over @ranks "tp" channel 0 exchange 0 {rows = 1 : i64} : memref<?x?xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%x: memref<?x4xf32, strided<[8, 1]>>) {
  // expected-error @+1 {{expected the identity layout}}
  shardq.transfer %x to %x over @ranks "tp" channel 0 exchange 0 {rows = 1 : i64} : memref<?x4xf32, strided<[8, 1]>>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%x: memref<?x4xf32>, %y: memref<?x8xf32>) {
  // expected-error @+1 {{failed to verify that all of {outbox, landing} have same type}}
  "shardq.transfer"(%x, %y) {mesh = @ranks, axis = "tp", channel = 0 : i32, exchange = 0 : i32, rows = 1 : i64}
      : (memref<?x4xf32>, memref<?x8xf32>) -> ()
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%x: memref<?x4xf32>) {
  // expected-error @+1 {{rows}}
  shardq.transfer %x to %x over @ranks "tp" channel 0 exchange 0 {rows = -1 : i64} : memref<?x4xf32>
  return
}

// -----

shardq.mesh @ranks ["tp" = 4]
func.func @f(%x: memref<?x4xf32>) {
  // expected-error @+1 {{channel}}
  shardq.transfer %x to %x over @ranks "tp" channel -1 exchange 0 {rows = 1 : i64} : memref<?x4xf32>
  return
}

// -----

func.func @f() {
  // expected-note @+1 {{that one is here}}
  shardq.aside channel 0 {
    // expected-error @+1 {{'shardq.aside' op stands in another}}
    shardq.aside channel 0 {
    }
    shardq.join_aside
  }
  shardq.join_aside
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{'shardq.aside' op expects 'shardq.join_aside' behind it in its block}}
  shardq.aside channel 0 {
  }
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{expects 'shardq.join_aside' behind it in its block, before the next 'shardq.aside'}}
  shardq.aside channel 0 {
  }
  shardq.aside channel 0 {
  }
  shardq.join_aside
  return
}

// -----

// An end in another block is none.
func.func @f(%condition: i1) {
  // expected-error @+1 {{expects 'shardq.join_aside' behind it in its block}}
  shardq.aside channel 0 {
  }
  scf.if %condition {
    shardq.join_aside
  }
  return
}

// -----

func.func @f(%condition: i1) {
  // expected-error @+1 {{is not joined before another}}
  shardq.aside channel 0 {
  }
  scf.if %condition {
    // expected-note @+1 {{the other is here}}
    shardq.aside channel 0 {
    }
    shardq.join_aside
  }
  shardq.join_aside
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{'shardq.join_aside' op expects 'shardq.aside' before it in its block, and no other 'shardq.join_aside' between}}
  shardq.join_aside
  return
}

// -----

func.func @f() {
  shardq.aside channel 0 {
  }
  shardq.join_aside
  // expected-error @+1 {{expects 'shardq.aside' before it in its block}}
  shardq.join_aside
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{region #0 ('body') failed to verify constraint: region with 1 blocks}}
  "shardq.aside"() <{channel = 0 : i32}> ({
  }) : () -> ()
  shardq.join_aside
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{'shardq.aside' op channel is -1, expected 0 or more}}
  shardq.aside channel -1 {
  }
  shardq.join_aside
  return
}

// -----

func.func @f() -> i1 {
  // expected-error @+1 {{'shardq.is_carried' op channel is -1, expected 0 or more}}
  %0 = shardq.is_carried channel -1 : i1
  return %0 : i1
}
