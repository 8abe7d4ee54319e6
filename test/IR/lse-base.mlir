// LSEs of the base that they are merged by, wherever they have been since.
//
// RUN: shardq-opt %s | FileCheck %s

shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp", "one" = 1 in "tp"]

// What a loop with a condition begins with, as its body has it.
// CHECK-LABEL: func.func @f0
func.func @f0(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %w = scf.while (%x = %two) : (tensor<?x2xf32>) -> tensor<?x2xf32> {
    scf.condition(%c) %x : tensor<?x2xf32>
  } do {
  ^bb0(%y: tensor<?x2xf32>):
    %m, %r = shardq.combine_lse %o lse(%y) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
    scf.yield %y : tensor<?x2xf32>
  }
  return
}

// What its body hands back to the condition, and in place of what it began with: a cycle.
// CHECK-LABEL: func.func @f1
func.func @f1(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %w = scf.while (%x = %given) : (tensor<?x2xf32>) -> tensor<?x2xf32> {
    %m, %r = shardq.combine_lse %o lse(%x) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
    scf.condition(%c) %x : tensor<?x2xf32>
  } do {
  ^bb0(%y: tensor<?x2xf32>):
    %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
    scf.yield %two : tensor<?x2xf32>
  }
  return
}

// What comes out of it is what the condition hands on, of another place among more.
// CHECK-LABEL: func.func @f2
func.func @f2(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %w:2 = scf.while (%x = %given) : (tensor<?x2xf32>) -> (index, tensor<?x2xf32>) {
    scf.condition(%c) %n, %two : index, tensor<?x2xf32>
  } do {
  ^bb0(%i: index, %y: tensor<?x2xf32>):
    scf.yield %y : tensor<?x2xf32>
  }
  %m, %r = shardq.combine_lse %o lse(%w#1) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// One case of several.
// CHECK-LABEL: func.func @f3
func.func @f3(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %w = scf.index_switch %n -> tensor<?x2xf32>
  case 0 {
    scf.yield %given : tensor<?x2xf32>
  }
  case 3 {
    scf.yield %two : tensor<?x2xf32>
  }
  default {
    scf.yield %given : tensor<?x2xf32>
  }
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// The default.
// CHECK-LABEL: func.func @f4
func.func @f4(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %w = scf.index_switch %n -> tensor<?x2xf32>
  case 0 {
    scf.yield %given : tensor<?x2xf32>
  }
  default {
    scf.yield %two : tensor<?x2xf32>
  }
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// A region that is executed once.
// CHECK-LABEL: func.func @f5
func.func @f5(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %w = scf.execute_region -> tensor<?x2xf32> {
    scf.yield %two : tensor<?x2xf32>
  }
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// A case in a loop in a branch.
// CHECK-LABEL: func.func @f6
func.func @f6(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %w = scf.if %c -> tensor<?x2xf32> {
    %a = scf.for %i = %n to %n step %n iter_args(%x = %given) -> tensor<?x2xf32> {
      %b = scf.index_switch %i -> tensor<?x2xf32>
      case 1 {
        scf.yield %two : tensor<?x2xf32>
      }
      default {
        scf.yield %x : tensor<?x2xf32>
      }
      scf.yield %b : tensor<?x2xf32>
    }
    scf.yield %a : tensor<?x2xf32>
  } else {
    scf.yield %given : tensor<?x2xf32>
  }
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// Loops that hand each other's on.
// CHECK-LABEL: func.func @f7
func.func @f7(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %w = scf.while (%x = %given) : (tensor<?x2xf32>) -> tensor<?x2xf32> {
    %a = scf.while (%y = %x) : (tensor<?x2xf32>) -> tensor<?x2xf32> {
      scf.condition(%c) %y : tensor<?x2xf32>
    } do {
    ^bb0(%z: tensor<?x2xf32>):
      %m, %r = shardq.combine_lse %o lse(%z) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
      scf.yield %z : tensor<?x2xf32>
    }
    scf.condition(%c) %a : tensor<?x2xf32>
  } do {
  ^bb0(%v: tensor<?x2xf32>):
    %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
    scf.yield %two : tensor<?x2xf32>
  }
  return
}

// A loop whose turns are in parallel, by what they write.
// CHECK-LABEL: func.func @f8
func.func @f8(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %e = tensor.empty(%n) : tensor<?x2xf32>
  %w = scf.forall (%i) in (%n) shared_outs(%x = %e) -> tensor<?x2xf32> {
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %two into %x[%i, 0] [%n, 2] [1, 1] : tensor<?x2xf32> into tensor<?x2xf32>
    }
  }
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// What it begins with.
// CHECK-LABEL: func.func @f9
func.func @f9(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %w = scf.forall (%i) in (%n) shared_outs(%x = %two) -> tensor<?x2xf32> {
    %m, %r = shardq.combine_lse %o lse(%x) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %given into %x[%i, 0] [%n, 2] [1, 1] : tensor<?x2xf32> into tensor<?x2xf32>
    }
  }
  return
}

// Put into another.
// CHECK-LABEL: func.func @f10
func.func @f10(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %e = tensor.empty(%n) : tensor<?x2xf32>
  %w = tensor.insert_slice %two into %e[%n, 0] [%n, 2] [1, 1] : tensor<?x2xf32> into tensor<?x2xf32>
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// Behind others.
// CHECK-LABEL: func.func @f11
func.func @f11(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %w = tensor.concat dim(0) %given, %two : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// In another shape meanwhile.
// CHECK-LABEL: func.func @f12
func.func @f12(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  %a = tensor.collapse_shape %two [[0, 1]] : tensor<?x2xf32> into tensor<?xf32>
  %w = tensor.expand_shape %a [[0, 1]] output_shape [%n, 2] : tensor<?xf32> into tensor<?x2xf32>
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}

// Blocks of a function.
// CHECK-LABEL: func.func @f13
func.func @f13(%p: tensor<?x8x16xbf16>, %l: tensor<?x8xf32>, %o: tensor<?x2x16xbf16>, %c: i1, %n: index, %given: tensor<?x2xf32>) {
  %0, %two = shardq.combine_lse %p lse(%l) over @ranks "dcp" {lse = #shardq.lse<base = two>} : (tensor<?x8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  cf.cond_br %c, ^one(%given : tensor<?x2xf32>), ^other(%n, %two : index, tensor<?x2xf32>)
^one(%x: tensor<?x2xf32>):
  cf.br ^other(%n, %x : index, tensor<?x2xf32>)
^other(%i: index, %w: tensor<?x2xf32>):
  %m, %r = shardq.combine_lse %o lse(%w) over @ranks "one" {lse = #shardq.lse<base = two>} : (tensor<?x2x16xbf16>, tensor<?x2xf32>) -> (tensor<?x2x16xbf16>, tensor<?x2xf32>)
  return
}
