"""Running pointwise kernels on a GPU: find the shape of the work, print and compile the kernel for it once, launch.

A launch has three parts, each remembered under what it depends on:

    plan      shapes, strides and element sizes -> the loops, whether elements can be moved in packs, the shape of the result
    kernel    formula, dtype and the plan's variant -> compiled code, in memory and on disk
    call      the addresses and numbers of this very call, which compiled code puts in their places (kernels/native/csrc/gpu_launch.c)
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np
from cupy.cuda import Device, driver, runtime
from cupy.cuda.compiler import compile_using_nvrtc
from cupy.cuda.function import Module

from flambeau import dtypes
from flambeau.kernels import layout
from flambeau.kernels.cuda.driver import relaxed
from flambeau.kernels.language import print_cuda
from flambeau.kernels.language.pointwise import Pointwise
from flambeau.kernels.language.print_cuda import ARRAY, MAX_DIMS, NUMBER, ONE, THREADS, Instance
from flambeau.kernels.native.native import lib

ndarray = cupy.ndarray
View = tuple[tuple[int, ...], tuple[int, ...]]  # (shape, strides in bytes)


def run(kernel: Pointwise, operands, params, key: np.dtype, out_dtype: np.dtype, out: Any = None):
    """Run a kernel on CuPy arrays and Python numbers, into `out` or into fresh memory. At least one operand, or `out`, is an array."""
    return formula(kernel, key, out_dtype)(*operands, *params, out)


def formula(kernel: Pointwise, key: np.dtype, out_dtype: np.dtype) -> Callable:
    """A function of operands and options, and perhaps of an array for the result, that runs a kernel: see kernels/native/csrc/gpu_launch.c."""
    which = (kernel, key.num, out_dtype.num)  # numbers: the hash of a dtype takes its time
    found = _formulas.get(which)
    return found if found is not None else _formulas.setdefault(which, Formula(kernel, key, out_dtype).compiled())


_formulas: dict[tuple, Callable] = {}


class Formula:
    """What compiled code asks about a kernel: how the work is laid out for operands it has not seen yet."""

    def __init__(self, kernel: Pointwise, key: np.dtype, out_dtype: np.dtype):
        self.kernel, self.key, self.out_dtype = kernel, key, out_dtype

    def compiled(self) -> Callable:
        """The function."""
        whole = sum([1 << i for i, kind in enumerate(self.kernel.kinds) if kind != "T" or self.key.kind in "biu"])
        counts = len(self.kernel.kinds), len(self.kernel.options)
        return lib.GpuFormula(*counts, self.out_dtype, self.key.kind == "c", whole, self.lay_out, self.otherwise)

    def lay_out(self, flat: bool, device: int, low: tuple[int, ...], views: tuple, out: tuple | None):
        """The layout for operands of these views, (shape, strides in bytes, bytes of an element) or None for numbers; `low` has the last four bits of
        their addresses. None where there is no layout. `flat`: for operands of one shape without gaps, whatever that shape is; False: not for these."""
        sizes = (self.out_dtype.itemsize, *[0 if v is None else v[2] for v in views])
        if flat:
            return self._flat(device, low if out is None else low[:-1], low[-1] if out is not None else 0, sizes)
        geometries = tuple([None if v is None else v[:2] for v in views])
        plan = plan_for(geometries, None if out is None else out[:2], sizes)
        if plan.n and plan.variant is None:
            return None
        pointers = (low[-1] if out is not None else 0, *low[: len(views)])
        if plan.n and plan.variant.pack and not _fit(pointers, sizes, (True, *plan.variant.flat), plan.variant.pack):
            plan = plan_for(geometries, (plan.shape, plan.strides), sizes, False)
        if not plan.n:
            return lib.GpuLayout(None, None, 0, 0, 0, plan.shape, plan.strides)
        function = _load(self.kernel, self.key, self.out_dtype, plan.variant, device)
        return lib.GpuLayout(function, plan.geometry, plan.n, 0, plan.grid[0], plan.shape, plan.strides)

    def _flat(self, device: int, low: tuple[int, ...], out: int, sizes: tuple[int, ...]):
        modes = tuple([ARRAY if size else NUMBER for size in sizes[1:]])
        steps = [(1,), *[(int(m == ARRAY),) for m in modes]]
        pack = _pack((1,), steps, modes, sizes)
        flat = tuple([m == ARRAY for m in modes])
        if not pack or not _fit((out, *low), sizes, (True, *flat), pack):
            return False
        geometry = geometry_of((1,), [(step * pack,) for (step,) in steps], False)
        return lib.GpuLayout(_load(self.kernel, self.key, self.out_dtype, Variant(modes, flat, pack), device), geometry, 0, pack, 0, (), ())

    def otherwise(self, operands: tuple, params: tuple, out: Any):
        """Operands in main memory, which are numbers here; on another GPU than the current one; and more loops than a kernel has."""
        ready = [a.item() if type(a) is np.ndarray else a for a in operands]
        device = (out if out is not None else next(a for a in ready if type(a) is ndarray)).data.device_id
        again = formula(self.kernel, self.key, self.out_dtype)
        if device != runtime.getDevice():
            with Device(device):
                return again(*ready, *params, out)
        if any([a is not b for a, b in zip(ready, operands, strict=True)]):
            return again(*ready, *params, out)
        if any([type(a) is ndarray and a.data.device_id != device for a in ready]):
            raise RuntimeError("Expected all tensors to be on the same device, but found them on several GPUs. Move them with .to()")
        if out is None:
            views = tuple([(a.shape, a.strides) if type(a) is ndarray else None for a in ready])
            plan = plan_for(views, None, (self.out_dtype.itemsize, *[a.itemsize if type(a) is ndarray else 0 for a in ready]))
            out = strided(plan.shape, plan.strides, self.out_dtype)
        return _piece_by_piece(self.kernel, ready, params, self.key, self.out_dtype, out)


def _fit(low: tuple[int, ...], sizes: tuple[int, ...], flat: tuple[bool, ...], pack: int) -> bool:
    """Whether the addresses of all that is moved in packs are multiples of what a pack has."""
    return not any([p % (pack * size) for p, size, packed in zip(low, sizes, flat, strict=True) if packed])


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
    return lib.gpu_empty(shape, dtype, strides)


def empty(shape: tuple[int, ...], dtype: np.dtype):
    """Uninitialised memory in row-major order, on the current device. To call cupy.ndarray takes ten times as long."""
    return lib.gpu_empty(shape, dtype)


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
            device = (array[0] if type(array) in (list, tuple) else array).data.device_id
            if device == runtime.getDevice():
                return function(*args, **options)
            with Device(device):
                return function(*args, **options)

        return run

    return decorated


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


def as_kernel(function: Any) -> Callable:
    """A function of a module as it is called here: (blocks across, down), (threads,), arguments, and perhaps bytes of shared memory.

    Arguments are integers and floats, which take 8 bytes, structures as NumPy's arrays or as bytes, and arrays on the GPU, of which it gets the addresses.
    """
    return lib.GpuKernel(function.ptr, function)


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
    function = _functions[kernel, key, out_dtype, variant, device] = as_kernel(module.get_function(instance.function))
    return function


@lru_cache(None)
def compiled(print_source: Callable, name: str, device: int, *what):
    """The kernel `name` in the CUDA C++ that print_source(*what) gives, for the current device; remembered."""
    return as_kernel(load_source(name, print_source(*what)).get_function(name))


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
    with relaxed():
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
