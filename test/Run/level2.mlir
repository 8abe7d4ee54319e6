// A hand-written program of level 2 runs, but has no meaning on global arrays for
// --verify. There and back again is the identity on prefill rows.

// RUN: %python -c "import numpy; numpy.save('%t.npy', numpy.random.default_rng(0).standard_normal((40, 6, 8)).astype('f4'))"
// RUN: shardq-run %s --step=%S/Inputs/mixed.json 2>&1 | FileCheck %s
// CHECK: ran @round_trip on 3 ranks, 34 rows; result 0 34x6x8xf32
// RUN: shardq-run %s --input=x=%t.npy --output-dir=%t.out
// RUN: %python -c "import numpy; assert (numpy.load('%t.npy') == numpy.load('%t.out/result0.npy')).all()"

// The same on level 3: buffers, push, signal and wait.
// RUN: shardq-run %s --input=x=%t.npy --output-dir=%t.out3 --pipeline='builtin.module(one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},shardq-plan-workspace,shardq-verify-protocol)'
// RUN: %python -c "import numpy; assert (numpy.load('%t.npy') == numpy.load('%t.out3/result0.npy')).all()"

// Level 4 is the tool's own work.
// RUN: not shardq-run %s --input=x=%t.npy --pipeline='builtin.module(shardq-to-cpu)' 2>&1 | FileCheck %s --check-prefix=LOWERED
// LOWERED: error: the pipeline lowered @round_trip to LLVM: shardq-run does that itself, and takes a func.func
// RUN: %python %S/Inputs/status.py 2 shardq-run %s --step=%S/Inputs/mixed.json --verify | FileCheck %s --check-prefix=VERIFY
// VERIFY: error: --verify needs a program before any rewrite, and this one has 'shardq.zigzag_split', which has no meaning on global arrays

shardq.mesh @ranks ["tp" = 3]
func.func @round_trip(
    %x: tensor<?x2x8xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %query_start: tensor<?xi32>)
    -> (tensor<?x2x8xf32> {shardq.split = #shardq.split<@ranks, 1 over "tp">}) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x2x8xf32>
  %ids, %offsets = shardq.zigzag_split %query_start decodes(%c0) rows(%rows)
      over @ranks "tp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<4xi32>)
  %mine = shardq.exchange heads_to_tokens(%x) by(%ids, %offsets) decodes(%c0)
      over @ranks "tp"
      : (tensor<?x2x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x6x8xf32>
  %back = shardq.exchange tokens_to_heads(%mine) by(%ids, %offsets) decodes(%c0)
      over @ranks "tp"
      : (tensor<?x6x8xf32>, tensor<?xi32>, tensor<4xi32>, index) -> tensor<?x2x8xf32>
  return %back : tensor<?x2x8xf32>
}
