"""indexer on the CPU against float64: `indexer.py CASE...`.

Where scores are small integers every order of additions is exact, and so is the
oracle; elsewhere the choice has to be one that the allowed errors explain.
"""

import os

import numpy as np
from harness import Directory, expect, expect_equal, main, round_to, run, tensor, widen


class Case:
    """A paged cache and the rows that look into it."""

    def __init__(self, seed, *, rows=6, heads=4, dim=16, k=8, block=4, stride=None, requests=3,
                 blocks=10, spare=5, element="bf16", integers=False):
        self.rng = rng = np.random.default_rng(seed)
        self.k, self.block, self.stride, self.element = k, block, stride or block, element
        self.integers = integers
        total = requests * blocks + spare
        self.table = rng.permutation(total)[:requests * blocks].reshape(requests, blocks).astype("<i4")
        self.q = self.values(rows, heads, dim)
        self.weights = (rng.integers(-3, 4, (rows, heads)) if integers
                        else rng.standard_normal((rows, heads))).astype("<f4")
        # Rows that no block covers score far above all others.
        self.keys = round_to(element, np.full(((total - 1) * self.stride + block, dim), 300.0))
        for page in self.table.flat:
            self.keys[page * self.stride:page * self.stride + block] = self.values(block, dim)
        self.req = rng.integers(0, max(requests, 1), rows).astype("<i4")
        self.visible = rng.integers(min(k, blocks * block), blocks * block + 1, rows).astype("<i4")

    def values(self, *shape):
        if self.integers:
            return round_to(self.element, self.rng.integers(-2, 3, shape))
        return round_to(self.element, self.rng.standard_normal(shape))

    def text(self):
        _, heads, dim = self.q.shape
        attrs = f"block_size = {self.block} : i64"
        if self.stride != self.block:
            attrs += f", block_stride_rows = {self.stride} : i64"
        types = [tensor(self.element, "?", heads, dim), tensor("f32", "?", heads),
                 tensor(self.element, "?", dim), "tensor<?x?xi32>", "tensor<?xi32>",
                 "tensor<?xi32>"]
        names = ["q", "weights", "keys", "table", "req", "visible"]
        return f"""
func.func @index({", ".join(f"%{n}: {t}" for n, t in zip(names, types))}) -> tensor<?x{self.k}xi32> {{
  %0 = shardq.indexer q(%q) weights(%weights) keys(%keys) table(%table) rows(%req, %visible)
      {{{attrs}}} : ({", ".join(types)}) -> tensor<?x{self.k}xi32>
  return %0 : tensor<?x{self.k}xi32>
}}
"""

    def candidates(self, t):
        """Positions of row t that are visible and lie in the cache, and their rows."""
        if not 0 <= self.req[t] < self.table.shape[0]:
            return np.zeros(0, int), np.zeros(0, int)
        positions = np.arange(min(max(int(self.visible[t]), 0), self.table.shape[1] * self.block))
        pages = self.table[self.req[t], positions // self.block].astype(np.int64)
        rows = pages * self.stride + positions % self.block
        inside = (pages >= 0) & (rows < self.keys.shape[0])
        return positions[inside], rows[inside]

    def check_row(self, t, found):
        positions, rows = self.candidates(t)
        count = min(self.k, positions.size)
        chosen = found[:count]
        expect((found[count:] == -1).all(), f"row {t}: more than {count} positions: {found}")
        expect((np.diff(chosen) > 0).all(), f"row {t}: not ascending: {found}")
        expect(np.isin(chosen, positions).all(), f"row {t}: not candidates: "
               f"{np.setdiff1d(chosen, positions)}")
        dots = widen(self.q[t]) @ widen(self.keys[rows]).T
        weights = self.weights[t].astype(np.float64)
        scores = weights @ np.maximum(dots, 0)
        if self.integers:
            best = np.lexsort((positions, -scores))[:count]
            expect_equal(chosen, np.sort(positions[best]), f"row {t}")
            return
        error = 2.0**-18 * (np.abs(weights) @ (np.abs(widen(self.q[t])) @ np.abs(widen(self.keys[rows])).T))
        taken = np.isin(positions, chosen)
        if taken.all():
            return
        worst = np.min((scores + error)[taken])
        missed = ~taken & (scores - error > worst)
        expect(not missed.any(), f"row {t}: {positions[missed]} score higher than what was taken")

    def run(self, *options):
        inputs = {name: getattr(self, name) for name in
                  ("q", "weights", "keys", "table", "req", "visible")}
        found, = run(self.text(), inputs, *options)
        expect(found.shape == (self.q.shape[0], self.k), f"shape {found.shape}")
        for t in range(found.shape[0]):
            self.check_row(t, found[t])
        return found


def heads():
    for count in (1, 9, 32, 64):
        Case(count, heads=count).run()
        Case(count, heads=count, integers=True).run()


def element_types():
    for element in ("bf16", "f16", "f32"):
        for dim in (1, 17, 128):
            Case(dim, dim=dim, element=element).run()
            Case(dim, dim=dim, element=element, integers=True).run()


def full_dimensions():
    # DeepSeek-V3.2 and GLM-5.
    for count in (64, 32):
        Case(count, rows=4, heads=count, dim=128, k=2048, block=64, requests=2, blocks=40).run()


def ties():
    # One head: most scores are exactly zero.
    case = Case(1, heads=1, dim=2, k=64, blocks=60, block=8, requests=2, integers=True)
    case.visible[:] = 480
    case.run()
    # Negative weights make zeros of the other sign, and negative scores.
    case.weights[:] = -np.abs(case.weights)
    case.run()
    case.weights[:] = 0
    found = case.run()
    expect_equal(found, np.tile(np.arange(64), (6, 1)), "all scores equal")


def page_stride():
    # Pages of other layers lie between; reading one would win.
    for stride in (5, 1000, 4096):
        Case(stride, stride=stride, integers=True).run()
        Case(stride, stride=stride).run()


def shuffled_tables():
    for seed in range(3):
        case = Case(seed, requests=5, blocks=16, block=3, rows=20, integers=True)
        case.run()
        # Requests may share pages.
        case.table[1, :8] = case.table[0, :8]
        case.run()


def zero_lengths():
    case = Case(2)
    case.visible[:] = 0
    expect((case.run() == -1).all(), "keys of empty sequences")
    case.visible[:] = [-1, 0, 1, case.k - 1, case.k, case.k + 1]
    case.run()
    # No request at all, and rows of graph padding.
    case = Case(3, requests=0)
    case.req[:], case.visible[:] = -1, 0
    expect((case.run() == -1).all(), "keys of no request")
    case = Case(4, rows=0)
    case.run()


def visible_beyond_the_table():
    for integers in (True, False):
        case = Case(5, blocks=3, integers=integers)
        case.visible[:] = [12, 13, 100, 2**31 - 1, 11, 1]
        case.run()
    # Even narrower than k.
    case = Case(6, blocks=1, k=64)
    case.visible[:] = 1000
    case.run()


def missing_pages():
    case = Case(7, integers=True, rows=12, k=16)
    case.visible[:] = 40
    case.table[0, ::2] = -1
    case.table[1] = -1
    case.table[2, 3] = -2**31
    case.run()
    # Pages behind the end of the cache, the last one cut off inside.
    pages = case.keys.shape[0] // 4
    case.keys = case.keys[:-6]
    case.table[2, 5:8] = [2**31 - 1, pages - 1, pages - 2]
    case.run()
    case.stride = 2**30
    case.table[:] = 3
    expect((case.run() == -1).all(), "rows far beyond the cache")


def row_lengths():
    for k in (64, 2048):
        lengths = [-2**31, -1, 0, 1, k - 1, k, k + 1, 2047, 2049, 2200]
        case = Case(k, rows=len(lengths), k=k, block=64, blocks=35, requests=2, integers=True, dim=8)
        case.visible[:] = lengths
        case.run()


def repeated():
    first = Case(8, rows=4, k=512, block=16, blocks=100, heads=16).run("--repeat=20")
    expect_equal(Case(8, rows=4, k=512, block=16, blocks=100, heads=16).run(), first, "another process")


def large_cache():
    """Keys beyond 2^31 elements and 4 GiB; the file is sparse."""
    with open("/proc/meminfo") as file:
        available = [int(line.split()[1]) for line in file if line.startswith("MemAvailable")][0]
    with Directory() as directory:
        disk = os.statvfs(directory)
        if available < 14 << 20 or disk.f_bavail * disk.f_frsize < 12 << 30:
            print("skipped: needs 14 GB of memory and 12 GB of disk")
            return
        case = Case(9, rows=6, dim=128, k=16, block=64, requests=2, blocks=6, integers=True)
        rows = 64 * 264_000
        path = os.path.join(directory, "keys.npy")
        keys = np.lib.format.open_memmap(path, mode="w+", dtype="<u2", shape=(rows, 128))
        # Around 2^31 bytes, 2^31 elements and 4 GiB, and the last page.
        pages = [0, 131071, 131072, 262143, 262144, 263999]
        case.table[0] = pages
        case.table[1] = pages[::-1]
        for page in pages + [263999 - 262144]:
            keys[page * 64:page * 64 + 64] = case.values(64, 128)
        keys.flush()
        case.keys = keys
        case.visible[:] = 6 * 64
        inputs = {name: getattr(case, name) for name in ("q", "weights", "table", "req", "visible")}
        found, = run(case.text(), dict(inputs, keys=path))
        for t in range(6):
            case.check_row(t, found[t])


if __name__ == "__main__":
    main(globals())
