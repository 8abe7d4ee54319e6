"""Calls shardq-compile-call.mlir on one rank: results, and what is refused.

call-alone.py LIBRARIES MODULE.so
"""

import ctypes
import sys

import numpy as np

import dlpack
from dlpack import BFLOAT, CUDA, INVALID, OK, tensor


def check(runtime, context, status, expected):
    """The call was refused with that message."""
    found = dlpack.message(runtime, context)
    assert status == INVALID and found == (INVALID, expected), found


def take(runtime, module, context):
    source = dlpack.to_bf16(np.arange(20).reshape(5, 4))
    rows = np.array([3, 0, 4], dtype="<i4")
    result = np.zeros((3, 4), dtype="<u2")
    count = ctypes.c_int64(-1)
    given = lambda code=BFLOAT, **f: tensor(source, code, **f)
    wanted = lambda code=BFLOAT, **f: tensor(result, code, **f)
    n = ctypes.c_int64(7)

    def run(a=None, r=None, out=None):
        return dlpack.call(module.take, context, a or given(), r or tensor(rows),
                           n, out or wanted(), ctypes.byref(count))

    assert run() == OK
    assert (result == source[rows]).all() and count.value == 7
    # The scalar is not wanted.
    assert dlpack.call(module.take, context, given(), tensor(rows), n, wanted(),
                       None) == OK

    # Memory without strides is contiguous; a byte offset moves the beginning.
    longer = np.concatenate([np.zeros((1, 4), "<u2"), source])
    result[:] = 0
    assert run(tensor(longer, BFLOAT, byte_offset=8, strides=None,
                      shape=[5, 4])) == OK
    assert (result == source[rows]).all()

    kv = "take: argument 0 \"source\": "
    for refused, text in [
        (given(code=dlpack.FLOAT), "element type is float16, expected bfloat16"),
        (given(bits=32), "element type is bfloat32, expected bfloat16"),
        (given(lanes=2), "element type is bfloat16x2, expected bfloat16"),
        (given(ndim=1), "has 1 dimension, expected 2"),
        (given(shape=[4, 5]), "dimension 1 has size 5, expected 4"),
        (given(shape=[-1, 4]), "dimension 0 has size -1"),
        (given(shape=[2**62, 4]), "has more bytes than memory has"),
        (given(strides=[8, 1]),
         "is not contiguous: dimension 0 has stride 8, expected 4"),
        (given(data=None), "has no data"),
        (given(device_type=CUDA, device_id=1), "is on cuda:1, expected cpu"),
        (given(device_type=8), "is on device 8:0, expected cpu"),
    ]:
        result[:] = 77
        count.value = 77
        check(runtime, context, run(refused), kv + text)
        assert (result == 77).all() and count.value == 77
    check(runtime, context,
          dlpack.call(module.take, context, None, tensor(rows), n, wanted(),
                      None), kv + "is NULL")
    odd = source.ctypes.data + 1
    check(runtime, context, run(given(data=odd)),
          kv + "starts at address %#x, expected a multiple of 2 bytes" % odd)
    check(runtime, context, run(r=tensor(rows.astype("<i8"))),
          "take: argument 1 \"rows\": element type is int64, expected int32")

    # Sizes that only the program knows are compared at its end.
    short = np.full((2, 4), 77, dtype="<u2")
    check(runtime, context, run(out=tensor(short, BFLOAT)),
          "take: result 0: dimension 0 has size 2, the program made 3")
    assert (short == 77).all()
    check(runtime, context, run(out=wanted(code=dlpack.UINT)),
          "take: result 0: element type is uint16, expected bfloat16")

    # A refused call leaves no trace.
    assert run() == OK and (result == source[rows]).all()
    assert dlpack.message(runtime, context) == (OK, "")

    # No rows at all, and data that nothing is read from.
    none = np.zeros((0, 4), dtype="<u2")
    assert run(r=tensor(np.zeros(0, "<i4"), data=None),
               out=tensor(none, BFLOAT, data=None)) == OK


def twice(runtime, module, context):
    """Two results that are one buffer, and every kind of scalar."""
    rows = np.arange(6, dtype="<i4")
    first, second = np.zeros(6, "<i4"), np.zeros(6, "<i4")
    flag, half, wide = ctypes.c_uint8(), ctypes.c_uint16(), ctypes.c_double()
    assert dlpack.call(module.twice, context, tensor(rows), ctypes.c_uint8(1),
                       ctypes.c_uint16(0x3FC0), ctypes.c_float(0.5),
                       tensor(first), tensor(second), ctypes.byref(flag),
                       ctypes.byref(half), ctypes.byref(wide)) == OK
    assert (first == rows[::-1]).all() and (second == rows[::-1]).all()
    assert (flag.value, half.value, wide.value) == (1, 0x3FC0, 0.5)


def strided(runtime, module, context):
    """Rows at any distance, of a program on buffers."""
    pool = np.arange(60, dtype="<f4").reshape(5, 12)
    result = np.zeros((5, 8), dtype="<f4")
    view = pool[:, 2:10]
    assert dlpack.call(module.strided, context, tensor(view), tensor(result)) == OK
    assert (result == view).all()
    # One row's distance to the next is nobody's business.
    assert dlpack.call(module.strided, context,
                       tensor(view[:1], strides=[-5, 1]), tensor(result[:1])) == OK
    check(runtime, context,
          dlpack.call(module.strided, context, tensor(pool[:, :8], strides=[12, 2]),
                      tensor(result)),
          "strided: argument 0 \"view\": dimension 1 has stride 2, expected 1")
    check(runtime, context,
          dlpack.call(module.strided, context, tensor(view, strides=[-12, 1]),
                      tensor(result)),
          "strided: argument 0 \"view\": dimension 0 has stride -12, expected 0 or "
          "more")


def main():
    runtime, module = dlpack.load(sys.argv[1], sys.argv[2])

    def body(rank, context):
        for part in (take, twice, strided):
            part(runtime, module, context)
        # Refused calls are no failure of the group.
        assert runtime.shardq_context_status(context, None, 0) == OK
        # Nothing to check against, and no place to say so.
        assert module.twice(None, None) == INVALID

    dlpack.run_ranks(runtime, module, 1, body)
    print("all right")


main()
