"""Running pointwise kernels on a GPU: find the shape of the work, print and compile the kernel for it once, launch.

A launch has three parts, each remembered under what it depends on:

    plan      shapes, strides and element sizes -> the loops, whether elements can be moved in packs, the shape of the result
    kernel    formula, dtype and the plan's variant -> compiled code, in memory and on disk
    call      the addresses and numbers of this very call
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import signal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import cupy
import numpy as np
from cupy.cuda import Device, driver, get_current_stream, runtime
from cupy.cuda.compiler import compile_using_nvrtc
from cupy.cuda.function import Module

from flambeau import dtypes
from flambeau.kernels import layout
from flambeau.kernels.language import print_cuda
from flambeau.kernels.language.pointwise import Pointwise
from flambeau.kernels.language.print_cuda import ARRAY, MAX_DIMS, NUMBER, ONE, THREADS, Instance
from flambeau.kernels.native.native import address

ndarray = cupy.ndarray
View = tuple[tuple[int, ...], tuple[int, ...]]  # (shape, strides in bytes)


def run(kernel: Pointwise, operands, params, key: np.dtype, out_dtype: np.dtype, out: Any = None):
    """Run a kernel on CuPy arrays and Python numbers, into `out` or into fresh memory. At least one operand, or `out`, is an array."""
    found = _run_flat(kernel, operands, params, key, out_dtype, out)
    if found is not None:
        return found
    ready = [a.item() if type(a) is np.ndarray else a for a in operands]  # a 0-d array of the CPU is a number
    like = out if out is not None else next(a for a in ready if type(a) is ndarray)
    device = like.data.device_id
    if device == runtime.getDevice():
        return _run(kernel, ready, params, key, out_dtype, out, device)
    with Device(device):
        return _run(kernel, ready, params, key, out_dtype, out, device)


def _run_flat(kernel, operands, params, key, out_dtype, out):
    """The everyday case: contiguous arrays of one shape, and numbers. None for any other."""
    shape, device = None if out is None else out.shape, runtime.getDevice()
    pointers, arrays = [], 0
    for i, a in enumerate(operands if out is None else (*operands, out)):
        if type(a) is not ndarray:
            if type(a) is np.ndarray:
                return None
            pointers.append(0)
            continue
        if shape is None:
            shape = a.shape
        if not a._c_contiguous or a.shape != shape or a.data.device_id != device:
            return None
        pointers.append(a.data.ptr)
        arrays |= 1 << i  # that of `out` comes last, and is always one
    if shape is None or 0 in shape:
        return None
    if out is None:
        out = ndarray(shape, out_dtype)
        # A dimension of size 1 may have any stride, and hands it on: see layout.pointwise_strides.
        if 1 in shape and any([type(a) is ndarray and (a.itemsize != out.itemsize or a.strides != out.strides) for a in operands]):
            return None
        pointers.append(out.data.ptr)
        arrays |= 1 << len(operands)
    which = (kernel, key.num, out_dtype.num, arrays, device)  # numbers: the hash of a dtype takes its time
    flat = _flats.get(which)
    if flat is None:
        flat = _flats[which] = Flat(kernel, key, out_dtype, operands, device)
    n = out.size
    if n >= 2**31 or not flat.pack or any([pointer % size for pointer, size in zip(pointers, flat.sizes, strict=True)]):
        return _run(kernel, operands, params, key, out_dtype, out, device)
    last = pointers.pop()
    arguments = (last, *pointers) if flat.only_arrays else _arguments(kernel, operands, (last, *pointers), params, key)
    threads = n // flat.pack + n % flat.pack
    flat.function(((threads + THREADS - 1) // THREADS,), _BLOCK, (*arguments, n, flat.geometry))
    return out


_BLOCK = (THREADS,)


class Flat:
    """A kernel for contiguous arrays of one shape: its code does not depend on that shape.

    sizes        what the address of each operand, and of the result, must be a multiple of
    only_arrays  whether it takes no numbers
    """

    def __init__(self, kernel: Pointwise, key: np.dtype, out_dtype: np.dtype, operands, device: int):
        sizes = (out_dtype.itemsize, *[a.dtype.itemsize if type(a) is ndarray else 0 for a in operands])
        modes = tuple(ARRAY if size else NUMBER for size in sizes[1:])
        self.only_arrays = NUMBER not in modes and not kernel.options
        steps = [(1,), *[(int(m == ARRAY),) for m in modes]]
        self.pack = _pack((1,), steps, modes, sizes)
        self.sizes = tuple(max(size * self.pack, 1) for size in (*sizes[1:], sizes[0]))
        if self.pack:
            variant = Variant(modes, tuple(m == ARRAY for m in modes), self.pack)
            self.geometry = geometry_of((1,), [(step * self.pack,) for (step,) in steps], False)
            self.function = _load(kernel, key, out_dtype, variant, device)


_flats: dict[tuple, Flat] = {}


def _run(kernel, operands, params, key, out_dtype, out, device):
    views = tuple([(a.shape, a.strides) if type(a) is ndarray else None for a in operands])
    sizes = (out_dtype.itemsize, *[a.dtype.itemsize if type(a) is ndarray else 0 for a in operands])
    plan = plan_for(views, None if out is None else (out.shape, out.strides), sizes)
    if out is None:
        out = strided(plan.shape, plan.strides, out_dtype)
    if not plan.n:
        return out
    if plan.variant is None:
        return _piece_by_piece(kernel, operands, params, key, out_dtype, out)
    pointers = [out.data.ptr, *[a.data.ptr if type(a) is ndarray else 0 for a in operands]]
    pack = plan.variant.pack
    if pack and any([p % (pack * s) for p, s, flat in zip(pointers, sizes, (True, *plan.variant.flat), strict=True) if flat]):
        plan = plan_for(views, (out.shape, out.strides), sizes, False)
    function = _load(kernel, key, out_dtype, plan.variant, device)
    function(plan.grid, _BLOCK, (*_arguments(kernel, operands, pointers, params, key), plan.n, plan.geometry))
    return out


def _arguments(kernel: Pointwise, operands, pointers, params, key: np.dtype) -> list:
    """Addresses and numbers in the order of the kernel's parameters; see `print_cuda._parameters`."""
    found: list = [pointers[0]]
    for a, pointer, kind in zip(operands, pointers[1:], kernel.kinds, strict=True):
        if type(a) is ndarray:
            found.append(pointer)
        elif kind != "T" or key.kind in "biu":
            found.append(int(a))
        else:
            found += _number(a, key)
    for p in params:
        found += _number(p, key)
    return found


def _number(value, key: np.dtype) -> tuple[float, ...]:
    return (complex(value).real, complex(value).imag) if key.kind == "c" else (float(value),)


def _piece_by_piece(kernel, operands, params, key, out_dtype, out):
    """More loops than a kernel has: one launch for every index of the first dimension that is longer than 1."""
    dim = next(d for d, n in enumerate(out.shape) if n > 1)
    spread = [cupy.broadcast_to(a, out.shape) if type(a) is ndarray else a for a in operands]
    for i in range(out.shape[dim]):
        here = (slice(None),) * dim + (i,)
        run(kernel, [a[here] if type(a) is ndarray else a for a in spread], params, key, out_dtype, out[here])
    return out


def strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype):
    """Uninitialised dense memory on the current device; strides in bytes."""
    extent = 0 if 0 in shape else dtype.itemsize + sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)])
    return ndarray(shape, dtype, cupy.cuda.alloc(extent), strides)


# -- plans ---------------------------------------------------------------------------------------------------------------


class Variant(NamedTuple):
    """How the work of a kernel is laid out, as far as its code depends on that: see `print_cuda.Instance`."""

    modes: tuple[str, ...]
    flat: tuple[bool, ...] = ()
    pack: int = 0
    wide: bool = False


@dataclass(frozen=True)
class Plan:
    """One shape of work. `variant` is None where there are more loops than a kernel has."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # of the result, in bytes
    n: int
    variant: Variant | None = None
    grid: tuple[int, ...] = (0,)
    geometry: np.ndarray | None = None


@lru_cache(4096)
def plan_for(views: tuple[View | None, ...], out: View | None, sizes: tuple[int, ...], aligned: bool = True) -> Plan:
    """The plan for operands with these views (None: a number) and for `out`, if it is given; sizes are those of elements, out's first."""
    counted = [((), ()) if v is None else (v[0], _in_elements(v[1], s)) for v, s in zip(views, sizes[1:], strict=True)]
    if out is None:
        shape = layout.broadcast_shapes(*[v[0] for v in counted])
        out_strides = layout.pointwise_strides(shape, *counted)
    else:
        shape, out_strides = out[0], _in_elements(out[1], sizes[0])
    n = math.prod(shape)
    in_bytes = tuple(s * sizes[0] for s in out_strides)
    if not n:
        return Plan(shape, in_bytes, 0)
    modes = tuple(NUMBER if v is None else ONE if math.prod(v[0]) == 1 else ARRAY for v in views)
    steps = [layout.broadcast_strides(*c, shape) if m == ARRAY else (0,) * len(shape) for c, m in zip(counted, modes, strict=True)]
    loops, (out_steps, *steps) = layout.collapse(shape, out_strides, *steps)
    if not loops:
        loops, out_steps, steps = (1,), (1,), [(int(m == ARRAY),) for m in modes]
    if len(loops) > MAX_DIMS:
        return Plan(shape, in_bytes, n)
    all_steps = [out_steps, *steps]
    wide = reach_of(loops, all_steps) >= 2**31
    pack = _pack(loops, all_steps, modes, sizes) if aligned else 0
    if not pack:
        return Plan(shape, in_bytes, n, Variant(modes, wide=wide), grid_for(n), geometry_of(loops, all_steps, wide))
    flat = tuple(m == ARRAY and s[-1] == 1 for m, s in zip(modes, steps, strict=True))
    packs = (*loops[:-1], max(loops[-1] // pack, 1))
    pack_steps = [(*s[:-1], s[-1] * pack) for s in all_steps]
    # In one dimension the elements beyond the last whole pack get a thread each.
    threads = n // pack + n % pack
    return Plan(shape, in_bytes, n, Variant(modes, flat, pack, wide), grid_for(threads), geometry_of(packs, pack_steps, wide))


def _in_elements(strides: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple([s // size for s in strides])


def reach_of(loops, all_steps) -> int:
    """A bound for every position and every offset."""
    return max(
        math.prod(loops), *[sum([(size - 1) * abs(step) for size, step in zip(loops, steps, strict=True)]) + 1 for steps in all_steps]
    )


def _pack(loops, all_steps, modes, sizes) -> int:
    """How many neighbours a thread can move at once: 16 bytes of the widest operand, if everything lies in steps of whole packs; else 0."""
    arrays = [(steps, size) for steps, size, mode in zip(all_steps, sizes, (ARRAY, *modes), strict=True) if mode == ARRAY]
    pack = min(16 // max([size for _, size in arrays]), 8)
    inner_ok = all_steps[0][-1] == 1 and all([steps[-1] in (0, 1) for steps, _ in arrays])
    if pack < 2 or not inner_ok:
        return 0
    if len(loops) == 1:
        return pack
    outer_ok = all([step % pack == 0 for steps, _ in arrays if steps[-1] for step in steps[:-1]])
    return pack if outer_ok and loops[-1] % pack == 0 else 0


def grid_for(threads: int) -> tuple[int]:
    return ((threads + THREADS - 1) // THREADS,)


def geometry_of(loops, all_steps, wide: bool) -> np.ndarray:
    """The struct Geometry of print_cuda, as one element that CuPy hands over by value."""
    count = len(all_steps)
    fields = np.zeros(1 + (1 if wide else 3) * MAX_DIMS + count * MAX_DIMS, np.int64 if wide else np.int32)
    fields[0] = len(loops)
    fields[1 : 1 + len(loops)] = loops
    if not wide:
        magic = fields.view(np.uint32)[1 + MAX_DIMS :]
        for d, size in enumerate(loops):
            magic[d], magic[MAX_DIMS + d] = _divider(size)
    for o, steps in enumerate(all_steps):
        start = len(fields) - (count - o) * MAX_DIMS
        fields[start : start + len(loops)] = steps
    return fields.view(f"V{fields.nbytes}")


def _divider(size: int) -> tuple[int, int]:
    """(magic, shift) with a // size == ((a * magic >> 32) + a) >> shift for 0 <= a < 2**31."""
    shift = (size - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - size)) // size + 1, shift


def where_it_is(position: int) -> Callable:
    """Runs a function on the GPU of its argument number `position`: an array, or a list of them. To change GPUs takes longer than to ask."""

    def decorated(function: Callable) -> Callable:
        @wraps(function)
        def run(*args, **options):
            array = args[position]
            device = (array[0] if isinstance(array, Sequence) else array).data.device_id
            if device == runtime.getDevice():
                return function(*args, **options)
            with Device(device):
                return function(*args, **options)

        return run

    return decorated


class Kernel:
    """A compiled kernel. Called as CuPy's are, in half the time: it lays out its arguments once, and later only writes the new numbers.

    Numbers take 8 bytes, as kernels declare them. The driver is given the addresses of all arguments: those of structures, which are arrays,
    and for numbers those of their places behind the addresses. One thread at a time writes and launches, which copies everything.
    """

    def __init__(self, function: Any):
        self.ptr, self._function = function.ptr, function
        self._room: bytearray | None = None
        self._count = -1  # of arguments, if they are such as can be laid out
        self._lock = Lock()

    def __call__(self, grid: tuple[int, ...], block: tuple[int], args: Sequence, shared: int = 0) -> None:
        if len(args) != self._count:
            if self._room is None:
                self._lay_out(args)
            return self._function(grid, block, args, shared)
        numbers = args if not self._structures else [args[i] for i in self._numbers]
        across, down = grid if len(grid) == 2 else (*grid, 1)
        try:
            with self._lock:
                self._write(self._room, self._start, *numbers)
                for i in self._structures:
                    _WRITE_ADDRESS(self._room, 8 * i, address(args[i]))
                driver.launchKernel(self.ptr, across, down, 1, block[0], 1, 1, shared, get_current_stream().ptr, self._address, 0)
        except (struct.error, TypeError):  # other arguments than the first time
            self._function(grid, block, args, shared)

    def _lay_out(self, args: Sequence) -> None:
        with self._lock:
            self._structures = [i for i, a in enumerate(args) if type(a) is np.ndarray]
            self._numbers = [i for i in range(len(args)) if i not in self._structures]
            known = all([type(args[i]) in _LETTERS for i in self._numbers])
            self._start = 8 * len(args)
            self._write = struct.Struct("".join([_LETTERS[type(args[i])] for i in self._numbers]) if known else "").pack_into
            room = bytearray(self._start + 8 * len(self._numbers))
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(room))  # which now keeps its size, and so its place
            for place, i in enumerate(self._numbers):
                _WRITE_ADDRESS(room, 8 * i, self._address + self._start + 8 * place)
            self._room = room
            self._count = len(args) if known else -1


_LETTERS = {int: "q", float: "d"}
_WRITE_ADDRESS = struct.Struct("Q").pack_into

MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CU_FUNC_ATTRIBUTE_...


def with_shared_memory(kernel, size: int):
    """The kernel, which may be launched with so many bytes of shared memory: without a word more than 48 KiB are refused."""
    driver.funcSetAttribute(kernel.ptr, MAX_DYNAMIC_SHARED_SIZE_BYTES, size)
    return kernel


@lru_cache(None)
def multiprocessors(device: int) -> int:
    """How many blocks run at the same time, at least."""
    return Device(device).attributes["MultiProcessorCount"]


@lru_cache(None)
def most_shared_memory(device: int) -> int:
    """Bytes that a block can have if it asks."""
    return Device(device).attributes["MaxSharedMemoryPerBlockOptin"]


# -- compiling -----------------------------------------------------------------------------------------------------------

_functions: dict[tuple, Any] = {}


def _load(kernel: Pointwise, key: np.dtype, out_dtype: np.dtype, variant: Variant, device: int):
    """The compiled kernel on a device, remembered."""
    function = _functions.get((kernel, key, out_dtype, variant, device))
    if function is not None:
        return function
    dtype, out = dtypes.OF_NUMPY[key].name, dtypes.OF_NUMPY[out_dtype].name
    instance = Instance(kernel.name, kernel.expr, kernel.kinds, len(kernel.options), dtype, out, *variant)
    options = ("--std=c++17", *(_complex_headers() if print_cuda.uses_complex(instance) else ()))
    module = load_source(instance.function, print_cuda.print_kernel(instance), options)
    function = _functions[kernel, key, out_dtype, variant, device] = Kernel(module.get_function(instance.function))
    return function


@lru_cache(None)
def compiled(print_source: Callable, name: str, device: int, *what):
    """The kernel `name` in the CUDA C++ that print_source(*what) gives, for the current device; remembered."""
    return Kernel(load_source(name, print_source(*what)).get_function(name))


def load_source(name: str, source: str, options: tuple[str, ...] = ("--std=c++17",)) -> Module:
    """CUDA C++ compiled for the current device; what was compiled before, by this or another process, comes from the disk."""
    # Not CuPy's RawModule: that flushes denormal numbers to zero, and a tensor's values must not depend on the device so much.
    architecture = Device().compute_capability
    text = "\0".join((source, *options, architecture, str(runtime.runtimeGetVersion())))
    path = cache_directory() / f"{name[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.cubin"
    try:
        binary = path.read_bytes()
    except OSError:
        with _undisturbed():
            binary, _ = compile_using_nvrtc(source, options, architecture, f"{name}.cu", cache_in_memory=True)
        _keep(path, binary)
    module = Module()
    module.load(binary)
    return module


@contextlib.contextmanager
def _undisturbed():
    """Ctrl-C waits until the compiler is done: a process that was interrupted inside of it ended at once, with status 4."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@lru_cache(1)
def cache_directory() -> Path:
    """Where compiled kernels are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "flambeau" / "cuda"


def _keep(path: Path, binary: bytes) -> None:
    """Write a file whole or not at all; where nothing can be written, every run compiles anew."""
    temporary = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(binary)
        temporary.replace(path)


def _complex_headers() -> tuple[str, ...]:
    """Where CuPy keeps its complex numbers and what they are made of."""
    root = Path(cupy.__file__).parent / "_core" / "include"
    return tuple(f"-I{root / part}" for part in ("", "cupy/_cccl/libcudacxx", "cupy/_cccl/thrust", "cupy/_cccl/cub"))
