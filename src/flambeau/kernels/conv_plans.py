"""Which compiled loop convolves (print_conv.py), in blocks of which size. float32 in main memory; views with any strides.

All shapes are those of volumes, x (N, C, D, H, W) and w (G, O / G, C / G, KD, KH, KW): images have D = 1. Blocks depend on shapes alone, and
so do the sums of a weight's gradient: any number of threads gives the same bits.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from flambeau.kernels import native
from flambeau.kernels.print_conv import FIELDS

Sizes = tuple[int, ...]
PATCH = 48 << 10  # numbers of a patch: 192 KiB, a good part of a core's own cache
PIXELS = 512  # outputs of a block, of which 64 channels are kept beside the patch
TILES = 60  # 2 x 2 outputs of a block, if they are made by Winograd's transforms
PARTS = 8  # partial sums of a weight's gradient
PHASES = 16  # a transposed convolution is cut into so many plain ones at most


def takes(*operands: Any) -> bool:
    """Whether the loops are there and can read these arrays."""
    if native.kernel("conv.direct") is native.not_compiled:
        return False
    return all(type(a) is np.ndarray and a.dtype == np.float32 and a.size for a in operands if a is not None)


def convolve(x, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    """Write the convolution of x with w into `out`."""
    n = x.ndim - 2
    kernel = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    _correlate(_volume(x, n), _volume(kernel, n), bias, _volume(out, n), _three(stride, 1), _three(padding, 0), _three(dilation, 1))


def adjoint(y, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> bool:
    """Write the transposed convolution into `out`: one plain convolution for every remainder of a position divided by the stride.

    False where a matrix product and adding up its rows is the better way."""
    n = y.ndim - 2
    few = w.shape[1] <= 4 and w.shape[0] // groups >= 16  # most of each vector of channels would be empty
    if few or math.prod(stride) > PHASES:
        return False
    kernel = _volume(w.reshape(groups, w.shape[0] // groups, *w.shape[1:]), n).swapaxes(1, 2)
    y, out = _volume(y, n), _volume(out, n)
    stride, padding, dilation = _three(stride, 1), _three(padding, 0), _three(dilation, 1)
    for phase in product(*map(range, stride)):
        here = out[(..., *[slice(r, None, s) for r, s in zip(phase, stride, strict=True)])]
        parts = [_phase(r, s, p, d, k) for r, s, p, d, k in zip(phase, stride, padding, dilation, kernel.shape[3:], strict=True)]
        if not here.size:
            continue
        if None in parts:
            here[...] = 0 if bias is None else bias.reshape(-1, 1, 1, 1)
        else:
            cuts, pads, dilations = zip(*parts, strict=True)
            _correlate(y, kernel[(..., *cuts)], bias, here, (1, 1, 1), pads, dilations)
    return True


def _phase(r: int, s: int, p: int, d: int, k: int) -> tuple[slice, int, int] | None:
    """Positions i s + r of the result: (which numbers of the kernel reach them, last first; padding; dilation), None if none does.

    Number j of the kernel reaches i s + r from position q of y if q s - p + j d = i s + r: every (s / gcd(s, d))-th does, from some j on."""
    first = next((j for j in range(min(k, s)) if (r + p - j * d) % s == 0), None)
    if first is None:
        return None
    common = math.gcd(s, d)
    every, apart = s // common, d // common
    count = (k - 1 - first) // every + 1
    last = first + (count - 1) * every
    cut = slice(last, first - 1 if first else None, -every)
    return cut, (count - 1) * apart - (r + p - first * d) // s, apart


def weight_gradient(x, y, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    """Write the derivative by the weight (O, C / G, *K) of a convolution from x to y into `out`, which is contiguous."""
    n = x.ndim - 2
    x, y, w = _volume(x, n), _volume(y, n), _volume(out.reshape(groups, out.shape[0] // groups, *out.shape[1:]), n)
    geometry = x.shape, x.strides, w.shape, w.strides, y.shape, y.strides, _three(stride, 1), _three(padding, 0), _three(dilation, 1)
    addresses = {"x": address(x), "y": address(y), "w": address(w)}
    way = _weight_way(*geometry, True)
    if way.name == "depthwise_weight":
        _run(way.name, way.plan, way.tasks, way.work, **addresses)
    elif _sum_up(way, **addresses) and way.name == "winograd_weight":
        _sum_up(_weight_way(*geometry, False), **addresses)


def _sum_up(way: Way, x: int, y: int, w: int) -> bool:
    """A weight's gradient in partial sums over some of the blocks each, then these; whether something made by transforms is not finite."""
    sums = native.empty((way.packed,), np.dtype(np.float32))
    _run(way.name, way.plan, way.tasks, way.work, x=x, y=y, w=address(sums))
    tasks = int(way.plan[PLACES["groups"]] * way.plan[PLACES["cin"]])
    return bool(_run(way.pack, way.plan, tasks, way.packed, x=address(sums), w=w).any())


@lru_cache(1024)
def _weight_way(xs, x_steps, ws, w_steps, ys, y_steps, stride, padding, dilation, may_transform: bool) -> Way:
    """How to make a weight's gradient; `pack` is the loop that adds up the partial sums."""
    f = _fields(xs, x_steps, ws, w_steps, ys, y_steps, stride, padding, dilation)
    g, o, c, *kernel = ws
    work = math.prod(ys) * c * math.prod(kernel)
    if c == 1 and o <= 4 and g > 1:
        _cut(f, 1, 1)
        return Way("depthwise_weight", _plan(f), g, work, "", 0)
    by_tiles = may_transform and _suits_winograd(f)
    _cut_tiles(f) if by_tiles else _cut(f, c, 1)
    f["splits"], f["pitch"] = 1, -(-o // 64) * 64
    size = g * (16 if by_tiles else math.prod(kernel)) * c * f["pitch"]
    blocks = xs[0] * math.prod(_counts(f))
    f["parts"] = max(min(PARTS // min(g, PARTS), blocks, (64 << 20) // (4 * size)), 1)
    names = ("winograd_weight", "winograd_sum") if by_tiles else ("weight", "weight_sum")
    return Way(names[0], _plan(f), f["parts"] * g, work, names[1], f["parts"] * size)


# -- plans -----------------------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """A loop and its plan, without addresses; `pack` is the loop that prepares the weight, in `packed` numbers, or "" for none."""

    name: str
    plan: np.ndarray
    tasks: int
    work: int
    pack: str
    packed: int


def _correlate(x, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes) -> None:
    """Write a convolution of volumes into `out`. Padding is what comes before, and may be negative: zeros are where x is not."""
    geometry = x.shape, x.strides, w.shape, w.strides, out.shape, out.strides, stride, padding, dilation
    addresses = {"x": address(x), "w": address(w), "y": address(out), "bias": 0 if bias is None else address(bias)}
    way = _way(*geometry, True)
    if _follow(way, addresses) and way.name == "winograd":
        _follow(_way(*geometry, False), addresses)  # an infinity made NaN of its neighbours


def _follow(way: Way, addresses: dict[str, int]) -> bool:
    """Prepare the weight and convolve; whether something is not finite."""
    if way.pack:
        packed = native.empty((way.packed,), np.dtype(np.float32))
        tasks = way.plan[PLACES["groups"]] * -(-way.plan[PLACES["cout"]] // 64)
        _run(way.pack, way.plan, int(tasks), way.packed * 8, w=addresses["w"], y=address(packed))
        addresses = addresses | {"w": address(packed)}
    return bool(_run(way.name, way.plan, way.tasks, way.work, **addresses).any())


@lru_cache(1024)
def _way(xs, x_steps, ws, w_steps, ys, y_steps, stride, padding, dilation, may_transform: bool) -> Way:
    """How to convolve arrays of this geometry: programs come back to the same few."""
    f = _fields(xs, x_steps, ws, w_steps, ys, y_steps, stride, padding, dilation)
    g, o, c, *kernel = ws
    work, wide = math.prod(ys) * c * math.prod(kernel), -(-o // 64) * 64
    if c == 1 and o <= 4 and g > 1:
        _cut(f, 1, 1)
        return Way("depthwise", _plan(f), _tasks(f), work, "", 0)
    if may_transform and _suits_winograd(f):
        _cut_tiles(f)
        return Way("winograd", _plan(f), _tasks(f), work, "winograd_pack", g * 16 * c * wide)
    _cut(f, c, o)
    return Way("direct", _plan(f), _tasks(f), work, "pack", g * math.prod(kernel) * c * wide)


def _suits_winograd(f: dict[str, int]) -> bool:
    square = (f["KD"], f["KH"], f["KW"], f["D"]) == (1, 3, 3, 1)
    plain = square and all(f[name] == 1 for name in ("sd", "sh", "sw", "dh", "dw", "OD")) and f["pd"] == 0
    return plain and f["cin"] >= 16 and f["cout"] >= 16 and f["OH"] >= 4 and f["OW"] >= 4


def _cut(f: dict[str, int], channels: int, out_channels: int) -> None:
    """Blocks of rows and columns whose patch stays near; smaller ones, or some of the channels each, if there are few of them."""

    def patch(rows: int, cols: int) -> int:
        return f["KD"] * ((rows - 1) * f["sh"] + f["KH"] * f["dh"]) * ((cols - 1) * f["sw"] + f["KW"] * f["dw"]) * channels

    cols, rows = f["OW"], 1
    while cols > 16 and (patch(1, cols) > PATCH or cols > PIXELS):
        cols = -(-cols // 2)
    while rows < f["OH"] and patch(rows + 1, cols) <= PATCH and (rows + 1) * cols <= PIXELS:
        rows += 1
    f["cols"], f["rows"], f["splits"] = cols, _even(f["OH"], rows), 1
    while _tasks(f) < 8 and f["rows"] > 1 and f["rows"] * cols > 64:
        f["rows"] = -(-f["rows"] // 2)
    if _tasks(f) < 8 and out_channels > 64:
        f["splits"] = min(-(-out_channels // 64), -(-8 // _tasks(f)))


def _cut_tiles(f: dict[str, int]) -> None:
    """Blocks with even rows and columns, unless they are the last."""
    down, across = (f["OH"] + 1) // 2, (f["OW"] + 1) // 2
    across = _even(across, TILES)
    f["cols"], f["rows"], f["splits"] = 2 * across, 2 * _even(down, max(TILES // across, 1)), 1
    while _tasks(f) < 8 and f["rows"] > 2:
        f["rows"] -= 2
    if _tasks(f) < 8 and f["cout"] > 64:
        f["splits"] = min(-(-f["cout"] // 64), -(-8 // _tasks(f)))


def _even(n: int, most: int) -> int:
    """The size of about equal parts of n, none larger than `most`."""
    return math.ceil(n / math.ceil(n / most))


def _counts(f: dict[str, int]) -> Sizes:
    return f["OD"], -(-f["OH"] // f["rows"]), -(-f["OW"] // f["cols"])


def _tasks(f: dict[str, int]) -> int:
    return f["N"] * f["groups"] * f["splits"] * math.prod(_counts(f))


def _fields(xs, x_steps, ws, w_steps, ys, y_steps, stride: Sizes, padding: Sizes, dilation: Sizes) -> dict[str, int]:
    f = {"groups": ws[0], "cout": ws[1], "cin": ws[2], "N": xs[0]}
    f |= zip(("xn", "xc", "xd", "xh", "xw"), [s // 4 for s in x_steps], strict=True)
    f |= zip(("wg", "wo", "wc", "wd", "wh", "ww"), [s // 4 for s in w_steps], strict=True)
    f |= zip(("yn", "yc", "yd", "yh", "yw"), [s // 4 for s in y_steps], strict=True)
    for names, numbers in zip(
        (("D", "H", "W"), ("OD", "OH", "OW"), ("KD", "KH", "KW"), ("sd", "sh", "sw"), ("pd", "ph", "pw"), ("dd", "dh", "dw")),
        (xs[2:], ys[2:], ws[3:], stride, padding, dilation),
        strict=True,
    ):
        f |= zip(names, numbers, strict=True)
    return f


PLACES = {name: i for i, name in enumerate(FIELDS)}


def _plan(fields: dict[str, int]) -> np.ndarray:
    return np.array([fields.get(f, 0) for f in FIELDS], np.int64)


def _run(name: str, plan: np.ndarray, tasks: int, work: int, **more: int) -> np.ndarray:
    """Run the tasks of a loop of convolution; what became of each (see print_conv.loop)."""
    plan = plan.copy()
    for field, value in more.items():
        plan[PLACES[field]] = value
    done = run(f"conv.{name}", plan, tasks, work)
    if (done == 2).any():
        raise MemoryError(f"conv.{name}: no memory for a patch of the image")
    return done


def run(name: str, plan: np.ndarray, tasks: int, work: int) -> np.ndarray:
    """Run tasks 0, 1, ... of a compiled loop on a plan, side by side if there is enough work for that; what each returns."""
    done, numbers, line = np.empty((tasks, 8), np.int64)[:, 0], _numbered(tasks), max(min(work // (8 * tasks), 1 << 15), 1)
    if native.kernel(name).into(done, numbers, plan[:1].reshape(()), line) is NotImplemented:
        raise RuntimeError(f"the compiled loop {name} does not take its plan: it was built from other sources")
    return done


@lru_cache(64)
def _numbered(tasks: int) -> np.ndarray:
    return np.arange(tasks)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _volume(array: Any, n: int) -> Any:
    """The array with three spatial dimensions."""
    return array[(..., *(None,) * (3 - n), *(slice(None),) * n)]


def _three(numbers: Sizes, missing: int) -> Sizes:
    return (missing,) * (3 - len(numbers)) + tuple(numbers)
