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

from flambeau.kernels.native import native
from flambeau.kernels.templates.print_conv import APART, FIELDS

Sizes = tuple[int, ...]
PATCH = 48 << 10  # numbers of a patch: 192 KiB, a good part of a core's own cache
PIXELS = 512  # outputs of a block, of which 64 channels are kept beside the patch
LANES = 16  # numbers in a vector, at most
PLANE = 5 << 10  # numbers of a patch of one channel: 20 KiB, a good part of the first cache
TILES = 60  # 2 x 2 outputs of a block, if they are made by Winograd's transforms
PARTS = 8  # partial sums of a weight's gradient
PHASES = 16  # a transposed convolution is cut into so many plain ones at most


def takes(*operands: Any) -> bool:
    """Whether the loops are there and can read these arrays."""
    if native.kernel("conv.direct") is native.not_compiled:
        return False
    return all([a is None or (type(a) is np.ndarray and a.dtype.char == "f" and a.size) for a in operands])


def convolve(x, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    """Write the convolution of x with w into `out`."""
    geometry = _of_convolution(x.shape, x.strides, w.shape, w.strides, out.shape, out.strides, stride, padding, dilation, groups)
    _correlate(geometry, address(x), address(w), 0 if bias is None else address(bias), address(out))


@lru_cache(1024)
def _of_convolution(xs, x_steps, ws, w_steps, ys, y_steps, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> tuple:
    """The geometry of a convolution of volumes: what `_way` takes."""
    n, each = len(xs) - 2, ws[0] // groups
    kernel = _volumes((groups, each, *ws[1:]), (each * w_steps[0], *w_steps), n)
    return *_volumes(xs, x_steps, n), *kernel, *_volumes(ys, y_steps, n), _three(stride, 1), _three(padding, 0), _three(dilation, 1)


def adjoint(y, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> bool:
    """Write the transposed convolution into `out`: one plain convolution for every remainder of a position divided by the stride.

    False where a matrix product and adding up its rows is the better way."""
    n = y.ndim - 2
    few = w.shape[1] <= 4 and w.shape[0] // groups >= 16  # most of each vector of channels would be empty
    if few or math.prod(stride) > PHASES:
        return False
    key = y.shape, y.strides, w.shape, w.strides, out.shape, out.strides, stride, padding, dilation, groups
    phases = _adjoint_phases.get(key)
    if phases is None:
        if len(_adjoint_phases) >= 256:
            _adjoint_phases.clear()
        kernel = _volume(w.reshape(groups, w.shape[0] // groups, *w.shape[1:]), n).swapaxes(1, 2)
        sizes = _three(stride, 1), _three(padding, 0), _three(dilation, 1)
        phases = _adjoint_phases[key] = list(_phases(_volume(y, n), kernel, _volume(out, n), *sizes))
    from_, by, to, shift = address(y), address(w), address(out), 0 if bias is None else address(bias)
    for geometry, kernel_at, out_at, places in phases:
        if geometry is None:
            _volume(out, n)[places] = 0 if bias is None else bias.reshape(-1, 1, 1, 1)
        else:
            _correlate(geometry, from_, by + kernel_at, shift, to + out_at)
    return True


_adjoint_phases: dict[tuple, list[tuple]] = {}


def _phases(y, kernel, out, stride: Sizes, padding: Sizes, dilation: Sizes):
    """For every remainder: (geometry of its convolution or None where no number of the kernel reaches, where its part of the kernel and of the
    result begin, in bytes; which places of the result these are)."""
    for phase in product(*map(range, stride)):
        places = (..., *[slice(r, None, s) for r, s in zip(phase, stride, strict=True)])
        here = out[places]
        parts = [_phase(r, s, p, d, k) for r, s, p, d, k in zip(phase, stride, padding, dilation, kernel.shape[3:], strict=True)]
        if not here.size:
            continue
        if None in parts:
            yield None, 0, 0, places
        else:
            cuts, pads, dilations = zip(*parts, strict=True)
            part = kernel[(..., *cuts)]
            geometry = y.shape, y.strides, part.shape, part.strides, here.shape, here.strides, (1, 1, 1), pads, dilations
            yield geometry, address(part) - address(kernel), address(here) - address(out), places


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
    addresses = address(x), address(y), address(w)
    way = _weight_way(*geometry, True)
    if way.name == "depthwise_weight":
        _run(way.name, way.plan, way.tasks, way.work, addresses[0], addresses[2], addresses[1], 0)
    elif _sum_up(way, *addresses) and way.name == "winograd_weight":
        _sum_up(_weight_way(*geometry, False), *addresses)


def _sum_up(way: Way, x: int, y: int, w: int) -> bool:
    """A weight's gradient in partial sums over some of the blocks each, then these; whether something made by transforms is not finite."""
    sums = native.empty((way.packed,), FLOAT32)
    room = address(sums)
    _run(way.name, way.plan, way.tasks, way.work, x, room, y, 0)
    tasks = int(way.plan[PLACES["groups"]]) * int(way.plan[PLACES["cin"]])
    return any(_run(way.pack, way.plan, tasks, way.packed, room, w, 0, 0))


@lru_cache(1024)
def _weight_way(xs, x_steps, ws, w_steps, ys, y_steps, stride, padding, dilation, may_transform: bool) -> Way:
    """How to make a weight's gradient; `pack` is the loop that adds up the partial sums."""
    f = _fields(xs, x_steps, ws, w_steps, ys, y_steps, stride, padding, dilation)
    g, o, c, *kernel = ws
    work = math.prod(ys) * c * math.prod(kernel)
    if c == 1 and o <= 4 and g > 1:
        _cut_planes(f)
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

    @property
    def pack_tasks(self) -> int:
        """How many tasks prepare the weight."""
        return int(self.plan[PLACES["groups"]]) * -(-int(self.plan[PLACES["cout"]]) // 64)


def _correlate(geometry: tuple, x: int, w: int, bias: int, out: int) -> None:
    """Write a convolution of volumes, whose addresses are given, into `out`. Padding is what comes before, and may be negative: zeros are where
    x is not."""
    way = _way(*geometry, True)
    if _follow(way, x, w, bias, out) and way.name == "winograd":
        _follow(_way(*geometry, False), x, w, bias, out)  # an infinity made NaN of its neighbours


def _follow(way: Way, x: int, w: int, bias: int, out: int) -> bool:
    """Prepare the weight and convolve; whether something is not finite."""
    if way.pack:
        packed = native.empty((way.packed,), FLOAT32)
        room = address(packed)
        _run(way.pack, way.plan, way.pack_tasks, way.packed * 8, 0, w, room, 0)
        w = room
    return any(_run(way.name, way.plan, way.tasks, way.work, x, w, out, bias))


@lru_cache(1024)
def _way(xs, x_steps, ws, w_steps, ys, y_steps, stride, padding, dilation, may_transform: bool) -> Way:
    """How to convolve arrays of this geometry: programs come back to the same few."""
    f = _fields(xs, x_steps, ws, w_steps, ys, y_steps, stride, padding, dilation)
    g, o, c, *kernel = ws
    work, wide = math.prod(ys) * c * math.prod(kernel), -(-o // 64) * 64
    if c == o == 1 and g >= LANES and f["xc"] == f["yc"] == 1:
        f["rows"] = max(min(4 * PLANE // (g * f["OW"]), xs[0] * f["OD"] * f["OH"] // 8), 1)
        return Way("depthwise_last", _plan(f), -(-xs[0] * f["OD"] * f["OH"] // f["rows"]), work, "depthwise_pack", g * math.prod(kernel))
    if c == 1 and o <= 4 and g > 1:
        _cut_planes(f)
        return Way("depthwise", _plan(f), -(-_tasks(f) // f["parts"]), work, "", 0)
    if may_transform and _suits_winograd(f):
        _cut_tiles(f)
        return Way("winograd", _plan(f), _tasks(f), work, "winograd_pack", g * 16 * (c * wide + APART))
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


def _cut_planes(f: dict[str, int]) -> None:
    """Blocks of planes whose patch stays near; several, if planes are small, to a task."""
    cols, rows, wide = f["OW"], 1, f["KW"] * f["dw"]
    while cols > 64 and (cols * f["sw"] + wide) * f["KD"] * f["KH"] > PLANE:
        cols = -(-cols // 2)
    while rows < f["OH"] and (rows * f["sh"] + f["KH"] * f["dh"]) * (cols * f["sw"] + wide) * f["KD"] <= PLANE:
        rows += 1
    f["cols"], f["rows"], f["splits"] = cols, _even(f["OH"], rows), 1
    f["parts"] = max(min(4 * PLANE // (f["rows"] * cols), _tasks(f) // 8), 1)


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


def _run(name: str, plan: np.ndarray, tasks: int, work: int, x: int, w: int, y: int, bias: int) -> list[int]:
    """Run the tasks of a loop of convolution on arrays at these addresses; what became of each (see print_conv.tasks)."""
    plan = plan.copy()
    plan[:4] = x, w, y, bias
    done = run(f"conv.{name}", plan, tasks, work)
    if 2 in done:
        raise MemoryError(f"conv.{name}: no memory for a patch of the image")
    return done


def run(name: str, plan: np.ndarray, tasks: int, work: int) -> list[int]:
    """Run tasks 0, 1, ... of a compiled loop on a plan, side by side if there is enough work for that; what each returns."""
    done = native.strided_view(native.empty((8 * tasks,), INT64), (tasks,), (8,), 0)  # apart, so that threads do not share a cache line
    line = max(min(work // (8 * tasks), 1 << 15), 1)
    if native.kernel(name).into(done, _numbered(tasks), native.strided_view(plan, (), (), 0), line) is NotImplemented:
        raise RuntimeError(f"the compiled loop {name} does not take its plan: it was built from other sources")
    return done.tolist()


@lru_cache(64)
def _numbered(tasks: int) -> np.ndarray:
    return np.arange(tasks)


address = native.address
FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)


def _volumes(shape: Sizes, steps: Sizes, n: int) -> tuple[Sizes, Sizes]:
    """Shape and strides of `_volume`."""
    at = len(shape) - n
    return (*shape[:at], *(1,) * (3 - n), *shape[at:]), (*steps[:at], *(0,) * (3 - n), *steps[at:])


def _volume(array: Any, n: int) -> Any:
    """The array with three spatial dimensions."""
    return array[(..., *(None,) * (3 - n), *(slice(None),) * n)]


def _three(numbers: Sizes, missing: int) -> Sizes:
    return (missing,) * (3 - len(numbers)) + tuple(numbers)
