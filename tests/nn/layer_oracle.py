"""A layer of both frameworks from one seed, called with the same numbers: everything a user can see of it is compared."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 4e-2, "float16": 5e-3}


def values(tensor: Any) -> np.ndarray:
    """A tensor of either framework as NumPy's array; half precision as float32."""
    half = str(tensor.dtype) in ("torch.bfloat16", "torch.float16")
    return (tensor.float() if half else tensor).detach().numpy()


def assert_near(ours: Any, theirs: Any, what: str, tolerance: float | None = None) -> None:
    """Shape, dtype and values are PyTorch's."""
    if theirs is None:
        assert ours is None, what
        return
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: shape {tuple(ours.shape)}, expected {tuple(theirs.shape)}"
    assert str(ours.dtype) == str(theirs.dtype), f"{what}: {ours.dtype}, expected {theirs.dtype}"
    room = TOLERANCE.get(str(theirs.dtype).removeprefix("torch."), 0) if tolerance is None else tolerance
    np.testing.assert_allclose(values(ours), values(theirs), rtol=room, atol=room, equal_nan=True, err_msg=what)


def inputs(*given: Any, dtype: str = "float32", seed: int = 0, grad: bool = True) -> tuple[list, list]:
    """(Flambeau's, PyTorch's) tensors: shapes become normal numbers, arrays become tensors, anything else stays."""
    rng = np.random.default_rng(seed)
    ours, theirs = [], []
    for g in given:
        if isinstance(g, tuple):
            g = rng.standard_normal(g)
        if not isinstance(g, np.ndarray):
            ours.append(g), theirs.append(g)
            continue
        real = g.dtype.kind == "f"
        for package, found in ((flambeau, ours), (torch, theirs)):
            t = package.tensor(g.tolist(), dtype=getattr(package, dtype if real else g.dtype.name)).reshape(g.shape)
            found.append(t.requires_grad_(grad and real and g.size > 0))
    return ours, theirs


def pair(name: str, *args: Any, dtype: str = "float32", **options: Any) -> tuple[Any, Any]:
    """(Flambeau's, PyTorch's) layer, drawn from one seed; their reprs and states are compared."""
    made = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in (flambeau, torch):
            package.manual_seed(7)
            made.append(getattr(package.nn, name)(*args, **options).to(getattr(package, dtype)))
    ours, theirs = made
    assert repr(ours) == repr(theirs)
    assert_states(ours, theirs)
    return ours, theirs


def assert_states(ours: Any, theirs: Any) -> None:
    """The state dictionaries have the same keys, in the same order, and the same values."""
    mine, other = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(other)
    for key in other:
        assert_near(mine[key], other[key], key)


def check_layer(
    name: str, *args: Any, on: tuple = ((2, 3, 4),), dtype: str = "float32", train: bool = True, calls: int = 1, **options: Any
):
    """Build, call (a few times), go backward; compare outputs, gradients, and the state afterwards. Returns both layers."""
    ours, theirs = pair(name, *args, dtype=dtype, **options)
    ours.train(train), theirs.train(train)
    compare_calls(ours, theirs, on, dtype, calls)
    assert_states(ours, theirs)
    again = pickle.loads(pickle.dumps(ours))
    assert repr(again) == repr(ours) and list(again.state_dict()) == list(ours.state_dict())
    return ours, theirs


def compare_calls(ours: Any, theirs: Any, on: tuple, dtype: str = "float32", calls: int = 1, tolerance: float | None = None) -> None:
    """Any two functions of tensors, called from one seed: values, and gradients of a weighted sum."""
    parameters = list(zip(getattr(ours, "parameters", list)(), getattr(theirs, "parameters", list)(), strict=True))
    for call in range(calls):
        a, b = inputs(*on, dtype=dtype, seed=call)
        flambeau.manual_seed(call), torch.manual_seed(call)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Not the leaves themselves: a function may write over its input.
            mine, other = ours(*[x * 1 if hasattr(x, "grad") and x.requires_grad else x for x in a]), None
            other = theirs(*[x * 1 if hasattr(x, "grad") and x.requires_grad else x for x in b])
        assert_near(mine, other, "output", tolerance)
        if not other.requires_grad:
            assert not mine.requires_grad
            continue
        weight = np.random.default_rng(99).standard_normal(tuple(other.shape))
        grads = [p.tensor(weight.tolist(), dtype=o.dtype).reshape(weight.shape) for p, o in ((flambeau, mine), (torch, other))]
        mine.backward(grads[0]), other.backward(grads[1])
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if hasattr(y, "grad") and y.requires_grad:
                assert_near(x.grad, y.grad, f"gradient of input {i}", tolerance)
    for i, (p, q) in enumerate(parameters):
        assert_near(p.grad, q.grad, f"gradient of parameter {i}", tolerance)


def check_function(call: Any, *on: Any, dtype: str = "float32", second: bool = False, tolerance: float | None = None) -> None:
    """`call(torch, *tensors)` in both frameworks: values, gradients, and second derivatives if asked for."""
    compare_calls(lambda *x: call(flambeau, *x), lambda *x: call(torch, *x), on, dtype, tolerance=tolerance)
    if second:
        found = []
        for package, tensors in zip((flambeau, torch), inputs(*on, dtype="float64"), strict=True):
            leaves = [t for t in tensors if hasattr(t, "grad") and t.requires_grad]
            package.manual_seed(0)
            first = package.autograd.grad((call(package, *tensors) ** 2).sum(), leaves, create_graph=True)
            total = sum((g * g).sum() for g in first)
            found.append(package.autograd.grad(total, leaves))
        for i, (mine, other) in enumerate(zip(*found, strict=True)):
            assert_near(mine, other, f"second derivative of input {i}", 1e-7)


def check_errors(call: Any, *on: Any) -> None:
    """Both frameworks refuse the call, with the same type of exception."""
    problems = []
    for package, tensors in zip((flambeau, torch), inputs(*on), strict=True):
        with warnings.catch_warnings(), pytest.raises(Exception) as found:
            warnings.simplefilter("ignore")
            call(package, *tensors)
        problems.append(found.type)
    assert problems[0] is problems[1], problems
