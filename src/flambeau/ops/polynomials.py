"""Orthogonal polynomials of degree n at x: special.chebyshev_polynomial_t(x, n) and its relatives.

Each family is a recurrence from degrees 0 and 1 upwards, carried out in float64 on whole arrays until the largest degree
asked for. A negative degree gives 0. PyTorch has no derivatives for them, and neither do we.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau.kernels import arrays
from flambeau.ops.declare import on_arrays
from flambeau.ops.gamma_series import in_double
from flambeau.ops.shape_rules import broadcast


def declare(name: str, words: str, first: Callable, step: Callable, closed: Callable | None = None) -> None:
    """Declare special.<name>(x, n).

    first   x -> the polynomial of degree 1
    step    (k, x, p of degree k, p of degree k - 1) -> p of degree k + 1
    closed  (xp, x, n) -> the value for |x| < 1 and high degrees, where the recurrence would be long
    """

    def polynomial(x, n):
        xp, dtype, (x, n) = in_double(x, n)
        with np.errstate(all="ignore"):
            value = _climb(xp, x, xp.trunc(n), first, step, closed)
        return arrays.cast(xp.asarray(value), dtype)

    polynomial.__doc__ = f"{words} of degree n at x. Shapes broadcast."
    declared = on_arrays(name=f"special.{name}", method=False, promote=("x", "n"), rule="float", differentiable=False)
    declared(polynomial).meta(broadcast)


def _climb(xp, x, n, first, step, closed):
    value = xp.where(n == 0, 1.0, 0.0)
    if closed is not None:
        known = (xp.abs(x) < 1) & (n > 8)
        value = xp.where(known, closed(xp, x, n), value)
        n = xp.where(known, -1.0, n)
    below, now = xp.ones_like(x), first(x)
    highest = float(xp.max(n)) if n.size else 0
    k = 1
    while k <= highest:
        value = xp.where(n == k, now, value)
        below, now = now, step(k, x, now, below)
        k += 1
    return value


def _chebyshev_step(k, x, now, below):
    return 2 * x * now - below


declare(
    "chebyshev_polynomial_t", "The Chebyshev polynomial of the first kind", lambda x: x, _chebyshev_step,
    lambda xp, x, n: xp.cos(n * xp.arccos(x)),
)  # fmt: skip
declare(
    "chebyshev_polynomial_u", "The Chebyshev polynomial of the second kind", lambda x: 2 * x, _chebyshev_step,
    lambda xp, x, n: xp.sin((n + 1) * xp.arccos(x)) / xp.sin(xp.arccos(x)),
)  # fmt: skip
declare(
    "chebyshev_polynomial_v", "The Chebyshev polynomial of the third kind", lambda x: 2 * x - 1, _chebyshev_step,
    lambda xp, x, n: xp.cos((n + 0.5) * xp.arccos(x)) / xp.cos(xp.arccos(x) / 2),
)  # fmt: skip
declare(
    "chebyshev_polynomial_w", "The Chebyshev polynomial of the fourth kind", lambda x: 2 * x + 1, _chebyshev_step,
    lambda xp, x, n: xp.sin((n + 0.5) * xp.arccos(x)) / xp.sin(xp.arccos(x) / 2),
)  # fmt: skip
for _letter, _kind, _first in (
    ("t", "first", lambda x: 2 * x - 1),
    ("u", "second", lambda x: 4 * x - 2),
    ("v", "third", lambda x: 4 * x - 3),
    ("w", "fourth", lambda x: 4 * x - 1),
):
    _words = f"The Chebyshev polynomial of the {_kind} kind for 0 <= x <= 1"
    declare(f"shifted_chebyshev_polynomial_{_letter}", _words, _first, lambda k, x, now, below: (4 * x - 2) * now - below)
declare(
    "hermite_polynomial_h", "The physicist's Hermite polynomial", lambda x: 2 * x,
    lambda k, x, now, below: 2 * x * now - 2 * k * below,
)  # fmt: skip
declare(
    "hermite_polynomial_he", "The probabilist's Hermite polynomial", lambda x: x,
    lambda k, x, now, below: x * now - k * below,
)  # fmt: skip
declare(
    "laguerre_polynomial_l", "The Laguerre polynomial", lambda x: 1 - x,
    lambda k, x, now, below: ((2 * k + 1 - x) * now - k * below) / (k + 1),
)  # fmt: skip
declare(
    "legendre_polynomial_p", "The Legendre polynomial", lambda x: x,
    lambda k, x, now, below: ((2 * k + 1) * x * now - k * below) / (k + 1),
)  # fmt: skip
