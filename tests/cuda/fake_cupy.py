"""A GPU made of NumPy and g++: enough of CuPy to run the CUDA room on a machine that has none.

Arrays are NumPy's inside, but not for NumPy's functions: mixing the two is the TypeError it is with CuPy, 0-d results stay arrays, and a
ufunc's `at` and `accumulate` exist only where CuPy has them. Kernels are compiled as C++ and run one thread after the other; cuBLASLt
is a library of ours that is called the same way (fake_cublaslt.cpp), so that what is handed to it is checked as well.

    with installed(): ...        `import cupy` finds this module within
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import types
from functools import lru_cache
from pathlib import Path

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels import cuda as cuda_room
from flambeau.kernels.language import print_cuda

# -- memory --------------------------------------------------------------------------------------------------------------


@lru_cache(1)
def fake_driver() -> ctypes.CDLL:
    """CUDA's driver, made of main memory and functions: see fake_driver.cpp."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "libcuda_of_tests.so"
    source = Path(__file__).with_name("fake_driver.cpp")
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    found = ctypes.CDLL(str(library))
    found.fake_limit.argtypes, found.fake_used.restype, found.fake_count.restype = [ctypes.c_size_t], ctypes.c_size_t, ctypes.c_ulonglong
    return found


def _driver(call: str, *args) -> None:
    status = getattr(fake_driver(), call)(*args)
    if status:
        raise CUDARuntimeError(f"{call} gave {status}")


def _handle(call: str) -> int:
    found = ctypes.c_void_p()
    _driver(call, ctypes.byref(found), 0)
    return found.value


class MemoryPointer:
    """An address; `mem` keeps what it points to alive."""

    device_id = 0

    def __init__(self, mem, offset: int):
        self.ptr, self.mem = mem.ptr + offset, mem

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def copy_from_host_async(self, source: int, size: int, stream=None) -> None:
        self._copy(self.ptr, source, size)

    def copy_to_host_async(self, target: int, size: int, stream=None) -> None:
        self._copy(target, self.ptr, size)

    def copy_from_device_async(self, source: MemoryPointer, size: int, stream=None) -> None:
        self._copy(self.ptr, source.ptr, size)

    def _copy(self, to: int, source: int, size: int) -> None:
        _driver("cuMemcpyAsync", *map(ctypes.c_uint64, (to, source, size, get_current_stream().ptr)))

    def memset_async(self, value: int, size: int, stream=None) -> None:
        _driver(
            "cuMemsetD8Async",
            ctypes.c_uint64(self.ptr),
            ctypes.c_ubyte(value),
            ctypes.c_uint64(size),
            ctypes.c_uint64(get_current_stream().ptr),
        )


class Lent:
    """Memory that belongs to somebody else."""

    device_id = 0

    def __init__(self, ptr: int, owner):
        self.ptr, self.owner, self.size = ptr, owner, owner.nbytes if isinstance(owner, np.ndarray) else 0


class PinnedPool:
    """Keeps nothing."""

    def free_all_blocks(self) -> None:
        """There is nothing."""


allocator = None

# -- arrays --------------------------------------------------------------------------------------------------------------


def _at(pointer: int, shape, dtype, strides, owner=None) -> np.ndarray:
    """A NumPy array over memory found by address; it and all views of it keep `owner` alive."""
    if 0 in shape:
        return np.lib.stride_tricks.as_strided(np.empty(0, dtype), shape, strides)
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0) + np.dtype(dtype).itemsize
    found = (ctypes.c_ubyte * (high - low)).from_address(pointer + low)
    found.owner = owner
    raw = np.frombuffer(found, np.uint8)
    return np.ndarray(shape, dtype, raw.data, -low, strides)


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """cupy.ndarray."""

    __array_priority__ = 100

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        dtype = np.dtype(dtype)
        if strides is None:
            strides, step = [], dtype.itemsize
            for n in reversed(shape):
                strides.insert(0, step)
                step *= max(n, 1)
        if memptr is None:
            memptr = allocator(int(np.prod(shape, dtype=object)) * dtype.itemsize)
        self._np, self.data = _at(memptr.ptr, tuple(shape), dtype, tuple(strides), memptr.mem), memptr

    shape = property(lambda self: self._np.shape)
    strides = property(lambda self: self._np.strides)
    dtype = property(lambda self: self._np.dtype)
    size = property(lambda self: self._np.size)
    ndim = property(lambda self: self._np.ndim)
    itemsize = property(lambda self: self._np.itemsize)
    nbytes = property(lambda self: self._np.nbytes)
    flags = property(lambda self: self._np.flags)
    _c_contiguous = property(lambda self: self._np.flags.c_contiguous)
    device = property(lambda self: Device(0))
    T = property(lambda self: wrap(self._np.T, self))
    real = property(lambda self: wrap(self._np.real, self), lambda self, value: setattr(self._np, "real", _unwrapped(value)))
    imag = property(lambda self: wrap(self._np.imag, self), lambda self, value: setattr(self._np, "imag", _unwrapped(value)))
    __cuda_array_interface__ = property(lambda self: {"shape": self.shape})

    def get(self) -> np.ndarray:
        return self._np.copy()

    def item(self):
        return self._np.item()

    def tolist(self) -> list:
        return self._np.tolist()

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly.")

    def __len__(self) -> int:
        return len(self._np)

    def __bool__(self) -> bool:
        return bool(self._np)

    def __int__(self) -> int:
        return int(self._np)

    def __float__(self) -> float:
        return float(self._np)

    __index__ = __int__

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index):
        return wrap(self._np[_unwrapped(index)], self)

    def __setitem__(self, index, value):
        self._np[_unwrapped(index)] = _unwrapped(value)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        if method != "__call__":
            raise TypeError(f"ufunc.{method} goes through cupy")
        targets = {} if out is None else {"out": tuple(map(_unwrapped, out))}
        found = ufunc(*map(_unwrapped, inputs), **targets, **kwargs)
        return out[0] if out is not None else wrap(found)

    def __array_function__(self, function, kinds, args, kwargs):
        return getattr(sys.modules[__name__], function.__name__)(*args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("_") or name in MISSING_METHODS:
            raise AttributeError(name)
        method = getattr(np.ndarray, name)

        def call(*args, **kwargs):
            kwargs.pop("subok", None)
            return wrap(method(self._np, *map(_unwrapped, args), **{k: _unwrapped(v) for k, v in kwargs.items()}), self)

        return call


MISSING_METHODS = {"resize", "itemset", "tostring", "newbyteorder", "setflags", "getfield"}


def wrap(found, owner=None):
    """NumPy's results as CuPy's: scalars become 0-d arrays, tuples and lists keep their kind."""
    if isinstance(found, (tuple, list)):
        return (
            type(found)(wrap(f, owner) for f in found) if not hasattr(found, "_fields") else type(found)(*(wrap(f, owner) for f in found))
        )
    if isinstance(found, np.generic):
        found = np.asarray(found)
    if not isinstance(found, np.ndarray):
        return found
    made = object.__new__(ndarray)
    made._np = found
    keep = owner.data if owner is not None and np.may_share_memory(owner._np, found) else found
    address = found.__array_interface__["data"][0]
    if isinstance(keep, MemoryPointer):
        made.data = MemoryPointer(keep.mem, address - keep.mem.ptr)
    else:
        made.data = MemoryPointer(Lent(address, found), 0)
    return made


def _unwrapped(value):
    if isinstance(value, ndarray):
        return value._np
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"Unsupported type {type(value)}: a NumPy array was given to CuPy")
    if isinstance(value, (tuple, list)):
        return type(value)(map(_unwrapped, value)) if not hasattr(value, "_fields") else value
    return value


# -- functions -----------------------------------------------------------------------------------------------------------

AT = {"add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"}


class ufunc:
    """A NumPy ufunc with the methods CuPy has."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return _called(self.function, args, kwargs)

    def at(self, array, indices, values=None):
        if self.function.__name__ not in AT:
            raise NotImplementedError(f"`cupy_{self.function.__name__}.at` is not supported yet")
        self.function.at(array._np, _unwrapped(indices), _unwrapped(values))

    def accumulate(self, array, axis=0, dtype=None, out=None):
        if self.function.__name__ not in ("add", "multiply"):
            raise NotImplementedError(f"`cupy_{self.function.__name__}.accumulate` is not supported yet")
        return wrap(self.function.accumulate(array._np, axis, dtype))

    reduce = None


def _called(function, args, kwargs):
    out = kwargs.get("out")
    kwargs = {k: _unwrapped(v) for k, v in kwargs.items()}
    with np.errstate(all="ignore"):
        found = function(*map(_unwrapped, args), **kwargs)
    return out if out is not None else wrap(found)


def _from_numpy(function):
    return lambda *args, **kwargs: _called(function, args, kwargs)


def asarray(a, dtype=None, order=None, **kwargs):
    return wrap(np.asarray(_host(a), dtype=dtype, order=order), a if isinstance(a, ndarray) else None)


def array(a, dtype=None, copy=True, order="K", **kwargs):
    return wrap(np.array(_host(a), dtype=dtype, order=order))


def asnumpy(a) -> np.ndarray:
    return a.get()


def _host(a):
    """Creation is where CuPy takes NumPy's arrays."""
    return a if isinstance(a, np.ndarray) else _unwrapped(a)


NAMES: set[str] | None = None  # the names the real CuPy has, where a test knows them


def __getattr__(name: str):
    if name.startswith("__") or (NAMES is not None and name not in NAMES):
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    found = getattr(np, name)
    if isinstance(found, np.ufunc):
        return ufunc(found)
    if isinstance(found, types.ModuleType):
        module = types.SimpleNamespace()
        module.__dict__.update({n: _from_numpy(f) for n, f in vars(found).items() if callable(f) and not isinstance(f, type)})
        return module
    return found if isinstance(found, type) or not callable(found) else _from_numpy(found)


# -- devices and kernels -------------------------------------------------------------------------------------------------


class Device:
    """The one GPU."""

    attributes = {"MultiProcessorCount": 2, "MaxThreadsPerMultiProcessor": 512, "MaxSharedMemoryPerBlockOptin": 227 << 10}
    compute_capability = "00"

    def __init__(self, index=None):
        self.id = 0

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        return None

    def use(self):
        return self

    def synchronize(self):
        return None


class _Here(threading.local):
    """Streams that are current in a thread, the innermost last."""

    def __init__(self):
        self.streams: list[Stream] = []


_here = _Here()


class Stream:
    """A stream of the driver; what is asked of it is done at once, or captured."""

    def __init__(self, *args, ptr: int | None = None, priority: int = 0, **kwargs):
        self.ptr, self.priority, self.done = _handle("cuStreamCreate") if ptr is None else ptr, priority, True

    def synchronize(self):
        _driver("cuStreamSynchronize", ctypes.c_void_p(self.ptr))

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        _driver("cuStreamWaitEvent", ctypes.c_void_p(self.ptr), ctypes.c_void_p(event.ptr), 0)

    def use(self):
        _here.streams[-1:] = [self]
        return self

    def __enter__(self):
        _here.streams.append(self)
        return self

    def __exit__(self, *problem):
        _here.streams.pop()

    def is_capturing(self) -> bool:
        status = ctypes.c_int()
        _driver("cuStreamIsCapturing", ctypes.c_void_p(self.ptr), ctypes.byref(status))
        return bool(status.value)


def get_current_stream() -> Stream:
    """That of this thread."""
    return _here.streams[-1] if _here.streams else Stream.null


class Event:
    """Happens at once, unless the driver is told to hold back."""

    def __init__(self, *args, **kwargs):
        self.ptr = _handle("cuEventCreate")

    def record(self, stream=None):
        _driver("cuEventRecord", ctypes.c_void_p(self.ptr), ctypes.c_void_p((stream or get_current_stream()).ptr))

    @property
    def done(self) -> bool:
        return not fake_driver().cuEventQuery(ctypes.c_void_p(self.ptr))

    def synchronize(self):
        _driver("cuEventSynchronize", ctypes.c_void_p(self.ptr))


HOST = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <cstdlib>
#include <ucontext.h>
#define FL_HOST
#define __device__
#define __global__ static
#define __grid_constant__
#define __launch_bounds__(n)
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
using std::copysign; using std::floor; using std::ceil; using std::exp; using std::log; using std::tan; using std::rint;
#define __shared__ static
struct { unsigned x, y; } blockIdx, threadIdx, blockDim, gridDim;
/* Threads that wait for each other are fibers: a barrier lets all others of the block run up to it. */
static ucontext_t fl_fibers[1024], fl_main;
static unsigned fl_here;
static bool fl_done[1024];
static void __syncthreads() { swapcontext(&fl_fibers[fl_here], &fl_main); threadIdx.x = fl_here; }
/* All threads of a block come here together. */
static void __syncwarp() { __syncthreads(); }
template <class T> static T __shfl_xor_sync(unsigned, T x, int distance) {
    static T given[1024];
    given[fl_here] = x, __syncthreads();
    const T found = given[fl_here ^ distance];
    return __syncthreads(), found;
}
static float __int_as_float(int32_t i) { float f; memcpy(&f, &i, 4); return f; }
static double __longlong_as_double(int64_t i) { double f; memcpy(&f, &i, 8); return f; }
template <class F> static void fl_block(unsigned threads, F body, bool waits) {
    static F *current; current = &body;
    static char *stacks = (char *)malloc(1024 << 16);
    if (!waits) { for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) body(); return; }
    for (unsigned t = 0; t < threads; t++) {
        getcontext(&fl_fibers[t]), fl_done[t] = false;
        fl_fibers[t].uc_stack.ss_sp = stacks + (t << 16), fl_fibers[t].uc_stack.ss_size = 1 << 16, fl_fibers[t].uc_link = &fl_main;
        makecontext(&fl_fibers[t], (void (*)())+[] { (*current)(); fl_done[fl_here] = true; }, 0);
    }
    for (unsigned left = threads; left;)
        for (unsigned t = left = 0; t < threads; t++)
            if (!fl_done[t]) { threadIdx.x = fl_here = t; swapcontext(&fl_main, &fl_fibers[t]); left += !fl_done[t]; }
}
static float rsqrtf(float x) { return 1 / std::sqrt(x); }
static long long clock64() { static long long now; return now += 1000; }
static double rsqrt(double x) { return 1 / std::sqrt(x); }
static void __threadfence_system() {}
template <class T> static T atomicAdd(T *p, T v) { T old = *p; *p += v; return old; }
template <class T> static T atomicCAS(T *p, T seen, T next) { T old = *p; if (old == seen) *p = next; return old; }
#define __sinf sinf
#define __cosf cosf
static double sinpi(double x) { return std::sin(x * M_PI); }
static double cospi(double x) { return std::cos(x * M_PI); }
static float fl_bf16_to_f32(uint16_t h) { uint32_t u = (uint32_t)h << 16; float f; memcpy(&f, &u, 4); return f; }
static uint16_t fl_f32_to_bf16(float f) { uint32_t u; memcpy(&u, &f, 4); return f != f ? 0x7fff : (u + 0x7fff + ((u >> 16) & 1)) >> 16; }
static float fl_f16_to_f32(uint16_t h) { _Float16 v; memcpy(&v, &h, 2); return (float)v; }
static uint16_t fl_f32_to_f16(float f) { _Float16 v = (_Float16)f; uint16_t h; memcpy(&h, &v, 2); return h; }
"""


# Kernels have parts of the same names, which are other things in each: "unique" symbols would make one of all of them.
COMPILER = ["g++", "-std=c++17", "-O0", "-w", "-fwrapv", "-fPIC", "-fno-gnu-unique"]


@lru_cache(1)
def _header() -> Path:
    """A folder with what all kernels begin with, compiled: it is most of the work."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "host.h").write_text(HOST + print_cuda.PREAMBLE)
    subprocess.run([*COMPILER, "-x", "c++-header", "host.h"], cwd=folder, check=True)
    return folder


class Function:
    """A kernel: `ptr` is what the driver launches."""

    def __init__(self, library, name: str):
        self.library, self.ptr = library, ctypes.addressof(ctypes.c_char.in_dll(library, f"function_{name}"))


class Module:
    """Compiled with g++ instead of NVRTC."""

    compiled: dict[bytes, tuple] = {}

    def load(self, source: bytes) -> None:
        if source not in self.compiled:
            text = source.decode()
            (signature,) = re.findall(r"\n(\w+)\(([^{]*)\) \{", text[text.index('extern "C" __global__') :])[:1]
            name, parameters = signature
            kinds = [re.sub(r"\s*\w+$", "", p.replace("const __grid_constant__", "")).strip() for p in _split(parameters)]
            call = ", ".join(f"*({k} *)args[{i}]" for i, k in enumerate(kinds))
            waits = "true" if "__syncthreads" in text else "false"
            text = text.replace('extern "C" __global__', "__global__").replace(print_cuda.PREAMBLE, "")
            text = re.sub(r"extern __shared__ (.*)\[\];", rf"static \1[{Device.attributes['MaxSharedMemoryPerBlockOptin']}];", text)
            sizes = ", ".join(f"sizeof({k})" for k in kinds)
            text += f"""
extern "C" void launch_{name}(unsigned blocks, unsigned parts, unsigned threads, void **args) {{
    gridDim.x = blocks, gridDim.y = parts, blockDim.x = threads;
    for (blockIdx.y = 0; blockIdx.y < parts; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) fl_block(threads, [&] {{ {name}({call}); }}, {waits});
}}
static const int sizes_{name}[] = {{{sizes}}};
extern "C" const struct {{ void (*launch)(unsigned, unsigned, unsigned, void **); int n; const int *sizes; }} function_{name} =
    {{launch_{name}, {len(kinds)}, sizes_{name}}};
"""
            folder = Path(tempfile.mkdtemp(dir=_header()))
            (folder / "kernel.cpp").write_text('#include "../host.h"\n' + text)
            subprocess.run([*COMPILER, "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"], cwd=folder, check=True)
            self.compiled[source] = ctypes.CDLL(str(folder / "kernel.so")), name
        self.found = self.compiled[source]

    def get_function(self, name: str) -> Function:
        library, found = self.found
        assert found == name
        return Function(library, name)


def _split(parameters: str) -> list[str]:
    """At the commas outside <>."""
    return [p.strip() for p in re.split(r",(?![^<]*>)", parameters)]


def compile_using_nvrtc(source, options=(), arch=None, filename="", cache_in_memory=False):
    return source.encode(), None


@lru_cache(1)
def cublaslt() -> ctypes.CDLL:
    """The library of fake_cublaslt.cpp in memory, where kernels/cuda/cublaslt.py finds it by its name."""
    library = _header() / "cublaslt.so"
    source = Path(__file__).with_name("fake_cublaslt.cpp")
    name = "-Wl,-soname,libcublasLt.so.0"
    subprocess.run(["g++", "-std=c++17", "-O2", "-shared", "-fPIC", str(source), name, "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


# -- as a package --------------------------------------------------------------------------------------------------------


class CUDARuntimeError(RuntimeError):
    """CuPy's."""


runtime = types.SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    getDeviceCount=lambda: 1,
    getDevice=lambda: 0,
    memGetInfo=lambda: (1 << 33, 1 << 34),
    runtimeGetVersion=lambda: 0,
    pointerGetAttributes=lambda ptr: types.SimpleNamespace(type=int(ptr in _pinned)),
    deviceCanAccessPeer=lambda a, b: 1,
    getDeviceProperties=lambda index: dict.fromkeys(PROPERTIES, 1) | {"name": b"NumPy", "uuid": bytes(16)},
)


driver = types.SimpleNamespace(funcSetAttribute=lambda function, attribute, value: None)
PROPERTIES = (
    "major minor totalGlobalMem multiProcessorCount warpSize maxThreadsPerMultiProcessor maxThreadsPerBlock sharedMemPerBlock l2CacheSize"
).split()
_pinned: set[int] = set()


def get_default_pinned_memory_pool() -> PinnedPool:
    return PinnedPool()


def set_allocator(function) -> None:
    global allocator
    allocator = function


def empty_pinned(shape, dtype) -> np.ndarray:
    found = np.empty(shape, dtype)
    _pinned.add(found.ctypes.data)
    return found


def _modules() -> dict[str, types.ModuleType | None]:
    def module(name: str, **names) -> types.ModuleType:
        made = types.ModuleType(name)
        made.__dict__.update(names)
        return made

    cublas = module("cupy.cuda.cublas")
    cublaslt()
    cuda = module(
        "cupy.cuda", Device=Device, Stream=Stream, Event=Event, runtime=runtime, driver=driver, alloc=lambda size: allocator(size), cublas=cublas,
        set_allocator=set_allocator, get_current_stream=get_current_stream, get_elapsed_time=lambda a, b: 0.0, MemoryPointer=MemoryPointer,
    )  # fmt: skip
    Stream.null = Stream(ptr=0)
    cuda.memory = module("cupy.cuda.memory")
    found = {
        "cupy": sys.modules[__name__],
        "cupyx": module("cupyx", empty_pinned=empty_pinned, errstate=lambda **kwargs: contextlib.nullcontext()),
        "cupy.cuda": cuda,
        "cupy.cuda.memory": cuda.memory,
        "cupy.cuda.compiler": module("cupy.cuda.compiler", compile_using_nvrtc=compile_using_nvrtc),
        "cupy.cuda.function": module("cupy.cuda.function", Module=Module),
        "cupy.cuda.cublas": cublas,
        "cudnn": None,  # the package is not installed: see fake_cudnn.py
    }
    sys.modules[__name__].cuda = cuda
    return found


@contextlib.contextmanager
def installed():
    """`import cupy` finds this module, and the CUDA room is imported anew on it."""
    before = {n: sys.modules.pop(n, None) for n in (*_modules(), *_rooms())}
    sys.modules.update(_modules())  # type: ignore[arg-type]
    arrays.cuda_room = None
    try:
        yield sys.modules[__name__]
    finally:
        arrays.cuda_room = None
        for name in _rooms():
            vars(cuda_room).pop(name.rpartition(".")[2], None)
            del sys.modules[name]
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def _rooms() -> list[str]:
    """The parts of the CUDA room that have been imported and use CuPy."""
    return [name for name in sys.modules if re.fullmatch(r"flambeau\.kernels\.cuda\.(?!print_)\w+", name)]
