"""vmap of one operation after the other, compared with a loop over the samples: values, gradients outside and inside."""

from __future__ import annotations

import warnings
import zlib

import numpy as np
import pytest
from vmap_samples import ALL

import flambeau
from flambeau.func import grad, vmap

SIZE = 3
# Writing samples into a tensor that all of them share is refused.
REFUSED = {
    "add_", "mul_ div_", "iadd", "view write", "copy_", "fill_ tensor", "scatter_", "masked_fill_", "set int", "set slice", "set list",
    "set tensor", "new_zeros write",
}  # fmt: skip


def made(sample, batched: bool, seed: int) -> flambeau.Tensor:
    shape, kind = sample if len(sample) == 2 and isinstance(sample[1], str) else (sample, "float")
    random = np.random.default_rng(seed)
    shape = (SIZE, *shape) if batched else tuple(shape)
    if kind.startswith("index"):
        if shape == ():
            return flambeau.tensor(int(random.integers(int(kind[5:]))))
        return flambeau.tensor(random.integers(0, int(kind[5:]), shape))
    if kind == "bool":
        return flambeau.tensor(random.random(shape) > 0.5)
    x = random.standard_normal(shape)
    if kind in ("positive", "given"):
        x = np.abs(x) + 0.5
    elif kind == "unit":
        x = random.random(shape) * 0.8 + 0.1
    elif kind == "spd":
        x = x @ np.swapaxes(x, -1, -2) + 3 * np.eye(shape[-1])
    return flambeau.tensor(x)


def which(n: int):
    """Which of n arguments are mapped over: all, then each one alone."""
    yield (True,) * n
    if n > 1:
        for i in range(n):
            yield tuple(j == i for j in range(n))


def cases():
    for name, (function, *samples) in ALL.items():
        for mapped in which(len(samples)):
            label = name if all(mapped) else f"{name}, only {mapped.index(True)}"
            yield pytest.param(function, samples, mapped, id=label)


def prepared(function, samples, mapped, label):
    seed = zlib.crc32(label.encode())
    xs = [made(s, m, seed + i) for i, (s, m) in enumerate(zip(samples, mapped, strict=True))]
    return (lambda *args: function(flambeau, *args)), xs, tuple(0 if m else None for m in mapped)


def close(a, b, what):
    assert tuple(a.shape) == tuple(b.shape) and a.dtype is b.dtype, (what, a.shape, b.shape, a.dtype, b.dtype)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9, err_msg=what)


def refused(label: str) -> bool:
    """Whether only what is written is mapped over, and not what it is written into."""
    name, _, which_one = label.partition("[")[2].removesuffix("]").partition(", only ")
    return name in REFUSED and which_one not in ("", "0")


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


def sliced(xs, dims, i):
    return [x if d is None else x[i] for x, d in zip(xs, dims, strict=True)]


@pytest.mark.parametrize(("function", "samples", "mapped"), list(cases()))
def test_vmap_is_a_loop(function, samples, mapped, request):
    """vmap(f) gives what stacking f of each sample gives."""
    f, xs, dims = prepared(function, samples, mapped, request.node.name)
    if refused(request.node.name):
        with pytest.raises(RuntimeError, match="inplace"):
            vmap(f, in_dims=dims)(*xs)
        return
    expected = flambeau.stack([f(*sliced(xs, dims, i)) for i in range(SIZE)])
    close(vmap(f, in_dims=dims)(*xs), expected, "values")


@pytest.mark.parametrize(("function", "samples", "mapped"), list(cases()))
def test_gradients_through_and_inside(function, samples, mapped, request):
    """grad(vmap(f)) and vmap(grad(f)) are the gradients of the loop."""
    f, xs, dims = prepared(function, samples, mapped, request.node.name)
    floats = tuple(i for i, x in enumerate(xs) if x.is_floating_point() and "given" not in samples[i])
    out = f(*sliced(xs, dims, 0))
    if not floats or not out.is_floating_point() or refused(request.node.name):
        return
    weight = flambeau.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)))
    loss = lambda *args: (f(*args) * weight).sum()  # noqa: E731

    inside = vmap(grad(loss, argnums=floats), in_dims=dims)(*xs)
    each = [grad(loss, argnums=floats)(*sliced(xs, dims, i)) for i in range(SIZE)]
    for k in range(len(floats)):
        close(inside[k], flambeau.stack([g[k] for g in each]), f"vmap(grad), argument {floats[k]}")

    through = grad(lambda *args: vmap(loss, in_dims=dims)(*args).sum(), argnums=floats)(*xs)
    for k, i in enumerate(floats):
        expected = flambeau.stack([g[k] for g in each])
        close(through[k], expected if dims[i] is not None else expected.sum(0), f"grad(vmap), argument {i}")


@pytest.mark.parametrize(
    "name", ["mm", "softmax", "tensor", "conv2d", "layer_norm", "cross_entropy", "where", "cat", "set int", "view write"]
)
def test_nested(name):
    """A vmap in a vmap is a loop in a loop."""
    function, *samples = ALL[name]
    f = lambda *args: function(flambeau, *args)  # noqa: E731
    rows = [[made(s, True, 7 * i + j) for i, s in enumerate(samples)] for j in range(2)]
    xs = [flambeau.stack([row[i] for row in rows]) for i in range(len(samples))]
    expected = flambeau.stack([flambeau.stack([f(*[x[i] for x in row]) for i in range(SIZE)]) for row in rows])
    close(vmap(vmap(f))(*xs), expected, "inner first")
    swapped = [x.movedim(1, 0) for x in xs]
    close(vmap(vmap(f, in_dims=0), in_dims=1)(*swapped), expected, "outer dimension second")


def test_rules_are_of_operations_that_exist():
    """A rule for an operation that was renamed would never be found."""
    from flambeau.batching import rules
    from flambeau.ops import OPS

    for name in (*rules.RULES, *rules.COMPOSED):
        assert OPS[name].name == name


def test_few_operations_loop():
    """Of the operations in the table only those known to loop do."""
    from flambeau.batching import dispatch

    dispatch._told.clear()
    for function, *samples in ALL.values():
        f, xs, dims = prepared(function, samples, (True,) * len(samples), "loops")
        vmap(f, in_dims=dims)(*xs)
    assert dispatch._told <= {"_index_put", "_take"}, dispatch._told


def test_factors_of_every_sample_are_unpacked():
    """lu_unpack and lu_solve looked at pivots before there were samples to look at."""
    a = flambeau.tensor([[[0.0, 2.0], [1.0, 3.0]], [[4.0, 1.0], [2.0, 5.0]]])
    factors, pivots = flambeau.linalg.lu_factor(a)
    b = flambeau.ones(2, 2, 1)
    P, L, U = flambeau.vmap(flambeau.lu_unpack)(factors, pivots)
    assert flambeau.allclose(P @ L @ U, a)
    assert flambeau.allclose(a @ flambeau.vmap(flambeau.linalg.lu_solve)(factors, pivots, b), b)
