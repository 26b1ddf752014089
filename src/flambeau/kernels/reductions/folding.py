"""Running the compiled reductions on arrays: finds the geometry they need, or answers None.

A fold sees an array as (outer, n, inner) and reduces the middle, perhaps again and again at some distance. Dimensions that memory holds as one run
count as one; where there are more runs than that, the array is copied into an order in which there are not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.native import native
from flambeau.kernels.reductions.along_dim import first_of_all, lines
from flambeau.kernels.reductions.along_dim import ready as lines_ready

INT64 = np.dtype(np.int64)
FEW = 1 << 15  # elements that are not worth being cut into rows for threads
SHORT = 64  # elements that are worth a call of their own
_FIXED = {"any": np.dtype(bool), "all": np.dtype(bool), "outside": np.dtype(bool), "count_nonzero": INT64}


def fold(name: str, array, dims: tuple[int, ...], keepdim: bool, out_dtype: np.dtype, shift=None, count: float | None = None):
    """The compiled reduction, or None where there is none for this array."""
    engine = native.lib if type(array) is np.ndarray else _engine(array)
    if engine is None:
        return None
    plan = _plan(name, array, dims, keepdim, out_dtype)
    if plan is None:
        return None
    exact, once, order, sizes, steps, shape, total, again = plan
    if once is not None:
        array = array[once]
    if order is not None:
        array = arrays.contiguous(array.transpose(order))
    out = native.empty(shape, out_dtype) if engine is native.lib else arrays.empty_beside(array, shape, out_dtype)
    return out if engine.fold(exact, array, sizes, steps, out, shift, total if count is None else float(count), *again) else None


def spread(name: str, array, dims: tuple[int, ...], keepdim: bool, count: float) -> tuple | None:
    """("var" or "std" by this count, mean) of float32 in one pass over the elements of a GPU; None elsewhere."""
    if array.dtype != np.float32 or not arrays.on_gpu(array) or not array.size:
        return None
    _, _, order, sizes, steps, shape, *_ = _plan(name, array, dims, keepdim, array.dtype)
    array = array if order is None else arrays.contiguous(array.transpose(order))
    found = [arrays.empty_beside(array, shape, array.dtype) for _ in range(2)]
    arrays.cuda().spread(name, array, sizes, steps, found, count)
    return tuple(found)


def _plan(name: str, array, dims: tuple[int, ...], keepdim: bool, out_dtype: np.dtype) -> tuple | None:
    """(the fold, an index or None, an order of dimensions in which it is copied first or None, sizes, steps, shape of the result, count, repeats).

    It depends on dtypes, shape and strides only, and programs fold the same few shapes again and again."""
    key = (name, array.dtype.num, out_dtype.num, array.shape, array.strides, dims, keepdim)
    plan = _plans.get(key)
    if plan is None:
        plan = _made_plan(name, array, dims, keepdim, out_dtype)
        if plan is not None:
            if len(_plans) > 1000:
                _plans.clear()
            _plans[key] = plan
    return plan


def _made_plan(name: str, array, dims: tuple[int, ...], keepdim: bool, out_dtype: np.dtype) -> tuple | None:
    exact = _exact_name(name, array.dtype, out_dtype)
    if exact is None:
        return None
    exact, once, count = _repeated(exact, array, dims)
    array = array if once is None else array[once]
    seen, sizes, steps, *again = _geometry(array, dims)
    order = None if seen is array else _reduced_last(array.ndim, dims)
    return exact, once, order, sizes[:3], steps, sizes[4 if keepdim else 3], count, again


def ready(name: str, array: np.ndarray, dims: tuple[int, ...], keepdim: bool, out_dtype: np.dtype) -> Callable | None:
    """What `fold` does with arrays like this one, as a function of them, a shift and a count; None where they are copied first."""
    plan = None if native.lib is None else _plan(name, array, dims, keepdim, out_dtype)
    if plan is None or plan[1] is not None or plan[2] is not None:
        return None
    exact, _, _, sizes, steps, shape, total, again = plan
    run, empty = native.lib.fold, native.empty

    def folded(array, shift=None, count=total):
        out = empty(shape, out_dtype)
        return out if run(exact, array, sizes, steps, out, shift, count, *again) else NotImplemented

    return folded


def whole(name: str) -> Callable:
    """launch(array) -> the fold of all its elements as a 0-d array; NotImplemented unless it is contiguous, of a dtype that folds to its own.
    The maximum and minimum of nothing are not asked for."""
    return native.not_compiled if native.lib is None else partial(native.lib.fold_all, name)


def ready_whole(name: str, array: np.ndarray, out_dtype: np.dtype) -> Callable | None:
    """`ready` for all elements: without a word of geometry where they lie one after another."""
    if array.dtype == out_dtype and array.dtype.char in "fd" and array.size and array.flags.c_contiguous and native.lib is not None:
        return whole(name)
    return ready(name, array, tuple(range(array.ndim)), False, out_dtype) if array.size else None


def _repeated(name: str, array, dims: tuple[int, ...]) -> tuple[str, tuple | None, float]:
    """(the fold, an index or None, its count): of dimensions that repeat the same elements, as those of an expanded array do, one is folded.

    A sum is then the mean over a fraction of an element. Not in float64, where the quotient would show, unless it is exact.
    """
    total = float(_count(array.shape, dims))
    over = [d for d in dims if array.strides[d] == 0 and array.shape[d] > 1]
    if not over or name not in _REPEATABLE or type(array) is not np.ndarray:
        return name, None, total
    times = prod([array.shape[d] for d in over])
    if name == "sum" and array.dtype.itemsize == 8 and times & (times - 1):
        return name, None, total
    once = tuple([slice(1) if d in over else slice(None) for d in range(array.ndim)])
    return ("mean", once, 1 / times) if name == "sum" else (name, once, total / times)


SIMPLE = frozenset(("sum", "mean", "prod", "max", "min", "any", "all", "count_nonzero"))  # one pass over the elements
_REPEATABLE = frozenset(("sum", "mean", "max", "min", "any", "all"))


def _engine(array):
    """Whose loops run on this array: the extension's or the CUDA room's; None where there are none."""
    if type(array) is np.ndarray:
        return native.lib
    return arrays.cuda() if arrays.on_gpu(array) else None


_plans: dict[tuple, tuple] = {}


def positions(name: str, array, dims: tuple[int, ...], keepdim: bool):
    """(values, first positions) of the maximum or minimum along one dimension or over all, or None."""
    engine = _engine(array)
    if engine is None or not array.size:
        return None
    whole, shape = len(dims) == array.ndim, _kept_shape(array.shape, dims, keepdim)
    if engine is native.lib:
        found = first_of_all(name, array) if whole else lines(name, array, dims[0], 1, drop=not keepdim)
    else:
        array = arrays.contiguous(array) if whole else array
        key = (name, array.dtype.num, array.shape, array.strides, dims)
        plan = _plans.get(key)
        if plan is None:
            seen, sizes, steps = _geometry(array, dims)
            if len(_plans) > 1000:
                _plans.clear()
            plan = _plans[key] = seen is not array, sizes, steps
        copies, sizes, steps = plan
        if copies:
            array = _copied(array, dims)[0]
        found = [arrays.empty_beside(array, sizes[3], dtype) for dtype in (array.dtype, INT64)]
        found = found if engine.fold(name, array, sizes[:3], steps, found[0], None, 1.0, index=found[1]) else None
    if found is None:
        return None
    values, places = found
    if values.shape != shape:
        values, places = values.reshape(shape), places.reshape(shape)
    if not values.flags.c_contiguous:
        values, places = arrays.contiguous(values), arrays.contiguous(places)
    return values, places


def positions_ready(name: str, array: np.ndarray, dims: tuple[int, ...], keepdim: bool) -> Callable | None:
    """What `positions` does with arrays like this one, if that is one launch; else None."""
    if native.lib is None or not array.size:
        return None
    if len(dims) == 1 < array.ndim:
        return lines_ready(name, array, dims[0], 1, drop=not keepdim)
    if len(dims) != array.ndim or array.size >= FEW or not array.flags.c_contiguous:
        return None
    line, shape = lines_ready(name, array.reshape(-1), 0, 1), _kept_shape(array.shape, dims, keepdim)

    def run(array):
        found = line(array.reshape(-1))
        return found if found is NotImplemented else (found[0].reshape(shape), found[1].reshape(shape))

    return None if line is None else run


def _exact_name(name: str, dtype: np.dtype, out: np.dtype) -> str | None:
    if name in ("sum", "prod"):
        if dtype.kind in "biu":
            return "i" + name if out == INT64 else None
        return name if dtype == out else None
    if name in _FIXED:
        return name if out == _FIXED[name] else None
    return name if dtype == out else None


@lru_cache(1024)
def _kept_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    return tuple(1 if d in dims else n for d, n in enumerate(shape) if keepdim or d not in dims)


def _count(shape, dims: tuple[int, ...]) -> int:
    return prod([shape[d] for d in dims])


def _geometry(array, dims: tuple[int, ...]):
    """array, (outer, n, inner, shape without dims, shape with them as 1), steps in bytes; and (how often n repeats, the step from one to the next),
    where the reduced dimensions are two runs of memory."""
    shape, steps = array.shape, array.strides
    if len(dims) == len(shape) and array.flags.c_contiguous:
        return array, (1, array.size, 1, (), (1,) * len(shape)), (0, array.itemsize, 0)
    shapes = _kept_shape(shape, dims, False), _kept_shape(shape, dims, True)
    if 0 in shape:
        return array, (prod(shapes[0]), _count(shape, dims), 1, *shapes), (0, 0, 0)
    groups: list[list[int]] = []  # runs of neighbouring dimensions of one sort: [reduced?, size, step]
    for d in _as_in_memory(shape, steps, dims):
        n, reduced = shape[d], d in dims
        if groups and groups[-1][0] == reduced and groups[-1][2] == n * steps[d]:
            groups[-1][1] *= n
            groups[-1][2] = steps[d]
        else:
            groups.append([reduced, n, steps[d]])
    pattern = [g[0] for g in groups]
    kept, folded = [[g[1:] for g in groups if g[0] == reduced] for reduced in (False, True)]
    if len(kept) > 2 or len(folded) > 2 or (type(array) is not np.ndarray and pattern not in _PLAIN):
        return _copied(array, dims)
    none = [1, 0]
    again, middle = [none, none, *folded][-2:] if folded else (none, none)
    if len(kept) == 1:  # one run of results: outside of what is reduced, or inside?
        kept = [*kept, none] if pattern[-1:] != [False] or not folded else [none, *kept]
    outer, inner = kept or (none, none)
    beside = inner[0] > 1 and inner[1] < middle[1]
    # A GPU reads columns side by side, so they must lie side by side; rows may have any step. What repeats should not be short.
    apart = inner[1] != array.itemsize and (type(array) is not np.ndarray or inner[1] == 0)
    if (beside and apart) or (again[0] > 1 and middle[0] * (inner[0] if beside else 1) < SHORT):
        return _copied(array, dims)
    seen = array, (outer[0], middle[0], inner[0], *shapes), (outer[1], middle[1], inner[1])
    return seen if again is none else (*seen, tuple(again))


# What a GPU's loops take, as whether each run of dimensions is reduced.
_PLAIN = [[], [True], [False], [True, False], [False, True], [False, True, False]]


def _as_in_memory(shape, steps, dims: tuple[int, ...]) -> list[int]:
    """The dimensions that have a size, in their order in memory if that leaves the order of the kept ones as it is: the rows of a transposed matrix
    are summed as the columns it has in memory, 27 times as fast (1024 x 1024), and nothing is copied."""
    given = [d for d, n in enumerate(shape) if n != 1]
    if all(steps[d] > 0 for d in given):
        sorted_ = sorted(given, key=lambda d: -steps[d])
        if [d for d in sorted_ if d not in dims] == [d for d in given if d not in dims]:
            return sorted_
    return given


def _copied(array, dims: tuple[int, ...]):
    """The array in an order in which the reduced dimensions come last, as one run."""
    ordered = arrays.contiguous(array.transpose(_reduced_last(array.ndim, dims)))
    n = prod([array.shape[d] for d in dims])
    rows = prod([n for d, n in enumerate(array.shape) if d not in dims])
    item = array.itemsize
    return ordered, (rows, n, 1, _kept_shape(array.shape, dims, False), _kept_shape(array.shape, dims, True)), (n * item, item, 0)


def _reduced_last(ndim: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    return (*[d for d in range(ndim) if d not in dims], *dims)
