"""ops.py SHARDQ_RUN DIRECTORY: single ops from outside, against NumPy."""

import os
import subprocess
import sys

import numpy as np

TOOL, DIRECTORY = sys.argv[1:3]
os.makedirs(DIRECTORY, exist_ok=True)
random = np.random.default_rng(7)


def run(name, text, **inputs):
    """Results of the module on these arguments."""
    path = os.path.join(DIRECTORY, name)
    with open(path + ".mlir", "w") as file:
        file.write(text)
    command = [TOOL, path + ".mlir", "--ranks=1", f"--output-dir={path}"]
    for key, value in inputs.items():
        np.save(f"{path}-{key}.npy", value)
        command.append(f"--input={key}={path}-{key}.npy")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    results = []
    while os.path.exists(f"{path}/result{len(results)}.npy"):
        results.append(np.load(f"{path}/result{len(results)}.npy"))
    return results


def to_bf16(x):
    """Rounds to the 16 bits of bf16, to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


# Scores with ties, both zeros and NaN; lengths from none to beyond the scores.
scores = np.round(random.standard_normal((9, 33)) * 2).astype(np.float32)
scores[2, :20] = np.nan
scores[3] = -0.0
scores[3, ::2] = 0.0
visible = np.array([33, 32, 33, 33, 0, -1, 4, 5, 99], np.int32)
(topk,) = run("topk", """
func.func @f(%s: tensor<?x?xf32>, %v: tensor<?xi32>) -> tensor<?x5xi32> {
  %t = shardq.topk %s visible(%v) : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x5xi32>
  return %t : tensor<?x5xi32>
}""", s=scores, v=visible)
for row, length in enumerate(np.clip(visible, 0, 33)):
    keys = np.where(np.isnan(scores[row, :length]), -np.inf, scores[row, :length])
    chosen = np.sort(np.argsort(-(keys + 0.0), kind="stable")[:5])
    expected = np.full(5, -1)
    expected[:len(chosen)] = chosen
    assert (topk[row] == expected).all(), (row, topk[row], expected)

# The golden values of the index conversion.
slots, counts = run("convert", """
func.func @f(%i: tensor<2x6xi32>, %t: tensor<1x4xi32>, %r: tensor<2xi32>)
    -> (tensor<2x6xi64>, tensor<2xi32>) {
  %s, %c = shardq.convert_indices %i table(%t) rows(%r)
      {block_size = 64 : i64, block_stride_rows = 1073741824 : i64}
      : (tensor<2x6xi32>, tensor<1x4xi32>, tensor<2xi32>) -> (tensor<2x6xi64>, tensor<2xi32>)
  return %s, %c : tensor<2x6xi64>, tensor<2xi32>
}""", i=np.array([[8, 5, 130, 7, -1, 262]] * 2, np.int32),
                    t=np.array([[11, 2, 7, 5]], np.int32),
                    r=np.array([0, -1], np.int32))
stride = 1 << 30
assert (slots == [[11 * stride + 8, 11 * stride + 5, 7 * stride + 2,
                   11 * stride + 7, -1, -1], [-1] * 6]).all(), slots
assert (counts == [4, 0]).all()

# Rows taken, with two of nobody; '|V2' is bf16 as ml_dtypes saves it.
source = to_bf16(random.standard_normal((5, 3)))
(taken,) = run("take", """
func.func @f(%x: tensor<?x3xbf16>, %rows: tensor<4xi32>) -> tensor<4x3xbf16> {
  %y = shardq.take_rows %x[%rows] : (tensor<?x3xbf16>, tensor<4xi32>) -> tensor<4x3xbf16>
  return %y : tensor<4x3xbf16>
}""", x=source.view("V2"), rows=np.array([4, -1, 0, 5], np.int32))
assert taken.dtype == np.uint16
assert (taken == [source[4], [0] * 3, source[0], [0] * 3]).all(), taken

# Attention in bf16: masked slots point at NaN, the last row has none.
q = to_bf16(random.standard_normal((4, 3, 8)))
kv = to_bf16(random.standard_normal((10, 8)))
kv[0] = to_bf16(np.nan)
rows = np.array([[1, 2, 3, 4], [5, -1, 99, 5], [7, 8, 0, 0], [-1, -1, 10, -9]],
                np.int32)
lengths = np.array([4, 9, 2, 4], np.int32)
out, lse = run("attend", """
func.func @f(%q: tensor<?x3x8xbf16>, %kv: tensor<?x8xbf16>, %s: tensor<?x4xi32>,
             %n: tensor<?xi32>) -> (tensor<?x3x6xbf16>, tensor<?x3xf32>) {
  %o, %l = shardq.sparse_mla q(%q) kv(%kv) slots(%s) topk_length(%n) {scale = 0.5 : f32}
      : (tensor<?x3x8xbf16>, tensor<?x8xbf16>, tensor<?x4xi32>, tensor<?xi32>)
      -> (tensor<?x3x6xbf16>, tensor<?x3xf32>)
  return %o, %l : tensor<?x3x6xbf16>, tensor<?x3xf32>
}""", q=q, kv=kv, s=rows, n=lengths)
wide_q, wide_kv = from_bf16(q).astype(float), from_bf16(kv).astype(float)
for row, length in enumerate(lengths):
    valid = [s for s in rows[row][:length] if 0 <= s < 10]
    if not valid:
        assert (out[row] == 0).all() and (lse[row] == -np.inf).all()
        continue
    logits = 0.5 * wide_q[row] @ wide_kv[valid].T
    weights = np.exp(logits)
    expected = weights @ wide_kv[valid][:, :6] / weights.sum(1)[:, None]
    assert np.allclose(from_bf16(out[row]), expected, rtol=2**-7, atol=1e-6)
    assert np.allclose(lse[row], np.log(weights.sum(1)), atol=1e-5)
