"""Runs modules with shardq-run on .npy arrays and compares with numpy.

Arrays of bf16 are uint16 here, as in the files; `round_to` makes them and
`widen` reads them back as float64.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zlib

import numpy as np

# Smallest subnormal and digits of each float type.
SMALLEST = {"bf16": -133, "f16": -24, "f32": -149}
DIGITS = {"bf16": 8, "f16": 11, "f32": 24}
NUMPY = {"bf16": "<u2", "f16": "<f2", "f32": "<f4", "i32": "<i4", "i64": "<i8",
         "i8": "|i1", "f8E4M3FN": "|i1", "f8E5M2": "|i1"}


def round_to(element, values):
    """float64 values to the nearest of the type, ties to even."""
    if element != "bf16":
        return np.asarray(values).astype(NUMPY[element])
    values = np.asarray(values, dtype="<f4")
    bits = values.view("<u4").astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, bits).astype("<u2")


def widen(array):
    if array.dtype == np.uint16:
        array = (array.astype("<u4") << 16).view("<f4")
    return array.astype(np.float64)


def ulp(element, values):
    """Distance from a value to its neighbour in the type."""
    exponent = np.frexp(np.abs(values))[1].astype(np.int64)
    exponent = np.where(values == 0, -2000, exponent)
    return np.ldexp(1.0, np.maximum(exponent - DIGITS[element], SMALLEST[element]))


def tensor(element, *dims):
    return "tensor<" + "".join(f"{d}x" for d in dims) + element + ">"


def split(dim):
    return '{shardq.split = #shardq.split<@ranks, %d over "tp">}' % dim


# The case that main runs.
current_case = ""


def optimize():
    """Option of shardq-run: a third of the cases runs optimized, always the same.

    The levels differ in the order of sums: programs of one case may be compared to the bit.
    """
    level = os.environ.get("SHARDQ_OPTIMIZE") or (3 if zlib.crc32(current_case.encode()) % 3 == 0 else 0)
    return f"--optimize={level}"


class Failure(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failure(message)


class Directory:
    """A directory for a run's files, removed in the end."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="shardq-integration-")
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def run(text, inputs, *options, status=0):
    """Results of a module on the arrays of a dict; more text where `status` is not 0.

    An input may be the path of a .npy file that exists.
    """
    with Directory() as directory:
        module = os.path.join(directory, "module.mlir")
        with open(module, "w") as file:
            file.write(text)
        command = ["shardq-run", module, f"--output-dir={directory}/out", optimize()]
        for name, array in inputs.items():
            path = array
            if not isinstance(array, str):
                path = os.path.join(directory, f"{name}.npy")
                np.save(path, array)
            command.append(f"--input={name}={path}")
        command += options
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != status:
            raise Failure(f"exit status {done.returncode}, expected {status}:\n"
                          f"{text}\n{done.stdout}{done.stderr}")
        if status:
            return done.stdout + done.stderr
        paths = [f"{directory}/out/result{i}.npy" for i in range(len(os.listdir(f"{directory}/out")))]
        return [np.load(path) for path in paths]


def expect_equal(found, expected, what):
    expected = np.asarray(expected)
    expect(found.shape == expected.shape,
           f"{what}: shape {found.shape}, expected {expected.shape}")
    if not np.array_equal(found, expected):
        at = tuple(int(i) for i in np.argwhere(found != expected)[0])
        row = at[:1]
        raise Failure(f"{what}: at {at} {found[at]}, expected {expected[at]}\n"
                      f"row: {found[row]}\nexpected: {expected[row]}")


def main(cases):
    """Runs the cases named by the command line, all functions of a module."""
    global current_case
    for name in sys.argv[1:]:
        current_case = name
        try:
            cases[name]()
        except Failure as failure:
            sys.exit(f"{name}: {failure}")
        print(f"{name}: ok")
