"""expand_rows, count_decode_rows and take_rows on the CPU: `rows.py CASE...`."""

import numpy as np
from harness import expect_equal, main, round_to, run, tensor


def expand(query_lens, seq_lens, padding=0):
    start = np.concatenate([[0], np.cumsum(query_lens, dtype=int)]).astype("<i4")
    rows = int(start[-1]) + padding
    found = run("""
func.func @expand(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index)
    -> (tensor<?xi32>, tensor<?xi32>) {
  %req, %visible = shardq.expand_rows %start, %lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  return %req, %visible : tensor<?xi32>, tensor<?xi32>
}
""", dict(start=start, lens=np.array(seq_lens, "<i4"), rows=np.array(rows, "<i8")))
    req, visible = [], []
    for r, (query, seq) in enumerate(zip(query_lens, seq_lens)):
        req += [r] * query
        visible += [max(seq - query + i + 1, 0) for i in range(query)]
    expect_equal(found[0], np.array(req + [-1] * padding, int), "requests")
    expect_equal(found[1], np.array(visible + [0] * padding, int), "visible lengths")
    return found


def expanded():
    req, visible = expand([2, 0, 3], [12, 7, 3], padding=2)
    expect_equal(req, [0, 0, 2, 2, 2, -1, -1], "golden requests")
    expect_equal(visible, [11, 12, 1, 2, 3, 0, 0], "golden visible lengths")
    expand([0, 1, 0, 0, 5, 0], [0, 1, 900, 0, 2**31 - 1, 3])
    # A sequence shorter than its query has rows that see nothing.
    expand([4, 3], [2, 0])
    expand([], [])
    expand([], [], padding=3)
    expand([0, 0], [5, 0], padding=1)
    expand([70000], [70001])


def decode_rows():
    cases = [([1, 1, 5], 0, 2), ([1, 1, 5], 4, 7), ([2, 1, 5, 1], 1, 3), ([5, 1], 0, 0),
             ([0, 1, 3], 0, 1), ([0, 0], 0, 0), ([], 0, 0), ([1, 2, 3, 4], 2, 6)]
    for lens, speculative, expected in cases:
        start = np.concatenate([[0], np.cumsum(lens, dtype=int)]).astype("<i4")
        found, = run(f"""
func.func @count(%start: tensor<?xi32>) -> index {{
  %rows = shardq.count_decode_rows %start {{speculative_tokens = {speculative} : i64}} : tensor<?xi32>
  return %rows : index
}}
""", dict(start=start))
        expect_equal(found, np.array(expected), f"decode rows of {lens}, {speculative} speculative")


def taken():
    rng = np.random.default_rng(1)
    rows = np.array([3, 0, 4, 4, -1, 5, -2**31, 2**31 - 1, 2], "<i4")
    inside = (rows >= 0) & (rows < 5)
    for element in ("bf16", "f16", "f32", "i32", "i64"):
        for shape in ([], [7], [3, 5]):
            if element[0] == "i":
                source = rng.integers(-2**31, 2**31, [5] + shape).astype("<" + element.replace("i32", "i4").replace("i64", "i8"))
            else:
                source = round_to(element, rng.standard_normal([5] + shape))
            type = tensor(element, "?", *shape)
            found, = run(f"""
func.func @take(%source: {type}, %rows: tensor<?xi32>) -> {type} {{
  %0 = shardq.take_rows %source[%rows] : ({type}, tensor<?xi32>) -> {type}
  return %0 : {type}
}}
""", dict(source=source, rows=rows))
            expected = source[np.clip(rows, 0, 4)]
            expected[~inside] = 0
            expect_equal(found, expected, f"rows of {type}")


if __name__ == "__main__":
    main(globals())
