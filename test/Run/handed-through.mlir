// Results that are arguments, or constants, are results like others.

// RUN: %python -c "import numpy; numpy.save('%t.npy', numpy.arange(4, dtype='f4'))"
// RUN: shardq-run %s --ranks=1 --input=x=%t.npy --output-dir=%t.out
// RUN: %python -c "import numpy; assert (numpy.load('%t.out/result0.npy') == numpy.arange(4)).all()"
// RUN: %python -c "import numpy; assert (numpy.load('%t.out/result1.npy') == [1, 2]).all()"

func.func @through(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xi32>) {
  %c = arith.constant dense<[1, 2]> : tensor<2xi32>
  return %x, %c : tensor<4xf32>, tensor<2xi32>
}
