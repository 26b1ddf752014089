"""What is done to all gradients of a model at once on a GPU: the norm of each and of all, and making them shorter.

part     sums (of order inf: maxima) of the parts of each tensor, as many tensors per launch as a kernel's parameters have room for
finish   each tensor's norm from its parts, and the norm of the norms, as PyTorch rounds them; in one block, in a fixed order
clip     all tensors times most / (total + 1e-6), if that is less than one. Nobody asks the GPU what the total is
"""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda.launch import compiled, where_it_is
from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES, CudaPrinter

TENSORS = 240  # in one launch: their addresses and sizes are most of the 4 kB that a kernel's parameters may have
MOST_BLOCKS = 128  # for one tensor: its threads take several elements then
EACH = 8  # elements that are worth a thread
REALS = ("float32", "float64", "float16", "bfloat16")
ORDERS = {1.0: "one", 2.0: "two", float("inf"): "inf"}


@where_it_is(0)
def norms(tensors: Sequence, order: float) -> tuple | None:
    """(the norm of each tensor, (n,); the norm of these, ()) for tensors of one device and dtype; None for others, and for other orders."""
    if order not in ORDERS or not _are_alike(tensors) or (order == float("inf") and not all([a.size for a in tensors])):
        return None  # nothing has no maximum: whoever goes on says so
    first = tensors[0]
    device, dtype = first.data.device_id, dtypes.OF_NUMPY[first.dtype].name
    dense = [a if _is_dense(a) else arrays.contiguous(a) for a in tensors]
    blocks = _blocks(dense)
    parts = cupy.empty(len(dense) * blocks, np.float64)
    found, total = cupy.empty(len(dense), first.dtype), cupy.empty((), first.dtype)
    part, finish = (_kernel(stage, dtype, ORDERS[order], device) for stage in ("part", "finish"))
    for start, pieces, count in _pieces(dense):
        part((blocks, count), (THREADS,), (pieces, parts.data.ptr + 8 * start * blocks))
    finish((1,), (THREADS,), (found.data.ptr, total.data.ptr, parts.data.ptr, len(dense), blocks))
    return found, total


@where_it_is(0)
def clip(tensors: Sequence, total, most: float) -> bool:
    """Multiply tensors in place by most / (total + 1e-6), if that is less than one. False for tensors that are not dense, or not alike."""
    if type(total) is not cupy.ndarray or total.size != 1 or not _are_alike([*tensors, total]) or not all(map(_is_dense, tensors)):
        return False
    device, dtype = total.data.device_id, dtypes.OF_NUMPY[total.dtype].name
    kernel, blocks = _kernel("clip", dtype, "two", device), _blocks(tensors)
    for _, pieces, count in _pieces(tensors):
        kernel((blocks, count), (THREADS,), (pieces, total.data.ptr, float(most)))
    return True


def _are_alike(tensors: Sequence) -> bool:
    first = tensors[0]
    if any([type(a) is not cupy.ndarray for a in tensors]) or dtypes.OF_NUMPY[first.dtype].name not in REALS:
        return False
    device, dtype = first.data.device_id, first.dtype
    return all([a.dtype == dtype and a.data.device_id == device for a in tensors])


def _is_dense(array) -> bool:
    return array.flags.c_contiguous or layout.is_non_overlapping_and_dense(*arrays.view_of(array))


def _blocks(tensors: Sequence) -> int:
    return min(max(-(-max([a.size for a in tensors]) // (THREADS * EACH)), 1), MOST_BLOCKS)


def _pieces(tensors: Sequence):
    """(the first tensor, the struct Pieces, how many tensors) of each launch."""
    for start in range(0, len(tensors), TENSORS):
        some = tensors[start : start + TENSORS]
        pieces = np.zeros((2, TENSORS), np.int64)
        pieces[:, : len(some)] = [[a.data.ptr for a in some], [a.size for a in some]]
        yield start, pieces.reshape(-1).view(f"V{pieces.nbytes}"), len(some)


def _kernel(stage: str, dtype: str, order: str, device: int):
    name = f"fl_list_{stage}_{order}_{TYPES[dtype][0]}"
    return compiled(print_stage, name, device, name, stage, dtype, order)


def print_stage(name: str, stage: str, dtype: str, order: str) -> str:
    """The CUDA C++ of one kernel."""
    p = CudaPrinter(dtype)
    known = {
        "NAME": name, "STORED": p.storage, "COMPUTED": p.compute, "THREADS": THREADS, "TENSORS": TENSORS,
        "READ": p.read("T", "stored"), "WRITE": p.stored(dtype, "value", "T"), **_ORDERS[order],
    }  # fmt: skip
    text = _COMMON + _STAGES[stage]
    for word in sorted(known, key=len, reverse=True):
        text = text.replace(word, str(known[word]))
    return PREAMBLE + text


# What an element adds, how that is joined, and the norm it is.
_ORDERS = {
    "one": {"ADDS": "fabs(v)", "JOINED": "a + b", "ROOT": "sum"},
    "two": {"ADDS": "v * v", "JOINED": "a + b", "ROOT": "sqrt(sum)"},
    "inf": {"ADDS": "fabs(v)", "JOINED": "b > a || b != b ? b : a", "ROOT": "sum"},
}
_COMMON = """
typedef STORED T;
struct Pieces { long long at[TENSORS], size[TENSORS]; };
__device__ inline COMPUTED read(T stored) { return READ; }
__device__ inline T written(COMPUTED value) { return WRITE; }
__device__ inline double adds(double v) { return ADDS; }
__device__ inline double joined(double a, double b) { return JOINED; }
__device__ inline double all(double mine) {
    __shared__ double shared[THREADS];
    shared[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] = joined(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    return shared[0]; /* of use to thread 0 */
}
"""
_STAGES = {
    "part": """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(const __grid_constant__ Pieces all_, double *parts) {
    const T *const x = (const T *)all_.at[blockIdx.y];
    double sum = 0;
    #pragma unroll 4
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < all_.size[blockIdx.y]; i += (long long)gridDim.x * THREADS)
        sum = joined(sum, adds(read(x[i])));
    sum = all(sum);
    if (threadIdx.x == 0) parts[(long long)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
""",
    "finish": """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(T *norms, T *total, const double *parts, long long count, long long blocks) {
    double found = 0;
    for (long long i = threadIdx.x; i < count; i += THREADS) {
        double sum = 0;
        for (long long k = 0; k < blocks; k++) sum = joined(sum, parts[i * blocks + k]);
        norms[i] = written(ROOT);
        found = joined(found, adds(read(norms[i])));
    }
    const double sum = all(found);
    if (threadIdx.x == 0) *total = written(ROOT);
}
""",
    "clip": """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(const __grid_constant__ Pieces all_, const T *total, double most) {
    const COMPUTED by = read(written((COMPUTED)most / read(written(read(*total) + (COMPUTED)1e-6))));
    if (by >= 1) return;
    T *const x = (T *)all_.at[blockIdx.y];
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < all_.size[blockIdx.y]; i += (long long)gridDim.x * THREADS)
        x[i] = written(read(x[i]) * by);
}
""",
}
