"""Folds (reductions/fold.py) as loops: the same declarations, for the printer of loops for GPUs."""

from __future__ import annotations

from functools import lru_cache

from flambeau.kernels.language import expr as e
from flambeau.kernels.loops.language import Loop, extent, greatest, least, pick, place, product, total
from flambeau.kernels.reductions.fold import Fold

KINDS = {"T": "T", "bool": "bool", "int64": "i64"}


@lru_cache(None)
def as_loop(fold: Fold, find: bool = False) -> Loop:
    """A row becomes a number; with `find` also the place where that stands. The fold's shift is a number of each row, if there is one; its count an
    option."""
    start = None if callable(fold.init) else fold.init
    words = {"+": total, "*": product, "max": lambda v: greatest(v, start), "min": lambda v: least(v, start)}

    def formula(x, *given):
        shift, count = given if shifted else (e.const(0), *given)
        found = words[fold.lanes](e.lift(fold.map(x, shift)))
        value = e.lift(fold.finish(found, count, shift))
        return (value, place(found)) if find else value

    shifted = any(1 in e.loads(e.lift(made)) for made in (fold.map(e.load(0), e.load(1)), fold.finish(e.load(0), e.param(0), e.load(1))))
    stores = f"r:{KINDS[fold.out]}" + " r:i64" * find
    return Loop(f"fold_{fold.name}", formula, "ri r:f64" if shifted else "ri", stores, 1, fold.dtypes)


def _variance(x, count):
    """(variance by some count, mean) from sums of (x - shift) and its square; the shift is an element, so that equal ones have no variance."""
    first = pick(0, e.const(0, "i64"))
    shift = e.where(e.eq(first - first, 0), first, e.const(0))  # one that is not finite would make NaN of infinity
    off = total(x - shift) / extent
    squares = e.maximum(total((x - shift) * (x - shift)) - off * off * extent, 0)
    return squares / count, shift + off


def _deviation(x, count):
    var, mean = _variance(x, count)
    return e.sqrt(var), mean


SPREAD = {name: Loop(name, formula, "ri", "r r", 1, ("float32",)) for name, formula in (("var", _variance), ("std", _deviation))}
