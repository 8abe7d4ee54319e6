"""Views of block tables and slots of tokens against integers: `views.py CASE...`."""

import numpy as np
from context import BY_RANK, local, mesh, owner
from harness import expect, expect_equal, main, run

VIEW = "#shardq.view<replicated>"


def view_oracle(table, lens, ranks, per_block):
    """Column after column, in integers that do not overflow."""
    requests, width = table.shape
    view = np.zeros((requests, width * ranks), np.int64)
    for i in range(requests):
        for c in range(width * ranks) if lens[i] > 0 else ():
            at = c // (ranks * per_block) * per_block + c % per_block
            block = int(table[i, at]) if at < width else -1
            entry = (block // per_block * ranks + c // per_block % ranks) * per_block + block % per_block
            view[i, c] = entry if 0 <= block and entry < 2**31 else -1
    return view


def views(ranks, per_block, table, lens):
    table, lens = np.array(table, "<i4"), np.array(lens, "<i4")
    (found,) = run(f"""
{mesh(ranks)}
func.func @view(%t: tensor<?x?xi32>, %n: tensor<?xi32>) -> (tensor<?x?xi32, {VIEW}> {BY_RANK}) {{
  %v = shardq.replicated_table %t lengths(%n) over @ranks "dcp" {{blocks_per_block = {per_block} : i64}}
      : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, {VIEW}>
  return %v : tensor<?x?xi32, {VIEW}>
}}
""", dict(t=table, n=lens))
    found = found.reshape(ranks, len(table), ranks * table.shape[1])
    for rank in range(ranks):
        expect_equal(found[rank], view_oracle(table, lens, ranks, per_block), f"view of rank {rank} of {ranks}")
    return found[0]


def view_golden():
    expect_equal(views(2, 1, [[10, 11, 12, 13]], [64]), [range(20, 28)], "view")
    expect_equal(views(3, 1, [[3, 9]], [5]), [[9, 10, 11, 27, 28, 29]], "view")
    expect_equal(views(2, 2, [[10, 11, 16, 17]], [5]), [[20, 21, 22, 23, 32, 33, 34, 35]], "view")
    # No tokens; no block; one that i32 does not hold.
    expect_equal(views(2, 1, [[7, 8], [7, 8], [-1, 2**30]], [0, -3, 9]),
                 [[0] * 4, [0] * 4, [-1, -1, -1, -1]], "view")
    # A last physical block that the table cuts off.
    expect_equal(views(2, 2, [[4, 5, 8]], [9]), [[8, 9, 10, 11, 16, -1]], "view")


def view_ranks():
    rng = np.random.default_rng(0)
    for ranks in (1, 2, 3, 4, 8):
        for per_block in (1, 2, 4):
            views(ranks, per_block, rng.integers(-1, 1000, (5, 8)), rng.integers(0, 3, 5))
    views(8, 1, np.zeros((0, 3)), [])
    views(3, 2**31 - 1, [[5, 2**31 - 1]], [4])


def slots(ranks, interleave, block, per_blocks, table, lens, tokens, stride=None, slot="i64"):
    """Slots that writers and readers of the two caches have for (request, position) tokens; the
    local ones by rank."""
    req = np.array([r for r, _ in tokens], "<i4")
    visible = np.array([t + 1 for _, t in tokens], "<i4")
    at = f"block_size = {block} : i64, block_stride_rows = {stride or block} : i64"
    vector, matrix = f"tensor<?x{slot}>", f"tensor<?x1x{slot}>"
    body, results = "", [("%wl", vector), ("%rl", matrix)]
    for n, per_block in enumerate(per_blocks):
        body += f"""
  %v{n} = shardq.replicated_table %table lengths(%lens) over @ranks "dcp" {{blocks_per_block = {per_block} : i64}}
      : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, {VIEW}>
  %w{n} = shardq.token_slots table(%v{n}) rows(%req, %visible) {{{at}}}
      : (tensor<?x?xi32, {VIEW}>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x{slot}, {VIEW}>
  %r{n} = shardq.convert_indices %at table(%v{n}) rows(%req) {{{at}}}
      : (tensor<?x1xi32>, tensor<?x?xi32, {VIEW}>, tensor<?xi32>) -> tensor<?x1x{slot}, {VIEW}>"""
        results += [(f"%w{n}", f"tensor<?x{slot}, {VIEW}>"), (f"%r{n}", f"tensor<?x1x{slot}, {VIEW}>")]
    found = run(f"""
{mesh(ranks)}
func.func @slots(%table: tensor<?x?xi32>, %lens: tensor<?xi32>, %req: tensor<?xi32>, %visible: tensor<?xi32>,
                 %at: tensor<?x1xi32>) -> ({", ".join(f"{t} {BY_RANK}" for _, t in results)}) {{
  %wl = shardq.token_slots table(%table) rows(%req, %visible) over @ranks "dcp"
      {{{at}, interleave = {interleave} : i64}}
      : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> {vector}
  %rl = shardq.filter_indices %at table(%table) rows(%req) over @ranks "dcp"
      {{{at}, interleave = {interleave} : i64, in_place}}
      : (tensor<?x1xi32>, tensor<?x?xi32>, tensor<?xi32>) -> {matrix}{body}
  return {", ".join(n for n, _ in results)} : {", ".join(t for _, t in results)}
}}
""", dict(table=np.array(table, "<i4"), lens=np.array(lens, "<i4"), req=req, visible=visible,
          at=visible.reshape(-1, 1) - 1))
    found = [f.reshape(ranks, len(tokens)) for f in found]
    for n in range(0, len(found), 2):
        expect_equal(found[n], found[n + 1], f"slots of writer and reader, {ranks} ranks, interleave {interleave}")
    for n in range(2, len(found), 2):
        expect((found[n] == found[n][0]).all(), "slots of a view differ between ranks")
    return found[0], [found[n][0] for n in range(2, len(found), 2)]


def slots_golden():
    positions = [0, 3, 4, 7, 8, 15, -1]
    _, (found,) = slots(2, 4, 4, [1], [[10, 11]], [16], [(0, t) for t in positions])
    expect_equal(found, [80, 83, 84, 87, 88, 95, -1], "slots of the view")
    # Padding, and slots that an i32 cannot hold, the last one that it can beside them.
    tokens = [(-1, 0), (-7, 99), (0, 0), (0, 7)]
    own, (found,) = slots(1, 4, 4, [1], [[2**30, 2**29 - 1, -1]], [12], tokens, stride=70)
    expect_equal(found, [-1, -1, 2**30 * 70, (2**29 - 1) * 70 + 3], "slots")
    expect_equal(own[0], found, "slots")
    own, _ = slots(1, 4, 4, [1], [[2**30, 2**29 - 1, -1]], [12], tokens[:2] + tokens[3:], slot="i32")
    expect_equal(own[0], [-1, -1, 2**31 - 1], "slots of i32")


def slots_ranks():
    rng = np.random.default_rng(1)
    per_blocks = (1, 2, 4)
    for ranks in range(1, 9):
        for interleave, block in ((1, 4), (2, 4), (4, 4), (64, 64), (8, 4), (8, 2), (3, 1)):
            columns = 8  # whole physical blocks of up to four
            # Whole runs of each rank.
            most = columns * block // interleave * interleave
            lens = rng.integers(1, most * ranks + 1, 3)
            # Kernel blocks of physical ones stand together, of each number of them.
            table = np.array([[4 * b + i for b in rng.permutation(9)[:columns // 4] + 9 * r for i in range(4)]
                              for r in range(3)])
            tokens = [(r, int(t)) for r in range(3) for t in rng.permutation(int(lens[r]))[:60]] + [(0, -1)]
            own, found = slots(ranks, interleave, block, per_blocks, table, lens, tokens, stride=block + 3)
            for i, (r, t) in enumerate(tokens[:-1]):
                rank, l = owner(t, ranks, interleave), local(t, ranks, interleave)
                want = np.full(ranks, -1)
                want[rank] = table[r, l // block] * (block + 3) + l % block
                expect_equal(own[:, i], want, f"own slot of token {t}")
            for n, per_block in enumerate(per_blocks):
                view = view_oracle(table, lens, ranks, per_block)
                want = [view[r, t // block] * (block + 3) + t % block if t >= 0 else -1 for r, t in tokens]
                expect_equal(found[n], want, "slots of the view")
                expect(len(set(want)) == len(want), "two tokens have one slot")


def slots_beyond():
    """A writer that meets a token beyond its table is an error of the rank that keeps it, with its numbers."""
    def fails(ranks, interleave, tokens, *expected, table=((7, 3), (5, 1)), slot="i64"):
        req = np.array([r for r, _ in tokens], "<i4")
        visible = np.array([t + 1 for _, t in tokens], "<i4")
        text = run(f"""
{mesh(ranks)}
func.func @slots(%table: tensor<?x?xi32>, %req: tensor<?xi32>, %visible: tensor<?xi32>)
    -> (tensor<?x{slot}> {BY_RANK}) {{
  %w = shardq.token_slots table(%table) rows(%req, %visible) over @ranks "dcp"
      {{block_size = 4 : i64, interleave = {interleave} : i64}}
      : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x{slot}>
  return %w : tensor<?x{slot}>
}}
""", dict(table=np.array(table, "<i4"), req=req, visible=visible), status=1)
        for part in expected:
            expect(part in text, f"no '{part}' in {text}")

    for ranks in (1, 2, 3, 4, 8):
        for interleave in (1, 4, 8):
            width = 8 * ranks  # tokens of two blocks of each rank
            culprit = owner(width, ranks, interleave)
            beyond = local(width, ranks, interleave) // 4
            fails(ranks, interleave, [(0, 0), (1, width)],
                  f"rank {culprit}: a token of request 1 is to be written to block {beyond}, and its block table has 2")
        fails(ranks, 4, [(1, 3), (-1, 99), (2, 5)],
              f"rank {owner(5, ranks, 4)}: a token of request 2 is to be written to block {local(5, ranks, 4) // 4}, "
              "and the block table has 2 requests")
        # An entry that is no block, and one whose slots are beyond their type.
        token = 8 * ranks - 1
        place = f"rank {owner(token, ranks, 4)}: a token of request 1 is to be written to block 1, whose entry in the block table is "
        fails(ranks, 4, [(0, 0), (1, token)], place + "-9\n", table=((7, 3), (5, -9)))
        fails(ranks, 4, [(0, 0), (1, token)], place + f"{2**29}, beyond slots of their type", table=((7, 3), (5, 2**29)), slot="i32")


if __name__ == "__main__":
    main(globals())
