"""associative_scan: running combinations, forward and back, of one tensor and of several."""

from __future__ import annotations

import pytest
from flambeau._higher_order_ops.associative_scan import associative_scan

import flambeau


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 33])
@pytest.mark.parametrize("reverse", [False, True])
def test_sums_and_products_are_cumsum_and_cumprod(n, reverse):
    """Of addition it is cumsum, of multiplication cumprod, along any dimension; `reverse` begins at the end."""
    x = flambeau.rand(2, n, 3, dtype=flambeau.float64) + 0.5
    turn = (lambda t: t.flip(1)) if reverse else (lambda t: t)
    for combine, known in ((lambda a, b: a + b, flambeau.cumsum), (lambda a, b: a * b, flambeau.cumprod)):
        found = associative_scan(combine, x, 1, reverse)
        assert flambeau.allclose(found, turn(known(turn(x), 1)), rtol=1e-12) and found.shape == x.shape


@pytest.mark.parametrize("n", [2, 5, 16])
def test_a_linear_recurrence_and_its_gradient(n):
    """h = a h + b, on pairs of tensors and by a function that does not commute, is what a loop gives, gradients included."""
    a, b = (flambeau.rand(n, 3, dtype=flambeau.float64, requires_grad=True) for _ in range(2))

    def combine(left, right):
        return {"a": left["a"] * right["a"], "b": right["a"] * left["b"] + right["b"]}

    found = associative_scan(combine, {"a": a, "b": b}, 0)["b"]
    h, steps = flambeau.zeros(3, dtype=flambeau.float64), []
    for i in range(n):
        h = a[i] * h + b[i]
        steps.append(h)
    wanted = flambeau.stack(steps)
    assert flambeau.allclose(found, wanted)
    ours, theirs = (flambeau.autograd.grad(t.square().sum(), (a, b)) for t in (found, wanted))
    assert all(flambeau.allclose(x, y) for x, y in zip(ours, theirs, strict=True))


def test_what_is_refused():
    """Something that is no function, tensors of unequal length, no tensors, an unknown mode."""
    x = flambeau.ones(3)
    for combine, xs, mode in ((3, x, "pointwise"), (max, (x, x[:2]), "pointwise"), (max, [], "generic"), (max, x, "fast")):
        with pytest.raises(ValueError):
            associative_scan(combine, xs, 0, combine_mode=mode)
