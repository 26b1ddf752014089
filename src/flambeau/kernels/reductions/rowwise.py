"""Functions of whole rows: each element of the result depends on all elements along one dimension.

    softmax      exp(x) / sum(exp(x))        log_softmax   x - log(sum(exp(x)))
    layer_norm   (x - mean) / sqrt(var)      rms_norm      x / sqrt(mean(x^2))

Each has a backward form. Half precision is computed in float32 and rounded once (by the caller for the norms).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native
from flambeau.kernels.reductions import folding
from flambeau.kernels.reductions.reduce import dense, reduce, unhalved, widest

# Elements of a short row, and how many of them are worth bringing together.
SHORT, FEW = {"softmax": 64, "log_softmax": 64, "softmax_backward": 32, "log_softmax_backward": 32}, 32
INLINE, BLOCK = 32768, 16384  # elements: what is not worth a second thread; what a call takes otherwise


def softmax(array: Array, dim: int) -> Array:
    """exp(x) / sum(exp(x)) along `dim`. Same shape, C-contiguous."""
    return _rows(_softmax, dim, array)


def softmax_backward(grad: Array, result: Array, dim: int) -> Array:
    """result * (grad - sum(grad * result)) along `dim`."""
    return _rows(_softmax_backward, dim, grad, result)


def log_softmax(array: Array, dim: int) -> Array:
    """x - log(sum(exp(x))) along `dim`."""
    return _rows(_log_softmax, dim, array)


def log_softmax_backward(grad: Array, result: Array, dim: int) -> Array:
    """grad - exp(result) * sum(grad) along `dim`."""
    return _rows(_log_softmax_backward, dim, grad, result)


def ready(name: str, dim: int, *operands: np.ndarray) -> Callable | None:
    """What computes softmax or its like along `dim` of arrays like these; None where there is more to it than one loop."""
    first, rows = operands[0], native.kernel(f"rows.{name}")
    if not first.size or dim not in (-1, first.ndim - 1) or not all([a.shape == first.shape and a.flags.c_contiguous for a in operands]):
        return None
    shape, width = first.shape, first.shape[-1] if first.ndim else 0
    if not width or width > SHORT[name] or first.size < FEW * width:
        return rows
    if first.size > INLINE:
        return None
    short = native.kernel(f"short.{name}")

    def run(*operands):
        found = short(*[a.reshape(-1) for a in operands], width)
        return found if found is NotImplemented else found.reshape(shape)

    return run


def _rows(function: Callable, dim: int, *operands: Array) -> Array:
    first = operands[0]
    if type(first) is np.ndarray and first.size and dim in (-1, first.ndim - 1) and first.flags.c_contiguous:  # the usual case
        name, kernel, most = _known(function)
        width = first.shape[-1] if first.ndim else most + 1
        found = _short(name, *operands) if width <= most and first.size >= FEW * width else kernel(*operands)
        if found is not NotImplemented:
            return found
    compiled = folding.rows(function.__name__[1:], dim, operands)
    if compiled is not None:
        return compiled
    xp = arrays.module_of(first)
    if first.size == 0:
        return arrays.empty_beside(first, first.shape, first.dtype)
    rows = [unhalved(a).reshape(a.shape or (1,)) for a in operands]  # a 0-d tensor is a row of one
    with np.errstate(all="ignore"):
        found = function(xp, dim, *rows)
    return dense(found.reshape(first.shape), first.dtype, first)


@cache
def _known(function: Callable) -> tuple[str, Callable, int]:
    """The name of a function of rows, its kernel, and how many elements a short row has."""
    name = function.__name__[1:]
    return name, native.kernel(f"rows.{name}"), SHORT[name]


def _short(name: str, *operands: np.ndarray):
    """The same by the loops of short_rows.py, or NotImplemented. Large work is cut into calls for whole rows."""
    (first, *others), kernel = operands, native.kernel(f"short.{name}")
    if any([a.shape != first.shape or not a.flags.c_contiguous for a in others]):
        return native.kernel(f"rows.{name}")(*operands)
    flat, c, n = [a.reshape(-1) for a in operands], first.shape[-1], first.size
    if n <= INLINE:
        found = kernel(*flat, c)
        return found if found is NotImplemented else found.reshape(first.shape)
    out = native.empty(first.shape, first.dtype)
    flat.insert(0, out.reshape(-1))
    each = BLOCK // c * c
    whole = n // each * each
    for begin, end, length in ((0, whole, each), (whole, n, n - whole)):
        if begin < end and kernel.into(*[a[begin:end].reshape(-1, length) for a in flat], c) is NotImplemented:
            return NotImplemented
    return out


def _total(xp, array, dim):
    """The sum of a row, carried in double precision, as the dtype of the row again."""
    return xp.sum(array, axis=dim, keepdims=True, dtype=widest(array.dtype)).astype(array.dtype)


def _softmax(xp, dim, x):
    powers = xp.exp(x - xp.max(x, axis=dim, keepdims=True))  # shifted, so that exp cannot overflow
    return powers / _total(xp, powers, dim)


def _softmax_backward(xp, dim, grad, result):
    return result * (grad - _total(xp, grad * result, dim))


def _log_softmax(xp, dim, x):
    shifted = x - xp.max(x, axis=dim, keepdims=True)
    return shifted - xp.log(_total(xp, xp.exp(shifted), dim))


def _log_softmax_backward(xp, dim, grad, result):
    return grad - xp.exp(result) * _total(xp, grad, dim)


# -- norms: over the last dimension ------------------------------------------------------------------------------------------


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> tuple[Array, Array, Array]:
    """((x - mean) * rstd * weight + bias, mean, rstd). x (..., N); weight and bias repeat to it; mean and rstd (..., 1)."""
    n, mean, rstd = x.shape[-1], _numbers(x), _numbers(x)
    out = _norm("layer_norm", (x, weight, bias, mean, rstd), (float(n), float(eps)), ("row", "shared", "shared", "made", "made"))
    if out is not None:
        return out, mean, rstd
    xp = arrays.module_of(x)
    with np.errstate(all="ignore"):
        mean = _total(xp, x, -1) / n
        off = x - mean
        rstd = 1 / xp.sqrt(_total(xp, off * off, -1) / n + eps)
        return tuple(dense(a, x.dtype, x) for a in (off * rstd * weight + bias, mean, rstd))


def layer_norm_ready(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> Callable | None:
    """What `layer_norm` does with row-major arrays like these, as a function of them; or None."""
    kernel = native.kernel("rows.layer_norm")
    if kernel is native.not_compiled or not x.size or not x.flags.c_contiguous:
        return None
    shape, dtype, numbers, empty = (*x.shape[:-1], 1), x.dtype, (float(x.shape[-1]), float(eps)), native.empty

    def run(x, weight, bias):
        mean, rstd = empty(shape, dtype), empty(shape, dtype)
        out = kernel(x, weight, bias, mean, rstd, *numbers)
        return out if out is NotImplemented else (out, mean, rstd)

    return run


def layer_norm_alone(x: Array, weight: Array | None, bias: Array | None, eps: float) -> Array:
    """The first of what `layer_norm` gives, where nobody will ask for the others; in half precision too, without weight and bias too."""
    given = () if weight is None else (weight, bias)
    numbers = float(x.shape[-1]), float(eps)
    if type(x) is np.ndarray and native.lib is not None and x.flags.c_contiguous and x.size:
        out = native.kernel("rows.layer_norm_alone" if given else "rows.layer_norm_bare")(x, *given, *numbers)
        if out is not NotImplemented:
            return out
    if given:
        out = _norm("layer_norm_alone", (x, *given), numbers, ("row", "shared", "shared"))
        if out is not None:
            return out
    wide = unhalved(x)
    w, b = (arrays.number(missing, x, wide.dtype) if p is None else arrays.cast(p, wide.dtype) for p, missing in ((weight, 1.0), (bias, 0.0)))
    return arrays.cast(layer_norm(wide, w, b, eps)[0], x.dtype)


def layer_norm_backward(grad: Array, x: Array, weight: Array, mean: Array, rstd: Array) -> Array:
    """How the gradient of a layer norm reaches x: rstd * (h - mean(h) - y * mean(h * y)) with h = grad * weight, y = (x - mean) * rstd."""
    n = x.shape[-1]
    out = _norm("layer_norm_backward", (grad, x, weight, mean, rstd), (float(n),), ("row", "row", "shared", "each", "each"))
    if out is not None:
        return out
    xp = arrays.module_of(x)
    with np.errstate(all="ignore"):
        h, y = grad * weight, (x - mean) * rstd
        return dense(rstd * (h - _total(xp, h, -1) / n - y * (_total(xp, h * y, -1) / n)), x.dtype, x)


def weighted(grad: Array, x: Array, mean: Array, rstd: Array) -> Array:
    """grad * (x - mean) * rstd: what each element adds to the gradient of the weight."""
    out = _norm("weighted", (grad, x, mean, rstd), (), ("row", "row", "each", "each"))
    return dense(grad * ((x - mean) * rstd), x.dtype, x) if out is None else out


def rms_norm(x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    """(x * rstd * weight, rstd), where 1 / rstd is the root of the mean square of a row. x (..., N), weight (N); rstd (..., 1)."""
    n, rstd = x.shape[-1], _numbers(x)
    out = _norm("rms_norm", (x, weight, rstd), (float(n), float(eps)), ("row", "shared", "made"))
    if out is not None:
        return out, rstd
    xp = arrays.module_of(x)
    with np.errstate(all="ignore"):
        rstd = 1 / xp.sqrt(_total(xp, x * x, -1) / n + eps)
        return dense(x * rstd * weight, x.dtype, x), dense(rstd, x.dtype, x)


def rms_norm_backward(grad: Array, x: Array, weight: Array, rstd: Array) -> Array:
    """How the gradient of an rms norm reaches x: rstd * (h - y * mean(h * y)) with h = grad * weight and y = x * rstd."""
    n = x.shape[-1]
    out = _norm("rms_norm_backward", (grad, x, weight, rstd), (float(n),), ("row", "row", "shared", "each"))
    if out is not None:
        return out
    xp = arrays.module_of(x)
    with np.errstate(all="ignore"):
        h, y = grad * weight, x * rstd
        return dense(rstd * (h - y * (_total(xp, h * y, -1) / n)), x.dtype, x)


def layer_norm_gradients(grad: Array, x: Array, weight: Array, mean: Array, rstd: Array) -> tuple[Array, ...]:
    """How the gradient of a layer norm reaches x, weight and bias. weight (N); -> (..., N), (N), (N)."""
    found = _gradients("layer_norm_gradients", grad, x, weight, (mean, rstd), 2)
    if found is not None:
        return found
    return layer_norm_backward(grad, x, weight, mean, rstd), _over_rows(weighted(grad, x, mean, rstd)), _over_rows(grad)


def rms_norm_gradients(grad: Array, x: Array, weight: Array, rstd: Array) -> tuple[Array, ...]:
    """How the gradient of an rms norm reaches x and weight. weight (N); -> (..., N), (N)."""
    found = _gradients("rms_norm_gradients", grad, x, weight, (rstd,), 1)
    if found is not None:
        return found
    return rms_norm_backward(grad, x, weight, rstd), _over_rows(dense(grad * (x * rstd), x.dtype, x))


def _over_rows(x: Array) -> Array:
    return reduce("sum", x, tuple(range(x.ndim - 1)), False, x.dtype)


def _gradients(name: str, grad: Array, x: Array, weight: Array, numbers: tuple, totals: int) -> tuple[Array, ...] | None:
    """The compiled program that reads grad and x once, or None. The totals of each chunk of rows are added up at the end."""
    n = x.shape[-1]
    if arrays.on_gpu(x) and x.size and weight.shape == (n,) and all([a.dtype == x.dtype for a in (grad, weight, *numbers)]):
        return arrays.cuda_room.rows_and_totals(name, x, [arrays.contiguous(a) for a in (grad, x, weight, *numbers)], (n,))
    loop = native.kernel(f"rows.{name}")
    if type(x) is not np.ndarray or loop is native.not_compiled or not x.size or weight.shape != (n,):
        return None
    rows = x.size // n
    chunk = max(1, min(128, max(32768 // n, rows // 64)))  # enough work for a block, and few enough rows to add in float32
    chunks = -(-rows // chunk)
    sums = [native.empty((chunks, n) if chunks > 1 else (n,), x.dtype) for _ in range(totals)]
    given = [a if a.flags.c_contiguous else arrays.contiguous(a) for a in (grad, x, weight, *numbers)]
    operands = [native.empty(x.shape, x.dtype), *given, *sums]
    steps = [*[chunk * n] * 3, 0, *[chunk] * len(numbers), *[n] * totals]
    for first, count, each in ((0, rows // chunk, chunk), (rows // chunk, 1, rows % chunk)):
        if count and each:
            seen = [native.strided_view(a, (count,), (step,), first * step) for a, step in zip(operands, steps, strict=True)]
            if loop.into(*seen, each * n, n, each, n) is NotImplemented:
                return None
    return operands[0], *(map(_over_rows, sums) if chunks > 1 else sums)


def _numbers(x: Array) -> Array:
    """Room for one number per row."""
    shape = (*x.shape[:-1], 1)
    return native.empty(shape, x.dtype) if type(x) is np.ndarray else arrays.empty_beside(x, shape, x.dtype)


def _norm(name: str, operands: tuple, params: tuple, kinds: tuple) -> Array | None:
    """The compiled program, or None. On the CPU, "shared" operands may also repeat in other ways than one row for all."""
    first = operands[0]
    if type(first) is np.ndarray:
        if native.lib is None or not first.size:
            return None
        if first.flags.c_contiguous:  # then so is the result
            out = native.kernel(f"rows.{name}")(*operands, *params)
            if out is not NotImplemented:
                return out
        operands = tuple(arrays.contiguous(a) for a in operands)
    elif arrays.on_gpu(first) and first.size:
        n, dtype = first.shape[-1], first.dtype
        ready = [a if a._c_contiguous else arrays.contiguous(a) for a in operands]
        if any([a.dtype is not dtype and a.dtype != dtype for a in ready]) or any(
            [kind == "shared" and a.shape != (n,) for a, kind in zip(ready, kinds, strict=True)]
        ):
            return None
        out = arrays.empty_beside(first, first.shape, dtype)
        return out if arrays.cuda_room.rows(name, first.size // n, n, (out, *ready), params) else None
    return folding.rows(name, -1, [a if k in ("row", "shared") else a[..., 0] for a, k in zip(operands, kinds, strict=True)], params, kinds)
