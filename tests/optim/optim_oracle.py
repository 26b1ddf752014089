"""The same optimizer in both frameworks: parameters from one source, states carried across."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

SHAPES = [(4, 5), (), (0,), (7,), (2, 3, 4)]
TOLERANCE = {"float32": 2e-6, "float64": 1e-12, "complex64": 2e-6, "complex128": 1e-12}

# Every optimizer that moves elements by themselves, with all its options.
OPTIONS: dict[str, list[dict]] = {
    "SGD": [
        {}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.5}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"weight_decay": 0.1, "maximize": True}, {"momentum": 0.9, "maximize": True},
    ],
    "Adam": [{}, {"amsgrad": True, "weight_decay": 0.1}, {"betas": (0.3, 0.6), "eps": 1e-3}, {"maximize": True}, {"betas": (0.0, 0.0)},
             {"decoupled_weight_decay": True, "weight_decay": 0.3}],
    "AdamW": [{}, {"amsgrad": True}, {"weight_decay": 0.5, "lr": 0.1, "maximize": True}],
    "Adamax": [{}, {"weight_decay": 0.1, "maximize": True}, {"betas": (0.5, 0.5), "eps": 0.1}],
    "NAdam": [{}, {"weight_decay": 0.1, "maximize": True}, {"decoupled_weight_decay": True, "weight_decay": 0.1, "momentum_decay": 0.1}],
    "RAdam": [{}, {"betas": (0.9, 0.9), "weight_decay": 0.1}, {"decoupled_weight_decay": True, "weight_decay": 0.1, "maximize": True}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1, "maximize": True}, {"initial_accumulator_value": 0.5, "eps": 1e-3}],
    "Adadelta": [{}, {"rho": 0.5, "weight_decay": 0.1, "maximize": True}, {"lr": 0.1, "eps": 1e-3}],
    "RMSprop": [{}, {"momentum": 0.9}, {"centered": True}, {"momentum": 0.5, "centered": True, "weight_decay": 0.1, "maximize": True}],
    "Rprop": [{}, {"etas": (0.4, 1.5), "step_sizes": (1e-3, 0.02), "maximize": True}],
    "ASGD": [{}, {"t0": 5, "weight_decay": 0.1}, {"lambd": 0.1, "alpha": 0.5, "maximize": True, "t0": 3}],
}  # fmt: skip
CASES = [(name, options) for name, several in OPTIONS.items() for options in several]


def values(shape, dtype: str, rng) -> np.ndarray:
    """Normal numbers."""
    found = rng.standard_normal(shape)
    return np.asarray(found + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else found).astype(dtype)


def pair(dtype: str, seed: int = 0, shapes=SHAPES) -> tuple[list, list]:
    """The same leaves in flambeau and torch."""
    rng = np.random.default_rng(seed)
    starts = [values(shape, dtype, rng) for shape in shapes]
    return tuple(
        [f.tensor(a.tolist(), dtype=getattr(f, dtype)).reshape(a.shape).requires_grad_() for a in starts] for f in (flambeau, torch)
    )


def give_gradients(ours: list, theirs: list, seed: int) -> None:
    """The same gradients to both."""
    rng = np.random.default_rng(seed)
    for a, b in zip(ours, theirs, strict=True):
        g = values(tuple(b.shape), str(b.dtype).removeprefix("torch."), rng)
        a.grad, b.grad = flambeau.from_numpy(g.copy()), torch.from_numpy(g.copy())


def assert_equal(ours, theirs, tolerance: float) -> None:
    """Tensors, numbers, and whatever holds them."""
    if isinstance(theirs, torch.Tensor):
        assert str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance * 10, atol=tolerance)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_equal(ours[key], theirs[key], tolerance)
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_equal(a, b, tolerance)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=max(tolerance, 1e-12))
    else:
        assert ours == theirs


def carried(value):
    """A state dict of torch's for flambeau, and the other way round."""
    if isinstance(value, torch.Tensor):
        return flambeau.from_numpy(value.detach().numpy().copy())
    if isinstance(value, flambeau.Tensor):
        return torch.from_numpy(value.detach().numpy().copy())
    if isinstance(value, dict):
        return {key: carried(v) for key, v in value.items()}
    return type(value)(carried(v) for v in value) if isinstance(value, (list, tuple)) else value
