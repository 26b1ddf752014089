"""Both frameworks side by side: one seed, one program, two results.

PyTorch warns that its quantized tensors and `quantize_dynamic` are to be replaced one day: that is not what is tested here.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
FRAMEWORKS = (torch, flambeau)


def both(program, *args, **kwargs) -> tuple:
    """(PyTorch's result, ours) of program(framework, ...), each after the same seed."""
    found, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)  # its threads wait for each other in every step, for long where other programs run
    try:
        for framework in FRAMEWORKS:
            framework.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(program(framework, *args, **kwargs))
    finally:
        torch.set_num_threads(threads)
    return tuple(found)


def refusals(program) -> tuple[type, type]:
    """The exceptions that both frameworks raise."""

    def attempt(framework):
        try:
            program(framework)
        except Exception as problem:
            return type(problem)
        return None

    return both(attempt)


def array(x) -> np.ndarray:
    """The numbers of a tensor of either framework; of a quantized one, its integers."""
    x = x.int_repr() if x.is_quantized else x
    return x.detach().numpy()


def same(program, *args, **kwargs) -> None:
    """Both results have the same dtype and bits."""
    theirs, ours = both(program, *args, **kwargs)
    for a, b in zip(theirs, ours, strict=True) if isinstance(theirs, tuple) else [(theirs, ours)]:
        assert str(a.dtype) == str(b.dtype)
        np.testing.assert_array_equal(array(a), array(b))


def close(program, tolerance: float = 2e-6, *args, **kwargs) -> None:
    """Both results are equal but for the rounding of floats."""
    theirs, ours = both(program, *args, **kwargs)
    for a, b in zip(theirs, ours, strict=True) if isinstance(theirs, tuple) else [(theirs, ours)]:
        np.testing.assert_allclose(array(a), array(b), rtol=0, atol=tolerance)
