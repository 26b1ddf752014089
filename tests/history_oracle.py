"""One question, asked of real torch and of Flambeau: the answers must agree.

A question is a function of the framework. Tensors in its answer are compared by dtype, shape, values and requires_grad; errors by their
type; all else by equality.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

FRAMEWORKS = (torch, flambeau)


def agree(question, *arguments, rtol: float = 1e-6, atol: float = 1e-8) -> None:
    """Fail unless Flambeau answers as torch does."""
    expected, found = answer(question, torch, arguments), answer(question, flambeau, arguments)
    if isinstance(found, Exception) and not isinstance(expected, Exception):
        raise AssertionError(f"torch gives {shown(expected)}, Flambeau raises {type(found).__name__}: {found}") from found
    compare(expected, found, "answer", rtol, atol)


def answer(question, framework, arguments=()):
    """What the question gives, or the exception it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return question(framework, *arguments)
        except Exception as problem:
            return problem


def compare(expected, found, where: str, rtol: float, atol: float) -> None:
    if isinstance(expected, Exception):
        assert isinstance(found, Exception), f"{where}: torch raises {type(expected).__name__} ({expected}), Flambeau gives {shown(found)}"
        assert type(found).__name__ == type(expected).__name__, f"{where}: torch raises {expected!r}, Flambeau {found!r}"
    elif isinstance(expected, torch.Tensor):
        assert isinstance(found, flambeau.Tensor), f"{where}: expected a tensor, found {shown(found)}"
        same = (str(expected.dtype), tuple(expected.shape), expected.requires_grad)
        assert (str(found.dtype), tuple(found.shape), found.requires_grad) == same, (
            f"{where}: torch gives {shown(expected)}, Flambeau {shown(found)}"
        )
        np.testing.assert_allclose(numbers(found), numbers(expected), rtol=rtol, atol=atol, err_msg=where)
    elif isinstance(expected, (tuple, list)):
        assert isinstance(found, (tuple, list)) and len(found) == len(expected), f"{where}: {shown(expected)} against {shown(found)}"
        for i, (e, f) in enumerate(zip(expected, found, strict=True)):
            compare(e, f, f"{where}[{i}]", rtol, atol)
    elif isinstance(expected, dict):
        assert list(map(str, expected)) == list(map(str, found)), f"{where}: {list(expected)} against {list(found)}"
        for (key, e), f in zip(expected.items(), found.values(), strict=True):
            compare(e, f, f"{where}[{key}]", rtol, atol)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rtol, abs=atol, nan_ok=True), where
    elif isinstance(expected, (torch.dtype, torch.Size, torch.device)):
        assert str(found) == str(expected), where
    else:
        assert found == expected, f"{where}: torch gives {shown(expected)}, Flambeau {shown(found)}"


def numbers(tensor) -> np.ndarray:
    """The elements as a NumPy array that can hold them all."""
    return np.array(tensor.detach().tolist(), dtype=np.complex128 if tensor.is_complex() else np.float64).reshape(tuple(tensor.shape))


def shown(value) -> str:
    if isinstance(value, (torch.Tensor, flambeau.Tensor)):
        return f"{value.dtype} {tuple(value.shape)} requires_grad={value.requires_grad} {value.detach().tolist()}"
    return repr(value)


def questions(*listed):
    """Parametrise a test with questions, named after their functions."""
    return pytest.mark.parametrize("question", listed, ids=[f"{i}-{q.__name__.strip('<>')}" for i, q in enumerate(listed)])


def array(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers between 0.3 and 1.3, away from kinks and poles."""
    return np.random.RandomState(seed + len(shape)).rand(*shape) + 0.3


def plain(T, *shape: int, seed: int = 0):
    """A float64 tensor without history."""
    return T.tensor(array(*shape, seed=seed))


def leaf(T, *shape: int, seed: int = 0):
    """A float64 leaf that requires a gradient."""
    return plain(T, *shape, seed=seed).requires_grad_()


def complex_leaf(T, *shape: int, seed: int = 0):
    """A complex128 leaf that requires a gradient."""
    return T.tensor(array(*shape, seed=seed) + 1j * array(*shape, seed=seed + 1)).requires_grad_()


def name(tensor) -> str | None:
    """The name of the node that made a tensor."""
    return None if tensor.grad_fn is None else tensor.grad_fn.name()


def weigh(T, *tensors):
    """A number that depends on every element differently: 1 * first + 2 * second + ..., by cosine so that no gradient is constant."""
    total = 0.0
    for tensor in tensors:
        value = (tensor.real + 2 * tensor.imag) if tensor.is_complex() else tensor
        count = math.prod(tensor.shape)
        weights = T.tensor(np.cos(np.arange(count)) + 1.5).reshape(tuple(tensor.shape))
        total = total + (value * weights).sum()
    return total
