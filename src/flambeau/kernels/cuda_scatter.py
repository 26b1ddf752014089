"""Values combined into memory at given addresses on a GPU: what NumPy's `add.at` does, by atomic operations.

CuPy has this for some dtypes and operations, without NaN and (for float64) without all digits. Here an address that occurs twice receives
both values, in no particular order, so that the last digit of a floating-point sum may differ from run to run, as in PyTorch.
"""

from __future__ import annotations

import cupy
import numpy as np
from cupy.cuda import Device

from flambeau import dtypes
from flambeau.kernels import arrays, print_cuda
from flambeau.kernels.cuda_launch import compiled
from flambeau.kernels.print_cuda import THREADS

INT32 = np.dtype(np.int32)


def combine_at(how: str, target, at, values, row: int = 1) -> bool:
    """target[at[k] * row + c] combined with values[k, c], atomically. False where there is no such kernel (products of complex numbers).

    how     "add", "multiply", "maximum" or "minimum"
    target  memory of stride 1;  at  int64 (K,);  values  contiguous, of the target's dtype, K * C elements
    """
    if not at.size:
        return True
    inner = values.size // at.size
    if target.dtype.kind == "c":
        if how != "add":
            return False
        real = np.dtype(f"f{target.itemsize // 2}")
        return combine_at(how, target.view(real), at, values.view(real), row * 2)  # a complex sum is two real ones
    if target.dtype.itemsize < 4:  # there are no atomic operations on less than four bytes
        wide = arrays.cast(target, INT32)
        combine_at(how, wide, at, arrays.cast(values, INT32), row)
        arrays.write(target, wide)
        return True
    with Device(target.data.device_id):
        dtype = dtypes.OF_NUMPY[target.dtype].name
        name = f"fl_at_{how}_{print_cuda.TYPES[dtype][0]}"
        kernel = compiled(print_combine, name, target.data.device_id, name, how, dtype)
        n = at.size * inner
        kernel(((n + THREADS - 1) // THREADS,), (THREADS,), (target.data.ptr, at.data.ptr, values.data.ptr, n, inner, row))
    return True


def add_rows(target, index, rows) -> bool:
    """target[index[k]] += rows[k] for a contiguous target (N, *S), an index (K,) and rows (K, *S). False where combine_at is."""
    row = target.size // target.shape[0]
    flat = arrays.strided_view(target, (target.size,), (1,))
    return combine_at("add", flat, index.astype(np.int64, copy=False), arrays.contiguous(rows).reshape(-1), row)


def print_combine(name: str, how: str, dtype: str) -> str:
    """The CUDA C++ of one operation on one dtype."""
    printer = print_cuda.printer(dtype)
    kind = printer.storage
    formulas = {"multiply": "a * b", "maximum": printer.print_maximum("a", "b"), "minimum": printer.print_minimum("a", "b")}
    step = _ADD.format(word="unsigned long long" if kind == "int64_t" else kind) if how == "add" else _EXCHANGE
    return print_cuda.PREAMBLE + _KERNEL.format(
        name=name, T=kind, threads=THREADS, word="unsigned long long" if dtypes.BY_NAME[dtype].itemsize == 8 else "unsigned int",
        formula=formulas.get(how, "a"), step=step,
    )  # fmt: skip


_KERNEL = """
typedef {T} T;
union Both {{ T value; {word} bits; }};
__device__ inline T combined(T a, T b) {{ return {formula}; }}

extern "C" __global__ void __launch_bounds__({threads})
{name}(T *target, const int64_t *at, const T *values, long long n, long long inner, long long row) {{
    const long long me = (long long)blockIdx.x * {threads} + threadIdx.x;
    if (me >= n) return;
    const long long k = inner == 1 ? me : me / inner;
    T *const place = target + at[k] * row + (me - k * inner);
    const T value = values[me];
{step}}}
"""
_ADD = "    atomicAdd(({word} *)place, ({word})value);\n"
# Write the combination if nobody has written since; else combine again. What changes nothing need not be written.
_EXCHANGE = """    Both seen, next, found;
    found.value = *place;
    do {
        seen = found;
        next.value = combined(seen.value, value);
        if (next.bits == seen.bits) return;
        found.bits = atomicCAS(&((Both *)place)->bits, seen.bits, next.bits);
    } while (found.bits != seen.bits);
"""


def multiply_in_rounds(flat, at, values) -> None:
    """flat[at] *= values, for dtypes without a kernel: the first factor for every address, then every second one, ..."""
    order = at.argsort()
    ordered = at[order]
    first = cupy.flatnonzero(cupy.concatenate((cupy.ones(1, bool), ordered[1:] != ordered[:-1])))
    places = cupy.arange(at.size)
    occurrence = places - first[cupy.searchsorted(first, places, side="right") - 1]
    for k in range(int(occurrence.max()) + 1):
        chosen = order[occurrence == k]
        flat[at[chosen]] *= values[chosen]
