"""Orthogonal polynomials of degree n at x: special.chebyshev_polynomial_t(x, n) and its relatives.

Each family is a recurrence from degrees 0 and 1 upwards, carried out in float64 on whole arrays until the largest degree
asked for. A negative degree gives 0. PyTorch has no derivatives for them, and neither do we.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau.ops import specs
from flambeau.ops.declare import on_arrays
from flambeau.ops.gamma_series import in_double, rounded


def declare(name: str, words: str, first: Callable, step: Callable, closed: Callable | None = None, shifted: bool = False) -> None:
    """Declare special.<name>(x, n).

    first    x -> the polynomial of degree 1
    step     (k, x, p of degree k, p of degree k - 1) -> p of degree k + 1
    closed   (xp, arccos x, n) -> the value for |x| < 1 and high degrees, where the recurrence would be long
    shifted  the polynomial is moved from -1 ... 1 to 0 ... 1
    """

    def polynomial(x, n):
        xp, out, (x, n) = in_double(x, n)
        with np.errstate(all="ignore"):
            value = _climb(xp, 2 * x - 1 if shifted else x, xp.trunc(n), first, step, closed)
        return rounded(out, value)

    polynomial.__doc__ = f"{words} of degree n at x. Shapes broadcast."
    declared = on_arrays(name=f"special.{name}", method=False, promote=("x", "n"), rule="float", differentiable=False)
    declared(polynomial).meta(specs.pointwise)


def _climb(xp, x, n, first, step, closed):
    value = xp.where(n == 0, 1.0, 0.0)
    if closed is not None:
        known = (xp.abs(x) < 1) & (n > 8)
        value = xp.where(known, closed(xp, xp.arccos(x), n), value)
        n = xp.where(known, -1.0, n)
    below, now = xp.ones_like(x), first(x)
    highest, k = float(xp.max(n)) if n.size else 0, 1
    while k <= highest:
        value = xp.where(n == k, now, value)
        below, now, k = now, step(k, x, now, below), k + 1
    return value


def _chebyshev_step(k, x, now, below):
    return 2 * x * now - below


for _letter, _kind, _first, _closed in (
    ("t", "first", lambda x: x, lambda xp, angle, n: xp.cos(n * angle)),
    ("u", "second", lambda x: 2 * x, lambda xp, angle, n: xp.sin((n + 1) * angle) / xp.sin(angle)),
    ("v", "third", lambda x: 2 * x - 1, lambda xp, angle, n: xp.cos((n + 0.5) * angle) / xp.cos(angle / 2)),
    ("w", "fourth", lambda x: 2 * x + 1, lambda xp, angle, n: xp.sin((n + 0.5) * angle) / xp.sin(angle / 2)),
):
    _name, _words = f"chebyshev_polynomial_{_letter}", f"The Chebyshev polynomial of the {_kind} kind"
    declare(_name, _words, _first, _chebyshev_step, _closed)
    declare(f"shifted_{_name}", f"{_words} for 0 <= x <= 1", _first, _chebyshev_step, shifted=True)

for _name, _words, _first, _step in (
    ("hermite_polynomial_h", "The physicist's Hermite", lambda x: 2 * x, lambda k, x, now, below: 2 * x * now - 2 * k * below),
    ("hermite_polynomial_he", "The probabilist's Hermite", lambda x: x, lambda k, x, now, below: x * now - k * below),
    ("laguerre_polynomial_l", "The Laguerre", lambda x: 1 - x, lambda k, x, now, below: ((2 * k + 1 - x) * now - k * below) / (k + 1)),
    ("legendre_polynomial_p", "The Legendre", lambda x: x, lambda k, x, now, below: ((2 * k + 1) * x * now - k * below) / (k + 1)),
):
    declare(_name, f"{_words} polynomial", _first, _step)
