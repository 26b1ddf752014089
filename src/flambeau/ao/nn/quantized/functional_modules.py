"""Arithmetic as a layer, so that its results can be observed: in floating point it is the arithmetic itself."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.eager import bind
from flambeau.nn.modules.linear import Identity
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

__all__ = ["FloatFunctional"]


class FloatFunctional(Module):
    """x + y, x * y and so on, each passed through `activation_post_process`, where an observer is put.

    >>> f = FloatFunctional()
    >>> f.add_relu(torch.tensor([1.0, -3.0]), torch.tensor(2.0))
    tensor([3., 0.])
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("FloatFunctional has no forward: call one of its operations, such as .add(x, y)")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        return self.activation_post_process(x + y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """x + y for a number y, which needs no observer."""
        return x.add(y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """x * y."""
        return self.activation_post_process(x * y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """x * y for a number y, which needs no observer."""
        return x.mul(y)

    def cat(self, x: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Tensors one after the other."""
        return self.activation_post_process(bind.functions["cat"](x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """max(x + y, 0)."""
        return self.activation_post_process((x + y).relu())

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """The matrix product."""
        return self.activation_post_process(x @ y)
