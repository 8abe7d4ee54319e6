"""Calls compiled modules through ctypes: the runtime's C ABI and DLPack."""

import ctypes
import threading

import numpy as np

CPU, CUDA = 1, 2
INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6
OK, INVALID = 0, 1


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


CODES = {"i": INT, "u": UINT, "f": FLOAT, "b": BOOL}


def tensor(array, code=None, **fields):
    """A view of a numpy array; bf16 is uint16 with code=BFLOAT."""
    result = Tensor()
    result.data = array.ctypes.data
    result.device_type = CPU
    result.ndim = array.ndim
    result.code = CODES[array.dtype.kind] if code is None else code
    result.bits = array.dtype.itemsize * 8
    result.lanes = 1
    result.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    result.strides = (ctypes.c_int64 * array.ndim)(
        *(stride // array.dtype.itemsize for stride in array.strides))
    for name, value in fields.items():
        if name in ("shape", "strides") and value is not None:
            value = (ctypes.c_int64 * len(value))(*value)
        setattr(result, name, value)
    result.array = array  # keeps the memory
    return result


class Options(ctypes.Structure):
    """shardq_comm_options of runtime.h, as of ABI version 1."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("rank", ctypes.c_int32),
        ("world", ctypes.c_int32),
        ("bootstrap", ctypes.c_void_p),
        ("plan", ctypes.c_void_p),
        ("deadline_ms", ctypes.c_int64),
        ("rendezvous_deadline_ms", ctypes.c_int64),
        ("fault", ctypes.c_char_p),
    ]


def load(directory, module):
    """The runtime and a module that needs it."""
    runtime = ctypes.CDLL(directory + "/libshardq_runtime.so.1",
                          mode=ctypes.RTLD_GLOBAL)
    runtime.shardq_comm_context.restype = ctypes.c_void_p
    runtime.shardq_comm_context.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    for name in ("shardq_comm_destroy", "shardq_bootstrap_destroy",
                 "shardq_thread_group_destroy"):
        getattr(runtime, name).argtypes = [ctypes.c_void_p]
        getattr(runtime, name).restype = None
    runtime.shardq_bootstrap_threads.argtypes = [
        ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
    runtime.shardq_context_message.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    runtime.shardq_context_status.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    module = ctypes.CDLL(module)
    module.shardq_module_plan.restype = ctypes.c_void_p
    return runtime, module


def call(function, context, *arguments):
    """Tensors by pointer, None as NULL, ctypes values as they are."""
    passed = [ctypes.byref(a) if isinstance(a, Tensor) else a for a in arguments]
    return function(ctypes.c_void_p(context), None, *passed)


def message(runtime, context):
    text = ctypes.create_string_buffer(512)
    status = runtime.shardq_context_message(context, text, len(text))
    return status, text.value.decode()


def run_ranks(runtime, module, world, body):
    """body(rank, context) on a thread for each rank."""
    group = ctypes.c_void_p()
    assert runtime.shardq_thread_group_create(world, ctypes.byref(group)) == OK
    errors = []

    def run(rank):
        bootstrap, comm = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            assert runtime.shardq_bootstrap_threads(
                group, rank, ctypes.byref(bootstrap)) == OK
            options = Options(ctypes.sizeof(Options), rank, world, bootstrap,
                              module.shardq_module_plan(), 20000, 20000, b"")
            text = ctypes.create_string_buffer(512)
            status = runtime.shardq_comm_create(
                ctypes.byref(options), ctypes.byref(comm), text, len(text))
            assert status == OK, text.value
            body(rank, runtime.shardq_comm_context(comm, 0))
        except BaseException as error:
            errors.append((rank, error))
        finally:
            runtime.shardq_comm_destroy(comm)
            runtime.shardq_bootstrap_destroy(bootstrap)

    threads = [threading.Thread(target=run, args=(r,)) for r in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runtime.shardq_thread_group_destroy(group)
    if errors:
        raise errors[0][1]


def to_bf16(values):
    bits = np.asarray(values, dtype="<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def from_bf16(bits):
    return (bits.astype("<u4") << 16).view("<f4")
