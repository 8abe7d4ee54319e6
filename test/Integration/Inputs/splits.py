"""zigzag_split and split_gate on the CPU: `splits.py CASE...`."""

import glob
import json
import os

import numpy as np
from harness import expect, expect_equal, main, run


def owners(length, ranks):
    """Owner of each position, by cutting the request into 2W chunks."""
    result = np.full(length, -1)
    for chunk in range(2 * ranks):
        begin, end = chunk * length // (2 * ranks), (chunk + 1) * length // (2 * ranks)
        result[begin:end] = min(chunk, 2 * ranks - 1 - chunk)
    return result


def groups(lens, ranks):
    """Token ids of each rank, counted from the first prefill row."""
    owner = np.concatenate([np.zeros(0, int)] + [owners(n, ranks) for n in lens])
    return [np.flatnonzero(owner == r) for r in range(ranks)]


def split(lens, ranks, *, decode_lens=(), padding=0):
    """Group of each rank; decode requests lead."""
    start = np.concatenate([[0], np.cumsum([*decode_lens, *lens], dtype=int)]).astype("<i4")
    decodes, rows = sum(decode_lens), int(start[-1]) + padding
    ids, offsets = run(f"""
shardq.mesh @ranks ["tp" = {ranks}]
func.func @split(%start: tensor<?xi32>, %decodes: index, %rows: index)
    -> (tensor<?xi32>, tensor<{ranks + 1}xi32>) {{
  %ids, %offsets = shardq.zigzag_split %start decodes(%decodes) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<{ranks + 1}xi32>)
  return %ids, %offsets : tensor<?xi32>, tensor<{ranks + 1}xi32>
}}
""", dict(start=start, decodes=np.array(decodes, "<i8"), rows=np.array(rows, "<i8")))
    expected = groups(lens, ranks)
    counts = [group.size for group in expected]
    expect_equal(offsets, np.concatenate([[0], np.cumsum(counts)]), f"offsets of {lens}")
    whole = np.full(rows, -1)
    whole[:sum(lens)] = np.concatenate(expected)
    expect_equal(ids, whole, f"ids of {lens}")
    bound = -(-sum(lens) // ranks) + 2 * len(lens)
    expect(max(counts) <= bound, f"{max(counts)} tokens on a rank, more than {bound}")
    return [ids[offsets[r]:offsets[r + 1]].tolist() for r in range(ranks)]


def golden():
    table = [
        ([16], 4, [[0, 1, 14, 15], [2, 3, 12, 13], [4, 5, 10, 11], [6, 7, 8, 9]]),
        ([10], 4, [[0, 8, 9], [1, 7], [2, 6], [3, 4, 5]]),
        ([7], 4, [[6], [0, 5], [1, 4], [2, 3]]),
        ([1, 2, 3], 2, [[0, 2, 5], [1, 3, 4]]),
    ]
    for lens, ranks, expected in table:
        found = split(lens, ranks)
        expect(found == expected, f"{lens} over {ranks}: {found}, expected {expected}")
    for lens, ranks, counts in (([3], 4, [1, 0, 2, 0]), ([5, 9], 2, [8, 6])):
        found = [len(group) for group in split(lens, ranks)]
        expect(found == counts, f"{lens} over {ranks}: {found}, expected {counts}")


def ragged():
    rng = np.random.default_rng(1)
    for ranks in (1, 2, 3, 4, 8, 16):
        split(rng.integers(0, 50, 7).tolist(), ranks, decode_lens=(1, 1, 2), padding=5)
    split([], 3)
    split([], 4, decode_lens=(1, 1), padding=2)
    split([0, 0, 1, 0], 8)
    split([70001], 3)


def gate(lens, seq_lens, ranks=4, *, decodes=0, padding=0, min_tokens=1, topk=8, limits=""):
    start = np.concatenate([[0], np.cumsum(lens, dtype=int)]).astype("<i4")
    rows = int(start[-1]) + padding
    prefill, seen = [], 0
    for length in lens:
        if seen >= decodes:
            prefill.append(length)
        seen += length
    offsets = np.concatenate([[0], np.cumsum([g.size for g in groups(prefill, ranks)])]).astype("<i4")
    found, = run(f"""
func.func @gate(%offsets: tensor<{ranks + 1}xi32>, %start: tensor<?xi32>, %lens: tensor<?xi32>,
                %decodes: index, %rows: index) -> i1 {{
  %0 = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%decodes) rows(%rows)
      {{min_tokens = {min_tokens} : i64, topk = {topk} : i64{limits}}}
      : tensor<{ranks + 1}xi32>, tensor<?xi32>, tensor<?xi32>
  return %0 : i1
}}
""", dict(offsets=offsets, start=start, lens=np.array(seq_lens, "<i4"),
          decodes=np.array(decodes, "<i8"), rows=np.array(rows, "<i8")))
    return bool(found)


def expect_edge(closed, opened, name):
    """The gate is closed for the one and open for the other, which differ little."""
    expect(not gate(**closed), f"{name}: open for {closed}")
    expect(gate(**opened), f"{name}: closed for {opened}")


def gate_needs_tokens():
    one = dict(lens=[16], seq_lens=[16])
    expect_edge(dict(one, min_tokens=17), dict(one, min_tokens=16), "min-tokens")
    expect(not gate([], [], min_tokens=0), "open without requests")
    decodes = dict(lens=[1, 1], seq_lens=[100, 100], decodes=2)
    expect(not gate(**decodes, min_tokens=0), "open without prefill requests")
    # Decode rows do not count.
    mixed = dict(lens=[1, 1, 16], seq_lens=[5, 5, 16], decodes=2)
    expect_edge(dict(mixed, min_tokens=17), dict(mixed, min_tokens=16), "decodes")


def gate_needs_a_long_sequence():
    expect_edge(dict(lens=[16], seq_lens=[20], topk=20), dict(lens=[16], seq_lens=[20], topk=19), "topk")
    # The context counts, of any prefill request but of no decode.
    expect_edge(dict(lens=[16, 9], seq_lens=[16, 8], topk=2048),
                dict(lens=[16, 9], seq_lens=[16, 2049], topk=2048), "second request")
    expect_edge(dict(lens=[1, 16], seq_lens=[9999, 16], topk=2048, decodes=1),
                dict(lens=[1, 16], seq_lens=[1, 9999], topk=2048, decodes=1), "decode")


def gate_needs_no_padding():
    for padding in (1, 100):
        expect_edge(dict(lens=[16, 9], seq_lens=[16, 9], padding=padding),
                    dict(lens=[16, 9], seq_lens=[16, 9]), "padding")


def gate_needs_tokens_on_every_rank():
    empty = {2: [1], 4: [1, 2, 3, 5], 8: [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13]}
    for ranks, lens in empty.items():
        for n in range(1, 16):
            found = gate([n], [99], ranks)
            expect(found == (n not in lens), f"{n} tokens over {ranks} ranks: {found}")
    # Together two requests reach all.
    expect_edge(dict(lens=[3], seq_lens=[99]), dict(lens=[3, 10], seq_lens=[99, 99]), "second request")


def gate_needs_room():
    one = dict(lens=[1, 10], seq_lens=[5, 20], decodes=1)
    for rank_rows, rows, expected in ((3, 11, True), (2, 11, False), (3, 10, False), (0, 0, False),
                                      (2**40, 2**40, True)):
        limits = f", max_rank_rows = {rank_rows} : i64, max_rows = {rows} : i64"
        found = gate(**one, limits=limits)
        expect(found == expected, f"{rank_rows} rows a rank, {rows} in all: {found}")


def trace_steps():
    """Every step cut from a trace, at full size and small: partition, bounds and gate."""
    directory = os.environ["STEPS"]
    files = sorted(glob.glob(os.path.join(directory, "*trace-[0-9]*.json")))
    expect(len(files) == 20, f"{len(files)} trace steps in {directory}")
    opened = 0
    for file in files:
        with open(file) as stream:
            step = json.load(stream)
        query = step["query_lens"]
        seq = [a + b for a, b in zip(query, step["context_lens"])]
        leading = next((i for i, n in enumerate(query) if n > 1), len(query))
        decodes, prefill = sum(query[:leading]), query[leading:]
        for ranks in (2, 3, 4, 8):
            found = run(program(ranks), {}, f"--step={file}")
            expected = groups(prefill, ranks)
            counts = [group.size for group in expected]
            name = f"{os.path.basename(file)} over {ranks}"
            expect_equal(found[0][:sum(prefill)], np.concatenate(expected), f"ids of {name}")
            expect_equal(np.sort(found[0][:sum(prefill)]), np.arange(sum(prefill)), f"partition of {name}")
            expect_equal(np.diff(found[1]), counts, f"counts of {name}")
            expect(max(counts) <= -(-sum(prefill) // ranks) + 2 * len(prefill), f"bound of {name}")
            opens = (sum(prefill) >= 1024 and any(n > 2048 for n in seq[leading:])
                     and min(counts) > 0)
            expect(bool(found[2]) == opens, f"gate of {name}: {found[2]}, expected {opens}")
            expect(not found[3], f"{name}: open with a top-k of all keys")
            opened += opens
    expect(opened > 0, "no gate is open")


def program(ranks):
    return f"""
shardq.mesh @ranks ["tp" = {ranks}]
func.func @split(%start: tensor<?xi32>, %lens: tensor<?xi32>, %rows: index)
    -> (tensor<?xi32>, tensor<{ranks + 1}xi32>, i1, i1) {{
  %decodes = shardq.count_decode_rows %start : tensor<?xi32>
  %ids, %offsets = shardq.zigzag_split %start decodes(%decodes) rows(%rows) over @ranks "tp"
      : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<{ranks + 1}xi32>)
  %gate = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%decodes) rows(%rows)
      {{min_tokens = 1024 : i64, topk = 2048 : i64}}
      : tensor<{ranks + 1}xi32>, tensor<?xi32>, tensor<?xi32>
  %long = shardq.split_gate offsets(%offsets) requests(%start, %lens) decodes(%decodes) rows(%rows)
      {{min_tokens = 1024 : i64, topk = 1000000 : i64}}
      : tensor<{ranks + 1}xi32>, tensor<?xi32>, tensor<?xi32>
  return %ids, %offsets, %gate, %long : tensor<?xi32>, tensor<{ranks + 1}xi32>, i1, i1
}}
"""


if __name__ == "__main__":
    main(globals())
