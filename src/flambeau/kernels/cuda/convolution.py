"""Convolution on a GPU: by cuDNN, if it is there and takes it (`by_library`), else by a kernel of templates/cuda_convolution.py or a product.

    small        one kernel in tiles (a weight's gradient: one for parts of it, and their sum)
    few channels in many groups: one kernel, a number to a thread (a weight's gradient: to a block)
    large        patches as columns, one product for all samples and groups, and one kernel that brings its result to its place

Half precision is read as it is, computed in float32 and rounded once. What is not taken: other dtypes, nothing at all, arrays
of 2^31 elements and more.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import cupy
import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda import convolution_graphs, gemm
from flambeau.kernels.cuda.launch import compiled, multiprocessors, where_it_is
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.reductions.reduce import reduce
from flambeau.kernels.templates.cuda_convolution import DEPTH, FIELDS, WIDE, Conv, print_conv

Sizes = tuple[int, ...]
REALS = ("float32", "float64", "float16", "bfloat16")
FEW = 4  # channels of a group that leave most of a tile empty
LARGE, LARGE_HALF = 1 << 28, 1 << 26  # multiplications that are left to cuBLASLt, which has tensor cores for half precision
COLUMNS = 1 << 28  # elements of patches that are copied out at a time
MOST = 65535  # blocks in the second direction of a grid


by_library = convolution_graphs.run


@where_it_is(0)
def convolve(x, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> bool:
    """Write the convolution of x with w into `out`."""
    return _write(False, _plan(x, _view(w), out, stride, padding, dilation, groups), out, x, w, bias)


@where_it_is(0)
def adjoint(y, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> bool:
    """Write the transposed convolution of y with w into `out`."""
    return _write(True, _plan(out, _view(w), y, stride, padding, dilation, groups), out, y, w, bias)


def _write(turned: bool, plan: Plan | None, out, x, w, bias) -> bool:
    """Whether the convolution, or the transposed one, is taken; if so, it is written."""
    if plan is None or plan.is_product:
        return False
    if plan.large:
        (_adjoint_by_columns if turned else _convolve_by_columns)(plan, x, w, bias, out)
    else:
        _launch(plan, turned, out, x, w, bias)
    return True


@where_it_is(0)
def weight_gradient(x, y, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int):
    """The derivative by the weight of a convolution from x to y; None for what is not taken."""
    shape = (y.shape[1], x.shape[1] // groups, *kernel)
    plan = _plan(x, (shape, layout.contiguous_strides(shape)), y, stride, padding, dilation, groups)
    if plan is None:
        return None
    device = x.data.device_id
    if plan.large:
        return _weight_by_columns(plan, x, y, cupy.empty(shape, x.dtype))
    table, f = plan.table(False, device), plan.fields
    channels, depth = f["G"] * f["O"], plan.depth
    if plan.few:
        out = cupy.empty(shape, x.dtype)
        operands = (out.data.ptr, x.data.ptr, y.data.ptr, table.data.ptr, plan.geometry)
        _kernel(Conv("sums", plan.dtype), device)((channels * depth,), (THREADS,), operands)
        return out
    rows = 32 if f["O"] <= 32 else 64
    tiles, across = f["G"] * -(-f["O"] // rows), -(-depth // WIDE)
    splits = max(min(2 * multiprocessors(device) // (tiles * across), -(-plan.places // (8 * DEPTH)), MOST // tiles), 1)
    chunk = -(-plan.places // (splits * DEPTH)) * DEPTH
    splits = -(-plan.places // chunk)
    wide = np.dtype(np.float64 if plan.dtype == "float64" else np.float32)
    parts = cupy.empty(shape if splits == 1 else (splits, *shape), wide)
    given = (parts.data.ptr, x.data.ptr, y.data.ptr, table.data.ptr, chunk, splits, plan.geometry)
    _kernel(Conv("weight", plan.dtype, rows=rows), device)((across, tiles * splits), (THREADS,), given)
    return arrays.cast(parts if splits == 1 else reduce("sum", parts, (0,), False, wide), x.dtype)


def _launch(plan: Plan, adjoint: bool, out, source, w, bias) -> None:
    """One kernel from x to y, or back."""
    f, device = plan.fields, source.data.device_id
    channels = f["C"] if adjoint else f["O"]
    count = f["N"] * f["D"] * f["H"] * f["W"] if adjoint else plan.places
    unit = max(f["sd"], f["sh"], f["sw"]) == 1
    if channels <= FEW:
        kernel = _kernel(Conv("plain", plan.dtype, adjoint, unit), device)
        grid = (-(-count // THREADS), f["G"] * channels)
    else:
        rows = 32 if channels <= 32 else 64
        kernel = _kernel(Conv("product", plan.dtype, adjoint, unit, rows), device)
        grid = (-(-count // WIDE), f["G"] * -(-channels // rows))
    pointers = (out.data.ptr, source.data.ptr, w.data.ptr, 0 if bias is None else bias.data.ptr, plan.table(adjoint, device).data.ptr)
    kernel(grid, (THREADS,), (*pointers, plan.geometry))


# -- large ones ------------------------------------------------------------------------------------------------------------


def _convolve_by_columns(plan: Plan, x, w, bias, out) -> None:
    f, flat = plan.fields, _flat(w, plan)
    for first, some in plan.pieces():
        found = gemm.product(flat, _columns(plan, x[first : first + some]))  # (G, O, n P)
        here = out[first : first + some]
        view = found.reshape(f["G"] * f["O"], some, *out.shape[2:]).swapaxes(0, 1)
        if bias is None:
            arrays.write(here, view)
        else:
            row = bias.reshape(-1, *(1,) * (out.ndim - 2))
            arrays.run(convolution_graphs.SUM, (view, row), (), out.dtype, out.dtype, out=here)


def _adjoint_by_columns(plan: Plan, y, w, bias, out) -> None:
    device = y.data.device_id
    f, flat = plan.fields, _flat(w, plan).swapaxes(1, 2)
    kernel = _kernel(Conv("gathered", plan.dtype, unit=max(f["sd"], f["sh"], f["sw"]) == 1), device)
    for first, some in plan.pieces():
        columns = gemm.product(flat, _rows(plan, y[first : first + some]))  # (G, C K, n P)
        here, channels = out[first : first + some], f["G"] * f["C"]
        grid = (-(-some * f["D"] * f["H"] * f["W"] // THREADS), channels)
        pointers = (here.data.ptr, columns.data.ptr, 0 if bias is None else bias.data.ptr, plan.table(True, device).data.ptr)
        kernel(grid, (THREADS,), (*pointers, plan.of_samples(some)))


def _weight_by_columns(plan: Plan, x, y, out):
    f = plan.fields
    flat = out.reshape(f["G"], f["O"], plan.depth)
    for first, some in plan.pieces():
        columns, rows = _columns(plan, x[first : first + some]), _rows(plan, y[first : first + some])
        gemm.product_into(flat, rows, columns.swapaxes(1, 2), 1, int(first > 0))
    return out


def _flat(w, plan: Plan):
    """(G, O, C K)."""
    return arrays.contiguous(w).reshape(plan.fields["G"], plan.fields["O"], plan.depth)


def _rows(plan: Plan, y):
    """y as (G, O, n P)."""
    return arrays.contiguous(y.swapaxes(0, 1)).reshape(plan.fields["G"], plan.fields["O"], -1)


def _columns(plan: Plan, x):
    """The patches of x: (G, C K, n P)."""
    f, device, some = plan.fields, x.data.device_id, len(x)
    count = some * f["OD"] * f["OH"] * f["OW"]
    out = cupy.empty((f["G"], plan.depth, count), x.dtype)
    kernel = _kernel(Conv("columns", plan.dtype), device)
    given = (out.data.ptr, x.data.ptr, plan.table(False, device).data.ptr, plan.of_samples(some))
    kernel((-(-count // THREADS), f["G"] * plan.depth), (THREADS,), given)
    return out


# -- plans -----------------------------------------------------------------------------------------------------------------


class Plan:
    """The geometry of a convolution: of volumes; images have D = 1."""

    def __init__(self, fields: dict[str, int], dtype: str):
        self.fields, self.dtype = fields, dtype
        f = fields
        self.places = f["N"] * f["OD"] * f["OH"] * f["OW"]
        self.depth = f["C"] * f["KD"] * f["KH"] * f["KW"]
        self.few = f["O"] <= FEW and f["G"] > 1
        work = self.places * self.depth * f["O"] * f["G"]
        self.large = work > (LARGE_HALF if dtype in ("float16", "bfloat16") else LARGE) and f["O"] > FEW and self.depth > DEPTH
        self.large = self.large and f["G"] * self.depth <= MOST
        alone = f["G"] * f["KD"] * f["KH"] * f["KW"] * f["sd"] * f["sh"] * f["sw"] == 1
        self.is_product = self.large and alone and dtype in ("float32", "float64")  # of channels: x need not be copied
        self.geometry = self.of_samples(f["N"])
        self.tables: dict[tuple, Any] = {}

    def of_samples(self, some: int) -> np.ndarray:
        """The struct Layout for so many samples."""
        fields = np.array([(self.fields | {"N": some})[name] for name in FIELDS], np.int32)
        return fields.view(f"V{fields.nbytes}")

    def pieces(self) -> list[tuple[int, int]]:
        """(first sample, how many) of pieces whose columns have a limited size."""
        n, f = self.fields["N"], self.fields
        step = max(COLUMNS // max(f["G"] * self.depth * (self.places // n), 1), 1)
        return [(first, min(step, n - first)) for first in range(0, n, step)]

    def table(self, adjoint: bool, device: int):
        """The struct Entry of each number of the kernel, channel after channel, on a GPU."""
        found = self.tables.get((adjoint, device))
        if found is None:
            found = self.tables[adjoint, device] = cupy.asarray(_entries(self.fields, adjoint))
        return found


def _entries(f: dict[str, int], adjoint: bool) -> np.ndarray:
    channel, kz, ky, kx = (a.ravel() for a in np.indices((f["O"] if adjoint else f["C"], f["KD"], f["KH"], f["KW"])))
    z, y, x = kz * f["dd"], ky * f["dh"], kx * f["dw"]
    found = np.zeros((len(z), 8), np.int32)
    found[:, 0] = channel * f["wo" if adjoint else "wc"] + kz * f["wd"] + ky * f["wh"] + kx * f["ww"]
    found[:, 1] = channel * f["yc"] if adjoint else channel * f["xc"] + z * f["xd"] + y * f["xh"] + x * f["xw"]
    found[:, 2], found[:, 3], found[:, 4] = z, y, x
    return found


def _view(array) -> tuple[Sizes, Sizes]:
    """(shape, strides in elements)."""
    size = array.itemsize
    return array.shape, tuple([s // size for s in array.strides])


def _plan(x, w: tuple[Sizes, Sizes], y, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Plan | None:
    if not x.size or not y.size or x.dtype != y.dtype:
        return None
    return _plan_of(x.dtype, _view(x), w, _view(y), stride, padding, dilation, groups)


@lru_cache(1024)
def _plan_of(dtype, x, w, y, stride, padding, dilation, groups: int) -> Plan | None:
    name = dtypes.OF_NUMPY[dtype].name
    (xs, x_steps), (ws, w_steps), (ys, y_steps) = x, w, y
    reach = [sum([(n - 1) * s for n, s in zip(*a, strict=True)]) for a in (x, w, y)]
    if name not in REALS or not prod(ws) or max(*reach, prod(xs), prod(ys)) >= 2**31 - 2**16 or len(xs) > 5:
        return None

    def three(numbers, missing: int) -> Sizes:
        return (missing,) * (5 - len(xs)) + tuple(numbers)

    f = {"N": xs[0], "G": groups, "O": ws[0] // groups, "C": ws[1]}
    for names, numbers, missing in (
        ("D H W", xs[2:], 1), ("OD OH OW", ys[2:], 1), ("KD KH KW", ws[2:], 1), ("sd sh sw", stride, 1), ("pd ph pw", padding, 0),
        ("dd dh dw", dilation, 1), ("xd xh xw", x_steps[2:], 0), ("yd yh yw", y_steps[2:], 0), ("wd wh ww", w_steps[2:], 0),
    ):  # fmt: skip
        f |= zip(names.split(), three(numbers, missing), strict=True)
    f |= {"xn": x_steps[0], "xc": x_steps[1], "yn": y_steps[0], "yc": y_steps[1], "wo": w_steps[0], "wc": w_steps[1]}
    if max(f["G"] * f["O"], f["G"] * f["C"]) > MOST or prod(ws) * 8 >= 2**31:
        return None
    return Plan(f, name)


def _kernel(conv: Conv, device: int):
    return compiled(print_conv, conv.function, device, conv)
