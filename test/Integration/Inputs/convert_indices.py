"""convert_indices on the CPU against integers of Python: `convert_indices.py CASE...`."""

import numpy as np
from harness import expect, expect_equal, main, run, tensor


def convert(indices, table, req, block, *options, stride=None, prefill=None, workspace=None,
            slot="i32", count=True):
    indices, table, req = (np.array(a, "<i4") for a in (indices, table, req))
    width = indices.shape[1]
    types = [tensor("i32", "?", width), "tensor<?x?xi32>", "tensor<?xi32>"]
    names = ["indices", "table", "req"]
    inputs = dict(indices=indices, table=table, req=req)
    operands = "%indices table(%table) rows(%req)"
    if prefill is not None:
        names += ["prefill", "workspace"]
        types += ["tensor<?xi32>"] * 2
        operands += " prefill(%prefill, %workspace)"
        inputs.update(prefill=np.array(prefill, "<i4"), workspace=np.array(workspace, "<i4"))
    attrs = f"block_size = {block} : i64"
    if stride:
        attrs += f", block_stride_rows = {stride} : i64"
    results = [tensor(slot, "?", width)] + (["tensor<?xi32>"] if count else [])
    values = "%slots, %count" if count else "%slots"
    found = run(f"""
func.func @convert({", ".join(f"%{n}: {t}" for n, t in zip(names, types))}) -> ({", ".join(results)}) {{
  {values} = shardq.convert_indices {operands} {{{attrs}}}
      : ({", ".join(types)}) -> ({", ".join(results)})
  return {values} : {", ".join(results)}
}}
""", inputs, *options)
    expected = oracle(indices, table, req, block, stride or block, prefill, workspace, slot)
    expect(found[0].dtype == np.dtype(slot.replace("i32", "<i4").replace("i64", "<i8")), "slot type")
    expect_equal(found[0], expected, "slots")
    if count:
        expect_equal(found[1], (expected != -1).sum(axis=1), "counts")
    return found


def oracle(indices, table, req, block, stride, prefill, workspace, slot):
    """One entry after the other, in integers that do not overflow."""
    limit = 2**31 if slot == "i32" else 2**63
    slots = np.full(indices.shape, -1, np.int64)
    for i, row in enumerate(indices.tolist()):
        for j, t in enumerate(row):
            if t < 0:
                continue
            if prefill is not None and prefill[i] >= 0:
                value = int(workspace[prefill[i]]) + t
            elif 0 <= req[i] < table.shape[0] and t // block < table.shape[1]:
                page = int(table[req[i], t // block])
                value = page * stride + t % block if page >= 0 else -1
            else:
                continue
            if 0 <= value < limit:
                slots[i, j] = value
    return slots


def golden():
    # Without sharing the cache every token is owned: the table and block size of
    # the golden values, whole.
    for slot in ("i32", "i64"):
        found = convert([[8, 5, 130, 7, -1, 262]], [[11, 2, 7, 5]], [0], 64, slot=slot)
        expect_equal(found[0], [[712, 709, 450, 711, -1, -1]], "golden slots")
        expect_equal(found[1], [4], "golden count")
    found = convert([range(12)], [[7, 3]], [0], 4)
    expect_equal(found[0], [[28, 29, 30, 31, 12, 13, 14, 15, -1, -1, -1, -1]], "golden slots")


def widths():
    rng = np.random.default_rng(1)
    for width in (1, 3, 64, 192, 256, 1024, 2048, 2051, 2176):
        indices = rng.integers(-5, 70 * 64, (3, width))
        convert(indices, rng.permutation(128).reshape(2, 64), [1, 0, 1], 64, count=width % 2 == 0)


def block_sizes():
    rng = np.random.default_rng(2)
    for block in (1, 3, 16, 64, 100):
        for stride in (None, block + 1, 64 * block):
            indices = rng.integers(-3, 12 * block, (4, 33))
            convert(indices, rng.permutation(20).reshape(2, 10), [1, 0, 0, 1], block, stride=stride)


def wide_strides():
    # Slots above 2^31 need i64; i32 cannot hold them.
    rng = np.random.default_rng(3)
    table = [[0, 1, 2, 3, 1000, 2**31 - 1]]
    indices = [np.arange(6) * 64 + 5, rng.integers(0, 384, 6)]
    for stride in (2**20, 2**29, 2**30 + 7, 2**31 - 1, 2**31, 2**32 - 64):
        for slot in ("i32", "i64"):
            slots, count = convert(indices, table, [0, 0], 64, stride=stride, slot=slot)
            expect(slot == "i32" or count[0] == 6, "an i64 slot was lost")
            expect(slot == "i64" or slots.max() < 2**31, "slot type")
    # The last row that i32 holds, and the first that it does not.
    slots, _ = convert([[62, 63]], [[1]], [0], 64, stride=2**31 - 63)
    expect_equal(slots, [[2**31 - 1, -1]], "last i32 slot")


def prefill_workspace():
    workspace = [0, 1000, 2**31 - 10]
    indices = np.tile([0, 3, -1, 9, 10, 5000, 2**31 - 1, -2**31], (6, 1))
    prefill = [-1, 0, 1, 2, -7, 1]
    for slot in ("i32", "i64"):
        slots, _ = convert(indices, [[4, 5], [6, 7]], [0, 0, 1, -1, 1, 99], 64, prefill=prefill,
                           workspace=workspace, slot=slot)
        # No block range check for positions in the workspace.
        expect(slots[2, 5] == 6000, "position beyond the table")
    expect(slots[3, 4] == 2**31, "i64 slot")


def negative_entries():
    rng = np.random.default_rng(4)
    table = rng.permutation(40).reshape(4, 10)
    table[0] = -1
    table[1, ::2] = -2**31
    table[2, 5:] = -3
    for stride in (None, 1000):
        convert(rng.integers(-1, 700, (8, 50)), table, list(range(4)) * 2, 64, stride=stride)


def negative_positions():
    convert([[-1, -2, -63, -64, -65, -2**31, 0, 1]], [[3, 4]], [0], 64)


def requests_outside():
    # The table of three requests is not read for a fourth.
    table = np.arange(6).reshape(3, 2)
    convert([[0, 64, 128]] * 5, table, [-1, -2**31, 2, 0, -5], 64)
    convert([[0, 64, 128]] * 4, table, [3, 4, 2**31 - 1, 1], 64)
    convert([[0, 1]], np.zeros((0, 2)), [-1], 64)
    convert([[0, 1]], np.zeros((1, 0)), [0], 64)


def many_rows():
    rng = np.random.default_rng(5)
    convert(rng.integers(-1, 30, (66001, 2)), rng.permutation(6).reshape(2, 3),
            rng.integers(-1, 2, 66001), 8)
    convert(np.zeros((0, 4)), [[1]], [], 8)


if __name__ == "__main__":
    main(globals())
