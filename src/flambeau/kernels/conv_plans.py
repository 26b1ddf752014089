"""Which compiled loop convolves (print_conv.py), in blocks of which size. float32 in main memory; views with any strides.

All shapes are those of volumes, x (N, C, D, H, W) and w (G, O / G, C / G, KD, KH, KW): images have D = 1. Blocks depend on shapes alone, and
so do the sums of a weight's gradient: any number of threads gives the same bits.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

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
    """Whether the loops can read these arrays."""
    return native.lib is not None and all(type(a) is np.ndarray and a.dtype == np.float32 and a.size for a in operands if a is not None)


def convolve(x, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    """Write the convolution of x with w into `out`."""
    n = x.ndim - 2
    kernel = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    _correlate(_volume(x, n), _volume(kernel, n), bias, _volume(out, n), _three(stride, 1), _three(padding, 0), _three(dilation, 1))


def adjoint(y, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> bool:
    """Write the transposed convolution into `out`: one plain convolution for every remainder of a position divided by the stride."""
    n = y.ndim - 2
    if math.prod(stride) > PHASES:
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
    fields = _fields(x, w, y, None, _three(stride, 1), _three(padding, 0), _three(dilation, 1))
    fields["splits"] = 1
    g, o, c, *kernel = w.shape
    if c == 1 and o <= 4 and g > 1:
        _cut(fields, 1, 1)
        _run("depthwise_weight", g, fields, w=address(w))
        return
    by_tiles = _suits_winograd(fields)
    _cut_tiles(fields) if by_tiles else _cut(fields, c, 1)
    pitch, k = -(-o // 64) * 64, 16 if by_tiles else math.prod(kernel)
    blocks = len(x) * math.prod(_counts(fields))
    parts = max(min(PARTS // min(g, PARTS), blocks, (64 << 20) // (4 * g * k * c * pitch)), 1)
    sums = native.empty((parts, g, k, c, pitch), x.dtype)
    _run("winograd_weight" if by_tiles else "weight", parts * g, fields, w=address(sums), parts=parts, pitch=pitch)
    total = sums[..., :o].sum(0) if parts > 1 else sums[0, ..., :o]
    if by_tiles:
        total = _turned_back(total.reshape(g, 4, 4, c, o))
        if not np.isfinite(total).all():
            _direct_weight(x, fields, w, pitch)
            return
    w[...] = total.reshape(g, *kernel, c, o).transpose(0, 5, 4, 1, 2, 3)


def _direct_weight(x, fields: dict[str, int], w, pitch: int) -> None:
    g, o, c, *kernel = w.shape
    _cut(fields, c, 1)
    sums = native.empty((1, g, math.prod(kernel), c, pitch), x.dtype)
    _run("weight", g, fields, w=address(sums), parts=1, pitch=pitch)
    w[...] = sums[0, ..., :o].reshape(g, *kernel, c, o).transpose(0, 5, 4, 1, 2, 3)


def _turned_back(s):
    """G' S G of Note [winograd], for S (g, 4, 4, ...): (g, 3, 3, ...)."""
    for axis in (1, 2):
        first, plus, minus, last = np.moveaxis(s, axis, 0)
        both = (plus + minus) * np.float32(0.5)
        s = np.stack([first + both, (plus - minus) * np.float32(0.5), both + last], axis)
    return s


# -- plans -----------------------------------------------------------------------------------------------------------------


def _correlate(x, w, bias, out, stride: Sizes, padding: Sizes, dilation: Sizes) -> None:
    """Write a convolution of volumes into `out`. Padding is what comes before, and may be negative: zeros are where x is not."""
    g, o, c, *kernel = w.shape
    fields = _fields(x, w, out, bias, stride, padding, dilation)
    flops = math.prod(out.shape) * c * math.prod(kernel)
    if c == 1 and o <= 4 and g > 1:
        fields["splits"] = 1
        _cut(fields, 1, 1)
        _run("depthwise", _tasks(fields), fields, flops, w=address(w))
        return
    if _suits_winograd(fields):
        packed = native.empty((g * 16 * c * (-(-o // 64) * 64),), x.dtype)
        _run("winograd_pack", g * -(-o // 64), fields, w=address(w), y=address(packed))
        _cut_tiles(fields)
        if not _run("winograd", _tasks(fields), fields, flops, w=address(packed)).any():
            return
    packed = native.empty((g * math.prod(kernel) * c * (-(-o // 64) * 64),), x.dtype)
    _run("pack", g * -(-o // 64), fields, w=address(w), y=address(packed))
    _cut(fields, c, o)
    _run("direct", _tasks(fields), fields, flops, w=address(packed))


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


def _fields(x, w, y, bias, stride: Sizes, padding: Sizes, dilation: Sizes) -> dict[str, int]:
    g, o, c, *kernel = w.shape
    f = {"x": address(x), "y": address(y), "bias": 0 if bias is None else address(bias), "groups": g, "cin": c, "cout": o, "N": len(x)}
    f |= zip(("xn", "xc", "xd", "xh", "xw"), [s // 4 for s in x.strides], strict=True)
    f |= zip(("wg", "wo", "wc", "wd", "wh", "ww"), [s // 4 for s in w.strides], strict=True)
    f |= zip(("yn", "yc", "yd", "yh", "yw"), [s // 4 for s in y.strides], strict=True)
    for names, numbers in zip(
        (("D", "H", "W"), ("OD", "OH", "OW"), ("KD", "KH", "KW"), ("sd", "sh", "sw"), ("pd", "ph", "pw"), ("dd", "dh", "dw")),
        (x.shape[2:], y.shape[2:], kernel, stride, padding, dilation),
        strict=True,
    ):
        f |= zip(names, numbers, strict=True)
    return f


def _run(name: str, tasks: int, fields: dict[str, int], work: int = 1 << 30, **more: int) -> np.ndarray:
    """Run the tasks of a loop of convolution; what became of each (see print_conv._loop)."""
    done = run(f"conv.{name}", FIELDS, tasks, fields | more, work)
    if (done == 2).any():
        raise MemoryError(f"conv.{name}: no memory for a patch of the image")
    return done


def run(name: str, order: list[str], tasks: int, fields: dict[str, int], work: int) -> np.ndarray:
    """Run tasks 0, 1, ... of a compiled loop on a plan, side by side if there is enough work for that; what each returns."""
    plan = np.array([fields.get(f, 0) for f in order], np.int64)
    done = np.empty((tasks, 8), np.int64)[:, 0]
    line = max(min(work // (8 * tasks), 1 << 15), 1)
    if native.kernel(name).into(done, np.arange(tasks), plan[:1].reshape(()), line) is NotImplemented:
        raise RuntimeError(f"the compiled loop {name} does not take its plan: it was built from other sources")
    return done


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _volume(array: np.ndarray, n: int) -> np.ndarray:
    """The array with three spatial dimensions."""
    return array[(..., *(None,) * (3 - n), *(slice(None),) * n)]


def _three(numbers: Sizes, missing: int) -> Sizes:
    return (missing,) * (3 - len(numbers)) + tuple(numbers)
