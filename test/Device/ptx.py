"""Runs PTX kernels on the CPU: all threads of a block at once, as numpy arrays.

Only what ShardQ's kernels use. Slow, and stricter than a device:

- an access outside of the allocations, or at an address that is not a multiple
  of its size, is an error
- asynchronous copies land as late as they may
- so is a read of shared memory that another warp wrote since the last barrier,
  or a write to what another warp read or wrote
- a warp-wide instruction must be reached by all lanes of a warp
"""

import re

import numpy as np

BASE = 0x7F1200000000  # of global memory: no 32-bit arithmetic gets there
WARP = 32
LANES = np.arange(WARP)
TOGETHER = ("shfl", "vote", "match", "ldmatrix", "mma")


class Fault(Exception):
    pass


class Memory:
    """Global memory: a heap with holes between its allocations."""

    def __init__(self, size):
        self.bytes = np.full(size, 0xFF, np.uint8)
        self.known = np.zeros(size, bool)
        self.next = 256

    def allocate(self, array, shift=0):
        """Copies an array in, `shift` bytes behind a multiple of 256."""
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        begin = self.next + shift
        self.next = (begin + len(data) + 511) // 256 * 256
        if self.next > len(self.bytes):
            raise Fault("heap is full")
        self.bytes[begin:begin + len(data)] = data
        self.known[begin:begin + len(data)] = True
        return BASE + begin

    def read(self, address, array):
        begin = address - BASE
        data = self.bytes[begin:begin + array.nbytes]
        return data.view(array.dtype).reshape(array.shape).copy()

    def forbid(self, address, count):
        begin = address - BASE
        self.known[begin:begin + count] = False


class Races:
    """Who touched each 2 bytes of shared memory since the last barrier."""

    def __init__(self, size):
        words = size // 2 + 1
        self.epoch = 1
        self.written, self.writer = np.zeros((2, words), np.int32)
        self.seen, self.reader = np.zeros((2, words), np.int32)

    def touch(self, words, warps, write):
        bad = (self.written[words] == self.epoch) & (self.writer[words] != warps)
        if bad.any():
            raise Fault(f"race: word {words[bad][0]} of warp {warps[bad][0]} was written by warp "
                        f"{self.writer[words[bad][0]]}")
        if write:
            bad = (self.seen[words] == self.epoch) & (self.reader[words] != warps)
            if bad.any():
                raise Fault(f"race: word {words[bad][0]} was read by another warp")
            self.written[words] = self.epoch
            self.writer[words] = warps
        else:
            # -1 where several warps read.
            other = (self.seen[words] == self.epoch) & (self.reader[words] != warps)
            self.reader[words] = np.where(other, -1, warps)
            self.seen[words] = self.epoch


class Kernel:
    """A kernel of a PTX file."""

    def __init__(self, path):
        text = open(path).read()
        text = re.sub(r"//.*", "", text)
        head, body = text[text.index(".entry"):].split("\n{\n", 1)
        self.params = re.findall(r"\.param \.(\w+)[^,\n]*?(\w+_param_\d+)", head)
        self.blocks = []  # of instructions; labels give indices
        self.labels = {}
        self.together = set()  # blocks that begin with a warp-wide instruction
        self.shared = {}  # addresses: dynamic memory lies behind the rest
        self.static = 0
        self.parse(body[:body.rindex("}")])
        self.static = -(-self.static // 16) * 16
        self.shared = {name: self.static if at is None else at
                       for name, at in self.shared.items()}

    def parse(self, body):
        # The braces of inline assembly and of operand lists stay.
        block = []

        def close():
            nonlocal block
            if block:
                self.blocks.append(block)
            block = []

        for statement in re.split(r";|(?<=:)\n", body):
            statement = " ".join(statement.split())
            if not statement or statement.startswith((".reg", ".loc", ".file")):
                continue
            if statement.startswith(".shared"):
                align, name, size = re.fullmatch(
                    r"\.shared \.align (\d+) \.b8 ([\w$]+)(?:\[(\d+)\])?", statement).groups()
                if not size:
                    self.shared[name] = None
                    continue
                # At an address that is no rounder than it asks for.
                align = int(align)
                self.static = (-(-self.static // align) | 1) * align
                self.shared[name] = self.static
                self.static += int(size)
                continue
            if statement.startswith(".pragma"):
                continue
            if statement.endswith(":"):
                close()
                self.labels[statement[:-1]] = len(self.blocks)
                continue
            match = re.match(r"(?:@(!?)(%\w+) )?([\w.:]+) ?(.*)", statement)
            negated, guard, opcode, rest = match.groups()
            if opcode.startswith(TOGETHER):
                close()
                self.together.add(len(self.blocks))
            operands = [o.strip() for o in
                        re.split(r",(?![^{\[]*[}\]])", rest)] if rest else []
            block.append((opcode, operands, guard, bool(negated)))
            if opcode.startswith(("bra", "ret", "bar.sync")):
                close()
        close()

    def launch(self, memory, grid, threads, shared, args):
        values = dict(zip((name for _, name in self.params), args))
        if len(args) != len(self.params):
            raise Fault(f"{len(args)} arguments for {len(self.params)} parameters")
        for block in range(grid):
            Block(self, memory, block, grid, threads, shared, values).run()


class Block:
    """A block of threads that runs."""

    def __init__(self, kernel, memory, block, grid, threads, shared, values):
        self.kernel, self.memory, self.values = kernel, memory, values
        self.block, self.grid, self.threads = block, grid, threads
        self.size = kernel.static + shared
        self.shared = np.full(self.size + 16, 0xFF, np.uint8)
        self.races = Races(self.size + 16)
        self.tid = np.arange(threads)
        self.warps = self.tid // WARP
        self.regs = {}
        self.open = []    # copies since the last commit
        self.groups = []  # committed ones
        self.active = np.ones(threads, bool)
        self.all = True

    # Scheduling: always the threads that are furthest behind.

    def run(self):
        ended = 1 << 30
        at = np.zeros(self.threads, np.int64)
        waiting = np.zeros(self.threads, bool)
        while True:
            ready = np.where(waiting, ended, at)
            first = ready.min()
            while first in self.kernel.together:
                # Lanes wait there for the rest of their warp.
                there = (ready == first).reshape(-1, WARP)
                split = there & ~there.all(1, keepdims=True)
                if not split.any():
                    break
                ready = np.where(split.reshape(-1), ended, ready)
                first = ready.min()
                if first == ended:
                    raise Fault("lanes of a warp wait for each other")
            if first == ended:
                if not waiting.any():
                    if any(self.open) or any(self.groups):
                        pass  # nobody waits for copies that nobody reads
                    return
                if (at[~waiting] != ended).any():
                    raise Fault("threads ended before a barrier")
                waiting[:] = False
                self.races.epoch += 1
                continue
            self.active = ready == first
            self.all = bool(self.active.all())
            at[self.active] = first + 1
            if first == len(self.kernel.blocks):
                at[self.active] = ended
                continue
            for opcode, operands, guard, negated in self.kernel.blocks[first]:
                if opcode.startswith("bra"):
                    taken = self.active
                    if guard:
                        taken = taken & (self.regs[guard] != negated)
                    at[taken] = self.kernel.labels[operands[0]]
                elif opcode == "ret":
                    at[self.active] = ended
                elif opcode == "bar.sync":
                    waiting |= self.active
                elif guard:
                    raise Fault(f"guarded {opcode}")
                else:
                    self.execute(opcode, operands)

    # Operands.

    def get(self, operand, dtype):
        """An operand's bits as an array or a scalar of `dtype`."""
        dtype = np.dtype(dtype)
        if operand[0] == "%":
            value = self.special(operand)
            if value is None:
                value = self.regs[operand]
        elif operand.startswith("0f"):
            value = np.uint32(int(operand[2:], 16))
        elif operand in self.kernel.shared:
            value = np.uint64(self.kernel.shared[operand])
        elif operand in ("true", "false"):
            value = np.bool_(operand == "true")
        else:
            bits = int(operand, 0) & ((1 << (8 * dtype.itemsize)) - 1)
            unsigned = np.dtype(f"u{dtype.itemsize}")
            return np.array(bits, unsigned).view(dtype)[()]
        if value.dtype == dtype:
            return value
        if value.dtype.itemsize == dtype.itemsize:
            return value.view(dtype)
        return value.astype(f"u{dtype.itemsize}").view(dtype)

    def special(self, name):
        if name == "%tid.x":
            return self.tid.astype(np.uint32)
        if name == "%ctaid.x":
            return np.full(self.threads, self.block, np.uint32)
        if name == "%nctaid.x":
            return np.full(self.threads, self.grid, np.uint32)
        if name == "%ntid.x":
            return np.full(self.threads, self.threads, np.uint32)
        return None

    def put(self, name, value):
        value = np.asarray(value)
        if value.dtype.kind in "if":
            value = value.view(f"u{value.dtype.itemsize}")
        if value.shape == ():
            value = np.full(self.threads, value, value.dtype)
        if name == "_":
            return
        old = self.regs.get(name)
        if self.all or old is None:
            self.regs[name] = value.copy()
        else:
            self.regs[name] = np.where(self.active, value, old)

    def address(self, operand):
        """[base+offset]: 64-bit addresses of all threads."""
        match = re.fullmatch(r"\[([%\w$]+)(?:\+(-?\d+))?\]", operand)
        base = self.get(match[1], np.int64)
        offset = int(match[2] or 0)
        return np.broadcast_to(base + np.int64(offset), (self.threads,))

    # Memory.

    def locate(self, space, addresses, count, reads=False):
        """Indices of bytes [lane, count] in the memory of a space."""
        if (addresses % min(count, 16)).any():
            raise Fault(f"misaligned access of {count} bytes")
        if space == "global":
            begin = addresses - BASE
            if (begin < 0).any() or (begin + count > len(self.memory.bytes)).any():
                raise Fault("global address outside of the heap")
            index = begin[:, None] + np.arange(count)
            if not self.memory.known[index].all():
                raise Fault(f"global address outside of allocations: "
                            f"{hex(addresses[~self.memory.known[index].all(1)][0])}")
            return index
        # Where three words stand at the end, LLVM loads four: cards hand out shared memory
        # in larger units. Who uses the fourth has poison.
        size = -(-self.size // 16) * 16 if reads else self.size
        if (addresses < 0).any() or (addresses + count > size).any():
            raise Fault("shared address outside of the allocation")
        return addresses[:, None] + np.arange(count)

    def touch(self, index, lanes, write):
        words = index[:, ::2] // 2
        warps = np.broadcast_to(self.warps[lanes][:, None], words.shape)
        self.races.touch(words.reshape(-1), warps.reshape(-1), write)

    def load(self, space, addresses, lanes, count):
        index = self.locate(space, addresses, count, reads=True)
        if space == "shared":
            self.touch(index, lanes, False)
            return self.shared[index]
        return self.memory.bytes[index]

    def store(self, space, addresses, lanes, data):
        index = self.locate(space, addresses, data.shape[1])
        if space == "shared":
            self.touch(index, lanes, True)
            self.shared[index] = data
        else:
            self.memory.bytes[index] = data

    def whole_warps(self):
        groups = self.active.reshape(-1, WARP)
        if (groups.any(1) != groups.all(1)).any():
            raise Fault("lanes of a warp have diverged at a warp-wide instruction")
        return np.nonzero(groups.all(1))[0]

    # Instructions.

    def execute(self, opcode, operands):
        parts = opcode.split(".")
        name = parts[0]
        handler = getattr(self, "do_" + name, None)
        if handler:
            return handler(parts, operands)
        kind = parts[-1]
        if kind == "pred":
            values = [self.get(o, bool) for o in operands[1:]]
            return self.put(operands[0], {"or": np.logical_or, "and": np.logical_and,
                                          "xor": np.logical_xor,
                                          "not": np.logical_not}[name](*values))
        size = int(kind[1:]) // 8
        dtype = np.dtype({"f": "f", "s": "i", "u": "u", "b": "u"}[kind[0]] + str(size))
        with np.errstate(all="ignore"):
            values = [self.get(o, dtype) for o in operands[1:]]
            self.put(operands[0], self.compute(name, parts, values, dtype))

    def compute(self, name, parts, v, dtype):
        if name == "add":
            return v[0] + v[1]
        if name == "sub":
            return v[0] - v[1]
        if name == "and":
            return v[0] & v[1]
        if name == "or":
            return v[0] | v[1]
        if name == "xor":
            return v[0] ^ v[1]
        if name == "not":
            return ~v[0]
        if name == "neg":
            return -v[0]
        if name == "abs":
            return np.abs(v[0])
        if name in ("max", "min"):
            if dtype.kind == "f":
                of = {"max": (np.maximum, np.fmax), "min": (np.minimum, np.fmin)}[name]
                return of["NaN" not in parts](v[0], v[1])
            return {"max": np.maximum, "min": np.minimum}[name](v[0], v[1])
        if name == "ex2":
            return np.exp2(v[0]).astype(np.float32)
        if name == "lg2":
            return np.log2(v[0]).astype(np.float32)
        if name == "rcp":
            return np.float32(1) / v[0]
        if name == "div":
            if dtype.kind == "f":
                return v[0] / v[1]
            divisor = np.where(np.asarray(v[1]) == 0, dtype.type(1), v[1])
            quotient = np.abs(v[0]) // np.abs(divisor)
            return np.where((v[0] < 0) != (divisor < 0), -quotient, quotient).astype(dtype)
        if name == "rem":
            return np.fmod(v[0], np.where(np.asarray(v[1]) == 0, dtype.type(1), v[1]))
        if name == "fma":
            return (v[0].astype(np.float64) * v[1] + v[2]).astype(np.float32)
        if name == "popc":
            bits = np.asarray(v[0]).view(np.uint8).reshape(-1, dtype.itemsize)
            return np.unpackbits(bits, axis=1).sum(1).astype(np.uint32)
        if name == "clz":
            return (32 - np.ceil(np.log2(v[0].astype(np.float64) + 1))).astype(np.uint32)
        if name == "brev":
            value, result = v[0], np.zeros_like(v[0])
            for _ in range(32):
                result = (result << np.uint32(1)) | (value & np.uint32(1))
                value = value >> np.uint32(1)
            return result
        raise Fault(f"unknown instruction {'.'.join(parts)}")

    def do_mov(self, parts, operands):
        to, source = operands
        if parts[1] == "pred":
            return self.put(to, self.get(source, bool))
        size = int(parts[1][1:]) // 8
        if to[0] == "{":
            names = [n.strip() for n in to[1:-1].split(",")]
            value = self.get(source, f"u{size}")
            each = size // len(names)
            for i, n in enumerate(names):
                self.put(n, (value >> np.array(8 * each * i, value.dtype))
                         .astype(f"u{each}"))
        elif source[0] == "{":
            names = [n.strip() for n in source[1:-1].split(",")]
            each = size // len(names)
            value = np.zeros((), f"u{size}")
            for i, n in enumerate(names):
                piece = self.get(n, f"u{each}").astype(f"u{size}")
                value = value | (piece << np.array(8 * each * i, f"u{size}"))
            self.put(to, value)
        else:
            self.put(to, self.get(source, f"u{size}"))

    def do_prmt(self, parts, operands):
        """Bytes of two words, or their signs, chosen by the digits of a number."""
        low, high = (self.get(o, np.uint32) for o in operands[1:3])
        both = np.asarray(low).astype(np.uint64) | np.asarray(high).astype(np.uint64) << np.uint64(32)
        digits = int(operands[3].rstrip("U"), 0)
        result = np.zeros((), np.uint64)
        for i in range(4):
            digit = digits >> 4 * i & 15
            byte = both >> np.uint64(8 * (digit & 7)) & np.uint64(255)
            if digit & 8:
                byte = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            result = result | byte << np.uint64(8 * i)
        self.put(operands[0], result.astype(np.uint32))

    def do_cvta(self, parts, operands):
        self.put(operands[0], self.get(operands[1], np.uint64))

    def do_cvt(self, parts, operands):
        to, source = parts[-2:]
        if to in ("bf16x2", "f16x2"):
            high = self.get(operands[1], np.float32)
            low = self.get(operands[2], np.float32)
            narrow = to_bf16 if to == "bf16x2" else to_f16
            value = (narrow(np.broadcast_to(high, (self.threads,))).astype(np.uint32) << 16
                     | narrow(np.broadcast_to(low, (self.threads,))))
            return self.put(operands[0], value.astype(np.uint32))
        if "f" in to + source:
            return self.put(operands[0], self.convert(to, source, operands[1]))
        kinds = {"s": "i", "u": "u"}
        value = self.get(operands[1], kinds[source[0]] + str(int(source[1:]) // 8))
        value = value.astype(kinds[to[0]] + str(int(to[1:]) // 8))
        # No register is of 8 bits.
        self.put(operands[0], value.astype(kinds[to[0]] + "2") if value.itemsize == 1 else value)

    def convert(self, to, source, operand):
        if to == "f32" and source == "bf16":
            return from_bf16(self.get(operand, np.uint16))
        if to == "f32" and source == "f16":
            return self.get(operand, np.float16).astype(np.float32)
        if to in ("bf16", "f16") and source == "f32":
            value = np.broadcast_to(self.get(operand, np.float32), (self.threads,))
            return (to_bf16 if to == "bf16" else to_f16)(value)
        if to == "f32" and source[0] in "us":
            kind = ("i" if source[0] == "s" else "u") + str(int(source[1:]) // 8)
            return self.get(operand, kind).astype(np.float32)
        raise Fault(f"unknown conversion from {source} to {to}")

    def do_mul(self, parts, operands):
        kind = parts[-1]
        size = int(kind[1:]) // 8
        dtype = {"f": "f", "s": "i", "u": "u"}[kind[0]] + str(size)
        a, b = (self.get(o, dtype) for o in operands[1:3])
        with np.errstate(all="ignore"):
            if parts[1] == "wide":
                wide = dtype[0] + str(2 * size)
                self.put(operands[0], np.asarray(a).astype(wide) * np.asarray(b).astype(wide))
            elif parts[1] == "hi":
                if size == 8:
                    exact = np.asarray(a).astype(object) * np.asarray(b).astype(object) >> 64
                    self.put(operands[0], np.broadcast_to(exact, (self.threads,)).astype(dtype))
                else:
                    wide = dtype[0] + str(2 * size)
                    exact = np.asarray(a).astype(wide) * np.asarray(b).astype(wide)
                    self.put(operands[0], (exact >> np.array(8 * size, wide)).astype(dtype))
            else:
                self.put(operands[0], a * b)

    def do_mad(self, parts, operands):
        kind = parts[-1]
        dtype = {"s": "i", "u": "u"}[kind[0]] + str(int(kind[1:]) // 8)
        a, b = (np.asarray(self.get(o, dtype)) for o in operands[1:3])
        with np.errstate(all="ignore"):
            if parts[1] == "wide":
                dtype = dtype[0] + str(2 * int(dtype[1:]))
                a, b = a.astype(dtype), b.astype(dtype)
            self.put(operands[0], a * b + self.get(operands[3], dtype))

    def do_shl(self, parts, operands):
        dtype = f"u{int(parts[1][1:]) // 8}"
        value, by = self.get(operands[1], dtype), self.get(operands[2], np.uint32)
        limit = 8 * np.dtype(dtype).itemsize
        shifted = value << np.minimum(by, limit - 1).astype(dtype)
        self.put(operands[0], np.where(by < limit, shifted, 0).astype(dtype))

    def do_shr(self, parts, operands):
        kind = parts[1]
        dtype = {"s": "i", "u": "u", "b": "u"}[kind[0]] + str(int(kind[1:]) // 8)
        value, by = self.get(operands[1], dtype), self.get(operands[2], np.uint32)
        limit = 8 * np.dtype(dtype).itemsize
        shifted = value >> np.minimum(by, limit - 1).astype(dtype)
        if kind[0] != "s":
            shifted = np.where(by < limit, shifted, 0).astype(dtype)
        self.put(operands[0], shifted)

    def do_bfe(self, parts, operands):
        value = self.get(operands[1], np.uint32)
        start, count = int(operands[2]), int(operands[3])
        field = (value >> np.uint32(start)) & np.uint32((1 << count) - 1)
        if parts[1] == "s32":
            above = np.uint32(32 - count)
            field = ((field << above).view(np.int32) >> above.astype(np.int32)).view(np.uint32)
        self.put(operands[0], field)

    def do_setp(self, parts, operands):
        kind = parts[-1]
        if kind == "bf16":
            a, b = (from_bf16(self.get(o, np.uint16)) for o in operands[1:3])
        else:
            dtype = {"f": "f", "s": "i", "u": "u", "b": "u"}[kind[0]] + str(int(kind[1:]) // 8)
            a, b = (self.get(o, dtype) for o in operands[1:3])
        test = parts[1]
        if test == "nan":
            result = np.isnan(a) | np.isnan(b)
        elif test == "num":
            result = ~(np.isnan(a) | np.isnan(b))
        else:
            unordered = len(test) == 3
            result = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
                      "gt": np.greater, "ge": np.greater_equal}[test[:2]](a, b)
            if kind in ("bf16", "f16", "f32", "f64"):
                nan = np.isnan(a) | np.isnan(b)
                result = result | nan if unordered else result & ~nan
        self.put(operands[0], np.broadcast_to(result, (self.threads,)))

    def do_selp(self, parts, operands):
        if parts[1] == "pred":
            a, b, which = (self.get(o, bool) for o in operands[1:])
            return self.put(operands[0], np.where(which, a, b))
        dtype = f"u{int(parts[1][1:]) // 8}"
        a, b = (self.get(o, dtype) for o in operands[1:3])
        self.put(operands[0], np.where(self.get(operands[3], bool), a, b).astype(dtype))

    def do_ld(self, parts, operands):
        if parts[1] == "param":
            name = operands[1][1:-1]
            return self.put(operands[0], np.array(self.values[name] & (2**64 - 1), np.uint64))
        kind = parts[-1]
        size = int(kind[1:]) // 8
        names = [n.strip() for n in operands[0].strip("{}").split(",")]
        lanes = np.nonzero(self.active)[0]
        addresses = self.address(operands[1])[lanes]
        data = self.load(parts[1], addresses, lanes, size * len(names))
        for i, n in enumerate(names):
            value = np.zeros(self.threads, {"s": "i", "u": "u", "b": "u", "f": "u"}[kind[0]]
                             + str(size))
            value[lanes] = np.ascontiguousarray(
                data[:, i * size:(i + 1) * size]).view(value.dtype)[:, 0]
            if n.startswith("%rd") and size < 8:
                value = value.astype("i8" if kind[0] == "s" else "u8")
            elif n.startswith("%r") and not n.startswith("%rs") and size < 4:
                value = value.astype("i4" if kind[0] == "s" else "u4")
            elif n.startswith("%rs") and kind == "s8":
                value = value.astype("i2")
            self.put(n, value)

    def do_st(self, parts, operands):
        size = int(parts[-1][1:]) // 8
        names = [n.strip() for n in operands[1].strip("{}").split(",")]
        lanes = np.nonzero(self.active)[0]
        pieces = []
        for n in names:
            value = self.get(n, f"u{size}")
            value = np.ascontiguousarray(np.broadcast_to(value, (self.threads,)))[lanes]
            pieces.append(value.view(np.uint8).reshape(-1, size))
        self.store(parts[1], self.address(operands[0])[lanes], lanes,
                   np.concatenate(pieces, 1))

    def do_atom(self, parts, operands):
        kinds = {"add": np.add, "or": np.bitwise_or, "max": np.maximum, "min": np.minimum}
        if parts[1] != "shared" or parts[2] not in kinds or parts[3] not in ("u32", "s32", "b32"):
            raise Fault(f"unknown atomic {parts}")
        dtype = np.int32 if parts[3] == "s32" else np.uint32
        lanes = np.nonzero(self.active)[0]
        addresses = self.address(operands[1])[lanes]
        index = self.locate("shared", addresses, 4)
        # Atomics do not race with each other: one warp in their name.
        words = index[:, 0] // 4
        self.races.touch(words * 2, np.full(len(words), 1000), True)
        value = np.broadcast_to(self.get(operands[2], dtype), (self.threads,))[lanes]
        kinds[parts[2]].at(self.shared[:len(self.shared) // 4 * 4].view(dtype), words, value)

    def do_shfl(self, parts, operands):
        if int(operands[4], 0) & 0xFFFFFFFF != 0xFFFFFFFF:
            raise Fault("shuffle of a part of a warp")
        self.whole_warps()
        value = self.get(operands[1], np.uint32).reshape(-1, WARP)
        by = np.broadcast_to(self.get(operands[2], np.uint32), (self.threads,))
        by = by.reshape(-1, WARP).astype(np.int64)
        if parts[2] == "bfly":
            source = LANES ^ by
        elif parts[2] == "up":
            source = np.where(LANES - by >= 0, LANES - by, LANES)
        elif parts[2] == "idx":
            source = by & 31
        else:
            raise Fault(f"unknown shuffle {parts}")
        self.put(operands[0], np.take_along_axis(value, source, 1).reshape(-1))

    def do_vote(self, parts, operands):
        self.whole_warps()
        bits = np.broadcast_to(self.get(operands[1], bool), (self.threads,)).reshape(-1, WARP)
        if parts[2] == "ballot":
            mask = (bits.astype(np.uint64) << LANES.astype(np.uint64)).sum(1)
            self.put(operands[0], np.repeat(mask.astype(np.uint32), WARP))
        elif parts[2] == "any":
            self.put(operands[0], np.repeat(bits.any(1), WARP))
        else:
            self.put(operands[0], np.repeat(bits.all(1), WARP))

    def do_ldmatrix(self, parts, operands):
        warps = self.whole_warps()
        lanes = np.nonzero(self.active)[0]
        addresses = self.address(operands[1])[lanes]
        names = [n.strip() for n in operands[0].strip("{}").split(",")]
        if len(names) != 4:
            raise Fault("ldmatrix of other than four matrices")
        rows = self.load("shared", addresses, lanes, 16).copy().view(np.uint16)
        matrices = rows.reshape(len(warps), 4, 8, 8)
        if "trans" in parts:
            matrices = matrices.swapaxes(2, 3)
        # Lane i: row i / 4, columns 2 * (i % 4) and the next.
        words = np.ascontiguousarray(matrices).view(np.uint32).reshape(len(warps), 4, WARP)
        for i, n in enumerate(names):
            value = np.zeros(self.threads, np.uint32)
            value[lanes] = words[:, i].reshape(-1)
            self.put(n, value)

    def do_mma(self, parts, operands):
        if parts[3] != "m16n8k16" or parts[4:6] != ["row", "col"]:
            raise Fault(f"unknown matrix product {parts}")
        warps = self.whole_warps()
        element = parts[-2]
        g, j = LANES // 4, 2 * (LANES % 4)

        def words(operand):
            return [np.broadcast_to(self.get(n.strip(), np.uint32), (self.threads,))
                    .reshape(-1, WARP)[warps] for n in operand.strip("{}").split(",")]

        def halves(word):
            low = (word & np.uint32(0xFFFF)).astype(np.uint16)
            high = (word >> np.uint32(16)).astype(np.uint16)
            if element == "bf16":
                return from_bf16(low), from_bf16(high)
            return (low.view(np.float16).astype(np.float32),
                    high.view(np.float16).astype(np.float32))

        a, b = (np.zeros((len(warps), 16, n), np.float64) for n in (16, 8))
        c = np.zeros((len(warps), 16, 8), np.float64)
        for i, word in enumerate(words(operands[1])):
            low, high = halves(word)
            a[:, g + 8 * (i % 2), j + 8 * (i // 2)] = low
            a[:, g + 8 * (i % 2), j + 8 * (i // 2) + 1] = high
        for i, word in enumerate(words(operands[2])):
            low, high = halves(word)
            b[:, j + 8 * i, g] = low
            b[:, j + 8 * i + 1, g] = high
        for i, word in enumerate(words(operands[3])):
            c[:, g + 8 * (i // 2), j + i % 2] = word.view(np.float32)
        with np.errstate(all="ignore"):
            d = (a @ b + c).astype(np.float32)
        for i, n in enumerate(operands[0].strip("{}").split(",")):
            value = np.zeros((self.threads // WARP, WARP), np.uint32)
            value[warps] = d[:, g + 8 * (i // 2), j + i % 2].view(np.uint32)
            self.put(n.strip(), value.reshape(-1))

    def do_cp(self, parts, operands):
        if parts[2] == "commit_group":
            return self.commit()
        if parts[2] == "wait_group":
            return self.wait(int(operands[0]))
        lanes = np.nonzero(self.active)[0]
        to = self.address(operands[0])[lanes]
        source = self.address(operands[1])[lanes]
        size = np.broadcast_to(self.get(operands[3], np.uint32), (self.threads,))[lanes]
        data = np.zeros((len(lanes), 16), np.uint8)
        reads = size == 16
        if not (reads | (size == 0)).all():
            raise Fault("copy of part of 16 bytes")
        if reads.any():
            data[reads] = self.load("global", source[reads], lanes[reads], 16)
        index = self.locate("shared", to, 16)
        self.touch(index, lanes, True)
        self.shared[index] = 0xFF  # whoever reads too early reads this
        self.open.append((lanes, index, data))

    def commit(self):
        # All threads commit alike: each group is that of every thread.
        if not self.all:
            raise Fault("some threads commit copies")
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending):
        if not self.all:
            raise Fault("some threads wait for copies")
        done = len(self.groups) - pending
        for group in self.groups[:max(done, 0)]:
            for lanes, index, data in group:
                self.touch(index, lanes, True)
                self.shared[index] = data
        self.groups = self.groups[max(done, 0):]


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


def from_bf16(bits):
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_f16(x):
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).view(np.uint16)
