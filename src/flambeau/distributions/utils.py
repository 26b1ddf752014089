"""Small things that distributions share."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from flambeau import dtypes, modes
from flambeau.eager import bind
from flambeau.interpreters.by_name import has_override
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories

euler_constant = 0.57721566490153286060

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip


def op(name: str, *args: Any, **kwargs: Any) -> Any:
    """An operation that is no method of tensors."""
    return bind.functions[name](*args, **kwargs)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype and device of the first tensor."""
    if not all(isinstance(v, (Tensor, Number)) or has_override(v) for v in values):
        raise ValueError("Input arguments must all be numbers or tensors, or of a class with __torch_function__")
    first = next((v for v in values if isinstance(v, Tensor)), None)
    options = {"dtype": dtypes.get_default_dtype()} if first is None else {"dtype": first.dtype, "device": first.device}
    tensors = [v if not isinstance(v, Number) else factories.tensor(v, **options) for v in values]
    return tuple(op("broadcast_tensors", *tensors))


def standard_normal(shape, dtype, device) -> Tensor:
    """Normal numbers of mean 0 and deviation 1."""
    return factories.empty(shape, dtype=dtype, device=device).normal_()


def uniform(shape, like: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) of the dtype and device of a tensor."""
    return factories.empty(shape, dtype=like.dtype, device=like.device).uniform_()


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """Summed over the last `dim` dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[: value.dim() - dim], -1)).sum(-1)


_standard_normal, _sum_rightmost = standard_normal, sum_rightmost  # by which distributions of others import them


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities from log odds, or from unnormalized log probabilities along the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1 by the smallest step of their dtype, so that their logarithms are finite."""
    eps = dtypes.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds from probabilities, or their logarithms along the last dimension."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The entries on and below a diagonal, row by row. (*, n, n) -> (*, n (n + 1) / 2) for the main diagonal"""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    row, column = factories.tril_indices(n, n, offset=diag)
    return mat[..., row, column]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The other way round: a matrix that is 0 above the diagonal."""
    # The positive root of the number of entries as a function of the number of rows.
    middle = diag + 0.5
    root = (middle**2 + 2 * vec.shape[-1] + abs(diag) * (diag + 1)) ** 0.5 - middle
    n = round(root)
    if abs(root - n) > 1e-7:
        raise ValueError(
            f"{vec.shape[-1]} entries in the last dimension cannot be expressed as a triangle on and below diagonal {diag} of "
            "a square matrix"
        )
    found = vec.new_zeros((*vec.shape[:-1], n, n))
    row, column = factories.tril_indices(n, n, offset=diag)
    found[..., row, column] = vec
    return found


class lazy_property:
    """An attribute that is computed when it is first asked for, and kept."""

    def __init__(self, wrapped: Callable):
        self.wrapped, self.__doc__, self.__name__ = wrapped, wrapped.__doc__, wrapped.__name__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with modes.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.__name__, value)
        return value
