"""torch._dynamo.utils: helpers of PyTorch's compiler that others use."""

from __future__ import annotations

from collections import Counter, defaultdict

from flambeau.tensor import Tensor

__all__ = ["clone_input", "counters"]

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)  # what a compiler counts: nothing


def clone_input(x: Tensor, *, dtype: object = None) -> Tensor:
    """A copy of a tensor with the same strides, that wants a gradient if the tensor does."""
    copied = x.detach().clone() if dtype is None else x.detach().clone().to(dtype=dtype)
    return copied.requires_grad_(x.requires_grad)
