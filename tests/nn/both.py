"""One program, two frameworks: it is run with flambeau and with PyTorch in the place of `torch`, and must tell the same story.

    @both
    def test_something(torch):
        \"\"\"The sentence to read when it goes red.\"\"\"
        layer = torch.nn.Linear(2, 3)
        return layer(torch.ones(1, 2)), repr(layer), refused(lambda: layer(torch.ones(3)))

What it returns is compared: tensors by value, dtype and shape, containers item by item, the rest by equality. Both start from the same seed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import flambeau

pytorch = pytest.importorskip("torch")


def both(program: Callable | None = None, *, tolerance: float = 2e-6):
    """Make a test of a program that takes a framework."""
    if program is None:
        return functools.partial(both, tolerance=tolerance)

    # No functools.wraps: pytest would take the program's parameter for a fixture.
    def test():
        ours, theirs = [_run(program, framework) for framework in (flambeau, pytorch)]
        assert_alike(ours, theirs, tolerance)

    test.__name__, test.__doc__ = program.__name__, program.__doc__
    return test


def _run(program: Callable, framework: Any) -> Any:
    framework.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program(framework)


def refused(call: Callable, *, words: bool = False) -> Any:
    """The type of exception a call raises, with its text if `words`; the result if it raises none."""
    try:
        return call()
    except Exception as problem:
        return (type(problem).__name__, str(problem)) if words else type(problem).__name__


def warned(call: Callable) -> list[str]:
    """The categories of warnings a call gives."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return sorted({w.category.__name__ for w in found})


def assert_alike(ours: Any, theirs: Any, tolerance: float, where: str = "result") -> None:
    """The same, where tensors, dtypes and classes of the two frameworks count as the same if they are called the same."""
    if isinstance(theirs, pytorch.Tensor):
        assert isinstance(ours, flambeau.Tensor), f"{where}: found {type(ours).__name__}, expected a tensor"
        assert type(ours).__name__ == type(theirs).__name__, where
        assert str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape), where
        assert ours.requires_grad == theirs.requires_grad, f"{where}: requires_grad"
        if theirs.device.type != "meta":
            a, b = [
                np.asarray(t.detach().to(f.float64 if not t.is_complex() else f.complex128))
                for t, f in ((ours, flambeau), (theirs, pytorch))
            ]
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=where)
    elif isinstance(theirs, Mapping):
        assert list(ours) == list(theirs), where
        for key in theirs:
            assert_alike(ours[key], theirs[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert type(ours).__name__ == type(theirs).__name__ and len(ours) == len(theirs), f"{where}: {ours} instead of {theirs}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_alike(a, b, tolerance, f"{where}[{i}]")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=tolerance, nan_ok=True), where
    elif type(theirs).__module__.startswith("torch"):
        assert str(ours) == str(theirs), where
    else:
        assert ours == theirs, f"{where}: found {ours!r}, expected {theirs!r}"


def clean(text: str) -> str:
    """A repr without what differs by name of package."""
    return text.replace("flambeau", "torch")
