"""Runs a compiled attention step on ranks and by shardq-run, and compares.

call-ranks.py LIBRARIES MODULE.so PROGRAM.mlir RANKS DIRECTORY [strided]

With `strided`, each rank's queries are a view into those of all ranks.
"""

import ctypes
import os
import subprocess
import sys

import numpy as np

import dlpack
from dlpack import BFLOAT, OK, from_bf16, tensor, to_bf16

BLOCK = 4
QUERIES, CONTEXTS = [3, 17], [9, 2]


def make_inputs(world):
    """Global arrays, by name; q is split over ranks along heads."""
    random = np.random.default_rng(7)
    rows = sum(QUERIES)
    lens = np.add(QUERIES, CONTEXTS).astype("<i4")
    blocks = -(-lens // BLOCK)
    table = np.zeros((len(lens), blocks.max()), dtype="<i4")
    order = random.permutation(blocks.sum())
    for request, count in enumerate(blocks):
        table[request, :count] = order[blocks[:request].sum():][:count]
    slots = blocks.sum() * BLOCK
    normal = lambda *shape: random.standard_normal(shape)
    return {
        "q": to_bf16(normal(rows, 2 * world, 12)),
        "kv": to_bf16(normal(slots, 12)),
        "iq": to_bf16(normal(rows, 4, 8)),
        "iw": normal(rows, 4).astype("<f4"),
        "ik": to_bf16(normal(slots, 8)),
        "start": np.cumsum([0] + QUERIES).astype("<i4"),
        "lens": lens,
        "table": table,
        "rows": np.array(rows, dtype="<i8"),
    }


def run_reference(program, inputs, directory):
    os.makedirs(directory, exist_ok=True)
    command = ["shardq-run", program, "--output-dir=" + directory]
    for name, array in inputs.items():
        path = os.path.join(directory, name + ".npy")
        np.save(path, array)
        command.append(f"--input={name}={path}")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [np.load(os.path.join(directory, f"result{i}.npy")) for i in (0, 1)]


def main():
    libraries, library, program, world, directory = sys.argv[1:6]
    world, strided = int(world), "strided" in sys.argv[6:]
    inputs = make_inputs(world)
    expected = run_reference(program, inputs, directory)
    runtime, module = dlpack.load(libraries, library)
    rows = sum(QUERIES)
    out = np.zeros((world, rows, 2, 8), dtype="<u2")
    lse = np.zeros((world, rows, 2), dtype="<f4")

    def body(rank, context):
        q = inputs["q"][:, 2 * rank:2 * rank + 2]
        if not strided:
            q = np.ascontiguousarray(q)
        arguments = [
            tensor(q, BFLOAT), tensor(inputs["kv"], BFLOAT),
            tensor(inputs["iq"], BFLOAT), tensor(inputs["iw"]),
            tensor(inputs["ik"], BFLOAT), tensor(inputs["start"]),
            tensor(inputs["lens"]), tensor(inputs["table"]),
            ctypes.c_int64(rows)]
        for turn in range(3):
            again = [np.zeros_like(out[rank]), np.zeros_like(lse[rank])]
            status = dlpack.call(module.attention, context, *arguments,
                                 tensor(again[0], BFLOAT), tensor(again[1]))
            assert status == OK, dlpack.message(runtime, context)
            # The same machine code on the same rows.
            assert turn == 0 or (again[0] == out[rank]).all()
            out[rank], lse[rank] = again

    dlpack.run_ranks(runtime, module, world, body)
    found = from_bf16(out).transpose(1, 0, 2, 3).reshape(rows, 2 * world, 8)
    np.testing.assert_allclose(found, from_bf16(expected[0]), rtol=2**-6,
                               atol=2**-9)
    np.testing.assert_allclose(lse.transpose(1, 0, 2).reshape(rows, 2 * world),
                               expected[1], rtol=1e-5, atol=1e-5)
    print("all right on", world, "ranks")


main()
