// Types that leave the number of rows open where it differs at run time: the rows that
// all operands have are computed, and further ones of the result are 0.

// RUN: %python -c "import numpy; numpy.save('%t.s.npy', numpy.array([[1, 3, 2], [6, 5, 4]], 'f4')); numpy.save('%t.v.npy', numpy.array([3, 3], 'i4'))"
// RUN: shardq-run %s --ranks=1 --input=scores=%t.s.npy --input=visible=%t.v.npy --output-dir=%t.out
// RUN: %python -c "import numpy; assert numpy.load('%t.out/result0.npy').tolist() == [[1, 2], [0, 1], [0, 0], [0, 0]]"

func.func @topk(%scores: tensor<?x3xf32>, %visible: tensor<?xi32>) -> tensor<4x2xi32> {
  %topk = shardq.topk %scores visible(%visible)
      : (tensor<?x3xf32>, tensor<?xi32>) -> tensor<4x2xi32>
  return %topk : tensor<4x2xi32>
}
