"""Folds: the reductions that are compiled, each declared by four formulas.

    init      what nothing folds to
    map       what one element contributes (x; shift is a number per result, such as the mean)
    combine   how two contributions become one
    finish    the result from the accumulated value (count is a number per call)

Accumulators are double for floating dtypes and int64 for the others, whatever the dtype of the elements, so a float32 sum keeps its digits along any
axis; a maximum, which is one of the elements, is `exact` in theirs. `templates/fold_loops.py` prints the C, `../loops/cuda.py` the CUDA C++.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.pointwise import FLOATS, INTEGERS

INF = float("inf")
ALL = (*FLOATS, *INTEGERS, "bool")


@dataclass(frozen=True)
class Fold:
    """One reduction. `out` is "T" or the dtype of the result; `out_of` overrides it by dtype."""

    name: str
    init: float | Callable
    combine: Callable
    map: Callable = lambda x, shift: x
    finish: Callable = lambda acc, count, shift: acc
    out: str = "T"
    dtypes: tuple[str, ...] = ALL
    lanes: str = "+"  # the operator by which the lanes of a vector are combined
    short: bool = False  # whether some contributions may be added as float32 before they meet the accumulator
    exact: bool = False  # whether accumulators are of the dtype the elements are computed in
    find: bool = False  # whether a GPU can be asked for the position of the result (on the CPU: templates/scan_loops.py)


WHOLE = (*INTEGERS, "bool")
LOWEST = {"int64": -(2**63), "int32": -(2**31), "int16": -(2**15), "int8": -128, "uint8": 0, "bool": 0}
HIGHEST = {"int64": 2**63 - 1, "int32": 2**31 - 1, "int16": 2**15 - 1, "int8": 127, "uint8": 255, "bool": 1}


def _sum(a, b):
    return a + b


def _mean(acc, count, shift):
    return acc / count


def _squared(x, shift):
    return (x - shift) * (x - shift)


FOLDS = [
    Fold("sum", 0, _sum, dtypes=FLOATS, short=True),
    Fold("isum", 0, _sum, out="int64", dtypes=WHOLE),
    Fold("nansum", 0, _sum, map=lambda x, shift: e.where(e.isnan(x), e.const(0), x), dtypes=FLOATS, short=True),
    Fold("mean", 0, _sum, finish=_mean, dtypes=FLOATS, short=True),
    Fold("prod", 1, lambda a, b: a * b, dtypes=FLOATS, lanes="*"),
    Fold("iprod", 1, lambda a, b: a * b, out="int64", dtypes=WHOLE, lanes="*"),
    Fold("max", lambda d: LOWEST.get(d, -INF), e.maximum, lanes="max", exact=True, find=True),
    Fold("min", lambda d: HIGHEST.get(d, INF), e.minimum, lanes="min", exact=True, find=True),
    Fold("any", 0, e.maximum, map=lambda x, shift: e.as_T(e.as_bool(x)), out="bool", lanes="max", exact=True),
    Fold("all", 1, e.minimum, map=lambda x, shift: e.as_T(e.as_bool(x)), out="bool", lanes="min", exact=True),
    Fold("count_nonzero", 0, _sum, map=lambda x, shift: e.as_T(e.as_bool(x)), out="int64"),
    Fold(
        "outside",
        0,
        e.maximum,
        map=lambda x, size: e.as_T((x < 0) | (x >= size)),
        out="bool",
        dtypes=("int64", "int32"),
        lanes="max",
        exact=True,
    ),
    Fold("norm1", 0, _sum, map=lambda x, shift: abs(x), dtypes=FLOATS, short=True),
    Fold("norm2", 0, _sum, map=lambda x, shift: x * x, finish=lambda acc, count, shift: e.sqrt(acc), dtypes=FLOATS, short=True),
    Fold("off", 0, _sum, map=lambda x, shift: x - shift, finish=_mean, dtypes=("float64",)),
    Fold("var", 0, _sum, map=_squared, finish=_mean, dtypes=FLOATS),
    Fold("std", 0, _sum, map=_squared, finish=lambda acc, count, shift: e.sqrt(acc / count), dtypes=FLOATS),
    Fold("logsumexp", 0, _sum, map=lambda x, shift: e.exp(x - shift), finish=lambda acc, count, shift: e.log(acc) + shift, dtypes=FLOATS),
]
