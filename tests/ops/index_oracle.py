"""One program, two worlds: a line of Python run with PyTorch and with ours, on the same numbers in the same memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau  # noqa: E402
from flambeau.eager.bind import functions  # noqa: E402


def twin(t):
    """Ours of a torch tensor: a copy of its whole storage, seen through the same shape, strides and offset."""
    flat = t.detach().as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0)
    if t.dtype is torch.bfloat16:
        memory = flambeau.from_numpy(flat.float().numpy().copy()).to(flambeau.bfloat16)
    else:
        memory = flambeau.from_numpy(flat.numpy().copy())
    seen = memory.as_strided(tuple(t.shape), t.stride(), t.storage_offset()).detach()
    return seen.requires_grad_() if t.requires_grad else seen


def twins(value):
    """A structure of torch tensors (an index, arguments) with each replaced by ours."""
    if isinstance(value, torch.Tensor):
        return twin(value)
    if isinstance(value, (tuple, list)):
        return type(value)([twins(v) for v in value])
    if isinstance(value, slice):
        return slice(twins(value.start), twins(value.stop), twins(value.step))
    return value


def outcome(function, *args):
    """What a function returns, or the error it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, AssertionError) as error:
            return error


def numbers(t) -> np.ndarray:
    """The elements in double precision."""
    t = t.detach()
    if t.is_complex():
        return np.array(t.to(torch.complex128 if isinstance(t, torch.Tensor) else flambeau.complex128).numpy())
    return np.array(t.to(torch.float64 if isinstance(t, torch.Tensor) else flambeau.float64).numpy())


def assert_same(ours, theirs, what: str, rtol: float = 1e-6, strides: bool | str = True, names: bool = False) -> None:
    """Our result is PyTorch's: error type, dtype, shape, strides, values, and the name of its node if asked."""
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        assert type(ours) is type(theirs), f"{what}: PyTorch gives {theirs!r}, we give {ours!r}"
        return
    if isinstance(theirs, (tuple, list)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs), what
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, f"{what}, result {i}", rtol, strides, names)
        return
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs, what
        return
    assert tuple(ours.shape) == tuple(theirs.shape), what
    assert str(ours.dtype) == str(theirs.dtype), what
    if strides and theirs.numel():
        sizes = theirs.shape if strides == "felt" else [2] * theirs.dim()  # no element feels the stride of a dimension of size 1
        felt = [[step for step, n in zip(t.stride(), sizes, strict=True) if n > 1] for t in (ours, theirs)]
        assert felt[0] == felt[1], f"{what}: strides"
    np.testing.assert_allclose(numbers(ours), numbers(theirs), rtol=rtol, atol=rtol, err_msg=what)
    if names:
        assert (ours.grad_fn and ours.grad_fn.name()) == (theirs.grad_fn and theirs.grad_fn.name()), what


def world(module) -> dict:
    """The names a line of a program may use: x (2, 3), g the same with requires_grad, i = [0, 1], and t to make tensors."""
    x = module.arange(6.0).reshape(2, 3)
    functional = torch.nn.functional if module is torch else Functional
    names = {"torch": module, "F": functional, "np": np, "t": module.tensor}
    return names | {"x": x, "i": module.tensor([0, 1]), "g": x.clone().requires_grad_()}


class Functional:
    """The operations of nn.functional."""

    embedding = staticmethod(functions["nn.functional.embedding"])


def run(module, line: str):
    """The value of an expression; of statements, that of x after them."""
    names = world(module)
    try:
        code = compile(line, line, "eval")
    except SyntaxError:
        found = outcome(exec, line, names)
        return found if isinstance(found, Exception) else names["x"]
    return outcome(eval, code, names)


def check_lines(lines: str, **options) -> None:
    """Every line does the same in both worlds."""
    for line in filter(None, map(str.strip, lines.splitlines())):
        assert_same(run(flambeau, line), run(torch, line), line, **options)


def check_gradients(function, *args, rtol: float = 1e-5, twice: bool = False) -> None:
    """Values and gradients of function(module, *args) by every floating argument; with `twice`, second derivatives too."""
    theirs = [a.detach().clone().requires_grad_() if _differentiable(a) else a for a in args]
    ours = [twins(a) for a in theirs]
    expected, found = function(torch, *theirs), function(flambeau, *ours)
    assert_same(found, expected, "value", rtol, strides=False)
    weight = torch.linspace(-1.0, 1.5, expected.numel(), dtype=expected.dtype).reshape(expected.shape)
    leaves = [(a, b) for a, b in zip(theirs, ours, strict=True) if _differentiable(a)]
    there = torch.autograd.grad(expected, [a for a, _ in leaves], weight, create_graph=twice, allow_unused=True)
    here = flambeau.autograd.grad(found, [b for _, b in leaves], twin(weight), create_graph=twice, allow_unused=True)
    for number, (a, b) in enumerate(zip(here, there, strict=True)):
        assert (a is None) == (b is None), f"gradient {number}"
        if b is not None:
            assert_same(a, b, f"gradient {number}", rtol, strides=False)
    if twice:
        _check_second(here, there, leaves, rtol)


def _check_second(here, there, leaves, rtol: float) -> None:
    pairs = [(a, b) for a, b in zip(here, there, strict=True) if b is not None and b.requires_grad]
    if not pairs:
        return
    expected = torch.autograd.grad(sum((b**2).sum() for _, b in pairs), [a for a, _ in leaves], allow_unused=True)
    found = flambeau.autograd.grad(sum((a**2).sum() for a, _ in pairs), [b for _, b in leaves], allow_unused=True)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        if b is not None and b.abs().max() > 0:
            assert_same(a, b, f"second derivative {number}", rtol, strides=False)


def _differentiable(a) -> bool:
    return isinstance(a, torch.Tensor) and (a.is_floating_point() or a.is_complex())
