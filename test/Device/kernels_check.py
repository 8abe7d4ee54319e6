"""Checks the generated kernels against float64 or what numpy moves, and that packed and
unpacked rows arrive as pushed ones do.

    python3 kernels_check.py FOLDER [--chip sm_90a] [--no-times] [--only NAME]
    python3 kernels_check.py FOLDER --emulate [--only NAME] [--runtime FILE] [--seed N]

FOLDER has what build_kernels.py made. On a machine with a GPU (with torch, for its
memory and its top-k) the cubins run there; with --emulate, ptx.py interprets their
PTX, with smaller inputs. One line a check; the exit code is 1 where one failed. Steps in
chunks are compared with what the runtime's functions say, from --runtime (default:
libshardq_runtime.so.1). These steps and rows of filters are random by a seed that is printed and
that --seed takes.
"""

import argparse
import ctypes
import os
import sys
import time
import traceback
import zlib

import numpy as np

import cases
import ptx

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Integration", "Inputs"))
import packed as packing
from views import view_oracle

NO_KEY, OTHER_NAN = 0xFFFFFFFF, 0x7FFFFFFF


# --- Numbers of 16 bits, as uint16 ------------------------------------------------


def narrow(values, element):
    if element == "bf16":
        return ptx.to_bf16(values.astype(np.float32))
    return values.astype(np.float16).view(np.uint16)


def widen(bits, element):
    if element == "bf16":
        return ptx.from_bf16(bits).astype(np.float64)
    return np.asarray(bits).view(np.float16).astype(np.float64)


# --- Where kernels run ------------------------------------------------------------


class Emulator:
    is_device = False

    def __init__(self, folder, chip):
        self.folder, self.chip = folder, chip
        self.memory = ptx.Memory(1 << 26)
        self.kernels = {}

    def reset(self):
        self.memory = ptx.Memory(1 << 26)

    def upload(self, array, shift=0):
        return self.memory.allocate(array, shift)

    def write(self, address, array):
        begin = address - ptx.BASE
        self.memory.bytes[begin:begin + array.nbytes] = array.reshape(-1).view(np.uint8)

    def upload_rows(self, count, places, rows):
        """[count, width] of NaN, but for some rows."""
        array = np.full((count, rows.shape[1]), -1, rows.view(f"i{rows.itemsize}").dtype)
        array[places] = rows.view(array.dtype)
        return self.upload(array)

    def download(self, address, array):
        return self.memory.read(address, array)

    def launch(self, name, grid, threads, shared, arguments):
        if name not in self.kernels:
            path = os.path.join(self.folder, f"{name}.{self.chip}.ptx")
            self.kernels[name] = ptx.Kernel(path)
        self.kernels[name].launch(self.memory, grid, threads, shared, arguments)


class Device:
    is_device = True

    def __init__(self, folder, chip):
        import torch

        self.torch = torch
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.folder, self.chip = folder, chip
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.functions = {}
        self.held = {}

    def check(self, code):
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA: {text.value}")

    def reset(self):
        self.held = {}

    def upload(self, array, shift=0):
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        tensor = self.torch.full((len(data) + 512,), 255, dtype=self.torch.uint8,
                                 device="cuda")
        begin = 256 + shift
        tensor[begin:begin + len(data)] = self.torch.from_numpy(data.copy()).cuda()
        address = tensor.data_ptr() + begin
        self.held[address] = (tensor, begin)
        return address

    def write(self, address, array):
        tensor, begin = self.held[address]
        data = array.reshape(-1).view(np.uint8)
        tensor[begin:begin + len(data)] = self.torch.from_numpy(data.copy()).cuda()

    def upload_rows(self, count, places, rows):
        """[count, width] of NaN, but for some rows."""
        data = self.torch.from_numpy(rows.view(f"i{rows.itemsize}").copy()).cuda()
        tensor = self.torch.full((count, rows.shape[1]), -1, dtype=data.dtype, device="cuda")
        tensor[self.torch.from_numpy(places).cuda()] = data
        self.held[tensor.data_ptr()] = (tensor, 0)
        return tensor.data_ptr()

    def download(self, address, array):
        tensor, begin = self.held[address]
        data = tensor[begin:begin + array.nbytes].cpu().numpy()
        return data.view(array.dtype).reshape(array.shape)

    def function(self, name, shared):
        if name not in self.functions:
            path = os.path.join(self.folder, f"{name}.{self.chip}.cubin")
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            image = open(path, "rb").read()
            self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), image))
            self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module,
                                                     name.encode()))
            self.check(self.cuda.cuFuncSetAttribute(function, 8, shared))
            self.functions[name] = function
        return self.functions[name]

    def launch(self, name, grid, threads, shared, arguments):
        function = self.function(name, shared)
        values = [ctypes.c_int64(a) if a < 1 << 63 else ctypes.c_uint64(a)
                  for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.addressof(v) for v in values))
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        self.check(self.cuda.cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared,
                                            stream, pointers, None))


class Buffer:
    """An array in the kernels' memory, rows perhaps apart, and its descriptor."""

    def __init__(self, where, array, gaps=None, shift=0):
        gaps = gaps or [0] * (array.ndim - 1)
        self.where, self.shape = where, array.shape
        self.strides = [1]
        for size, gap in zip(array.shape[:0:-1], reversed(gaps)):
            self.strides.insert(0, self.strides[0] * size + gap)
        total = max(array.shape[0] * self.strides[0], 1) if array.ndim else 1
        # NaN, or -1, where nobody should look.
        self.flat = np.full(total * array.itemsize, 0xFF, np.uint8).view(array.dtype)
        if array.size:
            self.view(self.flat)[...] = array
        self.address = where.upload(self.flat, shift)

    def view(self, flat):
        size = flat.itemsize
        return np.lib.stride_tricks.as_strided(
            flat, self.shape, [s * size for s in self.strides])

    def fetch(self):
        return self.view(self.where.download(self.address, self.flat)).copy()

    def refill(self):
        """What the array was at first: poison, of an output."""
        self.where.write(self.address, self.flat)

    def words(self):
        return memref(self.address, self.shape, self.strides, self.flat.itemsize)


def memref(address, shape, strides=None, itemsize=None):
    """A descriptor as the kernel's arguments; with an item size, one whose first
    element is not where its pointer points."""
    if strides is None:
        strides = [int(np.prod(shape[i + 1:])) for i in range(len(shape))]
    offset = 5 if itemsize else 0
    pointer = address - offset * (itemsize or 0)
    return [pointer, pointer, offset, *shape, *strides]


class Suite:
    def __init__(self, where, folder, only, runtime="libshardq_runtime.so.1", seed=None):
        self.where, self.only = where, only
        self.runtime = runtime
        self.seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        self.shapes = {}
        for line in open(os.path.join(folder, "kernels.txt")):
            name, *numbers = line.split()[:5]
            self.shapes[name] = [int(n) for n in numbers]
        self.failures = 0

    def grid(self, name, rows):
        _, _, per_row, most = self.shapes[name]
        return max(1, min(rows * per_row, most))

    def launch(self, name, rows, arguments, grid=None):
        threads, shared, _, _ = self.shapes[name]
        grid = grid or self.grid(name, rows)
        if not self.where.is_device:
            grid = min(grid, 2)  # a block then has several rows
        self.where.launch(name, grid, threads, shared, arguments)

    def repeat(self, name, rows, words, count, outputs):
        """More launches, of several grids, each over poison: the same bits as before."""
        before = [output.fetch() for output in outputs]
        for again in range(count):
            for output in outputs:
                output.refill()
            self.launch(name, rows, words, grid=[None, 1, 7, 133, 1000][again % 5])
            for output, bits in zip(outputs, before):
                assert output.fetch().tobytes() == bits.tobytes(), "runs differ"

    def check(self, name, body):
        if self.only and self.only not in name:
            return
        begin = time.time()
        try:
            self.where.reset()
            # Each check has its own numbers, whichever others run.
            note = body(np.random.default_rng(zlib.crc32(name.encode())))
            print(f"PASS {name} {note or ''} [{time.time() - begin:.1f} s]", flush=True)
        except Exception as error:  # the others still run
            self.failures += 1
            print(f"FAIL {name}: {error}", flush=True)
            if not isinstance(error, (AssertionError, ptx.Fault)):
                traceback.print_exc(limit=-3)
            if "CUDA" in str(error):
                raise


# --- Attention --------------------------------------------------------------------


def attention_reference(case, q, kv, slots, length, req, sink):
    """float64; q and kv as numbers. Row by row, each over its own keys. Also what the
    results' roundings are relative to: of `out`, sqrt(sum_k (p_k * v_k)^2) over the
    keys whose weight is rounded, not 1; of `lse`, its largest scale * sum_d |q * k|."""
    rows, heads = q.shape[:2]
    out = np.zeros((rows, heads, case.value))
    rounded = np.zeros_like(out)
    lse = np.full((rows, heads), -np.inf)
    terms = np.zeros_like(lse)
    for t in range(rows):
        columns = slots.shape[1]
        if length is not None:
            columns = min(max(length[t], 0), columns)
        if req is not None and req[t] < 0:
            columns = 0
        chosen = slots[t, :columns]
        chosen = chosen[(chosen >= 0) & (chosen < len(kv))]
        if not len(chosen):
            continue
        keys = kv[chosen]
        scale = np.float64(np.float32(case.scale))
        scores = scale * (q[t] @ keys.T)
        terms[t] = scale * (np.abs(q[t]) @ np.abs(keys).T).max(1)
        top = scores.max(1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(1)
        lse[t] = top[:, 0] + np.log(total)
        denominator = total
        if sink is not None:
            denominator = total + np.exp(sink.astype(np.float64) - top[:, 0])
        values = keys[:, :case.value]
        out[t] = weights @ values / denominator[:, None]
        others = np.where(weights == 1, 0, weights)
        rounded[t] = np.sqrt(others ** 2 @ values ** 2) / denominator[:, None]
    unit = np.log(2) if case.lse == "two" else 1
    return out, lse / unit, rounded, terms / unit


def attention_check(suite, case, rows, columns, num_slots=500, make=None, gaps=False,
                    shift=0, spread=1.0, repeat=0):
    """A check; `make` changes the inputs in place."""

    def body(rng):
        where = suite.where
        q = [narrow(rng.standard_normal((rows, case.heads, width)) * spread, case.element)
             for width in case.parts]
        kv = narrow(rng.standard_normal((num_slots, case.width)), case.element)
        slots = rng.integers(0, num_slots, (rows, columns)).astype(
            "i4" if case.slot == "i32" else "i8")
        slots[rng.random(slots.shape) < 0.1] = -1
        length = rng.integers(-1, columns + 2, rows).astype(np.int32)
        if rows > 2:
            length[0] = columns
        req = rng.integers(-1, 3, rows).astype(np.int32)
        if rows > 0:
            req[0] = 0
        sink = (rng.standard_normal(case.heads) * 2).astype(np.float32)
        inputs = dict(q=q, kv=kv, slots=slots, length=length, req=req, sink=sink)
        if make:
            make(inputs)
        apart = (lambda *numbers: list(numbers)) if gaps else (lambda *numbers: None)
        buffers = [Buffer(where, part, apart(24, 8 * (i + 1)), shift)
                   for i, part in enumerate(q)]
        stored = kv
        if case.packed:
            form = packing.Format(case.value, case.packed[0], case.width - case.value, case.packed[1])
            with np.errstate(all="ignore"):
                stored = packing.pack_oracle(form, kv)
                kv = packing.unpack_oracle(form, stored)
        buffers.append(Buffer(where, stored, apart(64), shift))
        buffers.append(Buffer(where, slots, apart(3)))
        if case.req:
            buffers.append(Buffer(where, req))
        if case.topk_length:
            buffers.append(Buffer(where, length))
        if case.sink:
            buffers.append(Buffer(where, sink))
        out = Buffer(where, np.full((rows, case.heads, case.value), 0x7FC1, np.uint16),
                     apart(16, 32), shift)
        buffers.append(out)
        if case.lse:
            lse = Buffer(where, np.full((rows, case.heads), np.nan, np.float32), apart(5))
            buffers.append(lse)
        words = [w for buffer in buffers for w in buffer.words()]

        expected, expected_lse, rounded, terms = attention_reference(
            case, np.concatenate([widen(part, case.element) for part in q], 2),
            widen(kv, case.element), slots, length if case.topk_length else None,
            req if case.req else None, sink if case.sink else None)
        suite.launch(case.name, rows, words)
        got = out.fetch()
        value = widen(got, case.element)
        assert not np.isnan(value).any(), f"{np.isnan(value).sum()} NaN in out"
        norm = np.sqrt((expected ** 2).sum((1, 2)))
        error = np.sqrt(((value - expected) ** 2).sum((1, 2)))
        limit = 2.5e-3 if case.element == "bf16" else 4e-4
        allowed = limit * norm
        if case.heads * case.value < 512:
            # Few values: their roundings, of up to 2^-8 (bf16), do not average, and where
            # they nearly cancel, those of the weights are large next to their sum.
            allowed = 2 * limit * np.hypot(norm, np.sqrt((rounded ** 2).sum((1, 2))))
        relative = error / np.maximum(norm, 1e-30)
        if (error > allowed).any():
            row = (error / np.maximum(allowed, 1e-30)).argmax()
            raise AssertionError(f"out is off by {relative[row]:.2e} in row {row}")
        note = f"out {relative.max(initial=0.0):.1e}"
        if case.lse:
            got_lse = lse.fetch().astype(np.float64)
            assert not np.isnan(got_lse).any(), "NaN in lse"
            assert ((got_lse == -np.inf) == (expected_lse == -np.inf)).all(), "-inf in lse"
            finite = expected_lse != -np.inf
            want = expected_lse[finite]
            off = np.abs(got_lse[finite] - want)
            # A score is a sum in f32 and no better than its terms, however small it is:
            # 2^-24 of them for each of two roundings (a device's sums are cut off).
            allowed = np.maximum(1e-5 * np.maximum(1, np.abs(want)),
                                 2.0 ** -23 * terms[finite])
            if (off > allowed).any():
                worst = (off / allowed).argmax()
                raise AssertionError(
                    f"lse is off by {off[worst]:.2e} where it is {want[worst]:.2e}")
            note += f", lse {off.max(initial=0.0):.1e}"
        suite.repeat(case.name, rows, words, repeat, [out, lse] if case.lse else [out])
        return note

    return body


def attention_checks(suite):
    big = suite.where.is_device
    by_name = {case.name: case for case in cases.ATTENTION + cases.PACKED_ATTENTION}

    def check(name, label, *args, **options):
        suite.check(f"{name}: {label}",
                    attention_check(suite, by_name[name], *args, **options))

    rows, columns = (17, 2051) if big else (2, 70)
    for case in by_name.values():
        check(case.name, f"{rows} rows, {columns} keys", rows, columns,
              num_slots=3000 if big else 100)
        check(case.name, "strided", 3, 192 if big else 40, gaps=True)
    check("packed_h8_w144", "unaligned", 2, 40, shift=2)
    for case in ("mla_h16", "mla_h64", "mla_h128", "packed_h16"):
        for columns in (64, 192, 256, 2048) if big else (1, 32, 64):
            check(case, f"{columns} keys", 5 if big else 1, columns)
        check(case, "no rows", 0, 64)
        check(case, "no columns", 2, 0)

        def nothing_first(inputs):
            inputs["slots"][:, :40] = -1
            inputs["length"][:] = 1 << 20
            inputs["req"][:] = 1

        def poisoned(inputs):
            # Slot 0 and whatever nobody lists hold NaN.
            slots, kv = inputs["slots"], inputs["kv"]
            slots[slots == 0] = 1
            kv[0] = 0x7FC0
            slots[:, ::3] = -1
            slots[:, 1::7] = len(kv)
            slots[:, 2::11] = 1 << 30

        def none_at_all(inputs):
            inputs["slots"][:] = -1
            inputs["slots"][-1, :] = len(inputs["kv"])

        def all_same(inputs):
            inputs["slots"][:] = 7

        def beyond(inputs):
            # Columns behind the length hold good slots of rows with NaN.
            inputs["length"][:] = np.arange(len(inputs["length"])) * 5
            inputs["slots"][:] %= 50
            for t, length in enumerate(inputs["length"]):
                inputs["slots"][t, length:] = len(inputs["kv"]) - 1
            inputs["kv"][-1] = 0x7FC0

        rows, columns = (33, 300) if big else (2, 72)
        check(case, "leading -1", rows, columns, make=nothing_first)
        check(case, "NaN in what is not listed", rows, columns, make=poisoned)
        check(case, "no valid key", rows, columns, make=none_at_all)
        check(case, "one slot only", rows, columns, make=all_same)
        if by_name[case].topk_length:
            check(case, "NaN behind the length", rows, columns, make=beyond)
        check(case, "large scores", rows, columns, spread=30.0)
        check(case, "unaligned", 2, 40, shift=2)
    suite.check("mla_h16: " + ("cache of more than 4 GiB" if big else "cache of NaN"),
                large_cache(suite, by_name["mla_h16"], 5_000_000 if big else 2000))
    if not big:
        return
    check("mla_h128", "300 rows", 300, 512, num_slots=20000)
    check("mla_h1_w8_v8", "70,000 rows", 70000, 3)
    for case in ("mla_h16", "mla_h31", "mla_h128", "mla_h96", "packed_h128"):
        check(case, "20 runs, several grids", 40, 512, repeat=20)


def large_cache(suite, case, num_slots):
    """Of 1,152 bytes a slot; NaN in those that nobody lists."""

    def body(rng):
        where = suite.where
        rows, columns = (9, 256) if where.is_device else (2, 40)
        used = np.unique(np.concatenate([rng.integers(0, num_slots, 1000),
                                         num_slots - 1 - np.arange(50)]))
        data = narrow(rng.standard_normal((len(used), case.width)), "bf16")
        place = rng.integers(0, len(used), (rows, columns))
        q = [narrow(rng.standard_normal((rows, case.heads, w)), "bf16") for w in case.parts]
        length = np.full(rows, columns, np.int32)
        sink = np.zeros(case.heads, np.float32)
        out = Buffer(where, np.full((rows, case.heads, case.value), 0x7FC1, np.uint16))
        lse = Buffer(where, np.full((rows, case.heads), np.nan, np.float32))
        words = [w for part in q for w in Buffer(where, part).words()]
        words += memref(where.upload_rows(num_slots, used, data), (num_slots, case.width))
        for buffer in (Buffer(where, used[place].astype(np.int32)), Buffer(where, length),
                       Buffer(where, sink), out, lse):
            words += buffer.words()
        suite.launch(case.name, rows, words)
        expected, expected_lse, *_ = attention_reference(
            case, np.concatenate([widen(part, "bf16") for part in q], 2),
            widen(data, "bf16"), place, length, None, sink)
        value = widen(out.fetch(), "bf16")
        error = np.linalg.norm(value - expected) / np.linalg.norm(expected)
        assert error < 2.5e-3, f"out is off by {error:.2e}"
        off = np.abs(lse.fetch() - expected_lse).max()
        assert off < 1e-4, f"lse is off by {off:.2e}"
        suite.repeat(case.name, rows, words, 3, [out, lse])
        return f"out {error:.1e}"

    return body


# --- Indexer ----------------------------------------------------------------------


def compare_scores(case, got, poison, inputs, first_row=0):
    """How far scores are off, relative to what is allowed."""
    q, w, keys, table, req, visible = (
        inputs[name] for name in ("q", "w", "keys", "table", "req", "visible"))
    rows, wide = got.shape
    requests, blocks = table.shape
    num_keys = len(keys)
    q64, k64 = widen(q, case.element), widen(keys, case.element)
    worst = 0.0
    for r in range(rows):
        t = r + first_row
        seen = min(max(visible[t], 0), wide)
        assert (got[r, seen:] == poison).all(), f"row {r} written behind {seen}"
        position = np.arange(seen)
        block = position // case.block
        row = np.full(seen, -1, np.int64)
        if 0 <= req[t] < requests:
            inside = block < blocks
            entry = np.full(seen, -1, np.int64)
            entry[inside] = table[req[t], block[inside]]
            row = np.where(entry >= 0, entry * case.stride + position % case.block, -1)
            row[row >= num_keys] = -1
        bits = got[r, :seen].view(np.uint32)
        missing = row < 0
        assert (bits[missing] == NO_KEY).all(), f"row {r}: keys that do not exist"
        with np.errstate(all="ignore"):
            dots = q64[t] @ k64[row[~missing]].T
            bad = np.isnan(dots).any(0)
            expected = w[t].astype(np.float64) @ np.maximum(dots, 0)
            size = np.abs(w[t].astype(np.float64)) @ (
                np.abs(q64[t]) @ np.abs(k64[row[~missing]]).T)
        assert (bits[~missing][bad] == OTHER_NAN).all(), f"row {r}: NaN"
        good = ~bad & np.isfinite(expected)
        value = got[r, :seen][~missing].astype(np.float64)
        assert (np.isnan(value) == bad).all() or not np.isfinite(expected).all(), (
            f"row {r}: NaN that is none")
        error = np.abs(value - expected)[good] / np.maximum(size[good], 1e-30)
        worst = max(worst, error.max(initial=0.0) * 2 ** 18)
    return worst


def indexer_check(suite, case, rows, blocks, requests=3, first_row=0, width=None,
                  make=None, gaps=False, shift=0, repeat=0):
    def body(rng):
        where = suite.where
        total_rows = rows + first_row
        span = blocks * case.block
        wide = span if width is None else width
        num_keys = 2 * blocks * case.stride + 5
        q = narrow(rng.standard_normal((total_rows, case.heads, case.dim)), case.element)
        w = rng.standard_normal((total_rows, case.heads)).astype(np.float32)
        keys = narrow(rng.standard_normal((num_keys, case.dim)), case.element)
        table = rng.integers(0, num_keys // case.stride + 1,
                             (requests, blocks)).astype(np.int32)
        table[rng.random(table.shape) < 0.1] = -1
        req = np.sort(rng.integers(-1, requests + 1, total_rows)).astype(np.int32)
        visible = rng.integers(-1, span + 20, total_rows).astype(np.int32)
        visible[-1:] = span
        inputs = dict(q=q, w=w, keys=keys, table=table, req=req, visible=visible)
        if make:
            make(inputs)
        apart = (lambda *numbers: list(numbers)) if gaps else (lambda *numbers: None)
        buffers = [Buffer(where, q, apart(8, 16), shift), Buffer(where, w, apart(3)),
                   Buffer(where, keys, apart(8), shift), Buffer(where, table, apart(1)),
                   Buffer(where, req), Buffer(where, visible),
                   Buffer(where, np.zeros((total_rows, 64), np.int32))]
        poison = 12345.0
        scores = Buffer(where, np.full((rows, wide), poison, np.float32))
        words = [x for b in buffers for x in b.words()] + [first_row] + scores.words()
        suite.launch(case.name, rows, words)
        got = scores.fetch()

        worst = compare_scores(case, got, poison, inputs, first_row)
        assert worst <= 1, f"scores are off by {worst:.2f} of what is allowed"
        suite.repeat(case.name, rows, words, repeat, [scores])
        return f"{worst:.3f} of the tolerance"

    return body


def large_keys(suite, case, num_keys):
    """Of 256 bytes a key; NaN in those that no table has."""

    def body(rng):
        where = suite.where
        rows, blocks, block = 20 if where.is_device else 3, 6, case.block
        # Pages at both ends and anywhere between.
        pages = np.unique(np.concatenate([
            np.arange(3), num_keys // block - 1 - np.arange(5),
            rng.integers(0, num_keys // block, 12)]))
        keys = narrow(rng.standard_normal((len(pages) * block, case.dim)), case.element)
        places = (pages[:, None] * block + np.arange(block)).reshape(-1)
        span = blocks * block
        table = rng.integers(0, len(pages), (2, blocks)).astype(np.int32)
        table[0, :2], table[1, 0] = [len(pages) - 1, 0], len(pages) - 2
        inputs = dict(q=narrow(rng.standard_normal((rows, case.heads, case.dim)), case.element),
                      w=rng.standard_normal((rows, case.heads)).astype(np.float32),
                      keys=keys, table=table, req=(np.arange(rows) % 2).astype(np.int32),
                      visible=np.full(rows, span, np.int32))
        inputs["visible"][1::2] = rng.integers(0, span, rows // 2)
        poison = 12345.0
        scores = Buffer(where, np.full((rows, span), poison, np.float32))
        words = [*Buffer(where, inputs["q"]).words(), *Buffer(where, inputs["w"]).words(),
                 *memref(where.upload_rows(num_keys, places, keys), (num_keys, case.dim)),
                 *Buffer(where, pages[table].astype(np.int32)).words(),
                 *Buffer(where, inputs["req"]).words(), *Buffer(where, inputs["visible"]).words(),
                 *Buffer(where, np.zeros((rows, 64), np.int32)).words(), 0, *scores.words()]
        suite.launch(case.name, rows, words)
        worst = compare_scores(case, scores.fetch(), poison, inputs)
        assert worst <= 1, f"scores are off by {worst:.2f} of what is allowed"
        suite.repeat(case.name, rows, words, 3, [scores])
        return f"{worst:.3f} of the tolerance"

    return body


def indexer_checks(suite):
    big = suite.where.is_device
    by_name = {case.name: case for case in cases.INDEXER}

    def check(name, label, *args, **options):
        suite.check(f"{name}: {label}",
                    indexer_check(suite, by_name[name], *args, **options))

    def poisoned(inputs):
        inputs["keys"][3] = 0x7FC0
        inputs["keys"][70, 5] = 0xFF80  # -inf
        inputs["q"][0, 1] = 0x7FC0

    def one_request(inputs):
        inputs["req"][:] = 1

    def nothing_seen(inputs):
        inputs["visible"][:] = 0

    for case in cases.INDEXER:
        positions = 3000 if big else 300
        blocks = max(1, positions // case.block)
        check(case.name, "ragged", 50 if big else 5, blocks)
        check(case.name, "strided", 20 if big else 3, blocks, gaps=True)
        check(case.name, "rows behind the first", 7 if big else 2, blocks, first_row=9)
        check(case.name, "unaligned", 3 if big else 2, blocks, shift=2)
        if case.element == "bf16":
            check(case.name, "NaN and infinity", 20 if big else 2, blocks, make=poisoned)
    check("idx_h64", "no rows", 0, 4)
    check("idx_h64", "nothing seen", 3, 4, make=nothing_seen)
    check("idx_h64", "narrow scores", 3, 5, width=70)
    check("idx_h64", "scores beyond the table", 3, 5, width=400)
    check("idx_h64", "one request", 40 if big else 18, 4, make=one_request)
    suite.check("idx_h64: " + ("keys of more than 4 GiB" if big else "keys of NaN"),
                large_keys(suite, by_name["idx_h64"], 20_000_000 if big else 5000))
    if not big:
        check("idx_h64", "runs again", 5, 3, repeat=4)
    if big:
        check("idx_h64", "20 runs, several grids", 40, 40, repeat=20)
        check("idx_h5_d40", "66,000 rows", 66000, 20)


# --- Top-k ------------------------------------------------------------------------


def topk_reference(case, scores, visible, first_row):
    rows = max(0, min(len(scores), len(visible) - first_row))
    result = np.full((rows, case.k), -1, np.int32)
    for r in range(rows):
        n = min(max(visible[first_row + r], 0), scores.shape[1])
        row = scores[r, :n]
        position = np.arange(n)
        if case.holes:
            position = position[row.view(np.uint32) != NO_KEY]
        with np.errstate(invalid="ignore"):  # signalling NaN
            value = row[position].astype(np.float64)
        nan = np.isnan(value)
        order = np.lexsort((position, -np.where(nan, 0, value), nan))
        chosen = np.sort(position[order[:case.k]])
        result[r, :len(chosen)] = chosen
    return result


def topk_check(suite, case, scores, visible=None, first_row=0, gap=0, shift=0, repeat=0):
    def body(rng):
        where = suite.where
        data = scores(rng) if callable(scores) else scores
        seen = np.full(len(data) + first_row, data.shape[1], np.int32)
        if visible is not None:
            seen[first_row:] = visible
        source = Buffer(where, data, [gap], shift)
        result = Buffer(where, np.full((len(seen), case.k), 77, np.int32))
        words = [*source.words(), *Buffer(where, seen).words(), *result.words(), first_row]
        suite.launch(case.name, len(data), words)
        got = result.fetch()
        expected = topk_reference(case, data, seen, first_row)
        assert (got[:first_row] == 77).all(), "rows before the first are written"
        wrong = (got[first_row:] != expected).any(1)
        assert not wrong.any(), (
            f"{wrong.sum()} of {len(wrong)} rows are wrong, first {wrong.argmax()}: "
            f"{got[first_row:][wrong][0][:8]} is not {expected[wrong][0][:8]}")
        suite.repeat(case.name, len(data), words, repeat, [result])

    return body


def topk_checks(suite):
    big = suite.where.is_device
    by_name = {case.name: case for case in cases.TOPK}

    def check(name, label, scores, **options):
        suite.check(f"{name}: {label}",
                    topk_check(suite, by_name[name], scores, **options))

    def random(rows, width):
        return lambda rng: rng.standard_normal((rows, width)).astype(np.float32)

    def ties(rng):
        scores = np.zeros((3, 8320), np.float32)
        scores[1] = -0.0
        scores[0, rng.permutation(8320)[:100]] = rng.random(100) + 1
        scores[1, rng.permutation(8320)[:4000]] = 0.0
        scores[2, rng.permutation(8320)[:100]] = -rng.random(100) - 1
        return scores

    def low_bits(rng):
        bits = 0x40000000 + rng.integers(0, 1024, (3, 9000))
        bits[1] |= 0x80000000
        return bits.astype(np.uint32).view(np.float32)

    def with_nan(rng):
        scores = rng.standard_normal((4, 5000)).astype(np.float32)
        bits = scores.view(np.uint32)
        bits[0, rng.permutation(5000)[:4000]] = OTHER_NAN
        bits[1] = 0xFFC00001
        bits[2, ::2] = 0x7F800001
        scores[3, ::3] = -np.inf
        scores[3, ::5] = np.inf
        return scores

    def with_holes(rng):
        scores = rng.standard_normal((5, 5000)).astype(np.float32)
        bits = scores.view(np.uint32)
        bits[0, rng.permutation(5000)[:2000]] = NO_KEY
        bits[1, rng.permutation(5000)[:4000]] = NO_KEY
        bits[2] = NO_KEY
        bits[3, :3000] = NO_KEY
        bits[3, 3000:4000] = OTHER_NAN
        bits[4, rng.permutation(5000)[:2952]] = NO_KEY  # 2,048 are left
        return scores

    def denormals(rng):
        bits = rng.integers(0, 5000, (2, 6000)) | (rng.integers(0, 2, (2, 6000)) << 31)
        return bits.astype(np.uint32).view(np.float32)

    for case in cases.TOPK:
        k = case.k
        lengths = np.array([-1, 0, 1, k - 1, k, k + 1, 3 * k, 1 << 30], np.int32)
        check(case.name, "row lengths", random(8, 3 * k + 7), visible=lengths)
        check(case.name, "rows behind the first", random(3, 2 * k + 5), first_row=4)
        check(case.name, "row strides", random(3, 2 * k + 3), gap=2)
        check(case.name, "unaligned", random(2, 2 * k + 3), shift=4)
        check(case.name, "ties", ties)
        check(case.name, "low bits", low_bits)
        check(case.name, "NaN", with_nan)
        check(case.name, "holes", with_holes)
        check(case.name, "denormals", denormals)
        check(case.name, "no rows", random(0, 100))
    check("topk_2048", "rows that shared memory cannot hold",
          random(3, 100001) if big else random(1, 40001))
    check("topk_2048", "such rows, unaligned",
          random(3, 100001) if big else random(1, 33001), shift=4)
    check("topk_2048_holes", "rows that just fit",
          random(4, 32770), visible=np.array([32767, 32768, 32769, 32770]))
    if not big:
        check("topk_2051", "runs again", ties, repeat=4)
    if big:
        for name in ("topk_2048", "topk_192", "topk_2051"):
            check(name, "20 runs, several grids", random(300, 20000), repeat=20)
        check("topk_5", "70,000 rows", random(70000, 50))


# --- Times ------------------------------------------------------------------------


def times(suite):
    torch = suite.where.torch
    table = []

    def measure(run, inner=5, count=20):
        """Median time of one run, in ms; in a graph, so that launches cost nothing."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(inner):
                run()
        for _ in range(3):
            graph.replay()
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                  for _ in range(count)]
        for begin, end in events:
            begin.record()
            graph.replay()
            end.record()
        torch.cuda.synchronize()
        return float(np.median([b.elapsed_time(e) for b, e in events])) / inner

    def describe(tensor):
        return memref(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))

    def attention(name, rows, columns, num_slots):
        case = {c.name: c for c in cases.ATTENTION}[name]
        q = [torch.randn(rows, case.heads, w, dtype=torch.bfloat16, device="cuda")
             for w in case.parts]
        kv = torch.randn(num_slots, case.width, dtype=torch.bfloat16, device="cuda")
        slots = torch.stack([torch.randperm(num_slots, device="cuda")[:columns]
                             for _ in range(rows)])
        slots = slots.to(torch.int64 if case.slot == "i64" else torch.int32)
        slots = slots.sort(1).values.contiguous()
        extra = []
        if case.req:
            extra.append(torch.zeros(rows, dtype=torch.int32, device="cuda"))
        if case.topk_length:
            extra.append(torch.full((rows,), columns, dtype=torch.int32, device="cuda"))
        if case.sink:
            extra.append(torch.zeros(case.heads, device="cuda"))
        extra.append(torch.empty(rows, case.heads, case.value, dtype=torch.bfloat16,
                                 device="cuda"))
        if case.lse:
            extra.append(torch.empty(rows, case.heads, device="cuda"))
        words = [w for t in [*q, kv, slots, *extra] for w in describe(t)]
        ms = measure(lambda: suite.launch(name, rows, words))
        work = 2 * rows * case.heads * columns * (case.width + case.value)
        table.append((f"attention T={rows} H={case.heads} K={columns} keys={num_slots}",
                      f"{ms:.3f} ms", f"{work / ms / 1e9:.0f} TFLOP/s"))

    def indexer(rows, num_keys):
        name = "idx_h64"
        q = torch.randn(rows, 64, 128, dtype=torch.bfloat16, device="cuda")
        w = torch.randn(rows, 64, device="cuda")
        keys = torch.randn(num_keys, 128, dtype=torch.bfloat16, device="cuda")
        table_ = torch.arange(num_keys // 64, dtype=torch.int32, device="cuda")[None]
        req = torch.zeros(rows, dtype=torch.int32, device="cuda")
        visible = torch.full((rows,), num_keys, dtype=torch.int32, device="cuda")
        result = torch.empty(rows, 64, dtype=torch.int32, device="cuda")
        scores = torch.empty(rows, num_keys, device="cuda")
        words = [x for t in (q, w, keys, table_, req, visible, result) for x in describe(t)]
        words += [0, *describe(scores)]
        ms = measure(lambda: suite.launch(name, rows, words))
        work = 2 * rows * num_keys * 64 * 128
        table.append((f"indexer rows={rows} keys={num_keys}", f"{ms:.3f} ms",
                      f"{work / ms / 1e9:.0f} TFLOP/s"))

    def topk(rows, width, kind):
        scores = torch.randn(rows, width, device="cuda")
        if kind == "relu":
            scores = scores.relu()
        visible = torch.full((rows,), width, dtype=torch.int32, device="cuda")
        result = torch.empty(rows, 2048, dtype=torch.int32, device="cuda")
        for name in ("topk_2048", "topk_2048_holes"):
            words = [*describe(scores), *describe(visible), *describe(result), 0]
            ms = measure(lambda: suite.launch(name, rows, words))
            base = measure(lambda: torch.topk(scores, 2048, dim=1, sorted=False))
            table.append((f"{name} {rows}x{width} {kind}", f"{ms:.3f} ms",
                          f"torch.topk {base:.3f} ms, {base / ms:.1f}x"))

    def filter_(name, rows, positions):
        case = {c.name: c for c in cases.FILTER}[name]
        indices = torch.stack([torch.randperm(positions, device="cuda")[:case.width]
                               for _ in range(rows)]).to(torch.int32).sort(1).values.contiguous()
        blocks = -(-positions // case.block)
        table_ = torch.randperm(blocks, device="cuda").to(torch.int32)[None].contiguous()
        req = torch.zeros(rows, dtype=torch.int32, device="cuda")
        slots, counts = torch.empty_like(indices), torch.empty_like(req)
        words = [x for t in (indices, table_, req, slots, counts) for x in describe(t)] + [0]
        ms = measure(lambda: suite.launch(name, rows, words))
        table.append((f"{name} rows={rows}", f"{1000 * ms:.2f} us",
                      f"{2 * rows * case.width * 4 / ms / 1e6:.0f} GB/s"))

    def blocks(name, requests, width):
        case = {c.name: c for c in cases.BLOCKS}[name]
        table_ = torch.randperm(requests * width, device="cuda").to(torch.int32)
        table_ = table_.reshape(requests, width).contiguous()
        lengths = torch.full((requests,), width * case.ranks * case.block, dtype=torch.int32,
                             device="cuda")
        list_, inverse = torch.empty_like(table_.reshape(-1)), torch.empty_like(table_)
        count = torch.empty(1, dtype=torch.int32, device="cuda")
        words = [x for t in (table_, lengths, list_, inverse, count) for x in describe(t)]

        def run():
            suite.launch(f"{name}_list", 1, words)
            suite.launch(f"{name}_inverse", -(-requests * width // 256), words)

        ms = measure(run)
        table.append((f"{name} table={requests}x{width}", f"{1000 * ms:.2f} us",
                      f"{requests * width / ms / 1e6:.2f} G/s"))

    def gathered(name, rows, positions):
        case = {c.name: c for c in cases.GATHERED}[name]
        indices = torch.stack([torch.randperm(positions, device="cuda")[:case.width]
                               for _ in range(rows)]).to(torch.int32).sort(1).values.contiguous()
        width = -(-positions // (case.block * case.ranks))
        inverse = torch.randperm(width, device="cuda").to(torch.int32)[None].contiguous()
        count = torch.full((1,), width, dtype=torch.int32, device="cuda")
        req = torch.zeros(rows, dtype=torch.int32, device="cuda")
        slots, counts = torch.empty_like(indices), torch.empty_like(req)
        words = [x for t in (indices, inverse, count, req, slots, counts) for x in describe(t)]
        ms = measure(lambda: suite.launch(name, rows, words))
        table.append((f"{name} rows={rows}", f"{1000 * ms:.2f} us",
                      f"{2 * rows * case.width * 4 / ms / 1e6:.0f} GB/s"))

    def merge(name, rows):
        case = {c.name: c for c in cases.MERGE}[name]
        inbox = torch.randn(case.ranks * rows, case.heads, case.value + 8, device="cuda",
                            dtype=torch.bfloat16)
        # Of all members LSEs of a like size.
        inbox.view(torch.float32)[..., case.value // 2] = torch.rand(
            case.ranks * rows, case.heads, device="cuda")
        out = torch.empty(rows, case.heads, case.value, device="cuda", dtype=torch.bfloat16)
        words = [*describe(inbox), *describe(out)]
        merged = torch.empty(rows, case.heads, device="cuda")
        words += describe(merged) if case.merged else []
        ms = measure(lambda: suite.launch(name, rows, words))
        moved = 2 * (inbox.numel() + out.numel())
        table.append((f"{name} rows={rows}", f"{1000 * ms:.2f} us", f"{moved / ms / 1e6:.0f} GB/s"))

    for run, *args in (
            *((filter_, name, rows, 32768) for name in ("filter_2048", "filter_2048_one")
              for rows in (1, 128, 8192)),
            *((gathered, "gather_slots_2048", rows, 32768) for rows in (1, 128, 8192)),
            *((blocks, "gather_blocks_8_64", *shape) for shape in ((1, 64), (32, 256), (256, 640))),
            *((merge, "merge_2_h32", rows) for rows in (1, 128, 4096)),
            *((merge, "merge_8", rows) for rows in (1, 128, 4096)),
            (attention, "mla_h128", 512, 2048, 32768),
            (attention, "mla_h16", 4096, 2048, 32768),
            (attention, "mla_h64", 4096, 2048, 32768),
            (attention, "mla_h24", 4096, 2048, 32768),
            (attention, "mla_h128", 8, 2048, 32768),
            (indexer, 512, 32768), (indexer, 4096, 8192), (indexer, 8, 32768),
            (topk, 512, 32768, "normal"), (topk, 4096, 32768, "normal"),
            (topk, 512, 32768, "relu"), (topk, 512, 131072, "normal")):
        try:
            run(*args)
        except Exception as error:
            suite.failures += 1
            print(f"FAIL time of {args}: {error}", flush=True)
        torch.cuda.empty_cache()
    print()
    for line in table:
        print("{:<48} {:>12}  {}".format(*line))


# --- Requests in chunks -----------------------------------------------------------


class Chunks:
    """The functions of runtime/split/Chunks.cpp, on arrays."""

    PARTS = {"all": 0, "head": 1, "tail": 2}

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.shardq_chunk_part_rows.restype = ctypes.c_int64

    def call(self, name, *values):
        """Arrays are handed as pointers, int as 64 bits, and c_int32 as it is."""
        given = [v if isinstance(v, ctypes.c_int32) else ctypes.c_int64(int(v))
                 if not isinstance(v, np.ndarray) else v.ctypes.data_as(ctypes.c_void_p)
                 for v in values]
        return getattr(self.library, name)(*given)

    def count(self, starts, decodes, rows, ranks, part):
        return self.call("shardq_chunk_part_rows", starts, max(len(starts) - 1, 0), decodes, rows,
                         ranks, ctypes.c_int32(self.PARTS[part]))

    def split(self, starts, decodes, rows, ranks, rank, by_part, mine, restore):
        self.call("shardq_chunk_split", starts, max(len(starts) - 1, 0), decodes, rows, ranks, rank,
                  ctypes.c_int32(by_part), len(mine), mine, len(restore), restore)

    def lengths(self, starts, lens, decodes, rows, ranks, rank, part, first, lengths, own):
        first[:], lengths[:] = 0, 0
        requests = min(len(starts) - 1, len(lens))
        self.call("shardq_chunk_lengths", starts, requests, decodes, rows, ranks, rank,
                  ctypes.c_int32(self.PARTS[part]), lens, first, lengths, len(own), own)

    def slots(self, starts, decodes, ranks, by_part, local, slots, order, padded, own=False):
        self.call("shardq_chunk_own_order" if own else "shardq_chunk_order", starts, max(len(starts) - 1, 0), decodes, len(slots), ranks,
                  ctypes.c_int32(by_part), local, ctypes.c_int32(slots.itemsize), slots, len(order),
                  order, padded)


def check_told(told, wrong):
    """Words that threads wrote who found something wrong, all of them in any order."""
    told, wrong = [int(word) for word in told], wrong or {(-7,) * len(told)}
    for word, numbers in zip(told, zip(*wrong)):
        assert word in numbers, f"{told} was told, expected one of {sorted(wrong)[:9]}"


def check_starts(record, starts, decodes, rows):
    """What was told of starts, and of decodes unless they are None, in the words of `record`."""
    told = [int(word) for word in record.fetch()]
    starts = [int(s) for s in starts]
    wrong = {(i, s, before, rows) for i, (before, s) in enumerate(zip([0, *starts], starts))
             if s < before or s > rows or (i == 0 and s != 0)}
    check_told(told[:4], wrong)
    expected = [decodes, rows] if decodes is not None and not 0 <= decodes <= rows else [-7, -7]
    assert told[4:6] == expected, f"{told[4:6]} was told of decodes, expected {expected}"
    check_told(told[6:9], {(decodes, i, end) for i, (begin, end) in enumerate(zip(starts, starts[1:]))
                           if decodes is not None and begin < decodes < end})


def chunk_check(suite, case, make, rank=0, more=0, gap=0):
    """A check. `make(rng)` gives starts, decodes and rows; results have `more` rows than
    there are."""

    def body(rng):
        where, chunks = suite.where, Chunks(suite.runtime)
        starts, decodes, rows = make(rng)
        starts, decodes, rows = np.asarray(starts, np.int32), int(decodes), int(rows)
        total = chunks.count(starts, decodes, rows if case.op != "slots" else (1 << 31) - 1,
                             case.ranks, "all")

        def array(size, dtype=np.int32):
            return np.full(max(size, 0), 77, dtype)

        def run(inputs, outs, scalars, before=()):
            """Operands: `before`, inputs, scalars, outs; fetched outs."""
            places = [Buffer(where, out) for out in outs]
            words = [w for given in (*before, *inputs) for w in Buffer(where, given).words()]
            words += [int(s) & (1 << 64) - 1 for s in scalars]
            words += [w for place in places for w in place.words()]
            table = np.full((len(starts) + 2, 3), -1, np.int32)
            record = Buffer(where, np.full(9, -7, np.int64))
            words += [record.address] * (case.op != "lengths") + [rank, *memref(Buffer(where, table).address, table.shape)]
            suite.launch(case.name + "_table", 1, words)
            suite.launch(case.name + "_rows", -(-max(map(len, outs), default=1) // 256), words)
            if case.op == "split":
                check_starts(record, starts, decodes, rows)
            if case.op == "slots":
                found = min(scalars[1], len(outs[0]) // case.ranks)
                told = [int(word) for word in record.fetch()[4:6]]
                assert told == ([found, total] if found < total else [-7, -7]), (
                    f"{told} was told of {found} rows of a rank, and the step has {total}")
            return [place.fetch() for place in places]

        def compare(names, got, want):
            for name, found, expected in zip(names, got, want):
                wrong = np.flatnonzero(found != expected)
                assert not len(wrong), (
                    f"{len(wrong)} of {len(found)} of {name} are wrong, first {wrong[0]}: "
                    f"{found[wrong[0]]} is not {expected[wrong[0]]}; starts {starts[:40]}, "
                    f"decodes {decodes}, rows {rows}, rank {rank}, seed {suite.seed}")

        if case.op == "count":
            cell = Buffer(where, np.full(1, 77, np.int64))
            suite.launch(case.name, 1, [
                *Buffer(where, starts).words(), decodes & (1 << 64) - 1, rows & (1 << 64) - 1,
                *memref(cell.address, (1,))])
            want = chunks.count(starts, decodes, rows, case.ranks, case.part)
            compare(["count"], [cell.fetch()], [np.array([want])])
        elif case.op == "split":
            outs = [array(total + more), array(rows + max(more, 0))]
            want = [out.copy() for out in outs]
            chunks.split(starts, decodes, rows, case.ranks, rank, case.by_part, *want)
            compare(["mine", "restore"], run([starts], outs, [decodes, rows]), want)
        elif case.op == "lengths":
            lens = rng.integers(0, 9999, max(len(starts) - 1 - (more > 1), 0)).astype(np.int32)
            lens[rng.random(len(lens)) < 0.05] = [-(1 << 31), (1 << 31) - 1][rank % 2]
            size = chunks.count(starts, decodes, rows, case.ranks, case.part)
            outs = [array(len(starts)), array(len(starts) - 1), array(size + more)]
            want = [out.copy() for out in outs]
            if len(starts):
                chunks.lengths(starts, lens, decodes, rows, case.ranks, rank, case.part, *want)
            else:
                want[2][:] = -1
            compare(["starts", "lengths", "own"],
                    run([starts, lens], outs, [decodes, rows]), want)
        else:
            dtype = np.int64 if case.slot == "i64" else np.int32
            slots = rng.integers(-1, 1 << (40 if case.slot == "i64" else 31), max(rows, 0)).astype(dtype)
            local = total + more
            size = min(max(total * case.ranks + more, 0), 4000)
            outs = [array(size), array(size, dtype)]
            want = [out.copy() for out in outs]
            chunks.slots(starts, decodes, case.ranks, case.by_part, local, slots, *want, own=case.own)
            compare(["order", "padded"],
                    run([starts], outs, [decodes, local], before=[slots]), want)
        return f"seed {suite.seed}" if make.__name__ == "ragged" else None

    return body


def chunk_checks(suite):
    big = suite.where.is_device
    requests = 1500 if big else 40

    def batch(decodes, prefills, padding=0):
        def make(_):
            lens = [*decodes, *prefills]
            starts = np.concatenate([[0], np.cumsum(lens)]).astype(int)
            return starts, sum(decodes), starts[-1] + padding
        return make

    def ragged(_):
        rng = np.random.default_rng(suite.seed)
        decodes = rng.integers(0, 4, rng.integers(0, requests))
        prefills = rng.integers(0, rng.integers(2, 60), rng.integers(0, requests))
        return batch(decodes, prefills, int(rng.integers(0, 20)))(None)

    def odd(starts, decodes, rows):
        return lambda _: (starts, decodes, rows)

    def scattered(rng):
        # Neither ascending nor within the rows; the decodes end anywhere.
        return rng.integers(-30, 150, 30), int(rng.integers(-5, 120)), 100

    for case in cases.CHUNK:
        def check(label, make, **options):
            suite.check(f"{case.name}: {label}", chunk_check(suite, case, make, **options))

        ranks, last = case.ranks, case.ranks - 1
        check("golden", batch([1, 1], [10, 3]), rank=last // 2)
        check("ragged", ragged, rank=last)
        check("ragged again", ragged, rank=0, more=3)
        check("no requests", odd([0], 0, 0))
        check("no starts", odd([], 0, 3), more=2)
        check("rows of no request", odd([0], 0, 5), more=1)
        check("decodes only", batch([1, 2, 1, 3], [], 2), rank=last)
        check("all rows whole", odd([0, 10, 13, 40], 45, 45), rank=last)
        check("shorter than the chunks", batch([1], range(1, 2 * ranks + 2)), rank=last)
        check("empty requests", batch([0, 2, 0], [0, 9, 0, 0, 4, 0], 1), rank=last // 2)
        check("fewer rows than there are", batch([1], [5, 9, 2]), rank=last, more=-4)
        check("odd starts", scattered, rank=last)
        check("other odd starts", odd([5, 3, 9, -4, 9, 40, 12, 60], 9, 37), rank=0, more=2)
        check("starts behind the rows", odd([2, 7, 50, 90], 4, 20), rank=last)
        check("no rows", odd([0, 4, 9], 4, 0))
        check("negative decodes", odd([0, 4, 9], -3, 9), rank=last)
        if case.op == "slots":
            check("as far as numbers go", odd([0, 3, (1 << 31) - 1], 3, 40), more=0)
        many = np.arange(1300 if big or case.op == "count" else 600) % 3
        check("many requests", batch(many[:70] // 2, many[70:]), rank=last)


ROW_BITS = {"bf16": np.uint16, "f16": np.uint16, "f32": np.uint32, "i8": np.uint8, "i32": np.uint32}


def missing_bits(case):
    text, dtype = case.missing.split(" ")[0], ROW_BITS[case.element]
    if not text or text.startswith("0x"):
        return dtype(int(text or "0", 16))
    number = {"f32": np.float32, "i32": np.int32}[case.element](float(text))
    return number.view(dtype)


def take_check(suite, case, rows, gaps=None, shift=0):
    def body(rng):
        where, dtype = suite.where, ROW_BITS[case.element]
        source = rng.integers(0, np.iinfo(dtype).max, (9, *case.shape), dtype)
        wanted = np.resize(np.array([3, -1, 8, 9, 0, -(1 << 31), 3, (1 << 31) - 1], np.int32), rows)
        result = Buffer(where, np.full((rows, *case.shape), 77, dtype), gaps, shift)
        suite.launch(case.name, rows, [*Buffer(where, source, gaps, shift).words(),
                                       *Buffer(where, wanted).words(), *result.words()])
        want = np.full(result.shape, missing_bits(case), dtype)
        inside = (wanted >= 0) & (wanted < len(source))
        want[inside] = source[wanted[inside]]
        assert (result.fetch() == want).all(), "rows are wrong"

    return body


def write_check(suite, case, make, rows=21, cached=50, gaps=None, shift=0, repeat=0):
    """`make(rng)` gives the slots, of `cached` rows."""

    def body(rng):
        where, dtype = suite.where, ROW_BITS[case.element]
        source = rng.integers(0, np.iinfo(dtype).max, (rows, *case.shape), dtype)
        cache = rng.integers(0, np.iinfo(dtype).max, (cached, *case.shape), dtype)
        slots = np.asarray(make(rng)).astype("i8" if case.slot == "i64" else "i4")
        target = Buffer(where, cache, gaps, shift)
        words = [*Buffer(where, source, gaps, shift).words(), *Buffer(where, slots).words(),
                 *target.words()]
        # What the runtime is told of rows for which the cache has no place.
        record = Buffer(where, np.full(3, -7, np.int64))
        words.append(record.address)
        suite.launch(case.name, -(-rows // 8), words)
        check_told([int(word) for word in record.fetch()],
                   {(slot, row, cached) for row, slot in enumerate(slots.tolist()) if slot >= cached})
        want = cache.copy()
        for row, slot in zip(source, slots.tolist()):
            if 0 <= slot < cached:
                want[slot] = row
        wrong = (target.fetch() != want).any(tuple(range(1, want.ndim)))
        assert not wrong.any(), f"{wrong.sum()} rows of the cache are wrong, first {wrong.argmax()}"
        suite.repeat(case.name, -(-rows // 8), words, repeat, [target])

    return body


def write_checks(suite):
    big = suite.where.is_device
    for case in cases.TAKE:
        size = ROW_BITS[case.element]().itemsize
        for label, options in (("rows", {}), ("strided", dict(gaps=[16] * len(case.shape))),
                               ("unaligned", dict(shift=size))):
            suite.check(f"{case.name}: {label}", take_check(suite, case, 13, **options))
        suite.check(f"{case.name}: no rows", take_check(suite, case, 0))
    for case in cases.WRITE:
        size = ROW_BITS[case.element]().itemsize

        def check(label, make, case=case, **options):
            suite.check(f"{case.name}: {label}", write_check(suite, case, make, **options))

        def some(rng):
            return np.where(rng.random(21) < 0.3, -1, rng.permutation(50)[:21])

        def others(rng):
            # Rows that no cache has.
            far = [50, -1, -2, 51, -(1 << 31), (1 << 31) - 1]
            far += [1 << 40, (1 << 32) + 3, -(1 << 63)] if case.slot == "i64" else []
            return np.where(rng.random(21) < 0.6, np.resize(far, 21), rng.permutation(50)[:21])

        def repeated(rng):
            # The later row is there, also far behind and in the same block.
            return rng.integers(-1, 7, 21)

        check("some", some)
        check("others", others)
        check("repeated slots", repeated)
        check("one slot", lambda _: np.full(21, 4))
        check("none", lambda _: np.full(21, -1))
        check("strided", some, gaps=[16] * len(case.shape))
        check("strided, rows unaligned", some, gaps=[3] * len(case.shape))
        check("unaligned", some, shift=size)
        check("one row", lambda _: [7], rows=1)
        check("no rows", lambda _: [], rows=0)
        check("no cache", some, cached=0)
        check("far behind", lambda rng: rng.integers(0, 400, 1500), rows=1500, cached=400)
        if big:
            check("20 runs, several grids", lambda rng: rng.integers(0, 2000, 3000), rows=3000,
                  cached=2000, repeat=20)


# --- Exchanges --------------------------------------------------------------------


def exchange_check(suite, case, counts, decodes=0, gaps=False, shift=0):
    """`counts` are the tokens of each rank."""

    def body(rng):
        where = suite.where
        ranks, heads = case.ranks, case.heads
        to_tokens = case.direction == "heads_to_tokens"
        dtype = {"bf16": np.uint16, "f32": np.uint32}[case.element]
        total = sum(counts)
        step = decodes + total
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        ids = rng.permutation(total).astype(np.int32)
        inbox_rows = case.capacity
        width = (sum(case.parts),) if case.parts else ()
        shape = (inbox_rows, heads * ranks if to_tokens else heads, *width)
        stride = (int(np.prod(shape)) * dtype().itemsize + 255) // 256 * 256
        # Between rows, and between heads; rows of a multiple of 16 bytes stay that.
        apart = [16 * 3, 16][:len(width) + 1] if gaps else None
        sources, data = [], []
        for rank in range(ranks):
            own = step if to_tokens else counts[rank]
            own_heads = heads if to_tokens else heads * ranks
            parts = [(own, own_heads, w) for w in case.parts] or [(own, own_heads)]
            arrays = [rng.integers(0, 1 << 16, part).astype(dtype) for part in parts]
            data.append(np.concatenate(arrays, len(parts[0]) - 1))
            sources.append([Buffer(where, array, apart, shift) for array in arrays])
        ids_buffer, offsets_buffer = Buffer(where, ids), Buffer(where, offsets)
        untouched = np.full(stride * ranks, 0xEE, np.uint8)
        heaps = [where.upload(untouched) for _ in range(2)]
        boxes = [[Buffer(where, np.full((ranks * case.carried, heads, *width), 0xAB, dtype))
                  for _ in range(ranks)] for _ in range(2)]

        def plain(buffer):
            return memref(buffer.address, buffer.shape)

        def launch(kernel, rank, heap, extra):
            context = where.upload(np.array([rank, stride], np.int64))
            words = [word for source in sources[rank] for word in source.words()]
            words += [*plain(ids_buffer), *plain(offsets_buffer), decodes]
            words += memref(heap + rank * stride, shape)
            suite.launch(f"{case.name}_{kernel}", max(total, 1),
                         [*words, rank, rank, context, *extra])

        for rank in range(ranks):
            launch("push", rank, heaps[0], [])
            launch("pack", rank, heaps[1], plain(boxes[0][rank]))
        sent = [box.fetch() for box in boxes[0]]
        used = np.zeros(ranks * case.carried, bool)
        for to in range(ranks):
            landing = np.full_like(sent[0], 0xCD)
            for source in range(ranks):
                count = counts[to if to_tokens else source]
                if source != to:
                    landing[source * case.carried:][:count] = (
                        sent[source][to * case.carried:][:count])
            # Nothing else is in the outbox, own rows neither.
            used[:] = False
            for peer in range(ranks):
                if peer != to:
                    used[peer * case.carried:][:counts[peer if to_tokens else to]] = True
            assert (sent[to][~used] == 0xAB).all(), "the outbox holds more than is sent"
            launch("unpack", to, heaps[1], plain(Buffer(where, landing)))
        pushed, carried = (where.download(heap, untouched) for heap in heaps)
        assert (pushed == carried).all(), (
            f"{(pushed != carried).sum()} of {len(pushed)} bytes differ, the first at "
            f"{(pushed != carried).argmax()} of {stride} a rank")
        expected = untouched.copy()
        for to in range(ranks):
            inbox = expected[to * stride:][:int(np.prod(shape)) * dtype().itemsize]
            inbox = inbox.view(dtype).reshape(shape)
            for source in range(ranks):
                group = to if to_tokens else source
                rows = decodes + ids[offsets[group]:offsets[group + 1]]
                if to_tokens:
                    inbox[:len(rows), source * heads:][:, :heads] = data[source][rows]
                else:
                    inbox[rows] = data[source][:, to * heads:][:, :heads]
        assert (pushed == expected).all(), (
            f"{(pushed != expected).sum()} of {len(pushed)} bytes are wrong, the first at "
            f"{(pushed != expected).argmax()} of {stride} a rank")

    return body


def exchange_checks(suite):
    for case in cases.EXCHANGE:
        few = [(7 * rank + 3) % 9 for rank in range(case.ranks)]
        some = [0] * case.ranks
        some[-1] = 4
        suite.check(f"{case.name}: unequal counts", exchange_check(suite, case, few))
        suite.check(f"{case.name}: decode rows first", exchange_check(suite, case, few, 3))
        suite.check(f"{case.name}: one rank has all", exchange_check(suite, case, some, 1))
        suite.check(f"{case.name}: no rows", exchange_check(suite, case, [0] * case.ranks))
        suite.check(f"{case.name}: strided", exchange_check(suite, case, few, 2, gaps=True))
        suite.check(f"{case.name}: strided, unaligned", exchange_check(
            suite, case, few, gaps=True, shift=BITS[case.element]().itemsize))


# --- Exchanges of a dcp group -----------------------------------------------------


BITS = {"f32": np.uint32, "bf16": np.uint16, "f16": np.uint16, "i8": np.uint8, "i32": np.uint32,
        "i64": np.uint64}


def numbers(bits, element):
    """float64 of any element type's bits."""
    if element == "f32":
        return np.asarray(bits).view(np.float32).astype(np.float64)
    return widen(bits, element)


def rounded(values, element):
    """Bits of float64."""
    if element == "f32":
        return values.astype(np.float32).view(np.uint32)
    return narrow(values, element)


def group_check(suite, case, rows, gaps=False, shift=0):
    def body(rng):
        where = suite.where
        ranks, heads, dtype = case.ranks, case.heads, BITS[case.element]
        size = dtype().itemsize
        is_gather = case.direction == "gather_heads"
        tail = 0 if is_gather else 16 // size
        width = sum(case.parts) + tail
        by_rows = case.direction == "scatter_rows"
        own_heads = heads if is_gather or by_rows else heads * ranks
        source_rows = rows * ranks if by_rows else rows
        inbox_rows = case.capacity * (1 if is_gather else ranks)
        # The inbox of this step, at the front of its channel.
        all_heads = case.padded or heads * ranks
        shape = (rows * (1 if is_gather else ranks), all_heads if is_gather else heads, width)
        stride = (inbox_rows * shape[1] * width * size + 255) // 256 * 256
        apart = (lambda *numbers: list(numbers)) if gaps else (lambda *numbers: None)
        data, lses, sources = [], [], []
        for rank in range(ranks):
            parts = [rng.integers(0, 1 << (8 * size), (source_rows, own_heads, w), np.uint64)
                     .astype(dtype) for w in case.parts]
            data.append(np.concatenate(parts, 2))
            # Rows of a multiple of 16 bytes stay that.
            sources.append([Buffer(where, part, apart(16 * 3, 16), shift) for part in parts])
            if is_gather:
                continue
            lse = rounded(rng.standard_normal((source_rows, own_heads)) * 5, case.lse)
            lses.append(numbers(lse, case.lse).astype(np.float32))
            if case.lse_stride:
                # Heads outside, rows inside.
                turned = Buffer(where, np.ascontiguousarray(lse.T), [3])
                turned.shape, turned.strides = turned.shape[::-1], turned.strides[::-1]
                sources[-1].append(turned)
            else:
                sources[-1].append(Buffer(where, lse, apart(3)))
        untouched = np.full(stride * ranks * case.mesh, 0xEE, np.uint8)
        heaps = [where.upload(untouched) for _ in range(2)]
        boxes = [Buffer(where, np.full((ranks * case.carried, heads, width),
                                       0xAB, dtype)) for _ in range(ranks)]

        def launch(kernel, member, heap, extra):
            rank = member * case.mesh
            context = where.upload(np.array([rank, stride], np.int64))
            words = [word for source in sources[member] for word in source.words()]
            words += memref(heap + rank * stride, shape)
            suite.launch(f"{case.name}_{kernel}", rows, [*words, rank, member, context, *extra])

        def plain(buffer):
            return memref(buffer.address, buffer.shape)

        for member in range(ranks):
            launch("push", member, heaps[0], [])
            launch("pack", member, heaps[1], plain(boxes[member]))
        sent = [box.fetch() for box in boxes]
        for to in range(ranks):
            landing = np.full_like(sent[0], 0xCD)
            for source in range(ranks):
                if source != to:
                    landing[source * case.carried:][:rows] = (
                        sent[source][to * case.carried:][:rows])
            assert (sent[to].reshape(ranks, case.carried, -1)[to] == 0xAB).all(), (
                "own rows are in the outbox")
            assert (sent[to].reshape(ranks, case.carried, -1)[:, rows:] == 0xAB).all(), (
                "the outbox holds more than is sent")
            launch("unpack", to, heaps[1], plain(Buffer(where, landing)))
        pushed, carried = (where.download(heap, untouched) for heap in heaps)

        expected = untouched.copy()
        for to in range(ranks):
            # Room for more heads is not written.
            inbox = np.zeros(shape, dtype)
            if case.padded:
                inbox.view(np.uint8)[...] = 0xEE
            for source in range(ranks):
                if is_gather:
                    inbox[:, source * heads:][:, :heads] = data[source]
                    continue
                block = inbox[source * rows:][:rows]
                mine = (slice(None), slice(to * heads, (to + 1) * heads))
                if by_rows:
                    mine = (slice(to * rows, (to + 1) * rows), slice(None))
                block[:, :, :width - tail] = data[source][mine]
                words = np.zeros((rows, heads, 4), np.uint32)
                words[:, :, 0] = lses[source][mine].view(np.uint32)
                block[:, :, width - tail:] = words.view(dtype).reshape(rows, heads, tail)
            begin = to * case.mesh * stride
            expected[begin:begin + inbox.nbytes] = inbox.reshape(-1).view(np.uint8)
        for name, found in (("pushed", pushed), ("carried", carried)):
            assert (found == expected).all(), (
                f"{(found != expected).sum()} of {len(found)} bytes {name} are wrong, the first "
                f"at {(found != expected).argmax()} of {stride} a rank")

    return body


def group_checks(suite):
    for case in cases.GROUP:
        suite.check(f"{case.name}: rows", group_check(suite, case, 5))
        suite.check(f"{case.name}: a row", group_check(suite, case, 1))
        suite.check(f"{case.name}: no rows", group_check(suite, case, 0))
        suite.check(f"{case.name}: strided", group_check(suite, case, 3, gaps=True))
        suite.check(f"{case.name}: unaligned",
                    group_check(suite, case, 2, shift=BITS[case.element]().itemsize))


# --- Gathered KV ------------------------------------------------------------------


def rows_check(suite, case, entries, held=None, num_rows=50, gaps=False, shift=0, listed=None):
    """`entries` are the list of blocks, of which `held` are gathered, `listed` at most; or,
    where all rows are sent, those that the inbox has from each."""

    def body(rng):
        where = suite.where
        ranks, dtype = case.ranks, BITS[case.element]
        size, width, block = dtype().itemsize, sum(case.parts), case.block or 1
        stride = case.stride or block
        count = len(entries) if held is None else held
        given = entries[:listed]
        own, known = count * block, min(count, len(given)) * block
        row = (case.heads, width) if case.heads else (width,)
        elements = int(np.prod(row))
        shape = (ranks * own, *row)
        assert own <= case.capacity and own <= case.carried, "the case is too small"
        heap = (case.capacity * ranks * elements * size + 255) // 256 * 256
        data, sources = [], []
        for _ in range(ranks):
            parts = [rng.integers(0, 1 << (8 * size), (num_rows, *row[:-1], w), np.uint64)
                     .astype(dtype) for w in case.parts]
            data.append(np.concatenate(parts, len(row)))
            apart = [16 * 3, 16][:len(row)] if gaps else None
            sources.append([Buffer(where, part, apart, shift) for part in parts])
        blocks = Buffer(where, np.array(given, np.int32))
        untouched = np.full(heap * ranks * case.mesh, 0xEE, np.uint8)
        heaps = [where.upload(untouched) for _ in range(2)]
        boxes = [Buffer(where, np.full((ranks * case.carried, *row), 0xAB, dtype))
                 for _ in range(ranks)]

        def plain(buffer):
            return memref(buffer.address, buffer.shape)

        def launch(kernel, member, base, extra):
            rank = member * case.mesh
            context = where.upload(np.array([rank, heap], np.int64))
            words = [word for source in sources[member] for word in source.words()]
            words += plain(blocks) if case.block else []
            words += memref(base + rank * heap, shape)
            suite.launch(f"{case.name}_{kernel}", max(own, 1),
                         [*words, rank, member, context, shape[0], *extra])

        for member in range(ranks):
            launch("push", member, heaps[0], [])
            launch("pack", member, heaps[1], plain(boxes[member]))
        sent = [box.fetch().reshape(ranks, case.carried, elements) for box in boxes]
        sendable = known if case.block else min(known, num_rows)
        for to in range(ranks):
            landing = np.full((ranks, case.carried, elements), 0xCD, dtype)
            for source in range(ranks):
                if source != to:
                    landing[source, :sendable] = sent[source][to, :sendable]
            assert (sent[to][to] == 0xAB).all(), "own rows are in the outbox"
            assert (sent[to][:, sendable:] == 0xAB).all(), "the outbox holds more than is sent"
            launch("unpack", to, heaps[1],
                   plain(Buffer(where, landing.reshape(ranks * case.carried, *row))))
        pushed, carried = (where.download(base, untouched) for base in heaps)

        expected = untouched.copy()
        for to in range(ranks):
            begin = to * case.mesh * heap
            inbox = expected[begin:begin + shape[0] * elements * size].view(dtype).reshape(shape)
            for source in range(ranks):
                if not case.block:
                    inbox[source * own:][:sendable] = data[source][:sendable]
                    continue
                for j, entry in enumerate(given[:count]):
                    for s in range(block):
                        at = entry * stride + s
                        inbox[source * own + j * block + s] = (
                            data[source][at] if 0 <= at < num_rows else 0)
        for name, found in (("pushed", pushed), ("carried", carried)):
            assert (found == expected).all(), (
                f"{(found != expected).sum()} of {len(found)} bytes {name} are wrong, the first "
                f"at {(found != expected).argmax()} of {heap} a rank")

    return body


def rows_checks(suite):
    for case in cases.ROWS:
        def check(label, *args, case=case, **options):
            suite.check(f"{case.name}: {label}", rows_check(suite, case, *args, **options))

        size = BITS[case.element]().itemsize
        most = min(case.capacity, case.carried)
        if not case.block:
            check("rows", range(5), num_rows=5)
            check("all that fit", range(most), num_rows=most)
            check("no rows", [], num_rows=0)
            check("the source has fewer", range(9), num_rows=4)
            check("the inbox has fewer", range(4), num_rows=9)
            check("strided", range(5), num_rows=5, gaps=True)
            check("unaligned", range(3), num_rows=3, shift=size)
            continue
        most //= case.block
        stride = case.stride or case.block
        last = 49 // stride  # has rows behind the sources
        inside = max(last - 1, 0)
        some = [(7 * i + 1) % (inside + 1) for i in range(min(most, 5))]
        check("blocks", some)
        check("all that fit", [i % (inside + 1) for i in range(most)])
        check("more in the list", some + [-1, -1], held=len(some))
        check("none", [0, 1], held=0)
        check("rows that no source has", [last, 0, last + 1, (1 << 31) - 1, -1, inside][:most])
        check("no source rows", some, num_rows=0)
        check("the list ends before", some, listed=1)
        check("strided", some, gaps=True)
        check("unaligned", some[:2], shift=size)


def blocks_reference(case, table, lengths, pool):
    """The list, where entries stand in it, and how many there are."""
    requests = min(len(table), len(lengths))
    gathered = np.zeros(table.shape, bool)
    for i in range(requests):
        n = max(int(lengths[i]), 0)
        rest = n % (case.ranks * case.interleave)
        tokens = n // (case.ranks * case.interleave) * case.interleave + min(rest, case.interleave)
        gathered[i, :-(-tokens // case.block)] = True
    gathered &= (table >= 0) & (table != case.null)
    if case.pool:
        gathered &= table < pool
    found = np.unique(table[gathered])
    blocks = np.full(table.size, -1, np.int64)
    blocks[:len(found)] = found
    inverse = np.where(gathered, np.searchsorted(found, table), -1)
    return blocks, inverse, len(found)


def blocks_check(suite, case, make, gap=0, repeat=0, expected=None, pool=200):
    def body(rng):
        where = suite.where
        table, lengths = make(rng)
        blocks = Buffer(where, np.full(table.size, 77, np.int32))
        inverse = Buffer(where, np.full(table.shape, 77, np.int32), [gap])
        count = Buffer(where, np.full(1, 77, np.int32))
        words = [*Buffer(where, table, [gap]).words(), *Buffer(where, lengths).words(),
                 *[pool & (1 << 64) - 1] * case.pool,
                 *blocks.words(), *inverse.words(), *memref(count.address, (1,))]
        want = blocks_reference(case, table, lengths, pool)
        if expected is not None:
            assert all(np.array_equal(a, b) for a, b in zip(want, expected)), (
                f"the reference is wrong: {want}")
        for again in range(1 + repeat):
            for buffer in (blocks, inverse, count):
                buffer.refill()
            suite.launch(f"{case.name}_list", 1, words)
            suite.launch(f"{case.name}_inverse", table.size, words)
            for name, buffer, numbers in zip(("blocks", "inverse", "count"),
                                             (blocks, inverse, count), want):
                wrong = buffer.fetch() != numbers
                assert not wrong.any(), (
                    f"{wrong.sum()} of {name} are wrong: {buffer.fetch()[wrong][:9]}")

    return body


def blocks_checks(suite):
    big = suite.where.is_device

    def fixed(table, lengths):
        return lambda rng: (np.array(table, np.int32), np.array(lengths, np.int32))

    by_name = {case.name: case for case in cases.BLOCKS}
    suite.check("gather_blocks_8_64: golden", blocks_check(
        suite, by_name["gather_blocks_8_64"], fixed([[1, 2, 3, 4], [5, 6, 1, 2]], [4 * 512] * 2),
        expected=([1, 2, 3, 4, 5, 6, -1, -1], [[0, 1, 2, 3], [4, 5, 0, 1]], 6)))
    for case in cases.BLOCKS:
        span = min(case.ranks * max(case.interleave, case.block), (1 << 31) // 40)

        def ragged(rng, requests=5, width=40, most=300, span=span):
            table = rng.integers(0, most, (requests, width)).astype(np.int32)
            table[rng.random(table.shape) < 0.1] = rng.integers(-9, 0)
            lengths = rng.integers(0, (width - 1) * span, requests)
            lengths[0] = 0
            return table, lengths.astype(np.int32)

        def far(rng):
            table, lengths = ragged(rng)
            table.reshape(-1)[::3] = np.resize(
                [0, (1 << 18) - 1, 1 << 18, (1 << 31) - 1, (1 << 31) - (1 << 18), 1 << 30], 67)
            return table, np.full_like(lengths, (1 << 31) - 1)

        def all_alike(rng):
            return np.full((4, 9), 7, np.int32), np.full(4, (1 << 31) - 1, np.int32)

        def fewer_lengths(rng):
            table, lengths = ragged(rng)
            return table, np.array([*lengths[1:3], (1 << 31) - 1][:3], np.int32)

        def nothing(rng):
            table, lengths = ragged(rng)
            return table, np.array([0, -1, -(1 << 31), 0, 0], np.int32)

        check = lambda label, make, case=case, **options: suite.check(
            f"{case.name}: {label}", blocks_check(suite, case, make, **options))
        check("ragged", ragged)
        check("strided", ragged, gap=3)
        check("far apart", far)
        check("one block", all_alike)
        check("requests without a length", fewer_lengths)
        check("no tokens", nothing)
        check("no requests", fixed(np.zeros((0, 7)), []))
        check("no columns", fixed(np.zeros((3, 0)), [5, 5, 5]))
        for pool in (0, -1, 1, 1 << 18, (1 << 31) - 1, 1 << 31, (1 << 63) - 1) if case.pool else ():
            check(f"a pool of {pool}", far, pool=pool)
        check("many", lambda rng, make=ragged: make(
            rng, requests=300 if big else 40, width=700 if big else 120,
            most=60000 if big else 9000), repeat=3 if big else 0)


def gathered_reference(case, indices, inverse, count, req):
    t = indices.astype(np.int64)
    run = t // case.interleave
    local = run // case.ranks * case.interleave + t % case.interleave
    block, request = local // case.block, np.broadcast_to(req[:, None], t.shape).astype(np.int64)
    valid = (t >= 0) & (request >= 0) & (request < len(inverse)) & (block < inverse.shape[1])
    entry = np.full(t.shape, -1, np.int64)
    entry[valid] = inverse[request[valid], block[valid]]
    slot = (run % case.ranks * count + entry) * case.block + local % case.block
    valid &= entry >= 0
    if case.slot == "i32":
        valid &= slot < 1 << 31
    return np.where(valid, slot, -1), valid.sum(1)


def gathered_check(suite, case, rows, make=None, gap=0, shift=0, alias=False, repeat=0,
                   expected=None):
    """A check; `make` changes the inputs in place."""

    def body(rng):
        where = suite.where
        width = case.width or 301
        requests, blocks = 5, 70
        reach = min(60 * case.block * case.ranks, (1 << 31) - 1)
        given = rng.integers(0, reach, (rows, width)).astype(np.int32)
        given[rng.random(given.shape) < 0.1] = -1
        given[rng.random(given.shape) < 0.02] = (1 << 31) - 1
        inverse = rng.integers(0, 97, (requests, blocks)).astype(np.int32)
        inverse[rng.random(inverse.shape) < 0.1] = -1
        inputs = dict(indices=given, inverse=inverse, count=np.array([97], np.int32),
                      req=rng.integers(0, requests, rows).astype(np.int32))
        if make:
            make(inputs)
        given = inputs["indices"]
        source = Buffer(where, given, [gap], shift)
        slots = source
        if not alias:
            slots = Buffer(where, np.full(given.shape, 77, "i4" if case.slot == "i32" else "i8"),
                           [gap], shift * (2 if case.slot == "i64" else 1))
        counts = Buffer(where, np.full(rows, 77, np.int32))
        count = Buffer(where, inputs["count"])
        words = [*source.words(), *Buffer(where, inputs["inverse"], [3]).words(),
                 *memref(count.address, (1,)), *Buffer(where, inputs["req"]).words(),
                 *slots.words(), *(counts.words() if case.counts else [])]
        suite.launch(case.name, rows, words)
        got = slots.fetch()
        want, valid = gathered_reference(case, given, inputs["inverse"], int(inputs["count"][0]),
                                         inputs["req"])
        if expected is not None:
            assert (want == expected).all(), f"the reference is wrong: {want}"
        wrong = (got != want).any(1)
        assert not wrong.any(), (
            f"{wrong.sum()} of {rows} rows are wrong, first {wrong.argmax()}: "
            f"{got[wrong][0][:12]} is not {want[wrong][0][:12]}")
        if case.counts:
            assert (counts.fetch() == valid).all(), "counts"
        suite.repeat(case.name, rows, words, repeat, [slots, counts] if case.counts else [slots])

    return body


def gathered_checks(suite):
    big = suite.where.is_device

    def check(case, label, *args, **options):
        suite.check(f"{case.name}: {label}", gathered_check(suite, case, *args, **options))

    def by_hand(inputs):
        # Tokens 0..3 are rank 0's, 4..7 rank 1's, 8..11 rank 0's second block.
        inputs.update(indices=np.array([[0, 5, 11, -1, 14]], np.int32), req=np.zeros(1, np.int32),
                      inverse=np.array([[2, 0]], np.int32), count=np.array([3], np.int32))

    def none_at_all(inputs):
        inputs["indices"][:] = -1
        inputs["indices"][-1] = (1 << 31) - 1

    def no_request(inputs):
        inputs["req"][:] = np.resize([-1, 5, 1 << 30, -(1 << 31)], len(inputs["req"]))

    def far(inputs):
        # What an i32 holds, and beyond.
        inputs["count"][:] = (1 << 31) - 1
        inputs["inverse"][:, ::2] = (1 << 31) - 1 - inputs["inverse"][:, ::2] % 3
        inputs["inverse"][:, 1::4] = (1 << 31) // 64

    check(cases.GATHERED[0], "golden", 1, make=by_hand, expected=[[8, 21, 3, -1, 14]])
    rows = 33 if big else 5
    for case in cases.GATHERED:
        check(case, "ragged", rows)
        check(case, "strided", rows, gap=4)
        check(case, "strided, rows unaligned", 3, gap=3)
        check(case, "unaligned", 3, shift=4)
        if case.slot == "i32":
            check(case, "in place of the positions", rows, alias=True)
        check(case, "no slots", 3, make=none_at_all)
        check(case, "no such request", 4, make=no_request)
        check(case, "far slots", rows, make=far)
        check(case, "no rows", 0)
        if big:
            check(case, "20 runs, several grids", 300, repeat=20)


def table_check(suite, case, requests, width, count=9, gap=0, shift=0, promised=0, expected=None):
    """`promised` requests of the table, beyond those of the inverse."""

    def body(rng):
        where = suite.where
        inverse = rng.integers(-2, max(min(count, 1 << 20), 1), (requests, width)).astype(np.int32)
        if expected is not None:
            inverse[...] = np.array([[0, 1, 2, 3], [4, 5, 0, 1]])
        columns, per_run = np.arange(width * case.ranks), case.interleave // case.block
        run = columns // per_run
        local = run // case.ranks * per_run + columns % per_run
        entry = np.full((requests + promised, len(columns)), -1, np.int64)
        entry[:requests, local < width] = inverse[:, local[local < width]]
        want = run % case.ranks * count + entry
        want[(entry < 0) | (want >= 1 << 31)] = -1
        if count < 0 or count > ((1 << 31) - 1) // case.ranks:
            want[:] = -1
        if expected is not None:
            assert (want == expected).all(), f"the reference is wrong: {want}"
        table = Buffer(where, np.full(want.shape, 77, np.int32), [gap], shift)
        number = Buffer(where, np.array([count], np.int32))
        suite.launch(case.name, len(want), [*Buffer(where, inverse, [1]).words(),
                                            *memref(number.address, (1,)), *table.words()])
        wrong = table.fetch() != want
        assert not wrong.any(), f"{wrong.sum()} entries are wrong, first {np.argwhere(wrong)[0]}"

    return body


def table_checks(suite):
    golden = [[0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20, 3, 9, 15, 21],
              [4, 10, 16, 22, 5, 11, 17, 23, 0, 6, 12, 18, 1, 7, 13, 19]]
    suite.check("gather_table_4: golden",
                table_check(suite, cases.TABLES[0], 2, 4, 6, expected=golden))
    for case in cases.TABLES:
        for label, *args in (("entries", 5, 8), ("odd width", 5, 11), ("none", 3, 4, 0),
                             ("no requests", 0, 4), ("no columns", 3, 0),
                             ("most", 2, 4, ((1 << 31) - 1) // case.ranks),
                             ("too many", 2, 4, (1 << 31) - 1), ("nonsense", 2, 4, -3)):
            suite.check(f"{case.name}: {label}", table_check(suite, case, *args))
        suite.check(f"{case.name}: strided", table_check(suite, case, 5, 8, gap=3))
        suite.check(f"{case.name}: unaligned", table_check(suite, case, 5, 8, shift=4))
        suite.check(f"{case.name}: requests that nobody has",
                    table_check(suite, case, 2, 8, promised=3))


# --- Views and packed rows --------------------------------------------------------


def view_check(suite, case, make, gap=0, shift=0, promised=0, expected=None):
    """`promised` requests of the view, beyond those of the table."""

    def body(rng):
        table, lengths = (np.array(a, np.int32) for a in make(rng))
        both = min(len(table), len(lengths))
        want = np.zeros((len(table) + promised, table.shape[1] * case.ranks), np.int64)
        want[:both] = view_oracle(table[:both], lengths, case.ranks, case.per_block)
        if expected is not None:
            assert (want == expected).all(), f"the reference is wrong: {want}"
        view = Buffer(suite.where, np.full(want.shape, 77, np.int32), [gap], shift)
        suite.launch(case.name, len(want), [*Buffer(suite.where, table, [1]).words(),
                                            *Buffer(suite.where, lengths).words(), *view.words()])
        wrong = view.fetch() != want
        assert not wrong.any(), f"{wrong.sum()} entries are wrong, first {np.argwhere(wrong)[0]}"

    return body


def view_checks(suite):
    golden = cases.VIEWS[1]
    assert golden.per_block == 2
    suite.check("view_table_3_pairs: golden", view_check(
        suite, golden, lambda rng: ([[10, 11, 16, 17]], [9]),
        expected=[[30, 31, 32, 33, 34, 35, 48, 49, 50, 51, 52, 53]]))
    for case in cases.VIEWS:
        def ragged(rng, requests=5, width=8, lengths=5):
            table = rng.integers(-2, 1000, (requests, width))
            table[:1, ::3] = (1 << 31) - 1
            return table, rng.integers(-1, 3, lengths)

        check = lambda label, make, case=case, **options: suite.check(
            f"{case.name}: {label}", view_check(suite, case, make, **options))
        check("ragged", ragged)
        check("odd width", lambda rng, make=ragged: make(rng, width=11))
        check("strided", ragged, gap=3)
        check("unaligned", ragged, shift=4)
        check("requests without a length", lambda rng, make=ragged: make(rng, lengths=2))
        check("requests that nobody has", ragged, promised=2)
        check("no requests", lambda rng, make=ragged: make(rng, requests=0, lengths=0))
        check("no columns", lambda rng, make=ragged: make(rng, width=0))


def slots_check(suite, case, rows, fewer=0, large=False):
    """`fewer` rows of the visible lengths than of slots."""

    def body(rng):
        where, requests, width = suite.where, 4, 30
        table = rng.integers(0, (1 << 31) // case.block if large else 3000, (requests, width)).astype(np.int32)
        table[rng.random(table.shape) < 0.1] = -3
        req = rng.integers(-1, requests + 1, rows).astype(np.int32)
        last = width * case.block * max(case.ranks, 1)
        visible = rng.integers(-2, last + 5, rows).astype(np.int32)
        visible[:9] = np.resize([0, 1, last, last + 1, -(1 << 31), (1 << 31) - 1], 9)[:rows]
        for rank in range(max(case.ranks, 1)):
            t = visible.astype(np.int64) - 1
            mine, l = t >= 0, t
            if case.ranks:
                mine &= t // case.interleave % case.ranks == rank
                l = t // (case.ranks * case.interleave) * case.interleave + t % case.interleave
            valid = mine & (req >= 0) & (req < requests) & (l // case.block < width)
            valid[rows - fewer:] = False
            entry = np.full(rows, -1, np.int64)
            entry[valid] = table[req[valid], l[valid] // case.block]
            found = valid.copy()
            want = entry * (case.stride or case.block) + l % case.block
            valid &= (entry >= 0) & (want < 1 << (31 if case.slot == "i32" else 63))
            want = np.where(valid, want, -1)
            slots = Buffer(where, np.full(rows, 77, "i4" if case.slot == "i32" else "i8"))
            words = [*Buffer(where, table, [2]).words(), *Buffer(where, req).words(),
                     *Buffer(where, visible[:rows - fewer]).words(), *slots.words()]
            # What the runtime is told of tokens that the table has no place for.
            record = Buffer(where, np.full(7, -7, np.int64))
            suite.launch(case.name, rows, words + [rank] * bool(case.ranks) + [record.address])
            wrong = slots.fetch() != want
            assert not wrong.any(), f"{wrong.sum()} slots of rank {rank} are wrong, first {np.argwhere(wrong)[0]}"
            beyond = mine & (req >= 0) & ((req >= requests) | (l // case.block >= width))
            beyond[rows - fewer:] = False
            told, blocks, none = record.fetch(), l // case.block, found & ~valid
            check_told(told[:4], {(int(block), int(request), requests, width)
                                  for block, request in zip(blocks[beyond], req[beyond])})
            check_told(told[4:], {tuple(map(int, one)) for one in zip(blocks[none], req[none], entry[none])})

    return body


def full_check(suite, case, table, gap=0, pool=6):
    def body(rng):
        where, given = suite.where, np.array(table, np.int32)
        blocks = Buffer(where, np.full(given.size, 77, np.int32))
        inverse = Buffer(where, np.full(given.shape, 77, np.int32), [gap])
        count = Buffer(where, np.full(1, 77, np.int32))
        suite.launch(case.name, given.size, [
            *Buffer(where, given, [gap]).words(), *Buffer(where, np.zeros(len(given), np.int32)).words(),
            *[pool] * case.pool, *blocks.words(), *inverse.words(), *memref(count.address, (1,))])
        places = np.arange(given.size).reshape(given.shape)
        assert (blocks.fetch() == given.reshape(-1)).all(), "blocks"
        is_block = (given >= 0) & (given < pool) if case.pool else given >= 0
        assert (inverse.fetch() == np.where(is_block, places, -1)).all(), "inverse"
        assert count.fetch()[0] == given.size, "count"

    return body


def packed_check(suite, case, rows, gaps=(0, 0), shift=0, fewer=0):
    def body(rng):
        where = suite.where
        form = packing.Format(case.latent, case.element, case.rope, case.order)
        values = rng.standard_normal((rows, form.dim)) * 2.0 ** rng.integers(-140, 100, (rows, 1))
        values[:1] = 0
        values[1:2, 5] = np.nan
        values[2:3, form.latent - 1] = -np.inf
        values[3:4, :form.latent] = np.arange(form.latent) / 2.0 - 60
        values[4:5, :form.latent] = form.largest * 2.0 ** -(np.arange(form.latent) % 21.0)
        values[5:6, :form.latent] = np.arange(form.latent) % 17 * 2.0 ** -10
        values[3:6, :form.latent:packing.GROUP] = -form.largest
        given = narrow(values, "bf16")
        given[np.isnan(values)] = 0x7FC0
        with np.errstate(all="ignore"):
            packed = packing.pack_oracle(form, given)
            if not case.packs:
                # Any byte with scales of any size.
                packed[:, :form.latent] = (np.arange(form.latent) + 3 * np.arange(rows)[:, None]) % 256
            source, want = (given, packed) if case.packs else (packed, packing.unpack_oracle(form, packed))
        # Rows that only one side has are left alone.
        target = Buffer(where, np.full(want.shape, 77, want.dtype), [gaps[1]], shift)
        words = [*Buffer(where, source[:rows - fewer], [gaps[0]], shift).words(), *target.words()]
        suite.launch(case.name, rows, words)
        got, want = target.fetch(), want.copy()
        want[rows - fewer:] = 77
        differs = got != want
        if not case.packs:
            differs &= ~(np.isnan(widen(got, "bf16")) & np.isnan(widen(want, "bf16")))
        assert not differs.any(), (f"{differs.sum()} are wrong, first {np.argwhere(differs)[0]}: "
                                   f"{got[differs][0]}, expected {want[differs][0]}")

    return body


def views_checks(suite):
    big = suite.where.is_device
    view_checks(suite)
    for case in cases.TOKEN_SLOTS:
        suite.check(f"{case.name}: any length", slots_check(suite, case, 3000 if big else 300))
        suite.check(f"{case.name}: fewer lengths", slots_check(suite, case, 20, fewer=7))
        suite.check(f"{case.name}: large blocks", slots_check(suite, case, 40, large=True))
        suite.check(f"{case.name}: no rows", slots_check(suite, case, 0))
    for case in cases.FULL:
        suite.check(f"{case.name}: golden", full_check(suite, case, [[0, 1], [2, 3]]))
        suite.check(f"{case.name}: repeated", full_check(suite, case, [[7, 7, -1], [0, -5, 7]], gap=2))
        suite.check(f"{case.name}: none", full_check(suite, case, np.zeros((0, 5))))
    for case in cases.PACKED:
        for rows in (0, 1, 9, 20000 if big else 40):
            suite.check(f"{case.name}: {rows} rows", packed_check(suite, case, rows))
        suite.check(f"{case.name}: strided", packed_check(suite, case, 7, (16, 16)))
        suite.check(f"{case.name}: strides of no 16 bytes", packed_check(suite, case, 7, (3, 3)))
        suite.check(f"{case.name}: unaligned", packed_check(suite, case, 7, shift=2))
        suite.check(f"{case.name}: the source has fewer", packed_check(suite, case, 7, fewer=3))


# --- Slots ------------------------------------------------------------------------


def convert_reference(case, indices, table, req, prefill, starts):
    t = indices.astype(np.int64)
    block, request = t // case.block, np.broadcast_to(req[:, None], t.shape).astype(np.int64)
    valid = (t >= 0) & (request >= 0) & (request < len(table)) & (block < table.shape[1])
    entry = np.full(t.shape, -1, np.int64)
    entry[valid] = table[request[valid], block[valid]]
    valid &= entry >= 0
    slot = entry * (case.stride or case.block) + t % case.block
    if case.prefill:
        own = (prefill >= 0) & (prefill < len(starts))
        start = np.where(own, starts[np.where(own, prefill, 0)], -1).astype(np.int64)[:, None]
        is_prefill = np.broadcast_to(prefill[:, None] >= 0, t.shape)
        slot = np.where(is_prefill, start + t, slot)
        valid = np.where(is_prefill, (t >= 0) & (start >= 0), valid)
    if case.slot == "i32":
        valid &= slot < 1 << 31
    return np.where(valid, slot, -1), valid.sum(1)


def convert_check(suite, case, rows, make=None, gap=0, shift=0, alias=False, repeat=0,
                  expected=None):
    """A check; `make` changes the inputs in place."""

    def body(rng):
        where = suite.where
        width = case.width or 301
        # More blocks than any row needs, and a few positions behind them all.
        requests, blocks = 5, 70
        last = (1 << 31) - 1
        given = rng.integers(0, min(60 * case.block, last), (rows, width)).astype(np.int32)
        given[rng.random(given.shape) < 0.1] = -1
        given[rng.random(given.shape) < 0.02] = min(blocks * case.block, last)
        table = rng.integers(0, 3000, (requests, blocks)).astype(np.int32)
        table[rng.random(table.shape) < 0.1] = -5
        inputs = dict(indices=given, table=table,
                      req=rng.integers(0, requests, rows).astype(np.int32),
                      prefill=rng.integers(-2, 4, rows).astype(np.int32),
                      starts=np.array([0, 70000, (1 << 31) - 9000], np.int32))
        if make:
            make(inputs)
        given = inputs["indices"]
        source = Buffer(where, given, [gap], shift)
        words = [*source.words(), *Buffer(where, inputs["table"], [3]).words(),
                 *Buffer(where, inputs["req"]).words()]
        if case.prefill:
            words += Buffer(where, inputs["prefill"]).words()
            words += Buffer(where, inputs["starts"]).words()
        slots = source
        if not alias:
            slots = Buffer(where, np.full(given.shape, 77, "i4" if case.slot == "i32" else "i8"),
                           [gap], shift * (2 if case.slot == "i64" else 1))
        counts = Buffer(where, np.full(rows, 77, np.int32))
        words += slots.words() + (counts.words() if case.counts else [])
        suite.launch(case.name, rows, words)
        got = slots.fetch()
        want, count = convert_reference(case, given, *(
            inputs[name] for name in ("table", "req", "prefill", "starts")))
        if expected is not None:
            assert (want == expected).all(), "the reference is wrong"
        wrong = (got != want).any(1)
        assert not wrong.any(), (
            f"{wrong.sum()} of {rows} rows are wrong, first {wrong.argmax()}: "
            f"{got[wrong][0][:12]} is not {want[wrong][0][:12]}")
        if case.counts:
            assert (counts.fetch() == count).all(), "counts"
        suite.repeat(case.name, rows, words, repeat, [slots, counts] if case.counts else [slots])

    return body


def convert_checks(suite):
    big = suite.where.is_device
    by_name = {case.name: case for case in cases.CONVERT}

    def check(case, label, *args, **options):
        suite.check(f"{case.name}: {label}", convert_check(suite, case, *args, **options))

    def by_hand(inputs):
        inputs["indices"] = np.array([[70, 0, -1, 200, 128]], np.int32)
        inputs["table"] = np.array([[11, 2, -7]], np.int32)
        inputs["req"] = np.zeros(1, np.int32)

    def none_at_all(inputs):
        inputs["indices"][:] = -1
        inputs["indices"][-1] = (1 << 31) - 1
        inputs["prefill"][:] = -1

    def no_request(inputs):
        inputs["req"][:] = np.resize([-1, 5, 1 << 30, -(1 << 31)], len(inputs["req"]))

    def far(inputs):
        # Beyond any cache, and what an i32 holds.
        inputs["table"][:] = (1 << 31) - 1 - inputs["table"] % 3
        inputs["table"][:, ::3] = (1 << 31) // 64
        inputs["indices"][:, ::7] = (1 << 31) - 1
        inputs["indices"][:, 1::7] = 1 << 30

    def all_prefill(inputs):
        inputs["prefill"][:] = np.arange(len(inputs["prefill"])) % 3
        inputs["starts"][:] = [(1 << 31) - 5, 0, -1]
        inputs["table"][:] = -1

    check(by_name["conv_5"], "golden", 1, make=by_hand, expected=[[134, 704, -1, -1, -1]])
    rows = 33 if big else 5
    for case in cases.CONVERT:
        check(case, "ragged", rows)
        check(case, "strided", rows, gap=4)
        check(case, "strided, rows unaligned", 3, gap=3)
        check(case, "unaligned", 3, shift=4)
        if case.slot == "i32":
            check(case, "in place of the positions", rows, alias=True)
        check(case, "no slots", 3, make=none_at_all)
        check(case, "no such request", 4, make=no_request)
        check(case, "far slots", rows, make=far)
        if case.prefill:
            check(case, "prefill", 6, make=all_prefill)
        check(case, "no rows", 0)
        check(case, f"{20 if big else 3} runs, several grids", 300 if big else 3,
              repeat=20 if big else 3)
    if big:
        check(by_name["conv_5"], "70,000 rows", 70000)
        suite.check("conv_2048: rows 2^31 elements apart", far_rows(suite, by_name["conv_2048"]))


def far_rows(suite, case):
    def body(rng):
        where, torch = suite.where, suite.where.torch
        rows, apart = 3, 1 << 30
        given = rng.integers(0, 60 * case.block, (rows, case.width)).astype(np.int32)
        # 12 GiB; the slots stand behind the positions.
        space = torch.full((rows, apart), 77, dtype=torch.int32, device="cuda")
        space[:, :case.width] = torch.from_numpy(given).cuda()
        table = rng.integers(0, 3000, (2, 60)).astype(np.int32)
        req = np.array([0, 1, 0], np.int32)

        def columns(first):
            return memref(space.data_ptr() + 4 * first, given.shape, [apart, 1])

        words = [*columns(0), *Buffer(where, table).words(), *Buffer(where, req).words(),
                 *columns(case.width)]
        suite.launch(case.name, rows, words)
        want, _ = convert_reference(case, given, table, req, None, None)
        got = space[:, case.width:2 * case.width].cpu().numpy()
        assert (got == want).all(), f"{(got != want).sum()} slots are wrong"
        others = space[:, 2 * case.width:2 * case.width + 999].cpu().numpy()
        assert (others == 77).all(), "what lies behind the slots is written"

    return body


# --- Own keys ---------------------------------------------------------------------


def lengths_check(suite, case):
    def body(rng):
        given = np.concatenate([rng.integers(-3, 5000, 700), [0, 3, 4, 5, 8, 9, 12, 1000, -1,
                                                              (1 << 31) - 1]]).astype(np.int32)
        total = np.zeros(len(given), np.int64)
        for rank in range(case.ranks):
            result = Buffer(suite.where, np.full(len(given), 77, np.int32))
            words = [*Buffer(suite.where, given).words(), *result.words(), rank]
            suite.launch(case.name, (len(given) + 255) // 256, words)
            n = np.maximum(given.astype(np.int64), 0)
            base = n // case.interleave // case.ranks * case.interleave
            expected = base + np.clip(n - base * case.ranks - rank * case.interleave, 0,
                                      case.interleave)
            assert (result.fetch() == expected).all(), f"rank {rank}"
            total += expected
            if not suite.where.is_device and rank == 7:
                return
        assert (total == np.maximum(given, 0)).all()

    return body


def draft_check(suite, case, step, fewer=0):
    def body(rng):
        given = np.concatenate([rng.integers(-3, 5000, 700), [0, 1, -1, -(1 << 31), (1 << 31) - 1,
                                                              (1 << 31) - 3]]).astype(np.int32)
        result = Buffer(suite.where, np.full(len(given) - fewer, 77, np.int32))
        words = [*Buffer(suite.where, given).words(), step, *result.words()]
        suite.launch(case.name, (len(given) + 255) // 256, words)
        expected = [min(int(n) + step + 1, (1 << 31) - 1) if n > 0 else 0 for n in given[:len(given) - fewer]]
        assert (result.fetch() == expected).all(), f"step {step}"

    return body


def shards_check(suite, case, requests, rows=None, missing=0):
    """`missing` requests that the lengths lack."""

    def body(rng):
        tokens = rng.integers(0, 5, requests)
        start = np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64)
        lens = (tokens + rng.integers(-3, 30, requests)).astype(np.int32)
        own = int(-(-(start[-1] + 3) // case.ranks)) if rows is None else rows
        for rank in sorted({0, case.ranks // 2, case.ranks - 1}):
            first, end = rank * own, (rank + 1) * own
            given = lens[:requests - missing]
            starts = Buffer(suite.where, np.full(requests + 1, 77, np.int32))
            lengths = Buffer(suite.where, np.full(requests, 77, np.int32))
            words = [*Buffer(suite.where, start.astype(np.int32)).words(),
                     *Buffer(suite.where, given).words(), own, *starts.words(), *lengths.words(), rank]
            record = Buffer(suite.where, np.full(9, -7, np.int64))
            suite.launch(case.name, (requests + 256) // 256, [*words, record.address])
            check_starts(record, start, None, min(own, (1 << 31) - 1) * case.ranks)
            held = np.clip(start, first, end) - first
            assert (starts.fetch() == held).all(), f"starts of rank {rank}"
            seen = np.maximum(lens - np.maximum(start[1:] - end, 0), 0)
            expected = np.where(held[:-1] < held[1:], seen, 0)
            expected[requests - missing:] = 0
            assert (lengths.fetch() == expected).all(), f"lengths of rank {rank}"

    return body


def shards_checks(suite):
    for case in cases.SHARDS:
        for label, *options in (("requests", 40), ("many", 700), ("none", 0), ("no rows", 5, 0),
                                ("rows of graphs", 5, 1 << 30), ("fewer lengths", 9, None, 4)):
            suite.check(f"{case.name}: {label}", shards_check(suite, case, *options))


def filter_reference(case, rank, indices, table, req):
    t = indices.astype(np.int64)
    run = t // case.interleave
    slot = run // case.ranks * case.interleave + t % case.interleave
    valid = (t >= 0) & (run % case.ranks == rank)
    if case.block:
        block, request = slot // case.block, np.broadcast_to(req[:, None], t.shape)
        valid &= (request >= 0) & (request < len(table)) & (block < table.shape[1])
        entry = table[np.where(valid, request, 0), np.where(valid, block, 0)].astype(np.int64)
        valid &= entry >= 0
        slot = entry * (case.stride or case.block) + slot % case.block
    if case.slot == "i32":
        valid &= slot < 1 << 31
    slot = np.where(valid, slot, -1)
    if not case.in_place:
        order = np.argsort(~valid, axis=1, kind="stable")
        slot = np.take_along_axis(slot, order, 1)
    return slot, valid.sum(1)


def filter_check(suite, case, rank, indices, table=None, req=None, gap=0, shift=0, alias=False,
                 repeat=0, expected=None):
    def body(rng):
        where = suite.where
        given = indices(rng) if callable(indices) else np.array(indices, np.int32)
        rows = len(given)
        pages = table(rng) if callable(table) else table
        requests = req(rng) if callable(req) else req
        source = Buffer(where, given, [gap], shift)
        words = source.words()
        if case.block:
            words += Buffer(where, pages, [1]).words() + Buffer(where, requests).words()
        slots = source
        if not alias:
            slots = Buffer(where, np.full(given.shape, 77, "i4" if case.slot == "i32" else "i8"),
                           [gap], 2 * shift if case.slot == "i64" else shift)
        words += slots.words()
        counts = Buffer(where, np.full(rows, 77, np.int32))
        if case.counts:
            words += counts.words()
        words.append(rank)
        suite.launch(case.name, rows, words)
        got = slots.fetch()
        want, count = filter_reference(case, rank, given, pages, requests)
        if expected is not None:
            assert (want == expected).all(), "the reference is wrong"
        wrong = (got != want).any(1)
        assert not wrong.any(), (
            f"{wrong.sum()} of {rows} rows are wrong, first {wrong.argmax()}: "
            f"{got[wrong][0][:12]} is not {want[wrong][0][:12]}")
        if case.counts:
            assert (counts.fetch() == count).all(), "counts"
        suite.repeat(case.name, rows, words, repeat,
                     [slots, counts] if case.counts else [slots])

    return body


def filter_checks(suite):
    big = suite.where.is_device
    by_name = {case.name: case for case in cases.FILTER}

    def golden(name, rank, indices, expected, **options):
        suite.check(f"{name}: golden, rank {rank}",
                    filter_check(suite, by_name[name], rank, [indices], expected=[expected],
                                 **options))

    page = np.array([[11, 2, 7, 5]], np.int32)
    first = np.zeros(1, np.int32)
    golden("filter_6", 0, [8, 5, 130, 7, -1, 262], [708, 129, 451, -1, -1, -1], table=page, req=first)
    golden("filter_6_in_place", 0, [8, 5, 130, 7, -1, 262], [708, -1, 129, -1, -1, 451], table=page,
           req=first)
    runs = np.array([[7, 3]], np.int32)
    golden("filter_12_in_place", 0, range(12), [28, 29, -1, -1, 30, 31, -1, -1, 12, 13, -1, -1], table=runs, req=first)
    golden("filter_12_in_place", 1, range(12), [-1, -1, 28, 29, -1, -1, 30, 31, -1, -1, 12, 13], table=runs, req=first)
    golden("filter_remap", 0, [0, 2, 1, 3, 4, 6, -1, 5], [0, 1, 2, 3, -1, -1, -1, -1])
    golden("filter_remap", 1, [0, 2, 1, 3, 4, 6, -1, 5], [0, 1, 2, -1, -1, -1, -1, -1])
    for case in cases.FILTER:
        width = case.width or 300
        rows = 9 if big else 2

        def ragged(rng, rows=rows, width=width):
            top = 60 * max(case.block, 1) * case.ranks if case.block < 1 << 30 else (1 << 31) - 1
            given = rng.integers(0, max(min(top, (1 << 31) - 1), 2), (rows, width))
            given[rng.random(given.shape) < 0.1] = -1
            given[-1] = np.sort(given[-1])
            return given.astype(np.int32)

        def pages(rng):
            entries = rng.integers(0, 3000, (3, 50)).astype(np.int32)
            entries[rng.random(entries.shape) < 0.1] = -7
            return entries

        def requests(rng, rows=rows):
            return (np.arange(rows) % 3).astype(np.int32)

        tables = dict(table=pages, req=requests) if case.block else {}
        for rank in sorted({0, case.ranks - 1}):
            suite.check(f"{case.name}: ragged, rank {rank}",
                        filter_check(suite, case, rank, ragged, **tables))
        suite.check(f"{case.name}: strided",
                    filter_check(suite, case, 0, ragged, gap=3, **tables))
        suite.check(f"{case.name}: unaligned",
                    filter_check(suite, case, 0, ragged, shift=4, **tables))
        if case.slot == "i32":
            suite.check(f"{case.name}: in place of the positions",
                        filter_check(suite, case, 0, ragged, alias=True, **tables))
        if case.block:
            suite.check(f"{case.name}: no such request", filter_check(
                suite, case, 0, ragged, table=pages,
                req=lambda rng, rows=rows: np.array([-1, 3, 1 << 30] * 3, np.int32)[:rows]))
        suite.check(f"{case.name}: no rows", filter_check(
            suite, case, 0, np.zeros((0, width), np.int32),
            **(dict(table=page, req=np.zeros(0, np.int32)) if case.block else {})))
        suite.check(f"{case.name}: none", filter_check(
            suite, case, 0, np.full((2, width), -1, np.int32),
            **(dict(table=page, req=np.zeros(2, np.int32)) if case.block else {})))
    if big:
        for name in ("filter_2048", "filter_2051", "filter_5000"):
            case = by_name[name]
            suite.check(f"{name}: 20 runs, several grids", filter_check(
                suite, case, 1, lambda rng: rng.integers(-1, 9000, (700, case.width)).astype(np.int32),
                table=lambda rng: rng.integers(0, 999, (5, 200)).astype(np.int32),
                req=lambda rng: rng.integers(-1, 6, 700).astype(np.int32), repeat=20))


def own_slots_check(suite, case, ranks, widths):
    """Rows of random widths, positions and requests."""
    tables = dict(table=lambda rng: rng.integers(-2, 5000, (4, 50)).astype(np.int32)) if case.block else {}

    def body(_):
        rng = np.random.default_rng([suite.seed, zlib.crc32(case.name.encode())])
        for rank in ranks:
            for width in [case.width] if case.width else widths:
                rows = int(rng.integers(1, 40 if suite.where.is_device else 3))
                # Most are in the table, some beyond, some of no token.
                top = case.ranks * 64 * int(rng.integers(1, 60))
                given = rng.integers(-top // 8, top, (rows, width)).astype(np.int32)
                requests = rng.integers(-1, 5, rows).astype(np.int32)
                more = dict(tables, req=lambda _, requests=requests: requests) if case.block else {}
                try:
                    filter_check(suite, case, rank, lambda _, given=given: given, **more)(rng)
                except AssertionError as error:
                    raise AssertionError(f"rank {rank}, {rows} x {width}, seed {suite.seed}: {error}") from error
        return f"seed {suite.seed}"

    return body


def own_slots_checks(suite):
    rng = np.random.default_rng(suite.seed)
    big = suite.where.is_device
    for case in cases.OWN_SLOTS:
        ranks = range(case.ranks) if big else [int(rng.integers(case.ranks))]
        widths = [1, *rng.integers(1, 2177, 6).tolist(), 2176] if big else [int(rng.integers(1, 2177))]
        suite.check(f"{case.name}: random", own_slots_check(suite, case, ranks, widths))


# --- Merge ------------------------------------------------------------------------


def merge_reference(case, values, lse, sink=None):
    """float64 of [ranks, rows, heads, d], [ranks, rows, heads] and [heads]; what an f32 sum
    may be off by."""
    lse = np.where(np.isnan(lse) | (lse == np.inf), -np.inf, lse)
    unit = np.log(2) if case.base == "two" else 1.0
    top = lse.max(0)
    with np.errstate(invalid="ignore"):
        weights = np.where(lse > -np.inf, np.exp((lse - top) * unit), 0.0)
    total = weights.sum(0)
    some = total > 0
    safe = np.where(some, total, 1.0)
    terms = np.where((weights > 0)[..., None], values, 0.0) * weights[..., None]
    merged = np.where(some, top + np.log(safe) / unit, -np.inf)
    if sink is not None:
        # In natural logarithms, of the sum and of the sink.
        with np.errstate(invalid="ignore", over="ignore"):
            more = np.exp(sink - np.where(some, top, 0.0) * unit)
        safe = np.where(some, total + more, 1.0)
    return terms.sum(0) / safe[..., None], np.abs(terms).sum(0) / safe[..., None], merged


def ulp(values, element):
    digits, least = {"bf16": (8, -133), "f16": (11, -24), "f32": (24, -149)}[element]
    exponent = np.frexp(np.where(values == 0, 1e-300, values))[1]
    return 2.0 ** np.maximum(exponent - digits, least)


def merge_check(suite, case, rows, make=None, gaps=False, shift=0, repeat=0, exact=None,
                promised=0):
    """`promised` rows of the result, beyond those that were sent."""

    def body(rng):
        where = suite.where
        dtype, size = BITS[case.element], BITS[case.element]().itemsize
        shape = (case.ranks, rows, case.heads)
        values = rounded(rng.standard_normal((*shape, case.value)), case.element)
        lse = (rng.standard_normal(shape) * 4).astype(np.float32)
        if make:
            make(values, lse)
        tail = np.full((*shape, 4), 0xDEADBEEF, np.uint32)
        tail[..., 0] = lse.view(np.uint32)
        inbox = np.concatenate([values, tail.view(dtype).reshape(*shape, 16 // size)], 3)
        inbox = inbox.reshape(case.ranks * rows, *inbox.shape[2:])
        apart = (lambda *numbers: list(numbers)) if gaps else (lambda *numbers: None)
        out = Buffer(where, np.full((rows + promised, case.heads, case.value), 0x7FC1, dtype),
                     apart(16, 16), shift)
        words = [*Buffer(where, inbox, apart(32, 16), shift).words(), *out.words()]
        if case.merged:
            # Of any strides: heads outside.
            merged = Buffer(where, np.full((case.heads, rows + promised), 0x7FC1,
                                           BITS[case.merged]), [2])
            words += memref(merged.address, merged.shape[::-1], merged.strides[::-1],
                            merged.flat.itemsize)
        sink = None
        if case.sink:
            # Beside the LSEs, wherever these are.
            middle = np.float32(np.nanmedian(np.where(np.isfinite(lse), lse, np.nan))) if (
                np.isfinite(lse).any()) else np.float32(0)
            sink = (rng.standard_normal(case.heads) * 2).astype(np.float32)
            sink += middle * np.float32(np.log(2) if case.base == "two" else 1)
            words += Buffer(where, sink).words()
        suite.launch(case.name, rows, words)
        bits = out.fetch()
        got = numbers(bits, case.element)
        expected, allowed, expected_lse = merge_reference(
            case, numbers(values, case.element), lse.astype(np.float64),
            None if sink is None else sink.astype(np.float64))
        allowed = allowed * 8 * 2.0 ** -24 + 2 * ulp(expected, case.element)
        if sink is not None:
            # An error of the sink's exponent is one of the divisor.
            most = np.abs(sink).max(initial=0) + np.abs(np.where(np.isfinite(lse), lse, 0)).max(
                initial=0)
            allowed += np.abs(expected) * most * 2.0 ** -22
        off = np.abs(got[:rows] - expected)
        assert not np.isnan(got).any(), f"{np.isnan(got).sum()} NaN in out"
        assert (off <= allowed).all(), (
            f"out is off by {(off / allowed).max():.2f} of what is allowed")
        assert (got[rows:] == 0).all(), "rows that nobody sent are not 0"
        if exact is not None:
            assert (got == exact).all(), f"{got.reshape(-1)[:4]} is not {exact}"
        if case.merged:
            got_lse = numbers(merged.fetch().T, case.merged)
            assert ((got_lse[:rows] == -np.inf) == (expected_lse == -np.inf)).all(), "-inf in lse"
            assert (got_lse[rows:] == -np.inf).all(), "LSE of rows that nobody sent"
            finite = expected_lse != -np.inf
            off = np.abs(got_lse[:rows][finite] - expected_lse[finite])
            most = (2 * ulp(expected_lse[finite], case.merged)
                    + 2.0 ** -20 * np.maximum(1, np.abs(expected_lse[finite])))
            assert (off <= most).all(), f"lse is off by {(off / most).max():.2f} of what is allowed"
        suite.repeat(case.name, rows, words, repeat, [out, merged] if case.merged else [out])

    return body


def merge_checks(suite):
    big = suite.where.is_device
    nan = {"f32": 0x7FC00000, "bf16": 0x7FC0, "f16": 0x7E00}

    def check(case, label, *args, **options):
        suite.check(f"{case.name}: {label}", merge_check(suite, case, *args, **options))

    for case in cases.MERGE:
        ranks = case.ranks

        def number(value, case=case):
            return rounded(np.array(float(value)), case.element)

        def empty_somewhere(values, lse):
            # What an empty source holds is not read.
            for i, none in enumerate((-np.inf, np.inf, np.nan)):
                at = np.arange(lse.size).reshape(lse.shape) % 5 == i
                lse[at] = none
                values[at] = nan[case.element]

        def all_empty(values, lse):
            lse[...] = np.resize(np.array([-np.inf, np.inf, np.nan], np.float32), lse.shape)
            values[...] = nan[case.element]

        def large(values, lse):
            lse[...] = 1e4 + lse * 1e-2

        def pair(first, second, with_lse):
            def make(values, lse):
                values[...], lse[...] = nan[case.element], -np.inf
                values[0], lse[0] = number(first), with_lse[0]
                values[1], lse[1] = number(second), with_lse[1]
                if np.isnan(first):
                    values[0] = nan[case.element]
            return make

        check(case, "random", 7 if big else 3)
        check(case, "strided", 3, gaps=True)
        check(case, "unaligned", 2, shift=BITS[case.element]().itemsize)
        check(case, "empty sources", 6, make=empty_somewhere)
        check(case, "nobody has keys", 2, make=all_empty, exact=0)
        check(case, "large LSEs", 4, make=large)
        check(case, "no rows", 0)
        check(case, "rows that nobody sent", 2, promised=3, make=None)
        if ranks > 1 and case.base == "e" and not case.sink:
            inf = np.inf
            for label, given, lses, want in (
                    ("3", (1, 5), (0, 0), 3), ("7 alone", (3, 7), (-inf, 0), 7),
                    ("the finite one", (4, 7), (inf, 0), 7),
                    ("7", (4, 8), (0, np.float32(np.log(3))), 7),
                    ("7 beside NaN", (np.nan, 7), (-inf, 0), 7)):
                # ln 3 in f32 is not ln 3.
                exact = None if label == "7" and case.element == "f32" else want
                check(case, f"golden {label}", 1, make=pair(*given, lses), exact=exact)
    if big:
        for case in cases.MERGE:
            check(case, "20 runs, several grids", 300, repeat=20)


# --- Merge in two steps -----------------------------------------------------------


def weigh_check(suite, case, rows, make=None, gaps=False, promised=0, repeat=0):
    """`promised` rows of the results, beyond those that there are."""

    def body(rng):
        where = suite.where
        dtype = BITS[case.element]
        shape = (case.ranks, rows, case.heads)
        me = int(rng.integers(case.ranks))
        values = rounded(rng.standard_normal((*shape, case.value)), case.element)
        lse = rounded(rng.standard_normal(shape) * 4, case.lse)
        if make:
            make(values, lse)
        apart = (lambda *numbers: list(numbers)) if gaps else (lambda *numbers: None)
        share = Buffer(where, np.full((rows + promised, case.heads, case.value), 0x7FC00000, np.uint32),
                       apart(16, 16))
        # Of any strides: heads outside.
        lses = Buffer(where, np.ascontiguousarray(lse.reshape(-1, case.heads).T), [2])
        words = [*Buffer(where, values[me].astype(dtype, copy=False), apart(32, 16)).words(),
                 *memref(lses.address, lses.shape[::-1], lses.strides[::-1], lses.flat.itemsize),
                 *share.words()]
        if case.merged:
            merged = Buffer(where, np.full((case.heads, rows + promised), 0x7FC1, BITS[case.lse]), [3])
            words += memref(merged.address, merged.shape[::-1], merged.strides[::-1],
                            merged.flat.itemsize)
        suite.launch(case.name, rows + promised, [*words, me])
        got = share.fetch().view(np.float32).astype(np.float64)
        given, exact = numbers(values, case.element), numbers(lse, case.lse)
        _, _, expected_lse = merge_reference(case, given, exact)
        clean = np.where(np.isnan(exact) | (exact == np.inf), -np.inf, exact)
        unit = np.log(2) if case.base == "two" else 1.0
        with np.errstate(invalid="ignore"):
            weight = np.where(clean[me] > -np.inf, np.exp((clean[me] - expected_lse) * unit), 0.0)
        expected = np.where(weight[..., None] > 0, given[me], 0.0) * weight[..., None]
        allowed = np.abs(expected) * 2.0 ** -19 + 2.0 ** -140
        assert not np.isnan(got).any(), f"{np.isnan(got).sum()} NaN in the share"
        off = np.abs(got[:rows] - expected)
        assert (off <= allowed).all(), f"off by {(off / allowed).max():.2f} of what is allowed"
        assert (got[rows:] == 0).all(), "rows that nobody sent are not 0"
        if case.merged:
            got_lse = numbers(merged.fetch().T, case.lse)
            assert ((got_lse[:rows] == -np.inf) == (expected_lse == -np.inf)).all(), "-inf in lse"
            assert (got_lse[rows:] == -np.inf).all(), "LSE of rows that nobody sent"
            finite = expected_lse != -np.inf
            off = np.abs(got_lse[:rows][finite] - expected_lse[finite])
            most = (2 * ulp(expected_lse[finite], case.lse)
                    + 2.0 ** -20 * np.maximum(1, np.abs(expected_lse[finite])))
            assert (off <= most).all(), f"lse is off by {(off / most).max():.2f} of what is allowed"
        suite.repeat(case.name, rows + promised, [*words, me], repeat, [share])

    return body


def sum_check(suite, case, rows, gaps=False, promised=0, repeat=0):

    def body(rng):
        where = suite.where
        values = rounded(rng.standard_normal((case.ranks, rows, case.heads, case.value)), case.source)
        apart = (lambda *numbers: list(numbers)) if gaps else (lambda *numbers: None)
        inbox = values.reshape(case.ranks * rows, case.heads, case.value)
        out = Buffer(where, np.full((rows + promised, case.heads, case.value), 0x7FC1,
                                    BITS[case.element]), apart(16, 16))
        words = [*Buffer(where, inbox, apart(32, 16)).words(), *out.words()]
        suite.launch(case.name, rows + promised, words)
        # In f32, in this order: bit for bit.
        total = np.zeros(values.shape[1:], np.float32)
        for one in numbers(values, case.source).astype(np.float32):
            total += one
        expected = rounded(total, case.element)
        got = out.fetch()
        assert (got[:rows] == expected).all(), f"{(got[:rows] != expected).sum()} numbers differ"
        assert (got[rows:] == 0).all(), "rows that nobody sent are not 0"
        suite.repeat(case.name, rows + promised, words, repeat, [out])

    return body


def reduction_checks(suite):
    big = suite.where.is_device
    nan = {"f32": 0x7FC00000, "bf16": 0x7FC0, "f16": 0x7E00}

    def special(values, element, kinds):
        return rounded(np.resize(np.array(kinds, np.float32), values.shape), element)

    for case in cases.WEIGH:

        def empty_somewhere(values, lse, case=case):
            for i, none in enumerate((-np.inf, np.inf, np.nan)):
                at = np.arange(lse.size).reshape(lse.shape) % 5 == i
                lse[at] = special(lse[at], case.lse, [none])
                values[at] = nan[case.element]

        def all_empty(values, lse, case=case):
            lse[...] = special(lse, case.lse, [-np.inf, np.inf, np.nan])
            values[...] = nan[case.element]

        def check(label, *args, **options):
            suite.check(f"{case.name}: {label}", weigh_check(suite, case, *args, **options))

        check("random", 7 if big else 3)
        check("strided", 3, gaps=True)
        check("empty sources", 6, make=empty_somewhere)
        check("nobody has keys", 2, make=all_empty)
        check("no rows", 0)
        check("rows that nobody sent", 2, promised=3)
        if big:
            check("20 runs, several grids", 300, repeat=20)
    for case in cases.SUM:

        def check(label, *args, **options):
            suite.check(f"{case.name}: {label}", sum_check(suite, case, *args, **options))

        check("random", 7 if big else 3)
        check("strided", 3, gaps=True)
        check("no rows", 0)
        check("rows that nobody sent", 2, promised=3)
        if big:
            check("20 runs, several grids", 300, repeat=20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--chip", default="sm_90")
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--runtime", default="libshardq_runtime.so.1")
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    where = (Emulator if options.emulate else Device)(options.folder, options.chip)
    suite = Suite(where, options.folder, options.only, options.runtime, options.seed)
    topk_checks(suite)
    indexer_checks(suite)
    attention_checks(suite)
    exchange_checks(suite)
    group_checks(suite)
    rows_checks(suite)
    blocks_checks(suite)
    gathered_checks(suite)
    table_checks(suite)
    views_checks(suite)
    convert_checks(suite)
    for case in cases.LENGTHS:
        suite.check(f"{case.name}: any length", lengths_check(suite, case))
    for case in cases.DRAFT:
        for step in (0, 3, (1 << 31) - 1, (1 << 63) - 1):
            suite.check(f"{case.name}: step {step}", draft_check(suite, case, step))
        suite.check(f"{case.name}: fewer results", draft_check(suite, case, 2, fewer=9))
    shards_checks(suite)
    filter_checks(suite)
    own_slots_checks(suite)
    merge_checks(suite)
    reduction_checks(suite)
    chunk_checks(suite)
    write_checks(suite)
    if where.is_device and not options.no_times:
        where.reset()
        times(suite)
    print(f"{suite.failures} failures")
    return 1 if suite.failures else 0


if __name__ == "__main__":
    sys.exit(main())
