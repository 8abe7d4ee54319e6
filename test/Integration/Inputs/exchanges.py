"""Exchanges there and back on CPU ranks: `exchanges.py CASE...`."""

import numpy as np
from harness import NUMPY, expect_equal, main, run, split, tensor


def there_and_back(world, element, heads, widths, query_lens, seed):
    """Parts of `heads` heads a rank go to token shards, one by one, and back."""
    random = np.random.default_rng(seed)
    rows = sum(query_lens)
    start = np.concatenate([[0], np.cumsum(query_lens, dtype=int)]).astype("<i4")
    decodes = 0
    while decodes < len(query_lens) and query_lens[decodes] <= 1:
        decodes += 1
    decode_rows = int(start[decodes])
    width = sum(widths)

    def bits(*shape):
        size = np.dtype(NUMPY[element]).itemsize
        return np.frombuffer(random.bytes(int(np.prod(shape)) * size), NUMPY[element]).reshape(shape)

    parts = [bits(rows, world * heads, w) for w in widths]
    after = bits(decode_rows, world * heads, width)
    one = [tensor(element, "?", heads, w) for w in widths]
    whole, back = tensor(element, "?", world * heads, width), tensor(element, "?", heads, width)
    names = [f"%q{i}" for i in range(len(widths))]
    arguments = "".join(f"{name}: {type} {split(1)}, " for name, type in zip(names, one))
    types = ", ".join(one)
    found, = run(f"""
shardq.mesh @ranks ["tp" = {world}]
func.func @exchange({arguments}%after: {back} {split(1)}, %start: tensor<?xi32>, %rows: index)
    -> ({back} {split(1)}) {{
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %ids, %offsets = shardq.zigzag_split %start decodes(%decodes) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<{world + 1}xi32>)
  %mine = shardq.exchange heads_to_tokens({", ".join(names)}) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
      : ({types}, tensor<?xi32>, tensor<{world + 1}xi32>, index) -> {whole}
  %back = shardq.exchange tokens_to_heads(%mine) by(%ids, %offsets) decodes(%decodes) after(%after) over @ranks "tp"
      : ({whole}, tensor<?xi32>, tensor<{world + 1}xi32>, index, {back}) -> {back}
  return %back : {back}
}}
""", dict({name[1:]: part for name, part in zip(names, parts)}, after=after, start=start,
          rows=np.array(rows, "<i8")))
    expected = np.concatenate(parts, axis=2)
    expected = np.concatenate([after, expected[decode_rows:]])
    # NaNs differ from themselves as numbers.
    expect_equal(found.view(np.uint8), expected.view(np.uint8),
                 f"{world} ranks, {element}, {heads} heads of {widths}, lengths {query_lens}, seed {seed}")


def types():
    seed = 0
    for world in (2, 3, 4, 8):
        around = [2 * world - 1, 2 * world, 2 * world + 1, 0, 1, 5 * world + 3]
        for element, heads, widths in (("i8", 6, [24]), ("f8E4M3FN", 3, [512, 64]), ("f8E5M2", 1, [7]),
                                       ("f16", 2, [5, 3]), ("bf16", 6, [16]), ("f32", 1, [9])):
            query_lens = [[], [1], [1, 1, 1]][seed % 3] + around
            there_and_back(world, element, heads, widths, query_lens, seed)
            seed += 1


if __name__ == "__main__":
    main(globals())
